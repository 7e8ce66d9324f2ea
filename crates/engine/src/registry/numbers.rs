//! Relative target port identifiers, which outlive restarts and the order of the configuration.
//! Persistent reservations are keyed by them (SPC-4 5.13), and a registration that survives a
//! restart would else belong to another port, or to none.
//!
//! Layout 1 of the record, DON'T TOUCH, big-endian:
//!
//! ```text
//!   u16 layout   u32 count
//!   count times: u16 number   u16 length   driver   u16 length   name
//! ```
//!
//! Invariants
//!  N1  A name that has ever had a number has the same one for ever, unless the configuration
//!      gives it another. It also changes if the configuration gives its number to another while it
//!      is no target.
//!  N2  No two names have the same number.
//!  N3  A number is used only after it is on stable storage, where there is any.

use std::collections::BTreeMap;

use bio::Errno;
use geom::Error;

use super::TARGETS_MAX;
use crate::state_store::{RecordKind, StateStore, save_channel};

/// The record's place in the state store: it belongs to no unit.
const SERIAL: &str = "target-ports";

const LAYOUT: u16 = 1;

/// A driver and the name of a target.
pub(super) type Name = (String, String);

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub(super) struct Numbers(BTreeMap<Name, u16>);

impl Numbers {
    pub fn load(store: &dyn StateStore) -> Result<Numbers, Error> {
        let Some(bytes) = store.load(SERIAL, RecordKind::Ports)? else {
            return Ok(Numbers::default());
        };
        Numbers::decode(&bytes).ok_or_else(|| {
            let what = "the saved target port identifiers (target-ports.ports in the state folder) \
                        are damaged";
            Error::inval(what)
        })
    }

    /// Saves them and waits (N3).
    pub fn save(&self, store: &dyn StateStore) -> Result<(), Error> {
        if !store.is_persistent() {
            return Ok(());
        }
        let (done, saved) = save_channel();
        store.save(SERIAL, RecordKind::Ports, self.encode(), done);
        saved.wait().map_err(|e| Error::new(e, "target port identifiers could not be saved"))
    }

    /// Gives `name` a number: the `wanted` one, else its earlier one, else the lowest that was
    /// never used. `live` returns whether a name is a target now.
    pub fn assign(
        &mut self,
        name: &Name,
        wanted: Option<u16>,
        live: &dyn Fn(&Name) -> bool,
    ) -> Result<u16, Error> {
        if let Some(had) = self.0.get(name).filter(|had| wanted.is_none_or(|w| w == **had)) {
            return Ok(*had);
        }
        let number = match wanted {
            Some(number) => number,
            None => self.lowest_free().ok_or_else(|| {
                let what = "all target port identifiers are or were in use; set port_id for this \
                            target";
                Error::new(Errno::NoSpc, what)
            })?,
        };
        if number == 0 {
            return Err(Error::inval("a target port identifier is 1 to 65535"));
        }
        let other = self.0.iter().find(|(_, n)| **n == number).map(|(other, _)| other.clone());
        if let Some(other) = other {
            if live(&other) {
                let what = format!("port_id {number} is that of {} target {}", other.0, other.1);
                return Err(Error::new(Errno::Exist, what));
            }
            self.0.remove(&other);
        }
        self.0.insert(name.clone(), number);
        Ok(number)
    }

    fn lowest_free(&self) -> Option<u16> {
        let mut taken: Vec<u16> = self.0.values().copied().collect();
        taken.sort_unstable();
        let last = u16::try_from(TARGETS_MAX).unwrap_or(u16::MAX);
        let free = (1..=last).zip(&taken).find(|(n, taken)| n != *taken).map(|(n, _)| n);
        let next = || u16::try_from(taken.len() + 1).ok().filter(|n| *n <= last);
        free.or_else(next)
    }

    fn encode(&self) -> Vec<u8> {
        let mut out = LAYOUT.to_be_bytes().to_vec();
        out.extend(u32::try_from(self.0.len()).unwrap_or(0).to_be_bytes());
        for ((driver, name), number) in &self.0 {
            out.extend(number.to_be_bytes());
            for text in [driver, name] {
                out.extend(u16::try_from(text.len()).unwrap_or(0).to_be_bytes());
                out.extend(text.as_bytes());
            }
        }
        out
    }

    fn decode(bytes: &[u8]) -> Option<Numbers> {
        let (layout, rest) = bytes.split_first_chunk::<2>()?;
        let (count, mut rest) = rest.split_first_chunk::<4>()?;
        if u16::from_be_bytes(*layout) != LAYOUT {
            return None;
        }
        let mut all = Numbers::default();
        for _ in 0..u32::from_be_bytes(*count) {
            let (number, after) = rest.split_first_chunk::<2>()?;
            let number = u16::from_be_bytes(*number);
            let (driver, after) = text(after)?;
            let (name, after) = text(after)?;
            rest = after;
            let taken = number == 0 || all.0.values().any(|n| *n == number);
            if taken || all.0.insert((driver, name), number).is_some() {
                return None;
            }
        }
        rest.is_empty().then_some(all)
    }
}

fn text(bytes: &[u8]) -> Option<(String, &[u8])> {
    let (length, rest) = bytes.split_first_chunk::<2>()?;
    let (text, rest) = rest.split_at_checked(usize::from(u16::from_be_bytes(*length)))?;
    Some((String::from_utf8(text.to_vec()).ok()?, rest))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state_store::MemoryStore;

    fn name(name: &str) -> Name {
        ("iscsi".into(), name.into())
    }

    #[test]
    fn n1_numbers_are_permanent_and_unique() {
        let mut all = Numbers::default();
        let live = |n: &Name| n.1 != "gone";
        for (who, wanted, want) in [
            ("gone", None, Some(1)),
            ("b", None, Some(2)),
            ("c", Some(2), None),
            ("c", Some(7), Some(7)),
            ("d", None, Some(3)),
            ("b", Some(2), Some(2)),
            ("b", Some(0), None),
            ("gone", None, Some(1)),
            ("e", Some(1), Some(1)),
            ("gone", None, Some(4)),
            ("c", None, Some(7)),
        ] {
            assert_eq!(all.assign(&name(who), wanted, &live).ok(), want, "{who} {wanted:?}");
        }
        let store = MemoryStore::new();
        all.save(&*store).unwrap();
        assert_eq!(Numbers::load(&*store).unwrap(), all);
        store.fail(Some(Errno::NoSpc));
        assert_eq!(all.save(&*store).unwrap_err().kind, Errno::NoSpc);
    }

    #[test]
    fn allocation_fails_after_the_last_free_number() {
        let mut all = Numbers::default();
        for n in 1..=TARGETS_MAX as u16 {
            all.0.insert(name(&n.to_string()), n);
        }
        let full = all.assign(&name("x"), None, &|_| true);
        assert_eq!(full.unwrap_err().kind, Errno::NoSpc);
        all.0.remove(&name("77"));
        assert_eq!(all.assign(&name("x"), None, &|_| true).ok(), Some(77));
        all.0.remove(&name("65000"));
        assert_eq!(all.assign(&name("y"), None, &|_| true).ok(), Some(65000));
        assert_eq!(all.assign(&name("z"), Some(65_535), &|_| true).ok(), Some(65_535));
    }

    #[test]
    fn n2_truncated_and_inconsistent_records_are_rejected() {
        let mut all = Numbers::default();
        for who in ["a", "b"] {
            all.assign(&name(who), None, &|_| true).unwrap();
        }
        let good = all.encode();
        assert_eq!(Numbers::decode(&good), Some(all));
        for cut in 0..good.len() {
            assert_eq!(Numbers::decode(&good[..cut]), None, "{cut}");
        }
        let mut bad = good.clone();
        bad.push(0);
        assert_eq!(Numbers::decode(&bad), None);
        // Both have number 1, or the first has none.
        for (at, byte) in [(19, 1), (7, 0), (1, 2)] {
            let mut bad = good.clone();
            assert_ne!(bad[at], byte);
            bad[at] = byte;
            assert_eq!(Numbers::decode(&bad), None, "{at}");
        }
    }
}
