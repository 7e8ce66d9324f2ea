//! The driver on one core.

use std::rc::Rc;
use std::sync::Arc;

use bio::Segs;
use engine::Engine;
use geom::Core;
use reactor::{Address, Reactor};

use super::connection::Connection;
use super::shared::Shared;
use crate::common::cores::{Cores, place_of};
use crate::common::hall::{self, Hall};
use crate::common::journal::Say;
use crate::common::spares::Spares;

/// The driver on one core.
pub(crate) struct Here {
    pub shared: Arc<Shared>,
    pub engine: Rc<Engine>,
    pub core: Rc<Core>,
    pub hall: Rc<Hall<Connection>>,
    spares: Spares,
}

thread_local! {
    static CORES: Cores<Here> = const { Cores::new() };
}

impl Here {
    /// Settles on a core.
    pub fn install(shared: &Arc<Shared>, engine: &Rc<Engine>) {
        let core = engine.core().clone();
        let warn: Say = |what| tracing::warn!(target: "nbd", "{what}");
        let tell: Say = |what| tracing::info!(target: "nbd", "{what}");
        let here = Rc::new(Here {
            shared: shared.clone(),
            engine: engine.clone(),
            hall: Rc::new(Hall::new(&core, shared.connections_max, (warn, tell))),
            spares: Spares::default(),
            core: core.clone(),
        });
        CORES.with(|all| all.add(place_of(shared), core.id(), &here));
        drop(core.reactor().spawn("nbd watch", hall::watch(here.hall.clone(), here)));
    }

    /// The driver on the core of an engine.
    pub fn find(shared: &Arc<Shared>, engine: &Rc<Engine>) -> Option<Rc<Here>> {
        CORES.with(|all| all.find(place_of(shared), engine.core().id()))
    }

    /// The core's reactor.
    pub fn reactor(&self) -> &Reactor {
        self.core.reactor()
    }

    /// A list of segments, empty.
    pub fn segs(&self) -> Segs {
        self.spares.take()
    }

    /// Takes one back.
    pub fn put_segs(&self, segs: Segs) {
        self.spares.put(segs);
    }

    /// Stops listening; connections stay. A Unix socket's path goes with the last core.
    pub fn close_portal(&self, at: &Address) {
        if self.hall.close_portal(at)
            && let Some(path) = at.unix()
        {
            self.shared.leave_door(path);
        }
    }
}
