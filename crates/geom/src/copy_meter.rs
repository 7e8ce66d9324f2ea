//! Meter of a background copy: its position, and its rate over the last seconds.
//!
//! Invariants
//!  P1  The position never decreases, never exceeds the size, and equals it at the end of the copy.

use std::collections::VecDeque;

use crate::CopySpan;

/// Least time between two marks, ns.
const MARK_NS: u64 = 1_000_000_000;
/// Marks that are kept: the rate covers this number of seconds.
const MARKS_MAX: usize = 10;

/// See the module.
#[derive(Clone, PartialEq, Eq, Default, Debug)]
pub struct CopyMeter {
    done: u64,
    size: u64,
    /// Times of the cores' clock, ns, and the position at each. The last one is the newest position
    /// and may be younger than [`MARK_NS`].
    marks: VecDeque<(u64, u64)>,
}

impl CopyMeter {
    /// A copy of `size` bytes, of which `done` are there already.
    pub fn new(done: u64, size: u64) -> CopyMeter {
        CopyMeter { done: done.min(size), size, marks: VecDeque::new() }
    }

    /// Begins to measure the rate, at the start of the copy or after a pause.
    pub fn start(&mut self, now_ns: u64) {
        self.marks.clear();
        self.marks.push_back((now_ns, self.done));
    }

    /// P1: all up to `done` is copied.
    pub fn advance(&mut self, now_ns: u64, done: u64) {
        self.done = self.done.max(done.min(self.size));
        let mut newest = self.marks.iter().rev().map(|(at, _)| *at);
        if let (Some(last), Some(before)) = (newest.next(), newest.next())
            && last.saturating_sub(before) < MARK_NS
        {
            self.marks.pop_back();
        }
        self.marks.push_back((now_ns, self.done));
        while self.marks.len() > MARKS_MAX + 1 {
            self.marks.pop_front();
        }
    }

    /// P1: the copy has `size` bytes, if it had fewer before.
    pub fn extend(&mut self, size: u64) {
        self.size = self.size.max(size);
    }

    /// P1: the copy has ended.
    pub fn finish(&mut self) {
        *self = CopyMeter::new(self.size, self.size);
    }

    /// Bytes that are copied.
    pub fn done(&self) -> u64 {
        self.done
    }

    /// Bytes of the whole copy.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The last seconds.
    pub fn span(&self) -> CopySpan {
        let ends = self.marks.front().zip(self.marks.back());
        ends.map_or_else(CopySpan::default, |(first, last)| CopySpan {
            begin_ns: first.0,
            end_ns: last.0,
            bytes: last.1.saturating_sub(first.1),
        })
    }
}

#[cfg(test)]
mod tests {
    use testkit::Seeds;
    use testkit::clock::S;

    use super::*;

    /// The next number of a seed.
    fn next(seed: &mut u64) -> u64 {
        *seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        *seed >> 33
    }

    /// P1, for any steps, pauses and repetitions.
    /// P1.
    #[test]
    fn position_never_decreases_and_ends_at_the_size() {
        for mut seed in Seeds::of(1000) {
            let size = 1 + next(&mut seed) % (1 << 30);
            let mut meter = CopyMeter::new(next(&mut seed) % size, size);
            let (mut now, mut before) = (next(&mut seed), meter.done());
            let mut marked = now;
            meter.start(now);
            for _ in 0..200 {
                now += next(&mut seed) % (3 * S);
                let step = next(&mut seed) % 8;
                if step != 7 {
                    marked = now;
                }
                match step {
                    0 => meter.start(now),
                    7 => meter.extend(size),
                    1 => meter.advance(now, next(&mut seed) % size),
                    _ => meter.advance(now, meter.done() + next(&mut seed) % (size / 50 + 1)),
                }
                assert!(before <= meter.done() && meter.done() <= size, "{meter:?}");
                before = meter.done();
                let span = meter.span();
                assert!(span.begin_ns <= span.end_ns && span.end_ns == marked, "{meter:?}");
                assert!(meter.marks.len() <= MARKS_MAX + 1, "{meter:?}");
            }
            meter.finish();
            assert_eq!((meter.done(), meter.size(), meter.span().rate()), (size, size, None));
        }
    }

    #[test]
    fn extended_copy_keeps_its_position_and_rate() {
        let mut meter = CopyMeter::new(0, 100);
        meter.start(0);
        meter.advance(2 * S, 80);
        meter.extend(50);
        assert_eq!(meter.size(), 100, "a copy never becomes shorter");
        meter.extend(400);
        assert_eq!((meter.done(), meter.size(), meter.span().rate()), (80, 400, Some(40)));
        meter.advance(4 * S, 240);
        assert_eq!((meter.done(), meter.span().rate()), (240, Some(60)));
    }

    #[test]
    fn rate_is_that_of_the_last_seconds() {
        let mut meter = CopyMeter::new(0, 1 << 40);
        meter.start(0);
        let mut done = 0;
        // 100 s with 10 MB/s, then 20 s with 1 MB/s, in steps of a tenth of a second.
        for tenth in 1..=1200_u64 {
            done += if tenth <= 1000 { 1_000_000 } else { 100_000 };
            meter.advance(tenth * S / 10, done);
            if tenth == 1000 {
                assert_eq!(meter.span().rate(), Some(10_000_000));
            }
        }
        assert_eq!(meter.span().rate(), Some(1_000_000));
        meter.start(150 * S);
        assert_eq!(meter.span().rate(), None, "a pause is not counted");
        meter.advance(152 * S, done + 4_000_000);
        assert_eq!(meter.span().rate(), Some(2_000_000));
    }
}
