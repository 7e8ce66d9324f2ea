//! Loss of a unit's provider, and how many units of the registry are lost.
//!
//! Invariants
//!  C1  The number of lost units counts each unit of the registry without a provider once. A unit
//!      that is not in the registry yet, or has left it, is not counted.

use std::sync::atomic::{AtomicU8, AtomicU32, AtomicUsize, Ordering};

use bio::Errno;

/// Bit of a unit that the registry lists.
const LISTED: u8 = 0x80;

/// Data that all units of a registry share.
#[derive(Default)]
pub(crate) struct Common {
    /// Largest transfer that the cores' pools let through, bytes; zero before there is a core.
    transfer_max: AtomicU32,
    /// Lost units (C1).
    lost: AtomicUsize,
}

impl Common {
    /// The pool of a core lets transfers of so many bytes through.
    pub(crate) fn note_pool(&self, transfer_max: u32) {
        let smaller = |old: u32| Some(if old == 0 { transfer_max } else { old.min(transfer_max) });
        let _ = self.transfer_max.fetch_update(Ordering::AcqRel, Ordering::Acquire, smaller);
    }

    /// Largest transfer that the cores' pools let through, bytes; zero before there is a core.
    #[inline]
    pub(crate) fn transfer_max(&self) -> u32 {
        self.transfer_max.load(Ordering::Relaxed)
    }

    /// Whether a unit of the registry is lost.
    pub(crate) fn has_lost(&self) -> bool {
        self.lost.load(Ordering::Acquire) != 0
    }
}

/// Whether a unit has its provider.
#[derive(Default)]
pub(crate) struct Loss {
    /// Zero, or 1 + the index of the error in `Errno::ALL`; and `LISTED`.
    code: AtomicU8,
}

/// Whether a unit with this code is one of the lost units of the registry.
fn is_counted(code: u8) -> bool {
    (code & LISTED) != 0 && (code & !LISTED) != 0
}

impl Loss {
    /// The reason for the removal of the provider, if it was removed.
    #[inline]
    pub(crate) fn error(&self) -> Option<Errno> {
        let code = self.code.load(Ordering::Acquire) & !LISTED;
        Errno::ALL.get(usize::from(code).checked_sub(1)?).copied()
    }

    /// Sets the error, or that there is none.
    pub(crate) fn set(&self, error: Option<Errno>, common: &Common) {
        let index = |error: Errno| Errno::ALL.iter().position(|e| *e == error).unwrap_or(0);
        let code = error.map_or(0, |e| u8::try_from(index(e) + 1).unwrap_or(1)) & !LISTED;
        self.change(common, |was| (was & LISTED) | code);
    }

    /// The registry lists the unit from now on, or does so no more.
    pub(crate) fn set_listed(&self, is_listed: bool, common: &Common) {
        self.change(common, |was| if is_listed { was | LISTED } else { was & !LISTED });
    }

    /// C1.
    fn change(&self, common: &Common, to: impl Fn(u8) -> u8) {
        let update = |was| Some(to(was));
        let changed = self.code.fetch_update(Ordering::AcqRel, Ordering::Acquire, update);
        let Ok(was) = changed else { return };
        match (is_counted(was), is_counted(to(was))) {
            (false, true) => common.lost.fetch_add(1, Ordering::AcqRel),
            (true, false) => common.lost.fetch_sub(1, Ordering::AcqRel),
            _ => return,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_of_errors_leave_the_listed_bit_free() {
        assert!(Errno::ALL.len() < usize::from(LISTED));
    }

    #[test]
    fn c1_a_lost_unit_counts_once_while_it_is_listed() {
        let (common, loss) = (Common::default(), Loss::default());
        let lost = || common.lost.load(Ordering::Acquire);
        loss.set(Some(Errno::NxIo), &common);
        assert_eq!((lost(), loss.error()), (0, Some(Errno::NxIo)));
        loss.set_listed(true, &common);
        assert!(common.has_lost());
        for error in [Errno::Io, Errno::Io, Errno::NxIo] {
            loss.set(Some(error), &common);
            assert_eq!((lost(), loss.error()), (1, Some(error)));
        }
        for _ in 0..2 {
            loss.set(None, &common);
            assert_eq!((lost(), loss.error()), (0, None));
        }
        loss.set(Some(Errno::NxIo), &common);
        loss.set_listed(false, &common);
        assert_eq!((lost(), loss.error()), (0, Some(Errno::NxIo)));
        loss.set(None, &common);
        loss.set(Some(Errno::Io), &common);
        assert!(!common.has_lost());
    }
}
