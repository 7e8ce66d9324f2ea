//! Disks whose records were changed by hand, byte by byte as the formats are published: none of the
//! code that reads them is used here.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::Path;

use md5::{Digest, Md5};

/// Bytes at a place.
pub type Edit<'a> = (usize, &'a [u8]);

/// A disk as it is found.
#[derive(Clone)]
pub struct Disk {
    pub bytes: Vec<u8>,
    pub sector: usize,
    /// Another serial number than that of the disk it was made from.
    pub stranger: bool,
}

impl Disk {
    pub fn read(path: &Path) -> Disk {
        Disk { bytes: std::fs::read(path).expect("an image"), sector: 512, stranger: false }
    }

    /// Writes only the bytes that are not zero, so the file is as sparse as the disk was.
    pub fn write(&self, path: &Path) {
        let mut file = File::create(path).expect("a file");
        file.set_len(self.bytes.len() as u64).expect("its size");
        for (n, piece) in self.bytes.chunks(4096).enumerate() {
            if piece.iter().any(|b| *b != 0) {
                file.seek(SeekFrom::Start(n as u64 * 4096)).expect("a place");
                file.write_all(piece).expect("written");
            }
        }
    }

    fn end(&self) -> usize {
        self.bytes.len() - self.sector
    }

    /// Its serial number is not the one that its records name.
    pub fn renamed(&self) -> Disk {
        Disk { stranger: true, ..self.clone() }
    }

    /// So many bytes larger or smaller, with the last `tail` bytes still at the end.
    pub fn resized(&self, by: i64, tail: usize) -> Disk {
        let len = self.bytes.len();
        let new = (len as i64 + by) as usize;
        let mut bytes = self.bytes.clone();
        bytes.resize(new, 0);
        bytes[new - tail..].copy_from_slice(&self.bytes[len - tail..]);
        Disk { bytes, ..self.clone() }
    }

    /// Sectors of 4096 bytes, with the last `n` of 512 at the places that they have then.
    pub fn with_large_sectors(&self, n: usize) -> Disk {
        let mut bytes = self.bytes.clone();
        for k in 1..=n {
            let (from, to) = (self.bytes.len() - k * 512, self.bytes.len() - k * 4096);
            bytes[to..to + 512].copy_from_slice(&self.bytes[from..from + 512]);
            bytes[to + 512..to + 4096].fill(0);
        }
        Disk { bytes, sector: 4096, ..self.clone() }
    }

    /// Other bytes, counted from `base`.
    pub fn at(&self, base: usize, edits: &[Edit]) -> Disk {
        let mut new = self.clone();
        for (offset, bytes) in edits {
            new.bytes[base + offset..][..bytes.len()].copy_from_slice(bytes);
        }
        new
    }

    /// Other bytes in the last sector.
    pub fn edited(&self, edits: &[Edit]) -> Disk {
        self.at(self.end(), edits)
    }

    /// The same for a mirror's record, with a right checksum.
    pub fn sealed(&self, edits: &[Edit]) -> Disk {
        let new = self.edited(edits);
        let sum = Md5::digest(&new.bytes[new.end()..new.end() + 119]);
        new.edited(&[(119, &sum[..])])
    }

    /// Other bytes in a record of Intel's that fits into a sector; with a right checksum.
    pub fn intel(&self, edits: &[Edit]) -> Disk {
        let at = self.bytes.len() - 1024;
        let mut new = self.at(at, edits);
        let word = |n: usize| {
            u32::from_le_bytes(new.bytes[at + n * 4..][..4].try_into().expect("four bytes"))
        };
        let words = word(9) as usize / 4;
        assert!(words <= 128, "a record of {words} words");
        let sum = (0..words).filter(|n| *n != 8).fold(0u32, |sum, n| sum.wrapping_add(word(n)));
        new.bytes[at + 32..at + 36].copy_from_slice(&sum.to_le_bytes());
        new
    }

    /// A number of a record of Intel's.
    pub fn intel_word(&self, offset: usize) -> u32 {
        let at = self.bytes.len() - 1024 + offset;
        u32::from_le_bytes(self.bytes[at..at + 4].try_into().expect("four bytes"))
    }

    fn big(&self, at: usize, len: usize) -> usize {
        self.bytes[at..at + len].iter().fold(0, |n, b| n << 8 | usize::from(*b))
    }

    /// Where a DDF disk's headers are: the anchor, the primary, the secondary.
    pub fn headers(&self) -> [usize; 3] {
        let anchor = self.bytes.len() - 512;
        [anchor, self.big(anchor + 96, 8) * 512, self.big(anchor + 104, 8) * 512]
    }

    /// Other bytes in one of those, with a right checksum.
    pub fn header(&self, at: usize, edits: &[Edit]) -> Disk {
        self.at(at, edits).summed(at, 512)
    }

    /// The same in all of them.
    pub fn all_headers(&self, edits: &[Edit]) -> Disk {
        self.headers().iter().fold(self.clone(), |disk, at| disk.header(*at, edits))
    }

    /// Where the first configuration record is, in both copies.
    pub fn configs(&self) -> [usize; 2] {
        let [_, primary, secondary] = self.headers();
        [primary, secondary].map(|header| header + self.big(header + 192 + 3 * 8, 4) * 512)
    }

    /// Other bytes in it, with right checksums.
    pub fn config(&self, edits: &[Edit]) -> Disk {
        let len = self.big(self.headers()[1] + 134, 2) * 512;
        self.configs().into_iter().fold(self.clone(), |disk, at| {
            assert_eq!(disk.bytes[at..at + 4], [0xee; 4], "a configuration record");
            disk.at(at, edits).summed(at, len)
        })
    }

    pub fn config_byte(&self, offset: usize) -> u8 {
        self.bytes[self.configs()[0] + offset]
    }

    /// A sequence number of its headers, changed by that much.
    pub fn sequence(&self, by: i32) -> [u8; 4] {
        (self.big(self.headers()[1] + 40, 4) as u32).wrapping_add_signed(by).to_be_bytes()
    }

    /// A byte of these sectors is another; no checksum knows.
    pub fn flipped(&self, places: &[usize]) -> Disk {
        let mut new = self.clone();
        places.iter().for_each(|at| new.bytes[*at] ^= 0x55);
        new
    }

    fn summed(mut self, at: usize, len: usize) -> Disk {
        self.bytes[at + 4..at + 8].fill(0xff);
        let sum = crc32(&self.bytes[at..at + len]);
        self.bytes[at + 4..at + 8].copy_from_slice(&sum.to_be_bytes());
        self
    }
}

/// The common CRC-32 (IEEE 802.3).
fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// Whether two files hold the same, from the first byte to `less` bytes before the end.
pub fn same(one: &Path, other: &Path, less: u64) -> bool {
    let open = |path: &Path| File::open(path).expect("an image");
    let (mut one, mut other) = (open(one), open(other));
    let len = |file: &File| file.metadata().expect("a size").len();
    let mut left = len(&one).saturating_sub(less);
    if len(&one) != len(&other) {
        return false;
    }
    let (mut a, mut b) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    while left > 0 {
        let n = left.min(1 << 20) as usize;
        one.read_exact(&mut a[..n]).expect("read");
        other.read_exact(&mut b[..n]).expect("read");
        if a[..n] != b[..n] {
            return false;
        }
        left -= n as u64;
    }
    true
}
