//! Measured cases; all of ours use the volume's own code, in virtual time.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bio::Segs;
use fileserver::Fault;
use fileserver::medium::Medium;
use fileserver::volume::ReadAhead;
use reactor::clock::{MS, S};

use super::device::{Device, Plugged, Shape};
use super::lab::{self, BLOCK, Lab};
use crate::error::Error;

const GIB: u64 = 1 << 30;
/// The paper's client between two blocks that are in the block cache, ns.
const CLIENT_NS: u64 = 104_700;
/// A block of its target's memory, there and back, ns.
const ROUND_NS: u64 = 79_000;
/// Unit that its target fetches at a time, and the time of that: fitted to two of its figures.
const UNIT: (u64, u64) = (16 * BLOCK, 1_848_000);
/// It reads ahead by 300 KB of its blocks.
const GAP: u64 = 37 * BLOCK;
/// 10 Gb/s.
const WIRE_PS: u64 = 800;
/// 1 MB/s.
const FAR_PS: u64 = 1_000_000;

fn near() -> Shape {
    Shape { round_ns: ROUND_NS, ps_per_byte: WIRE_PS, ..Shape::default() }
}

/// One GiB read in order by one client: with everything in memory, then by so many workers; s.
pub fn read_ahead(seed: u64, workers: &[u32]) -> Result<Vec<f64>, Error> {
    let lab = Lab::new(seed);
    let cache = Device::new(&lab.reactor, "cache", GIB * 9 / 8, Shape::default());
    let o = lab.options(&cache, &[], 64 << 20);
    let (clock, workers) = (lab.reactor.clone(), workers.to_vec());
    lab.run(async move {
        let fs = lab::ream(&o).await?;
        // A file that fits the block cache, so many times.
        let small = lab::file(&fs, "small").await?;
        lab::fill(&o, &fs, small, GIB / 64, 3).await?;
        let mut cached = 0;
        for _ in 0..64 {
            cached += lab::read_in_order(&clock, &fs, small, GIB / 64, CLIENT_NS).await?;
        }
        let ino = lab::file(&fs, "file").await?;
        lab::fill(&o, &fs, ino, GIB, 5).await?;
        fs.volume().close().await?;
        let mut out = vec![cached as f64 / S as f64];
        for n in workers {
            cache.cool();
            cache.shape.set(Shape { round_ns: ROUND_NS, fetch: Some(UNIT), ..Shape::default() });
            let fs = lab::open(&o).await?;
            fs.volume().set_read_ahead(ReadAhead { workers: n, bytes: GAP });
            let ino = lab::lookup(&fs, "file").await?;
            let took = lab::read_in_order(&clock, &fs, ino, GIB, CLIENT_NS).await?;
            fs.volume().close().await?;
            out.push(took as f64 / S as f64);
        }
        Ok(out)
    })
}

/// Where the paper's program puts the block of address `w`, of a cache of so many rows.
#[derive(Clone, Copy)]
pub enum Order {
    Rows,
    Columns,
}

/// Entries of a row, and rows of the paper's cache device.
const PER_ROW: u64 = 67;
const ROWS: u64 = 48_823;

/// A disk: its seek, ns; ps a byte after one, and ps a byte of sequential data.
pub type Disk = (u64, u64, u64);

/// The paper's formulas on a disk, one block outstanding; MB/s.
pub fn formula(order: Order, (seek, after, follows): Disk) -> Result<f64, Error> {
    let lab = Lab::new(0);
    let shape = Shape { seek: Some((seek, after)), ps_per_byte: follows, ..Shape::default() };
    let disk = Device::new(&lab.reactor, "disk", 32 * GIB, shape);
    let plugged = Plugged(disk.clone());
    let o = lab.options(&disk, &[], 64 << 20);
    lab.run(async move {
        let block = lab::memory(&o, BLOCK, 1)?;
        for w in 0..2000 {
            let mut segs = Segs::default();
            segs.push(block.clone());
            let place = match order {
                Order::Rows => w % ROWS * PER_ROW,
                Order::Columns => w % ROWS,
            };
            let io_fault = |e| Fault::Io(e, "the disk".into());
            plugged.write((1 + place) * BLOCK, segs).await.map_err(io_fault)?;
        }
        Ok(disk.written.get() as f64 * 1e3 / disk.busy.get() as f64)
    })
}

/// Clients write to such a disk as cache device; MB/s of their data, while all other writes count
/// as time only.
pub fn places(seed: u64, (seek, after, follows): Disk) -> Result<f64, Error> {
    const BYTES: u64 = 128 << 20;
    let lab = Lab::new(seed);
    let disk = Device::new(&lab.reactor, "disk", GIB, Shape::default());
    let o = lab.options(&disk, &[], 64 << 20);
    lab.run(async move {
        let fs = lab::ream(&o).await?;
        let ino = lab::file(&fs, "file").await?;
        disk.shape.set(Shape {
            seek: Some((seek, after)),
            ps_per_byte: follows,
            ..disk.shape.get()
        });
        disk.busy.set(0);
        lab::fill(&o, &fs, ino, BYTES, 1).await?;
        fs.sync().await?;
        Ok(BYTES as f64 * 1e3 / disk.busy.get() as f64)
    })
}

/// The longest that a client waited while a dump was taken of so many changed blocks, and the
/// whole dump; ms.
pub fn halt(seed: u64, blocks: u64) -> Result<(f64, f64), Error> {
    let lab = Lab::new(seed);
    let bytes = blocks * BLOCK;
    let cache = Device::new(&lab.reactor, "cache", bytes * 5 / 4 + GIB / 4, near());
    let leg = Device::new(&lab.reactor, "leg", bytes * 5 / 4 + GIB / 4, near());
    let o = lab.options(&cache, &[leg], 64 << 20);
    let clock = lab.reactor.clone();
    let reactor = lab.reactor.clone();
    lab.run(async move {
        let fs = lab::ream(&o).await?;
        let other = lab::file(&fs, "other").await?;
        lab::fill(&o, &fs, other, 4 << 20, 1).await?;
        let ino = lab::file(&fs, "file").await?;
        lab::fill(&o, &fs, ino, bytes, 2).await?;
        let began = clock.now();
        let (dump, done): (Rc<Cell<u64>>, Rc<RefCell<Option<Fault>>>) = Default::default();
        let (volume, at, wrong, now) =
            (fs.volume().clone(), dump.clone(), done.clone(), clock.clone());
        let task = reactor.spawn("dump", async move {
            *wrong.borrow_mut() = volume.dump(20_261_121).await.err();
            at.set(now.now());
        });
        let mut longest = 0;
        while dump.get() == 0 {
            let span = (other, 4 << 20, began);
            let mut took =
                lab::use_at_random(o.clone(), fs.clone(), span, clock.now() + MS).await?;
            longest = longest.max(lab::quantile(&mut took, 1000));
        }
        drop(task);
        match done.take() {
            Some(fault) => Err(fault),
            None => Ok((longest as f64 / MS as f64, (dump.get() - began) as f64 / MS as f64)),
        }
    })
}

/// With and without a far leg of 1 MB/s.
pub struct Far {
    /// 99 of 100 reads and writes of a client at most, us.
    pub p99: f64,
    /// Blocks a second to the last leg meanwhile.
    pub copied: f64,
}

/// A client uses a file that a dump froze while that is copied to the legs.
pub fn copy_frozen_file(seed: u64, far: bool) -> Result<Far, Error> {
    const FILE: u64 = 64 << 20;
    const SPAN: u64 = 20 * S;
    let lab = Lab::new(seed);
    let device = |name, shape| Device::new(&lab.reactor, name, GIB, shape);
    let cache = device("cache", near());
    let mut legs = vec![device("near", near())];
    if far {
        legs.push(device("far", Shape { ps_per_byte: FAR_PS, ..near() }));
    }
    let o = lab.options(&cache, &legs, 32 << 20);
    let (clock, slowest) = (lab.reactor.clone(), legs.pop());
    lab.run(async move {
        let fs = lab::ream(&o).await?;
        let ino = lab::file(&fs, "file").await?;
        lab::fill(&o, &fs, ino, FILE, 1).await?;
        let dump = fs.volume().dump(20_261_121).await?;
        // The near leg has the dump: later writes are those to the far leg.
        fs.volume().copied(&dump).await?;
        let before = slowest.as_ref().map_or(0, |leg| leg.written.get());
        let from = clock.now();
        let span = (ino, FILE, seed);
        let mut took = lab::use_at_random(o, fs.clone(), span, from + SPAN).await?;
        if far && fs.volume().members().last().is_some_and(|leg| leg.behind == 0) {
            return Err(Fault::Invalid("the far leg had everything before the client ended"));
        }
        let written = slowest.map_or(0, |leg| leg.written.get() - before);
        let seconds = (clock.now() - from) as f64 / S as f64;
        let p99 = lab::quantile(&mut took, 990) as f64 / 1e3;
        Ok(Far { p99, copied: (written / BLOCK) as f64 / seconds })
    })
}
