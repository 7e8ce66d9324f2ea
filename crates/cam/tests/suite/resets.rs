//! Resets, row by row: the commands that wait for them, the commands that they return, and that
//! their one common freeze is released once, however they end.

use bio::Errno;
use cam::{
    CamStatus, Ccb, CcbId, Command, Device, Effect, Event, Flags, Outcome, Priority, ResetId,
    SETTLE_NS, Shape,
};
use reactor::SeededRandom;
use testkit::Seeds;
use testkit::clock::S;
use wire::scsi::{Asc, Key, Sense, Status};

use crate::bench::{Bench, RESET, SHAPE, bench, write};

fn reset() -> Ccb {
    let raw = Ccb { command: Command::Reset, flags: Flags::RAW, length: 0, retries: 0, ..write() };
    Ccb { priority: Priority::Dev, ..raw }
}

/// So many writes without a retry to lose, all with the SIM, and as many behind them.
fn busy(deep: usize) -> Bench {
    let mut b = bench(&vec![None; 64]);
    b.device.reshape(Shape { openings_max: deep as u32, ..SHAPE });
    for _ in 0..2 * deep {
        b.device.submit(Ccb { retries: 0, ..write() });
    }
    b.settle();
    b.began.clear();
    b
}

impl Bench {
    /// The SIM ends the commands that it holds, the newest first.
    fn strike(&mut self, status: CamStatus) -> usize {
        let held = std::mem::take(&mut self.held);
        for id in held.iter().rev() {
            assert!(self.device.done(*id, Outcome::of(status), self.now));
            self.settle();
        }
        held.len()
    }

    fn pass(&mut self, ns: u64) {
        let end = self.now + ns;
        while let Some(due) = self.device.due().filter(|due| *due <= end) {
            self.now = self.now.max(due);
            self.device.expire(self.now);
            self.settle();
        }
        self.now = end;
    }

    /// From now on everything ends well; all of it did, in the end, and cost no retry.
    #[track_caller]
    fn all_well(&mut self, count: usize) {
        self.script.retain(Option::is_some);
        for id in std::mem::take(&mut self.held) {
            assert!(self.device.done(id, Outcome::good(512), self.now));
        }
        self.run();
        let good = self.ended.iter().filter(|(_, e)| e.result.is_ok()).count();
        assert_eq!((good, self.device.counts().retries), (count, 0), "{:?}", self.ended);
    }
}

#[track_caller]
fn freezes_of(device: &Device) -> u64 {
    let (made, released) = device.freezes();
    made - released
}

#[test]
fn commands_wait_during_a_reset_and_aborted_ones_are_resent_in_order() {
    let mut b = busy(8);
    let sent = b.held.clone();
    let id = b.device.submit(reset());
    b.settle();
    assert_eq!((b.began.as_slice(), b.sent.last()), ([id].as_slice(), Some(&RESET)));
    assert_eq!(b.held.pop(), Some(id), "it waits for nobody's openings");
    assert_eq!(b.strike(CamStatus::ResetSent), 8);
    b.pass(S);
    assert_eq!(b.began.len(), 1, "the reset is under way");
    assert!(b.device.done(id, Outcome::good(0), b.now));
    b.settle();
    b.pass(SETTLE_NS - 1);
    assert_eq!(b.began.len(), 1, "it settles");
    b.pass(1);
    assert_eq!(b.began[1..], sent, "in the order in which they had been sent");
    assert_eq!(freezes_of(&b.device), 0);
    assert_eq!(b.events.iter().filter(|(e, _)| *e == Event::SentBdr).count(), 1);
    b.all_well(17);
}

#[test]
fn a_reset_that_fails_or_has_no_answer_ends() {
    for answer in [Some(Outcome::of(CamStatus::CannotProvide)), None] {
        let mut b = busy(4);
        let id = b.device.submit(reset());
        b.settle();
        b.held.pop();
        match answer {
            Some(outcome) => assert!(b.device.done(id, outcome, b.now)),
            // Aborted in the end.
            None => b.pass(60 * S),
        }
        b.settle();
        assert!(b.device.is_reset());
        b.pass(SETTLE_NS);
        assert!(!b.device.is_reset() && !b.device.is_lost());
        let failed = b.ended.iter().filter(|(at, e)| *at == id && e.result.is_err()).count();
        assert_eq!((failed, freezes_of(&b.device)), (1, 0));
    }
}

#[test]
fn a_device_lost_during_a_reset_fails_all_its_commands() {
    let mut b = busy(4);
    let beside = b.device.reset_begins(60 * S, b.now);
    let id = b.device.submit(reset());
    b.settle();
    b.held.retain(|held| *held != id);
    b.device.lose(b.now);
    assert_eq!(freezes_of(&b.device), 0);
    // Both ends arrive after all.
    assert!(b.device.done(id, Outcome::good(0), b.now));
    b.device.reset_ends(beside, SETTLE_NS);
    let after = b.device.reset_begins(S, b.now);
    assert!(!b.device.is_reset(), "what is gone is not reset");
    b.run();
    b.device.reset_ends(after, 0);
    let gone = b.ended.iter().filter(|(_, e)| e.result == Err(Errno::NxIo)).count();
    assert_eq!(gone, 8);
}

#[test]
fn two_overlapping_resets_end_with_the_later_one() {
    for first_ends_first in [true, false] {
        let mut b = busy(4);
        let one = b.device.reset_begins(60 * S, b.now);
        b.strike(CamStatus::BusReset);
        let two = b.device.reset_begins(60 * S, b.now);
        assert_eq!(freezes_of(&b.device), 1, "one for both");
        let (sooner, later) = if first_ends_first { (one, two) } else { (two, one) };
        b.device.reset_ends(sooner, 0);
        b.pass(S);
        assert!(b.began.is_empty() && b.device.is_reset());
        b.device.reset_ends(later, 0);
        b.pass(0);
        assert_eq!((b.began.len(), freezes_of(&b.device)), (4, 0));
        b.all_well(8);
    }
}

/// One of two takes its time, whichever ends first, and whenever it is looked at.
#[test]
fn of_two_resets_the_longer_settle_time_applies() {
    for (first, second) in [(SETTLE_NS, 0), (0, SETTLE_NS)] {
        let mut b = busy(4);
        let [one, two] = [(); 2].map(|()| b.device.reset_begins(60 * S, b.now));
        b.strike(CamStatus::BusReset);
        b.device.reset_ends(one, first);
        b.device.reset_ends(two, second);
        b.pass(SETTLE_NS - 1);
        assert!(b.began.is_empty(), "{first} and {second}");
        b.pass(1);
        assert_eq!(b.began.len(), 4);
        b.all_well(8);
    }
    // The first one still settles when another begins and ends.
    let mut b = busy(4);
    let one = b.device.reset_begins(60 * S, b.now);
    b.strike(CamStatus::BusReset);
    b.device.reset_ends(one, SETTLE_NS);
    b.pass(SETTLE_NS / 2);
    let two = b.device.reset_begins(60 * S, b.now);
    b.device.reset_ends(two, 0);
    b.pass(SETTLE_NS / 2 - 1);
    assert!(b.began.is_empty());
    b.pass(1);
    assert_eq!((b.began.len(), freezes_of(&b.device)), (4, 0));
    b.all_well(8);
}

#[test]
fn a_reset_without_a_reported_end_ends_at_its_deadline() {
    let mut b = busy(4);
    let forgotten = b.device.reset_begins(5 * S, b.now);
    b.strike(CamStatus::BusReset);
    b.pass(5 * S - 1);
    assert!(b.began.is_empty());
    b.pass(1);
    assert_eq!(b.began.len(), 4);
    // Its end arrives while another one is under way, whose end it is not.
    let other = b.device.reset_begins(5 * S, b.now);
    b.device.reset_ends(forgotten, 0);
    b.pass(S);
    assert!(b.device.is_reset());
    b.device.reset_ends(other, 0);
    b.pass(0);
    assert!(!b.device.is_reset());
    b.all_well(8);
}

#[test]
fn an_unannounced_reset_is_detected_by_its_first_aborted_command() {
    let events = [(CamStatus::BusReset, Event::BusReset), (CamStatus::ResetSent, Event::SentBdr)];
    for (status, event) in events {
        let mut b = busy(4);
        let sent = b.held.clone();
        let last = b.held.pop().unwrap();
        assert!(b.device.done(last, Outcome::of(status), b.now));
        b.settle();
        b.pass(SETTLE_NS / 2);
        assert!(b.began.is_empty(), "neither it nor what waits");
        b.strike(status);
        b.pass(SETTLE_NS - 1);
        assert!(b.began.is_empty(), "it settles since the last one came back");
        b.pass(1);
        assert_eq!(b.began, sent);
        assert_eq!(b.events, [(event, false)], "told once");
        b.all_well(8);
    }
}

#[test]
fn the_unit_attention_of_a_known_reset_uses_up_no_retry() {
    let attention = |ascq| Outcome::check(Sense::new(Asc::new(Key::UnitAttention, 0x29, ascq)));
    let mut b = busy(4);
    b.strike(CamStatus::ResetSent);
    b.script.insert(0, Some(attention(3)));
    b.all_well(8);
    // Also of a reset without victims, whichever side carried it out.
    for beside in [true, false] {
        let mut b = bench(&[]);
        match beside {
            true => {
                let id = b.device.reset_begins(S, b.now);
                b.device.reset_ends(id, 0);
            }
            false => drop(b.device.submit(reset())),
        }
        b.run();
        b.script.push(Some(attention(0)));
        b.device.submit(Ccb { retries: 0, ..write() });
        b.all_well(1 + usize::from(!beside));
        assert_eq!(b.device.power_losses(), 0);
    }
    // An unknown reset is different: it costs a retry, and here there is none.
    let mut b = busy(4);
    let id = b.held.remove(0);
    b.device.done(id, attention(3), b.now);
    b.settle();
    assert_eq!(b.ended.len(), 1);
    assert!(b.ended[0].1.result.is_err());
    // A reset by another nexus, which gives no more information.
    let mut b = busy(4);
    let all = b.held.clone();
    for id in all {
        b.device.done(id, Outcome::scsi(Status::TaskAborted), b.now);
        b.held.retain(|held| *held != id);
        b.settle();
    }
    b.all_well(8);
}

/// D9 of device/mod.rs.
#[test]
fn recovery_actions_and_probes_wait_for_a_reset() {
    let stopped = Outcome::check(Sense::new(Asc::new(Key::NotReady, 0x04, 0x02)));
    let mut b = bench(&[None]);
    let id = b.device.submit(write());
    b.settle();
    let reset = b.device.reset_begins(60 * S, b.now);
    b.held.clear();
    assert!(b.device.done(id, stopped, b.now));
    let question = Ccb { priority: Priority::Xpt, command: Command::scsi(&[0x12; 6]), ..write() };
    b.device.submit(question);
    b.settle();
    b.pass(S);
    assert_eq!(b.sent, [0x2a], "neither START UNIT nor INQUIRY");
    b.device.reset_ends(reset, 0);
    b.run();
    assert_eq!(b.sent, [0x2a, 0x12, 0x1b, 0x2a]);
    assert!(b.ended.iter().all(|(_, e)| e.result.is_ok()));
}

/// Its turn had begun, and it was not with the SIM yet: a question of a probe, and a cure.
#[test]
fn commands_about_to_start_wait_for_a_reset() {
    let stopped = Outcome::check(Sense::new(Asc::new(Key::NotReady, 0x04, 0x02)));
    for is_cure in [false, true] {
        let mut b = bench(&[]);
        let question =
            Ccb { priority: Priority::Xpt, command: Command::scsi(&[0x12; 6]), ..write() };
        if is_cure {
            b.script = vec![None];
            let id = b.device.submit(write());
            b.settle();
            b.held.clear();
            assert!(b.device.done(id, stopped, b.now));
        } else {
            b.device.submit(question);
        }
        let Some(Effect::Start(id, owner)) = b.device.take() else { panic!("its turn") };
        b.sent.clear();
        let reset = b.device.reset_begins(60 * S, b.now);
        assert!(b.device.begin(id, owner, b.now).is_none(), "D9");
        b.pass(S);
        assert!(b.sent.is_empty());
        b.device.reset_ends(reset, 0);
        b.run();
        let want: &[u8] = if is_cure { &[0x1b, 0x2a] } else { &[0x12] };
        assert_eq!(b.sent, want);
    }
}

#[test]
fn commands_wait_during_a_reset_started_by_error_recovery() {
    let mut b = busy(4);
    b.obeys = false;
    // All four are late, their aborts are not answered, each requests a reset.
    b.pass(65 * S);
    assert_eq!((b.resets, freezes_of(&b.device)), (4, 1));
    // All openings are theirs: only the freeze shows the reason.
    b.pass(9 * S);
    assert!(b.began.is_empty() && b.device.is_reset());
    assert_eq!(freezes_of(&b.device), 1);
    b.strike(CamStatus::ResetSent);
    b.pass(SETTLE_NS);
    assert!(!b.device.is_reset());
    // They had been late, which costs a retry; those that waited did not lose any.
    let late = b.ended.iter().filter(|(_, e)| e.result == Err(Errno::TimedOut)).count();
    assert_eq!(late, 4);
    b.all_well(4);
}

/// Random resets of all kinds on a device with a deep queue. Without other faults every request
/// succeeds although none has a retry. No command is ever sent during a reset, and the first
/// command after a reset is the oldest one.
/// D9 of device/mod.rs, Z1 of freeze.rs.
#[test]
fn random_resets_fail_no_request_and_keep_the_order() {
    for seed in Seeds::of(1000) {
        let mut random = SeededRandom::new(seed);
        let mut b = bench(&[]);
        let mut open: Vec<(ResetId, u64)> = Vec::new();
        let mut order: Vec<CcbId> = Vec::new();
        let (mut ccbs, mut resets): (Vec<CcbId>, usize) = (Vec::new(), 0);
        for _ in 0..60 {
            b.script = vec![None; 64];
            let came = b.began.len();
            match random.below(10) {
                0..3 => order.extend((0..1 + random.below(6)).map(|_| {
                    let ccb = Ccb { retries: 0, ..write() };
                    b.device.submit(ccb)
                })),
                3..5 if !b.held.is_empty() => {
                    let at = random.below(b.held.len() as u64) as usize;
                    if !ccbs.contains(&b.held[at]) {
                        let id = b.held.remove(at);
                        assert!(b.device.done(id, Outcome::good(512), b.now));
                        order.retain(|other| *other != id);
                    }
                }
                5 => {
                    let most_ns = S + random.below(30 * S);
                    open.push((b.device.reset_begins(most_ns, b.now), b.now + most_ns));
                    resets += 1;
                }
                6 if !open.is_empty() => {
                    let at = random.below(open.len() as u64) as usize;
                    b.device.reset_ends(open.swap_remove(at).0, random.below(2) * SETTLE_NS);
                }
                7 if ccbs.len() < 2 => ccbs.push(b.device.submit(reset())),
                8 => {
                    // A victim, or a reset that ends.
                    let Some(id) = b.held.pop() else { continue };
                    let by = [CamStatus::BusReset, CamStatus::ResetSent];
                    let is_reset = ccbs.contains(&id);
                    ccbs.retain(|other| *other != id);
                    let victim = Outcome::of(by[random.below(2) as usize]);
                    let outcome = if is_reset { Outcome::good(0) } else { victim };
                    assert!(b.device.done(id, outcome, b.now));
                }
                _ => b.pass(random.below(S)),
            }
            open.retain(|(_, due)| *due > b.now);
            b.settle();
            let is_open = !open.is_empty() || ccbs.iter().any(|id| b.held.contains(id));
            let began: Vec<CcbId> = b.began[came..].to_vec();
            let writes: Vec<&CcbId> = began.iter().filter(|id| order.contains(id)).collect();
            assert!(writes.is_empty() || !is_open, "seed {seed}: sent into a reset");
            // D3: requests that still wait arrived later than those that have begun.
            let place = |id: &CcbId| order.iter().position(|other| other == id);
            let waits = order.iter().find(|id| !b.held.contains(id)).and_then(place);
            let last = writes.into_iter().filter_map(place).max();
            assert!(waits.is_none_or(|w| Some(w) > last), "seed {seed}: overtaken");
            assert!(freezes_of(&b.device) <= 1, "seed {seed}: one freeze for all resets");
        }
        open.into_iter().for_each(|(id, _)| b.device.reset_ends(id, 0));
        while b.device.live() > 0 || b.device.is_reset() {
            b.pass(S);
            b.script = vec![None; 64];
            for id in std::mem::take(&mut b.held) {
                let moved = if ccbs.contains(&id) { 0 } else { 512 };
                assert!(b.device.done(id, Outcome::good(moved), b.now));
            }
            b.settle();
        }
        let (made, released) = b.device.freezes();
        assert!(made == released && made >= u64::from(resets > 0), "seed {seed}: {made}");
        assert_eq!(b.device.counts().retries, 0, "seed {seed}");
        let failed = b.ended.iter().find(|(_, e)| e.result.is_err());
        assert!(failed.is_none(), "seed {seed}: {failed:?}");
    }
}
