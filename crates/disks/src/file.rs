//! file: an image file as a disk.
//!
//! Blocks that were never written or were deleted take no space. Two disks, of this daemon or of
//! another process that checks, cannot write the same file: it is locked while open (`locks.rs`).

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bio::Errno;
use geom::{Error, Limits, Trouble};
use reactor::{File, OpenHow};
use rustix::fs::FallocateFlags;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backing::{Backing, BackingParts};
use crate::causes;
use crate::creation;
use crate::deletes::DeleteBy;
use crate::kind::{
    Growth, IO_BYTES_MAX, Identity, Kind, Open, Opened, PathKind, ResizeCall, Site, SpaceUsage,
    Unit,
};
use crate::lasting::{self, Identities, PersistentIdentity, Stored};
use crate::locks::{self, LockHolder};
use crate::medium::{Medium, folder_of, followed};
use crate::params;
use crate::path_state::PathState;
use crate::watch::Watch;

/// The unit that a file keeps as a whole at a power cut, bytes: the smallest sector that a disk
/// has. File systems promise no more, for any sector size of the disk made from it.
const ATOMIC_BYTES: u64 = 512;

/// How long the disk is degraded after a write has failed for lack of space, ns. Success of another
/// write proves little: allocated blocks can be written again.
const SHORT_NS: u64 = 300_000_000_000;

/// Longest range punched or zeroed in one operation, bytes; longer ones are split.
const DELETE_BYTES_MAX: u64 = 1 << 30;

/// Whether to bypass the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum Direct {
    /// If possible.
    #[default]
    Auto,
    /// Always; if that is not possible, the disk is refused.
    Yes,
    /// Never.
    No,
}

/// An image file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct FileParams {
    /// Path of the file.
    pub path: PathBuf,
    /// Create the file, sparse, if it does not exist; needs `size`. A file that existed before is
    /// not created again.
    #[serde(default)]
    pub create: bool,
    /// Size in bytes, a multiple of the sector size. A shorter file is extended. A longer file is
    /// served whole, because it may have grown in use. Absent: the size of the file.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 512))]
    pub size: Option<u64>,
    /// Sector size in bytes: 512 or 4096.
    #[serde(default = "params::sector_default")]
    #[schemars(extend("enum" = [512, 4096]))]
    pub sector_size: u32,
    /// Bypass the page cache (O_DIRECT): `auto`, `yes` or `no`.
    #[serde(default)]
    pub direct: Direct,
    /// Serial number; absent: a random one that is stored with the file (extended attribute
    /// `user.ashlar.identity`, or `FILE.ashlar-id`) and in the state folder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Refuse write access, and open the file for reading only.
    #[serde(default)]
    pub read_only: bool,
}

/// The kind.
pub(crate) struct ImageFile;

impl Kind for ImageFile {
    fn name(&self) -> &'static str {
        "file"
    }

    fn doc(&self) -> &'static str {
        "An image file; deleted ranges free their blocks."
    }

    fn schema(&self) -> Value {
        params::schema::<FileParams>()
    }

    fn size_keys(&self) -> &'static [&'static str] {
        &["create", "size"]
    }

    fn path_kind(&self) -> PathKind {
        PathKind::File
    }

    fn edits(&self) -> &'static [(&'static str, &'static str)] {
        &[
            ("create", "none on a file that exists"),
            ("size", "live if larger; a smaller size is refused"),
        ]
    }

    fn example(&self) -> &'static str {
        "[[disk]]\nname = \"disk0\"\nkind = \"file\"\npath = \"/var/lib/ashlar/disk0.img\"\n\
         create = true\nsize = \"10GiB\"\n"
    }

    fn check(&self, name: &str, params: &Value) -> Result<(), Error> {
        let p = checked(name, params)?;
        if !p.create && !p.path.exists() {
            // It may appear later.
            return Ok(());
        }
        if let Some(size) = new_size(name, &p)? {
            return creation::check(&p.path, size).map_err(|e| cannot_make(name, &p, &e, size));
        }
        let Ok(found) = std::fs::metadata(&p.path) else { return Ok(()) };
        if let Some(size) = extended_size(name, &p, found.len())? {
            let checked = creation::check_size(folder_of(&followed(&p.path)), size);
            checked.map_err(|e| cannot_extend(name, &p, &e, (found.len(), size)))?;
        }
        // Immutable, or on a file system that is read-only.
        open_in_mode(name, &p).map(drop)
    }

    fn medium(&self, params: &Value) -> Option<Medium> {
        Medium::of(params::path(params)?)
    }

    fn check_lock(&self, name: &str, params: &Value) -> Result<(), Error> {
        let p = checked(name, params)?;
        // Other reasons to refuse it are not those of its locks.
        if !std::fs::metadata(&p.path).is_ok_and(|found| found.is_file()) {
            return Ok(());
        }
        let how = OpenHow { read_only: true, ..OpenHow::default() };
        let Ok(file) = File::open(&p.path, how) else { return Ok(()) };
        locks::check(&file, p.read_only).map_err(|held| locked(name, &p, held))
    }

    fn open(&self, request: &Open<'_>) -> Result<Opened, Error> {
        let name = request.name;
        let p = checked(name, request.params)?;
        let created = make_if_absent(name, &p)?;
        let ready = open_ready(name, &p);
        if created && ready.as_ref().is_err_and(|e| e.kind != Errno::Busy) {
            // Nothing was written to it. A file that is locked is in use by another program.
            unmake(&p.path);
        }
        let (file, mode, media_bytes) = ready?;
        let path = std::fs::canonicalize(&p.path).unwrap_or_else(|_| p.path.clone());
        let (lasting, stored) = lasting::of_image(request, &file, &path, (created, p.read_only));
        let lasting = lasting::with_configured_serial(p.serial.as_deref(), lasting);
        let physpath = path.to_string_lossy().into_owned();
        let sector = p.sector_size;
        let can_delete = !p.read_only && can_punch(&file, media_bytes);
        let watch = Watch::new(request.site.inbox.clone());
        let path_state = PathState::new(&file, &watch);
        let medium = file.as_fd().and_then(Medium::of_open);
        let identities = request.site.identities.clone();
        let made = created.then(|| MadeFile { path, name: name.to_owned(), identities });
        let resizing = Arc::default();
        let unit =
            FileUnit { file, sector, mode, made, stored, medium, watch, path_state, resizing };
        let names = (physpath, lasting);
        Ok(opened(unit, media_bytes, can_delete, names, p.read_only, request.site))
    }
}

/// Opens and locks the file, and gives it its size.
fn open_ready(name: &str, p: &FileParams) -> Result<(File, String, u64), Error> {
    let (file, mode) = open_in_mode(name, p)?;
    locks::take(&file, p.read_only).map_err(|held| locked(name, p, held))?;
    let media_bytes = fit_size(name, p, &file)?;
    Ok((file, mode, media_bytes))
}

/// A disk of a file that is open already; its sectors are the file's own.
pub(crate) fn adopted(
    name: &str,
    file: File,
    serial: &str,
    can_delete: bool,
    site: &Site,
) -> Result<Opened, Error> {
    let path = file.path().to_path_buf();
    let (sector, read_only) = (file.facts().logical_sector, file.facts().is_read_only);
    params::check_sector("file", name, sector)?;
    let size = file.size().map_err(|e| refuse(name, &path, errno_of(&e), e))?;
    let media_bytes = size / u64::from(sector) * u64::from(sector);
    let physpath = path.to_string_lossy().into_owned();
    let (watch, stored) = (Watch::new(site.inbox.clone()), Stored::No);
    let lasting = PersistentIdentity { ident: serial.to_owned(), unit_name: Some(name.to_owned()) };
    let (mode, path_state) = ("adopted".into(), PathState::new(&file, &watch));
    let medium = file.as_fd().and_then(Medium::of_open);
    let made = None;
    let resizing = Arc::default();
    let unit = FileUnit { file, sector, mode, made, stored, medium, watch, path_state, resizing };
    let can_delete = can_delete && !read_only;
    Ok(opened(unit, media_bytes, can_delete, (physpath, lasting), read_only, site))
}

fn opened(
    unit: FileUnit,
    media_bytes: u64,
    can_delete: bool,
    (physpath, lasting): (String, PersistentIdentity),
    read_only: bool,
    site: &Site,
) -> Opened {
    let (file, sector_bytes) = (&unit.file, unit.sector);
    let watch = unit.watch.clone();
    let stripe = file.facts().physical_sector;
    Opened {
        layer: Arc::new(Backing::new(BackingParts {
            file: file.local(),
            cores: site.cores,
            delete: can_delete.then_some(DeleteBy::Punch),
            watch: watch.clone(),
        })),
        limits: Limits {
            media_bytes,
            sector_bytes,
            io_max_bytes: IO_BYTES_MAX,
            delete_max_bytes: DELETE_BYTES_MAX,
        },
        stripe_bytes: if stripe > sector_bytes { u64::from(stripe) } else { 0 },
        identity: Identity {
            lasting,
            descr: "Ashlar image file".into(),
            physpath,
            rotation_rate: 0,
            can_delete,
            delete_reads_zero: can_delete, // a hole, or zeroes where none fits
            any_memory: !unit.file.facts().is_direct,
            atomic_bytes: ATOMIC_BYTES,
            delete_granule: (0, 0),
            can_anchor: false, // MAP does not separate allocated zeroes from holes
        },
        read_only,
        watch: Some(watch),
        unit: Box::new(unit),
    }
}

fn refuse(name: &str, path: &Path, errno: Errno, what: impl std::fmt::Display) -> Error {
    params::refuse("file", name, errno, format!("{}: {what}", path.display()))
}

fn locked(name: &str, p: &FileParams, held: LockHolder) -> Error {
    refuse(name, &p.path, Errno::Busy, held.text(p.read_only))
}

/// A file that is not there and cannot be made `size` bytes large.
fn cannot_make(name: &str, p: &FileParams, e: &std::io::Error, size: u64) -> Error {
    let why = causes::of(&p.path, e, size).unwrap_or_else(|| {
        let path = followed(&p.path);
        format!("{e}; its folder {} must exist and be writable", folder_of(&path).display())
    });
    refuse(name, &p.path, errno_of(e), format!("cannot be made: {why}"))
}

/// A file that cannot be made larger: its size and the wanted one, bytes.
fn cannot_extend(
    name: &str,
    p: &FileParams,
    e: &std::io::Error,
    (size, wanted): (u64, u64),
) -> Error {
    let why = causes::of(&p.path, e, wanted).unwrap_or_else(|| e.to_string());
    let what = format!("cannot be extended from {size} to {wanted} bytes: {why}");
    refuse(name, &p.path, errno_of(e), what)
}

/// The nearest errno of a failed call, and its text.
pub(crate) fn errno_of(e: &std::io::Error) -> Errno {
    e.raw_os_error().map_or(Errno::Io, Errno::from_posix)
}

/// The parameters, if they are within their limits.
fn checked(name: &str, params: &Value) -> Result<FileParams, Error> {
    const KIND: &str = "file";
    let p: FileParams = params::read(KIND, name, params)?;
    params::check_sector(KIND, name, p.sector_size)?;
    if let Some(size) = p.size {
        params::check_size(KIND, name, size, p.sector_size, params::MEDIA_BYTES_MAX)?;
    }
    Ok(p)
}

fn too_short(bytes: u64) -> String {
    format!("has {bytes} bytes, less than a sector; set size to extend it")
}

/// The size of the file that is to be made; `None`: it is there.
fn new_size(name: &str, p: &FileParams) -> Result<Option<u64>, Error> {
    match std::fs::metadata(&p.path) {
        Ok(m) if m.is_file() => return Ok(None),
        Ok(m) if m.is_dir() => {
            return Err(refuse(name, &p.path, Errno::Inval, "is a directory; name a file in it"));
        }
        Ok(_) => {
            let what = "is not a regular file; for a block device use kind blockdev";
            return Err(refuse(name, &p.path, Errno::Inval, what));
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
        Err(e) => return Err(refuse(name, &p.path, errno_of(&e), e)),
    }
    match (p.create, p.size) {
        (true, Some(size)) if !p.read_only => Ok(Some(size)),
        (true, Some(_)) => {
            let what = "does not exist, and a read-only file of zeroes is of no use; \
                        remove create or read_only";
            Err(refuse(name, &p.path, Errno::NoEnt, what))
        }
        (true, None) => {
            let what = "does not exist; set size to create it";
            Err(refuse(name, &p.path, Errno::NoEnt, what))
        }
        (false, _) => {
            let what = "does not exist; check the path, or set create and size to create it";
            Err(refuse(name, &p.path, Errno::NoEnt, what))
        }
    }
}

/// Makes the file when there is none and creation was requested; true when it was made.
fn make_if_absent(name: &str, p: &FileParams) -> Result<bool, Error> {
    let Some(size) = new_size(name, p)? else { return Ok(false) };
    make(&p.path, size).map_err(|e| cannot_make(name, p, &e, size))
}

/// Makes a sparse file; false when another program has made it meanwhile. A file that cannot be
/// given its size is removed again.
fn make(path: &Path, size: u64) -> std::io::Result<bool> {
    use std::os::unix::fs::OpenOptionsExt;
    let path = followed(path);
    let mut how = std::fs::OpenOptions::new();
    let file = match how.write(true).create_new(true).mode(0o600).open(&path) {
        Err(e) if e.kind() == std::io::ErrorKind::AlreadyExists => return Ok(false),
        created => created?,
    };
    file.set_len(size).inspect_err(|_| unmake(&path))?;
    Ok(true)
}

/// Removes a file that was made here.
fn unmake(path: &Path) {
    // An error is of no more use than the one that led here.
    let _ = std::fs::remove_file(followed(path));
}

/// Opens the file around the page cache if that is wanted and possible; returns the choice and its
/// reason.
fn open_in_mode(name: &str, p: &FileParams) -> Result<(File, String), Error> {
    let how = OpenHow { read_only: p.read_only, ..OpenHow::default() };
    let why = match p.direct {
        Direct::No => "as configured".to_string(),
        Direct::Auto | Direct::Yes => match open_direct(&p.path, how, Some(p.sector_size)) {
            Ok(file) => return Ok((file, "direct".into())),
            Err(why) => why,
        },
    };
    if p.direct == Direct::Yes {
        let what = format!("cannot be opened with direct = yes: {why}; use auto or no");
        return Err(refuse(name, &p.path, Errno::NotSup, what));
    }
    match File::open(&p.path, how) {
        Ok(file) => Ok((file, format!("buffered ({why})"))),
        Err(e) => {
            let advice = if p.read_only { "" } else { "; set read_only to open it for reading" };
            let why = causes::of(&p.path, &e, 0).unwrap_or_else(|| e.to_string());
            let what = format!("cannot be opened: {why}{advice}");
            Err(refuse(name, &p.path, errno_of(&e), what))
        }
    }
}

/// Opens with O_DIRECT and tries it with a read; why not, in plain words. `sector` is the unit
/// that requests will have, if that is not the device's own.
pub(crate) fn open_direct(path: &Path, how: OpenHow, sector: Option<u32>) -> Result<File, String> {
    let file = File::open(path, OpenHow { direct: true, ..how }).map_err(|e| {
        let refused = || format!("the file system refuses O_DIRECT: {e}");
        causes::of(path, &e, 0).unwrap_or_else(refused)
    })?;
    let facts = file.facts();
    let unit = facts.logical_sector.max(1);
    if let Some(sector) = sector
        && !sector.is_multiple_of(unit)
    {
        return Err(format!(
            "O_DIRECT needs multiples of {unit} bytes here, and sector_size is {sector}"
        ));
    }
    let align = facts.memory_align.max(unit) as usize;
    if let Some(fd) = file.as_fd() {
        let mut buffer = vec![0u8; 2 * align];
        let skip = buffer.as_ptr().align_offset(align);
        if let Some(aligned) = buffer.get_mut(skip..skip.saturating_add(align)) {
            rustix::io::pread(fd, aligned, 0)
                .map_err(|e| format!("a trial read with O_DIRECT failed: {e}"))?;
        }
    }
    Ok(file)
}

/// The size to which a file of `size` bytes is to be extended; `None`: it is long enough.
fn extended_size(name: &str, p: &FileParams, size: u64) -> Result<Option<u64>, Error> {
    match p.size {
        Some(wanted) if size < wanted && p.read_only => {
            let what = format!("has {size} bytes, less than the {wanted} configured");
            Err(refuse(name, &p.path, Errno::Inval, what))
        }
        Some(wanted) if size < wanted => Ok(Some(wanted)),
        _ if size < u64::from(p.sector_size) => {
            Err(refuse(name, &p.path, Errno::Inval, too_short(size)))
        }
        _ => Ok(None),
    }
}

/// Extends a file that is shorter than configured; its size in whole sectors. One that is longer
/// was made larger while it was used (`disk resize`), and holds data up to its end.
fn fit_size(name: &str, p: &FileParams, file: &File) -> Result<u64, Error> {
    let mut size = file.size().map_err(|e| refuse(name, &p.path, errno_of(&e), e))?;
    if let Some(wanted) = extended_size(name, p, size)? {
        file.set_len(wanted).map_err(|e| cannot_extend(name, p, &e, (size, wanted)))?;
        size = wanted;
    }
    let sector = u64::from(p.sector_size);
    Ok(size / sector * sector)
}

/// Bytes of an open file, in whole sectors.
fn whole_size(file: &File, sector: u32) -> Result<u64, Errno> {
    let sector = u64::from(sector);
    file.size().map(|size| size / sector * sector).map_err(|e| errno_of(&e))
}

/// Makes an open file larger. One that another program has made as large already is not shortened,
/// and the end of one that was cut is not filled with zeroes.
fn grow(file: &File, Growth { from, to }: Growth) -> Result<(), Error> {
    let path = file.path();
    let failed = |e: std::io::Error| {
        let why = causes::of(path, &e, to).unwrap_or_else(|| e.to_string());
        let path = path.display();
        Error::new(errno_of(&e), format!("{path}: cannot be made {to} bytes large: {why}"))
    };
    let size = file.size().map_err(failed)?;
    if size < from {
        let what = format!(
            "{}: another program has cut it (to {size} bytes; its disk has {from}); next: restore \
             the file from a copy",
            path.display()
        );
        return Err(Error::new(Errno::NxIo, what));
    }
    if size >= to { Ok(()) } else { file.set_len(to).map_err(failed) }
}

/// Asks the file system whether it punches holes, behind the end of the file where there is
/// nothing to lose.
fn can_punch(file: &File, size: u64) -> bool {
    let how = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    let at = size.next_multiple_of(4096);
    match (file.as_fd(), file.size()) {
        (Some(fd), Ok(end)) if end <= at => rustix::fs::fallocate(fd, how, at, 4096).is_ok(),
        _ => false,
    }
}

struct MadeFile {
    path: PathBuf,
    name: String,
    identities: Option<Arc<dyn Identities>>,
}

struct FileUnit {
    file: File,
    sector: u32,
    mode: String,
    made: Option<MadeFile>,
    stored: Stored,
    /// Found when the file was opened.
    medium: Option<Medium>,
    watch: Arc<Watch>,
    path_state: Arc<PathState>,
    /// A resize is under way; one that hangs occupies one thread.
    resizing: Arc<AtomicBool>,
}

impl FileUnit {
    /// The bytes behind the last whole sector, if there are any: no request reaches them.
    fn unused_tail(&self) -> Option<String> {
        let sector = self.sector;
        let tail = self.path_state.length()? % u64::from(sector);
        (tail > 0).then(|| format!("{tail} bytes: the file is no multiple of {sector} bytes"))
    }
}

impl Unit for FileUnit {
    fn size(&mut self) -> Result<u64, Errno> {
        whole_size(&self.file, self.sector)
    }

    fn resize(&mut self, growth: Option<Growth>) -> ResizeCall {
        let (file, sector, resizing) = (self.file.clone(), self.sector, self.resizing.clone());
        let resize = move || {
            if resizing.swap(true, Ordering::AcqRel) {
                let path = file.path().display();
                let what = format!("{path}: an earlier resize has not ended: it does not answer");
                return Err(Error::new(Errno::Busy, what));
            }
            let grown = growth.map_or(Ok(()), |growth| grow(&file, growth));
            let size = grown.map(|()| whole_size(&file, sector));
            resizing.store(false, Ordering::Release);
            size
        };
        match self.file.as_fd() {
            Some(_) => ResizeCall::Blocks(Box::new(resize)),
            None => ResizeCall::Done(resize()),
        }
    }

    fn undo_creation(&mut self) {
        let Some(made) = self.made.take() else { return };
        // The path may name another file by now.
        if self.medium.is_none() || Medium::of(&made.path) != self.medium {
            return;
        }
        unmake(&made.path);
        if self.stored == Stored::Sidecar {
            lasting::remove_sidecar(&made.path);
        }
        if let Some(identities) = &made.identities {
            identities.forget("file", &made.path.to_string_lossy(), &made.name);
        }
    }

    fn space_usage(&self) -> Option<SpaceUsage> {
        self.path_state.space()
    }

    fn medium(&self) -> Option<Medium> {
        self.medium.clone()
    }

    fn path_state(&self) -> Option<&Arc<PathState>> {
        Some(&self.path_state)
    }

    fn troubles(&self) -> Vec<Trouble> {
        let mut troubles = self.path_state.troubles();
        let is_recent = |at: u64| reactor::monotonic_ns().saturating_sub(at) < SHORT_NS;
        if self.watch.no_space_since().is_some_and(is_recent)
            && let Some(space) = self.space_usage()
        {
            troubles.extend(causes::of_short_writes(self.file.path(), space.free));
        }
        troubles
    }

    fn remarks(&self) -> Vec<String> {
        let path = self.file.path().display();
        self.unused_tail()
            .map(|text| format!("{path}: unused tail of {text}"))
            .into_iter()
            .collect()
    }

    fn show(&self) -> Vec<(&'static str, String)> {
        let mut lines =
            vec![("path", self.file.path().display().to_string()), ("mode", self.mode.clone())];
        lines.extend(self.space_usage().map(|s| ("allocated", format!("{} bytes", s.used))));
        lines.extend(self.unused_tail().map(|text| ("unused tail", text)));
        if let Some(text) = self.stored.text() {
            lines.push(("identity", text));
        }
        if self.made.is_some() {
            lines.push(("made", "when it was opened".into()));
        }
        lines
    }
}
