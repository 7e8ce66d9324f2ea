//! Stream of a connection, in the clear or by TLS.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};

use bio::{Pool, Seg};
use reactor::Stream;
use rustls::ClientConnection;

/// Received bytes that are decrypted at a time.
const CIPHER_BYTES: usize = 64 * 1024;

fn invalid(e: impl std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e.to_string())
}

struct TlsState {
    tls: RefCell<ClientConnection>,
    cipher: Seg,
    /// Received bytes in `cipher` that were not taken yet.
    unread: Cell<(usize, usize)>,
}

/// See the module.
pub(crate) struct TlsStream {
    pub(crate) stream: Stream,
    pool: Pool,
    secure: RefCell<Option<std::rc::Rc<TlsState>>>,
}

impl TlsStream {
    pub(crate) fn new(stream: Stream, pool: Pool) -> TlsStream {
        TlsStream { stream, pool, secure: RefCell::default() }
    }

    /// From now on bytes are encrypted.
    pub(crate) fn secure(&self, tls: ClientConnection) -> io::Result<()> {
        let cipher = self.pool.get(CIPHER_BYTES).and_then(|buf| buf.seg(0, CIPHER_BYTES));
        let cipher = cipher.ok_or(io::ErrorKind::OutOfMemory)?;
        let secure = TlsState { tls: RefCell::new(tls), cipher, unread: Cell::default() };
        *self.secure.borrow_mut() = Some(std::rc::Rc::new(secure));
        Ok(())
    }

    pub(crate) fn is_secure(&self) -> bool {
        self.secure.borrow().is_some()
    }

    /// TLS has something of its own to send.
    pub(crate) fn wants_write(&self) -> bool {
        self.secure.borrow().as_ref().is_some_and(|s| s.tls.borrow().wants_write())
    }

    /// Receives at least a byte; 0 at the end of the stream. `alone`: nothing else sends now.
    pub(crate) async fn recv(&self, into: &Seg, alone: bool) -> io::Result<usize> {
        let secure = self.secure.borrow().clone();
        let Some(secure) = secure else { return self.stream.recv(into).await };
        loop {
            let read = into.with_mut(|b| secure.tls.borrow_mut().reader().read(b));
            match read {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                other => return other,
            }
            if alone && self.wants_write() {
                self.flush().await?;
            }
            let (mut start, mut end) = secure.unread.get();
            if start == end {
                (start, end) = (0, self.stream.recv(&secure.cipher).await?);
                if end == 0 {
                    return Ok(0);
                }
            }
            let took = secure.cipher.with(|b| {
                let mut rest = b.get(start..end).unwrap_or(&[]);
                let mut tls = secure.tls.borrow_mut();
                let took = tls.read_tls(&mut rest)?;
                tls.process_new_packets().map_err(invalid)?;
                io::Result::Ok(took)
            })?;
            start += took;
            secure.unread.set((start, end));
        }
    }

    /// Sends all of `out`, which is emptied.
    pub(crate) async fn send(&self, out: &mut Vec<Seg>) -> io::Result<()> {
        let secure = self.secure.borrow().clone();
        let Some(secure) = secure else { return self.stream.send(out).await };
        for seg in out.drain(..) {
            seg.with(|b| secure.tls.borrow_mut().writer().write_all(b))?;
        }
        self.flush().await
    }

    pub(crate) async fn send_bytes(&self, bytes: &[u8]) -> io::Result<()> {
        let mut segs = Vec::new();
        for piece in bytes.chunks(CIPHER_BYTES) {
            let seg = self.pool.get(piece.len()).and_then(|buf| buf.seg(0, piece.len()));
            let seg = seg.ok_or(io::ErrorKind::OutOfMemory)?;
            seg.copy_from(0, piece);
            segs.push(seg);
        }
        self.send(&mut segs).await
    }

    /// Sends the bytes that TLS has ready.
    pub(crate) async fn flush(&self) -> io::Result<()> {
        let secure = self.secure.borrow().clone();
        let Some(secure) = secure else { return Ok(()) };
        let mut bytes = Vec::new();
        while secure.tls.borrow().wants_write() {
            secure.tls.borrow_mut().write_tls(&mut bytes)?;
        }
        let mut segs = Vec::new();
        for piece in bytes.chunks(CIPHER_BYTES) {
            let seg = self.pool.get(piece.len()).and_then(|buf| buf.seg(0, piece.len()));
            let seg = seg.ok_or(io::ErrorKind::OutOfMemory)?;
            seg.copy_from(0, piece);
            segs.push(seg);
        }
        self.stream.send(&mut segs).await
    }
}
