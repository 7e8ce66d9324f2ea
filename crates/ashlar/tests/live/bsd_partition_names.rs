//! Partitions of a BSD label, which are named by letters, on a disk that gets another name in
//! ashlar.toml. Their LUNs follow it while a host writes and verifies on them.

use crate::edits::Host;
use crate::fixture::{Fixture, file_disk};

const BYTES: u64 = 32 << 20;

fn configure(fixture: &Fixture, disk: &str, lun: &str) {
    let disks = format!("[daemon]\nstate = \"units\"\n{}", file_disk(disk, "d0.img"));
    fixture
        .configure(&disks, &if lun.is_empty() { String::new() } else { format!("0 = \"{lun}\"") });
}

#[test]
fn bsd_partition_follows_its_renamed_disk_while_a_host_writes() {
    let mut fixture = Fixture::new("letters");
    fixture.image("d0.img", BYTES);
    configure(&fixture, "d0", "");
    fixture.start();
    fixture.ok(&["part", "create", "-s", "bsd", "d0"]);
    fixture.ok(&["part", "add", "-t", "freebsd-ufs", "-s", "8M", "d0"]);
    assert!(fixture.provider("d0a").is_some(), "{}", fixture.ok(&["list", "providers"]));
    configure(&fixture, "d0", "d0a");
    fixture.ok(&["apply"]);
    let host = Host::start(&fixture, 0, 1);
    for (disk, was) in [("data", "d0"), ("e", "data"), ("d0", "e")] {
        let lun = format!("{disk}a");
        host.wait_for_rounds(&fixture, disk);
        configure(&fixture, disk, &lun);
        let plan = fixture.ashlar(&["plan"]).ends(6);
        assert!(plan.out.contains(&format!("rename disk {was} to {disk}")), "{plan}");
        assert!(plan.out.contains("1 step, at worst safe"), "{plan}");
        fixture.ok(&["apply"]);
        fixture.ashlar(&["plan"]).ends(0);
        host.wait_for_rounds(&fixture, disk);
        assert!(fixture.provider(&lun).is_some(), "{}", fixture.ok(&["list", "providers"]));
        assert!(fixture.provider(&format!("{was}a")).is_none(), "{was}a is there still");
    }
    // The disk has another name, and the LUN is written as it was: it is another disk's.
    configure(&fixture, "data", "d0a");
    fixture.ashlar(&["plan"]).ends(6).prints(&["destroys: in use by", "LUN 0 is another disk"]);
    fixture.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy"]);
    host.wait_for_rounds(&fixture, "refused");
    host.stop();
    fixture.stop();
    // The name was changed while the daemon was off.
    configure(&fixture, "data", "dataa");
    fixture.start_whole();
    let host = Host::start(&fixture, 0, 1);
    host.wait_for_rounds(&fixture, "after a start");
    host.stop();
    fixture.stop();
}
