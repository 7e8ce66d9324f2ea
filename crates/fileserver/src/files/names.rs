//! Directories: names and their files.

use super::inode::{Named, decode_entry, decode_names, encode_entry, encode_names, hash};
use super::{Entry, Flags, Ino, Inode, Kind, ROOT, VolumeFiles};
use crate::fault::{Fault, Stop};
use crate::tree::{self, Key, Kind as Item};
use crate::volume::View;

/// Longest name, bytes.
pub const NAME_MAX: usize = 255;

/// A file to be made.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct New {
    /// The type.
    pub kind: Kind,
    /// Append-only and the like.
    pub flags: Flags,
    /// Permission bits.
    pub mode: u32,
    /// Owner, also reported as the last user who changed it.
    pub uid: u32,
    /// Group.
    pub gid: u32,
}

/// A file can have that name.
pub(super) fn is_legal(name: &[u8]) -> bool {
    legal(name).is_ok()
}

/// A name that a file can have in any protocol.
fn legal(name: &[u8]) -> Result<(), Stop> {
    let why = match name {
        b"" => "it is empty",
        b"." | b".." => "it is the name of a directory",
        n if n.len() > NAME_MAX => return Err(Fault::NameTooLong.into()),
        n if n.contains(&b'/') || n.contains(&0) => "it contains a slash or a zero",
        _ => return Ok(()),
    };
    Err(Fault::BadName(why).into())
}

impl VolumeFiles<'_, '_> {
    pub(super) fn make_root(&mut self, uid: u32, gid: u32) -> Result<(), Stop> {
        let first = Key { ino: 0, kind: 0, offset: 0 };
        if !self.keys(first, 1)?.is_empty() {
            return Err(Fault::Corrupt("the root is missing".into()).into());
        }
        let now = self.now_ns();
        // Numbers of files begin behind it. Files of before the first commit may be lost with the
        // power, but their numbers are not given again.
        self.step.new_ino()?;
        let root = Inode {
            kind: Kind::Dir,
            mode: 0o775,
            uid,
            gid,
            muid: uid,
            links: 1,
            version: self.step.new_change()?,
            mtime_ns: now,
            atime_ns: now,
            ctime_ns: now,
            parent: ROOT,
            cookie: 1,
            ..Inode::default()
        };
        self.put_inode(ROOT, &root)
    }

    fn directory(&mut self, view: View, dir: Ino) -> Result<Inode, Stop> {
        let inode = self.inode(view, dir)?;
        if inode.kind == Kind::Dir { Ok(inode) } else { Err(Fault::NotDir.into()) }
    }

    fn named(&mut self, view: View, dir: Ino, name: &[u8]) -> Result<(Key, Vec<Named>), Stop> {
        let key = Key::new(dir, Item::Name, hash(self.step.salt(), name));
        let root = self.step.root(view)?;
        let names = tree::get(self.step, root, &key, decode_names)?.unwrap_or_default();
        Ok((key, names))
    }

    /// The file of a name; none: there is no such name.
    pub fn lookup(&mut self, view: View, dir: Ino, name: &[u8]) -> Result<Option<Ino>, Stop> {
        self.directory(view, dir)?;
        let (_, names) = self.named(view, dir, name)?;
        let Some(found) = names.into_iter().find(|n| n.name == name) else { return Ok(None) };
        let visible = self.is_visible(view, found.ino)?;
        Ok(visible.then_some(found.ino))
    }

    /// Temporary files are not in dumps.
    fn is_visible(&mut self, view: View, ino: Ino) -> Result<bool, Stop> {
        Ok(view == View::Live || !self.inode(view, ino)?.flags.has(Flags::TMP))
    }

    /// At most `most` entries behind the cookie `after` (0: from the first).
    pub fn entries(
        &mut self,
        view: View,
        dir: Ino,
        after: u64,
        most: usize,
    ) -> Result<Vec<Entry>, Stop> {
        self.directory(view, dir)?;
        let root = self.step.root(view)?;
        let mut out = Vec::new();
        let Some(first) = after.checked_add(1) else { return Ok(out) };
        tree::scan(self.step, root, Key::new(dir, Item::Entry, first), |k, v| {
            let mine = k.ino == dir && k.kind == Item::Entry as u8;
            if mine {
                out.push(decode_entry(k.offset, v));
            }
            mine && out.len() < most
        })?;
        if view == View::Live {
            return Ok(out);
        }
        let mut visible = Vec::new();
        let (full, last) = (out.len() == most, out.last().map(|e| e.cookie));
        for e in out {
            if self.is_visible(view, e.ino)? {
                visible.push(e);
            }
        }
        match last {
            // All of them were hidden: the ones behind them.
            Some(last) if visible.is_empty() && full => self.entries(view, dir, last, most),
            _ => Ok(visible),
        }
    }

    /// The directory of a file and its name there; `None` for the root and for a file without a
    /// name.
    pub fn name(&mut self, view: View, ino: Ino) -> Result<Option<(Ino, Vec<u8>)>, Stop> {
        let inode = self.inode(view, ino)?;
        if ino == ROOT || inode.links == 0 {
            return Ok(None);
        }
        let root = self.step.root(view)?;
        let key = Key::new(inode.parent, Item::Entry, inode.parent_cookie);
        let entry = tree::get(self.step, root, &key, |v| decode_entry(inode.parent_cookie, v))?;
        match entry {
            Some(e) if e.ino == ino => Ok(Some((inode.parent, e.name))),
            _ => Err(Fault::Corrupt(format!("file {ino} is not at its recorded place")).into()),
        }
    }

    /// Enters a name that is not there; its cookie.
    fn add_entry(&mut self, dir: Ino, d: &mut Inode, name: &[u8], ino: Ino) -> Result<u64, Stop> {
        legal(name)?;
        let (key, mut names) = self.named(View::Live, dir, name)?;
        if names.iter().any(|n| n.name == name) {
            return Err(Fault::Exists.into());
        }
        let cookie = d.cookie;
        let used_up = || Fault::Corrupt("a directory has no place for a name".into());
        let next = cookie.checked_add(1).ok_or_else(used_up)?;
        names.push(Named { cookie, ino, name: name.to_vec() });
        let value = encode_names(&names);
        if value.len() > tree::value_max(self.step.block()) {
            return Err(Fault::NoSpace("too many names of one hash in a directory").into());
        }
        self.put(&key, &value)?;
        self.put(&Key::new(dir, Item::Entry, cookie), &encode_entry(ino, name))?;
        d.cookie = next;
        d.entries = d.entries.saturating_add(1);
        Ok(cookie)
    }

    /// Takes a name out; its file.
    fn remove_entry(&mut self, dir: Ino, d: &mut Inode, name: &[u8]) -> Result<Ino, Stop> {
        let (key, mut names) = self.named(View::Live, dir, name)?;
        let at = names.iter().position(|n| n.name == name).ok_or(Stop::Fail(Fault::NotFound))?;
        let gone = names.remove(at);
        if names.is_empty() {
            self.take(&key)?;
        } else {
            self.put(&key, &encode_names(&names))?;
        }
        self.take(&Key::new(dir, Item::Entry, gone.cookie))?;
        d.entries = d.entries.saturating_sub(1);
        Ok(gone.ino)
    }

    /// Enters a name in a directory, for a file whose attributes get it too; its cookie.
    pub(super) fn add_name(&mut self, dir: Ino, name: &[u8], ino: Ino) -> Result<u64, Stop> {
        let mut d = self.directory(View::Live, dir)?;
        let cookie = self.add_entry(dir, &mut d, name, ino)?;
        let by = d.muid;
        self.directory_changed(dir, &mut d, by)?;
        Ok(cookie)
    }

    /// Takes a name out of a directory, and leaves its file as it is.
    pub(super) fn remove_name(&mut self, dir: Ino, name: &[u8]) -> Result<(), Stop> {
        let mut d = self.directory(View::Live, dir)?;
        self.remove_entry(dir, &mut d, name)?;
        let by = d.muid;
        self.directory_changed(dir, &mut d, by)
    }

    fn directory_changed(&mut self, dir: Ino, d: &mut Inode, by: u32) -> Result<(), Stop> {
        d.version = self.step.new_change()?;
        d.mtime_ns = self.now_ns();
        d.ctime_ns = d.mtime_ns;
        d.muid = by;
        self.put_inode(dir, d)
    }

    /// Makes a file. [`Fault::Exists`] when the name is taken.
    pub fn create(&mut self, dir: Ino, name: &[u8], new: &New) -> Result<Ino, Stop> {
        let mut d = self.directory(View::Live, dir)?;
        if d.links == 0 {
            return Err(Fault::NotFound.into());
        }
        let ino = self.step.new_ino()?;
        let place = self.add_entry(dir, &mut d, name, ino)?;
        let now = self.now_ns();
        // No dump shows the files of a temporary directory, so none is to hold them (T4).
        let temporary = if d.flags.has(Flags::TMP) { Flags::TMP } else { Flags(0) };
        let inode = Inode {
            kind: new.kind,
            flags: new.flags.with(temporary),
            mode: new.mode & 0o7777,
            uid: new.uid,
            gid: new.gid,
            muid: new.uid,
            links: 1,
            version: self.step.new_change()?,
            mtime_ns: now,
            atime_ns: now,
            ctime_ns: now,
            parent: dir,
            parent_cookie: place,
            cookie: 1,
            ..Inode::default()
        };
        self.put_inode(ino, &inode)?;
        self.scratch_for(ino, &inode)?;
        self.directory_changed(dir, &mut d, new.uid)?;
        Ok(ino)
    }

    /// Removes a name, and with the last one the file, as soon as it has no keeper.
    pub fn remove(&mut self, dir: Ino, name: &[u8], by: u32) -> Result<Ino, Stop> {
        self.step.to_give_back();
        let mut d = self.directory(View::Live, dir)?;
        let ino = self.remove_entry(dir, &mut d, name)?;
        let inode = self.inode(View::Live, ino)?;
        if inode.kind == Kind::Dir && inode.entries > 0 {
            return Err(Fault::NotEmpty.into());
        }
        self.directory_changed(dir, &mut d, by)?;
        self.unlink(ino, inode)?;
        Ok(ino)
    }

    /// Gives a file another name, in the same directory or another. A file in its place is removed
    /// with `replace`; a directory only for a directory, and only when it is empty.
    pub fn rename(
        &mut self,
        from: Ino,
        name: &[u8],
        to: Ino,
        new: &[u8],
        replace: bool,
        by: u32,
    ) -> Result<(), Stop> {
        legal(new)?;
        let mut d = self.directory(View::Live, from)?;
        let moved = self.lookup(View::Live, from, name)?.ok_or(Stop::Fail(Fault::NotFound))?;
        if from == to && name == new {
            return Ok(());
        }
        let mut inode = self.inode(View::Live, moved)?;
        if inode.kind == Kind::Dir && from != to {
            self.not_below(to, moved)?;
        }
        if let Some(old) = self.lookup(View::Live, to, new)? {
            self.may_replace(old, &inode, replace)?;
            self.remove(to, new, by)?;
            d = self.directory(View::Live, from)?;
        }
        self.remove_entry(from, &mut d, name)?;
        if from == to {
            inode.parent_cookie = self.add_entry(to, &mut d, new, moved)?;
        } else {
            self.directory_changed(from, &mut d, by)?;
            d = self.directory(View::Live, to)?;
            if d.links == 0 {
                return Err(Fault::NotFound.into());
            }
            inode.parent_cookie = self.add_entry(to, &mut d, new, moved)?;
            inode.parent = to;
        }
        self.directory_changed(to, &mut d, by)?;
        inode.ctime_ns = self.now_ns();
        self.put_inode(moved, &inode)
    }

    fn may_replace(&mut self, old: Ino, by: &Inode, replace: bool) -> Result<(), Stop> {
        let existing = self.inode(View::Live, old)?;
        Err(match (replace, existing.kind, by.kind) {
            (false, ..) => Fault::Exists.into(),
            (_, Kind::Dir, Kind::File) => Fault::IsDir.into(),
            (_, Kind::File, Kind::Dir) => Fault::NotDir.into(),
            (_, Kind::Dir, _) if existing.entries > 0 => Fault::NotEmpty.into(),
            _ => return Ok(()),
        })
    }

    /// A directory does not move into itself.
    fn not_below(&mut self, mut dir: Ino, moved: Ino) -> Result<(), Stop> {
        for _ in 0..100_000 {
            if dir == moved {
                return Err(Fault::Invalid("a directory cannot move into itself").into());
            }
            if dir == ROOT {
                return Ok(());
            }
            dir = self.inode(View::Live, dir)?.parent;
        }
        Err(Fault::Corrupt("directories form a cycle".into()).into())
    }
}
