//! SIMs: drivers of buses. A new one is a file in `sims/` and a line in its `mod.rs`.

use std::rc::Rc;

use bio::Segs;
use geom::{Core, Error, Local, Trouble};
use serde_json::Value;

use crate::address::Path;
use crate::bus::Rescan;
use crate::ccb::{Ccb, CcbId, Outcome};
use crate::unit::Unit;

/// What a bus is like: PATH_INQ.
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

/// How a CCB goes on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Begun {
    /// It has ended.
    Ended(Outcome),
    /// [`Sim::finish`] is to be called in so many ns, by its owner.
    Later(u64),
    /// The SIM will call [`Unit::done`].
    Pending,
}

/// What a device is, as its link tells before it is asked anything.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Signature {
    /// It speaks SCSI, whatever it is.
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
/// It is called on the core of whoever sent a CCB, without a lock held, and never blocks. What it
/// keeps for a device it keeps with that device: nothing on the way of a CCB is shared by all.
pub trait Sim: Send + Sync {
    /// PATH_INQ.
    fn facts(&self) -> SimFacts;

    /// What its links move in a second at most, kB, as lists of CAM have it; 0: it is not known.
    fn transfer_kb(&self) -> u32 {
        0
    }

    /// Where a device is, for people and for whoever keeps it: what is behind the `@` of its
    /// `GEOM::physpath`.
    fn place(&self, path: Path) -> String {
        path.to_string()
    }

    /// What others have written on the way to a device to tell it from others, asked for now: an
    /// AoE target's config string. None: there is no such thing, or no answer.
    fn mark<'a>(&'a self, path: Path, core: &'a Rc<Core>) -> Local<'a, Option<String>> {
        let _ = (path, core);
        Box::pin(async { None })
    }

    /// The AoE initiator that it is: for what only that protocol has.
    fn aoe(&self) -> Option<&crate::sims::aoe::Aoe> {
        None
    }

    /// The virtual HBA that it is: for what goes wrong there by hand.
    fn hba(&self) -> Option<&crate::sims::hba::VirtualHba> {
        None
    }

    /// The bus is there. Who learns of new or lost devices by itself keeps `rescan`, and asks.
    fn begin(&self, rescan: Rescan) {
        let _ = rescan;
    }

    /// Ends when a scan is worth while: a SIM that has to find its devices first may take a while,
    /// but not for ever.
    fn ready<'a>(&'a self, core: &'a Rc<Core>) -> Local<'a, ()> {
        let _ = core;
        Box::pin(async {})
    }

    /// Targets that a scan asks.
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

    /// What a target's link tells of it.
    fn signature(&self, target: u64) -> Signature {
        let _ = target;
        if self.facts().is_ata { Signature::Ata } else { Signature::Scsi }
    }

    /// SAS address of a target, where the way to it tells.
    fn address(&self, target: u64) -> Option<u64> {
        let _ = target;
        None
    }

    /// Commands that the way to a device takes at a time for it, whatever queue the device itself
    /// has: ATA commands go beside one another then. `None`: as many as the device says.
    fn window(&self, path: Path) -> Option<u32> {
        let _ = path;
        None
    }

    /// What it has counted, by name: for people who look for what is wrong.
    fn counts(&self) -> Vec<(&'static str, u64)> {
        Vec::new()
    }

    /// Why some of what it should reach is not there, the place first. Whoever has another one, or
    /// one less, says so by [`crate::bus::Rescan::say`].
    fn troubles(&self) -> Vec<Trouble> {
        Vec::new()
    }

    /// Takes over what of these parameters may change while the bus runs: secrets, digests and
    /// deadlines of logins from now on. Sessions go on.
    ///
    /// # Errors
    /// As of [`crate::kind::SimKind::open`]; nothing has changed then.
    fn renew(&self, params: &Value) -> Result<(), Error> {
        let _ = params;
        Ok(())
    }

    /// The bus has gone: no CCB comes any more. Sessions are ended, tasks too.
    fn close(&self) {}

    /// A unit was made for a device of this bus; it is told what the SIM notices of it.
    fn attach(&self, unit: &std::sync::Arc<Unit>);

    /// Begins a CCB. It must end, sooner or later, in one of the ways of [`Begun`]. RESET_DEV ends
    /// whatever the device had with [`crate::CamStatus::ResetSent`].
    fn action(&self, unit: &Unit, id: CcbId, ccb: &Ccb, data: &Segs, core: &Core) -> Begun;

    /// Goes on with a CCB that answered [`Begun::Later`]. May be called early.
    fn finish(&self, unit: &Unit, id: CcbId, data: &Segs, core: &Core) -> Begun;

    /// Ends a CCB early, if it can: with [`Unit::done`].
    fn abort(&self, unit: &Unit, id: CcbId, core: &Core);

    /// Another medium may answer than before: CCBs of users that were not sent yet end with
    /// [`crate::CamStatus::Requeue`].
    fn recall(&self, unit: &Unit, core: &Core) {
        let _ = (unit, core);
    }

    /// The device was found to be the one that it was.
    fn trusts(&self, unit: &Unit, core: &Core) {
        let _ = (unit, core);
    }

    /// Another device was found in its place; this one is lost.
    fn is_another(&self, unit: &Unit, core: &Core) {
        let _ = (unit, core);
    }

    /// Resets the device: all its CCBs end with [`Unit::done`].
    fn reset(&self, unit: &Unit, core: &Core);
}
