//! Costs of a process, measured from outside: CPU time, wake-ups, memory, system calls. The same
//! instruments are used for Ashlar and for its peers.

mod perf;
mod threads;

pub use perf::{Counter, has_perf, syscalls_of};
pub use threads::{ThreadTimes, ended_children_ns};

use std::fs;

use crate::error::{Error, Kind};

/// CPU time of all threads of a process, ns, user space and kernel.
pub fn cpu_ns(pid: u32) -> Result<u64, Error> {
    Ok(ThreadTimes::of(pid)?.sum())
}

/// Voluntary and involuntary context switches of a process since it started.
pub fn switches(pid: u32) -> Result<u64, Error> {
    let mut sum = 0u64;
    for folder in tasks(pid)? {
        // A thread may have ended since it was listed.
        let text = fs::read_to_string(format!("{folder}/status")).unwrap_or_default();
        sum += text.lines().filter(|l| l.contains("ctxt_switches:")).flat_map(number).sum::<u64>();
    }
    Ok(sum)
}

pub fn resident_bytes(pid: u32) -> Result<u64, Error> {
    let text = read(&format!("/proc/{pid}/status"))?;
    let line = text.lines().find(|l| l.starts_with("VmRSS:"));
    let kib = line.and_then(number).ok_or(Error::new(Kind::System, "status has no VmRSS"))?;
    Ok(kib.saturating_mul(1024))
}

/// The cores this process may use, in order.
pub fn cores() -> Vec<usize> {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = text.lines().find_map(|l| l.strip_prefix("Cpus_allowed_list:")).unwrap_or("");
    parse_cores(line.trim())
}

fn parse_cores(list: &str) -> Vec<usize> {
    let ranges = list.split(',').filter_map(|range| {
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        Some(first.trim().parse().ok()?..=last.trim().parse().ok()?)
    });
    ranges.flatten().collect()
}

fn tasks(pid: u32) -> Result<Vec<String>, Error> {
    let folder = format!("/proc/{pid}/task");
    let entries = fs::read_dir(&folder).map_err(|e| Error::system(&folder, e))?;
    Ok(entries.flatten().map(|e| e.path().to_string_lossy().into_owned()).collect())
}

fn read(path: &str) -> Result<String, Error> {
    fs::read_to_string(path).map_err(|e| Error::system(path, e))
}

/// The number behind the colon of a line of `status`.
fn number(line: &str) -> Option<u64> {
    line.split_once(':')?.1.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::threads::ticks_ns;
    use super::*;

    #[test]
    fn cpu_time_and_memory_of_this_process_are_measured() {
        let pid = std::process::id();
        let ticks = || ticks_ns("/proc/self").unwrap();
        let (cpu, ticks_before) = (cpu_ns(pid).unwrap(), ticks());
        let mut sum = 0u64;
        while cpu_ns(pid).unwrap() < cpu + 30_000_000 {
            sum = sum.wrapping_add(std::hint::black_box(1));
        }
        assert!(ticks() >= ticks_before + 10_000_000);
        assert!(resident_bytes(pid).unwrap() > 100_000 && switches(pid).unwrap() > 0);
        assert!(!cores().is_empty());
        assert!(cpu_ns(u32::MAX).is_err());
    }

    #[test]
    fn core_lists_are_parsed() {
        assert_eq!(parse_cores("0-1,4,7-8"), [0, 1, 4, 7, 8]);
        assert_eq!(parse_cores(""), Vec::<usize>::new());
    }
}
