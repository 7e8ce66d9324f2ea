//! NBD from outside: tools of other projects, and a client of our own that breaks rules.

mod client;
#[path = "../common/cuts.rs"]
mod cuts;
mod defects;
#[path = "../common/disk.rs"]
mod disk;
mod hostile;
mod late;
mod mutants;
#[path = "../common/plant.rs"]
mod plant;
mod requests;
#[path = "../common/seeds.rs"]
mod seeds;
mod server;
mod simulated;
#[path = "../common/slow_disk.rs"]
mod slow_disk;
mod socket_file;
#[path = "../common/strain.rs"]
mod strain;
mod tls;
mod tls_mutants;
mod tools;
mod unaligned;
