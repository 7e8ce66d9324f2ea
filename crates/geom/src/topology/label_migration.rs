//! Transfer of metadata that a class left at the former end of a provider to its present end.
//!
//! ```text
//!   Verdict::Left --> opened alone, hidden from all others --> written at the end, durable -->
//!        closed --> tasted again: it is at the present end
//! ```
//!
//! The old copy stays: after a power cut it exists alone, or both exist. Geoms that know of no
//! other end believe only the copy at the present end. The old copy is not cleared: another path to
//! the same disk may already be in use through the new copy, and the old place may contain data.
//!
//! Invariants
//!  C1  Metadata is carried once for each size, and the result is reported: the transfer to a
//!      failing disk is not retried for ever.
//!  C2  The same metadata is not carried over two paths at once: one would write old metadata over
//!      data that the other path, and other users since, have written.
//!  C3  Nothing else is found on the provider before the metadata is at its end, though it may
//!      never be moved there. The exception is other content that is there too: then an operator
//!      has to choose between them.

use std::rc::Rc;

use bio::Errno;

use super::{Access, GeomId, ProviderId, Topology};
use crate::class::{Geom, Local};
use crate::core::Core;
use crate::health::Severity;
use crate::layer::Edge;
use crate::notify::Notice;

/// Writes the metadata at the end of a provider, through the edge, and makes it durable. It reads
/// the end first, which may have changed since the tasting.
pub type Carry =
    Box<dyn for<'a> FnOnce(&'a Rc<Core>, Edge) -> Local<'a, Result<(), String>> + Send>;

/// Metadata that a class has found at the former end of a provider.
pub struct Left {
    /// The size that it had, bytes.
    pub was: u64,
    /// Its identity: the same over another path to the same disk.
    pub key: Vec<u8>,
    /// Moves it to the end; or the reason why an operator has to decide that.
    pub carry: Result<Carry, String>,
    /// What to type if that fails.
    pub by_hand: String,
}

/// One that is being carried.
pub(super) struct Carried {
    class: usize,
    key: Vec<u8>,
    geom: GeomId,
    /// Other ways to it, to be looked at when it has been.
    others: Vec<ProviderId>,
}

/// The result of a transfer on one provider (C1).
pub(super) struct Attempt {
    class: usize,
    bytes: u64,
    why: String,
}

/// Every core knows the way to it.
struct Known;

/// It is there, or why not.
struct Ended(Result<(), String>);

/// Has the provider open meanwhile.
struct Carrier {
    on: ProviderId,
    class: usize,
    was: u64,
    /// The size for which it is carried, bytes.
    bytes: u64,
    by_hand: String,
    work: Option<(Edge, Carry)>,
}

impl Geom for Carrier {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        _: Access,
    ) -> Result<(), Errno> {
        Err(Errno::NxIo)
    }

    /// A transfer in progress fails by itself.
    fn orphan(&mut self, _: &mut Topology, _: GeomId, _: super::ConsumerId, _: Errno) {}

    fn on_notice(&mut self, t: &mut Topology, me: GeomId, notice: Notice) {
        match (notice.downcast::<Ended>(), self.work.take()) {
            (Ok(ended), _) => t.has_carried(self, me, ended.0),
            (Err(notice), Some((edge, carry))) if notice.is::<Known>() => {
                t.send_carry(me, edge, carry);
            }
            (Err(_), _) => t.has_carried(self, me, Err("the core has stopped".into())),
        }
    }
}

impl Topology {
    /// Carries the metadata that a class has left on a provider to its end, if possible; returns
    /// the outcome as text.
    pub(super) fn bring(&mut self, p: ProviderId, class: usize, why: &str, left: Left) -> String {
        let carry = match left.carry {
            Ok(carry) => carry,
            Err(what) => {
                let said = format!("{why}, {what}");
                self.ask_once(p, class, &said);
                return said;
            }
        };
        // C3
        self.set_hidden(p, class, true);
        let left = (left.was, left.key, carry, left.by_hand);
        match self.carry(p, class, left) {
            Ok(said) => format!("{why}, {said}"),
            Err(said) => format!("{why}, but {said}"),
        }
    }

    /// Reports a decision that an operator has to make to the journal, once for each size.
    fn ask_once(&mut self, p: ProviderId, class: usize, why: &str) {
        let Some(pp) = self.providers.get_mut(p) else { return };
        let (geom, name, bytes) = (pp.geom, pp.name.clone(), pp.limits.media_bytes);
        if pp.attempts.iter().any(|a| (a.class, a.bytes) == (class, bytes)) {
            return;
        }
        pp.attempts.retain(|a| a.class != class);
        pp.attempts.push(Attempt { class, bytes, why: why.to_owned() });
        let said = format!("{name} may be one of {}: {why}", self.classes[class].name());
        self.remark(geom, Severity::Degraded, &said);
    }

    /// Begins to carry; otherwise why not.
    fn carry(
        &mut self,
        p: ProviderId,
        class: usize,
        (was, key, carry, by_hand): (u64, Vec<u8>, Carry, String),
    ) -> Result<&'static str, String> {
        let (bytes, name) = match self.providers.get(p) {
            Some(pp) => (pp.limits.media_bytes, pp.name.clone()),
            None => return Err("it went away meanwhile".into()),
        };
        let attempts = self.providers.get(p).map_or(&[][..], |pp| &pp.attempts);
        if let Some(tried) = attempts.iter().find(|a| (a.class, a.bytes) == (class, bytes)) {
            return Err(tried.why.clone());
        }
        let same = |c: &&mut Carried| c.class == class && c.key == key;
        if let Some(carried) = self.carrying.iter_mut().find(same) {
            carried.others.push(p);
            return Ok("it is brought to the end by another way to it");
        }
        // E1
        self.will_end(p, bytes);
        let why = format!("what {name} is known by is where it ended when it was smaller");
        let carrier = Carrier { on: p, class, was, bytes, by_hand, work: None };
        let of = self.classes[class].name();
        let geom = self.new_geom(of, &format!("end of {name}"), &why, Box::new(carrier));
        let geom = geom.map_err(|e| e.to_string())?;
        self.set_hand(geom);
        let opened = self.attach_new(geom, p).and_then(|consumer| {
            self.access(consumer, Access::EXCLUSIVE).inspect_err(|_| self.leave(consumer))?;
            Ok(consumer)
        });
        let consumer = opened.map_err(|e| {
            self.wither_geom(geom, Errno::NxIo);
            format!("it cannot be opened to bring it to the end: {}", e.text())
        })?;
        let work = (self.edge(consumer), carry);
        self.with(geom, |carrier: &mut Carrier, _| carrier.work = Some(work));
        self.carrying.push(Carried { class, key, geom, others: Vec::new() });
        self.barrier(geom, Box::new(Known));
        Ok("it is brought to the end")
    }

    fn send_carry(&self, geom: GeomId, edge: Edge, carry: Carry) {
        let (board, name) = (self.notifier(), self.geom_name(geom).to_owned());
        let answers = board.clone();
        board.call(
            0,
            Box::new(move |core| {
                let (on, core) = (core, core.clone());
                on.spawn_for("carrying the", &name, async move {
                    let ended = carry(&core, edge).await;
                    answers.post(geom, Box::new(Ended(ended)));
                });
            }),
        );
    }

    fn has_carried(&mut self, carrier: &Carrier, geom: GeomId, ended: Result<(), String>) {
        let Carrier { on, class, was, bytes, ref by_hand, .. } = *carrier;
        let (grade, why) = match ended {
            Ok(()) => (Severity::Good, "it was brought to the end".to_owned()),
            Err(e) => {
                let why = format!("it could not be brought to the end: {e}; {by_hand} tries again");
                (Severity::Failed, why)
            }
        };
        let said = format!("it is known by what is where it ended when it had {was} bytes: {why}");
        self.remark(geom, grade, &said);
        if let Some(pp) = self.providers.get_mut(on) {
            pp.attempts.retain(|a| a.class != class);
            pp.attempts.push(Attempt { class, bytes, why });
        }
        // The geom goes first: what looks at the provider again must not take it for a user.
        let consumers = self.consumers_of(geom).to_vec();
        self.wither_geom(geom, Errno::NxIo);
        consumers.into_iter().for_each(|c| self.leave(c));
        let at = self.carrying.iter().position(|c| c.geom == geom);
        let others = at.map(|at| self.carrying.swap_remove(at).others).unwrap_or_default();
        others.into_iter().for_each(|other| self.retaste(other));
    }
}
