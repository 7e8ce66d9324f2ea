//! Simulated Ethernet.

use std::cell::RefCell;
use std::io::ErrorKind;
use std::rc::Rc;

use bio::Segs;
use reactor::sim::{Actor, Ended, Limits, Segment, SegmentShape, World};
use reactor::{FRAME_MIN, Link, Reactor};

use crate::world::stage::{MS, filled, pool};

const TYPE: u16 = 0x88A2;

fn mac(last: u8) -> [u8; 6] {
    [2, 0, 0, 0, 0, last]
}

fn head(to: [u8; 6], from: [u8; 6]) -> Vec<u8> {
    [&to[..], &from, &TYPE.to_be_bytes()].concat()
}

type ReceivedFrames = Rc<RefCell<Vec<(u8, u8)>>>;

struct Stage {
    world: World,
    segment: Segment,
    reactors: Vec<Reactor>,
    links: Vec<Link>,
    /// Station, and the first byte of a frame's payload.
    received: ReceivedFrames,
}

/// Three stations that record received frames; one more on a segment of its own.
fn stage(seed: u64, shape: SegmentShape) -> Stage {
    let world = World::new(seed);
    let segment = world.segment(shape);
    let (mut reactors, mut links, all_received) =
        (Vec::new(), Vec::new(), ReceivedFrames::default());
    for i in 0..4u8 {
        let name = format!("e{i}");
        match i {
            3 => world.segment(shape).plug(&name, mac(1), 1500),
            _ => segment.plug(&name, mac(i), 1500),
        }
        let reactor = Reactor::simulated(&world, &name);
        let link = reactor.link(&name, TYPE).unwrap();
        let (reader, all_received) = (link.clone(), all_received.clone());
        reactor.spawn("reader", async move {
            while reader.ready().await.is_ok() {
                let mut note = |f: &[u8]| all_received.borrow_mut().push((i, f[14]));
                if reader.receive(9, &mut note).is_err() {
                    break;
                }
            }
        });
        reactors.push(reactor);
        links.push(link);
    }
    let stage = Stage { world, segment, reactors, links, received: all_received };
    stage.settle();
    stage
}

impl Stage {
    fn settle(&self) -> Vec<(u8, u8)> {
        let mut actors: Vec<Actor> = self.reactors.iter().map(Actor::of_tasks).collect();
        let limits = Limits { ns: 10 * MS, ..Limits::default() };
        let ended = self.world.run(&mut actors, limits, &mut || false);
        assert!(matches!(ended, Ended::Quiet | Ended::TimeUp), "{ended:?}");
        self.received.take()
    }

    fn send_frame(&self, from: u8, to: [u8; 6], what: u8) {
        let link = &self.links[usize::from(from)];
        let mut frame = head(to, mac(from));
        frame.push(what);
        link.send(&frame, &Segs::new()).unwrap();
        link.flush().unwrap();
    }
}

/// E1.
#[test]
fn frames_reach_their_destinations_only() {
    let s = stage(1, SegmentShape::default());
    s.send_frame(0, mac(1), 10);
    assert_eq!(s.settle(), [(1, 10)]);
    s.send_frame(1, [0xFF; 6], 11);
    let mut all = s.settle();
    all.sort_unstable();
    assert_eq!(all, [(0, 11), (2, 11)], "all but the sender and the other segment");
    s.send_frame(2, mac(9), 12);
    assert_eq!(s.settle(), []);
    assert_eq!(s.links[1].counts().bytes_in, FRAME_MIN as u64);
    assert_eq!(s.reactors[0].link("e9", TYPE).err().unwrap().kind(), ErrorKind::NotFound);
}

#[test]
fn frame_order_loss_and_duplication_follow_shape_and_seed() {
    let all: Vec<(u8, u8)> = (0..100).map(|i| (1, i)).collect();
    let frames = |seed, shape| {
        let s = stage(seed, shape);
        (0..100).for_each(|i| s.send_frame(0, mac(1), i));
        s.settle()
    };
    assert_eq!(frames(1, SegmentShape::default()), all);
    let mut late = frames(2, SegmentShape { in_order: false, ..SegmentShape::default() });
    assert_ne!(late, all);
    late.sort_unstable();
    assert_eq!(late, all);
    let lossy = SegmentShape { lost_per_million: 200_000, ..SegmentShape::default() };
    let some = frames(3, lossy);
    assert!((60..95).contains(&some.len()), "{}", some.len());
    assert_eq!(frames(3, lossy), some, "the same again for the same seed");
    assert_ne!(frames(4, lossy), some);
    let doubled = SegmentShape { doubled_per_million: 1_000_000, ..SegmentShape::default() };
    assert_eq!(frames(5, doubled).len(), 200);
}

/// E2.
#[test]
fn frames_take_the_delay_and_bandwidth_of_the_wire() {
    let shape = SegmentShape {
        delay_ns_min: 1000,
        delay_ns_max: 1000,
        ps_per_byte: 8_000,
        ..SegmentShape::default()
    };
    let s = stage(1, shape);
    let start = s.world.now();
    let body = filled(&pool(), &[1; 1486]);
    for _ in 0..10 {
        s.links[0].send(&head(mac(1), mac(0)), &body).unwrap();
    }
    assert_eq!(s.links[0].flush().unwrap(), 10);
    let mut actors: Vec<Actor> = s.reactors.iter().map(Actor::of_tasks).collect();
    s.world.run(&mut actors, Limits::default(), &mut || s.received.borrow().len() == 10);
    let took = s.world.now() - start;
    assert!((120_000..200_000).contains(&took), "ten frames of 1500 bytes at 1 Gb/s: {took} ns");
}

#[test]
fn mtu_link_down_and_one_way_loss_are_simulated() {
    let s = stage(1, SegmentShape::default());
    let long = filled(&pool(), &[7; 1501]);
    s.links[0].send(&head(mac(1), mac(0)), &long).unwrap();
    assert_eq!(s.links[0].flush().unwrap(), 0);
    assert_eq!(s.links[0].counts().dropped, 1);
    s.segment.set_mtu("e0", 9000);
    assert_eq!(s.links[0].facts().unwrap().mtu, 9000);
    s.links[0].send(&head(mac(1), mac(0)), &long).unwrap();
    assert_eq!(s.links[0].flush().unwrap(), 1);
    assert_eq!(s.settle(), [], "too long for the other");
    s.segment.lose("e0", "e1", true);
    s.send_frame(0, mac(1), 1);
    s.send_frame(1, mac(0), 2);
    assert_eq!(s.settle(), [(0, 2)]);
    s.segment.lose("e0", "e1", false);
    s.send_frame(0, mac(1), 3);
    assert_eq!(s.settle(), [(1, 3)]);
    s.segment.set_up("e1", false);
    s.send_frame(0, mac(1), 4);
    assert_eq!(s.settle(), []);
    assert!(!s.links[1].facts().unwrap().up);
    assert_eq!(s.links[1].receive(1, &mut |_| ()).unwrap(), 0, "its reader was told");
    s.links[1].send(&head(mac(0), mac(1)), &Segs::new()).unwrap();
    let down = s.links[1].flush().unwrap_err();
    assert_eq!(down.kind(), ErrorKind::NetworkDown);
    s.segment.set_up("e1", true);
    s.send_frame(1, mac(0), 5);
    assert_eq!(s.settle(), [(0, 5)]);
}
