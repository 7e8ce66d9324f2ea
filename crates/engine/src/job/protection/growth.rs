//! Location of the tail on a provider whose length has changed since the tail was made (D5).
//!
//! | the provider | then |
//! | --- | --- |
//! | grows while the unit is served | tail and capacity stay |
//! | has grown when the unit is made | so they do: the state store's record has its place |
//! | is longer, FORMAT UNIT runs  | tail at the new end, capacity of all of it |
//! | is shorter while the unit is served | nothing can be reached |
//! | is shorter when the unit is made | refused: the tail is cut off |
//! | has grown, and the record is lost | medium corrupted, if an old header is found |
//!
//! The record is the header as it is on the medium. It is written when the unit has been made ready
//! and after FORMAT UNIT. A unit that is made without protection information forgets it.
//!
//! A provider without a record, and without a header at its end, is a new unit, or one that
//! grew while its record was lost. If it were made anew in the second case, all guards would be
//! lost silently. So a header is looked for where providers of round sizes end ([`PLACES_MAX`]);
//! not behind each block, because all of them would have to be read. A header that is found is not
//! trusted either: an old one among data would shorten the unit. The medium is then corrupted, and
//! the operator decides. If the provider gets its earlier length back, it has its guards again, and
//! may grow while it is served. If it is opened once without protection information, it is a new
//! unit afterwards.

use std::sync::Arc;

use bio::Errno;
use geom::Error;

use super::{get, memory};
use crate::job::Medium;
use crate::registry::Registry;
use crate::state_store::{RecordKind, save_channel};
use crate::status::Ending;
use crate::unit::Device;
use crate::unit::protection::{Header, Layout, Protection, ProtectionSpec};
use crate::unit::spec::DeviceSpec;

/// Most places at which an old header is looked for: multiples of the smallest power of two blocks
/// that has no more of them. An old one elsewhere is not found, and the unit is a new one.
const PLACES_MAX: u64 = 1024;

/// Places as near as this are read together, bytes.
const NEAR_BYTES: u64 = 16 << 10;

/// The record of a unit on which an old header was found.
const OLD_HEADER_RECORD: &[u8] = b"ASHDOUBT";

/// The state store's record of a unit's tail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailRecord {
    Nothing,
    /// Blocks of the provider that it was made for.
    Tail(u64),
    /// A record existed and was given up: a header that is found is old.
    GivenUp,
}

impl TailRecord {
    fn total(self) -> Option<u64> {
        match self {
            TailRecord::Tail(total) => Some(total),
            TailRecord::Nothing | TailRecord::GivenUp => None,
        }
    }
}

/// Reads the record for a new unit. Waits for the state store: for the control thread. Fails when
/// the tail is cut off.
pub(crate) fn load_tail_record(
    registry: &Registry,
    spec: &DeviceSpec,
) -> Result<TailRecord, Error> {
    let store = registry.state_store();
    let Some(bytes) = store.load(&spec.serial, RecordKind::Protection)? else {
        return Ok(TailRecord::Nothing);
    };
    if bytes.is_empty() {
        return Ok(TailRecord::GivenUp);
    }
    if spec.protection == ProtectionSpec::Off {
        let (done, saved) = save_channel();
        store.save(&spec.serial, RecordKind::Protection, Vec::new(), done);
        saved.wait().map_err(|e| Error::of(e, "forget the protection information"))?;
        return Ok(TailRecord::GivenUp);
    }
    let total = recorded_total(&bytes, &spec.label.name, (spec.media_bytes, spec.sector_bytes))?;
    Ok(total.map_or(TailRecord::Nothing, TailRecord::Tail))
}

/// Blocks of the provider for which a recorded tail was made; none when the record has no tail.
/// Fails when the tail is cut off from a provider of so many bytes with such blocks.
pub(crate) fn recorded_total(
    record: &[u8],
    provider: &str,
    (media_bytes, sector_bytes): (u64, u32),
) -> Result<Option<u64>, Error> {
    let Some((layout, _)) = Header::read(record) else { return Ok(None) };
    let unit = u64::from(sector_bytes);
    let now = media_bytes / unit.max(1);
    if layout.unit != unit || layout.total > now {
        let what = format!(
            "{provider}: its protection information is at the end of {} blocks of {} bytes, and \
             there are {now} of {unit}: make the provider as long as it was, or open the unit once \
             with protection = \"none\", which gives the information up",
            layout.total, layout.unit
        );
        return Err(Error::inval(what));
    }
    Ok(Some(layout.total))
}

/// Reports an old header, of a provider of `total` blocks, to the operator. The finding is kept, so
/// that `protection = "none"` gives up the tail that may be there.
pub(super) async fn report_old_header(registry: &Registry, device: &Device, total: u64) {
    let spec = device.spec();
    registry.notify_operator(
        &spec.label.name,
        format!(
            "a header of protection information is at the end of {total} blocks, but the state \
             folder does not list it: the provider has grown, and the state folder was lost. \
             Nothing is read or written until this is decided: make the provider {total} blocks of \
             {} bytes long again to use all guards (it may grow while it is served); or open it \
             once with protection = \"none\" to discard them",
            spec.sector_bytes
        ),
    );
    let store = registry.state_store();
    if store.is_persistent() {
        let (done, saved) = save_channel();
        store.save(&spec.serial, RecordKind::Protection, OLD_HEADER_RECORD.to_vec(), done);
        let _ = saved.await;
    }
}

/// Keeps where the tail is. Without success the last record stays.
pub(crate) async fn save_tail_record(registry: &Registry, device: &Device) -> Result<(), Errno> {
    let store = registry.state_store();
    let Some(protection) = device.protection().filter(|_| store.is_persistent()) else {
        return Ok(());
    };
    let (done, saved) = save_channel();
    let record = protection.layout().record(protection.kind());
    store.save(&device.spec().serial, RecordKind::Protection, record, done);
    saved.await
}

/// The same on a core, of a unit that was made ready. When it fails, a provider that grows before
/// the next start is taken for a new one.
pub(crate) async fn save_new_tail(registry: &Arc<Registry>, device: &Device, recalled: TailRecord) {
    let total = recalled.total();
    let is_new = device.protection().is_some_and(|p| Some(p.layout().total) != total);
    if is_new {
        let _ = save_tail_record(registry, device).await;
    }
}

impl Protection {
    /// Blocks of the provider whose last one may be the header, the likeliest first.
    pub(super) fn lengths(&self, recalled: TailRecord) -> impl Iterator<Item = u64> {
        let provider = self.provider_blocks();
        let before = recalled.total().filter(|total| *total < provider);
        std::iter::once(provider).chain(before)
    }

    /// Searches for a header at the end of a shorter provider; answers the blocks of that provider.
    pub(super) async fn old_header(&self, medium: &Medium) -> Result<Option<u64>, Ending> {
        let (unit, blocks) = (self.layout().unit, self.provider_blocks());
        let step = blocks.div_ceil(PLACES_MAX).next_power_of_two();
        // So many places are read at a time.
        let together = match step * unit <= NEAR_BYTES {
            true => (super::repair::PIECE_BYTES / (step * unit)).max(1),
            false => 1,
        };
        let mut total = step;
        while total < blocks {
            let last = (total + (together - 1) * step).min((blocks - 1) / step * step);
            let (from, len) = ((total - 1) * unit, (last - total + 1) * unit);
            let buffer = memory(medium, len, true).await?;
            let bytes = get(medium, from, len, buffer).await?;
            let mut at = 0;
            while total <= last {
                let block = bytes.get(at..).unwrap_or_default();
                if let Header::Format(layout, _) = Header::decode(block, unit, total)
                    && layout.total == total
                {
                    return Ok(Some(total));
                }
                at += usize::try_from(step * unit).unwrap_or(usize::MAX);
                total += step;
            }
        }
        Ok(None)
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_tail_fits_the_provider_and_a_longer_one_only() {
        let record = Layout::new(1 << 20, 512).expect("there is room").record(None);
        let total = |bytes, sector| recorded_total(&record, "d0", (bytes, sector));
        assert!([1 << 20, 2 << 20].iter().all(|bytes| total(*bytes, 512) == Ok(Some(2048))));
        for (bytes, sector) in [((1 << 20) - 512, 512), (1 << 20, 4096)] {
            let refused = total(bytes, sector).expect_err("it is cut off").to_string();
            assert!(refused.contains("2048 blocks of 512 bytes"), "{refused}");
        }
        assert_eq!(recorded_total(OLD_HEADER_RECORD, "d0", (512, 512)), Ok(None));
    }
}
