//! Class of RAID arrays: tasting and claiming.

use std::collections::BTreeSet;
use std::sync::Arc;

use bio::Errno;
use bio::sync::Mutex;
use geom::{
    ClassVerb, Error, GeomId, Local, NoParams, ProviderId, TasteOutcome, Taster, Topology, Typed,
};

use super::arrival::other_bytes;
use super::assemble::{Found, SetId};
use super::geom::{NAME, RaidGeom};
use super::{ddf, imsm, relocate, verbs};
use crate::members::{Stopped, Throttles, Waiting, verb_util};
use crate::probe::Sectors;
use crate::probe_io::drive;

/// Spares and disks with torn records that are remembered while no array is there; further ones
/// wait for the next look at them.
const WAITING_MAX: usize = 64;

/// What FreeBSD has in `kern.geom.raid`: how long an array waits, and how it fills members.
#[derive(Clone, Copy, Debug)]
pub struct Tunables {
    /// How long an array waits for disks that are missing at its start, ns.
    pub start_ns: u64,
    /// How long nothing is written before a volume's mark is taken away, ns.
    pub idle_ns: u64,
    /// Bytes of a volume that a rebuild works on under one lock.
    pub slab_bytes: u64,
    /// Time between two stored positions of a rebuild, ns.
    pub save_every_ns: u64,
    /// Seconds since 1970, for the records; 0 when it is not known.
    pub wall_s: fn() -> u64,
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables {
            start_ns: 30_000_000_000,
            idle_ns: 5_000_000_000,
            slab_bytes: 1 << 20,
            save_every_ns: 5_000_000_000,
            wall_s: || 0,
        }
    }
}

#[derive(Default)]
pub struct RaidClass {
    pub(super) stopped: Stopped,
    pub(super) tunables: Tunables,
    /// Arrays that were ever seen.
    pub(super) sets: Mutex<BTreeSet<SetId>>,
    /// Spares, and disks whose records are torn, that found no array.
    waiting: Mutex<Vec<ProviderId>>,
    /// Mirrors and arrays that wait for members.
    starting: Arc<Waiting>,
    throttles: Throttles,
}

impl RaidClass {
    /// The class with other times and sizes than the usual ones, and with a list of those that
    /// wait, which the classes of one graph share.
    pub fn tuned(tunables: Tunables, starting: Arc<Waiting>) -> RaidClass {
        RaidClass { tunables, starting, ..RaidClass::default() }
    }

    /// Arrays that are there.
    pub(super) fn geoms(&self, t: &Topology) -> Vec<(SetId, GeomId)> {
        let sets = self.sets.lock();
        sets.iter().filter_map(|id| Some((*id, t.find_geom(NAME, &id.name())?))).collect()
    }

    /// The array that gets a spare: the one that it was just inserted into, one that knows it, or
    /// the first.
    fn array_for_spare(&self, t: &mut Topology, found: &Found) -> Option<GeomId> {
        let key = found.key();
        let claims = |g: &mut RaidGeom| {
            if g.awaited.as_ref() == Some(&key) {
                return Some(0);
            }
            let (set, metadata) = (g.set.as_ref()?, g.metadata.as_ref()?);
            metadata.find(&set.array, &key).map(|_| 1)
        };
        let intel = self.geoms(t).into_iter().filter(|(id, _)| matches!(id, SetId::Intel(_)));
        let place = |(_, geom)| (t.with(geom, |g, _| claims(g)).flatten().unwrap_or(2), geom);
        intel.map(place).min_by_key(|(claim, _)| *claim).map(|(_, geom)| geom)
    }

    /// A disk that is of no use until an array is there is looked at again then.
    fn defer(&self, on: ProviderId, why: &str) -> Error {
        let mut all = self.waiting.lock();
        if all.len() < WAITING_MAX && !all.contains(&on) {
            all.push(on);
        }
        Error::new(Errno::NoEnt, why)
    }

    fn geom_for(
        &self,
        t: &mut Topology,
        found: &Found,
        sector: u32,
        why: &str,
    ) -> Result<(GeomId, bool), Error> {
        let id = found.set();
        if let Some(geom) = t.find_geom(NAME, &id.name()) {
            return Ok((geom, false));
        }
        self.sets.lock().insert(id);
        let throttle = self.throttles.of(&id.name());
        let settings = (self.tunables, self.starting.clone(), throttle);
        let born = RaidGeom::place(t, id, sector, why, settings)?;
        for disk in std::mem::take(&mut *self.waiting.lock()) {
            t.retaste(disk);
        }
        Ok((born, true))
    }
}

/// The record on a disk, of either format, as if it had `bytes` bytes; otherwise why there is none.
pub(super) async fn read_record(disk: &Taster, bytes: u64) -> Result<Found, String> {
    let read = async |at, len| disk.read(at, len).await;
    let mut sectors = Sectors::new(disk.sector_bytes, bytes);
    let serial = disk.text("GEOM::ident").filter(|ident| !ident.is_empty());
    let serial = imsm::serial_of(serial.unwrap_or(&disk.name));
    let intel = match drive(&mut sectors, read, imsm::step).await {
        Ok(record) => {
            return Ok(Found::Intel { serial, record: Box::new(record) });
        }
        Err(why) => why,
    };
    let mut sectors = Sectors::new(disk.sector_bytes, bytes);
    let torn = drive(&mut sectors, read, |s| imsm::torn(s, &serial)).await;
    if let Ok(left) = torn {
        return Ok(Found::Torn { serial, left });
    }
    let mut sectors = Sectors::new(disk.sector_bytes, bytes);
    match drive(&mut sectors, read, ddf::step).await {
        Ok(meta) => Ok(Found::Ddf(Box::new(meta))),
        Err(why) => Err(format!("{intel}; {why}")),
    }
}

impl Typed for RaidClass {
    const NAME: &'static str = NAME;
    const DOC: &'static str = "RAID with firmware metadata: Intel (IMSM) and SNIA DDF.";
    const VERBS: &'static [ClassVerb<RaidClass>] = verbs::VERBS;
    const CREATABLE: bool = false;
    const TASTES: bool = true;
    const HIDES_REFUSED: bool = true;
    const HAS_END_METADATA: bool = true;
    type Params = NoParams;
    type Claim = Found;
    type Geom = RaidGeom;

    fn stopped_geoms(&self) -> Vec<(String, String)> {
        self.stopped.all(NAME)
    }

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome<Found>> {
        Box::pin(async move {
            let found = match read_record(disk, disk.media_bytes).await {
                Ok(found) if !found.is_torn() => found,
                // The power may have failed while it was written there for the first time.
                none => match (relocate::taste_old_end(disk).await, none) {
                    (Some(left), _) => return left,
                    (None, Ok(torn)) => torn,
                    (None, Err(why)) => return TasteOutcome::No(why),
                },
            };
            let (id, key) = (found.set(), found.key());
            // A partition at the end of a disk ends where the disk does: the record is that one's.
            let smaller = |bytes: &u64| *bytes != 0 && *bytes < disk.media_bytes;
            let recorded_bytes = found.disk_bytes(disk.sector_bytes).filter(smaller);
            if let Some(why) = recorded_bytes.and_then(|bytes| other_bytes(bytes, disk.media_bytes))
            {
                let why = format!("disk {key} of {}: {why}", id.name());
                return relocate::taste_old_end(disk).await.unwrap_or(TasteOutcome::No(why));
            }
            let (of, generation) = (id.name(), found.generation());
            let words = match () {
                () if found.is_spare() => format!("{key}, a spare"),
                () if found.is_torn() => {
                    format!("disk {key} of {of} (generation {generation}; its record is torn)")
                }
                () => format!("disk {key} of {of} (generation {generation})"),
            };
            TasteOutcome::Yes(words, found)
        })
    }

    fn claim(
        &self,
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        found: Found,
    ) -> Result<(), Error> {
        // A refusal, so that nothing is found on a member meanwhile: it would pass for the whole's.
        self.stopped.refuse(NAME, &found.set().name())?;
        verb_util::check_cycle(topology, on, topology.find_geom(NAME, &found.set().name()))?;
        let gone = || Error::new(Errno::NxIo, "the disk was removed");
        let sector = topology.limits(on).ok_or_else(gone)?.sector_bytes;
        let (geom, new) = if found.is_spare() {
            let home = self.array_for_spare(topology, &found);
            (home.ok_or_else(|| self.defer(on, "a spare, and no array is there"))?, false)
        } else if found.is_torn() {
            let home = topology.find_geom(NAME, &found.set().name());
            let why = "its record is torn, and no other disk of the array is there. If it has no \
                       other, `clear` it and `label` and `add` its volumes as they were, with \
                       --assume-same: their data has not moved";
            (home.ok_or_else(|| self.defer(on, why))?, false)
        } else {
            self.geom_for(topology, &found, sector, why)?
        };
        let going = || Err(Error::new(Errno::NxIo, "the array is being removed"));
        let taken = topology
            .with(geom, |g: &mut RaidGeom, t| g.take_in(t, geom, on, found))
            .unwrap_or_else(going);
        if taken.is_err() && new {
            self.starting.remove(geom);
            topology.wither_geom(geom, Errno::NxIo);
        }
        taken.map(drop)
    }

    fn disassemble(&self, topology: &mut Topology, geom: GeomId) {
        // Before its disks are released, and tasted again.
        self.stopped.stop(topology.geom_name(geom));
        topology.with(geom, |g: &mut RaidGeom, t| RaidGeom::take_apart(t, geom, g));
    }
}
