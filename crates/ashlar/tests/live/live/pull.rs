//! Ways of pulling a member and of returning it.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::Duration;

use serde_json::Value;

use super::arrays::{Array, Arrays, Class, bytes_of, failing_layer};
use crate::fixture::Fixture;

/// Bytes at a disk's end that are cut off to pull it: records are there. More than one sector: the
/// rest must not end in the label of a provider above the array, and be taken for it.
const CUT_BYTES: u64 = 64 << 10;

/// A way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pull {
    /// The class's own verb takes it out of use, and its verb takes it in again.
    Verb,
    /// Taken out for good, its disk taken out of the configuration; later inserted as any disk.
    Removed,
    FailsWrites,
    FailsReads,
    /// Everything fails as of a device that was pulled.
    FailsAll,
    /// The file loses its end, and gets it back: with data that is old by then.
    Shrinks,
    /// The same, and a new disk takes its place.
    Replaced,
}

impl Pull {
    pub const ALL: &[Pull] = &[
        Pull::Verb,
        Pull::Shrinks,
        Pull::FailsWrites,
        Pull::Replaced,
        Pull::FailsReads,
        Pull::Removed,
        Pull::FailsAll,
    ];
}

impl Array {
    /// A path is no copy: it cannot return with other contents.
    pub fn can(&self, how: Pull) -> bool {
        let of_paths = [Pull::Verb, Pull::Removed, Pull::FailsAll];
        self.class != Class::Multipath || of_paths.contains(&how)
    }
}

#[track_caller]
pub fn pull(fixture: &Fixture, arrays: &Arrays, array: &Array, member: &str, how: Pull) {
    let class = array.class.name();
    let fails = |words: &[&str]| {
        let (name, on) = (format!("name={}", failing_layer(member)), format!("provider={member}"));
        fixture.ok(&[&["geom", "nop", "insert", &name, &on], words].concat());
    };
    let verb = match array.class {
        Class::Mirror => "deactivate",
        Class::Raid | Class::Multipath => "fail",
    };
    let (reads, writes) = ("read_fail_percent=100", "write_fail_percent=100");
    match how {
        Pull::Verb => drop(fixture.ok(&[class, verb, array.on, member])),
        Pull::Removed => {
            fixture.ok(&[class, "remove", array.on, member]);
            arrays.apply(fixture, Some(member));
        }
        Pull::FailsWrites => fails(&[writes]),
        Pull::FailsReads => fails(&[reads]),
        Pull::FailsAll => fails(&[reads, writes, "error=ENXIO"]),
        Pull::Shrinks | Pull::Replaced => {
            let file = file(fixture, member);
            let mut end = vec![0; CUT_BYTES as usize];
            let keeps = bytes_of(member) - CUT_BYTES;
            file.read_exact_at(&mut end, keeps).unwrap();
            std::fs::write(fixture.path(&format!("{member}-end")), end).unwrap();
            file.set_len(keeps).unwrap();
            // Users may have met the end before: then it was removed already.
            fixture.ashlar(&["geom", "disk", "resize", &format!("name={member}")]);
        }
    }
}

fn file(fixture: &Fixture, member: &str) -> File {
    File::options().read(true).write(true).open(fixture.path(member)).unwrap()
}

#[track_caller]
pub fn give_back(fixture: &Fixture, arrays: &Arrays, array: &Array, member: &str, how: Pull) {
    let class = array.class.name();
    match (how, array.class) {
        (Pull::Verb, Class::Mirror) => drop(fixture.ok(&[class, "activate", array.on, member])),
        (Pull::Verb, Class::Raid) => {
            fixture.ok(&[class, "insert", "--yes-destroy", member, array.on, member]);
        }
        (Pull::Verb, Class::Multipath) => {
            fixture.ok(&[class, "restore", array.on, member]);
            fixture.ok(&[class, "rotate", array.on]);
        }
        (Pull::Removed, of) => {
            arrays.apply(fixture, None);
            let words: &[&str] = match of {
                Class::Multipath => &["add"],
                _ => &["insert", "--yes-destroy", member],
            };
            fixture.ok(&[&[class], words, &[array.on, member]].concat());
        }
        (Pull::FailsWrites | Pull::FailsReads | Pull::FailsAll, of) => {
            fixture.ok(&["geom", "nop", "remove", &format!("name={}", failing_layer(member))]);
            match of {
                Class::Multipath => drop(fixture.ok(&[class, "restore", array.on, member])),
                Class::Mirror => drop(fixture.ok(&[class, "forget", array.on])),
                Class::Raid => {}
            }
            if of != Class::Multipath && !array.holds(fixture, member) {
                fixture.ok(&[class, "insert", "--yes-destroy", member, array.on, member]);
            }
        }
        (Pull::Shrinks, _) => {
            let end = std::fs::read(fixture.path(&format!("{member}-end"))).unwrap();
            file(fixture, member).write_all_at(&end, bytes_of(member) - CUT_BYTES).unwrap();
            fixture.until("it is back", Duration::from_secs(90), || {
                // A device that was pulled returns by itself.
                fixture.ashlar(&["geom", "disk", "resize", &format!("name={member}")]);
                let size = |p: (String, Value)| p.1["size_bytes"].as_u64();
                fixture.provider(member).and_then(size) == Some(bytes_of(member))
            });
        }
        (Pull::Replaced, _) => {
            arrays.apply(fixture, Some(member));
            std::fs::remove_file(fixture.path(member)).unwrap();
            fixture.image(member, bytes_of(member));
            arrays.apply(fixture, None);
            if array.class == Class::Mirror {
                fixture.ok(&[class, "forget", array.on]);
            }
            fixture.ok(&[class, "insert", "--yes-destroy", member, array.on, member]);
        }
    }
}
