//! Clients: the origins of requests, and the service that each received.
//!
//! Invariants
//!  C1  There are at most [`CLIENTS_MAX`]. A new client takes a free place, else the place of the
//!      client that has been idle longest. Without either it shares the first place, which is
//!      reserved for that.
//!  C2  The sums over all clients, including those that lost their places, never decrease, except
//!      by a reset.

use std::collections::BTreeMap;
use std::sync::Arc;

use bio::Origin;
use geom::{Originator, Origins};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::algorithms::{Algorithm, Share};

/// Clients distinguished on one disk. If more are busy at once, the others share one place.
pub const CLIENTS_MAX: usize = 256;

/// Shares for single clients set at once; more are refused.
pub(super) const SHARES_MAX: usize = 1024;

/// The shared place of clients without a free one.
const OTHERS: u16 = 0;

/// Numbers of origins whose client is remembered; when there are more all are looked up again.
const SEEN_MAX: usize = 4096;

/// The attribute that distinguishes clients. Each background pass of the daemon is a client of its
/// own, unless clients are not distinguished at all.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Classify {
    /// By the initiator's name.
    Initiator,
    /// By session; without an initiator the daemon's own are one client.
    #[default]
    Session,
    /// By initiator and LUN.
    Lun,
    /// By process of this machine, as far as the kernel names it; all others by session.
    Process,
    /// Background passes alone; all initiators are one client.
    Task,
    /// Not at all.
    None,
}

const ALL: &[(&str, Classify)] = &[
    ("initiator", Classify::Initiator),
    ("session", Classify::Session),
    ("lun", Classify::Lun),
    ("process", Classify::Process),
    ("task", Classify::Task),
    ("none", Classify::None),
];

#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Name {
    /// Used in lists. Equal labels denote the same client.
    pub(super) label: String,
    /// Used in typed options.
    pub(super) short: String,
}

impl Name {
    fn new(label: impl Into<String>, short: impl Into<String>) -> Name {
        Name { label: label.into(), short: short.into() }
    }

    fn both(name: &str) -> Name {
        Name::new(name, name)
    }
}

impl Classify {
    pub(super) const KEYS: &'static [&'static str] =
        &["initiator", "session", "lun", "process", "task", "none"];

    pub(super) fn as_str(self) -> &'static str {
        ALL.iter().find(|(_, classify)| *classify == self).map_or("", |(word, _)| word)
    }

    fn name(self, origin: Origin, who: Option<&Originator>) -> Name {
        let Some(who) = who else {
            return match (self, origin.0) {
                (Classify::None, _) => Name::both("all"),
                (_, 0) => Name::both("daemon"),
                (_, number) => Name::new(format!("origin {number}"), number.to_string()),
            };
        };
        let initiator = who.initiator.as_str();
        let (session, lun) = (who.session.unwrap_or(0), who.lun.unwrap_or(0));
        match self {
            Classify::None => Name::both("all"),
            _ if !who.task.is_empty() => Name::both(&who.task),
            Classify::Task => Name::both("initiators"),
            Classify::Initiator => Name::both(initiator),
            Classify::Lun => {
                Name::new(format!("{initiator} LUN {lun}"), format!("{initiator}/{lun}"))
            }
            Classify::Process if who.process.is_some() => {
                let process = who.process.unwrap_or(0);
                Name::new(format!("process {process}"), process.to_string())
            }
            Classify::Session | Classify::Process => {
                Name::new(format!("{initiator} session {session}"), session.to_string())
            }
        }
    }
}

/// The service that a client received.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(super) struct Service {
    /// Requests.
    pub(super) requests: u64,
    /// Bytes read.
    pub(super) read_bytes: u64,
    /// Bytes written.
    pub(super) written_bytes: u64,
    /// Sum of the time from arrival to the disk, ns.
    pub(super) wait_ns: u64,
    /// Longest time from arrival to the disk, ns.
    pub(super) wait_max_ns: u64,
}

impl Service {
    pub(super) fn add(&mut self, other: &Service) {
        self.requests += other.requests;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.wait_ns += other.wait_ns;
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
    }
}

#[derive(Clone, Debug)]
pub(super) struct Client {
    /// None: the clients that share the place.
    pub(super) name: Option<Arc<Name>>,
    /// Waiting or in the disk.
    pub(super) inside: u32,
    last_ns: u64,
    pub(super) service: Service,
}

pub(super) struct Clients {
    origins: Arc<Origins>,
    all: Vec<Client>,
    /// By label.
    places: BTreeMap<String, u16>,
    /// Places by the number of the origin.
    seen: BTreeMap<u32, u16>,
    /// The newest answer: consecutive requests often match.
    recent: Option<(u32, u16)>,
    /// Of those that lost their places.
    past_service: Service,
    share: Share,
    shares: BTreeMap<String, Share>,
}

impl Clients {
    pub(super) fn new(origins: Arc<Origins>) -> Clients {
        let others = Client { name: None, inside: 0, last_ns: 0, service: Service::default() };
        Clients {
            origins,
            all: vec![others],
            places: BTreeMap::new(),
            seen: BTreeMap::new(),
            recent: None,
            past_service: Service::default(),
            share: Share::default(),
            shares: BTreeMap::new(),
        }
    }

    /// The place of a client, which has one more request inside from now on.
    #[inline]
    pub(super) fn enter(
        &mut self,
        (origin, classify): (Origin, Classify),
        now: u64,
        algorithm: &mut dyn Algorithm,
    ) -> u16 {
        let place = self.place_of((origin, classify), algorithm);
        if let Some(client) = self.all.get_mut(usize::from(place)) {
            client.inside += 1;
            client.last_ns = now;
        }
        place
    }

    #[inline]
    fn place_of(
        &mut self,
        (origin, classify): (Origin, Classify),
        algorithm: &mut dyn Algorithm,
    ) -> u16 {
        let place = match self.recent {
            Some((recent, place)) if recent == origin.0 => place,
            _ => match self.seen.get(&origin.0) {
                Some(place) => *place,
                None => self.resolve(origin, classify, algorithm),
            },
        };
        if place != OTHERS {
            self.recent = Some((origin.0, place));
        }
        place
    }

    /// So much of a client's has passed by.
    pub(super) fn add_bypassed(
        &mut self,
        by: (Origin, Classify),
        got: &Service,
        algorithm: &mut dyn Algorithm,
    ) {
        let place = self.place_of(by, algorithm);
        if let Some(client) = self.all.get_mut(usize::from(place)) {
            client.service.add(got);
        }
    }

    /// The place of an origin that was not seen before.
    #[cold]
    fn resolve(
        &mut self,
        origin: Origin,
        classify: Classify,
        algorithm: &mut dyn Algorithm,
    ) -> u16 {
        let name = classify.name(origin, self.origins.originator(origin).as_deref());
        let place = match self.places.get(&name.label) {
            Some(place) => *place,
            None => self.admit(name, algorithm),
        };
        if self.seen.len() >= SEEN_MAX {
            self.seen.clear();
        }
        if place != OTHERS {
            self.seen.insert(origin.0, place);
        }
        place
    }

    fn admit(&mut self, name: Name, algorithm: &mut dyn Algorithm) -> u16 {
        let name = Arc::new(name);
        let new =
            Client { name: Some(name.clone()), inside: 0, last_ns: 0, service: Service::default() };
        let place = if self.all.len() < CLIENTS_MAX {
            self.all.push(new.clone());
            self.all.len() - 1
        } else {
            let idle = self.all.iter().enumerate().skip(1).filter(|(_, c)| c.inside == 0);
            let Some((place, _)) = idle.min_by_key(|(_, c)| c.last_ns) else {
                return OTHERS;
            };
            place
        };
        let number = u16::try_from(place).unwrap_or(OTHERS);
        if let Some(client) = self.all.get_mut(place) {
            let old = std::mem::replace(client, new);
            if let Some(old_name) = old.name.filter(|old| *old != name) {
                self.places.remove(&old_name.label);
                self.seen.retain(|_, place| *place != number);
                self.past_service.add(&old.service);
            }
        }
        self.recent = None;
        self.places.insert(name.label.clone(), number);
        algorithm.client(number, self.share_of(Some(&name)), true);
        number
    }

    /// One of its requests is sent to the disk.
    pub(super) fn started(&mut self, place: u16, wait_ns: u64) {
        if let Some(client) = self.all.get_mut(usize::from(place)) {
            client.service.wait_ns += wait_ns;
            client.service.wait_max_ns = client.service.wait_max_ns.max(wait_ns);
        }
    }

    /// One of its requests returned.
    pub(super) fn leave(&mut self, place: u16, read: u64, written: u64) {
        if let Some(client) = self.all.get_mut(usize::from(place)) {
            client.inside = client.inside.saturating_sub(1);
            client.service.requests += 1;
            client.service.read_bytes += read;
            client.service.written_bytes += written;
        }
    }

    fn share_of(&self, name: Option<&Name>) -> Share {
        let own =
            name.and_then(|n| self.shares.get(&n.short).or_else(|| self.shares.get(&n.label)));
        own.copied().unwrap_or(self.share)
    }

    /// Sets the default share (`None`) or the share of one client. The caller checks
    /// [`SHARES_MAX`].
    pub(super) fn set_share(
        &mut self,
        client: Option<&str>,
        change: impl FnOnce(&mut Share),
        algorithm: &mut dyn Algorithm,
    ) {
        let own = client.and_then(|client| self.shares.get(client));
        let mut share = own.copied().unwrap_or(self.share);
        change(&mut share);
        match client {
            None => self.share = share,
            Some(c) => drop(self.shares.insert(c.to_owned(), share)),
        }
        self.pass_shares(algorithm, false);
    }

    /// Returns a client to the default share. A client without values of its own already has it.
    pub(super) fn unset_share(&mut self, client: &str, algorithm: &mut dyn Algorithm) {
        self.shares.remove(client);
        self.pass_shares(algorithm, false);
    }

    pub(super) fn pass_shares(&self, algorithm: &mut dyn Algorithm, is_new: bool) {
        for (place, client) in (0u16..).zip(&self.all) {
            algorithm.client(place, self.share_of(client.name.as_deref()), is_new);
        }
    }

    /// Clients are distinguished differently from now on: all old places are forgotten. Clients
    /// with requests in flight keep theirs until these requests have completed.
    pub(super) fn forget(&mut self) {
        self.places.clear();
        self.seen.clear();
        self.recent = None;
        for client in self.all.iter_mut().skip(1) {
            self.past_service.add(&client.service);
            client.service = Service::default();
            client.name = None;
        }
    }

    /// The counters start again.
    pub(super) fn reset(&mut self) {
        self.past_service = Service::default();
        self.all.iter_mut().for_each(|c| c.service = Service::default());
    }

    /// The default share, and all clients with a share of their own, whether present or not.
    pub(super) fn shares(&self) -> (Share, impl Iterator<Item = (&str, Share)>) {
        (self.share, self.shares.iter().map(|(client, share)| (client.as_str(), *share)))
    }

    /// The clients that are present, with their shares.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Client, Share)> {
        let known = self.all.iter().filter(|c| c.name.is_some() || c.service != Service::default());
        known.map(|c| (c, self.share_of(c.name.as_deref())))
    }

    pub(super) fn sum(&self) -> Service {
        let mut sum = self.past_service;
        self.all.iter().for_each(|c| sum.add(&c.service));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::super::algorithms;
    use super::*;

    fn clients() -> Clients {
        Clients::new(Arc::default())
    }

    fn by(number: u32) -> (Origin, Classify) {
        (Origin(number), Classify::Session)
    }

    /// Q8 of sched/mod.rs.
    #[test]
    fn c1_new_client_takes_the_place_that_was_idle_longest() {
        let mut a = algorithms::make("rr").expect("it is there").1;
        let mut clients = clients();
        for key in 0..CLIENTS_MAX as u32 - 1 {
            let place = clients.enter(by(key), u64::from(key), &mut *a);
            assert_ne!(place, OTHERS);
            if key != 7 && key != 9 {
                clients.leave(place, 1, 0);
            }
        }
        let new = clients.enter(by(5000), 900, &mut *a);
        assert_eq!(new, 1, "client 0 was idle longest");
        assert_eq!(clients.enter(by(8), 901, &mut *a), 9, "it kept its place");
        assert_eq!(clients.enter(by(0), 902, &mut *a), 2, "it is back, elsewhere");
        // All busy: the others' place.
        for key in 6000..6000 + CLIENTS_MAX as u32 {
            clients.enter(by(key), 1000 + u64::from(key), &mut *a);
        }
        assert_eq!(clients.enter(by(9999), 99_999, &mut *a), OTHERS);
        assert_eq!(clients.sum().read_bytes, CLIENTS_MAX as u64 - 3, "C2");
    }

    #[test]
    fn share_is_set_for_all_clients_or_for_one() {
        let mut a = algorithms::make("fair").expect("it is there").1;
        let mut clients = clients();
        clients.enter(by(1), 0, &mut *a);
        clients.set_share(None, |s| s.weight = 50, &mut *a);
        clients.set_share(Some("3"), |s| s.iops = 9, &mut *a);
        clients.enter(by(3), 0, &mut *a);
        let shares: Vec<Share> = clients.all().map(|(_, share)| share).collect();
        let plain = Share { weight: 50, ..Share::default() };
        assert_eq!(shares, [plain, Share { iops: 9, ..plain }]);
        clients.unset_share("3", &mut *a);
        assert!(clients.all().all(|(_, share)| share == plain));
    }

    /// Two initiators, one of them with two sessions; a process; a pass in the background.
    #[test]
    fn clients_are_classified_as_configured_and_named() {
        let origins = Arc::new(Origins::default());
        let of = |initiator: &str, session, lun| Originator {
            initiator: initiator.into(),
            session: Some(session),
            lun: Some(lun),
            ..Originator::default()
        };
        let local = Originator { process: Some(77), ..of("local", 9, 0) };
        let whos = [
            of("iqn.a", 1, 0),
            of("iqn.a", 1, 3),
            of("iqn.a", 2, 3),
            of("iqn.b", 4, 3),
            local,
            Originator::task("mirror rebuild"),
        ];
        let entries = whos.map(|who| origins.enter(who));
        let all = entries.iter().map(|e| e.origin()).chain([Origin(0)]);
        let all: Vec<Origin> = all.collect();
        let task = "mirror rebuild";
        for (word, want) in [
            ("initiator", vec!["iqn.a", "iqn.b", "local", task, "daemon"]),
            (
                "session",
                vec![
                    "iqn.a session 1",
                    "iqn.a session 2",
                    "iqn.b session 4",
                    "local session 9",
                    task,
                    "daemon",
                ],
            ),
            (
                "lun",
                vec!["iqn.a LUN 0", "iqn.a LUN 3", "iqn.b LUN 3", "local LUN 0", task, "daemon"],
            ),
            (
                "process",
                vec![
                    "iqn.a session 1",
                    "iqn.a session 2",
                    "iqn.b session 4",
                    "process 77",
                    task,
                    "daemon",
                ],
            ),
            ("task", vec!["initiators", task, "daemon"]),
            ("none", vec!["all"]),
        ] {
            let read = serde_json::from_value(word.into());
            let classify: Classify = read.expect("a word");
            assert_eq!(classify.as_str(), word);
            let mut a = algorithms::make("rr").expect("it is there").1;
            let mut clients = Clients::new(origins.clone());
            for _ in 0..2 {
                for origin in &all {
                    clients.enter((*origin, classify), 0, &mut *a);
                }
            }
            let names = clients.all().filter_map(|(c, _)| Some(c.name.as_ref()?.label.clone()));
            assert_eq!(names.collect::<Vec<_>>(), want, "{word}");
        }
        assert_eq!(Classify::KEYS.len(), ALL.len());
    }
}
