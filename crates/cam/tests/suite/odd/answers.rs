//! What a target answers to READ and WRITE, again and again: the error of the disk's user, and what
//! a host hears to which the disk is exported.

use bio::{Errno, Flags, Op};
use serde_json::json;
use target::{Ending, ending_of};
use wire::iscsi::RejectReason;
use wire::scsi::Status;

use super::hang::attach;
use super::table::reply;
use super::target::{MUTE, ODD, OWN, Reply, Target};
use super::{MS, S, portal, ways};
use crate::iscsi::peer::{Odd, SECTOR, sense_of};
use crate::world::{World, range};

struct Row {
    name: &'static str,
    reply: Reply,
    error: Errno,
    /// What a host hears to a WRITE, and to a READ.
    write: &'static str,
    read: &'static str,
}

const INTERNAL: &str = "04/44/00";

const fn row(name: &'static str, reply: Reply, error: Errno, both: &'static str) -> Row {
    Row { name, reply, error, write: both, read: both }
}

/// A status without sense data.
const fn status(name: &'static str, code: u8, error: Errno, both: &'static str) -> Row {
    row(name, reply(0, None, u32::MAX, code), error, both)
}

/// CHECK CONDITION with fixed sense data.
const fn check(code: (u8, u8, u8), error: Errno, both: &'static str) -> Row {
    let reply = Reply { sense: code, ..reply(0, None, u32::MAX, 2) };
    row("CHECK CONDITION", reply, error, both)
}

const fn medium(name: &'static str, reply: Reply) -> Row {
    Row { name, reply, error: Errno::Io, write: "03/0c/00", read: "03/11/00" }
}

const fn odd(make: fn() -> Odd) -> Reply {
    Reply { odd: make, ..reply(0, None, u32::MAX, ODD) }
}

const fn other(name: &'static str, make: fn() -> Odd, error: Errno, both: &'static str) -> Row {
    row(name, odd(make), error, both)
}

const fn reject(name: &'static str, make: fn() -> Odd) -> Row {
    other(name, make, Errno::RemoteIo, INTERNAL)
}

const fn code(key: u8, asc: u8, ascq: u8) -> Reply {
    Reply { sense: (key, asc, ascq), ..reply(0, None, u32::MAX, 2) }
}

fn sense(bytes: &[u8]) -> Odd {
    Odd::Status(2, [&(bytes.len() as u16).to_be_bytes(), bytes].concat())
}

fn deferred() -> Odd {
    let mut bytes = sense_of(3, 0x0c, 0);
    bytes[2] = 0x71;
    Odd::Status(2, bytes)
}

const ROWS: &[Row] = &[
    status("CONDITION MET", 0x04, Errno::RemoteIo, INTERNAL),
    status("BUSY", 0x08, Errno::Busy, "BUSY"),
    status("INTERMEDIATE", 0x10, Errno::RemoteIo, INTERNAL),
    status("INTERMEDIATE-CONDITION MET", 0x14, Errno::RemoteIo, INTERNAL),
    status("RESERVATION CONFLICT", 0x18, Errno::Conflict, "RESERVATION CONFLICT"),
    status("COMMAND TERMINATED", 0x22, Errno::RemoteIo, INTERNAL),
    status("TASK SET FULL", 0x28, Errno::Busy, "BUSY"),
    status("ACA ACTIVE", 0x30, Errno::RemoteIo, INTERNAL),
    status("TASK ABORTED", 0x40, Errno::RemoteIo, INTERNAL),
    status("an unknown status", 0x5a, Errno::RemoteIo, INTERNAL),
    status("no answer", MUTE, Errno::TimedOut, "0b/3e/02"),
    other("no sense data", || Odd::Status(2, Vec::new()), Errno::RemoteIo, INTERNAL),
    other("sense data of an unknown format", || sense(&[0x7e; 18]), Errno::RemoteIo, INTERNAL),
    other("sense data of one byte", || sense(&[0x70]), Errno::RemoteIo, INTERNAL),
    check((0x02, 0x04, 0x00), Errno::NxIo, "02/04/03"),
    check((0x02, 0x04, 0x01), Errno::Busy, "BUSY"),
    check((0x02, 0x04, 0x02), Errno::NxIo, "02/04/03"),
    check((0x02, 0x04, 0x03), Errno::NxIo, "02/04/03"),
    check((0x02, 0x04, 0x04), Errno::Busy, "BUSY"),
    check((0x02, 0x04, 0x0a), Errno::NxIo, "02/04/03"),
    check((0x02, 0x04, 0x0b), Errno::NxIo, "02/04/03"),
    check((0x02, 0x04, 0x0c), Errno::NxIo, "02/04/03"),
    check((0x02, 0x3a, 0x00), Errno::NxIo, "02/04/03"),
    medium("unrecovered read error", code(3, 0x11, 0)),
    medium("write error", code(3, 0x0c, 0)),
    medium("medium format corrupted", code(3, 0x31, 0)),
    medium("descriptor format", odd(|| sense(&[0x72, 3, 0x0c, 0, 0, 0, 0, 0]))),
    medium("deferred", odd(deferred)),
    check((0x04, 0x44, 0x00), Errno::RemoteIo, INTERNAL),
    check((0x05, 0x20, 0x00), Errno::Inval, INTERNAL),
    check((0x05, 0x21, 0x00), Errno::Inval, INTERNAL),
    check((0x05, 0x24, 0x00), Errno::Inval, INTERNAL),
    check((0x06, 0x2a, 0x01), Errno::NxIo, "02/04/03"),
    check((0x06, 0x38, 0x07), Errno::RemoteIo, INTERNAL),
    check((0x07, 0x27, 0x00), Errno::RoFs, "07/27/00"),
    check((0x07, 0x27, 0x07), Errno::NoSpc, "07/27/07"),
    check((0x09, 0x80, 0x00), Errno::RemoteIo, INTERNAL),
    check((0x0a, 0x00, 0x00), Errno::RemoteIo, INTERNAL),
    check((0x0b, 0x47, 0x03), Errno::RemoteIo, INTERNAL),
    check((0x0d, 0x00, 0x00), Errno::RemoteIo, INTERNAL),
    check((0x0e, 0x1d, 0x00), Errno::RemoteIo, INTERNAL),
    check((0x0f, 0x00, 0x00), Errno::RemoteIo, INTERNAL),
    other("target failure", || Odd::Failure(1), Errno::RemoteIo, INTERNAL),
    other("a response code of a vendor", || Odd::Failure(0x80), Errno::RemoteIo, INTERNAL),
    reject("Reject, data digest", || Odd::Reject(RejectReason::DataDigest)),
    reject("Reject, protocol", || Odd::Reject(RejectReason::Protocol)),
    reject("Reject, immediate", || Odd::Reject(RejectReason::TooManyImmediate)),
    reject("Reject, in progress", || Odd::Reject(RejectReason::TaskInProgress)),
    reject("Reject, field", || Odd::Reject(RejectReason::InvalidField)),
    reject("Reject, long operation", || Odd::Reject(RejectReason::LongOperation)),
    other("Reject, unsupported", || unsupported(), Errno::Inval, INTERNAL),
    other("the session ends", || Odd::Drop, Errno::RemoteIo, INTERNAL),
];

fn unsupported() -> Odd {
    Odd::Reject(RejectReason::Unsupported)
}

/// What a host hears.
fn heard(error: Errno, op: Op) -> String {
    match ending_of(error, op) {
        Ending::Good => "GOOD".into(),
        Ending::Status(Status::Busy) => "BUSY".into(),
        Ending::Status(Status::ReservationConflict) => "RESERVATION CONFLICT".into(),
        Ending::Status(status) => format!("{status:?}"),
        Ending::Check(sense) => {
            let code = sense.code;
            format!("{:02x}/{:02x}/{:02x}", code.key as u8, code.asc, code.ascq)
        }
    }
}

fn run(n: usize, row: &Row) {
    let (key, asc, ascq) = row.reply.sense;
    let name = format!("{} {key:02x}/{asc:02x}/{ascq:02x}", row.name);
    for (opcode, op, hears) in [(0x2a, Op::Write, row.write), (0x28, Op::Read, row.read)] {
        let mut w = World::with(n as u64, &[]);
        let target = Target::start(&w.core, portal(), OWN, n as u64, ways(8));
        let edge = attach(&mut w, &json!({}));
        w.write(edge, 0, &[3; SECTOR], Flags::NONE).unwrap();
        target.reply(Reply { opcode, ..row.reply.clone() });
        let start = w.now();
        let result = match op {
            Op::Write => w.write(edge, 0, &[9; SECTOR], Flags::NONE),
            _ => w.read(edge, 0, SECTOR).map(drop),
        };
        assert_eq!(result, Err(row.error), "{op:?}: {name}");
        assert!(w.now() - start <= 61 * S, "{op:?}: {name}");
        assert_eq!(heard(row.error, op), hears, "{op:?}: {name}");
        target.calm();
        (0..100).for_each(|_| w.turn(20 * MS));
        assert_eq!(w.read(edge, 0, SECTOR), Ok(vec![3; SECTOR]), "{op:?}: {name}, later");
    }
}

#[test]
fn each_answer_of_a_target_reaches_hosts_as_what_it_is() {
    ROWS.iter().enumerate().for_each(|(n, row)| run(n, row));
}

fn fixed_at_12() -> Odd {
    let mut bytes = sense_of(3, 0x11, 0);
    bytes[2] = 0xf0;
    bytes[5..9].copy_from_slice(&12u32.to_be_bytes());
    Odd::Status(2, bytes)
}

fn descriptor_at_12() -> Odd {
    let head = [0x72, 3, 0x11, 0, 0, 0, 0, 12, 0, 10, 0x80, 0];
    sense(&[&head[..], &12u64.to_be_bytes()].concat())
}

#[test]
fn the_block_that_the_medium_failed_is_passed_on() {
    for make in [fixed_at_12 as fn() -> Odd, descriptor_at_12] {
        let mut w = World::with(1, &[]);
        let target = Target::start(&w.core, portal(), OWN, 1, ways(8));
        let edge = attach(&mut w, &json!({}));
        let read = |w: &mut World, sector: u64, count: usize| {
            let data = w.buffer(count * SECTOR);
            let at = sector * SECTOR as u64;
            let ended = w.io(edge, |bio| range(bio, Op::Read, at, data));
            (ended.status, ended.bad)
        };
        target.reply(Reply { opcode: 0x28, ..odd(make) });
        assert_eq!(read(&mut w, 8, 8), (Err(Errno::Io), Some(4 * SECTOR as u64)));
        assert_eq!(read(&mut w, 12, 1), (Err(Errno::Io), Some(0)));
        assert_eq!(read(&mut w, 13, 8), (Err(Errno::Io), None), "it is before the range");
        assert_eq!(read(&mut w, 4, 8), (Err(Errno::Io), None), "it is behind the range");
        target.calm();
        target.reply(reply(0x28, None, u32::MAX, 0x30));
        assert_eq!(read(&mut w, 8, 8), (Err(Errno::RemoteIo), None));
    }
}

#[test]
fn the_last_error_of_a_disk_is_listed_with_its_time() {
    let mut w = World::with(1, &[]);
    let target = Target::start(&w.core, portal(), OWN, 1, ways(8));
    let edge = attach(&mut w, &json!({}));
    let list = |w: &mut World, verbose: bool| {
        let said = w.verb("devlist", "", &json!({ "verbose": verbose })).unwrap();
        (said["text"].as_str().unwrap().to_owned(), said["buses"][0]["devices"][0].clone())
    };
    assert!(!list(&mut w, true).0.contains("last error"));
    target.reply(Reply { opcode: 0x28, ..odd(fixed_at_12) });
    assert_eq!(w.read(edge, 8 * SECTOR as u64, 8 * SECTOR), Err(Errno::Io));
    target.calm();
    w.read(edge, 0, SECTOR).unwrap();
    (0..600).for_each(|_| w.turn(100 * MS));
    let (text, device) = list(&mut w, true);
    let said = "last error 1 min ago, 1 in all: READ of 8 blocks at 8: ";
    assert!(text.contains(said) && text.contains("UNRECOVERED READ ERROR"), "{text}");
    assert!(!list(&mut w, false).0.contains("last error"));
    let error = &device["last_error"];
    assert!((60 * S..62 * S).contains(&error["age_ns"].as_u64().unwrap()), "{error}");
    target.reply(reply(0x2a, None, u32::MAX, 0x18));
    assert_eq!(w.write(edge, 0, &[1; SECTOR], Flags::NONE), Err(Errno::Conflict));
    let (text, device) = list(&mut w, true);
    assert!(text.contains("2 in all: WRITE of block 0: SCSI status 18"), "{text}");
    assert_eq!(device["last_error"]["count"], 2);
}

fn has_limits() -> Odd {
    Odd::Data(vec![0, 0, 0, 4, 0, 0x80, 0x83, 0xb0])
}

/// MAXIMUM TRANSFER LENGTH: four blocks.
fn four_blocks() -> Odd {
    let mut page = vec![0; 64];
    (page[1], page[3], page[11]) = (0xb0, 60, 4);
    Odd::Data(page)
}

#[test]
fn the_block_that_the_medium_failed_is_passed_on_from_a_piece_of_a_request() {
    let mut w = World::with(1, &[]);
    let target = Target::start(&w.core, portal(), OWN, 1, ways(8));
    target.reply(Reply { opcode: 0x12, page: Some(0), ..odd(has_limits) });
    target.reply(Reply { opcode: 0x12, page: Some(0xb0), ..odd(four_blocks) });
    let edge = attach(&mut w, &json!({}));
    target.came(0);
    target.reply(Reply { opcode: 0x28, page: Some(10), ..odd(fixed_at_12) });
    let data = w.buffer(16 * SECTOR);
    let ended = w.io(edge, |bio| range(bio, Op::Read, 2 * SECTOR as u64, data));
    assert_eq!((ended.status, ended.bad), (Err(Errno::Io), Some(10 * SECTOR as u64)));
    assert_eq!(target.came(0x28), 4, "in pieces");
}
