//! Parameter lists and data of PERSISTENT RESERVE byte by byte.

use super::*;

fn port(n: u8) -> TransportId {
    TransportId::iscsi_port("iqn.a", [0, 0, 0, 0, 0, n]).unwrap()
}

#[test]
fn basic_parameter_list_matches_known_bytes() {
    let mut bytes = [0u8; 24];
    bytes[7] = 1;
    bytes[15] = 2;
    bytes[20] = 5;
    let list = PrOutList::parse(PrOutAction::Register, &bytes).unwrap();
    let want =
        PrOutList { key: 1, action_key: 2, aptpl: true, all_targets: true, ..PrOutList::default() };
    assert_eq!(list, want);
    assert_eq!(list.encode(), bytes);
    // The flags belong to registering.
    let list = PrOutList::parse(PrOutAction::Clear, &bytes).unwrap();
    assert!(!list.aptpl && !list.all_targets);
}

/// R1 of scsi/pr.rs.
#[test]
fn parameter_lists_of_wrong_length_are_refused() {
    let cut = Sense::new(asc::PARAMETER_LIST_LEN);
    for action in PrOutAction::ALL {
        for len in (0..24).chain(25..40) {
            let error = PrOutList::parse(action, &vec![0; len]).unwrap_err();
            assert_eq!(error.code, cut.code, "{action:?} {len}");
        }
    }
    let list = PrOutList {
        action_key: 7,
        has_ports: true,
        ports: vec![port(1), port(2)],
        ..PrOutList::default()
    };
    let bytes = list.encode();
    assert_eq!(PrOutList::parse(PrOutAction::Register, &bytes).unwrap(), list);
    for len in 24..bytes.len() {
        assert_eq!(PrOutList::parse(PrOutAction::Register, &bytes[..len]), Err(cut), "{len}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    assert_eq!(PrOutList::parse(PrOutAction::Register, &longer), Err(cut));
    // A length field that agrees with a list cut inside a TransportID.
    let mut inside = bytes[..bytes.len() - 4].to_vec();
    let len = (inside.len() - 28) as u8;
    inside[27] = len;
    let at = 28 + port(1).bytes().len() as u16;
    let error = PrOutList::parse(PrOutAction::Register, &inside).unwrap_err();
    assert_eq!(error, Sense::list_field(at, None));
}

/// R2 of scsi/pr.rs.
#[test]
fn transport_ids_are_for_register_only_and_deduplicated() {
    let ports = vec![port(2), port(1), port(2)];
    let list = PrOutList { has_ports: true, ports, ..PrOutList::default() };
    let bytes = list.encode();
    for action in &PrOutAction::ALL[1..7] {
        let error = PrOutList::parse(*action, &bytes).unwrap_err();
        assert_eq!(error, Sense::list_field(20, Some(3)), "{action:?}");
    }
    let list = PrOutList::parse(PrOutAction::Register, &bytes).unwrap();
    assert_eq!(list.ports, [port(1), port(2)]);
}

#[test]
fn register_and_move_list_matches_known_bytes() {
    let list = PrOutList {
        key: 3,
        action_key: 4,
        aptpl: true,
        to: Some(PrMove { unregister: true, target: 0x0102, port: port(9) }),
        ..PrOutList::default()
    };
    let bytes = list.encode();
    assert_eq!(bytes[16..24], [0, 3, 1, 2, 0, 0, 0, port(9).bytes().len() as u8]);
    assert_eq!(PrOutList::parse(PrOutAction::RegisterAndMove, &bytes).unwrap(), list);
    for len in 0..bytes.len() {
        let error = PrOutList::parse(PrOutAction::RegisterAndMove, &bytes[..len]).unwrap_err();
        assert_eq!(error.code, asc::PARAMETER_LIST_LEN, "{len}");
    }
    let mut wrong = bytes.clone();
    wrong[24] = 0x55 | 0x80;
    let error = PrOutList::parse(PrOutAction::RegisterAndMove, &wrong).unwrap_err();
    assert_eq!(error, Sense::list_field(24, None));
}

#[test]
fn parameter_data_match_known_bytes() {
    assert_eq!(pr_keys(1, [].into_iter()), [0, 0, 0, 1, 0, 0, 0, 0]);
    let keys = pr_keys(2, [5, 6].into_iter());
    assert_eq!(keys[..8], [0, 0, 0, 2, 0, 0, 0, 16]);
    assert_eq!(parse_pr_keys(&keys), Some((2, vec![5, 6])));
    let held = pr_reservation(3, Some((5, PrType::ExclusiveAccess)));
    let want = [0, 0, 0, 3, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 3, 0, 0];
    assert_eq!(held, want);
    assert_eq!(parse_pr_reservation(&held), Some((3, Some((5, PrType::ExclusiveAccess)))));
    assert_eq!(parse_pr_reservation(&pr_reservation(3, None)), Some((3, None)));
    assert_eq!(pr_capabilities(true, false), [0, 8, 0x1d, 0xb0, 0xea, 1, 0, 0]);
    assert_eq!(pr_capabilities(true, true)[3], 0xb1);
    assert_eq!(pr_capabilities(false, false)[2], 0x1c);
    let all = [
        PrStatus { key: 5, holds: Some(PrType::WriteExclusive), target: 1, port: port(1) },
        PrStatus { key: 6, holds: None, target: 2, port: port(2) },
    ];
    let bytes = pr_full_status(4, all.iter());
    let one = 24 + port(1).bytes().len();
    assert_eq!(bytes[4..8], (2 * one as u32).to_be_bytes());
    assert_eq!((bytes[8 + 12], bytes[8 + 13], bytes[8 + 19]), (1, 1, 1));
    assert_eq!(bytes[8 + 20..8 + 24], ((one - 24) as u32).to_be_bytes());
    assert_eq!(parse_pr_full_status(&bytes), Some((4, all.to_vec())));
}

#[test]
fn actions_and_types_match_the_capabilities_mask() {
    let [low, high] = [pr_capabilities(true, false)[4], pr_capabilities(true, false)[5]];
    for code in 0..16u8 {
        let claimed = if code < 8 { low >> code & 1 } else { high >> (code - 8) & 1 };
        assert_eq!(PrType::from_code(code).is_some(), claimed == 1, "type {code}");
        let action = PrOutAction::from_code(code).map(|a| a as u8);
        assert_eq!(action, (code < 8).then_some(code));
        assert_eq!(PrInAction::from_code(code).map(|a| a as u8), (code < 4).then_some(code));
    }
}
