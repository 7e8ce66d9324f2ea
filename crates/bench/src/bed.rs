//! One core and the graph on the measuring thread: submitted requests run at once.

use std::rc::Rc;
use std::sync::Arc;

use bio::{Errno, Pool, PoolConfig};
use geom::{
    Access, Class, Core, Edge, Error, Geom, GraphControl, Inbox, Layer, Limits, NewProvider,
};
use reactor::{Config, PortChoice, Reactor, WaitFor};
use rustix::time::{ClockId, clock_gettime};
use serde_json::Value;

/// Name of the class of disks and of their users.
pub(crate) const CLASS: &str = "bed";

/// See the module.
pub(crate) struct Bed {
    pub core: Rc<Core>,
    pub control: GraphControl,
    /// Messages of other threads and disks to the graph.
    pub inbox: Arc<Inbox>,
}

/// Holds a disk, or uses one.
pub(crate) struct Plain;

impl Geom for Plain {}

/// The class of that name.
pub(crate) struct BedClass;

impl Class for BedClass {
    fn name(&self) -> &'static str {
        CLASS
    }

    fn doc(&self) -> &'static str {
        "Disks and users of a measurement."
    }
}

/// Error of a request that the graph refused.
pub(crate) fn failed(error: impl std::fmt::Display) -> crate::Error {
    crate::Error::new(crate::Kind::System, format!("in process: {error}"))
}

impl Bed {
    /// An empty graph.
    pub fn start() -> Result<Bed, crate::Error> {
        let config = Config { name: "bench".into(), port: PortChoice::Auto, ..Config::default() };
        let reactor = Reactor::start(config).map_err(|e| crate::Error::system("a reactor", e))?;
        let inbox = Arc::new(Inbox::default());
        let pool = Pool::new(PoolConfig::default());
        let (core, mailer) = Core::new(0, reactor.clone(), pool, inbox.report());
        let (turning, clock) = (core.clone(), reactor);
        let mut control = GraphControl::new(
            vec![mailer],
            inbox.clone(),
            Box::new(move |_, _| turning.turn(WaitFor::Peek)),
            Box::new(move || clock.fresh_now()),
        );
        control.topology.load(Arc::new(BedClass)).map_err(failed)?;
        Ok(Bed { core, control, inbox })
    }

    /// A class of which geoms are made.
    pub fn load(&mut self, class: Arc<dyn Class>) -> Result<(), crate::Error> {
        self.control.topology.load(class).map_err(failed)
    }

    pub fn disk(
        &mut self,
        name: &str,
        layer: Arc<dyn Layer>,
        media_bytes: u64,
    ) -> Result<(), crate::Error> {
        let new = NewProvider {
            name: name.into(),
            layer,
            limits: Limits { media_bytes, sector_bytes: 512, io_max_bytes: 0, delete_max_bytes: 0 },
            stripe_bytes: 0,
            stripe_offset: 0,
            attrs: Vec::new(),
        };
        let made = self.control.call(|t| {
            let geom = t.new_geom(CLASS, name, "measured", Box::new(Plain))?;
            t.new_provider(geom, new)
        });
        made.map(drop).map_err(failed)
    }

    pub fn verb(
        &mut self,
        class: &str,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> Result<Value, crate::Error> {
        let found = self.control.topology.class(class);
        let found = found.ok_or_else(|| failed(format!("no class {class}")))?;
        found.verb(&mut self.control, verb, on, params).map_err(failed)
    }

    pub fn open(&mut self, provider: &str) -> Result<Edge, crate::Error> {
        let name = format!("user of {provider}");
        let opened = self.control.call(|t| {
            let below = t.find(provider).ok_or_else(|| Error::of(Errno::NoEnt, provider))?;
            let user = t.new_geom(CLASS, &name, "measured", Box::new(Plain))?;
            let consumer = t.attach_new(user, below).map_err(|e| Error::of(e, "attach"))?;
            t.access(consumer, Access::WRITE).map_err(|e| Error::of(e, "open"))?;
            Ok(t.edge(consumer))
        });
        opened.map_err(failed)
    }

    /// Value that a class shows for a geom under a key.
    pub fn shown(&self, class: &str, name: &str, key: &str) -> Option<String> {
        let view = self.control.topology.view(0);
        let geom = view.iter().find(|g| g.class == class && g.name == name)?;
        let of = |show: &[(&'static str, String)]| {
            show.iter().find(|(k, _)| *k == key).map(|(_, v)| v.clone())
        };
        of(&geom.show).or_else(|| geom.consumers.iter().find_map(|c| of(&c.show)))
    }
}

/// CPU time of this thread, ns: other threads on the same core are not counted.
pub(crate) fn thread_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    let part = |n: i64| u64::try_from(n).unwrap_or(0);
    part(time.tv_sec) * 1_000_000_000 + part(time.tv_nsec)
}
