//! Lasting identity of a disk: the source of its serial number, which a rename of its file or
//! section keeps. It is made once and stored with the image and in the state folder. The image
//! stores it in its extended attribute `user.ashlar.identity`, or, where the file system has no
//! such attributes, in the file `IMAGE.ashlar-id` beside it. Both hold one line: `1 IDENT`, or `1
//! IDENT CALLED`. IDENT is 16 lowercase hexadecimal digits.
//!
//! Invariants
//!  I1  The identity stored with the image counts before that of the state folder for its place.
//!  I2  An image that was made just now has a new identity, regardless of the former file.
//!  I3  Stored text that is not in this form is as none; it is written over.
//!  I4  The identity of an image that can only be read is not stored with it.
//!
//! [`Identities`] has the rules of the state folder.

use std::io;
use std::path::{Path, PathBuf};

use reactor::File;
use rustix::fs::XattrFlags;
use serde_json::Value;

use crate::kind::{Open, derived, printable};

/// Extended attribute of an image file.
pub const ATTRIBUTE: &str = "user.ashlar.identity";

/// The suffix of the file beside an image.
pub const SIDECAR: &str = ".ashlar-id";

/// Form of the stored text.
const FORMAT: &str = "1";

/// Longest stored text, bytes; a longer one is as none.
const TEXT_MAX: usize = 512;

/// Digits of an identity that was made here.
const DIGITS: usize = 16;

/// See the module.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PersistentIdentity {
    pub ident: String,
    /// The name from which serial numbers of units on the disk are made, with `ident`. It is that
    /// of the disk when it was first served, by an earlier version or by its hardware's serial
    /// number. `None`: the unit has the disk's own serial number.
    pub unit_name: Option<String>,
}

impl PersistentIdentity {
    pub fn new(ident: &str) -> PersistentIdentity {
        PersistentIdentity { ident: ident.to_owned(), unit_name: None }
    }

    /// `GEOM::ident` of the disk.
    pub fn geom_ident(&self) -> String {
        printable(&self.ident)
    }

    fn encode(&self) -> String {
        match &self.unit_name {
            Some(called) => format!("{FORMAT} {} {called}\n", self.ident),
            None => format!("{FORMAT} {}\n", self.ident),
        }
    }

    /// I3.
    fn decode(text: &[u8]) -> Option<PersistentIdentity> {
        let text = std::str::from_utf8(text).ok().filter(|t| t.len() <= TEXT_MAX)?;
        let text = text.strip_suffix('\n').unwrap_or(text);
        let rest = text.strip_prefix(FORMAT)?.strip_prefix(' ')?;
        let (ident, called) = match rest.split_once(' ') {
            Some((ident, called)) => (ident, Some(called)),
            None => (rest, None),
        };
        let is_digit = |b: u8| b.is_ascii_digit() || (b'a'..=b'f').contains(&b);
        if ident.len() != DIGITS || !ident.bytes().all(is_digit) {
            return None;
        }
        if called.is_some_and(|c| c.is_empty() || c.chars().any(char::is_control)) {
            return None;
        }
        Some(PersistentIdentity { ident: ident.to_owned(), unit_name: called.map(str::to_owned) })
    }
}

/// A disk whose identity is requested.
pub struct IdentityRequest<'a> {
    pub kind: &'a str,
    pub name: &'a str,
    /// Its place: the path of a file or device, else its name.
    pub location: &'a str,
    /// The identity stored with the image.
    pub found: Option<PersistentIdentity>,
    /// Serial number of the hardware.
    pub own: Option<&'a str>,
    /// Serial number that versions before this made from the machine's id and the place.
    pub derived: String,
    /// The medium was made just now.
    pub is_new: bool,
}

/// The state folder's side of identities.
pub trait Identities: Send + Sync {
    /// The identity of a disk that is being opened.
    fn identity_of(&self, request: &IdentityRequest<'_>) -> PersistentIdentity;

    /// A disk was opened and is not used, and the file that was made for it has been removed.
    fn forget(&self, kind: &str, location: &str, name: &str) {
        let _ = (kind, location, name);
    }
}

/// The place where the identity of an image is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Stored {
    /// Nowhere: there is no state folder, and none is needed.
    No,
    /// In the state folder alone; why.
    State(String),
    /// In the attribute of the file.
    Attribute,
    /// In the file beside it.
    Sidecar,
}

impl Stored {
    /// For lists.
    pub(crate) fn text(&self) -> Option<String> {
        match self {
            Stored::No => None,
            Stored::State(why) => Some(format!("in the state folder only: {why}")),
            Stored::Attribute => Some(format!("in the image ({ATTRIBUTE})")),
            Stored::Sidecar => Some(format!("beside the image (*{SIDECAR})")),
        }
    }
}

/// The identity of an image file whose canonical path is `path`.
pub(crate) fn of_image(
    request: &Open<'_>,
    file: &File,
    path: &Path,
    (is_new, read_only): (bool, bool),
) -> (PersistentIdentity, Stored) {
    let place = path.to_string_lossy();
    let derived = derived("file", &place);
    let Some(identities) = &request.site.identities else {
        return (
            PersistentIdentity { ident: derived, unit_name: Some(request.name.to_owned()) },
            Stored::No,
        );
    };
    let found = if is_new { None } else { read(file, path) };
    let stored = found.as_ref().map(|(_, stored)| stored.clone());
    let found = found.map(|(lasting, _)| lasting);
    let query = IdentityRequest {
        kind: "file",
        name: request.name,
        location: &place,
        found: found.clone(),
        own: None,
        derived,
        is_new,
    };
    let lasting = identities.identity_of(&query);
    let is_stored = found.as_ref() == Some(&lasting);
    let stored = match stored {
        Some(stored) if is_stored && (read_only || stored == Stored::Attribute) => stored,
        _ if read_only => Stored::State("it can only be read".into()),
        _ => write(file, path, &lasting),
    };
    (lasting, stored)
}

/// The identity of a disk that has no image file; `own` is the serial number of its hardware.
pub(crate) fn of_other(
    request: &Open<'_>,
    kind: &str,
    place: &str,
    own: Option<&str>,
) -> PersistentIdentity {
    let (name, derived) = (request.name, derived(kind, place));
    match &request.site.identities {
        Some(identities) => {
            let found = None;
            identities.identity_of(&IdentityRequest {
                kind,
                name,
                location: place,
                found,
                own,
                derived,
                is_new: false,
            })
        }
        None => {
            let ident = own.map_or(derived, str::to_owned);
            PersistentIdentity { ident, unit_name: Some(name.to_owned()) }
        }
    }
}

/// The identity stored with the image at a path, without opening it as a disk.
pub fn stored_at(path: &Path) -> Option<PersistentIdentity> {
    let mut text = [0; TEXT_MAX];
    let len = rustix::fs::getxattr(path, ATTRIBUTE, &mut text);
    let lasting = len.ok().and_then(|n| text.get(..n)).and_then(PersistentIdentity::decode);
    lasting.or_else(|| read_sidecar(path))
}

fn read(file: &File, path: &Path) -> Option<(PersistentIdentity, Stored)> {
    let fd = file.as_fd()?;
    let mut text = [0; TEXT_MAX];
    let len = rustix::fs::fgetxattr(fd, ATTRIBUTE, &mut text);
    let lasting = len.ok().and_then(|n| text.get(..n)).and_then(PersistentIdentity::decode);
    let attribute = lasting.map(|l| (l, Stored::Attribute));
    attribute.or_else(|| read_sidecar(path).map(|l| (l, Stored::Sidecar)))
}

fn sidecar_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(SIDECAR);
    PathBuf::from(name)
}

/// Removes the identity beside an image that was removed.
pub(crate) fn remove_sidecar(path: &Path) {
    // A remaining one is replaced with the identity of the next image.
    let _ = std::fs::remove_file(sidecar_of(path));
}

fn read_sidecar(path: &Path) -> Option<PersistentIdentity> {
    let text = bio::read_regular(&sidecar_of(path), TEXT_MAX as u64 + 1).ok()?;
    PersistentIdentity::decode(&text)
}

/// Stores an identity with the image; the state folder has it before the disk is exported.
fn write(file: &File, path: &Path, lasting: &PersistentIdentity) -> Stored {
    let Some(fd) = file.as_fd() else { return Stored::No };
    let text = lasting.encode();
    let set = rustix::fs::fsetxattr(fd, ATTRIBUTE, text.as_bytes(), XattrFlags::empty());
    written(path, &text, set)
}

/// `set`: how storing it in the attribute ended.
fn written(path: &Path, text: &str, set: rustix::io::Result<()>) -> Stored {
    match set {
        Ok(()) => {
            // An identity that an earlier image left there would count for a copy without
            // attributes.
            let _ = std::fs::remove_file(sidecar_of(path));
            Stored::Attribute
        }
        Err(attribute) => match write_sidecar(path, text) {
            Ok(()) => Stored::Sidecar,
            Err(sidecar) => Stored::State(format!("{ATTRIBUTE}: {attribute}; {sidecar}")),
        },
    }
}

fn write_sidecar(path: &Path, text: &str) -> io::Result<()> {
    use std::io::Write;
    use std::os::unix::fs::OpenOptionsExt;
    let path = sidecar_of(path);
    let mut new = path.clone().into_os_string();
    new.push(".new");
    let mut how = std::fs::OpenOptions::new();
    let mut file = how.write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    std::fs::rename(&new, &path)
}

/// The identity with the serial number that the configuration gives, if it does.
pub(crate) fn with_configured_serial(
    params: Option<&str>,
    lasting: PersistentIdentity,
) -> PersistentIdentity {
    match params.filter(|serial| !serial.is_empty()) {
        Some(serial) => PersistentIdentity { ident: serial.to_owned(), ..lasting },
        None => lasting,
    }
}

/// The serial number that a disk of the configuration will have, as far as its image contains it.
pub fn expected_identity(kind: &str, params: &Value) -> Option<PersistentIdentity> {
    let text = |key| params.get(key).and_then(Value::as_str).filter(|t: &&str| !t.is_empty());
    let stored = || {
        let path = text("path").filter(|_| kind == "file")?;
        let path = std::fs::canonicalize(path).ok()?;
        std::fs::metadata(&path).ok().filter(std::fs::Metadata::is_file)?;
        stored_at(&path)
    };
    match text("serial") {
        Some(serial) => Some(PersistentIdentity::new(serial)),
        None => stored(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn identity_is_stored_in_a_sidecar_file_without_extended_attributes() {
        let folder = std::env::temp_dir().join(format!("ashlar-lasting-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let image = folder.join("d.img");
        std::fs::write(&image, [0; 512]).unwrap();
        let lasting = PersistentIdentity::new("0123456789abcdef");
        let refused = || Err(rustix::io::Errno::OPNOTSUPP);
        assert_eq!(written(&image, &lasting.encode(), refused()), Stored::Sidecar);
        assert_eq!(stored_at(&image), Some(lasting.clone()));
        let name = folder.join("d.img.ashlar-id");
        assert_eq!(std::fs::read_to_string(&name).unwrap(), "1 0123456789abcdef\n");
        let params = serde_json::json!({ "path": image });
        assert_eq!(expected_identity("file", &params), Some(lasting.clone()));
        // An attribute takes its place.
        assert_eq!(written(&image, &lasting.encode(), Ok(())), Stored::Attribute);
        assert!(!name.exists());
        // Nothing can be written there.
        let nowhere = folder.join("none/d.img");
        let stored = written(&nowhere, &lasting.encode(), refused());
        assert!(matches!(stored, Stored::State(_)), "{stored:?}");
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn i3_identity_text_decodes_unchanged_or_not_at_all() {
        let own = PersistentIdentity::new("0123456789abcdef");
        let old = PersistentIdentity { unit_name: Some("disk 0".into()), ..own.clone() };
        for lasting in [own, old] {
            assert_eq!(PersistentIdentity::decode(lasting.encode().as_bytes()), Some(lasting));
        }
        let long = format!("1 0123456789abcdef {}", "x".repeat(TEXT_MAX));
        for bad in [
            "",
            "1",
            "1 ",
            "2 0123456789abcdef",
            "1 0123456789ABCDEF",
            "1 0123456789abcde",
            "1 0123456789abcdef ",
            "1 0123456789abcdef a\tb",
            "10123456789abcdef",
            &long,
        ] {
            assert_eq!(PersistentIdentity::decode(bad.as_bytes()), None, "{bad:?}");
        }
        assert_eq!(PersistentIdentity::decode(b"1 0123456789abcdef \xff"), None);
    }
}
