//! The geom of a scheduler, and the details of it that lists show.

use std::sync::Arc;

use bio::Errno;
use geom::{ConsumerId, Event, Geom, GeomId, Settings, Topology};
use serde_json::{Map, Value, json};

use super::algorithms::{about, shares};
use super::class;
use super::clients::Client;
use super::layer::SchedShared;

/// One scheduler.
pub struct SchedGeom {
    pub(super) shared: Arc<SchedShared>,
    /// It was slipped in; taking it out is the way it goes.
    pub(super) inserted: bool,
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
    /// All that is known of it, as a value.
    pub(super) fn stats(&self, name: &str) -> Value {
        self.shared.with_queue(|hub| {
            let numbers = |all: Vec<(&'static str, u64)>| {
                all.into_iter().map(|(k, v)| (k.to_owned(), v.into())).collect::<Map<_, _>>()
            };
            let standing = hub.counts();
            let clients = hub.clients.all().map(|(client, share)| {
                let got = &client.service;
                let mut all = numbers(share.numbers().to_vec());
                for (key, value) in [
                    ("client", json!(called(client))),
                    ("key", json!(client.name.as_ref().map(|name| name.short.as_str()))),
                    ("inside", client.inside.into()),
                    ("requests", got.requests.into()),
                    ("read_bytes", got.read_bytes.into()),
                    ("written_bytes", got.written_bytes.into()),
                    ("wait_ns", got.wait_ns.into()),
                    ("wait_max_ns", got.wait_max_ns.into()),
                ] {
                    all.insert(key.to_owned(), value);
                }
                Value::Object(all)
            });
            let clients: Vec<Value> = clients.collect();
            let sum = hub.clients.sum();
            let (usual, own) = hub.clients.shares();
            let own = own.map(|(client, s)| (client.to_owned(), numbers(s.numbers().to_vec())));
            let own: Map<_, _> = own.map(|(client, s)| (client, Value::Object(s))).collect();
            json!({
                "name": name,
                "algorithm": hub.algorithm_name,
                "about": about(hub.algorithm_name),
                "classify": hub.classify.as_str(),
                "inserted": self.inserted,
                "options": numbers(hub.algorithm().knobs().all().collect()),
                "counters": numbers(hub.algorithm().counters()),
                "waiting": standing.waiting,
                "in_flight": standing.in_flight,
                "behind_a_fence": standing.fenced,
                "requests": sum.requests,
                "read_bytes": sum.read_bytes,
                "written_bytes": sum.written_bytes,
                "clients": clients,
                "share": numbers(usual.numbers().to_vec()),
                "shares": own,
            })
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
        self.shared.with_queue(|hub| class::settings(hub))
    }
}
