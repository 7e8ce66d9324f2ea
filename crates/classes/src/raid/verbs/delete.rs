//! The `delete` verb: removes volumes, and the array with the last one. No disk keeps a record that
//! would appear as an array of its own.

use bio::Errno;
use geom::{
    At, Class, Deserialize, Error, GraphControl, JsonSchema, MessageAnswer, Topology, Verb,
};

use super::{ArrayName, VolumeName, erase, find, probe, selected_volumes, with};
use crate::raid::assemble::SetId;
use crate::raid::class::RaidClass;
use crate::raid::geom::{Job, NAME, RaidGeom};
use crate::raid::show::volumes;
use crate::shared_args::Force;

/// Delete a volume or the whole array
///
/// The metadata of the disks is cleared with the last volume.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Delete {
    name: ArrayName,
    #[serde(default)]
    volume: VolumeName,
    /// Delete a volume even if its provider is open
    force: Force,
}

impl Verb<RaidClass> for Delete {
    const NAME: &'static str = "delete";
    const POSITIONAL: &'static [&'static str] = &["name", "volume"];
    const EXAMPLE: &'static str = "raid delete Intel-1234abcd more";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, (class, control): At<'_, RaidClass>) -> Result<MessageAnswer, Error> {
        let on = self.name.0.as_str();
        let geom = find(control, on)?;
        let set = control.topology.geom_name(geom).to_owned();
        // Done before the volumes and the state of the disks are removed.
        let rest = with(control, on, |g, _, _| rest(g))?;
        let left = with(control, on, |g, t, me| {
            let all = selected_volumes(g, on, self.volume.0.as_deref())?;
            let vols = g
                .set
                .iter()
                .flat_map(|known| all.iter().filter_map(|at| known.volume_status.get(*at)));
            let keys: Vec<u32> = vols.map(|vol| vol.key).collect();
            if is_open(g, t, &keys) && !self.force.0 {
                let what = "it is open; close what uses it, or use --force";
                return Err(Error::new(Errno::Busy, what));
            }
            for key in keys {
                g.stop_volume(t, key);
                g.forget(key);
            }
            let left = g.set.as_ref().map_or(0, |set| set.volume_status.len());
            if left > 0 {
                g.push(t, me, Job::Rewrite);
            }
            Ok(left)
        })?;
        if left > 0 {
            return Ok(MessageAnswer::new(format!("deleted; {set} has {} now", volumes(left))));
        }
        control.call(|t| class.destroy(t, geom, true))?;
        let words = wipe(control, &set, rest)?;
        class.stopped.start(&set);
        Ok(MessageAnswer::new(words))
    }
}

/// Remains of an array after its last volume is removed.
struct Rest {
    id: SetId,
    /// Providers that it holds.
    held: Vec<String>,
    /// Keys of disks that it does not hold, as its records call them.
    away: Vec<String>,
}

fn is_open(g: &RaidGeom, t: &Topology, keys: &[u32]) -> bool {
    keys.iter().filter_map(|key| g.running_volumes.get(key)).any(|up| {
        let counts = t.counts(up.provider);
        counts.r + counts.w + counts.e > 0
    })
}

fn rest(g: &RaidGeom) -> Result<Rest, Error> {
    let not_up = || Error::new(Errno::NxIo, "the array has not started");
    let (Some(set), Some(metadata)) = (&g.set, &g.metadata) else { return Err(not_up()) };
    let disks = set.array.disks.iter().zip(&set.attached);
    Ok(Rest {
        id: g.id,
        held: g.disks.values().map(|disk| disk.name.clone()).collect(),
        away: disks.filter(|(_, tag)| tag.is_none()).map(|(disk, _)| metadata.key(disk)).collect(),
    })
}

/// Providers with a record of an array that does not hold them: disks that failed, or were refused.
fn detached_providers(control: &mut GraphControl, set: &str, held: &[String]) -> Vec<String> {
    let view = control.topology.view(0);
    let all = view.iter().flat_map(|g| &g.providers).filter(|p| !held.contains(&p.name));
    let named =
        all.filter(|p| p.taste_outcomes.iter().any(|(c, why)| *c == NAME && why.contains(set)));
    named.map(|p| p.name.clone()).collect()
}

/// Clears the records of all disks that have one, and names those that it cannot clear.
fn wipe(control: &mut GraphControl, set: &str, mut rest: Rest) -> Result<String, Error> {
    let (mut cleared, mut kept) = (Vec::new(), Vec::new());
    let strays = detached_providers(control, set, &rest.held);
    for name in std::mem::take(&mut rest.held) {
        match erase(control, &name) {
            Ok(()) => cleared.push(name),
            Err(e) => kept.push((name, e)),
        }
    }
    for name in strays {
        // After the others: a record seen through one of them is cleared with it.
        let Ok(found) = probe(control, &name) else { continue };
        if found.is_spare() || found.set() != rest.id {
            continue;
        }
        rest.away.retain(|key| *key != found.key());
        match erase(control, &name) {
            Ok(()) => cleared.push(name),
            Err(e) => kept.push((name, e)),
        }
    }
    let mut words = format!("{set} deleted: {} cleared", cleared.join(", "));
    if !rest.away.is_empty() {
        words += &format!(
            "; not there and not cleared: {}. Each returns as an array that waits for the \
             others: `ashlar {NAME} stop {set}`, then `ashlar {NAME} clear DISK`",
            rest.away.join(", ")
        );
    }
    let Some((_, first)) = kept.first() else { return Ok(words) };
    let kind = first.kind;
    for (name, e) in &kept {
        words += &format!(
            "; the record of {name} stays ({}): `ashlar {NAME} clear {name}` once it can be \
             written, or it returns as an array that waits for the others",
            e.message
        );
    }
    Err(Error::new(kind, words))
}
