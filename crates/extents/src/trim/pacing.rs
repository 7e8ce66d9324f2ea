//! Pacing of trim commands: limits their share of the device's time, and the number of other
//! requests that they make late.
//!
//! A command keeps the device busy for as long as it takes, and every request that is in flight or
//! arrives meanwhile is delayed. So two rules:
//!
//!  P1  Of the device's time commands take at most their share: after one that took `t` nothing is
//!      sent for `t * (100 - share) / share`.
//!  P2  At most [`LATE_PERMILLE`] of the requests of others are late because of commands: then the
//!      99th percentile of their times does not change. After a command that made `n` late, the
//!      next waits for `n * 1000 / LATE_PERMILLE` requests to end. When there are no others, it
//!      does not wait. The first of all waits until the number of others is known.
//!  P3  After one command nothing is sent for at most [`PAUSE_MAX_NS`]: a device that stalled once
//!      is not left alone for minutes.
//!  P4  Commands become smaller only as long as smaller ones are quicker. One whose cost is not in
//!      its size is not cut into thousands of pieces.

/// Of a thousand requests so many may be late because of a command.
pub const LATE_PERMILLE: u64 = 5;
/// Assumed time of a command until one was measured, ns: the time on the disk that gave the rule.
const GUESS_NS: u64 = 50_000_000;
/// Time without a request after which there are no others, ns; in debt, ten times.
const IDLE_NS: u64 = 100_000_000;
/// Commands are made smaller when they take so many times as long as the quickest.
const SLOW_TIMES: u64 = 4;
/// Longest pause after a command, ns.
const PAUSE_MAX_NS: u64 = 10_000_000_000;
/// Number of distinct sizes: powers of two.
const SIZES: usize = 64;

/// Requests of others so far, in numbers that only grow.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Load {
    pub begun: u64,
    pub ended: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Pacing {
    /// Percent of the device's time, 1 to 100.
    pub share: u8,
}

/// See the module.
#[derive(Clone, Debug)]
pub struct Pacer {
    pacing: Pacing,
    /// P1: nothing before that.
    free_at: u64,
    /// The time that the last command took, ns.
    last_ns: Option<u64>,
    quickest_ns: u64,
    /// The time that the last command of each size took, ns, by the power of two of its units;
    /// zero: none was sent.
    took_ns: [u64; SIZES],
    /// That power of the last one.
    size: usize,
    begun_at: u64,
    /// The load when the command under way began.
    at_begin: Load,
    /// Requests that must have ended before the next (P2).
    resume_after: Option<u64>,
    /// The time of the first look at the load, and the load then.
    first: Option<(u64, Load)>,
    /// The time when a request was last seen to begin.
    busy_at: u64,
    seen: Load,
    spent_ns: u64,
}

impl Pacer {
    /// Nothing was sent yet.
    pub fn new(pacing: Pacing) -> Pacer {
        Pacer {
            pacing,
            free_at: 0,
            last_ns: None,
            quickest_ns: u64::MAX,
            took_ns: [0; SIZES],
            size: 0,
            begun_at: 0,
            at_begin: Load::default(),
            resume_after: None,
            first: None,
            busy_at: 0,
            seen: Load::default(),
            spent_ns: 0,
        }
    }

    /// Another share, from the next command on.
    pub fn set(&mut self, pacing: Pacing) {
        self.pacing = pacing;
    }

    /// The time that the last command took, ns.
    pub fn last_ns(&self) -> Option<u64> {
        self.last_ns
    }

    /// The time of the device that commands have taken so far, ns.
    pub fn spent_ns(&self) -> u64 {
        self.spent_ns
    }

    fn observe(&mut self, now: u64, load: Load) {
        if self.first.is_none() {
            self.first = Some((now, load));
            self.busy_at = now;
        }
        if load.begun != self.seen.begun || load.ended != load.begun {
            self.busy_at = now;
        }
        self.seen = load;
    }

    /// Requests that a command begun now would make late.
    fn would_be_late(&self, now: u64, load: Load) -> u64 {
        let (since, at) = self.first.unwrap_or((now, load));
        let (ns, begun) = (now.saturating_sub(since).max(1), load.begun.saturating_sub(at.begun));
        let takes = self.last_ns.unwrap_or(GUESS_NS);
        let arrivals = u128::from(begun) * u128::from(takes) / u128::from(ns);
        load.begun.saturating_sub(load.ended) + u64::try_from(arrivals).unwrap_or(u64::MAX)
    }

    /// Whether a command may be sent now; otherwise the time of the next attempt.
    pub fn may_send(&mut self, now: u64, load: Load) -> Result<(), u64> {
        self.observe(now, load);
        if now < self.free_at {
            return Err(self.free_at);
        }
        let (since, _) = self.first.unwrap_or((now, load));
        let known_at = since.saturating_add(IDLE_NS);
        if self.resume_after.is_none() && load.begun > 0 && now < known_at {
            // There are others, or have been: their number is not known yet.
            return Err(known_at);
        }
        let resume_after = self.resume_after.unwrap_or_else(|| {
            let late = self.would_be_late(now, load);
            let (_, at) = self.first.unwrap_or((now, load));
            at.ended.saturating_add(late.saturating_mul(1000 / LATE_PERMILLE))
        });
        if load.ended >= resume_after {
            return Ok(());
        }
        let idle_ns =
            if self.resume_after.is_some() { IDLE_NS.saturating_mul(10) } else { IDLE_NS };
        let idle_at = self.busy_at.saturating_add(idle_ns);
        if now >= idle_at { Ok(()) } else { Err(idle_at.min(now.saturating_add(IDLE_NS / 10))) }
    }

    /// A command is sent.
    pub fn begin(&mut self, now: u64, load: Load) {
        (self.begun_at, self.at_begin) = (now, load);
    }

    pub fn end(&mut self, now: u64, load: Load, units: u64) {
        let took = now.saturating_sub(self.begun_at);
        self.last_ns = Some(took);
        self.quickest_ns = self.quickest_ns.min(took);
        self.spent_ns = self.spent_ns.saturating_add(took);
        let share = u64::from(self.pacing.share.clamp(1, 100));
        let pause = took.saturating_mul(100 - share) / share;
        self.free_at = now.saturating_add(pause.min(PAUSE_MAX_NS));
        self.size = units.max(1).ilog2() as usize;
        if let Some(last) = self.took_ns.get_mut(self.size) {
            *last = took;
        }
        let late = load.begun.saturating_sub(self.at_begin.ended);
        let ends = late.saturating_mul(1000 / LATE_PERMILLE);
        self.resume_after = (late > 0).then(|| load.ended.saturating_add(ends));
        // The rate of requests is that since the last command.
        self.first = Some((now, load));
        self.observe(now, load);
    }

    /// Whether the last command was quicker than one of twice its size, as far as is known (P4).
    fn smaller_is_quicker(&self) -> bool {
        let took = |size: usize| self.took_ns.get(size).copied().unwrap_or(0);
        let larger = took(self.size + 1);
        larger == 0 || took(self.size) / 3 <= larger / 4
    }

    /// The next limit of the size of commands, from the present one: halved while they take long
    /// for their size and smaller ones are quicker, doubled otherwise.
    pub fn size(&self, now_max: u64) -> u64 {
        let Some(took) = self.last_ns else { return now_max };
        let is_slow = took / SLOW_TIMES > self.quickest_ns;
        match is_slow && self.smaller_is_quicker() {
            true => now_max / 2,
            false => now_max.saturating_mul(2),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::clock::MS;

    #[test]
    fn commands_take_at_most_their_share_of_device_time() {
        for share in [1u8, 5, 20, 50, 100] {
            let mut pacer = Pacer::new(Pacing { share });
            let (mut now, mut busy) = (0u64, 0u64);
            while now < 100_000 * MS {
                match pacer.may_send(now, Load::default()) {
                    Ok(()) => {
                        pacer.begin(now, Load::default());
                        let took = 30 * MS + now % 7 * MS;
                        (now, busy) = (now + took, busy + took);
                        pacer.end(now, Load::default(), 1);
                    }
                    Err(at) => {
                        assert!(at > now, "it would ask for ever");
                        now = at;
                    }
                }
            }
            let used = busy * 100 / now;
            assert!(used <= u64::from(share) && used + 1 >= u64::from(share), "{share}: {used}");
            assert_eq!(pacer.spent_ns(), busy);
        }
    }

    /// Requests arrive every ms and take 100 us; while a command runs they wait for it.
    #[test]
    fn few_requests_are_late_for_any_number_of_commands() {
        let mut pacer = Pacer::new(Pacing { share: 50 });
        let (mut late, mut all, mut commands) = (0u64, 0u64, 0u64);
        let mut ends: Option<u64> = None;
        for now in (0..60_000).map(|n| n * MS) {
            let load = |ended| Load { begun: all, ended };
            match ends {
                Some(end) if now >= end => {
                    pacer.end(now, load(all), 1);
                    ends = None;
                }
                Some(_) => late += 1,
                None => {}
            }
            let waiting = if ends.is_some() { 1 } else { 0 };
            if ends.is_none() && pacer.may_send(now, load(all)).is_ok() {
                pacer.begin(now, load(all));
                ends = Some(now + 50 * MS);
                commands += 1;
            }
            all += 1 - waiting + waiting;
        }
        assert!(commands >= 3, "{commands} commands in a minute: it starves");
        assert!(late * 1000 <= all * (LATE_PERMILLE + 1), "{late} of {all} late");
    }

    #[test]
    fn commands_do_not_wait_when_no_other_requests_arrive() {
        let mut pacer = Pacer::new(Pacing { share: 100 });
        let load = Load { begun: 1000, ended: 1000 };
        assert_eq!(pacer.may_send(5 * MS, load), Err(105 * MS), "some came before it looked");
        assert_eq!(pacer.may_send(105 * MS, load), Ok(()), "nothing came since it looks");
        pacer.begin(105 * MS, load);
        let more = Load { begun: 1010, ended: 1010 };
        pacer.end(155 * MS, more, 1);
        assert!(pacer.may_send(156 * MS, more).is_err(), "ten were late");
        assert_eq!(pacer.may_send(155 * MS + 1000 * MS, more), Ok(()), "and no request followed");
        let mut new = Pacer::new(Pacing { share: 5 });
        assert_eq!(new.may_send(0, Load::default()), Ok(()), "there never was anybody");
    }

    /// The first command of all: 1000 requests a second, of which it would make 50 late.
    #[test]
    fn first_command_waits_until_few_requests_would_be_late() {
        let mut pacer = Pacer::new(Pacing { share: 100 });
        let load = |at: u64| Load { begun: at / MS, ended: at / MS };
        let mut now = 3_000 * MS;
        let began = now;
        while let Err(at) = pacer.may_send(now, load(now)) {
            assert!(at > now);
            now = at;
        }
        let waited = (now - began) / MS;
        assert!((9_900..10_400).contains(&waited), "10,000 on time for 50: {waited}");
    }

    #[test]
    fn commands_shrink_while_they_take_long_for_their_size() {
        let mut pacer = Pacer::new(Pacing { share: 5 });
        assert_eq!(pacer.size(64), 64);
        pacer.begin(0, Load::default());
        pacer.end(MS, Load::default(), 64);
        assert_eq!(pacer.size(64), 128);
        pacer.begin(100 * MS, Load::default());
        pacer.end(109 * MS, Load::default(), 64);
        assert_eq!(pacer.size(64), 32);
    }

    /// A device that stalls once, for 20 s: a command took as long as nineteen pauses.
    #[test]
    fn device_stall_pauses_commands_for_a_bounded_time() {
        let mut pacer = Pacer::new(Pacing { share: 5 });
        pacer.begin(0, Load::default());
        pacer.end(20_000 * MS, Load::default(), 1);
        let again = pacer.may_send(20_001 * MS, Load::default());
        assert_eq!(again, Err(20_000 * MS + PAUSE_MAX_NS));
        assert_eq!(pacer.may_send(30_000 * MS, Load::default()), Ok(()));
    }

    /// Commands needed for `left` units, where one takes `cost`.
    fn commands(left: u64, cost: impl Fn(u64) -> u64) -> u64 {
        let mut pacer = Pacer::new(Pacing { share: 5 });
        // The first command names ranges that were deleted before: there is nothing to do.
        pacer.begin(0, Load::default());
        pacer.end(MS / 100, Load::default(), 8192);
        let (mut left, mut size, mut now, mut sent) = (left, 8192, MS, 0);
        while left > 0 {
            let units = size.min(left);
            pacer.begin(now, Load::default());
            now += cost(units);
            pacer.end(now, Load::default(), units);
            size = pacer.size(size).clamp(1, 8192);
            left -= units;
            sent += 1;
        }
        sent
    }

    #[test]
    fn commands_of_fixed_cost_are_not_split_into_small_ones() {
        let fixed = commands(65_536, |_| MS);
        assert!(fixed <= 32, "{fixed} commands of 8192 units for 65,536");
        // Where size costs, they are short.
        let linear = commands(65_536, |units| units * MS / 100);
        assert!(linear > 5000, "{linear} commands for 65,536 units that take 10 us each");
    }
}
