//! The class multipath on disks in memory: FreeBSD's own tests of the class (docs/reference/geom.md
//! 6: misc, failloop), corrected where they could not fail, and tests of extensions.

mod fixture;
mod lives;
mod options;
mod paths;
mod record;
mod transition;
