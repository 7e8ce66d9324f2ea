//! Cookie with the secret of a browser's session.
//!
//! No script reads it, and no page of another site makes a browser send it. Over TLS it has the
//! prefix `__Host-`: only this host sets it, and it is sent only over TLS.

use crate::auth::SESSION_MAX;
use hyper::HeaderMap;
use hyper::header::COOKIE;

/// Name of the cookie over TLS, and without TLS, which is on loopback only.
const fn name(is_tls: bool) -> &'static str {
    match is_tls {
        true => "__Host-ashlar-session",
        false => "ashlar-session",
    }
}

/// The value of a cookie of a request.
fn value<'h>(headers: &'h HeaderMap, name: &str) -> Option<&'h str> {
    let fields = headers.get_all(COOKIE).into_iter().filter_map(|field| field.to_str().ok());
    let pairs = fields.flat_map(|field| field.split(';')).filter_map(|pair| pair.split_once('='));
    pairs.map(|(key, value)| (key.trim(), value.trim())).find(|(key, _)| *key == name).map(|p| p.1)
}

/// The secret of the session of a request.
pub(super) fn secret(headers: &HeaderMap, is_tls: bool) -> Option<&str> {
    value(headers, name(is_tls))
}

/// Whether a request has the cookie of a session, which the browser adds without the page.
pub(super) fn is_sent(headers: &HeaderMap) -> bool {
    [true, false].into_iter().any(|is_tls| secret(headers, is_tls).is_some())
}

fn field(secret: &str, is_tls: bool, seconds: u64) -> String {
    let secure = if is_tls { "; Secure" } else { "" };
    let name = name(is_tls);
    format!("{name}={secret}; Path=/; Max-Age={seconds}; HttpOnly; SameSite=Strict{secure}")
}

/// Value of the field that sets the cookie.
pub(super) fn set(secret: &str, is_tls: bool) -> String {
    field(secret, is_tls, SESSION_MAX.as_secs())
}

/// Value of the field that removes the cookie.
pub(super) fn removal(is_tls: bool) -> String {
    field("", is_tls, 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn cookie_is_for_no_script_no_other_site_and_over_tls_only_for_tls() {
        let over_tls = set("s", true);
        for part in ["__Host-ashlar-session=s; Path=/; ", "HttpOnly", "SameSite=Strict", "Secure"] {
            assert!(over_tls.contains(part), "{part}: {over_tls}");
        }
        assert!(!over_tls.contains("Domain"), "{over_tls}");
        assert!(!set("s", false).contains("Secure"));
        assert!(removal(true).contains("=; ") && removal(true).contains("Max-Age=0"));
    }

    #[test]
    fn cookie_of_loopback_is_not_used_over_tls() {
        let mut headers = HeaderMap::new();
        assert!(!is_sent(&headers));
        headers.insert(COOKIE, HeaderValue::from_static("a=b; ashlar-session=x"));
        assert_eq!((secret(&headers, false), secret(&headers, true)), (Some("x"), None));
        headers.append(COOKIE, HeaderValue::from_static("__Host-ashlar-session=y ;c"));
        assert_eq!(secret(&headers, true), Some("y"));
        assert!(is_sent(&headers));
    }
}
