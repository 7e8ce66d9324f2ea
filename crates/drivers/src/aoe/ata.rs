//! ATA commands.

use std::rc::Rc;

use bio::Segs;
use engine::{Device, ModeBits};
use wire::aoe::{Ata, SECTOR, error as aoe};
use wire::ata::{FEATURE_TRIM, Identify, TRIM_BLOCK, Trim, command as op, error, status};
use wire::nbd::Request;
use wire::scsi::{Naa, naa_bytes};

use super::portal::start;
use super::replay_guard::{HeldAction, HeldWrite, WriteDecision, WriteId, digest};
use super::session::{AoeSession, AtaRequest, Client};
use crate::block_requests::Work;

/// Most blocks of ranges in one TRIM: all commands that it becomes are under way at once.
const TRIM_BLOCKS_MAX: u8 = 1;

/// READY with ERR.
const FAILED: u8 = status::READY | status::ERROR;

/// A command with its data; `commands`: the sender may give any but IDENTIFY.
pub(super) fn command(session: &Rc<AoeSession>, tag: u32, body: &[u8], commands: bool) {
    let front = &session.frontend;
    let Ok((ata, data)) = Ata::decode(body) else {
        let ata_request = AtaRequest { tag, command: 0, sectors: 0, extended: false };
        return front.refuse(&ata_request, aoe::ARGUMENT);
    };
    let Ata { command, sectors, extended, .. } = ata;
    let ata_request = AtaRequest { tag, command, sectors, extended };
    if command == op::IDENTIFY {
        return identify(session, &ata_request);
    }
    if !commands {
        return front.refuse(&ata_request, aoe::RESERVED);
    }
    if session.open() >= front.buffers {
        // It is sent again.
        return;
    }
    match command {
        op::READ | op::READ_EXT | op::READ_DMA | op::READ_DMA_EXT => {
            transfer(session, &ata_request, &ata, Work::Read, data);
        }
        op::VERIFY | op::VERIFY_EXT => transfer(session, &ata_request, &ata, Work::Read, data),
        op::WRITE | op::WRITE_EXT | op::WRITE_DMA | op::WRITE_DMA_EXT => {
            transfer(session, &ata_request, &ata, Work::Write, data);
        }
        op::FLUSH | op::FLUSH_EXT => {
            session.start(ata_request.request(false, 0, 0), Work::Flush, 0)
        }
        op::DATA_SET_MANAGEMENT => data_set(session, &ata_request, &ata, data),
        // Active or idle, by the sector count.
        op::CHECK_POWER_MODE => front.answer(&ata_request, 0xFF, (status::READY, 0), &Segs::new()),
        _ => front.answer(&ata_request, ata.registers, (FAILED, error::ABORT), &Segs::new()),
    }
}

/// Commands of 28 bits have so many, regardless of the other registers.
fn lba(ata: &Ata) -> u64 {
    match ata.command {
        op::READ | op::WRITE | op::READ_DMA | op::WRITE_DMA | op::VERIFY => {
            Ata { extended: false, ..*ata }.lba()
        }
        _ => ata.lba(),
    }
}

fn transfer(
    session: &Rc<AoeSession>,
    ata_request: &AtaRequest,
    ata: &Ata,
    work: Work,
    data: &[u8],
) {
    let front = &session.frontend;
    let (lba, sectors) = (lba(ata), usize::from(ata.sectors));
    let bytes = sectors * SECTOR;
    let verifies = matches!(ata.command, op::VERIFY | op::VERIFY_EXT);
    let most = usize::from(front.portal.sectors_max());
    let too_much = !verifies && sectors > most;
    if sectors == 0 || too_much || bytes > session.device().transfer_max() as usize {
        return front.refuse(ata_request, aoe::ARGUMENT);
    }
    let writes = work == Work::Write;
    let request = ata_request.request(writes, lba * SECTOR as u64, bytes as u64);
    if session.check_range(&request, work).is_err() {
        return front.answer(ata_request, lba, (FAILED, error::NOT_FOUND), &Segs::new());
    }
    if !writes {
        return session.start(request, work, bytes as u64);
    }
    let Some(data) = data.get(..bytes) else {
        return front.refuse(ata_request, aoe::ARGUMENT);
    };
    let end = request.offset + request.len;
    let mark = WriteId { tag: ata_request.tag, start: request.offset, end, digest: digest(data) };
    let deed = || {
        let mut memory = front.portal.per_core.segs();
        let got = front.portal.per_core.engine.alloc_write_data(&mut memory, bytes, false);
        memory.copy_from(0, data);
        got.then_some(HeldAction::Write(memory))
    };
    carry_out_decision(session, ata_request, mark, lba, deed);
}

/// Handles a write or trim by its decision (A2). Without memory the request is dropped, as if it
/// had not arrived.
fn carry_out_decision(
    session: &Rc<AoeSession>,
    ata_request: &AtaRequest,
    mark: WriteId,
    lba: u64,
    deed: impl FnOnce() -> Option<HeldAction>,
) {
    let front = &session.frontend;
    let now = front.portal.per_core.core.now();
    let verdict = front.guard.check(mark, now);
    match verdict {
        WriteDecision::Duplicate => {}
        WriteDecision::Done(registers) => front.answer(ata_request, lba, registers, &Segs::new()),
        WriteDecision::Start | WriteDecision::Wait => {
            let Some(deed) = deed() else {
                if verdict == WriteDecision::Start {
                    front.abandon_write(mark);
                }
                return;
            };
            let held = HeldWrite {
                id: mark,
                request: *ata_request,
                session: session.clone(),
                action: deed,
            };
            match verdict {
                WriteDecision::Start => start(held),
                _ => front.guard.hold(held),
            }
        }
    }
}

fn data_set(session: &Rc<AoeSession>, ata_request: &AtaRequest, ata: &Ata, data: &[u8]) {
    let front = &session.frontend;
    let device = session.device();
    let aborted = || front.answer(ata_request, ata.registers, (FAILED, error::ABORT), &Segs::new());
    if ata.feature != FEATURE_TRIM || !trims(session) || ata.sectors > TRIM_BLOCKS_MAX {
        return aborted();
    }
    let Some(list) = data.get(..usize::from(ata.sectors) * TRIM_BLOCK).filter(|l| !l.is_empty())
    else {
        return front.refuse(ata_request, aoe::ARGUMENT);
    };
    let Ok(ranges) = wire::ata::trim_ranges(list) else { return aborted() };
    let unit = SECTOR as u64;
    let ranges: Vec<(u64, u64)> = ranges.map(|(at, n)| (at * unit, n * unit)).collect();
    let (Some(start), Some(end)) =
        (ranges.iter().map(|r| r.0).min(), ranges.iter().map(|r| r.0 + r.1).max())
    else {
        // Nothing to free.
        return front.answer(ata_request, 0, (status::READY, 0), &Segs::new());
    };
    if end > device.blocks().saturating_mul(unit) {
        return front.answer(ata_request, 0, (FAILED, error::NOT_FOUND), &Segs::new());
    }
    let mark = WriteId { tag: ata_request.tag, start, end, digest: digest(list) };
    carry_out_decision(session, ata_request, mark, 0, || Some(HeldAction::Trim(ranges)));
}

/// Begins a trim: its ranges side by side, and a flush behind the last.
pub(super) fn trim(session: &AoeSession, request: Request, ranges: &[(u64, u64)]) {
    let parent = session.start_parent(request);
    session.parent_flushes(parent);
    let plain = Request { flags: 0, ..request };
    for (at, len) in ranges {
        session.start_part(plain, Work::Trim, *at, *len, parent);
    }
    session.parent_all_issued(parent);
}

fn is_read_only(session: &AoeSession) -> bool {
    let device = session.device();
    device.spec().read_only || device.mode().has(ModeBits::SWP) || session.is_read_only()
}

fn trims(session: &AoeSession) -> bool {
    session.device().spec().can_delete && !is_read_only(session)
}

/// A name of 8 bytes as it is; of a longer one the last 60 bits, as NAA 5h.
fn wwn(naa: &Naa) -> u64 {
    let [.., a, b, c, d, e, f, g, h] = *naa;
    let tail = u64::from_be_bytes([a, b, c, d, e, f, g, h]);
    let short = naa_bytes(naa).first_chunk().filter(|_| naa_bytes(naa).len() == 8);
    short.map_or(5 << 60 | tail & ((1 << 60) - 1), |name| u64::from_be_bytes(*name))
}

/// The IDENTIFY data of the device.
fn facts(session: &AoeSession) -> Identify {
    let device: &Device = session.device();
    let (spec, label) = (device.spec(), device.label());
    let physical = spec.physical_bytes / SECTOR as u32;
    let words = |text: &str| text.trim().to_owned();
    Identify {
        model: format!("{} {}", words(&label.vendor), words(&label.product)),
        serial: spec.serial.clone(),
        firmware: label.revision.clone(),
        sectors: device.blocks(),
        sector_bytes: SECTOR as u32,
        physical_exponent: u8::try_from(physical.max(1).ilog2()).unwrap_or(0),
        extended: true,
        flush: true,
        flush_ext: true,
        trim: trims(session).then(|| Trim {
            blocks_max: TRIM_BLOCKS_MAX.into(),
            deterministic: device.provisioning().reads_zero,
            zeroes: device.provisioning().reads_zero,
        }),
        rotation: spec.rotation.unwrap_or(0),
        wwn: wwn(&spec.ids().naa),
        queue_depth: 1,
        ..Identify::default()
    }
}

fn identify(session: &Rc<AoeSession>, ata_request: &AtaRequest) {
    let front: &Client = &session.frontend;
    if !session.confirm_identity() {
        // The initiator repeats the request, and then enters anew.
        return;
    }
    front.guard.forget(front.key.mac);
    let bytes = facts(session).encode();
    let core_state = &front.portal.per_core;
    let mut data = core_state.segs();
    if core_state.engine.alloc_write_data(&mut data, bytes.len(), false) {
        data.copy_from(0, &bytes);
        front.answer(ata_request, 0, (status::READY, 0), &data);
    }
    core_state.put_segs(data);
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::scsi::parse_naa;

    #[test]
    fn world_wide_name_is_a_short_naa_name_or_made_from_a_long_one() {
        let of = |text| wwn(&parse_naa(text).unwrap());
        assert_eq!(of("3000c500a1b2c3d4"), 0x3000_c500_a1b2_c3d4);
        assert_eq!(of("5000c500a1b2c3d4"), 0x5000_c500_a1b2_c3d4);
        assert_eq!(of("602a5b1aabbccddeeff0011223344556"), 0x5ff0_0112_2334_4556);
    }
}
