//! Power cuts at every step of `wipe`. The signatures not yet cleared remain, `inspect` reports
//! them, half a table is never taken for a whole one, and a second wipe clears the rest.

use serde_json::{Value, json};

use crate::raids::{DDF, INTEL, Raid};
use crate::world::{self, World};

const MIB: usize = 1 << 20;

/// A signature: its offset and kind.
type Sign = (u64, String);

/// Returns the signatures found on the disk: (offset, kind), by offset.
fn findings(answer: &Value, key: &str) -> Vec<Sign> {
    let all = answer[key].as_array().expect("a list");
    let one = |f: &Value| {
        let kind = f["kind"].as_str().expect("a kind");
        (f["offset"].as_u64().expect("an offset"), kind.to_owned())
    };
    all.iter().map(one).collect()
}

fn scan(w: &mut World) -> Vec<Sign> {
    findings(&w.verb("inspect", "scan", "d0", json!({})).expect("scan"), "findings")
}

/// Removes everything that keeps the disk open since it was tasted.
fn let_go(w: &mut World) {
    for class in ["raid", "mirror"] {
        let all = w.control.topology.view(0);
        let on = all.iter().filter(|g| {
            g.class == class && g.consumers.iter().any(|c| c.provider.as_deref() == Some("d0"))
        });
        let geoms: Vec<_> = on.map(|g| g.id).collect();
        let class = w.control.topology.class(class).expect("loaded");
        for geom in geoms {
            w.control.call(|t| class.destroy(t, geom, true)).expect("stopped");
        }
        w.control.settle().expect("at rest");
    }
}

fn world_of(image: &[u8], sector: u32) -> (World, world::Disk) {
    World::with("d0", image.to_vec(), sector)
}

/// The reported remaining signatures are those on the disk.
fn judge(image: &[u8], sector: u32, all: &[Sign], left: &[&[Sign]], names: &[String]) {
    let (mut w, disk) = world_of(image, sector);
    let now = scan(&mut w);
    let new: Vec<String> = w.names().into_iter().filter(|n| !names.contains(n)).collect();
    assert_eq!(new, Vec::<String>::new(), "nothing shows up that was not there");
    assert!(left.iter().any(|left| now == *left), "{now:?} is left, not one of {left:?}");
    // A GPT of which a header has been removed is no whole one.
    let (unit, end) = (u64::from(sector), image.len() as u64);
    let header = |f: &&Sign| f.1 == "gpt" && [unit, end - unit].contains(&f.0);
    let headers = |list: &[Sign]| list.iter().filter(header).count();
    if w.control.topology.find_geom("part", "d0").is_some() && headers(&now) < headers(all) {
        let answer = w.verb("part", "show", "d0", json!({})).expect("a table");
        let table = &answer["tables"][0];
        assert!(table["scheme"] != "gpt" || table["corrupt"] == true, "taken for whole: {table}");
    }
    let_go(&mut w);
    w.verb("inspect", "wipe", "d0", json!({ "force": true })).expect("the rest");
    assert_eq!(scan(&mut w), [], "nothing is left after a second wipe");
    assert_eq!(w.names(), ["d0"]);
    let media = disk.0.lock().expect("media");
    let blocks = image.chunks(512).zip(media.bytes.chunks(512));
    let changed: usize = blocks
        .filter(|(a, b)| a != b)
        .map(|(a, b)| a.iter().zip(b.iter()).filter(|(a, b)| a != b).count())
        .sum();
    assert!(changed <= 512 + now.len() * 32, "only signatures go: {changed} bytes");
}

/// Cuts a wipe of everything at each of its writes and flushes.
fn cut_everywhere(what: &str, image: &[u8], sector: u32, kinds: &[&str]) {
    let (mut w, disk) = world_of(image, sector);
    let all = scan(&mut w);
    let has = |kind: &&str| all.iter().any(|(_, found)| found == kind);
    assert!(kinds.iter().all(has), "{what}: {kinds:?} in {all:?}");
    let names = w.names();
    let_go(&mut w);
    disk.0.lock().expect("media").steps = 0;
    let answer = w.verb("inspect", "wipe", "d0", json!({ "force": true })).expect("wiped");
    let cleared = findings(&answer, "cleared");
    let steps = disk.0.lock().expect("media").steps;
    assert!(steps >= cleared.len() * 2, "{what}: every write is flushed, {steps}");
    let rest = |n: usize| -> Vec<Sign> {
        let gone = cleared.get(..n).unwrap_or(&cleared);
        all.iter().filter(|f| !gone.contains(f)).cloned().collect()
    };
    for at in 0..steps {
        let (mut w, disk) = world_of(image, sector);
        let_go(&mut w);
        {
            let mut media = disk.0.lock().expect("media");
            (media.steps, media.cut_at) = (0, Some(at));
        }
        w.verb("inspect", "wipe", "d0", json!({ "force": true })).expect_err("the power is gone");
        drop(w);
        let (kept, lost) = {
            let media = disk.0.lock().expect("media");
            (media.bytes.clone(), media.durable.clone())
        };
        // A write and a flush each: the write under way has reached the disk, or has not.
        let (before, after) = (rest(at / 2), rest(at.div_ceil(2)));
        for image in [kept, lost] {
            judge(&image, sector, &all, &[&before, &after], &names);
        }
    }
}

/// The disk after some verbs of `part`.
fn partitioned(sector: u32, verbs: &[(&str, &str, Value)]) -> Vec<u8> {
    let (mut w, disk) = World::with("d0", vec![0; 8 * MIB], sector);
    for (verb, on, params) in verbs {
        w.part(verb, on, params.clone());
    }
    disk.bytes()
}

/// I2 of inspect/mod.rs, I3 of inspect/mod.rs.
#[test]
fn an_interrupted_wipe_of_partition_tables_can_be_repeated() {
    for sector in [512, 4096] {
        let add = |kind: &str| json!({ "kind": kind, "size": { "bytes": 2 * MIB } });
        let image = partitioned(
            sector,
            &[
                ("create", "d0", json!({ "scheme": "gpt" })),
                ("add", "d0", add("efi")),
                ("add", "d0", add("linux-data")),
            ],
        );
        cut_everywhere("gpt", &image, sector, &["pmbr", "gpt"]);
        // The same, over the remains of an older table and of another disk size.
        let mut old = image.clone();
        let end = old.len() - sector as usize * 40;
        old[end..end + 8].copy_from_slice(b"EFI PART");
        cut_everywhere("gpt and stale", &old, sector, &["pmbr", "gpt"]);
        let image = partitioned(
            sector,
            &[
                ("create", "d0", json!({ "scheme": "mbr" })),
                ("add", "d0", add("linux-data")),
                ("add", "d0", add("ebr")),
                ("create", "d0s2", json!({ "scheme": "ebr" })),
                ("add", "d0s2", json!({ "kind": "linux-data" })),
            ],
        );
        cut_everywhere("mbr", &image, sector, &["mbr"]);
        let bsd = [
            ("create", "d0", json!({ "scheme": "bsd" })),
            ("add", "d0", json!({ "kind": "freebsd-ufs" })),
        ];
        cut_everywhere("bsd", &partitioned(sector, &bsd), sector, &["bsd"]);
    }
}

#[test]
fn an_interrupted_wipe_of_a_table_in_a_mirror_can_be_repeated() {
    let (mut w, disk) = World::with("d0", vec![0; 8 * MIB], 512);
    w.verb("mirror", "label", "m", json!({ "members": ["d0"] })).expect("labelled");
    w.part("create", "mirror/m", json!({ "scheme": "gpt" }));
    w.part("add", "mirror/m", json!({ "kind": "linux-data" }));
    w.control.settle().expect("at rest");
    cut_everywhere("mirror", &disk.bytes(), 512, &["pmbr", "gpt", "mirror"]);
}

#[test]
fn an_interrupted_wipe_of_raid_records_can_be_repeated() {
    for (format, kind) in [(INTEL, "imsm"), (DDF, "ddf")] {
        let mut raid = Raid::label(format, "RAID1", 2, json!({}));
        raid.stop();
        let image = raid.disks[0].bytes();
        cut_everywhere(format, &image, 512, &[kind]);
    }
}

/// Bytes of a disk with some at places.
fn holding(parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut image = vec![0; 8 * MIB];
    for (at, bytes) in parts {
        image[*at..at + bytes.len()].copy_from_slice(bytes);
    }
    image
}

#[test]
fn an_interrupted_wipe_of_linux_signatures_can_be_repeated() {
    for sector in [512, 4096] {
        // LUKS2: a header and its copy; LVM2: the label in the second of four sectors.
        let luks = holding(&[(0, b"LUKS\xba\xbe\0\x02"), (0x4000, b"SKUL\xba\xbe\0\x02")]);
        cut_everywhere("luks2", &luks, sector, &["luks"]);
        let luks = holding(&[(0, b"LUKS\xba\xbe\0\x01")]);
        cut_everywhere("luks1", &luks, sector, &["luks"]);
        let lvm = holding(&[(512, b"LABELONE\x01\0\0\0\0\0\0\0"), (512 + 24, b"LVM2 001")]);
        cut_everywhere("lvm2", &lvm, sector, &["lvm2"]);
        let mut md = vec![0; 256];
        md[..8].copy_from_slice(b"\xfc\x4e\x2b\xa9\x01\0\0\0");
        md[0x90] = 8;
        cut_everywhere("md", &holding(&[(4096, &md)]), sector, &["md"]);
    }
}
