//! Changes that the operator made by hand and that survive a restart. They are states of port
//! groups (`alua set`), media (`tray load`, `tray eject`), and the former names of renamed disks.
//! The configuration gives the initial state; these changes apply after it. All of them are one
//! record of the state folder.
//!
//! Invariants
//!  H1  A change of the operator is saved before it takes effect, and takes effect before it is
//!      acknowledged. A refused change leaves the record as it was.
//!  H2  The change of a port group holds while the configuration gives the same state as at that
//!      time. A state that is changed there is newer.
//!  H3  A record that cannot be read counts as none, and the journal reports it.

use std::collections::BTreeMap;
use std::sync::Arc;

use engine::registry::Former;
use engine::state_store::{self, StateStore, save_channel};
use mgmt::api::{Error, Kind, Result};
use mgmt::config::AluaState;
use serde_json::{Map, Value, json};

use crate::state_store::{ReportFn, document, read};

/// The record's place in the state store: it belongs to no unit.
const SERIAL: &str = "operator";

/// Form of the record.
const LAYOUT: u64 = 1;

/// A state that was set by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct AluaOverride {
    /// The state in the configuration at that time.
    configured: AluaState,
    state: AluaState,
}

/// The state of a unit's tray.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tray {
    /// The provider that is in it; None: the unit's own.
    pub provider: Option<String>,
    /// The medium is out.
    pub is_out: bool,
}

/// The record; empty: as in the configuration.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct OverrideRecord {
    groups: BTreeMap<String, AluaOverride>,
    trays: BTreeMap<String, Tray>,
    names: BTreeMap<String, Former>,
}

/// See the module.
pub struct Overrides {
    store: Arc<dyn StateStore>,
    report: Arc<ReportFn>,
    kept: OverrideRecord,
}

impl Overrides {
    /// Loads the record (H3). The callback receives messages for people.
    pub fn load(store: Arc<dyn StateStore>, tell: Arc<ReportFn>) -> Overrides {
        let kept = read(&*store, SERIAL, state_store::RecordKind::Overrides, decode)
            .unwrap_or_else(|why| {
                let text = format!(
                    "settings made by hand (`alua set`, `tray`): cannot be read; the configuration \
                     applies: {why}"
                );
                tell("daemon", text);
                OverrideRecord::default()
            });
        Overrides { store, report: tell, kept }
    }

    /// Something for the journal.
    pub fn report(&self, about: &str, text: String) {
        (self.report)(about, text);
    }

    /// The state that a port group shall have where the configuration gives it `configured` (H2).
    pub fn state(&self, group: &str, configured: AluaState) -> AluaState {
        let word = self.kept.groups.get(group).filter(|w| w.configured == configured);
        word.map_or(configured, |w| w.state)
    }

    /// The operator sets a state: saves it, then lets `act` make it so (H1).
    pub fn set_state(
        &mut self,
        group: &str,
        (configured, state): (AluaState, AluaState),
        act: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut next = self.kept.clone();
        match configured == state {
            true => next.groups.remove(group),
            false => next.groups.insert(group.to_owned(), AluaOverride { configured, state }),
        };
        self.change("alua set", group, next, act)
    }

    /// The configuration has these groups now: changes of other groups, or made under another
    /// configured state, are forgotten (H2).
    pub fn configured(&mut self, groups: &BTreeMap<&str, AluaState>) -> Result<()> {
        let mut next = self.kept.clone();
        next.groups.retain(|name, word| groups.get(name.as_str()) == Some(&word.configured));
        self.change("set port groups", "alua", next, || Ok(()))
    }

    /// The state of a unit's tray.
    pub fn tray(&self, unit: &str) -> Tray {
        self.kept.trays.get(unit).cloned().unwrap_or_default()
    }

    /// A hand at the tray: saves what becomes of it, then lets `act` make it so (H1).
    pub fn set_tray(
        &mut self,
        unit: &str,
        tray: Tray,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        let mut next = self.kept.clone();
        match tray == Tray::default() {
            true => next.trays.remove(unit),
            false => next.trays.insert(unit.to_owned(), tray),
        };
        self.change("tray", unit, next, act)
    }

    /// Former names of units.
    pub fn names(&self) -> &BTreeMap<String, Former> {
        &self.kept.names
    }

    /// Removes former names that are no longer served; true when there were some. A failure to
    /// save is reported.
    pub fn forget_names(&mut self, which: impl Fn(&str, &Former) -> bool) -> bool {
        let mut next = self.kept.clone();
        next.names.retain(|name, unit| !which(name, unit));
        let some = next != self.kept;
        if let Err(e) = self.change("forget name", "export", next.clone(), || Ok(())) {
            (self.report)("daemon", e.to_string());
            // After a restart it is forgotten again.
            self.kept = next;
        }
        some
    }

    /// Providers have other names: trays and former names follow, and `left` names are kept as
    /// former ones. A failure to save is reported.
    pub fn rename(&mut self, names: &[(String, String)], left: Vec<(String, Former)>) {
        let called = |name: String| match names.iter().find(|(from, _)| *from == name) {
            Some((_, to)) => to.clone(),
            None => name,
        };
        let mut next = self.kept.clone();
        let trays = std::mem::take(&mut next.trays).into_iter();
        let tray = |tray: Tray| Tray { provider: tray.provider.map(called), ..tray };
        next.trays = trays.map(|(unit, is)| (called(unit), tray(is))).collect();
        for unit in next.names.values_mut() {
            unit.provider = called(std::mem::take(&mut unit.provider));
        }
        next.names.extend(left);
        next.names.retain(|name, _| names.iter().all(|(_, to)| to != name));
        if let Err(e) = self.change("rename disk", "tray", next, || Ok(())) {
            (self.report)("daemon", e.to_string());
        }
    }

    /// H1.
    fn change(
        &mut self,
        op: &str,
        at: &str,
        next: OverrideRecord,
        act: impl FnOnce() -> Result<()>,
    ) -> Result<()> {
        if next == self.kept {
            return act();
        }
        self.save(&next).map_err(|e| {
            let why = format!("state not saved ({e}); nothing was changed");
            let next = "Repair the state folder: `state` in [daemon] names it.";
            Error::new(Kind::System, op, why).at(at).next(next)
        })?;
        let done = act();
        match &done {
            Ok(()) => self.kept = next,
            Err(_) => {
                if let Err(e) = self.save(&self.kept) {
                    let text = format!("{at}: refused, but kept for the next start: {e}");
                    self.report("daemon", text);
                }
            }
        }
        done
    }

    fn save(&self, kept: &OverrideRecord) -> std::result::Result<(), bio::Errno> {
        if !self.store.is_persistent() {
            return Ok(());
        }
        let (done, saved) = save_channel();
        self.store.save(SERIAL, state_store::RecordKind::Overrides, encode(kept), done);
        saved.wait()
    }
}

fn encode(kept: &OverrideRecord) -> Vec<u8> {
    let word = |(name, w): (&String, &AluaOverride)| {
        (name.clone(), json!({ "configured": w.configured, "state": w.state }))
    };
    let tray = |(name, t): (&String, &Tray)| {
        (name.clone(), json!({ "provider": t.provider, "out": t.is_out }))
    };
    let groups: Map<String, Value> = kept.groups.iter().map(word).collect();
    let trays: Map<String, Value> = kept.trays.iter().map(tray).collect();
    let former = |(name, f): (&String, &Former)| {
        (name.clone(), json!({ "serial": f.serial, "provider": f.provider }))
    };
    let names: Map<String, Value> = kept.names.iter().map(former).collect();
    let all = json!({ "layout": LAYOUT, "groups": groups, "trays": trays, "names": names });
    all.to_string().into_bytes()
}

fn decode(bytes: &[u8]) -> Option<OverrideRecord> {
    let all = document(bytes, LAYOUT)?;
    let mut kept = OverrideRecord::default();
    for (name, word) in all.get("groups")?.as_object()? {
        let state = |key| serde_json::from_value(word.get(key)?.clone()).ok();
        let word = AluaOverride { configured: state("configured")?, state: state("state")? };
        kept.groups.insert(name.clone(), word);
    }
    for (name, tray) in all.get("trays")?.as_object()? {
        let provider = match tray.get("provider")? {
            Value::Null => None,
            other => Some(other.as_str()?.to_owned()),
        };
        let tray = Tray { provider, is_out: tray.get("out")?.as_bool()? };
        kept.trays.insert(name.clone(), tray);
    }
    // Earlier versions kept none.
    for (name, unit) in all.get("names").and_then(Value::as_object).into_iter().flatten() {
        let text = |key| unit.get(key)?.as_str().map(str::to_owned);
        let former = Former { serial: text("serial")?, provider: text("provider")? };
        kept.names.insert(name.clone(), former);
    }
    Some(kept)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bio::Errno;
    use engine::state_store::MemoryStore;

    const SET: (AluaState, AluaState) = (AluaState::Optimized, AluaState::Standby);

    fn quiet() -> Arc<ReportFn> {
        Arc::new(|_: &str, _: String| {})
    }

    fn refused() -> Result<()> {
        Err(Error::new(Kind::Busy, "test", "busy"))
    }

    #[test]
    fn h1_applied_override_is_stored_and_a_refused_one_is_not() {
        let store = MemoryStore::new();
        let mut hand = Overrides::load(store.clone(), quiet());
        hand.set_state("a", SET, || Ok(())).unwrap();
        hand.set_state("b", SET, refused).unwrap_err();
        let tray = Tray { provider: Some("disc2".into()), is_out: true };
        hand.set_tray("cd0", tray.clone(), || Ok(())).unwrap();
        hand.set_tray("cd1", tray.clone(), refused).unwrap_err();
        let again = Overrides::load(store.clone(), quiet());
        assert_eq!(again.kept, hand.kept);
        assert_eq!(again.state("a", AluaState::Optimized), AluaState::Standby);
        assert_eq!(again.state("b", AluaState::Optimized), AluaState::Optimized);
        assert_eq!((again.tray("cd0"), again.tray("cd1")), (tray, Tray::default()));
        // A change that cannot be saved does not take effect.
        store.fail(Some(Errno::NoSpc));
        let mut acted = false;
        let act = || {
            acted = true;
            Ok(())
        };
        assert!(hand.set_state("c", SET, act).unwrap_err().source.contains("nothing was changed"));
        assert!(!acted && hand.kept == again.kept);
        // As in the configuration: nothing to keep, nothing to save.
        store.fail(None);
        hand.set_state("a", (AluaState::Standby, AluaState::Standby), || Ok(())).unwrap();
        hand.set_tray("cd0", Tray::default(), || Ok(())).unwrap();
        assert_eq!(Overrides::load(store, quiet()).kept, OverrideRecord::default());
    }

    #[test]
    fn h2_later_configuration_replaces_an_override() {
        let store = MemoryStore::new();
        let mut hand = Overrides::load(store.clone(), quiet());
        hand.set_state("a", SET, || Ok(())).unwrap();
        hand.set_state("gone", SET, || Ok(())).unwrap();
        assert_eq!(hand.state("a", AluaState::Offline), AluaState::Offline);
        hand.configured(&BTreeMap::from([("a", AluaState::Optimized)])).unwrap();
        assert_eq!(hand.state("a", AluaState::Optimized), AluaState::Standby);
        assert_eq!(hand.state("gone", AluaState::Optimized), AluaState::Optimized);
        hand.configured(&BTreeMap::from([("a", AluaState::Offline)])).unwrap();
        assert_eq!(hand.state("a", AluaState::Optimized), AluaState::Optimized);
        assert_eq!(Overrides::load(store, quiet()).kept, OverrideRecord::default());
    }

    #[test]
    fn former_names_follow_renames_and_are_dropped_when_reused() {
        let store = MemoryStore::new();
        let mut hand = Overrides::load(store.clone(), quiet());
        let pair = |from: &str, to: &str| [(from.to_owned(), to.to_owned())];
        let unit = |provider: &str| Former { serial: "S".into(), provider: provider.into() };
        hand.rename(&pair("d0", "x"), vec![("d0".into(), unit("x"))]);
        hand.rename(&pair("x", "y"), vec![("x".into(), unit("y"))]);
        let both = BTreeMap::from([("d0".to_owned(), unit("y")), ("x".to_owned(), unit("y"))]);
        assert_eq!(Overrides::load(store.clone(), quiet()).names(), &both);
        hand.rename(&pair("y", "d0"), vec![("y".into(), unit("d0"))]);
        let left: Vec<&String> = hand.names().keys().collect();
        assert_eq!(left, ["x", "y"], "d0 is its name again");
        assert!(hand.forget_names(|name, _| name == "x"));
        assert!(!hand.forget_names(|name, _| name == "x"));
        let again = Overrides::load(store, quiet());
        assert_eq!(again.names(), &BTreeMap::from([("y".to_owned(), unit("d0"))]));
    }

    #[test]
    fn earlier_records_without_names_are_read() {
        let old = br#"{"layout":1,"groups":{},"trays":{}}"#;
        assert_eq!(decode(old), Some(OverrideRecord::default()));
    }

    #[test]
    fn h3_malformed_record_is_ignored_and_reported() {
        let mut kept = OverrideRecord::default();
        kept.groups.insert("a".into(), AluaOverride { configured: SET.0, state: SET.1 });
        kept.trays.insert("cd0".into(), Tray { provider: None, is_out: true });
        let former = Former { serial: "S \"1\"".into(), provider: "x".into() };
        kept.names.insert("d0".into(), former);
        let good = encode(&kept);
        assert_eq!(decode(&good), Some(kept));
        let text = String::from_utf8(good.clone()).unwrap();
        let bad = [
            text.replace("standby", "asleep"),
            text.replace("\"layout\":1", "\"layout\":2"),
            text.replace("true", "7"),
            text.replace("trays", "tables"),
            text[..text.len() / 2].to_owned(),
        ];
        for bad in bad {
            let store = MemoryStore::new();
            store.put(SERIAL, state_store::RecordKind::Overrides, bad.clone().into_bytes());
            let log = Arc::new(bio::sync::Mutex::new(String::new()));
            let tell = {
                let log = log.clone();
                Arc::new(move |_: &str, text: String| *log.lock() += &text)
            };
            assert_eq!(Overrides::load(store, tell).kept, OverrideRecord::default(), "{bad}");
            assert!(log.lock().contains("cannot be read"), "{bad}");
        }
    }
}
