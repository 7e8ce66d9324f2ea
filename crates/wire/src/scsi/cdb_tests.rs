//! CDBs by hand, and every bit outside the usage maps.

use super::*;
use crate::fuzzing::Prng;
use crate::scsi::{COMMANDS, Types};

fn run(lba: u64, blocks: u32) -> Extent {
    Extent::new(lba, blocks)
}

const TYPES: [PeripheralType; 2] = [PeripheralType::Disk, PeripheralType::Cdrom];

#[test]
fn commands_are_parsed_from_known_bytes() {
    let cases: &[(&[u8], Command)] = &[
        (&[0; 6], Command::TestUnitReady),
        (&[3, 1, 0, 0, 252, 0], Command::RequestSense { descriptor: true, alloc: 252 }),
        (&[0x12, 0, 0, 1, 2, 0], Command::Inquiry { page: None, alloc: 258 }),
        (&[0x12, 1, 0x83, 0, 255, 0], Command::Inquiry { page: Some(0x83), alloc: 255 }),
        (&[0x08, 0x1f, 0xff, 0xff, 0, 0], Command::Read(run(0x1f_ffff, 256))),
        (&[0x0a, 0, 0, 9, 1, 0], Command::Write(run(9, 1))),
        (
            &[0x28, 0x18, 0, 0, 1, 0, 0, 0x12, 0x34, 0],
            Command::Read(Extent { dpo: true, fua: true, ..run(256, 0x1234) }),
        ),
        (&[0xaa, 0, 0, 0, 0, 1, 0, 1, 0, 0, 0, 0], Command::Write(run(1, 65536))),
        (
            &[0x88, 0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 1, 0, 0],
            Command::Read(run(u64::MAX, 1)),
        ),
        (&[0x2f, 0x06, 0, 0, 0, 2, 0, 0, 3, 0], Command::Verify { extent: run(2, 3), check: 3 }),
        (
            &[0x35, 2, 0, 0, 0, 5, 0, 0, 6, 0],
            Command::SynchronizeCache { lba: 5, blocks: 6, immed: true },
        ),
        (&[0x34, 2, 0, 0, 0, 5, 3, 0, 6, 0], Command::PreFetch { lba: 5, blocks: 6, immed: true }),
        (&[0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0], Command::Unmap { anchor: false, len: 24 }),
        (
            &[0x93, 0x09, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0],
            Command::WriteSame {
                lba: 1,
                blocks: 2,
                unmap: true,
                anchor: false,
                no_data: true,
                protect: 0,
                tags: None,
            },
        ),
        (
            &[0x5a, 0x18, 0x88, 0, 0, 0, 0, 1, 0, 0],
            Command::ModeSense {
                ten: true,
                long_lba: true,
                no_blocks: true,
                control: PageControl::Default,
                page: 8,
                subpage: 0,
                alloc: 256,
            },
        ),
        (
            &[0x15, 0x11, 0, 0, 24, 0],
            Command::ModeSelect { ten: false, page_format: true, save: true, len: 24 },
        ),
        (
            &[0x1b, 1, 0, 0, 0x32, 0],
            Command::StartStop {
                immed: true,
                power: 3,
                modifier: 0,
                no_flush: false,
                eject: true,
                start: false,
            },
        ),
        (&[0x1e, 0, 0, 0, 1, 0], Command::PreventAllow { prevent: 1 }),
        (&[0x25, 0, 0, 0, 0, 0, 0, 0, 0, 0], Command::ReadCapacity10),
        (
            &[0x9e, 0x10, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 32, 0, 0],
            Command::ReadCapacity16 { alloc: 32 },
        ),
        (
            &[0x9e, 0x12, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 24, 0, 0],
            Command::GetLbaStatus { lba: 7, alloc: 24 },
        ),
        (
            &[0xa0, 0, 2, 0, 0, 0, 0, 0, 0x10, 0, 0, 0],
            Command::ReportLuns { select: LunSelect::All, alloc: 4096 },
        ),
        (
            &[0xa3, 0x2a, 0, 0, 0, 0, 0, 0, 0, 64, 0, 0],
            Command::ReportTargetPortGroups { extended: true, alloc: 64 },
        ),
        (
            &[0xa3, 0x0c, 0x82, 0x9e, 0, 0x10, 0, 0, 1, 0, 0, 0],
            Command::ReportOpcodes {
                report: Report::Action(0x9e, 0x10),
                timeouts: true,
                alloc: 256,
            },
        ),
    ];
    for (cdb, want) in cases {
        assert_eq!(Command::parse(cdb), Ok(*want), "{cdb:02x?}");
        let mut padded = [0; 16];
        padded[..cdb.len()].copy_from_slice(cdb);
        assert_eq!(Command::parse(&padded), Ok(*want));
        padded[cdb.len()..].fill(0xff);
        assert_eq!(Command::parse(&padded), Ok(*want), "bytes after the command are ignored");
        for cut in 0..cdb.len() {
            assert!(Command::parse(&cdb[..cut]).is_err());
        }
    }
}

/// Commands that were added with the whole table, by hand.
#[test]
fn less_common_commands_are_parsed_from_known_bytes() {
    let tags = Some(Tags { reference: 0x01020304, application: 0x0506, mask: 0xff00 });
    let mut long = vec![0x7f, 4, 0, 0, 0, 0, 0, 24, 0, 9, 0x38, 0];
    long.extend([0, 0, 0, 1, 0, 0, 0, 2, 1, 2, 3, 4, 5, 6, 0xff, 0, 0, 0, 0, 8]);
    let extent = Extent { fua: true, dpo: true, protect: 1, tags, ..run(0x1_0000_0002, 8) };
    let verify = Extent { fua: false, dpo: false, ..extent };
    let mut long_verify = long.clone();
    (long_verify[9], long_verify[10]) = (10, 0x26);
    let cases: &[(&[u8], Command)] = &[
        (&long, Command::Read(extent)),
        (&long_verify, Command::Verify { extent: verify, check: 3 }),
        (
            &[0x89, 0x08, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0, 3, 0, 0],
            Command::CompareWrite(Extent { fua: true, ..run(9, 3) }),
        ),
        (
            &[0x9c, 0x20, 0, 0, 0, 0, 0, 0, 0, 9, 0, 4, 0, 8, 0, 0],
            Command::WriteAtomic { extent: Extent { protect: 1, ..run(9, 8) }, boundary: 4 },
        ),
        (&[0x8b, 0, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 1, 0, 0, 0], Command::OrWrite(run(9, 256))),
        (
            &[0x48, 0xa2, 0, 0, 0, 0, 0, 0, 0, 0],
            Command::Sanitize {
                action: SanitizeAction::BlockErase,
                immed: true,
                unrestricted: true,
                len: 0,
            },
        ),
        (
            &[0x5f, 6, 0x05, 0, 0, 0, 0, 0, 24, 0],
            Command::PersistentOut {
                action: PrOutAction::RegisterAndIgnore,
                scope: 0,
                kind: 5,
                len: 24,
            },
        ),
        (
            &[0x84, 5, 1, 2, 3, 4, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0],
            Command::CopyStatus { action: CopyStatus::StatusLid4, list_id: 0x01020304, alloc: 256 },
        ),
        (
            &[0x83, 0x10, 0, 0, 0, 0, 0, 0, 0, 7, 0, 0, 1, 0, 0, 0],
            Command::CopyOut { action: CopyOut::PopulateToken, list_id: 7, len: 256 },
        ),
        (
            &[0x4d, 0, 0x59, 0, 0, 0, 2, 1, 0, 0],
            Command::LogSense {
                save: false,
                control: LogControl::Cumulative,
                page: 0x19,
                subpage: 0,
                from: 2,
                alloc: 256,
            },
        ),
        (
            &[0x9b, 2, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 16, 5, 0],
            Command::ReadBuffer { mode: 2, id: 5, offset: 256, alloc: 16 },
        ),
        (
            &[0xa3, 5, 0, 0, 0, 0, 0, 0, 0, 8, 0xfe, 0],
            Command::ReportIdentifying { kind: 0x7f, alloc: 8 },
        ),
        (&[0xa4, 0x0f, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0], Command::SetTimestamp { len: 12 }),
        (
            &[0xb7, 0x0d, 0, 0, 0, 3, 0, 0, 0, 8, 0, 0],
            Command::ReadDefects {
                twelve: true,
                primary: false,
                grown: true,
                format: 5,
                index: 3,
                alloc: 8,
            },
        ),
    ];
    for (cdb, want) in cases {
        assert_eq!(Command::parse(cdb), Ok(*want), "{cdb:02x?}");
    }
    let (toc, _) =
        Command::parse_for(PeripheralType::Cdrom, &[0x43, 2, 1, 0, 0, 0, 0xaa, 0, 12, 0]).unwrap();
    assert_eq!(toc, Command::ReadToc { msf: true, format: 1, track: 0xaa, alloc: 12 });
}

#[test]
fn bits_outside_the_usage_map_are_refused_with_a_field_pointer() {
    for (info, kind) in COMMANDS.iter().flat_map(|info| TYPES.map(|kind| (info, kind))) {
        if !info.types.has(Types::of(kind)) {
            continue;
        }
        let mut base = vec![0; 32];
        base[0] = info.opcode;
        let long = info.opcode == 0x7f;
        if long {
            base[7..10].copy_from_slice(&info.usage[7..10]);
        } else {
            base[1] = info.service_action.unwrap_or(0) as u8;
        }
        for (byte, bit) in (1..info.cdb_len()).flat_map(|byte| (0..8u8).map(move |b| (byte, b))) {
            let action = match long {
                true => (7..10).contains(&byte),
                false => byte == 1 && info.service_action.is_some() && bit < 5,
            };
            if action || info.usage[byte] & (1 << bit) != 0 {
                continue;
            }
            let mut cdb = base.clone();
            cdb[byte] |= 1 << bit;
            let want = CdbError::Field { byte: byte as u16, bit: Some(bit) };
            let got = Command::parse_for(kind, &cdb).map(|_| ());
            assert_eq!(got, Err(want), "{}", info.name);
        }
    }
}

#[test]
fn invalid_field_values_are_refused_with_a_field_pointer() {
    let mut same = [0u8; 16];
    (same[0], same[1]) = (0x93, 0x10);
    for (cdb, byte, bit) in [
        (&[0x12, 0, 0x80, 0, 255, 0][..], 2, None),
        (&[0x2f, 0x04, 0, 0, 0, 2, 0, 0, 3, 0], 1, Some(2)),
        (&[0xa0, 0, 3, 0, 0, 0, 0, 0, 0x10, 0, 0, 0], 2, None),
        (&[0xa3, 0x0c, 4, 0, 0, 0, 0, 0, 1, 0, 0, 0], 2, Some(2)),
        (&[0xa3, 0x4a, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0], 1, Some(7)),
        (&[0x28, 0x01, 0, 0, 0, 0, 0, 0, 1, 0], 1, Some(0)),
        (&same, 1, Some(4)),
    ] {
        assert_eq!(Command::parse(cdb), Err(CdbError::Field { byte, bit }), "{cdb:02x?}");
    }
    let sense = Command::parse(&[0xff; 16]).unwrap_err().sense();
    assert_eq!(sense.code, asc::INVALID_OPCODE);
    let sense = Command::parse(&[0x9e; 16]).unwrap_err().sense();
    assert_eq!(sense, Sense::cdb_field(1, Some(4)));
}

#[test]
fn extents_do_not_overflow() {
    assert!(run(0, 0).fits(0) && run(8, 0).fits(8) && !run(9, 0).fits(8));
    assert!(run(7, 1).fits(8) && !run(8, 1).fits(8));
    assert!(!run(u64::MAX, 1).fits(u64::MAX) && run(u64::MAX, 0).fits(u64::MAX));
    assert_eq!(run(u64::MAX, 1).end(), None);
}

#[test]
fn random_cdbs_never_panic() {
    let mut rng = Prng::new(6);
    let mut good = 0;
    for _ in 0..50_000 {
        let mut cdb = [0u8; 32];
        rng.fill(&mut cdb);
        let info = &COMMANDS[rng.below(COMMANDS.len())];
        for (byte, mask) in cdb.iter_mut().zip(info.usage) {
            *byte &= *mask;
        }
        cdb[0] = info.opcode;
        if info.opcode == 0x7f {
            cdb[7..10].copy_from_slice(&info.usage[7..10]);
        }
        let kind = TYPES[rng.below(2)];
        good += usize::from(Command::parse_for(kind, &cdb).is_ok());
    }
    assert!(good > 10_000);
}
