//! Images that cwfs64x made; see `vectors/README.md`.

use std::rc::Rc;

use fileserver::image::format::BLOCK;

use super::disk::Disk;

/// One of them.
pub struct Vector {
    pub name: &'static str,
    pub cache: &'static [u8],
    pub worm: Option<&'static [u8]>,
    pub once: bool,
    pub tree: &'static str,
    pub dumps: &'static str,
}

macro_rules! vector {
    ($name:literal, $part:literal) => {
        include_bytes!(concat!("vectors/", $name, ".", $part, ".rle"))
    };
}

pub const ALL: &[Vector] = &[
    Vector {
        name: "rows-once",
        cache: vector!("rows-once", "cache"),
        worm: Some(vector!("rows-once", "worm")),
        once: true,
        tree: include_str!("vectors/rows-once.tree"),
        dumps: include_str!("vectors/rows-once.dumps"),
    },
    Vector {
        name: "columns-worm",
        cache: vector!("columns-worm", "cache"),
        worm: Some(vector!("columns-worm", "worm")),
        once: false,
        tree: include_str!("vectors/columns-worm.tree"),
        dumps: include_str!("vectors/columns-worm.dumps"),
    },
    Vector {
        name: "plain",
        cache: vector!("plain", "cache"),
        worm: None,
        once: false,
        tree: include_str!("vectors/plain.tree"),
        dumps: "",
    },
];

fn u32_at(b: &[u8], at: usize) -> usize {
    u32::from_le_bytes(b[at..at + 4].try_into().unwrap()) as usize
}

/// A device as it was packed.
pub fn disk(name: &str, packed: &[u8], seed: u64) -> Rc<Disk> {
    let disk = Disk::new(name, (u32_at(packed, 0) * BLOCK) as u64, seed);
    let mut at = 8;
    while at < packed.len() {
        let (block, runs) = (u32_at(packed, at), u32_at(packed, at + 4));
        at += 8;
        let mut bytes = Vec::with_capacity(BLOCK);
        for _ in 0..runs {
            let n = u16::from_le_bytes([packed[at], packed[at + 1]]);
            for _ in 0..n {
                bytes.extend_from_slice(&packed[at + 2..at + 10]);
            }
            at += 10;
        }
        assert_eq!(bytes.len(), BLOCK);
        disk.with(|m| m.write((block * BLOCK) as u64, &bytes, true)).unwrap();
    }
    disk.with(|m| m.flush()).unwrap();
    disk
}
