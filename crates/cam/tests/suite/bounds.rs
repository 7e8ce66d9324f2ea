//! Deadlines of requests, and devices that do not answer (D12, D13).

use bio::Errno;
use cam::{Ccb, Event, Outcome, SILENCE_NS};
use testkit::clock::S;
use wire::scsi::{Asc, Key, Sense, Status};

use crate::bench::{Bench, bench, write};

/// A request that has so many seconds, and a command of it 30.
fn bound(b: &Bench, s: u64) -> Ccb {
    Ccb { timeout_ms: 30_000, end_ns: b.now + s * S, ..write() }
}

fn check(key: Key, asc: u8, ascq: u8) -> Outcome {
    Outcome::check(Sense::new(Asc::new(key, asc, ascq)))
}

/// How a request of 40 s ended, after how many s, and how often it was sent.
fn run_bounded(outcome: Option<Outcome>) -> (Result<u32, Errno>, u64, usize) {
    let mut b = bench(&vec![outcome; 10_000]);
    let (start, ccb) = (b.now, bound(&b, 40));
    b.device.submit(ccb);
    b.run();
    (b.ended[0].1.result, (b.now - start) / S, b.sent.len())
}

#[test]
fn a_request_ends_at_its_deadline_with_its_last_error() {
    let busy = Outcome::scsi(Status::Busy);
    assert_eq!(
        run_bounded(None),
        (Err(Errno::TimedOut), 40, 2),
        "aborted after 30 s, and at the end"
    );
    let (result, s, sent) = run_bounded(Some(busy));
    assert_eq!((result, s), (Err(Errno::Busy), 40));
    assert_eq!(sent, 16, "after 6.35 s every 4 s");
    for (ascq, error) in [(0x01, Errno::Busy), (0x0a, Errno::NxIo)] {
        let (result, s, sent) = run_bounded(Some(check(Key::NotReady, 0x04, ascq)));
        assert_eq!((result, s), (Err(error), 40), "04/{ascq:02x}");
        assert!(sent > 20, "{sent} looks");
    }
    let mut b = bench(&[]);
    let looks_ready = [Some(check(Key::NotReady, 0x04, 0x0a)), Some(Outcome::good(0))];
    b.script = looks_ready.repeat(500);
    let (start, ccb) = (b.now, bound(&b, 100));
    b.device.submit(ccb);
    b.run();
    assert_eq!((b.ended[0].1.result, (b.now - start) / S), (Err(Errno::NxIo), 100));
    let (result, s, _) = run_bounded(Some(check(Key::MediumError, 0x31, 0)));
    assert_eq!((result, s), (Err(Errno::Io), 0), "what need not wait does not");
}

/// D6 of device/mod.rs.
#[test]
fn a_queued_request_ends_at_its_deadline() {
    let mut b = bench(&vec![None; 100]);
    let start = b.now;
    let first = Ccb { end_ns: u64::MAX, ..bound(&b, 0) };
    b.device.submit(first);
    for _ in 0..7 {
        b.device.submit(bound(&b, 50));
    }
    // All openings are taken.
    b.settle();
    assert_eq!(b.sent.len(), 8);
    let last = b.device.submit(bound(&b, 20));
    b.settle();
    while b.ended.is_empty() {
        b.now = b.device.due().expect("D6");
        b.device.expire(b.now);
        b.settle();
    }
    assert_eq!((b.ended[0].0, b.ended[0].1.result), (last, Err(Errno::TimedOut)));
    assert_eq!((b.now - start) / S, 20);
    b.run();
    assert_eq!(b.ended.len(), 9);
    let late = b.ended.iter().filter(|(_, e)| e.result == Err(Errno::TimedOut)).count();
    assert_eq!(late, 9);
}

#[test]
fn a_request_without_a_deadline_uses_all_its_retries() {
    let mut b = bench(&vec![None; 100]);
    let start = b.now;
    let ccb = Ccb { end_ns: u64::MAX, ..bound(&b, 0) };
    b.device.submit(ccb);
    b.run();
    assert_eq!((b.sent.len(), (b.now - start) / S), (5, 150));
}

#[test]
fn an_unanswered_command_is_reported_until_the_device_answers() {
    let mut b = bench(&[None, None, Some(Outcome::good(512))]);
    let ccb = bound(&b, 20);
    b.device.submit(ccb);
    b.settle();
    let start = b.now;
    assert_eq!(b.device.unanswered(), None);
    while b.device.unanswered().is_none() {
        b.now = b.device.due().expect("D6");
        b.device.expire(b.now);
        b.settle();
    }
    assert_eq!(b.now - start, SILENCE_NS);
    assert_eq!(b.device.unanswered(), Some(ccb.command));
    assert_eq!(b.events, [(Event::Silence, false)]);
    b.run();
    assert_eq!(b.ended[0].1.result, Err(Errno::TimedOut));
    assert_eq!(b.device.unanswered(), Some(ccb.command), "it has answered nothing since");
    b.script.clear();
    let ccb = bound(&b, 20);
    b.device.submit(ccb);
    b.run();
    assert_eq!((b.ended[1].1.result, b.device.unanswered()), (Ok(512), None));
    assert_eq!(b.events.last(), Some(&(Event::Silence, false)));
}

#[test]
fn a_flush_counts_as_unanswered_after_half_of_its_timeout() {
    let mut b = bench(&[None]);
    let flush = cam::Command::scsi(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    let ccb = Ccb { command: flush, ..bound(&b, 100) };
    b.device.submit(ccb);
    b.settle();
    let start = b.now;
    while b.device.unanswered().is_none() {
        b.now = b.device.due().expect("D6");
        b.device.expire(b.now);
        b.settle();
    }
    assert_eq!(b.now - start, 15 * S);
    b.held.clear();
    b.obeys = true;
}
