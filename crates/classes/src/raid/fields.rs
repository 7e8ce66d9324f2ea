//! Values of fields that both metadata formats have: numbers of sectors, and text.

use super::Fault;

/// Text up to the first zero, without blanks at the end.
pub(super) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(bytes.get(..end).unwrap_or(&[])).trim_end().to_owned()
}

pub(super) fn bytes_of(sectors: u64, size: u32, field: &'static str) -> Result<u64, Fault> {
    let bytes = sectors.checked_mul(u64::from(size));
    bytes.ok_or_else(|| Fault::value(field, format!("is {sectors} sectors: too many")))
}

pub(super) fn sectors_of(bytes: u64, size: u32, field: &'static str) -> Result<u64, Fault> {
    match bytes.checked_rem(u64::from(size)) {
        Some(0) => Ok(bytes / u64::from(size)),
        _ => Err(Fault::value(field, format!("is {bytes} bytes, no whole sectors of {size}"))),
    }
}
