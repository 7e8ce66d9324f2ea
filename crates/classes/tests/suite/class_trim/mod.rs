//! The class trim: its verbs and promises one by one, and a simulation of all of it at once.

mod late;
mod model;
mod ranges;
mod sim;
mod waits;

use bio::{Bio, Errno, Flags, Op};
use geom::{Access, ConsumerId, Edge};
use late::{Deletes, LateDisk};
use serde_json::{Value, json};
use testkit::clock::MS;

use crate::sim::life::Life;

const K: u64 = 1024;
const SIZE: u64 = 1 << 20;

/// A disk with a queue over it, open.
struct Scene {
    life: Life,
    disk: LateDisk,
    user: ConsumerId,
    edge: Edge,
}

impl Scene {
    fn bare(deletes: Deletes, zeroes: bool) -> (Life, LateDisk) {
        let mut life = Life::with(1, 2, classes::all());
        let disk = LateDisk::new(SIZE, 1, deletes);
        disk.lock().zeroes = zeroes;
        disk.attach(&mut life.control.topology, "d0", 4096);
        life.settle();
        (life, disk)
    }

    fn new(deletes: Deletes, params: Value) -> Scene {
        let (mut life, disk) = Scene::bare(deletes, false);
        life.verb("trim", "create", "d0", params).expect("create");
        let (user, edge) = life.open("d0.trim", Access::WRITE).expect("open");
        Scene { life, disk, user, edge }
    }

    fn range(&mut self, op: Op, at: u64, len: u64) -> Result<(), Errno> {
        self.flagged(op, Flags::NONE, at, len)
    }

    fn flagged(&mut self, op: Op, flags: Flags, at: u64, len: u64) -> Result<(), Errno> {
        let edge = self.edge;
        self.life
            .control
            .run_on_core("test", move |core| {
                Box::pin(async move {
                    let ask = |b: &mut Bio| {
                        (b.op, b.flags, b.offset, b.length) = (op, flags, at, len);
                    };
                    core.io(edge, ask).await.status
                })
            })
            .expect("a core")
    }

    fn delete(&mut self, at: u64, len: u64) {
        self.range(Op::Delete, at, len).expect("acknowledged at once");
    }

    fn stat(&mut self, name: &str) -> u64 {
        let all = self.life.verb("trim", "stats", "d0.trim", json!({})).expect("stats");
        all["stats"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {all}"))
    }

    fn seen(&self) -> Vec<std::ops::Range<u64>> {
        self.disk.lock().seen.clone()
    }
}

fn eager() -> Value {
    json!({ "short": 0, "quiet_ms": 10, "share": 100 })
}

#[test]
fn deletes_are_acknowledged_at_once_and_sent_merged() {
    let mut s = Scene::new(Deletes::Take(50 * MS), json!({}));
    s.life.write(s.edge, 0, vec![7; 64 << 10]).expect("write");
    for i in [2u64, 0, 3, 1] {
        s.delete(i * 64 * K + 512, 64 * K);
    }
    assert_eq!(
        (s.stat("commands"), s.stat("queued_ranges"), s.stat("queued_bytes")),
        (0, 1, 256 * K)
    );
    assert_eq!(s.life.read(s.edge, 4096, 4096), Ok(vec![7; 4096]), "it reads as the device does");
    s.life.pass(3_000 * MS);
    assert_eq!(s.seen(), [4096..256 * K], "whole granules inside");
    assert_eq!((s.stat("trimmed_bytes"), s.stat("queued_bytes")), (252 * K, 4 * K));
}

/// L3 of trim/layer.rs.
#[test]
fn an_ordered_delete_is_sent_at_once() {
    let mut s = Scene::new(Deletes::Take(MS), json!({ "quiet_ms": 1_000 }));
    assert_eq!(s.flagged(Op::Delete, Flags::ORDERED, 0, 64 * K), Ok(()));
    assert_eq!((s.seen(), s.stat("queued_bytes")), (vec![0..64 * K], 0));
}

/// E2 of trim/queue.rs, E3 of trim/queue.rs.
#[test]
fn a_write_cancels_queued_deletes_and_waits_for_deletes_in_flight() {
    let params = json!({ "short": 0, "quiet_ms": 1_000, "share": 100 });
    let mut s = Scene::new(Deletes::Take(5_000 * MS), params);
    s.delete(0, 64 * K);
    s.life.write(s.edge, 8 * K, vec![1; 4096]).expect("write");
    assert_eq!(s.stat("taken_back_bytes"), 4096);
    s.life.pass(2_000 * MS);
    assert_eq!(s.seen().len(), 1);
    let at = s.life.control.now_ns();
    s.life.write(s.edge, 256 * K, vec![2; 4096]).expect("write");
    s.life.write(s.edge, 8 * K, vec![3; 4096]).expect("write");
    s.life.flush(s.edge).expect("flush");
    s.life.read(s.edge, 0, 4096).expect("reads never wait");
    assert!(s.life.control.now_ns() - at < 1_000 * MS, "none of them meets it");
    s.life.write(s.edge, 0, vec![4; 4096]).expect("write");
    assert!(s.life.control.now_ns() - at > 2_000 * MS, "this one waited");
    assert_eq!((s.stat("waited_writes"), s.life.read(s.edge, 0, 512)), (1, Ok(vec![4; 512])));
    s.life.pass(30_000 * MS);
    assert_eq!(s.seen(), [0..8 * K, 12 * K..64 * K], "and the written block was never deleted");
}

#[test]
fn zeroes_after_delete_are_promised_only_in_keep_mode() {
    let (mut life, _) = Scene::bare(Deletes::Take(MS), true);
    let refusal = life.verb("trim", "insert", "d0", json!({})).expect_err("a promise");
    assert!(refusal.kind == Errno::Inval && refusal.message.contains("--zeroes drop"), "{refusal}");
    life.verb("trim", "create", "d0", json!({ "as": "q" })).expect("create");
    let promise = |life: &Life, name: &str| {
        let t = &life.control.topology;
        t.attr(t.find(name).expect("there"), "GEOM::deletereadszero")
    };
    assert_eq!(promise(&life, "q"), Some(bio::Attr::Int(0)));
    life.verb("trim", "destroy", "q", json!({})).expect("destroy");
    life.verb("trim", "insert", "d0", json!({ "zeroes": "keep" })).expect("insert");
    assert_eq!(promise(&life, "d0"), Some(bio::Attr::Int(1)));
    let (_, edge) = life.open("d0", Access::WRITE).expect("open");
    let at = life.control.now_ns();
    let ask = |b: &mut Bio| (b.op, b.offset, b.length) = (Op::Delete, 0, 4096);
    let done = life
        .control
        .run_on_core("test", move |core| Box::pin(async move { core.io(edge, ask).await.status }));
    assert_eq!((done, life.control.now_ns() - at >= MS), (Ok(Ok(())), true), "it went down");
}

#[test]
fn deletes_return_notsup_after_the_device_has_refused_one() {
    let mut s = Scene::new(Deletes::Unknown, eager());
    s.delete(0, 64 * K);
    s.life.pass(1_000 * MS);
    assert_eq!(s.life.show("trim", "d0.trim", "mode"), "off: the device takes no deletes");
    assert_eq!(s.range(Op::Delete, 0, 4096), Err(Errno::NotSup));
    assert_eq!((s.stat("stale_bytes"), s.stat("queued_bytes")), (0, 0));
    s.life.write(s.edge, 0, vec![1; 4096]).expect("write");
}

#[test]
fn failed_deletes_are_retried_and_then_left_to_trim_now() {
    let mut s = Scene::new(Deletes::Fail, eager());
    s.delete(0, 64 * K);
    s.life.pass(60_000 * MS);
    assert_eq!((s.seen().len(), s.stat("failed_commands"), s.stat("stale_bytes")), (3, 3, 64 * K));
    s.life.write(s.edge, 4096, vec![1; 4096]).expect("write");
    s.disk.lock().deletes = Deletes::Take(MS);
    s.life.verb("trim", "now", "d0.trim", json!({ "wait": true })).expect("now");
    assert_eq!(s.seen()[3..], [0..4096, 8192..64 * K]);
    assert_eq!((s.stat("stale_bytes"), s.stat("trimmed_bytes")), (0, 60 * K));
}

#[test]
fn a_full_trim_reports_progress_and_can_be_ended() {
    let slow = json!({ "quiet_ms": 60_000, "share": 1 });
    let mut s = Scene::new(Deletes::Take(100 * MS), slow);
    for nth in 0..10 {
        s.delete(nth * 64 * K, 4 * K);
    }
    let first = s.life.verb("trim", "now", "d0.trim", json!({ "wait": true })).expect("now");
    assert_eq!(first["unfinished"]["total"], 40 * K);
    let mut again = first["unfinished"]["again"].clone();
    // The daemon takes the name out.
    assert_eq!(again.as_object_mut().expect("params").remove("name"), Some("d0.trim".into()));
    s.life.pass(25_000 * MS);
    let later = s.life.verb("trim", "now", "d0.trim", again.clone()).expect("again");
    let done = later["unfinished"]["done"].as_u64().expect("going on");
    assert!((4 * K..40 * K).contains(&done), "{later}");
    assert_eq!((s.stat("full_trim_done_bytes"), s.stat("full_trim_bytes")), (done, 40 * K));
    let ended = s.life.verb("trim", "now", "d0.trim", json!({ "end": true })).expect("end");
    assert_eq!(ended["ended"], true);
    let sent = s.stat("commands");
    s.life.pass(30_000 * MS);
    let last = s.life.verb("trim", "now", "d0.trim", again).expect("whoever waits hears of it");
    assert!(last.get("unfinished").is_none() && last["bytes"].as_u64() > Some(0), "{last}");
    assert_eq!((s.stat("commands"), s.stat("full_trim_bytes")), (sent, 0), "nothing more is sent");
    let none = s.life.verb("trim", "now", "d0.trim", json!({ "end": true })).expect("end");
    assert_eq!(none["ended"], false);
}

#[test]
fn short_ranges_wait_and_expire_and_are_sent_by_trim_now() {
    let mut s = Scene::new(Deletes::Take(MS), json!({ "quiet_ms": 10 }));
    s.delete(0, 8 * K);
    s.delete(64 * K, 2 * K);
    s.life.pass(10_000 * MS);
    assert_eq!((s.seen().len(), s.stat("queued_ranges")), (0, 2));
    s.life.pass(90_000 * MS);
    assert_eq!((s.stat("queued_ranges"), s.stat("stale_bytes")), (0, 10 * K));
    s.life.verb("trim", "now", "d0.trim", json!({ "wait": true })).expect("now");
    assert_eq!(s.seen(), [0..8 * K], "no whole granule is in the other");
}

/// J1, J2 and E4.
#[test]
fn the_queue_is_empty_before_the_provider_below_opens_for_writing() {
    let mut s = Scene::new(Deletes::Take(5_000 * MS), eager());
    assert!(s.life.open("d0", Access::WRITE).is_none(), "it is open alone");
    s.delete(0, 64 * K);
    s.life.pass(500 * MS);
    s.delete(128 * K, 64 * K);
    s.life.close(s.user);
    assert!(s.life.open("d0", Access::WRITE).is_none(), "a delete is in flight");
    s.life.pass(10_000 * MS);
    let (below, _) = s.life.open("d0", Access::WRITE).expect("now it may");
    assert_eq!(s.seen(), [0..64 * K], "what waited was dropped");
    assert_eq!(s.stat("queued_bytes"), 0);
    assert!(s.life.open("d0.trim", Access::WRITE).is_none());
    s.life.close(below);
    let (_, edge) = s.life.open("d0.trim", Access::WRITE).expect("and back");
    s.edge = edge;
    s.delete(0, 64 * K);
    s.life.pass(20_000 * MS);
    assert_eq!(s.seen().len(), 2);
}

#[test]
fn a_queue_is_not_removed_while_the_device_does_not_answer() {
    let (mut life, disk) = Scene::bare(Deletes::Take(40_000 * MS), false);
    let (user, edge) = life.open("d0", Access::WRITE).expect("open");
    life.verb("trim", "insert", "d0", eager()).expect("insert");
    let mut s = Scene { life, disk, user, edge };
    s.delete(0, 64 * K);
    s.life.pass(1_000 * MS);
    let refusal = s.life.verb("trim", "destroy", "d0.trim", json!({})).expect_err("in flight");
    assert_eq!(refusal.kind, Errno::TimedOut, "{refusal}");
    assert!(s.life.has("d0.trim"));
    s.life.write(s.edge, 256 * K, vec![1; 4096]).expect("it still serves");
    s.life.pass(60_000 * MS);
    s.delete(128 * K, 64 * K);
    assert_eq!(s.stat("queued_bytes"), 64 * K, "and queues again");
    s.life.verb("trim", "destroy", "d0.trim", json!({})).expect("destroy");
    assert!(!s.life.has("d0.trim"));
    s.life.pass(60_000 * MS);
    assert_eq!(s.seen(), [0..64 * K], "nothing goes out of a queue that has gone");
    s.life.write(s.edge, 0, vec![2; 4096]).expect("the user is where it was");
    s.life.close(s.user);
}

#[test]
fn writes_wait_until_an_unanswered_delete_can_no_longer_be_applied() {
    let mut s = Scene::new(Deletes::NoAnswer, eager());
    s.delete(0, 64 * K);
    s.life.pass(8_000 * MS);
    let troubles = |s: &Scene| s.life.geoms("trim")[0].troubles.len();
    assert_eq!((s.seen().len(), troubles(&s)), (1, 1));
    s.life.write(s.edge, 128 * K, vec![1; 4096]).expect("another place");
    let before = s.life.control.now_ns();
    s.life.write(s.edge, 0, vec![2; 4096]).expect("write");
    assert!(s.life.control.now_ns() - before > 50_000 * MS, "it waited");
    s.life.pass(100_000 * MS);
    assert_eq!(s.life.read(s.edge, 0, 4096), Ok(vec![2; 4096]), "and was not deleted after all");
    assert_eq!((s.stat("stale_bytes"), troubles(&s)), (60 * K, 0));
}

#[test]
fn invalid_and_fixed_settings_are_refused() {
    let mut s = Scene::new(Deletes::Take(MS), json!({}));
    for with in [
        json!({ "share": 0 }),
        json!({ "share": 101 }),
        json!({ "batch": 0 }),
        json!({ "quiet_ms": 90_000_000 }),
        json!({ "colour": 1 }),
    ] {
        let refusal = s.life.verb("trim", "configure", "d0.trim", with.clone());
        assert_eq!(refusal.map_err(|e| e.kind), Err(Errno::Inval), "{with}");
    }
    for fixed in [json!({ "granule": 4096 }), json!({ "zeroes": "keep" })] {
        let refusal = s.life.verb("trim", "configure", "d0.trim", fixed.clone());
        assert_eq!(refusal.map_err(|e| e.kind), Err(Errno::NotSup), "{fixed}");
    }
    s.life.verb("trim", "configure", "d0.trim", json!({ "share": 20 })).expect("configure");
    assert_eq!(s.life.show("trim", "d0.trim", "share"), "20 %");
    let none = s.life.verb("trim", "now", "d1.trim", json!({})).expect_err("no such");
    assert_eq!(none.kind, Errno::NoEnt);
    let odd = s.life.verb("trim", "create", "d0", json!({ "as": "x", "granule": 1000 }));
    assert_eq!(odd.map_err(|e| e.kind), Err(Errno::Inval));
    assert!(!s.life.has("x"));
}

#[test]
fn deletes_are_queued_up_to_the_new_end_of_a_grown_medium() {
    let mut s = Scene::new(Deletes::Take(MS), json!({ "quiet_ms": 1_000, "short": 0 }));
    s.disk.lock().model.set_size(4 * SIZE);
    s.life.resized("d0", 4 * SIZE);
    s.life.settle();
    s.delete(4 * SIZE - 128 * K, 128 * K);
    s.life.write(s.edge, 4 * SIZE - 64 * K, vec![1; 4096]).expect("write");
    s.life.pass(10_000 * MS);
    let end = 4 * SIZE;
    assert_eq!(s.seen(), [end - 128 * K..end - 64 * K, end - 60 * K..end]);
}
