//! Requests of the kernel at a unit, and their answers.

use std::rc::Rc;
use std::task::Waker;

use bio::{Pool, Segs};
use wire::fuse::codes::{errno, whence};
use wire::fuse::reply;
use wire::nbd::codes::{allocation, kind};
use wire::nbd::{Error, Request, command};

use super::fuse_channel::FuseChannel;
use crate::block_requests::{BlockSession, Frontend, SessionEnd};

/// A session of this machine at one unit.
pub(super) type LocalSession = BlockSession<Client>;

/// The kernel's side of a session. `cookie` of a request is the kernel's name for it. `flags` of
/// READ holds the bytes before its first one in the first block; `flags` of BLOCK_STATUS holds the
/// kind that is looked for.
pub(super) struct Client {
    pub channel: Rc<FuseChannel>,
}

impl Client {
    fn send_short(&self, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut out = Vec::with_capacity(reply::REPLY_MAX);
        fill(&mut out);
        self.channel.send(&out, &Segs::new());
    }
}

/// Result of LSEEK from a reply to GET LBA STATUS.
enum SeekResult {
    At(u64),
    Nothing,
}

fn seek(session: &LocalSession, request: &Request, data: &Segs, at: u64, now: u64) -> SeekResult {
    let device = session.device();
    let zeroes = device.provisioning().reads_zero;
    let list = command::extents(&data.to_vec(), device.block_bytes(), at, now, zeroes);
    let hole = |flags: u32| flags & allocation::HOLE != 0 && zeroes;
    let want_hole = u32::from(request.flags) == whence::HOLE;
    let mut from = at;
    for extent in list {
        if hole(extent.flags) == want_hole {
            return SeekResult::At(from.max(request.offset));
        }
        from = from.saturating_add(extent.len);
    }
    let end = at.saturating_add(now);
    match want_hole {
        // There is a hole behind the end, and a range without reported status is data.
        true => SeekResult::At(end),
        false if from >= end => SeekResult::Nothing,
        false => SeekResult::At(from.max(request.offset)),
    }
}

impl Frontend for Client {
    fn kick(&self) {
        self.channel.kick();
    }

    fn watch(&self, waker: &Waker) {
        self.channel.watch(waker);
    }

    fn segs(&self) -> Segs {
        self.channel.segs()
    }

    fn put_segs(&self, segs: Segs) {
        self.channel.put_segs(segs);
    }

    fn pool(&self) -> &Pool {
        &self.channel.pool
    }

    fn backlog(&self) -> usize {
        // The kernel takes a reply at once.
        0
    }

    fn session_over(&self, over: SessionEnd) {
        self.channel.end(match over {
            SessionEnd::Exchanged => "the LUN maps another unit now".to_owned(),
            SessionEnd::Closed(reason) => format!("closed: {reason:?}"),
        });
    }

    fn data(session: &LocalSession, tag: u32, data: &Segs) -> bool {
        let Some((request, now)) = session.with(tag, |p| {
            p.begun = true;
            (p.request, p.current_bytes)
        }) else {
            return false;
        };
        let client = &session.frontend;
        let (skip, len) = (usize::from(request.flags), usize::try_from(request.len).unwrap_or(0));
        if data.len() as u64 != now {
            // A unit that became smaller under way.
            session.with(tag, |p| p.begun = false);
            session.finish_request(tag, Some(Error::Io));
            return false;
        }
        let head = reply::head(request.cookie, len);
        if skip == 0 && len == data.len() {
            client.channel.send(&head, data);
            return true;
        }
        let mut part = client.channel.segs();
        let fits = data.slice_into(skip, len, &mut part);
        match fits {
            true => client.channel.send(&head, &part),
            false => client.channel.send(&reply::error(request.cookie, errno::INVAL), &Segs::new()),
        }
        client.channel.put_segs(part);
        true
    }

    fn status(session: &LocalSession, tag: u32, data: &Segs) {
        let Some((request, at, now)) = session.with(tag, |p| {
            p.begun = true;
            (p.request, p.at, p.current_bytes)
        }) else {
            return;
        };
        match seek(session, &request, data, at, now) {
            SeekResult::At(offset) => session.frontend.send_short(|out| {
                reply::offset(request.cookie, offset, out);
            }),
            SeekResult::Nothing => {
                let error = reply::error(request.cookie, errno::NXIO);
                session.frontend.channel.send(&error, &Segs::new());
            }
        }
        session.finish_request(tag, None);
    }

    fn interrupted(session: &LocalSession, request: &Request) {
        session.frontend.channel.send(&reply::error(request.cookie, errno::INTR), &Segs::new());
    }

    fn reply(session: &LocalSession, request: &Request, error: Option<Error>, begun: bool) {
        let line = &session.frontend.channel;
        match error {
            _ if begun => {}
            Some(error) => line.send(&reply::error(request.cookie, error.code()), &Segs::new()),
            None if request.kind == kind::WRITE => {
                let bytes = u32::try_from(request.len).unwrap_or(u32::MAX);
                line.send(&reply::written(request.cookie, bytes), &Segs::new());
            }
            None => line.send(&reply::head(request.cookie, 0), &Segs::new()),
        }
    }
}
