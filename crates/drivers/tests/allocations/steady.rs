//! Allocations in steady state: a core allocates nothing per command, because transport, engine,
//! graph and disk reuse their memory.

use crate::allocations;
use crate::iscsi::server::{Server, Shape};
use testkit::iscsi::initiator::{Client, LoginOptions, rw10};

/// Commands sent ahead of their answers.
const DEPTH: usize = 16;
/// Commands that warm everything up, and commands that are counted, of each kind.
const COMMANDS: usize = 1024;
/// Allocations of a whole phase that are allowed: asking for the counter takes some, and a queue
/// may find a new greatest length.
const FEW: u64 = 32;

fn reads(client: &mut Client, lun: u8, blocks: u16) {
    for n in 0..COMMANDS / DEPTH {
        let cdb = |i: usize| rw10(0x28, ((n * DEPTH + i) * 8) as u32, blocks);
        let len = u32::from(blocks) * 512;
        let tags: Vec<u32> = (0..DEPTH).map(|i| client.start(lun, &cdb(i), len, 0)).collect();
        for tag in tags {
            let (data, end, _) = client.answer(tag);
            assert_eq!((data.len(), end.status), (len as usize, 0));
        }
    }
}

fn writes(client: &mut Client, bytes: &[u8]) {
    for n in 0..COMMANDS / 4 {
        assert_eq!(client.write((n * 8) as u32, bytes, 8192).status, 0);
    }
}

fn readiness(client: &mut Client) {
    for _ in 0..COMMANDS / 4 {
        client.ready(0);
    }
}

/// Runs each phase twice and counts the second.
fn check(server: &Server, how: &LoginOptions) {
    let mut client = Client::login(server.portal, how);
    client.ready(0);
    client.ready(1);
    let small = vec![7; 4096];
    let large = vec![9; 128 << 10];
    type Phase<'a> = (&'a str, Box<dyn Fn(&mut Client) + 'a>);
    let phases: [Phase<'_>; 6] = [
        ("4 KiB reads of memory", Box::new(|c| reads(c, 0, 8))),
        ("4 KiB reads of null", Box::new(|c| reads(c, 1, 8))),
        ("128 KiB reads of memory", Box::new(|c| reads(c, 0, 256))),
        ("4 KiB writes", Box::new(|c| writes(c, &small))),
        ("128 KiB writes, asked for", Box::new(|c| writes(c, &large))),
        ("readiness", Box::new(readiness)),
    ];
    let mut wrong = Vec::new();
    for (name, phase) in &phases {
        phase(&mut client);
        let before = allocations(&server.control);
        phase(&mut client);
        let n = allocations(&server.control) - before;
        if n > FEW {
            wrong.push(format!("{name}: {n} allocations"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    client.logout();
}

#[test]
fn core_in_steady_state_allocates_nothing_per_command() {
    let server = Server::start(Shape::default());
    // The counter counts: a login makes a session.
    let before = allocations(&server.control);
    Client::login(server.portal, &LoginOptions::default()).logout();
    assert!(allocations(&server.control) - before > FEW);
    check(&server, &LoginOptions::default());
    check(&server, &LoginOptions::default().digests(true, true));
}
