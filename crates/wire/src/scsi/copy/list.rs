//! The EXTENDED COPY parameter list (SPC-4 6.4.1): header, CSCD descriptors, segment descriptors.
//!
//! Parsing checks the structure of the list. The copy manager checks the units that it refers to:
//! whether they exist, and how large they are.

use super::{CopyLimits, at16, field, field16, field32, field64};
use crate::scsi::codes::asc;
use crate::scsi::sense::Sense;

pub const CSCD_LEN: usize = 32;
/// CSCD descriptor identifier of the unit that executes the command.
pub const CSCD_THIS_UNIT: u16 = 0xffff;

/// Identification descriptor.
const TYPE_IDENTIFICATION: u8 = 0xe4;
/// Longest designator in one descriptor, bytes.
const DESIGNATOR_LEN_MAX: usize = 20;
/// Header bytes of either form.
const HEADER1_LEN: usize = 16;
const HEADER4_LEN: usize = 48;
/// DESCRIPTOR LENGTH of the segment descriptors served.
const BLOCKS_LEN: usize = 0x18;
const BYTES_LEN: usize = 0x1c;
const VERIFY_LEN: usize = 0x08;

/// Which EXTENDED COPY it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CopyForm {
    /// List identifiers of one byte (83h/00h).
    Lid1,
    /// List identifiers of four bytes (83h/01h).
    Lid4,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ListUsage {
    /// 00b: status can be requested, and held data is kept until it is fetched.
    Hold,
    /// 10b: status can be requested, held data may be thrown away.
    Discard,
    /// 11b: there is no list identifier.
    None,
}

/// A participant in a copy: an identification descriptor (E4h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cscd<'a> {
    /// NUL bit: a null device, which cannot be accessed.
    pub null: bool,
    /// Peripheral device type that the unit must have.
    pub peripheral: u8,
    /// CODE SET of the designator.
    pub code_set: u8,
    /// ASSOCIATION: 0 is a logical unit.
    pub association: u8,
    /// DESIGNATOR TYPE: 1 T10 vendor, 2 EUI-64, 3 NAA, 8 SCSI name.
    pub kind: u8,
    /// The designator, at most 20 bytes.
    pub designator: &'a [u8],
    /// DISK BLOCK LENGTH, bytes; 0 when it is not given.
    pub block_len: u32,
}

impl<'a> Cscd<'a> {
    fn parse(bytes: &'a [u8; CSCD_LEN], at: usize) -> Result<Cscd<'a>, Sense> {
        if bytes[0] != TYPE_IDENTIFICATION {
            let sense = Sense::list_field(at16(at), None);
            return Err(Sense { code: asc::UNSUPPORTED_CSCD, ..sense });
        }
        // LU ID TYPE is obsolete, and ignored.
        let wrong_len = Sense::list_field(at16(at + 7), None);
        let len = usize::from(bytes[7]);
        if len > DESIGNATOR_LEN_MAX {
            return Err(wrong_len);
        }
        let designator = bytes.get(8..8 + len).ok_or(wrong_len)?;
        Ok(Cscd {
            null: bytes[1] & 0x20 != 0,
            peripheral: bytes[1] & 0x1f,
            code_set: bytes[4] & 0x0f,
            association: (bytes[5] >> 4) & 3,
            kind: bytes[5] & 0x0f,
            designator,
            block_len: u32::from_be_bytes([0, bytes[29], bytes[30], bytes[31]]),
        })
    }

    /// Writes the descriptor; a designator beyond 20 bytes is cut.
    pub fn encode(&self) -> [u8; CSCD_LEN] {
        let mut out = [0; CSCD_LEN];
        out[0] = TYPE_IDENTIFICATION;
        out[1] = self.peripheral & 0x1f | if self.null { 0x20 } else { 0 };
        out[4] = self.code_set & 0x0f;
        out[5] = (self.association & 3) << 4 | self.kind & 0x0f;
        let used = self.designator.iter().take(DESIGNATOR_LEN_MAX);
        out[7] = u8::try_from(used.len()).unwrap_or(0);
        out.iter_mut().skip(8).zip(used).for_each(|(to, from)| *to = *from);
        let [_, x, y, z] = self.block_len.to_be_bytes();
        (out[29], out[30], out[31]) = (x, y, z);
        out
    }
}

/// One thing to do. Sources and destinations are CSCD descriptor identifiers: the place in the
/// list, or [`CSCD_THIS_UNIT`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Segment {
    /// 02h and 0Dh: whole blocks.
    Blocks {
        /// Where from.
        source: u16,
        /// Where to.
        destination: u16,
        /// DC: `blocks` counts blocks of the destination.
        of_destination: bool,
        /// Number of blocks; 0 moves nothing.
        blocks: u16,
        source_lba: u64,
        destination_lba: u64,
        /// 0Dh: the copied data is held for RECEIVE COPY DATA.
        hold: bool,
    },
    /// 0Ah: bytes from an offset in a block to an offset in a block.
    Bytes {
        /// Where from.
        source: u16,
        /// Where to.
        destination: u16,
        /// Number of bytes; 0 moves nothing.
        bytes: u32,
        source_lba: u64,
        destination_lba: u64,
        /// First byte in the source's block.
        source_offset: u16,
        /// First byte in the destination's block.
        destination_offset: u16,
    },
    /// 07h: the unit must be there.
    Verify {
        /// Whom to look at.
        source: u16,
        /// TUR: it must be ready too.
        ready: bool,
    },
}

/// A segment with its place in the parameter list, for field pointers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SegmentAt {
    pub segment: Segment,
    /// Offset of its descriptor in the parameter list.
    pub at: u16,
}

/// A checked list; the CSCD descriptors stay where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CopyList<'a> {
    /// LIST IDENTIFIER; 0 when `usage` is None.
    pub id: u32,
    pub usage: ListUsage,
    /// PRIORITY, 0 (first) to 7.
    pub priority: u8,
    /// IMMED (LID4): status is sent before the end of the copy.
    pub immed: bool,
    /// G_SENSE (LID4): GOOD status carries sense data.
    pub good_sense: bool,
    /// The descriptors, each with its offset in the list.
    pub cscds: Vec<Cscd<'a>>,
    /// Offset of the first CSCD descriptor.
    pub cscds_at: u16,
    /// The segments to copy, in order.
    pub segments: Vec<SegmentAt>,
}

/// Lengths from the header of either form.
struct Header {
    len: usize,
    cscds: usize,
    /// Offset of the CSCD descriptor list length.
    cscds_field: usize,
    segments: usize,
    inline: usize,
}

impl<'a> CopyList<'a> {
    /// Reads a list of `form`. An empty one is None: nothing is copied, and that is no error.
    pub fn parse(
        form: CopyForm,
        data: &'a [u8],
        limits: &CopyLimits,
    ) -> Result<Option<CopyList<'a>>, Sense> {
        if data.is_empty() {
            return Ok(None);
        }
        let cut = Sense::new(asc::PARAMETER_LIST_LEN);
        let (header, mut list) = match form {
            CopyForm::Lid1 => header1(data).ok_or(cut)?,
            CopyForm::Lid4 => header4(data).ok_or(cut)??,
        };
        check_usage(form, data, &list)?;
        let descriptors = header.cscds.saturating_add(header.segments);
        if u32::try_from(descriptors).map_or(true, |sum| sum > limits.descriptors_len) {
            return Err(cut);
        }
        if u32::try_from(header.inline).map_or(true, |len| len > limits.inline_len) {
            return Err(Sense::new(asc::INLINE_DATA_TOO_LONG));
        }
        let cscds_end = header.len.saturating_add(header.cscds);
        let segments_end = cscds_end.saturating_add(header.segments);
        let cscds = data.get(header.len..cscds_end).ok_or(cut)?;
        let segments = data.get(cscds_end..segments_end).ok_or(cut)?;
        data.get(segments_end..segments_end.saturating_add(header.inline)).ok_or(cut)?;
        let (cscds, rest) = cscds.as_chunks::<CSCD_LEN>();
        if !rest.is_empty() {
            return Err(Sense::list_field(at16(header.cscds_field), None));
        }
        if cscds.len() > usize::from(limits.cscds) {
            return Err(Sense::new(asc::TOO_MANY_CSCDS));
        }
        list.cscds_at = at16(header.len);
        for (i, bytes) in cscds.iter().enumerate() {
            list.cscds.push(Cscd::parse(bytes, header.len + i * CSCD_LEN)?);
        }
        list.segments = parse_segments(segments, cscds_end, limits)?;
        Ok(Some(list))
    }
}

fn header1<'a>(data: &[u8]) -> Option<(Header, CopyList<'a>)> {
    let header = Header {
        len: HEADER1_LEN,
        cscds: usize::from(field16(data, 2)?),
        cscds_field: 2,
        segments: usize::try_from(field32(data, 8)?).ok()?,
        inline: usize::try_from(field32(data, 12)?).ok()?,
    };
    let [id, flags] = field(data, 0)?;
    Some((header, empty(u32::from(id), flags)))
}

fn header4<'a>(data: &[u8]) -> Option<Result<(Header, CopyList<'a>), Sense>> {
    let header = Header {
        len: HEADER4_LEN,
        cscds: usize::from(field16(data, 42)?),
        cscds_field: 42,
        segments: usize::from(field16(data, 44)?),
        inline: usize::from(field16(data, 46)?),
    };
    let [format, flags] = field(data, 0)?;
    let [immed] = field(data, 15)?;
    let [kind] = field(data, 16)?;
    if format != 1 {
        return Some(Err(Sense::list_field(0, None)));
    }
    // HEADER CSCD DESCRIPTOR LIST LENGTH and its type are constants.
    if field16(data, 2)? != 0x20 {
        return Some(Err(Sense::list_field(2, None)));
    }
    if kind != 0xff {
        return Some(Err(Sense::list_field(16, None)));
    }
    let mut list = empty(field32(data, 20)?, flags);
    list.immed = immed & 1 != 0;
    list.good_sense = immed & 2 != 0;
    Some(Ok((header, list)))
}

fn empty<'a>(id: u32, flags: u8) -> CopyList<'a> {
    let usage = match (flags >> 3) & 3 {
        0 => ListUsage::Hold,
        2 => ListUsage::Discard,
        // 01b is reserved: `check_usage` refuses it.
        _ => ListUsage::None,
    };
    CopyList {
        id,
        usage,
        priority: flags & 7,
        immed: false,
        good_sense: false,
        cscds: Vec::new(),
        cscds_at: 0,
        segments: Vec::new(),
    }
}

/// LIST ID USAGE and LIST IDENTIFIER must agree; work that continues behind a status must have a
/// name.
fn check_usage(form: CopyForm, data: &[u8], list: &CopyList<'_>) -> Result<(), Sense> {
    let flags = data.get(1).copied().unwrap_or(0);
    if (flags >> 3) & 3 == 1 {
        return Err(Sense::list_field(1, Some(4)));
    }
    let id_at = if form == CopyForm::Lid1 { 0 } else { 20 };
    if list.usage == ListUsage::None && list.id != 0 {
        return Err(Sense::list_field(id_at, None));
    }
    if list.usage == ListUsage::None && list.immed {
        return Err(Sense::list_field(15, Some(0)));
    }
    Ok(())
}

fn parse_segments(bytes: &[u8], base: usize, limits: &CopyLimits) -> Result<Vec<SegmentAt>, Sense> {
    let mut out = Vec::new();
    let mut at = 0;
    while let Some(rest) = bytes.get(at..).filter(|rest| !rest.is_empty()) {
        if out.len() >= usize::from(limits.segments) {
            return Err(Sense::new(asc::TOO_MANY_SEGMENTS));
        }
        let place = base.saturating_add(at);
        let (segment, len) = parse_segment(rest, place)?;
        out.push(SegmentAt { segment, at: at16(place) });
        at = at.saturating_add(len);
    }
    Ok(out)
}

/// One descriptor and its length.
fn parse_segment(bytes: &[u8], at: usize) -> Result<(Segment, usize), Sense> {
    let [kind] = field(bytes, 0).ok_or(Sense::new(asc::PARAMETER_LIST_LEN))?;
    let wanted = match kind {
        0x02 | 0x0d => BLOCKS_LEN,
        0x0a => BYTES_LEN,
        0x07 => VERIFY_LEN,
        _ => {
            let sense = Sense::list_field(at16(at), None);
            return Err(Sense { code: asc::UNSUPPORTED_SEGMENT, ..sense });
        }
    };
    // A length that is not there cannot be pointed at.
    let len = field16(bytes, 2).ok_or(Sense::new(asc::PARAMETER_LIST_LEN))?;
    let wrong_len = Sense::list_field(at16(at.saturating_add(2)), None);
    if usize::from(len) != wanted {
        return Err(wrong_len);
    }
    let body = bytes.get(..wanted + 4).ok_or(wrong_len)?;
    let segment = match kind {
        0x07 => verify(body),
        0x0a => bytes_segment(body),
        _ => blocks_segment(body, kind == 0x0d),
    };
    Ok((segment.ok_or(wrong_len)?, wanted + 4))
}

fn blocks_segment(b: &[u8], hold: bool) -> Option<Segment> {
    Some(Segment::Blocks {
        source: field16(b, 4)?,
        destination: field16(b, 6)?,
        of_destination: b.get(1)? & 2 != 0,
        blocks: field16(b, 10)?,
        source_lba: field64(b, 12)?,
        destination_lba: field64(b, 20)?,
        hold,
    })
}

fn bytes_segment(b: &[u8]) -> Option<Segment> {
    Some(Segment::Bytes {
        source: field16(b, 4)?,
        destination: field16(b, 6)?,
        bytes: field32(b, 8)?,
        source_lba: field64(b, 12)?,
        destination_lba: field64(b, 20)?,
        source_offset: field16(b, 28)?,
        destination_offset: field16(b, 30)?,
    })
}

fn verify(b: &[u8]) -> Option<Segment> {
    Some(Segment::Verify { source: field16(b, 4)?, ready: b.get(8)? & 1 != 0 })
}

#[cfg(test)]
#[path = "list_tests.rs"]
mod tests;
