//! HTTP/1.1 with JSON over a Unix socket.
//!
//! | route | is |
//! |---|---|
//! | `POST /v1/verbs/NAME` | a verb; NDJSON with progress when `Accept: application/x-ndjson` |
//! | `GET /v1/state` | everything, now |
//! | `GET /v1/events?after=N` | the journal as server-sent events, live |
//! | `GET /metrics` | Prometheus text |
//! | `GET /openapi.json` | this interface, from the table of verbs |
//!
//! The peer must be root or the user the daemon runs as.

mod body;
pub mod metrics;
pub mod openapi;
mod routes;
mod server;
mod socket;

pub use server::serve;
pub use socket::BoundSocket;
