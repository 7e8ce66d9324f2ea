//! Arrays whose members fail together in a row, each case by name. One disk is lost, and another,
//! which is needed then, fails the same write. Besides, a rebuild that a power cut ends.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bio::{Errno, Op, Segs};
use classes::raid::{Disk as Known, DiskState, imsm};
use geom::{Access, Edge};
use serde_json::json;
use testkit::Seeds;

use super::disk::{Disk, SECTOR};
use super::life::{Life, MS};

const DISK: u64 = 64 << 10;
/// Bytes of each disk that DDF takes.
const DDF: u64 = 32 << 20;
/// Bytes of each disk that a log of partial parity needs, and a bit more.
const LOG: u64 = 1200 << 10;
pub(super) const STRIP: u64 = 2 * SECTOR;
/// Bytes of each disk that are used.
pub(super) const MEMBER: u64 = 8 * STRIP;
pub(super) const SECONDS: u64 = 1_000 * MS;

/// A write that is under way, and how it ended.
type Ended = Rc<Cell<Option<Result<(), Errno>>>>;

/// An array of `d0`, `d1` ..., whole, clean, open and filled by [`old`].
pub(super) struct Rig {
    pub(super) life: Life,
    pub(super) disks: BTreeMap<String, Disk>,
    pub(super) set: String,
    pub(super) volume: String,
    pub(super) edge: Edge,
    pub(super) bytes: u64,
}

/// The initial content of a sector.
pub(super) fn old(at: u64) -> Vec<u8> {
    vec![(at / SECTOR) as u8 + 1; SECTOR as usize]
}

pub(super) const NEW: u8 = 0xee;

impl Rig {
    pub(super) fn of(format: &str, level: &str, count: usize) -> Rig {
        Rig::seeded(format, level, count, 0)
    }

    /// The seed determines the part of its cache that a disk loses.
    pub(super) fn seeded(format: &str, level: &str, count: usize, seed: u64) -> Rig {
        Rig::labelled(format, level, count, seed, false)
    }

    /// With a log of partial parity.
    pub(super) fn logged(count: usize) -> Rig {
        Rig::logged_by(count, 0)
    }

    /// The same; the seed determines the part of its cache that a disk loses.
    pub(super) fn logged_by(count: usize, seed: u64) -> Rig {
        Rig::labelled("Intel", "RAID5", count, seed, true)
    }

    fn labelled(format: &str, level: &str, count: usize, seed: u64, logged: bool) -> Rig {
        let size = DISK + if format == "DDF" { DDF } else { 0 } + if logged { LOG } else { 0 };
        let disks: BTreeMap<String, Disk> =
            (0..count).map(|i| (format!("d{i}"), Disk::new(size, seed + i as u64))).collect();
        let mut life = Life::new(1, 2);
        disks.iter().for_each(|(name, disk)| life.plug(name, disk));
        life.settle();
        let members: Vec<&String> = disks.keys().collect();
        let mut with = json!({
            "format": format, "level": level, "members": members, "strip": STRIP,
            "size": MEMBER, "assume_same": true,
        });
        if logged {
            with["consistency"] = json!("ppl");
        }
        let answer = life.verb("raid", "label", "data", with).expect("labelled");
        let set = answer["array"].as_str().expect("a name").to_owned();
        let volume = answer["provider"].as_str().expect("a name").to_owned();
        let (_, edge) = life.open(&volume, Access::WRITE).expect("open");
        let on = life.control.topology.find(&volume).expect("a volume");
        let bytes = life.control.topology.limits(on).expect("limits").media_bytes;
        for at in (0..bytes).step_by(SECTOR as usize) {
            life.write(edge, at, old(at)).expect("written");
        }
        life.flush(edge).expect("flushed");
        Rig { life, disks, set, volume, edge, bytes }
    }

    /// The power fails, and returns.
    pub(super) fn reboot(&mut self) {
        self.starts();
        self.edge = self.life.open(&self.volume, Access::WRITE).expect("open").1;
    }

    /// The same; nothing has happened yet since the volume was offered.
    pub(super) fn starts(&mut self) {
        let kept = self.life.kept.clone();
        self.life = Life::new(2, 2);
        self.life.go_on_from(&kept);
        self.disks.values().for_each(Disk::power_cut);
        self.disks.iter().for_each(|(name, disk)| self.life.plug(name, disk));
        let volume = self.volume.clone();
        let up = self.life.until(20, move |c| c.topology.find(&volume).is_some());
        assert!(up, "{}", self.life.dump_state());
    }

    /// A request begins, and hangs on a disk.
    pub(super) fn begin(&mut self, op: Op, at: u64, len: u64, held: &str) -> Ended {
        self.dirty();
        self.disks[held].lock().holds = Some(op);
        let ended = self.send(op, at, len);
        assert!(ended.get().is_none(), "a disk is held");
        ended
    }

    /// The records are marked dirty from now on.
    pub(super) fn dirty(&mut self) {
        let last = self.bytes - SECTOR;
        self.life.write(self.edge, last, old(last)).expect("written");
    }

    /// A request begins.
    pub(super) fn send(&mut self, op: Op, at: u64, len: u64) -> Ended {
        let (ended, core, edge) = (Ended::default(), self.life.cores[0].clone(), self.edge);
        let report = ended.clone();
        self.life.cores[0].reactor().spawn("user", async move {
            let mut data = Segs::new();
            if op == Op::Write {
                data = core.buffers(len as usize).await.expect("memory");
                data.fill(0, len as usize, NEW);
            }
            let done = core
                .io(edge, |bio| (bio.op, bio.offset, bio.length, bio.data) = (op, at, len, data))
                .await;
            report.set(Some(done.status));
        });
        self.life.pass(5 * MS);
        ended
    }

    /// A DELETE of several ranges begins.
    fn delete(&mut self, ranges: Vec<std::ops::Range<u64>>) -> Ended {
        let (ended, core, edge) = (Ended::default(), self.life.cores[0].clone(), self.edge);
        let report = ended.clone();
        self.life.cores[0].reactor().spawn("user", async move {
            let done = core.io(edge, |bio| assert!(bio.delete_ranges(&ranges), "in order")).await;
            report.set(Some(done.status));
        });
        self.life.pass(5 * MS);
        ended
    }

    pub(super) fn pull(&mut self, name: &str) {
        self.life.pull(name, &self.disks[name].clone(), false);
        self.life.pass(50 * MS);
    }

    /// A disk fails writes from now on.
    pub(super) fn spoil(&mut self, name: &str) {
        let faults = [Op::Write, Op::WriteZeroes].map(|op| (op, 100, Errno::Io));
        self.disks[name].lock().faults.extend(faults);
    }

    /// Releases hanging requests; a write ends with an error.
    pub(super) fn fails(&mut self, held: &str, ended: &Ended) {
        self.life.wake(self.disks[held].release());
        let ended = ended.clone();
        assert!(self.life.until(60, move |_| ended.get().is_some()), "{}", self.life.dump_state());
    }

    /// The content that a reader finds in each sector: the byte that fills it.
    pub(super) fn sectors(&mut self) -> Vec<Result<Option<u8>, Errno>> {
        let mut all = Vec::new();
        for at in (0..self.bytes).step_by(SECTOR as usize) {
            let read = self.life.read(self.edge, at, SECTOR as usize);
            all.push(read.map(|b| b.iter().all(|byte| *byte == b[0]).then_some(b[0])));
        }
        all
    }

    /// Every sector is as it was, or one of those that were written and as they were or new. With
    /// `errors`, some of `lost` cannot be read. Returns how many.
    pub(super) fn holds(&mut self, written: std::ops::Range<u64>, new: u8, errors: bool) -> usize {
        let mut unread = 0;
        let found = self.sectors();
        for (at, found) in (0..self.bytes).step_by(SECTOR as usize).zip(found) {
            let value = match found {
                Err(e) if errors => {
                    assert_eq!(e, Errno::Io);
                    unread += 1;
                    continue;
                }
                found => found.expect("read").expect("one value"),
            };
            let may = value == old(at)[0] || written.contains(&at) && value == new;
            assert!(may, "{at}: {value}\n{}", self.life.dump_state());
        }
        unread
    }

    /// All is in order again, with every disk.
    pub(super) fn replug(&mut self, name: &str) {
        self.life.plug_soon(name, &self.disks[name].clone());
        self.in_order();
    }

    pub(super) fn in_order(&mut self) {
        for _ in 0..3_000 {
            if self.life.show("raid", &self.set, "State") == "OPTIMAL" {
                return;
            }
            self.life.pass(10 * MS);
        }
        panic!("it is never in order\n{}", self.life.dump_state());
    }

    /// A disk is pulled while a write hangs on another, which then fails it and all writes. The
    /// data of the first disk is known by the parity that the second did not take.
    fn both(mut self, op: Op, written: std::ops::Range<u64>, gone: &str, bad: &str) -> usize {
        let ended = self.begin(op, written.start, written.end - written.start, bad);
        self.spoil(bad);
        self.pull(gone);
        self.fails(bad, &ended);
        assert_eq!(ended.get(), Some(Err(Errno::Io)));
        let new = if op == Op::Write { NEW } else { 0 };
        let unread = self.holds(written.clone(), new, true);
        if unread > 0 {
            assert_eq!(self.life.flush(self.edge), Err(Errno::Io), "it is not all there");
        }
        self.disks[bad].lock().heal();
        self.life.pass(3 * SECONDS);
        self.holds(written.clone(), new, false);
        self.life.flush(self.edge).expect("flushed");
        self.replug(gone);
        self.holds(written, new, false);
        unread
    }
}

/// Data was written, and its parity, on a disk that stays, was not. Other data of the lost disk in
/// that row cannot be read before the parity is repaired, and is then unchanged.
/// O1 of missed_parity.rs.
#[test]
fn other_data_survives_a_disk_loss_with_a_failed_parity_write() {
    // The parity is computed from the unchanged data; and from the old parity.
    for (count, bad) in [(3, "d2"), (5, "d4")] {
        let rig = Rig::of("Intel", "RAID5", count);
        let unread = rig.both(Op::Write, 0..SECTOR, "d1", bad);
        assert_eq!(unread, 1, "of {count}");
    }
}

#[test]
fn parity_is_consistent_after_a_disk_loss_with_a_failed_data_write() {
    for count in [3, 5] {
        let rig = Rig::of("Intel", "RAID5", count);
        assert_eq!(rig.both(Op::Write, 0..SECTOR, "d1", "d0"), 0, "the parity goes with it");
    }
}

/// Some disks have zeroed their strips: together the strips are no valid row.
/// Z1 of volume/zero.rs.
#[test]
fn rows_are_valid_after_a_disk_loss_with_a_failed_zeroing() {
    for count in [3, 4] {
        let row = STRIP * (count as u64 - 1);
        let rig = Rig::of("Intel", "RAID5", count);
        rig.both(Op::WriteZeroes, 0..3 * row, "d1", "d2");
    }
}

/// R6 of `stripes`: one disk is out. Of the two parities of a write one is taken, and the disk of
/// the other is lost. No record can contain it, for that of the first fails all writes by now. The
/// row continues with the remaining disks: nothing is put back, and it can be solved.
#[test]
fn r6_a_row_does_not_wait_for_a_lost_parity_disk() {
    let mut rig = Rig::of("DDF", "RAID6-LA", 4);
    rig.pull("d0");
    rig.life.pass(SECONDS);
    let written = STRIP..STRIP + SECTOR;
    let ended = rig.begin(Op::Write, written.start, SECTOR, "d3");
    rig.spoil("d2");
    rig.pull("d3");
    rig.fails("d3", &ended);
    assert_eq!(ended.get(), Some(Err(Errno::Io)), "no record says so");
    assert_eq!(rig.holds(written, NEW, false), 0);
    assert_eq!(rig.sectors()[2], Ok(Some(NEW)), "the data that the parity allows for");
}

/// S2 of `sweep`: the power fails when a member has everything, and its cache has not: no record
/// contains that.
#[test]
fn s2_rebuilt_data_is_stable_before_a_record_calls_it_complete() {
    let mut rig = Rig::of("Intel", "RAID5", 3);
    rig.pull("d1");
    for at in (0..rig.bytes).step_by(SECTOR as usize) {
        rig.life.write(rig.edge, at, vec![NEW; SECTOR as usize]).expect("written");
    }
    rig.life.flush(rig.edge).expect("flushed");
    // It is clean again: nothing speaks against a start without force.
    rig.life.pass(SECONDS);
    rig.life.plug_soon("d1", &rig.disks["d1"].clone());
    let begun = |rig: &Rig| rig.disks["d1"].bytes(0, 1) == [NEW];
    for _ in 0..1_000 {
        if begun(&rig) {
            break;
        }
        rig.life.pass(MS / 20);
    }
    assert!(begun(&rig), "it is being filled");
    rig.disks["d1"].lock().holds = Some(Op::Flush);
    rig.life.pass(SECONDS);
    let filled = rig.disks["d1"].bytes(0, MEMBER as usize);
    assert!(filled.iter().all(|byte| [0, NEW].contains(byte)), "it has everything");
    rig.reboot();
    rig.in_order();
    rig.pull("d0");
    assert!(rig.sectors().iter().all(|found| *found == Ok(Some(NEW))), "{:?}", rig.sectors());
}

/// A2 of `members`: a disk failed, and was cleared and made a spare. One that had been replaced
/// before still calls it a member that has everything: it has nothing.
#[test]
fn a_spare_is_not_a_member_although_an_old_record_calls_it_one() {
    for late in [false, true] {
        let mut rig = Rig::of("Intel", "RAID1", 2);
        rig.life.pass(SECONDS);
        rig.life = Life::new(2, 2);
        let disk = rig.disks["d0"].clone();
        let known = Known {
            serial: "serial-d0".into(),
            reference: 0,
            guid: [0; 24],
            state: DiskState::Spare,
            bytes: disk.size(),
            bad: Vec::new(),
        };
        let record = imsm::spare(&known, SECTOR as u32).expect("a record");
        let plan = imsm::plan(&record, disk.size() / SECTOR, SECTOR as u32).expect("a plan");
        for step in plan.steps() {
            if let classes::write_plan::WriteStep::Write { offset, bytes } = step {
                disk.put(*offset, bytes);
            }
        }
        disk.put(0, &vec![0x77; MEMBER as usize]);
        if late {
            let gone = rig.disks.remove("d0");
            rig.reboot();
            rig.disks.extend(gone.map(|disk| ("d0".to_owned(), disk)));
            rig.replug("d0");
        } else {
            rig.reboot();
            rig.in_order();
        }
        rig.pull("d1");
        assert_eq!(rig.holds(0..0, 0, false), 0);
    }
}

/// J7 of `geom`: a disk fails the flush of its writes, just when the volume is to be marked clean,
/// and the power fails when the next record is written, which marks the disk as removed.
#[test]
fn j7_a_disk_that_failed_its_flush_is_not_recorded_as_clean() {
    for seed in Seeds::of(8) {
        let mut rig = Rig::seeded("Intel", "RAID1", 2, 10 * seed);
        rig.life.pass(SECONDS);
        for at in (0..rig.bytes).step_by(SECTOR as usize) {
            rig.life.write(rig.edge, at, vec![NEW; SECTOR as usize]).expect("written");
        }
        let disk = rig.disks["d0"].clone();
        let (before, writes) = (disk.lock().writes, || disk.lock().writes);
        rig.disks["d1"].lock().once = Some((Op::Flush, Errno::Io));
        for _ in 0..20_000 {
            if writes() > before {
                break;
            }
            rig.life.pass(5_000);
        }
        assert!(writes() > before && rig.disks["d1"].lock().once.is_none(), "a record");
        disk.lock().holds = Some(Op::Write);
        rig.life.pass(10 * MS);
        rig.reboot();
        rig.life.pass(SECONDS);
        if rig.life.show("raid", &rig.set, "State") == "OPTIMAL" {
            let held = |name: &str| rig.disks[name].bytes(0, MEMBER as usize);
            assert!(held("d0") == held("d1"), "copies differ, seed {seed}");
        }
    }
}

/// A disk was out for a moment, and is back before a record could contain that. The array still
/// knows the one that left, and takes the one that arrived when it has released the former.
#[test]
fn a_disk_that_returns_before_its_loss_is_recorded_is_accepted() {
    for format in ["Intel", "DDF"] {
        let mut rig = Rig::of(format, "RAID5", 3);
        // The mark of the writes is to be taken away, and that hangs.
        rig.disks["d0"].lock().holds = Some(Op::Write);
        rig.life.pass(SECONDS);
        rig.pull("d1");
        rig.life.plug("d1", &rig.disks["d1"].clone());
        rig.life.pass(50 * MS);
        let refused = rig.life.show("raid", &rig.set, "Refused");
        assert!(refused.contains("is there already"), "{refused}\n{}", rig.life.dump_state());
        rig.life.wake(rig.disks["d0"].release());
        rig.life.pass(SECONDS);
        rig.in_order();
        assert_eq!(rig.life.show("raid", &rig.set, "Refused"), "");
        assert_eq!(rig.holds(0..0, 0, false), 0);
    }
}

/// A DELETE taken only by a disk that was being filled counts for nothing. The one disk that had
/// everything fails it, and may be removed because the other has been filled meanwhile. No disk
/// that had everything took the DELETE. Of several ranges, and of one.
#[test]
fn a_delete_taken_only_by_a_disk_being_rebuilt_fails() {
    let mut ended = Vec::new();
    for format in ["Intel", "DDF"] {
        for ranges in [vec![0..SECTOR, 2 * SECTOR..3 * SECTOR], vec![0..SECTOR, SECTOR..SECTOR]] {
            let mut rig = Rig::of(format, "RAID1", 2);
            rig.pull("d1");
            rig.life.write(rig.edge, 0, vec![NEW; SECTOR as usize]).expect("written");
            // It is filled up to the deleted range, and no further; the records are marked dirty
            // meanwhile.
            rig.disks["d1"].lock().holds = Some(Op::Write);
            rig.life.plug("d1", &rig.disks["d1"].clone());
            rig.life.pass(MS);
            for _ in 0..40 {
                if rig.disks["d1"].bytes(0, 1)[0] != NEW {
                    rig.life.wake(rig.disks["d1"].let_go(1));
                    rig.life.pass(MS);
                }
            }
            rig.disks["d0"].lock().holds = Some(Op::Delete);
            let done = rig.delete(ranges);
            rig.life.wake(rig.disks["d1"].release());
            rig.in_order();
            assert!(done.get().is_none(), "d0 holds it\n{}", rig.life.dump_state());
            rig.disks["d0"].lock().faults.push((Op::Delete, 100, Errno::Io));
            rig.fails("d0", &done);
            assert_eq!(rig.life.show("raid", &rig.set, "State"), "DEGRADED");
            ended.push(done.get());
        }
    }
    assert_eq!(ended, [Some(Err(Errno::Io)); 4]);
}
