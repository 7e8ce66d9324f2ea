//! ninep: 9P2000 over any stream, in the clear or encrypted.
//!
//! ```text
//!   connection    bytes to messages and back; a task for each request
//!     |
//!   session       fids and tags of one client; the rules of the protocol
//!     |  closures
//!   node          files, and the tree of dumps; attributes as 9P has them
//! ```
//!
//! Invariants
//!  P1  A request that fails leaves its fid unchanged.
//!  P2  An Rflush is sent after the reply to the flushed request, or when that reply will never be
//!      sent.
//!  P3  A removed file lives as long as a fid has it open.

mod connection;
mod locks;
mod node;
mod refusal;
mod session;
pub mod trace;
mod transfer;
mod unsent;
mod wstat;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::Pool;
use reactor::Reactor;
use schemars::JsonSchema;
use serde::Serialize;
use transport::Incoming;

use crate::fault::Fault;
use crate::files::Served;
use crate::journal::RefusalLog;
use crate::users::{Id, Users};
use crate::volume::Dump;

pub use refusal::{Flavour, Refusal};

/// Largest message that is offered, bytes: a megabyte of data and the head.
pub const MSIZE_MAX: u32 = (1 << 20) + wire::ninep::IOHDR;
/// Default time that a client may take to attach, ns.
pub const LOGIN_NS: u64 = 30_000_000_000;
/// Smallest message that a client may request.
pub const MSIZE_MIN: u32 = 256;

/// How clients of a listener are met.
#[derive(Clone, Debug)]
pub struct ListenerOptions {
    /// Rules and words.
    pub flavour: Flavour,
    /// Every client is this user, under any name; `None`: the user of the given name, if it exists.
    pub fixed_user: Option<Id>,
    /// The client has proven to be `everybody`: by the manual it attaches under no other name.
    pub authenticated: bool,
    /// Names are believed; otherwise a client without a proof is `none`.
    pub trusts_names: bool,
    /// Largest message.
    pub msize: u32,
}

impl Default for ListenerOptions {
    fn default() -> ListenerOptions {
        ListenerOptions {
            flavour: Flavour::Plan9,
            fixed_user: None,
            authenticated: false,
            trusts_names: true,
            msize: MSIZE_MAX,
        }
    }
}

/// A file system that clients attach to.
pub struct Export {
    /// Its name; the first one is attached to by default.
    pub name: String,
    /// Its files.
    pub files: Served,
    /// The part of its block cache that unsent replies hold.
    share: Rc<unsent::CacheShare>,
}

/// File systems of one core, and who may do what with them.
pub struct Server {
    pub(crate) reactor: Reactor,
    pub(crate) pool: Pool,
    exports: RefCell<Vec<Rc<Export>>>,
    users: RefCell<Rc<Users>>,
    locks: locks::Locks,
    /// New attaches are refused, but those of `none`.
    pub noattach: Cell<bool>,
    /// All of them are: the tree is being repaired.
    pub under_repair: Cell<bool>,
    /// The user `none` cannot attach.
    pub nonone: Cell<bool>,
    /// Permissions are not checked, for any user ...
    pub allow: Cell<bool>,
    /// ... or for this one.
    pub allow_one: Cell<Option<Id>>,
    /// The user that may read and search every directory.
    pub duallow: Cell<Option<Id>>,
    /// How long a client may take to attach, ns.
    pub login_ns: Cell<u64>,
    pub(crate) journal: RefusalLog,
    next: Cell<u64>,
    sessions: RefCell<Vec<Rc<session::ClientSession>>>,
    /// The traced messages.
    pub trace: trace::Trace,
}

/// A connected client, for `who`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct ClientInfo {
    /// Number of the connection.
    #[serde(rename = "connection")]
    pub number: u64,
    /// The other end.
    pub peer: String,
    /// Users it attached as.
    pub users: Vec<String>,
    /// Fids of the client.
    pub fids: usize,
    /// Fids that are open.
    pub open: usize,
    /// Requests answered.
    pub requests: u64,
    /// Bytes read.
    pub read: u64,
    /// Bytes written.
    pub written: u64,
}

/// Bytes of the block cache of a file system.
fn cache_bytes(files: &Served) -> usize {
    let facts = files.facts();
    facts.block as usize * facts.memory as usize
}

impl Server {
    /// Permissions are not looked at for this user.
    pub(crate) fn allows(&self, user: Id) -> bool {
        self.allow.get() || self.allow_one.get() == Some(user)
    }

    /// Without file systems.
    pub fn new(reactor: Reactor, pool: Pool) -> Rc<Server> {
        Server::with_name("", reactor, pool)
    }

    /// The same, with a name for the log.
    pub fn with_name(name: &str, reactor: Reactor, pool: Pool) -> Rc<Server> {
        Rc::new(Server {
            journal: RefusalLog::new(name),
            login_ns: Cell::new(LOGIN_NS),
            reactor,
            pool,
            exports: RefCell::default(),
            users: RefCell::default(),
            locks: locks::Locks::default(),
            noattach: Cell::new(false),
            under_repair: Cell::new(false),
            nonone: Cell::new(false),
            allow: Cell::new(false),
            allow_one: Cell::new(None),
            duallow: Cell::new(None),
            next: Cell::new(1),
            sessions: RefCell::default(),
            trace: trace::Trace::default(),
        })
    }

    /// A further file system.
    pub fn export(&self, name: &str, files: impl Into<Served>) {
        let files = files.into();
        let share = unsent::CacheShare::new(cache_bytes(&files), files.facts().block as usize);
        self.exports.borrow_mut().push(Rc::new(Export { name: name.into(), files, share }));
    }

    /// Block caches have other sizes: unsent replies may hold the same part of them (U2).
    pub fn update_cache_shares(&self) {
        for export in self.exports.borrow().iter() {
            export.share.set_cache(cache_bytes(&export.files));
        }
    }

    /// Unsent replies hold more than their part of a block cache that is smaller now.
    pub fn is_cache_share_exceeded(&self) -> bool {
        self.exports.borrow().iter().any(|export| export.share.is_exceeded())
    }

    /// The file system of a name; the first one for none.
    pub fn find(&self, name: &str) -> Option<Rc<Export>> {
        let exports = self.exports.borrow();
        exports.iter().find(|e| name.is_empty() || e.name == name).cloned()
    }

    /// The users.
    pub fn users(&self) -> Rc<Users> {
        self.users.borrow().clone()
    }

    /// Sets the users.
    pub fn set_users(&self, users: Users) {
        *self.users.borrow_mut() = Rc::new(users);
    }

    /// Serves a client until it leaves; a TLS stream has completed its handshake. `peer` is its
    /// name in reports.
    pub async fn serve(
        self: Rc<Self>,
        from: impl Into<Incoming>,
        peer: String,
        options: ListenerOptions,
    ) {
        let number = self.next.replace(self.next.get() + 1);
        let session = session::ClientSession::new(self.clone(), number, peer, options);
        session.is_traced.set(self.trace.selects(number));
        self.sessions.borrow_mut().push(session.clone());
        connection::run(session.clone(), from.into()).await;
        self.sessions.borrow_mut().retain(|s| s.number != number);
        session.end().await;
    }

    /// No file systems any more; those that clients have stay theirs.
    pub fn clear_exports(&self) {
        self.exports.borrow_mut().clear();
    }

    /// Takes the dump of `date` (20261121) of a file system that is exported here. Exclusive files
    /// stay open for their clients, however long that takes.
    pub async fn dump(&self, files: &Served, date: u32) -> Result<Dump, Fault> {
        let _rest = self.locks.pause_clock(&self.reactor);
        files.dump(date).await
    }

    /// Ends connections: the one of a number, or all. How many there were.
    pub fn hang_up(&self, number: Option<u64>) -> usize {
        let all = self.sessions.borrow().clone();
        let ended = all.iter().filter(|s| number.is_none_or(|n| s.number == n));
        ended.map(|s| s.hang_up()).count()
    }

    /// Sets the connections whose messages are kept; see [`trace`].
    pub fn set_trace_filter(&self, of: trace::TraceFilter) {
        self.trace.set(of);
        let sessions = self.sessions.borrow();
        sessions.iter().for_each(|s| s.is_traced.set(self.trace.selects(s.number)));
    }

    /// The connected clients.
    pub fn clients(&self) -> Vec<ClientInfo> {
        self.sessions.borrow().iter().map(|s| s.client_info()).collect()
    }
}
