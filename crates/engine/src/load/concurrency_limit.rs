//! Concurrency limit of a unit: the number of commands below beyond which more of them only wait
//! longer. This is pure code: no clock, no lock, no commands; `qos/mod.rs` has those.
//!
//! The limit is found by trials: with fewer commands below, an unchanged rate shows that the rest
//! was only a queue. The kind of the disk need not be known, and a disk that is faster with more
//! commands (one that sorts them) keeps them. Commands are weighted by cost (`load/cost.rs`), so
//! that a change of request sizes does not look like a faster or slower disk. Limits are in costs
//! of a command that moves nothing.
//!
//! ```text
//!          slow and deep                    as fast as before: fewer still
//!   FREE ---------------> DOWN <----------------------------------------+
//!    ^                     |                                            |
//!    |                     +-- slower: back to the limit before --> HOLD +-- from time to time
//!    |  no limit of        |                                         ^  |
//!    +- LIMIT_MAX helps ---+                  UP: faster? stay, else +--+
//! ```
//!
//! Invariants
//!  B1  A unit whose commands take less than [`TARGET_NS`] has no limit, or one that grows.
//!  B2  A lower limit stays only when the rate stays within [`KEEP`] of the best one of lately.
//!  B3  A trial counts only while commands wait for their turn: otherwise the initiators, and not
//!      the limit, determined the rate.

use crate::load::cost::UNIT;

/// Latency up to which nothing is limited, ns.
pub(crate) const TARGET_NS: u64 = 1_000_000;

/// Fewest commands below on average for which a limit is looked for.
const DEEP: u64 = 8;

/// Smallest limit, in commands as they arrive: one at the medium, one that follows it at once.
const LIMIT_MIN: u64 = 2;

/// Largest limit; a unit that wants a larger one has none.
const LIMIT_MAX: u32 = 4096;

pub(crate) const UNLIMITED: u32 = u32::MAX;

/// Part of the best rate that a lower limit must keep, per thousand.
const KEEP: u64 = 975;

/// A look at fewer commands is uncertain by so many thousandths over the square root of their
/// number, and so much more is forgiven. A disk that turns does a hundred in a second, and no two
/// seconds are alike.
const FEW: (u64, u64) = (256, 800);

/// Part of the rate before that a higher limit must reach, per thousand.
const GAIN: u64 = 1025;

/// Remainder of the best rate at the next look, per thousand: the load changes.
const FADE: u64 = 997;

/// Looks between two trials, after the first one that failed and at most.
const PAUSE: (u32, u32) = (4, 64);

/// Measurements between two looks.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Sample {
    /// Commands that ended.
    pub done: u64,
    /// Their cost, all together.
    pub cost: u64,
    /// Their times below, ns, all together.
    pub sum_ns: u64,
    /// How long it took, ns.
    pub elapsed_ns: u64,
    /// Commands waited for their turn.
    pub waited: bool,
}

impl Sample {
    /// Completed cost in a thousand seconds, in commands that move nothing.
    fn rate(&self) -> u64 {
        let done = u128::from(self.cost) * (1_000_000_000_000 / u128::from(UNIT));
        u64::try_from(done / u128::from(self.elapsed_ns.max(1))).unwrap_or(u64::MAX)
    }

    pub fn commands_a_second(&self) -> u64 {
        let done = u128::from(self.done) * 1_000_000_000;
        u64::try_from(done / u128::from(self.elapsed_ns.max(1))).unwrap_or(u64::MAX)
    }

    /// Part of the best rate that a lower limit must keep in this sample, per thousand.
    fn keep(&self) -> u64 {
        let (few, uncertain) = FEW;
        if self.done < few { KEEP - uncertain / self.done.max(16).isqrt() } else { KEEP }
    }

    /// There was enough to do: the measured rate is that of the unit, not of the initiators.
    pub fn is_busy(&self) -> bool {
        self.waited || self.depth() >= DEEP
    }

    /// So many commands as they arrived, in commands that move nothing.
    fn worth(&self, commands: u64) -> u32 {
        let unit = u64::from(UNIT);
        let all = commands.saturating_mul(self.cost / self.done.max(1)).saturating_add(unit / 2);
        u32::try_from(all / unit).unwrap_or(LIMIT_MAX).min(LIMIT_MAX)
    }

    /// Time of a command below, ns.
    pub fn latency_ns(&self) -> u64 {
        self.sum_ns / self.done.max(1)
    }

    /// Commands that were below, on average.
    pub fn depth(&self) -> u64 {
        self.sum_ns / self.elapsed_ns.max(1)
    }
}

fn part(rate: u64, thousandths: u64) -> u64 {
    rate.saturating_mul(thousandths) / 1000
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Trial {
    /// None is under way.
    None,
    /// A lower limit; the one before it.
    Down(u32),
    /// A higher one; the one before it, and its rate.
    Up(u32, u64),
}

/// The limit of one unit.
#[derive(Debug)]
pub(crate) struct ConcurrencyLimit {
    limit: u32,
    trial: Trial,
    /// The next sample is ignored, because it covers the time before a change of the limit.
    stale: bool,
    /// Best rate of lately.
    best: u64,
    /// Looks until the next trial, and after the next that fails.
    pause: u32,
    next_pause: u32,
    /// Large steps until the first one fails.
    coarse: bool,
    /// The next trial is higher.
    upward: bool,
    /// A higher limit is no faster, or was none.
    at_peak: bool,
}

impl Default for ConcurrencyLimit {
    fn default() -> ConcurrencyLimit {
        ConcurrencyLimit {
            limit: UNLIMITED,
            trial: Trial::None,
            stale: false,
            best: 0,
            pause: 0,
            next_pause: PAUSE.0,
            coarse: true,
            upward: false,
            at_peak: true,
        }
    }
}

impl ConcurrencyLimit {
    #[cfg(test)]
    fn limit(&self) -> u32 {
        self.limit
    }

    /// Commands that must have ended before the next look.
    pub fn commands_needed(depth: u64) -> u64 {
        (4 * depth).clamp(256, 4096)
    }

    /// The rate under the limit left by this look is the highest of the unit. There were very many
    /// commands below, or more of them were tried and did not help.
    pub fn is_at_peak(&self, s: &Sample) -> bool {
        let settled = !self.stale && self.trial == Trial::None;
        s.depth() >= DEEP || settled && self.at_peak
    }

    /// Evaluates a sample; answers the limit from now on.
    pub fn update(&mut self, s: &Sample) -> u32 {
        if std::mem::take(&mut self.stale) {
            return self.limit;
        }
        let rate = s.rate();
        if self.limit == UNLIMITED {
            if s.latency_ns() > TARGET_NS && s.depth() >= DEEP {
                self.best = rate;
                self.coarse = true;
                self.next_pause = PAUSE.0;
                self.down_from(s.worth(s.depth()), s);
            }
            return self.limit;
        }
        if self.trial == Trial::None && s.latency_ns() < TARGET_NS {
            self.up_from(self.limit, 0);
            return self.limit;
        }
        if !s.waited {
            // B3
            match self.trial {
                Trial::Down(from) | Trial::Up(from, _) => self.settle(from),
                Trial::None if s.depth() < DEEP => {}
                Trial::None if self.pause > 0 => self.pause -= 1,
                Trial::None => {
                    // As many as the limit lets, and no more: a lower one may do.
                    self.best = rate;
                    self.down_from(self.limit.min(s.worth(s.depth())), s);
                }
            }
            return self.limit;
        }
        self.best = part(self.best, FADE).max(rate);
        match self.trial {
            Trial::Down(from) if rate < part(self.best, s.keep()) => {
                self.settle(from);
                self.failed();
            }
            Trial::Down(_) => self.down_from(self.limit, s),
            Trial::Up(from, before) if rate <= part(before, GAIN) => {
                self.at_peak = true;
                self.settle(from);
                self.failed();
            }
            Trial::Up(..) => {
                (self.next_pause, self.at_peak) = (PAUSE.0, false);
                self.up_from(self.limit, rate);
            }
            Trial::None if self.pause > 0 => self.pause -= 1,
            Trial::None => {
                self.upward = !self.upward;
                match self.upward {
                    true => self.up_from(self.limit, rate),
                    false => self.down_from(self.limit, s),
                }
            }
        }
        self.limit
    }

    /// Costs are others than before, by a factor of `now` over `before`: so is everything that was
    /// counted in them.
    pub fn rescale(&mut self, before: u64, now: u64) -> u32 {
        let scale = |n: u64| {
            let scaled = u128::from(n) * u128::from(now) / u128::from(before.max(1));
            u64::try_from(scaled).unwrap_or(u64::MAX)
        };
        if self.limit != UNLIMITED {
            let limit = u32::try_from(scale(u64::from(self.limit))).unwrap_or(LIMIT_MAX);
            self.limit = limit.clamp(1, LIMIT_MAX);
            self.best = scale(self.best);
            let scale_limit = |n| u32::try_from(scale(u64::from(n))).unwrap_or(LIMIT_MAX);
            self.trial = match self.trial {
                Trial::None => {
                    // Whether it is the right one is to be found out, upwards first.
                    (self.at_peak, self.upward, self.pause) = (false, false, 0);
                    self.next_pause = PAUSE.0;
                    Trial::None
                }
                Trial::Down(from) => Trial::Down(scale_limit(from)),
                Trial::Up(from, before) => Trial::Up(scale_limit(from), scale(before)),
            };
            self.stale = true;
        }
        self.limit
    }

    fn settle(&mut self, limit: u32) {
        self.stale = limit != self.limit;
        self.limit = limit;
        self.trial = Trial::None;
    }

    fn failed(&mut self) {
        self.coarse = false;
        self.pause = self.next_pause;
        self.next_pause = (2 * self.next_pause).min(PAUSE.1);
    }

    fn down_from(&mut self, limit: u32, s: &Sample) {
        let lower = if self.coarse { limit / 2 } else { limit - limit.div_ceil(6) };
        let least = s.worth(LIMIT_MIN).max(1);
        if lower < least {
            self.settle(limit.max(least));
            return self.failed();
        }
        self.settle(lower);
        self.stale = true;
        self.trial = Trial::Down(limit);
    }

    /// `before` is the rate that has to be surpassed; zero when it does not matter (B1).
    fn up_from(&mut self, limit: u32, before: u64) {
        let higher = if before == 0 { 2 * limit } else { limit + limit.div_ceil(4) };
        if higher > LIMIT_MAX {
            return *self = ConcurrencyLimit::default();
        }
        self.settle(higher);
        self.trial = if before == 0 { Trial::None } else { Trial::Up(limit, before) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A disk that serves `servers` commands at once, each in `ns`, with `offered` commands open.
    fn sample(servers: u64, ns: u64, limit: u32, offered: u64) -> Sample {
        let depth = offered.min(u64::from(limit));
        let elapsed_ns = 1_000_000_000;
        let done = depth.min(servers) * elapsed_ns / ns;
        let (cost, waited) = (done * u64::from(UNIT), offered > u64::from(limit));
        Sample { done, cost, sum_ns: depth * elapsed_ns, elapsed_ns, waited }
    }

    fn run(
        knee: &mut ConcurrencyLimit,
        looks: usize,
        servers: u64,
        ns: u64,
        offered: u64,
    ) -> Vec<u32> {
        let mut seen = Vec::new();
        for _ in 0..looks {
            let limit = knee.limit();
            knee.update(&sample(servers, ns, limit, offered));
            seen.push(knee.limit());
        }
        seen
    }

    /// B2.
    #[test]
    fn the_limit_converges_near_the_usable_depth_of_the_disk() {
        for servers in [1, 2, 8, 32, 100] {
            let mut knee = ConcurrencyLimit::default();
            run(&mut knee, 60, servers, 2_000_000, 512);
            let seen = run(&mut knee, 400, servers, 2_000_000, 512);
            let near = |l: &&u32| u64::from(**l) <= servers.max(2) * 3 / 2 + 1;
            assert!(seen.iter().all(|l| near(&l)), "{servers}: {seen:?}");
            // Trials with fewer commands are rare: the average rate equals the rate without a
            // limit.
            let rate: u64 = seen.iter().map(|l| u64::from(*l).min(servers)).sum();
            assert!(rate * 100 >= servers * 98 * seen.len() as u64, "{servers}: {seen:?}");
        }
    }

    #[test]
    fn b1_fast_disks_shallow_queues_and_light_loads_have_no_limit() {
        let mut knee = ConcurrencyLimit::default();
        run(&mut knee, 100, 8, 10_000, 512);
        assert_eq!(knee.limit(), UNLIMITED, "0.64 ms");
        run(&mut knee, 100, 2, 8_000_000, 7);
        assert_eq!(knee.limit(), UNLIMITED, "7 commands");
    }

    #[test]
    fn the_limit_rises_or_ends_when_a_disk_becomes_wider_or_faster() {
        let mut knee = ConcurrencyLimit::default();
        run(&mut knee, 100, 4, 4_000_000, 512);
        assert!(knee.limit() <= 7, "{knee:?}");
        run(&mut knee, 600, 64, 4_000_000, 512);
        assert!((64..=97).contains(&knee.limit()), "wider: {knee:?}");
        run(&mut knee, 200, 64, 1000, 10_000);
        assert_eq!(knee.limit(), UNLIMITED, "fast: {knee:?}");
    }

    #[test]
    fn a_limit_in_costs_admits_the_usable_number_of_commands() {
        // Each command is worth five; the disk serves eight at once.
        let mut knee = ConcurrencyLimit::default();
        for _ in 0..400 {
            let limit = knee.limit();
            let commands = if limit == UNLIMITED { 512 } else { limit.div_ceil(5) };
            let s = sample(8, 2_000_000, commands, 512);
            knee.update(&Sample { cost: s.cost * 5, ..s });
        }
        let commands = knee.limit().div_ceil(5);
        assert!((8..=14).contains(&commands), "{knee:?}");
        let before = knee.limit();
        assert_eq!(knee.rescale(5, 10), before * 2);
    }

    #[test]
    fn the_limit_of_a_rotating_disk_converges_despite_noisy_rates() {
        use reactor::SeededRandom;
        for seed in testkit::Seeds::of(1000) {
            let (mut knee, mut random) = (ConcurrencyLimit::default(), SeededRandom::new(seed));
            for _ in 0..40 {
                // 71 in a second, 5% more or less.
                let s = sample(1, 14_000_000, knee.limit(), 33);
                let done = s.done * (950 + random.below(100)) / 1000;
                knee.update(&Sample { done, cost: done * u64::from(UNIT), ..s });
            }
            assert!(knee.limit() <= 5, "seed {seed}: {knee:?}");
        }
    }

    #[test]
    fn b3_a_trial_without_waiting_commands_is_abandoned() {
        let mut knee = ConcurrencyLimit::default();
        run(&mut knee, 2, 8, 2_000_000, 512);
        let tried = knee.limit();
        assert!(tried < 512);
        run(&mut knee, 3, 8, 2_000_000, 3);
        assert!(knee.limit() > tried, "{knee:?}");
    }
}
