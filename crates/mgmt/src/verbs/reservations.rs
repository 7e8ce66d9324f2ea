//! reservations: holders of reservations by unit, and their removal by an operator.

use super::entry::CommandVerb;
use crate::api::{Error, Kind, RegistrantState, ReservationState, Result};
use crate::plant::Plant;
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Parameters of `reservations`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ReservationsParams {
    /// Show only the unit on this provider [default: all units]
    pub provider: Option<String>,
    /// End all registrations and reservations of the unit.
    pub clear: bool,
    /// Name of the provider again: required with --clear.
    pub yes_clear: Option<String>,
}

/// A unit with a reservation or registrations.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ReservedUnit {
    /// Provider of the unit.
    pub provider: String,
    /// Its reservation and registrations.
    pub reservation: ReservationState,
}

/// Answer of `reservations`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct ReservationsAnswer {
    /// Units, by provider.
    pub units: Vec<ReservedUnit>,
    /// The unit that was cleared.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cleared: Option<String>,
}

fn rows(unit: &ReservedUnit) -> Vec<Vec<String>> {
    let of = &unit.reservation;
    let one = |r: &RegistrantState| {
        vec![
            unit.provider.clone(),
            text::or_dash(of.kind.as_deref().unwrap_or("")),
            if r.holds { "holder" } else { "registrant" }.to_owned(),
            text::or_dash(&r.port),
            r.target_port.to_string(),
            text::or_dash(&r.key),
            if r.connected { "yes" } else { "no" }.to_owned(),
            if of.persistent { "yes" } else { "no" }.to_owned(),
        ]
    };
    of.registrants.iter().map(one).collect()
}

impl Verb<Control> for ReservationsParams {
    const NAME: &'static str = "reservations";
    const DOC: &'static str = "List or clear persistent reservations";
    const DETAIL: &'static str = "The reservation of a failed host excludes other hosts until \
        another registrant preempts it. If there is no other registrant, --clear ends all \
        registrations and reservations of a unit and notifies the hosts that had them. If the \
        failed host returns, it can write at the same time as other hosts: make sure that it stays \
        off.";
    const POSITIONAL: &'static [&'static str] = &["provider"];
    const EXAMPLE: &'static str = "reservations";
    const MORE_EXAMPLES: &'static [&'static str] = &["reservations --json"];
    type Answer = ReservationsAnswer;

    fn run(self, (control, progress): At<'_, Control>) -> Result<ReservationsAnswer> {
        let op = "reservations";
        if self.clear {
            let Some(name) = self.provider else {
                return Err(Error::new(Kind::Usage, op, "--clear needs the name of a unit"));
            };
            if self.yes_clear.as_deref() != Some(name.as_str()) {
                let why = "hosts that are kept out now could then write";
                let word = text::shell_word(&name);
                let next = format!("Repeat the command with --yes-clear {word} once you are sure.");
                return Err(Error::new(Kind::Usage, op, why).at(name).next(next));
            }
            let of = serde_json::json!({ "name": name });
            let clear = |plant: &dyn Plant| plant.verb("lun", "clear-reservations", &of, progress);
            control.change_own((op, &name), |scope, all| scope.owns_unit(all, &name), clear)?;
            return Ok(ReservationsAnswer { units: Vec::new(), cleared: Some(name) });
        }
        let state = control.state()?;
        let luns = state.targets.iter().flat_map(|t| &t.groups).flat_map(|g| &g.luns);
        let wanted = |name: &str| self.provider.as_ref().is_none_or(|p| p == name);
        let units: BTreeMap<String, ReservationState> = luns
            .filter(|l| wanted(&l.provider))
            .filter_map(|l| Some((l.provider.clone(), l.reservation.clone()?)))
            .collect();
        let unit = |(provider, reservation)| ReservedUnit { provider, reservation };
        Ok(ReservationsAnswer { units: units.into_iter().map(unit).collect(), cleared: None })
    }
}

impl CommandVerb<Control> for ReservationsParams {
    fn table(answer: &ReservationsAnswer) -> String {
        if let Some(name) = &answer.cleared {
            return format!("{name}: registrations and reservations have ended\n");
        }
        let rows: Vec<_> = answer.units.iter().flat_map(rows).collect();
        if rows.is_empty() {
            return "nothing is reserved\n".to_owned();
        }
        let columns =
            ["unit", "type", "as", "initiator port", ">target port", "key", "here", "lasting"];
        text::table(&columns, &rows)
    }
}
