//! State that third-party copies keep at a unit, and their limits. The copy manager (`copy/mod.rs`)
//! moves the data.
//!
//! | file | holds |
//! | --- | --- |
//! | `operations` | copies that run, and results of those that ended |
//! | `tokens` | ROD tokens that live, and the units that watch over their data |

pub(crate) mod operations;
pub(crate) mod tokens;

pub(crate) use operations::Operations;
pub(crate) use tokens::{Tokens, Watch};

use wire::scsi::CopyLimits;

/// Bytes read and written at a time.
pub(crate) const CHUNK_BYTES: u32 = 512 * 1024;

/// Limits that the copy manager enforces and reports.
pub(crate) const LIMITS: CopyLimits = CopyLimits {
    cscds: 32,
    segments: 256,
    descriptors_len: 8192,
    inline_len: 0,
    held_len: 64 * 1024,
    concurrent: 64,
    identified: 16,
    ranges: 64,
    timeout_max_s: 600,
    timeout_default_s: 60,
    token_bytes: 1 << 40,
    chunk_bytes: CHUNK_BYTES,
};
