//! The local executor: long-lived conversations, one future each.
//!
//! Invariants
//!  T1  A task is polled on its reactor's thread only, and never twice at once. The types ensure
//!      this: a future is not `Send`, and is out of its place while it is polled.
//!  T2  A wake of an ended task is harmless: its key carries a generation.
//!  T3  Futures are dropped while no cell of the executor is borrowed: they may call back.

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker};

use crate::wakeup::{Remote, RunQueue, TaskKey, TaskWaker};

/// Polls in one turn; further ready tasks wait for the next turn, behind completions and timers.
pub const TASK_POLLS_PER_TURN: usize = 256;

type Work = Pin<Box<dyn Future<Output = ()>>>;

struct TaskSlot {
    generation: u32,
    name: &'static str,
    mark: u32,
    /// None while it is being polled, and when the place is free.
    work: Option<Work>,
    /// None when the place is free.
    waker: Option<Rc<OwnWaker>>,
}

/// The waker of a task. The count of its handle is not atomic: a poll takes one.
struct OwnWaker {
    task: Arc<TaskWaker>,
    waker: Waker,
}

thread_local! {
    /// The name of the task that this thread polls.
    static RUNNING: Cell<&'static str> = const { Cell::new("") };
}

/// The name of the task that this thread polls; empty when it polls none. For the words of a panic.
pub fn running_task() -> &'static str {
    RUNNING.try_with(Cell::get).unwrap_or("")
}

pub(crate) struct Tasks {
    remote: Arc<Remote>,
    slots: RefCell<Vec<TaskSlot>>,
    free: RefCell<Vec<u32>>,
    ready: RunQueue,
    /// The one being polled: its name and mark; without a name between two.
    now: Cell<(&'static str, u32)>,
    /// Its place.
    at: Cell<u32>,
}

impl Tasks {
    pub(crate) fn new(remote: Arc<Remote>) -> Tasks {
        let ready = RunQueue::default();
        remote.register_thread(ready.clone());
        let (places, free) = (RefCell::default(), RefCell::default());
        Tasks { remote, slots: places, free, ready, now: Cell::new(("", 0)), at: Cell::new(0) }
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.ready.borrow().is_empty()
    }

    pub(crate) fn queue(&self) -> &RunQueue {
        &self.ready
    }

    pub(crate) fn spawn(&self, name: &'static str, mark: u32, work: Work) -> TaskKey {
        let mut places = self.slots.borrow_mut();
        let index = self.free.borrow_mut().pop().unwrap_or_else(|| {
            places.push(TaskSlot { generation: 0, name: "", mark: 0, work: None, waker: None });
            (places.len() - 1) as u32
        });
        let place = &mut places[index as usize];
        let key = (index, place.generation);
        let waker = TaskWaker::new(self.remote.clone(), key);
        (place.name, place.mark) = (name, mark);
        place.work = Some(work);
        place.waker = Some(Rc::new(OwnWaker { task: waker.clone(), waker: Waker::from(waker) }));
        self.ready.borrow_mut().push_back(key);
        key
    }

    /// Polls the tasks that are ready now, at most [`TASK_POLLS_PER_TURN`]; returns the polls made.
    pub(crate) fn run(&self) -> usize {
        let bound = self.ready.borrow().len().min(TASK_POLLS_PER_TURN);
        let mut polls = 0;
        for _ in 0..bound {
            let Some(key) = self.ready.borrow_mut().pop_front() else {
                break;
            };
            polls += usize::from(self.poll(key));
        }
        polls
    }

    fn poll(&self, key: TaskKey) -> bool {
        let Some((mut work, own)) = self.take_out(key) else {
            return false;
        };
        own.task.rearm();
        let ended = work.as_mut().poll(&mut Context::from_waker(&own.waker)).is_ready();
        self.now.set(("", 0));
        RUNNING.set("");
        let mut places = self.slots.borrow_mut();
        match places.get_mut(key.0 as usize) {
            Some(place) if place.generation == key.1 && !ended => {
                place.work = Some(work);
                return true;
            }
            Some(place) if place.generation == key.1 => self.vacate(key.0, place),
            _ => {} // aborted while it ran
        }
        drop(places);
        drop(work); // T3
        true
    }

    fn take_out(&self, key: TaskKey) -> Option<(Work, Rc<OwnWaker>)> {
        let mut places = self.slots.borrow_mut();
        let place = places.get_mut(key.0 as usize)?;
        if place.generation != key.1 {
            return None;
        }
        let own = place.waker.clone()?;
        self.now.set((place.name, place.mark));
        RUNNING.set(place.name);
        self.at.set(key.0);
        Some((place.work.take()?, own))
    }

    fn vacate(&self, index: u32, place: &mut TaskSlot) {
        place.generation = place.generation.wrapping_add(1);
        place.waker = None;
        self.free.borrow_mut().push(index);
    }

    pub(crate) fn abort(&self, key: TaskKey) {
        let mut places = self.slots.borrow_mut();
        let Some(place) = places.get_mut(key.0 as usize) else {
            return;
        };
        if place.generation != key.1 {
            return;
        }
        let work = place.work.take();
        self.vacate(key.0, place);
        drop(places);
        drop(work); // T3
    }

    pub(crate) fn abort_all(&self) {
        let keys: Vec<TaskKey> = (0u32..)
            .zip(self.slots.borrow().iter())
            .filter(|(_, p)| p.waker.is_some())
            .map(|(i, p)| (i, p.generation))
            .collect();
        for key in keys {
            self.abort(key);
        }
    }

    pub(crate) fn is_alive(&self, key: TaskKey) -> bool {
        self.slots
            .borrow()
            .get(key.0 as usize)
            .is_some_and(|p| p.generation == key.1 && p.waker.is_some())
    }

    /// The name of the task that runs; empty when none does.
    pub(crate) fn running(&self) -> &'static str {
        self.now.get().0
    }

    /// Its mark; zero when none runs.
    pub(crate) fn mark(&self) -> u32 {
        self.now.get().1
    }

    /// Marks the task that runs; nothing when none does.
    pub(crate) fn set_mark(&self, mark: u32) {
        let (name, _) = self.now.get();
        // Its place is its own until it has been polled, also if it is aborted meanwhile: a new
        // tenant is marked when it is spawned.
        let mut places = self.slots.borrow_mut();
        if let Some(place) = places.get_mut(self.at.get() as usize)
            && !name.is_empty()
            && place.work.is_none()
        {
            place.mark = mark;
            self.now.set((name, mark));
        }
    }

    /// Names of the tasks that have not ended, for status pages.
    pub(crate) fn names(&self) -> Vec<&'static str> {
        self.slots.borrow().iter().filter(|p| p.waker.is_some()).map(|p| p.name).collect()
    }
}

impl Drop for Tasks {
    fn drop(&mut self) {
        self.remote.leave();
    }
}

/// A spawned task. Dropping the handle lets the task run on by itself.
pub struct TaskHandle {
    tasks: Rc<Tasks>,
    key: TaskKey,
}

impl TaskHandle {
    pub(crate) fn new(tasks: Rc<Tasks>, key: TaskKey) -> TaskHandle {
        TaskHandle { tasks, key }
    }

    /// Ends the task at its present await point: its future is dropped now (or, when a task
    /// aborts itself, as soon as it next returns).
    pub fn abort(&self) {
        self.tasks.abort(self.key);
    }

    /// True once the task has returned or was aborted.
    pub fn is_finished(&self) -> bool {
        !self.tasks.is_alive(self.key)
    }
}
