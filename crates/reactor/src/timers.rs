//! Deadlines: a binary heap whose entries know their place, so a cancel leaves nothing behind.
//!
//! Invariants
//!  H1  `heap[places[i].at] == i` for every armed entry.
//!  H2  Equal deadlines fire in the order in which they were set.

use crate::ops::Token;
use std::task::Waker;

/// Names a timer; harmless once it has fired or was cancelled.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimerId {
    index: u32,
    generation: u32,
}

/// The action at a deadline.
pub(crate) enum Alarm {
    Token(Token),
    Wake(Waker),
}

struct Entry {
    due: u64,
    order: u64,
    at: u32,
    generation: u32,
    /// None when the entry is free.
    alarm: Option<Alarm>,
}

#[derive(Default)]
pub(crate) struct Timers {
    entries: Vec<Entry>,
    free: Vec<u32>,
    heap: Vec<u32>,
    order: u64,
}

impl Timers {
    pub(crate) fn set(&mut self, due: u64, alarm: Alarm) -> TimerId {
        self.order += 1;
        let at = self.heap.len() as u32;
        let index = match self.free.pop() {
            Some(index) => {
                let e = &mut self.entries[index as usize];
                (e.due, e.order, e.at, e.alarm) = (due, self.order, at, Some(alarm));
                index
            }
            None => {
                self.entries.push(Entry {
                    due,
                    order: self.order,
                    at,
                    generation: 0,
                    alarm: Some(alarm),
                });
                (self.entries.len() - 1) as u32
            }
        };
        self.heap.push(index);
        self.rise(at as usize);
        TimerId { index, generation: self.entries[index as usize].generation }
    }

    /// Takes the timer back; None when it has fired or was cancelled before.
    pub(crate) fn cancel(&mut self, id: TimerId) -> Option<Alarm> {
        let entry = self.entries.get(id.index as usize)?;
        if entry.generation != id.generation || entry.alarm.is_none() {
            return None;
        }
        self.remove(entry.at as usize)
    }

    /// Replaces the waker and keeps the deadline; false if the timer is not armed.
    pub(crate) fn rewake(&mut self, id: TimerId, waker: &Waker) -> bool {
        let Some(entry) = self.entries.get_mut(id.index as usize) else {
            return false;
        };
        if entry.generation != id.generation {
            return false;
        }
        match &mut entry.alarm {
            Some(Alarm::Wake(w)) => {
                w.clone_from(waker);
                true
            }
            _ => false,
        }
    }

    pub(crate) fn next_due(&self) -> Option<u64> {
        self.heap.first().map(|&i| self.entries[i as usize].due)
    }

    /// The next alarm that is due at `now`.
    pub(crate) fn pop_due(&mut self, now: u64) -> Option<Alarm> {
        (self.next_due()? <= now).then(|| self.remove(0)).flatten()
    }

    pub(crate) fn clear(&mut self) -> Vec<Alarm> {
        let mut out = Vec::new();
        while let Some(alarm) = self.remove(0) {
            out.push(alarm);
        }
        out
    }

    fn key(&self, at: usize) -> (u64, u64) {
        let e = &self.entries[self.heap[at] as usize];
        (e.due, e.order)
    }

    fn swap(&mut self, a: usize, b: usize) {
        self.heap.swap(a, b);
        self.entries[self.heap[a] as usize].at = a as u32;
        self.entries[self.heap[b] as usize].at = b as u32;
    }

    fn rise(&mut self, mut at: usize) {
        while at > 0 {
            let above = (at - 1) / 2;
            if self.key(above) <= self.key(at) {
                break;
            }
            self.swap(above, at);
            at = above;
        }
    }

    fn sink(&mut self, mut at: usize) {
        loop {
            let first = 2 * at + 1;
            if first >= self.heap.len() {
                break;
            }
            let second = first + 1;
            let least = if second < self.heap.len() && self.key(second) < self.key(first) {
                second
            } else {
                first
            };
            if self.key(at) <= self.key(least) {
                break;
            }
            self.swap(at, least);
            at = least;
        }
    }

    fn remove(&mut self, at: usize) -> Option<Alarm> {
        let last = self.heap.len().checked_sub(1)?;
        self.swap(at, last);
        let index = self.heap.pop()?;
        if at < last {
            self.rise(at);
            self.sink(at);
        }
        let entry = &mut self.entries[index as usize];
        entry.generation = entry.generation.wrapping_add(1);
        self.free.push(index);
        entry.alarm.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn token_alarm(word: u64) -> Alarm {
        Alarm::Token(Token { kind: 0, user_data: word })
    }

    fn token_data(alarm: Alarm) -> u64 {
        match alarm {
            Alarm::Token(t) => t.user_data,
            Alarm::Wake(_) => unreachable!("no wakers in this test"),
        }
    }

    /// H1.
    #[test]
    fn h2_any_mix_of_set_and_cancel_fires_like_a_sorted_list() {
        let mut seed = 7u64;
        let mut next = move || {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            seed >> 33
        };
        let mut timers = Timers::default();
        let mut model: Vec<(u64, u64, TimerId)> = Vec::new();
        for n in 0..4000u64 {
            match next() % 4 {
                0 | 1 => {
                    let due = next() % 500;
                    model.push((due, n, timers.set(due, token_alarm(n))));
                }
                2 if !model.is_empty() => {
                    let (_, n, id) = model.remove(next() as usize % model.len());
                    assert_eq!(timers.cancel(id).map(token_data), Some(n));
                    assert!(timers.cancel(id).is_none(), "a cancel works once");
                }
                _ => {
                    let now = next() % 200;
                    model.sort_by_key(|&(due, n, _)| (due, n));
                    while model.first().is_some_and(|&(due, _, _)| due <= now) {
                        let (_, n, _) = model.remove(0);
                        assert_eq!(timers.pop_due(now).map(token_data), Some(n));
                    }
                    assert!(timers.pop_due(now).is_none());
                }
            }
        }
    }
}
