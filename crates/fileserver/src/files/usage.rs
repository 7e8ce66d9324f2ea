//! Space that each user owns.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use super::check::{ITEMS, addresses};
use super::{FileSystem, Inode, Kind};
use crate::fault::Fault;
use crate::tree::{Key, Kind as Item};
use crate::volume::{View, is_scratch};

/// The space that a user owns.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Usage {
    /// Files.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Sizes of the files, bytes.
    pub bytes: u64,
    /// Blocks of contents.
    pub blocks: u64,
    /// Those of them that are in no earlier dump: what this dump, or the next, puts on the WORM.
    pub new: u64,
    /// Those that no dump gets.
    pub scratch: u64,
}

impl FileSystem {
    /// The space of each user in a view; blocks of the tree itself have no owner. Reads every item.
    pub async fn usage(&self, view: View) -> Result<BTreeMap<u32, Usage>, Fault> {
        let first = match view {
            View::Live => self.volume.frozen(),
            View::Dump(number) => {
                let dumps = self.volume.dumps();
                let of = dumps.iter().find(|d| d.number == number);
                of.ok_or(Fault::NotFound)?.sb
            }
        };
        let mut out: BTreeMap<u32, Usage> = BTreeMap::new();
        let mut from = Some(Key { ino: 0, kind: 0, offset: 0 });
        let mut owner = (0, 0);
        while let Some(start) = from {
            let items = self.native(|f| f.items(view, start)).await?;
            let last = items.last().filter(|_| items.len() == ITEMS);
            from = last.and_then(|(k, _)| k.next());
            for (key, value) in &items {
                if key.kind == Item::Inode as u8
                    && let Some(i) = Inode::decode(value)
                {
                    owner = (key.ino, i.uid);
                    let of = out.entry(i.uid).or_default();
                    match i.kind {
                        Kind::File => (of.files, of.bytes) = (of.files + 1, of.bytes + i.size),
                        Kind::Dir => of.dirs += 1,
                    }
                } else if key.kind == Item::Run as u8 && key.ino == owner.0 {
                    let of = out.entry(owner.1).or_default();
                    for addr in addresses(view, value) {
                        of.blocks += 1;
                        of.scratch += u64::from(is_scratch(addr));
                        of.new += u64::from(!is_scratch(addr) && addr >= first);
                    }
                }
            }
        }
        Ok(out)
    }
}
