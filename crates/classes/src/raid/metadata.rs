//! On-disk metadata of an array: the records last read from its disks and the records to be
//! written.

use std::collections::BTreeMap;

use super::Fault;
use super::assemble::{Found, is_departed, is_serial};
use super::ddf::{self, Change, Config, Meta, disk_state};
use super::imsm::{self, PriorContent, Record, serial_of};
use super::model::{Array, Disk, DiskState, SubdiskState};
use crate::probe::Reason;
use crate::write_plan::WritePlan;

/// A disk that is there, and is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PresentDisk {
    pub(crate) index: usize,
    /// Its size.
    pub(crate) sectors: u64,
    /// Its end is not where it was when its record was written last.
    pub(crate) moved: bool,
}

/// State needed to write records, in one format.
#[derive(Clone, Debug)]
pub(crate) enum MetadataState {
    /// One record is the same on all disks. By key: the known content of each disk, and the content
    /// being written.
    Intel {
        base: Box<Record>,
        on: BTreeMap<String, PriorContent>,
        next: BTreeMap<String, PriorContent>,
    },
    /// Each disk has its own; by key.
    Ddf {
        newest: Box<Meta>,
        own: BTreeMap<String, Meta>,
        deleted: Vec<[u8; 24]>,
        /// Disks that the array continues without, and their last records; the last to leave first.
        departed: Vec<(u32, u32)>,
    },
}

impl MetadataState {
    /// The array of some disks of which one's record is in force, and its metadata. Disks not given
    /// are missing.
    pub(crate) fn open(
        found: &[&Found],
        winner: usize,
        sector: u32,
    ) -> Result<(Array, MetadataState), Fault> {
        match found.get(winner) {
            Some(Found::Intel { record, .. }) => {
                let mut array = record.array(sector)?;
                for spare in found.iter().filter(|f| f.is_spare()) {
                    if let Found::Intel { record, .. } = spare {
                        let known = |d: &Disk| is_serial(&d.serial, &spare.key());
                        if !array.disks.iter().any(known) {
                            array.disks.extend(record.array(sector)?.disks);
                        }
                    }
                }
                let (base, on, next) = (record.clone(), BTreeMap::new(), BTreeMap::new());
                let mut metadata = MetadataState::Intel { base, on, next };
                found.iter().for_each(|one| metadata.add_record(one));
                Ok((array, metadata))
            }
            Some(Found::Ddf(newest)) => {
                let mut metas = Vec::with_capacity(found.len());
                for (at, one) in found.iter().enumerate() {
                    let Found::Ddf(meta) = one else { continue };
                    let mut meta = (**meta).clone();
                    let sequence = newest.header.sequence;
                    let as_new = meta.header.sequence == sequence
                        && (&meta.disks, &meta.volumes) == (&newest.disks, &newest.volumes);
                    if at != winner && !as_new {
                        // Only its record of its own volumes still counts.
                        meta.header.sequence = meta.header.sequence.min(sequence.saturating_sub(1));
                    }
                    metas.push(meta);
                }
                let mut array = ddf::assemble(&metas, sector)?.array;
                as_listed(newest, &mut array);
                let key = |meta: &Meta| format!("{:08x}", meta.data.reference);
                let own = metas.iter().map(|meta| (key(meta), meta.clone())).collect();
                let (newest, deleted, departed) = (newest.clone(), Vec::new(), newest.departed());
                Ok((array, MetadataState::Ddf { newest, own, deleted, departed }))
            }
            Some(Found::Torn { .. }) | None => {
                Err(Fault::new(Reason::Signature, "array", "is on none of these disks"))
            }
        }
    }

    pub(crate) fn key(&self, disk: &Disk) -> String {
        match self {
            MetadataState::Intel { .. } => disk.serial.clone(),
            MetadataState::Ddf { .. } => format!("{:08x}", disk.reference),
        }
    }

    pub(crate) fn find(&self, array: &Array, key: &str) -> Option<usize> {
        let same = |disk: &Disk| match self {
            MetadataState::Intel { .. } => is_serial(&disk.serial, key),
            MetadataState::Ddf { .. } => self.key(disk) == key,
        };
        array.disks.iter().position(same)
    }

    /// A disk that was missing is called by its whole serial number again, and has an id. Readers
    /// of the record take a disk without an id for missing.
    pub(crate) fn name(&self, array: &mut Array, index: usize, key: &str) {
        if let (MetadataState::Intel { .. }, Some(disk)) = (self, array.disks.get_mut(index)) {
            key.clone_into(&mut disk.serial);
            if disk.reference == u32::MAX {
                disk.reference = index as u32;
            }
        }
    }

    /// A further disk's own record is known from now on.
    pub(crate) fn add_record(&mut self, found: &Found) {
        match (self, found) {
            (MetadataState::Ddf { own, departed, .. }, Found::Ddf(meta)) => {
                departed.retain(|(of, _)| *of != meta.data.reference);
                own.insert(found.key(), (**meta).clone());
            }
            (MetadataState::Intel { on, .. }, Found::Intel { record, .. }) => {
                on.extend(PriorContent::complete(record).map(|over| (found.key(), over)));
            }
            (MetadataState::Intel { on, .. }, Found::Torn { left, .. }) => {
                on.insert(found.key(), PriorContent::Torn(left.first.clone()));
            }
            _ => {}
        }
    }

    /// A disk's record was written, or may be torn.
    pub(crate) fn written(&mut self, key: &str, complete: bool, sector: u32) {
        let MetadataState::Intel { on, next, .. } = self else { return };
        let Some(new) = next.remove(key) else { return };
        let now = match complete {
            true => Some(new),
            false => on.remove(key).map(|old| old.torn(sector as usize)),
        };
        on.extend(now.map(|now| (key.to_owned(), now)));
    }

    /// The array continues without a disk whose last record is known (DDF).
    pub(crate) fn add_departed(&mut self, key: &str, generation: u32) {
        let (MetadataState::Ddf { departed, .. }, Ok(reference)) =
            (self, u32::from_str_radix(key, 16))
        else {
            return;
        };
        departed.retain(|(of, _)| *of != reference);
        departed.insert(0, (reference, generation));
        departed.truncate(ddf::DEPARTED_MAX);
    }

    /// The operator chose against the half of a disk, whose record has this generation.
    pub(crate) fn outrank(&mut self, key: &str, generation: u32) {
        match self {
            MetadataState::Intel { base, .. } => base.outrank(key, generation),
            MetadataState::Ddf { .. } => self.add_departed(key, generation),
        }
    }

    /// Whether a disk has left, or the operator chose against its half, and it was not used since.
    pub(crate) fn has_dropped(&self, found: &Found) -> bool {
        match (self, found) {
            (MetadataState::Ddf { departed, .. }, Found::Ddf(theirs)) => {
                is_departed(departed, theirs)
            }
            (MetadataState::Intel { base, .. }, _) => {
                base.has_outranked(&found.key(), found.generation())
            }
            _ => false,
        }
    }

    /// The controller that made the array (DDF).
    pub(crate) fn controller(&self) -> [u8; 24] {
        match self {
            MetadataState::Intel { .. } => [0; 24],
            MetadataState::Ddf { newest, .. } => controller_of(newest),
        }
    }

    /// A volume is not to be listed any more.
    pub(crate) fn delete_volume(&mut self, volume: [u8; 24]) {
        if let MetadataState::Ddf { deleted, .. } = self {
            deleted.push(volume);
        }
    }

    /// True when the format keeps how far a rebuild is.
    pub(crate) fn keeps_progress(&self) -> bool {
        matches!(self, MetadataState::Intel { .. })
    }

    /// True when the format records the size of disks; otherwise, their usable part.
    pub(crate) fn counts_full_disks(&self) -> bool {
        matches!(self, MetadataState::Intel { .. })
    }

    /// What Linux keeps beside a volume against the write hole, if it does.
    pub(crate) fn write_hole_policy(&self, volume: [u8; 24]) -> Option<&'static str> {
        match self {
            MetadataState::Intel { base, .. } => base.write_hole_policy_of(volume),
            MetadataState::Ddf { .. } => None,
        }
    }

    /// A volume has no guard from its next record on.
    pub(crate) fn clear_write_hole_policy(&mut self, volume: [u8; 24]) {
        if let MetadataState::Intel { base, .. } = self {
            base.clear_write_hole_policy(volume);
        }
    }

    /// The entry of a further member, with the text that is to be written to it.
    pub(crate) fn new_disk(&self, serial: &str, number: u32, media: u64, sector: u32) -> Disk {
        let mut guid = [b' '; 24];
        crate::probe::put(&mut guid, 0, b"ASHLAR  ");
        crate::probe::put(&mut guid, 8, format!("{number:08x}").as_bytes());
        let (bytes, text) = match self {
            MetadataState::Intel { .. } => (media, serial_of(serial)),
            MetadataState::Ddf { .. } => {
                let usable = ddf::usable_bytes(media);
                (usable - usable % u64::from(sector.max(1)), String::from_utf8_lossy(&guid).into())
            }
        };
        let intel = matches!(self, MetadataState::Intel { .. });
        Disk {
            serial: text,
            reference: if intel { 0 } else { number },
            guid: if intel { [0; 24] } else { guid },
            state: DiskState::Spare,
            bytes,
            bad: Vec::new(),
        }
    }

    /// The disk that the one on which this was found would be, were it a further member.
    pub(crate) fn same_disk(&self, found: &Found, media: u64, sector: u32) -> Disk {
        match found {
            Found::Ddf(meta) => Disk {
                serial: String::from_utf8_lossy(&meta.data.guid).into_owned(),
                guid: meta.data.guid,
                ..self.new_disk(&found.key(), meta.data.reference, media, sector)
            },
            Found::Intel { .. } | Found::Torn { .. } => {
                self.new_disk(&found.key(), 0, media, sector)
            }
        }
    }

    /// The records to be written to the disks of `array` that are `here`: the plans, by index. The
    /// generation increases, beyond `above`. `now_s` is the time of the write, seconds since 1970.
    pub(crate) fn write(
        &mut self,
        array: &mut Array,
        present: &[PresentDisk],
        above: u32,
        sector: u32,
        now_s: u64,
    ) -> Result<Vec<(usize, WritePlan)>, Fault> {
        match self {
            MetadataState::Intel { base, on, next } => {
                let mut old = (**base).clone();
                old.generation = old.generation.max(above);
                let mut record = imsm::update(&old, array, sector)?;
                record.written_s = now_s;
                let mut all = Vec::with_capacity(present.len());
                for PresentDisk { index, sectors, .. } in present.iter().copied() {
                    let Some(disk) = array.disks.get(index) else { continue };
                    let spare = match disk.state {
                        DiskState::Spare => Some(imsm::spare(disk, sector)?),
                        _ => None,
                    };
                    let (own, over) = (spare.as_ref().unwrap_or(&record), on.get(&disk.serial));
                    all.push((index, imsm::plan_over(own, over, sectors, sector)?));
                    next.extend(PriorContent::complete(own).map(|new| (disk.serial.clone(), new)));
                }
                array.generation = record.generation;
                **base = record.with_policies_of(&old);
                Ok(all)
            }
            MetadataState::Ddf { newest, own, deleted, departed } => {
                let sequence = newest.header.sequence.max(above).wrapping_add(1);
                let time = ddf::from_unix(now_s).unwrap_or(newest.header.time);
                let change = Change { time, deleted };
                array.generation = sequence;
                let (mut all, mut written) = (Vec::with_capacity(present.len()), Vec::new());
                for PresentDisk { index, sectors, moved } in present.iter().copied() {
                    let Some(disk) = array.disks.get(index) else { continue };
                    let key = format!("{:08x}", disk.reference);
                    let known = own.get(&key).cloned();
                    let anchor = known.is_none() || moved;
                    let base = match known {
                        Some(meta) => meta,
                        None => {
                            let place = ddf::TargetDisk {
                                sector_size: sector,
                                media_sectors: sectors,
                                time,
                                controller: controller_of(newest),
                                limits: newest.header.limits,
                                order: newest.header.order,
                            };
                            let mut meta = ddf::create(array, index, &place)?;
                            meta.configs.clear();
                            meta
                        }
                    };
                    let base = on_disk_of(newest, own, base, sequence.wrapping_sub(1));
                    let mut meta = ddf::update(&base, array, index, &change, sector)?;
                    meta.note_departed(departed);
                    all.push((index, ddf::plan(&meta, sectors, sector, anchor)?));
                    written.push((key, meta));
                }
                if let Some((_, meta)) = written.first() {
                    **newest = meta.clone();
                }
                own.extend(written);
                Ok(all)
            }
        }
    }
}

/// Disks that are not here keep the state in the record instead of being missing.
fn as_listed(newest: &Meta, array: &mut Array) {
    use ddf::kind::{CONFIG_SPARE, GLOBAL_SPARE, PARTICIPATING};
    for (index, disk) in array.disks.iter_mut().enumerate() {
        let entry = newest.disks.iter().find(|entry| entry.reference == disk.reference);
        let Some(entry) = entry.filter(|_| disk.state == DiskState::Missing) else { continue };
        let gone = disk_state::FAILED | disk_state::MISSING;
        if entry.state & gone != 0 || entry.state & disk_state::ONLINE == 0 {
            continue;
        }
        let spare = entry.kind & (GLOBAL_SPARE | CONFIG_SPARE) != 0;
        let spare = spare && entry.kind & PARTICIPATING == 0;
        disk.state = if spare { DiskState::Spare } else { DiskState::Active };
        for volume in &mut array.volumes {
            let init =
                newest.volumes.iter().find(|v| v.guid == volume.id).map_or(2, |v| v.init & 3);
            for member in volume.members.iter_mut().filter(|m| m.disk == index) {
                member.state = match entry.state & disk_state::REBUILD != 0 {
                    true => SubdiskState::Rebuild,
                    false if volume.level.redundant() && init != 2 => SubdiskState::Uninitialized,
                    false => SubdiskState::Active,
                };
            }
        }
    }
}

/// The base of a disk's next record: the newest record's description of the set, and the disk's own
/// description of itself. Its configurations are the newest of all disks, so that the next one
/// continues their sequence numbers. If a disk that takes a place began at one, the configuration
/// of the previous disk in that place could be preferred over its own.
fn on_disk_of(newest: &Meta, all: &BTreeMap<String, Meta>, mut base: Meta, sequence: u32) -> Meta {
    base.header.sequence = sequence;
    base.disks.clone_from(&newest.disks);
    base.volumes.clone_from(&newest.volumes);
    for config in all.values().flat_map(|meta| &meta.configs) {
        let same = |c: &&mut Config| c.guid == config.guid && c.secondary.1 == config.secondary.1;
        match base.configs.iter_mut().find(same) {
            Some(old) if old.sequence < config.sequence => *old = config.clone(),
            Some(_) => {}
            None => base.configs.push(config.clone()),
        }
    }
    base
}

fn controller_of(meta: &Meta) -> [u8; 24] {
    let mut guid = [0; 24];
    crate::probe::put(&mut guid, 0, crate::probe::span(&meta.controller, 8, 24));
    guid
}
