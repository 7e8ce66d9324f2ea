//! Work for one connection between two turns of the others: bounded, by count.

use fileserver::ninep::Flavour;
use wire::ninep::{Names, T};

use super::client::with_fixture;
use crate::sim::turns::Watch;

/// Requests that a client sends at once, and most of them that are answered in one turn.
const BURST: u16 = 120;
/// See [`BURST`].
const MOST: u64 = 32;
/// Fids of a client, and most of them that are clunked in one turn.
const FIDS: u32 = 1000;
/// See [`FIDS`].
const MOST_CLUNKED: u64 = 256;

#[test]
fn burst_of_requests_is_answered_a_part_at_a_time() {
    with_fixture(35, |h| async move {
        let c = h.user("ann", Flavour::Linux).await;
        let mut burst = Vec::new();
        for tag in 0..BURST {
            T::Stat { fid: 0 }.encode(tag, &mut burst);
        }
        let server = h.server.clone();
        let requests = move || server.clients().first().map_or(0, |client| client.requests);
        let before = requests();
        let watch = Watch::new(&h.reactor, requests.clone());
        c.send_raw(&burst).await;
        for tag in 0..BURST {
            assert_eq!(c.reply(tag).await.error(), None, "request {tag}");
        }
        assert_eq!(requests() - before, u64::from(BURST));
        let most = watch.most();
        assert!((1..=MOST).contains(&most), "{most} requests in one turn");
    });
}

#[test]
fn fids_of_a_session_that_ends_are_clunked_a_part_at_a_time() {
    with_fixture(36, |h| async move {
        let c = h.user("ann", Flavour::Linux).await;
        for newfid in 1..FIDS {
            let names = Names::new(&[]).expect("few names");
            assert_eq!(c.rpc(T::Walk { fid: 0, newfid, names }).await.error(), None);
        }
        let server = h.server.clone();
        let fids = move || server.clients().first().map_or(0, |client| client.fids as u64);
        assert_eq!(fids(), u64::from(FIDS));
        let left = fids.clone();
        let watch = Watch::new(&h.reactor, move || u64::MAX - left());
        c.version(65_560).await;
        assert_eq!(fids(), 0);
        let most = watch.most();
        assert!((1..=MOST_CLUNKED).contains(&most), "{most} fids in one turn");
    });
}
