//! Files as disks: a file of the live tree, or of a dump, is a provider. A LUN on it has every
//! day's state for ever.
//!
//! ```text
//!   any core: layer -- request --------> the file server's core: a task over its files
//!       ^                                   |
//!       +-- bytes, or how it ended ---------+
//! ```
//! Data is copied between the cores: buffers belong to a core.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use bio::sync::Mutex;
use bio::{Attr, Bio, BioId, Errno, Flags, HOLE, MAPPED, Op, Ticket};
use geom::{Core, Flow, Layer, Limits, Notifier, PHYSICAL_SECTOR};

use super::host::Host;
use crate::fault::Fault;
use crate::files::{Ino, Served};
use crate::orphans::InodeRef;
use crate::users::ADM;
use crate::volume::View;

/// Bytes of a sector.
const SECTOR: u32 = 512;
/// Largest READ or WRITE, bytes.
const IO_MAX: u32 = 1 << 20;
/// Bytes read or written in one step.
const PIECE: usize = 64 << 10;

/// A file that is a disk, for the graph.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileDisk {
    /// Name of the provider.
    pub name: String,
    /// The file.
    pub path: String,
    /// Bytes.
    pub bytes: u64,
    /// It is in a dump.
    pub read_only: bool,
    /// Its key between the cores; never used twice.
    pub key: u64,
    /// Its unique identity: volume and file.
    pub ident: String,
    /// Bytes of a block of the volume.
    pub block: u64,
}

impl FileDisk {
    /// Its numbers for the graph.
    pub fn limits(&self) -> Limits {
        Limits {
            media_bytes: self.bytes,
            sector_bytes: SECTOR,
            io_max_bytes: IO_MAX,
            delete_max_bytes: 1 << 30,
        }
    }

    /// Its attributes.
    pub fn attrs(&self) -> Vec<(&'static str, Attr)> {
        vec![
            ("GEOM::ident", Attr::Text(self.ident.clone())),
            ("GEOM::descr", Attr::Text(format!("file {}", self.path))),
            ("GEOM::rotation_rate", Attr::Int(1)),
            ("GEOM::candelete", Attr::Int(u64::from(!self.read_only))),
            ("GEOM::deletereadszero", Attr::Int(1)),
            ("DISK::delete_granule", Attr::Int(self.block)),
            // A part of a block is written by a read of the rest.
            (PHYSICAL_SECTOR, Attr::Int(self.block)),
        ]
    }
}

/// The core's side of one.
struct OpenDisk {
    fs: Served,
    host: Rc<Host>,
    view: View,
    ino: Ino,
    /// Its contents stay when it loses its name.
    _held: Option<InodeRef>,
}

thread_local! {
    /// Those of this core's file servers.
    static OPEN: RefCell<HashMap<u64, Rc<OpenDisk>>> = RefCell::default();
}

/// The next key.
static KEYS: AtomicU64 = AtomicU64::new(1);

/// Makes a file a disk, on the file server's core; its key.
pub fn open(host: &Rc<Host>, fs: &Served, view: View, ino: Ino) -> u64 {
    let key = KEYS.fetch_add(1, Relaxed);
    let held = (view == View::Live).then(|| fs.hold(ino));
    let open = OpenDisk { fs: fs.clone(), host: host.clone(), view, ino, _held: held };
    OPEN.with(|all| all.borrow_mut().insert(key, Rc::new(open)));
    key
}

/// It is a disk no longer.
pub fn close(key: u64) {
    OPEN.with(|all| all.borrow_mut().remove(&key));
}

/// A request to the file server's core.
struct DiskRequest {
    op: Op,
    offset: u64,
    length: u64,
    fua: bool,
    data: Vec<u8>,
}

/// The result of a request.
#[derive(Default)]
struct DiskReply {
    data: Vec<u8>,
    value: Option<u64>,
    completed: u64,
}

type DiskReplies = Mutex<HashMap<(usize, BioId), Result<DiskReply, Errno>>>;

/// The data path.
pub struct FileLayer {
    notifier: Notifier,
    core: usize,
    key: u64,
    answers: Arc<DiskReplies>,
}

impl FileLayer {
    /// For a file server on that core.
    pub fn new(notifier: Notifier, core: usize, key: u64) -> FileLayer {
        FileLayer { notifier, core, key, answers: Arc::default() }
    }
}

/// Hands an answer to the requesting core.
struct ReplySender {
    notifier: Notifier,
    answers: Arc<DiskReplies>,
    core: usize,
    ticket: Ticket,
}

impl ReplySender {
    fn send(self, answer: Result<DiskReply, Errno>) {
        let ReplySender { notifier, answers, core, ticket } = self;
        notifier.call(
            core,
            Box::new(move |on| {
                let place = (core, ticket.id());
                answers.lock().insert(place, answer);
                if !on.restart(ticket) {
                    // The requester has given up.
                    answers.lock().remove(&place);
                }
            }),
        );
    }
}

impl Layer for FileLayer {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        if bio.op == Op::GetAttr {
            return Flow::Done(Err(Errno::NoAttr));
        }
        let mut data = Vec::new();
        if bio.op == Op::Write {
            data.reserve(usize::try_from(bio.length).unwrap_or(0));
            bio.data.iter().for_each(|seg| seg.with(|b| data.extend_from_slice(b)));
        }
        let fua = bio.flags.has(Flags::FUA);
        let request = DiskRequest { op: bio.op, offset: bio.offset, length: bio.length, fua, data };
        let from = core.id() as usize;
        let (notifier, answers) = (self.notifier.clone(), self.answers.clone());
        let reply = ReplySender { notifier, answers, core: from, ticket: bio.ticket() };
        let key = self.key;
        self.notifier.call(self.core, Box::new(move |core| begin(core, key, request, reply)));
        Flow::Wait
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        let answer = self.answers.lock().remove(&(core.id() as usize, bio.id()));
        let answer = match answer {
            Some(Ok(answer)) => answer,
            Some(Err(e)) => return Flow::Done(Err(e)),
            None => return Flow::Done(Err(Errno::Io)),
        };
        match bio.op {
            Op::Read => {
                let mut left = &answer.data[..];
                for seg in bio.data.iter() {
                    let (some, rest) = left.split_at(seg.len().min(left.len()));
                    seg.copy_from(0, some);
                    left = rest;
                }
            }
            Op::Map => {
                bio.completed = answer.completed;
                bio.value = answer.value.map(Attr::Int);
            }
            _ => {}
        }
        Flow::Done(Ok(()))
    }
}

fn begin(core: &Rc<Core>, key: u64, request: DiskRequest, reply: ReplySender) {
    match OPEN.with(|all| all.borrow().get(&key).cloned()) {
        None => reply.send(Err(Errno::NxIo)),
        Some(open) => {
            core.reactor().spawn("fs-disk", async move {
                let done = open.execute(request).await;
                reply.send(done.map_err(|fault| errno(&fault)));
            });
        }
    }
}

fn errno(fault: &Fault) -> Errno {
    match fault {
        Fault::Io(e, _) => *e,
        Fault::NoSpace(_) | Fault::TooBig => Errno::NoSpc,
        Fault::ReadOnly | Fault::Fenced(_) => Errno::RoFs,
        Fault::Closed => Errno::NxIo,
        _ => Errno::Io,
    }
}

impl OpenDisk {
    async fn execute(&self, request: DiskRequest) -> Result<DiskReply, Fault> {
        let OpenDisk { fs, view, ino, .. } = self;
        let changes = matches!(request.op, Op::Write | Op::Delete | Op::WriteZeroes);
        if changes && *view != View::Live {
            return Err(Fault::ReadOnly);
        }
        let mut answer = DiskReply::default();
        match request.op {
            Op::Read => answer.data = self.read(request.offset, request.length).await?,
            Op::Write => self.write(request.offset, &request.data).await?,
            Op::Delete | Op::WriteZeroes => {
                let mut done = 0;
                while done < request.length {
                    let (at, left) = (request.offset + done, request.length - done);
                    done += fs.run(|f| f.clear(*ino, at, left, ADM)).await?;
                }
            }
            Op::Flush => fs.sync().await?,
            Op::Map => {
                let (from, length) = (request.offset, request.length);
                let at = fs.run(|f| f.is_mapped(*view, *ino, from, length)).await?;
                answer.value = Some(if at.0 { MAPPED } else { HOLE });
                answer.completed = at.1;
            }
            Op::GetAttr => {}
        }
        if request.fua && changes {
            fs.sync().await?;
        }
        Ok(answer)
    }

    /// Bytes behind the end of the file, which may have been cut, are zero.
    async fn read(&self, offset: u64, length: u64) -> Result<Vec<u8>, Fault> {
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let mut out = Vec::with_capacity(length);
        while out.len() < length {
            let (at, left) = (offset + out.len() as u64, (length - out.len()).min(PIECE));
            let mut segs = Vec::new();
            let n = self.fs.run(|f| {
                segs.clear();
                f.read(self.view, self.ino, at, left, &mut segs)
            });
            if n.await? == 0 {
                break;
            }
            segs.iter().for_each(|s| s.with(|b| out.extend_from_slice(b)));
        }
        out.resize(length, 0);
        Ok(out)
    }

    async fn write(&self, offset: u64, data: &[u8]) -> Result<(), Fault> {
        let mut at = offset;
        for some in data.chunks(PIECE) {
            let segs = [self.host.buffer(some).await];
            self.fs.run(|f| f.write(self.ino, at, &segs, ADM)).await?;
            at += some.len() as u64;
        }
        Ok(())
    }
}
