//! Defects that other NBD servers had, over real sockets. After each attack a client that was there
//! before is still served, and no session is left.

use std::io::Write;
use std::net::Shutdown;

use wire::nbd::codes::{kind, option, rep};
use wire::nbd::{Form, Request, dial};

use crate::nbd::server::{Server, Shape};
use testkit::nbd::Client;

/// Bytes of the pool: few, so that buffers which are not given back are missed soon.
const POOL_BYTES: usize = 8 << 20;

struct Fixture {
    server: Server,
    witness: Client,
    round: u8,
}

impl Fixture {
    fn new(params: serde_json::Value) -> Fixture {
        let shape = Shape { cores: 1, pool_bytes: POOL_BYTES, params, ..Shape::default() };
        let server = Server::start(shape);
        let witness = Client::enter(server.portal, Form::Structured, "memory");
        Fixture { server, witness, round: 0 }
    }

    fn well(&mut self, after: &str) {
        testkit::until(&format!("no session is left after {after}"), || {
            self.server.registry.sessions().len() <= 1
        });
        self.round += 1;
        let sent = vec![self.round; 5 * 512];
        assert_eq!(self.witness.ask(kind::WRITE, 0, 1 << 20, 2560, &sent).error, None, "{after}");
        let held = self.witness.ask(kind::READ, 0, 1 << 20, 2560, &[]);
        assert_eq!(held.bytes(1 << 20), sent, "{after}");
    }
}

#[test]
fn options_are_accepted_in_any_order_before_go() {
    // CVE-2019-14851: INFO and then `GO` opened the export twice and crashed.
    let mut fixture = Fixture::new(serde_json::Value::Null);
    let mut c = Client::dial(fixture.server.portal);
    for _ in 0..3 {
        for export in ["memory", "nothing", "null", ""] {
            let kinds = c.option(option::INFO, &dial::info(export, &[3, 0, 9, 3]));
            assert!(matches!(kinds.last(), Some(&rep::ACK | &rep::ERR_UNKNOWN)), "{kinds:x?}");
        }
    }
    // A context of one export does not hold for another.
    assert_eq!(c.option(option::STRUCTURED_REPLY, &[]), [rep::ACK]);
    c.option(option::SET_META_CONTEXT, &dial::contexts("null", &["base:allocation"]));
    assert_eq!(c.option(option::GO, &dial::info("memory", &[])).last(), Some(&rep::ACK));
    drop(c);
    fixture.well("INFO before GO");
}

#[test]
fn options_with_wrong_lengths_affect_no_other_client() {
    // CVE-2022-26495 and 26496: name lengths of 4 GiB and names longer than the stack;
    // CVE-2020-10761: an error text longer than a reply may be.
    let mut fixture = Fixture::new(serde_json::Value::Null);
    let long = "n".repeat(4096);
    for number in [
        option::EXPORT_NAME,
        option::LIST,
        option::INFO,
        option::GO,
        option::STRUCTURED_REPLY,
        option::SET_META_CONTEXT,
        option::LIST_META_CONTEXT,
        option::EXTENDED_HEADERS,
        option::STARTTLS,
        0,
        99,
        u32::MAX,
    ] {
        for payload in [
            u32::MAX.to_be_bytes().to_vec(),
            vec![0; 3],
            vec![0xff; 64],
            dial::info(&long, &[]),
            dial::info(&"n".repeat(5000), &[]),
            dial::contexts("memory", &[&long, "base:", ":", ""]),
            [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xff].to_vec(),
        ] {
            let mut c = Client::dial(fixture.server.portal);
            c.stream.write_all(&dial::option(number, &payload)).unwrap();
            c.stream.shutdown(Shutdown::Write).unwrap();
            let mut rest = Vec::new();
            let _ = std::io::Read::read_to_end(&mut c.stream, &mut rest);
            assert!(rest.len() < 64 << 10, "{number}: {} bytes", rest.len());
        }
        // A length whose data are never sent.
        let mut c = Client::dial(fixture.server.portal);
        let mut bytes = dial::option(number, &[]);
        let at = bytes.len() - 4;
        bytes[at..].copy_from_slice(&u32::MAX.to_be_bytes());
        c.stream.write_all(&bytes).unwrap();
        assert!(c.is_closed() || number != option::GO, "{number}");
    }
    fixture.well("lengths that lie");
}

#[test]
fn connections_cut_at_each_byte_affect_no_other_client() {
    // CVE-2017-7539: a client that disconnects in the middle of the handshake took the server
    // along.
    let mut fixture = Fixture::new(serde_json::Value::Null);
    let go = dial::option(option::GO, &dial::info("memory", &[]));
    for at in 0..=go.len() {
        let mut c = Client::dial(fixture.server.portal);
        c.stream.write_all(&go[..at]).unwrap();
        if at % 2 == 0 {
            c.stream.shutdown(Shutdown::Both).unwrap();
        }
    }
    for form in [Form::Simple, Form::Structured, Form::Extended] {
        let mut bytes = Vec::new();
        let write = Request { kind: kind::WRITE, len: 512, ..Request::default() };
        write.encode(form, &mut bytes);
        bytes.extend([7; 512]);
        for at in (0..bytes.len()).filter(|at| *at < 40 || at % 61 == 0) {
            let mut c = Client::enter(fixture.server.portal, form, "memory");
            // An answer that is not read makes the end a reset.
            let read = Request { kind: kind::READ, len: 512, ..Request::default() };
            let mut first = Vec::new();
            read.encode(form, &mut first);
            c.stream.write_all(&first).unwrap();
            c.stream.peek(&mut [0]).unwrap();
            c.stream.write_all(&bytes[..at]).unwrap();
        }
    }
    fixture.well("cuts");
}

#[test]
fn half_open_clients_do_not_keep_others_out() {
    // CVE-2024-7409: clients that stay in the handshake blocked all others or took the server down.
    let mut fixture = Fixture::new(serde_json::json!({ "handshake_timeout": 2 }));
    let silent: Vec<_> =
        (0..700).map(|_| std::net::TcpStream::connect(fixture.server.portal).unwrap()).collect();
    drop(Client::enter(fixture.server.portal, Form::Simple, "memory"));
    fixture.well("seven hundred half-open clients");
    drop(silent);
    fixture.well("their end");
}

#[test]
fn requests_of_every_kind_flag_and_length_are_answered() {
    let mut fixture = Fixture::new(serde_json::Value::Null);
    for form in [Form::Simple, Form::Structured, Form::Extended] {
        let mut c = Client::enter(fixture.server.portal, form, "null");
        for of in (0..12u16).chain([255, 256, 0xffff]) {
            // WRITE has a payload, which would have to follow; DISC has no reply.
            if matches!(of, kind::WRITE | kind::DISC) {
                continue;
            }
            for flags in [0u16, 1, 2, 4, 8, 16, 64, 0xff40] {
                for (offset, len) in
                    [(0, 0), (1, 1), (0, 512), (1 << 40, 512), (u64::MAX, 1), (u64::MAX - 511, 512)]
                {
                    let answer = c.ask(of, flags, offset, len, &[]);
                    let beyond = offset >= 1 << 40;
                    assert!(!beyond || answer.error.is_some(), "{form:?} {of} {flags} {offset}");
                }
            }
        }
        drop(c);
        fixture.well("every kind of request");
    }
}
