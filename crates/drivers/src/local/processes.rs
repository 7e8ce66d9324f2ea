//! Processes behind the kernel's requests: the kernel names the requesting thread, and `/proc` its
//! process.
//!
//! A process that works on the file itself, `/run/ashlar/attached/TARGET.LUN/UNIT`, uses its own
//! threads, as the kernel keeps no pages of the file. Behind a loop device the kernel's threads
//! send the requests of all processes. The threads of its network block device name no process:
//! such requests are the session's.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io::Read;

/// Threads that are remembered; when there are more all are looked up again.
const THREADS_MAX: usize = 256;

/// How long it is believed of a thread's number that it is the same process's, ns. Numbers are used
/// again when all others have been given out.
const CACHE_NS: u64 = 1_000_000_000;

/// Bytes of a thread's status that are read: the wanted field is in its first part.
const STATUS_MAX: u64 = 4096;

/// See the module.
#[derive(Default)]
pub(super) struct Processes {
    /// Process of a thread, and since when it is known.
    known: RefCell<BTreeMap<u32, (u32, u64)>>,
}

impl Processes {
    /// The process of a thread; zero: not one of this machine that can be seen, or the kernel.
    #[inline]
    pub fn of(&self, thread: u32, now_ns: u64) -> u32 {
        let known = self.known.borrow().get(&thread).copied();
        match known {
            Some((process, since)) if now_ns.saturating_sub(since) < CACHE_NS => process,
            _ => self.look_up(thread, now_ns),
        }
    }

    /// The kernel makes the content of `/proc` on the spot: without a disk, and without a lock held
    /// by a thread that waits for us.
    #[cold]
    fn look_up(&self, thread: u32, now_ns: u64) -> u32 {
        let process = match thread {
            0 => 0,
            _ => status(thread).as_deref().and_then(process).unwrap_or(0),
        };
        let mut known = self.known.borrow_mut();
        if known.len() >= THREADS_MAX {
            known.clear();
        }
        known.insert(thread, (process, now_ns));
        process
    }
}

fn status(thread: u32) -> Option<String> {
    let file = std::fs::File::open(format!("/proc/{thread}/status")).ok()?;
    let mut text = Vec::new();
    file.take(STATUS_MAX).read_to_end(&mut text).ok()?;
    Some(String::from_utf8_lossy(&text).into_owned())
}

/// The process, by a thread's status; `None` for a thread of the kernel, which has no memory.
fn process(status: &str) -> Option<u32> {
    let field = |name: &str| status.lines().find_map(|line| line.strip_prefix(name));
    field("VmSize:")?;
    field("Tgid:")?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The calling thread's number.
    fn own() -> u32 {
        let link = std::fs::read_link("/proc/thread-self").expect("a thread");
        link.file_name().and_then(|n| n.to_str()).and_then(|n| n.parse().ok()).expect("a number")
    }

    #[test]
    fn thread_maps_to_its_process_and_kernel_thread_to_none() {
        let other = std::thread::spawn(|| (own(), Processes::default().of(own(), 0)));
        let (thread, process) = other.join().expect("it ended");
        assert_eq!(process, std::process::id());
        let all = Processes::default();
        assert_eq!((all.of(own(), 0), all.of(0, 0)), (process, 0));
        // The thread has ended; its last process is assumed for a while.
        all.known.borrow_mut().insert(thread, (process, 5));
        assert_eq!(all.of(thread, 5 + CACHE_NS - 1), process);
        assert_eq!(all.of(thread, 5 + CACHE_NS), 0);
        for n in 1..=2 * THREADS_MAX as u32 {
            all.of(0x4000_0000 + n, 0);
        }
        assert!(all.known.borrow().len() <= THREADS_MAX);
        let kernel = "Name:\tkworker/0:1\nTgid:\t17\nPid:\t17\nKthread:\t1\nThreads:\t1\n";
        assert_eq!(super::process(kernel), None);
        let program = "Name:\tqemu-img\nTgid:\t17\nPid:\t19\nVmSize:\t  3060 kB\nThreads:\t3\n";
        assert_eq!(super::process(program), Some(17));
        assert_eq!(super::process("Tgid:\t-3\nVmSize:\t1 kB\n"), None);
    }
}
