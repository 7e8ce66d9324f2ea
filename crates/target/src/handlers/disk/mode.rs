//! MODE SENSE and MODE SELECT. Four bits can be changed: WCE, D_SENSE, SWP, TAS; they are shared
//! by all nexuses, not saved, and back at their defaults after a reset.

use std::sync::PoisonError;

use wire::scsi::{Command as Cdb, ModeBlock, ModeState, Sense, asc, mode_sense, parse_mode_select};

use crate::device::{Device, ModeBits};
use crate::handlers::{Ask, Job, Plan};
use crate::status::Ending;

/// Longest MODE SELECT parameter list taken, bytes: all pages are far shorter. A longer one is
/// refused before its data moves.
const SELECT_MAX: u32 = 4096;

/// Mode bits as the pages have them.
pub(super) fn state_of(bits: ModeBits) -> ModeState {
    ModeState {
        write_cache: bits.has(ModeBits::WCE),
        descriptor_sense: bits.has(ModeBits::D_SENSE),
        write_protect: bits.has(ModeBits::SWP),
        task_aborted_status: bits.has(ModeBits::TAS),
    }
}

/// The inverse of [`state_of`]: `bits` with what the pages say.
pub(super) fn bits_of(bits: ModeBits, state: ModeState) -> ModeBits {
    bits.with(ModeBits::WCE, state.write_cache)
        .with(ModeBits::D_SENSE, state.descriptor_sense)
        .with(ModeBits::SWP, state.write_protect)
        .with(ModeBits::TAS, state.task_aborted_status)
}

fn block_of(device: &Device, protected: bool) -> ModeBlock {
    ModeBlock {
        current: state_of(device.mode()),
        default: state_of(device.default_mode()),
        changeable: ModeState {
            write_cache: true,
            descriptor_sense: true,
            write_protect: true,
            task_aborted_status: true,
        },
        blocks: device.blocks(),
        block_len: device.block_bytes(),
        protected,
        dpo_fua: true,
    }
}

pub(super) fn sense(ask: &mut Ask<'_>, device: &Device, command: &Cdb) -> Result<(), Sense> {
    let Cdb::ModeSense { ten, long_lba, no_blocks, control, page, subpage, .. } = *command else {
        return Err(Sense::new(asc::INTERNAL_FAILURE));
    };
    let block = block_of(device, ask.read_only);
    ask.reply.extend(mode_sense(ten, long_lba, no_blocks, control, (page, subpage), &block)?);
    Ok(())
}

pub(super) fn plan_select(page_format: bool, save: bool, len: u32) -> Result<Plan, Sense> {
    if !page_format {
        return Err(Sense::cdb_field(1, Some(4)));
    }
    if save {
        return Err(Sense::cdb_field(1, Some(0)));
    }
    if len > SELECT_MAX {
        return Err(Sense::new(asc::PARAMETER_LIST_LEN));
    }
    Ok(Plan { medium: false, ..Plan::task(len) })
}

/// All or nothing; the other nexuses hear of it before this one hears GOOD.
pub(super) async fn select(job: &Job, ten: bool) -> Result<(), Ending> {
    let list = job.data.to_vec();
    let device = &job.device;
    let wanted = parse_mode_select(ten, &list, &block_of(device, false)).map_err(Ending::Check)?;
    if device.mode().has(ModeBits::WCE) && !wanted.state.write_cache {
        // What was acknowledged from the cache becomes durable before the cache is off. Writes
        // that run meanwhile see the bit still set; they are flushed below.
        job.flush().await?;
    }
    let turned_off = {
        let _gate = device.mode_gate.lock().unwrap_or_else(PoisonError::into_inner);
        let was = device.mode();
        let wanted =
            parse_mode_select(ten, &list, &block_of(device, false)).map_err(Ending::Check)?;
        device.set_mode(bits_of(was, wanted.state));
        if wanted.changed {
            device.raise(asc::MODE_CHANGED, Some(&job.nexus));
        }
        was.has(ModeBits::WCE) && !wanted.state.write_cache
    };
    if turned_off {
        job.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_and_pages_agree() {
        for n in 0..16u8 {
            let bits = [ModeBits::WCE, ModeBits::D_SENSE, ModeBits::SWP, ModeBits::TAS]
                .into_iter()
                .enumerate()
                .fold(ModeBits::NONE, |b, (i, bit)| b.with(bit, n & (1 << i) != 0));
            assert_eq!(bits_of(ModeBits::NONE, state_of(bits)), bits);
        }
    }
}
