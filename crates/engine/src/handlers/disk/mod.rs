//! The disk handler: a direct-access block device (SBC-3) over one provider.
//!
//! One file for each family of commands. [`Handler::serves`] lists the executed commands; the
//! engine refuses the rest.

mod atomic;
mod buffer;
mod capacity;
mod compare_write;
mod diagnostic;
mod format;
mod identity;
mod lba_status;
mod log;
pub(crate) mod medium_operation;
mod misc;
mod mode;
mod orwrite;
mod prefetch;
mod protected;
mod read_write;
mod sanitize;
mod unmap;
mod verify;
mod write_same;

pub(crate) use identity::designators;
pub use unmap::unmap_limits;

use bio::Op;
use geom::Local;
use wire::scsi::{Command as Cdb, CommandInfo, ProtectionType, Sense, asc};

use super::{Handler, ImmediateCommand, Job, Plan, Run, tray};
use crate::status::Ending;
use crate::unit::Device;

/// The handler; it has no state, the [`Device`] has.
pub struct Disk;

impl Handler for Disk {
    fn serves(&self, info: &CommandInfo, device: &Device) -> bool {
        let spec = device.spec();
        match (info.opcode, info.service_action) {
            (0x42, _) => spec.can_delete,
            (0x04, _) => !spec.read_only,
            (0x48, Some(action)) => sanitize::serves_code(action, device),
            (0x00 | 0x12 | 0x15 | 0x1A | 0x1B | 0x1E | 0x55 | 0x5A, _) => true,
            (0x08 | 0x28 | 0xA8 | 0x88 | 0x0A | 0x2A | 0xAA | 0x8A, _) => true,
            (0x2E | 0xAE | 0x8E | 0x2F | 0xAF | 0x8F, _) => true,
            (0x34 | 0x90 | 0x35 | 0x91 | 0x41 | 0x93 | 0x89 | 0x8B, _) => true,
            (0x9C, _) => atomic::limits(device).blocks > 0,
            (0x25, _) | (0x9E, Some(0x10 | 0x12)) => true,
            // READ, VERIFY, WRITE, WRITE AND VERIFY, WRITE SAME of 32 bytes: their tag fields are
            // valid with type 2 only (SBC-3 4.22.2.4).
            (0x7F, Some(0x09..=0x0D)) => device.protection_type() == Some(ProtectionType::Two),
            // Diagnostics, buffers, defects, logs.
            (0x1C | 0x1D | 0x37 | 0xB7 | 0x3B | 0x3C | 0x9B | 0x4C | 0x4D, _) => true,
            _ => false,
        }
    }

    fn plan(&self, command: &Cdb, device: &Device) -> Result<Plan, Sense> {
        let plan = plan_of(command, device)?;
        let own = matches!(
            command,
            Cdb::StartStop { .. } | Cdb::FormatUnit { .. } | Cdb::Sanitize { .. }
        );
        if plan.medium
            && !own
            && let Some(sense) = device.condition().refusal()
        {
            return Err(sense);
        }
        Ok(plan)
    }

    fn now(&self, ask: &mut ImmediateCommand<'_>) -> Result<(), Sense> {
        let command = *ask.command;
        let Some(device) = ask.device else {
            return Err(Sense::new(asc::LUN_NOT_SUPPORTED));
        };
        match command {
            Cdb::TestUnitReady | Cdb::PreFetch { .. } | Cdb::StartStop { .. } => {}
            Cdb::PreventAllow { prevent } => tray::prevent(ask, prevent),
            Cdb::Inquiry { page, .. } => identity::inquiry(ask, device, page)?,
            Cdb::ReadCapacity10 => capacity::read_capacity_10(ask, device),
            Cdb::ReadCapacity16 { .. } => capacity::read_capacity_16(ask, device),
            Cdb::ModeSense { .. } => mode::sense(ask, device, &command)?,
            Cdb::SendDiagnostic { .. } => {}
            Cdb::ReceiveDiagnostic { .. } => diagnostic::receive(ask),
            Cdb::ReadDefects { .. } => diagnostic::defects(ask, device),
            Cdb::ReadBuffer { .. } => buffer::read(ask, device)?,
            Cdb::LogSense { .. } => log::sense(ask, device)?,
            Cdb::LogSelect { .. } => log::select(ask, device)?,
            _ => return Err(Sense::new(asc::INTERNAL_FAILURE)),
        }
        Ok(())
    }

    fn task(&self, job: Job) -> Local<'static, Ending> {
        Box::pin(async move {
            let result = match job.command {
                Cdb::Read(extent) => protected::read(&job, extent).await,
                Cdb::Write(extent) => protected::write(&job, extent).await,
                Cdb::ModeSelect { ten, save, .. } => mode::select(&job, ten, save).await,
                Cdb::Verify { extent, check } => verify::verify(&job, extent, check).await,
                Cdb::WriteVerify { extent, check } => {
                    verify::write_verify(&job, extent, check).await
                }
                Cdb::SynchronizeCache { immed, .. } => misc::synchronize(&job, immed).await,
                Cdb::SendDiagnostic { .. } => diagnostic::send(&job).await,
                Cdb::WriteBuffer { .. } => buffer::write(&job),
                Cdb::Unmap { .. } => unmap::unmap(&job).await,
                Cdb::WriteSame { .. } => write_same::write_same(&job).await,
                Cdb::CompareWrite(extent) => compare_write::compare_write(&job, extent).await,
                Cdb::OrWrite(extent) => orwrite::orwrite(&job, extent).await,
                Cdb::WriteAtomic { extent, .. } => atomic::write_atomic(&job, extent).await,
                Cdb::PreFetch { lba, blocks, .. } => prefetch::prefetch(&job, lba, blocks).await,
                Cdb::GetLbaStatus { lba, alloc } => lba_status::lba_status(&job, lba, alloc).await,
                Cdb::FormatUnit { .. } => format::format(&job).await,
                Cdb::Sanitize { action, immed, unrestricted, .. } => {
                    sanitize::sanitize(&job, action, immed, unrestricted).await
                }
                Cdb::StartStop { .. } => tray::start_stop(&job).await,
                _ => Err(Ending::check(asc::INTERNAL_FAILURE)),
            };
            result.err().unwrap_or(Ending::Good)
        })
    }
}

/// The needs of a command when the medium is ready.
fn plan_of(command: &Cdb, device: &Device) -> Result<Plan, Sense> {
    let needs_medium = |plan: Plan| Plan { medium: true, ..plan };
    Ok(match *command {
        Cdb::Read(extent) => read_write::plan(Op::Read, extent, device)?,
        Cdb::Write(extent) => read_write::plan(Op::Write, extent, device)?,
        Cdb::TestUnitReady => needs_medium(Plan::NOTHING),
        Cdb::Inquiry { alloc, .. } | Cdb::ModeSense { alloc, .. } => Plan::reply(alloc),
        Cdb::SendDiagnostic { .. } => diagnostic::plan_send(command)?,
        Cdb::ReceiveDiagnostic { page, alloc } => diagnostic::plan_receive(page, alloc)?,
        Cdb::ReadDefects { .. } => diagnostic::plan_defects(command)?,
        Cdb::ReadBuffer { mode, id, offset, alloc } => buffer::plan_read(mode, id, offset, alloc)?,
        Cdb::WriteBuffer { mode, id, offset, len } => buffer::plan_write(mode, id, offset, len)?,
        Cdb::LogSense { .. } | Cdb::LogSelect { .. } => log::plan(command, device)?,
        Cdb::ReadCapacity10 => needs_medium(Plan::reply(8)),
        Cdb::ReadCapacity16 { alloc } => needs_medium(Plan::reply(alloc)),
        Cdb::GetLbaStatus { lba, alloc } => lba_status::plan(lba, alloc, device)?,
        Cdb::ModeSelect { page_format, len, .. } => mode::plan_select(page_format, len)?,
        Cdb::Verify { extent, check } => verify::plan(extent, check, device)?,
        Cdb::WriteVerify { extent, .. } => verify::plan_write(extent, device)?,
        Cdb::CompareWrite(extent) => compare_write::plan(extent, device)?,
        Cdb::OrWrite(extent) => orwrite::plan(extent, device)?,
        Cdb::WriteAtomic { extent, boundary } => atomic::plan(extent, boundary, device)?,
        Cdb::SynchronizeCache { lba, blocks, .. } => misc::plan_sync(lba, blocks, device)?,
        Cdb::PreFetch { lba, blocks, immed } => prefetch::plan(lba, blocks, immed, device)?,
        Cdb::Unmap { anchor, len } => unmap::plan(anchor, len, device)?,
        Cdb::WriteSame { .. } => write_same::plan(command, device)?,
        Cdb::FormatUnit { .. } => format::plan(command, device)?,
        Cdb::Sanitize { action, unrestricted, len, .. } => {
            sanitize::plan(action, unrestricted, len, device)?
        }
        Cdb::StartStop { power, eject, .. } => tray::plan_start_stop(device, power, eject)?,
        Cdb::PreventAllow { prevent } => tray::plan_prevent(prevent)?,
        // The engine's own, or not served.
        _ => return Err(Sense::new(asc::INVALID_OPCODE)),
    })
}

/// Plain blocks as a plan; shared by the families.
fn blocks_plan(op: Op, lba: u64, blocks: u32, fua: bool, bytes: u32) -> Plan {
    let run = Run::Blocks(super::Blocks { op, lba, blocks, fua });
    let base = Plan { medium: true, run, ..Plan::NOTHING };
    match op {
        Op::Write => Plan { out: bytes, writes: true, ..base },
        _ => Plan { reply: bytes, ..base },
    }
}
