//! Attributes of partitions and of tables by name.

use super::error::{PartError, PartErrorKind};
use super::params::Attribute;
use super::table::{Scheme, SchemeData, Table};
use super::types::Kind;

/// A named bit of an entry.
pub(crate) struct Bit {
    pub(crate) name: &'static str,
    pub(crate) bit: u32,
}

/// Bits of a GPT entry (UEFI 5.3.3; 57 to 59 are FreeBSD's, 60 to 63 of basic data partitions).
const GPT_BITS: &[Bit] = &[
    Bit { name: "required", bit: 0 },
    Bit { name: "no-block-io", bit: 1 },
    Bit { name: "legacy-boot", bit: 2 },
    Bit { name: "bootme", bit: 59 },
    Bit { name: "bootonce", bit: 58 },
    Bit { name: "bootfailed", bit: 57 },
    Bit { name: "read-only", bit: 60 },
    Bit { name: "hidden", bit: 62 },
    Bit { name: "no-automount", bit: 63 },
];

/// The flag byte of an MBR entry.
const MBR_BITS: &[Bit] = &[Bit { name: "active", bit: 7 }];

pub(crate) fn bits_of(kind: Kind) -> &'static [Bit] {
    match kind {
        Kind::Guid(_) => GPT_BITS,
        Kind::Byte(_) => MBR_BITS,
        Kind::Bsd(_) => &[],
    }
}

impl Table {
    /// Set (`on`) or unset an attribute of a partition, or of the table when no index is given
    /// (GPT: `active` and `lenovofix` of the protective MBR).
    ///
    /// # Errors
    /// `Corrupt`, `NoSuchIndex`, or `BadAttribute` when the scheme does not have it there.
    pub fn attribute(&self, spec: &Attribute, on: bool) -> Result<Table, PartError> {
        let op = if on { "set" } else { "unset" };
        self.editable(op)?;
        let name = spec.attrib.to_ascii_lowercase();
        let bad = || PartError::new(PartErrorKind::BadAttribute, op, format!("attribute {name}"));
        let mut table = self.clone();
        let Some(index) = spec.index else {
            let done = match &mut table.scheme_data {
                SchemeData::Gpt(gpt) => gpt.set_pmbr_attribute(&name, on),
                SchemeData::Mbr(_) | SchemeData::Ebr(_) | SchemeData::Bsd(_) => false,
            };
            return if done { Ok(table) } else { Err(bad()) };
        };
        let scheme = self.scheme();
        let position = table.entries.iter().position(|entry| entry.index == index);
        let Some(position) = position else {
            let at = format!("index {index}");
            return Err(PartError::new(PartErrorKind::NoSuchIndex, op, at));
        };
        for (place, entry) in table.entries.iter_mut().enumerate() {
            let bit = bits_of(entry.kind).iter().find(|bit| bit.name == name).ok_or_else(bad)?;
            let mask = 1_u64 << bit.bit;
            if place == position {
                entry.attributes =
                    if on { entry.attributes | mask } else { entry.attributes & !mask };
                // To be booted once is to be bootable.
                if on && name == "bootonce" {
                    entry.attributes |= 1 << 59;
                }
            } else if on && scheme == Scheme::Mbr {
                // Only one primary partition is active.
                entry.attributes &= !mask;
            }
        }
        Ok(table)
    }
}
