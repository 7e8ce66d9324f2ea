//! The Bio, a block I/O request.

use std::cell::Cell;
use std::fmt;
use std::ops::{BitOr, BitOrAssign};

use crate::errno::{Errno, Status};
use crate::frame::Frames;
use crate::scatter::Scatter;
use crate::segs::Segs;

/// The operation of a Bio.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
#[repr(u8)]
pub enum Op {
    /// Fill `data` from the range.
    Read,
    /// Store `data` to the range.
    Write,
    /// The range's content is no longer needed (TRIM, UNMAP). Reads may return anything after.
    Delete,
    /// Everything acknowledged before is on stable storage when this ends.
    Flush,
    /// Fetch the attribute named in `attr`.
    GetAttr,
    /// The range reads as zeroes afterwards; carries no data.
    WriteZeroes,
    /// Whether the range's first byte takes space: `value` is an `Attr::Int`, see [`MAPPED`] and
    /// [`HOLE`], and the answer holds for the first `completed` bytes. Carries no data. A disk
    /// that does not know ends it with `NotSup`: everything may be taken for mapped then.
    Map,
}

/// Answer of [`Op::Map`]: the bytes are stored.
pub const MAPPED: u64 = 0;
/// Answer of [`Op::Map`]: the bytes take no space and read as zeroes.
pub const HOLE: u64 = 1;

impl Op {
    /// Number of operations, for tables indexed by `op as usize`.
    pub const COUNT: usize = 7;
    /// Every operation, in the order of its number.
    pub const ALL: [Op; Op::COUNT] =
        [Op::Read, Op::Write, Op::Delete, Op::Flush, Op::GetAttr, Op::WriteZeroes, Op::Map];

    /// Works on a range of bytes.
    pub const fn has_range(self) -> bool {
        matches!(self, Op::Read | Op::Write | Op::Delete | Op::WriteZeroes | Op::Map)
    }

    /// Carries data buffers.
    pub const fn has_data(self) -> bool {
        matches!(self, Op::Read | Op::Write)
    }

    /// Needs the write access count; the others need the read count.
    pub const fn needs_write(self) -> bool {
        matches!(self, Op::Write | Op::Delete | Op::Flush | Op::WriteZeroes)
    }

    /// Lower-case name, as in lists and metrics.
    pub const fn name(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Delete => "delete",
            Op::Flush => "flush",
            Op::GetAttr => "getattr",
            Op::WriteZeroes => "write-zeroes",
            Op::Map => "map",
        }
    }
}

/// Modifiers of an operation.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Flags(u8);

impl Flags {
    /// No modifier.
    pub const NONE: Flags = Flags(0);
    /// A write is on stable storage when it ends.
    pub const FUA: Flags = Flags(1);
    /// After everything sent before and before everything sent later, at the device's queue.
    pub const ORDERED: Flags = Flags(2);
    /// Zeroes must be allocated, not deallocated (WRITE SAME without UNMAP, "no hole").
    pub const NO_HOLE: Flags = Flags(4);
    /// There is another path to the medium. If this path would make the request wait, the request
    /// ends with [`Errno::Again`]. The layer that set the flag sends all of it on the other
    /// path. It concerns one path, so children of a layer (`fork`) do not inherit it; pieces of a
    /// cut request do.
    pub const FAIL_FAST: Flags = Flags(8);

    /// True when every flag of `other` is set.
    pub const fn has(self, other: Flags) -> bool {
        self.0 & other.0 == other.0
    }

    /// Without the flags of `other`.
    pub const fn without(self, other: Flags) -> Flags {
        Flags(self.0 & !other.0)
    }
}

impl BitOr for Flags {
    type Output = Flags;
    fn bitor(self, other: Flags) -> Flags {
        Flags(self.0 | other.0)
    }
}

impl BitOrAssign for Flags {
    fn bitor_assign(&mut self, other: Flags) {
        self.0 |= other.0;
    }
}

/// The originator of a request, as a number: schedulers classify by it, statistics count by it.
/// `geom::Origins` maps it to an initiator, session, LUN, process or task. Zero is the daemon
/// itself.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default, Debug)]
pub struct Origin(pub u32);

/// Place of a Bio in its core's slab, and which of the place's tenants it is.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct BioId {
    pub(crate) index: u32,
    pub(crate) tenant: u32,
}

impl BioId {
    /// The id as one word, for tokens of crates that do not know Bios.
    pub const fn to_word(self) -> u64 {
        ((self.tenant as u64) << 32) | self.index as u64
    }

    /// The inverse of [`BioId::to_word`].
    pub const fn from_word(word: u64) -> BioId {
        BioId { index: word as u32, tenant: (word >> 32) as u32 }
    }
}

impl fmt::Debug for BioId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "bio {}.{}", self.index, self.tenant)
    }
}

/// The right to wake a Bio that waits, once: see [`Bio::ticket`].
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Ticket {
    id: BioId,
    serial: u32,
}

impl Ticket {
    /// Bits of a serial number. They wrap around after 16 million waits of one request.
    const SERIAL_BITS: u32 = 24;

    pub const fn id(self) -> BioId {
        self.id
    }

    /// The ticket as a word and 24 bits, for tokens of crates that do not know Bios.
    pub const fn to_words(self) -> (u32, u64) {
        (self.serial, self.id.to_word())
    }

    /// The inverse of [`Ticket::to_words`].
    pub const fn from_words(serial: u32, word: u64) -> Ticket {
        Ticket { id: BioId::from_word(word), serial: serial & Self::MASK }
    }

    const MASK: u32 = (1 << Self::SERIAL_BITS) - 1;
}

/// The receiver of a Bio's completion. An enum, never a boxed closure: completing allocates
/// nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    NoReceiver,
    /// The parent it was forked from.
    Parent(BioId),
    /// The task that awaits slot `.0` of its core's table.
    Task(u32),
    /// Receiver `sink` of this core, with the tag it gave.
    Sink {
        /// Index in the core's table of receivers.
        sink: u32,
        /// The receiver's own word.
        tag: u64,
    },
}

/// The value of an attribute.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Attr {
    /// A number; booleans are 0 and 1.
    Int(u64),
    Text(String),
}

/// A request on its way through the graph.
///
/// The originator sets `op`, `flags`, `origin`, `offset`, `length`, `data` and `attr`. A layer may
/// change `offset` on the way down and puts it back on the way up. It never changes `data` of a
/// Bio it received, it forks children with slices of it.
pub struct Bio {
    pub op: Op,
    /// Modifiers.
    pub flags: Flags,
    /// On whose behalf.
    pub origin: Origin,
    /// First byte, as the layer that now holds the Bio counts.
    pub offset: u64,
    /// Bytes. For READ and WRITE equal to `data.len()`; for a DELETE of several ranges from the
    /// first to the end of the last, see [`Bio::is_scattered`].
    pub length: u64,
    /// The memory, for READ and WRITE.
    pub data: Segs,
    /// Requested attribute, for GETATTR.
    pub attr: &'static str,
    /// Its value, once known. Of a READ or WRITE that ended with [`Errno::Io`], where that is
    /// known: bytes from its first to the first that the medium failed.
    pub value: Option<Attr>,
    /// How it ended, once it has. Children's first error gathers here.
    pub status: Status,
    /// Bytes done, once it has ended. They are fewer than `length` at the end of the medium. A
    /// DELETE of several ranges counts those that it names.
    pub completed: u64,
    /// The receiver of the completion.
    pub end: End,
    /// Layers it passed through.
    pub frames: Frames,
    /// Consumer slot it was last sent to.
    pub edge: u32,
    /// Children not ended yet.
    pub open_children: u32,
    /// A note of the layer that forked it, for that layer's `child_done`, for example the member.
    /// Lower layers do not read it.
    pub mark: u32,
    pub(crate) scatter: Option<Scatter>,
    id: BioId,
    /// Serial number of the one ticket that is good.
    serial: Cell<u32>,
}

impl Bio {
    pub(crate) fn new(id: BioId) -> Bio {
        Bio {
            op: Op::Read,
            flags: Flags::NONE,
            origin: Origin(0),
            offset: 0,
            length: 0,
            data: Segs::new(),
            attr: "",
            value: None,
            status: Ok(()),
            completed: 0,
            end: End::NoReceiver,
            frames: Frames::new(),
            edge: 0,
            open_children: 0,
            mark: 0,
            scatter: None,
            id,
            serial: Cell::new(0),
        }
    }

    pub(crate) fn renew(&mut self, id: BioId) {
        self.op = Op::Read;
        self.flags = Flags::NONE;
        self.origin = Origin(0);
        self.offset = 0;
        self.length = 0;
        self.data.clear();
        self.attr = "";
        self.value = None;
        self.status = Ok(());
        self.completed = 0;
        self.end = End::NoReceiver;
        self.frames.clear();
        self.edge = 0;
        self.open_children = 0;
        self.mark = 0;
        self.scatter = None;
        self.id = id;
        self.serial.set(0);
    }

    /// Its place in the slab.
    #[inline]
    pub fn id(&self) -> BioId {
        self.id
    }

    /// A ticket that wakes it. The ticket is good for one wake, and only until the next one is
    /// made: a stale timer or completion has no effect.
    #[inline]
    pub fn ticket(&self) -> Ticket {
        let serial = self.serial.get().wrapping_add(1) & Ticket::MASK;
        self.serial.set(serial);
        Ticket { id: self.id, serial }
    }

    /// True when `ticket` wakes it: the newest, not used, and no child is under way.
    pub(crate) fn is_woken_by(&self, ticket: Ticket) -> bool {
        self.id == ticket.id && self.serial.get() == ticket.serial && self.open_children == 0
    }

    /// Notes an error unless one was noted before: the first one wins.
    pub fn fail(&mut self, error: Errno) {
        if self.status.is_ok() {
            self.status = Err(error);
        }
    }
}
