//! Each row of the recovery matrix on a device: the commands sent, the time, the result, and that
//! the queue is as free afterwards as before.

use bio::Errno;
use cam::{CamStatus, Ccb, Command, Effect, Event, Flags, Outcome, Owner, Priority, Shape, Tag};
use wire::scsi::{Asc, Key, Sense, Status};

use crate::bench::{Bench, SHAPE, bench, write};

const TUR: u8 = 0x00;
const START: u8 = 0x1b;

fn sense(key: u8, asc: u8, ascq: u8) -> Outcome {
    Outcome::check(Sense::new(Asc::new(Key::from_code(key).unwrap(), asc, ascq)))
}

/// One write against a script: how it ended, opcodes sent, ms it took, retries spent.
#[track_caller]
fn run_script(script: &[Option<Outcome>]) -> (Result<u32, Errno>, Vec<u8>, u64, u64, Bench) {
    let mut b = bench(script);
    let start = b.now;
    b.device.submit(write());
    b.run();
    assert_eq!(b.ended.len(), 1);
    let took = (b.now - start) / 1_000_000;
    (b.ended[0].1.result, b.sent.clone(), took, b.device.counts().retries, b)
}

fn times(outcome: Outcome, n: usize) -> Vec<Option<Outcome>> {
    vec![Some(outcome); n]
}

#[test]
fn transient_errors_are_retried_four_times() {
    use CamStatus::*;
    for status in [Aborted, CompletedError, Timeout, Parity, Overrun, BusFree, Terminated] {
        let (result, sent, took, retries, _) = run_script(&times(Outcome::of(status), 4));
        assert_eq!((result, sent.len(), took, retries), (Ok(512), 5, 0, 4), "{status:?}");
        let (result, sent, ..) = run_script(&times(Outcome::of(status), 99));
        let error = if status == Timeout { Errno::TimedOut } else { Errno::RemoteIo };
        assert_eq!((result, sent.len()), (Err(error), 5), "{status:?}");
    }
    let device = Errno::RemoteIo;
    let keys =
        [(2, 0x04, Errno::NxIo), (3, 0x31, Errno::Io), (4, 0x44, device), (0xb, 0x47, device)];
    for (key, asc, error) in keys {
        let (result, sent, ..) = run_script(&times(sense(key, asc, 0), 99));
        assert_eq!((result, sent.len()), (Err(error), 5), "key {key:x}");
    }
}

#[test]
fn commands_aborted_by_a_reset_use_up_no_retry() {
    for status in [CamStatus::BusReset, CamStatus::ResetSent, CamStatus::Requeue] {
        let mut script = times(Outcome::of(status), 50);
        script.extend(times(Outcome::of(CamStatus::Parity), 4));
        let (result, sent, _, retries, _) = run_script(&script);
        assert_eq!((result, sent.len(), retries), (Ok(512), 55, 4));
    }
    // Within reason: a SIM that reports nothing else is not believed for ever.
    let (result, sent, ..) = run_script(&times(Outcome::of(CamStatus::Requeue), 9999));
    assert_eq!((result, sent.len()), (Err(Errno::RemoteIo), 1005));
}

#[test]
fn commands_to_a_busy_sim_are_retried_after_half_a_second() {
    for status in [CamStatus::Busy, CamStatus::NoResources] {
        let (result, _, took, retries, _) = run_script(&times(Outcome::of(status), 3));
        assert_eq!((result, took, retries), (Ok(512), 1500, 3));
    }
}

#[test]
fn selection_timeouts_are_retried_before_the_target_is_lost() {
    let silent = Outcome::of(CamStatus::SelectionTimeout);
    let (result, _, took, _, b) = run_script(&times(silent, 4));
    assert_eq!((result, took, b.device.is_lost()), (Ok(512), 4000, false));
    let (result, _, took, _, b) = run_script(&times(silent, 99));
    assert_eq!((result, took, b.device.is_lost()), (Err(Errno::NxIo), 4000, true));
    assert_eq!(b.events, [(Event::LostDevice, true)]);
}

#[test]
fn a_lost_device_raises_an_event_and_fails_all_its_commands() {
    for outcome in [Outcome::of(CamStatus::NotThere), sense(5, 0x25, 0)] {
        let mut b = bench(&[None, None, Some(outcome)]);
        for _ in 0..20 {
            b.device.submit(write());
        }
        b.run();
        assert_eq!((b.ended.len(), b.aborts), (20, 2), "two were with the SIM");
        assert!(b.ended.iter().all(|(_, e)| e.result == Err(Errno::NxIo)));
        assert_eq!(b.events, [(Event::LostDevice, false)]);
        b.device.submit(write());
        b.run();
        assert_eq!((b.ended.len(), b.ended[20].1.result), (21, Err(Errno::NxIo)));
    }
}

#[test]
fn malformed_commands_and_permanent_errors_fail_at_once() {
    use CamStatus::*;
    for status in [Invalid, LunInvalid, TargetInvalid, TooBig, CannotProvide] {
        assert_eq!(run_script(&times(Outcome::of(status), 1)).0, Err(Errno::Inval));
    }
    let rows = [
        (Outcome::of(AutosenseFailed), Errno::RemoteIo),
        (Outcome::scsi(Status::ReservationConflict), Errno::Conflict),
        (sense(2, 0x04, 0x03), Errno::NxIo),
        (sense(2, 0x04, 0x04), Errno::Busy),
        (sense(3, 0x11, 0x00), Errno::Io),
        (sense(5, 0x20, 0x00), Errno::Inval),
        (sense(7, 0x27, 0x00), Errno::RoFs),
        (sense(7, 0x27, 0x07), Errno::NoSpc),
        (sense(8, 0, 0), Errno::NoSpc),
        (sense(2, 0x3a, 0x00), Errno::NxIo),
    ];
    for (outcome, error) in rows {
        let (result, sent, took, ..) = run_script(&[Some(outcome)]);
        assert_eq!((result, sent.len(), took), (Err(error), 1, 0), "{outcome:?}");
    }
}

#[test]
fn unit_attentions_raise_events_and_are_retried() {
    let rows = [
        (0x29, 0x00, vec![]),
        (0x28, 0x00, vec![(Event::DeviceChanged, false)]),
        (0x2a, 0x09, vec![(Event::DeviceChanged, false)]),
        (0x3f, 0x03, vec![(Event::InquiryChanged, false)]),
        (0x3f, 0x0e, vec![(Event::Contract, true)]),
        (0x38, 0x07, vec![]),
    ];
    for (asc, ascq, follows) in rows {
        let (result, sent, _, retries, b) = run_script(&[Some(sense(6, asc, ascq))]);
        assert_eq!((result, sent.len(), retries), (Ok(512), 2, 1));
        let mut events = vec![(Event::UnitAttention, false)];
        events.extend(follows);
        assert_eq!(b.events, events, "{asc:x}/{ascq:x}");
    }
}

#[test]
fn a_device_becoming_ready_is_polled_until_it_is_ready() {
    let becoming = sense(2, 0x04, 0x01);
    let (result, sent, took, retries, _) = run_script(&times(becoming, 4));
    assert_eq!(sent, [0x2a, TUR, TUR, TUR, TUR, 0x2a]);
    assert_eq!((result, took, retries), (Ok(512), 2000, 1));
    let (result, sent, took, ..) = run_script(&times(becoming, 999));
    assert_eq!((result, sent.len(), took), (Err(Errno::Busy), 121, 60_000));
}

#[test]
fn a_device_that_only_seems_ready_is_awaited_for_the_same_time() {
    for (asc, ascq, error) in [(0x04, 0x01, Errno::Busy), (0x04, 0x0a, Errno::NxIo)] {
        let (in_transition, good) = (sense(2, asc, ascq), Outcome::good(0));
        let rounds = |n| [in_transition, good].repeat(n).into_iter().map(Some).collect::<Vec<_>>();
        let (result, sent, took, retries, _) = run_script(&rounds(40));
        assert_eq!((result, sent.len(), took, retries), (Ok(512), 81, 20_000, 1));
        let (result, _, took, ..) = run_script(&rounds(999));
        assert_eq!((result, took), (Err(error), 60_000));
    }
}

#[test]
fn a_stopped_device_is_started() {
    let stopped = sense(2, 0x04, 0x02);
    let (result, sent, took, ..) = run_script(&[Some(stopped)]);
    assert_eq!((result, took), (Ok(512), 0));
    assert_eq!(sent, [0x2a, START, 0x2a]);
    // It starts slowly: looked at from then on. An attention on the way is no failure.
    let slow = [stopped, sense(6, 0x29, 0), sense(2, 0x04, 0x01), sense(2, 0x04, 0x01)];
    let (result, sent, ..) = run_script(&slow.map(Some));
    assert_eq!(result, Ok(512));
    assert_eq!(sent, [0x2a, START, START, TUR, TUR, 0x2a]);
    // It reported that it was becoming ready, and needs to be started after all.
    let becoming = sense(2, 0x04, 0x01);
    let (result, sent, ..) = run_script(&[becoming, becoming, stopped].map(Some));
    assert_eq!((result, sent), (Ok(512), vec![0x2a, TUR, TUR, START, 0x2a]));
    let turns: Vec<_> = [becoming, stopped].repeat(99).into_iter().map(Some).collect();
    let (result, sent, ..) = run_script(&turns);
    assert!(result.is_err() && sent.len() < 20, "one and the other in turn: {}", sent.len());
    // It does not start.
    let (result, sent, ..) = run_script(&[Some(stopped), Some(sense(5, 0x20, 0))]);
    assert_eq!((result, sent), (Err(Errno::NxIo), vec![0x2a, START]));
    let (result, ..) = run_script(&times(stopped, 999));
    assert_eq!(result, Err(Errno::NxIo));
}

/// D7 of device/mod.rs.
#[test]
fn one_recovery_action_serves_all_commands_and_keeps_their_order() {
    let stopped = sense(2, 0x04, 0x02);
    let mut b = bench(&[None, None, None, None, None, None]);
    for block in 0..6 {
        let mut ccb = write();
        ccb.owner = Owner::Task(block);
        b.device.submit(ccb);
    }
    b.settle();
    for id in std::mem::take(&mut b.held) {
        assert!(b.device.done(id, stopped, b.now));
    }
    b.settle();
    assert_eq!(b.sent[6..], [START, 0x2a, 0x2a, 0x2a, 0x2a, 0x2a, 0x2a]);
    b.run();
    assert!(b.ended.iter().all(|(_, e)| e.result == Ok(512)), "{:?}", b.ended);
}

#[test]
fn queue_full_lowers_the_openings_and_time_raises_them() {
    let full = Outcome::scsi(Status::TaskSetFull);
    let mut b = bench(&[None, None, None, Some(full)]);
    b.many(8);
    b.settle();
    assert_eq!(b.device.openings().0, 3, "as many as it had taken");
    assert_eq!(b.device.counts().retries, 0);
    for id in std::mem::take(&mut b.held) {
        b.device.done(id, Outcome::good(512), b.now);
    }
    b.run();
    assert!(b.ended.iter().all(|(_, e)| e.result == Ok(512)));
    for _ in 0..20_000 {
        b.script = vec![None; 64];
        b.many(8);
        while b.device.live() > 0 {
            b.settle();
            for id in std::mem::take(&mut b.held) {
                b.device.done(id, Outcome::good(512), b.now);
            }
            b.settle();
        }
    }
    assert_eq!(b.device.openings().0, 8);
    // Alone with it, it is as a device that is busy.
    let (result, _, took, retries, _) = run_script(&times(full, 2));
    assert_eq!((result, took, retries), (Ok(512), 150, 0));
}

#[test]
fn the_openings_are_never_lowered_below_the_minimum() {
    let full = Outcome::scsi(Status::TaskSetFull);
    let mut b = bench(&[None, Some(full), Some(full)]);
    b.many(8);
    b.settle();
    assert_eq!(b.device.openings().0, 2);
    assert!(!b.held.is_empty());
    for id in std::mem::take(&mut b.held) {
        b.device.done(id, Outcome::good(512), b.now);
    }
    let start = b.now;
    b.run();
    assert_eq!(b.now, start, "it went on when another ended, not a second later");
}

#[test]
fn a_busy_device_is_retried_when_a_command_ends_or_after_a_delay() {
    for busy in [Outcome::scsi(Status::Busy), Outcome::scsi(Status::TaskSetFull)] {
        for (tries, ms) in [(1, 50), (2, 150), (3, 350), (7, 6350), (8, 10_350), (9, 14_350)] {
            let (result, _, took, retries, _) = run_script(&times(busy, tries));
            assert_eq!((result, took, retries), (Ok(512), ms, 0));
        }
        let (result, sent, took, ..) = run_script(&times(busy, 99));
        assert_eq!((result, sent.len(), took), (Err(Errno::Busy), 22, 62_350), "by its time");
    }
    let busy = Outcome::scsi(Status::Busy);
    let mut b = bench(&[None, Some(busy)]);
    b.device.submit(write());
    b.device.submit(write());
    b.settle();
    let first = b.held.remove(0);
    b.device.done(first, Outcome::good(512), b.now);
    b.settle();
    assert_eq!(b.ended.len(), 2, "at once");
}

/// D2 of device/mod.rs, D6 of device/mod.rs.
#[test]
fn a_timeout_escalates_from_abort_to_device_reset_to_loss() {
    let (result, sent, took, _, b) = run_script(&[None, None]);
    assert_eq!((result, sent.len(), took), (Ok(512), 3, 120_000));
    assert_eq!((b.aborts, b.resets, b.device.counts().timeouts), (2, 0, 2));
    let mut b = bench(&[None]);
    b.obeys = false;
    b.device.submit(write());
    b.device.submit(write());
    let start = b.now;
    b.run();
    assert_eq!((b.aborts, b.resets), (1, 1));
    assert_eq!((b.now - start) / 1_000_000_000, 75);
    assert!(b.device.is_lost() && b.events.contains(&(Event::LostDevice, false)));
    // Its answer arrives after all.
    let late = b.held[0];
    assert!(!b.device.done(late, Outcome::good(512), b.now), "D2");
    assert_eq!(b.device.counts().strays, 1);
    assert_eq!(b.ended.len(), 2);
}

/// D2 of device/mod.rs.
#[test]
fn duplicate_completions_are_ignored() {
    let mut b = bench(&[None]);
    let id = b.device.submit(write());
    b.settle();
    assert!(b.device.done(id, Outcome::good(512), b.now));
    assert!(!b.device.done(id, Outcome::of(CamStatus::NotThere), b.now));
    b.settle();
    let next = b.device.submit(write());
    assert_ne!(next, id);
    assert!(!b.device.done(id, Outcome::good(0), b.now));
    b.run();
    assert_eq!((b.ended.len(), b.device.counts().strays), (2, 2));
    assert!(b.ended.iter().all(|(_, e)| e.result == Ok(512)));
}

#[test]
fn command_order_is_kept_through_errors() {
    let mut b = bench(&[Some(Outcome::of(CamStatus::Parity)), None, None, None]);
    let first = b.device.submit(write());
    let fence = Ccb { flags: Flags::OUT | Flags::ORDERED, ..write() };
    let ids = [first, b.device.submit(fence), b.device.submit(write())];
    b.settle();
    assert_eq!(b.held, [first], "D3 and D5: tried again, and the fence waits for it");
    for id in ids {
        assert_eq!(b.held, [id]);
        let id = b.held.remove(0);
        b.device.done(id, Outcome::good(512), b.now);
        b.settle();
    }
    assert_eq!(b.ended.len(), 3);
}

#[test]
fn a_raw_ccb_gets_the_outcome_of_the_device_without_recovery() {
    let outcome = sense(2, 0x04, 0x01);
    let mut b = bench(&[Some(outcome)]);
    b.device.submit(Ccb { flags: Flags::RAW, ..write() });
    b.run();
    assert_eq!((b.ended[0].1.outcome, b.ended[0].1.result), (outcome, Err(Errno::Busy)));
    assert_eq!(b.device.freezes(), (0, 0));
}

#[test]
fn ccbs_of_higher_priority_pass_a_frozen_queue() {
    let mut b = bench(&[]);
    let freeze = b.device.freeze();
    b.device.submit(write());
    b.device.submit(Ccb { priority: Priority::Xpt, command: Command::scsi(&[0x12; 6]), ..write() });
    b.settle();
    assert_eq!(b.sent, [0x12]);
    b.device.release(freeze);
    b.run();
    assert_eq!(b.sent, [0x12, 0x2a]);
}

#[test]
fn aborted_ccbs_end_as_canceled_in_every_state() {
    let mut b = bench(&[None, None]);
    b.device.reshape(Shape { openings_max: 1, ..SHAPE });
    let [active, queued] = [b.device.submit(write()), b.device.submit(write())];
    b.settle();
    b.device.abort(queued, b.now);
    b.device.abort(active, b.now);
    b.run();
    assert_eq!(b.ended.len(), 2);
    assert!(b.ended.iter().all(|(_, e)| e.result == Err(Errno::Canceled)), "{:?}", b.ended);
    // While it waits for a cure.
    let mut b = bench(&times(sense(2, 4, 1), 3));
    let id = b.device.submit(write());
    b.settle();
    b.device.abort(id, b.now);
    b.run();
    assert_eq!(b.ended[0].1.result, Err(Errno::Canceled));
}

#[test]
fn no_simple_command_starves() {
    let mut b = bench(&[]);
    let mut tags = Vec::new();
    for _ in 0..40 {
        b.now += 1_000_000_000;
        let id = b.device.submit(write());
        let Some(Effect::Start(_, owner)) = b.device.take() else { panic!("it begins") };
        let ccb = b.device.begin(id, owner, b.now).unwrap();
        let Command::Scsi { tag, .. } = ccb.command else { panic!("SCSI") };
        tags.push(tag == Tag::Ordered);
        b.device.done(id, Outcome::good(512), b.now);
        b.settle();
    }
    let gaps = tags.split(|ordered| *ordered).map(<[bool]>::len).max().unwrap();
    assert!((1..15).contains(&gaps), "one of each quarter of 60 s: {tags:?}");
}
