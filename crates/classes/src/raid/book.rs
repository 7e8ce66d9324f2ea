//! The books of an array: what its disks say in their format, and what they shall say.
//!
//! Disks are known by a *key*: Intel's serial number, DDF's reference number. A disk's own record
//! speaks of the others; who lived on without whom decides who is believed ([`judge`]).

use std::collections::BTreeMap;

use super::Fault;
use super::ddf::{self, Change, Config, Meta, disk_state};
use super::imsm::{self, Over, Record, Torn, serial_of};
use super::model::{Array, Disk, DiskState, SubdiskState, Volume};
use crate::part::WritePlan;
use crate::probe::Reason;

/// Serial numbers of disks that are gone lose their first characters to a mark.
const CUT_SERIAL: usize = 14;

/// Which array a disk belongs to.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum SetId {
    /// Family as it was at first.
    Intel(u32),
    /// GUID of the header.
    Ddf([u8; 24]),
}

impl SetId {
    /// As the geom is called.
    pub(crate) fn name(&self) -> String {
        match self {
            SetId::Intel(family) => format!("Intel-{family:08x}"),
            SetId::Ddf(guid) => {
                format!("DDF-{:08x}", crate::part::crc::crc32(&[guid]))
            }
        }
    }

    /// The format, as lists show it.
    pub(crate) fn format(&self) -> &'static str {
        match self {
            SetId::Intel(_) => "Intel",
            SetId::Ddf(_) => "DDF",
        }
    }
}

/// What was found on one disk.
#[derive(Clone, Debug)]
pub(crate) enum Found {
    /// Intel's record, and the disk's own serial number.
    Intel { serial: String, record: Box<Record> },
    /// A record of Intel's that the power tore: only who the disk is, and of what.
    Torn { serial: String, left: Torn },
    /// DDF.
    Ddf(Box<Meta>),
}

/// What a record says of a disk that has a place in a volume.
struct Place {
    key: String,
    /// It was with the others.
    there: bool,
    /// It had everything.
    whole: bool,
}

/// Whether a record's serial number is that of a disk.
pub(crate) fn is_serial(known: &str, own: &str) -> bool {
    known == own || known.len() == CUT_SERIAL && own.ends_with(known)
}

/// A volume that two records of Intel's give two shapes.
fn intel_differs(one: &Record, two: &Record, sector: u32) -> Option<String> {
    let (one, two) = (one.array(sector).ok()?, two.array(sector).ok()?);
    let shape = |v: &Volume| {
        let parts: Vec<_> = v.members.iter().map(|m| (m.offset, m.bytes)).collect();
        (v.level, v.strip, v.bytes, parts)
    };
    let same = |a: &Volume, b: &Volume| a.id == b.id && a.name == b.name;
    let differs =
        |v: &&Volume| two.volumes.iter().any(|other| same(v, other) && shape(v) != shape(other));
    one.volumes.iter().find(differs).map(|v| v.name.clone())
}

/// A volume that two disks with DDF give two shapes.
fn ddf_differs(one: &Meta, two: &Meta) -> Option<String> {
    let shape = |c: &Config| {
        let place = (c.secondary.0, c.secondary.2, c.elements.len());
        (c.level, place, c.strip, c.volume)
    };
    let same = |a: &Config, b: &Config| a.guid == b.guid && a.sequence == b.sequence;
    let differs =
        |c: &&Config| two.configs.iter().any(|other| same(c, other) && shape(c) != shape(other));
    let guid = one.configs.iter().find(differs)?.guid;
    let name = one.volumes.iter().find(|entry| entry.guid == guid)?.name;
    Some(String::from_utf8_lossy(&name).trim_end_matches(['\0', ' ']).to_owned())
}

impl Found {
    /// Which array it is of; a spare of Intel's is of any.
    pub(crate) fn set(&self) -> SetId {
        match self {
            Found::Intel { record, .. } => SetId::Intel(record.set()),
            Found::Torn { left, .. } => SetId::Intel(left.set),
            Found::Ddf(meta) => SetId::Ddf(meta.header.guid),
        }
    }

    /// True for a disk that waits to be of use, of no array yet.
    pub(crate) fn is_spare(&self) -> bool {
        matches!(self, Found::Intel { record, .. } if record.is_spare())
    }

    /// True for a disk whose record is torn: others must speak for it.
    pub(crate) fn is_torn(&self) -> bool {
        matches!(self, Found::Torn { .. })
    }

    /// True for a disk that speaks for itself and the others.
    fn is_heard(&self) -> bool {
        !self.is_spare() && !self.is_torn()
    }

    /// Counts up with every change.
    pub(crate) fn generation(&self) -> u32 {
        match self {
            Found::Intel { record, .. } => record.generation,
            Found::Torn { left, .. } => left.generation,
            Found::Ddf(meta) => meta.header.sequence,
        }
    }

    /// What the record says that this disk has, bytes; DDF does not say.
    pub(crate) fn disk_bytes(&self, sector: u32) -> Option<u64> {
        let Found::Intel { record, .. } = self else { return None };
        let (array, key) = (record.array(sector).ok()?, self.key());
        array.disks.iter().find(|disk| is_serial(&disk.serial, &key)).map(|disk| disk.bytes)
    }

    /// Who the disk is.
    pub(crate) fn key(&self) -> String {
        match self {
            Found::Intel { serial, .. } | Found::Torn { serial, .. } => serial_of(serial),
            Found::Ddf(meta) => format!("{:08x}", meta.data.reference),
        }
    }

    /// Disks in slots of this record.
    fn members(&self, sector: u32) -> Vec<Place> {
        match self {
            Found::Torn { .. } => Vec::new(),
            Found::Intel { record, .. } => {
                let Ok(array) = record.array(sector) else { return Vec::new() };
                let whole = |index: usize| {
                    let of = array.volumes.iter().filter(|v| v.level.redundant());
                    let mut slots = of.flat_map(|v| &v.members).filter(|m| m.disk == index);
                    slots.all(|m| m.state >= SubdiskState::Uninitialized)
                };
                let used = |index: &usize| {
                    array.volumes.iter().flat_map(|v| &v.members).any(|m| m.disk == *index)
                };
                let all = array.disks.iter().enumerate().filter(|(index, _)| used(index));
                all.map(|(i, disk)| {
                    let there = disk.state == DiskState::Active;
                    Place { key: disk.serial.clone(), there, whole: there && whole(i) }
                })
                .collect()
            }
            Found::Ddf(meta) => {
                let used = meta.disks.iter().filter(|d| d.kind & ddf::kind::PARTICIPATING != 0);
                used.map(|d| {
                    let there = d.state & (disk_state::FAILED | disk_state::MISSING) == 0;
                    let whole = there && d.state & disk_state::REBUILD == 0;
                    Place { key: format!("{:08x}", d.reference), there, whole }
                })
                .collect()
            }
        }
    }

    /// Whether this record says that a disk lacks something.
    pub(crate) fn excludes(&self, key: &str, sector: u32) -> bool {
        let all = self.members(sector);
        match all.iter().find(|member| is_serial(&member.key, key)) {
            Some(member) => !member.whole,
            // It was replaced.
            None => !all.is_empty(),
        }
    }

    /// Whether this record was made without a disk: not even as one that was being filled.
    pub(crate) fn is_apart(&self, key: &str, sector: u32) -> bool {
        let all = self.members(sector);
        match all.iter().find(|member| is_serial(&member.key, key)) {
            Some(member) => !member.there,
            None => !all.is_empty(),
        }
    }

    /// Whether it and another record of the same generation give a volume two shapes, and what to
    /// do about it.
    pub(crate) fn contradicts(&self, other: &Found, sector: u32) -> Option<String> {
        if self.set() != other.set() || self.generation() != other.generation() {
            return None;
        }
        let volume = match (self, other) {
            (Found::Intel { record, .. }, Found::Intel { record: theirs, .. }) => {
                intel_differs(record, theirs, sector)?
            }
            (Found::Ddf(meta), Found::Ddf(theirs)) => ddf_differs(meta, theirs)?,
            _ => return None,
        };
        Some(format!(
            "disks {} and {} say two things of volume {volume} in one generation ({}): one of them \
             was not written with the other. `ashlar raid dump` shows both: `clear` the wrong one",
            self.key(),
            other.key(),
            self.generation()
        ))
    }

    /// Whether this record has a place for a disk.
    fn knows(&self, key: &str, sector: u32) -> bool {
        self.members(sector).iter().any(|member| is_serial(&member.key, key))
    }

    /// Keys of the disks that this record says are there: to be waited for. One that was being
    /// filled may have been finished since, and may know that this one was left behind.
    pub(crate) fn wanted(&self, sector: u32) -> Vec<String> {
        let all = self.members(sector).into_iter();
        all.filter(|member| member.there).map(|member| member.key).collect()
    }

    /// True when every disk that is wanted is among `here`.
    pub(crate) fn is_complete(&self, here: &[String], sector: u32) -> bool {
        self.wanted(sector).iter().all(|key| here.iter().any(|own| is_serial(key, own)))
    }
}

/// Who of several disks of one array is believed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Judged {
    /// Whose record is in force.
    pub(crate) winner: usize,
    /// Disks that lived on without the winner and all it lived on with, as these did without them:
    /// each half may hold data that the other has not.
    pub(crate) split: Vec<usize>,
    /// Disks whose records are torn, and were newer than the winner's: they may have lived on
    /// without it.
    pub(crate) ahead: Vec<usize>,
}

/// Whose record is in force: of a disk that no other lived on without; of these the newest. A
/// record that leaves a disk out is believed over one that does not know of that, even if the
/// latter is newer by number: a crash amid updates makes numbers differ, not data. A newer one of a
/// disk that is being filled knows.
pub(crate) fn judge(found: &[&Found], sector: u32) -> Option<Judged> {
    let members: Vec<usize> = (0..found.len()).filter(|at| found[*at].is_heard()).collect();
    let keys: Vec<String> = found.iter().map(|f| f.key()).collect();
    let without = |a: usize, b: usize| found[a].excludes(&keys[b], sector);
    let disowned = |x: usize| {
        members.iter().any(|y| {
            let newer = found[*y].generation() > found[x].generation();
            *y != x && without(*y, x) && (newer || !without(x, *y) && !without(x, x))
        })
    };
    let winner = members
        .iter()
        .copied()
        .max_by_key(|x| (!disowned(*x), found[*x].generation(), std::cmp::Reverse(*x)))?;
    let good: Vec<usize> =
        members.iter().copied().filter(|y| *y == winner || !without(winner, *y)).collect();
    // One that does not know the winner's disks need not have lived without them: they may have
    // come since. It has nothing of its own if one that it lived with went on without it; and if
    // the winner does not know it either, nothing will be done to it.
    let is_left = |x: usize| members.iter().any(|y| without(*y, x) && !without(x, *y));
    let knows = |a: usize, b: usize| found[a].knows(&keys[b], sector);
    let is_strange = |x: usize| !knows(winner, x) && !good.iter().any(|y| knows(x, *y));
    // One that was being filled by its own record has nothing that its source has not, which speaks
    // for itself when it comes.
    let has_own = |x: usize| !without(x, x);
    let is_split = |x: &usize| {
        let apart = |y: &usize| found[*x].is_apart(&keys[*y], sector);
        let apart = *x != winner && without(winner, *x) && good.iter().all(apart);
        apart && has_own(*x) && !is_left(*x) && !is_strange(*x)
    };
    let split = members.iter().copied().filter(is_split).collect();
    // Whoever goes on without a disk counts up, and says so of it: what is torn and no newer was
    // with the winner, or the winner says that it was not.
    let newest = found[winner].generation();
    let is_ahead = |x: &usize| found[*x].is_torn() && found[*x].generation() > newest;
    let ahead = (0..found.len()).filter(is_ahead).collect();
    Some(Judged { winner, split, ahead })
}

/// A disk that is there, and is to be written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Here {
    /// Its index in the array.
    pub(crate) index: usize,
    /// Its size.
    pub(crate) sectors: u64,
    /// Its end is not where it was when its record was written last.
    pub(crate) moved: bool,
}

/// What is needed to write records, in one format.
#[derive(Clone, Debug)]
pub(crate) enum Book {
    /// One record is the same on all disks. By key: what is on each, as far as it is known, and
    /// what is being written.
    Intel { base: Box<Record>, on: BTreeMap<String, Over>, next: BTreeMap<String, Over> },
    /// Each disk has its own; by key.
    Ddf { newest: Box<Meta>, own: BTreeMap<String, Meta>, deleted: Vec<[u8; 24]> },
}

impl Book {
    /// The array of some disks of which one's record is in force, and its books. Disks not given
    /// are missing.
    pub(crate) fn open(
        found: &[&Found],
        winner: usize,
        sector: u32,
    ) -> Result<(Array, Book), Fault> {
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
                let mut book = Book::Intel { base, on, next };
                found.iter().for_each(|one| book.enter(one));
                Ok((array, book))
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
                        // What it says of its own volumes still counts, and nothing else.
                        meta.header.sequence = meta.header.sequence.min(sequence.saturating_sub(1));
                    }
                    metas.push(meta);
                }
                let mut array = ddf::assemble(&metas, sector)?.array;
                as_listed(newest, &mut array);
                let key = |meta: &Meta| format!("{:08x}", meta.data.reference);
                let own = metas.iter().map(|meta| (key(meta), meta.clone())).collect();
                Ok((array, Book::Ddf { newest: newest.clone(), own, deleted: Vec::new() }))
            }
            Some(Found::Torn { .. }) | None => {
                Err(Fault::new(Reason::Signature, "array", "is on none of these disks"))
            }
        }
    }

    /// A disk's key.
    pub(crate) fn key(&self, disk: &Disk) -> String {
        match self {
            Book::Intel { .. } => disk.serial.clone(),
            Book::Ddf { .. } => format!("{:08x}", disk.reference),
        }
    }

    /// The disk of an array with a key.
    pub(crate) fn find(&self, array: &Array, key: &str) -> Option<usize> {
        let same = |disk: &Disk| match self {
            Book::Intel { .. } => is_serial(&disk.serial, key),
            Book::Ddf { .. } => self.key(disk) == key,
        };
        array.disks.iter().position(same)
    }

    /// A disk that was gone is called by its whole serial number again, and has an id: one without
    /// is missing to whoever reads the record.
    pub(crate) fn name(&self, array: &mut Array, index: usize, key: &str) {
        if let (Book::Intel { .. }, Some(disk)) = (self, array.disks.get_mut(index)) {
            key.clone_into(&mut disk.serial);
            if disk.reference == u32::MAX {
                disk.reference = index as u32;
            }
        }
    }

    /// A further disk's own record is known from now on.
    pub(crate) fn enter(&mut self, found: &Found) {
        match (self, found) {
            (Book::Ddf { own, .. }, Found::Ddf(meta)) => {
                own.insert(found.key(), (**meta).clone());
            }
            (Book::Intel { on, .. }, Found::Intel { record, .. }) => {
                on.extend(Over::whole(record).map(|over| (found.key(), over)));
            }
            (Book::Intel { on, .. }, Found::Torn { left, .. }) => {
                on.insert(found.key(), Over::Torn(left.first.clone()));
            }
            _ => {}
        }
    }

    /// A disk's record was written, or may be torn.
    pub(crate) fn written(&mut self, key: &str, whole: bool, sector: u32) {
        let Book::Intel { on, next, .. } = self else { return };
        let Some(new) = next.remove(key) else { return };
        let now = match whole {
            true => Some(new),
            false => on.remove(key).map(|old| old.torn(sector as usize)),
        };
        on.extend(now.map(|now| (key.to_owned(), now)));
    }

    /// Who made the array (DDF).
    pub(crate) fn controller(&self) -> [u8; 24] {
        match self {
            Book::Intel { .. } => [0; 24],
            Book::Ddf { newest, .. } => controller_of(newest),
        }
    }

    /// A volume is not to be listed any more.
    pub(crate) fn strike(&mut self, volume: [u8; 24]) {
        if let Book::Ddf { deleted, .. } = self {
            deleted.push(volume);
        }
    }

    /// True when the format keeps how far a rebuild is.
    pub(crate) fn keeps_progress(&self) -> bool {
        matches!(self, Book::Intel { .. })
    }

    /// True when the format says how large disks are; otherwise, what of them may be used.
    pub(crate) fn counts_whole_disks(&self) -> bool {
        matches!(self, Book::Intel { .. })
    }

    /// What Linux keeps beside a volume against the write hole, if it does.
    pub(crate) fn guard(&self, volume: [u8; 24]) -> Option<&'static str> {
        match self {
            Book::Intel { base, .. } => base.guard_of(volume),
            Book::Ddf { .. } => None,
        }
    }

    /// The disk that a further member would be, and what is to be written to it.
    pub(crate) fn new_disk(&self, serial: &str, number: u32, media: u64, sector: u32) -> Disk {
        let mut guid = [b' '; 24];
        crate::probe::put(&mut guid, 0, b"ASHLAR  ");
        crate::probe::put(&mut guid, 8, format!("{number:08x}").as_bytes());
        let (bytes, text) = match self {
            Book::Intel { .. } => (media, serial_of(serial)),
            Book::Ddf { .. } => {
                let usable = ddf::usable_bytes(media);
                (usable - usable % u64::from(sector.max(1)), String::from_utf8_lossy(&guid).into())
            }
        };
        let intel = matches!(self, Book::Intel { .. });
        Disk {
            serial: text,
            reference: if intel { 0 } else { number },
            guid: if intel { [0; 24] } else { guid },
            state: DiskState::Spare,
            bytes,
            bad: Vec::new(),
        }
    }

    /// What the disks of `array` that are `here` shall say: the plans, by index. The generation
    /// counts up, beyond `above`.
    pub(crate) fn write(
        &mut self,
        array: &mut Array,
        here: &[Here],
        above: u32,
        sector: u32,
    ) -> Result<Vec<(usize, WritePlan)>, Fault> {
        match self {
            Book::Intel { base, on, next } => {
                let mut old = (**base).clone();
                old.generation = old.generation.max(above);
                let record = imsm::update(&old, array, sector)?;
                let mut all = Vec::with_capacity(here.len());
                for Here { index, sectors, .. } in here.iter().copied() {
                    let Some(disk) = array.disks.get(index) else { continue };
                    let spare = match disk.state {
                        DiskState::Spare => Some(imsm::spare(disk, sector)?),
                        _ => None,
                    };
                    let (own, over) = (spare.as_ref().unwrap_or(&record), on.get(&disk.serial));
                    all.push((index, imsm::plan_over(own, over, sectors, sector)?));
                    next.extend(Over::whole(own).map(|new| (disk.serial.clone(), new)));
                }
                array.generation = record.generation;
                **base = record.guarded_as(&old);
                Ok(all)
            }
            Book::Ddf { newest, own, deleted } => {
                let sequence = newest.header.sequence.max(above).wrapping_add(1);
                let change = Change { time: newest.header.time, deleted };
                array.generation = sequence;
                let (mut all, mut written) = (Vec::with_capacity(here.len()), Vec::new());
                for Here { index, sectors, moved } in here.iter().copied() {
                    let Some(disk) = array.disks.get(index) else { continue };
                    let key = format!("{:08x}", disk.reference);
                    let known = own.get(&key).cloned();
                    let anchor = known.is_none() || moved;
                    let base = match known {
                        Some(meta) => meta,
                        None => {
                            let place = ddf::Place {
                                sector_size: sector,
                                media_sectors: sectors,
                                time: newest.header.time,
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
                    let meta = ddf::update(&base, array, index, &change, sector)?;
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

/// Disks that are not here are what the record says, not missing.
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

/// The base of a disk's next record: what the newest says of the set, and what the disk's own says
/// of itself. Its configurations are the newest of all disks', so that the next goes on from their
/// sequence numbers: were one that takes a place to begin at one, the configuration of the disk
/// that had the place could be believed over its own.
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
