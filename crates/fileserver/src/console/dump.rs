//! The verb `dump`: a dump of the current tree.

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, about, answers};

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
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Dump {
    /// Return when a device of the WORM has the dump
    #[schemars(extend("x-short" = "w"))]
    wait: bool,
}

impl Verb<FileServer> for Dump {
    const NAME: &'static str = "dump";
    const DOC: &'static str = "Take a dump now";
    const DETAIL: &'static str = "The current tree becomes permanently readable as \
         /dump/YEAR/MMDD, the second dump of a day as MMDD1. Clients are served meanwhile. The \
         dump is durable on the cache device when the verb ends; with --wait, on a device of the \
         WORM.";
    const EXAMPLE: &'static str = "fs dump main --wait";
    const WRITES: bool = true;
    type Answer = Taken;

    fn run(self, Call { host, number }: Call) -> Running<Taken> {
        Box::pin(async move {
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
        })
    }
}
