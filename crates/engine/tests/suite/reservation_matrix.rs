//! Matrix of reservations, test 10 of `docs/reference/scsi-target.md`: every command of the table
//! against every type of reservation and every relation of a nexus to it. The expectations were
//! written down from the tables of SPC-4 5.12.1, SBC-3 4.17 and SPC-2 5.5.1, not from the table of
//! commands.

use engine::TmFunction;
use wire::scsi::{COMMANDS, PrOutAction, PrOutList, PrType, Status, Types};

use crate::world::*;

const CONFLICT: u8 = Status::ReservationConflict as u8;
const RESERVE6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];

/// For a nexus without access: under Write Exclusive types, under Exclusive Access types, beside
/// a RESERVE of another nexus. A: allowed, C: conflict.
type Expect = &'static str;

/// Opcode, service action, further bytes of the CDB (place and value), what to expect.
#[rustfmt::skip]
const TABLE: &[(u8, u16, &[(usize, u8)], Expect)] = &[
    (0x00, 0, &[], "AAC"),              // TEST UNIT READY
    (0x03, 0, &[], "AAA"),              // REQUEST SENSE
    (0x04, 0, &[], "CCC"),              // FORMAT UNIT
    (0x08, 0, &[(4, 1)], "ACC"),        // READ
    (0x28, 0, &[(8, 1)], "ACC"),
    (0xA8, 0, &[(9, 1)], "ACC"),
    (0x88, 0, &[(13, 1)], "ACC"),
    (0x7F, 9, &[(7, 24), (31, 1)], "ACC"),
    (0x0A, 0, &[(4, 1)], "CCC"),        // WRITE
    (0x2A, 0, &[(8, 1)], "CCC"),
    (0xAA, 0, &[(9, 1)], "CCC"),
    (0x8A, 0, &[(13, 1)], "CCC"),
    (0x7F, 11, &[(7, 24), (31, 1)], "CCC"),
    (0x9C, 0, &[(13, 1)], "CCC"),       // WRITE ATOMIC
    (0x2E, 0, &[(8, 1)], "CCC"),        // WRITE AND VERIFY
    (0xAE, 0, &[(9, 1)], "CCC"),
    (0x8E, 0, &[(13, 1)], "CCC"),
    (0x7F, 12, &[(7, 24), (31, 1)], "CCC"),
    (0x2F, 0, &[(8, 1)], "ACC"),        // VERIFY
    (0xAF, 0, &[(9, 1)], "ACC"),
    (0x8F, 0, &[(13, 1)], "ACC"),
    (0x7F, 10, &[(7, 24), (31, 1)], "ACC"),
    (0x41, 0, &[(8, 1)], "CCC"),        // WRITE SAME
    (0x93, 0, &[(13, 1)], "CCC"),
    (0x7F, 13, &[(7, 24), (31, 1)], "CCC"),
    (0x42, 0, &[(8, 24)], "CCC"),       // UNMAP
    (0x8B, 0, &[(13, 1)], "CCC"),       // ORWRITE
    (0x89, 0, &[(13, 1)], "CCC"),       // COMPARE AND WRITE
    (0x34, 0, &[(8, 1)], "ACC"),        // PRE-FETCH
    (0x90, 0, &[(13, 1)], "ACC"),
    (0x35, 0, &[], "CCC"),              // SYNCHRONIZE CACHE
    (0x91, 0, &[], "CCC"),
    (0x12, 0, &[], "AAA"),              // INQUIRY
    (0xA0, 0, &[], "AAA"),              // REPORT LUNS
    (0x25, 0, &[], "AAA"),              // READ CAPACITY
    (0x9E, 0x10, &[], "AAA"),
    (0x9E, 0x12, &[], "ACC"),           // GET LBA STATUS
    (0x15, 0, &[(1, 0x10)], "CCC"),     // MODE SELECT
    (0x55, 0, &[(1, 0x10)], "CCC"),
    (0x1A, 0, &[(2, 8)], "ACC"),        // MODE SENSE
    (0x5A, 0, &[(2, 8)], "ACC"),
    (0x4C, 0, &[], "CCC"),              // LOG SELECT
    (0x4D, 0, &[], "AAA"),              // LOG SENSE
    (0x1B, 0, &[(4, 1)], "AAA"),        // START STOP UNIT: start
    (0x1B, 0, &[(4, 0)], "CCC"),        // stop
    (0x1B, 0, &[(4, 0x10)], "CCC"),     // power condition
    (0x1E, 0, &[(4, 0)], "AAA"),        // PREVENT ALLOW MEDIUM REMOVAL: allow
    (0x1E, 0, &[(4, 1)], "CCC"),        // prevent
    (0x1C, 0, &[], "ACC"),              // RECEIVE DIAGNOSTIC RESULTS
    (0x1D, 0, &[], "CCC"),              // SEND DIAGNOSTIC
    (0x3B, 0, &[], "CCC"),              // WRITE BUFFER
    (0x3C, 0, &[], "ACC"),              // READ BUFFER
    (0x9B, 0, &[], "ACC"),
    (0x37, 0, &[], "ACC"),              // READ DEFECT DATA
    (0xB7, 0, &[], "ACC"),
    (0x48, 1, &[], "CCC"),              // SANITIZE
    (0x48, 2, &[], "CCC"),
    (0x48, 3, &[], "CCC"),
    (0x48, 0x1F, &[], "CCC"),
    (0x5E, 0, &[], "AAC"),              // PERSISTENT RESERVE IN
    (0x5E, 1, &[], "AAC"),
    (0x5E, 2, &[], "AAC"),
    (0x5E, 3, &[], "AAC"),
    (0x83, 0, &[], "CCC"),              // EXTENDED COPY
    (0x83, 1, &[], "CCC"),
    (0x83, 0x11, &[], "CCC"),           // WRITE USING TOKEN
    (0xA3, 0x05, &[], "AAA"),           // REPORT IDENTIFYING INFORMATION
    (0xA3, 0x0A, &[], "AAA"),           // REPORT TARGET PORT GROUPS
    (0xA3, 0x0C, &[], "ACC"),           // REPORT SUPPORTED OPERATION CODES
    (0xA3, 0x0D, &[], "ACC"),           // REPORT SUPPORTED TASK MANAGEMENT FUNCTIONS
    (0xA3, 0x0F, &[], "AAA"),           // REPORT TIMESTAMP
    (0xA4, 0x06, &[], "CCC"),           // SET IDENTIFYING INFORMATION
    (0xA4, 0x0A, &[], "CCC"),           // SET TARGET PORT GROUPS
    (0xA4, 0x0F, &[], "CCC"),           // SET TIMESTAMP
];

/// Rows of the table of commands that have rules of their own, tried elsewhere: RESERVE, RELEASE,
/// PERSISTENT RESERVE OUT; REZERO UNIT and SEEK, which no current standard defines; the
/// rest of third-party copy, whose commands look at the units they copy between.
fn has_own_rules(opcode: u8, action: u16) -> bool {
    matches!(opcode, 0x16 | 0x17 | 0x56 | 0x57 | 0x5F | 0x01 | 0x0B | 0x2B | 0x84)
        || (opcode == 0x83 && matches!(action, 0x10 | 0x1C))
}

fn cdb(opcode: u8, action: u16, more: &[(usize, u8)]) -> Vec<u8> {
    let len = match opcode {
        0x7F => 32,
        0x00..=0x1F => 6,
        0x20..=0x5F => 10,
        0xA0..=0xBF => 12,
        _ => 16,
    };
    let mut cdb = vec![0; len];
    cdb[0] = opcode;
    match opcode {
        0x7F => cdb[9] = action as u8,
        _ => cdb[1] = action as u8,
    }
    for (at, value) in more {
        cdb[*at] |= value;
    }
    cdb
}

/// Sends a command after all pending unit attentions were reported.
fn ask(w: &World, h: &Host, cdb: &[u8]) -> CommandResult {
    while w.run(h, 0, &TUR, 0, &[]).asc().0 == 6 {}
    let info = wire::scsi::find(wire::scsi::PeripheralType::Disk, cdb).unwrap();
    let (expect_in, data) = match info.direction {
        wire::scsi::Direction::In => (512, vec![]),
        wire::scsi::Direction::Out => (0, vec![0xA5; 1024]),
        _ => (0, vec![]),
    };
    w.run(h, 0, cdb, expect_in, &data)
}

/// Refused because this unit does not have it.
fn is_unknown(a: &CommandResult) -> bool {
    a.asc() == (5, 0x20, 0)
        || (a.asc() == (5, 0x24, 0) && a.sense().field.is_some_and(|f| f.byte == 1))
}

fn pr(
    w: &World,
    h: &Host,
    action: PrOutAction,
    kind: u8,
    key: u64,
    action_key: u64,
) -> CommandResult {
    let bytes = PrOutList { key, action_key, ..PrOutList::default() }.encode();
    let cdb = [0x5F, action as u8, kind, 0, 0, 0, 0, 0, bytes.len() as u8, 0];
    while w.run(h, 0, &TUR, 0, &[]).asc().0 == 6 {}
    w.run(h, 0, &cdb, 0, &bytes)
}

const REGISTER: PrOutAction = PrOutAction::RegisterAndIgnore;

/// A world reserved by the first of these nexuses; each with its role and whether it holds the
/// reservation or is registered.
fn reserved(kind: PrType) -> (World, Vec<(&'static str, Host, bool, bool)>) {
    // Of type 2: only such units have 32-byte commands.
    let w = World::protected(1, 96, 2);
    let holder = w.calm(0, "i1", &[0]);
    let other = w.calm(1, "i2", &[0]);
    let left = w.calm(0, "i3", &[0]);
    let before = w.calm(1, "i4", &[0]);
    let leaves = w.calm(0, "i5", &[0]);
    for (h, key) in [(&holder, 1), (&other, 2), (&left, 3), (&leaves, 5)] {
        pr(&w, h, REGISTER, 0, 0, key).good();
    }
    pr(&w, &holder, PrOutAction::Reserve, kind.code(), 1, 0).good();
    pr(&w, &left, REGISTER, 0, 0, 0).good();
    let port = leaves.session.port().transport_id.clone();
    leaves.session.close();
    let back = Host::login_as(&w.engines[1], "i5", &port).unwrap();
    let same_name = w.calm(1, "i1", &[0]);
    let after = w.calm(0, "i6", &[0]);
    let reset = w.calm(1, "i7", &[0]);
    let tag = reset.manage(TmFunction::LunReset, 0, None);
    w.turn();
    assert!(reset.outcome(tag).is_some());
    let all = vec![
        ("the holder", holder, true, true),
        ("a registrant", other, false, true),
        ("a registrant that left and came back on another core", back, false, true),
        ("one that unregistered", left, false, false),
        ("one that was there before", before, false, false),
        ("one that came after", after, false, false),
        ("another port of the holder's name", same_name, false, false),
        ("one that reset the unit", reset, false, false),
    ];
    (w, all)
}

#[test]
fn test_10_the_table_contains_every_disk_command() {
    for info in COMMANDS.iter().filter(|i| i.types.has(Types::DISK)) {
        let action = info.service_action.unwrap_or(0);
        let named = TABLE.iter().any(|t| (t.0, t.1) == (info.opcode, action));
        let own = has_own_rules(info.opcode, action);
        assert!(named != own, "{} ({:x}/{action:x})", info.name, info.opcode);
    }
}

#[test]
fn test_10_access_rules_hold_for_every_command_type_and_nexus() {
    let (mut tried, mut unknown) = (0, 0);
    for kind in PrType::ALL {
        let (w, nexuses) = reserved(kind);
        let code = kind.code();
        for (opcode, action, more, expect) in TABLE {
            let cdb = cdb(*opcode, *action, more);
            if is_unknown(&ask(&w, &nexuses[0].1, &cdb)) {
                unknown += 1;
                continue;
            }
            let letter = match code {
                1 | 5 | 7 => &expect[0..1],
                _ => &expect[1..2],
            };
            for (what, host, holds, registered) in &nexuses {
                let has_access = *holds || (code >= 5 && *registered);
                let before = w.disks[0].1.state().bytes.clone();
                let answer = ask(&w, host, &cdb);
                let conflicts = answer.status == CONFLICT;
                let want = !has_access && letter == "C";
                assert_eq!(conflicts, want, "{cdb:02x?} by {what} under {kind:?}: {answer:?}");
                if conflicts {
                    let same = before == w.disks[0].1.state().bytes;
                    assert!(same, "{cdb:02x?} by {what} under {kind:?} changed the medium");
                }
                tried += 1;
            }
        }
    }
    // Nothing hides behind "not served": the plain ones and the seven that others forgot.
    assert!(tried > 1800 && unknown < 6 * 25, "{tried} tried, {unknown} not served");
}

#[test]
fn test_10_access_rules_hold_for_every_command_under_reserve_6() {
    let w = World::protected(1, 96, 2);
    let holder = w.calm(0, "i1", &[0]);
    let others = [w.calm(1, "i2", &[0]), w.calm(0, "i1", &[0])];
    w.run(&holder, 0, &RESERVE6, 0, &[]).good();
    let late = w.calm_under_reserve(1, "i3");
    for (opcode, action, more, expect) in TABLE {
        let cdb = cdb(*opcode, *action, more);
        let own = ask(&w, &holder, &cdb);
        // PERSISTENT RESERVE conflicts with a RESERVE of one's own as well.
        assert_eq!(own.status == CONFLICT, *opcode == 0x5E, "{cdb:02x?}: {own:?}");
        if is_unknown(&own) {
            continue;
        }
        for host in others.iter().chain([&late]) {
            let conflicts = ask(&w, host, &cdb).status == CONFLICT;
            assert_eq!(conflicts, &expect[2..3] == "C", "{cdb:02x?}");
        }
    }
    for action in PrOutAction::ALL {
        for host in others.iter().chain([&holder]) {
            assert_eq!(pr(&w, host, action, 1, 0, 7).status, CONFLICT, "{action:?}");
        }
    }
}

/// SPC-4 table 68: who may send what while there is a reservation.
#[test]
fn test_10_persistent_reserve_out_actions_depend_on_registration() {
    use PrOutAction::*;
    for kind in PrType::ALL {
        let all = kind.is_all_registrants();
        let code = kind.code();
        let another = if code == 1 { 3 } else { 1 };
        // Action, type, whether it passes for: the holder, a registrant, one without registration.
        let rows = [
            (Register, 0, [true, true, true]),
            (RegisterAndIgnore, 0, [true, true, true]),
            (Reserve, code, [true, all, false]),
            (Reserve, another, [false, false, false]),
            (Release, code, [true, true, false]),
            (Clear, 0, [true, true, false]),
            (Preempt, code, [true, true, false]),
            (PreemptAndAbort, code, [true, true, false]),
        ];
        for (action, typed, passes) in rows {
            for (who, key) in [(0, 1), (1, 2), (4, 0)] {
                let (w, nexuses) = reserved(kind);
                let want = passes[match who {
                    0 => 0,
                    1 => 1,
                    _ => 2,
                }];
                // The key of the registrant that returned.
                let victim = if matches!(action, Preempt | PreemptAndAbort) { 5 } else { 8 };
                let answer = pr(&w, &nexuses[who].1, action, typed, key, victim);
                let got = answer.status != CONFLICT;
                assert_eq!(got, want, "{action:?} {typed} by {} under {kind:?}", nexuses[who].0);
                if want {
                    answer.good();
                }
            }
        }
    }
}
