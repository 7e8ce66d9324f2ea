//! Versions, tags, fids, walks, flushes, malformed messages.

use fileserver::files::Served;
use fileserver::ninep::trace::{TraceFilter, Traced};
use fileserver::ninep::{Flavour, MSIZE_MAX};
use wire::ninep::{NOTAG, Names, R, T, mode, open};

use super::client::{Client, OwnedReply, with_fixture};

/// P1.
#[test]
fn exposing_1_failed_walk_leaves_fid_and_newfid_unchanged() {
    with_fixture(1, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        c.make(1, "a", mode::DIR | 0o777, 0).await;
        c.clunk(1).await.unwrap();
        assert_eq!(c.walk(0, 1, &["a"]).await.unwrap().len(), 1);
        c.create(1, "b", mode::DIR | 0o777, 0).await.unwrap();
        c.clunk(1).await.unwrap();
        // Another newfid: it is not made.
        assert_eq!(c.walk(0, 5, &["a", "b", "missing"]).await.unwrap().len(), 2);
        assert_eq!(c.clunk(5).await, Err("unknown fid".into()));
        // newfid is fid: it stays where it was.
        assert_eq!(c.walk(0, 6, &[]).await, Ok(vec![]));
        assert_eq!(c.walk(6, 6, &["a", "missing"]).await.unwrap().len(), 1);
        assert_eq!(c.facts(6).await.0, "/");
        assert_eq!(c.walk(6, 6, &["missing"]).await, Err("file does not exist".into()));
        assert_eq!(c.walk(6, 6, &["a", "b"]).await.unwrap().len(), 2);
        assert_eq!(c.facts(6).await.0, "b");
        // Up and up again, beyond the root.
        assert_eq!(c.walk(6, 6, &["..", "..", "..", ".."]).await.unwrap().len(), 4);
        assert_eq!(c.facts(6).await.0, "/");
        assert_eq!(c.walk(0, 6, &[]).await, Err("fid already in use".into()));
        assert!(c.walk(0, 7, &["a", "."]).await.unwrap().len() == 1);
    });
}

#[test]
fn exposing_b_second_tversion_resets_the_session() {
    with_fixture(2, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        c.make(1, "goes", 0o644, open::RDWR | open::RCLOSE).await;
        assert_eq!(c.version(8192).await, 8192);
        assert_eq!(c.clunk(0).await, Err("unknown fid".into()));
        c.attach(0, "ann", "").await.unwrap();
        assert!(c.walk(0, 1, &["goes"]).await.is_err(), "removed when its fid was clunked");
        // Nothing without a version; no version below 256; ours at most.
        let s = h.stranger(Flavour::Plan9).await;
        assert_eq!(s.clunk(0).await, Err("Tversion not seen".into()));
        assert!(s.rpc(T::Version { msize: 255, version: "9P2000" }).await.error().is_some());
        assert_eq!(s.version(256).await, 256);
        assert_eq!(s.version(u32::MAX).await, MSIZE_MAX);
        for (requested, answered) in
            [("9P2000.L", "9P2000"), ("9P2000.x", "9P2000"), ("9P2001", "unknown")]
        {
            let a = s.rpc(T::Version { msize: 8192, version: requested }).await;
            assert_eq!(a.r(), R::Version { msize: 8192, version: answered });
        }
        assert_eq!(s.clunk(0).await, Err("Tversion not seen".into()), "after an unknown one");
    });
}

/// The next message, with its tag.
async fn next(c: &Client) -> (u16, OwnedReply) {
    let message = c.receive().await.expect("a message");
    (u16::from_le_bytes([message[5], message[6]]), OwnedReply(message))
}

/// P2.
#[test]
fn exposing_13_rflush_follows_or_replaces_the_flushed_reply() {
    with_fixture(3, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        c.make(1, "f", 0o644, open::RDWR).await;
        c.write(1, 0, &[7; 20_000]).await.unwrap();
        // Everything of it out of memory.
        c.make(2, "large", 0o644, open::RDWR).await;
        for n in 0..150 {
            c.write(2, n * 65_536, &[n as u8; 65_536]).await.unwrap();
        }
        h.fs.sync().await.unwrap();
        h.cache.hangs.set(true);
        let read = c.post(&T::Read { fid: 1, offset: 0, count: 20_000 }, &[]).await;
        h.reactor.sleep(3_000_000_000).await;
        // There is no reply to it ever, and its tag is free for another request.
        let flush = c.post(&T::Flush { oldtag: read }, &[]).await;
        let (tag, a) = next(&c).await;
        assert_eq!((tag, a.r()), (flush, R::Flush), "the read hangs");
        c.post_as(read, &T::Walk { fid: 0, newfid: 7, names: Names::new(&[]).unwrap() }, &[]).await;
        let (tag, a) = next(&c).await;
        assert_eq!((tag, a.r()), (read, R::Walk { qids: vec![] }));
        c.post_as(read, &T::Read { fid: 1, offset: 0, count: 20_000 }, &[]).await;
        h.cache.hangs.set(false);
        let (tag, a) = next(&c).await;
        assert!(tag == read && matches!(a.r(), R::Read { data } if data == [7; 20_000]));
        h.reactor.sleep(3_000_000_000).await;
        let tag = c.post(&T::Stat { fid: 1 }, &[]).await;
        assert_eq!(next(&c).await.0, tag, "no stray reply");
        // An operation that has an effect is answered before its flush: the file exists.
        let create = T::Create { fid: 7, name: "new", perm: 0o644, mode: open::RDWR };
        let (mut both, tags) = (Vec::new(), [c.tag(), c.tag()]);
        create.encode(tags[0], &mut both);
        T::Flush { oldtag: tags[0] }.encode(tags[1], &mut both);
        c.send_raw(&both).await;
        let (first, second) = (next(&c).await, next(&c).await);
        assert_eq!([first.0, second.0], tags);
        assert!(matches!(first.1.r(), R::Create { .. }) && second.1.r() == R::Flush);
        assert_eq!(c.walk(0, 8, &["new"]).await.unwrap().len(), 1);
        // A sync waits for the disk; the flushes of it wait with it, in their order.
        h.cache.hangs.set(true);
        c.write(1, 5, b"x").await.unwrap();
        let sync = c.post(&T::Wstat { fid: 1, stat: wire::ninep::Stat::KEEP }, &[]).await;
        let flush = c.post(&T::Flush { oldtag: sync }, &[]).await;
        let again = c.post(&T::Flush { oldtag: sync }, &[]).await;
        let of_flush = c.rpc(T::Flush { oldtag: flush }).await;
        assert_eq!(of_flush.r(), R::Flush);
        let unknown = c.rpc(T::Flush { oldtag: 999 }).await;
        assert_eq!(unknown.r(), R::Flush);
        h.cache.hangs.set(false);
        for tag in [sync, flush, again] {
            assert_eq!(next(&c).await.0, tag, "in this order");
        }
    });
}

#[test]
fn duplicate_tag_is_refused_and_bad_size_ends_the_connection() {
    with_fixture(4, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        c.make(1, "f", 0o644, open::RDWR).await;
        c.write(1, 0, b"x").await.unwrap();
        h.cache.hangs.set(true);
        let mut twice = Vec::new();
        T::Wstat { fid: 1, stat: wire::ninep::Stat::KEEP }.encode(77, &mut twice);
        T::Stat { fid: 1 }.encode(77, &mut twice);
        c.send_raw(&twice).await;
        let first = c.receive().await.unwrap();
        assert!(matches!(R::decode(&first), Ok(R::Error { ename: "duplicate tag" })));
        h.cache.hangs.set(false);
        assert!(matches!(R::decode(&c.receive().await.unwrap()), Ok(R::Wstat)));
        // Messages that do not read are answered, and the connection continues.
        for kind in (0..=255).filter(|k| !(100..=127).contains(k)) {
            c.send_raw(&[7, 0, 0, 0, kind, 9, 0]).await;
            let a = c.receive().await.unwrap();
            assert!(matches!(R::decode(&a), Ok(R::Error { .. })), "type {kind}");
        }
        let mut long = Vec::new();
        T::Clunk { fid: 1 }.encode(5, &mut long);
        long[0] += 1;
        long.push(0);
        c.send_raw(&long).await;
        let a = c.receive().await.unwrap();
        assert!(matches!(R::decode(&a), Ok(R::Error { .. })));
        assert_eq!(c.clunk(1).await, Ok(()), "it was not clunked by half");
        for size in [0_u32, 6, 65_561, 1 << 31, u32::MAX] {
            let s = h.client(Flavour::Plan9).await;
            let mut bad = size.to_le_bytes().to_vec();
            bad.extend([100, 0xff, 0xff]);
            s.send_raw(&bad).await;
            assert_eq!(s.receive().await, None, "size {size}");
        }
        assert_eq!(NOTAG, 0xffff);
    });
}

#[test]
fn exposing_h_i_iounit_limits_both_directions_and_the_root_is_slash() {
    with_fixture(5, |h| async move {
        let c = h.stranger(Flavour::Plan9).await;
        assert_eq!(c.version(1000).await, 1000);
        c.attach(0, "ann", "").await.unwrap();
        c.walk(0, 1, &[]).await.unwrap();
        let t = T::Create { fid: 1, name: "f", perm: 0o600, mode: open::RDWR };
        let a = c.rpc(t).await;
        assert!(matches!(a.r(), R::Create { iounit: 976, .. }), "{:?}", a.r());
        assert_eq!(c.write(1, 0, &[1; 976]).await, Ok(976));
        // A longer count is answered by what fits.
        assert_eq!(c.write(1, 976, &[2; 976]).await, Ok(976));
        assert_eq!(c.read(1, 0, 5000).await.unwrap().len(), 976);
        assert_eq!(c.read(1, 1900, 976).await.unwrap(), [2; 52]);
        assert_eq!(c.read(1, 1952, 976).await, Ok(vec![]));
        assert_eq!(c.facts(0).await.0, "/");
        assert!(c.read(1, 1 << 63, 10).await.is_err());
        // Names longer than any, and none.
        c.walk(0, 2, &[]).await.unwrap();
        for name in ["", ".", "..", "a/b", "ctl\u{1}", &"x".repeat(256)] {
            assert!(c.create(2, name, 0o644, 0).await.is_err(), "{name:?}");
        }
        let longest = if matches!(h.fs, Served::Image(_)) { 143 } else { 255 };
        assert!(c.create(2, &"x".repeat(longest + 1), 0o644, 0).await.is_err());
        assert_eq!(c.create(2, &"y".repeat(longest), 0o644, 0).await, Ok(()));
        assert_eq!(c.facts(2).await.0.len(), longest);
    });
}

#[test]
fn failed_requests_create_no_fid_and_unknown_users_cannot_attach() {
    with_fixture(6, |h| async move {
        let c = h.client(Flavour::Plan9).await;
        assert_eq!(
            c.attach(0, "mallory", "").await,
            Err("unknown user or failed authentication".into())
        );
        assert!(c.attach(0, "adm", "").await.is_err(), "a group");
        assert_eq!(c.attach(0, "ann", "other").await, Err("bad attach specifier".into()));
        assert_eq!(c.attach(0, "none", "dump").await, Err("permission denied".into()));
        c.attach(0, "none", "").await.unwrap();
        assert_eq!(c.attach(0, "ann", "").await, Err("fid already in use".into()));
        let auth = T::Auth { afid: 3, uname: "ann", aname: "" };
        assert_eq!(c.rpc(auth).await.error().as_deref(), Some("authentication not required"));
        h.server.noattach.set(true);
        assert_eq!(c.attach(1, "ann", "").await, Err("system maintenance".into()));
        assert!(c.attach(1, "none", "").await.is_ok());
        assert_eq!(h.server.clients()[0].users, ["none"]);
        // While the tree is repaired not even none.
        h.server.noattach.set(false);
        h.server.under_repair.set(true);
        for user in ["ann", "none"] {
            assert_eq!(c.attach(2, user, "").await, Err("system maintenance".into()), "{user}");
        }
    });
}

#[test]
fn trace_records_followed_messages_and_replies_without_contents() {
    with_fixture(36, |h| async move {
        let c = h.user("ann", Flavour::Plan9).await;
        let d = h.user("ann", Flavour::Linux).await;
        c.make(1, "quiet", 0o644, open::RDWR).await;
        assert_eq!(h.server.trace.kept(), (Vec::new(), 0), "off, nothing is kept");
        let number = h.server.clients()[0].number;
        h.server.set_trace_filter(TraceFilter::Connection(number));
        c.write(1, 0, b"what nobody is to see").await.unwrap();
        assert_eq!(c.read(1, 5, 6).await.unwrap(), b"nobody");
        c.walk(0, 9, &["nowhere"]).await.unwrap_err();
        let unknown = c.post(&T::Flush { oldtag: 77 }, &[]).await;
        assert_eq!(c.reply(unknown).await.r(), R::Flush);
        d.walk(0, 9, &[]).await.unwrap();
        let lines = |kept: Vec<Traced>| -> Vec<String> {
            kept.into_iter().map(|m| format!("{} {}", u8::from(m.is_request), m.text)).collect()
        };
        let (kept, _) = h.server.trace.kept();
        assert!(kept.iter().all(|m| m.connection == number));
        assert!(kept.chunks(2).all(|m| m[0].tag == m[1].tag && m[0].at_ns <= m[1].at_ns));
        assert_eq!(
            lines(kept),
            [
                "1 Twrite fid 1 offset 0 count 21",
                "0 Rwrite count 21",
                "1 Tread fid 1 offset 5 count 6",
                "0 Rread count 6",
                "1 Twalk fid 0 newfid 9 \"nowhere\"",
                "0 Rerror \"file does not exist\"",
                "1 Tflush oldtag 77",
                "0 Rflush",
            ]
        );
        // All clients, also later ones; then none.
        h.server.set_trace_filter(TraceFilter::All);
        let e = h.user("bob", Flavour::Linux).await;
        let all = lines(h.server.trace.kept().0);
        assert!(all.iter().any(|m| m.contains("Tattach") && m.contains("\"bob\"")), "{all:?}");
        h.server.set_trace_filter(TraceFilter::Off);
        e.walk(0, 9, &[]).await.unwrap();
        assert_eq!(lines(h.server.trace.kept().0), all);
    });
}
