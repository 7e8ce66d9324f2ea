//! Where the tail of a provider is that has another length than when the tail was made (D5).
//!
//! | the provider | then |
//! | --- | --- |
//! | grows while the unit is served | tail and capacity stay |
//! | has grown when the unit is made | so they do: the record in the vault says where it was |
//! | is longer, FORMAT UNIT comes | tail at the new end, capacity of all of it |
//! | is shorter while the unit is served | nothing can be reached |
//! | is shorter when the unit is made | refused: the tail is cut off |
//!
//! The record is the header as it is on the medium. It is written when the unit has been made ready
//! and after FORMAT UNIT; where nothing is kept, a provider must not grow while it is not served. A
//! unit that is made without protection information forgets it. The header is not searched for: it
//! may be behind any block, each of which would have to be read, and an old one among data, taken
//! for it, would cut the unit.

use std::sync::Arc;

use bio::Errno;
use geom::Error;

use super::Protection;
use super::layout::{Header, Layout};
use crate::device::{Device, DeviceSpec};
use crate::registry::Registry;
use crate::vault::{Kind, ticket};

/// What the record says of a unit that is to be made: the blocks of the provider that its tail was
/// made for. Waits for the vault: for the control thread. Fails when the tail is cut off.
pub(crate) fn recall(registry: &Registry, spec: &DeviceSpec) -> Result<Option<u64>, Error> {
    let vault = registry.vault();
    let Some(bytes) = vault.load(&spec.serial, Kind::Protection)? else { return Ok(None) };
    let Some((layout, _)) = Header::read(&bytes) else { return Ok(None) };
    if spec.protection == super::ProtectionSpec::Off {
        let (done, saved) = ticket();
        vault.save(&spec.serial, Kind::Protection, Vec::new(), done);
        saved.wait().map_err(|e| Error::of(e, "forget the protection information"))?;
        return Ok(None);
    }
    let unit = u64::from(spec.sector_bytes);
    let here = spec.media_bytes / unit.max(1);
    if layout.unit != unit || layout.total > here {
        let what = format!(
            "{}: its protection information is at the end of {} blocks of {} bytes, and there are \
             {here} of {unit}: make the provider as long as it was, or open the unit once with \
             protection = \"none\", which gives the information up",
            spec.name, layout.total, layout.unit
        );
        return Err(Error::new(Errno::Inval, what));
    }
    Ok(Some(layout.total))
}

/// Keeps where the tail is. Without success the last record stays.
pub(crate) async fn keep(registry: &Registry, device: &Device) -> Result<(), Errno> {
    let vault = registry.vault();
    let Some(protection) = device.protection().filter(|_| vault.keeps()) else { return Ok(()) };
    let (done, saved) = ticket();
    let record = protection.layout().record(protection.kind());
    vault.save(&device.spec().serial, Kind::Protection, record, done);
    saved.await
}

/// The same on a core, of a unit that was made ready: when it fails, a provider that grows before
/// the next start is taken for a new one.
pub(crate) async fn keep_where(registry: &Arc<Registry>, device: &Device, recalled: Option<u64>) {
    let is_new = device.protection().is_some_and(|p| Some(p.layout().total) != recalled);
    if is_new {
        let _ = keep(registry, device).await;
    }
}

impl Protection {
    /// Blocks of the provider whose last one may be the header, the likeliest first.
    pub(super) fn lengths(&self, recalled: Option<u64>) -> impl Iterator<Item = u64> {
        let provider = self.provider_blocks();
        let before = recalled.filter(|total| *total < provider);
        std::iter::once(provider).chain(before)
    }

    /// The tail that FORMAT UNIT makes: for the provider as long as it is now.
    pub(super) fn grown(&self) -> Layout {
        let now = self.layout();
        let bytes = self.provider_blocks().checked_mul(now.unit);
        let unit = u32::try_from(now.unit).ok();
        let new = bytes.zip(unit).and_then(|(bytes, unit)| Layout::new(bytes, unit));
        new.filter(|new| new.total > now.total).unwrap_or(now)
    }
}
