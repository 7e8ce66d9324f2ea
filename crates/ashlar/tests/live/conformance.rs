//! libiscsi's conformance suite against the daemon, over units of several flavours.
//! `iscsi-test-cu.txt` lists the expected outcome of every test on every flavour and the reason; a
//! difference in either direction fails. `ASHLAR_TESTCU_WRITE=FILE` writes a draft of it.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use rig::proc::{self, free_port};
use rig::testcu::{self, Flavour, Outcome};
use rig::{Chap, Target};

use crate::fixture::{Fixture, IQN};
use testkit::iscsi::initiator::Client;

/// Fewest runs that pass. The file lists them.
const PASS_MIN: usize = 649;

const UNIT_BYTES: u64 = 256 << 20;

/// A unit in a target of its own.
struct Unit {
    /// The flavour, and the disk's name.
    name: &'static str,
    /// The disk's section behind its name; `{size}` in it is [`UNIT_BYTES`].
    disk: &'static str,
    /// More keys of its LUN.
    lun: &'static str,
    /// Its lines in `[[unit]]`.
    unit: &'static str,
    /// More lines of its target.
    target: &'static str,
    takes: &'static [&'static str],
    leaves: &'static [&'static str],
}

const FILE: &str = "kind = \"file\"\npath = \"{here}/{name}.img\"\ncreate = true\nsize = {size}\n";

/// The special property of each unit, and the tests that it lets run.
const UNITS: &[Unit] = &[
    Unit {
        name: "thin",
        disk: FILE,
        lun: "",
        unit: "",
        target: "",
        takes: &["*"],
        leaves: SPECIAL,
    },
    Unit {
        name: "protected",
        disk: FILE,
        lun: ", mode = \"ro\"",
        unit: "",
        target: "",
        takes: &["ReadOnly"],
        leaves: &[],
    },
    // Blocks of 4 KiB.
    Unit {
        name: "4k",
        // Fewer than 65,536: so many the tool would write with one WRITE.
        disk: "kind = \"file\"\npath = \"{here}/4k.img\"\ncreate = true\nsize = 201326592\n\
               sector_size = 4096\n",
        lun: "",
        unit: "",
        target: "",
        takes: BLOCKS,
        leaves: &[
            "ReadOnly",
            // A file keeps 512 bytes as a whole, not a block of these.
            "WriteAtomic16",
            "WriteSame*.UnmapUnaligned",
            "WriteSame*.ZeroBlocks",
            "*.InvalidDataOutSize",
        ],
    },
    // Fully provisioned.
    Unit {
        name: "full",
        disk: "kind = \"model\"\nsize = {size}\ndiscards = false\n",
        lun: "",
        unit: "",
        target: "",
        takes: BLOCKS,
        leaves: LEFT_BY_FULL,
    },
    // The suite knows of MD5 only.
    Unit {
        name: "chap",
        disk: FILE,
        lun: "",
        unit: "",
        target: "chap = { user = \"alice\", secret = \"file:{here}/secret\" }\nchap_md5 = true\n",
        takes: &["iSCSI*", "TestUnitReady"],
        leaves: &[],
    },
    // Nothing survives a power cut, so an atomic write may be as long as the tool's, which writes
    // up to 256 blocks regardless of page B0h.
    Unit {
        name: "memory",
        disk: "kind = \"memory\"\nsize = {size}\n",
        lun: "",
        unit: "",
        target: "",
        takes: &["WriteAtomic16"],
        leaves: &[],
    },
    // With protection information of type 1, which is invisible to commands that do not request it.
    // The tool's tests of RDPROTECT and its like end where a unit has it, so they are left out.
    Unit {
        name: "dif",
        disk: FILE,
        lun: "",
        unit: "protection = \"type1\"\n",
        target: "",
        takes: BLOCKS,
        leaves: LEFT_BY_DIF,
    },
    // Its medium can be taken out.
    Unit {
        name: "removable",
        disk: FILE,
        lun: "",
        unit: "removable = true\n",
        target: "",
        takes: &["NoMedia", "PreventAllow", "StartStopUnit"],
        leaves: &[],
    },
    // It may be erased for good; small, for that is done often.
    Unit {
        name: "sanitize",
        disk: "kind = \"file\"\npath = \"{here}/sanitize.img\"\ncreate = true\nsize = 8388608\n",
        lun: "",
        unit: "sanitize = true\n",
        target: "",
        takes: &["Sanitize"],
        leaves: &["Sanitize.Reset"],
    },
    // Slow enough to be erased for eight seconds.
    Unit {
        name: "slow",
        disk: "kind = \"model\"\nsize = 8388608\nlatency = \"between\"\n\
               latency_min_us = 900000\nlatency_max_us = 900000\n",
        lun: "",
        unit: "sanitize = true\n",
        target: "",
        takes: &["Sanitize.Reset"],
        leaves: &[],
    },
    // WRITE SAME of no blocks writes to the end of it.
    Unit {
        name: "to-end",
        disk: FILE,
        lun: "",
        unit: "write_same_to_end = true\n",
        target: "",
        takes: &["WriteSame*.ZeroBlocks", "WriteSame16.UnmapUntilEnd"],
        leaves: &[],
    },
    // The same unit by two portals.
    Unit {
        name: "paths",
        disk: FILE,
        lun: "",
        unit: "",
        target: "",
        takes: &["MultipathIO"],
        leaves: &[],
    },
];

/// Tests of blocks and their number.
const BLOCKS: &[&str] = &[
    "CompareAndWrite",
    "GetLBAStatus",
    "Inquiry",
    "Mandatory",
    "OrWrite",
    "Prefetch*",
    "Read*",
    "Unmap",
    "Verify*",
    "Write*",
    "iSCSIResiduals",
];

/// Tests that need another flavour.
const SPECIAL: &[&str] = &[
    "MultipathIO",
    "PreventAllow",
    "ReadOnly",
    "Sanitize",
    "StartStopUnit.Simple",
    "WriteSame*.ZeroBlocks",
];

/// A fully provisioned unit unmaps nothing, and the tool uses one that does for other tests, too.
const LEFT_BY_FULL: &[&str] = &[
    "*.BlockLimits",
    "*.InvalidDataOutSize",
    "*.Unmap*",
    "*.Unwritten",
    "GetLBAStatus",
    "ReadOnly",
    "Unmap",
    "WriteSame*.ZeroBlocks",
];

/// An atomic write would have to include its tuples, which are stored elsewhere.
const LEFT_BY_DIF: &[&str] = &["ReadOnly", "WriteAtomic16", "WriteSame*.ZeroBlocks", "*.*Protect"];

fn config(second: SocketAddr) -> String {
    let sections = UNITS.iter().map(|unit| {
        let Unit { name, disk, lun, unit, target, .. } = unit;
        let disk = disk.replace("{name}", name).replace("{size}", &UNIT_BYTES.to_string());
        format!(
            "[[disk]]\nname = \"{name}\"\n{disk}\n\
             [[unit]]\nprovider = \"{name}\"\n{unit}\n[[target]]\ndriver = \"iscsi\"\n\
             name = \"{{iqn}}.{name}\"\nlisten = [\"{{portal}}\", \"{second}\"]\n{target}\n\
             [[access]]\ntarget = \"{{iqn}}.{name}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
             luns = {{ 0 = {{ provider = \"{name}\"{lun} }} }}\n"
        )
    });
    sections.collect()
}

fn flavours(fixture: &Fixture, second: SocketAddr) -> Vec<Flavour> {
    let chap = Chap { user: "alice".into(), secret: "initiator-pass".into(), mutual: None };
    let flavour = |unit: &Unit| {
        let at = Target { iqn: format!("{IQN}.{}", unit.name), ..fixture.target(0) };
        let url = if unit.name == "chap" { at.url_with(&chap) } else { at.url() };
        let mut flavour = Flavour::new(unit.name, url).taking(unit.takes).leaving(unit.leaves);
        flavour.sanitize = unit.unit.contains("sanitize");
        // Three seconds for the erasing to begin, one for a reset to end, then a minute each.
        flavour.awake_from = (unit.name == "slow").then_some(3);
        if unit.name == "paths" {
            flavour.urls.push(Target { portal: second, ..at }.url());
        }
        flavour
    };
    UNITS.iter().map(flavour).collect()
}

#[test]
fn libiscsi_suite_has_the_expected_outcomes() {
    let mut fixture = Fixture::alone("conformance");
    fixture.secret("secret", "initiator-pass");
    let second: SocketAddr = ([127, 0, 0, 1], free_port().unwrap()).into();
    fixture.write("ashlar.toml", &config(second));
    fixture.start();
    let report = testcu::run_all(&flavours(&fixture, second)).unwrap();
    println!("iscsi-test-cu: {}", report.summary());
    let untold = report.skipped_everywhere();
    println!("{} tests skipped everywhere: {untold:?}", untold.len());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/iscsi-test-cu.txt");
    report.assert_expected(&file, "ASHLAR_TESTCU_WRITE");
    assert!(report.count(Outcome::Pass) >= PASS_MIN, "{}", report.summary());
    assert!(untold.is_empty(), "skipped everywhere: {untold:?}");
    fixture.assert_alive();
    fixture.stop();
}

/// Most runs of the tool until it receives the answer to its reset.
const LUN_RESETS_MAX: usize = 50;

/// LUN RESET of the tool against this daemon: the verbose output.
fn lun_reset(fixture: &Fixture) -> String {
    let mut command = Command::new(proc::tool("iscsi-test-cu").unwrap());
    command.args(["-d", "-V", "-t", "ALL.iSCSITMF.LUNResetSimpleAsync"]).arg(fixture.url(0));
    proc::run_limited(&mut command, Duration::from_secs(20)).unwrap().output
}

/// The lines of the file with `fail`, checked on the wire: our answers are right.
#[test]
fn expected_failures_are_faults_of_the_suite() {
    let mut fixture = Fixture::alone("suite-proof").with_disk(64 << 20);
    let mut raw = Client::session(fixture.portal(), "iqn.2024-01.test:proof", IQN).unwrap();
    assert_eq!(raw.scsi(&[0; 6], 0, &[]).unwrap().status, 2, "a reset to hear of");

    // GetLBAStatus.UnmapSingle: the first descriptor begins at the requested block. The tool
    // requests block I + 1 and wants one that begins at I + (blocks of a physical block).
    for lba in [0, 8] {
        let write = [0x2A, 0, 0, 0, 0, lba, 0, 0, 8, 0];
        assert_eq!(raw.scsi(&write, 0, &[0xff; 4096]).unwrap().status, 0);
    }
    let mut list = [0; 24];
    (list[1], list[3], list[19]) = (22, 16, 8);
    assert_eq!(raw.scsi(&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 0, &list).unwrap().status, 0);
    for (lba, state) in [(0, 1), (1, 1), (8, 0), (9, 0)] {
        let ask = [0x9E, 0x12, 0, 0, 0, 0, 0, 0, 0, lba, 0, 0, 0, 24, 0, 0];
        let response = raw.scsi(&ask, 24, &[]).unwrap();
        assert_eq!((response.status, response.data.len()), (0, 24));
        let first = [response.data[15], response.data[19], response.data[20]];
        assert_eq!(first, [lba, 8 - lba % 8, state], "of block {lba}");
    }

    // WriteAtomic16.Simple: the tool writes up to 256 blocks although page B0h reports 1.
    let response = raw.scsi(&[0x12, 1, 0xB0, 0, 64, 0], 64, &[]).unwrap();
    assert_eq!(
        (response.status, &response.data[44..64]),
        (0, &[&[0, 0, 0, 1][..], &[0; 16]].concat()[..])
    );
    for (blocks, status) in [(1, 0), (2, 2)] {
        let write = [0x9C, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, blocks, 0, 0];
        let response = raw.scsi(&write, 0, &vec![1; 512 * usize::from(blocks)]).unwrap();
        assert_eq!(response.status, status, "{blocks} blocks");
    }

    // iSCSITMF.LUNResetSimpleAsync: the tool checks whether the answer to its reset was good before
    // it has sent it. Its own output shows the later answer, FUNCTION COMPLETE. It may leave before
    // it has received that, when the answer to its WRITE arrives alone.
    let mut answered = false;
    for _ in 0..LUN_RESETS_MAX {
        let words = lun_reset(&fixture);
        let failed: Vec<&str> = words.lines().filter(|line| line.contains("CU_ASSERT")).collect();
        assert!(matches!(failed[..], [line] if line.contains("reconnect_succeeded,1")), "{words}");
        let answers = words.matches("LU RESET: TMF response").count();
        let good = words.matches("LU RESET: TMF response 0 for").count();
        assert_eq!(answers, good, "{words}");
        answered |= good > 0;
        if answered {
            break;
        }
    }
    assert!(answered, "no reset was answered in {LUN_RESETS_MAX} tries");
    fixture.stop();
}
