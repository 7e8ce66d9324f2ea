//! multipath: one disk reached by several paths, on disk as FreeBSD has it (docs/reference/geom.md
//! 2.5).
//!
//! * `metadata` the record in the last sector; `options` the options behind it;
//!   `paths` the states of the paths and the choice of the active one, without any I/O.
//! * `geom` decides on the control thread, `size` when the disk has another size; `layer` and
//!   `shared` are the data path; `tasks` looks at failed paths and writes the record on core 0.

mod class;
mod geom;
mod health;
mod identity;
mod layer;
mod metadata;
mod options;
mod paths;
mod shared;
mod size;
mod tasks;
mod timers;
mod verbs;

pub use class::MultipathClass;

/// Name of the class, and of its providers before the stroke.
const NAME: &str = "multipath";

/// Entry point for fuzzing; see [`crate::fuzzing::fuzz_members`].
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(data: &[u8]) {
    if let Ok(record) = metadata::Metadata::decode(data) {
        let options = options::Options::default();
        let plain = metadata::Metadata { options, ..record };
        assert_eq!(metadata::Metadata::decode(&plain.encode()), Ok(plain));
    }
}
