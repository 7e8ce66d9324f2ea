//! Numbers of a file server for monitors.

use geom::Measure;

use super::shared::{Phase, Status};

/// Whether it serves, the newest dump, the space of the cache device for changes, that of the WORM,
/// and copies.
pub(super) fn measures(status: &Status) -> Vec<Measure> {
    let is_serving = status.phase == Phase::Serving;
    let mut out = vec![Measure::Serving(is_serving)];
    out.extend(status.last.as_ref().map(|(ns, _)| Measure::LastDump(ns / 1_000_000_000)));
    if !is_serving {
        return out;
    }
    let f = &status.facts;
    let space = |part, free: u64, all: u64| Measure::Space {
        part,
        free_bytes: free.saturating_mul(f.block),
        size_bytes: all.saturating_mul(f.block),
    };
    out.push(space("cache", f.slots_left, f.slots));
    if f.worm > 0 {
        out.push(space("worm", f.worm.saturating_sub(f.next), f.worm));
    }
    out.extend(status.copies.measures(&status.members));
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::volume::Facts;

    #[test]
    fn space_is_measured_while_it_serves_and_the_newest_dump_always() {
        let facts =
            Facts { block: 8, slots: 10, slots_left: 4, worm: 100, next: 60, ..Facts::default() };
        let last = Some((5_999_999_999, "1970/0101".to_owned()));
        let mut status = Status { phase: Phase::Serving, facts, last, ..Status::default() };
        let space = |part, free_bytes, size_bytes| Measure::Space { part, free_bytes, size_bytes };
        let dump = Measure::LastDump(5);
        let spaces = [space("cache", 32, 80), space("worm", 320, 800)];
        let expected = [vec![Measure::Serving(true), dump.clone()], spaces.to_vec()].concat();
        assert_eq!(measures(&status), expected);
        status.phase = Phase::Halted;
        assert_eq!(measures(&status), [Measure::Serving(false), dump], "the dump remains known");
        status.last = None;
        assert_eq!(measures(&status), [Measure::Serving(false)]);
    }
}
