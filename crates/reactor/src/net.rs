//! TCP for conversations: listeners, streams, and the futures of their operations.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bio::{Buf, Direction, Loan, Pool, Seg, Segs};

use crate::ops::{End, On, Op, OpState, SlotId};
use crate::reactor::Reactor;
use crate::socket::{Parcel, Socket};

/// An operation under way. Dropping it cancels the operation; its slot keeps the memory until
/// the completion was reaped.
pub(crate) struct Pending {
    reactor: Reactor,
    id: SlotId,
    over: bool,
}

impl Future for Pending {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut kernel = self.reactor.inner.kernel.borrow_mut();
        let Some(slot) = kernel.slots.get(self.id) else {
            let gone = io::Error::from_raw_os_error(crate::ops::raw::ECANCELED as i32);
            return Poll::Ready(Err(gone));
        };
        let OpState::Done(result) = slot.state else {
            match &mut slot.end {
                End::Future(Some(waker)) => waker.clone_from(cx.waker()),
                end => *end = End::Future(Some(cx.waker().clone())),
            }
            return Poll::Pending;
        };
        kernel.slots.free(self.id);
        drop(kernel);
        self.over = true;
        Poll::Ready(match usize::try_from(result) {
            Ok(n) => Ok(n),
            Err(_) => Err(io::Error::from_raw_os_error(i32::try_from(-result).unwrap_or(i32::MAX))),
        })
    }
}

impl Drop for Pending {
    fn drop(&mut self) {
        if !self.over {
            self.reactor.abandon(self.id);
        }
    }
}

impl Reactor {
    pub(crate) fn begin_pending(
        &self,
        op: Op,
        socket: &Rc<Socket>,
        fill: impl FnOnce(&mut Vec<Loan>),
    ) -> io::Result<Pending> {
        let on = On::Socket(socket.clone());
        let id = self
            .begin(op, on, End::Future(None), fill)
            .map_err(|e| io::Error::from_raw_os_error(e.posix()))?;
        Ok(Pending { reactor: self.clone(), id, over: false })
    }

    /// Listens on `addr` (port 0: any free one) with SO_REUSEADDR. No interface needs to have the
    /// address yet (IP_FREEBIND).
    pub fn listen(&self, addr: SocketAddr) -> io::Result<Listener> {
        self.listen_with(addr, false)
    }

    /// Listens on `addr` together with other cores that do the same (SO_REUSEPORT): the kernel
    /// spreads new connections over them. Otherwise as [`Reactor::listen`].
    pub fn listen_shared(&self, addr: SocketAddr) -> io::Result<Listener> {
        self.listen_with(addr, true)
    }

    fn listen_with(&self, addr: SocketAddr, share: bool) -> io::Result<Listener> {
        let socket = Socket::listen(self.inner.world.as_ref(), addr, share)?;
        Ok(Listener { reactor: self.clone(), local: socket.local_addr()?, socket })
    }

    fn stream(&self, socket: Rc<Socket>, peer: Option<SocketAddr>) -> Stream {
        Stream { reactor: self.clone(), socket, peer }
    }

    /// Makes a connected stream socket this reactor's own. On a simulated reactor every operation
    /// on it fails.
    pub fn adopt(&self, fd: OwnedFd) -> Stream {
        let socket = Socket::adopt(fd);
        let peer = socket.peer_addr();
        self.stream(socket, peer)
    }

    /// Makes a stream that another core gave away this reactor's own. `Unsupported` when one is
    /// simulated and the other is not.
    pub fn attach(&self, parcel: Parcel) -> io::Result<Stream> {
        let socket = Socket::from_parcel(self.inner.world.as_ref(), parcel)
            .ok_or(io::ErrorKind::Unsupported)?;
        let peer = socket.peer_addr();
        Ok(self.stream(socket, peer))
    }

    /// Listens at the path of a Unix socket. A stale socket file, without a listener, is replaced.
    pub fn listen_unix(&self, path: &str) -> io::Result<UnixListener> {
        self.listen_unix_prepared(path, |_| Ok(()))
    }

    /// The same. `prepare` may change the file at the path before a client can connect to it. It is
    /// not called in simulation, where there is no file.
    pub fn listen_unix_prepared(
        &self,
        path: &str,
        prepare: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<UnixListener> {
        let socket = Socket::listen_unix(self.inner.world.as_ref(), path, prepare)?;
        Ok(UnixListener { reactor: self.clone(), socket })
    }

    /// Listens together with the core that made the parcel by [`UnixListener::share`].
    pub fn attach_unix(&self, parcel: Parcel) -> io::Result<UnixListener> {
        let socket = Socket::from_parcel(self.inner.world.as_ref(), parcel)
            .ok_or(io::ErrorKind::Unsupported)?;
        Ok(UnixListener { reactor: self.clone(), socket })
    }

    pub async fn connect_unix(&self, path: &str) -> io::Result<Stream> {
        let socket = Socket::connect_unix(self.inner.world.as_ref(), path)?;
        self.begin_pending(Op::Ready { out: true }, &socket, |_| ())?.await?;
        socket.connected()?;
        Ok(self.stream(socket, None))
    }

    pub async fn connect(&self, addr: SocketAddr) -> io::Result<Stream> {
        let socket = Socket::connect(self.inner.world.as_ref(), addr)?;
        self.begin_pending(Op::Ready { out: true }, &socket, |_| ())?.await?;
        socket.connected()?;
        Ok(self.stream(socket, Some(addr)))
    }
}

/// A listening socket. Dropping it stops listening at once: connections are refused.
pub struct Listener {
    reactor: Reactor,
    socket: Rc<Socket>,
    local: SocketAddr,
}

impl Listener {
    /// Where it listens.
    pub fn local_addr(&self) -> SocketAddr {
        self.local
    }

    /// The next connection. Out of descriptors (EMFILE) is an error to wait out and try again.
    pub async fn accept(&self) -> io::Result<(Stream, SocketAddr)> {
        loop {
            if let Some((socket, peer)) = self.socket.accept()? {
                let peer = peer.ok_or(io::ErrorKind::AddrNotAvailable)?;
                return Ok((self.reactor.stream(socket, Some(peer)), peer));
            }
            let op = Op::Ready { out: false };
            self.reactor.begin_pending(op, &self.socket, |_| ())?.await?;
        }
    }
}

/// A cancelled accept keeps the socket open until its completion is reaped.
impl Drop for Listener {
    fn drop(&mut self) {
        self.socket.close();
    }
}

/// A listening Unix socket. Dropping the last handle stops listening. The path stays, and the next
/// listener at this path replaces it.
pub struct UnixListener {
    reactor: Reactor,
    socket: Rc<Socket>,
}

impl UnixListener {
    /// The next connection, of the core that accepts first when several share the socket.
    pub async fn accept(&self) -> io::Result<Stream> {
        loop {
            if let Some((socket, _)) = self.socket.accept()? {
                return Ok(self.reactor.stream(socket, None));
            }
            let op = Op::Ready { out: false };
            self.reactor.begin_pending(op, &self.socket, |_| ())?.await?;
        }
    }

    /// The same socket for another core, which makes it its own by [`Reactor::attach_unix`].
    pub fn share(&self) -> io::Result<Parcel> {
        self.socket.share()
    }
}

/// A connected stream socket. Clones share it (a reader's and a writer's task); it is closed with
/// the last of them and the last operation under way.
#[derive(Clone)]
pub struct Stream {
    reactor: Reactor,
    socket: Rc<Socket>,
    peer: Option<SocketAddr>,
}

impl Stream {
    /// Receives the next bytes of the stream, at most `into.len()`; 0 at the end of the stream.
    pub async fn recv(&self, into: &Seg) -> io::Result<usize> {
        let op = Op::Recv { all: false };
        let fill = |loans: &mut Vec<Loan>| loans.push(into.lend(Direction::In));
        self.reactor.begin_pending(op, &self.socket, fill)?.await
    }

    /// Waits until there is something to receive: bytes, the end of the stream, or an error. A
    /// connection that waits so holds no memory.
    pub async fn readable(&self) -> io::Result<()> {
        let op = Op::Ready { out: false };
        self.reactor.begin_pending(op, &self.socket, |_| ())?.await.map(drop)
    }

    /// A buffer of at least `len` bytes to receive into; waits while the pool is exhausted.
    pub async fn buffer(&self, pool: &Pool, len: usize) -> Buf {
        poll_fn(|cx| match pool.get(len) {
            Some(buf) => Poll::Ready(buf),
            None => {
                pool.wake_on_free(cx.waker());
                self.reactor.flush_lazy_sends();
                Poll::Pending
            }
        })
        .await
    }

    /// As [`Stream::recv`], into several pieces one behind the other.
    pub async fn recv_spread(&self, into: &Segs) -> io::Result<usize> {
        if into.is_empty() {
            return Ok(0);
        }
        let op = Op::Recv { all: false };
        let fill = |loans: &mut Vec<Loan>| loans.extend(into.iter().map(|s| s.lend(Direction::In)));
        self.reactor.begin_pending(op, &self.socket, fill)?.await
    }

    /// Receives exactly `into.len()` bytes, placed straight in `into`. `UnexpectedEof` when the
    /// stream ends first.
    pub async fn recv_exact(&self, into: &Segs) -> io::Result<()> {
        if into.is_empty() {
            return Ok(());
        }
        let op = Op::Recv { all: true };
        let fill = |loans: &mut Vec<Loan>| loans.extend(into.iter().map(|s| s.lend(Direction::In)));
        let got = self.reactor.begin_pending(op, &self.socket, fill)?.await?;
        if got < into.len() {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(())
    }

    /// Sends all of `out`, which is emptied at once and keeps its capacity. After an error or a
    /// drop some bytes may have been sent: the stream is of no further use.
    pub async fn send(&self, out: &mut Vec<Seg>) -> io::Result<()> {
        self.send_as(Op::Send { lazily: false }, out).await
    }

    /// Like [`Stream::send`], for data that no other work depends on. If all of it was sent at
    /// once, the reactor reports the completion with its next event and does not wake for it. Do
    /// not use it while requests wait for buffer memory, or if more data follows.
    pub async fn send_lazily(&self, out: &mut Vec<Seg>) -> io::Result<()> {
        self.send_as(Op::Send { lazily: true }, out).await
    }

    async fn send_as(&self, op: Op, out: &mut Vec<Seg>) -> io::Result<()> {
        if out.iter().all(Seg::is_empty) {
            out.clear();
            return Ok(());
        }
        let fill = |loans: &mut Vec<Loan>| {
            loans.extend(out.drain(..).map(|s| s.into_loan(Direction::Out)));
        };
        self.reactor.begin_pending(op, &self.socket, fill)?.await?;
        Ok(())
    }

    /// Ends the sending direction: the peer reads the end of the stream.
    pub fn shutdown(&self) -> io::Result<()> {
        self.socket.shutdown_write()
    }

    /// Ends both directions now; operations under way end too, receives with 0 bytes, sends
    /// with an error.
    pub fn close(&self) {
        self.socket.close();
    }

    /// The peer shall see a reset instead of an end once the last handle is dropped.
    pub fn reset(&self) {
        self.socket.reset_on_drop();
    }

    /// The peer's address, if it is known.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.peer.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// User at the other end of a Unix socket, as it was when it connected.
    pub fn peer_uid(&self) -> io::Result<u32> {
        self.socket.peer_uid()
    }

    /// Our end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        self.socket.local_addr()
    }

    /// Sends small segments at once (TCP_NODELAY) instead of waiting for more.
    pub fn nodelay(&self, yes: bool) -> io::Result<()> {
        self.socket.nodelay(yes)
    }

    /// Probes a silent peer after `idle` (whole seconds), and four times in that time again. Ends
    /// the connection if it does not answer. Does nothing in simulation.
    pub fn keepalive(&self, idle: Duration) -> io::Result<()> {
        self.socket.keepalive(idle)
    }

    /// The descriptor, for another core to adopt. `ResourceBusy` while a clone or an operation
    /// under way uses it too, `Unsupported` in simulation.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        let fd = self.alone()?.into_fd();
        fd.ok_or_else(|| io::ErrorKind::Unsupported.into())
    }

    /// The socket, for another reactor to attach; works in simulation too. `ResourceBusy` while a
    /// clone or an operation under way uses it.
    pub fn detach(self) -> io::Result<Parcel> {
        Ok(self.alone()?.into_parcel())
    }

    fn alone(self) -> io::Result<Socket> {
        let mut kernel = self.reactor.inner.kernel.borrow_mut();
        if Rc::strong_count(&self.socket) == 1 {
            kernel.port.forget(&self.socket);
        }
        drop(kernel);
        Rc::try_unwrap(self.socket).map_err(|_| io::ErrorKind::ResourceBusy.into())
    }
}
