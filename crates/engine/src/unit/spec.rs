//! Specification of a logical unit, and its label, which may change while hosts use it.

use geom::Edge;

use crate::unit::ids::{ConfiguredIds, Ids};
use crate::unit::protection::ProtectionSpec;
use crate::unit::space::{FULL_PERCENTS, SpaceUsage};

/// T10 vendor identification of a unit without a configured one.
pub const VENDOR: &str = "ASHLAR";
pub const PRODUCT: &str = "VIRTUAL DISK";
pub const PRODUCT_CD: &str = "VIRTUAL CD-ROM";
pub const REVISION: &str = "0001";

/// Properties of a logical unit that the operator may change while hosts use it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Label {
    /// Name of the provider below, and of the unit in lists. No host sees it.
    pub name: String,
    /// T10 vendor identification; eight bytes are shown.
    pub vendor: String,
    /// Product identification; sixteen bytes are shown.
    pub product: String,
    /// Product revision level; four bytes are shown.
    pub revision: String,
    /// SANITIZE is served: initiators may destroy everything for good.
    pub sanitize: bool,
    /// WRITE SAME of no blocks reaches to the end of the medium; else it is refused.
    pub write_same_to_end: bool,
}

impl Label {
    /// The names of a unit without configured ones.
    pub fn new(name: &str) -> Label {
        Label {
            name: name.into(),
            vendor: VENDOR.into(),
            product: PRODUCT.into(),
            revision: REVISION.into(),
            sanitize: false,
            write_same_to_end: false,
        }
    }
}

/// Specification of a logical unit; it does not change while the unit exists, except for its label
/// (`Device::label`).
#[derive(Clone, Debug)]
pub struct DeviceSpec {
    /// As it is at first.
    pub label: Label,
    /// Serial number: identity for initiators, the same on every path and after every restart.
    pub serial: String,
    /// Other names that are configured.
    pub configured_ids: ConfiguredIds,
    /// The way down, valid on every core; another one after a loss (`Device::find`).
    pub edge: Edge,
    pub media_bytes: u64,
    /// Logical block, bytes.
    pub sector_bytes: u32,
    /// Physical block, bytes; a power of two times the logical block.
    pub physical_bytes: u32,
    /// Write data may be anywhere in memory; else the disk copies data that is not on whole pages.
    pub any_memory: bool,
    /// A write of at most so many bytes that begins at a multiple of them is kept or lost as a
    /// whole at a power cut. Zero when nothing is known, `u64::MAX` when nothing is kept at all.
    pub atomic_bytes: u64,
    /// Revolutions a minute; `None` when not known, `Some(1)` when it does not rotate.
    pub rotation: Option<u16>,
    /// DELETE works: UNMAP and WRITE SAME with UNMAP are offered.
    pub can_delete: bool,
    /// Deleted blocks read as zeroes, as it was when the unit was made; see `Device::provisioning`.
    pub delete_reads_zero: bool,
    /// Best unit of DELETE, bytes; zero when there is none.
    pub delete_unit_bytes: u64,
    /// Where the first unit begins, bytes; `None` when there is no saying.
    pub delete_offset: Option<u64>,
    /// Most bytes that one request to the layers below frees; zero: any number.
    pub delete_request_bytes: u64,
    /// A volatile cache is below: the initial state of WCE.
    pub write_cache: bool,
    /// No initiator may write, regardless of the access group.
    pub read_only: bool,
    /// Stripe, bytes: several physical blocks; zero where there is none.
    pub stripe_bytes: u64,
    /// The medium can be taken out (RMB).
    pub removable: bool,
    /// Space that the disk reports, if it does: the unit has thresholds then.
    pub space_usage: Option<SpaceUsage>,
    /// Percentages of used space at which initiators are notified; at most
    /// [`crate::unit::space::FULL_PERCENTS_MAX`].
    pub full_percents: Vec<u8>,
    /// Blocks can be allocated without being written: ANCHOR is served.
    pub can_anchor: bool,
    /// Protection information; its space is subtracted from the capacity.
    pub protection: ProtectionSpec,
}

impl DeviceSpec {
    /// The names by which hosts know the unit.
    pub fn ids(&self) -> Ids {
        Ids::new(&self.serial, self.configured_ids)
    }

    /// A plain writable unit with a volatile cache.
    pub fn new(name: &str, serial: &str, edge: Edge, media_bytes: u64, sector: u32) -> DeviceSpec {
        DeviceSpec {
            label: Label::new(name),
            serial: serial.into(),
            configured_ids: ConfiguredIds::default(),
            edge,
            media_bytes,
            sector_bytes: sector,
            physical_bytes: sector,
            any_memory: false,
            atomic_bytes: 0,
            rotation: None,
            can_delete: false,
            delete_reads_zero: false,
            delete_unit_bytes: 0,
            delete_offset: None,
            delete_request_bytes: 0,
            write_cache: true,
            read_only: false,
            stripe_bytes: 0,
            removable: false,
            space_usage: None,
            full_percents: FULL_PERCENTS.to_vec(),
            can_anchor: false,
            protection: ProtectionSpec::Off,
        }
    }
}
