//! The class: tasting, claiming, making by hand.

use std::sync::Arc;

use super::geom::MirrorGeom;
use super::metadata::Metadata;
use super::settings::MirrorParams;
use super::state::Mirror;
use super::{NAME, verbs};
use crate::members::{Stopped, Throttles, Waiting, frame, relocate, verb_util};
use bio::Errno;
use geom::{
    ClassVerb, Create, Error, GeomId, GraphControl, Local, ProviderId, Redeclare, Settings,
    TasteOutcome, Taster, Topology, Typed,
};

#[derive(Default)]
pub struct MirrorClass {
    pub(super) stopped: Stopped,
    pub(super) tunables: Tunables,
    pub(super) waiting: Arc<Waiting>,
    pub(super) throttles: Throttles,
}

/// What FreeBSD has in `kern.geom.mirror`: how long a mirror waits, and how it rebuilds.
#[derive(Clone, Copy, Debug)]
pub struct Tunables {
    /// How long a mirror waits for members that are missing at its start, ns.
    pub start_ns: u64,
    /// How long nothing is written before the marks are taken away, ns.
    pub idle_ns: u64,
    /// Bytes that a rebuild copies under one lock: for so long a user's write may have to wait.
    pub slab_bytes: u64,
    /// How often a rebuild records its progress, ns.
    pub save_every_ns: u64,
    /// Seconds since 1970, for people; zero is not known.
    pub wall_s: fn() -> u64,
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables {
            start_ns: 4_000_000_000,
            idle_ns: 5_000_000_000,
            slab_bytes: 1 << 20,
            save_every_ns: 5_000_000_000,
            wall_s: || 0,
        }
    }
}

/// The data read from a member.
pub struct TastedMember {
    pub(super) record: Metadata,
    pub(super) bits: Vec<u8>,
}

impl MirrorClass {
    /// The class with other times and sizes than the usual ones, and with a list of those that
    /// wait, which the classes of one graph share.
    pub fn tuned(tunables: Tunables, waiting: Arc<Waiting>) -> MirrorClass {
        MirrorClass { tunables, waiting, ..MirrorClass::default() }
    }

    /// A geom for a mirror that has not started.
    pub(super) fn place(
        &self,
        t: &mut Topology,
        mirror: Mirror,
        why: &str,
    ) -> Result<GeomId, Error> {
        let throttle = self.throttles.of(&mirror.name);
        MirrorGeom::place(t, mirror, why, (self.tunables, self.waiting.clone(), throttle))
    }

    /// A member was found: it is taken in, or refused.
    fn admit(
        &self,
        t: &mut Topology,
        on: ProviderId,
        why: &str,
        seen: TastedMember,
    ) -> Result<(), Error> {
        // A refusal, so that nothing is found on a half meanwhile: it would pass for the whole's.
        self.stopped.refuse(NAME, &seen.record.name)?;
        let known = t.find_geom(NAME, &seen.record.name);
        verb_util::check_cycle(t, on, known)?;
        let geom = match known {
            Some(geom) => geom,
            None => self.place(t, Mirror::of(&seen.record), why)?,
        };
        let going = || Err(Error::new(Errno::NxIo, "the mirror is being removed"));
        let taken = t
            .with(geom, |g: &mut MirrorGeom, t| g.take_in(t, geom, on, seen))
            .unwrap_or_else(going);
        if taken.is_err() && known.is_none() {
            self.waiting.remove(geom);
            t.wither_geom(geom, Errno::NxIo);
        }
        taken
    }
}

impl Typed for MirrorClass {
    const NAME: &'static str = NAME;
    const DOC: &'static str = "RAID1: every member has a complete copy.";
    const VERBS: &'static [ClassVerb<MirrorClass>] = verbs::VERBS;
    const TASTES: bool = true;
    const HIDES_REFUSED: bool = true;
    const HAS_END_METADATA: bool = true;
    const KEEPS_RECORDS: bool = true;
    const MEMBER_EDITS_LAST: Option<&'static str> = Some("by its records");
    const OPENS_MEMBERS: bool = true;
    type Params = MirrorParams;
    type Claim = TastedMember;
    type Geom = MirrorGeom;

    fn stopped_geoms(&self) -> Vec<(String, String)> {
        self.stopped.all(NAME)
    }

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome<TastedMember>> {
        Box::pin(async move {
            let record = match verb_util::tasted(disk, "record", Metadata::decode).await {
                Ok(record) => record,
                Err(why) => {
                    return relocate::taste_old_end(disk, NAME, Metadata::placed, why).await;
                }
            };
            if !frame::is_at_home(&record.home, &disk.name) {
                return TasteOutcome::No(format!(
                    "its record names another provider ({})",
                    record.home
                ));
            }
            if !frame::is_of_size(record.provider_bytes, disk.media_bytes) {
                let why = format!(
                    "its record was written for a provider of {} bytes, and this one has {}",
                    record.provider_bytes, disk.media_bytes
                );
                return relocate::taste_old_end(disk, NAME, Metadata::placed, why).await;
            }
            let Metadata { name, id, all, genid, syncid, .. } = &record;
            let words = format!(
                "one of {all} members of mirror/{name} (id {id}, genid {genid}, syncid {syncid})"
            );
            let bits = bits(disk, &record).await;
            TasteOutcome::Yes(words, TastedMember { record, bits })
        })
    }

    fn claim(
        &self,
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        seen: TastedMember,
    ) -> Result<(), Error> {
        self.admit(topology, on, why, seen)
    }

    fn create(
        &self,
        topology: &mut Topology,
        request: &Create<'_, MirrorParams>,
    ) -> Result<GeomId, Error> {
        let settings = request.params.settings()?;
        verbs::by_hand(self, topology, request, settings)
    }

    fn declare(
        &self,
        control: &mut GraphControl,
        request: &Create<'_, MirrorParams>,
        consent: &[String],
    ) -> Result<(), Error> {
        verbs::declare(self, control, request, consent)
    }

    fn settings(&self, params: &MirrorParams) -> Result<Settings, Error> {
        Ok(params.settings()?.keys(params.sync_rate()))
    }

    fn can_replace_members(&self, _: &[String], _: &[String]) -> bool {
        true
    }

    fn check_redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_, MirrorParams>,
    ) -> Result<(), Error> {
        verbs::foresee(control, request)
    }

    fn redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_, MirrorParams>,
        consent: &[String],
    ) -> Result<(), Error> {
        verbs::redeclare(control, request, consent)
    }

    fn disassemble(&self, topology: &mut Topology, geom: GeomId) {
        let name = topology.geom_name(geom).to_owned();
        let ended = topology.with(geom, |g: &mut MirrorGeom, t| {
            let found = (!g.mirror.manual).then(|| g.refused_providers(t));
            MirrorGeom::take_apart(t, geom, g);
            found
        });
        if let Some(Some(refused)) = ended {
            self.stopped.stop(&name);
            // They wait with the others, and report that.
            refused.into_iter().for_each(|on| topology.retaste(on));
        }
    }
}

/// The bitmap of a member; empty when it has none, or it cannot be read: then all may differ.
async fn bits(disk: &Taster, record: &Metadata) -> Vec<u8> {
    let Some(shape) = record.bitmap else { return Vec::new() };
    let end = frame::last_sector(disk.sector_bytes, disk.media_bytes);
    let at = end.and_then(|end| end.checked_sub(u64::from(shape.bytes)));
    let Some(at) = at else { return Vec::new() };
    disk.read(at, shape.bytes as usize).await.unwrap_or_default()
}
