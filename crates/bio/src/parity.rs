//! Parity: sums of blocks (XOR) and multiples of them in GF(2^8), as RAID5 and RAID6 have them.
//!
//! The field is the usual one for RAID6: x^8 + x^4 + x^3 + x^2 + 1, generator 2. All functions work
//! on the shorter of the two lengths. The instruction set is detected at run time.

/// The field's polynomial without its highest term.
const POLY: u8 = 0x1d;

/// `2 * x`.
const fn double(x: u8) -> u8 {
    // All ones when the highest bit is set: no branch, so that many bytes are done at once.
    (x << 1) ^ (((x as i8) >> 7) as u8 & POLY)
}

/// `a * b`.
pub const fn product(a: u8, b: u8) -> u8 {
    let (mut a, mut b, mut sum) = (a, b, 0);
    while b != 0 {
        if b & 1 != 0 {
            sum ^= a;
        }
        a = double(a);
        b >>= 1;
    }
    sum
}

/// `2 ^ exponent`: the weight of a member in the second parity.
pub const fn power(exponent: usize) -> u8 {
    // The generator's powers wrap around after 255.
    let (mut left, mut out) = (exponent % 255, 1);
    while left > 0 {
        out = double(out);
        left -= 1;
    }
    out
}

/// `1 / x`; zero for zero.
pub const fn inverse(x: u8) -> u8 {
    // x^254, for every x but zero has x^255 = 1.
    let (mut left, mut out) = (254u8, 1);
    let mut square = x;
    while left > 0 {
        if left & 1 != 0 {
            out = product(out, square);
        }
        square = product(square, square);
        left >>= 1;
    }
    out
}

/// `to += from`, which in this field is `to ^= from`.
#[inline]
pub fn add(to: &mut [u8], from: &[u8]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2 (checked above).
        return unsafe { x86::add(to, from) };
    }
    add_plain(to, from);
}

#[inline(always)]
fn add_plain(to: &mut [u8], from: &[u8]) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= from;
    }
}

/// `to += factor * from`.
#[inline]
pub fn add_multiple(to: &mut [u8], from: &[u8], factor: u8) {
    if factor == 1 {
        return add(to, from);
    }
    let tables = Tables::of(factor);
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2 (checked above).
        return unsafe { x86::add_multiple(to, from, &tables) };
    }
    add_multiple_plain(to, from, &tables);
}

/// Bytes of the first parity that are made at once: they stay in the innermost cache.
const BLOCK: usize = 4096;

/// The parities of a row: `p = d + e + ...`, `q = 2^n d + 2^m e + ...`, from data with its
/// exponents, the largest first. Data is fetched once and sums are written once.
///
/// All slices are as long as the first data slice; bytes beyond this length are left unchanged.
pub fn row(p: Option<&mut [u8]>, q: Option<&mut [u8]>, from: &[(&[u8], usize)]) {
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2 (checked above).
        return unsafe { x86::row(p, q, from) };
    }
    row_plain(p, q, from, 0);
}

/// [`row`] from byte `at` on.
#[inline(always)]
fn row_plain(p: Option<&mut [u8]>, q: Option<&mut [u8]>, from: &[(&[u8], usize)], at: usize) {
    let Some((first, _)) = from.first() else { return };
    let rest = at..first.len();
    if let Some(p) = p.and_then(|p| p.get_mut(rest.clone())) {
        for (nth, to) in p.chunks_mut(BLOCK).enumerate() {
            sum_plain(to, from, at + nth * BLOCK);
        }
    }
    if let Some(q) = q.and_then(|q| q.get_mut(rest)) {
        weighted_plain(q, from, at);
    }
}

#[inline(always)]
fn sum_plain(to: &mut [u8], from: &[(&[u8], usize)], at: usize) {
    let mut data = from.iter().map(|(bytes, _)| bytes.get(at..).unwrap_or_default());
    match (data.next(), data.next()) {
        (Some(one), Some(two)) => {
            let both = one.iter().zip(two);
            to.iter_mut().zip(both).for_each(|(to, (one, two))| *to = one ^ two);
        }
        (one, _) => {
            let one = one.unwrap_or_default();
            to.iter_mut().zip(one).for_each(|(to, one)| *to = *one);
        }
    }
    for more in data {
        add_plain(to, more);
    }
}

fn weighted_plain(to: &mut [u8], from: &[(&[u8], usize)], at: usize) {
    let mut exponent = from.first().map_or(0, |(_, largest)| *largest);
    to.fill(0);
    // `2^a d + 2^b e = 2^b (2^(a - b) d + e)`
    for (bytes, own) in from {
        while exponent > *own {
            to.iter_mut().for_each(|x| *x = double(*x));
            exponent -= 1;
        }
        add_plain(to, bytes.get(at..).unwrap_or_default());
    }
    for _ in 0..exponent {
        to.iter_mut().for_each(|x| *x = double(*x));
    }
}

fn add_multiple_plain(to: &mut [u8], from: &[u8], tables: &Tables) {
    for (to, from) in to.iter_mut().zip(from) {
        *to ^= tables.multiple(*from);
    }
}

/// `block *= factor`.
pub fn scale(block: &mut [u8], factor: u8) {
    let tables = Tables::of(factor);
    #[cfg(target_arch = "x86_64")]
    if std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the processor has AVX2 (checked above).
        return unsafe { x86::scale(block, &tables) };
    }
    scale_plain(block, &tables);
}

fn scale_plain(block: &mut [u8], tables: &Tables) {
    for byte in block {
        *byte = tables.multiple(*byte);
    }
}

/// Multiples by one factor: of each low and of each high half of a byte.
struct Tables {
    low: [u8; 16],
    high: [u8; 16],
}

impl Tables {
    fn of(factor: u8) -> Tables {
        let (mut low, mut high) = ([0; 16], [0; 16]);
        for (at, (low, high)) in low.iter_mut().zip(&mut high).enumerate() {
            *low = product(factor, at as u8);
            *high = product(factor, (at as u8) << 4);
        }
        Tables { low, high }
    }

    fn multiple(&self, byte: u8) -> u8 {
        self.low[usize::from(byte & 15)] ^ self.high[usize::from(byte >> 4)]
    }
}

#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::{POLY, Tables, add_multiple_plain, add_plain, row_plain, scale_plain};
    use std::arch::x86_64::{
        __m128i, __m256i, _mm_loadu_si128, _mm256_add_epi8, _mm256_and_si256,
        _mm256_broadcastsi128_si256, _mm256_cmpgt_epi8, _mm256_loadu_si256, _mm256_set1_epi8,
        _mm256_setzero_si256, _mm256_shuffle_epi8, _mm256_srli_epi64, _mm256_storeu_si256,
        _mm256_xor_si256,
    };

    const LANE: usize = 32;

    #[target_feature(enable = "avx2")]
    pub(super) fn add(to: &mut [u8], from: &[u8]) {
        // The compiler makes 32-byte steps of it.
        add_plain(to, from);
    }

    /// Lanes of each sum that are in registers at once.
    const LANES: usize = 4;

    #[target_feature(enable = "avx2")]
    pub(super) fn row(mut p: Option<&mut [u8]>, mut q: Option<&mut [u8]>, from: &[(&[u8], usize)]) {
        // Alone, P is made by the compiler's 32-byte steps, one strip after the other. Beside the
        // writes of a row that is no slower than all strips at once.
        let done = match (&mut p, &mut q) {
            (Some(p), Some(q)) => sums::<true>(p, q, from),
            (None, Some(q)) => sums::<false>(&mut [], q, from),
            (_, None) => 0,
        };
        row_plain(p, q, from, done);
    }

    /// Both sums, or the second alone, of as many bytes as there are whole steps of; returns how
    /// many.
    #[target_feature(enable = "avx2")]
    fn sums<const P: bool>(p: &mut [u8], q: &mut [u8], from: &[(&[u8], usize)]) -> usize {
        let Some((first, largest)) = from.first() else { return 0 };
        let steps = first.len() / (LANES * LANE);
        for step in 0..steps {
            let at = step * LANES * LANE;
            let mut p_sums = [_mm256_setzero_si256(); LANES];
            let (mut q_sums, mut exponent) = (p_sums, *largest);
            for (bytes, own) in from {
                let Some(lanes) = lanes(bytes, at) else { return at };
                while exponent > *own {
                    double(&mut q_sums);
                    exponent -= 1;
                }
                for ((p, q), lane) in p_sums.iter_mut().zip(&mut q_sums).zip(lanes) {
                    let data = load(lane);
                    *p = _mm256_xor_si256(*p, data);
                    *q = _mm256_xor_si256(*q, data);
                }
            }
            while exponent > 0 {
                double(&mut q_sums);
                exponent -= 1;
            }
            if P {
                put(p, at, &p_sums);
            }
            put(q, at, &q_sums);
        }
        steps * LANES * LANE
    }

    fn lanes(of: &[u8], at: usize) -> Option<&[[u8; LANE]; LANES]> {
        of.get(at..)?.as_chunks::<LANE>().0.first_chunk::<LANES>()
    }

    #[target_feature(enable = "avx2")]
    fn put(to: &mut [u8], at: usize, sums: &[__m256i; LANES]) {
        let to = to.get_mut(at..).unwrap_or_default();
        for (to, sum) in to.as_chunks_mut::<LANE>().0.iter_mut().zip(sums) {
            store(to, *sum);
        }
    }

    /// Twice each byte.
    #[target_feature(enable = "avx2")]
    fn double(values: &mut [__m256i; LANES]) {
        for value in values {
            // All ones where the highest bit is set.
            let over = _mm256_cmpgt_epi8(_mm256_setzero_si256(), *value);
            let poly = _mm256_and_si256(over, _mm256_set1_epi8(POLY as i8));
            *value = _mm256_xor_si256(_mm256_add_epi8(*value, *value), poly);
        }
    }

    #[target_feature(enable = "avx2")]
    fn load(from: &[u8; LANE]) -> __m256i {
        // SAFETY: 32 bytes are there, and the load needs no alignment.
        unsafe { _mm256_loadu_si256(from.as_ptr().cast::<__m256i>()) }
    }

    #[target_feature(enable = "avx2")]
    fn store(to: &mut [u8; LANE], value: __m256i) {
        // SAFETY: 32 bytes are there, and the store needs no alignment.
        unsafe { _mm256_storeu_si256(to.as_mut_ptr().cast::<__m256i>(), value) }
    }

    #[target_feature(enable = "avx2")]
    fn both_halves(table: &[u8; 16]) -> __m256i {
        // SAFETY: 16 bytes are there, and the load needs no alignment.
        let half = unsafe { _mm_loadu_si128(table.as_ptr().cast::<__m128i>()) };
        _mm256_broadcastsi128_si256(half)
    }

    #[target_feature(enable = "avx2")]
    fn multiple(value: __m256i, low: __m256i, high: __m256i) -> __m256i {
        let mask = _mm256_set1_epi8(15);
        let below = _mm256_and_si256(value, mask);
        let above = _mm256_and_si256(_mm256_srli_epi64::<4>(value), mask);
        _mm256_xor_si256(_mm256_shuffle_epi8(low, below), _mm256_shuffle_epi8(high, above))
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn add_multiple(to: &mut [u8], from: &[u8], tables: &Tables) {
        let len = to.len().min(from.len());
        let (to, from) = (&mut to[..len], &from[..len]);
        let (low, high) = (both_halves(&tables.low), both_halves(&tables.high));
        let (to, rest) = to.as_chunks_mut::<LANE>();
        let (from, rest_from) = from.as_chunks::<LANE>();
        for (to, from) in to.iter_mut().zip(from) {
            let sum = _mm256_xor_si256(load(to), multiple(load(from), low, high));
            store(to, sum);
        }
        add_multiple_plain(rest, rest_from, tables);
    }

    #[target_feature(enable = "avx2")]
    pub(super) fn scale(block: &mut [u8], tables: &Tables) {
        let (low, high) = (both_halves(&tables.low), both_halves(&tables.high));
        let (lanes, rest) = block.as_chunks_mut::<LANE>();
        for lane in lanes {
            let value = multiple(load(lane), low, high);
            store(lane, value);
        }
        scale_plain(rest, tables);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(seed: u8, len: usize) -> Vec<u8> {
        (0..len).map(|i| (i as u8).wrapping_mul(37).wrapping_add(seed.wrapping_mul(91))).collect()
    }

    #[test]
    fn field_elements_have_inverses_and_2_is_a_generator() {
        for a in 1..=255u8 {
            assert_eq!(product(a, inverse(a)), 1, "{a}");
            assert_eq!(product(a, 1), a);
        }
        assert_eq!((power(0), power(1), power(8), power(255)), (1, 2, POLY, 1));
        let all: std::collections::BTreeSet<u8> = (0..255).map(power).collect();
        assert_eq!(all.len(), 255, "2 generates everything but zero");
    }

    #[test]
    fn sums_match_the_definition_at_any_length_and_start() {
        for len in (0..130).chain([4096, 4099]) {
            for skip in 0..3.min(len + 1) {
                let (a, b) = (block(1, len), block(2, len));
                for factor in [0, 1, 2, 0x1d, 0xff] {
                    let mut to = a.clone();
                    add_multiple(&mut to[skip..], &b[skip..], factor);
                    let each = |i: usize| a[i] ^ product(factor, b[i]);
                    let want: Vec<u8> =
                        (0..len).map(|i| if i < skip { a[i] } else { each(i) }).collect();
                    assert_eq!(to, want, "{len} {skip} {factor}");
                    let mut to = b.clone();
                    scale(&mut to, factor);
                    assert!(to.iter().zip(&b).all(|(t, b)| *t == product(factor, *b)));
                }
                let mut to = a.clone();
                add(&mut to, &b);
                assert!((0..len).all(|i| to[i] == a[i] ^ b[i]));
            }
        }
    }

    #[test]
    fn parity_of_a_row_equals_the_sum_of_its_parts() {
        let slots = [[9, 7, 6, 2], [3, 2, 1, 0], [254, 100, 1, 1]];
        for len in [0, 1, 31, 100, 127, 128, 129, 300, 4096, 8192 + 33] {
            for (exponents, count) in slots.iter().flat_map(|s| (0..=4).map(move |n| (s, n))) {
                let data: Vec<Vec<u8>> = (0..count).map(|n| block(n as u8, len)).collect();
                let from: Vec<(&[u8], usize)> =
                    data.iter().map(Vec::as_slice).zip(exponents.iter().copied()).collect();
                let (mut p, mut q) = (vec![0xee; len], vec![0xee; len]);
                row(Some(&mut p), Some(&mut q), &from);
                let (mut p_parts, mut q_parts) = (vec![0; len], vec![0; len]);
                for (bytes, exponent) in &from {
                    add(&mut p_parts, bytes);
                    add_multiple(&mut q_parts, bytes, power(*exponent));
                }
                if count > 0 {
                    assert_eq!((&p, &q), (&p_parts, &q_parts), "{len} {exponents:?} {count}");
                }
                let (mut p_alone, mut q_alone) = (vec![1; len], vec![1; len]);
                row_plain(Some(&mut p_alone), None, &from, 0);
                row(None, Some(&mut q_alone), &from);
                if count > 0 {
                    assert_eq!((p_alone, q_alone), (p, q), "{len} {exponents:?} {count}");
                }
            }
        }
    }

    #[test]
    fn plain_and_fast_agree() {
        let (a, b) = (block(3, 1000), block(4, 1000));
        for factor in 0..=255 {
            let (mut fast, mut plain) = (a.clone(), a.clone());
            add_multiple(&mut fast, &b, factor);
            add_multiple_plain(&mut plain, &b, &Tables::of(factor));
            assert_eq!(fast, plain, "{factor}");
        }
    }
}
