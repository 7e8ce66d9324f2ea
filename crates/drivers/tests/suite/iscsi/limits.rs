//! Limits against greedy peers: connections, silence, memory.

use std::io::{Read, Write};
use std::time::Duration;

use wire::iscsi::{LoginRequest, Pdu};

use crate::common::fd_exhaustion;
use crate::iscsi::server::{Server, Shape};
use testkit::iscsi::initiator::{Client, LoginOptions, connect, dial, rw10};
use testkit::until;

/// Connections of [`many_connections`]; `ASHLAR_CONNECTIONS=10000` runs the long one (a process
/// needs twice as many descriptors: `ulimit -n 32768`).
const CONNECTIONS: usize = 2000;

fn connections() -> usize {
    let wanted = std::env::var("ASHLAR_CONNECTIONS").ok().and_then(|v| v.parse().ok());
    let wanted = wanted.unwrap_or(CONNECTIONS);
    let limits = std::fs::read_to_string("/proc/self/limits").unwrap();
    let line = limits.lines().find(|l| l.starts_with("Max open files")).unwrap();
    let open: usize = line.split_whitespace().nth(3).unwrap().parse().unwrap_or(1 << 20);
    wanted.min(open.saturating_sub(200) / 2)
}

/// A target that takes all its connections from one address.
fn many_from_one_peer() -> Shape {
    let params = serde_json::json!({ "connections_per_peer": 65_536 });
    Shape { spec: drivers::TargetSpec { params, ..Default::default() }, ..Shape::default() }
}

#[test]
fn connections_of_one_peer_are_limited_until_some_close() {
    let server = Server::start(Shape::default());
    server.set(drivers::TargetSpec {
        params: serde_json::json!({ "connections_per_peer": 2 }),
        ..drivers::TargetSpec::default()
    });
    let first = Client::login(server.portal, &LoginOptions::default());
    let silent = connect(server.portal);
    // A timeout would be another error.
    let ended = dial(server.portal).and_then(|mut refused| refused.read(&mut [0]));
    let is_reset = |e: std::io::Error| e.kind() == std::io::ErrorKind::ConnectionReset;
    assert!(ended.map_or_else(is_reset, |bytes| bytes == 0));
    drop((silent, first));
    until("the count goes down", || {
        Client::try_login(server.portal, &LoginOptions::default()).is_ok()
    });
}

#[test]
fn many_connections() {
    let server = Server::start(many_from_one_peer());
    let mut first = Client::login(server.portal, &LoginOptions::default());
    first.ready(0);
    let all: Vec<Client> = (0..connections())
        .map(|i| {
            let initiator = format!("iqn.2026-11.test.ashlar:many{i}");
            Client::login(server.portal, &LoginOptions { initiator, ..LoginOptions::default() })
        })
        .collect();
    assert_eq!(server.registry.sessions().len(), all.len() + 1);
    for mut c in all {
        c.ready(1);
        assert_eq!(c.read(1, 0, 8).len(), 4096);
    }
    assert_eq!(first.read(0, 0, 8).len(), 4096);
}

#[test]
fn oldest_half_open_connections_are_closed_for_new_logins() {
    let server = Server::start(many_from_one_peer());
    let count = drivers::iscsi::LOGINS_MAX + 200;
    let mut silent: Vec<_> = (0..count).map(|_| connect(server.portal)).collect();
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    assert_eq!(c.read(0, 0, 8).len(), 4096);
    // The oldest were closed to free places, the newest still may log in.
    let closed = |s: &mut std::net::TcpStream| {
        s.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        matches!(s.read(&mut [0]), Ok(0) | Err(_))
    };
    assert!(closed(&mut silent[0]));
    let last = silent.last_mut().unwrap();
    last.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    let waits = last.read(&mut [0]).unwrap_err().kind();
    assert_eq!(waits, std::io::ErrorKind::WouldBlock);
}

#[test]
fn logins_that_trickle_are_timed_out() {
    let server = Server::start(Shape::default());
    server.set(drivers::TargetSpec {
        params: serde_json::json!({ "login_timeout": 1 }),
        ..drivers::TargetSpec::default()
    });
    // The target is known after the first request, so its own limit counts from then on.
    let mut stream = connect(server.portal);
    let text = format!(
        "InitiatorName=iqn.2026-11.test.ashlar:slow\0TargetName={}\0",
        crate::iscsi::server::IQN
    );
    let mut bhs = [0; 48];
    let data_len = text.len() as u32;
    LoginRequest { stage: 1, isid: [0x80, 0, 0, 0, 0, 9], data_len, ..Default::default() }
        .encode(&mut bhs);
    let mut bytes = bhs.to_vec();
    bytes.extend(text.as_bytes());
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    stream.write_all(&bytes).unwrap();
    until("the connection is closed", || stream.write_all(&bhs[..1]).is_err());
}

#[test]
fn peer_that_does_not_read_is_closed_without_delaying_others() {
    let server = Server::start(Shape { pool_bytes: 16 << 20, ..Shape::default() });
    let mut witness = Client::login(server.portal, &LoginOptions::default());
    witness.ready(0);
    let mut greedy: Vec<Client> = (0..4)
        .map(|i| {
            let mut c = Client::login(server.portal, &LoginOptions::default().isid(100 + i));
            c.ready(1);
            for n in 0..120 {
                let bytes = rw10(0x28, n * 512, 512);
                let header = c.command(1, &bytes, 512 * 512, 0);
                c.send(&header, &[]);
            }
            c
        })
        .collect();
    for round in 0..200u32 {
        let sent = vec![round as u8; 64 * 512];
        assert_eq!(witness.write(1000, &sent, 8192).status, 0);
        assert_eq!(witness.read(0, 1000, 64), sent);
    }
    // None of them was closed to serve the witness: one that reads after all receives everything.
    let mut c = greedy.remove(0);
    let first = c.tag - 119;
    for tag in first..first + 120 {
        assert_eq!(c.answer(tag).0.len(), 512 * 512);
    }
    // The others are closed.
    until("those that never read are closed", || server.registry.sessions().len() <= 2);
    assert_eq!(witness.read(0, 1000, 64).len(), 64 * 512);
}

#[test]
fn peers_that_withhold_write_data_are_closed_without_delaying_others() {
    let server = Server::start(Shape { pool_bytes: 16 << 20, ..Shape::default() });
    let mut witness = Client::login(server.portal, &LoginOptions::default());
    witness.ready(0);
    // 30 MiB each of writes, of whose data not one byte arrives, and with one of them one PDU of
    // four bytes in a while.
    let owe = |isid| {
        let mut c = Client::login(server.portal, &LoginOptions::default().isid(isid));
        c.ready(1);
        for n in 0..120 {
            let header = c.command(1, &rw10(0x2A, n * 512, 512), 0, 512 * 512);
            c.send(&header, &[]);
        }
        c
    };
    let _silent = owe(100);
    let mut trickling = owe(101);
    let (tag, target_tag) = loop {
        if let wire::iscsi::Response::R2t(r) = trickling.expect().0 {
            break (r.task_tag, r.target_tag);
        }
    };
    let mut data_sn = 0;
    until("both are closed", || {
        let bytes = vec![data_sn as u8; 64 * 512];
        assert_eq!(witness.write(1000, &bytes, 8192).status, 0);
        assert!(witness.read(0, 1000, 64) == bytes);
        let pdu = wire::iscsi::DataOut {
            task_tag: tag,
            target_tag,
            data_sn,
            offset: data_sn * 4,
            data_len: 4,
            ..Default::default()
        };
        let bytes = trickling.bytes(&pdu, &[], &[0; 4]);
        trickling.try_raw(&bytes);
        data_sn += 1;
        // The pace of the peer.
        std::thread::sleep(Duration::from_millis(20));
        server.registry.sessions().len() <= 1
    });
    // They wait for seconds. A witness that waited for them would have been served once.
    assert!(data_sn > 10, "{data_sn} rounds");
}

#[test]
fn writes_that_wait_for_buffers_all_complete() {
    let server = Server::start(Shape { pool_bytes: 2 << 20, ..Shape::default() });
    let portal = server.portal;
    let writers: Vec<_> = (0..6u8)
        .map(|i| {
            std::thread::spawn(move || {
                let mut c = Client::login(portal, &LoginOptions::default().isid(50 + i));
                c.ready(0);
                for round in 0..20u8 {
                    let sent = vec![i ^ round; 600 * 512];
                    let lba = u32::from(i) * 2000;
                    assert_eq!(c.write(lba, &sent, 60_000).status, 0);
                    assert!(c.read(0, lba, 600) == sent);
                }
            })
        })
        .collect();
    writers.into_iter().for_each(|w| w.join().unwrap());
}

#[test]
fn a_silent_initiator_is_pinged_and_a_dead_one_closed() {
    let server = Server::start(Shape::default());
    server.set(drivers::TargetSpec {
        params: serde_json::json!({ "nop_interval": 1, "nop_timeout": 2 }),
        ..drivers::TargetSpec::default()
    });
    let mut alive = Client::login(server.portal, &LoginOptions::default());
    let mut dead = Client::login(server.portal, &LoginOptions::default().isid(9));
    for _ in 0..4 {
        match alive.expect().0 {
            wire::iscsi::Response::NopIn(p) => {
                assert_eq!(p.task_tag, wire::iscsi::TAG_NONE);
                let answer = wire::iscsi::NopOut {
                    immediate: true,
                    task_tag: wire::iscsi::TAG_NONE,
                    target_tag: p.target_tag,
                    cmd_sn: alive.cmd_sn,
                    ..Default::default()
                };
                alive.send(&answer, &[]);
            }
            other => panic!("{other:?}"),
        }
    }
    while dead.receive().is_some() {}
    alive.ready(0);
    assert_eq!(server.registry.sessions().len(), 1);
}

#[test]
fn kick_cold_reset_and_target_removal_end_sessions() {
    let server = Server::start(Shape::default());
    let mut kicked = Client::login(server.portal, &LoginOptions::default());
    kicked.ready(0);
    let number = server.registry.sessions()[0].number;
    assert!(server.registry.kick(number));
    kicked.closed();
    let mut cold = Client::login(server.portal, &LoginOptions::default());
    let mut other = Client::login(server.portal, &LoginOptions::default().isid(2));
    cold.ready(0);
    let answer = cold.function(wire::iscsi::task_function::TARGET_COLD_RESET, 0, 0);
    assert_eq!(answer, wire::iscsi::TaskAnswer::Complete);
    other.closed();
    cold.closed();
    let mut last = Client::login(server.portal, &LoginOptions::default());
    last.ready(0);
    server.registry.remove_target("iscsi", crate::iscsi::server::IQN).unwrap();
    server.driver.remove_target(crate::iscsi::server::IQN);
    last.closed();
    assert!(Client::try_login(server.portal, &LoginOptions::default()).is_err());
}

#[test]
fn serves_with_few_descriptors() {
    // The other half of the next test, in a process of its own.
    fd_exhaustion::serves(|| {
        let server = Server::start(Shape { cores: 2, ..Shape::default() });
        let portal = server.portal;
        (server, portal)
    });
}

#[test]
fn sessions_continue_and_logins_wait_without_descriptors() {
    let isid = std::cell::Cell::new(0);
    fd_exhaustion::runs_out("iscsi::limits::serves_with_few_descriptors", |at| {
        isid.set(isid.get() + 1);
        let mut c = Client::login(at, &LoginOptions::default().isid(70 + isid.get()));
        c.ready(0);
        move || assert_eq!(c.read(0, 0, 8).len(), 4096)
    });
}
