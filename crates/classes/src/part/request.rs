//! What the verbs take and answer, as JSON: one request with the verb in `op`, one answer.

use geom::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::params;

/// An offset or a length.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Sectors of the provider.
    Sectors(u64),
    /// Bytes; must come out as a whole number of sectors.
    Bytes(u64),
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

/// One change or question. `geom` is the name of the provider that carries the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// The tables of these geoms; of all when the list is empty.
    Show {
        /// Names; empty means all.
        #[serde(default)]
        geoms: Vec<String>,
    },
    /// A new, empty table.
    Create {
        /// Where.
        provider: String,
        /// `gpt`, `mbr`, `bsd`, or `ebr` on an MBR partition of that type.
        scheme: String,
        /// Slots of the table; the scheme's own default when absent.
        #[serde(default)]
        entries: Option<u32>,
        /// Whether a table, label or file system that is there may be lost.
        #[serde(default)]
        overwrite: bool,
    },
    /// A new partition. What is absent is filled in: first gap, whole gap, first free index.
    Add {
        /// Which table.
        geom: String,
        /// Alias (`linux-data`), `!<uuid>` or `!<number>`.
        kind: String,
        /// Start and size are multiples of it.
        #[serde(default)]
        align: Option<Amount>,
        /// Where it starts.
        #[serde(default)]
        start: Option<Amount>,
        /// How long it is.
        #[serde(default)]
        size: Option<Amount>,
        /// Which slot, from 1.
        #[serde(default)]
        index: Option<u32>,
        /// Its label, where the scheme has labels.
        #[serde(default)]
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
        #[serde(default)]
        force: bool,
    },
    /// Change label or type.
    Modify {
        /// Which table.
        geom: String,
        /// Which slot.
        index: u32,
        /// New label; unchanged when absent.
        #[serde(default)]
        label: Option<String>,
        /// New type; unchanged when absent.
        #[serde(default)]
        kind: Option<String>,
    },
    /// Change the size of a partition; to the end of its gap when no size is given.
    Resize {
        /// Which table.
        geom: String,
        /// Which slot.
        index: u32,
        /// The new size is a multiple of it.
        #[serde(default)]
        align: Option<Amount>,
        /// New size.
        #[serde(default)]
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
        #[serde(default)]
        index: Option<u32>,
    },
    /// Unset an attribute.
    Unset {
        /// Which table.
        geom: String,
        /// `bootme`, `active`, ...
        attribute: String,
        /// Which slot; absent for the table itself.
        #[serde(default)]
        index: Option<u32>,
    },
    /// Boot code: the scheme's, a partition's, or both. Each is `0b` and base64, or `0x` and
    /// hexadecimal digits.
    Bootcode {
        /// Which table.
        geom: String,
        /// The scheme's.
        #[serde(default)]
        bootcode: Option<String>,
        /// Take the disk's serial number from it, too.
        #[serde(default)]
        skip_serial: bool,
        /// The partition's.
        #[serde(default)]
        partcode: Option<String>,
        /// Which slot `partcode` is for.
        #[serde(default)]
        index: Option<u32>,
        /// Providers of partitions whose contents may be lost.
        #[serde(default)]
        yes_destroy: Vec<String>,
    },
    /// What makes the table again; the answer is a [`super::Backup`].
    Backup {
        /// Which table.
        geom: String,
    },
    /// The table of a backup, on all of these or on none.
    Restore {
        /// Names of providers.
        geoms: Vec<String>,
        /// The backup, as text or JSON.
        backup: String,
        /// Labels, too.
        #[serde(default)]
        labels: bool,
        /// Unique ids, too: for the disk that it was made of.
        #[serde(default)]
        ids: bool,
        /// Whether a partition table that is there may be lost.
        #[serde(default)]
        force: bool,
        /// Providers whose other contents may be lost, too.
        #[serde(default)]
        yes_destroy: Vec<String>,
    },
    /// Write the changes made with `commit: false`.
    Commit {
        /// Which table.
        geom: String,
    },
    /// Forget the changes made with `commit: false`.
    Undo {
        /// Which table.
        geom: String,
    },
}

impl Request {
    /// The request of a verb: `params` in JSON, in which `op` and the name that the verb is
    /// about may be left out. Also answers whether the change is to be written at once, which
    /// the key `commit` (true by default) says.
    ///
    /// # Errors
    /// `Inval` with the key that is wrong or missing.
    pub(super) fn parse(verb: &str, on: &str, given: &Value) -> Result<(Request, bool), Error> {
        let bad = |why: String| Error::inval(format!("part {verb}: {why}"));
        let mut map = match given {
            Value::Object(map) => map.clone(),
            Value::Null => serde_json::Map::new(),
            _ => return Err(bad("the parameters are not an object".into())),
        };
        let commit = match map.remove("commit") {
            None | Some(Value::Null) => true,
            Some(Value::Bool(commit)) => commit,
            Some(_) => return Err(bad("commit is true or false".into())),
        };
        let op = map.entry("op").or_insert_with(|| verb.into()).clone();
        let key = if op == "create" { "provider" } else { "geom" };
        match op == "show" || op == "restore" {
            true if !on.is_empty() => {
                map.entry("geoms").or_insert_with(|| vec![on].into());
            }
            false if !on.is_empty() => {
                map.entry(key).or_insert_with(|| on.into());
            }
            _ => {}
        }
        let request = serde_json::from_value(Value::Object(map));
        Ok((request.map_err(|e| bad(e.to_string()))?, commit))
    }
}

/// The answer to a [`Request`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Answer {
    /// What was done: "ada0p3 added"; empty for `show`.
    pub message: String,
    /// What the user should know (alignment).
    pub warnings: Vec<String>,
    /// The tables asked for, or the changed one.
    pub tables: Vec<TableView>,
}

/// One partition table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct TableView {
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
    /// Sorted by `start`.
    pub entries: Vec<EntryView>,
    /// There are changes that `commit` writes and `undo` forgets.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub modified: bool,
    /// Those changes in words, oldest first: "ada0p3 added".
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pending: Vec<String>,
}

/// One partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct EntryView {
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
