//! Deallocation of blocks: a unit reports the properties of the provider below, also when a layer
//! is inserted or removed under it. One UNMAP is one request, and deletes with a guarantee are not
//! deferred.

use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex};

use bio::{Attr, Bio, Flags, Op};
use engine::lun::{OpenSpec, open_device};
use geom::{
    Back, Class, Core, Create, Edge, Error, Flow, Geom, GeomId, Layer, NewProvider, Topology,
};

use crate::world::*;

/// A layer that acknowledges deletes and never sends them, so that deleted blocks keep their
/// contents, and reports this. ORDERED deletes are passed down.
struct Veil {
    below: Edge,
    seen: Arc<Mutex<Vec<Vec<Range<u64>>>>>,
}

impl Layer for Veil {
    fn delete_ranges(&self) -> u32 {
        u32::MAX
    }

    fn start(&self, bio: &mut Bio, _: &Core) -> Flow {
        if bio.op == Op::Delete {
            self.seen.lock().unwrap().push(bio.ranges().collect());
            if !bio.flags.has(Flags::ORDERED) {
                return Flow::Done(Ok(()));
            }
        }
        Flow::Down(self.below, 0)
    }

    fn done(&self, _: &mut Bio, _: u64, _: &Core) -> Back {
        Back::Up
    }
}

struct VeilGeom;

impl Geom for VeilGeom {}

#[derive(Default)]
struct VeilClass(Arc<Mutex<Vec<Vec<Range<u64>>>>>, Arc<AtomicU64>);

impl Class for VeilClass {
    fn name(&self) -> &'static str {
        "veil"
    }

    fn doc(&self) -> &'static str {
        "Puts deletes off for ever."
    }

    fn create(&self, t: &mut Topology, request: &Create<'_>) -> Result<GeomId, Error> {
        let below = request.members[0];
        let limits = t.limits(below).expect("there");
        let geom = t.new_geom("veil", request.name, "test", Box::new(VeilGeom))?;
        let c = t.attach_new(geom, below).map_err(|e| Error::of(e, "attach"))?;
        let layer = Arc::new(Veil { below: t.edge(c), seen: self.0.clone() });
        let attrs = vec![("GEOM::deletereadszero", Attr::Int(self.1.load(Relaxed)))];
        let name = request.name.into();
        let (stripe_bytes, stripe_offset) = (0, 0);
        let new = NewProvider { name, layer, limits, stripe_bytes, stripe_offset, attrs };
        t.new_provider(geom, new)?;
        Ok(geom)
    }
}

/// A unit whose disk gives up 4 KiB at a time, the first of them 1,536 bytes from the start, and
/// which reads as zeroes where it did; and a class to slip in.
fn unit() -> (World, Arc<TestDisk>, Arc<Mutex<Vec<Vec<Range<u64>>>>>) {
    unit_with(0)
}

/// With the value that the class reports for deleted bytes; 1: they read as zeroes.
fn unit_with(promise: u64) -> (World, Arc<TestDisk>, Arc<Mutex<Vec<Vec<Range<u64>>>>>) {
    let mut w = World::new(1);
    let disk = w.disk("d0", 4096);
    let d0 = w.provider("d0");
    let attrs = vec![
        ("GEOM::candelete", Attr::Int(1)),
        ("GEOM::deletereadszero", Attr::Int(1)),
        ("DISK::delete_granule", Attr::Int(4096)),
        ("DISK::delete_offset", Attr::Int(1536)),
    ];
    w.control.topology.set_attrs(d0, attrs);
    let class = VeilClass::default();
    let seen = class.0.clone();
    class.1.store(promise, Relaxed);
    w.control.topology.load(Arc::new(class)).unwrap();
    let spec = OpenSpec { sanitize: true, ..OpenSpec::default() };
    open_device(&mut w.control, &w.registry, "d0", &spec).unwrap();
    w.map(&[(0, "d0", false)]);
    w.settle();
    (w, disk, seen)
}

fn veil(w: &mut World) -> GeomId {
    let below = w.provider("d0");
    let params = serde_json::Value::Null;
    let request = Create { name: "d0.veil", members: &[], params: &params };
    let geom = w.control.insert("veil", below, &request).unwrap();
    w.settle();
    geom
}

fn be32_at(page: &[u8], at: usize) -> u32 {
    u32::from_be_bytes(page[at..at + 4].try_into().unwrap())
}

/// LBPRZ of page B2h and of READ CAPACITY(16).
fn zeroes(w: &World, h: &Host) -> (bool, bool) {
    let vpd = w.run(h, 0, &[0x12, 1, 0xB2, 0, 8, 0], 8, &[]).good().data;
    let mut capacity = cdb16(0x9E, 0, 32);
    capacity[1] = 0x10;
    let capacity = w.run(h, 0, &capacity, 32, &[]).good().data;
    (vpd[5] >> 2 & 7 != 0, capacity[14] >> 6 & 1 == 1)
}

fn unmap(w: &World, h: &Host, runs: &[(u64, u32)]) -> CommandResult {
    let len = runs.len() as u16 * 16;
    let mut list = (len + 6).to_be_bytes().to_vec();
    list.extend(len.to_be_bytes());
    list.extend([0; 4]);
    for (lba, blocks) in runs {
        list.extend(lba.to_be_bytes());
        list.extend(blocks.to_be_bytes());
        list.extend([0; 4]);
    }
    let [a, b] = (len + 8).to_be_bytes();
    w.run(h, 0, &[0x42, 0, 0, 0, 0, 0, 0, a, b, 0], 0, &list)
}

#[test]
fn page_b0_reports_the_unmap_limits_of_the_provider() {
    let (w, _, _) = unit();
    let h = w.calm(0, "i1", &[0]);
    let page = w.run(&h, 0, &[0x12, 1, 0xB0, 0, 64, 0], 64, &[]).good().data;
    assert_eq!((be32_at(&page, 20), be32_at(&page, 24)), (1 << 20, 256));
    assert_eq!((be32_at(&page, 28), be32_at(&page, 32)), (8, 1 << 31 | 3), "UGAVALID, block 3");
    w.check_empty();
}

#[test]
fn unmap_descriptors_are_sorted_and_merged_into_one_request() {
    let (mut w, _, seen) = unit();
    veil(&mut w);
    let h = w.calm(0, "i1", &[0]);
    unmap(&w, &h, &[(100, 4), (7, 0), (8, 8), (104, 4), (12, 8), (200, 1)]).good();
    let blocks = |a: u64, b: u64| a * 512..b * 512;
    let wanted = vec![blocks(8, 20), blocks(100, 108), blocks(200, 201)];
    assert_eq!(*seen.lock().unwrap(), [wanted]);
    unmap(&w, &h, &[]).good();
    unmap(&w, &h, &[(5, 0)]).good();
    assert_eq!(unmap(&w, &h, &[(0, 1), (4096, 1)]).asc(), (5, 0x21, 0));
    assert_eq!(seen.lock().unwrap().len(), 1, "nothing of a list that is refused");
    w.check_empty();
}

#[test]
fn a_disk_that_takes_one_range_per_request_gets_one_at_a_time() {
    let (w, disk, _) = unit();
    let h = w.calm(0, "i1", &[0]);
    unmap(&w, &h, &[(100, 4), (8, 8)]).good();
    let log = disk.state().log.clone();
    let deleted = log.iter().filter(|d| d.op == Op::Delete).map(|d| (d.offset, d.length));
    assert_eq!(deleted.collect::<Vec<_>>(), [(8 * 512, 4096), (100 * 512, 2048)]);
    w.check_empty();
}

/// F1: the guarantee for deleted blocks is withdrawn and reported, and given again.
#[test]
fn inserting_or_removing_a_layer_raises_inquiry_data_has_changed() {
    const CHANGED: (u8, u8, u8) = (6, 0x3F, 3);
    let (mut w, disk, _) = unit();
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(zeroes(&w, &h), (true, true));
    let geom = veil(&mut w);
    assert_eq!(w.run(&h, 0, &[0; 6], 0, &[]).asc(), CHANGED);
    assert_eq!(zeroes(&w, &h), (false, false));
    // FORMAT UNIT zeroes; deleting would not do it.
    w.run(&h, 0, &write16(9, 1), 0, &[1; 512]).good();
    w.run(&h, 0, &[4, 0, 0, 0, 0, 0], 0, &[]).good();
    assert!(disk.state().durable[..4096 * 512].iter().all(|b| *b == 0));
    assert!(disk.state().log.iter().any(|d| d.op == Op::WriteZeroes));
    w.control.remove(geom).unwrap();
    w.settle();
    assert_eq!(w.run(&h, 0, &[0; 6], 0, &[]).asc(), CHANGED);
    assert_eq!(zeroes(&w, &h), (true, true));
    w.run(&h, 0, &[0; 6], 0, &[]).good();
    w.check_empty();
}

/// U4: a FORMAT UNIT that frees blocks, because they read as zeroes then, has freed them too.
#[test]
fn deletes_of_a_format_are_not_deferred() {
    let (mut w, disk, seen) = unit_with(1);
    veil(&mut w);
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(zeroes(&w, &h), (true, true), "so it may delete");
    w.run(&h, 0, &write16(9, 1), 0, &[1; 512]).good();
    unmap(&w, &h, &[(8, 8)]).good();
    assert!(!disk.state().log.iter().any(|d| d.op == Op::Delete), "others are put off");
    w.run(&h, 0, &[4, 0, 0, 0, 0, 0], 0, &[]).good();
    let log = disk.state().log.clone();
    assert!(!log.iter().any(|d| d.op == Op::WriteZeroes), "it deletes");
    let deleted: u64 = log.iter().filter(|d| d.op == Op::Delete).map(|d| d.length).sum();
    assert_eq!(deleted, 4096 * 512, "all of it");
    assert_eq!(log.last().map(|d| d.op), Some(Op::Flush), "and durably");
    assert_eq!(seen.lock().unwrap().len(), 2);
    let read = w.run(&h, 0, &read16(9, 1), 512, &[]).good().data;
    assert!(read.iter().all(|b| *b == 0));
    w.check_empty();
}

/// U4: a SANITIZE that frees blocks has freed them when it ends, even if other deletes are
/// deferred.
#[test]
fn deletes_of_a_sanitize_are_not_deferred() {
    let (mut w, disk, seen) = unit();
    veil(&mut w);
    let h = w.calm(0, "i1", &[0]);
    unmap(&w, &h, &[(0, 8)]).good();
    assert!(!disk.state().log.iter().any(|d| d.op == Op::Delete), "others are put off");
    w.run(&h, 0, &[0x48, 2, 0, 0, 0, 0, 0, 0, 0, 0], 0, &[]).good();
    let log = disk.state().log.clone();
    let deleted: Vec<_> = log.iter().filter(|d| d.op == Op::Delete).collect();
    assert_eq!(deleted.iter().map(|d| d.length).sum::<u64>(), 4096 * 512, "all of it");
    assert_eq!(log.last().map(|d| d.op), Some(Op::Flush), "and durably");
    assert_eq!(seen.lock().unwrap().len(), 2);
    w.check_empty();
}
