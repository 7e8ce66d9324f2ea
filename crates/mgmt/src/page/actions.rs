//! Changes that forms of the details of geoms and LUNs make.
//!
//! A change that ends the redundancy or the protection of data names this consequence first, and is
//! carried out when the reader confirms it. Callers see only the changes that their role permits
//! ([`super::View::retain_actions`]).

use super::tables::CellAction;
use crate::api::{GeomState, LunState};
use crate::text::shell_word;
use serde_json::{Map, Value, json};

/// Class of disks.
const DISK: &str = "disk";

/// State of a member of a mirror that has all data.
const ACTIVE: &str = "ACTIVE";

fn values<const N: usize>(pairs: [(&str, Value); N]) -> Map<String, Value> {
    pairs.into_iter().map(|(key, value)| (key.to_owned(), value)).collect()
}

/// A verb of a mirror about a provider that the reader types.
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
    let active: Vec<&str> = geom
        .consumers
        .iter()
        .filter(|consumer| consumer.state == ACTIVE)
        .filter_map(|consumer| consumer.provider.as_deref())
        .collect();
    let deactivate = |member: &&str| {
        let own = CellAction::verb(&format!("Deactivate {member}"), geom, "deactivate");
        let ask = format!("{member} is not written until it is activated, and is rebuilt then.");
        CellAction {
            value: values([("members", json!([member]))]),
            ask: Some(ask),
            command: format!("{} {}", own.command, shell_word(member)),
            ..own
        }
    };
    // The last one is refused.
    let shown = if active.len() > 1 { active.as_slice() } else { &[] };
    let mut out: Vec<CellAction> = shown.iter().map(deactivate).collect();
    out.push(of_provider("Activate", geom, "activate"));
    let insert = of_provider("Insert", geom, "insert");
    let ask = "The data on the provider is replaced by that of the mirror.".to_owned();
    out.push(CellAction { ask: Some(ask), ..insert });
    let ask = "Data behind a smaller size is lost. Hosts see the new size at once.";
    out.push(resize(geom, ask));
    out
}

/// The changes to a geom, besides those to its rebuilds.
pub fn of_geom(geom: &GeomState) -> Vec<CellAction> {
    match geom.class.as_str() {
        "mirror" => of_mirror(geom),
        "fs" => vec![CellAction::verb("Dump now", geom, "dump")],
        DISK => vec![resize(geom, "A disk only grows. Hosts see the new size at once.")],
        _ => Vec::new(),
    }
}

/// The changes to a LUN.
pub fn of_lun(lun: &LunState) -> Vec<CellAction> {
    let (name, word) = (&lun.provider, shell_word(&lun.provider));
    let mut out = Vec::new();
    if lun.reservation.is_some() {
        out.push(CellAction {
            label: "Clear reservations".to_owned(),
            verb: "reservations".to_owned(),
            value: values([
                ("provider", json!(name)),
                ("clear", json!(true)),
                ("yes_clear", json!(name)),
            ]),
            ask: Some("Hosts that are kept out now could then write.".to_owned()),
            command: format!("ashlar reservations {word} --clear --yes-clear {word}"),
            ..CellAction::default()
        });
    }
    if lun.removable {
        out.push(CellAction {
            label: "Eject".to_owned(),
            verb: "tray.eject".to_owned(),
            value: values([("unit", json!(name))]),
            ask: Some("Hosts have no medium until one is loaded.".to_owned()),
            command: format!("ashlar tray eject {word}"),
            ..CellAction::default()
        });
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::ReservationState;
    use crate::fake::geom_state;
    use crate::verbs;

    /// Fields of the parameters of a verb of the API.
    fn is_param(verb: &str, key: &str) -> bool {
        let entry = verbs::find(verb).expect(verb);
        (entry.params)()["properties"].get(key).is_some()
    }

    #[test]
    fn member_of_a_mirror_is_deactivated_only_beside_another_one() {
        let mut geom = geom_state("mirror", "m0", 2, &["d0", "d 1"], "m0");
        let labels = |geom: &GeomState| -> Vec<String> {
            of_geom(geom).into_iter().map(|action| action.label).collect()
        };
        assert_eq!(labels(&geom), ["Activate", "Insert", "Resize"]);
        geom.consumers.iter_mut().for_each(|consumer| consumer.state = ACTIVE.to_owned());
        let all = of_geom(&geom);
        let second = &all[1];
        assert_eq!(second.label, "Deactivate d 1");
        assert_eq!(second.command, "ashlar mirror deactivate m0 'd 1'");
        let value = json!({ "name": "m0", "members": ["d 1"] });
        let params = json!({ "class": "mirror", "verb": "deactivate", "value": value });
        assert_eq!(second.call(), ("geom".to_owned(), params));
        assert!(second.ask.is_some());
        geom.consumers[0].state = "SYNCHRONIZING".to_owned();
        assert_eq!(labels(&geom), ["Activate", "Insert", "Resize"]);
    }

    #[test]
    fn lun_is_cleared_or_ejected_after_a_confirmation() {
        let lun = LunState { provider: "cd0".to_owned(), ..LunState::default() };
        assert_eq!(of_lun(&lun), []);
        let reservation = Some(ReservationState::default());
        let all = of_lun(&LunState { removable: true, reservation, ..lun });
        let commands: Vec<&str> = all.iter().map(|action| action.command.as_str()).collect();
        let expected = ["ashlar reservations cd0 --clear --yes-clear cd0", "ashlar tray eject cd0"];
        assert_eq!(commands, expected);
        for action in &all {
            assert!(action.ask.is_some(), "{action:?}");
            for key in action.value.keys() {
                assert!(is_param(&action.verb, key), "{} has no parameter {key}", action.verb);
            }
        }
    }
}
