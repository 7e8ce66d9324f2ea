//! Former names of units whose disk was renamed. Clients that open a unit by its name, as those of
//! NBD do, reach it under the old name too.
//!
//! Invariants
//!  F1  A former name leads to one unit, by its serial number: another unit that has the unit's
//!      name by then is not served under it.
//!  F2  A unit that has the name now takes precedence.

use std::collections::BTreeMap;

use super::Registry;

/// The unit of a former name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Former {
    pub serial: String,
    /// Current name of its provider.
    pub provider: String,
}

impl Registry {
    /// These are the former names from now on.
    pub fn set_former(&self, all: BTreeMap<String, Former>) {
        *self.former.lock() = all;
    }

    pub fn all_former(&self) -> BTreeMap<String, Former> {
        self.former.lock().clone()
    }

    /// The unit that was called so.
    pub fn former(&self, name: &str) -> Option<Former> {
        self.former.lock().get(name).cloned()
    }
}
