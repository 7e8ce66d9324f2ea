//! First connection to a server, on a thread that may block: learns the properties of the medium.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use reactor::Address;
use rustls::ClientConnection;
use tls::ClientKeys;

use super::protocol::{Handshake, Progress};
use super::server_address::ServerAddress;

/// Longest wait for a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(2);
/// Longest wait for each piece of the handshake.
pub(crate) const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// The same of a server that was just started.
pub(crate) const START_TIMEOUT: Duration = Duration::from_secs(10);

/// TLS of the connections to a server.
#[derive(Clone, Default)]
pub(crate) struct ServerTls {
    /// `None`: without TLS.
    pub(crate) keys: Option<ClientKeys>,
    /// Name in the server's certificate; absent: the host of its address.
    pub(crate) name: Option<String>,
}

impl ServerTls {
    /// Begins TLS to a server whose address has this host.
    pub(crate) fn begin(&self, host: &str) -> Result<ClientConnection, String> {
        let keys = self.keys.as_ref().ok_or("TLS without keys")?;
        keys.begin(self.name.as_deref().unwrap_or(host))
    }
}

/// Parameters of a connection to a server.
#[derive(Clone)]
pub(crate) struct DialParams {
    pub(crate) address: ServerAddress,
    pub(crate) tls: ServerTls,
    /// Longest wait for each piece of the first handshake.
    pub(crate) handshake_timeout: Duration,
}

/// A connection behind its handshake.
pub(crate) struct OpenConnection<T> {
    pub(crate) fd: OwnedFd,
    pub(crate) tls: Option<ClientConnection>,
    pub(crate) terms: T,
}

enum Socket {
    Tcp(TcpStream),
    Unix(UnixStream),
}

impl Socket {
    fn connect(at: &Address, max_wait: Duration) -> io::Result<Socket> {
        match at {
            Address::Inet(at) => {
                let socket = TcpStream::connect_timeout(at, CONNECT_TIMEOUT)?;
                socket.set_nodelay(true)?;
                socket.set_read_timeout(Some(max_wait))?;
                socket.set_write_timeout(Some(max_wait))?;
                Ok(Socket::Tcp(socket))
            }
            Address::Unix(path) => {
                let socket = UnixStream::connect(&**path)?;
                socket.set_read_timeout(Some(max_wait))?;
                socket.set_write_timeout(Some(max_wait))?;
                Ok(Socket::Unix(socket))
            }
            Address::Ether(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn into_fd(self) -> io::Result<OwnedFd> {
        match &self {
            Socket::Tcp(s) => {
                s.set_read_timeout(None)?;
                s.set_write_timeout(None)?;
            }
            Socket::Unix(s) => {
                s.set_read_timeout(None)?;
                s.set_write_timeout(None)?;
            }
        }
        Ok(match self {
            Socket::Tcp(s) => s.into(),
            Socket::Unix(s) => s.into(),
        })
    }
}

impl Read for Socket {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(s) => s.read(into),
            Socket::Unix(s) => s.read(into),
        }
    }
}

impl Write for Socket {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Socket::Tcp(s) => s.write(bytes),
            Socket::Unix(s) => s.write(bytes),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn io_error_text(e: &io::Error) -> String {
    match e.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => "no answer in time".to_owned(),
        _ => e.to_string(),
    }
}

/// Why there is no connection.
pub(crate) struct DialError {
    pub(crate) why: String,
    /// Nothing listens at the address: the server may appear later.
    pub(crate) is_away: bool,
}

/// Connects and carries out a handshake. Blocks for a few seconds at the most.
pub(crate) fn connect_and_handshake<H: Handshake>(
    to: &DialParams,
    handshake: H,
) -> Result<OpenConnection<H::Terms>, DialError> {
    let mut why = String::new();
    for at in &to.address.at {
        match Socket::connect(at, to.handshake_timeout) {
            Ok(socket) => {
                let agreed = agree(to, socket, handshake);
                return agreed.map_err(|why| DialError { why, is_away: false });
            }
            Err(e) => why = io_error_text(&e),
        }
    }
    Err(DialError { why, is_away: true })
}

fn agree<H: Handshake>(
    to: &DialParams,
    mut socket: Socket,
    mut handshake: H,
) -> Result<OpenConnection<H::Terms>, String> {
    let (mut fresh, mut out, mut tls) = (Vec::new(), Vec::new(), None);
    loop {
        let (used, progress) = handshake.input(&fresh, &mut out)?;
        fresh.drain(..used);
        if matches!(progress, Progress::StartTls) {
            send(&mut socket, tls.as_mut(), &mut out).map_err(|e| io_error_text(&e))?;
            let mut begun = to.tls.begin(&to.address.host)?;
            begun.complete_io(&mut socket).map_err(|e| format!("TLS: {}", io_error_text(&e)))?;
            tls = Some(begun);
            handshake.secured(&mut out);
        }
        send(&mut socket, tls.as_mut(), &mut out).map_err(|e| io_error_text(&e))?;
        if let Progress::Ready(terms) = progress {
            let fd = socket.into_fd().map_err(|e| io_error_text(&e))?;
            return Ok(OpenConnection { fd, tls, terms });
        }
        let mut piece = [0; 4096];
        let n = match tls.as_mut() {
            // No more than the handshake's replies: the server sends nothing before a request.
            Some(tls) => rustls::Stream::new(tls, &mut socket).read(&mut piece),
            None => socket.read(&mut piece),
        };
        match n.map_err(|e| io_error_text(&e))? {
            0 => return Err("the server closes the connection".to_owned()),
            n => fresh.extend_from_slice(piece.get(..n).unwrap_or(&[])),
        }
    }
}

fn send(
    socket: &mut Socket,
    tls: Option<&mut ClientConnection>,
    out: &mut Vec<u8>,
) -> io::Result<()> {
    match tls {
        Some(tls) => rustls::Stream::new(tls, socket).write_all(out)?,
        None => socket.write_all(out)?,
    }
    out.clear();
    Ok(())
}
