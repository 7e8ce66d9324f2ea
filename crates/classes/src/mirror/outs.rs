//! Members that are put out, or not taken in, and grow: their records are brought along.
//!
//! A record stands in the last sector, and nobody looks elsewhere. That of a member moves as its
//! provider grows; who is refused has no consumer that hears of it. Its record would stay behind,
//! and at the next start nothing would say that what it holds is old: its table, which is the
//! mirror's too, would be found, and what stands on the mirror's partition could take the stale
//! one.
//!
//! ```text
//!   refused: its size is noted --> grows, is tasted --> the record is where it ended --> taken in,
//!        or refused again --> written at the new end, durable; the old place cleared --> tasted
//! ```
//!
//! Invariants
//!  O1  Within a provider a record is believed only where that provider was seen to end, and if it
//!      is of the member that was seen there, and of that size.
//!  O2  Until it has been moved the provider stays refused, so nothing is found on it.
//!  O3  It is tried once for each size: a disk that fails it is not asked for ever.

use std::any::Any;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bio::Errno;
use geom::{Access, ConsumerId, Error, Geom, GeomId, ProviderId, Topology, Word};

use super::NAME;
use super::metadata::Metadata;
use super::tasks::{self, Move, Note};
use crate::members::frame;

/// Most that are kept.
const OUTS_MAX: usize = 256;

struct Out {
    /// Where its provider ended when its record was seen there, bytes.
    bytes: u64,
    /// Of the mirror and of the member.
    numbers: (u32, u32),
    /// The size for which the record was to be moved last, bytes (O3).
    tried: u64,
}

/// See the module. By the names of the providers.
#[derive(Default)]
pub(super) struct Outs(Mutex<BTreeMap<String, Out>>);

impl Outs {
    fn all(&self) -> MutexGuard<'_, BTreeMap<String, Out>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A provider that is not used has a member's record in the last of so many bytes.
    pub(super) fn note(&self, name: &str, bytes: u64, record: &Metadata) {
        let numbers = (record.id, record.disk);
        let mut all = self.all();
        if all.get(name).is_some_and(|out| out.bytes == bytes && out.numbers == numbers) {
            return;
        }
        if all.len() < OUTS_MAX || all.contains_key(name) {
            all.insert(name.to_owned(), Out { bytes, numbers, tried: 0 });
        }
    }

    /// It is used.
    pub(super) fn forget(&self, name: &str) {
        self.all().remove(name);
    }

    /// Where the provider ended when it was refused, if it is larger now.
    pub(super) fn ended(&self, name: &str, bytes: u64) -> Option<u64> {
        self.all().get(name).map(|out| out.bytes).filter(|was| *was < bytes)
    }

    /// O1
    pub(super) fn is_left(&self, name: &str, record: &Metadata) -> bool {
        self.all().get(name).is_some_and(|out| {
            out.numbers == (record.id, record.disk)
                && frame::is_of_size(record.provider_bytes, out.bytes)
        })
    }

    /// Whether the record is to be moved; not a second time for this size (O3).
    fn tries(&self, name: &str, bytes: u64) -> bool {
        let mut all = self.all();
        all.get_mut(name).is_some_and(|out| std::mem::replace(&mut out.tried, bytes) != bytes)
    }
}

/// A record that stayed behind, at this byte, and its bitmap.
pub(super) struct Left {
    pub(super) at: u64,
    pub(super) record: Metadata,
    pub(super) bits: Vec<u8>,
}

/// Has it written where the provider ends now.
pub(super) fn carry(t: &mut Topology, on: ProviderId, outs: &Outs, left: Left) {
    let name = t.provider_name(on).to_owned();
    let Some(limits) = t.limits(on) else { return };
    let Some(at) = frame::last_sector(limits.sector_bytes, limits.media_bytes) else { return };
    if !outs.tries(&name, limits.media_bytes) {
        return;
    }
    let Ok((geom, consumer)) = open(t, on, &name) else { return };
    let Left { at: before, record, bits } = left;
    let record = Metadata { provider_bytes: limits.media_bytes, ..record };
    let bitmap = (!bits.is_empty()).then(|| (at.saturating_sub(bits.len() as u64), bits));
    let note = Note {
        slot: 0,
        edge: t.edge(consumer),
        at,
        sector: record.sector(limits.sector_bytes),
        moves: Some(Move {
            from: before,
            alone: record.without_bitmap().sector(limits.sector_bytes),
        }),
        bitmap,
        active: true,
    };
    tasks::bring_along(t.switchboard(), name, geom, note);
}

/// Alone, for a moment.
fn open(t: &mut Topology, on: ProviderId, name: &str) -> Result<(GeomId, ConsumerId), Error> {
    let own = format!("record of {name}");
    let geom = t.new_geom(NAME, &own, "its provider grew", Box::new(Carrier))?;
    t.set_hand(geom);
    let opened = t.attach_new(geom, on).and_then(|consumer| {
        t.access(consumer, Access::EXCLUSIVE).inspect_err(|_| t.leave(consumer))?;
        Ok(consumer)
    });
    match opened {
        Ok(consumer) => Ok((geom, consumer)),
        Err(e) => {
            t.wither_geom(geom, Errno::NxIo);
            Err(Error::of(e, name))
        }
    }
}

/// The record was written, or could not be.
pub(super) struct Carried;

/// What has the provider open meanwhile.
struct Carrier;

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

    /// The geom goes first: what looks at the provider again must not take it for a user.
    fn told(&mut self, t: &mut Topology, me: GeomId, word: Word) {
        if word.is::<Carried>() {
            let consumers = t.consumers_of(me).to_vec();
            t.wither_geom(me, Errno::NxIo);
            consumers.into_iter().for_each(|c| t.leave(c));
        }
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

#[cfg(test)]
mod tests {
    use super::super::metadata::Balance;
    use super::*;

    const BYTES: u64 = 1 << 20;

    fn record(disk: u32) -> Metadata {
        Metadata {
            name: "m".into(),
            id: 1,
            disk,
            all: 2,
            genid: 0,
            syncid: 1,
            priority: 0,
            slice: 4096,
            balance: Balance::Load,
            media_bytes: BYTES - 512,
            sector_bytes: 512,
            sync_offset: 0,
            flags: 0,
            disk_flags: 0,
            home: String::new(),
            provider_bytes: BYTES,
            bitmap: None,
        }
    }

    /// O1
    #[test]
    fn a_record_is_believed_where_its_provider_ended_and_if_it_says_so() {
        let outs = Outs::default();
        outs.note("d0", BYTES, &record(7));
        assert!(outs.is_left("d0", &record(7)));
        assert!(!outs.is_left("d1", &record(7)), "another provider");
        assert!(!outs.is_left("d0", &record(8)), "another member");
        let copied = Metadata { provider_bytes: BYTES / 2, ..record(7) };
        assert!(!outs.is_left("d0", &copied), "what a smaller disk once held, copied to here");
        assert_eq!(outs.ended("d0", BYTES + 512), Some(BYTES));
        assert_eq!(outs.ended("d0", BYTES), None, "it did not grow");
        outs.forget("d0");
        assert!(!outs.is_left("d0", &record(7)));
    }

    /// O3
    #[test]
    fn it_is_tried_once_for_each_size() {
        let outs = Outs::default();
        outs.note("d0", BYTES, &record(7));
        assert!(outs.tries("d0", BYTES + 512));
        outs.note("d0", BYTES, &record(7));
        assert!(!outs.tries("d0", BYTES + 512));
        assert!(outs.tries("d0", BYTES + 1024));
        assert!(!outs.tries("d1", BYTES + 512), "nobody knows it");
    }

    #[test]
    fn no_more_are_kept_than_there_is_room_for_and_those_there_are_kept_up_to_date() {
        let outs = Outs::default();
        for n in 0..2 * OUTS_MAX {
            outs.note(&format!("d{n}"), BYTES, &record(7));
        }
        assert_eq!(outs.all().len(), OUTS_MAX);
        outs.note("d0", 2 * BYTES, &record(7));
        assert_eq!(outs.ended("d0", 3 * BYTES), Some(2 * BYTES));
        outs.forget("d0");
        outs.note("new", BYTES, &record(7));
        assert_eq!(outs.ended("new", 2 * BYTES), Some(BYTES), "there is room again");
    }
}
