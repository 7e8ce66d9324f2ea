//! Cutting into the live tree by hand, where nothing else helps: what is left contradicts itself
//! until `check --fix` has been there.

use std::fmt::Write;
use std::rc::Rc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};

use super::args::Args;
use super::{Command, NAME, about, paths};
use crate::service::Host;
use crate::volume::View;

/// Addresses that `clean` lists at most.
const LISTED_MAX: usize = 4096;

pub(super) const CLRI: Command = Command {
    spec: VerbSpec {
        name: "clri",
        doc: "Forget files, without looking at what they hold",
        detail: "Their names and attributes go; their blocks belong to nobody then, and \
                 those that no other file names are free after `fs check NAME --fix`. For a \
                 file that `remove` cannot remove because it is damaged. A directory that \
                 has entries leaves them without a place: `check --fix` puts them into \
                 /lost+found; in an image what it holds goes with it. Dumps keep what they have.",
        args: &[
            NAME,
            ArgSpec {
                name: "paths",
                short: None,
                kind: ArgKind::Names(1),
                doc: "From the root: /tmp/x",
            },
        ],
        example: "fs clri main /tmp/x",
        writes: true,
    },
    run: |host, args| Box::pin(clri(host, args)),
};

async fn clri(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    let fs = host.files()?;
    let all = args.words("paths");
    for path in &all {
        is_live(path)?;
        let (dir, name) = paths::place(&fs, path).await?;
        let gone = fs.forget(dir, name.as_bytes()).await.map_err(about(path))?;
        if !gone {
            return Err(Error::new(Errno::NoEnt, format!("{path}: file not found")));
        }
    }
    let n = all.len();
    Ok(json!({ "message": format!("{n} forgotten; `fs check --fix` frees what they held") }))
}

fn is_live(path: &str) -> Result<(), Error> {
    if path.starts_with("/dump/") {
        return Err(Error::new(Errno::RoFs, format!("{path}: dumps are kept for ever")));
    }
    Ok(())
}

pub(super) const CLEAN: Command = Command {
    spec: VerbSpec {
        name: "clean",
        doc: "List the blocks of a file, or say that one of them is another",
        detail: "Without BLOCK a line for each: its number in the file, its address. With \
                 BLOCK and ADDRESS the file has that address there; 0 is a hole, which \
                 reads as zeros: for a damaged block that keeps a file from being read. \
                 What stood there before is free after `fs check NAME --fix`. In an image a \
                 block can become a hole only.",
        args: &[
            NAME,
            ArgSpec {
                name: "path",
                short: None,
                kind: ArgKind::Name,
                doc: "From the root: /tmp/x",
            },
            ArgSpec {
                name: "block",
                short: None,
                kind: ArgKind::Number,
                doc: "Number of the block in the file, from 0",
            },
            ArgSpec {
                name: "address",
                short: None,
                kind: ArgKind::Number,
                doc: "Its new address [default: 0]",
            },
        ],
        example: "fs clean main /tmp/x --block 3 --address 0",
        writes: true,
    },
    run: |host, args| Box::pin(clean(host, args)),
};

async fn clean(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    let fs = host.files()?;
    let path = args.need("path");
    let found = paths::must(&host, &fs, path).await?;
    if let Some(block) = args.number("block") {
        is_live(path)?;
        let addr = args.number("address").unwrap_or(0);
        let was = fs.point(found.ino, block, addr).await.map_err(about(path))?;
        return Ok(json!({
            "message": format!("{path}: block {block} is {addr}, was {was}"), "was": was,
        }));
    }
    let blocks = fs.run(|f| f.blocks(found.view, found.ino, LISTED_MAX)).await;
    let blocks = blocks.map_err(about(path))?;
    let mut text = String::new();
    for (block, addr) in &blocks {
        let _ = writeln!(text, "{block:>8} {addr}");
    }
    let live = found.view == View::Live;
    Ok(json!({ "text": text, "blocks": blocks, "live": live }))
}
