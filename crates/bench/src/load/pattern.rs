//! Data whose every byte depends on its place and on a seed. A misplaced block, or one from an
//! earlier write, therefore differs from the right one.

fn word_at(seed: u64, word: u64) -> [u8; 8] {
    // The finisher of SplitMix64, a bijection of the sum.
    let mut z = seed.wrapping_add(word.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    (z ^ (z >> 31)).to_le_bytes()
}

/// Fills `bytes` with the pattern of byte `at` of the medium.
pub(crate) fn fill(seed: u64, at: u64, bytes: &mut [u8]) {
    walk(seed, at, bytes.len(), |index, byte| {
        if let Some(place) = bytes.get_mut(index) {
            *place = byte;
        }
        true
    });
}

/// The first byte of the medium at which `bytes`, read at `at`, are wrong; None when none is.
pub(crate) fn first_wrong(seed: u64, at: u64, bytes: &[u8]) -> Option<u64> {
    let mut wrong = None;
    walk(seed, at, bytes.len(), |index, byte| {
        if bytes.get(index) != Some(&byte) {
            wrong = Some(at.wrapping_add(index as u64));
        }
        wrong.is_none()
    });
    wrong
}

/// Calls `each(index, byte)` for `len` bytes from `at`, until it answers false.
fn walk(seed: u64, at: u64, len: usize, mut each: impl FnMut(usize, u8) -> bool) {
    let mut index = 0;
    while index < len {
        let place = at.wrapping_add(index as u64);
        for byte in word_at(seed, place / 8).into_iter().skip((place % 8) as usize) {
            if index == len || !each(index, byte) {
                return;
            }
            index += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pattern_pieces_match_the_whole_and_changes_are_detected() {
        let mut whole = vec![0; 256];
        fill(7, 4096, &mut whole);
        for at in 0..100 {
            let mut piece = vec![0; 37];
            fill(7, 4096 + at as u64, &mut piece);
            assert_eq!(piece, whole[at..at + 37]);
            assert_eq!(first_wrong(7, 4096 + at as u64, &piece), None);
            piece[at % 37] ^= 1;
            let wrong = 4096 + at as u64 + (at % 37) as u64;
            assert_eq!(first_wrong(7, 4096 + at as u64, &piece), Some(wrong));
        }
        assert!(first_wrong(8, 4096, &whole).is_some(), "another seed");
        assert!(first_wrong(7, 4608, &whole).is_some(), "another place");
    }
}
