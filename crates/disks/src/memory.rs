//! memory: a disk in this machine's memory, shared by all cores. Lost when it is removed.

use std::sync::Arc;

use bio::{Attr, Bio, Errno, Flags, HOLE, MAPPED, Op};
use geom::{Core, Error, Flow, Layer, Limits};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::kind::{IO_BYTES_MAX, Identity, Kind, Open, Opened, SpaceUsage, Unit};
use crate::lasting::{of_other, with_configured_serial};
use crate::pages::Pages;
use crate::params;

/// Largest memory disk, bytes: its directory then takes a few MiB. A larger one is refused.
pub const MEMORY_BYTES_MAX: u64 = 16 << 40;

/// Longest DELETE or WRITE ZEROES done in one turn, bytes; longer ones are split, so that other
/// requests of the core get their turn.
const CLEAR_BYTES_MAX: u64 = 64 << 20;

/// A disk in memory. Ranges that were never written, or were deleted, use no memory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct MemoryParams {
    /// Size in bytes, a multiple of the sector size.
    #[schemars(range(min = 512, max = 17_592_186_044_416u64))]
    pub size: u64,
    /// Sector size in bytes: 512 or 4096.
    #[serde(default = "params::sector_default")]
    #[schemars(extend("enum" = [512, 4096]))]
    pub sector_size: u32,
    /// Limit of the memory of the disk, in bytes; a write that needs more fails for lack of space.
    /// Absent: the size of the disk.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_max: Option<u64>,
    /// Serial number; absent: a random one that is kept in the state folder for the disk's name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Refuse write access.
    #[serde(default)]
    pub read_only: bool,
}

/// The kind.
pub(crate) struct Memory;

impl Kind for Memory {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn doc(&self) -> &'static str {
        "A disk in this machine's memory; its contents are lost when it is removed."
    }

    fn schema(&self) -> Value {
        params::schema::<MemoryParams>()
    }

    fn volatile(&self) -> bool {
        true
    }

    fn example(&self) -> &'static str {
        "[[disk]]\nname = \"scratch\"\nkind = \"memory\"\nsize = \"1GiB\"\n"
    }

    fn open(&self, request: &Open<'_>) -> Result<Opened, Error> {
        let (kind, name) = (self.name(), request.name);
        let p: MemoryParams = params::read(kind, name, request.params)?;
        params::check_sector(kind, name, p.sector_size)?;
        params::check_size(kind, name, p.size, p.sector_size, MEMORY_BYTES_MAX)?;
        let pages = Arc::new(Pages::new(p.size, p.memory_max.unwrap_or(u64::MAX)));
        Ok(Opened {
            layer: Arc::new(MemoryLayer { pages: pages.clone() }),
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
                descr: "Ashlar memory disk".into(),
                physpath: String::new(),
                rotation_rate: 1,
                can_delete: !p.read_only,
                delete_reads_zero: true,
                any_memory: true,
                atomic_bytes: u64::MAX,
                delete_granule: (0, 0),
                can_anchor: !p.read_only,
            },
            read_only: p.read_only,
            watch: None,
            unit: Box::new(MemoryUnit { pages, size: p.size, most: p.memory_max }),
        })
    }
}

struct MemoryUnit {
    pages: Arc<Pages>,
    size: u64,
    most: Option<u64>,
}

impl Unit for MemoryUnit {
    fn size(&mut self) -> Result<u64, Errno> {
        Ok(self.size)
    }

    fn space_usage(&self) -> Option<SpaceUsage> {
        let used = self.pages.used();
        // Chunks may be larger than the rest of the medium.
        let most = self.most.unwrap_or(u64::MAX).min(self.size.max(used));
        Some(SpaceUsage { used, free: most.saturating_sub(used), is_shared: false })
    }

    fn show(&self) -> Vec<(&'static str, String)> {
        vec![("allocated", format!("{} bytes", self.pages.used()))]
    }
}

struct MemoryLayer {
    pages: Arc<Pages>,
}

impl Layer for MemoryLayer {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    fn start(&self, bio: &mut Bio, _: &Core) -> Flow {
        Flow::Done(match bio.op {
            Op::Read => {
                self.pages.read(bio.offset, &bio.data);
                Ok(())
            }
            Op::Write => self.pages.write(bio.offset, &bio.data),
            Op::WriteZeroes if bio.flags.has(Flags::NO_HOLE) => {
                self.pages.fill_zero(bio.offset, bio.length)
            }
            Op::Delete | Op::WriteZeroes => {
                bio.ranges()
                    .for_each(|range| self.pages.clear(range.start, range.end - range.start));
                Ok(())
            }
            Op::Flush => Ok(()),
            Op::Map => {
                let (is_mapped, run) = self.pages.run_at(bio.offset, bio.length);
                bio.completed = run;
                bio.value = Some(Attr::Int(if is_mapped { MAPPED } else { HOLE }));
                Ok(())
            }
            Op::GetAttr => Err(Errno::NoAttr),
        })
    }
}
