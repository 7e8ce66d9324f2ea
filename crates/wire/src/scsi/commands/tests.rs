//! Checks of the command table: consistency, access rules, reports of supported opcodes.

use super::*;

const DISK: PeripheralType = PeripheralType::Disk;
const CDROM: PeripheralType = PeripheralType::Cdrom;

fn disk_rows() -> Vec<&'static CommandInfo> {
    COMMANDS.iter().filter(|row| row.types.has(Types::DISK)).collect()
}

#[test]
fn command_table_is_consistent() {
    for (i, info) in COMMANDS.iter().enumerate() {
        // The length follows from the opcode's group (SPC-4 4.3.4.2).
        let len = [6, 10, 10, 32, 16, 12, 0, 0][usize::from(info.opcode >> 5)];
        assert_eq!(info.cdb_len(), len, "{}", info.name);
        let same = |o: &CommandInfo| {
            let id = (o.opcode, o.service_action);
            id == (info.opcode, info.service_action) && o.types.has(info.types)
        };
        assert!(!COMMANDS[..i].iter().any(same), "{} stands twice", info.name);
        for kind in [DISK, CDROM].into_iter().filter(|kind| info.types.has(Types::of(*kind))) {
            assert_eq!(find(kind, info.usage), Ok(info));
        }
        let before = i.checked_sub(1).map_or(0, |b| COMMANDS[b].opcode);
        assert!(before <= info.opcode, "{} is not at its place", info.name);
        assert_eq!(control_byte(info.usage), NACA, "{}", info.name);
        assert!(info.times.nominal_s <= info.times.recommended_s);
    }
}

#[test]
fn one_test_of_all_bytes_agrees_with_the_test_of_each_byte() {
    for info in COMMANDS {
        for bit in 0..128 {
            let mut cdb = [0; 16];
            cdb[0] = info.opcode;
            cdb[bit / 8] |= 0x80 >> (bit % 8);
            assert_eq!(info.check(&cdb), info.check_bytes(&cdb), "{}, bit {bit}", info.name);
        }
    }
}

/// Commands that write count as writes for reservations, and commands that read do not. Commands
/// that only identify units and ports are always served.
#[test]
fn access_rules_match_the_effect_of_commands() {
    for info in COMMANDS {
        let name = info.name;
        let medium = ["WRITE", "UNMAP", "SANITIZE", "FORMAT", "COMPARE", "ORWRITE"];
        if medium.iter().any(|word| name.starts_with(word)) {
            assert_eq!(info.access.persistent, Persistent::Write, "{name}");
            assert!(!info.access.despite_reserve, "{name}");
        }
        if ["READ(", "VERIFY", "PRE-FETCH"].iter().any(|word| name.starts_with(word)) {
            assert_eq!(info.access.persistent, Persistent::Read, "{name}");
        }
        if name.starts_with("SET ") || name.ends_with("SELECT(6)") || name.contains("SELECT(10)") {
            assert_eq!(info.access.persistent, Persistent::Write, "{name}");
        }
        if info.access.alua == Alua::Any && info.direction == Direction::In {
            assert_eq!(info.access, Access::FREE, "{name}");
        }
    }
    for cdb in [[0x12, 0], [0xa0, 0], [0x03, 0], [0xa3, 0x0a]] {
        assert_eq!(find(DISK, &cdb).unwrap().access, Access::FREE);
    }
}

#[test]
fn opcode_is_looked_up_by_peripheral_type() {
    assert_eq!(find(DISK, &[0x42]).unwrap().name, "UNMAP");
    assert_eq!(find(CDROM, &[0x42]).unwrap().name, "READ SUB-CHANNEL");
    assert_eq!(find(CDROM, &[0x2a]), Err(CdbError::Opcode));
    assert_eq!(find(DISK, &[0x43]), Err(CdbError::Opcode));
    assert_eq!(find(PeripheralType::Enclosure, &[0x28]).unwrap().name, "READ(10)");
}

#[test]
fn unknown_opcodes_and_service_actions_have_distinct_errors() {
    assert_eq!(find(DISK, &[0xff, 0]), Err(CdbError::Opcode));
    assert_eq!(find(DISK, &[0x5d, 0]), Err(CdbError::Opcode));
    assert_eq!(find(DISK, &[]), Err(CdbError::Opcode));
    for action in [0x00, 0x11, 0x1f] {
        assert_eq!(find(DISK, &[0x9e, action]), Err(CdbError::field(1, Some(4))));
    }
    assert_eq!(find(DISK, &[0xa3]), Err(CdbError::field(1, Some(4))));
    assert_eq!(find(DISK, &[0x7f, 0, 0, 0, 0, 0, 0, 24]), Err(CdbError::field(8, None)));
    let mut long = [0; 32];
    (long[0], long[7], long[9]) = (0x7f, 24, 9);
    assert_eq!(find(DISK, &long).unwrap().name, "READ(32)");
    long[8] = 1;
    assert_eq!(find(DISK, &long), Err(CdbError::field(8, None)));
}

#[test]
fn naca_is_read_from_the_control_byte_of_every_cdb_length() {
    assert!(naca(&[0, 0, 0, 0, 0, 4]) && !naca(&[0, 0, 0, 0, 4, 0]));
    assert!(naca(&[0x28, 0, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0]));
    assert!(naca(&[0x7f, 4]) && !naca(&[0x28]) && !naca(&[]) && !naca(&[0xff; 16]));
}

#[test]
fn supported_opcode_reports_match_known_bytes() {
    let rows = disk_rows();
    let all = report_opcodes(&rows, Report::All, false).unwrap();
    assert_eq!(all.len(), 4 + 8 * rows.len());
    assert_eq!(all[..4], (8 * rows.len() as u32).to_be_bytes());
    let timed = report_opcodes(&rows, Report::All, true).unwrap();
    assert_eq!(timed.len(), 4 + 20 * rows.len());
    assert_eq!(timed[4..24], [0, 0, 0, 0, 0, 2, 0, 6, 0, 10, 0, 0, 0, 0, 0, 1, 0, 0, 0, 10]);
    let long = all[4..].chunks(8).find(|d| d[0] == 0x7f).unwrap();
    assert_eq!(long, [0x7f, 0, 0, 9, 0, 1, 0, 32]);
    let one = report_opcodes(&rows, Report::Opcode(0x12), false).unwrap();
    assert_eq!(one, [0, 3, 0, 6, 0x12, 1, 0xff, 0xff, 0xff, 4]);
    let one = report_opcodes(&rows, Report::Opcode(0x12), true).unwrap();
    assert_eq!((one[1], one.len()), (0x83, 22));
    let none = vec![0, 1, 0, 0];
    for report in [
        Report::Opcode(0xff),
        Report::Action(0xff, 0),
        Report::Action(0x9e, 0x1f),
        Report::Action(0x9e, 0xffff),
        Report::Either(0x12, 1),
        Report::Either(0x9e, 0),
    ] {
        assert_eq!(report_opcodes(&rows, report, false).unwrap(), none, "{report:?}");
    }
    assert!(report_opcodes(&rows, Report::Opcode(0x9e), false).is_err());
    assert!(report_opcodes(&rows, Report::Action(0x12, 0), false).is_err());
    assert_eq!(report_opcodes(&rows, Report::Either(0x12, 0), false).unwrap()[1], 3);
    assert_eq!(report_opcodes(&rows, Report::Either(0x9e, 0x10), false).unwrap()[1], 3);
}

/// Supported by the report exactly when the command is found.
#[test]
fn supported_opcode_report_agrees_with_the_parser() {
    let rows = disk_rows();
    for opcode in 0..=255u8 {
        for action in 0..32u8 {
            let report = report_opcodes(&rows, Report::Either(opcode, action.into()), false);
            let has_actions =
                rows.iter().any(|info| info.opcode == opcode && info.service_action.is_some());
            if has_actions || action == 0 {
                let mut cdb = [0; 16];
                (cdb[0], cdb[if opcode == VARIABLE { 9 } else { 1 }]) = (opcode, action);
                assert_eq!(report.unwrap()[1] == 3, find(DISK, &cdb).is_ok());
            }
        }
    }
}
