//! One connection, from accept to its end. It is one queue.
//!
//! ```text
//!   OPEN --ICReq--> AGREED --Connect--> QUEUE --Disconnect, error, close--> ENDING --> gone
//!     |               |                                                       ^
//!     +---------------+--- time-out, garbage ---------------------------------+
//! ```
//! A last word of ours (C2HTermReq) goes out before the end, and nothing is read after it but to
//! be dropped, for as long as last words may take.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use reactor::{Address, Stream};
use wire::nvme::{Fault, Framer, Terminate};

use super::ending::Ending;
use super::here::Here;
use super::inlet::{Inlet, Line};
use super::queue::Queue;
use super::{connect, params, receive};
use crate::common::cause::Cause;
use crate::common::hall::{Guest, farewell};
use crate::common::journal::About;
use crate::common::pace::Pace;
use crate::common::pump::{Ending as _, FLUSH_NS, Plain, Pump};

const SECOND_NS: u64 = 1_000_000_000;

/// One connection.
pub(crate) struct Connection {
    /// Number in this daemon.
    pub number: u64,
    pub here: Rc<Here>,
    pub line: Pump<Ending>,
    /// The host's address.
    pub peer: Address,
    /// Our address.
    pub local: Address,
    /// The portal as the configuration names it.
    pub at: Address,
    /// What was agreed on.
    pub framer: Cell<Framer>,
    /// HPDA: data for the host begins at multiples of so many dwords, less one.
    pub alignment: Cell<u8>,
    /// What is being read of a PDU that has begun.
    pub pace: Pace,
    queue: RefCell<Option<Rc<Queue>>>,
    handshake_s: Cell<u32>,
    began: u64,
}

impl Connection {
    /// A connection that has just been accepted.
    pub fn new(
        here: &Rc<Here>,
        stream: Stream,
        peer: Address,
        local: Address,
        at: Address,
    ) -> Rc<Connection> {
        Rc::new(Connection {
            number: here.shared.next_connection(),
            here: here.clone(),
            line: Pump::new(&here.core, &here.hall.memory, stream),
            peer,
            local,
            at,
            framer: Cell::default(),
            alignment: Cell::default(),
            pace: Pace::default(),
            queue: RefCell::default(),
            handshake_s: Cell::new(params::NvmeTcpParams::default().handshake_timeout),
            began: here.core.now(),
        })
    }

    /// The queue, once there is one.
    pub fn queue(&self) -> Option<Rc<Queue>> {
        self.queue.borrow().clone()
    }

    /// It has become a queue.
    pub fn set_queue(&self, queue: &Rc<Queue>) {
        *self.queue.borrow_mut() = Some(queue.clone());
    }

    /// How long it may take until it is a queue.
    pub fn set_handshake(&self, seconds: u32) {
        self.handshake_s.set(seconds);
    }

    /// Tells the host what is wrong with a PDU, of which `header` has arrived.
    pub fn terminate(&self, fault: Fault, header: &[u8]) -> Ending {
        let (reason, at) = (fault.reason, fault.at);
        let word = Terminate { controller: true, reason, at, header: header.to_vec() };
        self.line.out.borrow_mut().bytes_of(&word.encode());
        fault.into()
    }

    fn say_goodbye(&self, ending: &Ending) {
        let queue = self.queue.borrow();
        let name =
            queue.as_ref().map(|q| format!("{}, queue {}", q.controller.host.name, q.number));
        let name = name.as_deref().unwrap_or_default();
        farewell(&self.here.hall, About { peer: &self.peer, name }, ending);
    }
}

impl Guest for Connection {
    fn number(&self) -> u64 {
        self.number
    }

    fn is_entering(&self) -> bool {
        self.queue.borrow().is_none() && !self.line.is_ending()
    }

    fn end(&self, cause: Cause) {
        self.line.end(cause.into());
    }

    /// Time-outs, hosts that do not read, or do not send what they have begun or owe.
    fn look(&self, now: u64, scarce: bool) {
        let Some(heard) = self.line.look(now, scarce) else { return };
        let limit_ns = u64::from(self.handshake_s.get()) * SECOND_NS;
        if self.is_entering() && now.saturating_sub(self.began) > limit_ns {
            self.line.end(Ending::TooSlow);
        }
        let hungry = self.here.engine.is_hungry();
        let queue = self.queue();
        let owes = queue.as_ref().is_some_and(|q| q.is_owed(now, hungry));
        if owes || self.pace.is_overdue(now, hungry) {
            self.end(Cause::DataOverdue);
        }
        if let Some(queue) = queue {
            queue.look(now, heard);
        }
    }

    fn let_go(&self) {
        drop(self.queue.take());
    }
}

/// The task of a connection.
pub(crate) async fn run(connection: Rc<Connection>) {
    let conn = &connection;
    let line = &conn.line;
    let memory = conn.here.hall.memory.clone();
    let mut inlet = Inlet::new(Line(line.stream.clone()), memory, line.signals.clone());
    let reader = async move {
        match connect::run(conn, &mut inlet).await {
            Ok(queue) => receive::run(&queue, &mut inlet).await,
            Err(ending) => ending,
        }
    };
    let between = || {
        if let Some(queue) = conn.queue() {
            queue.go_on();
        }
    };
    let ending = line.drive(reader, Plain(&line.out), between).await;
    line.end(ending.clone());
    conn.say_goodbye(&ending);
    let queue = conn.queue.take();
    let leaving = queue.as_ref().map(|q| conn.here.shared.leaves(&q.controller.host));
    if ending.flushes() {
        geom::deadline(&conn.here.core, FLUSH_NS, line.linger()).await;
    }
    line.stream.close();
    if let Some(queue) = queue {
        queue.finish().await;
    }
    drop(leaving);
    conn.here.hall.remove(conn.number);
}
