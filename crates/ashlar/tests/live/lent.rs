//! Data of initiators is theirs. A daemon exports two disks with labels of a mirror and of a
//! multipath that initiators made on their LUNs. After a restart it serves them and writes nothing
//! there by itself. When they are not exported any more they are tasted as ever.

use std::fs;

use rig::peer::qemu_io;

use crate::fixture::{self, Fixture, file_disk};

const BYTES: u64 = 4 << 20;

fn left_alone(house: &Fixture, disk: &str, class: &str) -> String {
    let found = house.provider(disk);
    let (_, provider) =
        found.unwrap_or_else(|| panic!("{disk}: {}", house.ok(&["list", "providers"])));
    let verdicts = fixture::array(&provider["why_not"]).iter();
    let ours = verdicts.filter(|v| fixture::text(&v["class"]) == class);
    ours.map(|v| fixture::text(&v["why"])).collect()
}

#[test]
fn exported_disks_with_mirror_labels_are_not_written_at_start() {
    let mut house = Fixture::new("lent");
    let names = ["d0", "d1", "d2", "d3"];
    names.iter().for_each(|name| drop(house.image(&format!("{name}.img"), BYTES)));
    let disks: String = names.iter().map(|n| file_disk(n, &format!("{n}.img"))).collect();
    house.configure(&disks, "");
    house.start();
    house.ok(&["mirror", "label", "data", "d0", "d1"]);
    house.ok(&["multipath", "label", "ways", "d2"]);
    // An exported partition is its initiators' too, and so is a mirror in it.
    house.ok(&["part", "create", "d3", "--scheme", "gpt"]);
    house.ok(&["part", "add", "d3", "--type", "freebsd-ufs"]);
    house.ok(&["mirror", "label", "inner", "d3p1"]);
    // The halves differ now: an initiator that has them as a mirror would rebuild one.
    house.ok(&["mirror", "deactivate", "data", "d1"]);
    house.ok(&["mirror", "activate", "data", "d1"]);
    house.kill();

    let images = || names.map(|n| fs::read(house.path(&format!("{n}.img"))).unwrap());
    let before = images();
    let luns = "0 = \"d0\", 1 = \"d1\", 2 = \"d2\", 3 = \"d3p1\"";
    house.configure(&disks, luns);
    house.start();
    for disk in ["d0", "d1", "d2", "d3p1"] {
        let why = left_alone(&house, disk, "mirror");
        assert!(why.starts_with("exported, or"), "{disk}: {why}");
    }
    let tree = house.ok(&["tree"]);
    for name in ["mirror/", "multipath/"] {
        assert!(!tree.contains(name), "{tree}");
    }
    let now = names.map(|n| fs::read(house.path(&format!("{n}.img"))).unwrap());
    assert!(before == now, "it was written to by nobody");
    qemu_io(&house.url(3), &["read 0 4k"]).unwrap();

    house.configure(&disks, "");
    house.ok(&["apply"]);
    let found =
        || house.provider("mirror/data").is_some() && house.provider("multipath/ways").is_some();
    house.until("they are found", std::time::Duration::from_secs(30), found);
    assert!(house.provider("mirror/inner").is_some());
    house.stop();
}
