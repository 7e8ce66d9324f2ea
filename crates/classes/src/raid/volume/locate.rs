//! Location of the wrong strip in a row with two parities.
//!
//! The parities of data `d[i]` are `p = sum d[i]` and `q = sum g^i d[i]` in the field of
//! [`bio::parity`], g = 2. Let `a` be the stored `p` added to the `p` computed from the stored
//! data, and `b` the same of `q`, byte by byte:
//!
//! ```text
//! wrong by e      a   b          so
//! nothing         0   0
//! p               e   0
//! q               0   e
//! d[z]            e   g^z e      g^z = b / a: z is the logarithm, and must be a data strip
//! several         anything
//! ```
//!
//! Each byte for itself finds one strip that is wrong, or that there are two. The code has distance
//! 3, which is enough for either and not for both. So two strips that are wrong in the same
//! byte may look like a third there, as n data strips of 255 logarithms do. Therefore no byte is
//! believed alone: all that are wrong in a piece of the row must speak of the same strip. Of strips
//! that hold something else altogether hundreds of bytes differ, and (n / 255)^100 is nothing.

use bio::parity;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum WrongStrip {
    /// One of the parities: the one that differs.
    Parity,
    /// The data strip in a slot.
    Data(usize),
    /// More than one.
    Untold,
}

/// The wrong strip, from the differences of the parities, which are not all zero. `data`: slots of
/// the data, each of the weight 2 ^ slot in the second parity.
pub(super) fn locate(p_off: &[u8], q_off: &[u8], data: &[usize]) -> WrongStrip {
    let mut blamed = None;
    // The strip of the previous byte is the most likely one: testing it costs one product.
    for (a, b) in p_off.iter().copied().zip(q_off.iter().copied()) {
        let who = match (a, b) {
            (0, 0) => continue,
            (_, 0) => Candidate::First,
            (0, _) => Candidate::Second,
            (a, b) => {
                let fits = |slot: &usize| parity::product(parity::power(*slot), a) == b;
                let again = match blamed {
                    Some(Candidate::Data(slot)) if fits(&slot) => Some(slot),
                    _ => data.iter().copied().find(fits),
                };
                let Some(slot) = again else { return WrongStrip::Untold };
                Candidate::Data(slot)
            }
        };
        if *blamed.get_or_insert(who) != who {
            return WrongStrip::Untold;
        }
    }
    match blamed {
        Some(Candidate::Data(slot)) => WrongStrip::Data(slot),
        _ => WrongStrip::Parity,
    }
}

/// The strip that one byte indicates.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Candidate {
    First,
    Second,
    Data(usize),
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Chance(u64);

    impl Chance {
        fn next(&mut self) -> u64 {
            self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            self.0 >> 33
        }

        fn bytes(&mut self, len: usize) -> Vec<u8> {
            (0..len).map(|_| self.next() as u8).collect()
        }

        /// Some bytes of a strip become others: one of them, or many.
        fn spoil(&mut self, strip: &mut [u8]) {
            let (from, step) = (self.next() as usize % strip.len(), 1 + self.next() as usize % 9);
            let end = if self.next().is_multiple_of(4) { from + 1 } else { strip.len() };
            for at in (from..end).step_by(step) {
                strip[at] ^= 1 + (self.next() % 255) as u8;
            }
        }
    }

    const LEN: usize = 600;

    /// A row of `members` strips with parity where DDF has it in a row.
    struct Strips {
        all: Vec<Vec<u8>>,
        p: usize,
        q: usize,
        data: Vec<usize>,
    }

    fn sums(all: &[Vec<u8>], data: &[usize]) -> [Vec<u8>; 2] {
        let mut sums = [vec![0; LEN], vec![0; LEN]];
        for slot in data {
            parity::add(&mut sums[0], &all[*slot]);
            parity::add_multiple(&mut sums[1], &all[*slot], parity::power(*slot));
        }
        sums
    }

    fn strips(chance: &mut Chance, members: usize) -> Strips {
        let p = chance.next() as usize % members;
        let q = (p + 1) % members;
        let data: Vec<usize> = (0..members).filter(|slot| ![p, q].contains(slot)).collect();
        let mut all: Vec<Vec<u8>> = (0..members).map(|_| chance.bytes(LEN)).collect();
        [all[p], all[q]] = sums(&all, &data);
        Strips { all, p, q, data }
    }

    fn judged(of: &Strips) -> (WrongStrip, Vec<u8>) {
        let [mut a, mut b] = sums(&of.all, &of.data);
        parity::add(&mut a, &of.all[of.p]);
        parity::add(&mut b, &of.all[of.q]);
        (locate(&a, &b, &of.data), a)
    }

    #[test]
    fn one_wrong_strip_is_located_in_any_position() {
        let mut chance = Chance(1);
        for members in [3, 4, 5, 8, 17, 64] {
            for _ in 0..6 {
                let good = strips(&mut chance, members);
                for slot in 0..members {
                    let mut bad = Strips { all: good.all.clone(), data: good.data.clone(), ..good };
                    chance.spoil(&mut bad.all[slot]);
                    let (blame, off) = judged(&bad);
                    if [bad.p, bad.q].contains(&slot) {
                        assert_eq!(blame, WrongStrip::Parity, "{slot} of {members}");
                        continue;
                    }
                    assert_eq!(blame, WrongStrip::Data(slot), "{slot} of {members}");
                    parity::add(&mut bad.all[slot], &off);
                    assert!(bad.all[slot] == good.all[slot], "{slot} of {members}");
                }
            }
        }
    }

    #[test]
    fn two_wrong_strips_are_never_located_as_one() {
        let mut chance = Chance(2);
        for members in [4, 5, 8, 17, 64] {
            for _ in 0..200 {
                let mut bad = strips(&mut chance, members);
                let one = chance.next() as usize % members;
                let two = (one + 1 + chance.next() as usize % (members - 1)) % members;
                for slot in [one, two] {
                    let other = chance.bytes(LEN);
                    bad.all[slot] = other;
                }
                assert_eq!(judged(&bad).0, WrongStrip::Untold, "{one} and {two} of {members}");
            }
        }
    }

    #[test]
    fn strips_wrong_in_different_bytes_are_not_located_as_one() {
        let mut chance = Chance(3);
        for _ in 0..200 {
            let mut bad = strips(&mut chance, 6);
            for (nth, at) in [(0, 17), (3, 400)] {
                bad.all[nth][at] ^= 0x40;
            }
            assert_eq!(judged(&bad).0, WrongStrip::Untold);
        }
    }

    #[test]
    fn logarithm_of_no_data_strip_locates_no_strip() {
        // 2 ^ 3 with three data strips; and 2 ^ 1 where slot 1 is a parity.
        assert_eq!(locate(&[1], &[8], &[0, 1, 2]), WrongStrip::Untold);
        assert_eq!(locate(&[1], &[2], &[0, 3]), WrongStrip::Untold);
        assert_eq!(locate(&[0, 1, 0], &[0, 8, 0], &[0, 3]), WrongStrip::Data(3));
    }
}
