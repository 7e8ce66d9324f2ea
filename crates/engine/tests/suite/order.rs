//! Order of commands over nexuses and cores, with a disk that answers late and in any order.

use bio::Op;
use engine::{TaskAttribute, TmFunction, TmOutcome};
use reactor::SeededRandom;
use testkit::Seeds;

use crate::world::*;

const NACA: u8 = 4;

fn hold(w: &World) {
    w.disks[0].1.state().hold = true;
}

fn held(w: &World) -> usize {
    w.disks[0].1.state().held.len()
}

fn write_as(h: &Host, attribute: TaskAttribute, lba: u64, byte: u8) -> u32 {
    h.attribute.set(attribute);
    let tag = h.send(0, &write16(lba, 1), 0, &[byte; 512]);
    h.attribute.set(TaskAttribute::Simple);
    tag
}

fn compare_write(lba: u64) -> [u8; 16] {
    let mut cdb = [0; 16];
    cdb[0] = 0x89;
    cdb[2..10].copy_from_slice(&lba.to_be_bytes());
    cdb[13] = 1;
    cdb
}

/// A MODE SELECT(6) of the control page with TST, QAM and QERR.
fn queueing(tst: u8, qam: u8, qerr: u8, tas: bool) -> ([u8; 6], Vec<u8>) {
    let (cdb, mut list) = control_page(false, false, tas);
    list[6] = tst << 5 | 0x02;
    list[7] = qam << 4 | qerr << 1;
    (cdb, list)
}

fn select(w: &World, h: &Host, (cdb, list): ([u8; 6], Vec<u8>)) {
    w.run(h, 0, &cdb, 0, &list).good();
    w.turn();
}

/// The first bytes of the writes, in the order in which they reached the medium.
fn written(w: &World) -> Vec<u8> {
    let state = w.disks[0].1.state();
    state.log.iter().filter(|d| d.op == Op::Write).map(|d| d.data[0]).collect()
}

#[test]
fn test_17_an_ordered_command_is_a_barrier_for_all_nexuses_on_all_cores() {
    for seed in Seeds::of(1000) {
        let w = World::simple(seed, 64);
        let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
        let disk = w.disks[0].1.clone();
        let mut random = SeededRandom::new(seed);
        hold(&w);
        let mut tags = Vec::new();
        // Barriers arrive on either core; everything between two of them may be reordered.
        for n in 1..=24u8 {
            let host = if random.below(2) == 0 { &a } else { &b };
            let ordered = n % 6 == 0;
            let attribute = if ordered { TaskAttribute::Ordered } else { TaskAttribute::Simple };
            tags.push((std::ptr::eq(host, &a), write_as(host, attribute, 5, n)));
            w.turn();
            while random.chance(300) && held(&w) > 0 {
                let at = random.below(held(&w) as u64) as usize;
                w.release(&disk, at);
            }
        }
        for _ in 0..100 {
            if held(&w) > 0 {
                let at = random.below(held(&w) as u64) as usize;
                w.release(&disk, at);
            }
            w.turn();
        }
        let order = written(&w);
        assert_eq!(order.len(), 24, "seed {seed}: {order:?}");
        for barrier in [6, 12, 18, 24u8] {
            let at = order.iter().position(|n| *n == barrier).unwrap();
            let (before, behind) = order.split_at(at);
            assert!(before.iter().all(|n| *n < barrier), "seed {seed}: {order:?}");
            assert!(behind.iter().all(|n| *n >= barrier), "seed {seed}: {order:?}");
        }
        assert_eq!(disk.state().bytes[5 * 512], 24, "seed {seed}");
        for (first, tag) in tags {
            w.answer(if first { &a } else { &b }, tag).good();
        }
        w.check_empty();
    }
}

#[test]
fn head_of_queue_overtakes_commands_waiting_on_another_core() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let disk = w.disks[0].1.clone();
    hold(&w);
    write_as(&a, TaskAttribute::Simple, 0, 1);
    write_as(&a, TaskAttribute::Ordered, 0, 2);
    w.turn();
    write_as(&b, TaskAttribute::Simple, 0, 3);
    w.turn();
    assert_eq!(held(&w), 1, "the barrier and what is behind it wait");
    write_as(&b, TaskAttribute::HeadOfQueue, 0, 4);
    assert_eq!(held(&w), 2);
    w.release(&disk, 0);
    assert_eq!(held(&w), 2, "the barrier waits for what is older only");
    w.release(&disk, 0);
    w.release(&disk, 0);
    w.release(&disk, 0);
    assert_eq!(written(&w), [1, 4, 2, 3]);
    w.check_empty();
}

#[test]
fn a_barrier_waits_for_write_data_of_another_core_until_its_abort() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let (slow, _) = a.begin(0, &write16(0, 1), 0, 512);
    let barrier = write_as(&b, TaskAttribute::Ordered, 0, 2);
    w.turn();
    assert!(b.answer(barrier).is_none(), "it waits for the data of another initiator's command");
    let tm = a.manage(TmFunction::AbortTask, 0, Some(slow));
    assert_eq!(a.outcome(tm), Some(TmOutcome::Complete));
    w.answer(&b, barrier).good();
    w.check_empty();
}

#[test]
fn strict_ordering_ends_soon_after_the_last_barrier() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let tag = write_as(&a, TaskAttribute::Ordered, 0, 1);
    w.answer(&a, tag).good();
    let device = w.registry.device("d0").unwrap();
    let order = || device.nexuses().iter().all(|n| n.flags() & engine::flags::ORDER != 0);
    assert!(order() && device.nexuses().len() == 2);
    w.pass(60_000_000);
    assert!(!order(), "nobody needs an order any more");
    w.run(&b, 0, &write16(0, 1), 0, &[2; 512]).good();
    assert!(!order());
}

#[test]
fn test_18_compare_and_write_is_atomic_over_all_paths() {
    for seed in Seeds::of(20) {
        let w = World::simple(seed, 64);
        let hosts: Vec<Host> = (0..8).map(|n| w.calm(n % 2, &format!("i{n}"), &[0])).collect();
        let disk = w.disks[0].1.clone();
        let mut random = SeededRandom::new(seed);
        hold(&w);
        let block = |n: u64| n.to_be_bytes().repeat(64);
        let mut guess = [0u64; 8];
        let mut running: Vec<Option<u32>> = vec![None; 8];
        let mut won = 0;
        for _ in 0..1500 {
            let n = random.below(8) as usize;
            match running[n] {
                None => {
                    let data = [block(guess[n]), block(guess[n] + 1)].concat();
                    let cdb = compare_write(7);
                    running[n] = Some(hosts[n].send(0, &cdb, 0, &data));
                    // Others write beside it, and read it whole.
                    hosts[n].send(0, &write16(8, 2), 0, &vec![9; 1024]);
                    hosts[n].send(0, &write16(6, 1), 0, &[9; 512]);
                }
                Some(tag) => {
                    if let Some(answer) = hosts[n].answer(tag) {
                        running[n] = None;
                        match answer.asc() {
                            (0, 0, 0) => won += 1,
                            (0xE, 0x1D, 0) => {
                                let now = disk.state().bytes[7 * 512..7 * 512 + 8].to_vec();
                                guess[n] = u64::from_be_bytes(now.try_into().unwrap());
                            }
                            other => panic!("seed {seed}: {other:?}"),
                        }
                    }
                }
            }
            hosts.iter().for_each(|h| {
                h.fake.events.borrow_mut().retain(|event| match event {
                    HostEvent::Answer(a) => running.contains(&Some(a.tag)),
                    _ => true,
                })
            });
            if held(&w) > 0 && random.chance(700) {
                let at = random.below(held(&w) as u64) as usize;
                w.release(&disk, at);
            }
            w.turn();
        }
        w.release_all(&disk);
        w.turn();
        for (host, tag) in hosts.iter().zip(&running) {
            let answer = tag.and_then(|t| host.answer(t));
            won += u64::from(answer.is_some_and(|a| a.status == 0));
        }
        let value = disk.state().bytes[7 * 512..7 * 512 + 8].to_vec();
        assert_eq!(u64::from_be_bytes(value.try_into().unwrap()), won, "seed {seed}");
        assert!(won > 20, "seed {seed}: {won}");
        w.check_empty();
    }
}

#[test]
fn an_exclusive_command_waits_only_for_overlapping_commands() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let disk = w.disks[0].1.clone();
    hold(&w);
    let before = write_as(&b, TaskAttribute::Simple, 7, 1);
    let caw = a.send(0, &compare_write(7), 0, &[1; 1024]);
    w.turn();
    assert_eq!(held(&w), 1, "it waits for the crowd");
    w.release(&disk, 0);
    w.answer(&b, before).good();
    assert_eq!(held(&w), 1, "it reads");
    let inside = write_as(&b, TaskAttribute::Simple, 7, 5);
    let beside = write_as(&b, TaskAttribute::Simple, 8, 6);
    assert_eq!(held(&w), 2, "the one beside it goes, the other waits");
    w.release(&disk, 1);
    w.answer(&b, beside).good();
    w.release(&disk, 0);
    w.release(&disk, 0);
    w.answer(&a, caw).good();
    w.release(&disk, 0);
    w.answer(&b, inside).good();
    assert_eq!(written(&w), [1, 6, 1, 5]);
    w.check_empty();
}

#[test]
fn aca_blocks_other_commands_until_clear_aca() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let mut beyond = read16(64, 1);
    beyond[15] = NACA;
    hold(&w);
    let running = write_as(&b, TaskAttribute::Simple, 0, 1);
    let barrier = write_as(&b, TaskAttribute::Ordered, 0, 2);
    w.turn();
    assert_eq!(w.run(&a, 0, &beyond, 512, &[]).asc(), (5, 0x21, 0));
    // The nexus itself, and others with and without NACA.
    assert_eq!(w.run(&a, 0, &TUR, 0, &[]).status, 0x30, "ACA ACTIVE");
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).status, 0x08, "BUSY");
    assert_eq!(w.run(&b, 0, &[0, 0, 0, 0, 0, NACA], 0, &[]).status, 0x30, "ACA ACTIVE");
    let late = w.host(1, "i3");
    assert_eq!(w.run(&late, 0, &TUR, 0, &[]).status, 0x08, "a nexus that came later");
    // Running commands continue, and waiting commands wait.
    w.release_all(&w.disks[0].1);
    w.answer(&b, running).good();
    assert!(b.answer(barrier).is_none());
    a.attribute.set(TaskAttribute::Aca);
    w.run(&a, 0, &TUR, 0, &[]).good();
    b.attribute.set(TaskAttribute::Aca);
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).status, 0x08);
    a.attribute.set(TaskAttribute::Simple);
    b.attribute.set(TaskAttribute::Simple);
    let tm = b.manage(TmFunction::ClearAca, 0, None);
    assert_eq!(b.outcome(tm), Some(TmOutcome::Complete));
    assert_eq!(w.run(&a, 0, &TUR, 0, &[]).status, 0x30, "only its own nexus ends it");
    let tm = a.manage(TmFunction::ClearAca, 0, None);
    assert_eq!(a.outcome(tm), Some(TmOutcome::Complete));
    w.answer(&b, barrier).good();
    w.run(&a, 0, &TUR, 0, &[]).good();
    w.run(&b, 0, &TUR, 0, &[]).good();
    w.check_empty();
}

#[test]
fn aca_ends_with_a_lun_reset_and_with_its_nexus() {
    for reset in [true, false] {
        let w = World::simple(1, 64);
        let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
        let mut beyond = read16(64, 1);
        beyond[15] = NACA;
        assert_eq!(w.run(&a, 0, &beyond, 512, &[]).asc(), (5, 0x21, 0));
        assert_eq!(w.run(&b, 0, &TUR, 0, &[]).status, 0x08);
        if reset {
            b.manage(TmFunction::LunReset, 0, None);
            w.turn();
            assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
        } else {
            a.session.close();
        }
        w.run(&b, 0, &TUR, 0, &[]).good();
    }
}

#[test]
fn qerr_selects_the_commands_aborted_by_a_check_condition() {
    for (qerr, tas) in [(0, false), (1, false), (1, true), (3, false)] {
        let w = World::simple(1, 64);
        let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
        select(&w, &a, queueing(0, 1, qerr, tas));
        let changed = (qerr, tas) != (0, false);
        assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc() == (6, 0x2A, 1), changed);
        hold(&w);
        let own = write_as(&a, TaskAttribute::Simple, 0, 1);
        let other = write_as(&b, TaskAttribute::Simple, 1, 2);
        assert_eq!(w.run(&a, 0, &read16(64, 1), 512, &[]).asc(), (5, 0x21, 0));
        w.release_all(&w.disks[0].1);
        w.turn();
        if qerr == 0 {
            w.answer(&a, own).good();
        } else {
            assert!(a.discarded(own), "qerr {qerr}");
        }
        match (qerr, tas) {
            (1, false) => {
                assert!(b.discarded(other));
                assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x2F, 0));
            }
            (1, true) => assert_eq!(w.answer(&b, other).status, 0x40),
            _ => drop(w.answer(&b, other).good()),
        }
        w.run(&b, 0, &TUR, 0, &[]).good();
        w.check_empty();
    }
}

#[test]
fn every_nexus_has_its_own_task_set_with_tst_001b() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    select(&w, &a, queueing(1, 1, 0, false));
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 1));
    hold(&w);
    write_as(&a, TaskAttribute::Ordered, 0, 1);
    w.turn();
    write_as(&a, TaskAttribute::Simple, 1, 2);
    let other = write_as(&b, TaskAttribute::Simple, 2, 3);
    w.turn();
    assert_eq!(held(&w), 2, "the barrier is its nexus' own");
    // CLEAR TASK SET is about the nexus' own as well.
    b.manage(TmFunction::ClearTaskSet, 0, None);
    assert_eq!(held(&w), 2);
    w.release_all(&w.disks[0].1);
    assert!(b.discarded(other));
    assert_eq!(written(&w), [1, 2, 3]);
    w.run(&a, 0, &TUR, 0, &[]).good();
    w.check_empty();
}

#[test]
fn overlapping_commands_of_a_nexus_keep_their_order_with_qam_0() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    select(&w, &a, queueing(0, 0, 0, false));
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 1));
    hold(&w);
    write_as(&a, TaskAttribute::Simple, 0, 1);
    write_as(&a, TaskAttribute::Simple, 0, 2);
    write_as(&a, TaskAttribute::Simple, 1, 3);
    write_as(&b, TaskAttribute::Simple, 0, 4);
    assert_eq!(held(&w), 3, "the second waits for the first");
    w.release(&w.disks[0].1, 0);
    assert_eq!(held(&w), 3);
    w.release_all(&w.disks[0].1);
    w.check_empty();
}

#[test]
fn test_15_a_reset_aborts_dormant_and_running_commands_on_all_cores() {
    for seed in Seeds::of(1000) {
        let w = World::simple(seed, 64);
        let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
        let disk = w.disks[0].1.clone();
        let mut random = SeededRandom::new(seed);
        hold(&w);
        let mut tags = Vec::new();
        for n in 0..32u8 {
            for h in [&a, &b] {
                let attribute = match random.below(6) {
                    0 => TaskAttribute::Ordered,
                    1 => TaskAttribute::HeadOfQueue,
                    _ => TaskAttribute::Simple,
                };
                tags.push((h, write_as(h, attribute, u64::from(n), n)));
            }
            w.turn();
        }
        let tm = a.manage(TmFunction::LunReset, 0, None);
        w.turn();
        let below = held(&w);
        assert!(below > 0 && a.outcome(tm).is_none(), "what is below holds the answer back");
        assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
        w.release_all(&disk);
        assert_eq!(a.outcome(tm), Some(TmOutcome::Complete));
        assert_eq!(written(&w).len(), below, "seed {seed}: nothing that waited got through");
        for (h, tag) in tags {
            assert!(h.discarded(tag), "seed {seed}");
        }
        w.run(&b, 0, &write16(0, 1), 0, &[9; 512]).good();
        w.check_empty();
    }
}
