//! The nexus on one core: CCBs become commands of a session, and their answers return.
//!
//! The session holds it, and is held by the engine: it is dropped when the session has ended.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::{Rc, Weak as RcWeak};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};

use bio::Segs;
use cam::{Begun, CamStatus, Ccb, CcbId, Command as Cam, Flags, Outcome, SenseData, Tag, Unit};
use engine::{
    CloseReason, Command, ItNexus, Login, Next, Refused, Residual, Response, TaskAttribute,
    TmFunction, TmOutcome, Transport,
};
use geom::Core;
use transport::Cores;
use wire::scsi::{Lun, Sense, Status, asc};

use super::inflight::{InflightCcbs, Transfer};
use super::sim::BusState;
use crate::local::local_address;

thread_local! {
    static NEXUSES: Cores<BusNexus> = const { Cores::new() };
}

pub(super) fn find(bus: usize, core: &Core) -> Option<Rc<BusNexus>> {
    NEXUSES.with(|all| all.find(bus, core.id()))
}

/// See the module.
pub(super) struct BusNexus {
    bus: Arc<BusState>,
    core: Rc<Core>,
    session: RefCell<RcWeak<ItNexus>>,
    inflight: RefCell<InflightCcbs>,
    /// Handles of units by LUN.
    units: RefCell<BTreeMap<u64, Weak<Unit>>>,
    /// RESET_DEV CCBs by the tags of their functions.
    resets: RefCell<BTreeMap<u32, (Weak<Unit>, CcbId)>>,
    last_tm: Cell<u32>,
    /// Our side has ended it: aborted commands have lost their nexus.
    leaving: Cell<bool>,
}

impl BusNexus {
    /// The nexus of a bus on this core; logs in when it has none.
    ///
    /// # Errors
    /// The target does not answer, or an ending session is not at its end yet.
    pub fn get_or_login(bus: &Arc<BusState>, core: &Core) -> Result<Rc<BusNexus>, CamStatus> {
        if let Some(nexus) = find(bus.number, core) {
            return match nexus.session().is_some_and(|s| !s.is_closing()) {
                true => Ok(nexus),
                false => Err(CamStatus::Busy),
            };
        }
        if bus.closed.load(Ordering::Acquire) {
            return Err(CamStatus::NotThere);
        }
        let engine = super::engine(&bus.registry, core).ok_or(CamStatus::NoHba)?;
        let target = bus.registry.target(&bus.nexus_id.driver, &bus.nexus_id.target);
        let target = target.ok_or(CamStatus::SelectionTimeout)?;
        let nexus = Rc::new(BusNexus {
            bus: bus.clone(),
            core: engine.core().clone(),
            session: RefCell::default(),
            inflight: RefCell::default(),
            units: RefCell::default(),
            resets: RefCell::default(),
            last_tm: Cell::default(),
            leaving: Cell::default(),
        });
        // One that sees nothing is no intruder: it is not noted as a refused login.
        if !target.decide(&bus.nexus_id.initiator, &local_address()).grants() {
            return Err(CamStatus::SelectionTimeout);
        }
        let login = Login {
            target,
            initiator: bus.nexus_id.initiator.clone(),
            port_id: Vec::new(),
            transport_id: bus.id.bytes().to_vec(),
            portal: local_address(),
            from: local_address(),
            reinstates: false,
            labels: vec![("bus", bus.name.clone())],
        };
        let session =
            engine.login(login, nexus.clone()).map_err(|_: Refused| CamStatus::SelectionTimeout)?;
        *nexus.session.borrow_mut() = Rc::downgrade(&session);
        NEXUSES.with(|all| all.add(bus.number, core.id(), &nexus));
        Ok(nexus)
    }

    fn session(&self) -> Option<Rc<ItNexus>> {
        self.session.borrow().upgrade()
    }

    fn handle(&self, unit: &Unit) -> Weak<Unit> {
        let mut units = self.units.borrow_mut();
        let known = units.get(&unit.path().lun).filter(|u| std::ptr::eq(u.as_ptr(), unit));
        if let Some(known) = known {
            return known.clone();
        }
        let handle = self.bus.handle(unit);
        units.insert(unit.path().lun, handle.clone());
        handle
    }

    pub fn begin(&self, unit: &Unit, id: CcbId, ccb: &Ccb, data: &Segs) -> Begun {
        let (tag, cdb) = match &ccb.command {
            Cam::Scsi { tag, .. } => (*tag, ccb.command.cdb()),
            _ => return self.reset(unit, Some(id)),
        };
        let (Some(session), Some(lun)) = (self.session(), lun_of(unit)) else {
            return Begun::Ended(Outcome::of(CamStatus::LunInvalid));
        };
        let attribute = match tag {
            Tag::Ordered => TaskAttribute::Ordered,
            Tag::None | Tag::Simple => TaskAttribute::Simple,
        };
        let side = |flag| if ccb.flags.has(flag) { ccb.length } else { 0 };
        let (expect_in, expect_out) = (side(Flags::IN), side(Flags::OUT));
        let wants = Transfer { length: ccb.length, reads: expect_in > 0 };
        let handle = self.handle(unit);
        let tag = self.inflight.borrow_mut().insert(handle, id, wants, data);
        let next = session.command(&Command { tag, lun, cdb, attribute, expect_in, expect_out });
        if let Next::Data { wanted } = next {
            // L3
            let taken = self.inflight.borrow_mut().data(tag);
            let mut list = taken.map(|(_, list)| list).unwrap_or_default();
            data.iter().for_each(|seg| list.push(seg.clone()));
            list.truncate(usize::try_from(wanted).unwrap_or(usize::MAX));
            session.data(tag, &mut list);
            self.inflight.borrow_mut().return_list(tag, list);
        }
        let ended = self.inflight.borrow_mut().submitted(tag);
        let Some(outcome) = ended else { return Begun::Pending };
        note_power_kept(unit, &outcome);
        Begun::Ended(outcome)
    }

    /// The command of a tag has ended.
    fn end(&self, tag: u32, outcome: Outcome) {
        let landing = self.inflight.borrow_mut().complete(tag, outcome);
        let Some(landing) = landing else { return };
        if let Some(unit) = landing.unit.upgrade() {
            note_power_kept(&unit, &outcome);
            unit.done(landing.id, outcome, &self.core);
        }
    }

    /// ABORT TASK; false when the CCB is not here.
    pub fn abort(&self, unit: &Unit, id: CcbId) -> bool {
        let tag = self.inflight.borrow_mut().abort(unit, id);
        let (Some(tag), Some(session), Some(lun)) = (tag, self.session(), lun_of(unit)) else {
            return false;
        };
        session.task_management(self.next_tm(), TmFunction::AbortTask, lun, Some(tag));
        true
    }

    /// LOGICAL UNIT RESET, for a CCB or for none.
    pub fn reset(&self, unit: &Unit, ccb: Option<CcbId>) -> Begun {
        let (Some(session), Some(lun)) = (self.session(), lun_of(unit)) else {
            return Begun::Ended(Outcome::of(CamStatus::LunInvalid));
        };
        let tag = self.next_tm();
        if let Some(id) = ccb {
            self.resets.borrow_mut().insert(tag, (self.handle(unit), id));
        }
        session.task_management(tag, TmFunction::LunReset, lun, None);
        Begun::Pending
    }

    fn next_tm(&self) -> u32 {
        self.last_tm.set(self.last_tm.get().wrapping_add(1));
        self.last_tm.get()
    }

    /// The bus was closed, or the target ended the session.
    pub fn log_out(&self) {
        self.leaving.set(true);
        if let Some(session) = self.session() {
            session.close();
        }
    }
}

/// The engine reports POWER ON, RESET to a new session and to others when one resets a unit (L5).
fn note_power_kept(unit: &Unit, outcome: &Outcome) {
    if outcome.sense.bytes().is_empty() {
        return;
    }
    if Sense::decode(outcome.sense.bytes()).is_ok_and(|s| s.code == asc::POWER_ON_OR_RESET) {
        unit.kept_power();
    }
}

/// The LUN of a unit as the engine reads it.
fn lun_of(unit: &Unit) -> Option<[u8; 8]> {
    let number = u32::try_from(unit.path().lun).ok()?;
    Lun::new(number).map(Lun::encode)
}

/// Copies read data to its destination; answers the bytes.
fn copy_read_data(from: &Segs, to: &Segs) -> usize {
    let mut at = 0;
    for seg in from.iter() {
        at += seg.with(|bytes| to.copy_from(at, bytes));
    }
    at
}

impl Transport for BusNexus {
    fn respond(&self, tag: u32, response: Response<'_>) {
        let taken = self.inflight.borrow_mut().data(tag);
        let Some((wants, list)) = taken else { return };
        let moved = match (wants.reads, response.residual) {
            (true, _) => u32::try_from(copy_read_data(response.data, &list)).unwrap_or(u32::MAX),
            (false, Residual::Under(less)) => wants.length.saturating_sub(less),
            (false, _) => wants.length,
        };
        self.inflight.borrow_mut().return_list(tag, list);
        let outcome = match response.status {
            status if status == Status::Good.code() => Outcome::good(moved),
            status => Outcome {
                scsi_status: status,
                sense: SenseData::new(response.sense),
                moved,
                ..Outcome::of(CamStatus::ScsiError)
            },
        };
        self.end(tag, outcome);
    }

    fn discard(&self, tag: u32) {
        let landing = self.inflight.borrow_mut().complete(tag, Outcome::of(CamStatus::ResetSent));
        let Some(landing) = landing else { return };
        // A command that other initiators aborted (a reset, PREEMPT AND ABORT) has no error of its
        // own.
        let status = match (landing.aborted, self.leaving.get()) {
            (true, _) => CamStatus::Aborted,
            (false, true) => CamStatus::NexusLost,
            (false, false) => CamStatus::ResetSent,
        };
        if let Some(unit) = landing.unit.upgrade() {
            unit.done(landing.id, Outcome::of(status), &self.core);
        }
    }

    fn task_management_done(&self, tag: u32, outcome: TmOutcome) {
        let waits = self.resets.borrow_mut().remove(&tag);
        let Some((unit, id)) = waits else { return };
        let outcome = match outcome {
            TmOutcome::NoLun => Outcome::of(CamStatus::LunInvalid),
            _ => Outcome::good(0),
        };
        if let Some(unit) = unit.upgrade() {
            unit.done(id, outcome, &self.core);
        }
    }

    fn close(&self, _: CloseReason) {
        self.log_out();
    }

    fn ended(&self) {
        let waiting = self.resets.take();
        for (unit, id) in waiting.into_values() {
            if let Some(unit) = unit.upgrade() {
                unit.done(id, Outcome::of(CamStatus::NexusLost), &self.core);
            }
        }
    }
}
