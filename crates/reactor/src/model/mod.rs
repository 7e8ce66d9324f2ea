//! A model of a disk: contents, volatile cache, timing and faults.
//!
//! It does no I/O and reads no clock. Its owner passes the time, performs an operation at the time
//! that [`DiskModel::begin`] returns, and cuts the power. It is used by the simulated world and,
//! behind a real reactor, by disks of kind `model`.
//!
//! Invariants
//!  K1  A read sees the last write that ended before it, flushed or not, as long as power lasts.
//!  K2  After a power cut every sector holds its stable content or one of the later writes to it,
//!      ended or in flight. The choice is independent for each sector. Data of a completed flush or
//!      durable write is stable, unless the disk is configured to lie.
//!  K3  The same seed and the same calls give the same disk.

mod sectors;
mod timing;

use bio::{Errno, Extent};

use crate::random::SeededRandom;
use sectors::Sectors;

pub use timing::Timing;

/// Faults set at once on one disk; further ones are refused.
pub const FAULTS_MAX: usize = 256;

#[derive(Clone, Debug, PartialEq)]
pub struct DiskShape {
    /// Bytes; for a growable one, at first.
    pub size: u64,
    /// Bytes written or lost together in a power cut: a power of two, 512 to 4096.
    pub sector: u32,
    /// Writes that are neither durable nor flushed may be lost.
    pub volatile_cache: bool,
    /// A file rather than a disk: a write behind the end extends it.
    pub growable: bool,
    /// It can discard and zero by command; else those answer `NotSup`.
    pub discards: bool,
    /// How long things take.
    pub timing: Timing,
}

impl Default for DiskShape {
    fn default() -> Self {
        DiskShape {
            size: 64 << 20,
            sector: 512,
            volatile_cache: true,
            growable: false,
            discards: true,
            timing: Timing::default(),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum DiskOp {
    Read,
    Write,
    /// Makes everything before stable.
    Flush,
    /// Gives a range back.
    Discard,
    Zero,
}

/// A range and kind of operations that fail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Bytes; an operation that overlaps them fails. Flushes overlap everything.
    pub range: Extent,
    /// The operation that fails.
    pub op: DiskOp,
    pub error: Errno,
    /// How often; None for ever (a write to a bad sector heals a `Read` fault, as on disks).
    pub times: Option<u32>,
}

pub struct DiskModel {
    shape: DiskShape,
    size: u64,
    sectors: Sectors,
    random: SeededRandom,
    faults: Vec<Fault>,
    /// The flush command answers and does nothing.
    ignores_flushes: bool,
    busy_until: u64,
    head: u64,
    power_cuts: u64,
}

impl DiskModel {
    /// A disk full of zeros. `Inval` when the shape makes no sense.
    pub fn new(shape: DiskShape, seed: u64) -> Result<DiskModel, Errno> {
        if !shape.sector.is_power_of_two() || !(512..=4096).contains(&shape.sector) {
            return Err(Errno::Inval);
        }
        Ok(DiskModel {
            size: shape.size,
            sectors: Sectors::new(shape.sector),
            random: SeededRandom::new(seed),
            faults: Vec::new(),
            ignores_flushes: false,
            busy_until: 0,
            head: 0,
            power_cuts: 0,
            shape,
        })
    }

    /// As it was made.
    pub fn shape(&self) -> &DiskShape {
        &self.shape
    }

    pub fn size(&self) -> u64 {
        self.size
    }

    /// Changes the size; data behind the new end is lost.
    pub fn set_size(&mut self, size: u64) {
        if size < self.size {
            self.sectors.cut_off(size);
        }
        self.size = size;
    }

    /// Sectors that hold something, and sectors that a power cut may change.
    pub fn used_and_dirty(&self) -> (usize, usize) {
        (self.sectors.used(), self.sectors.dirty())
    }

    pub fn power_cuts(&self) -> u64 {
        self.power_cuts
    }

    /// When an operation that arrives at `now` (ns) will end. One head (or channel) serves one
    /// operation after the other.
    pub fn begin(&mut self, now: u64, op: DiskOp, offset: u64, len: u64) -> u64 {
        let free = self.busy_until.max(now);
        let timing = self.shape.timing;
        let takes = timing.cost(free, op, self.head, offset, len, self.size, &mut self.random);
        self.head = offset.saturating_add(len);
        let end = free.saturating_add(takes);
        if timing.is_serial() {
            self.busy_until = end;
        }
        end
    }

    /// Reads into `out`; fewer bytes at the end of the disk.
    pub fn read(&mut self, offset: u64, out: &mut [u8]) -> Result<usize, Errno> {
        let left = usize::try_from(self.size.saturating_sub(offset)).unwrap_or(usize::MAX);
        let len = out.len().min(left);
        self.check(DiskOp::Read, offset, len as u64)?;
        if let Some(out) = out.get_mut(..len) {
            self.sectors.read(offset, out);
        }
        Ok(len)
    }

    /// Writes `data`; `durable` makes it stable before it ends. `NoSpc` behind the end of a disk
    /// that does not grow; nothing is written then.
    pub fn write(&mut self, offset: u64, data: &[u8], durable: bool) -> Result<(), Errno> {
        let end = offset.checked_add(data.len() as u64).ok_or(Errno::Inval)?;
        if end > self.size && !self.shape.growable {
            return Err(Errno::NoSpc);
        }
        self.check(DiskOp::Write, offset, data.len() as u64)?;
        self.remap(offset, data.len() as u64);
        self.size = self.size.max(end);
        let stable = self.is_stable_at_once(durable);
        self.sectors.write(offset, data, stable);
        Ok(())
    }

    /// Whether a byte is in an allocated sector, which was written and not discarded. Also the
    /// number of bytes from there on with the same answer, at most `len`.
    pub fn run_at(&self, offset: u64, len: u64) -> (bool, u64) {
        self.sectors.run_at(offset, len.min(self.size.saturating_sub(offset)))
    }

    /// Makes all that was written stable.
    pub fn flush(&mut self) -> Result<(), Errno> {
        self.check(DiskOp::Flush, 0, u64::MAX)?;
        if !self.ignores_flushes {
            self.sectors.flush();
        }
        Ok(())
    }

    /// Gives a range back: it reads as zeros.
    pub fn discard(&mut self, offset: u64, len: u64) -> Result<(), Errno> {
        self.clear(DiskOp::Discard, offset, len)
    }

    pub fn zero(&mut self, offset: u64, len: u64) -> Result<(), Errno> {
        self.clear(DiskOp::Zero, offset, len)
    }

    fn clear(&mut self, op: DiskOp, offset: u64, len: u64) -> Result<(), Errno> {
        if !self.shape.discards {
            return Err(Errno::NotSup);
        }
        let end = offset.checked_add(len).ok_or(Errno::Inval)?.min(self.size);
        self.check(op, offset, len)?;
        let stable = self.is_stable_at_once(false);
        self.sectors.zero(offset, end.saturating_sub(offset), stable);
        Ok(())
    }

    fn is_stable_at_once(&self, durable: bool) -> bool {
        !self.shape.volatile_cache || (durable && !self.ignores_flushes)
    }

    /// Power is lost and restored: each sector written since the last flush keeps any one of its
    /// versions.
    pub fn power_cut(&mut self) {
        self.power_cuts += 1;
        self.busy_until = 0;
        self.sectors.power_cut(&mut self.random);
    }

    /// A write that was under way at the power cut: any of its sectors may have arrived.
    /// To be called before `power_cut`.
    pub fn tear(&mut self, offset: u64, data: &[u8]) {
        let end = offset.saturating_add(data.len() as u64);
        if end <= self.size {
            self.sectors.write(offset, data, false);
        }
    }

    /// Makes operations fail. `NoMem` when [`FAULTS_MAX`] are set.
    pub fn fail(&mut self, fault: Fault) -> Result<(), Errno> {
        if self.faults.len() >= FAULTS_MAX {
            return Err(Errno::NoMem);
        }
        self.faults.push(fault);
        Ok(())
    }

    pub fn faults(&self) -> usize {
        self.faults.len()
    }

    pub fn clear_faults(&mut self) {
        self.faults.clear();
    }

    /// From now on flushes and durable writes answer without doing (or do again).
    pub fn set_ignores_flushes(&mut self, lies: bool) {
        self.ignores_flushes = lies;
    }

    fn check(&mut self, op: DiskOp, offset: u64, len: u64) -> Result<(), Errno> {
        let range = Extent::new(offset, len.min(u64::MAX - offset)).ok_or(Errno::Inval)?;
        let hit = self
            .faults
            .iter_mut()
            .enumerate()
            .find(|(_, f)| f.op == op && (op == DiskOp::Flush || f.range.overlaps(range)));
        let Some((at, fault)) = hit else {
            return Ok(());
        };
        let error = fault.error;
        if let Some(times) = &mut fault.times {
            *times = times.saturating_sub(1);
            if *times == 0 {
                self.faults.remove(at);
            }
        }
        Err(error)
    }

    /// Writing to a sector that cannot be read makes the disk put it elsewhere.
    fn remap(&mut self, offset: u64, len: u64) {
        if let Some(written) = Extent::new(offset, len) {
            self.faults.retain(|f| f.op != DiskOp::Read || !written.contains(f.range));
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::Seeds;

    use super::*;

    fn disk(seed: u64) -> DiskModel {
        let shape = DiskShape { size: 64 * 512, ..DiskShape::default() };
        DiskModel::new(shape, seed).unwrap()
    }

    fn contents(disk: &mut DiskModel) -> Vec<u8> {
        let mut out = vec![0xee; 64 * 512];
        assert_eq!(disk.read(0, &mut out), Ok(64 * 512));
        out
    }

    #[test]
    fn k1_reads_see_the_last_write_at_any_alignment() {
        for seed in Seeds::of(100) {
            let mut random = SeededRandom::new(seed);
            let (mut disk, mut model) = (disk(seed), vec![0u8; 64 * 512]);
            for n in 0..3000u64 {
                let at = random.below(64 * 512) as usize;
                let len = (random.below(2000) as usize).min(model.len() - at);
                match n % 5 {
                    0 => disk.flush().unwrap(),
                    1 => {
                        disk.discard(at as u64, len as u64).unwrap();
                        model[at..at + len].fill(0);
                    }
                    _ => {
                        disk.write(at as u64, &vec![n as u8; len], n % 3 == 0).unwrap();
                        model[at..at + len].fill(n as u8);
                    }
                }
                let mut out = vec![0; len];
                disk.read(at as u64, &mut out).unwrap();
                assert!(out == model[at..at + len]);
            }
            assert!(contents(&mut disk) == model);
        }
    }

    #[test]
    fn written_sectors_are_allocated_until_discarded() {
        for seed in Seeds::of(100) {
            let mut random = SeededRandom::new(seed);
            let (mut disk, mut model) = (disk(seed), [false; 64]);
            for n in 0..500u64 {
                let first = random.below(64) as usize;
                let last = (first + random.below(20) as usize + 1).min(64);
                let (at, len) = (first as u64 * 512, (last - first) as u64 * 512);
                match n % 4 {
                    0 => disk.flush().unwrap(),
                    1 => disk.discard(at, len).unwrap(),
                    // Zeros that are written are held, too.
                    _ => disk.write(at, &vec![(n % 3) as u8; len as usize], n % 5 == 0).unwrap(),
                }
                if n % 4 != 0 {
                    model[first..last].fill(n % 4 != 1);
                }
                let from = random.below(64) as usize;
                let same = model[from..].iter().take_while(|held| **held == model[from]).count();
                let (at, left) = (from as u64 * 512, (64 - from) as u64 * 512);
                assert_eq!(disk.run_at(at, left), (model[from], same as u64 * 512));
                assert_eq!(disk.run_at(at, 512), (model[from], 512));
            }
            assert_eq!(disk.run_at(64 * 512, 512).1, 0, "behind the end");
        }
    }

    #[test]
    fn k2_a_power_cut_leaves_old_or_new_sectors_and_both_kinds_occur() {
        let (mut old, mut new, mut middle, seeds) = (0, 0, 0, Seeds::of(1000));
        for seed in seeds.clone() {
            let mut disk = disk(seed);
            disk.write(0, &[1; 64 * 512], false).unwrap();
            disk.flush().unwrap();
            disk.write(0, &[2; 32 * 512], false).unwrap();
            disk.write(0, &[3; 16 * 512], false).unwrap();
            disk.write(40 * 512, &[4; 512], true).unwrap();
            disk.power_cut();
            let found = contents(&mut disk);
            for (at, sector) in found.chunks(512).enumerate() {
                assert!(sector.iter().all(|b| *b == sector[0]), "whole sectors");
                match (at, sector[0]) {
                    (0..16, 1) | (16..32, 1) => old += 1,
                    (0..16, 2) => middle += 1,
                    (0..16, 3) | (16..32, 2) => new += 1,
                    (40, 4) => {}
                    (32.., 1) if at != 40 => {}
                    other => panic!("seed {seed}: {other:?}"),
                }
            }
            disk.power_cut();
            assert!(contents(&mut disk) == found, "nothing was dirty");
        }
        let seen = old > 100 && new > 100 && middle > 50;
        assert!(seen || !seeds.are_enough(), "{old} {new} {middle}");
    }

    #[test]
    fn k3_same_seed_and_calls_give_the_same_disk() {
        for seed in Seeds::of(100) {
            let life = || {
                let mut disk = disk(seed);
                for n in 1..12u64 {
                    disk.write(n * 5 * 512, &[n as u8; 8 * 512], n % 4 == 0).unwrap();
                }
                disk.power_cut();
                contents(&mut disk)
            };
            assert!(life() == life(), "seed {seed}");
        }
    }

    #[test]
    fn disk_that_ignores_flushes_loses_data_on_power_cut() {
        let seeds = Seeds::of(20);
        let lost = seeds.each(|seed| {
            let mut disk = disk(seed);
            disk.set_ignores_flushes(true);
            disk.write(0, &[1; 4096], true).unwrap();
            disk.flush().unwrap();
            disk.power_cut();
            contents(&mut disk)[..4096].contains(&0)
        });
        assert!(lost.contains(&true) || !seeds.are_enough());
    }

    #[test]
    fn faults_hit_their_range_as_often_as_set_and_writes_heal() {
        let mut disk = disk(0);
        let fault = |op, times| Fault {
            range: Extent::new(1024, 512).unwrap(),
            op,
            error: Errno::Io,
            times,
        };
        disk.fail(fault(DiskOp::Read, None)).unwrap();
        let mut out = [0; 512];
        assert_eq!(disk.read(512, &mut out), Ok(512));
        assert_eq!(disk.read(1024, &mut out), Err(Errno::Io));
        assert_eq!(disk.read(1024, &mut out), Err(Errno::Io));
        disk.write(1024, &[1; 512], false).unwrap();
        assert_eq!(disk.read(1024, &mut out), Ok(512));
        disk.fail(fault(DiskOp::Flush, Some(1))).unwrap();
        assert_eq!(disk.flush(), Err(Errno::Io));
        assert_eq!(disk.flush(), Ok(()));
    }

    #[test]
    fn disk_end_is_enforced_and_a_growable_file_grows() {
        let mut disk = disk(0);
        let mut out = [0; 1024];
        assert_eq!(disk.read(63 * 512, &mut out), Ok(512));
        assert_eq!(disk.read(u64::MAX, &mut out), Ok(0));
        assert_eq!(disk.write(63 * 512, &out, false), Err(Errno::NoSpc));
        assert_eq!(disk.write(u64::MAX, &out, false), Err(Errno::Inval));
        let shape = DiskShape { size: 0, growable: true, ..DiskShape::default() };
        let mut file = DiskModel::new(shape, 0).unwrap();
        file.write(5000, &[7; 100], false).unwrap();
        assert_eq!(file.size(), 5100);
        file.set_size(5050);
        file.set_size(6000);
        let mut out = [9; 1000];
        assert_eq!(file.read(5000, &mut out), Ok(1000));
        assert!(out[..50].iter().all(|b| *b == 7) && out[50..].iter().all(|b| *b == 0));
    }
}
