//! The findings of `inspect` on an image, checked against `wipefs` and `blkid`.

use classes::inspect::{self, Finding};
use classes::part::TableContext;
use std::os::unix::fs::FileExt;
use std::path::Path;

use crate::support::{Loop, probe_file, run, try_run};

pub fn look(path: &Path, sector: u32) -> Vec<Finding> {
    let found = probe_file(path, sector, |s| inspect::step(s, &TableContext::default()));
    let found = found.unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(found.unread, []);
    found.findings
}

/// Offsets and types that wipefs lists.
pub fn wipefs(device: &str) -> Vec<(u64, String)> {
    let text = run("wipefs", &["-n", "-p", device]);
    let line = |line: &str| {
        let mut fields = line.split(',');
        let offset = fields.next()?.trim_start_matches("0x");
        let at = u64::from_str_radix(offset, 16).unwrap_or_else(|_| panic!("{line}"));
        Some((at, fields.next_back().unwrap_or("").to_owned()))
    };
    text.lines().filter(|line| !line.starts_with('#')).filter_map(line).collect()
}

/// All signatures that wipefs finds are found; the findings are cleared; then nothing is found.
pub fn judge(path: &Path, sector: u32, kind: &str) {
    judge_as(path, sector, kind, "");
}

/// As [`judge`]; wipefs must use this name for it.
pub fn judge_as(path: &Path, sector: u32, kind: &str, name: &str) {
    let found = look(path, sector);
    assert!(found.iter().any(|f| f.kind == kind), "{kind}: {found:#?}");
    assert!(found.iter().all(|f| !f.reason.is_empty() && f.len > 0), "{found:#?}");
    let device = Loop::new(path, sector);
    let theirs = wipefs(device.name());
    assert!(!theirs.is_empty(), "wipefs finds nothing for {kind}");
    let named = name.is_empty() || theirs.iter().any(|(_, theirs)| theirs == name);
    assert!(named, "{kind}: wipefs names {theirs:?}, not {name}");
    for (at, name) in &theirs {
        let known = |f: &Finding| (f.offset..f.offset + f.len).contains(at);
        assert!(found.iter().any(known), "{kind}: wipefs has {name} at {at:#x}, we {found:#x?}");
    }
    drop(device);
    clear(path, &found);
    clean(path, sector);
}

/// Zeros over the signatures found.
pub fn clear(path: &Path, found: &[Finding]) {
    let file = std::fs::File::options().write(true).open(path).expect("image");
    for f in found {
        file.write_all_at(&vec![0; f.len as usize], f.offset).expect("cleared");
    }
}

/// Nothing is found, by us or by others.
pub fn clean(path: &Path, sector: u32) {
    assert_eq!(look(path, sector), []);
    let device = Loop::new(path, sector);
    assert_eq!(wipefs(device.name()), []);
    let (_, output) = try_run("blkid", &["-p", device.name()], "");
    assert_eq!(output.trim(), "");
    let output = run("sgdisk", &["-p", device.name()]);
    assert!(output.contains("Creating new GPT entries in memory"), "{output}");
}
