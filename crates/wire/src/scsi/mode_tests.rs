//! Pages by hand, the round trip of SENSE and SELECT, and lists that lie.

use super::*;

fn mode() -> ModeBlock {
    let on = ModeState {
        write_cache: true,
        descriptor_sense: true,
        write_protect: true,
        task_aborted_status: true,
    };
    ModeBlock {
        current: ModeState { write_cache: true, ..ModeState::default() },
        changeable: on,
        blocks: 0x1_0000_0000,
        block_len: 512,
        dpo_fua: true,
        ..ModeBlock::default()
    }
}

fn sense(ten: bool, control: PageControl, code: u8, mode: &ModeBlock) -> Result<Vec<u8>, Sense> {
    mode_sense(ten, true, false, control, (code, 0), mode)
}

#[test]
fn pages_by_hand() {
    let data = sense(false, PageControl::Current, 0x08, &mode()).unwrap();
    let mut want = vec![31, 0, 0x10, 8, 0xff, 0xff, 0xff, 0xff, 0, 0, 2, 0, 8, 18, 4];
    want.resize(32, 0);
    assert_eq!(data, want);
    let data = sense(true, PageControl::Changeable, 0x0a, &mode()).unwrap();
    let mut want = vec![0, 34, 0, 0x10, 1, 0, 0, 16, 0, 0, 0, 1, 0, 0, 0, 0];
    want.extend([0, 0, 0, 0, 0, 0, 2, 0, 0x0a, 10, 4, 0, 8, 0x40, 0, 0, 0, 0, 0, 0]);
    assert_eq!(data, want);
    let all = mode_sense(true, false, true, PageControl::Default, (0x3f, 0xff), &mode()).unwrap();
    assert_eq!(all.len(), 8 + 12 + 20 + 12 + 12);
    assert_eq!(all[..2], [0, 62]);
    assert_eq!((all[8], all[20], all[40], all[52]), (1, 8, 0x0a, 0x1c));
    assert_eq!(all[22], 0, "the default has no write cache");
}

#[test]
fn protection_and_refusals() {
    let protected = ModeBlock { protected: true, ..mode() };
    assert_eq!(sense(false, PageControl::Current, 1, &protected).unwrap()[2], 0x90);
    let mut by_page = mode();
    by_page.current.write_protect = true;
    assert_eq!(sense(true, PageControl::Current, 1, &by_page).unwrap()[3], 0x90);
    let saved = sense(false, PageControl::Saved, 8, &mode()).unwrap_err();
    assert_eq!(saved.code, asc::SAVING_UNSUPPORTED);
    let unknown = sense(false, PageControl::Current, 0x02, &mode()).unwrap_err();
    assert_eq!(unknown, Sense::cdb_field(2, Some(5)));
    let subpage = mode_sense(false, false, false, PageControl::Current, (8, 1), &mode());
    assert_eq!(subpage.unwrap_err(), Sense::cdb_field(3, None));
}

/// SELECT of what SENSE gave changes nothing; every changeable bit can be changed; every other
/// bit is refused where it stands.
#[test]
fn select_is_sense_backwards() {
    let mode = mode();
    for ten in [false, true] {
        let data = sense(ten, PageControl::Current, 0x3f, &mode).unwrap();
        let header = if ten { 8 + 16 } else { 4 + 8 };
        let same = parse_mode_select(ten, &data, &mode).unwrap();
        assert_eq!(same, ModeSelect { state: mode.current, changed: false });
        let mask = sense(ten, PageControl::Changeable, 0x3f, &mode).unwrap();
        let heads = [0, 1, 12, 13, 32, 33, 44, 45].map(|at| header + at);
        let mut changed = 0;
        for bit in header * 8..data.len() * 8 {
            let (byte, bit) = (bit / 8, (bit % 8) as u8);
            if heads.contains(&byte) {
                continue;
            }
            let mut edited = data.clone();
            edited[byte] ^= 1 << bit;
            let result = parse_mode_select(ten, &edited, &mode);
            if mask[byte] & (1 << bit) != 0 {
                let result = result.unwrap();
                assert!(result.changed && result.state != mode.current);
                let after = ModeBlock { current: result.state, ..mode };
                let read = sense(ten, PageControl::Current, 0x3f, &after).unwrap();
                assert_eq!(read[header..], edited[header..]);
                changed += 1;
            } else {
                assert_eq!(result.unwrap_err(), Sense::list_field(byte as u16, Some(bit)));
            }
        }
        assert_eq!(changed, 4);
        // A cut within a page or the header; between pages the list is merely shorter.
        for cut in 1..data.len() {
            let whole = [0, 12, 32, 44].map(|at| header + at).contains(&cut);
            let result = parse_mode_select(ten, &data[..cut], &mode);
            assert_eq!(result.is_ok(), whole, "cut at {cut}");
            assert!(whole || result.unwrap_err().code == asc::PARAMETER_LIST_LEN);
        }
    }
}

#[test]
fn lists_that_lie() {
    let mode = mode();
    let pointer = |byte, bit| Sense::list_field(byte, bit);
    for (list, want) in [
        (&[0, 1, 0, 0][..], pointer(1, None)),
        (&[0, 0, 0, 4, 0, 0, 0, 0], pointer(3, None)),
        (&[0, 0, 0, 16, 0, 0, 0, 0], pointer(3, None)),
        (&[0, 0, 0, 8, 0, 0, 0, 1, 0, 0, 2, 0], pointer(4, None)),
        (&[0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 4, 0], pointer(8, None)),
        (&[0, 0, 0, 0, 0x02, 10], pointer(4, Some(6))),
        (&[0, 0, 0, 0, 0x48, 18], pointer(4, Some(6))),
        (&[0, 0, 0, 0, 0x08, 10], pointer(5, None)),
    ] {
        assert_eq!(parse_mode_select(false, list, &mode).unwrap_err(), want, "{list:?}");
    }
    assert!(!parse_mode_select(false, &[], &mode).unwrap().changed);
    assert!(!parse_mode_select(false, &[0; 4], &mode).unwrap().changed);
    let keeps = [0, 0, 0, 8, 0, 0, 0, 0, 0, 0, 2, 0];
    assert!(!parse_mode_select(false, &keeps, &mode).unwrap().changed);
}
