//! Who gets what of a disk: the experiment of the page on geom_sched, and parts by weight.
//!
//! The disk is a model in virtual time, so the figures are the same on every machine.

use std::cell::Cell;
use std::rc::Rc;

use bio::{Op, Origin};
use geom::{Core, Edge};
use serde_json::{Value, json};

use super::lab::Lab;
use super::leaf::{FLASH, MS, SATA_2010};
use reactor::model::Timing;

const DISK: u64 = 250_000_000_000 / 4096 * 4096;

/// Somebody who keeps so many requests under way.
#[derive(Clone, Copy)]
struct Load {
    who: u32,
    op: Op,
    depth: u64,
    bytes: u64,
    /// Where it begins; None: anywhere, each time.
    from: Option<u64>,
    /// What it does between two requests, ns.
    think: u64,
}

const READER: Load =
    Load { who: 1, op: Op::Read, depth: 1, bytes: 128 << 10, from: Some(1 << 30), think: 50_000 };
/// Dirty pages on their way out.
const WRITER: Load =
    Load { who: 2, op: Op::Write, depth: 256, bytes: 128 << 10, from: Some(8 << 30), think: 0 };
const RANDOM: Load =
    Load { who: 3, op: Op::Read, depth: 1, bytes: 4096, from: None, think: 100_000 };

async fn run(core: Rc<Core>, edge: Edge, load: Load, next: Rc<Cell<u64>>, done: Rc<Cell<u64>>) {
    loop {
        let at = match load.from {
            Some(_) => next.replace(next.get() + load.bytes),
            None => core.reactor().random() % (DISK / load.bytes) * load.bytes,
        };
        let data = core.buffers(load.bytes as usize).await.expect("memory");
        let fill = |bio: &mut bio::Bio| {
            (bio.op, bio.origin) = (load.op, Origin(load.who));
            (bio.offset, bio.length, bio.data) = (at, load.bytes, data);
        };
        core.io(edge, fill).await.status.expect("it works");
        done.set(done.get() + load.bytes);
        if load.think > 0 {
            core.reactor().sleep(load.think).await;
        }
    }
}

/// MB/s of each.
fn measure(
    (timing, seconds): (Timing, u64),
    scheduler: Option<(&str, &str)>,
    loads: &[Load],
) -> Vec<f64> {
    let mut lab = Lab::new(1, 2, DISK, timing);
    lab.leaf.lock().blind = true;
    if let Some((algorithm, options)) = scheduler {
        let params = json!({ "disks": ["d0"], "algorithm": algorithm, "options": options });
        lab.verb("insert", "", params).expect("insert");
    }
    let edge = lab.control.topology.edge(lab.user);
    let mut done = Vec::new();
    for (n, load) in loads.iter().enumerate() {
        let core = lab.cores[n % 2].clone();
        let next = Rc::new(Cell::new(load.from.unwrap_or(0)));
        let bytes = Rc::new(Cell::new(0));
        for _ in 0..load.depth {
            let task = run(core.clone(), edge, *load, next.clone(), bytes.clone());
            core.reactor().spawn("load", task);
        }
        done.push(bytes);
    }
    let from = lab.world.now();
    lab.pass(seconds * 1000 * MS);
    let seconds = (lab.world.now() - from) as f64 / 1e9;
    done.iter().map(|d| d.get() as f64 / 1e6 / seconds).collect()
}

fn spinning(algorithm: &str, loads: &[Load]) -> Vec<f64> {
    let scheduler = (algorithm != "none").then_some((algorithm, ""));
    let got = measure((SATA_2010, 10), scheduler, loads);
    println!("{algorithm:>10}: {}", got.iter().map(|g| format!("{g:8.2}")).collect::<String>());
    got
}

#[test]
fn a_reader_beside_random_reads_gets_five_times_as_much_and_these_go_on() {
    let none = spinning("none", &[READER, RANDOM]);
    for algorithm in ["rr", "as"] {
        let got = spinning(algorithm, &[READER, RANDOM]);
        assert!(got[0] >= 5.0 * none[0], "{algorithm}: {got:?} beside {none:?}");
        assert!(got[1] >= 0.1 * none[1], "{algorithm}: {got:?} beside {none:?}");
    }
}

#[test]
fn random_reads_beside_a_writer_are_not_starved_and_it_keeps_a_quarter() {
    let alone = spinning("none", &[WRITER])[0];
    let none = spinning("none", &[WRITER, RANDOM]);
    let got = spinning("rr", &[WRITER, RANDOM]);
    assert!(got[1] >= 2.0 * none[1], "{got:?} beside {none:?}");
    assert!(got[0] >= alone * 14.0 / 55.0, "{got:?} of {alone}");
}

#[test]
fn alone_nobody_loses() {
    for load in [READER, WRITER, RANDOM] {
        let none = spinning("none", &[load])[0];
        for algorithm in ["rr", "as", "fifo", "deadline", "fair"] {
            let got = spinning(algorithm, &[load])[0];
            assert!(got >= 0.98 * none, "{algorithm}: {got} of {none}");
        }
    }
}

#[test]
fn two_equal_readers_get_the_same_within_a_twentieth() {
    let other = Load { who: 7, from: Some(100 << 30), ..READER };
    let got = spinning("rr", &[READER, other]);
    let ratio = got[0] / got[1];
    assert!((0.95..1.05).contains(&ratio), "{got:?}");
    assert!(got[0] + got[1] > 50.0, "{got:?}");
}

#[test]
fn on_flash_weights_are_honoured_and_limits_hold() {
    let reads = |who, from: u64| Load {
        who,
        op: Op::Read,
        depth: 64,
        bytes: 16384,
        from: Some(from << 30),
        think: 0,
    };
    let clients = [reads(1, 1), reads(2, 50)];
    for (options, want) in [("queue_depth=16", 1.0), ("queue_depth=16,1.weight=300", 3.0)] {
        let got = measure((FLASH, 1), Some(("fair", options)), &clients);
        let is = got[0] / got[1] / want;
        println!("{options}: {got:?}");
        assert!((0.95..1.05).contains(&is), "{options}: {got:?}");
    }
    let got = measure((FLASH, 5), Some(("fair", "1.iops=1000,2.kbps=10240")), &clients);
    assert!((15.5..17.5).contains(&got[0]), "1000 of 16 KiB a second: {got:?}");
    assert!((10.0..11.5).contains(&got[1]), "10 MiB a second: {got:?}");
}

#[test]
fn the_counters_say_who_got_what() {
    let mut lab = Lab::new(1, 1, DISK, FLASH);
    lab.insert("rr");
    for n in 0..10 {
        lab.send(0, Op::Read, n, 1, bio::Flags::NONE, 5);
        lab.send(0, Op::Write, 100 + n, 1, bio::Flags::NONE, 6);
    }
    lab.drain();
    let stats = lab.stats();
    let of = |key: u64| {
        let clients = stats["clients"].as_array().expect("clients");
        clients.iter().find(|c| c["key"] == key).expect("a client").clone()
    };
    assert_eq!((&of(5)["requests"], &of(5)["read_bytes"]), (&json!(10), &json!(40960)));
    assert_eq!((&of(6)["requests"], &of(6)["written_bytes"]), (&json!(10), &json!(40960)));
    assert!(of(6)["wait_max_ns"].as_u64() > Some(0), "one at a time: they waited");
    lab.verb("reset", "d0.sched.", Value::Null).expect("reset");
    assert_eq!(lab.stats()["requests"], 0);
}
