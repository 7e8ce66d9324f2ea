//! multipath on disks in memory: FreeBSD's own tests of the class (geom.md 6: misc, failloop),
//! made real where they could not fail, and what goes beyond.

mod lives;
mod options;
mod paths;
mod record;
mod transition;
mod ways;
