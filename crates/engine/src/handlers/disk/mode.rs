//! MODE SENSE and MODE SELECT. All nexuses share the changeable values; a reset restores the saved
//! values, or the defaults.

use wire::scsi::{Command as Cdb, ModeBlock, ModeState, Sense, asc, mode_sense, parse_mode_select};

use crate::handlers::ImmediateCommand;
use crate::handlers::saved_modes::{ModeSelectGuard, save};
use crate::job::Job;
use crate::plan::Plan;
use crate::registry::Registry;
use crate::status::Ending;
use crate::unit::space::{Space, Thresholds};
use crate::unit::{Device, ModeBits};

/// Longest MODE SELECT parameter list taken, bytes: all pages are far shorter. A longer one is
/// refused before its data moves.
const SELECT_MAX: u32 = 4096;

/// Fields that MODE SELECT may change. DPICZ is left out where there is no protection information.
fn changeable(device: &Device) -> ModeState {
    let all = ModeState { unchecked_reads: device.protection().is_some(), ..ModeState::ALL };
    match device.space() {
        Some(_) => all,
        None => ModeState {
            threshold_errors: false,
            single_attention: false,
            thresholds: Default::default(),
            ..all
        },
    }
}

/// Mode bits as the pages have them.
pub(super) fn state_of(bits: ModeBits) -> ModeState {
    ModeState {
        write_cache: bits.has(ModeBits::WCE),
        descriptor_sense: bits.has(ModeBits::D_SENSE),
        write_protect: bits.has(ModeBits::SWP),
        task_aborted_status: bits.has(ModeBits::TAS),
        task_sets: bits.has(ModeBits::TST_EACH),
        error_aborts: match (bits.has(ModeBits::QERR), bits.has(ModeBits::QERR_OWN)) {
            (false, _) => 0,
            (true, false) => 1,
            (true, true) => 3,
        },
        reordering: bits.has(ModeBits::QAM),
        tmf_only: bits.has(ModeBits::TMF_ONLY),
        unchecked_reads: bits.has(ModeBits::DPICZ),
        threshold_errors: bits.has(ModeBits::LBPERE),
        single_attention: bits.has(ModeBits::SITUA),
        thresholds: Default::default(),
    }
}

/// The inverse of [`state_of`]: `bits` with the values of the pages.
pub(super) fn bits_of(bits: ModeBits, state: ModeState) -> ModeBits {
    bits.with(ModeBits::WCE, state.write_cache)
        .with(ModeBits::D_SENSE, state.descriptor_sense)
        .with(ModeBits::SWP, state.write_protect)
        .with(ModeBits::TAS, state.task_aborted_status)
        .with(ModeBits::TST_EACH, state.task_sets)
        .with(ModeBits::QERR, state.error_aborts != 0)
        .with(ModeBits::QERR_OWN, state.error_aborts == 3)
        .with(ModeBits::QAM, state.reordering)
        .with(ModeBits::TMF_ONLY, state.tmf_only)
        .with(ModeBits::DPICZ, state.unchecked_reads)
        .with(ModeBits::LBPERE, state.threshold_errors)
        .with(ModeBits::SITUA, state.single_attention)
}

/// The same with the thresholds, where there are any.
fn state_at(device: &Device, bits: ModeBits, of: fn(&Space) -> Thresholds) -> ModeState {
    let thresholds = device.space().map(of).unwrap_or_default();
    ModeState { thresholds, ..state_of(bits) }
}

fn block_of(device: &Device, registry: &Registry, protected: bool) -> ModeBlock {
    ModeBlock {
        current: state_at(device, device.mode(), Space::current),
        default: state_at(device, device.default_mode(), Space::first),
        saved: state_at(device, device.saved_mode(), Space::saved),
        changeable: changeable(device),
        savable: registry.state_store().is_persistent(),
        blocks: device.blocks(),
        block_len: device.block_bytes(),
        protected,
        dpo_fua: true,
        rotation: device.spec().rotation.unwrap_or(0),
        // Every port group has implicit access states (TPGS); they cannot be turned off.
        implicit_alua: true,
        // Tags from an initiator are kept unchanged.
        application_tags: device.protection().is_some(),
        has_thresholds: device.space().is_some(),
    }
}

pub(super) fn sense(
    ask: &mut ImmediateCommand<'_>,
    device: &Device,
    command: &Cdb,
) -> Result<(), Sense> {
    let Cdb::ModeSense { ten, long_lba, no_blocks, control, page, subpage, .. } = *command else {
        return Err(Sense::new(asc::INTERNAL_FAILURE));
    };
    let block = block_of(device, ask.registry, ask.read_only);
    ask.reply.extend(mode_sense(ten, long_lba, no_blocks, control, (page, subpage), &block)?);
    Ok(())
}

pub(super) fn plan_select(page_format: bool, len: u32) -> Result<Plan, Sense> {
    if !page_format {
        return Err(Sense::cdb_field(1, Some(4)));
    }
    if len > SELECT_MAX {
        return Err(Sense::new(asc::PARAMETER_LIST_LEN));
    }
    Ok(Plan { medium: false, ..Plan::task(len) })
}

/// All or nothing: saved values are on stable storage before they take effect, and the other
/// nexuses are notified of a change before this one receives GOOD.
pub(super) async fn select(job: &Job, ten: bool, keep: bool) -> Result<(), Ending> {
    let list = job.data.to_vec();
    let device = &job.device;
    let _turn = ModeSelectGuard::acquire(device)?;
    let block = block_of(device, &job.registry, false);
    let wanted = parse_mode_select(ten, &list, &block).map_err(Ending::Check)?;
    if keep && !block.savable {
        return Err(Ending::Check(Sense::cdb_field(1, Some(0))));
    }
    let bits = bits_of(device.mode(), wanted.state);
    let turns_off = device.mode().has(ModeBits::WCE) && !wanted.state.write_cache;
    if turns_off {
        // Writes acknowledged from the cache become durable before the cache is off. Writes that
        // run meanwhile see the bit still set; they are flushed below.
        job.flush().await?;
    }
    if keep {
        save(job, bits, wanted.state.thresholds).await?;
    }
    {
        // A reset may have been in between; the values of this command are the later ones.
        let _gate = device.mode_gate.lock();
        let changed = wanted.changed || device.mode() != bits;
        device.set_mode(bits);
        if let Some(space) = device.space() {
            space.set(wanted.state.thresholds);
        }
        if changed {
            device.raise(asc::MODE_CHANGED, Some(&job.nexus));
        }
    }
    if turns_off {
        job.flush().await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mode_bits_round_trip_through_the_mode_state() {
        for n in 0..1 << 12 {
            let bits = ModeBits::from_bits(n);
            if bits.has(ModeBits::QERR_OWN) && !bits.has(ModeBits::QERR) {
                continue;
            }
            assert_eq!(bits_of(ModeBits::NONE, state_of(bits)), bits);
        }
    }
}
