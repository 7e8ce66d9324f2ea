//! Requests that have begun and do not end, in a simulated world: each has its deadline, and a slow
//! line is tolerated.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use bio::{Pool, PoolConfig};
use engine::{GroupSpec, Registry};
use reactor::sim::{Ended, World};
use reactor::{Address, Reactor};
use testkit::clock::S;
use wire::nbd::codes::kind;
use wire::nbd::{Form, Request};

use crate::nbd::simulated::{Client, plant};

/// Whether the client was answered as it expects, and the seconds until then.
type Report = Rc<RefCell<Option<(bool, u64)>>>;

/// The bytes that a client sends, and their pace.
struct PacedBytes {
    /// At once.
    first: Vec<u8>,
    /// Then so many bytes each second, of so many in all.
    each: usize,
    all: usize,
}

fn request(len: u64) -> Vec<u8> {
    let mut out = Vec::new();
    Request { kind: kind::WRITE, len, cookie: 9, ..Request::default() }
        .encode(Form::Simple, &mut out);
    out
}

/// Seconds after which the client received an answer (true) or the end (false).
async fn send_paced(mut client: Client, bytes: PacedBytes, report: Report) {
    let mut wire = client.enter().await.unwrap();
    let begun = client.reactor.now();
    let (stream, reactor) = (wire.stream.clone(), client.reactor.clone());
    let pool = client.pool.clone();
    drop(client.reactor.spawn("says", async move {
        let sender = crate::nbd::simulated::Wire::over(stream, pool);
        if sender.send(&bytes.first).await.is_err() {
            return;
        }
        let mut left = bytes.all;
        while left > 0 {
            reactor.sleep(S).await;
            let now = bytes.each.min(left);
            if sender.send(&vec![0x42; now]).await.is_err() {
                return;
            }
            left -= now;
        }
    }));
    let piece = wire.receive(&|_| 0).await;
    let took = (client.reactor.now() - begun) / S;
    *report.borrow_mut() = Some((piece.is_ok_and(|h| !h.error), took));
    std::future::pending::<()>().await;
}

/// Runs the story of one client until its report.
fn play_client<F>(story: impl FnOnce(Client, Arc<Registry>, Report) -> F) -> (bool, u64)
where
    F: Future<Output = ()> + 'static,
{
    let world = World::new(7);
    let portals: [Address; 1] = ["10.0.0.1:10809".parse().unwrap()];
    let plant = plant(&world, &portals);
    let outside = Reactor::simulated(&world, "client");
    let pool = Pool::new(PoolConfig { limit_bytes: 64 << 20 });
    let client = Client::new(0, 7, &outside, &pool, &portals[0], Form::Simple);
    let report = Report::default();
    drop(outside.spawn("client", story(client, plant.registry.clone(), report.clone())));
    let ended = plant.run(&world, &outside, &mut || report.borrow().is_some());
    assert_eq!(ended, Ended::Stopped);
    plant.end(&outside);
    report.take().unwrap()
}

fn play(bytes: PacedBytes) -> (bool, u64) {
    play_client(|client, _, report| send_paced(client, bytes, report))
}

/// Q1 of block_requests/requests.rs.
#[test]
fn started_request_is_answered_or_closed_at_its_deadline() {
    // (what, announced, at once, a second): answered, or closed after about so many seconds.
    let len = 64 * 1024;
    let (answered, took) = play(PacedBytes { first: request(len), each: 4096, all: len as usize });
    assert!(answered, "a slow line is borne");
    assert!((15..=18).contains(&took), "{took} s");
    let (answered, took) = play(PacedBytes { first: request(len), each: 1, all: 1000 });
    assert!(!answered && (20..=23).contains(&took), "{took} s: a payload that trickles");
    // Beyond the unit: it is read to be dropped.
    let (answered, took) = play(PacedBytes { first: request(16 << 20), each: 1, all: 1000 });
    assert!(!answered && (84..=87).contains(&took), "{took} s: a payload that is dropped");
    let (answered, took) = play(PacedBytes { first: request(len)[..27].to_vec(), each: 0, all: 0 });
    assert!(!answered && (20..=23).contains(&took), "{took} s: a header that is cut off");
    // Nothing was begun: an idle client stays, until it sends something.
    let mut late = vec![0; 0];
    late.extend(request(512));
    late.extend([7; 512]);
    let (answered, _) = play(PacedBytes { first: late, each: 0, all: 0 });
    assert!(answered);
}

/// Whether a read failed while its unit was awaited, and the seconds until then.
async fn read_awaited(mut client: Client, registry: Arc<Registry>, report: Report) {
    let mut wire = client.enter().await.unwrap();
    let group = GroupSpec {
        name: "all".into(),
        initiators: vec!["*".into()],
        awaited: vec![(0, "slow".into())],
        ..GroupSpec::default()
    };
    registry.set_groups("nbd", "sim", &[group]).unwrap();
    let begun = client.reactor.now();
    let mut bytes = Vec::new();
    Request { kind: kind::READ, len: 512, cookie: 9, ..Request::default() }
        .encode(Form::Simple, &mut bytes);
    wire.send(&bytes).await.unwrap();
    let piece = wire.receive(&|_| 0).await;
    let took = (client.reactor.now() - begun) / S;
    *report.borrow_mut() = Some((piece.is_ok_and(|piece| piece.error), took));
    std::future::pending::<()>().await;
}

#[test]
fn request_at_a_unit_that_stays_away_fails_after_30_seconds() {
    let (failed, took) = play_client(read_awaited);
    assert!(failed && (30..=31).contains(&took), "{took} s");
}
