//! Protection information (SBC-3 section 4.22): eight bytes with each logical block.
//!
//! ```text
//!   LOGICAL BLOCK GUARD (2) | LOGICAL BLOCK APPLICATION TAG (2) | LOGICAL BLOCK REFERENCE TAG (4)
//! ```
//! The guard is the CRC of the block's data with polynomial 8BB7h. The meaning of the reference tag
//! depends on the type: 1 the low half of the LBA, 2 a number that the initiator gives for the
//! first block and that grows by one, 3 the initiator's own. An application tag of FFFFh (and for
//! type 3 also a reference tag of FFFFFFFFh) disables all checks.

/// Bytes of protection information with each logical block.
pub const TUPLE_LEN: usize = 8;

/// Protection information of one logical block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// CRC of the block.
    pub guard: u16,
    /// Application tag.
    pub app: u16,
    pub reference: u32,
}

impl Tuple {
    /// The protection information of a formatted or unmapped block: nothing is checked.
    pub const ESCAPE: Tuple = Tuple { guard: 0xffff, app: 0xffff, reference: 0xffff_ffff };

    pub fn decode(b: &[u8; TUPLE_LEN]) -> Tuple {
        Tuple {
            guard: u16::from_be_bytes([b[0], b[1]]),
            app: u16::from_be_bytes([b[2], b[3]]),
            reference: u32::from_be_bytes([b[4], b[5], b[6], b[7]]),
        }
    }

    pub fn encode(&self) -> [u8; TUPLE_LEN] {
        let ([g0, g1], [a0, a1]) = (self.guard.to_be_bytes(), self.app.to_be_bytes());
        let [r0, r1, r2, r3] = self.reference.to_be_bytes();
        [g0, g1, a0, a1, r0, r1, r2, r3]
    }

    /// Whether the tags turn all checks off.
    pub fn is_escape(&self, kind: ProtectionType) -> bool {
        self.app == 0xffff && (kind != ProtectionType::Three || self.reference == 0xffff_ffff)
    }
}

/// Types of protection that a medium can be formatted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProtectionType {
    /// The reference tag is the low half of the LBA.
    One = 1,
    /// The reference tag accompanies the command; only 32-byte commands move the information.
    Two = 2,
    /// The reference tag is not checked.
    Three = 3,
}

impl ProtectionType {
    /// By its number, 1 to 3.
    pub fn from_number(number: u8) -> Option<ProtectionType> {
        match number {
            1 => Some(ProtectionType::One),
            2 => Some(ProtectionType::Two),
            3 => Some(ProtectionType::Three),
            _ => None,
        }
    }

    /// P_TYPE of READ CAPACITY(16).
    pub fn p_type(self) -> u8 {
        self as u8 - 1
    }
}

/// The checks that RDPROTECT, WRPROTECT, VRPROTECT or ORPROTECT select (SBC-3 tables 94 to 100).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Protect {
    /// The information is transferred with each block.
    pub moves: bool,
    pub guard: bool,
    /// The application tag is checked, where its value is known.
    pub app: bool,
    pub reference: bool,
}

impl Protect {
    /// The meaning of a field's three bits; None for reserved values. With 0 no protection
    /// information is transferred, and that on the medium is checked on reads.
    pub fn from_field(field: u8) -> Option<Protect> {
        let (moves, guard, app, reference) = match field {
            0 => (false, true, true, true),
            1 | 5 => (true, true, true, true),
            2 => (true, false, true, true),
            3 => (true, false, false, false),
            4 => (true, true, false, false),
            _ => return None,
        };
        Some(Protect { moves, guard, app, reference })
    }

    /// The fields of the received tuples that VERIFY compares with those of the medium, by
    /// VRPROTECT (SBC-4 5.36, the last table, with ATO one); None for reserved values. With 0 no
    /// tuples are sent.
    pub fn compared(field: u8) -> Option<Protect> {
        let (moves, guard, app, reference) = match field {
            0 => (false, false, false, false),
            1 | 3 | 4 => (true, true, true, true),
            2 => (true, false, true, true),
            5 => (true, true, true, false),
            _ => return None,
        };
        Some(Protect { moves, guard, app, reference })
    }
}

/// Polynomial of the guard (SBC-3 4.22.4.2).
const POLYNOMIAL: u16 = 0x8bb7;

/// Bytes looked up at a time.
const SLICES: usize = 16;

/// Entry `[i][b]` is the CRC of byte `b` followed by `i` zero bytes.
static TABLES: [[u16; 256]; SLICES] = tables();

const fn tables() -> [[u16; 256]; SLICES] {
    let mut out = [[0u16; 256]; SLICES];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u16) << 8;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 0x8000 != 0 { (crc << 1) ^ POLYNOMIAL } else { crc << 1 };
            bit += 1;
        }
        out[0][byte] = crc;
        byte += 1;
    }
    let mut slice = 1;
    while slice < SLICES {
        let mut byte = 0;
        while byte < 256 {
            let before = out[slice - 1][byte];
            out[slice][byte] = (before << 8) ^ out[0][(before >> 8) as usize];
            byte += 1;
        }
        slice += 1;
    }
    out
}

/// The guard of a block's data: initial value 0, not reflected, not inverted.
pub fn guard(data: &[u8]) -> u16 {
    guard_more(0, data)
}

/// Continues the guard `crc` over `data`.
pub fn guard_more(mut crc: u16, data: &[u8]) -> u16 {
    let (chunks, rest) = data.as_chunks::<SLICES>();
    for chunk in chunks {
        let [high, low] = crc.to_be_bytes();
        let mut sum =
            TABLES[15][usize::from(chunk[0] ^ high)] ^ TABLES[14][usize::from(chunk[1] ^ low)];
        let mut at = 2;
        while at < SLICES {
            sum ^= TABLES[SLICES - 1 - at][usize::from(chunk[at])];
            at += 1;
        }
        crc = sum;
    }
    for byte in rest {
        let [high, low] = crc.to_be_bytes();
        crc = (u16::from(low) << 8) ^ TABLES[0][usize::from(high ^ byte)];
    }
    crc
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::Prng;

    /// Bit by bit, as the polynomial is written.
    fn slow(data: &[u8]) -> u16 {
        let mut crc = 0u16;
        for byte in data {
            for bit in (0..8).rev() {
                let top = (crc >> 15) ^ u16::from((byte >> bit) & 1);
                crc = (crc << 1) ^ if top != 0 { POLYNOMIAL } else { 0 };
            }
        }
        crc
    }

    #[test]
    fn guard_crc_matches_the_vectors_of_the_standard() {
        // SBC-3 table 25, and the check value of the catalogues.
        let rising: Vec<u8> = (0..32).collect();
        let falling: Vec<u8> = (0..32).map(|i| 0xff - i).collect();
        let mut two = [0; 32];
        (two[0], two[1]) = (0xff, 0xff);
        let cases: [(&[u8], u16); 6] = [
            (&[0; 32], 0x0000),
            (&[0xff; 32], 0xa293),
            (&rising, 0x0224),
            (&two, 0x21b8),
            (&falling, 0xa0b7),
            (b"123456789", 0xd0db),
        ];
        for (data, want) in cases {
            assert_eq!(guard(data), want);
        }
    }

    #[test]
    fn fast_and_slow_guard_agree_at_every_length_and_split() {
        let mut rng = Prng::new(7);
        let mut data = vec![0; 600];
        rng.fill(&mut data);
        for len in (0..80).chain([511, 512, 520, 600]) {
            let data = &data[..len];
            let want = slow(data);
            assert_eq!(guard(data), want, "{len}");
            let (a, b) = data.split_at(rng.below(len + 1));
            assert_eq!(guard_more(guard(a), b), want);
        }
    }

    #[test]
    fn protection_tuples_are_encoded_and_escapes_recognised() {
        let tuple = Tuple { guard: 0x1234, app: 0x5678, reference: 0x9abc_def0 };
        let bytes = [0x12, 0x34, 0x56, 0x78, 0x9a, 0xbc, 0xde, 0xf0];
        assert_eq!((tuple.encode(), Tuple::decode(&bytes)), (bytes, tuple));
        let half = Tuple { app: 0xffff, ..tuple };
        assert!(half.is_escape(ProtectionType::One) && half.is_escape(ProtectionType::Two));
        assert!(!half.is_escape(ProtectionType::Three) && !tuple.is_escape(ProtectionType::One));
        assert!(Tuple::ESCAPE.is_escape(ProtectionType::Three));
        assert_eq!(Protect::from_field(6), None);
        assert_eq!(Protect::from_field(1), Protect::from_field(5));
        assert!(!Protect::from_field(0).unwrap().moves);
        assert_eq!(ProtectionType::from_number(3).map(ProtectionType::p_type), Some(2));
        assert_eq!(ProtectionType::from_number(0), None);
    }
}
