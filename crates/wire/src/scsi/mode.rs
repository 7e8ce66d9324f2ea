//! Mode pages 01h 02h 03h 04h 07h 08h 0Ah 0Ah/01h 1Ah 1Ch 1Ch/02h, MODE SENSE and MODE SELECT
//! (SPC-4 6.11 to 6.14, 7.5; SBC-3 6.5).
//!
//! Invariants
//!  M1  All values that MODE SENSE reports (current, changeable, default, saved) are from the same
//!      builder (`pages`).
//!  M2  MODE SELECT changes all or nothing: a new state is returned only when every page is valid.
//!  M3  A bit outside the changeable mask must have its current value.

mod fields;
mod pages;
mod thresholds;

use super::cdb::PageControl;
use super::codes::asc;
use super::sense::{SENSE_LEN_MAX, Sense};
use crate::bytes::Reader;
pub use fields::{ModeField, ModePage, mode_fields, mode_select_list, parse_mode_pages};
use pages::{PAGES, THRESHOLD_PAGE, head_len, is_savable, page, take_page};
pub use thresholds::{THRESHOLDS, Threshold, ThresholdKind};

/// The bits of the mode pages that mean something here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeState {
    /// WCE, caching page: writes may be acknowledged from the cache.
    pub write_cache: bool,
    /// D_SENSE, control page: sense data in descriptor format.
    pub descriptor_sense: bool,
    /// SWP, control page: software write protect.
    pub write_protect: bool,
    /// TAS, control page: aborted tasks of other initiators end with TASK ABORTED.
    pub task_aborted_status: bool,
    /// TST 001b, control page: every nexus has a task set of its own.
    pub task_sets: bool,
    /// QERR, control page: 0, 1 or 3; in a changeable mask 3.
    pub error_aborts: u8,
    /// QUEUE ALGORITHM MODIFIER 1h, control page: SIMPLE commands may be reordered freely.
    pub reordering: bool,
    /// TMF_ONLY, control page: the ACA attribute is refused.
    pub tmf_only: bool,
    /// DPICZ, control page: RDPROTECT zero checks no protection information.
    pub unchecked_reads: bool,
    /// LBPERE, error recovery page: threshold crossings are reported to initiators.
    pub threshold_errors: bool,
    /// SITUA, provisioning page: only one of them is.
    pub single_attention: bool,
    /// Descriptors of the provisioning page.
    pub thresholds: [Threshold; THRESHOLDS],
}

impl ModeState {
    /// Every bit, as a changeable mask.
    pub const ALL: ModeState = ModeState {
        write_cache: true,
        descriptor_sense: true,
        write_protect: true,
        task_aborted_status: true,
        task_sets: true,
        error_aborts: 3,
        reordering: true,
        tmf_only: true,
        unchecked_reads: true,
        threshold_errors: true,
        single_attention: true,
        thresholds: [Threshold::ALL; THRESHOLDS],
    };
}

/// The four sets of values, and other facts that pages report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeBlock {
    pub current: ModeState,
    pub default: ModeState,
    /// Saved values; they hold after a reset.
    pub saved: ModeState,
    /// True for values that MODE SELECT may change.
    pub changeable: ModeState,
    /// Values can be saved (PS, SP).
    pub savable: bool,
    /// Number of logical blocks, for the block descriptor.
    pub blocks: u64,
    pub block_len: u32,
    /// The medium is write protected for this initiator, regardless of SWP.
    pub protected: bool,
    /// DPO and FUA are honoured.
    pub dpo_fua: bool,
    /// Revolutions a minute; 0: not reported, 1: does not rotate.
    pub rotation: u16,
    /// IALUAE: access states may change by themselves.
    pub implicit_alua: bool,
    /// ATO: application tags belong to the initiators.
    pub application_tags: bool,
    /// There are thresholds: page 1Ch/02h is served.
    pub has_thresholds: bool,
}

impl ModeBlock {
    fn pages(&self) -> impl Iterator<Item = (u8, u8)> + Clone {
        let thresholds = self.has_thresholds;
        PAGES.into_iter().filter(move |one| thresholds || *one != THRESHOLD_PAGE)
    }
}

const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

fn select_pages(
    (code, subpage): (u8, u8),
    mode: &ModeBlock,
) -> Result<impl Iterator<Item = (u8, u8)>, Sense> {
    let named = move |(one, _): &(u8, u8)| code == ALL_PAGES || code == *one;
    let part = move |(_, sub): &(u8, u8)| subpage == ALL_SUBPAGES || subpage == *sub;
    if !mode.pages().any(|one| named(&one)) {
        return Err(Sense::cdb_field(2, Some(5)));
    }
    let reserved = code == ALL_PAGES && !matches!(subpage, 0 | ALL_SUBPAGES);
    if reserved || !mode.pages().filter(named).any(|one| part(&one)) {
        return Err(Sense::cdb_field(3, None));
    }
    Ok(mode.pages().filter(move |one| named(one) && part(one)))
}

/// A MODE SENSE as [`super::Command::ModeSense`] has it; `mode` holds the values. The answer is not
/// truncated. Saved values that there cannot be are refused with SAVING PARAMETERS NOT SUPPORTED,
/// unknown pages and subpages with a pointer to their byte.
pub fn mode_sense(
    ten: bool,
    long_lba: bool,
    no_blocks: bool,
    control: PageControl,
    which: (u8, u8),
    mode: &ModeBlock,
) -> Result<Vec<u8>, Sense> {
    let wanted = select_pages(which, mode)?;
    let (state, fixed) = match control {
        PageControl::Current => (&mode.current, true),
        PageControl::Changeable => (&mode.changeable, false),
        PageControl::Default => (&mode.default, true),
        PageControl::Saved if mode.savable => (&mode.saved, true),
        PageControl::Saved => return Err(Sense::new(asc::SAVING_UNSUPPORTED)),
    };
    let blocks = if no_blocks { Vec::new() } else { block_descriptor(ten && long_lba, mode) };
    let mut pages = Vec::new();
    for one in wanted {
        let start = pages.len();
        pages.extend(page(one, state, mode, fixed));
        if mode.savable
            && is_savable(one, mode)
            && let Some(first) = pages.get_mut(start)
        {
            *first |= 0x80;
        }
    }
    let protect = if mode.protected || mode.current.write_protect { 0x80 } else { 0 };
    let device = protect | if mode.dpo_fua { 0x10 } else { 0 };
    let descriptor_len = u8::try_from(blocks.len()).unwrap_or(0);
    let rest = blocks.len() + pages.len();
    let mut out = if ten {
        let [high, low] = u16::try_from(rest + 6).unwrap_or(u16::MAX).to_be_bytes();
        let long = u8::from(descriptor_len == 16);
        vec![high, low, 0, device, long, 0, 0, descriptor_len]
    } else {
        let len = u8::try_from(rest + 3).unwrap_or(u8::MAX);
        vec![len, 0, device, descriptor_len]
    };
    out.extend(blocks);
    out.extend(pages);
    Ok(out)
}

fn block_descriptor(long: bool, mode: &ModeBlock) -> Vec<u8> {
    if long {
        let mut out = mode.blocks.to_be_bytes().to_vec();
        out.extend([0; 4]);
        out.extend(mode.block_len.to_be_bytes());
        return out;
    }
    let blocks = u32::try_from(mode.blocks).unwrap_or(u32::MAX);
    let mut out = blocks.to_be_bytes().to_vec();
    // A 24-bit length behind one reserved byte.
    out.extend((mode.block_len & 0x00ff_ffff).to_be_bytes());
    out
}

/// The changes that a MODE SELECT requests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeSelect {
    /// The values that would hold.
    pub state: ModeState,
    /// Whether they differ from the current ones: other initiators get a unit attention.
    pub changed: bool,
}

/// Reads a MODE SELECT parameter list against the current values. An empty list changes nothing.
/// Errors: PARAMETER LIST LENGTH when it is cut, INVALID FIELD IN PARAMETER LIST with a pointer.
pub fn parse_mode_select(ten: bool, data: &[u8], mode: &ModeBlock) -> Result<ModeSelect, Sense> {
    let mut state = mode.current;
    if data.is_empty() {
        return Ok(ModeSelect { state, changed: false });
    }
    let mut reader = Reader::new(data);
    read_header(ten, &mut reader, mode)?;
    while !reader.rest().is_empty() {
        read_page(&mut reader, mode, &mut state)?;
    }
    Ok(ModeSelect { state, changed: state != mode.current })
}

fn read_page(
    reader: &mut Reader<'_>,
    mode: &ModeBlock,
    state: &mut ModeState,
) -> Result<(), Sense> {
    let cut = |_| Sense::new(asc::PARAMETER_LIST_LEN);
    let (at, start) = (reader.at(), reader.rest());
    let first = reader.u8("PAGE CODE").map_err(cut)?;
    // PS is reserved here and ignored.
    let which = match first & 0x40 != 0 {
        true => (first & 0x3f, reader.u8("SUBPAGE CODE").map_err(cut)?),
        false => (first & 0x3f, 0),
    };
    let known = mode.pages().any(|one| one == which) && (first & 0x40 != 0) == (which.1 != 0);
    if !known {
        let code = mode.pages().any(|one| one.0 == which.0) && first & 0x40 != 0;
        return Err(if code { list_field(at, 1, None) } else { list_field(at, 0, Some(6)) });
    }
    let current = page(which, state, mode, true);
    let mask = page(which, &mode.changeable, mode, false);
    let head = head_len(which);
    let len_len = head - if which.1 == 0 { 1 } else { 2 };
    let given = reader.take(len_len, "PAGE LENGTH").map_err(cut)?;
    if current.get(head - len_len..head) != Some(given) {
        return Err(list_field(at, head - len_len, None));
    }
    reader.take(current.len() - head, "mode page").map_err(cut)?;
    let whole = start.get(..current.len()).ok_or(Sense::new(asc::PARAMETER_LIST_LEN))?;
    let triples = whole.iter().zip(&current).zip(&mask).enumerate().skip(head);
    for (i, ((new, old), mask)) in triples {
        let wrong = (new ^ old) & !mask;
        if wrong != 0 {
            return Err(list_field(at, i, u8::try_from(wrong.ilog2()).ok()));
        }
    }
    take_page(which, whole, state).map_err(|(i, bit)| list_field(at, i, Some(bit)))
}

fn list_field(page_at: u32, offset: usize, bit: Option<u8>) -> Sense {
    let at = u16::try_from(page_at).ok().and_then(|at| at.checked_add(u16::try_from(offset).ok()?));
    Sense::list_field(at.unwrap_or(u16::MAX), bit)
}

/// Header and block descriptor: the medium type must be 0, and blocks cannot be changed.
fn read_header(ten: bool, reader: &mut Reader<'_>, mode: &ModeBlock) -> Result<(), Sense> {
    let cut = |_| Sense::new(asc::PARAMETER_LIST_LEN);
    reader.take(if ten { 2 } else { 1 }, "MODE DATA LENGTH").map_err(cut)?;
    let at = reader.at();
    if reader.u8("MEDIUM TYPE").map_err(cut)? != 0 {
        return Err(list_field(at, 0, None));
    }
    reader.take(1, "DEVICE-SPECIFIC PARAMETER").map_err(cut)?;
    let (long, len_at, len) = if ten {
        let long = reader.u8("LONGLBA").map_err(cut)? & 1 != 0;
        reader.take(1, "reserved").map_err(cut)?;
        let at = reader.at();
        (long, at, usize::from(reader.u16("BLOCK DESCRIPTOR LENGTH").map_err(cut)?))
    } else {
        let at = reader.at();
        (false, at, usize::from(reader.u8("BLOCK DESCRIPTOR LENGTH").map_err(cut)?))
    };
    let one = if long { 16 } else { 8 };
    if len == 0 {
        return Ok(());
    }
    if len != one {
        return Err(list_field(len_at, 0, None));
    }
    let at = reader.at();
    let given = reader.take(one, "block descriptor").map_err(cut)?;
    let ours = block_descriptor(long, mode);
    let count = one / 2;
    let (given_count, given_len) = given.split_at_checked(count).unwrap_or((given, &[]));
    let (our_count, our_len) = ours.split_at_checked(count).unwrap_or((&ours, &[]));
    // A count of 0 or all ones leaves the number of blocks as it is.
    let keeps =
        given_count == our_count || [0, 0xff].iter().any(|v| given_count.iter().all(|b| b == v));
    if !keeps {
        return Err(list_field(at, 0, None));
    }
    if given_len != our_len {
        return Err(list_field(at, count, None));
    }
    Ok(())
}

#[cfg(test)]
#[path = "mode_tests.rs"]
mod tests;
