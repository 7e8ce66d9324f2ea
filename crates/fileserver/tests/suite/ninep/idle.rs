//! Idle connections: they hold no memory, and are closed.

use fileserver::ninep::Flavour;
use testkit::clock::S;
use wire::ninep::open;

use super::client::with_fixture;
use super::plant::Plant;

const MIB: usize = 1 << 20;

#[test]
fn silent_connections_hold_no_memory_and_are_closed() {
    with_fixture(41, |h| async move {
        let a = h.user("ann", Flavour::Linux).await;
        a.make(1, "f", 0o644, open::RDWR).await;
        let before = h.pool.usage().used_bytes;
        let mut idle = Vec::new();
        for _ in 0..1100 {
            idle.push(h.stranger(Flavour::Linux).await);
        }
        h.reactor.sleep(S).await;
        let held = h.pool.usage().used_bytes - before;
        assert!(held < MIB, "{held} bytes for {} connections", idle.len());
        for i in 0..16 {
            assert_eq!(a.write(1, i << 16, &[i as u8; 1 << 16]).await, Ok(1 << 16));
        }
        assert_eq!(h.server.clients().len(), 1101);
        h.reactor.sleep(31 * S).await;
        assert_eq!(h.server.clients().len(), 1, "those who did not attach are gone");
        assert_eq!(idle[0].receive().await, None);
        assert!(a.stat(1).await.error().is_none(), "who is attached stays");
    });
}

#[test]
fn connection_without_attach_after_tversion_is_closed() {
    with_fixture(42, |h| async move {
        let (c, d) = (h.client(Flavour::Plan9).await, h.client(Flavour::Plan9).await);
        h.reactor.sleep(25 * S).await;
        d.attach(0, "ann", "").await.unwrap();
        d.clunk(0).await.unwrap();
        h.reactor.sleep(10 * S).await;
        assert_eq!(c.receive().await, None);
        d.attach(0, "ann", "").await.unwrap();
    });
}

#[test]
fn a_large_message_before_the_attach_ends_the_connection() {
    with_fixture(43, |h| async move {
        let c = h.client(Flavour::Plan9).await;
        // The head of a Twrite of 60,000 bytes, which would be held until they have arrived.
        c.send_raw(&[&60_000u32.to_le_bytes()[..], &[118, 1, 0]].concat()).await;
        assert_eq!(c.receive().await, None);
    });
}

#[test]
fn idle_clients_hold_at_most_three_pages_after_writing() {
    with_fixture(44, |h| async move {
        let mut all = Vec::new();
        for i in 0..40 {
            let c = h.user("ann", Flavour::Linux).await;
            c.make(1, &format!("f{i}"), 0o644, open::RDWR).await;
            assert_eq!(c.write(1, 0, &[7; 1 << 15]).await, Ok(1 << 15));
            all.push(c);
        }
        h.fs.sync().await.unwrap();
        h.reactor.sleep(3 * S).await;
        let many = h.pool.usage().used_bytes;
        let ends = all.len();
        drop(all);
        h.reactor.sleep(3 * S).await;
        let held = many.saturating_sub(h.pool.usage().used_bytes);
        assert!(held <= ends * 3 * 4096, "{held} bytes for {ends} clients");
    });
}

#[test]
fn connections_of_one_peer_are_limited() {
    let mut plant = Plant::new(45, false);
    assert_eq!(plant.crowd(300), 256);
    // They did not attach.
    plant.wait(31);
    assert_eq!(plant.visit("none"), Ok(()));
}
