//! The cases of iscsi-test-cu by another way: CAM commands on a bus of our own target (`kind =
//! "local"`), each beside the same command of an iSCSI initiator. Both end alike, with the same
//! sense, the same data and the same blocks on the disk. Other tests show the effect of a hanging
//! disk, PREEMPT AND ABORT and access states on a local nexus.

use std::process::{Command, Output};
use std::thread::JoinHandle;
use std::time::Duration;

use rig::proc::{self, Proc};
use wire::scsi::Sense;

use crate::fixture;
use crate::fixture::{CommandOutput, Fixture, IQN, file_disk};
use crate::local_bus::remote;
use testkit::iscsi::initiator::Client;

/// 32,768 blocks.
const DISK_BYTES: u64 = 16 << 20;
const REMOTE: &str = "iqn.2024-01.test:remote";
const SOON: Duration = Duration::from_secs(20);
const CONFLICT: u8 = 0x18;

const BUS: &str = "[[bus]]\nname = \"loop0\"\nkind = \"local\"\ntarget = \"{iqn}\"\n\
    names = { here = \"0:0\" }\n";

/// A daemon whose target's LUN 0 is a disk of its own graph too.
fn build_fixture(name: &str, disk: &str, group: &str) -> Fixture {
    let mut fixture = Fixture::alone(name);
    fixture.image("d0.img", DISK_BYTES);
    fixture.write(
        "ashlar.toml",
        &format!(
            "{disk}{BUS}[[target]]\ndriver = \"iscsi\"\nname = \"{{iqn}}\"\n\
             listen = [\"{{portal}}\"]\n{group}\
             [[access]]\ntarget = \"{{iqn}}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
             luns = {{ 0 = \"d0\" }}\n"
        ),
    );
    fixture.start();
    let is_present = || fixture.ok(&["cam", "devlist"]).contains(",here)");
    fixture.until("the bus has its disk", SOON, is_present);
    fixture
}

/// Data of a command.
#[derive(Clone, Copy)]
enum Moves {
    Nothing,
    In(u32),
    /// So many bytes of this value.
    Out(u32, u8),
    List(&'static [u8]),
}
use Moves::{In, List, Nothing, Out};

/// Expected end: GOOD, or this sense key, code and qualifier.
type Ends = Option<[u8; 3]>;

const GOOD: Ends = None;
const BEYOND: Ends = Some([5, 0x21, 0]);
const FIELD: Ends = Some([5, 0x24, 0]);
const MISCOMPARE: Ends = Some([0xe, 0x1d, 0]);
/// INVALID FIELD IN COMMAND INFORMATION UNIT: the data ends within a block or a list.
const CUT: Ends = Some([5, 0x0e, 3]);

/// Blocks 8 to 23 are zeroes before each. The names are those of iscsi-test-cu.
#[rustfmt::skip]
const CASES: &[(&str, &[u8], Moves, Ends)] = &[
    ("TestUnitReady.Simple", &[0, 0, 0, 0, 0, 0], Nothing, GOOD),
    ("Inquiry.Standard", &[0x12, 0, 0, 0, 0xff, 0], In(255), GOOD),
    ("Inquiry.AllocLength", &[0x12, 0, 0, 0, 5, 0], In(5), GOOD),
    ("Inquiry.EVPD", &[0x12, 0, 0x83, 0, 0xff, 0], In(255), FIELD),
    ("Inquiry.SupportedVPD", &[0x12, 1, 0, 0, 0xff, 0], In(255), GOOD),
    ("Inquiry.BlockLimits", &[0x12, 1, 0xb0, 0, 0xff, 0], In(255), GOOD),
    ("Inquiry.MandatoryVPDSBC", &[0x12, 1, 0x83, 0, 0xff, 0], In(255), GOOD),
    ("ReadCapacity10.Simple", &[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], In(8), GOOD),
    ("ReadCapacity16.Simple", &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0],
        In(32), GOOD),
    ("ReadCapacity16.Alloclen", &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0],
        In(8), GOOD),
    ("ModeSense6.AllPages", &[0x1a, 0, 0x3f, 0, 0xff, 0], In(255), GOOD),
    ("ModeSense6.Control", &[0x1a, 0, 0x0a, 0, 0xff, 0], In(255), GOOD),
    ("Read6.Simple", &[0x08, 0, 0, 8, 2, 0], In(1024), GOOD),
    ("Read6.BeyondEol", &[0x08, 0, 0x7f, 0xff, 2, 0], In(1024), BEYOND),
    ("Read10.Simple", &[0x28, 0, 0, 0, 0, 8, 0, 0, 2, 0], In(1024), GOOD),
    ("Read10.BeyondEol", &[0x28, 0, 0, 0, 0x7f, 0xff, 0, 0, 2, 0], In(1024), BEYOND),
    ("Read10.ZeroBlocks", &[0x28, 0, 0, 0, 0, 8, 0, 0, 0, 0], Nothing, GOOD),
    ("Read10.ZeroBlocks beyond", &[0x28, 0, 0, 0, 0x80, 1, 0, 0, 0, 0], Nothing, BEYOND),
    ("Read10.ReadProtect", &[0x28, 0x20, 0, 0, 0, 8, 0, 0, 1, 0], In(512), FIELD),
    ("Read10.DpoFua", &[0x28, 0x18, 0, 0, 0, 8, 0, 0, 1, 0], In(512), GOOD),
    ("Read12.BeyondEol", &[0xa8, 0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0, 0], In(512), BEYOND),
    ("Read12.Simple", &[0xa8, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0], In(512), GOOD),
    ("Read16.Simple", &[0x88, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0], In(512), GOOD),
    ("Read16.BeyondEol",
        &[0x88, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0],
        In(512), BEYOND),
    ("Write10.Simple", &[0x2a, 0, 0, 0, 0, 8, 0, 0, 2, 0], Out(1024, 0xa6), GOOD),
    ("Write10.BeyondEol", &[0x2a, 0, 0, 0, 0x7f, 0xff, 0, 0, 2, 0], Out(1024, 1), BEYOND),
    ("Write10.ZeroBlocks", &[0x2a, 0, 0, 0, 0, 8, 0, 0, 0, 0], Nothing, GOOD),
    ("Write10.WriteProtect", &[0x2a, 0x20, 0, 0, 0, 8, 0, 0, 1, 0], Out(512, 1), FIELD),
    ("Write10.DpoFua", &[0x2a, 0x18, 0, 0, 0, 8, 0, 0, 1, 0], Out(512, 9), GOOD),
    ("Write12.Simple", &[0xaa, 0, 0, 0, 0, 9, 0, 0, 0, 1, 0, 0], Out(512, 0xc6), GOOD),
    ("Write16.Simple", &[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 1, 0, 0], Out(512, 0xd6), GOOD),
    ("Write16.BeyondEol", &[0x8a, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0, 0],
        Out(512, 0xd6), BEYOND),
    ("WriteVerify10.Simple", &[0x2e, 0, 0, 0, 0, 8, 0, 0, 1, 0], Out(512, 0xe6), GOOD),
    ("WriteVerify16.Simple", &[0x8e, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0],
        Out(512, 0xe7), GOOD),
    ("Verify10.Simple", &[0x2f, 2, 0, 0, 0, 8, 0, 0, 1, 0], Out(512, 0), GOOD),
    ("Verify10.Mismatch", &[0x2f, 2, 0, 0, 0, 8, 0, 0, 1, 0], Out(512, 1), MISCOMPARE),
    ("Verify10.MismatchNoCmp", &[0x2f, 0, 0, 0, 0, 8, 0, 0, 1, 0], Nothing, GOOD),
    ("Verify16.BeyondEol", &[0x8f, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0, 0],
        Nothing, BEYOND),
    ("Prefetch10.Simple", &[0x34, 0, 0, 0, 0, 8, 0, 0, 1, 0], Nothing, GOOD),
    ("Prefetch16.BeyondEol", &[0x90, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0, 0],
        Nothing, BEYOND),
    ("WriteSame10.Simple", &[0x41, 0, 0, 0, 0, 8, 0, 0, 4, 0], Out(512, 0x77), GOOD),
    ("WriteSame10.Unmap", &[0x41, 8, 0, 0, 0, 8, 0, 0, 8, 0], Out(512, 0), GOOD),
    ("WriteSame10.BeyondEol", &[0x41, 0, 0, 0, 0x7f, 0xff, 0, 0, 2, 0], Out(512, 0), BEYOND),
    ("WriteSame16.Simple", &[0x93, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 5, 0, 0],
        Out(512, 0x78), GOOD),
    ("WriteSame16.WriteProtect", &[0x93, 0x20, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0],
        Out(512, 0x78), FIELD),
    ("Unmap.Simple", &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0],
        List(&[0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0, 0, 0]), GOOD),
    ("Unmap.ZeroBlocks", &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0],
        List(&[0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 0]), GOOD),
    ("Unmap.BeyondEol", &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0],
        List(&[0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 8, 0, 0, 0, 0]),
        BEYOND),
    ("CompareAndWrite.Simple", &[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0],
        Out(1024, 0), GOOD),
    ("CompareAndWrite.Miscompare", &[0x89, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0],
        Out(1024, 1), MISCOMPARE),
    ("Write6, a part of a block", &[0x0a, 0, 0, 8, 1, 0], Out(200, 1), CUT),
    ("Write10, a part of a block", &[0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0], Out(200, 1), CUT),
    ("Write10, a part of the second block", &[0x2a, 0, 0, 0, 0, 8, 0, 0, 2, 0],
        Out(700, 1), CUT),
    ("Write12, a part of a block", &[0xaa, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0], Out(200, 1), CUT),
    ("Write16, a part of a block", &[0x8a, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0],
        Out(200, 1), CUT),
    ("WriteVerify10, a part of a block", &[0x2e, 0, 0, 0, 0, 8, 0, 0, 1, 0], Out(200, 1), CUT),
    ("OrWrite, a part of a block", &[0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0],
        Out(200, 1), CUT),
    ("Verify10, a part of a block", &[0x2f, 2, 0, 0, 0, 8, 0, 0, 1, 0], Out(200, 1), CUT),
    ("Unmap, no list", &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], Nothing, CUT),
    ("ModeSelect6, no list", &[0x15, 0x10, 0, 0, 24, 0], Nothing, CUT),
    ("ModeSelect6, a part of the list", &[0x15, 0x10, 0, 0, 24, 0], Out(4, 0), CUT),
    ("OrWrite.Simple", &[0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 1, 0, 0], Out(512, 0xa6), GOOD),
    ("OrWrite.BeyondEol", &[0x8b, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 1, 0, 0],
        Out(512, 0xa6), BEYOND),
    ("WriteAtomic16.Simple", &[0x9c, 0, 0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 8, 0, 0],
        Out(4096, 0xb6), FIELD),
    ("WriteAtomic16.BeyondEol", &[0x9c, 0, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 8, 0, 0],
        Out(4096, 0xb6), BEYOND),
    ("GetLBAStatus.BeyondEol", &[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0x80, 0, 0, 0, 0, 24, 0, 0],
        In(24), BEYOND),
    ("ReadDefectData10.Simple", &[0x37, 0, 0x0c, 0, 0, 0, 0, 0, 4, 0], In(4), GOOD),
    ("ReportSupportedOpcodes.Simple", &[0xa3, 0x0c, 0, 0, 0, 0, 0, 0, 4, 0, 0, 0], In(1024), GOOD),
    ("ReportSupportedOpcodes.OneCommand", &[0xa3, 0x0c, 1, 0x28, 0, 0, 0, 0, 1, 0, 0, 0],
        In(256), GOOD),
    ("PrinReadKeys.Simple", &[0x5e, 0, 0, 0, 0, 0, 0, 0, 255, 0], In(255), GOOD),
    ("PrinReportCapabilities.Simple", &[0x5e, 2, 0, 0, 0, 0, 0, 0, 8, 0], In(8), GOOD),
    ("PrinServiceactionRange.Range", &[0x5e, 0x1f, 0, 0, 0, 0, 0, 0, 8, 0], In(8), FIELD),
    ("ProutRegister.Simple, a short list", &[0x5f, 0, 0, 0, 0, 0, 0, 0, 23, 0],
        Out(23, 0), Some([5, 0x1a, 0])),
    ("ProutReserve.Simple, not registered", &[0x5f, 1, 3, 0, 0, 0, 0, 0, 24, 0],
        Out(24, 0), Some([CONFLICT, 0, 0])),
    ("PreventAllow.Simple", &[0x1e, 0, 0, 0, 0, 0], Nothing, GOOD),
    ("StartStopUnit.Simple", &[0x1b, 0, 0, 0, 1, 0], Nothing, GOOD),
    ("Sanitize, not allowed", &[0x48, 1, 0, 0, 0, 0, 0, 0, 0, 0], Nothing, Some([5, 0x20, 0])),
    ("ExtendedCopy.ParamHdr", &[0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 16, 0, 0],
        List(&[0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]), Some([5, 0x1a, 0])),
    ("ReceiveCopyResults.OpParams", &[0x84, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0],
        In(255), GOOD),
    ("a command that nobody knows", &[0xbf, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        Nothing, Some([5, 0x20, 0])),
];

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect::<Vec<_>>().join(" ")
}

/// Sends a command through CAM; returns its result and the data.
fn by_cam(fixture: &Fixture, cdb: &[u8], moves: Moves) -> (CommandOutput, String) {
    let (cdb, send) = (hex(cdb), moves_out(moves).map(|bytes| hex(&bytes)));
    let len = match moves {
        In(len) => len.to_string(),
        _ => String::new(),
    };
    let mut words = vec!["cam", "cmd", "here", "-c", &cdb, "--json"];
    match &send {
        Some(bytes) => words.extend(["--send", bytes]),
        None if !len.is_empty() => words.extend(["-i", &len]),
        None => {}
    }
    let output = fixture.ashlar(&words);
    let data = match output.code {
        0 => fixture::text(&output.json()["answer"]["data"]),
        _ => String::new(),
    };
    (output, data)
}

fn moves_out(moves: Moves) -> Option<Vec<u8>> {
    match moves {
        Out(len, value) => Some(vec![value; len as usize]),
        List(list) => Some(list.to_vec()),
        Nothing | In(_) => None,
    }
}

#[test]
fn each_case_has_the_same_result_by_cam_and_by_iscsi() {
    let mut fixture = build_fixture("local-cases", &file_disk("d0", "d0.img"), "");
    let mut raw = remote(&fixture);
    by_cam(&fixture, &[0; 6], Nothing);
    let zero = |raw: &mut Client| {
        let clear = [0x2a, 0, 0, 0, 0, 8, 0, 0, 16, 0];
        assert_eq!(raw.scsi(&clear, 0, &[0; 16 * 512]).unwrap().status, 0);
    };
    let blocks = |raw: &mut Client| raw.must(&[0x28, 0, 0, 0, 0, 8, 0, 0, 16, 0], 16 * 512);
    let mut wrong = Vec::new();
    for (name, cdb, moves, ends) in CASES {
        zero(&mut raw);
        let read = if let In(len) = moves { *len } else { 0 };
        let theirs = raw.scsi(cdb, read, &moves_out(*moves).unwrap_or_default()).unwrap();
        let left = blocks(&mut raw);
        zero(&mut raw);
        let (output, data) = by_cam(&fixture, cdb, *moves);
        let left_here = blocks(&mut raw);
        let (is, what) = match *ends {
            GOOD => (theirs.status == 0, String::new()),
            Some([status, 0, 0]) => (theirs.status == status, format!("SCSI status {status:02x}")),
            Some([key, code, qualifier]) => {
                let sense = Sense::decode(&theirs.sense).expect(name);
                let says = [sense.code.key as u8, sense.code.asc, sense.code.ascq];
                (theirs.status == 2 && says == [key, code, qualifier], sense.code.to_string())
            }
        };
        if !is {
            wrong.push(format!("{name} by iSCSI: {:02x} {:02x?}", theirs.status, theirs.sense));
        }
        let text = [output.err.trim(), output.out.trim()].concat();
        let text = if output.code == 0 { "" } else { &text };
        if (output.code == 0) != ends.is_none() || !text.contains(&what) {
            wrong.push(format!("{name} by CAM: {text:?}, wanted {what:?}"));
        }
        let came: String = theirs.data.iter().map(|b| format!("{b:02x}")).collect();
        if data != came {
            wrong.push(format!("{name}: {data} came by CAM and {came} by iSCSI"));
        }
        if left != left_here {
            wrong.push(format!("{name}: the disk is not the same after it"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    fixture.assert_alive();
    fixture.stop();
}

/// EXTENDED COPY of 700 bytes within the unit, from byte 10 of block 8 to byte 20 of block 16.
const COPY: [u8; 16] = [0x83, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 48, 0, 0];
#[rustfmt::skip]
const COPY_LIST: &[u8] = &[
    // Without a list identifier and CSCD descriptors: one segment of 32 bytes.
    0, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0, 0, 0,
    // Block to block with offsets; both units are the one that has the command.
    0x0a, 0, 0, 0x1c, 0xff, 0xff, 0xff, 0xff, 0, 0, 0x02, 0xbc,
    0, 0, 0, 0, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 16, 0, 10, 0, 20,
];

#[test]
fn extended_copy_with_offsets_moves_the_same_bytes_by_cam_and_by_iscsi() {
    let mut fixture = build_fixture("local-copy", &file_disk("d0", "d0.img"), "");
    let mut raw = remote(&fixture);
    by_cam(&fixture, &[0; 6], Nothing);
    let source: Vec<u8> = (0..16 * 512).map(|at| (at * 31 + at / 512) as u8).collect();
    let mut wanted = source.clone();
    wanted[8 * 512 + 20..8 * 512 + 720].copy_from_slice(&source[10..710]);
    for is_remote in [true, false] {
        let fill = [0x2a, 0, 0, 0, 0, 8, 0, 0, 16, 0];
        assert_eq!(raw.scsi(&fill, 0, &source).unwrap().status, 0);
        if is_remote {
            let ended = raw.scsi(&COPY, 0, COPY_LIST).unwrap();
            assert_eq!(ended.status, 0, "{:02x?}", ended.sense);
        } else {
            by_cam(&fixture, &COPY, List(COPY_LIST)).0.ends(0);
        }
        let left = raw.must(&[0x28, 0, 0, 0, 0, 8, 0, 0, 16, 0], 16 * 512);
        assert!(left == wanted, "by iSCSI: {is_remote}");
    }
    fixture.assert_alive();
    fixture.stop();
}

/// UNMAP of 128 KiB from block 0 on: whole allocation units of every kind of disk.
const FREE: ([u8; 10], &[u8]) = (
    [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0],
    &[0, 22, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0],
);
/// SANITIZE, BLOCK ERASE.
const ERASE: ([u8; 10], &[u8]) = ([0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0], &[]);
/// GET LBA STATUS of block 0; byte 20 is 0 for a mapped block and 1 for a deallocated one.
const MAPPING: [u8; 16] = [0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 24, 0, 0];

/// Whether block 0 is deallocated, by iSCSI and, where the bus has the disk, by CAM.
fn is_deallocated(fixture: &Fixture, raw: &mut Client, on_bus: bool) -> bool {
    let remote = raw.must(&MAPPING, 24);
    if on_bus {
        let (output, local) = by_cam(fixture, &MAPPING, In(24));
        let remote: String = remote.iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(local, remote, "{output}");
    }
    remote[20] == 1
}

/// Commands of either nexus free blocks, and both see it.
fn expect_freed_blocks(fixture: &Fixture, kind: &str, on_bus: bool) {
    let mut raw = remote(fixture);
    let by_remote = [("UNMAP", FREE, false), ("SANITIZE", ERASE, false)];
    let by_bus = [("UNMAP by CAM", FREE, true), ("SANITIZE by CAM", ERASE, true)];
    let cases = by_remote.iter().chain(by_bus.iter().filter(|_| on_bus));
    for (name, (cdb, list), by_local) in cases {
        // Unit attentions about what the other nexus did.
        raw.must(&[0; 6], 0);
        // Zeroes that were written occupy space as well.
        let write = [0x2a, 0, 0, 0, 0, 0, 0, 0, 8, 0];
        assert_eq!(raw.scsi(&write, 0, &[0; 4096]).unwrap().status, 0, "{kind}: {name}");
        assert!(!is_deallocated(fixture, &mut raw, on_bus), "{kind}: mapped before {name}");
        if *by_local {
            let moves = if list.is_empty() { Nothing } else { List(list) };
            by_cam(fixture, cdb, moves).0.ends(0);
        } else {
            let ended = raw.scsi(cdb, 0, list).unwrap();
            assert_eq!(ended.status, 0, "{kind}: {name}: {:02x?}", ended.sense);
        }
        assert!(is_deallocated(fixture, &mut raw, on_bus), "{kind}: deallocated after {name}");
    }
}

#[test]
fn freed_blocks_of_every_kind_of_disk_are_reported_as_deallocated() {
    let unit = "[[unit]]\nprovider = \"d0\"\nsanitize = true\n";
    let disk = |kind: &str, more: &str| {
        format!("[[disk]]\nname = \"d0\"\nkind = \"{kind}\"\nsize = \"16MiB\"\n{more}")
    };
    for (kind, disk) in [
        ("file", file_disk("d0", "d0.img")),
        ("memory", disk("memory", "")),
        ("model", disk("model", "latency = \"none\"\n")),
    ] {
        let mut fixture = build_fixture(&format!("freed-{kind}"), &disk, unit);
        by_cam(&fixture, &[0; 6], Nothing);
        expect_freed_blocks(&fixture, kind, true);
        fixture.stop();
    }
    // The bus could be scanned before the server of the disk answers.
    let mut fixture = Fixture::alone("freed-nbd");
    let program = proc::tool("nbdkit").unwrap();
    let disk = format!(
        "[[disk]]\nname = \"d0\"\nkind = \"nbd\"\n\
         command = [\"{}\", \"-f\", \"memory\", \"16M\"]\n",
        program.display()
    );
    fixture.configure(&format!("{disk}{unit}"), "0 = \"d0\"");
    fixture.start_whole();
    expect_freed_blocks(&fixture, "nbd", false);
    fixture.stop();
}

/// PERSISTENT RESERVE OUT.
fn out(action: u8, kind: u8) -> [u8; 10] {
    [0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0]
}

fn keys(key: u64, action_key: u64) -> [u8; 24] {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&action_key.to_be_bytes());
    list
}

/// A disk that is made slow on demand.
const SLOW: &str = "[[disk]]\nname = \"d0\"\nkind = \"memory\"\nsize = \"16MiB\"\n\
    [[geom]]\nclass = \"nop\"\nname = \"slow\"\nprovider = \"d0\"\n";
const READ: [u8; 10] = [0x28, 0, 0, 0, 0, 8, 0, 0, 1, 0];
const WRITE: [u8; 10] = [0x2a, 0, 0, 0, 0, 8, 0, 0, 1, 0];

/// A target and its one group.
fn target(name: &str, more: &str, disk: &str) -> String {
    format!(
        "[[target]]\ndriver = \"iscsi\"\nname = \"{name}\"\nlisten = [\"{{portal}}\"]\n{more}\
         [[access]]\ntarget = \"{name}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"{disk}\" }}\n"
    )
}

/// A fixture whose local disk is a LUN of another target, by which programs use it.
fn nested_fixture(name: &str) -> (Fixture, String) {
    let mut fixture = Fixture::alone(name);
    let first = format!("{SLOW}{BUS}{}", target("{iqn}", "", "slow"));
    fixture.write("ashlar.toml", &first);
    fixture.start();
    fixture.until("the bus has its disk", SOON, || fixture.provider("here").is_some());
    fixture.write("ashlar.toml", &(first + &target("{iqn}-2", "", "here")));
    fixture.ok(&["apply"]);
    let url = fixture.url(0).replace(IQN, &format!("{IQN}-2"));
    (fixture, url)
}

/// A request of a program, which may take its time.
fn program(fixture: &Fixture, url: &str, request: &str) -> Proc {
    let _none = std::fs::remove_file(fixture.path("program"));
    let mut command = Command::new(proc::tool("qemu-io").unwrap());
    command.args(["-f", "raw", "-t", "none", "-c", request, url]);
    Proc::start("qemu-io", &mut command, &fixture.path("program")).unwrap()
}

/// From now on reads and writes take so long.
fn take(fixture: &Fixture, ms: u32) {
    let (percent, ms) = (if ms > 0 { 100 } else { 0 }, ms.max(1));
    let (reads, writes) =
        (format!("read_delay_percent={percent}"), format!("write_delay_percent={percent}"));
    let all = ["geom", "nop", "configure", "name=slow", &reads, &writes];
    fixture.ok(&[&all[..], &[&format!("delay_ms={ms}")]].concat());
}

fn in_flight(fixture: &Fixture) -> bool {
    fixture.provider("slow").is_some_and(|(_, slow)| slow["stats"]["in_flight"].as_u64() > Some(0))
}

/// Whether all requests of the program was done.
fn succeeded(fixture: &Fixture, mut program: Proc) -> bool {
    let mut status = None;
    fixture.until("the program ends", SOON, || {
        status = program.ended().unwrap();
        status.is_some()
    });
    let output = std::fs::read_to_string(fixture.path("program")).unwrap();
    println!("{output}");
    status.is_some_and(|s| s.success()) && !output.contains("ailed") && !output.contains("rror")
}

/// A command of the local nexus that may take its time.
fn aside(fixture: &Fixture, cdb: &[u8], more: &[&str]) -> JoinHandle<Output> {
    let cdb = hex(cdb);
    let mut command = fixture.command(&[&["cam", "cmd", "here", "-c", &cdb], more].concat());
    std::thread::spawn(move || command.output().unwrap())
}

fn local_out(fixture: &Fixture, action: u8, kind: u8, list: [u8; 24]) -> CommandOutput {
    let (cdb, send) = (hex(&out(action, kind)), hex(&list));
    fixture.ashlar(&["cam", "cmd", "here", "-c", &cdb, "--send", &send])
}

#[test]
fn preempt_and_abort_ends_hanging_commands_of_both_nexuses() {
    let (mut fixture, url) = nested_fixture("local-preempt");
    let mut raw = remote(&fixture);
    local_out(&fixture, 0, 0, keys(0, 0xa)).ends(0);
    local_out(&fixture, 1, 3, keys(0xa, 0)).ends(0);
    assert_eq!(raw.scsi(&out(0, 0), 0, &keys(0, 0xb)).unwrap().status, 0);
    assert_eq!(raw.scsi(&WRITE, 0, &[1; 512]).unwrap().status, CONFLICT);

    // A write of the local nexus hangs; the remote one takes the reservation from it.
    take(&fixture, 1500);
    let writes = program(&fixture, &url, "write -P 2 4k 512");
    fixture.until("the write hangs", SOON, || in_flight(&fixture));
    let preempts = std::thread::spawn(move || {
        let status = raw.scsi(&out(5, 3), 0, &keys(0xb, 0xa)).unwrap().status;
        (raw, status)
    });
    let (mut raw, status) = preempts.join().unwrap();
    take(&fixture, 0);
    assert_eq!(status, 0);
    // From GOOD on nothing of the other nexus is written.
    assert_eq!(raw.scsi(&WRITE, 0, &[0x55; 512]).unwrap().status, 0);
    assert!(!succeeded(&fixture, writes), "it was aborted, and may not come again");
    assert_eq!(raw.must(&READ, 512), [0x55; 512]);
    assert!(!succeeded(&fixture, program(&fixture, &url, "write -P 3 4k 512")));
    assert_eq!(raw.must(&READ, 512), [0x55; 512]);

    // And the other way round.
    local_out(&fixture, 0, 0, keys(0, 0xc)).ends(0);
    take(&fixture, 1500);
    // The test does not wait for an answer: an aborted command has none.
    raw.ask(8, 1).unwrap();
    fixture.until("the read hangs", SOON, || in_flight(&fixture));
    let list = hex(&keys(0xc, 0xb));
    let takes = aside(&fixture, &out(5, 3), &["--send", &list]);
    let taken = takes.join().unwrap();
    take(&fixture, 0);
    assert!(taken.status.success(), "{taken:?}");
    assert!(succeeded(&fixture, program(&fixture, &url, "write -P 4 4k 512")));
    let mut third = remote(&fixture);
    assert_eq!(third.scsi(&READ, 512, &[]).unwrap().status, CONFLICT);
    local_out(&fixture, 3, 0, keys(0xc, 0)).ends(0);
    assert_eq!(third.must(&READ, 512), [4; 512]);
    fixture.assert_alive();
    fixture.stop();
}

#[test]
fn timed_out_command_is_aborted_and_the_bus_keeps_working() {
    let (mut fixture, url) = nested_fixture("local-hangs");
    let mut raw = remote(&fixture);
    assert_eq!(raw.scsi(&WRITE, 0, &[6; 512]).unwrap().status, 0);
    take(&fixture, 1500);
    let late = aside(&fixture, &READ, &["-i", "512", "-t", "300"]);
    fixture.until("the read hangs", SOON, || in_flight(&fixture));
    // Its time is over long before the disk answers, which ABORT TASK waits for.
    let late = late.join().unwrap();
    take(&fixture, 0);
    let output = String::from_utf8_lossy(&late.stderr).into_owned();
    assert!(!late.status.success() && output.contains("timed out"), "{output}");
    assert!(succeeded(&fixture, program(&fixture, &url, "read -P 6 4k 512")));
    assert_eq!(raw.must(&READ, 512), [6; 512]);
    fixture.assert_alive();
    fixture.stop();
}

#[test]
fn access_states_hold_for_the_local_nexus() {
    let mut fixture = Fixture::alone("local-alua");
    fixture.image("d0.img", DISK_BYTES);
    let group = "[[alua]]\nname = \"near\"\nid = 10\nstate = \"optimized\"\n";
    let target = target("{iqn}", "port_group = \"near\"\n", "d0");
    fixture.write("ashlar.toml", &(file_disk("d0", "d0.img") + BUS + group + &target));
    fixture.start();
    fixture.until("the bus has its disk", SOON, || fixture.provider("here").is_some());
    let mut raw = remote(&fixture);
    let rtpg = [0xa3, 0x0a, 0, 0, 0, 0, 0, 0, 0, 255, 0, 0];
    let state = |fixture: &Fixture, raw: &mut Client| {
        let (output, near) = by_cam(fixture, &rtpg, In(255));
        let far: String = raw.must(&rtpg, 255).iter().map(|b| format!("{b:02x}")).collect();
        assert_eq!(near, far, "{}", output.err);
        u8::from_str_radix(&near[8..10], 16).unwrap() & 0xf
    };
    assert_eq!(by_cam(&fixture, &READ, In(512)).0.code, 0);
    assert_eq!(state(&fixture, &mut raw), 0);
    for (name, code, says) in [("standby", 2, "STANDBY"), ("unavailable", 3, "UNAVAILABLE")] {
        fixture.ok(&["alua", "set", "near", name]);
        fixture.until(name, SOON, || by_cam(&fixture, &READ, In(512)).0.out.contains(says));
        raw.must(&[0x12, 0, 0, 0, 36, 0], 36);
        assert_eq!(state(&fixture, &mut raw), code);
        assert_eq!(raw.scsi(&READ, 512, &[]).unwrap().status, 2);
        fixture.ok(&["alua", "set", "near", "optimized"]);
        fixture.until("it is good again", SOON, || by_cam(&fixture, &READ, In(512)).0.code == 0);
    }
    fixture.assert_alive();
    fixture.stop();
}

#[test]
fn cdrom_unit_of_a_target_is_a_cd_provider() {
    let mut fixture = Fixture::alone("local-cd");
    let iso = fixture.path("iso.img");
    let bytes: Vec<u8> = (0..1 << 20).map(|at| (at / 2048 + 1) as u8).collect();
    std::fs::write(&iso, &bytes).unwrap();
    let unit = "[[unit]]\nprovider = \"iso\"\nhandler = \"cdrom\"\n";
    let bus = BUS.replace("names = { here = \"0:0\" }\n", "");
    let first = format!("{}{bus}{unit}{}", file_disk("iso", "iso.img"), target("{iqn}", "", "iso"));
    fixture.write("ashlar.toml", &first);
    fixture.start();
    let listed = |fixture: &Fixture| fixture.ok(&["cam", "devlist"]).contains("(pass0,cd0)");
    fixture.until("the disc is found", SOON, || listed(&fixture));
    let output = fixture.ok(&["cam", "readcap", "cd0"]);
    assert_eq!(output, "Last Block: 511, Block Length: 2048 bytes\n");
    assert_eq!(fixture.provider("cd0").unwrap().0, "cam");
    // Another target exports a provider above it to all initiators.
    let unit = "[[unit]]\nprovider = \"cd0\"\nread_only = true\n";
    let second = unit.to_string() + &target("{iqn}-2", "", "cd0");
    fixture.write("ashlar.toml", &(first + &second));
    fixture.ok(&["apply"]);
    let deep = format!("{IQN}-2");
    let mut raw = Client::session(fixture.portal(), REMOTE, &deep).unwrap();
    let read = |block| [0x28, 0, 0, 0, 0, block, 0, 0, 1, 0];
    assert_eq!(raw.must(&read(0), 2048), [1; 2048]);
    assert_eq!(raw.must(&read(5), 2048), [6; 2048]);
    let write = raw.scsi(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0, &[9; 2048]).unwrap();
    assert_eq!((write.status, write.sense[2] & 0xf), (2, 7), "DATA PROTECT");
    assert_eq!(std::fs::read(&iso).unwrap(), bytes);
    // Ejected while it is in use, and loaded again.
    fixture.ok(&["tray", "eject", "iso"]);
    assert_eq!(raw.scsi(&read(0), 2048, &[]).unwrap().status, 2);
    fixture.ok(&["tray", "load", "iso"]);
    fixture.until("the disc is back", SOON, || {
        fixture.ok(&["cam", "rescan"]);
        let is_present = fixture.provider("cd0").is_some();
        let again = || {
            let mut raw = Client::session(fixture.portal(), REMOTE, &deep)?;
            raw.scsi(&[0; 6], 0, &[])?;
            raw.scsi(&read(0), 2048, &[])
        };
        is_present && again().is_ok_and(|ended| ended.data == [1; 2048])
    });
    fixture.assert_alive();
    fixture.stop();
}
