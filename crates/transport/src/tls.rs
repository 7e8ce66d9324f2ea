//! TLS on one connection: rustls with explicit input and output.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};

use bio::Seg;
use rustls::ServerConnection;
use tls::Keys;

use crate::reason::CommonReason;
use crate::transmit_queue::TransmitQueue;

/// Bytes that are encrypted before they are sent.
pub(crate) const BATCH_MAX: usize = 128 * 1024;

fn failed(e: &rustls::Error) -> CommonReason {
    CommonReason::Tls(e.to_string())
}

/// The server's side of TLS on one connection.
pub struct Tls {
    tls: RefCell<ServerConnection>,
    failed: Cell<bool>,
}

/// Writes encrypted bytes into a queue.
struct Sink<'a>(&'a mut TransmitQueue);

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.put(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Tls {
    /// Before the first byte.
    pub fn begin(keys: &Keys) -> Result<Tls, CommonReason> {
        let tls = keys.begin().map_err(|e| failed(&e))?;
        Ok(Tls { tls: RefCell::new(tls), failed: Cell::new(false) })
    }

    /// Decrypts received bytes; returns how many of them were taken. The decrypted bytes may have
    /// to be read by [`Tls::read`] before more are taken.
    pub(crate) fn process_received(&self, bytes: &[u8]) -> Result<usize, CommonReason> {
        let mut tls = self.tls.borrow_mut();
        let mut rest = bytes;
        // An error means that its buffers are full of decrypted bytes.
        let taken = tls.read_tls(&mut rest).unwrap_or_default();
        if let Err(e) = tls.process_new_packets() {
            self.failed.set(true);
            return Err(failed(&e));
        }
        Ok(taken)
    }

    /// Reads decrypted bytes; 0 when there are none yet, `PeerClosed` at the end of the stream.
    pub(crate) fn read(&self, into: &Seg) -> Result<usize, CommonReason> {
        let read = into.with_mut(|b| self.tls.borrow_mut().reader().read(b));
        match read {
            Ok(0) => Err(CommonReason::PeerClosed),
            Ok(n) => Ok(n),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) => Err(CommonReason::lost(&e)),
        }
    }

    /// Decrypted bytes are there to be read, or the end of the stream.
    pub(crate) fn is_readable(&self) -> bool {
        let state = self.tls.borrow_mut().process_new_packets();
        state.is_ok_and(|state| state.plaintext_bytes_to_read() > 0 || state.peer_has_closed())
    }

    /// Encrypts `segs` and the protocol's own messages into `out`; at most [`BATCH_MAX`] at once.
    pub(crate) fn write(&self, segs: &[Seg], out: &mut TransmitQueue) -> Result<(), CommonReason> {
        let mut tls = self.tls.borrow_mut();
        let lost = |e: io::Error| CommonReason::lost(&e);
        for seg in segs {
            seg.with(|b| tls.writer().write_all(b)).map_err(lost)?;
        }
        while tls.wants_write() {
            tls.write_tls(&mut Sink(out)).map_err(lost)?;
        }
        Ok(())
    }

    /// True when the protocol has a message of its own to send.
    pub(crate) fn wants_write(&self) -> bool {
        self.tls.borrow().wants_write()
    }

    /// True until keys are agreed on.
    pub fn is_handshaking(&self) -> bool {
        self.tls.borrow().is_handshaking() && !self.failed.get()
    }

    /// Queues close_notify: the client knows that the stream is complete.
    pub fn close(&self) {
        self.tls.borrow_mut().send_close_notify();
    }

    /// The name in the client's certificate.
    pub fn client(&self) -> Option<String> {
        tls::client(&self.tls.borrow())
    }

    /// Version and cipher, for lists.
    pub fn label(&self) -> String {
        let tls = self.tls.borrow();
        let version = tls.protocol_version().and_then(|v| v.as_str().map(str::to_owned));
        let suite = tls.negotiated_cipher_suite().map(|s| s.suite());
        let cipher = suite.and_then(|s| s.as_str().map(str::to_owned));
        format!("{} {}", version.unwrap_or_default(), cipher.unwrap_or_default())
    }
}
