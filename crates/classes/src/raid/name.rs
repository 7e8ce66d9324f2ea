//! Provider names of volumes: `raid/ARRAY/LABEL`, as in `raid/Intel-1234abcd/data`.
//!
//! Configurations name providers, so a name must mean the same volume for ever:
//!
//!  N1  It depends only on the array's own records: not on the order in which arrays start, nor on
//!      the presence or state of other arrays. A number (`r0`) depends on all of these. A label
//!      alone would be another array's while the first is away, and firmware gives the first volume
//!      of every array the same label.
//!  N2  Two volumes of an array never have one name. A label may be ambiguous, empty, or look as if
//!      it had a suffix already. Then the volume's identifier in its array's records follows behind
//!      a `~`: for all those volumes alike.
//!  N3  A provider keeps its name while it is there.

use super::assemble::SetId;
use super::geom::NAME;
use super::model::Volume;
use crate::crc::crc32;
use crate::provider_name::clean;

/// Separates an ambiguous label from the volume's identifier.
const APART: char = '~';

/// What identifies a volume in the records of its array: Intel's number, a digest of DDF's GUID.
fn number(set: SetId, volume: &Volume) -> String {
    match set {
        SetId::Intel(_) => {
            let low = volume.id.first_chunk().map_or(0, |bytes| u16::from_le_bytes(*bytes));
            low.to_string()
        }
        SetId::Ddf(_) => format!("{:08x}", crc32(&[&volume.id])),
    }
}

/// What one of an array's volumes is called.
pub(super) fn provider(set: SetId, volumes: &[Volume], at: usize) -> String {
    let array = format!("{NAME}/{}", set.name());
    let Some(volume) = volumes.get(at) else { return array };
    // A label that cannot be a name is none.
    let called = |v: &Volume| clean(&array, v.name.as_bytes()).unwrap_or(format!("{array}/"));
    let own = called(volume);
    let same = volumes.iter().filter(|other| called(other) == own).count();
    match own.ends_with('/') || own.contains(APART) || same > 1 {
        true => format!("{own}{APART}{}", number(set, volume)),
        false => own,
    }
}

/// A volume's name without class and array, for lists of the array itself.
pub(super) fn short(provider: &str) -> &str {
    provider.splitn(3, '/').nth(2).unwrap_or(provider)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raid::model::{Level, Volume};

    fn volumes(labels: &[&str]) -> Vec<Volume> {
        let volume = |(at, name): (usize, &&str)| {
            let mut id = [0; 24];
            id[0] = at as u8 + 1;
            Volume {
                name: (*name).to_owned(),
                id,
                level: Level::Raid0,
                strip: 4096,
                bytes: 0,
                members: Vec::new(),
                dirty: false,
                migration: None,
                log: None,
            }
        };
        labels.iter().enumerate().map(volume).collect()
    }

    #[test]
    fn names_are_made_of_the_array_and_the_label() {
        let set = SetId::Intel(0x1234_abcd);
        let names = |labels: &[&str]| -> Vec<String> {
            let all = volumes(labels);
            (0..all.len()).map(|at| provider(set, &all, at)).collect()
        };
        let of = |rest: &str| format!("raid/Intel-1234abcd/{rest}");
        for (labels, wanted) in [
            (&["data", "more"][..], &["data", "more"][..]),
            (&["Volume 0", "a/b"], &["Volume%200", "a/b"]),
            (&["\u{1}x\u{fffd}", "100%"], &["%01x%EF%BF%BD", "100%25"]),
            // Equal names get a suffix on both sides.
            (&["data", "data"], &["data~1", "data~2"]),
            (&["data", " data"], &["data~1", "data~2"]),
            (&["data~2", "data"], &["data~2~1", "data"]),
            // No label, or none that can be one.
            (&["", "  "], &["~1", "~2"]),
            (&["..", "x/.."], &["~1", "~2"]),
            (&["x/"], &["x/~1"]),
        ] {
            let wanted: Vec<String> = wanted.iter().map(|rest| of(rest)).collect();
            assert_eq!(names(labels), wanted, "{labels:?}");
        }
        assert_eq!(short(&of("a/b")), "a/b");
    }

    #[test]
    fn volume_names_of_an_array_are_unique() {
        let labels = ["", "x", "x/", "~1", "x~1", "x~2", " x", "%", "%25", "\u{7f}", ".."];
        for one in labels {
            for other in labels {
                let all = volumes(&[one, other]);
                let name = |at| provider(SetId::Ddf([7; 24]), &all, at);
                assert_ne!(name(0), name(1), "{one:?} {other:?}");
            }
        }
    }
}
