//! clients: on whose behalf requests come, and what they got.
//!
//! Invariants
//!  C1  There are at most [`CLIENTS_MAX`]. A new one takes a free place, else that of the client
//!      which has been idle longest, else it shares the first place, which is kept for that.
//!  C2  The sums over all clients, those that lost their places included, never go down, except by
//!      a reset.

use std::collections::BTreeMap;

use bio::Origin;

use super::algorithms::{Algorithm, Share};

/// Clients told apart on one disk. More that are busy at once share one place.
pub const CLIENTS_MAX: usize = 256;

/// Shares for single clients set at once; more are refused.
pub(super) const SHARES_MAX: usize = 1024;

/// The place of those who found none.
const OTHERS: u16 = 0;

/// By what requests are told apart.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Classify {
    /// By session; the daemon's own are one client.
    #[default]
    Session,
    /// Not at all.
    None,
}

impl Classify {
    pub(super) const WORDS: &'static [&'static str] = &["session", "none"];

    pub(super) fn of(word: &str) -> Option<Classify> {
        match word {
            "session" => Some(Classify::Session),
            "none" => Some(Classify::None),
            _ => None,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Classify::Session => "session",
            Classify::None => "none",
        }
    }

    pub(super) fn key(self, origin: Origin) -> u64 {
        match self {
            Classify::Session => u64::from(origin.0),
            Classify::None => 0,
        }
    }
}

/// What a client got.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub(super) struct Got {
    pub(super) requests: u64,
    pub(super) read_bytes: u64,
    pub(super) written_bytes: u64,
    /// Sum of the time from arrival to the disk, ns.
    pub(super) wait_ns: u64,
    pub(super) wait_max_ns: u64,
}

impl Got {
    pub(super) fn add(&mut self, other: &Got) {
        self.requests += other.requests;
        self.read_bytes += other.read_bytes;
        self.written_bytes += other.written_bytes;
        self.wait_ns += other.wait_ns;
        self.wait_max_ns = self.wait_max_ns.max(other.wait_max_ns);
    }
}

/// One client.
#[derive(Clone, Copy, Debug)]
pub(super) struct Client {
    /// None: those who share the place.
    pub(super) key: Option<u64>,
    /// Waiting or in the disk.
    pub(super) inside: u32,
    last_ns: u64,
    pub(super) got: Got,
}

/// All of them.
pub(super) struct Clients {
    all: Vec<Client>,
    places: BTreeMap<u64, u16>,
    /// The newest answer: requests come in runs.
    recent: Option<(u64, u16)>,
    /// Of those that lost their places.
    gone: Got,
    share: Share,
    shares: BTreeMap<u64, Share>,
}

impl Clients {
    pub(super) fn new() -> Clients {
        let others = Client { key: None, inside: 0, last_ns: 0, got: Got::default() };
        Clients {
            all: vec![others],
            places: BTreeMap::new(),
            recent: None,
            gone: Got::default(),
            share: Share::default(),
            shares: BTreeMap::new(),
        }
    }

    /// The place of a client, which has one more request inside from now on.
    pub(super) fn enter(&mut self, key: u64, now: u64, algorithm: &mut dyn Algorithm) -> u16 {
        let place = match self.recent {
            Some((recent, place)) if recent == key => place,
            _ => match self.places.get(&key) {
                Some(place) => *place,
                None => self.admit(key, algorithm),
            },
        };
        if place != OTHERS {
            self.recent = Some((key, place));
        }
        if let Some(client) = self.all.get_mut(usize::from(place)) {
            client.inside += 1;
            client.last_ns = now;
        }
        place
    }

    fn admit(&mut self, key: u64, algorithm: &mut dyn Algorithm) -> u16 {
        let new = Client { key: Some(key), inside: 0, last_ns: 0, got: Got::default() };
        let place = if self.all.len() < CLIENTS_MAX {
            self.all.push(new);
            self.all.len() - 1
        } else {
            let idle = self.all.iter().enumerate().skip(1).filter(|(_, c)| c.inside == 0);
            let Some((place, _)) = idle.min_by_key(|(_, c)| c.last_ns) else {
                return OTHERS;
            };
            place
        };
        if let Some(client) = self.all.get_mut(place) {
            if let Some(old) = client.key.filter(|old| *old != key) {
                self.places.remove(&old);
                self.gone.add(&client.got);
            }
            *client = new;
        }
        self.recent = None;
        let place = u16::try_from(place).unwrap_or(OTHERS);
        self.places.insert(key, place);
        algorithm.client(place, self.share_of(Some(key)), true);
        place
    }

    /// One of its requests goes to the disk.
    pub(super) fn started(&mut self, place: u16, wait_ns: u64) {
        if let Some(client) = self.all.get_mut(usize::from(place)) {
            client.got.wait_ns += wait_ns;
            client.got.wait_max_ns = client.got.wait_max_ns.max(wait_ns);
        }
    }

    /// One of its requests came back.
    pub(super) fn leave(&mut self, place: u16, read: u64, written: u64) {
        if let Some(client) = self.all.get_mut(usize::from(place)) {
            client.inside = client.inside.saturating_sub(1);
            client.got.requests += 1;
            client.got.read_bytes += read;
            client.got.written_bytes += written;
        }
    }

    fn share_of(&self, key: Option<u64>) -> Share {
        key.and_then(|key| self.shares.get(&key)).copied().unwrap_or(self.share)
    }

    /// What everybody may have (`None`), or one client. False when there are too many such.
    pub(super) fn set_share(
        &mut self,
        key: Option<u64>,
        change: impl FnOnce(&mut Share),
        algorithm: &mut dyn Algorithm,
    ) -> bool {
        let mut share = self.share_of(key);
        change(&mut share);
        match key {
            None => self.share = share,
            Some(key) if self.shares.len() < SHARES_MAX || self.shares.contains_key(&key) => {
                self.shares.insert(key, share);
            }
            Some(_) => return false,
        }
        self.tell(algorithm, false);
        true
    }

    /// Tells an algorithm of everybody.
    pub(super) fn tell(&self, algorithm: &mut dyn Algorithm, is_new: bool) {
        for (place, client) in (0u16..).zip(&self.all) {
            algorithm.client(place, self.share_of(client.key), is_new);
        }
    }

    /// From now on clients are told apart otherwise: nobody has an old place, and those who have
    /// requests inside keep theirs until these have come back.
    pub(super) fn forget(&mut self) {
        self.places.clear();
        self.recent = None;
        for client in self.all.iter_mut().skip(1) {
            self.gone.add(&client.got);
            client.got = Got::default();
            client.key = None;
        }
    }

    /// The counters start again.
    pub(super) fn reset(&mut self) {
        self.gone = Got::default();
        self.all.iter_mut().for_each(|c| c.got = Got::default());
    }

    /// Who is there, with what each may have.
    pub(super) fn all(&self) -> impl Iterator<Item = (&Client, Share)> {
        let known = self.all.iter().filter(|c| c.key.is_some() || c.got != Got::default());
        known.map(|c| (c, self.share_of(c.key)))
    }

    /// Everybody together.
    pub(super) fn sum(&self) -> Got {
        let mut sum = self.gone;
        self.all.iter().for_each(|c| sum.add(&c.got));
        sum
    }
}

#[cfg(test)]
mod tests {
    use super::super::algorithms;
    use super::*;

    #[test]
    fn c1_places_are_few_and_the_one_idle_longest_is_given_away() {
        let mut a = algorithms::make("rr").expect("it is there").1;
        let mut clients = Clients::new();
        for key in 0..CLIENTS_MAX as u64 - 1 {
            let place = clients.enter(key, key, &mut *a);
            assert_ne!(place, OTHERS);
            if key != 7 && key != 9 {
                clients.leave(place, 1, 0);
            }
        }
        let new = clients.enter(5000, 900, &mut *a);
        assert_eq!(new, 1, "client 0 was idle longest");
        assert_eq!(clients.enter(8, 901, &mut *a), 9, "it kept its place");
        assert_eq!(clients.enter(0, 902, &mut *a), 2, "it is back, elsewhere");
        // All busy: the others' place.
        for key in 6000..6000 + CLIENTS_MAX as u64 {
            clients.enter(key, 1000 + key, &mut *a);
        }
        assert_eq!(clients.enter(9999, 99_999, &mut *a), OTHERS);
        assert_eq!(clients.sum().read_bytes, CLIENTS_MAX as u64 - 3, "C2");
    }

    #[test]
    fn shares_are_for_everybody_or_for_one() {
        let mut a = algorithms::make("fair").expect("it is there").1;
        let mut clients = Clients::new();
        clients.enter(1, 0, &mut *a);
        assert!(clients.set_share(None, |s| s.weight = 50, &mut *a));
        assert!(clients.set_share(Some(3), |s| s.iops = 9, &mut *a));
        clients.enter(3, 0, &mut *a);
        let shares: Vec<Share> = clients.all().map(|(_, share)| share).collect();
        let plain = Share { weight: 50, ..Share::default() };
        assert_eq!(shares, [plain, Share { iops: 9, ..plain }]);
    }
}
