//! The driver on one core.

use std::rc::Rc;
use std::sync::Arc;

use bio::Segs;
use engine::Engine;
use geom::Core;
use reactor::Mailbox;

use super::connection::Connection;
use super::ending::Ending;
use super::shared::{Order, Shared};
use crate::common::cores::{Cores, place_of};
use crate::common::hall::{self, CONNECTIONS_MAX, Hall};
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
        let warn: Say = |what| tracing::warn!(target: "nvme_tcp", "{what}");
        let tell: Say = |what| tracing::info!(target: "nvme_tcp", "{what}");
        let (mailer, mailbox) = core.reactor().mailbox();
        let here = Rc::new(Here {
            shared: shared.clone(),
            engine: engine.clone(),
            hall: Rc::new(Hall::new(&core, CONNECTIONS_MAX, (warn, tell))),
            spares: Spares::default(),
            core: core.clone(),
        });
        CORES.with(|all| all.add(place_of(shared), core.id(), &here));
        shared.post.add(core.id(), mailer);
        drop(core.reactor().spawn("nvme watch", hall::watch(here.hall.clone(), here.clone())));
        drop(core.reactor().spawn("nvme orders", orders(here, mailbox)));
    }

    /// The driver on the core of an engine.
    pub fn find(shared: &Arc<Shared>, engine: &Rc<Engine>) -> Option<Rc<Here>> {
        CORES.with(|all| all.find(place_of(shared), engine.core().id()))
    }

    /// A list of segments, empty.
    pub fn segs(&self) -> Segs {
        self.spares.take()
    }

    /// Takes one back.
    pub fn put_segs(&self, segs: Segs) {
        self.spares.put(segs);
    }
}

async fn orders(here: Rc<Here>, mailbox: Mailbox<Order>) {
    while let Some(order) = mailbox.recv().await {
        match order {
            Order::End { connection } => {
                if let Some(connection) = here.hall.get(connection) {
                    connection.line.end(Ending::AssociationOver);
                }
            }
            Order::Abort { connection, command, asker: (core, asker, id) } => {
                let queue = here.hall.get(connection).and_then(|c| c.queue());
                let done = queue.is_some_and(|q| q.abort(command));
                here.shared.post.tell(core, Order::Aborted { connection: asker, id, done });
            }
            Order::Aborted { connection, id, done } => {
                if let Some(queue) = here.hall.get(connection).and_then(|c| c.queue()) {
                    queue.aborted(id, done);
                }
            }
        }
    }
}
