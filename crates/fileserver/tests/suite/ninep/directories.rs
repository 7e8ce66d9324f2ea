//! Directories while they change, dumps, and what stays the same across them.

use std::collections::BTreeMap;

use fileserver::files::Served;
use fileserver::ninep::Flavour;
use fileserver::volume::Dump;
use wire::ninep::{R, Stat, mode, open};

use super::client::{Client, with_fixture};

fn entries(mut bytes: &[u8]) -> Vec<String> {
    let mut out = Vec::new();
    while !bytes.is_empty() {
        let (stat, n) = Stat::decode(bytes).expect("whole entries");
        out.push(stat.name.to_owned());
        bytes = &bytes[n..];
    }
    out
}

async fn list(c: &Client, fid: u32) -> Vec<String> {
    let (mut at, mut out) = (0, Vec::new());
    loop {
        let some = c.read(fid, at, 8000).await.unwrap();
        if some.is_empty() {
            return out;
        }
        at += some.len() as u64;
        out.extend(entries(&some));
    }
}

#[test]
fn exposing_12_remaining_entries_are_read_once_while_others_change() {
    with_fixture(31, |h| async move {
        let (c, d) = (h.user("ann", Flavour::Plan9).await, h.user("ann", Flavour::Plan9).await);
        // In an image a name is sought entry by entry.
        let many = if matches!(h.fs, Served::Image(_)) { 800 } else { 5_000 };
        for n in 0..many {
            c.make(1, &format!("stays{n}"), 0o644, 0).await;
            c.clunk(1).await.unwrap();
            c.make(1, &format!("goes{n}"), 0o644, 0).await;
            c.clunk(1).await.unwrap();
        }
        for count in [200, 333, 1_000, 8_168] {
            c.walk(0, 1, &[]).await.unwrap();
            c.open(1, open::READ).await.unwrap();
            let (mut at, mut seen, mut n) = (0, BTreeMap::new(), 0);
            loop {
                let some = c.read(1, at, count).await.unwrap();
                if some.is_empty() {
                    break;
                }
                at += some.len() as u64;
                for name in entries(&some) {
                    *seen.entry(name).or_insert(0) += 1;
                }
                // Another client takes some away and makes others.
                for _ in 0..if n < 1_200 { 3 } else { 0 } {
                    n += 1;
                    if d.walk(0, 2, &[&format!("goes{}", n * 7 % many)]).await.is_ok() {
                        d.remove(2).await.unwrap();
                    }
                    d.make(3, &format!("new{count}.{n}"), 0o644, 0).await;
                    d.clunk(3).await.unwrap();
                }
            }
            assert!(seen.values().all(|n| *n == 1), "{count}: an entry twice");
            assert!((0..many).all(|n| seen.contains_key(&format!("stays{n}"))), "{count}");
            // From the beginning again at any time; nowhere else.
            assert!(!c.read(1, 0, count).await.unwrap().is_empty());
            assert!(c.read(1, 7, count).await.is_err());
            assert!(c.read(1, 0, 30).await.is_err(), "shorter than an entry");
            c.clunk(1).await.unwrap();
        }
    });
}

#[test]
fn dumps_are_a_tree_of_years_and_days_and_never_change() {
    with_fixture(32, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        c.make(1, "f", 0o644, open::RDWR).await;
        c.make(2, "tmp", mode::TMP | 0o644, open::RDWR).await;
        let dates = [20_251_231, 20_261_121, 20_261_121, 20_261_121];
        for (n, date) in dates.into_iter().enumerate() {
            c.write(1, 0, format!("version {n}").as_bytes()).await.unwrap();
            h.fs.dump(date).await.unwrap();
        }
        c.write(1, 0, b"now").await.unwrap();
        c.attach(10, "ann", "dump").await.unwrap();
        c.walk(10, 11, &[]).await.unwrap();
        c.open(11, open::READ).await.unwrap();
        assert_eq!(list(&c, 11).await, ["2025", "2026"]);
        c.walk(10, 12, &["2026"]).await.unwrap();
        c.open(12, open::READ).await.unwrap();
        assert_eq!(list(&c, 12).await, ["1121", "11211", "11212"]);
        let mut paths = vec![c.walk(0, 20, &["f"]).await.unwrap()[0].path];
        for (n, dir) in [["2025", "1231"], ["2026", "1121"], ["2026", "11211"], ["2026", "11212"]]
            .into_iter()
            .enumerate()
        {
            let fid = 30 + n as u32;
            let qids = c.walk(10, fid, &[dir[0], dir[1], "f"]).await.unwrap();
            paths.push(qids[2].path);
            c.open(fid, open::READ).await.unwrap();
            let found = c.read(fid, 0, 100).await.unwrap();
            assert_eq!(found, format!("version {n}").as_bytes());
            assert_eq!(c.open(fid, open::READ).await, Err("bad use of fid".into()));
            // Nothing in it can be changed, and temporary files are not in it.
            c.walk(10, 50, &dir).await.unwrap();
            assert_eq!(c.create(50, "x", 0o644, 0).await, Err("read only file system".into()));
            assert!(c.wstat(50, Stat { mode: 0o777, ..Stat::KEEP }).await.is_err());
            assert!(c.walk(50, 51, &["tmp"]).await.is_err());
            c.open(50, open::READ).await.unwrap();
            assert_eq!(list(&c, 50).await, ["f"]);
            c.clunk(50).await.unwrap();
            c.walk(10, 50, &[dir[0], dir[1], "f"]).await.unwrap();
            assert!(c.open(50, open::RDWR).await.is_err());
            assert!(c.remove(50).await.is_err());
        }
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), 5, "clients take files of one path for one file");
        // Up from a dump's root is its year.
        c.walk(10, 60, &["2026", "1121", "..", ".."]).await.unwrap();
        assert_eq!(c.facts(60).await.0, "/");
    });
}

#[test]
fn exposing_14_qid_paths_and_versions_are_never_reused() {
    with_fixture(33, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        let mut seen = std::collections::HashMap::new();
        for n in 0..300_u32 {
            c.make(1, "f", 0o644, open::RDWR).await;
            for m in 0..3 {
                c.write(1, 0, &[n as u8, m]).await.unwrap();
                let a = c.stat(1).await;
                let R::Stat { stat } = a.r() else { panic!() };
                let before = seen.insert((stat.qid.path, stat.qid.version), (n, m));
                assert_eq!(before, None);
            }
            c.remove(1).await.unwrap();
        }
        let mut paths: Vec<u64> = seen.keys().map(|(path, _)| *path).collect();
        paths.sort_unstable();
        paths.dedup();
        assert_eq!(paths.len(), 300);
    });
}

/// What every dump has in the files `c0` to `c5`, dump by dump.
async fn counters(c: &Client, dumps: &[Dump]) -> Vec<Vec<Vec<u8>>> {
    let mut all = Vec::new();
    for d in dumps {
        let (year, day) = d.path();
        let mut values = Vec::new();
        for n in 0..6 {
            c.walk(90, 91, &[&year, &day, &format!("c{n}")]).await.unwrap();
            c.open(91, open::READ).await.unwrap();
            values.push(c.read(91, 0, 4).await.unwrap());
            c.clunk(91).await.unwrap();
        }
        all.push(values);
    }
    all
}

#[test]
fn exposing_3_every_dump_is_atomic_across_files_written_in_order() {
    with_fixture(34, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        for n in 0..6 {
            c.make(n + 1, &format!("c{n}"), 0o644, open::RDWR).await;
        }
        let fs = h.fs.clone();
        let r = h.reactor.clone();
        let task = h.reactor.spawn("dumper", async move {
            loop {
                r.sleep(1_000_000 + r.random() % 3_000_000).await;
                fs.dump(20_261_121).await.unwrap();
            }
        });
        let count = async |round: u32| {
            for n in 0..6 {
                c.write(n + 1, 0, &round.to_be_bytes()).await.unwrap();
            }
        };
        for round in 1_u32..=150 {
            count(round).await;
        }
        task.abort();
        c.attach(90, "ann", "dump").await.unwrap();
        let dumps = h.fs.dumps();
        assert!(dumps.len() > 10, "{} dumps", dumps.len());
        let then = counters(&c, &dumps).await;
        for (d, values) in dumps.iter().zip(&then) {
            assert!(values.is_sorted_by(|a, b| a >= b), "{}: {values:?}", d.path().1);
        }
        assert!(then.is_sorted_by(|a, b| a < b), "each dump is a later moment");
        // After ten thousand operations and more dumps each is unchanged.
        for round in 151_u32..=1_500 {
            count(round).await;
            c.make(7, &format!("n{}", round % 7), 0o644, open::RDWR).await;
            c.remove(7).await.unwrap();
            if round.is_multiple_of(300) {
                let dump = h.fs.dump(20_261_122).await.unwrap();
                h.fs.copied(&dump).await.unwrap();
            }
        }
        assert_eq!(counters(&c, &dumps).await, then);
    });
}
