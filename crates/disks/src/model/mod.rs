//! model: a disk that behaves as disks do, well and badly. Its content is in memory.
//!
//! The disk itself is [`reactor::model::DiskModel`], a value; here it gets requests, the reactor's
//! clock, and verbs that make it misbehave while it is in use.
//!
//! Invariants
//!  D1  A request is carried out at the moment it ends, so of two that overlap in time the one
//!      that ends last counts.
//!  D2  A request that is under way at a power cut ends with `Io`; of its bytes any sectors may
//!      have arrived. Data stays when its flush, or its write with FUA, has ended.
//!  D3  While the disk hangs nothing ends; what hung continues when it is released, or ends with
//!      `Io` at a power cut.
//!
//! ```text
//!   start --> under way --time--> ready --> carried out
//!               |  \--hang--> hung --release--> ready
//!               \--power cut--------------------> ready: Io
//! ```

mod layer;
mod unit;
pub(crate) mod verbs;

use std::sync::Arc;

use bio::Errno;
use bio::sync::Mutex;
use geom::{Error, Limits};
use reactor::model::{DiskModel, DiskShape, Timing};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kind::{IO_BYTES_MAX, Identity, Kind, Open, Opened};
use crate::lasting::{of_other, with_configured_serial};
use crate::params;
use layer::{ModelLayer, ModelState};
use unit::ModelUnit;

/// Largest modelled disk, bytes: its sectors are found by searching, and it should fit in memory.
/// A larger one is refused.
pub const MODEL_BYTES_MAX: u64 = 16 << 40;

/// Longest DELETE or WRITE ZEROES in one turn, bytes: the model remembers each sector of it.
const CLEAR_BYTES_MAX: u64 = 1 << 20;

/// Latency of requests.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Latency {
    /// A SATA flash disk.
    #[default]
    Flash,
    /// A disk of 7200 revolutions per minute: seek, rotation, transfer, one request at a time.
    Spinning,
    /// Between `latency_min_us` and `latency_max_us`, any number of requests at a time.
    Between,
    /// No latency.
    None,
}

/// A simulated disk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct ModelParams {
    /// Size in bytes, a multiple of the sector size.
    #[schemars(range(min = 512, max = 17_592_186_044_416u64))]
    pub size: u64,
    /// Sector size in bytes, 512 or 4096. A sector is written or lost as a whole.
    #[serde(default = "params::sector_default")]
    #[schemars(extend("enum" = [512, 4096]))]
    pub sector_size: u32,
    /// Writes that were neither flushed nor FUA may be lost in a power cut.
    #[serde(default = "yes")]
    pub volatile_cache: bool,
    /// Latency of requests: `flash`, `spinning`, `between` or `none`.
    #[serde(default)]
    pub latency: Latency,
    /// Shortest time of a request in µs, for `between`.
    #[serde(default)]
    pub latency_min_us: u64,
    /// Longest time of a request in µs, for `between`.
    #[serde(default)]
    pub latency_max_us: u64,
    /// Support delete and zeroing commands.
    #[serde(default = "yes")]
    pub discards: bool,
    /// Seed of all random choices; the same seed and requests give the same disk.
    #[serde(default)]
    pub seed: u64,
    /// Serial number; absent: a random one that is kept in the state folder for the disk's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Refuse write access.
    #[serde(default)]
    pub read_only: bool,
}

fn yes() -> bool {
    true
}

/// The kind.
pub(crate) struct Model;

impl Kind for Model {
    fn name(&self) -> &'static str {
        "model"
    }

    fn doc(&self) -> &'static str {
        "A simulated disk with a volatile cache, latency, power cuts, errors, delays and hangs."
    }

    fn schema(&self) -> Value {
        params::schema::<ModelParams>()
    }

    fn volatile(&self) -> bool {
        true
    }

    fn example(&self) -> &'static str {
        "[[disk]]\nname = \"moody\"\nkind = \"model\"\nsize = \"1GiB\"\nlatency = \"spinning\"\n"
    }

    fn open(&self, request: &Open<'_>) -> Result<Opened, Error> {
        let (kind, name) = (self.name(), request.name);
        let p: ModelParams = params::read(kind, name, request.params)?;
        params::check_sector(kind, name, p.sector_size)?;
        params::check_size(kind, name, p.size, p.sector_size, MODEL_BYTES_MAX)?;
        let shape = DiskShape {
            size: p.size,
            sector: p.sector_size,
            volatile_cache: p.volatile_cache,
            growable: false,
            discards: p.discards,
            timing: timing(name, &p)?,
        };
        let disk = DiskModel::new(shape, p.seed).map_err(|e| {
            params::refuse(
                kind,
                name,
                e,
                "the disk cannot be modelled with these \
                                                        parameters",
            )
        })?;
        let state = Arc::new(Mutex::new(ModelState::new(disk, p.seed)));
        Ok(Opened {
            layer: Arc::new(ModelLayer { state: state.clone() }),
            limits: Limits {
                media_bytes: p.size,
                sector_bytes: p.sector_size,
                io_max_bytes: IO_BYTES_MAX,
                delete_max_bytes: CLEAR_BYTES_MAX,
            },
            stripe_bytes: 0,
            identity: Identity {
                lasting: with_configured_serial(
                    p.serial.as_deref(),
                    of_other(request, kind, name, None),
                ),
                descr: "Ashlar modelled disk".into(),
                physpath: String::new(),
                rotation_rate: if p.latency == Latency::Spinning { 7200 } else { 1 },
                can_delete: p.discards && !p.read_only,
                delete_reads_zero: p.discards,
                any_memory: true,
                atomic_bytes: u64::from(p.sector_size),
                delete_granule: (0, 0),
                can_anchor: false,
            },
            read_only: p.read_only,
            watch: None,
            unit: Box::new(ModelUnit { state, latency: p.latency }),
        })
    }
}

fn timing(name: &str, p: &ModelParams) -> Result<Timing, Error> {
    let (min, max) = (p.latency_min_us.checked_mul(1000), p.latency_max_us.checked_mul(1000));
    let given = (p.latency_min_us, p.latency_max_us) != (0, 0);
    match (p.latency, min, max) {
        (Latency::Between, Some(min_ns), Some(max_ns)) if min_ns <= max_ns => {
            Ok(Timing::Between { min_ns, max_ns })
        }
        (Latency::Between, ..) => {
            let what =
                "latency = between needs latency_min_us, and latency_max_us that is not less";
            Err(params::refuse("model", name, Errno::Inval, what))
        }
        _ if given => {
            let what = "latency_min_us and latency_max_us need latency = between";
            Err(params::refuse("model", name, Errno::Inval, what))
        }
        (Latency::Flash, ..) => Ok(Timing::FLASH_SATA),
        (Latency::Spinning, ..) => Ok(Timing::SPINNING_7200),
        (Latency::None, ..) => Ok(Timing::Between { min_ns: 0, max_ns: 0 }),
    }
}
