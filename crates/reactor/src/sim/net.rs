//! A simulated socket, as `net` uses it.

use std::io;
use std::net::SocketAddr;
use std::rc::Rc;

use crate::link::LinkFacts;
use crate::sim::World;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SocketKey {
    Listener(SocketAddr),
    End {
        link: u32,
        side: usize,
    },
    /// A reader of frames.
    Tap(u32),
}

/// A socket of a world; dropping it hangs up or stops listening.
pub(crate) struct SimSocket {
    world: World,
    key: SocketKey,
    reset: std::cell::Cell<bool>,
    /// Handed on: dropping does nothing any more.
    gone: std::cell::Cell<bool>,
}

impl SimSocket {
    pub(crate) fn new(world: &World, key: SocketKey) -> SimSocket {
        SimSocket {
            world: world.clone(),
            key,
            reset: std::cell::Cell::new(false),
            gone: std::cell::Cell::new(false),
        }
    }

    pub(crate) fn listen(world: &World, addr: SocketAddr, share: bool) -> io::Result<SimSocket> {
        match world.state.borrow_mut().net.listen(addr, share) {
            Some(addr) => Ok(SimSocket::new(world, SocketKey::Listener(addr))),
            None => Err(io::ErrorKind::AddrInUse.into()),
        }
    }

    pub(crate) fn connect(world: &World, to: SocketAddr) -> SimSocket {
        let link = world.state.borrow_mut().connect(to);
        SimSocket::new(world, SocketKey::End { link, side: 0 })
    }

    /// A reader of frames at a station.
    pub(crate) fn tap(world: &World, name: &str, ethertype: u16) -> io::Result<SimSocket> {
        let tap = world.state.borrow_mut().ether.open(name, ethertype)?;
        Ok(SimSocket::new(world, SocketKey::Tap(tap)))
    }

    fn tap_number(&self) -> io::Result<u32> {
        match self.key {
            SocketKey::Tap(tap) => Ok(tap),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// The state of the station's link.
    pub(crate) fn tap_facts(&self) -> io::Result<LinkFacts> {
        let tap = self.tap_number()?;
        let facts = self.world.state.borrow().ether.facts(tap);
        facts.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// The next received frame.
    pub(crate) fn tap_receive(&self) -> io::Result<Rc<[u8]>> {
        let tap = self.tap_number()?;
        self.world.state.borrow_mut().ether.next(tap)
    }

    pub(crate) fn tap_send(&self, frame: Vec<u8>) -> io::Result<()> {
        let tap = self.tap_number()?;
        self.world.state.borrow_mut().transmit(tap, frame)
    }

    pub(crate) fn key(&self) -> SocketKey {
        self.key
    }

    /// The next connection of a listener, if one waits.
    pub(crate) fn accept(&self) -> Option<(SimSocket, SocketAddr)> {
        let SocketKey::Listener(addr) = self.key else {
            return None;
        };
        let mut state = self.world.state.borrow_mut();
        let link = state.net.accept(addr)?;
        let peer = state.net.addr(link, 0)?;
        let key = SocketKey::End { link, side: 1 };
        Some((SimSocket::new(&self.world, key), peer))
    }

    pub(crate) fn local_addr(&self) -> io::Result<SocketAddr> {
        match self.key {
            SocketKey::Listener(addr) => Ok(addr),
            SocketKey::Tap(_) => Err(io::ErrorKind::Unsupported.into()),
            SocketKey::End { link, side } => {
                let addr = self.world.state.borrow_mut().net.addr(link, side);
                addr.ok_or_else(|| io::ErrorKind::NotConnected.into())
            }
        }
    }

    pub(crate) fn peer_addr(&self) -> Option<SocketAddr> {
        match self.key {
            SocketKey::Listener(_) | SocketKey::Tap(_) => None,
            SocketKey::End { link, side } => self.world.state.borrow_mut().net.addr(link, 1 - side),
        }
    }

    pub(crate) fn connect_result(&self) -> io::Result<()> {
        let SocketKey::End { link, side } = self.key else {
            return Err(io::ErrorKind::NotConnected.into());
        };
        match self.world.state.borrow_mut().is_connected(link, side) {
            0 => Ok(()),
            e => Err(io::Error::from_raw_os_error(i32::try_from(-e).unwrap_or(i32::MAX))),
        }
    }

    pub(crate) fn shutdown_write(&self) {
        if let SocketKey::End { link, side } = self.key {
            self.world.state.borrow_mut().finish(link, side);
        }
    }

    pub(crate) fn close(&self) {
        if let SocketKey::End { link, side } = self.key {
            self.world.state.borrow_mut().close_both(link, side);
        }
    }

    pub(crate) fn reset_on_drop(&self) {
        self.reset.set(true);
    }

    /// One more owner of a listener.
    pub(crate) fn share(&self) -> io::Result<SocketKey> {
        let SocketKey::Listener(addr) = self.key else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let shared = self.world.state.borrow_mut().net.listen(addr, true);
        shared.map(SocketKey::Listener).ok_or_else(|| io::ErrorKind::AddrInUse.into())
    }

    /// Gives the socket away: its new owner will close it.
    pub(crate) fn release(self) -> SocketKey {
        self.gone.set(true);
        self.key
    }
}

impl Drop for SimSocket {
    fn drop(&mut self) {
        if self.gone.get() {
            return;
        }
        let mut state = self.world.state.borrow_mut();
        match self.key {
            SocketKey::Listener(addr) => state.unlisten(addr),
            SocketKey::Tap(tap) => state.ether.close(tap),
            SocketKey::End { link, side } => state.hang_up(link, side, self.reset.get()),
        }
    }
}
