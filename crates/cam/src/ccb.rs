//! CAM control blocks (CCBs): requests to a device and their outcomes, in CAM's own numbers.

use std::fmt;
use std::ops::BitOr;

use bio::{Errno, Ticket};
use wire::scsi::{self, SENSE_LEN_MAX, Sense};

/// Longest command descriptor block that is carried inline, bytes.
pub const CDB_LEN_MAX: usize = 16;

/// Function codes that pass a device's queue (0x900 is CAM's DEV_QUEUED).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u16)]
pub enum Function {
    /// A SCSI command.
    ScsiIo = 0x901,
    /// A reset of the device.
    ResetDev = 0x912,
    /// An ATA command.
    AtaIo = 0x918,
    /// A request to an expander.
    SmpIo = 0x91b,
}

/// Priority of a CCB: lower values are first. CCBs of equal priority are served in order of
/// arrival.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[repr(u16)]
pub enum Priority {
    /// The controller itself.
    Host = 0x080,
    /// The whole bus.
    Bus = 0x180,
    /// The transport layer: probing.
    Xpt = 0x280,
    /// The device itself: recovery.
    Dev = 0x380,
    /// All other CCBs. A CCB with a lower value passes a frozen queue.
    Normal = 0x480,
}

/// Modifiers of a CCB.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(u8);

impl Flags {
    /// Nothing.
    pub const NONE: Flags = Flags(0);
    /// The device sends data.
    pub const IN: Flags = Flags(1);
    /// The device receives data.
    pub const OUT: Flags = Flags(2);
    /// DEV_QFRZDIS: its own error does not freeze the queue.
    pub const NO_FREEZE: Flags = Flags(4);
    /// After everything queued before it, and before everything queued later.
    pub const ORDERED: Flags = Flags(8);
    /// Ends as the device answers: nothing is retried or cured. Probing and pass-through.
    pub const RAW: Flags = Flags(16);
    /// There is another path to the medium: an error that would make the CCB wait at this one ends
    /// it.
    pub const FAIL_FAST: Flags = Flags(32);

    /// True when all of `other` are set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

/// A SCSI task attribute.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tag {
    /// No tag: one command at a time.
    None,
    /// SIMPLE.
    Simple,
    /// ORDERED.
    Ordered,
}

/// Registers of an ATA command (ACS-3).
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Registers {
    /// COMMAND.
    pub command: u8,
    /// FEATURES, 16 bits with 48-bit commands.
    pub features: u16,
    /// COUNT, likewise.
    pub count: u16,
    /// LBA, 28 or 48 bits.
    pub lba: u64,
    /// DEVICE.
    pub device: u8,
    /// The command has 48 bits.
    pub extended: bool,
    /// FPDMA: it is queued by the device (NCQ).
    pub queued: bool,
}

/// The command itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Command {
    /// SCSI_IO.
    Scsi {
        /// The command descriptor block.
        cdb: [u8; CDB_LEN_MAX],
        /// Bytes of it.
        len: u8,
        /// Task attribute.
        tag: Tag,
    },
    /// ATA_IO.
    Ata(Registers),
    /// SMP_IO: function code and phy; the response is data.
    Smp {
        /// SMP function.
        function: u8,
        /// The number of the phy; of no meaning to functions without one.
        phy: u8,
    },
    /// RESET_DEV.
    Reset,
}

impl Command {
    /// A SCSI command; bytes beyond [`CDB_LEN_MAX`] are left out.
    pub fn scsi(bytes: &[u8]) -> Command {
        let mut cdb = [0; CDB_LEN_MAX];
        cdb.iter_mut().zip(bytes).for_each(|(to, from)| *to = *from);
        Command::Scsi { cdb, len: bytes.len().min(CDB_LEN_MAX) as u8, tag: Tag::Simple }
    }

    /// Which function it is.
    pub const fn function(&self) -> Function {
        match self {
            Command::Scsi { .. } => Function::ScsiIo,
            Command::Ata(_) => Function::AtaIo,
            Command::Smp { .. } => Function::SmpIo,
            Command::Reset => Function::ResetDev,
        }
    }

    /// The bytes of a SCSI command; none of others.
    pub fn cdb(&self) -> &[u8] {
        match self {
            Command::Scsi { cdb, len, .. } => cdb.get(..usize::from(*len)).unwrap_or(cdb),
            _ => &[],
        }
    }
}

/// The owner that is called when a CCB is to begin, and when it has ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Owner {
    /// A request that waits on a core.
    Bio {
        /// The core.
        core: usize,
        /// How it is woken.
        ticket: Ticket,
    },
    /// A task, by the number that it has with the device.
    Task(u32),
}

/// One request to one device.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ccb {
    /// The command.
    pub command: Command,
    /// Modifiers.
    pub flags: Flags,
    /// Its priority.
    pub priority: Priority,
    /// How long the device may take, ms.
    pub timeout_ms: u32,
    /// How often it may still be tried again.
    pub retries: u8,
    /// When it ends with an error in any state; `u64::MAX`: never.
    pub end_ns: u64,
    /// Bytes of data.
    pub length: u32,
    /// Its owner.
    pub owner: Owner,
}

impl Ccb {
    pub(crate) const fn moves_data(&self) -> bool {
        self.flags.has(Flags::IN) || self.flags.has(Flags::OUT)
    }
}

/// Slot of a CCB in its device, with the number of the slot's tenant: a late or repeated answer
/// matches no CCB.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct CcbId {
    pub(crate) slot: u32,
    pub(crate) tenant: u32,
}

impl CcbId {
    /// As one word.
    pub const fn to_word(self) -> u64 {
        (self.tenant as u64) << 32 | self.slot as u64
    }

    /// The inverse of [`CcbId::to_word`].
    pub const fn from_word(word: u64) -> CcbId {
        CcbId { slot: word as u32, tenant: (word >> 32) as u32 }
    }
}

macro_rules! statuses {
    ($($name:ident = $code:literal, $text:literal;)*) => {
        /// How a CCB returned, by CAM's numbers.
        #[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
        #[repr(u8)]
        pub enum CamStatus { $(#[doc = $text] $name = $code,)* }

        impl CamStatus {
            /// Every one.
            pub const ALL: &'static [CamStatus] = &[$(CamStatus::$name,)*];

            /// For people.
            pub const fn text(self) -> &'static str {
                match self { $(CamStatus::$name => $text,)* }
            }
        }
    };
}

statuses! {
    Complete = 0x01, "completed without error";
    Aborted = 0x02, "aborted by the host";
    CompletedError = 0x04, "completed with an error";
    Busy = 0x05, "the subsystem is busy";
    Invalid = 0x06, "the request is invalid";
    NotThere = 0x08, "there is no such device";
    SelectionTimeout = 0x0a, "the target does not answer (selection timeout)";
    Timeout = 0x0b, "the command timed out";
    ScsiError = 0x0c, "SCSI status error";
    BusReset = 0x0e, "the bus was reset";
    Parity = 0x0f, "uncorrectable parity or CRC error";
    AutosenseFailed = 0x10, "sense data could not be read";
    NoHba = 0x11, "there is no HBA";
    Overrun = 0x12, "data overrun";
    BusFree = 0x13, "the target left the bus";
    CannotProvide = 0x16, "the HBA cannot do this";
    ResetSent = 0x17, "a reset was sent to the device";
    Terminated = 0x18, "terminated by the host";
    HbaError = 0x19, "unrecoverable error of the HBA";
    TooBig = 0x1a, "the request is too big";
    Requeue = 0x1b, "the request must be queued again";
    AtaError = 0x1c, "ATA status error";
    NexusLost = 0x1d, "the nexus to the device was lost";
    SmpError = 0x1e, "SMP status error";
    NoResources = 0x34, "no resources for the request now";
    LunInvalid = 0x38, "invalid logical unit";
    TargetInvalid = 0x39, "invalid target";
}

/// Sense data as received.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SenseData {
    len: u8,
    bytes: [u8; SENSE_LEN_MAX],
}

impl SenseData {
    /// None.
    pub const NONE: SenseData = SenseData { len: 0, bytes: [0; SENSE_LEN_MAX] };

    /// Sense data of a device; bytes beyond the limit are left out.
    pub fn new(from: &[u8]) -> SenseData {
        let mut out = SenseData::NONE;
        out.bytes.iter_mut().zip(from).for_each(|(to, from)| *to = *from);
        out.len = from.len().min(SENSE_LEN_MAX) as u8;
        out
    }

    /// The data of a meaning, in fixed format.
    pub fn of(sense: Sense) -> SenseData {
        let mut out = SenseData::NONE;
        out.len = sense.encode(false, &mut out.bytes) as u8;
        out
    }

    /// The bytes.
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..usize::from(self.len)).unwrap_or(&self.bytes)
    }
}

impl fmt::Debug for SenseData {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02x?}", self.bytes())
    }
}

/// Response of a target to a command that it did not carry out, in place of a SCSI status.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refused {
    /// Nothing.
    No,
    /// iSCSI: the REASON of a Reject PDU.
    Reject(u8),
    /// iSCSI: the RESPONSE of a SCSI Response PDU.
    Response(u8),
}

/// Outcome of a CCB.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outcome {
    /// In CAM's terms.
    pub status: CamStatus,
    /// The SCSI status, with [`CamStatus::ScsiError`].
    pub scsi_status: u8,
    /// Sense data, with CHECK CONDITION.
    pub sense: SenseData,
    /// ATA's status and error registers, with [`CamStatus::AtaError`].
    pub ata: (u8, u8),
    /// COUNT and LBA as an ATA device left them; of meaning to commands that answer so.
    pub answer: (u16, u64),
    /// Bytes moved.
    pub moved: u32,
    /// Refusal by the transport.
    pub refused: Refused,
}

impl Outcome {
    /// Nothing but a status.
    pub const fn of(status: CamStatus) -> Outcome {
        Outcome {
            status,
            scsi_status: 0,
            sense: SenseData::NONE,
            ata: (0, 0),
            answer: (0, 0),
            moved: 0,
            refused: Refused::No,
        }
    }

    /// The target did not carry it out, and reports that by the transport.
    pub const fn refused(status: CamStatus, refused: Refused) -> Outcome {
        Outcome { refused, ..Outcome::of(status) }
    }

    /// Of an answer that is no failure: the command was carried out. Others, CONDITION MET and
    /// MISCOMPARE, are no answers to commands of a disk's user.
    pub(crate) fn is_carried_out(&self) -> bool {
        let key = Sense::decode(self.sense.bytes()).map(|sense| sense.code.key);
        self.status != CamStatus::ScsiError
            || self.scsi_status == 0
            || matches!(key, Ok(scsi::Key::NoSense | scsi::Key::RecoveredError))
    }

    /// All is well, and so many bytes were moved.
    pub const fn good(moved: u32) -> Outcome {
        Outcome { moved, ..Outcome::of(CamStatus::Complete) }
    }

    /// A SCSI status without sense data.
    pub const fn scsi(status: scsi::Status) -> Outcome {
        Outcome { scsi_status: status as u8, ..Outcome::of(CamStatus::ScsiError) }
    }

    /// CHECK CONDITION with sense data.
    pub fn check(sense: Sense) -> Outcome {
        let sense = SenseData::of(sense);
        Outcome { sense, ..Outcome::scsi(scsi::Status::CheckCondition) }
    }
}

/// How a CCB ended, for its sender.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ended {
    /// Bytes moved, or the error for a disk's user.
    pub result: Result<u32, Errno>,
    /// The device's last answer.
    pub outcome: Outcome,
    /// The command.
    pub command: Command,
    /// [`Ccb::end_ns`].
    pub end_ns: u64,
    /// Number of power losses that the device had reported when this was sent, and when it ended:
    /// the contents of its cache may be lost.
    pub power_losses: (u64, u64),
}
