//! Changes that forms of the details of geoms make.
//!
//! A change that ends the redundancy or the protection of data names this consequence first, and is
//! carried out when the reader confirms it. Callers see only the changes that their role permits
//! ([`super::View::retain_actions`]).

use super::tables::CellAction;
use crate::api::{ConsumerState, GeomState};
use crate::text::shell_word;
use serde_json::{Map, Value, json};

/// Class of disks.
const DISK: &str = "disk";

/// State of a member that has all data, and of a path that is used.
const ACTIVE: &str = "ACTIVE";

/// State of a path that failed.
const FAIL: &str = "FAIL";

/// Parameters of a verb.
pub(super) fn values<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A verb of a mirror or array about a provider that the reader types.
fn of_provider(label: &str, geom: &GeomState, verb: &str) -> CellAction {
    let own = CellAction::verb(label, geom, verb);
    CellAction {
        input: Some("members".to_owned()),
        is_list: true,
        unit: Some("provider".to_owned()),
        command: format!("{} PROVIDER", own.command),
        ..own
    }
}

/// A verb about one member, which is the parameter `key`.
fn of_member(
    (label, verb): (&str, &str),
    geom: &GeomState,
    (key, value): (&str, Value),
    member: &str,
) -> CellAction {
    let own = CellAction::verb(&format!("{label} {member}"), geom, verb);
    CellAction {
        value: values([(key, value)]),
        command: format!("{} {}", own.command, shell_word(member)),
        ..own
    }
}

/// Providers of the members that are in one of the states that `is_wanted` accepts.
fn members(geom: &GeomState, is_wanted: impl Fn(&str) -> bool) -> Vec<&str> {
    // The state of a disk of an array is followed by those of its parts.
    let first = |consumer: &ConsumerState| consumer.state.split(' ').next().is_some_and(&is_wanted);
    let wanted = geom.consumers.iter().filter(|consumer| first(consumer));
    wanted.filter_map(|consumer| consumer.provider.as_deref()).collect()
}

/// The same change to each member of these; none to the last one, which would be refused.
fn to_all_but_one(members: &[&str], change: impl Fn(&str) -> CellAction) -> Vec<CellAction> {
    let shown = if members.len() > 1 { members } else { &[] };
    shown.iter().map(|member| change(member)).collect()
}

/// A new size of a geom.
fn resize(geom: &GeomState, ask: &str) -> CellAction {
    let own = CellAction::verb("Resize", geom, "resize");
    CellAction {
        input: Some("size".to_owned()),
        unit: Some("new size in bytes, or as 2GiB".to_owned()),
        ask: Some(ask.to_owned()),
        command: format!("{} --size SIZE", own.command),
        ..own
    }
}

fn of_mirror(geom: &GeomState) -> Vec<CellAction> {
    let active = members(geom, |state| state == ACTIVE);
    let mut out = to_all_but_one(&active, |member| {
        let ask = format!("{member} is not written until it is activated, and is rebuilt then.");
        let list = ("members", json!([member]));
        let own = of_member(("Deactivate", "deactivate"), geom, list, member);
        CellAction { ask: Some(ask), ..own }
    });
    out.push(of_provider("Activate", geom, "activate"));
    let insert = of_provider("Insert", geom, "insert");
    let ask = "The data on the provider is replaced by that of the mirror.".to_owned();
    out.push(CellAction { ask: Some(ask), ..insert });
    let ask = "Data behind a smaller size is lost. Hosts see the new size at once.";
    out.push(resize(geom, ask));
    out.push(CellAction::verb("Verify", geom, "verify"));
    out
}

fn of_array(geom: &GeomState) -> Vec<CellAction> {
    let active = members(geom, |state| state == ACTIVE);
    let mut out = to_all_but_one(&active, |member| {
        let ask = format!("{member} is not used until it is inserted again, and is rebuilt then.");
        let own = of_member(("Fail", "fail"), geom, ("members", json!([member])), member);
        CellAction { ask: Some(ask), ..own }
    });
    let insert = of_provider("Insert", geom, "insert");
    let ask = "The provider becomes a disk of the array, and its data is replaced.".to_owned();
    out.push(CellAction { ask: Some(ask), ..insert });
    out.push(CellAction::verb("Verify", geom, "verify"));
    out
}

fn of_multipath(geom: &GeomState) -> Vec<CellAction> {
    let of_path =
        |how: (&str, &str), path: &str| of_member(how, geom, ("member", json!(path)), path);
    let good = members(geom, |state| [ACTIVE, "PASSIVE", "READ"].contains(&state));
    let mut out = to_all_but_one(&good, |path| {
        let ask = format!("Requests use the other paths until {path} is restored.");
        CellAction { ask: Some(ask), ..of_path(("Fail", "fail"), path) }
    });
    let others = members(geom, |state| ["PASSIVE", "READ"].contains(&state));
    out.extend(others.into_iter().map(|path| of_path(("Prefer", "prefer"), path)));
    let failed = members(geom, |state| state == FAIL);
    out.extend(failed.into_iter().map(|path| of_path(("Restore", "restore"), path)));
    out
}

fn of_file_server(geom: &GeomState, is_serving: bool) -> Vec<CellAction> {
    if !is_serving {
        return vec![CellAction::verb("Start", geom, "start")];
    }
    let ask = "Clients are disconnected until the file server is started again.".to_owned();
    let halt = CellAction { ask: Some(ask), ..CellAction::verb("Halt", geom, "halt") };
    vec![CellAction::verb("Dump now", geom, "dump"), CellAction::verb("Sync", geom, "sync"), halt]
}

/// The changes to a geom, besides those to its rebuilds.
pub fn of_geom(geom: &GeomState) -> Vec<CellAction> {
    if let Some(is_serving) = geom.is_serving {
        return of_file_server(geom, is_serving);
    }
    match geom.class.as_str() {
        "mirror" => of_mirror(geom),
        "raid" => of_array(geom),
        "multipath" => of_multipath(geom),
        DISK => vec![resize(geom, "A disk only grows. Hosts see the new size at once.")],
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fake::geom_state;

    fn labels(geom: &GeomState) -> Vec<String> {
        of_geom(geom).into_iter().map(|action| action.label).collect()
    }

    /// A geom whose members are in these states.
    fn with_states(class: &str, states: &[(&str, &str)]) -> GeomState {
        let names: Vec<&str> = states.iter().map(|(name, _)| *name).collect();
        let mut geom = geom_state(class, "m0", 2, &names, "m0");
        for (consumer, (_, state)) in geom.consumers.iter_mut().zip(states) {
            consumer.state = (*state).to_owned();
        }
        geom
    }

    #[test]
    fn member_of_a_mirror_is_deactivated_only_beside_another_one() {
        let always = ["Activate", "Insert", "Resize", "Verify"];
        assert_eq!(labels(&with_states("mirror", &[("d0", ""), ("d 1", "")])), always);
        let all = of_geom(&with_states("mirror", &[("d0", ACTIVE), ("d 1", ACTIVE)]));
        let second = &all[1];
        assert_eq!(second.label, "Deactivate d 1");
        assert_eq!(second.command, "ashlar mirror deactivate m0 'd 1'");
        let value = json!({ "name": "m0", "members": ["d 1"] });
        let params = json!({ "class": "mirror", "verb": "deactivate", "value": value });
        assert_eq!(second.call(), ("geom".to_owned(), params));
        assert!(second.ask.is_some());
        let one = with_states("mirror", &[("d0", "SYNCHRONIZING"), ("d 1", ACTIVE)]);
        assert_eq!(labels(&one), always);
    }

    #[test]
    fn disk_of_an_array_is_failed_only_beside_another_one() {
        let states = [("d0", "ACTIVE (ACTIVE)"), ("d1", "ACTIVE (REBUILD)"), ("d2", "SPARE")];
        let all = of_geom(&with_states("raid", &states));
        let shown: Vec<&str> = all.iter().map(|action| action.label.as_str()).collect();
        assert_eq!(shown, ["Fail d0", "Fail d1", "Insert", "Verify"]);
        assert_eq!(all[0].command, "ashlar raid fail m0 d0");
        assert!(all[0].ask.is_some() && all[2].ask.is_some());
        assert_eq!(labels(&with_states("raid", &states[1..])), ["Insert", "Verify"]);
    }

    #[test]
    fn path_is_failed_preferred_or_restored_by_its_state() {
        let states = [("a", ACTIVE), ("b", "PASSIVE"), ("c", FAIL), ("d", "NEW")];
        let all = of_geom(&with_states("multipath", &states));
        let shown: Vec<&str> = all.iter().map(|action| action.command.as_str()).collect();
        let expected = ["fail m0 a", "fail m0 b", "prefer m0 b", "restore m0 c"];
        assert_eq!(shown, expected.map(|words| format!("ashlar multipath {words}")));
        assert_eq!(all[3].value, values([("member", json!("c"))]));
        let last = with_states("multipath", &[("a", ACTIVE), ("c", FAIL)]);
        assert_eq!(labels(&last), ["Restore c"], "the last good path is kept");
    }

    #[test]
    fn file_server_that_is_halted_can_only_be_started() {
        let mut geom = with_states("fs", &[]);
        geom.is_serving = Some(true);
        assert_eq!(labels(&geom), ["Dump now", "Sync", "Halt"]);
        geom.is_serving = Some(false);
        assert_eq!(labels(&geom), ["Start"]);
    }
}
