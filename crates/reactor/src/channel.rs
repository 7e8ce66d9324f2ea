//! Channels: descriptors that hand over whole messages, one a call, as `/dev/fuse` does.
//!
//! Messages are read and written on the spot; only for their coming does anybody wait.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bio::{Direction, Loan, Segs};

use crate::net::Pending;
use crate::port::channel;
use crate::reactor::Reactor;
use crate::slots::Op;
use crate::socket::Socket;

impl Reactor {
    /// Makes a descriptor through which the kernel asks for something this reactor's own.
    pub fn channel(&self, fd: OwnedFd) -> io::Result<Channel> {
        let socket = Socket::channel(fd)?;
        Ok(Channel { reactor: self.clone(), socket, loans: Rc::default() })
    }

    /// From now on this thread gets memory without waiting for the writing of dirty pages: they may
    /// be waiting for this very thread. Needs CAP_SYS_RESOURCE.
    pub fn writes_for_kernel(&self) -> io::Result<()> {
        rustix::process::configure_io_flusher_behavior(true).map_err(io::Error::from)
    }
}

/// A descriptor that hands over whole messages. Closed with the last clone.
#[derive(Clone)]
pub struct Channel {
    reactor: Reactor,
    socket: Rc<Socket>,
    /// Empty between calls; kept for its capacity.
    loans: Rc<RefCell<Vec<Loan>>>,
}

impl Channel {
    /// Waits until a message may be read.
    pub async fn ready(&self) -> io::Result<()> {
        let pending: Pending =
            self.reactor.begin_pending(Op::Ready { out: false }, &self.socket, |_| ())?;
        pending.await.map(drop)
    }

    /// The next message: its first bytes into `head`, the others into `rest`; answers its length.
    /// `WouldBlock` when there is none.
    pub fn read(&self, head: &mut [u8], rest: &Segs) -> io::Result<usize> {
        let fd = self.socket.fd().ok_or(io::ErrorKind::Unsupported)?;
        let mut loans = self.loans.borrow_mut();
        loans.extend(rest.iter().map(|s| s.lend(Direction::In)));
        let got = channel::read(fd, head, &loans);
        loans.clear();
        Ok(got?)
    }

    /// Sends a message.
    pub fn write(&self, head: &[u8], rest: &Segs) -> io::Result<()> {
        let fd = self.socket.fd().ok_or(io::ErrorKind::Unsupported)?;
        let mut loans = self.loans.borrow_mut();
        loans.extend(rest.iter().map(|s| s.lend(Direction::Out)));
        let sent = channel::write(fd, head, &loans);
        loans.clear();
        match sent? == head.len().saturating_add(rest.len()) {
            true => Ok(()),
            false => Err(io::ErrorKind::WriteZero.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, Patience};
    use bio::{Pool, PoolConfig};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn messages_come_whole_and_are_split_between_head_and_rest() {
        let reactor = Reactor::start(Config::default()).unwrap();
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let channel = reactor.channel(ours).unwrap();
        let pool = Pool::new(PoolConfig::default());
        let rest = Segs::alloc(&pool, 10_000).unwrap();
        let mut head = [0; 4];
        let none = channel.read(&mut head, &rest).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        let waits = channel.clone();
        let task = reactor.spawn("waits", async move { waits.ready().await.unwrap() });
        reactor.turn(Patience::Peek, &mut |_, _| ());
        let message: Vec<u8> = (0..9000u32).map(|i| i as u8).collect();
        rustix::io::write(&theirs, &message).unwrap();
        while !task.is_finished() {
            reactor.turn(Patience::Until(reactor.now() + 1_000_000), &mut |_, _| ());
        }
        assert_eq!(channel.read(&mut head, &rest).unwrap(), 9000);
        assert_eq!(head, message[..4]);
        assert_eq!(rest.to_vec()[..8996], message[4..]);
        let mut back = rest;
        back.truncate(8996);
        channel.write(&head, &back).unwrap();
        let mut got = vec![0; 10_000];
        assert_eq!(rustix::io::read(&theirs, &mut got).unwrap(), 9000);
        assert_eq!(got[..9000], message);
        drop((channel, task));
        reactor.shutdown();
    }
}
