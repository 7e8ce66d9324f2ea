//! A disk in memory that answers as it is told.

use std::any::Any;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bio::{Bio, Errno, Flags, Op, Status, Ticket};
use geom::{
    Access, Class, Core, Error, Flow, Geom, GeomId, Layer, Limits, NewProvider, ProviderId,
    Topology,
};

/// When and how a leaf answers.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// At once.
    Now,
    /// After so many ns.
    After(u64),
    /// After a time by chance, at most so many ns: in any order.
    Within(u64),
    /// When [`Leaf::release`] says so.
    Hold,
    /// At once with this error.
    Fail(Errno),
    /// So often NoMem, then at once.
    NoMem(u32),
}

/// What a leaf was asked.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Asked {
    pub op: Op,
    pub offset: u64,
    pub length: u64,
    pub flags: Flags,
}

pub struct Leaf {
    pub mode: Mutex<Mode>,
    pub data: Mutex<Vec<u8>>,
    pub asked: Mutex<Vec<Asked>>,
    pub held: Mutex<Vec<(u32, Ticket)>>,
    pub opens: Mutex<Access>,
    /// Next access with a positive delta fails with it.
    pub refuse: Mutex<Option<Errno>>,
    pub inside: AtomicU64,
    pub limits: Limits,
}

impl Leaf {
    pub fn new(bytes: u64) -> Arc<Leaf> {
        Leaf::shaped(Limits {
            media_bytes: bytes,
            sector_bytes: 512,
            io_max_bytes: 0,
            delete_max_bytes: 0,
        })
    }

    pub fn shaped(limits: Limits) -> Arc<Leaf> {
        Arc::new(Leaf {
            mode: Mutex::new(Mode::Now),
            data: Mutex::new(vec![0; limits.media_bytes as usize]),
            asked: Mutex::default(),
            held: Mutex::default(),
            opens: Mutex::default(),
            refuse: Mutex::default(),
            inside: AtomicU64::new(0),
            limits,
        })
    }

    pub fn set(&self, mode: Mode) {
        *self.mode.lock().unwrap() = mode;
    }

    pub fn asked(&self) -> Vec<Asked> {
        std::mem::take(&mut *self.asked.lock().unwrap())
    }

    /// Lets all that is held end, in order.
    pub fn release(&self, cores: &[std::rc::Rc<Core>]) -> usize {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        for (core, id) in &held {
            cores[*core as usize].wake(*id, 0);
        }
        held.len()
    }

    pub fn held(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    fn carry_out(&self, bio: &Bio) -> Status {
        self.inside.fetch_sub(1, Relaxed);
        let mut data = self.data.lock().unwrap();
        let range = bio.offset as usize..(bio.offset + bio.length) as usize;
        match bio.op {
            Op::Read => {
                bio.data.copy_from(0, &data[range]);
            }
            Op::Write => {
                bio.data.copy_to(0, &mut data[range]);
            }
            Op::Delete | Op::WriteZeroes => data[range].fill(0),
            Op::Flush => {}
            Op::GetAttr => return Err(Errno::NoAttr),
            Op::Map => {}
        }
        Ok(())
    }

    pub fn create(self: &Arc<Self>, t: &mut Topology, name: &str) -> Result<ProviderId, Error> {
        let geom = t.new_geom("leaf", name, "a test", Box::new(LeafGeom(self.clone())))?;
        t.new_provider(
            geom,
            NewProvider {
                name: name.into(),
                layer: Arc::new(LeafLayer(self.clone())),
                limits: self.limits,
                stripe_bytes: 0,
                stripe_offset: 0,
                attrs: vec![("GEOM::ident", bio::Attr::Text(format!("ident of {name}")))],
            },
        )
    }
}

struct LeafLayer(Arc<Leaf>);

impl Layer for LeafLayer {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let leaf = &*self.0;
        let mode = &mut *leaf.mode.lock().unwrap();
        if let Mode::NoMem(left) = mode
            && *left > 0
        {
            *left -= 1;
            return Flow::Done(Err(Errno::NoMem));
        }
        let Bio { op, offset, length, flags, .. } = *bio;
        leaf.asked.lock().unwrap().push(Asked { op, offset, length, flags });
        leaf.inside.fetch_add(1, Relaxed);
        match *mode {
            Mode::Now | Mode::NoMem(_) => Flow::Done(leaf.carry_out(bio)),
            Mode::Fail(e) => {
                leaf.inside.fetch_sub(1, Relaxed);
                Flow::Done(Err(e))
            }
            Mode::After(ns) => {
                core.wake(bio.ticket(), ns);
                Flow::Wait
            }
            Mode::Within(ns) => {
                core.wake(bio.ticket(), core.reactor().random() % ns.max(1));
                Flow::Wait
            }
            Mode::Hold => {
                leaf.held.lock().unwrap().push((core.id(), bio.ticket()));
                Flow::Wait
            }
        }
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, _: &Core) -> Flow {
        Flow::Done(self.0.carry_out(bio))
    }
}

pub struct LeafGeom(Arc<Leaf>);

impl Geom for LeafGeom {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        let positive = delta.r > 0 || delta.w > 0 || delta.e > 0;
        if positive && let Some(e) = self.0.refuse.lock().unwrap().take() {
            return Err(e);
        }
        let mut opens = self.0.opens.lock().unwrap();
        *opens = opens.plus(delta);
        let whole = opens.r >= 0 && opens.w >= 0 && opens.e >= 0;
        assert!(whole, "the geom was told of more closes than opens: {opens}");
        Ok(())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

pub struct LeafClass;

impl Class for LeafClass {
    fn name(&self) -> &'static str {
        "leaf"
    }

    fn doc(&self) -> &'static str {
        "Disks in memory."
    }
}
