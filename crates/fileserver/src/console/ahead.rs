//! The setting of read-ahead.

use geom::{Bytes, Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, answers, param_error};
use crate::volume::ReadAhead;

answers! {
    /// The settings of reading ahead.
    Set {
        /// Result in one sentence.
        message: String,
        #[serde(flatten)]
        ahead: ReadAhead,
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Ahead {
    /// Number of blocks prefetched at a time, at most 1000; 0: no read-ahead [default: unchanged]
    #[schemars(extend("x-short" = "w"))]
    workers: Option<u64>,
    /// Read-ahead distance in bytes, at most 64 MiB [default: unchanged]
    #[schemars(extend("x-short" = "b"))]
    bytes: Option<Bytes>,
}

impl Verb<FileServer> for Ahead {
    const NAME: &'static str = "ahead";
    const DOC: &'static str = "Set or show the read-ahead for sequential readers";
    const DETAIL: &'static str = "Blocks are prefetched in addition to those that clients wait \
         for. The setting lasts until the next start; `ahead` and `ahead_bytes` in the \
         configuration make it permanent. `fs stats` counts prefetched blocks.";
    const EXAMPLE: &'static str = "fs ahead main --workers 20";
    type Answer = Set;

    fn run(self, Call { host, .. }: Call) -> Running<Set> {
        Box::pin(async move {
            let files = host.files()?;
            let mut set = files.read_ahead();
            if let Some(n) = self.workers {
                let n = u32::try_from(n).ok().filter(|n| *n <= ReadAhead::WORKERS_MAX);
                set.workers = n.ok_or_else(|| param_error::<Self>("workers are at most 1000"))?;
            }
            if let Some(Bytes(n)) = self.bytes {
                if n > ReadAhead::BYTES_MAX {
                    return Err(param_error::<Self>("bytes are at most 64 MiB"));
                }
                set.bytes = n;
            }
            files.set_read_ahead(set);
            host.update_status();
            let message = match set.workers {
                0 => "nothing is read ahead".to_owned(),
                n => format!("{} bytes are read ahead by {n} workers", set.bytes),
            };
            Ok(Set { message, ahead: set })
        })
    }
}
