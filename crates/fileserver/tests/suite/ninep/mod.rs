//! 9P2000: the behaviours that toy servers get wrong, each with a test.

mod client;
mod directories;
mod edits;
mod encrypted;
mod file_disks;
mod idle;
mod listing;
mod mending;
mod permissions;
mod plant;
mod protocol;
mod removed;
mod replaced;
mod slow;
mod stopping;
mod turns;
