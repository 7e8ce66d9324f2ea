//! TLS against a client in the same process: bytes after the end of the stream close the
//! connection, and no core hangs on them (T1). Keys that cannot be used are refused when they are
//! read.

use std::io::Write;
use std::sync::Arc;

use rig::papers::{Good, Papers};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tls::{ClientFiles, ClientKeys, Files, Keys};
use transport::{CommonReason, Tls};

/// A server and a client that trusts it.
fn ends() -> (Tls, ClientConnection) {
    rig::packages::ensure_host().unwrap();
    let papers = Papers::new("transport-tls").unwrap();
    papers.authority("ca").unwrap();
    papers.sign("ca", "server", "localhost", "subjectAltName=DNS:localhost", Good::Now).unwrap();
    let path = |name: &str| papers.file(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("server/server-cert.pem"), path("server/server-key.pem"));
    let files = Files { certificate: &certificate, key: &key, client_ca: "" };
    let tls = Tls::begin(&Keys::read(&files).unwrap()).unwrap();
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_file(papers.file("ca.pem")).unwrap()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let name = "localhost".try_into().unwrap();
    (tls, ClientConnection::new(Arc::new(config), name).unwrap())
}

/// Everything that the client has to send.
fn sent(client: &mut ClientConnection) -> Vec<u8> {
    let mut bytes = Vec::new();
    while client.wants_write() {
        client.write_tls(&mut bytes).unwrap();
    }
    bytes
}

#[test]
fn bytes_after_the_end_of_the_stream_are_refused() {
    let (tls, mut client) = ends();
    let mut clear = Vec::new();
    while client.is_handshaking() || tls.is_handshaking() {
        tls.decrypt(&sent(&mut client), &mut clear).unwrap();
        let mut back = Vec::new();
        tls.flush(&mut back).unwrap();
        client.read_tls(&mut &back[..]).unwrap();
        client.process_new_packets().unwrap();
    }
    assert!(clear.is_empty());
    let data = vec![7; 100_000];
    client.set_buffer_limit(None);
    client.writer().write_all(&data).unwrap();
    client.send_close_notify();
    let mut bytes = sent(&mut client);
    // More than one read of rustls: it takes none of them any more.
    bytes.resize(bytes.len() + 200_000, 0);
    let refused = tls.decrypt(&bytes, &mut clear).unwrap_err();
    assert_eq!(refused, CommonReason::Tls("bytes after the end of the stream".into()));
    assert_eq!(clear, data);
}

#[test]
fn a_key_of_another_size_is_refused_with_the_accepted_ones() {
    rig::packages::ensure_host().unwrap();
    let papers = Papers::new("transport-tls-keys").unwrap();
    papers.authority("ca").unwrap();
    papers.authority("other").unwrap();
    // openssl makes keys of any size.
    papers.rsa_key("odd", 2432).unwrap();
    let path = |name: &str| papers.file(name).to_str().unwrap().to_owned();
    let ca = path("ca.pem");
    let refusals = |key: &str| {
        let files = Files { certificate: &ca, key, client_ca: "" };
        let client = ClientFiles { ca: &ca, certificate: &ca, key };
        [Keys::read(&files).err().unwrap(), ClientKeys::read(&client).err().unwrap()]
    };
    let odd = path("odd.key");
    for text in refusals(&odd) {
        assert!(text.starts_with(&format!("tls_key: {odd}: a key of another")), "{text}");
        for accepted in ["RSA", "2048, 3072 and 4096 bits", "P-256 and P-384", "Ed25519"] {
            assert!(text.contains(accepted), "{text}");
        }
    }
    // A key of an accepted kind that is not the certificate's.
    for text in refusals(&path("other.key")) {
        assert!(text.starts_with("tls_key: ") && !text.contains("accepted"), "{text}");
    }
}
