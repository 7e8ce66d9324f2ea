//! The service actions of PERSISTENT RESERVE OUT but for the preempting ones, and RESERVE, RELEASE.

use wire::scsi::{PrMove, PrOutAction, PrOutList, PrType, Sense, TransportId, asc};

use super::state::{
    Change, Effects, Identity, PersistentReservation, PortContext, REGISTRATIONS_MAX, Refusal,
    RequestingNexus, Reservations, Spc2Reservation,
};

/// A PERSISTENT RESERVE OUT command.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Request {
    pub action: PrOutAction,
    /// SCOPE field; only 0, the logical unit, is known.
    pub scope: u8,
    /// TYPE field.
    pub kind: u8,
    pub list: PrOutList,
}

/// INVALID FIELD IN CDB at SCOPE and TYPE.
const WRONG_TYPE: Sense = Sense::cdb_field(2, Some(3));
const WRONG_SCOPE: Sense = Sense::cdb_field(2, Some(7));
/// INVALID FIELD IN PARAMETER LIST at SERVICE ACTION RESERVATION KEY.
pub(super) const WRONG_ACTION_KEY: Sense = Sense::list_field(8, None);

impl Reservations {
    /// A PERSISTENT RESERVE OUT command of a nexus. Ok(None): GOOD, and nothing changes.
    pub fn out(
        &self,
        who: RequestingNexus<'_>,
        request: &Request,
        around: &PortContext,
    ) -> Result<Option<Change>, Refusal> {
        // SPC-2 5.5.1: the two kinds of reservation exclude each other (P3).
        if self.legacy.is_some() {
            return Err(Refusal::Conflict);
        }
        // A nexus without a name cannot own a registration.
        let Some(me) = who.id else { return Err(Refusal::Conflict) };
        let list = &request.list;
        let registers =
            matches!(request.action, PrOutAction::Register | PrOutAction::RegisterAndIgnore);
        if !registers && self.key_of(me) != Some(list.key) {
            return Err(Refusal::Conflict);
        }
        match request.action {
            PrOutAction::Register => self.register(me, list, false, around),
            PrOutAction::RegisterAndIgnore => self.register(me, list, true, around),
            PrOutAction::RegisterAndMove => match &list.to {
                Some(to) => self.move_to(me, list, to, around).map(Some),
                None => Err(Sense::new(asc::PARAMETER_LIST_LEN).into()),
            },
            PrOutAction::Clear => Ok(Some(self.clear(Some(me)))),
            PrOutAction::Reserve => self.reserve(me, kind_of(request)?),
            PrOutAction::Release => self.release(me, request),
            PrOutAction::Preempt | PrOutAction::PreemptAndAbort => {
                let abort = request.action == PrOutAction::PreemptAndAbort;
                self.preempt(me, list.action_key, kind_of(request), abort).map(Some)
            }
        }
    }

    /// A change of the registrations: PRgeneration grows, and APTPL decides whether it is saved.
    pub(super) fn changed(&self, mut next: Reservations, effects: Effects) -> Change {
        next.generation = next.generation.wrapping_add(1);
        self.reserved(next, effects)
    }

    fn reserved(&self, next: Reservations, effects: Effects) -> Change {
        // Also when APTPL has just been cleared: the saved state must not reappear.
        let save = self.aptpl || next.aptpl;
        Change { next, effects, save }
    }

    fn register(
        &self,
        me: &Identity,
        list: &PrOutList,
        ignore: bool,
        around: &PortContext,
    ) -> Result<Option<Change>, Refusal> {
        let old = self.key_of(me);
        if !ignore && old.unwrap_or(0) != list.key {
            return Err(Refusal::Conflict);
        }
        match (old, list.action_key) {
            (None, 0) => Ok(None),
            (None, _) => self.register_ports(me, list, around).map(Some),
            // SPEC_I_PT is for a nexus that is not registered (SPC-4 table 55).
            (Some(_), _) if list.has_ports => Err(Sense::cdb_field(1, Some(4)).into()),
            (Some(key), 0) => Ok(Some(self.unregister(me, key, list, ignore))),
            (Some(key), _) => self.rekey(me, key, list, ignore, around).map(Some),
        }
    }

    /// Registers the sender, and with SPEC_I_PT and ALL_TG_PT all named nexuses not yet registered.
    fn register_ports(
        &self,
        me: &Identity,
        list: &PrOutList,
        around: &PortContext,
    ) -> Result<Change, Refusal> {
        let mut ports = vec![me.port.clone()];
        for port in &list.ports {
            ports.extend(named_ports(port, me, around)?);
        }
        let targets = match list.all_targets {
            true => around.targets.as_slice(),
            false => &[],
        };
        let mut next = Reservations { aptpl: list.aptpl, ..self.clone() };
        let own_target = std::iter::once(me.target);
        for target in own_target.chain(targets.iter().copied().filter(|t| *t != me.target)) {
            for port in &ports {
                let id = Identity { port: port.clone(), target };
                next.keys.entry(id).or_insert(list.action_key);
                check_registration_limit(&next)?;
            }
        }
        Ok(self.changed(next, Effects::default()))
    }

    /// The sender's registrations that a REGISTER is about. With ALL_TG_PT they include those at
    /// other target ports, unless another key was registered there that REGISTER would have to
    /// know.
    fn own(&self, me: &Identity, key: u64, list: &PrOutList, ignore: bool) -> Vec<Identity> {
        let mine = |(id, k): &(&Identity, u64)| {
            *id == me || (list.all_targets && id.port == me.port && (ignore || *k == key))
        };
        self.registrations().filter(mine).map(|(id, _)| id.clone()).collect()
    }

    fn rekey(
        &self,
        me: &Identity,
        key: u64,
        list: &PrOutList,
        ignore: bool,
        around: &PortContext,
    ) -> Result<Change, Refusal> {
        let mut next = Reservations { aptpl: list.aptpl, ..self.clone() };
        for id in self.own(me, key, list, ignore) {
            next.keys.insert(id, list.action_key);
        }
        if list.all_targets {
            for target in &around.targets {
                let id = Identity { port: me.port.clone(), target: *target };
                next.keys.entry(id).or_insert(list.action_key);
                check_registration_limit(&next)?;
            }
        }
        Ok(self.changed(next, Effects::default()))
    }

    fn unregister(&self, me: &Identity, key: u64, list: &PrOutList, ignore: bool) -> Change {
        let mut next = Reservations { aptpl: list.aptpl, ..self.clone() };
        let mut effects = Effects::default();
        let mut ended = None;
        for id in self.own(me, key, list, ignore) {
            ended = next.remove(&id).or(ended);
        }
        if let Some(kind) = ended {
            next.notify_released(kind, me, &mut effects);
        }
        self.changed(next, effects)
    }

    fn move_to(
        &self,
        me: &Identity,
        list: &PrOutList,
        to: &PrMove,
        around: &PortContext,
    ) -> Result<Change, Refusal> {
        let Some(held) = &self.held else {
            return Err(Sense::cdb_field(1, Some(4)).into());
        };
        if held.kind.is_all_registrants() || !self.is_holder(me) {
            return Err(Refusal::Conflict);
        }
        if list.action_key == 0 {
            return Err(WRONG_ACTION_KEY.into());
        }
        if !around.targets.contains(&to.target) {
            return Err(Sense::list_field(18, None).into());
        }
        // A reservation has one holder: a name of a whole device must mean one port.
        let ports = named_ports(&to.port, me, around).map_err(|_| Sense::list_field(24, None))?;
        let [port] = ports.as_slice() else {
            return Err(Sense::list_field(24, None).into());
        };
        let id = Identity { port: port.clone(), target: to.target };
        if id == *me {
            return Err(Sense::list_field(24, None).into());
        }
        let mut next = Reservations { aptpl: list.aptpl, ..self.clone() };
        next.keys.insert(id.clone(), list.action_key);
        next.held = Some(PersistentReservation { kind: held.kind, holder: Some(id) });
        if to.unregister {
            next.keys.remove(me);
        }
        check_registration_limit(&next)?;
        Ok(self.changed(next, Effects::default()))
    }

    /// CLEAR; all registrants except `me` are notified.
    fn clear(&self, me: Option<&Identity>) -> Change {
        let mut next = self.clone();
        next.keys.clear();
        next.held = None;
        let others = self.keys.keys().filter(|id| Some(*id) != me);
        let attentions = others.map(|id| (id.clone(), asc::RESERVATIONS_PREEMPTED)).collect();
        self.changed(next, Effects { attentions, aborts: Vec::new() })
    }

    /// State after the operator cleared it: neither registrations nor reservations.
    pub fn cleared(&self) -> Change {
        let mut change = self.clear(None);
        change.next.legacy = None;
        change
    }

    fn reserve(&self, me: &Identity, kind: PrType) -> Result<Option<Change>, Refusal> {
        match &self.held {
            Some(held) if self.is_holder(me) && held.kind == kind => Ok(None),
            Some(_) => Err(Refusal::Conflict),
            None => {
                let holder = (!kind.is_all_registrants()).then(|| me.clone());
                let next = Reservations {
                    held: Some(PersistentReservation { kind, holder }),
                    ..self.clone()
                };
                Ok(Some(self.reserved(next, Effects::default())))
            }
        }
    }

    fn release(&self, me: &Identity, request: &Request) -> Result<Option<Change>, Refusal> {
        let Some(held) = self.held.as_ref().filter(|_| self.is_holder(me)) else {
            return Ok(None);
        };
        if request.scope != 0 || request.kind != held.kind.code() {
            return Err(Sense::new(asc::INVALID_RELEASE).into());
        }
        let next = Reservations { held: None, ..self.clone() };
        let mut effects = Effects::default();
        next.notify_released(held.kind, me, &mut effects);
        Ok(Some(self.reserved(next, effects)))
    }

    /// RESERVE(6), RESERVE(10). Ok(None): GOOD, and nothing changes. Beside registrations it does
    /// nothing for nexuses that have access (CRH) and conflicts for others.
    pub fn reserve_unit(&self, who: RequestingNexus<'_>) -> Result<Option<Reservations>, Refusal> {
        if !self.keys.is_empty() {
            return if self.is_compatible(who.id) { Ok(None) } else { Err(Refusal::Conflict) };
        }
        match &self.legacy {
            Some(legacy) if legacy.is_of(who.id, who.session) => Ok(None),
            Some(_) => Err(Refusal::Conflict),
            None => {
                let legacy = Some(Spc2Reservation { session: who.session, id: who.id.cloned() });
                Ok(Some(Reservations { legacy, ..self.clone() }))
            }
        }
    }

    /// RELEASE(6), RELEASE(10): always GOOD, but it has an effect only for the holder.
    pub fn release_unit(&self, who: RequestingNexus<'_>) -> Result<Option<Reservations>, Refusal> {
        if !self.keys.is_empty() {
            return if self.is_compatible(who.id) { Ok(None) } else { Err(Refusal::Conflict) };
        }
        let mine = self.legacy.as_ref().is_some_and(|l| l.is_of(who.id, who.session));
        Ok(mine.then(|| self.reset()).flatten())
    }

    /// SPC-4 5.12.3, compatible reservation handling.
    fn is_compatible(&self, id: Option<&Identity>) -> bool {
        let (Some(held), Some(id)) = (&self.held, id) else { return false };
        self.is_holder(id) || (held.kind.admits_registrants() && self.keys.contains_key(id))
    }

    /// A session has ended or its nexus was lost: a SPC-2 reservation ends with it (P4). None when
    /// it had none.
    pub fn without_session(&self, session: u64) -> Option<Reservations> {
        let mine = self.legacy.as_ref().is_some_and(|l| l.session == session);
        mine.then(|| self.reset()).flatten()
    }

    /// The unit was reset: a SPC-2 reservation ends, persistent ones stay. None when nothing
    /// changes.
    pub fn reset(&self) -> Option<Reservations> {
        self.legacy.as_ref().map(|_| Reservations { legacy: None, ..self.clone() })
    }
}

/// Scope and type of a RESERVE or PREEMPT.
fn kind_of(request: &Request) -> Result<PrType, Refusal> {
    if request.scope != 0 {
        return Err(WRONG_SCOPE.into());
    }
    PrType::from_code(request.kind).ok_or(Refusal::Sense(WRONG_TYPE))
}

fn check_registration_limit(next: &Reservations) -> Result<(), Refusal> {
    match next.keys.len() > REGISTRATIONS_MAX {
        true => Err(Sense::new(asc::OUT_OF_RESERVATIONS).into()),
        false => Ok(()),
    }
}

/// The initiator ports that a TransportID of the sender's transport means: itself, or every known
/// port of a device.
fn named_ports(
    port: &TransportId,
    me: &Identity,
    around: &PortContext,
) -> Result<Vec<TransportId>, Refusal> {
    let wrong = Refusal::Sense(Sense::list_field(28, None));
    if port.protocol() != me.port.protocol() {
        return Err(wrong);
    }
    if !port.is_device() {
        return Ok(vec![port.clone()]);
    }
    let same = |p: &&TransportId| !p.is_device() && p.iscsi_name() == port.iscsi_name();
    let mut known: Vec<TransportId> = around.ports.iter().filter(same).cloned().collect();
    known.sort();
    known.dedup();
    if known.is_empty() { Err(wrong) } else { Ok(known) }
}
