//! Interface of a kind of disk, and the disk that it returns when it has opened one.

use std::any::Any;
use std::sync::Arc;
use std::time::Duration;

use bio::{Attr, Errno};
use geom::{Error, Inbox, Layer, Limits, Notifier, Trouble};
use serde_json::Value;

use crate::arrivals::Arrivals;
use crate::lasting::{Identities, PersistentIdentity};
use crate::medium::Medium;
use crate::path_state::PathState;
use crate::watch::Watch;

/// Longest serial number or description, bytes; longer ones are cut.
pub const IDENT_MAX: usize = 255;

/// Largest READ or WRITE handed to a disk in one piece, bytes; the dispatcher splits longer ones.
pub(crate) const IO_BYTES_MAX: u32 = 1 << 20;

/// The parts of the daemon that an open disk uses.
#[derive(Clone)]
pub struct Site {
    /// Receives the loss of a disk.
    pub inbox: Arc<Inbox>,
    /// Cores that will send requests.
    pub cores: usize,
    /// Keeper of identities; `None`: they are made from the machine's id and the place.
    pub identities: Option<Arc<dyn Identities>>,
}

pub struct Open<'a> {
    /// Its name, which is its provider's.
    pub name: &'a str,
    /// The kind's own parameters; `null` when there are none.
    pub params: &'a Value,
    /// The parts of the daemon that it uses.
    pub site: &'a Site,
    /// The path to the cores.
    pub notifier: &'a Notifier,
}

/// What the parameter `path` of a disk names on this machine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PathKind {
    /// Nothing: such a disk has no path.
    #[default]
    None,
    /// An image file.
    File,
    /// A device, whose hardware may report an identity.
    Device,
}

/// A kind of disk. One value each, in [`crate::KINDS`].
pub trait Kind: Send + Sync {
    /// Its name in the configuration.
    fn name(&self) -> &'static str;

    /// One sentence.
    fn doc(&self) -> &'static str;

    /// JSON Schema of its parameters: an object.
    fn schema(&self) -> Value;

    /// True when the content is lost with the disk.
    fn volatile(&self) -> bool {
        false
    }

    /// Whether reads return what was written. A disk that stores nothing has no data to lose.
    fn stores_data(&self) -> bool {
        true
    }

    /// Keys that an open disk takes over: see [`Unit::update_params`].
    fn live_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// Keys that are without effect on a medium that exists and has its size. An edit of `size`
    /// among them makes the medium larger while the disk is used.
    fn size_keys(&self) -> &'static [&'static str] {
        &[]
    }

    /// What the parameter `path` of such a disk names.
    fn path_kind(&self) -> PathKind {
        PathKind::None
    }

    /// Whether a disk without `sector_size` has the sectors of its medium.
    fn has_sectors_of_medium(&self) -> bool {
        false
    }

    /// Effects of an edit of its keys on running hosts, for the reference. For a key that is not
    /// listed, the disk is removed and added.
    fn edits(&self) -> &'static [(&'static str, &'static str)] {
        &[]
    }

    /// A section that can be pasted into the configuration.
    fn example(&self) -> &'static str;

    /// Whether the medium of a disk that is not open answers, for kinds whose medium is reached
    /// over a network. Does not block: it is probed on a thread of its own, which posts the answer
    /// to `arrivals`; the next call returns the result. `None`: the medium is checked in another
    /// way.
    fn is_reachable(&self, name: &str, params: &Value, arrivals: &Arc<Arrivals>) -> Option<bool> {
        let _ = (name, params, arrivals);
        None
    }

    /// Waits until the medium of a disk that is to be opened answers, for kinds whose medium is
    /// reached over a network. `open` does not block then. On a thread that may block.
    ///
    /// # Errors
    /// Why the medium does not answer, at most after `most`. `NxIo`: nothing listens there, and
    /// the disk can be used as soon as its medium appears.
    fn reach(&self, name: &str, params: &Value, most: Duration) -> Result<(), Error> {
        let _ = (name, params, most);
        Ok(())
    }

    /// The place of the medium of such a disk, for people.
    fn location(&self, params: &Value) -> Option<String> {
        let _ = params;
        None
    }

    /// Refuses parameters with which [`Kind::open`] always fails. Changes nothing; on a thread that
    /// may block. A medium that is absent is no reason: it may appear later.
    ///
    /// # Errors
    /// As those of `open`.
    fn check(&self, name: &str, params: &Value) -> Result<(), Error> {
        let _ = (name, params);
        Ok(())
    }

    /// The file or device of this machine that such a disk uses; `None`: it uses none, or even its
    /// folder is absent. Changes nothing; on a thread that may block.
    fn medium(&self, params: &Value) -> Option<Medium> {
        let _ = params;
        None
    }

    /// Refuses a disk whose medium is locked, by a program or by an open disk. Keeps no lock; on a
    /// thread that may block.
    ///
    /// # Errors
    /// As those of `open`.
    fn check_lock(&self, name: &str, params: &Value) -> Result<(), Error> {
        let _ = (name, params);
        Ok(())
    }

    /// Opens a disk, on a thread that may block. Changes nothing outside except for the creation of
    /// the medium. An error names the medium and the action to take.
    fn open(&self, request: &Open<'_>) -> Result<Opened, Error>;
}

/// The names of a disk for the attributes of its provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Serial number (`GEOM::ident`), and the name of units on the disk (`DISK::called`).
    pub lasting: PersistentIdentity,
    /// Model or description: `GEOM::descr`.
    pub descr: String,
    /// Its location: `GEOM::physpath`; empty when that is not known.
    pub physpath: String,
    /// `GEOM::rotation_rate`: 0 unknown, 1 does not rotate, else turns a minute.
    pub rotation_rate: u16,
    /// `GEOM::candelete`: DELETE gives memory or blocks back.
    pub can_delete: bool,
    /// `GEOM::deletereadszero`: the whole range of a DELETE reads as zeroes afterwards.
    pub delete_reads_zero: bool,
    /// `ASHLAR::any_memory`: data to be written may be anywhere in memory; else data that is not in
    /// whole pages is copied to whole pages.
    pub any_memory: bool,
    /// `DISK::atomic`: a write of at most so many bytes that begins at a multiple of them, a power
    /// of two, is kept or lost as a whole at a power cut. `u64::MAX` where nothing is kept at all.
    pub atomic_bytes: u64,
    /// `DISK::delete_granule`, `DISK::delete_offset`: bytes that DELETE gives up as a whole, and
    /// the start of the first of them; zeroes where the disk reports nothing.
    pub delete_granule: (u64, u64),
    /// `GEOM::cananchor`: zeroes that must be allocated are, and MAP reports them so.
    pub can_anchor: bool,
}

impl Identity {
    pub(crate) fn attrs(&self) -> Vec<(&'static str, Attr)> {
        let mut attrs = vec![
            ("GEOM::ident", Attr::Text(self.lasting.geom_ident())),
            ("GEOM::descr", Attr::Text(printable(&self.descr))),
            ("GEOM::rotation_rate", Attr::Int(u64::from(self.rotation_rate))),
            ("GEOM::candelete", Attr::Int(u64::from(self.can_delete))),
            ("GEOM::deletereadszero", Attr::Int(u64::from(self.delete_reads_zero))),
            ("ASHLAR::any_memory", Attr::Int(u64::from(self.any_memory))),
            ("DISK::atomic", Attr::Int(self.atomic_bytes)),
            ("GEOM::cananchor", Attr::Int(u64::from(self.can_anchor))),
        ];
        if let Some(called) = &self.lasting.unit_name {
            attrs.push(("DISK::called", Attr::Text(called.clone())));
        }
        if self.delete_granule.0 > 0 {
            attrs.push(("DISK::delete_granule", Attr::Int(self.delete_granule.0)));
            attrs.push(("DISK::delete_offset", Attr::Int(self.delete_granule.1)));
        }
        if !self.physpath.is_empty() {
            attrs.push(("GEOM::physpath", Attr::Text(printable(&self.physpath))));
        }
        attrs
    }
}

/// The space of a disk that allocates it on write, bytes: the attributes `DISK::used`, `DISK::free`
/// and `DISK::shared`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceUsage {
    /// It takes so much.
    pub used: u64,
    /// It could take so much more, at any size.
    pub free: u64,
    /// Others can take that, too.
    pub is_shared: bool,
}

/// The size of a medium in whole sectors, or why it cannot be read; `NxIo`: the medium is gone. The
/// outer error: it could not be made larger.
pub type ResizeResult = Result<Result<u64, Errno>, Error>;

/// Sizes of a medium that is to become larger, bytes in whole sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Growth {
    /// That of its provider. A medium that is shorter was cut and has lost data.
    pub from: u64,
    /// That it is to have at least.
    pub to: u64,
}

/// A call that resizes a medium.
pub enum ResizeCall {
    /// It has ended.
    Done(ResizeResult),
    /// It blocks while the medium does not answer: not for the control thread.
    Blocks(Box<dyn FnOnce() -> ResizeResult + Send>),
}

/// The control path's side of an open disk.
pub trait Unit: Any + Send {
    /// Bytes of the medium now, in whole sectors. `NxIo` when it is lost.
    fn size(&mut self) -> Result<u64, Errno>;

    /// Flushes acknowledged data to stable storage, where the medium ends with the daemon. True
    /// once the data is there, or cannot get there; false while that continues: it is called again.
    fn make_durable(&mut self) -> bool {
        true
    }

    /// Whether the medium ends with the daemon, so that [`Unit::make_durable`] has an effect. The
    /// answer never changes.
    fn must_be_flushed(&self) -> bool {
        false
    }

    /// Makes the medium larger, if `growth` is given, and reads its size. Nothing is lost: a medium
    /// that has become larger by itself keeps its size.
    fn resize(&mut self, growth: Option<Growth>) -> ResizeCall {
        ResizeCall::Done(match growth {
            Some(_) => Err(Error::new(Errno::NotSup, "only image files can be made larger here")),
            None => Ok(self.size()),
        })
    }

    /// Removes the file that the opening of this disk has made, if its path still names that file.
    /// The disk has not been in the graph. Blocks.
    fn undo_creation(&mut self) {}

    /// Takes over the live keys of `params`, the parameters of the disk, and reads the certificates
    /// and keys again that they name. The next connection uses these.
    fn update_params(&mut self, params: &Value) -> Result<(), Error> {
        let _ = params;
        Ok(())
    }

    /// The used and the free space, when the disk allocates space on write.
    fn space_usage(&self) -> Option<SpaceUsage> {
        None
    }

    /// The file or device of this machine that the disk has open; `None`: it has none. Does not
    /// block: the control thread calls it.
    fn medium(&self) -> Option<Medium> {
        None
    }

    /// Its path, which another thread examines; `None`: it has none.
    fn path_state(&self) -> Option<&Arc<PathState>> {
        None
    }

    /// Problems of the medium though requests succeed, each with the action to take.
    fn troubles(&self) -> Vec<Trouble> {
        Vec::new()
    }

    /// Sentences for the log when the disk has been opened.
    fn remarks(&self) -> Vec<String> {
        Vec::new()
    }

    /// Lines for lists.
    fn show(&self) -> Vec<(&'static str, String)>;
}

/// A disk that was opened, before it is in the graph.
pub struct Opened {
    /// The data path. It answers `Done` or `Wait`, and a waiting request ends by [`Layer::ready`].
    /// The class counts on it for the order of requests, which is not the kind's concern.
    pub layer: Arc<dyn Layer>,
    /// Its numbers.
    pub limits: Limits,
    /// Unit that it writes without reading first, bytes; zero when that is a sector.
    pub stripe_bytes: u64,
    /// Its names.
    pub identity: Identity,
    /// Writers are refused.
    pub read_only: bool,
    /// Reports its loss, if it can be lost.
    pub watch: Option<Arc<Watch>>,
    /// The control path's side.
    pub unit: Box<dyn Unit>,
}

/// A serial number that stays the same on this machine for this kind and `key`, as versions before
/// this gave every disk. Machines that are copies of one, or have no id, give the same one to
/// different disks. So a disk has it only where hosts may know it by it.
pub(crate) fn derived(kind: &str, key: &str) -> String {
    let machine = std::fs::read_to_string("/etc/machine-id").unwrap_or_default();
    let mut hash = 0xcbf2_9ce4_8422_2325u64; // FNV-1a, 64 bits
    for byte in [machine.trim(), kind, key].join("\n").bytes() {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{hash:016x}")
}

/// Bytes that are not printable ASCII become `x` and two digits (docs/reference/geom.md 1.9).
pub(crate) fn printable(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b' '..=b'~' => out.push(char::from(byte)),
            other => out.push_str(&format!("x{other:02x}")),
        }
    }
    out.truncate(IDENT_MAX);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn derived_serials_are_stable_and_differ() {
        let one = derived("memory", "m0");
        assert_eq!(one, derived("memory", "m0"));
        assert_ne!(one, derived("memory", "m1"));
        assert_ne!(one, derived("null", "m0"));
        assert_eq!(one.len(), 16);
    }

    #[test]
    fn unprintable_bytes_of_an_identity_are_escaped() {
        assert_eq!(printable("a\tb\u{e9}"), "ax09bxc3xa9");
        assert_eq!(printable(&"x".repeat(1000)).len(), IDENT_MAX);
    }
}
