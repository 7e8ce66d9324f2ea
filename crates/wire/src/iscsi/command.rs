//! SCSI Command and its Data-Out PDUs, as the data path reads them (RFC 7143 sections 11.3 and
//! 11.7).

use super::ahs;
use super::bhs::*;
use super::pdu::Pdu;
use crate::bytes::{get_array, put};
use crate::error::WireError;

/// A task attribute (RFC 7143 section 11.3.1).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Attribute {
    /// No attribute given; treated as simple.
    #[default]
    Untagged,
    /// May be reordered.
    Simple,
    /// A barrier.
    Ordered,
    /// Overtakes queued commands.
    HeadOfQueue,
    /// Runs during an auto contingent allegiance.
    Aca,
}

impl Attribute {
    fn from_bits(bits: u8) -> Result<Attribute, WireError> {
        match bits & 7 {
            0 => Ok(Attribute::Untagged),
            1 => Ok(Attribute::Simple),
            2 => Ok(Attribute::Ordered),
            3 => Ok(Attribute::HeadOfQueue),
            4 => Ok(Attribute::Aca),
            _ => Err(WireError::bad("ATTR", 1)),
        }
    }
}

/// SCSI Command without its additional headers (see [`CommandPdu`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ScsiCommand {
    /// I: deliver at once.
    pub immediate: bool,
    /// F: no unsolicited Data-Out PDUs follow.
    pub last: bool,
    /// R: data is expected from the target.
    pub read: bool,
    /// W: data is sent to the target.
    pub write: bool,
    pub attribute: Attribute,
    /// Logical unit number, as on the wire.
    pub lun: [u8; 8],
    /// Initiator task tag; never [`TAG_NONE`].
    pub task_tag: u32,
    /// Expected data transfer length in bytes; of the write half when both R and W are set.
    pub transfer_len: u32,
    pub cmd_sn: u32,
    pub exp_stat_sn: u32,
    /// The first sixteen bytes of the CDB.
    pub cdb: [u8; 16],
    /// Bytes of additional headers that follow.
    pub ahs_len: u16,
    /// Bytes of immediate data that follow.
    pub data_len: u32,
}

impl Pdu for ScsiCommand {
    const OPCODE: u8 = opcode::SCSI_COMMAND;

    fn encode(&self, out: &mut Bhs) {
        let mut flags = self.attribute as u8;
        for (on, bit) in [(self.last, 0x80), (self.read, 0x40), (self.write, 0x20)] {
            flags |= if on { bit } else { 0 };
        }
        start(out, op_byte(Self::OPCODE, self.immediate), flags, self.data_len, self.task_tag);
        out[4] = u8::try_from(self.ahs_len / 4).unwrap_or(u8::MAX);
        set_lun(out, self.lun);
        set32::<20>(out, self.transfer_len);
        set32::<24>(out, self.cmd_sn);
        set32::<28>(out, self.exp_stat_sn);
        put::<32, 16, BHS_LEN>(out, self.cdb);
    }

    fn decode(bhs: &Bhs) -> Result<ScsiCommand, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        let command = ScsiCommand {
            immediate: immediate_of(bhs),
            last: bhs[1] & 0x80 != 0,
            read: bhs[1] & 0x40 != 0,
            write: bhs[1] & 0x20 != 0,
            attribute: Attribute::from_bits(bhs[1])?,
            lun: lun_of(bhs),
            task_tag: real_task_tag(bhs)?,
            transfer_len: be32::<20>(bhs),
            cmd_sn: be32::<24>(bhs),
            exp_stat_sn: be32::<28>(bhs),
            cdb: get_array::<32, 16, BHS_LEN>(bhs),
            ahs_len: u16::from(bhs[4]) * 4,
            data_len: data_len_of(bhs),
        };
        if !command.write && !command.last {
            return Err(WireError::bad("F", 1));
        }
        let data_max = if command.write { command.transfer_len } else { 0 };
        if command.data_len > data_max {
            return Err(WireError::bad("DataSegmentLength", 5));
        }
        Ok(command)
    }
}

/// A SCSI Command with its additional headers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CommandPdu<'a> {
    pub header: ScsiCommand,
    /// CDB bytes after the sixteenth; empty for ordinary CDBs.
    pub cdb_rest: &'a [u8],
    /// Read length in bytes of a bidirectional command; None when the AHS is absent.
    pub read_len: Option<u32>,
}

impl<'a> CommandPdu<'a> {
    /// Reads the header and the additional headers, whose length must match the header.
    pub fn decode(bhs: &Bhs, ahs: &'a [u8]) -> Result<CommandPdu<'a>, WireError> {
        let header = ScsiCommand::decode(bhs)?;
        if usize::from(header.ahs_len) != ahs.len() {
            return Err(WireError::bad("TotalAHSLength", 4));
        }
        let found = if ahs.is_empty() { ahs::Ahs::default() } else { ahs::decode(ahs)? };
        Ok(CommandPdu { header, cdb_rest: found.cdb_rest, read_len: found.read_len })
    }

    /// Bytes the target may return: EDTL of a read, the AHS of a bidirectional command.
    pub fn read_limit(&self) -> u32 {
        match (self.header.read, self.header.write) {
            (true, true) => self.read_len.unwrap_or(0),
            (true, false) => self.header.transfer_len,
            (false, _) => 0,
        }
    }

    /// Bytes the initiator offers to send.
    pub fn write_limit(&self) -> u32 {
        if self.header.write { self.header.transfer_len } else { 0 }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DataOut {
    /// F: last PDU of the sequence an R2T requested, or of the unsolicited data.
    pub last: bool,
    /// Logical unit number; meaningful with a target transfer tag.
    pub lun: [u8; 8],
    pub task_tag: u32,
    /// Tag of the R2T answered; [`TAG_NONE`] for unsolicited data.
    pub target_tag: u32,
    pub exp_stat_sn: u32,
    /// Number of this PDU within its sequence, from 0.
    pub data_sn: u32,
    /// Where the data belongs in the command's buffer, bytes.
    pub offset: u32,
    /// Bytes of data that follow.
    pub data_len: u32,
}

impl Pdu for DataOut {
    const OPCODE: u8 = opcode::DATA_OUT;

    fn encode(&self, out: &mut Bhs) {
        let flags = if self.last { FINAL } else { 0 };
        start(out, Self::OPCODE, flags, self.data_len, self.task_tag);
        set_lun(out, self.lun);
        set32::<20>(out, self.target_tag);
        set32::<28>(out, self.exp_stat_sn);
        set32::<36>(out, self.data_sn);
        set32::<40>(out, self.offset);
    }

    fn decode(bhs: &Bhs) -> Result<DataOut, WireError> {
        expect_opcode(bhs, Self::OPCODE)?;
        expect_no_ahs(bhs)?;
        let out = DataOut {
            last: bhs[1] & FINAL != 0,
            lun: lun_of(bhs),
            task_tag: real_task_tag(bhs)?,
            target_tag: be32::<20>(bhs),
            exp_stat_sn: be32::<28>(bhs),
            data_sn: be32::<36>(bhs),
            offset: be32::<40>(bhs),
            data_len: data_len_of(bhs),
        };
        if out.offset.checked_add(out.data_len).is_none() {
            return Err(WireError::bad("BufferOffset", 40));
        }
        Ok(out)
    }
}
