//! The configurations in `examples/`: each is one that a daemon would carry out, and what is said
//! of it in its own words is so.

use std::path::{Path, PathBuf};

use crate::house::House;

fn examples() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples")
}

#[test]
fn each_is_read_and_planned() {
    let mut house = House::new("examples");
    house.configure("", "");
    house.start();
    let mut names = Vec::new();
    for entry in std::fs::read_dir(examples()).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|e| e != "toml") {
            continue;
        }
        // 6: there is something to do, and it can be said what.
        let plan = house.ashlar(&["plan", path.to_str().unwrap()]).ends(6);
        assert!(plan.out.contains("create "), "{plan}");
        names.push(path);
    }
    assert!(names.len() >= 4, "{names:?}");
    house.stop();
}

/// The listing as FreeBSD's camcontrol prints it, of the talk from which CAM came here.
#[test]
fn sas_and_sata_are_listed_side_by_side() {
    let mut house = House::new("diversity");
    let text = std::fs::read_to_string(examples().join("unified-diversity.toml")).unwrap();
    house.configure(&text, "");
    house.start();
    let want = include_str!("../../../../examples/unified-diversity.txt");
    assert_eq!(house.ok(&["cam", "devlist", "-v"]), want);
    house.stop();
}
