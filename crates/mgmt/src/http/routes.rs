//! Requests to answers.

use super::body::Body;
use super::class_verbs::{CLASS_CALL, ClassCall, own_answer};
use super::events::{events, last_seen};
use super::file_routes;
use super::login_routes;
use super::metrics::{self, Format};
use super::openapi::{self, IDEMPOTENCY_KEY, JSON, VERBS_PREFIX};
use super::page_routes::{asset, check_content_type, check_origin, document, timed};
use super::peer::Peer;
use super::session_cookie;
use crate::api::{Error, Kind, ProgressLine, Result, TraceQuery};
use crate::audit::{AuditedCaller, Former};
use crate::auth::{Call, Caller, authorize, changes, takes_document};
use crate::page::{self, AccessQuery, Query, View, files};
use crate::plant::Progress;
use crate::service::{Control, KeyedRequest};
use crate::verbs::{self, Run};
use http_body_util::{BodyExt, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue, X_CONTENT_TYPE_OPTIONS,
};
use hyper::{HeaderMap, Method, Request, Response, StatusCode};
use serde_json::{Value, json};
use std::convert::Infallible;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// Longest body of a request with a document, in bytes: a configuration and its quoting.
const DOCUMENT_BYTES_MAX: usize = 12 << 20;

/// Longest body of any other request, in bytes. It is read before the permission is known.
const REQUEST_BYTES_MAX: usize = 256 << 10;

/// How long a request body may take.
pub(super) const REQUEST_MAX: Duration = Duration::from_secs(30);

/// Progress lines on their way to a slow reader. Further ones are dropped.
const LINES_MAX: usize = 64;

const NDJSON: &str = "application/x-ndjson";

/// Answers one request of a peer.
pub async fn route(
    request: Request<Incoming>,
    control: Arc<Control>,
    peer: Arc<Peer>,
) -> std::result::Result<Response<Body>, Infallible> {
    let is_get = request.method() == Method::GET;
    if is_get && let Some(file) = asset(request.uri().path()) {
        return Ok(file);
    }
    if login_routes::is_route(request.uri().path()) {
        return Ok(login_routes::answer(request, &control, &peer).await);
    }
    let path = request.uri().path();
    let is_page = is_get && path == "/";
    let is_plain_page = is_get && (files::is_route(path) || path == page::ACCESS);
    let caller = peer.caller(request.headers(), &control);
    if peer.is_login(&caller) {
        let by = peer.audited(caller.as_ref().ok());
        record(&control, by, "login", Value::Null, caller.as_ref().map(|_| ())).await;
    }
    let answer = match caller {
        Ok(caller) => dispatch(request, control, AuthorizedPeer { caller, peer }).await,
        Err(e) if is_page || is_plain_page && e.kind == Kind::Unauthenticated => {
            let to = request.uri().path_and_query().map_or("/", |to| to.as_str());
            Ok(login_routes::refusal(&e, to, is_page))
        }
        Err(e) => Err(e),
    };
    let refusal = if is_plain_page { file_routes::refusal } else { error_response };
    Ok(answer.unwrap_or_else(|e| refusal(&e)))
}

/// A peer whose caller is known.
struct AuthorizedPeer {
    caller: Caller,
    peer: Arc<Peer>,
}

impl AuthorizedPeer {
    /// Whether the caller may make a call; a refusal is recorded, and counted as a failed login.
    async fn authorize(&self, control: &Arc<Control>, call: Call<'_>) -> Result<()> {
        let allowed = authorize(&self.caller, call);
        if allowed.is_err() {
            self.peer.count_refusal();
            let (what, params) = match call {
                Call::Verb(name, params) => (name, params.clone()),
                Call::Route(path) => (path, Value::Null),
            };
            record(control, self.audited(), what, params, allowed.as_ref().copied()).await;
        }
        allowed
    }

    fn audited(&self) -> AuditedCaller {
        self.peer.audited(Some(&self.caller))
    }
}

/// Records a login, a logout, a refused call, a download or a comparison in the audit log.
pub(super) async fn record(
    control: &Arc<Control>,
    by: AuditedCaller,
    what: &str,
    params: Value,
    end: std::result::Result<(), &Error>,
) {
    let (control, what, end) = (control.clone(), what.to_owned(), end.map_err(Clone::clone));
    let write = move || control.audit().record_call(&by, &what, &params, &end);
    if let Err(e) = tokio::task::spawn_blocking(write).await {
        tracing::error!("the audit log was not written: {e}");
    }
}

async fn dispatch(
    request: Request<Incoming>,
    control: Arc<Control>,
    peer: AuthorizedPeer,
) -> Result<Response<Body>> {
    let path = request.uri().path().to_owned();
    let Some(method) = method_of(&path) else { return Err(unknown_route(&path)) };
    if *request.method() != method {
        return Ok(wrong_method(&path, request.method(), &method));
    }
    check_origin(&request)?;
    if !path.starts_with(VERBS_PREFIX) {
        peer.authorize(&control, Call::Route(&path)).await?;
    }
    let control = control.limited_to(&peer.caller.scope);
    match path.as_str() {
        "/" => {
            let query = Query::parse(request.uri().query().unwrap_or(""));
            let caller = peer.caller.clone();
            let text = blocking(move || Ok(page::render(&view(&control, query, &caller)?))).await?;
            Ok(document(text))
        }
        "/v1/view" => {
            let query = Query::parse(request.uri().query().unwrap_or(""));
            let caller = peer.caller.clone();
            let made = blocking(move || {
                let began = Instant::now();
                let text = to_json(&view(&control, query, &caller)?)?;
                Ok((text, began.elapsed()))
            });
            let (text, took) = made.await?;
            Ok(timed(reply(JSON, text), took))
        }
        "/v1/schema" => {
            let text = blocking(move || to_json(&verbs::schema::config(control.catalog()))).await?;
            Ok(reply(JSON, text))
        }
        "/v1/state" => {
            let text = blocking(move || to_json(&control.state()?)).await?;
            Ok(reply(JSON, text))
        }
        TraceQuery::PATH => {
            let query = TraceQuery::parse(request.uri().query().unwrap_or(""))?;
            let text = blocking(move || to_json(&control.slow_requests(&query)?)).await?;
            Ok(reply(JSON, text))
        }
        "/metrics" => {
            let format = Format::of(request.headers());
            let page = move || -> Result<_> {
                let (figures, series_max) = (control.figures()?, control.metrics_series_max());
                Ok((metrics::render(&figures, series_max, format), figures))
            };
            metrics::answer(page, format, ()).await
        }
        "/openapi.json" => {
            let document =
                move || Ok(openapi::document(&control.catalog().class_verbs()).to_string());
            let text = blocking(document).await?;
            Ok(reply(JSON, text))
        }
        "/v1/events" => {
            let last = last_seen(request.uri().query(), request.headers());
            let headers = request.headers().clone();
            let AuthorizedPeer { caller, peer } = peer;
            let is_allowed = move |control: &Control| peer.is_still(&caller, &headers, control);
            let mut response = Response::new(events(control, last, is_allowed));
            content(&mut response, "text/event-stream");
            Ok(response)
        }
        page::ACCESS => {
            let query = AccessQuery::parse(request.uri().query().unwrap_or(""));
            let text = blocking(move || page::access(&control.state()?, &query)).await?;
            Ok(file_routes::document(text))
        }
        files::CONTENT => {
            let by = peer.audited();
            let headers = request.headers().clone();
            let AuthorizedPeer { caller, peer } = peer;
            let is_allowed = move |control: &Control| peer.is_still(&caller, &headers, control);
            file_routes::content(request.uri(), control, by, is_allowed).await
        }
        files::COMPARE => file_routes::comparison(request.uri(), control, peer.audited()).await,
        other if files::is_route(other) => file_routes::page(request.uri(), control).await,
        other => match other.strip_prefix(VERBS_PREFIX) {
            Some(name) => verb(name.to_owned(), request, control, peer).await,
            None => Err(unknown_route(&path)),
        },
    }
}

/// The view of a query, with the changes that the caller may make.
fn view(control: &Control, query: Query, caller: &Caller) -> Result<View> {
    let mut view = page::view(control, query)?;
    view.retain_actions(|verb, params| authorize(caller, Call::Verb(verb, params)).is_ok());
    Ok(view)
}

/// The method of a route; `None`: there is no such route.
fn method_of(path: &str) -> Option<Method> {
    match path {
        "/v1/state" | "/metrics" | "/openapi.json" | "/v1/events" => Some(Method::GET),
        "/" | "/v1/view" | "/v1/schema" | page::ACCESS | TraceQuery::PATH => Some(Method::GET),
        _ if files::is_route(path) => Some(Method::GET),
        _ => path.starts_with(VERBS_PREFIX).then_some(Method::POST),
    }
}

pub(super) fn unknown_route(path: &str) -> Error {
    let next = "GET /openapi.json lists the routes.";
    Error::new(Kind::NotFound, "ask", "there is no such route").at(path).next(next)
}

/// Answer to a method that a route does not have, with the method that it has (RFC 9110 15.5.6).
pub(super) fn wrong_method(path: &str, used: &Method, allowed: &Method) -> Response<Body> {
    let why = format!("the route has no method {used}, only {allowed}");
    let next = format!("Repeat the request with {allowed}.");
    let error = Error::new(Kind::WrongMethod, "ask", why).at(path).next(next);
    let mut response = error_response(&error);
    if let Ok(value) = HeaderValue::from_str(allowed.as_str()) {
        response.headers_mut().insert(ALLOW, value);
    }
    response
}

fn to_json<T: serde::Serialize>(value: &T) -> Result<String> {
    serde_json::to_string(value).map_err(|e| Error::new(Kind::Internal, "answer", e))
}

/// Runs `f` on a thread that may block.
pub(super) async fn blocking<T: Send + 'static>(
    f: impl FnOnce() -> Result<T> + Send + 'static,
) -> Result<T> {
    match tokio::task::spawn_blocking(f).await {
        Ok(result) => result,
        Err(e) => Err(Error::new(Kind::Internal, "answer", e)),
    }
}

pub(super) fn reply(kind: &str, bytes: impl Into<Bytes>) -> Response<Body> {
    let mut response = Response::new(Body::from_bytes(bytes));
    content(&mut response, kind);
    response
}

/// Sets the type of an answer. No cache stores an answer, which may contain state, and no browser
/// reads it as another type.
fn content(response: &mut Response<Body>, kind: &str) {
    let headers = response.headers_mut();
    if let Ok(value) = HeaderValue::from_str(kind) {
        headers.insert(CONTENT_TYPE, value);
    }
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
}

pub(super) fn error_response(error: &Error) -> Response<Body> {
    let mut response = reply(JSON, json!({ "error": error }).to_string());
    let status = StatusCode::from_u16(error.kind.http());
    *response.status_mut() = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response
}

async fn params(request: Request<Incoming>, op: &str, bytes_max: usize) -> Result<Value> {
    let announced = hyper::body::Body::size_hint(request.body()).lower();
    if announced > u64::try_from(bytes_max).unwrap_or(u64::MAX) {
        let why = format!("request of {announced} bytes is too large: at most {bytes_max}");
        return Err(Error::new(Kind::Limit, op, why));
    }
    let has_body = !hyper::body::Body::is_end_stream(request.body());
    // A page of another site sends no such field without asking first.
    if has_body || session_cookie::is_sent(request.headers()) {
        check_content_type(request.headers(), op)?;
    }
    let body = Limited::new(request.into_body(), bytes_max).collect();
    let read = tokio::time::timeout(REQUEST_MAX, body).await;
    let read = read.map_err(|_| Error::new(Kind::Timeout, op, "the request did not arrive"))?;
    let bytes = read.map_err(|e| Error::new(Kind::Limit, op, e))?.to_bytes();
    if bytes.is_empty() {
        return Ok(Value::Object(Default::default()));
    }
    serde_json::from_slice(&bytes).map_err(|e| Error::new(Kind::Usage, op, e))
}

/// The verb of a class that a path names. The first call describes the verbs of all classes, on a
/// thread that may block.
async fn class_call(name: &str, control: &Arc<Control>) -> Result<Option<ClassCall>> {
    if verbs::find(name).is_some() {
        return Ok(None);
    }
    let (name, control) = (name.to_owned(), control.clone());
    blocking(move || Ok(ClassCall::of(&name, &control.catalog().class_verbs()))).await
}

/// Runs a verb. It runs to its end even when the client disappears: an apply is never cut.
async fn verb(
    name: String,
    request: Request<Incoming>,
    control: Arc<Control>,
    peer: AuthorizedPeer,
) -> Result<Response<Body>> {
    let class_call = class_call(&name, &control).await?;
    let name = class_call.as_ref().map_or(name, |_| CLASS_CALL.to_owned());
    let entry = verbs::find(&name);
    let run = entry.and_then(|e| match e.run {
        Run::Daemon(run) => Some(run),
        Run::Local(_) => None,
    });
    let Some(run) = run else {
        let why = "the daemon has no such verb";
        return Err(Error::new(Kind::UnknownVerb, "ask", why).at(name));
    };
    let key = idempotency_key(request.headers(), &name)?;
    let accept = request.headers().get(ACCEPT);
    let stream = accept.and_then(|v| v.to_str().ok()).is_some_and(|v| v.contains(NDJSON));
    let bytes_max = if takes_document(&name) {
        peer.authorize(&control, Call::Verb(&name, &Value::Null)).await?;
        DOCUMENT_BYTES_MAX
    } else {
        REQUEST_BYTES_MAX
    };
    let mut params = params(request, &name, bytes_max).await?;
    if let Some(call) = &class_call {
        params = call.params(params);
    }
    let call = Call::Verb(&name, &params);
    peer.authorize(&control, call).await?;
    let by = changes(call).then(|| peer.audited());
    let caller = peer.caller;
    let run = move |control: &Control, params: Value, progress: &mut Progress<'_>| {
        let answer = match by {
            None => run(control, params, progress),
            Some(by) => {
                let recorded = params.clone();
                let what = (name.as_str(), &recorded);
                let key = key.as_deref().map(|key| (&caller, key));
                change(control, &by, what, key, || run(control, params, progress))
            }
        }?;
        if class_call.is_some() { own_answer(&answer) } else { Ok(answer) }
    };
    if !stream {
        let answer = blocking(move || run(&control, params, &mut |_| {})).await?;
        return Ok(reply(JSON, answer));
    }
    let (sender, receiver) = mpsc::channel(LINES_MAX);
    tokio::task::spawn(async move {
        let lines = sender.clone();
        let result = blocking(move || {
            run(&control, params, &mut |line: ProgressLine| {
                // A reader that is too slow misses progress, never the answer.
                let _ = lines.try_send(ndjson(&json!({ "progress": line })));
            })
        });
        let last = match result.await {
            Ok(answer) => Bytes::from(format!("{{\"answer\":{answer}}}\n")),
            Err(error) => ndjson(&json!({ "error": error })),
        };
        // The client may have disconnected; the verb is done all the same.
        let _ = sender.send(last).await;
    });
    let mut response = Response::new(Body::Lines(receiver));
    content(&mut response, NDJSON);
    Ok(response)
}

/// The key of a change that a caller may repeat; `None`: it has none.
fn idempotency_key(headers: &HeaderMap, verb: &str) -> Result<Option<String>> {
    let no_text = |e| Error::new(Kind::Usage, verb, format!("{IDEMPOTENCY_KEY}: {e}"));
    let text = |value: &HeaderValue| value.to_str().map(str::to_owned).map_err(no_text);
    headers.get(IDEMPOTENCY_KEY).map(text).transpose()
}

/// Carries out a change with its entries in the audit log, and once for each key.
fn change(
    control: &Control,
    by: &AuditedCaller,
    (name, params): (&str, &Value),
    key: Option<(&Caller, &str)>,
    run: impl FnOnce() -> Result<String>,
) -> Result<String> {
    let recorded = || {
        let former = Former::of(control, name, params);
        let made = |answer: &String| former.changes(control, answer);
        let generation = || control.generation();
        control.audit().record_change(by, (name, params), generation, run, made)
    };
    let Some((caller, key)) = key else { return recorded() };
    let of = KeyedRequest::new(caller, key, name, &params.to_string())?;
    control.request_keys().once(&of, Instant::now(), recorded)
}

fn ndjson(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}
