//! Logical unit numbers in their eight bytes (SAM-5 section 4.7).
//!
//! ```text
//! byte 0:  00b bus(0)  | byte 1 LUN           peripheral, LUN 0 .. 255
//!          01b LUN high 6 | byte 1 LUN low     flat, LUN 0 .. 16383
//!          10b target(0)| bus(0) LUN 5 bits    logical unit addressing, LUN 0 .. 31
//!          11b 01b 2h   | bytes 1 .. 3 LUN     extended flat, LUN 0 .. 2^24 - 1
//!          11b 10b 2h   | bytes 1 .. 5 LUN     long extended flat; no unit is beyond 2^24 - 1
//!          11b 00b 1h   | byte 1               well-known logical unit
//! ```
//! Every form of one number names the same logical unit; deeper levels must be zero.

/// Largest number; more cannot be addressed in one level.
pub const LUN_MAX: u32 = 0x00ff_ffff;

/// The method by which REPORT LUNS writes numbers. A number that does not fit a method is written
/// by the next one. Every method is understood, whichever is written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Addressing {
    /// Peripheral device addressing up to 255, flat up to 16,383, then extended flat.
    #[default]
    Peripheral,
    /// Flat space addressing up to 16,383, then extended flat.
    Flat,
    /// Extended flat space addressing for every number.
    Extended,
}

impl Addressing {
    /// Every method, in the order in which they are tried.
    pub const ALL: [Addressing; 3] =
        [Addressing::Peripheral, Addressing::Flat, Addressing::Extended];

    /// The word in configurations and lists.
    pub const fn name(self) -> &'static str {
        match self {
            Addressing::Peripheral => "peripheral",
            Addressing::Flat => "flat",
            Addressing::Extended => "extended",
        }
    }
}

/// A logical unit number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Lun(u32);

/// Why eight bytes name no logical unit here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LunError {
    /// A well-known logical unit, by its number (1 is REPORT LUNS).
    WellKnown(u8),
    /// Another bus, a deeper level, or a form that is not served.
    Unsupported,
}

impl Lun {
    /// A number; None above [`LUN_MAX`].
    pub const fn new(number: u32) -> Option<Lun> {
        if number <= LUN_MAX { Some(Lun(number)) } else { None }
    }

    pub const fn number(self) -> u32 {
        self.0
    }

    /// Reads any of the forms.
    pub fn decode(bytes: [u8; 8]) -> Result<Lun, LunError> {
        let [a, b, c, d, e, f, deep @ ..] = bytes;
        let one_level = c == 0 && d == 0;
        if deep != [0; 2] {
            return Err(LunError::Unsupported);
        }
        if (a, b, c) == (0xe2, 0, 0) {
            return Ok(Lun(u32::from_be_bytes([0, d, e, f])));
        }
        if (e, f) != (0, 0) {
            return Err(LunError::Unsupported);
        }
        match (a >> 6, a & 0x3f) {
            (0, 0) if one_level => Ok(Lun(u32::from(b))),
            (1, high) if one_level => Ok(Lun(u32::from_be_bytes([0, 0, high, b]))),
            (2, 0) if one_level && b >> 5 == 0 => Ok(Lun(u32::from(b & 0x1f))),
            (3, 0x12) => Ok(Lun(u32::from_be_bytes([0, b, c, d]))),
            (3, 0x01) if one_level => Err(LunError::WellKnown(b)),
            _ => Err(LunError::Unsupported),
        }
    }

    /// Writes the shortest form: peripheral, flat, extended flat.
    pub const fn encode(self) -> [u8; 8] {
        self.encode_as(Addressing::Peripheral)
    }

    /// Writes the form of a method, or of the next one that can hold the number.
    pub const fn encode_as(self, addressing: Addressing) -> [u8; 8] {
        let [_, x, y, z] = self.0.to_be_bytes();
        match (addressing, self.0) {
            (Addressing::Peripheral, 0..=0xff) => [0, z, 0, 0, 0, 0, 0, 0],
            (Addressing::Peripheral | Addressing::Flat, 0..=0x3fff) => {
                [0x40 | y, z, 0, 0, 0, 0, 0, 0]
            }
            _ => [0xd2, x, y, z, 0, 0, 0, 0],
        }
    }
}

impl std::fmt::Display for Lun {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fuzzing::Prng;

    #[test]
    fn lun_forms_are_decoded_from_known_bytes() {
        for (head, want) in [
            ([0x00, 0x05, 0, 0], Ok(Lun(5))),
            ([0x40, 0x05, 0, 0], Ok(Lun(5))),
            ([0x80, 0x05, 0, 0], Ok(Lun(5))),
            ([0xd2, 0, 0, 0x05], Ok(Lun(5))),
            ([0x7f, 0xff, 0, 0], Ok(Lun(16383))),
            ([0xd2, 0xff, 0xff, 0xff], Ok(Lun(LUN_MAX))),
            ([0xc1, 0x01, 0, 0], Err(LunError::WellKnown(1))),
            ([0x01, 0x05, 0, 0], Err(LunError::Unsupported)),
            ([0x81, 0x05, 0, 0], Err(LunError::Unsupported)),
            ([0x80, 0x25, 0, 0], Err(LunError::Unsupported)),
            ([0x00, 0x05, 0, 1], Err(LunError::Unsupported)),
            ([0xff, 0, 0, 0], Err(LunError::Unsupported)),
            ([0xe2, 0, 0, 0], Ok(Lun(0))),
            ([0xe2, 0, 1, 0], Err(LunError::Unsupported)),
        ] {
            let mut bytes = [0; 8];
            bytes[..4].copy_from_slice(&head);
            assert_eq!(Lun::decode(bytes), want, "{head:02x?}");
            bytes[7] = 1;
            assert_eq!(Lun::decode(bytes), Err(LunError::Unsupported));
        }
    }

    #[test]
    fn lun_numbers_decode_as_encoded() {
        let mut rng = Prng::new(8);
        let random = (0..1000).map(|_| rng.below(LUN_MAX as usize + 1) as u32);
        for number in (0..0x4100).chain(random).chain([LUN_MAX]) {
            let lun = Lun::new(number).unwrap();
            for addressing in Addressing::ALL {
                assert_eq!(Lun::decode(lun.encode_as(addressing)), Ok(lun));
            }
        }
        assert_eq!(Lun::decode([0xe2, 0, 0, 1, 2, 3, 0, 0]), Ok(Lun(0x01_02_03)));
        assert_eq!(Lun::new(LUN_MAX + 1), None);
        assert_eq!(Lun(255).encode(), [0, 255, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun(256).encode(), [0x41, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun(16384).encode(), [0xd2, 0, 0x40, 0, 0, 0, 0, 0]);
        assert_eq!(Lun(5).encode_as(Addressing::Flat), [0x40, 5, 0, 0, 0, 0, 0, 0]);
        assert_eq!(Lun(16384).encode_as(Addressing::Flat), Lun(16384).encode());
        assert_eq!(Lun(5).encode_as(Addressing::Extended), [0xd2, 0, 0, 5, 0, 0, 0, 0]);
    }
}
