//! A user of a provider: a geom without providers that logs the events that it receives.

use std::sync::{Arc, Mutex};

use bio::Errno;
use geom::{Class, ConsumerId, Error, Geom, GeomId, ProviderId, Topology};

pub type Log = Arc<Mutex<Vec<String>>>;

pub fn log() -> Log {
    Arc::default()
}

/// How a user behaves.
#[derive(Clone, Copy, Default, Debug)]
pub struct Manner {
    pub spoils: bool,
    pub resizes: bool,
    /// Stays attached when its disk was removed, as a mounted file system does.
    pub stays: bool,
}

pub struct User {
    name: String,
    manner: Manner,
    log: Log,
}

impl User {
    pub fn create(
        t: &mut Topology,
        name: &str,
        below: ProviderId,
        manner: Manner,
        log: Log,
    ) -> Result<ConsumerId, Error> {
        let user = User { name: name.into(), manner, log };
        let geom = t.new_geom("user", name, "a test", Box::new(user))?;
        t.attach_new(geom, below).map_err(|e| {
            t.wither_geom(geom, Errno::NxIo);
            Error::of(e, "attach")
        })
    }

    fn note(&self, what: &str) {
        self.log.lock().unwrap().push(format!("{} {what}", self.name));
    }
}

impl Geom for User {
    fn orphan(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId, error: Errno) {
        self.note(&format!("orphan {}", error.name()));
        if !self.manner.stays {
            t.leave(consumer);
            t.wither_geom(me, error);
        }
    }

    fn spoils(&self) -> bool {
        self.manner.spoils
    }

    fn spoiled(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId) {
        self.note("spoiled");
        if self.manner.stays {
            return;
        }
        t.leave(consumer);
        t.wither_geom(me, Errno::NxIo);
    }

    fn resizes(&self) -> bool {
        self.manner.resizes
    }

    fn resized(&mut self, t: &mut Topology, _: GeomId, consumer: ConsumerId) {
        let size = t.below(consumer).and_then(|p| t.limits(p)).map_or(0, |l| l.media_bytes);
        self.note(&format!("resized {size}"));
    }

    fn attr_changed(&mut self, _: &mut Topology, _: GeomId, _: ConsumerId, name: &str) {
        self.note(&format!("attr {name}"));
    }
}

pub struct UserClass;

impl Class for UserClass {
    fn name(&self) -> &'static str {
        "user"
    }

    fn doc(&self) -> &'static str {
        "Whoever opens disks."
    }
}
