//! Properties of objects beside geoms that verbs change: reservations, target port groups, media,
//! sessions, attached LUNs and tokens.

use super::changes::Properties;
use crate::api::{
    AttachedState, GeomState, LunState, Result, SessionState, SystemState, TargetState,
};
use crate::auth::Token;
use crate::object_id::LUN_CLASS;
use crate::service::Control;
use serde_json::Value;

/// Objects that a verb changes.
#[derive(Clone, Copy)]
pub(super) enum Objects {
    /// Objects of the state, read with the parameters of the verb.
    State(fn(&SystemState, &Value) -> Properties),
    /// Tokens of the API.
    Tokens,
}

/// Verbs of the API with the objects that each of them changes.
const VERBS: [(&str, Objects); 9] = [
    ("alua.set", Objects::State(port_groups)),
    ("attach", Objects::State(attached)),
    ("detach", Objects::State(attached)),
    ("reservations", Objects::State(reservations)),
    ("sessions.end", Objects::State(sessions)),
    ("token.create", Objects::Tokens),
    ("token.revoke", Objects::Tokens),
    ("tray.eject", Objects::State(media)),
    ("tray.load", Objects::State(media)),
];

impl Objects {
    /// The objects of a verb; `None` for a verb that changes no object of these kinds.
    pub(super) fn of(verb: &str) -> Option<Objects> {
        VERBS.iter().find(|(name, _)| *name == verb).map(|(_, objects)| *objects)
    }

    /// The present properties of the objects that the verb changes with these parameters.
    pub(super) fn read(self, control: &Control, params: &Value) -> Result<Properties> {
        match self {
            Objects::State(read) => Ok(read(&control.state()?, params)),
            Objects::Tokens => Ok(tokens(&control.tokens().list()?, params)),
        }
    }
}

/// The text of a parameter; empty without one.
fn text<'p>(params: &'p Value, key: &str) -> &'p str {
    params.get(key).and_then(Value::as_str).unwrap_or_default()
}

/// The LUNs of a unit, in all groups.
fn luns_of<'s>(state: &'s SystemState, unit: &str) -> impl Iterator<Item = &'s LunState> {
    let groups = state.targets.iter().flat_map(|target| &target.groups);
    groups.flat_map(|group| &group.luns).filter(move |lun| lun.provider == unit)
}

fn port_groups(state: &SystemState, params: &Value) -> Properties {
    let name = text(params, "group");
    let own = state.port_groups.iter().filter(|group| group.name == name);
    own.map(|group| (format!("port group {name} state"), group.state.clone())).collect()
}

fn attached(state: &SystemState, _: &Value) -> Properties {
    let one =
        |of: &AttachedState| (format!("LUN {} of {} device", of.lun, of.target), of.device.clone());
    state.attached.iter().map(one).collect()
}

fn reservations(state: &SystemState, params: &Value) -> Properties {
    let unit = text(params, "provider");
    let held = luns_of(state, unit).find_map(|lun| lun.reservation.as_ref());
    let Some(held) = held else { return Properties::new() };
    let kind = held.kind.clone().unwrap_or_default();
    let mut out = Properties::from([(format!("unit {unit} reservation"), kind)]);
    for registrant in &held.registrants {
        let role = if registrant.holds { "holder" } else { "registrant" };
        let port = format!("{} at target port {}", registrant.port, registrant.target_port);
        let value = format!("{role} {}", registrant.key).trim_end().to_owned();
        out.insert(format!("unit {unit} initiator port {port}"), value);
    }
    out
}

fn sessions(state: &SystemState, params: &Value) -> Properties {
    let id = text(params, "id");
    let own = state.sessions().filter(|(_, session)| session.id.to_string() == id);
    let one = |(target, session): (&TargetState, &SessionState)| {
        let host = format!("{} at {}", session.initiator, session.address);
        (format!("session {id} of {}", target.name), host)
    };
    own.map(one).collect()
}

fn tokens(all: &[Token], params: &Value) -> Properties {
    let name = text(params, "name");
    let own = all.iter().filter(|token| token.name == name);
    let one = |token: &Token| {
        (format!("token {name}"), format!("{} of {}", token.role.label(), token.scope))
    };
    own.map(one).collect()
}

fn media(state: &SystemState, params: &Value) -> Properties {
    let unit = text(params, "unit");
    let Some(lun) = luns_of(state, unit).next() else { return Properties::new() };
    let is_own = |geom: &&GeomState| geom.class == LUN_CLASS && geom.name == unit;
    let below = state.geoms.iter().find(is_own).and_then(|geom| geom.consumers.first());
    let provider = below.and_then(|consumer| consumer.provider.as_deref()).unwrap_or(unit);
    let medium = if lun.ejected { "out" } else { provider };
    Properties::from([(format!("unit {unit} medium"), medium.to_owned())])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{GroupState, PortGroupState, RegistrantState, ReservationState};
    use crate::audit::Former;
    use crate::audit::changes::differences;
    use crate::auth::{Role, Scope};
    use crate::fake::{FakePlant, control};
    use serde_json::json;
    use std::sync::Arc;
    use testkit::Folder;

    /// A state with one object of each kind; without them after a change.
    fn state(is_before: bool) -> SystemState {
        let held = ReservationState {
            kind: Some("write exclusive".to_owned()),
            registrants: vec![RegistrantState {
                port: "iqn.h:one".to_owned(),
                target_port: 2,
                key: "0xbeef".to_owned(),
                holds: true,
                ..RegistrantState::default()
            }],
            ..ReservationState::default()
        };
        let lun = LunState {
            provider: "d0".to_owned(),
            reservation: is_before.then_some(held),
            ejected: !is_before,
            ..LunState::default()
        };
        let session = SessionState {
            id: 7,
            initiator: "iqn.h:one".to_owned(),
            address: "10.0.0.1:4000".to_owned(),
            ..SessionState::default()
        };
        let target = TargetState {
            name: "iqn.a:t".to_owned(),
            groups: vec![GroupState { luns: vec![lun], ..GroupState::default() }],
            sessions: Vec::from_iter(is_before.then_some(session)),
            ..TargetState::default()
        };
        let ports = PortGroupState {
            name: "default".to_owned(),
            state: if is_before { "optimized" } else { "standby" }.to_owned(),
            ..PortGroupState::default()
        };
        let device = AttachedState {
            target: "here".to_owned(),
            device: "/dev/nbd0".to_owned(),
            ..AttachedState::default()
        };
        SystemState {
            targets: vec![target],
            port_groups: vec![ports],
            attached: Vec::from_iter(is_before.then_some(device)),
            ..SystemState::default()
        }
    }

    /// The recorded changes of a verb whose objects are in the state.
    fn changes(verb: &str, params: &Value) -> Vec<String> {
        let Some(Objects::State(read)) = Objects::of(verb) else { panic!("{verb}") };
        differences(&read(&state(true), params), &read(&state(false), params))
    }

    #[test]
    fn objects_beside_geoms_are_recorded_with_their_former_values() {
        let ports = changes("alua.set", &json!({ "group": "default" }));
        assert_eq!(ports, ["port group default state: optimized -> standby"]);
        assert!(changes("alua.set", &json!({ "group": "other" })).is_empty());
        let device = changes("detach", &json!({ "name": "0" }));
        assert_eq!(device, ["LUN 0 of here device: /dev/nbd0 -> -"]);
        let session = changes("sessions.end", &json!({ "id": "7" }));
        assert_eq!(session, ["session 7 of iqn.a:t: iqn.h:one at 10.0.0.1:4000 -> -"]);
        let medium = changes("tray.eject", &json!({ "unit": "d0" }));
        assert_eq!(medium, ["unit d0 medium: d0 -> out"]);
        let cleared = changes("reservations", &json!({ "provider": "d0", "clear": true }));
        let expected = [
            "unit d0 initiator port iqn.h:one at target port 2: holder 0xbeef -> -",
            "unit d0 reservation: write exclusive -> -",
        ];
        assert_eq!(cleared, expected);
    }

    #[test]
    fn revoked_token_is_recorded_with_its_role_and_scope() {
        let folder = Folder::new("former");
        let control = control(&Arc::new(FakePlant::new()), &folder).with_api_folder(&folder);
        control.tokens().create("ci", Role::Viewer, Scope::default()).expect("a token");
        let former = Former::of(&control, "token.revoke", &json!({ "name": "ci" }));
        control.tokens().revoke("ci").expect("it is there");
        assert_eq!(former.changes(&control, "{}"), ["token ci: viewer of all -> -"]);
    }

    #[test]
    fn verbs_whose_objects_are_read_exist() {
        for (verb, _) in VERBS {
            assert!(crate::verbs::find(verb).is_some(), "{verb}");
        }
    }
}
