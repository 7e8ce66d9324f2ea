//! Order of geoms for lists, and references to them.

use bio::Errno;

use crate::common::{Lab, Leaf};

/// Class and name of each geom in order; every one that stays has a pause after it.
fn names(lab: &Lab) -> Vec<(&'static str, String)> {
    let topology = &lab.control.topology;
    topology.check();
    let mut pauses = 0;
    let geoms = topology.in_order(&mut || pauses += 1);
    assert_eq!(pauses, geoms.iter().filter(|geom| !geom.is_withering()).count());
    geoms.iter().map(|geom| (geom.class(), geom.name().to_owned())).collect()
}

#[test]
fn t8_geoms_are_in_the_order_of_rank_class_and_name() {
    let mut lab = Lab::new(1);
    let (upper, lower) = (Leaf::new(1 << 20), Leaf::new(1 << 20));
    let (second, first) = (lab.disk("d1", &upper), lab.disk("d0", &lower));
    lab.writer("user", second);
    lab.pass_through("over", first, "");
    let geom = |class, name: &str| (class, name.to_owned());
    let above = [geom("shim", "over"), geom("user", "user")];
    let disks = |names: [&str; 2]| names.map(|name| geom("test", name));
    assert_eq!(names(&lab), [disks(["d0", "d1"]), above.clone()].concat());

    lab.control.call(|t| t.rename("test", "d1", "c0")).expect("the name is free");
    assert_eq!(names(&lab), [disks(["c0", "d0"]), above.clone()].concat());

    let topology = &mut lab.control.topology;
    let leaves = topology.find_geom("test", "c0").expect("a disk");
    topology.wither_geom(leaves, Errno::NxIo);
    assert_eq!(names(&lab), [disks(["c0", "d0"]), above].concat(), "it keeps its place");
    let stays = lab.control.topology.class_view("test", 0);
    assert_eq!(stays.iter().map(|geom| geom.name.as_str()).collect::<Vec<_>>(), ["d0"]);
}

#[test]
fn references_read_the_values_that_views_copy() {
    let mut lab = Lab::new(1);
    let disk = lab.disk("d0", &Leaf::new(1 << 20));
    let user = lab.writer("user", disk);
    lab.io(lab.edge(user), bio::Op::Write, 0, 4096);
    let topology = &lab.control.topology;
    let (mut reading, mut read) = (geom::Reading::default(), 0);
    for (geom, view) in topology.in_order(&mut || ()).iter().zip(topology.view(7)) {
        assert_eq!((geom.id(), geom.why(), geom.show()), (view.id, &*view.why, view.show));
        for (provider, view) in geom.providers().iter().zip(&view.providers) {
            provider.read(7, &mut reading);
            assert_eq!((provider.name(), &reading), (view.name.as_str(), &view.stats));
            read += reading.bytes.iter().sum::<u64>();
        }
        for (consumer, view) in geom.consumers().iter().zip(&view.consumers) {
            consumer.read(7, &mut reading);
            assert_eq!((consumer.provider(), &reading), (view.provider.as_deref(), &view.stats));
            read += reading.bytes.iter().sum::<u64>();
        }
    }
    assert_eq!(read, 2 * 4096, "at the disk and at its user");
}
