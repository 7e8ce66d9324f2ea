//! Simulated files: a disk model and its operations in flight.

use std::collections::BTreeMap;

use bio::Errno;
use bio::sync::Mutex;

use crate::model::{DiskModel, DiskOp, DiskShape};
use crate::ops::{Op, SlotId};

type Key = (usize, u64);

struct Job {
    op: Op,
    data: Vec<u8>,
    /// The power was cut while it was under way.
    cut: bool,
    /// It hangs: no event will end it.
    parked: bool,
}

struct Inside {
    model: DiskModel,
    jobs: BTreeMap<Key, Job>,
    hung: bool,
}

/// A disk of a world. Shared by all files on it; the lock is never waited for, a world has one
/// thread.
pub(crate) struct SimDisk(Mutex<Inside>);

/// `FALLOC_FL_PUNCH_HOLE`: the mode bit that distinguishes a discard from zeroing.
const PUNCH_HOLE: u32 = 2;

fn disk_op(op: Op, read_len: u64, written: u64) -> (DiskOp, u64, u64) {
    match op {
        Op::Read { offset } => (DiskOp::Read, offset, read_len),
        Op::Write { offset, .. } => (DiskOp::Write, offset, written),
        Op::Allocate { mode, offset, len } if mode & PUNCH_HOLE != 0 => {
            (DiskOp::Discard, offset, len)
        }
        Op::Discard { offset, len } => (DiskOp::Discard, offset, len),
        Op::Allocate { offset, len, .. } => (DiskOp::Zero, offset, len),
        _ => (DiskOp::Flush, 0, 0),
    }
}

impl SimDisk {
    pub(crate) fn new(model: DiskModel) -> SimDisk {
        SimDisk(Mutex::new(Inside { model, jobs: BTreeMap::new(), hung: false }))
    }

    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut DiskModel) -> R) -> R {
        f(&mut self.0.lock().model)
    }

    pub(crate) fn shape(&self) -> DiskShape {
        self.0.lock().model.shape().clone()
    }

    /// Begins an operation; returns when it ends, None while the disk hangs. Slots are named per
    /// reactor (`backend`).
    pub(crate) fn begin(
        &self,
        now: u64,
        port: usize,
        id: SlotId,
        op: Op,
        data: Vec<u8>,
        read_len: u64,
    ) -> Option<u64> {
        let mut inside = self.0.lock();
        let (what, offset, len) = disk_op(op, read_len, data.len() as u64);
        let due = inside.model.begin(now, what, offset, len);
        let parked = inside.hung;
        let job = Job { op, data, cut: false, parked };
        inside.jobs.insert((port, id.to_word()), job);
        (!parked).then_some(due)
    }

    /// Carries the operation out: bytes done or a negative errno. `read` is filled by reads.
    pub(crate) fn finish(&self, port: usize, id: SlotId, offset: u64, read: &mut [u8]) -> i64 {
        let mut inside = self.0.lock();
        let Some(job) = inside.jobs.remove(&(port, id.to_word())) else {
            return -i64::from(Errno::Io.posix());
        };
        if job.cut {
            return -i64::from(Errno::Io.posix());
        }
        let model = &mut inside.model;
        let result = match job.op {
            Op::Read { .. } => model.read(offset, read).map(|n| n as i64),
            Op::Write { durable, .. } => {
                let written = job.data.len() as i64;
                model.write(offset, &job.data, durable).map(|()| written)
            }
            Op::Allocate { mode, offset, len } if mode & PUNCH_HOLE != 0 => {
                model.discard(offset, len).map(|()| 0)
            }
            Op::Discard { offset, len } => model.discard(offset, len).map(|()| 0),
            Op::Allocate { offset, len, .. } => model.zero(offset, len).map(|()| 0),
            _ => model.flush().map(|()| 0),
        };
        result.unwrap_or_else(|e| -i64::from(e.posix()))
    }

    /// Tears the operations in flight and returns them to be ended now.
    pub(crate) fn power_cut(&self) -> Vec<(usize, SlotId)> {
        let mut inside = self.0.lock();
        let Inside { model, jobs, hung } = &mut *inside;
        *hung = false;
        let mut over = Vec::new();
        for ((port, word), job) in jobs.iter_mut().filter(|(_, j)| !j.cut) {
            if let Op::Write { offset, .. } = job.op {
                model.tear(offset, &job.data);
            }
            job.cut = true;
            if job.parked {
                over.push((*port, SlotId::from_word(*word)));
            }
        }
        model.power_cut();
        over
    }

    /// Hangs the disk, or releases the hung operations.
    pub(crate) fn hang(&self, hang: bool) -> Vec<(usize, SlotId)> {
        let mut inside = self.0.lock();
        inside.hung = hang;
        if hang {
            return Vec::new();
        }
        let mut over = Vec::new();
        for ((port, word), job) in inside.jobs.iter_mut().filter(|(_, j)| j.parked) {
            job.parked = false;
            over.push((*port, SlotId::from_word(*word)));
        }
        over
    }

    /// The reactor was dropped: its operation in flight is carried out, as a kernel would do.
    pub(crate) fn orphan(&self, port: usize, id: SlotId, offset: u64) {
        self.finish(port, id, offset, &mut []);
    }
}
