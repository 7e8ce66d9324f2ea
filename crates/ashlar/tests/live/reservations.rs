//! Persistent reservations over the death of the daemon: `kill -9` right after GOOD, a torn file,
//! a state folder that is missing. Test 12 of the list of what toy targets get wrong, from outside.

use crate::fixture::{Fixture, IQN, file_disk};
use testkit::iscsi::initiator::{Client, Ended};

const DISK_BYTES: u64 = 16 << 20;
const CONFLICT: u8 = 0x18;

/// An initiator that has no unit attention pending.
pub(super) fn login(fixture: &Fixture, name: &str) -> Client {
    let mut raw = Client::session(fixture.portal(), name, IQN).unwrap();
    assert_eq!(raw.scsi(&[0; 6], 0, &[]).unwrap().status, 2, "a reset to hear of");
    raw
}

/// PERSISTENT RESERVE OUT with APTPL.
pub(super) fn out(raw: &mut Client, action: u8, kind: u8, key: u64, action_key: u64) -> Ended {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&action_key.to_be_bytes());
    list[20] = 1;
    raw.scsi(&[0x5F, action, kind, 0, 0, 0, 0, 0, 24, 0], 0, &list).unwrap()
}

fn write(raw: &mut Client) -> u8 {
    raw.scsi(&[0x2A, 0, 0, 0, 0, 8, 0, 0, 1, 0], 0, &[7; 512]).unwrap().status
}

/// READ KEYS, or READ RESERVATION.
fn read(raw: &mut Client, action: u8) -> Vec<u8> {
    let ended = raw.scsi(&[0x5E, action, 0, 0, 0, 0, 0, 0x10, 0, 0], 4096, &[]).unwrap();
    assert_eq!(ended.status, 0);
    ended.data
}

/// The file of the newest record.
fn record(fixture: &Fixture) -> std::path::PathBuf {
    let files = std::fs::read_dir(fixture.path("units")).unwrap();
    let names = |f: std::io::Result<std::fs::DirEntry>| f.unwrap().path();
    let newest = |p: &std::path::PathBuf| p.extension().is_some_and(|e| e == "reservations");
    files.map(names).find(newest).expect("a record")
}

#[test]
fn test_12_reservation_survives_kill_9_after_good() {
    let mut fixture = Fixture::new("reservations").with_disk(DISK_BYTES);
    let mut a = login(&fixture, "iqn.2024-01.test:a");
    assert_eq!(out(&mut a, 6, 0, 0, 1).status, 0);
    assert_eq!(out(&mut a, 1, 5, 1, 0).status, 0);
    fixture.kill();
    fixture.start();
    let mut b = login(&fixture, "iqn.2024-01.test:b");
    assert_eq!(write(&mut b), CONFLICT);
    let mut a = login(&fixture, "iqn.2024-01.test:a");
    assert_eq!(write(&mut a), 0);
    assert_eq!(read(&mut b, 0), [0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 0, 1]);
    assert_eq!(read(&mut b, 1)[21], 5);
    let output = fixture.json(&["reservations"]);
    let of = &output["units"][0]["reservation"];
    assert_eq!(of["kind"], "write-exclusive-registrants-only", "{output}");
    assert_eq!(of["registrants"][0]["key"], "0x0000000000000001", "{output}");
    assert_eq!(of["registrants"][0]["connected"], true, "{output}");
    // The reservation is released, which is saved as well.
    assert_eq!(out(&mut a, 2, 5, 1, 0).status, 0);
    fixture.kill();
    fixture.start();
    let mut b = login(&fixture, "iqn.2024-01.test:b");
    assert_eq!(write(&mut b), 0);
    assert_eq!(read(&mut b, 0).len(), 16);
    // An operator's way out requires consent, and lasts.
    fixture.ashlar(&["reservations", "d0", "--clear"]).complains(&["--yes-clear d0"]);
    fixture.ok(&["reservations", "d0", "--clear", "--yes-clear", "d0"]);
    assert_eq!(fixture.ok(&["reservations"]), "nothing is reserved\n");
    fixture.kill();
    fixture.start();
    let mut b = login(&fixture, "iqn.2024-01.test:b");
    assert_eq!(read(&mut b, 0).len(), 8);
    fixture.stop();
}

#[test]
fn test_12_torn_file_is_reported_and_a_failed_save_is_an_error() {
    let mut fixture = Fixture::new("reservations-torn").with_disk(DISK_BYTES);
    let mut a = login(&fixture, "iqn.2024-01.test:a");
    assert_eq!(out(&mut a, 6, 0, 0, 1).status, 0);
    assert_eq!(out(&mut a, 1, 3, 1, 0).status, 0);
    assert_eq!(out(&mut a, 6, 0, 0, 2).status, 0);
    fixture.kill();
    let file = record(&fixture);
    let bytes = std::fs::read(&file).unwrap();
    std::fs::write(&file, &bytes[..bytes.len() / 2]).unwrap();
    fixture.start();
    let output = fixture.ok(&["journal"]);
    assert!(output.contains("the one before it is used"), "{output}");
    let mut b = login(&fixture, "iqn.2024-01.test:b");
    assert_eq!(write(&mut b), CONFLICT, "the record before has the reservation too");
    assert_eq!(read(&mut b, 0)[15], 1, "and the key before");
    // No place to save to: nothing changes, and no host receives GOOD.
    std::fs::remove_dir_all(fixture.path("units")).unwrap();
    let refused = out(&mut b, 6, 0, 0, 9);
    assert_eq!((refused.status, refused.sense[2], refused.sense[12]), (2, 4, 0x44));
    assert_eq!(read(&mut b, 0).len(), 16);
    let output = fixture.ok(&["journal"]);
    assert!(output.contains("could not be saved"), "{output}");
    fixture.stop();
}

/// First byte of block 0; None when the unit has no medium.
fn first_byte(raw: &mut Client) -> Option<u8> {
    loop {
        let ended = raw.scsi(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512, &[]).unwrap();
        match (ended.status, ended.sense.get(2).map(|key| key & 0xf)) {
            (0, _) => return Some(ended.data[0]),
            (2, Some(6)) => {}
            (2, Some(2)) => return None,
            other => panic!("{other:02x?}: {:02x?}", ended.sense),
        }
    }
}

/// E4 of daemon/src/exports.rs.
#[test]
fn loaded_disc_and_port_state_survive_kill_9() {
    const DRIVE: &str = "[[unit]]\nprovider = \"d0\"\nremovable = true\n\n";
    const GROUP: &str = "[[alua]]\nname = \"default\"\nid = 1\nstate = \"non-optimized\"\n\n";
    let mut fixture = Fixture::new("by-hand");
    for name in ["d0", "d1"] {
        let fill = name.as_bytes()[1];
        std::fs::write(fixture.image(&format!("{name}.img"), 0), vec![fill; 1 << 20]).unwrap();
    }
    let (d0, d1) = (file_disk("d0", "d0.img"), file_disk("d1", "d1.img"));
    fixture.configure(&format!("{d0}{d1}{DRIVE}"), "0 = \"d0\"");
    fixture.start();
    let group = |fixture: &Fixture| fixture.json(&["alua", "show"])["groups"][0]["state"].clone();
    let again = |fixture: &mut Fixture| {
        fixture.kill();
        fixture.start();
        Client::session(fixture.portal(), "iqn.2024-01.test:a", IQN).unwrap()
    };
    // Another disc, then none, then the same one again.
    fixture.ok(&["tray", "eject", "d0"]);
    fixture.ok(&["tray", "load", "d0", "d1"]);
    let log = fixture.ok(&["audit", "--json"]);
    for change in ["unit d0 medium: d0 -> out", "unit d0 medium: out -> d1"] {
        assert!(log.contains(change), "{change}\n{log}");
    }
    assert_eq!(first_byte(&mut again(&mut fixture)), Some(b'1'));
    fixture.ok(&["tray", "eject", "d0"]);
    assert_eq!(first_byte(&mut again(&mut fixture)), None);
    fixture.ok(&["tray", "load", "d0"]);
    assert_eq!(first_byte(&mut again(&mut fixture)), Some(b'1'));
    let output = fixture.ok(&["journal"]);
    assert!(output.contains("d1 loaded, as set by hand"), "{output}");
    // A disc that is not there is no reason to show the other one.
    fixture.configure(&format!("{d0}{DRIVE}"), "0 = \"d0\"");
    assert_eq!(first_byte(&mut again(&mut fixture)), None);
    let output = fixture.ok(&["journal"]);
    assert!(output.contains("d1, loaded by hand, is missing"), "{output}");
    fixture.ok(&["tray", "load", "d0", "d0"]);
    assert_eq!(first_byte(&mut again(&mut fixture)), Some(b'0'));
    // The state of a port group, until the configuration changes it.
    fixture.ok(&["alua", "set", "default", "standby"]);
    assert_eq!(first_byte(&mut again(&mut fixture)), None);
    assert_eq!(group(&fixture), "standby");
    assert!(fixture.ok(&["journal"]).contains("as set by hand"));
    fixture.configure(&format!("{GROUP}{d0}{DRIVE}"), "0 = \"d0\"");
    fixture.ok(&["apply"]);
    assert_eq!(group(&fixture), "non-optimized");
    assert_eq!(first_byte(&mut again(&mut fixture)), Some(b'0'));
    fixture.ok(&["alua", "set", "default", "offline"]);
    drop(again(&mut fixture));
    assert_eq!(group(&fixture), "offline");
    fixture.ok(&["alua", "set", "default", "non-optimized"]);
    assert_eq!(first_byte(&mut again(&mut fixture)), Some(b'0'));
    fixture.stop();
}

#[test]
fn damaged_port_identifiers_stop_only_targets_without_port_id() {
    const OTHER: &str = "iqn.2026-11.test.ashlar:other";
    let mut fixture = Fixture::new("ports-torn");
    fixture.image("d0.img", DISK_BYTES);
    let configure = |fixture: &Fixture, id: &str| {
        let other = format!(
            "[[target]]\ndriver = \"iscsi\"\nname = \"{OTHER}\"\nlisten = [\"{{portal}}\"]\n{id}\n"
        );
        let access = format!(
            "[[access]]\ntarget = \"{OTHER}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
             luns = {{ 0 = \"d0\" }}\n"
        );
        fixture
            .configure(&format!("{}\n{other}\n{access}", file_disk("d0", "d0.img")), "0 = \"d0\"");
    };
    configure(&fixture, "");
    fixture.start();
    fixture.kill();
    let file = fixture.path("units/target-ports.ports");
    let contents = std::fs::read(&file).unwrap();
    // The newest file is torn: the one before it is used, or the rest of it.
    std::fs::write(&file, &contents[..contents.len() / 2]).unwrap();
    fixture.start();
    let output = fixture.ok(&["journal"]);
    assert!(output.contains("the one before it is used"), "{output}");
    fixture.kill();
    // Both are torn: a target with a configured identifier is there, the other one reports the next
    // step.
    for name in ["units/target-ports.ports", "units/target-ports.ports.old"] {
        std::fs::write(fixture.path(name), b"ashlarV1 no record").unwrap();
    }
    configure(&fixture, "port_id = 2");
    fixture.start();
    let login = |name| Client::session(fixture.portal(), "iqn.2024-01.test:a", name);
    assert!(login(IQN).is_err());

    assert_eq!(first_byte(&mut login(OTHER).unwrap()), Some(0));
    let output = fixture.ok(&["journal"]);
    for words in ["target-ports.ports", "port_id", ".old", IQN] {
        assert!(output.contains(words), "no {words}: {output}");
    }
    // The way out that the message names.
    for name in ["units/target-ports.ports", "units/target-ports.ports.old"] {
        std::fs::remove_file(fixture.path(name)).unwrap();
    }
    fixture.ok(&["apply"]);
    assert_eq!(first_byte(&mut login(IQN).unwrap()), Some(0));
    fixture.stop();
}

#[test]
fn read_only_initiator_cannot_change_mode_pages_or_reserve() {
    const READER: &str = "iqn.2024-01.test:reader";
    let mut fixture = Fixture::new("reader");
    fixture.image("d0.img", 1 << 20);
    let config = |more: &str| {
        format!(
            "{}[[access]]\ntarget = \"{{iqn}}\"\ngroup = \"rw\"\n\
             initiators = [\"iqn.2024-01.test:writer\"]\nluns = {{ 0 = \"d0\" }}\n\
             [[access]]\ntarget = \"{{iqn}}\"\ngroup = \"ro\"\ninitiators = [\"{READER}\"]\n\
             luns = {{ 0 = {{ provider = \"d0\", mode = \"ro\" }} }}\n{more}",
            file_disk("d0", "d0.img")
        )
    };
    fixture.configure(&config(""), "");
    fixture.start();
    let mut writer = Client::session(fixture.portal(), "iqn.2024-01.test:writer", IQN).unwrap();
    let mut reader = Client::session(fixture.portal(), READER, IQN).unwrap();
    writer.must(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512);
    reader.must(&[0x28, 0, 0, 0, 0, 0, 0, 0, 1, 0], 512);
    // The control mode page with SWP, by MODE SELECT (10).
    let select = |host: &mut Client| {
        let mut list = vec![0; 20];
        list[8..10].copy_from_slice(&[0x0a, 10]);
        list[12] = 0x08;
        host.scsi(&[0x55, 0x10, 0, 0, 0, 0, 0, 0, 20, 0], 0, &list).unwrap()
    };
    let out = |host: &mut Client, action: u8, key: u8, new: u8| {
        let mut list = [0; 24];
        (list[7], list[15]) = (key, new);
        host.scsi(&[0x5f, action, 0x01, 0, 0, 0, 0, 0, 24, 0], 0, &list).unwrap().status
    };
    let output = select(&mut reader);
    assert_eq!((output.status, &output.sense[12..14]), (2, &[0x27, 0][..]), "WRITE PROTECTED");
    assert_eq!(reader.scsi(&[0x16, 0, 0, 0, 0, 0], 0, &[]).unwrap().status, 0x18, "RESERVE");
    assert_eq!(out(&mut reader, 0, 0, 7), 0, "it may register");
    assert_eq!(out(&mut reader, 1, 7, 0), 0x18, "and not reserve");
    assert_eq!(out(&mut reader, 3, 7, 0), 0x18, "nor clear");
    let write = |host: &mut Client| {
        host.scsi(&[0x2a, 0, 0, 0, 0, 0, 0, 0, 1, 0], 0, &[1; 512]).unwrap().status
    };
    assert_eq!(write(&mut writer), 0, "the other one goes on");
    // Where the configuration lets it, it may.
    fixture.configure(&config("read_only_reserves = true\n"), "");
    fixture.ok(&["apply"]);
    assert_eq!(out(&mut reader, 1, 7, 0), 0);
    assert_eq!(write(&mut writer), 0x18, "the unit is reserved");
    assert_eq!(out(&mut reader, 2, 7, 0), 0);
}

#[test]
fn a_conflict_at_a_lower_target_reaches_the_host_as_a_conflict() {
    const FAR: &str = "iqn.2026-11.test.ashlar:far";
    let mut near = Fixture::new("conflict");
    let portal = format!("127.0.0.1:{}", rig::proc::free_port().unwrap());
    let mut far = near.sibling(
        "far",
        &format!(
            "[[disk]]\nname = \"m\"\nkind = \"memory\"\nsize = \"1MiB\"\n\
             [[target]]\nname = \"{FAR}\"\ndriver = \"iscsi\"\nlisten = [\"{portal}\"]\n\
             [[access]]\ntarget = \"{FAR}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
             luns = {{ 0 = \"m\" }}\n"
        ),
    );
    let bus = format!(
        "[[bus]]\nname = \"san\"\nkind = \"iscsi\"\nportals = [\"{portal}\"]\ntarget = \"{FAR}\"\n\
         initiator = \"iqn.2026-11.test.ashlar:near\"\n"
    );
    near.configure(&bus, "0 = \"da0\"");
    near.start_whole();
    let mut host = login(&near, "iqn.2024-01.test:host");
    assert_eq!(write(&mut host), 0);
    let mut other =
        Client::session(portal.parse().unwrap(), "iqn.2024-01.test:other", FAR).unwrap();
    other.must(&[0; 6], 0);
    assert_eq!(out(&mut other, 0, 0, 0, 7).status, 0, "registered");
    assert_eq!(out(&mut other, 1, 3, 7, 0).status, 0, "reserved, exclusive access");
    assert_eq!(write(&mut host), CONFLICT, "and not a medium error");
    assert_eq!(out(&mut other, 2, 3, 7, 0).status, 0, "given back");
    assert_eq!(write(&mut host), 0);
    near.stop();
    far.stop();
}
