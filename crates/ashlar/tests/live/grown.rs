//! Disks that have grown while the daemon was off, or just before it was killed: their mirrors find
//! them, whichever other members are present.

use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::time::Duration;

use rig::peer::qemu_io;

use crate::fixture::{Fixture, file_disk};

const BYTES: u64 = 16 << 20;
const MORE: u64 = 4 << 20;
const LIMIT: Duration = Duration::from_secs(60);

/// A house with these disks of so many bytes.
fn fixture(name: &str, disks: &[&str]) -> Fixture {
    let mut house = Fixture::new(name);
    disks.iter().for_each(|disk| drop(house.image(&format!("{disk}.img"), BYTES)));
    configure(&house, disks, "");
    house.start_whole();
    house
}

fn configure(house: &Fixture, disks: &[&str], luns: &str) {
    let disks: String = disks.iter().map(|disk| file_disk(disk, &format!("{disk}.img"))).collect();
    house.configure(&disks, luns);
}

fn grow(house: &Fixture, disk: &str) -> File {
    let file = File::options().write(true).open(house.path(&format!("{disk}.img"))).unwrap();
    file.set_len(BYTES + MORE).unwrap();
    file
}

fn run(house: &Fixture, lun: u64, words: &[&str]) {
    qemu_io(&house.url(lun), words).unwrap();
}

fn until_there(house: &Fixture, name: &str) {
    house.until(&format!("{name} is there"), LIMIT, || house.provider(name).is_some());
}

/// The mirror has both members, and they are the same.
fn until_whole(house: &Fixture) {
    let whole = || house.ok(&["mirror", "status"]).contains("COMPLETE");
    house.until("the mirror is whole", LIMIT, whole);
}

#[test]
fn members_of_every_class_are_found_after_growing_offline() {
    const DISKS: [&str; 8] = ["a0", "a1", "s0", "s1", "c0", "c1", "r0", "r1"];
    let mut house = fixture("grown", &DISKS);
    house.ok(&["mirror", "label", "m", "a0", "a1"]);
    house.ok(&["stripe", "label", "s", "s0", "s1"]);
    house.ok(&["concat", "label", "c", "c0", "c1"]);
    let made = house.json(&["raid", "label", "Intel", "data", "RAID1", "r0", "r1"]);
    let volume = made["answer"]["provider"].as_str().unwrap().to_owned();
    let names = ["mirror/m", "stripe/s", "concat/c", &volume];
    let luns: Vec<String> =
        names.iter().enumerate().map(|(lun, name)| format!("{lun} = \"{name}\"")).collect();
    configure(&house, &DISKS, &luns.join(", "));
    house.ok(&["apply"]);
    for (lun, pattern) in (0..).zip(["1", "2", "3", "4"]) {
        run(&house, lun, &[&format!("write -P {pattern} 0 2M"), "flush"]);
    }
    house.stop();
    DISKS.iter().for_each(|disk| drop(grow(&house, disk)));
    house.start_whole();
    names.iter().for_each(|name| until_there(&house, name));
    until_whole(&house);
    for (lun, pattern) in (0..).zip(["1", "2", "3", "4"]) {
        run(&house, lun, &[&format!("read -P {pattern} 0 2M")]);
    }
    let journal = house.ok(&["journal"]);
    // All but the first member of the concat, whose label has to stay.
    assert_eq!(journal.matches("the label was moved to the end").count(), 7, "{journal}");
    house.ashlar(&["status"]).ends(3).prints(&["c0 grew, but it is not the last"]);
    house.stop();
}

#[test]
fn stale_member_is_not_preferred_over_a_grown_one() {
    let mut house = fixture("grown-stale", &["d0", "d1"]);
    house.ok(&["mirror", "label", "m", "d0", "d1"]);
    until_whole(&house);
    let lun = "0 = \"mirror/m\"";
    configure(&house, &["d0", "d1"], lun);
    house.ok(&["apply"]);
    run(&house, 0, &["write -P 1 0 2M", "flush"]);
    house.stop();
    // Without the second one.
    configure(&house, &["d0"], lun);
    house.start_whole();
    until_there(&house, "mirror/m");
    run(&house, 0, &["write -P 2 0 2M", "flush"]);
    house.kill();
    drop(grow(&house, "d0"));
    configure(&house, &["d0", "d1"], lun);
    house.start_whole();
    until_there(&house, "mirror/m");
    run(&house, 0, &["read -P 2 0 2M"]);
    until_whole(&house);
    run(&house, 0, &["read -P 2 0 2M"]);
    house.stop();
}

#[test]
fn follow_requires_force_over_data_and_a_size_without_records() {
    let mut house = fixture("grown-asked", &["d0", "d1"]);
    house.ok(&["mirror", "label", "m", "d0", "d1"]);
    until_whole(&house);
    house.stop();
    let file = grow(&house, "d0");
    file.write_all_at(b"EFI PART", BYTES + MORE - 512).unwrap();
    house.start_whole();
    until_there(&house, "mirror/m");
    let asked = format!("ashlar mirror follow d0 --was {BYTES} --force");
    let said = house.ashlar(&["journal"]).ends(0);
    said.prints(&["d0", "d0 may be one of mirror", "at its end is a GPT header", &asked]);
    let words: Vec<&str> = asked.split(' ').skip(1).collect();
    house.ashlar(&words).ends(0);
    until_whole(&house);
    house.stop();
    // The state folder is lost.
    fs::remove_dir_all(house.path("units")).unwrap();
    let file = File::options().write(true).open(house.path("d0.img")).unwrap();
    file.set_len(BYTES + 2 * MORE).unwrap();
    house.start_whole();
    until_there(&house, "mirror/m");
    assert!(!house.ok(&["mirror", "status"]).contains("COMPLETE"));
    house.ok(&["mirror", "follow", "d0", "--was", &(BYTES + MORE).to_string()]);
    until_whole(&house);
    house.stop();
}
