//! Identity of disks as initiators see it: VPD pages read by `iscsi-inq`, over moves of files,
//! renames of sections, lost records, copies and changes of the configuration.

use std::fs;
use std::path::Path;
use std::process::Command;

use rig::peer;

use crate::fixture::{Fixture, IQN, file_disk};
use testkit::iscsi::initiator::Client;

const DISK_BYTES: u64 = 4 << 20;
const CONFLICT: u8 = 0x18;

/// The serial number of a LUN in VPD page 80h.
fn serial(house: &Fixture, lun: u64) -> String {
    let page = peer::iscsi_inq(&house.url(lun), Some(0x80)).unwrap();
    let (_, rest) = page.split_once("Unit Serial Number:[").expect(&page);
    rest.split(']').next().unwrap().to_owned()
}

/// VPD page 83h of a LUN, from its first designator on.
fn names(house: &Fixture, lun: u64) -> Vec<u8> {
    let mut raw = Client::session(house.portal(), "iqn.2024-01.test:names", IQN).unwrap();
    raw.lun = u8::try_from(lun).unwrap();
    raw.must(&[0x12, 1, 0x83, 0, 0xFF, 0], 255)
}

fn apply(house: &Fixture, disks: &str, luns: &str) {
    house.configure(disks, luns);
    house.ashlar(&["apply"]).ends(0);
}

/// Copies a file with its extended attributes.
fn copy_whole(from: &Path, to: &Path) {
    let mut copy = Command::new("cp");
    copy.args(["--preserve=xattr", "--sparse=always"]).arg(from).arg(to);
    assert!(copy.status().unwrap().success());
}

/// A file loses its extended attributes, as a backup that is copied back does.
fn forget_attributes(path: &Path) {
    let copy = path.with_extension("copy");
    let done = Command::new("cp").arg("--no-preserve=all").arg(path).arg(&copy).status();
    assert!(done.unwrap().success());
    fs::rename(copy, path).unwrap();
}

/// An initiator that has no unit attention pending.
fn login(house: &Fixture, name: &str) -> Client {
    let mut raw = Client::session(house.portal(), name, IQN).unwrap();
    assert_eq!(raw.scsi(&[0; 6], 0, &[]).unwrap().status, 2, "a reset to hear of");
    raw
}

/// PERSISTENT RESERVE OUT with APTPL: registers a key, then reserves.
fn reserve(house: &Fixture) {
    let mut raw = login(house, "iqn.2024-01.test:a");
    for (action, kind, key, new) in [(6, 0, 0u64, 1u64), (1, 5, 1, 0)] {
        let mut list = [0; 24];
        list[..8].copy_from_slice(&key.to_be_bytes());
        list[8..16].copy_from_slice(&new.to_be_bytes());
        list[20] = 1;
        let cdb = [0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0];
        assert_eq!(raw.scsi(&cdb, 0, &list).unwrap().status, 0);
    }
}

fn is_reserved(house: &Fixture) -> bool {
    let mut raw = login(house, "iqn.2024-01.test:b");
    raw.must(&[0x12, 1, 0x83, 0, 0xFF, 0], 255);
    let write = [0x2A, 0, 0, 0, 0, 8, 0, 0, 1, 0];
    raw.scsi(&write, 0, &[7; 512]).unwrap().status == CONFLICT
}

fn fixture(name: &str) -> Fixture {
    let mut house = Fixture::new(name);
    house.image("d0.img", DISK_BYTES);
    house.configure(&file_disk("d0", "d0.img"), "0 = \"d0\"");
    house.start();
    house
}

#[test]
fn identity_and_reservations_survive_rename_move_and_lost_records() {
    let mut house = fixture("identities");
    let first = serial(&house, 0);
    let pages = names(&house, 0);
    assert_eq!(first.len(), 16, "{first}");
    let disk = house.state()["disks"][0].take();
    assert_eq!(disk["serial"], first.as_str());
    assert_eq!(disk["identity"], "in the image (user.ashlar.identity)");
    reserve(&house);
    assert!(is_reserved(&house));

    // The file moves, and its section has another name.
    fs::rename(house.path("d0.img"), house.path("moved.img")).unwrap();
    house.configure(&file_disk("renamed", "moved.img"), "0 = \"renamed\"");
    let _session = login(&house, "iqn.2024-01.test:c");
    let plan = house.ashlar(&["plan"]);
    assert!(plan.out.contains(&format!("LUN 0 is the same disk for hosts: serial number {first}")));
    assert!(!plan.out.contains("destroys"), "{plan}");
    house.ashlar(&["apply"]).ends(0);
    assert_eq!((serial(&house, 0), names(&house, 0)), (first.clone(), pages.clone()));
    assert!(is_reserved(&house));

    // A backup without attributes is copied back.
    house.stop();
    forget_attributes(&house.path("moved.img"));
    house.start();
    assert_eq!(serial(&house, 0), first);
    assert!(is_reserved(&house));

    // The state folder is lost; the image has the identity again.
    house.stop();
    fs::remove_dir_all(house.path("units")).unwrap();
    house.start();
    assert_eq!((serial(&house, 0), names(&house, 0)), (first.clone(), pages));

    // Another image takes the place of this one, whose file is removed.
    house.stop();
    fs::remove_file(house.path("moved.img")).unwrap();
    let made = file_disk("renamed", "moved.img") + "create = true\nsize = \"4MiB\"\n";
    house.configure(&made, "0 = \"renamed\"");
    house.start();
    assert_ne!(serial(&house, 0), first, "made anew");
    house.stop();
}

#[test]
fn daemons_of_one_machine_give_their_disks_different_identities() {
    let mut house = Fixture::new("identities-machine");
    let memory = "[[disk]]\nname = \"m\"\nkind = \"memory\"\nsize = \"1MiB\"\n";
    house.configure(memory, "0 = \"m\"");
    house.start();
    let mut other = house.sibling("identities-other", "");
    apply(&other, memory, "0 = \"m\"");
    let first = serial(&house, 0);
    assert_ne!(first, serial(&other, 0));
    other.stop();
    house.stop();
    house.start();
    assert_eq!(serial(&house, 0), first, "the state folder has it");
    house.stop();
}

#[test]
fn identity_beside_the_image_is_found_and_moves_with_it() {
    let mut house = fixture("identities-beside");
    let first = serial(&house, 0);
    house.stop();
    // As on a file system without attributes, and with another daemon's state folder.
    fs::remove_dir_all(house.path("units")).unwrap();
    forget_attributes(&house.path("d0.img"));
    fs::rename(house.path("d0.img"), house.path("e.img")).unwrap();
    fs::write(house.path("e.img.ashlar-id"), format!("1 {first}\n")).unwrap();
    house.configure(&file_disk("d0", "e.img"), "0 = \"d0\"");
    house.start();
    assert_eq!(serial(&house, 0), first);
    house.stop();
    // An invalid record is overwritten.
    fs::remove_dir_all(house.path("units")).unwrap();
    forget_attributes(&house.path("e.img"));
    fs::write(house.path("e.img.ashlar-id"), "1 no identity\n").unwrap();
    house.start();
    assert_ne!(serial(&house, 0), first);
    house.stop();
}

/// FNV-1a, as versions before made serial numbers from the machine's id.
fn fnv(parts: &[&[u8]]) -> String {
    let step = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let all = parts.iter().copied().flatten();
    format!("{:016x}", all.fold(0xcbf2_9ce4_8422_2325, step))
}

fn derived(kind: &str, place: &str, name: &str) -> String {
    let machine = fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let disk = fnv(&[format!("{}\n{kind}\n{place}", machine.trim()).as_bytes()]);
    fnv(&[disk.as_bytes(), &[0], name.as_bytes(), &[0]])
}

#[test]
fn disk_identities_survive_an_upgrade() {
    let mut house = Fixture::new("identities-upgrade");
    let path = house.image("d0.img", DISK_BYTES);
    let path = fs::canonicalize(path).unwrap().display().to_string();
    let memory = "[[disk]]\nname = \"m\"\nkind = \"memory\"\nsize = \"1MiB\"\n";
    let disks = |name: &str, file: &str| format!("{}\n{memory}", file_disk(name, file));
    house.configure(&disks("d0", "d0.img"), "0 = \"d0\", 1 = \"m\"");
    house.start();
    house.stop();
    // State of an earlier version: other records, and images without attributes.
    for file in fs::read_dir(house.path("units")).unwrap() {
        let file = file.unwrap().path();
        if file.to_str().unwrap().contains(".identities") {
            fs::remove_file(file).unwrap();
        }
    }
    assert!(fs::read_dir(house.path("units")).unwrap().count() > 0);
    forget_attributes(&house.path("d0.img"));
    house.start();
    let old = derived("file", &path, "d0");
    assert_eq!(serial(&house, 0), old);
    assert_eq!(serial(&house, 1), derived("memory", "m", "m"));
    // From then on it is stored: a move and a rename change nothing, a new disk has its own.
    house.image("d1.img", DISK_BYTES);
    fs::rename(house.path("d0.img"), house.path("moved.img")).unwrap();
    let new = format!("{}\n{}", disks("x", "moved.img"), file_disk("d1", "d1.img"));
    apply(&house, &new, "0 = \"x\", 1 = \"m\", 2 = \"d1\"");
    assert_eq!(serial(&house, 0), old);
    let d1 = fs::canonicalize(house.path("d1.img")).unwrap().display().to_string();
    assert_ne!(serial(&house, 2), derived("file", &d1, "d1"));
    house.stop();
}

#[test]
fn copy_of_an_image_is_not_exported_beside_it() {
    let mut house = fixture("identities-copy");
    let first = serial(&house, 0);
    copy_whole(&house.path("d0.img"), &house.path("a.img"));
    let both = format!("{}\n{}", file_disk("d0", "d0.img"), file_disk("a", "a.img"));
    house.configure(&both, "0 = \"d0\", 1 = \"a\"");
    let words = format!("a: serial number {first} belongs to d0");
    house.ashlar(&["plan"]).prints(&[&words]);
    let said = house.ashlar(&["apply"]).ends(1);
    said.complains(&[&words]).complains(&["[[unit]] provider = \"a\", serial = \"...\""]);
    assert!(house.provider("a").is_none(), "nothing has changed");
    // A start serves the original, though the name of the copy is first in the order of names.
    house.stop();
    house.start();
    assert_eq!(serial(&house, 0), first);
    house.ashlar(&["status"]).ends(3).prints(&["LUN 1 (a) cannot be exported", &first]);
    // With a serial number of its own it is another disk.
    let own = format!("{both}\n[[unit]]\nprovider = \"a\"\nserial = \"COPY-1\"\n");
    apply(&house, &own, "0 = \"d0\", 1 = \"a\"");
    assert_eq!((serial(&house, 0), serial(&house, 1)), (first.clone(), "COPY-1".to_owned()));
    house.ashlar(&["status"]).ends(0);
    // Both are new, at two targets; and a LUN moves from the original to the copy.
    apply(&house, "", "");
    let second = "[[target]]\nname = \"iqn.2026-11.test.ashlar:second\"\ndriver = \"iscsi\"\n\
        listen = [\"127.0.0.1:0\"]\n[[access]]\ntarget = \"iqn.2026-11.test.ashlar:second\"\n\
        group = \"g\"\ninitiators = [\"*\"]\nluns = { 0 = \"a\" }\n";
    house.configure(&format!("{both}\n{second}"), "0 = \"d0\"");
    let words = format!("d0: serial number {first} belongs to a");
    house.ashlar(&["plan"]).prints(&[&words]);
    house.ashlar(&["apply", "--dry-run"]).ends(1).complains(&[&words]);
    house.ashlar(&["apply"]).ends(1).complains(&[&words]);
    apply(&house, &both, "0 = \"d0\"");
    apply(&house, &both, "");
    apply(&house, &both, "0 = \"a\"");
    assert_eq!(serial(&house, 0), first, "the original is not exported");
    house.stop();
}

#[test]
fn identity_of_a_read_only_image_is_kept_in_the_state_folder() {
    let mut house = Fixture::new("identities-read");
    house.image("cd.iso", DISK_BYTES);
    let only = |name: &str| file_disk(name, "cd.iso") + "read_only = true\n";
    let luns = |a: &str| format!("0 = {{ provider = \"{a}\", mode = \"ro\" }}");
    let both = format!("{}, 1 = {{ provider = \"b\", mode = \"ro\" }}", luns("a"));
    house.configure(&(only("a") + &only("b")), &both);
    house.start();
    let first = serial(&house, 0);
    assert_ne!(first, serial(&house, 1), "two sections of one image are two disks");
    let stored = house.state()["disks"][0]["identity"].take();
    assert_eq!(stored, "in the state folder only: it can only be read");
    house.stop();
    house.configure(&only("a"), &luns("a"));
    house.start();
    assert_eq!(serial(&house, 0), first);
    let _session = login(&house, "iqn.2024-01.test:host");
    house.configure(&only("renamed"), &luns("renamed"));
    house.ashlar(&["plan"]).prints(&[&format!("the same disk for hosts: serial number {first}")]);
    house.ashlar(&["apply"]).ends(0);
    assert_eq!(serial(&house, 0), first);
    house.stop();
}

/// Whether a page of designators has this one.
fn has(page: &[u8], kind: u8, body: &[u8]) -> bool {
    let mut rest = page.get(4..).unwrap_or_default();
    while let [_, found, _, len, more @ ..] = rest {
        let (own, next) = more.split_at(usize::from(*len).min(more.len()));
        if found & 0x3F == kind && own == body {
            return true;
        }
        rest = next;
    }
    false
}

#[test]
fn configured_serials_and_names_are_reported_to_initiators() {
    let mut house = fixture("identities-given");
    let first = serial(&house, 0);
    let disk = file_disk("d0", "d0.img");
    let unit = |rest: &str| format!("{disk}\n[[unit]]\nprovider = \"d0\"\n{rest}\n");
    house.ashlar(&["plan"]).prints(&["no changes"]);
    let session = login(&house, "iqn.2024-01.test:host");
    house.configure(&unit("serial = \"Shelf 7/Disk-1\""), "0 = \"d0\"");
    let words = [
        "destroys: in use by iqn.2024-01.test:host",
        "LUN 0 is another disk for hosts",
        &format!("serial number {first} -> Shelf 7/Disk-1"),
    ];
    house.ashlar(&["plan"]).prints(&words);
    house.ashlar(&["apply"]).ends(4);
    assert_eq!(serial(&house, 0), first, "nothing was done without consent");
    drop(session);
    house.until("the session is over", std::time::Duration::from_secs(20), || {
        house.state()["targets"][0]["sessions"].as_array().is_none_or(Vec::is_empty)
    });
    house.ashlar(&["apply"]).ends(0);
    assert_eq!(serial(&house, 0), "Shelf 7/Disk-1");
    let mut t10 = b"ASHLAR  VIRTUAL DISK    ".to_vec();
    t10.extend(b"Shelf 7/Disk-1");
    assert!(has(&names(&house, 0), 1, &t10));
    house.ashlar(&["plan"]).prints(&["no changes"]);

    let all = "naa = \"5000c500a1b2c3d4\"\nuuid = \"01234567-89ab-cdef-0123-456789abcdef\"\n\
               eui64 = \"0011223344556677\"";
    apply(&house, &unit(all), "0 = \"d0\"");
    assert_eq!(serial(&house, 0), first);
    let page = names(&house, 0);
    assert!(has(&page, 3, &[0x50, 0, 0xC5, 0, 0xA1, 0xB2, 0xC3, 0xD4]), "{page:02x?}");
    assert!(has(&page, 2, &[0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77]), "{page:02x?}");
    let uuid = [1, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF];
    assert!(has(&page, 0xA, &[&[0x10, 0], &uuid[..], &uuid].concat()), "{page:02x?}");
    let lun = house.state()["targets"][0]["groups"][0]["luns"][0].take();
    assert_eq!(lun["naa"], "5000c500a1b2c3d4", "{lun}");
    assert_eq!(lun["uuid"], "01234567-89ab-cdef-0123-456789abcdef", "{lun}");
    assert_eq!(lun["eui64"], "0011223344556677", "{lun}");

    apply(&house, &format!("{disk}naa = \"3000c500a1b2c3d4\"\n"), "0 = \"d0\"");
    assert!(has(&names(&house, 0), 3, &[0x30, 0, 0xC5, 0, 0xA1, 0xB2, 0xC3, 0xD4]));
    apply(&house, &disk, "0 = { provider = \"d0\", serial = \"OF-LUN\" }");
    assert_eq!(serial(&house, 0), "OF-LUN");

    // The same for the disk's own identity; an invalid value is refused with its place.
    apply(&house, &format!("{disk}serial = \"OF-DISK\"\n"), "0 = \"d0\"");
    assert_eq!(serial(&house, 0), "OF-DISK");
    house.configure(&unit("naa = \"7000c500a1b2c3d4\""), "0 = \"d0\"");
    house.ashlar(&["plan"]).ends(2).complains(&["is no NAA name"]);
    apply(&house, &disk, "0 = \"d0\"");
    assert_eq!(serial(&house, 0), first, "its own again");
    house.stop();
}
