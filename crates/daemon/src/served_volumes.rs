//! File systems that were served here, as one record of the state folder. So `create = true` does
//! not make an empty one where the devices of the old one are missing
//! (`fileserver::ServedVolumes`).
//!
//! Invariants
//!  M1  A record that cannot be read is as none, and the journal reports it.
//!  M2  A failure to save is reported once, until a save succeeds.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bio::sync::Mutex;
use engine::state_store::{self, StateStore, save_channel};
use serde_json::{Value, json};

use crate::state_store::{ReportFn, document, read};

/// The record's place in the state store: it belongs to no unit.
const SERIAL: &str = "file-servers";

/// Form of the record.
const LAYOUT: u64 = 1;

/// Volumes by the names of file servers.
type VolumeMap = BTreeMap<String, u64>;

/// See the module.
pub struct ServedVolumes {
    store: Arc<dyn StateStore>,
    report: Arc<ReportFn>,
    all: Mutex<VolumeMap>,
    failed: AtomicBool,
}

impl ServedVolumes {
    /// Loads the record (M1). The callback receives messages for people.
    pub fn load(store: Arc<dyn StateStore>, tell: Arc<ReportFn>) -> ServedVolumes {
        let kept = read(&*store, SERIAL, state_store::RecordKind::ServedFileSystems, decode);
        let kept = kept.unwrap_or_else(|why| {
            let text = format!(
                "recorded list of served file systems: cannot be read ({why}); `create = true` of \
                 an fs section makes a new one if all of its devices are blank"
            );
            tell("daemon", text);
            VolumeMap::new()
        });
        ServedVolumes { store, report: tell, all: Mutex::new(kept), failed: AtomicBool::new(false) }
    }
}

impl fileserver::VolumeHistory for ServedVolumes {
    fn last_volume(&self, name: &str) -> Option<u64> {
        self.all.lock().get(name).copied()
    }

    fn record_served(&self, name: &str, volume: u64) {
        let bytes = {
            let mut all = self.all.lock();
            let known = all.insert(name.to_owned(), volume) == Some(volume);
            if !self.store.is_persistent() || known && !self.failed.load(Ordering::Relaxed) {
                return;
            }
            encode(&all)
        };
        let (done, saved) = save_channel();
        self.store.save(SERIAL, state_store::RecordKind::ServedFileSystems, bytes, done);
        let failed = saved.wait().err();
        if let Some(e) = failed.filter(|_| !self.failed.load(Ordering::Relaxed)) {
            let text = format!(
                "list of served file systems: {name} not saved ({e}). Repair the state folder: \
                 `state` in [daemon] names it"
            );
            (self.report)("daemon", text);
        }
        self.failed.store(failed.is_some(), Ordering::Relaxed);
    }
}

fn encode(all: &VolumeMap) -> Vec<u8> {
    let one = |(name, volume): (&String, &u64)| json!({ "name": name, "volume": volume });
    let all: Vec<Value> = all.iter().map(one).collect();
    json!({ "layout": LAYOUT, "made": all }).to_string().into_bytes()
}

fn decode(bytes: &[u8]) -> Option<VolumeMap> {
    let all = document(bytes, LAYOUT)?;
    let one =
        |one: &Value| Some((one.get("name")?.as_str()?.to_owned(), one.get("volume")?.as_u64()?));
    all.get("made")?.as_array()?.iter().map(one).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn m1_record_decodes_unchanged_or_not_at_all() {
        let all = VolumeMap::from([("main".to_owned(), u64::MAX), ("é \"x\"".to_owned(), 0)]);
        assert_eq!(decode(&encode(&all)), Some(all));
        assert_eq!(decode(&encode(&VolumeMap::new())), Some(VolumeMap::new()));
        assert_eq!(decode(br#"{"layout":2,"made":[]}"#), None);
        assert_eq!(decode(br#"{"layout":1,"made":[{"name":"main"}]}"#), None);
        assert_eq!(decode(b"{\"layout\":1"), None);
    }
}
