//! Parameters of a queue: at its creation, and while it exists.

use extents::trim::{Limits, Pacing, Policy};
use geom::{ClassParams, Deletes, Error};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Percent of the device's time that deletes may take unless a section sets another share.
const SHARE: u8 = 5;
/// Longest time that can be given, ms: a day.
const MS_MAX: u64 = 86_400_000;
/// Most bytes of one command where the provider below names none.
const COMMAND_BYTES: u64 = 2 << 30;
/// Most ranges of one command, even if the provider below takes more.
const RANGES_MAX: usize = 256;

/// Handling of a provider's promise that deleted bytes read as zeroes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Zeroes {
    /// The promise is not passed on: deletes wait in the queue.
    #[default]
    Drop,
    /// The promise is kept: deletes are sent at once, and the queue stays empty.
    Keep,
}

/// A TRIM queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TrimParams {
    /// Maximum share of the device's time for deletes, in percent.
    #[schemars(range(min = 1, max = 100))]
    #[schemars(extend("x-short" = "s"))]
    pub share: u8,
    /// Minimum range in bytes: shorter ranges wait for adjacent ones.
    #[schemars(extend("x-bytes" = true))]
    pub short: u64,
    /// Number of ranges at which a batch is sent.
    #[schemars(range(min = 1, max = 65536))]
    pub batch: u32,
    /// Time in ms without a delete after which a batch of any size is sent.
    #[schemars(range(max = 86_400_000))]
    pub quiet_ms: u64,
    /// Time in ms after which a short range waits for `trim now`.
    #[schemars(range(max = 86_400_000))]
    pub expire_ms: u64,
    /// Deallocation granularity of the device in bytes, a multiple of the sector size; set only at
    /// creation [default: that of the provider below]
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-bytes" = true))]
    pub granule: Option<u64>,
    /// Promise of the provider below that deleted bytes read as zeroes: `drop` or `keep` it; set
    /// only at creation
    pub zeroes: Zeroes,
}

impl ClassParams for TrimParams {
    const FIXED: &'static [&'static str] = &["granule", "zeroes"];
}

impl Default for TrimParams {
    fn default() -> TrimParams {
        let Policy { short, batch_ranges, quiet_ns, expire_ns, .. } = Policy::BYTES;
        TrimParams {
            share: SHARE,
            short,
            batch: u32::try_from(batch_ranges).unwrap_or(u32::MAX),
            quiet_ms: quiet_ns / 1_000_000,
            expire_ms: expire_ns / 1_000_000,
            granule: None,
            zeroes: Zeroes::default(),
        }
    }
}

impl TrimParams {
    /// Refuses numbers that cannot be meant.
    pub(super) fn check(&self) -> Result<(), Error> {
        if !(1..=100).contains(&self.share) {
            return Err(Error::inval("share is a percentage, 1 to 100"));
        }
        if !(1..=65_536).contains(&self.batch) {
            return Err(Error::inval("batch is 1 to 65536 ranges"));
        }
        for (name, ms) in [("quiet_ms", self.quiet_ms), ("expire_ms", self.expire_ms)] {
            if ms > MS_MAX {
                return Err(Error::inval(format!("{name} is more than a day, {MS_MAX}")));
            }
        }
        Ok(())
    }

    pub(super) fn pacing(&self) -> Pacing {
        Pacing { share: self.share }
    }

    pub(super) fn policy(&self) -> Policy {
        let ns = |ms: u64| ms.saturating_mul(1_000_000);
        Policy {
            short: self.short,
            batch_ranges: usize::try_from(self.batch).unwrap_or(usize::MAX),
            quiet_ns: ns(self.quiet_ms),
            expire_ns: ns(self.expire_ms),
            ..Policy::BYTES
        }
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
