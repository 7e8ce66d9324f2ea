//! Arrays, volumes and disks as every format describes them. All sizes and offsets are bytes.
//!
//! Invariants (kept by [`Array::check`], which also names the broken one)
//!  A1  Every slot of a volume names a disk of the array; a slot whose disk was never seen names
//!      a placeholder in state [`DiskState::Missing`].
//!  A2  No disk is in two slots of a volume, and no two volumes overlap on a disk.
//!  A3  A volume is no larger than its slots can hold, and none leaves its disk.

/// Which format an array was read from or is to be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Identity {
    /// Intel: family and original family (docs/reference/geom.md 2.14, header 40 and 64).
    Intel {
        /// Number of the set, changed when it is split.
        family: u32,
        /// The same as it was when the set was made.
        original: u32,
    },
    /// SNIA DDF: GUID of the header.
    Ddf([u8; 24]),
}

/// A set of disks and the volumes on it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Array {
    /// The identity of the set, and its format.
    pub identity: Identity,
    /// Counts up with every change; the highest is in force.
    pub generation: u32,
    /// Every disk: members, spares, and placeholders for those that are not there.
    pub disks: Vec<Disk>,
    /// Volumes in the order of the metadata.
    pub volumes: Vec<Volume>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Disk {
    /// Intel: serial number, last 16 characters. DDF: GUID as text, or empty for a placeholder.
    pub serial: String,
    /// Intel: SCSI id. DDF: reference number; all ones when there is none.
    pub reference: u32,
    /// GUID (DDF; zeros for Intel).
    pub guid: [u8; 24],
    pub state: DiskState,
    /// Bytes that volumes may use (DDF) or the whole size (Intel); zero when not known.
    pub bytes: u64,
    /// Ranges that cannot be trusted: byte offset and length, by offset.
    pub bad: Vec<(u64, u64)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DiskState {
    /// Member, or free to be one.
    Active,
    /// Waits to replace any member.
    Spare,
    /// There, and not to be used.
    Failed,
    /// Not to be used by wish of the administrator.
    Disabled,
    /// A placeholder: the disk is not there.
    Missing,
}

/// Layout of data on the members of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Level {
    /// Strips in turn.
    Raid0,
    /// Every member a copy.
    Raid1,
    /// Two copies of each strip on adjacent members, any number of members.
    Raid1e,
    /// As [`Level::Raid1e`] with an even number of members: pairs.
    Raid10,
    /// One after the other.
    Concat,
    /// One member.
    Single,
    /// Parity on the last member.
    Raid4,
    /// Parity in turn.
    Raid5(Layout),
    /// Two parities in turn.
    Raid6(Layout),
}

/// Place of the parity in each row, and where data restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Layout {
    /// Parity starts on the last member and moves down; data starts on member 0.
    LeftAsymmetric,
    /// As left, data continues behind the parity.
    LeftSymmetric,
    /// Parity starts on member 0 and moves up; data starts on the first free member.
    RightAsymmetric,
    /// As right, data continues behind the parity.
    RightSymmetric,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Volume {
    /// Name, at most 16 bytes.
    pub name: String,
    /// DDF: GUID. Intel: the number of the volume in the first two bytes, little-endian.
    pub id: [u8; 24],
    pub level: Level,
    /// Strip, bytes: a power of two.
    pub strip: u64,
    pub bytes: u64,
    /// Slots in order.
    pub members: Vec<Member>,
    /// Set before the first write, cleared when idle: copies and parity may disagree.
    pub dirty: bool,
    /// The operation in the background.
    pub migration: Option<Migration>,
    /// The log of partial parity that its members have behind their data, and that is kept: only
    /// where the format has one (Intel, RAID5).
    pub log: Option<LogArea>,
}

/// Where the log of partial parity is on each member of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogArea {
    /// Where it begins, bytes from the start of the subdisk.
    pub at: u64,
    pub bytes: u64,
}

/// One slot of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Member {
    /// Index into [`Array::disks`].
    pub disk: usize,
    /// Where the subdisk starts on the disk, bytes.
    pub offset: u64,
    /// Length of the subdisk, bytes.
    pub bytes: u64,
    pub state: SubdiskState,
}

/// States of a subdisk, worst first (docs/reference/geom.md 2.14).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SubdiskState {
    /// The disk is not there.
    None,
    Failed,
    /// A new disk: nothing has been copied to it.
    New,
    /// Being filled, good below the migration's position.
    Rebuild,
    /// Never written: members may disagree, which is harmless.
    Uninitialized,
    /// Was good, and missed writes.
    Stale,
    /// Holds data that is being compared or made equal.
    Resync,
    /// In order.
    Active,
}

/// A background task and how far it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Migration {
    /// The operation.
    pub kind: MigrationKind,
    /// Done so far, bytes of each member from its offset. DDF does not keep it: 0.
    pub done: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum MigrationKind {
    /// First synchronisation.
    Init,
    /// A member is being filled.
    Rebuild,
    /// Members are compared.
    Verify,
    /// Members are compared and made equal.
    Repair,
}

/// States of a volume (docs/reference/geom.md 2.14), worst first, derived from its members.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum VolumeState {
    /// Too little is left.
    Broken,
    /// Works without redundancy somewhere.
    Degraded,
    /// All there, some not yet in order.
    Suboptimal,
    /// All in order.
    Optimal,
}

impl Level {
    /// Members that hold data, in units of members' sizes; `None` when `members` are too few.
    /// For [`Level::Raid1e`] it is half of them, rounded down.
    pub fn data_members(self, members: usize) -> Option<u64> {
        let (least, data) = match self {
            Level::Raid0 => (1, members),
            Level::Concat => (1, members),
            Level::Single => (1, usize::from(members == 1)),
            Level::Raid1 => (2, 1),
            Level::Raid1e => (3, members / 2),
            Level::Raid10 => (4, if members.is_multiple_of(2) { members / 2 } else { 0 }),
            Level::Raid4 | Level::Raid5(_) => (3, members.saturating_sub(1)),
            Level::Raid6(_) => (4, members.saturating_sub(2)),
        };
        let fits = members >= least && data > 0;
        fits.then(|| u64::try_from(data).ok()).flatten()
    }

    /// True when a member can be lost without losing data.
    pub fn redundant(self) -> bool {
        !matches!(self, Level::Raid0 | Level::Concat | Level::Single)
    }

    /// True when members take turns: where they do not, a strip means nothing.
    pub fn has_strips(self) -> bool {
        !matches!(self, Level::Raid1 | Level::Concat | Level::Single)
    }

    /// Largest volume on members of these lengths (bytes), with whole strips where there are any.
    pub fn capacity(self, strip: u64, members: &[u64]) -> Option<u64> {
        let data = self.data_members(members.len())?;
        if self == Level::Concat {
            return members.iter().try_fold(0_u64, |sum, bytes| sum.checked_add(*bytes));
        }
        let least = members.iter().min().copied()?;
        if !self.has_strips() {
            return Some(least);
        }
        let rows = least.checked_div(strip)?;
        match self {
            // A row of an odd number of members holds half a pair more.
            Level::Raid1e => {
                let strips = u64::try_from(members.len()).ok()?.checked_mul(rows)? / 2;
                strips.checked_mul(strip)
            }
            _ => rows.checked_mul(strip)?.checked_mul(data),
        }
    }
}

impl Disk {
    /// True when the disk is there and may be read.
    pub fn usable(&self) -> bool {
        matches!(self.state, DiskState::Active | DiskState::Spare)
    }
}
