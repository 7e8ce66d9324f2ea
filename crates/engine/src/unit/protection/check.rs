//! Checks and construction of tuples.

use bio::Segs;
use wire::scsi::{
    Asc, Key, Protect, ProtectionType, Sense, TUPLE_LEN, Tags, Tuple, guard, guard_more,
};

const GUARD_FAILED: Asc = Asc::new(Key::AbortedCommand, 0x10, 0x01);
/// LOGICAL BLOCK APPLICATION TAG CHECK FAILED.
const APP_FAILED: Asc = Asc::new(Key::AbortedCommand, 0x10, 0x02);
/// LOGICAL BLOCK REFERENCE TAG CHECK FAILED.
const REFERENCE_FAILED: Asc = Asc::new(Key::AbortedCommand, 0x10, 0x03);

/// Type and rules for the blocks that are checked.
#[derive(Clone, Copy)]
pub(crate) struct Facts {
    pub kind: ProtectionType,
    /// First block.
    pub lba: u64,
    /// Of a 32-byte command; they mean something with type 2 only.
    pub tags: Option<Tags>,
    pub rules: Protect,
    /// The tuples are from the medium: the escape value counts.
    pub from_medium: bool,
}

impl Facts {
    /// The reference tag that block number `i` must have, where that is known.
    fn reference(&self, i: u32) -> Option<u32> {
        match self.kind {
            ProtectionType::One => Some(low(self.lba).wrapping_add(i)),
            ProtectionType::Two => self.tags.map(|tags| tags.reference.wrapping_add(i)),
            ProtectionType::Three => None,
        }
    }

    /// Checks tuples in wire format, one for each block; the first wrong one is reported with its
    /// LBA.
    pub fn check(&self, data: &Segs, unit: u64, tuples: &[u8]) -> Result<(), Sense> {
        let guards = if self.rules.guard { guards(data, unit) } else { Vec::new() };
        let mut number = 0u32;
        for bytes in tuples.as_chunks::<TUPLE_LEN>().0 {
            let guard = guards.get(number as usize).copied();
            self.check_one(&Tuple::decode(bytes), guard, number).map_err(|code| {
                let lba = self.lba.saturating_add(u64::from(number));
                Sense::new(code).with_information(lba)
            })?;
            number = number.saturating_add(1);
        }
        Ok(())
    }

    fn check_one(&self, tuple: &Tuple, guard: Option<u16>, number: u32) -> Result<(), Asc> {
        if self.from_medium && tuple.is_escape(self.kind) {
            return Ok(());
        }
        if self.rules.guard && guard.is_some_and(|guard| guard != tuple.guard) {
            return Err(GUARD_FAILED);
        }
        if self.rules.app
            && self.kind == ProtectionType::Two
            && let Some(tags) = self.tags
            && (tuple.app ^ tags.application) & tags.mask != 0
        {
            return Err(APP_FAILED);
        }
        if self.rules.reference
            && self.reference(number).is_some_and(|wanted| wanted != tuple.reference)
        {
            return Err(REFERENCE_FAILED);
        }
        Ok(())
    }
}

/// Low half of an LBA.
fn low(lba: u64) -> u32 {
    (lba & u64::from(u32::MAX)) as u32
}

/// The guards of whole blocks, wherever the segments are cut.
pub(crate) fn guards(data: &Segs, unit: u64) -> Vec<u16> {
    let unit = usize::try_from(unit).unwrap_or(usize::MAX).max(1);
    let mut out = Vec::with_capacity(data.len() / unit);
    let (mut crc, mut have) = (0, 0);
    for seg in data.iter() {
        seg.with(|mut bytes| {
            while !bytes.is_empty() {
                let (now, rest) = bytes.split_at(bytes.len().min(unit - have));
                crc = guard_more(crc, now);
                have += now.len();
                bytes = rest;
                if have == unit {
                    out.push(crc);
                    (crc, have) = (0, 0);
                }
            }
        });
    }
    out
}

/// Default tuple for block `lba`: its application tag is zero, because no initiator has set one.
fn own(kind: ProtectionType, lba: u64, guard: u16) -> Tuple {
    let reference = match kind {
        ProtectionType::One | ProtectionType::Two => low(lba),
        ProtectionType::Three => u32::MAX,
    };
    Tuple { guard, app: 0, reference }
}

/// Tuples for data that arrives without.
pub(crate) fn generate(kind: ProtectionType, lba: u64, data: &Segs, unit: u64) -> Vec<u8> {
    let guards = guards(data, unit).into_iter();
    (lba..).zip(guards).flat_map(|(lba, guard)| own(kind, lba, guard).encode()).collect()
}

pub(crate) fn generate_zeroes(kind: ProtectionType, lba: u64, blocks: u64, unit: u64) -> Vec<u8> {
    let zero = guard(&vec![0; usize::try_from(unit).unwrap_or(0)]);
    (lba..lba.saturating_add(blocks)).flat_map(|lba| own(kind, lba, zero).encode()).collect()
}

/// Between the wire and the medium.
pub(crate) fn flip(tuples: &mut [u8]) {
    tuples.iter_mut().for_each(|byte| *byte = !*byte);
}

/// Splits blocks with their tuples, in wire order. An incomplete block or tuple is left out.
pub(crate) fn split(both: &[u8], unit: u32) -> (Vec<u8>, Vec<u8>) {
    let unit = unit as usize;
    let blocks = both.len() / (unit + TUPLE_LEN);
    let mut data = Vec::with_capacity(blocks * unit);
    let mut tuples = Vec::with_capacity(blocks * TUPLE_LEN);
    for one in both.chunks_exact(unit + TUPLE_LEN) {
        let (block, tuple) = one.split_at(unit);
        data.extend_from_slice(block);
        tuples.extend_from_slice(tuple);
    }
    (data, tuples)
}

/// The inverse of [`split`].
pub(crate) fn join(data: &[u8], tuples: &[u8], unit: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(data.len() + tuples.len());
    for (block, tuple) in data.chunks_exact(unit as usize).zip(tuples.chunks_exact(TUPLE_LEN)) {
        out.extend_from_slice(block);
        out.extend_from_slice(tuple);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(kind: ProtectionType, field: u8, tags: Option<Tags>) -> Facts {
        let rules = Protect::from_field(field).unwrap();
        Facts { kind, lba: 0x1_0000_0002, tags, rules, from_medium: true }
    }

    #[test]
    fn each_protection_type_checks_its_own_fields() {
        use ProtectionType::{One, Three, Two};
        let good = Tuple { guard: 5, app: 0x1234, reference: 3 };
        let tags = Some(Tags { reference: 2, application: 0x12FF, mask: 0xFF00 });
        let try_it = |f: Facts, t: Tuple| f.check_one(&t, Some(5), 1);
        for kind in [One, Two, Three] {
            assert_eq!(try_it(facts(kind, 1, tags), good), Ok(()));
            let wrong = Tuple { guard: 6, ..good };
            for (field, end) in [
                (0, Err(GUARD_FAILED)),
                (1, Err(GUARD_FAILED)),
                (2, Ok(())),
                (3, Ok(())),
                (4, Err(GUARD_FAILED)),
            ] {
                assert_eq!(try_it(facts(kind, field, tags), wrong), end, "{kind:?} {field}");
            }
            let escape = Tuple { app: 0xFFFF, guard: 9, reference: 9 };
            let want = if kind == Three { Err(GUARD_FAILED) } else { Ok(()) };
            assert_eq!(try_it(facts(kind, 1, tags), escape), want);
            let sent = Facts { from_medium: false, ..facts(kind, 1, tags) };
            assert_eq!(try_it(sent, Tuple::ESCAPE), Err(GUARD_FAILED));
        }
        let moved = Tuple { reference: 4, ..good };
        assert_eq!(try_it(facts(One, 1, None), moved), Err(REFERENCE_FAILED));
        assert_eq!(try_it(facts(Two, 1, tags), moved), Err(REFERENCE_FAILED));
        assert_eq!(try_it(facts(Two, 1, None), moved), Ok(()));
        assert_eq!(try_it(facts(Three, 1, None), moved), Ok(()));
        assert_eq!(try_it(facts(One, 4, None), moved), Ok(()));
        let other = Tuple { app: 0x1334, ..good };
        assert_eq!(try_it(facts(Two, 2, tags), other), Err(APP_FAILED));
        assert_eq!(try_it(facts(Two, 4, tags), other), Ok(()));
    }

    #[test]
    fn splitting_and_joining_blocks_and_tuples_are_inverse() {
        let both: Vec<u8> = (0..3 * 24).collect();
        let (data, tuples) = split(&both, 16);
        assert_eq!((data.len(), &tuples[8..16]), (48, &both[40..48]));
        assert_eq!(join(&data, &tuples, 16), both);
        assert_eq!(split(&both[..47], 16).0.len(), 16);
    }
}
