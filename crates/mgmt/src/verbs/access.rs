//! access: the LUNs that each initiator sees, before any login. Masking is a pure function of the
//! groups.

use super::entry::CommandVerb;
use crate::api::{
    Error, GroupState, Kind, LunState, PendingLunState, Result, SystemState, TargetState,
};
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use wire::portal::{LocalAddress, PortalRule, any_matches};

/// Parameters of `access check`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AccessCheckParams {
    /// Name of the initiator.
    pub initiator: String,
    /// Check only this target [default: all targets]
    #[serde(default)]
    pub target: Option<String>,
    /// Check only logins at this portal: ADDRESS:PORT, unix:PATH or ether:INTERFACE [default: any
    /// portal]
    #[serde(default)]
    pub portal: Option<String>,
}

/// LUNs of one target that an initiator sees.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct VisibleLuns {
    /// The target.
    pub target: String,
    /// The matching access group; absent if none matches, and then no LUN is visible.
    pub group: Option<String>,
    /// Reason: the pattern that matches, or that no group matches.
    pub why: String,
    /// Visible LUNs.
    pub luns: Vec<LunState>,
    /// LUNs that become visible when their providers exist.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub awaited: Vec<PendingLunState>,
}

/// Answer of `access check`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct AccessCheckAnswer {
    /// Name of the initiator, as given.
    pub initiator: String,
    /// Results for all targets.
    pub targets: Vec<VisibleLuns>,
}

/// The groups in which an initiator falls, with the pattern that matches it. Without a portal these
/// may be several: they have no portal in common.
pub fn groups_of<'g>(
    groups: &'g [GroupState],
    initiator: &str,
    portal: Option<LocalAddress<'_>>,
) -> Vec<(&'g GroupState, &'g str)> {
    let meant = |group: &GroupState| {
        let rules: Vec<PortalRule> =
            group.portals.iter().filter_map(|r| PortalRule::new(r)).collect();
        portal.is_none_or(|at| any_matches(&rules, at))
    };
    let member = |group: &'g GroupState| {
        let pattern = group.initiators.iter().find(|p| wire::pattern::matches(p, initiator))?;
        meant(group).then_some((group, pattern.as_str()))
    };
    groups.iter().filter_map(member).collect()
}

fn visible_luns(
    target: &TargetState,
    initiator: &str,
    portal: Option<LocalAddress<'_>>,
) -> Vec<VisibleLuns> {
    let seen = |(group, pattern): (&GroupState, &str)| {
        let mut why = format!("matches {pattern}");
        if !group.portals.is_empty() {
            why.push_str(&format!(", at {} only", group.portals.join(" ")));
        }
        VisibleLuns {
            target: target.name.clone(),
            group: Some(group.name.clone()),
            why,
            luns: group.luns.clone(),
            awaited: group.awaited.clone(),
        }
    };
    let all = groups_of(&target.groups, initiator, portal);
    if !all.is_empty() {
        return all.into_iter().map(seen).collect();
    }
    let elsewhere = groups_of(&target.groups, initiator, None);
    let why = match elsewhere.first() {
        Some((group, _)) => {
            format!("group {} matches at {} only", group.name, group.portals.join(" "))
        }
        None => "no group matches; the default is deny".to_owned(),
    };
    vec![VisibleLuns { target: target.name.clone(), why, ..VisibleLuns::default() }]
}

/// The LUNs that an initiator would see.
///
/// # Errors
/// [`Kind::Usage`]: the text of the portal is not one.
pub fn check(state: &SystemState, params: AccessCheckParams) -> Result<AccessCheckAnswer> {
    let portal = match &params.portal {
        None => None,
        Some(text) => Some(LocalAddress::parse(text).ok_or_else(|| {
            let why = "ADDRESS:PORT, unix:PATH or ether:INTERFACE is wanted";
            Error::new(Kind::Usage, "access check", why).at(text)
        })?),
    };
    let wanted =
        |name: &String| params.target.as_ref().is_none_or(|t| t.eq_ignore_ascii_case(name));
    let of_target = state.targets.iter().filter(|t| wanted(&t.name));
    let targets = of_target.flat_map(|t| visible_luns(t, &params.initiator, portal)).collect();
    Ok(AccessCheckAnswer { initiator: params.initiator, targets })
}

/// The mode of a LUN whose provider is not there.
pub(super) const MISSING_MODE: &str = "missing";

pub(super) fn mode(lun: &LunState) -> &'static str {
    if lun.read_only { "read only" } else { "read write" }
}

/// Columns of the table of `access check`.
pub const COLUMNS: [&str; 6] = ["target", "group", ">lun", "provider", "mode", "why"];

/// Rows of that table.
pub fn rows(answer: &AccessCheckAnswer) -> Vec<Vec<String>> {
    let mut rows = Vec::new();
    for seen in &answer.targets {
        let head = |lun: String, provider: String, mode: String| {
            let group = seen.group.clone().unwrap_or_else(|| "-".to_owned());
            vec![seen.target.clone(), group, lun, provider, mode, seen.why.clone()]
        };
        if seen.luns.is_empty() && seen.awaited.is_empty() {
            rows.push(head("-".into(), "-".into(), "nothing".into()));
        }
        let line = |l: &LunState| head(l.lun.to_string(), l.provider.clone(), mode(l).into());
        rows.extend(seen.luns.iter().map(line));
        let missing =
            |a: &PendingLunState| head(a.lun.to_string(), a.provider.clone(), MISSING_MODE.into());
        rows.extend(seen.awaited.iter().map(missing));
    }
    rows
}

impl Verb<Control> for AccessCheckParams {
    const NAME: &'static str = "access.check";
    const DOC: &'static str = "Show which LUNs an initiator would see, and why";
    const DETAIL: &'static str = "The initiator is given by its name in the transport: an iSCSI \
        name, or for NBD tls:NAME, unix:USER or ip:ADDRESS. With --portal the answer is for logins \
        at that portal.";
    const POSITIONAL: &'static [&'static str] = &["initiator"];
    const EXAMPLE: &'static str = "access check iqn.1998-01.com.vmware:esx1";
    const MORE_EXAMPLES: &'static [&'static str] =
        &["access check tls:backup --portal 192.0.2.1:10809"];
    type Answer = AccessCheckAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<AccessCheckAnswer> {
        check(&control.state()?, self)
    }
}

impl CommandVerb<Control> for AccessCheckParams {
    fn table(answer: &AccessCheckAnswer) -> String {
        let rows = rows(answer);
        if rows.is_empty() {
            return "no such target\n".to_owned();
        }
        text::table(&COLUMNS, &rows)
    }
}
