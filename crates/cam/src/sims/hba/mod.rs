//! Virtual HBA: SAS and SATA disks in memory, with the correct and the faulty behaviour of disks.
//!
//! All faults of devices can be produced here, by chance from a seed or by hand:
//! * QUEUE FULL and BUSY, errors with and without effect, commands that hang, duplicate answers;
//! * resets, and power cuts that tear writes under way and lose data that were not flushed;
//! * disks that stop, are pulled out and plugged in.
//!
//! Invariants
//!  V1  A command is carried out at the moment it ends, or not at all. A write under way at a power
//!      cut may have arrived in any of its sectors.
//!  V2  No action of a target waits for another target: each has a lock of its own.

mod ata;
mod enclosure;
mod kind;
mod multiplier;
mod ncq;
mod scsi;
mod target;

use std::rc::Rc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use bio::sync::Mutex;
use bio::{Errno, Segs};
use geom::Core;
use reactor::model::{DiskModel, DiskShape, Fault, Timing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::bus::Rescan;
use crate::ccb::{CamStatus, Ccb, CcbId, Command, Outcome};
use crate::reset::UnitReset;
use crate::sim::{Begun, Signature, Sim, SimFacts};
use crate::unit::Unit;
pub use enclosure::Role;
pub use kind::HbaKind;
use multiplier::{Link, Multiplier};
use target::Target;

/// How much later than it should a reset of the controller may end, ns.
const RESET_MARGIN_NS: u64 = 10_000_000_000;

/// Rates of injected faults, in percent of commands; all zero in a healthy disk.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct Faults {
    /// Commands that fail with an error and are not executed.
    #[schemars(range(max = 100))]
    pub fails: u8,
    /// Commands that return an error although they are executed.
    #[schemars(range(max = 100))]
    pub lies: u8,
    /// Commands that are not answered until they are aborted.
    #[schemars(range(max = 100))]
    pub hangs: u8,
    /// Commands that are answered twice.
    #[schemars(range(max = 100))]
    pub echoes: u8,
    /// Commands that end with QUEUE FULL although the queue has space.
    #[schemars(range(max = 100))]
    pub full: u8,
    /// Aborts that are ignored.
    #[schemars(range(max = 100))]
    pub deaf: u8,
    /// SATA: failing reads of the log that identifies a failed queued command.
    #[schemars(range(max = 100))]
    pub mute: u8,
    /// Port multiplier: resets after which the link stays down.
    #[schemars(range(max = 100))]
    pub dark: u8,
    /// Port multiplier: changes at its ports that are not reported.
    #[schemars(range(max = 100))]
    pub quiet: u8,
}

/// How a SAS disk takes blocks back.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Deletes {
    /// UNMAP.
    #[default]
    Unmap,
    /// WRITE SAME(16) with UNMAP.
    Same16,
    /// WRITE SAME(10) with UNMAP.
    Same10,
}

/// A disk to be plugged in.
#[derive(Clone, Debug)]
pub struct DiskSpec {
    /// T10 vendor identification; of no meaning to a SATA disk.
    pub vendor: String,
    /// Product or model.
    pub model: String,
    /// Revision or firmware.
    pub revision: String,
    /// Serial number.
    pub serial: String,
    /// NAA name.
    pub wwn: u64,
    /// Its medium.
    pub shape: DiskShape,
    /// Commands that it takes at a time; 1: it has no queue, and knows no tags and no NCQ.
    pub depth: u8,
    /// SATA: addresses of 48 bits.
    pub extended: bool,
    /// Its device type.
    pub role: Role,
    /// SAS: blocks that were bad from the factory on, and that failed later.
    pub defects: (Vec<u64>, Vec<u64>),
    /// SAS: how it takes blocks back, where its medium can at all.
    pub deletes: Deletes,
    /// Ranges that one command may name which takes blocks back; SATA: in whole blocks of 64.
    pub ranges: u16,
    /// SAS: blocks that are taken back together, and the first that begins such a group.
    pub granule: (u32, u32),
    /// 1 does not turn, else turns a minute.
    pub rotation: u16,
}

impl Default for DiskSpec {
    fn default() -> DiskSpec {
        DiskSpec {
            vendor: "ASHLAR".into(),
            model: "virtual disk".into(),
            revision: "1".into(),
            serial: "V0".into(),
            wwn: 0x5000_c500_0000_0001,
            shape: DiskShape {
                timing: Timing::Between { min_ns: 0, max_ns: 0 },
                ..DiskShape::default()
            },
            depth: 32,
            extended: true,
            deletes: Deletes::Unmap,
            ranges: 64,
            granule: (1, 0),
            defects: (Vec::new(), Vec::new()),
            role: Role::Disk,
            rotation: 1,
        }
    }
}

/// The languages that a bus may speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Transport {
    /// SAS: SCSI commands.
    Sas,
    /// SATA: ATA commands.
    Sata,
}

/// See the module.
pub struct VirtualHba {
    facts: SimFacts,
    rescan: Mutex<Option<Rescan>>,
    multiplier: Multiplier,
    bays: Vec<Bay>,
    /// Resets of the controller that are under way, and commands that were sent into one.
    resets: AtomicU64,
    commands_during_reset: AtomicU64,
}

struct Bay {
    /// Bays that the enclosure in this one sees; 0: none is in it.
    enclosed_bays: AtomicU8,
    /// Of the port multiplier's port that leads here.
    link: Link,
    target: Mutex<Option<Target>>,
    unit: OnceLock<Mutex<Weak<Unit>>>,
}

impl VirtualHba {
    /// An HBA called `name` with so many empty bays.
    pub fn new(name: &str, transport: Transport, bays: usize) -> Arc<VirtualHba> {
        let bay = || Bay {
            enclosed_bays: AtomicU8::new(0),
            link: Link::default(),
            target: Mutex::new(None),
            unit: OnceLock::new(),
        };
        Arc::new(VirtualHba {
            facts: SimFacts {
                name: name.into(),
                targets: bays as u64,
                io_max_bytes: 1 << 20,
                whole_max_bytes: 1 << 20,
                is_ata: transport == Transport::Sata,
            },
            rescan: Mutex::default(),
            multiplier: Multiplier::default(),
            bays: (0..bays).map(|_| bay()).collect(),
            resets: AtomicU64::new(0),
            commands_during_reset: AtomicU64::new(0),
        })
    }

    /// Puts a disk into a bay; one that was in it is lost with all its contents.
    pub fn plug(&self, bay: u64, spec: DiskSpec, seed: u64) -> Result<(), Errno> {
        let disk = DiskModel::new(spec.shape.clone(), seed)?;
        let place = self.bays.get(bay as usize).ok_or(Errno::NoEnt)?;
        let sees = if let Role::Enclosure(slots) = spec.role { slots } else { 0 };
        place.enclosed_bays.store(sees, Ordering::Release);
        if let Role::Multiplier(ports) = spec.role {
            self.set_multiplier(bay, ports);
        }
        *place.target.lock() = Some(Target::new(spec, disk, seed, self.facts.is_ata));
        Ok(())
    }

    /// Hot plug: the link of a bay changes, and the bus is notified; behind a port
    /// multiplier by its notification.
    pub fn link_changed(&self, bay: u64) {
        let (scan_target, is_notified) = self.port_changed(bay).unwrap_or((bay, true));
        if let Some(rescan) = self.rescan.lock().as_ref().filter(|_| is_notified) {
            rescan.request_target_scan(scan_target);
        }
    }

    /// SAS address and enclosed bays of the enclosure that a bay belongs to, or is in.
    fn expander(&self) -> Option<(u64, enclosure::EnclosedDisks)> {
        let sees = |bay: &&Bay| bay.enclosed_bays.load(Ordering::Acquire) > 0;
        let bay = self.bays.iter().find(sees).filter(|_| !self.facts.is_ata)?;
        let own = bay.target.lock().as_ref().map(|t| t.spec.wwn)?;
        Some((own, self.enclosed_disks(bay.enclosed_bays.load(Ordering::Acquire))))
    }

    /// The disks in the first bays, by their SAS addresses. One bay after the other: V2.
    fn enclosed_disks(&self, slots: u8) -> enclosure::EnclosedDisks {
        let disk = |bay| {
            let disk_wwn =
                |t: &mut Target| (t.present && t.spec.role == Role::Disk).then_some(t.spec.wwn);
            self.at(bay, disk_wwn).flatten()
        };
        (0..u64::from(slots)).map(disk).collect()
    }

    /// Does something to the disk in a bay; `None` when it is empty.
    fn at<R>(&self, bay: u64, f: impl FnOnce(&mut Target) -> R) -> Option<R> {
        self.bays.get(bay as usize)?.target.lock().as_mut().map(f)
    }

    /// How often errors occur; `None` when the bay is empty.
    pub fn faults(&self, bay: u64) -> Option<Faults> {
        self.at(bay, |t| t.faults)
    }

    /// From now on errors occur so often.
    pub fn set_faults(&self, bay: u64, faults: Faults) {
        self.at(bay, |t| t.faults = faults);
    }

    /// Pulls a disk out, or pushes it in again: it does not answer meanwhile.
    pub fn set_present(&self, bay: u64, present: bool) {
        self.at(bay, |t| t.present = present);
        self.presence_changed(bay, present);
    }

    /// Stops the motor: it must be started again.
    pub fn stop(&self, bay: u64) {
        self.at(bay, Target::stop);
    }

    /// Makes a disk's medium so many bytes large; a SAS disk reports that.
    pub fn resize(&self, bay: u64, bytes: u64) {
        self.at(bay, |t| t.resize(bytes));
    }

    /// Puts another disc of so many bytes, all zero, into a drive, or takes it out.
    pub fn change_medium(&self, bay: u64, bytes: Option<u64>) {
        self.at(bay, |t| t.change_medium(bytes));
    }

    /// Cuts a disk's power and gives it back (V1).
    pub fn power_cut(&self, bay: u64) {
        self.at(bay, Target::power_cut);
        if self.port(bay).is_some() {
            return self.link_changed(bay);
        }
        let unit = self.bays.get(bay as usize).and_then(Bay::unit);
        if let Some(unit) = unit.filter(|_| self.facts.is_ata) {
            // The link was down and up again: SATA has no other report of it.
            unit.lost_power();
        }
    }

    /// Reads a disk's medium without a command: for tests.
    pub fn read_medium(&self, bay: u64, offset: u64, out: &mut [u8]) -> Option<usize> {
        self.at(bay, |t| t.disk.read(offset, out).ok()).flatten()
    }

    /// Bytes of a block of a disk, and of its medium.
    pub fn medium(&self, bay: u64) -> Option<(u64, u64)> {
        self.at(bay, |t| (u64::from(t.spec.shape.sector).max(1), t.disk.size()))
    }

    /// Gives a disk's medium a bad place; `None` when the bay is empty or the fault makes no sense.
    pub fn inject_medium_fault(&self, bay: u64, fault: Fault) -> Option<()> {
        self.at(bay, |t| t.disk.fail(fault).ok()).flatten()
    }

    /// From now on a device answers a command, by its first byte, with these bytes, valid or not.
    /// With `page`, only the command whose third byte (SCSI) or FEATURES (ATA) it is.
    pub fn forge(&self, bay: u64, command: u8, page: Option<u8>, bytes: &[u8]) {
        self.at(bay, |t| t.forged.push((command, page, bytes.to_vec())));
    }

    /// How many bad places and forged answers there are.
    pub fn injected_faults(&self, bay: u64) -> (usize, usize) {
        self.at(bay, |t| (t.disk.faults(), t.forged.len())).unwrap_or_default()
    }

    /// Bad places are good again, and commands are answered by the device itself.
    pub fn clear_injected_faults(&self, bay: u64) {
        self.at(bay, |t| {
            t.disk.clear_faults();
            t.forged.clear();
        });
    }

    /// Resets the controller, which takes so long: the commands of its targets return at once, and
    /// all commands that are sent meanwhile fail.
    pub fn reset_bus(self: &Arc<VirtualHba>, takes_ns: u64, core: &Rc<Core>) {
        self.resets.fetch_add(1, Ordering::AcqRel);
        let units: Vec<Arc<Unit>> = self.bays.iter().filter_map(Bay::unit).collect();
        // Of all, before the first victim is back: it may be sent again from another core.
        let resets: Vec<UnitReset> = units
            .iter()
            .map(|unit| UnitReset::begin(unit, takes_ns + RESET_MARGIN_NS, core))
            .collect();
        for unit in &units {
            self.abort_for_reset(unit, CamStatus::BusReset, core);
        }
        let (hba, reactor) = (self.clone(), core.reactor().clone());
        drop(core.reactor().spawn("hba reset", async move {
            reactor.sleep(takes_ns).await;
            hba.resets.fetch_sub(1, Ordering::AcqRel);
            drop(resets);
        }));
    }

    /// Ends the commands of a unit as victims of a reset.
    fn abort_for_reset(&self, unit: &Unit, by: CamStatus, core: &Core) {
        let victims = self.at(unit.path().target, Target::reset).unwrap_or_default();
        for id in victims {
            unit.done(id, Outcome::of(by), core);
        }
    }

    /// Commands that were sent to targets while the controller was reset.
    pub fn commands_during_reset(&self) -> u64 {
        self.commands_during_reset.load(Ordering::Acquire)
    }

    /// Commands that reached a disk which could not have them beside others.
    pub fn overlaps(&self, bay: u64) -> u64 {
        self.at(bay, |t| t.overlaps).unwrap_or(0)
    }

    /// Times that a SATA disk stopped its queue for an error.
    pub fn halts(&self, bay: u64) -> u64 {
        self.at(bay, |t| t.halts).unwrap_or(0)
    }

    /// CCBs that a disk has.
    pub fn under_way(&self, bay: u64) -> usize {
        self.at(bay, |t| t.under_way()).unwrap_or(0)
    }
}

impl Bay {
    fn unit(&self) -> Option<Arc<Unit>> {
        self.unit.get()?.lock().upgrade()
    }
}

/// Ends the commands that a disk dropped when its queue stopped.
fn end(unit: &Unit, victims: Vec<(CcbId, Outcome)>, core: &Core) {
    for (id, outcome) in victims {
        unit.done(id, outcome, core);
    }
}

impl Sim for VirtualHba {
    fn facts(&self) -> SimFacts {
        self.facts.clone()
    }

    /// SAS of 6 Gb/s, SATA of 3 Gb/s.
    fn transfer_kb(&self) -> u32 {
        if self.facts.is_ata { 300_000 } else { 600_000 }
    }

    fn hba(&self) -> Option<&VirtualHba> {
        Some(self)
    }

    fn begin(&self, rescan: Rescan) {
        *self.rescan.lock() = Some(rescan);
    }

    fn signature(&self, target: u64) -> Signature {
        let role = self.at(target, |t| t.spec.role).unwrap_or_default();
        match (self.facts.is_ata, role) {
            (false, _) => Signature::Scsi,
            (true, Role::Disk | Role::Cdrom) => Signature::Ata,
            (true, Role::Enclosure(_)) => Signature::Bridge,
            (true, Role::Multiplier(_)) => Signature::Multiplier,
        }
    }

    fn address(&self, target: u64) -> Option<u64> {
        self.at(target, |t| t.spec.wwn).filter(|_| !self.facts.is_ata)
    }

    fn attach(&self, unit: &Arc<Unit>) {
        let Some(bay) = self.bays.get(unit.path().target as usize) else { return };
        *bay.unit.get_or_init(Mutex::default).lock() = Arc::downgrade(unit);
    }

    fn action(&self, unit: &Unit, id: CcbId, ccb: &Ccb, data: &Segs, core: &Core) -> Begun {
        if ccb.command == Command::Reset {
            self.reset(unit, core);
            return Begun::Ended(Outcome::good(0));
        }
        if self.resets.load(Ordering::Acquire) > 0 {
            self.commands_during_reset.fetch_add(1, Ordering::AcqRel);
            return Begun::Ended(Outcome::of(CamStatus::HbaError));
        }
        if unit.path().lun != 0 {
            return Begun::Ended(Outcome::of(CamStatus::LunInvalid));
        }
        if let Command::Smp { function, phy } = ccb.command {
            let Some((own, seen)) = self.expander() else {
                return Begun::Ended(Outcome::of(CamStatus::CannotProvide));
            };
            let response = enclosure::smp(own, &seen, function, phy);
            let response = self
                .at(unit.path().target, |t| t.forged_smp(function))
                .flatten()
                .unwrap_or(response);
            let moved = data.copy_from(0, &response) as u32;
            let refused = response.get(2).is_none_or(|result| *result != 0);
            let status = if refused { CamStatus::SmpError } else { CamStatus::Complete };
            return Begun::Ended(Outcome { moved, ..Outcome::of(status) });
        }
        let reached = self.is_reached(unit.path().target);
        let register = match ccb.command {
            Command::Ata(registers) if self.is_multiplier(unit.path().target) => {
                let (value, reset) = self.registers(&registers);
                if let Some(victim) = reset.and_then(|bay| self.bays.get(bay as usize)?.unit()) {
                    self.reset(&victim, core);
                }
                value
            }
            _ => None,
        };
        let place = self.bays.get(unit.path().target as usize);
        let sees = place.map_or(0, |bay| bay.enclosed_bays.load(Ordering::Acquire));
        let seen = if sees > 0 { self.enclosed_disks(sees) } else { Vec::new() };
        let begin = |t: &mut Target| {
            if sees > 0 {
                t.enclosed_disks = seen;
            }
            (t.register, t.reachable) = (register, reached);
            (t.begin(id, ccb, data, core.now()), t.take_victims())
        };
        let Some((begun, victims)) = self.at(unit.path().target, begin) else {
            return Begun::Ended(Outcome::of(CamStatus::SelectionTimeout));
        };
        end(unit, victims, core);
        begun
    }

    fn finish(&self, unit: &Unit, id: CcbId, data: &Segs, core: &Core) -> Begun {
        let (now, gone) = (core.now(), Outcome::of(CamStatus::SelectionTimeout));
        let reached = self.is_reached(unit.path().target);
        let finish = |t: &mut Target| {
            t.reachable = reached;
            (t.finish(id, data, now), t.take_victims())
        };
        let Some(((begun, echo), victims)) = self.at(unit.path().target, finish) else {
            return Begun::Ended(gone);
        };
        end(unit, victims, core);
        if let (Begun::Ended(outcome), true) = (begun, echo) {
            // Once here, and once as an answer.
            unit.done(id, outcome, core);
        }
        begun
    }

    fn abort(&self, unit: &Unit, id: CcbId, core: &Core) {
        let is_aborted = self.at(unit.path().target, |t| t.abort(id)).unwrap_or(true);
        if is_aborted {
            unit.done(id, Outcome::of(CamStatus::Aborted), core);
        }
    }

    fn reset(&self, unit: &Unit, core: &Core) {
        self.abort_for_reset(unit, CamStatus::ResetSent, core);
    }
}
