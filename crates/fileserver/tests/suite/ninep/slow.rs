//! Clients that send requests and do not read the replies, and clients with many fids.

use fileserver::ninep::{Flavour, MSIZE_MAX};
use testkit::clock::S;
use wire::ninep::{T, open};

use super::client::{Client, with_fixture};

const MIB: usize = 1 << 20;

/// A client that requests 64 reads of 1 MiB and takes none of them.
async fn ask_without_taking(c: &Client) {
    for i in 0..64 {
        let offset = (i % 12) * MIB as u64;
        c.post(&T::Read { fid: 1, offset, count: MIB as u32 }, &[]).await;
    }
}

/// U1.
#[test]
fn client_that_reads_no_replies_does_not_block_others() {
    with_fixture(31, |h| async move {
        let a = h.user("ann", Flavour::Linux).await;
        a.make(1, "big", 0o644, open::RDWR).await;
        for i in 0..192 {
            assert_eq!(a.write(1, i << 16, &[i as u8; 1 << 16]).await, Ok(1 << 16));
        }
        let mut slow = Vec::new();
        for _ in 0..4 {
            let c = h.stranger(Flavour::Linux).await;
            assert_eq!(c.version(MSIZE_MAX).await, MSIZE_MAX);
            c.attach(0, "ann", "").await.unwrap();
            c.walk(0, 1, &["big"]).await.unwrap();
            c.open(1, open::READ).await.unwrap();
            ask_without_taking(&c).await;
            slow.push(c);
        }
        h.reactor.sleep(2_000_000_000).await;
        let b = h.stranger(Flavour::Linux).await;
        b.version(MSIZE_MAX).await;
        b.attach(0, "bob", "").await.unwrap();
        for k in 0..20 {
            b.make(2, &format!("w{k}"), 0o644, open::RDWR).await;
            assert_eq!(b.write(2, 0, &vec![k; MIB]).await, Ok(MIB as u32), "write {k}");
            assert_eq!(b.read(2, 0, MIB as u32).await, Ok(vec![k; MIB]), "read {k}");
            b.remove(2).await.unwrap();
        }
        // A slow client gets all requested data once it takes them.
        for _ in 0..64 {
            let reply = slow[0].receive().await.expect("the server hung up");
            assert_eq!(reply.len(), 11 + MIB);
        }
    });
}

/// U2.
#[test]
fn unread_replies_hold_a_bounded_part_of_the_pool() {
    with_fixture(32, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        let before = h.pool.usage().used_bytes;
        let (sender, pool) = (std::rc::Rc::new(c), h.pool.clone());
        let s = sender.clone();
        h.reactor.spawn("asks", async move {
            for _ in 0..100_000 {
                s.post(&T::Stat { fid: 0 }, &[]).await;
            }
        });
        h.reactor.sleep(60_000_000_000).await;
        let held = pool.usage().used_bytes - before;
        assert!(held < 4 * MIB, "{held} bytes");
        assert!(h.user("bob", Flavour::Plan9).await.stat(0).await.error().is_none());
    });
}

#[test]
fn client_that_leaves_without_reading_its_replies_is_forgotten() {
    with_fixture(34, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        let mut burst = Vec::new();
        for i in 0..200_000u32 {
            T::Stat { fid: 0 }.encode((i % 50_000) as u16, &mut burst);
        }
        // The server stops reading before it has received all of them.
        let taken = h.reactor.within(60 * S, c.send_raw(&burst)).await;
        assert!(taken.is_none(), "the server read all requests");
        assert_eq!(h.server.clients().len(), 1);
        drop(c);
        h.reactor.sleep(S).await;
        assert_eq!(h.server.clients().len(), 0);
    });
}

#[test]
fn a_client_may_have_more_than_65536_fids() {
    with_fixture(33, |h| async move {
        let c = h.user("ann", Flavour::Linux).await;
        for first in (1..70_000).step_by(100) {
            let mut tags = Vec::new();
            for newfid in first..first + 100 {
                let names = wire::ninep::Names::new(&[]).unwrap();
                tags.push(c.post(&T::Walk { fid: 0, newfid, names }, &[]).await);
            }
            for tag in tags {
                assert_eq!(c.reply(tag).await.error(), None, "fids from {first}");
            }
        }
    });
}
