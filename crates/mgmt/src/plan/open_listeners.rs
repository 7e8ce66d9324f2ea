//! Addresses that a step of a plan opens while another driver still listens there.

use super::action::{Action, Step};
use crate::api::{Error, Kind};
use crate::config::listeners::{Listener, Listeners, conflict};
use crate::config::{Catalog, Config, GeomConfig, TargetConfig};

/// Steps that open an address which overlaps one of another driver at that time. `running` is the
/// configuration before the steps; addresses that earlier steps close are free.
pub(super) fn refused(running: &Config, steps: &[Step], catalog: &Catalog) -> Vec<(usize, Error)> {
    let mut open = Listeners::default();
    let targets = running.target.iter().flat_map(of_target);
    let geoms = running.geom.iter().flat_map(|geom| of_geom(geom, catalog));
    for listener in targets.chain(geoms).chain(Listener::of_daemon(&running.daemon)) {
        // They are open, so they do not conflict.
        let _ = open.add(listener);
    }
    let mut refused = Vec::new();
    for (i, step) in steps.iter().enumerate() {
        let (closed, opened) = changed(&step.action, catalog);
        closed.into_iter().for_each(|listener| open.remove(listener));
        let mut conflicts = Vec::new();
        for listener in opened {
            conflicts.extend(open.add(listener).map(|other| conflict(listener, other)));
        }
        if let Some(why) = conflicts.into_iter().next() {
            let error = Error::new(Kind::Busy, "open portal", why).at(step.action.name());
            let next = "Or close the other listener first: take it out of the configuration, run \
                        `ashlar apply`, then apply this change.";
            refused.push((i, error.next(next)));
        }
    }
    refused
}

fn of_target(target: &TargetConfig) -> Vec<Listener<'_>> {
    Listener::of_target(target).collect()
}

fn of_geom<'a>(geom: &'a GeomConfig, catalog: &Catalog) -> Vec<Listener<'a>> {
    Listener::of_geom(geom, catalog).map(|(_, _, listener)| listener).collect()
}

/// The listeners that an action closes, and those that it opens.
fn changed<'a>(action: &'a Action, catalog: &Catalog) -> (Vec<Listener<'a>>, Vec<Listener<'a>>) {
    match action {
        Action::CreateTarget { target } => (Vec::new(), of_target(target)),
        Action::ModifyTarget { from, to } => (of_target(from), of_target(to)),
        Action::RemoveTarget { target } => (of_target(target), Vec::new()),
        Action::CreateGeom { geom } => (Vec::new(), of_geom(geom, catalog)),
        Action::ModifyGeom { from, to } => (of_geom(from, catalog), of_geom(to, catalog)),
        Action::RemoveGeom { geom } => (of_geom(geom, catalog), Vec::new()),
        Action::Daemon { from, to } => {
            let of = |daemon| Listener::of_daemon(daemon).into_iter().collect();
            (of(from), of(to))
        }
        _ => (Vec::new(), Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::super::action::Risk;
    use super::*;

    fn target(name: &str, driver: &str, at: &str) -> TargetConfig {
        let section = serde_json::json!({ "name": name, "driver": driver, "listen": [at] });
        serde_json::from_value(section).expect("a target")
    }

    #[test]
    fn address_of_another_driver_is_free_after_the_step_that_closes_it() {
        let old = target("a", "iscsi", "127.0.0.1:3260");
        let moved = target("a", "iscsi", "127.0.0.1:3261");
        let new = target("n", "nbd", "0.0.0.0:3260");
        let running = Config { target: vec![old.clone()], ..Config::default() };
        let step = |action: Action| Step::new(action, "", Risk::Safe);
        let create = || step(Action::CreateTarget { target: new.clone() });
        let remove = step(Action::RemoveTarget { target: old.clone() });
        let (from, to) = (Box::new(old), Box::new(moved));
        let modify = step(Action::ModifyTarget { from, to });
        for close in [remove, modify] {
            let refused = |steps: &[Step]| refused(&running, steps, &Catalog::default());
            assert!(refused(&[close.clone(), create()]).is_empty());
            let found = refused(&[create(), close]);
            let [(0, error)] = found.as_slice() else { panic!("{found:?}") };
            assert!(error.at == "n" && error.source.contains("of target `n`"), "{error}");
            assert!(error.source.contains("`127.0.0.1:3260` of target `a`"), "{error}");
        }
    }
}
