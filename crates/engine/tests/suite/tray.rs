//! Media that are exchanged while initiators are logged in.

use engine::lun::{OpenSpec, close_device, eject_medium, load_medium, open_device};

use crate::world::*;

const BLOCK_512: u32 = 512;

fn first_byte(w: &World, host: &Host) -> u8 {
    let answer = w.run(host, 0, &read16(0, 1), BLOCK_512, &[]);
    answer.data[0]
}

#[test]
fn loading_another_medium_is_reported_to_every_nexus() {
    let mut w = World::new(1);
    for (name, blocks, mark) in [("one", 64, 1), ("two", 128, 2)] {
        w.disk(name, blocks).state().bytes[0] = mark;
    }
    let spec = OpenSpec { removable: true, ..OpenSpec::default() };
    open_device(&mut w.control, &w.registry, "one", &spec).unwrap();
    w.map(&[(0, "one", false)]);
    let (h1, h2) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    assert_eq!(first_byte(&w, &h1), 1);
    let registry = w.registry.clone();
    let load = |w: &mut World, name| load_medium(&mut w.control, &registry, "one", name);
    assert!(load(&mut w, Some("two")).is_err(), "the tray is full");
    // A host that prevents removal is respected.
    w.run(&h2, 0, &[0x1E, 0, 0, 0, 1, 0], 0, &[]).good();
    assert!(eject_medium(&registry, "one").is_err());
    w.run(&h2, 0, &[0x1E, 0, 0, 0, 0, 0], 0, &[]).good();
    eject_medium(&registry, "one").unwrap();
    assert_eq!(w.run(&h1, 0, &read16(0, 1), BLOCK_512, &[]).asc(), (2, 0x3A, 2));
    assert!(load(&mut w, Some("three")).is_err(), "there is no such provider");
    load(&mut w, Some("two")).unwrap();
    for host in [&h1, &h2] {
        let sense = [w.run(host, 0, &TUR, 0, &[]).asc(), w.run(host, 0, &TUR, 0, &[]).asc()];
        assert!(sense.contains(&(6, 0x28, 0)) && sense.contains(&(6, 0x2A, 9)), "{sense:x?}");
        w.run(host, 0, &TUR, 0, &[]).good();
        assert_eq!(first_byte(&w, host), 2);
    }
    assert_eq!(w.registry.device("one").unwrap().blocks(), 128);
    // The first medium is unused now, and can be loaded again.
    eject_medium(&registry, "one").unwrap();
    load(&mut w, Some("one")).unwrap();
    for _ in 0..2 {
        w.run(&h1, 0, &TUR, 0, &[]);
    }
    assert_eq!(first_byte(&w, &h1), 1);
    w.map(&[]);
    w.settle();
    close_device(&mut w.control, &registry, "one").unwrap();
}

#[test]
fn a_fixed_medium_cannot_be_ejected_or_loaded() {
    let mut w = World::simple(1, 64);
    let registry = w.registry.clone();
    assert!(eject_medium(&registry, "d0").is_err());
    assert!(load_medium(&mut w.control, &registry, "d0", None).is_err());
    assert!(eject_medium(&registry, "d9").is_err());
}
