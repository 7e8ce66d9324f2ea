//! Dispatcher of received frames.

use std::rc::Rc;

use bio::Segs;
use wire::aoe::{BROADCAST, Header, VERSION, command, error};

use super::portal::{Portal, SessionKey, VisibleSlot};
use super::{ata, config};

/// Handles one received frame. The result for any contents: an answer, an error, or silence.
pub(super) fn handle(portal: &Rc<Portal>, frame: &[u8]) {
    let Ok((header, body)) = Header::decode(frame) else { return };
    let own = portal.mac();
    // A group address is no valid sender, our own address means a loop, and responses get no
    // answer.
    let foreign = header.to != own && header.to != BROADCAST;
    if header.response || foreign || header.from.is_group() || header.from == own {
        return;
    }
    if header.command == command::ATA && header.address.is_single() {
        let key = SessionKey { mac: header.from, address: header.address };
        let Some(session) = portal.session(key) else { return };
        let (comes, commands) = session.frontend.slot.access_of(key.mac);
        if !comes {
            return;
        }
        session.frontend.last_frame_ns.set(portal.per_core.core.now());
        if header.version != VERSION {
            return refuse(portal, &header, header.address, error::VERSION);
        }
        return ata::command(&session, header.tag, body, commands);
    }
    for seat in portal.visible_slots(header.from, header.address) {
        if header.version != VERSION {
            refuse(portal, &header, seat.address, error::VERSION);
            continue;
        }
        handle_for_slot(portal, &header, &seat, body);
    }
}

fn handle_for_slot(portal: &Rc<Portal>, header: &Header, seat: &VisibleSlot, body: &[u8]) {
    match header.command {
        // One command for many disks is a mistake of the initiator.
        command::ATA => refuse(portal, header, seat.address, error::ARGUMENT),
        command::CONFIG => config::config(portal, header, seat, body),
        command::MASKS => config::masks(portal, header, seat, body),
        command::RESERVE => config::reserve(portal, header, seat, body),
        _ => refuse(portal, header, seat.address, error::COMMAND),
    }
}

pub(super) fn refuse(portal: &Portal, header: &Header, own: wire::aoe::Address, error: u8) {
    let answer = Header { error: Some(error), ..header.answer(portal.mac(), own) };
    portal.send(&answer.encode(), &Segs::new());
}
