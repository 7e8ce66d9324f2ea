//! The check: everything that a view's tree names is looked at, item by item, in the order of the
//! tree.
//!
//! On a dump it may run at any time. On the live tree it is reliable only while nothing changes the
//! tree: a concurrent change may appear as a fault. So such a check is repeated before a fault is
//! reported. Clients have turns between parts of a check of a dump. During a check of the live tree
//! they have turns only when a block has to be loaded, which leaves less time for changes.

use schemars::JsonSchema;
use serde::Serialize;

use super::contents::RUN;
use super::inode::{decode_entry, decode_names};
use super::{FileSystem, Flags, Ino, Inode, Kind, ROOT, VolumeFiles};
use crate::fault::{Addr, Fault, Stop};
use crate::tree::{self, Below, Key, Kind as Item};
use crate::turn_budget::TurnBudget;
use crate::volume::{View, is_scratch, scratch_index};

/// Items looked at in one step.
pub(super) const ITEMS: usize = 256;
/// Limit of reported faults; further ones are counted.
const FAULTS_MAX: usize = 1000;

/// The result of a check.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Checked {
    /// Files.
    pub files: u64,
    /// Directories.
    pub dirs: u64,
    /// Blocks of contents.
    pub blocks: u64,
    /// Blocks of the tree itself.
    pub nodes: u64,
    /// The highest address of all.
    pub highest: Addr,
    /// Files without a name that wait to be given back.
    pub orphans: u64,
    /// The faults, each with the file that it is about.
    pub faults: Vec<String>,
    /// Number of faults that are not listed.
    pub more: u64,
    /// Blocks of the live tree's own that nothing names, when nothing waits to be given back.
    pub leaked: u64,
}

impl Checked {
    fn fault(&mut self, text: String) {
        if self.faults.len() < FAULTS_MAX {
            self.faults.push(text);
        } else {
            self.more += 1;
        }
    }
}

/// Addresses that were seen.
#[derive(Default)]
pub(super) struct Seen {
    tree: Vec<u64>,
    scratch: Vec<u64>,
}

impl Seen {
    /// False: it was seen before.
    fn add(&mut self, at: Addr) -> bool {
        let (words, at) = match is_scratch(at) {
            true => (&mut self.scratch, scratch_index(at)),
            false => (&mut self.tree, at),
        };
        let (word, bit) = ((at / 64) as usize, 1_u64 << (at % 64));
        if word >= words.len() {
            words.resize(word + 1, 0);
        }
        let before = words[word];
        words[word] |= bit;
        before & bit == 0
    }

    pub(super) fn has(&self, at: Addr) -> bool {
        let (words, at) = match is_scratch(at) {
            true => (&self.scratch, scratch_index(at)),
            false => (&self.tree, at),
        };
        let word = usize::try_from(at / 64).ok().and_then(|i| words.get(i));
        word.is_some_and(|w| w >> (at % 64) & 1 == 1)
    }

    fn highest(&self) -> Addr {
        let word = self.tree.iter().rposition(|w| *w != 0);
        word.map_or(0, |i| i as u64 * 64 + u64::from(self.tree[i].ilog2()))
    }
}

/// The file whose items are being looked at.
#[derive(Default)]
struct CurrentFile {
    ino: Ino,
    inode: Option<Inode>,
    names: u64,
    entries: u64,
}

impl FileSystem {
    /// Checks a view. With `contents`, every block of every file is read and its checksum verified.
    pub async fn check(&self, view: View, contents: bool) -> Result<Checked, Fault> {
        Ok(self.look_at((view, view != View::Live), contents).await?.0)
    }

    /// The blocks that the live tree names, without concurrent changes.
    pub(super) async fn survey(&self) -> Result<(Checked, Seen), Fault> {
        self.look_at((View::Live, true), false).await
    }

    async fn look_at(
        &self,
        (view, alone): (View, bool),
        contents: bool,
    ) -> Result<(Checked, Seen), Fault> {
        let (mut out, mut seen, mut at) =
            (Checked::default(), Seen::default(), CurrentFile::default());
        let mut from = Some(Key { ino: 0, kind: 0, offset: 0 });
        let budget = TurnBudget::default();
        while let Some(start) = from {
            let items = self.native(|f| f.items(view, start)).await?;
            from =
                if items.len() == ITEMS { items.last().and_then(|(k, _)| k.next()) } else { None };
            for (key, value) in items {
                if alone && budget.spend(value.len(), 0) {
                    self.volume.yield_now().await;
                }
                if key.ino != at.ino {
                    self.close(&mut out, std::mem::take(&mut at));
                    at.ino = key.ino;
                }
                let faults = self.native(|f| f.check_item(view, &key, &value)).await?;
                faults.into_iter().for_each(|text| out.fault(text));
                self.count(view, &mut out, &mut seen, &mut at, (&key, &value));
                if contents && key.kind == Item::Run as u8 {
                    self.read_run(view, &mut out, &key, &value).await?;
                }
            }
        }
        self.close(&mut out, at);
        self.check_nodes((view, alone), &mut out, &mut seen).await?;
        out.highest = seen.highest();
        if view == View::Live && out.orphans == 0 {
            out.leaked = self.volume.unnamed(|a| seen.has(a)).len() as u64;
        }
        Ok((out, seen))
    }

    fn count(
        &self,
        view: View,
        out: &mut Checked,
        seen: &mut Seen,
        at: &mut CurrentFile,
        (key, value): (&Key, &[u8]),
    ) {
        match key.kind {
            k if k == Item::Inode as u8 => at.inode = Inode::decode(value),
            k if k == Item::Name as u8 => at.names += decode_names(value).len() as u64,
            k if k == Item::Entry as u8 => at.entries += 1,
            k if k == Item::Orphan as u8 => out.orphans += 1,
            k if k == Item::Temporary as u8 => {}
            k if k == Item::Run as u8 => {
                for addr in addresses(view, value) {
                    out.blocks += 1;
                    if is_scratch(addr) && at.inode.is_some_and(|i| !i.flags.has(Flags::TMP)) {
                        out.fault(format!("file {}: block {addr} would be in no dump", key.ino));
                    }
                    if !self.volume.was_allocated(addr) {
                        // Not a place among those that were ever given.
                        out.fault(format!("file {}: block {addr} was never written", key.ino));
                        continue;
                    }
                    if !seen.add(addr) {
                        out.fault(format!(
                            "file {}: block {addr} also belongs to another file",
                            key.ino
                        ));
                    }
                }
            }
            other => out.fault(format!("file {}: an item of no known kind {other}", key.ino)),
        }
    }

    fn close(&self, out: &mut Checked, at: CurrentFile) {
        let Some(inode) = at.inode else {
            if at.ino != 0 {
                out.fault(format!("file {}: items without an inode", at.ino));
            }
            return;
        };
        match inode.kind {
            Kind::Dir => out.dirs += 1,
            Kind::File => out.files += 1,
        }
        if at.names != at.entries || inode.entries != at.entries {
            out.fault(format!(
                "directory {}: {} names, {} entries, {} counted",
                at.ino, at.names, at.entries, inode.entries
            ));
        }
    }

    async fn read_run(
        &self,
        view: View,
        out: &mut Checked,
        key: &Key,
        value: &[u8],
    ) -> Result<(), Fault> {
        for addr in addresses(view, value) {
            match self.volume.run(|step| step.data(addr).map(drop)).await {
                Err(fault @ (Fault::Corrupt(_) | Fault::Io(..))) => {
                    let path = self.path(view, key.ino).await?;
                    out.fault(format!("{path}: {fault}"));
                }
                done => done?,
            }
        }
        Ok(())
    }

    /// Each node of the tree. With `alone` there are no concurrent changes.
    async fn check_nodes(
        &self,
        (view, alone): (View, bool),
        out: &mut Checked,
        seen: &mut Seen,
    ) -> Result<(), Fault> {
        let root = self.native(|f| f.step.root(view)).await?;
        let mut waiting: Vec<Below> = (root != 0).then_some((root, None)).into_iter().collect();
        let budget = TurnBudget::default();
        // A node a step: a tree may be larger than the block cache.
        while let Some((addr, level)) = waiting.pop() {
            let below = self.native(|f| tree::below(f.step, addr, level)).await;
            match below {
                Ok(below) => waiting.extend(below),
                // It may have moved meanwhile.
                Err(Fault::Corrupt(why)) if !alone => {
                    out.fault(format!("block {addr} of the tree: {why}"));
                }
                Err(fault) => return Err(fault),
            }
            if alone && budget.spend(0, 0) {
                self.volume.yield_now().await;
            }
            out.nodes += 1;
            if !seen.add(addr) {
                out.fault(format!("block {addr} of the tree is used twice"));
            }
        }
        Ok(())
    }

    /// Where a file is, from the root.
    pub async fn path(&self, view: View, ino: Ino) -> Result<String, Fault> {
        self.native(|f| {
            let (mut at, mut parts) = (ino, Vec::new());
            while let Some((parent, name)) = f.name(view, at)? {
                parts.push(String::from_utf8_lossy(&name).into_owned());
                at = parent;
                if parts.len() > 10_000 {
                    return Err(Fault::Corrupt("directories form a cycle".into()).into());
                }
            }
            parts.reverse();
            let rooted = if at == ROOT { String::new() } else { format!("(file {at})") };
            Ok(format!("{rooted}/{}", parts.join("/")))
        })
        .await
    }
}

/// Blocks that an item names in a view.
pub(super) fn addresses(view: View, value: &[u8]) -> impl Iterator<Item = Addr> + '_ {
    let all = value.chunks_exact(8).take(RUN as usize).map(|b| {
        let mut word = [0; 8];
        word.copy_from_slice(b);
        Addr::from_le_bytes(word)
    });
    all.filter(move |a| *a != 0 && (view == View::Live || !is_scratch(*a)))
}

impl VolumeFiles<'_, '_> {
    pub(super) fn items(&mut self, view: View, from: Key) -> Result<Vec<(Key, Vec<u8>)>, Stop> {
        let root = self.step.root(view)?;
        let mut out = Vec::new();
        tree::scan(self.step, root, from, |k, v| {
            out.push((*k, v.to_vec()));
            out.len() < ITEMS
        })?;
        Ok(out)
    }

    /// Checks that an item and the items that it refers to agree.
    fn check_item(&mut self, view: View, key: &Key, value: &[u8]) -> Result<Vec<String>, Stop> {
        let mut out = Vec::new();
        let root = self.step.root(view)?;
        match key.kind {
            k if k == Item::Inode as u8 => {
                let Some(inode) = Inode::decode(value) else {
                    return Ok(vec![format!("file {}: invalid attributes", key.ino)]);
                };
                if inode.links > 0
                    && let Err(Stop::Fail(fault)) = self.name(view, key.ino)
                {
                    out.push(fault.to_string());
                }
                let orphan = Key::new(0, Item::Orphan, key.ino);
                let waits = tree::get(self.step, root, &orphan, |_| ())?.is_some();
                let loses = inode.links == 0 || inode.garbage.0 < inode.garbage.1;
                if loses && !waits {
                    out.push(format!("file {}: removed contents will never be freed", key.ino));
                }
            }
            k if k == Item::Temporary as u8 => {
                if let Err(Stop::Fail(fault)) = self.inode(view, key.offset) {
                    out.push(format!("temporary file {}: {fault}", key.offset));
                }
            }
            k if k == Item::Name as u8 => {
                for n in decode_names(value) {
                    let entry = Key::new(key.ino, Item::Entry, n.cookie);
                    let same = tree::get(self.step, root, &entry, |v| {
                        let e = decode_entry(n.cookie, v);
                        e.ino == n.ino && e.name == n.name
                    })?;
                    if same != Some(true) {
                        let name = String::from_utf8_lossy(&n.name).into_owned();
                        out.push(format!("directory {}: {name} has no entry", key.ino));
                    }
                    if let Err(Stop::Fail(fault)) = self.inode(view, n.ino) {
                        let name = String::from_utf8_lossy(&n.name).into_owned();
                        out.push(format!("directory {}: {name}: {fault}", key.ino));
                    }
                }
            }
            _ => {}
        }
        Ok(out)
    }
}
