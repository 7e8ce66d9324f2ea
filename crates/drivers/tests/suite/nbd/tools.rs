//! Clients that we did not write: libnbd, QEMU, nbdkit, fio.

use std::path::Path;
use std::process::Command;

use reactor::PortChoice;
use rig::{peer, proc};
use serde_json::json;

use crate::nbd::server::{MEMORY_BYTES, Server, Shape};

pub fn run(tool: &str, arguments: &[&str]) -> String {
    try_run(tool, arguments).unwrap()
}

pub fn try_run(tool: &str, arguments: &[&str]) -> Result<String, String> {
    rig::packages::ensure_host().unwrap();
    let ran = proc::run(Command::new(proc::tool(tool).unwrap()).args(arguments));
    ran.map_err(|e| format!("{e:#}"))
}

/// A file with data and holes in it.
fn sparse(len: usize) -> Vec<u8> {
    let mut bytes = testkit::noise(3, len);
    bytes.chunks_mut(1 << 20).step_by(3).for_each(|c| c.fill(0));
    bytes[5 << 20..][..4096].fill(0);
    bytes
}

pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// Up with several connections, down again, and the same.
fn round_trip(shape: Shape, connections: &str) {
    let server = Server::start(shape);
    let scratch = proc::Scratch::new("drivers-nbd").unwrap();
    let (up, down) = (scratch.path().join("up"), scratch.path().join("down"));
    let bytes = sparse(MEMORY_BYTES as usize);
    std::fs::write(&up, &bytes).unwrap();
    let c = format!("--connections={connections}");
    run("nbdcopy", &[&c, "--flush", text(&up), &server.url("memory")]);
    run("nbdcopy", &[&c, &server.url(""), text(&down)]);
    assert!(std::fs::read(&down).unwrap() == bytes, "what came back is not what was written");
    let seen = server.registry.sessions();
    assert!(seen.is_empty(), "{} sessions left", seen.len());
}

#[test]
fn nbdcopy_round_trip_over_four_connections() {
    round_trip(Shape::default(), "4");
}

#[test]
fn nbdcopy_round_trip_without_io_uring() {
    round_trip(Shape { port: PortChoice::Poll, ..Shape::default() }, "2");
}

#[test]
fn nbdcopy_round_trip_with_few_buffers() {
    round_trip(Shape { pool_bytes: 4 << 20, cores: 1, ..Shape::default() }, "4");
}

#[test]
fn nbdinfo_reads_everything_about_an_export() {
    let server = Server::start(Shape::default());
    let json: serde_json::Value =
        serde_json::from_str(&run("nbdinfo", &["--json", &server.url("memory")])).unwrap();
    let export = &json["exports"][0];
    assert_eq!(export["export-size"], json!(MEMORY_BYTES));
    assert_eq!(export["structured"].as_bool().or(json["structured"].as_bool()), Some(true));
    for can in
        ["can_cache", "can_df", "can_fua", "can_flush", "can_multi_conn", "can_trim", "can_zero"]
    {
        assert_eq!(export[can], json!(true), "{can}: {export}");
    }
    assert_eq!(export["can_fast_zero"], json!(true));
    assert_eq!((&export["is_read_only"], &export["is_rotational"]), (&json!(false), &json!(false)));
    assert_eq!(export["block_size_minimum"], json!(512));
    assert_eq!(export["block_size_preferred"], json!(4096));
    assert_eq!(export["block_size_maximum"], json!(32 << 20));
    assert_eq!(export["contexts"], json!(["base:allocation"]));
    assert_eq!(run("nbdinfo", &["--size", &server.url("0")]).trim(), MEMORY_BYTES.to_string());
    let big: serde_json::Value =
        serde_json::from_str(&run("nbdinfo", &["--json", &server.url("2")])).unwrap();
    assert_eq!(big["exports"][0]["block_size_minimum"], json!(4096));
    run("nbdinfo", &["--is", "read-only", &server.url("3")]);
    assert!(try_run("nbdinfo", &["--can", "write", &server.url("3")]).is_err());
    assert!(try_run("nbdinfo", &[&server.url("nothing")]).is_err());
    let denied = server.registry.denied();
    assert!(denied.iter().any(|d| d.target.ends_with("nothing")), "{denied:?}");
}

#[test]
fn exports_are_listed_unless_switched_off() {
    let server = Server::start(Shape::default());
    let list = run("nbdinfo", &["--list", "--json", &format!("nbd://{}", server.portal)]);
    for name in ["memory", "null", "big"] {
        assert!(list.contains(&format!("\"export-name\": \"{name}\"")), "{list}");
    }
    server.set(json!({ "list": false, "aliases": { "root": "big" } }));
    assert!(try_run("nbdinfo", &["--list", &format!("nbd://{}", server.portal)]).is_err());
    let size = run("nbdinfo", &["--size", &server.url("root")]);
    assert_eq!(size.trim(), (1u64 << 30).to_string());
    assert_eq!(run("nbdinfo", &["--size", &server.url("test/1")]).trim(), (1u64 << 40).to_string());
}

#[test]
fn export_is_hidden_without_an_access_group() {
    let server = Server::start(Shape::default());
    server.allow(&["ip:10.0.0.1"]);
    assert!(try_run("nbdinfo", &[&server.url("memory")]).is_err());
    let list = run("nbdinfo", &["--list", "--json", &format!("nbd://{}", server.portal)]);
    assert!(!list.contains("memory"), "{list}");
    let denied = server.registry.denied();
    let last = denied.last().unwrap();
    assert_eq!(last.initiator, "ip:127.0.0.1");
    assert!(last.text.contains("access group"), "{}", last.text);
    server.allow(&["ip:127.0.0.*"]);
    run("nbdinfo", &[&server.url("memory")]);
}

#[test]
fn qemu_converts_compares_and_maps() {
    let server = Server::start(Shape::default());
    let scratch = proc::Scratch::new("drivers-nbd-qemu").unwrap();
    let up = scratch.path().join("up");
    std::fs::write(&up, sparse(MEMORY_BYTES as usize)).unwrap();
    let url = server.url("memory");
    run("qemu-img", &["convert", "-n", "-f", "raw", "-O", "raw", "-W", text(&up), &url]);
    let same = run("qemu-img", &["compare", "-f", "raw", "-F", "raw", text(&up), &url]);
    assert!(same.contains("identical"), "{same}");
    let map = run("qemu-img", &["map", "--output=json", &url]);
    let map: serde_json::Value = serde_json::from_str(&map).unwrap();
    let sum: u64 = map.as_array().unwrap().iter().map(|e| e["length"].as_u64().unwrap()).sum();
    assert_eq!(sum, MEMORY_BYTES, "the map covers everything");
    let json = run("nbdinfo", &["--map", "--json", &url]);
    let extents: serde_json::Value = serde_json::from_str(&json).unwrap();
    let sum: u64 = extents.as_array().unwrap().iter().map(|e| e["length"].as_u64().unwrap()).sum();
    assert_eq!(sum, MEMORY_BYTES);
}

#[test]
fn qemu_io_writes_zeroes_and_discards() {
    let server = Server::start(Shape::default());
    let url = server.url("memory");
    let ok = |commands: &[&str]| {
        let out = peer::qemu_io(&url, commands).unwrap();
        assert!(!out.contains("failed") && !out.contains("error"), "{out}");
    };
    ok(&["write -P 0xab 0 8M", "write -z 1M 64k", "write -z -u 2M 64k", "discard 3M 1M"]);
    ok(&["read -P 0xab 0 1M", "read -P 0 1M 64k", "read -P 0 2M 64k", "read -P 0 3M 1M"]);
    ok(&["write -f -P 0x11 512 1536", "flush", "read -P 0x11 512 1536", "read -P 0xab 2048 2048"]);
    ok(&["aio_write -P 0x22 8M 31M", "aio_flush", "aio_read -P 0x22 8M 31M", "aio_flush"]);
    let protected = peer::qemu_io(&server.url("3"), &["write 0 512"]);
    assert!(
        protected.map_or(true, |out| out.contains("not permitted") || out.contains("ead-only"))
    );
}

#[test]
fn fio_verifies_what_it_wrote() {
    let server = Server::start(Shape::default());
    let uri = format!("--uri={}", server.url("memory"));
    for (bs, how) in [("4k", "randwrite"), ("64k", "randwrite"), ("512", "write")] {
        let (bs, how) = (format!("--bs={bs}"), format!("--rw={how}"));
        let common = ["--name=nbd", "--ioengine=nbd", "--size=4M", "--iodepth=32", "--randseed=7"];
        let verify =
            ["--verify=crc32c", "--verify_fatal=1", "--verify_state_save=0", &uri, &bs, &how];
        run("fio", &[&common[..], &verify].concat());
    }
}

#[test]
fn nbdkit_passes_requests_through() {
    rig::packages::ensure_host().unwrap();
    let server = Server::start(Shape::default());
    let script = "nbdcopy --connections=3 \"$up\" \"$uri\" && nbdcopy \"$uri\" \"$down\" && \
                  nbdinfo --map \"$uri\" >/dev/null && cmp \"$up\" \"$down\"";
    let scratch = proc::Scratch::new("drivers-nbd-nbdkit").unwrap();
    let (up, down) = (scratch.path().join("up"), scratch.path().join("down"));
    std::fs::write(&up, sparse(MEMORY_BYTES as usize)).unwrap();
    let run = format!("up={} down={}; {script}", text(&up), text(&down));
    let uri = server.url("memory");
    try_run("nbdkit", &["-U", "-", "nbd", &format!("uri={uri}"), "--run", &run]).unwrap();
}

#[test]
fn unix_socket_clients_are_identified_by_uid() {
    let scratch = proc::Scratch::new("drivers-nbd-unix").unwrap();
    let path = text(&scratch.path().join("s")).to_owned();
    let server = Server::start(Shape { unix: Some(path.clone()), ..Shape::default() });
    let url = format!("nbd+unix:///memory?socket={path}");
    let size = run("nbdinfo", &["--size", &url]);
    assert_eq!(size.trim(), MEMORY_BYTES.to_string());
    server.allow(&["unix:uid=4294967294"]);
    assert!(try_run("nbdinfo", &["--size", &url]).is_err());
    let who = server.registry.denied().last().unwrap().initiator.clone();
    assert!(who.starts_with("unix:uid="), "{who}");
    server.allow(&[&who]);
    let data = scratch.path().join("data");
    std::fs::write(&data, sparse(MEMORY_BYTES as usize)).unwrap();
    run("nbdcopy", &["--connections=8", text(&data), &url]);
    run("nbdcopy", &["--connections=8", &url, text(&scratch.path().join("back"))]);
    let back = std::fs::read(scratch.path().join("back")).unwrap();
    assert!(back == std::fs::read(&data).unwrap());
}
