//! Journal state of a geom: each change is written to the journal once.

use std::collections::BTreeMap;

use geom::{GeomId, Severity, Topology};

/// How a part of a geom is: the whole, a volume, a member.
pub(crate) struct ComponentState {
    /// The subject: the name that users know.
    pub(crate) subject: String,
    pub(crate) severity: Severity,
    /// Its state, as lists have it.
    pub(crate) state: String,
}

/// The last words written, by their subject.
#[derive(Default)]
pub(crate) struct EventLog(BTreeMap<String, String>);

impl EventLog {
    /// Whether anything was written.
    pub(crate) fn has_begun(&self) -> bool {
        !self.0.is_empty()
    }

    /// Writes the new ones of `facts` to the journal. The first fact is about the whole geom. Of
    /// the facts that are first reported together with it, only those that are not good get a line.
    pub(crate) fn report(&mut self, t: &mut Topology, geom: GeomId, facts: &[ComponentState]) {
        let first = self.0.is_empty();
        for (at, fact) in facts.iter().enumerate() {
            let ComponentState { subject: about, severity, state: words } = fact;
            match self.0.insert(about.clone(), words.clone()) {
                Some(was) if was == *words => {}
                Some(was) => t.remark(geom, *severity, &format!("{about}: {words}, was {was}")),
                None if first && at > 0 && *severity == Severity::Good => {}
                None => t.remark(geom, *severity, &format!("{about}: {words}")),
            }
        }
        let gone: Vec<String> =
            self.0.keys().filter(|k| facts.iter().all(|f| f.subject != **k)).cloned().collect();
        for about in gone {
            let was = self.0.remove(&about).unwrap_or_default();
            t.remark(geom, Severity::Degraded, &format!("{about} is gone, was {was}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bio::sync::Mutex;

    use super::*;
    use crate::members::PlaceholderGeom;

    #[test]
    fn each_change_is_reported_once() {
        let mut t = Topology::new(1);
        let log_lines = Arc::new(Mutex::new(Vec::new()));
        let log = log_lines.clone();
        t.set_listener(Box::new(move |r| {
            let line = format!("{} {} {:?} {}", r.class, r.name, r.severity, r.text);
            log.lock().push(line);
        }));
        t.load(geom::filter_class::<crate::nop::Nop>()).expect("a class");
        let geom = t.new_geom("nop", "m", "test", Box::new(PlaceholderGeom)).expect("a geom");
        let fact = |about: &str, severity, words: &str| ComponentState {
            subject: about.into(),
            severity,
            state: words.into(),
        };
        let mut event_log = EventLog::default();
        let complete = || fact("mirror/m", Severity::Good, "COMPLETE");
        event_log.report(&mut t, geom, &[complete(), fact("d0", Severity::Good, "ACTIVE")]);
        event_log.report(&mut t, geom, &[complete(), fact("d0", Severity::Good, "ACTIVE")]);
        event_log.report(&mut t, geom, &[fact("mirror/m", Severity::Degraded, "DEGRADED")]);
        let lines = log_lines.lock().clone();
        assert_eq!(
            lines,
            [
                "nop m Good mirror/m: COMPLETE",
                "nop m Degraded mirror/m: DEGRADED, was COMPLETE",
                "nop m Degraded d0 is gone, was ACTIVE",
            ]
        );
    }
}
