//! NBD from outside: tools of other projects, and a client of our own that breaks rules.

mod client;
mod defects;
mod hostile;
mod mutants;
mod requests;
mod server;
mod simulated;
#[path = "../iscsi/slow_disk.rs"]
mod slow_disk;
mod tls;
mod tools;
