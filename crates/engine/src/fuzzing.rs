//! Entry points for fuzzing data read from a medium; `wire` has the entry points for peer data.

use crate::unit::protection::{Header, Layout};

/// Takes any bytes and must return.
pub type Target = fn(&[u8]);

/// Every target by the name of its corpus folder.
pub const TARGETS: &[(&str, Target)] = &[("target_protection", fuzz_protection)];

/// The header of protection information: eight bytes for the number of blocks, one for the size of
/// a block (512 shifted by it), the rest is the block.
pub fn fuzz_protection(data: &[u8]) {
    let Some((provider, rest)) = data.split_first_chunk::<8>() else { return };
    let Some((shift, block)) = rest.split_first() else { return };
    let (provider, unit) = (u64::from_be_bytes(*provider), 512 << (shift % 8));
    let Header::Format(layout, kind) = Header::decode(block, unit, provider) else {
        return;
    };
    assert_eq!(Header::read(&layout.encode(kind)), Some((layout, kind)));
    assert!(block.starts_with(&layout.record(kind)));
    within(&layout, provider);
}

/// Data, tuples, map and header follow each other and end with the provider.
fn within(layout: &Layout, provider: u64) {
    let (map, map_len) = layout.map();
    let (first, tuples, skip) = layout.tuples_of(0, layout.blocks);
    assert_eq!((first, skip), (layout.blocks * layout.unit, 0));
    assert_eq!(first + tuples, map);
    assert!(map + map_len <= layout.header_at());
    assert!(layout.total <= provider && layout.header_at() / layout.unit == layout.total - 1);
    assert!(layout.blocks.div_ceil(layout.region_blocks()) <= map_len * 8);
}
