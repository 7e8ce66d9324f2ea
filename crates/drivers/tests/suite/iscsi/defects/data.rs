//! Data that does not belong where it is sent (inputs 27 to 30), and every way to move it.

use wire::iscsi::{Residual, Response, TAG_NONE};

use super::Fixture;
use testkit::iscsi::initiator::{Client, LoginOptions, rw10, sense};

/// INVALID FIELD IN COMMAND INFORMATION UNIT.
const CUT: (u8, u8, u8) = (5, 0x0e, 3);

/// UNMAP and MODE SELECT(6) whose lists have 24 bytes.
const UNMAP: [u8; 10] = [0x42, 0, 0, 0, 0, 0, 0, 0, 24, 0];
const MODE_SELECT: [u8; 6] = [0x15, 0x10, 0, 0, 24, 0];

fn pattern(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 31 + i / 512 + seed) as u8).collect()
}

#[test]
fn data_for_another_connections_command_is_not_stored() {
    let mut fixture = Fixture::new();
    let mut mine = fixture.client();
    let mut thief = fixture.client_as(&LoginOptions::default().isid(2));
    let (tag, target_tag) = mine.open_write(10, 4096);
    thief.tag = tag.wrapping_sub(1);
    thief.data_out(tag, target_tag, 0, 0, &[0xee; 4096], true);
    thief.data_out(tag, TAG_NONE, 0, 0, &[0xee; 4096], true);
    assert_eq!(thief.ping(b"alive"), b"alive");
    let sent = pattern(4096, 1);
    mine.burst(tag, target_tag, &sent, 0, 4096, 1024);
    assert_eq!(mine.answer(tag).1.status, 0);
    assert_eq!(thief.read(0, 10, 8), sent);
    drop((mine, thief));
    fixture.well("stolen tags");
}

#[test]
fn transfer_tag_of_another_write_is_rejected() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    let (first, first_tag) = c.open_write(10, 1024);
    let (second, second_tag) = c.open_write(20, 1024);
    // Both tags are good, but not together.
    c.data_out(first, second_tag, 0, 0, &[1; 1024], true);
    c.rejected();
    c.burst(second, second_tag, &[2; 1024], 0, 1024, 512);
    assert_eq!(c.answer(second).1.status, 0);
    // The first continues as if that had not been sent.
    c.burst(first, first_tag, &[1; 1024], 0, 1024, 512);
    assert_eq!(c.answer(first).1.status, 0);
    assert_eq!(c.read(0, 10, 2), vec![1; 1024]);
    assert_eq!(c.read(0, 20, 2), vec![2; 1024]);
    drop(c);
    fixture.well("exchanged tags");
}

#[test]
fn data_that_ends_within_a_block_is_refused_and_not_written() {
    // SPDK 1781: data that is no multiple of the block.
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    let before = [0x11; 4 * 512];
    assert_eq!(c.write(200, &before, 8192).status, 0);
    let give = |c: &mut Client, cdb: &[u8], data: &[u8]| {
        let mut pdu = c.command(0, cdb, 0, data.len() as u32);
        pdu.data_len = data.len() as u32;
        c.send(&pdu, data);
        let (_, end, returned) = c.answer(pdu.task_tag);
        (end, returned)
    };
    let mut verify = rw10(0x2f, 200, 2);
    verify[1] = 2;
    for cdb in [rw10(0x2a, 200, 2), rw10(0x2e, 200, 2), verify] {
        for len in [1usize, 3, 200, 511, 513, 700, 1023] {
            let (end, returned) = give(&mut c, &cdb, &vec![0x22; len]);
            let what = format!("{:x}: {len} bytes", cdb[0]);
            assert_eq!((end.status, sense(&returned)), (2, CUT), "{what}");
            assert_eq!(end.residual, Residual::Overflow(1024 - len as u32), "{what}");
            assert_eq!(c.read(0, 200, 4), before, "{what}");
        }
    }
    // Whole blocks of it can be written.
    let (end, _) = give(&mut c, &rw10(0x2a, 200, 2), &[0x22; 512]);
    assert_eq!((end.status, end.residual), (0, Residual::Overflow(512)));
    assert_eq!(c.read(0, 200, 1), [0x22; 512]);
    assert_eq!(c.read(0, 201, 3), before[512..]);
    // A list that ends early.
    for cdb in [&UNMAP[..], &MODE_SELECT[..]] {
        for len in [0, 4, 23] {
            let (end, returned) = give(&mut c, cdb, &vec![0; len]);
            assert_eq!((end.status, sense(&returned)), (2, CUT), "{cdb:x?}: {len} bytes");
        }
    }
    drop(c);
    fixture.well("odd lengths");
}

#[test]
fn writes_with_any_amount_of_immediate_data_are_complete() {
    // SPDK 565a44628d and 2781: pools of immediate data and of solicited data were mixed up; SPDK
    // 2029: the data digest of more than one segment.
    let params = serde_json::json!({ "initial_r2t": false, "first_burst_length": 65_536 });
    let mut fixture =
        Fixture::with(drivers::TargetSpec { params, ..drivers::TargetSpec::default() });
    for (i, digests) in [false, true].into_iter().enumerate() {
        let mut how = LoginOptions::default().isid(20 + i as u8).digests(digests, digests);
        how.offer.params.initial_r2t = false;
        let mut c = fixture.client_as(&how);
        for blocks in [1usize, 8, 9, 64, 128, 129, 256, 2048] {
            for piece in [512, 1000, 4096, 65_536] {
                let sent = pattern(blocks * 512, blocks + piece);
                let lba = (blocks % 7) as u32;
                assert_eq!(c.write(lba, &sent, piece).status, 0, "{blocks} {piece}");
                assert!(c.read(0, lba, blocks as u16) == sent, "{blocks} {piece} {digests}");
            }
        }
        c.logout();
    }
    fixture.well("every size");
}

#[test]
fn too_little_unsolicited_data_ends_the_command() {
    let params = serde_json::json!({ "initial_r2t": false });
    let mut fixture =
        Fixture::with(drivers::TargetSpec { params, ..drivers::TargetSpec::default() });
    let mut how = LoginOptions::default();
    how.offer.params.initial_r2t = false;
    let mut c = fixture.client_as(&how);
    // F arrives before all announced data: the rest is requested, or the command ends.
    let mut pdu = c.command(0, &rw10(0x2a, 300, 16), 0, 8192);
    pdu.last = false;
    c.send(&pdu, &[]);
    c.data_out(pdu.task_tag, TAG_NONE, 0, 0, &pattern(1024, 3), true);
    match c.expect() {
        (Response::R2t(r), _) => {
            assert_eq!(r.offset, 1024);
            let all = pattern(8192, 3);
            c.burst(pdu.task_tag, r.target_tag, &all, 1024, 8192, 2048);
            assert_eq!(c.answer(pdu.task_tag).1.status, 0);
        }
        (Response::Scsi(end), _) => assert_eq!(end.status, 2),
        other => panic!("{other:?}"),
    }
    // None arrives at all: an abort frees the command.
    let mut pdu = c.command(0, &rw10(0x2a, 300, 16), 0, 8192);
    pdu.last = false;
    c.send(&pdu, &[]);
    let answer = c.function(wire::iscsi::task_function::ABORT_TASK, pdu.task_tag, pdu.cmd_sn);
    assert_eq!(answer, wire::iscsi::TaskAnswer::Complete);
    assert_eq!(c.ping(b"alive"), b"alive");
    drop(c);
    fixture.well("too little data");
}

/// W3 of iscsi/session.rs.
/// W2 of iscsi/session.rs.
#[test]
fn cmd_sn_and_stat_sn_wrap() {
    // CmdSN by the initiator, StatSN by the target; the client checks each one.
    let shape =
        crate::iscsi::server::Shape { first_stat_sn: Some(0xffff_fff0), ..Default::default() };
    let server = crate::iscsi::server::Server::start(shape);
    let how = LoginOptions { cmd_sn: 0xffff_fff0, ..LoginOptions::default() };
    let mut c = testkit::iscsi::initiator::Client::login(server.portal, &how);
    c.ready(0);
    assert!(c.exp_stat_sn > 0xffff_ff00, "{:#x}", c.exp_stat_sn);
    for i in 0..40u32 {
        let sent = pattern(3 * 512, i as usize);
        assert_eq!(c.write(i, &sent, 1000).status, 0);
        assert_eq!(c.read(0, i, 3), sent);
        assert_eq!(c.ping(b"ping"), b"ping");
    }
    assert!(c.exp_stat_sn < 0x1000 && c.cmd_sn < 0x1000 && c.max_cmd_sn < 0x1000);
    c.logout();
}
