//! multipath on disks in memory: FreeBSD's own tests of the class (geom.md 6: misc, failloop),
//! made real where they could not fail, and what goes beyond.

mod world;

use std::any::Any;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bio::{Attr, Bio, Errno, Op, Ticket};
use geom::{Access, Core, Flow, Geom, GeomId, Layer, Limits, NewProvider, ProviderId, Topology};
use serde_json::{Value, json};
use world::{Disk, Media, Open, World};

const MIB: usize = 1 << 20;

struct Port;

impl Geom for Port {
    fn access(
        &mut self,
        _: &mut Topology,
        _: GeomId,
        _: ProviderId,
        _: Access,
    ) -> Result<(), Errno> {
        Ok(())
    }

    fn as_any(&mut self) -> &mut dyn Any {
        self
    }
}

#[derive(Default)]
struct WayState {
    error: Option<Errno>,
    holds: bool,
    held: Vec<Ticket>,
}

/// One way to a disk.
#[derive(Clone)]
struct Way {
    disk: Disk,
    state: Arc<Mutex<WayState>>,
    seen: Arc<[AtomicUsize; Op::COUNT]>,
}

impl Way {
    fn fails(&self, error: Option<Errno>) {
        self.state.lock().expect("state").error = error;
    }

    fn holds(&self) {
        self.state.lock().expect("state").holds = true;
    }

    fn release(&self, world: &World) {
        let held = {
            let mut state = self.state.lock().expect("state");
            state.holds = false;
            std::mem::take(&mut state.held)
        };
        let board = world.control.topology.switchboard();
        held.into_iter().for_each(|ticket| board.restart(0, ticket));
    }

    fn held(&self) -> usize {
        self.state.lock().expect("state").held.len()
    }

    /// Requests of a kind since it was asked last.
    fn seen(&self, op: Op) -> usize {
        self.seen[op as usize].swap(0, Relaxed)
    }
}

impl Layer for Way {
    fn start(&self, bio: &mut Bio, core: &Core) -> Flow {
        self.seen[bio.op as usize].fetch_add(1, Relaxed);
        let mut state = self.state.lock().expect("state");
        if state.holds {
            state.held.push(bio.ticket());
            return Flow::Wait;
        }
        drop(state);
        self.ready(bio, Ok(0), core)
    }

    fn ready(&self, bio: &mut Bio, _: Result<u64, Errno>, core: &Core) -> Flow {
        match self.state.lock().expect("state").error {
            Some(error) => Flow::Done(Err(error)),
            None => self.disk.start(bio, core),
        }
    }
}

fn disk(bytes: Vec<u8>) -> Disk {
    let media = Media { durable: bytes.clone(), bytes, ..Media::default() };
    Disk(Arc::new(Mutex::new(media)))
}

/// A provider that leads to a disk.
fn way(world: &mut World, name: &str, disk: &Disk) -> Way {
    let way = Way { disk: disk.clone(), state: Arc::default(), seen: Arc::default() };
    let layer = Arc::new(way.clone());
    let media_bytes = disk.bytes().len() as u64;
    let made = world.control.call(|t| {
        let geom = t.new_geom("test", name, "a test", Box::new(Port))?;
        let limits =
            Limits { media_bytes, sector_bytes: 512, io_max_bytes: 65536, delete_max_bytes: 0 };
        t.new_provider(
            geom,
            NewProvider {
                name: name.into(),
                layer,
                limits,
                stripe_bytes: 4096,
                stripe_offset: 512,
                attrs: vec![
                    ("GEOM::ident", Attr::Text("serial-1".into())),
                    ("GEOM::physpath", Attr::Text(format!("bay/{name}"))),
                    ("GEOM::rotation_rate", Attr::Int(7200)),
                    ("GEOM::candelete", Attr::Int(1)),
                    ("GEOM::deletereadszero", Attr::Int(1)),
                ],
            },
        )
    });
    made.expect("a way");
    way
}

/// A labelled disk with `n` paths.
fn labelled(n: usize, extra: Value) -> (World, Disk, Vec<Way>) {
    let mut world = World::new();
    let disk = disk(vec![0; MIB]);
    let ways: Vec<Way> = (0..n).map(|i| way(&mut world, &format!("d{i}"), &disk)).collect();
    let names: Vec<String> = (0..n).map(|i| format!("d{i}")).collect();
    let mut params = json!({ "members": names });
    for (key, value) in extra.as_object().into_iter().flatten() {
        params[key] = value.clone();
    }
    world.verb("multipath", "label", "m", params).expect("labelled");
    (world, disk, ways)
}

fn ask(world: &mut World, verb: &str, member: &str) -> Result<Value, geom::Error> {
    world.verb("multipath", verb, "m", json!({ "member": member }))
}

/// States of the paths, by name.
fn states(world: &World) -> Vec<String> {
    let view = world.control.topology.view(0);
    let found = view.iter().find(|g| g.class == "multipath" && g.name == "m" && !g.withering);
    let consumers = found.into_iter().flat_map(|g| &g.consumers);
    let mut all: Vec<(String, String)> = consumers
        .map(|c| {
            let state = c.show.iter().find(|(k, _)| *k == "State").map(|(_, v)| v.clone());
            (c.provider.clone().unwrap_or_default(), state.unwrap_or_default())
        })
        .collect();
    all.sort();
    all.into_iter().map(|(name, state)| format!("{name} {state}")).collect()
}

fn state(world: &World) -> String {
    world.show("multipath", "m", "State").concat()
}

/// Lets what was told arrive.
fn settle(world: &mut World) {
    world.control.wait_until(Duration::from_millis(5), |_| false);
    world.control.settle().expect("at rest");
}

fn write(world: &mut World, at: u64, fill: u8) -> Result<(), Errno> {
    let open = world.open("multipath/m", Access::WRITE);
    let done = world.write(&open, at, &[fill; 512]);
    world.close(open);
    settle(world);
    done
}

fn read(world: &mut World, at: u64) -> Result<Vec<u8>, Errno> {
    let open = world.open("multipath/m", Access::READ);
    let done = world.read(&open, at, 512);
    world.close(open);
    settle(world);
    done
}

type Outcome = Arc<Mutex<Option<Result<(), Errno>>>>;

/// Starts a write and does not wait for it.
fn begin_write(world: &World, open: &Open, at: u64, fill: u8) -> Outcome {
    let edge = world.control.topology.edge(open.consumer);
    let outcome = Outcome::default();
    let place = outcome.clone();
    world.control.topology.switchboard().call(
        0,
        Box::new(move |core| {
            let core = core.clone();
            core.reactor().clone().spawn("a test", async move {
                let done = core.write(edge, at, &[fill; 512]).await;
                *place.lock().expect("outcome") = Some(done);
            });
        }),
    );
    outcome
}

fn came(outcome: &Outcome) -> Option<Result<(), Errno>> {
    *outcome.lock().expect("outcome")
}

fn wait(world: &mut World, ms: u64, done: impl Fn() -> bool) -> bool {
    world.control.wait_until(Duration::from_millis(ms), |_| done())
}

/// Every class looks at a provider anew.
fn look_again(world: &mut World, on: ProviderId) {
    let again = |t: &mut Topology| {
        t.retaste(on);
        Ok(())
    };
    world.control.call(again).expect("looked at");
}

#[test]
fn misc_add_a_path_by_hand() {
    let mut world = World::new();
    let one = disk(vec![0; MIB]);
    for name in ["d0", "d1", "d2"] {
        way(&mut world, name, &one);
    }
    world.verb("multipath", "create", "m", json!({ "members": ["d0"] })).expect("created");
    assert_eq!((states(&world), state(&world).as_str()), (vec!["d0 ACTIVE".into()], "DEGRADED"));
    ask(&mut world, "add", "d1").expect("added");
    ask(&mut world, "add", "d2").expect("added");
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE", "d2 PASSIVE"]);
    assert_eq!(state(&world), "OPTIMAL");
    assert_eq!(world.show("multipath", "m", "Type"), ["MANUAL"]);
    assert_eq!(world.size("multipath/m"), MIB as u64, "nothing is kept for a label");
    assert_eq!(ask(&mut world, "add", "d2").expect_err("twice").kind, Errno::Exist);
    assert!(one.bytes().iter().all(|b| *b == 0), "nothing was written");
}

#[test]
fn misc_create_in_every_mode() {
    for (flag, mode, words) in [
        ("passive", "Active/Passive", ["d0 ACTIVE", "d1 PASSIVE"]),
        ("active", "Active/Active", ["d0 ACTIVE", "d1 ACTIVE"]),
        ("read", "Active/Read", ["d0 ACTIVE", "d1 READ"]),
    ] {
        let mut world = World::new();
        let one = disk(vec![0; MIB]);
        way(&mut world, "d0", &one);
        way(&mut world, "d1", &one);
        let mut params = json!({ "members": ["d0", "d1"] });
        params[flag] = json!(true);
        let given = world.verb("multipath", "create", "m", params);
        given.expect("created");
        assert_eq!(world.show("multipath", "m", "Mode"), [mode]);
        assert_eq!(states(&world), words);
        assert_eq!(state(&world), "OPTIMAL");
    }
}

#[test]
fn misc_a_path_departs_and_arrives() {
    let (mut world, disk, _) = labelled(2, json!({}));
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE"]);
    world.lose("d0");
    assert_eq!((states(&world), state(&world).as_str()), (vec!["d1 ACTIVE".into()], "DEGRADED"));
    write(&mut world, 0, 7).expect("by the other");
    way(&mut world, "d0", &disk);
    assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"]);
    world.lose("d1");
    assert_eq!(read(&mut world, 0), Ok(vec![7; 512]));
    world.lose("d0");
    assert!(!world.has("multipath/m"), "gone with its last path");
    way(&mut world, "d5", &disk);
    assert_eq!(states(&world), ["d5 ACTIVE"], "and back with any");
}

#[test]
fn misc_fail_restore_prefer_rotate_getactive() {
    let (mut world, _, _) = labelled(3, json!({}));
    ask(&mut world, "fail", "d0").expect("failed");
    assert_eq!(states(&world), ["d0 FAIL", "d1 ACTIVE", "d2 PASSIVE"]);
    assert_eq!(state(&world), "DEGRADED");
    ask(&mut world, "restore", "d0").expect("restored");
    assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE", "d2 PASSIVE"]);
    ask(&mut world, "prefer", "d0").expect("preferred");
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE", "d2 PASSIVE"]);
    for active in ["d1", "d2", "d0"] {
        world.verb("multipath", "rotate", "m", json!({})).expect("rotated");
        let answer = world.verb("multipath", "getactive", "m", json!({})).expect("active");
        assert_eq!(answer["active"], active);
    }
    ask(&mut world, "fail", "d1").expect("failed");
    let refused = ask(&mut world, "prefer", "d1").expect_err("not good");
    assert!(refused.what.contains("restore m d1"), "{refused}");
    for verb in ["fail", "restore", "prefer", "remove"] {
        assert_eq!(ask(&mut world, verb, "d9").expect_err("no path").kind, Errno::NoEnt);
    }
}

#[test]
fn misc_fail_on_error() {
    for (mode, error) in [("passive", Errno::Io), ("active", Errno::NxIo), ("read", Errno::Io)] {
        let (mut world, disk, ways) = labelled(2, json!({ mode: mode != "passive" }));
        ways[0].fails(Some(error));
        let _ = (ways[0].seen(Op::Write), ways[0].seen(Op::Read));
        for at in 0..4 {
            write(&mut world, at * 512, 9).expect("by the other");
            assert_eq!(read(&mut world, at * 512), Ok(vec![9; 512]));
        }
        assert_eq!(states(&world), ["d0 FAIL", "d1 ACTIVE"], "{mode}");
        assert_eq!(state(&world), "DEGRADED");
        assert_eq!(ways[0].seen(Op::Write) + ways[0].seen(Op::Read), 1, "asked once");
        assert!(disk.bytes()[..2048].iter().all(|b| *b == 9));
    }
}

#[test]
fn misc_restore_on_error_when_all_have_failed() {
    let (mut world, _, ways) = labelled(3, json!({}));
    ask(&mut world, "fail", "d0").expect("failed");
    ask(&mut world, "fail", "d1").expect("failed");
    ways[2].fails(Some(Errno::Io));
    write(&mut world, 0, 1).expect("by one that had failed before");
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE", "d2 FAIL"]);
    // By hand too: the last good one takes the others back.
    for name in ["d0", "d1"] {
        ask(&mut world, "fail", name).expect("failed");
    }
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 FAIL", "d2 PASSIVE"]);
}

#[test]
fn misc_physpath_and_other_properties_of_the_disk() {
    let (mut world, _, _) = labelled(2, json!({}));
    let text = |w: &World, name: &str| w.text("multipath/m", name).unwrap_or_default();
    assert_eq!(text(&world, "GEOM::physpath"), "bay/d0/mp");
    assert_eq!(text(&world, "GEOM::ident"), "serial-1");
    assert_eq!(text(&world, "GEOM::rotation_rate"), "7200");
    assert_eq!(text(&world, "GEOM::candelete"), "1");
    assert_eq!(text(&world, "GEOM::deletereadszero"), "1");
    assert_eq!(world.control.topology.stripe(world.find("multipath/m")), (4096, 512));
    world.lose("d0");
    assert_eq!(text(&world, "GEOM::physpath"), "bay/d1/mp", "the way that is left");
}

#[test]
fn failloop_a_persistent_error_ends_and_restores_nobody_that_it_failed() {
    for mode in ["passive", "active", "read"] {
        let (mut world, _, ways) = labelled(2, json!({ mode: mode != "passive" }));
        write(&mut world, 0, 5).expect("well");
        let asked = |ways: &[Way]| ways.iter().map(|w| w.seen(Op::Read)).collect::<Vec<_>>();
        asked(&ways);
        ways.iter().for_each(|w| w.fails(Some(Errno::Io)));
        assert_eq!(read(&mut world, 0), Err(Errno::Io));
        assert_eq!(asked(&ways), [1, 1], "{mode}: each once");
        assert_eq!(states(&world), ["d0 FAIL", "d1 FAIL"]);
        assert_eq!(state(&world), "BROKEN");
        for _ in 0..3 {
            assert_eq!(read(&mut world, 0), Err(Errno::Io));
            assert_eq!(asked(&ways), [1, 1], "{mode}: each once");
        }
        // Not for ever: what works again is used again, without a hand.
        ways[1].fails(None);
        assert_eq!(read(&mut world, 0), Ok(vec![5; 512]));
        assert_eq!(states(&world), ["d0 FAIL", "d1 ACTIVE"]);
    }
}

#[test]
fn one_path_alone_is_asked_once_and_stays() {
    let (mut world, _, ways) = labelled(1, json!({}));
    ways[0].seen(Op::Read);
    ways[0].fails(Some(Errno::NxIo));
    assert_eq!(read(&mut world, 0), Err(Errno::NxIo));
    assert_eq!(ways[0].seen(Op::Read), 1);
    assert_eq!(states(&world), ["d0 ACTIVE"]);
}

#[test]
fn other_errors_are_the_requests_own() {
    let (mut world, _, ways) = labelled(2, json!({}));
    for error in [Errno::NoSpc, Errno::Inval, Errno::NotSup, Errno::TimedOut] {
        ways[0].fails(Some(error));
        ways[1].seen(Op::Write);
        assert_eq!(write(&mut world, 0, 1), Err(error));
        assert_eq!(ways[1].seen(Op::Write), 0);
        assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE"]);
    }
}

#[test]
fn requests_are_spread_as_the_mode_says() {
    for (mode, reads, writes) in
        [("passive", [9, 0], [9, 0]), ("active", [5, 4], [5, 4]), ("read", [5, 4], [9, 0])]
    {
        let (mut world, _, ways) = labelled(2, json!({ mode: mode != "passive" }));
        let open = world.open("multipath/m", Access::WRITE);
        let counts = |op| {
            let mut counts = [ways[0].seen(op), ways[1].seen(op)];
            counts.sort_by(|a, b| b.cmp(a));
            counts
        };
        let _ = (counts(Op::Read), counts(Op::Write));
        for _ in 0..9 {
            world.read(&open, 0, 512).expect("read");
        }
        assert_eq!(counts(Op::Read), reads, "{mode}");
        for _ in 0..9 {
            world.write(&open, 0, &[1; 512]).expect("written");
        }
        assert_eq!(counts(Op::Write), writes, "{mode}");
        world.close(open);
    }
}

#[test]
fn the_path_with_the_fewest_in_flight_is_taken() {
    let (mut world, _, ways) = labelled(2, json!({ "active": true }));
    let open = world.open("multipath/m", Access::WRITE);
    ways[0].holds();
    let all: Vec<Outcome> = (0..8).map(|i| begin_write(&world, &open, i * 512, 1)).collect();
    assert!(wait(&mut world, 2000, || all.iter().filter(|o| came(o).is_some()).count() == 7));
    assert_eq!(ways[0].held(), 1, "one hangs there, and nobody queues behind it");
    ways[0].release(&world);
    assert!(wait(&mut world, 2000, || all.iter().all(|o| came(o) == Some(Ok(())))));
    world.close(open);
}

#[test]
fn paths_removed_with_requests_in_flight_lose_none() {
    for by_hand in [true, false] {
        let (mut world, disk, ways) = labelled(2, json!({}));
        let open = world.open("multipath/m", Access::WRITE);
        ways[0].holds();
        let all: Vec<Outcome> = (0..8).map(|i| begin_write(&world, &open, i * 512, 3)).collect();
        assert!(wait(&mut world, 2000, || ways[0].held() == 8));
        // They end there, with an error, while the path is about to leave.
        let (late, board) = (ways[0].clone(), world.control.topology.switchboard());
        board.call(
            0,
            Box::new(move |core| {
                let core = core.clone();
                core.reactor().clone().spawn("a test", async move {
                    core.reactor().sleep(100_000_000).await;
                    let held = {
                        let mut state = late.state.lock().expect("state");
                        (state.holds, state.error) = (false, Some(Errno::NxIo));
                        std::mem::take(&mut state.held)
                    };
                    for ticket in held {
                        core.restart(ticket);
                    }
                });
            }),
        );
        if by_hand {
            ask(&mut world, "remove", "d0").expect("removed");
        } else {
            world.lose("d0");
        }
        assert!(wait(&mut world, 2000, || all.iter().all(|o| came(o) == Some(Ok(())))));
        assert!(disk.bytes()[..4096].iter().all(|b| *b == 3));
        settle(&mut world);
        assert_eq!(states(&world), ["d1 ACTIVE"]);
        world.close(open);
        if by_hand {
            ways[0].fails(None);
            let on = world.find("d0");
            look_again(&mut world, on);
            assert!(world.verdict("d0", "multipath").contains("removed by hand"));
            ask(&mut world, "add", "d0").expect("added");
            assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"]);
            ask(&mut world, "remove", "d1").expect("removed");
            assert_eq!(ask(&mut world, "remove", "d0").expect_err("last").kind, Errno::Busy);
        }
    }
}

#[test]
fn label_is_proven_by_every_path() {
    let mut world = World::new();
    let (one, two) = (disk(vec![0; MIB]), disk(vec![0; MIB]));
    way(&mut world, "d0", &one);
    way(&mut world, "d1", &one);
    way(&mut world, "e0", &two);
    way(&mut world, "s0", &disk(vec![0; MIB / 2]));
    let mut refused = |members: Value| {
        let done = world.verb("multipath", "label", "m", json!({ "members": members }));
        let error = done.expect_err("refused");
        assert!(one.bytes().iter().chain(&two.bytes()).all(|b| *b == 0), "nothing is left");
        assert!(!world.has("multipath/m"));
        error.what
    };
    assert!(refused(json!(["d0", "d1", "e0"])).contains("e0 does not show"));
    assert!(refused(json!(["d0", "s0"])).contains("not the same disk"));
    assert!(refused(json!(["d0", "d0"])).contains("twice"));
    assert!(refused(json!(["d0", "x"])).contains("no provider"));
    world.verb("multipath", "label", "m", json!({ "members": ["d0", "d1"] })).expect("labelled");
    assert!(two.bytes().iter().all(|b| *b == 0));
    let error = ask(&mut world, "add", "e0").expect_err("another disk");
    assert!(error.what.contains("another disk"), "{error}");
    assert_eq!(world.size("multipath/m"), (MIB - 512) as u64);
}

#[test]
fn label_spares_what_is_there_unless_forced() {
    let mut world = World::new();
    let mut bytes = vec![0; MIB];
    bytes[MIB - 1] = 1;
    let one = disk(bytes.clone());
    way(&mut world, "d0", &one);
    let params = json!({ "members": ["d0"] });
    let refused = world.verb("multipath", "label", "m", params).expect_err("refused");
    assert!(refused.what.contains("--force") && one.bytes() == bytes);
    let params = json!({ "members": ["d0"], "force": true });
    world.verb("multipath", "label", "m", params).expect("forced");
}

#[test]
fn raw_paths_are_nobody_elses_whatever_stands_on_the_disk() {
    let (mut world, disk, _) = labelled(2, json!({}));
    world.part("create", "multipath/m", json!({ "scheme": "gpt" }));
    world.part("add", "multipath/m", json!({ "kind": "linux-data", "size": { "bytes": 65536 } }));
    way(&mut world, "d2", &disk);
    // The partition has a name of its own besides; that is the label class, on top of it all.
    let names = |world: &World| {
        let mut names = world.names();
        names.retain(|name| !name.starts_with("gptid/"));
        names
    };
    assert_eq!(names(&world), ["d0", "d1", "d2", "multipath/m", "multipath/mp1"]);
    world.lose("d0");
    way(&mut world, "d3", &disk);
    for name in ["d1", "d2"] {
        let on = world.find(name);
        look_again(&mut world, on);
    }
    assert_eq!(names(&world), ["d1", "d2", "d3", "multipath/m", "multipath/mp1"]);
    assert!(world.try_open("d1", Access::WRITE).is_err(), "held alone");
    // A new daemon, in any order.
    for order in [["d0", "d1"], ["d1", "d0"]] {
        let mut again = World::new();
        order.iter().for_each(|name| drop(way(&mut again, name, &disk)));
        assert_eq!(names(&again), ["d0", "d1", "multipath/m", "multipath/mp1"]);
        assert_eq!(state(&again), "OPTIMAL");
    }
}

#[test]
fn another_disk_of_the_same_name_gets_another_one() {
    let (mut world, _, _) = labelled(2, json!({}));
    let (mut other, second, _) = labelled(1, json!({}));
    write(&mut other, 0, 4).expect("written");
    way(&mut world, "e0", &second);
    way(&mut world, "e1", &second);
    let names = world.names();
    let found: Vec<&String> = names.iter().filter(|n| n.starts_with("multipath/")).collect();
    assert_eq!(found.len(), 2, "{names:?}");
    assert!(found[1].starts_with("multipath/m-"), "{names:?}");
    let (temporary, name) = (found[1].clone(), found[1]["multipath/".len()..].to_owned());
    let open = world.open(&temporary, Access::READ);
    assert_eq!(world.read(&open, 0, 512), Ok(vec![4; 512]));
    world.close(open);
    // Stopped, it stays so, and the other one does not mind.
    world.verb("multipath", "stop", &name, json!({})).expect("stopped");
    assert!(!world.has(&temporary) && world.has("multipath/m"));
    assert!(world.verdict("e0", "multipath").contains("stopped by hand"));
    world.verb("multipath", "start", &name, json!({})).expect("started");
    assert!(world.has(&temporary));
}

#[test]
fn configure_changes_the_mode_and_the_record() {
    let (mut world, disk, _) = labelled(2, json!({}));
    let mode = |d: &Disk| d.bytes()[MIB - 512 + 88];
    assert_eq!(mode(&disk), 0);
    for (flag, number, words) in [
        ("active", 1, ["d0 ACTIVE", "d1 ACTIVE"]),
        ("read", 2, ["d0 ACTIVE", "d1 READ"]),
        ("passive", 0, ["d0 ACTIVE", "d1 PASSIVE"]),
    ] {
        world.verb("multipath", "configure", "m", json!({ flag: true })).expect("configured");
        assert_eq!((mode(&disk), states(&world)), (number, words.map(String::from).to_vec()));
    }
    let both = json!({ "active": true, "read": true });
    assert!(world.verb("multipath", "configure", "m", both).is_err());
}

#[test]
fn the_size_follows_the_smallest_path_and_the_record_the_size() {
    let (mut world, disk, _) = labelled(2, json!({}));
    let record = disk.bytes()[MIB - 512..].to_vec();
    let open = world.open("multipath/m", Access::READ);
    world.grow("d0", &disk, 2 * MIB);
    assert_eq!(world.size("multipath/m"), (MIB - 512) as u64, "the other has not seen it");
    world.grow("d1", &disk, 2 * MIB);
    assert_eq!(world.size("multipath/m"), (2 * MIB - 512) as u64);
    let bytes = disk.bytes();
    assert_eq!(bytes[2 * MIB - 512..][..80], record[..80]);
    assert_eq!(bytes[2 * MIB - 512..][80..88], (2 * MIB as u64).to_le_bytes());
    assert!(bytes[MIB - 512..MIB].iter().all(|b| *b == 0), "the old one is wiped");
    world.grow("d1", &disk, MIB / 2);
    assert_eq!(world.size("multipath/m"), (MIB / 2 - 512) as u64);
    assert_eq!(disk.bytes()[MIB / 2 - 512..][80..88], (MIB as u64 / 2).to_le_bytes());
    assert!(!open.orphaned() && states(&world).len() == 2);
    world.close(open);
}

#[test]
fn stop_start_destroy_clear_dump() {
    let (mut world, disk, _) = labelled(2, json!({ "read": true }));
    let open = world.open("multipath/m", Access::READ);
    for verb in ["stop", "destroy"] {
        let refused = world.verb("multipath", verb, "m", json!({})).expect_err("open");
        assert_eq!(refused.kind, Errno::Busy);
    }
    world.close(open);
    world.verb("multipath", "stop", "m", json!({})).expect("stopped");
    assert!(!world.has("multipath/m"));
    let dump = json!({ "members": ["d1"] });
    let answer = world.verb("multipath", "dump", "", dump.clone()).expect("a record");
    let record = &answer["records"][0];
    assert_eq!((&record["name"], &record["mode"]), (&json!("m"), &json!("Active/Read")));
    let uuid = record["uuid"].as_str().expect("text");
    assert!(uuid.len() == 36 && &uuid[14..15] == "4", "{uuid}");
    world.verb("multipath", "start", "m", json!({})).expect("started");
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 READ"]);
    world.verb("multipath", "destroy", "m", json!({})).expect("destroyed");
    assert!(disk.bytes().iter().all(|b| *b == 0), "its label is cleared");
    assert_eq!(world.names(), ["d0", "d1"]);
    assert!(world.verb("multipath", "dump", "", dump).is_err());
    let members = json!({ "members": ["d0", "d1"] });
    world.verb("multipath", "label", "m", members).expect("labelled anew");
    world.verb("multipath", "stop", "m", json!({})).expect("stopped");
    let one = json!({ "members": ["d1"] });
    world.verb("multipath", "clear", "", one.clone()).expect("cleared");
    assert!(disk.bytes().iter().all(|b| *b == 0));
    assert_eq!(world.verb("multipath", "clear", "", one).expect_err("none").kind, Errno::NoEnt);
}

#[test]
fn bad_records_are_refused_with_the_reason_and_nothing_is_written() {
    let (_, good, _) = labelled(1, json!({}));
    let damaged = |at: usize, new: &[u8]| {
        let mut bytes = good.bytes();
        bytes[MIB - 512 + at..][..new.len()].copy_from_slice(new);
        bytes
    };
    let mut longer = vec![0; MIB];
    longer.extend(&good.bytes()[MIB - 512..]);
    for (bytes, word) in [
        (damaged(72, &[2]), "newer"),
        (damaged(16, &[0]), "uuid"),
        (damaged(88, &[9]), "mode"),
        (damaged(80, &(2 * MIB as u64).to_le_bytes()), "written for"),
        (damaged(76, &4096u32.to_le_bytes()), "written for"),
        (longer, "written for"),
    ] {
        let mut world = World::new();
        let one = disk(bytes.clone());
        way(&mut world, "d0", &one);
        assert_eq!(world.names(), ["d0"], "{word}");
        let verdict = world.verdict("d0", "multipath");
        assert!(verdict.contains(word), "{word}: {verdict}");
        assert!(one.bytes() == bytes);
    }
}

#[test]
fn the_checker_restores_paths_that_answer_again() {
    let (mut world, _, ways) = labelled(2, json!({}));
    world.verb("multipath", "configure", "m", json!({ "checker": 1 })).expect("configured");
    ways[0].fails(Some(Errno::Io));
    write(&mut world, 0, 1).expect("by the other");
    world.control.wait_until(Duration::from_millis(1500), |_| false);
    assert_eq!(states(&world), ["d0 FAIL", "d1 ACTIVE"], "it was looked at, and did not answer");
    assert!(ways[0].seen(Op::Read) >= 1);
    ways[0].fails(None);
    world.control.wait_until(Duration::from_millis(1500), |_| false);
    assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"]);
}

#[test]
fn failback_after_a_while_at_once_or_never() {
    let (mut world, _, _) = labelled(2, json!({}));
    let fail_and_restore = |world: &mut World| {
        ask(world, "fail", "d0").expect("failed");
        ask(world, "restore", "d0").expect("restored");
        states(world)
    };
    assert_eq!(fail_and_restore(&mut world), ["d0 PASSIVE", "d1 ACTIVE"]);
    ask(&mut world, "prefer", "d0").expect("preferred");
    world.verb("multipath", "configure", "m", json!({ "failback": 0 })).expect("configured");
    assert_eq!(fail_and_restore(&mut world), ["d0 ACTIVE", "d1 PASSIVE"]);
    world.verb("multipath", "configure", "m", json!({ "failback": 1 })).expect("configured");
    assert_eq!(fail_and_restore(&mut world), ["d0 PASSIVE", "d1 ACTIVE"]);
    world.control.wait_until(Duration::from_millis(600), |_| false);
    // Once more: it must have been good for the whole time.
    fail_and_restore(&mut world);
    world.control.wait_until(Duration::from_millis(600), |_| false);
    assert_eq!(states(&world), ["d0 PASSIVE", "d1 ACTIVE"]);
    world.control.wait_until(Duration::from_millis(600), |_| false);
    assert_eq!(states(&world), ["d0 ACTIVE", "d1 PASSIVE"]);
}

#[test]
fn without_a_path_requests_wait_and_a_path_wakes_them() {
    let (mut world, disk, _) = labelled(2, json!({}));
    world.verb("multipath", "configure", "m", json!({ "queue": 60 })).expect("configured");
    let open = world.open("multipath/m", Access::WRITE);
    world.lose("d0");
    world.lose("d1");
    let all: Vec<Outcome> = (0..4).map(|i| begin_write(&world, &open, i * 512, 6)).collect();
    assert!(!wait(&mut world, 100, || all.iter().any(|o| came(o).is_some())));
    assert_eq!(world.show("multipath", "m", "Waiting"), ["4"]);
    assert!(!open.orphaned());
    way(&mut world, "d7", &disk);
    assert!(wait(&mut world, 2000, || all.iter().all(|o| came(o) == Some(Ok(())))));
    assert!(disk.bytes()[..2048].iter().all(|b| *b == 6));
    world.close(open);
}

#[test]
fn requests_do_not_wait_longer_than_they_may() {
    let (mut world, _, ways) = labelled(2, json!({}));
    world.verb("multipath", "configure", "m", json!({ "queue": 1 })).expect("configured");
    let open = world.open("multipath/m", Access::WRITE);
    // Paths that are there and answer nothing.
    ways.iter().for_each(|w| w.fails(Some(Errno::NxIo)));
    let first = begin_write(&world, &open, 0, 6);
    assert!(!wait(&mut world, 300, || came(&first).is_some()), "it waits");
    assert!(wait(&mut world, 3000, || came(&first) == Some(Err(Errno::NxIo))));
    // Nobody waits any more, until there was a path.
    let late = begin_write(&world, &open, 0, 6);
    assert!(wait(&mut world, 300, || came(&late) == Some(Err(Errno::NxIo))));
    ways[1].fails(None);
    world.write(&open, 0, &[8; 512]).expect("a path is back");
    settle(&mut world);
    ways[1].fails(Some(Errno::NxIo));
    let again = begin_write(&world, &open, 0, 6);
    assert!(!wait(&mut world, 300, || came(&again).is_some()), "it waits again");
    // Without any path the device ends when the time is up.
    world.lose("d0");
    world.lose("d1");
    assert!(wait(&mut world, 3000, || came(&again) == Some(Err(Errno::NxIo))));
    world.close(open);
    settle(&mut world);
    assert!(!world.has("multipath/m"));
}

#[test]
fn what_waits_ends_when_the_device_is_taken_away() {
    let (mut world, _, _) = labelled(1, json!({}));
    world.verb("multipath", "configure", "m", json!({ "queue": 60 })).expect("configured");
    let open = world.open("multipath/m", Access::WRITE);
    world.lose("d0");
    let outcome = begin_write(&world, &open, 0, 6);
    assert!(!wait(&mut world, 50, || came(&outcome).is_some()));
    world.verb("multipath", "stop", "m", json!({ "force": true })).expect("stopped");
    assert!(wait(&mut world, 2000, || came(&outcome) == Some(Err(Errno::NxIo))));
    world.close(open);
}

#[test]
fn a_medium_error_does_not_wait_for_ever() {
    let (mut world, _, ways) = labelled(2, json!({}));
    let params = json!({ "queue": 60, "checker": 1 });
    world.verb("multipath", "configure", "m", params).expect("configured");
    let open = world.open("multipath/m", Access::WRITE);
    // Writes fail by every path, and the checker's reads do not.
    ways[0].disk.0.lock().expect("media").cut_at = Some(0);
    let outcome = begin_write(&world, &open, 0, 6);
    assert!(wait(&mut world, 5000, || came(&outcome) == Some(Err(Errno::Io))));
    world.close(open);
}

struct Seed(u64);

impl Seed {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 33) as usize % n
    }
}

/// One life of a device: paths fail, recover, go and come, by themselves and by hand. A request
/// succeeds exactly when some path works, and what was acknowledged is what is read.
fn live(seed: u64) {
    const PATHS: usize = 3;
    let mut chance = Seed(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let (mut world, disk, ways) = labelled(PATHS, json!({}));
    let mut ways: Vec<Option<Way>> = ways.into_iter().map(Some).collect();
    let mut works = [true; PATHS];
    let mut model = vec![0; 16 * 512];
    let open = world.open("multipath/m", Access::WRITE);
    for step in 0..60 {
        let at = chance.below(PATHS);
        let name = format!("d{at}");
        let others = ways.iter().enumerate().filter(|(i, w)| *i != at && w.is_some()).count();
        let told = format!("seed {seed}, step {step}");
        match chance.below(12) {
            0 | 1 => {
                works[at] = !works[at];
                let error = [Errno::Io, Errno::NxIo][chance.below(2)];
                if let Some(way) = &ways[at] {
                    way.fails((!works[at]).then_some(error));
                }
            }
            2 if ways[at].is_some() && others > 0 => {
                world.lose(&name);
                ways[at] = None;
            }
            3 if ways[at].is_none() => {
                ways[at] = Some(way(&mut world, &name, &disk));
                works[at] = true;
            }
            4 if ways[at].is_some() => {
                let verb = ["fail", "restore", "prefer"][chance.below(3)];
                // A path that has failed is not preferred; the others never refuse.
                let done = ask(&mut world, verb, &name);
                assert!(done.is_ok() || verb == "prefer", "{told}: {done:?}");
            }
            5 => drop(world.verb("multipath", "rotate", "m", json!({}))),
            6 => {
                let flag = ["active", "read", "passive"][chance.below(3)];
                // The record needs a path that works; the mode changes all the same.
                drop(world.verb("multipath", "configure", "m", json!({ flag: true })));
            }
            n => {
                let can = (0..PATHS).any(|i| works[i] && ways[i].is_some());
                let offset = chance.below(16) * 512;
                let place = offset..offset + 512;
                if n < 9 {
                    let bytes = vec![chance.below(256) as u8; 512];
                    let done = world.write(&open, offset as u64, &bytes);
                    assert_eq!(done.is_ok(), can, "{told}: {done:?}");
                    if done.is_ok() {
                        model[place].copy_from_slice(&bytes);
                    }
                } else {
                    match world.read(&open, offset as u64, 512) {
                        Ok(bytes) => assert!(can && bytes == model[place], "{told}"),
                        Err(e) => assert!(!can, "{told}: {e:?}"),
                    }
                }
            }
        }
        let states = states(&world);
        assert_eq!(states.len(), ways.iter().flatten().count(), "{told}: {states:?}");
        if state(&world).starts_with("OPTIMAL") {
            assert!(states.iter().all(|s| !s.ends_with("FAIL")), "{told}: {states:?}");
        }
    }
    world.close(open);
    assert!(disk.bytes()[..model.len()] == model);
    world.control.topology.check();
}

/// `ASHLAR_SEEDS` sets how many.
#[test]
fn seeded_lives() {
    let seeds = std::env::var("ASHLAR_SEEDS").ok().and_then(|n| n.parse().ok()).unwrap_or(100);
    (1..=seeds).for_each(live);
}
