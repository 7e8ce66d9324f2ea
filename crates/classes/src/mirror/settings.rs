//! Settings of a mirror that can change while it is used.
//!
//! Invariants
//!  S1  A member that is absent when a setting changes is older from then on. When it returns, its
//!      record does not restore the old setting (M1 of `state`).
//!  S2  The section of a declared mirror sets all of them, at a start and at a change. An absent
//!      key has its default, regardless of the records.

use geom::{ClassParams, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// Maximum rate of a rebuild in bytes per second, not stored in the records; 0: no limit
    #[schemars(extend("x-bytes" = true))]
    sync_rate: u64,
}

impl Default for MirrorParams {
    fn default() -> MirrorParams {
        MirrorParams::of(Settings::default(), 0)
    }
}

impl ClassParams for MirrorParams {}

impl MirrorParams {
    /// Those of a mirror with these settings and this highest rate of rebuilds.
    pub(super) fn of(settings: Settings, sync_rate: u64) -> MirrorParams {
        let Settings { balance, slice, flags } = settings;
        let has = |flag: u64| flags & flag != 0;
        MirrorParams {
            balance,
            slice: u64::from(slice),
            no_failsync: has(mirror_flags::NOFAILSYNC),
            no_autosync: has(mirror_flags::NOAUTOSYNC),
            sync_rate,
        }
    }

    /// The same with rebuilds as these switches of `configure` have them, which have no parameter.
    pub(super) fn with_syncs(mut self, failsync: bool, autosync: bool) -> MirrorParams {
        self.no_failsync &= !failsync;
        self.no_autosync &= !autosync;
        self
    }

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
fn slice(bytes: u64) -> Result<u32, Error> {
    match u32::try_from(bytes) {
        Ok(slice) if slice > 0 => Ok(slice),
        _ => Err(Error::inval(format!("a slice of {bytes} bytes: use 1 to 4294967295"))),
    }
}

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
        ClassParams::settings(&MirrorParams::of(*self, sync_rate))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_mirror_are_its_settings() {
        for flags in [0, mirror_flags::NOAUTOSYNC, mirror_flags::NOFAILSYNC] {
            let settings = Settings { balance: Balance::Split, slice: 8192, flags };
            let params = MirrorParams::of(settings, 9);
            assert_eq!((params.settings(), params.sync_rate()), (Ok(settings), 9));
            let both = params.with_syncs(true, true).settings();
            assert_eq!(both, Ok(Settings { flags: 0, ..settings }));
        }
    }
}
