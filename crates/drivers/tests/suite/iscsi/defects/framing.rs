//! Bytes that are no PDUs, or PDUs in pieces (inputs 1 to 7).

use std::io::Write;

use wire::iscsi::{LoginRequest, NopOut, Pdu, RejectReason, Response, Snack, TAG_NONE};

use super::Fixture;
use crate::iscsi::breaking::twisted;
use testkit::iscsi::initiator::{LoginOptions, rw10};

const OPCODES: [u8; 8] = [0, 1, 2, 3, 4, 5, 6, 0x10];

#[test]
fn a_first_pdu_that_is_no_login_ends_the_connection() {
    // SPDK 3927 and CVE-2021-28361: any other opcode before login killed the target.
    let mut fixture = Fixture::new();
    for opcode in (0..=0xffu8).filter(|o| o & 0x3f != 3) {
        for fill in [0, 0xff] {
            let mut raw = fixture.dial();
            let mut bhs = [fill; 48];
            // No data and no additional headers: the header alone must do it.
            (bhs[0], bhs[4], bhs[5], bhs[6], bhs[7]) = (opcode, 0, 0, 0, 0);
            let _ = raw.stream.write_all(&bhs);
            assert!(raw.is_closed(), "{opcode:#x} {fill:#x}");
        }
    }
    fixture.well("first PDUs that are none");
}

#[test]
fn lengths_before_login_are_bounded() {
    // tgt 093d2bf, input 3: a length larger than the buffer, before anyone has logged in.
    let mut fixture = Fixture::new();
    for len in [8192u32 + 65_536, 1 << 20, 0x7f_ffff, 0xff_ffff] {
        let mut raw = fixture.dial();
        let mut bhs = [0; 48];
        LoginRequest { stage: 1, ..LoginRequest::default() }.encode(&mut bhs);
        bhs[5..8].copy_from_slice(&len.to_be_bytes()[1..]);
        raw.stream.write_all(&bhs).unwrap();
        assert!(raw.is_closed(), "{len}");
    }
    for ahs in [1u8, 0xff] {
        let mut raw = fixture.dial();
        let mut bhs = [0; 48];
        LoginRequest { stage: 1, ..LoginRequest::default() }.encode(&mut bhs);
        bhs[4] = ahs;
        raw.stream.write_all(&bhs).unwrap();
        let _ = raw.stream.write_all(&[0xee; 1020]);
        assert!(raw.is_closed(), "additional headers: {ahs} words");
    }
    fixture.well("long logins");
}

#[test]
fn truncated_login_header_closes_the_connection() {
    // Input 15, CVE-2026-53176: a length that becomes negative when the header is taken off.
    let mut fixture = Fixture::new();
    let mut bhs = [0; 48];
    LoginRequest { stage: 1, data_len: 100, ..LoginRequest::default() }.encode(&mut bhs);
    for at in 0..=48 {
        let mut raw = fixture.dial();
        raw.stream.write_all(&bhs[..at]).unwrap();
        raw.stream.shutdown(std::net::Shutdown::Write).unwrap();
        assert!(raw.is_closed(), "{at} bytes");
    }
    fixture.well("logins cut short");
}

#[test]
fn opcodes_not_sent_by_initiators_are_rejected() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    for opcode in (0..0x80u8).filter(|o| !OPCODES.contains(&(o & 0x3f))) {
        twisted(&mut c, &NopOut::default(), &[], &[(0, opcode)]);
        let (reason, header) = c.rejected();
        assert_eq!(reason, RejectReason::Unsupported, "{opcode:#x}");
        assert_eq!((header.len(), header[0]), (48, opcode), "the header that was wrong comes back");
    }
    assert_eq!(c.read(0, 0, 1).len(), 512);
    drop(c);
    fixture.well("unknown opcodes");
}

#[test]
fn reserved_bits_are_ignored_or_rejected() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    // TEST UNIT READY with each byte of its header that means nothing set.
    for (at, bits) in [(0, 0x80), (1, 0x18), (2, 0xff), (3, 0xff), (36, 0xff)] {
        let pdu = c.command(0, &[0; 6], 0, 0);
        let mut bytes = c.bytes(&pdu, &[], &[]);
        if at == 36 {
            // Bytes of the CDB's field behind a CDB of six.
            bytes[38..48].fill(bits);
        } else {
            bytes[at] |= bits;
        }
        c.raw(&bytes);
        match c.expect() {
            (Response::Scsi(end), _) => assert_eq!(end.task_tag, pdu.task_tag),
            (Response::Reject(_), _) => {}
            other => panic!("byte {at}: {other:?}"),
        }
    }
    // The immediate bit of a SNACK is reserved.
    twisted(&mut c, &Snack::default(), &[], &[(0, 0x50)]);
    assert!(matches!(c.expect().0, Response::Reject(_)));
    assert_eq!(c.ping(b"alive"), b"alive");
    drop(c);
    fixture.well("reserved bits");
}

#[test]
fn connection_resets_at_each_byte_affect_no_other_session() {
    let mut fixture = Fixture::new();
    for at in (0..=60).chain([100, 300, 559, 560]) {
        let mut c = fixture.client();
        let ping = NopOut {
            immediate: true,
            task_tag: 7,
            target_tag: TAG_NONE,
            cmd_sn: c.cmd_sn,
            ..NopOut::default()
        };
        c.send(&ping, &[]);
        // An unread answer makes the end of the connection a reset.
        c.stream.peek(&mut [0]).unwrap();
        let mut pdu = c.command(0, &rw10(0x2a, 100, 1), 0, 512);
        pdu.data_len = 512;
        let bytes = c.bytes(&pdu, &[], &[7; 512]);
        c.raw(&bytes[..at.min(bytes.len())]);
    }
    fixture.well("resets inside PDUs");
}

#[test]
fn missing_padding_affects_only_its_own_connection() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    let ping = NopOut {
        immediate: true,
        task_tag: 7,
        target_tag: TAG_NONE,
        cmd_sn: c.cmd_sn,
        data_len: 5,
        ..NopOut::default()
    };
    let mut bytes = c.bytes(&ping, &[], b"12345");
    bytes.truncate(53);
    for _ in 0..20 {
        c.try_raw(&bytes);
    }
    drop(c);
    fixture.well("pads left out");
}

#[test]
fn a_length_is_not_used_before_its_digest_has_been_checked() {
    // SPDK 108c373f7c: a corrupt length would make the target wait for data that never arrives.
    let mut fixture = Fixture::new();
    for at in 4..8 {
        let mut c = fixture.client_as(&LoginOptions::default().digests(true, true));
        let pdu = c.command(0, &rw10(0x28, 0, 1), 512, 0);
        twisted(&mut c, &pdu, &[], &[(at, 0x7f)]);
        if at == 4 {
            // The digest is behind the additional headers.
            c.try_raw(&[0; 0x7f * 4 + 4]);
        }
        c.closed();
    }
    fixture.well("corrupt lengths");
}

#[test]
fn data_is_correct_for_any_segmentation_of_the_stream() {
    // gotgt 46: a short read of a header corrupted data. Input 7.
    let mut fixture = Fixture::new();
    for (i, segment) in
        [1, 2, 3, 5, 7, 13, 31, 47, 48, 49, 52, 53, 511, 1461].into_iter().enumerate()
    {
        let how =
            LoginOptions { segment, ..LoginOptions::default() }.digests(i % 2 == 0, i % 3 == 0);
        let mut c = fixture.client_as(&how);
        let sent: Vec<u8> = (0..3 * 512usize).map(|n| (n * 7 + segment) as u8).collect();
        assert_eq!(c.write(40, &sent, 700).status, 0, "{segment}");
        assert_eq!(c.read(0, 40, 3), sent, "{segment}");
        c.logout();
    }
    fixture.well("streams in pieces");
}
