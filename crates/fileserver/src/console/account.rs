//! Whose blocks there are, and where a block is.

use std::fmt::Write;
use std::rc::Rc;

use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};

use super::args::Args;
use super::{Command, NAME, about, paths};
use crate::files::Usage;
use crate::service::Host;
use crate::volume::{Copy, View};

pub(super) const ACCT: Command = Command {
    spec: VerbSpec {
        name: "acct",
        doc: "Show what each user owns, and how much of it is new on the WORM",
        detail: "Of the live tree `new` is what the next dump adds, of a dump what it added; \
                 `scratch` are blocks of temporary files, which no dump gets. Every item of the \
                 tree is looked at.",
        args: &[
            NAME,
            ArgSpec {
                name: "dump",
                short: None,
                kind: ArgKind::Text,
                doc: "Of a dump: 2026/1121, yesterday or last [default: the live tree]",
            },
        ],
        example: "fs acct main --dump last",
        writes: false,
    },
    run: |host, args| Box::pin(acct(host, args)),
};

async fn acct(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    let fs = host.files()?;
    let view = match args.text("dump") {
        None => View::Live,
        Some(word) => View::Dump(paths::dump(&host, &fs, word)?.number),
    };
    let own = fs.volume("blocks of an image are not accounted for");
    let all = own.map_err(about("acct"))?.usage(view).await.map_err(about("acct"))?;
    let users = host.server.users();
    let mut text = format!(
        "{:<16} {:>9} {:>7} {:>16} {:>11} {:>11} {:>9}\n",
        "user", "files", "dirs", "bytes", "blocks", "new", "scratch"
    );
    let (mut list, mut sum) = (Vec::new(), Usage::default());
    let mut line = |name: &str, u: &Usage| {
        let _ = writeln!(
            text,
            "{name:<16} {:>9} {:>7} {:>16} {:>11} {:>11} {:>9}",
            u.files, u.dirs, u.bytes, u.blocks, u.new, u.scratch
        );
    };
    for (id, u) in &all {
        let name = users.name(*id);
        line(&name, u);
        sum.files += u.files;
        sum.dirs += u.dirs;
        sum.bytes += u.bytes;
        sum.blocks += u.blocks;
        sum.new += u.new;
        sum.scratch += u.scratch;
        list.push(json!({
            "user": name, "files": u.files, "dirs": u.dirs, "bytes": u.bytes,
            "blocks": u.blocks, "new": u.new, "scratch": u.scratch,
        }));
    }
    line("all", &sum);
    Ok(json!({ "text": text, "users": list }))
}

pub(super) const BLOCKCMP: Command = Command {
    spec: VerbSpec {
        name: "blockcmp",
        doc: "Compare what each device has of a block with what it should be",
        detail: "By its address, as `fs clean NAME PATH` lists those of a file. Nothing is mended: \
                 reading the file does that.",
        args: &[
            NAME,
            ArgSpec {
                name: "address",
                short: None,
                kind: ArgKind::Name,
                doc: "The block's address on the WORM",
            },
        ],
        example: "fs blockcmp main 1234",
        writes: false,
    },
    run: |host, args| Box::pin(blockcmp(host, args)),
};

async fn blockcmp(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    let fs = host.files()?;
    let addr = args.need("address").parse().map_err(|_| args.wrong("an address is a number"))?;
    let own = fs.volume("blocks of an image carry no checksum").map_err(about("blockcmp"))?;
    let copies = own.volume().copies(addr).await.map_err(about("blockcmp"))?;
    let (mut text, mut list) = (String::new(), Vec::new());
    for Copy { device, at, fault } in &copies {
        let what = match (at, fault) {
            (None, _) => "not there".to_owned(),
            (Some(at), None) => format!("as it should be, in block {at}"),
            (Some(at), Some(fault)) => format!("block {at}: {fault}"),
        };
        let _ = writeln!(text, "{device:<24} {what}");
        list.push(json!({ "device": device, "block": at, "fault": fault }));
    }
    let sound = copies.iter().filter(|c| c.at.is_some() && c.fault.is_none()).count();
    Ok(json!({ "text": text, "address": addr, "copies": list, "sound": sound }))
}
