//! Data of initiators is theirs. A daemon exports two disks with labels of a mirror and of a
//! multipath that initiators made on their LUNs. After a restart it serves them and writes nothing
//! there by itself. When they are not exported any more they are tasted as ever.

use std::fs;

use rig::peer::qemu_io;

use crate::fixture::{self, Fixture, file_disk};

const BYTES: u64 = 4 << 20;

fn left_alone(fixture: &Fixture, disk: &str, class: &str) -> String {
    let found = fixture.provider(disk);
    let (_, provider) =
        found.unwrap_or_else(|| panic!("{disk}: {}", fixture.ok(&["list", "providers"])));
    let verdicts = fixture::array(&provider["why_not"]).iter();
    let ours = verdicts.filter(|v| fixture::text(&v["class"]) == class);
    ours.map(|v| fixture::text(&v["why"])).collect()
}

#[test]
fn exported_disks_with_mirror_labels_are_not_written_at_start() {
    let mut fixture = Fixture::new("lent");
    let names = ["d0", "d1", "d2", "d3"];
    names.iter().for_each(|name| drop(fixture.image(&format!("{name}.img"), BYTES)));
    let disks: String = names.iter().map(|n| file_disk(n, &format!("{n}.img"))).collect();
    fixture.configure(&disks, "");
    fixture.start();
    fixture.ok(&["mirror", "label", "data", "d0", "d1"]);
    fixture.ok(&["multipath", "label", "ways", "d2"]);
    // An exported partition is its initiators' too, and so is a mirror in it.
    fixture.ok(&["part", "create", "d3", "--scheme", "gpt"]);
    fixture.ok(&["part", "add", "d3", "--type", "freebsd-ufs"]);
    fixture.ok(&["mirror", "label", "inner", "d3p1"]);
    // The halves differ now: an initiator that has them as a mirror would rebuild one.
    fixture.ok(&["mirror", "deactivate", "data", "d1"]);
    fixture.ok(&["mirror", "activate", "data", "d1"]);
    fixture.kill();

    let images = || names.map(|n| fs::read(fixture.path(&format!("{n}.img"))).unwrap());
    let before = images();
    let luns = "0 = \"d0\", 1 = \"d1\", 2 = \"d2\", 3 = \"d3p1\"";
    fixture.configure(&disks, luns);
    fixture.start();
    for disk in ["d0", "d1", "d2", "d3p1"] {
        let why = left_alone(&fixture, disk, "mirror");
        assert!(why.starts_with("exported, or"), "{disk}: {why}");
    }
    let tree = fixture.ok(&["tree"]);
    for name in ["mirror/", "multipath/"] {
        assert!(!tree.contains(name), "{tree}");
    }
    let now = names.map(|n| fs::read(fixture.path(&format!("{n}.img"))).unwrap());
    assert!(before == now, "it was written to by nobody");
    qemu_io(&fixture.url(3), &["read 0 4k"]).unwrap();

    fixture.configure(&disks, "");
    fixture.ok(&["apply"]);
    let found = || {
        fixture.provider("mirror/data").is_some() && fixture.provider("multipath/ways").is_some()
    };
    fixture.until("they are found", std::time::Duration::from_secs(30), found);
    assert!(fixture.provider("mirror/inner").is_some());
    fixture.stop();
}
