//! Dumps: the tree as it is stays for ever.
//!
//! ```text
//!   walk of the tree, what is below first:  dirty -> dump;  write -> a new address, dump
//!   root and size into superblock and header
//!   root of dumps: the year's directory, in it a copy of the root's entry, called mmdd
//!   walk of the root of dumps
//!   superblock: a copy at the address that the last one reserved, dump; header
//! ```
//! Clients wait from beginning to end; each step is whole in itself, so that the power may go
//! between any two: then the tree is what it was, and there is no such dump.

use std::collections::{HashMap, HashSet};

use super::Image;
use super::format::{
    BlockState, DENTRIES, DIRECT, Dentry, LEVELS, POINTERS, Super, Tag, mode, path, put_u64, u64_at,
};
use super::names::BLOCKS_MAX;
use super::state::Spot;
use super::step::Step;
use crate::fault::{Addr, Fault, Stop};
use crate::volume::{Dump, View};

/// Addresses that a dump needs behind the walk of the tree.
const NEEDED: u64 = 50;
/// Levels of a tree, indirect blocks counted.
const DEPTH_MAX: usize = 1000;

/// What leads to a block.
#[derive(Clone, Copy)]
enum From {
    /// The header: it is the root of the tree, or of the dumps.
    Header { dumps: bool },
    /// An address of an entry, direct or indirect.
    Entry { block: Addr, of: u64, slot: usize, index: usize },
    /// An address of an indirect block.
    Indirect { block: Addr, tag: Tag, of: u64, index: usize },
}

/// A block that a walk comes by.
#[derive(Clone, Copy)]
struct Visit {
    addr: Addr,
    tag: Tag,
    /// What the leaves below an indirect block are.
    leaf: Tag,
    of: u64,
    from: From,
}

/// Gates shut for clients, until it is dropped.
struct Halt<'a>(&'a Image);

impl Drop for Halt<'_> {
    fn drop(&mut self) {
        self.0.0.dumping.set(false);
        self.0.0.moved.ring();
    }
}

fn level(tag: Tag) -> usize {
    [Tag::Ind1, Tag::Ind2, Tag::Ind3, Tag::Ind4].iter().position(|t| *t == tag).map_or(0, |i| i + 1)
}

fn below(tag: Tag, leaf: Tag) -> Tag {
    match level(tag) {
        0 | 1 => leaf,
        n => Tag::indirect(n - 1),
    }
}

impl Step<'_> {
    /// Whether a walk looks below a block.
    fn changed_below(&mut self, v: &Visit, all: bool) -> Result<bool, Stop> {
        use BlockState as S;
        let state = self.state(v.addr)?;
        let is_indirect = level(v.tag) > 0;
        // An indirect block may lead to something new without being new itself.
        Ok(matches!(state, S::Dirty | S::Write) || all || is_indirect && state != S::None)
    }

    /// Blocks that a block leads to.
    fn children(&mut self, v: &Visit) -> Result<Vec<Visit>, Stop> {
        if v.tag == Tag::File {
            return Ok(Vec::new());
        }
        let block = self.block(View::Live, v.addr, v.tag, v.of)?;
        let mut out = Vec::new();
        if v.tag == Tag::Dir {
            for slot in 0..DENTRIES {
                let d = block.with(|b| Dentry::read(b, slot));
                if d.mode & (mode::ALLOC | mode::TMP) != mode::ALLOC {
                    continue;
                }
                for (index, addr) in d.direct.iter().chain(&d.indirect).enumerate() {
                    let tag = match index.checked_sub(DIRECT) {
                        None => d.tag(),
                        Some(i) => Tag::indirect(i + 1),
                    };
                    let from = From::Entry { block: v.addr, of: v.of, slot, index };
                    let (leaf, of) = (d.tag(), d.path);
                    out.push(Visit { addr: *addr, tag, leaf, of, from });
                }
            }
        } else {
            for index in 0..POINTERS {
                let addr = block.with(|b| u64_at(b, 8 * index));
                let from = From::Indirect { block: v.addr, tag: v.tag, of: v.of, index };
                out.push(Visit { addr, tag: below(v.tag, v.leaf), from, ..*v });
            }
        }
        out.retain(|v| v.addr != 0);
        Ok(out)
    }

    /// Freezes a block, and has what leads to it follow if it moved.
    fn freeze(&mut self, v: &Visit) -> Result<Addr, Stop> {
        let Some(new) = self.split(v.addr, v.tag, v.of)? else { return Ok(v.addr) };
        match v.from {
            From::Header { dumps } => {
                self.set_header(|h| if dumps { h.dumps = new } else { h.root = new })?;
            }
            From::Entry { block, of, slot, index } => {
                let seg = self.change(block, Tag::Dir, of)?;
                seg.with_mut(|b| {
                    let mut d = Dentry::read(b, slot);
                    match index.checked_sub(DIRECT) {
                        None => d.direct[index] = new,
                        Some(i) if i < LEVELS => d.indirect[i] = new,
                        Some(_) => {}
                    }
                    d.write(b, slot);
                });
            }
            From::Indirect { block, tag, of, index } => {
                let seg = self.change(block, tag, of)?;
                seg.with_mut(|b| put_u64(b, 8 * index, new));
            }
        }
        Ok(new)
    }

    /// Entries of a directory that is no file's, with their places.
    fn list(&mut self, d: &Dentry, seen: &mut HashSet<Addr>) -> Result<Vec<(Dentry, Spot)>, Stop> {
        let mut out = Vec::new();
        for n in 0..BLOCKS_MAX {
            let at = self.map(View::Live, d, n)?;
            if at == 0 {
                break;
            }
            if !seen.insert(at) {
                let why = format!("block {at} of the tree of dumps is there twice");
                return Err(Fault::Corrupt(why).into());
            }
            let block = self.block(View::Live, at, Tag::Dir, d.path)?;
            for slot in 0..DENTRIES {
                out.push((block.with(|b| Dentry::read(b, slot)), (at, slot)));
            }
        }
        Ok(out)
    }

    /// Every dump that the root of dumps names, in order, with the place of its entry.
    pub(super) fn all_dumps(&mut self) -> Result<Vec<(Dump, Spot)>, Stop> {
        if !self.has_worm() {
            return Ok(Vec::new());
        }
        let root = self.dump_entry(self.header().dumps, path::ROOT, 0)?;
        let (mut out, mut seen) = (Vec::new(), HashSet::new());
        for (year, _) in self.list(&root, &mut seen)?.into_iter().filter(|(y, _)| y.is_used()) {
            let Some(y) = digits(&year.name, 4).filter(|_| year.name.len() == 4) else { continue };
            for (d, spot) in self.list(&year, &mut seen)?.into_iter().filter(|(d, _)| d.is_used()) {
                let Some(day) = digits(&d.name, 4) else { continue };
                let serial = match &d.name[4..] {
                    [] => Some(0),
                    rest => digits(rest, rest.len()),
                };
                let Some(serial) = serial else { continue };
                let dump = Dump {
                    date: y * 10_000 + day,
                    serial,
                    root: spot.0,
                    time_ns: u64::from(d.mtime) * 1_000_000_000,
                    ..Dump::default()
                };
                out.push((dump, spot));
            }
        }
        out.sort_by_key(|(d, _)| (d.date, d.serial));
        // A number stays a dump's own, also when the clock was put back before the next.
        let known: HashMap<(u32, u32), u32> =
            self.dumps().iter().map(|d| ((d.date, d.serial), d.number)).collect();
        let mut next = known.len() as u32 + 1;
        for (dump, _) in &mut out {
            dump.number = known.get(&(dump.date, dump.serial)).copied().unwrap_or(next);
            next += u32::from(dump.number == next);
        }
        out.sort_by_key(|(d, _)| d.number);
        Ok(out)
    }

    /// The dump gets its name. The directory of its year is made if need be.
    fn enter_dump(&mut self, date: u32) -> Result<(), Stop> {
        let at = self.header().dumps;
        let (year, day) = (format!("{:04}", date / 10_000), format!("{:04}", date % 10_000));
        let now = self.now();
        let live = self.dump_entry(self.header().root, path::ROOT, 0)?;
        let mut root = self.dump_entry(at, path::ROOT, 0)?;
        let mut seen = HashSet::new();
        let years = self.list(&root, &mut seen)?;
        let is = |(y, _): &&(Dentry, Spot)| y.is_used() && y.name == year.as_bytes();
        let (mut entry, spot) = match years.iter().find(is) {
            Some((y, spot)) => (y.clone(), *spot),
            None => {
                let spot = self.empty_slot(&mut root, &years)?;
                let entry = Dentry {
                    name: year.into_bytes(),
                    direct: [0; DIRECT],
                    indirect: [0; LEVELS],
                    version: live.version.wrapping_add(1),
                    atime: now,
                    mtime: now,
                    ..live.clone()
                };
                root.mtime = now;
                root.version = root.version.wrapping_add(1);
                (entry, spot)
            }
        };
        root.atime = now;
        let block = self.change(at, Tag::Dir, path::ROOT)?;
        block.with_mut(|b| root.write(b, 0));
        let days = self.list(&entry, &mut seen)?;
        let today = |(d, _): &&(Dentry, Spot)| d.is_used() && d.name.starts_with(day.as_bytes());
        let n = days.iter().filter(today).count();
        let place = self.empty_slot(&mut entry, &days)?;
        (entry.atime, entry.mtime) = (now, now);
        entry.version = entry.version.wrapping_add(1);
        let block = self.change(spot.0, Tag::Dir, path::ROOT)?;
        block.with_mut(|b| entry.write(b, spot.1));
        let name = if n == 0 { day } else { format!("{day}{n}") };
        let dump = Dentry {
            name: name.into_bytes(),
            version: live.version.wrapping_add(1),
            atime: now,
            mtime: now,
            ..live
        };
        let block = self.change(place.0, Tag::Dir, entry.path)?;
        block.with_mut(|b| dump.write(b, place.1));
        Ok(())
    }

    /// A slot of a directory that is no file's; it grows by a block if it has none.
    fn empty_slot(&mut self, d: &mut Dentry, all: &[(Dentry, Spot)]) -> Result<Spot, Stop> {
        if let Some((_, spot)) = all.iter().find(|(e, _)| !e.is_used()) {
            return Ok(*spot);
        }
        let n = (all.len() / DENTRIES) as u64;
        Ok((self.map_new(d, n)?.0, 0))
    }

    /// Roots and size are what the header says. It is ahead where a dump was broken off.
    pub(super) fn settle_super(&mut self) -> Result<(), Stop> {
        let (h, s) = (self.header(), self.super_block()?);
        let wanted = Super { fsize: h.fsize, root: h.root, dumps: h.dumps, ..s };
        if s != wanted {
            self.change_super()?.with_mut(|b| wanted.write(b));
        }
        Ok(())
    }

    /// The superblock of the dump: a copy of what it was at the address that was kept for it.
    fn new_super(&mut self) -> Result<(), Stop> {
        let old = self.sb();
        let sb = self.change_super()?;
        let at = sb.with(Super::read).next;
        let next = self.next_address()?;
        let h = self.header();
        sb.with_mut(|b| {
            let s = Super {
                last: old,
                next,
                fsize: h.fsize,
                root: h.root,
                dumps: h.dumps,
                ..Super::read(b)
            };
            s.write(b);
        });
        self.put_dump(at, &sb)?;
        // What it had become since its own dump is of no more use; the WORM has what it was.
        if let Some((c, e)) = self.entry(old)?
            && e.state == BlockState::Write
        {
            self.set_state(old, c, BlockState::None)?;
        }
        self.set_header(|h| h.sb = at)
    }
}

fn digits(name: &[u8], n: usize) -> Option<u32> {
    let text = std::str::from_utf8(name.get(..n)?).ok()?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl Image {
    /// Freezes the tree as it is as the dump of `date` (20261121). When it returns the dump is
    /// durable on the cache device.
    pub async fn dump(&self, date: u32) -> Result<Dump, Fault> {
        if self.0.worm.is_none() {
            return Err(Fault::Invalid("a file system without a WORM has no dumps"));
        }
        self.between_dumps().await;
        self.0.dumping.set(true);
        let _halt = Halt(self);
        let done = self.dump_now(date).await;
        // What was frozen is to be copied, whatever came of the rest.
        self.0.idle.set(false);
        self.0.moved.ring();
        done?;
        let all = self.dumps().into_iter().filter(|d| d.date == date);
        all.max_by_key(|d| d.serial)
            .ok_or(Fault::Corrupt("the root of dumps does not name the dump".into()))
    }

    async fn dump_now(&self, date: u32) -> Result<(), Fault> {
        self.has_room()?;
        // Whoever took the last one of the tree may not have marked what leads to a change.
        self.walk(From::Header { dumps: false }, true).await?;
        self.pressed(|s| s.settle_super()).await?;
        // Behind here nothing may be missing: the dump has its name.
        self.has_room()?;
        self.pressed(|s| s.enter_dump(date)).await?;
        self.walk(From::Header { dumps: true }, false).await?;
        self.pressed(|s| s.new_super()).await?;
        self.learn_dumps().await?;
        self.sync().await
    }

    fn has_room(&self) -> Result<(), Fault> {
        let h = self.0.state.borrow().header;
        match h.fsize.saturating_add(NEEDED) <= h.wsize {
            true => Ok(()),
            false => Err(Fault::NoSpace("the WORM has no room for a dump")),
        }
    }

    /// A step; when its bucket is full of blocks that are to be copied, then they are first.
    async fn pressed<T>(
        &self,
        mut op: impl FnMut(&mut Step<'_>) -> Result<T, Stop>,
    ) -> Result<T, Fault> {
        match self.step(&mut op).await {
            Err(Fault::NoSpace(_)) => {
                self.0.idle.set(false);
                self.copied().await?;
                self.step(&mut op).await
            }
            done => done,
        }
    }

    /// Reads which dumps there are.
    pub(super) async fn learn_dumps(&self) -> Result<(), Fault> {
        let all = self.step(&mut |s| s.all_dumps()).await?;
        let mut state = self.0.state.borrow_mut();
        (state.dumps, state.roots) = all.into_iter().unzip();
        Ok(())
    }

    /// Freezes a tree from its leaves up.
    async fn walk(&self, from: From, all: bool) -> Result<(), Fault> {
        let addr = {
            let header = self.0.state.borrow().header;
            if matches!(from, From::Header { dumps: true }) { header.dumps } else { header.root }
        };
        let root = Visit { addr, tag: Tag::Dir, leaf: Tag::Dir, of: path::ROOT, from };
        let mut open: Vec<(Visit, Vec<Visit>)> = vec![(root, self.look_below(root, all).await?)];
        let (mut n, mut seen) = (0_u32, HashSet::from([addr]));
        while let Some((_, waiting)) = open.last_mut() {
            if let Some(next) = waiting.pop() {
                if next.tag != Tag::File && !seen.insert(next.addr) {
                    if !all {
                        // Dumps share what did not change between them.
                        continue;
                    }
                    let why = format!("block {} is there twice: `check` says where", next.addr);
                    return Err(Fault::Corrupt(why));
                }
                if open.len() > DEPTH_MAX {
                    return Err(Fault::Corrupt("the tree is deeper than any".into()));
                }
                let children = self.look_below(next, all).await?;
                open.push((next, children));
            } else if let Some((done, _)) = open.pop() {
                self.freeze(&done).await?;
            }
            n += 1;
            if n.is_multiple_of(64) {
                self.0.reactor.yield_now().await;
            }
        }
        Ok(())
    }

    async fn look_below(&self, v: Visit, all: bool) -> Result<Vec<Visit>, Fault> {
        self.step(&mut |s| {
            if s.changed_below(&v, all)? { s.children(&v) } else { Ok(Vec::new()) }
        })
        .await
    }

    async fn freeze(&self, v: &Visit) -> Result<(), Fault> {
        self.pressed(|s| s.freeze(v)).await.map(drop)
    }
}
