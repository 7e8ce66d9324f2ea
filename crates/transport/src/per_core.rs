//! Connections and portals of one core.

use std::any::Any;
use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::time::Duration;

use bio::{PAGE_BYTES, Pool, PoolConfig};
use reactor::{Address, Mailbox, Reactor, Stream, TaskHandle};

use crate::connection::{Connection, Endpoints};
use crate::listener;
use crate::peer_limit::{CountedPeer, counted_as};
use crate::peer_log::{LogSubject, PeerLog};
use crate::per_thread::{Cores, key_of};
use crate::protocol::Protocol;
use crate::reason::CommonReason;
use crate::segment_lists::SegmentLists;
use crate::shared::GlobalState;

/// Connections of one core; a further one is reset and logged.
pub const CONNECTIONS_MAX: usize = 16 * 1024;

/// Connections of one core that are in their handshake. A further one waits for a place; if the
/// oldest of them has had `HANDSHAKE_GRACE_NS`, it is closed.
pub const HANDSHAKES_MAX: usize = 1024;

/// Time for a handshake while further connections wait, ns. After a restart thousands arrive at
/// once, and each of them is quick; a slow one is displaced.
const HANDSHAKE_GRACE_NS: u64 = 500_000_000;

/// Pause of a connection that waits for a place, ns.
const HANDSHAKE_PAUSE_NS: u64 = 5_000_000;

/// Bytes for receive buffers beyond a page each, and for headers of queued answers.
const SPARE_BYTES: usize = 64 << 20;

/// Watch period, ns: deadlines of peers that do not read or send, and of handshakes.
const WATCH_NS: u64 = 1_000_000_000;

struct Portal {
    local: Address,
    task: TaskHandle,
}

/// A protocol on one core.
pub struct PerCore<P: Protocol> {
    /// State that all cores share.
    pub shared: Arc<GlobalState<P>>,
    /// Number of the core.
    pub id: u32,
    /// The core's reactor.
    pub reactor: Reactor,
    /// The protocol's part.
    pub own: P::PerCore,
    /// For receive buffers and headers: apart from the payloads, so that a pool full of payloads
    /// does not stop answers (T2).
    pub memory: Pool,
    /// Log lines about peers.
    pub log: PeerLog,
    /// Reused lists of segments.
    pub segs: SegmentLists,
    data: Pool,
    portals: RefCell<BTreeMap<Address, Portal>>,
    connections: RefCell<BTreeMap<u64, Rc<Connection<P>>>>,
    /// Oldest first, each with the time of its accept.
    handshakes: RefCell<VecDeque<(u64, Weak<Connection<P>>)>>,
}

thread_local! {
    /// The protocols of this thread's cores.
    static ALL: Cores<dyn Any> = const { Cores::new() };
}

impl<P: Protocol> PerCore<P> {
    /// Installs a protocol on a core, once, on the core's thread. `data` is the pool of payloads.
    pub fn install(
        shared: &Arc<GlobalState<P>>,
        (id, reactor, data): (u32, &Reactor, &Pool),
        own: P::PerCore,
    ) -> Rc<PerCore<P>> {
        let limit_bytes = shared.connections_max * 2 * PAGE_BYTES + SPARE_BYTES;
        let core = Rc::new(PerCore {
            shared: shared.clone(),
            id,
            reactor: reactor.clone(),
            own,
            memory: Pool::new(PoolConfig { limit_bytes }),
            log: PeerLog::new(P::WARN, P::INFO, &shared.repeated_lines),
            segs: SegmentLists::default(),
            data: data.clone(),
            portals: RefCell::default(),
            connections: RefCell::default(),
            handshakes: RefCell::default(),
        });
        let any: Rc<dyn Any> = core.clone();
        ALL.with(|all| all.add(key_of(shared), id, &any));
        drop(reactor.spawn(P::TASKS.watch, watch(core.clone())));
        if let Some(name) = P::TASKS.messages {
            let (mailer, mailbox) = reactor.mailbox();
            shared.mailboxes.add(id, mailer);
            drop(reactor.spawn(name, orders(core.clone(), mailbox)));
        }
        core
    }

    /// The protocol on a core of this thread.
    pub fn find(shared: &Arc<GlobalState<P>>, id: u32) -> Option<Rc<PerCore<P>>> {
        ALL.with(|all| all.find(key_of(shared), id))?.downcast().ok()
    }

    /// Starts to listen; returns the address. An open portal returns its address again.
    pub fn open_portal(self: &Rc<Self>, at: Address) -> io::Result<Address> {
        if let Some(portal) = self.portals.borrow().get(&at) {
            return Ok(portal.local.clone());
        }
        let (listener, local) = listener::bind(self, &at)?;
        P::portal_opened(&self.shared, &at, &local);
        let task = listener::accept(self, listener, at.clone());
        self.portals.borrow_mut().insert(at, Portal { local: local.clone(), task });
        Ok(local)
    }

    /// Stops to listen; connections stay. A portal of port 0 is closed by its real address too. The
    /// last core removes the path of a Unix socket.
    pub fn close_portal(&self, at: &Address) {
        let closed = {
            let mut portals = self.portals.borrow_mut();
            let is_at = |(asked, portal): &(&Address, &Portal)| *asked == at || portal.local == *at;
            let asked = portals.iter().find(is_at).map(|(asked, _)| asked.clone());
            asked.and_then(|asked| portals.remove(&asked))
        };
        let Some(portal) = closed else { return };
        portal.task.abort();
        if let Some(path) = at.unix() {
            self.shared.unix_sockets.close(path);
        }
    }

    /// Waits until one more connection may enter its handshake (T4).
    pub(crate) async fn wait_for_handshake_slot(&self) {
        let _waiting = self.shared.counters.wait();
        while P::is_paused(self) {
            self.reactor.sleep(HANDSHAKE_PAUSE_NS).await;
        }
        loop {
            let oldest = {
                let mut all = self.handshakes.borrow_mut();
                all.retain(|(_, l)| l.upgrade().is_some_and(|c| c.is_in_handshake()));
                let oldest = all.front().filter(|_| all.len() >= HANDSHAKES_MAX);
                oldest.and_then(|(since, l)| Some((*since, l.upgrade()?)))
            };
            let Some((since, oldest)) = oldest else { return };
            if self.reactor.now().saturating_sub(since) > HANDSHAKE_GRACE_NS {
                return oldest.io.close(CommonReason::Displaced.into());
            }
            self.reactor.sleep(HANDSHAKE_PAUSE_NS).await;
        }
    }

    /// Counts an accepted connection for its peer; `None` when the peer has enough (T6).
    pub(crate) fn count_peer(&self, peer: &Address, at: &Address) -> Option<CountedPeer> {
        let most = P::connections_per_peer(&self.shared, at);
        let limit = usize::try_from(most).unwrap_or(usize::MAX);
        let counted = self.shared.peers.enter(&counted_as(peer, at), limit);
        if counted.is_none() {
            self.shared.counters.note_refused();
            let what = format_args!(
                "refused, this peer has {most} connections already; next: if they are wanted, \
                 raise connections_per_peer"
            );
            self.log.warn_about(LogSubject { peer, name: "" }, what);
        }
        counted
    }

    /// Serves an accepted connection, or resets it (T4).
    pub(crate) fn admit(
        self: &Rc<Self>,
        (stream, counted): (Stream, CountedPeer),
        peer: Address,
        at: &Address,
    ) {
        let most = self.shared.connections_max;
        if self.connections.borrow().len() >= most {
            self.shared.counters.note_refused();
            let what = format_args!("refused, this core has {most} connections already");
            self.log.warn_about(LogSubject { peer: &peer, name: "" }, what);
            return stream.reset();
        }
        let mut local = at.clone();
        if peer.inet().is_some() {
            // Answers are small and are sent in batches of the framework.
            let idle = P::KEEPALIVE_S.map(Duration::from_secs);
            let kept = idle.map_or(Ok(()), |idle| stream.keepalive(idle));
            if stream.nodelay(true).is_err() || kept.is_err() {
                return;
            }
            local = stream.local_addr().map_or(local, Address::Inet);
        }
        let ends = Endpoints { peer, local, at: at.clone() };
        let conn = Connection::new(self, stream, ends, P::ConnState::default());
        self.add(&conn);
        let serve = conn.run();
        drop(self.reactor.spawn(P::TASKS.connection, async move {
            serve.await;
            drop(counted);
        }));
    }

    /// The pool of payloads.
    pub fn data(&self) -> &Pool {
        &self.data
    }

    /// Adds a connection; [`Connection::run`] is to serve it.
    pub fn add(&self, conn: &Rc<Connection<P>>) {
        self.shared.counters.note_accepted();
        self.connections.borrow_mut().insert(conn.number, conn.clone());
        self.handshakes.borrow_mut().push_back((self.reactor.now(), Rc::downgrade(conn)));
    }

    /// A connection.
    pub fn get(&self, number: u64) -> Option<Rc<Connection<P>>> {
        self.connections.borrow().get(&number).cloned()
    }

    /// Removes a closed connection.
    pub(crate) fn remove(&self, number: u64) {
        self.connections.borrow_mut().remove(&number);
    }

    fn tick(&self) {
        let now = self.reactor.now();
        self.log.end_period(now);
        self.memory.cool();
        let usage = self.data.usage();
        let scarce = usage.used_bytes > usage.limit_bytes / 8 * 7;
        let all: Vec<_> = self.connections.borrow().values().cloned().collect();
        for conn in all {
            conn.tick(now, scarce);
        }
    }
}

/// Releases all sessions when the core ends and drops its tasks: connections and sessions refer to
/// each other. Then logs the collected lines about peers.
struct Release<P: Protocol>(Rc<PerCore<P>>);

impl<P: Protocol> Drop for Release<P> {
    fn drop(&mut self) {
        let all = self.0.connections.take();
        all.values().for_each(|conn| drop(conn.take_session()));
        self.0.log.flush();
    }
}

/// Watches the connections of a core for its whole life, and keeps the protocol there as long.
async fn watch<P: Protocol>(core: Rc<PerCore<P>>) {
    let release = Release(core);
    loop {
        release.0.reactor.sleep(WATCH_NS).await;
        release.0.tick();
        while release.0.memory.cool_part() > 0 {
            release.0.reactor.yield_now().await;
        }
    }
}

async fn orders<P: Protocol>(core: Rc<PerCore<P>>, mailbox: Mailbox<P::CoreMessage>) {
    while let Some(order) = mailbox.recv().await {
        P::handle_message(&core, order);
    }
}
