//! Commands with false fields (inputs 17 to 26): lengths, units, ranges and parameter lists.

use wire::iscsi::{Residual, Response, TaskAnswer, task_function};

use super::Fixture;
use testkit::Seeds;
use testkit::iscsi::initiator::{Client, LoginOptions, sense};

/// Sends a command for `lun` and waits for its end of any kind; requested data is not sent, the
/// command is aborted instead.
fn try_command(c: &mut Client, lun: [u8; 8], cdb: &[u8], read: u32, write: u32) -> Ended {
    let mut pdu = c.command(0, cdb, read, write);
    pdu.lun = lun;
    c.send(&pdu, &[]);
    ended(c, pdu.task_tag)
}

/// As [`try_command`] with data beside the command.
fn with_list(c: &mut Client, lun: u8, cdb: &[u8], list: &[u8]) -> Ended {
    let mut pdu = c.command(lun, cdb, 0, list.len() as u32);
    pdu.data_len = list.len() as u32;
    c.send(&pdu, list);
    ended(c, pdu.task_tag)
}

#[derive(Debug)]
struct Ended {
    status: Option<u8>,
    sense: (u8, u8, u8),
    data: Vec<u8>,
    residual: Residual,
}

fn ended(c: &mut Client, tag: u32) -> Ended {
    let mut end =
        Ended { status: None, sense: (0, 0, 0), data: Vec::new(), residual: Residual::None };
    loop {
        match c.expect() {
            (Response::DataIn(p), piece) => {
                assert_eq!((p.task_tag, p.offset as usize), (tag, end.data.len()));
                end.data.extend(piece);
                if let Some((status, residual)) = p.status {
                    (end.status, end.residual) = (Some(status), residual);
                    return end;
                }
            }
            (Response::Scsi(p), bytes) => {
                assert_eq!(p.task_tag, tag);
                (end.status, end.residual) = (Some(p.status), p.residual);
                if p.status == 2 {
                    end.sense = sense(&bytes);
                }
                return end;
            }
            (Response::R2t(r), _) => {
                assert!(r.desired_len > 0 && r.desired_len <= c.params.max_burst);
                let pdu = wire::iscsi::TaskRequest {
                    immediate: true,
                    function: task_function::ABORT_TASK,
                    lun: [0, 1, 0, 0, 0, 0, 0, 0],
                    task_tag: c.next_tag(),
                    referenced_tag: tag,
                    ref_cmd_sn: c.cmd_sn.wrapping_sub(1),
                    cmd_sn: c.cmd_sn,
                    ..Default::default()
                };
                c.send(&pdu, &[]);
                loop {
                    match c.expect().0 {
                        Response::Task(t) => {
                            assert_eq!(t.answer, TaskAnswer::Complete);
                            return end;
                        }
                        Response::R2t(_) => {}
                        other => panic!("{other:?}"),
                    }
                }
            }
            (Response::NopIn(_), _) => {}
            (Response::Reject(_), _) => return end,
            other => panic!("{other:?}"),
        }
    }
}

const NULL: [u8; 8] = [0, 1, 0, 0, 0, 0, 0, 0];

#[test]
fn every_opcode_and_expected_length_is_answered() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    let expected = [(0, 0), (1, 0), (512, 0), (u32::MAX, 0), (0, 1), (0, u32::MAX)];
    for seed in Seeds::of(1) {
        let mut random = reactor::SeededRandom::new(seed);
        for opcode in 0..=255u8 {
            for fill in 0..3 {
                let mut cdb = [0u8; 16];
                match fill {
                    0 => {}
                    1 => cdb.fill(0xff),
                    _ => cdb.iter_mut().for_each(|b| *b = random.next_u64() as u8),
                }
                cdb[0] = opcode;
                // Transfers of gigabytes are for another test.
                if matches!(opcode, 0xa8 | 0x88 | 0x28 | 0x08) {
                    cdb[6..13].fill(0);
                }
                for (read, write) in expected {
                    let end = try_command(&mut c, NULL, &cdb, read, write);
                    assert!(end.data.len() as u64 <= u64::from(read), "{cdb:02x?}");
                }
            }
        }
    }
    assert_eq!(c.ping(b"alive"), b"alive");
    drop(c);
    fixture.well("every opcode");
}

#[test]
fn luns_of_every_addressing_method_are_answered() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    let inquiry = [0x12, 0, 0, 0, 36, 0];
    for first in 0..=255u8 {
        for second in [0, 1, 3, 255] {
            let lun = [first, second, 0, 0, 0, 0, 0, 0];
            let end = try_command(&mut c, lun, &inquiry, 36, 0);
            // INQUIRY always has an answer: the unit, or that there is none (SCST 2024-08).
            // Peripheral and flat addressing name them; other methods may.
            let must = matches!((first, second), (0 | 0x40, 0 | 1));
            let may = must || (first >= 0x80 && second <= 1);
            let known = end.status == Some(0) && end.data[0] == 0;
            assert!(known == must || known == may, "{lun:02x?}: {end:02x?}");
            if end.status != Some(0) {
                assert_eq!(end.sense, (5, 0x25, 0), "{lun:02x?}");
            }
            let end = try_command(&mut c, lun, &[0; 6], 0, 0);
            assert_eq!(end.status == Some(0), known, "{lun:02x?}");
        }
    }
    for deep in [[0, 0, 0, 1, 0, 0, 0, 0], [0, 0, 0, 0, 0, 0, 0, 1], [0xff; 8]] {
        assert_eq!(try_command(&mut c, deep, &[0; 6], 0, 0).sense, (5, 0x25, 0), "{deep:02x?}");
    }
    // VPD pages of a unit that is not there.
    for page in 0..=255 {
        let end =
            try_command(&mut c, [0, 77, 0, 0, 0, 0, 0, 0], &[0x12, 1, page, 0, 255, 0], 255, 0);
        assert!(end.status.is_some());
    }
    drop(c);
    fixture.well("odd LUNs");
}

#[test]
fn ranges_that_overflow_are_out_of_range() {
    // tgt 2012, SCST 2017 and 2023: LBA and length overflow when they are added.
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    for opcode in [0x88u8, 0x8a, 0x8f, 0x8e, 0x93, 0x91, 0x9c] {
        for lba in
            [1u64 << 63, u64::MAX, u64::MAX - 7, 1 << 55, 1 << 31 << 1, (1 << 31) + (1 << 32)]
        {
            for blocks in [1u32, 8] {
                let mut cdb = [0; 16];
                cdb[0] = opcode;
                cdb[2..10].copy_from_slice(&lba.to_be_bytes());
                cdb[10..14].copy_from_slice(&blocks.to_be_bytes());
                if opcode == 0x8f {
                    cdb[1] = 0; // VERIFY without data
                }
                let (read, write) = match opcode {
                    0x88 => (blocks * 512, 0),
                    0x8a | 0x8e | 0x93 => (0, blocks * 512),
                    _ => (0, 0),
                };
                let end = try_command(&mut c, NULL, &cdb, read, write);
                assert_eq!(end.status, Some(2), "{opcode:#x} {lba:#x}");
                let is_refusal = matches!(end.sense, (5, 0x21, 0) | (5, 0x20, 0) | (5, 0x24, 0));
                assert!(is_refusal, "{opcode:#x} {lba:#x} {blocks}: {:x?}", end.sense);
            }
        }
    }
    drop(c);
    fixture.well("ranges that overflow");
}

#[test]
fn parameter_lists_of_every_length_are_answered() {
    // PR OUT (SCST 2019, 2020), MODE SELECT, UNMAP, EXTENDED COPY, RECEIVE COPY, WRITE SAME,
    // COMPARE AND WRITE (SCST 2019 and 328), WRITE BUFFER, FORMAT UNIT (tcmu-runner 3b93531),
    // SEND DIAGNOSTIC, SET TARGET PORT GROUPS: each list shorter than its length field, and lying.
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    for seed in Seeds::of(1) {
        let mut random = reactor::SeededRandom::new(seed);
        for (opcode, action, at, width) in [
            (0x15u8, 0x10u8, 4usize, 1usize),
            (0x55, 0x11, 7, 2),
            (0x5f, 0x00, 5, 4),
            (0x5f, 0x06, 5, 4),
            (0x5f, 0x07, 5, 4),
            (0x42, 0x00, 7, 2),
            (0x83, 0x00, 10, 4),
            (0x83, 0x01, 10, 4),
            (0x83, 0x10, 10, 4),
            (0x83, 0x11, 10, 4),
            (0x04, 0x10, 7, 1),
            (0x04, 0x18, 7, 1),
            (0x1d, 0x10, 3, 2),
            (0x3b, 0x02, 6, 3),
            (0xa4, 0x0a, 6, 4),
            (0xa4, 0x0f, 6, 4),
            (0x89, 0x00, 10, 4),
            (0x93, 0x00, 10, 4),
            (0x41, 0x00, 7, 2),
        ] {
            for len in (0..64usize).chain([128, 255, 512, 1024, 2048]) {
                for claimed in [len, len + 8, 0] {
                    let mut cdb = [0u8; 16];
                    (cdb[0], cdb[1]) = (opcode, action);
                    let claim = (claimed as u64).to_be_bytes();
                    cdb[at..at + width].copy_from_slice(&claim[8 - width..]);
                    let list: Vec<u8> = match len % 3 {
                        0 => vec![0; len],
                        1 => vec![0xff; len],
                        _ => (0..len).map(|_| random.next_u64() as u8 & 0x3f).collect(),
                    };
                    with_list(&mut c, 1, &cdb, &list);
                }
            }
            assert_eq!(c.ping(b"alive"), b"alive", "{opcode:#x}");
        }
    }
    drop(c);
    fixture.well("lists that lie");
}

#[test]
fn reports_of_unknown_operation_codes_are_bounded() {
    // CVE-2024-42416: service actions of 32 and more read beyond a table.
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    for option in 0..8u8 {
        for opcode in 0..=255u8 {
            for action in [0u16, 1, 31, 32, 33, 255, 256, 0x7fff, 0xffff] {
                let [high, low] = action.to_be_bytes();
                let cdb = [0xa3, 0x0c, option, opcode, high, low, 0, 0, 1, 0, 0, 0];
                let end = try_command(&mut c, NULL, &cdb, 256, 0);
                assert!(end.data.len() <= 256 && end.status.is_some());
                if option == 0 && (opcode, action) != (0, 0) {
                    break;
                }
            }
            if option == 0 {
                break;
            }
        }
    }
    drop(c);
    fixture.well("reports of commands");
}

#[test]
fn buffer_commands_at_every_offset_stay_within_their_length() {
    // CVE-2024-8178, CVE-2024-45063: offsets outside of the buffer; CVE-2024-43110: REQUEST SENSE
    // longer than the sense data.
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    for mode in 0..32u8 {
        for id in [0, 1, 255] {
            for offset in [0u32, 1, 511, 4096, 0x7f_ffff, 0xff_ffff] {
                let o = offset.to_be_bytes();
                for len in [0u8, 4, 255] {
                    let read = [0x3c, mode, id, o[1], o[2], o[3], 0, 0, len, 0];
                    let end = try_command(&mut c, NULL, &read, 256, 0);
                    assert!(end.data.len() <= usize::from(len));
                }
                let write = [0x3b, mode, id, o[1], o[2], o[3], 0, 0, 64, 0];
                with_list(&mut c, 1, &write, &[0xa5; 64]);
            }
        }
    }
    for len in 0..=255u8 {
        for descriptor in [0, 1] {
            let cdb = [3, descriptor, 0, 0, len, 0];
            let end = try_command(&mut c, NULL, &cdb, 256, 0);
            assert_eq!(end.status, Some(0));
            assert!(end.data.len() <= usize::from(len).min(252));
        }
    }
    drop(c);
    fixture.well("buffers");
}

#[test]
fn inquiry_data_is_truncated_to_the_allocation_length() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    let whole = try_command(&mut c, NULL, &[0x12, 0, 0, 0xff, 0xff, 0], 65_535, 0).data;
    let page = try_command(&mut c, NULL, &[0x12, 1, 0x83, 0xff, 0xff, 0], 65_535, 0).data;
    for len in (0..=300u16).chain((301..=65_535).step_by(997)).chain([65_535]) {
        let [high, low] = len.to_be_bytes();
        let cut = |all: &[u8]| all[..all.len().min(usize::from(len))].to_vec();
        let end = try_command(&mut c, NULL, &[0x12, 0, 0, high, low, 0], 65_535, 0);
        assert_eq!(end.data, cut(&whole), "{len}");
        let end = try_command(&mut c, NULL, &[0x12, 1, 0x83, high, low, 0], 65_535, 0);
        assert_eq!(end.data, cut(&page), "{len}");
        let left = 65_535 - cut(&page).len() as u32;
        assert_eq!(end.residual, Residual::Underflow(left).or_none());
    }
    drop(c);
    fixture.well("inquiries");
}

trait OrNone {
    fn or_none(self) -> Residual;
}

impl OrNone for Residual {
    fn or_none(self) -> Residual {
        if self == Residual::Underflow(0) { Residual::None } else { self }
    }
}

#[test]
fn long_cdb_with_a_wrong_length_is_refused() {
    // SCST 2025-09: the control byte of a long CDB; additional headers that do not fit the CDB.
    let mut fixture = Fixture::new();
    let mut c = fixture.client_as(&LoginOptions::default());
    for additional in [0u8, 7, 8, 24, 248, 255] {
        for rest in [0usize, 4, 16, 244] {
            let mut pdu = c.command(1, &[0x7f, 0, 0, 0, 0, 0, 0, additional, 0, 9], 512, 0);
            let mut ahs = Vec::new();
            if rest > 0 {
                ahs.extend((rest as u16 + 1).to_be_bytes());
                ahs.extend([1, 0]);
                ahs.extend(vec![0x5a; rest]);
            }
            pdu.ahs_len = ahs.len() as u16;
            let bytes = c.bytes(&pdu, &ahs, &[]);
            c.raw(&bytes);
            let end = ended(&mut c, pdu.task_tag);
            assert_ne!(end.status, Some(0), "{additional} {rest}");
        }
    }
    assert_eq!(c.ping(b"alive"), b"alive");
    drop(c);
    fixture.well("long CDBs");
}
