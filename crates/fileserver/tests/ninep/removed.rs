//! Files that are removed while somebody has them open.

use fileserver::ninep::Flavour;
use wire::ninep::{Stat, mode, open};

use super::client::in_a_house;

#[test]
fn exposing_2_a_removed_file_lives_as_long_as_it_is_open() {
    in_a_house(11, |h| async move {
        let c = h.user("ann", Flavour::Linux).await;
        c.make(1, "f", 0o644, open::RDWR).await;
        c.write(1, 0, b"first").await.unwrap();
        c.walk(0, 2, &["f"]).await.unwrap();
        c.remove(2).await.unwrap();
        assert_eq!(c.clunk(2).await, Err("fid unknown or out of range".into()));
        assert_eq!(c.walk(0, 2, &["f"]).await, Err("file not found".into()));
        for n in 0..160 {
            assert_eq!(c.write(1, n * 65_536, &[n as u8; 65_536]).await, Ok(65_536));
        }
        assert_eq!(c.read(1, 100 * 65_536, 10).await.unwrap(), [100; 10]);
        let cut = Stat { length: 3 * 65_536, ..Stat::KEEP };
        c.wstat(1, cut).await.unwrap();
        assert_eq!(c.facts(1).await.1, 3 * 65_536);
        assert_eq!(c.read(1, 2 * 65_536, 4).await.unwrap(), [2; 4]);
        // The name is free for another file meanwhile.
        c.make(3, "f", 0o644, open::RDWR).await;
        c.write(3, 0, b"second").await.unwrap();
        assert_eq!(c.read(1, 0, 3).await.unwrap(), [0; 3]);
        c.clunk(1).await.unwrap();
        assert_eq!(c.read(3, 0, 100).await.unwrap(), b"second");
    });
}

#[test]
fn exposing_a_a_remove_clunks_its_fid_even_when_it_fails() {
    in_a_house(12, |h| async move {
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
fn exposing_g_upwards_out_of_a_removed_directory() {
    in_a_house(13, |h| async move {
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

#[test]
fn exposing_f_an_exclusive_file_has_one_user_at_a_time_whatever_is_dumped() {
    in_a_house(14, |h| async move {
        let (c, d) = (h.user("ann", Flavour::Plan9).await, h.user("bob", Flavour::Plan9).await);
        c.make(1, "mbox", mode::EXCL | 0o666, open::RDWR).await;
        d.walk(0, 1, &["mbox"]).await.unwrap();
        assert!(d.open(1, open::READ).await.unwrap_err().contains("locked"));
        // A dump of any length does not count as disuse.
        h.fs.dump(20_261_121).await.unwrap();
        h.reactor.sleep(299_000_000_000).await;
        assert!(d.open(1, open::READ).await.unwrap_err().contains("locked"));
        c.write(1, 0, b"hello").await.unwrap();
        h.reactor.sleep(299_000_000_000).await;
        assert!(d.open(1, open::READ).await.is_err());
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
