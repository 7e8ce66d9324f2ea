//! SCHED on disks of a simulated world: slipped in, changed and taken out under load; who gets what
//! of a disk with one arm; and what happens when the disk does not answer.

mod lab;
mod leaf;
mod live;
mod rates;
mod storm;
