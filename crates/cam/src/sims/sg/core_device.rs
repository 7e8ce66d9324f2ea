//! A device on one core: its node, and the CCBs that the kernel has.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use bio::{Direction, Segs};
use geom::Core;
use reactor::{ScsiAnswer, ScsiRequest, TaskHandle};

use super::machine::Node;
use super::{Inner, outcome};
use crate::ccb::{CamStatus, Ccb, CcbId, Flags, Outcome};
use crate::sim::Begun;
use crate::unit::Unit;

/// A CCB that the kernel has.
struct PendingCcb {
    unit: Weak<Unit>,
    id: CcbId,
    /// The memory for data that are read (S3).
    data: Segs,
    /// CAM wants it no longer.
    aborted: bool,
}

/// See the module.
pub(super) struct CoreDevice {
    core: std::rc::Weak<Core>,
    node: Rc<dyn Node>,
    /// Of the device, which the node may outlive.
    generation: u64,
    pending: RefCell<HashMap<u64, PendingCcb>>,
    next: Cell<u64>,
    /// The device was removed.
    is_lost: Cell<bool>,
    task: RefCell<Option<TaskHandle>>,
}

/// Bus, core, target.
type Key = (u64, u32, u64);

thread_local! {
    /// The lines of this thread.
    static DEVICES: RefCell<HashMap<Key, Rc<CoreDevice>>> = RefCell::default();
}

fn key_of(inner: &Inner, unit: &Unit, core: &Core) -> Key {
    (inner.number, core.id(), unit.path().target)
}

/// The line to a unit's device; one that is not there yet, or not to the device that is there now,
/// begins.
pub(super) fn find(inner: &Inner, unit: &Unit, core: &Core) -> Result<Rc<CoreDevice>, CamStatus> {
    let key = key_of(inner, unit, core);
    let found = inner.machine.find_device(key.2).map_err(|_| CamStatus::SelectionTimeout)?;
    let line = DEVICES.with_borrow(|all| all.get(&key).cloned());
    if let Some(line) = line.filter(|l| !l.is_lost.get() && l.generation == found.generation) {
        return Ok(line);
    }
    let core = core.handle().ok_or(CamStatus::NoHba)?;
    let node = inner.machine.open(key.2, &core).map_err(|_| CamStatus::SelectionTimeout)?;
    let line = Rc::new(CoreDevice {
        core: Rc::downgrade(&core),
        node,
        generation: found.generation,
        pending: RefCell::default(),
        next: Cell::default(),
        is_lost: Cell::default(),
        task: RefCell::default(),
    });
    let task = core.reactor().spawn("sg", receive_loop(line.clone()));
    *line.task.borrow_mut() = Some(task);
    DEVICES.with_borrow_mut(|all| all.insert(key, line.clone()));
    Ok(line)
}

/// CAM wants a CCB no longer; false: it is not on this core.
pub(super) fn abort(inner: &Inner, unit: &Unit, id: CcbId, core: &Core) -> bool {
    let line = DEVICES.with_borrow(|all| all.get(&key_of(inner, unit, core)).cloned());
    line.is_some_and(|line| line.abandon(unit, id))
}

/// S5: ends the line to a removed device on this core. `leaving`: the cores that have not ended
/// theirs.
pub(super) fn retire(inner: &Arc<Inner>, target: u64, leaving: &Arc<AtomicUsize>, core: &Rc<Core>) {
    let (inner, leaving, core) = (inner.clone(), leaving.clone(), core.clone());
    drop(core.clone().reactor().spawn("sg retirement", async move {
        let key = (inner.number, core.id(), target);
        let line = || DEVICES.with_borrow(|all| all.get(&key).cloned());
        let is_removed = || !inner.machine.named().contains(&target);
        while is_removed() && line().is_some_and(|line| !line.pending.borrow().is_empty()) {
            core.reactor().sleep(super::LOOK_NS).await;
        }
        if is_removed() {
            let line = DEVICES.with_borrow_mut(|all| all.remove(&key));
            line.into_iter().for_each(|line| line.stop());
        }
        if leaving.fetch_sub(1, Ordering::AcqRel) == 1 {
            inner.end_retirement(target);
        }
    }));
}

/// Ends the lines of a bus on this core. Closing a node does not block.
pub(super) fn close(bus: u64, core: &Rc<Core>) {
    let mine = |key: &Key| key.0 == bus && key.1 == core.id();
    let gone: Vec<Rc<CoreDevice>> = DEVICES
        .with_borrow_mut(|all| all.extract_if(|key, _| mine(key)).map(|(_, line)| line).collect());
    for line in gone {
        line.stop();
        line.fail_all(core);
    }
}

async fn receive_loop(line: Rc<CoreDevice>) {
    loop {
        let readiness = line.node.ready().await;
        let Some(core) = line.core.upgrade() else { return };
        let fate = readiness.and_then(|()| line.receive_answers(&core));
        if fate.is_err() {
            return line.fail_all(&core);
        }
    }
}

impl CoreDevice {
    pub(super) fn begin(
        &self,
        inner: &Inner,
        unit: &Unit,
        id: CcbId,
        ccb: &Ccb,
        data: &Segs,
    ) -> Begun {
        let refuse = |status| Begun::Ended(Outcome::of(status));
        let Some(core) = self.core.upgrade() else { return refuse(CamStatus::NoHba) };
        let length = ccb.length as usize;
        let direction = match (ccb.flags.has(Flags::IN), ccb.flags.has(Flags::OUT)) {
            _ if length == 0 => None,
            (true, _) => Some(Direction::In),
            (false, true) => Some(Direction::Out),
            (false, false) => None,
        };
        let clones = |limit: usize| {
            let mut list: Segs = data.iter().cloned().collect();
            list.truncate(limit);
            list
        };
        let (moved, wanted) = match direction {
            // S3
            Some(Direction::In) => match Segs::alloc(core.pool(), length) {
                Some(own) => (own, clones(length)),
                None => return refuse(CamStatus::NoResources),
            },
            Some(Direction::Out) => (clones(length), Segs::new()),
            None => (Segs::new(), Segs::new()),
        };
        let tag = self.next.get();
        self.next.set(tag.wrapping_add(1));
        let (cdb, timeout_ms) = (ccb.command.cdb(), ccb.timeout_ms);
        let request = ScsiRequest { tag, cdb, direction, timeout_ms };
        if let Err((error, _)) = self.node.send(&request, moved) {
            return refuse(outcome::refused(&error));
        }
        let unit = inner.handle(unit);
        let flight = PendingCcb { unit, id, data: wanted, aborted: false };
        self.pending.borrow_mut().insert(tag, flight);
        Begun::Pending
    }

    /// Takes the answers of commands that have ended. After an error no more answers arrive.
    fn receive_answers(&self, core: &Rc<Core>) -> io::Result<()> {
        while let Some(answer) = self.node.receive()? {
            let flight = self.pending.borrow_mut().remove(&answer.tag);
            if let Some(flight) = flight {
                complete(flight, &answer, core);
            }
        }
        Ok(())
    }

    fn abandon(&self, unit: &Unit, id: CcbId) -> bool {
        let mut flights = self.pending.borrow_mut();
        let mine = |f: &&mut PendingCcb| f.id == id && std::ptr::eq(f.unit.as_ptr(), unit);
        let Some(flight) = flights.values_mut().find(mine) else { return false };
        flight.aborted = true;
        flight.data.clear();
        true
    }

    /// No more answers are received.
    fn stop(&self) {
        self.task.take().iter().for_each(TaskHandle::abort);
    }

    fn fail_all(&self, core: &Rc<Core>) {
        self.is_lost.set(true);
        for flight in self.pending.take().into_values() {
            if let Some(unit) = flight.unit.upgrade() {
                unit.done(flight.id, Outcome::of(CamStatus::NexusLost), core);
            }
        }
    }
}

fn complete(flight: PendingCcb, answer: &ScsiAnswer, core: &Rc<Core>) {
    let mut outcome = outcome::of(answer);
    if flight.aborted && !answer.data.is_empty() && outcome.status == CamStatus::Complete {
        outcome = Outcome::of(CamStatus::Aborted);
    }
    let mut at = 0;
    for seg in answer.data.iter().filter(|_| !flight.data.is_empty()) {
        let more = outcome.moved as usize - at;
        at += seg.with(|from| flight.data.copy_from(at, from.get(..more).unwrap_or(from)));
    }
    if let Some(unit) = flight.unit.upgrade() {
        unit.done(flight.id, outcome, core);
    }
}
