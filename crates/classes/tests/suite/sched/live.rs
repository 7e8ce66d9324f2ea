//! Operations of an administrator on a scheduler in use, one at a time.

use bio::{Errno, Flags, Op};
use geom::{Access, GATE_DEADLINE};
use serde_json::{Value, json};

use super::lab::Lab;
use super::leaf::{FLASH, MS};

const NONE: Flags = Flags::NONE;

fn lab(cores: usize) -> Lab {
    Lab::new(7, cores, 64 << 20, FLASH)
}

/// Twenty requests of two clients on every core.
fn some(lab: &Lab) -> usize {
    for n in 0..20 {
        for core in 0..lab.cores.len() {
            let op = if n % 3 == 0 { Op::Write } else { Op::Read };
            lab.send(core, op, core as u64 * 1000 + n * 5, 2, NONE, 1 + n as u32 % 2);
        }
    }
    20 * lab.cores.len()
}

fn all_good(lab: &Lab, count: usize) {
    let all = lab.ends.all.borrow();
    assert_eq!(all.len(), count);
    assert!(all.values().all(|(status, _)| status.is_ok()));
    assert_eq!(lab.leaf.lock().fault, None);
    assert_eq!(lab.leaf.lock().seen, count as u64, "each reached the disk once");
}

#[test]
fn a_scheduler_is_inserted_changed_and_removed_while_requests_wait() {
    let mut lab = lab(3);
    let mut count = some(&lab);
    lab.insert("rr");
    assert_eq!(lab.control.topology.counts(lab.disk), Access::WRITE, "by the scheduler");
    let above = lab.control.topology.find("d0").expect("its provider has the disk's name");
    assert_eq!(lab.control.topology.below(lab.user), Some(above));
    assert_eq!(lab.control.topology.find("d0.sched."), Some(lab.disk));
    let later = lab.user_of("later", "d0");
    assert_eq!(lab.control.topology.below(later), Some(above), "who comes later too");
    for algorithm in ["as", "deadline", "fair", "fifo", "rr"] {
        count += some(&lab);
        let answer = lab.verb("configure", "d0.sched.", json!({ "algorithm": algorithm }));
        assert!(answer.is_ok(), "{answer:?}");
        assert_eq!(lab.stats()["algorithm"], algorithm);
        lab.pass(MS / 2);
    }
    count += some(&lab);
    lab.verb("destroy", "", json!({ "names": ["d0.sched."] })).expect("destroy");
    for user in [lab.user, later] {
        assert_eq!(lab.control.topology.below(user), Some(lab.disk));
    }
    assert!(lab.control.topology.find("d0.sched.").is_none());
    assert_eq!(lab.control.topology.find("d0"), Some(lab.disk));
    count += some(&lab);
    lab.drain();
    all_good(&lab, count);
    lab.pass(MS);
    for core in &lab.cores {
        assert!(!core.reactor().tasks().contains(&"sched"), "its tasks have ended");
    }
}

#[test]
fn insert_and_destroy_are_rolled_back_when_the_disk_does_not_answer() {
    let mut lab = lab(2);
    lab.leaf.lock().holds = true;
    let mut count = some(&lab);
    let refused = lab.verb("insert", "", json!({ "disks": ["d0"] })).expect_err("no answer");
    assert_eq!(refused.kind, Errno::TimedOut);
    assert!(lab.control.topology.find("d0.sched.").is_none());
    lab.release();
    lab.drain();
    lab.insert("rr");
    lab.leaf.lock().holds = true;
    count += some(&lab);
    let refused = lab.verb("destroy", "d0", Value::Null).expect_err("no answer");
    assert_eq!(refused.kind, Errno::TimedOut);
    assert_eq!(lab.stats()["in_flight"], 1, "as before: one at a time");
    lab.release();
    lab.drain();
    all_good(&lab, count);
    lab.verb("destroy", "d0", Value::Null).expect("now it answers");
}

/// Q2 of sched/mod.rs, Q6 of sched/mod.rs.
#[test]
fn limits_delay_neither_destroy_nor_a_fence() {
    let mut lab = lab(2);
    let params = json!({ "disks": ["d0"], "algorithm": "fair", "options": "iops=1,burst_ms=1" });
    lab.verb("insert", "", params).expect("insert");
    let mut count = some(&lab);
    lab.pass(500 * MS);
    assert!(lab.live() > 30, "they are limited");
    let fence = lab.send(0, Op::Flush, 0, 0, Flags::ORDERED, 1);
    lab.pass(50 * MS);
    assert!(lab.ended(0, fence).is_some(), "nobody behind a limit holds it up");
    count += 1 + some(&lab);
    lab.pass(5 * MS);
    assert!(lab.live() > 30);
    let from = lab.world.now();
    lab.verb("destroy", "d0", Value::Null).expect("destroy");
    assert!(lab.world.now() - from < 100 * MS);
    lab.drain();
    all_good(&lab, count);
}

/// Q6 of sched/mod.rs.
#[test]
fn limits_apply_again_after_a_failed_removal() {
    // By the class's own verb, and by the graph's, which is every class's.
    for own in [true, false] {
        let mut lab = lab(2);
        let options = "iops=10,burst_ms=1";
        let params = json!({ "disks": ["d0"], "algorithm": "fair", "options": options });
        lab.verb("insert", "", params).expect("insert");
        lab.leaf.lock().holds = true;
        let mut count = some(&lab);
        lab.pass(10 * MS);
        let below = lab.leaf.lock().seen;
        assert!(below < 10, "limited: {below} went down");
        let remove = |lab: &mut Lab| match own {
            true => lab.verb("destroy", "d0.sched.", Value::Null).map(drop),
            false => {
                let geom = lab.control.topology.find_geom("sched", "d0.sched.").expect("there");
                lab.control.remove(geom)
            }
        };
        let from = lab.world.now();
        assert_eq!(remove(&mut lab).expect_err("the disk is silent").kind, Errno::TimedOut);
        assert_eq!(lab.world.now() - from, GATE_DEADLINE.as_nanos() as u64);
        assert!(lab.leaf.lock().seen > below, "it hurried");
        assert_eq!(lab.control.topology.below(lab.user), lab.control.topology.find("d0"));
        lab.release();
        lab.drain();
        let before = lab.leaf.lock().seen;
        count += some(&lab);
        lab.pass(200 * MS);
        let now = lab.leaf.lock().seen - before;
        assert!(now < 10, "and is limited again: {now} went down");
        let from = lab.world.now();
        remove(&mut lab).expect("the disk answers");
        assert!(lab.world.now() - from < 100 * MS, "nobody waited for a limit");
        lab.drain();
        all_good(&lab, count);
        assert_eq!(lab.control.topology.find("d0"), Some(lab.disk));
    }
}

/// Q3 of sched/mod.rs.
#[test]
fn a_flush_does_not_wait_for_a_scan() {
    let mut lab = lab(1);
    lab.insert("rr");
    for n in 0..200 {
        lab.send(0, Op::Read, n * 7, 2, NONE, 1);
    }
    let flush = lab.send(0, Op::Flush, 0, 0, NONE, 2);
    lab.pass(MS);
    assert!(lab.ended(0, flush).is_some() && lab.live() > 150);
    lab.drain();
    all_good(&lab, 201);
}

/// Q9 of sched/mod.rs.
#[test]
fn fifo_without_a_depth_passes_requests_through_and_counts_them() {
    let mut lab = lab(2);
    lab.insert("fifo");
    some(&lab);
    lab.drain();
    let stats = lab.stats();
    assert_eq!(stats["requests"], 40);
    let of = |stats: &Value, key: &str| {
        let clients = stats["clients"].as_array().expect("clients");
        let client = clients.iter().find(|c| c["key"] == key).expect("a client");
        ["requests", "read_bytes", "written_bytes"].map(|n| client[n].as_u64().expect("a number"))
    };
    // 20 on each of two cores, of two clients in turn; every third writes; 8 KiB each.
    assert_eq!(of(&stats, "1"), [20, 12 * 8192, 8 * 8192]);
    assert_eq!(of(&stats, "2"), [20, 14 * 8192, 6 * 8192]);
    assert_eq!(of(&lab.stats(), "1"), [20, 12 * 8192, 8 * 8192], "each counts once");
    // More than a core has places for, two by two in one.
    for who in [100, 100 + 64, 100, 100 + 64, 300] {
        lab.send(0, Op::Read, 7, 1, NONE, who);
    }
    lab.drain();
    let stats = lab.stats();
    assert_eq!([of(&stats, "100")[0], of(&stats, "164")[0], of(&stats, "300")[0]], [2, 2, 1]);
    lab.verb("reset", "d0.sched.", Value::Null).expect("reset");
    assert_eq!(lab.stats()["requests"], 0);
    lab.send(0, Op::Read, 7, 1, NONE, 1);
    lab.drain();
    assert_eq!(of(&lab.stats(), "1"), [1, 4096, 0], "from zero");
    lab.verb("configure", "d0", json!({ "options": "queue_depth=1" })).expect("configure");
    some(&lab);
    assert!(lab.live() > 30);
    lab.verb("configure", "d0", json!({ "options": "queue_depth=0" })).expect("configure");
    some(&lab);
    lab.drain();
    all_good(&lab, 126);
    assert_eq!(lab.stats()["requests"], 81);
}

#[test]
fn create_leaves_existing_users_and_destroy_refuses_an_open_scheduler() {
    let mut lab = lab(1);
    lab.verb("create", "", json!({ "disks": ["d0"], "algorithm": "deadline" })).expect("create");
    assert_eq!(lab.control.topology.below(lab.user), Some(lab.disk), "who was there stays");
    let twice = lab.verb("insert", "", json!({ "disks": ["d0"] })).expect_err("the name is taken");
    assert_eq!(twice.kind, Errno::Exist);
    let other = lab.user_of("other", "d0.sched.");
    let busy = lab.verb("destroy", "d0.sched.", Value::Null).expect_err("it is open");
    assert_eq!(busy.kind, Errno::Busy);
    // Tasting of the disk sent its reads through the scheduler.
    let before = lab.stats()["requests"].clone();
    let count = some(&lab);
    lab.drain();
    all_good(&lab, count);
    assert_eq!(lab.stats()["requests"], before, "by the disk's own name nothing goes through it");
    lab.close(other);
    lab.verb("destroy", "d0.sched.", Value::Null).expect("nobody has it open");
    assert!(lab.control.topology.find("d0.sched.").is_none());
}

#[test]
fn invalid_requests_are_refused_and_change_nothing() {
    let mut lab = lab(1);
    for (verb, params) in [
        ("insert", json!({ "disks": ["d9"] })),
        ("insert", json!({ "disks": ["d0"], "algorithm": "elevator" })),
        ("insert", json!({ "disks": ["d0"], "options": "mood=3" })),
        ("insert", json!({ "disks": ["d0"], "classify": "colour" })),
        ("configure", json!({})),
        ("destroy", json!({ "names": ["d0"] })),
        ("dance", json!({})),
    ] {
        let on = if verb == "configure" { "d0" } else { "" };
        assert!(lab.verb(verb, on, params.clone()).is_err(), "{verb} {params}");
        assert!(lab.control.topology.find("d0.sched.").is_none(), "{verb} {params}");
    }
    lab.insert("rr");
    let bad = lab.verb("configure", "d0", json!({ "options": "wait_ms=3,quantum_ms=9999" }));
    assert!(bad.is_err_and(|e| e.message.contains("quantum_ms")));
    assert_eq!(lab.stats()["options"]["wait_ms"], 10, "all of it or nothing");
    lab.verb("configure", "d0", json!({ "options": "wait_ms=3" })).expect("configure");
    assert_eq!(lab.stats()["options"]["wait_ms"], 3);
}

#[test]
fn insert_and_destroy_of_several_disks_change_all_or_none() {
    let mut lab = lab(1);
    let disk = lab.disk;
    for disks in [json!(["d0", "d9"]), json!(["d0", "d0"])] {
        lab.verb("insert", "", json!({ "disks": disks })).expect_err("the second is none");
        assert_eq!(lab.control.topology.find("d0"), Some(disk), "{disks}");
        assert_eq!(lab.control.topology.below(lab.user), Some(disk), "{disks}");
    }
    lab.verb("create", "", json!({ "disks": ["d0", "d0"] })).expect_err("a name twice");
    assert!(lab.control.topology.find("d0.sched.").is_none());
    lab.insert("rr");
    lab.verb("destroy", "", json!({ "names": ["d0", "d9"] })).expect_err("there is no d9");
    assert!(lab.control.topology.find("d0.sched.").is_some(), "nothing was changed");
}

#[test]
fn settings_of_absent_clients_can_be_read() {
    let mut lab = lab(1);
    lab.insert("fair");
    let options = "weight=50,iqn.x/3.iops=9,iqn.x/3.burst_ms=2000,burst_ms=7";
    lab.verb("configure", "d0", json!({ "options": options })).expect("configure");
    let stats = lab.stats();
    assert_eq!(stats["options"]["burst_ms"], 7);
    assert_eq!(stats["share"], json!({ "weight": 50, "iops": 0, "kbps": 0, "burst_ms": 0 }));
    let own = json!({ "weight": 50, "iops": 9, "kbps": 0, "burst_ms": 2000 });
    assert_eq!(stats["shares"], json!({ "iqn.x/3": own }));
}

#[test]
fn shares_can_be_removed_and_a_full_table_refuses_the_whole_change() {
    let mut lab = lab(1);
    lab.insert("fair");
    let many = |from: u64| {
        let all: Vec<String> = (from..from + 256).map(|n| format!("{n}.weight=7")).collect();
        json!({ "options": all.join(",") })
    };
    for from in [0, 256, 512, 768] {
        lab.verb("configure", "d0", many(from)).expect("room for 1024");
    }
    let before = lab.stats();
    let refused = json!({ "algorithm": "rr", "classify": "initiator",
                          "options": "quantum_ms=5,3.weight=9,5000.weight=9" });
    let e = lab.verb("configure", "d0", refused.clone()).expect_err("no room");
    assert!(e.message.contains("=default"), "{e}");
    let after = lab.stats();
    for what in ["algorithm", "classify", "options", "shares"] {
        assert_eq!(before[what], after[what], "{what}");
    }
    lab.verb("configure", "d0", json!({ "options": "3=default" })).expect("it goes");
    assert!(lab.stats()["shares"].get("3").is_none());
    lab.verb("configure", "d0", json!({ "options": "3=default" })).expect("it has gone already");
    let swap = json!({ "algorithm": "rr", "options": "quantum_ms=5,5000.weight=9" });
    lab.verb("configure", "d0", swap).expect("a place is free");
    assert_eq!(lab.stats()["algorithm"], "rr");
    lab.verb("configure", "d0", json!({ "options": "7=default,7000.weight=9" })).expect("a swap");
}

#[test]
fn counters_are_kept_for_each_client() {
    let mut lab = lab(1);
    lab.insert("rr");
    for n in 0..10 {
        lab.send(0, Op::Read, n, 1, NONE, 5);
        lab.send(0, Op::Write, 100 + n, 1, NONE, 6);
    }
    lab.drain();
    let stats = lab.stats();
    let of = |key: &str| {
        let clients = stats["clients"].as_array().expect("clients");
        clients.iter().find(|c| c["key"] == key).expect("a client").clone()
    };
    assert_eq!((&of("5")["requests"], &of("5")["read_bytes"]), (&json!(10), &json!(40960)));
    assert_eq!((&of("6")["requests"], &of("6")["written_bytes"]), (&json!(10), &json!(40960)));
    assert!(of("6")["wait_max_ns"].as_u64() > Some(0), "one at a time: they waited");
    lab.verb("reset", "d0.sched.", Value::Null).expect("reset");
    assert_eq!(lab.stats()["requests"], 0);
}
