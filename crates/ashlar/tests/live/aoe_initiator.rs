//! The AoE initiator against vblade, behind a cable of its own that loses, doubles and reorders
//! frames and changes its MTU. A daemon exports the disk it finds, and data written by initiators
//! is in vblade's file. The target is killed and started again under load.

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bio::Segs;
use reactor::{Config, PortChoice, Reactor, SeededRandom};
use rig::proc::{self, Proc};

use crate::fixture::bench::Bench;
use crate::fixture::{Fixture, ip, tool};

const BYTES: u64 = 24 << 20;

/// Faults of frames on their way, of a thousand each.
#[derive(Clone, Copy, Default)]
struct Weather {
    lost: u32,
    doubled: u32,
    /// Held back for up to 3 ms: others overtake it.
    held: u32,
}

/// Two veth pairs with a relay between them: one end here, the other in a network namespace.
struct Cable {
    near: String,
    far: String,
    ends: [String; 2],
    space: String,
    weather: Arc<Mutex<Weather>>,
    over: Arc<AtomicBool>,
    /// Frames that arrived at either end, ours first.
    carried: Arc<[AtomicU64; 2]>,
    relay: Option<JoinHandle<()>>,
}

/// Carries frames of AoE between two interfaces.
fn relay(
    ends: &[String; 2],
    weather: &Mutex<Weather>,
    over: &AtomicBool,
    carried: &[AtomicU64; 2],
) {
    let config = Config { port: PortChoice::Poll, ..Config::default() };
    let reactor = Reactor::start(config).unwrap();
    let links = ends.each_ref().map(|end| reactor.link(end, 0x88A2).unwrap());
    let mut random = SeededRandom::new(1);
    let mut held: Vec<(Instant, usize, Vec<u8>)> = Vec::new();
    while !over.load(Ordering::Relaxed) {
        let weather = *weather.lock().unwrap();
        let mut came = Vec::new();
        for (from, link) in links.iter().enumerate() {
            let _ = link.receive(64, &mut |frame| came.push((from, frame.to_vec())));
        }
        let is_quiet = came.is_empty();
        let now = Instant::now();
        for (from, frame) in came {
            carried[from].fetch_add(1, Ordering::Relaxed);
            let times = match () {
                () if random.chance(weather.lost) => 0,
                () if random.chance(weather.doubled) => 2,
                () => 1,
            };
            for _ in 0..times {
                let late = if random.chance(weather.held) { random.below(3000) } else { 0 };
                held.push((now + Duration::from_micros(late), 1 - from, frame.clone()));
            }
        }
        let (due, later): (Vec<_>, Vec<_>) = held.into_iter().partition(|(at, ..)| *at <= now);
        held = later;
        for (_, to, frame) in due {
            let _ = links[to].send(&frame, &Segs::new());
            if links[to].queued() > 100 {
                let _ = links[to].flush();
            }
        }
        links.iter().for_each(|link| drop(link.flush()));
        if is_quiet {
            std::thread::sleep(Duration::from_micros(50));
        }
    }
}

impl Cable {
    /// The cable of a number, of this process.
    fn new(number: u32) -> Cable {
        let id = std::process::id() % 100_000;
        let name = |what: &str| format!("a{what}{number}-{id}");
        let weather: Arc<Mutex<Weather>> = Arc::default();
        let over: Arc<AtomicBool> = Arc::default();
        let mut cable = Cable {
            near: name("h"),
            far: name("t"),
            ends: [name("x"), name("y")],
            space: format!("ashlar{number}-{id}"),
            weather: weather.clone(),
            over: over.clone(),
            carried: Arc::default(),
            relay: None,
        };
        let Cable { near: here, far: there, ends: [x, y], space, .. } = &cable;
        ip(&format!("netns add {space}"));
        ip(&format!("link add {here} type veth peer name {x}"));
        ip(&format!("link add {y} type veth peer name {there} netns {space}"));
        // Without a queue of its own this end reports at once that the other has no space, and
        // vblade exits when a send fails. On a real wire, which has a queue, such a frame is lost.
        tool("tc", &["-n", space, "qdisc", "replace", "dev", there, "root", "pfifo"], "");
        cable.mtu(9000);
        let ends = cable.ends.clone();
        let carried = cable.carried.clone();
        cable.relay = Some(std::thread::spawn(move || relay(&ends, &weather, &over, &carried)));
        cable
    }

    fn weather(&self, weather: Weather) {
        *self.weather.lock().unwrap() = weather;
    }

    fn mtu(&self, mtu: u32) {
        let [x, y] = &self.ends;
        for end in [&self.near, x, y] {
            ip(&format!("link set {end} up mtu {mtu}"));
        }
        ip(&format!("-n {} link set {} up mtu {mtu}", self.space, self.far));
    }

    fn vblade(&self, file: &str, log: &std::path::Path) -> Proc {
        let mut command = Command::new(proc::tool("ip").unwrap());
        command.args(["netns", "exec", &self.space]).arg(proc::tool("vblade").unwrap());
        command.args(["-b", "16", "7", "1", &self.far, file]);
        let mut vblade = Proc::start("vblade", &mut command, log).unwrap();
        // vblade prints nothing when it listens. Once it is in its name space, there is no other
        // socket of this protocol.
        let at = format!("/proc/{}", vblade.pid());
        let space = |at: &str| fs::read_link(format!("{at}/ns/net")).ok();
        let listens = || {
            let sockets = fs::read_to_string(format!("{at}/net/packet")).unwrap_or_default();
            space(&at) != space("/proc/self") && sockets.contains(" 88a2 ")
        };
        vblade.wait_ready(Duration::from_secs(20), listens).unwrap();
        vblade
    }

    /// Our address there.
    fn mac(&self) -> String {
        let place = format!("/sys/class/net/{}/address", self.near);
        fs::read_to_string(place).unwrap().trim().to_owned()
    }

    /// Frames that we have sent there.
    fn sent(&self) -> u64 {
        let place = format!("/sys/class/net/{}/statistics/tx_packets", self.near);
        fs::read_to_string(place).unwrap().trim().parse().unwrap()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.relay.take().map(JoinHandle::join);
        for line in [format!("link del {}", self.near), format!("netns del {}", self.space)] {
            let _ = Command::new("ip").args(line.split(' ')).status();
        }
    }
}

struct Shop {
    cable: Cable,
    /// Another one, to the same disk.
    second: Option<Cable>,
    disk: PathBuf,
    /// Last: with it ends the turn, and the next one's cables have the same names.
    fixture: Fixture,
}

impl Shop {
    fn new(name: &str) -> Shop {
        let fixture = Fixture::alone(name);
        let disk = fixture.image("vblade.img", BYTES);
        Shop { cable: Cable::new(0), second: None, disk, fixture }
    }

    fn vblade(&self) -> Proc {
        self.vblade_at(&self.cable)
    }

    fn vblade_at(&self, cable: &Cable) -> Proc {
        let log = self.fixture.path(&format!("vblade-{}.log", cable.near));
        cable.vblade(self.disk.to_str().unwrap(), &log)
    }

    fn configure(&self, deadline_s: u32) {
        let cables = std::iter::once(&self.cable).chain(&self.second);
        let interfaces: Vec<String> = cables.map(|c| format!("\"{}\"", c.near)).collect();
        let bus = format!(
            "[[bus]]\nname = \"aoe0\"\nkind = \"aoe\"\ninterfaces = [{}]\n\
             deadline_s = {deadline_s}\nframe_life_ms = 500\nask_s = 1\n",
            interfaces.join(", ")
        );
        self.fixture.configure(&bus, "0 = \"ada0\"");
    }

    /// Writes a file of its own over the disk, through iSCSI and AoE, and reads it back both ways.
    fn fill(&self, seed: u64) {
        self.fixture.fill(seed, BYTES, &self.disk);
    }

    fn load(&self) -> Bench {
        Bench::start(&self.fixture.url(0), 4096, &self.fixture.path("bench.log"))
    }

    fn count(&self, name: &str) -> u64 {
        let list = self.fixture.json(&["cam", "devlist"]);
        list["answer"]["buses"][0]["counts"][name].as_u64().unwrap()
    }
}

/// Prints the logs where a test has failed.
impl Drop for Shop {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for cable in std::iter::once(&self.cable).chain(&self.second) {
                let log = self.fixture.path(&format!("vblade-{}.log", cable.near));
                let log = fs::read_to_string(log).unwrap_or_default();
                let carried = cable.carried.each_ref().map(|n| n.load(Ordering::Relaxed));
                eprintln!("{}: {carried:?} frames carried; vblade wrote: {log}", cable.near);
            }
            eprintln!("log of the daemon:\n{}", self.fixture.log());
        }
    }
}

#[test]
fn written_data_reaches_the_target_over_a_lossy_link() {
    let mut shop = Shop::new("aoe-weather");
    let _vblade = shop.vblade();
    shop.configure(20);
    shop.fixture.start();
    let list = shop.fixture.ok(&["cam", "devlist"]);
    assert!(list.contains("Coraid EtherDrive vblade") && list.contains("ada0"), "{list}");
    assert!(list.contains("target 1793 lun 0"), "7.1: {list}");
    let weathers = [
        Weather::default(),
        Weather { lost: 1, ..Weather::default() },
        Weather { lost: 10, ..Weather::default() },
        Weather { doubled: 20, ..Weather::default() },
        Weather { held: 200, ..Weather::default() },
        Weather { lost: 5, doubled: 5, held: 50 },
    ];
    for (seed, weather) in weathers.into_iter().enumerate() {
        shop.cable.weather(weather);
        shop.fill(seed as u64);
    }
    assert!(shop.count("frames-sent-again") > 10, "the cable lost nothing");
    assert!(shop.count("answers-unasked") + shop.count("answers-late") > 10, "nor doubled");
    shop.cable.weather(Weather::default());
    shop.cable.mtu(1500);
    // vblade ends when it is to answer more than its interface can send. Until each core has looked
    // at ours, which it does once a second, more is requested. No command shows that it has.
    std::thread::sleep(Duration::from_millis(2500));
    let sent = shop.count("frames-sent");
    shop.fill(100);
    // Written and read, two sectors a frame; counts are collected once a second.
    shop.fixture.until("frames of two sectors", Duration::from_secs(10), || {
        shop.count("frames-sent") - sent >= 2 * BYTES / 1024
    });
    shop.cable.mtu(9000);
    shop.fixture.assert_alive();
}

#[test]
fn target_restart_under_load_causes_no_error() {
    let mut shop = Shop::new("aoe-killed");
    let mut vblade = shop.vblade();
    shop.configure(20);
    shop.fixture.start();
    let load = shop.load();
    for _ in 0..3 {
        let limit = Duration::from_secs(60);
        let (sent, again) = (shop.count("frames-sent"), shop.count("frames-sent-again"));
        shop.fixture.until("the load works", limit, || shop.count("frames-sent") > sent);
        drop(vblade);
        let is_late = || shop.count("frames-sent-again") > again;
        shop.fixture.until("frames are sent again", limit, is_late);
        vblade = shop.vblade();
    }
    load.ends_well();
    shop.fill(7);
    drop(vblade);
}

#[test]
fn disk_on_two_interfaces_survives_the_loss_of_either() {
    let mut shop = Shop::new("aoe-cables");
    let second = Cable::new(1);
    second.mtu(1500);
    let mut first_blade = shop.vblade();
    let mut second_blade = shop.vblade_at(&second);
    shop.second = Some(second);
    shop.configure(20);
    shop.fixture.start();
    let list = shop.fixture.ok(&["cam", "devlist"]);
    assert_eq!(list.matches("EtherDrive").count(), 1, "one disk, whatever leads to it: {list}");
    let sent = |shop: &Shop| (shop.cable.sent(), shop.second.as_ref().unwrap().sent());
    let until_both = |shop: &Shop, what: &str| {
        let (first, second) = sent(shop);
        shop.fixture.until(what, Duration::from_secs(60), || {
            let now = sent(shop);
            now.0 > first + 500 && now.1 > second + 500
        });
    };
    let before = sent(&shop);
    shop.fill(1);
    // Large frames on one, small ones on the other, for the same requests.
    let now = sent(&shop);
    assert!(now.0 > before.0 + 500 && now.1 > before.1 + 500, "{before:?} {now:?}");

    let load = shop.load();
    let until_late = |shop: &Shop, again: u64| {
        let is_late = || shop.count("frames-sent-again") > again;
        shop.fixture.until("frames are sent again", Duration::from_secs(60), is_late);
    };
    until_both(&shop, "both are gone");
    let again = shop.count("frames-sent-again");
    drop(first_blade);
    until_late(&shop, again);
    first_blade = shop.vblade();
    until_both(&shop, "the first way is back");
    let again = shop.count("frames-sent-again");
    drop(second_blade);
    until_late(&shop, again);
    second_blade = shop.vblade_at(shop.second.as_ref().unwrap());
    until_both(&shop, "the second way is back");
    load.ends_well();
    shop.fill(2);
    shop.fixture.assert_alive();
    drop((first_blade, second_blade));
}

#[test]
fn config_string_masks_and_reservation_are_read_and_set() {
    const STRANGER: &str = "02:00:00:00:00:09";
    let mut shop = Shop::new("aoe-orders");
    let _vblade = shop.vblade();
    shop.configure(20);
    shop.fixture.start();
    let ours = shop.cable.mac();
    // Orders are lost and sent again.
    shop.cable.weather(Weather { lost: 200, doubled: 100, held: 100 });
    let output = |words: &[&str]| {
        let all = [&["cam"], words].concat();
        shop.fixture.ok(&all)
    };
    let refused = |words: &[&str], why: &[&str]| {
        let all = [&["cam"], words].concat();
        shop.fixture.ashlar(&all).complains(why);
    };

    assert_eq!(output(&["aoeconfig", "ada0"]), "ada0: no string\n");
    assert_eq!(output(&["aoeconfig", "ada0", "--set", "host7"]), "host7\n");
    refused(&["aoeconfig", "ada0", "--set", "host8"], &["has the string `host7`", "--force"]);
    assert_eq!(output(&["aoeconfig", "ada0", "--set", "host8", "--force"]), "host8\n");
    let long = "x".repeat(1025);
    refused(&["aoeconfig", "ada0", "--set", &long], &["1024"]);
    shop.cable.weather(Weather::default());
    let stranger = tool("aoecfg", &["-t", "1", "7", "1", &shop.cable.near], "");
    assert!(stranger.contains("host8"), "{stranger}");
    shop.cable.weather(Weather { lost: 200, doubled: 100, held: 100 });
    assert_eq!(output(&["aoeconfig", "ada0", "--clear"]), "ada0: no string\n");

    assert_eq!(output(&["aoereserve", "ada0"]), "ada0: not reserved\n");
    assert_eq!(output(&["aoereserve", "ada0", "--set"]), format!("{ours}\n"));
    assert_eq!(output(&["aoereserve", "ada0"]), format!("{ours}\n"));
    shop.cable.weather(Weather::default());
    shop.fill(1);
    output(&["aoereserve", "ada0", "--release"]);
    output(&["aoereserve", "ada0", STRANGER, "--set"]);
    let read = || {
        let url = shop.fixture.url(0);
        let words = ["-f", "raw", "-c", "read 0 4k", &url];
        let done = Command::new(proc::tool("qemu-io").unwrap()).args(words).output().unwrap();
        done.status.success() && !format!("{done:?}").contains("failed")
    };
    assert!(!read(), "it is the stranger's");
    refused(&["aoereserve", "ada0", "--release"], &["reserved for", STRANGER, "--force"]);
    refused(&["aoereserve", "ada0", STRANGER], &["--set or --release"]);
    assert_eq!(output(&["aoereserve", "ada0", "--release", "--force"]), "ada0: not reserved\n");
    assert!(read());

    assert_eq!(output(&["aoemask", "ada0"]), "ada0: all machines may reach it\n");
    refused(&["aoemask", "ada0", STRANGER, "--add"], &["not answer this machine", &ours]);
    let both = output(&["aoemask", "ada0", &ours, STRANGER, "--add"]);
    assert!(both.contains(&ours) && both.contains(STRANGER), "{both}");
    let json = shop.fixture.json(&["cam", "aoemask", "ada0"]);
    assert_eq!(json["answer"]["masks"], serde_json::json!([ours, STRANGER]));
    refused(&["aoemask", "ada0", &ours, "--delete"], &["not answer this machine"]);
    // vblade 25 takes nothing out, and dies of it: `two_paths.rs` does that to a target of ours.
    shop.fill(2);
    refused(&["aoemask", "ada0", "ff:ff:ff:ff:ff:ff", "--add"], &["a group address"]);
    shop.fixture.assert_alive();
}

#[test]
fn absent_target_is_given_up_and_attached_again_when_it_returns() {
    let mut shop = Shop::new("aoe-away");
    let vblade = shop.vblade();
    shop.configure(2);
    shop.fixture.start();
    shop.fill(1);
    drop(vblade);
    let url = shop.fixture.url(0);
    let qemu =
        |words: &[&str]| Command::new(proc::tool("qemu-io").unwrap()).args(words).output().unwrap();
    let read = qemu(&["-f", "raw", "-c", "read 0 4k", &url]);
    let output = format!("{read:?}");
    assert!(!read.status.success() || output.contains("failed"), "{output}");
    shop.fixture.assert_alive();
    let _vblade = shop.vblade();
    let limit = Duration::from_secs(30);
    shop.fixture.until("the disk is back", limit, || {
        let list = shop.fixture.ok(&["cam", "devlist"]);
        list.contains("ada0") && shop.fixture.provider("ada0").is_some()
    });
    let limit = Duration::from_secs(30);
    shop.fixture.until("its LUN answers", limit, || {
        let read = qemu(&["-f", "raw", "-c", "read 0 4k", &url]);
        read.status.success() && !format!("{read:?}").contains("failed")
    });
    shop.fill(2);
}
