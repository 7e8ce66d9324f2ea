//! The verb `recover`: a file system restored from a dump.

use bio::Errno;
use geom::{Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::start::{check_idle, outcome};
use super::{Call, FileServer, Running, about, paths};
use crate::files::Served;
use crate::volume::Dump;

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Recover {
    /// Discard data on the cache device that is newer than the dump
    #[schemars(extend("x-short" = "f"))]
    force: bool,
    /// Dump: 2026/1121, `yesterday` or `last` [default: the newest]
    dump: Option<String>,
}

impl Verb<FileServer> for Recover {
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

    fn run(self, Call { host, .. }: Call) -> Running<MessageAnswer> {
        Box::pin(async move {
            check_idle(&host)?;
            if !self.force && host.is_formatted().await {
                let name = &host.shared.name;
                let what = format!(
                    "the cache device has a volume, which `ashlar fs start {name}` opens; to \
                     discard its data after the newest dump, `ashlar fs recover {name} --force`",
                );
                return Err(Error::new(Errno::Busy, what));
            }
            let from = match self.dump.as_deref() {
                None => None,
                Some(word) => {
                    let all = host.recoverable().await.map_err(about("recover"))?;
                    let Some(dump) = paths::chosen(&host, &all, word) else {
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
            outcome(&host, &format!("restored from {from}; serving files{temporary}"))
        })
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
