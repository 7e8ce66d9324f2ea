//! Files: the whole range, ends of files, holes, and refusals.

use std::os::fd::AsRawFd;

use bio::{Errno, Segs};
use reactor::{File, Inline, OpenHow};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::ports::bench::{Scratch, each_port, filled, gather, pool, token};

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|i| (i * 7 + i / 251) as u8).collect()
}

#[test]
fn written_data_is_read_back_and_a_read_at_the_end_is_short() {
    each_port(|r| {
        let (pool, scratch) = (pool(), Scratch::new());
        let file = scratch.open(0, false);
        let bytes = pattern(300_000);
        r.write(token(1), &file, 5, &filled(&pool, &bytes), true);
        assert_eq!(gather(&r, 1), [(token(1), Ok(300_000))]);
        r.sync(token(2), &file);
        assert_eq!(gather(&r, 1), [(token(2), Ok(0))]);
        assert_eq!(file.size().unwrap(), 300_005);

        let into = Segs::alloc(&pool, 400_000).unwrap();
        r.read(token(3), &file, 5, &into);
        assert_eq!(gather(&r, 1), [(token(3), Ok(300_000))]);
        assert!(into.to_vec()[..300_000] == bytes[..]);
        r.read(token(4), &file, 1 << 30, &into);
        assert_eq!(gather(&r, 1), [(token(4), Ok(0))]);
    });
}

#[test]
fn more_segments_than_one_call_accepts_are_transferred() {
    each_port(|r| {
        let (pool, scratch) = (pool(), Scratch::new());
        let file = scratch.open(0, false);
        let bytes = pattern(3 * reactor::IOVECS_MAX);
        let whole = filled(&pool, &bytes);
        let mut pieces = Segs::new();
        for at in 0..bytes.len() {
            assert!(whole.slice_into(at, 1, &mut pieces));
        }
        assert_eq!(pieces.as_slice().len(), 3 * reactor::IOVECS_MAX);
        r.write(token(1), &file, 0, &pieces, false);
        assert_eq!(gather(&r, 1), [(token(1), Ok(bytes.len() as u64))]);
        whole.fill(0, bytes.len(), 0);
        r.read(token(2), &file, 0, &pieces);
        assert_eq!(gather(&r, 1), [(token(2), Ok(bytes.len() as u64))]);
        assert!(whole.to_vec() == bytes);
    });
}

#[test]
fn punched_and_zeroed_ranges_read_as_zeros() {
    each_port(|r| {
        let (pool, scratch) = (pool(), Scratch::new());
        let file = scratch.open(0, false);
        r.write(token(1), &file, 0, &filled(&pool, &[9; 65536]), false);
        gather(&r, 1);
        r.punch(token(2), &file, 4096, 4096);
        r.zero(token(3), &file, 16384, 4096, true);
        r.zero(token(4), &file, 32768, 4096, false);
        // Nothing orders these against each other: wait before reading.
        let completions = gather(&r, 3);
        assert!(completions.iter().all(|(_, e)| *e == Ok(0)), "{completions:?}");
        let into = Segs::alloc(&pool, 65536).unwrap();
        r.read(token(5), &file, 0, &into);
        gather(&r, 1);
        for (at, chunk) in into.to_vec().chunks(4096).enumerate() {
            let want = if [1, 4, 8].contains(&at) { 0 } else { 9 };
            assert!(chunk.iter().all(|b| *b == want), "page {at}");
        }
        assert_eq!(file.size().unwrap(), 65536);
    });
}

#[test]
fn discard_of_a_file_is_not_supported() {
    each_port(|r| {
        let scratch = Scratch::new();
        let file = scratch.open(4096, false);
        r.discard(token(1), &file, 0, 4096);
        assert_eq!(gather(&r, 1), [(token(1), Err(Errno::NotSup))]);
        r.discard(token(2), &file, u64::MAX, 4096);
        assert_eq!(gather(&r, 1), [(token(2), Err(Errno::Inval))]);
        r.discard(token(3), &file, 0, 0);
        assert_eq!(gather(&r, 1), [(token(3), Ok(0))]);
    });
}

#[test]
fn direct_reads_stop_at_an_odd_end_of_file() {
    each_port(|r| {
        let (pool, scratch) = (pool(), Scratch::new());
        std::fs::write(&scratch.0, pattern(9000)).unwrap();
        let how = OpenHow { direct: true, ..OpenHow::default() };
        let Ok(file) = File::open(&scratch.0, how) else {
            return; // a file system without direct I/O
        };
        assert!(file.facts().is_direct && file.facts().logical_sector >= 512);
        let into = Segs::alloc(&pool, 16384).unwrap();
        r.read(token(1), &file, 0, &into);
        assert_eq!(gather(&r, 1), [(token(1), Ok(9000))]);
        assert!(into.to_vec()[..9000] == pattern(9000)[..]);
    });
}

#[test]
fn errors_are_mapped_and_invalid_requests_complete() {
    each_port(|r| {
        let (pool, scratch) = (pool(), Scratch::new());
        drop(scratch.open(4096, false));
        let how = OpenHow { read_only: true, ..OpenHow::default() };
        let file = File::open(&scratch.0, how).unwrap();
        let data = filled(&pool, &[1; 512]);
        r.write(token(1), &file, 0, &data, false);
        assert_eq!(gather(&r, 1), [(token(1), Err(Errno::Io))], "EBADF");
        for offset in [u64::MAX, u64::MAX - 100, i64::MAX as u64] {
            r.read(token(2), &file, offset, &data);
            r.punch(token(2), &file, offset, 4096);
            let completions = gather(&r, 2);
            assert_eq!(completions, [(token(2), Err(Errno::Inval)); 2]);
        }
        r.read(token(3), &file, 0, &Segs::new());
        r.punch(token(3), &file, 0, 0);
        assert_eq!(gather(&r, 2), [(token(3), Ok(0)); 2]);
        assert!(File::open("/dev/null", how).is_err(), "not a disk");
    });
}

#[test]
fn inline_and_queued_calls_transfer_the_same_bytes() {
    each_port(|r| {
        let (pool, scratch) = (pool(), Scratch::new());
        let file = scratch.open(8192, false);
        for (reads, writes) in [(false, false), (true, true)] {
            file.set_inline(Inline { reads, writes });
            let bytes = pattern(8192);
            r.write(token(1), &file, 0, &filled(&pool, &bytes), false);
            gather(&r, 1);
            let into = Segs::alloc(&pool, 8192).unwrap();
            r.read(token(2), &file, 0, &into);
            gather(&r, 1);
            assert!(into.to_vec() == bytes);
        }
    });
}

/// More requests than the submission queue has entries: all end, each once.
#[test]
fn full_submission_queue_loses_no_request() {
    each_port(|r| {
        let (pool, scratch) = (pool(), Scratch::new());
        let file = scratch.open(1 << 20, false);
        const REQUESTS: u64 = 5000;
        for word in 0..REQUESTS {
            match word % 2 {
                0 => {
                    let into = Segs::alloc(&pool, 4096).unwrap();
                    r.read(token(word), &file, (word * 512) % (1 << 20), &into);
                }
                _ => r.sync(token(word), &file),
            }
        }
        let mut words: Vec<u64> = gather(&r, REQUESTS as usize)
            .into_iter()
            .map(|(t, result)| {
                assert!(result.is_ok());
                t.user_data
            })
            .collect();
        words.sort_unstable();
        assert!(words.into_iter().eq(0..REQUESTS));
    });
}

/// A file dropped with requests under way is closed only after them.
/// O1 of ops.rs.
#[test]
fn a_dropped_file_stays_open_for_its_requests() {
    each_port(|r| {
        let (pool, a, b) = (pool(), Scratch::new(), Scratch::new());
        let file = a.open(0, false);
        r.write(token(1), &file, 0, &filled(&pool, &[5; 4096]), false);
        drop(file);
        let other = b.open(0, false); // would take the descriptor's number
        gather(&r, 1);
        assert_eq!(other.size().unwrap(), 0);
        assert_eq!(std::fs::read(&a.0).unwrap(), [5; 4096]);
    });
}

/// U8: a call in line in every turn holds up nothing that has to be handed to the kernel.
#[test]
fn inline_calls_do_not_delay_other_submissions() {
    each_port(|r| {
        let pool = pool();
        let memory = memfd_create("memory", MemfdFlags::CLOEXEC).expect("files in memory");
        let path = format!("/proc/self/fd/{}", memory.as_raw_fd());
        let how = OpenHow { size: Some(4 << 20), ..OpenHow::default() };
        let file = File::open(path, how).expect("it can be opened");
        let page = Segs::alloc(&pool, 4096).expect("memory");
        // Too long to be made in line.
        let long = Segs::alloc(&pool, 2 << 20).expect("memory");
        r.read(token(2), &file, 0, &long);
        let (mut open, mut completions) = (1, Vec::new());
        for _ in 0..1_000_000 {
            r.read(token(1), &file, 0, &page);
            let ended = gather(&r, 1);
            open = open + 1 - ended.len();
            completions.extend(ended.into_iter().filter(|(t, _)| *t == token(2)));
            if !completions.is_empty() {
                break;
            }
        }
        assert_eq!(completions, [(token(2), Ok(2 << 20))]);
        gather(&r, open);
    });
}
