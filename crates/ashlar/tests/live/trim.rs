//! Class trim under a daemon. It is inserted under a unit in use and removed again, hurried by a
//! command and configured. One of the configuration is kept over restarts.

use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rig::proc::{Proc, signal};
use serde_json::Value;

use crate::fixture;
use crate::fixture::writer::Writer;
use crate::fixture::{Fixture, IQN, file_disk};
use testkit::iscsi::initiator::Client;

/// Limit for steps that take some seconds on a busy machine.
const LIMIT: Duration = Duration::from_secs(30);
const DISK_BYTES: u64 = 64 << 20;
/// Where the writer writes, and where blocks are written to be deleted.
const FAR: u32 = 65_536;
const PIECE: u32 = 16;
const PIECES: u32 = 64;
/// INQUIRY DATA HAS CHANGED.
const CHANGED: (u8, u8, u8) = (6, 0x3F, 3);

fn login(fixture: &Fixture) -> Client {
    let mut raw = Client::session(fixture.portal(), "iqn.2024-01.test:deletes", IQN).unwrap();
    raw.must(&[0; 6], 0);
    raw
}

fn write(raw: &mut Client) {
    for at in (0..PIECES).map(|nth| FAR + nth * PIECE) {
        let [a, b, c, d] = at.to_be_bytes();
        let cdb = [0x2A, 0, a, b, c, d, 0, 0, PIECE as u8, 0];
        let ended = raw.scsi(&cdb, 0, &[7; (PIECE * 512) as usize]).unwrap();
        assert_eq!(ended.status, 0, "{:02x?}", ended.sense);
    }
    raw.must(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0);
}

/// UNMAP of the written blocks, in four descriptors that do not touch: a piece between two stays.
fn unmap(raw: &mut Client) {
    let quarter = PIECES / 4 * PIECE;
    let mut list = vec![0, 70, 0, 64, 0, 0, 0, 0];
    for at in (0..4).map(|nth| FAR + nth * quarter) {
        list.extend(u64::from(at).to_be_bytes());
        list.extend((quarter - PIECE).to_be_bytes());
        list.extend([0; 4]);
    }
    let ended = raw.scsi(&[0x42, 0, 0, 0, 0, 0, 0, 0, 72, 0], 0, &list).unwrap();
    assert_eq!(ended.status, 0, "{:02x?}", ended.sense);
}

/// Key, code and qualifier of the next command's unit attention.
fn news(raw: &mut Client) -> (u8, u8, u8) {
    let ended = raw.scsi(&[0; 6], 0, &[]).unwrap();
    assert_eq!(ended.status, 2, "there is news");
    (ended.sense[2] & 15, ended.sense[12], ended.sense[13])
}

/// Whether the unit promises that freed blocks read as zeroes.
fn zeroes(raw: &mut Client) -> bool {
    raw.must(&[0x12, 1, 0xB2, 0, 8, 0], 8)[5] >> 2 & 7 != 0
}

fn bytes(file: &Path) -> u64 {
    std::fs::metadata(file).unwrap().blocks() * 512
}

/// A number, at any place in an answer.
fn number(answer: &Value, name: &str) -> Option<u64> {
    match answer {
        Value::Object(all) => all
            .get(name)
            .and_then(Value::as_u64)
            .or_else(|| all.values().find_map(|v| number(v, name))),
        Value::Array(all) => all.iter().find_map(|v| number(v, name)),
        _ => None,
    }
}

fn stat(fixture: &Fixture, on: &str, name: &str) -> u64 {
    let all = fixture.json(&["trim", "stats", on]);
    number(&all, name).unwrap_or_else(|| panic!("no {name}: {all:#}"))
}

#[test]
fn trim_queue_is_inserted_and_removed_under_a_unit_in_use() {
    let mut fixture = Fixture::new("trim");
    let file = fixture.image("d0.img", DISK_BYTES);
    fixture.configure(&file_disk("d0", "d0.img"), "0 = \"d0\"");
    fixture.start();
    let writer = Writer::start(fixture.portal(), 0, 0);
    let mut raw = login(&fixture);
    write(&mut raw);
    assert!(zeroes(&mut raw), "a hole reads as zeroes");
    let refused = fixture.ashlar(&["trim", "insert", "d0"]).ends(2);
    assert!(!refused.err.contains("next:"), "it says what to type: {refused}");
    refused.complains(&[
        ": d0: it promises",
        "`ashlar trim insert d0 --zeroes drop`",
        "--zeroes keep",
    ]);
    fixture.ok(&["trim", "insert", "d0", "--zeroes", "drop", "--quiet-ms", "60000"]);
    let state = fixture.state();
    let geom = fixture::array(&state["geoms"]).iter().find(|g| g["class"] == "trim").cloned();
    assert_eq!(geom.expect("it is there")["why"], "inserted over d0 by `trim insert`");
    assert_eq!(news(&mut raw), CHANGED);
    assert!(!zeroes(&mut raw), "what waits reads as it did");

    let full = bytes(&file);
    unmap(&mut raw);
    assert_eq!(
        (stat(&fixture, "d0.trim", "deletes"), stat(&fixture, "d0.trim", "commands")),
        (4, 0)
    );
    assert_eq!(bytes(&file), full, "acknowledged, and not sent");
    fixture.ok(&["trim", "configure", "d0.trim", "--share", "100"]);
    fixture.ashlar(&["trim", "list", "d0.trim"]).ends(0).prints(&["share: 100 %", "mode: queues"]);
    let output =
        fixture.ashlar(&["trim", "now", "d0.trim", "--wait", "--progress", "json"]).ends(0);
    let lines = output.err.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
    assert!(lines.map(|l| l["progress"].clone()).all(|p| p["what"] == "trim d0.trim"), "{output}");
    fixture.ashlar(&["trim", "now", "d0.trim", "--end"]).ends(0).prints(&["no full trim"]);
    let gone = u64::from((PIECES - 4) * PIECE) * 512;
    fixture.until("the file gives its blocks back", Duration::from_secs(30), || {
        // The writer's first round may not have been there whole.
        bytes(&file) + gone <= full + u64::from(fixture::writer::BLOCKS) * 512
    });
    assert_eq!(stat(&fixture, "d0.trim", "trimmed_bytes"), gone);
    let kept = raw.must(&[0x28, 0, 0, 1, 0, 240, 0, 0, 16, 0], 8192);
    assert!(kept.iter().all(|b| *b == 7), "what lies between two ranges is as it was");

    fixture.ashlar(&["trim", "now", "d1.trim"]).ends(1).complains(&["d1.trim"]);
    fixture
        .ashlar(&["trim", "configure", "d0.trim", "--share", "101"])
        .ends(2)
        .complains(&["1 to 100"]);
    fixture.ok(&["trim", "destroy", "d0.trim"]);
    assert_eq!(news(&mut raw), CHANGED);
    assert!(zeroes(&mut raw), "and promised again");
    let rounds = writer.rounds();
    fixture.until("the writer goes on", Duration::from_secs(30), || writer.rounds() > rounds + 2);
    writer.finish().check();
    fixture.stop();
}

#[test]
fn configured_trim_queue_exists_after_a_restart() {
    let mut fixture = Fixture::new("trim-restart");
    fixture.image("d0.img", DISK_BYTES);
    let queue = "[[geom]]\nclass = \"trim\"\nname = \"q\"\nprovider = \"d0\"\nshare = 20\n\
                 quiet_ms = 60000\nzeroes = \"drop\"\n";
    fixture.configure(&format!("{}{queue}", file_disk("d0", "d0.img")), "0 = \"q\"");
    fixture.start();
    for kills in [false, true] {
        let mut raw = login(&fixture);
        write(&mut raw);
        unmap(&mut raw);
        fixture.ashlar(&["trim", "list", "q"]).ends(0).prints(&["share: 20 %", "quiet: 60000 ms"]);
        assert_eq!(stat(&fixture, "q", "deletes"), 4);
        fixture.ok(&["trim", "configure", "q", "--share", "30"]);
        fixture.ashlar(&["trim", "list", "q"]).ends(0).prints(&["share: 30 %"]);
        match kills {
            false => fixture.stop(),
            true => fixture.kill(),
        }
        fixture.start();
        assert_eq!(stat(&fixture, "q", "queued_bytes"), 0, "what waited is forgotten (T5)");
        let mut raw = login(&fixture);
        let block = raw.must(&[0x28, 0, 0, 1, 0, 0, 0, 0, 1, 0], 512);
        assert!(block.iter().all(|b| *b == 7), "and was not deleted");
    }
    fixture.ashlar(&["trim", "list", "q"]).ends(0).prints(&["share: 20 %"]);
    fixture.stop();
}

#[test]
fn ctrl_c_ends_the_wait_and_prints_the_command_to_end_the_trim() {
    let mut fixture = Fixture::new("trim-interrupted");
    fixture.image("d0.img", DISK_BYTES);
    let stack = "[[geom]]\nclass = \"nop\"\nname = \"slow\"\nprovider = \"d0\"\n\
                 [[geom]]\nclass = \"trim\"\nname = \"q\"\nprovider = \"slow\"\n\
                 quiet_ms = 60000\nzeroes = \"drop\"\n";
    fixture.configure(&format!("{}{stack}", file_disk("d0", "d0.img")), "0 = \"q\"");
    fixture.start();
    let mut raw = login(&fixture);
    write(&mut raw);
    let delay = ["geom", "nop", "configure", "name=slow", "delete_delay_percent=100"];
    fixture.ok(&[&delay[..], &["delay_ms=5000"]].concat());
    unmap(&mut raw);
    let output = fixture.path("said");
    let words = ["trim", "now", "q", "--wait", "--progress", "json"];
    let mut waits = Proc::start("ashlar trim now", &mut fixture.command(&words), &output).unwrap();
    let line = |text: &str| -> Option<Value> {
        let lines = text.lines().filter_map(|l| serde_json::from_str::<Value>(l).ok());
        lines.map(|l| l["progress"].clone()).find(|p| p["what"] == "trim q")
    };
    let text = || std::fs::read_to_string(&output).unwrap();
    fixture.until("it says how far it is", LIMIT, || line(&text()).is_some());
    let line = line(&text()).unwrap();
    assert_eq!(line["goes_on"], "ashlar trim now q --end");
    assert!(line["total"].as_u64() > Some(0) && line["done"].as_u64() < line["total"].as_u64());
    signal("INT", waits.pid()).unwrap();
    fixture.until("Ctrl-C ends it", LIMIT, || waits.ended().unwrap().is_some());
    assert_eq!(waits.ended().unwrap().unwrap().code(), Some(1), "{}", text());
    for words in ["ASH-0054", "trim q continues", "`ashlar trim now q --end` ends it"] {
        assert!(text().contains(words), "{words}: {}", text());
    }
    fixture.ashlar(&["trim", "now", "q", "--end"]).ends(0).prints(&["the full trim has ended"]);
    fixture.stop();
}
