//! `raid consistency`: the cost of a crash for a volume is shown, and changed while it is in use.

use bio::Errno;
use geom::Access;
use serde_json::{Value, json};
use testkit::noise;

use crate::raids::{DDF, INTEL, Raid};

const STRIP: usize = 8192;

/// A RAID5 of three disks, with or without space behind its data.
fn raid5(roomy: bool) -> Raid {
    let mut with = json!({ "strip": STRIP });
    if roomy {
        with["size"] = json!(32 * STRIP);
    }
    let mut raid = Raid::label(INTEL, "RAID5", 3, with);
    raid.write(0, &noise(1, raid.size()));
    raid.complete();
    raid
}

impl Raid {
    fn consistency(&mut self, with: Value) -> Result<Value, geom::Error> {
        let set = self.set.clone();
        self.world.verb("raid", "consistency", &set, with)
    }

    fn policy(&mut self) -> String {
        let answer = self.consistency(json!({})).expect("shown");
        answer["volumes"][0]["policy"].as_str().expect("a word").to_owned()
    }

    fn change(&mut self, policy: &str) {
        let answer = self.consistency(json!({ "policy": policy })).expect("changed");
        assert_eq!(answer["volumes"][0]["policy"], policy);
        assert_eq!(self.policy(), policy);
        for disk in 0..self.disks.len() {
            assert_eq!(self.record(disk)["volumes"][0]["consistency"], policy, "disk {disk}");
        }
    }

    /// The power fails when a write of row 0 has reached one disk alone, in part.
    fn cut(&mut self, seed: u64, which: &[usize]) -> Raid {
        self.cut_in(0, seed, which)
    }

    /// The same of another row that has its first strip on disk 0: its parity is on disk 2, 1,
    /// (not 0), in turn.
    fn cut_in(&mut self, row: usize, seed: u64, which: &[usize]) -> Raid {
        assert_ne!(row % 3, 2);
        let (at, on_disk) = (row * 2 * STRIP, row * STRIP);
        let open = self.open(Access::WRITE);
        self.world.write(&open, at as u64, &noise(seed, 512)).expect("written");
        self.model[at..at + 512].copy_from_slice(&noise(seed, 512));
        self.disks[0].put(on_disk + 100, &[0xee; 300]);
        self.model[at + 100..at + 400].fill(0xee);
        self.reborn_with(which)
    }
}

/// Starts with the disks there are; an error when that takes force.
fn starts_less(raid: &mut Raid) -> bool {
    raid.world.control.wait_until(std::time::Duration::from_millis(100), |_| false);
    let set = raid.set.clone();
    let _waited = raid.world.verb("raid", "start", &set, json!({ "force": true }));
    let line = raid.show("Volume");
    !line.contains("may be wrong")
}

/// J9 of raid/geom.rs.
#[test]
fn a_log_is_kept_after_the_change_and_a_crash_costs_no_resync() {
    let mut raid = raid5(true);
    assert_eq!(raid.policy(), "resync");
    let mut without = raid.cut(2, &[0, 2]);
    assert!(!starts_less(&mut without), "without a log parity is in doubt");

    let mut raid = raid5(true);
    // A user has it open for writing, and continues.
    let open = raid.open(Access::WRITE);
    raid.world.write(&open, 4096, &noise(3, 512)).expect("written");
    raid.model[4096..4608].copy_from_slice(&noise(3, 512));
    raid.change("ppl");
    raid.world.write(&open, 9000 / 512 * 512, &noise(4, 512)).expect("written");
    raid.model[9000 / 512 * 512..][..512].copy_from_slice(&noise(4, 512));
    raid.world.close(open);
    raid.complete();
    assert!(raid.read_all() == raid.model);
    let mut less = raid.cut(5, &[0, 2]);
    assert!(starts_less(&mut less), "{}", less.show("Volume"));
    assert!(less.read_all() == less.model);
}

/// L3 of volume/log/mod.rs.
#[test]
fn an_outdated_log_is_not_replayed_after_it_is_enabled_again() {
    let mut raid = raid5(true);
    raid.change("ppl");
    let open = raid.open(Access::WRITE);
    raid.world.write(&open, 0, &noise(6, 1024)).expect("written");
    raid.world.close(open);
    raid.change("resync");
    assert!(!raid.show("Volume").contains("PPL"), "{}", raid.show("Volume"));
    // The same row, of which the log speaks still.
    raid.write(0, &noise(7, raid.size()));
    raid.complete();
    raid.change("ppl");
    // A row whose parity is elsewhere: no write has changed the log that covers row 0.
    let mut less = raid.cut_in(4, 8, &[1, 2, 0]);
    less.complete();
    for lost in 0..3 {
        less.lose(lost);
        assert!(less.read_all() == less.model, "without {lost}");
        less.back(lost);
        less.complete();
    }
}

#[test]
fn ppl_is_refused_without_support_or_room_or_when_degraded() {
    for (format, level, disks) in [(INTEL, "RAID1", 2), (DDF, "RAID5", 3)] {
        let mut raid = Raid::label(format, level, disks, json!({ "strip": STRIP }));
        assert_eq!(raid.policy(), "resync");
        let refused = raid.consistency(json!({ "policy": "ppl" })).expect_err("refused");
        assert!(refused.message.contains("Intel's RAID5"), "{refused:?}");
        raid.consistency(json!({ "policy": "resync" })).expect("as it is");
    }
    let mut narrow = raid5(false);
    let before = narrow.disks[0].bytes();
    let refused = narrow.consistency(json!({ "policy": "ppl" })).expect_err("refused");
    assert!(refused.message.contains("1048576 bytes behind the data"), "{refused:?}");
    assert!(narrow.disks[0].bytes() == before, "nothing is written");

    let mut less = raid5(true);
    less.lose(1);
    let refused = less.consistency(json!({ "policy": "ppl" })).expect_err("refused");
    assert_eq!(refused.kind, Errno::Busy);
    assert!(refused.message.contains("DEGRADED"), "{refused:?}");
    assert_eq!(less.policy(), "resync");
    let refused = less.consistency(json!({ "policy": "bitmap" })).expect_err("refused");
    assert!(refused.message.contains("expected `resync` or `ppl`"), "{refused:?}");
}
