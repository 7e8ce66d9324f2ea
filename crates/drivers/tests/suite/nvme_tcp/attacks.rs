//! Malformed input from peers: each case was once a crash or worse in some target.

use serde_json::json;
use wire::nvme::codes::{admin, cns, fatal, io, pdu, pdu_flag};
use wire::nvme::*;

use crate::nvme_tcp::host::{Host, SUBSYSTEM};
use crate::nvme_tcp::stage::{Stage, play, play_with};

/// Ends with that reason, and then the connection with no further data.
async fn is_fatal(mut host: Host, reason: u16) {
    let word = host.receive().await.unwrap().terminate();
    assert_eq!(word.reason, reason, "{word:?}");
    // States after TermReq: later PDUs are dropped.
    let keep_alive = host.command(admin::KEEP_ALIVE, 0, [0; 6]);
    let _ = host.send(&host.capsule(&keep_alive, &[])).await;
    assert!(host.is_closed().await, "it says more after its last word");
}

/// A WRITE of 8 KiB and more whose data was requested.
async fn connect(stage: &Stage, digests: (bool, bool)) -> (Host, Host, Data) {
    let (admin, mut queue) = stage.both(digests).await;
    let extent = Extent { lba: 0, blocks: 32, ..Extent::default() };
    let mut command = queue.command(io::WRITE, 1, extent.dwords());
    command.sgl.len = 32 * 512;
    queue.send(&queue.capsule(&command, &[])).await.unwrap();
    let pdu = queue.receive().await.unwrap();
    assert_eq!(pdu.kind(), pdu::READY);
    let part = pdu.part();
    (admin, queue, part)
}

#[test]
fn transfer_tag_zero_is_invalid_before_an_r2t() {
    play(|stage| async move {
        let (_admin, queue) = stage.both((false, false)).await;
        let part = Data { command: 1, tag: 0, at: 0, len: 512 };
        queue.send(&queue.host_data(&part, true, &[0; 512])).await.unwrap();
        is_fatal(queue, fatal::HEADER_FIELD).await;
    });
}

#[test]
fn wrong_transfer_tags_and_command_identifiers_are_refused() {
    for change in [|p: Data| Data { tag: 99, ..p }, |p: Data| Data { command: p.command + 1, ..p }]
    {
        play(move |stage| async move {
            let (_admin, queue, part) = connect(&stage, (false, false)).await;
            let part = change(Data { len: 512, ..part });
            queue.send(&queue.host_data(&part, false, &[0; 512])).await.unwrap();
            is_fatal(queue, fatal::HEADER_FIELD).await;
        });
    }
}

#[test]
fn offset_and_length_whose_sum_wraps_are_out_of_range() {
    play(|stage| async move {
        let (_admin, queue, part) = connect(&stage, (false, false)).await;
        let part = Data { at: u32::MAX - 511, len: 512, ..part };
        queue.send(&queue.host_data(&part, false, &[0; 512])).await.unwrap();
        is_fatal(queue, fatal::DATA_RANGE).await;
    });
}

#[test]
fn data_beyond_an_r2t_or_out_of_order_is_out_of_range() {
    for (at, len) in [(0, 33 * 512), (512, 512)] {
        play(move |stage| async move {
            let (_admin, queue, part) = connect(&stage, (false, false)).await;
            let data = vec![0; len as usize];
            let part = Data { at, len, ..part };
            queue.send(&queue.host_data(&part, false, &data)).await.unwrap();
            is_fatal(queue, fatal::DATA_RANGE).await;
        });
    }
}

#[test]
fn length_below_header_and_digest_does_not_wrap() {
    play(|stage| async move {
        let (_admin, mut queue) = stage.both((true, true)).await;
        let command = queue.command(io::WRITE, 1, [0; 6]);
        let flags = pdu_flag::HEADER_DIGEST | pdu_flag::DATA_DIGEST;
        let mut bytes = command_capsule(&command, flags, 512);
        bytes[4..8].copy_from_slice(&79u32.to_le_bytes());
        queue.send(&queue.pdu(&bytes, &[0; 512])).await.unwrap();
        is_fatal(queue, fatal::HEADER_FIELD).await;
    });
}

#[test]
fn data_for_a_read_command_is_refused() {
    play(|stage| async move {
        let (_admin, mut queue) = stage.both((false, false)).await;
        let extent = Extent { lba: 0, blocks: 8, ..Extent::default() };
        let mut command = queue.command(io::READ, 1, extent.dwords());
        command.sgl.len = 4096;
        let part = Data { command: command.id, tag: 0, at: 0, len: 4096 };
        let both = [queue.capsule(&command, &[]), queue.host_data(&part, true, &[0; 4096])];
        queue.send(&both.concat()).await.unwrap();
        is_fatal(queue, fatal::HEADER_FIELD).await;
    });
}

#[test]
fn pdu_data_beyond_the_negotiated_limit_is_refused() {
    play(|stage| async move {
        let (_admin, queue, part) = connect(&stage, (false, false)).await;
        let len = drivers::nvme_tcp::HOST_DATA_MAX + 4;
        let part = Data { len, ..part };
        queue.send(&queue.host_data(&part, false, &vec![0; len as usize])).await.unwrap();
        is_fatal(queue, fatal::LIMIT).await;
    });
}

#[test]
fn capsule_data_beyond_the_limit_is_refused() {
    play(|stage| async move {
        let (_admin, mut queue) = stage.both((false, false)).await;
        let command = queue.command(io::WRITE, 1, [0; 6]);
        queue.send(&queue.capsule(&command, &[0; 8196])).await.unwrap();
        is_fatal(queue, fatal::LIMIT).await;
    });
}

#[test]
fn a_longer_buffer_for_identify_is_padded_and_not_overrun() {
    play(|stage| async move {
        let mut admin = stage.admin((true, true), 0).await;
        let dwords = [cns::CONTROLLER.into(), 0, 0, 0, 0, 0];
        let command = admin.command(admin::IDENTIFY, 0, dwords);
        let data = admin.ask(command, 16_384).await.unwrap().good();
        assert_eq!(data.len(), 16_384);
        assert!(data[4096..].iter().all(|b| *b == 0) && data[..4096].iter().any(|b| *b != 0));
        for len in [4092, u32::MAX] {
            let command = admin.command(admin::IDENTIFY, 0, dwords);
            admin.ask(command, len).await.unwrap().ends(Status::SGL_LENGTH);
        }
    });
}

#[test]
fn a_wrong_header_digest_is_fatal() {
    play(|stage| async move {
        let (_admin, mut queue) = stage.both((true, true)).await;
        let command = queue.command(io::FLUSH, 1, [0; 6]);
        let mut bytes = queue.capsule(&command, &[]);
        bytes[20] ^= 1;
        queue.send(&bytes).await.unwrap();
        is_fatal(queue, fatal::HEADER_DIGEST).await;
    });
}

#[test]
fn a_wrong_data_digest_fails_the_command_and_nothing_else() {
    play(|stage| async move {
        let (_admin, mut queue, part) = connect(&stage, (true, true)).await;
        let data = vec![9; 32 * 512];
        let mut bytes = queue.host_data(&part, true, &data);
        bytes[100] ^= 1;
        queue.send(&bytes).await.unwrap();
        queue.answer(part.command).await.unwrap().ends(Status::TRANSPORT);
        let extent = Extent { lba: 4, blocks: 1, ..Extent::default() };
        let mut command = queue.command(io::WRITE, 1, extent.dwords());
        command.sgl = Sgl { address: 0, len: 512, kind: Sgl::IN_CAPSULE };
        let mut bytes = queue.capsule(&command, &[9; 512]);
        *bytes.last_mut().unwrap() ^= 1;
        queue.send(&bytes).await.unwrap();
        queue.answer(command.id).await.unwrap().ends(Status::TRANSPORT);
        let command = queue.command(io::READ, 1, extent.dwords());
        assert_eq!(queue.ask(command, 512).await.unwrap().good(), [0; 512], "nothing was written");
    });
}

#[test]
fn second_icreq_is_out_of_sequence() {
    play(|stage| async move {
        let (admin, queue) = stage.both((true, false)).await;
        queue.send(&Initialize::default().encode()).await.unwrap();
        is_fatal(queue, fatal::SEQUENCE).await;
        let mut early = stage.dial().await;
        early.initialize((false, false)).await.unwrap();
        early.send(&Initialize::default().encode()).await.unwrap();
        is_fatal(early, fatal::SEQUENCE).await;
        drop(admin);
    });
}

#[test]
fn command_before_icreq_is_out_of_sequence() {
    play(|stage| async move {
        let mut host = stage.dial().await;
        let command = host.command(admin::KEEP_ALIVE, 0, [0; 6]);
        host.send(&host.capsule(&command, &[])).await.unwrap();
        is_fatal(host, fatal::SEQUENCE).await;
    });
}

#[test]
fn half_open_connections_time_out() {
    play(|stage| async move {
        let mut silent = stage.dial().await;
        let mut begun = stage.dial().await;
        begun.initialize((false, false)).await.unwrap();
        assert!(silent.is_closed().await && begun.is_closed().await);
        // A refused Connect does not make it young again.
        let mut refused = stage.dial().await;
        refused.initialize((false, false)).await.unwrap();
        let end = refused.connect("nqn.2026-11.test.ashlar:none", 0, 0).await.unwrap();
        assert_eq!((end.status, end.result), (Status::CONNECT_PARAMETER, 256 | 1 << 16));
        assert!(refused.is_closed().await);
    });
}

#[test]
fn connections_of_one_peer_are_limited_until_some_close() {
    play_with(json!({ "connections_per_peer": 2 }), |stage| async move {
        let admin = stage.admin((false, false), 0).await;
        let silent = stage.dial().await;
        stage.seconds(1).await;
        assert!(stage.dial().await.is_closed().await, "a third connection");
        silent.close();
        stage.seconds(1).await;
        let mut queue = stage.queue(&admin, 1).await;
        let flush = queue.command(io::FLUSH, 1, [0; 6]);
        queue.ask(flush, 0).await.unwrap().good();
    });
}

#[test]
fn missing_write_data_ends_the_connection() {
    play(|stage| async move {
        let (_admin, mut queue, _) = connect(&stage, (false, false)).await;
        assert!(queue.is_closed().await);
    });
}

#[test]
fn keep_alive_timeout_ends_all_queues() {
    play(|stage| async move {
        let mut admin = stage.admin((false, false), 3000).await;
        let mut queue = stage.queue(&admin, 1).await;
        for _ in 0..5 {
            stage.seconds(2).await;
            let command = admin.command(admin::KEEP_ALIVE, 0, [0; 6]);
            admin.ask(command, 0).await.unwrap().good();
        }
        assert!(admin.is_closed().await && queue.is_closed().await);
    });
}

#[test]
fn closed_admin_queue_ends_all_queues() {
    play(|stage| async move {
        let (admin, mut queue) = stage.both((false, false)).await;
        admin.close();
        assert!(queue.is_closed().await);
        let mut late = stage.dial().await;
        late.initialize((false, false)).await.unwrap();
        late.controller = admin.controller;
        let end = late.connect(SUBSYSTEM, 1, 0).await.unwrap();
        assert_eq!(end.status, Status::CONNECT_PARAMETER);
    });
}
