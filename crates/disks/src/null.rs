//! null: a disk that answers at once and keeps nothing. For measuring everything above it.

use std::sync::Arc;

use bio::{Bio, Errno, Op};
use geom::{Core, Error, Flow, Layer, Limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kind::{Identity, Kind, Open, Opened, Unit};
use crate::lasting::{of_other, with_configured_serial};
use crate::params;

/// Data that a read of a null disk returns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Fill {
    /// Zeroes. They are not written to memory that still has those of an earlier read.
    #[default]
    Zeroes,
    /// Old contents of the buffer, possibly other users' data: only for measurements.
    Leave,
}

/// A disk that stores nothing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct NullParams {
    /// Size in bytes, a multiple of the sector size.
    #[schemars(range(min = 512))]
    pub size: u64,
    /// Sector size in bytes: 512 or 4096.
    #[serde(default = "params::sector_default")]
    #[schemars(extend("enum" = [512, 4096]))]
    pub sector_size: u32,
    /// Data that reads return: `zeroes`, or `leave` for the old contents of the buffer, which may
    /// be other users' data.
    #[serde(default)]
    pub fill: Fill,
    /// Serial number; absent: a random one that is kept in the state folder for the disk's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Refuse write access.
    #[serde(default)]
    pub read_only: bool,
}

/// The kind.
pub(crate) struct Null;

impl Kind for Null {
    fn name(&self) -> &'static str {
        "null"
    }

    fn doc(&self) -> &'static str {
        "A disk that answers at once and stores nothing, for measurements."
    }

    fn schema(&self) -> Value {
        params::schema::<NullParams>()
    }

    fn volatile(&self) -> bool {
        true
    }

    fn stores_data(&self) -> bool {
        false
    }

    fn example(&self) -> &'static str {
        "[[disk]]\nname = \"hole\"\nkind = \"null\"\nsize = \"1TiB\"\n"
    }

    fn open(&self, request: &Open<'_>) -> Result<Opened, Error> {
        let (kind, name) = (self.name(), request.name);
        let p: NullParams = params::read(kind, name, request.params)?;
        params::check_sector(kind, name, p.sector_size)?;
        params::check_size(kind, name, p.size, p.sector_size, params::MEDIA_BYTES_MAX)?;
        Ok(Opened {
            layer: Arc::new(NullLayer { fill: p.fill }),
            limits: Limits {
                media_bytes: p.size,
                sector_bytes: p.sector_size,
                io_max_bytes: 0,
                delete_max_bytes: 0,
            },
            stripe_bytes: 0,
            identity: Identity {
                lasting: with_configured_serial(
                    p.serial.as_deref(),
                    of_other(request, kind, name, None),
                ),
                descr: "Ashlar null disk".into(),
                physpath: String::new(),
                rotation_rate: 1,
                can_delete: !p.read_only,
                delete_reads_zero: p.fill == Fill::Zeroes,
                any_memory: true,
                atomic_bytes: u64::MAX,
                delete_granule: (0, 0),
                can_anchor: false,
            },
            read_only: p.read_only,
            watch: None,
            unit: Box::new(NullUnit { size: p.size, fill: p.fill }),
        })
    }
}

struct NullUnit {
    size: u64,
    fill: Fill,
}

impl Unit for NullUnit {
    fn size(&mut self) -> Result<u64, Errno> {
        Ok(self.size)
    }

    fn show(&self) -> Vec<(&'static str, String)> {
        let what = match self.fill {
            Fill::Zeroes => "zeroes",
            Fill::Leave => "leave (the buffer's old bytes)",
        };
        vec![("fill", what.into())]
    }
}

struct NullLayer {
    fill: Fill,
}

impl Layer for NullLayer {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    fn start(&self, bio: &mut Bio, _: &Core) -> Flow {
        match bio.op {
            Op::Read if self.fill == Fill::Zeroes => {
                bio.data.fill(0, bio.data.len(), 0);
            }
            Op::Map => return Flow::Done(Err(Errno::NotSup)),
            Op::GetAttr => return Flow::Done(Err(Errno::NoAttr)),
            _ => {}
        }
        Flow::Done(Ok(()))
    }
}
