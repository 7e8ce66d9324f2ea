//! Where other threads ask the control thread.
//!
//! Invariants
//!  K1  Changes are carried out one at a time, in the order asked.
//!  K2  Questions are answered also while a change waits for its disks.

use std::collections::{BTreeSet, VecDeque};
use std::sync::mpsc::{self, Receiver, SyncSender};
use std::sync::{Arc, Mutex, PoisonError};

use control::Outcome;
use control::api::{Error, Kind, PartAnswer, PartOrder, Result, State};
use control::plan::{Action, Step};
use geom::Inbox;
use serde_json::Value;

/// Questions and changes that may wait at once; a further one is refused.
const WAITING_MAX: usize = 1024;

/// A question: answered between any two events.
pub enum Question {
    /// Everything, now.
    State(SyncSender<State>),
    /// Would this step succeed?
    Check(Box<Step>, Ahead, SyncSender<Result<()>>),
}

/// What the steps ahead of one do.
pub struct Ahead {
    /// They make disks or geoms: tasting may bring providers of any name.
    pub comes: bool,
    /// Class and name of the geoms that they remove.
    pub going: Vec<(String, String)>,
}

/// A change.
pub enum Change {
    /// The providers that the steps to come leave to initiators.
    Lend(BTreeSet<String>, SyncSender<()>),
    /// One step of a plan.
    Carry(Box<Action>, SyncSender<Result<Outcome>>),
    /// A partition table.
    Part(Box<PartOrder>, SyncSender<Result<PartAnswer>>),
    /// A verb of a class: class, verb, parameters.
    Verb(String, String, Value, SyncSender<Result<Value>>),
    /// Stop serving.
    Stop(SyncSender<()>),
}

/// The desk.
pub struct Desk {
    questions: Mutex<VecDeque<Question>>,
    changes: Mutex<VecDeque<Change>>,
    inbox: Arc<Inbox>,
}

fn push<T>(queue: &Mutex<VecDeque<T>>, what: T) -> Result<()> {
    let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
    if queue.len() >= WAITING_MAX {
        let why = format!("{WAITING_MAX} requests wait already");
        return Err(Error::new(Kind::Limit, "ask the daemon", why));
    }
    queue.push_back(what);
    Ok(())
}

fn pop<T>(queue: &Mutex<VecDeque<T>>) -> Option<T> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
}

impl Desk {
    /// A desk whose control thread sleeps on `inbox`.
    pub fn new(inbox: Arc<Inbox>) -> Desk {
        Desk { questions: Mutex::default(), changes: Mutex::default(), inbox }
    }

    /// Asks and waits for the answer.
    pub fn ask<T>(&self, question: impl FnOnce(SyncSender<T>) -> Question) -> Result<T> {
        let (tx, rx) = mpsc::sync_channel(1);
        push(&self.questions, question(tx))?;
        self.wait(rx)
    }

    /// Orders a change and waits for its end.
    pub fn order<T>(&self, change: impl FnOnce(SyncSender<T>) -> Change) -> Result<T> {
        let (tx, rx) = mpsc::sync_channel(1);
        push(&self.changes, change(tx))?;
        self.wait(rx)
    }

    fn wait<T>(&self, rx: Receiver<T>) -> Result<T> {
        self.inbox.nudge();
        rx.recv().map_err(|_| Error::new(Kind::Stopping, "ask the daemon", "it is stopping"))
    }

    /// The next question.
    pub fn question(&self) -> Option<Question> {
        pop(&self.questions)
    }

    /// The next change.
    pub fn change(&self) -> Option<Change> {
        pop(&self.changes)
    }

    /// Lets go of everything that waits: those who ask learn that the daemon stops.
    pub fn close(&self) {
        while self.question().is_some() {}
        while self.change().is_some() {}
    }
}
