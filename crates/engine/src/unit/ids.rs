//! Names by which hosts know a logical unit. Two units that share one are one disk to a host.

use wire::nvme::uuid_of;
use wire::scsi::{Naa, hex, show_naa, show_uuid};

/// Company in NAA identifiers: the locally administered bit is set, so it has no owner.
const COMPANY: u32 = 0x02_A5_B1;

/// Separates the names of a unit from the length of its blocks; no name has it.
pub(crate) const LENGTH_MARK: char = '\t';

/// Names that are configured for a unit besides its serial number.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq)]
pub struct ConfiguredIds {
    /// NAA name; `None`: made from the serial number.
    pub naa: Option<Naa>,
    /// UUID; `None`: made from the NAA name, and shown to hosts of NVMe alone.
    pub uuid: Option<[u8; 16]>,
    /// EUI-64; `None`: the unit has none.
    pub eui64: Option<[u8; 8]>,
}

/// The names that hosts see.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Ids {
    pub serial: String,
    /// NAA name.
    pub naa: Naa,
    pub uuid: [u8; 16],
    /// EUI-64.
    pub eui64: Option<[u8; 8]>,
    configured: ConfiguredIds,
}

/// One identifier: its key in the configuration, its kind, and its value.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Id {
    /// `serial`, `naa`, `uuid` or `eui64`.
    pub key: &'static str,
    /// As it is written in lists.
    pub value: String,
}

impl Id {
    /// Kind of the identifier, for people.
    pub fn kind_name(&self) -> &'static str {
        match self.key {
            "serial" => "serial number",
            "naa" => "NAA name",
            "uuid" => "UUID",
            _ => "EUI-64",
        }
    }
}

impl Ids {
    /// Those of a unit with this serial number.
    pub fn new(serial: &str, given: ConfiguredIds) -> Ids {
        let naa = given.naa.unwrap_or_else(|| naa(serial));
        let uuid = given.uuid.unwrap_or_else(|| uuid_of(naa));
        Ids { serial: serial.to_owned(), naa, uuid, eui64: given.eui64, configured: given }
    }

    pub fn all(&self) -> Vec<Id> {
        let mut all = vec![
            Id { key: "serial", value: self.serial.clone() },
            Id { key: "naa", value: show_naa(&self.naa) },
            Id { key: "uuid", value: show_uuid(&self.uuid) },
        ];
        all.extend(self.eui64.map(|eui64| Id { key: "eui64", value: hex(&eui64) }));
        all
    }

    /// Text that distinguishes the unit from others behind a LUN: a host takes a different text for
    /// a different disk.
    pub(crate) fn identity_text(&self) -> String {
        match self.configured == ConfiguredIds::default() {
            true => self.serial.clone(),
            false => self.all().into_iter().map(|id| id.value).collect::<Vec<_>>().join(" "),
        }
    }
}

/// A 128-bit name of type 6h, from the serial number alone: the same on every path, after every
/// restart and on every host.
pub fn naa(serial: &str) -> [u8; 16] {
    let mut hash: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    for byte in serial.bytes() {
        hash = (hash ^ u128::from(byte)).wrapping_mul(0x0000_0000_0100_0000_0000_0000_0000_013b);
    }
    let tail = hash & ((1 << 100) - 1);
    (6 << 124 | u128::from(COMPANY) << 100 | tail).to_be_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_identifiers_take_precedence_and_others_are_derived() {
        let plain = Ids::new("S1", ConfiguredIds::default());
        assert_eq!((plain.naa, plain.uuid), (naa("S1"), uuid_of(naa("S1"))));
        assert_eq!((plain.identity_text(), plain.all().len()), ("S1".to_owned(), 3));
        let given = ConfiguredIds { naa: Some(naa("other")), ..ConfiguredIds::default() };
        let named = Ids::new("S1", given);
        assert_eq!((named.naa, named.uuid), (naa("other"), uuid_of(naa("other"))));
        assert_ne!(named.identity_text(), plain.identity_text());
        let given =
            ConfiguredIds { uuid: Some([7; 16]), eui64: Some([9; 8]), ..ConfiguredIds::default() };
        let named = Ids::new("S1", given);
        assert_eq!((named.naa, named.uuid, named.eui64), (naa("S1"), [7; 16], Some([9; 8])));
        assert_eq!(named.all().len(), 4);
    }

    #[test]
    fn naa_name_is_type_six_and_derived_from_the_serial_number() {
        let a = naa("disk-1");
        assert_eq!(a[..4], [0x60, 0x2A, 0x5B, 0x10 | (a[3] & 0x0F)]);
        assert_ne!(a, naa("disk-2"));
        assert_eq!(a, naa("disk-1"));
    }
}
