//! Every request in every form of header, good and bad.

use wire::nbd::codes::{command_flag as flag, kind, option, rep};
use wire::nbd::{Error, Form, dial};

use crate::nbd::server::{MEMORY_BYTES, Server, Shape};
use testkit::nbd::Client;

const FORMS: [Form; 3] = [Form::Simple, Form::Structured, Form::Extended];

fn data(len: usize, seed: u8) -> Vec<u8> {
    (0..len).map(|i| (i % 251) as u8 ^ seed | 1).collect()
}

#[test]
fn written_data_is_read_back_in_every_header_form() {
    let server = Server::start(Shape::default());
    for (seed, form) in FORMS.into_iter().enumerate() {
        let mut c = Client::enter(server.portal, form, "memory");
        for (offset, len) in [(0, 512), (4096, 4096), (1 << 20, 3 << 20), (512, 100 * 512)] {
            let bytes = data(len as usize, seed as u8);
            assert_eq!(c.ask(kind::WRITE, flag::FUA, offset, len, &bytes).error, None);
            let answer = c.ask(kind::READ, 0, offset, len, &[]);
            assert!(answer.bytes(offset) == bytes, "{form:?} {offset} {len}");
        }
        assert_eq!(c.ask(kind::FLUSH, 0, 0, 0, &[]).error, None);
        assert_eq!(c.ask(kind::CACHE, 0, 0, 1 << 20, &[]).error, None);
        assert_eq!(c.ask(kind::WRITE_ZEROES, 0, 4096, 4096, &[]).error, None);
        assert_eq!(c.ask(kind::READ, 0, 4096, 4096, &[]).bytes(4096), vec![0; 4096]);
        assert_eq!(c.ask(kind::TRIM, flag::FUA, 1 << 20, 1 << 20, &[]).error, None);
        c.send(kind::DISC, 0, 0, 0, &[]);
        assert!(c.is_closed());
    }
}

#[test]
fn zeroes_are_sent_as_holes_unless_df_is_set() {
    let server = Server::start(Shape::default());
    let mut c = Client::enter(server.portal, Form::Structured, "memory");
    assert_eq!(c.ask(kind::WRITE, 0, 8192, 4096, &data(4096, 9)).error, None);
    let answer = c.ask(kind::READ, 0, 0, 65_536, &[]);
    assert_eq!((answer.holes, answer.data.len()), (2, 3));
    let mut whole = vec![0; 65_536];
    whole[8192..12_288].copy_from_slice(&data(4096, 9));
    assert!(answer.bytes(0) == whole);
    let answer = c.ask(kind::READ, flag::DF, 0, 65_536, &[]);
    assert_eq!((answer.holes, answer.data.len()), (0, 1));
    assert!(answer.bytes(0) == whole);
}

#[test]
fn bad_requests_fail_without_ending_the_connection() {
    let server = Server::start(Shape::default());
    let end = MEMORY_BYTES;
    for form in FORMS {
        let mut c = Client::enter(server.portal, form, "memory");
        for (kind, flags, offset, len, error) in [
            (kind::READ, 0, 1, 512, Error::Inval),
            (kind::READ, 0, 0, 511, Error::Inval),
            (kind::READ, 0, 0, 0, Error::Inval),
            (kind::READ, 0, end, 512, Error::Inval),
            (kind::READ, 0, u64::MAX - 511, 512, Error::Inval),
            (kind::READ, 0, 0, (32 << 20) + 512, Error::Inval),
            (kind::READ, flag::NO_HOLE, 0, 512, Error::Inval),
            (kind::TRIM, 0, end, 512, Error::Inval),
            (kind::WRITE_ZEROES, 0, end - 512, 1024, Error::NoSpc),
            (kind::WRITE_ZEROES, flag::FAST_ZERO | flag::NO_HOLE, 0, 512, Error::NotSup),
            (kind::FLUSH, 0, 512, 0, Error::Inval),
            (kind::BLOCK_STATUS, flag::DF, 0, 512, Error::Inval),
            (99, 0, 0, 0, Error::Inval),
        ] {
            let answer = c.ask(kind, flags, offset, len, &[]);
            assert_eq!(answer.error, Some(error), "{form:?} {kind} {flags} {offset} {len}");
        }
        for (offset, len, error) in
            [(end, 512, Error::NoSpc), (1, 512, Error::Inval), (0, 33 << 20, Error::Inval)]
        {
            let answer = c.ask(kind::WRITE, 0, offset, len as u64, &vec![7; len]);
            assert_eq!(answer.error, Some(error), "{form:?} {offset} {len}");
        }
        assert_eq!(c.ask(kind::WRITE_ZEROES, flag::FAST_ZERO, 0, 512, &[]).error, None);
        assert_eq!(c.ask(kind::READ, 0, 0, 512, &[]).error, None, "it goes on");
        let mut read_only = Client::enter(server.portal, form, "3");
        assert_eq!(read_only.ask(kind::WRITE, 0, 0, 512, &[1; 512]).error, Some(Error::Perm));
        assert_eq!(read_only.ask(kind::TRIM, 0, 0, 512, &[]).error, Some(Error::Perm));
    }
}

#[test]
fn requests_larger_than_the_pool_are_split() {
    let server = Server::start(Shape { pool_bytes: 4 << 20, cores: 1, ..Shape::default() });
    // A pool of 4 MiB, and requests of 32.
    for form in FORMS {
        let mut c = Client::enter(server.portal, form, "memory");
        let bytes = data(32 << 20, 3);
        assert_eq!(c.ask(kind::WRITE, 0, 512, 32 << 20, &bytes).error, None);
        let answer = c.ask(kind::READ, 0, 512, 32 << 20, &[]);
        assert!(answer.bytes(512) == bytes, "{form:?}");
        if form != Form::Simple {
            let answer = c.ask(kind::READ, flag::DF, 0, 32 << 20, &[]);
            assert_eq!(answer.error, Some(Error::Overflow));
        }
        let mut big = Client::enter(server.portal, form, "null");
        let len = if form == Form::Extended { 1 << 36 } else { 0xffff_f000 };
        assert_eq!(big.ask(kind::WRITE_ZEROES, flag::FUA, 4096, len, &[]).error, None);
        assert_eq!(big.ask(kind::TRIM, 0, 4096, len, &[]).error, None);
        assert_eq!(big.ask(kind::CACHE, 0, 0, len, &[]).error, None);
    }
}

#[test]
fn block_status_covers_the_requested_range() {
    let server = Server::start(Shape::default());
    for form in [Form::Structured, Form::Extended] {
        let mut c = Client::enter(server.portal, form, "memory");
        assert_eq!(c.ask(kind::WRITE, 0, 1 << 20, 1 << 20, &data(1 << 20, 1)).error, None);
        let mut at = 0;
        while at < MEMORY_BYTES {
            let answer = c.ask(kind::BLOCK_STATUS, 0, at, MEMORY_BYTES - at, &[]);
            assert_eq!(answer.error, None);
            let sum: u64 = answer.extents.iter().map(|e| e.len).sum();
            assert!(sum > 0 && answer.extents.iter().all(|e| e.len > 0));
            for extent in &answer.extents {
                let inside = at < 2 << 20 && at + extent.len > 1 << 20;
                assert!(!inside || extent.flags == 0, "data is told as a hole at {at}: {extent:?}");
                at += extent.len;
            }
        }
        let one = c.ask(kind::BLOCK_STATUS, flag::REQ_ONE, 0, 4096, &[]);
        assert_eq!(one.extents.len(), 1);
        assert!(one.extents[0].len <= 4096);
    }
    // Without the context the request makes no sense.
    let mut c = Client::enter(server.portal, Form::Simple, "memory");
    assert_eq!(c.ask(kind::BLOCK_STATUS, 0, 0, 512, &[]).error, Some(Error::Inval));
}

#[test]
fn flush_covers_writes_of_other_connections() {
    let server = Server::start(Shape::default());
    let (mut a, mut b) = (
        Client::enter(server.portal, Form::Simple, "memory"),
        Client::enter(server.portal, Form::Extended, "0"),
    );
    assert_eq!(a.ask(kind::WRITE, 0, 0, 512, &data(512, 5)).error, None);
    assert_eq!(b.ask(kind::FLUSH, 0, 0, 0, &[]).error, None);
    assert_eq!(b.ask(kind::READ, 0, 0, 512, &[]).bytes(0), data(512, 5));
    let sessions = server.registry.sessions();
    assert_eq!(sessions.len(), 2);
    assert!(sessions.iter().all(|s| s.initiator == "ip:127.0.0.1" && s.driver == "nbd"));
}

#[test]
fn kicked_session_is_closed() {
    let server = Server::start(Shape::default());
    let mut c = Client::enter(server.portal, Form::Simple, "memory");
    assert_eq!(c.ask(kind::READ, 0, 0, 512, &[]).error, None);
    let number = server.registry.sessions()[0].number;
    assert!(server.registry.kick(number));
    assert!(c.is_closed());
}

#[test]
fn a_unit_exchanged_behind_a_name_ends_the_connection() {
    let server = Server::start(Shape::default());
    let mut c = Client::enter(server.portal, Form::Simple, "0");
    assert_eq!(c.ask(kind::READ, 0, 0, 4096, &[]).error, None);
    let group = engine::GroupSpec {
        name: "all".into(),
        initiators: vec!["*".into()],
        luns: vec![engine::LunSpec { lun: 0, device: "big".into(), read_only: false }],
        ..engine::GroupSpec::default()
    };
    server.registry.set_groups("nbd", crate::nbd::server::TARGET, &[group]).unwrap();
    c.send(kind::WRITE, 0, 0, 4096, &[0xee; 4096]);
    assert!(c.is_closed(), "nothing is written to another disk");
    let mut c = Client::enter(server.portal, Form::Simple, "0");
    assert_eq!(c.ask(kind::READ, 0, 0, 4096, &[]).bytes(0), vec![0; 4096]);
}

/// No error of the protocol makes a client of Linux repeat a request.
/// Q2 of block_requests/requests.rs.
#[test]
fn request_at_an_awaited_unit_waits_until_the_unit_is_there() {
    let server = Server::start(Shape { cores: 1, ..Shape::default() });
    let mut c = Client::enter(server.portal, Form::Simple, "0");
    assert_eq!(c.ask(kind::WRITE, 0, 0, 4096, &data(4096, 3)).error, None);
    let group = engine::GroupSpec {
        name: "all".into(),
        initiators: vec!["*".into()],
        awaited: vec![(0, "memory".into())],
        ..engine::GroupSpec::default()
    };
    server.registry.set_groups("nbd", crate::nbd::server::TARGET, &[group]).unwrap();
    let sent = data(4096, 7);
    let waiting = c.send(kind::WRITE, 0, 0, 4096, &sent);
    // Its answer shows that the request before it has met the missing unit.
    let refused = c.send(kind::READ, 0, 0, 0, &[]);
    assert_eq!(c.receive(refused, None).error, Some(Error::Inval));
    server.allow(&["*"]);
    assert_eq!(c.receive(waiting, None).error, None);
    assert_eq!(c.ask(kind::READ, 0, 0, 4096, &[]).bytes(0), sent);
}

#[test]
fn handshake_hides_exports_that_are_not_granted() {
    let server = Server::start(Shape::default());
    server.allow(&["ip:10.9.9.9"]);
    let mut c = Client::dial(server.portal);
    assert_eq!(c.option(option::INFO, &dial::info("memory", &[])), [rep::ERR_UNKNOWN]);
    assert_eq!(c.option(option::LIST, &[]), [rep::ACK]);
    assert_eq!(c.option(option::STARTTLS, &[]), [rep::ERR_UNSUP]);
}
