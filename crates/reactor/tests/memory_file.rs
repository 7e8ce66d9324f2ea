//! Files in memory: short calls wake no thread, long ones do. In a process of its own, whose
//! threads can be counted.

#[path = "suite/ports/bench.rs"]
#[allow(dead_code, reason = "the tests of the ports use the rest")]
mod bench;

use std::os::fd::AsRawFd;

use bio::Segs;
use reactor::{File, OpenHow};
use rustix::fs::{MemfdFlags, memfd_create};

use bench::{each_port, filled, gather, pool, token};

/// Threads of this process that make calls on files: the kernel's for a ring, or ours.
fn helpers() -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").unwrap();
    let name = |task: std::fs::DirEntry| std::fs::read_to_string(task.path().join("comm"));
    let names = tasks.filter_map(|task| name(task.unwrap()).ok());
    names.filter(|n| n.starts_with("iou-wrk") || n.starts_with("file-worker")).count()
}

fn memory_file(bytes: u64) -> (rustix::fd::OwnedFd, File) {
    let memory = memfd_create("memory", MemfdFlags::CLOEXEC).unwrap();
    let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
    let file = File::open(path, OpenHow { size: Some(bytes), ..OpenHow::default() }).unwrap();
    assert!(file.facts().is_in_memory);
    (memory, file)
}

#[test]
fn short_calls_end_before_they_return_and_others_are_left_to_the_port() {
    each_port(|r| {
        let (pool, (_memory, file)) = (pool(), memory_file(4 << 20));
        let page = Segs::alloc(&pool, 4096).unwrap();
        for durable in [false, true] {
            let data = filled(&pool, &[u8::from(durable) + 7; 4096]);
            assert!(r.write_now(&file, 8192, &data, durable));
            assert!(r.read_now(&file, 8192, &page));
            assert_eq!(page.to_vec(), data.to_vec());
        }
        assert_eq!(r.in_flight(), 0);
        assert!(!r.read_now(&file, (4 << 20) - 512, &page), "it is longer than the rest");
        assert!(!r.read_now(&file, u64::MAX - 1, &page));
        assert!(!r.read_now(&file, 0, &Segs::new()));
        let long = Segs::alloc(&pool, 2 << 20).unwrap();
        assert!(!r.read_now(&file, 0, &long) && !r.write_now(&file, 0, &long, false));
        assert_eq!(r.in_flight(), 0);
        let path = std::env::current_exe().unwrap();
        let stored = File::open(path, OpenHow { read_only: true, ..OpenHow::default() }).unwrap();
        assert!(stored.facts().is_in_memory || !r.read_now(&stored, 0, &page));
    });
}

/// U8.
#[test]
fn short_calls_are_made_in_line_and_long_ones_by_a_thread() {
    each_port(|r| {
        let (pool, before, (_memory, file)) = (pool(), helpers(), memory_file(4 << 20));
        let page = Segs::alloc(&pool, 4096).unwrap();
        for at in 0..100u64 {
            r.write(token(at), &file, at * 4096, &filled(&pool, &[at as u8; 4096]), at % 2 == 0);
            assert_eq!(gather(&r, 1), [(token(at), Ok(4096))]);
            r.sync(token(at), &file);
            r.read(token(at), &file, at * 4096, &page);
            assert_eq!(gather(&r, 2), [(token(at), Ok(0)), (token(at), Ok(4096))]);
            assert!(page.to_vec().iter().all(|b| *b == at as u8));
        }
        r.read(token(1), &file, 4 << 20, &page);
        assert_eq!(gather(&r, 1), [(token(1), Ok(0))], "the end");
        assert_eq!(helpers(), before, "a thread was woken for a copy of 4 KiB");
        let long = Segs::alloc(&pool, 2 << 20).unwrap();
        r.read(token(2), &file, 0, &long);
        assert_eq!(gather(&r, 1), [(token(2), Ok(2 << 20))]);
        assert!(long.to_vec()[99 * 4096..100 * 4096].iter().all(|b| *b == 99));
        assert!(helpers() > before, "a long copy is worth a thread");
    });
}
