//! medium: the devices of a config string, as ranges of bytes that are read, written and flushed.

mod build;
mod joined;
mod provider;

pub use build::{Find, VolumeDevices, image_devices, volume_devices};
pub use joined::{Joined, LooseMirror, Part};
pub use provider::{Provider, ProviderPath};

use bio::{Errno, Segs};
use geom::Local;

/// A device of the file server. Offsets and lengths are in bytes, multiples of the block size of
/// the volume; the layers below do not know their meaning.
pub trait Medium {
    /// Its name in messages.
    fn name(&self) -> &str;

    /// Bytes; may grow.
    fn size(&self) -> u64;

    fn read(&self, at: u64, into: Segs) -> Local<'_, Result<(), Errno>>;

    /// Writes all of `from`. A completed write is seen by every later read, and survives a loss of
    /// power after the next flush.
    fn write(&self, at: u64, from: Segs) -> Local<'_, Result<(), Errno>>;

    /// Makes completed writes durable.
    fn flush(&self) -> Local<'_, Result<(), Errno>>;
}
