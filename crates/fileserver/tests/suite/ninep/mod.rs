//! 9P2000: the behaviours that toys get wrong, each by a test that shows it.

mod client;
mod directories;
mod idle;
mod mending;
mod permissions;
mod plant;
mod protocol;
mod removed;
mod replaced;
mod slow;
