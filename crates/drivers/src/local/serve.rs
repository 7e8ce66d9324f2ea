//! One file system: requests are read, answered on the spot, or handed on to the unit.
//!
//! ```text
//!   login --refused--> gone
//!     | GOOD
//!   SERVING --unmounted, kicked, unit exchanged--> ENDING (commands aborted) --> gone
//! ```
//! Reading, answering and going on with requests are one task.
//!
//! Invariants
//!  V1  Every request that wants a reply gets one, or the descriptor is closed, which ends all.
//!  V2  There is space for the longest request before one is read.

use std::future::{Future, poll_fn};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::SyncSender;
use std::task::Poll;

use bio::{Errno, Segs};
use engine::{Device, Transport};
use geom::Error as GeomError;
use reactor::ChannelEnd;
use wire::fuse::codes::{MAJOR, ROOT, errno, fallocate, init_flag, open_flag, whence};
use wire::fuse::reply::{self, Attributes, Entry};
use wire::fuse::{Operation, REQUEST_HEAD, Request as Asked, WRITE_HEAD};
use wire::nbd::codes::kind;
use wire::nbd::{Error, Request};

use super::client::{Client, LocalSession};
use super::fuse_channel::FuseChannel;
use super::per_core::CoreState;
use super::processes::Processes;
use super::{GrantedLun, ServingState};
use crate::block_requests::{BlockSession, Work};

/// Longest READ or WRITE, bytes: the kernel cuts longer ones.
pub const REQUEST_MAX: u32 = 512 * 1024;

/// Most background requests of one file at once; the kernel holds further ones back.
const BACKGROUND: u16 = 128;

/// Node of the file.
const FILE: u64 = 2;

/// Bits of SETATTR that change stored attributes: mode, owner, group, size.
const SETATTR_KEPT: u32 = 0b1111;

/// How a file may be opened: the bits for the kind of access, of open(2).
const ACCESS_MODE: u32 = 3;

const PERM: u32 = 1;

/// Longest READ or WRITE at a unit, bytes; a multiple of its blocks.
pub fn request_max(device: &Device) -> u32 {
    let unit = device.block_bytes().max(1);
    (device.transfer_max().min(REQUEST_MAX) / unit).max(1).saturating_mul(unit)
}

/// A file system under way.
struct FuseServer {
    per_core: Rc<CoreState>,
    processes: Processes,
    channel: Rc<FuseChannel>,
    session: Rc<LocalSession>,
    grant: GrantedLun,
    name: Vec<u8>,
}

pub(super) async fn run(
    core_state: Rc<CoreState>,
    channel: ChannelEnd,
    grant: GrantedLun,
    life: Arc<ServingState>,
    done: SyncSender<Result<(), GeomError>>,
) {
    let files = match enter(&core_state, channel, grant) {
        Ok(files) => files,
        Err(e) => {
            // The caller may have ended; it sees `life` end as well.
            let _ = done.send(Err(e));
            return life.end();
        }
    };
    core_state.files.set(core_state.files.get() + 1);
    let _ = done.send(Ok(()));
    let unit = files.grant.entry.device.name();
    tracing::info!(target: "local", "{unit}: attached");
    let why = files.drive(files.read()).await;
    tracing::info!(target: "local", "{unit}: no longer attached: {why}");
    let FuseServer { channel: line, session, .. } = files;
    session.finish().await;
    drop((session, line));
    core_state.files.set(core_state.files.get().saturating_sub(1));
    life.end();
}

fn enter(
    core_state: &Rc<CoreState>,
    end: ChannelEnd,
    grant: GrantedLun,
) -> Result<FuseServer, GeomError> {
    let system = |e: io::Error| GeomError::new(Errno::Io, format!("/dev/fuse: {e}"));
    let channel = core_state.engine.core().reactor().channel(end).map_err(system)?;
    core_state.writes_for_kernel();
    let line = Rc::new(FuseChannel::new(channel, core_state.pool.clone()));
    let entry = grant.entry.clone();
    let session =
        BlockSession::new(Client { channel: line.clone() }, entry.device.clone(), entry.lun);
    let transport: Rc<dyn Transport> = session.clone();
    let nexus = core_state.engine.login(core_state.login(&grant), transport);
    session.attach(nexus.map_err(|refused| GeomError::new(Errno::Perm, refused.text))?);
    let name = entry.device.name().replace('/', "-").into_bytes();
    let (core_state, processes) = (core_state.clone(), Processes::default());
    Ok(FuseServer { per_core: core_state, processes, channel: line, session, grant, name })
}

impl FuseServer {
    /// Runs the reader until the file system ends; answers why.
    async fn drive(&self, reader: impl Future<Output = String>) -> String {
        let mut reader = pin!(reader);
        poll_fn(|cx| {
            self.channel.watch(cx.waker());
            self.channel.polling(true);
            let end = loop {
                self.channel.clear_needs_poll();
                if let Some(why) = self.channel.end_reason() {
                    break Some(why);
                }
                if let Poll::Ready(why) = reader.as_mut().poll(cx) {
                    break Some(why);
                }
                self.session.issue_ready();
                if !self.channel.needs_poll() {
                    break None;
                }
            };
            self.channel.polling(false);
            end.map_or(Poll::Pending, Poll::Ready)
        })
        .await
    }

    /// Reads and carries out requests until there are none any more.
    async fn read(&self) -> String {
        let mut head = [0; WRITE_HEAD];
        let mut rest = Segs::new();
        let request_max = usize::try_from(REQUEST_MAX).unwrap_or(usize::MAX);
        loop {
            self.session.wait_below_depth().await;
            // V2
            poll_fn(|cx| {
                match rest.grow(&self.channel.pool, request_max.saturating_sub(rest.len())) {
                    true => Poll::Ready(()),
                    false => {
                        self.channel.pool.wake_on_free(cx.waker());
                        Poll::Pending
                    }
                }
            })
            .await;
            match self.channel.fuse.read(&mut head, &rest) {
                Ok(len) => {
                    if let Err(why) = self.message(&head, &mut rest, len) {
                        return why;
                    }
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    if let Err(e) = self.channel.fuse.ready().await {
                        return e.to_string();
                    }
                }
                // The request was withdrawn before it was read, or a signal arrived.
                Err(e)
                    if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::Interrupted) => {
                }
                Err(e) if e.raw_os_error() == Some(19) => return "unmounted".to_owned(),
                Err(e) => return e.to_string(),
            }
        }
    }

    /// One message of `len` bytes: the first in `head`, the others in `rest`.
    fn message(&self, head: &[u8; WRITE_HEAD], rest: &mut Segs, len: usize) -> Result<(), String> {
        let mut long = Vec::new();
        let mut bytes = head.get(..len.min(WRITE_HEAD)).unwrap_or(&[]);
        let is_write = matches!(
            Asked::decode(bytes, len),
            Ok(Asked { operation: Operation::Write { .. }, .. })
        );
        if len > WRITE_HEAD && !is_write {
            long.extend_from_slice(bytes);
            long.resize(len, 0);
            rest.copy_to(0, long.get_mut(WRITE_HEAD..).unwrap_or(&mut []));
            bytes = &long;
        }
        match Asked::decode(bytes, len) {
            Ok(received) => {
                let now = self.per_core.engine.core().now();
                self.session.set_process(self.processes.of(received.header.pid, now));
                self.carry_out(&received, rest);
                Ok(())
            }
            Err(e) if len < REQUEST_HEAD => Err(format!("not a request: {e}")),
            Err(e) => {
                tracing::warn!(target: "local", "a request of the kernel is invalid: {e}");
                let header = wire::fuse::Header::decode(bytes).map_err(|e| e.to_string())?;
                self.error(header.unique, errno::PROTO);
                Ok(())
            }
        }
    }

    fn error(&self, unique: u64, errno: u32) {
        self.channel.send(&reply::error(unique, errno), &Segs::new());
    }

    fn short(&self, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::with_capacity(reply::REPLY_MAX);
        fill(&mut out);
        self.channel.send(&out, &Segs::new());
    }

    fn device(&self) -> &Arc<Device> {
        &self.grant.entry.device
    }

    fn attributes(&self, node: u64) -> Option<Attributes> {
        let spec = self.device().spec();
        let block = spec.physical_bytes.max(self.device().block_bytes());
        match node {
            ROOT => Some(Attributes { node, size: 0, folder: true, read_only: false, block }),
            FILE => {
                let (size, read_only) = (self.grant.bytes(), self.grant.read_only);
                Some(Attributes { node, size, folder: false, read_only, block })
            }
            _ => None,
        }
    }

    fn carry_out(&self, received: &Asked<'_>, rest: &mut Segs) {
        let (unique, node) = (received.header.unique, received.header.node);
        let ok = || self.channel.send(&reply::head(unique, 0), &Segs::new());
        match received.operation {
            Operation::Init { major, flags, readahead, .. } => {
                self.init(unique, major, flags, readahead);
            }
            Operation::Forget => {}
            Operation::Lookup { name } => match self.attributes(FILE) {
                Some(a) if node == ROOT && name == self.name => {
                    self.short(|out| reply::entry(unique, &a, out));
                }
                _ => self.error(unique, errno::NOENT),
            },
            Operation::Setattr { valid } if valid & SETATTR_KEPT != 0 => self.error(unique, PERM),
            Operation::Getattr | Operation::Setattr { .. } => match self.attributes(node) {
                Some(a) => self.short(|out| reply::attributes(unique, &a, out)),
                None => self.error(unique, errno::NOENT),
            },
            Operation::Open { flags } => self.open(unique, node, flags),
            Operation::Opendir if node == ROOT => self.short(|out| reply::open(unique, 0, out)),
            Operation::Opendir => self.error(unique, errno::NOTDIR),
            Operation::Readdir { offset, size } => self.entries(unique, node, offset, size),
            Operation::Statfs => {
                let block = self.attributes(FILE).map_or(512, |a| a.block);
                let bytes = self.grant.bytes();
                self.short(|out| reply::statfs(unique, bytes, block, out));
            }
            // A descriptor that is closed promises nothing; FSYNC does.
            Operation::Flush
            | Operation::Release
            | Operation::Releasedir
            | Operation::Fsyncdir
            | Operation::Access
            | Operation::Destroy => ok(),
            // No reply: the request itself has one.
            Operation::Interrupt { unique } => self.session.interrupt(unique),
            // The kernel does not repeat it.
            Operation::Other => self.error(unique, errno::NOSYS),
            _ if node != FILE => self.error(unique, errno::ISDIR),
            Operation::Read { offset, size } => self.read_at(unique, offset, size),
            Operation::Write { offset, size } => self.write_at(unique, offset, size, rest),
            Operation::Fsync => {
                let request = self.request(unique, kind::FLUSH, 0, 0);
                self.session.start(request, Work::Flush, 0);
            }
            Operation::Fallocate { offset, len, mode } => self.clear(unique, offset, len, mode),
            Operation::Lseek { offset, whence } => self.seek(unique, offset, whence),
        }
    }

    fn request(&self, unique: u64, kind: u16, offset: u64, len: u64) -> Request {
        Request { flags: 0, kind, cookie: unique, offset, len }
    }

    fn init(&self, unique: u64, major: u32, flags: u32, readahead: u32) {
        if major < MAJOR {
            return self.error(unique, errno::PROTO);
        }
        if major > MAJOR {
            return self.short(|out| reply::init_version(unique, out));
        }
        use init_flag as f;
        let want = f::ASYNC_READ | f::BIG_WRITES | f::ASYNC_DIO | f::MAX_PAGES;
        let write_max = request_max(self.device());
        let init = reply::Init {
            readahead,
            flags: flags & want,
            background: BACKGROUND,
            write_max,
            pages_max: u16::try_from(write_max / 4096).unwrap_or(u16::MAX).max(1),
        };
        self.short(|out| reply::init(unique, &init, out));
    }

    fn open(&self, unique: u64, node: u64, flags: u32) {
        if node != FILE {
            return self.error(unique, errno::ISDIR);
        }
        if self.grant.read_only && flags & ACCESS_MODE != 0 {
            return self.error(unique, errno::ROFS);
        }
        let how = open_flag::DIRECT_IO | open_flag::PARALLEL_DIRECT_WRITES;
        self.short(|out| reply::open(unique, how, out));
    }

    fn entries(&self, unique: u64, node: u64, offset: u64, size: u32) {
        if node != ROOT {
            return self.error(unique, errno::NOTDIR);
        }
        let all = [
            Entry { node: ROOT, name: b".", folder: true },
            Entry { node: ROOT, name: b"..", folder: true },
            Entry { node: FILE, name: &self.name, folder: false },
        ];
        // A reply is not longer than a request may be.
        let size = size.min(REQUEST_MAX);
        self.short(|out| reply::entries(unique, &all, offset, size, out));
    }

    /// Reads whole blocks and answers the requested bytes. Answers fewer where the unit ends, or
    /// where a long request does not begin and end on block boundaries.
    fn read_at(&self, unique: u64, offset: u64, size: u32) {
        let unit = u64::from(self.device().block_bytes());
        let end = offset.saturating_add(u64::from(size)).min(self.grant.bytes());
        if offset >= end {
            return self.channel.send(&reply::head(unique, 0), &Segs::new());
        }
        let first = offset / unit * unit;
        let most = first.saturating_add(u64::from(request_max(self.device())));
        let end = end.min(most);
        let last = end.div_ceil(unit).saturating_mul(unit);
        let skip = u16::try_from(offset - first);
        let Ok(skip) = skip else { return self.error(unique, errno::INVAL) };
        let mut request = self.request(unique, kind::READ, offset, end - offset);
        request.flags = skip;
        self.session.start_at(request, Work::Read, first, last - first);
    }

    fn write_at(&self, unique: u64, offset: u64, size: u32, rest: &mut Segs) {
        let request = self.request(unique, kind::WRITE, offset, u64::from(size));
        if let Err(error) = self.session.check_range(&request, Work::Write) {
            return self.session.refuse(&request, error);
        }
        let len = usize::try_from(size).unwrap_or(usize::MAX);
        let mut data = self.channel.segs();
        if !rest.slice_into(0, len, &mut data) {
            return self.session.refuse(&request, Error::Inval);
        }
        // The segments with data belong to the request; the others are used again.
        let mut left = self.channel.segs();
        let mut at = 0usize;
        for seg in rest.iter() {
            if at >= len {
                left.push(seg.clone());
            }
            at = at.saturating_add(seg.len());
        }
        std::mem::swap(rest, &mut left);
        self.channel.put_segs(left);
        self.session.start_write(request, offset, data, None);
    }

    /// A hole reads as zeroes, which UNMAP does not promise of every block: so it is WRITE SAME
    /// that may unmap.
    fn clear(&self, unique: u64, offset: u64, len: u64, mode: u32) {
        let work = match mode & !fallocate::KEEP_SIZE {
            fallocate::PUNCH_HOLE if self.device().spec().can_delete => Work::Zero(true),
            fallocate::ZERO_RANGE => Work::Zero(false),
            _ => return self.error(unique, errno::OPNOTSUPP),
        };
        let request = self.request(unique, kind::WRITE_ZEROES, offset, len);
        match self.session.check_range(&request, work) {
            Ok(()) => self.session.start(request, work, len),
            Err(error) => self.session.refuse(&request, error),
        }
    }

    fn seek(&self, unique: u64, offset: u64, wanted: u32) {
        let (unit, size) = (u64::from(self.device().block_bytes()), self.grant.bytes());
        if wanted != whence::DATA && wanted != whence::HOLE {
            return self.error(unique, errno::INVAL);
        }
        if offset >= size {
            return self.error(unique, errno::NXIO);
        }
        let mut request = self.request(unique, kind::BLOCK_STATUS, offset, size - offset);
        request.flags = u16::try_from(wanted).unwrap_or(0);
        let at = offset / unit * unit;
        self.session.start_at(request, Work::Status, at, size - at);
    }
}
