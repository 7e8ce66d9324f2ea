//! Disks that a set continued without, and the last record that each is known to have had.
//!
//! A disk that was dropped keeps its record, which describes disks that may all have been replaced
//! since. It looks like a half that was used by itself. Such a use would have increased the
//! sequence number. A disk whose record is no newer than the last that the set wrote there
//! therefore has no data of its own.
//!
//! They are stored in the 32 vendor-specific bytes of a configuration, only in configurations of
//! our own. There are four pairs of reference and generation, big-endian, the last that left first.
//! Unused pairs are all ones. No other implementation reads them. If another one rewrites the
//! configuration, it keeps them or fills them with ones, and then nothing is known, as before.

use super::meta::Meta;
use super::records::Config;

/// Where they are in a configuration.
const AT: usize = 480;
const PAIR: usize = 8;
/// Disks that are known; of older ones nothing is.
pub(crate) const DEPARTED_MAX: usize = 4;
/// Whose configurations have them.
const OURS: &[u8] = b"ASHLAR  ";
const NO_DISK: u32 = u32::MAX;

fn be32(bytes: &[u8], at: usize) -> u32 {
    let word = bytes.get(at..).and_then(|rest| rest.first_chunk::<4>());
    word.map_or(NO_DISK, |word| u32::from_be_bytes(*word))
}

fn pairs(config: &Config) -> Vec<(u32, u32)> {
    let pair = |nth: usize| {
        let at = AT + nth * PAIR;
        (be32(&config.base, at), be32(&config.base, at + 4))
    };
    let all = (0..DEPARTED_MAX).filter(|_| config.guid.starts_with(OURS)).map(pair);
    all.filter(|(reference, _)| *reference != NO_DISK).collect()
}

impl Meta {
    /// Disks that the set continued without (reference), and their last records.
    pub(crate) fn departed(&self) -> Vec<(u32, u32)> {
        // They are the same in all.
        self.configs.iter().map(pairs).find(|pairs| !pairs.is_empty()).unwrap_or_default()
    }

    /// Stores the list of such disks.
    pub(crate) fn note_departed(&mut self, all: &[(u32, u32)]) {
        for config in self.configs.iter_mut().filter(|c| c.guid.starts_with(OURS)) {
            let kept = all.get(..DEPARTED_MAX).unwrap_or(all);
            if pairs(config) == kept {
                continue;
            }
            let mut bytes = [0xff; DEPARTED_MAX * PAIR];
            for (nth, (reference, generation)) in kept.iter().enumerate() {
                crate::probe::put(&mut bytes, nth * PAIR, &reference.to_be_bytes());
                crate::probe::put(&mut bytes, nth * PAIR + 4, &generation.to_be_bytes());
            }
            crate::probe::put(&mut config.base, AT, &bytes);
            config.sequence = config.sequence.wrapping_add(1);
        }
    }
}
