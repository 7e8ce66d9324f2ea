//! FreeBSD's test `part misc` (docs/reference/geom.md 6): the physical path that a partition
//! reports.

use serde_json::json;

use crate::world::World;

const MIB: usize = 1 << 20;

fn table(world: &mut World, on: &str, scheme: &str, kind: &str) {
    world.part("create", on, json!({ "scheme": scheme }));
    world.part("add", on, json!({ "kind": kind }));
}

#[test]
fn misc_partitions_of_a_disk_without_a_physpath_have_none() {
    let mut world = World::new();
    for name in ["d0", "d1"] {
        world.disk(name, vec![0; 4 * MIB], 512);
    }
    let members = json!({ "members": ["d0", "d1"] });
    world.verb("stripe", "label", "w", members).expect("labelled");
    assert_eq!(world.text("stripe/w", "GEOM::physpath"), None);
    table(&mut world, "stripe/w", "gpt", "linux-data");
    assert_eq!(world.text("stripe/wp1", "GEOM::physpath"), None);
}

#[test]
fn misc_each_scheme_adds_its_own_suffix() {
    for (scheme, kind, name, place) in [
        ("gpt", "linux-data", "d0p1", "bay/3/p1"),
        ("mbr", "linux-data", "d0s1", "bay/3/s1"),
        ("bsd", "freebsd-ufs", "d0a", "bay/3/a"),
    ] {
        let (mut world, _) = World::with("d0", vec![0; 4 * MIB], 512);
        table(&mut world, "d0", scheme, kind);
        let answer = world.text(name, "GEOM::physpath");
        assert_eq!(answer.as_deref(), Some(place), "{:?}", world.names());
    }
}

#[test]
fn misc_a_disklabel_in_an_mbr_appends_both_suffixes() {
    let (mut world, disk) = World::with("d0", vec![0; 4 * MIB], 512);
    table(&mut world, "d0", "mbr", "freebsd");
    table(&mut world, "d0s1", "bsd", "freebsd-ufs");
    let answer = world.text("d0s1a", "GEOM::physpath");
    assert_eq!(answer.as_deref(), Some("bay/3/s1/a"), "{:?}", world.names());
    // Found again by tasting.
    let (world, _) = World::with("d0", disk.bytes(), 512);
    let answer = world.text("d0s1a", "GEOM::physpath");
    assert_eq!(answer.as_deref(), Some("bay/3/s1/a"), "{:?}", world.names());
}
