//! The `insert` verb: adds disks.

use bio::Errno;
use geom::{At, Consent, Deserialize, Error, JsonSchema, Verb};

use super::{ArrayName, apply_plan, disk, serial, with};
use crate::members::{provider_access, verb_util};
use crate::raid::class::RaidClass;
use crate::raid::ddf::TargetDisk;
use crate::raid::geom::NAME;
use crate::raid::metadata::MetadataState;
use crate::raid::model::{Array, DiskState};
use crate::raid::{Fault, ddf, imsm};
use crate::shared_args::{Force, Members, RebuildAnswer, Wait};

/// Add disks as replacements for missing disks, or as spares
#[derive(Deserialize, JsonSchema)]
pub(super) struct Insert {
    name: ArrayName,
    /// Providers to add
    members: Members,
    // The guard has looked at it before.
    #[serde(rename = "yes_destroy")]
    _consent: Consent,
    force: Force,
    wait: Wait,
}

impl Verb<RaidClass> for Insert {
    const NAME: &'static str = "insert";
    const EXAMPLE: &'static str = "raid insert Intel-1234abcd d2";
    const WRITES: bool = true;
    type Answer = RebuildAnswer;

    fn run(self, (_, control): At<'_, RaidClass>) -> Result<RebuildAnswer, Error> {
        let on = self.name.0.as_str();
        for name in &self.members.0 {
            let new = provider_access::find(control, name)?;
            let (sector, media) = provider_access::sizes(control, new);
            let is_own = |_: &[u8]| false;
            verb_util::check_member(control, NAME, name, self.force.0, is_own)?;
            let serial = serial(control, name)?;
            let number = verb_util::new_id(control, name);
            let (plan, key) = with(control, on, |g, _, _| {
                if sector != g.sector {
                    let what =
                        format!("{name} has sectors of {sector} bytes, the array {}", g.sector);
                    return Err(Error::inval(what));
                }
                let not_up = || Error::new(Errno::NxIo, "the array has not started");
                let (Some(set), Some(metadata)) = (&mut g.set, &g.metadata) else {
                    return Err(not_up());
                };
                let disk = metadata.new_disk(&serial, number, media, sector);
                let places = media / u64::from(sector.max(1));
                let refused = |fault: Fault| Error::inval(fault.to_string());
                let key = metadata.key(&disk);
                if let Some(old) = metadata.find(&set.array, &key) {
                    // The same disk again: its old place is kept, if it has one.
                    let gone = set.attached.get(old).copied().flatten().is_none();
                    if !gone {
                        return Err(Error::inval(format!("a disk {key} is in the array already")));
                    }
                    if let Some(known) = set.array.disks.get_mut(old) {
                        known.state = DiskState::Missing;
                    }
                } else {
                    set.array.disks.push(disk.clone());
                    set.attached.push(None);
                }
                let plan = match metadata {
                    MetadataState::Intel { .. } => {
                        let record = imsm::spare(&disk, sector).map_err(refused)?;
                        imsm::plan(&record, places, sector)
                    }
                    MetadataState::Ddf { newest, .. } => {
                        let place = TargetDisk {
                            sector_size: sector,
                            media_sectors: places,
                            time: newest.header.time,
                            controller: metadata.controller(),
                            limits: newest.header.limits,
                            order: newest.header.order,
                        };
                        let mut array: Array = set.record();
                        let index = metadata.find(&array, &key).unwrap_or(usize::MAX);
                        if let Some(known) = array.disks.get_mut(index) {
                            known.state = DiskState::Spare;
                        }
                        let meta = ddf::create(&array, index, &place).map_err(refused)?;
                        ddf::plan(&meta, places, sector, true)
                    }
                };
                let plan = plan.map_err(refused)?;
                g.awaited = Some(key.clone());
                Ok((plan, key))
            })?;
            let written = apply_plan(control, name, plan);
            with(control, on, |g, _, _| {
                g.awaited = None;
                Ok(())
            })?;
            let came = written.and_then(|()| with(control, on, |g, _, _| disk(g, name).map(drop)));
            if let Err(e) = came {
                // The array no longer waits for it.
                with(control, on, |g, _, _| {
                    g.cancel_insert(&key);
                    Ok(())
                })?;
                return Err(e);
            }
        }
        let message = format!("{} inserted into {on}", self.members.0.join(", "));
        Ok(RebuildAnswer::new(message, on, self.wait))
    }
}
