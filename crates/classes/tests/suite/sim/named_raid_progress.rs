//! Progress that an array reports of a rebuild and of a resync, polled all the time. It never
//! decreases, and the last value before all is in order is 100 %.

use geom::{Access, Edge};
use serde_json::json;

use super::disk::Disk;
use super::life::{Life, MS};

const DISK: u64 = 64 << 10;
pub(super) const USED: u64 = DISK / 8 * 7;
pub(super) const STRIP: u64 = 1024;
/// Bytes of each disk that DDF takes.
const DDF: u64 = 32 << 20;

const ARRAYS: [(&str, &str, usize); 4] =
    [("Intel", "RAID1", 2), ("Intel", "RAID5", 3), ("DDF", "RAID1", 2), ("DDF", "RAID5", 3)];

pub(super) struct Array {
    pub(super) life: Life,
    pub(super) disks: Vec<Disk>,
    pub(super) set: String,
    pub(super) edge: Edge,
}

impl Array {
    pub(super) fn of((format, level, count): (&str, &str, usize)) -> Array {
        let bytes = DISK + if format == "DDF" { DDF } else { 0 };
        let disks: Vec<Disk> = (0..count).map(|i| Disk::new(bytes, i as u64)).collect();
        let mut life = Life::new(1, 2);
        let members: Vec<String> = (0..count).map(|i| format!("d{i}")).collect();
        members.iter().zip(&disks).for_each(|(name, disk)| life.plug(name, disk));
        life.settle();
        let with = json!({
            "format": format, "level": level, "members": members, "strip": STRIP,
            "size": USED, "assume_same": true,
        });
        let answer = life.verb("raid", "label", "data", with).expect("labelled");
        let set = answer["array"].as_str().expect("a name").to_owned();
        let edge = open(&mut life, &set);
        Array { life, disks, set, edge }
    }

    pub(super) fn bytes(&self) -> u64 {
        let t = &self.life.control.topology;
        let on = t.find(&format!("raid/{}/data", self.set)).expect("a volume");
        t.limits(on).expect("limits").media_bytes
    }

    fn write(&mut self) {
        self.life.write(self.edge, 0, vec![7; 512]).expect("written");
    }

    pub(super) fn slowly(&mut self) {
        let rate = json!({ "sync_rate": 1 << 20 });
        self.life.verb("raid", "configure", &self.set, rate).expect("a rate");
    }

    /// The power fails, and returns.
    pub(super) fn reboot(&mut self) {
        self.life = Life::new(2, 2);
        self.disks.iter().for_each(Disk::power_cut);
        for (i, disk) in self.disks.iter().enumerate() {
            self.life.plug(&format!("d{i}"), disk);
        }
        self.life.settle();
        self.edge = open(&mut self.life, &self.set);
    }

    /// Polls until all is in order, beside a user that writes; returns the reported progress of a
    /// pass.
    fn progress_until_in_order(&mut self, word: &str) -> Vec<u64> {
        let mut percents = Vec::new();
        for turn in 0..20_000 {
            self.life.pass(MS / 100);
            let line = self.life.show("raid", &self.set, "Volume");
            percents.extend(percent(&line, word));
            let in_order = self.life.show("raid", &self.set, "State") == "OPTIMAL";
            if in_order && !line.contains('%') {
                return percents;
            }
            if turn % 1000 == 999 {
                self.write();
            }
        }
        panic!("it never ends\n{}", self.life.dump_state());
    }
}

fn open(life: &mut Life, set: &str) -> Edge {
    life.open(&format!("raid/{set}/data"), Access::WRITE).expect("open").1
}

/// The percentage behind a word in a line about the volume.
fn percent(line: &str, word: &str) -> Option<u64> {
    let (_, rest) = line.split_once(word)?;
    rest.split('%').next()?.trim().parse().ok()
}

fn is_honest(what: (&str, &str, usize), percents: &[u64]) {
    assert!(percents.is_sorted(), "{what:?} went back: {percents:?}");
    assert_eq!(percents.last(), Some(&100), "{what:?}");
    let mut steps = percents.to_vec();
    steps.dedup();
    assert!(steps.len() > 2, "{what:?}: {steps:?}");
}

#[test]
fn progress_of_a_rebuild_never_decreases_and_ends_at_100() {
    for what in ARRAYS {
        let mut array = Array::of(what);
        array.slowly();
        let disk = array.disks[1].clone();
        array.life.pull("d1", &disk, false);
        array.life.pass(50 * MS);
        array.write();
        array.life.plug_soon("d1", &disk);
        let percents = array.progress_until_in_order("rebuild ");
        is_honest(what, &percents);
    }
}

/// After a crash.
#[test]
fn progress_of_a_resync_never_decreases_and_ends_at_100() {
    for what in ARRAYS {
        let mut array = Array::of(what);
        array.write();
        array.reboot();
        array.slowly();
        let percents = array.progress_until_in_order("synchronised ");
        is_honest(what, &percents);
    }
}
