//! Identity of disks as initiators see it: VPD pages read by `iscsi-inq`, over moves of files,
//! renames of sections, lost records, copies and changes of the configuration.

use std::fs;
use std::path::Path;
use std::process::Command;

use rig::peer;

use crate::fixture::{Fixture, IQN, file_disk};
use crate::reservations::login;
use testkit::iscsi::initiator::Client;

const DISK_BYTES: u64 = 4 << 20;
const CONFLICT: u8 = 0x18;

/// The serial number of a LUN in VPD page 80h.
fn serial(fixture: &Fixture, lun: u64) -> String {
    let page = peer::iscsi_inq(&fixture.url(lun), Some(0x80)).unwrap();
    let (_, rest) = page.split_once("Unit Serial Number:[").expect(&page);
    rest.split(']').next().unwrap().to_owned()
}

/// VPD page 83h of a LUN, from its first designator on.
fn names(fixture: &Fixture, lun: u64) -> Vec<u8> {
    let mut raw = Client::session(fixture.portal(), "iqn.2024-01.test:names", IQN).unwrap();
    raw.lun = u8::try_from(lun).unwrap();
    raw.must(&[0x12, 1, 0x83, 0, 0xFF, 0], 255)
}

fn apply(fixture: &Fixture, disks: &str, luns: &str) {
    fixture.configure(disks, luns);
    fixture.ashlar(&["apply"]).ends(0);
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

/// PERSISTENT RESERVE OUT with APTPL: registers a key, then reserves.
fn reserve(fixture: &Fixture) {
    let mut raw = login(fixture, "iqn.2024-01.test:a");
    for (action, kind, key, new) in [(6, 0, 0u64, 1u64), (1, 5, 1, 0)] {
        let mut list = [0; 24];
        list[..8].copy_from_slice(&key.to_be_bytes());
        list[8..16].copy_from_slice(&new.to_be_bytes());
        list[20] = 1;
        let cdb = [0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0];
        assert_eq!(raw.scsi(&cdb, 0, &list).unwrap().status, 0);
    }
}

fn is_reserved(fixture: &Fixture) -> bool {
    let mut raw = login(fixture, "iqn.2024-01.test:b");
    raw.must(&[0x12, 1, 0x83, 0, 0xFF, 0], 255);
    let write = [0x2A, 0, 0, 0, 0, 8, 0, 0, 1, 0];
    raw.scsi(&write, 0, &[7; 512]).unwrap().status == CONFLICT
}

#[test]
fn identity_and_reservations_survive_rename_move_and_lost_records() {
    let mut fixture = Fixture::new("identities").with_disk(DISK_BYTES);
    let first = serial(&fixture, 0);
    let pages = names(&fixture, 0);
    assert_eq!(first.len(), 16, "{first}");
    let disk = fixture.state()["disks"][0].take();
    assert_eq!(disk["serial"], first.as_str());
    assert_eq!(disk["identity"], "in the image (user.ashlar.identity)");
    reserve(&fixture);
    assert!(is_reserved(&fixture));

    // The file moves, and its section has another name.
    fs::rename(fixture.path("d0.img"), fixture.path("moved.img")).unwrap();
    fixture.configure(&file_disk("renamed", "moved.img"), "0 = \"renamed\"");
    let _session = login(&fixture, "iqn.2024-01.test:c");
    let plan = fixture.ashlar(&["plan"]);
    assert!(plan.out.contains(&format!("LUN 0 is the same disk for hosts: serial number {first}")));
    assert!(!plan.out.contains("destroys"), "{plan}");
    fixture.ashlar(&["apply"]).ends(0);
    assert_eq!((serial(&fixture, 0), names(&fixture, 0)), (first.clone(), pages.clone()));
    assert!(is_reserved(&fixture));

    // A backup without attributes is copied back.
    fixture.stop();
    forget_attributes(&fixture.path("moved.img"));
    fixture.start();
    assert_eq!(serial(&fixture, 0), first);
    assert!(is_reserved(&fixture));

    // The state folder is lost; the image has the identity again.
    fixture.stop();
    fs::remove_dir_all(fixture.path("units")).unwrap();
    fixture.start();
    assert_eq!((serial(&fixture, 0), names(&fixture, 0)), (first.clone(), pages));

    // Another image takes the place of this one, whose file is removed.
    fixture.stop();
    fs::remove_file(fixture.path("moved.img")).unwrap();
    let made = file_disk("renamed", "moved.img") + "create = true\nsize = \"4MiB\"\n";
    fixture.configure(&made, "0 = \"renamed\"");
    fixture.start();
    fixture.ashlar(&["plan"]).prints(&["existed before", "the daemon waits for it"]);
    assert!(!fixture.path("moved.img").exists(), "it may be lost");
    apply(&fixture, "", "");
    apply(&fixture, &made, "0 = \"renamed\"");
    assert_ne!(serial(&fixture, 0), first, "made anew");
    fixture.stop();
}

#[test]
fn daemons_of_one_machine_give_their_disks_different_identities() {
    let mut fixture = Fixture::new("identities-machine");
    let memory = "[[disk]]\nname = \"m\"\nkind = \"memory\"\nsize = \"1MiB\"\n";
    fixture.configure(memory, "0 = \"m\"");
    fixture.start();
    let mut other = fixture.sibling("identities-other", "");
    apply(&other, memory, "0 = \"m\"");
    let first = serial(&fixture, 0);
    assert_ne!(first, serial(&other, 0));
    other.stop();
    fixture.stop();
    fixture.start();
    assert_eq!(serial(&fixture, 0), first, "the state folder has it");
    fixture.stop();
}

#[test]
fn identity_beside_the_image_is_found_and_moves_with_it() {
    let mut fixture = Fixture::new("identities-beside").with_disk(DISK_BYTES);
    let first = serial(&fixture, 0);
    fixture.stop();
    // As on a file system without attributes, and with another daemon's state folder.
    fs::remove_dir_all(fixture.path("units")).unwrap();
    forget_attributes(&fixture.path("d0.img"));
    fs::rename(fixture.path("d0.img"), fixture.path("e.img")).unwrap();
    fs::write(fixture.path("e.img.ashlar-id"), format!("1 {first}\n")).unwrap();
    fixture.configure(&file_disk("d0", "e.img"), "0 = \"d0\"");
    fixture.start();
    assert_eq!(serial(&fixture, 0), first);
    fixture.stop();
    // An invalid record is overwritten.
    fs::remove_dir_all(fixture.path("units")).unwrap();
    forget_attributes(&fixture.path("e.img"));
    fs::write(fixture.path("e.img.ashlar-id"), "1 no identity\n").unwrap();
    fixture.start();
    assert_ne!(serial(&fixture, 0), first);
    fixture.stop();
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
    let mut fixture = Fixture::new("identities-upgrade");
    let path = fixture.image("d0.img", DISK_BYTES);
    let path = fs::canonicalize(path).unwrap().display().to_string();
    let memory = "[[disk]]\nname = \"m\"\nkind = \"memory\"\nsize = \"1MiB\"\n";
    let disks = |name: &str, file: &str| format!("{}\n{memory}", file_disk(name, file));
    fixture.configure(&disks("d0", "d0.img"), "0 = \"d0\", 1 = \"m\"");
    fixture.start();
    fixture.stop();
    // State of an earlier version: other records, and images without attributes.
    for file in fs::read_dir(fixture.path("units")).unwrap() {
        let file = file.unwrap().path();
        if file.to_str().unwrap().contains(".identities") {
            fs::remove_file(file).unwrap();
        }
    }
    assert!(fs::read_dir(fixture.path("units")).unwrap().count() > 0);
    forget_attributes(&fixture.path("d0.img"));
    fixture.start();
    let old = derived("file", &path, "d0");
    assert_eq!(serial(&fixture, 0), old);
    assert_eq!(serial(&fixture, 1), derived("memory", "m", "m"));
    // From then on it is stored: a move and a rename change nothing, a new disk has its own.
    fixture.image("d1.img", DISK_BYTES);
    fs::rename(fixture.path("d0.img"), fixture.path("moved.img")).unwrap();
    let new = format!("{}\n{}", disks("x", "moved.img"), file_disk("d1", "d1.img"));
    apply(&fixture, &new, "0 = \"x\", 1 = \"m\", 2 = \"d1\"");
    assert_eq!(serial(&fixture, 0), old);
    let d1 = fs::canonicalize(fixture.path("d1.img")).unwrap().display().to_string();
    assert_ne!(serial(&fixture, 2), derived("file", &d1, "d1"));
    fixture.stop();
}

#[test]
fn copy_of_an_image_is_not_exported_beside_it() {
    let mut fixture = Fixture::new("identities-copy").with_disk(DISK_BYTES);
    let first = serial(&fixture, 0);
    copy_whole(&fixture.path("d0.img"), &fixture.path("a.img"));
    let both = format!("{}\n{}", file_disk("d0", "d0.img"), file_disk("a", "a.img"));
    fixture.configure(&both, "0 = \"d0\", 1 = \"a\"");
    let words = format!("a: serial number {first} belongs to d0");
    fixture.ashlar(&["plan"]).prints(&[&words]);
    let output = fixture.ashlar(&["apply"]).ends(1);
    output.complains(&[&words]).complains(&["[[unit]] provider = \"a\", serial = \"...\""]);
    assert!(fixture.provider("a").is_none(), "nothing has changed");
    // A start serves the original, though the name of the copy is first in the order of names.
    fixture.stop();
    fixture.start();
    assert_eq!(serial(&fixture, 0), first);
    fixture.ashlar(&["status"]).ends(3).prints(&["LUN 1 (a) cannot be exported", &first]);
    // With a serial number of its own it is another disk.
    let own = format!("{both}\n[[unit]]\nprovider = \"a\"\nserial = \"COPY-1\"\n");
    apply(&fixture, &own, "0 = \"d0\", 1 = \"a\"");
    assert_eq!((serial(&fixture, 0), serial(&fixture, 1)), (first.clone(), "COPY-1".to_owned()));
    fixture.ashlar(&["status"]).ends(0);
    // Both are new, at two targets; and a LUN moves from the original to the copy.
    apply(&fixture, "", "");
    let second = "[[target]]\nname = \"iqn.2026-11.test.ashlar:second\"\ndriver = \"iscsi\"\n\
        listen = [\"127.0.0.1:0\"]\n[[access]]\ntarget = \"iqn.2026-11.test.ashlar:second\"\n\
        group = \"g\"\ninitiators = [\"*\"]\nluns = { 0 = \"a\" }\n";
    fixture.configure(&format!("{both}\n{second}"), "0 = \"d0\"");
    let words = format!("d0: serial number {first} belongs to a");
    fixture.ashlar(&["plan"]).prints(&[&words]);
    fixture.ashlar(&["apply", "--dry-run"]).ends(1).complains(&[&words]);
    fixture.ashlar(&["apply"]).ends(1).complains(&[&words]);
    apply(&fixture, &both, "0 = \"d0\"");
    apply(&fixture, &both, "");
    apply(&fixture, &both, "0 = \"a\"");
    assert_eq!(serial(&fixture, 0), first, "the original is not exported");
    fixture.stop();
}

/// I4 of disks/src/lasting.rs.
#[test]
fn identity_of_a_read_only_image_is_kept_in_the_state_folder() {
    let mut fixture = Fixture::new("identities-read");
    fixture.image("cd.iso", DISK_BYTES);
    let only = |name: &str| file_disk(name, "cd.iso") + "read_only = true\n";
    let luns = |a: &str| format!("0 = {{ provider = \"{a}\", mode = \"ro\" }}");
    let both = format!("{}, 1 = {{ provider = \"b\", mode = \"ro\" }}", luns("a"));
    fixture.configure(&(only("a") + &only("b")), &both);
    fixture.start();
    let first = serial(&fixture, 0);
    assert_ne!(first, serial(&fixture, 1), "two sections of one image are two disks");
    let stored = fixture.state()["disks"][0]["identity"].take();
    assert_eq!(stored, "in the state folder only: it can only be read");
    fixture.stop();
    fixture.configure(&only("a"), &luns("a"));
    fixture.start();
    assert_eq!(serial(&fixture, 0), first);
    let _session = login(&fixture, "iqn.2024-01.test:host");
    fixture.configure(&only("renamed"), &luns("renamed"));
    fixture.ashlar(&["plan"]).prints(&[&format!("the same disk for hosts: serial number {first}")]);
    fixture.ashlar(&["apply"]).ends(0);
    assert_eq!(serial(&fixture, 0), first);
    fixture.stop();
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
    let mut fixture = Fixture::new("identities-given").with_disk(DISK_BYTES);
    let first = serial(&fixture, 0);
    let disk = file_disk("d0", "d0.img");
    let unit = |rest: &str| format!("{disk}\n[[unit]]\nprovider = \"d0\"\n{rest}\n");
    fixture.ashlar(&["plan"]).prints(&["no changes"]);
    let session = login(&fixture, "iqn.2024-01.test:host");
    fixture.configure(&unit("serial = \"Shelf 7/Disk-1\""), "0 = \"d0\"");
    let words = [
        "destroys: in use by iqn.2024-01.test:host",
        "LUN 0 is another disk for hosts",
        &format!("serial number {first} -> Shelf 7/Disk-1"),
    ];
    fixture.ashlar(&["plan"]).prints(&words);
    fixture.ashlar(&["apply"]).ends(4);
    assert_eq!(serial(&fixture, 0), first, "nothing was done without consent");
    drop(session);
    fixture.until("the session is over", std::time::Duration::from_secs(20), || {
        fixture.state()["targets"][0]["sessions"].as_array().is_none_or(Vec::is_empty)
    });
    fixture.ashlar(&["apply"]).ends(0);
    assert_eq!(serial(&fixture, 0), "Shelf 7/Disk-1");
    let mut t10 = b"ASHLAR  VIRTUAL DISK    ".to_vec();
    t10.extend(b"Shelf 7/Disk-1");
    assert!(has(&names(&fixture, 0), 1, &t10));
    fixture.ashlar(&["plan"]).prints(&["no changes"]);

    let all = "naa = \"5000c500a1b2c3d4\"\nuuid = \"01234567-89ab-cdef-0123-456789abcdef\"\n\
               eui64 = \"0011223344556677\"";
    apply(&fixture, &unit(all), "0 = \"d0\"");
    assert_eq!(serial(&fixture, 0), first);
    let page = names(&fixture, 0);
    assert!(has(&page, 3, &[0x50, 0, 0xC5, 0, 0xA1, 0xB2, 0xC3, 0xD4]), "{page:02x?}");
    assert!(has(&page, 2, &[0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77]), "{page:02x?}");
    let uuid = [1, 0x23, 0x45, 0x67, 0x89, 0xAB, 0xCD, 0xEF];
    assert!(has(&page, 0xA, &[&[0x10, 0], &uuid[..], &uuid].concat()), "{page:02x?}");
    let lun = fixture.state()["targets"][0]["groups"][0]["luns"][0].take();
    assert_eq!(lun["naa"], "5000c500a1b2c3d4", "{lun}");
    assert_eq!(lun["uuid"], "01234567-89ab-cdef-0123-456789abcdef", "{lun}");
    assert_eq!(lun["eui64"], "0011223344556677", "{lun}");

    apply(&fixture, &format!("{disk}naa = \"3000c500a1b2c3d4\"\n"), "0 = \"d0\"");
    assert!(has(&names(&fixture, 0), 3, &[0x30, 0, 0xC5, 0, 0xA1, 0xB2, 0xC3, 0xD4]));
    apply(&fixture, &disk, "0 = { provider = \"d0\", serial = \"OF-LUN\" }");
    assert_eq!(serial(&fixture, 0), "OF-LUN");

    // The same for the disk's own identity; an invalid value is refused with its place.
    apply(&fixture, &format!("{disk}serial = \"OF-DISK\"\n"), "0 = \"d0\"");
    assert_eq!(serial(&fixture, 0), "OF-DISK");
    fixture.configure(&unit("naa = \"7000c500a1b2c3d4\""), "0 = \"d0\"");
    fixture.ashlar(&["plan"]).ends(2).complains(&["is no NAA name"]);
    apply(&fixture, &disk, "0 = \"d0\"");
    assert_eq!(serial(&fixture, 0), first, "its own again");
    fixture.stop();
}
