//! libiscsi's conformance suite against the daemon. `iscsi-test-cu.txt` says what is expected of
//! every test and why; a difference in either direction fails.

mod house;

use std::path::Path;

use house::House;
use rig::testcu::{self, Expectations, Outcome};

/// Tests that pass, at least. The file says which.
const PASS_MIN: usize = 120;

/// Size of the unit; some tests write behind the first 2 GiB when there is so much.
const UNIT_BYTES: u64 = 256 << 20;

#[test]
fn the_suite_says_what_the_file_says() {
    let mut house = House::new("conformance");
    house.image("disk.img", UNIT_BYTES);
    house.configure(&house::file_disk("d0", "disk.img"), "0 = \"d0\"");
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
    house.stop();
}
