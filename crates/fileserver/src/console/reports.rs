//! Reports of a file server's state.

use std::fmt::Write;
use std::rc::Rc;

use geom::Error;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{FsVerb, Text, about, answers, paths};
use crate::config::{Filsys, Settings};
use crate::files::{Flags, Kind};
use crate::service::{Host, Rate, format_time};
use crate::volume::{Facts, Report, percent};

/// Addresses of a file's blocks that `fstat` shows; `clean` lists them all.
const BLOCKS_SHOWN: usize = 8;

answers! {
    /// The activity of the file server.
    Counts {
        /// Result for people.
        text: String,
        /// Cache and WORM.
        volume: Facts,
        /// Rates over the last 10, 100 and 1000 seconds.
        rates: Vec<Rate>,
        /// Connected clients.
        clients: usize,
        /// Requests answered.
        requests: u64,
        /// Bytes that clients read.
        read: u64,
        /// Bytes that clients wrote.
        written: u64,
    }
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
    /// The metadata of a file.
    OfFile {
        /// Result for people.
        text: String,
        /// Number of the file.
        file: u64,
        /// Version, which each change of the file raises.
        version: u64,
        /// Permission bits.
        mode: u32,
        /// Whether it is a directory.
        directory: bool,
        /// Owner.
        uid: String,
        /// Group.
        gid: String,
        /// User that changed it last.
        muid: String,
        /// Size, bytes.
        bytes: u64,
        /// Entries of a directory.
        entries: u64,
        /// Time of the last change, ns since 1970.
        mtime_ns: u64,
        /// Time of the last read, ns since 1970.
        atime_ns: u64,
    }
    /// The version of the program.
    Program {
        /// Result in one sentence.
        message: String,
        /// Version of the program.
        version: &'static str,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Stats {}

impl FsVerb for Stats {
    const NAME: &'static str = "stats";
    const DOC: &'static str = "Show block cache, cache device, WORM and client activity";
    const DETAIL: &'static str =
        "Rates are averages over the last 10, 100 and 1000 seconds; recent seconds count more.";
    const EXAMPLE: &'static str = "fs stats main";
    type Answer = Counts;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Counts, Error> {
        let f = host.files()?.facts();
        let who = host.server.clients();
        let sum = |get: fn(&crate::ninep::ClientInfo) -> u64| who.iter().map(get).sum::<u64>();
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
        let _ = writeln!(t, "ahead     {ahead}; {came} blocks read, {full} left out");
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
                "damage    {} blocks of the cache device, {} of the WORM repaired from another \
                 device",
                f.bad_slots, f.mended
            );
        }
        if let Some(why) = &f.refused {
            let _ = writeln!(t, "refused   {why}");
        }
        let (rates, clients) = (host.rates.borrow().list(), who.len());
        Ok(Counts { text: t, volume: f, rates, clients, requests, read, written })
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Statw {}

impl FsVerb for Statw {
    const NAME: &'static str = "statw";
    const DOC: &'static str = "Show the state of each device of the WORM";
    const DETAIL: &'static str = "Missing dumps are copied automatically, to each device at its \
         own pace; clients never wait for a device.";
    const EXAMPLE: &'static str = "fs statw main";
    type Answer = Devices;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Devices, Error> {
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
        // Blocks that no device of the WORM has yet are on the cache device, and so are blocks that
        // were read or written lately.
        let dump = legs.iter().map(|l| l.behind).min().unwrap_or(0);
        let read = f.slots_used.saturating_sub(dump + f.live + f.scratch);
        let none = f.frozen.saturating_sub(dump + read);
        let (last, next) = (f.sb_last, f.sb_next);
        let (dirty, temporary) = (f.live, f.scratch);
        let _ = writeln!(
            t,
            "blocks    {dirty} dirty, {dump} dump, {read} read, {none} none; {temporary} temporary"
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
    }
}

/// A time as people write it: 0:00:03.
fn span(ns: u64) -> String {
    let s = ns / 1_000_000_000;
    format!("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60)
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Fstat {
    /// Path from the root; /dump/2026/1121/... for a file of a dump
    path: String,
}

impl FsVerb for Fstat {
    const NAME: &'static str = "fstat";
    const DOC: &'static str = "Show all metadata of a file";
    const POSITIONAL: &'static [&'static str] = &["path"];
    const EXAMPLE: &'static str = "fs fstat main /adm/users";
    type Answer = OfFile;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<OfFile, Error> {
        let fs = host.files()?;
        let found = paths::find_existing(host, &fs, &self.path).await?;
        let (i, users) = (&found.inode, host.server.users());
        let some = fs.run(|f| f.blocks(found.view, found.ino, BLOCKS_SHOWN)).await;
        let some = some.map_err(about(&self.path))?;
        let mut t = String::new();
        let (uid, gid, muid) = (users.name(i.uid), users.name(i.gid), users.name(i.muid));
        let _ = writeln!(t, "file      {} version {}", found.ino, i.version);
        let _ = writeln!(t, "mode      {}", mode(i.kind, i.flags, i.mode));
        let _ = writeln!(t, "owner     {uid}, group {gid}; {muid} changed it last");
        let _ = writeln!(t, "size      {} bytes, {} entries", i.size, i.entries);
        if i.kind == Kind::File {
            let addresses: Vec<String> = some.iter().map(|(_, addr)| addr.to_string()).collect();
            let more = if some.len() == BLOCKS_SHOWN { " ..." } else { "" };
            let _ = writeln!(t, "blocks    {}{more}", addresses.join(" "));
        }
        let _ = writeln!(t, "modified  {}", format_time(host, i.mtime_ns));
        let _ = writeln!(t, "read      {}", format_time(host, i.atime_ns));
        Ok(OfFile {
            text: t,
            file: found.ino,
            version: i.version,
            mode: i.mode,
            directory: i.kind == Kind::Dir,
            uid,
            gid,
            muid,
            bytes: i.size,
            entries: i.entries,
            mtime_ns: i.mtime_ns,
            atime_ns: i.atime_ns,
        })
    }
}

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

#[derive(Deserialize, JsonSchema)]
pub(super) struct Printconf {}

impl FsVerb for Printconf {
    const NAME: &'static str = "printconf";
    const DOC: &'static str = "Print the configuration in the format of Plan 9 file servers";
    const EXAMPLE: &'static str = "fs printconf main";
    type Answer = Text;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Text, Error> {
        let params = host.shared.params();
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
        Ok(Text { text: settings.to_string() })
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Version {}

impl FsVerb for Version {
    const NAME: &'static str = "version";
    const DOC: &'static str = "Show the program version";
    const EXAMPLE: &'static str = "fs version main";
    type Answer = Program;

    async fn run(self, _: &Rc<Host>, _: u64) -> Result<Program, Error> {
        let version = env!("CARGO_PKG_VERSION");
        Ok(Program { message: format!("ashlar {version}"), version })
    }
}
