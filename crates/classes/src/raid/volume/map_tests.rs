//! Tests of the geometry against tables: drawn by hand from the standard and from Linux' md.

use super::map::{MEMBERS_MAX, Shape};
use crate::raid::model::{Layout, Level, Member, SubdiskState, Volume};

const STRIP: u64 = 4096;

fn shape(level: Level, members: usize, rows: u64) -> Shape {
    let member = |disk| {
        let state = SubdiskState::Active;
        Member { disk, offset: 0, bytes: rows * STRIP, state }
    };
    let lens = vec![rows * STRIP; members];
    Shape::of(&Volume {
        name: String::new(),
        id: [0; 24],
        level,
        strip: STRIP,
        bytes: level.capacity(STRIP, &lens).expect("members enough"),
        members: (0..members).map(member).collect(),
        dirty: false,
        migration: None,
        log: None,
    })
}

/// The rows of a level as a picture: strips by number, P and Q.
fn picture(level: Level, members: usize, rows: u64) -> Vec<String> {
    let shape = shape(level, members, rows);
    let mut table = vec![vec![String::from("."); members]; rows as usize];
    for strip in 0..shape.bytes / STRIP {
        for copy in 0..shape.copies() {
            let spot = shape.spot(strip * STRIP, copy);
            assert_eq!(spot.at % STRIP, 0);
            let place = &mut table[(spot.at / STRIP) as usize][spot.slot];
            assert_eq!(place, ".", "{level:?}: two strips in one place");
            *place = strip.to_string();
        }
    }
    if shape.parities() > 0 {
        for (number, row) in table.iter_mut().enumerate() {
            let of = shape.row(number as u64);
            assert_eq!(row[of.p], ".");
            row[of.p] = "P".into();
            if let Some(q) = of.q {
                assert_eq!(row[q], ".");
                row[q] = "Q".into();
            }
        }
    }
    table.into_iter().map(|row| row.join(" ")).collect()
}

#[test]
fn stripe_and_mirror_levels_have_the_expected_layout() {
    assert_eq!(picture(Level::Raid0, 3, 2), ["0 1 2", "3 4 5"]);
    assert_eq!(picture(Level::Raid1e, 3, 4), ["0 0 1", "1 2 2", "3 3 4", "4 5 5"]);
    assert_eq!(picture(Level::Raid10, 4, 2), ["0 0 1 1", "2 2 3 3"]);
    assert_eq!(picture(Level::Raid1, 2, 2), ["0 0", "1 1"]);
    assert_eq!(picture(Level::Single, 1, 2), ["0", "1"]);
    assert_eq!(picture(Level::Concat, 2, 2), ["0 2", "1 3"]);
}

#[test]
fn raid4_and_raid5_layouts_match_md() {
    let five = |layout| picture(Level::Raid5(layout), 4, 4);
    assert_eq!(picture(Level::Raid4, 3, 2), ["0 1 P", "2 3 P"]);
    let want = ["0 1 2 P", "3 4 P 5", "6 P 7 8", "P 9 10 11"];
    assert_eq!(five(Layout::LeftAsymmetric), want);
    let want = ["0 1 2 P", "4 5 P 3", "8 P 6 7", "P 9 10 11"];
    assert_eq!(five(Layout::LeftSymmetric), want);
    let want = ["P 0 1 2", "3 P 4 5", "6 7 P 8", "9 10 11 P"];
    assert_eq!(five(Layout::RightAsymmetric), want);
    let want = ["P 0 1 2", "5 P 3 4", "7 8 P 6", "9 10 11 P"];
    assert_eq!(five(Layout::RightSymmetric), want);
}

#[test]
fn raid6_layouts_match_ddf() {
    let six = |layout| picture(Level::Raid6(layout), 5, 5);
    // md: ROTATING_ZERO_RESTART, ROTATING_N_RESTART, ROTATING_N_CONTINUE.
    let want = ["P Q 0 1 2", "3 P Q 4 5", "6 7 P Q 8", "9 10 11 P Q", "Q 12 13 14 P"];
    assert_eq!(six(Layout::RightAsymmetric), want);
    let want = ["0 1 2 P Q", "3 4 P Q 5", "6 P Q 7 8", "P Q 9 10 11", "Q 12 13 14 P"];
    assert_eq!(six(Layout::LeftAsymmetric), want);
    let want = ["0 1 2 Q P", "4 5 Q P 3", "8 Q P 6 7", "Q P 9 10 11", "P 12 13 14 Q"];
    assert_eq!(six(Layout::LeftSymmetric), want);
}

#[test]
fn requests_are_covered_once_in_order() {
    let levels = [
        (Level::Raid0, 3),
        (Level::Concat, 3),
        (Level::Raid1, 2),
        (Level::Raid1e, 5),
        (Level::Raid5(Layout::LeftSymmetric), 4),
        (Level::Raid6(Layout::LeftAsymmetric), 6),
    ];
    for (level, members) in levels {
        let shape = shape(level, members, 8);
        for offset in [0, 512, STRIP - 512, 3 * STRIP, 8 * STRIP - 512] {
            for length in [512, STRIP, 5 * STRIP + 1024, shape.bytes] {
                let length = length.min(shape.bytes - offset);
                let mut next = offset;
                for piece in shape.pieces(offset, length) {
                    assert_eq!((piece.at, piece.skip), (next, next - offset), "{level:?}");
                    next += piece.len;
                    for copy in 0..shape.copies() {
                        let (first, last) =
                            (shape.spot(piece.at, copy), shape.spot(next - 1, copy));
                        assert_eq!((first.slot, first.at + piece.len - 1), (last.slot, last.at));
                    }
                }
                assert_eq!(next, offset + length, "{level:?}");
            }
        }
    }
}

#[test]
fn member_position_never_maps_beyond_the_volume_position() {
    let levels = [
        (Level::Raid1, 3),
        (Level::Raid1e, 3),
        (Level::Raid10, 4),
        (Level::Raid5(Layout::LeftAsymmetric), 3),
        (Level::Raid6(Layout::LeftAsymmetric), 5),
    ];
    for (level, members) in levels {
        let shape = shape(level, members, 12);
        for at in (0..=shape.bytes).step_by(512) {
            let back = shape.of_member(shape.to_member(at));
            assert!(back <= at, "{level:?} {at} {back}");
        }
        assert_eq!(shape.of_member(12 * STRIP), shape.bytes, "{level:?}");
    }
    assert!(MEMBERS_MAX <= u64::BITS as usize);
}

#[test]
fn precomputed_locations_match_the_full_calculation() {
    use Layout::{LeftAsymmetric, LeftSymmetric, RightAsymmetric, RightSymmetric};
    let layouts = [LeftAsymmetric, LeftSymmetric, RightAsymmetric, RightSymmetric];
    let plain = [Level::Raid0, Level::Raid1, Level::Raid1e, Level::Raid10, Level::Raid4];
    let parity = layouts.into_iter().flat_map(|l| [Level::Raid5(l), Level::Raid6(l)]);
    for level in plain.into_iter().chain(parity) {
        let even = level == Level::Raid10;
        for n in (4..9).filter(|n| !even || n % 2 == 0) {
            let of = shape(level, n, 3 * n as u64 + 1);
            for strip in 0..of.bytes / STRIP {
                let at = strip * STRIP + 512;
                let first = of.spot(at, 0);
                assert_eq!(of.sole(at, STRIP - 512), Some(first), "{level:?} {n} {strip}");
                let whole = of.sole(at, STRIP).is_none();
                assert!(whole || level == Level::Raid1, "{level:?}: it ends in another strip");
                let strips = level != Level::Raid1;
                let at_once = |len| of.sole_at_once(at, len);
                assert_eq!(at_once(STRIP - 512), strips.then_some(first), "{level:?} {n} {strip}");
                assert_eq!(at_once(STRIP), None, "{level:?}: it ends in another strip");
                if of.copies() == 1 || level == Level::Raid1 {
                    continue;
                }
                let Some((alike, place)) = of.alike(at, STRIP - 512) else {
                    assert!(of.spot(at, 1).at != first.at, "{level:?} {n} {strip}");
                    continue;
                };
                assert_eq!(place, first.at, "{level:?} {n} {strip}");
                let spots = (0..of.copies()).map(|copy| of.spot(at, copy));
                let bits = spots.clone().fold(0u64, |bits, spot| bits | 1 << spot.slot);
                assert_eq!(alike & ((1 << n) - 1), bits, "{level:?} {n} {strip}");
                assert!(spots.clone().all(|spot| spot.at == first.at), "{level:?} {n} {strip}");
            }
        }
    }
}
