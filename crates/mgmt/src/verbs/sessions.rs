//! sessions: the connected initiators.

use super::entry::CommandVerb;
use crate::api::{Denied, Result, SessionState};
use crate::config::units::{short, short_ns};
use crate::service::Control;
use crate::text;
use geom::{At, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Parameters of `sessions`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct SessionsParams {
    /// Show only sessions of this target [default: all targets]
    pub target: Option<String>,
    /// Show only sessions of this access group [default: all groups]
    pub group: Option<String>,
    /// Also show recently refused logins.
    pub denied: bool,
}

/// A session and its target.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct TargetSession {
    /// The target.
    pub target: String,
    /// Age of the session in nanoseconds.
    pub age_ns: u64,
    /// The session.
    pub session: SessionState,
}

/// Answer of `sessions`.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
pub struct SessionsAnswer {
    /// Live sessions.
    pub sessions: Vec<TargetSession>,
    /// Recently refused logins, newest last.
    pub denied: Vec<Denied>,
    /// Whether refused logins were requested.
    pub show_denied: bool,
}

/// The window, and the share of a unit that has a limit.
fn window(s: &SessionState) -> String {
    match s.share {
        Some(share) => format!("{} ({share})", s.window),
        None => s.window.to_string(),
    }
}

fn row(live: &TargetSession) -> Vec<String> {
    let s = &live.session;
    let digests = match (s.digests.header, s.digests.data) {
        (false, false) => "-",
        (true, false) => "header",
        (false, true) => "data",
        (true, true) => "header+data",
    };
    let mut luns: Vec<String> = s.luns.iter().map(u64::to_string).collect();
    if s.luns_total > s.luns.len() as u64 {
        luns.push(format!("... ({})", s.luns_total));
    }
    let luns = match &s.unit {
        Some(unit) => format!("{} ({unit})", luns.join(",")),
        None => luns.join(","),
    };
    vec![
        s.initiator.clone(),
        s.address.clone(),
        live.target.clone(),
        text::or_dash(s.group.as_deref().unwrap_or("")),
        text::or_dash(&luns),
        text::or_dash(&s.auth),
        digests.to_owned(),
        text::or_dash(&s.portal),
        s.commands_outstanding.saturating_sub(s.waiting).to_string(),
        s.waiting.to_string(),
        window(s),
        if s.commands_outstanding == 0 { "-".into() } else { short_ns(s.oldest_command_ns) },
        short(s.stats.read.bytes),
        short(s.stats.write.bytes),
        short_ns(live.age_ns),
        s.id.to_string(),
    ]
}

/// Why a login was refused, and the section of `ashlar.toml` that would let it in.
fn denial_reason(denied: &Denied) -> (&str, Option<&str>) {
    match denied.why.split_once('\n') {
        Some((why, section)) => (why, Some(section)),
        None => (&denied.why, None),
    }
}

impl Verb<Control> for SessionsParams {
    const NAME: &'static str = "sessions";
    const DOC: &'static str = "List sessions of initiators and clients";
    const DETAIL: &'static str = "With --denied, also lists recently refused logins and the values \
        that were expected instead. The last column is the ID of a session, which `ashlar sessions \
        end ID` ends.";
    const EXAMPLE: &'static str = "sessions";
    const MORE_EXAMPLES: &'static [&'static str] = &["sessions --denied"];
    type Answer = SessionsAnswer;

    fn run(self, (control, _): At<'_, Control>) -> Result<SessionsAnswer> {
        let state = control.state()?;
        let now = state.daemon.uptime_ns;
        let wanted = |name: &str| self.target.as_ref().is_none_or(|t| t == name);
        let in_group = |s: &SessionState| self.group.is_none() || s.group == self.group;
        let shown = state.sessions().filter(|(t, s)| wanted(&t.name) && in_group(s));
        let sessions = shown.map(|(target, s)| TargetSession {
            target: target.name.clone(),
            age_ns: now.saturating_sub(s.since_ns),
            session: s.clone(),
        });
        // A refused login belongs to no group.
        let denied = state.denied.iter();
        let denied = denied.filter(|d| self.group.is_none() && wanted(&d.target));
        Ok(SessionsAnswer {
            sessions: sessions.collect(),
            denied: denied.cloned().collect(),
            show_denied: self.denied,
        })
    }
}

impl CommandVerb<Control> for SessionsParams {
    fn table(answer: &SessionsAnswer) -> String {
        let columns = [
            "initiator",
            "address",
            "target",
            "group",
            "luns",
            "auth",
            "digests",
            "portal",
            ">in flight",
            ">waiting",
            ">window",
            ">oldest",
            ">read",
            ">written",
            ">age",
            ">id",
        ];
        let rows: Vec<_> = answer.sessions.iter().map(row).collect();
        let mut out =
            if rows.is_empty() { "no sessions\n".to_owned() } else { text::table(&columns, &rows) };
        for s in answer.sessions.iter().map(|l| &l.session) {
            if let Some(why) = &s.held_back {
                out.push_str(&format!("{} ({}): {why}\n", s.initiator, s.address));
            }
        }
        if answer.show_denied {
            let row = |d: &Denied| {
                vec![
                    d.initiator.clone(),
                    d.address.clone(),
                    text::or_dash(&d.target),
                    d.times.to_string(),
                    text::or_dash(denial_reason(d).0),
                    text::or_dash(&d.expected),
                ]
            };
            let rows: Vec<_> = answer.denied.iter().map(row).collect();
            out.push('\n');
            let columns = ["refused", "address", "target", ">times", "why", "expected"];
            out.push_str(&text::table(&columns, &rows));
            for section in answer.denied.iter().filter_map(|d| denial_reason(d).1) {
                out.push_str("\nTo give the initiator access, add to ashlar.toml:\n");
                section
                    .lines()
                    .for_each(|line| out.push_str(&format!("  {}\n", text::escape_line(line))));
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::{SystemState, TargetState};
    use crate::config::read;
    use crate::fake::{FakePlant, catalog, control};
    use std::sync::Arc;
    use testkit::Folder;

    #[test]
    fn sessions_of_a_group_show_their_portal_and_no_refused_logins() {
        let session = |group: &str, portal: &str| SessionState {
            initiator: format!("iqn.h:{group}"),
            portal: portal.to_owned(),
            group: Some(group.to_owned()),
            ..SessionState::default()
        };
        let target = TargetState {
            name: "iqn.a:t".to_owned(),
            sessions: vec![session("g", "10.0.0.9:3260"), session("h", "10.0.0.8:3260")],
            ..TargetState::default()
        };
        let denied = vec![Denied::default()];
        let plant = Arc::new(FakePlant::new());
        plant.set_extra(SystemState { targets: vec![target], denied, ..SystemState::default() });
        let folder = Folder::new("group");
        let control = control(&plant, &folder);
        // The plant has sessions of configured targets only.
        let text = "[[target]]\ndriver='iscsi'\nname='iqn.a:t'\nlisten=['127.0.0.1:0']\n";
        let config = read(text, "a.toml", &catalog()).expect("well-formed");
        control.start(&config).expect("started");
        let group = Some("g".to_owned());
        let params = SessionsParams { group, denied: true, ..SessionsParams::default() };
        let answer = Verb::<Control>::run(params, (&control, &mut |_| {})).expect("an answer");
        assert!(answer.sessions.len() == 1 && answer.denied.is_empty());
        let table = SessionsParams::table(&answer);
        assert!(table.contains("10.0.0.9:3260") && !table.contains("10.0.0.8:3260"), "{table}");
    }
}
