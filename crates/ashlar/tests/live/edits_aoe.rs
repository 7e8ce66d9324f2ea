//! Kinds of edits under an AoE initiator that sends no frame twice and has reserved its slots. Each
//! frame is answered without an error, and no reservation is lost.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bio::Segs;
use reactor::{Config, Link, PortChoice, Reactor};
use wire::aoe::{Address, Ata, ETHERTYPE, Header, Mac, Reserve, command, reserve};
use wire::ata::command as op;

use crate::fixture::{Fixture, array, file_disk, text};
use testkit::cable::Cable;

/// Longest wait for the answer to a frame, and for the next rounds.
const LIMIT: Duration = Duration::from_secs(30);
/// Wait for the answer to a command that may be dropped.
const SOON: Duration = Duration::from_millis(200);
/// Rounds between two edits.
const ROUNDS: u64 = 8;
const SHELF: u16 = 568;
/// Slots that the initiator uses, and those of them that it writes; it reads the rest.
const SLOTS: (u8, u8) = (3, 2);
/// Sectors of a slot that it uses.
const SECTORS: u64 = 1024;

/// One end of a cable, from which the other end is reached.
struct Station {
    link: Link,
    from: Mac,
    to: Mac,
    tag: u32,
}

fn mac_of(interface: &str) -> Mac {
    let place = format!("/sys/class/net/{interface}/address");
    std::fs::read_to_string(place).unwrap().trim().parse().unwrap()
}

impl Station {
    fn new([near, far]: &[String; 2]) -> Station {
        let config = Config { port: PortChoice::Poll, ..Config::default() };
        let link = Reactor::start(config).unwrap().link(near, ETHERTYPE).unwrap();
        Station { link, from: mac_of(near), to: mac_of(far), tag: 0 }
    }

    /// Sends a request once; returns the body of its answer, which reports no error.
    fn ask(&mut self, slot: u8, command: u8, body: &[u8]) -> Vec<u8> {
        let answer = self.answer_within(LIMIT, slot, command, body);
        answer.unwrap_or_else(|| panic!("slot {slot}: no answer to command {command}"))
    }

    /// Identifies a slot. A target announces itself instead of an answer to the first command.
    fn identify(&mut self, slot: u8) {
        let ata = Ata { command: op::IDENTIFY, sectors: 1, ..Ata::default() };
        let end = Instant::now() + LIMIT;
        while self.answer_within(SOON, slot, command::ATA, &ata.encode()).is_none() {
            assert!(Instant::now() < end, "slot {slot}: it is not identified");
        }
    }

    fn answer_within(
        &mut self,
        time: Duration,
        slot: u8,
        command: u8,
        body: &[u8],
    ) -> Option<Vec<u8>> {
        self.tag += 1;
        let (tag, address) = (self.tag, Address { shelf: SHELF, slot });
        let head = Header::request(self.to, self.from, address, command, tag);
        self.link.send(&[&head.encode()[..], body].concat(), &Segs::new()).unwrap();
        let (end, mut answer) = (Instant::now() + time, None);
        while answer.is_none() {
            if Instant::now() >= end {
                return None;
            }
            self.link.flush().unwrap();
            let mut take = |frame: &[u8]| {
                let Ok((head, body)) = Header::decode(frame) else { return };
                if head.response && (head.tag, head.command) == (tag, command) {
                    answer = Some((head.error, body.to_vec()));
                }
            };
            self.link.receive(64, &mut take).unwrap();
            std::thread::yield_now();
        }
        let (error, body) = answer?;
        assert_eq!(error, None, "slot {slot}, command {command}");
        Some(body)
    }

    /// A command for one sector; returns the data of its answer.
    fn ata(&mut self, slot: u8, command: u8, sector: u64, data: &[u8]) -> Vec<u8> {
        let registers = sector;
        let (write, extended) = (!data.is_empty(), true);
        let ata = Ata { write, extended, sectors: 1, command, registers, ..Ata::default() };
        let body = self.ask(slot, command::ATA, &[&ata.encode()[..], data].concat());
        let (ended, data) = Ata::decode(&body).unwrap();
        assert_eq!(ended.command & 1, 0, "slot {slot}: {ended:?}");
        data.to_vec()
    }

    /// Reads or sets the reservation of a slot, which is ours.
    fn reservation(&mut self, slot: u8, how: u8) {
        let from = self.from;
        let list: &[Mac] = if how == reserve::READ { &[] } else { &[from] };
        let body = self.ask(slot, command::RESERVE, &Reserve::encode(how, list));
        let holders: Vec<Mac> = Reserve::decode(&body).unwrap().addresses().collect();
        assert_eq!(holders, [from], "slot {slot}");
    }

    /// Writes and reads back, and reads the reservations.
    fn round(&mut self, round: u64) {
        let data = round.to_be_bytes().repeat(64);
        for slot in 0..SLOTS.0 {
            let is_written = slot < SLOTS.1;
            if is_written {
                self.ata(slot, op::WRITE_EXT, round % SECTORS, &data);
            }
            let back = self.ata(slot, op::READ_EXT, round % SECTORS, &[]);
            assert!(!is_written || back.get(..512) == Some(&data[..]), "slot {slot}: {round}");
            self.reservation(slot, reserve::READ);
        }
    }
}

struct Host {
    over: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    thread: JoinHandle<()>,
}

impl Host {
    /// Reserves the slots and uses them without a pause.
    fn start(ends: &[String; 2]) -> Host {
        let (over, rounds): (Arc<AtomicBool>, Arc<AtomicU64>) = Default::default();
        let (stopped, counted, ends) = (over.clone(), rounds.clone(), ends.clone());
        let thread = std::thread::spawn(move || {
            let mut station = Station::new(&ends);
            for slot in 0..SLOTS.0 {
                station.reservation(slot, reserve::SET);
                station.identify(slot);
            }
            while !stopped.load(Ordering::Acquire) {
                station.round(counted.load(Ordering::Acquire));
                counted.fetch_add(1, Ordering::AcqRel);
            }
        });
        Host { over, rounds, thread }
    }

    fn wait(&self, fixture: &Fixture, what: &str) {
        let now = self.rounds.load(Ordering::Acquire);
        fixture.until(what, LIMIT, || {
            assert!(!self.thread.is_finished(), "{what}: the host had to stop");
            self.rounds.load(Ordering::Acquire) - now >= ROUNDS
        });
    }
}

/// The parts of a configuration that an edit replaces.
#[derive(Clone)]
struct Setup {
    disk: &'static str,
    size: u64,
    target: &'static str,
    /// Name of the host's group, its patterns and its portals; `OWN` is the host's address.
    group: (&'static str, &'static str, &'static str),
    /// Another group.
    other: &'static str,
    slots: &'static str,
    layer: &'static str,
    unit: &'static str,
}

const PLAIN: Setup = Setup {
    disk: "d0",
    size: 16 << 20,
    target: "",
    group: ("all", "\"OWN\", \"mac:02:00:00:00:00:09\"", ""),
    other: "",
    slots: "0 = \"DISK\", 1 = \"l\", 2 = { provider = \"d2\", mode = \"ro\" }",
    layer: "",
    unit: "",
};

impl Setup {
    fn text(&self, fixture: &Fixture, [near, far]: &[String; 2]) -> String {
        let disks: String =
            (1..4).map(|n| file_disk(&format!("d{n}"), &format!("d{n}.img"))).collect();
        let (name, patterns, portals) = self.group;
        let patterns = patterns.replace("OWN", &format!("mac:{}", mac_of(near)));
        let portals = portals.replace("FAR", far);
        let slots = self.slots.replace("DISK", self.disk);
        let Setup { disk, size, target, other, layer, unit, .. } = self;
        let image = fixture.path("d0.img");
        format!(
            "[daemon]\nstate = \"units\"\n{disks}\
             [[disk]]\nname = \"{disk}\"\nkind = \"file\"\npath = {image:?}\ncreate = true\n\
             size = {size}\n\
             [[geom]]\nclass = \"limit\"\nname = \"l\"\nprovider = \"d1\"\n{layer}\n\
             [[target]]\ndriver = \"aoe\"\nname = \"shelf\"\nlisten = [\"ether:{far}\"]\n\
             shelf = {SHELF}\n{target}\n\
             [[access]]\ntarget = \"shelf\"\ngroup = \"{name}\"\ninitiators = [{patterns}]\n\
             {portals}\nluns = {{ {slots} }}\n{other}\n{unit}\n"
        )
    }
}

/// A group without the host.
const REST: &str = "[[access]]\ntarget = \"shelf\"\ngroup = \"all\"\n\
                    initiators = [\"mac:02:00:00:00:00:09\"]\nluns = { 0 = \"d3\" }\n";

fn edits() -> Vec<(&'static str, Setup)> {
    let group = |group| Setup { group, ..PLAIN };
    let slots = |slots| Setup { slots, ..PLAIN };
    let (both, own) = (PLAIN.group.1, "\"OWN\"");
    vec![
        ("a group's name", group(("most", both, ""))),
        ("a pattern", group(("all", "\"mac:*\"", ""))),
        ("a group of its own", Setup { other: REST, ..group(("own", own, "")) }),
        ("the portal of a group", group(("all", both, "portals = [\"ether:FAR\"]"))),
        (
            "a slot more",
            slots("0 = \"DISK\", 1 = \"l\", 2 = { provider = \"d2\", mode = \"ro\" }, 3 = \"d3\""),
        ),
        ("the mode of a slot", slots("0 = \"DISK\", 1 = \"l\", 2 = \"d2\"")),
        ("a disk's name", Setup { disk: "data", ..PLAIN }),
        ("a larger disk", Setup { size: 24 << 20, ..PLAIN }),
        ("a limit", Setup { layer: "iops = 100000\nburst_ms = 50", ..PLAIN }),
        ("the target's parameters", Setup { target: "buffers = 32\nannounce = false", ..PLAIN }),
        ("thresholds", Setup { unit: "[[unit]]\nprovider = \"d0\"\nthresholds = [50]\n", ..PLAIN }),
        (
            "what it is called",
            Setup { unit: "[[unit]]\nprovider = \"d0\"\nproduct = \"DISK\"\n", ..PLAIN },
        ),
    ]
}

#[test]
fn edits_lose_no_frame_and_no_reservation_of_an_aoe_host() {
    let mut fixture = Fixture::alone("edits-aoe");
    let cable = Cable::create("1500");
    (1..4).for_each(|n| drop(fixture.image(&format!("d{n}.img"), 16 << 20)));
    fixture.write("ashlar.toml", &PLAIN.text(&fixture, &cable.ends));
    fixture.start_whole();
    let host = Host::start(&cable.ends);
    let mut size = PLAIN.size;
    let edit = |what: &str, setup: &Setup| {
        host.wait(&fixture, what);
        fixture.write("ashlar.toml", &setup.text(&fixture, &cable.ends));
        fixture.ok(&["apply"]);
        host.wait(&fixture, what);
    };
    for (what, setup) in edits() {
        // A file is not made smaller again.
        size = size.max(setup.size);
        for (way, setup) in [("there", setup), ("back", PLAIN)] {
            edit(&format!("{what}, {way}"), &Setup { size, ..setup });
        }
    }
    // The serial number that hosts know is written down.
    let state = fixture.state();
    let lun = &array(&state["targets"][0]["groups"][0]["luns"])[0];
    let unit = format!("[[unit]]\nprovider = \"d0\"\nserial = \"{}\"\n", text(&lun["serial"]));
    edit("the serial number that it has", &Setup { size, unit: String::leak(unit), ..PLAIN });
    host.over.store(true, Ordering::Release);
    host.thread.join().unwrap();
    fixture.stop();
}
