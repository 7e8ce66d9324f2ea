//! Kinds of logical units, one line each: name, peripheral device type, and the handler that
//! executes the commands (`handlers/mod.rs`).

use wire::scsi::PeripheralType;

/// The list of kinds, for a macro that makes something of each. A line has the name in lists and
/// configuration, the peripheral device type, and the value of the handler in `handlers`.
macro_rules! for_unit_kinds {
    ($make:ident) => {
        $make! {
            /// Direct-access block device.
            Disk: "disk", Disk, disk::Disk;
            /// Drive of optical media.
            Cdrom: "cdrom", Cdrom, cdrom::Cdrom;
            /// Disk without a medium, for measurements.
            Null: "null", Disk, null::Null;
        }
    };
}
pub(crate) use for_unit_kinds;

macro_rules! unit_kinds {
    ($($(#[$doc:meta])* $kind:ident: $name:literal, $peripheral:ident, $handler:path;)*) => {
        /// Kind of a logical unit.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum UnitKind {
            $($(#[$doc])* $kind,)*
        }

        impl UnitKind {
            pub const ALL: &'static [UnitKind] = &[$(UnitKind::$kind),*];

            /// Name in lists and configuration.
            pub const fn name(self) -> &'static str {
                match self {
                    $(UnitKind::$kind => $name,)*
                }
            }

            #[inline]
            pub const fn peripheral(self) -> PeripheralType {
                match self {
                    $(UnitKind::$kind => PeripheralType::$peripheral,)*
                }
            }
        }
    };
}

for_unit_kinds!(unit_kinds);

impl UnitKind {
    pub fn find(name: &str) -> Option<UnitKind> {
        UnitKind::ALL.iter().copied().find(|kind| kind.name() == name)
    }
}
