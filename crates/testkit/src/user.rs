//! User of a provider: a geom without providers of its own that holds one open.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use bio::Errno;
use geom::{Access, Class, ConsumerId, Edge, Error, Geom, GraphControl, Topology};

pub const CLASS: &str = "user";

struct Users;

impl Class for Users {
    fn name(&self) -> &'static str {
        CLASS
    }

    fn doc(&self) -> &'static str {
        "Opens providers, for tests."
    }
}

/// A user that stays when its provider shrinks.
struct User;

impl Geom for User {
    fn resizes(&self) -> bool {
        true
    }
}

/// Loads [`CLASS`] if it is not there.
pub fn load(t: &mut Topology) {
    if t.class(CLASS).is_none() {
        t.load(Arc::new(Users)).expect("a new class");
    }
}

/// Opens a provider for a new user.
pub fn open(
    control: &mut GraphControl,
    on: &str,
    access: Access,
) -> Result<(ConsumerId, Edge), Error> {
    open_as(control, on, access, Box::new(User))
}

/// The same with another geom as the user.
pub fn open_as(
    control: &mut GraphControl,
    on: &str,
    access: Access,
    user: Box<dyn Geom>,
) -> Result<(ConsumerId, Edge), Error> {
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let name = format!("user{}", NUMBER.fetch_add(1, Ordering::Relaxed));
    load(&mut control.topology);
    control.call(|t| {
        let below = t.find(on).ok_or_else(|| Error::of(Errno::NoEnt, on))?;
        let geom = t.new_geom(CLASS, &name, "a test", user)?;
        let consumer = t.attach_new(geom, below).map_err(|e| Error::of(e, "attach"))?;
        t.access(consumer, access).map_err(|e| Error::of(e, "open"))?;
        Ok((consumer, t.edge(consumer)))
    })
}
