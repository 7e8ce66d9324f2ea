//! Last known ends of providers whose metadata is in their last sectors. They are one record of the
//! state folder. With it a disk that has grown while the daemon was off, or just before a power
//! failure, is recognized at the next start (`geom::KeepEnds`).
//!
//! Invariants
//!  N1  A record that cannot be read counts as none, and the journal reports it.
//!  N2  A failure to save the record is reported once, until a save succeeds.

use std::sync::Arc;

use engine::state_store::{self, StateStore, save_channel};
use geom::{FormerSizes, SizeKeeper};
use serde_json::{Value, json};

use crate::state_store::{ReportFn, document, read};

/// The record's place in the state store: it belongs to no unit.
const SERIAL: &str = "providers";

/// Form of the record.
const LAYOUT: u64 = 1;

/// See the module.
pub struct LastSizes {
    store: Arc<dyn StateStore>,
    report: Arc<ReportFn>,
    failed: bool,
}

impl LastSizes {
    /// Loads the stored ends (N1), and makes their keeper. The callback receives messages for
    /// people.
    pub fn load(store: Arc<dyn StateStore>, tell: Arc<ReportFn>) -> (Vec<FormerSizes>, LastSizes) {
        let kept = read(&*store, SERIAL, state_store::RecordKind::LastSizes, decode)
            .unwrap_or_else(|why| {
                let text = format!(
                    "recorded disk sizes: cannot be read ({why}); the label of a disk that has \
                     grown since is not found: see `ashlar status`, and `relocate` of its class"
                );
                tell("daemon", text);
                Vec::new()
            });
        (kept, LastSizes { store, report: tell, failed: false })
    }
}

impl SizeKeeper for LastSizes {
    fn save(&mut self, ends: &[FormerSizes]) {
        if !self.store.is_persistent() {
            return;
        }
        let (done, saved) = save_channel();
        self.store.save(SERIAL, state_store::RecordKind::LastSizes, encode(ends), done);
        let failed = saved.wait().err();
        if let Some(e) = failed.filter(|_| !self.failed) {
            let text = format!(
                "disk sizes: not saved ({e}); the label of a disk that grows before a power loss \
                 may not be found. Repair the state folder: `state` in [daemon] names it"
            );
            (self.report)("daemon", text);
        }
        self.failed = failed.is_some();
    }
}

fn encode(ends: &[FormerSizes]) -> Vec<u8> {
    let end = |end: &FormerSizes| {
        json!({
            "class": end.class, "provider": end.provider, "ident": end.ident, "disk": end.is_disk,
            "bytes": end.bytes,
        })
    };
    let all: Vec<Value> = ends.iter().map(end).collect();
    json!({ "layout": LAYOUT, "ends": all }).to_string().into_bytes()
}

fn decode(bytes: &[u8]) -> Option<Vec<FormerSizes>> {
    let all = document(bytes, LAYOUT)?;
    let end = |end: &Value| {
        let text = |key| end.get(key)?.as_str().map(str::to_owned);
        Some(FormerSizes {
            class: text("class")?,
            provider: text("provider")?,
            ident: text("ident")?,
            is_disk: end.get("disk")?.as_bool()?,
            bytes: end
                .get("bytes")?
                .as_array()?
                .iter()
                .map(Value::as_u64)
                .collect::<Option<_>>()?,
        })
    };
    all.get("ends")?.as_array()?.iter().map(end).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn n1_record_decodes_unchanged_or_not_at_all() {
        let end = |provider: &str, is_disk| FormerSizes {
            class: "mirror".into(),
            provider: provider.into(),
            ident: "5000c500 \"1\"".into(),
            is_disk,
            bytes: vec![512, 1 << 40],
        };
        let all = [end("da0", true), end("multipath/é", false)];
        assert_eq!(decode(&encode(&all)).as_deref(), Some(&all[..]));
        assert_eq!(decode(&encode(&[])), Some(Vec::new()));
        assert_eq!(decode(br#"{"layout":2,"ends":[]}"#), None);
        assert_eq!(decode(br#"{"layout":1,"ends":[{"class":"mirror"}]}"#), None);
        assert_eq!(decode(b"{\"layout\":1"), None);
    }
}
