//! libiscsi's conformance suite against the daemon. `iscsi-test-cu.txt` says what is expected of
//! every test and why; a difference in either direction fails.

mod house;

use std::path::Path;

use house::{House, file_disk};
use rig::testcu::{self, Expectations, Outcome};

/// Tests that pass, at least. The file says which.
const PASS_MIN: usize = 140;

/// Size of the unit.
const UNIT_BYTES: u64 = 256 << 20;

#[test]
fn the_suite_says_what_the_file_says() {
    let mut house = House::new("conformance");
    house.image("disk.img", UNIT_BYTES);
    house.image("protected.img", UNIT_BYTES / 4);
    let disks = [file_disk("d0", "disk.img"), file_disk("d1", "protected.img")].concat();
    house.configure(&disks, "0 = \"d0\", 1 = { provider = \"d1\", mode = \"ro\" }");
    house.start();
    let report = testcu::run_all(&house.url(0)).unwrap();
    println!("iscsi-test-cu: {}", report.summary());
    if let Some(path) = std::env::var_os("ASHLAR_TESTCU_WRITE") {
        std::fs::write(path, testcu::render(&report.results)).unwrap();
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/iscsi-test-cu.txt");
    let differences = Expectations::read(&file).unwrap().differences(&report.results);
    let text: Vec<String> = differences.iter().map(ToString::to_string).collect();
    assert!(differences.is_empty(), "{}\n{}", report.summary(), text.join("\n"));
    assert!(report.count(Outcome::Pass) >= PASS_MIN, "{}", report.summary());
    // The one test that is about a write-protected unit; it skips the commands that are not there.
    let protected = testcu::run_one("ReadOnly.ReadOnlySBC", &house.url(1)).unwrap();
    assert!(matches!(protected.outcome, Outcome::Pass | Outcome::Skip), "{}", protected.text);
    assert!(!protected.text.contains("not write-protected"), "{}", protected.text);
    house.stop();
}
