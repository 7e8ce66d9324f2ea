//! Writer of the "newc" archive (magic 070701) which the kernel takes as its initramfs.
//!
//! Invariants
//!  C1  Every header and every file's data start at a multiple of 4 bytes.
//!  C2  A folder is written before anything inside it: the kernel makes no parents itself.
//!  C3  No name is written twice: the second of two folders is dropped.

use std::collections::BTreeSet;

const MODE_FOLDER: u32 = 0o040_000;
const MODE_FILE: u32 = 0o100_000;
const MODE_LINK: u32 = 0o120_000;

/// An archive under construction. Names are relative ("bin/sh"), a leading `/` is dropped.
#[derive(Default)]
pub struct Cpio {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    inode: u32,
}

impl Cpio {
    /// An empty archive.
    pub fn new() -> Cpio {
        Cpio::default()
    }

    /// Adds a folder and its parents, mode 755.
    pub fn folder(&mut self, name: &str) {
        let name = name.trim_matches('/');
        if name.is_empty() || self.folders.contains(name) {
            return;
        }
        if let Some((parent, _)) = name.rsplit_once('/') {
            self.folder(parent);
        }
        self.folders.insert(name.to_string());
        self.entry(name, MODE_FOLDER | 0o755, &[]);
    }

    /// Adds a regular file with its permission bits; parents are made.
    pub fn file(&mut self, name: &str, permissions: u32, data: &[u8]) {
        self.parents(name);
        self.entry(name.trim_matches('/'), MODE_FILE | (permissions & 0o7777), data);
    }

    /// Adds a symbolic link; parents are made.
    pub fn link(&mut self, name: &str, to: &str) {
        self.parents(name);
        self.entry(name.trim_matches('/'), MODE_LINK | 0o777, to.as_bytes());
    }

    /// Ends the archive. Archives may follow each other in one initramfs.
    pub fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn parents(&mut self, name: &str) {
        if let Some((parent, _)) = name.trim_matches('/').rsplit_once('/') {
            self.folder(parent);
        }
    }

    fn entry(&mut self, name: &str, mode: u32, data: &[u8]) {
        self.inode += 1;
        let links = if mode & MODE_FOLDER != 0 { 2 } else { 1 };
        let (size, name_size) = (data.len(), name.len() + 1);
        // inode mode uid gid links mtime size dev(2) rdev(2) name_size check
        let fields =
            [self.inode as usize, mode as usize, 0, 0, links, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend_from_slice(b"070701");
        for field in fields {
            self.bytes.extend_from_slice(format!("{field:08x}").as_bytes());
        }
        self.bytes.extend_from_slice(name.as_bytes());
        self.bytes.push(0);
        self.pad();
        self.bytes.extend_from_slice(data);
        self.pad();
    }

    fn pad(&mut self) {
        while !self.bytes.len().is_multiple_of(4) {
            self.bytes.push(0);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Cpio;

    /// C2, C3.
    #[test]
    fn c1_c2_c3_archive_has_the_newc_layout() {
        let mut cpio = Cpio::new();
        cpio.file("/a/b/c", 0o644, b"hello");
        cpio.file("a/b/d", 0o755, b"");
        let bytes = cpio.finish();
        let text = String::from_utf8_lossy(&bytes);
        let at: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert!(at.iter().all(|at| at % 4 == 0), "C1 {at:?}");
        let names: Vec<&str> =
            at.iter().map(|at| text[at + 110..].split('\0').next().unwrap()).collect();
        assert_eq!(names, ["a", "a/b", "a/b/c", "a/b/d", "TRAILER!!!"], "C2 C3");
    }
}
