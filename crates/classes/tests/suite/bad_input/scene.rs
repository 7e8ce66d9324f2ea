//! A cell of the table, and its check.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use classes::write_plan::{WritePlan, WriteStep};
use md5::{Digest, Md5};
use serde_json::json;

use crate::world::{Disk, Media, World};

pub const MIB: usize = 1 << 20;

/// A disk as it is found.
#[derive(Clone)]
pub struct Found {
    pub name: String,
    pub serial: String,
    pub bytes: Vec<u8>,
    pub sector: u32,
}

impl Found {
    /// Under another name and serial number.
    pub fn called(&self, name: &str) -> Found {
        Found { name: name.into(), serial: name.into(), ..self.clone() }
    }

    /// Sectors of 4096 bytes, with the last `n` sectors of 512 at the places that they have then.
    pub fn with_large_sectors(&self, n: usize) -> Found {
        let mut bytes = self.bytes.clone();
        for k in 1..=n {
            let from = self.bytes.len() - k * 512;
            let to = self.bytes.len() - k * 4096;
            bytes[to..to + 512].copy_from_slice(&self.bytes[from..from + 512]);
            bytes[to + 512..to + 4096].fill(0);
        }
        Found { bytes, sector: 4096, ..self.clone() }
    }

    /// So many bytes larger (or smaller), with the last `tail` bytes still at the end.
    pub fn resized(&self, by: i64, tail: usize) -> Found {
        let len = self.bytes.len();
        let end = self.bytes[len - tail..].to_vec();
        let new = (len as i64 + by) as usize;
        let mut bytes = self.bytes.clone();
        bytes.resize(new, 0);
        bytes[new - tail..].copy_from_slice(&end);
        Found { bytes, ..self.clone() }
    }

    /// Other bytes in the last sector.
    pub fn edited(&self, edits: &[(usize, &[u8])]) -> Found {
        let mut new = self.clone();
        let at = new.bytes.len() - new.sector as usize;
        for (offset, bytes) in edits {
            new.bytes[at + offset..][..bytes.len()].copy_from_slice(bytes);
        }
        new
    }

    /// The same for a record of mirror's, with a right checksum.
    pub fn sealed(&self, edits: &[(usize, &[u8])]) -> Found {
        let new = self.edited(edits);
        let at = new.bytes.len() - new.sector as usize;
        let sum = Md5::digest(&new.bytes[at..at + 119]);
        new.edited(&[(119, &sum[..])])
    }

    /// Its content after a plan of writes.
    pub fn written(&self, plan: &WritePlan) -> Found {
        let mut new = self.clone();
        for step in plan.steps() {
            if let WriteStep::Write { offset, bytes } = step {
                new.bytes[*offset as usize..][..bytes.len()].copy_from_slice(bytes);
            }
        }
        new
    }

    pub fn size(&self) -> [u8; 8] {
        (self.bytes.len() as u64).to_le_bytes()
    }
}

/// A cell: the disks, which one is bad, and words of the reason.
pub struct Scene {
    pub name: &'static str,
    pub disks: Vec<Found>,
    pub bad: usize,
    pub words: &'static str,
}

pub fn scene(what: &'static str, good: &[Found], bad: Found, words: &'static str) -> Scene {
    let disks: Vec<Found> = good.iter().cloned().chain([bad]).collect();
    Scene { name: what, bad: disks.len() - 1, disks, words }
}

/// The common CRC-32 (polynomial 0xedb88320).
pub fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0xedb8_8320 * (crc & 1)))
    };
    !bytes.iter().fold(u32::MAX, step)
}

/// The text about a provider, from the class's taste outcome and its lists.
pub fn reported_text(world: &World, class: &str, name: &str) -> String {
    let view = world.control.topology.view(0);
    let mut outcome = world.taste_outcome(name, class);
    for geom in view.iter().filter(|g| g.class == class && !g.withering) {
        for (key, value) in &geom.show {
            let of_it = value.starts_with(&format!("{name}:")) || *key == "State";
            if of_it {
                outcome.push_str(&format!("\n{key} {value}"));
            }
        }
    }
    outcome
}

impl Scene {
    pub fn found(&self) -> (World, Vec<Disk>) {
        let mut world = World::new();
        let mut disks = Vec::new();
        for found in &self.disks {
            let bytes = found.bytes.clone();
            let media = Media { durable: bytes.clone(), bytes, ..Media::default() };
            let disk = Disk(Arc::new(Mutex::new(media)));
            world.attach_as(&found.name, &found.serial, &disk, found.sector, (0, 0));
            disks.push(disk);
        }
        world.control.settle().expect("at rest");
        (world, disks)
    }
}

/// Tastes the disks of a cell, starts all that can be started, and checks the result for the bad
/// one.
pub fn judge(class: &str, cell: &Scene) {
    let (mut world, disks) = cell.found();
    let bad = &cell.disks[cell.bad];
    let mut why = reported_text(&world, class, &bad.name);
    match class {
        // It waits for members that are missing.
        "mirror" => {
            let there = |c: &geom::GraphControl| c.topology.find("mirror/w").is_some();
            world.control.wait_until(Duration::from_secs(6), there);
        }
        "raid" => {
            let view = world.control.topology.view(0);
            let sets = view.iter().filter(|g| g.class == "raid").map(|g| g.name.clone());
            for set in sets.collect::<Vec<_>>() {
                let _ = world.verb("raid", "start", &set, json!({ "force": true }));
            }
        }
        _ => {}
    }
    world.control.wait_until(Duration::from_millis(20), |_| false);
    world.control.settle().expect("at rest");
    why.push_str(&reported_text(&world, class, &bad.name));
    println!("{class}, {}: {why}", cell.name);
    assert!(why.contains(cell.words), "{class}, {}: {why}", cell.name);
    let same = disks[cell.bad].bytes() == bad.bytes;
    assert!(same, "{class}, {}: something was written", cell.name);
    assert_eq!(disks[cell.bad].0.lock().expect("media").steps, 0, "{class}, {}", cell.name);
}
