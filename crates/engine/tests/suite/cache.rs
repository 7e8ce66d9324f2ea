//! SYNCHRONIZE CACHE with IMMED: GOOD before the end, and errors as deferred ones.

use bio::Errno;

use crate::world::*;

/// SYNCHRONIZE CACHE(10) with IMMED.
const SYNC_IMMED: [u8; 10] = [0x35, 2, 0, 0, 0, 0, 0, 0, 0, 0];
const SENSE: [u8; 6] = [0x03, 0, 0, 0, 32, 0];
const WRITE_ERROR: (u8, u8, u8) = (3, 0x0C, 0);

#[test]
fn an_immediate_flush_is_answered_before_the_disk_completes_it() {
    let w = World::simple(3, 100);
    let h = w.calm(0, "i1", &[0]);
    let disk = w.disks[0].1.clone();
    disk.state().hold = true;
    w.run(&h, 0, &SYNC_IMMED, 0, &[]).good();
    assert_eq!(disk.state().held.len(), 1, "it is under way");
    let slow = h.send(0, &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0, &[]);
    w.turn();
    assert_eq!(h.answer(slow), None, "without IMMED the answer waits");
    w.release_all(&disk);
    w.answer(&h, slow).good();
    w.run(&h, 0, &TUR, 0, &[]).good();
    // An out-of-range request is refused at once.
    let far = [0x35, 2, 0, 0, 1, 0, 0, 0, 0, 0];
    assert_eq!(w.run(&h, 0, &far, 0, &[]).asc(), (5, 0x21, 0));
    w.check_empty();
}

#[test]
fn an_error_after_an_immediate_answer_is_a_deferred_error_once() {
    let w = World::simple(4, 100);
    let (h, other) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let disk = w.disks[0].1.clone();
    for by_sense in [false, true] {
        disk.state().fail = Some((0, Errno::Io));
        w.run(&h, 0, &SYNC_IMMED, 0, &[]).good();
        w.turn();
        disk.state().fail = None;
        w.run(&other, 0, &TUR, 0, &[]).good();
        // INQUIRY leaves it alone.
        w.run(&h, 0, &[0x12, 0, 0, 0, 36, 0], 36, &[]).good();
        let sense = match by_sense {
            false => w.run(&h, 0, &read16(0, 1), 512, &[]).sense(),
            true => wire::scsi::Sense::decode(&w.run(&h, 0, &SENSE, 32, &[]).good().data).unwrap(),
        };
        let code = sense.code;
        assert_eq!((code.key as u8, code.asc, code.ascq), WRITE_ERROR);
        assert!(sense.deferred, "response code 71h");
        w.run(&h, 0, &read16(0, 1), 512, &[]).good();
        // Without IMMED the command itself ends with the error, which is current.
        disk.state().fail = Some((0, Errno::Io));
        let now = w.run(&h, 0, &[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0, &[]).sense();
        assert!(!now.deferred);
        disk.state().fail = None;
    }
    w.check_empty();
}

#[test]
fn the_control_extension_page_reports_implicit_access_states() {
    let w = World::simple(5, 100);
    let h = w.calm(0, "i1", &[0]);
    let inquiry = w.run(&h, 0, &[0x12, 0, 0, 0, 36, 0], 36, &[]).good().data;
    let page = |control: u8| {
        let cdb = [0x1A, 8, control << 6 | 0x0A, 1, 64, 0];
        w.run(&h, 0, &cdb, 64, &[]).good().data[4..].to_vec()
    };
    assert_eq!(inquiry[5] >> 4 & 1, page(0)[4] & 1, "TPGS and IALUAE");
    assert_eq!((page(0)[4] & 1, page(1)[4] & 1), (1, 0), "set, not changeable");
}
