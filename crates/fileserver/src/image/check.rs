//! The check: the rules of cwfs' own. Everything that a view's tree names is looked at: tags and
//! their paths, ranges, addresses and numbers that are there twice; of the live tree the free list
//! and the buckets too.

use std::collections::HashSet;

use super::Image;
use super::format::{
    self, BUCKETS, BlockState, Bucket, DENTRIES, DIRECT, Dentry, FIRST, POINTERS, Tag, path, u64_at,
};
use super::step::Step;
use crate::fault::{Addr, Fault, Stop};
use crate::files::Checked;
use crate::volume::View;

/// Faults that are told; further ones are counted.
const FAULTS_MAX: usize = 1000;
/// Levels of directories.
const DEPTH_MAX: usize = 500;

/// What is known while it runs.
struct Look {
    view: View,
    rdall: bool,
    seen: HashSet<Addr>,
    files: HashSet<u64>,
    qid_max: u64,
    found: Checked,
}

/// A block to be looked at.
struct Item {
    addr: Addr,
    tag: Tag,
    of: u64,
    name: String,
    depth: usize,
}

fn fault(found: &mut Checked, text: String) {
    if found.faults.len() < FAULTS_MAX {
        found.faults.push(text);
    } else {
        found.more += 1;
    }
}

impl Image {
    /// Looks at all of a view; `rdall`: at every block of every file too.
    pub async fn check(&self, view: View, rdall: bool) -> Result<Checked, Fault> {
        let (seen, files) = (HashSet::new(), HashSet::new());
        let mut l = Look { view, rdall, seen, files, qid_max: 0, found: Checked::default() };
        let (root, spot) = self.run(|s| s.view_root(view)).await?;
        if view == View::Live {
            l.seen.insert(spot);
        }
        l.found.dirs += 1;
        let mut open = entry_items(&mut l, &root, String::new(), 0);
        while let Some(item) = open.pop() {
            self.look_at(&mut l, item, &mut open).await?;
        }
        if view == View::Live {
            self.check_super(&mut l).await?;
            self.check_buckets(&mut l).await?;
        }
        Ok(l.found)
    }

    async fn look_at(&self, l: &mut Look, i: Item, open: &mut Vec<Item>) -> Result<(), Fault> {
        if !l.seen.insert(i.addr) {
            fault(&mut l.found, format!("{}: block {} is there twice", i.name, i.addr));
            return Ok(());
        }
        l.found.blocks += 1;
        if i.tag == Tag::File && !l.rdall {
            return Ok(());
        }
        let (view, addr, tag, of) = (l.view, i.addr, i.tag, i.of);
        let block = match self.run(|s| s.block(view, addr, tag, of)).await {
            Ok(block) => block,
            Err(e @ (Fault::Corrupt(_) | Fault::Io(..))) => {
                fault(&mut l.found, format!("{}: {e}", i.name));
                return Ok(());
            }
            Err(e) => return Err(e),
        };
        match tag {
            Tag::Dir => {
                let all: Vec<Dentry> =
                    block.with(|b| (0..DENTRIES).map(|s| Dentry::read(b, s)).collect());
                for d in all.into_iter().filter(Dentry::is_used) {
                    self.look_at_entry(l, &i, &d, open);
                }
            }
            Tag::Ind1 | Tag::Ind2 | Tag::Ind3 | Tag::Ind4 => {
                l.found.nodes += 1;
                let leaf = if i.depth & 1 == 1 { Tag::Dir } else { Tag::File };
                let tag = match tag {
                    Tag::Ind1 => leaf,
                    Tag::Ind2 => Tag::Ind1,
                    Tag::Ind3 => Tag::Ind2,
                    _ => Tag::Ind3,
                };
                let all: Vec<Addr> =
                    block.with(|b| (0..POINTERS).map(|n| u64_at(b, 8 * n)).collect());
                for addr in all.into_iter().filter(|a| *a != 0) {
                    open.push(Item { addr, tag, of, name: i.name.clone(), depth: i.depth });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn look_at_entry(&self, l: &mut Look, i: &Item, d: &Dentry, open: &mut Vec<Item>) {
        let name = format!("{}/{}", i.name, String::from_utf8_lossy(&d.name));
        if let Some(why) = d.wrong() {
            return fault(&mut l.found, format!("{name}: {why}"));
        }
        if l.view != View::Live && d.mode & format::mode::TMP != 0 {
            return;
        }
        if !l.files.insert(d.path) || d.path == path::ROOT {
            fault(&mut l.found, format!("{name}: number {} is there twice", d.path));
        }
        l.qid_max = l.qid_max.max(d.path);
        if d.is_dir() {
            l.found.dirs += 1;
        } else {
            l.found.files += 1;
        }
        if i.depth / 2 >= DEPTH_MAX {
            return fault(&mut l.found, format!("{name}: directories are nested too deep"));
        }
        let more = entry_items(l, d, name, i.depth / 2 + 1);
        open.extend(more);
    }

    async fn check_super(&self, l: &mut Look) -> Result<(), Fault> {
        let has_worm = self.0.worm.is_some();
        let (sb_at, s, h) = self.run(|s| Ok((s.sb(), s.super_block()?, s.header()))).await?;
        for (what, addr) in [("the superblock", sb_at), ("the next superblock", s.next)] {
            if (has_worm || addr == sb_at) && !l.seen.insert(addr) {
                fault(&mut l.found, format!("{what}: block {addr} is there twice"));
            }
        }
        // Roots it hears of when it may be changed; the header's count.
        if has_worm && s.fsize > h.fsize {
            let text = format!("superblock says {s:?}, the header {h:?}");
            fault(&mut l.found, text);
        }
        if s.qidgen < l.qid_max {
            let text = format!("file {} is beyond the last number, {}", l.qid_max, s.qidgen);
            fault(&mut l.found, text);
        }
        let (mut at, tag, of) = (sb_at, [Tag::Super, Tag::Free], [path::SUPER, path::NONE]);
        let (mut first, mut n) = (true, 0);
        loop {
            let i = usize::from(!first);
            let block = match self.run(|s| s.block(View::Live, at, tag[i], of[i])).await {
                Ok(block) => block,
                Err(e @ Fault::Corrupt(_)) => {
                    fault(&mut l.found, format!("free list: {e}"));
                    break;
                }
                Err(e) => return Err(e),
            };
            let Some(len) = block.with(format::frees).filter(|n| *n > 0) else {
                fault(&mut l.found, format!("free list: block {at} has no length"));
                break;
            };
            for i in 0..len {
                let a = block.with(|b| format::free(b, i));
                if a == 0 && i == 0 {
                    continue;
                }
                n += 1;
                if a < FIRST || a >= s.fsize {
                    fault(&mut l.found, format!("free list: address {a} is out of range"));
                } else if !l.seen.insert(a) {
                    fault(&mut l.found, format!("free list: block {a} is there twice"));
                }
            }
            (at, first) = (block.with(|b| format::free(b, 0)), false);
            if at == 0 || n > s.fsize {
                break;
            }
        }
        if n != s.tfree {
            let text = format!("free list: {n} blocks, and the superblock says {}", s.tfree);
            fault(&mut l.found, text);
        }
        Ok(())
    }

    /// No address is cached twice, none is behind the end, and what nothing names is counted.
    async fn check_buckets(&self, l: &mut Look) -> Result<(), Fault> {
        if self.0.worm.is_none() {
            let end = self.run(|s| s.super_block()).await?.fsize;
            l.found.leaked = (end - FIRST).saturating_sub(l.seen.len() as u64);
            return Ok(());
        }
        let h = self.run(|s| Ok(s.header())).await?;
        {
            let state = self.0.state.borrow();
            l.seen.extend(state.spare.iter().chain(&state.left));
        }
        let mut cached = HashSet::new();
        for row in (0..h.msize).step_by(BUCKETS as usize) {
            let at = h.bucket_at(row);
            let block = self.run(|s| s.look(at)).await?;
            for row in row..(row + BUCKETS).min(h.msize) {
                let all: Vec<_> = block.with(|b| Bucket::of(b, row).entries().collect());
                for (_, e) in all.into_iter().filter(|(_, e)| e.state != BlockState::None) {
                    if !cached.insert(e.addr) {
                        fault(&mut l.found, format!("block {} is cached twice", e.addr));
                    }
                    if e.addr % h.msize != row || e.addr >= h.fsize {
                        let text = format!("bucket {row} has block {}", e.addr);
                        fault(&mut l.found, text);
                    }
                    // What was made since the last dump, and nothing names.
                    if e.state == BlockState::Dirty && !l.seen.contains(&e.addr) {
                        l.found.leaked += 1;
                    }
                }
            }
        }
        Ok(())
    }
}

/// Blocks that an entry names. An odd depth says that they are a directory's.
fn entry_items(l: &mut Look, d: &Dentry, name: String, depth: usize) -> Vec<Item> {
    let depth = 2 * depth + usize::from(d.is_dir());
    let mut out = Vec::new();
    for (index, addr) in d.direct.iter().chain(&d.indirect).enumerate() {
        if *addr == 0 {
            continue;
        }
        let tag = match index.checked_sub(DIRECT) {
            None => d.tag(),
            Some(i) => Tag::indirect(i + 1),
        };
        if *addr < FIRST {
            fault(&mut l.found, format!("{name}: address {addr} is out of range"));
            continue;
        }
        out.push(Item { addr: *addr, tag, of: d.path, name: name.clone(), depth });
    }
    out
}

impl Step<'_> {
    /// The root's entry, and the block that it stands in.
    fn view_root(&mut self, view: View) -> Result<(Dentry, Addr), Stop> {
        let (d, spot) = self.dentry(view, path::ROOT)?;
        Ok((d, spot.map_or(0, |s| s.0)))
    }
}
