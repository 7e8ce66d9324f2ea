//! Writes the seeds of the file server's fuzz targets:
//! `cargo run -p ashlar-fileserver --example fileserver_corpus`. `tests/suite/fuzz/harness.rs`
//! defines the first byte.

use std::path::Path;

use fileserver::fuzzing::node;
use wire::ninep::{NOTAG, Names, Stat, T};

type Seed = (&'static str, Vec<u8>);

/// Files are open, large segments.
const OPENED: u8 = 3 << 3 | 3 << 1;

fn messages(first: u8, all: &[(T<'_>, &[u8])]) -> Vec<u8> {
    let mut out = vec![first];
    for (tag, (t, data)) in (10..).zip(all) {
        let tag = if matches!(t, T::Version { .. }) { NOTAG } else { tag };
        t.encode(tag, &mut out);
        out.extend_from_slice(data);
    }
    out
}

fn connections() -> Vec<Seed> {
    let names = |all: &[&'static str]| Names::new(all).expect("few names");
    let up = T::Walk { fid: 0, newfid: 7, names: names(&["d", "..", "d", "f"]) };
    let read = T::Read { fid: 1, offset: 0, count: 8192 };
    let write = T::Write { fid: 1, offset: 9_000, count: 5 };
    let create = T::Create { fid: 5, name: "new", perm: 0o644, mode: 1 };
    let folder = T::Create { fid: 6, name: "sub", perm: 0x8 << 28 | 0o755, mode: 0 };
    let wstat = T::Wstat { fid: 1, stat: Stat { length: 3, name: "g", ..Stat::KEEP } };
    let clone = |newfid| (T::Walk { fid: 0, newfid, names: names(&["d"]) }, &b""[..]);
    vec![
        ("reads", messages(OPENED, &[(read, b""), (up, b""), (T::Stat { fid: 7 }, b"")])),
        ("writes", messages(OPENED, &[(write, b"hello"), (wstat, b""), (read, b"")])),
        (
            "makes",
            messages(
                OPENED | 1,
                &[
                    clone(5),
                    (create, b""),
                    (T::Write { fid: 5, offset: 0, count: 3 }, b"abc"),
                    clone(6),
                    (folder, b""),
                    (T::Read { fid: 6, offset: 0, count: 4096 }, b""),
                    (T::Remove { fid: 5 }, b""),
                    (T::Remove { fid: 1 }, b""),
                ],
            ),
        ),
        (
            "flushes",
            messages(
                OPENED,
                &[(read, b""), (T::Flush { oldtag: 10 }, b""), (T::Clunk { fid: 1 }, b"")],
            ),
        ),
        (
            "again",
            messages(0, &[(T::Version { msize: 300, version: "9P2000.L" }, b""), (read, b"")]),
        ),
    ]
}

fn patches(first: u8, all: &[[u8; 8]]) -> Vec<u8> {
    [first].into_iter().chain(all.iter().flatten().copied()).collect()
}

fn devices() -> Vec<Seed> {
    // The first blocks of the leg are its label, seats and the first dump; of the cache device its
    // headers, its journal and its table.
    let low = |disk, n: u8, byte: u8, sealed| [disk, 0, n, 0, byte, 0xff, 0x7f, sealed];
    let many = |disk, sealed| (0..20).map(|n| low(disk, n, 32 + 4 * n, sealed)).collect::<Vec<_>>();
    vec![
        ("untouched", patches(0, &[])),
        ("recovered", patches(1, &[])),
        ("cache", patches(0, &many(0, 0))),
        ("leg", patches(1, &many(1, 0))),
        ("forged-cache", patches(0, &many(0, 1))),
        ("forged-leg", patches(1, &many(1, 1))),
        ("one-of-the-journal", patches(0, &[low(0, 2, 40, 1)])),
        // Behind the table are blocks of files and of the tree.
        ("contents", patches(0, &(8..28).map(|n| low(0, 4 * n, 100, 0)).collect::<Vec<_>>())),
        (
            "contents-of-the-leg",
            patches(1, &(4..24).map(|n| low(1, 4 * n, 100, 0)).collect::<Vec<_>>()),
        ),
        ("one-superblock", patches(1, &[low(1, 2, 48, 1)])),
    ]
}

/// Images of cwfs64x with changed bytes; see the harness.
fn images() -> Vec<Seed> {
    let patch = |device, block: u8, byte: u16, word: u32| {
        let mut out = vec![device, block];
        out.extend_from_slice(&byte.to_be_bytes());
        out.extend_from_slice(&word.to_le_bytes());
        out
    };
    let of = |how: u8, all: &[Vec<u8>]| {
        let mut out = vec![how];
        all.iter().for_each(|p| out.extend_from_slice(p));
        out
    };
    // Words of a header, a superblock, an entry of a directory, a bucket.
    let header: Vec<_> = (0..12).map(|n| patch(0, 0, 8 * n, 3 + u32::from(n))).collect();
    let super_block: Vec<_> = (0..8).map(|n| patch(1, 0, 16_304 + 8 * n, 40)).collect();
    let entry: Vec<_> = (0..6).map(|n| patch(1, 1, 172 + 8 * n, 3)).collect();
    let bucket: Vec<_> = (0..9).map(|n| patch(0, 1, 4 + 12 * n, 0x0002_0005)).collect();
    vec![
        ("rows", of(0, &[])),
        ("columns", of(1, &[])),
        ("plain", of(2, &[])),
        ("recovered", of(8, &[])),
        ("read-only", of(4, &[])),
        ("header", of(0, &header)),
        ("superblock", of(9, &super_block)),
        ("entry", of(8, &entry)),
        ("bucket", of(1, &bucket)),
        ("tags", of(0, &[patch(0, 30, 16_374, 9), patch(0, 40, 16_376, 77)])),
    ]
}

fn texts(all: &[(&'static str, &str)]) -> Vec<Seed> {
    all.iter().map(|(name, text)| (*name, text.as_bytes().to_vec())).collect()
}

fn write(target: &str, seeds: Vec<Seed>) -> std::io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    std::fs::create_dir_all(&folder)?;
    seeds.into_iter().try_for_each(|(name, bytes)| std::fs::write(folder.join(name), bytes))
}

fn main() -> std::io::Result<()> {
    write("fs_connection", connections())?;
    write("fs_blocks", devices())?;
    write("fs_image", images())?;
    write(
        "fs_node",
        vec![
            ("leaf", node(20, 0)),
            ("inner", node(9, 1)),
            ("full", node(30, 0)),
            ("empty", node(0, 0)),
        ],
    )?;
    write(
        "fs_line",
        texts(&[
            ("check", "check --dump 2026/1121 -r"),
            ("create", "create '/usr/o''brien/a file' ann lab 755 d # made"),
            ("ahead", "ahead --workers 20 --bytes 65536"),
            ("lines", "who\nusers\nnewuser ann +lab\n\ndump -w\n"),
            ("history", "history -- /lib/-x"),
        ]),
    )?;
    write(
        "fs_config",
        texts(&[
            ("paper", "ce565.0{e565.1e545.1}"),
            ("slice", "cp(e565.0)0.3276800[w<0-2>w1.2.3]"),
            ("named", "c\"ssd\"{'near'f(h0.1m1.2)}"),
            ("jukebox", "cw0j(w1w2)(r<0-3>l<7-5>)"),
            (
                "mode",
                "service x\nfilsys main ce565.0{e565.1e545.1}\nfilsys dump o\ndumpctl no\n\
                 noattach\nallow\nrecoversb 2\nip 10.0.0.1\nend\n",
            ),
        ]),
    )?;
    write(
        "fs_users",
        texts(&[
            ("usual", "-1:adm:adm:\n0:none:adm:\n1:ann:ann:\n3:lab:ann:ann,bob\n2:bob:bob:\n"),
            ("comments", "# who\n10000:sys::\n10001:map:map:\n"),
            ("wrong", "1:a:b:c,d\n1:e::\n:::\n"),
        ]),
    )
}
