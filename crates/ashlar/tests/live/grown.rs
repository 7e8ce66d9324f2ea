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

/// A fixture with these disks of so many bytes.
fn build_fixture(name: &str, disks: &[&str]) -> Fixture {
    let mut fixture = Fixture::new(name);
    disks.iter().for_each(|disk| drop(fixture.image(&format!("{disk}.img"), BYTES)));
    configure(&fixture, disks, "");
    fixture.start_whole();
    fixture
}

fn configure(fixture: &Fixture, disks: &[&str], luns: &str) {
    let disks: String = disks.iter().map(|disk| file_disk(disk, &format!("{disk}.img"))).collect();
    fixture.configure(&disks, luns);
}

fn grow(fixture: &Fixture, disk: &str) -> File {
    let file = File::options().write(true).open(fixture.path(&format!("{disk}.img"))).unwrap();
    file.set_len(BYTES + MORE).unwrap();
    file
}

fn run(fixture: &Fixture, lun: u64, words: &[&str]) {
    qemu_io(&fixture.url(lun), words).unwrap();
}

fn until_there(fixture: &Fixture, name: &str) {
    fixture.until(&format!("{name} is there"), LIMIT, || fixture.provider(name).is_some());
}

/// The mirror has both members, and they are the same.
fn until_whole(fixture: &Fixture) {
    let is_complete = || fixture.ok(&["mirror", "status"]).contains("COMPLETE");
    fixture.until("the mirror is whole", LIMIT, is_complete);
}

#[test]
fn members_of_every_class_are_found_after_growing_offline() {
    const DISKS: [&str; 8] = ["a0", "a1", "s0", "s1", "c0", "c1", "r0", "r1"];
    let mut fixture = build_fixture("grown", &DISKS);
    fixture.ok(&["mirror", "label", "m", "a0", "a1"]);
    fixture.ok(&["stripe", "label", "s", "s0", "s1"]);
    fixture.ok(&["concat", "label", "c", "c0", "c1"]);
    let label = fixture.json(&["raid", "label", "Intel", "data", "RAID1", "r0", "r1"]);
    let volume = label["answer"]["provider"].as_str().unwrap().to_owned();
    let names = ["mirror/m", "stripe/s", "concat/c", &volume];
    let luns: Vec<String> =
        names.iter().enumerate().map(|(lun, name)| format!("{lun} = \"{name}\"")).collect();
    configure(&fixture, &DISKS, &luns.join(", "));
    fixture.ok(&["apply"]);
    for (lun, pattern) in (0..).zip(["1", "2", "3", "4"]) {
        run(&fixture, lun, &[&format!("write -P {pattern} 0 2M"), "flush"]);
    }
    fixture.stop();
    DISKS.iter().for_each(|disk| drop(grow(&fixture, disk)));
    fixture.start_whole();
    names.iter().for_each(|name| until_there(&fixture, name));
    until_whole(&fixture);
    for (lun, pattern) in (0..).zip(["1", "2", "3", "4"]) {
        run(&fixture, lun, &[&format!("read -P {pattern} 0 2M")]);
    }
    let journal = fixture.ok(&["journal"]);
    // All but the first member of the concat, whose label has to stay.
    assert_eq!(journal.matches("the label was moved to the end").count(), 7, "{journal}");
    fixture.ashlar(&["status"]).ends(3).prints(&["c0 grew, but it is not the last"]);
    fixture.stop();
}

#[test]
fn stale_member_is_not_preferred_over_a_grown_one() {
    let mut fixture = build_fixture("grown-stale", &["d0", "d1"]);
    fixture.ok(&["mirror", "label", "m", "d0", "d1"]);
    until_whole(&fixture);
    let lun = "0 = \"mirror/m\"";
    configure(&fixture, &["d0", "d1"], lun);
    fixture.ok(&["apply"]);
    run(&fixture, 0, &["write -P 1 0 2M", "flush"]);
    fixture.stop();
    // Without the second one.
    configure(&fixture, &["d0"], lun);
    fixture.start_whole();
    until_there(&fixture, "mirror/m");
    run(&fixture, 0, &["write -P 2 0 2M", "flush"]);
    fixture.kill();
    drop(grow(&fixture, "d0"));
    configure(&fixture, &["d0", "d1"], lun);
    fixture.start_whole();
    until_there(&fixture, "mirror/m");
    run(&fixture, 0, &["read -P 2 0 2M"]);
    until_whole(&fixture);
    run(&fixture, 0, &["read -P 2 0 2M"]);
    fixture.stop();
}

#[test]
fn follow_requires_force_over_data_and_a_size_without_records() {
    let mut fixture = build_fixture("grown-asked", &["d0", "d1"]);
    fixture.ok(&["mirror", "label", "m", "d0", "d1"]);
    until_whole(&fixture);
    fixture.stop();
    let file = grow(&fixture, "d0");
    file.write_all_at(b"EFI PART", BYTES + MORE - 512).unwrap();
    fixture.start_whole();
    until_there(&fixture, "mirror/m");
    let command = format!("ashlar mirror relocate d0 --was {BYTES} --force");
    let output = fixture.ashlar(&["journal"]).ends(0);
    output.prints(&["d0", "d0 may be one of mirror", "at its end is a GPT header", &command]);
    let words: Vec<&str> = command.split(' ').skip(1).collect();
    fixture.ashlar(&words).ends(0);
    until_whole(&fixture);
    fixture.stop();
    // The state folder is lost.
    fs::remove_dir_all(fixture.path("units")).unwrap();
    let file = File::options().write(true).open(fixture.path("d0.img")).unwrap();
    file.set_len(BYTES + 2 * MORE).unwrap();
    fixture.start_whole();
    until_there(&fixture, "mirror/m");
    assert!(!fixture.ok(&["mirror", "status"]).contains("COMPLETE"));
    fixture.ok(&["mirror", "relocate", "d0", "--was", &(BYTES + MORE).to_string()]);
    until_whole(&fixture);
    fixture.stop();
}

#[test]
fn resize_of_a_disk_is_answered_with_a_sentence() {
    let fixture = build_fixture("grown-sentence", &["d0"]);
    let same = format!("d0 has {BYTES} bytes, as before\n");
    assert_eq!(fixture.ok(&["disk", "resize", "d0"]), same);
    assert_eq!(fixture.ok(&["geom", "disk", "resize", "name=d0"]), same);
    let grown = BYTES + MORE;
    let answer = fixture.ok(&["disk", "resize", "d0", "--size", &grown.to_string()]);
    assert_eq!(answer, format!("d0 has {grown} bytes now; it had {BYTES}\n"));
    let json = fixture.json(&["disk", "resize", "d0"]);
    assert_eq!(json["answer"]["size"], grown, "{json}");
}
