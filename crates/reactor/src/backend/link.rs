//! Packet sockets: whole frames of an interface, many a call.

use std::io;
use std::mem;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::ptr;

use bio::{Direction, Loan};

use super::ring::Ring;
use crate::link::{FRAME_MIN, LinkFacts, LinkMode, QueuedFrame};

/// Frames of one call.
pub(crate) const BATCH: usize = 32;

/// Bytes that the kernel may hold for a link in each direction; frames beyond it are lost, as on a
/// wire. It is several times the data that all initiators together may have in flight at a busy
/// target.
const HELD_BYTES: libc::c_int = 16 << 20;

/// The padding of a frame that is too short.
static PADDING: [u8; FRAME_MIN] = [0; FRAME_MIN];

pub(super) fn check(result: libc::c_int) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::last_os_error())
}

/// A socket for frames of one type at an interface, from now on.
pub(crate) fn open(interface: &str, ethertype: u16) -> io::Result<OwnedFd> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
    // Without a type nothing arrives before it is bound: else frames of all interfaces would.
    // SAFETY: socket(2) takes no memory of ours.
    let fd = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the descriptor is new and has no other owner.
    let fd = unsafe { OwnedFd::from_raw_fd(fd as libc::c_int) };
    for (forced, plain) in
        [(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF), (libc::SO_SNDBUFFORCE, libc::SO_SNDBUF)]
    {
        // Without the privilege the kernel grants a size within its limits.
        if set(&fd, libc::SOL_SOCKET, forced, HELD_BYTES).is_err() {
            set(&fd, libc::SOL_SOCKET, plain, HELD_BYTES)?;
        }
    }
    let index = index_of(&fd, interface)?;
    let at = libc::sockaddr_ll {
        sll_family: libc::AF_PACKET as u16,
        sll_protocol: ethertype.to_be(),
        sll_ifindex: index,
        // SAFETY: zeroes are a valid value of this plain structure of integers.
        ..unsafe { mem::zeroed() }
    };
    let len = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
    // SAFETY: the address is ours and has the given length, for the call.
    check(unsafe { libc::bind(fd.as_raw_fd(), ptr::from_ref(&at).cast(), len) })?;
    Ok(fd)
}

fn set(
    fd: &OwnedFd,
    level: libc::c_int,
    name: libc::c_int,
    value: libc::c_int,
) -> io::Result<usize> {
    let len = mem::size_of::<libc::c_int>() as libc::socklen_t;
    let value = ptr::from_ref(&value).cast();
    // SAFETY: the value is ours and has the given length, for the call.
    check(unsafe { libc::setsockopt(fd.as_raw_fd(), level, name, value, len) })
}

fn interface_request(interface: &str) -> io::Result<libc::ifreq> {
    // SAFETY: zeroes are a valid value of this plain structure.
    let mut request: libc::ifreq = unsafe { mem::zeroed() };
    let size = request.ifr_name.len();
    if interface.is_empty() || interface.len() >= size || interface.contains('\0') {
        let what = format!("{interface:?} is no interface: a name has 1 to {} bytes", size - 1);
        return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
    }
    for (to, from) in request.ifr_name.iter_mut().zip(interface.bytes()) {
        *to = from as libc::c_char;
    }
    Ok(request)
}

fn interface_ioctl(
    fd: &impl AsRawFd,
    what: libc::c_ulong,
    request: &mut libc::ifreq,
) -> io::Result<()> {
    // SAFETY: each of these requests reads the name and writes the answer in the structure.
    check(unsafe { libc::ioctl(fd.as_raw_fd(), what as _, ptr::from_mut(request)) })?;
    Ok(())
}

fn index_of(fd: &impl AsRawFd, interface: &str) -> io::Result<libc::c_int> {
    let mut answer = interface_request(interface)?;
    interface_ioctl(fd, libc::SIOCGIFINDEX, &mut answer)?;
    // SAFETY: this request has filled in the index.
    Ok(unsafe { answer.ifr_ifru.ifru_ifindex })
}

/// Reads the kernel's state of an interface.
pub(crate) fn facts(fd: BorrowedFd<'_>, interface: &str) -> io::Result<LinkFacts> {
    let index = index_of(&fd, interface)?;
    let mut answer = interface_request(interface)?;
    interface_ioctl(&fd, libc::SIOCGIFHWADDR, &mut answer)?;
    // SAFETY: this request has filled in the address.
    let address = unsafe { answer.ifr_ifru.ifru_hwaddr };
    let mut mac = [0; 6];
    for (to, from) in mac.iter_mut().zip(address.sa_data) {
        *to = from as u8;
    }
    interface_ioctl(&fd, libc::SIOCGIFMTU, &mut answer)?;
    // SAFETY: this request has filled in the MTU.
    let mtu = unsafe { answer.ifr_ifru.ifru_mtu };
    interface_ioctl(&fd, libc::SIOCGIFFLAGS, &mut answer)?;
    // SAFETY: this request has filled in the flags.
    let flags = libc::c_int::from(unsafe { answer.ifr_ifru.ifru_flags });
    let up = libc::IFF_UP | libc::IFF_RUNNING;
    Ok(LinkFacts {
        index: index as u32,
        mac,
        mtu: u32::try_from(mtu).unwrap_or(0),
        up: flags & up == up,
    })
}

fn header(parts: &mut [libc::iovec]) -> libc::mmsghdr {
    // SAFETY: zeroes are a valid value of this plain structure: nothing anywhere.
    let mut header: libc::mmsghdr = unsafe { mem::zeroed() };
    header.msg_hdr.msg_iov = parts.as_mut_ptr();
    header.msg_hdr.msg_iovlen = parts.len() as _;
    header
}

/// Memory for frames that are received by calls.
struct Calls {
    frame_bytes_max: usize,
    bytes: Vec<u8>,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

impl Calls {
    /// For frames of up to `frame_max` bytes.
    fn new(frame_max: usize) -> Calls {
        let (parts, headers) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        Calls { frame_bytes_max: frame_max, bytes: vec![0; frame_max * BATCH], parts, headers }
    }

    /// Takes up to `most` frames, at most [`BATCH`]; a frame that is too long is None. How many.
    fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        most: usize,
        take: &mut dyn FnMut(Option<&[u8]>),
    ) -> io::Result<usize> {
        let most = most.min(BATCH);
        self.parts.clear();
        self.headers.clear();
        for place in self.bytes.chunks_exact_mut(self.frame_bytes_max).take(most) {
            let iov_base = place.as_mut_ptr().cast();
            self.parts.push(libc::iovec { iov_base, iov_len: place.len() });
        }
        self.headers.extend(self.parts.chunks_mut(1).map(header));
        let (headers, count) = (self.headers.as_mut_ptr(), self.headers.len() as _);
        let wait_not = libc::MSG_DONTWAIT as _;
        // SAFETY: every header names one part, every part a place of `bytes` of its own; all of
        // them stay where they are for the call.
        let got = check(unsafe {
            libc::recvmmsg(fd.as_raw_fd(), headers, count, wait_not, ptr::null_mut())
        })?;
        let places = self.bytes.chunks_exact(self.frame_bytes_max);
        for (place, header) in places.zip(&self.headers).take(got) {
            let complete = header.msg_hdr.msg_flags & libc::MSG_TRUNC == 0;
            let len = usize::try_from(header.msg_len).unwrap_or(usize::MAX);
            take(place.get(..len).filter(|_| complete));
        }
        Ok(got)
    }
}

/// How frames are received.
enum Receiver {
    Ring(Ring),
    Calls(Calls),
    /// No method while the next one is being opened.
    None,
}

/// Memory for received frames.
pub(crate) struct Inbox {
    frame_bytes_max: usize,
    wanted: LinkMode,
    receiver: Receiver,
}

impl Inbox {
    /// For no frames.
    pub(crate) fn none() -> Inbox {
        Inbox {
            frame_bytes_max: 0,
            wanted: LinkMode::Calls,
            receiver: Receiver::Calls(Calls::new(0)),
        }
    }

    /// For frames of up to `frame_max` bytes that a socket receives.
    pub(crate) fn new(fd: BorrowedFd<'_>, wanted: LinkMode, frame_max: usize) -> io::Result<Inbox> {
        let mut inbox = Inbox { frame_bytes_max: 0, wanted, receiver: Receiver::None };
        inbox.grow(fd, frame_max)?;
        Ok(inbox)
    }

    /// Allocates memory for frames of up to `frame_max` bytes.
    pub(crate) fn grow(&mut self, fd: BorrowedFd<'_>, frame_max: usize) -> io::Result<()> {
        if frame_max <= self.frame_bytes_max {
            return Ok(());
        }
        // The kernel keeps a ring while it is mapped.
        if let Receiver::Ring(ring) = mem::replace(&mut self.receiver, Receiver::None) {
            drop(ring);
            Ring::leave(fd);
        }
        self.receiver = match self.wanted {
            LinkMode::Calls => Receiver::Calls(Calls::new(frame_max)),
            LinkMode::Ring => Receiver::Ring(Ring::open(fd, frame_max)?),
            LinkMode::Auto => match Ring::open(fd, frame_max) {
                Ok(ring) => Receiver::Ring(ring),
                // Too long, or a kernel that has no memory for it or forbids it.
                Err(_) => Receiver::Calls(Calls::new(frame_max)),
            },
        };
        self.frame_bytes_max = frame_max;
        Ok(())
    }

    /// The way that was taken.
    pub(crate) fn mode(&self) -> LinkMode {
        match self.receiver {
            Receiver::Ring(_) => LinkMode::Ring,
            Receiver::Calls(_) | Receiver::None => LinkMode::Calls,
        }
    }

    /// Takes up to `most` frames; a frame that is too long is None. How many; fewer than `most`:
    /// no more are there. An error behind frames is reported the next time.
    pub(crate) fn receive(
        &mut self,
        fd: BorrowedFd<'_>,
        most: usize,
        take: &mut dyn FnMut(Option<&[u8]>),
    ) -> io::Result<usize> {
        match &mut self.receiver {
            Receiver::Calls(calls) => {
                let mut got = 0;
                while got < most {
                    let count = BATCH.min(most - got);
                    match calls.receive(fd, count, take) {
                        Ok(n) if n < count => return Ok(got + n),
                        Ok(n) => got += n,
                        Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                        Err(e) if got == 0 => return Err(e),
                        Err(_) => break,
                    }
                }
                Ok(got)
            }
            Receiver::Ring(ring) => match ring.receive(most, take) {
                0 => trouble(fd).map(|()| 0),
                got => Ok(got),
            },
            Receiver::None => Ok(0),
        }
    }
}

/// Reports the pending error of a socket.
fn trouble(fd: BorrowedFd<'_>) -> io::Result<()> {
    let wait_not = libc::MSG_DONTWAIT;
    // SAFETY: a buffer of no bytes. A socket with a ring returns no frames here, only an error or
    // `EAGAIN`.
    check(unsafe { libc::recv(fd.as_raw_fd(), ptr::null_mut(), 0, wait_not) } as libc::c_int)?;
    Ok(())
}

/// Lists for the call that sends, kept for their capacity.
#[derive(Default)]
pub(crate) struct Outbox {
    loans: Vec<Loan>,
    parts: Vec<libc::iovec>,
    headers: Vec<libc::mmsghdr>,
}

impl Outbox {
    /// Sends frames; returns how many were sent, in their order. An error is that of the first.
    pub(crate) fn send(&mut self, fd: BorrowedFd<'_>, frames: &[QueuedFrame]) -> io::Result<usize> {
        let frames = &frames[..frames.len().min(BATCH)];
        for frame in frames {
            self.loans.extend(frame.rest.iter().map(|seg| seg.lend(Direction::Out)));
        }
        let part = |bytes: &[u8]| {
            // Sending only reads.
            let iov_base = bytes.as_ptr().cast_mut().cast();
            libc::iovec { iov_base, iov_len: bytes.len() }
        };
        let mut loans = self.loans.iter();
        for frame in frames {
            self.parts.push(part(&frame.head));
            for loan in loans.by_ref().take(frame.rest.as_slice().len()) {
                let iov_base = loan.as_ptr().cast();
                self.parts.push(libc::iovec { iov_base, iov_len: loan.len() });
            }
            if frame.padding() > 0 {
                self.parts.push(part(&PADDING[..frame.padding()]));
            }
        }
        let mut parts = &mut self.parts[..];
        for frame in frames {
            let count = 1 + frame.rest.as_slice().len() + usize::from(frame.padding() > 0);
            let (now, later) = parts.split_at_mut(count);
            self.headers.push(header(now));
            parts = later;
        }
        let (headers, count) = (self.headers.as_mut_ptr(), self.headers.len() as _);
        // SAFETY: every header names its frame's parts: a head that the queue owns, loans that are
        // kept in the list, and a static filling. None of them changes or moves in the call.
        let sent = check(unsafe {
            libc::sendmmsg(fd.as_raw_fd(), headers, count, libc::MSG_DONTWAIT as _)
        });
        self.headers.clear();
        self.parts.clear();
        self.loans.clear();
        sent
    }
}
