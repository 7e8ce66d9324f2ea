//! Order of commands, task management, sessions that replace each other.

use wire::iscsi::{RejectReason, Response, TaskAnswer, task_function};

use crate::iscsi::server::{Server, Shape};
use testkit::iscsi::initiator::{Client, LoginOptions, rw10, sense};

/// W1 of iscsi/session.rs.
#[test]
fn commands_behind_a_gap_wait_for_it() {
    let server = Server::start(Shape::default());
    let how = LoginOptions { cmd_sn: 0xffff_fffa, ..LoginOptions::default() };
    let mut c = Client::login(server.portal, &how);
    c.ready(0);
    let all: Vec<_> = (0..12u8)
        .map(|i| {
            let mut pdu = c.command(0, &rw10(0x2a, 7, 1), 0, 512);
            pdu.data_len = 512;
            (pdu, vec![i; 512])
        })
        .collect();
    // The last first, the first last; a second copy of one is ignored.
    for (pdu, data) in all.iter().rev() {
        c.send(pdu, data);
        if pdu.task_tag % 4 == 0 {
            c.send(pdu, data);
        }
    }
    for (pdu, _) in &all {
        assert_eq!(c.answer(pdu.task_tag).1.status, 0, "in the order of their numbers");
    }
    assert_eq!(c.read(0, 7, 1), vec![11; 512], "the last number wrote last");
    assert_eq!(c.ping(b"x"), b"x");
}

/// W1 of iscsi/session.rs.
#[test]
fn requests_that_arrive_together_are_carried_out_in_order() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    let (mut all, mut tags) = (Vec::new(), Vec::new());
    for round in 1..=8u8 {
        let mut write = c.command(0, &rw10(0x2a, 7, 1), 0, 512);
        write.data_len = 512;
        let reads = [0; 3].map(|_| c.command(0, &rw10(0x28, 7, 1), 512, 0));
        all.extend(c.bytes(&write, &[], &[round; 512]));
        reads.iter().for_each(|read| all.extend(c.bytes(read, &[], &[])));
        tags.push((round, write.task_tag, reads.map(|read| read.task_tag)));
    }
    c.raw(&all);
    for (round, write, reads) in tags {
        assert_eq!(c.answer(write).1.status, 0);
        for read in reads {
            assert_eq!(c.answer(read).0, [round; 512]);
        }
    }
}

/// W1 of iscsi/session.rs.
#[test]
fn immediate_commands_do_not_wait_and_do_not_count() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    let behind = {
        let _gap = c.command(0, &[0; 6], 0, 0);
        c.command(0, &rw10(0x28, 0, 1), 512, 0)
    };
    c.send(&behind, &[]);
    let mut now = c.command(0, &[0; 6], 0, 0);
    now.immediate = true;
    c.cmd_sn -= 1;
    c.send(&now, &[]);
    assert_eq!(c.answer(now.task_tag).1.status, 0);
    let mut gap = c.command(0, &[0; 6], 0, 0);
    gap.cmd_sn = behind.cmd_sn - 1;
    c.cmd_sn = behind.cmd_sn + 1;
    c.send(&gap, &[]);
    assert_eq!(c.answer(gap.task_tag).1.status, 0);
    assert_eq!(c.answer(behind.task_tag).1.status, 0);
    assert_eq!(c.read(0, 0, 1).len(), 512);
}

/// W4 of iscsi/session.rs.
#[test]
fn a_tag_in_use_is_refused() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    let (tag, target_tag) = c.open_write(10, 4096);
    let mut twice = c.command(0, &rw10(0x28, 0, 1), 512, 0);
    twice.task_tag = tag;
    c.send(&twice, &[]);
    assert_eq!(c.rejected().0, RejectReason::TaskInProgress);
    let sent = vec![0x5a; 4096];
    c.burst(tag, target_tag, &sent, 0, 4096, 4096);
    assert_eq!(c.answer(tag).1.status, 0, "the first one goes on");
    assert_eq!(c.read(0, 10, 8), sent);
}

#[test]
fn commands_that_wait_for_data_are_aborted() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    let before = c.read(0, 10, 8);
    for function in [
        task_function::ABORT_TASK,
        task_function::ABORT_TASK_SET,
        task_function::CLEAR_TASK_SET,
        task_function::LUN_RESET,
        task_function::TARGET_WARM_RESET,
        task_function::NEXUS_RESET,
    ] {
        let (tag, target_tag) = c.open_write(10, 4096);
        let number = c.cmd_sn.wrapping_sub(1);
        assert_eq!(c.function(task_function::QUERY_TASK, tag, 0), TaskAnswer::Succeeded);
        assert_eq!(c.function(function, tag, number), TaskAnswer::Complete, "{function}");
        assert_eq!(c.function(task_function::QUERY_TASK, tag, 0), TaskAnswer::Complete);
        // Its data was on its way: dropped. Its tag is free again.
        c.burst(tag, target_tag, &[9; 4096], 0, 4096, 1024);
        c.ready(0);
        let mut again = c.command(0, &rw10(0x28, 10, 8), 4096, 0);
        again.task_tag = tag;
        c.send(&again, &[]);
        assert_eq!(c.answer(tag).0, before, "{function}: nothing reached the medium");
    }
}

#[test]
fn command_that_has_not_arrived_can_be_aborted() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    let missing = c.command(0, &rw10(0x2a, 3, 1), 0, 512);
    let behind = c.command(0, &rw10(0x28, 0, 1), 512, 0);
    c.send(&behind, &[]);
    let answer = c.function(task_function::ABORT_TASK, missing.task_tag, missing.cmd_sn);
    // The gap is closed, so the one behind it runs: its answer may be sent first.
    assert_eq!(answer, TaskAnswer::Complete);
    assert_eq!(c.answer(behind.task_tag).1.status, 0);
    c.send(&missing, &[]);
    assert_eq!(c.ping(b"ignored"), b"ignored");
    assert_eq!(c.read(0, 0, 1).len(), 512);
}

#[test]
fn unit_is_served_after_thousands_of_resets() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    for _ in 0..2000 {
        assert_eq!(c.function(task_function::LUN_RESET, 0, 0), TaskAnswer::Complete);
    }
    c.ready(0);
    assert_eq!(c.read(0, 0, 1).len(), 512);
}

/// S1 of iscsi/session_owners.rs.
#[test]
fn newer_login_replaces_the_older_session() {
    let server = Server::start(Shape { cores: 2, ..Shape::default() });
    let mut other = Client::login(server.portal, &LoginOptions::default().isid(7));
    other.ready(0);
    let mut old = Client::login(server.portal, &LoginOptions::default());
    old.ready(0);
    old.open_write(10, 4096);
    for round in 0..20 {
        let mut new = Client::login(server.portal, &LoginOptions::default());
        old.closed();
        let tur = new.start(0, &[0; 6], 0, 0);
        let (_, end, data) = new.answer(tur);
        assert_eq!((end.status, sense(&data)), (2, (6, 0x29, 7)), "round {round}");
        new.ready(0);
        assert_eq!(new.read(0, 0, 4).len(), 2048);
        old = new;
    }
    assert_eq!(other.read(0, 0, 4).len(), 2048, "another ISID is another session");
    assert_eq!(server.registry.sessions().len(), 2);
}

/// S1 of iscsi/session_owners.rs.
#[test]
fn racing_logins_leave_one_session() {
    let server = Server::start(Shape { cores: 2, ..Shape::default() });
    let portal = server.portal;
    let racers: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                for _ in 0..40 {
                    let mut c = match Client::try_login(portal, &LoginOptions::default()) {
                        Ok(c) => c,
                        Err(_) => continue, // replaced while it logged in
                    };
                    c.try_raw(&[]);
                    let _ = c.receive_or_closed();
                }
            })
        })
        .collect();
    racers.into_iter().for_each(|r| r.join().unwrap());
    let mut c = Client::login(portal, &LoginOptions::default());
    c.ready(0);
    assert_eq!(server.registry.sessions().len(), 1, "one name, one session");
}

/// D3 of iscsi/tasks.rs.
#[test]
fn logout_completes_ready_reads_and_ends_open_writes() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    let before = c.read(0, 10, 8);
    let (_, _) = c.open_write(10, 4096);
    for i in 0..20 {
        c.start(0, &rw10(0x28, i, 8), 4096, 0);
    }
    let pdu =
        wire::iscsi::LogoutRequest { task_tag: 0x10c0, cmd_sn: c.cmd_sn, ..Default::default() };
    c.send(&pdu, &[]);
    let mut answered = 0;
    loop {
        match c.expect() {
            (Response::DataIn(p), _) if p.status.is_some() => answered += 1,
            (Response::DataIn(_), _) => {}
            (Response::Logout(p), _) => {
                assert_eq!(p.task_tag, 0x10c0);
                break;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(answered, 20, "reads that had all they need are answered first");
    assert!(c.receive().is_none());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    assert_eq!(c.read(0, 10, 8), before, "the write without data did not happen");
}

#[test]
fn text_requests_are_answered_in_the_full_feature_phase() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    let (_, text) = c.text(b"SendTargets=\0", false, u32::MAX);
    let text = String::from_utf8(text).unwrap();
    assert!(text.starts_with(&format!("TargetName={}\0", crate::iscsi::server::IQN)), "{text:?}");
    assert!(text.contains(&format!("TargetAddress={},1\0", server.portal)), "{text:?}");
    let (_, text) = c.text(b"SendTargets=All\0", false, u32::MAX);
    assert_eq!(text, b"SendTargets=Reject\0");
    let (_, text) = c.text(b"MaxRecvDataSegmentLength=512\0InitialR2T=No\0", false, u32::MAX);
    let text = String::from_utf8(text).unwrap();
    assert!(text.contains("InitialR2T=Reject"), "{text:?}");
    c.params.recv_data_len_max = 512;
    assert_eq!(c.read(0, 0, 9).len(), 9 * 512, "answers are cut to the new length");
    // Text that continues: an empty answer with a tag, then the rest.
    match c.text(b"X-long=", true, u32::MAX) {
        (Response::Text(p), data) => {
            assert!(!p.last && data.is_empty());
            let (_, text) = c.text(b"1\0", false, p.target_tag);
            assert_eq!(text, b"X-long=NotUnderstood\0");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn discovery_lists_many_targets_in_pieces() {
    let server = Server::start(Shape::default());
    for i in 0..100 {
        let name = format!("iqn.2026-11.test.ashlar:many-targets-with-long-names-{i:04}");
        let listen = vec!["127.0.0.1:0".parse().unwrap()];
        let spec = drivers::TargetSpec { name: name.clone(), listen, ..Default::default() };
        server.driver.set_target(spec).unwrap();
        server.registry.set_target("iscsi", &name).unwrap();
        let group = engine::GroupSpec {
            name: "g".into(),
            initiators: vec![if i % 2 == 0 { "*".into() } else { "nobody".into() }],
            luns: vec![engine::LunSpec { lun: 0, device: "null".into(), read_only: false }],
            ..Default::default()
        };
        server.registry.set_groups("iscsi", &name, &[group]).unwrap();
    }
    let mut how = LoginOptions { target: None, ..LoginOptions::default() };
    how.offer.params.recv_data_len_max = 512;
    let mut c = Client::login(server.portal, &how);
    let mut all = Vec::new();
    let (mut response, mut text) = c.text(b"SendTargets=All\0", false, u32::MAX);
    loop {
        let Response::Text(p) = response else { panic!("{response:?}") };
        assert!(text.len() <= 512);
        all.extend(text);
        if p.last {
            break;
        }
        assert!(p.more);
        (response, text) = c.text(b"", false, p.target_tag);
    }
    let all = String::from_utf8(all).unwrap();
    assert_eq!(all.matches("TargetName=").count(), 51, "only those that grant something");
    let tag = c.start(0, &[0; 6], 0, 0);
    assert_eq!(c.rejected().0, RejectReason::Protocol, "no command in discovery: {tag}");
    c.logout();
}

#[test]
fn immediate_commands_are_served_until_task_set_full() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    for _ in 0..100 {
        let mut all = Vec::new();
        for _ in 0..640 {
            let mut pdu = c.command(0, &[0; 6], 0, 0);
            pdu.immediate = true;
            c.cmd_sn = c.cmd_sn.wrapping_sub(1);
            all.extend(c.bytes(&pdu, &[], &[]));
        }
        c.raw(&all);
        for _ in 0..640 {
            let response = c.expect();
            assert!(matches!(response.0, Response::Scsi(_)), "{response:?}");
        }
    }
    // Commands that wait for data fill the session: then immediate ones get TASK SET FULL.
    for i in 0..128 {
        c.start(0, &rw10(0x2a, i, 1), 0, 512);
    }
    (0..128).for_each(|_| assert!(matches!(c.expect().0, Response::R2t(_))));
    for _ in 0..3 {
        let mut pdu = c.command(0, &[0; 6], 0, 0);
        pdu.immediate = true;
        c.cmd_sn = c.cmd_sn.wrapping_sub(1);
        c.send(&pdu, &[]);
        let (_, end, _) = c.answer(pdu.task_tag);
        assert_eq!(end.status, 0x28, "TASK SET FULL");
    }
    assert_eq!(c.function(task_function::ABORT_TASK_SET, 0, 0), TaskAnswer::Complete);
    assert_eq!(c.read(0, 0, 1).len(), 512);
}
