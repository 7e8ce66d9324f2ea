//! Repeated answers of a target to READ and WRITE: the errors that the disk's user gets, and the
//! status that a host gets if the disk is exported.

use std::net::SocketAddr;
use std::sync::Arc;

use bio::{Errno, Flags, Op};
use classes::mirror::MirrorClass;
use classes::stripe::StripeClass;
use geom::Class;
use serde_json::json;
use wire::iscsi::RejectReason;

use super::hang::{attach, attach_at};
use super::host::{Host, Status, status};
use super::table::reply;
use super::target::{Disk, MUTE, ODD, OTHER, OWN, Reply, Target};
use super::{MS, S, portal, ways};
use crate::iscsi::peer::{Odd, SECTOR, sense_of};
use crate::world::{World, range};

struct Row {
    name: &'static str,
    reply: Reply,
    /// The error of the disk's user.
    error: Errno,
    /// Status that a host gets for a WRITE of block 5, and for a READ.
    write: &'static str,
    read: &'static str,
    /// The text of `status` about the command, before the error's own words.
    last: &'static str,
    /// Trouble of the disk or its bus in `status`; empty: none.
    trouble: &'static str,
    /// Its word.
    severity: &'static str,
}

type Text = &'static str;

/// The error of the disk's user, and the status that a host gets for a WRITE and for a READ.
type Ends = (Errno, Text);

const INTERNAL: Ends = (Errno::RemoteIo, "04/44/00");
const INVALID: Ends = (Errno::Inval, "04/44/00");
const NOT_READY: Ends = (Errno::NxIo, "02/04/03");
const BUSY: Ends = (Errno::Busy, "BUSY");

const fn row(name: Text, reply: Reply, (error, both): Ends, last: Text) -> Row {
    Row { name, reply, error, write: both, read: both, last, trouble: "", severity: "OK" }
}

/// A status without sense data.
const fn answer(name: Text, code: u8, ends: Ends, last: Text) -> Row {
    row(name, reply(0, None, u32::MAX, code), ends, last)
}

/// CHECK CONDITION with fixed sense data.
const fn check(sense: (u8, u8, u8), ends: Ends, last: Text) -> Row {
    row("CHECK CONDITION", code(sense.0, sense.1, sense.2), ends, last)
}

const fn medium(name: Text, reply: Reply, last: Text) -> Row {
    let read = "03/11/00 at 5";
    Row { read, ..row(name, reply, (Errno::Io, "03/0c/00 at 5"), last) }
}

const fn odd(make: fn() -> Odd) -> Reply {
    Reply { odd: make, ..reply(0, None, u32::MAX, ODD) }
}

const fn odd_row(name: Text, make: fn() -> Odd, ends: Ends, last: Text) -> Row {
    row(name, odd(make), ends, last)
}

const fn reject(name: Text, make: fn() -> Odd, last: Text) -> Row {
    odd_row(name, make, INTERNAL, last)
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
    answer("CONDITION MET", 0x04, INTERNAL, "CONDITION MET (SCSI status 04)"),
    answer("BUSY", 0x08, BUSY, "BUSY (SCSI status 08)"),
    answer("INTERMEDIATE", 0x10, INTERNAL, "SCSI status 10"),
    answer("INTERMEDIATE-CONDITION MET", 0x14, INTERNAL, "SCSI status 14"),
    answer(
        "RESERVATION CONFLICT",
        0x18,
        (Errno::Conflict, "RESERVATION CONFLICT"),
        "RESERVATION CONFLICT (SCSI status 18)",
    ),
    answer("COMMAND TERMINATED", 0x22, INTERNAL, "SCSI status 22"),
    answer("TASK SET FULL", 0x28, BUSY, "TASK SET FULL (SCSI status 28)"),
    answer("ACA ACTIVE", 0x30, INTERNAL, "ACA ACTIVE (SCSI status 30)"),
    answer("TASK ABORTED", 0x40, INTERNAL, "TASK ABORTED (SCSI status 40)"),
    answer("an unknown status", 0x5a, INTERNAL, "SCSI status 5a"),
    Row {
        trouble: "requests fail after 60 s",
        severity: "DEGRADED",
        ..answer("no answer", MUTE, (Errno::TimedOut, "0b/3e/02"), "the command timed out")
    },
    odd_row(
        "no sense data",
        || Odd::Status(2, Vec::new()),
        INTERNAL,
        "CHECK CONDITION without sense data (SCSI status 02)",
    ),
    odd_row(
        "sense data of an unknown format",
        || sense(&[0x7e; 18]),
        INTERNAL,
        "sense data that cannot be read: RESPONSE CODE has a value that is not allowed (byte 0)",
    ),
    odd_row(
        "sense data of one byte",
        || sense(&[0x70]),
        INTERNAL,
        "sense data that cannot be read: SENSE KEY is cut short (byte 0)",
    ),
    check((0x02, 0x04, 0x00), NOT_READY, "LOGICAL UNIT NOT READY, CAUSE NOT REPORTABLE (2/04/00)"),
    check((0x02, 0x04, 0x01), BUSY, "LOGICAL UNIT IS IN PROCESS OF BECOMING READY (2/04/01)"),
    check(
        (0x02, 0x04, 0x02),
        NOT_READY,
        "LOGICAL UNIT NOT READY, INITIALIZING COMMAND REQUIRED (2/04/02)",
    ),
    check(
        (0x02, 0x04, 0x03),
        NOT_READY,
        "LOGICAL UNIT NOT READY, MANUAL INTERVENTION REQUIRED (2/04/03)",
    ),
    check((0x02, 0x04, 0x04), BUSY, "additional sense (2/04/04)"),
    check(
        (0x02, 0x04, 0x0a),
        NOT_READY,
        "LOGICAL UNIT NOT ACCESSIBLE, ASYMMETRIC ACCESS STATE TRANSITION (2/04/0a)",
    ),
    check(
        (0x02, 0x04, 0x0b),
        NOT_READY,
        "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN STANDBY STATE (2/04/0b)",
    ),
    check(
        (0x02, 0x04, 0x0c),
        NOT_READY,
        "LOGICAL UNIT NOT ACCESSIBLE, TARGET PORT IN UNAVAILABLE STATE (2/04/0c)",
    ),
    check((0x02, 0x3a, 0x00), NOT_READY, "MEDIUM NOT PRESENT (2/3a/00)"),
    medium("unrecovered read error", code(3, 0x11, 0), "UNRECOVERED READ ERROR (3/11/00)"),
    medium("write error", code(3, 0x0c, 0), "WRITE ERROR (3/0c/00)"),
    medium("medium format corrupted", code(3, 0x31, 0), "additional sense (3/31/00)"),
    medium(
        "descriptor format",
        odd(|| sense(&[0x72, 3, 0x0c, 0, 0, 0, 0, 0])),
        "WRITE ERROR (3/0c/00)",
    ),
    medium("deferred", odd(deferred), "WRITE ERROR (3/0c/00)"),
    check((0x04, 0x44, 0x00), INTERNAL, "INTERNAL TARGET FAILURE (4/44/00)"),
    check((0x05, 0x20, 0x00), INVALID, "INVALID COMMAND OPERATION CODE (5/20/00)"),
    check((0x05, 0x21, 0x00), INVALID, "LOGICAL BLOCK ADDRESS OUT OF RANGE (5/21/00)"),
    check((0x05, 0x24, 0x00), INVALID, "INVALID FIELD IN CDB (5/24/00)"),
    check((0x06, 0x2a, 0x01), NOT_READY, "MODE PARAMETERS CHANGED (6/2a/01)"),
    check((0x06, 0x38, 0x07), INTERNAL, "THIN PROVISIONING SOFT THRESHOLD REACHED (6/38/07)"),
    check((0x07, 0x27, 0x00), (Errno::RoFs, "07/27/00"), "WRITE PROTECTED (7/27/00)"),
    check(
        (0x07, 0x27, 0x07),
        (Errno::NoSpc, "07/27/07"),
        "SPACE ALLOCATION FAILED WRITE PROTECT (7/27/07)",
    ),
    check((0x09, 0x80, 0x00), INTERNAL, "additional sense (9/80/00)"),
    check((0x0a, 0x00, 0x00), INTERNAL, "NO ADDITIONAL SENSE INFORMATION (a/00/00)"),
    check((0x0b, 0x47, 0x03), INTERNAL, "additional sense (b/47/03)"),
    check((0x0d, 0x00, 0x00), INTERNAL, "NO ADDITIONAL SENSE INFORMATION (d/00/00)"),
    check((0x0e, 0x1d, 0x00), INTERNAL, "MISCOMPARE DURING VERIFY OPERATION (e/1d/00)"),
    check((0x0f, 0x00, 0x00), INTERNAL, "NO ADDITIONAL SENSE INFORMATION (f/00/00)"),
    odd_row("target failure", || Odd::Failure(1), INTERNAL, "target failure (iSCSI response 01)"),
    odd_row(
        "a response code of a vendor",
        || Odd::Failure(0x80),
        INTERNAL,
        "the target did not complete the command (iSCSI response 80)",
    ),
    reject(
        "Reject, data digest",
        || Odd::Reject(RejectReason::DataDigest),
        "rejected by the target: data digest error (iSCSI reason 02)",
    ),
    reject(
        "Reject, protocol",
        || Odd::Reject(RejectReason::Protocol),
        "rejected by the target: protocol error (iSCSI reason 04)",
    ),
    reject(
        "Reject, immediate",
        || Odd::Reject(RejectReason::TooManyImmediate),
        "rejected by the target: too many immediate commands (iSCSI reason 06)",
    ),
    reject(
        "Reject, in progress",
        || Odd::Reject(RejectReason::TaskInProgress),
        "rejected by the target: task in progress (iSCSI reason 07)",
    ),
    reject(
        "Reject, field",
        || Odd::Reject(RejectReason::InvalidField),
        "rejected by the target: invalid PDU field (iSCSI reason 09)",
    ),
    reject(
        "Reject, long operation",
        || Odd::Reject(RejectReason::LongOperation),
        "rejected by the target: long operation (iSCSI reason 0a)",
    ),
    odd_row(
        "Reject, unsupported",
        unsupported,
        INVALID,
        "rejected by the target: command not supported (iSCSI reason 05)",
    ),
    Row {
        trouble: "7 sessions have ended with this command under way",
        // Of its only portal.
        severity: "FAILED",
        ..odd_row("the session ends", || Odd::Drop, INTERNAL, "the nexus to the device was lost")
    },
];

fn unsupported() -> Odd {
    Odd::Reject(RejectReason::Unsupported)
}

fn run(n: usize, row: &Row) {
    let (key, asc, ascq) = row.reply.sense;
    let name = format!("{} {key:02x}/{asc:02x}/{ascq:02x}", row.name);
    for (opcode, verb, answers) in [(0x2a, "WRITE", row.write), (0x28, "READ", row.read)] {
        let name = format!("{verb}: {name}");
        let mut w = World::with(n as u64, &[]);
        let target = Target::start(&w.core, portal(), OWN, n as u64, ways(8));
        attach_at(&mut w, ("iscsi0", portal(), "da0"), &json!({}));
        let host = Host::login(&mut w, "da0");
        assert_eq!(host.write(&mut w, 5, 3).words(), "GOOD");
        assert_eq!(status(&mut w), Status::ok(&[]));
        target.reply(Reply { opcode, ..row.reply.clone() });
        let start = w.now();
        let answer = match opcode {
            0x2a => host.write(&mut w, 5, 9),
            _ => host.read(&mut w, 5),
        };
        assert_eq!(answer.words(), answers, "{name}");
        assert!(w.now() - start <= 61 * S, "{name}");
        let Status { severity: word, troubles: mut reasons } = status(&mut w);
        assert_eq!(word, row.severity, "{name}: {reasons:?}");
        let last = format!("da0: {verb} of block 5: {}, {}", row.last, row.error.text());
        assert_eq!(reasons.pop().as_ref(), Some(&last), "{name}");
        assert_eq!(reasons.len(), usize::from(!row.trouble.is_empty()), "{name}: {reasons:?}");
        assert!(reasons.iter().all(|why| why.contains(row.trouble)), "{name}: {reasons:?}");
        target.calm();
        (0..100).for_each(|_| w.turn(20 * MS));
        let later = host.read(&mut w, 5);
        assert_eq!((later.words().as_str(), later.data), ("GOOD", vec![3; SECTOR]), "{name}");
        // The error is history, and nothing is wrong any more.
        assert_eq!(status(&mut w), Status::ok(&[last]), "{name}");
    }
}

#[test]
fn each_answer_of_a_target_maps_to_its_answer_to_hosts() {
    ROWS.iter().enumerate().for_each(|(n, row)| run(n, row));
}

/// Answers that do not confirm a FLUSH either: no data are known to be stable.
#[test]
fn a_flush_without_a_good_status_fails() {
    for (row, last) in [
        (reply(0x35, None, u32::MAX, 4), "CONDITION MET (SCSI status 04)"),
        (
            Reply { opcode: 0x35, ..code(0x0e, 0x1d, 0) },
            "MISCOMPARE DURING VERIFY OPERATION (e/1d/00)",
        ),
    ] {
        let mut w = World::with(1, &[]);
        let target = Target::start(&w.core, portal(), OWN, 1, ways(8));
        let edge = attach(&mut w, &json!({}));
        w.write(edge, 0, &[1; SECTOR], Flags::NONE).unwrap();
        assert_eq!(w.plain(edge, Op::Flush, 0, 0), Ok(()));
        target.reply(row);
        assert_eq!(w.plain(edge, Op::Flush, 0, 0), Err(Errno::RemoteIo));
        let words = Errno::RemoteIo.text();
        let last = format!("da0: SYNCHRONIZE CACHE: {last}, {words}");
        assert_eq!(status(&mut w), Status::ok(&[last]));
        target.calm();
        assert_eq!(w.plain(edge, Op::Flush, 0, 0), Ok(()));
    }
}

fn fixed_at_12() -> Odd {
    let mut bytes = sense_of(3, 0x11, 0);
    bytes[2] = 0xf0;
    bytes[5..9].copy_from_slice(&12u32.to_be_bytes());
    Odd::Status(2, bytes)
}

fn fixed_at_13() -> Odd {
    let mut bytes = sense_of(3, 0x11, 0);
    bytes[2] = 0xf0;
    bytes[5..9].copy_from_slice(&13u32.to_be_bytes());
    Odd::Status(2, bytes)
}

fn descriptor_at_12() -> Odd {
    let head = [0x72, 3, 0x11, 0, 0, 0, 0, 12, 0, 10, 0x80, 0];
    sense(&[&head[..], &12u64.to_be_bytes()].concat())
}

#[test]
fn the_failed_block_of_a_medium_error_is_reported() {
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

/// Blocks of a stripe lie on two disks, those of a mirror on both.
/// M5 of classes/src/span/map.rs.
#[test]
fn the_failed_block_is_reported_through_stripes_and_mirrors() {
    let other = SocketAddr::from(([10, 0, 1, 1], 3260));
    let stripe = Arc::new(StripeClass::default()) as Arc<dyn Class>;
    let (strips, same) = (json!({ "strip": 8192 }), json!({ "assume_same": true }));
    for (class, name, how, answers) in [
        (stripe, "stripe/s", strips, "03/11/00 at 29"),
        (Arc::new(MirrorClass::default()), "mirror/s", same, "03/11/00 at 13"),
    ] {
        let mut w = World::with(1, &[]);
        let disk = Disk { sectors: 1024, ..OWN };
        let second = Disk { sectors: 1024, ..OTHER };
        let targets = [(portal(), disk), (other, second)];
        let targets = targets.map(|(at, disk)| Target::start(&w.core, at, disk, 1, ways(8)));
        attach_at(&mut w, ("iscsi0", portal(), "da0"), &json!({}));
        attach_at(&mut w, ("iscsi1", other, "da1"), &json!({}));
        w.control.topology.load(class.clone()).unwrap();
        let mut params = how;
        params["members"] = json!(["da0", "da1"]);
        class.verb(&mut w.control, "label", "s", &params).unwrap();
        (0..50).for_each(|_| w.turn(20 * MS));
        let host = Host::login(&mut w, name);
        let read = |w: &mut World| host.read_blocks(w, 8, 32).words();
        assert_eq!(read(&mut w), "GOOD");
        // Block 13 of a disk: of the stripe's second disk it is block 29.
        targets[1].reply(Reply { opcode: 0x28, ..odd(fixed_at_13) });
        if class.name() == "mirror" {
            targets[0].reply(Reply { opcode: 0x28, ..odd(fixed_at_13) });
        }
        assert_eq!(read(&mut w), answers, "{name}");
    }
}

#[test]
fn the_last_error_of_a_disk_is_listed_with_its_time() {
    let mut w = World::with(1, &[]);
    let target = Target::start(&w.core, portal(), OWN, 1, ways(8));
    let edge = attach(&mut w, &json!({}));
    let list = |w: &mut World, verbose: bool| {
        let answer = w.verb("devlist", "", &json!({ "verbose": verbose })).unwrap();
        (answer["text"].as_str().unwrap().to_owned(), answer["buses"][0]["devices"][0].clone())
    };
    assert!(!list(&mut w, true).0.contains("last error"));
    target.reply(Reply { opcode: 0x28, ..odd(fixed_at_12) });
    assert_eq!(w.read(edge, 8 * SECTOR as u64, 8 * SECTOR), Err(Errno::Io));
    target.calm();
    w.read(edge, 0, SECTOR).unwrap();
    (0..600).for_each(|_| w.turn(100 * MS));
    let (text, device) = list(&mut w, true);
    let last_error = "last error 1 min ago, 1 in all: READ of 8 blocks at 8: ";
    assert!(text.contains(last_error) && text.contains("UNRECOVERED READ ERROR"), "{text}");
    assert!(!list(&mut w, false).0.contains("last error"));
    let error = &device["last_error"];
    assert!((60 * S..62 * S).contains(&error["age_ns"].as_u64().unwrap()), "{error}");
    target.reply(reply(0x2a, None, u32::MAX, 0x18));
    assert_eq!(w.write(edge, 0, &[1; SECTOR], Flags::NONE), Err(Errno::Conflict));
    let (text, device) = list(&mut w, true);
    assert!(
        text.contains("2 in all: WRITE of block 0: RESERVATION CONFLICT (SCSI status 18)"),
        "{text}"
    );
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
fn the_failed_block_is_reported_when_a_request_was_split() {
    let mut w = World::with(1, &[]);
    let target = Target::start(&w.core, portal(), OWN, 1, ways(8));
    target.reply(Reply { opcode: 0x12, page: Some(0), ..odd(has_limits) });
    target.reply(Reply { opcode: 0x12, page: Some(0xb0), ..odd(four_blocks) });
    let edge = attach(&mut w, &json!({}));
    target.take_received(0);
    target.reply(Reply { opcode: 0x28, page: Some(10), ..odd(fixed_at_12) });
    let data = w.buffer(16 * SECTOR);
    let ended = w.io(edge, |bio| range(bio, Op::Read, 2 * SECTOR as u64, data));
    assert_eq!((ended.status, ended.bad), (Err(Errno::Io), Some(10 * SECTOR as u64)));
    assert_eq!(target.take_received(0x28), 4, "in pieces");
}
