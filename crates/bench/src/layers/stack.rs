//! The stacks that are measured.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Bio, End, Errno, Op};
use geom::{
    Access, Back, Class, Core, Create, Edge, Error, Flow, GeomId, GraphControl, Layer, Limits,
    NewProvider, ProviderId, Sink, Topology,
};
use reactor::WaitFor;

use crate::bed::{Bed, Plain, thread_ns};

/// Bios of a measured round: long enough that the two clock readings around it do not matter.
pub(crate) const BIOS: u32 = 200_000;

/// Cost at one depth.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerRow {
    /// Pass-through layers over the leaf.
    pub layers: u32,
    /// Each round: CPU time of a Bio, ns, down and up.
    pub ns: Vec<f64>,
}

struct Leaf;

impl Layer for Leaf {
    fn start(&self, _: &mut Bio, _: &Core) -> Flow {
        Flow::Done(Ok(()))
    }
}

/// Moves the offset, as a partition does, and puts it back.
struct Shift {
    by: u64,
    below: Edge,
}

impl Layer for Shift {
    fn start(&self, bio: &mut Bio, _: &Core) -> Flow {
        let was = bio.offset;
        bio.offset += self.by;
        Flow::Down(self.below, was)
    }

    fn done(&self, bio: &mut Bio, was: u64, _: &Core) -> Back {
        bio.offset = was;
        Back::Up
    }
}

struct BenchClass;

impl Class for BenchClass {
    fn name(&self) -> &'static str {
        "bench"
    }

    fn doc(&self) -> &'static str {
        "Layers that do nothing, to be measured."
    }

    fn create(&self, t: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        let geom = t.new_geom("bench", request.name, "measured", Box::new(Plain))?;
        let layer: Arc<dyn Layer> = match request.members.first() {
            None => Arc::new(Leaf),
            Some(p) => {
                let c = t.attach_new(geom, *p).map_err(|e| Error::of(e, "attach"))?;
                Arc::new(Shift { by: 4096, below: t.edge(c) })
            }
        };
        t.new_provider(
            geom,
            NewProvider {
                name: request.name.into(),
                layer,
                limits: Limits {
                    media_bytes: 1 << 40,
                    sector_bytes: 512,
                    io_max_bytes: 0,
                    delete_max_bytes: 0,
                },
                stripe_bytes: 0,
                stripe_offset: 0,
                attrs: Vec::new(),
            },
        )?;
        Ok(geom)
    }
}

struct Count(Cell<u32>);

impl Sink for Count {
    fn done(&self, _: u64, bio: &mut Bio, _: &Core) {
        if bio.status.is_ok() {
            self.0.set(self.0.get() + 1);
        }
    }
}

/// Runs `rounds` rounds of `bios` Bios over stacks of the given depths, interleaved. Statistics are
/// on, as in the daemon; each Bio enters through `submit` and ends in a receiver. A first round is
/// not counted.
pub fn layers(depths: &[u32], rounds: u32, bios: u32) -> Result<Vec<LayerRow>, crate::Error> {
    let Bed { core, mut control, .. } = Bed::start()?;
    let mut edges = Vec::new();
    control.topology.load(Arc::new(BenchClass)).map_err(failed)?;
    for &depth in depths {
        edges.push(stack(&mut control, depth).map_err(failed)?);
    }
    let count = Rc::new(Count(Cell::new(0)));
    let sink = core.add_sink(count.clone());
    let mut times = vec![Vec::new(); depths.len()];
    for _ in 0..=rounds {
        for (i, edge) in edges.iter().enumerate() {
            core.turn(WaitFor::Peek);
            count.0.set(0);
            let start = thread_ns();
            for n in 0..bios {
                core.submit(*edge, End::Sink { sink, tag: u64::from(n) }, |bio| {
                    bio.op = Op::Delete;
                    bio.offset = u64::from(n) * 4096;
                    bio.length = 4096;
                });
            }
            let ns = thread_ns().saturating_sub(start);
            if count.0.get() != bios {
                return Err(failed(format!("{} of {bios} Bios ended well", count.0.get())));
            }
            times[i].push(ns as f64 / f64::from(bios));
        }
    }
    let rows = depths.iter().zip(times).map(|(&layers, mut ns)| {
        ns.remove(0);
        LayerRow { layers, ns }
    });
    Ok(rows.collect())
}

fn failed(error: impl std::fmt::Display) -> crate::Error {
    crate::Error::new(crate::Kind::System, format!("layers: {error}"))
}

fn stack(control: &mut GraphControl, depth: u32) -> Result<Edge, Error> {
    let params = serde_json::Value::Null;
    let make = |control: &mut GraphControl, name: String, members: &[ProviderId]| {
        control.call(|t| {
            let class = t.class("bench").ok_or_else(|| Error::of(Errno::NoEnt, "class"))?;
            class.create(t, &Create { name: &name, members, params: &params })?;
            t.find(&name).ok_or_else(|| Error::of(Errno::NoEnt, "provider"))
        })
    };
    let mut top = make(control, format!("leaf{depth}"), &[])?;
    for i in 0..depth {
        top = make(control, format!("pass{depth}.{i}"), &[top])?;
    }
    control.call(|t| {
        let user = t.new_geom("bench", &format!("user{depth}"), "measured", Box::new(Plain))?;
        let c = t.attach_new(user, top).map_err(|e| Error::of(e, "attach"))?;
        t.access(c, Access::WRITE).map_err(|e| Error::of(e, "open"))?;
        Ok(t.edge(c))
    })
}
