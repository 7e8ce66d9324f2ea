//! Making, opening and recovering images.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::{Pool, Seg};
use reactor::Reactor;
use wire::iscsi::crc32c;

use super::commit::{self, Head, Notes, flush, write_at};
use super::format::{
    self, BLOCK, BUCKETS, BlockState, Bucket, Dentry, FIRST, HEADER, Header, Layout, Super, Tag,
    mode, once_bit, once_raw, once_size, path,
};
use super::state::{ImageState, Shape, WORM};
use super::{Image, Inner};
use crate::ahead::Ahead;
use crate::fault::{Addr, Fault};
use crate::inflight_loads::Loads;
use crate::medium::Medium;
use crate::notify::Notify;
use crate::orphans::InodeRefs;
use crate::turn_budget::TurnBudget;
use crate::volume::{Options, View};

/// Addresses that a recovered image leaves out: given since the dump, for all that is known.
const SLOP: u64 = 100;
/// Superblocks followed at most.
const CHAIN_MAX: usize = 1 << 20;
/// The first number of a file, less one.
const QID_FIRST: u64 = 10;

/// The parameters that the devices do not record.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Setup {
    /// The WORM is a fake one.
    pub once: bool,
    /// How the cache device is laid out; none: as it looks.
    pub layout: Option<Layout>,
    /// Nothing is written.
    pub read_only: bool,
}

/// A buffer of the core.
pub(super) async fn memory(pool: &Pool, reactor: &Reactor) -> Result<Seg, Fault> {
    for _ in 0..1000 {
        if let Some(seg) = pool.get(BLOCK).and_then(|b| b.seg(0, BLOCK)) {
            return Ok(seg);
        }
        reactor.sleep(1_000_000).await;
    }
    Err(Fault::NoSpace("the core's buffers are all in use"))
}

async fn read(o: &Options, medium: &dyn Medium, at: Addr) -> Result<Seg, Fault> {
    let seg = memory(&o.pool, &o.reactor).await?;
    let read = medium.read(at * BLOCK as u64, seg.clone().into()).await;
    read.map_err(|e| Fault::Io(e, format!("{}: block {at}", medium.name())))?;
    Ok(seg)
}

async fn put(
    o: &Options,
    medium: &dyn Medium,
    at: Addr,
    fill: impl FnOnce(&mut [u8]),
) -> Result<(), Fault> {
    let seg = memory(&o.pool, &o.reactor).await?;
    seg.with_mut(|b| {
        b.fill(0);
        fill(b);
    });
    write_at(medium, at, seg.clone().into()).await
}

fn shape_of(o: &Options, setup: Setup) -> Result<Shape, Fault> {
    if o.memory < 64 * BLOCK {
        return Err(Fault::Invalid("the block cache holds less than 64 blocks"));
    }
    let raw = o.members.first().map(|w| w.size() / BLOCK as u64);
    let usable = |raw| if setup.once { once_size(raw) } else { raw };
    Ok(Shape {
        first: o.cache.size() / BLOCK as u64,
        worm: raw.map(usable),
        raw: raw.unwrap_or(0),
        once: setup.once,
        layout: setup.layout.unwrap_or_default(),
        fastworm: o.fastworm,
        read_only: setup.read_only,
        log: None,
    })
}

/// There is an image on its devices, by the first block.
pub async fn is_image(o: &Options) -> bool {
    let tag = if o.members.is_empty() { Tag::Super } else { Tag::Cache };
    let found = read(o, &*o.cache, FIRST).await;
    found.is_ok_and(|b| b.with(|b| format::check_tag(b, tag, path::SUPER)).is_ok())
}

/// Opens an image.
pub async fn open(o: &Options, setup: Setup) -> Result<Image, Fault> {
    let mut shape = shape_of(o, setup)?;
    if shape.first <= FIRST + 1 {
        return Err(Fault::Foreign(format!("{}: too small to hold an image", o.cache.name())));
    }
    let block = read(o, &*o.cache, FIRST).await?;
    let tag = if shape.worm.is_some() { Tag::Cache } else { Tag::Super };
    block.with(|b| format::check_tag(b, tag, path::SUPER)).map_err(|why| {
        Fault::Foreign(format!("{}: not an image of cwfs64x: {why}", o.cache.name()))
    })?;
    let (mut header, mut notes) = (Header::default(), None);
    if shape.worm.is_some() {
        header = block.with(Header::read);
        if let Some(why) = header.invalid_field(shape.first) {
            return Err(Fault::Corrupt(format!("{}: the header: {why}", o.cache.name())));
        }
        let slack = header.slack(shape.first);
        notes = take_log(o, &block, slack, setup.read_only).await?;
        header = read(o, &*o.cache, FIRST).await?.with(Header::read);
        if setup.once && shape.worm.is_some_and(|w| w > header.wsize) {
            // It has grown: its bits are where they were.
            (shape.worm, shape.raw) = (Some(header.wsize), once_raw(header.wsize));
        }
        if shape.worm.is_some_and(|w| w < header.fsize) {
            return Err(Fault::Corrupt("the WORM is smaller than its contents".into()));
        }
        shape.log = if setup.read_only { None } else { commit::log_capacity(slack.1) };
        shape.layout = match setup.layout {
            Some(layout) => layout,
            None => guess(o, &header).await?,
        };
    } else if block.with(Super::read).fsize > shape.first {
        return Err(Fault::Corrupt("the device is smaller than the size in its superblock".into()));
    }
    let mut written = [0; HEADER];
    read(o, &*o.cache, FIRST).await?.with(|b| written.copy_from_slice(&b[..HEADER]));
    let worm = o.members.first().cloned();
    let image = Image(Rc::new(Inner {
        reactor: o.reactor.clone(),
        pool: o.pool.clone(),
        first: o.cache.clone(),
        worm,
        clock: o.clock.clone(),
        state: RefCell::new(ImageState::new(o, shape, header, written)),
        inode_refs: InodeRefs::default(),
        ahead: Ahead::starting(o.ahead),
        loads: Loads::default(),
        begun: Cell::new(0),
        captured: Cell::new(0),
        ended: Cell::new(0),
        committing: Cell::new(false),
        committed: Notify::default(),
        budget: TurnBudget::default(),
        halted: Cell::new(false),
        freezing: Cell::new(false),
        checking: Cell::new(false),
        closing: Cell::new(false),
        gates_changed: Notify::default(),
        copying: Cell::new(false),
        copies: Cell::new(true),
        queue: RefCell::default(),
        idle: Cell::new(false),
        report: RefCell::default(),
        closed: Cell::new(false),
    }));
    image.check_basics(notes).await?;
    image.start(o.commit_ns);
    Ok(image)
}

impl Image {
    /// The parts that must be right before any other is read.
    async fn check_basics(&self, notes: Option<Notes>) -> Result<(), Fault> {
        let shape = self.0.state.borrow().shape;
        let msize = self.0.state.borrow().header.msize;
        if shape.worm.is_some() {
            for row in (0..msize).step_by(BUCKETS as usize) {
                self.run(|s| {
                    let at = s.header().bucket_at(row);
                    let block = s.read_block(at)?;
                    let block = s.checked(block, at, Tag::Buckets, at)?;
                    for row in row..(row + BUCKETS).min(msize) {
                        let mut n = 0;
                        block.with(|b| {
                            for (_, e) in Bucket::of(b, row).entries() {
                                s.s.counts[e.state as usize] += 1;
                                n += 1;
                            }
                        });
                        if n != format::ENTRIES {
                            let why = format!("block {at} of the buckets has an invalid state");
                            return Err(Fault::Corrupt(why).into());
                        }
                    }
                    Ok(())
                })
                .await?;
            }
            let (wsize, writes) = (shape.worm.unwrap_or(0), shape.log.is_some());
            self.run(|s| {
                s.super_block()?;
                if writes && s.header().wsize != wsize {
                    s.set_header(|h| h.wsize = wsize)?;
                }
                Ok(())
            })
            .await?;
            self.run(|s| s.load_state(notes.as_ref())).await?;
            if writes {
                self.settle().await?;
                // Before a bit is set at the old place: `recover` may find the new one already.
                self.grow().await?;
            }
        }
        self.run(|s| s.inode(View::Live, path::ROOT)).await?;
        self.learn_dumps().await
    }

    fn start(&self, commit_ns: u64) {
        if self.0.state.borrow().shape.log.is_none() {
            self.0.idle.set(true);
            return;
        }
        let image = self.clone();
        self.0.reactor.spawn("image-commits", async move {
            while !image.0.closed.get() {
                image.0.reactor.sleep(commit_ns.max(1)).await;
                if !image.0.committing.get() && !image.0.closed.get() {
                    image.begin_commit();
                }
            }
        });
        let image = self.clone();
        self.0.reactor.spawn("image-grow", async move {
            while !image.0.closed.get() {
                image.0.reactor.sleep(commit_ns.max(1)).await;
                // The next operation that needs a failed device reports the fault.
                let _ = image.grow().await;
            }
        });
        self.0.reactor.spawn("image-reap", self.clone().keep_reaping());
        self.0.reactor.spawn("image-copy", self.clone().keep_copying());
    }
}

/// Applies the log, if it is valid; returns its notes, if they describe the resulting state.
async fn take_log(
    o: &Options,
    header: &Seg,
    (log, slack): (Addr, u64),
    read_only: bool,
) -> Result<Option<Notes>, Fault> {
    let cache = &*o.cache;
    if slack == 0 {
        return Ok(None);
    }
    let head = read(o, cache, log).await?.with(Head::read);
    let Some(head) = head.filter(|h| header.with(|b| h.matches_header(b))) else { return Ok(None) };
    // Should another commit have begun to write over its blocks, then it was done before.
    let done = header.with(|b| head.matches_new_header(b)).then(|| head.notes.clone()).flatten();
    let inside = |n: &(Addr, u32)| n.0 >= FIRST && n.0 < log;
    if head.blocks.len() as u64 >= slack || !head.blocks.iter().all(inside) {
        return Ok(done);
    }
    let mut differs = false;
    for ((at, crc), from) in head.blocks.iter().zip(log + 1..) {
        let block = read(o, cache, from).await?;
        if block.with(crc32c) != *crc {
            return Ok(done);
        }
        differs |= read(o, cache, *at).await?.with(crc32c) != *crc;
    }
    if !differs {
        return Ok(done);
    }
    if read_only {
        return Err(Fault::Invalid(
            "the last changes are in the log only: open the image writable once",
        ));
    }
    for ((at, _), from) in head.blocks.iter().zip(log + 1..) {
        let block = read(o, cache, from).await?;
        write_at(cache, *at, block.clone().into()).await?;
    }
    flush(cache).await?;
    Ok(head.notes)
}

/// More blocks than this are in favour of one layout: it is that.
const SURE: u32 = 16;
/// Blocks looked at, at most, until it is known.
const GUESSES: u32 = 4096;

/// The layout that fits: superblock and roots are at its places, if they are on the cache device.
/// If these decide nothing, any cached blocks do.
async fn guess(o: &Options, h: &Header) -> Result<Layout, Fault> {
    let mut votes = [0_u32; 2];
    for (addr, tag, of) in [
        (h.sb, Tag::Super, path::SUPER),
        (h.root, Tag::Dir, path::ROOT),
        (h.dumps, Tag::Dir, path::ROOT),
    ] {
        let row = addr % h.msize;
        let bucket = read(o, &*o.cache, h.bucket_at(row)).await?;
        let Some((c, _)) = bucket.with(|b| Bucket::of(b, row).find(addr)) else { continue };
        vote(o, h, (row, c), |b| format::check_tag(b, tag, of).is_ok(), &mut votes).await?;
    }
    if votes[0] == votes[1] {
        votes = guess_by_votes(o, h).await?;
    }
    Ok(if votes[1] > votes[0] { Layout::Columns } else { Layout::Rows })
}

/// Votes of all blocks that were once cached: where the layout is another, most places were never
/// written.
async fn guess_by_votes(o: &Options, h: &Header) -> Result<[u32; 2], Fault> {
    let (mut votes, mut looks) = ([0_u32; 2], 0);
    for at in (0..h.msize).step_by(BUCKETS as usize) {
        let bucket = read(o, &*o.cache, h.bucket_at(at)).await?;
        for row in at..(at + BUCKETS).min(h.msize) {
            let named: Vec<usize> = bucket.with(|b| Bucket::of(b, row).named().collect());
            for column in named {
                vote(o, h, (row, column), format::is_kept, &mut votes).await?;
                looks += 1;
                if votes[0].abs_diff(votes[1]) >= SURE || looks >= GUESSES {
                    return Ok(votes);
                }
            }
        }
    }
    Ok(votes)
}

/// Each layout that has a fitting block at a place of the buckets gets a vote.
async fn vote(
    o: &Options,
    h: &Header,
    (row, column): (u64, usize),
    fits: impl Fn(&[u8]) -> bool,
    votes: &mut [u32; 2],
) -> Result<(), Fault> {
    for (vote, layout) in votes.iter_mut().zip([Layout::Rows, Layout::Columns]) {
        let block = read(o, &*o.cache, h.cached(layout, row, column)).await?;
        *vote += u32::from(block.with(&fits));
    }
    Ok(())
}

/// An empty cache device; its header is still to be written.
async fn new_cache(o: &Options, shape: &Shape) -> Result<Header, Fault> {
    let small = Fault::NoSpace("the cache device is too small to hold an image");
    let header = Header::plan(shape.first, shape.worm.unwrap_or(0)).ok_or(small)?;
    let cache = &*o.cache;
    let (log, slack) = header.slack(shape.first);
    if slack > 0 {
        // A log of an earlier life counts no more.
        put(o, cache, log, |_| ()).await?;
    }
    for at in header.maddr..header.caddr {
        put(o, cache, at, |b| format::set_tag(b, Tag::Buckets, at)).await?;
    }
    flush(cache).await?;
    Ok(header)
}

async fn write_header(o: &Options, header: &Header) -> Result<(), Fault> {
    put(o, &*o.cache, FIRST, |b| {
        header.write(b);
        format::set_tag(b, Tag::Cache, path::SUPER);
    })
    .await?;
    flush(&*o.cache).await
}

/// Makes a new image on a cache device and a WORM. Their contents are lost.
pub async fn ream(o: &Options, setup: Setup) -> Result<(), Fault> {
    let shape = shape_of(o, setup)?;
    let (Some(worm), Some(usable)) = (o.members.first(), shape.worm) else {
        return Err(Fault::Invalid("an image without a WORM is read only and cannot be created"));
    };
    if usable < 256 {
        return Err(Fault::NoSpace("the WORM is too small to hold an image"));
    }
    let header = new_cache(o, &shape).await?;
    let worm = &**worm;
    let (sb, root, dumps, next) = (FIRST, FIRST + 1, FIRST + 2, FIRST + 3);
    if setup.once {
        for at in usable..shape.raw {
            put(o, worm, at, |b| {
                format::set_tag(b, Tag::Virgin, at);
                for a in [sb, root, dumps] {
                    let (block, byte, mask) = once_bit(shape.raw, a);
                    if block == at {
                        b[byte] |= mask;
                    }
                }
            })
            .await?;
        }
    } else {
        // The superblock of an earlier life is not taken for the next one.
        put(o, worm, next, |_| ()).await?;
    }
    let now = ((o.clock)() / 1_000_000_000) as u32;
    let entry = Dentry {
        name: b"/".to_vec(),
        uid: -1,
        gid: -1,
        mode: mode::ALLOC | mode::DIR | 0o775,
        path: path::ROOT,
        atime: now,
        mtime: now,
        ..Dentry::default()
    };
    for at in [root, dumps] {
        put(o, worm, at, |b| {
            entry.write(b, 0);
            format::set_tag(b, Tag::Dir, path::ROOT);
        })
        .await?;
    }
    let fsize = next + 1;
    put(o, worm, sb, |b| {
        format::set_frees(b, 1);
        let last = sb;
        let s =
            Super { fstart: FIRST, fsize, tfree: 0, qidgen: QID_FIRST, root, dumps, last, next };
        s.write(b);
        format::set_tag(b, Tag::Super, path::SUPER);
    })
    .await?;
    flush(worm).await?;
    let header = Header { fsize, wmax: dumps, sb, root, dumps, time: now, ..header };
    write_header(o, &header).await
}

/// Makes the cache device new from the newest superblock of the WORM.
pub async fn recover(o: &Options, setup: Setup) -> Result<(), Fault> {
    let mut shape = shape_of(o, setup)?;
    let Some(worm) = o.members.first() else {
        return Err(Fault::Invalid("an image without a WORM cannot be recovered"));
    };
    let worm = &**worm;
    if setup.once {
        shape.raw = bits_end(o, worm, shape.raw).await?;
        shape.worm = Some(once_size(shape.raw));
    }
    let usable = shape.worm.unwrap_or(0);
    let (mut at, mut found) = (FIRST, None);
    for _ in 0..CHAIN_MAX {
        if at >= usable || (setup.once && !has_bit(o, worm, shape.raw, at).await?) {
            break;
        }
        let block = read(o, worm, at).await?;
        if block.with(|b| format::check_tag(b, Tag::Super, path::SUPER)).is_err() {
            break;
        }
        let s = block.with(Super::read);
        found = Some((at, s));
        // The chain only ascends.
        if s.next <= at {
            break;
        }
        at = s.next;
    }
    let Some((sb, s)) = found else {
        return Err(Fault::Foreign(format!("{}: no superblock of an image", worm.name())));
    };
    let header = new_cache(o, &shape).await?;
    let mut fsize = s.fsize.saturating_add(SLOP);
    if setup.once {
        // Blocks that an unfinished dump without a superblock left are not written again.
        fsize = fsize.max(written_below(o, worm, &shape).await?);
    }
    let fsize = fsize.min(usable);
    let time = ((o.clock)() / 1_000_000_000) as u32;
    let header = Header {
        fsize,
        wmax: sb.max(s.fsize.saturating_sub(1)),
        sb,
        root: s.root,
        dumps: s.dumps,
        time,
        ..header
    };
    if let Some(why) = header.invalid_field(shape.first) {
        return Err(Fault::Corrupt(format!("superblock {sb}: {why}")));
    }
    // The free list of that dump is dropped: its addresses may have been given since.
    let layout = setup.layout.unwrap_or_default();
    let row = sb % header.msize;
    let s = Super { tfree: 0, fsize, ..s };
    put(o, &*o.cache, header.cached(layout, row, 0), |b| {
        format::set_frees(b, 1);
        s.write(b);
        format::set_tag(b, Tag::Super, path::SUPER);
    })
    .await?;
    let bucket = header.bucket_at(row);
    put(o, &*o.cache, bucket, |b| {
        format::set_entry(b, row, 0, BlockState::Write, sb);
        format::set_tag(b, Tag::Buckets, bucket);
    })
    .await?;
    flush(&*o.cache).await?;
    write_header(o, &header).await
}

/// Behind the bits of a fake WORM: where its device ends, or ended before that grew.
async fn bits_end(o: &Options, worm: &dyn Medium, raw: u64) -> Result<u64, Fault> {
    for at in (FIRST..raw).rev() {
        let block = read(o, worm, at).await?;
        if block.with(|b| format::check_tag(b, Tag::Virgin, at)).is_ok() {
            return Ok(at + 1);
        }
    }
    Err(Fault::Foreign(format!("{}: no bits of a fake WORM", worm.name())))
}

/// Behind the last block of a fake WORM that was written.
async fn written_below(o: &Options, worm: &dyn Medium, shape: &Shape) -> Result<Addr, Fault> {
    let per = format::PAYLOAD as u64 * 8;
    let end = once_size(shape.raw);
    for at in (end..shape.raw).rev() {
        let bits = read(o, worm, at).await?;
        let last = bits.with(|b| {
            let i = b[..format::PAYLOAD].iter().rposition(|b| *b != 0)?;
            Some(i as u64 * 8 + 7 - u64::from(b[i].leading_zeros()))
        });
        if let Some(last) = last {
            return Ok((at - end) * per + last + 1);
        }
    }
    Ok(0)
}

async fn has_bit(o: &Options, worm: &dyn Medium, raw: u64, addr: Addr) -> Result<bool, Fault> {
    let (at, byte, mask) = once_bit(raw, addr);
    let bits = read(o, worm, at).await?;
    bits.with(|b| format::check_tag(b, Tag::Virgin, at))
        .map_err(|why| Fault::Corrupt(format!("bits of the fake WORM: block {at}: {why}")))?;
    debug_assert!(at & WORM == 0);
    Ok(bits.with(|b| b[byte] & mask != 0))
}
