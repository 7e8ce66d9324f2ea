//! Address of a server: host and port, or the path of a Unix socket.

use std::net::ToSocketAddrs;

use reactor::Address;

/// The address of a server, and the name that its certificate must have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ServerAddress {
    /// As people write it.
    pub(crate) text: String,
    /// The name for the check of its certificate.
    pub(crate) host: String,
    /// Its addresses, best first.
    pub(crate) at: Vec<Address>,
}

/// Looks up an address: `HOST`, `HOST:PORT`, `[IPV6]:PORT`, `unix:PATH` or a path. An address
/// without a port gets `port`. Blocks while a name is looked up.
pub(crate) fn resolve(text: &str, port: u16) -> Result<ServerAddress, String> {
    let path = text.strip_prefix("unix:").unwrap_or(text);
    if path.starts_with('/') {
        let address = format!("unix:{path}").parse().map_err(|e| format!("{path}: {e}"))?;
        let host = "localhost".to_owned();
        return Ok(ServerAddress { text: format!("unix:{path}"), host, at: vec![address] });
    }
    let has_port = text.rsplit_once(':').is_some_and(|(host, port)| {
        port.parse::<u16>().is_ok() && (host.ends_with(']') || !host.contains(':'))
    });
    let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']')).unwrap_or(text);
    let with_port = match (has_port, bare.contains(':')) {
        (true, _) => text.to_owned(),
        (false, true) => format!("[{bare}]:{port}"),
        (false, false) => format!("{bare}:{port}"),
    };
    let found = with_port.to_socket_addrs().map_err(|e| format!("{with_port}: {e}"))?;
    let at: Vec<Address> = found.map(Address::Inet).collect();
    if at.is_empty() {
        return Err(format!("{with_port}: the name has no address"));
    }
    let host = with_port.rsplit_once(':').map_or(with_port.as_str(), |(host, _)| host);
    let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
    Ok(ServerAddress { text: with_port, host, at })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_without_a_port_gets_the_default_one() {
        let at = |text| resolve(text, 10809).unwrap().at[0].to_string();
        assert_eq!(at("127.0.0.1"), "127.0.0.1:10809");
        assert_eq!(at("127.0.0.1:7"), "127.0.0.1:7");
        assert_eq!(at("::1"), "[::1]:10809");
        assert_eq!(at("[::1]:9"), "[::1]:9");
        assert_eq!(at("/run/x"), "unix:/run/x");
        assert_eq!(resolve("[::1]:9", 10809).unwrap().host, "::1");
    }
}
