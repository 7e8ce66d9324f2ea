//! Disks that have another name, and are the same disk: nothing of theirs is removed.
//!
//! Invariants
//!  R1  A disk that is in both configurations under its name is that disk, even if another has a
//!      similar name. Names that are exchanged are an exchange of disks.
//!  R2  Two disks are one when they are at one path, kind and parameters are equal, and no other
//!      disk of either side has the same. One without a path is known by its name alone.
//!  R3  A reference that is the disk's name and a letter is a BSD partition of it, unless the
//!      configuration gives that name to something else.

use crate::config::{Config, DiskConfig};
use std::collections::BTreeSet;

/// The disks that only have another name: as they are, and as they shall be.
pub(super) fn renamed(running: &Config, desired: &Config) -> Vec<(DiskConfig, DiskConfig)> {
    let same = |a: &DiskConfig, b: &DiskConfig| a.kind == b.kind && a.params == b.params;
    let gone = running.disk.iter().filter(|d| d.params.contains_key("path"));
    let [before, after] = [running, desired]
        .map(|config| config.disk.iter().map(|d| d.name.as_str()).collect::<BTreeSet<&str>>());
    let gone = gone.filter(|d| !after.contains(d.name.as_str()));
    let new: Vec<&DiskConfig> =
        desired.disk.iter().filter(|d| !before.contains(d.name.as_str())).collect();
    let lone = |config: &Config, disk: &DiskConfig| {
        config.disk.iter().filter(|other| same(other, disk)).take(2).count() == 1
    };
    let pair = |from: &DiskConfig| {
        let to = new.iter().find(|to| same(from, to))?;
        (lone(running, from) && lone(desired, to)).then(|| (from.clone(), (*to).clone()))
    };
    gone.filter_map(pair).collect()
}

/// Renames `reference` when the disk `from` becomes `to`: that disk, or a partition of it; anything
/// else stays as it was. `taken`: names that the configuration gives.
pub(super) fn rename_reference(
    reference: &mut String,
    from: &str,
    to: &str,
    taken: &BTreeSet<String>,
) {
    let Some(rest) = reference.strip_prefix(from) else { return };
    // R3
    let is_taken = is_bsd_letter(rest) && taken.contains(reference.as_str());
    if is_part(rest) && !is_taken {
        *reference = format!("{to}{rest}");
    }
}

/// Whether that may be the end of the name of a disk's partition, or nothing follows the disk's
/// name.
pub(super) fn is_part(rest: &str) -> bool {
    let mut letters = rest.chars();
    let is_numbered = matches!(letters.next(), Some('p' | 's'))
        && letters.next().is_some_and(|c| c.is_ascii_digit());
    rest.is_empty() || is_numbered || is_bsd_letter(rest)
}

/// Whether that is the end of the name of a partition of a BSD label.
pub(super) fn is_bsd_letter(rest: &str) -> bool {
    matches!(rest.as_bytes(), [b'a'..=b't'])
}

/// Names that a configuration gives to buses' disks, disks and geoms.
pub(super) fn given_names(config: &Config) -> BTreeSet<String> {
    let aliases = config.bus.iter().flat_map(|b| b.names.keys().cloned());
    let disks = config.disk.iter().map(|d| d.name.clone());
    aliases.chain(disks).chain(config.geom.iter().map(|g| g.name.clone())).collect()
}

/// The disk `from` is called `to` in all of a configuration.
pub(super) fn rename(config: &mut Config, from: &str, to: &DiskConfig) {
    let taken = given_names(config);
    config.disk.iter_mut().filter(|d| d.name == from).for_each(|d| *d = to.clone());
    let layers = config.geom.iter_mut().flat_map(|g| g.provider.iter_mut().chain(&mut g.members));
    let luns = config.access.iter_mut().flat_map(|a| a.luns.values_mut().map(|l| &mut l.provider));
    let units = config.unit.iter_mut().map(|u| &mut u.provider);
    layers
        .chain(luns)
        .chain(units)
        .for_each(|reference| rename_reference(reference, from, &to.name, &taken));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disks(all: &[(&str, &str)]) -> Config {
        let disk = |(name, path): &(&str, &str)| DiskConfig {
            name: (*name).into(),
            kind: "file".into(),
            params: serde_json::Map::from_iter([("path".to_owned(), (*path).into())]),
        };
        Config { disk: all.iter().map(disk).collect(), ..Config::default() }
    }

    /// R1, R2.
    #[test]
    fn disk_is_renamed_only_if_the_match_is_unique() {
        let names = |from: &[(&str, &str)], to: &[(&str, &str)]| -> Vec<(String, String)> {
            let all = renamed(&disks(from), &disks(to));
            all.into_iter().map(|(from, to)| (from.name, to.name)).collect()
        };
        let one = |from: &str, to: &str| vec![(from.to_owned(), to.to_owned())];
        assert_eq!(names(&[("a", "1"), ("b", "2")], &[("c", "1"), ("b", "2")]), one("a", "c"));
        assert_eq!(names(&[("a", "1")], &[("a", "2"), ("c", "1")]), [], "R1");
        assert_eq!(names(&[("a", "1"), ("b", "2")], &[("b", "1"), ("a", "2")]), [], "R1");
        assert_eq!(names(&[("a", "1"), ("b", "1")], &[("c", "1")]), [], "R2");
        assert_eq!(names(&[("a", "1")], &[("c", "1"), ("d", "1")]), [], "R2");
    }

    /// R3.
    #[test]
    fn references_follow_a_renamed_disk() {
        let taken = BTreeSet::from(["d0b".to_owned()]);
        for (reference, then) in [
            ("d0", "x"),
            ("d0p1", "xp1"),
            ("d0s2", "xs2"),
            ("d0s2e", "xs2e"),
            ("d0a", "xa"),
            ("d0t", "xt"),
            ("d0u", "d0u"),
            ("d0ab", "d0ab"),
            ("d0b", "d0b"),
            ("d01", "d01"),
            ("gpt/d0", "gpt/d0"),
        ] {
            let mut name = reference.to_owned();
            rename_reference(&mut name, "d0", "x", &taken);
            assert_eq!(name, then, "{reference}");
        }
    }
}
