//! Parameter lists of EXTENDED COPY in both forms, and those that are refused.

use super::super::TEST_LIMITS as LIMITS;
use super::*;

/// An identification descriptor, SPC-4 table 111, byte by byte.
fn cscd() -> Vec<u8> {
    let mut out = vec![0xe4, 0x00, 0, 0, 0x01, 0x03, 0, 16];
    out.extend([0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
    out.extend([0, 0, 0, 0, 0, 0, 2, 0]);
    out
}

/// A block to block descriptor, SPC-4 table 130.
fn blocks() -> Vec<u8> {
    let mut out = vec![0x02, 0x02, 0, 0x18, 0, 0, 0xff, 0xff, 0, 0, 0x12, 0x34];
    out.extend([0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 1, 0, 0, 0, 6]);
    out
}

fn offsets() -> Vec<u8> {
    let mut out = vec![0x0a, 0, 0, 0x1c, 0, 1, 0, 0, 0x00, 0x01, 0x00, 0x03];
    out.extend([0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0, 0, 0, 8, 0, 9, 1, 0]);
    out
}

fn verify_cscd() -> Vec<u8> {
    vec![0x07, 0, 0, 8, 0, 1, 0, 0, 1, 0, 0, 0]
}

fn lid1(id: u8, flags: u8, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut out = vec![id, flags];
    out.extend((cscds.len() as u16).to_be_bytes());
    out.extend([0; 4]);
    out.extend((segments.len() as u32).to_be_bytes());
    out.extend([0; 4]);
    [out, cscds, segments].concat()
}

fn lid4(id: u32, flags: u8, immed: u8, cscds: &[Vec<u8>], segments: &[Vec<u8>]) -> Vec<u8> {
    let (cscds, segments) = (cscds.concat(), segments.concat());
    let mut out = vec![1, flags, 0, 0x20];
    out.extend([0; 11]);
    out.extend([immed, 0xff, 0, 0, 0]);
    out.extend(id.to_be_bytes());
    out.extend([0; 18]);
    out.extend((cscds.len() as u16).to_be_bytes());
    out.extend((segments.len() as u16).to_be_bytes());
    out.extend([0; 2]);
    [out, cscds, segments].concat()
}

fn refused(form: CopyForm, data: &[u8]) -> Sense {
    CopyList::parse(form, data, &LIMITS).unwrap_err()
}

#[test]
fn copy_list_is_parsed_in_both_forms() {
    let (cscds, segments) = ([cscd(), cscd()], [blocks(), offsets(), verify_cscd()]);
    let one = lid1(9, 0x13, &cscds, &segments);
    let four = lid4(0x0102_0304, 0x05, 3, &cscds, &segments);
    let one = CopyList::parse(CopyForm::Lid1, &one, &LIMITS).unwrap().unwrap();
    let four = CopyList::parse(CopyForm::Lid4, &four, &LIMITS).unwrap().unwrap();
    assert_eq!((one.id, one.usage, one.priority), (9, ListUsage::Discard, 3));
    assert_eq!((one.immed, one.good_sense), (false, false));
    assert_eq!((four.id, four.usage, four.priority), (0x0102_0304, ListUsage::Hold, 5));
    assert_eq!((four.immed, four.good_sense), (true, true));
    assert_eq!(one.cscds, four.cscds);
    let who = one.cscds[1];
    assert_eq!((who.null, who.peripheral, who.code_set, who.kind), (false, 0, 1, 3));
    assert_eq!((who.association, who.designator.len(), who.block_len), (0, 16, 512));
    assert_eq!(who.encode()[..], cscd());
    let want = [
        Segment::Blocks {
            source: 0,
            destination: CSCD_THIS_UNIT,
            of_destination: true,
            blocks: 0x1234,
            source_lba: 5,
            destination_lba: 0x1_0000_0006,
            hold: false,
        },
        Segment::Bytes {
            source: 1,
            destination: 0,
            bytes: 0x1_0003,
            source_lba: 7,
            destination_lba: 8,
            source_offset: 9,
            destination_offset: 256,
        },
        Segment::Verify { source: 1, ready: true },
    ];
    assert_eq!(one.segments.iter().map(|s| s.segment).collect::<Vec<_>>(), want);
    assert_eq!(four.segments.iter().map(|s| s.segment).collect::<Vec<_>>(), want);
    let places: Vec<u16> = one.segments.iter().map(|s| s.at).collect();
    assert_eq!(places, [80, 108, 140]);
    assert_eq!((four.cscds_at, four.segments[0].at), (48, 112));
}

#[test]
fn empty_copy_list_is_valid_and_a_truncated_one_is_refused() {
    for form in [CopyForm::Lid1, CopyForm::Lid4] {
        assert_eq!(CopyList::parse(form, &[], &LIMITS), Ok(None));
        let whole = match form {
            CopyForm::Lid1 => lid1(1, 0, &[cscd()], &[blocks()]),
            CopyForm::Lid4 => lid4(1, 0, 0, &[cscd()], &[blocks()]),
        };
        for cut in 1..whole.len() {
            assert_eq!(refused(form, &whole[..cut]).code, asc::PARAMETER_LIST_LEN, "{cut}");
        }
        // Bytes after the lists are ignored.
        let longer = [whole, vec![0xff; 9]].concat();
        assert!(CopyList::parse(form, &longer, &LIMITS).is_ok());
    }
}

/// (error, list, sense).
#[test]
fn malformed_copy_lists_are_refused_with_their_sense() {
    let one = |flags: u8, cscds: &[Vec<u8>], segments: &[Vec<u8>]| lid1(1, flags, cscds, segments);
    let patch = |mut bytes: Vec<u8>, at: usize, value: u8| {
        bytes[at] = value;
        bytes
    };
    let with = |code, at| Sense { code, ..Sense::list_field(at, None) };
    let good = one(0, &[cscd()], &[blocks()]);
    let table = [
        ("reserved usage", one(0x08, &[cscd()], &[]), Sense::list_field(1, Some(4))),
        ("an identifier without use", one(0x18, &[cscd()], &[]), Sense::list_field(0, None)),
        ("too many CSCDs", one(0, &vec![cscd(); 5], &[]), Sense::new(asc::TOO_MANY_CSCDS)),
        (
            "too many segments",
            one(0, &[], &vec![verify_cscd(); 9]),
            Sense::new(asc::TOO_MANY_SEGMENTS),
        ),
        (
            "too long together",
            one(0, &vec![cscd(); 4], &vec![blocks(); 7]),
            Sense::new(asc::PARAMETER_LIST_LEN),
        ),
        ("inline data", patch(good.clone(), 15, 1), Sense::new(asc::INLINE_DATA_TOO_LONG)),
        ("a part of a CSCD", patch(good.clone(), 3, 31), Sense::list_field(2, None)),
        ("FC CSCD", patch(good.clone(), 16, 0xe0), with(asc::UNSUPPORTED_CSCD, 16)),
        ("long designator", patch(good.clone(), 23, 21), Sense::list_field(23, None)),
        ("stream to stream", patch(good.clone(), 48, 3), with(asc::UNSUPPORTED_SEGMENT, 48)),
        ("short segment", patch(good.clone(), 51, 0x17), Sense::list_field(50, None)),
        (
            "a part of a segment's head",
            one(0, &[], &[vec![2]]),
            Sense::new(asc::PARAMETER_LIST_LEN),
        ),
        ("long segment", patch(good, 50, 0xff), Sense::list_field(50, None)),
    ];
    for (what, list, sense) in table {
        assert_eq!(refused(CopyForm::Lid1, &list), sense, "{what}");
    }
    let good = lid4(1, 0, 0, &[cscd()], &[blocks()]);
    let table = [
        ("format", patch(good.clone(), 0, 0), Sense::list_field(0, None)),
        ("header length", patch(good.clone(), 3, 0), Sense::list_field(2, None)),
        ("header type", patch(good.clone(), 16, 0), Sense::list_field(16, None)),
        ("identifier", lid4(1, 0x18, 0, &[], &[]), Sense::list_field(20, None)),
        ("nameless background", lid4(0, 0x18, 1, &[], &[]), Sense::list_field(15, Some(0))),
        ("a part of a CSCD", patch(good, 43, 31), Sense::list_field(42, None)),
    ];
    for (what, list, sense) in table {
        assert_eq!(refused(CopyForm::Lid4, &list), sense, "{what}");
    }
}
