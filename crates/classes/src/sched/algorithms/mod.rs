//! Scheduling algorithms: each chooses the next of the waiting requests.
//!
//! An algorithm is a value: it is notified of arrivals and ends, and selects the request to
//! start. It knows no clock (the time is an argument), no core and no request beyond [`Request`],
//! so that each is tested separately.

mod anticipatory;
#[cfg(test)]
mod bench;
mod deadline;
mod elevator;
mod fair;
mod fifo;
mod rr;

use geom::Error;
use schemars::JsonSchema;
use serde::Serialize;

/// A request, as an algorithm sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Request {
    /// Its place in the hub.
    pub(crate) id: u32,
    /// Later ones have larger numbers.
    pub(crate) serial: u64,
    /// The client's place.
    pub(crate) client: u16,
    /// Whether the request changes data (a write or a delete).
    pub(crate) write: bool,
    /// First byte.
    pub(crate) offset: u64,
    /// Bytes that it keeps the disk busy with.
    pub(crate) bytes: u64,
    /// Time of arrival, ns.
    pub(crate) arrived_ns: u64,
}

impl Request {
    /// Where the head is after it.
    pub(crate) fn end(&self) -> u64 {
        self.offset.saturating_add(self.bytes)
    }
}

/// What an algorithm answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// This one starts now; call again.
    Start(u32),
    /// No request before this time (ns), unless an event occurs.
    Until(u64),
    /// No request until an event occurs.
    Nothing,
}

/// The share and limits of a client. Zero: no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub(crate) struct Share {
    /// Its part beside the others' weights.
    pub(crate) weight: u64,
    /// Requests a second.
    pub(crate) iops: u64,
    /// KiB a second.
    pub(crate) kbps: u64,
    /// Time in ms for which an unused allowance accumulates; zero: the default.
    pub(crate) burst_ms: u64,
}

impl Share {
    /// What can be set, with the names that are typed.
    pub(crate) fn numbers(&self) -> [(&'static str, u64); 4] {
        let Share { weight, iops, kbps, burst_ms } = *self;
        [("weight", weight), ("iops", iops), ("kbps", kbps), ("burst_ms", burst_ms)]
    }
}

impl Default for Share {
    fn default() -> Share {
        Share { weight: WEIGHT, iops: 0, kbps: 0, burst_ms: 0 }
    }
}

/// The weight of clients without one of their own.
pub(crate) const WEIGHT: u64 = 100;

/// A scheduler.
pub(crate) trait Algorithm: Send {
    /// What may be set.
    fn knobs(&self) -> &Knobs;

    /// To set it; it counts from the next question on.
    fn knobs_mut(&mut self) -> &mut Knobs;

    /// A client's place has a new owner, or what its owner may have was changed.
    fn client(&mut self, client: u16, share: Share, is_new: bool) {
        let _ = (client, share, is_new);
    }

    /// So many are in the disk already.
    fn adopt(&mut self, in_flight: u32);

    fn arrived(&mut self, request: Request, now: u64);

    /// The next request. `hurry`: without anticipation and without limits.
    fn next(&mut self, now: u64, hurry: bool) -> Step;

    /// One ended, which this algorithm or one before it had started.
    fn ended(&mut self, request: &Request, now: u64);

    /// It never keeps a request back: see Q9.
    fn is_transparent(&self) -> bool {
        false
    }

    fn counters(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }
}

/// One thing that can be set.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Knob {
    pub(crate) name: &'static str,
    pub(crate) min: u64,
    pub(crate) default: u64,
    pub(crate) max: u64,
    pub(crate) doc: &'static str,
}

impl Knob {
    /// Minimum, maximum and default.
    pub(crate) fn range(&self) -> String {
        format!("{} to {} ({})", self.min, self.max, self.default)
    }
}

pub(crate) struct Knobs {
    specs: &'static [Knob],
    values: Vec<u64>,
}

impl Knobs {
    pub(crate) fn new(specs: &'static [Knob]) -> Knobs {
        Knobs { specs, values: specs.iter().map(|k| k.default).collect() }
    }

    /// The value of a knob by its place in the list it was made of.
    #[inline]
    pub(crate) fn get(&self, at: usize) -> u64 {
        self.values.get(at).copied().unwrap_or_default()
    }

    /// Milliseconds as nanoseconds.
    #[inline]
    pub(crate) fn ns(&self, at: usize) -> u64 {
        self.get(at).saturating_mul(1_000_000)
    }

    /// KiB as bytes.
    #[inline]
    pub(crate) fn kib(&self, at: usize) -> u64 {
        self.get(at).saturating_mul(1024)
    }

    /// Names and values.
    pub(crate) fn all(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.specs.iter().zip(&self.values).map(|(k, v)| (k.name, *v))
    }

    /// Sets one. Why not, in words.
    pub(crate) fn set(&mut self, name: &str, value: u64) -> Result<(), String> {
        let Some(at) = self.specs.iter().position(|k| k.name == name) else {
            let known: Vec<&str> = self.specs.iter().map(|k| k.name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            return Err(format!("no option {name}; this algorithm has {known}"));
        };
        let (Some(knob), Some(place)) = (self.specs.get(at), self.values.get_mut(at)) else {
            return Err(format!("no option {name}"));
        };
        if value < knob.min || value > knob.max {
            let Knob { min, max, doc, .. } = knob;
            return Err(format!("{name} ({doc}) must be between {min} and {max}"));
        }
        *place = value;
        Ok(())
    }
}

/// One algorithm of the list.
pub(crate) struct Kind {
    pub(crate) name: &'static str,
    pub(crate) doc: &'static str,
    pub(crate) knobs: &'static [Knob],
    /// The algorithm divides the disk among clients, so layers above need not, and must not
    /// withhold waiting requests from it.
    shares: bool,
    make: fn(Knobs) -> Box<dyn Algorithm>,
}

/// The algorithms, a line each.
pub(crate) const ALL: &[Kind] =
    &[rr::KIND, anticipatory::KIND, fifo::KIND, deadline::KIND, fair::KIND];

/// The names of the algorithms, for selection.
pub(crate) const NAMES: &[&str] = &["rr", "as", "fifo", "deadline", "fair"];

pub(crate) const DEFAULT: &str = "rr";

/// What one is, in a few words.
pub(crate) fn about(name: &str) -> &'static str {
    ALL.iter().find(|kind| kind.name == name).map_or("", |kind| kind.doc)
}

/// Whether it gives each client its part.
pub(crate) fn shares(name: &str) -> bool {
    ALL.iter().any(|kind| kind.name == name && kind.shares)
}

/// A new one, by name.
///
/// # Errors
/// `Inval` for a name that is none.
pub(crate) fn make(name: &str) -> Result<(&'static str, Box<dyn Algorithm>), Error> {
    match ALL.iter().find(|kind| kind.name == name) {
        Some(kind) => Ok((kind.name, (kind.make)(Knobs::new(kind.knobs)))),
        None => {
            let what = format!("no algorithm {name}; there are {}", NAMES.join(", "));
            Err(Error::new(bio::Errno::Inval, what))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_algorithm_is_listed_once_and_accepts_its_defaults() {
        assert_eq!(ALL.iter().map(|k| k.name).collect::<Vec<_>>(), NAMES);
        for kind in ALL {
            let (name, mut built) = make(kind.name).expect("it is in the list");
            assert_eq!(name, kind.name);
            for knob in kind.knobs {
                assert_eq!(built.knobs_mut().set(knob.name, knob.default), Ok(()), "{}", knob.name);
                assert!(built.knobs_mut().set(knob.name, knob.max).is_ok());
                assert!(
                    knob.max == u64::MAX || built.knobs_mut().set(knob.name, knob.max + 1).is_err()
                );
            }
            assert!(built.knobs_mut().set("mood", 1).is_err());
        }
        assert!(make("elevator").is_err() && make(DEFAULT).is_ok());
    }
}
