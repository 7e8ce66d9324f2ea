//! I/O-free parsing of media: the steps shared by every probe of `part` and `label`.
//!
//! A probe is a pure function of the sectors read so far. It either finds its format, requests one
//! more range, or reports why the media is not its own. The caller reads the range, inserts it (or
//! reports that it cannot be read) and calls again. Repeated parsing always agrees, because the
//! same bytes are given each time.
//!
//! ```text
//!            Read{offset,len}                    Done(found)
//!   step() ------------------> caller reads --+
//!     ^                                       |  No(why)
//!     +------ Sectors::insert / fail <--------+
//! ```

use std::collections::BTreeMap;
use std::fmt;

/// Bytes that one probe may request in all. A probe that wants more is answered
/// [`Reason::TooMuch`], so that a hostile table cannot make tasting read a whole disk.
pub const PROBE_BYTES_MAX: usize = 4 << 20;

/// Ranges that one probe may request in all; beyond it the answer is [`Reason::TooMuch`].
pub const PROBE_READS_MAX: usize = 1024;

/// The next request of a probe, or its result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step<T> {
    /// Read `len` bytes at byte `offset` (both whole sectors, inside the media), then call again.
    Read {
        /// Byte offset on the media.
        offset: u64,
        /// Length in bytes.
        len: usize,
    },
    /// Found.
    Done(T),
    /// Not found, and why.
    No(ProbeError),
}

/// Why a probe did not claim the media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProbeError {
    /// Small kind, for control flow.
    pub reason: Reason,
    /// Byte offset on the media that the reason is about.
    pub at: u64,
    /// The structure or field looked at.
    pub field: &'static str,
    /// The value found and those that are allowed, where one value is the reason.
    pub value: Option<(u64, Allowed)>,
}

/// The values that a field may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Allowed {
    /// From the first to the second.
    Range(u64, u64),
    /// In words.
    Text(&'static str),
}

impl fmt::Display for Allowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Allowed::Range(low, high) if low == high => write!(f, "{low}"),
            Allowed::Range(low, high) if low < high => write!(f, "{low} to {high}"),
            Allowed::Range(..) => f.write_str("none"),
            Allowed::Text(text) => f.write_str(text),
        }
    }
}

/// The kinds of [`ProbeError`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    /// The magic number is not there.
    Signature,
    /// A checksum does not match.
    Checksum,
    /// A value is outside its legal range.
    Value,
    /// Written by newer software than this.
    Newer,
    /// The place is outside the media.
    Beyond,
    /// The sectors could not be read.
    Unreadable,
    /// More would have to be read than a probe may.
    TooMuch,
    /// Two partitions overlap, or one leaves the usable range.
    Integrity,
    /// It contradicts other content of the same provider.
    Contradiction,
    /// This kind of table is not allowed here.
    Nesting,
    /// A sector size or media size that the format does not support.
    Media,
    /// Something else owns these bytes.
    Foreign,
    /// The format allows a name here, but none is set.
    Unnamed,
    /// The name cannot be made a provider's name.
    BadName,
}

impl ProbeError {
    /// A reason at byte offset `at` about `field`.
    pub fn new(reason: Reason, at: u64, field: &'static str) -> Self {
        Self { reason, at, field, value: None }
    }

    /// Adds the value that is the reason, and the allowed values.
    #[must_use]
    pub fn with(mut self, value: u64, allowed: Allowed) -> Self {
        self.value = Some((value, allowed));
        self
    }
}

/// What [`Reason::Integrity`] means.
const OVERLAPS: &str = "overlaps or leaves the media";

impl fmt::Display for ProbeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, field) = (self.at, self.field);
        let range =
            self.value.map(|(value, allowed)| format!("{value} is out of range ({allowed})"));
        match (self.reason, range) {
            (Reason::Value, Some(range)) => return write!(f, "{field} at byte {at}: {range}"),
            (Reason::Integrity, Some(range)) => {
                return write!(f, "{field} at byte {at}: {range}: it {OVERLAPS}");
            }
            _ => {}
        }
        match self.reason {
            Reason::Signature => write!(f, "no {field} at byte {at}"),
            Reason::Checksum => write!(f, "{field} at byte {at}: checksum does not match"),
            Reason::Value => write!(f, "{field} at byte {at}: value out of range"),
            Reason::Newer => write!(
                f,
                "{field} at byte {at}: newer than what is known here; use the software that \
                 wrote it"
            ),
            Reason::Beyond => write!(f, "{field}: byte {at} is beyond the end of the media"),
            Reason::Unreadable => write!(f, "{field}: byte {at} cannot be read"),
            Reason::TooMuch => write!(f, "{field} at byte {at}: too large to be examined"),
            Reason::Integrity => write!(f, "{field} at byte {at}: {OVERLAPS}"),
            Reason::Contradiction => write!(f, "{field} at byte {at} contradicts the rest"),
            Reason::Nesting => write!(f, "{field} is not allowed inside this partition"),
            Reason::Media => write!(f, "{field}: media or sector size not supported"),
            Reason::Foreign => write!(f, "{field} at byte {at} belongs to something else"),
            Reason::Unnamed => write!(f, "{field} at byte {at}: no name is set"),
            Reason::BadName => write!(f, "{field} at byte {at}: not usable as a name"),
        }
    }
}

/// How a probe function leaves early: it needs bytes, or it gives up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProbeStop {
    /// These whole sectors must be read first.
    Read {
        /// Byte offset on the media.
        offset: u64,
        /// Length in bytes.
        len: usize,
    },
    /// The media is not this probe's.
    No(ProbeError),
}

impl ProbeStop {
    pub(crate) fn no(reason: Reason, at: u64, field: &'static str) -> Self {
        ProbeStop::No(ProbeError::new(reason, at, field))
    }

    pub(crate) fn value(at: u64, field: &'static str, value: u64, allowed: Allowed) -> Self {
        ProbeStop::No(ProbeError::new(Reason::Value, at, field).with(value, allowed))
    }
}

impl<T> From<Result<T, ProbeStop>> for Step<T> {
    fn from(result: Result<T, ProbeStop>) -> Self {
        match result {
            Ok(found) => Step::Done(found),
            Err(ProbeStop::Read { offset, len }) => Step::Read { offset, len },
            Err(ProbeStop::No(why)) => Step::No(why),
        }
    }
}

/// The sectors of one media read so far.
#[derive(Debug, Clone)]
pub struct Sectors {
    sector_size: u32,
    media_len: u64,
    ranges: BTreeMap<u64, Option<Vec<u8>>>,
    bytes: usize,
}

impl Sectors {
    /// Nothing read yet. `sector_size` in bytes, `media_len` in bytes (a partial last sector is
    /// not used).
    pub fn new(sector_size: u32, media_len: u64) -> Self {
        let media_len = match u64::from(sector_size) {
            0 => 0,
            size => media_len - media_len % size,
        };
        Self { sector_size, media_len, ranges: BTreeMap::new(), bytes: 0 }
    }

    /// The same media without its last sectors, as a layer shows it that keeps its record there.
    pub(crate) fn without_last(&self, sectors: u64) -> Self {
        let gone = u64::from(self.sector_size).saturating_mul(sectors);
        Self { media_len: self.media_len.saturating_sub(gone), ..self.clone() }
    }

    pub fn sector_size(&self) -> u32 {
        self.sector_size
    }

    /// Whole sectors on the media.
    pub fn media_sectors(&self) -> u64 {
        self.media_len.checked_div(u64::from(self.sector_size)).unwrap_or(0)
    }

    /// Bytes on the media, whole sectors only.
    pub fn media_len(&self) -> u64 {
        self.media_len
    }

    /// Give the bytes that a step requested. Fewer than requested count as unreadable.
    pub fn insert(&mut self, offset: u64, bytes: Vec<u8>) {
        self.bytes = self.bytes.saturating_add(bytes.len());
        self.ranges.insert(offset, Some(bytes));
    }

    /// Report that the range that a step requested cannot be read.
    pub fn fail(&mut self, offset: u64) {
        self.ranges.insert(offset, None);
    }

    /// The bytes `offset .. offset + len`; `None` when they are beyond the end or unreadable.
    ///
    /// # Errors
    /// [`ProbeStop::Read`] when they have not been read yet.
    pub fn get(&self, offset: u64, len: usize) -> Result<Option<&[u8]>, ProbeStop> {
        let Some(end) = u64::try_from(len).ok().and_then(|len| offset.checked_add(len)) else {
            return Ok(None);
        };
        if len == 0 || end > self.media_len {
            return Ok(None);
        }
        // The nearest ranges at or below; a longer one further down may cover it as well.
        for (&start, held) in self.ranges.range(..=offset).rev() {
            let Ok(skip) = usize::try_from(offset - start) else {
                continue;
            };
            match held {
                Some(bytes) => {
                    let part = skip.checked_add(len).and_then(|to| bytes.get(skip..to));
                    if let Some(part) = part {
                        return Ok(Some(part));
                    }
                }
                None if skip < self.sector_size as usize => return Ok(None),
                None => {}
            }
        }
        self.want(offset, end)
    }

    /// As [`Sectors::get`], with an error that names `field` where there are no bytes.
    ///
    /// # Errors
    /// [`ProbeStop::Read`], or [`ProbeStop::No`] when beyond the end or unreadable.
    pub fn need(&self, offset: u64, len: usize, field: &'static str) -> Result<&[u8], ProbeStop> {
        match self.get(offset, len)? {
            Some(bytes) => Ok(bytes),
            None => {
                let end = offset.saturating_add(u64::try_from(len).unwrap_or(u64::MAX));
                let beyond = end > self.media_len;
                let reason = if beyond { Reason::Beyond } else { Reason::Unreadable };
                Err(ProbeStop::no(reason, offset, field))
            }
        }
    }

    fn want(&self, offset: u64, end: u64) -> Result<Option<&[u8]>, ProbeStop> {
        let size = u64::from(self.sector_size);
        let from = offset - offset % size;
        let to = end.next_multiple_of(size);
        let len = usize::try_from(to - from).unwrap_or(usize::MAX);
        if self.ranges.len() >= PROBE_READS_MAX || self.bytes.saturating_add(len) > PROBE_BYTES_MAX
        {
            return Err(ProbeStop::no(Reason::TooMuch, offset, "structure"));
        }
        match self.ranges.get(&from) {
            // Already answered, with too few bytes: treated as unreadable.
            Some(Some(held)) if held.len() >= len => Ok(None),
            Some(None) => Ok(None),
            _ => Err(ProbeStop::Read { offset: from, len }),
        }
    }

    /// Drive `probe` with `read` until it ends: for tools and tests whose reads are immediate.
    /// `read` answers `None` when the range cannot be read.
    pub fn drive<T>(
        &mut self,
        mut read: impl FnMut(u64, usize) -> Option<Vec<u8>>,
        mut probe: impl FnMut(&Sectors) -> Step<T>,
    ) -> Result<T, ProbeError> {
        loop {
            match probe(self) {
                Step::Done(found) => return Ok(found),
                Step::No(why) => return Err(why),
                Step::Read { offset, len } => match read(offset, len) {
                    Some(bytes) if bytes.len() >= len => self.insert(offset, bytes),
                    _ => self.fail(offset),
                },
            }
        }
    }
}

/// `N` bytes at `at`, if they are there.
pub(crate) fn array<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

/// Little-endian 16 bits at `at`; 0 where the slice is too short.
pub(crate) fn le16(bytes: &[u8], at: usize) -> u16 {
    array(bytes, at).map_or(0, u16::from_le_bytes)
}

/// Little-endian 32 bits at `at`; 0 where the slice is too short.
pub(crate) fn le32(bytes: &[u8], at: usize) -> u32 {
    array(bytes, at).map_or(0, u32::from_le_bytes)
}

/// Little-endian 64 bits at `at`; 0 where the slice is too short.
pub(crate) fn le64(bytes: &[u8], at: usize) -> u64 {
    array(bytes, at).map_or(0, u64::from_le_bytes)
}

/// One byte at `at`; 0 where the slice is too short.
pub(crate) fn byte(bytes: &[u8], at: usize) -> u8 {
    bytes.get(at).copied().unwrap_or(0)
}

/// `len` bytes at `at`; empty where the slice is too short.
pub(crate) fn span(bytes: &[u8], at: usize, len: usize) -> &[u8] {
    at.checked_add(len).and_then(|to| bytes.get(at..to)).unwrap_or(&[])
}

/// Copy `from` to `at`; nothing happens where it does not fit.
pub(crate) fn put(bytes: &mut [u8], at: usize, from: &[u8]) {
    let target = at.checked_add(from.len()).and_then(|to| bytes.get_mut(at..to));
    if let Some(target) = target {
        target.copy_from_slice(from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(sectors: &Sectors, offset: u64, len: usize) -> Result<Option<Vec<u8>>, ProbeStop> {
        sectors.get(offset, len).map(|bytes| bytes.map(<[u8]>::to_vec))
    }

    #[test]
    fn probe_reads_whole_sectors_and_answers_any_range() {
        let mut sectors = Sectors::new(512, 512 * 10 + 100);
        assert_eq!(sectors.media_sectors(), 10);
        assert_eq!(answer(&sectors, 700, 400), Err(ProbeStop::Read { offset: 512, len: 1024 }));
        sectors.insert(512, vec![7; 1024]);
        assert_eq!(answer(&sectors, 700, 3), Ok(Some(vec![7; 3])));
        assert_eq!(answer(&sectors, 700, 1000), Err(ProbeStop::Read { offset: 512, len: 1536 }));
        sectors.insert(512, vec![8; 100]);
        sectors.fail(1024);
        assert_eq!(answer(&sectors, 1030, 2), Ok(None));
        assert_eq!(answer(&sectors, 512 * 10, 2), Ok(None));
        assert_eq!(answer(&sectors, u64::MAX, 2), Ok(None));
    }

    #[test]
    fn short_read_ends_the_probe() {
        let mut sectors = Sectors::new(512, 5120);
        let mut reads = 0;
        let found = sectors.drive(
            |_, _| {
                reads += 1;
                Some(vec![0; 3])
            },
            |s| Step::from(s.need(0, 512, "first sector").map(<[u8]>::len)),
        );
        assert_eq!(found.map_err(|why| why.reason), Err(Reason::Unreadable));
        assert_eq!(reads, 1);
    }

    #[test]
    fn probe_that_reads_too_much_is_stopped() {
        let sectors = Sectors::new(512, 1 << 40);
        let stop = answer(&sectors, 0, PROBE_BYTES_MAX + 1);
        assert!(matches!(stop, Err(ProbeStop::No(ProbeError { reason: Reason::TooMuch, .. }))));
    }
}
