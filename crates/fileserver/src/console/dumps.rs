//! Taking dumps, and naming them.

use std::fmt::Write;
use std::rc::Rc;

use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};

use super::args::Args;
use super::{Command, NAME, about};
use crate::files::Served;
use crate::service::{Host, when};

pub(super) const DUMP: Command = Command {
    spec: VerbSpec {
        name: "dump",
        doc: "Take a dump now",
        detail: "The tree as it is becomes readable for ever as /dump/YEAR/MMDD, the second of a \
                 day as MMDD1. Clients go on meanwhile. The dump is durable on the cache device \
                 when the verb ends; with --wait, on a device of the WORM.",
        args: &[
            NAME,
            ArgSpec {
                name: "wait",
                short: Some('w'),
                kind: ArgKind::Flag,
                doc: "Return when a device of the WORM has it",
            },
        ],
        example: "fs dump main --wait",
        writes: true,
    },
    run: |host, args| Box::pin(dump(host, args)),
};

async fn dump(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    let taken = host.dump().await?;
    let (year, day) = taken.path();
    let fs = host.files()?;
    let blocks = fs.blocks_of(&taken).unwrap_or_default();
    if args.flag("wait") {
        let name = host.shared.name.clone();
        loop {
            let behind = fs.legs().iter().map(|l| l.behind).min().unwrap_or(0);
            let done = blocks.saturating_sub(behind);
            host.said(args.number, format!("dump {name}: blocks to the WORM"), done, blocks);
            let copied = fs.copied(&taken);
            match host.within(250_000_000, copied).await {
                Some(done) => break done.map_err(about("copying"))?,
                None => continue,
            }
        }
        host.look();
    }
    let path = format!("/dump/{year}/{day}");
    Ok(json!({
        "message": format!("{path}: {blocks} blocks"),
        "path": path, "blocks": blocks, "number": taken.number,
    }))
}

pub(super) const DUMPS: Command = Command {
    spec: VerbSpec {
        name: "dumps",
        doc: "List the dumps",
        detail: "Bytes are those that a dump has and none before it has. An image does not keep \
                 that figure: it is known of dumps that were taken since it was opened.",
        args: &[NAME],
        example: "fs dumps main",
        writes: false,
    },
    run: |host, _| Box::pin(async move { dumps(&host) }),
};

fn dumps(host: &Host) -> Result<Value, Error> {
    let fs = host.files()?;
    let block = fs.facts().block;
    let legs = fs.legs();
    let mut text = format!("{:<16} {:<19} {:>12}  where\n", "dump", "taken", "bytes");
    let mut all = Vec::new();
    // An image's dump is not one range of the WORM.
    let of_a_range = |at: u64| matches!(fs, Served::Volume(_)).then_some(at);
    for d in fs.dumps() {
        let (year, day) = d.path();
        let on: Vec<&str> =
            legs.iter().filter(|l| fs.is_on(&d, l)).map(|l| l.name.as_str()).collect();
        let bytes = fs.blocks_of(&d).map(|n| n * block);
        let shown = bytes.map_or("-".to_owned(), |n| n.to_string());
        let place = if on.is_empty() { "the cache device alone".to_owned() } else { on.join(" ") };
        let path = format!("{year}/{day}");
        let taken = when(host, d.time_ns);
        let _ = writeln!(text, "{path:<16} {taken:<19} {shown:>12}  {place}");
        all.push(json!({
            "path": path, "time_ns": d.time_ns, "bytes": bytes, "on": on, "number": d.number,
            "superblock": of_a_range(d.sb), "next": of_a_range(d.next), "root": d.root,
        }));
    }
    if all.is_empty() {
        text = format!("none yet; `ashlar fs dump {}` takes one\n", host.shared.name);
    }
    Ok(json!({ "text": text, "dumps": all }))
}

pub(super) const DUMPCTL: Command = Command {
    spec: VerbSpec {
        name: "dumpctl",
        doc: "Say whether dumps are taken by the clock",
        detail: "Until the next start; `nodump` of the configuration says it for good, `dump_at` \
                 when. A dump by hand is taken whatever this says. A standby takes none by the \
                 clock before it has taken over.",
        args: &[NAME, SWITCH],
        example: "fs dumpctl main off",
        writes: false,
    },
    run: |host, args| {
        Box::pin(async move {
            if let Some(on) = on_off(&args)? {
                host.dumps_on.set(on);
                host.look();
            }
            let on = host.dumps_on.get();
            let what = match (on, host.shared.params.dump_at()) {
                (true, Ok(None)) => {
                    "no dumps by the clock: `dump_at` of its configuration is never"
                }
                (true, _) => "dumps are taken by the clock",
                (false, _) => "no dumps by the clock",
            };
            Ok(json!({ "message": what, "on": on }))
        })
    },
};

pub(super) const COPYING: Command = Command {
    spec: VerbSpec {
        name: "copying",
        doc: "Say whether dumps are copied to the devices of the WORM",
        detail: "Off, dumps can be taken still, and stay on the cache device: for a line that is \
                 needed for something else. Until the next start.",
        args: &[NAME, SWITCH],
        example: "fs copying main off",
        writes: false,
    },
    run: |host, args| {
        Box::pin(async move {
            let (fs, said) = (host.files()?, on_off(&args)?);
            if let Some(on) = said {
                fs.set_copying(on);
                host.look();
            }
            let on = fs.is_copying();
            let what = if on { "dumps are copied to the WORM" } else { "nothing is copied" };
            Ok(json!({ "message": what, "on": on }))
        })
    },
};

/// What is switched.
pub(super) const SWITCH: ArgSpec = ArgSpec {
    name: "what",
    short: None,
    kind: ArgKind::Maybe,
    doc: "on or off [default: say how it is]",
};

/// `on` or `off`, as people write it; none: nothing is to be changed.
pub(super) fn on_off(args: &Args) -> Result<Option<bool>, Error> {
    match args.text("what") {
        None => Ok(None),
        Some("on" | "yes" | "1") => Ok(Some(true)),
        Some("off" | "no" | "0") => Ok(Some(false)),
        Some(_) => Err(args.wrong("say on or off")),
    }
}
