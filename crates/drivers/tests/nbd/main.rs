//! NBD from outside: tools of other projects, and a client of our own that breaks rules.

mod client;
mod hostile;
mod requests;
mod server;
mod tls;
mod tools;
