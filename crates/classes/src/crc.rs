//! CRCs over pieces, as records on disks have them.

pub use wire::crc32;
use wire::iscsi::Crc32c;

/// CRC-32C of the concatenated `parts` (RFC 3720, B.4), which Linux puts over logs of partial
/// parity.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    let mut crc = Crc32c::new();
    for part in parts {
        crc.update(part);
    }
    u32::from_le_bytes(crc.wire())
}

#[cfg(test)]
mod tests {
    use super::{crc32, crc32c};

    #[test]
    fn crcs_match_the_published_check_values() {
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
        assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
    }
}
