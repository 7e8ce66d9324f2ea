//! Arrays that lack a disk, by name: when they are clean again (J8 of `geom`), and when not.

use bio::{Errno, Op};
use geom::Access;
use serde_json::json;
use testkit::Seeds;

use super::disk::SECTOR;
use super::life::{Life, MS};
use super::named_raid::{NEW, Rig, SECONDS, old};

impl Rig {
    fn is_dirty(&self) -> bool {
        self.life.show("raid", &self.set, "Volume").contains(", dirty")
    }

    /// The power fails, and a disk does not return; true when the volume does, by itself.
    fn is_up_without(&mut self, name: &str) -> bool {
        self.life = Life::new(3, 2);
        self.disks.values().for_each(super::disk::Disk::power_cut);
        let there = self.disks.iter().filter(|(of, _)| *of != name);
        there.for_each(|(of, disk)| self.life.plug(of, disk));
        let volume = self.volume.clone();
        let up = self.life.until(20, move |c| c.topology.find(&volume).is_some());
        if up {
            self.open();
        }
        up
    }

    fn is_logged(&self) -> bool {
        self.life.show("raid", &self.set, "Volume").contains("PPL")
    }

    fn open(&mut self) {
        self.edge = self.life.open(&self.volume, Access::WRITE).expect("open").1;
    }

    fn force(&mut self) {
        let start = self.life.verb("raid", "start", &self.set, json!({ "force": true }));
        start.unwrap_or_else(|e| panic!("{e}\n{}", self.life.dump_state()));
    }

    /// A disk is pulled while a write hangs on another, which then fails that and all writes.
    fn breaks_down(&mut self, gone: &str, bad: &str) {
        if self.is_logged() && bad == "d2" {
            // The new parity is in its log.
            self.disks[bad].lock().lets = 1;
        }
        let ended = self.begin(Op::Write, 0, SECTOR, bad);
        self.spoil(bad);
        self.pull(gone);
        self.fails(bad, &ended);
        assert_eq!(ended.get(), Some(Err(Errno::Io)));
    }
}

fn both() -> [Rig; 2] {
    [Rig::of("Intel", "RAID5", 3), Rig::logged(3)]
}

/// Parity is owed, and the volume is dirty: only this volume knows the debt. When it is paid, all
/// parity is right: it is clean, and starts without force though it lacks a disk.
#[test]
fn j8_a_volume_is_clean_when_its_owed_parity_is_written() {
    for mut rig in both() {
        rig.breaks_down("d1", "d2");
        rig.life.pass(3 * SECONDS);
        assert!(rig.is_dirty(), "parity is owed\n{}", rig.life.dump_state());
        rig.disks["d2"].lock().heal();
        rig.life.pass(3 * SECONDS);
        assert!(!rig.is_dirty(), "{}", rig.life.dump_state());
        rig.holds(0..SECTOR, NEW, false);
        assert!(rig.is_up_without("d1"), "{}", rig.life.dump_state());
        rig.holds(0..SECTOR, NEW, false);
        // The next crash is as good as the first: with a log it is not even noticed.
        rig.life.write(rig.edge, SECTOR, old(SECTOR)).expect("written");
        let logged = rig.is_logged();
        assert!(rig.is_dirty());
        assert_eq!(rig.is_up_without("d1"), logged, "{}", rig.life.dump_state());
        if !logged {
            rig.force();
            rig.open();
        }
        rig.replug("d1");
        rig.holds(0..SECTOR, NEW, false);
    }
}

/// Within one life, too, the log is trusted when all debts are paid.
#[test]
fn j8_the_log_is_trusted_when_owed_parity_is_written() {
    let mut rig = Rig::logged(3);
    rig.breaks_down("d1", "d2");
    let doubts = |rig: &Rig| {
        let line = rig.life.show("raid", &rig.set, "Volume");
        line.contains("a crash causes a resync") || line.contains("may be wrong")
    };
    assert!(doubts(&rig), "parity is owed\n{}", rig.life.dump_state());
    rig.disks["d2"].lock().heal();
    rig.life.pass(3 * SECONDS);
    assert!(!doubts(&rig), "{}", rig.life.dump_state());
    rig.life.write(rig.edge, SECTOR, old(SECTOR)).expect("written");
    assert!(rig.is_dirty());
    assert!(rig.is_up_without("d1"), "{}", rig.life.dump_state());
    rig.holds(0..SECTOR, NEW, false);
}

/// R4 of `stripes`: a disk that stays fails a write of data: parity matches the data that it still
/// has, and nothing is owed.
#[test]
fn j8_a_volume_is_clean_when_parity_matches_the_old_data() {
    for mut rig in both() {
        rig.breaks_down("d1", "d0");
        // Its record cannot be written while it fails.
        rig.disks["d0"].lock().heal();
        rig.life.pass(3 * SECONDS);
        assert!(!rig.is_dirty(), "{}", rig.life.dump_state());
        assert!(rig.is_up_without("d1"), "{}", rig.life.dump_state());
        rig.holds(0..SECTOR, NEW, false);
    }
}

/// R8 of `stripes`: the data of the disk cannot be read either. Later, data of the other disk in
/// that row may be solved for wrongly: the volume is dirty until it is whole.
#[test]
fn r8_a_volume_with_an_unknown_row_stays_dirty() {
    for mut rig in both() {
        let ended = rig.begin(Op::Write, 0, SECTOR, "d0");
        rig.spoil("d0");
        rig.disks["d0"].lock().faults.push((Op::Read, 100, Errno::Io));
        rig.pull("d1");
        rig.fails("d0", &ended);
        rig.disks["d0"].lock().heal();
        rig.life.pass(5 * SECONDS);
        assert!(rig.is_dirty(), "{}", rig.life.dump_state());
        rig.life.write(rig.edge, 2 * SECTOR, old(2 * SECTOR)).expect("written");
        rig.life.pass(SECONDS);
        assert!(!rig.is_up_without("d1"), "{}", rig.life.dump_state());
        rig.force();
        rig.open();
        rig.replug("d1");
        rig.life.pass(SECONDS);
        assert!(!rig.is_dirty(), "{}", rig.life.dump_state());
    }
}

/// J8: a disk that stays may have lost the data of a flush that it failed. A log does not know it
/// either (310081): such a volume is forced, and then its content is the one that parity gives.
#[test]
fn j8_a_volume_stays_dirty_after_a_failed_flush() {
    for mut rig in both() {
        rig.pull("d1");
        rig.life.write(rig.edge, 0, old(0)).expect("written");
        rig.disks["d0"].lock().once = Some((Op::Flush, Errno::Io));
        assert_eq!(rig.life.flush(rig.edge), Err(Errno::Io));
        rig.life.pass(3 * SECONDS);
        assert!(rig.is_dirty(), "{}", rig.life.dump_state());
        assert!(!rig.is_up_without("d1"), "{}", rig.life.dump_state());
        rig.force();
        rig.open();
        rig.replug("d1");
        rig.life.pass(SECONDS);
        assert!(!rig.is_dirty() && rig.is_up_without("d0"), "{}", rig.life.dump_state());
    }
    // That of the mark which is to be removed, too.
    let mut rig = Rig::of("Intel", "RAID5", 3);
    rig.pull("d1");
    rig.life.write(rig.edge, 0, old(0)).expect("written");
    rig.disks["d0"].lock().once = Some((Op::Flush, Errno::Io));
    rig.life.pass(3 * SECONDS);
    assert!(rig.disks["d0"].lock().once.is_none(), "it was asked to flush");
    rig.life.write(rig.edge, 0, old(0)).expect("written");
    rig.life.pass(SECONDS);
    assert!(rig.is_dirty(), "{}", rig.life.dump_state());
}

/// A3 of `members`: a forced volume reports nothing before it is written: the disk that it lacks
/// may return unchanged. From then on parity determines that disk's content.
#[test]
fn a3_a_forced_volume_is_clean_after_its_next_write() {
    for mut rig in both() {
        rig.life.write(rig.edge, 0, vec![NEW; SECTOR as usize]).expect("written");
        rig.life.flush(rig.edge).expect("flushed");
        let last = rig.bytes - SECTOR;
        rig.life.write(rig.edge, last, old(last)).expect("written as it was");
        assert!(rig.is_dirty());
        if rig.is_logged() {
            // The log is not trusted.
            for disk in ["d0", "d1", "d2"] {
                rig.disks[disk].put(8 * 2 * SECTOR, &[0x55; 8192]);
            }
        }
        assert!(!rig.is_up_without("d1"), "{}", rig.life.dump_state());
        let writes = |rig: &Rig| rig.disks["d0"].lock().writes;
        let before = writes(&rig);
        rig.force();
        let user = rig.life.open(&rig.volume, Access::WRITE).expect("open").0;
        rig.life.close(user);
        rig.life.pass(3 * SECONDS);
        assert_eq!(writes(&rig), before, "nothing is said");
        rig.open();
        rig.life.write(rig.edge, 0, vec![NEW; SECTOR as usize]).expect("written");
        rig.life.pass(3 * SECONDS);
        assert!(!rig.is_dirty(), "{}", rig.life.dump_state());
        assert!(rig.is_up_without("d1"), "{}", rig.life.dump_state());
        rig.holds(0..SECTOR, NEW, false);
        rig.replug("d1");
        rig.holds(0..SECTOR, NEW, false);
    }
}

/// J1 and J2 of `geom`: the records were marked dirty before the volume was started without a disk,
/// and do not report that disk's absence. A user opens and closes it: they record it before any
/// write.
#[test]
fn j2_the_absence_of_a_disk_is_recorded_before_the_first_write() {
    let mut rig = Rig::of("Intel", "RAID5", 3);
    rig.life.write(rig.edge, 0, old(0)).expect("written");
    assert!(rig.is_dirty() && !rig.is_up_without("d0"));
    rig.force();
    let user = rig.life.open(&rig.volume, Access::WRITE).expect("open").0;
    rig.life.close(user);
    rig.life.pass(MS);
    rig.open();
    for at in (0..rig.bytes).step_by(SECTOR as usize) {
        rig.life.write(rig.edge, at, vec![NEW; SECTOR as usize]).expect("written");
    }
    rig.life.flush(rig.edge).expect("flushed");
    if !rig.is_up_without("nobody") {
        rig.force();
        rig.open();
    }
    rig.in_order();
    assert!(rig.sectors().iter().all(|found| *found == Ok(Some(NEW))), "{}", rig.life.dump_state());
}

/// L2 of `log`: a row is whole, and part of it is in the cache of one disk alone. That disk is
/// failed by hand, and the record of it hangs. The unit that covers the row stays in force,
/// whichever writes wait for the next one. After a crash the disk is trusted, and lacks its part.
/// E2 of ppl_accounting.rs.
#[test]
fn l2_a_unit_stays_in_force_until_the_loss_is_recorded() {
    for seed in Seeds::of(8) {
        let mut rig = Rig::logged_by(3, seed);
        // All of row 0: the part on d0 hangs, the others do not.
        rig.begin(Op::Write, 0, 4 * SECTOR, "d0");
        // Row 3 has its parity, and so its unit, on d2 as well.
        let next = rig.send(Op::Write, 12 * SECTOR, SECTOR);
        let fail = rig.life.verb("raid", "fail", &rig.set, json!({ "members": ["d1"] }));
        assert_eq!(fail.expect_err("it hangs").kind, Errno::TimedOut);
        // The rest of row 0 is written; then every write to d0 hangs, that of the record too.
        let hung = rig.disks["d0"].let_go(1);
        rig.life.wake(hung);
        rig.life.pass(SECONDS);
        assert!(next.get().is_none(), "{seed}: it waits for the record");
        rig.reboot();
        rig.in_order();
        rig.pull("d0");
        rig.holds(0..13 * SECTOR, NEW, false);
    }
}
