//! A client of `echo`, and the loops that run it.

use std::cell::Cell;
use std::future::Future;
use std::rc::Rc;

use bio::{Pool, PoolConfig};
use reactor::{Address, Reactor, Stream, WaitFor};

use crate::echo::GREETING;

/// Bytes of one request of [`Client::converse`].
const PIECE: usize = 4096;

/// A connection to an `echo` portal.
pub struct Client {
    pub stream: Stream,
    pool: Pool,
}

impl Client {
    /// Connects.
    pub async fn connect(reactor: &Reactor, at: &Address) -> Client {
        let stream = match at {
            Address::Inet(at) => reactor.connect(*at).await.unwrap(),
            other => reactor.connect_unix(other.unix().unwrap()).await.unwrap(),
        };
        Client { stream, pool: Pool::new(PoolConfig::default()) }
    }

    /// Connects, and completes the handshake.
    pub async fn greet(reactor: &Reactor, at: &Address) -> Client {
        let client = Client::connect(reactor, at).await;
        client.send(&[GREETING, b"a"].concat()).await.unwrap();
        client
    }

    /// Sends bytes.
    pub async fn send(&self, bytes: &[u8]) -> std::io::Result<()> {
        let seg = self.pool.get(bytes.len()).and_then(|b| b.seg(0, bytes.len())).unwrap();
        seg.copy_from(0, bytes);
        self.stream.send(&mut vec![seg]).await
    }

    /// Receives bytes; none at the end of the stream.
    pub async fn receive(&self) -> std::io::Result<Vec<u8>> {
        let room = self.pool.get(PIECE).and_then(|b| b.seg(0, PIECE)).unwrap();
        let n = self.stream.recv(&room).await?;
        Ok(room.with(|b| b[..n].to_vec()))
    }

    /// Checks that `bytes` are returned.
    pub async fn converse(&self, bytes: &[u8]) {
        for piece in bytes.chunks(PIECE) {
            self.send(piece).await.unwrap();
            let mut back = Vec::new();
            while back.len() < piece.len() {
                let more = self.receive().await.unwrap();
                assert!(!more.is_empty(), "the connection ended");
                back.extend(more);
            }
            assert_eq!(back, piece);
        }
    }
}

/// Starts a task; the flag is set when it has ended.
pub fn spawn(reactor: &Reactor, task: impl Future<Output = ()> + 'static) -> Rc<Cell<bool>> {
    let ended = Rc::new(Cell::new(false));
    let set = ended.clone();
    drop(reactor.spawn("client", async move {
        task.await;
        set.set(true);
    }));
    ended
}

/// Runs a reactor of this thread until `stop`.
pub fn run(reactor: &Reactor, stop: impl Fn() -> bool) {
    while !stop() {
        reactor.turn(WaitFor::Forever, &mut |_, _| ());
    }
    reactor.shutdown();
}
