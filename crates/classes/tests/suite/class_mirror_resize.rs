//! Mirrors that become larger or smaller, and members of other sizes.

use std::time::Duration;

use bio::Errno;
use geom::Access;
use serde_json::json;
use testkit::noise;

use crate::class_mirror::{MIB, complete, mirror, read_all, verified, write_all};
use crate::world::World;

#[test]
fn resize_grows_the_mirror_to_the_present_size_of_its_members() {
    let mut world = World::new();
    let disks = [1, 2].map(|mib| world.disk(&format!("d{}", mib - 1), vec![0; mib * MIB], 512));
    let members = json!({ "members": ["d1", "d0"] });
    world.verb("mirror", "label", "m", members).expect("labelled");
    complete(&mut world);
    let bytes = write_all(&mut world, 4);
    let resize = |world: &mut World, size: usize| {
        world.verb("mirror", "resize", "m", json!({ "size": size }))
    };
    let error = resize(&mut world, 2 * MIB).expect_err("too large");
    assert!(error.message.contains("can have up to 1048064 bytes"), "{error}");
    // The smaller disk becomes as large as the other; the mirror grows only when `resize` is
    // called.
    world.grow("d0", &disks[0], 2 * MIB);
    world.control.settle().expect("at rest");
    assert_eq!(world.size("mirror/m"), (MIB - 512) as u64, "not by itself");
    for wrong in [0, MIB + 1, 2 * MIB] {
        let error = resize(&mut world, wrong).expect_err("not so");
        assert!(error.message.contains("can have up to 2096640 bytes"), "{error}");
    }
    for (requested, size) in [(Some(MIB + 4096), MIB + 4096), (None, 2 * MIB - 512)] {
        let answer = match requested {
            Some(size) => resize(&mut world, size),
            None => world.verb("mirror", "resize", "m", json!({})),
        };
        assert_eq!(answer.expect("resized")["message"], json!(format!("m has {size} bytes now")));
        assert_eq!(world.size("mirror/m"), size as u64);
        // The added space is usable and is on both members.
        let open = world.open("mirror/m", Access::WRITE);
        world.write(&open, size as u64 - 4096, &noise(size as u64, 4096)).expect("written");
        world.close(open);
        let end = size - 4096..size;
        assert!(disks.iter().all(|d| d.bytes()[end.clone()] == noise(size as u64, 4096)));
        assert!(disks.iter().all(|d| d.bytes()[..bytes.len()] == bytes));
    }
    // A later taste of the members sees it.
    world.verb("mirror", "stop", "m", json!({})).expect("stopped");
    let mut later = World::new();
    later.attach("d0", &disks[0], 512, (0, 0));
    later.attach("d1", &disks[1], 512, (0, 0));
    complete(&mut later);
    assert_eq!(later.size("mirror/m"), (2 * MIB - 512) as u64);
    assert!(read_all(&mut later) == bytes);
}

#[test]
fn insert_refuses_a_disk_with_larger_sectors_and_writes_nothing() {
    let (mut world, _) = mirror(2, json!({}));
    let large = world.disk("large", vec![0; 2 * MIB], 4096);
    for force in [false, true] {
        let insert = json!({ "members": ["large"], "force": force });
        let error = world.verb("mirror", "insert", "m", insert).expect_err("larger sectors");
        assert!(error.message.contains("large: its sectors have 4096 bytes"), "{error}");
    }
    assert!(large.bytes() == vec![0; 2 * MIB], "it was written to");
    complete(&mut world);
}

/// Data that is cut off is lost, so the mirror may not be open; then a smaller disk fits.
#[test]
fn resize_shrinks_a_closed_mirror_so_that_a_smaller_disk_fits() {
    let (mut world, disks) = mirror(2, json!({}));
    let bytes = write_all(&mut world, 6);
    let half = MIB / 2;
    let resize = |world: &mut World| world.verb("mirror", "resize", "m", json!({ "size": half }));
    let small = world.disk("small", vec![0; half + 512], 512);
    let insert = json!({ "members": ["small"] });
    let error = world.verb("mirror", "insert", "m", insert.clone()).expect_err("too small");
    assert!(error.message.contains("needed)"), "{error}");
    let open = world.open("mirror/m", Access::WRITE);
    let error = resize(&mut world).expect_err("open");
    assert_eq!((error.kind, world.size("mirror/m")), (Errno::Busy, (MIB - 512) as u64), "{error}");
    world.close(open);
    let answer = resize(&mut world).expect("smaller");
    assert_eq!(answer["message"], json!(format!("m has {half} bytes now")));
    assert_eq!(world.size("mirror/m"), half as u64);
    let open = world.open("mirror/m", Access::WRITE);
    let beyond = world.write(&open, half as u64 + 512, &[1; 512]);
    assert_eq!(beyond.expect_err("beyond the end"), Errno::Io);
    world.close(open);
    world.verb("mirror", "insert", "m", insert).expect("it fits");
    assert!(
        world
            .control
            .wait_until(Duration::from_secs(20), |_| small.bytes()[..half] == bytes[..half])
    );
    complete(&mut world);
    // As large again: members may differ beyond the old end by then, and are made equal.
    world.verb("mirror", "remove", "m", json!({ "members": ["small"] })).expect("out");
    disks[0].0.lock().expect("media").bytes[half + 512..half + 1024].fill(9);
    world.verb("mirror", "resize", "m", json!({})).expect("larger");
    assert_eq!(world.size("mirror/m"), (MIB - 512) as u64);
    assert!(disks[0].bytes()[..MIB - 512] == disks[1].bytes()[..MIB - 512]);
    assert!(disks[0].bytes()[..MIB - 512] == bytes);
}

/// The space added holds something else on each member.
#[test]
fn resize_makes_added_space_equal_before_the_size_grows() {
    let (mut world, disks) = mirror(2, json!({ "region": 65536 }));
    let bytes = noise(5, MIB / 2);
    let open = world.open("mirror/m", Access::WRITE);
    world.write(&open, 0, &bytes).expect("written");
    world.close(open);
    for (i, disk) in disks.iter().enumerate() {
        world.grow(&format!("d{i}"), disk, 2 * MIB);
        disk.0.lock().expect("media").bytes[MIB..2 * MIB - 4096].fill(i as u8 + 1);
    }
    let was = world.size("mirror/m") as usize;
    world.verb("mirror", "configure", "m", json!({ "sync_rate": 64 << 10 })).expect("slow");
    let answer = world.verb("mirror", "resize", "m", json!({})).expect("begun");
    assert!(
        answer["message"].as_str().expect("words").contains("when the added space is the same")
    );
    assert_eq!(world.size("mirror/m") as usize, was, "not yet");
    let error = world.verb("mirror", "configure", "m", json!({ "no_bitmap": true }));
    assert!(error.expect_err("growing").message.contains("is growing"));
    let line = world.show("mirror", "m", "Resize");
    assert!(line[0].contains("%, to "), "{line:?}");
    // Ended, and begun again.
    world.verb("mirror", "resize", "m", json!({ "size": was })).expect("ended");
    assert!(world.show("mirror", "m", "Resize").is_empty());
    world.verb("mirror", "configure", "m", json!({ "sync_rate": 0 })).expect("fast");
    let answer = world.verb("mirror", "resize", "m", json!({})).expect("resized");
    let now = world.size("mirror/m") as usize;
    assert_eq!(answer["message"], json!(format!("m has {now} bytes now")));
    assert_eq!(now, 2 * MIB - 512 - 512);
    assert!(disks[0].bytes()[..now] == disks[1].bytes()[..now], "members agree");
    assert!(disks[0].bytes()[..bytes.len()] == bytes[..]);
    world.verb("mirror", "verify", "m", json!({})).expect("begun");
    assert_eq!(verified(&mut world), "done; 0 sectors differ, 0 cannot be read");
}
