//! Channels: descriptors that hand over whole messages, one a call, as `/dev/fuse` does.
//!
//! Messages are read and written at once; only the arrival of a message is waited for.

use std::cell::RefCell;
use std::io;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use bio::{Direction, Loan, Segs};

use crate::backend::channel;
use crate::net::Pending;
use crate::ops::Op;
use crate::reactor::Reactor;
use crate::sim::{self, SimChannel};
use crate::socket::Socket;

impl Reactor {
    /// Makes a descriptor of this reactor through which the kernel sends requests.
    pub fn channel(&self, end: ChannelEnd) -> io::Result<Channel> {
        let body = match end {
            ChannelEnd::Kernel(fd) => ChannelHandle::Kernel(Socket::channel(fd)?),
            ChannelEnd::Simulated(end) => ChannelHandle::Simulated(Rc::new(SimChannel::new(end))),
        };
        Ok(Channel { reactor: self.clone(), handle: body, loans: Rc::default() })
    }

    /// From now on this thread gets memory without waiting for the writing of dirty pages: they may
    /// be waiting for this very thread. Needs CAP_SYS_RESOURCE.
    pub fn writes_for_kernel(&self) -> io::Result<()> {
        if self.inner.world.is_some() {
            return Ok(());
        }
        rustix::process::configure_io_flusher_behavior(true).map_err(io::Error::from)
    }
}

pub enum ChannelEnd {
    /// A descriptor through which the kernel sends requests.
    Kernel(OwnedFd),
    /// One through which a test sends requests.
    Simulated(sim::ChannelEnd),
}

impl From<OwnedFd> for ChannelEnd {
    fn from(fd: OwnedFd) -> ChannelEnd {
        ChannelEnd::Kernel(fd)
    }
}

impl From<sim::ChannelEnd> for ChannelEnd {
    fn from(end: sim::ChannelEnd) -> ChannelEnd {
        ChannelEnd::Simulated(end)
    }
}

#[derive(Clone)]
enum ChannelHandle {
    Kernel(Rc<Socket>),
    Simulated(Rc<SimChannel>),
}

/// How often a simulated channel is looked at, ns.
const POLL_INTERVAL_NS: u64 = 5_000;

/// A descriptor that hands over whole messages. Closed with the last clone.
#[derive(Clone)]
pub struct Channel {
    reactor: Reactor,
    handle: ChannelHandle,
    /// Empty between calls; kept for its capacity.
    loans: Rc<RefCell<Vec<Loan>>>,
}

impl Channel {
    /// Waits until a message may be read.
    pub async fn ready(&self) -> io::Result<()> {
        match &self.handle {
            ChannelHandle::Kernel(socket) => {
                let pending: Pending =
                    self.reactor.begin_pending(Op::Ready { out: false }, socket, |_| ())?;
                pending.await.map(drop)
            }
            ChannelHandle::Simulated(channel) => {
                while !channel.is_ready() {
                    self.reactor.sleep(POLL_INTERVAL_NS).await;
                }
                Ok(())
            }
        }
    }

    /// The next message: its first bytes into `head`, the others into `rest`; answers its length.
    /// `WouldBlock` when there is none.
    pub fn read(&self, head: &mut [u8], rest: &Segs) -> io::Result<usize> {
        let socket = match &self.handle {
            ChannelHandle::Kernel(socket) => socket,
            ChannelHandle::Simulated(channel) => {
                let message = channel.read()?;
                let (first, more) = message.split_at(message.len().min(head.len()));
                head.iter_mut().zip(first).for_each(|(to, from)| *to = *from);
                rest.copy_from(0, more);
                return Ok(message.len());
            }
        };
        let fd = socket.fd().ok_or(io::ErrorKind::Unsupported)?;
        let mut loans = self.loans.borrow_mut();
        loans.extend(rest.iter().map(|s| s.lend(Direction::In)));
        let got = channel::read(fd, head, &mut loans);
        loans.clear();
        Ok(got?)
    }

    /// Sends a message.
    pub fn write(&self, head: &[u8], rest: &Segs) -> io::Result<()> {
        let socket = match &self.handle {
            ChannelHandle::Kernel(socket) => socket,
            ChannelHandle::Simulated(channel) => {
                return channel.write([head, &rest.to_vec()].concat());
            }
        };
        let fd = socket.fd().ok_or(io::ErrorKind::Unsupported)?;
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
    use crate::{Config, WaitFor};
    use bio::{Pool, PoolConfig};
    use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};

    #[test]
    fn messages_arrive_whole_and_are_split_into_head_and_rest() {
        let reactor = Reactor::start(Config::default()).unwrap();
        let (ours, theirs) =
            socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
                .unwrap();
        let channel = reactor.channel(ours.into()).unwrap();
        let pool = Pool::new(PoolConfig::default());
        let rest = Segs::alloc(&pool, 10_000).unwrap();
        let mut head = [0; 4];
        let none = channel.read(&mut head, &rest).unwrap_err();
        assert_eq!(none.kind(), io::ErrorKind::WouldBlock);
        let waits = channel.clone();
        let task = reactor.spawn("waits", async move { waits.ready().await.unwrap() });
        reactor.turn(WaitFor::Peek, &mut |_, _| ());
        let message: Vec<u8> = (0..9000u32).map(|i| i as u8).collect();
        rustix::io::write(&theirs, &message).unwrap();
        while !task.is_finished() {
            reactor.turn(WaitFor::Until(reactor.now() + 1_000_000), &mut |_, _| ());
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
