//! Scenes in which nothing goes wrong on the network: what the initiator may not do even then.

use std::rc::Rc;

use bio::Op;
use cam::sims::aoe::AoeKind;
use cam::{Open, SimKind, Site};
use geom::{Class, Edge};
use reactor::sim::SegmentShape;
use serde_json::json;

use crate::shelf::{Shelf, Ways};
use crate::world::{World, range};
use crate::{MS, S, SECTOR, SECTORS, network};

/// Longer than it takes to find the disk.
const LIFE_NS: u64 = 10 * S;

struct Scene {
    w: World,
    shelf: Rc<Shelf>,
    edge: Edge,
    bus: usize,
    /// When the bus was opened, ns.
    begun: u64,
}

impl Scene {
    fn new(ways: Ways) -> Scene {
        let mut w = World::with(1, &[]);
        let calm =
            SegmentShape { delay_ns_min: 5_000, delay_ns_max: 20_000, ..SegmentShape::default() };
        let _net = network(&w, &[(calm, 9000)]);
        let shelf = Shelf::start(&w.core, &["shelf0"], SECTORS as usize, 1, ways);
        let begun = w.now();
        let life = LIFE_NS / MS;
        let params = json!({ "interfaces": ["eth0"], "frame_life_ms": life, "deadline_s": 20 });
        let site = Site { switchboard: w.control.topology.switchboard(), cores: 1 };
        let sim = AoeKind.open(&Open { name: "aoe0", params: &params, site: &site }).unwrap();
        let bus = w.add(sim);
        let mut found = w.scan(bus);
        while found.is_empty() {
            w.turn(10 * MS);
            let cam = w.cam.clone();
            found
                .extend(cam.look(&mut w.control).into_iter().flat_map(|(_, names)| names.unwrap()));
            assert!(w.now() < begun + LIFE_NS / 2, "the disk is found in time");
        }
        let (_, edge) = w.open("ada0");
        Scene { w, shelf, edge, bus, begun }
    }
}

#[test]
fn e2_nothing_is_written_while_frames_of_an_earlier_start_may_arrive() {
    let mut s = Scene::new(Ways { buffers: 16, ..Ways::default() });
    let data = s.w.buffer(SECTOR as usize);
    data.fill(0, SECTOR as usize, 0xA5);
    s.w.start(s.edge, 1, |bio| range(bio, Op::Write, 0, data));
    assert_eq!(s.w.read(s.edge, 0, 512), Ok(vec![0; 512]), "reads do not wait");
    let mut written = None;
    while s.w.now() < s.begun + 2 * LIFE_NS && written.is_none() {
        s.w.turn(10 * MS);
        written = (s.shelf.bytes.borrow()[0] == 0xA5).then(|| s.w.now() - s.begun);
    }
    let written = written.expect("it is written in the end");
    assert!((LIFE_NS..LIFE_NS + S).contains(&written), "after {written} ns");
    s.w.turn(S);
    assert!(s.w.ended().iter().any(|end| end.tag == 1 && end.status.is_ok()));
}

#[test]
fn e5_no_more_frames_wait_than_the_target_holds() {
    let mut s = Scene::new(Ways { buffers: 3, slow_ns: 10 * MS, ..Ways::default() });
    *s.shelf.held.borrow_mut() = (0, 0);
    for tag in 0..40 {
        let data = s.w.buffer(SECTOR as usize);
        s.w.start(s.edge, tag, |bio| range(bio, Op::Read, tag % SECTORS * SECTOR, data));
    }
    let (mut ended, end) = (0, s.w.now() + 10 * S);
    while ended < 40 {
        assert!(s.w.now() < end, "only {ended} have ended");
        s.w.turn(MS);
        ended += s.w.ended().iter().inspect(|end| assert_eq!(end.status, Ok(()))).count();
    }
    assert_eq!(s.shelf.held.borrow().1, 3, "as many as it holds, and no more");
}

#[test]
fn a_command_that_is_given_up_is_not_one_of_another_disk() {
    let mut s = Scene::new(Ways { buffers: 32, ..Ways::default() });
    let theirs = Shelf::start_at(2, &s.w.core, &["shelf0"], SECTORS as usize, 2, {
        Ways { buffers: 32, ..Ways::default() }
    });
    while s.w.control.topology.find("ada1").is_none() {
        s.w.turn(100 * MS);
        s.w.scan(s.bus);
        assert!(s.w.now() < s.begun + 60 * S, "the second disk is found");
    }
    let (_, other) = s.w.open("ada1");
    // Ids count up with every command: the other disk is ahead, and the first one catches up.
    for _ in 0..50 {
        s.w.read(other, 0, SECTOR as usize).unwrap();
    }
    // Both hang; the other one answers when all commands of the first one have been given up.
    s.shelf.ways.borrow_mut().slow_ns = 100_000 * S;
    theirs.ways.borrow_mut().slow_ns = 100_000 * S;
    for tag in 0..4 {
        let data = s.w.buffer(SECTOR as usize);
        s.w.start(other, tag, |bio| range(bio, Op::Read, tag * SECTOR, data));
    }
    let begun = s.w.now();
    let cam = s.w.cam.clone();
    let identify = json!({ "ata": "ec 0 0 0 0 0 0 0 0 0 1 0", "receive": 512, "timeout": 10 });
    for _ in 0..80 {
        cam.verb(&mut s.w.control, "cmd", "ada0", &identify).unwrap_err();
    }
    assert!(s.w.now() >= begun + 800 * MS, "it waited");
    theirs.ways.borrow_mut().slow_ns = 0;
    let mut ended = 0;
    while ended < 4 {
        assert!(s.w.now() < begun + 20 * S, "only {ended} have ended");
        s.w.turn(100 * MS);
        ended += s.w.ended().iter().inspect(|end| assert_eq!(end.status, Ok(()))).count();
    }
}
