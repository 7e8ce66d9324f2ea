//! Removal of files while clients have them open.

use fileserver::files::Served;
use fileserver::ninep::Flavour;
use wire::ninep::{Stat, mode, open};

use super::client::{Fixture, with_fixture};

/// A file that loses its name while it is open is read, written and cut, and closed.
async fn removed_while_open(h: &Fixture) {
    let (c, d) = (h.user("ann", Flavour::Linux).await, h.user("ann", Flavour::Linux).await);
    c.make(1, "f", 0o644, open::RDWR).await;
    c.write(1, 0, b"first").await.unwrap();
    d.walk(0, 2, &["f"]).await.unwrap();
    d.remove(2).await.unwrap();
    assert_eq!(d.clunk(2).await, Err("fid unknown or out of range".into()));
    assert_eq!(c.walk(0, 2, &["f"]).await, Err("file not found".into()));
    for n in 0..160 {
        assert_eq!(c.write(1, n * 65_536, &[n as u8; 65_536]).await, Ok(65_536));
    }
    for n in 0..160 {
        let read = c.read(1, n * 65_536, 65_536).await.unwrap();
        assert!(read == [n as u8; 65_536], "piece {n}");
    }
    assert_eq!(c.facts(1).await.1, 160 * 65_536);
    assert!(h.used().await > 500, "it takes room");
    c.wstat(1, Stat { length: 3 * 65_536, ..Stat::KEEP }).await.unwrap();
    assert_eq!(c.facts(1).await.1, 3 * 65_536);
    assert_eq!(c.read(1, 2 * 65_536, 4).await.unwrap(), [2; 4]);
    // The name is free for another file meanwhile.
    c.make(4, "f", 0o644, open::RDWR).await;
    c.write(4, 0, b"second").await.unwrap();
    assert_eq!(c.read(1, 0, 3).await.unwrap(), [0; 3]);
    c.clunk(1).await.unwrap();
    assert_eq!(c.read(4, 0, 100).await.unwrap(), b"second");
    c.remove(4).await.unwrap();
    h.reactor.sleep(1_000_000_000).await;
}

/// P3, K1.
#[test]
fn exposing_2_removed_file_is_usable_until_its_last_clunk() {
    with_fixture(11, |h| async move {
        let before = h.used().await;
        removed_while_open(&h).await;
        let after = h.used().await;
        // An image reuses the addresses of removed blocks for new ones.
        assert!(after == before || matches!(h.fs, Served::Image(_)), "{after}, {before} before");
        removed_while_open(&h).await;
        assert_eq!(h.used().await, after, "nothing of it is left");
    });
}

#[test]
fn exposing_a_failed_remove_clunks_its_fid() {
    with_fixture(12, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        c.make(1, "d", mode::DIR | 0o775, 0).await;
        c.walk(0, 2, &["d"]).await.unwrap();
        c.create(2, "in", 0o600, 0).await.unwrap();
        c.walk(0, 3, &["d"]).await.unwrap();
        assert_eq!(c.remove(3).await, Err("directory is not empty".into()));
        assert_eq!(c.remove(3).await, Err("unknown fid".into()));
        assert!(c.remove(0).await.is_err(), "the root");
        assert_eq!(c.facts(2).await.0, "in");
    });
}

#[test]
fn exposing_g_dotdot_of_a_removed_directory_is_its_former_parent() {
    with_fixture(13, |h| async move {
        let c = h.user("ann", Flavour::Linux).await;
        c.make(1, "a", mode::DIR | 0o775, 0).await;
        c.walk(0, 2, &["a"]).await.unwrap();
        c.create(2, "b", mode::DIR | 0o775, 0).await.unwrap();
        c.walk(0, 3, &["a", "b"]).await.unwrap();
        c.open(3, 0).await.unwrap();
        c.walk(0, 4, &["a", "b"]).await.unwrap();
        c.remove(4).await.unwrap();
        assert_eq!(c.walk(3, 5, &[".."]).await.unwrap().len(), 1);
        assert_eq!(c.facts(5).await.0, "a");
        assert_eq!(c.read(3, 0, 1000).await, Ok(vec![]));
        c.walk(0, 6, &["a"]).await.unwrap();
        c.remove(6).await.unwrap();
        assert_eq!(c.walk(3, 7, &["..", ".."]).await.unwrap().len(), 2);
        assert_eq!(c.facts(7).await.0, "/");
        c.walk(3, 8, &[]).await.unwrap();
        assert!(c.create(8, "x", 0o644, 0).await.is_err(), "nothing is made where nothing is");
    });
}

/// X1, X2.
#[test]
fn exposing_f_exclusive_file_has_one_user_at_a_time_across_dumps() {
    with_fixture(14, |h| async move {
        let (c, d) = (h.user("ann", Flavour::Plan9).await, h.user("bob", Flavour::Plan9).await);
        c.make(1, "mbox", mode::EXCL | 0o666, open::RDWR).await;
        c.write(1, 0, b"hello").await.unwrap();
        d.walk(0, 1, &["mbox"]).await.unwrap();
        let locked = async || d.open(1, open::READ).await.unwrap_err().contains("locked");
        assert!(locked().await);
        // A dump that takes ten minutes, and another one beside it.
        h.cache.hangs.set(true);
        for pause in [600_000_000_000, 100_000_000_000] {
            let (fixture, cache, r) = (h.clone(), h.cache.clone(), h.reactor.clone());
            h.reactor.spawn("dump", async move {
                fixture.server.dump(&fixture.fs, 20_261_121).await.unwrap();
            });
            h.reactor.spawn("hand", async move {
                r.sleep(pause).await;
                cache.hangs.set(pause < 200_000_000_000);
            });
        }
        while h.fs.dumps().len() < 2 {
            h.reactor.sleep(1_000_000_000).await;
        }
        assert!(h.reactor.now() > 600_000_000_000);
        // It does not count as disuse, neither does the time before nor that after it alone.
        assert!(locked().await);
        h.reactor.sleep(290_000_000_000).await;
        assert!(locked().await);
        c.write(1, 0, b"hello").await.unwrap();
        h.reactor.sleep(299_000_000_000).await;
        assert!(locked().await);
        h.reactor.sleep(2_000_000_000).await;
        d.open(1, open::READ).await.unwrap();
        assert_eq!(c.write(1, 0, b"late").await, Err("lock is broken".into()));
        c.clunk(1).await.unwrap();
        assert_eq!(d.read(1, 0, 10).await.unwrap(), b"hello");
        d.clunk(1).await.unwrap();
        c.walk(0, 1, &["mbox"]).await.unwrap();
        c.open(1, open::WRITE).await.unwrap();
    });
}
