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

/// Tables to be shown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Show {
    /// Names of providers with tables; all when none is given.
    #[serde(default)]
    pub geoms: Vec<String>,
}

/// A new, empty table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Create {
    /// The provider.
    pub provider: String,
    /// gpt, mbr, bsd (on an MBR partition of type freebsd), or ebr (on one of type ebr).
    #[schemars(extend("x-short" = "s"))]
    pub scheme: String,
    /// Slots of the table; without it as many as the scheme has.
    #[serde(default)]
    #[schemars(extend("x-short" = "n"))]
    pub entries: Option<u32>,
    /// Whether a table, label or file system that is there may be lost.
    #[serde(default)]
    #[schemars(extend("x-hidden" = true))]
    pub overwrite: bool,
}

/// A new partition. What is absent is filled in: first gap, whole gap, first free index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Add {
    /// The provider with the table.
    pub geom: String,
    /// Type: an alias (`linux-data`), !UUID or !NUMBER.
    #[serde(rename = "type", alias = "kind")]
    #[schemars(extend("x-short" = "t"))]
    pub kind: String,
    /// Start and size are multiples of it.
    #[serde(default)]
    #[schemars(extend("x-short" = "a"))]
    pub align: Option<Amount>,
    /// Where it starts.
    #[serde(default)]
    #[schemars(extend("x-short" = "b"))]
    pub start: Option<Amount>,
    /// How long it is.
    #[serde(default)]
    #[schemars(extend("x-short" = "s"))]
    pub size: Option<Amount>,
    /// Its slot, from 1.
    #[serde(default)]
    #[schemars(extend("x-short" = "i"))]
    pub index: Option<u32>,
    /// Its label, where the scheme has labels.
    #[serde(default)]
    #[schemars(extend("x-short" = "l"))]
    pub label: Option<String>,
}

/// A partition to be removed from the table. Its data stays on the disk, unreachable.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Delete {
    /// The provider with the table.
    pub geom: String,
    /// Its slot, from 1.
    #[schemars(extend("x-short" = "i"))]
    pub index: u32,
}

/// A table to be removed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Destroy {
    /// The provider with the table.
    pub geom: String,
    /// Also when it still has partitions.
    #[serde(default)]
    #[schemars(extend("x-short" = "F"))]
    pub force: bool,
}

/// Another label or type of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Modify {
    /// The provider with the table.
    pub geom: String,
    /// Its slot, from 1.
    #[schemars(extend("x-short" = "i"))]
    pub index: u32,
    /// New label.
    #[serde(default)]
    #[schemars(extend("x-short" = "l"))]
    pub label: Option<String>,
    /// New type.
    #[serde(default, rename = "type", alias = "kind")]
    #[schemars(extend("x-short" = "t"))]
    pub kind: Option<String>,
}

/// Another size of a partition; to the end of its gap when no size is given.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Resize {
    /// The provider with the table.
    pub geom: String,
    /// Its slot, from 1.
    #[schemars(extend("x-short" = "i"))]
    pub index: u32,
    /// The new size is a multiple of it.
    #[serde(default)]
    #[schemars(extend("x-short" = "a"))]
    pub align: Option<Amount>,
    /// New size: sectors, with a unit bytes.
    #[serde(default)]
    #[schemars(extend("x-short" = "s"))]
    pub size: Option<Amount>,
}

/// An attribute of a partition, or of the table.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Attribute {
    /// The provider with the table.
    pub geom: String,
    /// `bootme`, `active`, ...
    pub attribute: String,
    /// Its slot; the table itself when absent.
    #[serde(default)]
    #[schemars(extend("x-short" = "i"))]
    pub index: Option<u32>,
}

/// Boot code: the scheme's, a partition's, or both.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Bootcode {
    /// The provider with the table.
    pub geom: String,
    /// File with the boot code of the scheme. Over the API: `0b` and its bytes in base64.
    #[serde(default)]
    #[schemars(extend("x-short" = "b"))]
    pub bootcode: Option<String>,
    /// File for the begin of a partition. Over the API: `0b` and its bytes in base64.
    #[serde(default)]
    #[schemars(extend("x-short" = "p"))]
    pub partcode: Option<String>,
    /// The slot of that partition.
    #[serde(default)]
    #[schemars(extend("x-short" = "i"))]
    pub index: Option<u32>,
    /// Do not keep the disk's serial number, which stands amidst the code: take the file's.
    #[serde(default)]
    #[schemars(extend("x-short" = "N"))]
    pub skip_serial: bool,
    /// Name of the partition's provider, when it is not one for boot code.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
}

/// The table of a backup, on all of the providers or on none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Restore {
    /// The providers that are to have the table.
    #[serde(default)]
    pub geoms: Vec<String>,
    /// Restore labels, too.
    #[serde(default)]
    #[schemars(extend("x-short" = "l"))]
    pub labels: bool,
    /// Give up the partition table that is there.
    #[serde(default)]
    #[schemars(extend("x-short" = "F"))]
    pub force: bool,
    /// Name of a provider whose label, file system or other contents may be lost.
    #[serde(default)]
    pub yes_destroy: Vec<String>,
    /// Restore unique ids, too: on the disk that the backup was made of. Only JSON has them.
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
pub struct One {
    /// The provider with the table.
    pub geom: String,
}

/// One change or question: the verb in `op`, beside it what the verb takes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(tag = "op", rename_all = "snake_case")]
pub enum Request {
    /// The tables of these geoms; of all when the list is empty.
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
    /// Write every copy of a damaged table anew from the good one.
    Recover(One),
    /// Set an attribute.
    Set(Attribute),
    /// Unset an attribute.
    Unset(Attribute),
    /// Write boot code.
    Bootcode(Bootcode),
    /// What makes the table again; the answer is a [`super::Backup`].
    Backup(One),
    /// The table of a backup.
    Restore(Restore),
    /// Write the changes made with `commit: false`.
    Commit(One),
    /// Forget the changes made with `commit: false`.
    Undo(One),
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
    /// Sorted by `start`; as they will be once what waits is committed.
    pub entries: Vec<EntryView>,
    /// There are changes that `part commit` writes and `part undo` forgets.
    pub modified: bool,
    /// Those changes in words, oldest first: "ada0p3 added".
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
