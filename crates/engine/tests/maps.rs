//! LUN maps and sessions: random changes of the maps of two groups, on two cores, with data that
//! identify their unit; and many LUNs. A model predicts the unit attentions of each initiator.
//!
//! A binary of its own, because a test measures the resident memory of the process.

#[path = "suite/world/mod.rs"]
mod world;

use std::collections::{BTreeMap, VecDeque};

use engine::registry::Addressing;
use engine::{DeviceSpec, GroupSpec, LunChange, LunSpec};
use geom::Edge;
use reactor::SeededRandom;
use testkit::Seeds;
use wire::scsi::{Lun as Number, parse_luns};
use world::*;

const DISKS: usize = 5;
/// LUNs used, of every method of addressing.
const LUNS: [u64; 8] = [0, 1, 2, 255, 256, 16_383, 16_384, 0xff_ffff];

/// LUN to disk and read-only.
type Map = BTreeMap<u64, (usize, bool)>;

struct Member {
    host: Host,
    group: usize,
    map: Map,
    /// Pending unit attentions of each nexus that exists.
    paths: BTreeMap<u64, VecDeque<(u8, u8)>>,
    /// The disk that it knows under each number: it has read its identity, or it was the first
    /// there.
    known: BTreeMap<u64, usize>,
    listed: bool,
}

impl Member {
    /// Takes over a new map.
    fn see(&mut self, new: &Map) {
        for lun in LUNS {
            let (was, is) = (self.map.get(&lun), new.get(&lun));
            self.listed |= was.is_some() != is.is_some();
            match (was, is) {
                (Some(_), None) => drop(self.paths.remove(&lun)),
                (Some((a, _)), Some((b, _))) if a != b && self.paths.contains_key(&lun) => {
                    self.paths.remove(&lun);
                    self.begin(lun, *b);
                    self.listed = true;
                }
                _ => {}
            }
        }
        self.map.clone_from(new);
    }

    /// A nexus is made, if there is none: with an unknown unit it reports that LUNs have changed.
    fn begin(&mut self, lun: u64, disk: usize) {
        if !self.paths.contains_key(&lun) {
            self.listed |= *self.known.entry(lun).or_insert(disk) != disk;
            self.paths.insert(lun, VecDeque::from([(0x29, 0)]));
        }
    }

    /// The sense data with which the next command for a LUN must end before it does anything.
    fn must(&mut self, lun: u64) -> Option<(u8, u8, u8)> {
        let Some((disk, _)) = self.map.get(&lun).copied() else {
            return Some((5, 0x25, 0));
        };
        self.begin(lun, disk);
        let path = self.paths.entry(lun).or_default();
        if let Some((asc, ascq)) = path.pop_front() {
            return Some((6, asc, ascq));
        }
        if std::mem::take(&mut self.listed) {
            return Some((6, 0x3F, 0x0E));
        }
        (self.known.get(&lun) != Some(&disk)).then_some((5, 0x25, 0))
    }
}

struct Sim {
    w: World,
    random: SeededRandom,
    maps: [Map; 2],
    /// Which of two groups the third name belongs to.
    third: usize,
    members: Vec<Member>,
}

impl Sim {
    fn new(seed: u64) -> Sim {
        let mut w = World::new(seed);
        for i in 0..DISKS {
            let name = format!("d{i}");
            let disk = w.disk(&name, 8);
            disk.state().bytes.fill(i as u8 + 1);
            w.export(&name);
        }
        let map = Map::from([(0, (0, false))]);
        let mut sim = Sim {
            w,
            random: SeededRandom::new(seed),
            maps: [map.clone(), map],
            third: 0,
            members: Vec::new(),
        };
        sim.set_all();
        for (core, name, group) in [(0, "a", 0), (1, "b", 1), (1, "a2", 0), (0, "c", 0)] {
            let host = sim.w.host(core, name);
            let map = sim.maps[group].clone();
            let (paths, known, listed) = (BTreeMap::new(), BTreeMap::new(), false);
            sim.members.push(Member { host, group, map, paths, known, listed });
        }
        sim
    }

    fn line(lun: u64, (disk, read_only): (usize, bool)) -> LunSpec {
        LunSpec { lun, device: format!("d{disk}"), read_only }
    }

    /// Reports all conditions again.
    fn set_all(&self) {
        let group = |g: usize, names: &[&str]| GroupSpec {
            name: format!("g{g}"),
            initiators: names.iter().map(|n| n.to_string()).collect(),
            luns: self.maps[g].iter().map(|(l, d)| Sim::line(*l, *d)).collect(),
            ..GroupSpec::default()
        };
        let specs = match self.third {
            0 => [group(0, &["a*", "c"]), group(1, &["b"])],
            _ => [group(0, &["a*"]), group(1, &["b", "c"])],
        };
        self.w.registry.set_groups("iscsi", TARGET, &specs).unwrap();
    }

    /// One to three LUNs of a group change at once.
    fn change(&mut self) {
        let g = self.random.below(2) as usize;
        let mut changes = Vec::new();
        for _ in 0..=self.random.below(3) {
            let lun = LUNS[self.random.below(LUNS.len() as u64) as usize];
            if self.random.below(3) == 0 {
                self.maps[g].remove(&lun);
                changes.push(LunChange::Remove(lun));
            } else {
                let to = (self.random.below(DISKS as u64) as usize, self.random.below(4) == 0);
                self.maps[g].insert(lun, to);
                changes.push(LunChange::Set(Sim::line(lun, to)));
            }
        }
        if self.random.below(3) == 0 {
            self.set_all();
        } else {
            self.w.registry.change_luns("iscsi", TARGET, &format!("g{g}"), &changes).unwrap();
        }
        self.settle();
    }

    fn regroup(&mut self) {
        self.third = 1 - self.third;
        self.members[3].group = self.third;
        self.set_all();
        self.settle();
    }

    fn settle(&mut self) {
        self.w.turn();
        for m in &mut self.members {
            m.see(&self.maps[m.group]);
        }
    }

    fn command(&mut self) {
        let at = self.random.below(4) as usize;
        let lun = LUNS[self.random.below(LUNS.len() as u64) as usize];
        let m = &mut self.members[at];
        match self.random.below(10) {
            0 => {
                let cdb = [0xA0, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
                let data = self.w.run(&m.host, lun, &cdb, 256, &[]).good().data;
                let luns: Vec<u64> =
                    parse_luns(&data).unwrap().0.iter().map(|l| u64::from(l.number())).collect();
                assert_eq!(luns, m.map.keys().copied().collect::<Vec<_>>());
                if let Some((disk, _)) = m.map.get(&lun).copied() {
                    m.begin(lun, disk);
                }
                m.listed = false;
            }
            4 => {
                // The identity of the unit, in one of two ways; another page does not report it.
                let page = [
                    &[0x12, 0, 0, 0, 96, 0],
                    &[0x12, 1, 0x83, 0, 96, 0],
                    &[0x12, 1, 0x80, 0, 96, 0],
                ];
                let kind = self.random.below(3) as usize;
                self.w.run(&m.host, lun, page[kind], 96, &[]);
                if let Some((disk, _)) = m.map.get(&lun).copied() {
                    m.begin(lun, disk);
                    if kind < 2 {
                        m.known.insert(lun, disk);
                    }
                }
            }
            1..4 => {
                let must = m.must(lun);
                let read_only = m.map.get(&lun).is_some_and(|(_, ro)| *ro);
                let want = must.or(read_only.then_some((7, 0x27, 0))).unwrap_or_default();
                // The last block, which is never read.
                let a = self.w.run(&m.host, lun, &write16(7, 1), 0, &[0; 512]);
                assert_eq!(a.asc(), want, "LUN {lun}");
            }
            _ => {
                let must = m.must(lun);
                let a = self.w.run(&m.host, lun, &read16(1, 1), 512, &[]);
                assert_eq!(a.asc(), must.unwrap_or_default(), "LUN {lun}");
                if must.is_none() {
                    let (disk, _) = m.map[&lun];
                    assert_eq!(a.data, [disk as u8 + 1; 512], "LUN {lun} is disk {disk}");
                }
            }
        }
    }
}

/// P3 of nexus/paths.rs.
#[test]
fn each_session_sees_its_own_map_and_one_report_of_each_change() {
    for seed in Seeds::of(20) {
        let run = std::panic::catch_unwind(|| {
            let mut sim = Sim::new(seed);
            for _ in 0..400 {
                match sim.random.below(20) {
                    0..3 => sim.change(),
                    3 => sim.regroup(),
                    _ => sim.command(),
                }
            }
            let hosts = sim.members.iter().map(|m| &m.host);
            hosts.for_each(|h| h.session.close());
            sim.w.check_empty();
        });
        assert!(run.is_ok(), "seed {seed} fails");
    }
}

/// A write waits for its data while its unit is taken out of the initiator's map, exchanged for
/// another or made read-only, and then reserved by another initiator. It does not reach the medium.
/// P1 of nexus/paths.rs.
#[test]
fn a_write_waiting_for_data_does_not_reach_a_unit_unmapped_meanwhile() {
    let mut w = World::new(7);
    for (name, fill) in [("d0", 1), ("d1", 2)] {
        w.disk(name, 8).state().bytes.fill(fill);
        w.export(name);
    }
    type Luns = &'static [(u64, &'static str, bool)];
    let first: Luns = &[(0, "d0", false), (1, "d1", false)];
    let mine: Luns = &[(5, "d0", false)];
    let cases: [(Luns, (u8, u8, u8)); 3] = [
        (mine, (5, 0x25, 0)),
        (&[(0, "d1", false), (1, "d1", false)], (5, 0x25, 0)),
        (&[(0, "d0", true), (1, "d1", false)], (7, 0x27, 0)),
    ];
    for (then, want) in cases {
        w.groups(&[("a", &["i1"], first), ("b", &["i2"], first)]);
        w.settle();
        let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
        let (late, next) = b.begin(0, &write16(0, 1), 0, 512);
        assert_eq!(next, engine::Next::Data { wanted: 512 });
        // Not even when the core was not notified yet that the groups have changed.
        w.groups(&[("a", &["i1"], first), ("b", &["i2"], then)]);
        // A conflict precedes write protection.
        let reserves = want.0 == 5;
        if reserves {
            w.run(&a, 0, &[0x16, 0, 0, 0, 0, 0], 0, &[]).good();
        }
        b.give(late, &[9; 512]);
        assert_eq!(w.answer(&b, late).asc(), want, "{then:?}");
        for (lun, fill) in [(0, 1), (1, 2)] {
            let mut answer = w.run(&a, lun, &read16(0, 1), 512, &[]);
            while answer.status == 2 {
                answer = w.run(&a, lun, &read16(0, 1), 512, &[]);
            }
            assert_eq!(answer.good().data, [fill; 512], "LUN {lun}, {then:?}");
        }
        if reserves {
            w.run(&a, 0, &[0x17, 0, 0, 0, 0, 0], 0, &[]).good();
        }
        // Granted again, it is written again.
        w.groups(&[("a", &["i1"], first), ("b", &["i2"], first)]);
        w.settle();
        let mut answer = w.run(&b, 0, &write16(0, 1), 0, &[1; 512]);
        while answer.status == 2 {
            assert_eq!(answer.asc().0, 6, "{answer:?}");
            answer = w.run(&b, 0, &write16(0, 1), 0, &[1; 512]);
        }
        answer.good();
    }
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<u64>().unwrap() * 4096
}

#[test]
fn memory_per_mapping_and_per_session_stays_small_with_16384_luns() {
    const MANY: u64 = 16_384;
    let w = World::new(1);
    for i in 0..MANY {
        let name = format!("u{i}");
        let spec = DeviceSpec::new(&name, &name, Edge(0), 1 << 20, 512);
        w.registry.add_device("disk", spec).unwrap();
    }
    let line = |lun: u64| LunSpec { lun, device: format!("u{lun}"), read_only: false };
    let before = resident();
    let group = GroupSpec {
        name: "g".into(),
        initiators: vec!["*".into()],
        addressing: Addressing::Flat,
        luns: (0..MANY).map(line).collect(),
        ..GroupSpec::default()
    };
    w.registry.set_groups("iscsi", TARGET, &[group]).unwrap();
    let mapping = resident().saturating_sub(before) / MANY;
    assert!(mapping < 2048, "{mapping} bytes a mapping");
    let before = resident();
    let hosts: Vec<Host> = (0..512).map(|i| w.host(i % 2, &format!("h{i}"))).collect();
    let session = resident().saturating_sub(before) / 512;
    assert!(session < 64 << 10, "{session} bytes a session");
    println!("{mapping} bytes a mapping, {session} bytes a session");

    let h = &hosts[0];
    assert!(h.session.paths().is_empty());
    let cdb = [0xA0, 0, 0, 0, 0, 0, 0, 2, 0, 8, 0, 0];
    let data = w.run(h, 5, &cdb, 0x2_0008, &[]).good().data;
    assert_eq!(data.len() as u64, 8 + MANY * 8);
    assert_eq!(data[8..16], [0x40, 0, 0, 0, 0, 0, 0, 0]);
    let last = Number::new(MANY as u32 - 1).unwrap();
    assert_eq!(data[data.len() - 8..], last.encode_as(Addressing::Flat));
    assert_eq!(h.session.paths().len(), 1);
    assert_eq!(w.run(h, MANY - 1, &TUR, 0, &[]).asc(), (6, 0x29, 0));
    assert_eq!(h.session.paths().len(), 2);

    // One LUN is removed and added: every initiator gets one report, and initiators that used it
    // start with a new nexus.
    let change = |c| w.registry.change_luns("iscsi", TARGET, "g", &[c]).unwrap();
    change(LunChange::Remove(5));
    assert_eq!(w.run(h, 5, &TUR, 0, &[]).asc(), (5, 0x25, 0));
    change(LunChange::Set(line(5)));
    assert_eq!(w.run(h, 7, &TUR, 0, &[]).asc(), (6, 0x29, 0));
    assert_eq!(w.run(h, 7, &TUR, 0, &[]).asc(), (6, 0x3F, 0x0E));
    w.run(h, 7, &TUR, 0, &[]).good();
    assert_eq!(w.run(h, 5, &TUR, 0, &[]).asc(), (6, 0x29, 0));
    w.run(h, 5, &TUR, 0, &[]).good();
}
