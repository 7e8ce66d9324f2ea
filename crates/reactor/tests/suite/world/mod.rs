//! The simulated world: the behaviour of a kernel, faults on request, and the same run for the same
//! seed.

mod disks;
mod ether;
mod links;
mod replay;
mod stage;
