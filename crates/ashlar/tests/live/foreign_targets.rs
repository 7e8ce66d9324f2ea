//! Targets of other projects, and a second daemon, that exchange a disk, reserve, grow, protect or
//! take it away while a host of ours has it. The tests check the host's responses, the data on each
//! disk and `status`.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use rig::peer::{Store, Tgt, TgtConfig};

use crate::fixture::{Fixture, IQN, array, file_disk};
use testkit::cable::Cable;
use testkit::iscsi::initiator::{Client, Ended};

const BYTES: u64 = 16 << 20;
const BLOCK: usize = 512;
const LIMIT: Duration = Duration::from_secs(60);
const HOST: &str = "iqn.2026-11.test.ashlar:host";
const OTHER_HOST: &str = "iqn.2026-11.test.ashlar:other-host";
/// Longer than any restart here.
const DEADLINE: &str = "deadline_s = 25\n";

const TUR: [u8; 6] = [0; 6];

fn cdb(opcode: u8, block: u8) -> [u8; 10] {
    [opcode, 0, 0, 0, 0, block, 0, 0, 1, 0]
}

/// Key, code and qualifier of CHECK CONDITION; another status alone.
pub fn words(ended: &Ended) -> String {
    match (ended.status, ended.sense.as_slice()) {
        (0, _) => "GOOD".into(),
        (2, [_, _, key, _, _, _, _, _, _, _, _, _, asc, ascq, ..]) => {
            format!("{:02x}/{asc:02x}/{ascq:02x}", key & 0xf)
        }
        (status, _) => format!("{status:02x}"),
    }
}

pub fn write(host: &mut Client, block: u8, byte: u8) -> String {
    words(&host.scsi(&cdb(0x2a, block), 0, &[byte; BLOCK]).unwrap())
}

fn read(host: &mut Client, block: u8) -> String {
    words(&host.scsi(&cdb(0x28, block), BLOCK as u32, &[]).unwrap())
}

/// A bus of a target, and LUN 0 of the fixture on its disk.
pub fn bus(fixture: &Fixture, (portal, target): (SocketAddr, &str), more: &str, lun: &str) {
    let bus = format!(
        "[[bus]]\nname = \"iscsi0\"\nkind = \"iscsi\"\nportals = [\"{portal}\"]\n\
         target = \"{target}\"\ninitiator = \"iqn.2026-11.test.ashlar:initiator\"\n\
         {DEADLINE}{more}"
    );
    fixture.configure(&bus, lun);
}

/// A host of the fixture whose unit is ready.
pub fn host(fixture: &Fixture) -> Client {
    let mut host = Client::session(fixture.portal(), HOST, IQN).unwrap();
    // The bus may be asking still.
    let becomes_ready = || words(&host.scsi(&TUR, 0, &[]).unwrap()) == "GOOD";
    fixture.until("the unit is ready", LIMIT, becomes_ready);
    host
}

pub fn status(fixture: &Fixture) -> String {
    fixture.ashlar(&["status"]).out
}

pub fn wait_for_status(fixture: &Fixture, parts: &[&str]) {
    let says = || parts.iter().all(|part| status(fixture).contains(part));
    fixture.until(&format!("status says {parts:?}: {}", status(fixture)), LIMIT, says);
}

struct Shop {
    fixture: Fixture,
    tgt: Tgt,
}

impl Shop {
    /// A daemon with tgt's disk, which has a serial number.
    fn new(name: &str) -> Shop {
        let mut fixture = Fixture::alone(name);
        let store = Store::File(fixture.image("first.img", BYTES));
        let serial = Some("first".to_owned());
        let tgt = Tgt::start(TgtConfig { serial, ..TgtConfig::new(store) }).unwrap();
        let at = (tgt.target().portal, tgt.target().iqn.as_str());
        bus(&fixture, at, "", "0 = \"da0\"");
        fixture.start();
        Shop { fixture, tgt }
    }
}

fn holds(path: &Path, block: usize, byte: u8) -> bool {
    fs::read(path).unwrap()[block * BLOCK..][..BLOCK] == [byte; BLOCK]
}

fn is_untouched(path: &Path) -> bool {
    fs::read(path).unwrap().iter().all(|byte| *byte == 0)
}

/// The disk was exchanged, within the deadline and behind the host's back.
fn is_refused(fixture: &Fixture, host: &mut Client, (first, second): (&Path, &Path), ids: &[&str]) {
    for block in 4..8 {
        assert_eq!(write(host, block, 2), "02/04/03", "block {block}");
    }
    assert!(holds(first, 3, 1) && !holds(first, 4, 2));
    assert!(is_untouched(second), "a write is on the other disk");
    wait_for_status(
        fixture,
        &[&["a different disk answers", "da0", "`ashlar cam rescan"], ids].concat(),
    );
}

#[test]
fn no_write_reaches_another_disk_that_tgt_has_after_a_restart() {
    let mut shop = Shop::new("odd-tgt-exchanged");
    let (first, second) = (shop.fixture.path("first.img"), shop.fixture.image("second.img", BYTES));
    let mut host = host(&shop.fixture);
    assert_eq!(write(&mut host, 3, 1), "GOOD");
    shop.tgt.exchange(Store::File(second.clone()), "second").unwrap();
    let ids = ["serial first", "serial second"];
    is_refused(&shop.fixture, &mut host, (&first, &second), &ids);
    // The right one is back, and is taken in by itself.
    shop.tgt.exchange(Store::File(first.clone()), "first").unwrap();
    shop.fixture.until("the disk is back", LIMIT, || write(&mut host, 9, 5) == "GOOD");
    assert!(holds(&first, 9, 5) && is_untouched(&second));
    assert!(!status(&shop.fixture).contains("different disk"), "{}", status(&shop.fixture));
    shop.fixture.assert_alive();
}

#[test]
fn no_write_reaches_another_disk_of_a_second_daemon_that_was_killed() {
    exchange_at_a_second_daemon("odd-own-killed", Fixture::kill);
}

/// The logical unit may be removed before the session: the disk is taken away first, and exchanged
/// later.
#[test]
fn no_write_reaches_another_disk_of_a_second_daemon_that_was_stopped() {
    exchange_at_a_second_daemon("odd-own-stopped", Fixture::stop);
}

fn exchange_at_a_second_daemon(name: &str, end: fn(&mut Fixture)) {
    let mut fixture = Fixture::alone(name);
    let mut other = fixture.sibling(&format!("{name}-below"), "");
    let (first, second) = (other.image("first.img", BYTES), other.image("second.img", BYTES));
    let disk =
        |file: &str| format!("{}serial = \"{file}\"\n", file_disk("d", &format!("{file}.img")));
    other.configure(&disk("first"), "0 = \"d\"");
    other.ok(&["apply"]);
    bus(&fixture, (other.portal(), IQN), "", "0 = \"da0\"");
    fixture.start();
    let mut host = host(&fixture);
    assert_eq!(write(&mut host, 3, 1), "GOOD");
    end(&mut other);
    other.configure(&disk("second"), "0 = \"d\"");
    other.start();
    let ids = ["serial first", "serial second"];
    is_refused(&fixture, &mut host, (&first, &second), &ids);
    let parts = [&ids[..], &["a different disk answers", "`ashlar cam rescan 0`"]].concat();
    for output in [fixture.ok(&["cam", "devlist"]), fixture.ok(&["journal"])] {
        assert!(parts.iter().all(|part| output.contains(part)), "{output}");
    }
    end(&mut other);
    other.configure(&disk("first"), "0 = \"d\"");
    other.start();
    fixture.until("the disk is back", LIMIT, || write(&mut host, 9, 5) == "GOOD");
    assert!(holds(&first, 9, 5) && is_untouched(&second));
    assert!(!status(&fixture).contains("different disk"), "{}", status(&fixture));
    fixture.assert_alive();
}

#[test]
fn no_write_reaches_another_aoe_disk_after_a_target_restart() {
    let mut fixture = Fixture::alone("odd-aoe-exchanged");
    let cable = Cable::create("1500");
    let [ours, theirs] = &cable.ends;
    let mut other = fixture.sibling("odd-aoe-below", "");
    let (first, second) = (other.image("first.img", BYTES), other.image("second.img", BYTES));
    let serve = |other: &Fixture, serial: &str| {
        let disk = file_disk("d", &format!("{serial}.img"));
        let target = format!(
            "{disk}serial = \"{serial}\"\n[[target]]\ndriver = \"aoe\"\nname = \"e565\"\n\
             listen = [\"ether:{theirs}\"]\nshelf = 565\n[[access]]\ntarget = \"e565\"\n\
             group = \"all\"\ninitiators = [\"*\"]\nluns = {{ 0 = \"d\" }}\n"
        );
        other.write("ashlar.toml", &target);
    };
    serve(&other, "first");
    other.ok(&["apply"]);
    let bus = format!(
        "[[bus]]\nname = \"aoe0\"\nkind = \"aoe\"\ninterfaces = [\"{ours}\"]\n\
         deadline_s = 20\nframe_life_ms = 500\nask_s = 1\n"
    );
    fixture.configure(&bus, "0 = \"ada0\"");
    fixture.start();
    let mut host = host(&fixture);
    assert_eq!(write(&mut host, 3, 1), "GOOD");
    other.kill();
    serve(&other, "second");
    other.start();
    for block in 4..8 {
        assert_eq!(write(&mut host, block, 2), "02/04/03", "block {block}");
    }
    assert!(holds(&first, 3, 1) && is_untouched(&second));
    wait_for_status(&fixture, &["a different disk answers", "serial first", "serial second"]);
    other.kill();
    serve(&other, "first");
    other.start();
    fixture.until("the disk is back", LIMIT, || write(&mut host, 9, 5) == "GOOD");
    assert!(holds(&first, 9, 5) && is_untouched(&second));
    fixture.assert_alive();
}

/// A slot has another disk by a plan: the target announces it, and the initiator queries it.
#[test]
fn no_write_reaches_another_aoe_disk_that_a_plan_puts_into_the_slot() {
    let mut fixture = Fixture::alone("odd-aoe-plan");
    let cable = Cable::create("1500");
    let [ours, theirs] = &cable.ends;
    let other = fixture.sibling("odd-aoe-plan-below", "");
    let (first, second) = (other.image("first.img", BYTES), other.image("second.img", BYTES));
    let serve = |other: &Fixture, disk: &str| {
        let disks: String = ["first", "second"]
            .map(|d| format!("{}serial = \"{d}\"\n", file_disk(d, &format!("{d}.img"))))
            .concat();
        let target = format!(
            "{disks}[[target]]\ndriver = \"aoe\"\nname = \"e566\"\n\
             listen = [\"ether:{theirs}\"]\nshelf = 566\n[[access]]\ntarget = \"e566\"\n\
             group = \"all\"\ninitiators = [\"*\"]\nluns = {{ 0 = \"{disk}\" }}\n"
        );
        other.write("ashlar.toml", &target);
        other.ok(&["apply", "--yes-destroy", "e566/all"]);
    };
    serve(&other, "first");
    let bus = format!(
        "[[bus]]\nname = \"aoe0\"\nkind = \"aoe\"\ninterfaces = [\"{ours}\"]\n\
         deadline_s = 20\nframe_life_ms = 500\nask_s = 3600\n"
    );
    fixture.configure(&bus, "0 = \"ada0\"");
    fixture.start();
    let mut host = host(&fixture);
    assert_eq!(write(&mut host, 3, 1), "GOOD");
    serve(&other, "second");
    for block in 4..8 {
        assert_eq!(write(&mut host, block, 2), "02/04/03", "block {block}");
    }
    assert!(holds(&first, 3, 1) && is_untouched(&second));
    wait_for_status(&fixture, &["a different disk answers", "serial first", "serial second"]);
    serve(&other, "first");
    fixture.until("the disk is back", LIMIT, || write(&mut host, 9, 5) == "GOOD");
    assert!(holds(&first, 9, 5) && is_untouched(&second));
    fixture.assert_alive();
}

fn reserve(portal: SocketAddr, target: &str, lun: u8) -> Client {
    let mut host = Client::session(portal, OTHER_HOST, target).unwrap();
    host.lun = lun;
    host.must(&TUR, 0);
    // RESERVE(6)
    host.must(&[0x16, 0, 0, 0, 0, 0], 0);
    host
}

/// Another host has reserved the disk at its target: hosts of ours get that, and nothing else.
fn is_reserved(fixture: &Fixture, path: &Path, mut reserver: Client) {
    let mut host = host(fixture);
    assert_eq!(write(&mut host, 3, 1), "18");
    assert!(is_untouched(path));
    let last = "WRITE of block 3: RESERVATION CONFLICT (SCSI status 18), reserved by another host";
    wait_for_status(fixture, &[last]);
    // RELEASE(6)
    reserver.must(&[0x17, 0, 0, 0, 0, 0], 0);
    assert_eq!(write(&mut host, 3, 1), "GOOD");
}

#[test]
fn reservation_by_another_host_at_tgt_is_reported_as_conflict() {
    let shop = Shop::new("odd-tgt-reserved");
    let reserver = reserve(shop.tgt.target().portal, &shop.tgt.target().iqn, 1);
    is_reserved(&shop.fixture, &shop.fixture.path("first.img"), reserver);
}

#[test]
fn reservation_by_another_host_at_a_daemon_is_reported_as_conflict() {
    let mut fixture = Fixture::alone("odd-own-reserved");
    let other = fixture.sibling("odd-own-reserved-below", "");
    let path = other.image("d.img", BYTES);
    other.configure(&file_disk("d", "d.img"), "0 = \"d\"");
    other.ok(&["apply"]);
    bus(&fixture, (other.portal(), IQN), "", "0 = \"da0\"");
    fixture.start();
    let reserver = reserve(other.portal(), IQN, 0);
    is_reserved(&fixture, &path, reserver);
}

#[test]
fn a_disk_that_grows_at_a_second_daemon_grows_for_hosts() {
    let mut fixture = Fixture::alone("odd-own-grown");
    let other = fixture.sibling("odd-own-grown-below", "");
    let path = other.image("d.img", BYTES);
    other.configure(&file_disk("d", "d.img"), "0 = \"d\"");
    other.ok(&["apply"]);
    bus(&fixture, (other.portal(), IQN), "", "0 = \"da0\"");
    fixture.start();
    let mut host = host(&fixture);
    let file = fs::File::options().write(true).open(path).unwrap();
    file.set_len(2 * BYTES).unwrap();
    other.ok(&["geom", "disk", "resize", "geom=d"]);
    grows(&fixture, &mut host, 2 * BYTES);
}

/// A host is notified that its disk has grown, and reads the new size.
pub fn grows(fixture: &Fixture, host: &mut Client, bytes: u64) {
    let mut status = String::new();
    fixture.until("the host is told", LIMIT, || {
        status = read(host, 0);
        status != "GOOD"
    });
    assert_eq!(status, "06/2a/09");
    let capacity = host.must(&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], 8);
    let last = u64::from(u32::from_be_bytes(capacity[..4].try_into().unwrap()));
    assert_eq!((last + 1) * BLOCK as u64, bytes);
}

#[test]
fn unit_removed_at_tgt_fails_and_returns_after_a_rescan() {
    let shop = Shop::new("odd-tgt-removed");
    let path = shop.fixture.path("first.img");
    let mut host = host(&shop.fixture);
    assert_eq!(write(&mut host, 3, 1), "GOOD");
    shop.tgt.admin("--op delete --mode logicalunit --tid 1 --lun 1").unwrap();
    assert_eq!(write(&mut host, 4, 2), "02/04/03");
    assert!(!holds(&path, 4, 2));
    wait_for_status(&shop.fixture, &["da0"]);
    let path = path.to_str().unwrap();
    shop.tgt.admin(&format!("--op new --mode logicalunit --tid 1 --lun 1 -b {path}")).unwrap();
    let unit = "--op update --mode logicalunit --tid 1 --lun 1 --params";
    shop.tgt.admin(&format!("{unit} scsi_sn=first,scsi_id=first")).unwrap();
    shop.fixture.ok(&["cam", "rescan", "all"]);
    shop.fixture.until("it is back", LIMIT, || write(&mut host, 4, 2) == "GOOD");
}

#[test]
fn a_unit_that_tgt_protects_is_protected_for_hosts() {
    let shop = Shop::new("odd-tgt-protected");
    let path = shop.fixture.path("first.img");
    let mut host = host(&shop.fixture);
    assert_eq!(write(&mut host, 3, 1), "GOOD");
    let unit = "--op update --mode logicalunit --tid 1 --lun 1 --params";
    shop.tgt.admin(&format!("{unit} readonly=1")).unwrap();
    assert_eq!(write(&mut host, 4, 2), "07/27/00");
    assert_eq!(read(&mut host, 3), "GOOD");
    assert!(!holds(&path, 4, 2));
    wait_for_status(&shop.fixture, &["WRITE of block 4: WRITE PROTECTED (7/27/00), read-only"]);
    shop.tgt.admin(&format!("{unit} readonly=0")).unwrap();
    assert_eq!(write(&mut host, 4, 2), "GOOD");
}

/// An edit of how long requests may take ends none.
#[test]
fn bus_limits_change_while_a_host_uses_its_disk() {
    let mut shop = Shop::new("odd-tgt-bounds");
    let mut host = host(&shop.fixture);
    assert_eq!(write(&mut host, 3, 1), "GOOD");
    let at = (shop.tgt.target().portal, shop.tgt.target().iqn.as_str());
    bus(&shop.fixture, at, "request_deadline_s = 5\nretries = 1\n", "0 = \"da0\"");
    let plan = shop.fixture.ashlar(&["plan"]).ends(6).out;
    assert!(plan.contains("change bus iscsi0") && !plan.contains("remove bus"), "{plan}");
    shop.fixture.ok(&["apply"]);
    // No attention, no lost disk, and the same session.
    assert_eq!((write(&mut host, 4, 2), read(&mut host, 3)), ("GOOD".into(), "GOOD".into()));
    assert!(shop.fixture.ok(&["plan"]).contains("no changes"));
    // A limit below the disk, which is LUN 1, and terms of the next login.
    let proof = "chap = { user = \"us\", secret = \"twelve letters\" }\n";
    bus(&shop.fixture, at, &format!("luns_max = 1\ndata_digest = \"off\"\n{proof}"), "0 = \"da0\"");
    assert!(shop.fixture.ok(&["apply"]).contains("change bus iscsi0"));
    shop.fixture.ok(&["cam", "rescan", "all"]);
    assert_eq!((write(&mut host, 5, 3), read(&mut host, 3)), ("GOOD".into(), "GOOD".into()));
    wait_for_status(&shop.fixture, &["has 2 logical units, but at most 1 are scanned"]);
    assert!(shop.fixture.ok(&["plan"]).contains("no changes"));
    shop.fixture.assert_alive();
}

/// LUN 0 of tgt is its controller, and LUN 1 the disk.
#[test]
fn more_than_511_units_of_tgt_are_found_up_to_the_limit() {
    const UNITS: usize = 602;
    let mut fixture = Fixture::alone("odd-tgt-many");
    let store = Store::File(fixture.image("first.img", BYTES));
    let tgt = Tgt::start(TgtConfig::new(store)).unwrap();
    for lun in 2..UNITS {
        let unit = format!("--op new --mode logicalunit --tid 1 --lun {lun}");
        tgt.admin(&format!("{unit} -b null --bstype null")).unwrap();
    }
    let at = (tgt.target().portal, tgt.target().iqn.as_str());
    let count = |fixture: &Fixture| {
        let list = fixture.json(&["cam", "devlist"]);
        array(&list["answer"]["buses"][0]["devices"]).len()
    };
    bus(&fixture, at, "", "");
    fixture.start();
    fixture.until("all are found", LIMIT, || count(&fixture) == UNITS);
    assert!(!status(&fixture).contains("are scanned"), "{}", status(&fixture));
    fixture.stop();
    bus(&fixture, at, "luns_max = 550\n", "");
    fixture.start();
    wait_for_status(&fixture, &["the target has 602 logical units, but at most 550 are scanned"]);
    fixture.until("as many as it may", LIMIT, || count(&fixture) == 550);
    fixture.assert_alive();
}
