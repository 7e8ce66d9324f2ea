//! Asymmetric access: the commands that each state permits, the unit attentions of changes, and
//! that a change waits.

use std::sync::Arc;

use bio::Op;
use engine::alua::{PortGroupSpec, Stage};
use engine::{GroupSpec, LunSpec, Next, TmFunction, TmOutcome};
use wire::scsi::{AccessState, StateCause, parse_target_port_groups, set_target_port_groups};

use crate::world::*;

const INQUIRY: [u8; 6] = [0x12, 0, 0, 0, 96, 0];

fn report(w: &World, host: &Host) -> Vec<(u16, AccessState, bool, Vec<u16>)> {
    let cdb = [0xA3, 0x2A, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0];
    let data = w.run(host, 0, &cdb, 256, &[]).good().data;
    let (groups, seconds) = parse_target_port_groups(&data, true).unwrap();
    assert_eq!(seconds, 10);
    groups.into_iter().map(|g| (g.group, g.state, g.preferred, g.ports)).collect()
}

fn set(host: &Host, groups: &[(u16, AccessState)]) -> u32 {
    let list = set_target_port_groups(groups);
    let cdb = [0xA4, 0x0A, 0, 0, 0, 0, 0, 0, 0, list.len() as u8, 0, 0];
    host.send(0, &cdb, 0, &list)
}

fn explicit(id: u16, name: &str) -> PortGroupSpec {
    PortGroupSpec { name: name.into(), id, explicit: true, ..PortGroupSpec::default_group() }
}

/// A world whose only port is in an explicit group, 7, beside an empty one, 8.
fn world() -> World {
    let w = World::simple(1, 64);
    w.registry.set_port_groups(&[explicit(7, "near"), explicit(8, "far")]).unwrap();
    w.registry.set_port_group("iscsi", TARGET, "near").unwrap();
    w
}

/// The answer to something that sleeps while it waits.
fn answer(w: &World, host: &Host, tag: u32) -> CommandResult {
    for _ in 0..50 {
        if let Some(answer) = host.answer(tag) {
            return answer;
        }
        w.pass(1_000_000);
    }
    panic!("no answer to {tag}");
}

#[test]
fn ports_report_their_group_and_only_explicit_groups_accept_changes() {
    let w = World::simple(1, 64);
    let h = w.calm(0, "i1", &[0]);
    assert_eq!(report(&w, &h), [(1, AccessState::Optimized, false, vec![1])]);
    assert_eq!(w.run(&h, 0, &INQUIRY, 96, &[]).good().data[5] >> 4 & 3, 1);
    let tag = set(&h, &[(1, AccessState::Standby)]);
    assert_eq!(answer(&w, &h, tag).asc(), (5, 0x24, 0));
    w.registry.set_port_groups(&[explicit(7, "near")]).unwrap();
    w.registry.set_port_group("iscsi", TARGET, "near").unwrap();
    assert_eq!(w.run(&h, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 6));
    assert_eq!(w.run(&h, 0, &INQUIRY, 96, &[]).good().data[5] >> 4 & 3, 3);
    assert_eq!(report(&w, &h), [(7, AccessState::Optimized, false, vec![1])]);
    for list in [[(8, AccessState::Standby)], [(1, AccessState::Standby)]] {
        let tag = set(&h, &list);
        assert_eq!(answer(&w, &h, tag).asc(), (5, 0x26, 0), "{list:?}");
    }
    assert!(w.registry.set_port_groups(&[]).is_err(), "near has a port");
}

#[test]
fn each_state_admits_its_commands_and_notifies_other_nexuses() {
    let w = world();
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    for (state, sense) in [
        (AccessState::NonOptimized, None),
        (AccessState::Standby, Some((2, 4, 0x0B))),
        (AccessState::Unavailable, Some((2, 4, 0x0C))),
        (AccessState::Optimized, None),
    ] {
        let tag = set(&a, &[(7, state)]);
        answer(&w, &a, tag).good();
        assert_eq!(w.registry.port_groups()[1].cause(), StateCause::Explicit);
        for (host, hears) in [(&a, false), (&b, true)] {
            w.run(host, 0, &INQUIRY, 96, &[]).good();
            if hears {
                assert_eq!(w.run(host, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 6), "{state:?}");
            }
            assert_eq!(report(&w, host)[0].1, state);
            for cdb in [&TUR[..], &read16(0, 1), &write16(0, 1)] {
                let data: &[u8] = if cdb[0] == 0x8A { &[0; 512] } else { &[] };
                let expect = if cdb[0] == 0x88 { 512 } else { 0 };
                let a = w.run(host, 0, cdb, expect, data);
                assert_eq!(a.asc(), sense.unwrap_or_default(), "{state:?} {:02x}", cdb[0]);
            }
        }
        // A nexus that arrives later begins with a reset, which covers the change, and is under the
        // same rule.
        let late = w.host(0, "i3");
        assert_eq!(w.run(&late, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
        assert_eq!(w.run(&late, 0, &TUR, 0, &[]).asc(), sense.unwrap_or_default());
        late.session.close();
    }
}

#[test]
fn l1_a_state_change_waits_for_commands_in_flight_on_all_cores() {
    let w = world();
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let disk = w.disks[0].1.clone();
    disk.state().hold = true;
    let written = b.send(0, &write16(3, 1), 0, &[9; 512]);
    let (unfed, next) = b.begin(0, &write16(4, 1), 0, 512);
    assert!(matches!(next, Next::Data { .. }));
    w.turn();
    let tag = set(&a, &[(7, AccessState::Standby)]);
    w.pass(20_000_000);
    assert_eq!(a.answer(tag), None, "a write is at the medium");
    assert_eq!(w.registry.port_groups()[1].state(), AccessState::Transitioning);
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (2, 4, 0x0A));
    let second = set(&a, &[(7, AccessState::Optimized)]);
    assert_eq!(answer(&w, &a, second).asc(), (2, 4, 0x0A), "one change at a time");
    b.give(unfed, &[8; 512]);
    w.turn();
    w.release_all(&disk);
    answer(&w, &b, written).good();
    answer(&w, &b, unfed).good();
    answer(&w, &a, tag).good();
    let writes = disk.state().log.iter().filter(|d| d.op == Op::Write).count();
    assert_eq!(writes, 2);
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 6));
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (2, 4, 0x0B));
}

/// A change that waits for a write which the medium does not end.
struct Stuck {
    a: Host,
    b: Host,
    disk: Arc<TestDisk>,
    written: u32,
    change: u32,
}

fn stuck(w: &World) -> Stuck {
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let disk = w.disks[0].1.clone();
    disk.state().hold = true;
    let written = b.send(0, &write16(3, 1), 0, &[9; 512]);
    w.turn();
    let change = set(&a, &[(7, AccessState::Standby)]);
    Stuck { a, b, disk, written, change }
}

#[test]
fn a_state_change_that_times_out_is_reverted() {
    let w = world();
    let Stuck { a, b, disk, written, change } = stuck(&w);
    w.pass(11_000_000_000);
    assert_eq!(answer(&w, &a, change).asc(), (4, 0x67, 0x0A));
    assert_eq!(w.registry.port_groups()[1].state(), AccessState::Optimized);
    w.run(&a, 0, &TUR, 0, &[]).good();
    w.run(&b, 0, &TUR, 0, &[]).good();
    w.release_all(&disk);
    answer(&w, &b, written).good();
    assert_eq!(w.registry.port_groups()[1].state(), AccessState::Optimized, "too late");
}

#[test]
fn a_state_change_whose_command_is_aborted_is_reverted() {
    let w = world();
    let Stuck { a, b, disk, written, change } = stuck(&w);
    w.turn();
    let other = set(&b, &[(7, AccessState::Unavailable)]);
    assert_eq!(answer(&w, &b, other).asc(), (2, 4, 0x0A), "one change at a time");
    let tm = a.manage(TmFunction::AbortTask, 0, Some(change));
    w.pass(100_000_000);
    assert!(a.discarded(change) && a.outcome(tm) == Some(TmOutcome::Complete));
    w.release_all(&disk);
    answer(&w, &b, written).good();
    w.pass(100_000_000);
    assert_eq!(
        w.registry.port_groups()[1].state(),
        AccessState::Optimized,
        "nor does it come late"
    );
    w.run(&a, 0, &TUR, 0, &[]).good();
}

#[test]
fn state_changes_are_refused_for_foreign_and_implicit_groups() {
    let w = world();
    let plain = PortGroupSpec { name: "plain".into(), id: 9, ..PortGroupSpec::default_group() };
    w.registry.set_port_groups(&[explicit(7, "near"), explicit(8, "far"), plain]).unwrap();
    let other = "iqn.2024-01.test:other";
    w.registry.set_target("iscsi", other).unwrap();
    let all = GroupSpec {
        name: "all".into(),
        initiators: vec!["*".into()],
        luns: vec![LunSpec { lun: 0, device: "d0".into(), read_only: false }],
        ..GroupSpec::default()
    };
    w.registry.set_groups("iscsi", other, &[all]).unwrap();
    w.registry.set_port_group("iscsi", other, "plain").unwrap();
    let h = w.calm(0, "i1", &[0]);
    assert!(report(&w, &h).iter().any(|(id, ..)| *id == 9), "a way to the unit all the same");
    // One that has no port of the unit, and one that takes no orders.
    for id in [8, 9] {
        let tag = set(&h, &[(7, AccessState::NonOptimized), (id, AccessState::Standby)]);
        assert_eq!(answer(&w, &h, tag).asc(), (5, 0x26, 0), "{id}");
    }
    assert_eq!(w.registry.port_groups()[1].state(), AccessState::Optimized, "wholly or not at all");
}

#[test]
fn an_implicit_state_change_is_reported_to_every_nexus() {
    let w = world();
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let states = [(7, AccessState::Offline), (8, AccessState::Standby)];
    let change = w.registry.set_access_states(&states, StateCause::Implicit, None).unwrap();
    for _ in 0..4 {
        w.turn();
    }
    assert_eq!(change.stage(), Stage::Done);
    for host in [&a, &b] {
        assert_eq!(w.run(host, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 6));
        assert_eq!(w.run(host, 0, &TUR, 0, &[]).asc(), (2, 4, 0x12));
        assert_eq!(report(&w, host)[0].1, AccessState::Offline);
    }
    let unknown = [(9, AccessState::Standby)];
    assert!(w.registry.set_access_states(&unknown, StateCause::Implicit, None).is_err());
    let back = [(7, AccessState::Optimized)];
    let change = w.registry.set_access_states(&back, StateCause::Implicit, None).unwrap();
    assert_eq!(change.stage(), Stage::Done, "nothing is waited for on the way back");
    assert_eq!(w.run(&a, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 6));
    w.run(&a, 0, &TUR, 0, &[]).good();
}
