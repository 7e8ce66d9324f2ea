//! Answers for the page: its document and its files, with the headers that restrict them.

use super::body::Body;
use super::routes::reply;
use crate::api::{Error, Kind, Result};
use crate::page;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response, StatusCode};

/// The page loads its own files only, runs no script of its text, and is in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

fn restricted(mut response: Response<Body>, cache: &'static str) -> Response<Body> {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, cache),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A file of the page. It contains no state, so that every caller may load it.
pub(super) fn asset(path: &str) -> Option<Response<Body>> {
    let (kind, bytes) = page::asset(path)?;
    Some(restricted(reply(kind, Bytes::from_static(bytes)), "no-cache"))
}

/// A document of the page.
pub(super) fn document(text: String) -> Response<Body> {
    restricted(reply("text/html; charset=utf-8", text), "no-store")
}

/// The document for a caller who may not see the state.
pub(super) fn forbidden() -> Response<Body> {
    let mut response = document(page::forbidden());
    *response.status_mut() = StatusCode::FORBIDDEN;
    response
}

/// Whether a page of this origin may send changes. A page over TLS is that of the host in its
/// certificate. Without TLS the name of the host proves nothing: only loopback is accepted, as with
/// `ssh -L`.
fn is_own(origin: &str) -> bool {
    let Some(rest) = origin.strip_prefix("http://") else { return origin.starts_with("https://") };
    let host = match rest.split_once(']') {
        Some((address, _)) => address,
        None => rest.split(':').next().unwrap_or(rest),
    };
    ["localhost", "127.0.0.1", "[::1"].contains(&host)
}

/// Refuses a change that a page of another site sends with the rights of its reader. Only browsers
/// send the fields that are read here.
///
/// # Errors
/// [`Kind::Forbidden`].
pub(super) fn check_origin<B>(request: &Request<B>) -> Result<()> {
    let field = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap_or(""));
    let is_near = matches!(field("sec-fetch-site"), None | Some("same-origin" | "none"));
    if request.method() == Method::GET || is_near && field("origin").is_none_or(is_own) {
        return Ok(());
    }
    let why = "the page of another site sent the request";
    let next = "Open the page of the daemon on localhost or over TLS, or use the command line.";
    Err(Error::new(Kind::Forbidden, "ask", why).next(next))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_from_other_sites_are_refused() {
        let check = |method: Method, name: &str, value: &str| {
            let request = Request::builder().method(method).uri("/v1/verbs/apply");
            let request = request.header(name, value).body(()).expect("a request");
            check_origin(&request).map_err(|e| e.kind)
        };
        for (name, value) in [
            ("accept", "*/*"),
            ("sec-fetch-site", "none"),
            ("sec-fetch-site", "same-origin"),
            ("origin", "http://localhost:8080"),
            ("origin", "http://127.0.0.1"),
            ("origin", "http://[::1]:8080"),
            ("origin", "https://store.example.org:8443"),
        ] {
            assert_eq!(check(Method::POST, name, value), Ok(()), "{name}: {value}");
        }
        for (name, value) in [
            ("sec-fetch-site", "cross-site"),
            ("sec-fetch-site", "same-site"),
            ("sec-fetch-site", ""),
            ("origin", "null"),
            ("origin", "http://evil.example.org:8080"),
            ("origin", "http://localhost.evil.example.org"),
            ("origin", "http://[::1.evil]:80"),
        ] {
            assert_eq!(check(Method::POST, name, value), Err(Kind::Forbidden), "{name}: {value}");
            assert_eq!(check(Method::GET, name, value), Ok(()), "{name}: {value}");
        }
    }

    #[test]
    fn files_of_the_page_are_embedded_and_restricted() {
        for path in ["/assets/page.js", "/assets/page.css", "/assets/icon.svg"] {
            let response = asset(path).expect("a file of the page");
            let policy = response.headers().get(CONTENT_SECURITY_POLICY).expect("a policy");
            let policy = policy.to_str().expect("text");
            assert!(policy.starts_with("default-src 'none'"), "{policy}");
            assert!(!policy.contains("unsafe"), "{policy}");
        }
        assert!(asset("/assets/../Cargo.toml").is_none());
        assert_eq!(forbidden().status(), StatusCode::FORBIDDEN);
    }
}
