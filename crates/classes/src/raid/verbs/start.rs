//! The `start` verb: starts an array that was stopped, or that waits for disks.

use bio::Errno;
use geom::{At, Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::with;
use crate::members::provider_access;
use crate::raid::class::RaidClass;
use crate::raid::geom::{NAME, RaidGeom};
use crate::raid::show::volumes;
use crate::shared_args::Force;

/// Start a stopped or incomplete array
///
/// The verb searches for the disks of a stopped array. With --force an array starts with the
/// available disks. This includes a volume with parity that has a missing disk and was being
/// written at a crash (data of the missing disk may be wrong in these places: check it).
///
/// If halves of an array were used without each other (split brain), the array does not start,
/// with --force neither, and `status` shows the age of each half. --keep DISK starts it with the
/// metadata of DISK. Disks of another half stay out until `raid insert` rebuilds them.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Start {
    /// Name of the array, without the class
    name: String,
    /// After a split brain: a disk of the half to keep
    keep: Option<String>,
    /// Start with the available disks, even if data may be wrong or missing
    force: Force,
}

impl Verb<RaidClass> for Start {
    const NAME: &'static str = "start";
    const EXAMPLE: &'static str = "raid start Intel-1234abcd";
    type Answer = MessageAnswer;

    fn run(self, (class, control): At<'_, RaidClass>) -> Result<MessageAnswer, Error> {
        let on = self.name.as_str();
        let name = geom::bare_name(NAME, on).to_owned();
        let was_stopped = class.stopped.start(&name);
        // The half that is kept starts before the other is found, which is refused then.
        match self.keep.as_ref().filter(|_| was_stopped) {
            Some(disk) => {
                let on = provider_access::find(control, disk)?;
                control.call(|t| {
                    t.retaste(on);
                    Ok(())
                })?;
                control.settle()?;
            }
            None if was_stopped => provider_access::taste_all_again(control)?,
            None => {}
        }
        if self.force.0 || self.keep.is_some() {
            with(control, on, |g, t, me| {
                match &self.keep {
                    Some(disk) => set_trusted_disk(g, &name, disk)?,
                    // The choice of an earlier start that failed is not this one's.
                    None if g.set.is_none() => g.trusted_disk = None,
                    None => {}
                }
                g.launch(t, me, true, true);
                for vol in g.set.iter_mut().flat_map(|set| &mut set.volume_status) {
                    vol.forced = true;
                }
                g.start_volumes(t, me);
                g.start_passes();
                Ok(())
            })?;
        } else if !was_stopped {
            with(control, on, |g, t, me| {
                if g.set.is_some() {
                    let what =
                        format!("raid {name} was not stopped; `ashlar raid status` shows all");
                    return Err(Error::new(Errno::NoEnt, what));
                }
                // It waits for further disks: not any more.
                g.launch(t, me, true, false);
                Ok(())
            })?;
        }
        if self.keep.is_some() {
            provider_access::taste_all_again(control)?;
        }
        let (count, fault) =
            with(control, on, |g, _, _| Ok((g.running_volumes.len(), g.fault.clone())))?;
        match fault {
            Some(fault) if count == 0 => Err(Error::new(Errno::NxIo, fault)),
            _ => Ok(MessageAnswer::new(format!("{name} is there, with {}", volumes(count)))),
        }
    }
}

/// After a split brain the half of this disk is believed at the start that follows.
fn set_trusted_disk(g: &mut RaidGeom, array: &str, disk: &str) -> Result<(), Error> {
    let has_it = g.disks.values().any(|d| d.name == disk);
    if g.set.is_some() && !has_it {
        let what =
            format!("raid {array} runs already, without {disk}; `ashlar raid stop {array}` first");
        return Err(Error::new(Errno::Busy, what));
    }
    if !has_it {
        let names: Vec<&str> = g.disks.values().map(|d| d.name.as_str()).collect();
        let what = format!("{disk} is no disk of raid {array}, which has {}", names.join(", "));
        return Err(Error::new(Errno::NoEnt, what));
    }
    g.trusted_disk = Some(disk.to_owned());
    Ok(())
}
