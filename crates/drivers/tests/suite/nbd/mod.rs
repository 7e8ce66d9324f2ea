//! NBD from outside: tools of other projects, and a client of our own that breaks rules.

mod as_disk;
mod defects;
mod hostile;
mod late;
mod mutants;
mod requests;
mod server;
mod simulated;
mod socket_file;
mod tls;
mod tls_mutants;
mod tools;
mod unaligned;
