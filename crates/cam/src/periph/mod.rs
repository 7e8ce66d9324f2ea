//! Peripheral drivers: they turn a request of the graph into CCBs, as late as possible.
//!
//! | file | is |
//! | --- | --- |
//! | `da` | disks that speak SCSI; discs: `cd` |
//! | `ada` | disks that speak ATA |
//! | `disk` | the provider of both |
//! | `pass` | commands that a user typed |
//! | `ses` | enclosures |

mod ada;
mod da;
mod disk;
pub(crate) mod pass;
pub(crate) mod ses;

use bio::{Attr, Bio, Errno, Op, Pool};
use geom::Limits;
use wire::ata::SepIdentify;

use crate::bus::Bounds;
use crate::ccb::{Ccb, Command, Flags, Owner, Priority};
use crate::device::{Queueing, Shape};
use crate::probe::{AtaFacts, MultiplierFacts, ScsiFacts};
use crate::recovery::Policy;
use crate::sim::SimFacts;

pub(crate) use disk::DiskLayer;

/// PERIPHERAL DEVICE TYPE of disks.
const DISK: u8 = 0x00;
/// PERIPHERAL DEVICE TYPE of enclosures.
const ENCLOSURE: u8 = 0x0d;

/// How long a READ or WRITE may take, unless the bus sets another value, ms.
pub const RW_TIMEOUT_MS: u32 = 30_000;
/// Openings that QUEUE FULL leaves a disk.
const OPENINGS_MIN: u32 = 2;

/// Result of probing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Facts {
    /// Of a SCSI unit.
    Scsi(Box<ScsiFacts>),
    /// Of an ATA device.
    Ata(Box<AtaFacts>),
    /// Of a port multiplier.
    Multiplier(Box<MultiplierFacts>),
    /// Of an enclosure behind a bridge.
    Bridge(Box<SepIdentify>),
}

impl Facts {
    /// The same device, perhaps with other reported facts.
    pub fn is_same(&self, other: &Facts) -> bool {
        match (self, other) {
            (Facts::Scsi(own), Facts::Scsi(other)) => own.is_same(other),
            (Facts::Ata(own), Facts::Ata(other)) => own.is_same(other),
            (Facts::Multiplier(own), Facts::Multiplier(other)) => own.is_same(other),
            (Facts::Bridge(own), Facts::Bridge(other)) => own == other,
            _ => false,
        }
    }

    /// As lists of CAM have it: `<SEAGATE ST3750630SS 0001>`.
    pub fn label(&self) -> String {
        let words: Vec<&str> = match self {
            Facts::Scsi(f) => vec![&f.inquiry.vendor, &f.inquiry.product, &f.inquiry.revision],
            Facts::Ata(f) => vec![&f.identify.model, &f.identify.firmware],
            Facts::Multiplier(f) => {
                return format!("<Port Multiplier {:08x} {:04x}>", f.product, f.revision);
            }
            Facts::Bridge(f) => vec![&f.vendor, &f.product, &f.revision, &f.firmware],
        };
        format!("<{}>", words.join(" "))
    }

    /// Its own identification: serial number, NAA name, names of SCSI.
    pub(crate) fn names(&self) -> Vec<String> {
        let all = match self {
            Facts::Scsi(f) => vec![f.serial.clone(), f.names.id.clone(), f.names.name.clone()],
            Facts::Ata(f) => {
                vec![f.identify.serial.clone(), format!("{:016x}", f.identify.wwn)]
            }
            Facts::Multiplier(_) | Facts::Bridge(_) => Vec::new(),
        };
        all.into_iter().filter(|name| !name.is_empty()).collect()
    }

    /// Its identity among all disks, wherever it is found: its NAA name, or its serial number with
    /// its product or model; None: it reports neither.
    pub fn identity(&self) -> Option<String> {
        let serial = |serial: &str, of: &str| {
            (!serial.is_empty()).then(|| format!("{} {serial}", of.trim_end()))
        };
        match self {
            Facts::Scsi(f) if !f.names.id.is_empty() => Some(f.names.id.clone()),
            Facts::Scsi(f) => serial(&f.serial, &f.inquiry.product),
            Facts::Ata(f) if f.identify.wwn != 0 => Some(format!("{:016x}", f.identify.wwn)),
            Facts::Ata(f) => serial(&f.identify.serial, &f.identify.model),
            Facts::Multiplier(_) | Facts::Bridge(_) => None,
        }
    }

    /// It is a disk, whether or not its size is known.
    pub(crate) fn is_disk(&self) -> bool {
        match self {
            Facts::Scsi(f) => f.inquiry.kind == DISK,
            Facts::Ata(_) => true,
            Facts::Multiplier(_) | Facts::Bridge(_) => false,
        }
    }

    /// Its medium can be taken out.
    pub(crate) fn is_removable(&self) -> bool {
        matches!(self, Facts::Scsi(f) if f.inquiry.removable)
    }

    /// The periph of a device that is no disk.
    pub(crate) fn role(&self) -> Option<&'static str> {
        match self {
            Facts::Scsi(f) if f.inquiry.kind == ENCLOSURE => Some("ses"),
            Facts::Bridge(_) => Some("ses"),
            Facts::Multiplier(_) => Some("pmp"),
            Facts::Scsi(_) | Facts::Ata(_) => None,
        }
    }

    /// The periph that a disk of these facts has; none of other devices.
    pub(crate) fn disk(&self, bus: &SimFacts) -> Option<Disk> {
        match self {
            Facts::Scsi(facts) => da::disk(facts, bus.io_max_bytes),
            Facts::Ata(facts) => ada::disk(facts, bus),
            Facts::Multiplier(_) | Facts::Bridge(_) => None,
        }
    }

    /// Size of the disk that it is; None of other devices.
    pub(crate) fn media_bytes(&self, bus: &SimFacts) -> Option<u64> {
        self.disk(bus).map(|disk| disk.limits.media_bytes)
    }
}

/// A command in a disk's language.
pub(crate) struct DiskCommand {
    command: Command,
    flags: Flags,
    length: u32,
}

/// How a disk's commands are made.
pub(crate) trait CommandSet: Send + Sync {
    /// The command of a request. A DELETE's ranges are put into its data, as many as fit.
    fn command(&self, bio: &mut Bio, pool: &Pool) -> Result<DiskCommand, Errno>;

    /// Ranges that one command which takes blocks back may name.
    fn delete_ranges(&self) -> u32;

    /// The next command of a DELETE whose ranges were too long for one; `None`: all were sent.
    fn delete_more(&self, bio: &mut Bio, pool: &Pool) -> Option<Result<DiskCommand, Errno>> {
        let _ = (bio, pool);
        None
    }

    /// The command that makes everything stable; none where nothing is volatile.
    fn flush(&self) -> Option<DiskCommand>;

    /// Whether written data may be lost with the power until they are flushed.
    fn has_cache(&self) -> bool;

    /// Writes may request to be stable; else they are flushed.
    fn has_fua(&self) -> bool;

    /// Bytes of a block, where sense data name blocks.
    fn block_bytes(&self) -> Option<u64> {
        None
    }

    /// How long a READ or WRITE may take, ms, unless the bus sets another time.
    fn timeout_ms(&self) -> u32;
}

/// A disk, before it is in the graph.
pub(crate) struct Disk {
    /// `da`, `ada` or `cd`.
    pub prefix: &'static str,
    pub command_set: Box<dyn CommandSet>,
    pub limits: Limits,
    pub shape: Shape,
    pub stripe_bytes: u64,
    pub read_only: bool,
    pub attrs: Vec<(&'static str, Attr)>,
}

/// The queue of a disk to which the way takes so many commands at a time.
pub(crate) fn window(openings_max: u32) -> Shape {
    shape(Queueing::Tagged, openings_max.max(1))
}

fn shape(queueing: Queueing, openings_max: u32) -> Shape {
    let openings_min = OPENINGS_MIN.min(openings_max);
    Shape { queueing, openings_min, openings_max, policy: Policy::DISK }
}

impl DiskCommand {
    /// The command of a request that has to be over at `end_ns`.
    fn ccb(
        &self,
        language: &dyn CommandSet,
        owner: Owner,
        (op, how): (Op, bio::Flags),
        (bounds, end_ns): (Bounds, u64),
    ) -> Ccb {
        // Commands other than block transfers may take longer.
        let moves = matches!(op, Op::Read | Op::Write) && self.length > 0;
        let timeout_ms = bounds.timeout_s.map_or(language.timeout_ms(), |s| s.saturating_mul(1000));
        let also = |wanted, flag| if how.has(wanted) { flag } else { Flags::NONE };
        Ccb {
            command: self.command,
            flags: self.flags
                | also(bio::Flags::ORDERED, Flags::ORDERED)
                | also(bio::Flags::FAIL_FAST, Flags::FAIL_FAST),
            priority: Priority::Normal,
            timeout_ms: if moves { timeout_ms } else { timeout_ms.saturating_mul(2) },
            retries: bounds.retries,
            end_ns,
            length: self.length,
            owner,
        }
    }
}
