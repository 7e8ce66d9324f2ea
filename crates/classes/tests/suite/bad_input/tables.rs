//! Partition tables: found by tasting, which writes nothing, and refused.

use serde_json::json;

use crate::bad_input::scene::{Found, MIB, crc32, judge, scene};
use crate::world::World;

/// A disk with a table of two partitions.
fn table(scheme: &str, kind: &str) -> Found {
    let (mut world, disk) = World::with("d0", vec![0; 8 * MIB], 512);
    world.part("create", "d0", json!({ "scheme": scheme }));
    for size in [MIB, 2 * MIB] {
        let (size, align) = (json!({ "bytes": size }), json!({ "bytes": 65536 }));
        world.part("add", "d0", json!({ "kind": kind, "size": size, "align": align }));
    }
    Found { name: "d0".into(), serial: "d0".into(), bytes: disk.bytes(), sector: 512 }
}

/// Other bytes in both tables of a GPT and both headers, with right checksums.
fn gpt(found: &Found, entries: &[(usize, &[u8])], header: &[(usize, &[u8])]) -> Found {
    let mut new = found.clone();
    let len = new.bytes.len();
    for (table, head) in [(1024, 512), (len - 512 - 128 * 128, len - 512)] {
        for (at, bytes) in entries {
            new.bytes[table + at..][..bytes.len()].copy_from_slice(bytes);
        }
        let sum = crc32(&new.bytes[table..table + 128 * 128]);
        new.bytes[head + 88..head + 92].copy_from_slice(&sum.to_le_bytes());
        for (at, bytes) in header {
            new.bytes[head + at..][..bytes.len()].copy_from_slice(bytes);
        }
        new.bytes[head + 16..head + 20].fill(0);
        let sum = crc32(&new.bytes[head..head + 92]);
        new.bytes[head + 16..head + 20].copy_from_slice(&sum.to_le_bytes());
    }
    new
}

/// T1 of part/table.rs.
#[test]
fn gpts() {
    let good = table("gpt", "linux-data");
    let first = good.bytes[1024..1152].to_vec();
    let short = good.resized(-(7 * MIB as i64), 0);
    let mut damaged = good.clone();
    let len = damaged.bytes.len();
    damaged.bytes[512 + 40] ^= 1;
    damaged.bytes[len - 512 + 40] ^= 1;
    let far = 1_000_000u64.to_le_bytes();
    for cell in [
        scene("a disk cut off before a partition's end", &[], short, "GPT"),
        scene("two damaged headers", &[], damaged, "GPT"),
        scene("an entry twice", &[], gpt(&good, &[(128, &first)], &[]), "overlap"),
        scene("an entry beyond the end", &[], gpt(&good, &[(40, &far)], &[]), "leaves the media"),
        scene("an entry that ends first", &[], gpt(&good, &[(40, &[0; 8])], &[]), "partition"),
        scene(
            "headers that name each other",
            &[],
            gpt(&good, &[], &[(32, &[1, 0])]),
            "impossible values",
        ),
        scene("an older revision", &[], gpt(&good, &[], &[(8, &[0; 4])]), "GPT"),
        scene("entries too small", &[], gpt(&good, &[], &[(84, &[64, 0, 0, 0])]), "GPT"),
        scene("other sectors", &[], Found { sector: 4096, ..good.clone() }, "not there"),
    ] {
        judge("part", &cell);
    }
}

#[test]
fn mbrs_and_disklabels() {
    let good = table("mbr", "linux-data");
    let put = |at: usize, bytes: &[u8]| {
        let mut new = good.clone();
        new.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        new
    };
    let entry = good.bytes[446..462].to_vec();
    for cell in [
        scene("no signature", &[], put(510, &[0, 0]), "no master boot record"),
        scene("a flag that is none", &[], put(446, &[0x17]), "flag of an MBR entry"),
        scene("an entry twice", &[], put(462, &entry), "overlap"),
        scene("an entry beyond the end", &[], put(454, &[0, 0, 0, 0x70]), "leaves the media"),
        scene("a disk cut off", &[], good.resized(-(7 * MIB as i64), 0), "leaves the media"),
    ] {
        judge("part", &cell);
    }
    let good = table("bsd", "freebsd-ufs");
    let put = |at: usize, bytes: &[u8]| {
        let mut new = good.clone();
        new.bytes[512 + at..][..bytes.len()].copy_from_slice(bytes);
        new
    };
    for cell in [
        scene("one magic", &[], put(132, &[0; 4]), "no "),
        scene(
            "other sectors recorded",
            &[],
            put(40, &4096u32.to_le_bytes()),
            "sector size of the BSD disklabel",
        ),
        scene("too many entries", &[], put(138, &[200, 0]), "number of partitions"),
        scene("an entry beyond the end", &[], put(148, &[0, 0, 0, 0x70]), "partition of the label"),
        scene("a disk cut off", &[], good.resized(-(7 * MIB as i64), 0), "partition of the label"),
    ] {
        judge("part", &cell);
    }
}
