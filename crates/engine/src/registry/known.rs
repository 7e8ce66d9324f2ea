//! Record of the unit that each initiator port knows behind each of its LUNs: by the unit's serial
//! number, and with it by the other names that are configured for it (`Ids::known_as`).
//!
//! A host that continues to use a number which now names another disk would write its old blocks
//! there. So medium access waits until the initiator has read the unit's identity: standard
//! INQUIRY or its page 83h, Identify Namespace, ATA IDENTIFY DEVICE.
//!
//! Layout 1 of the record, DON'T TOUCH, big-endian; texts are a u16 length and UTF-8:
//!
//! ```text
//!   u16 layout   u32 count
//!   count times: driver  target  initiator  port   u32 count
//!                count times: u64 LUN  name of the unit
//! ```
//!
//! Invariants
//!  K1  The unit that an initiator port uses first, without a record of it, is trusted: no record
//!      shows that it knew another.
//!  K2  A name is replaced only when the initiator has read the unit's identity.
//!  K3  A power cut may lose the last changes of the record: then K1 holds.

use std::collections::{BTreeMap, BTreeSet, btree_map};

use bio::sync::{Mutex, MutexGuard};
use geom::Error;

use super::Registry;
use crate::state_store::{RecordKind, StateStore, save_channel};
use crate::unit::ids::LENGTH_MARK;
use crate::unit::unit_attention::Port;

/// The record's place in the state store: it belongs to no unit.
const SERIAL: &str = "known-units";

const LAYOUT: u16 = 1;

/// LUNs of all initiator ports that are remembered; of further ones nothing is (K1).
const KNOWN_MAX: usize = 262_144;

/// Driver, target, initiator, and its port where the protocol has several that last.
type PortKey = [String; 4];

#[derive(Default)]
struct KnownState {
    all: BTreeMap<PortKey, BTreeMap<u64, String>>,
    count: usize,
    /// Something has changed since it was saved.
    changed: bool,
}

/// See the module.
#[derive(Default)]
pub(crate) struct KnownUnits(Mutex<KnownState>);

/// The names of a unit, of its names and the length of its blocks.
fn names(identity: &str) -> &str {
    identity.split(LENGTH_MARK).next().unwrap_or(identity)
}

fn port_key(port: &Port) -> PortKey {
    // Of iSCSI's ports the ISID lasts; connections of other protocols are numbered anew.
    let lasting = if port.transport_id.is_empty() { &[][..] } else { &port.port_id };
    let lasting = lasting.iter().map(|b| format!("{b:02x}")).collect();
    [port.driver.clone(), port.target.clone(), port.initiator.clone(), lasting]
}

impl KnownUnits {
    fn state(&self) -> MutexGuard<'_, KnownState> {
        self.0.lock()
    }

    /// Whether an initiator port may use a unit that it finds under a number (K1).
    pub fn check_or_record(&self, port: &Port, lun: u64, serial: &str) -> bool {
        let mut state = self.state();
        let full = state.count >= KNOWN_MAX;
        let luns = state.all.entry(port_key(port)).or_default();
        match luns.entry(lun) {
            btree_map::Entry::Occupied(known) if known.get() == serial => true,
            // Saved by a version that did not keep the length of blocks.
            btree_map::Entry::Occupied(mut known) if known.get() == names(serial) => {
                known.insert(serial.to_owned());
                state.changed = true;
                true
            }
            btree_map::Entry::Occupied(_) => false,
            btree_map::Entry::Vacant(_) if full => true,
            btree_map::Entry::Vacant(place) => {
                place.insert(serial.to_owned());
                state.count += 1;
                state.changed = true;
                true
            }
        }
    }

    /// The initiator has read the unit's identity (K2).
    pub fn record_identity(&self, port: &Port, lun: u64, serial: &str) {
        let mut state = self.state();
        let luns = state.all.entry(port_key(port)).or_default();
        if let Some(known) = luns.get_mut(&lun)
            && known != serial
        {
            serial.clone_into(known);
            state.changed = true;
        }
    }

    /// Serial numbers of all units that initiators know.
    pub fn serials(&self) -> BTreeSet<String> {
        let state = self.state();
        let all = state.all.values().flat_map(|luns| luns.values());
        all.map(|known| names(known).to_owned()).collect()
    }

    /// Whether any initiator knows a unit by this serial number.
    pub fn contains(&self, serial: &str) -> bool {
        self.state().all.values().flat_map(BTreeMap::values).any(|known| names(known) == serial)
    }

    /// Loads the saved record.
    pub fn load(&self, store: &dyn StateStore) -> Result<(), Error> {
        let Some(bytes) = store.load(SERIAL, RecordKind::KnownUnits)? else { return Ok(()) };
        let Some(all) = decode(&bytes) else {
            let what = "the saved list of units that initiators know (known-units.known in the \
                        state folder) is damaged";
            return Err(Error::inval(what));
        };
        let count = all.values().map(BTreeMap::len).sum();
        *self.state() = KnownState { all, count, changed: false };
        Ok(())
    }

    /// Begins to save it, if it has changed, and does not wait (K3).
    pub fn save(&self, store: &dyn StateStore) {
        let mut state = self.state();
        if store.is_persistent() && std::mem::take(&mut state.changed) {
            let (done, _) = save_channel();
            store.save(SERIAL, RecordKind::KnownUnits, encode(&state.all), done);
        }
    }
}

impl Registry {
    /// Serial numbers of all units that initiators know from now or from an earlier run.
    pub fn known_serials(&self) -> BTreeSet<String> {
        self.known.serials()
    }

    /// Whether an initiator knows a unit by this serial number.
    pub fn is_known_serial(&self, serial: &str) -> bool {
        self.known.contains(serial)
    }

    /// Begins to save which units initiators know, if that has changed.
    pub fn save_known(&self) {
        self.known.save(self.state_store().as_ref());
    }
}

fn encode(all: &BTreeMap<PortKey, BTreeMap<u64, String>>) -> Vec<u8> {
    let text = |out: &mut Vec<u8>, text: &str| {
        let bytes = text.as_bytes().get(..text.len().min(usize::from(u16::MAX)));
        let bytes = bytes.unwrap_or_default();
        out.extend(u16::try_from(bytes.len()).unwrap_or(0).to_be_bytes());
        out.extend(bytes);
    };
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX).to_be_bytes();
    let mut out = LAYOUT.to_be_bytes().to_vec();
    out.extend(count(all.len()));
    for (who, luns) in all {
        who.iter().for_each(|word| text(&mut out, word));
        out.extend(count(luns.len()));
        for (lun, serial) in luns {
            out.extend(lun.to_be_bytes());
            text(&mut out, serial);
        }
    }
    out
}

fn decode(mut rest: &[u8]) -> Option<BTreeMap<PortKey, BTreeMap<u64, String>>> {
    fn take<'a>(rest: &mut &'a [u8], n: usize) -> Option<&'a [u8]> {
        let (head, tail) = rest.split_at_checked(n)?;
        *rest = tail;
        Some(head)
    }
    fn text(rest: &mut &[u8]) -> Option<String> {
        let len = u16::from_be_bytes(*take(rest, 2)?.first_chunk()?);
        String::from_utf8(take(rest, usize::from(len))?.to_vec()).ok()
    }
    fn count(rest: &mut &[u8]) -> Option<u32> {
        Some(u32::from_be_bytes(*take(rest, 4)?.first_chunk()?))
    }
    let rest = &mut rest;
    if u16::from_be_bytes(*take(rest, 2)?.first_chunk()?) != LAYOUT {
        return None;
    }
    let mut all = BTreeMap::new();
    for _ in 0..count(rest)? {
        let who = [text(rest)?, text(rest)?, text(rest)?, text(rest)?];
        let mut luns = BTreeMap::new();
        for _ in 0..count(rest)? {
            let lun = u64::from_be_bytes(*take(rest, 8)?.first_chunk()?);
            luns.insert(lun, text(rest)?);
        }
        all.insert(who, luns);
    }
    rest.is_empty().then_some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_store::MemoryStore;

    fn port(initiator: &str) -> Port {
        Port { driver: "iscsi".into(), initiator: initiator.into(), ..Port::default() }
    }

    /// K1, K2.
    #[test]
    fn k1_k2_only_the_first_unit_is_trusted_before_its_identity_is_read() {
        let known = KnownUnits::default();
        let (one, two) = (port("one"), port("two"));
        assert!(known.check_or_record(&one, 0, "a") && known.check_or_record(&one, 0, "a"));
        assert!(
            !known.check_or_record(&one, 0, "b") && !known.check_or_record(&one, 0, "b"),
            "asking is not enough"
        );
        assert!(known.check_or_record(&two, 0, "b"), "each has its own");
        known.record_identity(&one, 0, "b");
        assert!(known.check_or_record(&one, 0, "b") && !known.check_or_record(&one, 0, "a"));
    }

    #[test]
    fn a_unit_with_another_block_length_is_another_unit() {
        let (known, one) = (KnownUnits::default(), port("one"));
        assert!(known.check_or_record(&one, 0, "a"), "as an earlier version saved it");
        assert!(known.check_or_record(&one, 0, "a\t512") && known.contains("a"));
        assert!(!known.check_or_record(&one, 0, "a\t4096"));
        known.record_identity(&one, 0, "a\t4096");
        assert!(known.check_or_record(&one, 0, "a\t4096"));
        assert_eq!(known.serials(), BTreeSet::from(["a".to_owned()]));
    }

    /// K3.
    #[test]
    fn known_units_survive_a_restart_and_truncated_records_are_rejected() {
        let store = MemoryStore::new();
        let known = KnownUnits::default();
        for lun in 0..3 {
            assert!(known.check_or_record(&port("one"), lun, &format!("s{lun}")));
        }
        known.save(store.as_ref());
        assert!(known.check_or_record(&port("one"), 3, "s3"), "it is not saved");
        let again = KnownUnits::default();
        again.load(store.as_ref()).unwrap();
        assert!(
            !again.check_or_record(&port("one"), 2, "s1")
                && again.check_or_record(&port("one"), 2, "s2")
        );
        assert!(again.check_or_record(&port("one"), 3, "s4"), "K3: its record is lost");
        let record = store.record(SERIAL, RecordKind::KnownUnits).unwrap();
        for len in 0..record.len() {
            assert!(decode(&record[..len]).is_none(), "{len} bytes");
        }
        assert!(decode(&[&record[..], &[0]].concat()).is_none());
    }
}
