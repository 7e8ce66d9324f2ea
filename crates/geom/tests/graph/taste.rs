//! Tasting (docs/reference/geom.md 1.4): which classes taste, when, in which order, and the
//! recorded reasons.

use std::sync::Arc;

use bio::Errno;
use geom::{Access, TASTE_DEADLINE_NS};

use crate::common::{Lab, Leaf, Log, MAGIC, Manner, Mode, SECOND, Taste, Tasting, plain};

fn marked(number: u8) -> Arc<Leaf> {
    let leaf = Leaf::new(1 << 20);
    leaf.put(0, &[MAGIC + number]);
    leaf
}

fn lab_with(classes: &[(&'static str, u8, Tasting)]) -> Lab {
    let mut lab = Lab::new(1);
    let log: Log = lab.log.clone();
    for (name, number, how) in classes {
        lab.control.topology.load(Taste::with_mode(name, *number, *how, &log)).unwrap();
    }
    lab
}

use Tasting::{Claims, Destroys, Hides, Nests, Refused, Writes};

#[test]
fn newest_class_tastes_first_and_every_class_reports_a_reason() {
    let mut lab = lab_with(&[("ta", 0, Claims), ("tb", 1, Claims), ("tc", 2, Refused)]);
    lab.disk("d1", &marked(1));
    let order: Vec<_> = lab.logged().into_iter().filter(|l| l.ends_with(" d1")).collect();
    assert_eq!(order, ["tc tastes d1", "tb tastes d1", "ta tastes d1", "tb claims d1"]);
    assert_eq!(lab.taste_outcome("d1", "tb"), "claimed: the first byte says so");
    assert_eq!(lab.taste_outcome("d1", "ta"), "first byte is 0xa1");
    assert_eq!(lab.taste_outcome("d1", "tc"), "first byte is 0xa1");
    lab.disk("d2", &marked(2));
    let why = lab.taste_outcome("d2", "tc");
    assert!(why.starts_with("the first byte says so, but refused: claim: no space"), "{why}");
    let bad = marked(0);
    bad.set(Mode::Fail(Errno::Io));
    lab.disk("d3", &bad);
    assert_eq!(lab.taste_outcome("d3", "ta"), "cannot be read: EIO");
    let shut = marked(0);
    *shut.refuse.lock().unwrap() = Some(Errno::NoDev);
    lab.disk("d4", &shut);
    assert!(
        lab.taste_outcome("d4", "ta").starts_with("could not be opened to taste: not possible")
    );
}

#[test]
fn class_attached_to_a_provider_does_not_taste_it_again() {
    let mut lab = lab_with(&[("ta", 0, Claims), ("tb", 1, Claims)]);
    let disk = lab.disk("d0", &marked(0));
    lab.logged();
    lab.control.topology.retaste(disk);
    lab.control.settle().unwrap();
    assert_eq!(lab.logged(), ["tb tastes d0"]);
    assert_eq!(lab.taste_outcome("d0", "ta"), "claimed: the first byte says so", "its word stands");
}

#[test]
fn newly_loaded_class_tastes_all_existing_providers() {
    let mut lab = lab_with(&[("ta", 0, Claims)]);
    lab.disk("d0", &marked(0));
    lab.disk("d1", &marked(1));
    let log = lab.log.clone();
    lab.logged();
    lab.control.call(|t| t.load(Taste::class("tb", 1, &log))).unwrap();
    let mut log = lab.logged();
    log.retain(|l| l.contains("tastes"));
    log.sort();
    // d1.tb is a provider that did not exist when the class was loaded: all classes taste it.
    let wanted =
        ["ta tastes d1.tb", "tb tastes d0", "tb tastes d0.ta", "tb tastes d1", "tb tastes d1.tb"];
    assert_eq!(log, wanted);
    let twice = lab.control.topology.load(Taste::class("tb", 1, &lab.log)).unwrap_err();
    assert_eq!(twice.kind, Errno::Exist);
}

#[test]
fn provider_open_for_writing_is_tasted_when_its_last_writer_closes() {
    let mut lab = lab_with(&[("ta", 0, Claims)]);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let (w, r) = (lab.writer("w", disk), lab.user("r", disk, Manner::default()));
    lab.logged();
    leaf.put(0, &[MAGIC]);
    lab.control.topology.retaste(disk);
    lab.control.settle().unwrap();
    assert!(!lab.logged().iter().any(|l| l.contains("tastes")));
    assert_eq!(lab.taste_outcome("d0", "ta"), "open for writing when tasted");
    lab.open(r, Access::READ).unwrap();
    lab.open(r, Access::READ.inverse()).unwrap();
    assert_eq!(lab.logged(), [""; 0], "a reader that leaves changes nothing");
    let other = lab.writer("other", disk);
    lab.open(other, Access::WRITE.inverse()).unwrap();
    assert_eq!(lab.logged(), [""; 0], "one writer is left");
    lab.open(w, Access::WRITE.inverse()).unwrap();
    let log = lab.logged();
    assert!(log.contains(&"ta claims d0".to_string()), "{log:?}");
    let notified = log.iter().position(|l| l == "w attr GEOM::media");
    let tasted = log.iter().position(|l| l == "ta tastes d0");
    assert!(notified.is_some() && notified < tasted, "consumers are told first: {log:?}");
}

#[test]
fn class_may_opt_in_to_providers_open_for_writing() {
    let mut lab = lab_with(&[]);
    let log = lab.log.clone();
    let class = Taste { name: "tw", number: 0, mode: Claims, written: true, log };
    lab.control.topology.load(Arc::new(class)).unwrap();
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    lab.writer("w", disk);
    leaf.put(0, &[MAGIC]);
    lab.control.topology.retaste(disk);
    lab.control.settle().unwrap();
    assert_eq!(lab.taste_outcome("d0", "tw"), "claimed: the first byte says so");
}

#[test]
fn verb_that_reads_a_provider_does_not_prevent_a_claim_by_its_class() {
    for before in [true, false] {
        let mut lab = lab_with(&[("ta", 0, Claims), ("tb", 1, Claims)]);
        let leaf = marked(0);
        leaf.set(Mode::After(SECOND / 10));
        let disk = leaf.create(&mut lab.control.topology, "d0").unwrap();
        if !before {
            lab.pass(SECOND / 100);
        }
        let t = &mut lab.control.topology;
        let hand = t.new_geom("ta", "hand", "a verb", plain("")).unwrap();
        t.set_verb_access(hand);
        let consumer = t.attach_new(hand, disk).unwrap();
        t.access(consumer, Access::READ).unwrap();
        lab.control.settle().unwrap();
        let verdict = lab.taste_outcome("d0", "ta");
        assert_eq!(verdict, "claimed: the first byte says so", "before the tasting: {before}");
        lab.control.topology.leave(consumer);
        lab.control.topology.wither_geom(hand, Errno::NxIo);
        lab.control.settle().unwrap();
        lab.control.topology.check();
    }
}

#[test]
fn no_taste_setting_disables_tasting() {
    let mut lab = lab_with(&[("ta", 0, Claims)]);
    lab.control.topology.no_taste = true;
    lab.disk("d0", &marked(0));
    assert_eq!(lab.logged(), [""; 0]);
}

#[test]
fn hung_disk_delays_only_its_own_tasting() {
    let mut lab = lab_with(&[("ta", 0, Claims), ("tb", 1, Claims)]);
    let hangs = marked(0);
    hangs.set(Mode::Hold);
    let start = lab.world.now();
    let t = &mut lab.control.topology;
    hangs.create(t, "hangs").unwrap();
    let good = marked(0);
    let disk = good.create(t, "good").unwrap();
    let claimed = |c: &geom::GraphControl| c.topology.find("good.ta").is_some();
    assert!(lab.control.wait_until(std::time::Duration::from_millis(10), claimed));
    let t = &lab.control.topology;
    let asked = t.geom_of(t.find("hangs").unwrap()).unwrap();
    assert!(t.geom_is_open(asked) && !t.geom_has_user(asked), "a tasting is no user");
    lab.control.settle().unwrap();
    let took = lab.world.now() - start;
    assert!((TASTE_DEADLINE_NS..TASTE_DEADLINE_NS + SECOND / 2).contains(&took), "{took}");
    for class in ["ta", "tb"] {
        assert_eq!(
            lab.taste_outcome("hangs", class),
            "the disk did not answer in 5 s; retaste when it does"
        );
    }
    // The barrier does not wait for the request that still hangs.
    let start = lab.world.now();
    lab.control.settle().unwrap();
    assert!(lab.world.now() - start < SECOND / 100);
    assert_eq!(lab.live(), 1);
    hangs.set(Mode::Now);
    assert_eq!(hangs.release(&lab.cores), 1);
    lab.pass(SECOND / 100);
    lab.assert_empty();
    let hung = lab.control.topology.find("hangs").unwrap();
    assert_eq!(lab.control.topology.counts(hung), Access::NONE, "closed when it was over");
    lab.control.topology.retaste(hung);
    lab.control.settle().unwrap();
    assert_eq!(lab.taste_outcome("hangs", "ta"), "claimed: the first byte says so");
    assert_eq!(lab.control.topology.counts(disk), Access::NONE);
    lab.control.topology.check();
}

#[test]
fn provider_written_during_a_taste_is_tasted_again() {
    let mut lab = lab_with(&[("ta", 0, Claims)]);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let w = lab.user("w", disk, Manner::default());
    leaf.put(0, &[MAGIC]);
    leaf.set(Mode::After(SECOND / 10));
    lab.control.topology.retaste(disk);
    lab.control.pump();
    lab.spin(SECOND / 5);
    // The taster has read the old first byte, and its answer has not been received yet.
    leaf.set(Mode::Now);
    lab.control.topology.access(w, Access::WRITE).unwrap();
    leaf.put(0, &[0]);
    lab.control.topology.access(w, Access::WRITE.inverse()).unwrap();
    lab.control.settle().unwrap();
    assert_eq!(lab.taste_outcome("d0", "ta"), "first byte is 0x0");
    assert!(lab.control.topology.find("d0.ta").is_none(), "nobody claims what is not there");
}

#[test]
fn claim_on_a_provider_opened_for_writing_waits_for_the_close() {
    let mut lab = lab_with(&[("ta", 0, Claims)]);
    let leaf = marked(0);
    leaf.set(Mode::Hold);
    let disk = leaf.create(&mut lab.control.topology, "d0").unwrap();
    let w = lab.control.topology.find("d0").map(|_| ()).and(Some(()));
    assert!(w.is_some());
    lab.control.pump();
    lab.spin(1_000_000);
    let log = lab.log.clone();
    let w =
        crate::common::User::create(&mut lab.control.topology, "w", disk, Manner::default(), log);
    let w = w.unwrap();
    lab.control.topology.access(w, Access::WRITE).unwrap();
    leaf.set(Mode::Now);
    leaf.release(&lab.cores);
    lab.control.settle().unwrap();
    assert_eq!(
        lab.taste_outcome("d0", "ta"),
        "the first byte says so, but the provider was opened for writing meanwhile"
    );
    lab.open(w, Access::WRITE.inverse()).unwrap();
    assert_eq!(lab.taste_outcome("d0", "ta"), "claimed: the first byte says so");
}

#[test]
fn claim_that_destroys_the_disk_gives_other_classes_a_reason() {
    let mut lab = lab_with(&[("ta", 0, Claims), ("tz", 0, Destroys)]);
    let disk = marked(0).create(&mut lab.control.topology, "d0").unwrap();
    let log = lab.log.clone();
    // A consumer keeps the object alive, so that its outcomes can be read.
    let manner = Manner { stays: true, ..Manner::default() };
    crate::common::User::create(&mut lab.control.topology, "u", disk, manner, log).unwrap();
    lab.control.settle().unwrap();
    assert_eq!(lab.taste_outcome("d0", "tz"), "claimed: the first byte says so");
    assert_eq!(
        lab.taste_outcome("d0", "ta"),
        "the first byte says so, but the provider disappeared meanwhile"
    );
    assert!(lab.control.is_idle());
    lab.control.topology.check();
}

/// A stale half of a mirror has the content of the whole: no class may take it for the whole.
#[test]
fn hidden_member_is_not_claimed_by_classes_that_taste_later() {
    let mut lab = lab_with(&[("ta", 0, Claims), ("tb", 0, Hides), ("tc", 0, Refused)]);
    let leaf = marked(0);
    let disk = lab.disk("d0", &leaf);
    assert!(lab.taste_outcome("d0", "tb").contains("but refused"));
    assert!(lab.taste_outcome("d0", "tc").contains("but refused"), "it was asked before");
    let hidden = "the first byte says so, but the provider is a member that another class refused: \
                  `clear` it there first";
    assert_eq!(lab.taste_outcome("d0", "ta"), hidden);
    // Another class's word changes nothing; a medium that is not tb's does.
    lab.control.topology.retaste(disk);
    lab.control.settle().unwrap();
    assert_eq!(lab.taste_outcome("d0", "ta"), hidden);
    let mut lab = lab_with(&[("ta", 1, Claims), ("tb", 0, Hides)]);
    let leaf = marked(0);
    let disk = lab.disk("d0", &leaf);
    leaf.put(0, &[MAGIC + 1]);
    lab.control.topology.retaste(disk);
    lab.control.settle().unwrap();
    assert_eq!(lab.taste_outcome("d0", "ta"), "claimed: the first byte says so");
}

#[test]
fn disk_lost_during_a_taste_is_released() {
    let mut lab = lab_with(&[("ta", 0, Claims)]);
    let leaf = marked(0);
    leaf.set(Mode::Hold);
    let disk = leaf.create(&mut lab.control.topology, "d0").unwrap();
    lab.control.pump();
    lab.spin(1_000_000);
    lab.control.topology.post(geom::Event::Lost(disk, Errno::Io));
    lab.pass(1_000_000);
    leaf.release(&lab.cores);
    lab.control.settle().unwrap();
    assert!(lab.control.topology.find("d0").is_none());
    assert_eq!(lab.control.topology.view(0).len(), 1, "its geom stays, the provider is gone");
    lab.assert_empty();
}

#[test]
fn stopped_core_ends_its_tastings() {
    let mut lab = lab_with(&[("ta", 0, Claims)]);
    let leaf = marked(0);
    leaf.set(Mode::Hold);
    leaf.create(&mut lab.control.topology, "d0").unwrap();
    lab.control.pump();
    lab.spin(1_000_000);
    lab.cores[0].reactor().shutdown();
    lab.control.settle().unwrap();
    assert_eq!(lab.taste_outcome("d0", "ta"), "the core stopped before it was tasted");
}

#[test]
fn self_nesting_class_stops_at_the_deepest_rank() {
    let mut lab = lab_with(&[("tn", 0, Nests)]);
    lab.disk("d0", &marked(0));
    let ranks: Vec<u32> = lab.control.topology.view(0).iter().map(|g| g.rank).collect();
    let deepest = *ranks.iter().max().unwrap();
    assert_eq!(ranks.len() as u32, deepest, "one of each rank");
    let top = format!("d0{}", ".tn".repeat(deepest as usize - 1));
    let why = lab.taste_outcome(&top, "tn");
    assert!(why.contains("could not be opened to taste"), "{why}");
}

#[test]
fn older_taste_does_not_overrule_a_newer_one() {
    let mut lab = lab_with(&[("ta", 0, Claims)]);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    leaf.set(Mode::Hold);
    for _ in 0..2 {
        lab.control.topology.retaste(disk);
        lab.control.pump();
        lab.spin(1_000_000);
    }
    let held = leaf.take_held();
    assert_eq!(held.len(), 2);
    // Only the older one sees the magic.
    leaf.put(0, &[MAGIC]);
    lab.cores[0].wake(held[0].1, 0);
    lab.pass(1_000_000);
    leaf.put(0, &[0]);
    lab.cores[0].wake(held[1].1, 0);
    lab.control.settle().unwrap();
    assert_eq!(lab.taste_outcome("d0", "ta"), "first byte is 0x0");
    assert!(lab.control.topology.find("d0.ta").is_none());
}

#[test]
fn claim_that_writes_makes_the_other_classes_taste_again() {
    let mut lab = lab_with(&[("ta", 0, Claims), ("tw", 0, Writes)]);
    let leaf = marked(0);
    leaf.create(&mut lab.control.topology, "d0").unwrap();
    let is_claimed = |c: &geom::GraphControl| {
        let views = c.topology.view(0);
        let all = views.iter().flat_map(|g| &g.providers).flat_map(|p| &p.taste_outcomes);
        all.into_iter().any(|(c, v)| *c == "tw" && v.starts_with("claimed"))
    };
    // One step at a time: the outcomes of the first look, before the second.
    let mut words = Vec::new();
    for _ in 0..200 {
        lab.spin(10_000);
        lab.control.pump();
        if is_claimed(&lab.control) {
            words.push(lab.taste_outcome("d0", "ta"));
            break;
        }
    }
    assert_eq!(
        words,
        ["the first byte says so, but the provider was written meanwhile and will be \
         tasted again"]
    );
}
