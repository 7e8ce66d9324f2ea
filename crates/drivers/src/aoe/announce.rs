//! Telling that a device came up: an answer to a question that nobody asked.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::Arc;

use wire::aoe::{Address, BROADCAST, Header, Mac, VERSION, command};

use super::NAME;
use super::config::describe;
use super::portal::{Portal, Seat};

/// What was told.
#[derive(Default)]
pub(super) struct Announcer {
    /// Who was told of which slot; group addresses are everybody.
    told: RefCell<BTreeSet<(Address, Mac)>>,
}

impl Announcer {
    /// Tells of what is there and was not told yet.
    pub fn look(&self, portal: &Portal) {
        let mut now = BTreeSet::new();
        for shelf in portal.here.shared.targets_at(&portal.at) {
            if !shelf.params.announce {
                continue;
            }
            let Some(port) = portal.here.engine.find_target(NAME, &shelf.name) else { continue };
            for group in port.groups().groups() {
                for to in group.patterns.iter().map(|pattern| addressee(pattern.as_str())) {
                    for entry in group.luns().iter() {
                        let Ok(slot) = u8::try_from(entry.lun) else { continue };
                        let address = Address { shelf: shelf.params.shelf, slot };
                        if !address.is_single() || !now.insert((address, to)) {
                            continue;
                        }
                        let seat = Seat {
                            shelf: Arc::clone(&shelf),
                            port: port.clone(),
                            entry: entry.clone(),
                            address,
                            slot: shelf.book.slot(slot),
                        };
                        self.tell(portal, &seat, to);
                    }
                }
            }
        }
        self.told.replace(now);
    }

    /// Whether a slot was announced to initiators.
    pub fn has_told(&self, address: Address) -> bool {
        self.told.borrow().iter().any(|(of, _)| *of == address)
    }

    fn tell(&self, portal: &Portal, seat: &Seat, to: Mac) {
        if self.told.borrow().contains(&(seat.address, to)) {
            return;
        }
        let rules = seat.slot.rules();
        // Where there is a list, those in it alone hear.
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

/// Whom a pattern of initiators names: one address, or everybody.
fn addressee(pattern: &str) -> Mac {
    let named = pattern.strip_prefix("mac:").and_then(|mac| mac.parse().ok());
    named.unwrap_or(BROADCAST)
}
