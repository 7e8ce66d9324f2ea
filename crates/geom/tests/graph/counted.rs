//! Counters compared with a model of them. Consumers are attached and detached while requests are
//! under way, and requests that wait in front of a layer count as in flight above it.

use std::ops::Range;

use bio::{Errno, Flags, Op};
use geom::{ConsumerId, Limits, ProviderId, Reading};
use reactor::SeededRandom;
use testkit::Seeds;

use crate::common::{Lab, Leaf, MS, Mode, SECTOR};

const CORES: usize = 2;

/// A request, as the model has it.
struct Sent {
    by: ConsumerId,
    core: usize,
    op: Op,
    tag: u64,
    at_ns: u64,
}

/// Time that intervals cover together, ns.
fn covered(mut all: Vec<Range<u64>>) -> u64 {
    all.sort_by_key(|r| r.start);
    let (mut sum, mut end) = (0, 0);
    for r in all {
        sum += r.end.saturating_sub(r.start.max(end));
        end = end.max(r.end);
    }
    sum
}

/// The expected counters of the requests for which `counts` is true.
fn expected(lab: &Lab, sent: &[Sent], counts: impl Fn(&Sent) -> bool) -> Reading {
    let (mut r, now) = (Reading::default(), lab.world.now());
    for core in 0..CORES {
        let mut times = Vec::new();
        for one in sent.iter().filter(|s| s.core == core && counts(s)) {
            let Some(end) = lab.ended(one.tag) else {
                r.in_flight += 1;
                times.push(one.at_ns..now);
                continue;
            };
            times.push(one.at_ns..end.at_ns);
            r.ops[one.op as usize] += 1;
            r.bytes[one.op as usize] += end.completed;
            r.errors += u64::from(end.status.is_err());
            let ns = end.at_ns - one.at_ns;
            let (of, sum) = match one.op {
                Op::Read => (&mut r.read_latency, &mut r.read_latency_ns),
                _ => (&mut r.write_latency, &mut r.write_latency_ns),
            };
            of[geom::bucket_of(ns)] += 1;
            *sum += ns;
        }
        r.busy_ns = r.busy_ns.max(covered(times));
    }
    r
}

struct Scenario {
    lab: Lab,
    random: SeededRandom,
    leaf: std::sync::Arc<Leaf>,
    disk: ProviderId,
    consumers: Vec<ConsumerId>,
    attached_count: usize,
    sent: Vec<Sent>,
}

impl Scenario {
    fn send(&mut self) {
        let pick = |random: &mut SeededRandom, of: usize| random.below(of as u64) as usize;
        let mode = match pick(&mut self.random, 4) {
            0 => Mode::Now,
            1 => Mode::Fail(Errno::Io),
            _ => Mode::Within(2 * MS),
        };
        self.leaf.set(mode);
        let by = self.consumers[pick(&mut self.random, self.consumers.len())];
        let core = pick(&mut self.random, CORES);
        let op = [Op::Read, Op::Write, Op::Delete][pick(&mut self.random, 3)];
        let (lab, at) = (&self.lab, self.random.below(8) * SECTOR);
        let at_ns = lab.cores[core].now();
        let tag = lab.send_on(core, lab.edge(by), op, at, SECTOR, Flags::NONE);
        self.sent.push(Sent { by, core, op, tag, at_ns });
    }

    fn check(&self, seed: u64) {
        for by in &self.consumers {
            let is = self.lab.consumer_stats(*by);
            assert_eq!(is, expected(&self.lab, &self.sent, |s| s.by == *by), "seed {seed}");
        }
        let is = self.lab.stats(self.disk);
        assert_eq!(is, expected(&self.lab, &self.sent, |_| true), "seed {seed}: the provider");
    }
}

fn attach_and_detach(seed: u64) {
    let mut lab = Lab::with_cores(seed, CORES);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let here = vec![lab.writer("u0", disk)];
    let random = SeededRandom::new(seed);
    let mut s =
        Scenario { lab, random, leaf, disk, consumers: here, attached_count: 1, sent: Vec::new() };
    for _ in 0..80 {
        match s.random.below(16) {
            0 if s.consumers.len() < 3 => {
                let c = s.lab.writer(&format!("u{}", s.attached_count), disk);
                s.attached_count += 1;
                s.consumers.push(c);
            }
            // Some are detached while their requests are under way.
            1 if s.consumers.len() > 1 => {
                let nth = s.random.below(s.consumers.len() as u64) as usize;
                s.lab.control.topology.leave(s.consumers.remove(nth));
            }
            2..=5 => {
                let ns = s.random.below(MS);
                s.lab.pass(ns);
            }
            _ => s.send(),
        }
        s.check(seed);
    }
    s.lab.pass(20 * MS);
    s.check(seed);
    s.lab.assert_empty();
}

/// A2, D2.
#[test]
fn counters_are_exact_while_consumers_attach_and_leave_under_load() {
    Seeds::of(60).each(attach_and_detach);
}

/// Requests inside a layer over `disk`, and inside `disk`.
fn inside(lab: &Lab, above: ProviderId, disk: ProviderId) -> (u64, u64) {
    (lab.stats(above).in_flight, lab.stats(disk).in_flight)
}

/// A1.
#[test]
fn request_parked_at_a_gate_counts_in_the_layers_above() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let above = lab.pass_through("s", disk, "");
    let user = lab.writer("u", above);
    let edge = lab.edge(user);
    let gate = lab.control.close_gate(disk).unwrap();
    let tag = lab.send(edge, Op::Write, 0, SECTOR);
    let sent = lab.cores[0].now();
    lab.pass(3 * MS);
    assert_eq!(inside(&lab, above, disk), (1, 0));
    // So the gate of the layer above does not close in front of it.
    assert!(lab.control.close_gate(above).is_err());
    lab.control.open_gate(gate);
    let end = lab.finish(tag);
    assert_eq!(inside(&lab, above, disk), (0, 0));
    assert_eq!(lab.stats(above).write_latency_ns, end.at_ns - sent);
    assert_eq!(lab.stats(disk).write_latency_ns, 0, "it came in late and was done at once");
}

/// A1.
#[test]
fn request_waiting_for_memory_counts_in_the_layers_above() {
    let mut lab = Lab::new(1);
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let above = lab.pass_through("s", disk, "");
    let user = lab.writer("u", above);
    leaf.set(Mode::NoMem(2));
    let tag = lab.send(lab.edge(user), Op::Write, 0, SECTOR);
    assert_eq!(inside(&lab, above, disk), (1, 0));
    lab.finish(tag);
    assert_eq!(inside(&lab, above, disk), (0, 0));
}

/// A1, C1 of split.rs, C2 of split.rs.
#[test]
fn request_queued_behind_a_split_one_counts_in_the_layers_above() {
    let mut lab = Lab::new(1);
    let (io_max_bytes, delete_max_bytes) = (SECTOR as u32, 0);
    let limits = Limits { media_bytes: 1 << 20, sector_bytes: 512, io_max_bytes, delete_max_bytes };
    let leaf = Leaf::shaped(limits);
    let disk = lab.disk("d0", &leaf);
    let above = lab.pass_through("s", disk, "");
    let user = lab.writer("u", above);
    leaf.set(Mode::Hold);
    let all = lab.send(lab.edge(user), Op::Write, 0, 100 * SECTOR);
    let wave = inside(&lab, above, disk).1;
    assert!(wave > 1 && wave < 100, "{wave} pieces");
    let last = lab.send_on(0, lab.edge(user), Op::Write, 0, SECTOR, Flags::ORDERED);
    assert_eq!(inside(&lab, above, disk), (2, wave));
    leaf.set(Mode::Now);
    leaf.release(&lab.cores);
    lab.finish(all);
    lab.finish(last);
    assert_eq!(inside(&lab, above, disk), (0, 0));
    let (ops, bytes) = (lab.stats(disk).ops, lab.stats(disk).bytes);
    assert_eq!((ops[Op::Write as usize], bytes[Op::Write as usize]), (101, 101 * SECTOR));
}
