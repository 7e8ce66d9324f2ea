//! Reservation state of a unit and the restrictions that it places on a nexus.

use std::collections::BTreeMap;

use wire::scsi::{Asc, PrStatus, PrType, Sense, TransportId};

use crate::flags;

/// Registrations of one unit. One more is refused with INSUFFICIENT REGISTRATION RESOURCES.
pub const REGISTRATIONS_MAX: usize = 4096;

/// An I_T nexus by the names of its ports: the owner of a registration (P4).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Identity {
    pub port: TransportId,
    /// Relative target port identifier.
    pub target: u16,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RequestingNexus<'a> {
    /// Its ports; None for one that SCSI has no name for: it cannot register.
    pub id: Option<&'a Identity>,
    /// Its session, the owner of a SPC-2 reservation.
    pub session: u64,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct PersistentReservation {
    pub kind: PrType,
    /// Who holds it; None when every registrant does (P2).
    pub holder: Option<Identity>,
}

/// A SPC-2 reservation of the whole unit.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Spc2Reservation {
    pub session: u64,
    /// Its nexus, where it has a name: other sessions of the same nexus, on other cores, are no
    /// other holders.
    pub id: Option<Identity>,
}

impl Spc2Reservation {
    /// A nexus that holds it.
    pub fn is_of(&self, id: Option<&Identity>, session: u64) -> bool {
        self.session == session || (id.is_some() && self.id.as_ref() == id)
    }
}

/// Restriction that the unit's reservations place on a nexus.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Restriction {
    /// Nothing.
    None,
    Writes,
    /// Reads and writes.
    All,
    /// Nearly everything: another session holds a SPC-2 reservation.
    Legacy,
}

impl Restriction {
    /// The bits of [`crate::flags`]: which classes of commands end RESERVATION CONFLICT.
    pub const fn bits(self) -> u32 {
        match self {
            Restriction::None => 0,
            Restriction::Writes => flags::RESERVED_WRITE,
            Restriction::All => flags::RESERVED_WRITE | flags::RESERVED_READ,
            Restriction::Legacy => flags::RESERVED,
        }
    }
}

/// Why an action is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// RESERVATION CONFLICT status.
    Conflict,
    /// CHECK CONDITION.
    Sense(Sense),
}

impl From<Sense> for Refusal {
    fn from(sense: Sense) -> Refusal {
        Refusal::Sense(sense)
    }
}

/// Inputs of an action besides the state.
#[derive(Clone, Default, Debug)]
pub struct PortContext {
    /// Relative identifiers of every target port of the sender's transport.
    pub targets: Vec<u16>,
    /// Initiator ports that are logged in somewhere, for TransportIDs that name a whole device.
    pub ports: Vec<TransportId>,
}

/// Notifications and aborts that follow once a change is in effect.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Effects {
    /// Unit attentions, each for every session of a nexus.
    pub attentions: Vec<(Identity, Asc)>,
    /// Nexuses whose commands are aborted (PREEMPT AND ABORT).
    pub aborts: Vec<Identity>,
}

/// A change that was allowed.
#[derive(Clone, PartialEq, Debug)]
pub struct Change {
    /// The state afterwards.
    pub next: Reservations,
    /// Its notifications and aborts.
    pub effects: Effects,
    /// The state has to be on stable storage before GOOD.
    pub save: bool,
}

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Reservations {
    pub(super) generation: u32,
    pub(super) aptpl: bool,
    pub(super) keys: BTreeMap<Identity, u64>,
    pub(super) held: Option<PersistentReservation>,
    pub(super) legacy: Option<Spc2Reservation>,
}

impl Reservations {
    /// PRgeneration: grows with every change of registrations.
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Registrations survive a restart.
    pub fn is_aptpl(&self) -> bool {
        self.aptpl
    }

    /// Registrations with their keys, by growing identity.
    pub fn registrations(&self) -> impl Iterator<Item = (&Identity, u64)> {
        self.keys.iter().map(|(id, key)| (id, *key))
    }

    pub fn held(&self) -> Option<&PersistentReservation> {
        self.held.as_ref()
    }

    /// The SPC-2 reservation.
    pub fn legacy(&self) -> Option<&Spc2Reservation> {
        self.legacy.as_ref()
    }

    /// Nothing is registered or reserved.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.legacy.is_none()
    }

    pub fn key_of(&self, id: &Identity) -> Option<u64> {
        self.keys.get(id).copied()
    }

    /// A registrant that holds the reservation.
    pub fn is_holder(&self, id: &Identity) -> bool {
        match &self.held {
            None => false,
            Some(PersistentReservation { holder: None, .. }) => self.keys.contains_key(id),
            Some(PersistentReservation { holder: Some(holder), .. }) => holder == id,
        }
    }

    /// Restriction of a nexus. `id` is None for one that cannot be named and so cannot register.
    pub fn restriction(&self, id: Option<&Identity>, session: u64) -> Restriction {
        if let Some(legacy) = &self.legacy {
            return match legacy.is_of(id, session) {
                true => Restriction::None,
                false => Restriction::Legacy,
            };
        }
        let Some(held) = &self.held else { return Restriction::None };
        let free = id.is_some_and(|id| {
            self.is_holder(id) || (held.kind.admits_registrants() && self.keys.contains_key(id))
        });
        match (free, held.kind.excludes_reads()) {
            (true, _) => Restriction::None,
            (false, true) => Restriction::All,
            (false, false) => Restriction::Writes,
        }
    }

    /// READ RESERVATION: key and type; the key is zero when every registrant holds it.
    pub fn reservation(&self) -> Option<(u64, PrType)> {
        let held = self.held.as_ref()?;
        let key = held.holder.as_ref().and_then(|id| self.key_of(id)).unwrap_or(0);
        Some((key, held.kind))
    }

    /// READ FULL STATUS.
    pub fn full_status(&self) -> Vec<PrStatus> {
        let kind = self.held.as_ref().map(|h| h.kind);
        let one = |(id, key): (&Identity, u64)| PrStatus {
            key,
            holds: kind.filter(|_| self.is_holder(id)),
            target: id.target,
            port: id.port.clone(),
        };
        self.registrations().map(one).collect()
    }

    /// Checks the invariants; for tests and for records read from disks.
    pub fn is_sound(&self) -> bool {
        let holder = match &self.held {
            None => true,
            Some(PersistentReservation { kind, holder: None }) => {
                kind.is_all_registrants() && !self.keys.is_empty()
            }
            Some(PersistentReservation { kind, holder: Some(id) }) => {
                !kind.is_all_registrants() && self.keys.contains_key(id)
            }
        };
        let apart = self.legacy.is_none() || self.keys.is_empty();
        holder
            && apart
            && self.keys.len() <= REGISTRATIONS_MAX
            && !self.keys.values().any(|k| *k == 0)
    }

    /// P2: removes a registration, and the reservation when no holder is left. Answers the type of
    /// a reservation that ended.
    pub(super) fn remove(&mut self, id: &Identity) -> Option<PrType> {
        self.keys.remove(id);
        let ends = match &self.held {
            None => false,
            Some(PersistentReservation { holder: None, .. }) => self.keys.is_empty(),
            Some(PersistentReservation { holder: Some(holder), .. }) => holder == id,
        };
        if !ends {
            return None;
        }
        self.held.take().map(|h| h.kind)
    }

    /// Notifies the other registrants of the end of a reservation of a kind that admitted them.
    pub(super) fn notify_released(&self, kind: PrType, but: &Identity, effects: &mut Effects) {
        if kind.admits_registrants() {
            let others = self.keys.keys().filter(|id| *id != but);
            let code = wire::scsi::asc::RESERVATIONS_RELEASED;
            effects.attentions.extend(others.map(|id| (id.clone(), code)));
        }
    }
}
