//! Bad input, for each class: metadata that is cut off, damaged, doubled, contradictory or turns in
//! a circle, two disks for one slot, a disk larger or smaller than recorded, other sectors, a newer
//! version. Each is refused with a reason that names what is wrong; not a byte is written to it.
//!
//! A cell of the table is a [`scene::Scene`]: disks in the order in which they are found, which of
//! them is the bad one, and words of the reason. Formats do not say everything: the labels of
//! stripe and concat no sector size, DDF not how large a disk is, and a GPT whose headers
//! contradict each other is read, as damaged.

mod arrays;
mod labels;
mod scene;
mod tables;
