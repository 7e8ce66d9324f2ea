//! Records and labels in last sectors: mirror, stripe, concat, multipath.

use std::time::Duration;

use geom::Access;
use serde_json::{Value, json};

use crate::bad_input::scene::{Found, MIB, judge, reported_text, scene};
use crate::world::{Disk, World};

/// The disks of a whole called `w` that its class labelled.
fn labelled(class: &str, n: usize, params: Value) -> Vec<Found> {
    let mut world = World::new();
    let names: Vec<String> = (0..n).map(|i| format!("d{i}")).collect();
    let disks: Vec<Disk> = names.iter().map(|d| world.disk(d, vec![0; MIB], 512)).collect();
    let mut with = json!({ "members": names });
    for (key, value) in params.as_object().into_iter().flatten() {
        with[key] = value.clone();
    }
    world.verb(class, "label", "w", with).unwrap_or_else(|e| panic!("{class}: {e}"));
    world.control.settle().expect("at rest");
    let open = world.open(&format!("{class}/w"), Access::WRITE);
    world.write(&open, 0, &[0x5a; 65536]).expect("written");
    world.close(open);
    world.control.wait_until(Duration::from_millis(20), |_| false);
    world.verb(class, "stop", "w", json!({})).expect("stopped");
    let found = |(name, disk): (String, Disk)| Found {
        serial: format!("serial-{name}"),
        name,
        bytes: disk.bytes(),
        sector: 512,
    };
    names.into_iter().zip(disks).map(found).collect()
}

#[test]
fn mirror() {
    let all = labelled("mirror", 3, json!({ "assume_same": true }));
    let (two, last) = (&all[..2], &all[2]);
    let other: &[u8] = &0x1234_5678u32.to_le_bytes();
    let half: &[u8] = &(MIB as u64 / 2).to_le_bytes();
    let small = last.resized(-(MIB as i64 / 2), 512);
    let large = last.with_large_sectors(1);
    for cell in [
        scene("a disk cut off", two, last.resized(-512, 0), "no metadata"),
        scene("a record cut off", two, last.edited(&[(64, &[0; 448])]), "checksum"),
        scene("a flipped bit", two, last.edited(&[(45, &[9])]), "checksum"),
        scene("a copy", &all, last.called("copy"), "there already"),
        scene("sizes that differ", two, last.sealed(&[(59, half)]), "was not written with them"),
        scene(
            "sizes that differ, while it runs",
            &all,
            last.called("more").sealed(&[(40, other), (59, half)]),
            "was not written with them",
        ),
        scene(
            "another of the name",
            &all,
            last.called("x").sealed(&[(36, other)]),
            "another mirror",
        ),
        scene("two for a slot", &all, last.called("x").sealed(&[(53, &[9])]), "there already"),
        scene("a larger disk", two, last.resized(MIB as i64, 512), "written for a provider of"),
        scene("a smaller disk", two, small.clone(), "written for a provider of"),
        scene(
            "a smaller disk that says so",
            two,
            small.sealed(&[(111, &small.size())]),
            "needs a sector more",
        ),
        scene("other sectors", two, large, "its sectors have 4096 bytes"),
        scene("a newer version", two, last.sealed(&[(16, &[6])]), "newer than 5"),
    ] {
        judge("mirror", &cell);
    }
}

#[test]
fn stripe_and_concat() {
    for (class, newest) in [("stripe", "newer than 3"), ("concat", "newer than 4")] {
        let params = if class == "stripe" { json!({ "strip": 2048 }) } else { json!({}) };
        let all = labelled(class, 2, params);
        let (one, last) = (&all[..1], &all[1]);
        let small = last.resized(-(MIB as i64 / 2), 512);
        let other: &[u8] = &0x1234_5678u32.to_le_bytes();
        let mut cells = vec![
            scene("a disk cut off", one, last.resized(-512, 0), "no metadata"),
            scene("a label cut off", one, last.edited(&[(42, &[0; 470])]), "is 1 of 0 members"),
            scene("no text", one, last.edited(&[(20, &[0xff])]), "is not text"),
            scene("no such slot", one, last.edited(&[(40, &[7, 0])]), "is 7 of 2 members"),
            scene("a copy", &all, last.called("copy"), "d1 has slot 1"),
            scene("two for a slot", &all, all[0].called("x"), "d0 has slot 0"),
            scene("other counts", one, last.edited(&[(42, &[3])]), "1 of 3"),
            scene("another of the name", one, last.edited(&[(36, other)]), "another"),
            scene("a larger disk", one, last.resized(MIB as i64, 512), "written for a provider"),
            scene("a smaller disk", one, small, "written for a provider of"),
            scene("other sectors", one, Found { sector: 4096, ..last.clone() }, "no metadata"),
            scene("a newer version", one, last.edited(&[(16, &[9])]), newest),
        ];
        if class == "stripe" {
            let strip: &[u8] = &4096u32.to_le_bytes();
            let large = last.with_large_sectors(1);
            cells.extend([
                scene(
                    "other strips",
                    one,
                    last.edited(&[(44, strip)]),
                    "not written with the rest",
                ),
                scene("no strip", one, last.edited(&[(44, &[3, 0, 0, 0])]), "not a power of two"),
                scene("sectors larger than strips", one, large, "a multiple of the sector size"),
            ]);
        }
        cells.iter().for_each(|cell| judge(class, cell));
    }
}

#[test]
fn multipath() {
    let all = labelled("multipath", 1, json!({}));
    let path = &all[0];
    let wide: &[u8] = &4096u32.to_le_bytes();
    let way = Found { name: "d9".into(), ..path.clone() };
    for cell in [
        scene("a disk cut off", &[], path.resized(-512, 0), "no metadata"),
        scene("a record cut off", &[], path.edited(&[(72, &[0; 440])]), "version is 0"),
        scene("no mode", &[], path.edited(&[(88, &[9])]), "mode 9 is not known"),
        scene("no uuid", &[], path.edited(&[(16, &[0])]), "uuid"),
        scene("a copy", &all, path.called("copy"), "its serial number is copy"),
        scene("another name", &all, way.edited(&[(56, b"x")]), "its record has x"),
        scene("a larger disk", &[], path.resized(512, 512), "written for"),
        scene("a smaller disk", &[], path.resized(-512, 512), "written for"),
        scene("other sectors recorded", &[], path.edited(&[(76, wide)]), "written for"),
        scene("other sectors", &[], path.with_large_sectors(1), "written for"),
        scene("a newer version", &[], path.edited(&[(72, &[2])]), "newer than 1"),
    ] {
        judge("multipath", &cell);
    }
}

/// The label at the end of a whole names the whole as a member of itself.
#[test]
fn a_label_that_names_its_own_geom_as_a_member_is_refused() {
    for class in ["mirror", "stripe", "concat", "multipath"] {
        let n = if class == "multipath" { 1 } else { 2 };
        let all = labelled(class, n, json!({}));
        let mut world = World::new();
        let disks: Vec<Disk> =
            all.iter().map(|d| world.disk(&d.name, d.bytes.clone(), 512)).collect();
        let whole = format!("{class}/w");
        assert!(world.has(&whole), "{class}: {:?}", world.names());
        let size = world.size(&whole);
        let record = &all[n - 1].bytes[MIB - 512..];
        let found = Found {
            name: String::new(),
            serial: String::new(),
            bytes: record.to_vec(),
            sector: 512,
        };
        let (size_at, id) = (size.to_le_bytes(), 0x1234_5678u32.to_le_bytes());
        let inner = match class {
            "mirror" => found.sealed(&[(40, &id), (111, &size_at)]),
            "stripe" => found.edited(&[(64, &size_at)]),
            "concat" => found.edited(&[(60, &size_at)]),
            _ => found.edited(&[(80, &size_at)]),
        };
        let open = world.open(&whole, Access::WRITE);
        world.write(&open, size - 512, &inner.bytes).expect("written");
        world.close(open);
        world.control.wait_until(Duration::from_millis(20), |_| false);
        world.control.settle().expect("at rest");
        let why = reported_text(&world, class, &whole);
        println!("{class}: {why}");
        assert!(!why.is_empty() && world.has(&whole), "{class}: {why}");
        let open = world.open(&whole, Access::READ);
        assert_eq!(world.read(&open, size - 512, 512).expect("read"), inner.bytes, "{class}");
        world.close(open);
        // And it is found again, and starts again, from an empty graph.
        let again: Vec<Vec<u8>> = disks.iter().map(Disk::bytes).collect();
        let mut world = World::new();
        for (d, bytes) in all.iter().zip(again) {
            world.disk(&d.name, bytes, 512);
        }
        assert!(world.has(&whole), "{class}: {:?}", world.names());
    }
}
