//! Round trips and hand-made bytes for the PDUs of an initiator.

use super::*;
use crate::fuzzing::Prng;
use crate::iscsi::{Attribute, ScsiCommand};

/// A header with the given bytes, zero elsewhere.
fn header(fields: &[(usize, &[u8])]) -> Bhs {
    let mut out = [0; BHS_LEN];
    for (at, bytes) in fields {
        out[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    out
}

#[test]
fn read_command_matches_known_bytes() {
    // Immediate off, F and R set, simple task; READ(10) of one block at LBA 2.
    let cdb = [0x28, 0, 0, 0, 0, 2, 0, 0, 1, 0];
    let bhs = header(&[
        (0, &[0x01, 0xc1]),
        (8, &[0, 1, 0, 0, 0, 0, 0, 0]),
        (16, &[0, 0, 0, 9]),
        (20, &[0, 0, 2, 0]),
        (24, &[0, 0, 0, 5]),
        (28, &[0, 0, 0, 7]),
        (32, &cdb),
    ]);
    let Request::ScsiCommand(command) = Request::decode(&bhs, &[]).unwrap() else {
        panic!("not a command");
    };
    let head = command.header;
    assert!(head.read && head.last && !head.write && !head.immediate);
    assert_eq!(head.attribute, Attribute::Simple);
    assert_eq!((head.task_tag, head.transfer_len, head.cmd_sn, head.exp_stat_sn), (9, 512, 5, 7));
    assert_eq!(head.lun, [0, 1, 0, 0, 0, 0, 0, 0]);
    assert_eq!(head.cdb[..10], cdb);
    assert_eq!((command.read_limit(), command.write_limit()), (512, 0));
    let mut again = [0xff; BHS_LEN];
    head.encode(&mut again);
    assert_eq!(again, bhs);
}

#[test]
fn bidirectional_command_with_a_long_cdb_decodes_as_encoded() {
    let rest = [7u8; 16];
    let mut ahs = [0; 64];
    let ahs_len = crate::iscsi::encode_ahs(&rest, Some(4096), &mut ahs).unwrap();
    let head = ScsiCommand {
        last: true,
        read: true,
        write: true,
        task_tag: 1,
        transfer_len: 512,
        ahs_len: ahs_len as u16,
        data_len: 512,
        ..ScsiCommand::default()
    };
    let mut bhs = [0; BHS_LEN];
    head.encode(&mut bhs);
    assert_eq!(ahs_len_of(&bhs), ahs_len);
    let Request::ScsiCommand(pdu) = Request::decode(&bhs, &ahs[..ahs_len]).unwrap() else {
        panic!("not a command");
    };
    assert_eq!((pdu.header, pdu.cdb_rest), (head, &rest[..]));
    assert_eq!((pdu.read_limit(), pdu.write_limit()), (4096, 512));
    let short = Request::decode(&bhs, &ahs[..ahs_len - 4]);
    assert_eq!(short.unwrap_err().field, "TotalAHSLength");
}

#[test]
fn each_broken_rule_names_its_field() {
    let tag: (usize, &[u8]) = (16, &[0, 0, 0, 1]);
    let none: (usize, &[u8]) = (16, &[0xff; 4]);
    let cases: &[(Bhs, &str)] = &[
        (header(&[(0, &[0x01, 0x85]), tag]), "ATTR"),
        (header(&[(0, &[0x01, 0x80]), none]), "InitiatorTaskTag"),
        (header(&[(0, &[0x01, 0x40]), tag]), "F"),
        // Immediate data without W, and more of it than EDTL.
        (header(&[(0, &[0x01, 0xc0]), (7, &[4]), tag, (20, &[1])]), "DataSegmentLength"),
        (header(&[(0, &[0x01, 0xa0]), (7, &[4]), tag, (23, &[3])]), "DataSegmentLength"),
        (header(&[(0, &[0x02, 0x01]), tag]), "F"),
        (header(&[(0, &[0x02, 0x81]), (7, &[1]), tag]), "DataSegmentLength"),
        (header(&[(0, &[0x02, 0x81]), none]), "InitiatorTaskTag"),
        (header(&[(0, &[0x43, 0x87, 0, 0, 1])]), "TotalAHSLength"),
        (header(&[(0, &[0x04, 0xc0]), tag]), "C"),
        (header(&[(0, &[0x04, 0x80]), none]), "InitiatorTaskTag"),
        (header(&[(0, &[0x05, 0x80]), (7, &[2]), tag, (40, &[0xff; 4])]), "BufferOffset"),
        (header(&[(0, &[0x05, 0x80, 0, 0, 1]), tag]), "TotalAHSLength"),
        (header(&[(0, &[0x06, 0x83]), tag]), "ReasonCode"),
        (header(&[(0, &[0x06, 0x00]), tag]), "F"),
        (header(&[(0, &[0x10, 0x84]), tag]), "Type"),
        (header(&[(0, &[0x00, 0x80]), none]), "I"),
        (header(&[(0, &[0x00, 0x00]), tag]), "F"),
    ];
    for (bhs, field) in cases {
        assert_eq!(Request::decode(bhs, &[]).unwrap_err().field, *field, "{:02x?}", &bhs[..8]);
    }
}

#[test]
fn target_opcodes_and_undefined_opcodes_are_unknown() {
    for op in (0x07..=0x3f).filter(|op| *op != opcode::SNACK) {
        let bhs = header(&[(0, &[op, 0x80]), (16, &[0, 0, 0, 3])]);
        let want = Request::Unknown { opcode: op, task_tag: 3 };
        assert_eq!(Request::decode(&bhs, &[]).unwrap(), want);
    }
}

/// Encodes a decoded request and checks that the header decodes to the same request.
fn again(request: Request<'_>) -> Bhs {
    let mut out = [0xaa; BHS_LEN];
    match request {
        Request::NopOut(p) => p.encode(&mut out),
        Request::ScsiCommand(p) => p.header.encode(&mut out),
        Request::Task(p) => p.encode(&mut out),
        Request::Login(p) => p.encode(&mut out),
        Request::Text(p) => p.encode(&mut out),
        Request::DataOut(p) => p.encode(&mut out),
        Request::Logout(p) => p.encode(&mut out),
        Request::Snack(p) => p.encode(&mut out),
        Request::Unknown { opcode, task_tag } => start(&mut out, opcode, 0, 0, task_tag),
    }
    out
}

#[test]
fn random_headers_decode_and_encode_unchanged() {
    let mut rng = Prng::new(1);
    let mut good = [0usize; 0x40];
    for _ in 0..20_000 {
        let mut bhs = [0; BHS_LEN];
        rng.fill(&mut bhs);
        bhs[0] = [0, 1, 2, 3, 4, 5, 6, 0x10][rng.below(8)] | (bhs[0] & 0x40);
        bhs[4] = 0;
        if rng.below(4) != 0 {
            bhs[5..8].fill(0);
        }
        if let Ok(request) = Request::decode(&bhs, &[]) {
            good[usize::from(opcode_of(&bhs))] += 1;
            let encoded = again(request);
            assert_eq!(Request::decode(&encoded, &[]).unwrap(), request);
        }
    }
    for op in [0, 1, 2, 3, 4, 5, 6, 0x10] {
        assert!(good[op] > 10, "opcode {op:#x} was never read");
    }
}
