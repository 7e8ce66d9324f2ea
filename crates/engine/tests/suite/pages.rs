//! Reported properties of units against their behaviour.
//!
//! * every opcode and service action: REPORT SUPPORTED OPERATION CODES agrees with the answers
//! * every bit outside the usage maps is refused with a pointer to it
//! * every data-in command with every allocation length: a prefix of the whole;
//!   lengths inside are those of the whole
//! * mode pages: changeable bits, all-or-nothing, saving, resets, unit attentions

use std::collections::BTreeSet;
use std::sync::Arc;

use bio::Errno;
use engine::lun::{OpenSpec, open_device};
use engine::registry::{DeviceView, LunView, RegistryView};
use engine::state_store::{MemoryStore, RecordKind};
use engine::{TmFunction, UnitKind};

use crate::world::{self, BLOCK, Host, TUR, World, cdb16};

/// Opcodes whose CDB lengths are known, and service actions in byte 1.
fn cdb_len(opcode: u8) -> usize {
    [6, 10, 10, 32, 16, 12, 16, 16][usize::from(opcode >> 5)]
}

/// One row of REPORT SUPPORTED OPERATION CODES.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
struct Row {
    opcode: u8,
    action: Option<u16>,
    usage: Vec<u8>,
}

fn maintenance(options: u8, opcode: u8, action: u16) -> [u8; 12] {
    let [high, low] = action.to_be_bytes();
    [0xA3, 0x0C, options, opcode, high, low, 0, 0, 0xff, 0xff, 0, 0]
}

/// All commands by option 000b, each with its map by 001b or 010b.
fn rows(world: &World, host: &Host) -> Vec<Row> {
    let all = world.run(host, 0, &maintenance(0, 0, 0), 0xffff, &[]).good().data;
    let timed = world.run(host, 0, &maintenance(0x80, 0, 0), 0xffff, &[]).good().data;
    assert_eq!(all.len() % 8, 4);
    assert_eq!(timed.len() - 4, (all.len() - 4) / 8 * 20);
    let mut out = Vec::new();
    for (plain, timed) in all[4..].chunks(8).zip(timed[4..].chunks(20)) {
        let (opcode, flags) = (plain[0], plain[5]);
        let action = u16::from_be_bytes([plain[2], plain[3]]);
        assert_eq!((timed[0], timed[5], &timed[8..10]), (opcode, flags | 2, &[0, 10][..]));
        let option = if flags & 1 != 0 { 2 } else { 1 };
        let one = world.run(host, 0, &maintenance(option, opcode, action), 0xffff, &[]).good().data;
        assert_eq!((one[1], &one[2..4], &one[2..4]), (3, &plain[6..8], &plain[6..8]));
        let usage = one[4..].to_vec();
        assert_eq!(usage.len(), usize::from(u16::from_be_bytes([plain[6], plain[7]])));
        let option = 0x80 | option;
        let one = world.run(host, 0, &maintenance(option, opcode, action), 0xffff, &[]).good().data;
        assert_eq!((one[1], one[4 + usage.len()..].to_vec()), (0x83, timed[8..].to_vec()));
        let action = (flags & 1 != 0).then_some(action);
        out.push(Row { opcode, action, usage });
    }
    out
}

/// A CDB of a row with nothing but its opcode and service action.
fn bare(opcode: u8, action: Option<u16>) -> Vec<u8> {
    let mut cdb = vec![0; cdb_len(opcode)];
    cdb[0] = opcode;
    let [high, low] = action.unwrap_or(0).to_be_bytes();
    match opcode {
        0x7F => (cdb[7], cdb[8], cdb[9]) = (24, high, low),
        _ => cdb[1] |= low,
    }
    cdb
}

/// A world whose unit is calm, and a host.
fn calm() -> (World, Host) {
    calm_in(World::simple(7, 2048))
}

fn calm_in(world: World) -> (World, Host) {
    let host = world.calm(0, "iqn.2024-01.test:h", &[0]);
    (world, host)
}

/// Units that serve different commands: 32-byte ones are of type 2 only.
fn kinds() -> [(World, Host); 3] {
    [World::simple(7, 2048), World::protected(7, 2048, 1), World::protected(7, 2048, 2)]
        .map(calm_in)
}

#[test]
fn commands_of_32_bytes_are_reported_only_for_type_2_units() {
    let long = kinds().map(|(w, h)| rows(&w, &h).iter().filter(|r| r.opcode == 0x7F).count());
    assert_eq!(long, [0, 0, 5]);
}

fn pointer(host_answer: &world::CommandResult) -> Option<(u16, Option<u8>)> {
    host_answer.sense().field.map(|f| (f.byte, f.bit))
}

#[test]
fn supported_operation_codes_agree_with_executed_commands() {
    for (world, host) in kinds() {
        agrees(&world, &host, "disk");
    }
}

/// A unit of every handler, with and without SANITIZE, on a disk that frees blocks and writes them
/// atomically and on one that is only read.
fn units() -> Vec<(String, World, Host)> {
    let mut units = Vec::new();
    for &kind in UnitKind::ALL {
        for (sanitize, read_only) in [(false, false), (true, false), (false, true), (true, true)] {
            let mut world = World::new(7);
            world.disk_keeping("d0", 2048, BLOCK, if read_only { 0 } else { u64::MAX });
            let name = Some(kind.name().into());
            let spec = OpenSpec { handler: name, sanitize, read_only, ..OpenSpec::default() };
            open_device(&mut world.control, &world.registry, "d0", &spec).unwrap();
            world.map(&[(0, "d0", false)]);
            let what = format!("{}, sanitize {sanitize}, read_only {read_only}", kind.name());
            let (world, host) = calm_in(world);
            units.push((what, world, host));
        }
    }
    units
}

/// S1.
#[test]
fn every_handler_serves_the_commands_that_it_reports_and_no_others() {
    for (what, world, host) in units() {
        agrees(&world, &host, &what);
    }
}

#[test]
fn pages_of_every_handler_offer_exactly_the_commands_that_it_serves() {
    let mut disks = 0;
    for (what, world, host) in units() {
        let rows = rows(&world, &host);
        let page = |code: u8| world.run(&host, 0, &[0x12, 1, code, 0, 0xff, 0], 0xff, &[]);
        let listed = page(0).good().data;
        let is_disk = listed[4..].contains(&0xB0);
        for code in [0xB0, 0xB1, 0xB2] {
            assert_eq!(listed[4..].contains(&code), is_disk, "{what}: page {code:x}");
            assert_eq!(page(code).status == 0, is_disk, "{what}: page {code:x}");
        }
        if !is_disk {
            continue;
        }
        disks += 1;
        let [limits, medium, freeing] = [0xB0, 0xB1, 0xB2].map(|code| page(code).good().data);
        let mut capacity = [0; 16];
        (capacity[0], capacity[1], capacity[13]) = (0x9E, 0x10, 32);
        let capacity = world.run(&host, 0, &capacity, 32, &[]).good().data;
        let any = |bytes: &[u8]| bytes.iter().any(|b| *b != 0);
        let offers = [
            ("MAXIMUM COMPARE AND WRITE LENGTH", limits[5] != 0, 0x89, None),
            ("MAXIMUM UNMAP LBA COUNT", any(&limits[20..24]), 0x42, None),
            ("MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT", any(&limits[24..28]), 0x42, None),
            ("OPTIMAL UNMAP GRANULARITY", any(&limits[28..32]), 0x42, None),
            ("MAXIMUM WRITE SAME LENGTH, 10", any(&limits[36..44]), 0x41, None),
            ("MAXIMUM WRITE SAME LENGTH, 16", any(&limits[36..44]), 0x93, None),
            ("MAXIMUM ATOMIC TRANSFER LENGTH", any(&limits[44..48]), 0x9C, None),
            ("WABEREQ", medium[7] & 0xC0 != 0, 0x48, Some(2)),
            ("WACEREQ", medium[7] & 0x30 != 0, 0x48, Some(3)),
            ("LBPU", freeing[5] & 0x80 != 0, 0x42, None),
            ("PROVISIONING TYPE", freeing[6] & 7 != 0, 0x42, None),
            ("LBPME", capacity[14] & 0x80 != 0, 0x42, None),
        ];
        for (field, is_offered, opcode, action) in offers {
            let is_served = rows.iter().any(|r| (r.opcode, r.action) == (opcode, action));
            assert_eq!(is_offered, is_served, "{what}: {field}");
        }
        // The commands are served without UNMAP, too.
        let mut same16 = cdb16(0x93, 0, 1);
        same16[1] = 0x08;
        let same10 = [0x41, 0x08, 0, 0, 0, 0, 0, 0, 1, 0];
        for (field, bit, cdb) in [("LBPWS", 0x40, &same16[..]), ("LBPWS10", 0x20, &same10[..])] {
            let answer = world.run(&host, 0, cdb, 0, &[0; BLOCK]);
            let is_offered = freeing[5] & bit != 0;
            assert_eq!(answer.status == 0, is_offered, "{what}: {field}: {answer:x?}");
        }
    }
    assert!(disks >= 8, "{disks} units with the pages of disks");
}

fn agrees(world: &World, host: &Host, what: &str) {
    let rows = rows(world, host);
    let known: BTreeSet<(u8, Option<u16>)> = rows.iter().map(|r| (r.opcode, r.action)).collect();
    assert_eq!(known.len(), rows.len());
    let with_actions: BTreeSet<u8> =
        rows.iter().filter(|r| r.action.is_some()).map(|r| r.opcode).collect();
    for opcode in 0..=255u8 {
        let served = rows.iter().any(|r| r.opcode == opcode);
        let actions = if with_actions.contains(&opcode) { 32 } else { 1 };
        for action in 0..actions {
            let action = with_actions.contains(&opcode).then_some(action);
            let known = known.contains(&(opcode, action));
            let report = maintenance(3, opcode, action.unwrap_or(0));
            let report = world.run(host, 0, &report, 0xffff, &[]).good().data;
            assert_eq!(report[1] == 3, known, "{what}: {opcode:#x} {action:?}");
            assert!(known || report == [0, 1, 0, 0]);
            // A reserved bit that is set keeps a served command from running.
            let mut cdb = bare(opcode, action);
            if known {
                let usage =
                    &rows.iter().find(|r| (r.opcode, r.action) == (opcode, action)).unwrap();
                let at = usage.usage.len() - 1;
                let at = if opcode == 0x7F { 1 } else { at };
                cdb[at] |= 0x80;
            }
            let answer = world.run(host, 0, &cdb, 0, &[]);
            let field = if opcode == 0x7F { (8, None) } else { (1, Some(4)) };
            match (known, served) {
                (true, _) => {
                    assert_eq!(answer.asc(), (5, 0x24, 0), "{what}: {opcode:#x} {action:?}");
                    assert_ne!(pointer(&answer), Some(field));
                }
                (false, true) => {
                    assert_eq!(answer.asc(), (5, 0x24, 0), "{what}: {opcode:#x} {action:?}");
                    assert_eq!(pointer(&answer), Some(field), "{what}: {opcode:#x} {action:?}");
                }
                (false, false) => assert_eq!(answer.asc(), (5, 0x20, 0), "{what}: {opcode:#x}"),
            }
        }
        // Options that do not fit the opcode.
        if served {
            let option = if with_actions.contains(&opcode) { 1 } else { 2 };
            let wrong = world.run(host, 0, &maintenance(option, opcode, 0), 0xffff, &[]);
            assert_eq!(wrong.asc(), (5, 0x24, 0));
        }
    }
    world.check_empty();
}

#[test]
fn each_bit_outside_the_usage_map_is_refused_with_its_position() {
    let (world, host) = calm_in(World::protected(7, 2048, 2));
    let mut bits = 0;
    for row in rows(&world, &host) {
        let long = row.opcode == 0x7F;
        for byte in 1..row.usage.len() {
            for bit in 0..8u8 {
                let action = match long {
                    true => (7..10).contains(&byte),
                    false => byte == 1 && row.action.is_some() && bit < 5,
                };
                if action || row.usage[byte] & (1 << bit) != 0 {
                    continue;
                }
                let mut cdb = bare(row.opcode, row.action);
                cdb[byte] |= 1 << bit;
                let answer = world.run(&host, 0, &cdb, 0, &[]);
                assert_eq!(answer.asc(), (5, 0x24, 0), "{row:?} byte {byte} bit {bit}");
                assert_eq!(pointer(&answer), Some((byte as u16, Some(bit))), "{row:?}");
                bits += 1;
            }
        }
    }
    assert!(bits > 2000, "{bits}");
    world.check_empty();
}

/// Data-in commands with the place and width of their allocation length.
fn data_in() -> Vec<(Vec<u8>, usize, usize)> {
    let mut out = Vec::new();
    for page in [0x00, 0x80, 0x83, 0x85, 0x86, 0x87, 0x88, 0xB0, 0xB1, 0xB2] {
        out.push((vec![0x12, 1, page, 0, 0, 0], 3, 2));
    }
    out.push((vec![0x12, 0, 0, 0, 0, 0], 3, 2));
    out.push((vec![0x03, 0, 0, 0, 0, 0], 4, 1));
    out.push((vec![0x1A, 0, 0x3f, 0xff, 0, 0], 4, 1));
    for page in [0x01, 0x08, 0x0A, 0x1C, 0x3f] {
        out.push((vec![0x1A, 0, page, 0, 0, 0], 4, 1));
        out.push((vec![0x5A, 0x10, page, 0, 0, 0, 0, 0, 0, 0], 7, 2));
    }
    out.push((vec![0x1C, 1, 0, 0, 0, 0], 3, 2));
    for (page, sub) in [(0, 0), (0, 0xff), (2, 0), (3, 0), (5, 0), (0x15, 0), (0x19, 0), (0x2F, 0)]
    {
        out.push((vec![0x4D, 0, 0x40 | page, sub, 0, 0, 0, 0, 0, 0], 7, 2));
    }
    out.push((vec![0x37, 0, 0x18, 0, 0, 0, 0, 0, 0, 0], 7, 2));
    out.push((vec![0xB7, 0x18, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 6, 4));
    out.push((vec![0x3C, 3, 0, 0, 0, 0, 0, 0, 0, 0], 6, 3));
    out.push((vec![0x3C, 0x0B, 0, 0, 0, 0, 0, 0, 0, 0], 6, 3));
    for action in 0..4 {
        out.push((vec![0x5E, action, 0, 0, 0, 0, 0, 0, 0, 0], 7, 2));
    }
    let mut long = |opcode: u8, action: u8| {
        let mut cdb = vec![0; 16];
        (cdb[0], cdb[1]) = (opcode, action);
        out.push((cdb, 10, 4));
    };
    long(0x9E, 0x10);
    for action in [0x05, 0x0C, 0x0F] {
        out.push((vec![0xA3, action, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 6, 4));
    }
    out.push((vec![0xA3, 0x05, 0, 0, 0, 0, 0, 0, 0, 0, 0xfe, 0], 6, 4));
    out.push((vec![0xA0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], 6, 4));
    out
}

#[test]
fn allocation_length_truncates_every_data_in_command() {
    let (world, host) = calm();
    for (cdb, at, width) in data_in() {
        let with = |alloc: u32| {
            let mut cdb = cdb.clone();
            cdb[at..at + width].copy_from_slice(&alloc.to_be_bytes()[4 - width..]);
            cdb
        };
        let most = if width == 1 { 0xff } else { 0xfff };
        let whole = world.run(&host, 0, &with(most), most, &[]).good().data;
        assert!(!whole.is_empty() && whole.len() < 0x800, "{cdb:02x?}: {}", whole.len());
        let last = u32::try_from(whole.len()).unwrap() + 1;
        for alloc in (0..last.min(260)).chain([last - 1, last]).filter(|a| *a <= most) {
            if cdb[0] == 0xA0 && alloc < 16 {
                continue;
            }
            let part = world.run(&host, 0, &with(alloc), most, &[]).good();
            let n = whole.len().min(alloc as usize);
            assert_eq!(part.data, whole[..n], "{cdb:02x?} with {alloc}");
        }
    }
    world.check_empty();
}

/// MODE SENSE(10) without block descriptors.
fn modes(world: &World, host: &Host, control: u8, page: u8, subpage: u8) -> Vec<u8> {
    let cdb = [0x5A, 8, control << 6 | page, subpage, 0, 0, 0, 0xff, 0xff, 0];
    world.run(host, 0, &cdb, 0xffff, &[]).good().data
}

fn select(world: &World, host: &Host, list: &[u8], save: bool) -> world::CommandResult {
    let [high, low] = u16::try_from(list.len()).unwrap().to_be_bytes();
    let cdb = [0x55, 0x10 | u8::from(save), 0, 0, 0, 0, 0, high, low, 0];
    world.run(host, 0, &cdb, 0, list)
}

/// The list of a MODE SELECT(10) that sends a page back.
fn list_of(sensed: &[u8]) -> Vec<u8> {
    let mut list = sensed.to_vec();
    list[..8].fill(0);
    list
}

#[test]
fn changeable_masks_agree_with_mode_select() {
    let (world, host) = calm();
    let other = world.calm(1, "iqn.2024-01.test:other", &[0]);
    for which in [(0x08, 0), (0x0A, 0), (0x0A, 1), (0x01, 0), (0x1C, 0)] {
        let mask = modes(&world, &host, 1, which.0, which.1);
        let now = modes(&world, &host, 0, which.0, which.1);
        // Sensed values can be selected, and this raises no unit attention.
        select(&world, &host, &list_of(&now), false).good();
        world.run(&other, 0, &TUR, 0, &[]).good();
        let head = if which.1 == 0 { 10 } else { 12 };
        for byte in head..now.len() {
            for bit in 0..8u8 {
                let mut list = list_of(&now);
                list[byte] ^= 1 << bit;
                let answer = select(&world, &host, &list, false);
                let page = modes(&world, &host, 0, which.0, which.1);
                if mask[byte] & (1 << bit) == 0 || (which, byte, bit) == ((0x0A, 0), 11, 2) {
                    assert_eq!(answer.asc(), (5, 0x26, 0));
                    assert_eq!(pointer(&answer), Some((byte as u16, Some(bit))));
                    assert_eq!(page, now, "all or nothing");
                    world.run(&other, 0, &TUR, 0, &[]).good();
                    continue;
                }
                answer.good();
                assert_eq!(
                    page[8..],
                    list[8..]
                        .iter()
                        .copied()
                        .enumerate()
                        .map(|(i, b)| { if i == 0 { b | page[8] & 0x80 } else { b } })
                        .collect::<Vec<_>>(),
                    "page {which:x?} byte {byte} bit {bit}"
                );
                assert_eq!(world.run(&other, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 1));
                // With QERR the other core is notified of that CHECK CONDITION.
                world.turn();
                select(&world, &host, &list_of(&now), false).good();
                assert_eq!(world.run(&other, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 1));
                world.run(&host, 0, &TUR, 0, &[]).good();
            }
        }
    }
    // Two pages, the second one wrong: the first does not hold.
    let caching = modes(&world, &host, 0, 8, 0);
    let mut list = list_of(&caching);
    list[10] ^= 0x04;
    list.extend([0x0A, 10, 0xff, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    assert_eq!(select(&world, &host, &list, false).asc(), (5, 0x26, 0));
    assert_eq!(modes(&world, &host, 0, 8, 0), caching);
    for cut in 1..list.len() - 12 {
        let answer = select(&world, &host, &list[..cut], false);
        assert!(cut == 8 && answer.status == 0 || answer.asc() == (5, 0x1A, 0), "{cut}");
    }
    world.check_empty();
}

#[test]
fn saved_mode_pages_survive_resets_and_restarts() {
    let store = MemoryStore::new();
    let start = |store: &Arc<MemoryStore>| {
        let mut world = World::new(3);
        world.registry.set_state_store(store.clone());
        world.disk("d0", 64);
        world.export("d0");
        world.map(&[(0, "d0", false)]);
        let host = world.calm(0, "iqn.2024-01.test:h", &[0]);
        (world, host)
    };
    let (world, host) = start(&store);
    let plain = modes(&world, &host, 0, 0x0A, 0);
    assert_eq!(plain[8], 0x8A, "PS");
    let mut list = list_of(&plain);
    list[13] |= 0x40; // TAS
    store.fail(Some(Errno::NoSpc));
    assert_eq!(select(&world, &host, &list, true).asc().0, 4, "a save that fails is an error");
    assert_eq!(modes(&world, &host, 0, 0x0A, 0), plain, "and nothing has changed");
    store.fail(None);
    select(&world, &host, &list, true).good();
    let mut more = list.clone();
    more[12] |= 0x08; // SWP, not saved
    select(&world, &host, &more, false).good();
    assert_eq!(modes(&world, &host, 0, 0x0A, 0)[12..14], [8, 0x40]);
    assert_eq!(modes(&world, &host, 3, 0x0A, 0)[12..14], [0, 0x40]);
    assert_eq!(modes(&world, &host, 2, 0x0A, 0)[12..14], [0, 0]);
    let tag = host.manage(TmFunction::LunReset, 0, None);
    world.turn();
    assert!(host.outcome(tag).is_some());
    world.run(&host, 0, &TUR, 0, &[]);
    assert_eq!(modes(&world, &host, 0, 0x0A, 0)[12..14], [0, 0x40], "a reset");
    let name = [0xA4, 0x06, 0, 0, 0, 0, 0, 0, 0, 4, 4, 0];
    world.run(&host, 0, &name, 0, b"abc\0").good();
    drop((host, world));
    let (world, host) = start(&store);
    assert_eq!(modes(&world, &host, 0, 0x0A, 0)[12..14], [0, 0x40], "a restart");
    let name = [0xA3, 0x05, 0, 0, 0, 0, 0, 0, 0, 64, 4, 0];
    assert_eq!(world.run(&host, 0, &name, 64, &[]).good().data, b"\0\0\0\x04abc\0");
    drop((host, world));
    // A record that cannot be read keeps the unit closed, because it may forbid writes.
    store.put("d0", RecordKind::ModePages, vec![9, 9]);
    let mut world = World::new(3);
    world.registry.set_state_store(store);
    world.disk("d0", 64);
    let spec = engine::lun::OpenSpec::default();
    assert!(engine::lun::open_device(&mut world.control, &world.registry, "d0", &spec).is_err());
}

#[test]
fn log_pages_count_executed_commands() {
    let (world, host) = calm();
    let other = world.calm(1, "iqn.2024-01.test:other", &[0]);
    let page = |host: &Host, page: u8| {
        let cdb = [0x4D, 0, 0x40 | page, 0, 0, 0, 0, 1, 0, 0];
        world.run(host, 0, &cdb, 256, &[]).good().data
    };
    let number = |data: &[u8], at: usize| u64::from_be_bytes(data[at..at + 8].try_into().unwrap());
    for _ in 0..3 {
        world.run(&host, 0, &world::write16(0, 2), 0, &[7; 1024]).good();
    }
    world.run(&other, 0, &world::read16(0, 4), 2048, &[]).good();
    let stat = page(&host, 0x19);
    let seen = [8, 16, 24, 32].map(|at| number(&stat, at));
    assert_eq!(seen, [1, 3, 6, 4], "reads, writes, blocks received, blocks sent");
    assert_eq!(number(&page(&host, 2), 4 + 5 * 12 + 4), 3072, "bytes written");
    world.disks[0].1.state().fail = Some((0, Errno::Io));
    assert_eq!(world.run(&host, 0, &world::read16(0, 1), 512, &[]).asc().0, 3);
    world.disks[0].1.state().fail = None;
    assert_eq!(number(&page(&host, 3), 4 + 6 * 12 + 4), 1, "a read that failed");
    // Changes by a session remain when it ends.
    other.session.close();
    world.turn();
    assert_eq!(number(&page(&host, 0x19), 8), 2);
    let third = world.calm(1, "iqn.2024-01.test:third", &[0]);
    world.run(&host, 0, &[0x4C, 2, 0, 0, 0, 0, 0, 0, 0, 0], 0, &[]).good();
    assert_eq!(world.run(&third, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 2));
    assert_eq!(number(&page(&host, 0x19), 16), 0);
    world.run(&host, 0, &world::write16(0, 1), 0, &[7; 512]).good();
    assert_eq!(number(&page(&third, 0x19), 16), 1);
    world.check_empty();
}

#[test]
fn requests_are_counted_for_each_session_and_lun() {
    let mut world = World::simple(5, 64);
    world.disk("d1", 64);
    world.export("d1");
    world.map(&[(0, "d0", false), (1, "d1", false)]);
    let [first, second] = ["first", "second"].map(|name| world.calm(0, name, &[0, 1]));
    world.run(&first, 0, &world::write16(0, 2), 0, &[7; 1024]).good();
    world.run(&first, 1, &world::read16(0, 4), 2048, &[]).good();
    world.run(&second, 1, &world::read16(0, 1), 512, &[]).good();
    let of = |host: &Host| {
        let counts = world.registry.view().nexuses.remove(&host.session.number());
        let one = |c: &engine::registry::NexusCounts| {
            [c.lun, c.reads, c.read_bytes, c.writes, c.written_bytes]
        };
        counts.expect("nexuses").iter().map(one).collect::<Vec<_>>()
    };
    assert_eq!(of(&first), [[0, 0, 0, 1, 1024], [1, 1, 2048, 0, 0]]);
    assert_eq!(of(&second), [[0, 0, 0, 0, 0], [1, 1, 512, 0, 0]]);
}

/// U1 of unit/lun_usage.rs.
#[test]
fn lun_of_a_group_keeps_the_counts_of_ended_sessions() {
    let world = World::simple(5, 64);
    let of = |group: &str| {
        let figures = world.registry.figures(&mut || ());
        let group = figures.targets[0].groups.iter().find(|g| g.name == group).expect("a group");
        group.luns[0].counts.map(|c| (c.reads, c.writes, c.read_bytes))
    };
    let groups = |read_only: bool, second: &str| {
        let luns: &[(u64, &str, bool)] = &[(0, "d0", read_only)];
        world.groups(&[("a", &["first", second], luns), ("b", &["second", "z"], luns)]);
    };
    groups(false, "y");
    assert_eq!((of("a"), of("b")), (None, None), "no session has used them");
    let [first, second] = ["first", "second"].map(|name| world.calm(0, name, &[0]));
    for host in [&first, &first, &second] {
        world.run(host, 0, &world::read16(0, 1), 512, &[]).good();
    }
    assert_eq!((of("a"), of("b")), (Some((2, 0, 1024)), Some((1, 0, 512))));
    // I_T NEXUS RESET begins the counters of the nexus anew, and an end of the session ends them.
    first.manage(TmFunction::NexusReset, 0, None);
    world.turn();
    assert_eq!(of("a"), Some((2, 0, 1024)));
    first.session.close();
    assert!(first.ended());
    groups(true, "y");
    assert_eq!(of("a"), Some((2, 0, 1024)), "another mode of the same unit");
    groups(false, "y");
    world.run(&second, 0, &world::read16(0, 1), 512, &[]).good();
    // The second session moves to group a: its former requests stay at group b.
    let luns: &[(u64, &str, bool)] = &[(0, "d0", false)];
    world.groups(&[("a", &["first", "second"], luns), ("b", &["z"], luns)]);
    world.run(&second, 0, &world::read16(0, 1), 512, &[]).good();
    assert_eq!((of("a"), of("b")), (Some((3, 0, 1536)), Some((2, 0, 1024))));
}

/// U1 of unit/lun_usage.rs, C2 of unit/counters.rs.
#[test]
fn command_that_ends_after_its_nexus_is_counted() {
    let mut world = World::simple(5, 64);
    world.disk("d1", 64);
    world.export("d1");
    let luns: &[world::Lun<'_>] = &[(0, "d0", false)];
    let others: &[world::Lun<'_>] = &[(1, "d1", false)];
    world.groups(&[("a", &["first"], others), ("b", &["second", "third"], luns)]);
    let [second, third] = ["second", "third"].map(|name| world.calm(0, name, &[0]));
    let disk = world.disks[0].1.clone();
    disk.state().hold = true;
    let read = second.send(0, &world::read16(0, 1), 512, &[]);
    world.turn();
    // Group a does not have the LUN: the nexus ends at the next command.
    world.groups(&[("a", &["first", "second"], others), ("b", &["third"], luns)]);
    world.run(&second, 1, &TUR, 0, &[]);
    world.release_all(&disk);
    world.answer(&second, read).good();
    let figures = world.registry.figures(&mut || ());
    let group = figures.targets[0].groups.iter().find(|g| g.name == "b").expect("a group");
    let counts = group.luns[0].counts.expect("a session has used it");
    assert_eq!((counts.reads, counts.read_bytes), (1, 512));
    let page = world.run(&third, 0, &[0x4D, 0, 0x59, 0, 0, 0, 0, 1, 0, 0], 256, &[]).good().data;
    assert_eq!(page[8..16], 1u64.to_be_bytes(), "reads of the unit");
}

#[test]
fn figures_are_the_view_without_names_for_hosts_and_nexuses() {
    let mut world = World::simple(5, 64);
    world.disk("d1", 64);
    world.export("d1");
    world.map(&[(0, "d0", false), (1, "d1", true)]);
    let host = world.calm(0, "first", &[0, 1]);
    world.run(&host, 1, &world::read16(0, 4), 2048, &[]).good();
    let mut pauses = 0;
    let figures = world.registry.figures(&mut || pauses += 1);
    assert_eq!(pauses, 4, "two units and two LUNs");
    let whole = world.registry.view();
    let units = |view: &RegistryView| -> Vec<(String, u64, bool)> {
        let unit = |d: &DeviceView| (d.label.name.clone(), d.flow.latency_ns, d.ids.is_some());
        view.devices.iter().map(unit).collect()
    };
    let latency = |name: &str| {
        let unit = whole.devices.iter().find(|d| d.label.name == name).expect("a unit");
        unit.flow.latency_ns
    };
    let expected = |has_ids| ["d0", "d1"].map(|name| (name.to_owned(), latency(name), has_ids));
    assert_eq!(units(&whole), expected(true));
    assert_eq!(units(&figures), expected(false));
    let luns = |view: &RegistryView| view.targets[0].groups[0].luns.clone();
    assert_eq!(luns(&figures), luns(&whole));
    let shown = |lun: &LunView| (lun.lun, lun.label.name.clone(), lun.read_only);
    let expected = [(0, "d0".to_owned(), false), (1, "d1".to_owned(), true)];
    assert_eq!(luns(&whole).iter().map(shown).collect::<Vec<_>>(), expected);
    assert_eq!((figures.sessions.len(), figures.targets[0].sessions), (1, 1));
    assert!(figures.nexuses.is_empty() && !whole.nexuses.is_empty());
}

#[test]
fn buffers_are_per_nexus_but_the_timestamp_is_shared() {
    let (world, host) = calm();
    let other = world.calm(1, "iqn.2024-01.test:other", &[0]);
    let echo = [0x3C, 0x0A, 0, 0, 0, 0, 0, 0, 8, 0];
    assert_eq!(world.run(&host, 0, &echo, 8, &[]).asc(), (5, 0x2C, 0), "nothing written yet");
    world.run(&host, 0, &[0x3B, 0x0A, 0, 0, 0, 0, 0, 0, 4, 0], 0, b"ping").good();
    assert_eq!(world.run(&host, 0, &echo, 8, &[]).good().data, b"ping");
    assert_eq!(world.run(&other, 0, &echo, 8, &[]).asc(), (5, 0x2C, 0), "another's echo");
    world.run(&host, 0, &[0x3B, 2, 0, 0, 0, 2, 0, 0, 2, 0], 0, b"ab").good();
    let read = [0x3C, 2, 0, 0, 0, 1, 0, 0, 4, 0];
    assert_eq!(world.run(&host, 0, &read, 4, &[]).good().data, b"\0ab\0");
    assert_eq!(world.run(&other, 0, &read, 4, &[]).good().data, [0; 4]);
    let beyond = [0x3B, 2, 0, 0, 0x10, 0, 0, 0, 1, 0];
    assert_eq!(world.run(&host, 0, &beyond, 0, b"x").asc(), (5, 0x24, 0));
    // The time that one initiator sets applies to all, and they get a unit attention.
    let time = [0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 0, 0];
    world.run(&host, 0, &[0xA4, 0x0F, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0], 0, &time).good();
    assert_eq!(world.run(&other, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 0x10));
    let answer = world.run(&other, 0, &[0xA3, 0x0F, 0, 0, 0, 0, 0, 0, 0, 12, 0, 0], 12, &[]).good();
    assert_eq!((&answer.data[..4], &answer.data[4..8]), (&[0, 10, 2, 0][..], &[1, 2, 3, 4][..]));
    // A self-test reads; a disk that cannot be read fails it.
    let test = [0x1D, 0x04, 0, 0, 0, 0];
    world.run(&host, 0, &test, 0, &[]).good();
    world.disks[0].1.state().fail = Some((0, Errno::Io));
    assert_eq!(world.run(&host, 0, &test, 0, &[]).asc(), (4, 0x3E, 3));
    world.check_empty();
}
