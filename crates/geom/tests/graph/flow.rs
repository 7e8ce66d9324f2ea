//! Answers of layers and their effects: waiting, forking, memory, stale ids, receivers.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use bio::{Attr, Bio, End, Errno, Flags, Op, Segs};
use geom::{Access, Back, Core, Edge, Flow, Geom, Layer, Limits, NewProvider, ProviderId, Sink};

use crate::common::{Lab, Leaf, MS, Manner, Mode, SECTOR};

/// A layer whose hooks are closures, over the disks it is given.
#[derive(Default)]
struct Script {
    start: Option<StartHook>,
    ready: Option<StartHook>,
    done: Option<DoneHook>,
}

type StartHook = Box<dyn Fn(&mut Bio, &Core, &[Edge]) -> Flow + Send + Sync>;
type DoneHook = Box<dyn Fn(&mut Bio, u64, &Core, &[Edge]) -> Back + Send + Sync>;

struct ScriptLayer(Script, Vec<Edge>);

impl Layer for ScriptLayer {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        match &self.0.start {
            Some(f) => f(bio, core, &self.1),
            None => Flow::Down(self.1[0], 0),
        }
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        match &self.0.ready {
            Some(f) => f(bio, core, &self.1),
            None => Flow::Done(Ok(())),
        }
    }

    fn done(&self, bio: &mut Bio, word: u64, core: &Core) -> Back {
        match &self.0.done {
            Some(f) => f(bio, word, core, &self.1),
            None => Back::Up,
        }
    }
}

struct Plain;

impl Geom for Plain {}

/// A scripted layer over disks; returns the edge of a writer on top.
fn scripted(lab: &mut Lab, disks: &[ProviderId], script: Script) -> Edge {
    let made = lab.control.call(|t| {
        let g = t.new_geom("shim", "script", "a test", Box::new(Plain))?;
        let mut edges: Vec<Edge> = Vec::new();
        for d in disks {
            let c = t.attach_new(g, *d).map_err(|e| geom::Error::of(e, "attach"))?;
            edges.push(t.edge(c));
        }
        let limits = Limits {
            media_bytes: 1 << 20,
            sector_bytes: 512,
            io_max_bytes: 0,
            delete_max_bytes: 0,
        };
        t.new_provider(
            g,
            NewProvider {
                name: "script".into(),
                layer: Arc::new(ScriptLayer(script, edges)),
                limits,
                stripe_bytes: 0,
                stripe_offset: 0,
                attrs: Vec::new(),
            },
        )
    });
    let c = lab.writer("u", made.unwrap());
    lab.edge(c)
}

fn disks(lab: &mut Lab, count: usize) -> (Vec<Arc<Leaf>>, Vec<ProviderId>) {
    let leaves: Vec<_> = (0..count).map(|_| Leaf::new(1 << 20)).collect();
    let disks = leaves.iter().enumerate().map(|(i, l)| lab.disk(&format!("d{i}"), l)).collect();
    leaves.iter().for_each(|l| drop(l.take_requests()));
    (leaves, disks)
}

/// Sends one child to each disk, with the whole range and data of the parent.
fn to_all(bio: &mut Bio, core: &Core, edges: &[Edge]) -> Flow {
    for e in edges {
        let (offset, length) = (bio.offset, bio.length);
        let mut data = Segs::new();
        if bio.op.has_data() {
            assert!(bio.data.slice_into(0, length as usize, &mut data));
        }
        core.fork(bio, *e, |child| {
            child.offset = offset;
            child.length = length;
            child.data = data;
        });
    }
    Flow::Fork(7)
}

#[test]
fn children_inherit_operation_flags_and_origin() {
    let mut lab = Lab::new(1);
    let (leaves, d) = disks(&mut lab, 3);
    let script = Script {
        start: Some(Box::new(to_all)),
        done: Some(Box::new(|_, word, _, _| {
            assert_eq!(word, 7);
            Back::Up
        })),
        ..Script::default()
    };
    let edge = scripted(&mut lab, &d, script);
    let flags = Flags::FUA | Flags::ORDERED;
    for op in [Op::Write, Op::Flush, Op::WriteZeroes] {
        // Fail-fast applies to one path: children are sent where there may be no other.
        let tag = lab.send_on(0, edge, op, 512, 1024, flags | Flags::FAIL_FAST);
        let ended = lab.finish(tag);
        assert_eq!(ended.status, Ok(()));
        if op.has_range() {
            assert_eq!(ended.completed, 3 * 1024, "by default the children's bytes add up");
        }
        for l in &leaves {
            let asked = l.take_requests();
            assert_eq!((asked.len(), asked[0].op, asked[0].flags), (1, op, flags));
        }
    }
    lab.assert_empty();
}

#[test]
fn first_child_that_fails_decides_the_status() {
    for order in [[0, 1, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]] {
        let mut lab = Lab::new(1);
        let (leaves, d) = disks(&mut lab, 3);
        let edge =
            scripted(&mut lab, &d, Script { start: Some(Box::new(to_all)), ..Script::default() });
        leaves.iter().for_each(|l| l.set(Mode::Hold));
        let tag = lab.send(edge, Op::Write, 0, SECTOR);
        let errors = [Errno::Io, Errno::NoSpc, Errno::RoFs];
        for i in order {
            let (_, id) = leaves[i].take_held().pop().unwrap();
            assert!(lab.ended(tag).is_none(), "not before the last child");
            lab.cores[0].resume(id, Flow::Done(Err(errors[i])));
        }
        assert_eq!(lab.finish(tag).status, Err(errors[order[0]]));
        lab.assert_empty();
    }
}

#[test]
fn fork_without_children_succeeds() {
    let mut lab = Lab::new(1);
    let (_, d) = disks(&mut lab, 1);
    let start: StartHook = Box::new(|_, _, _| Flow::Fork(3));
    let edge = scripted(&mut lab, &d, Script { start: Some(start), ..Script::default() });
    assert_eq!(lab.io(edge, Op::Flush, 0, 0).status, Ok(()));
    lab.assert_empty();
}

/// D4.
#[test]
fn forked_children_are_dropped_if_the_layer_answers_otherwise() {
    for answer in [Flow::Done(Ok(())), Flow::Done(Err(Errno::Io)), Flow::Down(Edge(0), 0)] {
        let mut lab = Lab::new(1);
        let (leaves, d) = disks(&mut lab, 2);
        let start: StartHook = Box::new(move |bio, core, edges| {
            to_all(bio, core, edges);
            match answer {
                Flow::Down(..) => Flow::Down(edges[1], 0),
                other => other,
            }
        });
        let edge = scripted(&mut lab, &d, Script { start: Some(start), ..Script::default() });
        let ended = lab.io(edge, Op::Write, 0, SECTOR);
        let down = matches!(answer, Flow::Down(..));
        assert_eq!(ended.status.is_ok(), answer != Flow::Done(Err(Errno::Io)));
        assert_eq!(leaves[0].take_requests().len(), 0, "an unsent child does not count");
        assert_eq!(leaves[1].take_requests().len(), usize::from(down));
        lab.assert_empty();
    }
}

/// D4.
#[test]
fn children_forked_after_a_wait_start_when_the_layer_has_answered() {
    let mut lab = Lab::new(1);
    let (leaves, d) = disks(&mut lab, 2);
    let start: StartHook = Box::new(|bio, core, _| {
        core.wake(bio.ticket(), 100);
        Flow::Wait
    });
    // A request of the layer's own is sent between the forks and the answer.
    let ready: StartHook = Box::new(|bio, core, edges| {
        let flow = to_all(bio, core, edges);
        core.submit(edges[0], End::NoReceiver, |b| b.op = Op::Flush);
        flow
    });
    let script = Script { start: Some(start), ready: Some(ready), ..Script::default() };
    let edge = scripted(&mut lab, &d, script);
    assert_eq!(lab.io(edge, Op::Write, 0, SECTOR).status, Ok(()));
    assert_eq!((leaves[0].take_requests().len(), leaves[1].take_requests().len()), (2, 1));
    lab.assert_empty();
}

#[test]
fn a_retry_from_done_reaches_another_disk_and_resets_the_status() {
    let mut lab = Lab::new(1);
    let (leaves, d) = disks(&mut lab, 2);
    leaves[0].set(Mode::Fail(Errno::Io));
    let start: StartHook = Box::new(|_, _, edges| Flow::Down(edges[0], 1));
    let done: DoneHook = Box::new(|bio, word, _, edges| match (bio.status, word) {
        (Err(_), 1) => Back::Go(Flow::Down(edges[1], 2)),
        _ => Back::Up,
    });
    let script = Script { start: Some(start), done: Some(done), ..Script::default() };
    let edge = scripted(&mut lab, &d, script);
    let ended = lab.io(edge, Op::Write, SECTOR, SECTOR);
    assert_eq!((ended.status, ended.completed), (Ok(()), SECTOR));
    leaves[1].set(Mode::Fail(Errno::NoSpc));
    let ended = lab.io(edge, Op::Write, SECTOR, SECTOR);
    assert_eq!((ended.status, ended.completed), (Err(Errno::NoSpc), 0));
    lab.assert_empty();
}

/// D3.
#[test]
fn no_memory_never_reaches_the_originator() {
    let mut lab = Lab::new(1);
    let (leaves, d) = disks(&mut lab, 2);
    let edge =
        scripted(&mut lab, &d, Script { start: Some(Box::new(to_all)), ..Script::default() });
    leaves[1].set(Mode::NoMem(20));
    let start = lab.world.now();
    let ended = lab.io(edge, Op::Write, 0, SECTOR);
    assert_eq!(ended.status, Ok(()));
    assert!(ended.at_ns - start >= 20 * MS, "each time after a while");
    assert_eq!((leaves[0].take_requests().len(), leaves[1].take_requests().len()), (1, 1));
    lab.assert_empty();
}

#[test]
fn lack_of_memory_in_every_hook_is_retried_without_leaks() {
    let mut lab = Lab::new(1);
    let (leaves, d) = disks(&mut lab, 1);
    let left = Arc::new(Mutex::new(9));
    let dry = {
        let left = left.clone();
        move || {
            let mut left = left.lock().unwrap();
            *left -= i32::from(*left > 0);
            *left % 3 != 0
        }
    };
    let (a, b, c) = (dry.clone(), dry.clone(), dry);
    let nomem = Flow::Done(Err(Errno::NoMem));
    let start: StartHook = Box::new(move |bio, core, edges| {
        if a() {
            to_all(bio, core, edges);
            return nomem;
        }
        core.wake(bio.ticket(), 10);
        Flow::Wait
    });
    let ready: StartHook =
        Box::new(move |bio, core, edges| if b() { nomem } else { to_all(bio, core, edges) });
    let done: DoneHook = Box::new(move |_, _, _, _| if c() { Back::Go(nomem) } else { Back::Up });
    let script = Script { start: Some(start), ready: Some(ready), done: Some(done) };
    let edge = scripted(&mut lab, &d, script);
    let tag = lab.send(edge, Op::Write, 0, SECTOR);
    assert_eq!(lab.finish(tag).status, Ok(()));
    assert!(!leaves[0].take_requests().is_empty());
    lab.spin(10 * MS);
    lab.assert_empty();
}

#[test]
fn waiting_requests_resume_after_their_delay() {
    let mut lab = Lab::new(1);
    let (leaves, d) = disks(&mut lab, 1);
    let start: StartHook = Box::new(|bio, core, edges| {
        let ticket = bio.ticket();
        core.after(bio.offset, ticket, Flow::Down(edges[0], 5));
        assert!(!core.resume(ticket, Flow::Done(Ok(()))), "the layer has it: nobody else may");
        Flow::Wait
    });
    let edge = scripted(&mut lab, &d, Script { start: Some(start), ..Script::default() });
    let begin = lab.world.now();
    let late = lab.send(edge, Op::Read, 512 * 100, SECTOR);
    let soon = lab.send(edge, Op::Read, 512, SECTOR);
    assert_eq!(lab.finish(late).status, Ok(()));
    assert_eq!(*lab.ends.order.borrow(), [soon, late]);
    assert!(lab.ended(late).unwrap().at_ns - begin >= 51_200);
    assert_eq!(
        leaves[0].take_requests().iter().map(|a| a.offset).collect::<Vec<_>>(),
        [512, 51_200]
    );
    lab.assert_empty();
}

#[test]
fn stale_id_does_not_disturb_the_next_request() {
    let mut lab = Lab::new(1);
    let (leaves, d) = disks(&mut lab, 1);
    let c = lab.writer("direct", d[0]);
    let edge = lab.edge(c);
    leaves[0].set(Mode::Hold);
    lab.send(edge, Op::Read, 0, SECTOR);
    let (core, stale) = leaves[0].take_held()[0];
    lab.cores[core as usize].wake(stale, 0);
    lab.spin(MS);
    let next = lab.send(edge, Op::Read, 0, SECTOR);
    let core = &lab.cores[0];
    assert!(!core.resume(stale, Flow::Done(Err(Errno::Io))));
    core.wake(stale, 0);
    core.after(0, stale, Flow::Done(Err(Errno::Io)));
    lab.spin(MS);
    assert!(lab.ended(next).is_none(), "the new tenant of the place is not disturbed");
    leaves[0].release(&lab.cores);
    assert_eq!(lab.finish(next).status, Ok(()));
    lab.assert_empty();
}

#[test]
fn d6_only_the_newest_ticket_wakes_a_request() {
    let mut lab = Lab::new(1);
    let (leaves, d) = disks(&mut lab, 2);
    leaves[0].set(Mode::Hold);
    leaves[1].set(Mode::Hold);
    // Two alarms and an operation: only the last counts. Then it waits below, and above again.
    let start: StartHook = Box::new(|bio, core, edges| {
        core.after(10, bio.ticket(), Flow::Done(Err(Errno::Io)));
        core.wake(bio.ticket(), 20);
        core.after(30, bio.ticket(), Flow::Down(edges[0], 1));
        Flow::Wait
    });
    let done: DoneHook = Box::new(|bio, word, core, edges| match word {
        1 => {
            core.after(5_000, bio.ticket(), Flow::Done(Err(Errno::Io)));
            Back::Go(to_all(bio, core, edges))
        }
        _ => Back::Up,
    });
    let script = Script { start: Some(start), done: Some(done), ..Script::default() };
    let edge = scripted(&mut lab, &d, script);
    let tag = lab.send(edge, Op::Write, 0, SECTOR);
    lab.spin(MS);
    assert_eq!((leaves[0].held(), leaves[1].held()), (1, 0));
    leaves[0].release(&lab.cores);
    lab.spin(MS);
    assert!(lab.ended(tag).is_none(), "an alarm ends no request whose children are under way");
    assert_eq!((leaves[0].held(), leaves[1].held()), (1, 1));
    leaves.iter().for_each(|l| {
        l.release(&lab.cores);
    });
    assert_eq!(lab.finish(tag).status, Ok(()));
    lab.assert_empty();
}

struct Ears(Cell<u32>);

impl Sink for Ears {
    fn done(&self, _: u64, _: &mut Bio, _: &Core) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn completion_for_a_removed_sink_does_not_reach_the_next_one() {
    let mut lab = Lab::new(1);
    let (leaves, d) = disks(&mut lab, 1);
    let c = lab.writer("direct", d[0]);
    let edge = lab.edge(c);
    leaves[0].set(Mode::Hold);
    let core = lab.cores[0].clone();
    let mut old = Vec::new();
    for i in 0..1000 {
        let ears = Rc::new(Ears(Cell::new(0)));
        let sink = core.add_sink(ears.clone());
        assert!(!old.contains(&sink), "number {i}");
        if i % 100 == 0 {
            core.submit(edge, End::Sink { sink, tag: 0 }, |b| b.op = Op::Flush);
        }
        core.remove_sink(sink);
        core.remove_sink(sink);
        old.push(sink);
    }
    let ears = Rc::new(Ears(Cell::new(0)));
    core.add_sink(ears.clone());
    leaves[0].release(&lab.cores);
    lab.spin(MS);
    assert_eq!(ears.0.get(), 0);
    lab.assert_empty();
}

#[test]
fn sink_may_submit_requests_and_take_the_buffers() {
    struct Chain(Edge, Cell<u64>, Cell<Option<Segs>>);
    impl Sink for Chain {
        fn done(&self, tag: u64, bio: &mut Bio, core: &Core) {
            assert!(bio.status.is_ok());
            self.1.set(tag);
            let data = std::mem::take(&mut bio.data);
            let Some(sink) = tag.checked_sub(1).map(|_| 1) else {
                return self.2.set(Some(data));
            };
            core.submit(self.0, End::Sink { sink, tag: tag - 1 }, |b| {
                b.op = Op::Write;
                b.length = data.len() as u64;
                b.data = data;
            });
        }
    }
    let mut lab = Lab::new(1);
    let (leaves, d) = disks(&mut lab, 1);
    let c = lab.writer("direct", d[0]);
    let chain = Rc::new(Chain(lab.edge(c), Cell::new(99), Cell::new(None)));
    let core = &lab.cores[0];
    let sink = core.add_sink(chain.clone());
    assert_eq!(sink, 1, "the laboratory's own is 0");
    let data = Segs::alloc(core.pool(), 512).unwrap();
    // Ten thousand deep, each from within the end of the one before: no stack is used up.
    core.submit(chain.0, End::Sink { sink, tag: 10_000 }, |b| {
        b.op = Op::Write;
        b.length = 512;
        b.data = data;
    });
    assert_eq!(chain.1.get(), 0);
    assert_eq!(leaves[0].take_requests().len(), 10_001);
    assert_eq!(chain.2.take().map(|s| s.len()), Some(512));
    lab.assert_empty();
}

#[test]
fn attribute_that_a_layer_lacks_is_answered_by_the_layer_below() {
    let mut lab = Lab::new(1);
    let (_, d) = disks(&mut lab, 1);
    let edge = scripted(&mut lab, &d, Script::default());
    let tag = lab.submit(0, edge, |b| {
        b.op = Op::GetAttr;
        b.attr = "GEOM::ident";
    });
    assert_eq!(lab.finish(tag).value, Some(Attr::Text("ident of d0".into())));
}

#[test]
fn task_whose_deadline_expires_leaks_nothing() {
    let mut lab = Lab::new(1);
    let (leaves, d) = disks(&mut lab, 1);
    let c = lab.user("r", d[0], Manner::default());
    lab.open(c, Access::READ).unwrap();
    let edge = lab.edge(c);
    leaves[0].set(Mode::Hold);
    let core = lab.cores[0].clone();
    let gone = Rc::new(Cell::new(false));
    let (c2, g2) = (core.clone(), gone.clone());
    core.reactor().spawn("gives up", async move {
        let out = geom::deadline(&c2, MS, c2.read(edge, 0, 4096)).await;
        g2.set(out.is_none());
    });
    lab.spin(5 * MS);
    assert!(gone.get());
    assert_eq!(core.live(), 1, "the request is the disk's");
    leaves[0].release(&lab.cores);
    lab.spin(MS);
    lab.assert_empty();
}
