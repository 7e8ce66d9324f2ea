//! Mode pages 01h, 08h, 0Ah and 1Ch, MODE SENSE and MODE SELECT (SPC-4 6.11 to 6.14, 7.5; SBC-3
//! 6.5).
//!
//! Invariants
//!  M1  What MODE SENSE reports as current, changeable and default comes from the same builder.
//!  M2  MODE SELECT changes all or nothing: a new state is answered only when every page is right.
//!  M3  A bit outside the changeable mask must have its current value.

use super::cdb::PageControl;
use super::codes::asc;
use super::sense::Sense;
use crate::bytes::Reader;

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
}

/// The three sets of values.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ModeBlock {
    /// Current values.
    pub current: ModeState,
    /// Default values.
    pub default: ModeState,
    /// True for what MODE SELECT may change.
    pub changeable: ModeState,
    /// Number of logical blocks, for the block descriptor.
    pub blocks: u64,
    /// Bytes of a logical block.
    pub block_len: u32,
    /// The medium is write protected for this initiator, whatever SWP says.
    pub protected: bool,
    /// DPO and FUA are honoured.
    pub dpo_fua: bool,
}

/// Page codes, in the order in which page 3Fh lists them.
const PAGES: [u8; 4] = [0x01, 0x08, 0x0a, 0x1c];
const ALL_PAGES: u8 = 0x3f;
const ALL_SUBPAGES: u8 = 0xff;

/// One page. With `fixed`, the bits that never change are there too; the changeable mask leaves
/// them out.
fn page(code: u8, state: &ModeState, fixed: bool) -> Vec<u8> {
    let bit = |on: bool, bit: u8| if on { bit } else { 0 };
    let mut out = match code {
        // Caching: WCE.
        0x08 => {
            let mut out = vec![code, 18, bit(state.write_cache, 0x04)];
            out.resize(20, 0);
            out
        }
        // Control: D_SENSE and GLTSD; QAM 1 (simple tasks may be reordered); SWP; TAS.
        0x0a => vec![
            code,
            10,
            bit(state.descriptor_sense, 0x04) | bit(fixed, 0x02),
            bit(fixed, 0x10),
            bit(state.write_protect, 0x08),
            bit(state.task_aborted_status, 0x40),
        ],
        // Informational exceptions: DEXCPT, none are reported.
        0x1c => vec![code, 10, bit(fixed, 0x08)],
        // Read-write error recovery: nothing to tell.
        _ => vec![code, 10],
    };
    out.resize(out.len().max(12), 0);
    out
}

/// The bits of `state` that a page holds.
fn take_page(code: u8, bytes: &[u8], state: &mut ModeState) {
    let bit = |at: usize, bit: u8| bytes.get(at).is_some_and(|b| b & bit != 0);
    match code {
        0x08 => state.write_cache = bit(2, 0x04),
        0x0a => {
            state.descriptor_sense = bit(2, 0x04);
            state.write_protect = bit(4, 0x08);
            state.task_aborted_status = bit(5, 0x40);
        }
        _ => {}
    }
}

/// A MODE SENSE as [`super::Command::ModeSense`] has it; `mode` holds the values. The answer is not
/// truncated. Saved values are refused with SAVING PARAMETERS NOT SUPPORTED, unknown pages and
/// subpages with a pointer to their byte.
pub fn mode_sense(
    ten: bool,
    long_lba: bool,
    no_blocks: bool,
    control: PageControl,
    which: (u8, u8),
    mode: &ModeBlock,
) -> Result<Vec<u8>, Sense> {
    let (code, subpage) = which;
    let (state, fixed) = match control {
        PageControl::Current => (&mode.current, true),
        PageControl::Changeable => (&mode.changeable, false),
        PageControl::Default => (&mode.default, true),
        PageControl::Saved => return Err(Sense::new(asc::SAVING_UNSUPPORTED)),
    };
    if !(PAGES.contains(&code) || code == ALL_PAGES) {
        return Err(Sense::cdb_field(2, Some(5)));
    }
    if !matches!(subpage, 0 | ALL_SUBPAGES) {
        return Err(Sense::cdb_field(3, None));
    }
    let blocks = if no_blocks { Vec::new() } else { block_descriptor(ten && long_lba, mode) };
    let pages: Vec<u8> = PAGES
        .iter()
        .filter(|one| code == ALL_PAGES || code == **one)
        .flat_map(|one| page(*one, state, fixed))
        .collect();
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

/// What a MODE SELECT asks for.
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
    let cut = |_| Sense::new(asc::PARAMETER_LIST_LEN);
    read_header(ten, &mut reader, mode)?;
    while !reader.rest().is_empty() {
        let at = reader.at();
        let code = reader.u8("PAGE CODE").map_err(cut)?;
        let len = reader.u8("PAGE LENGTH").map_err(cut)?;
        // PS is reserved here and ignored; a subpage format page is not known.
        if code & 0x40 != 0 || !PAGES.contains(&(code & 0x3f)) {
            return Err(list_field(at, 0, Some(6)));
        }
        let code = code & 0x3f;
        let current = page(code, &state, true);
        let mask = page(code, &mode.changeable, false);
        if current.get(1) != Some(&len) {
            return Err(list_field(at, 1, None));
        }
        let body = reader.take(usize::from(len), "mode page").map_err(cut)?;
        let mut whole = vec![code, len];
        whole.extend_from_slice(body);
        let triples = whole.iter().zip(&current).zip(&mask).enumerate().skip(2);
        for (i, ((new, old), mask)) in triples {
            let wrong = (new ^ old) & !mask;
            if wrong != 0 {
                return Err(list_field(at, i, u8::try_from(wrong.ilog2()).ok()));
            }
        }
        take_page(code, &whole, &mut state);
    }
    Ok(ModeSelect { state, changed: state != mode.current })
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
