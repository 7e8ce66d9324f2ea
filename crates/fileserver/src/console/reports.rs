//! How it is.

use std::fmt::Write;

use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};

use super::{Command, NAME, about, paths};
use crate::config::{Filsys, Settings};
use crate::files::{Flags, Kind};
use crate::service::{Host, when};
use crate::volume::percent;

/// Addresses of a file's blocks that `fstat` shows; `clean` lists them all.
const BLOCKS_SHOWN: usize = 8;

pub(super) const STATS: Command = Command {
    spec: VerbSpec {
        name: "stats",
        doc: "Show the block cache, the cache device, the WORM and those who use it",
        detail: "Rates are of the last 10, 100 and 1000 seconds, later ones counting more.",
        args: &[NAME],
        example: "fs stats main",
        writes: false,
    },
    run: |host, _| Box::pin(async move { stats(&host) }),
};

fn stats(host: &Host) -> Result<Value, Error> {
    let f = host.files()?.facts();
    let who = host.server.who();
    let sum = |get: fn(&crate::ninep::Presence) -> u64| who.iter().map(get).sum::<u64>();
    let (requests, read, written) = (sum(|p| p.requests), sum(|p| p.read), sum(|p| p.written));
    let mut t = String::new();
    let _ = writeln!(t, "clients   {}; {requests} requests of theirs", who.len());
    let _ = writeln!(t, "          {read} bytes read, {written} written");
    let _ = writeln!(
        t,
        "memory    {} blocks of {}, {} dirty; {}% of {} looks found what they sought",
        f.memory,
        f.block,
        f.dirty,
        percent(f.hits, f.hits + f.misses),
        f.hits + f.misses
    );
    let rates = host.rates.borrow().text();
    t += &rates;
    let ahead = match f.ahead_workers {
        0 => "nothing".to_owned(),
        n => format!("{} bytes by {n} workers", f.ahead_bytes),
    };
    let (came, full) = (f.ahead_loaded, f.ahead_dropped);
    let _ = writeln!(t, "ahead     {ahead}; {came} blocks came so, {full} found no room");
    let _ = writeln!(
        t,
        "cache     {}% of {} slots in use, {} free for changes; {} commits",
        percent(f.slots_used, f.slots),
        f.slots,
        f.slots_left,
        f.commits
    );
    if f.worm > 0 {
        let _ = writeln!(
            t,
            "worm      {}% of {} blocks; {} dumps; epoch {}",
            percent(f.next, f.worm),
            f.worm,
            f.dumps,
            f.epoch
        );
    }
    let _ = writeln!(
        t,
        "live      {} blocks that no dump has, {} that none will get",
        f.live, f.scratch
    );
    if f.bad_slots + f.mended > 0 {
        let _ = writeln!(
            t,
            "damage    {} blocks of the cache device, {} of the WORM mended from another device",
            f.bad_slots, f.mended
        );
    }
    if let Some(why) = &f.refused {
        let _ = writeln!(t, "refused   {why}");
    }
    let volume = serde_json::to_value(&f).unwrap_or_default();
    Ok(json!({
        "text": t, "volume": volume, "rates": host.rates.borrow().json(),
        "clients": who.len(), "requests": requests, "read": read, "written": written,
    }))
}

pub(super) const STATW: Command = Command {
    spec: VerbSpec {
        name: "statw",
        doc: "Show how each device of the WORM is doing",
        detail: "What is behind is copied by itself, to each device at its own pace; clients never \
                 wait for one.",
        args: &[NAME],
        example: "fs statw main",
        writes: false,
    },
    run: |host, _| Box::pin(async move { statw(&host) }),
};

/// A time as people write it: 0:00:03.
fn span(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

fn statw(host: &Host) -> Result<Value, Error> {
    let fs = host.files()?;
    let (f, legs) = (fs.facts(), fs.legs());
    let none = "it has no WORM\n".to_owned();
    if legs.is_empty() {
        return Ok(json!({ "text": none, "legs": [], "states": {} }));
    }
    let mut t = format!(
        "{:<16} {:>12} {:>10} {:>9} {:>12} {:>8} {:>8}  fault\n",
        "device", "has", "behind", "lag", "copied", "MB/s", "read ms"
    );
    for l in &legs {
        let bytes = l.copied * f.block;
        let rate = if l.busy_ns == 0 { 0.0 } else { bytes as f64 * 1e3 / l.busy_ns as f64 };
        let (lag, read) = (span(l.lag_ns), l.read_ns as f64 / 1e6);
        let fault = l.fault.as_deref().unwrap_or("");
        let _ = writeln!(
            t,
            "{:<16} {:>12} {:>10} {lag:>9} {:>12} {rate:>8.1} {read:>8.2}  {fault}",
            l.name, l.done, l.behind, l.copied
        );
    }
    // What no device of the WORM has yet is on the cache device, and so is what was read or
    // written lately.
    let dump = legs.iter().map(|l| l.behind).min().unwrap_or(0);
    let read = f.slots_used.saturating_sub(dump + f.live + f.scratch);
    let none = f.frozen.saturating_sub(dump + read);
    let (last, next) = (f.sb_last, f.sb_next);
    let (dirty, scratch) = (f.live, f.scratch);
    let _ = writeln!(
        t,
        "blocks    {dirty} dirty, {dump} dump, {read} read, {none} none; {scratch} temporary"
    );
    // Where an image's next one will be nobody knows before it is written.
    let latest = match (last, next) {
        (0, 0) => "no superblock yet".to_owned(),
        (0, next) => format!("no superblock yet, the first in {next}"),
        (last, 0) => format!("a superblock in {last}"),
        (last, next) => format!("a superblock in {last}, the next in {next}"),
    };
    let _ = writeln!(t, "worm      {} of {} in use; {latest}", f.next, f.worm);
    let copying = fs.is_copying();
    if !copying {
        let _ = writeln!(t, "copying   off: `fs copying {} on`", host.shared.name);
    }
    Ok(json!({
        "text": t, "legs": serde_json::to_value(&legs).unwrap_or_default(), "copying": copying,
        "states": {
            "dirty": dirty, "dump": dump, "read": read, "none": none, "temporary": scratch,
        },
        "superblock": last, "next_superblock": (next > 0).then_some(next),
    }))
}

pub(super) const FSTAT: Command = Command {
    spec: VerbSpec {
        name: "fstat",
        doc: "Show everything that is known of a file",
        detail: "",
        args: &[
            NAME,
            ArgSpec {
                name: "path",
                short: None,
                kind: ArgKind::Name,
                doc: "From the root; /dump/2026/1121/... for that of a dump",
            },
        ],
        example: "fs fstat main /adm/users",
        writes: false,
    },
    run: |host, args| {
        Box::pin(async move {
            let fs = host.files()?;
            let found = paths::must(&host, &fs, args.need("path")).await?;
            let (i, users) = (&found.inode, host.server.users());
            let some = fs.run(|f| f.blocks(found.view, found.ino, BLOCKS_SHOWN)).await;
            let some = some.map_err(about(args.need("path")))?;
            let mut t = String::new();
            let (uid, gid, muid) = (users.name(i.uid), users.name(i.gid), users.name(i.muid));
            let _ = writeln!(t, "file      {} version {}", found.ino, i.version);
            let _ = writeln!(t, "mode      {}", mode(i.kind, i.flags, i.mode));
            let _ = writeln!(t, "owner     {uid}, group {gid}; {muid} changed it last");
            let _ = writeln!(t, "size      {} bytes, {} entries", i.size, i.entries);
            if i.kind == Kind::File {
                let shown: Vec<String> = some.iter().map(|(_, addr)| addr.to_string()).collect();
                let more = if some.len() == BLOCKS_SHOWN { " ..." } else { "" };
                let _ = writeln!(t, "blocks    {}{more}", shown.join(" "));
            }
            let _ = writeln!(t, "modified  {}", when(&host, i.mtime_ns));
            let _ = writeln!(t, "read      {}", when(&host, i.atime_ns));
            Ok(json!({
                "text": t, "file": found.ino, "version": i.version, "mode": i.mode,
                "directory": i.kind == Kind::Dir, "uid": uid, "gid": gid, "muid": muid,
                "bytes": i.size, "entries": i.entries,
                "mtime_ns": i.mtime_ns, "atime_ns": i.atime_ns,
            }))
        })
    },
};

/// As ls has it: `d-rwxrwxr-x`, with a, l and t of Plan 9.
pub(super) fn mode(kind: Kind, flags: Flags, bits: u32) -> String {
    let first = match kind {
        Kind::Dir => 'd',
        Kind::File if flags.has(Flags::APPEND) => 'a',
        Kind::File => '-',
    };
    let second = match () {
        () if flags.has(Flags::EXCL) => 'l',
        () if flags.has(Flags::TMP) => 't',
        () => '-',
    };
    let letters = "rwxrwxrwx".chars().zip((0..9).rev());
    let bits = letters.map(|(c, bit)| if bits >> bit & 1 == 1 { c } else { '-' });
    [first, second].into_iter().chain(bits).collect()
}

pub(super) const PRINTCONF: Command = Command {
    spec: VerbSpec {
        name: "printconf",
        doc: "Print its configuration as lines of the first file servers",
        detail: "",
        args: &[NAME],
        example: "fs printconf main",
        writes: false,
    },
    run: |host, _| {
        Box::pin(async move {
            let params = &host.shared.params;
            let main = Filsys { name: "main".into(), device: host.shared.device.clone() };
            let settings = Settings {
                service: host.shared.name.clone(),
                filsys: vec![main],
                nodump: !host.dumps_on.get(),
                noattach: host.server.noattach.get(),
                nonone: params.nonone,
                noauth: true,
                ..Settings::default()
            };
            Ok(json!({ "text": settings.to_string() }))
        })
    },
};

pub(super) const VERSION: Command = Command {
    spec: VerbSpec {
        name: "version",
        doc: "Say which program it is",
        detail: "",
        args: &[NAME],
        example: "fs version main",
        writes: false,
    },
    run: |_, _| {
        Box::pin(async move {
            let version = env!("CARGO_PKG_VERSION");
            Ok(json!({ "message": format!("ashlar {version}"), "version": version }))
        })
    },
};
