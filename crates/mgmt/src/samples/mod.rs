//! Samples of the counters of the last hour, of every object that has requests.
//!
//! ```text
//! figures, each 10 s --objects--> counters --since the last--> sample --encoding--> bytes
//!                                                   `rates`, page <--join, decode--'
//! ```
//! Memory is bounded. An object without a request since the start of the daemon takes none, and
//! each other one takes about 500 bytes for its last counters. Samples take at most
//! [`OBJECT_BYTES_MAX`] for an object and [`SAMPLES_BYTES_MAX`] for all of them. 4,096 disks and
//! 16,384 LUNs that are all busy have 3 KiB each. These are about 25 intervals of 150 s. The
//! percentiles of the whole hour stay exact then, because intervals are joined and not dropped.
//!
//! Invariants
//!  H1  A sample is the difference of two readings of the same counters. Counters that shrank, or
//!      that the last reading did not have, are those of a new object, which began at zero.
//!  H2  The samples of an object neither overlap nor exceed their share of the bytes, unless there
//!      is only one sample.
//!  H3  Nothing here runs on the data path, and readings take at most a hundredth of the time.

mod encoding;
mod objects;
mod task;

pub use objects::find;
pub use task::take_samples;

use crate::api::{ObjectRates, RateSample, Stats, SystemState};
use crate::time_slices::TimeSlices;
use encoding::{decode, encode};
use std::collections::{HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// How long samples are kept.
pub const KEPT_NS: u64 = 3_600_000_000_000;

/// Bytes of the samples of all objects.
const SAMPLES_BYTES_MAX: usize = 64 << 20;

/// Bytes of the samples of one object: an hour of a disk with mixed load without joined intervals.
const OBJECT_BYTES_MAX: usize = 48 << 10;

/// Bytes that a sample takes beside its encoded counters, with those of the allocator.
const SAMPLE_OVERHEAD: usize = 64;

/// Removed objects and ended sessions whose samples are kept: a session may return.
const ABSENT_MAX: usize = 1024;

/// Requests of an object in an interval.
struct Sample {
    at_ns: u64,
    span_ns: u64,
    stats: Box<[u8]>,
}

impl Sample {
    fn bytes(&self) -> usize {
        self.stats.len() + SAMPLE_OVERHEAD
    }

    fn begin_ns(&self) -> u64 {
        self.at_ns.saturating_sub(self.span_ns)
    }

    fn shown(&self) -> RateSample {
        RateSample::of(self.at_ns, self.span_ns, &decode(&self.stats))
    }

    /// One sample of this one, the time up to a later one, and the later one.
    fn joined(&self, later: &Sample) -> Sample {
        let stats = encode(&decode(&self.stats).then(&decode(&later.stats)));
        let span_ns = later.at_ns.saturating_sub(self.begin_ns());
        Sample { at_ns: later.at_ns, span_ns, stats }
    }
}

/// An object.
#[derive(Default)]
struct Track {
    /// The last reading.
    counters: Box<[u8]>,
    samples: VecDeque<Sample>,
    /// Bytes of the samples.
    bytes: usize,
    /// When the object was last seen.
    seen_ns: u64,
}

impl Track {
    /// Takes a reading; `span_ns`: time since the last one, 0 if this is the first.
    fn read(&mut self, (at_ns, span_ns): (u64, u64), now: &Stats) {
        self.seen_ns = at_ns;
        let last = decode(&self.counters);
        // H1
        let last = if now.ops() < last.ops() { Stats::default() } else { last };
        let stats = now.since(&last);
        let is_idle = stats.ops() == 0 && stats.busy_ns == 0;
        if !is_idle || self.counters.is_empty() {
            self.counters = encode(now);
        }
        if span_ns > 0 && !(is_idle && stats.in_flight == 0) {
            let sample = Sample { at_ns, span_ns, stats: encode(&stats) };
            self.bytes += sample.bytes();
            self.samples.push_back(sample);
        }
    }

    /// Drops samples that are older than an hour.
    fn expire(&mut self, now_ns: u64) {
        while let Some(first) = self.samples.front() {
            if first.at_ns.saturating_add(KEPT_NS) > now_ns {
                return;
            }
            self.bytes = self.bytes.saturating_sub(first.bytes());
            self.samples.pop_front();
        }
    }

    /// Joins neighbours that cover the shortest time until the samples fit (H2).
    fn fit(&mut self, bytes_max: usize) {
        while self.bytes > bytes_max && self.samples.len() > 1 {
            let pairs = self.samples.iter().zip(self.samples.iter().skip(1));
            let spans = pairs.map(|(one, next)| next.at_ns.saturating_sub(one.begin_ns()));
            let shortest = spans.enumerate().min_by_key(|(_, span)| *span);
            let Some((at, _)) = shortest else { return };
            let Some(later) = self.samples.remove(at + 1) else { return };
            let Some(earlier) = self.samples.get_mut(at) else { return };
            let joined = earlier.joined(&later);
            self.bytes = (self.bytes + joined.bytes())
                .saturating_sub(earlier.bytes())
                .saturating_sub(later.bytes());
            *earlier = joined;
        }
    }
}

#[derive(Default)]
struct Tracks {
    objects: HashMap<String, Track>,
    /// Time of the first reading; `None` before it.
    began_ns: Option<u64>,
    /// Time of the last reading.
    at_ns: u64,
}

impl Tracks {
    /// Drops the counters of objects that disappeared (H1), and the samples of the first of them.
    fn forget_absent(&mut self) {
        let now_ns = self.at_ns;
        for track in self.objects.values_mut().filter(|track| track.seen_ns < now_ns) {
            track.counters = Box::default();
        }
        self.objects.retain(|_, track| track.seen_ns == now_ns || !track.samples.is_empty());
        let absent = self.objects.iter().filter(|(_, track)| track.seen_ns < now_ns);
        let mut absent: Vec<(u64, String)> =
            absent.map(|(id, track)| (track.seen_ns, id.clone())).collect();
        absent.sort();
        let excess = absent.len().saturating_sub(ABSENT_MAX);
        for (_, id) in absent.into_iter().take(excess) {
            self.objects.remove(&id);
        }
    }
}

/// See the module.
#[derive(Default)]
pub struct SampleStore(Mutex<Tracks>);

impl SampleStore {
    fn lock(&self) -> MutexGuard<'_, Tracks> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes the counters of all objects.
    pub fn record(&self, state: &SystemState) {
        let mut kept = self.lock();
        let at_ns = state.daemon.uptime_ns;
        // Counters of the first reading may be old: they are no sample.
        let span_ns = kept.began_ns.map_or(0, |_| at_ns.saturating_sub(kept.at_ns));
        if kept.began_ns.is_none() {
            kept.began_ns = Some(at_ns);
        } else if span_ns == 0 {
            return;
        }
        kept.at_ns = at_ns;
        let mut slices = TimeSlices::default();
        objects::for_each(state, |id, stats| {
            slices.spend(1);
            if let Some(track) = kept.objects.get_mut(&id) {
                track.read((at_ns, span_ns), stats);
            } else if stats.ops() > 0 || stats.in_flight > 0 || stats.busy_ns > 0 {
                let mut track = Track::default();
                track.read((at_ns, span_ns), stats);
                kept.objects.insert(id, track);
            }
        });
        kept.objects.values_mut().for_each(|track| track.expire(at_ns));
        kept.forget_absent();
        let share = SAMPLES_BYTES_MAX / kept.objects.len().max(1);
        let bytes_max = share.min(OBJECT_BYTES_MAX);
        kept.objects.values_mut().for_each(|track| track.fit(bytes_max));
    }

    /// The sample of an object in the last interval; `None` if it had no requests then.
    pub fn latest(&self, object: &str) -> Option<RateSample> {
        let kept = self.lock();
        let newest = kept.objects.get(object)?.samples.back()?;
        (newest.at_ns == kept.at_ns).then(|| newest.shown())
    }

    /// The samples of an object; those of an object without requests are empty. `object` is an
    /// identifier that [`find`] has returned.
    pub fn of(&self, object: &str) -> ObjectRates {
        let kept = self.lock();
        let at_ns = kept.at_ns;
        let span_ns = at_ns.saturating_sub(kept.began_ns.unwrap_or(at_ns)).min(KEPT_NS);
        let samples = kept.objects.get(object).map(|track| &track.samples);
        let samples = || samples.into_iter().flatten();
        let whole = samples().map(|sample| decode(&sample.stats));
        let whole = whole.reduce(|one, next| one.then(&next)).unwrap_or_default();
        ObjectRates {
            object: object.to_owned(),
            at_ns,
            whole: RateSample::of(at_ns, span_ns, &whole),
            samples: samples().map(Sample::shown).collect(),
        }
    }
}

#[cfg(test)]
mod tests;
