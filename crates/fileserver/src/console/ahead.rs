//! How much is read ahead.

use std::rc::Rc;

use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};

use super::args::Args;
use super::{Command, NAME};
use crate::service::Host;
use crate::volume::ReadAhead;

pub(super) const AHEAD: Command = Command {
    spec: VerbSpec {
        name: "ahead",
        doc: "Say how much is read ahead of clients who read a file in order",
        detail: "So many blocks are loaded at a time, beside those that clients wait for. Until \
                 the next start; `ahead` and `ahead_bytes` of the configuration say it for good. \
                 `fs stats` counts what came so.",
        args: &[
            NAME,
            ArgSpec {
                name: "workers",
                short: Some('w'),
                kind: ArgKind::Number,
                doc: "Blocks loaded at a time, at most 1000; 0: nothing is read ahead",
            },
            ArgSpec {
                name: "bytes",
                short: Some('b'),
                kind: ArgKind::Bytes,
                doc: "How far ahead, at most 64 MiB",
            },
        ],
        example: "fs ahead main --workers 20",
        writes: false,
    },
    run: |host, args| Box::pin(async move { ahead(&host, &args) }),
};

fn ahead(host: &Rc<Host>, args: &Args) -> Result<Value, Error> {
    let files = host.files()?;
    let mut set = files.read_ahead();
    if let Some(n) = args.number("workers") {
        let n = u32::try_from(n).ok().filter(|n| *n <= ReadAhead::WORKERS_MAX);
        set.workers = n.ok_or_else(|| args.wrong("workers are at most 1000"))?;
    }
    if let Some(n) = args.number("bytes") {
        if n > ReadAhead::BYTES_MAX {
            return Err(args.wrong("bytes are at most 64 MiB"));
        }
        set.bytes = n;
    }
    files.set_read_ahead(set);
    host.look();
    let ReadAhead { workers, bytes } = set;
    let message = match workers {
        0 => "nothing is read ahead".to_owned(),
        n => format!("{bytes} bytes are read ahead by {n} workers"),
    };
    Ok(json!({ "message": message, "workers": workers, "bytes": bytes }))
}
