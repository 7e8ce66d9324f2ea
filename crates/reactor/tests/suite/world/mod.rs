//! The simulated world: the same behaviour as on a kernel, faults on request, and the same again
//! for the same seed.

mod disks;
mod ether;
mod links;
mod replay;
mod stage;
