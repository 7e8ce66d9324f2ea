//! TCP for conversations: listeners, streams, and the futures of their operations.

use std::cell::Cell;
use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use bio::{Direction, Loan, Seg, Segs};
use rustix::net::{self, AddressFamily, Shutdown, SocketFlags, SocketType, sockopt};

use crate::reactor::Reactor;
use crate::slots::{End, On, Op, SlotId, State};

/// Connections that the kernel holds for a listener before it refuses more.
const BACKLOG: i32 = 1024;

enum Body {
    Kernel(OwnedFd),
}

/// A socket as slots hold it: open until the last operation under way was reaped.
pub(crate) struct Socket {
    body: Body,
    /// The poll port watches it.
    watched: Cell<bool>,
    /// The last receive took all there was.
    drained: Cell<bool>,
}

impl Socket {
    fn kernel(fd: OwnedFd) -> Rc<Socket> {
        Rc::new(Socket {
            body: Body::Kernel(fd),
            watched: Cell::new(false),
            drained: Cell::new(false),
        })
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        match &self.body {
            Body::Kernel(fd) => fd.as_raw_fd(),
        }
    }

    pub(crate) fn is_watched(&self) -> bool {
        self.watched.get()
    }

    pub(crate) fn set_watched(&self, yes: bool) {
        self.watched.set(yes);
    }

    pub(crate) fn is_drained(&self) -> bool {
        self.drained.get()
    }

    pub(crate) fn set_drained(&self, yes: bool) {
        self.drained.set(yes);
    }
}

/// An operation under way. Dropping it cancels the operation; its slot keeps the memory until
/// the completion was reaped.
struct Pending {
    reactor: Reactor,
    id: SlotId,
    over: bool,
}

impl Future for Pending {
    type Output = io::Result<usize>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut kernel = self.reactor.inner.kernel.borrow_mut();
        let Some(slot) = kernel.slots.get(self.id) else {
            let gone = io::Error::from_raw_os_error(crate::slots::raw::ECANCELED as i32);
            return Poll::Ready(Err(gone));
        };
        let State::Done(result) = slot.state else {
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
            Err(_) => Err(io::Error::from_raw_os_error(
                i32::try_from(-result).unwrap_or(i32::MAX),
            )),
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
    fn begin_pending(
        &self,
        op: Op,
        socket: &Rc<Socket>,
        fill: impl FnOnce(&mut Vec<Loan>),
    ) -> io::Result<Pending> {
        let on = On::Socket(socket.clone());
        let id = self
            .begin(op, on, End::Future(None), fill)
            .map_err(|e| io::Error::from_raw_os_error(e.posix()))?;
        Ok(Pending {
            reactor: self.clone(),
            id,
            over: false,
        })
    }

    /// Listens on `addr` (port 0: any free one) with SO_REUSEADDR.
    pub fn listen(&self, addr: SocketAddr) -> io::Result<Listener> {
        self.listen_with(addr, false)
    }

    /// Listens on `addr` together with other cores that do the same (SO_REUSEPORT): the kernel
    /// spreads new connections over them.
    pub fn listen_shared(&self, addr: SocketAddr) -> io::Result<Listener> {
        self.listen_with(addr, true)
    }

    fn listen_with(&self, addr: SocketAddr, share: bool) -> io::Result<Listener> {
        let fd = tcp_socket(addr)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        if share {
            sockopt::set_socket_reuseport(&fd, true)?;
        }
        net::bind(&fd, &addr)?;
        net::listen(&fd, BACKLOG)?;
        let local = to_addr(net::getsockname(&fd)?)?;
        Ok(Listener {
            reactor: self.clone(),
            socket: Socket::kernel(fd),
            local,
        })
    }

    /// Makes a connected stream socket this reactor's own.
    pub fn adopt(&self, fd: OwnedFd) -> Stream {
        // Operations wait by themselves; the flag would make io_uring fail them with EAGAIN. When
        // it cannot be cleared the first operation says what is wrong.
        let _ = set_blocking(&fd);
        let peer = net::getpeername(&fd).map_err(io::Error::from);
        Stream {
            reactor: self.clone(),
            peer: peer.and_then(to_addr_known).ok(),
            socket: Socket::kernel(fd),
        }
    }

    /// Connects to `addr`.
    pub async fn connect(&self, addr: SocketAddr) -> io::Result<Stream> {
        let fd = tcp_socket(addr)?;
        let connecting = match net::connect(&fd, &addr) {
            Ok(()) => false,
            Err(rustix::io::Errno::INPROGRESS) => true,
            Err(e) => return Err(e.into()),
        };
        let socket = Socket::kernel(fd);
        if connecting {
            self.begin_pending(Op::Ready { out: true }, &socket, |_| ())?
                .await?;
        }
        let Body::Kernel(fd) = &socket.body;
        sockopt::socket_error(fd)??;
        set_blocking(fd)?;
        Ok(Stream {
            reactor: self.clone(),
            socket,
            peer: Some(addr),
        })
    }
}

fn tcp_socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() {
        AddressFamily::INET
    } else {
        AddressFamily::INET6
    };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
}

fn set_blocking(fd: &OwnedFd) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags - rustix::fs::OFlags::NONBLOCK)
}

fn to_addr(any: net::SocketAddrAny) -> io::Result<SocketAddr> {
    SocketAddr::try_from(any).map_err(|_| io::ErrorKind::AddrNotAvailable.into())
}

fn to_addr_known(any: Option<net::SocketAddrAny>) -> io::Result<SocketAddr> {
    to_addr(any.ok_or(io::ErrorKind::NotConnected)?)
}

/// A listening socket. Dropping it stops listening.
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
            let Body::Kernel(fd) = &self.socket.body;
            match net::acceptfrom_with(fd, SocketFlags::CLOEXEC) {
                Ok((fd, peer)) => {
                    let peer = to_addr_known(peer)?;
                    let stream = Stream {
                        reactor: self.reactor.clone(),
                        socket: Socket::kernel(fd),
                        peer: Some(peer),
                    };
                    return Ok((stream, peer));
                }
                Err(rustix::io::Errno::AGAIN) => {
                    let op = Op::Ready { out: false };
                    self.reactor
                        .begin_pending(op, &self.socket, |_| ())?
                        .await?;
                }
                // The peer gave up before we came.
                Err(rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
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
    /// Receives what comes first, at most `into.len()` bytes; 0 at the end of the stream.
    pub async fn recv(&self, into: &Seg) -> io::Result<usize> {
        let op = Op::Recv { all: false };
        let fill = |loans: &mut Vec<Loan>| loans.push(into.lend(Direction::In));
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
    /// drop some bytes may have gone: the stream is of no further use.
    pub async fn send(&self, out: &mut Vec<Seg>) -> io::Result<()> {
        out.retain(|s| !s.is_empty());
        if out.is_empty() {
            return Ok(());
        }
        let fill = |loans: &mut Vec<Loan>| {
            loans.extend(out.drain(..).map(|s| s.lend(Direction::Out)));
        };
        self.reactor
            .begin_pending(Op::Send, &self.socket, fill)?
            .await?;
        Ok(())
    }

    /// Ends the sending direction: the peer reads the end of the stream.
    pub fn shutdown(&self) -> io::Result<()> {
        let Body::Kernel(fd) = &self.socket.body;
        Ok(net::shutdown(fd, Shutdown::Write)?)
    }

    /// Ends both directions now; operations under way end too, receives with 0 bytes, sends
    /// with an error.
    pub fn close(&self) {
        let Body::Kernel(fd) = &self.socket.body;
        // Fails only when the peer is gone already.
        let _ = net::shutdown(fd, Shutdown::Both);
    }

    /// As `close`, and the peer sees a reset instead of an end once the last handle is dropped.
    pub fn reset(&self) {
        let Body::Kernel(fd) = &self.socket.body;
        let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
        let _ = net::shutdown(fd, Shutdown::Read);
    }

    /// Who is at the other end, when that is known.
    pub fn peer_addr(&self) -> io::Result<SocketAddr> {
        self.peer.ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// Our end.
    pub fn local_addr(&self) -> io::Result<SocketAddr> {
        let Body::Kernel(fd) = &self.socket.body;
        to_addr(net::getsockname(fd)?)
    }

    /// Sends small segments at once (TCP_NODELAY) instead of waiting for more.
    pub fn nodelay(&self, yes: bool) -> io::Result<()> {
        let Body::Kernel(fd) = &self.socket.body;
        Ok(sockopt::set_tcp_nodelay(fd, yes)?)
    }

    /// The descriptor, for another core to adopt. `ResourceBusy` while a clone or an operation
    /// under way uses it too.
    pub fn into_fd(self) -> io::Result<OwnedFd> {
        self.reactor
            .inner
            .kernel
            .borrow_mut()
            .port
            .forget(&self.socket);
        match Rc::try_unwrap(self.socket) {
            Ok(socket) => {
                let Body::Kernel(fd) = socket.body;
                Ok(fd)
            }
            Err(_) => Err(io::ErrorKind::ResourceBusy.into()),
        }
    }
}
