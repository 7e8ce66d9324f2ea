//! TLS against a client in the same process: bytes after the end of the stream are not read, and no
//! core hangs on them (T1). Keys that cannot be used are refused when they are read.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::pin::pin;
use std::rc::Rc;
use std::sync::{Arc, mpsc};
use std::task::{Context, Waker};
use std::thread;

use bio::{Pool, PoolConfig};
use reactor::{Config, Reactor};
use rig::papers::{Good, Papers};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use rustls::{ClientConfig, ClientConnection, RootCertStore};
use tls::{ClientFiles, ClientKeys, Files, Keys};
use transport::{Incoming, Tls};

use crate::client;

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

/// A client that agrees on keys, and sends 100,000 bytes after the returned signal. Its end of the
/// stream is followed by more bytes.
fn spawn_client(mut client: ClientConnection, mut socket: UnixStream) -> mpsc::Sender<()> {
    let (begin, begun) = mpsc::channel();
    thread::spawn(move || {
        while client.is_handshaking() {
            client.complete_io(&mut socket).unwrap();
        }
        begun.recv().unwrap();
        client.set_buffer_limit(None);
        client.writer().write_all(&[7; 100_000]).unwrap();
        client.send_close_notify();
        let mut bytes = sent(&mut client);
        // More than one read of rustls: it takes none of them any more.
        bytes.resize(bytes.len() + 200_000, 0);
        // The server closes before it has read all of them.
        let _ = socket.write_all(&bytes);
    });
    begin
}

#[test]
fn bytes_after_the_end_of_the_stream_are_not_read() {
    let (tls, client) = ends();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let reactor = Reactor::start(Config::default()).unwrap();
    let mut incoming = Incoming::from(reactor.adopt(ours.into()));
    let begin = spawn_client(client, theirs);
    let played = client::spawn(&reactor, async move {
        let pool = Pool::new(PoolConfig::default());
        incoming.handshake(Rc::new(tls), &pool).await.unwrap();
        {
            let mut idle = pin!(incoming.readable());
            assert!(idle.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
        }
        assert_eq!(pool.usage().used_bytes, 0, "a silent client holds memory");
        begin.send(()).unwrap();
        let space = pool.get(64 << 10).unwrap().seg(0, 64 << 10).unwrap();
        let mut clear = Vec::new();
        loop {
            incoming.readable().await.unwrap();
            match incoming.receive(&space).await.unwrap() {
                0 => break,
                n => space.with(|bytes| clear.extend_from_slice(&bytes[..n])),
            }
        }
        assert!(clear == [7; 100_000], "{} bytes", clear.len());
    });
    client::run(&reactor, || played.get());
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
