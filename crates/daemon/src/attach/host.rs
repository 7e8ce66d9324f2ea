//! Host functions shared by all attachment methods: tools, mounts, and the users of a block device.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use super::openers::Openers;

/// Where file systems of attached LUNs are mounted, one folder each.
pub const FOLDER: &str = "/run/ashlar/attached";

/// Longest wait for a tool; then it is left to itself and counts as failed. A tool waits for the
/// disk behind the unit.
pub const TOOL_LIMIT: Duration = Duration::from_secs(10);

/// Longest wait for a core to take a file system or a socket, or to release one.
pub const CORE_LIMIT: Duration = Duration::from_secs(5);

/// Pause between two looks at something that ends soon.
const PAUSE: Duration = Duration::from_millis(10);

/// Most bytes of a tool's output that are kept.
const OUTPUT_MAX: u64 = 4096;

/// The text of an error, for people.
pub type ErrorText = String;

/// An error with the action that failed, and the right that it needs.
pub fn describe_error(doing: &str, e: &io::Error) -> ErrorText {
    match e.kind() {
        io::ErrorKind::PermissionDenied => {
            format!("{doing}: {e}: it needs root, or CAP_SYS_ADMIN: run the daemon with it")
        }
        _ => format!("{doing}: {e}"),
    }
}

/// Waits until something holds, at most so long.
pub fn wait(limit: Duration, mut holds: impl FnMut() -> bool) -> bool {
    let end = Instant::now() + limit;
    loop {
        if holds() {
            return true;
        }
        if Instant::now() >= end {
            return false;
        }
        std::thread::sleep(PAUSE);
    }
}

/// Runs a tool of util-linux; answers its output.
pub fn run_tool(name: &str, words: &[&str]) -> Result<String, ErrorText> {
    let path = std::env::var("PATH").unwrap_or_default();
    let mut command = Command::new(name);
    command.args(words).env("PATH", format!("{path}:/usr/sbin:/sbin:/usr/bin:/bin"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|e| format!("{name} (of util-linux): {e}"))?;
    let mut ended = None;
    wait(TOOL_LIMIT, || {
        ended = child.try_wait().transpose();
        ended.is_some()
    });
    let Some(Ok(status)) = ended else {
        // It may sleep in the kernel, where the signal does not reach it.
        let _ = child.kill();
        return Err(format!("{name} {} takes longer than {TOOL_LIMIT:?}", words.join(" ")));
    };
    let mut output = String::new();
    let taken = match status.success() {
        true => child.stdout.take().map(|out| out.take(OUTPUT_MAX).read_to_string(&mut output)),
        false => child.stderr.take().map(|out| out.take(OUTPUT_MAX).read_to_string(&mut output)),
    };
    match (status.success(), taken) {
        (true, Some(Ok(_))) => Ok(output.trim().to_owned()),
        _ => Err(output.trim().to_owned()),
    }
}

/// The name under which this process mounts: another one sees by it whether it is still there.
pub fn own_source() -> String {
    let pid = std::process::id();
    format!("ashlar:{pid}.{}", start_ticks(&pid.to_string()).unwrap_or(0))
}

/// When a process began, in ticks since the machine did; `None` when it is not there.
pub fn start_ticks(pid: &str) -> Option<u64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before it may hold anything.
    let (_, after) = stat.rsplit_once(')')?;
    after.split_whitespace().nth(19)?.parse().ok()
}

/// A line of the table of mounts.
#[derive(Debug)]
pub struct Mount {
    /// Number of the device, `MAJOR:MINOR`.
    pub device: String,
    /// Where.
    pub at: String,
    /// Type of the file system.
    pub kind: String,
    /// The mounted device or file system.
    pub source: String,
}

/// The mounts that this process sees.
pub fn mounts() -> Vec<Mount> {
    let text = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    text.lines().filter_map(parse_mount).collect()
}

/// The mount point of a path, found by its text. No link is followed, so that the call cannot hang.
pub fn mount_point(path: &Path) -> Option<String> {
    let at = mounts().into_iter().map(|mount| mount.at).filter(|at| path.starts_with(at));
    at.max_by_key(String::len)
}

fn parse_mount(line: &str) -> Option<Mount> {
    let (first, second) = line.split_once(" - ")?;
    let mut first = first.split(' ');
    let (device, at) = (first.nth(2)?.to_owned(), unescape_mount(first.nth(1)?));
    let mut second = second.split(' ');
    Some(Mount { device, at, kind: second.next()?.to_owned(), source: second.next()?.to_owned() })
}

/// Takes the octal escapes of the table of mounts out.
fn unescape_mount(text: &str) -> String {
    let (mut out, mut rest) = (Vec::new(), text.as_bytes());
    while let Some((byte, after)) = rest.split_first() {
        let digits = after.get(..3).and_then(|d| std::str::from_utf8(d).ok());
        match digits.and_then(|d| u8::from_str_radix(d, 8).ok()) {
            Some(code) if *byte == b'\\' => {
                out.push(code);
                rest = after.get(3..).unwrap_or(&[]);
            }
            _ => {
                out.push(*byte);
                rest = after;
            }
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// A block device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Device {
    /// Its name, without the folder.
    pub name: String,
}

impl Device {
    /// Its path.
    pub fn path(&self) -> String {
        format!("/dev/{}", self.name)
    }

    /// The kernel's attribute of that name in `/sys/block`.
    pub fn sysfs_attr(&self, name: &str) -> Option<String> {
        let path = format!("/sys/block/{}/{name}", self.name);
        fs::read_to_string(path).ok().map(|text| text.trim().to_owned())
    }

    /// Itself and its partitions: names and numbers of devices.
    fn parts(&self) -> Vec<(String, String)> {
        let folder = PathBuf::from("/sys/block").join(&self.name);
        let inside = fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path());
        let named = |p: &PathBuf| {
            let name = p.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
            let number = fs::read_to_string(p.join("dev")).unwrap_or_default();
            (name, number.trim().to_owned())
        };
        let own = std::iter::once(folder.clone()).chain(inside);
        own.map(|p| named(&p)).filter(|(name, _)| name.starts_with(&self.name)).collect()
    }

    /// The users of the device, for people: [`Device::claims`] and processes that hold it open.
    /// Empty when none is found.
    pub fn users(&self, openers: &Openers) -> Vec<String> {
        let mut out = self.claims();
        out.extend(self.openers(openers));
        out
    }

    /// Processes that hold it or a partition of it open, for people.
    pub fn openers(&self, openers: &Openers) -> Vec<String> {
        openers.of(self.parts().iter().map(|(_, number)| number.as_str()))
    }

    /// Kernel users of the device, for people: mounts, swap, devices above it.
    pub fn claims(&self) -> Vec<String> {
        let (parts, mounts) = (self.parts(), mounts());
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        let mut out = Vec::new();
        for (name, number) in &parts {
            let here = mounts.iter().filter(|m| m.device == *number);
            out.extend(here.map(|m| format!("mounted on {}", m.at)));
            let path = format!("/dev/{name}");
            if swaps.lines().any(|l| l.split_whitespace().next() == Some(&path)) {
                out.push(format!("{path} is swap"));
            }
            let above = [format!("/sys/block/{name}"), format!("/sys/block/{}/{name}", self.name)];
            let above = above.iter().flat_map(|p| fs::read_dir(format!("{p}/holders")));
            let names = above.flatten().flatten().filter_map(|e| e.file_name().into_string().ok());
            out.extend(names.map(|n| format!("{n} is built on {name}")));
            out.extend(loops_on(&path).map(|n| format!("{n} is built on {name}")));
        }
        out.sort();
        out.dedup();
        out
    }

    /// Where it, or a partition of it, is mounted.
    fn mounted(&self) -> Vec<String> {
        let parts = self.parts();
        let ours = |m: &Mount| parts.iter().any(|(_, number)| *number == m.device);
        mounts().into_iter().filter(ours).map(|m| m.at).collect()
    }

    /// Writes the machine's cached data of the device.
    pub fn sync(&self) {
        let warn = |at: &str, done: Result<String, ErrorText>| {
            if let Err(e) = done {
                tracing::warn!(target: "local", "{at}: not all is written: {e}");
            }
        };
        for at in self.mounted() {
            warn(&at, run_tool("sync", &["--file-system", &at]));
        }
        // Data that was written to the device without a file system.
        warn(&self.path(), run_tool("sync", &[&self.path()]));
    }
}

/// Loop devices on another device: the kernel does not count them among its holders.
fn loops_on(path: &str) -> impl Iterator<Item = String> {
    let all = fs::read_dir("/sys/block").into_iter().flatten().flatten();
    let names = all.filter_map(|e| e.file_name().into_string().ok());
    names.filter(move |name| {
        let file = fs::read_to_string(format!("/sys/block/{name}/loop/backing_file"));
        file.is_ok_and(|file| file.trim_end() == path)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mountinfo_lines_are_parsed() {
        let line = "36 35 7:0 / /mnt/a\\040b rw,noatime shared:1 - ext4 /dev/loop0 rw";
        let m = parse_mount(line).unwrap();
        assert_eq!((m.device.as_str(), m.at.as_str()), ("7:0", "/mnt/a b"));
        assert_eq!((m.kind.as_str(), m.source.as_str()), ("ext4", "/dev/loop0"));
        assert!(parse_mount("nonsense").is_none());
        assert!(!mounts().is_empty());
    }

    #[test]
    fn process_is_identified_by_pid_and_start_time() {
        let (pid, began) = own_source()
            .strip_prefix("ashlar:")
            .unwrap()
            .split_once('.')
            .map(|(a, b)| (a.to_owned(), b.to_owned()))
            .unwrap();
        assert_eq!(start_ticks(&pid).unwrap().to_string(), began);
        assert_eq!(start_ticks("0"), None);
    }

    #[test]
    fn tool_output_is_the_error_text() {
        let error = run_tool("losetup", &["--detach", "/dev/null"]).unwrap_err();
        assert!(!error.is_empty());
        assert!(run_tool("no-such-tool", &[]).unwrap_err().contains("no-such-tool"));
    }
}
