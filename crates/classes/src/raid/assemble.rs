//! Records found on disks, and the choice of the record in force.
//!
//! Disks are known by a *key*: Intel's serial number, DDF's reference number. A disk's own record
//! describes the other disks too. Which disks were used without which others decides which record
//! is in force ([`judge`]).

use super::ddf::{self, Config, Meta, disk_state};
use super::imsm::{Record, Torn, serial_of};
use super::model::{Array, DiskState, Member, SubdiskState, Volume};
use crate::members::verb_util;

/// Serial numbers of disks that were removed lose their first characters to a mark.
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
                format!("DDF-{:08x}", crate::crc::crc32(&[guid]))
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

/// The record found on one disk.
#[derive(Clone, Debug)]
pub enum Found {
    /// Intel's record, and the disk's own serial number.
    Intel {
        serial: String,
        record: Box<Record>,
    },
    /// A record of Intel's torn by a power cut: only the identities of disk and array are known.
    Torn {
        serial: String,
        left: Torn,
    },
    Ddf(Box<Meta>),
}

/// The entry in a record of a disk that has a place in a volume.
struct RecordedMember {
    key: String,
    /// It was with the others.
    present: bool,
    /// It had everything.
    complete: bool,
}

/// Whether a record's serial number is that of a disk.
pub(crate) fn is_serial(known: &str, own: &str) -> bool {
    known == own || known.len() == CUT_SERIAL && own.ends_with(known)
}

/// Whether two lists of a volume's disks by slot have a common disk in different slots. A disk in
/// only one of them has been added or removed, which happens to disks that part.
fn slots_differ<K: PartialEq>(one: &[Option<K>], two: &[Option<K>]) -> bool {
    let slots = |list: &[Option<K>], who: &K| -> Vec<usize> {
        let is = |slot: &usize| list.get(*slot).and_then(Option::as_ref) == Some(who);
        (0..list.len()).filter(is).collect()
    };
    one.iter().flatten().any(|who| {
        let slots_of_two = slots(two, who);
        !slots_of_two.is_empty() && slots_of_two != slots(one, who)
    })
}

/// A volume that two records of Intel's give two shapes.
fn intel_differs(one: &Record, two: &Record, sector: u32) -> Option<String> {
    let (one, two) = (one.array(sector).ok()?, two.array(sector).ok()?);
    let shape = |v: &Volume| {
        let parts: Vec<_> = v.members.iter().map(|m| (m.offset, m.bytes)).collect();
        (v.level, v.strip, v.bytes, parts)
    };
    let same = |a: &Volume, b: &Volume| a.id == b.id && a.name == b.name;
    let who = |array: &Array, v: &Volume| {
        let serial = |m: &Member| Some(array.disks.get(m.disk)?.serial.clone());
        v.members.iter().map(|m| serial(m).filter(|s| !s.is_empty())).collect::<Vec<_>>()
    };
    let seats = |a: &Volume, b: &Volume| slots_differ(&who(&one, a), &who(&two, b));
    let unlike = |a: &Volume, b: &Volume| shape(a) != shape(b) || seats(a, b);
    let differs = |v: &&Volume| two.volumes.iter().any(|other| same(v, other) && unlike(v, other));
    one.volumes.iter().find(differs).map(|v| v.name.clone())
}

/// A volume that two disks with DDF give two shapes.
fn ddf_differs(one: &Meta, two: &Meta) -> Option<String> {
    let shape = |c: &Config| {
        let place = (c.secondary.0, c.secondary.2, c.elements.len());
        (c.level, place, c.strip, c.volume)
    };
    let same = |a: &Config, b: &Config| a.guid == b.guid && a.sequence == b.sequence;
    let who = |meta: &Meta, c: &Config| {
        let known = |reference: u32| meta.disks.iter().any(|d| d.reference == reference);
        c.elements.iter().map(|(disk, _)| Some(*disk).filter(|d| known(*d))).collect::<Vec<_>>()
    };
    let seats = |a: &Config, b: &Config| slots_differ(&who(one, a), &who(two, b));
    let unlike = |a: &Config, b: &Config| shape(a) != shape(b) || seats(a, b);
    let differs = |c: &&Config| two.configs.iter().any(|other| same(c, other) && unlike(c, other));
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
    fn describes_array(&self) -> bool {
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

    /// When the record was written, seconds since 1970; 0 when the record has no time.
    pub(crate) fn written_s(&self) -> u64 {
        match self {
            Found::Intel { record, .. } => record.written_s,
            Found::Torn { .. } => 0,
            Found::Ddf(meta) => meta.written_s(),
        }
    }

    /// The age of the record, for an operator who chooses between records.
    pub(super) fn age(&self) -> String {
        let written = verb_util::last_written(self.written_s());
        format!("generation {}, {written}", self.generation())
    }

    /// Whether this record proves that its disk is an older copy of a member. A record is written
    /// only when all disks have the one before. So a crash leaves one behind by one, never by two.
    pub(crate) fn is_older_copy(&self, newest: u32) -> bool {
        self.describes_array() && self.generation().saturating_add(1) < newest
    }

    /// The size of this disk in the record, bytes; DDF does not record it.
    pub(crate) fn disk_bytes(&self, sector: u32) -> Option<u64> {
        let Found::Intel { record, .. } = self else { return None };
        let (array, key) = (record.array(sector).ok()?, self.key());
        array.disks.iter().find(|disk| is_serial(&disk.serial, &key)).map(|disk| disk.bytes)
    }

    pub(crate) fn key(&self) -> String {
        match self {
            Found::Intel { serial, .. } | Found::Torn { serial, .. } => serial_of(serial),
            Found::Ddf(meta) => format!("{:08x}", meta.data.reference),
        }
    }

    /// Disks in slots of this record.
    fn members(&self, sector: u32) -> Vec<RecordedMember> {
        match self {
            Found::Torn { .. } => Vec::new(),
            Found::Intel { record, .. } => {
                let Ok(array) = record.array(sector) else { return Vec::new() };
                let is_complete = |index: usize| {
                    let of = array.volumes.iter().filter(|v| v.level.redundant());
                    let mut slots = of.flat_map(|v| &v.members).filter(|m| m.disk == index);
                    slots.all(|m| m.state >= SubdiskState::Uninitialized)
                };
                let used = |index: &usize| {
                    array.volumes.iter().flat_map(|v| &v.members).any(|m| m.disk == *index)
                };
                let all = array.disks.iter().enumerate().filter(|(index, _)| used(index));
                all.map(|(i, disk)| {
                    let present = disk.state == DiskState::Active;
                    RecordedMember {
                        key: disk.serial.clone(),
                        present,
                        complete: present && is_complete(i),
                    }
                })
                .collect()
            }
            Found::Ddf(meta) => {
                let used = meta.disks.iter().filter(|d| d.kind & ddf::kind::PARTICIPATING != 0);
                used.map(|d| {
                    let present = d.state & (disk_state::FAILED | disk_state::MISSING) == 0;
                    let complete = present && d.state & disk_state::REBUILD == 0;
                    RecordedMember { key: format!("{:08x}", d.reference), present, complete }
                })
                .collect()
            }
        }
    }

    /// Whether this record marks a disk as incomplete.
    pub(crate) fn excludes(&self, key: &str, sector: u32) -> bool {
        self.denies(key, sector, |member| member.complete)
    }

    /// Whether this record was made without a disk: not even as one that was being filled.
    pub(crate) fn was_without(&self, key: &str, sector: u32) -> bool {
        self.denies(key, sector, |member| member.present)
    }

    fn denies(&self, key: &str, sector: u32, has: impl Fn(&RecordedMember) -> bool) -> bool {
        let all = self.members(sector);
        match all.iter().find(|member| is_serial(&member.key, key)) {
            Some(member) => !has(member),
            // It was replaced.
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
            "disks {} and {} describe volume {volume} differently in one generation ({}): one of \
             them was not written with the other. `ashlar raid dump` shows both: `clear` the wrong \
             one",
            self.key(),
            other.key(),
            self.generation()
        ))
    }

    /// Whether another's record is one of those that this array continued from, or that the
    /// operator chose against: its disk was dropped with it, or a later one, and not used since.
    fn has_dropped(&self, other: &Found) -> bool {
        match (self, other) {
            (Found::Ddf(meta), Found::Ddf(theirs)) => is_departed(&meta.departed(), theirs),
            (Found::Intel { record, .. }, _) => {
                record.has_outranked(&other.key(), other.generation())
            }
            _ => false,
        }
    }

    /// Whether this record has a place for a disk.
    pub(super) fn lists(&self, key: &str, sector: u32) -> bool {
        self.members(sector).iter().any(|member| is_serial(&member.key, key))
    }

    /// Keys of the disks that this record lists as present: to be waited for. One that was being
    /// filled may have been finished since, and may know that this one was left behind.
    pub(crate) fn wanted(&self, sector: u32) -> Vec<String> {
        let all = self.members(sector).into_iter();
        all.filter(|member| member.present).map(|member| member.key).collect()
    }

    /// True when every disk that is wanted is among `present`.
    pub(crate) fn is_complete(&self, present: &[String], sector: u32) -> bool {
        self.wanted(sector).iter().all(|key| present.iter().any(|own| is_serial(key, own)))
    }
}

/// Whether a disk with DDF has left, and its record is no newer than the last that it had then.
pub(super) fn is_departed(departed: &[(u32, u32)], theirs: &Meta) -> bool {
    let sequence = theirs.header.sequence;
    departed.iter().any(|(of, last)| *of == theirs.data.reference && sequence <= *last)
}

/// Choice among the records of several disks of one array.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct RecordChoice {
    /// Whose record is in force.
    pub(crate) winner: usize,
    /// Disks that lived on without the winner and all it lived on with, as these did without them.
    /// Each half may hold data that the other has not.
    pub(crate) split: Vec<usize>,
    /// Such disks that the winner's record knows: the operator chose against their half.
    pub(crate) outranked: Vec<usize>,
    /// Disks whose records are torn, and were newer than the winner's: they may have lived on
    /// without it.
    pub(crate) ahead: Vec<usize>,
}

impl RecordChoice {
    /// Disks of halves that are not the winner's.
    pub(crate) fn halves(&self) -> Vec<usize> {
        self.split.iter().chain(&self.outranked).copied().collect()
    }
}

/// Whose record is in force: of a disk that no other lived on without; of these the newest. A
/// record that leaves a disk out is believed over one that does not know of that, even if the
/// latter is newer by number. A crash amid updates makes numbers differ, not data. A newer one of a
/// disk that is being filled knows. With `kept` that disk's, regardless of the others.
pub(crate) fn choose_record(
    found: &[&Found],
    sector: u32,
    kept: Option<usize>,
) -> Option<RecordChoice> {
    let members: Vec<usize> = (0..found.len()).filter(|at| found[*at].describes_array()).collect();
    let keys: Vec<String> = found.iter().map(|f| f.key()).collect();
    let without = |a: usize, b: usize| found[a].excludes(&keys[b], sector);
    let disowned = |x: usize| {
        members.iter().any(|y| {
            let newer = found[*y].generation() > found[x].generation();
            *y != x && without(*y, x) && (newer || !without(x, *y) && !without(x, x))
        })
    };
    let newest = |x: &usize| (!disowned(*x), found[*x].generation(), std::cmp::Reverse(*x));
    let kept = kept.filter(|at| members.contains(at));
    let winner = kept.or_else(|| members.iter().copied().max_by_key(newest))?;
    let good: Vec<usize> =
        members.iter().copied().filter(|y| *y == winner || !without(winner, *y)).collect();
    // One that does not know the winner's disks need not have lived without them: they may have
    // arrived since. It has nothing of its own if one that it lived with continued without it. And
    // if the winner does not know it either, nothing will be done to it.
    let is_left = |x: usize| members.iter().any(|y| without(*y, x) && !without(x, *y));
    let knows = |a: usize, b: usize| found[a].lists(&keys[b], sector);
    let is_strange = |x: usize| !knows(winner, x) && !good.iter().any(|y| knows(x, *y));
    // One that was being filled by its own record has nothing that its source has not, which is
    // judged by itself when it arrives.
    let has_own = |x: usize| !without(x, x);
    let is_half = |x: &usize| {
        let apart = |y: &usize| found[*x].was_without(&keys[*y], sector);
        let apart = *x != winner && without(winner, *x) && good.iter().all(apart);
        apart && has_own(*x) && !is_left(*x) && !is_strange(*x)
    };
    let is_past = |x: &usize| found[winner].has_dropped(found[*x]);
    let halves = members.iter().copied().filter(is_half);
    let (past, split): (Vec<usize>, Vec<usize>) = halves.partition(is_past);
    // One that was only dropped is no evidence that a disk of the winner's is missing.
    let parted = |x: &usize| good.iter().any(|y| knows(*x, *y));
    let outranked = past.into_iter().filter(parted).collect();
    // An array that continues without a disk increases the generation and records the loss. A torn
    // record that is no newer was therefore with the winner, or the winner records that it was not.
    let newest = found[winner].generation();
    let is_ahead = |x: &usize| found[*x].is_torn() && found[*x].generation() > newest;
    let ahead = (0..found.len()).filter(is_ahead).collect();
    Some(RecordChoice { winner, split, outranked, ahead })
}
