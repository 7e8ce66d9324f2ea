//! Lineage records: proof of the relative age of two members. They show which member continued
//! without the other, and how often the mirror has been written since.
//!
//! FreeBSD's counters identify the newer member as long as only one mirror ran at a time. Two
//! halves that were each used alone have equal counters. A member that was restored from an older
//! copy of itself has the counters of that copy. Therefore the last sector has further fields
//! behind FreeBSD's record. FreeBSD ignores them there and clears them when it writes the record:
//!
//! ```text
//!   "ASHLAR::LINEAGE", 0 | version | held by | how many before | line | events | written |
//!   lines before, newest first | MD5 of FreeBSD's record and this
//! ```
//!
//! Invariants
//!  L1  A line is a number for a run of contents. It changes before the first write without a
//!      member that has it, in the records of that change. Two members that continued alone have
//!      other lines.
//!  L2  The earlier lines of a mirror are kept, so that a member with one of them is known as
//!      older, regardless of its counters.
//!  L3  `events` grows in all records before the first write and after the last one. A power cut
//!      between two members of one line makes it differ by one. A larger difference means that the
//!      lower is an older copy.
//!  L4  Zero is unknown: a record written by FreeBSD, or by a version without lines. Then the
//!      counters alone decide, as in FreeBSD.

use md5::{Digest, Md5};

/// Lines before that are kept; when there were more, an unknown one proves nothing.
pub(super) const BEFORE_MAX: usize = 16;

const MAGIC: &[u8; 16] = b"ASHLAR::LINEAGE\0";
const VERSION: u8 = 1;
/// Bytes before the lines.
const HEAD: usize = 16 + 3 + 8 * 3;
const SUM: usize = 16;

/// See the module.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Lineage {
    /// The line; zero: not known.
    pub(super) line: u64,
    /// Total number of members that have the line.
    pub(super) held_by: u8,
    /// How often writes began or ended.
    pub(super) events: u64,
    /// When the record was written, seconds since 1970.
    pub(super) written_s: u64,
    /// Lines before, newest first.
    pub(super) earlier_lines: Vec<u64>,
}

/// How one record's line is related to another's.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Relation {
    /// The same line.
    Same,
    /// The other continued without it.
    Older,
    /// It continued without the other.
    Newer,
    /// Each continued without the other.
    Apart,
    /// Nothing is proved (L4).
    Unknown,
}

impl Lineage {
    /// Of a mirror that is made now.
    pub(super) fn first(id: u32) -> Lineage {
        Lineage { line: mix(u64::from(id), [u32::MAX].into_iter()), ..Lineage::default() }
    }

    pub(super) fn relation_to(&self, other: &Lineage) -> Relation {
        let has = |a: &Lineage, line: u64| a.earlier_lines.contains(&line);
        match (self.line, other.line) {
            (0, _) | (_, 0) => Relation::Unknown,
            (a, b) if a == b => Relation::Same,
            (a, _) if has(other, a) => Relation::Older,
            (_, b) if has(self, b) => Relation::Newer,
            _ if self.earlier_lines.len().max(other.earlier_lines.len()) >= BEFORE_MAX => {
                Relation::Unknown
            }
            _ => Relation::Apart,
        }
    }

    /// Starts a new line for the members with these numbers, which continue while others may have
    /// the old line (L1). The number is derived from the members, so that other members cannot get
    /// the same.
    pub(super) fn fork(&mut self, members: impl Iterator<Item = u32>, counters: (u32, u32)) {
        let counters = [counters.0, counters.1].into_iter();
        let mut members: Vec<u32> = members.collect();
        members.sort_unstable();
        let line = mix(self.line, members.iter().copied().chain(counters));
        if self.line != 0 {
            self.remember(self.line);
        }
        self.line = line;
        self.held_by = u8::try_from(members.len()).unwrap_or(u8::MAX);
    }

    /// What another has is given up for this one's: it counts as older from now on.
    pub(super) fn outrank(&mut self, other: &Lineage) {
        for line in other.earlier_lines.iter().rev().chain([&other.line]) {
            if *line != self.line && *line != 0 {
                self.remember(*line);
            }
        }
    }

    fn remember(&mut self, line: u64) {
        self.earlier_lines.retain(|l| *l != line);
        self.earlier_lines.insert(0, line);
        self.earlier_lines.truncate(BEFORE_MAX);
    }

    /// Reads the lineage behind a record; the default (unknown) when it is damaged or belongs to
    /// another record.
    pub(super) fn decode(sector: &[u8], record_len: usize) -> Lineage {
        Lineage::read(sector, record_len).unwrap_or_default()
    }

    fn read(sector: &[u8], record_len: usize) -> Option<Lineage> {
        let (record, rest) = sector.split_at_checked(record_len)?;
        let head: &[u8; HEAD] = rest.first_chunk()?;
        let [version, held_by, count] = *head.get(16..)?.first_chunk::<3>()?;
        if !head.starts_with(MAGIC) || version != VERSION || usize::from(count) > BEFORE_MAX {
            return None;
        }
        let word = |at: usize| Some(u64::from_le_bytes(*rest.get(at..)?.first_chunk()?));
        let end = HEAD + usize::from(count) * 8;
        let before = (0..usize::from(count)).map(|i| word(HEAD + i * 8)).collect::<Option<_>>()?;
        let sum = sum(record, rest.get(..end)?);
        if rest.get(end..)?.first_chunk::<SUM>()? != &sum {
            return None;
        }
        let (line, events, written_s) = (word(19)?, word(27)?, word(35)?);
        Some(Lineage { line, held_by, events, written_s, earlier_lines: before })
    }

    /// Appends itself to a record; nothing when it is not known.
    pub(super) fn encode(&self, record: &mut Vec<u8>) {
        if self.line == 0 {
            return;
        }
        let from = record.len();
        record.extend(MAGIC);
        record.extend([VERSION, self.held_by, self.earlier_lines.len() as u8]);
        for word in [self.line, self.events, self.written_s].iter().chain(&self.earlier_lines) {
            record.extend(word.to_le_bytes());
        }
        let (freebsd, ours) = record.split_at(from);
        let sum = sum(freebsd, ours);
        record.extend(sum);
    }
}

fn sum(record: &[u8], ours: &[u8]) -> [u8; SUM] {
    Md5::new().chain_update(record).chain_update(ours).finalize().into()
}

fn mix(line: u64, words: impl Iterator<Item = u32>) -> u64 {
    let mut digest = Md5::new().chain_update(line.to_le_bytes());
    words.for_each(|word| digest.update(word.to_le_bytes()));
    let bytes: [u8; 16] = digest.finalize().into();
    bytes.first_chunk().map_or(1, |b| u64::from_le_bytes(*b)).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forked(from: &Lineage, members: &[u32]) -> Lineage {
        let mut to = from.clone();
        to.fork(members.iter().copied(), (0, 1));
        to
    }

    #[test]
    fn l1_l2_lineages_compare_as_same_older_newer_or_apart() {
        let both = Lineage::first(7);
        let (one, two) = (forked(&both, &[1]), forked(&both, &[2]));
        assert_eq!(
            (both.relation_to(&both), both.relation_to(&one), one.relation_to(&both)),
            same_older_newer()
        );
        assert_eq!(
            (one.relation_to(&two), two.relation_to(&one)),
            (Relation::Apart, Relation::Apart)
        );
        let on = forked(&one, &[1]);
        assert_eq!(
            (both.relation_to(&on), on.relation_to(&two)),
            (Relation::Older, Relation::Apart)
        );
        let mut kept = one.clone();
        kept.outrank(&two);
        assert_eq!(
            (two.relation_to(&kept), both.relation_to(&kept)),
            (Relation::Older, Relation::Older)
        );
        assert_eq!(forked(&both, &[2, 1]), forked(&both, &[1, 2]), "in any order");
        assert_eq!(Lineage::default().relation_to(&one), Relation::Unknown);
    }

    fn same_older_newer() -> (Relation, Relation, Relation) {
        (Relation::Same, Relation::Older, Relation::Newer)
    }

    #[test]
    fn forgotten_line_compares_as_unknown() {
        let both = Lineage::first(7);
        let mut far = both.clone();
        (0..=BEFORE_MAX as u32).for_each(|n| far.fork([1, n].into_iter(), (0, n)));
        assert_eq!(
            (both.relation_to(&far), far.relation_to(&both)),
            (Relation::Unknown, Relation::Unknown)
        );
    }

    #[test]
    fn lineage_round_trips_and_every_damaged_byte_is_detected() {
        let mut full = Lineage::first(7);
        (0..40).for_each(|n| full.fork([1].into_iter(), (0, n)));
        (full.events, full.written_s) = (5, 1_800_000_000);
        for lineage in [Lineage::first(7), full] {
            let mut sector = b"a record".to_vec();
            lineage.encode(&mut sector);
            let len = sector.len();
            assert!(len + 140 - 8 <= 512, "there is room for it: {len}");
            sector.resize(512, 0);
            assert_eq!(Lineage::decode(&sector, 8), lineage);
            for at in 0..len {
                let mut damaged = sector.clone();
                damaged[at] ^= 1;
                assert_eq!(Lineage::decode(&damaged, 8), Lineage::default(), "byte {at}");
            }
            assert_eq!(Lineage::decode(&sector[..len - 1], 8), Lineage::default());
            // FreeBSD writes its record alone.
            sector[8..].fill(0);
            assert_eq!(Lineage::decode(&sector, 8), Lineage::default());
        }
    }

    #[test]
    fn fields_are_where_the_page_of_formats_has_them() {
        let of = Lineage { line: 7, held_by: 2, events: 8, written_s: 9, earlier_lines: vec![5] };
        let mut record = Vec::new();
        of.encode(&mut record);
        testkit::formats::FieldTable::of("### mirror", "offset", 1).assert_holds(
            &record,
            &[
                ("magic", MAGIC),
                ("version", &[VERSION]),
                ("held by", &[2]),
                ("n", &[1]),
                ("line", &7u64.to_le_bytes()),
                ("events", &8u64.to_le_bytes()),
                ("written", &9u64.to_le_bytes()),
            ],
        );
    }
}
