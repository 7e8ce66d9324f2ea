//! FreeBSD's `tools/regression/geom_gpt/gctl_test.t`, request by request, on a disk of 1024 sectors
//! as there. Numbers are upstream's. A row notes where upstream demands a value that is filled in
//! here, or where a request here cannot express upstream's request. Sectors are upstream's plus
//! six: the first usable sector is 40 here, on a boundary of 4 KiB, as in FreeBSD's own `gpart`.

use bio::Errno;
use classes::part::request::PartAnswer;
use geom::Access;
use serde_json::{Value, json};

use crate::world::World;

/// Unknown types: they are kept as they are.
const ONE: &str = "!ed0101b0-2a71-11da-ba81-003048416ace";
const TWO: &str = "!83d34ed5-c4ff-11da-b65b-000347c5d7f3";
const THREE: &str = "!d2bd4509-c4ff-11da-b4cc-00306e39b62f";
const UFS: &str = "!516e7cb6-6ecf-11d6-8ff8-00022d09712b";

/// The offset of our sectors from upstream's.
const SHIFT: u64 = 6;

/// The last sector that can be used.
const LAST: u64 = 983;

/// The result of a request.
#[derive(Debug)]
enum Ends {
    Message(&'static str),
    /// The kind of error, and a word that the refusal contains.
    Refused(Errno, &'static str),
}
use Ends::{Message, Refused};

/// Number, verb, the geom or provider, the rest.
type Row = (u16, &'static str, &'static str, Value, Ends);

fn run(world: &mut World, rows: Vec<Row>) {
    for (number, verb, on, with, ends) in rows {
        let before = world.names();
        let output = world.verb("part", verb, on, with);
        match (output, &ends) {
            (Ok(answer), Message(wanted)) => {
                assert_eq!(answer["message"], json!(wanted), "{number}")
            }
            (Err(e), Refused(kind, words)) => {
                assert!(e.kind == *kind && e.message.contains(words), "{number}: {:?} {e}", e.kind);
                assert_eq!(world.names(), before, "{number}: a refusal changes nothing");
            }
            (other, _) => panic!("{number}: {other:?}, not {ends:?}"),
        }
    }
}

/// From the first sector to the last, as upstream counts it.
fn span(kind: &str, start: u64, end: u64) -> Value {
    let sectors = |n: u64| json!({ "sectors": n });
    let (start, end) = (start + SHIFT, end + SHIFT);
    json!({ "kind": kind, "start": sectors(start), "size": sectors(end - start + 1) })
}

/// A partition that is deleted, with consent.
fn index(n: u32) -> Value {
    json!({ "index": n, "yes_destroy": [format!("md0p{n}")] })
}

fn at(kind: &str, start: u64, end: u64, index: u32) -> Value {
    let mut with = span(kind, start, end);
    with["index"] = json!(index);
    with
}

/// Upstream's `conf`: the disk's partitions in the graph. Index, first and last sector, type.
fn conf(world: &mut World) -> Vec<(u32, u64, u64, String)> {
    let answer = world.verb("part", "show", "md0", json!({})).expect("shown");
    let answer: PartAnswer = serde_json::from_value(answer).expect("the contract");
    let table = answer.tables.into_iter().next().expect("a table");
    assert_eq!((table.first, table.last, table.scheme.as_str()), (34 + SHIFT, LAST, "gpt"));
    let entry = |e: &classes::part::request::EntryView| {
        (e.index, e.start - SHIFT, e.start + e.count - 1 - SHIFT, format!("!{}", e.raw_kind))
    };
    table.entries.iter().map(entry).collect()
}

#[test]
fn gctl_000_to_025_verbs_and_create() {
    let (mut w, _) = World::with("md0", vec![0; 1024 * 512], 512);
    let entries = |n: i64| json!({ "scheme": "gpt", "entries": n });
    run(
        &mut w,
        vec![
            (0, "", "", json!({}), Refused(Errno::NotSup, "it has show, create")),
            (1, "bogus", "", json!({}), Refused(Errno::NotSup, "bogus")),
            (10, "create", "", json!({ "scheme": "gpt" }), Refused(Errno::Inval, "provider")),
            (11, "create", "bogus", json!({ "scheme": "gpt" }), Refused(Errno::NoEnt, "bogus")),
            (21, "create", "md0", entries(-1), Refused(Errno::Inval, "-1")),
            (22, "create", "md0", entries(128), Message("md0 created")),
            (23, "create", "md0", json!({ "scheme": "gpt" }), Refused(Errno::Exist, "md0")),
            (24, "modify", "md0", json!({}), Refused(Errno::Inval, "index")),
        ],
    );
    assert_eq!(conf(&mut w), [], "25");
}

fn created() -> World {
    let (mut w, _) = World::with("md0", vec![0; 1024 * 512], 512);
    w.part("create", "md0", json!({ "scheme": "gpt" }));
    w
}

#[test]
fn gctl_030_to_054_add_and_remove() {
    let mut w = created();
    let start = |n: u64| json!({ "kind": ONE, "start": { "sectors": n + SHIFT } });
    run(
        &mut w,
        vec![
            (30, "add", "", json!({ "kind": ONE }), Refused(Errno::Inval, "geom")),
            (31, "add", "bogus", json!({ "kind": ONE }), Refused(Errno::NoEnt, "bogus")),
            (32, "add", "md0", json!({}), Refused(Errno::Inval, "`type`")),
            (33, "add", "md0", json!({ "kind": "bogus" }), Refused(Errno::Inval, "bogus")),
            // Upstream demands a start: here it is the first gap's, and the size all of the gap.
            (34, "add", "md0", json!({ "kind": ONE }), Message("md0p1 added")),
        ],
    );
    assert_eq!(conf(&mut w), [(1, 34, LAST - SHIFT, ONE.to_owned())], "34");
    run(
        &mut w,
        vec![
            (34, "delete", "md0", index(1), Message("md0p1 deleted")),
            (35, "add", "md0", start(1), Refused(Errno::NoSpc, "usable")),
            // Upstream demands an end: here it is the gap's.
            (36, "add", "md0", start(34), Message("md0p1 added")),
            (36, "delete", "md0", index(1), Message("md0p1 deleted")),
            (37, "add", "md0", span(ONE, 34, 12_345_678), Refused(Errno::NoSpc, "")),
            (38, "add", "md0", at(ONE, 162, 417, 129), Refused(Errno::Inval, "129")),
            // Upstream answers the index as a parameter of the request: here it is part of the
            // text.
            (39, "add", "md0", at(ONE, 162, 417, 5), Message("md0p5 added")),
            (40, "add", "md0", at(TWO, 34, 161, 5), Refused(Errno::Exist, "5")),
            (41, "add", "md0", span(TWO, 34, 546), Refused(Errno::NoSpc, "")),
            (42, "add", "md0", span(TWO, 162, 417), Refused(Errno::NoSpc, "")),
            (43, "add", "md0", span(TWO, 100, 300), Refused(Errno::NoSpc, "")),
            (44, "add", "md0", span(TWO, 300, 500), Refused(Errno::NoSpc, "")),
            (45, "add", "md0", span(TWO, 34, 161), Message("md0p1 added")),
            (46, "add", "md0", span(THREE, 418, 546), Message("md0p2 added")),
        ],
    );
    let all = [(1, 34, 161, TWO), (2, 418, 546, THREE), (5, 162, 417, ONE)];
    let mut found = conf(&mut w);
    found.sort();
    assert_eq!(found, all.map(|(n, from, to, kind)| (n, from, to, kind.to_owned())), "47");
    let names: Vec<String> = w.names().into_iter().filter(|n| n.starts_with("md")).collect();
    assert_eq!(names, ["md0", "md0p1", "md0p2", "md0p5"], "47");
    // `remove` is called `delete`, as FreeBSD calls it now, and as upstream does from 62 on.
    run(
        &mut w,
        vec![
            (50, "delete", "md0", index(5), Message("md0p5 deleted")),
            (51, "delete", "md0", index(2), Message("md0p2 deleted")),
            (52, "delete", "md0", index(1), Message("md0p1 deleted")),
            (53, "delete", "md0", index(1), Refused(Errno::NoEnt, "1")),
        ],
    );
    assert_eq!(conf(&mut w), [], "54");
}

#[test]
fn gctl_060_to_065_a_partition_in_use_stays() {
    let mut w = created();
    run(&mut w, vec![(60, "add", "md0", span(UFS, 34, 546), Message("md0p1 added"))]);
    // Upstream makes a file system and mounts it: for the graph that is a writer.
    let mounted = w.open("md0p1", Access::WRITE);
    run(&mut w, vec![(62, "delete", "md0", index(1), Refused(Errno::Busy, "index 1"))]);
    assert!(w.read(&mounted, 0, 512).is_ok(), "62: nobody has lost anything");
    w.close(mounted);
    run(&mut w, vec![(64, "delete", "md0", index(1), Message("md0p1 deleted"))]);
    assert_eq!(conf(&mut w), [], "65");
    assert_eq!(w.names(), ["md0"], "65");
}

/// `gpt create -p` writes the primary table alone.
/// T2 of part/table.rs.
#[test]
fn gctl_100_to_120_a_gpt_without_its_backup_is_not_edited() {
    let (mut w, disk) = World::with("md0", vec![0; 1024 * 512], 512);
    w.part("create", "md0", json!({ "scheme": "gpt" }));
    w.lose("md0");
    w.control.settle().expect("at rest");
    assert_eq!(w.names(), Vec::<String>::new(), "100: the disk takes its table along");
    let mut image = disk.bytes();
    image[(1024 - 33) * 512..].fill(0);
    let (mut w, disk) = World::with("md0", image, 512);
    let before = disk.bytes();
    let add = json!({ "kind": ONE });
    run(&mut w, vec![(111, "add", "md0", add.clone(), Refused(Errno::Perm, "recover"))]);
    assert!(disk.bytes() == before, "111: nothing is written");
    // Upstream stops here; this is the way out that the refusal names.
    assert_eq!(w.part("recover", "md0", json!({})), "md0 recovered");
    run(&mut w, vec![(111, "add", "md0", add, Message("md0p1 added"))]);
    w.lose("md0");
    w.control.settle().expect("at rest");
    assert_eq!(w.names(), Vec::<String>::new(), "120");
}

/// Not upstream's: a disk that is shorter than its table records.
/// G6 of part/gpt.rs.
#[test]
fn table_of_a_shorter_disk_is_shown_and_recovered() {
    let (mut w, disk) = World::with("md0", vec![0; 2048 * 512], 512);
    w.part("create", "md0", json!({ "scheme": "gpt" }));
    w.part("add", "md0", json!({ "kind": "linux-data", "size": { "sectors": 100 } }));
    let mut bytes = disk.bytes();
    bytes.truncate(1024 * 512);
    let (mut w, disk) = World::with("md0", bytes, 512);
    assert!(w.has("md0p1"), "{:?}", w.names());
    let add = json!({ "kind": "linux-data" });
    let refused = w.verb("part", "add", "md0", add.clone()).expect_err("damaged");
    assert!(refused.kind == Errno::Perm && refused.message.contains("recover"), "{refused}");
    let open = w.open("md0p1", Access::READ);
    w.close(open);
    let refused = w.try_open("md0p1", Access::WRITE).err().map(|e| e.kind);
    assert_eq!(refused, Some(Errno::RoFs));
    assert_eq!(w.part("recover", "md0", json!({})), "md0 recovered");
    let open = w.open("md0p1", Access::WRITE);
    w.close(open);
    w.part("add", "md0", add);
    let (w, _) = World::with("md0", disk.bytes(), 512);
    assert!(w.has("md0p1") && w.has("md0p2"));
}

/// Not upstream's: the first member of a stripe begins with the table of the whole.
/// G6 of part/gpt.rs.
#[test]
fn a_table_of_a_stripe_is_not_attributed_to_its_first_member() {
    let (mut w, disk) = World::with("md0", vec![0; 2048 * 512], 512);
    w.part("create", "md0", json!({ "scheme": "gpt" }));
    w.part("add", "md0", json!({ "kind": "linux-data", "size": { "sectors": 100 } }));
    let mut bytes = disk.bytes();
    bytes.truncate(1024 * 512);
    let last = 1023 * 512;
    bytes[last..last + 13].copy_from_slice(b"GEOM::STRIPE\0");
    let (w, _) = World::with("md0", bytes, 512);
    assert_eq!(w.names(), ["md0"]);
}
