//! Flow state of a unit's commands, shared by all cores: measured times, the limit that follows
//! from them, and how much each core has below.

pub(crate) mod concurrency_limit;
pub(crate) mod cost;

use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed};

use bio::sync::Mutex;

use crate::load::concurrency_limit::{ConcurrencyLimit, Sample, UNLIMITED};
use crate::load::cost::{CostModel, UNIT, cost_of_all};

/// Shortest and longest time between two looks at the limit, ns.
const ADJUST_INTERVAL_NS: (u64, u64) = (40_000_000, 1_000_000_000);

/// A look needs as many commands even after the longest time.
const ADJUST_COMMANDS_MIN: u64 = 16;

/// Shared flow state. Cores update it periodically (L6 of `qos/mod.rs`).
#[derive(Default)]
pub(crate) struct Load {
    /// Zero: none. Otherwise the limit, in commands that move nothing.
    limit: AtomicU32,
    /// Power of the price of bytes; zero until the first look.
    power: AtomicU32,
    /// A layer below divides the unit between its clients, and has to see the waiting requests:
    /// there is no limit.
    shared: AtomicBool,
    /// Of the commands before the last look.
    mean_cost: AtomicU32,
    latency_ns: AtomicU64,
    rate: AtomicU64,
    /// Nexuses with commands here, and costs below, of cores that reported them.
    pub active: AtomicU32,
    pub below: AtomicU32,
    /// Since the last look.
    done: AtomicU64,
    bytes: AtomicU64,
    sum_ns: AtomicU64,
    waited: AtomicBool,
    tuning: Mutex<LimitTuning>,
}

#[derive(Default)]
struct LimitTuning {
    concurrency: ConcurrencyLimit,
    cost_model: CostModel,
    at_ns: u64,
}

/// Measurements of a core since its last report.
#[derive(Default)]
pub(crate) struct CoreReport {
    /// Commands that ended, their bytes, and their times below, ns.
    pub done: u64,
    pub bytes: u64,
    pub sum_ns: u64,
    pub waited: bool,
}

/// Flow of a unit's commands, for lists.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct FlowView {
    /// How long a read or write takes below, lately, ns.
    pub latency_ns: u64,
    /// How many end in a second, lately.
    pub rate: u64,
    /// Most of them below at once, as large as they are just now; `None` when there is no limit.
    pub limit: Option<u32>,
    /// Bytes that count as much as a command by itself.
    pub par_bytes: u64,
}

impl Load {
    /// The limit, in costs, and the price of bytes.
    pub fn limit(&self) -> (u32, u32) {
        let limit = match self.limit.load(Relaxed) {
            _ if self.shared.load(Relaxed) => UNLIMITED,
            0 => UNLIMITED,
            // However large they are: one at the medium, and one that follows.
            n => n
                .saturating_mul(UNIT)
                .max(self.mean_cost.load(Relaxed).saturating_mul(2))
                .min(UNLIMITED - 1),
        };
        (limit, self.power())
    }

    /// Sets whether a layer below divides the unit between its clients.
    pub fn set_shared(&self, shared: bool) {
        self.shared.store(shared, Relaxed);
    }

    fn power(&self) -> u32 {
        match self.power.load(Relaxed) {
            0 => CostModel::default().power(),
            power => power,
        }
    }

    pub fn view(&self) -> FlowView {
        let (limit, power) = self.limit();
        let commands = limit.div_ceil(self.mean_cost.load(Relaxed).max(UNIT));
        FlowView {
            latency_ns: self.latency_ns.load(Relaxed),
            rate: self.rate.load(Relaxed),
            limit: (limit != UNLIMITED).then_some(commands),
            par_bytes: 1 << power,
        }
    }

    pub fn add_report(&self, report: &CoreReport, now: u64) {
        self.done.fetch_add(report.done, Relaxed);
        self.bytes.fetch_add(report.bytes, Relaxed);
        self.sum_ns.fetch_add(report.sum_ns, Relaxed);
        if report.waited {
            self.waited.store(true, Relaxed);
        }
        // One core at a time.
        if let Some(mut look) = self.tuning.try_lock() {
            self.adjust_limit(&mut look, now);
        }
    }

    /// Looks at the limit when it is time to.
    fn adjust_limit(&self, look: &mut LimitTuning, now: u64) {
        if look.at_ns == 0 {
            look.at_ns = now;
            return;
        }
        let elapsed_ns = now.saturating_sub(look.at_ns);
        let (done, sum_ns) = (self.done.load(Relaxed), self.sum_ns.load(Relaxed));
        let enough = ConcurrencyLimit::commands_needed(sum_ns / elapsed_ns.max(1));
        let due = elapsed_ns >= ADJUST_INTERVAL_NS.0 && done >= enough
            || elapsed_ns >= ADJUST_INTERVAL_NS.1 && done >= ADJUST_COMMANDS_MIN;
        if !due {
            if elapsed_ns > 10 * ADJUST_INTERVAL_NS.1 {
                // Nearly nothing was done: these measurements are no sample.
                self.take_report();
                look.at_ns = now;
            }
            return;
        }
        let took = self.take_report();
        look.at_ns = now;
        let cost_at = |power| cost_of_all(took.done, took.bytes, power);
        let cost = cost_at(look.cost_model.power());
        let CoreReport { done, sum_ns, waited, .. } = took;
        let sample = Sample { done, cost, sum_ns, elapsed_ns, waited };
        let learns = sample.is_busy() && look.concurrency.is_at_peak(&sample);
        let was = self.limit().0;
        if self.shared.load(Relaxed) {
            // Begun anew when it is no longer so.
            look.concurrency = ConcurrencyLimit::default();
        }
        let mut limit = look.concurrency.update(&sample);
        let mut mean = cost;
        let raised = limit.saturating_mul(UNIT) > was;
        if learns && !raised && look.cost_model.learn(done, took.bytes, elapsed_ns) {
            mean = cost_at(look.cost_model.power());
            limit = look.concurrency.rescale(cost, mean);
        }
        let mean = u32::try_from(mean / done.max(1)).unwrap_or(u32::MAX);
        self.mean_cost.store(mean, Relaxed);
        self.power.store(look.cost_model.power(), Relaxed);
        self.limit.store(if limit == UNLIMITED { 0 } else { limit }, Relaxed);
        let smooth = |old: u64, new: u64| if old == 0 { new } else { (old * 3 + new) / 4 };
        self.latency_ns.store(smooth(self.latency_ns.load(Relaxed), sample.latency_ns()), Relaxed);
        self.rate.store(smooth(self.rate.load(Relaxed), sample.commands_a_second()), Relaxed);
    }

    fn take_report(&self) -> CoreReport {
        CoreReport {
            done: self.done.swap(0, Relaxed),
            bytes: self.bytes.swap(0, Relaxed),
            sum_ns: self.sum_ns.swap(0, Relaxed),
            waited: self.waited.swap(false, Relaxed),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two seconds of a disk that does 250 commands in a second, one after the other, with 32 of
    /// them below or, where there is a limit, waiting for their turn.
    fn busy(load: &Load, now: &mut u64) {
        for _ in 0..20 {
            *now += 100_000_000;
            let limited = load.limit().0 != UNLIMITED;
            let below = u64::from(load.limit().0 / UNIT).clamp(1, 32);
            let sum_ns = 25 * below * 4_000_000;
            load.add_report(&CoreReport { done: 25, bytes: 0, sum_ns, waited: limited }, *now);
        }
    }

    #[test]
    fn a_slow_unit_is_limited_unless_a_layer_below_schedules_it() {
        let (load, mut now) = (Load::default(), 1);
        busy(&load, &mut now);
        assert_ne!(load.limit().0, UNLIMITED);
        load.set_shared(true);
        assert_eq!(load.limit().0, UNLIMITED, "at once");
        busy(&load, &mut now);
        assert_eq!((load.limit().0, load.view().limit), (UNLIMITED, None));
        load.set_shared(false);
        busy(&load, &mut now);
        assert_ne!(load.limit().0, UNLIMITED, "looked for again");
    }
}
