//! Common code for the parameters of several kinds.

use std::path::Path;
use std::sync::LazyLock;

use bio::Errno;
use geom::Error;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// Largest medium of any disk, bytes: file offsets are signed 64-bit numbers. A larger one is
/// refused.
pub(crate) const MEDIA_BYTES_MAX: u64 = (i64::MAX as u64) / 4096 * 4096;

pub(crate) fn sector_default() -> u32 {
    512
}

/// Keys of a disk of any kind. The daemon reads them: a kind uses none of them.
#[derive(Serialize, Deserialize, JsonSchema)]
struct UnitNames {
    /// NAA name of the unit on the disk, as in `[[unit]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    naa: Option<String>,
    /// UUID of the unit on the disk, as in `[[unit]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uuid: Option<String>,
    /// EUI-64 of the unit on the disk, as in `[[unit]]`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    eui64: Option<String>,
}

/// Schemas of the keys of any kind, made once: each parse of a section needs them.
static UNIT_NAMES: LazyLock<Map<String, Value>> = LazyLock::new(|| {
    let schema = geom::schema_of::<UnitNames>();
    schema.get("properties").and_then(Value::as_object).cloned().unwrap_or_default()
});

/// The schema of the parameters of a kind: its own, and the keys of any kind.
pub(crate) fn schema<P: JsonSchema>() -> Value {
    with_unit_names(geom::schema_of::<P>())
}

fn with_unit_names(mut schema: Value) -> Value {
    if let Some(own) = schema.get_mut("properties").and_then(Value::as_object_mut) {
        own.extend(UNIT_NAMES.clone());
    }
    schema
}

/// The parameters as a kind's own type; no parameters at all is an empty object.
pub(crate) fn read<P: DeserializeOwned>(kind: &str, name: &str, value: &Value) -> Result<P, Error> {
    let own = own_params(value).and_then(P::deserialize);
    own.map_err(|e| refuse(kind, name, Errno::Inval, e))
}

/// The parameters without the keys of any kind, whose types are checked.
fn own_params(value: &Value) -> Result<Value, serde_json::Error> {
    let mut own = match value {
        Value::Null => Map::new(),
        Value::Object(given) => given.clone(),
        other => return Ok(other.clone()),
    };
    let names = UNIT_NAMES.keys().filter_map(|key| own.remove_entry(key));
    UnitNames::deserialize(Value::Object(names.collect()))?;
    Ok(Value::Object(own))
}

/// The path of the medium, of a kind that has one.
pub(crate) fn path(params: &Value) -> Option<&Path> {
    params.get("path")?.as_str().map(Path::new)
}

/// A refusal that names its disk.
pub(crate) fn refuse(kind: &str, name: &str, errno: Errno, what: impl std::fmt::Display) -> Error {
    Error::new(errno, format!("{kind} disk {name}: {what}"))
}

/// Checks a sector size: 512 or 4096 bytes.
pub(crate) fn check_sector(kind: &str, name: &str, sector: u32) -> Result<(), Error> {
    match sector {
        512 | 4096 => Ok(()),
        other => {
            let what = format!("sector_size is {other}; it must be 512 or 4096");
            Err(refuse(kind, name, Errno::Inval, what))
        }
    }
}

/// Checks a size given by hand: whole sectors, at least one.
pub(crate) fn check_size(
    kind: &str,
    name: &str,
    size: u64,
    sector: u32,
    most: u64,
) -> Result<(), Error> {
    let refuse = |what: String| Err(refuse(kind, name, Errno::Inval, what));
    if size == 0 || !size.is_multiple_of(u64::from(sector)) {
        return refuse(format!("size {size} is not a positive multiple of {sector} bytes"));
    }
    if size > most {
        return refuse(format!("size {size} is larger than the limit of {most} bytes"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    /// Parameters of a kind.
    #[derive(Debug, PartialEq, Eq, Deserialize, JsonSchema)]
    #[serde(deny_unknown_fields)]
    struct Own {
        /// Size in bytes.
        size: u64,
    }

    #[test]
    fn names_of_a_unit_are_keys_of_every_kind_and_others_are_refused() {
        let read = |value: Value| read::<Own>("own", "d0", &value);
        assert_eq!(read(json!({ "size": 1, "naa": "5000" })), Ok(Own { size: 1 }));
        for (value, word) in [
            (json!({ "size": 1, "naa": 5 }), "5"),
            (json!({ "size": 1, "nab": "5" }), "`nab`"),
            (json!({ "uuid": "5" }), "`size`"),
            (json!([]), "length"),
            (Value::Null, "`size`"),
        ] {
            let message = read(value).expect_err(word).message;
            assert!(message.starts_with("own disk d0: ") && message.contains(word), "{message}");
        }
        let fields = schema::<Own>()["properties"].clone();
        let keys: Vec<&String> = fields.as_object().expect("an object").keys().collect();
        assert_eq!(keys, ["eui64", "naa", "size", "uuid"]);
    }
}
