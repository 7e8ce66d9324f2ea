//! The class: tasting, claiming, making by hand.

use std::collections::BTreeMap;

use bio::Errno;
use bio::sync::Mutex;
use geom::{
    ClassParams, ClassVerb, Create, Error, GeomId, GraphControl, Local, MADE_BY_VERB, ProviderId,
    Redeclare, Settings, TasteOutcome, Taster, Topology, Typed,
};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::geom::MultipathGeom;
use super::identity::Identity;
use super::metadata::{Metadata, Mode};
use super::options::Options;
use super::{NAME, verbs};
use crate::members::{Stopped, relocate, verb_util};
use reactor::clock::S;

#[derive(Default)]
pub struct MultipathClass {
    /// Names that were stopped, for `start`.
    pub(super) stopped: Stopped,
    /// Uuids that were stopped, with the names they had: two disks may have the same in their
    /// records.
    stopped_uuids: Mutex<BTreeMap<String, String>>,
    /// The geoms by their uuids.
    known: Mutex<BTreeMap<String, GeomId>>,
}

/// Use of the paths: parameters of a section, which `configure` changes.
#[derive(Clone, Debug, Default, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields, default)]
pub struct MultipathParams {
    /// passive, active or read
    // `configure` has an option for each mode.
    #[schemars(with = "String", extend("x-hidden" = true))]
    mode: Mode,
    /// Seconds between path checks, which restore failed paths that answer and detect improved
    /// access states; 0: no checks
    checker: u64,
    /// Seconds for which the preferred path (else the first) must be good again before it becomes
    /// active; without it only `multipath prefer` makes it active
    failback: Option<u64>,
    /// Seconds for which requests wait without a path before they fail with ENXIO; 0: no wait
    queue: u64,
}

impl ClassParams for MultipathParams {}

impl MultipathParams {
    /// Those of a device.
    pub(super) fn of(mode: Mode, options: Options) -> MultipathParams {
        let seconds = |ns: u64| ns / S;
        MultipathParams {
            mode,
            checker: seconds(options.checker_ns),
            failback: options.failback_ns.map(seconds),
            queue: seconds(options.queue_ns),
        }
    }
}

fn wrong(e: impl std::fmt::Display) -> Error {
    Error::inval(format!("multipath create: {e}"))
}

pub(super) fn declared(params: &MultipathParams) -> Result<(Mode, Options), Error> {
    let options = Options {
        checker_ns: verbs::seconds(params.checker)?,
        failback_ns: params.failback.map(verbs::seconds).transpose()?,
        queue_ns: verbs::seconds(params.queue)?,
    };
    Ok((params.mode, options))
}

/// What one is called whose name another disk has: always the same.
fn other_name(record: &Metadata) -> String {
    let step = |hash: u32, byte: u8| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193);
    let hash = record.uuid.bytes().fold(0x811c_9dc5, step);
    format!("{}-{hash}", record.name)
}

impl MultipathClass {
    /// The geom of a uuid, if there is one.
    fn geom_of(&self, t: &Topology, uuid: &str) -> Option<GeomId> {
        self.known.lock().get(uuid).copied().filter(|geom| t.geom_is_live(*geom))
    }

    /// One that was stopped may be found again.
    pub(super) fn clear_stopped(&self, name: &str) {
        self.stopped_uuids.lock().retain(|_, stopped| stopped != name);
    }

    fn place(&self, t: &mut Topology, record: &Metadata, why: &str) -> Result<GeomId, Error> {
        let taken = t.find_geom(NAME, &record.name).is_some();
        let name = if taken { other_name(record) } else { record.name.clone() };
        let geom = MultipathGeom::place(t, &name, (Identity::of(record), record.options), why)?;
        let mut known = self.known.lock();
        known.retain(|_, geom| t.geom_is_live(*geom));
        known.insert(record.uuid.clone(), geom);
        Ok(geom)
    }
}

impl Typed for MultipathClass {
    const NAME: &'static str = NAME;
    const DOC: &'static str = "Several paths to one disk.";
    const VERBS: &'static [ClassVerb<MultipathClass>] = verbs::VERBS;
    const TASTES: bool = true;
    const HAS_END_METADATA: bool = true;
    const OPENS_MEMBERS: bool = true;
    const MEMBER_EDITS_LAST: Option<&'static str> = Some("until the next start");
    type Params = MultipathParams;
    type Claim = Metadata;
    type Geom = MultipathGeom;

    fn settings(&self, params: &MultipathParams) -> Result<Settings, Error> {
        let (mode, options) = declared(params)?;
        Ok(ClassParams::settings(&MultipathParams::of(mode, options)))
    }

    fn apply_settings(
        &self,
        control: &mut GraphControl,
        name: &str,
        params: &MultipathParams,
    ) -> Result<(), Error> {
        let (mode, options) = declared(params)?;
        verbs::work_as(control, name, false, |_| Ok((mode, options)))
    }

    fn check_declare(&self, control: &mut GraphControl, members: &[String]) -> Result<(), Error> {
        verbs::check_same_disk(control, members)
    }

    fn declare(
        &self,
        control: &mut GraphControl,
        request: &Create<'_, MultipathParams>,
        _: &[String],
    ) -> Result<(), Error> {
        let names = request.members.iter().map(|on| control.topology.provider_name(*on).to_owned());
        let names: Vec<String> = names.collect();
        verbs::check_same_disk(control, &names)?;
        control.call(|t| Typed::create(self, t, request)).map(drop)
    }

    fn can_replace_members(&self, from: &[String], to: &[String]) -> bool {
        from.iter().any(|member| to.contains(member))
    }

    fn check_redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_, MultipathParams>,
    ) -> Result<(), Error> {
        verbs::foresee(control, request)
    }

    fn redeclare(
        &self,
        control: &mut GraphControl,
        request: &Redeclare<'_, MultipathParams>,
        _: &[String],
    ) -> Result<(), Error> {
        verbs::redeclare(control, request)?;
        Typed::apply_settings(self, control, request.name, request.params)
    }

    fn stopped_geoms(&self) -> Vec<(String, String)> {
        self.stopped.all(NAME)
    }

    fn taste<'a>(&'a self, disk: &'a Taster) -> Local<'a, TasteOutcome<Metadata>> {
        Box::pin(async move {
            let record = match verb_util::tasted(disk, "record", Metadata::decode).await {
                Ok(record) => record,
                Err(why) => {
                    return relocate::taste_old_end(disk, NAME, Metadata::placed, why).await;
                }
            };
            if let Some(name) = self.stopped_uuids.lock().get(&record.uuid) {
                return TasteOutcome::No(Stopped::refusal_text(NAME, name));
            }
            let Metadata { name, uuid, sector_bytes, provider_bytes, .. } = &record;
            if (*sector_bytes, *provider_bytes) != (disk.sector_bytes, disk.media_bytes) {
                let why = format!(
                    "its record was written for {provider_bytes} bytes in sectors of \
                     {sector_bytes}, and this one has {} in sectors of {}",
                    disk.media_bytes, disk.sector_bytes
                );
                return relocate::taste_old_end(disk, NAME, Metadata::placed, why).await;
            }
            let words = format!("a path to multipath/{name} ({uuid})");
            TasteOutcome::Yes(words, record)
        })
    }

    fn claim(
        &self,
        topology: &mut Topology,
        on: ProviderId,
        why: &str,
        record: Metadata,
    ) -> Result<(), Error> {
        let known = self.geom_of(topology, &record.uuid);
        verb_util::check_cycle(topology, on, known)?;
        let geom = match known {
            Some(geom) => geom,
            None => self.place(topology, &record, why)?,
        };
        let going = || Err(Error::new(Errno::NxIo, "the device is being removed"));
        let taken = topology
            .with(geom, |g: &mut MultipathGeom, t| g.found(t, geom, on, &record.name))
            .unwrap_or_else(going);
        if taken.is_err() && known.is_none() {
            topology.wither_geom(geom, Errno::NxIo);
        }
        taken
    }

    fn create(
        &self,
        topology: &mut Topology,
        request: &Create<'_, MultipathParams>,
    ) -> Result<GeomId, Error> {
        let (mode, options) = declared(request.params)?;
        let limits = request.members.first().and_then(|p| topology.limits(*p));
        let Some(limits) = limits else {
            return Err(wrong("multipath: at least one path is needed"));
        };
        let nature = Identity {
            uuid: None,
            label: request.name.to_owned(),
            mode,
            sector_bytes: limits.sector_bytes,
            provider_bytes: limits.media_bytes,
        };
        let geom = MultipathGeom::place(topology, request.name, (nature, options), MADE_BY_VERB)?;
        let result = topology.with(geom, |g: &mut MultipathGeom, t| {
            let taken = request.members.iter().try_for_each(|on| g.take_in(t, geom, *on));
            if taken.is_err() {
                MultipathGeom::take_apart(t, geom, g);
            }
            taken
        });
        result.unwrap_or_else(|| Err(wrong("the device is being removed"))).map(|()| geom)
    }

    fn disassemble(&self, topology: &mut Topology, geom: GeomId) {
        let name = topology.geom_name(geom).to_owned();
        let uuid = topology.with(geom, |g: &mut MultipathGeom, t| {
            MultipathGeom::take_apart(t, geom, g);
            g.identity.uuid.clone()
        });
        if let Some(Some(uuid)) = uuid {
            self.stopped.stop(&name);
            self.stopped_uuids.lock().insert(uuid, name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_of_a_device_are_its_mode_and_options() {
        for mode in [Mode::Passive, Mode::Active, Mode::Read] {
            for failback_ns in [None, Some(0), Some(3 * S)] {
                let options = Options { checker_ns: S, failback_ns, queue_ns: 0 };
                assert_eq!(declared(&MultipathParams::of(mode, options)), Ok((mode, options)));
            }
        }
    }
}
