//! Login and logout of browsers: a form exchanges a token for the cookie of a session.
//!
//! The token is in the body of one request, and in no link, script or storage of the browser.

use super::body::Body;
use super::file_routes;
use super::page_routes::{check_origin, document};
use super::peer::Peer;
use super::routes::{REQUEST_MAX, error_response, record, wrong_method};
use super::session_cookie;
use crate::api::{Error, Kind, Result};
use crate::page::{self, LOGIN, LOGOUT, LoginQuery, files};
use crate::service::Control;
use http_body_util::{BodyExt, Limited};
use hyper::body::Incoming;
use hyper::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderValue, LOCATION, SET_COOKIE};
use hyper::{Method, Request, Response, StatusCode};
use serde_json::Value;
use std::sync::Arc;

/// Type of the body that a form sends.
const FORM: &str = "application/x-www-form-urlencoded";

/// Longest body of a login, in bytes.
const FORM_BYTES_MAX: usize = 4 << 10;

/// Whether a path is that of the login or the logout.
pub(super) fn is_route(path: &str) -> bool {
    path == LOGIN || path == LOGOUT
}

/// The page after a login: one of the daemon's, for any name in a link.
fn destination(to: &str) -> HeaderValue {
    let path = to.split('?').next().unwrap_or_default();
    let is_page = path == "/" || path == page::ACCESS || files::is_route(path);
    let value = is_page.then(|| HeaderValue::from_str(to).ok()).flatten();
    value.unwrap_or(HeaderValue::from_static("/"))
}

/// Sends the browser to another page with a GET.
fn see_other(to: HeaderValue, cookie: Option<&str>) -> Response<Body> {
    let mut response = document(String::new());
    *response.status_mut() = StatusCode::SEE_OTHER;
    response.headers_mut().insert(LOCATION, to);
    if let Some(cookie) = cookie.and_then(|cookie| HeaderValue::from_str(cookie).ok()) {
        response.headers_mut().insert(SET_COOKIE, cookie);
    }
    response
}

fn status_of(error: &Error) -> StatusCode {
    StatusCode::from_u16(error.kind.http()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The page for a caller who may not see `to`, with the form of the login if a login may help.
/// `is_live`: its script requests the token and then shows the page.
pub(super) fn refusal(error: &Error, to: &str, is_live: bool) -> Response<Body> {
    let is_login = error.kind == Kind::Unauthenticated;
    let text = page::forbidden(error, is_login.then_some(to), is_live);
    let mut response = if is_live { document(text) } else { file_routes::document(text) };
    *response.status_mut() = status_of(error);
    response
}

/// Whether the sender of a request is a script, which reads errors as JSON.
fn reads_json(headers: &HeaderMap) -> bool {
    let accept = headers.get(ACCEPT).and_then(|value| value.to_str().ok());
    accept.is_some_and(|accept| accept.contains("json"))
}

/// The fields of the form.
async fn form(request: Request<Incoming>) -> Result<LoginQuery> {
    let op = "log in";
    let kind = request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let kind = kind.unwrap_or_default().split(';').next().unwrap_or_default().trim();
    if !kind.eq_ignore_ascii_case(FORM) {
        let why = format!("the content type of the request is `{kind}`, not `{FORM}`");
        let next = format!("Use the form at {LOGIN}.");
        return Err(Error::new(Kind::Usage, op, why).next(next));
    }
    let body = Limited::new(request.into_body(), FORM_BYTES_MAX).collect();
    let read = tokio::time::timeout(REQUEST_MAX, body).await;
    let read = read.map_err(|_| Error::new(Kind::Timeout, op, "the request did not arrive"))?;
    let bytes = read.map_err(|e| Error::new(Kind::Limit, op, e))?.to_bytes();
    Ok(LoginQuery::parse(&String::from_utf8_lossy(&bytes)))
}

async fn log_in(request: Request<Incoming>, control: &Arc<Control>, peer: &Peer) -> Response<Body> {
    let headers = request.headers().clone();
    let checked = check_origin(&request);
    let query = match checked {
        Ok(()) => form(request).await,
        Err(e) => Err(e),
    };
    // Each refusal is counted for any reason, so that a flood does not fill the audit log.
    let admitted = peer.admit();
    let is_admitted = admitted.is_ok();
    let (to, begun) = match admitted.and(query) {
        Ok(query) => (query.to, peer.log_in(&headers, &query.token, control)),
        Err(e) => (String::new(), Err(e)),
    };
    if is_admitted && begun.is_err() {
        peer.count_refusal();
    }
    let caller = begun.as_ref().map(|new| new.caller.clone()).map_err(Clone::clone);
    if peer.is_login(&caller) {
        let by = peer.audited(caller.as_ref().ok());
        record(control, by, "login", Value::Null, caller.as_ref().map(|_| ())).await;
    }
    match begun {
        Ok(new) => see_other(destination(&to), Some(&new.cookie)),
        Err(e) if reads_json(&headers) => error_response(&e),
        Err(e) => refusal(&e, &to, false),
    }
}

async fn log_out(
    request: Request<Incoming>,
    control: &Arc<Control>,
    peer: &Peer,
) -> Response<Body> {
    if let Err(e) = check_origin(&request) {
        return refusal(&e, "", false);
    }
    let (caller, cookie) = peer.log_out(request.headers(), control);
    if caller.is_some() {
        record(control, peer.audited(caller.as_ref()), "logout", Value::Null, Ok(())).await;
    }
    see_other(HeaderValue::from_static(LOGIN), cookie.as_deref())
}

/// Answers a request for the login or the logout.
pub(super) async fn answer(
    request: Request<Incoming>,
    control: &Arc<Control>,
    peer: &Peer,
) -> Response<Body> {
    let is_login = request.uri().path() == LOGIN;
    if *request.method() == Method::POST {
        return match is_login {
            true => log_in(request, control, peer).await,
            false => log_out(request, control, peer).await,
        };
    }
    if !is_login || *request.method() != Method::GET {
        return wrong_method(request.uri().path(), request.method(), &Method::POST);
    }
    let query = LoginQuery::parse(request.uri().query().unwrap_or(""));
    let caller = peer.session_caller(request.headers(), control);
    let has_cookie = session_cookie::is_sent(request.headers());
    let who = caller.map(|caller| (caller.name, caller.role.label()));
    let who = who.as_ref().map(|(name, role)| (name.as_str(), *role));
    file_routes::document(page::login(&query.to, who, has_cookie))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn login_leads_only_to_pages_of_the_daemon() {
        for to in ["/", "/?at=disk%3Ad0", "/access?target=iqn.a%3At", "/files/folder?server=main"] {
            assert_eq!(destination(to), to);
        }
        let others = ["", "https://x/", "//x/", "/\\x", "/v1/state", "/logout", "/?\r\na: b"];
        for to in others {
            assert_eq!(destination(to), "/", "{to}");
        }
    }

    #[test]
    fn refusal_has_the_form_only_if_a_login_may_help() {
        let text = |kind: Kind| {
            let error = Error::new(kind, "log in", "no");
            page::forbidden(&error, (kind == Kind::Unauthenticated).then_some("/access"), false)
        };
        let asked = text(Kind::Unauthenticated);
        assert!(asked.contains("action=\"/login\"") && asked.contains("value=\"/access\""));
        assert!(!text(Kind::Forbidden).contains("action=\"/login\""));
        let error = Error::new(Kind::Unauthenticated, "log in", "no");
        assert_eq!(refusal(&error, "/", true).status(), StatusCode::UNAUTHORIZED);
    }

    #[test]
    fn script_receives_a_refusal_as_json() {
        let mut headers = HeaderMap::new();
        assert!(!reads_json(&headers));
        headers.insert(ACCEPT, HeaderValue::from_static("text/html,*/*;q=0.8"));
        assert!(!reads_json(&headers));
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        assert!(reads_json(&headers));
    }
}
