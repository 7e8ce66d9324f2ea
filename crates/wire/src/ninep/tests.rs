//! Encoding and decoding of every message, and rejected messages.

use super::*;

fn stat() -> Stat<'static> {
    Stat {
        qid: Qid { kind: qtype::DIR, version: 3, path: 77 },
        mode: mode::DIR | 0o755,
        mtime: 9,
        length: 0,
        name: "lib",
        uid: "glenda",
        gid: "sys",
        muid: "rob",
        ..Stat::default()
    }
}

fn requests() -> Vec<T<'static>> {
    let names = Names::new(&["usr", "glenda", ".."]).unwrap();
    vec![
        T::Version { msize: 8192, version: "9P2000" },
        T::Auth { afid: 1, uname: "glenda", aname: "" },
        T::Attach { fid: 0, afid: NOFID, uname: "none", aname: "dump" },
        T::Flush { oldtag: 5 },
        T::Walk { fid: 0, newfid: 1, names },
        T::Walk { fid: 0, newfid: 1, names: Names::new(&[]).unwrap() },
        T::Open { fid: 1, mode: open::RDWR | open::TRUNC },
        T::Create { fid: 1, name: "π", perm: 0o644, mode: 1 },
        T::Read { fid: 1, offset: 1 << 40, count: 8168 },
        T::Clunk { fid: 1 },
        T::Remove { fid: 2 },
        T::Stat { fid: 3 },
        T::Wstat { fid: 3, stat: Stat::KEEP },
        T::Wstat { fid: 3, stat: stat() },
    ]
}

fn replies() -> Vec<R<'static>> {
    let qid = Qid { kind: 0, version: 1, path: 2 };
    vec![
        R::Version { msize: 8192, version: "unknown" },
        R::Auth { aqid: qid },
        R::Attach { qid },
        R::Error { ename: "file not found" },
        R::Flush,
        R::Walk { qids: vec![qid; 16] },
        R::Open { qid, iounit: 8168 },
        R::Create { qid, iounit: 0 },
        R::Read { data: b"hello" },
        R::Write { count: 5 },
        R::Clunk,
        R::Remove,
        R::Stat { stat: stat() },
        R::Wstat,
    ]
}

#[test]
fn messages_decode_as_encoded() {
    for t in requests() {
        let mut out = Vec::new();
        t.encode(258, &mut out);
        let (size, _, tag) = head(out.first_chunk().unwrap(), 65536).unwrap();
        assert_eq!((size as usize, tag), (out.len(), 258));
        assert_eq!(T::decode(&out, size), Ok(t));
    }
    for r in replies() {
        let mut out = Vec::new();
        r.encode(NOTAG, &mut out);
        assert_eq!(R::decode(&out), Ok(r));
    }
}

#[test]
fn every_message_with_a_byte_too_few_or_too_many_is_refused() {
    for t in requests() {
        let mut out = Vec::new();
        t.encode(1, &mut out);
        let size = out.len() as u32;
        for n in HEAD..out.len() {
            assert!(T::decode(&out[..n], n as u32).is_err(), "{t:?} of {n} bytes");
        }
        out.push(0);
        assert_eq!(T::decode(&out, size + 1).unwrap_err().field, "size", "{t:?}");
    }
    for r in replies() {
        let mut out = Vec::new();
        r.encode(1, &mut out);
        for n in HEAD..out.len() {
            assert!(R::decode(&out[..n]).is_err(), "{r:?} of {n} bytes");
        }
    }
}

#[test]
fn write_data_are_counted_but_not_decoded() {
    let mut out = Vec::new();
    write_head(3, 1, 9, 100, &mut out);
    assert_eq!(out.len(), WRITE_HEAD);
    let (size, ..) = head(out.first_chunk().unwrap(), 8192).unwrap();
    assert_eq!(size, 123);
    assert_eq!(T::decode(&out, size), Ok(T::Write { fid: 1, offset: 9, count: 100 }));
    assert_eq!(T::decode(&out, size - 1).unwrap_err().field, "count");
    assert_eq!(T::decode(&out, size + 1).unwrap_err().field, "count");
}

#[test]
fn invalid_sizes_and_types_are_refused() {
    let at = |size: u32| {
        let mut b = [0; HEAD];
        b[..4].copy_from_slice(&size.to_le_bytes());
        head(&b, 8192)
    };
    for size in (0..7).chain([8193, 1 << 31, u32::MAX]) {
        assert_eq!(at(size).unwrap_err().field, "size", "{size}");
    }
    assert!(at(7).is_ok() && at(8192).is_ok());
    let known = [100, 102, 104, 108, 110, 112, 114, 116, 118, 120, 122, 124, 126];
    for kind in 0..=255 {
        let b = [7, 0, 0, 0, kind, 0, 0];
        let field = T::decode(&b, 7).unwrap_err().field;
        assert_eq!(field == "type", !known.contains(&kind), "{kind}: {field}");
    }
}

#[test]
fn names_are_utf8_without_zeros_and_at_most_sixteen() {
    let mut out = Vec::new();
    T::Create { fid: 1, name: "ab", perm: 0, mode: 0 }.encode(1, &mut out);
    for bad in [[0xff, b'b'], [b'a', 0], [0xc3, 0x28]] {
        out[13..15].copy_from_slice(&bad);
        assert_eq!(T::decode(&out, out.len() as u32).unwrap_err().field, "name");
    }
    assert!(Names::new(&["x"; 17]).is_none());
    let mut out = Vec::new();
    T::Walk { fid: 0, newfid: 1, names: Names::new(&["x"; 16]).unwrap() }.encode(1, &mut out);
    out[15] = 17;
    assert_eq!(T::decode(&out, out.len() as u32).unwrap_err().field, "nwname");
}

#[test]
fn directory_data_are_consecutive_stat_entries() {
    let mut out = Vec::new();
    stat().encode(&mut out);
    Stat::KEEP.encode(&mut out);
    let (first, n) = Stat::decode(&out).unwrap();
    assert_eq!((first, n), (stat(), stat().len()));
    assert_eq!(Stat::decode(&out[n..]).unwrap(), (Stat::KEEP, 49));
    // A count that contradicts the contents.
    out[0] += 1;
    assert_eq!(Stat::decode(&out).unwrap_err().field, "stat.size");
}
