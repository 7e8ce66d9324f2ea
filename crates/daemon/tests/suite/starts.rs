//! Starts with missing disks: random images, members and ports are absent when a daemon in this
//! process starts, and appear later in a random order. A model predicts the served units at each
//! moment.
//!
//! ```text
//!   images, some away --> start, listening --> check --> one thing appears --> check --> all
//! ```
//! Invariants of the model
//!  H1  A unit is served when everything that it needs is present, within [`LIMIT`]: all images of
//!      a disk, a concatenation or a layer, and one member of a mirror.
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
use testkit::Seeds;
use testkit::nbd::Client;
use wire::nbd::codes::{kind, rep};

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

/// Made once: that takes longer than to read a configuration.
static CATALOG: LazyLock<Catalog> = LazyLock::new(catalog);

/// The images below a unit: images, in the order of their bytes.
#[derive(Clone, Debug)]
struct Unit {
    provider: String,
    images: Vec<u64>,
    /// All images but the first are copies of it: one is enough.
    copies: bool,
}

impl Unit {
    fn new(provider: &str, images: &[u64]) -> Unit {
        Unit { provider: provider.to_owned(), images: images.to_vec(), copies: false }
    }

    /// The image whose bytes are at a place of it, and the block there.
    fn place(&self, at: u64) -> (u64, u64) {
        match self.copies {
            true => (self.images[0], at),
            false => (self.images[(at / BLOCKS) as usize], at % BLOCKS),
        }
    }

    /// Blocks that are read.
    fn blocks(&self) -> u64 {
        match self.copies {
            true => BLOCKS - RECORD_BLOCKS,
            false => BLOCKS * self.images.len() as u64,
        }
    }
}

/// The folder of a seed and its contents.
struct Site {
    folder: PathBuf,
    /// Images that are away.
    away: Vec<u64>,
    units: Vec<Unit>,
    /// Another program has the port.
    taken: Option<TcpListener>,
    at: SocketAddr,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}

fn image(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("i{number}.img"))
}

/// The bytes of a block of an image: which one it is, and which block.
fn block(image: u64, at: u64) -> Vec<u8> {
    (image << 32 | at).to_le_bytes().repeat(512 / 8)
}

/// An image that is away has another name.
fn other_name(folder: &Path, number: u64) -> PathBuf {
    folder.join(format!("i{number}.away"))
}

/// A blank image.
fn make(folder: &Path, number: u64) {
    let file = std::fs::File::create(image(folder, number)).expect("an image");
    file.set_len(BYTES).expect("its size");
}

/// Writes blocks of an image, as those of an image that it may be a copy of.
fn fill(folder: &Path, number: u64, bytes_of: u64, blocks: u64) {
    let file = std::fs::File::options().write(true).open(image(folder, number));
    let file = file.expect("an image");
    let bytes: Vec<Vec<u8>> = (0..blocks).map(|at| block(bytes_of, at)).collect();
    file.write_all_at(&bytes.concat(), 0).expect("its bytes");
}

impl Site {
    fn new(seed: u64, random: &mut SeededRandom) -> Site {
        let folder = std::env::temp_dir().join(format!("ashlar-st-{}-{seed}", std::process::id()));
        std::fs::create_dir_all(&folder).expect("a folder");
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
        let away: Vec<u64> = (0..IMAGES).filter(|_| random.below(2) == 0).collect();
        (0..IMAGES).for_each(|n| make(&folder, n));
        // Seeds run beside each other: each has an address of its own.
        let [.., high, low] = (seed % 60_000).to_be_bytes();
        let taken = TcpListener::bind(SocketAddr::from(([127, 9, high, low], 0))).expect("a port");
        let at = taken.local_addr().expect("its address");
        let taken = (random.below(4) == 0).then_some(taken);
        Site { folder, away, units, taken, at }
    }

    fn config(&self) -> Config {
        let mut text = String::new();
        for number in 0..IMAGES {
            text +=
                &format!("[[disk]]\nname = 'd{number}'\nkind = 'file'\npath = 'i{number}.img'\n");
        }
        let mut luns = Vec::new();
        for (lun, unit) in self.units.iter().enumerate() {
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
                let folder = &self.site.folder;
                std::fs::rename(other_name(folder, number), image(folder, number)).expect("back");
                self.seen.appeared += 1;
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

fn walk(seed: u64) -> Seen {
    let mut random = SeededRandom::new(seed ^ 0x57a7);
    let site = Site::new(seed, &mut random);
    let state = site.folder.join("state").to_str().map(str::to_owned);
    let settings =
        DaemonConfig { cores: Some(1), port: Port::Poll, state, ..DaemonConfig::default() };
    let mut desired = site.config();
    desired.daemon = settings.clone();
    // A mirror gets its records, and a concatenation, which has none, is known from then on.
    start(&site, seed, &desired).plant().stop();
    for unit in &site.units {
        for number in &unit.images {
            match unit.copies {
                true => fill(&site.folder, *number, unit.images[0], unit.blocks()),
                false => fill(&site.folder, *number, *number, BLOCKS),
            }
        }
    }
    for number in &site.away {
        let (from, to) = (image(&site.folder, *number), other_name(&site.folder, *number));
        std::fs::rename(from, to).expect("away");
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

/// W1 of exports/pending_luns.rs, W2 of exports/pending_luns.rs.
#[test]
fn present_disks_are_served_and_missing_ones_are_awaited() {
    let seeds = &Seeds::of(SEEDS);
    let mut all = Seen::default();
    for from in seeds.range().step_by(AT_ONCE as usize) {
        let some = from..seeds.range().end.min(from + AT_ONCE);
        let seen: Vec<Seen> = std::thread::scope(|scope| {
            let threads: Vec<_> = some.map(|n| scope.spawn(move || seeds.play(n, walk))).collect();
            let ended = threads.into_iter().map(|thread| thread.join());
            ended.map(|end| end.unwrap_or_else(|why| std::panic::resume_unwind(why))).collect()
        });
        for seen in seen {
            all.served += seen.served;
            all.awaited += seen.awaited;
            all.appeared += seen.appeared;
            all.ports += seen.ports;
        }
    }
    let Seen { served, awaited, appeared, ports } = all;
    println!("{served} served, {awaited} awaited, {appeared} images and {ports} ports appeared");
    assert!(served > 0 && (!seeds.are_enough() || awaited > 0 && appeared > 0 && ports > 0));
}
