//! GEOM's own label, in the last sector of the media.
//!
//! ```text
//! 0 16 "GEOM::LABEL" | 16 4 version | 20 16 name | 36 8 bytes of the media (version 2)
//! ```
//! There is no checksum. The recorded size distinguishes this media from another one that ends in
//! the same sector (the disk and its last partition).

use super::Volume;
use crate::probe::{ProbeStop, Reason, Sectors, le32, le64, put, span};

/// First field, padded to 16 bytes with NUL.
const MAGIC: &[u8] = b"GEOM::LABEL\0\0\0\0\0";
/// Version written; 1 is read too, without a size.
const VERSION: u32 = 2;
/// Bytes of the metadata.
const LEN: usize = 44;
/// Bytes of a name; a longer one is refused.
const NAME: usize = 16;

/// Why a label cannot be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LabelError {
    /// Empty, or more than 15 bytes, or with a NUL.
    Name,
    /// The media has no space for a label and a sector of data.
    Media,
}

impl std::fmt::Display for LabelError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            LabelError::Name => "label: a name of 1 to 15 bytes is needed",
            LabelError::Media => "label: the media is too small",
        })
    }
}

impl std::error::Error for LabelError {}

/// Byte offset of the sector that holds the label, on media of `media_len` bytes.
fn place(sector_size: u32, media_len: u64) -> Option<u64> {
    let size = u64::from(sector_size);
    let sectors = media_len.checked_div(size)?;
    let fits = sectors >= 2 && sector_size as usize >= LEN;
    fits.then(|| (sectors - 1).saturating_mul(size))
}

/// The sector to write, and its byte offset, to name media of `media_len` bytes.
///
/// # Errors
/// [`LabelError`].
pub fn label(name: &str, sector_size: u32, media_len: u64) -> Result<(u64, Vec<u8>), LabelError> {
    let bytes = name.as_bytes();
    if bytes.is_empty() || bytes.len() >= NAME || bytes.contains(&0) {
        return Err(LabelError::Name);
    }
    let (offset, mut sector) = clear(sector_size, media_len)?;
    let size = u64::from(sector_size);
    put(&mut sector, 0, MAGIC);
    put(&mut sector, 16, &VERSION.to_le_bytes());
    put(&mut sector, 20, bytes);
    put(&mut sector, 36, &(media_len - media_len % size).to_le_bytes());
    Ok((offset, sector))
}

/// The sector of zeros to write, and its byte offset, to remove a label.
///
/// # Errors
/// [`LabelError::Media`].
pub fn clear(sector_size: u32, media_len: u64) -> Result<(u64, Vec<u8>), LabelError> {
    let offset = place(sector_size, media_len).ok_or(LabelError::Media)?;
    Ok((offset, vec![0; sector_size as usize]))
}

/// True when a sector begins as a label does.
pub(crate) fn is_label(sector: &[u8]) -> bool {
    sector.starts_with(MAGIC)
}

pub(crate) fn probe(sectors: &Sectors) -> Result<Volume, ProbeStop> {
    const FIELD: &str = "GEOM label";
    let size = sectors.sector_size();
    let Some(offset) = place(size, sectors.media_len()) else {
        return Err(ProbeStop::no(Reason::Media, 0, FIELD));
    };
    let sector = super::magic(sectors, offset, size as usize, (0, MAGIC), FIELD)?;
    let version = le32(sector, 16);
    if version == 0 || version > VERSION {
        return Err(ProbeStop::no(Reason::Value, offset + 16, "version of the GEOM label"));
    }
    let recorded = if version >= 2 { le64(sector, 36) } else { 0 };
    if recorded != 0 && recorded != sectors.media_len() {
        return Err(ProbeStop::no(
            Reason::Foreign,
            offset + 36,
            "GEOM label of media of another size",
        ));
    }
    let name = super::until_nul(span(sector, 20, NAME));
    Ok(Volume { label: name.to_vec(), uuid: None, len: offset })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::label::{KINDS, step};
    use crate::probe::Step;

    /// Appendix B of the format notes: name usb, media of 1048576 bytes.
    const GOLDEN: &str = "47454f4d3a3a4c4142454c00000000000200000075736200000000000000000000000000\
                          0000100000000000";

    #[test]
    fn encoded_label_matches_golden_bytes() {
        for size in [512, 4096] {
            let (offset, sector) = label("usb", size, 1 << 20).expect("a label");
            assert_eq!(offset, (1 << 20) - u64::from(size));
            assert_eq!(sector.len(), size as usize);
            let hex: String = sector.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hex.get(..88), Some(GOLDEN));
            assert!(sector[LEN..].iter().all(|&byte| byte == 0));
        }
    }

    #[test]
    fn label_is_found_and_ignored_on_a_provider_of_another_size() {
        let (offset, sector) = label("usb", 512, 1 << 20).expect("a label");
        let kind = KINDS.last().expect("a kind");
        let mut sectors = Sectors::new(512, 1 << 20);
        assert_eq!(step(kind, &sectors), Step::Read { offset, len: 512 });
        sectors.insert(offset, sector.clone());
        let Step::Done(found) = step(kind, &sectors) else { panic!("a label") };
        assert_eq!((found.by_name.as_deref(), found.len), (Some("label/usb"), (1 << 20) - 512));
        let mut tail = Sectors::new(512, 1 << 19);
        tail.insert((1 << 19) - 512, sector);
        let Step::No(why) = step(kind, &tail) else { panic!("another's label") };
        assert_eq!(why.reason, Reason::Foreign);
    }

    #[test]
    fn invalid_label_name_or_media_size_is_refused() {
        assert_eq!(label("", 512, 4096), Err(LabelError::Name));
        assert_eq!(label("0123456789abcdef", 512, 4096), Err(LabelError::Name));
        assert!(label("0123456789abcde", 512, 4096).is_ok());
        assert_eq!(label("x", 512, 512), Err(LabelError::Media));
        assert_eq!(label("x", 0, 512), Err(LabelError::Media));
    }
}
