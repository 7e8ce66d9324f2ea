//! The disk of the seed: a command that deletes takes 50 ms regardless of its size, and nothing
//! else is served meanwhile.
//!
//! Other requests take the time of a SATA flash disk, any number at once. A command that deletes
//! begins when all before it have ended (it is not queued), and later requests begin when it has
//! ended.

use std::sync::Arc;

use bio::sync::{Mutex, MutexGuard};
use bio::{Attr, Bio, Errno, Op};
use geom::{Core, Flow, Layer, Limits, NewProvider};
use reactor::model::{DiskModel, DiskOp, DiskShape, Timing};

/// Time of a command that deletes.
pub(super) const TRIM_NS: u64 = 50_000_000;
pub(super) const BYTES: u64 = 64 << 30;
/// ATA DATA SET MANAGEMENT, one block of payload: so many entries ...
pub(super) const ENTRIES: u32 = 64;
/// ... of so many bytes each.
pub(super) const ENTRY_BYTES: u64 = 65_535 * 512;

/// Commands that it received.
#[derive(Clone, Copy, Default)]
pub(super) struct Asked {
    /// Commands that delete.
    pub(super) trims: u64,
    /// Bytes that they named.
    pub(super) bytes: u64,
    /// When the last of them ended.
    pub(super) ended: u64,
}

struct Inside {
    /// For its times; nothing is stored.
    model: DiskModel,
    /// When the last command that deletes ends, and the last of all others.
    trimmed_at: u64,
    others_at: u64,
    asked: Asked,
}

/// See the module.
#[derive(Clone)]
pub(super) struct Flash(Arc<Mutex<Inside>>);

impl Flash {
    pub(super) fn new(seed: u64) -> Result<Flash, Errno> {
        let timing = Timing::Flash {
            read_ns: 80_000,
            write_ns: 60_000,
            flush_ns: 500_000,
            discard_ns: TRIM_NS,
            page_ns: 8_000,
        };
        let shape = DiskShape { size: BYTES, timing, ..DiskShape::default() };
        let model = DiskModel::new(shape, seed)?;
        let asked = Asked::default();
        Ok(Flash(Arc::new(Mutex::new(Inside { model, trimmed_at: 0, others_at: 0, asked }))))
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.0.lock()
    }

    pub(super) fn asked(&self) -> Asked {
        self.lock().asked
    }

    /// The disk as a new provider.
    pub(super) fn provider(&self, name: &str) -> NewProvider {
        NewProvider {
            name: name.into(),
            layer: Arc::new(self.clone()),
            limits: Limits {
                media_bytes: BYTES,
                sector_bytes: 512,
                io_max_bytes: 0,
                delete_max_bytes: u64::from(ENTRIES) * ENTRY_BYTES,
            },
            stripe_bytes: 0,
            stripe_offset: 0,
            attrs: vec![
                ("GEOM::candelete", Attr::Int(1)),
                ("GEOM::deletereadszero", Attr::Int(0)),
                ("GEOM::rotation_rate", Attr::Int(1)),
                ("DISK::delete_granule", Attr::Int(4096)),
                ("DISK::delete_range", Attr::Int(ENTRY_BYTES)),
            ],
        }
    }
}

impl Layer for Flash {
    fn delete_ranges(&self) -> u32 {
        ENTRIES
    }

    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        let now = core.now();
        let mut inside = self.lock();
        let op = match bio.op {
            Op::Read => DiskOp::Read,
            Op::Write | Op::WriteZeroes => DiskOp::Write,
            Op::Flush => DiskOp::Flush,
            Op::Delete => DiskOp::Discard,
            Op::GetAttr => return Flow::Done(Err(Errno::NoAttr)),
            Op::Map => return Flow::Done(Err(Errno::NotSup)),
        };
        let free = now.max(inside.trimmed_at);
        let begins = if op == DiskOp::Discard { free.max(inside.others_at) } else { free };
        let end = inside.model.begin(begins, op, bio.offset, bio.bytes());
        if op == DiskOp::Discard {
            inside.trimmed_at = end;
            inside.asked.trims += 1;
            inside.asked.bytes += bio.bytes();
            inside.asked.ended = end;
        } else {
            inside.others_at = inside.others_at.max(end);
        }
        core.after(end - now, bio.ticket(), Flow::Done(Ok(())));
        Flow::Wait
    }
}
