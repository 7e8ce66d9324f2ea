//! The queue's state machine in every order: two users beside a device, on four blocks.
//!
//! A user frees a range, or writes one: it queries the queue, waits if it has to, and writes.
//! The device takes a command, carries out its ranges one after the other, and ends it, well or
//! badly. Or it gives no answer and carries out the rest at any time until it cannot any more. Each
//! of these is a step. For every pair of programs every order of steps is made, once each. After
//! each step no user's data was touched (Q1 to Q5; R1, R2, R7 of the races).

use std::ops::Range;

use extents::trim::{Command, Limits, Outcome, Policy, Queue, WriteCheck};

const BLOCKS: usize = 4;
/// The content of a trimmed block as a reader finds it.
const GARBAGE: u8 = 0xee;
/// Commands in one run; the run ends after them.
const COMMANDS: u32 = 2;
const DOUBT: u64 = 1000;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Act {
    Free(u64, u64),
    Write(u64, u64),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum UserStage {
    /// Before its next act.
    Before,
    /// The queue made it wait.
    Waits,
    /// It may write; a bit for each block that is not its own or that has been freed since.
    Writes(u8),
}

#[derive(Clone)]
struct ExploreState {
    queue: Queue,
    media: [u8; BLOCKS],
    /// The content that a block must have: the last write that was not freed since.
    must: [Option<u8>; BLOCKS],
    /// Acts done, and where it is, of each user.
    users: [(usize, UserStage); 2],
    flight: Option<Flight>,
    commands: u32,
    now: u64,
}

#[derive(Clone)]
struct Flight {
    command: Command,
    carried_out: usize,
    in_doubt: bool,
}

fn range(act: Act) -> Range<u64> {
    let (Act::Free(a, b) | Act::Write(a, b)) = act;
    a..b
}

fn blocks(range: &Range<u64>) -> impl Iterator<Item = usize> + use<> {
    (range.start as usize)..(range.end as usize)
}

/// A step of a user or of the device.
#[derive(Clone, Copy, Debug)]
enum Step {
    User(usize),
    Take,
    CarryOut,
    End(Outcome),
    Expire,
}

impl ExploreState {
    fn new() -> ExploreState {
        let limits = Limits { granule: 1, offset: 0, ranges: 4, range_max: 4, command_max: 4 };
        let policy = Policy {
            short: 0,
            batch_ranges: 1,
            quiet_ns: 0,
            expire_ns: u64::MAX,
            queued_max: 8,
            stale_max: 8,
            tries: 2,
            retry_ns: 0,
            doubt_ns: DOUBT,
        };
        ExploreState {
            queue: Queue::new(limits, policy),
            media: [1; BLOCKS],
            must: [Some(1); BLOCKS],
            users: [(0, UserStage::Before); 2],
            flight: None,
            commands: 0,
            now: 1,
        }
    }

    fn steps(&self, programs: &[&[Act]; 2]) -> Vec<Step> {
        let mut out = Vec::new();
        for (user, (done, place)) in self.users.iter().enumerate() {
            // A waiting writer is resumed when nothing is in flight.
            let goes = *place != UserStage::Waits || self.queue.in_flight().0 == 0;
            if goes && *done < programs[user].len() {
                out.push(Step::User(user));
            }
        }
        match &self.flight {
            None if self.commands < COMMANDS && self.queue.wants(self.now) => out.push(Step::Take),
            None => {}
            Some(flight) => {
                let all = flight.command.ranges.len();
                if flight.carried_out < all {
                    out.push(Step::CarryOut);
                }
                if flight.in_doubt {
                    out.push(Step::Expire);
                } else {
                    if flight.carried_out == all {
                        out.push(Step::End(Outcome::Done));
                    }
                    out.push(Step::End(Outcome::Failed));
                    out.push(Step::End(Outcome::Unknown));
                }
            }
        }
        out
    }

    fn make(&mut self, step: Step, programs: &[&[Act]; 2]) {
        self.now += 1;
        match step {
            Step::User(user) => self.user(user, programs[user]),
            Step::Take => {
                let command = self.queue.take(self.now).expect("it said that it wants to");
                self.commands += 1;
                for range in &command.ranges {
                    for block in blocks(range) {
                        assert_eq!(self.must[block], None, "Q3: block {block} is in use");
                        assert!(!self.is_being_written(block), "Q2: block {block}");
                    }
                }
                let in_order = command.ranges.windows(2).all(|two| two[0].end <= two[1].start);
                assert!(in_order, "Q3: {command:?}");
                self.flight = Some(Flight { command, carried_out: 0, in_doubt: false });
            }
            Step::CarryOut => {
                let Some(flight) = &mut self.flight else { return };
                let range = flight.command.ranges[flight.carried_out].clone();
                flight.carried_out += 1;
                blocks(&range).for_each(|block| self.media[block] = GARBAGE);
            }
            Step::End(outcome) => {
                let Some(mut flight) = self.flight.take() else { return };
                self.queue.ended(flight.command.number, outcome, self.now);
                if outcome == Outcome::Unknown {
                    flight.in_doubt = true;
                    self.flight = Some(flight);
                }
            }
            Step::Expire => {
                self.now += DOUBT;
                self.queue.expire(self.now);
                assert_eq!(self.queue.in_flight().0, 0, "Q4: the doubt has ended");
                self.flight = None;
            }
        }
    }

    /// A user may write the block and has not done so yet, and the block was not freed since.
    fn is_being_written(&self, block: usize) -> bool {
        self.users.iter().any(|(_, place)| match place {
            UserStage::Writes(not) => not & 1 << block == 0,
            _ => false,
        })
    }

    fn user(&mut self, user: usize, program: &[Act]) {
        let (done, place) = self.users[user];
        let act = program[done];
        let range = range(act);
        let next = match (act, place) {
            (Act::Free(..), _) => {
                self.queue.free(range.clone(), self.now);
                for block in blocks(&range) {
                    self.must[block] = None;
                    // A write under way has no order with it: nothing is promised there.
                    for (_, place) in &mut self.users {
                        if let UserStage::Writes(freed) = place {
                            *freed |= 1 << block;
                        }
                    }
                }
                (done + 1, UserStage::Before)
            }
            (Act::Write(..), UserStage::Writes(freed)) => {
                let value = 2 + user as u8 * 8 + done as u8;
                for block in blocks(&range) {
                    self.media[block] = value;
                    self.must[block] = (freed & 1 << block == 0).then_some(value);
                }
                (done + 1, UserStage::Before)
            }
            (Act::Write(..), _) => match self.queue.before_write(&range) {
                WriteCheck::Wait => (done, UserStage::Waits),
                WriteCheck::Clear => {
                    assert!(!self.queue.overlaps_in_flight(&range), "Q2");
                    let own = blocks(&range).fold(0u8, |all, block| all | 1 << block);
                    (done, UserStage::Writes(!own))
                }
            },
        };
        self.users[user] = next;
    }

    fn check(&self) -> Result<(), String> {
        self.queue.check()?;
        for (block, must) in self.must.iter().enumerate() {
            let (is, written) = (self.media[block], self.is_being_written(block));
            if must.is_some_and(|must| must != is) && !written {
                return Err(format!("block {block} is {is}, not {must:?}"));
            }
        }
        Ok(())
    }
}

#[derive(Default, Debug)]
struct Seen {
    steps: u64,
    runs: u64,
    waits: u64,
}

fn explore(state: &ExploreState, programs: &[&[Act]; 2], path: &mut Vec<Step>, seen: &mut Seen) {
    let steps = state.steps(programs);
    if steps.is_empty() {
        seen.runs += 1;
        let ended = state.users.iter().zip(programs).all(|((done, _), p)| *done == p.len());
        assert!(ended, "somebody waits for ever: {programs:?} {path:?}");
    }
    for step in steps {
        let mut next = state.clone();
        path.push(step);
        next.make(step, programs);
        seen.steps += 1;
        seen.waits += u64::from(next.users.iter().any(|(_, place)| *place == UserStage::Waits));
        if let Err(why) = next.check() {
            panic!("{why}: {programs:?} {path:?}");
        }
        explore(&next, programs, path, seen);
        path.pop();
    }
}

fn acts(of: &[(u64, u64)]) -> Vec<Act> {
    let frees = of.iter().map(|(a, b)| Act::Free(*a, *b));
    frees.chain(of.iter().map(|(a, b)| Act::Write(*a, *b))).collect()
}

const EVERY: [(u64, u64); 10] =
    [(0, 1), (0, 2), (0, 3), (0, 4), (1, 2), (1, 3), (1, 4), (2, 3), (2, 4), (3, 4)];

/// One frees and frees or writes, another frees or writes: every range of each.
#[test]
fn two_users_and_a_device_keep_the_rules_in_every_order() {
    let mut seen = Seen::default();
    for first in EVERY {
        for second in acts(&EVERY) {
            for other in acts(&EVERY) {
                let (one, two) = ([Act::Free(first.0, first.1), second], [other]);
                explore(&ExploreState::new(), &[&one, &two], &mut Vec::new(), &mut seen);
            }
        }
    }
    eprintln!("{seen:?}");
    assert!(seen.waits > 1000 && seen.runs > 100_000, "{seen:?}");
}

/// One user alone, three acts.
#[test]
fn one_user_and_a_device_keep_the_rules_in_every_order() {
    let mut seen = Seen::default();
    for first in EVERY {
        for second in acts(&EVERY) {
            for third in acts(&EVERY) {
                let one = [Act::Free(first.0, first.1), second, third];
                explore(&ExploreState::new(), &[&one, &[]], &mut Vec::new(), &mut seen);
            }
        }
    }
    eprintln!("{seen:?}");
    assert!(seen.waits > 1000 && seen.runs > 10_000, "{seen:?}");
}
