//! The verb `clean`: the block addresses of a file, and edits of one.

use std::fmt::Write;

use geom::Verb;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::clri::check_live;
use super::{Call, FileServer, Running, about, paths};
use crate::volume::View;

/// Addresses that `clean` lists at most.
const LISTED_MAX: usize = 4096;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Clean {
    /// Path from the root: /tmp/x
    path: String,
    /// Block number in the file, from 0 [default: list all blocks]
    block: Option<u64>,
    /// New address of the block
    #[serde(default)]
    address: u64,
}

/// The changed block, or the blocks of the file.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Cleaned {
    /// The changed block.
    Set {
        /// Result in one sentence.
        message: String,
        /// Former address of the block; 0: a hole.
        was: u64,
    },
    /// The blocks of the file.
    Blocks {
        /// Result for people.
        text: String,
        /// Number in the file and address of each block.
        blocks: Vec<(u64, u64)>,
        /// True: the file is in the live tree, false: in a dump.
        live: bool,
    },
}

impl Verb<FileServer> for Clean {
    const NAME: &'static str = "clean";
    const DOC: &'static str = "List the blocks of a file, or change the address of one";
    const DETAIL: &'static str = "Without --block, one line per block: its number in the file and \
         its address. With --block and --address, the block of the file gets that address; 0 is a \
         hole, which reads as zeroes, for a damaged block that makes a file unreadable. The former \
         block is free after `fs check NAME --fix`. In an image a block can only become a hole.";
    const POSITIONAL: &'static [&'static str] = &["name", "path"];
    const EXAMPLE: &'static str = "fs clean main /tmp/x --block 3 --address 0";
    const WRITES: bool = true;
    type Answer = Cleaned;

    fn run(self, Call { host, .. }: Call) -> Running<Cleaned> {
        Box::pin(async move {
            let fs = host.files()?;
            let path = self.path.as_str();
            let found = paths::find_existing(&host, &fs, path).await?;
            if let Some(block) = self.block {
                check_live(path)?;
                let addr = self.address;
                let was = fs.set_block_addr(found.ino, block, addr).await.map_err(about(path))?;
                let message = format!("{path}: block {block} is {addr}, was {was}");
                return Ok(Cleaned::Set { message, was });
            }
            let blocks = fs.run(|f| f.blocks(found.view, found.ino, LISTED_MAX)).await;
            let blocks = blocks.map_err(about(path))?;
            let mut text = String::new();
            for (block, addr) in &blocks {
                let _ = writeln!(text, "{block:>8} {addr}");
            }
            Ok(Cleaned::Blocks { text, blocks, live: found.view == View::Live })
        })
    }
}
