//! A connection of a load whose thread never sleeps, so that no wake-up is charged to the server.
//! One call sends all pending bytes, and one receives all bytes that have arrived.

use std::io::{ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use super::running::{LoadShared, WAIT};
use super::spec::Outcome;
use crate::error::{Error, Kind};

/// See the module.
pub(crate) struct Pipe {
    stream: TcpStream,
    /// Bytes to be sent.
    pub out: Vec<u8>,
    sent: usize,
    input: Vec<u8>,
    at: usize,
    have: usize,
}

impl Pipe {
    /// Connected; it waits for answers until [`Pipe::set_nonblocking`]. So many bytes are read at a
    /// time.
    pub fn dial(to: SocketAddr, bytes: usize) -> Result<Pipe, Error> {
        let io = |e| Error::system(to, e);
        let stream = TcpStream::connect(to).map_err(io)?;
        stream.set_nodelay(true).map_err(io)?;
        stream.set_read_timeout(Some(WAIT)).map_err(io)?;
        Ok(Pipe { stream, out: Vec::new(), sent: 0, input: vec![0; bytes], at: 0, have: 0 })
    }

    /// Sends before the load begins.
    pub fn send_blocking(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.stream.write_all(bytes).map_err(|e| Error::system("the first requests", e))
    }

    /// Waits for exactly so many bytes before the load begins.
    pub fn receive_blocking(&mut self, bytes: &mut [u8]) -> Result<(), Error> {
        self.stream.read_exact(bytes).map_err(|e| Error::system("the first answers", e))
    }

    /// From now on nothing waits.
    pub fn set_nonblocking(&mut self) -> Result<(), Error> {
        self.stream.set_nonblocking(true).map_err(|e| Error::system("the connection", e))
    }

    /// Sends as many bytes as possible.
    pub fn send(&mut self) -> Result<(), Error> {
        while let Some(rest) = self.out.get(self.sent..).filter(|r| !r.is_empty()) {
            match self.stream.write(rest) {
                Ok(n) => self.sent += n,
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) => return Err(Error::system("send", e)),
            }
        }
        self.out.clear();
        self.sent = 0;
        Ok(())
    }

    /// Receives bytes behind the unused ones; true when any arrived.
    pub fn receive(&mut self) -> Result<bool, Error> {
        if self.at > 0 {
            self.input.copy_within(self.at..self.have, 0);
            self.have -= std::mem::take(&mut self.at);
        }
        if self.have == self.input.len() {
            self.input.resize(self.have * 2, 0);
        }
        let room = self.input.get_mut(self.have..).unwrap_or(&mut []);
        match self.stream.read(room) {
            Ok(0) => Err(Error::new(Kind::Protocol, "the server ended the connection")),
            Ok(n) => {
                self.have += n;
                Ok(true)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(false),
            Err(e) => Err(Error::system("receive", e)),
        }
    }

    /// Received bytes that were not used yet.
    pub fn unread(&self) -> &[u8] {
        self.input.get(self.at..self.have).unwrap_or(&[])
    }

    /// So many bytes of it were used.
    pub fn used(&mut self, bytes: usize) {
        self.at = (self.at + bytes).min(self.have);
    }
}

/// The requests of a load with numbered slots.
///
/// Invariant B1: a slot is idle or in flight, never both; `in_flight` counts the latter.
pub(crate) struct RequestTable {
    shared: Arc<LoadShared>,
    clock: Instant,
    idle: Vec<u32>,
    in_flight: u32,
    pub issued: u64,
    /// Results of the ended requests.
    pub outcome: Outcome,
}

impl RequestTable {
    /// So many slots, all idle.
    pub fn new(shared: Arc<LoadShared>, depth: u32) -> RequestTable {
        let idle = (0..depth).rev().collect();
        let (clock, outcome) = (Instant::now(), Outcome::default());
        RequestTable { shared, clock, idle, in_flight: 0, issued: 0, outcome }
    }

    /// ns since it was opened.
    pub fn now(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }

    /// A slot for a request, none when `all` were made, when it is to stop, or when none is idle.
    pub fn next(&mut self, all: u64) -> Option<u32> {
        if self.shared.stop.load(Relaxed) || self.issued >= all {
            return None;
        }
        let slot = self.idle.pop()?;
        self.issued += 1;
        self.in_flight += 1;
        Some(slot)
    }

    /// The request of a slot has ended well.
    pub fn ended(&mut self, slot: u32, begun: u64) {
        if self.shared.recording.load(Relaxed) {
            let took = self.now().saturating_sub(begun);
            self.outcome.latency.record(took);
        }
        self.outcome.requests += 1;
        self.shared.requests.fetch_add(1, Relaxed);
        self.in_flight -= 1;
        self.idle.push(slot);
    }
}

/// Client that makes the requests of slots and reads the replies.
pub(crate) trait Caller {
    /// Its connection and its slots.
    fn parts(&mut self) -> (&mut Pipe, &mut RequestTable);
    /// Makes a request for every slot that [`RequestTable::next`] gives.
    fn fill(&mut self);
    /// Takes one reply when all of it is here; false: more must arrive first.
    fn reply(&mut self) -> Result<bool, Error>;

    /// Sends requests of idle slots, and takes the replies that are here.
    fn pass(&mut self) -> Result<Pass, Error> {
        self.fill();
        let (pipe, table) = self.parts();
        table.shared.ready.store(1, Relaxed);
        pipe.send()?;
        if table.in_flight == 0 {
            return Ok(Pass::Ended);
        }
        if !pipe.receive()? {
            return Ok(Pass::Waits);
        }
        while self.reply()? {}
        Ok(Pass::Received)
    }
}

/// Result of [`Caller::pass`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pass {
    /// Nothing is in flight, and nothing more is to be made.
    Ended,
    /// No bytes arrived.
    Waits,
    /// Bytes arrived.
    Received,
}

/// Loads of several clients on this thread, which polls them in turn; ends when the last one ends.
/// Threads that share a core would wait for each other's time slices.
pub(crate) fn work_all<C: Caller>(clients: &mut [C]) -> Result<Outcome, Error> {
    work_beside(clients, &mut || Ok(()))
}

/// The same for clients beside other work of this thread, of which a part is done in each turn.
pub(crate) fn work_beside<C: Caller>(
    clients: &mut [C],
    other: &mut dyn FnMut() -> Result<(), Error>,
) -> Result<Outcome, Error> {
    let mut last_progress = Instant::now();
    loop {
        other()?;
        let (mut ended, mut received) = (0, false);
        for client in clients.iter_mut() {
            match client.pass()? {
                Pass::Ended => ended += 1,
                Pass::Waits => {}
                Pass::Received => received = true,
            }
        }
        if ended == clients.len() {
            let mut all = Outcome::default();
            clients.iter_mut().for_each(|client| all.add(&client.parts().1.outcome));
            return Ok(all);
        }
        if received {
            last_progress = Instant::now();
        } else if last_progress.elapsed() > WAIT {
            return Err(Error::new(Kind::Timeout, "the server does not answer"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::thread;

    use super::*;

    /// Sends bytes and counts their echoes.
    struct Echo {
        pipe: Pipe,
        table: RequestTable,
        all: u64,
    }

    impl Caller for Echo {
        fn parts(&mut self) -> (&mut Pipe, &mut RequestTable) {
            (&mut self.pipe, &mut self.table)
        }

        fn fill(&mut self) {
            while let Some(slot) = self.table.next(self.all) {
                self.pipe.out.push(u8::try_from(slot).expect("few slots"));
            }
        }

        fn reply(&mut self) -> Result<bool, Error> {
            let Some(slot) = self.pipe.unread().first().copied() else { return Ok(false) };
            self.pipe.used(1);
            self.table.ended(u32::from(slot), 0);
            Ok(true)
        }
    }

    #[test]
    fn clients_of_one_thread_all_finish_and_their_outcomes_are_added() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let server = thread::spawn(move || {
            let accept = |_| listener.accept().unwrap().0;
            let streams: Vec<TcpStream> = (0..4).map(accept).collect();
            thread::scope(|scope| {
                for stream in &streams {
                    let (mut from, mut to) = (stream, stream);
                    scope.spawn(move || std::io::copy(&mut from, &mut to));
                }
            });
        });
        let shared = Arc::new(LoadShared::default());
        shared.recording.store(true, Relaxed);
        let dial = |n: u64| {
            let mut pipe = Pipe::dial(at, 64).unwrap();
            pipe.set_nonblocking().unwrap();
            Echo { pipe, table: RequestTable::new(shared.clone(), 2), all: 10 * n }
        };
        let mut clients: Vec<Echo> = (1..=4).map(dial).collect();
        let mut turns = 0;
        let mut other = || -> Result<(), Error> {
            turns += 1;
            Ok(())
        };
        let outcome = work_beside(&mut clients, &mut other).unwrap();
        assert_eq!((outcome.requests, outcome.latency.count()), (100, 100));
        assert!(turns > 1, "other work has its part of each turn");
        drop(clients);
        server.join().unwrap();
    }
}
