//! The queue of one nexus (`qos/mod.rs`).
//!
//! HEAD OF QUEUE precedes the rest, but not for ever: after [`HEADS_MAX`] of them in a row one
//! of the rest is next. Others may wait for it: an ORDERED command of another nexus waits for
//! everything older. Each of the two kinds keeps its order of arrival. Otherwise the first HEAD OF
//! QUEUE would never run while more arrive, nor would the commands that wait for it.

use std::collections::VecDeque;

/// HEAD OF QUEUE requests in a row that precede the rest.
pub(crate) const HEADS_MAX: u32 = 16;

/// Requests with their costs.
pub(crate) struct Queue<T> {
    heads: VecDeque<(T, u32)>,
    rest: VecDeque<(T, u32)>,
    /// Heads that were started since one of the rest was, while there were some.
    passed: u32,
}

impl<T> Default for Queue<T> {
    fn default() -> Queue<T> {
        Queue { heads: VecDeque::new(), rest: VecDeque::new(), passed: 0 }
    }
}

impl<T> Queue<T> {
    pub fn len(&self) -> usize {
        self.heads.len() + self.rest.len()
    }

    pub fn is_empty(&self) -> bool {
        self.heads.is_empty() && self.rest.is_empty()
    }

    pub fn push(&mut self, one: T, cost: u32, head: bool) {
        let line = if head { &mut self.heads } else { &mut self.rest };
        line.push_back((one, cost));
    }

    fn is_head_next(&self) -> bool {
        !self.heads.is_empty() && (self.rest.is_empty() || self.passed < HEADS_MAX)
    }

    pub fn next_cost(&self) -> Option<u32> {
        let line = if self.is_head_next() { &self.heads } else { &self.rest };
        line.front().map(|(_, cost)| *cost)
    }

    pub fn pop(&mut self) -> Option<(T, u32)> {
        if self.is_head_next() {
            self.passed = if self.rest.is_empty() { 0 } else { self.passed + 1 };
            return self.heads.pop_front();
        }
        self.passed = 0;
        self.rest.pop_front()
    }

    /// Takes the first one out that fits; false when none does.
    pub fn forget(&mut self, is_it: impl Fn(&T) -> bool) -> bool {
        for line in [&mut self.heads, &mut self.rest] {
            if let Some(at) = line.iter().position(|(one, _)| is_it(one)) {
                line.remove(at);
                return true;
            }
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn head_of_queue_requests_go_first_in_order_and_starve_no_others() {
        let mut queue = Queue::default();
        queue.push(1000, 9, false);
        queue.push(1001, 8, false);
        let mut next = 0;
        let mut went = Vec::new();
        for _ in 0..2 * (HEADS_MAX + 1) {
            // There is always one.
            for _ in 0..2 {
                queue.push(next, 1, true);
                next += 1;
            }
            let cost = queue.next_cost();
            let (one, paid) = queue.pop().unwrap();
            assert_eq!(cost, Some(paid));
            went.push(one);
        }
        let run = HEADS_MAX as usize;
        assert_eq!((went[run], went[2 * run + 1]), (1000, 1001));
        let heads: Vec<u32> = went.iter().copied().filter(|one| *one < 1000).collect();
        assert_eq!(heads, (0..heads.len() as u32).collect::<Vec<_>>());
    }

    #[test]
    fn forgotten_requests_are_never_dequeued() {
        let mut queue = Queue::default();
        for one in 0..6 {
            queue.push(one, 1, one % 2 == 0);
        }
        assert!(queue.forget(|one| *one == 2) && queue.forget(|one| *one == 3));
        assert!(!queue.forget(|one| *one == 3));
        assert_eq!(queue.len(), 4);
        let all: Vec<u32> = std::iter::from_fn(|| queue.pop().map(|(one, _)| one)).collect();
        assert_eq!(all, [0, 4, 1, 5]);
        assert!(queue.is_empty() && queue.next_cost().is_none());
    }
}
