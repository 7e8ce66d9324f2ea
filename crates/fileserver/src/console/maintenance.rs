//! Making, stopping and starting.

use std::rc::Rc;

use bio::Errno;
use geom::{Consent, Error, MessageAnswer};
use schemars::JsonSchema;
use serde::Deserialize;

use super::{FsVerb, about, answers, error, paths};
use crate::files::Served;
use crate::service::{Host, Phase};
use crate::volume::Dump;

answers! {
    /// Sizes after the devices grew.
    Grown {
        /// Result in one sentence.
        message: String,
        /// Blocks of the cache device.
        slots: u64,
        /// Blocks more than before.
        came: u64,
        /// Blocks of the WORM.
        worm: u64,
    }
    /// The end of the service.
    Halted {
        /// Result in one sentence.
        message: String,
        /// False: data that was not durable is lost.
        durable: bool,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Sync {}

impl FsVerb for Sync {
    const NAME: &'static str = "sync";
    const DOC: &'static str = "Make written data durable";
    const EXAMPLE: &'static str = "fs sync main";
    type Answer = MessageAnswer;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<MessageAnswer, Error> {
        host.files()?.sync().await.map_err(|f| error(&f))?;
        Ok(MessageAnswer::new("all is durable"))
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Grow {}

impl FsVerb for Grow {
    const NAME: &'static str = "grow";
    const DOC: &'static str = "Use the new space of grown devices";
    const DETAIL: &'static str = "New space is also noticed within seconds without this command. A \
         cache device can grow to four times its original size; the WORM has the size of its \
         smallest device. The cache device of an image keeps the size in its header: `recover` \
         creates a larger one from the WORM.";
    const EXAMPLE: &'static str = "fs grow main";
    const WRITES: bool = true;
    type Answer = Grown;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Grown, Error> {
        let fs = host.files()?;
        let came = fs.grow().await.map_err(|f| error(&f))?;
        host.update_status();
        let kept = fs.cache_keeps_its_size();
        if came == 0
            && let Some(why) = &kept
        {
            return Err(error(why));
        }
        let f = fs.facts();
        let message = match fs {
            Served::Volume(_) => format!(
                "the cache device has {} blocks, {came} more than before; the WORM has {}",
                f.slots, f.worm
            ),
            Served::Image(_) => {
                let kept = kept.map(|why| format!("; {why}")).unwrap_or_default();
                format!("the WORM has {} blocks, {came} more than before{kept}", f.worm)
            }
        };
        Ok(Grown { message, slots: f.slots, came, worm: f.worm })
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Halt {}

impl FsVerb for Halt {
    const NAME: &'static str = "halt";
    const DOC: &'static str = "Stop serving and make everything durable";
    const DETAIL: &'static str = "Clients are disconnected. The devices stay assigned to the file \
         server; another server that reaches the WORM can take it over at once. `fs start` opens \
         it again.";
    const EXAMPLE: &'static str = "fs halt main";
    type Answer = Halted;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Halted, Error> {
        host.files()?;
        let done = host.halt().await;
        host.shared.update_status(|s| s.phase = Phase::Halted);
        let message = match &done {
            Ok(()) => "halted; all is durable".to_owned(),
            Err(e) => format!("halted; data that was not durable is lost: {}", e.message),
        };
        Ok(Halted { message, durable: done.is_ok() })
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Start {}

impl FsVerb for Start {
    const NAME: &'static str = "start";
    const DOC: &'static str = "Open a file server that is halted or failed to open";
    const EXAMPLE: &'static str = "fs start main";
    type Answer = MessageAnswer;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<MessageAnswer, Error> {
        check_idle(host)?;
        host.open(false).await;
        outcome(host, "serving files")
    }
}

/// It has no files open.
fn check_idle(host: &Host) -> Result<(), Error> {
    match host.shared.status().phase {
        Phase::Refused(..) | Phase::Halted => Ok(()),
        Phase::Serving => {
            let what = format!("already serving: `ashlar fs halt {}` first", host.shared.name);
            Err(Error::new(Errno::Busy, what))
        }
        _ => Err(Error::new(Errno::Again, "busy starting or halting: see `ashlar fs status`")),
    }
}

fn outcome(host: &Host, good: &str) -> Result<MessageAnswer, Error> {
    match host.shared.status().phase {
        Phase::Refused(why, next) => Err(Error::new(Errno::NxIo, format!("{why}; {next}"))),
        _ => Ok(MessageAnswer::new(good)),
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Ream {
    /// Name of a device whose contents may be lost
    #[serde(rename = "yes_destroy")]
    _consent: Consent,
    /// Destroy an existing file system with all its dumps
    #[schemars(extend("x-short" = "f"))]
    force: bool,
}

impl FsVerb for Ream {
    const NAME: &'static str = "ream";
    const DOC: &'static str = "Create a new file system on its devices; contents are lost";
    const DETAIL: &'static str = "Devices with contents are refused: each device with recognised \
         contents must be named with --yes-destroy, and --force allows devices that a file server \
         wrote.";
    const EXAMPLE: &'static str = "fs ream main";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<MessageAnswer, Error> {
        check_idle(host)?;
        if !self.force && !host.is_blank().await {
            let what = "devices are not blank; --force destroys their contents, including every \
                        dump";
            return Err(Error::new(Errno::Busy, what));
        }
        host.ream().await.map_err(about("ream"))?;
        host.open(false).await;
        outcome(host, "new file system created; serving files")
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Recover {
    /// Discard data on the cache device that is newer than the dump
    #[schemars(extend("x-short" = "f"))]
    force: bool,
    /// Dump: 2026/1121, `yesterday` or `last` [default: the newest]
    dump: Option<String>,
}

impl FsVerb for Recover {
    const NAME: &'static str = "recover";
    const DOC: &'static str = "Restore the file system from a dump on the WORM";
    const DETAIL: &'static str = "For a lost cache device, and for a standby that takes over. Data \
         written after that dump is lost. The previous server of the WORM is fenced: it notices \
         this and makes no more changes. The cache device is initialised, so a cache device with a \
         volume is refused without --force. --dump selects an older dump if the newest is damaged: \
         later dumps stay readable under /dump, and the next dump is written behind them.";
    const EXAMPLE: &'static str = "fs recover standby --force --dump 2026/1121";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<MessageAnswer, Error> {
        check_idle(host)?;
        if !self.force && host.is_formatted().await {
            let name = &host.shared.name;
            let what = format!(
                "the cache device has a volume, which `ashlar fs start {name}` opens; to discard \
                 its data after the newest dump, `ashlar fs recover {name} --force`",
            );
            return Err(Error::new(Errno::Busy, what));
        }
        let from = match self.dump.as_deref() {
            None => None,
            Some(word) => {
                let all = host.recoverable().await.map_err(about("recover"))?;
                let Some(dump) = paths::chosen(host, &all, word) else {
                    return Err(Error::new(Errno::NoEnt, unknown_dump(word, &all)));
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
        outcome(host, &format!("restored from {from}; serving files{temporary}"))
    }
}

/// Why a dump cannot be recovered, and which can.
fn unknown_dump(word: &str, all: &[Dump]) -> String {
    let name = |d: &Dump| {
        let (year, day) = d.path();
        format!("{year}/{day}")
    };
    match all {
        [] => format!("no dump {word}: an image continues from its newest superblock only"),
        [one] => format!("no dump {word}: the WORM has {} only", name(one)),
        [first, .., last] => format!(
            "no dump {word}: the WORM has {}, from {} to {}",
            all.len(),
            name(first),
            name(last)
        ),
    }
}
