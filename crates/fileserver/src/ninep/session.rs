//! A session of one client: its fids and its requests.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bio::Seg;
use reactor::Signal;
use wire::ninep::{IOHDR, NOFID, Names, Qid, R, T, mode, open};

use super::node::{Facts, Node, split_mode};
use super::refusal::{Flavour, Refusal};
use super::unsent::Data;
use super::{ClientInfo, Export, ListenerOptions, MSIZE_MIN, Server};
use crate::fault::{Fault, Stop};
use crate::files::{Change, Files, Flags, Kind, New, ROOT, Reader};
use crate::orphans::InodeRef;
use crate::users::{Id, NONE};
use crate::volume::View;

/// Fids of one client. Linux with `cache=loose` has one for each name that it remembers; closed
/// ones cost some 60 bytes each. A request for one more is refused.
const FIDS_MAX: usize = 1 << 20;
/// Fids clunked in one turn when a session ends.
const TURN_CLUNKS: usize = 256;

/// The rights of an open fid.
pub(super) struct Open {
    /// READ, WRITE, RDWR or EXEC.
    pub access: u8,
    remove: bool,
    pub excl: bool,
    /// Keeps the contents of a file that loses its name (P3).
    _held: Option<InodeRef>,
    /// A directory's next offset, and the cookie behind which it continues.
    pub cursor: (u64, u64),
    /// Where in a file the last read ended.
    pub reader: Reader,
}

impl Open {
    fn new(access: u8, remove: bool, excl: bool, held: Option<InodeRef>) -> Open {
        Open { access, remove, excl, _held: held, cursor: (0, 0), reader: Reader::default() }
    }
}

pub(super) struct Fid {
    pub export: Rc<Export>,
    pub node: Node,
    pub user: Id,
    /// Boxed, since most fids of a client are not open.
    pub open: Option<Box<Open>>,
}

/// The reply to a request.
pub(super) enum Reply {
    /// A message.
    R(R<'static>),
    /// Contents.
    Data(Data),
    /// Entries of a directory.
    Entries(Vec<u8>),
    /// A file's attributes, encoded.
    Stat(Vec<u8>),
    /// The version agreed on.
    Version(u32, &'static str),
}

/// See the module.
pub struct ClientSession {
    pub(super) server: Rc<Server>,
    /// Number of the connection.
    pub(super) number: u64,
    pub(super) peer: String,
    pub(super) options: ListenerOptions,
    pub(super) msize: Cell<u32>,
    /// It has attached, if only once.
    pub(super) has_attached: Cell<bool>,
    /// Moves up with each Tversion: replies to earlier requests are not sent.
    pub(super) generation: Cell<u64>,
    /// In a tree: a hash table of many fids that grows takes the core for milliseconds.
    fids: RefCell<BTreeMap<u32, Fid>>,
    /// The connection is to end.
    pub(super) hung_up: Signal,
    /// Its messages are kept.
    pub(super) is_traced: Cell<bool>,
    pub(super) requests: Cell<u64>,
    pub(super) read: Cell<u64>,
    pub(super) written: Cell<u64>,
}

impl ClientSession {
    pub(super) fn new(
        server: Rc<Server>,
        number: u64,
        peer: String,
        options: ListenerOptions,
    ) -> Rc<ClientSession> {
        Rc::new(ClientSession {
            server,
            number,
            peer,
            options,
            msize: Cell::new(0),
            has_attached: Cell::new(false),
            generation: Cell::new(0),
            fids: RefCell::default(),
            hung_up: Signal::new(),
            is_traced: Cell::new(false),
            requests: Cell::new(0),
            read: Cell::new(0),
            written: Cell::new(0),
        })
    }

    pub(super) fn client_info(&self) -> ClientInfo {
        let fids = self.fids.borrow();
        let names = self.server.users();
        let ids: BTreeSet<Id> = fids.values().map(|f| f.user).collect();
        let mut users: Vec<String> = ids.into_iter().map(|id| names.name(id)).collect();
        users.sort();
        users.dedup();
        ClientInfo {
            number: self.number,
            peer: self.peer.clone(),
            users,
            fids: fids.len(),
            open: fids.values().filter(|f| f.open.is_some()).count(),
            requests: self.requests.get(),
            read: self.read.get(),
            written: self.written.get(),
        }
    }

    /// Ends the connection.
    pub(super) fn hang_up(&self) {
        self.hung_up.notify();
    }

    pub(super) fn is_lenient(&self) -> bool {
        self.options.flavour == Flavour::Linux
    }

    /// A look at a fid; no wait while it lasts.
    pub(super) fn fid<T>(&self, fid: u32, f: impl FnOnce(&mut Fid) -> T) -> Result<T, Refusal> {
        self.fids.borrow_mut().get_mut(&fid).map(f).ok_or(Refusal::UnknownFid)
    }

    fn lookup_fid(&self, fid: u32) -> Result<(Rc<Export>, Node, Id, bool), Refusal> {
        self.fid(fid, |f| (f.export.clone(), f.node, f.user, f.open.is_some()))
    }

    fn insert_fid(&self, fid: u32, new: Fid) -> Result<(), Refusal> {
        let mut fids = self.fids.borrow_mut();
        if fid == NOFID || fids.contains_key(&fid) {
            return Err(Refusal::FidInUse);
        }
        if fids.len() >= FIDS_MAX {
            return Err(Refusal::TooManyFids(FIDS_MAX));
        }
        fids.insert(fid, new);
        Ok(())
    }

    /// Whether permissions allow it.
    pub(super) fn is_permitted(&self, user: Id, facts: &Facts, want: u32) -> bool {
        let owned = facts.owned();
        let counts = owned.is_dir && want & 2 == 0 && self.server.duallow.get() == Some(user);
        self.server.allows(user) || counts || self.server.users().is_permitted(user, &owned, want)
    }

    /// One request, up to its reply.
    pub(super) async fn handle(&self, t: T<'_>, data: &[Seg]) -> Result<Reply, Refusal> {
        if self.msize.get() == 0 && !matches!(t, T::Version { .. }) {
            return Err(Refusal::NoVersion);
        }
        match t {
            T::Version { msize, version } => self.version(msize, version).await,
            T::Auth { .. } => Err(Refusal::NoAuth),
            T::Attach { fid, afid, uname, aname } => self.attach(fid, afid, uname, aname).await,
            // The connection keeps the requests under way.
            T::Flush { .. } => Ok(Reply::R(R::Flush)),
            T::Walk { fid, newfid, names } => self.walk(fid, newfid, &names).await,
            T::Open { fid, mode } => self.open(fid, mode).await,
            T::Create { fid, name, perm, mode } => self.create(fid, name, perm, mode).await,
            T::Read { fid, offset, count } => self.read(fid, offset, count).await,
            T::Write { fid, offset, .. } => self.write(fid, offset, data).await,
            T::Clunk { fid } => self.clunk(fid).await,
            T::Remove { fid } => self.remove(fid).await,
            T::Stat { fid } => self.stat(fid).await,
            T::Wstat { fid, stat } => self.wstat(fid, &stat).await,
        }
    }

    async fn version(&self, msize: u32, version: &str) -> Result<Reply, Refusal> {
        if msize < MSIZE_MIN {
            return Err(Refusal::Malformed(format!("msize of {msize}: less than {MSIZE_MIN}")));
        }
        self.generation.set(self.generation.get() + 1);
        self.end().await;
        let msize = msize.min(self.options.msize);
        // The part behind a dot is a variant that may be ignored.
        let known = version.split('.').next() == Some("9P2000");
        self.msize.set(if known { msize } else { 0 });
        Ok(Reply::Version(msize, if known { "9P2000" } else { "unknown" }))
    }

    /// All fids are clunked.
    pub(super) async fn end(&self) {
        let fids: Vec<u32> = self.fids.borrow().keys().copied().collect();
        for some in fids.chunks(TURN_CLUNKS) {
            for fid in some {
                // It is removed with any answer.
                let _ = self.clunk(*fid).await;
            }
            if some.len() == TURN_CLUNKS {
                self.server.reactor.yield_now().await;
            }
        }
    }

    fn user(&self, uname: &str) -> Result<Id, Refusal> {
        if let Some(id) = self.options.fixed_user {
            let strict = self.options.authenticated && self.options.flavour == Flavour::Plan9;
            let is_own = uname.is_empty() || self.server.users().id(uname) == Some(id);
            return if strict && !is_own { Err(Refusal::UnknownUser) } else { Ok(id) };
        }
        if !self.options.trusts_names {
            return Ok(NONE);
        }
        self.server.users().can_attach(uname).ok_or(Refusal::UnknownUser)
    }

    async fn attach(
        &self,
        fid: u32,
        afid: u32,
        uname: &str,
        aname: &str,
    ) -> Result<Reply, Refusal> {
        if afid != NOFID {
            return Err(Refusal::NoAuth);
        }
        let user = self.user(uname)?;
        if self.server.nonone.get() && user == NONE {
            return Err(Refusal::Permission);
        }
        self.may_attach(user)?;
        // The dumps of a file system are "dump", or "NAME.dump" of one that is not the first.
        let (name, dumps) = match aname.strip_suffix("dump") {
            Some("") => ("", true),
            Some(name) if name.ends_with('.') => (&name[..name.len() - 1], true),
            _ => (aname, false),
        };
        let export = self.server.find(name).ok_or(Refusal::UnknownTree)?;
        if dumps && user == NONE {
            return Err(Refusal::Permission);
        }
        let node = if dumps { Node::Dumps } else { Node::File(View::Live, ROOT) };
        let facts = export.files.run(|f| node.facts(f)).await?;
        // A repair may have begun while the root was read, when this client was not visible yet.
        self.may_attach(user)?;
        self.insert_fid(fid, Fid { export, node, user, open: None })?;
        self.has_attached.set(true);
        Ok(Reply::R(R::Attach { qid: facts.qid }))
    }

    fn may_attach(&self, user: Id) -> Result<(), Refusal> {
        match self.server.under_repair.get() || self.server.noattach.get() && user != NONE {
            true => Err(Refusal::Maintenance),
            false => Ok(()),
        }
    }

    async fn walk(&self, fid: u32, newfid: u32, names: &Names<'_>) -> Result<Reply, Refusal> {
        let (export, node, user, is_open) = self.lookup_fid(fid)?;
        if is_open && !self.is_lenient() {
            return Err(Refusal::BadUse);
        }
        if newfid != fid && self.fids.borrow().contains_key(&newfid) {
            return Err(Refusal::FidInUse);
        }
        let names = names.as_slice();
        let (qids, to, why) = export.files.run(|f| self.steps(f, node, user, names)).await?;
        if let (Some(why), true) = (why, qids.is_empty()) {
            return Err(why);
        }
        if qids.len() == names.len() {
            let walked = Fid { export, node: to, user, open: None };
            if newfid == fid {
                if is_open {
                    return Err(Refusal::BadUse);
                }
                self.fid(fid, |f| f.node = to)?;
            } else {
                self.insert_fid(newfid, walked)?;
            }
        }
        Ok(Reply::R(R::Walk { qids }))
    }

    fn steps(
        &self,
        f: &mut Files<'_, '_>,
        from: Node,
        user: Id,
        names: &[&str],
    ) -> Result<(Vec<Qid>, Node, Option<Refusal>), Stop> {
        let (mut at, mut qids) = (from, Vec::with_capacity(names.len()));
        for name in names {
            let facts = match at.facts(f) {
                Ok(facts) => facts,
                Err(Stop::Fail(fault)) => return Ok((qids, at, Some(fault.into()))),
                Err(stop) => return Err(stop),
            };
            let refused = match *name {
                _ if !facts.is_dir() => Some(Fault::NotDir.into()),
                "" | "." => Some(Fault::BadName("it is the name of a directory").into()),
                _ if !self.is_permitted(user, &facts, 1) => Some(Refusal::Permission),
                _ => None,
            };
            if refused.is_some() {
                return Ok((qids, at, refused));
            }
            let next = if *name == ".." { Some(at.parent(f)?) } else { at.child(f, name)? };
            let Some(next) = next else { return Ok((qids, at, Some(Fault::NotFound.into()))) };
            at = next;
            qids.push(at.facts(f)?.qid);
        }
        Ok((qids, at, None))
    }

    pub(super) fn iounit(&self) -> u32 {
        // 0 before a version is agreed on.
        self.msize.get().saturating_sub(IOHDR)
    }

    /// The parent of a file and its name there, if the user may change that directory.
    pub(super) fn writable_parent(
        &self,
        f: &mut Files<'_, '_>,
        ino: u64,
        user: Id,
    ) -> Result<Result<(u64, Vec<u8>), Refusal>, Stop> {
        let Some((dir, name)) = f.name(View::Live, ino)? else {
            let gone = ino != ROOT;
            return Ok(Err(if gone { Fault::NotFound.into() } else { Refusal::Permission }));
        };
        let facts = Node::File(View::Live, dir).facts(f)?;
        let may = self.is_permitted(user, &facts, 2);
        Ok(if may { Ok((dir, name)) } else { Err(Refusal::Permission) })
    }

    async fn open(&self, fid: u32, how: u8) -> Result<Reply, Refusal> {
        let (export, node, user, is_open) = self.lookup_fid(fid)?;
        if is_open {
            return Err(Refusal::BadUse);
        }
        if how & !(3 | open::TRUNC | open::RCLOSE) != 0 {
            return Err(Refusal::BadMode("open"));
        }
        let access = how & 3;
        let (cuts, removes) = (how & open::TRUNC != 0, how & open::RCLOSE != 0);
        let writes = matches!(access, open::WRITE | open::RDWR);
        let want = match access {
            open::READ => 4,
            open::WRITE => 2,
            open::RDWR => 6,
            _ => 1,
        } | if cuts { 2 } else { 0 };
        let opened = export
            .files
            .run(|f| {
                let facts = node.facts(f)?;
                if facts.is_dir() && (how & !open::RCLOSE) != open::READ {
                    return Ok(Err(Refusal::Permission));
                }
                if (writes || cuts || removes) && node.live().is_err() {
                    return Ok(Err(Fault::ReadOnly.into()));
                }
                if !self.is_permitted(user, &facts, want) {
                    return Ok(Err(Refusal::Permission));
                }
                if removes
                    && let Node::File(_, ino) = node
                    && let Err(why) = self.writable_parent(f, ino, user)?
                {
                    return Ok(Err(why));
                }
                if let (true, Node::File(View::Live, ino)) = (facts.qid.kind & 0x20 != 0, node)
                    && !self.lock(ino, fid)
                {
                    return Ok(Err(Refusal::Locked));
                }
                if let (true, Node::File(View::Live, ino)) = (cuts, node)
                    && !facts.inode.flags.has(Flags::APPEND)
                {
                    let cut = Change { size: Some(0), by: user, ..Change::default() };
                    f.set(ino, &cut)?;
                }
                Ok(Ok(node.facts(f)?))
            })
            .await??;
        let excl = opened.qid.kind & 0x20 != 0;
        let held = node.live().ok().map(|ino| export.files.hold(ino));
        self.fid(fid, |f| {
            let open = Open::new(access, removes, excl, held);
            f.open = Some(Box::new(open));
        })?;
        Ok(Reply::R(R::Open { qid: opened.qid, iounit: self.iounit() }))
    }

    fn lock(&self, ino: u64, fid: u32) -> bool {
        self.server.locks.take(ino, (self.number, fid), self.server.reactor.now())
    }

    async fn create(&self, fid: u32, name: &str, perm: u32, how: u8) -> Result<Reply, Refusal> {
        let (export, node, user, is_open) = self.lookup_fid(fid)?;
        if is_open {
            return Err(Refusal::BadUse);
        }
        let is_dir = perm & mode::DIR != 0;
        if perm & !mode::KNOWN != 0 {
            return Err(Refusal::BadMode("perm has bits that no file has"));
        }
        if how & !(3 | open::TRUNC | open::RCLOSE) != 0 {
            return Err(Refusal::BadMode("open"));
        }
        if is_dir && (how & !open::RCLOSE != 0 || perm & (mode::APPEND | mode::EXCL) != 0) {
            return Err(Refusal::BadMode("a directory is opened to read"));
        }
        if name.chars().any(char::is_control) && !self.is_lenient() {
            return Err(Fault::BadName("it has control characters").into());
        }
        let dir = node.live()?;
        let (bits, flags) = split_mode(perm);
        let (ino, facts) = export
            .files
            .run(|f| {
                let above = node.facts(f)?;
                if !above.is_dir() {
                    return Err(Stop::Fail(Fault::NotDir));
                }
                if !self.is_permitted(user, &above, 2) {
                    return Ok(Err(Refusal::Permission));
                }
                let shared = if is_dir { 0o777 } else { 0o666 };
                let new = New {
                    kind: if is_dir { Kind::Dir } else { Kind::File },
                    flags,
                    mode: bits & (!shared | above.inode.mode & shared),
                    uid: user,
                    gid: above.inode.gid,
                };
                let ino = f.create(dir, name.as_bytes(), &new)?;
                Ok(Ok((ino, Node::File(View::Live, ino).facts(f)?)))
            })
            .await??;
        let excl = flags.has(Flags::EXCL);
        if excl {
            self.lock(ino, fid);
        }
        let held = export.files.hold(ino);
        self.fid(fid, |f| {
            f.node = Node::File(View::Live, ino);
            let open = Open::new(how & 3, how & open::RCLOSE != 0, excl, Some(held));
            f.open = Some(Box::new(open));
        })?;
        Ok(Reply::R(R::Create { qid: facts.qid, iounit: self.iounit() }))
    }

    async fn clunk(&self, fid: u32) -> Result<Reply, Refusal> {
        let gone = self.fids.borrow_mut().remove(&fid).ok_or(Refusal::UnknownFid)?;
        self.unlock(fid, &gone);
        if gone.open.as_ref().is_some_and(|o| o.remove) {
            self.remove_file(&gone).await?;
        }
        Ok(Reply::R(R::Clunk))
    }

    fn unlock(&self, fid: u32, gone: &Fid) {
        let excl = gone.open.as_ref().is_some_and(|o| o.excl);
        if let (true, Node::File(_, ino)) = (excl, gone.node) {
            self.server.locks.release(ino, (self.number, fid));
        }
    }

    async fn remove(&self, fid: u32) -> Result<Reply, Refusal> {
        // It is clunked whether the file can be removed or not.
        let gone = self.fids.borrow_mut().remove(&fid).ok_or(Refusal::UnknownFid)?;
        self.unlock(fid, &gone);
        self.remove_file(&gone).await?;
        Ok(Reply::R(R::Remove))
    }

    async fn remove_file(&self, gone: &Fid) -> Result<(), Refusal> {
        let (ino, user) = (gone.node.live()?, gone.user);
        gone.export
            .files
            .run(|f| match self.writable_parent(f, ino, user)? {
                Ok((dir, name)) => f.remove(dir, &name, user).map(|_| Ok(())),
                Err(why) => Ok(Err(why)),
            })
            .await?
    }

    async fn stat(&self, fid: u32) -> Result<Reply, Refusal> {
        let (export, node, ..) = self.lookup_fid(fid)?;
        let facts = export.files.run(|f| node.facts(f)).await?;
        let mut out = Vec::new();
        facts.encode(&self.server.users(), &mut out);
        Ok(Reply::Stat(out))
    }
}
