//! The commands about config strings, masks and reservations.

use std::rc::Rc;

use bio::{Errno, Segs};
use wire::aoe::{Config, Header, Mac, Masks, Reserve, directive, error, mask, reserve as word};

use super::frames::refuse;
use super::portal::{Portal, VisibleSlot};
use super::target_config::{LIST_MAX, Rules};

/// Firmware version in answers.
const FIRMWARE: u16 = 1;

pub(super) fn describe<'a>(portal: &Portal, seat: &VisibleSlot, string: &'a [u8]) -> Config<'a> {
    Config::response(seat.shelf.params.buffers, FIRMWARE, portal.sectors_of(&seat.entry), string)
}

fn answer(portal: &Portal, header: &Header, own: wire::aoe::Address, body: &[&[u8]]) {
    let head = header.answer(portal.mac(), own).encode();
    let bytes = [&[&head[..]], body].concat().concat();
    portal.send(&bytes, &Segs::new());
}

fn send_config(portal: &Portal, header: &Header, seat: &VisibleSlot, directive: u8, string: &[u8]) {
    let config = Config { directive, ..describe(portal, seat, string) };
    answer(portal, header, seat.address, &[&config.encode(), string]);
}

/// Config string: reads, tests, sets. A test that fails is silence.
pub(super) fn config(portal: &Rc<Portal>, header: &Header, seat: &VisibleSlot, body: &[u8]) {
    let Ok(query) = Config::decode(body) else {
        return refuse(portal, header, seat.address, error::ARGUMENT);
    };
    let string = seat.slot.rules().string;
    let tells = match query.directive {
        directive::READ => true,
        directive::TEST => string == query.string,
        directive::PREFIX => string.starts_with(query.string),
        directive::SET if !string.is_empty() && string != query.string => {
            return refuse(portal, header, seat.address, error::CONFIG_PRESENT);
        }
        directive::SET | directive::FORCE if string != query.string => {
            return set(portal, header, seat, query);
        }
        directive::SET | directive::FORCE => true,
        _ => return refuse(portal, header, seat.address, error::ARGUMENT),
    };
    if tells {
        send_config(portal, header, seat, query.directive, &string);
    }
}

/// Changes the settings, and answers when they are stored. A change that finds another one under
/// way is not answered: the initiator sends it again.
fn change(
    portal: &Rc<Portal>,
    seat: &VisibleSlot,
    make: impl FnOnce(&Rules) -> Option<Rules> + 'static,
    end: impl FnOnce(&Portal, &VisibleSlot, bool) + 'static,
) {
    let (portal, seat) = (portal.clone(), seat.clone());
    let reactor = portal.per_core.reactor().clone();
    drop(reactor.spawn("aoe change", async move {
        let store = portal.per_core.shared.registry.state_store();
        let slot = seat.address.slot;
        let changed = seat.shelf.config.change(&*store, slot, make).await;
        if let Err(e) = changed
            && e != Errno::Busy
        {
            let what = format_args!("{}: settings cannot be saved: {e}", seat.address);
            portal.per_core.log.warn(what);
        }
        if changed != Err(Errno::Busy) {
            end(&portal, &seat, changed.is_ok());
            portal.kick();
        }
    }));
}

fn set(portal: &Rc<Portal>, header: &Header, seat: &VisibleSlot, query: Config<'_>) {
    let (header, wanted, how) = (*header, query.string.to_vec(), query.directive);
    let string = wanted.clone();
    let make = move |rules: &Rules| {
        // Another initiator may have been first (K2).
        let free = rules.string.is_empty() || how == directive::FORCE;
        free.then(|| Rules { string, ..rules.clone() })
    };
    change(portal, seat, make, move |portal, seat, kept| {
        let now = seat.slot.rules().string;
        match (kept, now == wanted) {
            (true, true) => send_config(portal, &header, seat, how, &now),
            (true, false) => refuse(portal, &header, seat.address, error::CONFIG_PRESENT),
            (false, _) => refuse(portal, &header, seat.address, error::UNAVAILABLE),
        }
    });
}

fn list_masks(portal: &Portal, header: &Header, seat: &VisibleSlot, (command, error): (u8, u8)) {
    let masks = seat.slot.rules().masks;
    let list: Vec<(u8, Mac)> = masks.into_iter().map(|mac| (mask::NOTHING, mac)).collect();
    answer(portal, header, seat.address, &[&Masks::encode(command, error, &list)]);
}

/// Carries out directives in their order, all or none.
fn edit(list: &[Mac], directives: &[(u8, Mac)]) -> Result<Vec<Mac>, u8> {
    let mut list = list.to_vec();
    for (directive, mac) in directives {
        match *directive {
            mask::NOTHING => {}
            mask::ADD if list.contains(mac) => {}
            mask::ADD if list.len() >= LIST_MAX => return Err(mask::FULL),
            mask::ADD => list.push(*mac),
            mask::DELETE => list.retain(|m| m != mac),
            _ => return Err(mask::DIRECTIVE),
        }
    }
    Ok(list)
}

/// MAC mask list: reads, edits.
pub(super) fn masks(portal: &Rc<Portal>, header: &Header, seat: &VisibleSlot, body: &[u8]) {
    let query = match Masks::decode(body) {
        Ok(query) => query,
        Err(_) => return refuse(portal, header, seat.address, error::ARGUMENT),
    };
    match query.command {
        mask::READ => list_masks(portal, header, seat, (mask::READ, 0)),
        mask::EDIT => {
            let directives: Vec<(u8, Mac)> = query.directives().collect();
            let list = match edit(&seat.slot.rules().masks, &directives) {
                Ok(list) => list,
                Err(e) => return list_masks(portal, header, seat, (mask::EDIT, e)),
            };
            let make = move |rules: &Rules| Some(Rules { masks: list, ..rules.clone() });
            let header = *header;
            change(portal, seat, make, move |portal, seat, kept| {
                let error = if kept { 0 } else { mask::UNSPECIFIED };
                list_masks(portal, &header, seat, (mask::EDIT, error));
            });
        }
        _ => refuse(portal, header, seat.address, error::ARGUMENT),
    }
}

fn send_reservation(portal: &Portal, header: &Header, seat: &VisibleSlot, command: u8) {
    let list = seat.slot.rules().reserved;
    answer(portal, header, seat.address, &[&Reserve::encode(command, &list)]);
}

/// Reservation: reads, sets, releases.
pub(super) fn reserve(portal: &Rc<Portal>, header: &Header, seat: &VisibleSlot, body: &[u8]) {
    let Ok(query) = Reserve::decode(body) else {
        return refuse(portal, header, seat.address, error::ARGUMENT);
    };
    let command = query.command;
    match command {
        word::READ => return send_reservation(portal, header, seat, command),
        word::SET if seat.slot.rules().refuses(header.from) => {
            return refuse(portal, header, seat.address, error::RESERVED);
        }
        word::SET | word::FORCE => {}
        _ => return refuse(portal, header, seat.address, error::ARGUMENT),
    }
    let mut list: Vec<Mac> = Vec::new();
    for mac in query.addresses() {
        if !list.contains(&mac) {
            list.push(mac);
        }
    }
    if seat.slot.rules().reserved == list {
        // It arrives a second time, or changes nothing.
        return send_reservation(portal, header, seat, command);
    }
    let (header, wanted) = (*header, list.clone());
    let make = move |rules: &Rules| {
        // Another initiator may have been first (K2).
        let free = command == word::FORCE || !rules.refuses(header.from);
        free.then(|| Rules { reserved: list, ..rules.clone() })
    };
    change(portal, seat, make, move |portal, seat, kept| {
        match (kept, seat.slot.rules().reserved == wanted) {
            (true, true) => send_reservation(portal, &header, seat, command),
            (true, false) => refuse(portal, &header, seat.address, error::RESERVED),
            (false, _) => refuse(portal, &header, seat.address, error::UNAVAILABLE),
        }
    });
}
