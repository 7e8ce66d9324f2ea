//! Taking dumps, and naming them.

use std::fmt::Write;
use std::rc::Rc;

use geom::Error;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{FsVerb, Switch, Switched, about, answers};
use crate::files::Served;
use crate::service::{Host, format_time};

answers! {
    /// The dump that was taken.
    Taken {
        /// Result in one sentence.
        message: String,
        /// Path of the dump from the root.
        path: String,
        /// Blocks that the dump has in addition to earlier ones.
        blocks: u64,
        /// Number of the dump.
        number: u32,
    }
    /// One dump.
    OneDump {
        /// Path of the dump below /dump.
        path: String,
        /// Time of the dump, ns since 1970.
        time_ns: u64,
        /// Bytes that the dump has in addition to earlier ones; null: unknown.
        bytes: Option<u64>,
        /// Devices of the WORM that have the whole dump.
        on: Vec<String>,
        /// Number of the dump.
        number: u32,
        /// Address of its superblock, in blocks; null for an image.
        superblock: Option<u64>,
        /// First address after the dump, in blocks; null for an image.
        next: Option<u64>,
        /// Address of the root of its tree, in blocks.
        root: u64,
    }
    /// The dumps, oldest first.
    Listed {
        /// Result for people.
        text: String,
        /// Each dump.
        dumps: Vec<OneDump>,
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Dump {
    /// Return when a device of the WORM has the dump
    #[schemars(extend("x-short" = "w"))]
    wait: bool,
}

impl FsVerb for Dump {
    const NAME: &'static str = "dump";
    const DOC: &'static str = "Take a dump now";
    const DETAIL: &'static str = "The current tree becomes permanently readable as \
         /dump/YEAR/MMDD, the second dump of a day as MMDD1. Clients are served meanwhile. The \
         dump is durable on the cache device when the verb ends; with --wait, on a device of the \
         WORM.";
    const EXAMPLE: &'static str = "fs dump main --wait";
    const WRITES: bool = true;
    type Answer = Taken;

    async fn run(self, host: &Rc<Host>, number: u64) -> Result<Taken, Error> {
        let taken = host.dump().await?;
        let (year, day) = taken.path();
        let fs = host.files()?;
        let blocks = fs.blocks_of(&taken).unwrap_or_default();
        if self.wait {
            let name = host.shared.name.clone();
            loop {
                let behind = fs.members().iter().map(|l| l.behind).min().unwrap_or(0);
                let done = blocks.saturating_sub(behind);
                host.report_progress(
                    number,
                    format!("dump {name}: blocks to the WORM"),
                    done,
                    blocks,
                );
                let copied = fs.copied(&taken);
                match host.within(250_000_000, copied).await {
                    Some(done) => break done.map_err(about("copying"))?,
                    None => continue,
                }
            }
            host.update_status();
        }
        let path = format!("/dump/{year}/{day}");
        let message = format!("{path}: {blocks} blocks");
        Ok(Taken { message, path, blocks, number: taken.number })
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Dumps {}

impl FsVerb for Dumps {
    const NAME: &'static str = "dumps";
    const DOC: &'static str = "List the dumps";
    const DETAIL: &'static str = "Bytes are those that a dump has in addition to earlier dumps. An \
         image does not store this number: it is known only for dumps taken since the image was \
         opened.";
    const EXAMPLE: &'static str = "fs dumps main";
    type Answer = Listed;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Listed, Error> {
        let fs = host.files()?;
        let block = fs.facts().block;
        let legs = fs.members();
        let mut text = format!("{:<16} {:<19} {:>12}  where\n", "dump", "taken", "bytes");
        let mut all = Vec::new();
        // An image's dump is not one range of the WORM.
        let of_a_range = |at: u64| matches!(fs, Served::Volume(_)).then_some(at);
        for d in fs.dumps() {
            let (year, day) = d.path();
            let on: Vec<String> =
                legs.iter().filter(|l| fs.is_on(&d, l)).map(|l| l.name.clone()).collect();
            let bytes = fs.blocks_of(&d).map(|n| n * block);
            let size = bytes.map_or("-".to_owned(), |n| n.to_string());
            let place =
                if on.is_empty() { "the cache device alone".to_owned() } else { on.join(" ") };
            let path = format!("{year}/{day}");
            let taken = format_time(host, d.time_ns);
            let _ = writeln!(text, "{path:<16} {taken:<19} {size:>12}  {place}");
            let (superblock, next) = (of_a_range(d.sb), of_a_range(d.next));
            let (time_ns, number, root) = (d.time_ns, d.number, d.root);
            all.push(OneDump { path, time_ns, bytes, on, number, superblock, next, root });
        }
        if all.is_empty() {
            text = format!("none yet; `ashlar fs dump {}` takes one\n", host.shared.name);
        }
        Ok(Listed { text, dumps: all })
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Dumpctl {
    /// New state [default: show the state]
    what: Option<Switch>,
}

impl FsVerb for Dumpctl {
    const NAME: &'static str = "dumpctl";
    const DOC: &'static str = "Switch daily dumps on or off, or show the state";
    const DETAIL: &'static str = "The setting lasts until the next start; `nodump` in the \
         configuration makes it permanent, and `dump_at` sets the time. `fs dump` does not depend \
         on this setting. A standby takes no daily dumps before it has taken over.";
    const POSITIONAL: &'static [&'static str] = &["what"];
    const EXAMPLE: &'static str = "fs dumpctl main off";
    type Answer = Switched;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Switched, Error> {
        if let Some(on) = self.what.map(Switch::is_on) {
            host.dumps_on.set(on);
            host.update_status();
        }
        let on = host.dumps_on.get();
        let what = match (on, host.shared.params().dump_at()) {
            (true, Ok(None)) => "no dumps by the clock: `dump_at` of its configuration is never",
            (true, _) => "dumps are taken by the clock",
            (false, _) => "no dumps by the clock",
        };
        Ok(Switched { message: what, on })
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Copying {
    /// New state [default: show the state]
    what: Option<Switch>,
}

impl FsVerb for Copying {
    const NAME: &'static str = "copying";
    const DOC: &'static str = "Switch copying of dumps to the WORM, or show the state";
    const DETAIL: &'static str = "While copying is off, dumps can still be taken and stay on the \
         cache device, for example to free the network for other traffic. The setting lasts until \
         the next start.";
    const POSITIONAL: &'static [&'static str] = &["what"];
    const EXAMPLE: &'static str = "fs copying main off";
    type Answer = Switched;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Switched, Error> {
        let (fs, switch) = (host.files()?, self.what.map(Switch::is_on));
        if let Some(on) = switch {
            fs.set_copying(on);
            host.update_status();
        }
        let on = fs.is_copying();
        let what = if on { "dumps are copied to the WORM" } else { "nothing is copied" };
        Ok(Switched { message: what, on })
    }
}
