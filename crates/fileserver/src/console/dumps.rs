//! The verb `dumps`: a list of the dumps.

use std::fmt::Write;

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, answers};
use crate::files::Served;
use crate::service::format_time;

answers! {
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

#[derive(Deserialize, JsonSchema)]
pub(super) struct Dumps {}

impl Verb<FileServer> for Dumps {
    const NAME: &'static str = "dumps";
    const DOC: &'static str = "List the dumps";
    const DETAIL: &'static str = "Bytes are those that a dump has in addition to earlier dumps. An \
         image does not store this number: it is known only for dumps taken since the image was \
         opened.";
    const EXAMPLE: &'static str = "fs dumps main";
    type Answer = Listed;

    fn run(self, Call { host, .. }: Call) -> Running<Listed> {
        Box::pin(async move {
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
                let taken = format_time(&host, d.time_ns);
                let _ = writeln!(text, "{path:<16} {taken:<19} {size:>12}  {place}");
                let (superblock, next) = (of_a_range(d.sb), of_a_range(d.next));
                let (time_ns, number, root) = (d.time_ns, d.number, d.root);
                all.push(OneDump { path, time_ns, bytes, on, number, superblock, next, root });
            }
            if all.is_empty() {
                text = format!("none yet; `ashlar fs dump {}` takes one\n", host.shared.name);
            }
            Ok(Listed { text, dumps: all })
        })
    }
}
