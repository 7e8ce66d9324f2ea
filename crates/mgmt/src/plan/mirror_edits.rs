//! Changes of mirrors that show before a plan is carried out: sections that were edited while the
//! daemon was off, and changes that leave one copy for a while.

use std::collections::BTreeSet;

use super::action::{Action, Risk, Step};
use super::apply::Deferred;
use super::manual_changes::members;
use super::rename::{rename, renamed};
use crate::api::{Error, GeomState, Kind, SystemState};
use crate::config::{Catalog, Config, GeomConfig};

fn consumed_providers(geom: &GeomState) -> BTreeSet<&str> {
    geom.consumers.iter().filter_map(|c| c.provider.as_deref()).collect()
}

fn member_names(geom: &GeomConfig) -> BTreeSet<&str> {
    geom.members.iter().map(String::as_str).collect()
}

/// Whether a mirror has these members and expects no other.
fn has_members(geom: &GeomConfig, live: &GeomState) -> bool {
    let expects = live.config.get("Components").and_then(|all| all.as_str()?.parse::<usize>().ok());
    consumed_providers(live) == member_names(geom) && expects == Some(geom.members.len())
}

/// Mirrors whose members are others in `config`, which was just started with, than in `before`,
/// which was carried out last. A start takes them as in their records. `config` has the members of
/// `before` from then on, so that a plan leads to those of the file.
pub fn defer_mirror_edits(
    before: &Config,
    config: &mut Config,
    state: &SystemState,
    catalog: &Catalog,
) -> Vec<Deferred> {
    let mut before = before.clone();
    for (from, to) in renamed(&before, config) {
        rename(&mut before, &from.name, &to);
    }
    let mut left_out = Vec::new();
    let keeps_records = |geom: &&mut GeomConfig| catalog.facts(&geom.class).keeps_records;
    for to in config.geom.iter_mut().filter(keeps_records) {
        let was = before.geom(&to.name).filter(|was| was.class == to.class);
        let live = state.geoms.iter().find(|g| g.class == to.class && g.name == to.name);
        let (Some(was), Some(live)) = (was, live.filter(|live| !live.withering)) else { continue };
        let from = GeomConfig { members: was.members.clone(), ..to.clone() };
        let now = members(&from, state, catalog);
        let is_done = has_members(to, live) || now.as_ref() == Some(&to.members);
        if member_names(&from) == member_names(to) || is_done {
            continue;
        }
        let why = format!(
            "section edited while the daemon was stopped: members {} -> {}; the former members are \
             served",
            from.members.join(", "),
            to.members.join(", ")
        );
        let next = "`ashlar plan` shows the change, `ashlar apply` carries it out.";
        let action = Action::ModifyGeom { from: from.clone(), to: to.clone() };
        let step = Step::new(action, "edited", Risk::Safe);
        left_out.push(Deferred::new(&step, Error::new(Kind::Busy, "start", why).next(next)));
        *to = from;
    }
    left_out
}

/// Whether a change of members leaves a mirror with one complete copy until new members are
/// rebuilt. It gives up a complete one, or one whose rebuild would have ended earlier.
pub fn leaves_one_copy(
    from: &GeomConfig,
    to: &GeomConfig,
    state: &SystemState,
    catalog: &Catalog,
) -> bool {
    let live = state.geoms.iter().find(|g| g.class == to.class && g.name == to.name);
    let keeps_records = catalog.facts(&to.class).keeps_records;
    let Some(live) = live.filter(|_| keeps_records) else { return false };
    let goes = |name: &str| member_names(from).contains(name) && !member_names(to).contains(name);
    let in_state = |state: &str| -> BTreeSet<&str> {
        let is = live.consumers.iter().filter(|c| c.state.starts_with(state));
        is.filter_map(|c| c.provider.as_deref()).collect()
    };
    let active = in_state("ACTIVE");
    let stay = active.iter().filter(|name| !goes(name)).count();
    let gives_up = active.len() > stay || in_state("SYNCHRONIZING").iter().any(|name| goes(name));
    let comes = member_names(to).iter().any(|name| !consumed_providers(live).contains(name));
    comes && gives_up && stay == 1
}
