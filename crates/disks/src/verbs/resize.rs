//! `resize`: the size of a disk while it is in use.

use std::time::Duration;

use bio::Errno;
use geom::{At, Bytes, Deserialize, Error, Event, JsonSchema, Verb};
use serde::Serialize;

use crate::class::{DISK_CLASS, DiskClass, DiskGeom};
use crate::kind::{Growth, ResizeCall};

/// Longest wait for the file of a disk.
const RESIZE_LIMIT: Duration = Duration::from_secs(15);

/// Read the size of a disk again, or enlarge its image file
///
/// The geoms above and the hosts are notified. A disk is never made smaller: that would lose data.
#[derive(Deserialize, JsonSchema)]
pub(super) struct Resize {
    /// Name of the disk
    name: String,
    /// New size of the image file in bytes, in whole sectors [default: its present size]
    size: Option<Bytes>,
}

/// Bytes before and after.
#[derive(Serialize, JsonSchema)]
pub(super) struct Resized {
    /// Former size, bytes.
    was: u64,
    /// Size, bytes.
    size: u64,
    /// Result in one sentence.
    message: String,
}

impl Verb<DiskClass> for Resize {
    const NAME: &'static str = "resize";
    const EXAMPLE: &'static str = "disk resize d0 --size 2GiB";
    type Answer = Resized;

    fn run(self, (_, control): At<'_, DiskClass>) -> Result<Resized, Error> {
        let on = self.name.as_str();
        let gone = || Error::new(Errno::NxIo, format!("{on} is being removed"));
        let geom = geom::named(&control.topology, DISK_CLASS, on)?;
        let provider = control.topology.providers_of(geom).first().copied().ok_or_else(gone)?;
        let limits = control.topology.limits(provider);
        let (was, sector) = limits.map_or((0, 1), |l| (l.media_bytes, l.sector_bytes));
        let mut growth = None;
        if let Some(Bytes(wanted)) = self.size {
            check_resize(on, (was, sector), wanted)?;
            growth = (wanted > was).then_some(Growth { from: was, to: wanted });
        }
        let call = control.topology.with(geom, |g: &mut DiskGeom, _| g.unit.resize(growth));
        let resized = match call.ok_or_else(gone)? {
            ResizeCall::Done(resized) => resized,
            ResizeCall::Blocks(call) => {
                control.run_elsewhere(RESIZE_LIMIT, call).ok_or_else(|| late(on))?
            }
        };
        let size = resized?;
        if size == Err(Errno::NxIo) {
            control.topology.with(geom, |g: &mut DiskGeom, _| {
                g.watch.iter().for_each(|watch| watch.lost(Errno::NxIo));
            });
        }
        let size = size
            .map_err(|e| Error::new(e, format!("{on}: its size cannot be read: {}", e.text())))?;
        control.call(|t| {
            t.post(Event::Resize(provider, size));
            Ok(())
        })?;
        let message = match size == was {
            true => format!("{on} has {size} bytes, as before"),
            false => format!("{on} has {size} bytes now; it had {was}"),
        };
        Ok(Resized { was, size, message })
    }
}

/// The error for a disk whose file does not answer.
fn late(disk: &str) -> Error {
    let what = format!(
        "{disk}: its file does not answer ({} s, the limit), and may become larger later; next: \
         check its file system (`findmnt`, `dmesg`), then `ashlar disk resize {disk}`",
        RESIZE_LIMIT.as_secs()
    );
    Error::new(Errno::TimedOut, what)
}

/// Refuses to give a disk of `was` bytes in such sectors another size than a larger one.
///
/// # Errors
/// The sizes, and how to keep the present one.
pub fn check_resize(disk: &str, (was, sector): (u64, u32), wanted: u64) -> Result<(), Error> {
    if wanted >= was && wanted.is_multiple_of(u64::from(sector.max(1))) {
        return Ok(());
    }
    Err(Error::inval(format!(
        "{disk}: size cannot change from {was} to {wanted} bytes: a disk only grows, in whole \
         sectors of {sector} bytes; without `size` it keeps its {was} bytes"
    )))
}
