//! Names by which hosts know a logical unit. Two units that share one are one disk to a host.

use wire::nvme::uuid_of;
use wire::scsi::{Naa, hex, show_naa, show_uuid};

use crate::handlers::disk::naa;

/// Stands between the names of a unit and the length of its blocks; no name has it.
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
    /// Serial number.
    pub serial: String,
    /// NAA name.
    pub naa: Naa,
    /// UUID.
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

    /// Each of them.
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
}
