//! `ashlar cam` as a new user types it: an HBA is attached, its disks are looked at and used like
//! any others, and it goes when nobody uses them.

mod house;

use house::House;

fn words(line: &str) -> Vec<&str> {
    line.split(' ').collect()
}

#[test]
fn disks_of_a_virtual_hba_are_used_like_any_others() {
    let mut house = House::new("cam");
    house.configure("", "");
    house.start();
    let says = |line: &str, wanted: &[&str]| {
        house.ashlar(&words(line)).ends(0).says(wanted);
    };
    says("cam attach mps0 --disks 2 --size 64MiB", &["scbus0: da0, da1"]);
    says("cam attach ahcich0 --transport sata", &["scbus1: ada0"]);
    says("cam devlist -v", &["scbus0 on mps0 bus 0:", "at scbus0 target 1 lun 0 (da1)", "(ada0)"]);
    says("cam inquiry da0", &["Fixed Direct Access SPC-4", "Serial Number mps0-0"]);
    says("cam identify ada0", &["serial number         ahcich0-0"]);
    says("cam readcap da0", &["Last Block: 131071, Block Length: 512 bytes"]);
    says("cam reportluns da0", &["1 LUN found"]);
    says("cam tags da0 -N 8", &["(da0:mps0:0:0:0): maxtags       8"]);
    says("cam rescan", &["nothing is new"]);
    let list = house.ashlar(&words("--json cam devlist")).ends(0).json();
    assert_eq!(list["answer"]["buses"][0]["devices"][1]["periph"], "da1");
    says("mirror label m da0 da1", &[]);
    says("mirror status", &["mirror/m", "da0", "da1"]);
    says("cam reset da0", &["da0 was reset"]);
    house.ashlar(&words("cam detach mps0")).complains(&["is open"]);
    house.ashlar(&words("cam inquiry da7")).complains(&["devlist"]);
    says("cam detach ahcich0", &["ahcich0 is gone"]);
}
