//! The `relocate` verb: moves the record of a disk that grew to its new end.

use geom::{At, Bytes, Deserialize, Edge, Error, GraphControl, JsonSchema, Verb};
use serde::Serialize;

use super::serial;
use crate::members::provider_access;
use crate::probe_io::carry_out;
use crate::raid::class::RaidClass;
use crate::raid::geom::NAME;
use crate::raid::relocate::Disk;
use crate::shared_args::Force;

/// Move the metadata to the new end of a grown disk
///
/// Intel metadata and the DDF anchor are at the end of a disk and are searched for only there.
/// While an array has a disk open, they move when it grows. If the disk grew while it was not open,
/// they are found at the last end that this daemon has seen. If it grew elsewhere, they are not
/// found: this verb moves them. The disk size that Intel metadata records must equal --was. Other
/// data at the end is overwritten only with --force.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Relocate {
    /// Provider that grew
    member: String,
    /// Previous size of the disk [default: search for the metadata in the last MiB]
    was: Option<Bytes>,
    /// Overwrite other data at the end of the disk
    force: Force,
}

/// The move of a disk's metadata.
#[derive(Serialize, JsonSchema)]
#[schemars(rename = "RaidRelocateAnswer")]
pub(super) struct RelocateAnswer {
    /// Result in one sentence.
    message: String,
    /// Name of the array.
    array: String,
    /// Former size of the disk, bytes.
    was: u64,
}

impl Verb<RaidClass> for Relocate {
    const NAME: &'static str = "relocate";
    const POSITIONAL: &'static [&'static str] = &["member"];
    const EXAMPLE: &'static str = "raid relocate d0 --was 10GiB";
    const WRITES: bool = true;
    type Answer = RelocateAnswer;

    fn run(self, (_, control): At<'_, RaidClass>) -> Result<RelocateAnswer, Error> {
        let name = self.member.as_str();
        let on = provider_access::find(control, name)?;
        let (sector, media) = provider_access::sizes(control, on);
        let serial = serial(control, name)?;
        let disk = Disk { name, serial, sector, media };
        let (found, was) =
            provider_access::with_read_access(control, NAME, name, |control, edge| {
                disk.check_end(control, edge, self.force.0)?;
                match self.was.map(|bytes| bytes.0) {
                    None => disk.search(control, edge),
                    Some(was) if was >= media => Err(Error::inval(format!(
                        "{name}: --was must be smaller than the present size ({media} bytes)"
                    ))),
                    Some(was) => Ok((disk.found(control, edge, was)?, was)),
                }
            })?;
        let (plan, clear) = disk.plans(&found, was)?;
        let agreed = |_: &mut GraphControl, _: Edge| Ok(());
        provider_access::with_write_access(control, NAME, name, agreed, |control, edge| {
            let done = control.run_on_core("moving a record", move |core| {
                Box::pin(async move {
                    carry_out(core, edge, &plan).await?;
                    carry_out(core, edge, &clear).await
                })
            })?;
            done.map_err(|e| Error::new(e, format!("{name}: {}", e.text())))
        })?;
        provider_access::taste_all_again(control)?;
        control.settle()?;
        let set = found.set().name();
        let message = format!("{name}: its record of {set} is at its end now; it had {was} bytes");
        Ok(RelocateAnswer { message, array: set, was })
    }
}
