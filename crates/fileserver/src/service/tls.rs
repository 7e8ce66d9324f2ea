//! A client that connects by TLS: its identity, and its decrypted bytes for the 9P service.
//!
//! ```text
//!   socket --recv--> decrypt --> pair --> ninep, as from any stream
//!   socket <--send-- queue <-- encrypt <-- pair <-- replies
//! ```
//! The service gets one end of a pair of sockets, so clients without TLS pay nothing for those with
//! it.
//!
//! Invariants
//!  S1  Nothing of a client reaches the service before its certificate was accepted and names a
//!      user.
//!  S2  Encrypted data is sent in the order of its encryption: by one task.
//!  S3  A client that does not read has at most [`QUEUE_MAX`] and a record of replies waiting here.

use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::poll_fn;
use std::io;
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::task::Poll;

use bio::Seg;
use reactor::Stream;
use tls::Keys;
use transport::{CommonReason, Terms, Tls};

use super::host::Host;
use crate::ninep::ListenerOptions;
use crate::notify::Notify;

/// Bytes received, or read from the service, at a time.
const PIECE: usize = 64 << 10;
/// Encrypted bytes beyond which nothing more is encrypted (S3).
const QUEUE_MAX: usize = 256 << 10;
/// Time that a client may take to prove its identity, ns.
const SHAKE_NS: u64 = 15_000_000_000;

struct TlsConn {
    host: Rc<Host>,
    /// Towards the client.
    outside: Stream,
    tls: Tls,
    /// Encrypted, not sent yet.
    queue: RefCell<Vec<u8>>,
    /// The queue has grown or shrunk, or it is over.
    progress: Notify,
    closing: Cell<bool>,
}

const TERMS: Terms = Terms {
    peer: "client",
    request: "message",
    handshake: "handshake",
    timeout: "not authenticated in time",
};

/// Why a client is not served.
enum Refused {
    /// A reason that all protocols share.
    Common(CommonReason),
    /// Its certificate has no name.
    NoName,
    /// There is no user of the name in its certificate.
    NoUser(String),
}

impl From<CommonReason> for Refused {
    fn from(reason: CommonReason) -> Refused {
        Refused::Common(reason)
    }
}

impl From<io::Error> for Refused {
    fn from(e: io::Error) -> Refused {
        Refused::Common(CommonReason::lost(&e))
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Common(reason) => reason.describe(&TERMS, f),
            Refused::NoName => f.write_str("a certificate without a name"),
            Refused::NoUser(name) => {
                write!(f, "its certificate names `{name}`: there is no such user")
            }
        }
    }
}

impl TlsConn {
    /// Waits for something to receive, and holds no memory meanwhile.
    async fn receive(&self, from: &Stream) -> Result<Option<Seg>, Refused> {
        from.readable().await?;
        let memory = self.memory().await?;
        let n = from.recv(&memory).await?;
        Ok(memory.slice(0, n).filter(|_| n > 0))
    }

    /// Memory for a piece; waits while there is none.
    async fn memory(&self) -> io::Result<Seg> {
        let buf = poll_fn(|cx| match self.host.server.pool.get(PIECE) {
            Some(buf) => Poll::Ready(buf),
            None => {
                self.host.server.pool.wake_on_free(cx.waker());
                self.host.reactor.flush_lazy_sends();
                Poll::Pending
            }
        });
        let buf = buf.await;
        buf.seg(0, buf.capacity()).ok_or(io::ErrorKind::OutOfMemory.into())
    }

    /// Queues the bytes that TLS wants to send.
    fn gather(&self) -> Result<(), CommonReason> {
        self.tls.flush(&mut *self.queue.borrow_mut())?;
        self.progress.notify_all();
        Ok(())
    }

    /// Decrypts bytes of the client.
    fn open(&self, came: &Seg) -> Result<Vec<u8>, CommonReason> {
        let mut clear = Vec::new();
        let done = came.with(|bytes| self.tls.decrypt(bytes, &mut clear));
        // An alert informs the client of the error.
        self.gather()?;
        done.map(|()| clear)
    }

    /// Sends the queue until it is over (S2).
    async fn send_all(&self) {
        loop {
            let seen = self.progress.count();
            let mut some = self.queue.take();
            if some.is_empty() {
                if self.closing.get() {
                    break;
                }
                self.progress.after(seen).await;
                continue;
            }
            if some.len() > PIECE {
                let rest = some.split_off(PIECE);
                self.queue.replace(rest);
            }
            let Ok(memory) = self.memory().await else { break };
            memory.copy_from(0, &some);
            let mut out: Vec<Seg> = memory.slice(0, some.len()).into_iter().collect();
            if self.outside.send(&mut out).await.is_err() {
                break;
            }
            self.progress.notify_all();
        }
        self.end();
        self.outside.close();
    }

    fn end(&self) {
        self.closing.set(true);
        self.progress.notify_all();
    }

    /// Until keys are agreed on: the name in the client's certificate (S1), and the data that
    /// arrived with its last message.
    async fn handshake(&self) -> Result<(String, Vec<u8>), Refused> {
        let mut first = Vec::new();
        self.gather()?;
        while self.tls.is_handshaking() {
            let came = self.receive(&self.outside).await?;
            first.extend(self.open(&came.ok_or(CommonReason::Truncated)?)?);
        }
        Ok((self.tls.client().ok_or(Refused::NoName)?, first))
    }

    /// From the client to the service.
    async fn inwards(&self, inside: &Stream, first: Vec<u8>) -> Result<(), Refused> {
        let mut clear = first;
        loop {
            for piece in clear.chunks(PIECE) {
                let memory = self.memory().await?;
                memory.copy_from(0, piece);
                let mut out: Vec<Seg> = memory.slice(0, piece.len()).into_iter().collect();
                inside.send(&mut out).await?;
            }
            let Some(came) = self.receive(&self.outside).await? else { return Ok(()) };
            clear = self.open(&came)?;
        }
    }

    /// From the service to the client.
    async fn outwards(&self, inside: &Stream) -> Result<(), Refused> {
        loop {
            let seen = self.progress.count();
            if self.closing.get() {
                return Ok(());
            }
            if self.queue.borrow().len() > QUEUE_MAX {
                self.progress.after(seen).await;
                continue;
            }
            let Some(came) = self.receive(inside).await? else { return Ok(()) };
            came.with(|bytes| self.tls.encrypt(bytes))?;
            self.gather()?;
        }
    }
}

impl Host {
    /// Serves a client that has to prove its identity.
    pub(super) async fn serve_tls(
        self: Rc<Self>,
        stream: Stream,
        peer: String,
        keys: Keys,
        options: ListenerOptions,
    ) {
        let Ok(tls) = Tls::begin(&keys) else { return };
        let line = Rc::new(TlsConn {
            host: self.clone(),
            outside: stream,
            tls,
            queue: RefCell::default(),
            progress: Notify::default(),
            closing: Cell::new(false),
        });
        let sender = line.clone();
        self.reactor.spawn("fs-tls-send", async move { sender.send_all().await });
        let shaken = self.reactor.within(SHAKE_NS, line.handshake()).await;
        let served = match shaken {
            None => Err(CommonReason::HandshakeTimeout.into()),
            Some(Err(why)) => Err(why),
            Some(Ok((name, first))) => match self.server.users().can_attach(&name) {
                Some(id) => self.pair().map(|ends| (ends, id, first)).map_err(Refused::from),
                None => Err(Refused::NoUser(name)),
            },
        };
        match served {
            Ok(((ours, theirs), id, first)) => {
                let options =
                    ListenerOptions { fixed_user: Some(id), authenticated: true, ..options };
                let service = self.server.clone().serve(theirs, peer, options);
                self.reactor.spawn("fs-client", service);
                let (reads, inside) = (line.clone(), Rc::new(ours));
                let towards = inside.clone();
                self.reactor.spawn("fs-tls-recv", async move {
                    // The service sees the end from any cause.
                    let _ = reads.inwards(&towards, first).await;
                    towards.close();
                });
                let _ = line.outwards(&inside).await;
                inside.close();
            }
            Err(why) => {
                self.server.journal.log_refused(&peer, format_args!("{why}"));
                self.update_status();
            }
        }
        line.tls.close();
        // An alert that can no longer be sent is dropped.
        let _ = line.gather();
        line.end();
    }

    fn pair(&self) -> io::Result<(Stream, Stream)> {
        let (ours, theirs) = UnixStream::pair()?;
        Ok((self.reactor.adopt(ours.into()), self.reactor.adopt(theirs.into())))
    }
}
