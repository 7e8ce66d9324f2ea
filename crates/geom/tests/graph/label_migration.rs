//! Old ends of providers, and the labels that classes left there.

use std::sync::Arc;

use bio::Errno;
use geom::{
    Claim, Class, Error, Event, FormerSizes, FoundLabel, Local, ProviderId, SizeKeeper,
    TasteOutcome, Taster, Topology,
};

use crate::common::{Lab, Leaf, Log, Manner, Mode, plain};

const SMALL: u64 = 64 << 10;
const LARGE: u64 = 128 << 10;
const MARK: u8 = 0xb7;

/// Identifies a disk by the first byte of its last sector; the second byte differs between disks.
struct Tail(Log);

fn last(bytes: u64) -> u64 {
    bytes - 512
}

impl Tail {
    fn note(&self, what: String) {
        self.0.lock().unwrap().push(what);
    }
}

impl Class for Tail {
    fn name(&self) -> &'static str {
        "tail"
    }

    fn doc(&self) -> &'static str {
        "Knows its disks by their ends."
    }

    fn tastes(&self) -> bool {
        true
    }

    fn has_end_metadata(&self) -> bool {
        true
    }

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome> {
        self.note(format!("tastes {} {:?}", disk.name, disk.former_sizes));
        Box::pin(async move {
            let Ok(found) = disk.read(last(disk.media_bytes), 512).await else {
                return TasteOutcome::No("cannot be read".into());
            };
            if found[0] == MARK {
                return TasteOutcome::Yes("its end says so".into(), Box::new(()) as geom::Claim);
            }
            for was in disk.former_sizes.iter().copied() {
                let mark = disk.read(last(was), 512).await.expect("readable");
                if mark[0] == MARK {
                    let (log, name, to) = (self.0.clone(), disk.name.clone(), disk.media_bytes);
                    let (key, by_hand) = (vec![mark[1]], "`tail follow`".to_owned());
                    let carry: geom::WriteLabel = Box::new(move |core, edge| {
                        Box::pin(async move {
                            log.lock().unwrap().push(format!("carries {name}"));
                            core.reactor().sleep(1_000_000).await;
                            let done = core.write(edge, last(to), &mark).await;
                            log.lock().unwrap().push(format!("carried {name}"));
                            done.map_err(|e| e.name().to_owned())
                        })
                    });
                    return TasteOutcome::FormerEnd(
                        "it is left".into(),
                        FoundLabel {
                            former_bytes: was,
                            identity: key,
                            write: Ok(carry),
                            manual_command: by_hand,
                        },
                    );
                }
            }
            TasteOutcome::No("nothing".into())
        })
    }

    fn claim(&self, t: &mut Topology, on: ProviderId, _: &str, _: Claim) -> Result<(), Error> {
        let name = format!("{}.tail", t.provider_name(on));
        self.note(format!("claims {}", t.provider_name(on)));
        let geom = t.new_geom("tail", &name, "tasted", plain(""))?;
        let attached = t.attach_new(geom, on).map_err(|e| Error::of(e, "attach"));
        attached.map(drop)
    }
}

/// Logs the ends that it is given to keep.
struct Keeper(Log);

impl SizeKeeper for Keeper {
    fn save(&mut self, ends: &[FormerSizes]) {
        let line = |end: &FormerSizes| format!("{} {:?}", end.provider, end.bytes);
        let all: Vec<String> = ends.iter().map(line).collect();
        self.0.lock().unwrap().push(format!("keeps {}", all.join(", ")));
    }
}

/// A daemon that has seen these disks end at `SMALL`.
fn lab(seen: &[&str]) -> Lab {
    let mut lab = Lab::new(1);
    let end = |name: &&str| FormerSizes {
        class: "tail".into(),
        provider: (*name).into(),
        ident: format!("ident of {name}"),
        is_disk: true,
        bytes: vec![SMALL],
    };
    let log = lab.log.clone();
    lab.control
        .topology
        .set_size_keeper(seen.iter().map(end).collect(), Box::new(Keeper(log.clone())));
    lab.control.topology.load(Arc::new(Tail(log))).unwrap();
    lab
}

/// A disk of `LARGE` bytes, marked where it ended.
fn left(key: u8) -> Arc<Leaf> {
    let leaf = Leaf::new(LARGE);
    let at = last(SMALL) as usize;
    leaf.put(at, &[MARK, key]);
    leaf
}

fn at(log: &[String], what: &str) -> usize {
    log.iter().position(|line| line == what).unwrap_or_else(|| panic!("no {what:?} in {log:?}"))
}

/// C3 of label_migration.rs.
#[test]
fn metadata_is_moved_to_the_new_end_and_found_there() {
    let mut lab = lab(&["d0"]);
    lab.disk("d0", &left(1));
    lab.pass(10_000_000);
    let log = lab.logged();
    // E1
    assert!(at(&log, "keeps d0 [65536, 131072]") < at(&log, "carries d0"), "{log:?}");
    assert!(at(&log, "carried d0") < at(&log, "claims d0"), "{log:?}");
    assert_eq!(log.last().map(String::as_str), Some("keeps d0 [131072]"), "no other end: {log:?}");
    assert_eq!(lab.taste_outcome("d0", "tail"), "claimed: its end says so");
}

#[test]
fn metadata_is_not_moved_on_a_disk_without_recorded_sizes() {
    let mut lab = lab(&["d7"]);
    lab.disk("d0", &left(1));
    lab.pass(10_000_000);
    assert_eq!(lab.logged(), ["tastes d0 []"]);
    assert_eq!(lab.taste_outcome("d0", "tail"), "nothing");
}

/// C2, and that others continue at once.
/// C2 of label_migration.rs.
#[test]
fn same_metadata_is_not_moved_over_two_paths_at_once() {
    for (keys, most) in [([1, 1], 1), ([1, 2], 2)] {
        let mut lab = lab(&["d0", "d1"]);
        for (name, key) in ["d0", "d1"].into_iter().zip(keys) {
            let leaf = left(key);
            leaf.create(&mut lab.control.topology, name).unwrap();
        }
        lab.pass(20_000_000);
        let log = lab.logged();
        let (mut now, mut seen) = (0, 0);
        for line in &log {
            now +=
                i32::from(line.starts_with("carries ")) - i32::from(line.starts_with("carried "));
            seen = seen.max(now);
        }
        assert_eq!((now, seen), (0, most), "{log:?}");
        for name in ["d0", "d1"] {
            at(&log, &format!("claims {name}"));
        }
    }
}

#[test]
fn metadata_is_moved_again_if_the_disk_grows_meanwhile() {
    let mut lab = lab(&["d0"]);
    let leaf = left(1);
    leaf.resize(2 * LARGE as usize);
    let disk = leaf.create(&mut lab.control.topology, "d0").unwrap();
    let begun = |lab: &Lab| lab.log.lock().unwrap().iter().any(|line| line == "carries d0");
    while !begun(&lab) {
        lab.pass(100_000);
    }
    lab.control.topology.post(Event::Resize(disk, 2 * LARGE));
    lab.pass(20_000_000);
    let log = lab.logged();
    assert_eq!(log.iter().filter(|line| *line == "carried d0").count(), 2, "{log:?}");
    assert_eq!(lab.taste_outcome("d0", "tail"), "claimed: its end says so");
}

/// C1
/// C1 of label_migration.rs.
#[test]
fn failed_metadata_move_is_tried_once_and_reports_the_command() {
    let mut lab = lab(&["d0"]);
    let leaf = left(1);
    let disk = lab.disk("d0", &leaf);
    leaf.set(Mode::Fail(Errno::Io));
    lab.pass(10_000_000);
    leaf.set(Mode::Now);
    for _ in 0..3 {
        lab.control.topology.retaste(disk);
        lab.pass(10_000_000);
    }
    let log = lab.logged();
    assert_eq!(log.iter().filter(|line| line.starts_with("carries")).count(), 1, "{log:?}");
    let outcome = lab.taste_outcome("d0", "tail");
    let wanted = "it is left, but the label could not be moved to the end: EIO; `tail follow` \
                  tries again";
    assert_eq!(outcome, wanted);
}

/// E1: a new end is kept before the provider's users are notified of the growth.
/// E1.
#[test]
fn new_size_is_saved_before_users_are_notified_of_it() {
    let mut lab = lab(&[]);
    let leaf = Leaf::new(SMALL);
    leaf.put(last(SMALL) as usize, &[MARK]);
    let disk = lab.disk("d0", &leaf);
    lab.user("u", disk, Manner::default());
    assert!(lab.logged().contains(&"keeps d0 [65536]".to_owned()));
    lab.control.topology.post(Event::Resize(disk, LARGE));
    lab.control.settle().unwrap();
    let log = lab.logged();
    assert!(at(&log, "keeps d0 [65536, 131072]") < at(&log, "u resized 131072"), "{log:?}");
}
