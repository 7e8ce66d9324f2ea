//! Partition tables as values.
//!
//! The pure half does no I/O. A table is read by [`step`] from sectors that the caller reads,
//! edited as a value ([`Table::add`] and the others answer a new table). It is written by carrying
//! out a [`WritePlan`] that no power cut can turn into no table (`write_plan.rs`, W1 to W5). The
//! class on top of it ([`PartClass`]: class.rs, geom.rs, verbs/, commit.rs, create.rs) reads and
//! writes the media and shows the partitions as providers.
//!
//! ```text
//!  sectors --step()--> Table --add/delete/modify/resize/recover--> Table
//!                        |                                           |
//!                        +--------------- plan(before, after) -------+--> WritePlan --> media
//! ```

mod attributes;
mod backup;
mod bootcode;
mod bsd;
mod class;
mod commit;
mod create;
mod ebr;
mod edit;
mod error;
mod geom;
mod gpt;
mod gpt_fit;
mod gpt_write;
mod mbr;
pub mod params;
pub mod request;
mod restore;
mod saved;
mod show;
mod space;
mod table;
mod types;
mod verbs;

pub use backup::{Backup, Saved, Source};
pub use bootcode::PartCode;
pub use class::PartClass;
pub(crate) use class::{describe, place};
pub use ebr::LOGICALS_MAX;
pub use error::{PartError, PartErrorKind};
pub(crate) use gpt::is_header;
pub(crate) use mbr::is_fat;
pub use restore::RestoreOptions;
pub use show::{Column, Row, human};
pub use space::{Alignment, Gap, gaps};
pub use table::{Damage, Entry, Health, Media, Scheme, Table};
pub use types::{ALIASES, Alias, Guid, Kind};

use crate::probe::{ProbeError, ProbeStop, Reason, Sectors, Step};
use crate::write_plan::WritePlan;
use table::SchemeData;

/// Tables within tables; deeper ones are not looked at.
pub const DEPTH_MAX: u32 = 4;

/// The place of the media among partition tables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TableContext {
    /// Scheme of the table that the media is a partition of; none for a whole disk.
    pub scheme: Option<Scheme>,
    /// Type of that partition.
    pub kind: Option<Kind>,
    /// Tables below this one; 0 for a whole disk.
    pub depth: u32,
    /// Refuse a table whose partitions overlap or leave the media (the default); otherwise it is
    /// damaged.
    pub check_integrity: bool,
}

impl Default for TableContext {
    fn default() -> Self {
        Self { scheme: None, kind: None, depth: 0, check_integrity: true }
    }
}

/// Look for a partition table. A GPT with its protective MBR is strongest; an MBR beats a GPT
/// without (it was written over it). A chain of logical partitions is looked for in an extended
/// partition only, and nothing else there.
pub fn step(sectors: &Sectors, place: &TableContext) -> Step<Table> {
    find(sectors, place).into()
}

fn find(sectors: &Sectors, place: &TableContext) -> Result<Table, ProbeStop> {
    if place.depth >= DEPTH_MAX {
        return Err(ProbeStop::no(Reason::Nesting, 0, "a table this deep"));
    }
    if ebr::fits(place.scheme, place.kind) {
        return accept(ebr::probe(sectors)?, place);
    }
    let gpt = match gpt::probe(sectors, place.check_integrity) {
        Ok((table, gpt::Claim::Protected)) => return Ok(table),
        Ok((table, gpt::Claim::Open)) => Ok(table),
        Err(ProbeStop::No(why)) => Err(why),
        Err(stop) => return Err(stop),
    };
    // As strong as a GPT, and in the same sector.
    let gpt = match bsd::probe(sectors).and_then(|table| accept(table, place)) {
        Ok(table) => return Ok(table),
        Err(ProbeStop::No(why)) if !matches!(why.reason, Reason::Signature | Reason::Media) => {
            gpt.map_err(|_| why)
        }
        Err(ProbeStop::No(_)) => gpt,
        Err(stop) => return Err(stop),
    };
    let mbr = mbr::probe(sectors, place.scheme).and_then(|table| accept(table, place));
    match (mbr, gpt) {
        (Ok(table), _) => Ok(table),
        (Err(ProbeStop::No(_)), Ok(table)) => Ok(table),
        (Err(ProbeStop::No(mbr)), Err(gpt)) => Err(ProbeStop::No(more_specific(mbr, gpt))),
        (Err(stop), _) => Err(stop),
    }
}

/// Of two reasons the more specific one: a missing signature is the least specific.
fn more_specific(mbr: ProbeError, gpt: ProbeError) -> ProbeError {
    match (mbr.reason, gpt.reason) {
        (_, Reason::Signature | Reason::Media) => mbr,
        _ => gpt,
    }
}

fn accept(mut table: Table, place: &TableContext) -> Result<Table, ProbeStop> {
    match table.check() {
        Err(why) if place.check_integrity => return Err(ProbeStop::No(why)),
        Err(_) => table.damage.push(Damage::Integrity),
        Ok(()) => {}
    }
    Ok(table)
}

/// The writes that turn `before` (the table read from the media, if any) into `after`. Several
/// edits of a chain of logical partitions are atomic one by one, not together: commit each with its
/// own plan, joined by [`WritePlan::then`].
///
/// # Errors
/// When `after` cannot be stored, which an edited table always can.
pub fn plan(before: Option<&Table>, after: &Table) -> Result<WritePlan, PartError> {
    match &after.scheme_data {
        SchemeData::Gpt(body) => gpt::plan(before, after, body),
        SchemeData::Mbr(body) => mbr::plan(after, body),
        SchemeData::Ebr(body) => ebr::plan(before, after, body),
        SchemeData::Bsd(body) => bsd::plan(after, body),
    }
}

/// The writes that remove `table` from the media. The contents of the partitions are kept.
pub fn destroy_plan(table: &Table) -> WritePlan {
    match &table.scheme_data {
        SchemeData::Gpt(body) => gpt::destroy(&table.media, body),
        SchemeData::Mbr(_) | SchemeData::Ebr(_) => mbr::destroy(&table.media),
        SchemeData::Bsd(_) => bsd::destroy(&table.media),
    }
}

/// The table as it is once `after`'s plan has been carried out: `before` of the next plan.
///
/// # Errors
/// As [`plan`].
pub fn committed(after: &Table) -> Result<Table, PartError> {
    let mut table = after.clone();
    table.damage.clear();
    match &mut table.scheme_data {
        SchemeData::Gpt(body) => {
            body.pmbr = gpt::sector_zero(after, body);
            body.source = gpt::Source::Primary;
            body.backup_at = after.media.sectors.saturating_sub(1);
            body.present = vec![1, body.backup_at];
        }
        SchemeData::Mbr(body) => body.sector = mbr::encode(after, &body.clone())?,
        SchemeData::Ebr(body) => body.records = ebr::encode(after, &body.clone())?,
        SchemeData::Bsd(body) => {
            body.sector = bsd::encode(after, &body.clone())?;
            body.code.clear();
        }
    }
    Ok(table)
}
