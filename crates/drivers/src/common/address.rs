//! Addresses as other machines are told of them.

use std::net::SocketAddr;

/// An address that another machine can use: an IPv4 address is written as one, also when the
/// socket is IPv6, and there is no zone, which numbers an interface of this machine.
pub(crate) fn plain(at: SocketAddr) -> SocketAddr {
    SocketAddr::new(at.ip().to_canonical(), at.port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_zone_and_no_mapped_address_is_told() {
        for (ours, told) in [
            ("[::ffff:10.0.0.1]:3260", "10.0.0.1:3260"),
            ("[fe80::1%3]:3260", "[fe80::1]:3260"),
            ("[2001:db8::1]:1", "[2001:db8::1]:1"),
            ("10.0.0.1:1", "10.0.0.1:1"),
        ] {
            assert_eq!(plain(ours.parse().unwrap()).to_string(), told);
        }
    }
}
