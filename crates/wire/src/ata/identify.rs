//! IDENTIFY DEVICE data: 256 words, little-endian (ACS-3 section 7.12.7).

use crate::error::WireError;

pub const IDENTIFY_LEN: usize = 512;

/// The TRIM support of a device.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Trim {
    /// Most blocks of 512 bytes of ranges that a command may have; 0: the device does not report
    /// it.
    pub blocks_max: u16,
    /// DRAT: a trimmed block reads the same every time.
    pub deterministic: bool,
    /// RZAT: a trimmed block reads as zeroes.
    pub zeroes: bool,
}

/// The identity and the features that a device reports.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Identify {
    /// Up to 40 characters.
    pub model: String,
    /// Up to 20 characters.
    pub serial: String,
    /// Up to 8 characters.
    pub firmware: String,
    pub sectors: u64,
    /// Bytes of a logical sector: 512, or more and even.
    pub sector_bytes: u32,
    /// Logical sectors of a physical one, as a power of two.
    pub physical_exponent: u8,
    /// In which of a physical sector's places sector 0 is.
    pub alignment: u16,
    /// LBA48; without it there are 28 bits.
    pub extended: bool,
    /// FLUSH CACHE.
    pub flush: bool,
    /// FLUSH CACHE EXT.
    pub flush_ext: bool,
    /// A volatile write cache, and whether it is on.
    pub write_cache: Option<bool>,
    pub trim: Option<Trim>,
    /// 1: does not turn; above 0x400: turns a minute; 0: not reported.
    pub rotation: u16,
    /// World wide name; 0: none.
    pub wwn: u64,
    /// Commands that the device takes at a time (NCQ); 1: one.
    pub queue_depth: u8,
}

/// Words, by their numbers.
mod word {
    pub const GENERAL: usize = 0;
    pub const SERIAL: usize = 10;
    pub const FIRMWARE: usize = 23;
    pub const MODEL: usize = 27;
    pub const MULTIPLE: usize = 47;
    pub const CAPABILITIES: usize = 49;
    pub const CAPABILITIES_2: usize = 50;
    pub const VALID: usize = 53;
    pub const SECTORS_28: usize = 60;
    pub const ADDITIONAL: usize = 69;
    pub const QUEUE: usize = 75;
    pub const SATA: usize = 76;
    pub const MAJOR: usize = 80;
    pub const SUPPORTED: usize = 82;
    pub const SUPPORTED_2: usize = 83;
    pub const SUPPORTED_3: usize = 84;
    pub const ENABLED: usize = 85;
    pub const ENABLED_2: usize = 86;
    pub const ENABLED_3: usize = 87;
    pub const SECTORS_48: usize = 100;
    pub const TRIM_BLOCKS: usize = 105;
    pub const SECTOR_SIZE: usize = 106;
    pub const WWN: usize = 108;
    pub const SECTOR_WORDS: usize = 117;
    pub const DATA_SET: usize = 169;
    pub const ALIGNMENT: usize = 209;
    pub const ROTATION: usize = 217;
    pub const INTEGRITY: usize = 255;
}

/// Bit 14 set and bit 15 clear: the word is valid.
const VALID: u16 = 0x4000;
const VALID_MASK: u16 = 0xC000;
const LBA: u16 = 1 << 9;
const WRITE_CACHE: u16 = 1 << 5;
const LBA48: u16 = 1 << 10;
const FLUSH: u16 = 1 << 12;
const FLUSH_EXT: u16 = 1 << 13;
const HAS_WWN: u16 = 1 << 8;
const NCQ: u16 = 1 << 8;
const DRAT: u16 = 1 << 14;
const RZAT: u16 = 1 << 5;
const LONG_SECTORS: u16 = 1 << 12;
const MANY_A_PHYSICAL: u16 = 1 << 13;
/// The largest count in 28 bits, which is one less than they can address.
const SECTORS_28_MAX: u64 = 0x0FFF_FFFF;
/// ACS-3.
const MAJOR: u16 = 1 << 10;
const SIGNATURE: u8 = 0xA5;

struct Words([u16; IDENTIFY_LEN / 2]);

impl Words {
    fn many<const N: usize>(&self, at: usize) -> u64 {
        (0..N).rev().fold(0, |sum, i| sum << 16 | u64::from(self.0[at + i]))
    }

    fn set<const N: usize>(&mut self, at: usize, value: u64) {
        for (i, to) in self.0[at..at + N].iter_mut().enumerate() {
            let [a, b, ..] = (value >> (16 * i)).to_le_bytes();
            *to = u16::from_le_bytes([a, b]);
        }
    }

    /// The first of two characters is the upper half of its word.
    fn text(&self, at: usize, words: usize) -> String {
        let bytes = self.0[at..at + words].iter().flat_map(|word| word.to_be_bytes());
        let plain = |byte: u8| if byte.is_ascii_graphic() { char::from(byte) } else { ' ' };
        bytes.map(plain).collect::<String>().trim().to_owned()
    }

    fn set_text(&mut self, at: usize, words: usize, text: &str) {
        let plain = text.bytes().map(|b| if b.is_ascii_graphic() { b } else { b' ' });
        let mut bytes = plain.chain(std::iter::repeat(b' '));
        for to in &mut self.0[at..at + words] {
            let mut next = || bytes.next().unwrap_or(b' ');
            *to = u16::from_be_bytes([next(), next()]);
        }
    }

    /// Tests a bit of a word that has its own validity bits; false if the word is invalid.
    fn valid(&self, at: usize, bit: u16) -> bool {
        self.0[at] & VALID_MASK == VALID && self.0[at] & bit != 0
    }
}

impl Identify {
    pub fn decode(bytes: &[u8]) -> Result<Identify, WireError> {
        let short = WireError::short("IDENTIFY DEVICE data", 0);
        let bytes: &[u8; IDENTIFY_LEN] = bytes.first_chunk().ok_or(short)?;
        let mut words = Words([0; IDENTIFY_LEN / 2]);
        for (to, from) in words.0.iter_mut().zip(bytes.as_chunks().0) {
            *to = u16::from_le_bytes(*from);
        }
        let w = &words;
        if w.0[word::GENERAL] & 0x8000 != 0 {
            return Err(WireError::bad("general configuration", 0));
        }
        let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        if w.0[word::INTEGRITY].to_le_bytes()[0] == SIGNATURE && sum != 0 {
            return Err(WireError::new(crate::Kind::Digest, "IDENTIFY DEVICE data", 510));
        }
        let extended = w.valid(word::SUPPORTED_2, LBA48);
        let size = w.0[word::SECTOR_SIZE];
        let (mut sector_bytes, mut physical_exponent) = (512, 0);
        if size & VALID_MASK == VALID {
            if size & LONG_SECTORS != 0 {
                let long = w.many::<2>(word::SECTOR_WORDS).checked_mul(2);
                let long = long.and_then(|bytes| u32::try_from(bytes).ok());
                let long = long.filter(|bytes| *bytes >= 512);
                sector_bytes = long.ok_or(WireError::bad("logical sector size", 234))?;
            }
            if size & MANY_A_PHYSICAL != 0 {
                physical_exponent = u8::try_from(size & 0xF).unwrap_or_default();
            }
        }
        let additional = w.0[word::ADDITIONAL];
        let alignment = w.0[word::ALIGNMENT];
        let cache = w.0[word::SUPPORTED] & WRITE_CACHE != 0;
        let ncq = !matches!(w.0[word::SATA], 0 | 0xFFFF) && w.0[word::SATA] & NCQ != 0;
        let depth = u8::try_from(w.0[word::QUEUE] & 0x1F).unwrap_or_default() + 1;
        let wwn = w.valid(word::ENABLED_3, HAS_WWN);
        Ok(Identify {
            model: w.text(word::MODEL, 20),
            serial: w.text(word::SERIAL, 10),
            firmware: w.text(word::FIRMWARE, 4),
            sectors: match extended {
                true => w.many::<4>(word::SECTORS_48),
                false => w.many::<2>(word::SECTORS_28),
            },
            sector_bytes,
            physical_exponent,
            alignment: if alignment & VALID_MASK == VALID { alignment & 0x3FFF } else { 0 },
            extended,
            flush: w.valid(word::SUPPORTED_2, FLUSH),
            flush_ext: w.valid(word::SUPPORTED_2, FLUSH_EXT),
            write_cache: cache.then_some(w.0[word::ENABLED] & WRITE_CACHE != 0),
            trim: (w.0[word::DATA_SET] & 1 != 0).then_some(Trim {
                blocks_max: w.0[word::TRIM_BLOCKS],
                deterministic: additional & DRAT != 0,
                zeroes: additional & RZAT != 0,
            }),
            rotation: w.0[word::ROTATION],
            // The first word is the most significant one.
            wwn: match wwn {
                true => (0..4).fold(0, |sum, i| sum << 16 | u64::from(w.0[word::WWN + i])),
                false => 0,
            },
            queue_depth: if ncq { depth } else { 1 },
        })
    }

    /// The data of a device with these values.
    pub fn encode(&self) -> [u8; IDENTIFY_LEN] {
        let mut words = Words([0; IDENTIFY_LEN / 2]);
        let w = &mut words;
        let bit = |set: bool, bit: u16| if set { bit } else { 0 };
        w.0[word::GENERAL] = 0x0040;
        w.set_text(word::SERIAL, 10, &self.serial);
        w.set_text(word::FIRMWARE, 4, &self.firmware);
        w.set_text(word::MODEL, 20, &self.model);
        w.0[word::MULTIPLE] = 0x8000;
        w.0[word::CAPABILITIES] = LBA;
        w.0[word::CAPABILITIES_2] = VALID;
        // Words 64 to 70 and 88 are valid.
        w.0[word::VALID] = 1 << 1;
        w.set::<2>(word::SECTORS_28, self.sectors.min(SECTORS_28_MAX));
        w.0[word::MAJOR] = MAJOR;
        let flushes = bit(self.flush, FLUSH) | bit(self.flush_ext, FLUSH_EXT);
        let second = bit(self.extended, LBA48) | flushes;
        w.0[word::SUPPORTED] = bit(self.write_cache.is_some(), WRITE_CACHE);
        w.0[word::ENABLED] = bit(self.write_cache == Some(true), WRITE_CACHE);
        w.0[word::SUPPORTED_2] = VALID | second;
        w.0[word::ENABLED_2] = second;
        w.0[word::SUPPORTED_3] = VALID | bit(self.wwn != 0, HAS_WWN);
        w.0[word::ENABLED_3] = VALID | bit(self.wwn != 0, HAS_WWN);
        if self.queue_depth > 1 {
            w.0[word::SATA] = NCQ;
            w.0[word::QUEUE] = u16::from((self.queue_depth - 1).min(31));
        }
        if self.extended {
            w.set::<4>(word::SECTORS_48, self.sectors);
        }
        let exponent = self.physical_exponent.min(15);
        let long = self.sector_bytes > 512;
        w.0[word::SECTOR_SIZE] = VALID
            | bit(long, LONG_SECTORS)
            | bit(exponent > 0, MANY_A_PHYSICAL)
            | u16::from(exponent);
        if long {
            w.set::<2>(word::SECTOR_WORDS, u64::from(self.sector_bytes / 2));
        }
        w.0[word::ALIGNMENT] = VALID | self.alignment & 0x3FFF;
        for (to, shift) in w.0[word::WWN..word::WWN + 4].iter_mut().zip([48, 32, 16, 0]) {
            let [a, b, ..] = (self.wwn >> shift).to_le_bytes();
            *to = u16::from_le_bytes([a, b]);
        }
        if let Some(trim) = self.trim {
            w.0[word::DATA_SET] = 1;
            w.0[word::TRIM_BLOCKS] = trim.blocks_max;
            w.0[word::ADDITIONAL] = bit(trim.deterministic, DRAT) | bit(trim.zeroes, RZAT);
        }
        w.0[word::ROTATION] = self.rotation;
        let mut bytes = [0; IDENTIFY_LEN];
        for (to, from) in bytes.as_chunks_mut().0.iter_mut().zip(words.0) {
            *to = from.to_le_bytes();
        }
        bytes[IDENTIFY_LEN - 2] = SIGNATURE;
        let sum = bytes.iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
        bytes[IDENTIFY_LEN - 1] = sum.wrapping_neg();
        bytes
    }
}
