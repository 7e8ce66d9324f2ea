//! blockdev: a block device of this machine as a disk.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use bio::Errno;
use geom::{Error, Limits, Trouble};
use reactor::{File, OpenHow};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::backing::{Backing, BackingParts};
use crate::deletes::{DeleteBy, DeleteHow, choose, longest};
use crate::file::{Direct, errno_of, open_direct};
use crate::kind::{IO_BYTES_MAX, Identity, Kind, Open, Opened, PathKind, Unit};
use crate::lasting::{of_other, with_configured_serial};
use crate::locks::{self, LockHolder};
use crate::medium::Medium;
use crate::params;
use crate::path_state::PathState;
use crate::sysfs::{self, Facts};
use crate::watch::Watch;

/// Longest DELETE or WRITE ZEROES where the kernel names no bound, bytes; longer ones are split.
const DELETE_BYTES_MAX: u64 = 1 << 30;

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct BlockDevParams {
    /// Path of the device; names under /dev/disk/by-id do not change over restarts.
    pub path: PathBuf,
    /// Bypass the page cache (O_DIRECT): `auto`, `yes` or `no`.
    #[serde(default)]
    pub direct: Direct,
    /// Serial number; absent: the device's own, or a random one that is kept in the state folder
    /// for the path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serial: Option<String>,
    /// Refuse write access, and open the device for reading only.
    #[serde(default)]
    pub read_only: bool,
    /// Use the device even if it is mounted or otherwise in use. Writes then destroy its contents.
    #[serde(default)]
    pub force: bool,
    /// Method of DELETE, which gives unused blocks back: `auto`, `zero`, `discard` or `no`.
    #[serde(default)]
    pub delete: DeleteHow,
}

/// The kind.
pub(crate) struct BlockDev;

impl Kind for BlockDev {
    fn name(&self) -> &'static str {
        "blockdev"
    }

    fn path_kind(&self) -> PathKind {
        PathKind::Device
    }

    fn has_sectors_of_medium(&self) -> bool {
        true
    }

    fn doc(&self) -> &'static str {
        "A block device of this machine that is not mounted."
    }

    fn schema(&self) -> Value {
        params::schema::<BlockDevParams>()
    }

    fn example(&self) -> &'static str {
        "[[disk]]\nname = \"disk1\"\nkind = \"blockdev\"\n\
         path = \"/dev/disk/by-id/ata-EXAMPLE_0123\"\n"
    }

    fn check(&self, name: &str, params: &Value) -> Result<(), Error> {
        let p: BlockDevParams = params::read(self.name(), name, params)?;
        if !p.path.exists() {
            // It may appear later.
            return Ok(());
        }
        let users = sysfs::users(device_number(name, &p.path)?);
        match p.force || users.is_empty() {
            true => Ok(()),
            false => Err(in_use(name, &p.path, &users)),
        }
    }

    fn medium(&self, params: &Value) -> Option<Medium> {
        Medium::of(params::path(params)?)
    }

    fn check_lock(&self, name: &str, params: &Value) -> Result<(), Error> {
        let p: BlockDevParams = params::read(self.name(), name, params)?;
        // Other reasons to refuse it are not those of its locks.
        let Ok(number) = device_number(name, &p.path) else { return Ok(()) };
        let how = OpenHow { read_only: true, ..OpenHow::default() };
        let Ok(file) = File::open(&p.path, how) else { return Ok(()) };
        let read_only = p.read_only || sysfs::facts(number).read_only;
        match locks::check_of_node(&file, read_only) {
            Err(held) if !p.force => Err(locked(name, &p.path, held, read_only)),
            _ => Ok(()),
        }
    }

    fn open(&self, request: &Open<'_>) -> Result<Opened, Error> {
        let name = request.name;
        let p: BlockDevParams = params::read(self.name(), name, request.params)?;
        let number = device_number(name, &p.path)?;
        let facts = sysfs::facts(number);
        let read_only = p.read_only || facts.read_only;
        let (file, mode) = open_in_mode(name, &p, read_only, number)?;
        if !p.force {
            locks::take_of_node(&file, read_only)
                .map_err(|held| locked(name, &p.path, held, read_only))?;
        }
        let sector = file.facts().logical_sector.max(1);
        let size = file.size().map_err(|e| refuse(name, &p.path, errno_of(&e), e))?;
        let media_bytes = size / u64::from(sector) * u64::from(sector);
        if media_bytes == 0 {
            return Err(refuse(name, &p.path, Errno::NxIo, "has no medium: its size is zero"));
        }
        let (delete, delete_why) = match read_only {
            true => (None, "no: the device is read-only"),
            false => choose(p.delete, &facts)
                .map_err(|what| refuse(name, &p.path, Errno::NotSup, format!("delete: {what}")))?,
        };
        let watch = Watch::new(request.site.inbox.clone());
        let path_state = PathState::new(&file, &watch);
        let medium = file.as_fd().and_then(Medium::of_open);
        let physical = file.facts().physical_sector;
        let own = (!facts.serial.is_empty()).then_some(facts.serial.as_str());
        let key = p.path.to_string_lossy();
        Ok(Opened {
            layer: Arc::new(Backing::new(BackingParts {
                file: file.local(),
                cores: request.site.cores,
                delete,
                watch: watch.clone(),
            })),
            limits: Limits {
                media_bytes,
                sector_bytes: sector,
                io_max_bytes: IO_BYTES_MAX,
                delete_max_bytes: delete_max(delete, &facts),
            },
            stripe_bytes: if physical > sector { u64::from(physical) } else { 0 },
            identity: Identity {
                lasting: with_configured_serial(
                    p.serial.as_deref(),
                    of_other(request, self.name(), &key, own),
                ),
                descr: facts.descr.clone(),
                physpath: facts.physpath.clone(),
                rotation_rate: u16::from(facts.rotational == Some(false)),
                can_delete: delete.is_some(),
                delete_reads_zero: delete == Some(DeleteBy::Punch),
                any_memory: !file.facts().is_direct,
                atomic_bytes: atomic_bytes(sector, physical, facts.is_aligned),
                delete_granule: delete_granule(&facts, sector),
                can_anchor: false,
            },
            read_only,
            watch: Some(watch),
            unit: Box::new(BlockDevUnit {
                file,
                sector,
                mode,
                facts,
                delete_why,
                forced: p.force,
                medium,
                path_state,
            }),
        })
    }
}

/// The kernel's physical block is the unit that a device writes as a whole, where the first one
/// begins with the device.
fn atomic_bytes(sector: u32, physical: u32, aligned: bool) -> u64 {
    u64::from(if aligned && physical.is_power_of_two() { physical.max(sector) } else { sector })
}

/// As the kernel reports it, where sectors fit.
fn delete_granule(facts: &Facts, sector: u32) -> (u64, u64) {
    let (granule, sector) = (facts.discard_granularity, u64::from(sector.max(1)));
    match granule > 0 && granule.is_multiple_of(sector) {
        true => (granule, facts.discard_alignment % granule),
        false => (0, 0),
    }
}

fn delete_max(delete: Option<DeleteBy>, facts: &Facts) -> u64 {
    match longest(delete, facts) {
        0 => DELETE_BYTES_MAX,
        max => max.min(DELETE_BYTES_MAX),
    }
}

fn refuse(name: &str, path: &Path, errno: Errno, what: impl std::fmt::Display) -> Error {
    params::refuse("blockdev", name, errno, format!("{}: {what}", path.display()))
}

fn locked(name: &str, path: &Path, held: LockHolder, read_only: bool) -> Error {
    refuse(name, path, Errno::Busy, format!("{}, or set `force`", held.text(read_only)))
}

/// A device that the kernel does not open exclusively.
fn in_use(name: &str, path: &Path, users: &[String]) -> Error {
    let (by, end) = match users.is_empty() {
        true => ("by another program".to_owned(), "find it with `lsblk` or `fuser`"),
        false => (users.join(", "), "free it"),
    };
    let what = format!("is in use: {by}; {end}, or set force and risk the data on it");
    refuse(name, path, Errno::Busy, what)
}

fn device_number(name: &str, path: &Path) -> Result<(u32, u32), Error> {
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    let meta = std::fs::metadata(path).map_err(|e| {
        let what = format!("{e}; `lsblk` lists block devices");
        refuse(name, path, errno_of(&e), what)
    })?;
    if !meta.file_type().is_block_device() {
        let what = "is not a block device; for an image use kind file";
        return Err(refuse(name, path, Errno::Inval, what));
    }
    Ok((rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev())))
}

fn open_in_mode(
    name: &str,
    p: &BlockDevParams,
    read_only: bool,
    number: (u32, u32),
) -> Result<(File, String), Error> {
    // Exclusive: the kernel refuses a device that is mounted, swapped on or part of another device.
    let how = OpenHow { read_only, exclusive: !p.force, ..OpenHow::default() };
    let busy = Some(rustix::io::Errno::BUSY.raw_os_error());
    let buffered = File::open(&p.path, how).map_err(|e| match e.raw_os_error() == busy {
        true => in_use(name, &p.path, &sysfs::users(number)),
        false => refuse(name, &p.path, errno_of(&e), format!("cannot be opened: {e}")),
    })?;
    if p.direct == Direct::No {
        return Ok((buffered, "buffered (as configured)".into()));
    }
    // Two exclusive opens of one device exclude each other: the first is closed before the second.
    drop(buffered);
    match open_direct(&p.path, how, None) {
        Ok(file) => Ok((file, "direct".into())),
        Err(why) if p.direct == Direct::Yes => {
            let what = format!("cannot be opened with direct = yes: {why}; use auto or no");
            Err(refuse(name, &p.path, Errno::NotSup, what))
        }
        Err(why) => match File::open(&p.path, how) {
            Ok(file) => Ok((file, format!("buffered ({why})"))),
            Err(e) => Err(refuse(name, &p.path, errno_of(&e), e)),
        },
    }
}

struct BlockDevUnit {
    file: File,
    sector: u32,
    mode: String,
    facts: Facts,
    delete_why: &'static str,
    forced: bool,
    /// Found when the device was opened: the path of a loop device's file may hang later.
    medium: Option<Medium>,
    path_state: Arc<PathState>,
}

impl Unit for BlockDevUnit {
    fn size(&mut self) -> Result<u64, Errno> {
        let sector = u64::from(self.sector);
        match self.file.size() {
            Ok(0) => Err(Errno::NxIo),
            Ok(size) => Ok(size / sector * sector),
            Err(e) => Err(errno_of(&e)),
        }
    }

    fn medium(&self) -> Option<Medium> {
        self.medium.clone()
    }

    fn path_state(&self) -> Option<&Arc<PathState>> {
        Some(&self.path_state)
    }

    fn troubles(&self) -> Vec<Trouble> {
        self.path_state.troubles()
    }

    fn show(&self) -> Vec<(&'static str, String)> {
        let facts = self.file.facts();
        let turns = match self.facts.rotational {
            Some(true) => "yes",
            Some(false) => "no",
            None => "not known",
        };
        let mut lines = vec![
            ("path", self.file.path().display().to_string()),
            ("device", self.facts.name.clone()),
            ("mode", self.mode.clone()),
            ("physical sector", format!("{} bytes", facts.physical_sector)),
            ("rotational", turns.to_string()),
            ("write cache", self.facts.write_cache.clone()),
            ("deletes", self.delete_why.to_string()),
            ("discard granularity", format!("{} bytes", self.facts.discard_granularity)),
        ];
        if self.facts.read_only {
            lines.push(("note", "the kernel reports the device as read-only".into()));
        }
        if self.forced {
            lines.push(("note", "opened by force: other programs may write to it too".into()));
        }
        lines
    }
}
