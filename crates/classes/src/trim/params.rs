//! What can be said of a queue: when it is made, and while it is there.

use geom::{Deletes, Error, Settings};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use space::trim::{Limits, Pacing, Policy};

/// Percent of the device's time that deletes may take when nobody says otherwise.
const SHARE: u8 = 5;
/// Longest time that can be given, ms: a day.
const MS_MAX: u64 = 86_400_000;
/// Most bytes of one command where the provider below names none.
const COMMAND_BYTES: u64 = 2 << 30;
/// Most ranges of one command, whatever the provider below takes.
const RANGES_MAX: usize = 256;

/// What becomes of the promise that deleted bytes read as zeroes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Zeroes {
    /// It is not passed on: deletes wait in the queue.
    Drop,
    /// It is kept: deletes go down as they come, and the queue stays empty.
    Keep,
}

/// A queue of deletes. In `configure` what is absent stays as it is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TrimParams {
    /// Percent of the device's time that deletes may take; absent: 5.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 100))]
    pub share: Option<u8>,
    /// Bytes: shorter ranges wait for their neighbours; absent: 98304.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub short: Option<u64>,
    /// Ranges that make a batch worth sending; absent: 64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 65536))]
    pub batch: Option<u32>,
    /// ms without a delete after which a batch is sent whatever its size; absent: 1000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86_400_000))]
    pub quiet_ms: Option<u64>,
    /// ms after which a short range is left to `trim now`; absent: 60000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 86_400_000))]
    pub expire_ms: Option<u64>,
    /// Bytes that the device gives up as a whole, a multiple of the sector size; absent: as the
    /// provider below says. Only when it is made.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granule: Option<u64>,
    /// The promise below that deleted bytes read as zeroes: `drop` or `keep`. Only when it is
    /// made; absent: `drop`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub zeroes: Option<Zeroes>,
}

impl TrimParams {
    /// What is given, and of `before` what is not.
    pub(super) fn over(&self, before: &TrimParams) -> TrimParams {
        TrimParams {
            share: self.share.or(before.share),
            short: self.short.or(before.short),
            batch: self.batch.or(before.batch),
            quiet_ms: self.quiet_ms.or(before.quiet_ms),
            expire_ms: self.expire_ms.or(before.expire_ms),
            granule: before.granule,
            zeroes: before.zeroes,
        }
    }

    /// Refuses numbers that cannot be meant.
    pub(super) fn check(&self) -> Result<(), Error> {
        if self.share.is_some_and(|s| !(1..=100).contains(&s)) {
            return Err(Error::inval("share is a percentage, 1 to 100"));
        }
        if self.batch.is_some_and(|b| !(1..=65_536).contains(&b)) {
            return Err(Error::inval("batch is 1 to 65536 ranges"));
        }
        for (name, ms) in [("quiet_ms", self.quiet_ms), ("expire_ms", self.expire_ms)] {
            if ms.is_some_and(|ms| ms > MS_MAX) {
                return Err(Error::inval(format!("{name} is more than a day, {MS_MAX}")));
            }
        }
        Ok(())
    }

    pub(super) fn pacing(&self) -> Pacing {
        Pacing { share: self.share.unwrap_or(SHARE) }
    }

    pub(super) fn policy(&self) -> Policy {
        let usual = Policy::BYTES;
        let ns = |ms: Option<u64>, usual| ms.map_or(usual, |ms| ms.saturating_mul(1_000_000));
        let batch = self.batch.and_then(|b| usize::try_from(b).ok());
        Policy {
            short: self.short.unwrap_or(usual.short),
            batch_ranges: batch.unwrap_or(usual.batch_ranges),
            quiet_ns: ns(self.quiet_ms, usual.quiet_ns),
            expire_ns: ns(self.expire_ms, usual.expire_ns),
            ..usual
        }
    }

    /// What `configure` may change, as it is.
    pub(super) fn settings(&self) -> Settings {
        let policy = self.policy();
        let ms = |ns: u64| json!(ns / 1_000_000);
        let all = [
            ("share", json!(self.pacing().share)),
            ("short", json!(policy.short)),
            ("batch", json!(policy.batch_ranges)),
            ("quiet_ms", ms(policy.quiet_ns)),
            ("expire_ms", ms(policy.expire_ns)),
        ];
        all.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
    }

    /// What one command may hold over a provider with these numbers.
    pub(super) fn limits(&self, below: &geom::Limits, deletes: Deletes) -> Result<Limits, Error> {
        let sector = u64::from(below.sector_bytes).max(1);
        let granule = self.granule.unwrap_or(deletes.granule);
        if granule == 0 || !granule.is_multiple_of(sector) {
            let what = format!("granule {granule} is no multiple of the sector size, {sector}");
            return Err(Error::inval(what));
        }
        let or = |bytes: u64, usual: u64| if bytes == 0 { usual } else { bytes };
        let command_max = or(deletes.max_bytes, COMMAND_BYTES);
        Ok(Limits {
            granule,
            // Where there is no saying, the edges of granules that are sent are the device's to
            // pass over.
            offset: deletes.offset.unwrap_or(0) % granule,
            ranges: usize::try_from(deletes.ranges).unwrap_or(usize::MAX).min(RANGES_MAX),
            range_max: or(deletes.range_bytes, command_max).min(command_max),
            command_max,
        }
        .sane())
    }
}
