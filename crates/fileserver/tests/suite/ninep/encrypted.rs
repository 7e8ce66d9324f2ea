//! Clients with TLS over the simulated network: requests, the end of the stream, and a client that
//! does not read.

use std::io::{Read, Write};
use std::rc::Rc;

use bio::Pool;
use fileserver::ninep::ListenerOptions;
use reactor::Stream;
use rig::papers::{Good, Papers};
use rustls::ClientConnection;
use testkit::clock::S;
use tls::{ClientFiles, ClientKeys, Files, Keys};
use transport::{Incoming, Tls};
use wire::ninep::{NOTAG, T};

use super::client::{Fixture, with_fixture};

/// Bytes that a client sends or receives at a time.
const PIECE: usize = 4096;

/// Type of an Rversion.
const RVERSION: u8 = 101;

/// A client after its handshake.
struct TlsClient {
    stream: Stream,
    pool: Pool,
    tls: ClientConnection,
}

impl TlsClient {
    /// Connects to a listener of its own.
    async fn connect(fixture: &Fixture, keys: Keys, tls: ClientConnection) -> TlsClient {
        let listener = fixture.reactor.listen("10.0.0.1:0".parse().unwrap()).unwrap();
        let at = listener.local_addr();
        let (server, pool) = (fixture.server.clone(), fixture.pool.clone());
        fixture.reactor.spawn("accept-tls", async move {
            let (stream, peer) = listener.accept().await.unwrap();
            let mut incoming = Incoming::from(stream);
            let tls = Rc::new(Tls::begin(&keys).unwrap());
            incoming.handshake(tls, &pool).await.unwrap();
            server.serve(incoming, peer.to_string(), ListenerOptions::default()).await;
        });
        let stream = fixture.reactor.connect(at).await.unwrap();
        let mut client = TlsClient { stream, pool: fixture.pool.clone(), tls };
        client.flush().await;
        while client.tls.is_handshaking() {
            assert!(client.receive().await, "the server closed the connection");
            client.flush().await;
        }
        client
    }

    /// Sends what TLS has queued.
    async fn flush(&mut self) {
        let mut bytes = Vec::new();
        while self.tls.wants_write() {
            self.tls.write_tls(&mut bytes).unwrap();
        }
        for piece in bytes.chunks(PIECE) {
            let seg = self.pool.get(PIECE).and_then(|buf| buf.seg(0, piece.len())).unwrap();
            seg.copy_from(0, piece);
            self.stream.send(&mut vec![seg]).await.unwrap();
        }
    }

    /// Receives and decrypts once; false at the end of the stream.
    async fn receive(&mut self) -> bool {
        let space = self.pool.get(PIECE).and_then(|buf| buf.seg(0, PIECE)).unwrap();
        let n = self.stream.recv(&space).await.unwrap();
        let bytes = space.with(|all| all[..n].to_vec());
        let mut rest = &bytes[..];
        while !rest.is_empty() {
            self.tls.read_tls(&mut rest).unwrap();
            self.tls.process_new_packets().unwrap();
        }
        n > 0
    }

    /// The type of the reply to a Tversion.
    async fn version(&mut self) -> u8 {
        let mut request = Vec::new();
        T::Version { msize: 8192, version: "9P2000" }.encode(NOTAG, &mut request);
        self.tls.writer().write_all(&request).unwrap();
        self.flush().await;
        let mut head = [0; 5];
        while self.tls.reader().read_exact(&mut head).is_err() {
            assert!(self.receive().await, "the server closed the connection");
        }
        head[4]
    }
}

/// Keys of a server, and those of clients that trust it.
fn keys(name: &str) -> (Keys, ClientKeys) {
    rig::packages::ensure_host().unwrap();
    let papers = Papers::new(name).unwrap();
    papers.authority("ca").unwrap();
    papers.sign("ca", "server", "localhost", "subjectAltName=DNS:localhost", Good::Now).unwrap();
    let path = |name: &str| papers.file(name).to_str().unwrap().to_owned();
    let (certificate, key) = (path("server/server-cert.pem"), path("server/server-key.pem"));
    let files = Files { certificate: &certificate, key: &key, client_ca: "" };
    let ca = path("ca.pem");
    let trusted = ClientFiles { ca: &ca, certificate: "", key: "" };
    (Keys::read(&files).unwrap(), ClientKeys::read(&trusted).unwrap())
}

#[test]
fn tls_client_that_is_hung_up_receives_the_end_of_the_stream() {
    let (server, clients) = keys("fs-tls-end");
    with_fixture(51, move |h| {
        let (server, tls) = (server.clone(), clients.begin("localhost").unwrap());
        async move {
            let mut c = TlsClient::connect(&h, server, tls).await;
            assert_eq!(c.version().await, RVERSION);
            assert_eq!(h.server.hang_up(None), 1);
            while c.receive().await {}
            // Without close_notify the reader waits for more.
            let end = c.tls.reader().read_to_end(&mut Vec::new());
            assert!(end.is_ok(), "{end:?}");
            assert_eq!(h.server.clients().len(), 0);
        }
    });
}

#[test]
fn tls_client_that_reads_no_replies_can_be_hung_up() {
    let (server, clients) = keys("fs-tls-slow");
    with_fixture(52, move |h| {
        let (server, tls) = (server.clone(), clients.begin("localhost").unwrap());
        async move {
            let mut c = TlsClient::connect(&h, server, tls).await;
            assert_eq!(c.version().await, RVERSION);
            let mut burst = Vec::new();
            // Their replies are more than the network holds.
            (0..20_000).for_each(|tag| T::Stat { fid: 0 }.encode(tag, &mut burst));
            c.tls.writer().write_all(&burst).unwrap();
            c.flush().await;
            h.reactor.sleep(S).await;
            assert_eq!(h.server.hang_up(None), 1);
            h.reactor.sleep(5 * S).await;
            assert_eq!(h.server.clients().len(), 0);
        }
    });
}
