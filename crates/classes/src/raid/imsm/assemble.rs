//! Assembly of one array from the records of its disks.

use super::array::serial_of;
use super::record::Record;
use crate::probe::Reason;
use crate::raid::Fault;
use crate::raid::model::{Array, DiskState, SubdiskState};

/// What several records add up to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Assembled {
    /// The array in force. Disks that were not given are missing; spares are the last.
    pub array: Array,
    /// The record in force, to be updated.
    pub record: Record,
    /// Index into [`Array::disks`] of each record given; `None` when the array does not know it.
    pub places: Vec<Option<usize>>,
    /// Which of the records given are older than the one in force: to be written anew.
    pub stale: Vec<usize>,
}

/// Put together the records of disks with the serial numbers given (as the disks report them). The
/// newest generation is in force. Give the records of one [`Record::set`] and the spares': those of
/// other sets have no place in the array. But the newest of all determines the set.
///
/// # Errors
/// No record but spares' own, two disks with one serial number, one generation with two contents,
/// or a record that is not understood.
pub fn assemble(found: &[(String, Record)], sector_size: u32) -> Result<Assembled, Fault> {
    let members = || found.iter().filter(|(_, record)| !record.is_spare());
    let Some((_, newest)) = members().max_by_key(|(_, record)| record.generation) else {
        return Err(Fault::new(Reason::Signature, "Intel array", "is on none of these disks"));
    };
    let serials: Vec<String> = found.iter().map(|(serial, _)| serial_of(serial)).collect();
    for (at, serial) in serials.iter().enumerate() {
        if serials.iter().skip(at + 1).any(|other| other == serial) {
            let what = format!("\"{serial}\" is that of two disks: one is a copy of the other");
            return Err(Fault::new(Reason::Integrity, "disk serial", what));
        }
    }
    let ours = |record: &Record| record.set() == newest.set();
    for (serial, record) in members().filter(|(_, record)| ours(record)) {
        if record.generation == newest.generation && record != newest {
            let what = format!("{} on disk \"{serial}\" has another record", record.generation);
            return Err(Fault::new(Reason::Integrity, "Intel generation", what));
        }
    }
    let mut array = newest.array(sector_size)?;
    let mut places = Vec::with_capacity(found.len());
    let mut stale = Vec::new();
    for (at, ((_, record), serial)) in found.iter().zip(&serials).enumerate() {
        let known = array.disks.iter().position(|disk| disk.serial == *serial);
        if record.is_spare() && known.is_none() {
            let mut spares = record.array(sector_size)?.disks;
            places.push(Some(array.disks.len()));
            array.disks.append(&mut spares);
            continue;
        }
        let known = known.filter(|_| ours(record) || record.is_spare());
        if known.is_some() && record.generation != newest.generation {
            stale.push(at);
        }
        places.push(known);
    }
    for (index, disk) in array.disks.iter_mut().enumerate() {
        if disk.state == DiskState::Active && !places.contains(&Some(index)) {
            disk.state = DiskState::Missing;
        }
    }
    for volume in &mut array.volumes {
        for member in &mut volume.members {
            let disk = array.disks.get(member.disk).map(|disk| disk.state);
            if disk == Some(DiskState::Missing) {
                member.state = SubdiskState::None;
            }
        }
    }
    Ok(Assembled { array, record: newest.clone(), places, stale })
}
