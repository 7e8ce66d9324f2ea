//! Tests of concat and stripe without I/O: metadata byte by byte, sizes, places of each request.

use super::{Piece, Span, SpanLabel};
use crate::concat::Concat;
use crate::members::{Divisor, frame::FrameError};
use crate::stripe::Stripe;

fn unhex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> =
        text.bytes().map(|b| (b as char).to_digit(16).expect("hex") as u8).collect();
    digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect()
}

const STRIPE: &str = "\
    47454f4d3a3a535452495045000000000300000073743000000000000000000000000000\
    443322110100020000000100616461300000000000000000000000000000100000000000";
const CONCAT: &str = "\
    47454f4d3a3a434f4e434154000000000400000063633000000000000000000000000000\
    4433221101000200616461300000000000000000000000000000100000000000";

fn golden(name: &str, strip: u64) -> SpanLabel {
    SpanLabel {
        name: name.into(),
        id: 0x1122_3344,
        number: 1,
        count: 2,
        strip,
        home: "ada0".into(),
        provider_bytes: 1_048_576,
    }
}

fn sector(mut bytes: Vec<u8>) -> Vec<u8> {
    bytes.resize(512, 0);
    bytes
}

#[test]
fn metadata_is_identical_to_freebsd() {
    let (stripe, concat) = (golden("st0", 65536), golden("cc0", 0));
    assert_eq!(Stripe::encode(&stripe), unhex(STRIPE));
    assert_eq!(Concat::encode(&concat), unhex(CONCAT));
    assert_eq!(Stripe::decode(&sector(unhex(STRIPE))), Ok(stripe));
    assert_eq!(Concat::decode(&sector(unhex(CONCAT))), Ok(concat));
}

#[test]
fn older_versions_are_read_and_newer_ones_refused() {
    let mut old = unhex(STRIPE);
    old[16] = 1;
    let label = Stripe::decode(&sector(old[..48].to_vec())).expect("version 1");
    assert_eq!((label.home.as_str(), label.provider_bytes), ("", 0));
    let mut old = unhex(CONCAT);
    old[16] = 3;
    let label = Concat::decode(&sector(old[..60].to_vec())).expect("version 3");
    assert_eq!((label.home.as_str(), label.provider_bytes), ("ada0", 0));
    let mut new = unhex(CONCAT);
    new[16] = 5;
    let error = Concat::decode(&sector(new)).expect_err("newer");
    assert_eq!(error, FrameError::Newer { version: 5, known: 4 });
}

#[test]
fn inconsistent_or_truncated_metadata_is_refused() {
    let damaged = |at: usize, byte: u8| {
        let mut bytes = unhex(STRIPE);
        bytes[at] = byte;
        Stripe::decode(&sector(bytes))
    };
    assert_eq!(damaged(0, b'X'), Err(FrameError::Foreign));
    assert!(matches!(damaged(40, 2), Err(FrameError::Value("number", _))));
    assert!(matches!(damaged(44, 3), Err(FrameError::Value("strip size", _))));
    assert!(matches!(damaged(20, b'/'), Err(FrameError::Value("name", _))));
    assert!(matches!(damaged(20, 0xff), Err(FrameError::Value("name", _))));
    for len in 0..72 {
        assert!(Stripe::decode(&unhex(STRIPE)[..len]).is_err(), "{len} bytes");
    }
}

/// The place of each byte of the whole, computed in the simplest way.
fn place<S: Span>(strip: u64, members: &[u64], byte: u64) -> (usize, u64) {
    if strip == 0 {
        let mut at = byte;
        for (i, size) in members.iter().enumerate() {
            if at < *size {
                return (i, at);
            }
            at -= size;
        }
        unreachable!("beyond the end")
    }
    let (k, n) = (byte / strip, members.len() as u64);
    ((k % n) as usize, k / n * strip + byte % strip)
}

fn covers<S: Span>(strip: u64, members: &[u64], offset: u64, length: u64) {
    let mut seen = vec![0u8; length as usize];
    let mut met = Vec::new();
    let divisors = [strip, members.len() as u64].map(Divisor::new);
    let one = S::single_piece(divisors[0], (members, divisors[1]), offset, length);
    S::pieces(strip, members, offset, length, &mut |piece: Piece| {
        assert!(one.is_none_or(|one| one == piece), "what is one piece is the only one");
        let crosses = strip != 0 && piece.offset % strip + piece.length > strip;
        assert_eq!(one.is_some(), piece.length == length && !crosses);
        assert!(!met.contains(&piece.member), "one piece a member");
        met.push(piece.member);
        let mut at = piece.offset;
        S::gather(strip, members, (offset, length), piece, &mut |from, len| {
            for i in 0..len {
                assert_eq!(place::<S>(strip, members, offset + from + i), (piece.member, at + i));
                seen[(from + i) as usize] += 1;
            }
            at += len;
        });
        assert_eq!(at, piece.offset + piece.length, "the whole piece was gathered");
        assert!(at <= members[piece.member]);
    });
    assert!(seen.iter().all(|n| *n == 1), "{strip} {members:?} {offset}+{length}");
}

/// M1 of span/map.rs, M2 of span/map.rs.
#[test]
fn pieces_cover_every_request_once_at_the_right_place() {
    for n in 2..5 {
        let members = vec![32u64; n];
        let whole = Stripe::media_bytes(8, &members);
        assert_eq!(whole, 32 * n as u64);
        for offset in 0..whole {
            for length in 1..=whole - offset {
                covers::<Stripe>(8, &members, offset, length);
            }
        }
    }
    let members = [5, 1, 9, 3];
    let whole = Concat::media_bytes(0, &members);
    for offset in 0..whole {
        for length in 1..=whole - offset {
            covers::<Concat>(0, &members, offset, length);
        }
    }
}

#[test]
fn the_smallest_member_decides_the_size_of_a_stripe() {
    assert_eq!(Stripe::media_bytes(16384, &[1 << 20, 2 << 20, 3 << 20]), 3 << 20);
    assert_eq!(Stripe::media_bytes(65536, &[(1 << 20) - 512, 2 << 20]), 15 * 65536 * 2);
    assert_eq!(Stripe::media_bytes(65536, &[512, 512]), 0);
    assert_eq!(Concat::media_bytes(0, &[1 << 20, 2 << 20, 3 << 20]), 6_291_456);
}

#[test]
fn a_strip_is_a_power_of_two_and_whole_sectors() {
    assert!(Stripe::check_strip(65536, 512).is_ok());
    assert!(Stripe::check_strip(512, 4096).is_err());
    assert!(Stripe::check_strip(3 << 14, 512).is_err());
    assert!(Stripe::check_strip(0, 512).is_err());
}
