//! Allocations of a READ or WRITE over NBD, from the socket to the medium and back: none.

#[allow(dead_code)]
#[path = "../suite/nbd/server.rs"]
mod server;

use server::{Server, Shape};
use testkit::nbd::Client;
use wire::nbd::Form;
use wire::nbd::codes::kind;

use crate::allocations;

/// Requests of a turn.
const REQUESTS: u64 = 3000;

/// Allocations of a turn, at most: a hundredth of one a request, for what happens once a second.
const FEW: u64 = REQUESTS / 100;

#[test]
fn reads_and_writes_allocate_nothing() {
    let server = Server::start(Shape { cores: 1, ..Shape::default() });
    let data = vec![7; 48 * 1024];
    for form in [Form::Simple, Form::Structured, Form::Extended] {
        let mut c = Client::enter(server.portal, form, "memory");
        for (kind, len) in [
            (kind::READ, 4096),
            (kind::READ, 48 << 10),
            (kind::WRITE, 4096),
            (kind::WRITE, 48 << 10),
        ] {
            let mut turn = |requests: u64| {
                // The same few blocks: the disk allocates when one is written first.
                let before = allocations(&server.control);
                for n in 0..requests {
                    let payload = if kind == kind::WRITE { &data[..len] } else { &[] };
                    let answer = c.ask(kind, 0, n % 64 * 65_536, len as u64, payload);
                    assert_eq!(answer.error, None);
                }
                allocations(&server.control) - before
            };
            turn(REQUESTS / 10);
            let new_allocations = turn(REQUESTS);
            assert!(
                new_allocations <= FEW,
                "{form:?} {kind} {len}: {new_allocations} allocations in {REQUESTS} requests"
            );
        }
    }
}
