//! READ BUFFER 10 and 16, WRITE BUFFER (SPC-4 6.18, 6.49): a buffer and an echo buffer for every
//! nexus, and their descriptors. Initiators use them to check that data arrives unchanged.

use wire::scsi::{Command as Cdb, Sense, asc};

use crate::handlers::ImmediateCommand;
use crate::job::Job;
use crate::plan::Plan;
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::initiator_data::BUFFER_BYTES;

/// MODE: data, descriptor, echo buffer, echo buffer descriptor.
const DATA: u8 = 0x02;
const DESCRIPTOR: u8 = 0x03;
const ECHO: u8 = 0x0a;
const ECHO_DESCRIPTOR: u8 = 0x0b;
/// Offsets are multiples of two to this power, bytes.
const BOUNDARY: u8 = 0;

pub(super) fn plan_read(mode: u8, id: u8, offset: u64, alloc: u32) -> Result<Plan, Sense> {
    if !matches!(mode, DATA | DESCRIPTOR | ECHO | ECHO_DESCRIPTOR) {
        return Err(Sense::cdb_field(1, Some(4)));
    }
    if mode == DATA && id != 0 {
        return Err(Sense::cdb_field(2, None));
    }
    if mode == DATA && offset > BUFFER_BYTES as u64 {
        return Err(Sense::new(asc::INVALID_FIELD_IN_CDB));
    }
    Ok(Plan::reply(alloc))
}

pub(super) fn plan_write(mode: u8, id: u8, offset: u32, len: u32) -> Result<Plan, Sense> {
    if !matches!(mode, DATA | ECHO) {
        return Err(Sense::cdb_field(1, Some(4)));
    }
    if mode == DATA && id != 0 {
        return Err(Sense::cdb_field(2, None));
    }
    let start = if mode == DATA { offset as usize } else { 0 };
    if start > BUFFER_BYTES {
        return Err(Sense::cdb_field(3, None));
    }
    if len as usize > BUFFER_BYTES - start {
        return Err(Sense::cdb_field(6, None));
    }
    Ok(Plan { medium: false, ..Plan::task(len) })
}

pub(super) fn read(ask: &mut ImmediateCommand<'_>, device: &Device) -> Result<(), Sense> {
    let (Cdb::ReadBuffer { mode, id, offset, .. }, Some(nexus)) = (*ask.command, ask.nexus) else {
        return Err(Sense::new(asc::INTERNAL_FAILURE));
    };
    let [_, _, size_high, size_low] = (BUFFER_BYTES as u32).to_be_bytes();
    match mode {
        // An identifier of no buffer is described by zeroes.
        DESCRIPTOR if id != 0 => ask.reply.extend([0; 4]),
        DESCRIPTOR => ask.reply.extend([BOUNDARY, 0, size_high, size_low]),
        ECHO_DESCRIPTOR => ask.reply.extend([0, 0, size_high & 0x1f, size_low]),
        ECHO => {
            let notes = device.initiator_data().state();
            let echo = notes.buffers.get(&nexus.port().session).and_then(|b| b.echo.as_ref());
            ask.reply.extend(echo.ok_or(Sense::new(asc::SEQUENCE_ERROR))?);
        }
        _ => {
            let start = usize::try_from(offset).unwrap_or(usize::MAX);
            let notes = device.initiator_data().state();
            let data = notes.buffers.get(&nexus.port().session).map(|b| &*b.data).unwrap_or(&[]);
            let written = data.get(start..).unwrap_or(&[]);
            ask.reply.extend(written);
            ask.reply.resize(BUFFER_BYTES.saturating_sub(start), 0);
        }
    }
    Ok(())
}

pub(super) fn write(job: &Job) -> Result<(), Ending> {
    let Cdb::WriteBuffer { mode, offset, .. } = job.command else {
        return Err(Ending::check(asc::INTERNAL_FAILURE));
    };
    let bytes = job.data.to_vec();
    let mut notes = job.device.initiator_data().state();
    let buffers = notes.buffers.entry(job.nexus.port().session).or_default();
    if mode == ECHO {
        buffers.echo = Some(bytes);
        return Ok(());
    }
    let start = offset as usize;
    let end = start + bytes.len();
    if buffers.data.len() < end {
        buffers.data.resize(end, 0);
    }
    if let Some(place) = buffers.data.get_mut(start..end) {
        place.copy_from_slice(&bytes);
    }
    Ok(())
}
