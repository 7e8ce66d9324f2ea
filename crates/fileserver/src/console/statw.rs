//! The verb `statw`: the state of each device of the WORM.

use std::fmt::Write;

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, answers};
use crate::volume::Report;

answers! {
    /// Blocks in each state; none without a WORM.
    States {
        #[serde(flatten)]
        known: Option<Blocks>,
    }
    /// Blocks in each state.
    Blocks {
        /// Blocks that the next dump will contain.
        dirty: u64,
        /// Blocks of dumps that no device of the WORM has yet.
        dump: u64,
        /// Blocks of the WORM that are on the cache device too.
        read: u64,
        /// Blocks of the WORM that are not on the cache device.
        none: u64,
        /// Blocks that no dump will contain.
        temporary: u64,
    }
    /// The state of the WORM.
    Worm {
        /// Whether missing dumps are copied.
        copying: bool,
        /// Address of the last dump's superblock; 0: none.
        superblock: u64,
        /// Address of the next dump's superblock; null: unknown.
        next_superblock: Option<u64>,
    }
    /// The devices of the WORM.
    Devices {
        /// Result for people.
        text: String,
        /// Each device.
        legs: Vec<Report>,
        /// Blocks in each state.
        states: States,
        #[serde(flatten)]
        worm: Option<Worm>,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Statw {}

impl Verb<FileServer> for Statw {
    const NAME: &'static str = "statw";
    const DOC: &'static str = "Show the state of each device of the WORM";
    const DETAIL: &'static str = "Missing dumps are copied automatically, to each device at its \
         own pace; clients never wait for a device.";
    const EXAMPLE: &'static str = "fs statw main";
    type Answer = Devices;

    fn run(self, Call { host, .. }: Call) -> Running<Devices> {
        Box::pin(async move {
            let fs = host.files()?;
            let (f, legs) = (fs.facts(), fs.members());
            if legs.is_empty() {
                let text = "no WORM\n".to_owned();
                return Ok(Devices { text, legs, states: States { known: None }, worm: None });
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
            // Blocks that no device of the WORM has yet are on the cache device, and so are blocks
            // that were read or written lately.
            let dump = legs.iter().map(|l| l.behind).min().unwrap_or(0);
            let read = f.slots_used.saturating_sub(dump + f.live + f.scratch);
            let none = f.frozen.saturating_sub(dump + read);
            let (last, next) = (f.sb_last, f.sb_next);
            let (dirty, temporary) = (f.live, f.scratch);
            let _ = writeln!(
                t,
                "blocks    {dirty} dirty, {dump} dump, {read} read, {none} none; {temporary} \
                 temporary"
            );
            // The address of an image's next superblock is unknown before it is written.
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
            let known = Some(Blocks { dirty, dump, read, none, temporary });
            let (superblock, next_superblock) = (last, (next > 0).then_some(next));
            let worm = Some(Worm { copying, superblock, next_superblock });
            Ok(Devices { text: t, legs, states: States { known }, worm })
        })
    }
}

/// A time as people write it: 0:00:03.
fn span(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}
