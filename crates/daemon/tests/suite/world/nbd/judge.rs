//! Checks of the replies to an NBD client.

use std::rc::Rc;

use drivers::nbd::TRIES_MAX;
use wire::nbd::Form;

use super::client::Client;
use super::link::{Link, ReplyPiece, Wanted, u16_at, u32_at, u64_at};
use super::request::{Operation, Task, Wrong};
use crate::world::model::{Outcome, UNIT, When};
use crate::world::shared::{Grant, Rights, Unit};

/// Transmission flags (the protocol's document, "Transmission flags").
const HAS_FLAGS: u16 = 1;
const READ_ONLY: u16 = 1 << 1;
const SEND_FLUSH: u16 = 1 << 2;
const SEND_FUA: u16 = 1 << 3;
const SEND_WRITE_ZEROES: u16 = 1 << 6;
const CAN_MULTI_CONN: u16 = 1 << 8;
/// Errors of options.
const ERR_UNKNOWN: u32 = (1 << 31) + 6;
const ERR_SHUTDOWN: u32 = (1 << 31) + 7;
/// Types of chunks.
const NONE: u16 = 0;
const OFFSET_DATA: u16 = 1;
const OFFSET_HOLE: u16 = 2;
const BLOCK_STATUS: u16 = 5;
const BLOCK_STATUS_EXT: u16 = 6;
const ERROR: u16 = 0x8001;
/// Flag of the last chunk.
const DONE: u16 = 1;
/// Up to here a READ in one piece may always be had, bytes.
const DF_ALWAYS: u64 = 65_536;
/// Errors of requests.
const PERM: u32 = 1;
const IO: u32 = 5;
const NO_MEM: u32 = 12;
const INVAL: u32 = 22;
const NO_SPC: u32 = 28;
const OVERFLOW: u32 = 75;
const NOT_SUP: u32 = 95;
const SHUTDOWN: u32 = 108;

/// State of the model when a client began to enter an export.
pub struct HandshakeStart {
    asked: u64,
    grant: Grant,
}

impl Client {
    pub fn handshake_start(&self, unit: &Unit) -> HandshakeStart {
        let asked = self.shared.model.borrow_mut().tick();
        HandshakeStart { asked, grant: unit.grant(self.group) }
    }

    /// The rights to a unit have been the same since.
    fn settled(&self, unit: &Unit, door: &HandshakeStart) -> bool {
        let grant = unit.grant(self.group);
        let quiet = |g: Grant| g.next.is_none();
        let moved = unit.changed.get()[self.group] > door.asked;
        !moved && quiet(door.grant) && quiet(grant) && door.grant.now == grant.now
    }

    /// B5. False when the unit of the export is ambiguous.
    pub fn entered(
        &self,
        unit: &Unit,
        door: &HandshakeStart,
        wanted: &Wanted,
        link: &Link,
    ) -> bool {
        self.shared.log(|| format!("{}: entered {wanted:?}", self.name));
        self.shared.mark("nbd entries");
        let rights = unit.grant(self.group).now;
        if !self.settled(unit, door) || !unit.exported.get() || !self.shared.open_since(door.asked)
        {
            return false;
        }
        let who = format!("{} {wanted:?}", self.name);
        assert!(rights != Rights::None, "{who}: entered without any right");
        let place = unit.place.get();
        let size = (place.count * UNIT) as u64;
        assert!(unit.resized.get() || link.size == size, "{who}: {} of {place:?}", link.size);
        let always = HAS_FLAGS | SEND_FLUSH | SEND_FUA | CAN_MULTI_CONN;
        assert_eq!(link.flags & always, always, "{who}: {:#x}", link.flags);
        let flags = (link.flags & READ_ONLY != 0, link.flags & SEND_WRITE_ZEROES != 0);
        assert_eq!(flags, (rights == Rights::Read, rights == Rights::Write), "{who}: {rights:?}");
        true
    }

    /// B5.
    pub fn turned_away(&self, unit: &Unit, door: &HandshakeStart, wanted: &Wanted, error: u32) {
        let who = format!("{} {wanted:?}", self.name);
        self.shared.log(|| format!("{who}: refused {error:#x}"));
        self.shared.mark("nbd refusals");
        assert!([ERR_UNKNOWN, ERR_SHUTDOWN].contains(&error), "{who}: {error:#x}");
        let seen = unit.exported.get() && unit.grant(self.group).now != Rights::None;
        let should = seen && self.settled(unit, door) && self.shared.open_since(door.asked);
        assert!(!should, "{who}: refused {error:#x} with {:?}", unit.grant(self.group));
    }

    /// Bytes in the simple reply to a request.
    pub fn len_of(&self, cookie: u64) -> usize {
        let tasks = self.tasks.borrow();
        tasks.get(&cookie).filter(|t| t.operation.reads()).map_or(0, |t| t.len as usize)
    }

    /// B1: a piece of a reply.
    pub fn on_reply_piece(&self, unit: &Rc<Unit>, link: &Link, piece: ReplyPiece) {
        let cookie = match &piece {
            ReplyPiece::Simple { cookie, .. } | ReplyPiece::Chunk { cookie, .. } => *cookie,
        };
        let mut tasks = self.tasks.borrow_mut();
        let Some(task) = tasks.get_mut(&cookie) else {
            panic!("{}: reply to no request: {piece:x?}", self.name)
        };
        let last = match piece {
            ReplyPiece::Simple { error, data, .. } => {
                let bare = link.form == Form::Simple || error != 0 || !task.operation.reads();
                assert!(bare, "{}: data without structure", self.name);
                task.error = error;
                if error == 0 && task.operation.reads() {
                    task.got.push((task.offset, data));
                }
                true
            }
            ReplyPiece::Chunk { flags, kind, offset, body, .. } => {
                let wide = link.form == Form::Extended;
                assert_eq!(offset, if wide { task.offset } else { 0 }, "{}", self.name);
                assert_eq!(flags & !DONE, 0, "{}: chunk flags", self.name);
                assert_eq!(task.error, 0, "{}: more behind an error", self.name);
                chunk(task, link, kind, &body);
                flags & DONE != 0
            }
        };
        if !last {
            return;
        }
        let Some(task) = tasks.remove(&cookie) else { return };
        drop(tasks);
        self.shared.log(|| format!("{}: {cookie:x} error {}", self.name, task.error));
        match task.error {
            0 => self.good(&task, unit, link),
            error => {
                let outcome = self.refused(&task, unit, link, error);
                self.over(&task, outcome);
            }
        }
    }

    /// B3: it was carried out, so there was no cause for an error.
    fn good(&self, task: &Task, unit: &Unit, link: &Link) {
        let who = format!("{} {:?} lun {}", self.name, task.operation, task.lun);
        assert!(!link.going.get(), "{who}: carried out after SHUTDOWN");
        assert_eq!(task.wrong, None, "{who}: carried out though it is wrong");
        let grant = unit.grant(self.group);
        let none = grant.now == Rights::None && !task.unsure && grant.next.is_none();
        assert!(!none, "{who}: carried out without any right");
        self.shared.must_be_allowed(unit, (self.index, 0), task.operation.need(), task.issue, &who);
        self.shared.states.borrow().carried_out(task.issue, &who);
        let mut model = self.shared.model.borrow_mut();
        match task.operation {
            Operation::Read { df } => {
                self.shared.mark("nbd reads");
                assert!(!df || task.got.len() == 1, "{who}: in pieces");
                let bytes = read_data(task, &who);
                let when = When { began: task.issue, ended: model.tick(), ..When::default() };
                model.check(task.place, &bytes, &when, &who);
            }
            Operation::Look => {
                let bid = task.bid.as_ref().expect("it has one");
                model.counters.seen(task.place, bid, &read_data(task, &who), &who);
            }
            Operation::Write { .. } | Operation::Zero { .. } | Operation::Trim { .. } => {
                drop(model);
                assert!(task.granted, "{who}: written without the right to");
                self.shared.mark("nbd writes");
                let off = task.mode_epoch == Some(unit.mode_epoch.get());
                self.over(task, done(task.operation, off));
            }
            Operation::Flush => {
                self.shared.mark("nbd flushes");
                model.flushed(task.place, task.issue);
            }
            Operation::Status { one } => {
                assert!(!one || task.extents.len() == 1, "{who}: {:?}", task.extents);
                drop(model);
                self.check_status(task, unit, &who);
            }
            Operation::Cache | Operation::Goodbye => {}
        }
    }

    /// B4.
    fn check_status(&self, task: &Task, unit: &Unit, who: &str) {
        self.shared.mark("nbd statuses");
        let per = (unit.per * UNIT) as u64;
        let (mut at, mut all) = (task.place.first, 0);
        assert!(!task.extents.is_empty(), "{who}: nothing told");
        let mut model = self.shared.model.borrow_mut();
        let when = When { began: task.issue, ended: model.tick(), ..When::default() };
        for (len, flags) in &task.extents {
            assert!(*len > 0 && len.is_multiple_of(per), "{who}: {:?}", task.extents);
            assert_eq!(flags & !3, 0, "{who}: {:?}", task.extents);
            all += len;
            assert!(all <= task.len, "{who}: {:?} of {}", task.extents, task.len);
            let count = *len as usize / UNIT;
            if *flags != 0 {
                self.shared.mark("nbd holes");
                let hole = crate::world::model::BlockRange { first: at, count, ..task.place };
                model.check_zeroes(hole, &when, who);
            }
            at += count;
        }
    }

    /// B3: why a request was refused, and whether it may have done something.
    fn refused(&self, task: &Task, unit: &Unit, link: &Link, error: u32) -> Outcome {
        let who = format!("{} {:?} lun {}: error {error}", self.name, task.operation, task.lun);
        let grant = unit.grant(self.group);
        let sure = |rights| !task.unsure && grant.next.is_none() && grant.now == rights;
        let writes = task.operation.writes();
        if error == SHUTDOWN {
            self.shared.mark("nbd shutdowns");
            if sure(Rights::Read) || sure(Rights::Write) {
                link.going.set(true);
            }
            return Outcome::Unknown;
        }
        if let Some(wrong) = task.wrong {
            // Only what needs space beyond the end is out of space.
            let needs_space = writes && !matches!(task.operation, Operation::Trim { .. });
            let beyond = if needs_space { NO_SPC } else { INVAL };
            let right = if wrong == Wrong::Beyond { beyond } else { INVAL };
            assert_eq!(error, right, "{who}: {wrong:?}");
            self.shared.mark("nbd wrong requests");
            return Outcome::Nothing;
        }
        match error {
            PERM => {
                let book = unit.book.borrow();
                let may = book.may(self.index, 0, task.operation.need(), task.issue);
                let protected = writes && !sure(Rights::Write);
                assert!(may.conflict || protected, "{who}: {grant:?} {:?}", book.guess());
                self.shared.mark(if may.conflict { "nbd conflicts" } else { "nbd read only" });
                let never = !may.run && may.run_if_ended.is_empty();
                if never { Outcome::Nothing } else { Outcome::Unknown }
            }
            IO => {
                let failed = self.shared.fails(task.place.disk);
                let asleep = self.shared.states.borrow().were_not_active(task.issue);
                let leaving = !unit.exported.get() || task.unsure;
                // Others ended its command too often; an attention follows each time.
                let ended = unit.resets.borrow().iter().filter(|at| **at > task.issue).count();
                let worn = ended * 4 >= usize::from(TRIES_MAX);
                assert!(failed || asleep || leaving || worn, "{who}: nothing is wrong there");
                self.shared.mark("nbd failures");
                Outcome::Unknown
            }
            NO_MEM => {
                self.shared.mark("nbd no memory");
                Outcome::Unknown
            }
            INVAL | NO_SPC => {
                assert!(unit.resized.get(), "{who}: {:?} of {:?}", task.place, unit.place.get());
                Outcome::Unknown
            }
            OVERFLOW => {
                let long = task.operation == Operation::Read { df: true } && task.len > DF_ALWAYS;
                assert!(long, "{who}: {} bytes", task.len);
                Outcome::Nothing
            }
            NOT_SUP => {
                assert!(matches!(task.operation, Operation::Zero { fast: true, .. }), "{who}");
                Outcome::Nothing
            }
            _ => panic!("{who}: never expected"),
        }
    }
}

/// How well a write ended.
fn done(what: Operation, cache_off: bool) -> Outcome {
    match what {
        Operation::Trim { .. } => Outcome::Unknown,
        Operation::Write { fua: true } | Operation::Zero { fua: true, .. } => Outcome::Durable,
        _ if cache_off => Outcome::Durable,
        _ => Outcome::Good,
    }
}

/// B1: a chunk of a reply.
fn chunk(task: &mut Task, link: &Link, kind: u16, body: &[u8]) {
    let what = task.operation;
    match kind {
        NONE => assert!(body.is_empty(), "{what:?}: nothing has no body"),
        OFFSET_DATA => {
            assert!(what.reads() && body.len() > 8, "{what:?}");
            task.got.push((u64_at(body, 0), body[8..].to_vec()));
        }
        OFFSET_HOLE => {
            assert!(what.reads() && body.len() == 12, "{what:?}");
            let len = u32_at(body, 8) as usize;
            assert!(len > 0 && len as u64 <= task.len, "{what:?}: a hole of {len}");
            task.got.push((u64_at(body, 0), vec![0; len]));
        }
        BLOCK_STATUS | BLOCK_STATUS_EXT => {
            let wide = kind == BLOCK_STATUS_EXT;
            assert!(
                matches!(what, Operation::Status { .. }) && task.extents.is_empty(),
                "{what:?}"
            );
            assert_eq!(wide, link.form == Form::Extended, "{what:?}");
            assert_eq!(Some(u32_at(body, 0)), link.context, "{what:?}");
            task.extents = match wide {
                false => body[4..].chunks(8).map(|e| (u32_at(e, 0).into(), u32_at(e, 4))).collect(),
                true => body[8..].chunks(16).map(|e| (u64_at(e, 0), u64_at(e, 8) as u32)).collect(),
            };
            assert!(!wide || u32_at(body, 4) as usize == task.extents.len(), "{what:?}");
        }
        ERROR => {
            task.error = u32_at(body, 0);
            assert_ne!(task.error, 0, "{what:?}");
            assert_eq!(usize::from(u16_at(body, 4)), body.len() - 6, "{what:?}");
        }
        other => panic!("{what:?}: chunk type {other:#x}"),
    }
}

/// The bytes of a READ, each received once.
fn read_data(task: &Task, who: &str) -> Vec<u8> {
    let mut pieces: Vec<&(u64, Vec<u8>)> = task.got.iter().collect();
    pieces.sort_by_key(|p| p.0);
    let mut out = Vec::new();
    for (at, bytes) in pieces {
        assert_eq!(*at, task.offset + out.len() as u64, "{who}: a gap, or twice the same");
        out.extend(bytes);
    }
    assert_eq!(out.len() as u64, task.len, "{who}: length of the data");
    out
}
