//! A search over the choices of a scenario, which runs the same for the same choices.
//!
//! If several events could happen next, the scenario calls [`Orders::choose`]. The first option is
//! the undisturbed course; each other option, if it can be avoided, is an interference. All runs
//! with at most a given number of interferences are made, none twice. Most faults of concurrent
//! programs need one or two (Musuvathi and Qadeer, "Iterative context bounding", 2007).
//!
//! ```text
//!   run:   first option until the end          begin(): the last choice that has another option
//!          of the path, then always 0                   and can afford it takes that; all later
//!          (and the path grows)                         choices are forgotten
//! ```
//!
//! Invariants
//!  O1  Two runs differ in a choice that both met with the same options.
//!  O2  A run in which a choice meets other options than before is not the same run: it panics.

use std::cell::Cell;

use super::World;

#[derive(Clone, Copy, Debug)]
struct Choice {
    taken: usize,
    options: usize,
    /// Any option may be taken without it being an interference.
    free: bool,
}

impl Choice {
    fn cost(&self) -> usize {
        usize::from(!self.free && self.taken > 0)
    }
}

/// The search: the path of choices of the present run.
#[derive(Debug)]
pub struct Orders {
    path: Vec<Choice>,
    at: usize,
    budget: usize,
    runs: u64,
}

impl Orders {
    /// All runs with at most `budget` interferences.
    pub fn new(budget: usize) -> Orders {
        Orders { path: Vec::new(), at: 0, budget, runs: 0 }
    }

    /// Chooses one of `options`, the first being the undisturbed one. `free`: no option is an
    /// interference.
    pub fn choose(&mut self, options: usize, free: bool) -> usize {
        if options < 2 {
            return 0;
        }
        let known = self.path.get(self.at).copied();
        let choice = known.unwrap_or(Choice { taken: 0, options, free });
        assert_eq!((choice.options, choice.free), (options, free), "O2: at choice {}", self.at);
        if known.is_none() {
            self.path.push(choice);
        }
        self.at += 1;
        choice.taken
    }

    /// True when there is a next run, which begins now. Called before the first one, too.
    pub fn begin(&mut self) -> bool {
        self.at = 0;
        self.runs += 1;
        if self.runs == 1 {
            return true;
        }
        while let Some(last) = self.path.pop() {
            let spent: usize = self.path.iter().map(Choice::cost).sum();
            let other = Choice { taken: last.taken + 1, ..last };
            if other.taken < other.options && spent + other.cost() <= self.budget {
                self.path.push(other);
                return true;
            }
        }
        self.runs -= 1;
        false
    }

    /// Runs begun so far.
    pub fn runs(&self) -> u64 {
        self.runs
    }

    /// The options taken in this run so far: enough to see it again.
    pub fn taken(&self) -> Vec<usize> {
        self.path[..self.at].iter().map(|c| c.taken).collect()
    }
}

/// A thread beside the cores of a world, which is held up for so many of their turns when the
/// world's orders decide so. Without orders it never is.
#[derive(Debug, Default)]
pub struct DelayedThread(Cell<u32>);

impl DelayedThread {
    /// Called before each turn of a core while the thread has work: whether it continues.
    pub fn continues(&self, world: &World, turns: u32) -> bool {
        match self.0.get() {
            0 if world.choose(2, false) == 0 => return true,
            0 => self.0.set(turns),
            left => self.0.set(left - 1),
        }
        false
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all(budget: usize, free: bool) -> BTreeSet<Vec<usize>> {
        let mut orders = Orders::new(budget);
        let mut seen = BTreeSet::new();
        while orders.begin() {
            // A choice of three; after the first option one of two, and one that is none.
            let first = orders.choose(3, free);
            if first == 0 {
                orders.choose(2, false);
            }
            orders.choose(1, false);
            orders.choose(2, false);
            assert!(seen.insert(orders.taken()), "twice");
        }
        assert_eq!(orders.runs(), seen.len() as u64);
        seen
    }

    /// O1.
    #[test]
    fn every_run_within_the_budget_is_made_once() {
        assert_eq!(all(0, false).len(), 1);
        assert_eq!(all(1, false).len(), 1 + 2 + 1 + 1);
        assert_eq!(all(9, false).len(), 4 + 2 + 2);
        let free = BTreeSet::from([vec![0, 0, 0], vec![1, 0], vec![2, 0]]);
        assert_eq!(all(0, true), free);
    }

    /// O2.
    #[test]
    #[should_panic(expected = "O2: at choice 0")]
    fn run_that_meets_other_options_than_before_panics() {
        let mut orders = Orders::new(1);
        assert!(orders.begin());
        orders.choose(3, false);
        assert!(orders.begin());
        orders.choose(2, false);
    }
}
