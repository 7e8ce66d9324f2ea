//! Directories: names, their entries, and the places of entries.

use super::format::{DENTRIES, DENTRY, Dentry, NAME, Tag, mode, path};
use super::state::{BlockSlot, DirSlot};
use super::step::Step;
use crate::fault::{Addr, Fault, Stop};
use crate::files::{Entry, Flags, Ino, Inode, Kind, New, ROOT};
use crate::volume::View;
use reactor::clock::S;

/// Directories inside directories.
const DEPTH_MAX: usize = 500;

/// Blocks of a directory.
pub(super) const BLOCKS_MAX: u64 = 1 << 16;

/// A name that a file can have.
fn legal(name: &[u8]) -> Result<(), Stop> {
    let why = match name {
        b"" => "it is empty",
        b"." | b".." => "it is the name of a directory",
        n if n.len() >= NAME => return Err(Fault::NameTooLong.into()),
        n if n.iter().any(|c| *c < 0x20 || *c == b'/') => {
            "it contains a slash or control characters"
        }
        _ => return Ok(()),
    };
    Err(Fault::BadName(why).into())
}

/// A user's number as an entry keeps it.
fn user(id: u32) -> Result<i16, Stop> {
    i16::try_from(id as i32)
        .map_err(|_| Fault::Invalid("an image has users from -32768 to 32767").into())
}

fn id(user: i16) -> u32 {
    i32::from(user) as u32
}

fn flags_of(d: &Dentry) -> Flags {
    let flag = |bit: u16, flag: Flags| if d.mode & bit != 0 { flag } else { Flags(0) };
    flag(mode::APPEND, Flags::APPEND)
        .with(flag(mode::EXCL, Flags::EXCL))
        .with(flag(mode::TMP, Flags::TMP))
}

fn flag_bits(flags: Flags) -> u16 {
    let bit = |flag: Flags, bit: u16| if flags.has(flag) { bit } else { 0 };
    bit(Flags::APPEND, mode::APPEND) | bit(Flags::EXCL, mode::EXCL) | bit(Flags::TMP, mode::TMP)
}

/// The attributes of an entry, in the form of the rest of the file server.
fn inode_of(d: &Dentry, place: Option<DirSlot>, links: u32) -> Inode {
    Inode {
        kind: if d.is_dir() { Kind::Dir } else { Kind::File },
        flags: flags_of(d),
        mode: u32::from(d.mode & 0o777),
        uid: id(d.uid),
        gid: id(d.gid),
        muid: id(d.muid),
        links,
        size: if d.is_dir() { 0 } else { d.size },
        version: u64::from(d.version),
        mtime_ns: u64::from(d.mtime) * S,
        atime_ns: u64::from(d.atime) * S,
        ctime_ns: u64::from(d.mtime) * S,
        parent: place.map_or(ROOT, |p| p.dir),
        parent_cookie: place.map_or(0, |p| p.slot + 1),
        ..Inode::default()
    }
}

/// The slot of a name in a block of a directory, and the first that is empty.
fn find(block: &[u8], name: &[u8]) -> (Option<usize>, Option<usize>) {
    let mut empty = None;
    for slot in 0..DENTRIES {
        let b = &block[slot * DENTRY..(slot + 1) * DENTRY];
        if b[NAME + 5] & 0x80 == 0 {
            empty = empty.or(Some(slot));
            continue;
        }
        if b.starts_with(name) && b[name.len()] == 0 {
            return (Some(slot), empty);
        }
    }
    (None, empty)
}

impl Step<'_> {
    /// Where the root of a view is.
    fn root(&self, view: View) -> Result<BlockSlot, Stop> {
        match view {
            View::Live => Ok((self.live_root(), 0)),
            View::Dump(n) => {
                let at = self.s.dumps.iter().position(|d| d.number == n);
                let spot = at.and_then(|i| self.s.roots.get(i));
                spot.copied().ok_or(Stop::Fail(Fault::NotFound))
            }
        }
    }

    /// From the root down to a file: where each entry is.
    fn chain(&self, view: View, ino: Ino) -> Result<Vec<(Ino, DirSlot)>, Stop> {
        let (mut out, mut at) = (Vec::new(), ino);
        while at != ROOT {
            let place = self.s.dir_slots.get(&(view, at)).ok_or(Stop::Fail(Fault::NotFound))?;
            out.push((at, *place));
            at = place.dir;
            if out.len() > DEPTH_MAX {
                return Err(Fault::Corrupt("directories form a cycle".into()).into());
            }
        }
        out.reverse();
        Ok(out)
    }

    pub(super) fn root_entry(&mut self, view: View) -> Result<(Dentry, BlockSlot), Stop> {
        let spot = self.root(view)?;
        // Roots of dumps are in the directory of a year, which belongs to no dump.
        let block = self.block(View::Live, spot.0, Tag::Dir, path::ROOT)?;
        let d = block.with(|b| Dentry::read(b, spot.1));
        if !d.is_used() || !d.is_dir() {
            return Err(Fault::Corrupt("the root is no directory".into()).into());
        }
        Ok((Dentry { path: path::ROOT, ..d }, spot))
    }

    /// A file's entry and where that is; of one without a name there is no such place.
    pub(super) fn dentry(
        &mut self,
        view: View,
        ino: Ino,
    ) -> Result<(Dentry, Option<BlockSlot>), Stop> {
        if view == View::Live
            && let Some(d) = self.s.unlinked.get(&ino)
        {
            return Ok((d.clone(), None));
        }
        let chain = self.chain(view, ino)?;
        let (mut d, mut spot) = self.root_entry(view)?;
        for (ino, place) in chain {
            let (n, slot) = (place.slot / DENTRIES as u64, (place.slot % DENTRIES as u64) as usize);
            let at = self.map(view, &d, n)?;
            if at == 0 {
                return Err(Fault::NotFound.into());
            }
            let block = self.block(view, at, Tag::Dir, d.path)?;
            d = block.with(|b| Dentry::read(b, slot));
            spot = (at, slot);
            if !d.is_used() || d.path != ino {
                return Err(Fault::NotFound.into());
            }
        }
        Ok((d, Some(spot)))
    }

    /// Writes an entry back, and what leads to it as far as that moves.
    pub(super) fn put(&mut self, ino: Ino, d: &Dentry) -> Result<(), Stop> {
        if self.s.unlinked.contains_key(&ino) {
            self.set_unlinked(ino, Some(d.clone()));
            return Ok(());
        }
        let (mut ino, mut d) = (ino, d.clone());
        while ino != ROOT {
            let place = *self.s.dir_slots.get(&(View::Live, ino)).ok_or(Fault::NotFound)?;
            let (was, _) = self.dentry(View::Live, place.dir)?;
            let mut above = was.clone();
            self.put_at(&mut above, place.slot, &d)?;
            // A block that leads to a block of the live tree's own is its own as well (I6).
            if above == was && self.s.is_tidy() {
                return Ok(());
            }
            (ino, d) = (place.dir, above);
        }
        let root = self.live_root();
        let at = self.writable_address(root, Tag::Dir, path::ROOT)?;
        if at != root {
            self.set_root(at)?;
        }
        let block = self.edit(at, Tag::Dir, path::ROOT)?;
        block.with_mut(|b| d.write(b, 0));
        Ok(())
    }

    /// Writes an entry into a slot of a directory, which may grow by that and is to be written
    /// back.
    pub(super) fn put_at(&mut self, dir: &mut Dentry, slot: u64, d: &Dentry) -> Result<(), Stop> {
        let (n, slot) = (slot / DENTRIES as u64, (slot % DENTRIES as u64) as usize);
        let (block, _) = self.own_block(dir, n)?;
        block.with_mut(|b| d.write(b, slot));
        Ok(())
    }

    fn directory(&mut self, view: View, dir: Ino) -> Result<Dentry, Stop> {
        let (d, _) = self.dentry(view, dir)?;
        if d.is_dir() { Ok(d) } else { Err(Fault::NotDir.into()) }
    }

    /// Attributes of a file.
    pub fn inode(&mut self, view: View, ino: Ino) -> Result<Inode, Stop> {
        let (d, spot) = self.dentry(view, ino)?;
        let place = self.s.dir_slots.get(&(view, ino)).copied();
        Ok(inode_of(&d, place, u32::from(spot.is_some())))
    }

    /// The directory of a file and its name there; `None` for the root and for a file without a
    /// name.
    pub fn name(&mut self, view: View, ino: Ino) -> Result<Option<(Ino, Vec<u8>)>, Stop> {
        let (d, spot) = self.dentry(view, ino)?;
        let place = self.s.dir_slots.get(&(view, ino));
        Ok(place.filter(|_| spot.is_some()).map(|p| (p.dir, d.name)))
    }

    /// Records the place of a file. Two files of one number cannot be distinguished.
    fn learn(&mut self, view: View, d: &Dentry, place: DirSlot) -> Result<(), Stop> {
        if let Some(why) = d.invalid_field() {
            return Err(
                Fault::Corrupt(format!("an entry of directory {}: {why}", place.dir)).into()
            );
        }
        let known = self.s.dir_slots.get(&(view, d.path)).copied();
        let twice = match known {
            Some(p) if p == place => return Ok(()),
            // It may have been removed and its slot, or its name, given to another.
            Some(_) => match self.dentry(view, d.path) {
                Ok(_) => true,
                Err(Stop::Fail(_)) => false,
                Err(stop) => return Err(stop),
            },
            None => d.path == ROOT,
        };
        if twice {
            return Err(Fault::Corrupt(format!("two files have the number {}", d.path)).into());
        }
        self.s.dir_slots.insert((view, d.path), place);
        Ok(())
    }

    /// The entry of a name, and its place; and a place that is free, in `dir` or behind its end.
    pub(super) fn seek(
        &mut self,
        view: View,
        dir: Ino,
        d: &Dentry,
        name: &[u8],
    ) -> Result<(Option<(Dentry, DirSlot)>, DirSlot), Stop> {
        let mut free = None;
        for n in 0..BLOCKS_MAX {
            let at = self.map(view, d, n)?;
            let first = n * DENTRIES as u64;
            if at == 0 {
                let free = free.unwrap_or(DirSlot { dir, slot: first });
                return Ok((None, free));
            }
            let block = self.block(view, at, Tag::Dir, d.path)?;
            let (found, empty) = block.with(|b| find(b, name));
            let place = |slot: usize| DirSlot { dir, slot: first + slot as u64 };
            free = free.or(empty.map(place));
            if let Some(slot) = found {
                let entry = block.with(|b| Dentry::read(b, slot));
                return Ok((Some((entry, place(slot))), free.unwrap_or(place(slot))));
            }
        }
        Err(Fault::TooBig.into())
    }

    /// The file of a name; none: there is no such name.
    pub fn lookup(&mut self, view: View, dir: Ino, name: &[u8]) -> Result<Option<Ino>, Stop> {
        let d = self.directory(view, dir)?;
        if name.is_empty() || name.len() >= NAME {
            return Ok(None);
        }
        let (Some((entry, place)), _) = self.seek(view, dir, &d, name)? else { return Ok(None) };
        if view != View::Live && flags_of(&entry).has(Flags::TMP) {
            return Ok(None);
        }
        self.learn(view, &entry, place)?;
        Ok(Some(entry.path))
    }

    /// At most `most` entries behind the cookie `after` (0: from the first).
    pub fn entries(
        &mut self,
        view: View,
        dir: Ino,
        after: u64,
        most: usize,
    ) -> Result<Vec<Entry>, Stop> {
        let (d, mut out) = (self.directory(view, dir)?, Vec::new());
        let mut slot = after;
        while out.len() < most {
            let n = slot / DENTRIES as u64;
            let at = if n < BLOCKS_MAX { self.map(view, &d, n)? } else { 0 };
            if at == 0 {
                break;
            }
            let block = self.block(view, at, Tag::Dir, d.path)?;
            let end = (n + 1) * DENTRIES as u64;
            while slot < end && out.len() < most {
                let e = block.with(|b| Dentry::read(b, (slot % DENTRIES as u64) as usize));
                slot += 1;
                let hidden = view != View::Live && flags_of(&e).has(Flags::TMP);
                if e.is_used() && !hidden {
                    self.learn(view, &e, DirSlot { dir, slot: slot - 1 })?;
                    out.push(Entry { cookie: slot, ino: e.path, name: e.name });
                }
            }
        }
        Ok(out)
    }

    /// Something of a directory changed.
    fn directory_changed(&mut self, dir: Ino, by: u32) -> Result<(), Stop> {
        let mut d = self.directory(View::Live, dir)?;
        self.changed(&mut d, by);
        self.put(dir, &d)
    }

    /// Contents of a file changed.
    pub(super) fn changed(&self, d: &mut Dentry, by: u32) {
        d.version = d.version.wrapping_add(1);
        d.mtime = self.now();
        d.atime = d.mtime;
        d.muid = user(by).unwrap_or(d.muid);
    }

    /// Writes an entry to a place that is free, which may be in a new block.
    fn add_entry(&mut self, dir: Ino, place: DirSlot, new: &Dentry) -> Result<(), Stop> {
        let mut d = self.directory(View::Live, dir)?;
        self.put_at(&mut d, place.slot, new)?;
        self.put(dir, &d)
    }

    pub(super) fn remove_entry(&mut self, place: DirSlot) -> Result<(), Stop> {
        let mut d = self.directory(View::Live, place.dir)?;
        let (block, _) = self.own_block(&mut d, place.slot / DENTRIES as u64)?;
        let slot = (place.slot % DENTRIES as u64) as usize;
        block.with_mut(|b| b[slot * DENTRY..(slot + 1) * DENTRY].fill(0));
        self.put(place.dir, &d)
    }

    /// Makes a file. [`Fault::Exists`] when the name is taken.
    pub fn create(&mut self, dir: Ino, name: &[u8], new: &New) -> Result<Ino, Stop> {
        legal(name)?;
        if self.s.unlinked.contains_key(&dir) {
            return Err(Fault::NotFound.into());
        }
        let d = self.directory(View::Live, dir)?;
        let (found, place) = self.seek(View::Live, dir, &d, name)?;
        if found.is_some() {
            return Err(Fault::Exists.into());
        }
        let ino = self.new_qid()?;
        let kind = if new.kind == Kind::Dir { mode::DIR } else { 0 };
        let now = self.now();
        let entry = Dentry {
            name: name.to_vec(),
            uid: user(new.uid)?,
            gid: user(new.gid)?,
            muid: user(new.uid)?,
            mode: mode::ALLOC | kind | flag_bits(new.flags) | (new.mode & 0o777) as u16,
            path: ino,
            version: 1,
            atime: now,
            mtime: now,
            ..Dentry::default()
        };
        self.add_entry(dir, place, &entry)?;
        self.set_dir_slot(ino, Some(place));
        self.directory_changed(dir, new.uid)?;
        Ok(ino)
    }

    fn is_empty(&mut self, d: &Dentry) -> Result<bool, Stop> {
        for n in 0..BLOCKS_MAX {
            let at = self.map(View::Live, d, n)?;
            if at == 0 {
                break;
            }
            let block = self.block(View::Live, at, Tag::Dir, d.path)?;
            let used = |b: &[u8]| (0..DENTRIES).any(|s| Dentry::read(b, s).is_used());
            if block.with(used) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Removes a file's name, and the file as soon as it has no keeper.
    pub fn remove(&mut self, dir: Ino, name: &[u8], by: u32) -> Result<Ino, Stop> {
        let d = self.directory(View::Live, dir)?;
        let (found, _) = self.seek(View::Live, dir, &d, name)?;
        let (mut entry, place) = found.ok_or(Stop::Fail(Fault::NotFound))?;
        self.learn(View::Live, &entry, place)?;
        if entry.is_dir() && !self.is_empty(&entry)? {
            return Err(Fault::NotEmpty.into());
        }
        let ino = entry.path;
        self.remove_entry(place)?;
        self.directory_changed(dir, by)?;
        if self.is_held(ino) || !self.cut(&mut entry, 0)? {
            self.set_unlinked(ino, Some(entry));
        } else {
            self.set_dir_slot(ino, None);
        }
        Ok(ino)
    }

    /// Gives back some of the blocks of a file without a name, if it has no keeper; true when
    /// nothing is left to do for it now.
    pub(super) fn reap(&mut self, ino: Ino) -> Result<bool, Stop> {
        let Some(mut d) = self.s.unlinked.get(&ino).cloned() else { return Ok(true) };
        if self.is_held(ino) {
            return Ok(true);
        }
        let done = self.cut(&mut d, 0)?;
        self.set_unlinked(ino, (!done).then_some(d));
        if done {
            self.set_dir_slot(ino, None);
        }
        Ok(done)
    }

    /// Gives a file another name, in the same directory or another. A file in its place is removed
    /// with `replace`; a directory only for a directory, and only when it is empty.
    pub fn rename(
        &mut self,
        (from, name): (Ino, &[u8]),
        (to, new): (Ino, &[u8]),
        replace: bool,
        by: u32,
    ) -> Result<(), Stop> {
        legal(new)?;
        let d = self.directory(View::Live, from)?;
        let found = self.seek(View::Live, from, &d, name)?.0;
        let (mut entry, place) = found.ok_or(Stop::Fail(Fault::NotFound))?;
        self.learn(View::Live, &entry, place)?;
        if (from, name) == (to, new) {
            return Ok(());
        }
        if self.s.unlinked.contains_key(&to) {
            return Err(Fault::NotFound.into());
        }
        let target = self.directory(View::Live, to)?;
        if entry.is_dir() && self.chain(View::Live, to)?.iter().any(|(i, _)| *i == entry.path) {
            return Err(Fault::Invalid("a directory cannot move into itself").into());
        }
        let (existing, mut free) = self.seek(View::Live, to, &target, new)?;
        if let Some((existing, _)) = existing {
            match (replace, existing.is_dir(), entry.is_dir()) {
                (false, ..) => return Err(Fault::Exists.into()),
                (_, true, false) => return Err(Fault::IsDir.into()),
                (_, false, true) => return Err(Fault::NotDir.into()),
                _ => drop(self.remove(to, new, by)?),
            }
            let target = self.directory(View::Live, to)?;
            free = self.seek(View::Live, to, &target, new)?.1;
        }
        entry.name = new.to_vec();
        if from == to {
            // It stays where it is, as a rename always did.
            self.put(entry.path, &entry)?;
        } else {
            if !self.s.is_tidy() {
                // A walk of the tree may have passed its new place already.
                self.s.loose += 1;
            }
            self.remove_entry(place)?;
            self.add_entry(to, free, &entry)?;
            self.set_dir_slot(entry.path, Some(free));
            self.directory_changed(from, by)?;
        }
        self.directory_changed(to, by)
    }

    /// Changes attributes: all of them or none. A file that loses many blocks is cut first.
    pub fn set(&mut self, ino: Ino, c: &crate::files::Change) -> Result<(), Stop> {
        let (mut d, _) = self.dentry(View::Live, ino)?;
        if let Some(mode) = c.mode {
            d.mode = d.mode & !0o777 | (mode & 0o777) as u16;
        }
        if let Some(flags) = c.flags {
            d.mode = d.mode & !(mode::APPEND | mode::EXCL | mode::TMP) | flag_bits(flags);
        }
        d.uid = c.uid.map_or(Ok(d.uid), user)?;
        d.gid = c.gid.map_or(Ok(d.gid), user)?;
        if let Some(size) = c.size {
            if d.is_dir() {
                if size != 0 {
                    return Err(Fault::IsDir.into());
                }
            } else {
                self.resize(ino, &mut d, size)?;
                self.changed(&mut d, c.by);
            }
        }
        let seconds = |ns: u64| (ns / 1_000_000_000) as u32;
        d.mtime = c.mtime_ns.map_or(d.mtime, seconds);
        d.atime = c.atime_ns.map_or(d.atime, seconds);
        self.put(ino, &d)
    }

    /// An entry by its place.
    pub(super) fn dump_entry(&mut self, at: Addr, of: u64, slot: usize) -> Result<Dentry, Stop> {
        let block = self.block(View::Live, at, Tag::Dir, of)?;
        Ok(block.with(|b| Dentry::read(b, slot)))
    }
}
