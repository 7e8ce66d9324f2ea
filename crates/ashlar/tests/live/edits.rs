//! Every kind of edit under the load of three hosts that have registered keys and hold a
//! reservation. None of their commands fails, and none of their registrations is lost.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::fixture::{Fixture, IQN, array, file_disk, text};
use testkit::iscsi::initiator::Client;

/// Longest wait for the hosts' next rounds.
const ROUNDS_LIMIT: Duration = Duration::from_secs(30);
/// Rounds that each host makes between two edits.
const ROUNDS: u64 = 8;
/// Blocks of a host, from its number times so many on.
const SPAN: u32 = 1024;
/// LUNs on which the hosts are registered, and those of them that they write; they read the rest.
const LUNS: (u8, u8) = (4, 3);
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
        Host::launch(fixture, number, (luns, luns))
    }

    /// The same, with LUNs behind the written ones that it only reads.
    fn launch(fixture: &Fixture, number: usize, (luns, written): (u8, u8)) -> Host {
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
                let is_written = raw.lun < written;
                if is_written {
                    command(&mut raw, &log, &[0x2A, 0, a, b, c, d, 0, 0, 8, 0], 0, &data);
                }
                let back = command(&mut raw, &log, &[0x28, 0, a, b, c, d, 0, 0, 8, 0], 4096, &[]);
                assert!(!is_written || back == data, "LUN {}: block {block}", raw.lun);
                round += 1;
                log.rounds.store(u64::from(round), Ordering::Release);
            }
            raw
        });
        Host { attentions, thread }
    }

    /// Waits until it has made some more rounds; it has had no unit attention since it was read
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
    /// Addresses of the portals.
    listen: &'static [&'static str],
    target: &'static str,
    /// `LUNS` is replaced by those that all hosts see.
    access: &'static str,
    /// Parameters of the layers below LUN 2, in the order of [`LAYERS`].
    layers: [&'static str; 4],
    more: &'static str,
}

/// Classes of the layers below LUN 2, from the disk upwards.
const LAYERS: [&str; 4] = ["sched", "trim", "limit", "nop"];

const ALL: &str = "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n\
                   initiators = [\"iqn.2026-11.test:a\", \"iqn.2026-11.test:b\", \
                   \"iqn.2026-11.test:c\"]\nluns = { LUNS }\n";

/// A group of hosts that never log in.
const AWAY: &str = "[[access]]\ntarget = \"{iqn}\"\ngroup = \"away\"\n\
                    initiators = [\"iqn.2026-11.test.away:*\"]\nluns = { 0 = \"d1p4\" }\n";

const PLAIN: Setup = Setup {
    daemon: "",
    disk: "d0",
    size: 16 << 20,
    listen: &["127.0.0.1"],
    target: "",
    access: ALL,
    layers: [""; 4],
    more: "",
};

impl Setup {
    fn text(&self, fixture: &Fixture) -> String {
        let image = fixture.path("d0.img");
        let first = format!(
            "[[disk]]\nname = \"{}\"\nkind = \"file\"\npath = {image:?}\n\
             create = true\nsize = {}\n",
            self.disk, self.size
        );
        let port = fixture.portal().port();
        let listen: Vec<String> =
            self.listen.iter().map(|host| format!("\"{host}:{port}\"")).collect();
        let target = format!(
            "[[target]]\ndriver = \"iscsi\"\nname = \"{{iqn}}\"\nlisten = [{}]\n{}\n",
            listen.join(", "),
            self.target
        );
        let layer = |(n, class): (usize, &&str)| {
            let below = if n == 0 { "d1p2".to_owned() } else { format!("l{}", n - 1) };
            let more = self.layers[n];
            format!(
                "[[geom]]\nclass = \"{class}\"\nname = \"l{n}\"\nprovider = \"{below}\"\n{more}\n"
            )
        };
        let layers: String = LAYERS.iter().enumerate().map(layer).collect();
        let luns = format!("0 = \"{}\", 1 = \"d1p1\", 2 = \"l3\", 3 = \"d1p3\"", self.disk);
        let (second, access) = (file_disk("d1", "d1.img"), self.access.replace("LUNS", &luns));
        let state = "[daemon]\nstate = \"units\"\n";
        [state, self.daemon, &first, &second, &layers, &target, &access, AWAY, self.more].join("\n")
    }
}

/// An edit: its name, the configuration after it, and the unit attentions that it may cause.
type Edit = (&'static str, Setup, &'static [(u8, u8)]);

/// Unit attentions that some hosts may receive after an edit: additional sense codes.
const NOTHING: &[(u8, u8)] = &[];
const INQUIRY: &[(u8, u8)] = &[(0x3F, 0x03)];
const LIST: &[(u8, u8)] = &[(0x3F, 0x0E)];
const SIZE: &[(u8, u8)] = &[(0x2A, 0x09)];
const ACCESS_STATE: &[(u8, u8)] = &[(0x2A, 0x06)];

/// Edits of the members of groups and of their LUNs.
fn group_edits() -> Vec<Edit> {
    let group = |access| Setup { access, ..PLAIN };
    vec![
        (
            "a host comes",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:a\", \"iqn.2026-11.test:b\", ",
                "\"iqn.2026-11.test:c\", \"iqn.2026-11.test:d\"]\n",
                "luns = { LUNS }\n"
            )),
            NOTHING,
        ),
        (
            "a pattern",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\nluns = { LUNS }\n"
            )),
            NOTHING,
        ),
        (
            "a group's name",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"most\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\nluns = { LUNS }\n"
            )),
            NOTHING,
        ),
        (
            "a group of its own",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"own\"\n",
                "initiators = [\"iqn.2026-11.test:b\"]\nluns = { LUNS }\n",
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:a\", \"iqn.2026-11.test:c\"]\n",
                "luns = { LUNS }\n"
            )),
            NOTHING,
        ),
        (
            "a LUN in full",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\n",
                "luns = { 3 = { provider = \"d1p3\", mode = \"rw\" }, 1 = \"d1p1\", ",
                "2 = \"l3\", 0 = \"d0\" }\n"
            )),
            NOTHING,
        ),
        (
            "a LUN more",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\n",
                "luns = { LUNS, 4 = \"d1p4\" }\n"
            )),
            LIST,
        ),
        (
            "the mode of a LUN that is only read",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\n",
                "luns = { 3 = { provider = \"d1p3\", mode = \"ro\" }, 1 = \"d1p1\", ",
                "2 = \"l3\", 0 = \"d0\" }\n"
            )),
            NOTHING,
        ),
    ]
}

/// Edits of the conditions for the next login of a host.
fn login_edits() -> Vec<Edit> {
    let group = |access| Setup { access, ..PLAIN };
    let listen = |listen| Setup { listen, ..PLAIN };
    vec![
        (
            "an account of the group",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\nluns = { LUNS }\n",
                "chap = { user = \"all\", secret = \"initiator-pass\" }\n"
            )),
            NOTHING,
        ),
        (
            "an account of one host, and none of the others",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\nluns = { LUNS }\n",
                "[access.initiator_chap]\n\"iqn.2026-11.test:a\" = ",
                "{ user = \"a\", secret = \"initiator-pass\" }\n"
            )),
            NOTHING,
        ),
        (
            "the portal of a group",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\nportals = [\"127.0.0.1\"]\n",
                "luns = { LUNS }\n"
            )),
            NOTHING,
        ),
        (
            "a group for each portal",
            group(concat!(
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"near\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\nportals = [\"127.0.0.1\"]\n",
                "luns = { LUNS }\n",
                "[[access]]\ntarget = \"{iqn}\"\ngroup = \"all\"\n",
                "initiators = [\"iqn.2026-11.test:*\"]\nportals = [\"127.0.0.2\"]\n",
                "luns = { 0 = \"d1p4\" }\n"
            )),
            NOTHING,
        ),
        ("a portal more", listen(&["127.0.0.1", "127.0.0.2"]), NOTHING),
        ("a portal at all addresses", listen(&["0.0.0.0"]), NOTHING),
        ("a portal at another address", listen(&["127.0.0.2"]), NOTHING),
    ]
}

/// Edits of units, disks, layers, targets and the daemon.
fn other_edits() -> Vec<Edit> {
    let more = |more| Setup { more, ..PLAIN };
    let layers = |layers| Setup { layers, ..PLAIN };
    let side = "[[alua]]\nname = \"side\"\nid = 20\n";
    vec![
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
        (
            "the serial number of a unit of other hosts",
            more("[[unit]]\nprovider = \"d1p4\"\nserial = \"S-4\"\n"),
            NOTHING,
        ),
        ("a disk's name", Setup { disk: "data", ..PLAIN }, NOTHING),
        ("a larger disk", Setup { size: 24 << 20, ..PLAIN }, SIZE),
        ("a scheduler", layers(["algorithm = \"fair\"", "", "", ""]), NOTHING),
        ("a TRIM queue", layers(["", "share = 20\nquiet_ms = 500", "", ""]), NOTHING),
        ("a limit", layers(["", "", "iops = 100000\nburst_ms = 50", ""]), NOTHING),
        ("a delay", layers(["", "", "", "delay_ms = 1\nread_delay_percent = 10"]), NOTHING),
        ("a port group for later", more(side), NOTHING),
        (
            "a port group that is not used",
            more("[[alua]]\nname = \"side\"\nid = 20\nstate = \"standby\"\n"),
            NOTHING,
        ),
        (
            "the port group of the target",
            Setup { target: "port_group = \"side\"", more: side, ..PLAIN },
            ACCESS_STATE,
        ),
        (
            "a target more",
            more(concat!(
                "[[target]]\ndriver = \"iscsi\"\nname = \"{iqn}:2\"\n",
                "listen = [\"{portal}\"]\n[[access]]\ntarget = \"{iqn}:2\"\ngroup = \"all\"\n",
                "initiators = [\"*\"]\nluns = { 0 = \"d1p4\" }\n"
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

/// The serial number of a unit, as hosts see it.
fn shown_serial(fixture: &Fixture, provider: &str) -> String {
    let state = fixture.state();
    let groups = array(&state["targets"]).iter().flat_map(|target| array(&target["groups"]));
    let mut luns = groups.flat_map(|group| array(&group["luns"]));
    let lun = luns.find(|lun| lun["provider"] == provider).expect("its LUN");
    text(&lun["serial"])
}

/// Three hosts, each registered on all LUNs.
struct Hosts(Vec<Host>);

impl Hosts {
    /// Waits until each has made some more rounds.
    fn wait(&self, fixture: &Fixture, what: &str) {
        let rounds = |host: &Host| host.attentions.rounds.load(Ordering::Acquire);
        let now: Vec<u64> = self.0.iter().map(rounds).collect();
        fixture.until(what, ROUNDS_LIMIT, || {
            let alive = self.0.iter().all(|h| !h.thread.is_finished());
            assert!(alive, "{what}: a host had to stop");
            self.0.iter().zip(&now).all(|(host, was)| rounds(host) - was >= ROUNDS)
        });
    }

    /// Applies an edit under their load; they receive no other unit attentions than these.
    fn edit(&self, fixture: &Fixture, what: &str, setup: &Setup, may: &[(u8, u8)]) {
        self.wait(fixture, what);
        fixture.write("ashlar.toml", &setup.text(fixture));
        fixture.ok(&["apply"]);
        self.wait(fixture, what);
        for (host, name) in self.0.iter().zip(HOSTS) {
            let news = std::mem::take(&mut *host.attentions.news.lock().unwrap());
            let more: Vec<_> = news.iter().filter(|attention| !may.contains(attention)).collect();
            assert!(more.is_empty(), "{what}: host {name} received {more:02x?}");
        }
    }

    /// Ends their load; every registration and the reservation of each LUN are still there.
    fn finish(self) {
        self.0.iter().for_each(|host| host.attentions.stop.store(true, Ordering::Release));
        for host in self.0 {
            let mut raw = host.thread.join().unwrap();
            for lun in 0..LUNS.0 {
                raw.lun = lun;
                let [keys, held] = [0, 1].map(|action| {
                    let cdb = [0x5E, action, 0, 0, 0, 0, 0, 0x10, 0, 0];
                    command(&mut raw, &host.attentions, &cdb, 4096, &[])
                });
                assert_eq!(keys[7], 24, "LUN {lun}: three keys: {keys:02x?}");
                assert_eq!(held.get(21), Some(&7), "LUN {lun}: the reservation: {held:02x?}");
            }
        }
    }
}

#[test]
fn edits_fail_no_command_and_lose_no_registration() {
    let mut fixture = Fixture::new("edits");
    fixture.image("d1.img", 64 << 20);
    fixture.configure(&file_disk("d1", "d1.img"), "");
    fixture.start();
    fixture.ok(&["part", "create", "-s", "gpt", "d1"]);
    for size in ["16M", "16M", "8M", "8M"] {
        fixture.ok(&["part", "add", "-t", "linux-data", "-s", size, "d1"]);
    }
    fixture.stop();
    fixture.write("ashlar.toml", &PLAIN.text(&fixture));
    fixture.start_whole();
    let hosts = Hosts((0..HOSTS.len()).map(|n| Host::launch(&fixture, n, LUNS)).collect());
    let mut size = PLAIN.size;
    for (what, setup, may) in [group_edits(), login_edits(), other_edits()].concat() {
        // A file is not made smaller again.
        size = size.max(setup.size);
        for (way, setup) in [("there", setup), ("back", PLAIN)] {
            hosts.edit(&fixture, &format!("{what}, {way}"), &Setup { size, ..setup }, may);
        }
    }
    // The serial number that hosts know is written down.
    let serial = shown_serial(&fixture, "d0");
    let more = format!("[[unit]]\nprovider = \"d0\"\nserial = \"{serial}\"\n");
    let pinned = Setup { size, more: String::leak(more), ..PLAIN };
    hosts.edit(&fixture, "the serial number that it has", &pinned, NOTHING);
    assert_eq!(shown_serial(&fixture, "d0"), serial);
    hosts.finish();
    fixture.stop();
}
