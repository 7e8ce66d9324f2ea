//! mirror: RAID1, on disk as FreeBSD has it (docs/reference/geom.md 2.2).
//!
//! * `metadata` the record of a member; `lineage` proof of the relative age of two members,
//!   `age` the comparison of members by it; `state` the roles of the members, without any I/O.
//! * `geom` decides on the control thread; `layer`, `balance` and `shared` are the data path;
//!   `tasks` writes records and rebuilds on core 0.

mod age;
mod balance;
mod bitmap;
mod class;
mod geom;
mod idents;
mod layer;
mod level;
mod lineage;
mod metadata;
mod settings;
mod shared;
mod state;
mod tasks;
mod verbs;
mod verify;
mod zero;

pub use class::{MirrorClass, Tunables};

/// Name of the class, and of its providers before the stroke.
const NAME: &str = "mirror";

/// Entry point for fuzzing; see [`crate::fuzzing::fuzz_members`].
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) fn fuzz(data: &[u8]) {
    if let Ok(record) = metadata::Metadata::decode(data) {
        assert_eq!(metadata::Metadata::decode(&record.encode()), Ok(record));
    }
}

/// Flags as lists show them.
fn flag_words(flags: u64) -> String {
    use metadata::mirror_flags::{NOAUTOSYNC, NOFAILSYNC};
    let all = [(NOAUTOSYNC, "NOAUTOSYNC"), (NOFAILSYNC, "NOFAILSYNC")];
    let words: Vec<&str> = all.iter().filter(|(f, _)| flags & f != 0).map(|(_, w)| *w).collect();
    if words.is_empty() { "NONE".into() } else { words.join(", ") }
}
