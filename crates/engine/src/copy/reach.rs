//! Units that a copy may name, and the permitted access to them (Y1).
//!
//! A designator is looked up in the LUN map of the session that sent the list, nowhere else. A unit
//! that the initiator cannot address does not exist for its copies either. (A copy manager that
//! looks everywhere lets any initiator read and write every disk of the daemon: CVE-2020-28374.)

use std::sync::Arc;

use wire::scsi::{Asc, CSCD_THIS_UNIT, Cscd, PeripheralType, asc};

use crate::flags;
use crate::handlers::disk;
use crate::job::{Job, Medium};
use crate::registry::{LunEntry, TargetPort};
use crate::unit::ids::naa;
use crate::unit::unit_attention::ItlNexus;
use crate::unit::{Device, ModeBits};

/// A unit that a copy may reach, with the permitted access.
#[derive(Clone)]
pub(super) struct CopyUnit {
    /// The way to its medium.
    pub medium: Medium,
    /// Nothing keeps the nexus from reading.
    pub readable: bool,
    /// Nothing keeps the nexus from writing.
    pub writable: bool,
}

impl CopyUnit {
    pub fn device(&self) -> &Arc<Device> {
        self.medium.device()
    }

    /// Both are the same unit.
    pub fn is_same_unit(&self, other: &CopyUnit) -> bool {
        Arc::ptr_eq(self.device(), other.device())
    }

    /// The unit that executes the command.
    pub fn own(job: &Job) -> CopyUnit {
        copy_unit(job, job.medium().clone(), &job.nexus, job.read_only)
    }

    /// A unit of the session's map, if it is there.
    pub fn mapped(job: &Job, device: &Arc<Device>) -> Option<CopyUnit> {
        let mut entries = job.luns.iter().filter(|e| Arc::ptr_eq(&e.device, device));
        let first = entries.next()?;
        // A unit that is mapped twice is as writable as its best LUN.
        let entry = if first.read_only { entries.find(|e| !e.read_only) } else { None };
        of_entry(job, entry.unwrap_or(first))
    }
}

/// Access of the session's own nexus at a LUN.
fn of_entry(job: &Job, entry: &LunEntry) -> Option<CopyUnit> {
    let mine = |n: &Arc<ItlNexus>| Arc::ptr_eq(n.port(), job.nexus.port()) && n.lun() == entry.lun;
    let nexus = entry.device.nexuses().into_iter().find(mine)?;
    let device = &entry.device;
    let protected = entry.read_only || device.spec().read_only || device.mode().has(ModeBits::SWP);
    Some(copy_unit(job, job.medium_of(device), &nexus, protected))
}

fn copy_unit(_job: &Job, medium: Medium, nexus: &ItlNexus, protected: bool) -> CopyUnit {
    let word = nexus.flags();
    // Active, or active and not optimised.
    let active = (word & flags::ALUA) >> flags::ALUA_SHIFT < 2;
    CopyUnit {
        medium,
        readable: active && word & flags::RESERVED_READ == 0,
        writable: active && word & flags::RESERVED_WRITE == 0 && !protected,
    }
}

/// The unit that a CSCD identifier of a list names, or why it cannot be reached.
pub(super) fn resolve(job: &Job, cscds: &[Cscd<'_>], id: u16) -> Result<CopyUnit, Asc> {
    if id == CSCD_THIS_UNIT {
        return Ok(CopyUnit::own(job));
    }
    let cscd = cscds.get(usize::from(id)).ok_or(asc::COPY_UNREACHABLE)?;
    if cscd.null {
        return Err(asc::COPY_UNREACHABLE);
    }
    let place = find(job, cscd).ok_or(asc::COPY_UNREACHABLE)?;
    let device = place.device();
    if cscd.peripheral != PeripheralType::Disk as u8 || !is_disk(device) {
        return Err(asc::COPY_DEVICE_TYPE);
    }
    // DISK BLOCK LENGTH: zero when the initiator gives none.
    if cscd.block_len != 0 && cscd.block_len != device.block_bytes() {
        return Err(asc::COPY_DEVICE_TYPE);
    }
    if device.lost().is_some() {
        return Err(asc::COPY_DEVICE_GONE);
    }
    Ok(place)
}

fn is_disk(device: &Device) -> bool {
    device.kind().peripheral() == PeripheralType::Disk
}

fn find(job: &Job, cscd: &Cscd<'_>) -> Option<CopyUnit> {
    if is_named(&job.device, &job.port, cscd) {
        return Some(CopyUnit::own(job));
    }
    let entries = job.luns.iter();
    let entry = entries.filter(|e| !Arc::ptr_eq(&e.device, &job.device));
    let found = entry.into_iter().find(|e| is_named(&e.device, &job.port, cscd))?;
    CopyUnit::mapped(job, &found.device)
}

/// NAA and T10 designators, EUI-64s, names: all designators that the unit reports in VPD page 83h.
fn is_named(device: &Device, port: &TargetPort, cscd: &Cscd<'_>) -> bool {
    /// DESIGNATOR TYPE of NAA.
    const NAA: u8 = 3;
    if cscd.association != 0 || cscd.designator.is_empty() {
        return false;
    }
    if cscd.kind == NAA && cscd.designator.len() == 16 {
        // The usual one, without building a page for every unit of a large map.
        return cscd.code_set == 1 && naa(&device.spec().serial) == *cscd.designator;
    }
    let page = disk::designators(device, port);
    let mut rest = page.get(4..).unwrap_or(&[]);
    while let [set, kind, _, len, tail @ ..] = rest {
        let len = usize::from(*len);
        let Some(designator) = tail.get(..len) else { return false };
        let of_unit = kind & 0x30 == 0;
        if of_unit
            && set & 0x0f == cscd.code_set
            && kind & 0x0f == cscd.kind
            && designator == cscd.designator
        {
            return true;
        }
        rest = tail.get(len..).unwrap_or(&[]);
    }
    false
}
