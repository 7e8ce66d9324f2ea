//! List of processes that hold block devices open. The kernel keeps no such list, so the open files
//! of every process are examined. They are compared by device number, so the name and namespace of
//! the opened file do not matter. To see other users' files needs root, as attaching does.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::fs::{AtFlags, CWD, FileType, StatxFlags, statx};

/// Longest search of all processes; an incomplete search is reported.
const LOOK_LIMIT: Duration = Duration::from_secs(2);

/// The same for lists, which the control thread makes.
const LIST_LIMIT: Duration = Duration::from_millis(50);

/// Most processes of one device that are named; of more, their number.
const NAMED_MAX: usize = 8;

/// Processes that hold block devices open, as they were at one time.
#[derive(Default)]
pub struct Openers {
    /// By the device's number, `MAJOR:MINOR`: processes, for people.
    holders: BTreeMap<String, Vec<String>>,
    /// Not every process was looked at, in this time.
    time_limit: Option<Duration>,
}

impl Openers {
    /// Looks at every process.
    pub fn scan() -> Openers {
        Openers::within(Path::new("/proc"), LOOK_LIMIT)
    }

    /// Looks at as many as do not keep others waiting.
    pub fn scan_quickly() -> Openers {
        Openers::within(Path::new("/proc"), LIST_LIMIT)
    }

    fn within(root: &Path, limit: Duration) -> Openers {
        let (mut out, end) = (Openers::default(), Instant::now() + limit);
        for process in fs::read_dir(root).into_iter().flatten().flatten() {
            if Instant::now() >= end {
                out.time_limit = Some(limit);
            }
            if out.time_limit.is_some() {
                break;
            }
            let pid = process.file_name().to_string_lossy().into_owned();
            if pid.bytes().all(|b| b.is_ascii_digit()) {
                out.process(&process.path(), &pid, (limit, end));
            }
        }
        out
    }

    fn process(&mut self, process: &Path, pid: &str, (limit, end): (Duration, Instant)) {
        let mut found = Vec::new();
        // One that has ended, and one that may not be looked at, has nothing open.
        for open in fs::read_dir(process.join("fd")).into_iter().flatten().flatten() {
            if Instant::now() >= end {
                self.time_limit = Some(limit);
                break;
            }
            // Cached attributes are enough: a file server that does not answer is not queried.
            let flags = AtFlags::STATX_DONT_SYNC;
            let Ok(stat) = statx(CWD, open.path(), flags, StatxFlags::TYPE) else { continue };
            if FileType::from_raw_mode(stat.stx_mode.into()) == FileType::BlockDevice {
                found.push(format!("{}:{}", stat.stx_rdev_major, stat.stx_rdev_minor));
            }
        }
        found.sort();
        found.dedup();
        if found.is_empty() {
            return;
        }
        let name = fs::read_to_string(process.join("comm")).unwrap_or_default();
        let name = name.trim_end().replace(|c: char| c.is_control(), "?");
        for device in found {
            self.holders.entry(device).or_default().push(format!("open in {name} (pid {pid})"));
        }
    }

    /// Those of some devices, for people; empty when there are none.
    pub fn of<'a>(&self, devices: impl Iterator<Item = &'a str>) -> Vec<String> {
        let mut out: Vec<String> =
            devices.filter_map(|device| self.holders.get(device)).flatten().cloned().collect();
        // A process that has several partitions open is listed once.
        out.sort();
        out.dedup();
        let more = out.len().saturating_sub(NAMED_MAX);
        out.truncate(NAMED_MAX);
        if more > 0 {
            out.push(format!("open in {more} more processes"));
        }
        if let Some(limit) = self.time_limit {
            out.push(format!("not every process could be looked at in {limit:?}"));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use testkit::Folder;

    #[test]
    fn holders_are_named_and_counted() {
        let mut openers = Openers::default();
        assert!(openers.of(["7:0"].into_iter()).is_empty());
        for pid in 10..22 {
            openers.holders.entry("7:0".into()).or_default().push(format!("open in a (pid {pid})"));
        }
        openers.holders.insert("259:1".into(), vec!["open in a (pid 10)".into()]);
        assert_eq!(openers.of(["259:1", "8:0"].into_iter()), ["open in a (pid 10)"]);
        let both = openers.of(["7:0", "259:1"].into_iter());
        assert_eq!((both.len(), both[8].as_str()), (9, "open in 4 more processes"));
    }

    #[test]
    fn search_for_openers_over_its_time_limit_is_reported() {
        let all = Openers::scan();
        assert!(all.time_limit.is_none());
        let none = Openers::within(Path::new("/proc"), Duration::ZERO);
        assert!(none.holders.is_empty());
        assert!(none.of(std::iter::empty())[0].contains("not every process"));
    }

    /// Folders as in /proc: links to anything but a block device do not count.
    #[test]
    fn only_open_block_devices_are_openers() {
        let root = Folder::new("openers");
        let fds = root.join("12/fd");
        fs::create_dir_all(&fds).unwrap();
        fs::write(root.join("12/comm"), "cat\u{7}ch\n").unwrap();
        std::os::unix::fs::symlink("/dev/null", fds.join("0")).unwrap();
        std::os::unix::fs::symlink("/no/such/file", fds.join("1")).unwrap();
        assert!(Openers::within(&root, LOOK_LIMIT).holders.is_empty());
        // Where there is a block device.
        let all = fs::read_dir("/sys/class/block").into_iter().flatten().flatten();
        for name in all.filter_map(|e| e.file_name().into_string().ok()) {
            let (node, link) = (Path::new("/dev").join(&name), fds.join("2"));
            let _ = fs::remove_file(&link);
            if !node.exists() || std::os::unix::fs::symlink(&node, &link).is_err() {
                continue;
            }
            let number = fs::read_to_string(format!("/sys/class/block/{name}/dev")).unwrap();
            let found = Openers::within(&root, LOOK_LIMIT).of([number.trim()].into_iter());
            assert_eq!(found, ["open in cat?ch (pid 12)"], "{name}");
        }
    }
}
