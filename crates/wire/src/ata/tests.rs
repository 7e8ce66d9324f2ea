//! IDENTIFY data by the words of ACS-3, and ranges of TRIM.

use super::*;
use crate::Kind;

fn words(bytes: &[u8; IDENTIFY_LEN]) -> Vec<u16> {
    bytes.as_chunks().0.iter().map(|word| u16::from_le_bytes(*word)).collect()
}

fn disk() -> Identify {
    Identify {
        model: "Ashlar".into(),
        serial: "e565.1".into(),
        firmware: "0.1".into(),
        sectors: 0x1_2345_6789,
        sector_bytes: 512,
        physical_exponent: 3,
        alignment: 1,
        extended: true,
        flush: true,
        flush_ext: true,
        write_cache: Some(false),
        trim: Some(Trim { blocks_max: 8, deterministic: true, zeroes: true }),
        rotation: 7200,
        wwn: 0x5000_c500_1234_5678,
        queue_depth: 32,
    }
}

#[test]
fn identify_words_match_acs_3() {
    let w = words(&disk().encode());
    assert_eq!(w[0] & 0x8000, 0, "an ATA device");
    assert_eq!(w[27].to_be_bytes(), *b"As", "model, the first character in the upper half");
    assert_eq!(w[10].to_be_bytes(), *b"e5");
    assert_eq!(w[49], 0x0200, "LBA");
    assert_eq!((w[60], w[61]), (0xFFFF, 0x0FFF), "28 bits do not count more");
    assert_eq!(w[69] & 0x4020, 0x4020, "DRAT and RZAT");
    assert_eq!(w[75], 31);
    assert_eq!((w[82], w[85]), (0x20, 0), "a write cache that is off");
    assert_eq!((w[83], w[86]), (0x7400, 0x3400));
    assert_eq!(w[100..104], [0x6789, 0x2345, 1, 0]);
    assert_eq!(w[105], 8);
    assert_eq!(w[106], 0x6003, "eight logical sectors to a physical one");
    assert_eq!(w[108..112], [0x5000, 0xc500, 0x1234, 0x5678]);
    assert_eq!(w[169], 1);
    assert_eq!((w[209], w[217]), (0x4001, 7200));
    assert_eq!(w[255].to_le_bytes()[0], 0xA5);
    let sum = disk().encode().iter().fold(0u8, |sum, byte| sum.wrapping_add(*byte));
    assert_eq!(sum, 0);
}

#[test]
fn identify_data_decodes_as_encoded() {
    let small = Identify { sectors: 1000, sector_bytes: 512, queue_depth: 1, ..<_>::default() };
    let long = Identify { sector_bytes: 4096, write_cache: Some(true), ..disk() };
    for identify in [disk(), small, long] {
        assert_eq!(Identify::decode(&identify.encode()), Ok(identify));
    }
}

#[test]
fn invalid_identify_data_is_refused() {
    let good = disk().encode();
    assert_eq!(Identify::decode(&good[..511]).map_err(|e| e.kind), Err(Kind::Truncated));
    let mut bent = good;
    bent[200] ^= 1;
    assert_eq!(Identify::decode(&bent).map_err(|e| e.kind), Err(Kind::Digest));
    let mut unsigned = bent;
    unsigned[510] = 0;
    assert!(Identify::decode(&unsigned).is_ok(), "old disks have no checksum");
    let mut packet = unsigned;
    packet[1] = 0x85;
    assert_eq!(Identify::decode(&packet).map_err(|e| e.field), Err("general configuration"));
    let mut tiny = unsigned;
    // Word 106 means that words 117 and 118 count, and they are zero.
    (tiny[212], tiny[213]) = (0, 0x50);
    assert_eq!(Identify::decode(&tiny).map_err(|e| e.field), Err("logical sector size"));
}

#[test]
fn trim_ranges_are_split_packed_and_decoded() {
    let gib = (1 << 30) / 512;
    let (bytes, covered) = trim_blocks(&[(2048, gib)], 8);
    assert_eq!((bytes.len(), covered), (TRIM_BLOCK, gib), "33 ranges of 65535");
    let read: Vec<_> = trim_ranges(&bytes).unwrap().collect();
    assert_eq!(read.len(), 33);
    assert_eq!((read[0], read[32].0 + read[32].1), ((2048, 65535), 2048 + gib));
    assert_eq!(&bytes[..8], [0x00, 0x08, 0, 0, 0, 0, 0xFF, 0xFF]);

    let many: Vec<(u64, u64)> = (0..200).map(|i| (i * 100, 3)).collect();
    let (bytes, covered) = trim_blocks(&many, 2);
    assert_eq!((bytes.len(), covered), (2 * TRIM_BLOCK, 128 * 3), "no more than the device takes");
    let (bytes, covered) = trim_blocks(&[(0, 1), ((1 << 48) - 1, 2), (5, 1)], 1);
    assert_eq!(covered, 1, "48 bits do not reach the end of the second");
    assert_eq!(trim_ranges(&bytes).unwrap().count(), 1);
    assert_eq!(trim_blocks(&[], 8), (Vec::new(), 0));
    assert!(trim_ranges(&[0; 500]).is_err());
}
