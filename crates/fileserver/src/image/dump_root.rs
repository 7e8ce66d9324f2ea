//! The root of dumps. It has a directory for each year, and in it a copy of the root's entry for
//! each dump, called mmdd, or mmddN for a further one of that day.

use std::collections::{HashMap, HashSet};

use super::Image;
use super::format::{DENTRIES, DIRECT, Dentry, LEVELS, Tag, path};
use super::freeze_walk::Visit;
use super::names::BLOCKS_MAX;
use super::state::BlockSlot;
use super::step::Step;
use crate::fault::{Addr, Fault, Stop};
use crate::volume::{Dump, View};

impl Step<'_> {
    /// Entries of a directory that is no file's, with their places.
    fn list(
        &mut self,
        d: &Dentry,
        seen: &mut HashSet<Addr>,
    ) -> Result<Vec<(Dentry, BlockSlot)>, Stop> {
        let mut out = Vec::new();
        for n in 0..BLOCKS_MAX {
            let at = self.map(View::Live, d, n)?;
            if at == 0 {
                break;
            }
            if !seen.insert(at) {
                let why = format!("block {at} of the tree of dumps is used twice");
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
    pub(super) fn all_dumps(&mut self) -> Result<Vec<(Dump, BlockSlot)>, Stop> {
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

    /// A frozen tree becomes a dump: it gets its name and its superblock, in one step; how many
    /// blocks these took.
    pub(super) fn publish(&mut self, root: Addr, date: u32) -> Result<u64, Stop> {
        self.moving = true;
        // This takes an address before the rest of the step uses the last ones.
        let next = self.next_address()?;
        let at = self.header().dumps;
        let (year, day) = (format!("{:04}", date / 10_000), format!("{:04}", date % 10_000));
        let now = self.now();
        let live = self.dump_entry(root, path::ROOT, 0)?;
        let version = live.version.wrapping_add(1);
        let mut top = self.dump_entry(at, path::ROOT, 0)?;
        let mut seen = HashSet::new();
        let years = self.list(&top, &mut seen)?;
        let is = |(y, _): &(Dentry, BlockSlot)| y.is_used() && y.name == year.as_bytes();
        let found = years.iter().position(is);
        let mut entry = match found {
            Some(i) => years[i].0.clone(),
            None => {
                (top.mtime, top.version) = (now, top.version.wrapping_add(1));
                let (direct, indirect) = ([0; DIRECT], [0; LEVELS]);
                Dentry { name: year.into_bytes(), direct, indirect, version, ..live.clone() }
            }
        };
        let days = self.list(&entry, &mut seen)?;
        let today =
            |(d, _): &&(Dentry, BlockSlot)| d.is_used() && d.name.starts_with(day.as_bytes());
        let n = days.iter().filter(today).count();
        let name = if n == 0 { day } else { format!("{day}{n}") }.into_bytes();
        let dump = Dentry { name, version, atime: now, mtime: now, ..live };
        self.put_at(&mut entry, empty_slot(&days), &dump)?;
        (entry.atime, entry.mtime) = (now, now);
        entry.version = entry.version.wrapping_add(1);
        self.put_at(&mut top, found.map_or(empty_slot(&years), |i| i as u64), &entry)?;
        top.atime = now;
        let own = self.writable_address(at, Tag::Dir, path::ROOT)?;
        self.set_header(|h| h.dumps = own)?;
        self.edit(own, Tag::Dir, path::ROOT)?.with_mut(|b| top.write(b, 0));
        let blocks = self.freeze_below(Visit::root(own))?;
        self.new_super(root, next)?;
        Ok(blocks + 1)
    }
}

/// A slot of a directory that is empty, or the one behind its end.
fn empty_slot(all: &[(Dentry, BlockSlot)]) -> u64 {
    all.iter().position(|(e, _)| !e.is_used()).unwrap_or(all.len()) as u64
}

fn digits(name: &[u8], n: usize) -> Option<u32> {
    let text = std::str::from_utf8(name.get(..n)?).ok()?;
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

impl Image {
    /// Reads which dumps there are.
    pub(super) async fn learn_dumps(&self) -> Result<(), Fault> {
        let all = self.step(&mut |s| s.all_dumps()).await?;
        let mut state = self.0.state.borrow_mut();
        (state.dumps, state.roots) = all.into_iter().unzip();
        Ok(())
    }
}
