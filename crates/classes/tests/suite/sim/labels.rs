//! Disks that grow under classes with a label in the last sector, with a power cut at each step: of
//! the label's move, and of the verb that moves a label that was left behind.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use geom::Access;
use serde_json::{Value, json};

use super::disk::{Disk, SECTOR};
use super::life::{Life, MS, PowerCut};

pub(super) const DISK: u64 = 64 << 10;
pub(super) const MORE: u64 = 24 << 10;

/// One class, and how it is labelled.
pub(super) struct Case {
    pub(super) class: &'static str,
    pub(super) with: Value,
    /// Names under which each disk is plugged in.
    names: &'static [&'static [&'static str]],
}

pub(super) fn cases() -> Vec<Case> {
    let two: &[&[&str]] = &[&["d0"], &["d1"]];
    let one = |class, with, names| Case { class, with, names };
    vec![
        one("mirror", json!({ "assume_same": true }), two),
        one("mirror", json!({ "region": 4096 }), two),
        one("stripe", json!({ "strip": 1024 }), two),
        one("concat", json!({}), two),
        one("multipath", json!({}), &[&["d0", "d0b"]]),
    ]
}

pub(super) struct Bench<'a> {
    case: &'a Case,
    pub(super) life: Life,
    pub(super) disks: Vec<Disk>,
    /// The daemon starts with the ends that an earlier one recorded.
    pub(super) keeps: bool,
    /// Sectors of the volume when it was labelled.
    sectors: u64,
}

impl Bench<'_> {
    /// Labelled and full of something.
    pub(super) fn of(case: &Case) -> Bench<'_> {
        let disks = (0..case.names.len()).map(|i| Disk::new(DISK, i as u64)).collect();
        let mut bench = Bench { case, life: Life::new(1, 2), disks, keeps: false, sectors: 0 };
        bench.plug();
        let members: Vec<&str> = case.names.iter().flat_map(|n| n.iter().copied()).collect();
        let mut with = case.with.clone();
        with["members"] = json!(members);
        bench.life.verb(case.class, "label", "v", with).expect("labelled");
        bench.life.pass(100 * MS);
        let (user, edge) = bench.life.open(&bench.volume(), Access::WRITE).expect("open");
        let t = &bench.life.control.topology;
        let limits = t.find(&bench.volume()).and_then(|on| t.limits(on));
        bench.sectors = limits.expect("limits").media_bytes / SECTOR;
        for at in 0..bench.sectors {
            bench.life.write(edge, at * SECTOR, vec![at as u8; SECTOR as usize]).expect("written");
        }
        bench.life.flush(edge).expect("flushed");
        bench.life.close(user);
        bench.life.pass(200 * MS);
        bench
    }

    pub(super) fn volume(&self) -> String {
        format!("{}/v", self.case.class)
    }

    pub(super) fn plug(&mut self) {
        let all: Vec<&str> = self.case.names.iter().flat_map(|n| n.iter().copied()).collect();
        self.plug_in(&all);
        self.life.settle();
    }

    /// These appear; nothing has happened yet.
    pub(super) fn plug_in(&mut self, those: &[&str]) {
        for (disk, names) in self.disks.iter().zip(self.case.names) {
            let names = names.iter().filter(|name| those.contains(name));
            names.for_each(|name| self.life.plug(name, disk));
        }
    }

    /// Disks that may grow: growth of an inner member of a concat would move the data behind it.
    pub(super) fn growing(&self) -> Vec<(Disk, &'static [&'static str])> {
        let inner = if self.case.class == "concat" { self.disks.len() - 1 } else { 0 };
        let all = self.disks.iter().cloned().zip(self.case.names.iter().copied());
        all.skip(inner).collect()
    }

    /// They grow, while they are in use.
    pub(super) fn grow(&mut self) {
        for (disk, names) in self.growing() {
            let bytes = disk.grow(MORE);
            names.iter().for_each(|name| self.life.resized(name, bytes));
        }
        self.life.pass(100 * MS);
    }

    pub(super) fn reboot(&mut self) {
        self.ends();
        self.plug();
    }

    /// A power cut.
    pub(super) fn ends(&mut self) {
        let kept = self.life.kept.clone();
        self.life = Life::new(2, 2);
        if self.keeps {
            self.life.go_on_from(&kept);
        }
        self.disks.iter().for_each(Disk::power_cut);
    }

    /// Moves the labels that were left behind. Returns their number.
    fn follow(&mut self) -> usize {
        let mut left = 0;
        for names in self.case.names {
            let with = json!({ "member": names[0], "was": DISK, "force": true });
            match self.life.verb(self.case.class, "relocate", "", with) {
                Ok(_) => left += 1,
                Err(e) => {
                    assert!(is_expected_error(&e.message), "{e:?}\n{}", self.life.dump_state())
                }
            }
        }
        left
    }

    /// The volume exists and has the written content.
    pub(super) fn reads(&mut self) {
        let volume = self.volume();
        let up = self.life.until(8, |c| c.topology.find(&volume).is_some());
        assert!(up, "{}", self.life.dump_state());
        let (user, edge) = self.life.open(&volume, Access::READ).expect("open");
        for at in 0..self.sectors {
            let bytes = self.life.read(edge, at * SECTOR, SECTOR as usize).expect("read");
            assert!(bytes.iter().all(|b| *b == at as u8), "sector {at} holds {}", bytes[0]);
        }
        self.life.close(user);
    }

    /// The same, and labels are at their ends.
    pub(super) fn holds(&mut self) {
        self.reads();
        self.life.pass(500 * MS);
        for (disk, names) in self.disks.iter().zip(self.case.names) {
            let last = disk.bytes(disk.size() - SECTOR, 6);
            assert_eq!(last, b"GEOM::", "{names:?} has its label at its end");
        }
    }
}

/// It is where it belongs.
fn is_expected_error(what: &str) -> bool {
    what.contains("at its end") || what.contains("is in use")
}

/// Does something until the power fails; true when it did.
pub(super) fn cut(bench: &mut Bench<'_>, fuse: u64, f: impl FnOnce(&mut Bench<'_>)) -> bool {
    bench.life.fuse.set(fuse);
    match catch_unwind(AssertUnwindSafe(|| f(bench))) {
        Ok(()) => bench.life.fuse.set(u64::MAX),
        Err(why) if why.is::<PowerCut>() => return true,
        Err(why) => resume_unwind(why),
    }
    false
}

#[test]
fn after_a_power_cut_a_moving_label_is_found_or_moved_by_follow() {
    for case in cases() {
        let (mut found, mut brought) = (0, 0);
        for fuse in 0.. {
            let mut bench = Bench::of(&case);
            let gone = cut(&mut bench, fuse, |bench| bench.grow());
            bench.reboot();
            match bench.follow() {
                0 => found += 1,
                _ => brought += 1,
            }
            bench.holds();
            if !gone {
                break;
            }
        }
        assert!(found > 2 && brought > 2, "{}: {found}, {brought}", case.class);
    }
}

#[test]
fn a_power_cut_during_follow_loses_no_label() {
    for case in cases() {
        let mut again = 0;
        for fuse in 0.. {
            let mut bench = Bench::of(&case);
            // The disks grow while the daemon is down.
            bench.life = Life::new(3, 1);
            bench.disks.iter().for_each(Disk::power_cut);
            for (disk, _) in bench.growing() {
                disk.grow(MORE);
            }
            bench.plug();
            assert!(!bench.life.has(&bench.volume()), "nobody looks there");
            let gone = cut(&mut bench, fuse, |bench| assert!(bench.follow() > 0));
            if gone {
                bench.reboot();
                again += usize::from(bench.follow() > 0);
            }
            bench.holds();
            if !gone {
                break;
            }
        }
        assert!(again > 2, "{}: {again}", case.class);
    }
}

#[test]
fn follow_moves_only_the_label_of_a_smaller_disk() {
    let case = &cases()[0];
    let mut bench = Bench::of(case);
    bench.life = Life::new(3, 1);
    let [small, wide] = [0, 1].map(|i| bench.disks[i].clone());
    wide.grow(MORE);
    // A label in the middle that was not written for a disk that ended there.
    wide.put(40 * SECTOR, &wide.bytes(DISK - SECTOR, SECTOR as usize));
    bench.plug();
    let mut refuse = |with: Value, says: &str| {
        let before = (small.bytes(0, DISK as usize), wide.bytes(0, (DISK + MORE) as usize));
        let e = bench.life.verb("mirror", "relocate", "", with).expect_err("refused");
        assert!(e.message.contains(says), "{}", e.message);
        let after = (small.bytes(0, DISK as usize), wide.bytes(0, (DISK + MORE) as usize));
        assert!(before == after, "nothing is written");
    };
    refuse(json!({ "member": "d0" }), "has a label of mirror at its end");
    refuse(json!({ "member": "d1" }), "give --force");
    let of = |was: u64| json!({ "member": "d1", "was": was, "force": true });
    refuse(of(DISK + MORE), "--was must be smaller");
    refuse(of(41 * SECTOR), "for another size (65536 bytes)");
    refuse(of(DISK - SECTOR), "no metadata of this class");
    let answer = bench.life.verb("inspect", "scan", "d1", json!({})).expect("looked");
    let typed = format!("`ashlar mirror relocate PROVIDER --was {DISK}`");
    let all: Vec<&Value> = answer["findings"].as_array().expect("findings").iter().collect();
    let says =
        |at: u64| all.iter().find(|f| f["offset"] == json!(at)).expect("found")["why"].clone();
    assert!(says(DISK - SECTOR).as_str().expect("words").contains(&typed), "{answer}");
    assert!(
        says(40 * SECTOR).as_str().expect("words").contains("ignored at this position"),
        "{answer}"
    );
    // Looked for in the last MiB.
    let done = bench.life.verb("mirror", "relocate", "", json!({ "member": "d1", "force": true }));
    assert_eq!(done.expect("brought")["from"], json!(DISK - SECTOR));
    bench.life.pass(500 * MS);
    assert_eq!(bench.life.members("v").len(), 2, "{}", bench.life.dump_state());
}

#[test]
fn follow_refuses_an_inner_member_of_a_concat() {
    let cases = cases();
    let case = cases.iter().find(|c| c.class == "concat").expect("a case");
    let mut bench = Bench::of(case);
    bench.life = Life::new(3, 1);
    bench.disks.iter().for_each(Disk::power_cut);
    bench.disks[0].grow(MORE);
    bench.plug();
    let with = json!({ "member": "d0", "was": DISK, "force": true });
    let e = bench.life.verb("concat", "relocate", "", with).expect_err("an inner member");
    assert!(e.message.contains("the data after"), "{}", e.message);
    // As large as it was, it is one again.
    let t = &mut bench.life.control.topology;
    let below = t.find("d0").expect("d0");
    let params = json!({ "size": DISK });
    let request = geom::Create { name: "d0.nop", members: &[below], params: &params };
    t.class("nop").expect("nop").create(t, &request).expect("shown smaller");
    bench.life.settle();
    let volume = bench.volume();
    assert!(
        bench.life.until(8, |c| c.topology.find(&volume).is_some()),
        "{}",
        bench.life.dump_state()
    );
    let (_, edge) = bench.life.open(&volume, Access::READ).expect("open");
    for at in [0, 127, 128, bench.sectors - 1] {
        let bytes = bench.life.read(edge, at * SECTOR, SECTOR as usize).expect("read");
        assert_eq!(bytes[0], at as u8, "sector {at}");
    }
}
