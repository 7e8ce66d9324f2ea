//! Initiators that we did not write: libiscsi's tools and QEMU.

use std::path::Path;
use std::process::Command;

use drivers::{Account, DigestPolicy, TargetSpec};
use rig::{peer, proc};
use serde_json::json;

use crate::iscsi::server::{IQN, MEMORY_BYTES, Server, Shape};

fn account(user: &str, secret: &str) -> Option<Account> {
    Some(Account { user: user.into(), secret: secret.as_bytes().to_vec() })
}

fn run(tool: &str, arguments: &[&str]) -> String {
    proc::run(Command::new(proc::tool(tool).unwrap()).args(arguments)).unwrap()
}

fn round_trip(server: &Server, url: &str, seed: u64) {
    rig::packages::ensure_host().unwrap();
    let scratch = proc::Scratch::new("drivers-tools").unwrap();
    let (up, down) = (scratch.path().join("up"), scratch.path().join("down"));
    let bytes = testkit::noise(seed, MEMORY_BYTES as usize);
    std::fs::write(&up, &bytes).unwrap();
    peer::upload(&up, url).unwrap();
    peer::download(url, &down).unwrap();
    assert!(same(&down, &bytes), "what came back is not what was written");
    let _ = server;
}

fn same(file: &Path, bytes: &[u8]) -> bool {
    std::fs::read(file).unwrap() == bytes
}

#[test]
fn libiscsi_reads_targets_inquiry_and_size() {
    rig::packages::ensure_host().unwrap();
    let server = Server::start(Shape::default());
    let listing = peer::iscsi_ls(server.portal).unwrap();
    assert!(listing.contains(IQN), "{listing}");
    assert!(listing.contains("Lun:0") && listing.contains("Lun:1"), "{listing}");
    let inquiry = peer::iscsi_inq(&server.url(0), None).unwrap();
    assert!(inquiry.contains("DIRECT_ACCESS"), "{inquiry}");
    let serial = peer::iscsi_inq(&server.url(0), Some(0x80)).unwrap();
    assert!(serial.contains("MEM1"), "{serial}");
    let size = run("iscsi-readcapacity16", &[&server.url(0)]);
    assert!(size.contains(&format!("{}", MEMORY_BYTES)), "{size}");
}

#[test]
fn image_is_written_and_read_back() {
    let server = Server::start(Shape::default());
    round_trip(&server, &server.url(0), 1);
}

#[test]
fn image_is_written_and_read_back_without_io_uring() {
    let port = reactor::PortChoice::Poll;
    let server = Server::start(Shape { port, ..Shape::default() });
    round_trip(&server, &server.url(0), 2);
}

#[test]
fn image_is_written_and_read_back_in_small_bursts() {
    let params = json!({
        "max_burst_length": 8192, "first_burst_length": 512, "immediate_data": false,
        "max_recv_data_segment_length": 8192, "max_outstanding_r2t": 2,
    });
    let spec = TargetSpec { params, ..TargetSpec::default() };
    let server = Server::start(Shape { spec, ..Shape::default() });
    round_trip(&server, &server.url(0), 3);
}

#[test]
fn digests_are_used_when_required() {
    let spec = TargetSpec {
        header_digest: DigestPolicy::Require,
        data_digest: DigestPolicy::Off,
        ..TargetSpec::default()
    };
    let server = Server::start(Shape { spec, ..Shape::default() });
    let url = format!("{}?header_digest=crc32c", server.url(0));
    let inquiry = peer::iscsi_inq(&url, None).unwrap();
    assert!(inquiry.contains("DIRECT_ACCESS"), "{inquiry}");
    let session = server.registry.denied();
    assert!(session.is_empty(), "{session:?}");
}

#[test]
fn chap_authenticates_one_way_and_mutually() {
    rig::packages::ensure_host().unwrap();
    let spec = || TargetSpec {
        chap: account("alice", "secret of alice"),
        mutual_chap: account("target", "secret of target"),
        params: json!({ "chap_md5": true }),
        ..TargetSpec::default()
    };
    let server = Server::start(Shape { spec: spec(), ..Shape::default() });
    let place = format!("{}/{IQN}/0", server.portal);
    let good = format!("iscsi://alice%secret of alice@{place}");
    assert!(peer::iscsi_inq(&good, None).unwrap().contains("DIRECT_ACCESS"));
    let both = "target_user=target&target_password=secret of target";
    let mutual = peer::iscsi_inq(&format!("{good}?{both}"), None).unwrap();
    assert!(mutual.contains("DIRECT_ACCESS"), "{mutual}");
    for bad in [
        format!("iscsi://{place}"),
        format!("iscsi://alice%wrong secret!!@{place}"),
        format!("iscsi://bob%secret of alice@{place}"),
        format!("{good}?target_user=target&target_password=another secret"),
    ] {
        assert!(peer::iscsi_inq(&bad, None).is_err(), "{bad}");
    }
    let denied = server.registry.denied();
    assert!(denied.iter().any(|d| d.text.contains("alice")), "{denied:?}");
    server.set(TargetSpec { params: json!({}), ..spec() });
    assert!(peer::iscsi_inq(&good, None).is_err(), "MD5 is not allowed any more");
    assert!(server.registry.denied().iter().any(|d| d.text.contains("chap_md5")));
}

#[test]
fn target_is_hidden_without_an_access_group() {
    rig::packages::ensure_host().unwrap();
    let server = Server::start(Shape::default());
    server.allow(&["iqn.2026-11.test.ashlar:somebody"]);
    assert!(!peer::iscsi_ls(server.portal).unwrap_or_default().contains(IQN));
    assert!(peer::iscsi_inq(&server.url(0), None).is_err());
    let denied = server.registry.denied();
    let text = &denied.last().unwrap().text;
    assert!(text.contains("[[access]]") && text.contains("initiators = [\"iqn."), "{text}");
    let output = run(
        "iscsi-ls",
        &["-i", "iqn.2026-11.test.ashlar:somebody", &format!("iscsi://{}", server.portal)],
    );
    assert!(output.contains(IQN), "{output}");
}
