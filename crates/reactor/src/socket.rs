//! Sockets, of the kernel or of a simulated world, as slots hold them.

use std::cell::Cell;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::path::Path;
use std::rc::Rc;
use std::time::Duration;

use rustix::net::{
    self, AddressFamily, Shutdown, SocketAddrUnix, SocketFlags, SocketType, sockopt,
};

use crate::link::{LinkFacts, QueuedFrame};
use crate::sim::{SimSocket, SocketKey, World};

/// Connections that the kernel holds for a listener; a further one has to try again, a second
/// later. After a restart thousands arrive at once (the kernel's own limit is `somaxconn`, 4096).
const BACKLOG: i32 = 4096;

/// Unanswered keep-alive probes after which a connection is dead.
const KEEPALIVE_PROBES: u32 = 4;

enum SocketHandle {
    Kernel(OwnedFd),
    Simulated(SimSocket),
}

/// A socket on its way to another reactor: of the kernel, or of the same simulated world.
pub struct Parcel(ParcelKind);

enum ParcelKind {
    Kernel(OwnedFd),
    Simulated(SocketKey),
}

/// A socket, open until the last operation under way was reaped.
pub(crate) struct Socket {
    handle: SocketHandle,
    /// The poll port watches it.
    watched: Cell<bool>,
    /// The last receive took all there was.
    drained: Cell<bool>,
}

impl Socket {
    fn new(body: SocketHandle) -> Rc<Socket> {
        Rc::new(Socket { handle: body, watched: Cell::new(false), drained: Cell::new(false) })
    }

    /// A connected descriptor from elsewhere.
    pub(crate) fn adopt(fd: OwnedFd) -> Rc<Socket> {
        // Operations wait by themselves; the flag would make io_uring fail them with EAGAIN. When
        // If it cannot be cleared, the first operation reports the error.
        let _ = set_blocking(&fd);
        Socket::new(SocketHandle::Kernel(fd))
    }

    /// A descriptor that is read and written on the spot.
    pub(crate) fn channel(fd: OwnedFd) -> io::Result<Rc<Socket>> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(Socket::new(SocketHandle::Kernel(fd)))
    }

    /// A simulated reader of frames; a real one is a [`Socket::channel`].
    pub(crate) fn tap(world: &World, name: &str, ethertype: u16) -> io::Result<Rc<Socket>> {
        let tap = SimSocket::tap(world, name, ethertype)?;
        Ok(Socket::new(SocketHandle::Simulated(tap)))
    }

    fn simulated(&self) -> io::Result<&SimSocket> {
        match &self.handle {
            SocketHandle::Kernel(_) => Err(io::ErrorKind::Unsupported.into()),
            SocketHandle::Simulated(s) => Ok(s),
        }
    }

    /// Of a simulated reader of frames.
    pub(crate) fn tap_facts(&self) -> io::Result<LinkFacts> {
        self.simulated()?.tap_facts()
    }

    /// The next frame of a simulated reader, which is one.
    pub(crate) fn tap_receive(&self, take: &mut dyn FnMut(Option<&[u8]>)) -> io::Result<usize> {
        let frame = self.simulated()?.tap_receive()?;
        take(Some(&frame));
        Ok(1)
    }

    /// Sends a frame of a simulated reader.
    pub(crate) fn tap_send(&self, frame: &QueuedFrame) -> io::Result<()> {
        let filling = vec![0; frame.padding()];
        self.simulated()?.tap_send([&frame.head[..], &frame.rest.to_vec(), &filling].concat())
    }

    pub(crate) fn listen(
        world: Option<&World>,
        addr: SocketAddr,
        share: bool,
    ) -> io::Result<Rc<Socket>> {
        if let Some(world) = world {
            let socket = SimSocket::listen(world, addr, share)?;
            return Ok(Socket::new(SocketHandle::Simulated(socket)));
        }
        let fd = tcp_socket(addr)?;
        sockopt::set_socket_reuseaddr(&fd, true)?;
        if share {
            sockopt::set_socket_reuseport(&fd, true)?;
        }
        // An interface may get its address after the daemon starts. Where the option is missing,
        // bind reports the address instead.
        let _ = sockopt::set_ip_freebind(&fd, true);
        net::bind(&fd, &addr)?;
        net::listen(&fd, BACKLOG)?;
        Ok(Socket::new(SocketHandle::Kernel(fd)))
    }

    /// Listens at a path. A stale socket that a process left behind is removed; anything else at
    /// the path is an error. `prepare` is called while the path exists and clients cannot connect
    /// yet. If it fails, the path is removed.
    pub(crate) fn listen_unix(
        world: Option<&World>,
        path: &str,
        prepare: impl FnOnce(&Path) -> io::Result<()>,
    ) -> io::Result<Rc<Socket>> {
        if let Some(world) = world {
            let socket = SimSocket::listen(world, simulated_path(path), true)?;
            return Ok(Socket::new(SocketHandle::Simulated(socket)));
        }
        let at = SocketAddrUnix::new(path)?;
        let fd = unix_socket()?;
        match net::bind(&fd, &at) {
            Err(rustix::io::Errno::ADDRINUSE) => {
                check_left_behind(path, &at)?;
                std::fs::remove_file(path)?;
                net::bind(&fd, &at)?;
            }
            other => other?,
        }
        if let Err(e) = prepare(Path::new(path)) {
            let _ = std::fs::remove_file(path);
            return Err(e);
        }
        net::listen(&fd, BACKLOG)?;
        Ok(Socket::new(SocketHandle::Kernel(fd)))
    }

    /// Begins to connect to a path; see `connect`.
    pub(crate) fn connect_unix(world: Option<&World>, path: &str) -> io::Result<Rc<Socket>> {
        if let Some(world) = world {
            let socket = SimSocket::connect(world, simulated_path(path));
            return Ok(Socket::new(SocketHandle::Simulated(socket)));
        }
        let fd = unix_socket()?;
        net::connect(&fd, &SocketAddrUnix::new(path)?)?;
        Ok(Socket::new(SocketHandle::Kernel(fd)))
    }

    /// The same listening socket once more, for another core.
    pub(crate) fn share(&self) -> io::Result<Parcel> {
        Ok(Parcel(match &self.handle {
            SocketHandle::Kernel(fd) => ParcelKind::Kernel(fd.try_clone()?),
            SocketHandle::Simulated(s) => ParcelKind::Simulated(s.share()?),
        }))
    }

    /// User at the other end of a Unix socket, as the kernel saw it when it connected; zero in
    /// simulation.
    pub(crate) fn peer_uid(&self) -> io::Result<u32> {
        match &self.handle {
            SocketHandle::Kernel(fd) => Ok(sockopt::socket_peercred(fd)?.uid.as_raw()),
            SocketHandle::Simulated(_) => Ok(0),
        }
    }

    /// Begins to connect: writable once it is known how that ended, see `connected`.
    pub(crate) fn connect(world: Option<&World>, addr: SocketAddr) -> io::Result<Rc<Socket>> {
        if let Some(world) = world {
            return Ok(Socket::new(SocketHandle::Simulated(SimSocket::connect(world, addr))));
        }
        let fd = tcp_socket(addr)?;
        match net::connect(&fd, &addr) {
            Ok(()) | Err(rustix::io::Errno::INPROGRESS) => {
                Ok(Socket::new(SocketHandle::Kernel(fd)))
            }
            Err(e) => Err(e.into()),
        }
    }

    pub(crate) fn connected(&self) -> io::Result<()> {
        match &self.handle {
            SocketHandle::Kernel(fd) => {
                sockopt::socket_error(fd)??;
                Ok(set_blocking(fd)?)
            }
            SocketHandle::Simulated(s) => s.connect_result(),
        }
    }

    /// The next connection of a listener; None when none waits.
    /// The address is absent at a Unix socket.
    pub(crate) fn accept(&self) -> io::Result<Option<(Rc<Socket>, Option<SocketAddr>)>> {
        let fd = match &self.handle {
            SocketHandle::Kernel(fd) => fd,
            SocketHandle::Simulated(s) => {
                let accepted = s.accept();
                return Ok(
                    accepted.map(|(s, peer)| (Socket::new(SocketHandle::Simulated(s)), Some(peer)))
                );
            }
        };
        loop {
            return match net::acceptfrom_with(fd, SocketFlags::CLOEXEC) {
                Ok((fd, peer)) => {
                    Ok(Some((Socket::new(SocketHandle::Kernel(fd)), to_addr(peer).ok())))
                }
                Err(rustix::io::Errno::AGAIN) => Ok(None),
                // The peer gave up before the accept.
                Err(rustix::io::Errno::CONNABORTED | rustix::io::Errno::INTR) => continue,
                Err(e) => Err(e.into()),
            };
        }
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match &self.handle {
            SocketHandle::Kernel(fd) => to_addr(Some(net::getsockname(fd)?)),
            SocketHandle::Simulated(s) => s.local_addr(),
        }
    }

    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        match &self.handle {
            SocketHandle::Kernel(fd) => net::getpeername(fd).ok().and_then(|a| to_addr(a).ok()),
            SocketHandle::Simulated(s) => s.peer_addr(),
        }
    }

    pub(crate) fn shutdown_write(&self) -> io::Result<()> {
        match &self.handle {
            SocketHandle::Kernel(fd) => net::shutdown(fd, Shutdown::Write)?,
            SocketHandle::Simulated(s) => s.shutdown_write(),
        }
        Ok(())
    }

    pub(crate) fn close(&self) {
        match &self.handle {
            // Fails only when the peer has closed already.
            SocketHandle::Kernel(fd) => drop(net::shutdown(fd, Shutdown::Both)),
            SocketHandle::Simulated(s) => s.close(),
        }
    }

    pub(crate) fn reset_on_drop(&self) {
        match &self.handle {
            SocketHandle::Kernel(fd) => {
                let _ = sockopt::set_socket_linger(fd, Some(Duration::ZERO));
                let _ = net::shutdown(fd, Shutdown::Read);
            }
            SocketHandle::Simulated(s) => s.reset_on_drop(),
        }
    }

    pub(crate) fn nodelay(&self, yes: bool) -> io::Result<()> {
        match &self.handle {
            SocketHandle::Kernel(fd) => Ok(sockopt::set_tcp_nodelay(fd, yes)?),
            SocketHandle::Simulated(_) => Ok(()),
        }
    }

    pub(crate) fn keepalive(&self, idle: Duration) -> io::Result<()> {
        if let SocketHandle::Kernel(fd) = &self.handle {
            sockopt::set_socket_keepalive(fd, true)?;
            sockopt::set_tcp_keepidle(fd, idle)?;
            sockopt::set_tcp_keepintvl(fd, (idle / 4).max(Duration::from_secs(1)))?;
            sockopt::set_tcp_keepcnt(fd, KEEPALIVE_PROBES)?;
        }
        Ok(())
    }

    /// None: a simulated one has no descriptor.
    pub(crate) fn into_fd(self) -> Option<OwnedFd> {
        match self.handle {
            SocketHandle::Kernel(fd) => Some(fd),
            SocketHandle::Simulated(_) => None,
        }
    }

    pub(crate) fn into_parcel(self) -> Parcel {
        Parcel(match self.handle {
            SocketHandle::Kernel(fd) => ParcelKind::Kernel(fd),
            SocketHandle::Simulated(s) => ParcelKind::Simulated(s.release()),
        })
    }

    /// None: a parcel of the wrong kind for this reactor.
    pub(crate) fn from_parcel(world: Option<&World>, parcel: Parcel) -> Option<Rc<Socket>> {
        match (parcel.0, world) {
            (ParcelKind::Kernel(fd), None) if is_listening(&fd) => {
                Some(Socket::new(SocketHandle::Kernel(fd)))
            }
            (ParcelKind::Kernel(fd), None) => Some(Socket::adopt(fd)),
            (ParcelKind::Simulated(key), Some(world)) => {
                Some(Socket::new(SocketHandle::Simulated(SimSocket::new(world, key))))
            }
            _ => None,
        }
    }

    /// None for a socket of a simulated world.
    pub(crate) fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.handle {
            SocketHandle::Kernel(fd) => Some(fd.as_fd()),
            SocketHandle::Simulated(_) => None,
        }
    }

    pub(crate) fn raw_fd(&self) -> RawFd {
        match &self.handle {
            SocketHandle::Kernel(fd) => fd.as_raw_fd(),
            SocketHandle::Simulated(_) => -1,
        }
    }

    /// None for a socket of a real kernel.
    pub(crate) fn sim_key(&self) -> Option<SocketKey> {
        match &self.handle {
            SocketHandle::Kernel(_) => None,
            SocketHandle::Simulated(s) => Some(s.key()),
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

fn tcp_socket(addr: SocketAddr) -> io::Result<OwnedFd> {
    let family = if addr.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(family, SocketType::STREAM, flags, None)?)
}

fn unix_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    Ok(net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?)
}

/// A listener keeps its flags: its accepts must not wait.
fn is_listening(fd: &OwnedFd) -> bool {
    sockopt::socket_acceptconn(fd).unwrap_or(false)
}

/// Refuses a path that exists, unless it is a socket without a listener.
fn check_left_behind(path: &str, at: &SocketAddrUnix) -> io::Result<()> {
    use std::os::unix::fs::FileTypeExt;
    if !std::fs::symlink_metadata(path)?.file_type().is_socket() {
        let why = "a file that is not a socket exists there";
        return Err(io::Error::new(io::ErrorKind::AddrInUse, why));
    }
    match connect_now(at) {
        Ok(false) => Ok(()),
        _ => Err(rustix::io::Errno::ADDRINUSE.into()),
    }
}

/// Whether a Unix socket has a listener. One that has no place for a connection is a listener, too,
/// and is not waited for.
fn connect_now(at: &SocketAddrUnix) -> io::Result<bool> {
    match net::connect(&unix_socket()?, at) {
        Ok(()) | Err(rustix::io::Errno::AGAIN) => Ok(true),
        Err(rustix::io::Errno::CONNREFUSED) => Ok(false),
        Err(e) => Err(e.into()),
    }
}

/// Whether the Unix socket at a path has a listener, without waiting for one that accepts no
/// connection. A listener that is there sees a connection that ends at once.
pub fn has_unix_listener(path: &Path) -> io::Result<bool> {
    connect_now(&SocketAddrUnix::new(path)?)
}

/// Whether a socket could be bound at a path, without binding one: nothing is there, or a stale
/// socket. A listener that is there sees a connection that ends at once.
pub fn check_unix_path(path: &str) -> io::Result<()> {
    let at = SocketAddrUnix::new(path)?;
    match std::fs::symlink_metadata(path) {
        Ok(_) => check_left_behind(path, &at),
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            let folder = Path::new(path).parent();
            folder.map_or(Ok(()), |folder| std::fs::metadata(folder).map(drop))
        }
        Err(e) => Err(e),
    }
}

/// A path in a simulated world, which knows TCP addresses only: one of its own by the path's hash.
fn simulated_path(path: &str) -> SocketAddr {
    let mix = |h: u64, b: u8| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3);
    let hash = path.bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    let ip = (0xfd75_u128 << 112) | u128::from(hash);
    SocketAddr::new(std::net::Ipv6Addr::from(ip).into(), 1)
}

fn set_blocking(fd: &OwnedFd) -> rustix::io::Result<()> {
    let flags = rustix::fs::fcntl_getfl(fd)?;
    rustix::fs::fcntl_setfl(fd, flags - rustix::fs::OFlags::NONBLOCK)
}

fn to_addr(any: Option<net::SocketAddrAny>) -> io::Result<SocketAddr> {
    let any = any.ok_or(io::ErrorKind::NotConnected)?;
    SocketAddr::try_from(any).map_err(|_| io::ErrorKind::AddrNotAvailable.into())
}
