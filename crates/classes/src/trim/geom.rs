//! The geom of a queue of trims.
//!
//! Invariants
//!  J1  While a consumer above may write, the provider below is open exclusively: no other consumer
//!      writes data that the queue would later delete.
//!  J2  When no consumer above may write any more, the queue is emptied before that access ends.
//!      The provider below stays open for writing, exclusively, until the command in flight has
//!      ended.

use std::sync::Arc;

use bio::Errno;
use geom::{
    Access, ClassParams, ConsumerId, DELETES, Deletes, Event, Geom, GeomId, Notice, ProviderId,
    Settings, Topology, Trouble, message_of,
};

use super::params::TrimParams;
use super::shared::{Message, TrimShared};

/// See the module.
pub struct TrimGeom {
    pub(super) shared: Arc<TrimShared>,
    pub(super) consumer: ConsumerId,
    pub(super) params: TrimParams,
    /// Access counts of the consumers above.
    pub(super) open: Access,
    /// It keeps the provider below open for itself (J2).
    pub(super) holds: bool,
}

impl TrimGeom {
    /// The access below while the consumers above have `open`.
    fn wanted(&self, open: Access) -> Access {
        let holds = i32::from(self.holds);
        let alone = if open.w > 0 { 1 } else { holds };
        Access { r: open.r, w: open.w + holds, e: open.e + alone }
    }

    fn settle(&self, t: &mut Topology, open: Access) -> Result<(), Errno> {
        let delta = self.wanted(open).plus(t.consumer_counts(self.consumer).inverse());
        match t.below(self.consumer) {
            Some(_) if delta == Access::NONE => Ok(()),
            Some(_) => t.access(self.consumer, delta),
            None => Err(Errno::NxIo),
        }
    }
}

impl Geom for TrimGeom {
    fn access(
        &mut self,
        t: &mut Topology,
        _: GeomId,
        _: ProviderId,
        delta: Access,
    ) -> Result<(), Errno> {
        let closing = delta.r <= 0 && delta.w <= 0 && delta.e <= 0;
        let (before, after) = (self.open, self.open.plus(delta));
        if before.w > 0 && after.w <= 0 {
            self.holds = self.shared.delete_queue.set_open(false);
        }
        match self.settle(t, after) {
            Ok(()) => {}
            // A pure close never fails.
            Err(_) if closing => {}
            Err(e) => return Err(e),
        }
        self.open = after;
        if before.w <= 0 && after.w > 0 {
            self.shared.delete_queue.set_open(true);
            self.holds = false;
            // The access kept for the command in flight is now that of the consumers above.
            return self.settle(t, after);
        }
        Ok(())
    }

    fn on_notice(&mut self, t: &mut Topology, _: GeomId, notice: Notice) {
        if message_of(notice) == Ok(Message::Drained) && self.holds {
            self.holds = false;
            // A close cannot be refused.
            let _ = self.settle(t, self.open);
        }
    }

    fn resizes(&self) -> bool {
        true
    }

    fn resized(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId) {
        let size = t.below(consumer).and_then(|p| t.limits(p)).map(|l| l.media_bytes);
        match (size, t.providers_of(me).first().copied()) {
            (Some(size), Some(provider)) if size > 0 => {
                self.shared.delete_queue.cut_off(size);
                t.post(Event::Resize(provider, size));
            }
            _ => t.wither_geom(me, Errno::NxIo),
        }
    }

    /// Limits are looked at again: a layer or a member was added or removed below.
    fn attr_changed(&mut self, t: &mut Topology, me: GeomId, consumer: ConsumerId, name: &str) {
        t.pass_up_attr(me, name);
        let below = t.below(consumer).filter(|_| name == DELETES);
        let Some((below, numbers)) = below.and_then(|p| Some((p, t.limits(p)?))) else { return };
        // If a granule set by hand does not fit any more, the old limits stay.
        if let Ok(limits) = self.params.limits(&numbers, t.deletes(below)) {
            self.shared.delete_queue.set_limits(limits);
        }
    }

    fn deletes(&self, t: &Topology, me: GeomId, _: ProviderId) -> Deletes {
        let below = t.deletes_below(me);
        match self.shared.defers {
            // They wait here, as many as there are.
            true => Deletes { granule: below.granule, offset: below.offset, ..Deletes::of(1) },
            false => below,
        }
    }

    fn release_command(&self, t: &Topology, me: GeomId, _: ConsumerId) -> Option<String> {
        Some(format!("ashlar trim destroy {}", t.geom_name(me)))
    }

    fn show(&self, _: &Topology, _: GeomId) -> Vec<(&'static str, String)> {
        super::show::lines(&self.shared, &self.params)
    }

    fn settings(&self, _: &Topology, _: GeomId) -> Settings {
        self.params.settings()
    }

    fn troubles(&self, t: &Topology, me: GeomId) -> Vec<Trouble> {
        let fill = self.shared.delete_queue.fill();
        let name = t.geom_name(me);
        if fill.off {
            let why = "the device below does not take deletes";
            let action = format!("`ashlar trim destroy {name}` removes the queue");
            return vec![Trouble::degraded(why, action)];
        }
        if fill.in_doubt {
            let why = "the device below did not answer a delete; writes to its bytes wait, for it \
                       may yet be carried out";
            return vec![Trouble::degraded(why, "wait a minute, then check the device")];
        }
        Vec::new()
    }
}

impl Drop for TrimGeom {
    fn drop(&mut self) {
        self.shared.delete_queue.stop();
    }
}
