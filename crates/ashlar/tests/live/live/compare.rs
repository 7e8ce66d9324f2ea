//! Comparison of the files of members, without the daemon.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::arrays::{Array, Class, DISK_BYTES};
use crate::fixture::Fixture;

/// Bytes of a strip of the arrays with parity.
const STRIP: usize = 64 << 10;
/// Bytes of each member of RAID5 that users write, at least, and of RAID6.
const WRITTEN: u64 = 6 << 20;

impl Array {
    /// Looks at the files.
    #[track_caller]
    pub fn compare(&self, fixture: &Fixture) {
        let read = |member: &&str| {
            let mut bytes = vec![0; DISK_BYTES as usize];
            File::open(fixture.path(member)).unwrap().read_exact_at(&mut bytes, 0).unwrap();
            bytes
        };
        if self.class == Class::Multipath {
            return;
        }
        let all: Vec<Vec<u8>> = self.members.iter().map(read).collect();
        match self.on {
            "five" => fits(self.on, &all, is_even),
            "six" => fits(self.on, &all, is_doubly_even),
            _ => {
                let data = DISK_BYTES as usize - 512;
                for (member, bytes) in self.members.iter().zip(&all) {
                    let wrong = bytes[..data].iter().zip(&all[0]).position(|(a, b)| a != b);
                    assert_eq!(wrong, None, "{member} is not as {}", self.members[0]);
                }
            }
        }
    }
}

/// Every row of strips fulfils `law`.
#[track_caller]
fn fits(on: &str, all: &[Vec<u8>], law: impl Fn(&[&[u8]]) -> bool) {
    let mut full = 0;
    for at in (0..WRITTEN as usize).step_by(STRIP) {
        let row: Vec<&[u8]> = all.iter().map(|bytes| &bytes[at..at + STRIP]).collect();
        assert!(law(&row), "{on}: the parity of the row at byte {at} of the disks is wrong");
        full += usize::from(row.iter().all(|strip| strip.iter().any(|b| *b != 0)));
    }
    assert!(full > 0, "{on}: nothing was written");
}

/// The sum of all is nothing.
fn is_even(row: &[&[u8]]) -> bool {
    (0..STRIP).all(|at| row.iter().fold(0, |sum, strip| sum ^ strip[at]) == 0)
}

/// Some two of the strips are P and Q of the others.
fn is_doubly_even(row: &[&[u8]]) -> bool {
    let count = row.len();
    (0..count).any(|q| {
        let others: Vec<usize> = (0..count).filter(|n| *n != q).collect();
        let even: Vec<&[u8]> = others.iter().map(|n| row[*n]).collect();
        is_even(&even) && others.iter().any(|p| is_q(row, q, *p))
    })
}

/// Strip `q` is the sum of the data, each times 2 to the power of its place in the row, in GF(256)
/// of polynomial 0x11d. DDF counts the places of P and Q too.
fn is_q(row: &[&[u8]], q: usize, p: usize) -> bool {
    (0..STRIP).all(|at| {
        let data = |n: usize| if n == q || n == p { 0 } else { row[n][at] };
        row[q][at] == (0..row.len()).rev().fold(0, |sum, n| twice(sum) ^ data(n))
    })
}

fn twice(byte: u8) -> u8 {
    let carry = if byte & 0x80 != 0 { 0x1d } else { 0 };
    byte << 1 ^ carry
}
