//! The way to a daemon on another machine: HTTP over TCP with TLS, and a bearer token or a client
//! certificate.

use crate::api::{Error, Kind, Result};
use crate::config::secret;
use crate::stream::Stream;
use crate::tls_stream::TlsStream;
use std::fmt;
use std::io;
use std::net::IpAddr;
use tls::{ClientFiles, ClientKeys};
use tokio::net::TcpStream;

/// Port of a URL without one.
const PORT: u16 = 7320;

/// CA certificates of the system, when no file is named.
pub(crate) const SYSTEM_CA: &str = "/etc/ssl/certs/ca-certificates.crt";

/// See the module.
#[derive(Clone)]
pub struct Remote {
    url: Url,
    /// Absent for a URL without TLS.
    keys: Option<ClientKeys>,
    /// Absent: the client certificate identifies the client.
    token: Option<String>,
}

/// Files by which a client identifies itself and verifies the daemon.
#[derive(Clone, Copy, Debug, Default)]
pub struct Credentials<'a> {
    /// Bearer token. It takes precedence over the certificate.
    pub token_file: Option<&'a str>,
    /// CA certificates that verify the daemon; absent: those of the system.
    pub ca: Option<&'a str>,
    /// Client certificate with its chain, in PEM.
    pub certificate: Option<&'a str>,
    /// Private key of the client certificate; absent: it is in the same file.
    pub key: Option<&'a str>,
}

/// The parts of `https://HOST:PORT`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Url {
    /// The scheme is `https`, or absent.
    pub(crate) has_tls: bool,
    /// An IPv6 address is without its brackets.
    host: String,
    port: u16,
}

impl Url {
    /// Reads a URL without a path; `default_port`: that of a URL without a port.
    pub(crate) fn parse(text: &str, default_port: u16) -> Option<Url> {
        let (has_tls, rest) = match text.split_once("://") {
            Some(("https", rest)) => (true, rest),
            Some(("http", rest)) => (false, rest),
            Some(_) => return None,
            None => (true, text),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let (host, port) = match rest.strip_prefix('[') {
            Some(rest) => {
                let (host, behind) = rest.split_once(']')?;
                (host, if behind.is_empty() { None } else { Some(behind.strip_prefix(':')?) })
            }
            None => match rest.split_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (rest, None),
            },
        };
        let port = port.map_or(Some(default_port), |port| port.parse().ok())?;
        let is_valid = !host.is_empty() && !host.contains(['/', '?', '#', '@', ' ']);
        is_valid.then(|| Url { has_tls, host: host.to_owned(), port })
    }

    fn is_loopback(&self) -> bool {
        let address = self.host.parse::<IpAddr>();
        self.host == "localhost" || address.is_ok_and(|ip| ip.to_canonical().is_loopback())
    }

    /// Host and port, as the field `Host` has them.
    pub(crate) fn authority(&self) -> String {
        let Url { host, port, .. } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }

    /// Connects; `keys` verify the server and are used for TLS if they are given.
    ///
    /// # Errors
    /// Those of TCP; `InvalidData` when the certificate of the server is refused.
    pub(crate) async fn connect(&self, keys: Option<&ClientKeys>) -> io::Result<Box<dyn Stream>> {
        let stream = TcpStream::connect((self.host.as_str(), self.port)).await?;
        let Some(keys) = keys else { return Ok(Box::new(stream)) };
        let begun = keys.begin(&self.host).map_err(io::Error::other)?;
        let stream = TlsStream::handshake(stream, rustls::Connection::Client(begun)).await?;
        Ok(Box::new(stream))
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let scheme = if self.has_tls { "https" } else { "http" };
        write!(f, "{scheme}://{}", self.authority())
    }
}

impl fmt::Display for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.url)
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Remote({self})")
    }
}

impl Remote {
    /// The daemon at a URL. Files are read; nothing is connected yet.
    ///
    /// # Errors
    /// [`Kind::Usage`] for the URL or for missing credentials, [`Kind::Secret`] for the token,
    /// [`Kind::System`] for the CA and the client certificate.
    pub fn new(url: &str, credentials: &Credentials<'_>) -> Result<Remote> {
        let usage =
            |why: &str, next: &str| Err(Error::new(Kind::Usage, "connect", why).at(url).next(next));
        let https = "Write --remote https://HOST:PORT.";
        let Some(parsed) = Url::parse(url, PORT) else {
            return usage("the URL is not https://HOST:PORT", https);
        };
        if !parsed.has_tls && !parsed.is_loopback() {
            return usage("a URL without TLS is accepted for loopback only", https);
        }
        let Credentials { token_file, certificate, key, .. } = *credentials;
        if !parsed.has_tls && certificate.is_some() {
            return usage("a client certificate needs a URL with TLS", https);
        }
        if certificate.is_none() && key.is_some() {
            let next = "Repeat the command with --certificate FILE.";
            return usage("--key needs the certificate of the key", next);
        }
        if token_file.is_none() && certificate.is_none() {
            let next = "Repeat the command with --token-file FILE or --certificate FILE.";
            return usage("--remote needs the file of a token or of a client certificate", next);
        }
        let token = token_file.map(read_token).transpose()?;
        let keys = parsed.has_tls.then(|| client_keys(credentials)).transpose()?;
        Ok(Remote { url: parsed, keys, token })
    }

    /// Host and port, as the field `Host` of a request has them.
    pub(crate) fn authority(&self) -> String {
        self.url.authority()
    }

    /// The field `Authorization` of a request with a token (RFC 6750 2.1).
    pub(crate) fn authorization(&self) -> Option<String> {
        self.token.as_ref().map(|token| format!("Bearer {token}"))
    }

    /// Connects to the daemon.
    ///
    /// # Errors
    /// Those of TCP; `InvalidData` when the certificate of the daemon is refused.
    pub(crate) async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        self.url.connect(self.keys.as_ref()).await
    }
}

/// The token in a file.
fn read_token(path: &str) -> Result<String> {
    let file = std::path::absolute(path).unwrap_or_else(|_| path.into());
    let token = secret::resolve(&format!("file:{}", file.display()))?;
    let no_text = |_| Error::new(Kind::Secret, "read token", "not text").at(path);
    let token = String::from_utf8(token).map_err(no_text)?;
    Ok(token.trim().to_owned())
}

fn client_keys(credentials: &Credentials<'_>) -> Result<ClientKeys> {
    let certificate = credentials.certificate.unwrap_or_default();
    let files = ClientFiles {
        ca: credentials.ca.unwrap_or(SYSTEM_CA),
        certificate,
        key: credentials.key.unwrap_or(certificate),
    };
    let unusable = |why: String| {
        let next = match why.starts_with("tls_ca") {
            true => "Name the CA certificate of the daemon with --ca FILE.",
            false => "Name the certificate with --certificate FILE, and its key with --key FILE.",
        };
        Error::new(Kind::System, "read TLS files", why).next(next)
    };
    ClientKeys::read(&files).map_err(unusable)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::PermissionsExt;

    #[test]
    fn urls_have_a_host_and_a_port() {
        let url = |has_tls, host: &str, port| Some(Url { has_tls, host: host.into(), port });
        for (text, expected) in [
            ("https://store.example:7000", url(true, "store.example", 7000)),
            ("https://store.example/", url(true, "store.example", PORT)),
            ("store.example", url(true, "store.example", PORT)),
            ("https://[2001:db8::1]:7000", url(true, "2001:db8::1", 7000)),
            ("http://127.0.0.1:7000", url(false, "127.0.0.1", 7000)),
            ("ftp://store.example", None),
            ("https://", None),
            ("https://store.example:x", None),
            ("https://store.example/v1", None),
            ("https://a@store.example", None),
        ] {
            assert_eq!(Url::parse(text, PORT), expected, "{text}");
        }
        let url = Url::parse("https://[2001:db8::1]:7000", PORT).expect("a URL");
        assert_eq!(url.authority(), "[2001:db8::1]:7000");
    }

    #[test]
    fn token_is_not_sent_without_tls_and_not_shown() {
        let file = std::env::temp_dir().join(format!("ashlar-remote-{}", std::process::id()));
        fs::write(&file, "ashlar_1_2\n").expect("scratch");
        let path = file.to_str().expect("a path");
        let credentials = Credentials { token_file: Some(path), ..Credentials::default() };
        let new = |url: &str| Remote::new(url, &credentials);
        let refused = new("http://192.0.2.1:7000").expect_err("no TLS");
        assert!(refused.source.contains("loopback only"), "{refused}");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o644)).expect("scratch");
        let refused = new("http://127.0.0.1:7000").expect_err("readable");
        assert_eq!(refused.kind, Kind::Secret);
        fs::set_permissions(&file, fs::Permissions::from_mode(0o600)).expect("scratch");
        let remote = new("http://127.0.0.1:7000").expect("well-formed");
        assert_eq!(remote.authorization().as_deref(), Some("Bearer ashlar_1_2"));
        assert_eq!(format!("{remote:?}"), "Remote(http://127.0.0.1:7000)");
        fs::remove_file(&file).expect("scratch");
    }

    #[test]
    fn client_needs_a_token_or_a_certificate_over_tls() {
        let none = Credentials::default();
        let certificate = Credentials { certificate: Some("/nonexistent/a.pem"), ..none };
        let key = Credentials { key: Some("a.key"), ..none };
        for (url, credentials, words) in [
            ("https://192.0.2.1", none, "token or of a client certificate"),
            ("https://192.0.2.1", key, "--key needs the certificate"),
            ("http://127.0.0.1", certificate, "needs a URL with TLS"),
        ] {
            let refused = Remote::new(url, &credentials).expect_err(words);
            assert!(refused.kind == Kind::Usage && refused.source.contains(words), "{refused}");
        }
        let refused = Remote::new("https://192.0.2.1", &certificate).expect_err("no such file");
        assert_eq!(refused.kind, Kind::System);
    }
}
