//! TLS over a connection's stream: the protocol fed by hand.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};

use bio::Seg;
use keys::Keys;
use rustls::ServerConnection;

use super::ending::Ending;
use crate::common::cause::Cause;
use crate::outbox::Outbox;

/// Bytes that are encrypted before they are sent.
pub(crate) const BATCH_MAX: usize = 128 * 1024;

fn refused(e: &rustls::Error) -> Ending {
    Ending::Tls(e.to_string())
}

/// TLS on one connection.
pub(crate) struct Secure {
    tls: RefCell<ServerConnection>,
    failed: Cell<bool>,
}

/// Encrypted bytes into an outbox.
struct Sink<'a>(&'a mut Outbox);

impl Write for Sink<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.bytes_of(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Secure {
    /// The server's side of a connection; what is handed in is at most [`BATCH_MAX`].
    pub fn begin(keys: &Keys) -> Result<Secure, Ending> {
        let tls = keys.begin().map_err(|e| refused(&e))?;
        Ok(Secure { tls: RefCell::new(tls), failed: Cell::new(false) })
    }

    /// Feeds what arrived; answers how much of `bytes` was taken. What it takes may have to be
    /// read by [`Secure::read`] before more is taken.
    pub fn feed(&self, bytes: &[u8]) -> Result<usize, Ending> {
        let mut tls = self.tls.borrow_mut();
        let mut rest = bytes;
        // An error means that its buffers are full of what was not read yet.
        let taken = tls.read_tls(&mut rest).unwrap_or_default();
        if let Err(e) = tls.process_new_packets() {
            self.failed.set(true);
            return Err(refused(&e));
        }
        Ok(taken)
    }

    /// Reads what was decrypted; 0 when there is nothing yet. `Err` at the end of the stream.
    pub fn read(&self, into: &Seg) -> Result<usize, Ending> {
        let read = into.with_mut(|b| self.tls.borrow_mut().reader().read(b));
        match read {
            Ok(0) => Err(Cause::PeerClosed.into()),
            Ok(n) => Ok(n),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => Ok(0),
            Err(e) => Err(Cause::lost(&e).into()),
        }
    }

    /// Encrypts `bytes` and what the protocol itself wants to say, into `out`.
    pub fn write(&self, segs: &[Seg], out: &mut Outbox) -> Result<(), Ending> {
        let mut tls = self.tls.borrow_mut();
        for seg in segs {
            seg.with(|b| tls.writer().write_all(b)).map_err(|e| Cause::lost(&e))?;
        }
        while tls.wants_write() {
            tls.write_tls(&mut Sink(out)).map_err(|e| Cause::lost(&e))?;
        }
        Ok(())
    }

    /// The protocol itself has something to say.
    pub fn wants_write(&self) -> bool {
        self.tls.borrow().wants_write()
    }

    /// True while keys are being agreed on.
    pub fn is_handshaking(&self) -> bool {
        self.tls.borrow().is_handshaking() && !self.failed.get()
    }

    /// Says goodbye, so that the client knows that nothing was cut off.
    pub fn close(&self) {
        self.tls.borrow_mut().send_close_notify();
    }

    /// The name in the client's certificate.
    pub fn client(&self) -> Option<String> {
        keys::client(&self.tls.borrow())
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
