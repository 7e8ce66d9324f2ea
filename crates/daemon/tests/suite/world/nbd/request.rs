//! Choice and form of the next request of a client.

use std::rc::Rc;

use wire::nbd::codes::{command_flag as flag, export_flag, kind};
use wire::nbd::{Form, Request};

use super::client::Client;
use super::link::Link;
use crate::world::counters::{Bid, COUNTERS};
use crate::world::model::{BlockRange, UNIT, stamps};
use crate::world::rules::Need;
use crate::world::shared::{Rights, Unit};

/// Blocks of most requests.
const BLOCKS: u64 = 12;
/// Beyond the end of every unit.
const BEYOND: u64 = 1 << 40;
/// A flag that no request knows.
const UNKNOWN_FLAG: u16 = 1 << 9;

/// The operation of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    Read {
        df: bool,
    },
    /// READ of a counter.
    Look,
    Write {
        fua: bool,
    },
    Zero {
        fua: bool,
        no_hole: bool,
        fast: bool,
    },
    Trim {
        fua: bool,
    },
    Flush,
    Cache,
    Status {
        one: bool,
    },
    Goodbye,
}

impl Operation {
    pub fn writes(self) -> bool {
        matches!(self, Operation::Write { .. } | Operation::Zero { .. } | Operation::Trim { .. })
    }

    /// Its reply has data.
    pub fn reads(self) -> bool {
        matches!(self, Operation::Read { .. } | Operation::Look)
    }

    /// Returns information on blocks.
    pub fn looks(self) -> bool {
        self.reads() || matches!(self, Operation::Status { .. })
    }

    /// The access that it needs under reservations.
    pub fn need(self) -> Need {
        match self {
            _ if self.writes() || self == Operation::Flush => Need::Write,
            _ => Need::Read,
        }
    }

    fn kind_and_flags(self) -> (u16, u16) {
        let on = |yes: bool, bit: u16| if yes { bit } else { 0 };
        match self {
            Operation::Read { df } => (kind::READ, on(df, flag::DF)),
            Operation::Look => (kind::READ, 0),
            Operation::Write { fua } => (kind::WRITE, on(fua, flag::FUA)),
            Operation::Zero { fua, no_hole, fast } => {
                let how = on(no_hole, flag::NO_HOLE) | on(fast, flag::FAST_ZERO);
                (kind::WRITE_ZEROES, how | on(fua, flag::FUA))
            }
            Operation::Trim { fua } => (kind::TRIM, on(fua, flag::FUA)),
            Operation::Flush => (kind::FLUSH, 0),
            Operation::Cache => (kind::CACHE, 0),
            Operation::Status { one } => (kind::BLOCK_STATUS, on(one, flag::REQ_ONE)),
            Operation::Goodbye => (kind::DISC, 0),
        }
    }
}

/// The error in a request that is sent to be refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wrong {
    Beyond,
    Odd,
    Flag,
}

/// A request under way.
pub struct Task {
    pub operation: Operation,
    pub lun: usize,
    pub place: BlockRange,
    pub id: u64,
    pub issue: u64,
    pub at_ns: u64,
    pub offset: u64,
    pub len: u64,
    pub wrong: Option<Wrong>,
    /// The model records its write, because it was granted at some time.
    pub granted: bool,
    /// The rights changed while it was under way.
    pub unsure: bool,
    /// The cache was off for sure when it was sent.
    pub mode_epoch: Option<u64>,
    pub bid: Option<Bid>,
    /// Pieces of a READ: place and bytes.
    pub got: Vec<(u64, Vec<u8>)>,
    /// Of BLOCK_STATUS: bytes and flags.
    pub extents: Vec<(u64, u32)>,
    pub error: u32,
}

impl Client {
    pub fn some_request(&self, link: &Link, unit: &Rc<Unit>) {
        if self.tasks.borrow().len() >= self.depth || link.going.get() {
            return;
        }
        let counting = self.shared.counting.get() > 0;
        let chunked = link.form != Form::Simple;
        let forced = self.shared.forcing.get();
        let mut what = match self.below(100) {
            0..36 => Operation::Read { df: chunked && self.chance(200) },
            36..66 => Operation::Write { fua: self.chance(if forced { 900 } else { 250 }) },
            66..71 => Operation::Zero {
                fua: self.chance(250),
                no_hole: self.chance(300),
                fast: self.chance(200),
            },
            71..75 => Operation::Trim { fua: self.chance(250) },
            75..85 if forced => Operation::Write { fua: true },
            75..85 => Operation::Flush,
            85..88 => Operation::Cache,
            88..96 => Operation::Status { one: self.chance(300) },
            _ if counting => Operation::Look,
            _ if forced => Operation::Cache,
            _ => Operation::Flush,
        };
        if matches!(what, Operation::Status { .. }) && link.context.is_none() {
            what = Operation::Read { df: false };
        }
        let offered = |bit: u16| link.flags & bit != 0;
        if matches!(what, Operation::Trim { .. }) && !offered(export_flag::SEND_TRIM) {
            what = if forced { Operation::Cache } else { Operation::Flush };
        }
        // To be refused: not always, so that others are sent too.
        if what.writes() && offered(export_flag::READ_ONLY) && self.chance(800) {
            what = Operation::Read { df: false };
        }
        let plain = !matches!(what, Operation::Flush | Operation::Look);
        let wrong = (plain && self.chance(10))
            .then(|| [Wrong::Beyond, Wrong::Odd, Wrong::Flag][self.below(3) as usize]);
        self.start(link, unit, what, wrong);
    }

    /// A range inside of the unit: often the same few blocks.
    fn some_range(&self, unit: &Unit) -> BlockRange {
        let (range, per) = (unit.place.get(), unit.per);
        let blocks = (range.count / per - COUNTERS) as u64;
        let at = if self.chance(500) { self.below(blocks.min(40)) } else { self.below(blocks) };
        let longest = self.shared.longest.get();
        let most = if self.chance(80) { longest } else { longest.min(BLOCKS) };
        let n = (1 + self.below(self.shared.bound_blocks(most, per))).min(blocks - at);
        let first = range.first + (COUNTERS + at as usize) * per;
        BlockRange { first, count: n as usize * per, ..range }
    }

    fn start(&self, link: &Link, unit: &Rc<Unit>, mut what: Operation, wrong: Option<Wrong>) {
        let range = unit.place.get();
        let place = match what {
            Operation::Flush => range,
            Operation::Look => {
                let first = range.first + self.below(COUNTERS as u64) as usize * unit.per;
                BlockRange { first, count: unit.per, ..range }
            }
            _ => self.some_range(unit),
        };
        let grant = unit.grant(self.group);
        let mut model = self.shared.model.borrow_mut();
        let issue = model.tick();
        let bid = (what == Operation::Look).then(|| model.counters.bid(place).0);
        let id = if matches!(what, Operation::Write { .. }) { model.new_id() } else { 0 };
        let granted = grant.may_be(Rights::Write) && wrong.is_none();
        if what.writes() && granted {
            model.begin(place, id, issue);
        }
        drop(model);
        let (mut offset, mut len) = match what {
            Operation::Flush => (0, 0),
            _ => (((place.first - range.first) * UNIT) as u64, (place.count * UNIT) as u64),
        };
        match wrong {
            Some(Wrong::Beyond) => offset += BEYOND,
            Some(Wrong::Odd) if self.chance(500) => offset += 1,
            Some(Wrong::Odd) => len -= 1,
            _ => {}
        }
        if let (Operation::Zero { fast, .. }, Some(_)) = (&mut what, wrong) {
            *fast = false;
        }
        let out = match what {
            Operation::Write { .. } => stamps(id, place),
            _ => Vec::new(),
        };
        let extra = if wrong == Some(Wrong::Flag) { UNKNOWN_FLAG } else { 0 };
        let out = out.get(..(len as usize).min(out.len())).unwrap_or(&[]);
        let cookie = self.send_with(link, what, (offset, len), extra, out);
        self.shared.log(|| {
            let n = place.first - range.first;
            format!(
                "{}: {cookie:x} {what:?} {wrong:?} lun {} blocks {n}+{} write {id} at {issue}",
                self.name, unit.lun, place.count
            )
        });
        let off = unit.cache_off.get() && unit.mode_changes.get() == 0;
        let task = Task {
            operation: what,
            lun: unit.lun,
            place,
            id,
            issue,
            at_ns: self.reactor.now(),
            offset,
            len,
            wrong,
            granted,
            unsure: grant.next.is_some(),
            mode_epoch: off.then(|| unit.mode_epoch.get()),
            bid,
            got: Vec::new(),
            extents: Vec::new(),
            error: 0,
        };
        self.tasks.borrow_mut().insert(cookie, task);
    }

    /// Sends a request; answers its cookie.
    pub fn send(&self, link: &Link, what: Operation, offset: u64, len: u64, out: &[u8]) -> u64 {
        self.send_with(link, what, (offset, len), 0, out)
    }

    fn send_with(
        &self,
        link: &Link,
        what: Operation,
        (offset, len): (u64, u64),
        extra: u16,
        out: &[u8],
    ) -> u64 {
        let cookie = self.next_cookie();
        let (kind, flags) = what.kind_and_flags();
        let announced = link.form == Form::Extended && kind == kind::WRITE;
        let flags = flags | extra | if announced { flag::PAYLOAD_LEN } else { 0 };
        link.send(&Request { flags, kind, cookie, offset, len }, out);
        cookie
    }
}
