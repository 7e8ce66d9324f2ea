//! Addresses as they are advertised to other machines.

use std::net::SocketAddr;

/// An address that another machine can use. An IPv4 address is written as one, also when the socket
/// is IPv6, and the zone is removed, which numbers an interface of this machine.
pub fn advertised(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_and_mapped_addresses_are_not_advertised() {
        for (ours, expected) in [
            ("[::ffff:10.0.0.1]:3260", "10.0.0.1:3260"),
            ("[fe80::1%3]:3260", "[fe80::1]:3260"),
            ("[2001:db8::1]:1", "[2001:db8::1]:1"),
            ("10.0.0.1:1", "10.0.0.1:1"),
        ] {
            assert_eq!(advertised(ours.parse().unwrap()).to_string(), expected);
        }
    }
}
