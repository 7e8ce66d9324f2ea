//! Options beyond FreeBSD, stored behind the record in its sector, at byte 256. FreeBSD has zeroes
//! there and does not read them. When FreeBSD rewrites the record the options are lost, and
//! everything is off.
//!
//! ```text
//!   0 16 "ASHLAR::PATHS" | 16 4 version | 20 4 checker, s | 24 4 failback, s (all ones: never)
//!   28 4 queue, s | 32 16 MD5 of bytes 0 to 32
//! ```

use md5::{Digest, Md5};
use reactor::clock::S;

use crate::members::frame::{Fields, Record};

const MAGIC: &str = "ASHLAR::PATHS";
const VERSION: u32 = 1;
/// Where it begins, byte of the sector.
const AT: usize = 256;
const NEVER: u32 = u32::MAX;
/// Longest time that a checker, failback or queue may be given, seconds: 30 days.
pub(super) const SECONDS_MAX: u64 = 30 * 24 * 3600;

/// Off at first.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(super) struct Options {
    /// How often failed paths are looked at, ns; zero: never.
    pub(super) checker_ns: u64,
    /// How long the preferred path must have been good again to become active, ns.
    pub(super) failback_ns: Option<u64>,
    /// How long requests wait when there is no path, ns; zero: not at all.
    pub(super) queue_ns: u64,
}

impl Options {
    /// The options in a record's sector. Absent, damaged or newer options are off: the disk is the
    /// same without them.
    pub(super) fn decode(sector: &[u8]) -> Options {
        sector.get(AT..).and_then(Options::read).unwrap_or_default()
    }

    fn read(bytes: &[u8]) -> Option<Options> {
        let (mut f, _) = Fields::open(bytes, MAGIC, VERSION).ok()?;
        let mut seconds = || f.u32("seconds").ok();
        let (checker, failback, queue) = (seconds()?, seconds()?, seconds()?);
        let summed = bytes.get(..f.taken())?;
        if f.bytes(16, "checksum").ok()? != sum(summed) {
            return None;
        }
        let ns = |s: u32| u64::from(s).min(SECONDS_MAX) * S;
        let failback_ns = (failback != NEVER).then(|| ns(failback));
        Some(Options { checker_ns: ns(checker), failback_ns, queue_ns: ns(queue) })
    }

    /// As lists show those that are on.
    pub(super) fn lines(&self) -> Vec<(&'static str, String)> {
        let on = |ns: u64| (ns > 0).then_some(ns);
        let all = [
            ("Checker", on(self.checker_ns)),
            ("Failback", self.failback_ns),
            ("Queue", on(self.queue_ns)),
        ];
        let line = |(word, ns): (_, Option<u64>)| Some((word, format!("{} s", ns? / S)));
        all.into_iter().filter_map(line).collect()
    }

    /// Puts them behind a record, unless all are off.
    pub(super) fn put(&self, record: &mut Vec<u8>) {
        if *self == Options::default() {
            return;
        }
        let seconds = |ns: u64| u32::try_from(ns / S).unwrap_or(NEVER - 1);
        let fields = Record::new(MAGIC, VERSION)
            .u32(seconds(self.checker_ns))
            .u32(self.failback_ns.map_or(NEVER, seconds))
            .u32(seconds(self.queue_ns));
        let sum = sum(fields.so_far());
        record.resize(AT, 0);
        record.extend(fields.bytes(&sum).so_far());
    }
}

fn sum(bytes: &[u8]) -> [u8; 16] {
    Md5::digest(bytes).into()
}

#[cfg(test)]
mod tests {
    use testkit::formats::FieldTable;

    use super::*;

    #[test]
    fn options_follow_the_metadata_and_damage_disables_them() {
        for failback_ns in [None, Some(0), Some(SECONDS_MAX * S)] {
            let options = Options { checker_ns: 5 * S, failback_ns, queue_ns: S };
            let mut sector = vec![7; 89];
            options.put(&mut sector);
            assert!(sector[..89] == [7; 89] && sector.len() < 512);
            assert_eq!(Options::decode(&sector), options);
            for at in AT..sector.len() {
                let mut wrong = sector.clone();
                wrong[at] ^= 1;
                assert_eq!(Options::decode(&wrong), Options::default(), "byte {at}");
                assert_eq!(Options::decode(&sector[..at]), Options::default());
            }
        }
    }

    /// The record is then identical to FreeBSD's, byte for byte.
    #[test]
    fn metadata_is_unchanged_when_all_options_are_off() {
        let mut sector = vec![7; 89];
        Options::default().put(&mut sector);
        assert_eq!(sector, vec![7; 89]);
    }

    #[test]
    fn fields_are_where_the_page_of_formats_has_them() {
        let options = Options { checker_ns: 5 * S, failback_ns: None, queue_ns: S };
        let mut sector = vec![7; 89];
        options.put(&mut sector);
        let values: [(&str, &[u8]); 6] = [
            ("magic", MAGIC.as_bytes()),
            ("version", &VERSION.to_le_bytes()),
            ("checker", &5u32.to_le_bytes()),
            ("failback", &NEVER.to_le_bytes()),
            ("queue", &1u32.to_le_bytes()),
            ("MD5", &sum(&sector[256..288])),
        ];
        FieldTable::of("### multipath", "offset", 1).assert_holds(&sector, &values);
    }
}
