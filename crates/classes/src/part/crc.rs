//! CRC-32 as GPT (UEFI 5.3.2) and DDF (SNIA DDF 2.0, 3.1) use it: IEEE polynomial, reflected,
//! all ones in and out; and the same with Castagnoli's polynomial (RFC 3720, B.4), which Linux
//! puts over logs of partial parity.

/// Reflected form of the IEEE polynomial 0x04c11db7.
const POLY: u32 = 0xedb8_8320;

/// Reflected form of Castagnoli's polynomial 0x1edc6f41.
const CASTAGNOLI: u32 = 0x82f6_3b78;

/// Bytes taken at a step.
const STEP: usize = 8;

/// `TABLES[k][b]` is what byte `b` leaves in the register when `k` zero bytes follow it: a step's
/// bytes are looked up each for itself, and the sum of what they leave is the register.
type Tables = [[u32; 256]; STEP];

static TABLES: Tables = tables(POLY);
static TABLES_C: Tables = tables(CASTAGNOLI);

/// CRC-32 of the concatenated `parts`.
pub(crate) fn crc32(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(u32::MAX, |crc, part| over(&TABLES, crc, part))
}

/// CRC-32C of the concatenated `parts`.
pub(crate) fn crc32c(parts: &[&[u8]]) -> u32 {
    !parts.iter().fold(u32::MAX, |crc, part| over(&TABLES_C, crc, part))
}

/// The register after `bytes`, from `crc`.
fn over(tables: &Tables, mut crc: u32, bytes: &[u8]) -> u32 {
    let (steps, rest) = bytes.as_chunks::<STEP>();
    for step in steps {
        let mixed = u64::from_le_bytes(*step) ^ u64::from(crc);
        crc = 0;
        for (byte, table) in mixed.to_be_bytes().iter().zip(tables) {
            crc ^= table[usize::from(*byte)];
        }
    }
    for byte in rest {
        let [low, ..] = crc.to_le_bytes();
        crc = (crc >> 8) ^ tables[0][usize::from(low ^ byte)];
    }
    crc
}

const fn tables(poly: u32) -> Tables {
    let mut tables = [[0; 256]; STEP];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut k = 0;
        while k < STEP {
            let mut bit = 0;
            while bit < 8 {
                crc = (crc >> 1) ^ (poly & (crc & 1).wrapping_neg());
                bit += 1;
            }
            tables[k][byte] = crc;
            k += 1;
        }
        byte += 1;
    }
    tables
}

#[cfg(test)]
mod tests {
    use super::{POLY, crc32, crc32c};

    #[test]
    fn check_value_of_the_catalogue() {
        assert_eq!(crc32(&[b"1234", b"56789"]), 0xcbf4_3926);
        assert_eq!(crc32c(&[b"1234", b"56789"]), 0xe306_9283);
    }

    /// The definition, bit by bit.
    fn plain(bytes: &[u8]) -> u32 {
        let mut crc = u32::MAX;
        for byte in bytes {
            crc ^= u32::from(*byte);
            for _ in 0..8 {
                crc = if crc & 1 == 0 { crc >> 1 } else { (crc >> 1) ^ POLY };
            }
        }
        !crc
    }

    #[test]
    fn every_length_and_every_cut_is_the_sum_of_the_bits() {
        let bytes: Vec<u8> = (0..40_u8).map(|n| n.wrapping_mul(57) ^ (n >> 1)).collect();
        for length in 0..=bytes.len() {
            let (whole, _) = bytes.split_at(length);
            for at in 0..=length {
                let (head, tail) = whole.split_at(at);
                assert_eq!(crc32(&[head, tail]), plain(whole), "{at} of {length}");
            }
        }
    }
}
