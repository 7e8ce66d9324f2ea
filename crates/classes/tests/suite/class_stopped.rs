//! Members of geoms that were stopped by hand. No table or label of the whole is found on one
//! member, until that member is cleared or the whole is started again.

use geom::Create;
use serde_json::{Value, json};

use crate::world::World;

const MIB: usize = 1 << 20;

/// A mirror or an array of two disks that hold the same, with a partition that is a member of a
/// stripe. The provider of the whole, and its name for `stop`.
fn stacked(world: &mut World, class: &str, with: &Value) -> (String, String) {
    for disk in ["d0", "d1", "d2"] {
        world.disk(disk, vec![0; 8 * MIB], 512);
    }
    world.verb(class, "label", "w", with.clone()).expect("labelled");
    let whole = if class == "mirror" { "mirror/w".to_owned() } else { world.volume() };
    world.part("create", &whole, json!({ "scheme": "gpt" }));
    world.part("add", &whole, json!({ "kind": "linux-data", "size": { "bytes": 2 * MIB } }));
    let members = json!({ "members": [format!("{whole}p1"), "d2"] });
    world.verb("stripe", "label", "s", members).expect("labelled");
    let names = world.names();
    assert!(names.contains(&"stripe/s".into()), "{names:?}");
    let geom = world.control.topology.find(&whole).and_then(|p| world.control.topology.geom_of(p));
    (whole, world.control.topology.geom_name(geom.expect("a geom")).to_owned())
}

fn kinds() -> [(&'static str, Value); 2] {
    let members = json!(["d0", "d1"]);
    let raid = json!({ "format": "Intel", "level": "RAID1", "members": members,
        "size": 4 * MIB, "assume_same": true });
    [("mirror", json!({ "members": members, "assume_same": true })), ("raid", raid)]
}

#[test]
fn no_content_of_a_stopped_geom_is_found_on_its_members() {
    for (class, with) in kinds() {
        let mut world = World::new();
        let (whole, name) = stacked(&mut world, class, &with);
        let before = world.names();
        world.verb(class, "stop", &name, json!({ "force": true })).expect("stopped");
        assert_eq!(world.names(), ["d0", "d1", "d2"], "{class}");
        for disk in ["d0", "d1"] {
            let why = world.taste_outcome(disk, class);
            let start = format!("`ashlar {class} start {name}`");
            assert!(why.contains("was stopped by hand") && why.contains(&start), "{why}");
            let table = world.taste_outcome(disk, "part");
            assert!(table.contains("GPT") && table.contains("member"), "{table}");
        }
        world.verb(class, "start", &name, json!({})).expect("started");
        assert_eq!(world.names(), before, "{class}: {whole} and all on it");
        // Another disk that is plugged in meanwhile changes nothing.
        world.verb(class, "stop", &name, json!({ "force": true })).expect("stopped");
        world.disk("d3", vec![0; MIB], 512);
        assert_eq!(world.names(), ["d0", "d1", "d2", "d3"], "{class}");
    }
}

#[test]
fn a_cleared_member_of_a_stopped_geom_is_tasted_by_itself() {
    for (class, with) in kinds() {
        let mut world = World::new();
        let (_, name) = stacked(&mut world, class, &with);
        world.verb(class, "stop", &name, json!({ "force": true })).expect("stopped");
        world.verb(class, "clear", "", json!({ "members": ["d0"] })).expect("cleared");
        let why = (world.taste_outcome("d0", class), world.taste_outcome("d0", "part"));
        assert!(world.has("d0p1") && !world.has("d1p1"), "{class}: {why:?}");
    }
}

#[test]
fn a_refused_declaration_leaves_a_stopped_mirror_stopped() {
    let mut world = World::new();
    let (_, name) = stacked(&mut world, "mirror", &kinds()[0].1);
    world.verb("mirror", "stop", &name, json!({ "force": true })).expect("stopped");
    let class = world.control.topology.class("mirror").expect("the class");
    let stopped = class.stopped_geoms();
    assert_eq!(stopped.len(), 1, "{stopped:?}");
    world.lose("d0");
    world.lose("d1");
    world.disk("full", vec![7; MIB], 512);
    let (members, params) = ([world.find("full")], json!({}));
    let declared = Create { name: &name, members: &members, params: &params };
    let refused = class.declare(&mut world.control, &declared, &[]).expect_err("it holds data");
    assert_eq!(refused.destroys, ["full"], "{refused}");
    assert_eq!(class.stopped_geoms(), stopped);
}
