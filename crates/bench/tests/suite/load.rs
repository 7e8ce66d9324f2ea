//! Data verification of the load generator against a real target.

use std::fs;
use std::path::PathBuf;

use bench::load::{self, Order, Spec, Work};
use bench::servers::{Backing, Scratch, Server};
use bench::{Kind, Peer};

const BYTES: u64 = 16 << 20;

fn target() -> (Server, PathBuf, Scratch) {
    rig::packages::ensure_host().expect("packages");
    let scratch = Scratch::new("test").expect("scratch");
    let file = scratch.file("disk", BYTES).expect("file");
    let server = Server::peer(Peer::Tgt, None, &[Backing::File(file.clone())]).expect("tgt");
    (server, file, scratch)
}

fn spec(server: &Server) -> Spec {
    Spec { requests: Some(200), ..Spec::new(server.portal, server.target.clone(), server.luns[0]) }
}

#[test]
fn written_data_are_read_back_at_every_size_and_depth() {
    let (server, _, _scratch) = target();
    // With more than 8192 bytes tgt requests data by R2T; with 1 MiB reads arrive in several PDUs.
    for (request_bytes, depth, sessions) in
        [(512, 1, 1), (4096, 32, 1), (4096, 8, 3), (65536, 16, 2), (1 << 20, 2, 2)]
    {
        for digests in [false, true] {
            let digest_target = server.digest_target.as_ref().filter(|_| digests);
            let target = digest_target.unwrap_or(&server.target);
            let spec = Spec {
                target: target.clone(),
                request_bytes,
                depth,
                sessions,
                digests,
                work: Work::Verify,
                ..spec(&server)
            };
            let outcome = load::run(&spec).unwrap_or_else(|e| panic!("{spec:?}: {e}"));
            assert_eq!(outcome.requests, 200 * u64::from(sessions), "{spec:?}");
            // Every second request is a read, but for those a slot has left over.
            let all = u64::from(sessions * depth);
            assert!(outcome.compared * 2 + all >= outcome.requests, "{outcome:?}");
            assert_eq!(outcome.latency.count(), 0, "nobody asked for latencies");
        }
    }
}

#[test]
fn changed_byte_is_detected_and_located() {
    let (server, file, _scratch) = target();
    let whole = Spec {
        request_bytes: 65536,
        depth: 4,
        work: Work::Fill,
        order: Order::Sequential,
        requests: Some(BYTES / 65536),
        seed: 77,
        ..spec(&server)
    };
    assert_eq!(load::run(&whole).expect("fill").requests, BYTES / 65536);
    let check = Spec { work: Work::Check, ..whole.clone() };
    assert_eq!(load::run(&check).expect("check").compared, BYTES / 65536);
    let other = Spec { seed: 78, ..check.clone() };
    assert_eq!(load::run(&other).expect_err("another seed").kind, Kind::Data);
    // One bit behind the target's back.
    let mut bytes = fs::read(&file).expect("read the image");
    bytes[1_234_567] ^= 0x40;
    fs::write(&file, bytes).expect("write the image");
    let error = load::run(&check).expect_err("a changed byte");
    assert_eq!(error.kind, Kind::Data);
    assert!(error.message.contains("1234567"), "{error}");
}

#[test]
fn stopped_load_logs_out_and_idle_sessions_remain() {
    let (server, _, _scratch) = target();
    let running = load::start(&Spec { depth: 8, requests: None, ..spec(&server) }).expect("start");
    running.record(true);
    while running.requests() < 1000 {
        assert!(!running.is_finished());
        std::thread::yield_now();
    }
    let outcome = running.stop().expect("stop");
    assert!(outcome.requests >= 1000 && outcome.latency.count() > 0);
    assert!(outcome.latency.quantile(0.5) <= outcome.latency.quantile(0.99));
    let lingering = Spec { sessions: 3, requests: Some(5), linger: true, ..spec(&server) };
    let lingering = load::start(&lingering).expect("start");
    while lingering.requests() < 15 {
        assert!(!lingering.is_finished());
        std::thread::yield_now();
    }
    assert!(!lingering.is_finished());
    assert_eq!(lingering.stop().expect("stop").requests, 15);
}

#[test]
fn errors_have_the_kind_of_their_cause() {
    let (server, _, _scratch) = target();
    let kind = |spec: Spec| load::run(&spec).expect_err("an error").kind;
    let good = spec(&server);
    assert_eq!(
        kind(Spec { target: "iqn.2026-11.bench.ashlar:no".into(), ..good.clone() }),
        Kind::Login
    );
    assert_eq!(kind(Spec { luns: vec![9], ..good.clone() }), Kind::Status);
    assert_eq!(kind(Spec { request_bytes: 1000, ..good.clone() }), Kind::Options);
    assert_eq!(kind(Spec { depth: 0, ..good.clone() }), Kind::Options);
    assert_eq!(kind(Spec { requests: None, ..good.clone() }), Kind::Options);
    let nobody = Spec { portal: ([127, 0, 0, 1], 1).into(), ..good };
    assert_eq!(kind(nobody), Kind::System);
}

#[test]
fn servers_are_gone_with_their_owner() {
    let (server, _, _scratch) = target();
    let process = format!("/proc/{}", server.pid());
    assert!(fs::metadata(&process).is_ok());
    drop(server);
    assert!(fs::metadata(&process).is_err(), "the server still runs");
    let missing = Server::ashlar("/no/such/program", None, &[Backing::Null]);
    assert_eq!(missing.err().map(|e| e.kind), Some(Kind::Server));
    // It ends before it listens: an error at once, with its status.
    let ends = Server::ashlar("/bin/false", None, &[Backing::Null]).err().expect("an error");
    assert!(ends.message.contains("ended"), "{ends}");
}
