//! The geom of a scheduler, and the details of it that lists show.

use std::collections::BTreeMap;
use std::sync::Arc;

use bio::Errno;
use geom::{ConsumerId, Event, Geom, GeomId, Settings, Topology};
use schemars::JsonSchema;
use serde::Serialize;

use super::algorithms::{Share, about, shares};
use super::clients::{Client, Service};
use super::layer::SchedShared;
use super::params;

/// One scheduler.
pub struct SchedGeom {
    pub(super) shared: Arc<SchedShared>,
    /// It was inserted without a restart; it is removed in the same way.
    pub(super) inserted: bool,
}

/// The statistics of a scheduler.
#[derive(Serialize, JsonSchema)]
pub(super) struct SchedStats {
    /// Name of the scheduler.
    pub(super) name: String,
    /// Name of the algorithm.
    pub(super) algorithm: &'static str,
    /// The algorithm in one sentence.
    about: &'static str,
    /// Classification of requests into clients.
    classify: &'static str,
    /// Whether it was inserted under the users of its disk.
    inserted: bool,
    /// Options of the algorithm, by name.
    options: BTreeMap<&'static str, u64>,
    /// Counters of the algorithm, by name.
    counters: BTreeMap<&'static str, u64>,
    /// Requests that wait.
    waiting: u32,
    /// Requests in the disk.
    in_flight: u32,
    /// Requests that wait behind a flush.
    behind_a_fence: usize,
    /// Requests of all clients.
    requests: u64,
    /// Bytes that all clients read.
    read_bytes: u64,
    /// Bytes that all clients wrote.
    written_bytes: u64,
    /// Each client.
    pub(super) clients: Vec<ClientStats>,
    /// Share of clients without one of their own.
    share: Share,
    /// Shares of single clients, by the client's key.
    shares: BTreeMap<String, Share>,
}

/// The statistics of a client.
#[derive(Serialize, JsonSchema)]
pub(super) struct ClientStats {
    /// Name of the client.
    pub(super) client: String,
    /// Name of the client in options; null: clients that share one place.
    key: Option<String>,
    /// Requests that wait or are in the disk.
    inside: u32,
    #[serde(flatten)]
    pub(super) service: Service,
    #[serde(flatten)]
    pub(super) share: Share,
}

/// `key=value` of each, with spaces between them.
fn words(all: &[(&'static str, u64)]) -> String {
    let words: Vec<String> = all.iter().map(|(k, v)| format!("{k}={v}")).collect();
    words.join(" ")
}

fn called(client: &Client) -> &str {
    client.name.as_ref().map_or("others", |name| &name.label)
}

impl SchedGeom {
    /// All that is known of it, for `stats`.
    pub(super) fn stats(&self, name: &str) -> SchedStats {
        self.shared.with_queue(|hub| {
            let counts = hub.counts();
            let clients = hub.clients.all().map(|(client, share)| ClientStats {
                client: called(client).to_owned(),
                key: client.name.as_ref().map(|name| name.short.clone()),
                inside: client.inside,
                service: client.service,
                share,
            });
            let clients: Vec<ClientStats> = clients.collect();
            let Service { requests, read_bytes, written_bytes, .. } = hub.clients.sum();
            let (share, own) = hub.clients.shares();
            let shares = own.map(|(client, share)| (client.to_owned(), share)).collect();
            SchedStats {
                name: name.to_owned(),
                algorithm: hub.algorithm_name,
                about: about(hub.algorithm_name),
                classify: hub.classify.as_str(),
                inserted: self.inserted,
                options: hub.algorithm().knobs().all().collect(),
                counters: hub.algorithm().counters().into_iter().collect(),
                waiting: counts.waiting,
                in_flight: counts.in_flight,
                behind_a_fence: counts.fenced,
                requests,
                read_bytes,
                written_bytes,
                clients,
                share,
                shares,
            }
        })
    }
}

impl Geom for SchedGeom {
    /// Q6.
    fn set_draining(&mut self, hurry: bool) {
        self.shared.update(|hub| hub.set_draining(hurry));
    }

    fn schedules_clients(&self) -> bool {
        self.shared.with_queue(|hub| shares(hub.algorithm_name))
    }

    fn resizes(&self) -> bool {
        true
    }

    fn resized(&mut self, topology: &mut Topology, me: GeomId, consumer: ConsumerId) {
        let size = topology.below(consumer).and_then(|p| topology.limits(p)).map(|l| l.media_bytes);
        match (size, topology.providers_of(me).first().copied()) {
            (Some(size), Some(provider)) => topology.post(Event::Resize(provider, size)),
            _ => topology.wither_geom(me, Errno::NxIo),
        }
    }

    fn attr_changed(&mut self, topology: &mut Topology, me: GeomId, _: ConsumerId, name: &str) {
        topology.pass_up_attr(me, name);
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        self.shared.with_queue(|hub| {
            let knobs: Vec<_> = hub.algorithm().knobs().all().collect();
            let (standing, sum) = (hub.counts(), hub.clients.sum());
            let mut out = vec![
                ("algorithm", hub.algorithm_name.to_owned()),
                ("about", about(hub.algorithm_name).to_owned()),
                ("options", words(&knobs)),
                ("counters", words(&hub.algorithm().counters())),
                ("clients by", hub.classify.as_str().to_owned()),
                ("share", words(&hub.clients.shares().0.numbers())),
                ("inserted", if self.inserted { "yes" } else { "no" }.to_owned()),
                ("waiting", standing.waiting.to_string()),
                ("in flight", standing.in_flight.to_string()),
                ("requests", sum.requests.to_string()),
                ("read bytes", sum.read_bytes.to_string()),
                ("written bytes", sum.written_bytes.to_string()),
            ];
            let own = hub.clients.shares().1;
            out.extend(own.map(|(client, share)| {
                ("share of", format!("{client}: {}", words(&share.numbers())))
            }));
            out.extend(hub.clients.all().map(|(client, _)| {
                let got = &client.service;
                let mean = got.wait_ns.checked_div(got.requests).unwrap_or_default() / 1000;
                let line = format!(
                    "{}: {} requests, {} bytes read, {} written, waited {mean} us, at most {} us",
                    called(client),
                    got.requests,
                    got.read_bytes,
                    got.written_bytes,
                    got.wait_max_ns / 1000
                );
                ("client", line)
            }));
            out
        })
    }

    fn settings(&self, _: &Topology, _: GeomId) -> Settings {
        self.shared.with_queue(|hub| params::settings(hub))
    }
}
