//! Making, checking, stopping and starting.

use std::fmt::Write;
use std::rc::Rc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};

use super::args::Args;
use super::{Command, NAME, YES_DESTROY, about, error, paths};
use crate::files::{Checked, Inode, Kind, Served};
use crate::ninep::Server;
use crate::service::{Host, Phase};
use crate::users::ADM;
use crate::volume::{Dump, View};

/// Names that `check` prints at most.
const NAMED_MAX: usize = 100_000;

pub(super) const CHECK: Command = Command {
    spec: VerbSpec {
        name: "check",
        doc: "Look at everything that the tree names",
        detail: "Each item of the tree, and what it says of others; with --rdall every block of \
                 every file too, its checksum verified. A damaged block is named with its file. \
                 Clients go on meanwhile: what they change may show as a fault that is none, so a \
                 check of the live tree that finds something is done once more before it is said; \
                 of an image it is a check of one moment, and the next dump waits for it. \
                 --fix mends what contradicts itself: names of files that are not there go, files \
                 that are nowhere are put into /lost+found, counts are counted, blocks of nobody \
                 are free; contents are never thrown away, dumps never changed. A block of which \
                 no device has what it should hold stays, is told with its file, and `clean` \
                 makes a hole of it. In an image a block that says it is another file's becomes \
                 a hole, found with --rdall, and what it holds a file of /lost+found; where a \
                 directory cannot be read nothing is freed, for it may be what that leads to: \
                 `clri` it first. --dry says what --fix would do to an image.",
        args: &[
            NAME,
            ArgSpec {
                name: "dump",
                short: None,
                kind: ArgKind::Text,
                doc: "Check a dump: 2026/1121, yesterday, last, or all [default: the live tree]",
            },
            ArgSpec {
                name: "rdall",
                short: Some('r'),
                kind: ArgKind::Flag,
                doc: "Read every block of every file",
            },
            ArgSpec {
                name: "fix",
                short: None,
                kind: ArgKind::Flag,
                doc: "Mend the live tree first; nobody may be connected",
            },
            ArgSpec {
                name: "dry",
                short: None,
                kind: ArgKind::Flag,
                doc: "With --fix, of an image: say what would be mended, and mend nothing",
            },
            ArgSpec {
                name: "rtmp",
                short: None,
                kind: ArgKind::Flag,
                doc: "Remove files with the letter t, which no dump has; in an image, all that \
                      stands in a directory with it",
            },
            ArgSpec {
                name: "pfile",
                short: None,
                kind: ArgKind::Flag,
                doc: "Print the names of files",
            },
            ArgSpec {
                name: "pdir",
                short: None,
                kind: ArgKind::Flag,
                doc: "Print the names of directories",
            },
        ],
        example: "fs check main --rdall",
        writes: true,
    },
    run: |host, args| Box::pin(check(host, args)),
};

async fn check_one(fs: &Served, view: View, rdall: bool) -> Result<Checked, Error> {
    let mut found = fs.check(view, rdall).await.map_err(about("check"))?;
    let again = matches!(fs, Served::Volume(_)) && view == View::Live;
    if again && (!found.faults.is_empty() || found.leaked > 0) {
        found = fs.check(view, rdall).await.map_err(about("check"))?;
    }
    Ok(found)
}

/// Options that do not go together.
fn refuse(args: &Args) -> Result<(), Error> {
    let (rtmp, fix, dry) = (args.flag("rtmp"), args.flag("fix"), args.flag("dry"));
    if dry && rtmp {
        return Err(args.wrong("--rtmp removes, and --dry changes nothing: one of them"));
    }
    if dry && !fix {
        return Err(args.wrong("--dry says what --fix would do: both"));
    }
    if args.text("dump").is_some() && (rtmp || fix) {
        let flag = if rtmp { "--rtmp" } else { "--fix" };
        let what = format!("check {flag}: a dump is never changed; leave --dump out");
        return Err(Error::new(Errno::RoFs, what));
    }
    Ok(())
}

/// Nobody is connected, and nobody can come while it lives.
struct Alone<'a>(&'a Server);

impl<'a> Alone<'a> {
    fn new(host: &'a Host) -> Result<Alone<'a>, Error> {
        let there = host.server.who().iter().filter(|p| p.fids > 0).count();
        if there > 0 {
            let name = &host.shared.name;
            let what = format!(
                "check --fix: {there} clients are connected (`ashlar fs who {name}`): `ashlar fs \
                 attaches {name} off` and `ashlar fs hangup {name} NUMBER` first"
            );
            return Err(Error::new(Errno::Busy, what));
        }
        if host.server.mending.replace(true) {
            return Err(Error::new(Errno::Busy, "check --fix: another one is at work"));
        }
        Ok(Alone(&host.server))
    }
}

impl Drop for Alone<'_> {
    fn drop(&mut self) {
        self.0.mending.set(false);
    }
}

/// What is mended before anything is looked at; a line for each repair.
async fn mend(host: &Host, fs: &Served, args: &Args) -> Result<Vec<String>, Error> {
    let (fix, dry) = (args.flag("fix"), args.flag("dry"));
    let mut mended = Vec::new();
    // Before anything is removed: all of it is done, or nothing.
    let _alone = (fix && !dry).then(|| Alone::new(host)).transpose()?;
    if args.flag("rtmp") {
        let gone = fs.remove_temporary(ADM).await.map_err(about("check --rtmp"))?;
        mended.extend(gone.into_iter().map(|path| format!("{path} is removed")));
    }
    if fix {
        let done = fs.mend(args.flag("rdall"), dry).await;
        mended.extend(done.map_err(about("check --fix"))?);
    }
    Ok(mended)
}

/// Names of files, of directories, or of both; of many the first.
async fn names(fs: &Served, view: View, args: &Args) -> Result<Vec<String>, Error> {
    let (files, dirs) = (args.flag("pfile"), args.flag("pdir"));
    let wanted = |i: &Inode| if i.kind == Kind::Dir { dirs } else { files };
    let mut out = fs.paths_of(view, wanted, NAMED_MAX).await.map_err(about("check"))?;
    out.sort_unstable();
    Ok(out)
}

async fn check(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    let fs = host.files()?;
    refuse(&args)?;
    let mended = mend(&host, &fs, &args).await?;
    let mut views = Vec::new();
    match args.text("dump") {
        None => views.push((View::Live, "the live tree".to_owned())),
        Some(word) => {
            let all = match word {
                "all" => fs.dumps(),
                word => vec![paths::dump(&host, &fs, word)?],
            };
            for d in all {
                let (year, day) = d.path();
                views.push((View::Dump(d.number), format!("/dump/{year}/{day}")));
            }
        }
    }
    let (mut text, mut list, mut faults) = (String::new(), Vec::new(), 0);
    let word = if args.flag("dry") { "would be mended" } else { "mended" };
    for line in &mended {
        let _ = writeln!(text, "{word}: {line}");
    }
    let total = views.len() as u64;
    for (done, (view, what)) in (0..).zip(views) {
        host.said(args.number, format!("check of {what}"), done, total);
        let c = check_one(&fs, view, args.flag("rdall")).await?;
        let n = c.faults.len() as u64 + c.more;
        let named = match args.flag("pfile") || args.flag("pdir") {
            true => names(&fs, view, &args).await?,
            false => Vec::new(),
        };
        named.iter().for_each(|path| {
            let _ = writeln!(text, "{path}");
        });
        faults += n;
        let _ = writeln!(
            text,
            "{what}: {} files, {} directories, {} blocks of files, {} of the tree, the highest \
             {}; {}",
            c.files,
            c.dirs,
            c.blocks,
            c.nodes,
            c.highest,
            match (n, c.leaked) {
                (0, 0) => "all is well".to_owned(),
                (0, leaked) => format!("{leaked} blocks belong to nobody"),
                (n, _) => format!("{n} faults"),
            }
        );
        c.faults.iter().for_each(|f| {
            let _ = writeln!(text, "  {f}");
        });
        if c.more > 0 {
            let _ = writeln!(text, "  and {} more", c.more);
        }
        list.push(json!({
            "view": what, "files": c.files, "dirs": c.dirs, "blocks": c.blocks, "nodes": c.nodes,
            "highest": c.highest, "names": named, "orphans": c.orphans, "leaked": c.leaked,
            "faults": c.faults, "more": c.more,
        }));
    }
    Ok(json!({ "text": text, "checked": list, "faults": faults, "mended": mended }))
}

pub(super) const SYNC: Command = Command {
    spec: VerbSpec {
        name: "sync",
        doc: "Make what was written durable",
        detail: "",
        args: &[NAME],
        example: "fs sync main",
        writes: false,
    },
    run: |host, _| {
        Box::pin(async move {
            host.files()?.sync().await.map_err(|f| error(&f))?;
            Ok(json!({ "message": "all is durable" }))
        })
    },
};

pub(super) const GROW: Command = Command {
    spec: VerbSpec {
        name: "grow",
        doc: "Use what its devices have grown by",
        detail: "It is noticed within seconds without this too. A cache device can grow to four \
                 times the size that it was made with; the WORM is as large as its smallest \
                 device. The cache device of an image keeps the size that its header says: \
                 `recover` makes a larger one from the WORM.",
        args: &[NAME],
        example: "fs grow main",
        writes: true,
    },
    run: |host, _| {
        Box::pin(async move {
            let fs = host.files()?;
            let came = fs.grow().await.map_err(|f| error(&f))?;
            host.look();
            let kept = fs.cache_keeps_its_size();
            if came == 0
                && let Some(why) = &kept
            {
                return Err(error(why));
            }
            let f = fs.facts();
            let text = match fs {
                Served::Volume(_) => format!(
                    "the cache device has {} blocks, {came} more than before; the WORM has {}",
                    f.slots, f.worm
                ),
                Served::Image(_) => {
                    let kept = kept.map(|why| format!("; {why}")).unwrap_or_default();
                    format!("the WORM has {} blocks, {came} more than before{kept}", f.worm)
                }
            };
            Ok(json!({ "message": text, "slots": f.slots, "came": came, "worm": f.worm }))
        })
    },
};

pub(super) const HALT: Command = Command {
    spec: VerbSpec {
        name: "halt",
        doc: "Serve nobody any more, and make everything durable",
        detail: "Clients are cut off. Its devices stay its own; another server that reaches the \
                 WORM may take it at once. `fs start` opens it again.",
        args: &[NAME],
        example: "fs halt main",
        writes: false,
    },
    run: |host, _| {
        Box::pin(async move {
            host.files()?;
            let done = host.halt().await;
            host.shared.report(|s| s.phase = Phase::Halted);
            let text = match &done {
                Ok(()) => "halted; all is durable".to_owned(),
                Err(e) => format!("halted; what was not durable before is lost: {}", e.what),
            };
            Ok(json!({ "message": text, "durable": done.is_ok() }))
        })
    },
};

pub(super) const START: Command = Command {
    spec: VerbSpec {
        name: "start",
        doc: "Open one that was halted or refused to open",
        detail: "",
        args: &[NAME],
        example: "fs start main",
        writes: false,
    },
    run: |host, _| {
        Box::pin(async move {
            idle(&host)?;
            host.open(false).await;
            outcome(&host, "it serves its files")
        })
    },
};

/// It has no files open.
fn idle(host: &Host) -> Result<(), Error> {
    match host.shared.status().phase {
        Phase::Refused(..) | Phase::Halted => Ok(()),
        Phase::Serving => {
            let what = format!("it is serving: `ashlar fs halt {}` first", host.shared.name);
            Err(Error::new(Errno::Busy, what))
        }
        _ => Err(Error::new(Errno::Again, "it is on its way: look at `ashlar fs status`")),
    }
}

fn outcome(host: &Host, good: &str) -> Result<Value, Error> {
    match host.shared.status().phase {
        Phase::Refused(why, next) => Err(Error::new(Errno::NxIo, format!("{why}; {next}"))),
        _ => Ok(json!({ "message": good })),
    }
}

pub(super) const REAM: Command = Command {
    spec: VerbSpec {
        name: "ream",
        doc: "Make a new file system on its devices; what they hold is lost",
        detail: "Devices that hold something are refused: what is recognised has to be named with \
                 --yes-destroy, a device each, and --force allows what file servers wrote.",
        args: &[
            NAME,
            YES_DESTROY,
            ArgSpec {
                name: "force",
                short: Some('f'),
                kind: ArgKind::Flag,
                doc: "Destroy what is there, every dump of it",
            },
        ],
        example: "fs ream main",
        writes: true,
    },
    run: |host, args| Box::pin(ream(host, args)),
};

async fn ream(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    idle(&host)?;
    if !args.flag("force") && !host.is_blank().await {
        let what = "its devices hold something; --force destroys it, every dump with it";
        return Err(Error::new(Errno::Busy, what));
    }
    host.ream().await.map_err(about("ream"))?;
    host.open(false).await;
    outcome(&host, "a new file system; it serves its files")
}

pub(super) const RECOVER: Command = Command {
    spec: VerbSpec {
        name: "recover",
        doc: "Begin again from a dump of the WORM",
        detail: "For a cache device that was lost, and for a standby that takes over. What was \
                 written after that dump is not in it. Whoever had the WORM is fenced: it notices, \
                 and changes nothing any more. The cache device is made new, so one that holds a \
                 volume is refused without --force. --dump goes back to an older dump than the \
                 newest, when that one is spoilt: those after it stay readable under /dump, and \
                 the next is written behind them.",
        args: &[
            NAME,
            ArgSpec {
                name: "force",
                short: Some('f'),
                kind: ArgKind::Flag,
                doc: "Give up what the cache device holds beyond that dump",
            },
            ArgSpec {
                name: "dump",
                short: None,
                kind: ArgKind::Text,
                doc: "The dump, as 2026/1121, `last` or `yesterday`; else the newest",
            },
        ],
        example: "fs recover standby --force --dump 2026/1121",
        writes: true,
    },
    run: |host, args| Box::pin(recover(host, args)),
};

async fn recover(host: Rc<Host>, args: Args) -> Result<Value, Error> {
    idle(&host)?;
    if !args.flag("force") && host.is_formatted().await {
        let name = &host.shared.name;
        let what = format!(
            "its cache device holds a volume, which `ashlar fs start {name}` opens; to give up \
             what that holds beyond the newest dump, `ashlar fs recover {name} --force`",
        );
        return Err(Error::new(Errno::Busy, what));
    }
    let from = match args.text("dump") {
        None => None,
        Some(word) => {
            let all = host.recoverable().await.map_err(about("recover"))?;
            let Some(dump) = paths::chosen(&host, &all, word) else {
                return Err(Error::new(Errno::NoEnt, none_such(word, &all)));
            };
            Some(dump)
        }
    };
    let from = host.recover(from.as_ref()).await.map_err(about("recover"))?;
    host.open(false).await;
    let name = &host.shared.name;
    let temporary = match host.files() {
        // Of a volume they go by themselves.
        Ok(Served::Image(_)) => format!(
            "; temporary files are there by name only, and `ashlar fs check {name} --rtmp` \
             removes them"
        ),
        _ => String::new(),
    };
    outcome(&host, &format!("it goes on from {from}; it serves its files{temporary}"))
}

/// Why a dump cannot be recovered, and which can.
fn none_such(word: &str, all: &[Dump]) -> String {
    let name = |d: &Dump| {
        let (year, day) = d.path();
        format!("{year}/{day}")
    };
    match all {
        [] => format!("no dump {word}: an image goes on from its newest superblock only"),
        [one] => format!("no dump {word}: the WORM has {} only", name(one)),
        [first, .., last] => format!(
            "no dump {word}: the WORM has {}, from {} to {}",
            all.len(),
            name(first),
            name(last)
        ),
    }
}
