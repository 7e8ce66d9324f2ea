//! Allocations of a READ or WRITE over iSCSI, from the socket to the medium and back: none.

#[allow(dead_code)]
#[path = "../suite/iscsi/server.rs"]
pub mod server;

use server::{Server, Shape};
use testkit::iscsi::initiator::{Client, LoginOptions};

use crate::allocations;

/// Commands of a turn.
const COMMANDS: u32 = 3000;

/// Allocations of a turn, at most: a hundredth of one a command, for what happens once a second.
const FEW: u64 = COMMANDS as u64 / 100;

#[test]
fn reads_and_writes_allocate_nothing() {
    let server = Server::start(Shape::default());
    let mut c = Client::login(server.portal, &LoginOptions::default());
    c.ready(0);
    let data = vec![7; 48 * 1024];
    let small: fn(&mut Client, u32, &[u8]) = |c, lba, _| drop(c.read(0, lba, 8));
    let large: fn(&mut Client, u32, &[u8]) = |c, lba, _| drop(c.read(0, lba, 400));
    let write: fn(&mut Client, u32, &[u8]) = |c, lba, d| {
        assert_eq!(c.write(lba, &d[..4096], 4096).status, 0);
    };
    let solicited: fn(&mut Client, u32, &[u8]) = |c, lba, d| {
        assert_eq!(c.write(lba, d, 8192).status, 0);
    };
    assert!(allocations(&server.control) > 0, "allocations are not counted");
    for (name, work) in
        [("small read", small), ("large read", large), ("write", write), ("R2T", solicited)]
    {
        let mut turn = |commands: u32| {
            // The same few blocks: the disk allocates when one is written first.
            let before = allocations(&server.control);
            (0..commands).for_each(|n| work(&mut c, n % 64 * 8, &data));
            allocations(&server.control) - before
        };
        turn(COMMANDS / 10);
        let new_allocations = turn(COMMANDS);
        assert!(
            new_allocations <= FEW,
            "{name}: {new_allocations} allocations in {COMMANDS} commands"
        );
    }
}
