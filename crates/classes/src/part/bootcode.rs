//! Boot code: the scheme's, which the firmware or the table in front runs, and a partition's, which
//! the scheme's code loads.
//!
//! ```text
//!  GPT, MBR   sector 0: 0 446 code, of it 440 4 the disk's serial | 446 entries | 510 55 AA
//!  BSD        0 512 first stage | sector 1: the label | 1024 to 8192 second stage
//!  partition  from its first sector on
//! ```
//! Invariants
//!  O1  The scheme's code is part of the table as a value. It waits, is written and is forgotten
//!      with the other edits, and changes no byte of entries, serial, signature or label.
//!  O2  Code of a partition is written behind the table that has the partition: a power cut before
//!      that leaves the previous content there.
//!  O3  It never reaches beyond its partition, nor into one that is written by others.

use std::collections::BTreeSet;

use geom::{Error, GraphControl};

use super::error::{PartError, PartErrorKind as K};
use super::geom::PartGeom;
use super::request::Bootcode;
use super::table::{Scheme, SchemeData, Table};
use super::{bsd, gpt, mbr, verbs};
use crate::probe::array;
use crate::write_plan::WritePlan;
use crate::{guard, inspect};

const OP: &str = "bootcode";

/// Bytes of the code of a partition; gpart's limit. More is refused.
pub(super) const PARTCODE_BYTES_MAX: usize = 1 << 20;

/// Bytes of one write of it: every disk takes as many.
const PIECE: usize = 64 << 10;

pub(crate) fn bad(at: impl Into<String>) -> PartError {
    PartError::new(K::BadCode, OP, at)
}

/// Does it end its first 512 bytes as a boot sector does?
pub(crate) fn signed(code: &[u8]) -> Result<(), PartError> {
    match array::<2>(code, mbr::SIGNATURE_AT) == Some(mbr::SIGNATURE) {
        true => Ok(()),
        false => {
            Err(bad(format!("bootcode of {} bytes without a signature: 55 AA at 510", code.len())))
        }
    }
}

/// Code for a partition does not overwrite recognized content unless the provider is named: the
/// type of a partition gives its purpose, not its content.
pub(super) fn may_write(control: &mut GraphControl, request: &Bootcode) -> Result<(), Error> {
    let Bootcode { geom, partcode: Some(_), index: Some(index), yes_destroy, .. } = request else {
        return Ok(());
    };
    let id = verbs::find(control, geom)?;
    let name = |part: &mut PartGeom, _: &mut _| part.name_of(*index).map(str::to_owned);
    let Some(name) = verbs::with(&mut control.topology, id, name)? else { return Ok(()) };
    // One that is in use is refused by the edit.
    let Ok(mut report) = inspect::report(control, &name) else { return Ok(()) };
    // Existing boot code is replaced: this was requested.
    report.findings.retain(|finding| finding.kind != "boot");
    let by = guard::Requester { class: "", geom: &name, force: false };
    match guard::describe(&report, by) {
        None => Ok(()),
        Some(held) => guard::require_consent(&name, held, yes_destroy),
    }
}

/// Code of a partition that waits to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartCode {
    index: u32,
    /// First sector of the partition's data: with another one it is another partition.
    data: u64,
    bytes: Vec<u8>,
}

impl Table {
    /// With other boot code of the scheme's own. `take_serial`: the disk's serial number is taken
    /// from the code, too. `written` holds the indexes that are open for writing.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported`; `BadCode` when it is empty, too long, or without a signature;
    /// `Busy` and `Overlap` when a partition overlaps it (BSD).
    pub fn boot_code(
        &self,
        code: &[u8],
        take_serial: bool,
        written: &BTreeSet<u32>,
    ) -> Result<Table, PartError> {
        self.editable(OP)?;
        if code.is_empty() {
            return Err(bad("bootcode of 0 bytes"));
        }
        let mut table = self.clone();
        match &mut table.scheme_data {
            SchemeData::Gpt(body) => gpt::put_code(&self.media, body, code, take_serial)?,
            SchemeData::Mbr(body) => mbr::put_code(&mut body.sector, code, take_serial)?,
            SchemeData::Bsd(body) => {
                bsd::code_fits(self, code, written)?;
                bsd::put_code(body, code, self.media.sector_size);
            }
            SchemeData::Ebr(_) => {
                return Err(PartError::new(K::Unsupported, OP, "bootcode of an EBR"));
            }
        }
        Ok(table)
    }

    /// Code for the begin of a partition.
    ///
    /// # Errors
    /// `Corrupt`, `Unsupported` by a scheme that boots no partition so, `NoSuchIndex`. `BadCode`
    /// when it is empty or longer than 1 MiB, `TooLong` for this partition, `Busy`.
    pub fn partition_code(
        &self,
        index: u32,
        code: &[u8],
        written: &BTreeSet<u32>,
    ) -> Result<PartCode, PartError> {
        self.editable(OP)?;
        if matches!(self.scheme(), Scheme::Ebr | Scheme::Bsd) {
            let at = format!("partcode in a partition of {}", self.scheme().name());
            return Err(PartError::new(K::Unsupported, OP, at));
        }
        let missing = || PartError::new(K::NoSuchIndex, OP, format!("index {index}"));
        let entry = self.entry(index).ok_or_else(missing)?;
        if code.is_empty() || code.len() > PARTCODE_BYTES_MAX {
            let most = PARTCODE_BYTES_MAX;
            return Err(bad(format!("partcode of {} bytes, 1 to {most} are possible", code.len())));
        }
        let mut bytes = code.to_vec();
        bytes.resize(bytes.len().next_multiple_of((self.media.sector_size as usize).max(1)), 0);
        let code = PartCode { index, data: entry.data, bytes };
        code.plan(self, written)?;
        Ok(code)
    }
}

impl PartCode {
    pub fn index(&self) -> u32 {
        self.index
    }

    /// The writes that put it where `table`, which is already on the media, has its partition: none
    /// if that was deleted.
    ///
    /// # Errors
    /// `TooLong` when the partition has become too small, `Busy` when it is open for writing.
    pub fn plan(&self, table: &Table, written: &BTreeSet<u32>) -> Result<WritePlan, PartError> {
        let mut plan = WritePlan::default();
        let entry = table.entry(self.index).filter(|entry| entry.data == self.data);
        let Some(entry) = entry else { return Ok(plan) };
        let capacity = table.media.offset(entry.data_sectors());
        if u64::try_from(self.bytes.len()).is_ok_and(|len| len > capacity) {
            let (index, len) = (self.index, self.bytes.len());
            let at = format!("partcode of {len} bytes in index {index} of {capacity} bytes");
            return Err(PartError::new(K::TooLong, OP, at));
        }
        if written.contains(&self.index) {
            return Err(PartError::new(K::Busy, OP, format!("index {}", self.index)));
        }
        let mut at = table.media.offset(entry.data);
        for piece in self.bytes.chunks(PIECE) {
            plan.write(at, piece.to_vec());
            at = at.saturating_add(u64::try_from(piece.len()).unwrap_or(u64::MAX));
        }
        plan.flush();
        Ok(plan)
    }
}
