//! CRC-32 as GPT uses it (UEFI 5.3.2): IEEE polynomial, reflected, all ones in and out.

/// Reflected form of the IEEE polynomial 0x04c11db7.
const POLY: u32 = 0xedb8_8320;

/// CRC-32 of the concatenated `parts`. A table of 128 entries takes well below a millisecond,
/// and is computed only when a disk is tasted or its table written.
pub(crate) fn crc32(parts: &[&[u8]]) -> u32 {
    let mut crc = u32::MAX;
    for part in parts {
        for &byte in *part {
            crc ^= u32::from(byte);
            for _ in 0..8 {
                let carry = crc & 1;
                crc >>= 1;
                if carry != 0 {
                    crc ^= POLY;
                }
            }
        }
    }
    !crc
}

#[cfg(test)]
mod tests {
    #[test]
    fn check_value_of_the_catalogue() {
        assert_eq!(super::crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
    }
}
