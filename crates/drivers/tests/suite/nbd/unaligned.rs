//! Clients that did not request the block size, at a disk with blocks of 4096 bytes (`big`).

use std::net::SocketAddr;
use std::thread;

use serde_json::json;
use wire::nbd::codes::{command_flag as flag, info, kind, option, rep};
use wire::nbd::{Error, Form, dial};

use crate::nbd::server::{Server, Shape};
use crate::nbd::tools::{run, try_run};
use testkit::nbd::Client;

const FORMS: [Form; 3] = [Form::Simple, Form::Structured, Form::Extended];

fn unasked(portal: SocketAddr, form: Form) -> Client {
    Client::enter_asking(portal, form, "big", &[])
}

fn pattern(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i * 31 + i / 251 + seed) % 255 + 1) as u8).collect()
}

#[test]
fn unaligned_requests_change_only_their_range() {
    let server = Server::start(Shape::default());
    for (seed, form) in FORMS.into_iter().enumerate() {
        let mut c = unasked(server.portal, form);
        let mut model = pattern(4 << 20, seed as u64);
        assert_eq!(c.ask(kind::WRITE, 0, 0, model.len() as u64, &model).error, None);
        for (at, len) in [
            (512, 512),
            (1, 1),
            (4095, 2),
            (0, 4095),
            (4096, 4097),
            (8192 + 7, 3 * 4096 - 9),
            (100, (3 << 20) + 5000),
        ] {
            let bytes = pattern(len, 1000 + at as u64);
            let answer = c.ask(kind::WRITE, flag::FUA, at as u64, len as u64, &bytes);
            assert_eq!(answer.error, None, "{form:?} {at} {len}");
            model[at..at + len].copy_from_slice(&bytes);
            let back = c.ask(kind::READ, 0, at as u64, len as u64, &[]).bytes(at as u64);
            assert!(back == bytes, "{form:?} {at} {len}");
        }
        for (at, len, flags) in
            [(5000, 20_000, flag::FUA), (70_000, 10, 0), (81_920, 4096, flag::NO_HOLE)]
        {
            let answer = c.ask(kind::WRITE_ZEROES, flags, at as u64, len as u64, &[]);
            assert_eq!(answer.error, None, "{form:?} {at} {len}");
            model[at..at + len].fill(0);
        }
        // A hint: blocks at its ends stay.
        assert_eq!(c.ask(kind::TRIM, 0, 100_001, 4096, &[]).error, None);
        assert_eq!(c.ask(kind::TRIM, 0, 200_704 - 1, 4098, &[]).error, None);
        model[200_704..][..4096].fill(0);
        assert_eq!(c.ask(kind::CACHE, 0, 3, 9, &[]).error, None);
        let all = c.ask(kind::READ, 0, 0, model.len() as u64, &[]).bytes(0);
        assert!(all == model, "{form:?}");
        if form != Form::Simple {
            let extents = c.ask(kind::BLOCK_STATUS, 0, 512, 1024, &[]).extents;
            assert_eq!(extents.iter().map(|e| e.len).sum::<u64>(), 1024);
            let one = c.ask(kind::READ, flag::DF, 511, 5000, &[]);
            assert!(one.data.len() == 1 && one.bytes(511) == model[511..][..5000]);
        }
        let end = 1 << 30;
        assert_eq!(c.ask(kind::READ, 0, end - 1, 2, &[]).error, Some(Error::Inval));
        assert_eq!(c.ask(kind::WRITE, 0, end - 1, 2, &[7; 2]).error, Some(Error::NoSpc));
        assert_eq!(c.ask(kind::WRITE, 0, end - 1, 1, &[7]).error, None);
        assert_eq!(c.ask(kind::READ, 0, end - 1, 1, &[]).bytes(end - 1), [7]);
    }
}

#[test]
fn concurrent_writes_to_parts_of_one_block_are_all_kept() {
    // Each client owns a sector of the block, on another core than its neighbour.
    let server = Server::start(Shape { cores: 4, ..Shape::default() });
    thread::scope(|all| {
        for own in 0..8u64 {
            let portal = server.portal;
            all.spawn(move || {
                let mut c = unasked(portal, Form::Simple);
                for round in 0..60u64 {
                    let bytes = pattern(512, own * 1000 + round);
                    // Two halves at once: the client's own writes meet as well.
                    let halves = [(0, &bytes[..256]), (256, &bytes[256..])];
                    for (from, part) in halves {
                        c.send(kind::WRITE, 0, own * 512 + from, 256, part);
                    }
                    let mut errors = [0; 32];
                    std::io::Read::read_exact(&mut c.stream, &mut errors).unwrap();
                    assert_eq!((&errors[4..8], &errors[20..24]), (&[0; 4][..], &[0; 4][..]));
                    let back = c.ask(kind::READ, 0, own * 512, 512, &[]).bytes(own * 512);
                    assert!(back == bytes, "client {own} lost a write in round {round}");
                }
            });
        }
    });
}

#[test]
fn unaligned_requests_fail_after_block_size_negotiation() {
    let server = Server::start(Shape::default());
    let mut c = Client::enter(server.portal, Form::Simple, "big");
    assert_eq!(c.ask(kind::READ, 0, 0, 512, &[]).error, Some(Error::Inval));
    assert_eq!(c.ask(kind::WRITE, 0, 512, 4096, &[1; 4096]).error, Some(Error::Inval));
}

#[test]
fn without_unaligned_a_client_must_negotiate_block_sizes() {
    let server = Server::start(Shape::default());
    server.set(json!({ "unaligned": false }));
    let mut c = Client::dial(server.portal);
    let kinds = c.option(option::GO, &dial::info("big", &[]));
    assert_eq!(kinds, [rep::INFO, rep::ERR_BLOCK_SIZE_REQD]);
    assert!(server.registry.sessions().is_empty());
    let kinds = c.option(option::GO, &dial::info("big", &[info::BLOCK_SIZE]));
    assert_eq!(kinds.last(), Some(&rep::ACK));
    let mut old = Client::dial(server.portal);
    std::io::Write::write_all(&mut old.stream, &dial::option(option::EXPORT_NAME, b"big")).unwrap();
    assert!(old.is_closed());
    let denied = server.registry.denied();
    assert!(denied.iter().any(|d| d.text.contains("unaligned = true")), "{denied:?}");
    let mut usual = Client::enter_asking(server.portal, Form::Simple, "memory", &[]);
    assert_eq!(usual.ask(kind::READ, 0, 512, 512, &[]).error, None);
}

#[test]
fn libnbd_without_block_sizes_reads_and_writes_sectors() {
    let server = Server::start(Shape::default());
    let script = "
import nbd
h = nbd.NBD()
h.set_request_block_size(False)
h.set_strict_mode(0)
h.connect_uri(URI)
h.pwrite(b'ashlar' + bytes(506), 512 * 9)
assert h.pread(6, 512 * 9) == b'ashlar'
assert h.pread(512, 512 * 8) == bytes(512)
h.shutdown()
";
    let uri = format!("URI = '{}'", server.url("big"));
    let script = format!("{uri}\n{script}");
    run("/usr/bin/python3", &["-c", &script]);
    server.set(json!({ "unaligned": false }));
    let refused = try_run("/usr/bin/python3", &["-c", &script]).unwrap_err();
    assert!(refused.contains("block size") || refused.contains("unaligned"), "{refused}");
}
