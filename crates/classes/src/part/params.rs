//! The parameters of the verbs, one struct each: command line, API and pages are made from these.

use super::error::{PartError, PartErrorKind};
use super::table::Scheme;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// A place or a length. A number is in sectors, text may carry a suffix (`k`, `m`, `g`, `t`,
/// 1024-fold each, or `b`), and is then in bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Amount {
    /// Sectors.
    Sectors(u64),
    /// Sectors, or bytes when there is a suffix: `"2048"`, `"1m"`.
    Text(String),
}

impl Amount {
    /// The amount in sectors of `sector_size` bytes, rounded up.
    ///
    /// # Errors
    /// [`PartErrorKind::BadValue`] for text that is not a number with an optional suffix.
    pub fn sectors(&self, sector_size: u32, op: &'static str) -> Result<u64, PartError> {
        let text = match self {
            Amount::Sectors(count) => return Ok(*count),
            Amount::Text(text) => text.trim(),
        };
        let bad = || PartError::new(PartErrorKind::BadValue, op, format!("amount {text:?}"));
        let digits = text.trim_end_matches(|c: char| !c.is_ascii_digit());
        let number: u64 = digits.parse().map_err(|_| bad())?;
        let suffix = text.get(digits.len()..).unwrap_or("").to_ascii_lowercase();
        let unit: u64 = match suffix.as_str() {
            "" => return Ok(number),
            "b" => 1,
            "k" | "kib" => 1 << 10,
            "m" | "mib" => 1 << 20,
            "g" | "gib" => 1 << 30,
            "t" | "tib" => 1 << 40,
            _ => return Err(bad()),
        };
        let bytes = number.checked_mul(unit).ok_or_else(bad)?;
        Ok(bytes.div_ceil(u64::from(sector_size).max(1)))
    }
}

/// Make an empty partition table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Create {
    /// Kind of table.
    pub scheme: Scheme,
    /// Entries of a GPT, 128 (the default) to 4096.
    #[serde(default)]
    pub entries: Option<u32>,
}

/// Add a partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Add {
    /// Type: an alias such as `linux-data`, `!uuid` or `!number`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Start and size are made multiples of this.
    #[serde(default)]
    pub align: Option<Amount>,
    /// First sector; by default the first free range that is large enough.
    #[serde(default)]
    pub start: Option<Amount>,
    /// Length; by default the rest of the free range.
    #[serde(default)]
    pub size: Option<Amount>,
    /// Index; by default the lowest free one.
    #[serde(default)]
    pub index: Option<u32>,
    /// Name kept in the table (GPT: 36 UTF-16 units).
    #[serde(default)]
    pub label: Option<String>,
}

/// Change a partition's type or name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Modify {
    /// Index of the partition.
    pub index: u32,
    /// New type.
    #[serde(default, rename = "type")]
    pub kind: Option<String>,
    /// New name.
    #[serde(default)]
    pub label: Option<String>,
}

/// Change a partition's size.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Resize {
    /// Index of the partition.
    pub index: u32,
    /// The new end is made a multiple of this.
    #[serde(default)]
    pub align: Option<Amount>,
    /// New length; by default all the free space behind it.
    #[serde(default)]
    pub size: Option<Amount>,
}

/// Set or unset an attribute.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Attribute {
    /// Name of the attribute.
    pub attrib: String,
    /// Index of the partition; left out for an attribute of the table itself.
    #[serde(default)]
    pub index: Option<u32>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amounts_with_units_are_parsed_and_bad_ones_refused() {
        let sectors = |text: &str, size| {
            Amount::Text(text.to_owned()).sectors(size, "add").map_err(|error| error.kind)
        };
        assert_eq!(sectors("2048", 512), Ok(2048));
        assert_eq!(sectors("1m", 512), Ok(2048));
        assert_eq!(sectors("1M", 4096), Ok(256));
        assert_eq!(sectors("1b", 4096), Ok(1));
        assert_eq!(sectors("2GiB", 4096), Ok(524_288));
        for text in ["", "m", "-1", "1x", "99999999999999999999", "99999999999t", "1.5g"] {
            assert_eq!(sectors(text, 512), Err(PartErrorKind::BadValue), "{text}");
        }
    }
}
