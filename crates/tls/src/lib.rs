//! TLS (RFC 8446) configuration of listeners and clients read from files, identities of TLS
//! clients, and expiry of certificates.
//!
//! Certificates only (X.509, RFC 5280): the library has no pre-shared keys. It reads the wall clock
//! when it looks at a certificate's dates, and its own source of randomness: in handshakes only.

#![forbid(unsafe_code)]

use std::sync::Arc;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::server::WebPkiClientVerifier;
use rustls::{ClientConfig, ClientConnection, RootCertStore, ServerConfig, ServerConnection};

/// Longest file of certificates, bytes; the rest of a longer one is ignored.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// Where a listener's keys are: paths of files in PEM, or `credential:NAME`.
#[derive(Clone, Copy, Debug)]
pub struct Files<'a> {
    /// The certificates of the server, its own first.
    pub certificate: &'a str,
    /// Its private key.
    pub key: &'a str,
    /// The CA certificates that client certificates are checked against. If it is empty, no client
    /// certificate is requested.
    pub client_ca: &'a str,
}

/// Whether a client has to present a certificate, if there is a CA to verify it.
#[derive(Clone, Copy)]
enum ClientCertificate {
    Required,
    Optional,
}

/// The keys of a listener.
#[derive(Clone)]
pub struct Keys(Arc<ServerConfig>);

/// The contents of a file that a key of the configuration names.
fn contents(key: &str, path: &str) -> Result<Vec<u8>, String> {
    let contents = bio::read_named(path, FILE_BYTES_MAX);
    contents.map_err(|e| format!("{key}: {path}: {e}"))
}

fn private_key(path: &str) -> Result<PrivateKeyDer<'static>, String> {
    let pem = contents("tls_key", path)?;
    PrivateKeyDer::from_pem_slice(&pem).map_err(|e| format!("tls_key: {path}: {e}"))
}

/// Why a private key cannot be used. Of a key that it cannot read the library reports neither which
/// kinds it reads nor which sizes.
fn unusable_key(path: &str, error: &rustls::Error) -> String {
    match error {
        rustls::Error::General(_) => format!(
            "tls_key: {path}: a key of another kind or size, or a damaged one; accepted are RSA \
             keys of 2048, 3072 and 4096 bits, ECDSA keys on P-256 and P-384, and Ed25519 keys"
        ),
        other => format!("tls_key: {path}: {other}"),
    }
}

fn certificates(key: &str, path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let pem = contents(key, path)?;
    let all: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&pem).collect();
    let all = all.map_err(|e| format!("{key}: {path}: {e}"))?;
    if all.is_empty() {
        Err(format!("{key}: {path}: the file contains no certificate"))
    } else {
        Ok(all)
    }
}

impl Keys {
    /// Reads the files of a listener.
    ///
    /// # Errors
    /// A text that begins with the key of the configuration: `tls_certificate`, `tls_key`,
    /// `tls_client_ca`.
    pub fn read(files: &Files<'_>) -> Result<Keys, String> {
        Keys::read_with(files, ClientCertificate::Required)
    }

    /// Reads the files of a listener whose clients may prove themselves in another way. A client
    /// certificate is requested and verified, but a client without one is admitted.
    ///
    /// # Errors
    /// As [`Keys::read`].
    pub fn read_optional(files: &Files<'_>) -> Result<Keys, String> {
        Keys::read_with(files, ClientCertificate::Optional)
    }

    fn read_with(files: &Files<'_>, clients: ClientCertificate) -> Result<Keys, String> {
        let chain = certificates("tls_certificate", files.certificate)?;
        let file = files.key;
        let key = private_key(file)?;
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ServerConfig::builder_with_provider(provider.clone())
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("tls: {e}"))?;
        let config = if files.client_ca.is_empty() {
            config.with_no_client_auth()
        } else {
            let mut roots = RootCertStore::empty();
            for root in certificates("tls_client_ca", files.client_ca)? {
                roots.add(root).map_err(|e| format!("tls_client_ca: {e}"))?;
            }
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            let verifier = match clients {
                ClientCertificate::Required => verifier,
                ClientCertificate::Optional => verifier.allow_unauthenticated(),
            };
            let verifier = verifier.build().map_err(|e| format!("tls_client_ca: {e}"))?;
            config.with_client_cert_verifier(verifier)
        };
        let config = config.with_single_cert(chain, key).map_err(|e| unusable_key(file, &e))?;
        Ok(Keys(Arc::new(config)))
    }

    /// The server's side of a connection. The caller bounds the input that it passes in.
    ///
    /// # Errors
    /// The library's.
    pub fn begin(&self) -> Result<ServerConnection, rustls::Error> {
        let mut tls = ServerConnection::new(self.0.clone())?;
        tls.set_buffer_limit(None);
        Ok(tls)
    }
}

/// Where a client's keys are: paths of files in PEM, or `credential:NAME`.
#[derive(Clone, Copy, Debug)]
pub struct ClientFiles<'a> {
    /// The certificates that vouch for servers.
    pub ca: &'a str,
    /// The client's certificates, its own first; empty: it shows none.
    pub certificate: &'a str,
    /// Its private key; empty with `certificate`.
    pub key: &'a str,
}

/// The keys of a client.
#[derive(Clone)]
pub struct ClientKeys(Arc<ClientConfig>);

impl ClientKeys {
    /// Reads the files of a client.
    ///
    /// # Errors
    /// A text that begins with the key of the configuration: `tls_ca`, `tls_certificate`,
    /// `tls_key`.
    pub fn read(files: &ClientFiles<'_>) -> Result<ClientKeys, String> {
        let mut roots = RootCertStore::empty();
        for root in certificates("tls_ca", files.ca)? {
            roots.add(root).map_err(|e| format!("tls_ca: {}: {e}", files.ca))?;
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|e| format!("tls: {e}"))?
            .with_root_certificates(roots);
        if files.certificate.is_empty() {
            return Ok(ClientKeys(Arc::new(config.with_no_client_auth())));
        }
        let chain = certificates("tls_certificate", files.certificate)?;
        let file = files.key;
        let key = private_key(file)?;
        let config = config.with_client_auth_cert(chain, key);
        Ok(ClientKeys(Arc::new(config.map_err(|e| unusable_key(file, &e))?)))
    }

    /// The client's side of a connection to the server of that name or address, which its
    /// certificate must bear.
    ///
    /// # Errors
    /// A text: the name is invalid, or the library's error.
    pub fn begin(&self, host: &str) -> Result<ClientConnection, String> {
        let name = ServerName::try_from(host.to_owned()).map_err(|e| format!("{host}: {e}"))?;
        let mut tls = ClientConnection::new(self.0.clone(), name).map_err(|e| e.to_string())?;
        tls.set_buffer_limit(None);
        Ok(tls)
    }
}

/// The name in the client's certificate: its common name or, without one, its first alternative
/// name.
pub fn client(tls: &ServerConnection) -> Option<String> {
    let own = tls.peer_certificates()?.first()?;
    let names = wire::x509::names(own).ok()?;
    names.first().map(str::to_owned)
}

/// The certificates of a file in PEM that can be read, in DER.
pub fn certificates_of(pem: &[u8]) -> Vec<Vec<u8>> {
    CertificateDer::pem_slice_iter(pem).flatten().map(|one| one.to_vec()).collect()
}

/// The last second in which all certificates of a file in PEM are valid, in seconds since 1970:
/// the earliest of them. `None` when there is no certificate in it that can be read.
pub fn expires(pem: &[u8]) -> Option<i64> {
    let all = CertificateDer::pem_slice_iter(pem).flatten();
    all.filter_map(|one| wire::x509::expires(&one).ok()).min()
}
