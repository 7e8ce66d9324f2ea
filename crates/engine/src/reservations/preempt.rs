//! PREEMPT and PREEMPT AND ABORT (SPC-4 5.12.11.4, 5.12.11.5).
//!
//! ```text
//!   is there a reservation?
//!     all registrants:  key 0 ------> all other registrations end, the sender reserves anew
//!                       another key -> those registrations end
//!     one holder:       its key ----> its registrations end, the sender reserves anew
//!                       another key -> those registrations end; key 0 is an error
//!     none:             ------------> those registrations end; key 0 is an error
//! ```

use wire::scsi::{PrType, asc};

use super::actions::WRONG_ACTION_KEY;
use super::state::{Change, Effects, Identity, PersistentReservation, Refusal, Reservations};

impl Reservations {
    /// The sender is registered and has given its key.
    pub(super) fn preempt(
        &self,
        me: &Identity,
        key: u64,
        kind: Result<PrType, Refusal>,
        abort: bool,
    ) -> Result<Change, Refusal> {
        let takes = match &self.held {
            None => false,
            Some(PersistentReservation { holder: None, .. }) => key == 0,
            Some(PersistentReservation { holder: Some(holder), .. }) => {
                self.key_of(holder) == Some(key)
            }
        };
        if !takes && key == 0 {
            return Err(WRONG_ACTION_KEY.into());
        }
        let victims: Vec<Identity> = self
            .registrations()
            .filter(|(id, k)| (key == 0 || *k == key) && !(takes && *id == me))
            .map(|(id, _)| id.clone())
            .collect();
        if takes {
            // SCOPE and TYPE mean something only here.
            return Ok(self.take_over(me, kind?, &victims, abort));
        }
        if victims.is_empty() {
            return Err(Refusal::Conflict);
        }
        Ok(self.remove_registrations(me, &victims, abort))
    }

    /// The reservation changes hands.
    fn take_over(&self, me: &Identity, kind: PrType, victims: &[Identity], abort: bool) -> Change {
        let mut next = self.clone();
        next.keys.retain(|id, _| !victims.contains(id));
        let holder = (!kind.is_all_registrants()).then(|| me.clone());
        let old = next.held.replace(PersistentReservation { kind, holder }).map(|h| h.kind);
        let mut effects = preempt_effects(me, victims, abort);
        if old != Some(kind) {
            let others = next.keys.keys().filter(|id| *id != me);
            let to_notify = others.map(|id| (id.clone(), asc::RESERVATIONS_RELEASED));
            effects.attentions.extend(to_notify);
        }
        self.changed(next, effects)
    }

    /// Registrations end, maybe the sender's own among them, and with the last one of an "all
    /// registrants" reservation the reservation.
    fn remove_registrations(&self, me: &Identity, victims: &[Identity], abort: bool) -> Change {
        let mut next = self.clone();
        for id in victims {
            next.remove(id);
        }
        self.changed(next, preempt_effects(me, victims, abort))
    }
}

/// Nexuses that lost their registration are notified, and lose their commands with ABORT.
fn preempt_effects(me: &Identity, victims: &[Identity], abort: bool) -> Effects {
    let others: Vec<Identity> = victims.iter().filter(|id| *id != me).cloned().collect();
    let to_notify = others.iter().map(|id| (id.clone(), asc::REGISTRATIONS_PREEMPTED));
    Effects { attentions: to_notify.collect(), aborts: if abort { others } else { Vec::new() } }
}
