//! Names of providers while layers are inserted (T6).

use bio::{Errno, Op};
use geom::{Access, Create, Event, GeomId, ProviderId};

use crate::common::{BLOCK, Lab, Leaf, Manner, Taste, Tasting};

fn find(lab: &Lab, name: &str) -> Option<ProviderId> {
    lab.control.topology.check();
    lab.control.topology.find(name)
}

fn offered(lab: &Lab, geom: GeomId) -> ProviderId {
    lab.control.topology.providers_of(geom)[0]
}

/// T6.
#[test]
fn inserted_layer_has_the_name_for_later_users_until_it_is_removed() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let before = lab.writer("before", disk);
    let shim = lab.insert("d0.s.", disk, "").unwrap();
    let above = offered(&lab, shim);
    assert_eq!((find(&lab, "d0"), find(&lab, "d0.s.")), (Some(above), Some(disk)));
    assert_eq!(lab.control.topology.covering(disk), Some(shim));
    let later = find(&lab, "d0").expect("a provider");
    let later = lab.user("later", later, Manner::default());
    lab.open(later, Access::READ).unwrap();
    for c in [before, later] {
        assert_eq!(lab.control.topology.below(c), Some(above));
        let tag = lab.send(lab.edge(c), Op::Read, 0, BLOCK);
        lab.finish(tag);
    }
    assert_eq!(lab.stats(above).ops[Op::Read as usize], 2, "both went through it");
    let twice = lab.insert("d0.s.", above, "").unwrap_err();
    assert_eq!(twice.kind, Errno::Exist);
    lab.control.remove(shim).unwrap();
    assert_eq!((find(&lab, "d0"), find(&lab, "d0.s.")), (Some(disk), None));
    assert_eq!(lab.control.topology.covering(disk), None);
    for c in [before, later] {
        assert_eq!(lab.control.topology.below(c), Some(disk));
    }
}

#[test]
fn topmost_layer_has_the_name_in_any_order_of_insert_and_remove() {
    // Which is put over which: by name, as an operator does; then which is removed first.
    for (second_on, first_out) in [("d0", 0), ("d0", 1), ("d0.a.", 0), ("d0.a.", 1)] {
        let mut lab = Lab::new(1);
        let disk = lab.disk("d0", &Leaf::new(1 << 20));
        let user = lab.writer("u", disk);
        let a = lab.insert("d0.a.", disk, "").unwrap();
        let on = find(&lab, second_on).expect("a provider");
        let b = lab.insert("d0.b.", on, "").unwrap();
        let top = if second_on == "d0" { b } else { a };
        assert_eq!(find(&lab, "d0"), Some(offered(&lab, top)));
        assert_eq!(lab.control.topology.below(user), find(&lab, "d0"));
        let both = [a, b];
        lab.control.remove(both[first_out]).unwrap();
        let left = both[1 - first_out];
        assert_eq!(find(&lab, "d0"), Some(offered(&lab, left)));
        assert_eq!(lab.control.topology.covering(disk), Some(left));
        let name = if first_out == 0 { "d0.b." } else { "d0.a." };
        assert_eq!(find(&lab, name), Some(disk));
        lab.control.remove(left).unwrap();
        assert_eq!(find(&lab, "d0"), Some(disk));
        lab.assert_empty();
    }
}

#[test]
fn destroyed_or_refused_layer_gives_the_name_back() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let user = lab.writer("u", disk);
    lab.insert("s", disk, "refuses").map(drop).unwrap_err();
    assert_eq!((find(&lab, "d0"), find(&lab, "s")), (Some(disk), None));
    let shims = ["s", "t"].map(|name| {
        let on = find(&lab, "d0").expect("a provider");
        lab.insert(name, on, "").unwrap()
    });
    // The lower layer is destroyed by force, and the layer on it with it.
    let class = lab.control.topology.class("shim").expect("loaded");
    assert_eq!(
        class.destroy(&mut lab.control.topology, shims[0], false).unwrap_err().kind,
        Errno::Busy
    );
    lab.control.call(|t| class.destroy(t, shims[0], true)).unwrap();
    assert!(!lab.control.topology.geom_is_live(shims[1]));
    assert_eq!((find(&lab, "d0"), find(&lab, "s"), find(&lab, "t")), (Some(disk), None, None));
    lab.control.topology.leave(user);
    lab.control.settle().unwrap();
}

#[test]
fn lost_disk_frees_its_name() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    for name in ["s", "t"] {
        let on = find(&lab, "d0").expect("a provider");
        lab.insert(name, on, "").unwrap();
    }
    let geom = lab.control.topology.geom_of(disk).expect("its geom");
    lab.control
        .call(|t| {
            t.post(Event::Lost(disk, Errno::NxIo));
            t.wither_geom(geom, Errno::NxIo);
            Ok(())
        })
        .unwrap();
    for name in ["d0", "s", "t"] {
        assert_eq!(find(&lab, name), None, "{name}");
    }
    let again = lab.disk("d0", &Leaf::new(1 << 20));
    assert_eq!(find(&lab, "d0"), Some(again));
}

#[test]
fn withered_provider_frees_its_name_at_once() {
    // A table that is edited: the partition is removed and another one of that name is added, in
    // one step.
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    lab.insert("s", disk, "").unwrap();
    let other = Leaf::new(1 << 20);
    let geom = lab.control.topology.geom_of(disk).expect("its geom");
    let made = lab.control.call(|t| {
        t.wither_geom(geom, Errno::NxIo);
        other.create(t, "d0")
    });
    assert_eq!(find(&lab, "d0"), Some(made.expect("the name is free")));
}

#[test]
fn disk_content_is_tasted_through_the_inserted_layer_only() {
    let mut lab = Lab::new(1);
    let log = lab.log.clone();
    let leaf = Leaf::new(1 << 20);
    let disk = lab.disk("d0", &leaf);
    let shim = lab.insert("s", disk, "").unwrap();
    lab.control.topology.load(Taste::class("ta", 0, &log)).unwrap();
    lab.control.settle().unwrap();
    // The disk gets a label, through the layer; when the user leaves, both providers were written.
    leaf.put(0, &[0xa0]);
    let on = find(&lab, "d0").expect("a provider");
    let user = lab.writer("u", on);
    lab.control.topology.leave(user);
    lab.control.topology.retaste(disk);
    lab.control.settle().unwrap();
    let sits = find(&lab, "d0.ta").expect("it is found by the disk's name");
    assert_eq!(find(&lab, "s.ta"), None, "and once");
    let geom = lab.control.topology.geom_of(sits).expect("its geom");
    lab.control.remove(shim).unwrap();
    assert_eq!(find(&lab, "d0.ta"), Some(sits));
    let t = &lab.control.topology;
    assert_eq!(t.below(t.consumers_of(geom)[0]), Some(disk));
    assert_eq!(find(&lab, "s.ta"), None);
    // One made by hand beside the disk has its own name.
    let params = serde_json::Value::Null;
    let class = lab.control.topology.class("shim").expect("loaded");
    let create = Create { name: "by hand", members: &[disk], params: &params };
    lab.control.call(|t| class.create(t, &create)).unwrap();
    assert_eq!(find(&lab, "d0"), Some(disk));
}

/// R1, R2, R3.
#[test]
fn renamed_disk_keeps_its_users_and_derived_names_follow() {
    let mut lab = Lab::new(1);
    let log = lab.log.clone();
    let leaf = Leaf::new(1 << 20);
    leaf.put(0, &[0xa0]);
    lab.control.topology.load(Taste::with_mode("ta", 0, Tasting::Names, &log)).unwrap();
    let disk = lab.disk("d0", &leaf);
    lab.disk("d1", &Leaf::new(1 << 20));
    let on = find(&lab, "d0.ta").expect("it was tasted");
    let (user, hand) = (lab.writer("u", on), lab.insert("by hand", disk, "").unwrap());
    let rename = |lab: &mut Lab, from: &str, to: &str| {
        lab.control.call(|t| t.rename("test", from, to)).map_err(|e| e.kind)
    };
    // Nothing changes when one of the names is taken, or there is no such disk.
    lab.disk("d2.ta", &Leaf::new(1 << 20));
    let tasted = log.lock().unwrap().len();
    for (from, to, why) in [
        ("d0", "d1", Errno::Exist),
        ("d0", "d2", Errno::Exist),
        ("d0", "", Errno::Inval),
        ("d9", "d8", Errno::NoEnt),
    ] {
        assert_eq!(rename(&mut lab, from, to), Err(why), "{from} to {to}");
        assert_eq!(find(&lab, "d0.ta"), Some(on));
    }
    let tag = lab.send(lab.edge(user), Op::Read, 0, BLOCK);
    let names = rename(&mut lab, "d0", "data").expect("the names are free");
    let pair = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    assert_eq!(names, [pair("d0", "data"), pair("d0.ta", "data.ta")]);
    lab.finish(tag);
    assert_eq!((find(&lab, "d0"), find(&lab, "d0.ta")), (None, None));
    assert_eq!((find(&lab, "data.ta"), find(&lab, "by hand")), (Some(on), Some(disk)));
    assert_eq!(lab.control.topology.below(user), Some(on));
    assert_eq!(log.lock().unwrap().len(), tasted, "nothing is tasted again");
    // The layer is removed: the disk has the name that it got.
    lab.control.remove(hand).unwrap();
    assert_eq!(find(&lab, "data"), Some(disk));
    let tag = lab.send(lab.edge(user), Op::Write, 0, BLOCK);
    lab.finish(tag);
}
