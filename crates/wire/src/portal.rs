//! Rules for portals, the local addresses that clients connect to.
//!
//! ```text
//! 10.0.0.1        that address, any port      10.0.0.1:3260   that one only
//! [2001:db8::1]   the same for IPv6           *:3260          any address
//! unix:/run/a/*   a Unix socket, by a pattern of its path
//! ether:eth*      an Ethernet interface, by a pattern of its name
//! ```
//! The configuration, the command line and the engine all use these rules, as they use
//! [`crate::pattern`] for names.

use std::fmt;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use crate::pattern::Pattern;

/// How rules for Unix sockets begin.
const UNIX: &str = "unix:";

/// How rules for interfaces begin.
const ETHER: &str = "ether:";

/// An address of ours.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LocalAddress<'a> {
    /// Over IP.
    Inet(SocketAddr),
    /// A Unix socket, by its path.
    Unix(&'a str),
    /// An Ethernet interface, by its name.
    Ether(&'a str),
}

impl<'a> LocalAddress<'a> {
    /// `ADDRESS:PORT`, `unix:PATH` or `ether:INTERFACE`.
    pub fn parse(text: &'a str) -> Option<LocalAddress<'a>> {
        if let Some(name) = text.strip_prefix(ETHER) {
            return Some(LocalAddress::Ether(name));
        }
        match text.strip_prefix(UNIX) {
            Some(path) => Some(LocalAddress::Unix(path)),
            None => text.parse().ok().map(LocalAddress::Inet),
        }
    }
}

/// A rule that was checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum PortalRule {
    /// Over IP.
    Inet {
        /// `None` is any; IPv4 addresses inside IPv6 are IPv4.
        address: Option<IpAddr>,
        /// `None` is any.
        port: Option<u16>,
    },
    /// A Unix socket whose path fits.
    Unix(Pattern),
    /// An Ethernet interface whose name fits.
    Ether(Pattern),
}

impl PortalRule {
    /// `None` when the text is no rule: `*` alone is no rule.
    pub fn new(text: &str) -> Option<PortalRule> {
        if let Some(path) = text.strip_prefix(UNIX) {
            return Pattern::new(path).map(PortalRule::Unix);
        }
        if let Some(name) = text.strip_prefix(ETHER) {
            return Pattern::new(name).map(PortalRule::Ether);
        }
        if let Some(port) = text.strip_prefix("*:") {
            return Some(PortalRule::Inet { address: None, port: Some(number(port)?) });
        }
        if let Ok(at) = text.parse::<SocketAddr>() {
            let address = Some(at.ip().to_canonical());
            let rule = PortalRule::Inet { address, port: Some(at.port()) };
            return (at.port() != 0).then_some(rule);
        }
        let inner = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
        let address = match inner {
            Some(v6) => v6.parse::<Ipv6Addr>().ok().map(IpAddr::V6),
            None => text.parse::<IpAddr>().ok(),
        };
        address.map(|a| PortalRule::Inet { address: Some(a.to_canonical()), port: None })
    }

    pub fn matches(&self, at: LocalAddress<'_>) -> bool {
        match (self, at) {
            (PortalRule::Inet { address, port }, LocalAddress::Inet(at)) => {
                address.is_none_or(|a| a == at.ip().to_canonical())
                    && port.is_none_or(|p| p == at.port())
            }
            (PortalRule::Unix(pattern), LocalAddress::Unix(path)) => pattern.matches(path),
            (PortalRule::Ether(pattern), LocalAddress::Ether(name)) => pattern.matches(name),
            _ => false,
        }
    }

    /// True when some portal fits both.
    pub fn overlaps(&self, other: &PortalRule) -> bool {
        fn meet<T: PartialEq>(a: &Option<T>, b: &Option<T>) -> bool {
            match (a, b) {
                (Some(a), Some(b)) => a == b,
                _ => true,
            }
        }
        match (self, other) {
            (
                PortalRule::Inet { address: a, port: p },
                PortalRule::Inet { address: b, port: q },
            ) => meet(a, b) && meet(p, q),
            (PortalRule::Unix(a), PortalRule::Unix(b)) => a.overlaps(b),
            (PortalRule::Ether(a), PortalRule::Ether(b)) => a.overlaps(b),
            _ => false,
        }
    }
}

/// True if one of the rules matches the local address `at`. An empty list matches all.
pub fn any_matches(rules: &[PortalRule], at: LocalAddress<'_>) -> bool {
    rules.is_empty() || rules.iter().any(|r| r.matches(at))
}

/// True if a client could match both lists.
pub fn any_overlaps(a: &[PortalRule], b: &[PortalRule]) -> bool {
    a.is_empty() || b.is_empty() || a.iter().any(|x| b.iter().any(|y| x.overlaps(y)))
}

/// True when a listener at one address can receive connections to the other. `[::]` receives IPv4,
/// too. Port 0 is any free port, which no other listener has.
pub fn listeners_overlap(a: SocketAddr, b: SocketAddr) -> bool {
    a.port() == b.port() && a.port() != 0 && (covers(a.ip(), b.ip()) || covers(b.ip(), a.ip()))
}

/// True when a listener at `a` receives all connections to `b` on its port.
fn covers(a: IpAddr, b: IpAddr) -> bool {
    match (a.to_canonical(), b.to_canonical()) {
        (a, b) if a == b => true,
        (IpAddr::V6(a), _) => a.is_unspecified(),
        (IpAddr::V4(a), IpAddr::V4(_)) => a.is_unspecified(),
        (IpAddr::V4(_), IpAddr::V6(_)) => false,
    }
}

/// A port that can be connected to.
fn number(text: &str) -> Option<u16> {
    text.parse().ok().filter(|p| *p != 0)
}

impl fmt::Display for PortalRule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            PortalRule::Inet { address: Some(a), port: Some(p) } => {
                write!(f, "{}", SocketAddr::new(*a, *p))
            }
            PortalRule::Inet { address: Some(IpAddr::V6(a)), port: None } => write!(f, "[{a}]"),
            PortalRule::Inet { address: Some(a), port: None } => write!(f, "{a}"),
            PortalRule::Inet { address: None, port: Some(p) } => write!(f, "*:{p}"),
            PortalRule::Inet { address: None, port: None } => write!(f, "*"),
            PortalRule::Unix(pattern) => write!(f, "{UNIX}{}", pattern.as_str()),
            PortalRule::Ether(pattern) => write!(f, "{ETHER}{}", pattern.as_str()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(text: &str) -> PortalRule {
        PortalRule::new(text).unwrap()
    }

    fn at(text: &str) -> LocalAddress<'_> {
        LocalAddress::parse(text).unwrap()
    }

    #[test]
    fn rules_survive_parsing_and_printing() {
        for text in [
            "10.0.0.1",
            "10.0.0.1:3260",
            "[2001:db8::1]",
            "[2001:db8::1]:860",
            "*:3261",
            "unix:/a*",
        ] {
            assert_eq!(rule(text).to_string(), text);
        }
        assert_eq!(rule("2001:db8::1").to_string(), "[2001:db8::1]");
        for text in
            ["", "*", "*:", "*:0", "host", "10.0.0.1:0", "10.0.0", "[10.0.0.1]", "*:65536", "unix:"]
        {
            assert_eq!(PortalRule::new(text), None, "{text}");
        }
    }

    #[test]
    fn rules_match_their_portals() {
        assert!(rule("10.0.0.1").matches(at("10.0.0.1:99")));
        assert!(rule("10.0.0.1").matches(at("[::ffff:10.0.0.1]:99")));
        assert!(!rule("10.0.0.1:3260").matches(at("10.0.0.1:99")));
        assert!(rule("*:99").matches(at("[::1]:99")) && !rule("*:99").matches(at("[::1]:98")));
        assert!(any_matches(&[], at("[::1]:99")) && !any_matches(&[rule("*:98")], at("[::1]:99")));
        assert!(any_matches(&[rule("*:98"), rule("::1")], at("[::1]:99")));
        assert!(rule("unix:/run/*").matches(at("unix:/run/a.sock")));
        assert!(
            !rule("unix:/run/*").matches(at("[::1]:99")) && !rule("*:99").matches(at("unix:/"))
        );
    }

    #[test]
    fn wildcards_overlap_addresses_of_their_port() {
        for (a, b, wanted) in [
            ("0.0.0.0:3260", "10.0.0.1:3260", true),
            ("0.0.0.0:3260", "10.0.0.1:3261", false),
            ("0.0.0.0:0", "0.0.0.0:0", false),
            ("10.0.0.2:3260", "10.0.0.1:3260", false),
            ("[::]:3260", "10.0.0.1:3260", true),
            ("[::]:3260", "0.0.0.0:3260", true),
            ("[::]:3260", "[fd00::1]:3260", true),
            ("0.0.0.0:3260", "[fd00::1]:3260", false),
            ("[::ffff:10.0.0.1]:3260", "10.0.0.1:3260", true),
        ] {
            let (a, b) = (a.parse().unwrap(), b.parse().unwrap());
            let overlap = (listeners_overlap(a, b), listeners_overlap(b, a));
            assert_eq!(overlap, (wanted, wanted), "{a} {b}");
        }
    }

    /// Over all pairs of some rules: they overlap exactly when some portal fits both.
    #[test]
    fn rules_overlap_when_a_portal_fits_both() {
        let rules: Vec<PortalRule> = [
            "1.1.1.1",
            "1.1.1.1:1",
            "1.1.1.1:2",
            "2.2.2.2",
            "2.2.2.2:1",
            "*:1",
            "*:2",
            "::1",
            "unix:/a*",
            "unix:*b",
        ]
        .map(rule)
        .to_vec();
        let mut places: Vec<LocalAddress<'_>> = ["1.1.1.1", "2.2.2.2", "::1", "3.3.3.3"]
            .iter()
            .flat_map(|a| {
                [1, 2, 3].map(|p| LocalAddress::Inet(SocketAddr::new(a.parse().unwrap(), p)))
            })
            .collect();
        places.extend(["/a", "/ab", "/b", "/"].map(LocalAddress::Unix));
        for a in &rules {
            for b in &rules {
                let both = places.iter().any(|at| a.matches(*at) && b.matches(*at));
                assert_eq!(a.overlaps(b), both, "{a} {b}");
            }
            let one = std::slice::from_ref(a);
            assert!(any_overlaps(&[], one) && any_overlaps(one, &[]));
        }
    }
}
