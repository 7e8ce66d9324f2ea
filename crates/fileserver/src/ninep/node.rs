//! Nodes that fids refer to: a file of a view, or a directory of the dumps' tree, which is on no
//! disk.
//!
//! ```text
//!   dump tree:   /            every year in which there are dumps
//!                /2026        1120, 1121, 11211 ...
//!                /2026/1121   root of that dump
//! ```

use wire::ninep::{Qid, Stat, mode, qtype};

use super::refusal::Refusal;
use crate::fault::{Fault, Stop};
use crate::files::{Files, Flags, Inode, Kind, ROOT};
use crate::users::{ADM, Id, Owned, Users};
use crate::volume::{Dump, View};

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Node {
    /// A file.
    File(View, u64),
    /// Root of the dumps' tree.
    Dumps,
    /// A year of it.
    Year(u32),
}

/// The attributes of a node.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// Attributes.
    pub inode: Inode,
    /// Its name.
    pub name: Vec<u8>,
    /// Its qid.
    pub qid: Qid,
}

impl Facts {
    /// The attributes that decide permissions.
    pub fn owned(&self) -> Owned {
        let i = &self.inode;
        Owned { mode: i.mode, uid: i.uid, gid: i.gid, is_dir: i.kind == Kind::Dir }
    }

    /// It is a directory.
    pub fn is_dir(&self) -> bool {
        self.inode.kind == Kind::Dir
    }

    /// Mode as 9P has it.
    pub fn mode(&self) -> u32 {
        u32::from(self.qid.kind) << 24 | self.inode.mode & 0o777
    }

    /// Appends it as an entry of a directory.
    pub fn encode(&self, users: &Users, out: &mut Vec<u8>) {
        let name = String::from_utf8_lossy(&self.name);
        let who = |id: Id| users.name(id);
        let (uid, gid, muid) = (who(self.inode.uid), who(self.inode.gid), who(self.inode.muid));
        self.stat(&name, &uid, &gid, &muid).encode(out);
    }

    /// As a stat, with the names of its user numbers.
    pub fn stat<'a>(&self, name: &'a str, uid: &'a str, gid: &'a str, muid: &'a str) -> Stat<'a> {
        let seconds = |ns: u64| u32::try_from(ns / 1_000_000_000).unwrap_or(u32::MAX);
        Stat {
            kind: 0,
            dev: 0,
            qid: self.qid,
            mode: self.mode(),
            atime: seconds(self.inode.atime_ns),
            mtime: seconds(self.inode.mtime_ns),
            length: if self.is_dir() { 0 } else { self.inode.size },
            name,
            uid,
            gid,
            muid,
        }
    }
}

/// Paths of nodes that are not files of the live tree are mixed: clients take files of one path for
/// one file.
fn mix_path(a: u64, b: u64) -> u64 {
    let x = (a.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ b).wrapping_mul(0xd6e8_feb8_6659_fd93);
    (x ^ (x >> 29)) | 1 << 63
}

fn kind_bits(i: &Inode) -> u8 {
    let bit = |on: bool, bit: u8| if on { bit } else { 0 };
    bit(i.kind == Kind::Dir, qtype::DIR)
        | bit(i.flags.has(Flags::APPEND), qtype::APPEND)
        | bit(i.flags.has(Flags::EXCL), qtype::EXCL)
        | bit(i.flags.has(Flags::TMP), qtype::TMP)
}

fn synthetic_facts(kind: &Node, name: String, time_ns: u64, count: usize) -> Facts {
    let path = match kind {
        Node::Year(year) => mix_path(1, u64::from(*year)),
        _ => mix_path(1, 0),
    };
    let inode = Inode {
        kind: Kind::Dir,
        mode: 0o555,
        uid: ADM,
        gid: ADM,
        muid: ADM,
        links: 1,
        mtime_ns: time_ns,
        atime_ns: time_ns,
        ..Inode::default()
    };
    let qid = Qid { kind: qtype::DIR, version: count as u32, path };
    Facts { inode, name: name.into_bytes(), qid }
}

fn dumps_of_year(dumps: &[Dump], year: u32) -> impl DoubleEndedIterator<Item = &Dump> {
    dumps.iter().filter(move |d| d.date / 10_000 == year)
}

impl Node {
    /// A file of the live tree.
    pub fn live(self) -> Result<u64, Refusal> {
        match self {
            Node::File(View::Live, ino) => Ok(ino),
            _ => Err(Fault::ReadOnly.into()),
        }
    }

    /// Its attributes.
    pub fn facts(self, f: &mut Files<'_, '_>) -> Result<Facts, Stop> {
        match self {
            Node::Dumps => {
                let dumps = f.dumps();
                Ok(synthetic_facts(
                    &self,
                    "/".into(),
                    dumps.last().map_or(0, |d| d.time_ns),
                    dumps.len(),
                ))
            }
            Node::Year(year) => {
                let dumps = f.dumps();
                let last =
                    dumps_of_year(dumps, year).next_back().ok_or(Stop::Fail(Fault::NotFound))?;
                let n = dumps_of_year(dumps, year).count();
                Ok(synthetic_facts(&self, format!("{year:04}"), last.time_ns, n))
            }
            Node::File(view, ino) => {
                let inode = f.inode(view, ino)?;
                let name = match f.name(view, ino)? {
                    Some((_, name)) => name,
                    None => self.root_name(f),
                };
                let path = match view {
                    View::Live => ino,
                    View::Dump(n) => mix_path(u64::from(n) + 2, ino),
                };
                let qid = Qid { kind: kind_bits(&inode), version: inode.version as u32, path };
                Ok(Facts { inode, name, qid })
            }
        }
    }

    fn root_name(self, f: &Files<'_, '_>) -> Vec<u8> {
        let Node::File(View::Dump(n), ROOT) = self else { return b"/".to_vec() };
        let dump = f.dumps().iter().find(|d| d.number == n);
        dump.map_or_else(|| b"/".to_vec(), |d| d.path().1.into_bytes())
    }

    /// Its parent.
    pub fn parent(self, f: &mut Files<'_, '_>) -> Result<Node, Stop> {
        Ok(match self {
            Node::Dumps | Node::Year(_) => Node::Dumps,
            Node::File(View::Live, ROOT) => self,
            Node::File(View::Dump(n), ROOT) => {
                let date = f.dumps().iter().find(|d| d.number == n).map(|d| d.date);
                Node::Year(date.ok_or(Stop::Fail(Fault::NotFound))? / 10_000)
            }
            // A directory that was removed still knows where it was; if that was removed too, the
            // root is left.
            Node::File(view, ino) => match f.inode(view, ino).map(|i| i.parent) {
                Ok(parent) if f.inode(view, parent).is_ok_and(|p| p.links > 0) => {
                    Node::File(view, parent)
                }
                Ok(_) | Err(Stop::Fail(Fault::NotFound)) => Node::File(view, ROOT),
                Err(stop) => return Err(stop),
            },
        })
    }

    /// The node of that name in it.
    pub fn child(self, f: &mut Files<'_, '_>, name: &str) -> Result<Option<Node>, Stop> {
        match self {
            Node::File(view, dir) => {
                let found = f.lookup(view, dir, name.as_bytes())?;
                Ok(found.map(|ino| Node::File(view, ino)))
            }
            Node::Dumps => {
                let is = |d: &&Dump| d.path().0 == name;
                Ok(f.dumps().iter().find(is).map(|d| Node::Year(d.date / 10_000)))
            }
            Node::Year(year) => {
                let found = dumps_of_year(f.dumps(), year).find(|d| d.path().1 == name);
                Ok(found.map(|d| Node::File(View::Dump(d.number), ROOT)))
            }
        }
    }

    /// Its entries behind the cookie `after`, with cookies.
    pub fn children(
        self,
        f: &mut Files<'_, '_>,
        after: u64,
        most: usize,
    ) -> Result<Vec<(u64, Node)>, Stop> {
        Ok(match self {
            Node::File(view, dir) => {
                let some = f.entries(view, dir, after, most)?;
                some.iter().map(|e| (e.cookie, Node::File(view, e.ino))).collect()
            }
            Node::Dumps => {
                let mut years: Vec<u32> = f.dumps().iter().map(|d| d.date / 10_000).collect();
                years.dedup();
                years.retain(|y| u64::from(*y) > after);
                years.into_iter().take(most).map(|y| (u64::from(y), Node::Year(y))).collect()
            }
            Node::Year(year) => dumps_of_year(f.dumps(), year)
                .map(|d| u64::from(d.number))
                .filter(|n| *n > after)
                .take(most)
                .map(|n| (n, Node::File(View::Dump(n as u32), ROOT)))
                .collect(),
        })
    }
}

/// Mode of a Tcreate or Twstat, taken apart: permission bits and flags.
pub fn split_mode(mode: u32) -> (u32, Flags) {
    let flag = |bit: u32, flag: Flags| if mode & bit != 0 { flag } else { Flags(0) };
    let flags = flag(mode::APPEND, Flags::APPEND)
        .with(flag(mode::EXCL, Flags::EXCL))
        .with(flag(mode::TMP, Flags::TMP));
    (mode & 0o777, flags)
}
