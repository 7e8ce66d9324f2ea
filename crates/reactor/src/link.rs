//! Raw Ethernet: whole frames of one type at an interface, many a call.
//!
//! ```text
//!   send: queued --flush--> sent, or dropped: too long, or the interface's queue is full
//!                  ^  |
//!                  +--+  the socket holds too much already: `writable`, then flush again
//! ```
//! A frame may be lost, doubled, late or overtaken, as on any wire: that is its protocol's matter.
//!
//! Invariants
//!  K1  Memory of a queued frame is held until the frame was sent or dropped.
//!  K2  Nothing is allocated for a frame once its place in the queue was used before.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use bio::Segs;

use crate::backend::link::{Inbox, Outbox, facts, open};
use crate::net::Pending;
use crate::ops::Op;
use crate::reactor::Reactor;
use crate::socket::Socket;

/// Shortest frame without its checksum, bytes: shorter ones are filled up with zeroes.
pub const FRAME_MIN: usize = 60;

/// Bytes before the payload of a frame: two addresses and a type.
pub const ETHERNET_LEN: usize = 14;

/// Frames that wait for `flush`; a further one has to wait (`WouldBlock`).
pub const FRAMES_QUEUED_MAX: usize = 256;

/// The state of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LinkFacts {
    /// Its number.
    pub index: u32,
    /// Its address.
    pub mac: [u8; 6],
    /// Longest payload of a frame, bytes.
    pub mtu: u32,
    /// It is up and its wire is there.
    pub up: bool,
}

/// How frames are received from the kernel; they are sent by calls, many a call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum LinkMode {
    /// A ring where the kernel gives one for frames of this length, else calls.
    #[default]
    Auto,
    /// Memory shared with the kernel (PACKET_MMAP), or an error.
    Ring,
    /// Calls that copy, many frames a call.
    Calls,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LinkCounts {
    pub frames_in: u64,
    /// Their bytes.
    pub bytes_in: u64,
    pub frames_out: u64,
    /// Their bytes.
    pub bytes_out: u64,
    /// Frames that the interface did not take: too long, or its queue was full.
    pub dropped: u64,
    /// Received frames that were longer than the interface's MTU allows.
    pub oversized: u64,
}

/// A frame that waits to be sent.
#[derive(Default)]
pub(crate) struct QueuedFrame {
    pub(crate) head: Vec<u8>,
    pub(crate) rest: Segs,
}

impl QueuedFrame {
    /// Length including the padding.
    pub(crate) fn len(&self) -> usize {
        self.head.len() + self.rest.len() + self.padding()
    }

    /// Zeroes that it lacks.
    pub(crate) fn padding(&self) -> usize {
        FRAME_MIN.saturating_sub(self.head.len() + self.rest.len())
    }
}

/// Frames that wait: those before `first` are out.
#[derive(Default)]
struct Queue {
    places: Vec<QueuedFrame>,
    first: usize,
    end: usize,
    outbox: Outbox,
}

impl Queue {
    fn push(&mut self, head: &[u8], rest: &Segs) -> io::Result<()> {
        if self.end == FRAMES_QUEUED_MAX {
            if self.first == 0 {
                return Err(io::ErrorKind::WouldBlock.into());
            }
            self.places.rotate_left(self.first);
            self.end -= self.first;
            self.first = 0;
        }
        if self.end == self.places.len() {
            self.places.push(QueuedFrame::default());
        }
        let place = &mut self.places[self.end];
        // K2: whatever the place is used for next.
        place.head.reserve(head.len().max(FRAME_MIN));
        place.head.extend_from_slice(head);
        if rest.is_empty() {
            // The kernel gets one range instead of two.
            place.head.resize(head.len().max(FRAME_MIN), 0);
        }
        rest.iter().for_each(|seg| place.rest.push(seg.clone()));
        self.end += 1;
        Ok(())
    }

    fn waiting(&self) -> &[QueuedFrame] {
        &self.places[self.first..self.end]
    }

    /// The first `n` that wait are out, or dropped.
    fn leave(&mut self, n: usize) {
        for place in &mut self.places[self.first..self.first + n] {
            place.head.clear();
            place.rest.clear();
        }
        self.first += n;
        if self.first == self.end {
            (self.first, self.end) = (0, 0);
        }
    }
}

struct Inner {
    interface: String,
    socket: Rc<Socket>,
    inbox: RefCell<Inbox>,
    queue: RefCell<Queue>,
    counts: Cell<LinkCounts>,
}

/// Frames of one type at an interface. Closed with the last clone.
#[derive(Clone)]
pub struct Link {
    reactor: Reactor,
    inner: Rc<Inner>,
}

impl Reactor {
    /// Frames of a type at an interface, from now on; in simulation, at a station of that name.
    /// `NotFound` when there is none, `PermissionDenied` without CAP_NET_RAW.
    pub fn link(&self, interface: &str, ethertype: u16) -> io::Result<Link> {
        self.link_by(interface, ethertype, LinkMode::Auto)
    }

    /// The same, by a way. `Unsupported` where frames are too long for the requested ring.
    pub fn link_by(&self, interface: &str, ethertype: u16, way: LinkMode) -> io::Result<Link> {
        let named = |e: io::Error| named(interface, e);
        let world = self.inner.world.as_ref();
        let (socket, inbox) = match world {
            Some(world) => {
                (Socket::tap(world, interface, ethertype).map_err(named)?, Inbox::none())
            }
            None => {
                let socket = Socket::channel(open(interface, ethertype).map_err(named)?)?;
                let fd = socket.fd().ok_or(io::ErrorKind::Unsupported)?;
                let mtu = facts(fd, interface).map_err(named)?.mtu;
                let inbox = Inbox::new(fd, way, frame_bytes_max(mtu)).map_err(named)?;
                (socket, inbox)
            }
        };
        let inner = Inner {
            interface: interface.to_owned(),
            socket,
            inbox: RefCell::new(inbox),
            queue: RefCell::default(),
            counts: Cell::default(),
        };
        Ok(Link { reactor: self.clone(), inner: Rc::new(inner) })
    }
}

/// Whether [`Reactor::link`] could receive frames of a type at an interface, without keeping a
/// socket there. Fails with the errors of [`Reactor::link`].
pub fn check_interface(interface: &str, ethertype: u16) -> io::Result<()> {
    open(interface, ethertype).map(drop).map_err(|e| named(interface, e))
}

fn named(interface: &str, e: io::Error) -> io::Error {
    io::Error::new(kind(&e), format!("{interface}: {e}"))
}

/// Bytes of a frame, as long as it may be.
fn frame_bytes_max(mtu: u32) -> usize {
    ETHERNET_LEN + usize::try_from(mtu).unwrap_or(0)
}

/// The kernel's own words for an interface that is not there.
const ENODEV: i32 = 19;
const ENXIO: i32 = 6;
const ENETDOWN: i32 = 100;
const ENOBUFS: i32 = 105;
const EMSGSIZE: i32 = 90;

fn kind(e: &io::Error) -> io::ErrorKind {
    match e.raw_os_error() {
        Some(ENODEV | ENXIO) => io::ErrorKind::NotFound,
        _ => e.kind(),
    }
}

impl Link {
    pub fn interface(&self) -> &str {
        &self.inner.interface
    }

    /// The current state of the interface. It takes some system calls, so do not call it for each
    /// frame. If the MTU has grown, the receive buffers grow too. `NotFound`: the interface
    /// was removed.
    pub fn facts(&self) -> io::Result<LinkFacts> {
        let found = match self.inner.socket.fd() {
            None => self.inner.socket.tap_facts(),
            Some(fd) => facts(fd, &self.inner.interface),
        };
        let found = found
            .map_err(|e| io::Error::new(kind(&e), format!("{}: {e}", self.inner.interface)))?;
        if let Some(fd) = self.inner.socket.fd()
            && let Ok(mut inbox) = self.inner.inbox.try_borrow_mut()
        {
            inbox.grow(fd, frame_bytes_max(found.mtu))?;
        }
        Ok(found)
    }

    /// How frames are received: by a ring or by calls.
    pub fn mode(&self) -> LinkMode {
        self.inner.inbox.try_borrow().map_or(LinkMode::Auto, |inbox| inbox.mode())
    }

    /// Waits until frames may be there. `NetworkDown`: the interface is down; when it is up
    /// again frames arrive again, but one that was removed and added is another: open it anew.
    pub async fn ready(&self) -> io::Result<()> {
        self.wait(false).await
    }

    /// Waits until frames that `flush` left behind may be sent.
    pub async fn writable(&self) -> io::Result<()> {
        match self.inner.socket.fd() {
            Some(_) => self.wait(true).await,
            None => Ok(()),
        }
    }

    async fn wait(&self, out: bool) -> io::Result<()> {
        let op = Op::Ready { out };
        let pending: Pending = self.reactor.begin_pending(op, &self.inner.socket, |_| ())?;
        pending.await.map(drop)
    }

    /// Hands over up to `most` received frames, each whole, in memory of the link's own that
    /// is lent for the call. Answers how many; fewer than `most`: no more are there. `take` may
    /// send, and not receive.
    pub fn receive(&self, most: usize, take: &mut dyn FnMut(&[u8])) -> io::Result<usize> {
        let mut counts = self.inner.counts.get();
        let mut count = |frame: Option<&[u8]>| match frame {
            None => counts.oversized += 1,
            Some(frame) => {
                counts.frames_in += 1;
                counts.bytes_in += frame.len() as u64;
                take(frame);
            }
        };
        let Ok(mut inbox) = self.inner.inbox.try_borrow_mut() else { return Ok(0) };
        let got = match self.inner.socket.fd() {
            Some(fd) => inbox.receive(fd, most, &mut count),
            None => self.receive_simulated(most, &mut count),
        };
        drop(inbox);
        let LinkCounts { frames_in, bytes_in, oversized, .. } = counts;
        // Frames may have been sent meanwhile.
        self.count(|now| {
            (now.frames_in, now.bytes_in, now.oversized) = (frames_in, bytes_in, oversized);
        });
        match got {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            got => got,
        }
    }

    fn receive_simulated(
        &self,
        most: usize,
        take: &mut dyn FnMut(Option<&[u8]>),
    ) -> io::Result<usize> {
        for got in 0..most {
            match self.inner.socket.tap_receive(take) {
                Err(e) if got == 0 => return Err(e),
                Ok(0) | Err(_) => return Ok(got),
                Ok(_) => {}
            }
        }
        Ok(most)
    }

    fn count(&self, change: impl FnOnce(&mut LinkCounts)) {
        let mut counts = self.inner.counts.get();
        change(&mut counts);
        self.inner.counts.set(counts);
    }

    /// Queues a frame: `head`, which begins with the Ethernet header and is copied, and `rest`,
    /// whose segments are held until it is sent (K1). `WouldBlock`: too many wait.
    pub fn send(&self, head: &[u8], rest: &Segs) -> io::Result<()> {
        self.inner.queue.borrow_mut().push(head, rest)
    }

    /// Frames that wait to be sent.
    pub fn queued(&self) -> usize {
        self.inner.queue.borrow().waiting().len()
    }

    /// Sends queued frames and returns the number sent. Frames that the kernel does not accept yet
    /// stay queued ([`Link::queued`]). Frames that the interface rejects, too long or too many, are
    /// dropped and counted. An interface that is down accepts none.
    pub fn flush(&self) -> io::Result<usize> {
        let mut queue = self.inner.queue.borrow_mut();
        let mut went = 0;
        while !queue.waiting().is_empty() {
            let Queue { places, first, end, outbox } = &mut *queue;
            let waiting = &places[*first..*end];
            let sent = match self.inner.socket.fd() {
                Some(fd) => outbox.send(fd, waiting),
                None => self.inner.socket.tap_send(&waiting[0]).map(|()| 1),
            };
            match sent {
                Ok(n) => {
                    let bytes: usize = waiting.iter().take(n).map(QueuedFrame::len).sum();
                    self.count(|c| {
                        c.frames_out += n as u64;
                        c.bytes_out += bytes as u64;
                    });
                    went += n;
                    queue.leave(n);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
                Err(e) => {
                    let one = matches!(e.raw_os_error(), Some(ENOBUFS | EMSGSIZE));
                    let lost = if one { 1 } else { queue.waiting().len() };
                    self.count(|c| c.dropped += lost as u64);
                    queue.leave(lost);
                    if !one {
                        return Err(e);
                    }
                }
            }
        }
        Ok(went)
    }

    /// The traffic counters so far.
    pub fn counts(&self) -> LinkCounts {
        self.inner.counts.get()
    }
}

/// Of a simulated interface.
pub(crate) fn down_error() -> io::Error {
    io::Error::from_raw_os_error(ENETDOWN)
}

/// Of a simulated interface.
pub(crate) fn too_long_error() -> io::Error {
    io::Error::from_raw_os_error(EMSGSIZE)
}
