//! Properties of freeing blocks on a unit. They are determined when the unit is made, and again
//! when a layer is inserted below it or removed.
//!
//! Invariant F1: initiators that may know other properties receive INQUIRY DATA HAS CHANGED.

use geom::{ProviderId, Topology};

/// Most requests to the layers below for one UNMAP.
const PIECES_MAX: u64 = 1024;

/// See the module.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Provisioning {
    pub reads_zero: bool,
    /// Best unit, bytes; zero when there is none.
    pub unit_bytes: u64,
    /// Where the first unit begins, bytes; `None` when there is no saying.
    pub offset: Option<u64>,
    /// Most bytes that the layers below take in one request; zero: any number.
    pub request_bytes: u64,
}

impl Provisioning {
    /// Over a provider.
    pub fn of(t: &Topology, below: ProviderId) -> Provisioning {
        let deletes = t.deletes(below);
        Provisioning {
            reads_zero: t.attr(below, "GEOM::deletereadszero") == Some(bio::Attr::Int(1)),
            unit_bytes: deletes.granule,
            offset: deletes.offset,
            request_bytes: deletes.max_bytes,
        }
    }

    /// Blocks of the unit, at least one.
    pub(crate) fn unit(&self, block: u64) -> u64 {
        (self.unit_bytes / block.max(1)).max(1)
    }

    /// Where the first unit begins, in blocks; `None` when it makes no difference or is unknown.
    pub(crate) fn alignment(&self, block: u64) -> Option<u32> {
        let (block, unit) = (block.max(1), self.unit(block));
        let offset = self.offset.filter(|at| at.is_multiple_of(block))?;
        (unit > 1).then(|| u32::try_from(offset / block % unit).ok()).flatten()
    }

    /// The most blocks of one UNMAP: whole units, not above `most`.
    pub(crate) fn blocks_max(&self, block: u64, most: u32) -> u32 {
        let (unit, most) = (self.unit(block), u64::from(most));
        let below = match self.request_bytes {
            0 => most,
            bytes => (bytes / block.max(1)).max(1).saturating_mul(PIECES_MAX).min(most),
        };
        let whole = below / unit * unit;
        u32::try_from(if whole == 0 { below } else { whole }).unwrap_or(u32::MAX)
    }

    /// The unit, where units begin with the medium and are a power of two: else zero.
    pub fn natural_unit(&self) -> u64 {
        let fits = self.offset == Some(0) && self.unit_bytes.is_power_of_two();
        if fits { self.unit_bytes } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(unit_bytes: u64, offset: Option<u64>, request_bytes: u64) -> Provisioning {
        Provisioning { reads_zero: false, unit_bytes, offset, request_bytes }
    }

    #[test]
    fn granularity_and_alignment_are_in_blocks() {
        assert_eq!((of(4096, Some(3584), 0).unit(512), of(0, None, 0).unit(512)), (8, 1));
        assert_eq!(of(4096, Some(3584), 0).alignment(512), Some(7));
        assert_eq!(of(4096, Some(0), 0).alignment(512), Some(0));
        assert_eq!(of(4096, None, 0).alignment(512), None, "nobody knows");
        assert_eq!(of(4096, Some(100), 0).alignment(512), None, "no whole block");
        assert_eq!(of(512, Some(0), 0).alignment(512), None, "every block is one");
        assert_eq!(of(4096, Some(512), 0).natural_unit(), 0);
        assert_eq!(of(4096, Some(0), 0).natural_unit(), 4096);
    }

    #[test]
    fn unmap_limit_is_whole_granules_and_bounds_requests_to_the_provider() {
        assert_eq!(of(512, Some(0), 0).blocks_max(512, 1 << 20), 1 << 20);
        assert_eq!(of(3 << 20, Some(0), 0).blocks_max(512, 1 << 20), 170 * 6144);
        assert_eq!(of(512, Some(0), 4096).blocks_max(512, 1 << 20), 8 * 1024);
        assert_eq!(of(1 << 40, Some(0), 0).blocks_max(512, 1 << 20), 1 << 20, "less than a unit");
    }
}
