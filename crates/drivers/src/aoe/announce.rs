//! Announcements: a slot that was added, or whose disk was exchanged, sends an unsolicited answer.
//! An initiator that had the slot then requests the identity of the disk.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::sync::Arc;

use wire::aoe::{Address, BROADCAST, Header, Mac, VERSION, command};

use super::NAME;
use super::config::describe;
use super::portal::{Portal, VisibleSlot};

/// Announcements that were sent.
#[derive(Default)]
pub(super) struct Announcer {
    /// Addresses to which a slot was announced, and the number of the unit that it had then; group
    /// addresses reach all initiators.
    announced: RefCell<BTreeMap<(Address, Mac), u32>>,
}

impl Announcer {
    /// Announces devices that are present and were not announced yet.
    pub fn announce_new(&self, portal: &Portal) {
        let mut now = BTreeMap::new();
        for shelf in portal.per_core.shared.targets_at(&portal.at) {
            if !shelf.params.announce {
                continue;
            }
            let Some(port) = portal.per_core.engine.find_target(NAME, &shelf.name) else {
                continue;
            };
            for group in port.groups().groups() {
                for to in group.patterns.iter().map(|pattern| addressee(pattern.as_str())) {
                    for entry in group.luns().iter() {
                        let Ok(slot) = u8::try_from(entry.lun) else { continue };
                        let address = Address { shelf: shelf.params.shelf, slot };
                        if !address.is_single() || now.contains_key(&(address, to)) {
                            continue;
                        }
                        now.insert((address, to), entry.device.number());
                        let seat = VisibleSlot {
                            shelf: Arc::clone(&shelf),
                            port: port.clone(),
                            entry: entry.clone(),
                            address,
                            slot: shelf.config.slot(slot),
                        };
                        self.announce(portal, &seat, to);
                    }
                }
            }
        }
        self.announced.replace(now);
    }

    /// Whether a slot was announced to initiators with the unit that it has now.
    pub fn has_announced(&self, seat: &VisibleSlot) -> bool {
        let announced = self.announced.borrow();
        let number = seat.entry.device.number();
        announced.iter().any(|((of, _), unit)| *of == seat.address && *unit == number)
    }

    fn announce(&self, portal: &Portal, seat: &VisibleSlot, to: Mac) {
        let announced = self.announced.borrow().get(&(seat.address, to)).copied();
        if announced == Some(seat.entry.device.number()) {
            return;
        }
        let rules = seat.slot.rules();
        // Where a mask list exists, only the initiators in it are notified.
        let masked: Vec<Mac> = match (to.is_group(), rules.masks.is_empty()) {
            (_, true) => vec![to],
            (true, false) => rules.masks.clone(),
            (false, false) => rules.masks.iter().filter(|mac| **mac == to).copied().collect(),
        };
        for to in masked {
            let header = Header {
                to,
                from: portal.mac(),
                version: VERSION,
                response: true,
                error: None,
                address: seat.address,
                command: command::CONFIG,
                tag: 0,
            };
            let config = describe(portal, seat, &rules.string);
            let bytes = [&header.encode()[..], &config.encode(), &rules.string].concat();
            portal.send(&bytes, &bio::Segs::new());
        }
    }
}

/// The address of a pattern of initiators: one address, or broadcast.
fn addressee(pattern: &str) -> Mac {
    let named = pattern.strip_prefix("mac:").and_then(|mac| mac.parse().ok());
    named.unwrap_or(BROADCAST)
}
