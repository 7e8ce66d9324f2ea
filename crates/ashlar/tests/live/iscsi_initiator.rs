//! The iSCSI initiator against tgt: a daemon exports the disk it finds, and data written by
//! initiators is in tgt's file. The target is killed and started again under load; two portals of
//! one disk are a multipath, and one of them dies.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use rig::Chap;
use rig::peer::{Store, Tgt, TgtConfig, qemu_io, wait_port};
use rig::proc;
use rig::relay::{Cable, Relay};

use crate::fixture::bench::Bench;
use crate::fixture::{Fixture, gave};

const BYTES: u64 = 24 << 20;
const LIMIT: Duration = Duration::from_secs(30);

/// Proofs of both sides, and digests over everything.
const GUARDED: &str = "header_digest = \"require\"\ndata_digest = \"require\"\n\
    chap_algorithms = [\"sha1\", \"md5\"]\n\
    chap = { user = \"house\", secret = \"file:{here}/own\" }\n\
    mutual = { user = \"peer\", secret = \"file:{here}/theirs\" }\n";

struct Shop {
    fixture: Fixture,
    disk: PathBuf,
    tgt: Tgt,
}

impl Shop {
    fn new(name: &str, guarded: bool) -> Shop {
        let fixture = Fixture::new(name);
        fixture.secret("own", "own-secret-own\n");
        fixture.secret("theirs", "peer-secret-too\n");
        let disk = fixture.image("tgt.img", BYTES);
        let chap = guarded.then(|| Chap {
            user: "house".into(),
            secret: "own-secret-own".into(),
            mutual: Some(("peer".into(), "peer-secret-too".into())),
        });
        let store = Store::File(disk.clone());
        let tgt = Tgt::start(TgtConfig { chap, digests: guarded, ..TgtConfig::new(store) });
        Shop { fixture, disk, tgt: tgt.unwrap() }
    }

    /// A bus to these portals, and `lun` exported again.
    fn configure(&self, portals: &[SocketAddr], more: &str, lun: &str) {
        let portals: Vec<String> = portals.iter().map(|at| format!("\"{at}\"")).collect();
        let bus = format!(
            "[[bus]]\nname = \"iscsi0\"\nkind = \"iscsi\"\nportals = [{}]\ntarget = \"{}\"\n\
             initiator = \"iqn.2026-11.test.ashlar:initiator\"\n{more}\n",
            portals.join(", "),
            self.tgt.target().iqn
        );
        let luns = if lun.is_empty() { String::new() } else { format!("0 = \"{lun}\"") };
        self.fixture.configure(&bus, &luns);
    }

    /// Writes a file of its own over the disk, through iSCSI twice, and reads it back both ways.
    fn fill(&self, seed: u64) {
        // A multipath is smaller by its record.
        self.fixture.fill(seed, self.size(), &self.disk);
    }

    fn size(&self) -> u64 {
        match self.fixture.provider("multipath/both") {
            Some(_) => BYTES - 512,
            None => BYTES,
        }
    }

    fn count(&self, name: &str) -> u64 {
        let list = self.fixture.json(&["cam", "devlist"]);
        list["answer"]["buses"][0]["counts"][name].as_u64().unwrap()
    }

    fn load(&self, bytes: u32) -> Bench {
        Bench::start(&self.fixture.url(0), bytes, &self.fixture.path("bench.log"))
    }
}

#[test]
fn written_data_reaches_the_target_with_chap_and_digests() {
    let mut shop = Shop::new("iscsi-guarded", true);
    shop.configure(&[shop.tgt.target().portal], GUARDED, "da0");
    shop.fixture.start();
    let list = shop.fixture.ok(&["cam", "devlist"]);
    assert!(list.contains("IET VIRTUAL-DISK") && list.contains("da0"), "{list}");
    shop.fill(1);
    shop.fixture.assert_alive();
    shop.fixture.stop();
    // A wrong secret finds no disk, which is reported and does no harm.
    shop.fixture.secret("own", "another-secret\n");
    shop.configure(&[shop.tgt.target().portal], GUARDED, "");
    shop.fixture.start();
    let mut list = String::new();
    shop.fixture.until("it says why", LIMIT, || {
        list = shop.fixture.ok(&["cam", "devlist"]);
        list.contains("login refused")
    });
    assert!(!list.contains("IET"), "{list}");
    shop.fixture.assert_alive();
}

#[test]
fn target_restart_under_load_causes_no_error() {
    let mut shop = Shop::new("iscsi-killed", true);
    shop.configure(&[shop.tgt.target().portal], GUARDED, "da0");
    shop.fixture.start();
    let load = shop.load(4096);
    let mut logins = 0;
    for _ in 0..3 {
        // One that has not logged in again has no session to lose.
        shop.fixture.until("it is logged in", LIMIT, || shop.count("logins") > logins);
        logins = shop.count("logins");
        shop.fixture.until_busy();
        let dropped = shop.count("sessions-dropped");
        shop.tgt.kill().unwrap();
        let is_dropped = || shop.count("sessions-dropped") > dropped;
        shop.fixture.until("the loss is noticed", LIMIT, is_dropped);
        shop.tgt.restart().unwrap();
    }
    load.ends_well();
    shop.fill(7);
    assert!(shop.count("sessions-dropped") >= 3, "nobody was killed");
    assert!(shop.count("commands-stranded") > 0, "nothing was under way");
    assert_eq!(shop.count("paths-lost"), 0);
    shop.fixture.assert_alive();
}

#[test]
fn absent_target_is_given_up_and_attached_again_when_it_returns() {
    let mut shop = Shop::new("iscsi-away", false);
    shop.configure(&[shop.tgt.target().portal], "deadline_s = 2", "da0");
    shop.fixture.start();
    shop.fill(1);
    shop.tgt.kill().unwrap();
    shop.fixture.until("the disk is gone", LIMIT, || shop.fixture.provider("da0").is_none());
    let says = |shop: &Shop| shop.fixture.ok(&["cam", "devlist"]).contains("onnection refused");
    shop.fixture.until("it says why", LIMIT, || says(&shop));
    shop.fixture.assert_alive();
    shop.tgt.restart().unwrap();
    let back = || shop.fixture.provider("da0").is_some();
    shop.fixture.until("the disk is back", LIMIT, back);
    shop.fixture.until("and nothing is wrong any more", LIMIT, || !says(&shop));
    let url = shop.fixture.url(0);
    shop.fixture.until("its LUN answers", LIMIT, || {
        let words = ["-f", "raw", "-c", "read 0 4k", &url];
        let read = Command::new(proc::tool("qemu-io").unwrap()).args(words).output().unwrap();
        read.status.success() && !format!("{read:?}").contains("failed")
    });
    shop.fill(2);
}

#[test]
fn multipath_over_two_portals_survives_the_loss_of_either() {
    let mut shop = Shop::new("iscsi-portals", false);
    let relays = [(); 2].map(|()| Relay::start(shop.tgt.target().portal).unwrap());
    let portals = relays.each_ref().map(Relay::address);
    portals.iter().for_each(|portal| wait_port(*portal).unwrap());
    shop.configure(&portals, "deadline_s = 2", "");
    shop.fixture.start();
    shop.fixture.ok(&["multipath", "label", "both", "da0", "da1"]);
    let both = || {
        let list = shop.fixture.ok(&["multipath", "list"]);
        list.contains("da0") && list.contains("da1") && list.contains("OPTIMAL")
    };
    shop.fixture.until("both paths", LIMIT, both);
    shop.configure(&portals, "deadline_s = 2", "multipath/both");
    shop.fixture.ok(&["apply"]);
    shop.fill(1);
    // The record takes a sector: only sectors fit evenly, and the load repeats.
    let load = shop.load(512);
    for relay in relays.iter().chain(&relays[..1]) {
        shop.fixture.until_busy();
        relay.set(Cable::Silent);
        shop.fixture.until("one path", LIMIT, || !both());
        relay.set(Cable::Whole);
        shop.fixture.until("both paths again", LIMIT, both);
    }
    load.ends_well();
    shop.fill(3);
    assert!(shop.count("paths-lost") >= 2, "no path was lost");
    shop.fixture.assert_alive();
}

/// By UNMAP, one range and, out of a queue of deletes, many in one command.
#[test]
fn unmapped_blocks_are_freed_in_the_target_file() {
    let mut shop = Shop::new("iscsi-deletes", false);
    shop.configure(&[shop.tgt.target().portal], "", "da0");
    shop.fixture.start();
    let url = shop.fixture.url(0);
    let run = |words: &[&str]| drop(qemu_io(&url, words).unwrap());
    let held = || fs::metadata(&shop.disk).unwrap().blocks() * 512;
    run(&["write -P 7 4M 16M", "flush"]);
    let full = held();
    run(&["discard 8M 4M", "flush"]);
    assert!(gave(full, held(), 4 << 20), "{full}, then {}", held());
    run(&["read -P 7 4M 4M", "read -P 0 8M 4M", "read -P 7 12M 8M"]);

    shop.fixture.ok(&["trim", "insert", "da0", "--zeroes", "drop", "--quiet-ms", "3600000"]);
    let full = held();
    let places: Vec<u32> = (0..30).map(|n| 12_288 + n * 256).collect();
    let discards: Vec<String> = places.iter().map(|at| format!("discard {at}k 128k")).collect();
    run(&discards.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(held(), full, "they wait");
    shop.fixture.ok(&["trim", "now", "da0.trim", "--wait"]);
    assert!(gave(full, held(), 30 * (128 << 10)), "{full}, then {}", held());
    let stats = shop.fixture.json(&["trim", "stats", "da0.trim"]);
    let stats = &stats["answer"]["stats"];
    assert_eq!((&stats["commands"], &stats["ranges"]), (&1.into(), &30.into()), "{stats}");
    for at in places {
        let end = at + 128;
        run(&[&format!("read -P 0 {at}k 128k"), &format!("read -P 7 {end}k 128k")]);
    }
    shop.fixture.assert_alive();
    shop.fixture.stop();
}
