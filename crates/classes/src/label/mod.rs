//! Names for media by the labels written on them.
//!
//! The pure half does no I/O: each kind is a probe over sectors that the caller reads (see
//! [`crate::probe`]). The registry [`KINDS`] is the order in which they are tried. GEOM's own
//! label can also be written. Names of a GPT are read from the partition's entry, without a read.
//!
//! A kind is one file and one line in [`KINDS`].

mod btrfs;
mod class;
mod ext;
mod fat;
pub mod generic;
mod geom;
mod gpt;
mod iso9660;
mod ntfs;
mod swap;
mod verbs;
mod xfs;

pub use crate::provider_name::{NAME_MAX, clean};
pub use class::LabelClass;
pub use gpt::gpt_names;

use crate::probe::{ProbeError, ProbeStop, Reason, Sectors, Step};

/// The result of a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    /// The name as it is written, without its padding; empty when none is set.
    pub(crate) label: Vec<u8>,
    /// The volume's own unique id as people write it; none where the format has none, or zero.
    pub(crate) uuid: Option<String>,
    /// Bytes that a provider of this name has.
    pub(crate) len: u64,
}

impl Volume {
    /// A volume that covers the whole media.
    pub(crate) fn of_media(sectors: &Sectors, label: &[u8], uuid: Option<String>) -> Volume {
        Volume { label: until_nul(label).to_vec(), uuid, len: sectors.media_len() }
    }
}

pub struct Kind {
    /// Directory of the provider's name: `ext2fs/home`.
    pub prefix: &'static str,
    /// Directory of the provider named by the unique id; empty when there is none.
    pub id_prefix: &'static str,
    /// Description of the label that it looks for.
    pub description: &'static str,
    probe: fn(&Sectors) -> Result<Volume, ProbeStop>,
}

/// Every kind, in the order in which they are tried.
pub const KINDS: &[Kind] = &[
    Kind {
        prefix: "iso9660",
        id_prefix: "iso9660id",
        description: "ISO 9660 volume",
        probe: iso9660::probe,
    },
    Kind {
        prefix: "msdosfs",
        id_prefix: "msdosfsid",
        description: "FAT volume",
        probe: fat::probe,
    },
    Kind {
        prefix: "ext2fs",
        id_prefix: "ext2fsid",
        description: "ext2, ext3, ext4",
        probe: ext::probe,
    },
    Kind { prefix: "xfs", id_prefix: "xfsid", description: "XFS", probe: xfs::probe },
    Kind { prefix: "btrfs", id_prefix: "btrfsid", description: "Btrfs", probe: btrfs::probe },
    Kind { prefix: "ntfs", id_prefix: "ntfsid", description: "NTFS", probe: ntfs::probe },
    Kind {
        prefix: "swaplinux",
        id_prefix: "swaplinuxid",
        description: "Linux swap space",
        probe: swap::probe,
    },
    Kind { prefix: "label", id_prefix: "", description: "GEOM label", probe: generic::probe },
];

/// What one kind of label makes of the media.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    pub description: &'static str,
    /// Provider named by the label, `ext2fs/home`; none when unnamed or not usable.
    pub by_name: Option<String>,
    /// Provider named by the unique id, `ext2fsid/0c5e...`; none where there is none.
    pub by_id: Option<String>,
    /// Bytes that these providers have, from the start of the media.
    pub len: u64,
    /// Why there is no provider by name.
    pub unnamed: Option<ProbeError>,
}

impl Found {
    pub(crate) fn new(
        what: &'static str,
        (prefix, label): (&str, &[u8]),
        (id_prefix, uuid): (&str, Option<&str>),
        len: u64,
    ) -> Result<Found, ProbeError> {
        let named = clean(prefix, label).map_err(|reason| ProbeError::new(reason, 0, what));
        let by_id = uuid.filter(|_| !id_prefix.is_empty());
        let by_id = by_id.and_then(|uuid| clean(id_prefix, uuid.as_bytes()).ok());
        match named {
            Err(why) if by_id.is_none() => Err(why),
            Ok(name) => {
                Ok(Found { description: what, by_name: Some(name), by_id, len, unnamed: None })
            }
            Err(why) => {
                Ok(Found { description: what, by_name: None, by_id, len, unnamed: Some(why) })
            }
        }
    }

    pub fn providers(&self) -> impl Iterator<Item = &str> {
        self.by_name.iter().chain(&self.by_id).map(String::as_str)
    }
}

/// Look for one kind of label.
pub fn step(kind: &Kind, sectors: &Sectors) -> Step<Found> {
    let volume = (kind.probe)(sectors);
    let found = volume.and_then(|volume| {
        let id = (kind.id_prefix, volume.uuid.as_deref());
        Found::new(kind.description, (kind.prefix, &volume.label), id, volume.len)
            .map_err(ProbeStop::No)
    });
    found.into()
}

/// Look for every kind of label on the same sectors, each within its own limits. Returns the label
/// found or the reason against it, by kind in the order of [`KINDS`], once no more reads are
/// wanted.
pub fn step_all(sectors: &Sectors) -> Step<Vec<(&'static Kind, Result<Found, ProbeError>)>> {
    let mut all = Vec::with_capacity(KINDS.len());
    for kind in KINDS {
        match step(kind, sectors) {
            Step::Read { offset, len } => return Step::Read { offset, len },
            Step::Done(found) => all.push((kind, Ok(found))),
            Step::No(why) => all.push((kind, Err(why))),
        }
    }
    Step::Done(all)
}

/// The bytes in front of the first NUL.
pub(crate) fn until_nul(bytes: &[u8]) -> &[u8] {
    bytes.split(|&byte| byte == 0).next().unwrap_or(&[])
}

/// Sixteen bytes as a big-endian UUID; none when they are all zero or not sixteen.
pub(crate) fn uuid(bytes: &[u8]) -> Option<String> {
    if bytes.len() != 16 || bytes.iter().all(|&byte| byte == 0) {
        return None;
    }
    let mut text = String::with_capacity(36);
    for (place, byte) in bytes.iter().enumerate() {
        if matches!(place, 4 | 6 | 8 | 10) {
            text.push('-');
        }
        text.push_str(&format!("{byte:02x}"));
    }
    Some(text)
}

/// A signature that is required at byte `at` of the media.
pub(crate) fn magic<'a>(
    sectors: &'a Sectors,
    at: u64,
    len: usize,
    (place, wanted): (usize, &[u8]),
    field: &'static str,
) -> Result<&'a [u8], ProbeStop> {
    let bytes = sectors.need(at, len, field)?;
    if crate::probe::span(bytes, place, wanted.len()) != wanted {
        let place = u64::try_from(place).unwrap_or(0);
        return Err(ProbeStop::no(Reason::Signature, at.saturating_add(place), field));
    }
    Ok(bytes)
}
