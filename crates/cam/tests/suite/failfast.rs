//! Fail-fast requests: they are returned instead of retried, so that another path can take them
//! (D10).

use bio::Errno;
use cam::{Ccb, Event, Flags, Outcome, Owner, Shape};
use wire::scsi::{Asc, Key, Sense, Status};

use crate::bench::{Bench, SHAPE, bench, write};

fn not_ready(ascq: u8) -> Outcome {
    Outcome::check(Sense::new(Asc::new(Key::NotReady, 0x04, ascq)))
}

fn hasty() -> Ccb {
    Ccb { flags: Flags::OUT | Flags::FAIL_FAST, ..write() }
}

fn results(b: &Bench) -> Vec<Result<u32, Errno>> {
    b.ended.iter().map(|(_, e)| e.result).collect()
}

#[test]
fn a_fail_fast_request_returns_eagain_at_once_on_a_path_error() {
    let (busy, full) = (Outcome::scsi(Status::Busy), Outcome::scsi(Status::TaskSetFull));
    for outcome in [not_ready(0x0a), not_ready(0x0b), not_ready(0x0c), busy, full] {
        let mut b = bench(&[Some(outcome)]);
        let start = b.now;
        b.device.submit(hasty());
        b.run();
        assert_eq!((results(&b), b.now), (vec![Err(Errno::Again)], start), "{outcome:?}");
        assert_eq!((b.sent.len(), b.device.freezes()), (1, (0, 0)), "{outcome:?}");
        let counts = b.device.counts();
        assert_eq!((counts.retries, counts.requeues, counts.failed_fast), (0, 0, 1), "{outcome:?}");
        // Its access state is queried, as always.
        let asks = b.events == [(Event::AdvInfoChanged, false)];
        assert_eq!(asks, outcome.sense.bytes().len() > 2, "{outcome:?} {:?}", b.events);
    }
}

#[test]
fn errors_that_other_paths_share_are_retried_here() {
    let medium = Outcome::check(Sense::new(Asc::new(Key::MediumError, 0x31, 0)));
    for (outcome, sent) in [(not_ready(0x01), 4), (not_ready(0x02), 3), (medium, 2)] {
        let mut b = bench(&[Some(outcome)]);
        b.script.extend((sent == 4).then_some(Some(outcome)));
        b.device.submit(hasty());
        b.run();
        assert_eq!((results(&b), b.sent.len()), (vec![Ok(512)], sent), "{outcome:?}");
    }
}

#[test]
fn a_busy_device_with_other_commands_is_retried_once() {
    let busy = Outcome::scsi(Status::Busy);
    let mut b = bench(&[None, Some(busy), None]);
    b.device.submit(hasty());
    b.device.submit(hasty());
    b.settle();
    assert!(b.ended.is_empty(), "the first one ends soon");
    let first = b.held.remove(0);
    b.device.done(first, Outcome::good(512), b.now);
    b.settle();
    assert_eq!((results(&b), b.held.len()), (vec![Ok(512)], 1));
    b.device.submit(hasty());
    b.script.push(None);
    b.settle();
    let again = b.held.remove(0);
    b.device.done(again, busy, b.now);
    b.settle();
    assert_eq!(results(&b), [Ok(512), Err(Errno::Again)], "it was asked once more");
    // QUEUE FULL lowers the openings first: that is no transition.
    let full = Outcome::scsi(Status::TaskSetFull);
    let mut b = bench(&[None, None, None, Some(full), Some(full)]);
    for _ in 0..4 {
        b.device.submit(hasty());
    }
    b.settle();
    assert_eq!((b.device.openings().0, b.ended.len()), (3, 0));
}

#[test]
fn fail_fast_requests_do_not_wait_behind_a_retried_request() {
    for outcome in [not_ready(0x0a), Outcome::scsi(Status::Busy)] {
        let mut b = bench(&[None]);
        b.device.reshape(Shape { openings_max: 1, ..SHAPE });
        let patient = b.device.submit(write());
        b.settle();
        // In the queue when that is reported, and sent later.
        b.device.submit(hasty());
        b.device.submit(Ccb { owner: Owner::Task(7), ..write() });
        b.held.clear();
        b.device.done(patient, outcome, b.now);
        b.device.submit(hasty());
        b.settle();
        assert_eq!(results(&b), [Err(Errno::Again); 2], "{outcome:?}");
        b.run();
        assert_eq!(results(&b)[2..], [Ok(512); 2], "{outcome:?}: as ever");
        // It is open again.
        b.device.submit(hasty());
        b.run();
        assert_eq!(results(&b)[4..], [Ok(512)], "{outcome:?}");
    }
}

#[test]
fn a_fail_fast_request_in_recovery_returns_when_the_path_closes() {
    for ascq in [0x0a, 0x0b] {
        let mut b = bench(&[Some(not_ready(0x01)), Some(not_ready(ascq))]);
        b.device.submit(hasty());
        b.run();
        assert_eq!(results(&b), [Err(Errno::Again)], "{ascq:x}");
        // Without another way: shut, for those beside it too.
        let mut b = bench(&[Some(not_ready(0x01)), Some(not_ready(ascq))]);
        b.device.submit(write());
        b.device.submit(hasty());
        b.run();
        let patient = if ascq == 0x0a { Ok(512) } else { Err(Errno::NxIo) };
        assert_eq!(results(&b), [Err(Errno::Again), patient], "{ascq:x}");
    }
}

#[test]
fn a_fail_fast_request_that_times_out_is_not_retried() {
    for (ccb, sent, s) in [(hasty(), 1, 60), (write(), 5, 300)] {
        let mut b = bench(&[None; 9]);
        let start = b.now;
        b.device.submit(ccb);
        b.run();
        assert_eq!((results(&b), b.sent.len()), (vec![Err(Errno::TimedOut)], sent));
        assert_eq!((b.now - start) / 1_000_000_000, s);
    }
}
