//! The `consistency` verb: shows or changes the consistency policy of volumes.

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, Verb};
use serde::Serialize;

use super::{ArrayName, Policy, VolumeName, selected_volumes, with};
use crate::raid::class::RaidClass;
use crate::raid::geom::Job;
use crate::raid::policy::policy_name;

/// Show or change the consistency policy of a volume
///
/// The policy determines what must be resynced after a crash. Without --policy nothing changes. The
/// policy can change while the volume is in use: new writes wait until writes in progress have
/// ended and the metadata is updated; nothing is resynced. The volume must be OPTIMAL. A log (ppl)
/// needs 1 MiB behind the volume's data on each disk: space that `label` left with --size or
/// --consistency ppl, or free space before the next volume or the metadata at the end of the disk.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Consistency {
    name: ArrayName,
    #[serde(default)]
    volume: VolumeName,
    /// New policy, as with --consistency of `label` [default: show the present policy]
    policy: Option<Policy>,
}

/// The consistency policies of an array.
#[derive(Serialize, JsonSchema)]
pub(super) struct ConsistencyAnswer {
    /// Policy of each volume, a line each.
    message: String,
    /// Name of the array.
    array: String,
    /// The volumes.
    volumes: Vec<VolumePolicy>,
}

/// The consistency policy of a volume.
#[derive(Serialize, JsonSchema)]
struct VolumePolicy {
    /// Label of the volume.
    name: String,
    /// Present policy: resync, ppl or none.
    policy: &'static str,
    /// Whether the policy can be changed now.
    changeable: bool,
    /// Policy that Linux has recorded and this program does not keep; null: none.
    linux: Option<&'static str>,
}

impl Verb<RaidClass> for Consistency {
    const NAME: &'static str = "consistency";
    const POSITIONAL: &'static [&'static str] = &["name", "volume"];
    const EXAMPLE: &'static str = "raid consistency Intel-1234abcd --policy ppl";
    const WRITES: bool = true;
    type Answer = ConsistencyAnswer;

    fn run(self, (_, control): At<'_, RaidClass>) -> Result<ConsistencyAnswer, Error> {
        let on = self.name.0.as_str();
        let keep = self.policy.map(|policy| policy == Policy::Ppl);
        let volume = self.volume.0.as_deref();
        if let Some(keep) = keep {
            with(control, on, |g, t, me| {
                let mut keys = Vec::new();
                for at in selected_volumes(g, on, volume)? {
                    let key =
                        g.set.as_ref().and_then(|set| set.volume_status.get(at)).map(|vol| vol.key);
                    keys.extend(key.filter(|_| g.may_change(at, keep).as_ref() != Ok(&false)));
                    g.may_change(at, keep)?;
                }
                for key in keys {
                    // In one step: later jobs are queued behind both.
                    g.queue.push_back(Job::Clean(key));
                    g.push(t, me, Job::Policy(key, keep));
                }
                Ok(())
            })?;
        }
        let (set, volumes) = with(control, on, |g, _, _| {
            let mut volumes = Vec::new();
            for at in selected_volumes(g, on, volume)? {
                let Some(set) = &g.set else { continue };
                let Some(volume) = set.array.volumes.get(at) else { continue };
                let now = policy_name(volume);
                if keep.is_some_and(|keep| keep != volume.log.is_some()) {
                    let what = format!(
                        "volume {} still has policy {now}: a disk was lost, or did not take its \
                         record; `ashlar raid list {}` shows why",
                        volume.name,
                        g.id.name()
                    );
                    return Err(Error::new(Errno::Busy, what));
                }
                let can = keep.is_some() || g.may_change(at, volume.log.is_none()).is_ok();
                let guard = g.metadata.as_ref().filter(|_| volume.log.is_none());
                let guard = guard.and_then(|metadata| metadata.write_hole_policy(volume.id));
                volumes.push(VolumePolicy {
                    name: volume.name.clone(),
                    policy: now,
                    changeable: can,
                    linux: guard,
                });
            }
            Ok((g.id.name(), volumes))
        })?;
        let line = |volume: &VolumePolicy| format!("{}: {}", volume.name, volume.policy);
        let lines: Vec<String> = volumes.iter().map(line).collect();
        Ok(ConsistencyAnswer { message: lines.join("\n"), array: set, volumes })
    }
}
