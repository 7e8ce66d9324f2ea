//! A device on one core: its node, and the CCBs that the kernel has.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::io;
use std::rc::Rc;
use std::sync::Weak;

use bio::{Direction, Segs};
use geom::Core;
use reactor::{ScsiAnswer, ScsiRequest, TaskHandle};

use super::machine::Node;
use super::{Inner, outcome};
use crate::ccb::{CamStatus, Ccb, CcbId, Flags, Outcome};
use crate::sim::Begun;
use crate::unit::Unit;

/// A CCB that the kernel has.
struct Flight {
    unit: Weak<Unit>,
    id: CcbId,
    /// The memory for data that are read (S3).
    data: Segs,
    /// CAM wants it no longer.
    aborted: bool,
}

/// See the module.
pub(super) struct Line {
    core: std::rc::Weak<Core>,
    node: Rc<dyn Node>,
    /// Of the device, which the node may outlive.
    generation: u64,
    flights: RefCell<HashMap<u64, Flight>>,
    next: Cell<u64>,
    /// The device has gone.
    dead: Cell<bool>,
    task: RefCell<Option<TaskHandle>>,
}

/// Bus, core, target.
type Key = (u64, u32, u64);

thread_local! {
    /// The lines of this thread.
    static LINES: RefCell<HashMap<Key, Rc<Line>>> = RefCell::default();
}

fn key_of(inner: &Inner, unit: &Unit, core: &Core) -> Key {
    (inner.number, core.id(), unit.path().target)
}

/// The line to a unit's device; one that is not there yet, or not to the device that is there now,
/// begins.
pub(super) fn find(inner: &Inner, unit: &Unit, core: &Core) -> Result<Rc<Line>, CamStatus> {
    let key = key_of(inner, unit, core);
    let found = inner.machine.look(key.2).map_err(|_| CamStatus::SelectionTimeout)?;
    let line = LINES.with_borrow(|all| all.get(&key).cloned());
    if let Some(line) = line.filter(|l| !l.dead.get() && l.generation == found.generation) {
        return Ok(line);
    }
    let core = core.handle().ok_or(CamStatus::NoHba)?;
    let node = inner.machine.open(key.2, &core).map_err(|_| CamStatus::SelectionTimeout)?;
    let line = Rc::new(Line {
        core: Rc::downgrade(&core),
        node,
        generation: found.generation,
        flights: RefCell::default(),
        next: Cell::default(),
        dead: Cell::default(),
        task: RefCell::default(),
    });
    let task = core.reactor().spawn("sg", listen(line.clone()));
    *line.task.borrow_mut() = Some(task);
    LINES.with_borrow_mut(|all| all.insert(key, line.clone()));
    Ok(line)
}

/// CAM wants a CCB no longer; false: it is not on this core.
pub(super) fn abort(inner: &Inner, unit: &Unit, id: CcbId, core: &Core) -> bool {
    let line = LINES.with_borrow(|all| all.get(&key_of(inner, unit, core)).cloned());
    line.is_some_and(|line| line.give_up(unit, id))
}

/// Ends the lines of a bus on this core. Closing a node does not block.
pub(super) fn close(bus: u64, core: &Rc<Core>) {
    let mine = |key: &Key| key.0 == bus && key.1 == core.id();
    let gone: Vec<Rc<Line>> = LINES
        .with_borrow_mut(|all| all.extract_if(|key, _| mine(key)).map(|(_, line)| line).collect());
    for line in gone {
        line.task.take().iter().for_each(TaskHandle::abort);
        line.die(core);
    }
}

async fn listen(line: Rc<Line>) {
    loop {
        let heard = line.node.ready().await;
        let Some(core) = line.core.upgrade() else { return };
        let fate = heard.and_then(|()| line.hear(&core));
        if fate.is_err() {
            return line.die(&core);
        }
    }
}

impl Line {
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
        let flight = Flight { unit, id, data: wanted, aborted: false };
        self.flights.borrow_mut().insert(tag, flight);
        Begun::Pending
    }

    /// Takes the answers of commands that have ended. After an error no more answers arrive.
    fn hear(&self, core: &Rc<Core>) -> io::Result<()> {
        while let Some(answer) = self.node.receive()? {
            let flight = self.flights.borrow_mut().remove(&answer.tag);
            if let Some(flight) = flight {
                land(flight, &answer, core);
            }
        }
        Ok(())
    }

    fn give_up(&self, unit: &Unit, id: CcbId) -> bool {
        let mut flights = self.flights.borrow_mut();
        let mine = |f: &&mut Flight| f.id == id && std::ptr::eq(f.unit.as_ptr(), unit);
        let Some(flight) = flights.values_mut().find(mine) else { return false };
        flight.aborted = true;
        flight.data.clear();
        true
    }

    fn die(&self, core: &Rc<Core>) {
        self.dead.set(true);
        for flight in self.flights.take().into_values() {
            if let Some(unit) = flight.unit.upgrade() {
                unit.done(flight.id, Outcome::of(CamStatus::NexusLost), core);
            }
        }
    }
}

fn land(flight: Flight, answer: &ScsiAnswer, core: &Rc<Core>) {
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
