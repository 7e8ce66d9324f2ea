//! Reservations through the engine, on two cores: unit attentions, aborted commands, and the state
//! after a restart. Tests 10 to 13 of the list of common target errors.

use bio::Errno;
use engine::state_store::{MemoryStore, RecordKind};
use engine::{GroupSpec, LunSpec, TmFunction, TmOutcome};
use wire::scsi::{PrMove, PrOutAction, PrOutList, PrType, Status, TransportId};
use wire::scsi::{parse_pr_full_status, parse_pr_keys, parse_pr_reservation};

use PrOutAction::*;

use crate::world::*;

const GOOD: u8 = 0;
const CONFLICT: u8 = Status::ReservationConflict as u8;
const RESERVE6: [u8; 6] = [0x16, 0, 0, 0, 0, 0];
const RELEASE6: [u8; 6] = [0x17, 0, 0, 0, 0, 0];

fn pr_in(action: u8) -> [u8; 10] {
    [0x5E, action, 0, 0, 0, 0, 0, 0x20, 0, 0]
}

fn pr_out(action: PrOutAction, kind: u8, list: &[u8]) -> [u8; 10] {
    let len = (list.len() as u32).to_be_bytes();
    [0x5F, action as u8, kind, 0, 0, len[0], len[1], len[2], len[3], 0]
}

fn list(key: u64, action_key: u64) -> PrOutList {
    PrOutList { key, action_key, ..PrOutList::default() }
}

fn run(w: &World, h: &Host, action: PrOutAction, kind: u8, list: &PrOutList) -> CommandResult {
    let bytes = list.encode();
    w.run(h, 0, &pr_out(action, kind, &bytes), 0, &bytes)
}

fn register(w: &World, h: &Host, key: u64) {
    run(w, h, RegisterAndIgnore, 0, &list(0, key)).good();
}

fn keys(w: &World, h: &Host) -> (u32, Vec<u64>) {
    parse_pr_keys(&w.run(h, 0, &pr_in(0), 8192, &[]).good().data).unwrap()
}

fn reservation(w: &World, h: &Host) -> Option<(u64, PrType)> {
    parse_pr_reservation(&w.run(h, 0, &pr_in(1), 8192, &[]).good().data).unwrap().1
}

fn status(w: &World, h: &Host, cdb: &[u8], data: &[u8]) -> u8 {
    w.run(h, 0, cdb, if data.is_empty() { 512 } else { 0 }, data).status
}

#[test]
fn a_reservation_is_effective_at_once_on_other_cores() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    register(&w, &a, 1);
    run(&w, &a, Reserve, 1, &list(1, 0)).good();
    assert_eq!(status(&w, &b, &write16(0, 1), &[1; 512]), CONFLICT);
    assert_eq!(status(&w, &b, &read16(0, 1), &[]), GOOD);
    assert_eq!(status(&w, &a, &write16(0, 1), &[1; 512]), GOOD);
    assert_eq!(keys(&w, &b), (1, vec![1]));
    assert_eq!(reservation(&w, &b), Some((1, PrType::WriteExclusive)));
    // A nexus that arrives later has its rights from the first command on.
    let c = w.calm(1, "i3", &[0]);
    assert_eq!(status(&w, &c, &write16(0, 1), &[1; 512]), CONFLICT);
    run(&w, &a, Release, 1, &list(1, 0)).good();
    assert_eq!(status(&w, &b, &write16(0, 1), &[1; 512]), GOOD);
    assert_eq!(status(&w, &c, &write16(0, 1), &[1; 512]), GOOD);
    let full = w.run(&a, 0, &pr_in(3), 8192, &[]).good().data;
    let (generation, all) = parse_pr_full_status(&full).unwrap();
    assert_eq!((generation, all.len(), all[0].holds), (1, 1, None));
    assert_eq!(all[0].port.iscsi_name(), Some("i1"));
}

#[test]
fn view_has_reservations_only_of_units_with_a_registrant() {
    let w = World::simple(1, 64);
    let a = w.calm(0, "i1", &[0]);
    let registrants = || {
        let view = w.registry.view();
        let reservations = view.devices.iter().filter_map(|d| d.reservations.as_ref());
        reservations.map(|r| r.registrations().count()).collect::<Vec<_>>()
    };
    assert!(registrants().is_empty());
    register(&w, &a, 1);
    assert_eq!(registrants(), [1]);
    register(&w, &a, 0);
    assert!(registrants().is_empty());
}

#[test]
fn a_registration_survives_its_session_but_a_reserve_does_not() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let port = a.session.port().transport_id.clone();
    register(&w, &a, 1);
    run(&w, &a, Reserve, 3, &list(1, 0)).good();
    a.session.close();
    assert!(a.ended());
    assert_eq!(status(&w, &b, &read16(0, 1), &[]), CONFLICT);
    // The same port on the other core is the holder again; another port of the name is not.
    let a = Host::login_as(&w.engines[1], "i1", &port).unwrap();
    assert_eq!(w.run(&a, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
    assert_eq!(status(&w, &a, &write16(0, 1), &[1; 512]), GOOD);
    let other = w.calm(0, "i1", &[0]);
    assert_eq!(status(&w, &other, &read16(0, 1), &[]), CONFLICT);
    run(&w, &a, Clear, 0, &list(1, 0)).good();
    w.run(&a, 0, &RESERVE6, 0, &[]).good();
    assert_eq!(status(&w, &b, &TUR, &[]), CONFLICT);
    a.session.close();
    assert_eq!(status(&w, &b, &TUR, &[]), GOOD);
}

#[test]
fn test_13_reserve_belongs_to_one_nexus_and_ends_with_it() {
    type End = fn(&World, &Host, &Host);
    let ends: [(&str, bool, End); 5] = [
        ("release", true, |w, a, _| drop(w.run(a, 0, &RELEASE6, 0, &[]).good())),
        ("logout", true, |_, a, _| a.session.close()),
        ("nexus reset", true, |w, a, _| {
            let tag = a.manage(TmFunction::NexusReset, 0, None);
            w.turn();
            assert_eq!(a.outcome(tag), Some(TmOutcome::Complete));
        }),
        ("LUN reset", true, |w, _, b| {
            let tag = b.manage(TmFunction::LunReset, 0, None);
            w.turn();
            assert_eq!(b.outcome(tag), Some(TmOutcome::Complete));
            assert_eq!(w.run(b, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
        }),
        ("release by another", false, |w, _, b| drop(w.run(b, 0, &RELEASE6, 0, &[]).good())),
    ];
    for (what, ended, end) in ends {
        let w = World::simple(1, 64);
        let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
        w.run(&a, 0, &RESERVE6, 0, &[]).good();
        w.run(&a, 0, &RESERVE6, 0, &[]).good();
        for cdb in [&TUR[..], &RESERVE6, &pr_in(0), &read16(0, 1)] {
            assert_eq!(status(&w, &b, cdb, &[]), CONFLICT, "{what}: {cdb:02x?}");
        }
        // PERSISTENT RESERVE conflicts even for the holder.
        assert_eq!(status(&w, &a, &pr_in(0), &[]), CONFLICT, "{what}");
        assert_eq!(run(&w, &a, Register, 0, &list(0, 1)).status, CONFLICT, "{what}");
        end(&w, &a, &b);
        let want = if ended { GOOD } else { CONFLICT };
        assert_eq!(status(&w, &b, &TUR, &[]), want, "{what}");
    }
    // Third parties and extents.
    let w = World::simple(1, 64);
    let a = w.calm(0, "i1", &[0]);
    for byte in [0x10, 0x01, 0x1e] {
        for opcode in [0x16, 0x17] {
            assert_eq!(w.run(&a, 0, &[opcode, byte, 0, 0, 0, 0], 0, &[]).asc(), (5, 0x24, 0));
        }
    }
}

/// A world in which the initiator `reader` has LUN 0 read-only, and all others may write it.
fn world_with_reader(read_only_reserves: bool) -> World {
    let w = World::simple(1, 64);
    let group = |name: &str, pattern: &str, read_only: bool| GroupSpec {
        name: name.into(),
        initiators: vec![pattern.into()],
        luns: vec![LunSpec { lun: 0, device: "d0".into(), read_only }],
        read_only_reserves,
        ..GroupSpec::default()
    };
    let groups = [group("readers", "reader", true), group("writers", "i*", false)];
    w.registry.set_groups("iscsi", TARGET, &groups).unwrap();
    w
}

#[test]
fn task_management_of_a_read_only_initiator_affects_only_its_own_tasks() {
    use TmFunction::{ClearTaskSet, LunReset, TargetColdReset, TargetWarmReset};
    for f in [LunReset, ClearTaskSet, TargetWarmReset, TargetColdReset] {
        let w = world_with_reader(false);
        let disk = w.disks[0].1.clone();
        let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
        let reader = w.calm(1, "reader", &[0]);
        disk.state().hold = true;
        let read = reader.send(0, &read16(0, 1), 512, &[]);
        w.run(&a, 0, &RESERVE6, 0, &[]).good();
        let write = a.send(0, &write16(1, 1), 0, &[1; 512]);
        w.turn();
        let tag = reader.manage(f, 0, None);
        w.turn();
        assert_eq!(reader.outcome(tag), None, "{f:?}: its own read is at the medium");
        w.release_all(&disk);
        w.turn();
        assert_eq!(reader.outcome(tag), Some(TmOutcome::Complete), "{f:?}");
        assert!(reader.discarded(read), "{f:?}");
        w.answer(&a, write).good();
        assert_eq!(status(&w, &b, &TUR, &[]), CONFLICT, "{f:?}");
        w.run(&a, 0, &TUR, 0, &[]).good();
    }
}

#[test]
fn a_reset_of_a_read_only_initiator_that_may_reserve_ends_a_reserve() {
    let w = world_with_reader(true);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let reader = w.calm(1, "reader", &[0]);
    w.run(&a, 0, &RESERVE6, 0, &[]).good();
    assert_eq!(status(&w, &b, &TUR, &[]), CONFLICT);
    let tag = reader.manage(TmFunction::LunReset, 0, None);
    w.turn();
    assert_eq!(reader.outcome(tag), Some(TmOutcome::Complete));
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
    w.run(&b, 0, &TUR, 0, &[]).good();
}

#[test]
fn test_11_unit_attentions_reach_only_the_affected_nexuses() {
    for kind in PrType::ALL {
        let w = World::simple(1, 64);
        let hosts = [w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]), w.calm(1, "i3", &[0])];
        let [a, b, c] = &hosts;
        let open = kind.admits_registrants();
        let sense = |h: &Host| w.run(h, 0, &TUR, 0, &[]).asc();
        register(&w, a, 1);
        register(&w, b, 2);
        run(&w, a, Reserve, kind.code(), &list(1, 0)).good();
        run(&w, a, Release, kind.code(), &list(1, 0)).good();
        let want = if open { (6, 0x2A, 4) } else { (0, 0, 0) };
        assert_eq!((sense(a), sense(b), sense(c)), ((0, 0, 0), want, (0, 0, 0)), "{kind:?}");
        // A release of the wrong type.
        run(&w, a, Reserve, kind.code(), &list(1, 0)).good();
        let wrong = if kind == PrType::WriteExclusive { 3 } else { 1 };
        assert_eq!(run(&w, a, Release, wrong, &list(1, 0)).asc(), (5, 0x26, 4));
        // The holder unregisters: released, but for "all registrants".
        run(&w, a, Register, 0, &list(1, 0)).good();
        let stays = kind.is_all_registrants();
        let want = if open && !stays { (6, 0x2A, 4) } else { (0, 0, 0) };
        assert_eq!((sense(a), sense(b), sense(c)), ((0, 0, 0), want, (0, 0, 0)), "{kind:?}");
        let held = reservation(&w, b).map(|(_, kind)| kind);
        assert_eq!(held, stays.then_some(kind), "{kind:?}");
        run(&w, b, Clear, 0, &list(2, 0)).good();
        assert_eq!((sense(a), sense(b), sense(c)), ((0, 0, 0), (0, 0, 0), (0, 0, 0)));
        // PREEMPT of a holder, and CLEAR.
        register(&w, a, 1);
        register(&w, b, 2);
        register(&w, c, 3);
        run(&w, a, Reserve, kind.code(), &list(1, 0)).good();
        let victim = if kind.is_all_registrants() { 0 } else { 1 };
        run(&w, b, Preempt, 1, &list(2, victim)).good();
        let third = match (kind.is_all_registrants(), kind) {
            (true, _) => (6, 0x2A, 5),
            (_, PrType::WriteExclusive) => (0, 0, 0),
            _ => (6, 0x2A, 4),
        };
        assert_eq!((sense(a), sense(b), sense(c)), ((6, 0x2A, 5), (0, 0, 0), third), "{kind:?}");
        assert_eq!(reservation(&w, c), Some((2, PrType::WriteExclusive)));
        register(&w, c, 3);
        run(&w, b, Clear, 0, &list(2, 0)).good();
        assert_eq!((sense(a), sense(b), sense(c)), ((0, 0, 0), (0, 0, 0), (6, 0x2A, 3)));
        assert_eq!((keys(&w, a).1, reservation(&w, a)), (vec![], None));
    }
}

/// P1 of reservations/mod.rs.
#[test]
fn a_wrong_key_conflicts_and_changes_nothing() {
    let w = World::simple(1, 64);
    let a = w.calm(0, "i1", &[0]);
    register(&w, &a, 1);
    for action in PrOutAction::ALL.into_iter().filter(|a| *a != RegisterAndIgnore) {
        let to = (action == RegisterAndMove).then(|| PrMove {
            unregister: false,
            target: 1,
            port: TransportId::iscsi_device("i2").unwrap(),
        });
        let wrong = PrOutList { to, ..list(9, 2) };
        assert_eq!(run(&w, &a, action, 1, &wrong).status, CONFLICT, "{action:?}");
    }
    assert_eq!(keys(&w, &a), (1, vec![1]));
    // Lists that are too short or too long, by the CDB or by the received data.
    for len in [0, 8, 23, 25, 70_000] {
        let cdb = pr_out(Register, 0, &vec![0; len]);
        // Less data than the CDB announces is a list that was cut.
        let want = if len == 25 { (5, 0x0E, 3) } else { (5, 0x1A, 0) };
        assert_eq!(w.run(&a, 0, &cdb, 0, &[0; 24]).asc(), want, "{len}");
    }
    let cdb = pr_out(Register, 0, &[0; 24]);
    assert_eq!(w.run(&a, 0, &cdb, 0, &[0; 10]).asc(), (5, 0x0E, 3));
}

#[test]
fn preempt_and_abort_is_answered_after_the_last_access_of_aborted_tasks() {
    for tas in [false, true] {
        let w = World::simple(1, 64);
        let disk = w.disks[0].1.clone();
        let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
        let c = w.calm(1, "i3", &[0]);
        let (cdb, page) = control_page(false, false, tas);
        w.run(&a, 0, &cdb, 0, &page).good();
        for h in [&b, &c] {
            let sense = w.run(h, 0, &TUR, 0, &[]).asc();
            assert_eq!(sense, if tas { (6, 0x2A, 1) } else { (0, 0, 0) });
        }
        register(&w, &a, 1);
        register(&w, &b, 2);
        run(&w, &b, Reserve, 5, &list(2, 0)).good();
        disk.state().hold = true;
        let victim = b.send(0, &write16(1, 1), 0, &[7; 512]);
        let waits = b.begin(0, &write16(2, 1), 0, 512).0;
        let bystander = c.send(0, &read16(1, 1), 512, &[]);
        w.turn();
        let bytes = list(1, 2).encode();
        let preempt = a.send(0, &pr_out(PreemptAndAbort, 5, &bytes), 0, &bytes);
        w.turn();
        assert_eq!(a.answer(preempt), None, "the write is still below");
        // The change is in effect already: later commands conflict.
        assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 5));
        assert_eq!(status(&w, &c, &write16(3, 1), &[1; 512]), CONFLICT);
        disk.state().hold = false;
        while w.release(&disk, 0) {}
        w.answer(&a, preempt).good();
        w.answer(&c, bystander).good();
        for tag in [victim, waits] {
            let ended = b.answer(tag).map(|a| a.status);
            let want = tas.then_some(Status::TaskAborted as u8);
            assert_eq!(ended, want, "{}", if tas { "TASK ABORTED" } else { "silence" });
        }
        if !tas {
            assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x2F, 0));
        }
        assert_eq!(status(&w, &b, &write16(3, 1), &[1; 512]), CONFLICT);
        assert_eq!(status(&w, &c, &write16(3, 1), &[1; 512]), CONFLICT);
        assert_eq!(reservation(&w, &a), Some((1, PrType::WriteExclusiveRegistrants)));
    }
}

/// O2 of `commands/persistent.rs`: an action that waits for the commands of others has released the
/// turn.
#[test]
fn other_actions_proceed_while_preempt_and_abort_waits_for_aborted_tasks() {
    let store = MemoryStore::new();
    let w = start(&store);
    let disk = w.disks[0].1.clone();
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    let c = w.calm(1, "i3", &[0]);
    register_aptpl(&w, &a, 1).good();
    register_aptpl(&w, &b, 2).good();
    disk.state().hold = true;
    let write = b.send(0, &write16(1, 1), 0, &[7; 512]);
    w.turn();
    // One of the victim's own commands waits for the turn that the preemption has.
    store.hold(true);
    let bytes = PrOutList { aptpl: true, ..list(1, 2) }.encode();
    let preempt = a.send(0, &pr_out(PreemptAndAbort, 5, &bytes), 0, &bytes);
    w.turn();
    let more = list(2, 9).encode();
    let late = b.send(0, &pr_out(Register, 0, &more), 0, &more);
    w.turn();
    store.hold(false);
    w.turn();
    assert_eq!(a.answer(preempt), None, "the write is still below");
    // The change of another host waits for neither.
    run(&w, &c, Register, 0, &list(0, 3)).good();
    assert_eq!(keys(&w, &c).1, [1, 3]);
    assert_eq!(a.answer(preempt), None, "the write is still below");
    disk.state().hold = false;
    while w.release(&disk, 0) {}
    w.answer(&a, preempt).good();
    assert_eq!(b.answer(write), None, "aborted in silence");
    // Aborted, or a conflict where the turn reached it before the abort did.
    assert!(b.answer(late).is_none_or(|a| a.status == CONFLICT), "its registration is gone");
    assert_eq!(keys(&w, &c).1, [1, 3]);
}

#[test]
fn preempt_and_abort_ends_the_aca_of_preempted_nexuses() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    register(&w, &a, 1);
    register(&w, &b, 2);
    // NACA, beyond the end.
    let mut cdb = read16(64, 1);
    cdb[15] = 4;
    assert_eq!(w.run(&b, 0, &cdb, 512, &[]).asc(), (5, 0x21, 0));
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).status, Status::AcaActive as u8);
    run(&w, &a, PreemptAndAbort, 5, &list(1, 2)).good();
    assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x2A, 5));
    w.run(&b, 0, &TUR, 0, &[]).good();
}

fn register_aptpl(w: &World, h: &Host, key: u64) -> CommandResult {
    let list = PrOutList { aptpl: true, ..list(0, key) };
    run(w, h, RegisterAndIgnore, 0, &list)
}

/// A world over a state store, as after a start of the daemon.
fn start(store: &std::sync::Arc<MemoryStore>) -> World {
    let mut w = World::new(1);
    w.registry.set_state_store(store.clone());
    w.disk("d0", 64);
    w.export("d0");
    w.map(&[(0, "d0", false)]);
    w
}

#[test]
fn test_12_aptpl_state_is_restored_before_the_first_command() {
    for kind in PrType::ALL {
        let store = MemoryStore::new();
        let (w, ports) = {
            let w = start(&store);
            let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
            register_aptpl(&w, &a, 1).good();
            register_aptpl(&w, &b, 2).good();
            run(&w, &a, Reserve, kind.code(), &list(1, 0)).good();
            let ports = [&a, &b].map(|h| h.session.port().transport_id.clone());
            (w, ports)
        };
        // The world that ends receives no notice: it is killed.
        drop(w);
        let w = start(&store);
        let stranger = w.calm(1, "i3", &[0]);
        assert_eq!(status(&w, &stranger, &write16(0, 1), &[1; 512]), CONFLICT, "{kind:?}");
        let b = Host::login_as(&w.engines[0], "i2", &ports[1]).unwrap();
        assert_eq!(w.run(&b, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
        let want = if kind.admits_registrants() { GOOD } else { CONFLICT };
        assert_eq!(status(&w, &b, &write16(0, 1), &[1; 512]), want, "{kind:?}");
        let a = Host::login_as(&w.engines[1], "i1", &ports[0]).unwrap();
        assert_eq!(w.run(&a, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
        assert_eq!(status(&w, &a, &write16(0, 1), &[1; 512]), GOOD, "{kind:?}");
        assert_eq!(
            keys(&w, &a),
            (2, {
                let mut k = vec![1, 2];
                k.sort_unstable();
                k
            })
        );
        assert_eq!(reservation(&w, &a).map(|(_, k)| k), Some(kind));
        // APTPL given up: the next life begins empty.
        run(&w, &a, RegisterAndIgnore, 0, &list(0, 1)).good();
        drop(w);
        let w = start(&store);
        let c = w.calm(0, "i3", &[0]);
        assert_eq!((keys(&w, &c).1, reservation(&w, &c)), (vec![], None));
    }
}

#[test]
fn a_waiting_command_obeys_a_reservation_made_meanwhile() {
    let w = World::simple(1, 64);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    register(&w, &a, 1);
    // Its data follows the reservation; a read of the same nexus is not concerned.
    let (late, next) = b.begin(0, &write16(0, 1), 0, 512);
    assert_eq!(next, engine::Next::Data { wanted: 512 });
    run(&w, &a, Reserve, 1, &list(1, 0)).good();
    b.give(late, &[7; 512]);
    assert_eq!(w.answer(&b, late).status, CONFLICT);
    assert_eq!(w.run(&b, 0, &read16(0, 1), 512, &[]).good().data, [0; 512]);
    run(&w, &a, Release, 1, &list(1, 0)).good();
    // One that waits for its turn behind an ORDERED write which waits for its data.
    b.attribute.set(engine::TaskAttribute::Ordered);
    let (first, _) = b.begin(0, &write16(0, 1), 0, 512);
    let second = b.send(0, &write16(1, 1), 0, &[8; 512]);
    w.turn();
    assert_eq!(b.answer(second), None);
    let reserve = list(1, 0).encode();
    a.attribute.set(engine::TaskAttribute::HeadOfQueue);
    let reserved = a.send(0, &pr_out(Reserve, 1, &reserve), 0, &reserve);
    w.answer(&a, reserved).good();
    b.give(first, &[7; 512]);
    assert_eq!(w.answer(&b, first).status, CONFLICT);
    assert_eq!(w.answer(&b, second).status, CONFLICT);
    assert_eq!(w.run(&a, 0, &read16(0, 2), 1024, &[]).good().data, [0; 1024]);
}

/// A world with targets in this order, as after a start of the daemon; `TARGET` has `d0`.
fn start_with(store: &std::sync::Arc<MemoryStore>, names: &[(&str, Option<u16>)]) -> World {
    let mut w = World::new(1);
    w.registry.remove_target("iscsi", TARGET).unwrap();
    w.registry.set_state_store(store.clone());
    for (name, port) in names {
        w.registry.set_target_at("iscsi", name, *port).unwrap();
    }
    w.disk("d0", 64);
    w.export("d0");
    w.map(&[(0, "d0", false)]);
    w
}

fn port_of(w: &World, name: &str) -> u16 {
    w.registry.target("iscsi", name).map_or(0, |t| t.port)
}

#[test]
fn test_12_registrations_keep_their_port_after_targets_change() {
    let store = MemoryStore::new();
    let w = start_with(&store, &[("iqn.t:first", None), (TARGET, None)]);
    assert_eq!((port_of(&w, "iqn.t:first"), port_of(&w, TARGET)), (1, 2));
    let a = w.calm(0, "i1", &[0]);
    register_aptpl(&w, &a, 1).good();
    run(&w, &a, Reserve, PrType::ExclusiveAccess.code(), &list(1, 0)).good();
    let port = a.session.port().transport_id.clone();
    drop(w);
    // The other initiator was removed, or others are before it: they never get its number.
    let lives: [&[_]; 4] = [
        &[(TARGET, None)],
        &[("iqn.t:new", None), (TARGET, None), ("iqn.t:first", None)],
        &[("iqn.t:chosen", Some(9)), (TARGET, Some(2))],
        &[("iqn.t:more", None), (TARGET, None)],
    ];
    for names in lives {
        let w = start_with(&store, names);
        assert_eq!(port_of(&w, TARGET), 2, "{names:?}");
        let ports: std::collections::BTreeSet<u16> =
            names.iter().map(|(name, _)| port_of(&w, name)).collect();
        assert_eq!(ports.len(), names.len(), "{names:?}: {ports:?}");
        let a = Host::login_as(&w.engines[0], "i1", &port).unwrap();
        assert_eq!(w.run(&a, 0, &TUR, 0, &[]).asc(), (6, 0x29, 0));
        assert_eq!(status(&w, &a, &write16(0, 1), &[1; 512]), GOOD, "{names:?}");
        assert_eq!(reservation(&w, &a), Some((1, PrType::ExclusiveAccess)));
        // The number cannot be given to another target, and does not change while the target
        // exists.
        let taken = w.registry.set_target_at("iscsi", "iqn.t:thief", Some(2)).err().unwrap();
        assert!(taken.to_string().contains(TARGET), "{taken}");
        let moved = w.registry.set_target_at("iscsi", TARGET, Some(3)).err().unwrap();
        assert!(moved.to_string().contains("port_id 2"), "{moved}");
    }
    store.fail(Some(Errno::NoSpc));
    let w = World::new(1);
    w.registry.set_state_store(store);
    assert!(w.registry.set_target("iscsi", "iqn.t:unsaved").is_err());
    assert!(w.registry.target("iscsi", "iqn.t:unsaved").is_none());
}

#[test]
fn test_12_a_failed_save_is_an_error_and_changes_nothing() {
    let store = MemoryStore::new();
    let w = start(&store);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    register_aptpl(&w, &a, 1).good();
    let record = store.record("d0", RecordKind::Reservations);
    assert!(record.is_some());
    for (error, want) in [(Errno::NoSpc, (5, 0x55, 4)), (Errno::Io, (4, 0x44, 0))] {
        store.fail(Some(error));
        assert_eq!(register_aptpl(&w, &b, 2).asc(), want);
        assert_eq!(run(&w, &a, Reserve, 1, &list(1, 0)).asc(), want);
        assert_eq!(run(&w, &a, Clear, 0, &list(1, 0)).asc(), want);
        // Giving APTPL up has to be durable too.
        assert_eq!(run(&w, &a, RegisterAndIgnore, 0, &list(0, 3)).asc(), want);
        assert_eq!((keys(&w, &b), reservation(&w, &b)), ((1, vec![1]), None));
        assert_eq!(status(&w, &b, &write16(0, 1), &[1; 512]), GOOD);
    }
    store.fail(None);
    assert_eq!(store.record("d0", RecordKind::Reservations), record);
    run(&w, &a, Reserve, 1, &list(1, 0)).good();
    assert_eq!(status(&w, &b, &write16(0, 1), &[1; 512]), CONFLICT);
}

#[test]
fn test_12_changes_are_answered_after_the_save_and_one_at_a_time() {
    let store = MemoryStore::new();
    let w = start(&store);
    let (a, b) = (w.calm(0, "i1", &[0]), w.calm(1, "i2", &[0]));
    register_aptpl(&w, &a, 1).good();
    store.hold(true);
    let bytes = list(1, 0).encode();
    let first = a.send(0, &pr_out(Reserve, 3, &bytes), 0, &bytes);
    let more = PrOutList { aptpl: true, ..list(0, 2) }.encode();
    let second = b.send(0, &pr_out(RegisterAndIgnore, 0, &more), 0, &more);
    let legacy = b.send(0, &RESERVE6, 0, &[]);
    w.turn();
    assert_eq!((a.answer(first), b.answer(second), b.answer(legacy)), (None, None, None));
    assert_eq!(status(&w, &b, &read16(0, 1), &[]), GOOD, "not reserved yet");
    store.hold(false);
    w.answer(&a, first).good();
    w.answer(&b, second).good();
    assert_eq!(w.answer(&b, legacy).status, CONFLICT);
    assert_eq!(status(&w, &b, &read16(0, 1), &[]), CONFLICT);
    assert_eq!(keys(&w, &b).0, 2);
}

#[test]
fn aptpl_is_refused_and_not_reported_without_a_state_store() {
    let w = World::simple(1, 64);
    let a = w.calm(0, "i1", &[0]);
    let refused = register_aptpl(&w, &a, 1);
    assert_eq!((refused.asc(), refused.sense().field.map(|f| f.byte)), ((5, 0x26, 0), Some(20)));
    assert_eq!(w.run(&a, 0, &pr_in(2), 512, &[]).good().data[2] & 1, 0);
}

#[test]
fn a_unit_with_a_malformed_reservation_record_is_not_exported() {
    let store = MemoryStore::new();
    store.put("d0", RecordKind::Reservations, vec![0, 1, 1]);
    let mut w = World::new(1);
    w.registry.set_state_store(store);
    w.disk("d0", 64);
    let spec = engine::lun::OpenSpec::default();
    let result = engine::lun::open_device(&mut w.control, &w.registry, "d0", &spec);
    let why = result.err().expect("it must not be exported").to_string();
    assert!(why.contains("saved reservations"), "{why}");
}
