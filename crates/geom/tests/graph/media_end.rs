//! Requests at the end of the medium, and requests not on sector boundaries (docs/reference/geom.md
//! 1.7).

use std::sync::Arc;

use bio::{Errno, Flags, Op, Segs, Status};
use geom::{Access, Edge, Limits};

use crate::common::{Lab, Leaf, Manner, SECTOR};

const RANGED: [Op; 4] = [Op::Read, Op::Write, Op::Delete, Op::WriteZeroes];

fn disk(lab: &mut Lab, media: u64, sector: u32) -> (Arc<Leaf>, Edge) {
    let leaf = Leaf::shaped(Limits {
        media_bytes: media,
        sector_bytes: sector,
        io_max_bytes: 0,
        delete_max_bytes: 0,
    });
    let d = lab.disk("d0", &leaf);
    let c = lab.writer("u", d);
    let edge = lab.edge(c);
    (leaf, edge)
}

fn check_table(media: u64, sector: u32, rows: &[(u64, u64, Status, u64)]) {
    for op in RANGED {
        let mut lab = Lab::new(1);
        let (leaf, edge) = disk(&mut lab, media, sector);
        leaf.take_requests();
        for &(offset, length, status, done) in rows {
            let ended = lab.io(edge, op, offset, length);
            let what = format!("{op:?} {offset}+{length} of {media} by {sector}");
            assert_eq!((ended.status, ended.completed), (status, done), "{what}");
            let asked = leaf.take_requests();
            match status.is_ok() && done > 0 {
                true => assert_eq!((asked[0].offset, asked[0].length), (offset, done), "{what}"),
                false => assert!(asked.is_empty(), "{what}: the layer must not see it"),
            }
            if op == Op::Read {
                assert!(ended.data.len() as u64 >= done, "{what}");
            }
        }
        lab.assert_empty();
    }
}

/// D5.
#[test]
fn request_is_cut_at_the_end_of_the_medium_or_refused_beyond_it() {
    let (end, io, inval) = (8 * SECTOR, Err(Errno::Io), Err(Errno::Inval));
    check_table(
        end,
        512,
        &[
            (0, SECTOR, Ok(()), SECTOR),
            (0, end, Ok(()), end),
            (7 * SECTOR, SECTOR, Ok(()), SECTOR),
            (7 * SECTOR, 2 * SECTOR, Ok(()), SECTOR),
            (0, end + SECTOR, Ok(()), end),
            (0, 0, Ok(()), 0),
            (end, 0, Ok(()), 0),
            (end, SECTOR, Ok(()), 0),
            (end, 9 * SECTOR, Ok(()), 0),
            (end + SECTOR, SECTOR, io, 0),
            (end + SECTOR, 0, io, 0),
            (u64::MAX - 511, SECTOR, io, 0),
            (u64::MAX - 511, 0, io, 0),
            (1, SECTOR, inval, 0),
            (0, 1, inval, 0),
            (SECTOR, SECTOR - 1, inval, 0),
            (end + 1, SECTOR, inval, 0),
            (u64::MAX, 0, inval, 0),
        ],
    );
}

#[test]
fn sector_size_need_not_be_a_power_of_two() {
    for sector in [520u32, 528, 3, 4160] {
        let s = u64::from(sector);
        let (io, inval) = (Err(Errno::Io), Err(Errno::Inval));
        check_table(
            5 * s,
            sector,
            &[
                (0, s, Ok(()), s),
                (s, 4 * s, Ok(()), 4 * s),
                (4 * s, 2 * s, Ok(()), s),
                (5 * s, s, Ok(()), 0),
                (6 * s, s, io, 0),
                (s + 1, s, inval, 0),
                (s, s + 1, inval, 0),
                (512, s, if sector == 512 { Ok(()) } else { inval }, 0),
            ],
        );
    }
}

#[test]
fn partial_last_sector_of_a_medium_is_ignored() {
    check_table(
        4 * SECTOR + 100,
        512,
        &[(4 * SECTOR, SECTOR, Ok(()), 0), (3 * SECTOR, 2 * SECTOR, Ok(()), SECTOR)],
    );
    check_table(100, 512, &[(0, SECTOR, Err(Errno::NxIo), 0)]);
}

#[test]
fn io_without_a_medium_is_refused_but_flush_passes() {
    let mut lab = Lab::new(1);
    let (leaf, edge) = disk(&mut lab, 0, 512);
    for op in RANGED {
        for (offset, length) in [(0, SECTOR), (0, 0), (SECTOR, SECTOR), (1, 1)] {
            assert_eq!(lab.io(edge, op, offset, length).status, Err(Errno::NxIo), "{op:?}");
        }
    }
    leaf.take_requests();
    assert_eq!(lab.io(edge, Op::Flush, 0, 0).status, Ok(()));
    assert_eq!(leaf.take_requests().len(), 1);
}

/// D1.
#[test]
fn flush_and_getattr_skip_the_range_check_but_need_access() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let d = lab.disk("d0", &leaf);
    let (r, w) = (lab.user("r", d, Manner::default()), lab.user("w", d, Manner::default()));
    lab.open(r, Access::READ).unwrap();
    lab.open(w, Access { r: 0, w: 1, e: 0 }).unwrap();
    let (r, w) = (lab.edge(r), lab.edge(w));
    for op in Op::ALL {
        let (may, may_not) = if op.needs_write() { (w, r) } else { (r, w) };
        assert_eq!(lab.io(may_not, op, 3, 0).status, Err(Errno::Perm), "{op:?} goes first");
        if op.has_range() {
            assert_eq!(lab.io(may, op, 0, SECTOR).status, Ok(()), "{op:?}");
        }
    }
    assert_eq!(lab.io(w, Op::Flush, 12345, 777).status, Ok(()), "its numbers mean nothing");
    let attr = |name| {
        let tag = lab.submit(0, r, |b| {
            b.op = Op::GetAttr;
            b.attr = name;
        });
        lab.finish(tag)
    };
    let known = attr("GEOM::ident");
    assert_eq!(known.value, Some(bio::Attr::Text("ident of d0".into())));
    assert_eq!(attr("GEOM::nothing").status, Err(Errno::NoAttr));
}

#[test]
fn length_that_differs_from_the_buffers_is_refused() {
    let mut lab = Lab::new(1);
    let (_, edge) = disk(&mut lab, 1 << 20, 512);
    for (length, have) in [(SECTOR, 0), (2 * SECTOR, SECTOR), (SECTOR, 2 * SECTOR), (0, SECTOR)] {
        let data = Segs::alloc(lab.cores[0].pool(), have as usize).unwrap();
        let tag = lab.submit(0, edge, |b| {
            b.op = Op::Write;
            b.flags = Flags::FUA;
            b.length = length;
            b.data = data;
        });
        assert_eq!(lab.finish(tag).status, Err(Errno::Inval), "{length} with {have}");
    }
}
