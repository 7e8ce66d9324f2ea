//! The pages and their bits (SPC-4 7.5, SBC-3 6.5).

use super::thresholds::{DESCRIPTOR, FIRST};
use super::{ModeBlock, ModeState, THRESHOLDS, Threshold};

/// Page and subpage, in the order in which page 3Fh lists them.
pub(super) const PAGES: [(u8, u8); 11] = [
    (0x01, 0),
    (0x02, 0),
    (0x03, 0),
    (0x04, 0),
    (0x07, 0),
    (0x08, 0),
    (0x0a, 0),
    (0x0a, 1),
    (0x1a, 0),
    (0x1c, 0),
    THRESHOLD_PAGE,
];

/// Logical Block Provisioning: only of units that have thresholds.
pub(super) const THRESHOLD_PAGE: (u8, u8) = (0x1c, 2);

/// Sectors of a track and tracks of a cylinder, for initiators that still reckon in cylinders.
const TRACK_BLOCKS: u16 = 256;
/// See [`TRACK_BLOCKS`].
const HEADS: u8 = 128;

/// Pages with something to save.
pub(super) fn is_savable(page: (u8, u8), mode: &ModeBlock) -> bool {
    let of_thresholds = page == (0x01, 0) || page == THRESHOLD_PAGE;
    matches!(page, (0x08 | 0x0a, 0)) || mode.has_thresholds && of_thresholds
}

/// Bytes of the header: subpages have a long one.
pub(super) fn head_len(page: (u8, u8)) -> usize {
    if page.1 == 0 { 2 } else { 4 }
}

/// One page with its header, PS not set. With `fixed`, the bits that never change are there too;
/// the changeable mask leaves them out.
pub(super) fn page(which: (u8, u8), state: &ModeState, mode: &ModeBlock, fixed: bool) -> Vec<u8> {
    let mut out = match which {
        (code, 0) => vec![code, body_len(which)],
        (code, subpage) => vec![code | 0x40, subpage, 0, body_len(which)],
    };
    let len = out.len() + usize::from(body_len(which));
    match which {
        // Error recovery: LBPERE.
        (0x01, 0) => out.extend([0, 0, 0, 0, 0, bit(state.threshold_errors, 0x80)]),
        // Caching: WCE.
        (0x08, 0) => out.push(bit(state.write_cache, 0x04)),
        (0x0a, 0) => out.extend(control(state, mode, fixed)),
        // Control extension: IALUAE; MAXIMUM SENSE DATA LENGTH.
        (0x0a, 1) if fixed => {
            out.extend([bit(mode.implicit_alua, 0x01), 0, super::SENSE_LEN_MAX as u8]);
        }
        // Format device: one track, and the sector.
        (0x03, 0) if fixed => {
            out.extend([0; 8]);
            out.extend(TRACK_BLOCKS.to_be_bytes());
            out.extend(u16::try_from(mode.block_len).unwrap_or(0).to_be_bytes());
            out.extend([0, 1, 0, 0, 0, 0, 0x40]);
        }
        // Rigid disk geometry: cylinders, heads, rotation.
        (0x04, 0) if fixed => {
            let cylinder = u64::from(TRACK_BLOCKS) * u64::from(HEADS);
            let cylinders = u32::try_from(mode.blocks.div_ceil(cylinder)).unwrap_or(u32::MAX);
            let [_, a, b, c] = cylinders.min(0x00ff_ffff).to_be_bytes();
            out.extend([a, b, c, HEADS]);
            out.resize(20, 0);
            out.extend(mode.rotation.to_be_bytes());
        }
        // Informational exceptions: DEXCPT, none are reported.
        (0x1c, 0) => out.push(bit(fixed, 0x08)),
        // Provisioning: SITUA; the descriptors.
        THRESHOLD_PAGE => {
            out.push(bit(state.single_attention, 0x01));
            out.resize(FIRST, 0);
            out.extend(state.thresholds.iter().flat_map(|one| one.encode(fixed)));
        }
        // Verify error recovery, disconnect-reconnect, power conditions: all zeroes.
        _ => {}
    }
    out.resize(len, 0);
    out
}

fn body_len(which: (u8, u8)) -> u8 {
    match which {
        (0x02, _) => 14,
        (0x03 | 0x04, _) => 22,
        (0x08, _) => 18,
        (0x0a, 1) => 28,
        (0x1a, _) => 38,
        THRESHOLD_PAGE => (FIRST - 4 + THRESHOLDS * DESCRIPTOR) as u8,
        _ => 10,
    }
}

fn bit(on: bool, bit: u8) -> u8 {
    if on { bit } else { 0 }
}

/// Bytes 2 to 5 of the control page. GLTSD and ATO never change.
fn control(state: &ModeState, mode: &ModeBlock, fixed: bool) -> [u8; 4] {
    [
        bit(state.task_sets, 0x20)
            | bit(state.tmf_only, 0x10)
            | bit(state.unchecked_reads, 0x08)
            | bit(state.descriptor_sense, 0x04)
            | bit(fixed, 0x02),
        bit(state.reordering, 0x10) | (state.error_aborts & 3) << 1,
        bit(state.write_protect, 0x08),
        bit(fixed && mode.application_tags, 0x80) | bit(state.task_aborted_status, 0x40),
    ]
}

/// Takes the bits of `state` that a page holds out of its bytes. An error is the byte and bit of
/// a value that is not served.
pub(super) fn take_page(
    which: (u8, u8),
    bytes: &[u8],
    state: &mut ModeState,
) -> Result<(), (usize, u8)> {
    let bit = |at: usize, bit: u8| bytes.get(at).is_some_and(|b| b & bit != 0);
    match which {
        (0x01, 0) => state.threshold_errors = bit(7, 0x80),
        THRESHOLD_PAGE => {
            state.single_attention = bit(4, 0x01);
            let rest = bytes.get(FIRST..).unwrap_or_default();
            for (i, bytes) in rest.chunks_exact(DESCRIPTOR).enumerate() {
                let one = Threshold::decode(bytes)
                    .map_err(|(at, bit)| (FIRST + i * DESCRIPTOR + at, bit))?;
                if let Some(place) = state.thresholds.get_mut(i) {
                    *place = one;
                }
            }
        }
        (0x08, 0) => state.write_cache = bit(2, 0x04),
        (0x0a, 0) => {
            state.task_sets = bit(2, 0x20);
            state.tmf_only = bit(2, 0x10);
            state.unchecked_reads = bit(2, 0x08);
            state.descriptor_sense = bit(2, 0x04);
            state.reordering = bit(3, 0x10);
            state.error_aborts = match (bit(3, 0x04), bit(3, 0x02)) {
                (false, false) => 0,
                (false, true) => 1,
                (true, true) => 3,
                (true, false) => return Err((3, 2)),
            };
            state.write_protect = bit(4, 0x08);
            state.task_aborted_status = bit(5, 0x40);
        }
        _ => {}
    }
    Ok(())
}
