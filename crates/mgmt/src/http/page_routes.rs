//! Answers for the page: its document and its files, with the headers that restrict them.

use super::body::Body;
use super::openapi::JSON;
use super::routes::reply;
use super::session_cookie;
use crate::api::{Error, Kind, Result};
use crate::page;
use hyper::body::Bytes;
use hyper::header::{
    CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap, HeaderName, HeaderValue,
    REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{Method, Request, Response};
use std::net::IpAddr;
use std::time::Duration;

/// Name of the field with the time that an answer took.
const SERVER_TIMING: &str = "server-timing";

/// Content type of a document.
pub(super) const HTML: &str = "text/html; charset=utf-8";

/// The page loads its own files only, runs no script of its text, and is in no frame.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; \
                      connect-src 'self'; img-src 'self'; form-action 'self'; base-uri 'none'; \
                      frame-ancestors 'none'";

/// Field that separates a page from the one of another site that opened it.
const OPENER_POLICY: &str = "cross-origin-opener-policy";

/// Field that keeps pages of other sites from embedding an answer.
const RESOURCE_POLICY: &str = "cross-origin-resource-policy";

pub(super) fn restricted(
    mut response: Response<Body>,
    policy: &'static str,
    cache: &'static str,
) -> Response<Body> {
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, policy),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (REFERRER_POLICY, "same-origin"),
        (HeaderName::from_static(OPENER_POLICY), "same-origin"),
        (HeaderName::from_static(RESOURCE_POLICY), "same-origin"),
        (CACHE_CONTROL, cache),
    ] {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    response
}

/// A file of the page. It contains no state, so that every caller may load it.
pub(super) fn asset(path: &str) -> Option<Response<Body>> {
    let (kind, bytes) = page::asset(path)?;
    Some(restricted(reply(kind, Bytes::from_static(bytes)), POLICY, "no-cache"))
}

/// A document of the page.
pub(super) fn document(text: String) -> Response<Body> {
    restricted(reply(HTML, text), POLICY, "no-store")
}

/// An answer with the time that the daemon needed for it, by which the script of the page paces its
/// requests (`Server-Timing`, in milliseconds).
pub(super) fn timed(mut response: Response<Body>, took: Duration) -> Response<Body> {
    let text = format!("view;dur={:.3}", took.as_secs_f64() * 1e3);
    if let Ok(value) = HeaderValue::from_str(&text) {
        response.headers_mut().insert(SERVER_TIMING, value);
    }
    response
}

/// The host of `HOST:PORT`; an IPv6 address without its last bracket.
fn host_of(authority: &str) -> &str {
    match authority.split_once(']') {
        Some((address, _)) => address,
        None => authority.split(':').next().unwrap_or(authority),
    }
}

/// Whether a page of this origin may send changes to `host`. A page over TLS is that of the host in
/// its certificate, which must be the host of the request. Without TLS the name of the host proves
/// nothing: only loopback is accepted, as with `ssh -L`.
fn is_own(origin: &str, host: Option<&str>) -> bool {
    if let Some(authority) = origin.strip_prefix("https://") {
        return host.is_some_and(|host| host_of(host).eq_ignore_ascii_case(host_of(authority)));
    }
    let authority = origin.strip_prefix("http://");
    authority.is_some_and(|at| ["localhost", "127.0.0.1", "[::1"].contains(&host_of(at)))
}

/// Refuses a request for the name of a site to the control socket, which may be forwarded to a
/// port, or to a listener on loopback that admits everyone. A site that gives its own name the
/// address of this machine (DNS rebinding) could read all answers: a browser takes them for its
/// own. A request of a browser for a plain name or an address is not from such a site.
///
/// # Errors
/// [`Kind::Forbidden`].
pub(super) fn check_host(headers: &HeaderMap) -> Result<()> {
    let Some(value) = headers.get(HOST) else { return Ok(()) };
    // A name that is no text is none of this machine.
    let host = value.to_str().map_or(".", host_of);
    let is_address = host.trim_start_matches('[').parse::<IpAddr>().is_ok();
    if is_address || !host.contains('.') {
        return Ok(());
    }
    let why = "the request is for the name of a site, and only addresses and names without a dot \
               are answered here";
    let next = "Repeat the request for localhost, or use the command line.";
    Err(Error::new(Kind::Forbidden, "ask", why).at(host).next(next))
}

/// Refuses a change that a page of another site sends with the rights of its reader, and a read
/// that it embeds. It learns nothing, but may load many files at once. A link to a page of the
/// daemon is followed. Only browsers send the fields that are read here. A change with the cookie
/// of a session must name its origin: the browser adds the cookie without the page.
///
/// # Errors
/// [`Kind::Forbidden`].
pub(super) fn check_origin<B>(request: &Request<B>) -> Result<()> {
    let field = |name: &str| request.headers().get(name).map(|value| value.to_str().unwrap_or(""));
    let is_near = matches!(field("sec-fetch-site"), None | Some("same-origin" | "none"));
    let is_own_origin = field("origin").is_none_or(|origin| is_own(origin, field("host")));
    let is_named = field("origin").is_some() || !session_cookie::is_sent(request.headers());
    let is_link = field("sec-fetch-dest").is_none_or(|dest| dest == "document");
    let is_admitted = match request.method() == Method::GET {
        true => is_near || is_link,
        false => is_near && is_own_origin && is_named,
    };
    if is_admitted {
        return Ok(());
    }
    let why = "the page of another site sent the request";
    let next = "Open the page of the daemon on localhost or over TLS, or use the command line.";
    Err(Error::new(Kind::Forbidden, "ask", why).next(next))
}

/// Refuses a body that is not announced as JSON: a browser sends other types for pages of other
/// sites without asking first.
///
/// # Errors
/// [`Kind::Usage`].
pub(super) fn check_content_type(headers: &HeaderMap, op: &str) -> Result<()> {
    let value = headers.get(CONTENT_TYPE).map(|value| value.to_str().unwrap_or_default());
    let kind = value.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if kind.eq_ignore_ascii_case(JSON) {
        return Ok(());
    }
    let why = format!("the content type of the request is `{kind}`, not `{JSON}`");
    let next = format!("Repeat the request with the header `Content-Type: {JSON}`.");
    Err(Error::new(Kind::Usage, op, why).next(next))
}

#[cfg(test)]
mod tests {
    use super::super::routes::error_response;
    use super::*;

    #[test]
    fn changes_from_other_sites_are_refused() {
        let check = |method: Method, name: &str, value: &str| {
            let request = Request::builder().method(method).uri("/v1/verbs/apply");
            let request = request.header("host", "store.example.org:8443").header(name, value);
            let request = request.body(()).expect("a request");
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
            ("origin", "https://Store.example.org"),
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
            ("origin", "https://evil.example.org:8443"),
            ("origin", "https://store.example.org.evil.example:8443"),
        ] {
            assert_eq!(check(Method::POST, name, value), Err(Kind::Forbidden), "{name}: {value}");
            assert_eq!(check(Method::GET, name, value), Ok(()), "{name}: {value}");
        }
    }

    #[test]
    fn change_with_the_cookie_of_a_session_names_its_origin() {
        let check = |method: Method, origin: Option<&str>| {
            let request = Request::builder().method(method).uri("/v1/verbs/apply");
            let request = request.header("host", "store.example.org:8443");
            let mut request = request.header("cookie", "__Host-ashlar-session=s");
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            check_origin(&request.body(()).expect("a request")).map_err(|e| e.kind)
        };
        assert_eq!(check(Method::POST, Some("https://store.example.org:8443")), Ok(()));
        assert_eq!(check(Method::POST, Some("https://evil.example.org")), Err(Kind::Forbidden));
        assert_eq!(check(Method::POST, None), Err(Kind::Forbidden));
        assert_eq!(check(Method::GET, None), Ok(()));
    }

    #[test]
    fn reads_that_a_page_of_another_site_embeds_are_refused() {
        let check = |site: &str, dest: &str| {
            let request = Request::builder().uri("/files/content");
            let request = request.header("sec-fetch-site", site).header("sec-fetch-dest", dest);
            check_origin(&request.body(()).expect("a request")).map_err(|e| e.kind)
        };
        for dest in ["document", "image", "empty"] {
            assert_eq!(check("same-origin", dest), Ok(()), "{dest}");
        }
        assert_eq!(check("none", "document"), Ok(()), "a typed address");
        assert_eq!(check("cross-site", "document"), Ok(()), "a link");
        for dest in ["image", "iframe", "script", "empty"] {
            assert_eq!(check("cross-site", dest), Err(Kind::Forbidden), "{dest}");
            assert_eq!(check("same-site", dest), Err(Kind::Forbidden), "{dest}");
        }
    }

    #[test]
    fn control_socket_refuses_requests_for_the_name_of_a_site() {
        let check = |host: &str| {
            let mut headers = HeaderMap::new();
            headers.insert(HOST, HeaderValue::from_str(host).expect("a value"));
            check_host(&headers).map_err(|e| e.kind)
        };
        for host in ["ashlar", "a", "localhost:8080", "127.0.0.1", "192.0.2.1:80", "[::1]:8080"] {
            assert_eq!(check(host), Ok(()), "{host}");
        }
        assert_eq!(check("[::ffff:127.0.0.1]:80"), Ok(()));
        for host in ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "localhost."] {
            assert_eq!(check(host), Err(Kind::Forbidden), "{host}");
        }
        assert_eq!(check_host(&HeaderMap::new()), Ok(()), "HTTP/1.0 needs no name");
    }

    #[test]
    fn body_that_is_not_announced_as_json_is_refused() {
        let check = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static(value));
            check_content_type(&headers, "apply").map_err(|e| e.kind)
        };
        assert_eq!(check("application/json"), Ok(()));
        assert_eq!(check("Application/JSON; charset=utf-8"), Ok(()));
        for value in ["", "text/plain", "application/json-seq", "text/plain; application/json"] {
            assert_eq!(check(value), Err(Kind::Usage), "{value}");
        }
        assert!(check_content_type(&HeaderMap::new(), "apply").is_err());
    }

    #[test]
    fn files_of_the_page_are_embedded_and_restricted() {
        for path in ["/assets/page.js", "/assets/page.css", "/assets/icon.svg"] {
            let response = asset(path).expect("a file of the page");
            let policy = response.headers().get(CONTENT_SECURITY_POLICY).expect("a policy");
            let policy = policy.to_str().expect("text");
            assert!(policy.starts_with("default-src 'none'"), "{policy}");
            assert!(!policy.contains("unsafe"), "{policy}");
            for name in [OPENER_POLICY, RESOURCE_POLICY] {
                assert_eq!(response.headers()[name], "same-origin", "{name}");
            }
        }
        assert!(asset("/assets/../Cargo.toml").is_none());
    }

    #[test]
    fn view_has_the_time_that_it_took_in_milliseconds() {
        let response = timed(reply(JSON, "{}"), Duration::from_micros(12_345));
        assert_eq!(response.headers()[SERVER_TIMING], "view;dur=12.345");
    }

    #[test]
    fn no_cache_stores_an_answer_and_no_browser_guesses_its_type() {
        let error = Error::new(Kind::NotFound, "ask", "there is no such route");
        for response in [reply(JSON, "{}"), error_response(&error), document(String::new())] {
            let field = |name: HeaderName| response.headers().get(name).expect("a field").clone();
            assert_eq!(field(CACHE_CONTROL), "no-store");
            assert_eq!(field(X_CONTENT_TYPE_OPTIONS), "nosniff");
        }
        let file = asset("/assets/page.js").expect("a file of the page");
        assert_eq!(file.headers().get(CACHE_CONTROL).expect("a field"), "no-cache");
    }
}
