//! The null handler: a disk without a medium, for measurements. Written data is discarded and reads
//! return zeroes. The provider behind it gives its size and identity and receives no requests.
//!
//! INQUIRY, mode pages, capacity and the like are the disk handler's.

use bio::Op;
use geom::Local;
use wire::scsi::{Command as Cdb, CommandInfo, Extent, Sense, asc};

use super::{DISK, Handler, ImmediateCommand, Job, Plan, Run};
use crate::status::Ending;
use crate::unit::Device;

/// Longest read answered at once, bytes; longer ones share the core.
const NOW_MAX: u32 = 64 * 1024;

/// The handler.
pub struct Null;

impl Handler for Null {
    fn serves(&self, info: &CommandInfo, device: &Device) -> bool {
        match info.opcode {
            0x08 | 0x28 | 0xA8 | 0x88 | 0x0A | 0x2A | 0xAA | 0x8A | 0x35 | 0x91 => true,
            0x00 | 0x12 | 0x15 | 0x1A | 0x25 | 0x55 | 0x5A | 0x9E | 0xA3 => {
                info.service_action != Some(0x12) && DISK.serves(info, device)
            }
            _ => false,
        }
    }

    fn plan(&self, command: &Cdb, device: &Device) -> Result<Plan, Sense> {
        match *command {
            Cdb::Read(extent) => {
                let reply = check(Op::Read, extent, device)?;
                let run = if reply <= NOW_MAX { Run::Now } else { Run::Task };
                Ok(Plan { run, ..Plan::reply(reply) })
            }
            Cdb::Write(extent) => {
                let out = check(Op::Write, extent, device)?;
                Ok(Plan { out, writes: true, ..Plan::NOTHING })
            }
            Cdb::SynchronizeCache { .. } => DISK.plan(command, device).map(|_| Plan::NOTHING),
            _ => DISK.plan(command, device),
        }
    }

    fn now(&self, ask: &mut ImmediateCommand<'_>) -> Result<(), Sense> {
        match (*ask.command, ask.device) {
            (Cdb::Read(extent), Some(device)) => {
                let bytes = check(Op::Read, extent, device)?;
                ask.zeroes = bytes as usize;
                Ok(())
            }
            (Cdb::Write(_) | Cdb::SynchronizeCache { .. }, _) => Ok(()),
            _ => DISK.now(ask),
        }
    }

    fn task(&self, job: Job) -> Local<'static, Ending> {
        let Cdb::Read(_) = job.command else { return DISK.task(job) };
        Box::pin(async move {
            match job.buffers(job.limit as usize).await {
                Ok(data) => {
                    data.fill(0, data.len(), 0);
                    job.reply(data);
                    Ending::Good
                }
                Err(ending) => ending,
            }
        })
    }
}

/// The disk handler's checks of a plain transfer; answers its bytes.
fn check(op: Op, extent: Extent, device: &Device) -> Result<u32, Sense> {
    let command = if op == Op::Read { Cdb::Read(extent) } else { Cdb::Write(extent) };
    let plan = DISK.plan(&command, device)?;
    match plan.run {
        Run::Blocks(_) => Ok(plan.out.max(plan.reply)),
        _ => Err(Sense::new(asc::INTERNAL_FAILURE)),
    }
}
