//! Assembly of a mirror: members are found, it starts, there is a provider.

use std::sync::Arc;

use bio::{Attr, Errno};
use geom::{Error, GeomId, Limits, NewProvider, ProviderId, Severity, Topology};

use super::{Job, MirrorGeom};
use crate::members::{REFUSALS_MAX, attach_alone, waiting, zeroes};
use crate::mirror::NAME;
use crate::mirror::bitmap::Bits;
use crate::mirror::class::TastedMember;
use crate::mirror::layer::MirrorLayer;
use crate::mirror::shared::Message;
use crate::mirror::state::{Arrival, Role};

/// How the reason begins for which a member with the mark of `deactivate` is refused.
const DEACTIVATED: &str = "this member was deactivated";

impl MirrorGeom {
    /// Adds a provider whose record was read. It is opened exclusively, so that no other class
    /// claims its content.
    pub(in crate::mirror) fn take_in(
        &mut self,
        t: &mut Topology,
        me: GeomId,
        on: ProviderId,
        seen: TastedMember,
    ) -> Result<(), Error> {
        let name = t.provider_name(on).to_owned();
        let gone = || Error::new(Errno::NxIo, format!("{name} was removed"));
        let limits = t.limits(on).ok_or_else(gone)?;
        if self.unrebuildable.contains(&seen.record.disk) {
            let why = "its rebuild found no member that could be read: `ashlar mirror forget` and \
                       `insert` add it again";
            self.refuse(t, &name, why);
            return Err(Error::inval(why));
        }
        let record = seen.record.clone();
        match self.mirror.arrive(record, limits.media_bytes, limits.sector_bytes) {
            Arrival::In(slot) => match attach_alone(t, me, on) {
                Ok(consumer) => {
                    self.consumers.insert(slot, consumer);
                    if let Some(Some(member)) = self.mirror.slots.get_mut(slot) {
                        member.bits = seen.bits;
                    }
                    self.refused.forget(&name);
                    self.note_identity(t, on, slot);
                    self.arrived(t, me, slot);
                    Ok(())
                }
                Err(e) => {
                    self.mirror.vacate(slot);
                    Err(e)
                }
            },
            Arrival::Instead(slot) => {
                let consumer = self.consumers.remove(&slot);
                self.mirror.vacate(slot);
                // It is looked at again, and refused, when this one has been taken in.
                consumer.into_iter().for_each(|c| t.leave(c));
                self.take_in(t, me, on, seen)
            }
            Arrival::Twin => {
                if self.duplicates.len() < REFUSALS_MAX && !self.duplicates.contains(&on) {
                    self.duplicates.push(on);
                    if self.mirror.running {
                        self.mirror.outdate_absent();
                        self.push(t, me, Job::Rewrite);
                    }
                }
                let why = "this member is there already: the same disk by another name, or a copy";
                self.refuse(t, &name, why);
                Err(Error::new(Errno::Exist, why))
            }
            Arrival::Inactive => {
                let why = format!(
                    "{DEACTIVATED}: `ashlar {NAME} activate {} {name}` adds it again",
                    self.mirror.name
                );
                self.refuse(t, &name, &why);
                Err(Error::inval(why))
            }
            Arrival::Refused(why) => {
                self.refuse(t, &name, &why);
                Err(Error::inval(why))
            }
        }
    }

    /// Whether a provider has a record of this mirror: one in use, or one that was deactivated.
    pub(in crate::mirror) fn has_record_on(&self, t: &Topology, name: &str) -> bool {
        let is_inactive = |why: &str| why.starts_with(DEACTIVATED);
        self.slot_called(t, name).is_some() || self.refused.reason(name).is_some_and(is_inactive)
    }

    /// Providers with records of it that it does not use.
    pub(in crate::mirror) fn refused_providers(&self, t: &Topology) -> Vec<ProviderId> {
        self.refused.names().filter_map(|name| t.find(name)).collect()
    }

    pub(super) fn refuse(&mut self, t: &mut Topology, name: &str, why: &str) {
        self.refused.note(t, self.shared.geom, name, why);
    }

    /// M11: another disk than the one that had its number may be a copy of that one.
    fn note_identity(&mut self, t: &Topology, on: ProviderId, slot: usize) {
        let Some(Attr::Text(ident)) = t.attr(on, "GEOM::ident") else { return };
        let Some(disk) = self.mirror.member(slot).map(|m| m.record.disk) else { return };
        if ident.is_empty() {
            return;
        }
        if self.idents.is_another(disk, ident) && self.mirror.running {
            self.mirror.outdate_absent();
        }
    }

    fn arrived(&mut self, t: &mut Topology, me: GeomId, slot: usize) {
        if self.mirror.running {
            // The cores must know its edge before they may use it.
            t.barrier(me, Box::new(Message::CoresUpdated(slot)));
            return;
        }
        let depth = waiting::depth(t, self.consumers.values().copied());
        self.waiting.add(me, depth, self.mirror.media_bytes);
        // A mirror made by hand has no other members.
        let all = self.mirror.members().count() >= usize::from(self.mirror.all);
        if self.mirror.is_complete() || self.start_failed || self.mirror.manual && all {
            t.barrier(me, Box::new(Message::Launch));
        } else {
            let (count, start_ns) = (self.mirror.members().count(), self.shared.tunables.start_ns);
            if count == 1 {
                self.shared.post_after(start_ns, Message::Due);
            }
            if count >= usize::from(self.mirror.all) {
                // The number is complete, but some are old: one that is newer than all may still
                // appear.
                self.shared.post_after(start_ns / 4, Message::Due);
            }
        }
    }

    /// The time to wait for further members is up, unless a missing member may still appear
    /// (waiting W1).
    pub(super) fn due(&mut self, t: &mut Topology, me: GeomId) {
        if self.waiting.must_wait(me) {
            let soon = self.shared.tunables.start_ns / 4;
            return self.shared.post_after(soon, Message::Due);
        }
        t.barrier(me, Box::new(Message::Launch));
    }

    /// Starts with the present members, if it has not started.
    pub(in crate::mirror) fn launch(&mut self, t: &mut Topology, me: GeomId) {
        if self.mirror.running || self.mirror.members().next().is_none() {
            return;
        }
        self.waiting.remove(me);
        match self.mirror.start() {
            Err(why) => {
                if self.fault.as_ref() != Some(&why) {
                    t.remark(me, Severity::Failed, &format!("the mirror does not start: {why}"));
                }
                self.fault = Some(why);
                self.start_failed = true;
            }
            Ok(broken) => {
                for (slot, why) in broken {
                    if let Some(consumer) = self.consumers.remove(&slot) {
                        let name = t.below(consumer).map(|p| t.provider_name(p).to_owned());
                        let name = name.unwrap_or_default();
                        self.refuse(t, &name, &why);
                        t.leave(consumer);
                    }
                }
                self.fault = None;
                if let Some(declared) = self.declared.take() {
                    self.mirror.work_as(declared);
                }
                if !self.duplicates.is_empty() {
                    self.mirror.outdate_absent();
                }
                let mut members = self.consumers.values().filter_map(|c| t.below(*c));
                self.zeroes = members.all(|p| zeroes(t, p));
                self.bits = self.mirror.shape().map(|shape| Arc::new(Bits::new(shape)));
                self.set_table(t);
                match self.provide(t, me) {
                    Ok(()) => self.begin(t, me),
                    Err(e) => self.fault = Some(e.message),
                }
            }
        }
    }

    fn begin(&mut self, t: &mut Topology, me: GeomId) {
        // The records get the decisions: the clean members, and the rebuilt ones with their starts.
        self.push(t, me, Job::Rewrite);
        for slot in self.mirror.in_role(Role::Synchronizing) {
            self.start_rebuild(t, slot);
        }
    }

    fn provide(&mut self, t: &mut Topology, me: GeomId) -> Result<(), Error> {
        let members: Vec<ProviderId> =
            self.consumers.values().filter_map(|c| t.below(*c)).collect();
        let mut attrs = crate::members::attributes(t, &members);
        let ident = format!("mirror-{:08x}", self.mirror.id);
        attrs.push(("GEOM::ident", Attr::Text(ident)));
        let (stripe_bytes, stripe_offset) = crate::members::largest_stripe(t, &members);
        let limits = Limits {
            media_bytes: self.mirror.media_bytes,
            sector_bytes: self.mirror.sector_bytes,
            io_max_bytes: 0,
            delete_max_bytes: 0,
        };
        t.new_provider(
            me,
            NewProvider {
                name: format!("{NAME}/{}", self.mirror.name),
                layer: Arc::new(MirrorLayer(self.shared.clone())),
                limits,
                stripe_bytes,
                stripe_offset,
                attrs,
            },
        )?;
        Ok(())
    }
}
