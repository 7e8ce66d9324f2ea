//! Starts with missing disks: random images, members, devices of a file server and ports are absent
//! when a daemon in this process starts, and the server of a disk may be silent. They appear later
//! in a random order. A model predicts the served units at each moment.
//!
//! ```text
//!   images, some away --> start, listening --> check --> one thing appears --> check --> all
//! ```
//! Invariants of the model
//!  H1  A unit is served when everything that it needs is present, within [`LIMIT`]: all images of
//!      a disk, a concatenation, a layer or a file server, the server of a disk, and one member of
//!      a mirror. A disk of a bus is always present.
//!  H2  A unit with a missing part answers that it is not ready yet, so that hosts try again, and
//!      never that there is no such unit.
//!  H3  A read of a unit returns the bytes of its own disks.
//!  H4  A served unit stays served, in the same session, while the rest appears.
//!
//! More of them: see `testkit::seeds`.

use std::collections::BTreeMap;
use std::net::{SocketAddr, TcpListener};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use daemon::{Daemon, catalog};
use mgmt::config::{Catalog, Config, DaemonConfig, Port, read};
use mgmt::{Archive, Control};
use reactor::SeededRandom;
use serde_json::json;
use testkit::nbd::Client;
use testkit::{Folder, Seeds};
use wire::nbd::Form;
use wire::nbd::codes::{kind, rep};

use crate::by_hand::Site as Server;
use crate::silent_server::SilentServer;

/// Seeds with every run, and how many of them run at a time: most of the time they wait.
const SEEDS: u64 = 60;
const AT_ONCE: u64 = 20;
/// Longest time until something that appeared is served. Nothing is measured by it.
const LIMIT: Duration = Duration::from_secs(60);
/// Bytes of an image.
const BYTES: u64 = 1 << 20;
const BLOCKS: u64 = BYTES / 512;
/// At the end of a mirror's member: its record.
const RECORD_BLOCKS: u64 = 32;
/// The members of the mirror, where there is one.
const MEMBERS: [u64; 2] = [3, 4];
const IMAGES: u64 = 5;
/// The devices of the file server, which are images too, and their bytes.
const FS_DEVICES: [(u64, u64); 2] = [(5, 32 << 20), (6, 64 << 20)];
/// The disk of a server elsewhere, which is away while the server is silent.
const REMOTE: u64 = 7;
/// What a unit contains that nothing was written to.
const BLANK: u64 = 8;

/// The file that is a disk.
const FS_DISK: &str = "vm0";

/// The server elsewhere.
const FAR_SERVER: &str = "
    [[disk]]\nname = 'd0'\nkind = 'memory'\nsize = '1MiB'
    [[target]]\ndriver = 'nbd'\nname = 'far'\nlisten = ['127.0.0.1:0']
    [[access]]\ntarget = 'far'\ngroup = 'all'\ninitiators = ['*']\nluns = { 0 = 'd0' }
";

/// Made once: that takes longer than to read a configuration.
static CATALOG: LazyLock<Catalog> = LazyLock::new(catalog);

/// The images below a unit: images, in the order of their bytes.
#[derive(Clone, Debug)]
struct Unit {
    provider: String,
    images: Vec<u64>,
    /// All images but the first are copies of it: one is enough.
    copies: bool,
    /// It needs the images, but contains zeroes.
    is_blank: bool,
}

impl Unit {
    fn new(provider: &str, images: &[u64]) -> Unit {
        let (provider, images) = (provider.to_owned(), images.to_vec());
        Unit { provider, images, copies: false, is_blank: false }
    }

    /// One that contains zeroes.
    fn blank(provider: &str, images: &[u64]) -> Unit {
        Unit { is_blank: true, ..Unit::new(provider, images) }
    }

    /// The image whose bytes are at a place of it, and the block there.
    fn place(&self, at: u64) -> (u64, u64) {
        match (self.is_blank, self.copies) {
            (true, _) => (BLANK, at),
            (_, true) => (self.images[0], at),
            (_, false) => (self.images[(at / BLOCKS) as usize], at % BLOCKS),
        }
    }

    /// Blocks that are read.
    fn blocks(&self) -> u64 {
        match (self.is_blank, self.copies) {
            (true, _) => BLOCKS,
            (_, true) => BLOCKS - RECORD_BLOCKS,
            (_, false) => BLOCKS * self.images.len() as u64,
        }
    }
}

/// The folder of a seed and its contents.
struct Site {
    folder: Folder,
    /// Images that are away.
    away: Vec<u64>,
    units: Vec<Unit>,
    /// Another program has the port.
    taken: Option<TcpListener>,
    at: SocketAddr,
    server: SilentServer,
}

fn image(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("i{number}.img"))
}

/// The bytes of a block of an image: which one it is, and which block.
fn block(image: u64, at: u64) -> Vec<u8> {
    if image == BLANK {
        return vec![0; 512];
    }
    (image << 32 | at).to_le_bytes().repeat(512 / 8)
}

/// An image that is away has another name.
fn other_name(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("i{number}.away"))
}

/// A blank image.
fn make(folder: &Path, number: u64, bytes: u64) {
    let file = std::fs::File::create(image(folder, number)).expect("an image");
    file.set_len(bytes).expect("its size");
}

/// Writes blocks of an image, as those of an image that it may be a copy of.
fn fill(folder: &Path, number: u64, bytes_of: u64, blocks: u64) {
    let file = std::fs::File::options().write(true).open(image(folder, number));
    let file = file.expect("an image");
    let bytes: Vec<Vec<u8>> = (0..blocks).map(|at| block(bytes_of, at)).collect();
    file.write_all_at(&bytes.concat(), 0).expect("its bytes");
}

impl Site {
    fn new(seed: u64, random: &mut SeededRandom, far: SocketAddr) -> Site {
        let folder = Folder::new(&format!("st-{seed}"));
        // Members of layers, and disks without layers.
        let mut units = Vec::new();
        let whole = 1 + random.below(3);
        let stripe: Vec<u64> = (0..whole).collect();
        if whole > 1 {
            units.push(Unit::new("concat/w", &stripe));
        }
        let first = if whole > 1 { whole } else { 0 };
        let nop = random.below(2) == 0;
        let mirror = random.below(2) == 0;
        if mirror {
            units.push(Unit { copies: true, ..Unit::new("mirror/m", &MEMBERS) });
        }
        let end = if mirror { MEMBERS[0] } else { IMAGES };
        for number in first..end {
            let provider = match nop && number == IMAGES - 1 {
                true => "n".to_owned(),
                false => format!("d{number}"),
            };
            units.push(Unit::new(&provider, &[number]));
        }
        let mut parts: Vec<u64> = (0..IMAGES).collect();
        (0..IMAGES).for_each(|n| make(&folder, n, BYTES));
        if random.below(2) == 0 {
            units.push(Unit::new("far", &[REMOTE]));
            parts.push(REMOTE);
        }
        if random.below(2) == 0 {
            units.push(Unit::blank("da0", &[]));
        }
        if random.below(3) == 0 {
            units.push(Unit::blank(FS_DISK, &FS_DEVICES.map(|(number, _)| number)));
            parts.extend(FS_DEVICES.map(|(number, _)| number));
            FS_DEVICES.into_iter().for_each(|(number, bytes)| make(&folder, number, bytes));
        }
        let away: Vec<u64> = parts.into_iter().filter(|_| random.below(2) == 0).collect();
        // Seeds run beside each other: each has an address of its own.
        let [.., high, low] = (seed % 60_000).to_be_bytes();
        let taken = TcpListener::bind(SocketAddr::from(([127, 9, high, low], 0))).expect("a port");
        let at = taken.local_addr().expect("its address");
        let taken = (random.below(4) == 0).then_some(taken);
        Site { folder, away, units, taken, at, server: SilentServer::new(far) }
    }

    /// A part is away, or is there again.
    fn set_away(&self, number: u64, is_away: bool) {
        if number == REMOTE {
            return self.server.set_silent(is_away);
        }
        let names = (image(&self.folder, number), other_name(&self.folder, number));
        let (from, to) = if is_away { names } else { (names.1, names.0) };
        std::fs::rename(from, to).expect("an image");
    }

    fn has(&self, provider: &str) -> bool {
        self.units.iter().any(|unit| unit.provider == provider)
    }

    /// Sections of the file server, of the bus and of the disk elsewhere.
    fn others(&self, is_first: bool) -> String {
        let mut text = String::new();
        if self.has(FS_DISK) {
            for (number, _) in FS_DEVICES {
                text += &format!(
                    "[[disk]]\nname = 'd{number}'\nkind = 'file'\npath = 'i{number}.img'\n"
                );
            }
            let disks = format!("disks = {{ {FS_DISK} = '/{FS_DISK}' }}\n");
            text += "[[geom]]\nclass = 'fs'\nname = 'f'\nmembers = ['d5', 'd6']\n";
            text += if is_first { "create = true\n" } else { &disks };
        }
        if self.has("da0") {
            text += "[[bus]]\nname = 'v'\nkind = 'virtual'\ndisks = 1\nsize = '1MiB'\n";
        }
        if self.has("far") {
            let at = self.server.at;
            text += &format!(
                "[[disk]]\nname = 'far'\nkind = 'nbd'\naddress = '{at}'\nexport = '0'\n\
                 read_only = true\n"
            );
        }
        text
    }

    /// The configuration. At the first start the file of the file server is not there yet.
    fn config(&self, is_first: bool) -> Config {
        let mut text = self.others(is_first);
        for number in 0..IMAGES {
            text +=
                &format!("[[disk]]\nname = 'd{number}'\nkind = 'file'\npath = 'i{number}.img'\n");
        }
        let mut luns = Vec::new();
        for (lun, unit) in self.units.iter().enumerate() {
            if is_first && unit.provider == FS_DISK {
                continue;
            }
            let members: Vec<String> = unit.images.iter().map(|n| format!("'d{n}'")).collect();
            match unit.provider.as_str() {
                "concat/w" => {
                    let members = members.join(", ");
                    text +=
                        &format!("[[geom]]\nclass = 'concat'\nname = 'w'\nmembers = [{members}]\n");
                }
                "mirror/m" => {
                    let members = members.join(", ");
                    text +=
                        &format!("[[geom]]\nclass = 'mirror'\nname = 'm'\nmembers = [{members}]\n");
                }
                "n" => {
                    let below = &members[0];
                    text += &format!("[[geom]]\nclass = 'nop'\nname = 'n'\nprovider = {below}\n");
                }
                _ => {}
            }
            luns.push(format!("{lun} = '{}'", unit.provider));
        }
        // One that is there in any case: a target without a portal ends the start.
        text += "[[target]]\ndriver = 'iscsi'\nname = 'iqn.2026-11.test:t'\n\
                 listen = ['127.0.0.1:0']\n";
        text += &format!(
            "[[target]]\ndriver = 'nbd'\nname = 'n'\nlisten = ['{}']\n\
             [[access]]\ntarget = 'n'\ngroup = 'g'\ninitiators = ['*']\nluns = {{ {} }}\n",
            self.at,
            luns.join(", ")
        );
        let file = self.folder.join("ashlar.toml");
        read(&text, file.to_str().expect("a path"), &CATALOG).expect("a configuration")
    }

    fn is_available(&self, unit: &Unit) -> bool {
        let mut here = unit.images.iter().map(|image| !self.away.contains(image));
        if unit.copies { here.any(|here| here) } else { here.all(|here| here) }
    }
}

/// Events of a seed.
#[derive(Default)]
struct Seen {
    served: u64,
    awaited: u64,
    appeared: u64,
    servers: u64,
    ports: u64,
}

struct Walk {
    seed: u64,
    site: Site,
    random: SeededRandom,
    sessions: BTreeMap<usize, Client>,
    seen: Seen,
}

impl Walk {
    /// H3: some blocks of a unit.
    fn reads(&mut self, lun: usize) {
        let (unit, seed) = (self.site.units[lun].clone(), self.seed);
        let session = self.sessions.get_mut(&lun).expect("it is open");
        for _ in 0..3 {
            let at = self.random.below(unit.blocks());
            let answer = session.ask(kind::READ, 0, at * 512, 512, &[]);
            assert!(answer.error.is_none(), "seed {seed}: {unit:?}: {answer:?}");
            let (image, there) = unit.place(at);
            let wanted = block(image, there);
            assert!(
                answer.bytes(at * 512) == wanted,
                "seed {seed}: {unit:?}: block {at} is another disk's"
            );
        }
        self.seen.served += 1;
    }

    /// Checks every unit against the model.
    fn check(&mut self) {
        let seed = self.seed;
        if self.site.taken.is_some() {
            return;
        }
        for lun in 0..self.site.units.len() {
            let unit = self.site.units[lun].clone();
            let is_available = self.site.is_available(&unit);
            let end = Instant::now() + LIMIT;
            // H4: it is open since it was served first.
            while !self.sessions.contains_key(&lun) {
                match Client::try_enter(self.site.at, &lun.to_string()) {
                    Ok(Ok(session)) => {
                        assert!(is_available, "seed {seed}: {unit:?} is served without its disk");
                        self.sessions.insert(lun, session);
                    }
                    // H2
                    Ok(Err(error)) if error != rep::ERR_SHUTDOWN => {
                        panic!("seed {seed}: {unit:?}: refused for good: {error:#x}")
                    }
                    Ok(Err(_)) if !is_available => {
                        self.seen.awaited += 1;
                        break;
                    }
                    // H1
                    Ok(Err(_)) if Instant::now() < end => {
                        std::thread::sleep(Duration::from_millis(50));
                    }
                    // A port that has just been freed is opened soon: at once means before its
                    // target has groups.
                    Err(_) if Instant::now() < end => {
                        std::thread::sleep(Duration::from_micros(100));
                    }
                    Ok(Err(_)) => panic!("seed {seed}: {unit:?} is never served"),
                    Err(e) => panic!("seed {seed}: {unit:?}: {e}"),
                }
            }
            if self.sessions.contains_key(&lun) {
                self.reads(lun);
            }
        }
    }

    /// One of the things that are away appears; false when none is left.
    fn appear(&mut self) -> bool {
        let ports = u64::from(self.site.taken.is_some());
        let left = self.site.away.len() as u64 + ports;
        if left == 0 {
            return false;
        }
        let one = self.random.below(left) as usize;
        match one < self.site.away.len() {
            true => {
                let number = self.site.away.remove(one);
                self.site.set_away(number, false);
                self.seen.appeared += u64::from(number != REMOTE);
                self.seen.servers += u64::from(number == REMOTE);
            }
            false => {
                self.site.taken = None;
                self.seen.ports += 1;
            }
        }
        true
    }
}

/// A daemon that has started and accepts logins.
fn start(site: &Site, seed: u64, desired: &Config) -> Control {
    let plant = Daemon::start(&desired.daemon).expect("a daemon");
    let launched = Config { daemon: desired.daemon.clone(), ..Config::default() };
    let archive = Archive::new(&site.folder.join("history"), 2);
    let control = Control::new(Box::new(plant), CATALOG.clone(), &launched, archive);
    // Parts that a start omits are no error.
    let begun = control.start(desired);
    begun.unwrap_or_else(|e| panic!("seed {seed}: the start is refused: {e}"));
    control.plant().open();
    control
}

fn walk(seed: u64, far: SocketAddr) -> Seen {
    let mut random = SeededRandom::new(seed ^ 0x57a7);
    let site = Site::new(seed, &mut random, far);
    let state = site.folder.join("state").to_str().map(str::to_owned);
    let settings =
        DaemonConfig { cores: Some(1), port: Port::Poll, state, ..DaemonConfig::default() };
    // A mirror gets its records, and a concatenation, which has none, is known from then on.
    let first = start(&site, seed, &Config { daemon: settings.clone(), ..site.config(true) });
    if site.has(FS_DISK) {
        let params = json!({ "name": "f", "path": format!("/{FS_DISK}"), "size": BYTES });
        let made = first.change(|plant| plant.verb("fs", "disk", &params, &mut |_| {}));
        made.unwrap_or_else(|e| panic!("seed {seed}: no file: {e}"));
    }
    first.plant().stop();
    let desired = Config { daemon: settings, ..site.config(false) };
    for unit in site.units.iter().filter(|unit| !unit.is_blank && unit.provider != "far") {
        for number in &unit.images {
            match unit.copies {
                true => fill(&site.folder, *number, unit.images[0], unit.blocks()),
                false => fill(&site.folder, *number, *number, BLOCKS),
            }
        }
    }
    for number in &site.away {
        site.set_away(*number, true);
    }
    let control = start(&site, seed, &desired);
    let (sessions, seen) = (BTreeMap::new(), Seen::default());
    let mut walk = Walk { seed, site, random, sessions, seen };
    walk.check();
    while walk.appear() {
        // Sometimes several at once.
        if walk.random.below(3) > 0 {
            walk.check();
        }
    }
    walk.check();
    // A member of a mirror that is served without it arrives a moment later.
    let end = Instant::now() + LIMIT;
    loop {
        let left = control.plan(&desired).expect("a plan").steps;
        if left.is_empty() {
            break;
        }
        let left: Vec<&str> = left.iter().map(|s| s.what.as_str()).collect();
        assert!(Instant::now() < end, "seed {seed}: all is there, and to be done: {left:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
    // For any arrived members, the bytes are those of the right disks.
    walk.check();
    walk.sessions.clear();
    control.plant().stop();
    walk.seen
}

/// Writes the disk of the server elsewhere; its address.
fn fill_remote(server: &Server) -> SocketAddr {
    let state = server.control.plant().state().expect("a state");
    let at: SocketAddr = state.targets[0].portals[0].parse().expect("an address");
    let mut client = Client::enter(at, Form::Simple, "0");
    for first in (0..BLOCKS).step_by(128) {
        let data: Vec<u8> = (first..first + 128).flat_map(|at| block(REMOTE, at)).collect();
        let written = client.ask(kind::WRITE, 0, first * 512, data.len() as u64, &data);
        assert_eq!(written.error, None);
    }
    at
}

/// W1 of exports/pending_luns.rs, W2 of exports/pending_luns.rs.
#[test]
fn present_disks_are_served_and_missing_ones_are_awaited() {
    let seeds = &Seeds::of(SEEDS);
    let server = Server::new("starts-far", FAR_SERVER);
    let far = fill_remote(&server);
    let mut all = Seen::default();
    for from in seeds.range().step_by(AT_ONCE as usize) {
        let some = from..seeds.range().end.min(from + AT_ONCE);
        let seen: Vec<Seen> = std::thread::scope(|scope| {
            let threads: Vec<_> =
                some.map(|n| scope.spawn(move || seeds.play(n, |n| walk(n, far)))).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended.map(|end| end.unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
        });
        for seen in seen {
            all.served += seen.served;
            all.awaited += seen.awaited;
            all.appeared += seen.appeared;
            all.servers += seen.servers;
            all.ports += seen.ports;
        }
    }
    let Seen { served, awaited, appeared, servers, ports } = all;
    println!("{served} served, {awaited} awaited");
    println!("{appeared} images, {servers} servers and {ports} ports appeared");
    let all_kinds = [awaited, appeared, servers, ports].iter().all(|count| *count > 0);
    assert!(served > 0 && (!seeds.are_enough() || all_kinds));
}
