//! Times of DDF: seconds since 1980, in the header and in each configuration.
//!
//! The header's time is that of its last write here. Linux leaves it at the time when the set was
//! made, and writes the time of a change into the configurations. The latest of all counts.

use super::meta::Meta;

/// The beginning of 1980, seconds since 1970.
const EPOCH_S: u64 = 315_532_800;

/// A time of seconds since 1970 in a header; `None` when it is not known or out of range.
pub(crate) fn from_unix(unix_s: u64) -> Option<u32> {
    let seconds = u32::try_from(unix_s.checked_sub(EPOCH_S)?).ok()?;
    Some(seconds).filter(|seconds| is_known(*seconds))
}

fn is_known(seconds: u32) -> bool {
    seconds != 0 && seconds != u32::MAX
}

impl Meta {
    /// When this metadata was written last, seconds since 1970; 0 when it is not known.
    pub(crate) fn written_s(&self) -> u64 {
        let all = self.configs.iter().map(|config| config.time).chain([self.header.time]);
        all.filter(|seconds| is_known(*seconds)).max().map_or(0, |s| EPOCH_S + u64::from(s))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_before_1980_or_beyond_32_bits_is_not_stored() {
        assert_eq!(from_unix(EPOCH_S + 5), Some(5));
        assert_eq!([0, EPOCH_S, EPOCH_S + u64::from(u32::MAX)].map(from_unix), [None; 3]);
    }
}
