//! Journal facts of a mirror, and its problems for `status`.

use geom::{ConsumerId, GeomId, Severity, Topology, Trouble};

use super::MirrorGeom;
use crate::members::{ComponentState, verb_util};
use crate::mirror::NAME;
use crate::mirror::state::{Member, Role};

impl MirrorGeom {
    fn name_of(&self, t: &Topology, consumer: ConsumerId) -> String {
        t.below(consumer).map_or("a member".to_owned(), |p| t.provider_name(p).to_owned())
    }

    fn named<'a>(&'a self, t: &'a Topology) -> impl Iterator<Item = (usize, String, &'a Member)> {
        let of = |(slot, c): (&usize, &ConsumerId)| {
            Some((*slot, self.name_of(t, *c), self.mirror.member(*slot)?))
        };
        self.consumers.iter().filter_map(of)
    }

    fn component_states(&self, t: &Topology) -> Vec<ComponentState> {
        let m = &self.mirror;
        let active = m.in_role(Role::Active).len();
        let severity = |good: bool| if good { Severity::Good } else { Severity::Degraded };
        let mut facts = vec![ComponentState {
            subject: format!("{NAME}/{}", m.name),
            severity: severity(active == usize::from(m.all)),
            state: format!("{} ({active} of {} members)", m.state(), m.all),
        }];
        facts.extend(self.named(t).map(|(_, about, member)| ComponentState {
            subject: about,
            severity: severity(member.role == Role::Active),
            state: member.role.as_str().to_owned(),
        }));
        facts
    }

    /// Writes changes to the journal.
    pub(super) fn report(&mut self, t: &mut Topology, me: GeomId) {
        if self.mirror.running && !self.over {
            let facts = self.component_states(t);
            self.event_log.report(t, me, &facts);
        }
    }

    /// The last member that has everything failed a request, and stays all the same.
    pub(super) fn report_kept_member(&self, t: &mut Topology, me: GeomId, slot: usize) {
        let Some(consumer) = self.consumers.get(&slot) else { return };
        let name = self.name_of(t, *consumer);
        let why = format!("{name} failed a request, but stays: no other member is complete");
        t.remark(me, Severity::Failed, &why);
    }

    pub(super) fn health_findings(&self, t: &Topology) -> Vec<Trouble> {
        let m = &self.mirror;
        if let Some(trouble) = self.split_brain(t) {
            return vec![trouble];
        }
        if let Some(fault) = &self.fault {
            let action = format!(
                "Reconnect missing members, if any; `ashlar {NAME} list {}` shows refused ones, \
                 and why.",
                m.name
            );
            return vec![Trouble::failed(format!("the mirror does not start: {fault}"), action)];
        }
        if !m.running {
            let (present, all) = (self.consumers.len(), m.all);
            let refused = self.refused.words();
            let why = format!("waiting for members: {present} of {all} are present{refused}");
            return vec![Trouble::degraded(
                why,
                "Nothing: the mirror starts soon with the members \
                                                present.",
            )];
        }
        let mut out = Vec::new();
        for (slot, name, member) in self.named(t) {
            match member.role {
                Role::Synchronizing => {
                    let done = self.copied(slot, member);
                    let throttle = &self.shared.throttle;
                    let paused = if throttle.is_paused() { ", paused" } else { "" };
                    let why = format!("{name} is being rebuilt, {}{paused}", done.1);
                    let action = verb_util::rebuild_action(NAME, &m.name, throttle);
                    out.push(Trouble::degraded(why, action));
                }
                Role::Stale => {
                    let why = format!("{name} is out of date, and is not rebuilt automatically");
                    let action = format!("`ashlar {NAME} rebuild {} {name}`", m.name);
                    out.push(Trouble::degraded(why, action));
                }
                Role::Arrived | Role::Active => {}
            }
        }
        out.extend(self.missing());
        let report = self.shared.verified();
        if !report.running && report.differ > report.repaired {
            let why = format!("the members differ in {} sectors", report.differ - report.repaired);
            let name = &m.name;
            let active = self.named(t).filter(|(_, _, member)| member.role == Role::Active);
            let repair = active.map(|(_, member, _)| {
                format!("`ashlar {NAME} verify {name} --repair --member {member}`")
            });
            let action = format!(
                "`ashlar {NAME} list {name}` shows where. Choose the member with the right \
                 contents, which are written over the others: {}.",
                repair.collect::<Vec<_>>().join(" or ")
            );
            out.push(Trouble::degraded(why, action));
        }
        out
    }

    /// M12: two of them were each used without the other, and the operator has to choose.
    fn split_brain(&self, t: &Topology) -> Option<Trouble> {
        if self.mirror.running || !self.mirror.is_split() {
            return None;
        }
        let line = |(_, name, m): (usize, String, &Member)| {
            let r = &m.record;
            format!(
                "{name} (genid {}, syncid {}, {})",
                r.genid,
                r.syncid,
                verb_util::last_written(r.lineage.written_s)
            )
        };
        let all: Vec<String> = self.named(t).map(line).collect();
        let why = format!(
            "split brain: members were each used without the other, and each has writes that the \
             other lacks: {}",
            all.join("; ")
        );
        let action = format!(
            "Choose: `ashlar {NAME} start {} --keep MEMBER` keeps what MEMBER has and overwrites \
             the other. To look at one first, detach the other and start without it.",
            self.mirror.name
        );
        Some(Trouble::failed(why, action))
    }

    /// Members that are not there.
    fn missing(&self) -> Option<Trouble> {
        let (m, name) = (&self.mirror, &self.mirror.name);
        let lacks = usize::from(m.all).checked_sub(self.consumers.len()).filter(|n| *n > 0)?;
        let mut why = format!("{lacks} of {} members missing", m.all);
        why += &self.refused.words();
        let action = format!(
            "Reconnect the member; or `ashlar {NAME} forget {name}`, then `ashlar {NAME} insert \
             {name} DISK` replaces it."
        );
        Some(Trouble::degraded(why, action))
    }
}
