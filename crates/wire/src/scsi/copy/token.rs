//! The ROD token (SPC-4 5.17.6.4.2, SBC-3 4.28.4), which an initiator carries from one unit to
//! another instead of the data.
//!
//! ```text
//!     0 ROD TYPE (4)   4 reserved (2)   6 ROD TOKEN LENGTH = 01F8h (2)
//!     8 COPY MANAGER ROD TOKEN IDENTIFIER (8)
//!    16 CREATOR LOGICAL UNIT DESCRIPTOR (32)
//!    48 NUMBER OF BYTES REPRESENTED (16)
//!    64 ROD token specific data (32)
//!    96 device type specific data (32): laid out as READ CAPACITY(16) data
//!   128 target device descriptor (4 and the name), then extended data: the secret
//! ```

use super::list::CSCD_LEN;
use crate::scsi::codes::asc;
use crate::scsi::sense::Sense;

pub const ROD_TOKEN_LEN: usize = 512;
/// ROD TOKEN LENGTH: the bytes after the field.
const LENGTH: u16 = 0x01f8;
/// Where the target device descriptor begins.
const TARGET_AT: usize = 128;
/// Bytes of the target's name that fit before the secret.
const NAME_LEN_MAX: usize = ROD_TOKEN_LEN - TARGET_AT - 4 - TOKEN_SECRET_LEN;
/// Bytes at the end of a token that cannot be guessed.
pub const TOKEN_SECRET_LEN: usize = 128;

/// Types of representations of data that are known here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RodType {
    /// 00800001h: the data as it was; the token dies when the data changes.
    ChangeVulnerable,
    /// 0080FFFFh: any point in time copy; a token never has this type.
    AnyPointInTime,
    /// FFFF0001h: blocks of zeros, made by the initiator itself.
    Zero,
}

impl RodType {
    pub const fn code(self) -> u32 {
        match self {
            RodType::ChangeVulnerable => 0x0080_0001,
            RodType::AnyPointInTime => 0x0080_ffff,
            RodType::Zero => 0xffff_0001,
        }
    }

    pub fn from_code(code: u32) -> Option<RodType> {
        const ALL: [RodType; 3] =
            [RodType::ChangeVulnerable, RodType::AnyPointInTime, RodType::Zero];
        ALL.into_iter().find(|t| t.code() == code)
    }
}

/// A token as its maker sees it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RodToken {
    /// COPY MANAGER ROD TOKEN IDENTIFIER.
    pub id: u64,
    /// CREATOR LOGICAL UNIT DESCRIPTOR.
    pub creator: [u8; CSCD_LEN],
    /// Bytes represented.
    pub bytes: u128,
    /// Logical block of the creator, bytes.
    pub block_len: u32,
    /// Name of the target device; cut to 252 bytes.
    pub target: String,
    /// The secret that makes the token hard to guess.
    pub secret: [u8; TOKEN_SECRET_LEN],
}

impl RodToken {
    /// The token's bytes, of type [`RodType::ChangeVulnerable`].
    pub fn encode(&self) -> [u8; ROD_TOKEN_LEN] {
        let name: Vec<u8> = self.target.bytes().take(NAME_LEN_MAX).collect();
        let mut out = Vec::with_capacity(ROD_TOKEN_LEN);
        out.extend(RodType::ChangeVulnerable.code().to_be_bytes());
        out.extend([0, 0]);
        out.extend(LENGTH.to_be_bytes());
        out.extend(self.id.to_be_bytes());
        out.extend(self.creator);
        out.extend(self.bytes.to_be_bytes());
        out.extend([0; 32]);
        // The bytes from here on depend on the device type: its logical block first.
        out.extend(self.block_len.to_be_bytes());
        out.resize(TARGET_AT, 0);
        // Protocol iSCSI, UTF-8; PIV, target device, SCSI name string.
        out.extend([0x53, 0xa8, 0, u8::try_from(name.len()).unwrap_or(0)]);
        out.extend(name);
        out.resize(ROD_TOKEN_LEN - TOKEN_SECRET_LEN, 0);
        out.extend(self.secret);
        let mut token = [0; ROD_TOKEN_LEN];
        token.iter_mut().zip(out).for_each(|(to, from)| *to = from);
        token
    }

    /// Type and identifier of a token that an initiator presents. Its other bytes are not checked
    /// here: they must equal those that the creator remembers.
    pub fn parse(bytes: &[u8; ROD_TOKEN_LEN]) -> Result<(RodType, u64), Sense> {
        let code = u32::from_be_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let kind = match RodType::from_code(code) {
            Some(kind @ (RodType::ChangeVulnerable | RodType::Zero)) => kind,
            _ => return Err(Sense::new(asc::TOKEN_TYPE)),
        };
        if u16::from_be_bytes([bytes[6], bytes[7]]) != LENGTH {
            return Err(Sense::new(asc::TOKEN_LENGTH));
        }
        Ok((kind, u64::from_be_bytes(crate::bytes::get_array::<8, 8, ROD_TOKEN_LEN>(bytes))))
    }

    /// The well-known token for zeros (SBC-3 4.28.4.4).
    pub fn zero() -> [u8; ROD_TOKEN_LEN] {
        let mut out = [0; ROD_TOKEN_LEN];
        crate::bytes::put::<0, 4, ROD_TOKEN_LEN>(&mut out, RodType::Zero.code().to_be_bytes());
        crate::bytes::put::<6, 2, ROD_TOKEN_LEN>(&mut out, LENGTH.to_be_bytes());
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_fields_have_the_offsets_of_the_standard() {
        let token = RodToken {
            id: 0x0102_0304_0506_0708,
            creator: [0xe4; CSCD_LEN],
            bytes: 0x1_0000_0000_0000_0200,
            block_len: 4096,
            target: "iqn.x".to_owned(),
            secret: [0x5a; TOKEN_SECRET_LEN],
        };
        let bytes = token.encode();
        assert_eq!(bytes[..8], [0x00, 0x80, 0x00, 0x01, 0, 0, 0x01, 0xf8]);
        assert_eq!(bytes[8..16], [1, 2, 3, 4, 5, 6, 7, 8]);
        assert_eq!(bytes[16..48], [0xe4; 32]);
        assert_eq!(bytes[48..64], [0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 2, 0]);
        assert_eq!(bytes[64..96], [0; 32]);
        assert_eq!(bytes[96..100], [0, 0, 0x10, 0]);
        assert_eq!(bytes[100..128], [0; 28]);
        assert_eq!(bytes[128..137], *b"\x53\xa8\0\x05iqn.x");
        assert_eq!(bytes[384..], [0x5a; 128]);
        assert_eq!(RodToken::parse(&bytes), Ok((RodType::ChangeVulnerable, token.id)));
        let long = RodToken { target: "n".repeat(300), ..token };
        assert_eq!(long.encode()[384..], [0x5a; 128]);
    }

    #[test]
    fn tokens_of_other_types_and_lengths_are_distinguished() {
        assert_eq!(RodToken::parse(&RodToken::zero()), Ok((RodType::Zero, 0)));
        let mut other = RodToken::zero();
        other[6] = 0;
        assert_eq!(RodToken::parse(&other).unwrap_err().code, asc::TOKEN_LENGTH);
        for code in [0u32, 0x0001_0000, 0x0080_0000, 0x0080_0002, 0x0080_ffff, 0xffff_ffff] {
            let mut other = RodToken::zero();
            other[..4].copy_from_slice(&code.to_be_bytes());
            assert_eq!(RodToken::parse(&other).unwrap_err().code, asc::TOKEN_TYPE, "{code:x}");
        }
    }
}
