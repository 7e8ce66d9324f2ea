//! Geoms and disks of the configuration that change while they are used.

use classes::guard;
use fileserver::{FS_CLASS, FsClass};
use geom::Redeclare;
use mgmt::api::{Error, Kind, Result};
use mgmt::config::{DiskConfig, GeomConfig};
use serde_json::Value;

use super::ControlLoop;
use crate::errors::{find_persistent, from_geom, next_with_consent};
use crate::exports::Files;
use crate::mailbox::PriorSteps;

/// The providers below a geom.
fn provider_names(geom: &GeomConfig) -> Vec<String> {
    geom.provider_names().map(str::to_owned).collect()
}

/// Members that the second section names and the first does not.
fn added<'a>(from: &'a GeomConfig, to: &'a GeomConfig) -> impl Iterator<Item = &'a String> {
    to.members.iter().filter(|member| !from.members.contains(member))
}

impl ControlLoop {
    /// Gives a disk the serial number of its section. Its other names are those of the unit on it,
    /// which is opened with them.
    pub(super) fn identify_disk(&mut self, to: &DiskConfig) -> Result<()> {
        let serial = to.params.get("serial").and_then(Value::as_str);
        let done = self.control.call(|t| disks::set_serial(t, &to.name, serial));
        done.map_err(|e| from_geom("identify disk", &to.name, e))?;
        self.reattach.record_identity(&self.control.topology, &to.name);
        Ok(())
    }

    /// Geoms that verbs made are those of these sections: the next start makes them without consent
    /// where they show the same bytes.
    pub(super) fn adopt_geoms(&mut self, geoms: &[GeomConfig]) {
        for geom in geoms {
            if let Some(layout) = self.layout_of(geom) {
                self.layouts.record(&mut self.control, (&geom.class, &geom.name), layout);
            }
            let mut shown = self.published.lock();
            shown.config.geom.retain(|other| other.name != geom.name);
            shown.config.geom.push(geom.clone());
        }
        self.store_names();
    }

    /// Why the change would be refused. `prior`: what earlier steps of the plan do.
    pub(super) fn check_modify(
        &mut self,
        from: &GeomConfig,
        to: &GeomConfig,
        prior: &PriorSteps,
    ) -> Result<()> {
        let op = "change geom";
        // One that is made is queried only when it is found by its records, and stays until then.
        let is_there = self.is_found(to) && !prior.removes_geom(to);
        if from.provider_names().next().is_none() && !is_there {
            self.check_member_count(to)?;
            self.check_remake(to, prior)?;
            return self.check_members(to, prior);
        }
        let has = self.providers_of(&to.class, &to.name);
        for name in added(from, to) {
            if self.control.topology.find(name).is_some() || !prior.may_provide(name) {
                find_persistent(&self.control.topology, op, name)?;
            }
            // The members of one that was found are in its records only.
            if from.provider_names().next().is_some() && !has.contains(name) {
                self.check_member(to, name, prior)?;
            }
        }
        let (class, params) = (self.class(&to.class, op)?, Value::Object(to.params.clone()));
        let (was, is) = (provider_names(from), provider_names(to));
        let request = Redeclare { name: &to.name, from: &was, to: &is, params: &params };
        let refused = class.check_redeclare(&mut self.control, &request);
        refused.map_err(|e| from_geom(op, &to.name, e))
    }

    /// Why the class would refuse the number of members.
    fn check_member_count(&self, geom: &GeomConfig) -> Result<()> {
        let op = "create geom";
        let (least, most) = self.class(&geom.class, op)?.member_limits();
        let count = geom.provider_names().count();
        if (least..=most).contains(&count) {
            return Ok(());
        }
        let takes = match (least, most) {
            (1, 1) => "exactly one provider".to_owned(),
            (_, usize::MAX) => format!("at least {least} members"),
            _ => format!("{least} to {most} members"),
        };
        let why = format!("a {} takes {takes}, and its section names {count}", geom.class);
        let next = format!("Correct `members` of geom {}.", geom.name);
        Err(Error::new(Kind::Usage, op, why).at(&geom.name).next(next))
    }

    /// Why a file server that is removed and made anew would not open.
    fn check_remake(&mut self, to: &GeomConfig, prior: &PriorSteps) -> Result<()> {
        let members = provider_names(to);
        let Some(cache) = members.first().filter(|_| to.class == FS_CLASS) else { return Ok(()) };
        let is_image = to.params.get("image") == Some(&Value::Bool(true));
        // A cache device that an earlier step makes is another one.
        if is_image || prior.may_provide(cache) {
            return Ok(());
        }
        let checked = FsClass::check_remake(&mut self.control.topology, &to.name, &members);
        checked.map_err(|e| from_geom("change geom", &to.name, e))
    }

    /// Whether a geom that the configuration declares is there, by its records.
    fn is_found(&self, geom: &GeomConfig) -> bool {
        let topology = &self.control.topology;
        let keeps = topology.class(&geom.class).is_some_and(|class| class.keeps_records());
        keeps && topology.find_geom(&geom.class, &geom.name).is_some()
    }

    /// The data that added members would lose.
    pub(super) fn added_data_lost(&mut self, from: &GeomConfig, to: &GeomConfig) -> Option<String> {
        let view = self.control.topology.class_view(&to.class, 0);
        let geom = view.into_iter().find(|g| g.name == to.name);
        let below = geom.into_iter().flat_map(|g| g.consumers);
        let has: Vec<String> = below.filter_map(|consumer| consumer.provider).collect();
        let members = added(from, to).filter(|name| !has.contains(name)).cloned().collect();
        let by = guard::Requester { class: &to.class, geom: &to.name, force: false };
        let held = self.data_held(&GeomConfig { members, provider: None, ..to.clone() }, by)?;
        Some(format!("{held}: it is overwritten"))
    }

    /// Members and settings change; those who use the geom notice nothing.
    pub(super) fn modify_geom(&mut self, from: &GeomConfig, to: &GeomConfig) -> Result<()> {
        let op = "change geom";
        for name in added(from, to) {
            self.provider(name, op)?;
        }
        let (class, params) = (self.class(&to.class, op)?, Value::Object(to.params.clone()));
        let consent = self.consent.clone();
        let (was, is) = (provider_names(from), provider_names(to));
        let request = Redeclare { name: &to.name, from: &was, to: &is, params: &params };
        let files = Files::of_fs(to);
        let done = class.redeclare(&mut self.control, &request, &consent);
        if done.is_ok() {
            self.keep_files(to, files);
            self.keep_members(to);
            if let Some(layout) = self.layout_of(to) {
                self.layouts.record(&mut self.control, (&to.class, &to.name), layout);
            }
        }
        if done.is_err() {
            // Some of the new members may be in use by now.
            self.keep_more_members(&to.class, &to.name);
        }
        done.map_err(|e| {
            let error = from_geom(op, &to.name, e);
            match error.kind {
                // A plan requests consent by the name of the object that it changes.
                Kind::WouldDestroy => error.next(next_with_consent(&to.name)),
                _ => error,
            }
        })
    }
}
