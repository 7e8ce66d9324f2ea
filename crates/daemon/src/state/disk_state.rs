//! State of the disks of the configuration, for the API.

use std::collections::HashMap;

use bio::Attr;
use engine::lun::space_usage_of;
use engine::space::{FULL_PERCENTS, SpaceUsage};
use geom::ProviderId;
use mgmt::api::{DeviceErrorState, DiskMode, DiskState, GeomState, Health, TroubleState};
use mgmt::config::Config;
use mgmt::config::units::short;
use serde_json::Value;

use super::{Detail, Sources};

/// A disk of the configuration. `geoms`: the disks of the graph by name.
pub(super) fn disk(
    from: &Sources<'_>,
    geoms: &HashMap<&str, &GeomState>,
    name: &str,
    kind: &str,
) -> DiskState {
    let refused = from.refused_disks.get(name).cloned();
    let Some(geom) = geoms.get(name) else {
        return unopened(name, kind, refused);
    };
    let entry = |key: &str| geom.config.get(key).and_then(Value::as_str).map(str::to_owned);
    let id = from.topology.find(name);
    let asked = id.filter(|_| from.detail == Detail::All);
    let number = |attr: &str| match asked.and_then(|p| from.topology.attr(p, attr)) {
        Some(Attr::Int(n)) => Some(n),
        _ => None,
    };
    let p = geom.providers.first();
    let error = p.and_then(|p| p.error.as_deref());
    let space = id.and_then(|p| space_usage_of(from.topology, p));
    let size_bytes = p.map_or(0, |p| p.size_bytes);
    let full = space.and_then(|space| full_reason(from.config, name, &space, size_bytes));
    let mut troubles = geom.troubles.clone();
    troubles.extend(full.map(|why| TroubleState {
        health: Health::Degraded,
        why,
        ..TroubleState::default()
    }));
    DiskState {
        name: name.into(),
        kind: kind.into(),
        used_bytes: space.map(|space| space.used),
        free_bytes: space.map(|space| space.free),
        path: entry("path"),
        size_bytes,
        sector_bytes: p.map_or(0, |p| p.sector_bytes),
        serial: entry("serial").or_else(|| entry("ident")).unwrap_or_default(),
        identity: entry("identity"),
        rotational: number("GEOM::rotation_rate").filter(|r| *r != 0).map(|r| r != 1),
        discard: number("GEOM::candelete") == Some(1),
        mode: match entry("mode").as_deref().map(|m| m.split(' ').next().unwrap_or("")) {
            Some("direct") => DiskMode::Direct,
            Some("buffered") => DiskMode::Buffered,
            _ => DiskMode::None,
        },
        mode_why: entry("mode-why").or_else(|| entry("why")).unwrap_or_default(),
        health: match p.is_none() || error.is_some() {
            true => Health::Failed,
            false => troubles.iter().map(|t| t.health).max().unwrap_or_default(),
        },
        health_why: match (p, error) {
            (None, _) => {
                refused.unwrap_or_else(|| "medium lost: removed, or smaller than before".into())
            }
            (_, Some(e)) => format!("answers {e}"),
            _ => {
                let whys: Vec<&str> = troubles.iter().map(|t| t.why.as_str()).collect();
                whys.join("; ")
            }
        },
        error: error.map(str::to_owned),
        last_error: asked.and_then(|id| disk_error(from, id)),
        troubles,
    }
}

/// A disk that is not in the graph: it was lost, or it has not been opened since the start.
/// `refused`: why it could not be opened, as soon as that is known.
fn unopened(name: &str, kind: &str, refused: Option<String>) -> DiskState {
    let default = || "the disk is not open; see `ashlar journal`".to_owned();
    DiskState {
        name: name.into(),
        kind: kind.into(),
        health: Health::Failed,
        health_why: refused.unwrap_or_else(default),
        ..DiskState::default()
    }
}

/// The last failed request of a disk.
fn disk_error(from: &Sources<'_>, disk: ProviderId) -> Option<DeviceErrorState> {
    let last = disks::LastError::of(from.topology, disk)?;
    let age_ns = from.now_ns.saturating_sub(last.at_ns);
    Some(DeviceErrorState { what: last.description, age_ns, count: last.count })
}

/// Why a disk that allocates space on write is too full; None while it is not.
fn full_reason(config: &Config, name: &str, space: &SpaceUsage, size_bytes: u64) -> Option<String> {
    if space.is_enough(size_bytes) {
        return None;
    }
    let unit = config.unit.iter().find(|u| u.provider == name);
    let percents = unit.and_then(|u| u.thresholds.as_deref()).unwrap_or(&FULL_PERCENTS);
    let percent = space.percent_full();
    let reached = percents.iter().filter(|p| **p <= percent).max()?;
    let left = short(space.free);
    let whose = if space.is_shared { " for all disks there" } else { "" };
    Some(format!(
        "{percent} % of its space is used (threshold {reached} %), {left} free{whose}; writes fail \
         when none is left"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disk_that_has_not_been_opened_is_not_called_gone() {
        let why = |refused: Option<&str>| {
            let disk = unopened("d0", "file", refused.map(str::to_owned));
            assert_eq!((disk.name.as_str(), disk.health), ("d0", Health::Failed));
            disk.health_why
        };
        assert_eq!(why(None), "the disk is not open; see `ashlar journal`");
        assert_eq!(why(Some("medium missing: /a.img")), "medium missing: /a.img");
    }
}
