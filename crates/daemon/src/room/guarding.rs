//! What providers hold is asked before something is written over it: for verbs of classes, and for
//! plans.

use std::sync::Arc;

use bio::Errno;
use classes::guard;
use control::config::GeomConfig;
use geom::Class;
use serde_json::Value;

use super::Room;

impl Room {
    /// What the members of a geom hold and would lose if it were made now.
    pub(super) fn loses(&mut self, geom: &GeomConfig) -> Option<String> {
        let class = self.control.topology.class(&geom.class)?;
        if !class.keeps_records()
            || self.control.topology.find_geom(&geom.class, &geom.name).is_some()
        {
            return None;
        }
        let by = guard::By { class: &geom.class, geom: &geom.name, force: false };
        let mut lost = Vec::new();
        for name in geom.below() {
            if self.control.topology.find(name).is_some()
                && let Ok(Some(what)) = guard::holds(&mut self.control, by, name)
            {
                lost.push(format!("{name} holds {what}"));
            }
        }
        (!lost.is_empty()).then(|| format!("{}: it is overwritten", lost.join("; ")))
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
