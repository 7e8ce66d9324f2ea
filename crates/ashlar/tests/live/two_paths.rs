//! One disk by two kinds of paths: a daemon exports it by iSCSI and by AoE, another has both as
//! paths of one multipath. Each path dies in turn under load, without an error above. Our initiator
//! also reads and sets the data that an AoE target of ours keeps. Needs root.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Duration;

use rig::peer::qemu_io;
use rig::relay::{Cable, Relay};

use crate::fixture::bench::Bench;
use crate::fixture::{Fixture, gave, ip};

const BYTES: u64 = 24 << 20;
const LIMIT: Duration = Duration::from_secs(40);

/// An Ethernet cable with both ends here; removed when it is dropped.
pub struct Wire {
    pub near: String,
    pub far: String,
}

impl Wire {
    pub fn new() -> Wire {
        let id = std::process::id() % 100_000;
        let wire = Wire { near: format!("w{id}h"), far: format!("w{id}t") };
        let Wire { near: here, far: there } = &wire;
        ip(&format!("link add {here} mtu 9000 type veth peer name {there} mtu 9000"));
        ip(&format!("link set {there} up"));
        wire.plug(true);
        wire
    }

    fn plug(&self, is_in: bool) {
        ip(&format!("link set {} {}", self.near, if is_in { "up" } else { "down" }));
    }
}

impl Drop for Wire {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.near]).status();
    }
}

/// The daemon that has the disk.
fn back(image: &str, wire: &Wire) -> String {
    format!(
        "[[disk]]\nname = \"d0\"\nkind = \"file\"\npath = \"{image}\"\nserial = \"ONE\"\n\
         [[target]]\ndriver = \"aoe\"\nname = \"e7\"\nlisten = [\"ether:{}\"]\nshelf = 7\n\
         [[access]]\ntarget = \"e7\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"d0\" }}\n\
         [[access]]\ntarget = \"{{iqn}}\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"d0\" }}\n",
        wire.far
    )
}

struct Shop {
    front: Fixture,
    back: Fixture,
    wire: Wire,
    relay: Relay,
    /// Longest life of a command whose way does not answer.
    deadline_s: u32,
}

impl Shop {
    fn configure(&self, luns: &str) {
        let buses = format!(
            "[[bus]]\nname = \"iscsi0\"\nkind = \"iscsi\"\nportals = [\"{}\"]\n\
             target = \"{}\"\ninitiator = \"iqn.2026-11.test.ashlar:front\"\n\
             deadline_s = {deadline}\n\
             [[bus]]\nname = \"aoe0\"\nkind = \"aoe\"\ninterfaces = [\"{}\"]\n\
             deadline_s = {deadline}\nframe_life_ms = 500\nask_s = 1\n",
            self.relay.address(),
            self.back.target(0).iqn,
            self.wire.near,
            deadline = self.deadline_s
        );
        self.front.configure(&buses, luns);
    }

    fn is_whole(&self) -> bool {
        let status = self.front.ok(&["multipath", "status"]);
        status.contains("OPTIMAL") && status.contains("ada0") && status.matches("da0").count() > 1
    }

    /// A file over the disk, in the file behind.
    fn fill(&self, seed: u64) {
        self.front.fill(seed, BYTES - 512, &self.front.path("d0.img"));
    }
}

impl Shop {
    /// Both disks are there.
    fn open(name: &str, deadline_s: u32) -> Shop {
        let front = Fixture::alone(name);
        let (image, wire) = (front.image("d0.img", BYTES), Wire::new());
        let back = front.sibling(&format!("{name}-back"), &back(image.to_str().unwrap(), &wire));
        let relay = Relay::start(back.portal()).unwrap();
        let mut shop = Shop { front, back, wire, relay, deadline_s };
        shop.configure("");
        shop.front.start();
        let is_present = || ["da0", "ada0"].iter().all(|n| shop.front.provider(n).is_some());
        shop.front.until("both disks", LIMIT, is_present);
        shop
    }
}

/// By UNMAP and by DATA SET MANAGEMENT, one range and, out of a queue of deletes, many in one
/// command.
#[test]
fn deletes_over_iscsi_and_aoe_free_blocks_of_the_file() {
    let mut shop = Shop::open("two-deletes", 20);
    shop.configure("0 = \"da0\", 1 = \"ada0\"");
    shop.front.ok(&["apply"]);
    let file = shop.front.path("d0.img");
    let held = || fs::metadata(&file).unwrap().blocks() * 512;
    for (lun, disk) in [(0, "da0"), (1, "ada0")] {
        let url = shop.front.url(lun);
        let run = |words: &[&str]| {
            let output = qemu_io(&url, words);
            output.unwrap_or_else(|e| panic!("{disk}: {e:#}\n{}", shop.front.log()));
        };
        run(&["write -P 7 4M 16M", "flush"]);
        let full = held();
        run(&["discard 8M 4M", "flush"]);
        assert!(gave(full, held(), 4 << 20), "{disk}: {full}, then {}", held());
        run(&["read -P 7 4M 4M", "read -P 0 8M 4M", "read -P 7 12M 8M"]);
        shop.front.ok(&["trim", "insert", disk, "--zeroes", "drop", "--quiet-ms", "3600000"]);
        let (queue, full) = (format!("{disk}.trim"), held());
        let places = (0..30).map(|n| 12_288 + n * 256);
        let discards: Vec<String> = places.map(|at| format!("discard {at}k 128k")).collect();
        run(&discards.iter().map(String::as_str).collect::<Vec<_>>());
        assert_eq!(held(), full, "{disk}: they wait");
        shop.front.ok(&["trim", "now", &queue, "--wait"]);
        assert!(gave(full, held(), 30 * (128 << 10)), "{disk}: {full}, then {}", held());
        let stats = shop.front.json(&["trim", "stats", &queue]);
        let stats = &stats["answer"]["stats"];
        assert_eq!((&stats["commands"], &stats["ranges"]), (&1.into(), &30.into()), "{stats}");
        run(&["read -P 0 12M 128k", "read -P 7 12416k 128k", "read -P 7 20352k 128k"]);
        shop.front.ok(&["trim", "destroy", &queue]);
    }
    shop.back.assert_alive();
    shop.front.assert_alive();
}

#[test]
fn multipath_over_iscsi_and_aoe_survives_the_loss_of_either() {
    let mut shop = Shop::open("two-ways", 2);
    shop.front.ok(&["multipath", "label", "--active", "both", "da0", "ada0"]);
    shop.front.until("both paths", LIMIT, || shop.is_whole());
    shop.configure("0 = \"multipath/both\"");
    shop.front.ok(&["apply"]);
    shop.fill(1);
    let load = Bench::start(&shop.front.url(0), 512, &shop.front.path("bench.log"));
    let is_ill = |bus: &str| shop.front.ashlar(&["status"]).out.contains(&format!("bus {bus} ("));
    for _ in 0..2 {
        shop.relay.set(Cable::Silent);
        let alone = || !shop.is_whole() && is_ill("iscsi0") && !is_ill("aoe0");
        shop.front.until("AoE alone", LIMIT, alone);
        shop.relay.set(Cable::Whole);
        shop.front.until("iSCSI is back", LIMIT, || shop.is_whole() && !is_ill("iscsi0"));
        shop.wire.plug(false);
        let alone = || !shop.is_whole() && is_ill("aoe0") && !is_ill("iscsi0");
        shop.front.until("iSCSI alone", LIMIT, alone);
        shop.wire.plug(true);
        shop.front.until("AoE is back", LIMIT, || shop.is_whole() && !is_ill("aoe0"));
    }
    let journal = shop.front.ok(&["journal"]);
    for output in [" at 127.0.0.1:", "e7.0 does not answer by ", "no longer true: e7.0 "] {
        assert!(journal.contains(output), "{output}: {journal}");
    }
    load.ends_well();
    shop.fill(2);
    shop.back.assert_alive();
    shop.front.assert_alive();
}

#[test]
fn masks_reservations_and_growth_of_an_aoe_target_take_effect() {
    const STRANGER: &str = "02:00:00:00:00:09";
    let mut shop = Shop::open("aoe-ends", 2);
    let image = shop.front.path("d0.img");
    let place = format!("/sys/class/net/{}/address", shop.wire.near);
    let ours = fs::read_to_string(place).unwrap().trim().to_owned();
    let output = |shop: &Shop, words: &[&str]| shop.front.ok(&[&["cam"], words].concat());
    let refused = |shop: &Shop, words: &[&str], why: &[&str]| {
        shop.front.ashlar(&[&["cam"], words].concat()).complains(why);
    };

    output(&shop, &["aoemask", "ada0", &ours, STRANGER, "--add"]);
    assert_eq!(output(&shop, &["aoemask", "ada0", STRANGER, "--delete"]), format!("{ours}\n"));
    refused(&shop, &["aoemask", "ada0", STRANGER], &["--add or --delete"]);
    let all = "ada0: all machines may reach it\n";
    assert_eq!(output(&shop, &["aoemask", "ada0", &ours, "--delete"]), all);
    refused(&shop, &["aoemask", "da0"], &["not a disk of an AoE bus"]);

    output(&shop, &["aoeconfig", "ada0", "--set", "host7"]);
    output(&shop, &["aoereserve", "ada0", STRANGER, "--set"]);
    refused(&shop, &["aoereserve", "ada0", "--set"], &["reserved for", STRANGER]);
    let read = ["cam", "cmd", "ada0", "-a", "24 0 0 0 0 40 0 0 0 0 1 0", "-i", "512"];
    assert!(shop.front.ashlar(&read).code != 0, "it is the stranger's");
    // The target keeps them.
    shop.back.stop();
    shop.back.start();
    shop.front.until("it answers again", LIMIT, || {
        shop.front.ashlar(&["cam", "aoeconfig", "ada0"]).out == "host7\n"
    });
    assert_eq!(output(&shop, &["aoereserve", "ada0"]), format!("{STRANGER}\n"));
    output(&shop, &["aoereserve", "ada0", "--release", "--force"]);
    shop.front.until("it is free", LIMIT, || shop.front.ashlar(&read).code == 0);

    // No command rescans it: the initiator detects the new size by itself.
    fs::File::options().write(true).open(&image).unwrap().set_len(2 * BYTES).unwrap();
    shop.back.ok(&["geom", "disk", "resize", "name=d0"]);
    let last = format!("Last Block: {}, Block Length: 512 bytes\n", 2 * BYTES / 512 - 1);
    shop.front.until("it has grown", LIMIT, || output(&shop, &["readcap", "ada0"]) == last);
    let bytes = (2 * BYTES).to_string();
    let grown = || shop.front.ok(&["cam", "list"]).contains(&bytes);
    shop.front.until("so has its provider", LIMIT, grown);
    shop.back.assert_alive();
    shop.front.assert_alive();
}
