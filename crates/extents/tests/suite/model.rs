//! The queue beside an array of blocks: every short run of four blocks, and long ones by chance.

use extents::trim::{Limits, Outcome, Policy, Queue, WriteCheck};
use testkit::Seeds;

use crate::stage::{Chance, EAGER};

/// The state of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Truth {
    InUse,
    /// Freed, and not sent to the device.
    Freed,
    /// Freed, and in a command that has not ended.
    Flies,
    /// Freed, and the command for it has ended.
    Clean,
}

struct Scenario {
    queue: Queue,
    truth: Vec<Truth>,
    now: u64,
    flying: Option<(u64, Vec<u64>)>,
    /// Blocks that a writer waits for.
    wanted: Vec<u64>,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Free(u64, u64),
    Write(u64, u64),
    Take,
    End(Outcome),
    All,
    Later(u64),
}

impl Scenario {
    fn new(blocks: u64, limits: Limits, policy: Policy) -> Scenario {
        let truth = vec![Truth::InUse; blocks as usize];
        Scenario {
            queue: Queue::new(limits, policy),
            truth,
            now: 1,
            flying: None,
            wanted: Vec::new(),
        }
    }

    fn set(&mut self, from: u64, to: u64, f: impl Fn(Truth) -> Truth) {
        (from..to).for_each(|b| self.truth[b as usize] = f(self.truth[b as usize]));
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Free(from, to) => {
                self.queue.free(from..to, self.now);
                self.set(from, to, |t| if t == Truth::Flies { t } else { Truth::Freed });
            }
            Step::Write(from, to) => self.write(from, to),
            Step::Take => self.take(),
            Step::End(outcome) => self.end(outcome),
            Step::All => self.queue.start_full_trim(self.now),
            Step::Later(ns) => {
                self.now += ns;
                let doubt = self.queue.in_doubt();
                self.queue.expire(self.now);
                if doubt && !self.queue.in_doubt() {
                    self.landed(Truth::Freed);
                }
            }
        }
        self.agree(step);
    }

    fn write(&mut self, from: u64, to: u64) {
        let flies = (from..to).any(|b| self.truth[b as usize] == Truth::Flies);
        let write_check = self.queue.before_write(&(from..to));
        assert_eq!(write_check == WriteCheck::Wait, flies, "Q2: {from}..{to}");
        match write_check {
            WriteCheck::Clear => self.set(from, to, |_| Truth::InUse),
            WriteCheck::Wait => {
                let held = (from..to).filter(|b| self.truth[*b as usize] == Truth::Flies);
                self.wanted.extend(held);
                self.set(from, to, |t| if t == Truth::Flies { t } else { Truth::InUse });
            }
        }
    }

    fn take(&mut self) {
        let limits = self.queue.limits();
        let Some(command) = self.queue.take(self.now) else { return };
        assert!(self.flying.is_none(), "Q4");
        assert!(command.ranges.len() <= limits.ranges && command.total() <= limits.command_max);
        let mut blocks = Vec::new();
        for pair in command.ranges.windows(2) {
            assert!(pair[0].end <= pair[1].start, "Q3: {:?}", command.ranges);
        }
        for r in &command.ranges {
            assert_eq!(limits.inside(r).as_ref(), Some(r), "Q3: whole granules");
            assert!(r.end - r.start <= limits.range_max);
            for b in r.clone() {
                assert_eq!(self.truth[b as usize], Truth::Freed, "Q3: block {b} is not free");
                self.truth[b as usize] = Truth::Flies;
                blocks.push(b);
            }
        }
        self.flying = Some((command.number, blocks));
    }

    fn end(&mut self, outcome: Outcome) {
        let Some((number, _)) = &self.flying else { return };
        if self.queue.in_doubt() {
            return;
        }
        self.queue.ended(*number, outcome, self.now);
        match outcome {
            Outcome::Done => self.landed(Truth::Clean),
            Outcome::Failed | Outcome::Unsupported => self.landed(Truth::Freed),
            Outcome::Unknown => {}
        }
    }

    fn landed(&mut self, becomes: Truth) {
        let (_, blocks) = self.flying.take().expect("something flies");
        for b in blocks {
            self.truth[b as usize] = becomes;
        }
        // Q5: waiting writers write now.
        for b in std::mem::take(&mut self.wanted) {
            assert!(
                !self.queue.tracks(&(b..b + 1)) || becomes == Truth::Clean,
                "Q5: block {b} goes again and somebody waits for it"
            );
            assert_eq!(self.queue.before_write(&(b..b + 1)), WriteCheck::Clear);
            self.truth[b as usize] = Truth::InUse;
        }
    }

    fn agree(&self, step: Step) {
        self.queue.check().unwrap_or_else(|e| panic!("{step:?}: {e}"));
        let forgot = self.queue.totals().forgotten > 0;
        for (b, truth) in self.truth.iter().enumerate() {
            let one = b as u64..b as u64 + 1;
            let (tracked, flies) = (self.queue.tracks(&one), self.queue.overlaps_in_flight(&one));
            match truth {
                Truth::InUse | Truth::Clean => assert!(!tracked, "{step:?}: Q2: block {b}"),
                Truth::Freed => assert!((tracked || forgot) && !flies, "{step:?}: block {b} lost"),
                Truth::Flies => assert!(flies, "{step:?}: block {b} flies"),
            }
        }
    }
}

fn all_scenarios(steps: &[Step], depth: u32, make: impl Fn() -> Scenario) -> u64 {
    let count = (steps.len() as u64).pow(depth);
    for number in 0..count {
        let (mut story, mut rest) = (make(), number);
        for _ in 0..depth {
            story.step(steps[(rest % steps.len() as u64) as usize]);
            rest /= steps.len() as u64;
        }
    }
    count
}

const ENDS: [Step; 6] = [
    Step::Take,
    Step::End(Outcome::Done),
    Step::End(Outcome::Failed),
    Step::End(Outcome::Unknown),
    Step::All,
    Step::Later(70_000_000_000),
];

#[test]
fn all_short_sequences_on_four_blocks_match_the_model() {
    let limits = Limits { granule: 1, offset: 0, ranges: 2, range_max: 2, command_max: 3 };
    let mut steps = ENDS.to_vec();
    for (a, b) in [(0, 1), (1, 2), (2, 4), (0, 4)] {
        steps.extend([Step::Free(a, b), Step::Write(a, b)]);
    }
    let policy = Policy { tries: 2, retry_ns: 0, ..EAGER };
    let tried = all_scenarios(&steps, 5, || Scenario::new(4, limits, policy));
    assert_eq!(tried, 14u64.pow(5));
}

#[test]
fn all_short_sequences_on_misaligned_granules_match_the_model() {
    let limits = Limits { granule: 2, offset: 1, ranges: 1, range_max: 2, command_max: 2 };
    let mut steps = vec![Step::Take, Step::End(Outcome::Done), Step::All];
    for (a, b) in [(0, 1), (1, 2), (2, 3), (0, 3), (2, 5), (4, 5)] {
        steps.extend([Step::Free(a, b), Step::Write(a, b)]);
    }
    all_scenarios(&steps, 4, || Scenario::new(5, limits, EAGER));
}

/// Q1, Q2, Q3, Q6.
#[test]
fn random_long_sequences_match_the_model() {
    for seed in Seeds::of(1000) {
        let mut chance = Chance(seed);
        let blocks = 20 + chance.below(60);
        let granule = 1 + chance.below(4);
        let limits = Limits {
            granule,
            offset: chance.below(granule),
            ranges: 1 + chance.below(4) as usize,
            range_max: granule * (1 + chance.below(8)),
            command_max: granule * (1 + chance.below(20)),
        };
        let policy = Policy {
            short: chance.below(6),
            batch_ranges: 1 + chance.below(6) as usize,
            quiet_ns: chance.below(3) * 1_000,
            expire_ns: 20_000,
            queued_max: 4 + chance.below(12) as usize,
            stale_max: 3 + chance.below(12) as usize,
            tries: 1 + chance.below(3) as u8,
            retry_ns: chance.below(2) * 500,
            doubt_ns: 5_000,
        };
        let mut story = Scenario::new(blocks, limits, policy);
        for _ in 0..400 {
            let (a, n) = (chance.below(blocks), 1 + chance.below(12));
            let b = (a + n).min(blocks);
            story.step(match chance.below(20) {
                0..7 => Step::Free(a, b),
                7..10 => Step::Write(a, b),
                10..14 => Step::Take,
                14..17 => Step::End(Outcome::Done),
                17 => Step::End(Outcome::Failed),
                18 if chance.below(4) == 0 => Step::End(Outcome::Unknown),
                18 if chance.below(4) == 0 => Step::All,
                _ => Step::Later(chance.below(4_000)),
            });
        }
    }
}
