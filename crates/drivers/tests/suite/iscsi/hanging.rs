//! Disks that hang and buffers that run out: the commands that wait, and for how long.

use std::io::Read;
use std::time::Duration;
use testkit::disk::Mode;
use testkit::until;

use wire::iscsi::{ClientError, LoginStatus, Response, TaskAnswer, TaskRequest, task_function};

use crate::iscsi::server::{Server, Shape};
use testkit::iscsi::initiator::{Client, LoginOptions, connect, dial, rw10};

/// LUN of the disk that hangs.
const STUCK: u8 = 2;
const BUSY: u8 = 0x08;
const TASK_SET_FULL: u8 = 0x28;

/// Starts a write of `bytes` with all of its data and does not wait for its end.
fn hang_a_write(c: &mut Client, bytes: u32) -> u32 {
    let tag = c.start(STUCK, &rw10(0x2a, 0, (bytes / 512) as u16), 0, bytes);
    let data = vec![7; bytes as usize];
    let mut sent = 0;
    while sent < bytes {
        match c.expect() {
            (Response::R2t(r), _) => {
                let (from, len) = (r.offset as usize, r.desired_len as usize);
                c.burst(tag, r.target_tag, &data, from, from + len, 8192);
                sent += r.desired_len;
            }
            other => panic!("{other:?} instead of an R2T"),
        }
    }
    tag
}

#[test]
fn reset_of_a_hanging_unit_waits_for_its_commands_and_blocks_no_other() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    c.ready(STUCK);
    server.stuck.set(Mode::Stuck);
    hang_a_write(&mut c, 4096);
    let reset = TaskRequest {
        immediate: true,
        function: task_function::LUN_RESET,
        lun: [0, STUCK, 0, 0, 0, 0, 0, 0],
        task_tag: c.next_tag(),
        cmd_sn: c.cmd_sn,
        ..TaskRequest::default()
    };
    c.send(&reset, &[]);
    for _ in 0..20 {
        // `ping` and `read` would panic at the answer to the reset.
        assert_eq!(c.ping(b"still here"), b"still here");
        assert_eq!(c.read(0, 0, 8).len(), 4096);
    }
    server.stuck.set(Mode::Now);
    match c.expect() {
        (Response::Task(t), _) => {
            assert_eq!((t.task_tag, t.answer), (reset.task_tag, TaskAnswer::Complete));
        }
        other => panic!("{other:?} instead of the answer to the reset"),
    }
    c.ready(STUCK);
    assert_eq!(c.read(STUCK, 0, 8).len(), 4096);
}

/// S1 of iscsi/session_owners.rs.
#[test]
fn login_that_replaces_a_hanging_session_gets_service_unavailable() {
    let server = Server::start(Shape { cores: 2, ..Shape::default() });
    let mut other = Client::login(server.portal, &LoginOptions::default().isid(7));
    other.ready(STUCK);
    other.ready(0);
    let mut old = Client::login(server.portal, &LoginOptions::default());
    old.ready(STUCK);
    server.stuck.set(Mode::Stuck);
    hang_a_write(&mut old, 4096);
    let refused = Client::try_login(server.portal, &LoginOptions::default()).err();
    let wanted = LoginStatus::ServiceUnavailable;
    assert!(matches!(refused, Some(ClientError::Refused(s, _)) if s == wanted), "{refused:?}");
    old.closed();
    assert_eq!(other.read(0, 0, 8).len(), 4096, "others go on");
    server.stuck.set(Mode::Now);
    let mut new = Client::login(server.portal, &LoginOptions::default());
    new.ready(STUCK);
    assert_eq!(new.read(STUCK, 0, 8).len(), 4096);
    assert_eq!(server.registry.sessions().len(), 2);
}

#[test]
fn closed_session_waits_only_for_its_commands_at_the_disk() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(STUCK);
    server.stuck.set(Mode::Stuck);
    hang_a_write(&mut c, 4096);
    c.cut();
    let mut d = Client::login(server.portal, &LoginOptions::default().isid(8));
    d.ready(0);
    assert_eq!(d.read(0, 0, 8).len(), 4096);
    server.stuck.set(Mode::Now);
    until("the session is gone", || server.registry.sessions().len() == 1);
}

/// Immediate data and no R2T before it is used up.
fn eager(isid: u8) -> LoginOptions {
    let mut how = LoginOptions::default().isid(isid);
    how.offer.params.immediate_data = true;
    how.offer.params.first_burst = 65_536;
    how
}

/// A write with `now` bytes of immediate data.
fn start_with_data(c: &mut Client, bytes: u32, now: usize) -> u32 {
    let mut pdu = c.command(0, &rw10(0x2a, 0, (bytes / 512) as u16), 0, bytes);
    pdu.data_len = now as u32;
    c.send(&pdu, &vec![5; now]);
    pdu.task_tag
}

/// E4 of engine/src/nexus/buffers.rs, E5 of engine/src/nexus/buffers.rs,
/// E6 of engine/src/nexus/buffers.rs.
#[test]
fn writes_without_buffers_end_with_busy_or_task_set_full() {
    // 768 KiB may hold write data, 128 KiB of them commands that wait for the rest.
    let spec = drivers::TargetSpec {
        params: serde_json::json!({ "nop_interval": 0 }),
        ..drivers::TargetSpec::default()
    };
    let server = Server::start(Shape { pool_bytes: 1 << 20, spec, ..Shape::default() });
    let mut holder = Client::login(server.portal, &LoginOptions::default());
    holder.ready(STUCK);
    let mut waits = Client::login(server.portal, &eager(20));
    let mut stands = Client::login(server.portal, &eager(21));
    [&mut waits, &mut stands].into_iter().for_each(|c| c.ready(0));
    server.stuck.set(Mode::Stuck);
    // No single one may be larger than half of the pool.
    let held = [0; 2].map(|_| hang_a_write(&mut holder, 300 << 10));
    // Let in with its first part; the line is not empty from now on.
    let in_line = start_with_data(&mut waits, 512 << 10, 65_536);
    assert_eq!(waits.ping(b"a"), b"a", "its connection goes on");
    let in_line_too = start_with_data(&mut stands, 512 << 10, 65_536);
    // A third part would be too much: the connection waits, and then gets TASK SET FULL.
    let refused = start_with_data(&mut stands, 512 << 10, 65_536);
    match stands.expect() {
        (Response::Scsi(end), _) => {
            assert_eq!((end.task_tag, end.status), (refused, TASK_SET_FULL));
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(stands.ping(b"b"), b"b", "its connection goes on");
    // No command waits longer than the limit of the line.
    for (c, tag) in [(&mut waits, in_line), (&mut stands, in_line_too)] {
        match c.expect() {
            (Response::Scsi(end), _) => assert_eq!((end.task_tag, end.status), (tag, BUSY)),
            other => panic!("{other:?}"),
        }
    }
    server.stuck.set(Mode::Now);
    // In whichever order the disk looks at its switch.
    let mut open = held.to_vec();
    while !open.is_empty() {
        match holder.expect() {
            (Response::Scsi(end), _) => {
                assert_eq!(end.status, 0);
                open.retain(|tag| *tag != end.task_tag);
            }
            other => panic!("{other:?}"),
        }
    }
    holder.ready(0);
    let sent = vec![3; 256 << 10];
    assert_eq!(holder.write(0, &sent, 8192).status, 0);
    assert!(holder.read(0, 0, 512) == sent, "all memory is back");
}

#[test]
fn connections_beyond_the_limit_of_a_core_are_refused() {
    let server = Server::start(Shape { connections: Some(3), ..Shape::default() });
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    let mut first: Vec<_> = (0..2).map(|_| connect(server.portal)).collect();
    let is_refused = || {
        // A reset may arrive before the connection is made.
        let Ok(mut one_more) = dial(server.portal) else { return true };
        one_more.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        match one_more.read(&mut [0]) {
            Ok(n) => n == 0,
            Err(e) => e.kind() != std::io::ErrorKind::WouldBlock,
        }
    };
    until("a fourth connection", is_refused);
    assert_eq!(c.read(0, 0, 8).len(), 4096, "those that are there go on");
    first.pop();
    until("room again", || !is_refused());
}
