//! The `relocate` verb: moves the record of a disk that grew unnoticed to its new end.
//!
//! Intel's record is at the end of the disk; of DDF the anchor is, and it gives the place of the
//! rest. They are moved if a disk grows while its array runs. If it grew at another time, they stay
//! behind. The disk is then recognized only by a daemon that has seen its old end ([`left`]).
//!
//! ```text
//!   old place: a record for a disk of the old size --> the same, and the new size, durable at the
//!        new end --> the old anchor cleared --> all classes taste again --> the array takes the
//!        disk in, and its other records contain the new size too
//! ```
//!
//! A power cut before the new anchor is durable leaves the old one, and the verb is repeated. A
//! record is therefore not moved by less than its own length, where the new one overlaps the old.

use bio::Errno;
use geom::{Edge, Error, FoundLabel, GraphControl, TasteOutcome, Taster};

use super::assemble::{Found, is_serial};
use super::class::read_record;
use super::geom::NAME;
use super::verbs::probe_as;
use super::{ddf, imsm};
use crate::inspect;
use crate::members::provider_access;
use crate::members::relocate::{SWEEP, carry_if_unchanged, occupied, relocate_command};
use crate::write_plan::WritePlan;

/// Bytes of one read of a sweep.
const CHUNK: u64 = 64 << 10;

/// A disk as it is now.
pub(super) struct Disk<'a> {
    pub(super) name: &'a str,
    pub(super) serial: String,
    pub(super) sector: u32,
    pub(super) media: u64,
}

impl Disk<'_> {
    fn unit(&self) -> u64 {
        u64::from(self.sector.max(1))
    }

    /// A record for a disk of so many bytes, which contains the size if its format does.
    pub(super) fn found(
        &self,
        control: &mut GraphControl,
        edge: Edge,
        was: u64,
    ) -> Result<Found, Error> {
        let found = probe_as(control, self.name, edge, (self.sector, was), &self.serial)?;
        match found.disk_bytes(self.sector) {
            Some(bytes) if bytes != was => {
                let what = format!("the record there was written for a disk of {bytes} bytes");
                Err(Error::inval(what))
            }
            None if matches!(found, Found::Intel { .. }) => {
                Err(Error::inval("the record there is not this disk's own"))
            }
            _ => Ok(found),
        }
    }

    /// The new end must be empty, or its content may be lost.
    pub(super) fn check_end(
        &self,
        control: &mut GraphControl,
        edge: Edge,
        force: bool,
    ) -> Result<(), Error> {
        let name = self.name;
        if probe_as(control, name, edge, (self.sector, self.media), &self.serial).is_ok() {
            let what = format!("{name} has its record at its end ({} bytes)", self.media);
            return Err(Error::new(Errno::Exist, what));
        }
        let two = 2 * self.unit();
        let at = self.media.saturating_sub(two);
        let last = provider_access::read(control, name, edge, at, two as usize)?;
        if force || last.iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        let what = format!(
            "the last sectors of {name} hold something (`ashlar inspect {name}` shows it); give \
             --force if it may be lost"
        );
        Err(Error::new(Errno::Exist, what))
    }

    /// The record that was left behind, and the size that the disk had.
    pub(super) fn search(
        &self,
        control: &mut GraphControl,
        edge: Edge,
    ) -> Result<(Found, u64), Error> {
        let unit = self.unit();
        let start = self.media.saturating_sub(SWEEP + 2 * unit);
        let mut to = self.media - self.media % unit;
        while to > start {
            let from = to.saturating_sub(CHUNK.max(unit)).max(start - start % unit);
            let bytes =
                provider_access::read(control, self.name, edge, from, (to - from) as usize)?;
            for (number, bytes) in bytes.chunks(self.sector as usize).enumerate().rev() {
                let behind = match () {
                    () if bytes.starts_with(imsm::SIGNATURE) => 2,
                    () if ddf::is_signature(bytes) => 1,
                    () => continue,
                };
                let was = from + (number as u64 + behind) * unit;
                if let Ok(found) = self.found(control, edge, was)
                    && was < self.media
                {
                    return Ok((found, was));
                }
            }
            to = from;
        }
        let what = format!(
            "{}: no old record of an array in the last MiB; give the former size with --was",
            self.name
        );
        Err(Error::new(Errno::NoEnt, what))
    }

    /// The writes to the new end, and then those that clear the old one.
    pub(super) fn plans(&self, found: &Found, was: u64) -> Result<(WritePlan, WritePlan), Error> {
        let (now, before) = (self.media / self.unit(), was / self.unit());
        let refused = |fault: super::Fault| Error::inval(fault.to_string());
        let mut clear = WritePlan::default();
        let plan = match found {
            Found::Intel { record, .. } => {
                let mut record = (**record).clone();
                let array = record.array(self.sector).map_err(refused)?;
                let own = |disk: &super::Disk| is_serial(&disk.serial, &found.key());
                let own = array.disks.iter().position(own);
                if let Some(disk) = own.and_then(|own| record.disks.get_mut(own)) {
                    disk.sectors = now;
                }
                let long = record.encode().map_err(refused)?.len() as u64;
                if self.media - was < long {
                    let what = format!(
                        "{} grew by {} bytes, and its record has {long}: the new one would overlap \
                         the old, and a power cut could lose both. `clear` it and `insert` it, or \
                         let it grow further first",
                        self.name,
                        self.media - was
                    );
                    return Err(Error::inval(what));
                }
                clear = imsm::erase(before, self.sector);
                imsm::plan(&record, now, self.sector).map_err(refused)?
            }
            Found::Ddf(meta) => {
                clear.write((before - 1) * self.unit(), vec![0; self.sector as usize]);
                clear.flush();
                ddf::plan(meta, now, self.sector, true).map_err(refused)?
            }
            Found::Torn { .. } => return Err(Error::inval("its record is torn")),
        };
        Ok((plan, clear))
    }
}

/// The remains of a record at the old end of a disk ([`Taster::ended`]), and how it is moved to the
/// new end. `None` if there are none.
pub(super) async fn taste_old_end(taster: &Taster) -> Option<TasteOutcome<Found>> {
    let (sector, media) = (taster.sector_bytes, taster.media_bytes);
    for was in taster.former_sizes.iter().copied() {
        let Ok(found) = read_record(taster, was).await else { continue };
        let serial = match &found {
            Found::Intel { serial, .. } if found.disk_bytes(sector) == Some(was) => serial.clone(),
            Found::Ddf(_) => String::new(),
            Found::Intel { .. } | Found::Torn { .. } => continue,
        };
        let words = format!("its record is at its former end ({was} bytes)");
        let disk = Disk { name: &taster.name, serial, sector, media };
        let (plan, _) = match disk.plans(&found, was) {
            Ok(plans) => plans,
            Err(e) => return Some(TasteOutcome::No(format!("{words}: {}", e.message))),
        };
        // Intel's record ends before the last sector.
        let two = 2 * disk.unit();
        let read = async |end: u64| {
            let at = (end - end % disk.unit()).checked_sub(two)?;
            Some((at, taster.read(at, two as usize).await.ok()?))
        };
        let (last, label) = (read(media).await?, read(was).await?);
        // Anchors of DDF are alike on all disks of an array.
        let key = [label.1.as_slice(), found.key().as_bytes()].concat();
        let by_hand = relocate_command(NAME, &taster.name, was);
        // Two equal records are the result of a copy by hand.
        if last.1 == label.1 {
            continue;
        }
        let known = |sector: &[u8]| inspect::leftover(sector, NAME, media);
        if let Some(what) = last.1.chunks(disk.unit() as usize).find_map(known) {
            let carry = Err(occupied(what, &by_hand));
            return Some(TasteOutcome::FormerEnd(
                words,
                FoundLabel {
                    former_bytes: was,
                    identity: key,
                    write: carry,
                    manual_command: by_hand,
                },
            ));
        }
        let carry = Ok(carry_if_unchanged(plan, vec![last, label]));
        return Some(TasteOutcome::FormerEnd(
            words,
            FoundLabel { former_bytes: was, identity: key, write: carry, manual_command: by_hand },
        ));
    }
    None
}
