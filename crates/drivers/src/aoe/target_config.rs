//! Settings that initiators store in a target, slot by slot: config strings, mask lists and
//! reservations. All of them survive a restart of the daemon. An initiator that fences another one
//! off by a reservation must not lose the reservation by a restart of the target.
//!
//! Invariants
//!  K1  A string, list or reservation takes effect when it is in the state store, and not before.
//!  K2  One change of a target is under way at a time: of two requests that find a slot free, only
//!      one gets it.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bio::Errno;
use bio::sync::{Mutex, MutexGuard};
use engine::state_store::{RecordKind, StateStore, save_channel};
use geom::Error;
use serde::{Deserialize, Serialize};
use wire::aoe::{Mac, STRING_MAX};

/// Addresses of a mask list or a reservation: their number is a byte.
pub(super) const LIST_MAX: usize = 255;

/// The settings of one slot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Rules {
    pub string: Vec<u8>,
    /// Initiators that have access; empty: all of them.
    pub masks: Vec<Mac>,
    /// Initiators for which the slot is reserved; empty: no reservation.
    pub reserved: Vec<Mac>,
}

impl Rules {
    /// Whether the mask list admits the initiator.
    pub fn admits(&self, mac: Mac) -> bool {
        self.masks.is_empty() || self.masks.contains(&mac)
    }

    /// Whether the slot is reserved, and not for this initiator.
    pub fn refuses(&self, mac: Mac) -> bool {
        !self.reserved.is_empty() && !self.reserved.contains(&mac)
    }
}

#[derive(Default)]
pub(super) struct Slot {
    /// There are masks or a reservation: look at the rules.
    guarded: AtomicBool,
    rules: Mutex<Rules>,
}

impl Slot {
    fn lock_rules(&self) -> MutexGuard<'_, Rules> {
        self.rules.lock()
    }

    pub fn rules(&self) -> Rules {
        self.lock_rules().clone()
    }

    /// Whether the initiator may see the slot, and whether it may give commands.
    pub fn access_of(&self, mac: Mac) -> (bool, bool) {
        if !self.guarded.load(Ordering::Acquire) {
            return (true, true);
        }
        let rules = self.lock_rules();
        (rules.admits(mac), !rules.refuses(mac))
    }

    fn set(&self, rules: Rules) {
        let guarded = !rules.masks.is_empty() || !rules.reserved.is_empty();
        *self.lock_rules() = rules;
        self.guarded.store(guarded, Ordering::Release);
    }
}

/// The record of a slot in the state store.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct SlotRecord {
    slot: u8,
    string: Vec<u8>,
    masks: Vec<String>,
    /// Absent in records of before reservations were kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    reserved: Vec<String>,
}

pub(super) struct TargetConfig {
    key: String,
    slots: Mutex<BTreeMap<u8, Arc<Slot>>>,
    /// A change is under way (K2).
    changing: AtomicBool,
}

/// A change under way.
struct ChangeGuard<'a>(&'a AtomicBool);

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        self.0.store(false, Ordering::Release);
    }
}

impl TargetConfig {
    /// As the state store has it. On the control thread.
    pub fn load(store: &dyn StateStore, target: &str) -> Result<TargetConfig, Error> {
        let key = format!("aoe:{target}");
        let mut slots = BTreeMap::new();
        if let Some(bytes) = store.load(&key, RecordKind::Aoe)? {
            let bad = |what: String| {
                let what = format!(
                    "aoe target {target}: its config strings, masks and reservations cannot be \
                     read ({what}); move the record {key:?} out of the state folder to begin \
                     without them"
                );
                Error::inval(what)
            };
            let all: Vec<SlotRecord> =
                serde_json::from_slice(&bytes).map_err(|e| bad(e.to_string()))?;
            for kept in all {
                let list = |texts: &[String]| -> Result<Vec<Mac>, Error> {
                    let macs: Result<Vec<Mac>, _> = texts.iter().map(|m| m.parse()).collect();
                    macs.map_err(|e| bad(e.to_string()))
                };
                let (masks, reserved) = (list(&kept.masks)?, list(&kept.reserved)?);
                let longest = masks.len().max(reserved.len());
                if kept.string.len() > STRING_MAX || longest > LIST_MAX {
                    return Err(bad(format!("slot {}: a list is too long", kept.slot)));
                }
                let slot = Slot::default();
                slot.set(Rules { string: kept.string, masks, reserved });
                slots.insert(kept.slot, Arc::new(slot));
            }
        }
        Ok(TargetConfig { key, slots: Mutex::new(slots), changing: AtomicBool::new(false) })
    }

    fn slots(&self) -> MutexGuard<'_, BTreeMap<u8, Arc<Slot>>> {
        self.slots.lock()
    }

    pub fn slot(&self, slot: u8) -> Arc<Slot> {
        self.slots().entry(slot).or_default().clone()
    }

    /// Every string, list and reservation, with one slot's others in their place.
    fn encode(&self, slot: u8, rules: &Rules) -> Vec<u8> {
        let mut all: BTreeMap<u8, Rules> =
            self.slots().iter().map(|(n, slot)| (*n, slot.rules())).collect();
        all.insert(slot, rules.clone());
        let texts = |list: &[Mac]| list.iter().map(Mac::to_string).collect();
        let kept: Vec<SlotRecord> = all
            .into_iter()
            .filter(|(_, rules)| *rules != Rules::default())
            .map(|(slot, rules)| SlotRecord {
                slot,
                masks: texts(&rules.masks),
                reserved: texts(&rules.reserved),
                string: rules.string,
            })
            .collect();
        serde_json::to_vec(&kept).unwrap_or_default()
    }

    /// Changes the settings of a slot to those that `make` returns for the present ones; None
    /// leaves them unchanged. `Busy`: another change of the target is under way, nothing was done.
    pub async fn change(
        &self,
        store: &dyn StateStore,
        slot: u8,
        make: impl FnOnce(&Rules) -> Option<Rules>,
    ) -> Result<(), Errno> {
        if self.changing.swap(true, Ordering::AcqRel) {
            return Err(Errno::Busy);
        }
        let _turn = ChangeGuard(&self.changing);
        let place = self.slot(slot);
        let Some(rules) = make(&place.rules()) else { return Ok(()) };
        let (done, saved) = save_channel();
        store.save(&self.key, RecordKind::Aoe, self.encode(slot, &rules), done);
        saved.await?;
        place.set(rules);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use engine::state_store::MemoryStore;
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    fn now<T>(future: impl Future<Output = T>) -> T {
        match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(out) => out,
            Poll::Pending => panic!("it waits"),
        }
    }

    fn named(string: &[u8]) -> impl FnOnce(&Rules) -> Option<Rules> {
        let string = string.to_vec();
        move |rules| Some(Rules { string, ..rules.clone() })
    }

    #[test]
    fn strings_masks_and_reservations_are_reloaded() {
        let store = MemoryStore::default();
        let config = TargetConfig::load(&store, "e1").unwrap();
        let mac = Mac([2, 0, 0, 0, 0, 9]);
        now(config.change(&store, 3, named(b"mine"))).unwrap();
        let masked = |rules: &Rules| Some(Rules { masks: vec![mac], ..rules.clone() });
        now(config.change(&store, 3, masked)).unwrap();
        let reserved = |rules: &Rules| Some(Rules { reserved: vec![mac], ..rules.clone() });
        now(config.change(&store, 3, reserved)).unwrap();
        assert_eq!(config.slot(3).access_of(Mac([2; 6])), (false, false));
        assert_eq!(config.slot(3).access_of(mac), (true, true));
        let again = TargetConfig::load(&store, "e1").unwrap();
        let kept = Rules { string: b"mine".to_vec(), masks: vec![mac], reserved: vec![mac] };
        assert_eq!(again.slot(3).rules(), kept);
        assert_eq!(again.slot(3).access_of(Mac([2; 6])), (false, false));
        let released = |rules: &Rules| Some(Rules { reserved: vec![], ..rules.clone() });
        now(again.change(&store, 3, released)).unwrap();
        let again = TargetConfig::load(&store, "e1").unwrap().slot(3).rules();
        assert_eq!(again, Rules { reserved: vec![], ..kept });
        let other = TargetConfig::load(&store, "e2").unwrap().slot(3).rules();
        assert_eq!(other, Rules::default());
    }

    /// K1.
    #[test]
    fn change_that_cannot_be_saved_has_no_effect() {
        let store = MemoryStore::default();
        let config = TargetConfig::load(&store, "e1").unwrap();
        store.fail(Some(Errno::NoSpc));
        assert_eq!(now(config.change(&store, 0, named(b"a"))), Err(Errno::NoSpc));
        assert_eq!(config.slot(0).rules(), Rules::default());
        store.fail(None);
        now(config.change(&store, 0, named(b"b"))).unwrap();
        assert_eq!(config.slot(0).rules().string, b"b");
    }

    #[test]
    fn record_without_reservations_is_read() {
        let store = MemoryStore::default();
        let old = b"[{\"slot\":1,\"string\":[97],\"masks\":[]}]";
        store.put("aoe:e1", RecordKind::Aoe, old.to_vec());
        let rules = TargetConfig::load(&store, "e1").unwrap().slot(1).rules();
        assert_eq!(rules, Rules { string: b"a".to_vec(), ..Rules::default() });
    }

    /// K2.
    #[test]
    fn second_change_is_busy_while_one_is_saved() {
        let store = MemoryStore::default();
        let config = TargetConfig::load(&store, "e1").unwrap();
        store.hold(true);
        let mut first = pin!(config.change(&store, 0, named(b"a")));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(first.as_mut().poll(&mut cx).is_pending());
        assert_eq!(now(config.change(&store, 1, named(b"b"))), Err(Errno::Busy));
        store.hold(false);
        assert_eq!(first.as_mut().poll(&mut cx), Poll::Ready(Ok(())));
        now(config.change(&store, 1, named(b"b"))).unwrap();
        let again = TargetConfig::load(&store, "e1").unwrap();
        assert_eq!([again.slot(0).rules().string, again.slot(1).rules().string], [b"a", b"b"]);
    }

    #[test]
    fn invalid_record_is_reported() {
        let store = MemoryStore::default();
        for bad in ["{", "[{\"slot\":1,\"string\":[],\"masks\":[\"x\"]}]", "[{\"slot\":256}]"] {
            store.put("aoe:e1", RecordKind::Aoe, bad.as_bytes().to_vec());
            let error = TargetConfig::load(&store, "e1").err().unwrap();
            assert!(error.message.contains("aoe:e1"), "{error}");
        }
    }
}
