//! Bad input, for each class: metadata that is cut off, damaged, doubled, contradictory or
//! circular, two disks for one slot, a disk larger or smaller than recorded, other sectors, a newer
//! version. Each is refused with a reason that names the fault, and not a byte is written to it.
//!
//! A cell of the table is a [`scene::Scene`]: disks in the order in which they are found, the bad
//! one among them, and words of the reason. Formats do not record everything. The labels of stripe
//! and concat contain no sector size, DDF does not record the size of a disk, and a GPT whose
//! headers contradict each other is read, as damaged.

mod arrays;
mod labels;
mod scene;
mod tables;
