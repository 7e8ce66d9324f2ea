//! NBD from outside: tools of other projects, and a client of our own that breaks rules.

mod client;
mod defects;
mod hostile;
mod late;
mod mutants;
#[path = "../iscsi/plant.rs"]
mod plant;
mod requests;
mod server;
mod simulated;
#[path = "../iscsi/slow_disk.rs"]
mod slow_disk;
#[path = "../iscsi/strain.rs"]
mod strain;
mod tls;
mod tls_mutants;
mod tools;
