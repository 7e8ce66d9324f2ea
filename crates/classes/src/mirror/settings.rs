//! Settings of a mirror that can change while it is used.
//!
//! Invariants
//!  S1  A member that is absent when a setting changes is older from then on: when it returns, its
//!      record does not restore the old setting (M1 of `state`).
//!  S2  The section of a declared mirror sets all of them, at a start and at a change: an absent
//!      key has its default, regardless of the records.

use geom::{ClassParams, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::metadata::{Balance, mirror_flags};
use super::state::Mirror;

/// Parameters of a mirror, in a section and in the verbs that create one.
#[derive(Clone, Debug, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MirrorParams {
    /// Choice of the member that serves a read
    #[schemars(extend("x-short" = "b"))]
    balance: Balance,
    /// With balance split: reads larger than this many bytes are split
    #[schemars(extend("x-short" = "s", "x-bytes" = true))]
    slice: u64,
    /// Use members as they are after a crash, without a rebuild
    #[schemars(extend("x-short" = "F"))]
    no_failsync: bool,
    /// Rebuild outdated members only on `rebuild`
    #[schemars(extend("x-short" = "n"))]
    no_autosync: bool,
    /// Maximum rate of a rebuild in bytes per second, not stored in the records; 0: unlimited
    #[schemars(extend("x-bytes" = true))]
    sync_rate: u64,
}

impl Default for MirrorParams {
    fn default() -> MirrorParams {
        let Settings { balance, slice, .. } = Settings::default();
        let slice = u64::from(slice);
        MirrorParams { balance, slice, no_failsync: false, no_autosync: false, sync_rate: 0 }
    }
}

impl ClassParams for MirrorParams {}

impl MirrorParams {
    /// Highest rate of rebuilds, bytes a second; zero: no limit.
    pub(super) fn sync_rate(&self) -> u64 {
        self.sync_rate
    }

    /// The same as a mirror has it.
    ///
    /// # Errors
    ///
    /// `Inval`: the slice, and its range.
    pub(super) fn settings(&self) -> Result<Settings, Error> {
        let flags = [
            (self.no_failsync, mirror_flags::NOFAILSYNC),
            (self.no_autosync, mirror_flags::NOAUTOSYNC),
        ];
        Ok(Settings {
            balance: self.balance,
            slice: slice(self.slice)?,
            flags: flags.iter().filter(|(on, _)| *on).fold(0, |all, (_, flag)| all | flag),
        })
    }
}

/// The bytes of a slice, in range.
pub(super) fn slice(bytes: u64) -> Result<u32, Error> {
    match u32::try_from(bytes) {
        Ok(slice) if slice > 0 => Ok(slice),
        _ => Err(Error::inval(format!("a slice of {bytes} bytes: use 1 to 4294967295"))),
    }
}

/// The settings in the records.
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
    /// As a section has them, with the rate of rebuilds, which no record has.
    pub(super) fn keys(&self, sync_rate: u64) -> geom::Settings {
        let has = |flag: u64| json!(self.flags & flag != 0);
        let all = [
            ("balance", json!(self.balance.as_str())),
            ("slice", json!(self.slice)),
            ("no_failsync", has(mirror_flags::NOFAILSYNC)),
            ("no_autosync", has(mirror_flags::NOAUTOSYNC)),
            ("sync_rate", json!(sync_rate)),
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
