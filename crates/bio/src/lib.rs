//! The one request that crosses every line between rooms, and the memory it carries.
//!
//! * [`Bio`]: an operation on a range of bytes, with the frames of the layers it went through.
//! * [`Buf`], [`Seg`], [`Segs`]: pooled, page-aligned, bounded memory; [`Pool`] hands it out.
//! * [`Arena`]: memory of disks that live in memory, in large pages.
//! * [`Slab`]: where the Bios of one core live; a Bio is owned by exactly one place at a time,
//!   and one that waits is woken by the one [`Ticket`] that is good.
//! * [`Owned`]: what one thread keeps for itself in an object that all share.
//! * [`Errno`]: the vocabulary of errors below the protocols, one meaning each.
//! * [`Bio::delete_ranges`]: a DELETE of several ranges.
//! * [`Extent`]: byte ranges whose arithmetic cannot overflow.
//! * [`sync`]: locks without poison.
//!
//! This room knows nothing of classes or sockets. It is one of the two rooms where
//! `unsafe` may stand: in `buf.rs`, `pool.rs` and `arena.rs` (raw memory), `pinned.rs` (a resolved
//! pointer), `owned.rs` (a value of one thread), `count.rs` (an allocator for tests) and
//! `parity.rs` (vector instructions).

mod arena;
mod buf;
mod count;
mod doing;
mod errno;
mod extent;
mod frame;
mod owned;
pub mod parity;
mod pinned;
mod pool;
mod request;
mod scatter;
mod segs;
mod slab;
pub mod sync;

pub use arena::{Arena, BLOCK_BYTES, Block};
pub use buf::{Buf, Direction, Loan};
pub use count::{CountingAlloc, allocations};
pub use doing::Doing;
pub use errno::{Errno, Status};
pub use extent::Extent;
pub use frame::{DEPTH_MAX, Frame, Frames};
pub use owned::Owned;
pub use pinned::Pinned;
pub use pool::{PAGE_BYTES, Pool, PoolConfig, PoolUsage};
pub use request::{Attr, Bio, BioId, End, Flags, HOLE, MAPPED, Op, Origin, Ticket};
pub use scatter::append_range;
pub use segs::{Seg, Segs};
pub use slab::Slab;
