//! Turns of a core between an answer and the next request.

use std::cell::Cell;
use std::rc::Rc;

use bio::{Bio, End, Op, Segs};
use geom::{Core, Edge, Sink};
use reactor::WaitFor;
use reactor::sim::{Actor, Ended, Limits, SegmentShape};
use testkit::aoe::{Shelf, Ways};

use crate::aoe::{MS, S, SECTOR, SECTORS, bus, network};
use crate::world::{World, range};

/// Reads a sector again and again, as a geom that copies does.
struct Reader {
    edge: Edge,
    sink: Cell<u32>,
    ended: Cell<u64>,
}

impl Reader {
    fn submit(&self, core: &Core) {
        let data = Segs::alloc(core.pool(), SECTOR as usize).unwrap();
        let end = End::Sink { sink: self.sink.get(), tag: 0 };
        core.submit(self.edge, end, |bio| range(bio, Op::Read, 0, data));
    }
}

impl Sink for Reader {
    fn done(&self, _: u64, bio: &mut Bio, core: &Core) {
        assert_eq!(bio.status, Ok(()));
        self.ended.set(self.ended.get() + 1);
        self.submit(core);
    }
}

/// A target without requests sleeps, and a busy machine wakes it late.
#[test]
fn an_answer_and_the_next_request_take_one_turn() {
    let mut w = World::with(1, &[]);
    let far = SegmentShape { delay_ns_min: MS, delay_ns_max: MS, ..SegmentShape::default() };
    let net = network(&w, &[(far, 9000)]);
    let ways = Ways { buffers: 16, ..Ways::default() };
    let _shelf = Shelf::start(&w.core, &["shelf0"], SECTORS as usize, 1, ways);
    let at = bus(&mut w, &["eth0".to_owned()]);
    w.scan(at);
    w.until((10 * MS, 20 * S), "the disk is not found", |w| w.has("ada0"));
    let (_, edge) = w.open("ada0");
    let reader = Rc::new(Reader { edge, sink: Cell::default(), ended: Cell::default() });
    reader.sink.set(w.core.add_sink(reader.clone()));
    reader.submit(&w.core);
    let (core, world) = (w.core.clone(), w.net().clone());
    let actor = Actor::new(core.reactor(), || core.turn(WaitFor::Forever));
    let limits = Limits { ns: S, ..Limits::default() };
    let stopped = world.run(&mut [actor], limits, &mut || reader.ended.get() > 0);
    assert_eq!((stopped, reader.ended.get()), (Ended::Stopped, 1));
    // A request that has not left by the end of that turn is lost.
    net.segments[0].lose("eth0", "shelf0", true);
    (0..10).for_each(|_| w.turn(MS));
    assert_eq!(reader.ended.get(), 2, "the next request did not leave in the turn of the answer");
}
