//! The `follow` verb: moves the record of a disk that grew to its new end.

use geom::{Bytes, Control, Deserialize, Edge, Error, JsonSchema, Verb};
use serde_json::{Value, json};

use super::serial;
use crate::conversation::carry_out;
use crate::members::hand;
use crate::raid::class::RaidClass;
use crate::raid::follow::Disk;
use crate::raid::geom::NAME;
use crate::words::Force;

/// Bring the record of a disk that has grown to its new end
///
/// Intel's record is at the end of a disk, and so is DDF's anchor; they are looked for there
/// only. While an array has a disk open they follow when it grows, and those of one that grew
/// meanwhile are found where this daemon has seen it end. Of a disk that has grown elsewhere they
/// stay behind, and it is not seen: this brings them along. Intel's record must say itself that the
/// disk had as much as --was. Something else at the end is overwritten only with --force.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Follow {
    /// The provider that grew
    member: String,
    /// The size that it had; absent: the label is looked for in the last MiB
    was: Option<Bytes>,
    force: Force,
}

impl Verb<RaidClass> for Follow {
    const NAME: &'static str = "follow";
    const POSITIONAL: &'static [&'static str] = &["member"];
    const EXAMPLE: &'static str = "raid follow d0 --was 10GiB";
    const WRITES: bool = true;
    type Answer = Value;

    fn run(self, _: &RaidClass, control: &mut Control) -> Result<Value, Error> {
        let name = self.member.as_str();
        let on = hand::find(control, name)?;
        let (sector, media) = hand::sizes(control, on);
        let serial = serial(control, name)?;
        let disk = Disk { name, serial, sector, media };
        let (found, was) = hand::reading(control, NAME, name, |control, edge| {
            disk.check_end(control, edge, self.force.0)?;
            match self.was.map(|bytes| bytes.0) {
                None => disk.search(control, edge),
                Some(was) if was >= media => {
                    Err(Error::inval(format!("{name} has {media} bytes; --was is a smaller size")))
                }
                Some(was) => Ok((disk.found(control, edge, was)?, was)),
            }
        })?;
        let (plan, clear) = disk.plans(&found, was)?;
        let agreed = |_: &mut Control, _: Edge| Ok(());
        hand::writing(control, NAME, name, agreed, |control, edge| {
            let done = control.run_on_core("moving a record", move |core| {
                Box::pin(async move {
                    carry_out(core, edge, &plan).await?;
                    carry_out(core, edge, &clear).await
                })
            })?;
            done.map_err(|e| Error::new(e, format!("{name}: {}", e.text())))
        })?;
        hand::look_again(control)?;
        control.settle()?;
        let set = found.set().name();
        let message = format!("{name}: its record of {set} is at its end now; it had {was} bytes");
        Ok(json!({ "message": message, "array": set, "was": was }))
    }
}
