//! Serves over NBD a memory disk (LUN 0) and a null disk (LUN 1) to anybody on loopback, on one
//! core, for measurements. Prints where, and serves until it is killed.

#[allow(dead_code)]
#[path = "../tests/suite/nbd/server.rs"]
mod server;

fn main() {
    let server = server::Server::start(server::Shape { cores: 1, ..server::Shape::default() });
    println!("{}", server.url("null"));
    loop {
        std::thread::park();
    }
}
