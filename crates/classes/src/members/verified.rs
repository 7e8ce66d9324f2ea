//! Results of a comparison of members, as lists show them and verbs return them.

use std::ops::Range;

use schemars::JsonSchema;
use serde::Serialize;

/// Places kept for lists; further ones are only counted.
pub(crate) const MISMATCHES_MAX: usize = 16;

/// The fault of a place.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum MismatchKind {
    /// It differs from the data that it is compared with.
    Differs,
    /// Data that differs from the value on which two parities agree.
    Located,
    /// Two parities that do not agree on a single wrong member.
    Ambiguous,
    /// It could not be read.
    Unreadable,
}

/// Something on a member that is not as it should be.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Mismatch {
    pub(crate) slot: usize,
    /// Bytes, in the offsets of the comparison.
    pub(crate) range: Range<u64>,
    pub(crate) kind: MismatchKind,
}

/// Progress and results of a run.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct VerifyReport {
    /// Number of the run; zero: there was none.
    pub(crate) round: u64,
    pub(crate) running: bool,
    /// The reason why it did not complete.
    pub(crate) fault: Option<&'static str>,
    pub(crate) repair: bool,
    /// Bytes compared, of so many.
    pub(crate) at: u64,
    pub(crate) media_bytes: u64,
    /// Sectors that differ, those of them whose wrong member is unknown, those that could not be
    /// read, and those that were rewritten.
    pub(crate) differ: u64,
    pub(crate) ambiguous: u64,
    pub(crate) unreadable: u64,
    pub(crate) repaired: u64,
    pub(crate) mismatches: Vec<Mismatch>,
}

/// Progress and results of a comparison, as verbs answer them.
#[derive(Serialize, JsonSchema)]
pub(crate) struct ComparisonReport {
    /// Whether the comparison runs.
    running: bool,
    /// Reason why it ended early; null: it did not.
    fault: Option<&'static str>,
    /// Whether it repairs.
    repair: bool,
    /// Bytes compared so far.
    compared_bytes: u64,
    /// Bytes to be compared in all.
    media_bytes: u64,
    /// Sectors that differ.
    differing_sectors: u64,
    /// Sectors that differ and whose wrong member is unknown.
    untold_sectors: u64,
    /// Sectors that cannot be read.
    unreadable_sectors: u64,
    /// Sectors that were rewritten.
    repaired_sectors: u64,
    /// The first places with a fault.
    places: Vec<MismatchPlace>,
}

/// A place of a member with a fault.
#[derive(Serialize, JsonSchema)]
struct MismatchPlace {
    /// Name of the provider.
    provider: String,
    /// First byte of the place.
    from: u64,
    /// First byte after the place.
    to: u64,
    /// Whether the place cannot be read.
    unreadable: bool,
    /// Whether it is unknown which member is wrong.
    untold: bool,
}

impl VerifyReport {
    /// Changes the report of a run; false when the run is not wanted any more.
    pub(crate) fn update(&mut self, round: u64, f: impl FnOnce(&mut VerifyReport)) -> bool {
        let wanted = self.round == round && self.running;
        if wanted {
            f(self);
        }
        wanted
    }

    pub(crate) fn line(&self) -> String {
        let total = self.media_bytes.max(1);
        let percent = u128::from(self.at) * 100 / u128::from(total);
        let end = match (self.running, self.fault) {
            (true, _) => format!("{percent}%"),
            (false, None) => "done".to_owned(),
            (false, Some(why)) => format!("ended at {percent}%: {why}"),
        };
        let (differ, unreadable) = (self.differ, self.unreadable);
        let mut line = format!("{end}; {differ} sectors differ, {unreadable} cannot be read");
        if self.ambiguous > 0 {
            line += &format!(
                ", {} of parity that matches no strip: more than one is wrong, and the wrong ones \
                 are unknown",
                self.ambiguous
            );
        }
        if self.repair {
            line += &format!(", {} written anew", self.repaired);
        }
        line
    }

    /// For programs; `name` returns the name of the member in a slot.
    pub(crate) fn report(&self, name: impl Fn(usize) -> String) -> ComparisonReport {
        let place = |p: &Mismatch| MismatchPlace {
            provider: name(p.slot),
            from: p.range.start,
            to: p.range.end,
            unreadable: p.kind == MismatchKind::Unreadable,
            untold: p.kind == MismatchKind::Ambiguous,
        };
        ComparisonReport {
            running: self.running,
            fault: self.fault,
            repair: self.repair,
            compared_bytes: self.at,
            media_bytes: self.media_bytes,
            differing_sectors: self.differ,
            untold_sectors: self.ambiguous,
            unreadable_sectors: self.unreadable,
            repaired_sectors: self.repaired,
            places: self.mismatches.iter().map(place).collect(),
        }
    }

    /// Something was found; runs that touch are one place.
    pub(crate) fn add_mismatch(&mut self, place: Mismatch, sector: u64) {
        let sectors = (place.range.end - place.range.start) / sector.max(1);
        match place.kind {
            MismatchKind::Unreadable => self.unreadable += sectors,
            _ => self.differ += sectors,
        }
        self.ambiguous += if place.kind == MismatchKind::Ambiguous { sectors } else { 0 };
        if let Some(last) = self.mismatches.last_mut()
            && last.slot == place.slot
            && last.kind == place.kind
            && last.range.end == place.range.start
        {
            last.range.end = place.range.end;
        } else if self.mismatches.len() < MISMATCHES_MAX {
            self.mismatches.push(place);
        }
    }
}

/// Sectors in which two pieces of the same length differ, joined to runs, in bytes of the piece.
pub(crate) fn differences(right: &[u8], other: &[u8], sector: usize) -> Vec<Range<usize>> {
    let sector = sector.max(1);
    let mut out: Vec<Range<usize>> = Vec::new();
    if right == other {
        return out;
    }
    let pairs = right.chunks(sector).zip(other.chunks(sector));
    for (at, _) in pairs.enumerate().filter(|(_, (a, b))| a != b) {
        let (start, end) = (at * sector, ((at + 1) * sector).min(right.len()));
        match out.last_mut() {
            Some(last) if last.end == start => last.end = end,
            _ => out.push(start..end),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn differences_are_runs_of_whole_sectors() {
        let right = [0u8; 40];
        let mut other = right;
        assert!(differences(&right, &other, 8).is_empty());
        other[9] = 1;
        other[16] = 1;
        other[39] = 1;
        assert_eq!(differences(&right, &other, 8), [8..24, 32..40]);
    }

    #[test]
    fn adjacent_differences_are_merged_and_the_list_is_bounded() {
        let mut report = VerifyReport::default();
        for at in 0..4u64 {
            let range = at * 512..(at + 1) * 512;
            report.add_mismatch(Mismatch { slot: 1, range, kind: MismatchKind::Differs }, 512);
        }
        assert_eq!(report.mismatches.len(), 1);
        for at in 0..2 * MISMATCHES_MAX as u64 {
            let range = at * 4096..at * 4096 + 512;
            report.add_mismatch(Mismatch { slot: 0, range, kind: MismatchKind::Unreadable }, 512);
        }
        assert_eq!((report.differ, report.unreadable), (4, 2 * MISMATCHES_MAX as u64));
        assert_eq!(report.mismatches.len(), MISMATCHES_MAX);
    }
}
