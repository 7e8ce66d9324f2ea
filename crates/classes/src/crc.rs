//! CRCs over pieces, as records on disks have them.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32 of the concatenated `parts`, as GPT (UEFI 5.3.2) and DDF (SNIA DDF 2.0, 3.1) use it.
pub fn crc32(parts: &[&[u8]]) -> u32 {
    over(CrcAlgorithm::Crc32IsoHdlc, parts)
}

/// CRC-32C of the concatenated `parts` (RFC 3720, B.4), which Linux puts over logs of partial
/// parity.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    over(CrcAlgorithm::Crc32Iscsi, parts)
}

fn over(algorithm: CrcAlgorithm, parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(algorithm);
    for part in parts {
        digest.update(part);
    }
    // A CRC of 32 bits is in the low half.
    digest.finalize() as u32
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
