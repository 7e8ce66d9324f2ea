//! Work of a core that runs once, at the start of a turn and before its call to the kernel.
//!
//! Frames of many requests leave in one call, and no turn passes between a request and its frame.
//! That holds for requests of tasks, of receivers and of code that runs between two turns.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;

use crate::reactor::Reactor;

/// Work before the next call to the kernel.
pub trait Prepare {
    /// Does the work. It may start operations, timers and tasks; it must not take a turn.
    fn prepare(self: Rc<Self>);
}

/// Work that waits for the next turn.
#[derive(Default)]
pub(crate) struct Prepared(RefCell<VecDeque<Rc<dyn Prepare>>>);

impl Prepared {
    pub(crate) fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Runs the work that waits now; work that is added meanwhile waits for the next turn.
    pub(crate) fn run(&self) {
        let count = self.0.borrow().len();
        for _ in 0..count {
            let next = self.0.borrow_mut().pop_front();
            let Some(work) = next else { return };
            work.prepare();
        }
    }

    /// Forgets the work that waits.
    pub(crate) fn clear(&self) {
        let waiting = self.0.take();
        drop(waiting);
    }
}

impl Reactor {
    /// Calls `work` once, at the start of the next turn. The turn does not sleep before that.
    pub fn prepare(&self, work: Rc<dyn Prepare>) {
        self.inner.prepared.0.borrow_mut().push_back(work);
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use super::*;
    use crate::sim::World;
    use crate::turn::WaitFor;

    /// Starts a task each time; adds itself again the first time.
    struct Twice {
        reactor: Reactor,
        runs: Cell<u32>,
        polls: Rc<Cell<u32>>,
    }

    impl Prepare for Twice {
        fn prepare(self: Rc<Self>) {
            let polls = self.polls.clone();
            self.reactor.spawn("behind it", async move { polls.set(polls.get() + 1) });
            self.runs.set(self.runs.get() + 1);
            if self.runs.get() == 1 {
                self.reactor.prepare(self.clone());
            }
        }
    }

    #[test]
    fn prepared_work_runs_once_and_before_the_tasks_of_its_turn() {
        let reactor = Reactor::simulated(&World::new(1), "test");
        let (runs, polls) = (Cell::default(), Rc::default());
        let work = Rc::new(Twice { reactor: reactor.clone(), runs, polls });
        let turn = || {
            reactor.turn(WaitFor::Forever, &mut |_, _| ());
            (work.runs.get(), work.polls.get())
        };
        assert!(!reactor.is_ready());
        reactor.prepare(work.clone());
        assert!(reactor.is_ready(), "prepared work is a reason for a turn");
        assert_eq!(turn(), (1, 1), "its task runs in the same turn");
        assert!(reactor.is_ready(), "work that was added meanwhile waits for the next turn");
        assert_eq!(turn(), (2, 2));
        assert!(!reactor.is_ready());
        assert_eq!(turn(), (2, 2));
    }
}
