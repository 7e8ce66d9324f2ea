//! Parameters and answers of the verbs. The parameters of a verb are in its file, in `verbs`.

use geom::{Error, units};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};

use super::params;
pub use super::verbs::{
    Add, Attribute, Bootcode, Commit, Create, Delete, Destroy, Edit, Modify, Recover, Resize,
    Restore, Set, Show, Undo, Unset, is_kept_in_memory,
};

/// An offset or a length: a number of sectors, or text, which may have a unit and is bytes then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Sectors of the provider.
    Sectors(u64),
    /// Bytes; must be a whole number of sectors.
    Bytes(u64),
}

impl<'de> Deserialize<'de> for Amount {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Amount, D::Error> {
        #[derive(Deserialize)]
        #[serde(untagged)]
        enum Given {
            Number(u64),
            Text(String),
            Sectors { sectors: u64 },
            Bytes { bytes: u64 },
        }
        Ok(match Given::deserialize(from)? {
            Given::Number(sectors) | Given::Sectors { sectors } => Amount::Sectors(sectors),
            Given::Bytes { bytes } => Amount::Bytes(bytes),
            Given::Text(text) => match text.trim().parse() {
                Ok(sectors) => Amount::Sectors(sectors),
                Err(_) => Amount::Bytes(units::size(&text).map_err(|e| {
                    let why = "is neither a number of sectors nor a size";
                    D::Error::custom(format!("`{text}` {why}: {e}"))
                })?),
            },
        })
    }
}

impl JsonSchema for Amount {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Amount".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "string" })
    }
}

impl Amount {
    /// In the terms of a table with sectors of that size.
    ///
    /// # Errors
    /// `Inval` for bytes that are no whole number of sectors.
    pub(super) fn of(self, sector_size: u32, what: &str) -> Result<params::Amount, Error> {
        match self {
            Amount::Sectors(count) => Ok(params::Amount::Sectors(count)),
            Amount::Bytes(bytes) => {
                let size = u64::from(sector_size).max(1);
                match bytes % size {
                    0 => Ok(params::Amount::Sectors(bytes / size)),
                    _ => Err(Error::inval(format!(
                        "{what}: {bytes} bytes are no whole number of {size}-byte sectors"
                    ))),
                }
            }
        }
    }
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableName {
    /// Provider with the table.
    pub geom: String,
}

/// The answer of a verb.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct PartAnswer {
    /// Description of the change: "ada0p3 added"; empty for `show`.
    pub message: String,
    /// Warnings for the user (alignment).
    pub warnings: Vec<String>,
    /// The requested tables, or the changed one.
    pub tables: Vec<TableView>,
}

/// One partition table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TableView {
    /// Provider with the table.
    pub geom: String,
    /// `gpt`, `mbr`, `ebr`.
    pub scheme: String,
    /// A copy is damaged or missing: only `recover` and `destroy` are possible.
    pub corrupt: bool,
    /// Description of the damage; empty if there is none.
    pub why: String,
    /// Sector of the provider, in bytes.
    pub sector_bytes: u32,
    /// First sector that partitions may use.
    pub first: u64,
    /// Last sector that partitions may use, inclusive.
    pub last: u64,
    /// Partitions sorted by `start`, including uncommitted changes.
    pub entries: Vec<EntryView>,
    /// Whether there are uncommitted changes, which `part commit` writes and `part undo` discards.
    pub modified: bool,
    /// Descriptions of the uncommitted changes, oldest first: "ada0p3 added".
    pub pending: Vec<String>,
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EntryView {
    /// Index of the partition, from 1.
    pub index: u32,
    /// Name of the partition's provider.
    pub name: String,
    /// First sector.
    pub start: u64,
    /// Number of sectors.
    pub count: u64,
    /// Alias of the type, or its raw form if there is no alias.
    pub kind: String,
    /// The type as it is on the disk (uuid or number).
    pub raw_kind: String,
    /// Label; empty if there is none.
    pub label: String,
    /// Attributes that are set.
    pub attributes: Vec<String>,
}
