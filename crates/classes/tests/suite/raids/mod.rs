//! An array on disks in memory, and a model of the content of its first volume.

use std::time::Duration;

use bio::Errno;
use geom::{Access, GraphControl};
use serde_json::{Value, json};

use crate::world::{Disk, Open, World};

pub const INTEL: &str = "Intel";
pub const DDF: &str = "DDF";

/// Levels of a format with numbers of disks.
pub type Levels = &'static [(&'static str, usize)];

pub const INTEL_LEVELS: Levels = &[
    ("SINGLE", 1),
    ("RAID0", 3),
    ("RAID1", 2),
    ("RAID1E", 3),
    ("RAID10", 4),
    ("RAID5", 3),
    ("RAID5", 5),
];

pub const DDF_LEVELS: Levels = &[
    ("CONCAT", 2),
    ("RAID0", 2),
    ("RAID1", 3),
    ("RAID1E", 5),
    ("RAID10", 4),
    ("RAID4", 3),
    ("RAID5-LA", 4),
    ("RAID5-LS", 3),
    ("RAID5-RA", 4),
    ("RAID5-RS", 4),
    ("RAID6-LA", 4),
    ("RAID6-LS", 5),
    ("RAID6-RA", 5),
];

/// Those that can lose a disk.
pub const REDUNDANT: &[(&str, &str, usize)] = &[
    (INTEL, "RAID1", 2),
    (INTEL, "RAID1E", 3),
    (INTEL, "RAID10", 4),
    (INTEL, "RAID5", 3),
    (DDF, "RAID4", 3),
    (DDF, "RAID5-LS", 4),
    (DDF, "RAID6-LA", 5),
    (DDF, "RAID1", 2),
];

pub struct Raid {
    pub world: World,
    pub disks: Vec<Disk>,
    pub set: String,
    pub model: Vec<u8>,
}

impl Raid {
    /// A labelled array whose volume is in order.
    pub fn label(format: &str, level: &str, count: usize, extra: Value) -> Raid {
        let mut world = World::new();
        let len = if format == DDF { 36 << 20 } else { 3 << 20 };
        let disks: Vec<Disk> =
            (0..count).map(|i| world.disk(&format!("d{i}"), vec![0; len], 512)).collect();
        let names: Vec<String> = (0..count).map(|i| format!("d{i}")).collect();
        let mut params = json!({ "format": format, "level": level, "members": names });
        if format == DDF {
            params["size"] = json!(1 << 20);
        }
        for (key, value) in extra.as_object().into_iter().flatten() {
            params[key] = value.clone();
        }
        let answer = world.verb("raid", "label", "data", params);
        let answer = answer.unwrap_or_else(|e| panic!("{format} {level}: {e}"));
        let set = answer["array"].as_str().expect("a name").to_owned();
        assert_eq!(answer["provider"], json!(format!("raid/{set}/data")));
        let mut raid = Raid { world, disks, set, model: Vec::new() };
        raid.complete();
        raid.model = vec![0; raid.size()];
        raid
    }

    /// The same disks in a new world, in another order.
    pub fn reborn(&self) -> Raid {
        let all: Vec<usize> = (0..self.disks.len()).rev().collect();
        self.reborn_with(&all)
    }

    pub fn reborn_with(&self, which: &[usize]) -> Raid {
        let mut world = World::new();
        for i in which {
            world.attach(&format!("d{i}"), &self.disks[*i], 512, (0, 0));
        }
        world.control.settle().expect("at rest");
        let (disks, set, model) = (self.disks.clone(), self.set.clone(), self.model.clone());
        Raid { world, disks, set, model }
    }

    pub fn volume(&self) -> String {
        format!("raid/{}/data", self.set)
    }

    pub fn size(&self) -> usize {
        self.world.size(&self.volume()) as usize
    }

    pub fn show(&self, key: &str) -> String {
        self.world.show("raid", &self.set, key).join("\n")
    }

    pub fn state(&self) -> String {
        self.show("State")
    }

    pub fn subdisks(&self) -> String {
        self.show("Subdisks")
    }

    /// Whether a disk is one of an array's.
    pub fn holds(&self, set: &str, disk: &str) -> bool {
        let all = self.world.control.topology.view(0);
        let of = all.iter().filter(|geom| geom.class == "raid" && geom.name == set);
        of.flat_map(|geom| &geom.consumers).any(|c| c.provider.as_deref() == Some(disk))
    }

    pub fn settle(&mut self) {
        self.world.control.wait_until(Duration::from_millis(50), |_| false);
        self.world.control.settle().expect("at rest");
    }

    /// Waits until no member is being rebuilt.
    pub fn complete(&mut self) {
        for _ in 0..4000 {
            let busy = ["rebuild", "synchronised", "dirty"];
            let line = self.show("Volume");
            if self.state() == "OPTIMAL" && !busy.iter().any(|word| line.contains(word)) {
                self.world.control.settle().expect("at rest");
                return;
            }
            self.world.control.wait_until(Duration::from_millis(5), |_: &GraphControl| false);
        }
        panic!("{} {} {}", self.state(), self.show("Volume"), self.subdisks());
    }

    pub fn open(&mut self, access: Access) -> Open {
        self.world.open(&self.volume(), access)
    }

    pub fn try_write(&mut self, at: usize, bytes: &[u8]) -> Result<(), Errno> {
        let open = self.open(Access::WRITE);
        let done = self.world.write(&open, at as u64, bytes);
        if done.is_ok() {
            self.model[at..at + bytes.len()].copy_from_slice(bytes);
        }
        self.world.close(open);
        self.world.control.settle().expect("at rest");
        done
    }

    pub fn write(&mut self, at: usize, bytes: &[u8]) {
        self.try_write(at, bytes).expect("written");
    }

    /// Pieces of `bytes` at random places and of random lengths.
    pub fn random_writes(&mut self, seed: u64, bytes: &[u8]) {
        let sectors = bytes.len() / 512;
        let mut x = seed | 1;
        let mut below = |n: usize| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 33) as usize % n
        };
        let open = self.open(Access::WRITE);
        for _ in 0..40 {
            let at = below(sectors);
            let len = (1 + below(80)).min(sectors - at);
            let (at, end) = (at * 512, (at + len) * 512);
            self.world.write(&open, at as u64, &bytes[at..end]).expect("written");
            self.model[at..end].copy_from_slice(&bytes[at..end]);
        }
        self.world.close(open);
        self.world.control.settle().expect("at rest");
    }

    pub fn read_all(&mut self) -> Vec<u8> {
        let size = self.size();
        let open = self.open(Access::READ);
        let bytes = self.world.read(&open, 0, size).expect("read");
        self.world.close(open);
        bytes
    }

    pub fn lose(&mut self, disk: usize) {
        self.world.lose(&format!("d{disk}"));
        self.settle();
    }

    pub fn back(&mut self, disk: usize) {
        let media = self.disks[disk].clone();
        self.world.attach(&format!("d{disk}"), &media, 512, (0, 0));
        self.settle();
    }

    pub fn stop(&mut self) {
        let set = self.set.clone();
        self.world.verb("raid", "stop", &set, json!({})).expect("stopped");
    }

    pub fn insert_new(&mut self, name: &str) {
        let len = self.disks[0].bytes().len();
        self.world.disk(name, vec![0; len], 512);
        let set = self.set.clone();
        self.world.verb("raid", "insert", &set, json!({ "members": [name] })).expect("inserted");
    }

    /// The output of `dump` for a disk.
    pub fn record(&mut self, disk: usize) -> Value {
        let name = format!("d{disk}");
        let answer = self.world.verb("raid", "dump", "", json!({ "members": [name] }));
        answer.expect("a record")["records"][0].clone()
    }
}
