//! NBD URIs: `nbd://`, `nbd+unix://` and the same with `nbds`.

/// A place, an export and whether TLS is wanted, as in a URI.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Uri {
    /// `HOST:PORT` or `unix:PATH`.
    pub(crate) address: String,
    pub(crate) export: String,
    pub(crate) tls: bool,
}

/// Reads `nbd://HOST[:PORT]/EXPORT`, `nbd+unix:///EXPORT?socket=PATH` and the same with `nbds`.
pub(crate) fn uri(text: &str) -> Result<Uri, String> {
    let (scheme, rest) = text.split_once("://").ok_or("`://` is missing")?;
    let (tls, unix) = match scheme {
        "nbd" => (false, false),
        "nbds" => (true, false),
        "nbd+unix" => (false, true),
        "nbds+unix" => (true, true),
        _ => return Err(format!("scheme {scheme} is not nbd, nbds, nbd+unix or nbds+unix")),
    };
    let (rest, query) = rest.split_once('?').unwrap_or((rest, ""));
    let (authority, export) = rest.split_once('/').unwrap_or((rest, ""));
    let (user, host) = authority.rsplit_once('@').unwrap_or(("", authority));
    if user.contains(':') {
        // It would be shown wherever the disk is, and prove nothing.
        return Err("NBD has no passwords: remove it, and use TLS keys (`tls_certificate` and \
                    `tls_key`) where the server wants to know its clients"
            .to_owned());
    }
    let export = decoded(export)?;
    let address = match unix {
        true => {
            let socket = query.split('&').find_map(|pair| pair.strip_prefix("socket="));
            format!("unix:{}", decoded(socket.ok_or("`?socket=PATH` is missing")?)?)
        }
        false => {
            if host.is_empty() {
                return Err("the host is missing".to_owned());
            }
            host.to_owned()
        }
    };
    Ok(Uri { address, export, tls })
}

fn decoded(text: &str) -> Result<String, String> {
    let mut out = Vec::new();
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            out.push(byte);
            continue;
        }
        let digits =
            [bytes.next(), bytes.next()].map(|b| b.and_then(|b| char::from(b).to_digit(16)));
        match digits {
            [Some(high), Some(low)] => out.push((high * 16 + low) as u8),
            _ => return Err("`%` without two hexadecimal digits".to_owned()),
        }
    }
    String::from_utf8(out).map_err(|_| "it is not UTF-8".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nbd_uris_are_parsed_as_the_standard_defines() {
        let read = |text| uri(text).map(|u| (u.address, u.export, u.tls));
        let of = |a: &str, e: &str, tls| Ok((a.to_owned(), e.to_owned(), tls));
        assert_eq!(read("nbd://localhost"), of("localhost", "", false));
        assert_eq!(read("nbds://u@h:1/a%20b"), of("h:1", "a b", true));
        assert_eq!(read("nbd+unix:///x?socket=/run/s"), of("unix:/run/s", "x", false));
        for bad in ["localhost", "http://x/", "nbd+unix:///x", "nbd://", "nbd://h/%z1"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn passwords_are_refused_and_not_repeated() {
        for text in ["nbd://u:hush@h/x", "nbds://:hush@h:1", "nbd+unix://u:hush@h/x?socket=/s"] {
            let why = uri(text).unwrap_err();
            assert!(why.contains("no passwords") && !why.contains("hush"), "{text}: {why}");
        }
    }
}
