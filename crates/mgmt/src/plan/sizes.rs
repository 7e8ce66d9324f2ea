//! Sizes of disks: edits of `size`, and disks that are larger than in the configuration because
//! they were made larger by hand.

use super::{Action, Step};
use crate::api::{GeomState, SystemState};
use crate::config::units::exact;
use crate::config::{Catalog, Config, DiskConfig};
use serde_json::Value;
use std::collections::HashMap;

/// The effect of an edit of nothing but [`Catalog::size_keys`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SizeEdit {
    /// The medium keeps the size that it has.
    Keeps,
    /// The medium gets another size. The daemon refuses a smaller one.
    Resizes,
}

/// The effect of an edit of a disk's size; `None`: disks of the kind are not made larger, another
/// key differs as well, or the size of the medium is unknown.
pub(super) fn size_edit(
    from: &DiskConfig,
    to: &DiskConfig,
    (state, catalog): (&SystemState, &Catalog),
) -> Option<SizeEdit> {
    let keys = catalog.size_keys(&from.kind);
    let rest = |disk: &DiskConfig| {
        let mut rest = disk.clone();
        keys.iter().for_each(|key| drop(rest.params.remove(*key)));
        rest
    };
    if keys.is_empty() || rest(from) != rest(to) {
        return None;
    }
    let (was, wanted) = (section_size(from), section_size(to));
    let has = state.disks.iter().find(|d| d.name == from.name).map(|d| d.size_bytes).or(was);
    match (wanted, has) {
        (None, _) => Some(SizeEdit::Keeps),
        _ if wanted == was || wanted == has => Some(SizeEdit::Keeps),
        (Some(_), Some(_)) => Some(SizeEdit::Resizes),
        (Some(_), None) => None,
    }
}

/// `size` of a section, bytes.
pub(super) fn section_size(disk: &DiskConfig) -> Option<u64> {
    disk.params.get("size").and_then(Value::as_u64)
}

/// A disk that is larger than its `size`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GrownDisk {
    /// Its name.
    pub disk: String,
    /// The bytes that it has.
    pub bytes: u64,
    /// The difference.
    pub why: String,
    /// The line to write.
    pub fix: String,
}

/// All of them.
pub fn grown_disks(config: &Config, state: &SystemState) -> Vec<GrownDisk> {
    let sizes: HashMap<&str, u64> =
        state.disks.iter().map(|d| (d.name.as_str(), d.size_bytes)).collect();
    let one = |disk: &DiskConfig| {
        let wanted = section_size(disk)?;
        let has = *sizes.get(disk.name.as_str())?;
        (has > wanted).then(|| GrownDisk {
            disk: disk.name.clone(),
            bytes: has,
            why: format!(
                "size is {}, but `size` in the configuration is {}; all of it is served",
                exact(has),
                exact(wanted)
            ),
            fix: format!("In ashlar.toml: size = \"{}\".", exact(has)),
        })
    };
    config.disk.iter().filter_map(one).collect()
}

/// Commands that a user types before a mirror uses disks that steps make larger.
pub fn resize_commands(steps: &[Step], state: &SystemState) -> Vec<String> {
    let grown = |name: Option<&String>| {
        let grows =
            |s: &Step| matches!(&s.action, Action::GrowDisk { to, .. } if Some(&to.name) == name);
        steps.iter().any(grows)
    };
    let mirrors = state.geoms.iter().filter(|geom| geom.class == "mirror" && !geom.withering);
    let above = mirrors.filter(|g| g.consumers.iter().any(|c| grown(c.provider.as_ref())));
    let note = |geom: &GeomState| {
        let name = &geom.name;
        format!(
            "mirror {name}: size unchanged. When all of its members have grown: `ashlar mirror \
             resize {name}`"
        )
    };
    above.map(note).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::DiskState;
    use crate::config::read;

    #[test]
    fn disk_larger_than_its_section_is_reported_with_the_new_size() {
        let text = "[[disk]]\nname='a'\nkind='memory'\nsize_bytes='1MiB'\n";
        let mut config = read(text, "a.toml", &crate::fake::catalog()).expect("well-formed");
        config.disk[0].params.insert("size".into(), (16u64 << 20).into());
        let state = |size_bytes| SystemState {
            disks: vec![DiskState { name: "a".into(), size_bytes, ..DiskState::default() }],
            ..SystemState::default()
        };
        assert!(grown_disks(&config, &state(16 << 20)).is_empty());
        let found = grown_disks(&config, &state(32 << 20));
        assert_eq!(found.len(), 1);
        assert!(found[0].why.contains("32MiB") && found[0].fix.contains("size = \"32MiB\""));
    }
}
