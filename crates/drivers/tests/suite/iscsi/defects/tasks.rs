//! Task management, pings, text, logout and SNACK against commands under way (inputs 31 to 38).

use wire::iscsi::{
    AsyncEvent, LogoutAnswer, LogoutReason, LogoutRequest, NopOut, RejectReason, Response, Snack,
    TAG_NONE, TaskAnswer, TaskRequest, task_function,
};

use super::Fixture;
use testkit::iscsi::initiator::{Client, LoginOptions, rw10};

fn function_at(c: &mut Client, function: u8, lun: [u8; 8], of: u32) -> TaskAnswer {
    let pdu = TaskRequest {
        immediate: true,
        function,
        lun,
        task_tag: c.next_tag(),
        referenced_tag: of,
        cmd_sn: c.cmd_sn,
        ref_cmd_sn: c.cmd_sn.wrapping_sub(1),
        exp_stat_sn: c.exp_stat_sn,
        ..TaskRequest::default()
    };
    c.send(&pdu, &[]);
    match c.expect() {
        (Response::Task(t), _) if t.task_tag == pdu.task_tag => t.answer,
        other => panic!("{other:?} instead of the answer to function {function}"),
    }
}

#[test]
fn abort_of_an_unknown_task_reports_no_task() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    let mut other = fixture.client_as(&LoginOptions::default().isid(2));
    let (tag, target_tag) = other.open_write(10, 4096);
    // Its own tag, tags of functions that are done, tags of another session.
    for of in [c.tag.wrapping_add(1), c.tag, 0, tag, TAG_NONE, 0x7777] {
        let number = c.cmd_sn.wrapping_sub(1);
        assert_eq!(
            c.function(task_function::ABORT_TASK, of, number),
            TaskAnswer::NoTask,
            "{of:#x}"
        );
        assert_eq!(
            c.function(task_function::QUERY_TASK, of, number),
            TaskAnswer::Complete,
            "{of:#x}"
        );
    }
    other.burst(tag, target_tag, &[5; 4096], 0, 4096, 4096);
    assert_eq!(other.answer(tag).1.status, 0, "not touched");
    drop((c, other));
    fixture.well("aborts of nothing");
}

#[test]
fn task_functions_are_answered_for_every_kind_of_lun() {
    // SPDK bc70a4d63f, fce8466477: a function for a LUN that is not there crashed.
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    for lun in (0..=300u16).chain([0x4001, 0x7fff, 0xc001, 0xffff]) {
        let [high, low] = lun.to_be_bytes();
        let at = match lun {
            0..=255 => [0, low, 0, 0, 0, 0, 0, 0],
            256..=300 => [0x40 | high, low, 0, 0, 0, 0, 0, 0],
            _ => [high, low, 0, 0, 0, 0, 0, 0],
        };
        // LUN 1 by the flat method is LUN 1.
        let is_present = matches!(lun, 1 | 0x4001);
        for code in [2u8, 5, 10] {
            if lun == 0 || lun == 2 {
                continue;
            }
            let answer = function_at(&mut c, code, at, 0);
            match is_present {
                true => assert!(matches!(answer, TaskAnswer::Complete | TaskAnswer::Succeeded)),
                false => assert_eq!(answer, TaskAnswer::NoLun, "function {code}, LUN {lun:#x}"),
            }
        }
    }
    let at = [0, 1, 0, 0, 0, 0, 0, 0];
    for code in 0..=127u8 {
        use TaskAnswer::*;
        let answer = match code {
            7 => continue, // ends every session: tested alone
            _ => function_at(&mut c, code, at, 0x999),
        };
        match code {
            1 => assert_eq!(answer, NoTask),
            2 | 4 | 5 | 6 | 9 | 10 | 11 => assert_eq!(answer, Complete, "{code}"),
            3 => assert!(matches!(answer, Complete | Unsupported | Rejected), "{answer:?}"),
            8 => assert_eq!(answer, ReassignUnsupported),
            12 => assert!(matches!(answer, Complete | Succeeded), "{answer:?}"),
            _ => assert_eq!(answer, Unsupported, "{code}"),
        }
        c.ready(0);
        c.ready(1);
    }
    drop(c);
    fixture.quiet();
    fixture.well("every function");
}

#[test]
fn task_functions_survive_a_race_with_connection_end() {
    // tgt 532a527, 09f7fb0, 7bb239b; CVE-2026-23216: tasks freed twice, or used after.
    let mut fixture = Fixture::new();
    for round in 0..200u32 {
        let mut c = fixture.client_as(&LoginOptions::default().isid(3));
        let tags: Vec<u32> = (0..4).map(|i| c.start(1, &rw10(0x2a, i, 8), 0, 4096)).collect();
        let mut bytes = Vec::new();
        for (i, function) in
            [task_function::ABORT_TASK, task_function::ABORT_TASK_SET, task_function::ABORT_TASK]
                .into_iter()
                .enumerate()
        {
            let pdu = TaskRequest {
                immediate: true,
                function,
                lun: [0, 1, 0, 0, 0, 0, 0, 0],
                task_tag: c.next_tag(),
                referenced_tag: tags[i],
                cmd_sn: c.cmd_sn,
                ..TaskRequest::default()
            };
            bytes.extend(c.bytes(&pdu, &[], &[]));
        }
        bytes.truncate(bytes.len() - (round as usize % 48));
        c.try_raw(&bytes);
        match round % 3 {
            0 => c.cut(),
            1 => drop(c),
            _ => {
                // A newer login takes its place in the middle of it.
                drop(Client::try_login(fixture.server.portal, &LoginOptions::default().isid(3)));
            }
        }
    }
    fixture.well("races of functions and ends");
}

#[test]
fn snack_is_rejected_at_error_recovery_level_0() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    let (tag, target_tag) = c.open_write(10, 512);
    for kind in 0..4u8 {
        let tags = [tag, TAG_NONE, TAG_NONE, tag];
        let pdu = Snack { kind, task_tag: tags[kind as usize], ..Snack::default() };
        c.send(&pdu, &[]);
        assert_eq!(c.rejected().0, RejectReason::Snack, "{kind}");
    }
    c.burst(tag, target_tag, &[1; 512], 0, 512, 512);
    assert_eq!(c.answer(tag).1.status, 0);
    drop(c);
    fixture.well("SNACK");
}

#[test]
fn pings_of_every_size_are_echoed() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    for len in [0usize, 1, 2, 3, 4, 5, 511, 512, 8192, 65_536] {
        let data: Vec<u8> = (0..len).map(|i| i as u8).collect();
        assert_eq!(c.ping(&data), data, "{len}");
    }
    let mut narrow = LoginOptions::default().isid(4);
    narrow.offer.params.recv_data_len_max = 512;
    let mut small = fixture.client_as(&narrow);
    assert_eq!(small.ping(&[7; 4096]), vec![7; 512], "as much as it takes");
    // A ping that counts, with its number, and one that only acknowledges.
    let quiet = NopOut {
        immediate: true,
        task_tag: TAG_NONE,
        target_tag: TAG_NONE,
        cmd_sn: c.cmd_sn,
        exp_stat_sn: c.exp_stat_sn,
        ..NopOut::default()
    };
    c.send(&quiet, &[]);
    let counted = NopOut {
        task_tag: c.next_tag(),
        target_tag: TAG_NONE,
        lun: [0, 1, 0, 0, 0, 0, 0, 0],
        cmd_sn: c.cmd_sn,
        ..NopOut::default()
    };
    c.cmd_sn = c.cmd_sn.wrapping_add(1);
    c.send(&counted, &[]);
    match c.expect() {
        (Response::NopIn(p), _) => {
            assert_eq!(
                (p.task_tag, p.lun, p.target_tag),
                (counted.task_tag, counted.lun, TAG_NONE)
            );
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(c.read(0, 0, 1).len(), 512, "numbers go on");
    drop((c, small));
    fixture.well("pings");
}

#[test]
fn unfinished_text_is_bounded_and_dropped() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    let mut tag = TAG_NONE;
    let piece = vec![b'v'; 8000];
    let mut pieces = 0;
    loop {
        match c.text(if pieces == 0 { b"X-a=" } else { &piece }, true, tag).0 {
            Response::Text(p) => tag = p.target_tag,
            Response::Reject(p) => {
                assert_eq!(p.reason, RejectReason::Protocol);
                break;
            }
            other => panic!("{other:?}"),
        }
        pieces += 1;
        assert!(pieces < 100, "no end of it");
    }
    assert_eq!(c.read(0, 0, 1).len(), 512, "commands go on");
    // One that waits is given up by a new one.
    c.text(b"X-b=", true, TAG_NONE);
    let (_, text) = c.text(b"X-c=1\0", false, TAG_NONE);
    assert_eq!(text, b"X-c=NotUnderstood\0");
    drop(c);
    fixture.well("endless text");
}

#[test]
fn logouts_of_every_reason_are_answered_with_commands_in_flight() {
    let mut fixture = Fixture::new();
    for (reason, cid, answer) in [
        (LogoutReason::Recovery, 1, LogoutAnswer::RecoveryUnsupported),
        (LogoutReason::Connection, 7, LogoutAnswer::NoConnection),
        (LogoutReason::Connection, 1, LogoutAnswer::Closed),
        (LogoutReason::Session, 0, LogoutAnswer::Closed),
    ] {
        let mut c = fixture.client();
        let before = c.read(0, 10, 8);
        let (tag, target_tag) = c.open_write(10, 4096);
        let pdu = LogoutRequest {
            immediate: true,
            reason,
            task_tag: c.next_tag(),
            cid,
            cmd_sn: c.cmd_sn,
            ..LogoutRequest::default()
        };
        c.send(&pdu, &[]);
        if answer == LogoutAnswer::Closed {
            // What follows a logout is not looked at.
            let late = c.command(0, &rw10(0x28, 0, 1), 512, 0);
            let late = c.bytes(&late, &[], &[]);
            c.try_raw(&late);
        }
        match c.expect() {
            (Response::Logout(p), _) => assert_eq!((p.answer, p.task_tag), (answer, pdu.task_tag)),
            other => panic!("{other:?}"),
        }
        if answer == LogoutAnswer::Closed {
            assert!(c.receive().is_none());
            let mut again = fixture.client();
            assert_eq!(again.read(0, 10, 8), before);
            again.logout();
        } else {
            c.burst(tag, target_tag, &before, 0, 4096, 4096);
            assert_eq!(c.answer(tag).1.status, 0, "the session goes on");
            c.logout();
        }
    }
    fixture.well("logouts");
}

#[test]
fn kicked_session_receives_an_asynchronous_message() {
    let mut fixture = Fixture::new();
    let mut c = fixture.client();
    let sessions = fixture.server.registry.sessions();
    let own = sessions.iter().find(|s| s.initiator.ends_with(":raw")).unwrap().number;
    assert!(fixture.server.registry.kick(own));
    match c.expect() {
        (Response::Async(p), _) => assert_eq!(p.event, AsyncEvent::SessionDropped),
        other => panic!("{other:?}"),
    }
    assert!(c.receive().is_none());
    fixture.well("a session that was ended");
}
