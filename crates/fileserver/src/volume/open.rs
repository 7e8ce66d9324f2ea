//! Making and opening volumes.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::{Pool, Seg};
use reactor::Reactor;

use super::ReadAhead;
use super::copy::Report;
use super::fence::{self, FenceEntry, Owner};
use super::frames::Frames;
use super::journal::{self, Record, Ring};
use super::layout::Layout;
use super::point::{Dump, MEMBERS_MAX, Point};
use super::space::Space;
use super::state::{Member, VolumeState, WORM_FIRST};
use super::table::Table;
use super::worm::{self, Label};
use super::{Inner, Volume, worm_reads};
use crate::ahead::Ahead;
use crate::fault::{Addr, Fault};
use crate::inflight_loads::Loads;
use crate::medium::Medium;
use crate::notify::Notify;
use crate::orphans::InodeRefs;
use crate::turn_budget::TurnBudget;

/// Why a volume is not opened with fewer or more devices of the WORM.
pub const MEMBER_COUNT_DIFFERS: &str =
    "the volume was made with another number of devices of the WORM";
/// Bytes read at a time when the journal is read in.
const READ_BYTES: usize = 1 << 20;
/// The devices and settings of a volume.
#[derive(Clone)]
pub struct Options {
    /// The reactor of its core.
    pub reactor: Reactor,
    /// Buffers of that core.
    pub pool: Pool,
    /// The cache device.
    pub cache: Rc<dyn Medium>,
    /// Devices of the WORM, each with all of it; none for a plain file system.
    pub members: Vec<Rc<dyn Medium>>,
    /// Bytes of the block cache.
    pub memory: usize,
    /// Bytes of a block; counts when a volume is made.
    pub block: u32,
    /// The identity of this server when a cache device is formatted. Later the identity on that
    /// device is used: a server is the same one if it has the same cache device.
    pub owner: Owner,
    /// What people call it.
    pub name: String,
    /// Wall clock, ns since 1970.
    pub clock: Rc<dyn Fn() -> u64>,
    /// See `State::fastworm`.
    pub fastworm: bool,
    /// Read ahead, until it is set otherwise.
    pub ahead: ReadAhead,
    /// Longest time that written data waits for a commit that no client requests, ns.
    pub commit_ns: u64,
}

impl Options {
    pub(super) async fn memory(&self, len: usize) -> Result<Seg, Fault> {
        for _ in 0..1000 {
            if let Some(seg) = self.pool.get(len).and_then(|b| b.seg(0, len)) {
                return Ok(seg);
            }
            self.reactor.sleep(1_000_000).await;
        }
        Err(Fault::NoSpace("the core's buffers are all in use"))
    }

    pub(super) fn check(&self) -> Result<(), Fault> {
        if self.members.len() > MEMBERS_MAX {
            return Err(Fault::Invalid("a WORM is mirrored on at most 8 devices"));
        }
        if self.memory < 64 * self.block as usize {
            return Err(Fault::Invalid("the block cache holds less than 64 blocks"));
        }
        Ok(())
    }
}

pub(super) async fn read(
    o: &Options,
    medium: &dyn Medium,
    at: u64,
    len: usize,
) -> Result<Vec<u8>, Fault> {
    let mut out = Vec::with_capacity(len);
    while out.len() < len {
        let seg = o.memory((len - out.len()).min(Pool::largest())).await?;
        let io_fault = |e| Fault::Io(e, format!("{}: byte {at}", medium.name()));
        medium.read(at + out.len() as u64, seg.clone().into()).await.map_err(io_fault)?;
        seg.with(|b| out.extend_from_slice(b));
    }
    Ok(out)
}

pub(super) async fn write(
    o: &Options,
    medium: &dyn Medium,
    at: u64,
    bytes: &[u8],
) -> Result<(), Fault> {
    let mut done = 0;
    for some in bytes.chunks(Pool::largest()) {
        let seg = o.memory(some.len()).await?;
        seg.copy_from(0, some);
        let io_fault = |e| Fault::Io(e, format!("{}: byte {at}", medium.name()));
        medium.write(at + done, seg.into()).await.map_err(io_fault)?;
        done += some.len() as u64;
    }
    Ok(())
}

pub(super) async fn flush(medium: &dyn Medium) -> Result<(), Fault> {
    medium.flush().await.map_err(|e| Fault::Io(e, format!("{}: flush", medium.name())))
}

/// Makes a volume; previous data on the devices is lost. Opening it is another step.
pub async fn ream(o: &Options) -> Result<(), Fault> {
    o.check()?;
    let volume = o.reactor.random() | 1;
    let block = o.block as usize;
    let plain = o.members.is_empty();
    let first = if plain { 1 } else { WORM_FIRST };
    for leg in &o.members {
        if leg.size() < (first + 16) * block as u64 {
            return Err(Fault::NoSpace("a device of the WORM is too small"));
        }
        let label = Label { volume, block: o.block, created_ns: (o.clock)() };
        // Seats and the first superblock of an earlier life end here.
        for addr in 1..=first {
            write(o, &**leg, addr * block as u64, &vec![0; block]).await?;
        }
        write(o, &**leg, 0, &label.encode()).await?;
        let seat = FenceEntry {
            owner: o.owner,
            name: o.name.clone(),
            epoch: 1,
            left: false,
            grant: first,
            start: first,
            latest: 0,
        };
        fence::write_entry(&**leg, volume, 0, &seat, o.memory(block).await?, block).await?;
    }
    let point = Point {
        root: 0,
        next: if plain { first } else { first + 1 },
        frozen: if plain { first } else { first + 1 },
        sb: if plain { 0 } else { first },
        ino: 1,
        change: 0,
        epoch: 1,
        last: Dump::default(),
        chain: 0,
        members: vec![first; o.members.len()],
    };
    format(o, volume, o.block, &point).await
}

/// Makes a cache device empty, with a point to begin from.
pub(super) async fn format(
    o: &Options,
    volume: u64,
    block: u32,
    point: &Point,
) -> Result<(), Fault> {
    let layout = Layout::plan(o.cache.size(), block, (volume, o.reactor.random()), o.owner)?;
    let cache = &*o.cache;
    // Without a header nothing on it counts, until all of it does.
    let blank = vec![0; block as usize];
    write(o, cache, 0, &blank).await?;
    write(o, cache, layout.at(1), &blank).await?;
    flush(cache).await?;
    let table = Table::new(&layout);
    for i in 0..layout.pages_used() {
        let at = layout.at(layout.pages.0 + 2 * i as u64);
        write(o, cache, at, &table.page(&layout, i, 0)).await?;
    }
    let record = Record { seq: 1, tail: 1, point: point.clone(), ..Record::default() };
    write(o, cache, layout.at(layout.ring.0), &record.encode(layout.format_id, block as usize))
        .await?;
    flush(cache).await?;
    write(o, cache, 0, &layout.encode()).await?;
    write(o, cache, layout.at(1), &layout.encode()).await?;
    flush(cache).await
}

pub(super) async fn layout(o: &Options) -> Result<Layout, Fault> {
    let size = o.cache.size();
    let mut why = "";
    for block in [0].into_iter().chain(super::BLOCKS) {
        let at = u64::from(block);
        if at + u64::from(super::BLOCKS[0]) > size {
            break;
        }
        let head = read(o, &*o.cache, at, super::BLOCKS[0] as usize).await;
        match head.as_deref().map(|b| Layout::decode(b, size)) {
            Ok(Ok(l)) => return Ok(l),
            Ok(Err(e)) if block == 0 => why = e,
            _ => {}
        }
        if block == 0 && head.is_ok_and(|b| b.iter().all(|b| *b == 0)) {
            why = "its beginning is blank";
        }
    }
    Err(Fault::Foreign(format!("{} is not a cache device of a volume: {why}", o.cache.name())))
}

/// Its cache device is one of a volume.
pub async fn is_formatted(o: &Options) -> bool {
    layout(o).await.is_ok()
}

/// Opens a volume that this server left, in order or not.
pub async fn open(o: &Options) -> Result<Volume, Fault> {
    o.check()?;
    let layout = layout(o).await?;
    let o = &Options { owner: layout.owner, ..o.clone() };
    if o.memory < 64 * layout.block as usize {
        return Err(Fault::Invalid("the block cache holds less than 64 blocks"));
    }
    let mut table = Table::new(&layout);
    let block = layout.block as usize;
    for i in 0..layout.pages_used() {
        let at = layout.at(layout.pages.0 + 2 * i as u64);
        let both = read(o, &*o.cache, at, 2 * block).await?;
        let (a, b) = both.split_at(block);
        if table.load(&layout, i, [a, b]).is_none() {
            let text = format!("{}: page {i} of the table: neither copy is good", o.cache.name());
            return Err(Fault::Corrupt(text));
        }
    }
    let mut ring = Ring::new(&layout);
    let records = journal::choose(records(o, &layout).await?)
        .map_err(|why| Fault::Corrupt(format!("{}: {why}", o.cache.name())))?;
    let mut last = Record::default();
    for (first, n, record) in records {
        for slot in &record.clears {
            table.replay(record.seq, *slot, super::table::Slot::default());
        }
        for (slot, held) in &record.sets {
            table.replay(record.seq, *slot, *held);
        }
        ring.found(record.seq, first, n);
        last = record;
    }
    table.index().map_err(|addr| {
        Fault::Corrupt(format!("{}: block {addr} is listed twice", o.cache.name()))
    })?;
    start(o, layout, table, ring, last).await
}

/// Every record in the ring.
async fn records(o: &Options, l: &Layout) -> Result<Vec<(u64, u64, Record)>, Fault> {
    let block = l.block as usize;
    let mut out = Vec::new();
    let (mut at, end) = (0, l.ring.1);
    while at < end {
        let n = (READ_BYTES / block).max(1).min((end - at) as usize);
        let bytes = read(o, &*o.cache, l.at(l.ring.0 + at), n * block).await?;
        for (i, head) in bytes.chunks(block).enumerate() {
            let first = at + i as u64;
            let Some(len) = Record::len_at(head, l.format_id) else { continue };
            let blocks = len.div_ceil(block) as u64;
            if first + blocks > end {
                continue;
            }
            let record = if len <= block {
                Record::decode(head, l.format_id)
            } else {
                let bytes = read(o, &*o.cache, l.at(l.ring.0 + first), blocks as usize * block);
                Record::decode(&bytes.await?, l.format_id)
            };
            // One that does not read was torn, or written over by a later one.
            if let Ok(record) = record {
                out.push((first, blocks, record));
            }
        }
        at += n as u64;
    }
    Ok(out)
}

/// The state that a record describes.
fn state(o: &Options, layout: Layout, table: Table, last: &Record) -> VolumeState {
    let point = &last.point;
    let legs = point.members.iter().zip(&o.members);
    let legs = legs.map(|(done, medium)| Member {
        done: *done,
        blocks: medium.size() / u64::from(layout.block),
    });
    let space = Space::new(point.frozen, point.next, point.epoch, table.addresses());
    let frames = Frames::new(o.memory, layout.block as usize);
    VolumeState {
        layout,
        frames,
        table,
        space,
        root: point.root,
        // Numbers given since the last commit are below the limit that it recorded.
        ino: point.ino,
        ino_limit: point.ino,
        change: point.change,
        change_limit: point.change,
        dumps: Vec::new(),
        sb: point.sb,
        chain: point.chain,
        epoch: point.epoch,
        members: legs.collect(),
        dropped: Vec::new(),
        emptied: Vec::new(),
        fills: Vec::new(),
        seq: last.seq,
        checkpoint: last.tail,
        written: point.clone(),
        pending: None,
        moved: false,
        wanted: Vec::new(),
        later: Vec::new(),
        dumped: point.last.number,
        fastworm: o.fastworm,
        bad_slots: 0,
        repaired: 0,
        refused: None,
        lease_until: 0,
        now_ns: (o.clock)(),
        tick: o.reactor.now(),
    }
}

fn inner(o: &Options, state: VolumeState, ring: Ring) -> Inner {
    let point = &state.written;
    let start = Cell::new(point.sb);
    let reports = o.members.iter().map(|m| Report { name: m.name().into(), ..Report::default() });
    Inner {
        reactor: o.reactor.clone(),
        pool: o.pool.clone(),
        cache: o.cache.clone(),
        members: o.members.clone(),
        state: RefCell::new(state),
        clock: o.clock.clone(),
        ahead: Ahead::starting(o.ahead),
        copying: Cell::new(true),
        growing: Cell::new(false),
        grown: Notify::default(),
        loads: Loads::default(),
        begun: Cell::new(0),
        ended: Cell::new(0),
        fault: RefCell::new(None),
        committing: Cell::new(false),
        budget: TurnBudget::default(),
        committed: Notify::default(),
        dumped: Notify::default(),
        ring: RefCell::new(ring),
        owner: o.owner,
        name: o.name.clone(),
        fence_slots: RefCell::new(vec![None; o.members.len()]),
        partial: RefCell::new(vec![0; o.members.len()]),
        start,
        closed: Cell::new(false),
        read_stats: RefCell::new(vec![worm_reads::ReadStats::default(); o.members.len()]),
        reports: RefCell::new(reports.collect()),
        fence_replied: Notify::default(),
        replaced: Notify::default(),
        replacing: Cell::new(None),
        unresponsive: RefCell::new(vec![false; o.members.len()]),
        inode_refs: InodeRefs::default(),
    }
}

async fn start(
    o: &Options,
    layout: Layout,
    table: Table,
    ring: Ring,
    last: Record,
) -> Result<Volume, Fault> {
    let point = last.point.clone();
    if point.members.len() != o.members.len() {
        return Err(Fault::Invalid(MEMBER_COUNT_DIFFERS));
    }
    let volume = Volume(Rc::new(inner(o, state(o, layout, table, &last), ring)));
    volume.dumps_before(&point.last).await?;
    {
        let mut state = volume.0.state.borrow_mut();
        let first = state.dumps.iter().find(|d| d.epoch == point.epoch);
        volume.0.start.set(first.map_or(point.sb, |d| d.sb));
        // Numbers are given again once a record proves that those before are removed.
        state.moved = true;
    }
    volume.join_all().await?;
    volume.sync().await?;
    for leg in 0..o.members.len() {
        o.reactor.spawn("fs-copy", volume.clone().keep_copying(leg));
    }
    if !o.members.is_empty() {
        o.reactor.spawn("fs-lease", volume.clone().keep_lease());
    }
    o.reactor.spawn("fs-tick", volume.clone().tick(o.commit_ns));
    Ok(volume)
}

impl Volume {
    /// The dumps up to the last one, from superblocks on the cache device or the WORM.
    async fn dumps_before(&self, last: &Dump) -> Result<(), Fault> {
        if last.number == 0 {
            return Ok(());
        }
        let mut all = vec![*last];
        let mut at = last.sb;
        loop {
            let earlier = self.superblock_at(at, &all).await?;
            all.extend(earlier);
            match all.last() {
                Some(first) if first.number > 1 => at = first.sb,
                _ => break,
            }
        }
        all.reverse();
        self.0.state.borrow_mut().dumps = all;
        Ok(())
    }

    /// The earlier dumps that the superblock at `at` lists, before those of `after`.
    async fn superblock_at(&self, at: Addr, after: &[Dump]) -> Result<Vec<Dump>, Fault> {
        let volume = self.0.state.borrow().layout.volume;
        // A block of a dump that is not in the list yet is verified with the list: the known dumps
        // are stored there first.
        let mut known = after.to_vec();
        known.reverse();
        self.0.state.borrow_mut().dumps = known;
        loop {
            let seg = self.0.state.borrow_mut().frames.find(at);
            let Some(seg) = seg else {
                self.load(at).await?;
                continue;
            };
            let read = seg.with(|b| worm::superblock(b, volume, at));
            let (_, earlier, _) =
                read.map_err(|why| Fault::Corrupt(format!("superblock in block {at}: {why}")))?;
            if earlier.is_empty() && after.last().is_some_and(|d| d.number > 1) {
                return Err(Fault::Corrupt(format!(
                    "the superblock in block {at} names no dump before"
                )));
            }
            return Ok(earlier);
        }
    }

    /// Every leg that answers; one is enough.
    async fn join_all(&self) -> Result<(), Fault> {
        let mut why = None;
        let mut joined = self.0.members.is_empty();
        for leg in 0..self.0.members.len() {
            match self.join(leg).await {
                Ok(()) => joined = true,
                Err(fault @ Fault::Fenced(_)) => return Err(fault),
                Err(fault) => {
                    if let Some(r) = self.0.reports.borrow_mut().get_mut(leg) {
                        r.failed(&fault);
                    }
                    why = Some(fault);
                }
            }
        }
        match why {
            Some(fault) if !joined => Err(fault),
            _ => Ok(()),
        }
    }

    /// Commits changes that no client waits for, and checks the sizes of devices.
    async fn tick(self, every_ns: u64) {
        while !self.0.closed.get() {
            self.0.reactor.sleep(every_ns).await;
            // The next commit finds a failed device and reports it.
            let _ = self.grow().await;
            self.empty_slots().await;
            if self.0.state.borrow().refused.is_none() {
                self.begin_commit();
            }
        }
    }

    /// Everything is made durable, and other servers may begin at once. Nothing is done after it.
    pub async fn close(&self) -> Result<(), Fault> {
        let done = self.sync().await;
        self.0.closed.set(true);
        self.has_grown().await;
        if done.is_ok() {
            for leg in 0..self.0.members.len() {
                let grant = self.0.state.borrow().members.get(leg).map_or(0, |l| l.done);
                // One that does not answer makes a successor wait a while longer.
                let _ = self.write_own_entry(leg, grant, self.latest_on(leg), true).await;
            }
        }
        self.refuse(Fault::Closed);
        self.0.dumped.notify_all();
        self.0.inode_refs.close();
        while self.0.state.borrow_mut().frames.discard_some() {
            self.0.reactor.yield_now().await;
        }
        done
    }
}
