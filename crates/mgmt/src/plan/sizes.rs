//! Disks that are larger than the configuration says: they were made larger by hand.

use super::{Action, Step};
use crate::api::{GeomState, SystemState};
use crate::config::Config;
use crate::config::units::exact;

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
    let one = |disk: &crate::config::DiskConfig| {
        let wanted = disk.params.get("size")?.as_u64()?;
        let has = state.disks.iter().find(|d| d.name == disk.name)?.size_bytes;
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

/// What a user has to type before a mirror uses disks that steps make larger.
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
