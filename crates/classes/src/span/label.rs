//! The label of a member (docs/reference/geom.md 2.3, 2.4): the fields that both formats have.

use crate::members::frame::{Fields, FrameError, Record};

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct SpanLabel {
    /// Name of the whole, without the class.
    pub name: String,
    /// Number of the whole.
    pub id: u32,
    /// The member's slot, from zero.
    pub number: u16,
    /// Slots.
    pub count: u16,
    /// Strip size, bytes; zero when the class has none.
    pub strip: u64,
    /// Name of the provider that it must be found on; empty: any.
    pub home: String,
    /// Size of the provider that it must be found on, bytes; zero: any.
    pub provider_bytes: u64,
}

/// The differences between the two formats.
pub(crate) struct Format {
    /// Magic at byte 0.
    pub(crate) magic: &'static str,
    pub(crate) version: u32,
    /// First version with a hardcoded provider, and first with a provider size.
    pub(crate) since: (u32, u32),
    /// Whether there is a strip size.
    pub(crate) strips: bool,
}

/// Reads a label of any version up to the format's.
pub(crate) fn unpack(format: &Format, sector: &[u8]) -> Result<SpanLabel, FrameError> {
    let (mut fields, version) = Fields::open(sector, format.magic, format.version)?;
    let name = fields.text("name")?;
    let id = fields.u32("id")?;
    let (number, count) = (fields.u16("number")?, fields.u16("number of members")?);
    let strip = if format.strips { u64::from(fields.u32("strip size")?) } else { 0 };
    let home = if version >= format.since.0 { fields.text("provider")? } else { String::new() };
    let provider_bytes = if version >= format.since.1 { fields.u64("provider size")? } else { 0 };
    if name.is_empty() || name.contains(|c: char| c.is_control() || c == '/') {
        return Err(FrameError::Value("name", "is empty or not a valid name".into()));
    }
    if number >= count {
        let what = format!("is {number} of {count} members, counted from 0");
        return Err(FrameError::Value("number", what));
    }
    Ok(SpanLabel { name, id, number, count, strip, home, provider_bytes })
}

/// A label in the newest version.
pub(crate) fn pack(format: &Format, label: &SpanLabel) -> Vec<u8> {
    let record = Record::new(format.magic, format.version)
        .text(&label.name)
        .u32(label.id)
        .u16(label.number)
        .u16(label.count);
    let record = match format.strips {
        true => record.u32(u32::try_from(label.strip).unwrap_or(u32::MAX)),
        false => record,
    };
    record.text(&label.home).u64(label.provider_bytes).so_far().to_vec()
}
