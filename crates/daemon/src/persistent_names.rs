//! Names by which the configuration refers to disks of buses. Buses assign them in the order in
//! which disks answer. The disk of each name is stored here, so that a LUN is never another disk
//! because one before it was away at a start.
//!
//! ```text
//!   the configuration uses the name of a present disk --> kept for that disk, in the state store
//!   the configuration no longer uses it, or `names` of a bus assigns it --> not kept
//!   at a start --> buses get the names before they are scanned
//! ```
//!
//! Invariants
//!  N1  A name in use is kept while its disk is away; none is forgotten before the whole
//!      configuration has been carried out.
//!  N2  Without a state folder that keeps records, no name is reported as kept.
//!  N3  A record that cannot be read counts as none, and the journal reports it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cam::{CamClass, Holder};
use engine::state_store::{self, StateStore, save_channel};
use mgmt::config::Config;
use serde_json::{Map, Value, json};

use crate::state_store::{ReportFn, document, read};

/// The record's place in the state store: it belongs to no unit.
const SERIAL: &str = "buses";

/// Form of the record.
const LAYOUT: u64 = 1;

type NameMap = BTreeMap<String, Holder>;

/// See the module.
pub struct PersistentNames {
    store: Arc<dyn StateStore>,
    report: Arc<ReportFn>,
    /// The owner of the names.
    cam: Arc<CamClass>,
    /// The stored names, and whether a failure to store the last ones was reported.
    stored: NameMap,
    failed: bool,
    /// A bus has been opened since the start.
    has_buses: bool,
    /// The graph when it was looked at.
    generation: Option<u64>,
}

impl PersistentNames {
    /// Loads the stored names (N3), and passes them to the buses. The callback receives messages
    /// for people.
    pub fn load(
        store: Arc<dyn StateStore>,
        tell: Arc<ReportFn>,
        cam: Arc<CamClass>,
    ) -> PersistentNames {
        let stored = read(&*store, SERIAL, state_store::RecordKind::Names, decode);
        let stored = stored.unwrap_or_else(|why| {
            let text = format!(
                "recorded names of bus disks: cannot be read ({why}); disks are named in the order \
                 in which they answer: check that each LUN has its former disk"
            );
            tell("daemon", text);
            NameMap::new()
        });
        cam.wired_names().set(stored.clone());
        let (failed, has_buses) = (false, false);
        PersistentNames { store, report: tell, cam, stored, failed, has_buses, generation: None }
    }

    /// Whether the graph is another than it was at the last call.
    pub fn graph_changed(&mut self, generation: u64) -> bool {
        self.generation.replace(generation) != Some(generation)
    }

    /// A bus is opened: it reads the names that the configuration uses.
    pub fn prepare_bus(&mut self, config: &Config) {
        self.has_buses = true;
        self.set_configured(config);
    }

    fn set_configured(&self, config: &Config) {
        self.cam.wired_names().set_configured(config.used_names().map(str::to_owned).collect());
    }

    /// Disks were added, or the configuration is another: true when there is something to
    /// [`store`](Names::store).
    pub fn update(&mut self, config: &Config, is_starting: bool) -> bool {
        let kept = self.cam.wired_names().all();
        // Without a bus the names are not listed: a start makes a change for each of its disks.
        if !self.has_buses && kept.is_empty() && self.stored.is_empty() {
            return false;
        }
        self.set_configured(config);
        if !self.store.is_persistent() {
            return false;
        }
        let next = next(&kept, &self.present_names(), config, is_starting);
        let is_other = next != self.stored;
        if next != kept {
            self.cam.wired_names().set(next);
        }
        is_other
    }

    /// Disks that have names and a distinct identity.
    fn present_names(&self) -> NameMap {
        let disks = |bus: &Arc<cam::Bus>| {
            let named = |(unit, facts, name): (Arc<cam::Unit>, cam::Facts, String)| {
                let is_here = !name.is_empty() && !unit.inspect(|device| device.is_lost());
                let identity = facts.identity().filter(|_| is_here)?;
                Some((name, Holder { bus: bus.sim().facts().name, identity }))
            };
            bus.devices().into_iter().filter_map(named).collect::<Vec<_>>()
        };
        self.cam.buses().iter().flat_map(disks).collect()
    }

    /// Stores the kept names; waits for the disk.
    pub fn store(&mut self) {
        let kept = self.cam.wired_names().all();
        let (done, saved) = save_channel();
        self.store.save(SERIAL, state_store::RecordKind::Names, encode(&kept), done);
        match saved.wait() {
            Ok(()) => {
                self.stored = kept;
                self.failed = false;
            }
            Err(e) if !std::mem::replace(&mut self.failed, true) => {
                let text = format!(
                    "names of bus disks: not saved ({e}); after a restart the disks have the names \
                     that were last saved. Repair the state folder: `state` in [daemon] names it"
                );
                (self.report)("daemon", text);
            }
            Err(_) => {}
        }
    }
}

/// The names to be kept (N1): names in use, for the disks that have them or had them last.
fn next(kept: &NameMap, here: &NameMap, config: &Config, is_starting: bool) -> NameMap {
    let called: BTreeSet<&str> = config.used_names().collect();
    let given = |name: &String| config.bus.iter().any(|bus| bus.names.contains_key(name));
    let stays = |(name, _): &(&String, &Holder)| is_starting || called.contains(name.as_str());
    let has = here.iter().filter(|(name, _)| called.contains(name.as_str()));
    let all = kept.iter().filter(stays).chain(has);
    all.filter(|(name, _)| !given(name)).map(|(n, holder)| (n.clone(), holder.clone())).collect()
}

fn encode(kept: &NameMap) -> Vec<u8> {
    let holder = |(name, o): (&String, &Holder)| {
        (name.clone(), json!({ "bus": o.bus, "identity": o.identity }))
    };
    let names: Map<String, Value> = kept.iter().map(holder).collect();
    json!({ "layout": LAYOUT, "names": names }).to_string().into_bytes()
}

fn decode(bytes: &[u8]) -> Option<NameMap> {
    let all = document(bytes, LAYOUT)?;
    let holder = |(name, holder): (&String, &Value)| {
        let text = |key| holder.get(key)?.as_str().map(str::to_owned);
        Some((name.clone(), Holder { bus: text("bus")?, identity: text("identity")? }))
    };
    all.get("names")?.as_object()?.iter().map(holder).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn holder(identity: &str) -> Holder {
        Holder { bus: "san".into(), identity: identity.into() }
    }

    fn of(list: &[(&str, &str)]) -> NameMap {
        list.iter().map(|(name, identity)| ((*name).to_owned(), holder(identity))).collect()
    }

    fn config(text: &str) -> Config {
        mgmt::config::read_arguments(text, "test", &crate::catalog()).unwrap()
    }

    #[test]
    fn n1_only_referenced_names_are_kept() {
        let called = config(
            "[[geom]]\nname = 'c'\nclass = 'concat'\nmembers = ['da1', 'da2']\n\
             [[bus]]\nname = 'san'\nkind = 'virtual'\ndisks = 1\nnames = { da2 = 'SERIAL' }\n",
        );
        let here = of(&[("da0", "x"), ("da1", "y"), ("da2", "z")]);
        assert_eq!(next(&NameMap::new(), &here, &called, false), of(&[("da1", "y")]));
        // Away, and not called any more.
        let kept = of(&[("da1", "y"), ("da7", "w")]);
        assert_eq!(next(&kept, &NameMap::new(), &called, false), of(&[("da1", "y")]));
        assert_eq!(next(&kept, &NameMap::new(), &Config::default(), true), kept, "not yet");
        assert_eq!(next(&kept, &here, &Config::default(), false), NameMap::new());
    }

    #[test]
    fn n3_record_decodes_unchanged_or_not_at_all() {
        let kept = of(&[("da0", "5000c500 \"1\""), ("ada3", "é")]);
        assert_eq!(decode(&encode(&kept)), Some(kept));
        assert_eq!(decode(br#"{"layout":2,"names":{}}"#), None);
        assert_eq!(decode(br#"{"layout":1,"names":{"da0":{"bus":"b"}}}"#), None);
        assert_eq!(decode(b"{\"layout\":1"), None);
    }
}
