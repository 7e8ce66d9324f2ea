//! Properties of a multipath device that do not depend on its paths.

use super::metadata::{Metadata, Mode};
use super::options::Options;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Identity {
    /// Absent: made by hand, and without a record.
    pub(super) uuid: Option<String>,
    /// Its name in the record: its own may be another.
    pub(super) label: String,
    pub(super) mode: Mode,
    pub(super) sector_bytes: u32,
    /// Bytes of the disk, the record's sector included.
    pub(super) provider_bytes: u64,
}

impl Identity {
    /// The properties in a record.
    pub(super) fn of(record: &Metadata) -> Identity {
        Identity {
            uuid: Some(record.uuid.clone()),
            label: record.name.clone(),
            mode: record.mode,
            sector_bytes: record.sector_bytes,
            provider_bytes: record.provider_bytes,
        }
    }

    /// The record with these properties; `None` for a device made by hand.
    pub(super) fn record(&self, options: Options) -> Option<Metadata> {
        Some(Metadata {
            uuid: self.uuid.clone()?,
            name: self.label.clone(),
            sector_bytes: self.sector_bytes,
            provider_bytes: self.provider_bytes,
            mode: self.mode,
            options,
        })
    }

    pub(super) fn media_bytes(&self) -> u64 {
        let own = if self.uuid.is_some() { u64::from(self.sector_bytes) } else { 0 };
        self.provider_bytes.saturating_sub(own)
    }
}
