//! Files, as an operator handles them: no permissions are asked for.

use std::fmt::Write;
use std::rc::Rc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};

use super::args::Args;
use super::{Command, NAME, about, paths, reports};
use crate::files::{Flags, Kind, New};
use crate::service::{Host, when};
use crate::users::ADM;
use crate::volume::{Dump, View};

/// Entries that a listing has at most.
const ENTRIES_MAX: usize = 10_000;
/// Bytes that `cat` prints at most.
const CAT_MAX: u64 = 1 << 20;

const PATH: ArgSpec = ArgSpec {
    name: "path",
    short: None,
    kind: ArgKind::Name,
    doc: "From the root; /dump/2026/1121/... for that of a dump",
};

pub(super) const LS: Command = Command {
    spec: VerbSpec {
        name: "ls",
        doc: "List a directory",
        detail: "",
        args: &[NAME, PATH],
        example: "fs ls main /adm",
        writes: false,
    },
    run: |host, args| Box::pin(ls(host, args)),
};

async fn ls(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    let fs = host.files()?;
    let path = args.need("path");
    if let Some(listed) = dumps_below(&fs.dumps(), path) {
        return Ok(listed);
    }
    let dir = paths::must(&host, &fs, path).await?;
    let users = host.server.users();
    let (mut text, mut list, mut after) = (String::new(), Vec::new(), 0);
    while list.len() < ENTRIES_MAX {
        let some = fs
            .run(|f| {
                let entries = f.entries(dir.view, dir.ino, after, 64)?;
                let with = entries.into_iter().map(|e| Ok((f.inode(dir.view, e.ino)?, e)));
                with.collect::<Result<Vec<_>, _>>()
            })
            .await
            .map_err(about(path))?;
        let Some((_, last)) = some.last() else { break };
        after = last.cookie;
        for (i, e) in some {
            let name = String::from_utf8_lossy(&e.name).into_owned();
            let mode = reports::mode(i.kind, i.flags, i.mode);
            let (uid, gid, time) = (users.name(i.uid), users.name(i.gid), when(&host, i.mtime_ns));
            let _ = writeln!(text, "{mode} {uid:<8} {gid:<8} {:>12} {time} {name}", i.size);
            list.push(json!({
                "name": name, "directory": i.kind == Kind::Dir, "mode": i.mode, "uid": uid,
                "gid": gid, "bytes": i.size, "mtime_ns": i.mtime_ns,
            }));
        }
    }
    if list.len() >= ENTRIES_MAX {
        let _ = writeln!(text, "... and more: mount it to see all");
    }
    Ok(json!({ "text": text, "entries": list }))
}

/// Years that have dumps, and the dumps of a year: directories that whoever attaches `dump` finds.
fn dumps_below(all: &[Dump], path: &str) -> Option<Value> {
    let parts: Vec<&str> = paths::parts(path).collect();
    let year = match parts.as_slice() {
        ["dump"] if path.starts_with('/') => None,
        ["dump", year] if path.starts_with('/') => Some(*year),
        _ => return None,
    };
    let paths = all.iter().map(Dump::path);
    let mut names: Vec<String> = match year {
        None => paths.map(|(y, _)| y).collect(),
        Some(year) => paths.filter(|(y, _)| y == year).map(|(_, day)| day).collect(),
    };
    names.dedup();
    if names.is_empty() {
        return None;
    }
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    let list: Vec<Value> =
        names.iter().map(|name| json!({ "name": name, "directory": true })).collect();
    Some(json!({ "text": text, "entries": list }))
}

pub(super) const CAT: Command = Command {
    spec: VerbSpec {
        name: "cat",
        doc: "Print a text file of at most 1 MiB",
        detail: "",
        args: &[NAME, PATH],
        example: "fs cat main /dump/2026/1121/adm/users",
        writes: false,
    },
    run: |host, args| {
        Box::pin(async move {
            let fs = host.files()?;
            let path = args.need("path");
            let found = paths::must(&host, &fs, path).await?;
            let bytes = paths::bytes(&fs, &found, CAT_MAX).await.map_err(about(path))?;
            let text = bytes.and_then(|b| String::from_utf8(b).ok());
            let why = format!("{path}: no text of at most 1 MiB; mount it to read it");
            let text = text.ok_or_else(|| Error::inval(why))?;
            Ok(json!({ "text": text }))
        })
    },
};

pub(super) const CREATE: Command = Command {
    spec: VerbSpec {
        name: "create",
        doc: "Make a file or a directory",
        detail: "",
        args: &[
            NAME,
            PATH,
            ArgSpec { name: "user", short: None, kind: ArgKind::Name, doc: "Its owner" },
            ArgSpec { name: "group", short: None, kind: ArgKind::Name, doc: "Its group" },
            ArgSpec {
                name: "perm",
                short: None,
                kind: ArgKind::Name,
                doc: "Permission bits, octal: 775",
            },
            ArgSpec {
                name: "letters",
                short: None,
                kind: ArgKind::Names(0),
                doc: "d a directory, a append-only, l one opener at a time, t not in dumps",
            },
        ],
        example: "fs create main /lib sys sys 775 d",
        writes: true,
    },
    run: |host, args| Box::pin(create(host, args)),
};

async fn create(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    let fs = host.files()?;
    let path = args.need("path");
    let users = host.server.users();
    let who = |key: &str| {
        let name = args.need(key);
        users.id(name).ok_or_else(|| args.wrong(&format!("{key}: there is no user {name}")))
    };
    let (uid, gid) = (who("user")?, who("group")?);
    let mode = u32::from_str_radix(args.need("perm"), 8).ok().filter(|m| *m <= 0o777);
    let mode = mode.ok_or_else(|| args.wrong("perm is octal, 0 to 777"))?;
    let mut new = New { kind: Kind::File, flags: Flags(0), mode, uid, gid };
    for letter in args.words("letters").iter().flat_map(|w| w.chars()) {
        match letter {
            'd' => new.kind = Kind::Dir,
            'a' => new.flags = new.flags.with(Flags::APPEND),
            'l' => new.flags = new.flags.with(Flags::EXCL),
            't' => new.flags = new.flags.with(Flags::TMP),
            other => return Err(args.wrong(&format!("letter {other}: it is one of d a l t"))),
        }
    }
    let (dir, name) = paths::place(&fs, path).await?;
    fs.run(|f| f.create(dir, name.as_bytes(), &new)).await.map_err(about(path))?;
    Ok(json!({ "message": format!("{path} is there") }))
}

pub(super) const REMOVE: Command = Command {
    spec: VerbSpec {
        name: "remove",
        doc: "Remove files and empty directories, whoever owns them",
        detail: "Dumps that have them keep them.",
        args: &[
            NAME,
            ArgSpec {
                name: "paths",
                short: None,
                kind: ArgKind::Names(1),
                doc: "From the root: /tmp/x",
            },
        ],
        example: "fs remove main /tmp/x",
        writes: true,
    },
    run: |host, args| {
        Box::pin(async move {
            let fs = host.files()?;
            let all = args.words("paths");
            for path in &all {
                if path.starts_with("/dump/") {
                    let what = format!("{path}: dumps are kept for ever");
                    return Err(Error::new(Errno::RoFs, what));
                }
                let (dir, name) = paths::place(&fs, path).await?;
                let gone = fs.run(|f| match f.lookup(View::Live, dir, name.as_bytes())? {
                    Some(_) => f.remove(dir, name.as_bytes(), ADM).map(Some),
                    None => Ok(None),
                });
                if gone.await.map_err(about(path))?.is_none() {
                    return Err(Error::new(Errno::NoEnt, format!("{path}: file not found")));
                }
            }
            Ok(json!({ "message": format!("{} removed", all.len()) }))
        })
    },
};
