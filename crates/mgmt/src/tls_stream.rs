//! TLS over a TCP stream, for the server and for the client of the API.
//!
//! Invariants
//!  T1  Plaintext is accepted for sending only after all earlier ciphertext was sent: a slow peer
//!      limits the memory of its connection.
//!  T2  The end of the TCP stream without the end of the TLS stream is an error of the reader.

use rustls::Connection;
use std::future::poll_fn;
use std::io::{self, ErrorKind, Read, Write};
use std::pin::Pin;
use std::task::{Context, Poll, ready};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;

/// Most plaintext that is encrypted at once, in bytes.
const PLAINTEXT_BYTES_MAX: usize = 64 << 10;

/// See the module.
pub(crate) struct TlsStream {
    tcp: TcpStream,
    tls: Connection,
    is_closing: bool,
}

/// A TCP stream as the library reads and writes it: `WouldBlock` registers the waker.
struct Blocking<'a, 'b> {
    tcp: &'a mut TcpStream,
    cx: &'a mut Context<'b>,
}

impl Read for Blocking<'_, '_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let mut buffer = ReadBuf::new(bytes);
        match Pin::new(&mut *self.tcp).poll_read(self.cx, &mut buffer) {
            Poll::Ready(done) => done.map(|()| buffer.filled().len()),
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    }
}

impl Write for Blocking<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match Pin::new(&mut *self.tcp).poll_write(self.cx, bytes) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(ErrorKind::WouldBlock.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The result of a call of the library that may wait for the stream.
fn polled<T>(done: io::Result<T>) -> Poll<io::Result<T>> {
    match done {
        Err(e) if e.kind() == ErrorKind::WouldBlock => Poll::Pending,
        done => Poll::Ready(done),
    }
}

impl TlsStream {
    /// Completes the handshake.
    ///
    /// # Errors
    /// Those of the stream; `InvalidData` for errors of TLS, such as an untrusted certificate.
    pub(crate) async fn handshake(tcp: TcpStream, tls: Connection) -> io::Result<TlsStream> {
        let mut stream = TlsStream { tcp, tls, is_closing: false };
        poll_fn(|cx| stream.poll_handshake(cx)).await?;
        Ok(stream)
    }

    /// The name in the certificate of a client; `None`: it presented none.
    pub(crate) fn client(&self) -> Option<String> {
        match &self.tls {
            Connection::Server(tls) => tls::client(tls),
            Connection::Client(_) => None,
        }
    }

    fn poll_handshake(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        loop {
            ready!(self.poll_send(cx))?;
            if !self.tls.is_handshaking() {
                return Poll::Ready(Ok(()));
            }
            if ready!(self.poll_receive(cx))? == 0 {
                return Poll::Ready(Err(ErrorKind::UnexpectedEof.into()));
            }
        }
    }

    /// Sends all ciphertext.
    fn poll_send(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.tls.wants_write() {
            let mut tcp = Blocking { tcp: &mut self.tcp, cx: &mut *cx };
            if ready!(polled(self.tls.write_tls(&mut tcp)))? == 0 {
                return Poll::Ready(Err(ErrorKind::WriteZero.into()));
            }
        }
        Poll::Ready(Ok(()))
    }

    /// Receives and decrypts; returns the number of received bytes, 0 at the end of the stream.
    fn poll_receive(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        let mut tcp = Blocking { tcp: &mut self.tcp, cx: &mut *cx };
        let received = ready!(polled(self.tls.read_tls(&mut tcp)))?;
        if let Err(e) = self.tls.process_new_packets() {
            // The alert is for the peer; the error here is the same with or without it.
            let _ = self.poll_send(cx);
            return Poll::Ready(Err(io::Error::new(ErrorKind::InvalidData, e)));
        }
        Poll::Ready(Ok(received))
    }
}

impl AsyncRead for TlsStream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            // An error of the library other than `WouldBlock` is the end without that of TLS (T2).
            match polled(this.tls.reader().read(buffer.initialize_unfilled())) {
                Poll::Ready(Ok(n)) => {
                    buffer.advance(n);
                    return Poll::Ready(Ok(()));
                }
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => {}
            }
            // Answers of TLS itself, such as new keys; reading does not wait for them.
            if let Poll::Ready(Err(e)) = this.poll_send(cx) {
                return Poll::Ready(Err(e));
            }
            ready!(this.poll_receive(cx))?;
        }
    }
}

impl AsyncWrite for TlsStream {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        let first = bytes.get(..PLAINTEXT_BYTES_MAX).unwrap_or(bytes);
        let taken = this.tls.writer().write(first)?;
        match this.poll_send(cx) {
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            _ => Poll::Ready(Ok(taken)),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.tcp).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        if !this.is_closing {
            this.is_closing = true;
            this.tls.send_close_notify();
        }
        ready!(this.poll_send(cx))?;
        Pin::new(&mut this.tcp).poll_shutdown(cx)
    }
}
