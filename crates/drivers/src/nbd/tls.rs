//! TLS over a connection's stream: keys, the protocol fed by hand, and who the client is.
//!
//! Certificates only (X.509): the library has no pre-shared keys. The library reads the wall clock
//! when it looks at a certificate's dates, and its own source of randomness: in handshakes only.

use std::cell::{Cell, RefCell};
use std::io::{self, Read, Write};
use std::sync::Arc;

use bio::Seg;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::{RootCertStore, ServerConfig, ServerConnection};

use super::ending::Ending;
use super::params::NbdParams;
use crate::common::cause::Cause;
use crate::outbox::Outbox;

/// Bytes that are encrypted before they are sent.
pub(crate) const BATCH_MAX: usize = 128 * 1024;

/// What a target needs for TLS.
pub(crate) struct Keys(Arc<ServerConfig>);

fn certificates(key: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let all = CertificateDer::pem_file_iter(path).map_err(|e| format!("{key}: {path}: {e}"))?;
    let all: Result<Vec<_>, _> = all.collect();
    let all = all.map_err(|e| format!("{key}: {path}: {e}"))?;
    if all.is_empty() { Err(format!("{key}: {path}: no certificate in it")) } else { Ok(all) }
}

impl Keys {
    /// Reads the files of a target; an error names the key of the configuration.
    pub fn read(params: &NbdParams) -> Result<Keys, String> {
        let chain = certificates("tls_certificate", &params.tls_certificate)?;
        let file = &params.tls_key;
        let key =
            PrivateKeyDer::from_pem_file(file).map_err(|e| format!("tls_key: {file}: {e}"))?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("tls: {e}"))?;
        let config = if params.tls_client_ca.is_empty() {
            config.with_no_client_auth()
        } else {
            let mut roots = RootCertStore::empty();
            for root in certificates("tls_client_ca", &params.tls_client_ca)? {
                roots.add(root).map_err(|e| format!("tls_client_ca: {e}"))?;
            }
            let roots = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(
                roots.build().map_err(|e| format!("tls_client_ca: {e}"))?,
            )
        };
        let config = config.with_single_cert(chain, key).map_err(|e| format!("tls_key: {e}"))?;
        Ok(Keys(Arc::new(config)))
    }

    /// The server's side of a connection.
    pub fn begin(&self) -> Result<Secure, Ending> {
        let mut tls = ServerConnection::new(self.0.clone()).map_err(|e| refused(&e))?;
        // The caller bounds what it hands in (`BATCH_MAX`).
        tls.set_buffer_limit(None);
        Ok(Secure { tls: RefCell::new(tls), failed: Cell::new(false) })
    }
}

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
        let tls = self.tls.borrow();
        let own = tls.peer_certificates()?.first()?;
        let names = wire::x509::names(own).ok()?;
        names.first().map(str::to_owned)
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
