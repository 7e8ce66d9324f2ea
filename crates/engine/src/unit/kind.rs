//! Kinds of logical units. The handler of a kind executes its commands (`handlers/mod.rs`).

use wire::scsi::PeripheralType;

/// Kind of a logical unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UnitKind {
    /// Direct-access block device.
    Disk,
    /// Drive of optical media.
    Cdrom,
    /// Disk without a medium, for measurements.
    Null,
}

impl UnitKind {
    /// Every kind.
    pub const ALL: [UnitKind; 3] = [UnitKind::Disk, UnitKind::Cdrom, UnitKind::Null];

    /// Name in lists and configuration.
    pub const fn name(self) -> &'static str {
        match self {
            UnitKind::Disk => "disk",
            UnitKind::Cdrom => "cdrom",
            UnitKind::Null => "null",
        }
    }

    /// A kind by name.
    pub fn find(name: &str) -> Option<UnitKind> {
        UnitKind::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Peripheral device type.
    #[inline]
    pub const fn peripheral(self) -> PeripheralType {
        match self {
            UnitKind::Disk | UnitKind::Null => PeripheralType::Disk,
            UnitKind::Cdrom => PeripheralType::Cdrom,
        }
    }
}
