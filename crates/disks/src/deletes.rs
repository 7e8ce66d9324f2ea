//! Delete methods of a block device: the kernel has two, and guarantees the result of one.
//!
//! Zeroing (`fallocate` with FALLOC_FL_PUNCH_HOLE) leaves zeroes for sure. The device decides
//! whether it gives blocks back too; some devices write every block. Discard (BLKDISCARD) gives
//! back whole granules, but guarantees nothing about later reads. The former statement of Linux
//! about them (`discard_zeroes_data`) is 0 for every device since 4.12.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::sysfs::Facts;

/// Method of DELETE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeleteHow {
    /// By zeroing where the device zeroes without writing, else by discard.
    #[default]
    Auto,
    /// By zeroing: deleted blocks read as zeroes.
    Zero,
    /// By discard: deleted blocks may read as any data.
    Discard,
    /// DELETE is not supported.
    No,
}

/// The kernel's method for DELETE.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DeleteBy {
    /// A hole, or the device's zeroing: reads as zeroes.
    Punch,
    /// The device's discard.
    Discard,
}

/// The method of a writable device, and its reason; an error explains why the wish cannot be met.
pub(crate) fn choose(
    wish: DeleteHow,
    facts: &Facts,
) -> Result<(Option<DeleteBy>, &'static str), &'static str> {
    let (discards, zeroes) = (facts.discard_max > 0, facts.zeroes_max > 0);
    match wish {
        DeleteHow::No => Ok((None, "no (as configured)")),
        DeleteHow::Discard if discards => {
            Ok((Some(DeleteBy::Discard), "by discard (as configured)"))
        }
        DeleteHow::Zero if zeroes => Ok((Some(DeleteBy::Punch), "by zeroing (as configured)")),
        DeleteHow::Discard => Err("has no discard (queue/discard_max_bytes is 0); use auto or no"),
        DeleteHow::Zero => {
            Err("has no zeroing command (queue/write_zeroes_max_bytes is 0); use auto or no")
        }
        DeleteHow::Auto if !discards => Ok((None, "no: the device has no discard")),
        DeleteHow::Auto if !zeroes => {
            Ok((Some(DeleteBy::Discard), "by discard: the device has no zeroing command"))
        }
        DeleteHow::Auto if facts.zeroing_writes => {
            Ok((Some(DeleteBy::Discard), "by discard: zeroing would write every block"))
        }
        DeleteHow::Auto => Ok((Some(DeleteBy::Punch), "by zeroing, which may give blocks back")),
    }
}

/// Longest DELETE that a device takes as one, bytes; zero: the kernel names no bound.
pub(crate) fn longest(by: Option<DeleteBy>, facts: &Facts) -> u64 {
    match by {
        Some(DeleteBy::Discard) => facts.discard_max,
        Some(DeleteBy::Punch) | None => facts.zeroes_max,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn device(discard_max: u64, zeroes_max: u64, zeroing_writes: bool) -> Facts {
        Facts { discard_max, zeroes_max, zeroing_writes, ..Facts::default() }
    }

    #[test]
    fn zeroing_is_preferred_if_it_only_deallocates() {
        use DeleteBy::{Discard, Punch};
        let auto = |d, z, writes| choose(DeleteHow::Auto, &device(d, z, writes)).unwrap().0;
        assert_eq!(auto(0, 0, false), None);
        assert_eq!(auto(0, 8, false), None, "zeroing alone gives nothing back");
        assert_eq!(auto(8, 0, false), Some(Discard));
        assert_eq!(auto(8, 8, false), Some(Punch));
        assert_eq!(auto(8, 8, true), Some(Discard));
    }

    #[test]
    fn requested_delete_method_is_used_or_refused_with_the_reason() {
        let of = |wish, d, z| choose(wish, &device(d, z, false));
        assert_eq!(of(DeleteHow::No, 8, 8).unwrap().0, None);
        assert_eq!(of(DeleteHow::Discard, 8, 8).unwrap().0, Some(DeleteBy::Discard));
        assert_eq!(of(DeleteHow::Zero, 0, 8).unwrap().0, Some(DeleteBy::Punch));
        assert!(of(DeleteHow::Discard, 0, 8).unwrap_err().contains("discard_max_bytes"));
        assert!(of(DeleteHow::Zero, 8, 0).unwrap_err().contains("write_zeroes_max_bytes"));
    }

    #[test]
    fn each_delete_method_has_its_own_limit() {
        let facts = device(4096, 512, false);
        assert_eq!(longest(Some(DeleteBy::Discard), &facts), 4096);
        assert_eq!(longest(Some(DeleteBy::Punch), &facts), 512);
    }
}
