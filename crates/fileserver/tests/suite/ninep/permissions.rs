//! Permissions: Plan 9's rules, and Twstat's.

use fileserver::ninep::Flavour;
use wire::ninep::{Names, Qid, R, Stat, T, mode, open};

use super::client::{Client, with_fixture};

#[test]
fn exposing_c_e_permission_bits_add_up_and_truncation_needs_write() {
    with_fixture(21, |h| async move {
        let (ann, bob) = (h.user("ann", Flavour::Plan9).await, h.user("bob", Flavour::Plan9).await);
        // The root belongs to ann and to lab, of which both are members.
        ann.make(1, "f", 0o060, open::RDWR).await;
        ann.write(1, 0, b"abc").await.unwrap();
        // An owner without bits of her own has those of the group.
        ann.walk(0, 2, &["f"]).await.unwrap();
        ann.open(2, open::READ).await.unwrap();
        bob.walk(0, 2, &["f"]).await.unwrap();
        bob.open(2, open::RDWR).await.unwrap();
        let none = h.user("none", Flavour::Plan9).await;
        none.walk(0, 2, &["f"]).await.unwrap();
        assert_eq!(none.open(2, open::READ).await, Err("permission denied".into()));
        // To read and to cut needs both.
        ann.make(3, "ro", 0o444, open::WRITE).await;
        bob.walk(0, 3, &["ro"]).await.unwrap();
        let cut = bob.open(3, open::READ | open::TRUNC).await;
        assert_eq!(cut, Err("permission denied".into()));
        bob.open(3, open::READ).await.unwrap();
        assert!(bob.write(3, 0, b"x").await.is_err());
        assert!(ann.read(3, 0, 1).await.is_err(), "open to write only");
        // The creator may write with any perm.
        assert_eq!(ann.write(3, 0, b"x").await, Ok(1));
        // Directories are opened to read.
        for how in [open::WRITE, open::RDWR, open::EXEC, open::TRUNC] {
            bob.walk(0, 9, &[]).await.unwrap();
            assert!(bob.open(9, how).await.is_err());
            bob.clunk(9).await.unwrap();
        }
    });
}

#[test]
fn exposing_d_append_only_file_ignores_offset_and_truncation() {
    with_fixture(22, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        c.make(1, "log", mode::APPEND | 0o644, open::RDWR).await;
        c.write(1, 0, b"one").await.unwrap();
        c.write(1, 0, b"two").await.unwrap();
        c.walk(0, 2, &["log"]).await.unwrap();
        c.open(2, open::WRITE | open::TRUNC).await.unwrap();
        c.write(2, 77, b"three").await.unwrap();
        assert_eq!(c.read(1, 0, 100).await.unwrap(), b"onetwothree");
        c.wstat(2, Stat { length: 3, ..Stat::KEEP }).await.unwrap();
        assert_eq!(c.read(1, 0, 100).await.unwrap(), b"one");
    });
}

#[test]
fn console_permission_for_one_user_applies_to_no_other() {
    with_fixture(26, |h| async move {
        let (ann, bob) = (h.user("ann", Flavour::Plan9).await, h.user("bob", Flavour::Plan9).await);
        ann.make(1, "f", 0o600, open::RDWR).await;
        for (of, clerk, fid) in [(None, &bob, 5), (Some(2), &ann, 6)] {
            h.server.allow_one.set(of);
            let owns = Stat { uid: "bob", ..Stat::KEEP };
            clerk.walk(0, fid, &["f"]).await.unwrap();
            assert!(clerk.wstat(fid, owns).await.is_err(), "nobody gives files away");
        }
        bob.open(5, open::RDWR).await.unwrap();
        bob.wstat(5, Stat { uid: "bob", ..Stat::KEEP }).await.unwrap();
        let none = h.user("none", Flavour::Plan9).await;
        none.walk(0, 2, &["f"]).await.unwrap();
        assert!(none.open(2, open::READ).await.is_err());
    });
}

#[test]
fn perm_of_a_new_file_is_bounded_by_the_directory() {
    with_fixture(23, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        c.make(1, "d", mode::DIR | 0o750, 0).await;
        c.walk(0, 2, &["d"]).await.unwrap();
        c.create(2, "f", 0o777, 0).await.unwrap();
        let a = c.stat(2).await;
        let R::Stat { stat } = a.r() else { panic!() };
        // perm & (~0666 | dir & 0666)
        assert_eq!((stat.mode, stat.gid, stat.uid), (0o751, "lab", "ann"));
        c.walk(0, 3, &["d"]).await.unwrap();
        c.create(3, "sub", mode::DIR | 0o777, 0).await.unwrap();
        let a = c.stat(3).await;
        let R::Stat { stat } = a.r() else { panic!() };
        assert_eq!(stat.mode, mode::DIR | 0o750);
        for perm in [mode::AUTH, 0x0200_0000, 0x1000_0000, 0o1000] {
            c.walk(0, 4, &["d"]).await.unwrap();
            assert!(c.create(4, "x", perm | 0o644, 0).await.is_err(), "{perm:x}");
            c.clunk(4).await.unwrap();
        }
        let before = c.facts(0).await.2;
        assert_eq!(c.make(5, "more", 0o644, 0).await, ());
        assert_ne!(c.facts(0).await.2, before, "the directory's version moved");
    });
}

#[test]
fn exposing_11_wstat_changes_all_fields_or_none() {
    with_fixture(24, |h| async move {
        let (ann, bob) = (h.user("ann", Flavour::Plan9).await, h.user("bob", Flavour::Plan9).await);
        ann.make(1, "there", 0o644, 0).await;
        ann.make(2, "f", 0o664, open::RDWR).await;
        ann.write(2, 0, b"hello").await.unwrap();
        bob.walk(0, 2, &["f"]).await.unwrap();
        let good: [fn(&mut Stat<'static>); 6] = [
            |s| s.mode = 0o600,
            |s| s.mtime = 5,
            |s| s.length = 2,
            |s| s.name = "g",
            |s| s.gid = "ann",
            |s| s.atime = 9,
        ];
        let bad: [fn(&mut Stat<'static>); 9] = [
            |s| s.name = "there",
            |s| s.name = "a/b",
            |s| s.uid = "bob",
            |s| s.gid = "nobody",
            |s| s.mode = mode::DIR | 0o700,
            |s| s.mode = 0o1000,
            |s| s.muid = "none",
            |s| s.qid = Qid { path: 999, ..Stat::KEEP.qid },
            |s| s.length = 1 << 63,
        ];
        for chosen in 0..1 << good.len() {
            for spoil in bad {
                let mut stat = Stat::KEEP;
                for (i, f) in good.iter().enumerate() {
                    if chosen >> i & 1 == 1 {
                        f(&mut stat);
                    }
                }
                spoil(&mut stat);
                let before = ann.stat(2).await.0[7..].to_vec();
                assert!(ann.wstat(2, stat).await.is_err(), "{stat:?}");
                assert!(ann.stat(2).await.0[7..] == before, "{stat:?}");
            }
            // bob is in the group and neither owns nor leads: bob may truncate, no more.
            let mut stat = Stat::KEEP;
            good.iter()
                .enumerate()
                .filter(|(i, _)| chosen >> i & 1 == 1 && *i < 3)
                .for_each(|(_, f)| f(&mut stat));
            let may = chosen & 3 == 0;
            assert_eq!(bob.wstat(2, stat).await.is_ok(), may, "{stat:?}");
        }
        assert_eq!(ann.facts(2).await.1, 2);
        let mut all = Stat::KEEP;
        good.iter().for_each(|f| f(&mut all));
        ann.wstat(2, all).await.unwrap();
        let a = ann.stat(2).await;
        let R::Stat { stat } = a.r() else { panic!() };
        assert_eq!((stat.mode, stat.mtime, stat.length, stat.name), (0o600, 5, 2, "g"));
        assert_eq!(stat.gid, "ann");
        assert_ne!(stat.atime, 9, "atime is not for anybody to set");
    });
}

#[test]
fn linux_flavour_has_the_semantics_that_linux_requires() {
    with_fixture(25, |h| async move {
        let c = h.user("ann", Flavour::Linux).await;
        c.make(1, "old", 0o644, open::RDWR).await;
        c.write(1, 0, b"old").await.unwrap();
        c.make(2, "new", 0o644, open::RDWR).await;
        c.write(2, 0, b"new").await.unwrap();
        // A rename replaces, and records the requesting user as muid.
        c.wstat(2, Stat { name: "old", muid: "ann", ..Stat::KEEP }).await.unwrap();
        c.walk(0, 3, &["old"]).await.unwrap();
        c.open(3, open::READ).await.unwrap();
        assert_eq!(c.read(3, 0, 10).await.unwrap(), b"new");
        assert_eq!(c.read(1, 0, 10).await.unwrap(), b"old", "open, and without a name");
        assert_eq!(c.walk(0, 4, &["new"]).await, Err("file not found".into()));
        // utimes, chown without effect, walking from an open fid.
        c.wstat(2, Stat { atime: 7, mtime: 8, ..Stat::KEEP }).await.unwrap();
        c.wstat(2, Stat::KEEP).await.unwrap();
        assert_eq!(c.walk(3, 4, &[]).await, Ok(vec![]));
        // The same by the manual.
        let s = h.user("ann", Flavour::Plan9).await;
        s.make(1, "third", 0o644, 0).await;
        let taken = s.wstat(1, Stat { name: "old", ..Stat::KEEP }).await;
        assert_eq!(taken, Err("file already exists".into()));
        assert_eq!(s.walk(1, 4, &[]).await, Err("bad use of fid".into()));
    });
}

#[test]
fn ftruncate_is_permitted_by_the_open_mode_of_the_fid() {
    with_fixture(26, |h| async move {
        let c = h.user("ann", Flavour::Linux).await;
        c.make(1, "ro", 0o444, open::RDWR).await;
        c.write(1, 0, b"hello").await.unwrap();
        c.wstat(1, Stat { length: 2, ..Stat::KEEP }).await.unwrap();
        assert_eq!(c.read(1, 0, 10).await.unwrap(), b"he");
        // A fid that is not open, or open to read, is judged by the mode.
        c.walk(0, 2, &["ro"]).await.unwrap();
        let cut = Stat { length: 1, ..Stat::KEEP };
        assert_eq!(c.wstat(2, cut).await, Err("permission denied".into()));
        c.open(2, open::READ).await.unwrap();
        assert_eq!(c.wstat(2, cut).await, Err("permission denied".into()));
        // By Plan 9's manual (stat(5)) it is the mode that counts.
        let s = h.user("ann", Flavour::Plan9).await;
        s.make(1, "ro9", 0o444, open::RDWR).await;
        s.write(1, 0, b"hello").await.unwrap();
        assert_eq!(s.wstat(1, cut).await, Err("permission denied".into()));
    });
}

/// Refusal of a message with a byte in the place of `?` that is not UTF-8.
async fn refusal(c: &Client, t: T<'_>) -> Option<String> {
    let (mut out, tag) = (Vec::new(), c.tag());
    t.encode(tag, &mut out);
    let at = out.iter().rposition(|b| *b == b'?').unwrap();
    out[at] = 0xe9;
    c.send_raw(&out).await;
    c.reply(tag).await.error()
}

#[test]
fn names_that_are_not_utf8_are_refused_without_a_protocol_error() {
    with_fixture(27, |h| async move {
        for (flavour, wanted) in [
            (Flavour::Linux, "Invalid argument"),
            (Flavour::Plan9, "illegal name: it is not UTF-8"),
        ] {
            let c = h.user("ann", flavour).await;
            assert_eq!(c.walk(0, 1, &[]).await, Ok(vec![]));
            let create = T::Create { fid: 1, name: "caf?", perm: 0o644, mode: 0 };
            assert_eq!(refusal(&c, create).await.as_deref(), Some(wanted), "create");
            let stat = Stat { name: "caf?", ..Stat::KEEP };
            let rename = T::Wstat { fid: 1, stat };
            assert_eq!(refusal(&c, rename).await.as_deref(), Some(wanted), "rename");
            let names = Names::new(&["caf?"]).unwrap();
            let walk = T::Walk { fid: 0, newfid: 2, names };
            assert!(refusal(&c, walk).await.unwrap().contains("not"), "no such file");
            assert!(c.stat(0).await.error().is_none(), "the connection stays");
        }
    });
}
