//! Openings that do not end: other disks, `status`, `plan` and `apply` do not wait for them.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{self, Receiver, Sender};

use disks::DiskClass;
use geom::Topology;
use mgmt::config::{Config, DaemonConfig, Port, read};
use mgmt::{Archive, Consent, Control};
use serde_json::json;
use testkit::Folder;

use super::*;
use crate::catalog::catalog;
use crate::plant::Daemon;

/// A wait that is over when it fails.
const LONG: Duration = Duration::from_secs(60);
const MIB: u64 = 1 << 20;

/// Reports each disk that it begins to open. `slow` and others whose names begin so do not open
/// until they are released, `broken` does not open.
struct FakeOpener {
    real: Opener,
    begun: Mutex<Sender<String>>,
    released: Mutex<Receiver<()>>,
}

impl DiskOpener for FakeOpener {
    fn open_disk(&self, disk: &DiskConfig) -> std::result::Result<OpenedDisk, geom::Error> {
        let _ = self.begun.lock().send(disk.name.clone());
        if disk.name.starts_with("slow") {
            let _ = self.released.lock().recv();
        }
        if disk.name == "broken" {
            return Err(geom::Error::new(bio::Errno::Io, "the test made it fail"));
        }
        self.real.open_disk(disk)
    }
}

/// Makes the opener, reports the disks that it begins to open, and releases all slow ones when it
/// is dropped.
type Fake = (Box<dyn FnOnce(Opener) -> Arc<dyn DiskOpener> + Send>, Receiver<String>, Sender<()>);

fn fake() -> Fake {
    let (begun, begins) = mpsc::channel();
    let (release, released) = mpsc::channel();
    let wrap = move |real: Opener| -> Arc<dyn DiskOpener> {
        Arc::new(FakeOpener { real, begun: Mutex::new(begun), released: Mutex::new(released) })
    };
    (Box::new(wrap), begins, release)
}

fn openings(clock: fn() -> u64) -> (Openings, Receiver<String>, Sender<()>) {
    let (wrap, begins, release) = fake();
    let real = DiskClass::new(Arc::default(), 1).opener(&Topology::new(1));
    (Openings::new(wrap(real), Arc::default(), clock), begins, release)
}

fn disk(name: &str, bytes: u64) -> DiskConfig {
    let section = json!({ "name": name, "kind": "memory", "size": bytes });
    serde_json::from_value(section).expect("a disk")
}

/// A disk whose file is made if it is absent.
fn file(name: &str, path: &Path, bytes: u64) -> DiskConfig {
    let section = json!({
        "name": name, "kind": "file", "path": path, "create": true, "size": bytes,
    });
    serde_json::from_value(section).expect("a disk")
}

fn begin(openings: &Openings, disk: &DiskConfig) -> Begun {
    openings.begin(disk, FileChange::Make, || Ok(())).expect("a thread")
}

/// Waits for an opening, and answers whether it has succeeded.
fn opens(openings: &Openings, disk: &DiskConfig) -> Option<bool> {
    assert!(openings.wait(&disk.name, LONG, |_| {}));
    openings.take(disk).map(|opened| opened.is_ok())
}

#[test]
fn o1_opening_that_hangs_leaves_others_and_is_dropped_when_abandoned() {
    let (openings, begins, release) = openings(|| 0);
    let (slow, other) = (disk("slow", MIB), disk("other", MIB));
    assert_eq!(begin(&openings, &slow), Begun::Now);
    assert_eq!(begins.recv_timeout(LONG).expect("it begins"), "slow");
    assert!(!openings.wait("slow", Duration::ZERO, |_| {}));
    assert!(openings.has_ended(&slow) == Some(false) && openings.take(&slow).is_none());
    assert_eq!(begin(&openings, &other), Begun::Now);
    assert_eq!(opens(&openings, &other), Some(true));
    assert!(!openings.has("other"), "a result is taken once");
    openings.abandon("slow");
    assert!(openings.has("slow") && !openings.is_wanted("slow"));
    drop(release);
    assert_eq!(opens(&openings, &slow), None);
    assert!(!openings.has("slow"));
}

#[test]
fn o2_opening_of_the_same_section_is_used_again_and_of_another_is_not() {
    let (openings, begins, release) = openings(|| 0);
    let (slow, larger) = (disk("slow", MIB), disk("slow", 2 * MIB));
    assert_eq!(begin(&openings, &slow), Begun::Now);
    assert_eq!(begin(&openings, &slow), Begun::Before);
    openings.abandon("slow");
    assert_eq!(begin(&openings, &slow), Begun::Now, "it is wanted again");
    assert_eq!(begins.recv_timeout(LONG).expect("it begins"), "slow");
    assert!(begins.try_recv().is_err(), "once");
    assert_eq!(begin(&openings, &larger), Begun::Now);
    assert_eq!(openings.has_ended(&slow), None);
    drop(release);
    assert_eq!(opens(&openings, &larger), Some(true));
}

#[test]
fn failed_opening_is_not_used_again() {
    let (openings, _begins, _release) = openings(|| 0);
    let other = disk("other", MIB);
    let refusal = || Err(Error::new(Kind::Busy, OP, "in use"));
    assert_eq!(openings.begin(&other, FileChange::Make, refusal).expect("a thread"), Begun::Now);
    assert!(openings.wait("other", LONG, |_| {}));
    assert_eq!(begin(&openings, &other), Begun::Now);
    assert_eq!(opens(&openings, &other), Some(true));
}

/// T2 of reattach.rs.
#[test]
fn file_is_made_and_extended_only_where_the_opening_may() {
    let folder = Folder::new("makes");
    let path = folder.join("a.img");
    let disk = file("a", &path, 2 * MIB);
    let (openings, _begins, _release) = openings(|| 0);
    let result = |may: FileChange| {
        openings.begin(&disk, may, || Ok(())).expect("a thread");
        assert!(openings.wait("a", LONG, |_| {}));
        openings.take(&disk).expect("a result").map(drop)
    };
    for may in [FileChange::Extend, FileChange::Nothing] {
        let e = result(may).expect_err("there is no file");
        assert!(e.kind == Kind::NotFound && e.source.contains("existed before"), "{e}");
        assert!(!path.exists(), "{may:?}");
    }
    let bytes = || std::fs::metadata(&path).expect("a file").len();
    std::fs::write(&path, vec![0; MIB as usize]).expect("a file");
    result(FileChange::Nothing).expect("it is there");
    assert_eq!(bytes(), MIB);
    result(FileChange::Extend).expect("it is there");
    assert_eq!(bytes(), 2 * MIB);
    std::fs::remove_file(&path).expect("removed");
    result(FileChange::Make).expect("it is made");
    assert_eq!(bytes(), 2 * MIB);
}

#[test]
fn o4_abandoned_opening_leaves_no_file_that_it_made_and_every_other_file() {
    let folder = Folder::new("abandons");
    let path = folder.join("a.img");
    let file = file("slow", &path, MIB);
    for existed in [false, true] {
        if existed {
            std::fs::write(&path, vec![1; MIB as usize]).expect("a file");
        }
        let (openings, begins, release) = openings(|| 0);
        assert_eq!(begin(&openings, &file), Begun::Now);
        assert_eq!(begins.recv_timeout(LONG).expect("it begins"), "slow");
        openings.abandon("slow");
        drop(release);
        assert!(openings.wait("slow", LONG, |_| {}));
        // A disk of its name is opened when it has been discarded.
        let next = disk("slow", MIB);
        assert_eq!(begin(&openings, &next), Begun::Now);
        assert_eq!(opens(&openings, &next), Some(true));
        assert_eq!(path.exists(), existed);
    }
}

#[test]
fn o4_file_of_an_opening_that_is_abandoned_after_its_end_is_removed() {
    let folder = Folder::new("unused");
    let path = folder.join("a.img");
    let file = file("a", &path, MIB);
    let (openings, _begins, _release) = openings(|| 0);
    assert_eq!(begin(&openings, &file), Begun::Now);
    assert!(openings.wait("a", LONG, |_| {}) && path.exists());
    openings.abandon("a");
    let next = disk("a", MIB);
    assert_eq!(begin(&openings, &next), Begun::Now);
    assert_eq!(opens(&openings, &next), Some(true));
    assert!(!path.exists());
}

#[test]
fn o4_file_of_an_earlier_opening_that_is_not_wanted_is_opened_after_it() {
    let folder = Folder::new("replaces");
    let path = folder.join("a.img");
    let (first, second) = (file("slow", &path, MIB), file("slow", &path, 2 * MIB));
    let (openings, begins, release) = openings(|| 0);
    let waits = |disk: &DiskConfig, id: u64| openings.0.state.lock().has_to_wait(disk, id);
    assert_eq!(begin(&openings, &first), Begun::Now);
    assert_eq!(begins.recv_timeout(LONG).expect("it begins"), "slow");
    let renamed = file("other", &path, MIB);
    assert!(!waits(&renamed, 2), "a wanted one is left to the checks of media");
    openings.abandon("slow");
    assert!(waits(&renamed, 2), "abandoned");
    assert_eq!(begin(&openings, &second), Begun::Now);
    assert!(waits(&second, 2) && waits(&renamed, 3), "replaced");
    assert!(!waits(&first, 1), "the first one waits for none");
    assert!(!waits(&disk("slow", MIB), 3), "it has another path");
    drop(release);
    assert_eq!(opens(&openings, &second), Some(true));
    assert_eq!(std::fs::metadata(&path).expect("its file is there").len(), 2 * MIB);
    assert!(!waits(&renamed, 3), "all have ended");
}

#[test]
fn o3_file_system_whose_openings_hang_leaves_room_for_other_disks() {
    let (openings, _begins, release) = openings(|| 0);
    // A disk without a file is a place of its own.
    let slow = |number: usize| disk("slow", (number as u64 + 1) * MIB);
    for number in 0..FILE_SYSTEM_MAX {
        begin(&openings, &slow(number));
    }
    let begun = openings.begin(&slow(FILE_SYSTEM_MAX), FileChange::Make, || Ok(()));
    let refused = begun.expect_err("all threads hang");
    assert!(refused.kind == Kind::Limit && refused.at == "slow", "{refused}");
    let other = disk("other", MIB);
    assert_eq!(begin(&openings, &other), Begun::Now);
    assert_eq!(opens(&openings, &other), Some(true));
    drop(release);
    assert_eq!(opens(&openings, &slow(FILE_SYSTEM_MAX - 1)), Some(true));
}

#[test]
fn status_names_a_disk_whose_opening_takes_seconds() {
    static NOW: AtomicU64 = AtomicU64::new(0);
    let (openings, _begins, _release) = openings(|| NOW.load(Ordering::Relaxed));
    begin(&openings, &disk("slow", MIB));
    let mut state = SystemState::default();
    openings.show(&mut state);
    assert!(state.disks.is_empty(), "it has just begun");
    NOW.store(3_900_000_000, Ordering::Relaxed);
    openings.show(&mut state);
    let shown = |state: &SystemState| {
        let all = state.disks.iter().map(|disk| (disk.name.clone(), disk.health_why.clone()));
        all.collect::<Vec<_>>()
    };
    let expected = |why: &str| vec![("slow".to_owned(), why.to_owned())];
    assert_eq!(shown(&state), expected("is being opened (for 3 s)"));
    state.disks[0].health_why = "medium lost".to_owned();
    openings.show(&mut state);
    assert_eq!(shown(&state), expected("is being opened (for 3 s); medium lost"));
}

/// A daemon in this process whose disk `slow` does not open until it is released.
struct Site {
    folder: Folder,
    control: Control,
}

impl Site {
    fn launched(name: &str) -> (Site, Receiver<String>, Sender<()>) {
        let folder = Folder::new(name);
        let settings = DaemonConfig { cores: Some(1), port: Port::Poll, ..DaemonConfig::default() };
        let launched = Config { daemon: settings.clone(), ..Config::default() };
        let (wrap, begins, release) = fake();
        let plant = Daemon::start_with(&settings, wrap).expect("a daemon");
        let archive = Archive::new(&folder.join("history"), 2);
        let control = Control::new(Box::new(plant), catalog(), &launched, archive);
        (Site { folder, control }, begins, release)
    }

    fn read(&self, text: &str) -> Config {
        let file = self.folder.join("ashlar.toml");
        let config = read(text, file.to_str().expect("a path"), &catalog()).expect("well-formed");
        Config { daemon: self.control.config().0.daemon, ..config }
    }

    fn apply(&self, config: &Config) -> Result<()> {
        self.control.apply(config, &Consent::default(), &mut |_| {}).map(drop)
    }

    fn has(&self, disk: &str) -> bool {
        self.control.state().expect("a state").provider(disk).is_some()
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        self.control.plant().stop();
    }
}

fn memory(name: &str) -> String {
    format!("[[disk]]\nname = '{name}'\nkind = 'memory'\nsize = '1MiB'\n")
}

/// K2 of mailbox.rs.
/// P2 of mgmt/src/plant.rs.
#[test]
fn status_and_plan_answer_while_apply_opens_a_disk_that_hangs() {
    let (site, begins, release) = Site::launched("opening-apply");
    site.control.plant().open();
    let config = site.read(&memory("slow"));
    std::thread::scope(|scope| {
        let applied = scope.spawn(|| site.apply(&config));
        assert_eq!(begins.recv_timeout(LONG).expect("it begins"), "slow");
        assert!(!site.has("slow"));
        let plan = site.control.plan(&site.read(&memory("other"))).expect("a plan");
        assert_eq!(site.control.refused_steps(&plan), (Vec::new(), Vec::new()));
        drop(release);
        applied.join().expect("no panic").expect("it is carried out");
    });
    assert!(site.has("slow"));
}

/// Units that a start adds before it opens the disk that hangs.
const STARTED: usize = 300;

#[test]
fn status_answers_at_each_step_of_a_start_with_a_disk_that_hangs() {
    let (site, begins, release) = Site::launched("opening-start");
    let healthy = (0..STARTED).map(|n| memory(&format!("m{n}")));
    let text: String = healthy.chain([memory("slow"), memory("last")]).collect();
    let luns: Vec<String> = (0..STARTED).map(|n| format!("{n} = 'm{n}'")).collect();
    let config = site.read(&format!(
        "{text}[[target]]\ndriver = 'nbd'\nname = 'n'\nlisten = ['127.0.0.1:0']\n\
         [[access]]\ntarget = 'n'\ngroup = 'g'\ninitiators = ['*']\n\
         luns = {{ {}, {STARTED} = 'last' }}\n",
        luns.join(", ")
    ));
    site.control.set_starting(true);
    std::thread::scope(|scope| {
        let started = scope.spawn(|| site.control.start(&config));
        for opened in 0..=STARTED {
            let begun = begins.recv_timeout(LONG).expect("it begins");
            let state = site.control.state().expect("an answer");
            assert!(site.control.start_progress().is_some(), "{begun}");
            // Those before it are there; further ones may have been added meanwhile.
            let disks = state.disks.iter().filter(|disk| disk.name.starts_with('m')).count();
            assert!(disks >= opened, "{begun}: {disks} disks");
            assert_eq!(begun == "slow", opened == STARTED, "{begun}");
        }
        assert!(!site.has("slow"));
        drop(release);
        started.join().expect("no panic").expect("a start");
    });
    assert!(site.has("last"));
    let state = site.control.state().expect("a state");
    assert_eq!(state.targets[0].groups[0].luns.len(), STARTED + 1);
}

/// S1 of plant/start_waits.rs, S2 of plant/start_waits.rs.
#[test]
fn start_opens_three_disks_that_hang_and_a_healthy_one_at_once() {
    let (site, begins, release) = Site::launched("opening-beside");
    let names = ["slow0", "slow1", "slow2", "good"];
    for name in names {
        let file = site.folder.join(format!("{name}.img"));
        std::fs::write(file, vec![0; MIB as usize]).expect("a file");
    }
    let section =
        |name: &str| format!("[[disk]]\nname = '{name}'\nkind = 'file'\npath = '{name}.img'\n");
    let config = site.read(&format!(
        "{}[[target]]\ndriver = 'nbd'\nname = 'n'\nlisten = ['127.0.0.1:0']\n\
         [[access]]\ntarget = 'n'\ngroup = 'g'\ninitiators = ['*']\nluns = {{ 0 = 'good' }}\n",
        names.map(section).concat()
    ));
    site.control.set_starting(true);
    let applied = std::thread::scope(|scope| {
        let started = scope.spawn(|| site.control.start(&config));
        let begun = names.map(|_| begins.recv_timeout(LONG).expect("it begins"));
        assert_eq!(begun[0], "slow0", "the others wait until it is slow");
        let begun: BTreeSet<&str> = begun.iter().map(String::as_str).collect();
        assert_eq!(begun, BTreeSet::from(names));
        assert!(names.iter().all(|name| !site.has(name)), "each is added by its own step");
        drop(release);
        started.join().expect("no panic").expect("a start")
    });
    // None of them was given up for another one.
    assert!(applied.deferred.is_empty(), "{:?}", applied.deferred);
    assert!(names.iter().all(|name| site.has(name)));
    let state = site.control.state().expect("a state");
    assert_eq!(state.targets[0].groups[0].luns.len(), 1);
}

#[test]
fn apply_answers_while_a_disk_that_returns_hangs() {
    let (site, begins, release) = Site::launched("opening-return");
    let section = "[[disk]]\nname = 'slow'\nkind = 'file'\npath = 'slow.img'\n";
    let config = site.read(section);
    site.control.start(&config).expect("a start");
    site.control.plant().open();
    let image = site.folder.join("slow.img");
    std::fs::write(site.folder.join("away"), vec![0; MIB as usize]).expect("a file");
    std::fs::rename(site.folder.join("away"), &image).expect("its name");
    assert_eq!(begins.recv_timeout(LONG).expect("it begins"), "slow");
    assert!(!site.has("slow"));
    site.apply(&site.read(&memory("other"))).expect("it does not wait");
    assert!(site.has("other") && !site.has("slow"));
    drop(release);
    let both = site.read(&(section.to_owned() + &memory("other")));
    site.apply(&both).expect("it is carried out");
    assert!(site.has("slow") && site.has("other"));
}

fn image(name: &str, path: &str) -> String {
    format!(
        "[[disk]]\nname = '{name}'\nkind = 'file'\npath = '{path}'\ncreate = true\n\
         size = '1MiB'\n"
    )
}

/// The file of the removed disk has the path of its new section.
/// P5 of mgmt/src/plant.rs.
#[test]
fn rollback_makes_no_file_for_a_disk_that_was_removed() {
    let (site, _begins, _release) = Site::launched("opening-rollback");
    site.control.plant().open();
    site.apply(&site.read(&image("a", "a.img"))).expect("it is made");
    let (before, after) = (site.folder.join("a.img"), site.folder.join("b.img"));
    std::fs::rename(&before, &after).expect("moved");
    let moved = site.read(&(image("a", "b.img") + &memory("broken")));
    let refused = site.apply(&moved).expect_err("a disk does not open");
    assert_eq!(refused.kind, Kind::HalfDone, "{refused}");
    assert!(refused.source.contains("the daemon waits for a"), "{refused}");
    assert!(!before.exists() && after.exists() && !site.has("a"));
    let config = site.control.config().0;
    assert_eq!(config.disk, site.read(&image("a", "a.img")).disk, "it is awaited");
}

#[test]
fn awaited_disk_is_wanted_after_a_change_that_was_undone() {
    let (site, _begins, _release) = Site::launched("opening-awaited");
    let lost = "[[disk]]\nname = 'lost'\nkind = 'file'\npath = 'lost.img'\n".to_owned();
    let all = lost.clone() + &image("a", "a.img") + &image("b", "b.img");
    site.control.start(&site.read(&all)).expect("a start");
    site.control.plant().open();
    // The removed disk is the last one of the configuration when it is back.
    let changed = site.read(&(lost + &image("b", "b.img") + &memory("broken")));
    let refused = site.apply(&changed).expect_err("a disk does not open");
    assert_eq!(refused.kind, Kind::RolledBack, "{refused}");
    let config = site.control.config().0;
    let mut disks: Vec<&str> = config.disk.iter().map(|disk| disk.name.as_str()).collect();
    disks.sort_unstable();
    assert_eq!(disks, ["a", "b", "lost"]);
}
