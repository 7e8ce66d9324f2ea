//! Requests and latency of one object in the last hour, in samples of ten seconds or more.

use super::stats::{OpStats, Percentiles, Stats};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Requests of one kind in a sample.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct OpSample {
    /// Completed requests.
    pub ops: u64,
    /// Bytes of the completed requests.
    pub bytes: u64,
    /// Requests that failed.
    pub errors: u64,
    /// Percentiles of the latency; absent if there were no requests, or if their latency is
    /// counted elsewhere: that of deletes and flushes of a provider is counted with writes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub latency: Option<Percentiles>,
}

impl OpSample {
    fn of(stats: &OpStats) -> OpSample {
        let (ops, bytes, errors) = (stats.ops, stats.bytes, stats.errors);
        OpSample { ops, bytes, errors, latency: stats.latency.percentiles() }
    }
}

/// Requests of one object in an interval.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct RateSample {
    /// End of the interval, in nanoseconds since the start of the daemon.
    pub at_ns: u64,
    /// Length of the interval, in nanoseconds.
    pub span_ns: u64,
    /// Requests in flight at the end of the interval; of joined intervals the highest number.
    pub in_flight: u64,
    /// Time with requests in flight, in nanoseconds; of a core its CPU time.
    pub busy_ns: u64,
    /// READ.
    pub read: OpSample,
    /// WRITE and WRITE ZEROES.
    pub write: OpSample,
    /// DELETE.
    pub delete: OpSample,
    /// FLUSH.
    pub flush: OpSample,
    /// Everything else.
    pub other: OpSample,
}

impl RateSample {
    /// A sample of the requests in an interval.
    pub fn of(at_ns: u64, span_ns: u64, stats: &Stats) -> RateSample {
        RateSample {
            at_ns,
            span_ns,
            in_flight: stats.in_flight,
            busy_ns: stats.busy_ns,
            read: OpSample::of(&stats.read),
            write: OpSample::of(&stats.write),
            delete: OpSample::of(&stats.delete),
            flush: OpSample::of(&stats.flush),
            other: OpSample::of(&stats.other),
        }
    }

    /// The kinds with their names, in the order of display.
    pub fn kinds(&self) -> [(&'static str, &OpSample); 5] {
        [
            ("read", &self.read),
            ("write", &self.write),
            ("delete", &self.delete),
            ("flush", &self.flush),
            ("other", &self.other),
        ]
    }

    /// A number of this sample as a rate for each second.
    pub fn per_second(&self, number: u64) -> f64 {
        number as f64 * 1e9 / self.span_ns.max(1) as f64
    }

    /// Share of time with requests in flight, 0 to 100.
    pub fn busy_percent(&self) -> f64 {
        (self.busy_ns as f64 * 100.0 / self.span_ns.max(1) as f64).min(100.0)
    }
}

/// Samples of one object.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ObjectRates {
    /// Identifier of the object whose counters were sampled.
    pub object: String,
    /// Time of the newest sample of any object, in nanoseconds since the start of the daemon.
    pub at_ns: u64,
    /// The whole kept time as one sample, at most an hour.
    pub whole: RateSample,
    /// Samples, oldest first. Intervals without requests have none.
    pub samples: Vec<RateSample>,
}
