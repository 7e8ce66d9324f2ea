//! Life of commands on a slow disk: aborts, resets, order, memory, the end of sessions.

use bio::{Errno, Op};
use engine::{
    CloseReason, CommandState, DataError, GroupSpec, LunSpec, Next, TaskAttribute, TmFunction,
    TmOutcome,
};

use crate::world::*;

fn held(w: &World) -> usize {
    w.disks[0].1.state().held.len()
}

fn hold(w: &World) {
    w.disks[0].1.state().hold = true;
}

/// The session was ended by TARGET COLD RESET.
fn is_cold_reset(h: &Host) -> bool {
    h.fake.events.borrow().contains(&HostEvent::Close(CloseReason::ColdReset))
}

#[test]
fn an_abort_is_answered_after_the_last_access_of_the_task() {
    let w = World::simple(1, 64);
    let (h1, h2) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let disk = w.disks[0].1.clone();
    hold(&w);
    let late = h1.send(0, &write16(3, 1), 0, &[1; 512]);
    let tm = h1.manage(TmFunction::AbortTask, 0, Some(late));
    w.turn();
    assert_eq!(h1.outcome(tm), None, "the write is still below");
    let age = h1.session.facts().commands(w.sim.now());
    assert_eq!((age.len(), age[0].state), (1, CommandState::Aborting));
    assert_eq!(h1.session.aborting(), 1);
    // Other commands continue meanwhile.
    let other = h2.send(0, &write16(9, 1), 0, &[2; 512]);
    assert!(w.release(&disk, 1));
    w.answer(&h2, other).good();
    assert_eq!(h1.outcome(tm), None);
    assert!(w.release(&disk, 0));
    assert_eq!(h1.outcome(tm), Some(TmOutcome::Complete));
    assert!(h1.discarded(late) && h1.answer(late).is_none());
    // From now on another initiator uses the medium.
    disk.state().hold = false;
    w.run(&h2, 0, &write16(3, 1), 0, &[3; 512]).good();
    w.turn();
    assert_eq!(disk.state().bytes[3 * 512..4 * 512], [3; 512]);
    w.check_empty();
}

#[test]
fn a_task_waiting_for_data_is_aborted_at_once_and_late_data_dropped() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let (tag, next) = h.begin(0, &write16(0, 1), 0, 512);
    assert_eq!(next, Next::Data { wanted: 512 });
    let tm = h.manage(TmFunction::AbortTask, 0, Some(tag));
    assert_eq!(h.outcome(tm), Some(TmOutcome::Complete));
    assert!(h.discarded(tag));
    assert_eq!(h.session.outstanding(), 0);
    h.give(tag, &[9; 512]);
    w.turn();
    assert!(w.disks[0].1.state().log.is_empty());
    let (tag, _) = h.begin(0, &write16(0, 1), 0, 512);
    h.session.data_failed(tag, DataError::Digest);
    assert_eq!(w.answer(&h, tag).asc(), (0xB, 0x47, 5));
    assert!(w.disks[0].1.state().log.is_empty());
}

#[test]
fn a_reset_aborts_the_tasks_of_all_nexuses_on_all_cores() {
    for tas in [false, true] {
        let w = World::simple(1, 64);
        let hosts = [w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0])];
        let disk = w.disks[0].1.clone();
        let (cdb, list) = control_page(false, true, tas);
        w.run(&hosts[0], 0, &cdb, 0, &list).good();
        let (cdb, list) = control_page(false, false, tas);
        w.run(&hosts[0], 0, &cdb, 0, &list).good();
        assert_eq!(w.run(&hosts[1], 0, &TUR, 0, &[]).asc(), (6, 0x2A, 1));
        hold(&w);
        let mut tags = Vec::new();
        for n in 0..32 {
            for (i, h) in hosts.iter().enumerate() {
                tags.push((i, h.send(0, &write16(n, 1), 0, &[1; 512])));
            }
        }
        assert_eq!(held(&w), 64);
        let tm = hosts[0].manage(TmFunction::LunReset, 0, None);
        for left in (0..64).rev() {
            w.turn();
            assert_eq!(hosts[0].outcome(tm), None, "{} are below", left + 1);
            assert!(w.release(&disk, left / 2));
        }
        w.turn();
        assert_eq!(hosts[0].outcome(tm), Some(TmOutcome::Complete));
        for (i, tag) in tags {
            let h = &hosts[i];
            if i == 1 && tas {
                assert_eq!(h.answer(tag).map(|a| a.status), Some(0x40), "TASK ABORTED");
            } else {
                assert!(h.discarded(tag) && h.answer(tag).is_none());
            }
        }
        disk.state().hold = false;
        for h in &hosts {
            assert_eq!(w.run(h, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
            w.run(h, 0, &TUR, 0, &[]).good();
        }
        // Mode pages are as at the start.
        let page = w.run(&hosts[0], 0, &[0x1A, 8, 0x0A, 0, 255, 0], 255, &[]).good().data;
        assert_eq!((page[6] & 4, page[9] & 0x40), (0, 0));
        w.check_empty();
    }
}

#[test]
fn clear_task_set_notifies_only_nexuses_that_lost_tasks() {
    let w = World::simple(1, 64);
    let hosts = [w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]), w.calm(0, "i3", &[0])];
    hold(&w);
    let own = hosts[0].send(0, &write16(0, 1), 0, &[1; 512]);
    let lost = hosts[1].send(0, &write16(1, 1), 0, &[1; 512]);
    let tm = hosts[0].manage(TmFunction::ClearTaskSet, 0, None);
    w.turn();
    w.release_all(&w.disks[0].1);
    assert_eq!(hosts[0].outcome(tm), Some(TmOutcome::Complete));
    assert!(hosts[0].discarded(own) && hosts[1].discarded(lost));
    w.run(&hosts[0], 0, &TUR, 0, &[]).good();
    assert_eq!(w.run(&hosts[1], 0, &TUR, 0, &[]).asc(), (6, 0x2F, 0));
    w.run(&hosts[2], 0, &TUR, 0, &[]).good();
}

#[test]
fn a_hanging_disk_delays_no_other_unit_of_the_session() {
    let mut w = World::simple(1, 64);
    w.disk("d1", 64);
    w.export("d1");
    w.map(&[(0, "d0", false), (1, "d1", false)]);
    let h = w.calm(0, "i1", &[0, 1]);
    hold(&w);
    let hung = h.send(0, &read16(0, 1), 512, &[]);
    for n in 0..200 {
        w.run(&h, 1, &write16(n % 64, 1), 0, &[1; 512]).good();
    }
    let tm = h.manage(TmFunction::AbortTaskSet, 1, None);
    assert_eq!(h.outcome(tm), Some(TmOutcome::Complete), "nothing hangs there");
    h.session.close();
    assert!(!h.ended() && h.session.is_closing());
    assert!(w.registry.sessions()[0].is_closing());
    let refused = h.send(1, &TUR, 0, &[]);
    assert!(h.discarded(refused));
    w.release_all(&w.disks[0].1);
    assert!(h.ended() && h.discarded(hung));
    assert!(w.registry.sessions().is_empty());
    w.check_empty();
}

#[test]
fn an_ordered_command_is_a_barrier() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let disk = w.disks[0].1.clone();
    hold(&w);
    let mut sent = Vec::new();
    for (n, attribute) in [
        (1, TaskAttribute::Simple),
        (2, TaskAttribute::Simple),
        (3, TaskAttribute::Ordered),
        (4, TaskAttribute::Simple),
        (5, TaskAttribute::Simple),
        (6, TaskAttribute::HeadOfQueue),
    ] {
        h.attribute.set(attribute);
        sent.push(h.send(0, &write16(0, 1), 0, &[n; 512]));
    }
    assert_eq!(held(&w), 3, "two simple ones and the head of queue");
    let states: Vec<CommandState> = h.session.facts().commands(0).iter().map(|c| c.state).collect();
    assert_eq!(states.iter().filter(|s| **s == CommandState::Dormant).count(), 3);
    for _ in 0..3 {
        w.release(&disk, held(&w) - 1);
    }
    assert_eq!(held(&w), 1, "the barrier alone");
    w.release(&disk, 0);
    assert_eq!(held(&w), 2);
    assert_eq!(disk.state().log.last().map(|d| d.data[0]), Some(3));
    w.release(&disk, 1);
    w.release(&disk, 0);
    for tag in sent {
        w.answer(&h, tag).good();
    }
    h.attribute.set(TaskAttribute::Aca);
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (0xB, 0x49, 0));
    w.check_empty();
}

#[test]
fn an_aborted_barrier_delays_no_commands() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    hold(&w);
    h.send(0, &write16(0, 1), 0, &[1; 512]);
    h.attribute.set(TaskAttribute::Ordered);
    let barrier = h.send(0, &write16(0, 1), 0, &[2; 512]);
    h.attribute.set(TaskAttribute::Simple);
    h.send(0, &write16(0, 1), 0, &[3; 512]);
    assert_eq!(held(&w), 1);
    let tm = h.manage(TmFunction::AbortTask, 0, Some(barrier));
    assert_eq!(h.outcome(tm), Some(TmOutcome::Complete));
    w.turn();
    assert_eq!(held(&w), 2, "the one behind goes");
    w.release_all(&w.disks[0].1);
    w.check_empty();
}

/// E3.
#[test]
fn commands_wait_for_memory_in_order_and_none_fails() {
    let mut w = World::with_pool(1, 128 * 1024);
    w.disk("d0", 4096);
    w.export("d0");
    w.map(&[(0, "d0", false)]);
    let h = w.calm(0, "i1", &[0]);
    let disk = w.disks[0].1.clone();
    hold(&w);
    let tags: Vec<u32> = (0..20).map(|n| h.send(0, &read16(n * 128, 128), 65536, &[])).collect();
    w.turn();
    assert_eq!(held(&w), 2, "two of 64 KiB fit");
    let waiting = h.session.facts().commands(0);
    assert_eq!(waiting.iter().filter(|c| c.state == CommandState::MemoryWait).count(), 18);
    // One in the middle gives up.
    let tm = h.manage(TmFunction::AbortTask, 0, Some(tags[10]));
    assert_eq!(h.outcome(tm), Some(TmOutcome::Complete));
    for _ in 0..19 {
        assert!(w.release(&disk, 0));
        w.turn();
    }
    let order: Vec<u64> = disk.state().log.iter().map(|d| d.offset / 65536).collect();
    assert_eq!(order, (0..20).filter(|n| *n != 10).collect::<Vec<u64>>());
    for (n, tag) in tags.iter().enumerate().filter(|(n, _)| *n != 10) {
        assert_eq!(w.answer(&h, *tag).good().data.len(), 65536, "{n}");
    }
    w.check_empty();
}

/// E7.
#[test]
fn a_peer_that_does_not_read_holds_only_its_share_of_memory() {
    let mut w = World::with_pool(1, 1 << 20);
    w.disk("d0", 4096);
    w.export("d0");
    w.map(&[(0, "d0", false)]);
    let (deaf, other) = (w.calm(0, "i1", &[0]), w.calm(0, "i2", &[0]));
    let read = |h: &Host, n: u64| h.send(0, &read16(n * 128, 128), 65536, &[]);
    deaf.fake.deaf.set(true);
    let tags: Vec<u32> = (0..16).map(|n| read(&deaf, n)).collect();
    w.turn();
    let answered = tags.iter().filter(|t| deaf.answer(**t).is_some()).count();
    assert_eq!(answered, 9, "no more than what is left, when it asks");
    // Others overtake those of it that wait, as often as they like.
    for n in 0..40 {
        assert_eq!(w.run(&other, 0, &read16(n % 32 * 128, 128), 65536, &[]).data.len(), 65536);
    }
    assert!(tags.iter().all(|t| deaf.answer(*t).is_none()));
    // It reads at last.
    deaf.fake.deaf.set(false);
    deaf.fake.unsent.take();
    w.turn();
    let late = tags.iter().filter(|t| deaf.answer(**t).is_some()).count();
    assert_eq!(answered + late, tags.len());
    w.check_empty();
}

#[test]
fn the_depth_of_a_session_is_bounded() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    hold(&w);
    let depth = h.session.depth_hint();
    for n in 0..depth {
        h.send(0, &write16(u64::from(n % 64), 1), 0, &[1; 512]);
    }
    let over = h.send(0, &TUR, 0, &[]);
    assert_eq!(w.answer(&h, over).status, 0x28, "TASK SET FULL");
    assert_eq!(h.session.outstanding(), depth as usize);
    w.release_all(&w.disks[0].1);
    w.run(&h, 0, &TUR, 0, &[]).good();
    assert_eq!(h.session.facts().depth_max(), u64::from(depth));
}

#[test]
fn a_duplicate_tag_is_refused_and_the_first_command_continues() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let (tag, _) = h.begin(0, &write16(0, 1), 0, 512);
    let next = h.session.command(&engine::Command {
        tag,
        lun: lun_field(0),
        cdb: &TUR,
        attribute: TaskAttribute::Simple,
        expect_in: 0,
        expect_out: 0,
    });
    assert_eq!(next, Next::Started);
    assert_eq!(w.answer(&h, tag).asc(), (0xB, 0x4E, 0));
    h.give(tag, &[1; 512]);
    w.answer(&h, tag).good();
}

#[test]
fn an_aborted_write_same_sends_no_further_requests() {
    let w = World::simple(1, 4096);
    let h = w.calm(0, "i1", &[0]);
    let disk = w.disks[0].1.clone();
    hold(&w);
    // WRITE SAME of a pattern: four requests of 256 KiB.
    let tag = h.send(0, &cdb16(0x93, 0, 2048), 0, &[7; 512]);
    w.turn();
    assert_eq!(held(&w), 1);
    let tm = h.manage(TmFunction::AbortTask, 0, Some(tag));
    w.turn();
    assert_eq!(h.outcome(tm), None);
    w.release(&disk, 0);
    w.turn();
    assert_eq!(h.outcome(tm), Some(TmOutcome::Complete));
    assert_eq!(held(&w), 0, "the next chunk is not sent");
    assert!(disk.state().bytes[512 * 512..].iter().all(|b| *b == 0));
    w.check_empty();
}

#[test]
fn commands_in_flight_complete_on_the_unit_they_were_sent_to() {
    let mut w = World::simple(1, 64);
    w.disk("d1", 64);
    w.export("d1");
    w.disks[1].1.state().bytes.fill(2);
    let h = w.calm(0, "i1", &[0]);
    w.disks[0].1.state().bytes.fill(1);
    hold(&w);
    let old = h.send(0, &read16(0, 1), 512, &[]);
    w.map(&[(0, "d1", false)]);
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0), "another unit begins");
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x3F, 0x0E), "what the number means changed");
    // P4: an initiator that has not queried the identity does not reach the medium.
    assert_eq!(w.run(&h, 0, &read16(0, 1), 512, &[]).asc(), (5, 0x25, 0));
    w.run(&h, 0, &[0x12, 0, 0, 0, 36, 0], 36, &[]).good();
    assert_eq!(w.run(&h, 0, &read16(0, 1), 512, &[]).good().data, [2; 512]);
    w.release_all(&w.disks[0].1);
    assert_eq!(w.answer(&h, old).good().data, [1; 512]);
}

#[test]
fn sessions_are_closed_by_kick_and_by_removal_of_their_target() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    assert!(w.registry.kick(a.session.number()));
    assert!(!w.registry.kick(999));
    w.turn();
    assert!(a.fake.events.borrow().contains(&HostEvent::Close(CloseReason::Kicked)));
    assert!(b.fake.events.borrow().is_empty());
    w.registry.remove_target("iscsi", TARGET).unwrap();
    w.turn();
    assert!(b.fake.events.borrow().contains(&HostEvent::Close(CloseReason::TargetRemoved)));
    // It is not notified that the unit is absent.
    let late = b.send(0, &TUR, 0, &[]);
    assert!(b.answer(late).is_none() && b.discarded(late) && b.ended());
}

/// D2: a command at the medium, one whose data is on its way, one that waits for its turn, and one
/// that follows.
#[test]
fn commands_not_executed_are_not_answered_at_shutdown() {
    for reads in [false, true] {
        let w = World::simple(1, 64);
        let h = w.calm(0, "i1", &[0]);
        let disk = w.disks[0].1.clone();
        hold(&w);
        let (awaiting, _) = h.begin(0, &write16(0, 1), 0, 512);
        let at_medium = h.send(0, &write16(3, 1), 0, &[1; 512]);
        h.attribute.set(TaskAttribute::Ordered);
        let turn = h.send(0, &write16(3, 1), 0, &[2; 512]);
        h.attribute.set(TaskAttribute::Simple);
        w.turn();
        w.registry.login_gate().close();
        w.registry.remove_target("iscsi", TARGET).unwrap();
        // The first of these: the next command, the data, or the message of the control thread.
        let mut all = vec![awaiting, at_medium, turn];
        if reads {
            all.push(h.send(0, &read16(3, 1), 512, &[]));
        } else {
            h.give(awaiting, &[3; 512]);
        }
        w.turn();
        assert!(h.fake.events.borrow().contains(&HostEvent::Close(CloseReason::Stopping)));
        assert!(!h.ended(), "a write may still reach the medium");
        w.release_all(&disk);
        w.turn();
        assert!(h.ended());
        for tag in all {
            assert!(h.answer(tag).is_none() && h.discarded(tag), "{tag}");
        }
    }
}

#[test]
fn a_cold_reset_ends_only_the_sessions_of_its_initiator() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let tm = a.manage(TmFunction::TargetColdReset, 0, None);
    w.turn();
    assert_eq!(a.outcome(tm), Some(TmOutcome::Complete));
    assert!(is_cold_reset(&a) && !is_cold_reset(&b));
}

#[test]
fn a_permitted_cold_reset_resets_all_units_and_ends_all_sessions() {
    let mut w = World::simple(1, 64);
    w.disk("d1", 64);
    w.export("d1");
    let group = |name: &str, initiator: &str, device: &str| GroupSpec {
        name: name.into(),
        initiators: vec![initiator.into()],
        luns: vec![LunSpec { lun: 0, device: device.into(), read_only: false }],
        ..GroupSpec::default()
    };
    let admins = GroupSpec { cold_resets_target: true, ..group("admins", "i1", "d0") };
    let groups = [admins, group("others", "i2", "d1")];
    w.registry.set_groups("iscsi", TARGET, &groups).unwrap();
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let tm = b.manage(TmFunction::TargetColdReset, 0, None);
    w.turn();
    assert_eq!(b.outcome(tm), Some(TmOutcome::Complete));
    assert!(is_cold_reset(&b) && !is_cold_reset(&a), "its group has no permission");
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
    w.run(&a, 0, &TUR, 0, &[]).good();
    // The write of the other initiator, at a unit of its own, has to end first.
    let disk = w.disks[1].1.clone();
    disk.state().hold = true;
    let write = b.send(0, &write16(0, 1), 0, &[1; 512]);
    w.turn();
    let tm = a.manage(TmFunction::TargetColdReset, 0, None);
    w.turn();
    assert_eq!(a.outcome(tm), None, "a write is at the medium");
    w.release_all(&disk);
    w.turn();
    assert_eq!(a.outcome(tm), Some(TmOutcome::Complete));
    assert!(b.answer(write).is_none(), "its session ends instead");
    assert!(is_cold_reset(&a));
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0), "its unit was reset");
}

#[test]
fn an_error_of_the_provider_fails_only_its_own_command() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let disk = w.disks[0].1.clone();
    for (error, want) in [
        (Errno::Io, (3, 0x0C, 0)),
        (Errno::NxIo, (2, 4, 3)),
        (Errno::NoSpc, (7, 0x27, 7)),
        (Errno::RoFs, (7, 0x27, 0)),
        (Errno::TimedOut, (0xB, 0x3E, 2)),
        (Errno::RemoteIo, (4, 0x44, 0)),
    ] {
        disk.state().fail = Some((0, error));
        assert_eq!(w.run(&h, 0, &write16(0, 2), 0, &[1; 1024]).asc(), want, "{error:?}");
        w.run(&h, 0, &write16(2, 2), 0, &[1; 1024]).good();
    }
    disk.state().fail = Some((0, Errno::Busy));
    assert_eq!(w.run(&h, 0, &read16(0, 1), 512, &[]).status, 8, "BUSY");
    assert!(disk.state().log.iter().all(|d| d.op == Op::Write));
}

#[test]
fn a_medium_error_names_the_block_if_reported_or_if_there_is_only_one() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    let disk = w.disks[0].1.clone();
    for (tells, lba, blocks, want) in
        [(true, 4, 8, Some(7)), (true, 7, 1, Some(7)), (false, 7, 1, Some(7)), (false, 4, 8, None)]
    {
        disk.state().fail = Some((7 * 512 + 5, Errno::Io));
        disk.state().reports_bad_byte = tells;
        let data = vec![1; blocks * 512];
        let write = w.run(&h, 0, &write16(lba, blocks as u32), 0, &data);
        assert_eq!((write.asc(), write.sense().information), ((3, 0x0c, 0), want));
        let read = w.run(&h, 0, &read16(lba, blocks as u32), blocks as u32 * 512, &[]);
        assert_eq!((read.asc(), read.sense().information), ((3, 0x11, 0), want));
    }
    disk.state().fail = Some((7 * 512, Errno::RemoteIo));
    let read = w.run(&h, 0, &read16(4, 8), 8 * 512, &[]);
    assert_eq!((read.asc(), read.sense().information), ((4, 0x44, 0), None));
}

#[test]
fn a_write_waiting_while_the_disk_shrinks_is_not_acknowledged() {
    for (blocks, size) in [(2, 48), (4, 49), (2, 40), (1, 48)] {
        let mut w = World::simple(1, 64);
        let h = w.calm(0, "i1", &[0]);
        hold(&w);
        h.send(0, &write16(0, 1), 0, &[1; 512]);
        h.attribute.set(TaskAttribute::Ordered);
        let late = h.send(0, &write16(48, blocks), 0, &vec![2; blocks as usize * 512]);
        let p = w.provider("d0");
        w.control.topology.post(geom::Event::Resize(p, size * 512));
        w.settle();
        w.release_all(&w.disks[0].1);
        assert_eq!(w.answer(&h, late).asc(), (5, 0x21, 0), "{blocks} blocks, size {size}");
    }
}
