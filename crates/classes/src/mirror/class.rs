//! The class: tasting, claiming, making by hand.

use std::any::Any;
use std::sync::Arc;

use bio::Errno;
use geom::{
    Claim, Class, Control, Create, Error, GeomId, Local, ProviderId, Taster, Topology, VerbSpec,
    Verdict,
};
use schemars::JsonSchema;
use serde::Deserialize;

use super::geom::MirrorGeom;
use super::metadata::{Balance, Metadata, mirror_flags};
use super::outs::{self, Left, Outs};
use super::state::Mirror;
use super::{NAME, verbs};
use crate::members::{Stopped, Waiting, frame, known};

/// The class.
#[derive(Default)]
pub struct MirrorClass {
    pub(super) stopped: Stopped,
    pub(super) tunables: Tunables,
    pub(super) waiting: Arc<Waiting>,
    outs: Arc<Outs>,
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
    /// How often a rebuild writes down how far it has come, ns.
    pub save_every_ns: u64,
}

impl Default for Tunables {
    fn default() -> Self {
        Tunables {
            start_ns: 4_000_000_000,
            idle_ns: 5_000_000_000,
            slab_bytes: 1 << 20,
            save_every_ns: 5_000_000_000,
        }
    }
}

/// What was found on a member.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) record: Metadata,
    pub(super) bits: Vec<u8>,
    /// Where its record stayed as its provider grew, bytes; absent: it is at its end.
    pub(super) left: Option<u64>,
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
        MirrorGeom::place(t, mirror, why, (self.tunables, self.waiting.clone(), self.outs.clone()))
    }

    /// A record that stayed behind as a provider grew that is not used, and where it is.
    async fn left_behind(&self, disk: &Taster) -> Option<(Metadata, u64)> {
        let ended = self.outs.ended(&disk.name, disk.media_bytes)?;
        let at = frame::last_sector(disk.sector_bytes, ended)?;
        let sector = disk.read(at, disk.sector_bytes as usize).await.ok()?;
        let record = Metadata::decode(&sector).ok()?;
        self.outs.is_left(&disk.name, &record).then_some((record, at))
    }

    /// A member was found: it is taken in, or refused.
    fn admit(&self, t: &mut Topology, on: ProviderId, why: &str, seen: Seen) -> Result<(), Error> {
        // A refusal, so that nothing is found on a half meanwhile: it would pass for the whole's.
        self.stopped.refuse(NAME, &seen.record.name)?;
        let known = t.find_geom(NAME, &seen.record.name);
        let geom = match known {
            Some(geom) => geom,
            None => self.place(t, Mirror::of(&seen.record), why)?,
        };
        let going = || Err(Error::new(Errno::NxIo, "the mirror is going"));
        let taken = t
            .with(geom, |g: &mut MirrorGeom, t| g.take_in(t, geom, on, seen))
            .unwrap_or_else(going);
        if taken.is_err() && known.is_none() {
            self.waiting.over(geom);
            t.wither_geom(geom, Errno::NxIo);
        }
        taken
    }
}

/// What `create` takes besides name and members.
#[derive(Debug, Default, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
struct Params {
    /// Which member serves a read: none, round-robin, load, split, prefer; absent: load.
    balance: Option<String>,
    /// Bytes of a part of a split read; absent: 4096.
    slice: Option<u32>,
    /// After a crash members are taken as they are, not rebuilt.
    no_failsync: bool,
    /// Members that are out of date wait for `rebuild`.
    no_autosync: bool,
}

impl Class for MirrorClass {
    fn name(&self) -> &'static str {
        NAME
    }

    fn doc(&self) -> &'static str {
        "RAID1: every member holds all of it."
    }

    fn params(&self) -> Option<serde_json::Value> {
        serde_json::to_value(schemars::schema_for!(Params)).ok()
    }

    fn verbs(&self) -> &'static [VerbSpec] {
        verbs::VERBS
    }

    fn tastes(&self) -> bool {
        true
    }

    fn hides_what_it_refuses(&self) -> bool {
        true
    }

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, Verdict> {
        Box::pin(async move {
            let end = frame::last_sector(disk.sector_bytes, disk.media_bytes).unwrap_or(0);
            let (record, at) = match known::tasted(disk, "record", Metadata::decode).await {
                Ok(record) => (record, end),
                Err(why) => match self.left_behind(disk).await {
                    Some(found) => found,
                    None => return Verdict::No(why),
                },
            };
            if !frame::is_at_home(&record.home, &disk.name) {
                return Verdict::No(format!("its record belongs on {}, by name", record.home));
            }
            if at == end && !frame::is_of_size(record.provider_bytes, disk.media_bytes) {
                return Verdict::No(format!(
                    "its record was written for a provider of {} bytes, and this one has {}",
                    record.provider_bytes, disk.media_bytes
                ));
            }
            let Metadata { name, id, all, genid, syncid, .. } = &record;
            let words = format!(
                "one of {all} members of mirror/{name} (id {id}, genid {genid}, syncid {syncid})"
            );
            let bits = bits(disk, &record, at).await;
            let left = (at != end).then_some(at);
            Verdict::Yes(words, Box::new(Seen { record, bits, left }))
        })
    }

    fn claim(
        &self,
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        claim: Claim,
    ) -> Result<(), Error> {
        let claim: Box<dyn Any> = claim;
        let Ok(seen) = claim.downcast::<Seen>() else {
            return Err(Error::new(Errno::Inval, "the claim is not a record"));
        };
        let Seen { record, bits, left } = (*seen).clone();
        let name = topology.provider_name(on).to_owned();
        let e = match self.admit(topology, on, why, *seen) {
            Ok(()) => {
                self.outs.forget(&name);
                return Ok(());
            }
            Err(e) => e,
        };
        let Some(at) = left else {
            let limits = topology.limits(on);
            limits.iter().for_each(|l| self.outs.note(&name, l.media_bytes, &record));
            return Err(e);
        };
        let was = at + topology.limits(on).map_or(0, |l| u64::from(l.sector_bytes));
        outs::carry(topology, on, &self.outs, Left { at, record, bits });
        Err(Error::new(
            e.kind,
            format!(
                "{}. Its record is where the provider ended when it had {was} bytes: `ashlar \
                 {NAME} follow {name} --was {was}` brings it along",
                e.what
            ),
        ))
    }

    fn create(&self, topology: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        let wrong = |e: String| Error::new(Errno::Inval, format!("mirror create: {e}"));
        let params: Params = match request.params {
            serde_json::Value::Null => Params::default(),
            given => serde_json::from_value(given.clone()).map_err(|e| wrong(e.to_string()))?,
        };
        let balance = match params.balance.as_deref() {
            None => Balance::Load,
            Some(word) => Balance::of_word(word).ok_or_else(|| {
                wrong(format!("no balance {word}; {}", Balance::WORDS.join(", ")))
            })?,
        };
        let slice = params.slice.unwrap_or(4096);
        let mut flags = 0;
        let said = [
            (params.no_failsync, mirror_flags::NOFAILSYNC),
            (params.no_autosync, mirror_flags::NOAUTOSYNC),
        ];
        said.iter().filter(|(on, _)| *on).for_each(|(_, flag)| flags |= flag);
        verbs::by_hand(self, topology, request, (balance, slice, flags))
    }

    fn destroy(&self, topology: &mut Topology, geom: GeomId, force: bool) -> Result<(), Error> {
        let name = topology.geom_name(geom).to_owned();
        if !force && topology.geom_is_open(geom) {
            let what = format!("{name} is open; close what uses it, or use force");
            return Err(Error::new(Errno::Busy, what));
        }
        let manual = topology.with(geom, |g: &mut MirrorGeom, t| {
            let manual = g.mirror.manual;
            MirrorGeom::take_apart(t, geom, g);
            manual
        });
        if manual == Some(false) {
            self.stopped.stop(&name);
        }
        Ok(())
    }

    fn verb(
        &self,
        control: &mut Control,
        verb: &str,
        on: &str,
        params: &serde_json::Value,
    ) -> Result<serde_json::Value, Error> {
        verbs::run(self, control, verb, on, params)
    }
}

/// The bitmap of a member, whose record is at that byte; empty when it has none, or it cannot be
/// read: then all may differ.
async fn bits(disk: &Taster, record: &Metadata, at: u64) -> Vec<u8> {
    let Some(shape) = record.bitmap else { return Vec::new() };
    let Some(at) = at.checked_sub(u64::from(shape.bytes)) else { return Vec::new() };
    disk.read(at, shape.bytes as usize).await.unwrap_or_default()
}
