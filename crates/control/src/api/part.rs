//! Partition tables over the API: what may be asked of them, and what they look like.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An offset or a length that people write in sectors or in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Sectors of the provider.
    Sectors(u64),
    /// Bytes; must come out as a whole number of sectors.
    Bytes(u64),
}

/// One change or question. `geom` is the name of the provider that carries the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum PartRequest {
    /// The tables of these geoms; of all when the list is empty.
    Show {
        /// Names; empty means all.
        geoms: Vec<String>,
    },
    /// A new, empty table.
    Create {
        /// Where.
        provider: String,
        /// `gpt` or `mbr`.
        scheme: String,
        /// Slots of the table; the scheme's own default when absent.
        entries: Option<u32>,
        /// Whether a table, label or file system that is there may be lost.
        overwrite: bool,
    },
    /// A new partition. What is absent is filled in: first gap, whole gap, first free index.
    Add {
        /// Which table.
        geom: String,
        /// Alias (`linux-data`), `!<uuid>` or `!<number>`.
        kind: String,
        /// Start and size are multiples of it.
        align: Option<Amount>,
        /// Where it starts.
        start: Option<Amount>,
        /// How long it is.
        size: Option<Amount>,
        /// Which slot, from 1.
        index: Option<u32>,
        /// Its label, where the scheme has labels.
        label: Option<String>,
    },
    /// Remove a partition from the table. Its data stays on the disk, unreachable.
    Delete {
        /// Which table.
        geom: String,
        /// Which slot.
        index: u32,
    },
    /// Remove the whole table.
    Destroy {
        /// Which table.
        geom: String,
        /// Also when it still has partitions.
        force: bool,
    },
    /// Change label or type.
    Modify {
        /// Which table.
        geom: String,
        /// Which slot.
        index: u32,
        /// New label; unchanged when absent.
        label: Option<String>,
        /// New type; unchanged when absent.
        kind: Option<String>,
    },
    /// Change the size of a partition; to the end of its gap when no size is given.
    Resize {
        /// Which table.
        geom: String,
        /// Which slot.
        index: u32,
        /// The new size is a multiple of it.
        align: Option<Amount>,
        /// New size.
        size: Option<Amount>,
    },
    /// Write every copy of a damaged table anew from the good one.
    Recover {
        /// Which table.
        geom: String,
    },
    /// Set an attribute of a partition, or of the table.
    Set {
        /// Which table.
        geom: String,
        /// `bootme`, `active`, ...
        attribute: String,
        /// Which slot; absent for the table itself.
        index: Option<u32>,
    },
    /// Unset an attribute.
    Unset {
        /// Which table.
        geom: String,
        /// `bootme`, `active`, ...
        attribute: String,
        /// Which slot; absent for the table itself.
        index: Option<u32>,
    },
    /// Write the changes that wait.
    Commit {
        /// Which table.
        geom: String,
    },
    /// Forget the changes that wait.
    Undo {
        /// Which table.
        geom: String,
    },
}

/// A request, and whether the change that it makes is written at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PartOrder {
    /// What is asked.
    #[serde(flatten)]
    pub request: PartRequest,
    /// False: the change stays in memory until `Commit` or `Undo`. What waits already is written
    /// with a change that is written at once.
    pub commit: bool,
}

impl From<PartRequest> for PartOrder {
    fn from(request: PartRequest) -> PartOrder {
        PartOrder { request, commit: true }
    }
}

/// The answer to a [`PartRequest`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PartAnswer {
    /// What was done, as gpart says it: "ada0p3 added"; empty for `show`.
    pub message: String,
    /// What the user should know (alignment).
    pub warnings: Vec<String>,
    /// The tables asked for, or the changed one.
    pub tables: Vec<PartTable>,
}

/// One partition table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PartTable {
    /// The provider that carries it.
    pub geom: String,
    /// `gpt`, `mbr`, `ebr`.
    pub scheme: String,
    /// A copy is damaged or missing: only `recover` and `destroy` are possible.
    pub corrupt: bool,
    /// What is damaged; empty when nothing is.
    pub why: String,
    /// Sector of the provider, in bytes.
    pub sector_bytes: u32,
    /// First sector that partitions may use.
    pub first: u64,
    /// Last sector that partitions may use, inclusive.
    pub last: u64,
    /// Sorted by `start`; as they will be once what waits is committed.
    pub entries: Vec<PartEntry>,
    /// There are changes that `part commit` writes and `part undo` forgets.
    pub modified: bool,
    /// Those changes in words, oldest first: "ada0p3 added".
    pub pending: Vec<String>,
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PartEntry {
    /// Its slot, from 1.
    pub index: u32,
    /// Name of its provider.
    pub name: String,
    /// First sector.
    pub start: u64,
    /// Number of sectors.
    pub count: u64,
    /// Alias of its type, or the raw form when it has none.
    pub kind: String,
    /// The type as it is on the disk (uuid or number).
    pub raw_kind: String,
    /// Its label; empty when it has none.
    pub label: String,
    /// Attributes set.
    pub attributes: Vec<String>,
}
