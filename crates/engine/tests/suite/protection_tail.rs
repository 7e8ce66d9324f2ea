//! The tail of a protected unit: its place when the provider grows, and the marks in its map
//! without writes, after the unit is closed, and after a power failure.

use std::sync::{Arc, Mutex};

use engine::lun::{OpenSpec, close_device, open_device};
use engine::state_store::{MemoryStore, RecordKind};
use geom::Event;

use crate::tuples::*;
use crate::world::*;

/// Blocks of a provider, and the blocks that are left for data.
const SMALL: u64 = 1000;
const SMALL_LEFT: u64 = 975;

/// The same when it has grown.
const LONG: u64 = 1600;
const LONG_LEFT: u64 = 1566;

/// Offset of the map of a small one, bytes.
const MAP: usize = (SMALL_LEFT as usize + 16) * 512;

/// A provider of `blocks` over the contents of a disk.
fn plugged(seed: u64, blocks: u64, image: Option<&[u8]>) -> (World, Arc<TestDisk>) {
    let mut w = World::new(seed);
    let disk = w.disk("d0", blocks);
    if let Some(image) = image {
        let mut s = disk.state();
        let len = image.len().min(s.bytes.len());
        s.bytes[..len].copy_from_slice(&image[..len]);
        s.durable = s.bytes.clone();
    }
    (w, disk)
}

fn serve(w: &mut World, spec: &OpenSpec) {
    open_device(&mut w.control, &w.registry, "d0", spec).unwrap();
    w.map(&[(0, "d0", false)]);
    w.settle();
    (0..300).for_each(|_| w.turn());
}

fn world_of(seed: u64, blocks: u64, image: Option<&[u8]>) -> (World, Arc<TestDisk>) {
    let (mut w, disk) = plugged(seed, blocks, image);
    serve(&mut w, &spec(1));
    (w, disk)
}

/// With a state store that outlives the daemon.
fn kept(store: &Arc<MemoryStore>, blocks: u64, image: Option<&[u8]>) -> (World, Arc<TestDisk>) {
    let (mut w, disk) = plugged(1, blocks, image);
    w.registry.set_state_store(store.clone());
    serve(&mut w, &spec(1));
    (w, disk)
}

fn capacity(w: &World, h: &Host) -> u64 {
    let mut cdb = cdb16(0x9E, 0, 32);
    cdb[1] = 0x10;
    let data = w.run(h, 0, &cdb, 32, &[]).good().data;
    u64::from_be_bytes(data[..8].try_into().unwrap()) + 1
}

fn read_woven(w: &World, h: &Host, lba: u64) -> Vec<u8> {
    w.run(h, 0, &with_protect(read16(lba, 1), 1), 520, &[]).good().data
}

fn grow(w: &mut World, blocks: u64) {
    let provider = w.provider("d0");
    w.control.topology.post(Event::Resize(provider, blocks * 512));
    w.settle();
}

/// First and last block with tuples of their initiator.
fn write_ends(w: &World, h: &Host) -> [(u64, Vec<u8>); 2] {
    [0, SMALL_LEFT - 1].map(|lba| {
        let sent = woven(&[[lba as u8 | 1; 512]], 0x4242, lba as u32);
        w.run(h, 0, &with_protect(write16(lba, 1), 1), 0, &sent).good();
        (lba, sent)
    })
}

/// D5.
#[test]
fn a_grown_provider_keeps_its_tail_until_format_unit() {
    let store = MemoryStore::new();
    let (mut w, disk) = kept(&store, SMALL, None);
    let h = w.calm(0, "i1", &[0]);
    let ends = write_ends(&w, &h);
    grow(&mut w, LONG);
    // Nothing has changed for the initiator, and the tail is not its data.
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).status, 0);
    assert_eq!(capacity(&w, &h), SMALL_LEFT);
    assert_eq!(w.run(&h, 0, &read16(SMALL_LEFT, 1), 512, &[]).asc(), (5, 0x21, 0));
    let geoms = w.control.topology.view(0);
    let difference = (LONG - SMALL).to_string();
    assert!(geoms.iter().any(|g| g.show.iter().any(|(_, value)| *value == difference)));
    // The same holds after a restart, whether it has grown before or while it was not served.
    let mut image = disk.state().bytes.clone();
    for blocks in [LONG, LONG + 100] {
        let (w, disk) = kept(&store, blocks, Some(&image[..]));
        let h = w.calm(0, "i1", &[0]);
        assert_eq!(capacity(&w, &h), SMALL_LEFT);
        for (lba, sent) in &ends {
            assert_eq!(read_woven(&w, &h, *lba), *sent);
        }
        disk.state().bytes[7] ^= 1;
        assert_eq!(w.run(&h, 0, &read16(0, 1), 512, &[]).asc(), GUARD);
        disk.state().bytes[7] ^= 1;
        image = disk.state().bytes.clone();
    }
    // FORMAT UNIT makes a tail at the end: nothing of the old one is to be seen.
    let (w, disk) = kept(&store, LONG, Some(&image[..]));
    let h = w.calm(0, "i1", &[0]);
    w.run(&h, 0, &[4, 0x90, 0, 0, 0, 0], 0, &[0; 4]).good();
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 9));
    assert_eq!(capacity(&w, &h), LONG_LEFT);
    for lba in 0..LONG_LEFT {
        assert_eq!(w.run(&h, 0, &read16(lba, 1), 512, &[]).good().data, [0; 512], "{lba}");
    }
    let sent = woven(&[[9; 512]], 7, (LONG_LEFT - 1) as u32);
    w.run(&h, 0, &with_protect(write16(LONG_LEFT - 1, 1), 1), 0, &sent).good();
    let image = disk.state().bytes.clone();
    let (w, _) = kept(&store, LONG, Some(&image[..]));
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(capacity(&w, &h), LONG_LEFT);
    assert_eq!(read_woven(&w, &h, LONG_LEFT - 1), sent);
}

#[test]
fn a_grown_provider_without_its_record_is_not_initialized() {
    let store = MemoryStore::new();
    let (w, disk) = kept(&store, SMALL, None);
    let h = w.calm(0, "i1", &[0]);
    let ends = write_ends(&w, &h);
    let image = disk.state().bytes.clone();
    drop(w);
    // Another state folder, and a longer provider.
    let store = MemoryStore::new();
    let (mut w, disk) = plugged(1, LONG, Some(&image[..]));
    w.registry.set_state_store(store.clone());
    let messages: Arc<Mutex<Vec<String>>> = Arc::default();
    let ear = messages.clone();
    let hear = move |unit: &str, text: String| ear.lock().unwrap().push(format!("{unit}: {text}"));
    w.registry.set_operator_notifier(Arc::new(hear));
    serve(&mut w, &spec(1));
    let text = messages.lock().unwrap().join(" ");
    assert!(text.contains("d0: ") && text.contains("1000 blocks of 512"), "{text}");
    let h = w.calm(0, "i1", &[0]);
    for cdb in [TUR.to_vec(), read16(0, 1).to_vec(), write16(0, 1).to_vec()] {
        assert_eq!(w.run(&h, 0, &cdb, 512, &[7; 512]).asc(), (3, 0x31, 0), "{cdb:02x?}");
    }
    assert!(disk.state().bytes[..image.len()] == image[..], "nothing was written");
    assert!(disk.state().bytes[image.len()..].iter().all(|byte| *byte == 0));
    drop(w);
    // At its former length it has its former contents, and it may grow while it is served.
    let (mut w, disk) = kept(&store, SMALL, Some(&image[..]));
    let h = w.calm(0, "i1", &[0]);
    grow(&mut w, LONG);
    for (lba, sent) in &ends {
        assert_eq!(read_woven(&w, &h, *lba), *sent);
    }
    disk.state().bytes[7] ^= 1;
    assert_eq!(w.run(&h, 0, &read16(0, 1), 512, &[]).asc(), GUARD);
    drop(w);
    // Or the guards are given up.
    let store = MemoryStore::new();
    let (w, _) = kept(&store, LONG, Some(&image[..]));
    drop(w);
    let (mut w, _) = plugged(1, LONG, Some(&image[..]));
    w.registry.set_state_store(store.clone());
    serve(&mut w, &OpenSpec::default());
    drop(w);
    let (w, _) = kept(&store, LONG, Some(&image[..]));
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(capacity(&w, &h), LONG_LEFT);
    assert_eq!(w.run(&h, 0, &read16(0, 1), 512, &[]).good().data, [1; 512]);
}

#[test]
fn a_header_at_another_position_is_data() {
    let (w, disk) = world_of(1, SMALL, None);
    let header = disk.state().bytes[(SMALL as usize - 1) * 512..][..512].to_vec();
    drop(w);
    let mut image = vec![0; SMALL as usize * 512];
    image[5 * 512..6 * 512].copy_from_slice(&header);
    image[(SMALL as usize - 2) * 512..(SMALL as usize - 1) * 512].copy_from_slice(&header);
    let (w, _) = world_of(1, LONG, Some(&image[..]));
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(capacity(&w, &h), LONG_LEFT);
    assert_eq!(w.run(&h, 0, &read16(5, 1), 512, &[]).good().data, header);
}

#[test]
fn sanitize_does_not_move_the_tail() {
    let store = MemoryStore::new();
    let (mut w, _) = kept(&store, SMALL, None);
    let h = w.calm(0, "i1", &[0]);
    grow(&mut w, LONG);
    w.run(&h, 0, &[0x48, 1, 0, 0, 0, 0, 0, 0, 5, 0], 0, &[1, 0, 0, 1, 0xAA]).good();
    assert_eq!(capacity(&w, &h), SMALL_LEFT);
    assert_eq!(w.run(&h, 0, &read16(SMALL_LEFT - 1, 1), 512, &[]).good().data, [0xAA; 512]);
}

#[test]
fn a_provider_without_its_tail_is_refused_until_protection_is_dropped() {
    let store = MemoryStore::new();
    let (w, disk) = kept(&store, SMALL, None);
    let h = w.calm(0, "i1", &[0]);
    let ends = write_ends(&w, &h);
    let image = disk.state().bytes.clone();
    drop(w);
    let (mut w, disk) = plugged(1, SMALL - 1, Some(&image[..]));
    w.registry.set_state_store(store.clone());
    let refused = open_device(&mut w.control, &w.registry, "d0", &spec(1));
    let error = refused.err().unwrap().to_string();
    assert!(error.contains("1000 blocks") && error.contains("none"), "{error}");
    assert!(disk.state().log.is_empty(), "nothing was touched");
    // At its former length it has its former contents.
    let (w, _) = kept(&store, SMALL, Some(&image[..]));
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(read_woven(&w, &h, ends[1].0), ends[1].1);
    drop(w);
    // Given up: then it may be made anew.
    let (mut w, _) = plugged(1, SMALL - 1, None);
    w.registry.set_state_store(store.clone());
    serve(&mut w, &OpenSpec::default());
    assert_eq!(store.record("d0", RecordKind::Protection), Some(vec![]));
    drop(w);
    let (w, _) = kept(&store, SMALL - 1, None);
    let h = w.calm(0, "i1", &[0]);
    assert!(capacity(&w, &h) < SMALL_LEFT);
}

/// Regions that the map has marked.
fn marks(disk: &TestDisk) -> u32 {
    disk.state().bytes[MAP..][..4096].iter().map(|byte| byte.count_ones()).sum()
}

/// D6.
/// R5 of protection/regions.rs.
#[test]
fn marks_are_removed_when_idle_and_kept_during_writes() {
    let (w, disk) = world_of(1, SMALL, None);
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(marks(&disk), 0);
    w.run(&h, 0, &write16(5, 1), 0, &[1; 512]).good();
    assert_eq!(marks(&disk), 1);
    w.pass(20_000_000_000);
    assert_eq!(marks(&disk), 0);
    let before = disk.state().log.len();
    w.pass(60_000_000_000);
    assert_eq!(disk.state().log.len(), before, "an idle unit is left alone");
    // A write that is under way keeps its mark; it is made durable before the mark is removed.
    disk.state().hold = true;
    let tag = h.send(0, &write16(6, 1), 0, &[2; 512]);
    for _ in 0..50 {
        w.turn();
        if marks(&disk) == 1 {
            break;
        }
        w.release(&disk, 0);
    }
    w.pass(30_000_000_000);
    assert_eq!(marks(&disk), 1);
    w.release_all(&disk);
    w.answer(&h, tag).good();
    w.pass(20_000_000_000);
    assert_eq!(marks(&disk), 0);
    assert_eq!(disk.state().durable[6 * 512..7 * 512], [2; 512]);
    // The tuple is right for every initiator.
    assert_eq!(read_woven(&w, &h, 6), woven(&[[2; 512]], 0, 6));
}

/// D6.
#[test]
fn a_closed_unit_has_no_marks() {
    let (mut w, disk) = world_of(1, SMALL, None);
    let h = w.calm(0, "i1", &[0]);
    w.run(&h, 0, &write16(5, 1), 0, &[1; 512]).good();
    assert_eq!(marks(&disk), 1);
    h.session.close();
    (0..20).for_each(|_| w.turn());
    w.map(&[]);
    close_device(&mut w.control, &w.registry, "d0").unwrap();
    assert_eq!(marks(&disk), 0);
    assert_eq!(disk.state().durable[5 * 512..6 * 512], [1; 512]);
    // Nothing is repaired at the next start: a wrong guard is an error.
    let mut image = disk.state().bytes.clone();
    drop(w);
    image[5 * 512] ^= 1;
    let (w, _) = world_of(2, SMALL, Some(&image[..]));
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(w.run(&h, 0, &read16(5, 1), 512, &[]).asc(), GUARD);
}

#[test]
fn the_mark_of_a_failed_write_is_kept() {
    let (w, disk) = world_of(1, SMALL, None);
    let h = w.calm(0, "i1", &[0]);
    disk.state().fail = Some((SMALL_LEFT * 512, bio::Errno::Io));
    assert_ne!(w.run(&h, 0, &write16(10, 2), 0, &[2; 1024]).status, 0);
    disk.state().fail = None;
    w.pass(30_000_000_000);
    assert_eq!(marks(&disk), 1);
    let before = disk.state().log.len();
    w.pass(60_000_000_000);
    assert_eq!(disk.state().log.len(), before);
}

/// FORMAT UNIT while the marks of a busy unit are looked after: the map is the format's.
/// D3 of job/protection/mod.rs.
#[test]
fn format_unit_and_mark_cleaning_do_not_interfere() {
    let (w, disk) = world_of(1, SMALL, None);
    let h = w.calm(0, "i1", &[0]);
    for round in 0..20u64 {
        w.run(&h, 0, &write16(5, 1), 0, &[1; 512]).good();
        w.pass(4_900_000_000 + round * 10_000_000);
        w.run(&h, 0, &[4, 0x90, 0, 0, 0, 0], 0, &[0; 4]).good();
        w.run(&h, 0, &TUR, 0, &[]);
        assert_eq!(marks(&disk), 0);
        assert_eq!(w.run(&h, 0, &read16(5, 1), 512, &[]).good().data, [0; 512]);
    }
    w.check_empty();
}
