//! limit: a layer that limits requests and bytes per second, with a burst.
//!
//! Each limit is one number: the time at which all requests so far would have ended at the set rate
//! (the generic cell rate algorithm of ITU-T I.371). A request advances it by its cost. A request
//! that is further ahead of the clock than the burst waits for the difference. There is no queue,
//! and without a limit the cores share nothing.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bio::{Bio, Op};
use geom::{ClassParams, Core, Error, Filter, FilterAction};
use reactor::clock::S;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Rates of a layer; zero: no limit.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct LimitParams {
    /// Maximum requests per second; 0: no limit.
    #[schemars(range(max = 1_000_000_000))]
    pub iops: u64,
    /// Maximum bytes per second, read and written together; 0: no limit.
    #[schemars(extend("x-bytes" = true))]
    pub bytes_per_s: u64,
    /// Size of a burst after an idle period, as time at the maximum rates, in ms.
    #[schemars(range(max = 60_000))]
    pub burst_ms: u64,
}

impl ClassParams for LimitParams {}

impl Default for LimitParams {
    fn default() -> LimitParams {
        LimitParams { iops: 0, bytes_per_s: 0, burst_ms: 100 }
    }
}

/// The filter.
#[derive(Default)]
pub struct Limit {
    /// Units a second; zero: no limit.
    rates: [AtomicU64; 2],
    /// The time at which the admitted requests would have ended, ns.
    ends: [AtomicU64; 2],
    burst_ns: AtomicU64,
}

impl Filter for Limit {
    const NAME: &'static str = "limit";
    const DOC: &'static str = "Limit of requests and bytes per second.";
    const EXAMPLE: &'static str = "limit configure --iops 500 l0";

    type Params = LimitParams;

    fn new(params: &LimitParams) -> Result<Limit, Error> {
        let limit = Limit::default();
        limit.configure(params).map(|()| limit)
    }

    fn configure(&self, p: &LimitParams) -> Result<(), Error> {
        self.burst_ns.store(p.burst_ms * 1_000_000, Relaxed);
        for (rate, set) in self.rates.iter().zip([p.iops, p.bytes_per_s]) {
            rate.store(set, Relaxed);
        }
        self.ends.iter().for_each(|end| end.store(0, Relaxed));
        Ok(())
    }

    fn start(&self, bio: &Bio, core: &Core) -> FilterAction {
        if !bio.op.has_range() {
            return FilterAction::Pass;
        }
        let bytes = if matches!(bio.op, Op::Read | Op::Write) { bio.length } else { 0 };
        let mut wait = 0;
        for ((rate, end), cost) in self.rates.iter().zip(&self.ends).zip([1, bytes]) {
            let rate = rate.load(Relaxed);
            if rate > 0 && cost > 0 {
                let now = core.now();
                let ns = u64::try_from(u128::from(cost) * u128::from(S) / u128::from(rate));
                let after = |end: u64| end.max(now).saturating_add(ns.unwrap_or(u64::MAX));
                let begins = end.fetch_update(Relaxed, Relaxed, |end| Some(after(end)));
                let begins = begins.unwrap_or(now).max(now);
                wait = wait.max(begins.saturating_sub(now + self.burst_ns.load(Relaxed)));
            }
        }
        if wait > 0 { FilterAction::After(wait) } else { FilterAction::Pass }
    }
}
