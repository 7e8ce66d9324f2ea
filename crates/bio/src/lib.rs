//! Block I/O requests, which cross all crate boundaries, and the memory that they carry.
//!
//! * [`Bio`]: an operation on a range of bytes, with the frames of the layers it passed through.
//! * [`Buf`], [`Seg`], [`Segs`]: pooled, page-aligned, bounded memory; [`Pool`] hands it out.
//! * [`Arena`]: memory of disks that live in memory, in large pages.
//! * [`Slab`]: the Bios of one core. A Bio is owned by exactly one place at a time, and a waiting
//!   Bio is woken by its one valid [`Ticket`].
//! * [`Owned`]: a value that belongs to one thread, in a shared object.
//! * [`Errno`]: the vocabulary of errors below the protocols, one meaning each.
//! * [`Bio::delete_ranges`]: a DELETE of several ranges.
//! * [`Extent`]: byte ranges whose arithmetic cannot overflow.
//! * [`read_regular`]: files that a configuration names, opened without waiting.
//! * [`ReadAhead`]: contents of such files for a thread that must not block.
//! * [`sync`]: locks without poison.
//!
//! This crate is independent of classes and sockets. It is one of the two where `unsafe` is
//! allowed: in `buf.rs`, `pool.rs` and `arena.rs` (raw memory), `resolved_arc.rs` (a resolved
//! pointer), `thread_owned.rs` (a value of one thread), `count.rs` (an allocator for tests) and
//! `parity.rs` (vector instructions).

mod arena;
mod buf;
mod count;
mod errno;
mod extent;
mod frame;
mod last_request;
pub mod parity;
mod pool;
mod read_ahead;
mod regular_file;
mod request;
mod resolved_arc;
mod scatter;
mod segs;
mod slab;
pub mod sync;
mod thread_owned;

pub use arena::{Arena, BLOCK_BYTES, Block};
pub use buf::{Buf, Direction, Loan};
pub use count::{CountingAlloc, allocations};
pub use errno::{Errno, Status};
pub use extent::Extent;
pub use frame::{DEPTH_MAX, Frame, Frames};
pub use last_request::LastRequest;
pub use pool::{PAGE_BYTES, Pool, PoolConfig, PoolUsage};
pub use read_ahead::{Contents, ReadAhead, must_not_block, read_source, socket_addresses};
pub use regular_file::{
    credential_path, named_path, open_image, open_regular, read_named, read_regular,
};
pub use request::{Attr, Bio, BioId, End, Flags, HOLE, MAPPED, Op, Origin, Ticket};
pub use resolved_arc::ResolvedArc;
pub use scatter::append_range;
pub use segs::{Seg, Segs};
pub use slab::Slab;
pub use thread_owned::Owned;
