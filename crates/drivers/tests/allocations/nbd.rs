//! Allocations of a READ or WRITE over NBD, from the socket to the medium and back: none.

#[allow(dead_code)]
#[path = "../suite/nbd/server.rs"]
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use server::{Server, Shape};
use testkit::nbd::Client;
use wire::nbd::Form;
use wire::nbd::codes::kind;

/// Requests of a turn.
const REQUESTS: u64 = 3000;

/// Allocations of a turn, at most: a hundredth of one a request, for what happens once a second.
const FEW: u64 = REQUESTS / 100;

fn settled(counter: &AtomicU64) -> u64 {
    // The counter is updated every millisecond.
    std::thread::sleep(Duration::from_millis(50));
    counter.load(Ordering::Acquire)
}

#[test]
fn reads_and_writes_allocate_nothing() {
    let counter = Arc::new(AtomicU64::new(0));
    let shape = Shape { cores: 1, allocations: Some(counter.clone()), ..Shape::default() };
    let server = Server::start(shape);
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
                let before = settled(&counter);
                for n in 0..requests {
                    let payload = if kind == kind::WRITE { &data[..len] } else { &[] };
                    let answer = c.ask(kind, 0, n % 64 * 65_536, len as u64, payload);
                    assert_eq!(answer.error, None);
                }
                settled(&counter) - before
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
