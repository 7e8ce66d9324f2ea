//! Current reservations of one unit, shared by all cores.
//!
//! ```text
//!   turn() --> state() --> decide --> (save) --> commit(): swap, bits of every nexus, attentions
//! ```
//!
//! Invariants
//!  L1  One change at a time, saving included: a change waits for its turn, on any core.
//!  L2  The bits of every nexus follow the state under the lock that guards it. A nexus that is
//!      added meanwhile has the bits of the old state before the swap or of the new one after.
//!  L3  A change is reported (GOOD, attentions) after the bits are set: a command that arrives on
//!      any nexus after the answer left meets them.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bio::sync::{Mutex, MutexGuard};
use wire::scsi::Asc;

use crate::flags;
use crate::reservations::{Effects, Identity, Reservations};
use crate::unit::Device;
use crate::unit::unit_attention::ItlNexus;

#[derive(Default)]
struct Inner {
    state: Arc<Reservations>,
    busy: bool,
    waiting: Vec<Waker>,
}

#[derive(Default)]
pub struct UnitReservations(Mutex<Inner>);

impl UnitReservations {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock()
    }

    pub fn state(&self) -> Arc<Reservations> {
        self.inner().state.clone()
    }

    /// The state now; `None` when nothing is registered or reserved.
    pub(crate) fn state_in_use(&self) -> Option<Arc<Reservations>> {
        let inner = self.inner();
        (!inner.state.is_empty()).then(|| inner.state.clone())
    }

    /// Sets the state from a saved record, before any nexus exists.
    pub(crate) fn load(&self, state: Reservations) {
        self.inner().state = Arc::new(state);
    }

    /// Waits for the right to change something (L1).
    pub(crate) fn lock_for_change(&self) -> ChangeWait<'_> {
        ChangeWait(self)
    }

    /// The exclusive right to change the state, if it is free.
    pub(crate) fn try_lock_for_change(&self) -> Option<ChangeGuard<'_>> {
        let mut inner = self.inner();
        (!std::mem::replace(&mut inner.busy, true)).then_some(ChangeGuard(self))
    }

    /// A nexus that has just been enlisted gets its bits (L2).
    pub(crate) fn apply_to_nexus(&self, nexus: &ItlNexus) {
        let inner = self.inner();
        set_nexus_flags(&inner.state, nexus);
    }

    /// A session has left the unit: a SPC-2 reservation of its own ends.
    pub(crate) fn session_ended(&self, device: &Device, session: u64) {
        let mut inner = self.inner();
        if let Some(next) = inner.state.without_session(session) {
            swap(&mut inner, device, next);
        }
    }

    /// The unit was reset.
    pub(crate) fn reset(&self, device: &Device) {
        let mut inner = self.inner();
        if let Some(next) = inner.state.reset() {
            swap(&mut inner, device, next);
        }
    }
}

/// The bits of a nexus are those of the state.
fn set_nexus_flags(state: &Reservations, nexus: &ItlNexus) {
    let port = nexus.port();
    let restriction = state.restriction(port.identity.as_ref(), port.session);
    nexus.put(flags::RESERVED, restriction.bits());
}

fn swap(inner: &mut Inner, device: &Device, next: Reservations) {
    inner.state = Arc::new(next);
    for nexus in device.nexuses() {
        set_nexus_flags(&inner.state, &nexus);
    }
}

/// Waits for one's turn.
pub(crate) struct ChangeWait<'a>(&'a UnitReservations);

impl<'a> Future for ChangeWait<'a> {
    type Output = ChangeGuard<'a>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<ChangeGuard<'a>> {
        let mut inner = self.0.inner();
        if inner.busy {
            inner.waiting.push(cx.waker().clone());
            return Poll::Pending;
        }
        inner.busy = true;
        Poll::Ready(ChangeGuard(self.0))
    }
}

/// The right to change the reservations of a unit; dropped, the next one may.
pub(crate) struct ChangeGuard<'a>(&'a UnitReservations);

impl ChangeGuard<'_> {
    /// The state, which only the owner of the turn changes, but for a SPC-2 reservation that ends.
    pub fn state(&self) -> Arc<Reservations> {
        self.0.state()
    }

    /// Makes a change hold: bits first, then attentions (L3).
    pub fn commit(&self, device: &Device, next: Reservations, effects: &Effects) {
        let mut inner = self.0.inner();
        swap(&mut inner, device, next);
        if effects.attentions.is_empty() {
            return;
        }
        let codes: BTreeMap<&Identity, Asc> =
            effects.attentions.iter().map(|(id, code)| (id, *code)).collect();
        for nexus in device.nexuses() {
            let code = nexus.port().identity.as_ref().and_then(|id| codes.get(id));
            if let Some(code) = code {
                nexus.raise(*code);
            }
        }
    }
}

impl Drop for ChangeGuard<'_> {
    fn drop(&mut self) {
        let waiting = {
            let mut inner = self.0.inner();
            inner.busy = false;
            std::mem::take(&mut inner.waiting)
        };
        waiting.into_iter().for_each(Waker::wake);
    }
}
