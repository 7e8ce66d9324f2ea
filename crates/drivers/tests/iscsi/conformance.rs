//! libiscsi's conformance suite, judged case by case against `iscsi-test-cu.txt`.

use std::path::Path;

use rig::testcu::{Expectations, render, run};

use crate::server::{Server, Shape};

#[test]
fn the_suite_says_what_the_file_says() {
    rig::packages::ensure_host().unwrap();
    let server = Server::start(Shape::default());
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/iscsi-test-cu.txt");
    let expected = Expectations::read(&file).unwrap();
    let names = rig::testcu::list().unwrap();
    let results = run(&names, &server.url(0), &mut |_| ()).unwrap();
    let differences = expected.differences(&results);
    let lines: Vec<String> = differences.iter().map(|d| d.to_string()).collect();
    assert!(lines.is_empty(), "{}\n\na draft:\n{}", lines.join("\n"), render(&results));
}
