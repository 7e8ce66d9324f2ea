//! Arrays by name: parity that is not right yet, and two parities that data is known by alone.

use bio::{Errno, Op};
use testkit::Seeds;

use super::disk::SECTOR;
use super::life::MS;
use super::named_raid::{self, MEMBER, NEW, Rig, SECONDS};
use super::named_raid_progress::{Array, STRIP, USED};

/// R2 of `stripes`: after a power cut parity is resynchronised, slowly. A write of a row that has
/// not had its turn makes its parity anew. The disk that has the new data is removed at once, and
/// the data is there all the same.
#[test]
fn r2_a_row_written_before_the_resync_reaches_it_has_valid_parity() {
    let sector = |value: u8| vec![value; SECTOR as usize];
    for what in [("Intel", "RAID5", 5), ("DDF", "RAID5", 5), ("DDF", "RAID6", 6)] {
        let mut array = Array::of(what);
        let last = array.bytes() - SECTOR;
        // Two strips of the last row identify the disks: the sums of all disks have other bytes.
        array.life.write(array.edge, last, sector(0x11)).expect("written");
        array.life.write(array.edge, last - STRIP, sector(0x22)).expect("written");
        array.life.flush(array.edge).expect("flushed");
        let at = USED - SECTOR;
        let held: Vec<u8> = array.disks.iter().map(|disk| disk.bytes(at, 1)[0]).collect();
        let holder = held.iter().position(|b| *b == 0x11).expect("it is somewhere");
        for (disk, _) in
            array.disks.iter().zip(&held).filter(|(_, b)| !matches!(b, 0x11 | 0x22 | 0))
        {
            disk.put(at, &sector(0x77));
        }
        array.reboot();
        array.slowly();
        array.life.write(array.edge, last, sector(NEW)).expect("written");
        array.life.flush(array.edge).expect("flushed");
        let line = array.life.show("raid", &array.set, "Volume");
        assert!(line.contains("synchronised"), "{what:?} is in line already: {line}");
        let disk = array.disks[holder].clone();
        array.life.pull(&format!("d{holder}"), &disk, false);
        array.life.pass(50 * MS);
        let read = array.life.read(array.edge, last, SECTOR as usize);
        assert_eq!(read, Ok(sector(NEW)), "{what:?}\n{}", array.life.dump_state());
    }
}

/// R5 of `stripes`: two disks are out, so all others are needed, and one of these fails a write. If
/// that was one of the two parities, the other is put back: the data of the two disks is readable.
/// J3 of raid/geom.rs.
#[test]
fn r5_a_failed_write_of_one_parity_restores_the_other() {
    let mut failed = 0;
    for bad in ["d2", "d3", "d4"] {
        for strip in 0..15 {
            let mut rig = Rig::of("DDF", "RAID6-LA", 5);
            rig.pull("d0");
            rig.pull("d1");
            rig.life.pass(SECONDS);
            let at = strip * named_raid::STRIP;
            rig.dirty();
            rig.spoil(bad);
            let ended = rig.send(Op::Write, at, SECTOR);
            rig.fails(bad, &ended);
            failed += u32::from(ended.get() == Some(Err(Errno::Io)));
            rig.disks[bad].lock().heal();
            rig.life.pass(3 * SECONDS);
            rig.holds(at..at + SECTOR, NEW, false);
        }
    }
    assert!(failed > 10, "{failed} writes failed");
}

/// L6 of `volume::log`: two strips of a row are being written, and the disk of the second is lost.
/// No record contains that before the row has ended. The data of a disk that is out is known by
/// parity, and parity includes the first strip, which is not written yet. The power fails in that
/// moment.
#[test]
fn l6_no_loss_is_recorded_while_a_row_is_in_flight() {
    for seed in Seeds::of(20) {
        let mut rig = Rig::logged_by(4, seed);
        rig.disks["d0"].lock().holds_below = MEMBER;
        let _ = rig.begin(Op::Write, 0, 2 * named_raid::STRIP, "d0");
        rig.pull("d1");
        rig.life.pass(100 * MS);
        rig.reboot();
        rig.in_order();
        rig.holds(0..2 * named_raid::STRIP, NEW, false);
    }
}

/// E1 of `volume::logged`: two strips of a row are to be written, and the rest of the second strip
/// is read. Its disk is lost meanwhile, and the row is tried again: one part of the write becomes
/// two, one strip after the other. The power fails when the parity allows for the first strip,
/// which is not written yet: the second has its old content.
#[test]
fn e1_a_retried_row_is_divided_again_after_the_loss_of_a_disk() {
    for seed in Seeds::of(20) {
        let mut rig = Rig::logged_by(3, seed);
        let written = 0..named_raid::STRIP + SECTOR;
        rig.dirty();
        rig.disks["d0"].lock().holds_below = MEMBER;
        rig.disks["d0"].lock().holds = Some(Op::Write);
        rig.disks["d1"].lock().holds = Some(Op::Read);
        let ended = rig.send(Op::Write, written.start, written.end);
        rig.pull("d1");
        rig.life.pass(100 * MS);
        assert!(ended.get().is_none(), "d0 is held");
        rig.disks["d2"].lock().model.flush().expect("it is stable");
        rig.reboot();
        rig.in_order();
        rig.holds(written, NEW, false);
    }
}

/// Y1 of `volume::replay`: two strips of a row were written and its parity was not, when the power
/// failed. The logs are replayed. As soon as the volume is offered one of the disks is lost, and
/// the power fails. The content of that disk is known by the parity that the replay made. A5 of
/// raid/members.rs, Y3 of volume/replay.rs.
#[test]
fn y1_replayed_parity_is_stable_before_the_volume_is_offered() {
    for seed in Seeds::of(20) {
        let mut rig = Rig::logged_by(4, seed);
        rig.disks["d3"].lock().holds_below = MEMBER;
        let _ = rig.begin(Op::Write, 0, 2 * named_raid::STRIP, "d3");
        for name in ["d0", "d1"] {
            rig.disks[name].lock().model.flush().expect("it is stable");
        }
        rig.starts();
        let gone = rig.disks.remove("d1").expect("a disk");
        gone.power_cut();
        rig.reboot();
        assert_eq!(rig.life.show("raid", &rig.set, "State"), "DEGRADED");
        rig.holds(0..2 * named_raid::STRIP, NEW, false);
    }
}
