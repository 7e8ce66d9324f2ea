//! The folders of `fuzz/corpus`, replayed with seeded mutations. Deterministic: a failure names the
//! target, the seed file and the round.

use std::collections::BTreeSet;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};

use wire::fuzzing::Prng;

use crate::seeds::number;

/// Most bytes of an input that a failure prints.
const SHOWN_MAX: usize = 4096;

/// One target and its folder.
pub struct Corpus<'a> {
    name: &'a str,
    target: &'a dyn Fn(&[u8]),
    /// Each file and its bytes, by name.
    files: Vec<(PathBuf, Vec<u8>)>,
}

/// The folder `fuzz` of the project.
pub fn fuzz_folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz")
}

impl<'a> Corpus<'a> {
    /// The folder of that name, in which there are at least `files_min` files.
    pub fn of(name: &'a str, target: &'a dyn Fn(&[u8]), files_min: usize) -> Corpus<'a> {
        let folder = fuzz_folder().join("corpus").join(name);
        let read = |path: PathBuf| {
            let bytes = std::fs::read(&path).unwrap_or_else(|e| panic!("{path:?}: {e}"));
            (path, bytes)
        };
        let entries = std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{folder:?}: {e}"));
        let mut files: Vec<_> = entries.map(|e| read(e.expect("an entry").path())).collect();
        files.sort();
        assert!(files.len() >= files_min, "{name} has too few seeds");
        Corpus { name, target, files }
    }

    /// Runs the target over beginnings of each file: `cuts` makes their lengths of its own.
    pub fn beginnings<I: IntoIterator<Item = usize>>(&self, cuts: impl Fn(usize) -> I) {
        for (path, bytes) in &self.files {
            for len in cuts(bytes.len()) {
                self.run(&bytes[..len], &format!("{path:?}, first {len} bytes"));
            }
        }
    }

    /// Runs it over mutations: `usual` of them, or `ASHLAR_SEEDS`.
    pub fn mutations(&self, usual: u64, mut mutate: impl FnMut(&mut Prng, u64, &mut Vec<u8>)) {
        let mut random = Prng::new(7);
        for round in 0..number("ASHLAR_SEEDS").unwrap_or(usual) {
            let (path, bytes) = &self.files[random.below(self.files.len())];
            let mut bytes = bytes.clone();
            mutate(&mut random, round, &mut bytes);
            self.run(&bytes, &format!("{path:?}, round {round}"));
        }
    }

    fn run(&self, bytes: &[u8], what: &str) {
        if catch_unwind(AssertUnwindSafe(|| (self.target)(bytes))).is_err() {
            let shown = bytes.get(..SHOWN_MAX).unwrap_or(bytes);
            panic!("{}, {what}: {shown:02x?}", self.name);
        }
    }
}

/// Mutation for most targets: small changes of any byte.
pub fn anywhere(random: &mut Prng, _: u64, bytes: &mut Vec<u8>) {
    random.mutate(bytes);
}

/// Each folder and each program whose name begins with `prefix` belongs to a target, and the other
/// way round.
pub fn each_is_whole<'a>(prefix: &str, targets: impl IntoIterator<Item = &'a str>) {
    let fuzz = fuzz_folder();
    let names = |folder: &str| -> BTreeSet<String> {
        let entries = std::fs::read_dir(fuzz.join(folder)).expect("a folder of fuzz/");
        let all = entries.map(|e| e.expect("an entry").file_name().into_string().expect("a name"));
        let own = all.filter(|name| name.starts_with(prefix));
        own.map(|name| name.trim_end_matches(".rs").to_owned()).collect()
    };
    let targets: BTreeSet<String> = targets.into_iter().map(str::to_owned).collect();
    assert_eq!(names("corpus"), targets);
    assert_eq!(names("fuzz_targets"), targets);
    let manifest = std::fs::read_to_string(fuzz.join("Cargo.toml")).expect("fuzz/Cargo.toml");
    let missing = targets.iter().find(|name| !manifest.contains(&format!("name = \"{name}\"")));
    assert_eq!(missing, None, "fuzz/Cargo.toml");
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Also of targets that no crate lists; `ci/fuzz` runs all programs of the manifest.
    #[test]
    fn every_manifest_entry_has_a_program_and_a_corpus() {
        let manifest = std::fs::read_to_string(fuzz_folder().join("Cargo.toml")).expect("manifest");
        let after_bin = manifest.split("[[bin]]").skip(1);
        let names = after_bin.filter_map(|bin| bin.split('"').nth(1));
        each_is_whole("", names);
    }
}
