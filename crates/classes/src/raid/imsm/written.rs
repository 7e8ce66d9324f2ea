//! The time at which a record was written, for an operator who chooses between two halves.
//!
//! Intel's format has only the time at which the set was made. The time of the last write is in the
//! first 16 bytes of the header's filler. They contain a mark of our own, the generation, and
//! seconds since 1970, little-endian. No other implementation reads them. One that rewrites the
//! record increases the generation, and the time of another generation is not known.

use crate::probe::{le32, le64, put};

/// The mark of a header that has the time.
const MARK: &[u8; 4] = b"ASHL";
/// Where the generation is in the filler.
const GENERATION_AT: usize = 4;
/// Where the seconds are in the filler.
const SECONDS_AT: usize = 8;
/// Bytes of the filler.
const FILLER: usize = 128;

/// The filler of a record of this generation; zeros when the time is 0 (not known).
pub(super) fn encode(written_s: u64, generation: u32) -> [u8; FILLER] {
    let mut filler = [0; FILLER];
    if written_s != 0 {
        put(&mut filler, 0, MARK);
        put(&mut filler, GENERATION_AT, &generation.to_le_bytes());
        put(&mut filler, SECONDS_AT, &written_s.to_le_bytes());
    }
    filler
}

/// The time in the filler of a record of this generation, or 0.
pub(super) fn decode(filler: &[u8; FILLER], generation: u32) -> u64 {
    let is_ours = filler.starts_with(MARK) && le32(filler, GENERATION_AT) == generation;
    if is_ours { le64(filler, SECONDS_AT) } else { 0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_of_another_generation_or_writer_is_not_known() {
        let filler = encode(1_800_000_000, 7);
        assert_eq!((&filler[..4], &filler[4..8]), (&b"ASHL"[..], &[7, 0, 0, 0][..]));
        assert_eq!(filler[8..16], 1_800_000_000_u64.to_le_bytes());
        assert_eq!(decode(&filler, 7), 1_800_000_000);
        assert_eq!(decode(&filler, 8), 0, "another implementation wrote generation 8");
        let mut foreign = filler;
        foreign[0] ^= 1;
        assert_eq!((decode(&foreign, 7), encode(0, 7)), (0, [0; FILLER]));
    }
}
