//! A cable that can be pulled: a TCP relay between an initiator and a portal.
//!
//! Invariants
//!  R1  A relay that is cut has no connection, and refuses new ones by closing them at once.
//!  R2  A silent relay keeps its connections and forwards nothing; data sent meanwhile arrives when
//!      it is whole again.
//!  R3  Every thread of a relay ends within `PAUSE` of its being dropped, or of its connection's
//!      end.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{sleep, spawn};
use std::time::Duration;

use anyhow::{Context, Result};

/// How long a thread sleeps before it looks again whether its relay has changed.
const PAUSE: Duration = Duration::from_millis(20);
/// Bytes forwarded at once.
const PIECE: usize = 64 << 10;
/// How long a peer that takes nothing may block one write; then its connection ends.
const WRITE_LIMIT: Duration = Duration::from_secs(20);

/// Handling of bytes by a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Cable {
    /// It forwards them.
    Whole,
    /// Connections end, new ones too.
    Cut,
    /// It holds them back.
    Silent,
    /// The relay is going away.
    Gone,
}

struct RelayShared {
    cable: AtomicU8,
    live: Mutex<Vec<TcpStream>>,
}

impl RelayShared {
    fn is(&self, cable: Cable) -> bool {
        self.cable.load(Ordering::Acquire) == cable as u8
    }

    /// R1.
    fn end_all(&self) {
        for stream in self.live.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

/// See the module.
pub struct Relay {
    at: SocketAddr,
    shared: Arc<RelayShared>,
}

impl Relay {
    /// A whole relay to `to` on a free port of 127.0.0.1.
    pub fn start(to: SocketAddr) -> Result<Relay> {
        let listener = TcpListener::bind("127.0.0.1:0").context("listen for a relay")?;
        listener.set_nonblocking(true)?;
        let at = listener.local_addr()?;
        let cable = AtomicU8::new(Cable::Whole as u8);
        let shared = Arc::new(RelayShared { cable, live: Mutex::new(Vec::new()) });
        let of_thread = shared.clone();
        spawn(move || accept(&listener, to, &of_thread));
        Ok(Relay { at, shared })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.at
    }

    pub fn set(&self, cable: Cable) {
        self.shared.cable.store(cable as u8, Ordering::Release);
        if matches!(cable, Cable::Cut | Cable::Gone) {
            self.shared.end_all();
        }
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        self.set(Cable::Gone);
    }
}

fn accept(listener: &TcpListener, to: SocketAddr, shared: &Arc<RelayShared>) {
    while !shared.is(Cable::Gone) {
        let Ok((from, _)) = listener.accept() else {
            sleep(PAUSE);
            continue;
        };
        if shared.is(Cable::Cut) {
            continue;
        }
        // No server is listening: the connection is closed, as a dead host's kernel would.
        let Ok(there) = TcpStream::connect(to) else { continue };
        if join(from, there, shared).is_err() {
            shared.end_all();
        }
    }
}

fn join(from: TcpStream, there: TcpStream, shared: &Arc<RelayShared>) -> std::io::Result<()> {
    for stream in [&from, &there] {
        stream.set_nonblocking(false)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PAUSE))?;
        stream.set_write_timeout(Some(WRITE_LIMIT))?;
        let mut live = shared.live.lock().unwrap_or_else(PoisonError::into_inner);
        live.push(stream.try_clone()?);
    }
    let back = (there.try_clone()?, from.try_clone()?);
    for (read, write) in [(from, there), back] {
        let shared = shared.clone();
        spawn(move || forward(read, write, &shared));
    }
    // Cut while this was being joined.
    if shared.is(Cable::Cut) {
        shared.end_all();
    }
    Ok(())
}

fn forward(mut from: TcpStream, mut to: TcpStream, shared: &RelayShared) {
    let mut piece = vec![0; PIECE];
    while !shared.is(Cable::Gone) {
        if shared.is(Cable::Silent) {
            sleep(PAUSE);
            continue;
        }
        let sent = match from.read(&mut piece) {
            Ok(0) => break,
            Ok(n) => to.write_all(piece.get(..n).unwrap_or_default()),
            Err(e) if matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => continue,
            Err(e) => Err(e),
        };
        if sent.is_err() {
            break;
        }
    }
    let _ = from.shutdown(Shutdown::Both);
    let _ = to.shutdown(Shutdown::Both);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that sends all received bytes back.
    fn echo() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        spawn(move || {
            for stream in listener.incoming().flatten() {
                spawn(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut &stream));
            }
        });
        at
    }

    fn ping(stream: &mut TcpStream) -> std::io::Result<[u8; 2]> {
        stream.write_all(b"hi")?;
        let mut back = [0; 2];
        stream.read_exact(&mut back)?;
        Ok(back)
    }

    /// R2.
    #[test]
    fn r1_r2_cut_relay_drops_connections_and_a_paused_one_delays_them() {
        let relay = Relay::start(echo()).unwrap();
        let connect = || {
            let stream = TcpStream::connect(relay.address()).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
            stream
        };
        let mut first = connect();
        assert_eq!(&ping(&mut first).unwrap(), b"hi");
        relay.set(Cable::Silent);
        sleep(PAUSE * 4);
        first.write_all(b"on").unwrap();
        first.set_read_timeout(Some(PAUSE * 4)).unwrap();
        let mut back = [0; 2];
        assert!(first.read_exact(&mut back).is_err(), "R2");
        relay.set(Cable::Whole);
        first.set_read_timeout(Some(Duration::from_secs(10))).unwrap();
        first.read_exact(&mut back).unwrap();
        assert_eq!(&back, b"on", "R2");
        relay.set(Cable::Cut);
        assert!(ping(&mut first).is_err(), "R1");
        assert!(ping(&mut connect()).is_err(), "R1");
        relay.set(Cable::Whole);
        assert_eq!(&ping(&mut connect()).unwrap(), b"hi");
    }
}
