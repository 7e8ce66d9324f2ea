//! The driver on one core.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use engine::Engine;
use geom::Core;
use reactor::{Address, Mailbox, Reactor};

use super::connection::Connection;
use super::ending::Ending;
use super::scarce::Spares;
use super::shared::{Order, Shared};
use crate::common::cores::{Cores, place_of};
use crate::common::hall::{self, Hall};
use crate::common::journal::Say;

/// The driver on one core.
pub(crate) struct Here {
    pub shared: Arc<Shared>,
    pub engine: Rc<Engine>,
    pub core: Rc<Core>,
    pub hall: Rc<Hall<Connection>>,
    pub spares: RefCell<Spares>,
}

thread_local! {
    static CORES: Cores<Here> = const { Cores::new() };
}

impl Here {
    /// Settles on a core.
    pub fn install(shared: &Arc<Shared>, engine: &Rc<Engine>) {
        let core = engine.core().clone();
        let warn: Say = |what| tracing::warn!(target: "iscsi", "{what}");
        let tell: Say = |what| tracing::info!(target: "iscsi", "{what}");
        let here = Rc::new(Here {
            shared: shared.clone(),
            engine: engine.clone(),
            hall: Rc::new(Hall::new(&core, shared.connections_max, (warn, tell))),
            spares: RefCell::default(),
            core: core.clone(),
        });
        CORES.with(|all| all.add(place_of(shared), core.id(), &here));
        let (mailer, mailbox) = core.reactor().mailbox();
        shared.post.add(core.id(), mailer);
        drop(core.reactor().spawn("iscsi watch", hall::watch(here.hall.clone(), here.clone())));
        drop(core.reactor().spawn("iscsi orders", orders(here, mailbox)));
    }

    /// The driver on the core of an engine.
    pub fn find(shared: &Arc<Shared>, engine: &Rc<Engine>) -> Option<Rc<Here>> {
        CORES.with(|all| all.find(place_of(shared), engine.core().id()))
    }

    /// The core's reactor.
    pub fn reactor(&self) -> &Reactor {
        self.core.reactor()
    }

    /// Stops listening; connections stay.
    pub fn close_portal(&self, at: &Address) {
        self.hall.close_portal(at);
    }
}

async fn orders(here: Rc<Here>, mailbox: Mailbox<Order>) {
    while let Some(Order::Reinstated { connection }) = mailbox.recv().await {
        if let Some(connection) = here.hall.get(connection) {
            connection.line.end(Ending::Reinstated);
        }
    }
}
