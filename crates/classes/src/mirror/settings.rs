//! Settings of a mirror that can change while it is used.
//!
//! Invariants
//!  S1  A member that is away when a setting changes is older from then on: when it is back its
//!      record does not bring the old setting back (M1 of `state`).
//!  S2  The section of a declared mirror says all of them, at a start as at a change: a key that is
//!      not there has its default, whatever the records say.

use serde_json::json;

use super::metadata::{Balance, mirror_flags};
use super::state::Mirror;

/// What records say of how a mirror works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Settings {
    /// Which member serves a read.
    pub(super) balance: Balance,
    /// Bytes of a part of a split read.
    pub(super) slice: u32,
    /// Those of [`mirror_flags`].
    pub(super) flags: u64,
}

impl Default for Settings {
    fn default() -> Self {
        Settings { balance: Balance::Load, slice: 4096, flags: 0 }
    }
}

impl Settings {
    /// As a section has them.
    pub(super) fn keys(&self) -> geom::Settings {
        let has = |flag: u64| json!(self.flags & flag != 0);
        let all = [
            ("balance", json!(self.balance.word())),
            ("slice", json!(self.slice)),
            ("no_failsync", has(mirror_flags::NOFAILSYNC)),
            ("no_autosync", has(mirror_flags::NOAUTOSYNC)),
        ];
        all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }
}

impl Mirror {
    /// How it works.
    pub(super) fn settings(&self) -> Settings {
        let own = mirror_flags::NOAUTOSYNC | mirror_flags::NOFAILSYNC;
        Settings { balance: self.balance, slice: self.slice, flags: self.flags & own }
    }

    /// Works so from now on (S1); its records are still to be written. False: it does already.
    pub(super) fn work_as(&mut self, to: Settings) -> bool {
        let now = self.settings();
        if now == to {
            return false;
        }
        self.balance = to.balance;
        self.slice = to.slice;
        self.flags = self.flags & !now.flags | to.flags;
        if self.running && !self.is_complete() {
            self.outdate_absent();
        }
        true
    }
}
