//! Seeded schedules checked against the rules of SAM-5, evaluated from scratch each time.

use super::*;
use reactor::SeededRandom;
use std::collections::BTreeMap;
use testkit::Seeds;

/// Schedules.
const SEEDS: u64 = 1000;

#[derive(Clone, Copy, Debug)]
struct Seen {
    request: Request,
    enabled: bool,
}

/// Ordering rules, taken from the standard and not from the code: a command may be enabled when no
/// rule here makes it wait.
struct Model {
    tasks: BTreeMap<u64, Seen>,
    crowd: (u32, u32),
    contingent: Vec<u64>,
}

fn touch(a: &Request, b: &Request) -> bool {
    let blocks = |r: &Request| match r.span {
        Span::Nothing => 0..0,
        Span::Range { lba, blocks } => lba..lba + blocks,
        Span::Whole => 0..1000,
    };
    let (a, b) = (blocks(a), blocks(b));
    a.clone().any(|x| b.contains(&x))
}

fn excluded(a: &Request, b: &Request) -> bool {
    let same = a.restricted && b.restricted && a.nexus == b.nexus && (a.writes || b.writes);
    touch(a, b) && (a.exclusive || b.exclusive || same)
}

impl Model {
    /// Never wrong, for any order of arrivals.
    fn check_safety(&self, seed: u64) {
        let running: Vec<&Seen> = self.tasks.values().filter(|s| s.enabled).collect();
        for (i, a) in running.iter().enumerate() {
            for b in running.iter().skip(i + 1) {
                assert!(!excluded(&a.request, &b.request), "seed {seed}: {a:?} beside {b:?}");
            }
        }
        for (id, b) in self.tasks.iter().filter(|(_, s)| s.enabled && !s.request.is_claim) {
            let same = |a: &Seen| a.request.group == b.request.group && !a.request.is_claim;
            for (_, a) in self.tasks.range(..id).filter(|(_, a)| same(a)) {
                let barrier = a.request.attribute != TaskAttribute::Simple;
                match b.request.attribute {
                    TaskAttribute::Simple => assert!(!barrier, "seed {seed}: {b:?} past {a:?}"),
                    TaskAttribute::Ordered => panic!("seed {seed}: {b:?} before the end of {a:?}"),
                    _ => {}
                }
            }
        }
    }

    /// No entry waits without a reason that will end: when nothing runs, and nothing is held
    /// back from outside, at least one entry is enabled.
    fn check_progress(&self, seed: u64) {
        let free = self.crowd == (0, 0) && self.contingent.is_empty();
        if free && !self.tasks.is_empty() {
            assert!(self.tasks.values().any(|s| s.enabled), "seed {seed}: {:?}", self.tasks);
        }
    }
}

fn request(random: &mut SeededRandom, each: bool, restricted: bool) -> Request {
    let attribute = match random.below(10) {
        0 => TaskAttribute::Ordered,
        1 => TaskAttribute::HeadOfQueue,
        _ => TaskAttribute::Simple,
    };
    let span = match random.below(8) {
        0 => Span::Nothing,
        1 => Span::Whole,
        _ => Span::Range { lba: random.below(12), blocks: random.below(4) },
    };
    let nexus = 1 + random.below(3);
    let guest = random.chance(60);
    Request {
        group: if each { nexus } else { 0 },
        nexus,
        attribute: if guest { TaskAttribute::Simple } else { attribute },
        span,
        exclusive: guest || random.chance(150),
        writes: random.chance(500),
        restricted: restricted && !guest,
        is_claim: guest,
    }
}

/// Ends: nothing is left, and the set is plain again.
fn schedule(seed: u64) {
    let mut random = SeededRandom::new(seed);
    let (each, restricted) = (random.chance(300), random.chance(300));
    let mut set: TaskSet<u64> = TaskSet::default();
    let mut model = Model { tasks: BTreeMap::new(), crowd: (2, 2), contingent: Vec::new() };
    set.gather(2);
    let mut coming = 150;
    while coming > 0 || !model.tasks.is_empty() {
        let mut ready = Vec::new();
        match random.below(10) {
            0..=4 if coming > 0 => {
                coming -= 1;
                let request = request(&mut random, each, restricted);
                let name = set.next;
                let (id, enabled) = set.add(request, name);
                assert_eq!(id, name);
                if enabled && request.attribute == TaskAttribute::Ordered && !request.is_claim {
                    assert_eq!(model.crowd.0, 0, "seed {seed}: O4");
                }
                model.tasks.insert(id, Seen { request, enabled });
            }
            5 if model.crowd.0 > 0 => {
                model.crowd.0 -= 1;
                set.counted_out(false, &mut ready);
            }
            6 if model.crowd.1 > 0 => {
                model.crowd.1 -= 1;
                set.counted_out(true, &mut ready);
            }
            7 if random.chance(200) => {
                let group = if each { 1 } else { 0 };
                if set.establish(group, 1) {
                    model.contingent.push(group);
                }
            }
            8 if !model.contingent.is_empty() => {
                model.contingent.clear();
                set.end_acas(|_| true, &mut ready);
            }
            _ => {
                // One that runs ends, or now and then one that waits is aborted.
                let abort = random.chance(100);
                let of: Vec<u64> = model
                    .tasks
                    .iter()
                    .filter(|(_, s)| s.enabled || abort)
                    .map(|(id, _)| *id)
                    .collect();
                if !of.is_empty() {
                    let id = of[random.below(of.len() as u64) as usize];
                    model.tasks.remove(&id);
                    set.leave(id, &mut ready);
                }
            }
        }
        for id in ready {
            let seen = model.tasks.get_mut(&id).expect("only what is there is enabled");
            assert!(!seen.enabled, "seed {seed}: enabled twice");
            seen.enabled = true;
            let held = model.contingent.contains(&seen.request.group) && !seen.request.is_claim;
            assert!(!held, "seed {seed}: O6");
        }
        model.check_safety(seed);
        model.check_progress(seed);
    }
    set.end_acas(|_| true, &mut Vec::new());
    while model.crowd.0 > 0 {
        model.crowd.0 -= 1;
        set.counted_out(false, &mut Vec::new());
    }
    while model.crowd.1 > 0 {
        model.crowd.1 -= 1;
        set.counted_out(true, &mut Vec::new());
    }
    set.try_relax();
    assert!(set.try_relax(), "seed {seed}: plain again");
}

/// O3 of task/set.rs, O4 of task/set.rs, O5 of task/set.rs, O6 of task/set.rs.
#[test]
fn o1_to_o6_hold_in_any_schedule() {
    Seeds::of(SEEDS).each(schedule);
}

const SIMPLE: Request = Request {
    group: 0,
    nexus: 1,
    attribute: TaskAttribute::Simple,
    span: Span::Whole,
    exclusive: false,
    writes: true,
    restricted: false,
    is_claim: false,
};
const ORDERED: Request = Request { attribute: TaskAttribute::Ordered, ..SIMPLE };
const HEAD: Request = Request { attribute: TaskAttribute::HeadOfQueue, ..SIMPLE };

fn strict() -> TaskSet<&'static str> {
    let mut set = TaskSet::default();
    set.gather(0);
    set
}

#[test]
fn o1_only_head_of_queue_overtakes_an_ordered_command() {
    let mut set = strict();
    let (a, on) = set.add(SIMPLE, "a");
    assert!(on);
    let (b, on) = set.add(ORDERED, "b");
    assert!(!on);
    let (c, on) = set.add(SIMPLE, "c");
    assert!(!on);
    let (h, on) = set.add(HEAD, "h");
    assert!(on, "HEAD OF QUEUE overtakes");
    let mut ready = Vec::new();
    let (d, on) = set.add(SIMPLE, "d");
    assert!(!on);
    set.leave(a, &mut ready);
    assert_eq!(ready, ["b"], "the HEAD OF QUEUE came later");
    set.leave(b, &mut ready);
    assert_eq!(ready, ["b", "c"]);
    set.leave(h, &mut ready);
    assert_eq!(ready, ["b", "c", "d"], "nothing older is there");
    set.leave(c, &mut ready);
    set.leave(d, &mut ready);
    set.try_relax();
    assert!(set.try_relax());
}

/// Also if HEAD OF QUEUE commands arrive so often that there is always one.
#[test]
fn o1_a_flood_of_head_of_queue_starves_no_waiting_command() {
    let mut set = strict();
    let (mut head, _) = set.add(HEAD, "h");
    let waiting = [SIMPLE, ORDERED, SIMPLE].map(|request| set.add(request, "w"));
    assert!(waiting.iter().all(|(_, on)| !on));
    let mut ready = Vec::new();
    for (id, _) in waiting {
        let (next, on) = set.add(HEAD, "h");
        assert!(on);
        set.leave(head, &mut ready);
        head = next;
        assert_eq!(ready, ["w"], "the next one in the order runs");
        ready.clear();
        set.leave(id, &mut ready);
    }
}

#[test]
fn o1_groups_do_not_wait_for_each_other() {
    let mut set = strict();
    assert!(set.add(ORDERED, "a").1);
    assert!(!set.add(SIMPLE, "b").1);
    assert!(set.add(Request { group: 7, nexus: 7, ..SIMPLE }, "c").1);
}

#[test]
fn o2_only_overlapping_commands_wait_for_an_exclusive_one() {
    let at = |lba, blocks| Request { span: Span::Range { lba, blocks }, ..SIMPLE };
    let mut set = strict();
    let (caw, on) = set.add(Request { exclusive: true, ..at(8, 2) }, "caw");
    assert!(on);
    assert!(set.add(at(0, 8), "before").1);
    assert!(set.add(at(10, 8), "behind").1);
    assert!(set.add(at(9, 0), "nothing").1);
    assert!(!set.add(at(9, 1), "inside").1);
    assert!(!set.add(Request { attribute: TaskAttribute::HeadOfQueue, ..at(7, 2) }, "head").1);
    let mut ready = Vec::new();
    set.leave(caw, &mut ready);
    assert_eq!(ready, ["inside", "head"], "neither is exclusive");
}

#[test]
fn o7_simple_commands_do_not_keep_a_set_strict() {
    let mut set = strict();
    let (a, _) = set.add(ORDERED, "a");
    set.leave(a, &mut Vec::new());
    let (b, on) = set.add(SIMPLE, "b");
    assert!(on && !set.try_relax(), "touched since the last look");
    assert!(set.try_relax());
    assert!(b < set.gather(0), "it counts as crowd of the next strict time");
    set.leave(b, &mut Vec::new());
}

#[test]
fn one_command_with_the_aca_attribute_runs_at_a_time() {
    let mut set = strict();
    assert_eq!(set.aca_effect(0, 1, true), AcaEffect::None);
    assert!(set.establish(0, 1));
    assert!(!set.establish(0, 2));
    assert_eq!(set.aca_effect(0, 2, true), AcaEffect::OtherNexus);
    assert_eq!(set.aca_effect(0, 1, false), AcaEffect::Own);
    assert_eq!(set.aca_effect(0, 1, true), AcaEffect::Runs);
    assert_eq!(set.aca_effect(0, 1, true), AcaEffect::Own);
    set.aca_ended(1);
    assert_eq!(set.aca_effect(0, 1, true), AcaEffect::Runs);
    let mut ready = Vec::new();
    assert!(!set.add(SIMPLE, "a").1, "O6");
    assert!(set.end_acas(|n| n == 1, &mut ready));
    assert_eq!(ready, ["a"]);
}
