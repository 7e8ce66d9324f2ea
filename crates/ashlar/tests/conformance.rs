//! libiscsi's conformance suite against the daemon, over units of several flavours.
//! `iscsi-test-cu.txt` says what is expected of every test on every flavour and why; a difference
//! in either direction fails. `ASHLAR_TESTCU_WRITE=FILE` writes a draft of it.

mod house;

use std::net::SocketAddr;
use std::path::Path;

use house::{House, IQN};
use rig::proc::free_port;
use rig::testcu::{self, Expectations, Flavour, Outcome};
use rig::{Chap, Target};

/// Runs that pass, at least. The file says which.
const PASS_MIN: usize = 512;

/// Tests that no flavour lets run, at most.
const SKIPPED_EVERYWHERE_MAX: usize = 3;

/// Size of the units.
const UNIT_BYTES: u64 = 256 << 20;

/// A unit in a target of its own.
struct Unit {
    /// The flavour, and the disk's name.
    name: &'static str,
    /// The disk's section behind its name; `{size}` in it is [`UNIT_BYTES`].
    disk: &'static str,
    /// More keys of its LUN.
    lun: &'static str,
    /// What is said of it in `[[unit]]`.
    unit: &'static str,
    /// More lines of its target.
    target: &'static str,
    takes: &'static [&'static str],
    leaves: &'static [&'static str],
}

const FILE: &str = "kind = \"file\"\npath = \"{here}/{name}.img\"\ncreate = true\nsize = {size}\n";

/// What each is special in, and which tests it lets run.
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
        disk: "kind = \"file\"\npath = \"{here}/4k.img\"\ncreate = true\nsize = {size}\n\
               sector_size = 4096\n",
        lun: "",
        unit: "",
        target: "",
        takes: BLOCKS,
        leaves: &["ReadOnly", "WriteSame*.UnmapUnaligned", "*.InvalidDataOutSize"],
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

/// What is about blocks and their number.
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

/// What another flavour is for.
const SPECIAL: &[&str] =
    &["MultipathIO", "PreventAllow", "ReadOnly", "Sanitize", "StartStopUnit.Simple"];

/// A fully provisioned unit unmaps nothing, and the tool asks one that does for other things, too.
const LEFT_BY_FULL: &[&str] = &[
    "*.BlockLimits",
    "*.InvalidDataOutSize",
    "*.Unmap*",
    "*.Unwritten",
    "GetLBAStatus",
    "ReadOnly",
    "Unmap",
];

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

fn flavours(house: &House, second: SocketAddr) -> Vec<Flavour> {
    let chap = Chap { user: "alice".into(), secret: "initiator-pass".into(), mutual: None };
    let flavour = |unit: &Unit| {
        let at = Target { iqn: format!("{IQN}.{}", unit.name), ..house.target(0) };
        let url = if unit.name == "chap" { at.url_with(&chap) } else { at.url() };
        let mut flavour = Flavour::new(unit.name, url).taking(unit.takes).leaving(unit.leaves);
        flavour.sanitize = unit.name == "sanitize";
        if unit.name == "paths" {
            flavour.urls.push(Target { portal: second, ..at }.url());
        }
        flavour
    };
    UNITS.iter().map(flavour).collect()
}

#[test]
fn the_suite_says_what_the_file_says() {
    let mut house = House::new("conformance");
    house.secret("secret", "initiator-pass");
    let second: SocketAddr = ([127, 0, 0, 1], free_port().unwrap()).into();
    house.write("ashlar.toml", &config(second));
    house.start();
    let report = testcu::run_all(&flavours(&house, second)).unwrap();
    println!("iscsi-test-cu: {}", report.summary());
    let untold = report.skipped_everywhere();
    println!("{} tests skipped everywhere: {untold:?}", untold.len());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/iscsi-test-cu.txt");
    let expected = Expectations::read(&file).unwrap();
    if let Some(path) = std::env::var_os("ASHLAR_TESTCU_WRITE") {
        std::fs::write(path, expected.redraft(&report.results)).unwrap();
    }
    let differences = expected.differences(&report.results);
    let text: Vec<String> = differences.iter().map(ToString::to_string).collect();
    assert!(differences.is_empty(), "{}\n{}", report.summary(), text.join("\n"));
    assert!(report.count(Outcome::Pass) >= PASS_MIN, "{}", report.summary());
    assert!(untold.len() <= SKIPPED_EVERYWHERE_MAX, "{untold:?}");
    house.assert_alive();
    house.stop();
}
