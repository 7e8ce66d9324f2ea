//! Protection information of a unit (SBC-3 4.22): eight bytes with each block, kept in the tail of
//! the unit's own provider. This is the state of a unit; `job/protection` reads and writes tuples.
//!
//! | file | what |
//! | --- | --- |
//! | `layout` | the tail: tuples, map, header |
//! | `regions` | whose turn it is at which blocks, and which regions are marked |
//! | `check` | guards, and the rules for tuples |

mod check;
mod layout;
mod regions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};

use wire::scsi::{ProtectionType, Tags};

pub(crate) use check::{Facts, flip, generate, generate_zeroes, guards, join, split};
pub(crate) use layout::{Header, Layout};
pub use layout::{MAGIC, header_offset};
pub(crate) use regions::Marked;
use regions::{RangeLock, Regions};

/// How a unit is protected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ProtectionSpec {
    /// There is no space for tuples.
    #[default]
    Off,
    /// There is space; FORMAT UNIT chooses the type, at first there is none.
    Unformatted,
    /// There is space; of this type until FORMAT UNIT chooses another.
    Type(ProtectionType),
}

/// Options of a read.
#[derive(Clone, Copy, Default)]
pub(crate) struct Want {
    /// RDPROTECT or VRPROTECT; zero checks what can be checked unless the mode page forbids it.
    pub protect: u8,
    /// Of a 32-byte command.
    pub tags: Option<Tags>,
    pub fua: bool,
}

/// The protection of one unit, shared by all cores.
pub(crate) struct Protection {
    /// Bytes of a block.
    unit: u64,
    /// The layout's `blocks` and `total`.
    blocks: AtomicU64,
    total: AtomicU64,
    /// Blocks of the provider: more than `total` when it has grown.
    provider: AtomicU64,
    /// As the unit was configured.
    pub(crate) first: Option<ProtectionType>,
    /// Zero, or the number of the type.
    kind: AtomicU8,
    pub(crate) regions: Arc<Regions>,
}

impl Protection {
    pub fn new(layout: Layout, first: Option<ProtectionType>) -> Protection {
        Protection {
            unit: layout.unit,
            blocks: AtomicU64::new(layout.blocks),
            total: AtomicU64::new(layout.total),
            provider: AtomicU64::new(layout.total),
            first,
            kind: AtomicU8::new(0),
            regions: Arc::default(),
        }
    }

    /// Where everything is; another one only while nothing else reaches the medium (D3, D5).
    pub fn layout(&self) -> Layout {
        Layout {
            unit: self.unit,
            blocks: self.blocks.load(Ordering::Acquire),
            total: self.total.load(Ordering::Acquire),
        }
    }

    pub(crate) fn set_layout(&self, layout: Layout) {
        self.total.store(layout.total, Ordering::Release);
        self.blocks.store(layout.blocks, Ordering::Release);
    }

    /// The provider has so many blocks; answers the capacity of the unit. Without its tail nothing
    /// can be reached.
    pub fn resized(&self, provider: u64) -> u64 {
        self.provider.store(provider, Ordering::Release);
        self.capacity()
    }

    /// Blocks that initiators see.
    pub fn capacity(&self) -> u64 {
        let layout = self.layout();
        if self.provider_blocks() >= layout.total { layout.blocks } else { 0 }
    }

    pub(crate) fn provider_blocks(&self) -> u64 {
        self.provider.load(Ordering::Acquire)
    }

    /// Blocks of the provider behind the tail, which the next FORMAT UNIT takes.
    pub fn unused(&self) -> u64 {
        self.provider_blocks().saturating_sub(self.layout().total)
    }

    /// The type that the medium is formatted with.
    #[inline]
    pub fn kind(&self) -> Option<ProtectionType> {
        ProtectionType::from_number(self.kind.load(Ordering::Acquire))
    }

    pub(crate) fn set_kind(&self, kind: Option<ProtectionType>) {
        self.kind.store(kind.map_or(0, |kind| kind as u8), Ordering::Release);
    }

    pub(crate) async fn lock_range(&self, lba: u64, blocks: u64, write: bool) -> RangeLock {
        let per = self.layout().per_block();
        let end = lba.saturating_add(blocks).div_ceil(per).saturating_mul(per);
        self.regions.lock_range(lba / per * per, end, write).await
    }
}
