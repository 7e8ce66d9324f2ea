//! Common code for the parameters of several kinds.

use std::path::Path;

use bio::Errno;
use geom::Error;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// Largest medium of any disk, bytes: file offsets are signed 64-bit numbers. A larger one is
/// refused.
pub(crate) const MEDIA_BYTES_MAX: u64 = (i64::MAX as u64) / 4096 * 4096;

pub(crate) fn sector_default() -> u32 {
    512
}

/// The parameters as a kind's own type; no parameters at all is an empty object.
pub(crate) fn read<P: DeserializeOwned>(kind: &str, name: &str, value: &Value) -> Result<P, Error> {
    let nothing = Value::Object(serde_json::Map::new());
    let given = if value.is_null() { &nothing } else { value };
    P::deserialize(given).map_err(|e| refuse(kind, name, Errno::Inval, e))
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
