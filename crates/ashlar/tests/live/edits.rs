//! Every kind of edit under the load of three hosts that have registered keys and hold a
//! reservation: none of their commands fails, and none of their registrations is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::fixture::{Fixture, IQN, file_disk};
use testkit::iscsi::initiator::Client;

/// Longest wait for the hosts' next rounds.
const ROUNDS_LIMIT: Duration = Duration::from_secs(30);
/// Rounds that each host makes between two edits.
const ROUNDS: u64 = 8;
/// Blocks of a host, from its number times so many on.
const SPAN: u32 = 1024;
const HOSTS: [&str; 3] = ["a", "b", "c"];

fn name(host: &str) -> String {
    format!("iqn.2026-11.test:{host}")
}

/// PERSISTENT RESERVE OUT without APTPL: registrations are lost with the unit's nexus.
fn reserve(raw: &mut Client, action: u8, key: u64, action_key: u64) {
    let mut list = [0; 24];
    list[..8].copy_from_slice(&key.to_be_bytes());
    list[8..16].copy_from_slice(&action_key.to_be_bytes());
    // Write exclusive, all registrants.
    let cdb = [0x5F, action, 7, 0, 0, 0, 0, 0, 24, 0];
    assert_eq!(raw.scsi(&cdb, 0, &list).unwrap().status, 0, "reserve {action}");
}

/// Unit attentions that a host received since the last query.
#[derive(Default)]
pub(crate) struct AttentionLog {
    stop: AtomicBool,
    rounds: AtomicU64,
    news: std::sync::Mutex<BTreeSet<(u8, u8)>>,
}

pub(crate) struct Host {
    attentions: Arc<AttentionLog>,
    thread: JoinHandle<Client>,
}

/// One command, which may end with unit attentions first; anything else is a failure of the test.
fn command(
    raw: &mut Client,
    attentions: &AttentionLog,
    cdb: &[u8],
    read: u32,
    data: &[u8],
) -> Vec<u8> {
    for _ in 0..16 {
        let ended = raw.scsi(cdb, read, data).expect("the session stays");
        match (ended.status, ended.sense.get(2).map(|key| key & 0xf)) {
            (0, _) => return ended.data,
            (2, Some(6)) => {
                attentions.news.lock().unwrap().insert((ended.sense[12], ended.sense[13]));
            }
            (status, _) => panic!("status {status:02x}, sense {:02x?}", ended.sense),
        }
    }
    panic!("news without end");
}

impl Host {
    /// Logs in, registers its number, and writes and reads back without a pause on the first LUNs.
    pub(crate) fn start(fixture: &Fixture, number: usize, luns: u8) -> Host {
        let mut raw = Client::session(fixture.portal(), &name(HOSTS[number]), IQN).unwrap();
        let attentions = Arc::new(AttentionLog::default());
        for lun in 0..luns {
            raw.lun = lun;
            command(&mut raw, &attentions, &[0; 6], 0, &[]);
            reserve(&mut raw, 6, 0, number as u64 + 1);
            if number == 0 {
                reserve(&mut raw, 1, 1, 0);
            }
        }
        attentions.news.lock().unwrap().clear();
        let log = attentions.clone();
        let thread = std::thread::spawn(move || {
            let mut round = 0u32;
            while !log.stop.load(Ordering::Acquire) {
                raw.lun = (round % u32::from(luns)) as u8;
                let block = round / u32::from(luns) % (SPAN / 8) * 8 + number as u32 * SPAN;
                let [a, b, c, d] = block.to_be_bytes();
                let data: Vec<u8> = round.to_be_bytes().repeat(1024);
                command(&mut raw, &log, &[0x2A, 0, a, b, c, d, 0, 0, 8, 0], 0, &data);
                let back = command(&mut raw, &log, &[0x28, 0, a, b, c, d, 0, 0, 8, 0], 4096, &[]);
                assert_eq!(back, data, "block {block}");
                round += 1;
                log.rounds.store(u64::from(round), Ordering::Release);
            }
            raw
        });
        Host { attentions, thread }
    }

    /// Waits until it has made some more rounds; it has had no unit attention since it was asked
    /// last.
    pub(crate) fn wait_for_rounds(&self, fixture: &Fixture, what: &str) {
        self.works_on(fixture, what, &[]);
    }

    /// The same, with these unit attentions.
    pub(crate) fn works_on(&self, fixture: &Fixture, what: &str, expected: &[(u8, u8)]) {
        let now = self.attentions.rounds.load(Ordering::Acquire);
        fixture.until(what, ROUNDS_LIMIT, || {
            assert!(!self.thread.is_finished(), "{what}: the host had to stop");
            self.attentions.rounds.load(Ordering::Acquire) - now >= ROUNDS
        });
        let news = std::mem::take(&mut *self.attentions.news.lock().unwrap());
        let news: Vec<(u8, u8)> = news.into_iter().collect();
        assert_eq!(news, expected, "{what}: unit attentions of the host");
    }

    /// Stops the host after its verification; its registration is still there.
    pub(crate) fn stop(self) {
        self.attentions.stop.store(true, Ordering::Release);
        let mut raw = self.thread.join().unwrap();
        raw.lun = 0;
        let keys =
            command(&mut raw, &self.attentions, &[0x5E, 0, 0, 0, 0, 0, 0, 0x10, 0, 0], 4096, &[]);
        assert_eq!(keys[7], 8, "one key: {keys:02x?}");
    }
}

/// The parts of a configuration that an edit replaces.
#[derive(Clone)]
struct Setup {
    daemon: &'static str,
    disk: &'static str,
    size: u64,
    target: &'static str,
    access: &'static str,
    more: &'static str,
}

const ALL: &str = "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n\
                   initiators = [\"iqn.2026-11.test:a\", \"iqn.2026-11.test:b\", \
                   \"iqn.2026-11.test:c\"]\nluns = { 0 = \"DISK\", 1 = \"d1p1\" }\n";

const PLAIN: Setup =
    Setup { daemon: "", disk: "d0", size: 16 << 20, target: "", access: ALL, more: "" };

impl Setup {
    fn text(&self, fixture: &Fixture) -> String {
        let image = fixture.path("d0.img");
        let first = format!(
            "[[disk]]\nname = \"{}\"\nkind = \"file\"\npath = {image:?}\n\
             create = true\nsize = {}\n",
            self.disk, self.size
        );
        let target = format!(
            "[[target]]\ndriver = \"iscsi\"\nname = \"{{iqn}}\"\nlisten = [\"{{portal}}\"]\n{}\n",
            self.target
        );
        let (second, access) = (file_disk("d1", "d1.img"), self.access.replace("DISK", self.disk));
        let state = "[daemon]\nstate = \"units\"\n";
        [state, self.daemon, &first, &second, &target, &access, self.more].join("\n")
    }
}

/// Unit attentions that some hosts may receive after an edit: additional sense codes.
const NOTHING: &[(u8, u8)] = &[];
const INQUIRY: &[(u8, u8)] = &[(0x3F, 0x03)];
const LUNS: &[(u8, u8)] = &[(0x3F, 0x0E)];
const SIZE: &[(u8, u8)] = &[(0x2A, 0x09)];

fn edits() -> Vec<(&'static str, Setup, &'static [(u8, u8)])> {
    let group = |access| Setup { access, ..PLAIN };
    let more = |more| Setup { more, ..PLAIN };
    vec![
        (
            "a host comes",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:a\", \"iqn.2026-11.test:b\", ",
                "\"iqn.2026-11.test:c\", \"iqn.2026-11.test:d\"]\n",
                "luns = { 0 = \"DISK\", 1 = \"d1p1\" }\n"
            )),
            NOTHING,
        ),
        (
            "a pattern",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\nluns = { 0 = \"DISK\", 1 = \"d1p1\" }\n"
            )),
            NOTHING,
        ),
        (
            "a group's name",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"most\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\nluns = { 0 = \"DISK\", 1 = \"d1p1\" }\n"
            )),
            NOTHING,
        ),
        (
            "a group of its own",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"own\"\n",
                "initiators = [\"iqn.2026-11.test:b\"]\nluns = { 0 = \"DISK\", 1 = \"d1p1\" }\n",
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:a\", \"iqn.2026-11.test:c\"]\n",
                "luns = { 0 = \"DISK\", 1 = \"d1p1\" }\n"
            )),
            NOTHING,
        ),
        (
            "a LUN in full",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\n",
                "luns = { 1 = { provider = \"d1p1\", mode = \"rw\" }, 0 = \"DISK\" }\n"
            )),
            NOTHING,
        ),
        (
            "a LUN more",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\n",
                "luns = { 0 = \"DISK\", 1 = \"d1p1\", 2 = \"d1p2\" }\n"
            )),
            LUNS,
        ),
        ("thresholds", more("[[unit]]\nprovider = \"d0\"\nthresholds = [50]\n"), NOTHING),
        (
            "what it is called",
            more(concat!(
                "[[unit]]\nprovider = \"d0\"\nvendor = \"ACME\"\n",
                "product = \"DISK\"\nrevision = \"9\"\n"
            )),
            INQUIRY,
        ),
        ("sanitize", more("[[unit]]\nprovider = \"d1p1\"\nsanitize = true\n"), INQUIRY),
        ("a disk's name", Setup { disk: "data", ..PLAIN }, NOTHING),
        ("a larger disk", Setup { size: 24 << 20, ..PLAIN }, SIZE),
        (
            "a target more",
            more(concat!(
                "[[target]]\ndriver = \"iscsi\"\nname = \"{iqn}:2\"\n",
                "listen = [\"{portal}\"]\n[[access]]\ntarget = \"{iqn}:2\"\ngroup = \"all\"\n",
                "initiators = [\"*\"]\nluns = { 0 = \"d1p2\" }\n"
            )),
            NOTHING,
        ),
        (
            "a target's parameters",
            Setup { target: "nop_interval = 3\nalias = \"x\"", ..PLAIN },
            NOTHING,
        ),
        ("the daemon's settings", Setup { daemon: "spin_us = 1\n", ..PLAIN }, NOTHING),
    ]
}

#[test]
fn edits_fail_no_command_and_lose_no_registration() {
    let mut fixture = Fixture::new("edits");
    fixture.image("d1.img", 32 << 20);
    fixture.configure(&file_disk("d1", "d1.img"), "");
    fixture.start();
    fixture.ok(&["part", "create", "-s", "gpt", "d1"]);
    for size in ["16M", "8M"] {
        fixture.ok(&["part", "add", "-t", "linux-data", "-s", size, "d1"]);
    }
    fixture.stop();
    fixture.write("ashlar.toml", &PLAIN.text(&fixture));
    fixture.start();
    let hosts: Vec<Host> = (0..HOSTS.len()).map(|n| Host::start(&fixture, n, 2)).collect();
    let rounds = |what: &str| {
        let now: Vec<u64> =
            hosts.iter().map(|h| h.attentions.rounds.load(Ordering::Acquire)).collect();
        fixture.until(what, ROUNDS_LIMIT, || {
            let alive = hosts.iter().all(|h| !h.thread.is_finished());
            assert!(alive, "{what}: a host had to stop");
            let completed =
                |(h, was): (&Host, &u64)| h.attentions.rounds.load(Ordering::Acquire) - was;
            hosts.iter().zip(&now).map(completed).all(|rounds| rounds >= ROUNDS)
        });
    };
    let mut size = PLAIN.size;
    for (what, setup, may) in edits() {
        // A file is not made smaller again.
        size = size.max(setup.size);
        for (way, setup) in [("there", setup), ("back", PLAIN)] {
            let setup = Setup { size, ..setup };
            rounds(what);
            fixture.write("ashlar.toml", &setup.text(&fixture));
            fixture.ok(&["apply"]);
            rounds(what);
            for (host, name) in hosts.iter().zip(HOSTS) {
                let news = std::mem::take(&mut *host.attentions.news.lock().unwrap());
                let more: Vec<_> =
                    news.iter().filter(|attention| !may.contains(attention)).collect();
                assert!(more.is_empty(), "{what}, {way}: host {name} received {more:02x?}");
            }
        }
    }
    hosts.iter().for_each(|host| host.attentions.stop.store(true, Ordering::Release));
    for host in hosts {
        let mut raw = host.thread.join().unwrap();
        for lun in [0, 1] {
            raw.lun = lun;
            let keys = command(
                &mut raw,
                &host.attentions,
                &[0x5E, 0, 0, 0, 0, 0, 0, 0x10, 0, 0],
                4096,
                &[],
            );
            assert_eq!(keys[7], 24, "LUN {lun}: three keys: {keys:02x?}");
            let held = command(
                &mut raw,
                &host.attentions,
                &[0x5E, 1, 0, 0, 0, 0, 0, 0x10, 0, 0],
                4096,
                &[],
            );
            assert_eq!(held.get(21), Some(&7), "LUN {lun}: the reservation: {held:02x?}");
        }
    }
    fixture.stop();
}
