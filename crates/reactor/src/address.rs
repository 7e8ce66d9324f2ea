//! The textual form of a listener's or a peer's address.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;
use std::sync::Arc;

/// Longest path of a Unix socket, bytes: the kernel's `sun_path` (108) without its final zero.
pub const UNIX_PATH_MAX: usize = 107;

const UNIX_PREFIX: &str = "unix:";

/// Longest name of an interface, bytes: the kernel's `IFNAMSIZ` (16) without its final zero.
pub const INTERFACE_MAX: usize = 15;

const ETHER_PREFIX: &str = "ether:";

/// An address of a listener or a peer: `127.0.0.1:10809`, `[::1]:10809`, `unix:/run/x.sock`,
/// `ether:eth0`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Address {
    /// TCP over IPv4 or IPv6.
    Inet(SocketAddr),
    /// A Unix socket by its path. A peer has no path: then a description of it.
    Unix(Arc<str>),
    /// An Ethernet interface by its name; of a peer, its MAC address.
    Ether(Arc<str>),
}

impl Address {
    /// The TCP address, if it is one.
    pub fn inet(&self) -> Option<SocketAddr> {
        match self {
            Address::Inet(at) => Some(*at),
            Address::Unix(_) | Address::Ether(_) => None,
        }
    }

    /// The path, if it is that of a Unix socket.
    pub fn unix(&self) -> Option<&str> {
        match self {
            Address::Inet(_) | Address::Ether(_) => None,
            Address::Unix(path) => Some(path),
        }
    }

    /// The interface, if it is one.
    pub fn ether(&self) -> Option<&str> {
        match self {
            Address::Inet(_) | Address::Unix(_) => None,
            Address::Ether(name) => Some(name),
        }
    }

    /// The host without the port; the whole text for an address of another family.
    pub fn host(&self) -> String {
        match self {
            Address::Inet(at) => at.ip().to_string(),
            Address::Unix(_) | Address::Ether(_) => self.to_string(),
        }
    }

    /// A text that begins with `unix:` and continues with an absolute path that fits.
    pub fn parse_unix(text: &str) -> Option<Address> {
        let path = text.strip_prefix(UNIX_PREFIX)?;
        let fits = path.starts_with('/') && path.len() <= UNIX_PATH_MAX && !path.contains('\0');
        fits.then(|| Address::Unix(path.into()))
    }

    /// Parses `ether:NAME`, where NAME is a valid interface name for the kernel.
    pub fn parse_ether(text: &str) -> Option<Address> {
        let name = text.strip_prefix(ETHER_PREFIX)?;
        let odd = |c: char| c.is_whitespace() || c.is_control() || c == '/' || c == ':';
        let fits = !name.is_empty() && name.len() <= INTERFACE_MAX && !name.contains(odd);
        (fits && name != "." && name != "..").then(|| Address::Ether(name.into()))
    }
}

impl From<SocketAddr> for Address {
    fn from(at: SocketAddr) -> Address {
        Address::Inet(at)
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Address::Inet(at) => write!(f, "{at}"),
            Address::Unix(path) => write!(f, "{UNIX_PREFIX}{path}"),
            Address::Ether(name) => write!(f, "{ETHER_PREFIX}{name}"),
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoAddress;

impl fmt::Display for NoAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("neither ADDRESS:PORT nor unix:/PATH nor ether:INTERFACE")
    }
}

impl std::error::Error for NoAddress {}

impl FromStr for Address {
    type Err = NoAddress;

    fn from_str(text: &str) -> Result<Address, NoAddress> {
        match Address::parse_unix(text).or_else(|| Address::parse_ether(text)) {
            Some(other) => Ok(other),
            None => text.parse().map(Address::Inet).map_err(|_| NoAddress),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_round_trip_and_bad_texts_are_refused() {
        for good in ["127.0.0.1:10809", "[::1]:1", "unix:/run/a.sock", "ether:eth0.7"] {
            assert_eq!(good.parse::<Address>().unwrap().to_string(), good);
        }
        let long = format!("unix:/{}", "x".repeat(UNIX_PATH_MAX));
        for bad in [
            "",
            "host:1",
            "127.0.0.1",
            "unix:",
            "unix:relative",
            "unix:/a\0b",
            &long,
            "ether:",
            "ether:a/b",
        ] {
            assert!(bad.parse::<Address>().is_err(), "{bad}");
        }
        assert_eq!("127.0.0.1:5".parse::<Address>().unwrap().host(), "127.0.0.1");
    }
}
