//! Contents of disks that a plan makes: their files are read before the graph has them, so that the
//! plan shows what its later steps would overwrite.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::Path;

use classes::guard::{self, Requester};
use classes::inspect::{self, InspectReport};
use mgmt::config::{DiskConfig, GeomConfig};
use mgmt::plan::{Action, Step};
use serde_json::Value;

use crate::identities::IdentityKeeper;

/// Sector of a disk whose section does not give one, bytes.
const SECTOR: u32 = 512;

/// A file that becomes a disk, or a disk that is made blank.
#[derive(Clone, Debug)]
pub struct Image {
    /// Bytes of the disk.
    pub bytes: u64,
    /// Serial number that the disk will have; empty: unknown.
    pub ident: String,
    report: InspectReport,
    /// The last sector; empty: blank.
    last: Vec<u8>,
}

impl Image {
    /// The image of a section; None: its kind has no file, or the file is missing.
    fn of(disk: &DiskConfig) -> Option<Image> {
        let number = |key| disk.params.get(key).and_then(Value::as_u64);
        let path = disk.params.get("path").and_then(Value::as_str);
        let creates = disk.params.get("create") == Some(&Value::Bool(true));
        let is_blank = match path {
            Some(path) => creates && !Path::new(path).exists(),
            None => disk.kind == "memory",
        };
        if is_blank {
            let (report, last) = (InspectReport::default(), Vec::new());
            return Some(Image { bytes: number("size")?, ident: String::new(), report, last });
        }
        let path = path?;
        let (mut file, facts) = bio::open_image(Path::new(path)).ok()?;
        let own = match facts.is_file() {
            true => SECTOR,
            false => device_sector(facts.rdev()).unwrap_or(SECTOR),
        };
        let sector = number("sector_size").and_then(|size| size.try_into().ok()).unwrap_or(own);
        let length = file.seek(SeekFrom::End(0)).ok()?.max(number("size").unwrap_or(0));
        let bytes = length - length % u64::from(sector);
        let report = inspect::image(sector, bytes, |offset, len| read(&file, offset, len));
        let last = bytes.checked_sub(u64::from(sector));
        let last = last.and_then(|at| read(&file, at, sector as usize)).unwrap_or_default();
        Some(Image { bytes, ident: String::new(), report, last })
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

/// Images by the names of the disks that they become.
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

/// The images of those of some disks that actions make.
pub fn planned_images<'a, 'b>(
    disks: impl Iterator<Item = &'a str>,
    actions: impl Iterator<Item = &'b Action> + Clone,
) -> Images {
    let image = |name: &str| Image::of(planned_disk(name, actions.clone())?);
    disks.filter_map(|name| Some((name.to_owned(), image(name)?))).collect()
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
