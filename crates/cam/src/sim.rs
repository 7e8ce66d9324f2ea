//! SIMs: drivers of buses. A new one is a file in `sims/` and a line in its `mod.rs`.

use std::rc::Rc;

use bio::Segs;
use geom::{Core, Error, Local, Trouble};
use serde_json::Value;

use crate::address::Path;
use crate::bus::Rescan;
use crate::ccb::{Ccb, CcbId, Outcome};
use crate::unit::Unit;

/// Properties of a bus: PATH_INQ.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SimFacts {
    /// Name and number of the driver's instance: `mps0`.
    pub name: String,
    /// Targets that may be there are numbered below it.
    pub targets: u64,
    /// Largest READ or WRITE, bytes.
    pub io_max_bytes: u32,
    /// Longest data of a command that is never cut, such as a list of ranges, bytes.
    pub whole_max_bytes: u32,
    /// Its disks speak ATA; else SCSI.
    pub is_ata: bool,
}

/// How a CCB continues.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// It has ended.
    Ended(Outcome),
    /// [`Sim::finish`] is to be called in so many ns, by its owner.
    Later(u64),
    /// The SIM will call [`Unit::done`].
    Pending,
}

/// Type of a device, as its link reports it before any question.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signature {
    /// It speaks SCSI.
    Scsi,
    /// An ATA device.
    Ata,
    /// SATA: a port multiplier.
    Multiplier,
    /// SATA: an enclosure behind a bridge (SEMB).
    Bridge,
}

/// A driver of a bus.
///
/// A SIM is called on the core that sent a CCB, without a lock held, and never blocks. It stores
/// its state of a device with that device: nothing on the path of a CCB is shared by all.
pub trait Sim: Send + Sync {
    /// PATH_INQ.
    fn facts(&self) -> SimFacts;

    /// Maximum throughput of its links, kB a second, as CAM's lists show it; 0: unknown.
    fn transfer_kb(&self) -> u32 {
        0
    }

    /// Location of a device, for people and for programs that store it: the part behind the `@` of
    /// its `GEOM::physpath`.
    fn location(&self, path: Path) -> String {
        path.to_string()
    }

    /// Mark that others have written on the path to a device to distinguish it, read now: an AoE
    /// target's config string. None: the transport has no marks, or there was no answer.
    fn mark<'a>(&'a self, path: Path, core: &'a Rc<Core>) -> Local<'a, Option<String>> {
        let _ = (path, core);
        Box::pin(async { None })
    }

    /// The AoE initiator that it is: for the functions that only that protocol has.
    fn aoe(&self) -> Option<&crate::sims::aoe::Aoe> {
        None
    }

    /// The virtual HBA that it is: for faults that are injected by hand.
    fn hba(&self) -> Option<&crate::sims::hba::VirtualHba> {
        None
    }

    /// The bus is there. A SIM that detects new or lost devices by itself keeps `rescan`, and
    /// requests scans with it.
    fn begin(&self, rescan: Rescan) {
        let _ = rescan;
    }

    /// Ends when a scan is worth while: a SIM that has to find its devices first may take a while,
    /// but not for ever.
    fn ready<'a>(&'a self, core: &'a Rc<Core>) -> Local<'a, ()> {
        let _ = core;
        Box::pin(async {})
    }

    /// Targets that a scan probes.
    fn targets(&self) -> Vec<u64> {
        (0..self.facts().targets).collect()
    }

    /// Most logical units of one target that are looked at.
    fn luns_max(&self) -> u32 {
        crate::probe::LUNS_MAX
    }

    /// Sets that, for scans that begin from now on, where it can be set.
    fn set_luns_max(&self, luns: u32) {
        let _ = luns;
    }

    /// The signature of a target's link.
    fn signature(&self, target: u64) -> Signature {
        let _ = target;
        if self.facts().is_ata { Signature::Ata } else { Signature::Scsi }
    }

    /// SAS address of a target, where the path to it reports one.
    fn address(&self, target: u64) -> Option<u64> {
        let _ = target;
        None
    }

    /// Commands that the way to a device takes at a time for it, regardless of the queue of the
    /// device: ATA commands then run beside one another. `None`: as many as the device reports.
    fn window(&self, path: Path) -> Option<u32> {
        let _ = path;
        None
    }

    /// Its counters by name, for diagnosis.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Reasons why something that it should reach is missing, the place first. A SIM whose reasons
    /// change reports that by [`crate::bus::Rescan::notify_troubles`].
    fn troubles(&self) -> Vec<Trouble> {
        Vec::new()
    }

    /// An operator had the bus scanned at `at`: lost targets without a device are not reported any
    /// more until they answer, unless the configuration names them. Answers their places.
    fn dismiss_lost(&self, at: Path, has_device: &dyn Fn(u64) -> bool) -> Vec<String> {
        let _ = (at, has_device);
        Vec::new()
    }

    /// Applies those of these parameters that may change while the bus runs: secrets, digests and
    /// deadlines of logins from now on. Sessions continue.
    ///
    /// # Errors
    /// As of [`crate::kind::SimKind::open`]; nothing has changed then.
    fn update_params(&self, params: &Value) -> Result<(), Error> {
        let _ = params;
        Ok(())
    }

    /// The bus is closed: no CCB arrives any more. Sessions are ended, tasks too.
    fn close(&self) {}

    /// A unit was created for a device of this bus; the SIM reports its observations to the unit.
    fn attach(&self, unit: &std::sync::Arc<Unit>);

    /// Begins a CCB. It must end, sooner or later, in one of the ways of [`Begun`]. RESET_DEV ends
    /// all commands of the device with [`crate::CamStatus::ResetSent`].
    fn action(&self, unit: &Unit, id: CcbId, ccb: &Ccb, data: &Segs, core: &Core) -> Begun;

    /// Continues with a CCB that answered [`Begun::Later`]. May be called early.
    fn finish(&self, unit: &Unit, id: CcbId, data: &Segs, core: &Core) -> Begun;

    /// Ends a CCB early, if it can: with [`Unit::done`].
    fn abort(&self, unit: &Unit, id: CcbId, core: &Core);

    /// Another medium may answer than before: CCBs of users that were not sent yet end with
    /// [`crate::CamStatus::Requeue`].
    fn requeue_unsent(&self, unit: &Unit, core: &Core) {
        let _ = (unit, core);
    }

    /// The device was found to be the one that it was.
    fn identity_confirmed(&self, unit: &Unit, core: &Core) {
        let _ = (unit, core);
    }

    /// Another device was found in its place; this one is lost.
    fn identity_changed(&self, unit: &Unit, core: &Core) {
        let _ = (unit, core);
    }

    /// Resets the device: all its CCBs end with [`Unit::done`].
    fn reset(&self, unit: &Unit, core: &Core);
}
