//! Serves a memory disk (LUN 0) and a null disk (LUN 1) to anybody on loopback, for measurements:
//! `serve [SPIN_MICROSECONDS]`. Prints where, and serves until it is killed.

#[path = "../tests/suite/common/disk.rs"]
mod disk;
#[allow(dead_code)]
#[path = "../tests/suite/iscsi/server.rs"]
mod server;
#[allow(dead_code)]
#[path = "../tests/suite/common/stuck_disk.rs"]
mod stuck_disk;

fn main() {
    let spin = std::env::args().nth(1).and_then(|a| a.parse::<u64>().ok()).unwrap_or(0);
    let shape = server::Shape { spin_ns: spin * 1000, ..server::Shape::default() };
    let server = server::Server::start(shape);
    println!("{}", server.url(1));
    loop {
        std::thread::park();
    }
}
