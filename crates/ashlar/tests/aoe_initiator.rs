//! The AoE initiator against vblade, behind a cable of its own that loses, doubles and reorders
//! frames and changes its MTU: a daemon exports the disk it finds, and what initiators write there
//! is in vblade's file. The target is killed and started again under load.

mod house;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bio::Segs;
use house::{House, tool};
use reactor::{Config, PortChoice, Reactor, SeededRandom};
use rig::proc::{self, Proc};

const BYTES: u64 = 24 << 20;

/// What happens to frames on their way, of a thousand each.
#[derive(Clone, Copy, Default)]
struct Weather {
    lost: u32,
    doubled: u32,
    /// Held back for up to 3 ms: others overtake it.
    held: u32,
}

/// Two veth pairs with a relay between them: one end here, the other in a network namespace.
struct Cable {
    here: String,
    there: String,
    ends: [String; 2],
    space: String,
    weather: Arc<Mutex<Weather>>,
    over: Arc<AtomicBool>,
    relay: Option<JoinHandle<()>>,
}

fn ip(line: &str) {
    tool("ip", &line.split(' ').collect::<Vec<_>>(), "");
}

/// Carries frames of AoE between two interfaces.
fn relay(ends: &[String; 2], weather: &Mutex<Weather>, over: &AtomicBool) {
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
    fn new() -> Cable {
        let id = std::process::id() % 100_000;
        let name = |what: &str| format!("a{what}{id}");
        let weather: Arc<Mutex<Weather>> = Arc::default();
        let over: Arc<AtomicBool> = Arc::default();
        let mut cable = Cable {
            here: name("h"),
            there: name("t"),
            ends: [name("x"), name("y")],
            space: format!("ashlar-{id}"),
            weather: weather.clone(),
            over: over.clone(),
            relay: None,
        };
        let Cable { here, there, ends: [x, y], space, .. } = &cable;
        ip(&format!("netns add {space}"));
        ip(&format!("link add {here} type veth peer name {x}"));
        ip(&format!("link add {y} type veth peer name {there} netns {space}"));
        cable.mtu(9000);
        let ends = cable.ends.clone();
        cable.relay = Some(std::thread::spawn(move || relay(&ends, &weather, &over)));
        cable
    }

    fn weather(&self, weather: Weather) {
        *self.weather.lock().unwrap() = weather;
    }

    fn mtu(&self, mtu: u32) {
        let [x, y] = &self.ends;
        for end in [&self.here, x, y] {
            ip(&format!("link set {end} up mtu {mtu}"));
        }
        ip(&format!("-n {} link set {} up mtu {mtu}", self.space, self.there));
    }

    fn vblade(&self, file: &str, log: &std::path::Path) -> Proc {
        let mut command = Command::new(proc::tool("ip").unwrap());
        command.args(["netns", "exec", &self.space]).arg(proc::tool("vblade").unwrap());
        command.args(["-b", "16", "7", "1", &self.there, file]);
        Proc::start("vblade", &mut command, log).unwrap()
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
        let _ = self.relay.take().map(JoinHandle::join);
        for line in [format!("link del {}", self.here), format!("netns del {}", self.space)] {
            let _ = Command::new("ip").args(line.split(' ')).status();
        }
    }
}

struct Shop {
    house: House,
    cable: Cable,
    disk: PathBuf,
}

impl Shop {
    fn new(name: &str) -> Shop {
        let house = House::new(name);
        let disk = house.image("vblade.img", BYTES);
        Shop { house, cable: Cable::new(), disk }
    }

    fn vblade(&self) -> Proc {
        self.cable.vblade(self.disk.to_str().unwrap(), &self.house.path("vblade.log"))
    }

    fn configure(&self, deadline_s: u32) {
        let bus = format!(
            "[[bus]]\nname = \"aoe0\"\nkind = \"aoe\"\ninterfaces = [\"{}\"]\n\
             deadline_s = {deadline_s}\nframe_life_ms = 500\nask_s = 1\n",
            self.cable.here
        );
        self.house.configure(&bus, "0 = \"ada0\"");
    }

    /// Writes a file of its own over the disk, through iSCSI and AoE, and reads it back both ways.
    fn fill(&self, seed: u64) {
        let source = self.house.path("source.img");
        let mut value = seed;
        let word = |_| {
            value = value.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_041);
            (value >> 32) as u32
        };
        let bytes: Vec<u8> = (0..BYTES / 4).map(word).flat_map(u32::to_le_bytes).collect();
        fs::write(&source, &bytes).unwrap();
        let (from, url) = (source.to_str().unwrap(), self.house.url(0));
        tool("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", from, &url], "");
        assert!(fs::read(&self.disk).unwrap() == bytes, "seed {seed}: vblade's file differs");
        tool("qemu-img", &["compare", "-f", "raw", "-F", "raw", from, &url], "");
    }

    fn count(&self, name: &str) -> u64 {
        let list = self.house.json(&["cam", "devlist"]);
        list["answer"]["buses"][0]["counts"][name].as_u64().unwrap()
    }
}

#[test]
fn what_is_written_is_in_the_peers_file_whatever_the_cable_does() {
    let mut shop = Shop::new("aoe-weather");
    let _vblade = shop.vblade();
    shop.configure(20);
    shop.house.start();
    let list = shop.house.ok(&["cam", "devlist"]);
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
    let sent = shop.count("frames-sent");
    shop.cable.mtu(1500);
    shop.fill(100);
    // Written and read, two sectors a frame; counts are brought together once a second.
    shop.house.until("frames of two sectors", Duration::from_secs(10), || {
        shop.count("frames-sent") - sent >= 2 * BYTES / 1024
    });
    shop.cable.mtu(9000);
    shop.house.assert_alive();
}

#[test]
fn a_target_that_is_killed_and_comes_back_is_not_noticed() {
    let mut shop = Shop::new("aoe-killed");
    let mut vblade = shop.vblade();
    shop.configure(20);
    shop.house.start();
    let url = shop.house.url(0);
    let log = shop.house.path("bench.log");
    let mut command = Command::new(proc::tool("qemu-img").unwrap());
    let load = ["-c", "20000", "-d", "8", "-f", "raw", "-w", "-t", "none"];
    command.arg("bench").args(load).arg(&url);
    let mut load = Proc::start("qemu-img bench", &mut command, &log).unwrap();
    for _ in 0..3 {
        std::thread::sleep(Duration::from_millis(700));
        drop(vblade);
        std::thread::sleep(Duration::from_millis(1500));
        vblade = shop.vblade();
    }
    let mut ended = None;
    shop.house.until("the load ends", Duration::from_secs(300), || {
        ended = load.ended().unwrap();
        ended.is_some()
    });
    assert!(ended.is_some_and(|s| s.success()), "{}", fs::read_to_string(&log).unwrap());
    shop.fill(7);
    drop(vblade);
}

#[test]
fn a_target_that_stays_away_is_given_up_and_taken_in_again() {
    let mut shop = Shop::new("aoe-away");
    let vblade = shop.vblade();
    shop.configure(2);
    shop.house.start();
    shop.fill(1);
    drop(vblade);
    let url = shop.house.url(0);
    let qemu =
        |words: &[&str]| Command::new(proc::tool("qemu-io").unwrap()).args(words).output().unwrap();
    let read = qemu(&["-f", "raw", "-c", "read 0 4k", &url]);
    let said = format!("{read:?}");
    assert!(!read.status.success() || said.contains("failed"), "{said}");
    shop.house.assert_alive();
    let _vblade = shop.vblade();
    let limit = Duration::from_secs(30);
    shop.house.until("the disk is back", limit, || {
        let list = shop.house.ok(&["cam", "devlist"]);
        list.contains("ada0") && shop.house.provider("ada0").is_some()
    });
    let limit = Duration::from_secs(30);
    shop.house.until("its LUN answers", limit, || {
        let read = qemu(&["-f", "raw", "-c", "read 0 4k", &url]);
        read.status.success() && !format!("{read:?}").contains("failed")
    });
    shop.fill(2);
}
