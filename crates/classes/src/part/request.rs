//! Requests and answers of the verbs as JSON: one request with the verb in `op`, one answer.

use geom::{Error, units};
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use super::params;

/// An offset or a length: a number of sectors, or text, which may have a unit and is bytes then.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Amount {
    /// Sectors of the provider.
    Sectors(u64),
    /// Bytes; must come out as a whole number of sectors.
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

/// Tables to show.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Show {
    /// Names of providers with tables; empty: all.
    #[serde(default)]
    pub geoms: Vec<String>,
}

/// A new, empty table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// Provider that receives the table.
    pub provider: String,
    /// Scheme: gpt, mbr, bsd (in an MBR partition of type freebsd), or ebr (in one of type ebr).
    #[schemars(extend("x-short" = "s"))]
    pub scheme: String,
    /// Number of slots of the table [default: that of the scheme]
    #[serde(default)]
    #[schemars(extend("x-short" = "n"))]
    pub entries: Option<u32>,
    /// Whether an existing table, label or file system may be overwritten.
    #[serde(default)]
    #[schemars(extend("x-hidden" = true))]
    pub overwrite: bool,
}

/// A new partition. Defaults: the first gap, the whole gap, the first free index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// Provider with the table.
    pub geom: String,
    /// Type: an alias (`linux-data`), !UUID or !NUMBER.
    #[serde(rename = "type", alias = "kind")]
    #[schemars(extend("x-short" = "t"))]
    pub kind: String,
    /// Alignment of start and size, in sectors, or in bytes with a unit.
    #[serde(default)]
    #[schemars(extend("x-short" = "a"))]
    pub align: Option<Amount>,
    /// First sector, or its offset in bytes with a unit [default: the first gap that is large
    /// enough]
    #[serde(default)]
    #[schemars(extend("x-short" = "b"))]
    pub start: Option<Amount>,
    /// Size in sectors, or in bytes with a unit [default: the whole gap]
    #[serde(default)]
    #[schemars(extend("x-short" = "s"))]
    pub size: Option<Amount>,
    /// Index of the partition, from 1 [default: the first free index]
    #[serde(default)]
    #[schemars(extend("x-short" = "i"))]
    pub index: Option<u32>,
    /// Label of the partition, if the scheme has labels [default: none]
    #[serde(default)]
    #[schemars(extend("x-short" = "l"))]
    pub label: Option<String>,
}

/// A partition to be removed from the table. Its data stays on the disk, unreachable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// Provider with the table.
    pub geom: String,
    /// Index of the partition, from 1.
    #[schemars(extend("x-short" = "i"))]
    pub index: u32,
}

/// A table to be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Destroy {
    /// Provider with the table.
    pub geom: String,
    /// Destroy the table even if it has partitions.
    #[serde(default)]
    #[schemars(extend("x-short" = "F"))]
    pub force: bool,
}

/// A new label or type of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Modify {
    /// Provider with the table.
    pub geom: String,
    /// Index of the partition, from 1.
    #[schemars(extend("x-short" = "i"))]
    pub index: u32,
    /// New label [default: unchanged]
    #[serde(default)]
    #[schemars(extend("x-short" = "l"))]
    pub label: Option<String>,
    /// New type: an alias (`linux-data`), !UUID or !NUMBER [default: unchanged]
    #[serde(default, rename = "type", alias = "kind")]
    #[schemars(extend("x-short" = "t"))]
    pub kind: Option<String>,
}

/// A new size of a partition; by default up to the end of the gap behind it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// Provider with the table.
    pub geom: String,
    /// Index of the partition, from 1.
    #[schemars(extend("x-short" = "i"))]
    pub index: u32,
    /// Alignment of the new size, in sectors, or in bytes with a unit.
    #[serde(default)]
    #[schemars(extend("x-short" = "a"))]
    pub align: Option<Amount>,
    /// New size in sectors, or in bytes with a unit [default: to the end of the gap behind it]
    #[serde(default)]
    #[schemars(extend("x-short" = "s"))]
    pub size: Option<Amount>,
}

/// An attribute of a partition, or of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attribute {
    /// Provider with the table.
    pub geom: String,
    /// `bootme`, `active`, ...
    pub attribute: String,
    /// Index of the partition, from 1 [default: the table itself]
    #[serde(default)]
    #[schemars(extend("x-short" = "i"))]
    pub index: Option<u32>,
}

/// Boot code: the scheme's, a partition's, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bootcode {
    /// Provider with the table.
    pub geom: String,
    /// File with the boot code of the scheme. Over the API: `0b` and its bytes in base64.
    #[serde(default)]
    #[schemars(extend("x-short" = "b"))]
    pub bootcode: Option<String>,
    /// File for the start of a partition. Over the API: `0b` and its bytes in base64.
    #[serde(default)]
    #[schemars(extend("x-short" = "p"))]
    pub partcode: Option<String>,
    /// Index of the partition that receives the file of -p, from 1.
    #[serde(default)]
    #[schemars(extend("x-short" = "i"))]
    pub index: Option<u32>,
    /// Replace the disk's serial number, which is inside the boot code, with that of the file.
    #[serde(default)]
    #[schemars(extend("x-short" = "N"))]
    pub skip_serial: bool,
    /// Name of the partition's provider, if the partition is not of a type for boot code.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
}

/// The table of a backup, written to all of the providers or to none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    /// Providers that receive the table.
    #[serde(default)]
    pub geoms: Vec<String>,
    /// Restore labels too.
    #[serde(default)]
    #[schemars(extend("x-short" = "l"))]
    pub labels: bool,
    /// Overwrite the existing partition table.
    #[serde(default)]
    #[schemars(extend("x-short" = "F"))]
    pub force: bool,
    /// Name of a provider whose label, file system or other contents may be lost.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
    /// Restore unique ids too: for the original disk of the backup. Only a JSON backup has them.
    #[serde(default)]
    pub ids: bool,
    /// The backup, as text or JSON (the command reads its standard input).
    #[serde(default)]
    #[schemars(extend("x-hidden" = true))]
    pub backup: Option<String>,
}

/// A table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct TableName {
    /// Provider with the table.
    pub geom: String,
}

/// One request: the verb in `op`, and the parameters of the verb.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// Show the tables of these geoms; empty: all.
    Show(Show),
    /// A new, empty table.
    Create(Create),
    /// A new partition.
    Add(Add),
    /// Remove a partition.
    Delete(Delete),
    /// Remove the whole table.
    Destroy(Destroy),
    /// Change label or type.
    Modify(Modify),
    /// Change the size.
    Resize(Resize),
    /// Rewrite every copy of a damaged table from the good one.
    Recover(TableName),
    /// Set an attribute.
    Set(Attribute),
    /// Unset an attribute.
    Unset(Attribute),
    /// Write boot code.
    Bootcode(Bootcode),
    /// Back up the table; the answer is a [`super::Backup`].
    Backup(TableName),
    /// Restore the table of a backup.
    Restore(Restore),
    /// Write the changes made with `commit: false`.
    Commit(TableName),
    /// Discard the changes made with `commit: false`.
    Undo(TableName),
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
