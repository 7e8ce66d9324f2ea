//! Peers that break rules, stay silent or never read.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use wire::nbd::codes::{kind, option, rep};
use wire::nbd::{Form, OPTIONS_MAX, dial};

use crate::common::fd_exhaustion;
use crate::nbd::server::{Server, Shape};
use testkit::nbd::Client;
use testkit::until;

#[test]
fn floods_garbage_and_silence_end_the_handshake() {
    let server =
        Server::start(Shape { params: json!({"handshake_timeout": 1}), ..Shape::default() });
    let mut flood = Client::dial(server.portal);
    for _ in 0..OPTIONS_MAX {
        flood.option(77, &[]);
    }
    flood.stream.write_all(&dial::option(77, &[])).unwrap();
    assert!(flood.is_closed());
    let mut garbage = Client::dial(server.portal);
    garbage.stream.write_all(&[0x55; 64]).unwrap();
    assert!(garbage.is_closed());
    let mut unknown = Client::dial(server.portal);
    unknown.stream.write_all(&dial::option(option::EXPORT_NAME, b"nothing")).unwrap();
    assert!(unknown.is_closed());
    let denied = server.registry.denied();
    assert_eq!(denied.last().unwrap().target, "test/nothing");
    // A byte every now and then does not keep a handshake alive.
    let mut slow = Client::dial(server.portal);
    let bytes = dial::option(option::GO, &dial::info("memory", &[]));
    let is_closed = bytes.iter().any(|byte| {
        // The pace of the peer: it needs longer than a handshake may take.
        std::thread::sleep(Duration::from_millis(200));
        slow.stream.write_all(&[*byte]).is_err()
    });
    assert!(is_closed, "the whole option was accepted");
    assert!(server.registry.sessions().is_empty());
}

#[test]
fn a_refused_name_is_counted_once_for_each_connection() {
    let server = Server::start(Shape::default());
    let go = |name: &str| dial::info(name, &[]);
    for connection in 1..=2 {
        let mut c = Client::dial(server.portal);
        assert_eq!(c.option(option::INFO, &go("nothing")), [rep::ERR_UNKNOWN]);
        for name in ["nothing", "nothing", "nowhere", "nothing"] {
            assert_eq!(c.option(option::GO, &go(name)), [rep::ERR_UNKNOWN]);
        }
        // Clients that are old, or that fall back.
        c.stream.write_all(&dial::option(option::EXPORT_NAME, b"nothing")).unwrap();
        assert!(c.is_closed());
        assert_eq!(server.registry.denied_total(), connection * 2);
    }
    let mut old = Client::dial(server.portal);
    old.stream.write_all(&dial::option(option::EXPORT_NAME, b"nothing")).unwrap();
    assert!(old.is_closed());
    let denied = server.registry.denied();
    assert_eq!(denied.len(), 5, "{denied:?}");
    assert!(denied.iter().all(|d| d.text.contains("no export is called")), "{denied:?}");
}

#[test]
fn a_bad_magic_and_an_endless_payload_end_transmission() {
    let server = Server::start(Shape::default());
    let mut c = Client::enter(server.portal, Form::Simple, "memory");
    c.stream.write_all(&[0x11; 28]).unwrap();
    assert!(c.is_closed());
    let mut c = Client::enter(server.portal, Form::Extended, "memory");
    c.send(kind::WRITE, 0, 0, 1 << 62, &[]);
    assert!(c.is_closed());
    // Closed in the middle of a payload: the session ends, and nothing was written.
    let mut c = Client::enter(server.portal, Form::Simple, "memory");
    c.send(kind::WRITE, 0, 0, 4096, &[0xaa; 1000]);
    drop(c);
    let mut c = Client::enter(server.portal, Form::Simple, "memory");
    assert_eq!(c.ask(kind::READ, 0, 0, 4096, &[]).bytes(0), vec![0; 4096]);
}

#[test]
fn peer_that_never_reads_does_not_delay_others() {
    let server = Server::start(Shape { cores: 1, pool_bytes: 16 << 20, ..Shape::default() });
    let mut deaf = Client::enter(server.portal, Form::Simple, "null");
    deaf.stream.set_write_timeout(Some(Duration::from_millis(500))).unwrap();
    // Requests for gigabytes, until the server takes no more of them.
    let mut request = Vec::new();
    let read = wire::nbd::Request { kind: kind::READ, len: 1 << 20, ..Default::default() };
    (0..64).for_each(|_| read.encode(Form::Simple, &mut request));
    let mut sent = 0;
    while sent < 1 << 20 {
        match deaf.stream.write(&request) {
            Ok(n) => sent += n,
            Err(_) => break,
        }
    }
    // Another client is served meanwhile.
    let mut c = Client::enter(server.portal, Form::Simple, "memory");
    for _ in 0..20 {
        assert_eq!(c.ask(kind::READ, 0, 0, 4096, &[]).error, None);
    }
    drop(deaf);
}

#[test]
fn connections_beyond_the_limit_are_refused_until_others_close() {
    let server = Server::start(Shape { params: json!({"connections_max": 2}), ..Shape::default() });
    let first = Client::enter(server.portal, Form::Simple, "memory");
    let second = Client::enter(server.portal, Form::Simple, "null");
    let mut third = Client::dial(server.portal);
    let kinds = third.option(option::GO, &dial::info("memory", &[]));
    assert_eq!(kinds, [wire::nbd::codes::rep::ERR_POLICY]);
    drop((first, second));
    until("both sessions are gone", || server.registry.sessions().is_empty());
    drop(Client::enter(server.portal, Form::Simple, "memory"));
}

#[test]
fn connections_of_one_peer_are_limited_until_some_close() {
    let params = json!({ "connections_per_peer": 2 });
    let server = Server::start(Shape { params, ..Shape::default() });
    let first = Client::enter(server.portal, Form::Simple, "memory");
    let silent = Client::dial(server.portal);
    // A timeout would be another error.
    let refused = Client::try_enter(server.portal, "memory").map(|entered| entered.is_ok());
    let kind = refused.expect_err("a third connection").kind();
    assert!(matches!(kind, ErrorKind::ConnectionReset | ErrorKind::UnexpectedEof), "{kind:?}");
    drop((silent, first));
    until("the count goes down", || {
        Client::try_enter(server.portal, "memory").is_ok_and(|entered| entered.is_ok())
    });
}

#[test]
fn client_is_served_among_hundreds_of_connections() {
    let server = Server::start(Shape::default());
    let storm: Vec<TcpStream> = (0..300)
        .map(|i| {
            let mut stream = TcpStream::connect(server.portal).unwrap();
            if i % 3 == 0 {
                stream.write_all(&dial::flags()).unwrap();
            }
            stream
        })
        .collect();
    let mut c = Client::enter(server.portal, Form::Extended, "memory");
    assert_eq!(c.ask(kind::READ, 0, 0, 512, &[]).error, None);
    for mut stream in storm {
        stream.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        stream.read_exact(&mut [0; 18]).unwrap();
    }
}

#[test]
fn connections_with_missing_payloads_are_closed() {
    // Memory for one piece of a large WRITE and a little more.
    let server = Server::start(Shape { cores: 1, pool_bytes: 2 << 20, ..Shape::default() });
    let mut witness = Client::enter(server.portal, Form::Simple, "memory");
    let mut owing: Vec<Client> = (0..3)
        .map(|_| {
            let mut c = Client::enter(server.portal, Form::Simple, "null");
            c.send(kind::WRITE, 0, 0, 32 << 20, &[0x77]);
            c
        })
        .collect();
    let data = vec![0x21; 256 * 1024];
    until("those that owe data are closed", || {
        let answer = witness.ask(kind::WRITE, 0, 0, data.len() as u64, &data);
        assert!(answer.error.is_none_or(|e| e == wire::nbd::Error::NoMem), "{answer:?}");
        for c in &mut owing {
            // One more byte every now and then, of 32 MiB; closed stays closed.
            let _ = c.stream.write(&[0x77]);
        }
        // The pace of the peers.
        std::thread::sleep(Duration::from_millis(100));
        server.registry.sessions().len() <= 1
    });
    assert_eq!(witness.ask(kind::WRITE, 0, 0, data.len() as u64, &data).error, None);
    assert_eq!(witness.ask(kind::READ, 0, 0, data.len() as u64, &[]).bytes(0), data);
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
fn sessions_continue_and_clients_wait_without_descriptors() {
    fd_exhaustion::runs_out("nbd::hostile::serves_with_few_descriptors", |at| {
        let mut c = Client::enter(at, Form::Simple, "memory");
        move || assert_eq!(c.ask(kind::READ, 0, 0, 4096, &[]).error, None)
    });
}
