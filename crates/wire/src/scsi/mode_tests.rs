//! Pages built by hand, the round trip of SENSE and SELECT, and inconsistent lists.

use super::*;

fn mode() -> ModeBlock {
    ModeBlock {
        current: ModeState { write_cache: true, ..ModeState::default() },
        saved: ModeState { task_aborted_status: true, ..ModeState::default() },
        changeable: ModeState::ALL,
        savable: true,
        blocks: 0x1_0000_0000,
        block_len: 512,
        dpo_fua: true,
        rotation: 7200,
        ..ModeBlock::default()
    }
}

fn sense(ten: bool, control: PageControl, code: u8, mode: &ModeBlock) -> Result<Vec<u8>, Sense> {
    mode_sense(ten, true, false, control, (code, 0), mode)
}

/// Where the pages begin in a list of them.
fn starts(pages: &[u8]) -> Vec<usize> {
    let mut at = 0;
    let mut out = Vec::new();
    while at < pages.len() {
        out.push(at);
        at += match pages[at] & 0x40 {
            0 => 2 + usize::from(pages[at + 1]),
            _ => 4 + usize::from(u16::from_be_bytes([pages[at + 2], pages[at + 3]])),
        };
    }
    assert_eq!(at, pages.len());
    out
}

#[test]
fn mode_pages_match_known_bytes() {
    let data = sense(false, PageControl::Current, 0x08, &mode()).unwrap();
    let mut want = vec![31, 0, 0x10, 8, 0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0, 0x88, 18, 4];
    want.resize(32, 0);
    assert_eq!(data, want);
    let data = sense(true, PageControl::Changeable, 0x0a, &mode()).unwrap();
    let mut want = vec![0, 34, 0, 0x10, 1, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0];
    want.extend([0, 0, 0, 0, 0, 0, 2, 0, 0x8a, 10, 0x3c, 0x16, 8, 0x40, 0, 0, 0, 0, 0, 0]);
    assert_eq!(data, want);
    let saved = mode_sense(false, false, true, PageControl::Saved, (0x0a, 0), &mode()).unwrap();
    assert_eq!(saved, [15, 0, 0x10, 0, 0x8a, 10, 2, 0, 0, 0x40, 0, 0, 0, 0, 0, 0]);
    let rigid = mode_sense(false, false, true, PageControl::Current, (4, 0), &mode()).unwrap();
    assert_eq!((&rigid[6..10], &rigid[24..26]), (&[2, 0, 0, 128][..], &[0x1c, 0x20][..]));
    let more = mode_sense(false, false, true, PageControl::Current, (0x0a, 1), &mode()).unwrap();
    assert_eq!((more.len(), &more[4..8]), (4 + 32, &[0x4a, 1, 0, 28][..]));
}

#[test]
fn all_pages_are_listed_in_order() {
    let codes = |code, subpage| {
        let all = mode_sense(true, false, true, PageControl::Default, (code, subpage), &mode());
        let all = all.unwrap();
        assert_eq!(all[..2], u16::try_from(all.len() - 2).unwrap().to_be_bytes());
        starts(&all[8..]).into_iter().map(|at| all[8 + at] & 0x7f).collect::<Vec<_>>()
    };
    assert_eq!(codes(0x3f, 0), [1, 2, 3, 4, 7, 8, 0x0a, 0x1a, 0x1c]);
    assert_eq!(codes(0x3f, 0xff), [1, 2, 3, 4, 7, 8, 0x0a, 0x4a, 0x1a, 0x1c]);
    assert_eq!(codes(0x0a, 0xff), [0x0a, 0x4a]);
    assert_eq!(codes(0x0a, 1), [0x4a]);
    // The short header has space for all pages.
    for has_thresholds in [false, true] {
        let mode = ModeBlock { has_thresholds, ..mode() };
        let all = mode_sense(false, false, false, PageControl::Current, (0x3f, 0xff), &mode);
        let all = all.unwrap();
        assert_eq!(usize::from(all[0]), all.len() - 1);
    }
}

#[test]
fn threshold_page_matches_known_bytes_and_is_selectable() {
    let used = Threshold { enabled: true, kind: ThresholdKind::Used, count: 7 };
    let low = Threshold { enabled: true, kind: ThresholdKind::Percent, count: 20 };
    let mut mode = ModeBlock { has_thresholds: true, ..mode() };
    mode.current.thresholds = [low, used, Threshold::default()];
    (mode.current.threshold_errors, mode.current.single_attention) = (true, true);
    let of = |control| mode_sense(true, false, true, control, (0x1c, 2), &mode).unwrap();
    let mut want = vec![0xdc, 2, 0, 36, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    want.extend([0x88, 3, 0, 0, 0, 0, 0, 20, 0x81, 2, 0, 0, 0, 0, 0, 7, 0x08, 3, 0, 0, 0, 0, 0, 0]);
    assert_eq!(of(PageControl::Current)[8..], want);
    assert_eq!(Threshold::offset(1), 24);
    let mask = of(PageControl::Changeable);
    assert_eq!((mask[12], &mask[24..32]), (1, &[0x89, 3, 0, 0, 0xff, 0xff, 0xff, 0xff][..]));
    let recovery = mode_sense(true, false, true, PageControl::Current, (1, 0), &mode).unwrap();
    assert_eq!((recovery[8], recovery[15]), (0x81, 0x80));
    let mut list = of(PageControl::Current);
    list[0] = 0;
    assert!(!parse_mode_select(true, &list, &mode).unwrap().changed);
    (list[24], list[25], list[31]) = (0x80, 1, 9);
    let state = parse_mode_select(true, &list, &mode).unwrap().state;
    let want = Threshold { enabled: true, kind: ThresholdKind::Available, count: 9 };
    assert_eq!(state.thresholds, [want, used, Threshold::default()]);
    // More than the maximum, and an invalid combination.
    for (at, value, want) in [(47, 101, (44, Some(7))), (33, 1, (33, Some(7)))] {
        let mut wrong = list.clone();
        wrong[at] = value;
        let error = parse_mode_select(true, &wrong, &mode).unwrap_err();
        assert_eq!(error, Sense::list_field(want.0, want.1), "{at}");
    }
    // A unit without thresholds has no such page.
    let none = ModeBlock { has_thresholds: false, ..mode };
    let refused = mode_sense(true, false, true, PageControl::Current, (0x1c, 2), &none);
    assert_eq!(refused.unwrap_err(), Sense::cdb_field(3, None));
    assert_eq!(parse_mode_select(true, &list, &none).unwrap_err(), Sense::list_field(9, None));
}

#[test]
fn write_protection_is_reported_and_invalid_requests_refused() {
    let protected = ModeBlock { protected: true, ..mode() };
    assert_eq!(sense(false, PageControl::Current, 1, &protected).unwrap()[2], 0x90);
    let mut by_page = mode();
    by_page.current.write_protect = true;
    assert_eq!(sense(true, PageControl::Current, 1, &by_page).unwrap()[3], 0x90);
    let unsaved = ModeBlock { savable: false, ..mode() };
    let saved = sense(false, PageControl::Saved, 8, &unsaved).unwrap_err();
    assert_eq!(saved.code, asc::SAVING_UNSUPPORTED);
    assert_eq!(sense(false, PageControl::Current, 8, &unsaved).unwrap()[12], 0x08);
    for (code, subpage, want) in [
        (0x05, 0, Sense::cdb_field(2, Some(5))),
        (0x00, 0xff, Sense::cdb_field(2, Some(5))),
        (0x08, 1, Sense::cdb_field(3, None)),
        (0x0a, 2, Sense::cdb_field(3, None)),
        (0x3f, 1, Sense::cdb_field(3, None)),
    ] {
        let which = (code, subpage);
        let got = mode_sense(false, false, false, PageControl::Current, which, &mode());
        assert_eq!(got.unwrap_err(), want);
    }
}

/// A SELECT with the data of SENSE changes nothing. Every changeable bit can be changed, and every
/// other bit is refused with its position.
/// M1 of scsi/mode.rs, M2 of scsi/mode.rs, M3 of scsi/mode.rs.
#[test]
fn mode_select_accepts_exactly_what_mode_sense_reports_changeable() {
    let mode = mode();
    for ten in [false, true] {
        let all = |control| mode_sense(ten, true, false, control, (0x3f, 0xff), &mode).unwrap();
        let data = all(PageControl::Current);
        let header = if ten { 8 + 16 } else { 4 + 8 };
        let same = parse_mode_select(ten, &data, &mode).unwrap();
        assert_eq!(same, ModeSelect { state: mode.current, changed: false });
        let mask = all(PageControl::Changeable);
        let starts = starts(&data[header..]);
        let heads: Vec<usize> = starts
            .iter()
            .flat_map(|at| *at..at + if data[header + at] & 0x40 == 0 { 2 } else { 4 })
            .collect();
        let mut changed = 0;
        for bit in header * 8..data.len() * 8 {
            let (byte, bit) = (bit / 8, (bit % 8) as u8);
            if heads.contains(&(byte - header)) {
                continue;
            }
            let mut edited = data.clone();
            edited[byte] ^= 1 << bit;
            let result = parse_mode_select(ten, &edited, &mode);
            let refused = Sense::list_field(byte as u16, Some(bit));
            if mask[byte] & (1 << bit) == 0 {
                assert_eq!(result.unwrap_err(), refused);
                continue;
            }
            changed += 1;
            let Ok(result) = result else {
                // QERR 10b does not exist.
                assert_eq!((result.unwrap_err(), bit), (refused, 2));
                continue;
            };
            assert!(result.changed && result.state != mode.current);
            let after = ModeBlock { current: result.state, ..mode };
            let read = mode_sense(ten, true, false, PageControl::Current, (0x3f, 0xff), &after);
            assert_eq!(read.unwrap()[header..], edited[header..]);
        }
        assert_eq!(changed, 11);
        // A cut within a page or the header; between pages the list is merely shorter.
        for cut in 1..data.len() {
            let whole = cut >= header && starts.contains(&(cut - header));
            let result = parse_mode_select(ten, &data[..cut], &mode);
            assert_eq!(result.is_ok(), whole, "cut at {cut}");
            assert!(whole || result.unwrap_err().code == asc::PARAMETER_LIST_LEN);
        }
    }
}

#[test]
fn malformed_mode_lists_are_refused_with_a_field_pointer() {
    let mode = mode();
    let pointer = |byte, bit| Sense::list_field(byte, bit);
    for (list, want) in [
        (&[0, 1, 0, 0][..], pointer(1, None)),
        (&[0, 0, 0, 4, 0, 0, 0, 0], pointer(3, None)),
        (&[0, 0, 0, 16, 0, 0, 0, 0], pointer(3, None)),
        (&[0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 2, 0], pointer(4, None)),
        (&[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 4, 0], pointer(8, None)),
        (&[0, 0, 0, 0, 0x05, 10], pointer(4, Some(6))),
        (&[0, 0, 0, 0, 0x48, 18], pointer(5, None)),
        (&[0, 0, 0, 0, 0x4a, 0, 0, 10], pointer(5, None)),
        (&[0, 0, 0, 0, 0x4a, 1, 0, 27], pointer(6, None)),
        (&[0, 0, 0, 0, 0x08, 10], pointer(5, None)),
    ] {
        assert_eq!(parse_mode_select(false, list, &mode).unwrap_err(), want, "{list:?}");
    }
    assert!(!parse_mode_select(false, &[], &mode).unwrap().changed);
    assert!(!parse_mode_select(false, &[0; 4], &mode).unwrap().changed);
    let keeps = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 2, 0];
    assert!(!parse_mode_select(false, &keeps, &mode).unwrap().changed);
}
