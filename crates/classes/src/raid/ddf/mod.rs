//! SNIA's common disk data format (DDF): finding it, writing it, putting an array together.
//!
//! ```text
//! volumes | workspace | primary: header, sections | secondary: header, sections | anchor
//!                                                                                last sector
//! sections: controller, disks, volumes (the same on every disk); configurations, disk data,
//!           bad blocks (this disk's)
//! ```
//!
//! All places and lengths are in sectors of the disk. Fields are big-endian, or little-endian as
//! some controllers write them; the signature gives the order, which is kept. There are two
//! checksums in the field ([`Order`]): either is read, and kept; the creator of a set chooses one.
//!
//! Invariants
//!  D1  A copy counts when its header and all its sections have right checksums.
//!  D2  In force is a closed copy before an open one, then the higher sequence, then the primary.
//!  D3  The copy that is in force is written last, after the other has been flushed. A copy that
//!      is being written is marked open under its old sequence, and gets the new sequence when it
//!      is closed again. At every instant one whole closed copy is there, for every reader.
//!  D4  The anchor is written once, after both copies.

mod array;
mod assemble;
mod codec;
mod departed;
mod header;
mod meta;
mod records;
mod time;
mod write;

pub use array::{Change, usable_bytes};
pub use assemble::{Assembled, assemble};
pub use codec::Order;
pub(crate) use departed::DEPARTED_MAX;
pub(crate) use header::is_signature;
pub use header::{Copy, Header, Limits, SECTION_SECTORS_MAX, SIGNATURE, Section};
pub use meta::{Meta, step};
pub use records::{BadBlocks, Config, DiskData, DiskEntry, Spare, VolumeEntry, disk_state, kind};
pub(crate) use time::from_unix;
pub use write::{TargetDisk, create, erase, plan, update};
