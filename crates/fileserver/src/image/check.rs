//! The check of an image, by the rules of cwfs' own. Everything that a view's tree names is
//! checked: tags and their paths, ranges, addresses and numbers that occur twice. In the live tree
//! the free list and the buckets are checked too.
//!
//! ```text
//!   live tree:   frozen, and addresses on no list noted; the free list read  clients wait
//!                the tree of that moment walked, the buckets looked through  clients continue
//! ```
//! The result is that of one moment, although clients continue to make changes. A frozen tree stays
//! as it is (I5), addresses that it loses are not given again (I7), and no address below the end of
//! that moment becomes dirty. A dump is taken before it or after it. A dump's own tree never
//! changes at all.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher};

use super::Image;
use super::alloc::QID_MAX;
use super::format::{
    self, BUCKETS, BlockState, Bucket, DENTRIES, DIRECT, Dentry, Entry, FIRST, Header, POINTERS,
    Super, Tag, mode, path, u64_at,
};
use super::repair::{Change, EntryPath, Finding, Repair};
use super::state::DirSlot;
use super::step::Step;
use crate::fault::{Addr, Fault};
use crate::files::{Checked, Ino};
use crate::turn_budget::TurnBudget;
use crate::volume::View;

/// Limit of reported faults; further ones are counted.
const FAULTS_MAX: usize = 1000;
/// Levels of directories.
const DEPTH_MAX: usize = 500;
/// Work of a check for each pointer to a block, counted as bytes.
const POINTER_BYTES: usize = 1 << 10;

/// The moment that a check is of.
struct CheckSnapshot {
    /// Where its root is.
    root: Addr,
    header: Header,
    /// Files without a name.
    unlinked: Vec<Dentry>,
    /// Addresses that are free.
    free: HashSet<Addr>,
    /// Faults of the free list.
    list: Vec<Finding>,
    /// The superblock's address and contents.
    sb: (Addr, Super),
}

/// The state of a running check.
pub(super) struct CheckRun {
    view: View,
    rdall: bool,
    /// Blocks of any kind whose tag is checked: several name them.
    pub suspects: HashSet<Addr>,
    /// See `suspects`; found this time.
    pub twice: HashSet<Addr>,
    seen: HashSet<Addr>,
    free: HashSet<Addr>,
    /// The place of each number, and a sum of the addresses there.
    files: HashMap<Ino, (DirSlot, u64)>,
    qid_max: u64,
    /// Addresses behind it are none.
    end: Addr,
    /// Some of the tree could not be read: blocks without a known owner may have one.
    pub incomplete: bool,
    /// Addresses that neither the tree nor a list names.
    pub lost: Vec<Addr>,
    /// The faults.
    pub findings: Vec<Finding>,
    found: Checked,
}

/// A block to be looked at.
struct Item {
    addr: Addr,
    tag: Tag,
    /// The tag of the leaves below an indirect block.
    leaf: Tag,
    of: Ino,
    /// The first of the file's blocks that it is, or leads to.
    n: u64,
    name: String,
    depth: usize,
}

impl Item {
    fn level(&self) -> usize {
        self.tag.level()
    }

    /// The pointer to it is removed.
    fn hole(&self) -> Repair {
        Repair::Hole { file: self.of, n: self.n, level: self.level() }
    }
}

impl CheckRun {
    fn new(view: View, rdall: bool, end: Addr) -> CheckRun {
        CheckRun {
            view,
            rdall,
            suspects: HashSet::new(),
            twice: HashSet::new(),
            seen: HashSet::new(),
            free: HashSet::new(),
            files: HashMap::new(),
            qid_max: 0,
            end,
            incomplete: false,
            lost: Vec::new(),
            findings: Vec::new(),
            found: Checked::default(),
        }
    }

    fn fault(&mut self, text: String, repair: Option<Repair>) {
        if self.findings.len() >= FAULTS_MAX {
            self.found.more += 1;
            return;
        }
        let way = match &repair {
            Some(Repair::Hole { file, .. } | Repair::Rescue { file, .. }) => self.entry_path(*file),
            Some(Repair::Entry(place, _)) => self.entry_path(place.dir),
            _ => EntryPath::new(),
        };
        self.findings.push(Finding { text, repair, path: way });
    }

    /// From the root down to a file.
    fn entry_path(&self, ino: Ino) -> EntryPath {
        let (mut out, mut at) = (EntryPath::new(), ino);
        while let Some((place, _)) = self.files.get(&at).filter(|_| out.len() <= DEPTH_MAX) {
            out.push((at, *place));
            at = place.dir;
        }
        out.reverse();
        out
    }

    /// The result without the repairs.
    fn checked(self) -> Checked {
        let faults = self.findings.into_iter().map(|f| f.text).collect();
        let leaked = if self.incomplete { 0 } else { self.lost.len() as u64 };
        Checked { faults, leaked, ..self.found }
    }

    /// Blocks that an entry names.
    fn pointers(&mut self, d: &Dentry, name: &str, depth: usize) -> Vec<Item> {
        let mut out = Vec::new();
        let (mut n, mut span) = (0, 1);
        for (index, addr) in d.direct.iter().chain(&d.indirect).enumerate() {
            let tag = match index.checked_sub(DIRECT) {
                None => d.tag(),
                Some(i) => {
                    span = (POINTERS as u64).saturating_pow(i as u32 + 1);
                    Tag::indirect(i + 1)
                }
            };
            let (leaf, of, name) = (d.tag(), d.path, name.to_owned());
            let item = Item { addr: *addr, tag, leaf, of, n, name, depth };
            out.extend(self.in_range(item));
            n = n.saturating_add(span);
        }
        out
    }

    /// An address that can be one.
    fn in_range(&mut self, i: Item) -> Option<Item> {
        match i.addr {
            0 => return None,
            a if a < FIRST || a >= self.end => {
                let text = format!("{}: address {a} is out of range", i.name);
                self.fault(text, Some(i.hole()));
                return None;
            }
            _ => {}
        }
        Some(i)
    }
}

impl Image {
    /// Looks at all of a view; `rdall`: at every block of every file too.
    pub async fn check(&self, view: View, rdall: bool) -> Result<Checked, Fault> {
        if view != View::Live {
            let (root, _) = self.step(&mut |s| s.root_entry(view)).await?;
            let mut l = self.new_run(view, rdall);
            self.walk_from(&mut l, &root).await?;
            return Ok(l.checked());
        }
        let _turn = self.lock_freezing().await;
        let _looking = self.begin_check()?;
        let _frozen = self.freeze();
        let halt = self.halt();
        let moment = self.check_snapshot().await?;
        drop(halt);
        Ok(self.survey(rdall, moment, HashSet::new()).await?.checked())
    }

    /// The same with the repairs; clients wait all along. Of blocks that several name, those
    /// that are known already, the tag is looked at too.
    pub(super) async fn survey_at_rest(
        &self,
        rdall: bool,
        suspects: HashSet<Addr>,
    ) -> Result<CheckRun, Fault> {
        let _frozen = self.freeze();
        let moment = self.check_snapshot().await?;
        self.survey(rdall, moment, suspects).await
    }

    fn new_run(&self, view: View, rdall: bool) -> CheckRun {
        let shape = self.0.state.borrow().shape;
        CheckRun::new(view, rdall, shape.worm.unwrap_or(shape.first))
    }

    /// The moment at which the tree was frozen. State in memory is noted at once. While clients
    /// wait, nothing is taken from the free list, and additions to it are noted twice then.
    async fn check_snapshot(&self) -> Result<CheckSnapshot, Fault> {
        let mut moment = {
            let state = self.0.state.borrow();
            CheckSnapshot {
                root: 0,
                header: state.header,
                unlinked: state.unlinked.values().cloned().collect(),
                free: state.spare.iter().chain(&state.left).copied().collect(),
                list: Vec::new(),
                sb: Default::default(),
            }
        };
        let (root, sb) = self.step(&mut |s| Ok((s.live_root(), s.sb()))).await?;
        (moment.root, moment.sb.0) = (root, sb);
        self.read_nodes(&mut moment).await?;
        self.read_list(&mut moment).await?;
        Ok(moment)
    }

    /// Spare addresses that are stored in nodes. One that is taken meanwhile is put on the list.
    async fn read_nodes(&self, m: &mut CheckSnapshot) -> Result<(), Fault> {
        let mut at = self.0.state.borrow().folded;
        let mut nodes = HashSet::new();
        // One that leads back to itself ends here.
        while at != 0 && nodes.insert(at) {
            m.free.insert(at);
            match self.step(&mut |s| s.node(at)).await {
                Ok((block, n)) => {
                    m.free.extend((1..n).map(|i| block.with(|b| format::free(b, i))));
                    at = block.with(|b| format::free(b, 0));
                }
                Err(e @ Fault::Corrupt(_)) => {
                    let text = format!("spare addresses: {e}");
                    m.list.push(Finding {
                        text,
                        repair: Some(Repair::List),
                        path: EntryPath::new(),
                    });
                    break;
                }
                Err(e) => return Err(e),
            }
            self.0.reactor.yield_now().await;
        }
        Ok(())
    }

    /// The free list, node by node.
    async fn read_list(&self, m: &mut CheckSnapshot) -> Result<(), Fault> {
        let fault = |text: String, list: &mut Vec<Finding>| {
            if list.len() < FAULTS_MAX {
                list.push(Finding { text, repair: Some(Repair::List), path: EntryPath::new() });
            }
        };
        let (mut listed, mut nodes) = (HashSet::new(), HashSet::new());
        let (mut at, mut tag, mut of) = (m.sb.0, Tag::Super, path::SUPER);
        let mut n = 0;
        loop {
            let block = match self.step(&mut |s| s.block(View::Live, at, tag, of)).await {
                Ok(block) => block,
                Err(e @ Fault::Corrupt(_)) if tag == Tag::Free => {
                    fault(format!("free list: {e}"), &mut m.list);
                    break;
                }
                Err(e) => return Err(e),
            };
            if tag == Tag::Super {
                m.sb.1 = block.with(Super::read);
            }
            let Some(len) = block.with(format::frees).filter(|n| *n > 0) else {
                fault(format!("free list: block {at} has no length"), &mut m.list);
                break;
            };
            for i in 0..len {
                let a = block.with(|b| format::free(b, i));
                if a == 0 && i == 0 {
                    continue;
                }
                n += 1;
                if a < FIRST || a >= m.sb.1.fsize.max(m.header.fsize) {
                    fault(format!("free list: address {a} is out of range"), &mut m.list);
                } else if !listed.insert(a) {
                    fault(format!("free list: block {a} is listed twice"), &mut m.list);
                }
            }
            (at, tag, of) = (block.with(|b| format::free(b, 0)), Tag::Free, path::NONE);
            // One that leads back to itself is there twice.
            if at == 0 || !nodes.insert(at) {
                break;
            }
            self.0.reactor.yield_now().await;
        }
        m.free.extend(listed);
        if n != m.sb.1.tfree {
            let recorded = m.sb.1.tfree;
            fault(format!("free list: {n} blocks; the superblock has {recorded}"), &mut m.list);
        }
        Ok(())
    }

    async fn survey(
        &self,
        rdall: bool,
        mut m: CheckSnapshot,
        suspects: HashSet<Addr>,
    ) -> Result<CheckRun, Fault> {
        let mut l = self.new_run(View::Live, rdall);
        l.suspects = suspects;
        l.findings = std::mem::take(&mut m.list);
        l.free = std::mem::take(&mut m.free);
        let has_worm = self.0.worm.is_some();
        l.seen.extend([m.root, m.sb.0]);
        l.found.highest = m.root.max(m.sb.0);
        if has_worm {
            l.seen.insert(m.sb.1.next);
        }
        let root = self.step(&mut |s| s.dump_entry(m.root, path::ROOT, 0)).await?;
        let root = Dentry { path: path::ROOT, ..root };
        self.walk_from(&mut l, &root).await?;
        for d in &m.unlinked {
            let name = format!("(file {} without a name)", d.path);
            l.found.orphans += 1;
            let open = l.pointers(d, &name, 1);
            self.walk_all(&mut l, open).await?;
        }
        self.check_super(&mut l, &m);
        self.check_buckets(&mut l, &m).await?;
        Ok(l)
    }

    async fn walk_from(&self, l: &mut CheckRun, root: &Dentry) -> Result<(), Fault> {
        l.found.dirs += 1;
        let open = l.pointers(root, "", 0);
        self.walk_all(l, open).await
    }

    async fn walk_all(&self, l: &mut CheckRun, mut open: Vec<Item>) -> Result<(), Fault> {
        let budget = TurnBudget::default();
        while let Some(item) = open.pop() {
            if self.0.closing.get() {
                return Err(Fault::Closed);
            }
            let waiting = open.len();
            self.look_at(l, item, &mut open).await?;
            let found = open.len().saturating_sub(waiting);
            if budget.spend(found * POINTER_BYTES, 0) {
                self.0.reactor.yield_now().await;
            }
        }
        Ok(())
    }

    async fn look_at(&self, l: &mut CheckRun, i: Item, open: &mut Vec<Item>) -> Result<(), Fault> {
        let (view, addr, tag, of) = (l.view, i.addr, i.tag, i.of);
        let suspect = l.suspects.contains(&addr);
        let is_read = suspect || l.rdall || tag != Tag::File;
        // A block that is known to occur twice is read only if that has to be reported.
        let block = match is_read && (suspect || !l.seen.contains(&addr)) {
            false => None,
            true => Some(self.step(&mut |s| s.block(view, addr, tag, of)).await),
        };
        if suspect && matches!(block, Some(Err(Fault::Corrupt(_)))) {
            l.fault(format!("{}: block {addr} belongs to another file", i.name), Some(i.hole()));
            return Ok(());
        }
        if !l.seen.insert(addr) {
            l.twice.insert(addr);
            l.fault(format!("{}: block {addr} is listed twice", i.name), None);
            return Ok(());
        }
        l.found.blocks += 1;
        l.found.highest = l.found.highest.max(addr);
        if l.free.contains(&addr) {
            let text = format!("{}: block {addr} is on the free list too", i.name);
            l.fault(text, Some(Repair::List));
        }
        let block = match block {
            None => return Ok(()),
            Some(Ok(block)) => block,
            Some(Err(e @ (Fault::Corrupt(_) | Fault::Io(..)))) => {
                let leaf = tag == Tag::File && matches!(e, Fault::Corrupt(_));
                l.incomplete |= tag != Tag::File;
                let rescue = Repair::Rescue { file: of, n: i.n, addr };
                l.fault(format!("{}: {e}", i.name), leaf.then_some(rescue));
                return Ok(());
            }
            Some(Err(e)) => return Err(e),
        };
        match tag {
            Tag::Dir => {
                let all: Vec<Dentry> =
                    block.with(|b| (0..DENTRIES).map(|s| Dentry::read(b, s)).collect());
                for (slot, d) in (i.n * DENTRIES as u64..).zip(all) {
                    if d.is_used() {
                        Self::look_at_entry(l, &i, slot, &d, open);
                    }
                }
            }
            Tag::Ind1 | Tag::Ind2 | Tag::Ind3 | Tag::Ind4 => {
                l.found.nodes += 1;
                let tag = tag.below(i.leaf);
                let span = (POINTERS as u64).saturating_pow(i.level() as u32 - 1);
                let all: Vec<Addr> =
                    block.with(|b| (0..POINTERS).map(|n| u64_at(b, 8 * n)).collect());
                for (index, addr) in (0..).zip(all) {
                    let n = i.n.saturating_add(span.saturating_mul(index));
                    let next = Item { addr, tag, n, name: i.name.clone(), ..i };
                    open.extend(l.in_range(next));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn look_at_entry(l: &mut CheckRun, i: &Item, slot: u64, d: &Dentry, open: &mut Vec<Item>) {
        let name = format!("{}/{}", i.name, String::from_utf8_lossy(&d.name));
        if l.view != View::Live && d.mode & mode::TMP != 0 {
            return;
        }
        let place = DirSlot { dir: i.of, slot };
        let is_bare = d.direct.iter().chain(&d.indirect).all(|a| *a == 0);
        if let Some(why) = d.invalid_field() {
            let how = match () {
                () if d.path == 0 => is_bare.then_some(Change::Number),
                () if d.size >= format::SIZE_END => Some(Change::Size),
                () => Some(Change::Name),
            };
            l.fault(format!("{name}: {why}"), how.map(|how| Repair::Entry(place, how)));
        }
        let mut sum = DefaultHasher::new();
        (d.direct, d.indirect, d.is_dir()).hash(&mut sum);
        let sum = sum.finish();
        let first = l.files.get(&d.path).copied();
        if d.path == path::ROOT || (d.path != 0 && first.is_some()) {
            let same = first.is_some_and(|(_, s)| s == sum);
            let how = match (is_bare, same) {
                (true, _) => Some(Change::Number),
                (false, true) => Some(Change::Remove),
                _ => None,
            };
            let text = format!("{name}: number {} is used twice", d.path);
            l.fault(text, how.map(|how| Repair::Entry(place, how)));
            if !is_bare {
                // The number does not show which file owns the blocks below it.
                l.incomplete |= !same;
                return;
            }
        } else if d.path != 0 {
            l.files.insert(d.path, (place, sum));
        }
        l.qid_max = l.qid_max.max(d.path);
        if d.is_dir() {
            l.found.dirs += 1;
        } else {
            l.found.files += 1;
        }
        if i.depth >= DEPTH_MAX {
            l.incomplete = true;
            return l.fault(format!("{name}: directories are nested too deep"), None);
        }
        open.extend(l.pointers(d, &name, i.depth + 1));
    }

    fn check_super(&self, l: &mut CheckRun, m: &CheckSnapshot) {
        let (s, h) = (m.sb.1, m.header);
        // The superblock gets new roots only when it may be changed; the header's are valid.
        if self.0.worm.is_some() && s.fsize > h.fsize {
            let end = (s.fsize <= l.end).then_some(Repair::End(s.fsize));
            l.fault(format!("the superblock has {s:?}, the header {h:?}"), end);
        }
        if s.qidgen < l.qid_max {
            let text = format!("file {} is beyond the last number, {}", l.qid_max, s.qidgen);
            let raise = (l.qid_max <= QID_MAX).then_some(Repair::Numbers(l.qid_max));
            l.fault(text, raise);
        }
    }

    /// No address is cached twice, none is behind the end, and what nothing names is counted.
    async fn check_buckets(&self, l: &mut CheckRun, m: &CheckSnapshot) -> Result<(), Fault> {
        if self.0.worm.is_none() {
            let known = |a: &Addr| l.seen.contains(a) || l.free.contains(a);
            l.lost = (FIRST..m.sb.1.fsize).filter(|a| !known(a)).collect();
            return Ok(());
        }
        let msize = m.header.msize;
        for first in (0..msize).step_by(BUCKETS as usize) {
            let mut look = |s: &mut Step<'_>| {
                let at = s.header().bucket_at(first);
                let block = s.read_block(at)?;
                let block = s.checked(block, at, Tag::Buckets, at)?;
                Ok((block, s.header().fsize))
            };
            let (block, fsize) = self.step(&mut look).await?;
            for row in first..(first + BUCKETS).min(msize) {
                let all: Vec<_> = block.with(|b| Bucket::of(b, row).entries().collect());
                let mut cached: Vec<(usize, Entry)> = Vec::new();
                // A copy of a block that the WORM has too may be forgotten.
                let forget = |(column, e): &(usize, Entry)| {
                    let (column, copy) = (*column, e.state == BlockState::Read);
                    copy.then_some(Repair::Forget { row, column })
                };
                for (column, e) in all.into_iter().filter(|(_, e)| e.state != BlockState::None) {
                    let this = (column, e);
                    if let Some(other) = cached.iter().find(|(_, o)| o.addr == e.addr) {
                        // It is unknown which of two such copies is right: both are forgotten.
                        for one in [&this, other] {
                            l.fault(format!("block {} is cached twice", e.addr), forget(one));
                        }
                    } else if e.addr % msize != row || e.addr >= fsize {
                        l.fault(format!("bucket {row} has block {}", e.addr), forget(&this));
                    }
                    cached.push(this);
                    // A block that was made since the last dump and that nothing names.
                    if e.state == BlockState::Dirty
                        && e.addr < m.header.fsize
                        && !l.seen.contains(&e.addr)
                        && !l.free.contains(&e.addr)
                    {
                        l.lost.push(e.addr);
                    }
                }
            }
            if self.0.closing.get() {
                return Err(Fault::Closed);
            }
            self.0.reactor.yield_now().await;
        }
        Ok(())
    }
}

/// A check of the live tree runs.
pub(super) struct CheckGuard<'a>(&'a Image);

impl Image {
    /// `close` waits for the check, which then ends soon.
    pub(super) fn begin_check(&self) -> Result<CheckGuard<'_>, Fault> {
        if self.0.closing.get() {
            return Err(Fault::Closed);
        }
        self.0.checking.set(true);
        Ok(CheckGuard(self))
    }
}

impl Drop for CheckGuard<'_> {
    fn drop(&mut self) {
        self.0.0.checking.set(false);
    }
}
