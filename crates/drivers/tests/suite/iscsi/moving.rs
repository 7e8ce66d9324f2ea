//! Data in every way that can be agreed on, and numbers near their end.

use wire::iscsi::{DigestPolicy, Response};

use crate::iscsi::server::{Server, Shape};
use testkit::iscsi::initiator::{Client, LoginOptions, rw10};

fn server(initial_r2t: bool, immediate: bool) -> Server {
    let params = serde_json::json!({
        "initial_r2t": initial_r2t, "immediate_data": immediate,
        "first_burst_length": 20_000, "max_burst_length": 50_000, "max_outstanding_r2t": 3,
    });
    let spec = drivers::TargetSpec { params, ..drivers::TargetSpec::default() };
    Server::start(Shape { spec, ..Shape::default() })
}

fn bytes(len: usize, seed: u64) -> Vec<u8> {
    let mut random = reactor::SeededRandom::new(seed);
    (0..len).map(|_| random.next_u64() as u8).collect()
}

#[test]
fn data_is_correct_under_every_negotiated_combination() {
    for (initial_r2t, immediate) in [(false, false), (false, true), (true, false), (true, true)] {
        let server = server(initial_r2t, immediate);
        for (i, (header, data)) in
            [(false, false), (true, false), (false, true), (true, true)].into_iter().enumerate()
        {
            let mut how = LoginOptions { cmd_sn: 0xffff_fff0, ..LoginOptions::default() };
            how.offer.params.initial_r2t = initial_r2t;
            how.offer.params.immediate_data = immediate;
            how.offer.params.max_outstanding_r2t = 3;
            let mut c = Client::login(server.portal, &how.digests(header, data).isid(i as u8));
            assert_eq!((c.params.initial_r2t, c.params.immediate_data), (initial_r2t, immediate));
            assert_eq!((c.params.header_digest, c.params.data_digest), (header, data));
            c.ready(0);
            let piece = [8192, 1000, 333, 65_536][i];
            let mut seed = 0;
            for blocks in [1u16, 3, 16, 39, 40, 97, 98, 200] {
                seed += 1;
                let sent = bytes(usize::from(blocks) * 512, seed);
                let lba = u32::from(blocks) * 7 + 1;
                assert_eq!(c.write(lba, &sent, piece).status, 0, "{blocks} blocks");
                assert_eq!(c.read(0, lba, blocks), sent, "{blocks} blocks, {piece} bytes a PDU");
            }
            c.logout();
        }
    }
}

#[test]
fn data_is_correct_in_one_byte_segments() {
    let server = server(false, true);
    for digests in [false, true] {
        let mut how =
            LoginOptions { segment: 1, ..LoginOptions::default() }.digests(digests, digests);
        how.offer.params.initial_r2t = false;
        let mut c = Client::login(server.portal, &how);
        c.ready(0);
        let sent = bytes(20 * 512, 9);
        assert_eq!(c.write(5, &sent, 777).status, 0);
        assert_eq!(c.read(0, 5, 20), sent);
        assert_eq!(c.ping(b"hello"), b"hello");
        c.logout();
    }
}

#[test]
fn residuals_report_underflow_and_overflow() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    let sent = bytes(4 * 512, 3);
    assert_eq!(c.write(0, &sent, 8192).status, 0);
    for (expected, moved, residual) in [
        (4096, 2048, wire::iscsi::Residual::Underflow(2048)),
        (1000, 1000, wire::iscsi::Residual::Overflow(1048)),
        (2048, 2048, wire::iscsi::Residual::None),
    ] {
        let tag = c.start(0, &rw10(0x28, 0, 4), expected, 0);
        let (data, end, _) = c.answer(tag);
        assert_eq!((data.as_slice(), end.residual), (&sent[..moved], residual));
    }
    // More is offered than the command takes: only that much is requested.
    let tag = c.start(0, &rw10(0x2a, 100, 2), 0, 4096);
    match c.expect() {
        (Response::R2t(r), _) => {
            assert_eq!((r.offset, r.desired_len), (0, 1024));
            c.burst(tag, r.target_tag, &sent, 0, 1024, 8192);
        }
        other => panic!("{other:?}"),
    }
    let (_, end, _) = c.answer(tag);
    assert_eq!((end.status, end.residual), (0, wire::iscsi::Residual::Underflow(3072)));
    assert_eq!(c.read(0, 100, 2), sent[..1024]);
}

#[test]
fn a_target_that_requires_digests_gets_them() {
    let spec = drivers::TargetSpec {
        header_digest: drivers::DigestPolicy::Require,
        data_digest: drivers::DigestPolicy::Require,
        ..drivers::TargetSpec::default()
    };
    let server = Server::start(Shape { spec, ..Shape::default() });
    assert!(Client::try_login(server.portal, &LoginOptions::default()).is_err());
    let mut how = LoginOptions::default();
    how.offer.header_digest = DigestPolicy::Allow;
    how.offer.data_digest = DigestPolicy::Allow;
    let mut c = Client::login(server.portal, &how);
    assert!(c.params.header_digest && c.params.data_digest);
    c.ready(0);
    assert_eq!(c.read(0, 0, 9).len(), 9 * 512);
}
