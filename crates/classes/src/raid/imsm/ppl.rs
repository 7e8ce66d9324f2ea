//! The log of partial parity (PPL) that a member of an Intel RAID5 volume has behind its data.
//!
//! ```text
//! member:  data | log area: 1 MiB (one unit after the other, round and round), or one unit's space
//! unit:    header, 4 KiB | partial parity of entry 0 | of entry 1 | ...
//! header:  0 512 ones | 512 4 signature | 520 8 generation | 528 4 entries | 532 4 checksum
//!          536 24 x entries: 0 8 first sector | 8 4 bytes of parity | 12 4 bytes of data
//!                            16 4 slot of the parity | 20 4 checksum of the partial parity
//! ```
//!
//! Little-endian; checksums are CRC-32C; the signature is the original family. An entry speaks of
//! a rectangle: the same bytes of strips that follow each other in a row. Its partial parity is the
//! sum of the row's other strips there; of a whole row there is none.
//!
//! Invariants
//!  P1  The unit in force is the last one of a run of units. The run is contiguous from the start
//!      of the area, and its generations do not fall. Other data that looks like a unit is not one:
//!      data that users write could be made to look so.
//!  P2  A header at the start whose checksum is wrong, with the right signature, is one that was
//!      being written. Its rows had not begun, and those of the unit before were durable.

use super::super::fault::Fault;
use crate::crc::crc32c;
use crate::probe::{Reason, array, le32, le64, put, span};

/// Bytes of a unit's header.
pub const HEADER: usize = 4096;
/// Bytes of partial parity in a unit at most.
pub const PARITY_MAX: usize = 128 << 10;
/// Entries of a unit at most; a header with more is refused.
pub const ENTRIES_MAX: usize = 148;
/// Bytes of an area with space for several units.
pub const AREA: u64 = 1 << 20;
/// Bytes of an area with space for one.
pub const AREA_OF_ONE: u64 = (HEADER + PARITY_MAX) as u64;

const ONES: usize = 512;
const FIRST: usize = 536;
const ENTRY: usize = 24;

/// The fields of an entry: see the module.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Entry {
    /// First sector of the data on the volume.
    pub first: u64,
    /// Bytes of partial parity; 0: the row's whole width was written.
    pub parity: u32,
    /// Bytes of data, of all strips together.
    pub data: u32,
    /// Slot of the row's parity.
    pub slot: u32,
    pub checksum: u32,
}

/// What an entry is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// It speaks of rows.
    Rows,
    /// It speaks of nothing: so that a log without rows is believed.
    Nothing,
    /// Parity may be wrong in other rows too, and must all be made anew.
    Doubt,
}

impl Entry {
    /// See [`Purpose::Doubt`]: Linux writes, and understands, an entry that nothing is summed for.
    pub const DOUBT: Entry = Entry { first: 0, parity: 0, data: 0, slot: 0, checksum: u32::MAX };

    pub fn purpose(&self) -> Purpose {
        match (self.data, self.parity, self.checksum) {
            (0, 0, 0) => Purpose::Nothing,
            (0, ..) => Purpose::Doubt,
            _ => Purpose::Rows,
        }
    }

    /// An entry for rows, with the checksum of its partial parity.
    pub fn of(first: u64, data: u32, slot: u32, parity: &[u8]) -> Entry {
        let bytes = u32::try_from(parity.len()).unwrap_or(u32::MAX);
        Entry { first, parity: bytes, data, slot, checksum: crc32c(&[parity]) }
    }

    /// Whether this is its partial parity: not so, it was being written, and its rows had not
    /// begun.
    pub fn is_of(&self, parity: &[u8]) -> bool {
        crc32c(&[parity]) == self.checksum
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// The array's original family.
    pub signature: u32,
    /// Grows with every unit of a log.
    pub generation: u64,
    pub entries: Vec<Entry>,
}

impl Header {
    /// Reads a header.
    ///
    /// # Errors
    /// Too few bytes, a wrong checksum, or more entries than there is space for.
    pub fn decode(bytes: &[u8]) -> Result<Header, Fault> {
        let Some(head) = bytes.get(..HEADER) else {
            return Err(Fault::value("PPL header", "is cut off"));
        };
        let recorded_sum = le32(head, 532);
        let is = crc32c(&[span(head, 0, 532), &[0; 4], span(head, FIRST, HEADER - FIRST)]);
        if is != recorded_sum {
            let what = format!("is {is:08x} instead of {recorded_sum:08x}");
            return Err(Fault::new(Reason::Checksum, "PPL checksum", what));
        }
        let count = usize::try_from(le32(head, 528)).unwrap_or(usize::MAX);
        if count > ENTRIES_MAX {
            return Err(Fault::value("PPL entries", format!("are {count}; 148 is the most")));
        }
        let entry = |at: usize| Entry {
            first: le64(head, at),
            parity: le32(head, at + 8),
            data: le32(head, at + 12),
            slot: le32(head, at + 16),
            checksum: le32(head, at + 20),
        };
        let entries = (0..count).map(|nth| entry(FIRST + nth * ENTRY)).collect();
        Ok(Header { signature: le32(head, 512), generation: le64(head, 520), entries })
    }

    /// The header as [`HEADER`] bytes. Entries beyond [`ENTRIES_MAX`] are left out.
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        put(&mut bytes, 0, &[0xff; ONES]);
        put(&mut bytes, 512, &self.signature.to_le_bytes());
        put(&mut bytes, 520, &self.generation.to_le_bytes());
        let count = self.entries.len().min(ENTRIES_MAX);
        put(&mut bytes, 528, &u32::try_from(count).unwrap_or(0).to_le_bytes());
        for (nth, entry) in self.entries.iter().take(ENTRIES_MAX).enumerate() {
            let at = FIRST + nth * ENTRY;
            put(&mut bytes, at, &entry.first.to_le_bytes());
            put(&mut bytes, at + 8, &entry.parity.to_le_bytes());
            put(&mut bytes, at + 12, &entry.data.to_le_bytes());
            put(&mut bytes, at + 16, &entry.slot.to_le_bytes());
            put(&mut bytes, at + 20, &entry.checksum.to_le_bytes());
        }
        let sum = crc32c(&[&bytes]);
        put(&mut bytes, 532, &sum.to_le_bytes());
        bytes
    }

    /// Bytes of the unit, with its partial parity.
    pub fn unit_bytes(&self) -> u64 {
        self.entries.iter().fold(HEADER as u64, |sum, e| sum.saturating_add(e.parity.into()))
    }
}

/// The unit in force of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Log {
    Unit {
        header: Header,
        /// Where it is in the area, bytes.
        at: u64,
    },
    /// None: one was being written at the start (P2).
    Torn,
}

impl Log {
    /// The log in an area: all its bytes, and the signature of the array.
    ///
    /// # Errors
    /// The first field of the first unit that is wrong. Also the one in force, if its partial
    /// parity is beyond the area or is no whole sectors.
    pub fn read(area: &[u8], signature: u32) -> Result<Log, Fault> {
        let mut found: Option<(Header, u64)> = None;
        let mut at = 0_u64;
        while let Some(bytes) = usize::try_from(at).ok().and_then(|at| area.get(at..)) {
            if bytes.len() < HEADER {
                break;
            }
            match (Header::decode(bytes), &found) {
                (Ok(header), _) if header.signature != signature => {
                    if found.is_none() {
                        let what =
                            format!("is {:08x} instead of {signature:08x}", header.signature);
                        return Err(Fault::new(Reason::Foreign, "PPL signature", what));
                    }
                    break;
                }
                (Ok(header), Some((last, _))) if header.generation < last.generation => break,
                (Ok(header), _) => {
                    let next = at.saturating_add(header.unit_bytes());
                    found = Some((header, at));
                    at = next;
                }
                (Err(_), Some(_)) => break,
                (Err(_), None) if is_torn(bytes, signature) => return Ok(Log::Torn),
                (Err(fault), None) => return Err(fault),
            }
        }
        let Some((header, at)) = found else {
            return Err(Fault::value("PPL area", "is too small"));
        };
        let end = at.saturating_add(header.unit_bytes());
        if u64::try_from(area.len()).is_ok_and(|len| end > len) {
            let what = format!("ends at {end} of {}", area.len());
            return Err(Fault::new(Reason::Beyond, "PPL partial parity", what));
        }
        Ok(Log::Unit { header, at })
    }

    /// The entries of the unit in force with the bytes of their partial parity. Fewer when `area`
    /// is not the area that it was read from.
    pub fn entries<'a>(&'a self, area: &'a [u8]) -> impl Iterator<Item = (Entry, &'a [u8])> {
        let (entries, start) = match self {
            Log::Unit { header, at } => (header.entries.as_slice(), *at),
            Log::Torn => (&[][..], 0),
        };
        let mut at = usize::try_from(start).ok().and_then(|at| at.checked_add(HEADER));
        entries.iter().map_while(move |entry| {
            let from = at?;
            let to = from.checked_add(usize::try_from(entry.parity).ok()?)?;
            at = Some(to);
            Some((*entry, area.get(from..to)?))
        })
    }
}

/// P2
fn is_torn(bytes: &[u8], signature: u32) -> bool {
    let ones = array::<ONES>(bytes, 0).is_some_and(|head| head == [0xff; ONES]);
    ones && le32(bytes, 512) == signature && le32(bytes, 516) == 0
}

#[cfg(test)]
mod tests {
    use super::{AREA, Entry, HEADER, Header, Log, Purpose};
    use crate::probe::put;

    const SIGNATURE: u32 = 0x1234_5678;

    fn unit(generation: u64, parities: &[&[u8]]) -> Vec<u8> {
        let entries = parities.iter().map(|p| Entry::of(8, 1024, 2, p)).collect();
        let mut bytes = Header { signature: SIGNATURE, generation, entries }.encode();
        parities.iter().for_each(|p| bytes.extend_from_slice(p));
        bytes
    }

    fn area(units: &[Vec<u8>]) -> Vec<u8> {
        let mut all = units.concat();
        all.resize(AREA as usize, 0);
        all
    }

    fn generation(area: &[u8]) -> Option<u64> {
        match Log::read(area, SIGNATURE) {
            Ok(Log::Unit { header, .. }) => Some(header.generation),
            _ => None,
        }
    }

    /// P1.
    #[test]
    fn last_valid_unit_of_the_log_is_in_force() {
        let (short, long): (&[u8], &[u8]) = (&[3; 512], &[4; 8192]);
        let all = area(&[unit(5, &[short]), unit(6, &[long, short]), unit(7, &[short])]);
        assert_eq!(generation(&all), Some(7));
        // The log has wrapped around: the units behind are of an earlier turn.
        let all = area(&[unit(8, &[short]), unit(6, &[long, short]), unit(7, &[short])]);
        assert_eq!(generation(&all), Some(8));
        let log = Log::read(&all, SIGNATURE).expect("a log");
        let entries: Vec<_> = log.entries(&all).collect();
        assert_eq!(entries.len(), 1);
        assert!(entries.iter().all(|(entry, parity)| entry.is_of(parity) && *parity == short));
        // A unit that was being written behind it is none.
        let mut torn = area(&[unit(8, &[short]), unit(9, &[long])]);
        put(&mut torn, HEADER + 512 + 600, &[1]);
        assert_eq!(generation(&torn), Some(8));
    }

    /// P2.
    #[test]
    fn torn_first_unit_is_distinguished_from_a_missing_log() {
        let mut torn = area(&[unit(9, &[&[1; 512]])]);
        put(&mut torn, 540, &[77]);
        assert_eq!(Log::read(&torn, SIGNATURE), Ok(Log::Torn));
        assert!(Log::read(&torn, SIGNATURE + 1).is_err(), "of another array");
        assert!(Log::read(&area(&[unit(9, &[])]), SIGNATURE + 1).is_err());
        assert!(Log::read(&area(&[]), SIGNATURE).is_err());
        assert!(Log::read(&[0xff; 100], SIGNATURE).is_err());
    }

    #[test]
    fn sizes_beyond_the_area_and_too_many_entries_are_refused() {
        let far = Entry { parity: u32::MAX, data: 512, ..Entry::default() };
        let header = Header { signature: SIGNATURE, generation: 1, entries: vec![far; 2] };
        let mut bytes = header.encode();
        bytes.resize(AREA as usize, 0);
        let refusal = Log::read(&bytes, SIGNATURE).expect_err("refused").to_string();
        assert!(refusal.contains("partial parity ends at"), "{refusal}");
        let mut bytes = header.encode();
        put(&mut bytes, 528, &149_u32.to_le_bytes());
        put(&mut bytes, 532, &[0; 4]);
        let sum = crate::crc::crc32c(&[&bytes]);
        put(&mut bytes, 532, &sum.to_le_bytes());
        assert!(Header::decode(&bytes).expect_err("refused").to_string().contains("148"));
    }

    #[test]
    fn entries_report_their_purpose_and_round_trip() {
        assert_eq!(Entry::DOUBT.purpose(), Purpose::Doubt);
        assert_eq!(Entry::default().purpose(), Purpose::Nothing);
        assert_eq!(Entry::of(0, 1024, 0, &[]).purpose(), Purpose::Rows);
        assert_eq!(Entry::of(0, 1024, 0, &[]).checksum, 0, "nothing sums up to nothing");
        let header =
            Header { signature: 1, generation: 2, entries: vec![Entry::of(7, 9, 1, &[5])] };
        assert_eq!(Header::decode(&header.encode()), Ok(header));
    }
}
