//! Repair of the live tree: contradictions are resolved by the facts that are known, and no item
//! that holds contents is thrown away. A dump is never changed. The tree must not change meanwhile.
//!
//! | finding | repair |
//! | --- | --- |
//! | blocks at addresses that were never given | holes |
//! | blocks of a directory | detached |
//! | blocks that dumps leave out, of a file that they do not | moved |
//! | items of a file and no attributes that read | attributes are made up: owner `adm` |
//! | a name whose file is not there | taken out |
//! | a name under another hash than its own, or twice | taken out |
//! | a file with two names | the name in its attributes stays |
//! | a name and its entry differ | the entry of the name |
//! | an entry without a name | a name again, if the file has none recorded, or taken out |
//! | a directory that counts wrongly | counted anew |
//! | a file that has a name and is recorded without one | it has one |
//! | a file that is nowhere, and was not removed | in `lost+found`, as `file.NUMBER` |
//! | directories that lead in a circle | cut, and in `lost+found` |
//! | a lost file that no task gives back | given back |
//! | blocks that no item names | given back |
//!
//! Repairs are made in about that order, in four passes through the tree in the order of its items.
//! Each repair is one step that looks again. A block that two files name stays in both and is
//! reported, because its owner is unknown.

use std::collections::BTreeSet;

use super::contents::RUN;
use super::inode::{Named, decode_entry, decode_names, encode_entry, encode_names, hash};
use super::{FileSystem, Flags, Ino, Inode, Kind, ROOT, SIZE_MAX, VolumeFiles};
use crate::fault::{Fault, Stop};
use crate::tree::{self, Blocks, Key, Kind as Item};
use crate::turn_budget::TurnBudget;
use crate::users::ADM;
use crate::volume::{View, is_scratch};

/// The directory for files without a name.
const LOST: &[u8] = b"lost+found";
/// Blocks given back in one step.
const BLOCKS: usize = 64;
/// Entries that a directory has made in its life, at most.
const COOKIE_MAX: u64 = 1 << 56;
/// Directories inside one another; more are a circle.
const DEPTH_MAX: usize = 10_000;

/// The repairs, a line each.
pub type Repairs = Vec<String>;

impl FileSystem {
    /// See the module.
    ///
    /// # Errors
    /// A node of the tree that no device has right: items below it are not reached.
    pub async fn repair(&self) -> Result<Repairs, Fault> {
        let mut done = Repairs::new();
        self.for_each_item(&mut done, async |fs, key, _, done| {
            if key.kind == Item::Run as u8 {
                done.extend(fs.native(|f| f.repair_addresses(&key)).await?);
            }
            Ok(())
        })
        .await?;
        self.for_each_item(&mut done, async |fs, key, first, done| {
            if first && key.ino != 0 {
                done.extend(fs.native(|f| f.repair_attributes(key.ino)).await?);
            }
            Ok(())
        })
        .await?;
        let mut dir = 0;
        self.for_each_item(&mut done, async |fs, key, first, done| {
            if first && dir != 0 {
                done.extend(fs.native(|f| f.repair_count(dir)).await?);
            }
            dir = key.ino;
            if key.kind == Item::Name as u8 {
                done.extend(fs.native(|f| f.repair_names(&key)).await?);
            } else if key.kind == Item::Entry as u8 {
                done.extend(fs.native(|f| f.repair_entry(&key)).await?);
            } else if key.kind == Item::Run as u8 {
                done.extend(fs.native(|f| f.repair_run(&key)).await?);
            } else if key.kind == Item::Temporary as u8 {
                done.extend(fs.native(|f| f.repair_temporary(key.offset)).await?);
            }
            Ok(())
        })
        .await?;
        if dir != 0 {
            done.extend(self.native(|f| f.repair_count(dir)).await?);
        }
        let mut rooted = BTreeSet::from([ROOT]);
        self.for_each_item(&mut done, async |fs, key, _, done| {
            if key.kind == Item::Inode as u8 {
                done.extend(fs.native(|f| f.repair_parent(key.ino)).await?);
                done.extend(fs.cut_cycles(key.ino, &mut rooted).await?);
            }
            Ok(())
        })
        .await?;
        done.extend(self.give_leaked_back().await?);
        self.sync().await?;
        Ok(done)
    }

    /// Takes a name and its file's attributes and addresses out, and gives nothing back. False:
    /// there is no such name.
    ///
    /// # Errors
    /// A node of the tree that no device has right.
    pub async fn forget(&self, dir: Ino, name: &[u8]) -> Result<bool, Fault> {
        let Some(ino) = self.native(|f| f.lookup(View::Live, dir, name)).await? else {
            return Ok(false);
        };
        self.native(|f| f.remove_name(dir, name)).await?;
        let first = Key::new(ino, Item::Inode, 0);
        loop {
            let some = self.native(|f| {
                let mut keys = f.keys(first, BLOCKS)?;
                keys.retain(|k| k.ino == ino);
                for key in &keys {
                    f.take(key)?;
                }
                Ok(keys.len())
            });
            if some.await? == 0 {
                self.native(|f| f.take(&Key::new(0, Item::Temporary, ino))).await?;
                return Ok(true);
            }
        }
    }

    /// Walks the tree; `first`: it is the first item of its file.
    async fn for_each_item(
        &self,
        done: &mut Repairs,
        mut one: impl AsyncFnMut(&FileSystem, Key, bool, &mut Repairs) -> Result<(), Fault>,
    ) -> Result<(), Fault> {
        let (mut from, mut ino) = (Some(Key { ino: 0, kind: 0, offset: 0 }), 0);
        let budget = TurnBudget::default();
        while let Some(start) = from {
            let Some(key) = self.native(|f| f.item_from(start)).await? else { break };
            one(self, key, key.ino != ino, done).await?;
            if budget.spend(0, 0) {
                self.volume.yield_now().await;
            }
            ino = key.ino;
            from = key.next();
        }
        Ok(())
    }

    /// A directory that does not lead to the root is cut off where the circle closes.
    async fn cut_cycles(
        &self,
        ino: Ino,
        rooted: &mut BTreeSet<Ino>,
    ) -> Result<Option<String>, Fault> {
        let (mut at, mut way) = (ino, Vec::new());
        while !rooted.contains(&at) {
            if way.contains(&at) || way.len() > DEPTH_MAX {
                let cut = at;
                self.native(|f| f.move_to_lost(cut, true)).await?;
                return Ok(Some(format!(
                    "directory {cut}: was inside itself; moved to lost+found"
                )));
            }
            way.push(at);
            match self.native(|f| f.inode(View::Live, at)).await? {
                inode if inode.links == 0 => break,
                inode => at = inode.parent,
            }
        }
        // All but the first are directories.
        rooted.extend(way.into_iter().skip(1));
        Ok(None)
    }

    /// Blocks of the live tree's own that nothing in it names.
    async fn give_leaked_back(&self) -> Result<Option<String>, Fault> {
        self.sync().await?;
        let (checked, seen) = self.survey().await?;
        if checked.orphans > 0 || checked.leaked == 0 {
            // Files that are queued to be given back still name their blocks.
            return Ok(None);
        }
        let lost = self.volume.unnamed(|a| seen.has(a));
        for some in lost.chunks(BLOCKS) {
            let free = |f: &mut VolumeFiles<'_, '_>| {
                some.iter().for_each(|addr| f.step.free(*addr));
                Ok(())
            };
            self.native(free).await?;
        }
        Ok((!lost.is_empty()).then(|| format!("{} blocks without an owner: freed", lost.len())))
    }
}

fn text_of(name: &[u8]) -> String {
    String::from_utf8_lossy(name).into_owned()
}

impl VolumeFiles<'_, '_> {
    fn item_from(&mut self, from: Key) -> Result<Option<Key>, Stop> {
        let (root, mut found) = (self.step.root(View::Live)?, None);
        tree::scan(self.step, root, from, |k, _| {
            found = Some(*k);
            false
        })?;
        Ok(found)
    }

    /// A file's attributes; none when there are none, or none that read.
    fn attributes(&mut self, ino: Ino) -> Result<Option<Inode>, Stop> {
        match self.inode(View::Live, ino) {
            Ok(inode) => Ok(Some(inode)),
            Err(Stop::Fail(Fault::NotFound | Fault::Corrupt(_))) => Ok(None),
            Err(stop) => Err(stop),
        }
    }

    /// Addresses that were never given are holes.
    fn repair_addresses(&mut self, key: &Key) -> Result<Option<String>, Stop> {
        let mut run = self.run_of(View::Live, key.ino, key.offset)?;
        let mut holes = 0;
        for at in run.iter_mut().filter(|at| !self.step.was_allocated(**at)) {
            *at = 0;
            holes += 1;
        }
        if holes == 0 {
            return Ok(None);
        }
        self.put_run(key.ino, key.offset, &run)?;
        Ok(Some(format!("file {}: {holes} blocks were never written, and are holes", key.ino)))
    }

    /// Blocks of a file without contents are detached from it.
    fn repair_run(&mut self, key: &Key) -> Result<Option<String>, Stop> {
        let Some(inode) = self.attributes(key.ino)? else { return Ok(None) };
        if inode.kind == Kind::File {
            let run = self.run_of(View::Live, key.ino, key.offset)?;
            if inode.flags.has(Flags::TMP) || !run.iter().any(|a| is_scratch(*a)) {
                return Ok(None);
            }
            self.unsettle(key.ino)?;
            return Ok(Some(format!("file {}: contents will be in dumps from now on", key.ino)));
        }
        self.take(key)?;
        Ok(Some(format!("directory {}: blocks of contents removed", key.ino)))
    }

    /// A file that is listed as temporary exists.
    fn repair_temporary(&mut self, ino: Ino) -> Result<Option<String>, Stop> {
        if self.attributes(ino)?.is_some() {
            return Ok(None);
        }
        self.take(&Key::new(0, Item::Temporary, ino))?;
        Ok(Some(format!("file {ino}: listed as temporary but missing; removed from the list")))
    }

    /// Items of a file without attributes are a file again.
    fn repair_attributes(&mut self, ino: Ino) -> Result<Option<String>, Stop> {
        if self.attributes(ino)?.is_some() {
            return Ok(None);
        }
        let root = self.step.root(View::Live)?;
        let (mut names, mut cookie, mut runs) = (0_u64, 0, 0);
        tree::scan(self.step, root, Key::new(ino, Item::Inode, 0), |k, v| {
            match k.kind {
                _ if k.ino != ino => return false,
                k if k == Item::Name as u8 => names += decode_names(v).len() as u64,
                kind if kind == Item::Entry as u8 => cookie = k.offset.max(cookie),
                kind if kind == Item::Run as u8 => runs = k.offset.saturating_add(1),
                _ => {}
            }
            true
        })?;
        let is_dir = names > 0 || cookie > 0;
        if !is_dir && runs == 0 && ino != ROOT {
            // Nothing hangs on them.
            let key = Key::new(ino, Item::Inode, 0);
            return Ok(self
                .take(&key)?
                .then(|| format!("file {ino}: attributes without contents; removed")));
        }
        let (now, run_bytes) = (self.now_ns(), RUN * self.step.block() as u64);
        let inode = Inode {
            kind: if is_dir || ino == ROOT { Kind::Dir } else { Kind::File },
            mode: 0o770,
            uid: ADM,
            gid: ADM,
            muid: ADM,
            links: 1,
            size: if is_dir { 0 } else { runs.saturating_mul(run_bytes).min(SIZE_MAX) },
            version: self.step.new_change()?,
            mtime_ns: now,
            atime_ns: now,
            ctime_ns: now,
            parent: if ino == ROOT { ROOT } else { 0 },
            entries: names,
            cookie: cookie.saturating_add(1),
            ..Inode::default()
        };
        self.put_inode(ino, &inode)?;
        Ok(Some(format!("file {ino}: attributes lost; set to defaults")))
    }

    /// Names of one hash.
    fn repair_names(&mut self, key: &Key) -> Result<Vec<String>, Stop> {
        let (root, dir) = (self.step.root(View::Live)?, key.ino);
        let was = tree::get(self.step, root, key, decode_names)?.unwrap_or_default();
        let (mut kept, mut out): (Vec<Named>, Vec<String>) = (Vec::new(), Vec::new());
        for n in &was {
            let name = text_of(&n.name);
            let twice = kept.iter().any(|k| k.name == n.name || k.cookie == n.cookie);
            if twice || hash(self.step.salt(), &n.name) != key.offset {
                out.push(format!("directory {dir}: {name} was at a wrong place or twice, removed"));
                continue;
            }
            let Some(mut inode) = self.attributes(n.ino)? else {
                out.push(format!("directory {dir}: {name} named no file; removed"));
                continue;
            };
            let is_in_place = (inode.parent, inode.parent_cookie) == (dir, n.cookie);
            if !is_in_place && n.ino != ROOT && self.is_entry_valid(n.ino, &inode)? {
                out.push(format!("directory {dir}: {name} also has another name; removed"));
                continue;
            }
            if n.ino == ROOT {
                out.push(format!("directory {dir}: {name} named the root; removed"));
                continue;
            }
            let mut n = n.clone();
            let is_far = n.cookie >= COOKIE_MAX;
            let moves = is_far || self.belongs_to_other(dir, &n)?;
            if is_far {
                self.take(&Key::new(dir, Item::Entry, n.cookie))?;
            }
            if moves {
                n.cookie = self.next_cookie(dir)?;
            }
            if !is_in_place || moves || inode.links == 0 {
                (inode.parent, inode.parent_cookie, inode.links) = (dir, n.cookie, 1);
                self.put_inode(n.ino, &inode)?;
                self.take(&Key::new(0, Item::Orphan, n.ino))?;
                out.push(format!("file {}: it is {name} of directory {dir}", n.ino));
            }
            let entry = Key::new(dir, Item::Entry, n.cookie);
            let root = self.step.root(View::Live)?;
            let same = tree::get(self.step, root, &entry, |v| {
                let e = decode_entry(n.cookie, v);
                e.ino == n.ino && e.name == n.name
            })?;
            if same != Some(true) {
                self.put(&entry, &encode_entry(n.ino, &n.name))?;
                out.push(format!("directory {dir}: {name} is listed again"));
            }
            kept.push(n);
        }
        if kept.is_empty() {
            self.take(key)?;
        } else if kept != was {
            self.put(key, &encode_names(&kept))?;
        }
        Ok(out)
    }

    /// The entry of a name belongs to another file, which is listed there.
    fn belongs_to_other(&mut self, dir: Ino, n: &Named) -> Result<bool, Stop> {
        let root = self.step.root(View::Live)?;
        let at = Key::new(dir, Item::Entry, n.cookie);
        let existing = tree::get(self.step, root, &at, |v| decode_entry(n.cookie, v))?;
        let Some(other) = existing.filter(|e| e.ino != n.ino) else { return Ok(false) };
        let Some(inode) = self.attributes(other.ino)? else { return Ok(false) };
        let linked = inode.links > 0 && (inode.parent, inode.parent_cookie) == (dir, n.cookie);
        Ok(linked && self.is_entry_valid(other.ino, &inode)?)
    }

    /// The next cookie of a directory, for any stored count.
    fn next_cookie(&mut self, dir: Ino) -> Result<u64, Stop> {
        let (root, mut last) = (self.step.root(View::Live)?, 0);
        tree::scan(self.step, root, Key::new(dir, Item::Entry, 0), |k, _| {
            let mine = k.ino == dir && k.kind == Item::Entry as u8 && k.offset < COOKIE_MAX;
            if mine {
                last = k.offset;
            }
            mine
        })?;
        let mut d = self.inode(View::Live, dir)?;
        let recorded = Some(d.cookie).filter(|cookie| *cookie < COOKIE_MAX).unwrap_or(0);
        let cookie = recorded.max(last + 1);
        d.cookie = cookie + 1;
        self.put_inode(dir, &d)?;
        Ok(cookie)
    }

    /// A file is listed in the directory of its attributes, and is found there by its name.
    fn is_entry_valid(&mut self, ino: Ino, inode: &Inode) -> Result<bool, Stop> {
        let root = self.step.root(View::Live)?;
        let at = Key::new(inode.parent, Item::Entry, inode.parent_cookie);
        let entry = tree::get(self.step, root, &at, |v| decode_entry(inode.parent_cookie, v))?;
        let Some(entry) = entry.filter(|e| e.ino == ino) else { return Ok(false) };
        let at = Key::new(inode.parent, Item::Name, hash(self.step.salt(), &entry.name));
        let names = tree::get(self.step, root, &at, decode_names)?.unwrap_or_default();
        Ok(names
            .iter()
            .any(|n| (n.ino, n.cookie) == (ino, inode.parent_cookie) && n.name == entry.name))
    }

    /// An entry that no name knows.
    fn repair_entry(&mut self, key: &Key) -> Result<Option<String>, Stop> {
        let (root, dir) = (self.step.root(View::Live)?, key.ino);
        let entry = tree::get(self.step, root, key, |v| decode_entry(key.offset, v))?;
        let Some(e) = entry else { return Ok(None) };
        let name = text_of(&e.name);
        let at = Key::new(dir, Item::Name, hash(self.step.salt(), &e.name));
        let mut names = tree::get(self.step, root, &at, decode_names)?.unwrap_or_default();
        if names.iter().any(|n| (n.ino, n.cookie) == (e.ino, e.cookie) && n.name == e.name) {
            return Ok(None);
        }
        let linked = |i: &Inode| (i.parent, i.parent_cookie) == (dir, e.cookie) && e.ino != ROOT;
        let inode = self.attributes(e.ino)?.filter(linked);
        let free = names.iter().all(|n| n.name != e.name);
        let fits = free && e.cookie < COOKIE_MAX && super::names::is_legal(&e.name);
        if let Some(mut inode) = inode.filter(|_| fits) {
            if inode.links == 0 {
                inode.links = 1;
                self.put_inode(e.ino, &inode)?;
                self.take(&Key::new(0, Item::Orphan, e.ino))?;
            }
            names.push(Named { cookie: e.cookie, ino: e.ino, name: e.name });
            self.put(&at, &encode_names(&names))?;
            return Ok(Some(format!("directory {dir}: {name} is found again")));
        }
        self.take(key)?;
        Ok(Some(format!("directory {dir}: {name} was listed but missing; removed")))
    }

    fn repair_count(&mut self, dir: Ino) -> Result<Option<String>, Stop> {
        let Some(mut d) = self.attributes(dir)? else { return Ok(None) };
        let root = self.step.root(View::Live)?;
        let (mut entries, mut last) = (0, 0);
        tree::scan(self.step, root, Key::new(dir, Item::Entry, 0), |k, _| {
            let mine = k.ino == dir && k.kind == Item::Entry as u8;
            if mine {
                entries += 1;
                last = k.offset;
            }
            mine
        })?;
        let counted = if d.kind == Kind::Dir { d.entries } else { 0 };
        // One that is used up soon was never counted up to.
        let is_next = d.cookie > last && d.cookie < COOKIE_MAX;
        if counted == entries && (d.kind == Kind::File || is_next) {
            return Ok(None);
        }
        d.kind = Kind::Dir;
        d.entries = entries;
        d.cookie = if is_next { d.cookie } else { last.saturating_add(1) };
        self.put_inode(dir, &d)?;
        Ok(Some(format!("directory {dir}: count of entries is {entries}, was {counted}")))
    }

    /// A file that is not at the place of its attributes, or is lost.
    fn repair_parent(&mut self, ino: Ino) -> Result<Option<String>, Stop> {
        let inode = self.inode(View::Live, ino)?;
        let orphan = Key::new(0, Item::Orphan, ino);
        let root = self.step.root(View::Live)?;
        let waits = tree::get(self.step, root, &orphan, |_| ())?.is_some();
        // One that was removed waits to be given back. One without a name in its attributes, and
        // does not wait, may have lost its name otherwise.
        let is_somewhere = if inode.links == 0 { waits } else { self.is_entry_valid(ino, &inode)? };
        let mut did = None;
        if ino != ROOT && !is_somewhere {
            let name = self.move_to_lost(ino, false)?;
            did = Some(format!("file {ino}: had no name; moved to /lost+found/{name}"));
        }
        if !waits && inode.garbage.0 < inode.garbage.1 {
            self.put(&orphan, &[1])?;
            self.step.reap(ino);
            did = did.or(Some(format!("file {ino}: removed contents freed")));
        }
        Ok(did)
    }

    /// Puts a file into `lost+found`; `strike` takes it out of where it is.
    fn move_to_lost(&mut self, ino: Ino, strike: bool) -> Result<String, Stop> {
        let lost = match self.lookup(View::Live, ROOT, LOST)? {
            Some(lost) => lost,
            None => {
                let mode = 0o770;
                let new = super::New {
                    kind: Kind::Dir,
                    mode,
                    uid: ADM,
                    gid: ADM,
                    ..super::New::default()
                };
                self.create(ROOT, LOST, &new)?
            }
        };
        if strike && let Some((parent, name)) = self.name(View::Live, ino)? {
            self.remove_name(parent, &name)?;
        }
        let name = format!("file.{ino}");
        let place = self.add_name(lost, name.as_bytes(), ino)?;
        let mut inode = self.inode(View::Live, ino)?;
        (inode.parent, inode.parent_cookie, inode.links) = (lost, place, 1);
        self.put_inode(ino, &inode)?;
        Ok(name)
    }

    /// Blocks of a file that are no holes, and their addresses; at most so many.
    pub fn blocks(&mut self, view: View, ino: Ino, most: usize) -> Result<Vec<(u64, u64)>, Stop> {
        let blocks = self.inode(view, ino)?.size.div_ceil(self.step.block() as u64);
        let mut out = Vec::new();
        for n in 0..blocks.div_ceil(RUN) {
            let run = self.run_of(view, ino, n)?;
            out.extend((n * RUN..).zip(run).filter(|(_, addr)| *addr != 0));
            if out.len() >= most {
                break;
            }
        }
        out.truncate(most);
        Ok(out)
    }

    /// Surgery: a block of a file is another; answers which it was.
    pub fn set_block_addr(&mut self, ino: Ino, block: u64, addr: u64) -> Result<u64, Stop> {
        let inode = self.inode(View::Live, ino)?;
        if inode.kind == Kind::Dir {
            return Err(Fault::IsDir.into());
        }
        if block >= inode.size.div_ceil(self.step.block() as u64) {
            return Err(Fault::Invalid("the file has no such block").into());
        }
        let mut run = self.run_of(View::Live, ino, block / RUN)?;
        let at = run.get_mut((block % RUN) as usize).map(|a| std::mem::replace(a, addr));
        self.put_run(ino, block / RUN, &run)?;
        Ok(at.unwrap_or(0))
    }

    /// Surgery: an item of the live tree, as it is.
    pub fn item(&mut self, key: &Key) -> Result<Option<Vec<u8>>, Stop> {
        let root = self.step.root(View::Live)?;
        tree::get(self.step, root, key, <[u8]>::to_vec)
    }

    /// Surgery: keys of the live tree from one on, at most so many.
    pub fn keys(&mut self, from: Key, most: usize) -> Result<Vec<Key>, Stop> {
        let (root, mut out) = (self.step.root(View::Live)?, Vec::new());
        tree::scan(self.step, root, from, |k, _| {
            out.push(*k);
            out.len() < most
        })?;
        Ok(out)
    }

    /// Surgery: sets an item of the live tree, or removes it without a value, although other items
    /// may refer to it. Run [`FileSystem::mend`] afterwards.
    pub fn set_item(&mut self, key: &Key, value: Option<&[u8]>) -> Result<(), Stop> {
        match value {
            Some(value) => self.put(key, value),
            None => self.take(key).map(drop),
        }
    }
}
