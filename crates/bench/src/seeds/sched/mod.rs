//! The table of the page on geom_sched (2010). A sequential client beside a random reader, each
//! alone, without a scheduler and with each. Also the equality of the parts of equal clients. On a
//! modelled disk in virtual time: one round, exact, the same everywhere.

mod world;

use bio::Op;

use reactor::model::Timing;

use crate::bed::failed;
use crate::error::Error;
use crate::options::Options;
use crate::progress::Progress;
use crate::report::{Goal, Of, Report, Series};
use world::{FLASH, Load, SATA_2010, measure as run};

const SECONDS: u64 = 20;
/// Of the pairs: flash does very many.
const FAIRNESS_SECONDS: u64 = 10;
const NONE: &str = "none";
const COMMAND: &str = "seeds sched";
const ALGORITHMS: [&str; 5] = ["rr", "as", "fifo", "deadline", "fair"];

/// dd, reading: read-ahead keeps it close to the disk.
const READER: Load = Load {
    client: 1,
    op: Op::Read,
    depth: 1,
    bytes: 128 << 10,
    from: Some(1 << 30),
    think_ns: 50_000,
};
/// dd, writing: dirty pages on their way out.
const WRITER: Load = Load {
    client: 2,
    op: Op::Write,
    depth: 256,
    bytes: 128 << 10,
    from: Some(8 << 30),
    think_ns: 0,
};
/// cvs: small reads all over the disk.
const RANDOM: Load =
    Load { client: 3, op: Op::Read, depth: 1, bytes: 4096, from: None, think_ns: 100_000 };

/// Figures of the page: the reader beside the random one got five times as much, 30 instead of 6
/// MB/s. The writer kept 14 of 55 MB/s, for a random one that was starved before.
const READER_TIMES: f64 = 5.0;
const WRITER_KEEPS: f64 = 14.0 / 55.0;
/// A client that is alone loses no more than this to a scheduler.
const ALONE_KEEPS: f64 = 0.98;
/// Equal clients' parts, and parts over weights, differ by no more.
const UNEQUAL: f64 = 1.05;

/// `ours` is to be at least so many times the peer's.
fn times(least: f64) -> Option<Goal> {
    Some(Goal { of: Of::Inverse, at_most: 1.0 / least })
}

struct Case {
    name: &'static str,
    clients: &'static [(&'static str, Load)],
    /// Goal of a client, by algorithm, compared with its rate without a scheduler.
    goal: fn(client: &str, algorithm: &str) -> Option<Goal>,
}

const CASES: &[Case] = &[
    Case { name: "sched-alone-reader", clients: &[("reader", READER)], goal: alone },
    Case { name: "sched-alone-writer", clients: &[("writer", WRITER)], goal: alone },
    Case { name: "sched-alone-random", clients: &[("random", RANDOM)], goal: alone },
    Case {
        name: "sched-reader+random",
        clients: &[("reader", READER), ("random", RANDOM)],
        goal: |client, algorithm| match (client, algorithm) {
            ("reader", "rr" | "as") => times(READER_TIMES),
            ("random", "rr") => times(1.0),
            _ => None,
        },
    },
    Case {
        name: "sched-writer+random",
        clients: &[("writer", WRITER), ("random", RANDOM)],
        goal: |client, algorithm| match (client, algorithm) {
            ("writer", "rr") => times(WRITER_KEEPS),
            ("random", "rr") => times(READER_TIMES),
            _ => None,
        },
    },
];
const FAIRNESS: &str = "sched-fairness";

fn alone(_: &str, _: &str) -> Option<Goal> {
    times(ALONE_KEEPS)
}

/// Two clients on one disk under one scheduler, and the wanted ratio of the first one's rate to the
/// second one's.
struct Pair {
    name: &'static str,
    timing: Timing,
    scheduler: (&'static str, &'static str),
    loads: [Load; 2],
    want: f64,
}

const OTHER_READER: Load = Load { client: 7, from: Some(100 << 30), ..READER };
const OTHER_RANDOM: Load = Load { client: 8, ..RANDOM };

/// Reads of 16 KiB, deep enough that flash is busy.
const fn eager(who: u32, from: u64) -> Load {
    Load { client: who, op: Op::Read, depth: 64, bytes: 16384, from: Some(from << 30), think_ns: 0 }
}

const EAGER: [Load; 2] = [eager(1, 1), eager(2, 50)];

const fn on_disk(what: &'static str, loads: [Load; 2]) -> Pair {
    Pair { name: what, timing: SATA_2010, scheduler: ("rr", ""), loads, want: 1.0 }
}

const fn on_flash(what: &'static str, options: &'static str, want: f64) -> Pair {
    Pair { name: what, timing: FLASH, scheduler: ("fair", options), loads: EAGER, want }
}

const PAIRS: &[Pair] = &[
    on_disk("two readers, rr", [READER, OTHER_READER]),
    on_disk("two random, rr", [RANDOM, OTHER_RANDOM]),
    on_flash("two on flash, fair", "queue_depth=16", 1.0),
    on_flash("weights 3 to 1, fair", "queue_depth=16,1.weight=300", 3.0),
];

impl Pair {
    /// Distance of the parts from the wanted ratio: 1 is exact, larger on either side.
    fn distance(&self) -> Result<f64, Error> {
        let got = run((self.timing, FAIRNESS_SECONDS), Some(self.scheduler), &self.loads)?;
        let [first, second] = got[..] else { return Err(failed("two clients have two figures")) };
        let is = first / second.max(f64::MIN_POSITIVE) / self.want;
        Ok(is.max(1.0 / is.max(f64::MIN_POSITIVE)))
    }
}

fn scheduler(name: &str) -> Option<(&str, &str)> {
    (name != NONE).then_some((name, ""))
}

pub(super) fn measure(
    options: &Options,
    report: &mut Report,
    progress: &mut dyn FnMut(Progress),
) -> Result<(), Error> {
    let wanted: Vec<&Case> = CASES.iter().filter(|c| options.wants(c.name)).collect();
    let of = wanted.len() as u32 + 1;
    for (done, case) in (0..).zip(wanted) {
        progress(Progress { done, of, step: format!("seeds: {}", case.name) });
        let loads: Vec<Load> = case.clients.iter().map(|(_, load)| *load).collect();
        let mut without = Vec::new();
        for name in [NONE].into_iter().chain(ALGORITHMS) {
            let got = run((SATA_2010, SECONDS), scheduler(name), &loads)?;
            for (n, (client, _)) in case.clients.iter().enumerate() {
                let is = got.get(n).copied().unwrap_or_default();
                let theirs = without.get(n).copied().into_iter().collect();
                let series = Series { ours: vec![is], theirs };
                let figure = format!("{client}, {name}");
                let row = series.row(case.name, (&figure, "MB/s"), Some(NONE));
                let goal = (case.goal)(client, name).filter(|_| name != NONE);
                report.add(options, COMMAND, row, goal);
            }
            if name == NONE {
                without = got;
            }
        }
    }
    if options.wants(FAIRNESS) {
        progress(Progress { done: of - 1, of, step: format!("seeds: {FAIRNESS}") });
        for pair in PAIRS {
            let series = Series { ours: vec![pair.distance()?], theirs: vec![] };
            let row = series.row(FAIRNESS, (&format!("{}: off by", pair.name), "times"), None);
            let goal = Some(Goal { of: Of::Ours, at_most: UNEQUAL });
            report.add(options, COMMAND, row, goal);
        }
    }
    let page = "the page of 2010, without a scheduler and with rr: reading alone 72 and 72 MB/s, \
                writing alone 55 and 55, reading beside cvs 6 and 30, writing beside cvs 55 (cvs \
                very slow) and 14 (cvs well)";
    report.notes.push(page.to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rows(case: &str) -> Vec<crate::report::Row> {
        let options = Options { case: Some(case.to_owned()), ..Options::default() };
        let mut report = Report::default();
        measure(&options, &mut report, &mut |_| {}).expect("measured");
        println!("{}", report.table());
        report.rows
    }

    /// All goals of a case are met, and there are so many.
    fn check(case: &str, goals: usize) {
        let rows = rows(case);
        let met: Vec<(&str, bool)> =
            rows.iter().filter_map(|r| Some((r.figure.as_str(), r.met()?))).collect();
        assert_eq!(met.len(), goals, "{met:?}");
        assert!(met.iter().all(|(_, met)| *met), "{met:?}");
    }

    #[test]
    fn reader_gains_fivefold_beside_random_reads_without_harming_them() {
        check("sched-reader+random", 3);
    }

    #[test]
    fn random_reads_are_not_starved_and_the_writer_keeps_a_quarter() {
        check("sched-writer+random", 2);
    }

    #[test]
    fn single_client_loses_no_throughput() {
        for client in ["reader", "writer", "random"] {
            let name = format!("sched-alone-{client}");
            let case = CASES.iter().find(|c| c.name == name).expect("a case");
            let alone: Vec<f64> = [NONE]
                .into_iter()
                .chain(ALGORITHMS)
                .map(|a| run((SATA_2010, SECONDS), scheduler(a), &[case.clients[0].1]))
                .map(|got| got.expect("measured")[0])
                .collect();
            let keeps = |got: &f64| *got >= ALONE_KEEPS * alone[0];
            assert!(alone.iter().all(keeps), "{client}: {alone:?}");
        }
    }

    #[test]
    fn equal_clients_get_equal_shares_and_weights_are_honoured() {
        check(FAIRNESS, PAIRS.len());
    }

    #[test]
    fn client_limits_hold() {
        let limits = ("fair", "1.iops=1000,2.kbps=10240");
        let got = run((FLASH, 5), Some(limits), &EAGER).expect("measured");
        assert!((15.5..17.5).contains(&got[0]), "1000 of 16 KiB a second: {got:?}");
        assert!((10.0..11.5).contains(&got[1]), "10 MiB a second: {got:?}");
    }

    #[test]
    fn random_clients_share_equally_and_a_reader_keeps_its_share() {
        for jumpers in [2u32, 3, 10] {
            let mut loads = vec![READER];
            loads.extend((0..jumpers).map(|n| Load { client: 10 + n, ..RANDOM }));
            let alone = run((SATA_2010, SECONDS), None, &loads[..1]).expect("measured")[0];
            let none = run((SATA_2010, SECONDS), None, &loads).expect("measured");
            let got = run((SATA_2010, SECONDS), scheduler("rr"), &loads).expect("measured");
            println!("{jumpers}: {none:.2?} {got:.2?}");
            let part = 1.0 / f64::from(jumpers.min(4) + 1);
            assert!(got[0] >= 0.85 * part * alone, "{jumpers}: {got:?} of {alone}");
            let all = |got: &[f64]| got[1..].iter().sum::<f64>();
            assert!(all(&got) >= 0.75 * all(&none), "{jumpers}: {got:?} beside {none:?}");
            let (low, high) = got[1..]
                .iter()
                .fold((f64::MAX, 0.0f64), |(low, high), g| (low.min(*g), high.max(*g)));
            assert!(high / low <= 1.25, "{jumpers}: {got:?}");
        }
    }
}
