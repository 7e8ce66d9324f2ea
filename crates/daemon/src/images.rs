//! Contents of disks that a plan makes, and of their partitions. The files are read before the
//! graph has them, so that the plan shows what its later steps would overwrite.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use classes::guard::{self, Requester};
use classes::inspect::{self, InspectReport};
use classes::part::{self, TableContext};
use classes::probe::Sectors;
use mgmt::config::{DiskConfig, GeomConfig};
use mgmt::plan::{Action, Step, name_depends_on};
use serde_json::Value;

use crate::identities::IdentityKeeper;

/// Sector of a disk whose section does not give one, bytes.
const SECTOR: u32 = 512;

/// The file or device of a section.
struct ImageFile {
    file: File,
    sector: u32,
    /// Bytes of the disk.
    bytes: u64,
}

impl ImageFile {
    fn open(disk: &DiskConfig) -> Option<ImageFile> {
        let number = |key| disk.params.get(key).and_then(Value::as_u64);
        let path = disk.params.get("path").and_then(Value::as_str)?;
        let (mut file, facts) = bio::open_image(Path::new(path)).ok()?;
        let own = match facts.is_file() {
            true => SECTOR,
            false => device_sector(facts.rdev()).unwrap_or(SECTOR),
        };
        let sector = number("sector_size").and_then(|size| size.try_into().ok()).unwrap_or(own);
        let length = file.seek(SeekFrom::End(0)).ok()?.max(number("size").unwrap_or(0));
        Some(ImageFile { file, sector, bytes: length - length % u64::from(sector) })
    }

    /// The first byte of a partition, and its bytes. `suffix`: its name behind that of the disk.
    fn partition(&self, suffix: &str) -> Option<(u64, u64)> {
        let mut sectors = Sectors::new(self.sector, self.bytes);
        let read_at = |offset, len| read(&self.file, offset, len);
        let probed = sectors.drive(read_at, |s| part::step(s, &TableContext::default()));
        let table = probed.ok()?;
        let entry = table.entries().iter().find(|entry| table.suffix(entry) == suffix)?;
        let sector = u64::from(self.sector);
        Some((entry.data.checked_mul(sector)?, entry.data_sectors().checked_mul(sector)?))
    }

    /// So many bytes from an offset, as an image.
    fn image(&self, from: u64, bytes: u64) -> Image {
        let read_at = |offset: u64, len| read(&self.file, from.saturating_add(offset), len);
        let report = inspect::image(self.sector, bytes, read_at);
        let last = bytes.checked_sub(u64::from(self.sector));
        let last = last.and_then(|at| read_at(at, self.sector as usize)).unwrap_or_default();
        Image { bytes, ident: String::new(), report, last }
    }
}

/// Size and write access of a disk.
#[derive(Clone, Copy, Debug)]
pub struct MediumFacts {
    /// Its bytes.
    pub bytes: u64,
    /// Bytes of a sector.
    pub sector: u32,
    /// Whether it cannot be written.
    pub is_read_only: bool,
}

impl MediumFacts {
    /// Those of the disk that a section makes; None as of an image.
    pub fn of(disk: &DiskConfig) -> Option<MediumFacts> {
        let number = |key| disk.params.get(key).and_then(Value::as_u64);
        if is_blank(disk) {
            let sector = number("sector_size").and_then(|size| size.try_into().ok());
            let (bytes, sector) = (number("size")?, sector.unwrap_or(SECTOR));
            return Some(MediumFacts { bytes, sector, is_read_only: disk.is_read_only() });
        }
        let file = ImageFile::open(disk)?;
        let can_write =
            |path: &Path| rustix::fs::access(path, rustix::fs::Access::WRITE_OK).is_ok();
        let is_read_only = disk.is_read_only() || !disk.image().is_some_and(can_write);
        Some(MediumFacts { bytes: file.bytes, sector: file.sector, is_read_only })
    }
}

/// Whether a section makes a disk without data.
fn is_blank(disk: &DiskConfig) -> bool {
    let creates = disk.params.get("create") == Some(&Value::Bool(true));
    match disk.params.get("path").and_then(Value::as_str) {
        Some(path) => creates && !Path::new(path).exists(),
        None => disk.kind == "memory",
    }
}

/// A file that becomes a disk, a partition in it, or a disk that is made blank.
#[derive(Clone, Debug)]
pub struct Image {
    /// Bytes of the disk or partition.
    pub bytes: u64,
    /// Serial number that the disk will have; empty: unknown, or a partition.
    pub ident: String,
    report: InspectReport,
    /// The last sector; empty: blank.
    last: Vec<u8>,
}

impl Image {
    /// The image of a section, or of a partition, which has this name behind that of the disk.
    /// None: its kind has no file, the file is missing, or it has no such partition.
    fn of(disk: &DiskConfig, partition: &str) -> Option<Image> {
        if is_blank(disk) {
            let bytes = disk.params.get("size").and_then(Value::as_u64)?;
            let (report, last) = (InspectReport::default(), Vec::new());
            let image = Image { bytes, ident: String::new(), report, last };
            return partition.is_empty().then_some(image);
        }
        let file = ImageFile::open(disk)?;
        let (from, bytes) = match partition {
            "" => (0, file.bytes),
            suffix => file.partition(suffix)?,
        };
        Some(file.image(from, bytes))
    }

    /// The contents that a geom would overwrite, in words.
    pub fn contents(&self, by: Requester<'_>) -> Option<String> {
        guard::found(&self.report, (&self.last, self.bytes), by)
    }

    /// Whether its last sector begins with these bytes.
    pub fn ends_with(&self, magic: &[u8]) -> bool {
        self.last.starts_with(magic)
    }

    /// Whether it has a record that makes it a member of the asking geom.
    pub fn is_member(&self, by: Requester<'_>) -> bool {
        self.report.findings.iter().any(|finding| guard::is_member(finding, by))
    }

    /// Whether it has a record of a class.
    pub fn has_record(&self, class: &str) -> bool {
        self.report.findings.iter().any(|finding| finding.class == class)
    }
}

/// Sector of a block device, bytes; that of a partition is its disk's.
fn device_sector(device: u64) -> Option<u32> {
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    ["", "../"].iter().find_map(|up| {
        let path = format!("/sys/dev/block/{major}:{minor}/{up}queue/logical_block_size");
        std::fs::read_to_string(path).ok()?.trim().parse().ok()
    })
}

/// Bytes of a file; those behind its end are zero, as in the disk that it becomes.
fn read(file: &File, offset: u64, len: usize) -> Option<Vec<u8>> {
    let mut bytes = vec![0; len];
    let mut done = 0;
    while let Some(rest) = bytes.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match file.read_at(rest, offset + done as u64).ok()? {
            0 => break,
            n => done += n,
        }
    }
    Some(bytes)
}

/// Images by the names of the disks and partitions that they become.
pub type Images = BTreeMap<String, Image>;

/// The images of the members of a geom that the steps before it make, with the serial numbers that
/// these disks will have.
pub fn images_below(geom: &GeomConfig, before: &[Step], identities: &IdentityKeeper) -> Images {
    let actions = before.iter().map(|step| &step.action);
    let mut images = planned_images(geom.provider_names(), actions.clone());
    let gone = actions.clone().filter_map(|action| match action {
        Action::RemoveDisk { disk } => Some(disk.name.clone()),
        _ => None,
    });
    let gone: BTreeSet<String> = gone.collect();
    for (name, image) in &mut images {
        let disk = planned_disk(name, actions.clone());
        image.ident = disk.map(|disk| identities.predict_ident(disk, &gone)).unwrap_or_default();
    }
    images
}

/// The images of those of some disks and partitions that actions make.
pub fn planned_images<'a, 'b>(
    names: impl Iterator<Item = &'a str>,
    actions: impl Iterator<Item = &'b Action> + Clone,
) -> Images {
    let image = |name: &str| {
        let (disk, partition) = planned_owner(name, actions.clone())?;
        Image::of(disk, partition)
    };
    names.filter_map(|name| Some((name.to_owned(), image(name)?))).collect()
}

/// The section of the disk of that name that actions make, or of the disk on which the partition of
/// that name is; and the rest of the name.
fn planned_owner<'a, 'b>(
    name: &'a str,
    actions: impl Iterator<Item = &'b Action>,
) -> Option<(&'b DiskConfig, &'a str)> {
    let owners = actions.filter_map(|action| match action {
        Action::CreateDisk { disk } if name_depends_on(name, &disk.name) => {
            Some((disk, name.strip_prefix(disk.name.as_str())?))
        }
        _ => None,
    });
    owners.min_by_key(|(_, rest)| rest.len())
}

/// The section of the disk of that name that actions make.
pub fn planned_disk<'b>(
    name: &str,
    mut actions: impl Iterator<Item = &'b Action>,
) -> Option<&'b DiskConfig> {
    actions.find_map(|action| match action {
        Action::CreateDisk { disk } if disk.name == name => Some(disk),
        _ => None,
    })
}
