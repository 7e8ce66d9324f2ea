//! Choice of the member to read from, beside the choice of FreeBSD's gmirror.

use geom::Edge;

use super::load::Loads;

fn loads(members: usize) -> Loads {
    let loads = Loads::default();
    let all = loads.lead((0..members).map(|slot| (slot, Edge(slot as u32 + 7), 4096)));
    assert_eq!(all, (1 << members) - 1);
    loads
}

#[test]
fn reads_stay_on_a_member_until_it_is_busier() {
    let loads = loads(2);
    let far = 1 << 30;
    let least = |slots: std::ops::Range<usize>| {
        let way = loads.least_busy(slots.map(|slot| (slot, (), far)));
        way.map(|(slot, ..)| slot)
    };
    loads.begun(0, far);
    loads.ended(0);
    assert_eq!(least(0..2), Some(0), "it is there");
    for _ in 0..4 {
        loads.begun(0, far);
    }
    let chosen: Vec<_> = (0..40).filter_map(|_| least(0..2)).collect();
    assert_eq!(chosen.last(), Some(&1), "the other has nothing to do");
    (0..4).for_each(|_| loads.ended(0));
    let chosen: Vec<_> = (0..40).filter_map(|_| least(0..2)).collect();
    assert_eq!(chosen.last(), Some(&0));
    assert_eq!(least(1..2), Some(1), "of those that may be asked");
    assert_eq!(least(2..2), None);
    assert_eq!(loads.way(1), (Edge(8), 4096));
}

/// gmirror's rule, step by step (docs/reference/geom.md 2.2): averages follow on every read, and
/// every member is examined.
#[derive(Clone, Default)]
struct Plain {
    queue: u64,
    average: u64,
    last_end: u64,
}

fn worth(last_end: u64, at: u64) -> i64 {
    match last_end.abs_diff(at) {
        0 => 512,
        far if far <= 1 << 20 => 256,
        _ => 0,
    }
}

impl Plain {
    fn choose(members: &mut [Plain], at: u64) -> usize {
        let mut best = (i64::MAX, 0);
        for (slot, member) in members.iter_mut().enumerate() {
            member.average = (member.queue * 256 + 7 * member.average) / 8;
            let key = member.average as i64 - worth(member.last_end, at);
            if key <= best.0 {
                best = (key, slot);
            }
        }
        best.1
    }
}

/// Which rule chooses.
enum Rule {
    Plain(Vec<Plain>),
    Ours(Loads),
}

impl Rule {
    fn take(&mut self, among: u64, at: u64) -> usize {
        match self {
            Rule::Plain(members) => {
                let slot = Plain::choose(members, at);
                members[slot].queue += 1;
                members[slot].last_end = at + 4096;
                slot
            }
            Rule::Ours(loads) => loads.take(among, at, at + 4096),
        }
    }

    fn ended(&mut self, slot: usize) {
        match self {
            Rule::Plain(members) => members[slot].queue -= 1,
            Rule::Ours(loads) => loads.ended(slot),
        }
    }
}

/// Members that answer one read after the other, each in a time of its own, and `streams` readers
/// with one read in flight each, of which every `jumps`th begins elsewhere. Returns the time at
/// which the last of the reads has ended, and the number of reads per member.
fn served(rule: &mut Rule, takes: &[u64], streams: usize, jumps: u64) -> (u64, Vec<u64>) {
    const READS: u64 = 20_000;
    let mut random = 7u64;
    let mut chance = move || {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        random >> 33
    };
    let among = (1 << takes.len()) - 1;
    let (mut free, mut counts) = (vec![0u64; takes.len()], vec![0; takes.len()]);
    let mut at: Vec<u64> = (0..streams as u64).map(|n| n << 30).collect();
    // The end time, the stream, and the member of each read.
    let mut under_way: Vec<(u64, usize, usize)> = Vec::new();
    let mut now = 0;
    for n in 0..READS {
        let stream = match (n as usize) < streams {
            true => n as usize,
            false => {
                let next = under_way.iter().enumerate().min_by_key(|(_, end)| **end);
                let (ended, stream, slot) = under_way.swap_remove(next.map_or(0, |(nth, _)| nth));
                now = ended;
                rule.ended(slot);
                stream
            }
        };
        if chance() % jumps == 0 {
            at[stream] = chance() % (1 << 20) * 4096;
        }
        let slot = rule.take(among, at[stream]);
        at[stream] += 4096;
        counts[slot] += 1;
        free[slot] = free[slot].max(now) + takes[slot];
        under_way.push((free[slot], stream, slot));
    }
    under_way.iter().for_each(|(_, _, slot)| rule.ended(*slot));
    (free.into_iter().max().unwrap_or(0), counts)
}

#[test]
fn read_balancing_is_at_most_2_percent_slower_than_gmirror() {
    for takes in [vec![100, 100], vec![100, 300], vec![100, 100, 100], vec![50, 400, 70, 90]] {
        for (streams, jumps) in [(1, 1), (1, 1000), (2, 50), (4, 1), (8, 20), (32, 1), (32, 200)] {
            let mut plain = Rule::Plain(vec![Plain::default(); takes.len()]);
            let mut ours = Rule::Ours(loads(takes.len()));
            let (theirs, before) = served(&mut plain, &takes, streams, jumps);
            let (time, counts) = served(&mut ours, &takes, streams, jumps);
            let what =
                format!("{takes:?} {streams} {jumps}: {time} {counts:?}, {theirs} {before:?}");
            assert!(time * 100 <= theirs * 102, "{what}");
            // B2
            let Rule::Ours(loads) = ours else { continue };
            assert!((0..takes.len()).all(|slot| loads.peek(slot).0 == 0), "{what}");
        }
    }
}

#[test]
fn shortcut_chooses_the_same_member_as_the_full_comparison() {
    // The shortcut gives the same result as the full comparison.
    let loads = loads(3);
    let mut random = 9u64;
    let mut under_way = Vec::new();
    let mut at = 0;
    for n in 0..20_000 {
        random = random.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        let chance = random >> 33;
        if chance.is_multiple_of(9) {
            at = (chance % 64) << 12;
        }
        let among = if chance.is_multiple_of(5) { 0b110 } else { 0b111 };
        let ends = [0, 1, 2].map(|slot| loads.peek(slot).2);
        let slot = loads.take(among, at, at + 4096);
        let key = |slot: usize| i64::from(loads.peek(slot).1) - worth(ends[slot], at);
        let others = (0..3).filter(|slot| among >> slot & 1 == 1);
        assert_eq!(Some(key(slot)), others.map(key).min(), "read {n}");
        assert!(among >> slot & 1 == 1, "read {n}");
        at += 4096;
        under_way.push(slot);
        if chance % 7 > 2 || under_way.len() > 9 {
            loads.ended(under_way.swap_remove(chance as usize % under_way.len()));
        }
    }
}
