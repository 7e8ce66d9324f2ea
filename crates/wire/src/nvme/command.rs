//! Submission and completion queue entries.

use super::page::{Page, field};
use super::status::Status;

pub const COMMAND_LEN: usize = 64;

pub const COMPLETION_LEN: usize = 16;

/// Where a command's data is: SGL entry 1, the only one that Fabrics know.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sgl {
    /// Address, or offset in the capsule.
    pub address: u64,
    /// Bytes.
    pub len: u32,
    /// Type and sub type.
    pub kind: u8,
}

impl Sgl {
    /// Data in the capsule: a data block at an offset.
    pub const IN_CAPSULE: u8 = 0x01;
    /// Data that the transport carries.
    pub const TRANSPORT: u8 = 0x5a;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Command {
    pub opcode: u8,
    /// FUSE in bits 1:0, PSDT in bits 7:6.
    pub flags: u8,
    /// CID.
    pub id: u16,
    /// NSID; of a Fabrics command its first byte is FCTYPE.
    pub nsid: u32,
    /// The data pointer.
    pub sgl: Sgl,
    /// Command dwords 10 to 15.
    pub dwords: [u32; 6],
}

impl Command {
    pub fn decode(b: &[u8; COMMAND_LEN]) -> Command {
        let [opcode, flags, ..] = *b;
        let [kind] = field(b, 39);
        let dword = |i: usize| u32::from_le_bytes(field(b, 40 + 4 * i));
        Command {
            opcode,
            flags,
            id: u16::from_le_bytes(field(b, 2)),
            nsid: u32::from_le_bytes(field(b, 4)),
            sgl: Sgl {
                address: u64::from_le_bytes(field(b, 24)),
                len: u32::from_le_bytes(field(b, 32)),
                kind,
            },
            dwords: std::array::from_fn(dword),
        }
    }

    pub fn encode(&self) -> Vec<u8> {
        let mut page = Page::new(COMMAND_LEN);
        page.u8(0, self.opcode).u8(1, self.flags).u16(2, self.id).u32(4, self.nsid);
        page.u64(24, self.sgl.address).u32(32, self.sgl.len).u8(39, self.sgl.kind);
        for (i, dword) in self.dwords.iter().enumerate() {
            page.u32(40 + 4 * i, *dword);
        }
        page.done()
    }

    /// FUSE: 0 for a command of its own, 1 and 2 for the first and second of a pair.
    pub fn fuse(&self) -> u8 {
        self.flags & 3
    }

    pub fn fabrics_type(&self) -> u8 {
        let [kind, ..] = self.nsid.to_le_bytes();
        kind
    }

    /// Dwords 10 and 11 as one number: SLBA.
    pub fn long(&self) -> u64 {
        let [low, high, ..] = self.dwords;
        u64::from(high) << 32 | u64::from(low)
    }

    /// The bytes of dwords 10 to 15.
    pub fn tail(&self) -> [u8; 24] {
        let mut out = [0; 24];
        let bytes = self.dwords.iter().flat_map(|d| d.to_le_bytes());
        out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        out
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Completion {
    /// Dwords 0 and 1: the command-specific result.
    pub result: u64,
    /// SQHD.
    pub head: u16,
    /// CID.
    pub id: u16,
    /// How it ended.
    pub status: Status,
}

impl Completion {
    pub fn decode(b: &[u8; COMPLETION_LEN]) -> Completion {
        Completion {
            result: u64::from_le_bytes(field(b, 0)),
            head: u16::from_le_bytes(field(b, 8)),
            id: u16::from_le_bytes(field(b, 12)),
            status: Status(u16::from_le_bytes(field(b, 14)) >> 1),
        }
    }

    pub fn encode(&self) -> [u8; COMPLETION_LEN] {
        let mut out = [0; COMPLETION_LEN];
        let status = (self.status.0 << 1).to_le_bytes();
        let tail = self.id.to_le_bytes().into_iter().chain(status);
        let head = self.head.to_le_bytes().into_iter().chain([0; 2]);
        let bytes = self.result.to_le_bytes().into_iter().chain(head).chain(tail);
        out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_fields_have_the_offsets_of_the_standard() {
        let command = Command {
            opcode: 2,
            flags: 0x41,
            id: 0x0201,
            nsid: 0x0403_0201,
            sgl: Sgl { address: 8, len: 0x1000, kind: Sgl::TRANSPORT },
            dwords: [1, 2, 3, 4, 5, 0x0f0e_0d0c],
        };
        let bytes = command.encode();
        assert_eq!((&bytes[..4], bytes[39], bytes[63]), (&[2, 0x41, 1, 2][..], 0x5a, 0x0f));
        assert_eq!(Command::decode(bytes.first_chunk().unwrap()), command);
        assert_eq!((command.fuse(), command.fabrics_type(), command.long()), (1, 1, 2 << 32 | 1));
        let end = Completion { result: 7, head: 3, id: 9, status: Status::LBA_OUT_OF_RANGE };
        let bytes = end.encode();
        assert_eq!((bytes[8], bytes[12], bytes[14], bytes[15]), (3, 9, 0, 0x81));
        assert_eq!(Completion::decode(&bytes), end);
    }
}
