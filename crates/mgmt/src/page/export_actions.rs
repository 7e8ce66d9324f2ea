//! Changes that forms of the details of LUNs and targets make.

use super::actions::values;
use super::tables::CellAction;
use crate::api::{LunState, PortGroupState, SessionEnd, SystemState, TargetState};
use crate::text::shell_word;
use serde_json::{Value, json};

/// Access states of a target port group, and whether hosts have access through it.
const ACCESS_STATES: [(&str, bool); 5] = [
    ("optimized", true),
    ("non-optimized", true),
    ("standby", false),
    ("unavailable", false),
    ("offline", false),
];

/// A verb of the API. `ask` is its consequence, empty if it has none.
fn verb<const N: usize>(
    (label, verb): (&str, &str),
    pairs: [(&str, Value); N],
    ask: &str,
    command: String,
) -> CellAction {
    CellAction {
        label: label.to_owned(),
        verb: verb.to_owned(),
        value: values(pairs),
        ask: (!ask.is_empty()).then(|| ask.to_owned()),
        command,
        ..CellAction::default()
    }
}

/// The insertion or removal of the medium of a unit.
fn of_tray(lun: &LunState) -> CellAction {
    let (unit, word) = (json!(lun.provider), shell_word(&lun.provider));
    if lun.ejected {
        let command = format!("ashlar tray load {word}");
        return verb(("Load", "tray.load"), [("unit", unit)], "", command);
    }
    let ask = "Hosts have no medium until one is loaded.";
    verb(("Eject", "tray.eject"), [("unit", unit)], ask, format!("ashlar tray eject {word}"))
}

/// A block device of this machine for a LUN of a local target.
fn of_local(state: &SystemState, target: &str, lun: u64) -> CellAction {
    let mut own = state.attached.iter().filter(|of| of.target == target && of.lun == lun);
    let (word, number) = (shell_word(target), lun.to_string());
    if own.any(|of| !of.device.is_empty()) {
        let ask = "The block device of this machine is removed. It is refused while it is in use.";
        let command = format!("ashlar detach {lun} --target {word}");
        let pairs = [("name", json!(number)), ("target", json!(target))];
        return verb(("Detach", "detach"), pairs, ask, command);
    }
    let command = format!("ashlar attach {lun} --target {word}");
    let pairs = [("lun", json!(number)), ("target", json!(target))];
    verb(("Attach", "attach"), pairs, "", command)
}

/// The changes to a LUN.
pub fn of_lun(state: &SystemState, target: &TargetState, lun: &LunState) -> Vec<CellAction> {
    let (name, word) = (json!(lun.provider), shell_word(&lun.provider));
    let mut out = Vec::new();
    if lun.reservation.is_some() {
        let pairs = [("provider", name.clone()), ("clear", json!(true)), ("yes_clear", name)];
        let ask = "Hosts that are kept out now could then write.";
        let command = format!("ashlar reservations {word} --clear --yes-clear {word}");
        out.push(verb(("Clear reservations", "reservations"), pairs, ask, command));
    }
    if lun.removable {
        out.push(of_tray(lun));
    }
    if target.session_end == SessionEnd::Detach {
        out.push(of_local(state, &target.name, lun.lun));
    }
    out
}

/// The other access states of the port group of a target.
pub fn of_target(state: &SystemState, target: &TargetState) -> Vec<CellAction> {
    let mut groups = state.port_groups.iter();
    let Some(group) = groups.find(|group| group.name == target.port_group) else {
        return Vec::new();
    };
    let PortGroupState { name, targets, .. } = group;
    let set = |(to, has_access): (&str, bool)| {
        let all = targets.join(", ");
        let ask = match has_access {
            true => String::new(),
            false => format!("Hosts have no access through {all} in this state."),
        };
        let label = format!("Set {name} {to}");
        let command = format!("ashlar alua set {} {to}", shell_word(name));
        let pairs = [("group", json!(name)), ("state", json!(to))];
        verb((label.as_str(), "alua.set"), pairs, &ask, command)
    };
    ACCESS_STATES.into_iter().filter(|(to, _)| *to != group.state).map(set).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{AttachedState, ReservationState};
    use crate::config::AluaState;
    use crate::verbs;

    /// Fields of the parameters of a verb of the API.
    fn is_param(verb: &str, key: &str) -> bool {
        let entry = verbs::find(verb).expect(verb);
        (entry.params)()["properties"].get(key).is_some()
    }

    #[track_caller]
    fn check(all: &[CellAction], commands: &[&str]) {
        let shown: Vec<&str> = all.iter().map(|action| action.command.as_str()).collect();
        assert_eq!(shown, commands);
        for action in all {
            for key in action.value.keys() {
                assert!(is_param(&action.verb, key), "{} has no parameter {key}", action.verb);
            }
        }
    }

    #[test]
    fn lun_is_cleared_or_ejected_after_a_confirmation() {
        let (state, target) = (SystemState::default(), TargetState::default());
        let lun = LunState { provider: "cd0".to_owned(), ..LunState::default() };
        assert_eq!(of_lun(&state, &target, &lun), []);
        let reservation = Some(ReservationState::default());
        let drive = LunState { removable: true, reservation, ..lun };
        let all = of_lun(&state, &target, &drive);
        let clear = "ashlar reservations cd0 --clear --yes-clear cd0";
        check(&all, &[clear, "ashlar tray eject cd0"]);
        assert!(all.iter().all(|action| action.ask.is_some()), "{all:?}");
        let empty = LunState { ejected: true, ..drive };
        check(&of_lun(&state, &target, &empty), &[clear, "ashlar tray load cd0"]);
    }

    #[test]
    fn lun_of_a_local_target_is_attached_or_detached() {
        let target = TargetState {
            session_end: SessionEnd::Detach,
            name: "here".to_owned(),
            ..TargetState::default()
        };
        let lun = LunState { lun: 3, ..LunState::default() };
        let mut state = SystemState::default();
        check(&of_lun(&state, &target, &lun), &["ashlar attach 3 --target here"]);
        let of = |device: &str| AttachedState {
            target: "here".to_owned(),
            lun: 3,
            device: device.to_owned(),
            ..AttachedState::default()
        };
        state.attached = vec![of("")];
        check(&of_lun(&state, &target, &lun), &["ashlar attach 3 --target here"]);
        state.attached = vec![of("/dev/nbd0")];
        let all = of_lun(&state, &target, &lun);
        check(&all, &["ashlar detach 3 --target here"]);
        assert!(all[0].ask.is_some());
    }

    #[test]
    fn port_group_gets_another_access_state() {
        let group = PortGroupState {
            name: "default".to_owned(),
            state: "optimized".to_owned(),
            targets: vec!["iqn.a:t".to_owned()],
            ..PortGroupState::default()
        };
        let state = SystemState { port_groups: vec![group], ..SystemState::default() };
        let port_group = "default".to_owned();
        let target = TargetState { port_group, ..TargetState::default() };
        let all = of_target(&state, &target);
        let states = ["non-optimized", "standby", "unavailable", "offline"];
        let commands = states.map(|to| format!("ashlar alua set default {to}"));
        check(&all, &commands.each_ref().map(String::as_str));
        assert!(all[0].ask.is_none() && all[1..].iter().all(|action| action.ask.is_some()));
        for action in &all {
            let word = action.value.get("state").cloned().unwrap_or_default();
            assert!(serde_json::from_value::<AluaState>(word).is_ok(), "{action:?}");
        }
        assert_eq!(of_target(&SystemState::default(), &target), []);
    }
}
