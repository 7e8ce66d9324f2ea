//! Threshold descriptors of the Logical Block Provisioning mode page (SBC-4 6.5.9, tables 7 and 8).
//!
//! ```text
//!   ENABLED . TYPE (3) ARMING (3) | RESOURCE | reserved (2) | COUNT (4)
//! ```

use crate::bytes::Reader;

/// Descriptors of the page. Three are as many as still fit, with all other pages, into the 256
/// bytes that MODE SENSE(6) can answer.
pub const THRESHOLDS: usize = 3;

/// Bytes of one descriptor.
pub(super) const DESCRIPTOR: usize = 8;

/// Where the first one begins in the page; what UNIT ATTENTIONs point at.
pub(super) const FIRST: usize = 16;

/// The resource of a threshold, and the direction in which it is crossed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ThresholdKind {
    /// Percent of the resources that are available, falling: log parameter 0003h.
    #[default]
    Percent,
    /// Threshold sets that are available, falling: log parameter 0001h.
    Available,
    /// Threshold sets that are used, growing: log parameter 0002h.
    Used,
}

impl ThresholdKind {
    pub const ALL: [ThresholdKind; 3] =
        [ThresholdKind::Percent, ThresholdKind::Available, ThresholdKind::Used];

    /// TYPE and ARMING, and RESOURCE.
    fn code(self) -> [u8; 2] {
        match self {
            ThresholdKind::Percent => [0x08, 0x03],
            ThresholdKind::Available => [0x00, 0x01],
            ThresholdKind::Used => [0x01, 0x02],
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Threshold {
    /// A crossing is reported to initiators.
    pub enabled: bool,
    /// The resource that is counted.
    pub kind: ThresholdKind,
    /// THRESHOLD COUNT: percent, at most 100, or threshold sets.
    pub count: u32,
}

impl Threshold {
    /// Everything, as a changeable mask.
    pub const ALL: Threshold =
        Threshold { enabled: true, kind: ThresholdKind::Percent, count: u32::MAX };

    /// Where number `i` begins in the page, bytes: INFORMATION of its unit attention.
    pub fn offset(i: usize) -> u64 {
        (FIRST + i * DESCRIPTOR) as u64
    }

    /// Its bytes; without `fixed` those of the changeable mask.
    pub(super) fn encode(&self, fixed: bool) -> [u8; DESCRIPTOR] {
        let [how, resource] = match (fixed, self.enabled) {
            (true, _) => self.kind.code(),
            (false, true) => [0x09, 0x03],
            (false, false) => [0, 0],
        };
        let [a, b, c, d] = self.count.to_be_bytes();
        [how | if self.enabled { 0x80 } else { 0 }, resource, 0, 0, a, b, c, d]
    }

    /// Reads one; an error is the byte and the bit of the invalid field in it.
    pub(super) fn decode(bytes: &[u8]) -> Result<Threshold, (usize, u8)> {
        let mut reader = Reader::new(bytes);
        let [first, resource, _, _] = reader.array::<4>("threshold").map_err(|_| (0, 7))?;
        let count = reader.u32("THRESHOLD COUNT").map_err(|_| (4, 7))?;
        let how = first & 0x3f;
        let fits = |kind: &ThresholdKind| kind.code() == [how, resource];
        let Some(kind) = ThresholdKind::ALL.into_iter().find(fits) else {
            let type_known = ThresholdKind::ALL.iter().any(|kind| kind.code()[0] == how);
            return Err(if type_known { (1, 7) } else { (0, 5) });
        };
        if kind == ThresholdKind::Percent && count > 100 {
            return Err((4, 7));
        }
        Ok(Threshold { enabled: first & 0x80 != 0, kind, count })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threshold_descriptors_decode_as_encoded_or_are_refused() {
        for kind in ThresholdKind::ALL {
            for (enabled, count) in [(false, 0), (true, 100), (true, 7)] {
                let one = Threshold { enabled, kind, count };
                assert_eq!(Threshold::decode(&one.encode(true)), Ok(one));
            }
        }
        let used = Threshold { enabled: true, kind: ThresholdKind::Used, count: 0x0102_0304 };
        assert_eq!(used.encode(true), [0x81, 2, 0, 0, 1, 2, 3, 4]);
        assert_eq!(Threshold::ALL.encode(false), [0x89, 3, 0, 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(Threshold::decode(&[0x88, 3, 0, 0, 0, 0, 0, 101]), Err((4, 7)));
        assert_eq!(Threshold::decode(&[0x80, 2, 0, 0, 0, 0, 0, 1]), Err((1, 7)));
        assert_eq!(Threshold::decode(&[0x82, 2, 0, 0, 0, 0, 0, 1]), Err((0, 5)));
        assert_eq!(Threshold::decode(&[0x80, 1, 0]), Err((0, 7)));
    }
}
