//! ROD tokens: POPULATE TOKEN, WRITE USING TOKEN, RECEIVE ROD TOKEN INFORMATION, REPORT ALL ROD
//! TOKENS. No foreign tool here supports them, so lists and tokens are laid out by hand from the
//! standards.

use std::sync::Arc;

use bio::{Errno, Op};
use engine::{TmFunction, TmOutcome};
use testkit::noise;

use crate::lists::*;
use crate::world::*;

/// `d0` and `d1` of 8192 blocks at LUN 0 and 1 of all initiators.
fn two(seed: u64) -> (World, Arc<TestDisk>, Arc<TestDisk>) {
    let mut w = World::new(seed);
    let (a, b) = (w.disk("d0", 8192), w.disk("d1", 8192));
    for (i, disk) in [&a, &b].into_iter().enumerate() {
        let bytes = noise(seed + 1 + i as u64, 8192 * 2 * BLOCK);
        disk.state().bytes = bytes;
    }
    w.export("d0");
    w.export("d1");
    w.map(&[(0, "d0", false), (1, "d1", false)]);
    (w, a, b)
}

fn odx(w: &World, h: &Host, lun: u64, action: u8, id: u32, list: &[u8]) -> CommandResult {
    let tag = h.send(lun, &out_cdb(action, id, list.len()), 0, list);
    (0..40).for_each(|_| w.turn());
    w.answer(h, tag)
}

fn info(w: &World, h: &Host, lun: u64, id: u32) -> Vec<u8> {
    w.run(h, lun, &in_cdb(7, id), 4096, &[]).good().data
}

/// A token for runs of LUN 0.
fn token(w: &World, h: &Host, runs: &[(u64, u32)]) -> Vec<u8> {
    odx(w, h, 0, 0x10, 1, &populate(false, 0, runs)).good();
    let answer = info(w, h, 0, 1);
    assert_eq!(answer.len(), 32 + 4 + 2 + 512);
    assert_eq!((answer[4], answer[5], answer[15]), (0x10, 0x01, 0xf1));
    assert_eq!(answer[32..38], [0, 0, 0x02, 0x02, 0, 0]);
    answer[38..].to_vec()
}

fn use_token(w: &World, h: &Host, token: &[u8], flags: u8) -> CommandResult {
    odx(w, h, 1, 0x11, 2, &write(flags, 0, token, &[(100, 8)]))
}

#[test]
fn a_token_carries_data_from_unit_to_unit() {
    let (w, a, b) = two(1);
    let h = w.calm(0, "i1", &[0, 1]);
    let t = token(&w, &h, &[(10, 3000), (5000, 7)]);
    // Type, length, bytes: SPC-4 table 106; block size: SBC-3 4.28.4.
    assert_eq!(t[..8], [0, 0x80, 0, 1, 0, 0, 0x01, 0xf8]);
    assert_eq!(t[16], 0xe4);
    assert_eq!(t[56..64], (3007u64 * 512).to_be_bytes());
    assert_eq!(t[96..100], [0, 0, 2, 0]);
    assert_eq!(info(&w, &h, 0, 1)[16..24], 3007u64.to_be_bytes(), "the count is blocks");
    // From block 5 of the token on, to two places, the second over the seam of the runs.
    let list = write(0, 5, &t, &[(4000, 2990), (20, 10)]);
    odx(&w, &h, 1, 0x11, 9, &list).good();
    let (from, to) = (a.state().bytes.clone(), b.state().bytes.clone());
    assert_eq!(to[4000 * 512..6990 * 512], from[15 * 512..3005 * 512]);
    assert_eq!(to[20 * 512..25 * 512], from[3005 * 512..3010 * 512]);
    assert_eq!(to[25 * 512..30 * 512], from[5000 * 512..5005 * 512]);
    assert_eq!(to[30 * 512..4000 * 512], noise(3, to.len())[30 * 512..4000 * 512]);
    let answer = info(&w, &h, 1, 9);
    assert_eq!((answer[4], answer[5]), (0x11, 0x01));
    assert_eq!(answer[16..24], 3000u64.to_be_bytes());
    assert_eq!(answer[32..], [0; 4], "no token comes of it");
    // Another initiator, on another core, with the same map.
    let other = w.calm(1, "i2", &[0, 1]);
    use_token(&w, &other, &t, 0).good();
    w.check_empty();
}

/// Y2, K3 of copies/tokens.rs.
#[test]
fn writes_to_the_blocks_of_a_token_revoke_it() {
    type Writer = fn(&World, &Host) -> CommandResult;
    let writers: [(&str, Writer, bool); 7] = [
        ("WRITE", |w, h| w.run(h, 0, &write16(12, 1), 0, &[1; 512]), true),
        ("the block before", |w, h| w.run(h, 0, &write16(9, 1), 0, &[1; 512]), false),
        ("the block after", |w, h| w.run(h, 0, &write16(18, 1), 0, &[1; 512]), false),
        ("another unit", |w, h| w.run(h, 1, &write16(12, 1), 0, &[1; 512]), false),
        ("a read", |w, h| w.run(h, 0, &read16(12, 1), 512, &[]), false),
        (
            "UNMAP",
            |w, h| {
                let mut list = vec![0, 22, 0, 16, 0, 0, 0, 0];
                list.extend([0, 0, 0, 0, 0, 0, 0, 16, 0, 0, 0, 8, 0, 0, 0, 0]);
                w.run(h, 0, &[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], 0, &list)
            },
            true,
        ),
        ("WRITE SAME", |w, h| w.run(h, 0, &cdb16(0x93, 0, 11), 0, &[7; 512]), true),
    ];
    for (what, writer, revokes) in writers {
        let (w, _, b) = two(2);
        let h = w.calm(0, "i1", &[0, 1]);
        let other = w.calm(1, "i2", &[0, 1]);
        let t = token(&w, &h, &[(10, 8)]);
        writer(&w, &other).good();
        let before = b.state().bytes.clone();
        let answer = use_token(&w, &h, &t, 0);
        assert_eq!(answer.asc() == (5, 0x23, 0x06), revokes, "{what}: {answer:?}");
        assert_eq!(before == b.state().bytes, revokes, "{what}");
        let all = w.run(&h, 0, &in_cdb(8, 0), 4096, &[]).good().data;
        assert_eq!(all.len(), if revokes { 8 } else { 8 + 96 }, "{what}");
        if !revokes {
            assert_eq!(all[8..], t[..96]);
        }
    }
}

/// A write that arrives while data are copied between the units: data read before it cannot be
/// distinguished from data read after it. So none of them are written any more.
#[test]
fn a_concurrent_write_to_the_source_fails_the_use_of_a_token() {
    let (w, a, b) = two(3);
    let h = w.calm(0, "i1", &[0, 1]);
    let other = w.calm(1, "i2", &[0]);
    let t = token(&w, &h, &[(0, 8000)]);
    let old = a.state().bytes.clone();
    a.state().hold = true;
    let list = write(0, 0, &t, &[(0, 8000)]);
    let tag = h.send(1, &out_cdb(0x11, 2, list.len()), 0, &list);
    (0..4).for_each(|_| w.turn());
    let late = other.send(0, &write16(1, 1), 0, &[0xEE; 512]);
    w.turn();
    // The write overtakes every read that is below.
    let index = a.state().held.iter().position(|(_, _, op)| *op == Op::Write).unwrap();
    w.release(&a, index);
    w.answer(&other, late).good();
    w.release_all(&a);
    (0..20).for_each(|_| w.turn());
    assert_eq!(w.answer(&h, tag).asc(), (5, 0x23, 0x06));
    let written = b.state().log.iter().filter(|d| d.op == Op::Write).count();
    assert_eq!(written, 0, "no chunk was read before the write");
    assert!(a.state().bytes[..512] == old[..512]);
    w.check_empty();
}

/// Y2.
#[test]
fn a_token_created_during_a_write_contains_that_write() {
    let (w, a, _) = two(4);
    let h = w.calm(0, "i1", &[0, 1]);
    let other = w.calm(1, "i2", &[0]);
    a.state().hold = true;
    let early = other.send(0, &write16(12, 1), 0, &[0xEE; 512]);
    w.turn();
    let list = populate(false, 0, &[(10, 8)]);
    let tag = h.send(0, &out_cdb(0x10, 1, list.len()), 0, &list);
    (0..20).for_each(|_| w.turn());
    assert!(h.answer(tag).is_none(), "the write is not done");
    w.release_all(&a);
    (0..20).for_each(|_| w.turn());
    w.answer(&other, early).good();
    w.answer(&h, tag).good();
    let t = info(&w, &h, 0, 1)[38..].to_vec();
    use_token(&w, &h, &t, 0).good();
    let b = &w.disks[1].1;
    assert_eq!(b.state().bytes[102 * 512..103 * 512], [0xEE; 512]);
}

/// K1 of copies/tokens.rs.
#[test]
fn tokens_are_random_and_forged_ones_are_refused() {
    let (w, _, b) = two(5);
    let h = w.calm(0, "i1", &[0, 1]);
    let (one, two) = (token(&w, &h, &[(10, 8)]), token(&w, &h, &[(10, 8)]));
    let same = one[384..].iter().zip(&two[384..]).filter(|(a, b)| a == b).count();
    assert!(same < 12, "{same} of 128 secret bytes are the same");
    assert_ne!(one[8..16], two[8..16]);
    for at in [0, 3, 6, 7, 8, 15, 16, 63, 100, 127, 300, 383, 384, 511] {
        let mut forged = one.clone();
        forged[at] ^= 1;
        let answer = use_token(&w, &h, &forged, 0);
        let want = match at {
            0..4 => 0x01,
            6..8 => 0x0a,
            8..16 => 0x04,
            _ => 0x05,
        };
        assert_eq!(answer.asc(), (5, 0x23, want), "byte {at}");
    }
    assert!(b.state().log.is_empty());
    use_token(&w, &h, &one, 0).good();
}

/// Y1.
#[test]
fn a_token_is_usable_only_by_sessions_that_map_both_units() {
    let mut w = World::new(1);
    let (a, b) = (w.disk("d0", 64), w.disk("d1", 64));
    a.state().bytes.fill(0x5a);
    w.export("d0");
    w.export("d1");
    let both: &[Lun<'_>] = &[(0, "d0", false), (1, "d1", false)];
    w.groups(&[("admin", &["admin"], both), ("rest", &["guest"], &both[1..])]);
    let admin = w.calm(0, "admin", &[0, 1]);
    let guest = w.calm(0, "guest", &[1]);
    odx(&w, &admin, 0, 0x10, 1, &populate(false, 0, &[(0, 8)])).good();
    let t = info(&w, &admin, 0, 1)[38..].to_vec();
    assert_eq!(odx(&w, &guest, 1, 0x11, 2, &write(0, 0, &t, &[(0, 8)])).asc(), (5, 0x23, 0x04));
    assert_eq!(w.run(&guest, 1, &in_cdb(8, 0), 4096, &[]).good().data.len(), 8);
    assert!(b.state().log.is_empty());
    odx(&w, &admin, 1, 0x11, 2, &write(0, 0, &t, &[(0, 8)])).good();
    assert_eq!(b.state().bytes[..4096], [0x5a; 4096]);
}

/// K4.
#[test]
fn tokens_expire_can_be_deleted_and_are_bounded_in_number() {
    let (w, _, _) = two(6);
    let h = w.calm(0, "i1", &[0, 1]);
    let t = token(&w, &h, &[(10, 8)]);
    use_token(&w, &h, &t, 2).good();
    assert_eq!(use_token(&w, &h, &t, 0).asc(), (5, 0x23, 0x09), "DEL_TKN");
    odx(&w, &h, 0, 0x10, 1, &populate(false, 30, &[(10, 8)])).good();
    let t = info(&w, &h, 0, 1)[38..].to_vec();
    w.pass(29_000_000_000);
    use_token(&w, &h, &t, 0).good();
    w.pass(29_000_000_000);
    use_token(&w, &h, &t, 0).good();
    w.pass(31_000_000_000);
    assert_eq!(use_token(&w, &h, &t, 0).asc(), (5, 0x23, 0x04), "nobody used it");
    let mut full = None;
    for i in 0..400 {
        let answer = odx(&w, &h, 0, 0x10, 1, &populate(false, 0, &[(i, 1)]));
        if answer.status != 0 {
            full = Some((i, answer.asc()));
            break;
        }
    }
    assert!(matches!(full, Some((200..=256, (5, 0x55, 0x0d)))), "{full:?}");
}

#[test]
fn the_zero_token_writes_zeroes() {
    let (w, _, b) = two(7);
    let h = w.calm(0, "i1", &[0, 1]);
    let mut zero = vec![0xff, 0xff, 0, 1, 0, 0, 0x01, 0xf8];
    zero.resize(512, 0);
    odx(&w, &h, 1, 0x11, 3, &write(0, 0, &zero, &[(5, 3), (100, 1000)])).good();
    let bytes = b.state().bytes.clone();
    assert!(bytes[5 * 512..8 * 512].iter().all(|b| *b == 0));
    assert!(bytes[100 * 512..1100 * 512].iter().all(|b| *b == 0));
    assert_eq!(bytes[8 * 512..100 * 512], noise(9, bytes.len())[8 * 512..100 * 512]);
}

#[test]
fn range_lists_are_checked_against_the_units() {
    let (w, a, b) = two(8);
    let h = w.calm(0, "i1", &[0, 1]);
    for (runs, asc) in [
        (vec![(8190, 3)], (5, 0x21, 0)),
        (vec![(u64::MAX, 2)], (5, 0x21, 0)),
        (vec![(1, 4), (4, 1)], (5, 0x26, 0)),
        (vec![(0, 1); 65], (5, 0x26, 0x08)),
    ] {
        assert_eq!(odx(&w, &h, 0, 0x10, 1, &populate(false, 0, &runs)).asc(), asc, "{runs:?}");
    }
    assert_eq!(odx(&w, &h, 0, 0x10, 1, &populate(false, 601, &[(0, 1)])).asc(), (5, 0x26, 0));
    let t = token(&w, &h, &[(10, 8)]);
    for (offset, runs, asc) in [
        (0, vec![(0, 9)], (5, 0x26, 0)),
        (1, vec![(0, 8)], (5, 0x26, 0)),
        (u64::MAX, vec![(0, 1)], (5, 0x26, 0)),
        (0, vec![(8191, 2)], (5, 0x21, 0)),
    ] {
        let answer = odx(&w, &h, 1, 0x11, 2, &write(0, offset, &t, &runs));
        assert_eq!(answer.asc(), asc, "{offset} {runs:?}");
    }
    assert!(a.state().log.is_empty() && b.state().log.is_empty());
    w.map(&[(0, "d0", false), (1, "d1", true)]);
    assert_eq!(use_token(&w, &h, &t, 0).asc(), (7, 0x27, 0), "read-only");
}

#[test]
fn background_use_of_a_token_ends_by_abort_reset_or_disk_failure() {
    for end in 0..3 {
        let (w, a, b) = two(9);
        let h = w.calm(0, "i1", &[0, 1]);
        let t = token(&w, &h, &[(0, 8000)]);
        b.state().hold = true;
        odx(&w, &h, 1, 0x11, 7, &write(1, 0, &t, &[(0, 8000)])).good();
        assert_eq!(info(&w, &h, 1, 7)[5], 0x12, "in the background");
        match end {
            0 => {
                let abort = h.send(1, &abort_cdb(7), 0, &[]);
                w.turn();
                assert!(h.answer(abort).is_none());
                w.release_all(&b);
                w.answer(&h, abort).good();
                assert_eq!(info(&w, &h, 1, 7)[5], 0x60);
            }
            1 => {
                let tm = h.manage(TmFunction::LunReset, 1, None);
                w.turn();
                assert_eq!(h.outcome(tm), None);
                w.release_all(&b);
                assert_eq!(h.outcome(tm), Some(TmOutcome::Complete));
            }
            _ => {
                a.state().fail = Some((7000 * 512, Errno::Io));
                w.release_all(&b);
                (0..40).for_each(|_| w.turn());
                let answer = info(&w, &h, 1, 7);
                assert_eq!((answer[5], answer[12], answer[32]), (0x02, 2, 0x72));
            }
        }
        let seen = b.state().log.len();
        (0..20).for_each(|_| w.turn());
        assert_eq!(seen, b.state().log.len());
        w.check_empty();
    }
}
