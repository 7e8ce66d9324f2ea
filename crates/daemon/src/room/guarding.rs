//! What providers hold is asked before something is written over it: for verbs of classes, and for
//! plans.

use std::sync::Arc;

use bio::Errno;
use classes::guard;
use control::config::GeomConfig;
use geom::Class;
use serde_json::Value;

use super::Room;
use crate::wholes::{Member, Whole};

impl Room {
    /// What the members of a geom hold and would lose if it were made now.
    pub(super) fn loses(&mut self, geom: &GeomConfig) -> Option<String> {
        if let Some(why) = self.scrambles(geom) {
            return Some(why);
        }
        let class = self.control.topology.class(&geom.class)?;
        if !class.keeps_records()
            || self.control.topology.find_geom(&geom.class, &geom.name).is_some()
        {
            return None;
        }
        let by = guard::By { class: &geom.class, geom: &geom.name, force: false };
        let held = self.held(geom, by)?;
        Some(format!("{held}: it is overwritten"))
    }

    /// What the members of a geom hold, in words.
    fn held(&mut self, geom: &GeomConfig, by: guard::By<'_>) -> Option<String> {
        let mut held = Vec::new();
        for name in geom.below() {
            if self.control.topology.find(name).is_some()
                && let Ok(Some(what)) = guard::holds(&mut self.control, by, name)
            {
                held.push(format!("{name} holds {what}"));
            }
        }
        (!held.is_empty()).then(|| held.join("; "))
    }

    /// How a geom of the configuration is put together, if nothing but that says so.
    pub(super) fn whole(&self, geom: &GeomConfig) -> Option<Whole> {
        let topology = &self.control.topology;
        let size = |name| topology.find(name).and_then(|p| topology.limits(p));
        let bytes: Vec<u64> =
            geom.below().map(|name| size(name).map_or(0, |limits| limits.media_bytes)).collect();
        let class = topology.class(&geom.class)?;
        let layout = class.layout(&Value::Object(geom.params.clone()), &bytes)?;
        let members = geom.below().map(|name| Member::of(topology, name)).collect();
        Some(Whole { layout, members })
    }

    /// Why a geom would show other bytes than it did, or nothing says how what is on its members
    /// belongs together (W1 of `wholes`).
    pub(super) fn scrambles(&mut self, geom: &GeomConfig) -> Option<String> {
        let whole = self.whole(geom)?;
        // Members that a step ahead of it makes are looked at when it is carried out.
        if geom.below().any(|name| self.control.topology.find(name).is_none()) {
            return None;
        }
        if self.wholes.knows(&geom.class, &geom.name) {
            return self.wholes.differs(&geom.class, &geom.name, &whole);
        }
        let inherits = self.wholes.inherits() && self.exports.is_starting();
        if whole.members.len() < 2 || inherits {
            return None;
        }
        let by = guard::By { class: &geom.class, geom: &geom.name, force: false };
        let held = self.held(geom, by)?;
        Some(format!("{held}, and nothing says how they were put together"))
    }

    /// Calls the class, if what the verb would write over may be lost.
    pub(super) fn guarded(
        &mut self,
        class: &Arc<dyn Class>,
        verb: &str,
        on: &str,
        params: &Value,
    ) -> std::result::Result<Value, geom::Error> {
        let spec = class.verbs().iter().find(|spec| spec.name == verb);
        let takes = spec.map(|spec| spec.takes(params)).unwrap_or_default();
        if takes.is_empty() {
            return class.verb(&mut self.control, verb, on, params);
        }
        let mut params = params.clone();
        let given = params.as_object_mut().and_then(|all| all.remove("yes_destroy"));
        let given = given.map(serde_json::from_value).transpose();
        let consent: Vec<String> = given
            .map_err(|e| geom::Error::new(Errno::Inval, format!("yes_destroy: {e}")))?
            .unwrap_or_default();
        let force = params.get("force") == Some(&Value::Bool(true));
        let by = guard::By { class: class.name(), geom: on, force };
        guard::check(&mut self.control, by, &takes, &consent)?;
        if let Some(all) = params.as_object_mut().filter(|_| !consent.is_empty()) {
            // The class is not to ask again.
            all.insert("force".into(), true.into());
        }
        class.verb(&mut self.control, verb, on, &params)
    }
}
