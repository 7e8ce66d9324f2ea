//! Partitions of a BSD label, which are named by letters, on a disk that gets another name in
//! ashlar.toml: their LUNs follow it while a host writes and verifies on them.

use crate::edits::Host;
use crate::fixture::{Fixture, file_disk};

const BYTES: u64 = 32 << 20;

fn configure(house: &Fixture, disk: &str, lun: &str) {
    let disks = format!("[daemon]\nstate = \"units\"\n{}", file_disk(disk, "d0.img"));
    house.configure(&disks, &if lun.is_empty() { String::new() } else { format!("0 = \"{lun}\"") });
}

#[test]
fn bsd_partition_follows_its_renamed_disk_while_a_host_writes() {
    let mut house = Fixture::new("letters");
    house.image("d0.img", BYTES);
    configure(&house, "d0", "");
    house.start();
    house.ok(&["part", "create", "-s", "bsd", "d0"]);
    house.ok(&["part", "add", "-t", "freebsd-ufs", "-s", "8M", "d0"]);
    assert!(house.provider("d0a").is_some(), "{}", house.ok(&["list", "providers"]));
    configure(&house, "d0", "d0a");
    house.ok(&["apply"]);
    let host = Host::start(&house, 0, 1);
    for (disk, was) in [("data", "d0"), ("e", "data"), ("d0", "e")] {
        let lun = format!("{disk}a");
        host.wait_for_rounds(&house, disk);
        configure(&house, disk, &lun);
        let plan = house.ashlar(&["plan"]).ends(6);
        assert!(plan.out.contains(&format!("rename disk {was} to {disk}")), "{plan}");
        assert!(plan.out.contains("1 step, at worst safe"), "{plan}");
        house.ok(&["apply"]);
        house.ashlar(&["plan"]).ends(0);
        host.wait_for_rounds(&house, disk);
        assert!(house.provider(&lun).is_some(), "{}", house.ok(&["list", "providers"]));
        assert!(house.provider(&format!("{was}a")).is_none(), "{was}a is there still");
    }
    // The disk has another name, and the LUN is written as it was: it is another disk's.
    configure(&house, "data", "d0a");
    house.ashlar(&["plan"]).ends(6).prints(&["destroys: in use by", "LUN 0 is another disk"]);
    house.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy"]);
    host.wait_for_rounds(&house, "refused");
    host.stop();
    house.stop();
    // The name was changed while the daemon was off.
    configure(&house, "data", "dataa");
    house.start_whole();
    let host = Host::start(&house, 0, 1);
    host.wait_for_rounds(&house, "after a start");
    host.stop();
    house.stop();
}
