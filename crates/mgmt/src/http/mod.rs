//! HTTP/1.1 with JSON and a page over a Unix socket, and over TCP with TLS; metrics also over TCP.
//!
//! | route | is |
//! |---|---|
//! | `POST /v1/verbs/NAME` | a verb; NDJSON with progress when `Accept: application/x-ndjson` |
//! | `POST /v1/verbs/CLASS.VERB` | a verb of a class, as `mirror.rebuild` |
//! | `GET /v1/state` | everything, now |
//! | `GET /v1/events?after=N` | the journal as server-sent events, live |
//! | `GET /v1/trace?slow_ns=N&after=N&lun=NAME&geom=NAME` | slow requests, recorded for 5 s more |
//! | `GET /metrics` | metrics for Prometheus, as text or protobuf by `Accept` |
//! | `GET /openapi.json` | this interface, from the table of verbs |
//! | `GET /v1/schema` | JSON Schema of `ashlar.toml` |
//! | `GET /v1/view?find=TEXT&at=ID&unfold=ID` | contents of the page, as JSON |
//! | `GET /` | the page; `/assets/...`: its script, style and icon |
//! | `GET /access?target=NAME` | the page of the LUNs of a target by initiators |
//! | `GET /files?server=NAME` | pages of the files of a file server; `/files/content`: a download |
//! | `GET /login?to=PATH` | the form of the login of a browser, which sends it with `POST` |
//! | `POST /logout` | the end of the session of a browser |
//!
//! A peer of the socket must be root or the user the daemon runs as. A peer of the network needs a
//! token, the session of a browser that has logged in with one, or a client certificate.
//! `auth/permissions.rs` decides about each call. Over the listener of metrics, `metrics_server`
//! answers `GET /metrics`, and `GET /runbook` with the runbooks of the alerts.

mod accept;
mod body;
pub(crate) mod class_verbs;
pub(crate) mod components;
mod events;
mod file_routes;
mod login_routes;
pub mod metrics;
mod metrics_server;
mod network;
pub mod openapi;
mod page_routes;
mod peer;
mod peer_rates;
mod recent_logins;
mod refusal_log;
mod routes;
mod server;
mod session_cookie;
mod socket;

pub use metrics_server::{MetricsServer, StateFn, cannot_listen};
pub use server::serve;
pub use socket::BoundSocket;
