//! The properties that each class reports upward of its providers below (FreeBSD loses several of
//! these): stripe size and offset, physical path, identity, rotation rate, whether it takes DELETE
//! and whether deleted blocks read as zeroes. Tested with members that agree, and with members that
//! differ.

use bio::Attr;
use geom::{Access, Create, Event, PHYSICAL_SECTOR};
use serde_json::{Value, json};

use crate::world::World;

const MIB: usize = 1 << 20;

/// Stripe bytes and offset, turns a minute, DELETE, zeroes.
type Properties = ((u64, u64), u64, u64, u64);

const SPINS: Properties = ((4096, 512), 7200, 1, 1);
/// Not reported at all.
const NONE: u64 = u64::MAX;
/// Another disk: it turns more slowly, takes no DELETE, and its blocks lie otherwise.
const OTHER: Properties = ((8192, 0), 5400, 0, 0);

fn world(disks: &[Properties]) -> World {
    let mut bench = World::new();
    let mut world = World::new();
    for (i, (stripe, rate, deletes, zeroes)) in disks.iter().enumerate() {
        let name = format!("d{i}");
        let disk = bench.disk(&name, vec![0; 3 * MIB], 512);
        world.attach(&name, &disk, 512, *stripe);
        let on = world.find(&name);
        let attrs = vec![
            ("GEOM::ident", Attr::Text(format!("serial-{i}"))),
            ("GEOM::physpath", Attr::Text(format!("bay/{i}"))),
            ("GEOM::rotation_rate", Attr::Int(*rate)),
            ("GEOM::candelete", Attr::Int(*deletes)),
            ("GEOM::deletereadszero", Attr::Int(*zeroes)),
        ];
        world.control.topology.set_attrs(on, attrs);
    }
    world.control.settle().expect("at rest");
    world
}

/// The properties that a provider reports.
fn properties(world: &World, name: &str) -> Properties {
    let int = |attr| world.text(name, attr).and_then(|text| text.parse().ok()).unwrap_or(NONE);
    (
        world.control.topology.stripe(world.find(name)),
        int("GEOM::rotation_rate"),
        int("GEOM::candelete"),
        int("GEOM::deletereadszero"),
    )
}

/// Makes one geom of a class; returns the name of its provider.
fn make(world: &mut World, class: &str, with: &Value) -> String {
    let done = |world: &mut World, verb: &str, on: &str, params: &Value| {
        let done = world.verb(class, verb, on, params.clone());
        done.unwrap_or_else(|e| panic!("{class} {verb}: {e}"))
    };
    match class {
        "part" => {
            done(world, "create", "d0", &json!({ "scheme": "gpt" }));
            done(
                world,
                "add",
                "d0",
                &json!({ "kind": "linux-data", "start": { "sectors": 2048 } }),
            );
            "d0p1".into()
        }
        "raid" => done(world, "label", "w", with)["provider"].as_str().expect("a name").into(),
        "label" => {
            done(world, "label", "d0", &json!({ "name": "w" }));
            "label/w".into()
        }
        _ if layers().contains(&class) => {
            let (members, params) = ([world.find("d0")], json!({}));
            let request = Create { name: "over", members: &members, params: &params };
            let made = world.control.call(|t| {
                let class = t.class(class).expect("a class");
                class.create(t, &request)
            });
            made.expect("made");
            "over".into()
        }
        _ => {
            done(world, "label", "w", with);
            format!("{class}/w")
        }
    }
}

/// Class, parameters, properties on disks that agree, and properties on disks that differ.
fn rows() -> Vec<(&'static str, Value, Properties, Properties)> {
    let two = json!(["d0", "d1"]);
    let raid = |level: &str| {
        json!({ "format": "Intel", "level": level, "members": two, "strip": 16384,
                "size": MIB, "assume_same": true })
    };
    vec![
        // Copies: where blocks begin on all of them; the slowest turns for all; one takes DELETE.
        ("mirror", json!({ "members": two, "assume_same": true }), SPINS, ((8192, 0), 5400, 1, 0)),
        // Users align to strips.
        (
            "stripe",
            json!({ "members": two, "strip": 16384 }),
            ((16384, 0), 7200, 1, 1),
            ((16384, 0), 5400, 1, 0),
        ),
        ("concat", json!({ "members": two }), SPINS, ((4096, 512), 5400, 1, 0)),
        ("raid", raid("RAID0"), ((16384, 0), 7200, 1, 1), ((16384, 0), 5400, 1, 0)),
        // Firmware has no way to report that copies differ: all take DELETE, or none is sent.
        ("raid", raid("RAID1"), SPINS, ((8192, 0), 5400, 0, NONE)),
    ]
}

#[test]
fn properties_of_members_are_reported_upward() {
    let mut wrong = Vec::new();
    for (class, with, same, mixed) in rows() {
        for (disks, wanted) in [([SPINS, SPINS], same), ([SPINS, OTHER], mixed)] {
            let mut world = world(&disks);
            let name = make(&mut world, class, &with);
            let found = properties(&world, &name);
            if found != wanted {
                wrong.push(format!("{name} on {disks:?}: {found:?}, wanted {wanted:?}"));
            }
            // In two bays, and an identity of its own.
            assert_eq!(world.text(&name, "GEOM::physpath"), None, "{name}");
            let ident = world.text(&name, "GEOM::ident").unwrap_or_default();
            assert!(!ident.is_empty() && !ident.starts_with("serial-"), "{name}: {ident:?}");
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Classes without a row that are no layers: a tasted content, and paths to one disk, which have
/// tests of their own.
const OTHERS: [&str; 2] = ["inspect", "multipath"];

/// Classes whose geoms use one provider and pass its properties on: all of the list that have no
/// row.
fn layers() -> Vec<&'static str> {
    let rows: Vec<&str> = rows().into_iter().map(|(class, ..)| class).collect();
    let all = classes::all().into_iter().map(|class| class.name());
    all.filter(|class| !rows.contains(class) && !OTHERS.contains(class)).collect()
}

/// A layer on one disk is that disk, but for where its blocks begin.
#[test]
fn properties_of_one_disk_pass_through_a_layer() {
    let mut wrong = Vec::new();
    for class in layers() {
        for disk in [SPINS, OTHER] {
            let mut world = world(&[disk]);
            let name = make(&mut world, class, &json!({}));
            let ((bytes, offset), rate, deletes, zeroes) = disk;
            let begins = if class == "part" { 2048 * 512 } else { 0 };
            // Blocks whose delete `trim` defers read as before until it is sent.
            let zeroes = if class == "trim" { 0 } else { zeroes };
            let wanted = ((bytes, (offset + begins) % bytes), rate, deletes, zeroes);
            let found = properties(&world, &name);
            let ident = world.text(&name, "GEOM::ident");
            if found != wanted || ident.as_deref() != Some("serial-0") {
                wrong.push(format!("{name} on {disk:?}: {found:?} {ident:?}, wanted {wanted:?}"));
            }
            let path = world.text(&name, "GEOM::physpath").unwrap_or_default();
            assert!(path.starts_with("bay/0"), "{name}: {path}");
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// A world whose disks have physical sectors of so many bytes.
fn world_of_sectors(sectors: &[u64]) -> World {
    let mut world = world(&vec![SPINS; sectors.len()]);
    for (i, bytes) in sectors.iter().enumerate() {
        let on = world.find(&format!("d{i}"));
        let ident = ("GEOM::ident", Attr::Text(format!("serial-{i}")));
        let attrs = vec![ident, (PHYSICAL_SECTOR, Attr::Int(*bytes))];
        world.control.topology.set_attrs(on, attrs);
    }
    world.control.settle().expect("at rest");
    world
}

/// Stripe and physical sector of a provider, bytes.
fn block_sizes(world: &World, name: &str) -> (u64, u64) {
    let (topology, provider) = (&world.control.topology, world.find(name));
    (topology.stripe(provider).0, topology.physical_sector(provider))
}

/// A strip is no physical sector, and no layer hides the sectors of the disks.
#[test]
fn physical_sectors_pass_up_beside_the_strip() {
    for class in layers() {
        let mut world = world_of_sectors(&[16_384]);
        let name = make(&mut world, class, &json!({}));
        assert_eq!(block_sizes(&world, &name), (4096, 16_384), "{class}");
    }
    // The largest of the members, in any order.
    for (class, with, _, _) in rows() {
        for sectors in [[512, 4096], [4096, 512]] {
            let mut world = world_of_sectors(&sectors);
            let name = make(&mut world, class, &with);
            assert_eq!(block_sizes(&world, &name).1, 4096, "{name} on {sectors:?}");
        }
    }
    let mut world = world_of_sectors(&[4096; 3]);
    let with = json!({ "format": "Intel", "level": "RAID5", "members": ["d0", "d1", "d2"],
                       "strip": 16384, "size": MIB, "assume_same": true });
    let name = make(&mut world, "raid", &with);
    assert_eq!(block_sizes(&world, &name), (16_384, 4096), "RAID5");
    let mut world = world_of_sectors(&[4096; 4]);
    for (name, members) in [("a", ["d0", "d1"]), ("b", ["d2", "d3"])] {
        let with = json!({ "members": members, "strip": 65536 });
        world.verb("stripe", "label", name, with).expect("a stripe");
    }
    let with = json!({ "members": ["stripe/a", "stripe/b"], "assume_same": true });
    let name = make(&mut world, "mirror", &with);
    assert_eq!(block_sizes(&world, &name), (65_536, 4096), "mirror over stripes");
}

/// Changes below a layer in use are reported above: a disk gets another physical path, a path
/// another state.
#[test]
fn attribute_changes_below_a_layer_are_reported_above_it() {
    for class in layers() {
        let mut world = world(&[SPINS]);
        let name = make(&mut world, class, &json!({}));
        let user = world.open(&name, Access::READ);
        for attr in ["GEOM::physpath", "GEOM::rotation_rate", "CAM::access"] {
            let on = world.find("d0");
            world.control.topology.set_attrs(on, vec![(attr, Attr::Text("bay/9".into()))]);
            let result = world.control.call(|t| {
                t.post(Event::Attr(on, attr));
                Ok(())
            });
            result.expect("told");
            assert_eq!(world.take_notifications(&user), [attr], "{name}");
            let now = world.text(&name, attr).unwrap_or_default();
            assert!(now.starts_with("bay/9"), "{name}: {attr} is {now}");
        }
    }
}

/// A disk that grows is larger above, unless something is kept at its end.
#[test]
fn growth_of_a_disk_passes_through_layers() {
    for class in layers().into_iter().filter(|class| !["part", "label"].contains(class)) {
        let (mut world, disk) = World::with("d0", vec![0; 3 * MIB], 512);
        let name = make(&mut world, class, &json!({}));
        let user = world.open(&name, Access::READ);
        world.grow("d0", &disk, 4 * MIB);
        assert_eq!(world.size(&name), 4 * MIB as u64, "{name}");
        assert!(!user.orphaned(), "{name}");
    }
}
