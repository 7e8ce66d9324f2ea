//! Constraints on the AoE initiator on a network without faults.

use std::rc::Rc;

use bio::{Errno, Op};
use cam::sims::aoe::AoeKind;
use geom::{Class, Edge};
use reactor::sim::SegmentShape;
use serde_json::json;
use testkit::aoe::{Shelf, Ways};
use wire::aoe::Mac;

use crate::aoe::{MS, Net, S, SECTOR, SECTORS, network};
use crate::world::{World, range};

/// Longer than it takes to find the disk.
const LIFE_NS: u64 = 10 * S;

pub struct Scene {
    pub w: World,
    pub net: Net,
    shelf: Rc<Shelf>,
    pub edge: Edge,
    pub bus: usize,
    /// When the bus was opened, ns.
    begun: u64,
}

impl Scene {
    fn new(ways: Ways) -> Scene {
        let calm =
            SegmentShape { delay_ns_min: 5_000, delay_ns_max: 20_000, ..SegmentShape::default() };
        Scene::on(calm, SECTORS, ways)
    }

    fn on(shape: SegmentShape, sectors: u64, ways: Ways) -> Scene {
        Scene::with_identity(shape, ("SHELF1", sectors, ""), ways)
    }

    fn with_identity(
        shape: SegmentShape,
        (serial, sectors, mark): (&str, u64, &str),
        ways: Ways,
    ) -> Scene {
        let mut w = World::with(1, &[]);
        let net = network(&w, &[(shape, 9000)]);
        let shelf = Shelf::start(&w.core, &["shelf0"], sectors as usize, 1, ways);
        shelf.serial.replace(serial.into());
        shelf.mark.replace(mark.into());
        let begun = w.now();
        let life = LIFE_NS / MS;
        let params = json!({ "interfaces": ["eth0"], "frame_life_ms": life, "deadline_s": 20 });
        let bus = w.add_kind(&AoeKind, "aoe0", &params);
        w.scan(bus);
        w.until((10 * MS, LIFE_NS / 2), "the disk is not found in time", |w| w.has("ada0"));
        let (_, edge) = w.open("ada0");
        Scene { w, net, shelf, edge, bus, begun }
    }
}

#[test]
fn e2_writes_wait_while_frames_of_an_earlier_start_may_arrive() {
    let mut s = Scene::new(Ways { buffers: 16, ..Ways::default() });
    let data = s.w.buffer(SECTOR as usize);
    data.fill(0, SECTOR as usize, 0xA5);
    s.w.start(s.edge, 1, |bio| range(bio, Op::Write, 0, data));
    assert_eq!(s.w.read(s.edge, 0, 512), Ok(vec![0; 512]), "reads do not wait");
    let mut written = None;
    while s.w.now() < s.begun + 2 * LIFE_NS && written.is_none() {
        s.w.turn(10 * MS);
        written = (s.shelf.bytes.borrow()[0] == 0xA5).then(|| s.w.now() - s.begun);
    }
    let written = written.expect("it is written in the end");
    assert!((LIFE_NS..LIFE_NS + S).contains(&written), "after {written} ns");
    s.w.turn(S);
    assert!(s.w.ended().iter().any(|end| end.tag == 1 && end.status.is_ok()));
}

/// The shelf sends nothing by itself, and queries before its arrival are lost. So the initiator
/// repeats the query soon and not a minute later.
#[test]
fn a_shelf_that_starts_after_the_first_query_is_found_soon() {
    let mut w = World::with(1, &[]);
    let net = network(&w, &[(SegmentShape::default(), 9000)]);
    let params = json!({ "interfaces": ["eth0"], "ask_s": 60 });
    let bus = w.add_kind(&AoeKind, "aoe0", &params);
    assert_eq!(w.scan(bus), [""; 0]);
    let _shelf = Shelf::start(&w.core, &["shelf0"], SECTORS as usize, 1, Ways::default());
    w.until((10 * MS, 10 * S), "it is not found", |w| w.has("ada0"));
    drop(net);
}

#[test]
fn e5_outstanding_frames_never_exceed_the_buffers_of_the_target() {
    let mut s = Scene::new(Ways { buffers: 3, slow_ns: 10 * MS, ..Ways::default() });
    *s.shelf.held.borrow_mut() = (0, 0);
    for tag in 0..40 {
        let data = s.w.buffer(SECTOR as usize);
        s.w.start(s.edge, tag, |bio| range(bio, Op::Read, tag % SECTORS * SECTOR, data));
    }
    let (mut ended, end) = (0, s.w.now() + 10 * S);
    while ended < 40 {
        assert!(s.w.now() < end, "only {ended} have ended");
        s.w.turn(MS);
        ended += s.w.ended().iter().inspect(|end| assert_eq!(end.status, Ok(()))).count();
    }
    assert_eq!(s.shelf.held.borrow().1, 3, "as many as it holds, and no more");
}

/// Sectors of a read that one large frame carries.
const LARGE: u64 = 16;

impl Scene {
    /// So many reads of a large frame, 24 at a time; how long they take, ns.
    fn reads(&mut self, count: u64) -> u64 {
        let begun = self.w.now();
        let (mut started, mut ended) = (0, 0);
        while ended < count {
            assert!(self.w.now() < begun + 300 * S, "only {ended} of {count} have ended");
            while started < count && started - ended < 24 {
                let data = self.w.buffer((LARGE * SECTOR) as usize);
                let at = started * LARGE % self.sectors() * SECTOR;
                self.w.start(self.edge, started, |bio| range(bio, Op::Read, at, data));
                started += 1;
            }
            self.w.turn(MS / 10);
            let some = self.w.ended();
            ended += some.iter().inspect(|end| assert_eq!(end.status, Ok(()))).count() as u64;
        }
        self.w.now() - begun
    }

    fn sectors(&self) -> u64 {
        self.shelf.bytes.borrow().len() as u64 / SECTOR
    }
}

/// A gigabit: 79 us from a frame of 16 sectors to its answer.
fn gigabit(lost_per_million: u32) -> SegmentShape {
    let (delay_ns_min, delay_ns_max) = (3_000, 4_000);
    let shape = SegmentShape { delay_ns_min, delay_ns_max, lost_per_million, ..Default::default() };
    SegmentShape { ps_per_byte: 8_000, ..shape }
}

#[test]
fn exposing_17_lost_frames_cost_little_and_only_they_are_resent() {
    const COUNT: u64 = 4_000;
    let ways = Ways { buffers: 24, ..Ways::default() };
    let mut calm = Scene::on(gigabit(0), 4096, ways);
    let whole = calm.reads(COUNT);
    let (mut lossy, before) = (Scene::on(gigabit(0), 4096, ways), 0);
    lossy.net.segments[0].set_shape(gigabit(10_000));
    lossy.shelf.command_count.set(before);
    let some = lossy.reads(COUNT);
    assert!(some <= 2 * whole, "{some} ns with losses, {whole} without");
    // Requests and answers are lost, one of a hundred each.
    let came = lossy.shelf.command_count.get();
    assert!(came > COUNT && came < COUNT + 3 * COUNT / 50, "{came} commands came for {COUNT}");
}

#[test]
fn exposing_17_any_reported_buffer_count_works() {
    for buffers in [0, 1, 65_535] {
        let mut s = Scene::on(gigabit(1_000), 4096, Ways { buffers, ..Ways::default() });
        *s.shelf.held.borrow_mut() = (0, 0);
        s.reads(300);
        let most = s.shelf.held.borrow().1;
        assert!(most <= usize::from(buffers.max(1)), "{most} at a time, it holds {buffers}");
    }
}

#[test]
fn exposing_17_small_frames_are_sent_where_large_ones_are_lost() {
    let mut s = Scene::on(gigabit(0), 4096, Ways { buffers: 24, ..Ways::default() });
    s.reads(100);
    // A switch between that carries less than both ends believe.
    s.net.segments[0].set_mtu("shelf0", 1500);
    let begun = s.w.now();
    s.reads(1);
    assert!(s.w.now() < begun + S, "after {} ns", s.w.now() - begun);
    s.shelf.command_count.set(0);
    s.reads(10);
    let came = s.shelf.command_count.get();
    assert_eq!(came, 10 * LARGE / 2, "of two sectors each");
}

#[test]
fn a_lost_disk_is_found_again_with_any_number_of_frames_in_flight() {
    for count in 1..8 {
        let mut s = Scene::new(Ways { buffers: 24, slow_ns: 30 * MS, ..Ways::default() });
        for tag in 0..count {
            let data = s.w.buffer(SECTOR as usize);
            s.w.start(s.edge, tag, |bio| range(bio, Op::Read, tag * SECTOR, data));
        }
        s.w.turn(MS / 10);
        s.net.segments[0].set_up("eth0", false);
        let (mut ended, begun) = (0, s.w.now());
        while ended < count {
            assert!(s.w.now() < begun + 60 * S, "{count}: only {ended} have ended");
            s.w.turn(100 * MS);
            ended += s.w.ended().iter().inspect(|end| assert!(end.status.is_err())).count() as u64;
        }
        s.net.segments[0].set_up("eth0", true);
        let (mut found, begun) = (Vec::new(), s.w.now());
        while found.is_empty() {
            assert!(s.w.now() < begun + 60 * S, "{count}: it is not found again");
            s.w.turn(100 * MS);
            found = s.w.found();
        }
    }
}

/// A second disk on the same wire, with so many buffers each.
fn two_shelves(buffers: u16) -> (Scene, Rc<Shelf>, Edge) {
    let ways = Ways { buffers, ..Ways::default() };
    let mut s = Scene::new(ways);
    let theirs = Shelf::start_at(2, &s.w.core, &["shelf0"], SECTORS as usize, 2, ways);
    while !s.w.has("ada1") {
        s.w.turn(100 * MS);
        s.w.scan(s.bus);
        assert!(s.w.now() < s.begun + 60 * S, "the second disk is found");
    }
    let (_, other) = s.w.open("ada1");
    (s, theirs, other)
}

#[test]
fn a_silent_target_delays_only_the_commands_sent_to_it() {
    for verb in ["aoeconfig", "aoemask", "aoereserve"] {
        let (mut s, ..) = two_shelves(16);
        s.shelf.ways.borrow_mut().deaf = true;
        let (cam, begun) = (s.w.cam.clone(), s.w.now());
        let answer = cam.verb(&mut s.w.control, verb, "ada0", &json!({})).unwrap();
        let again = answer["unfinished"]["again"].clone();
        assert_eq!(s.w.verb("aoeconfig", "ada1", &json!({})).unwrap()["string"], "");
        assert!(s.w.now() < begun + S, "{verb}: the other disk waited for it");
        let e = s.w.verb(verb, "ada0", &again).unwrap_err();
        assert!(e.kind == Errno::TimedOut && e.message.contains("no answer"), "{verb}: {e}");
    }
}

/// E4 of aoe/engine/mod.rs.
#[test]
fn aborting_a_command_ends_no_command_of_another_disk() {
    let (mut s, theirs, other) = two_shelves(32);
    // Ids count up with every command: the other disk is ahead, and the first one catches up.
    for _ in 0..50 {
        s.w.read(other, 0, SECTOR as usize).unwrap();
    }
    // Both hang; the other one answers when all commands of the first one have been given up.
    s.shelf.ways.borrow_mut().slow_ns = 100_000 * S;
    theirs.ways.borrow_mut().slow_ns = 100_000 * S;
    for tag in 0..4 {
        let data = s.w.buffer(SECTOR as usize);
        s.w.start(other, tag, |bio| range(bio, Op::Read, tag * SECTOR, data));
    }
    let begun = s.w.now();
    let identify = json!({ "ata": "ec 0 0 0 0 0 0 0 0 0 1 0", "receive": 512, "timeout": 10 });
    for _ in 0..80 {
        s.w.verb("cmd", "ada0", &identify).unwrap_err();
    }
    assert!(s.w.now() >= begun + 800 * MS, "it waited");
    theirs.ways.borrow_mut().slow_ns = 0;
    let mut ended = 0;
    while ended < 4 {
        assert!(s.w.now() < begun + 20 * S, "only {ended} have ended");
        s.w.turn(100 * MS);
        ended += s.w.ended().iter().inspect(|end| assert_eq!(end.status, Ok(()))).count();
    }
}

#[test]
fn a_delayed_reserve_command_is_never_applied_over_a_newer_one() {
    let ways = Ways { buffers: 24, twice: 50, wrong: 50, ..Ways::default() };
    let mut s = Scene::on(gigabit(0), 4096, ways);
    // The initiator's estimate of the round trip is short. Answers to discovery queries, which are
    // frequent at first, would show that it is not any more.
    s.w.turn(32 * S);
    s.reads(100);
    s.net.segments[0].set_shape(SegmentShape {
        delay_ns_min: 10_000,
        delay_ns_max: 120 * MS,
        in_order: false,
        lost_per_million: 20_000,
        ..SegmentShape::default()
    });
    let sent = s.shelf.command_count.get();
    for number in 0..200 {
        let mac = Mac([2, 0, 0, 0, 9, number]);
        let params = json!({ "set": true, "addresses": [mac.to_string()] });
        let answer = s.w.verb("aoereserve", "ada0", &params).unwrap();
        assert_eq!(answer["holders"], json!([mac.to_string()]));
        for _ in 0..number % 3 * 10 {
            assert_eq!(*s.shelf.reserved.borrow(), [mac], "order {number}");
            s.w.turn(10 * MS);
        }
    }
    let sent = s.shelf.command_count.get() - sent;
    assert!(sent > 220, "{sent} orders came for 200: none was sent twice");
}

#[test]
fn a_shrunken_target_fails_only_requests_beyond_its_end() {
    let (mut s, theirs, other) = two_shelves(16);
    // The target reported more sectors than it has, or the disk was truncated.
    s.shelf.bytes.borrow_mut().truncate(40 * SECTOR as usize);
    assert!(s.w.read(s.edge, 50 * SECTOR, 512).is_err());
    assert!(s.w.read(s.edge, 39 * SECTOR, 1024).is_err(), "in part is not at all");
    assert_eq!(s.w.read(s.edge, 39 * SECTOR, 512), Ok(vec![0; 512]));
    let size = |s: &Scene, name: &str| {
        let p = s.w.control.topology.find(name).unwrap();
        s.w.control.topology.limits(p).unwrap().media_bytes
    };
    let begun = s.w.now();
    while size(&s, "ada0") != 40 * SECTOR {
        assert!(s.w.now() < begun + 10 * S, "the disk is {} bytes large", size(&s, "ada0"));
        s.w.turn(100 * MS);
        s.w.cam.clone().take_update_results(&mut s.w.control);
    }
    assert_eq!(size(&s, "ada1"), SECTORS * SECTOR);
    assert_eq!(s.w.read(other, 63 * SECTOR, 512), Ok(vec![0; 512]));
    assert_eq!(theirs.bytes.borrow().len() as u64, SECTORS * SECTOR);
}

/// E6
#[test]
fn a_write_does_not_reach_another_disk_that_answers_after_an_outage() {
    for (serial, is_other) in [("SHELF1", false), ("OTHER", true)] {
        for outage in [300 * MS, 2 * S, 8 * S] {
            let mut s = Scene::new(Ways { buffers: 16, ..Ways::default() });
            (0..100).for_each(|_| s.w.turn(200 * MS));
            s.w.write(s.edge, 0, &[1; 512], bio::Flags::NONE).unwrap();
            s.shelf.ways.borrow_mut().deaf = true;
            let start = |s: &mut Scene, tag: u64| {
                let data = s.w.buffer(SECTOR as usize);
                data.fill(0, SECTOR as usize, 9);
                s.w.start(s.edge, tag, |bio| range(bio, Op::Write, tag * SECTOR, data));
            };
            (1..4).for_each(|tag| start(&mut s, tag));
            (0..outage / MS).for_each(|_| s.w.turn(MS));
            s.shelf.serial.replace(serial.into());
            if is_other {
                s.shelf.bytes.borrow_mut().fill(0);
            }
            s.shelf.ways.borrow_mut().deaf = false;
            (4..8).for_each(|tag| start(&mut s, tag));
            let (mut ended, end) = (Vec::new(), s.w.now() + 15 * S);
            while ended.len() < 7 {
                assert!(s.w.now() < end, "{serial}, {outage} ns: {} ended", ended.len());
                s.w.turn(10 * MS);
                ended.extend(s.w.ended());
            }
            let expected = if is_other { Err(Errno::NxIo) } else { Ok(()) };
            assert!(ended.iter().all(|end| end.status == expected), "{serial}, {outage} ns");
            (0..100).for_each(|_| s.w.turn(100 * MS));
            let written = s.shelf.bytes.borrow().chunks(512).filter(|c| c[0] == 9).count();
            assert_eq!(written, if is_other { 0 } else { 7 }, "{serial}, {outage} ns");
            let says = |s: &Scene| {
                s.w.buses[s.bus].troubles().iter().any(|t| t.why.contains("a different disk"))
            };
            assert_eq!(says(&s), is_other, "{serial}, {outage} ns");
            let mut found = s.w.scan(s.bus);
            found.extend(s.w.found());
            assert_eq!(found.len(), usize::from(is_other), "{serial}: {found:?}");
            assert!(!says(&s));
        }
    }
}

/// A write to the disk of a scene, after what `meanwhile` does to its shelf: how it ends, and
/// whether it is there.
fn write_after(s: &mut Scene, at: u64, meanwhile: impl FnOnce(&mut Scene)) -> (bool, bool) {
    (0..100).for_each(|_| s.w.turn(200 * MS));
    s.w.write(s.edge, 0, &[1; 512], bio::Flags::NONE).unwrap();
    meanwhile(s);
    let data = s.w.buffer(SECTOR as usize);
    data.fill(0, SECTOR as usize, 9);
    s.w.start(s.edge, 1, |bio| range(bio, Op::Write, at * SECTOR, data));
    let (mut ended, end) = (Vec::new(), s.w.now() + 30 * S);
    while ended.is_empty() {
        assert!(s.w.now() < end, "the write ends");
        s.w.turn(10 * MS);
        ended = s.w.ended();
    }
    (0..50).for_each(|_| s.w.turn(100 * MS));
    let there = s.shelf.bytes.borrow().chunks(512).any(|c| c[0] == 9);
    assert_eq!(ended[0].status.is_ok(), there);
    let says = s.w.buses[s.bus].troubles().iter().any(|t| t.why.contains("a different disk"));
    assert_eq!(says, ended[0].status == Err(Errno::NxIo));
    (says, there)
}

pub fn calm() -> Scene {
    Scene::new(Ways { buffers: 16, ..Ways::default() })
}

/// E6: only the next answer shows the change.
#[test]
fn a_write_does_not_reach_a_disk_exchanged_while_idle() {
    for (serial, wait, is_other) in
        [("SHELF1", 3 * S, false), ("OTHER", 3 * S, true), ("OTHER", 40 * S, true)]
    {
        let mut s = calm();
        let outcome = write_after(&mut s, 5, |s| {
            (0..wait / MS / 100).for_each(|_| s.w.turn(100 * MS));
            s.shelf.serial.replace(serial.into());
        });
        assert_eq!(outcome, (is_other, !is_other), "{serial}, {wait} ns");
    }
}

/// E6: soon after its last answer it reports that it has started, and nothing was under way.
#[test]
fn a_write_does_not_reach_a_disk_exchanged_at_a_restart_of_the_target() {
    for (serial, is_other) in [("SHELF1", false), ("OTHER", true)] {
        let mut s = calm();
        let outcome = write_after(&mut s, 5, |s| {
            s.w.turn(100 * MS);
            s.shelf.serial.replace(serial.into());
            s.shelf.announce();
            s.w.turn(MS);
        });
        assert_eq!(outcome, (is_other, !is_other), "{serial}");
    }
}

/// E6: one frame is not answered, and the next try would be.
#[test]
fn a_resent_write_does_not_reach_a_disk_exchanged_meanwhile() {
    for (serial, is_other) in [("SHELF1", false), ("OTHER", true)] {
        let mut s = calm();
        let outcome = write_after(&mut s, 5, |s| {
            s.shelf.ways.borrow_mut().deaf = true;
            let (shelf, core) = (s.shelf.clone(), s.w.core.clone());
            s.w.core.reactor().spawn("exchange", async move {
                core.reactor().sleep(MS).await;
                shelf.serial.replace(serial.into());
                shelf.ways.borrow_mut().deaf = false;
            });
        });
        assert_eq!(outcome, (is_other, !is_other), "{serial}");
    }
}

/// As the target reports at its start.
#[test]
fn the_original_disk_is_attached_again_when_it_announces_itself() {
    let mut s = calm();
    let is = |s: &mut Scene, serial: &str| {
        s.shelf.serial.replace(serial.into());
        s.shelf.announce();
        for _ in 0..60 {
            s.w.turn(100 * MS);
            s.w.cam.clone().take_update_results(&mut s.w.control);
        }
        let is_reported =
            s.w.buses[s.bus].troubles().iter().any(|t| t.why.contains("a different disk"));
        (s.w.buses[s.bus].devices().len(), is_reported)
    };
    assert_eq!(is(&mut s, "SHELF1"), (1, false));
    assert_eq!(is(&mut s, "OTHER"), (0, true));
    assert_eq!(is(&mut s, "X"), (0, true));
    assert_eq!(is(&mut s, "SHELF1"), (1, false));
}

/// A target is silent for a while and has another identity when it answers: the reported identity,
/// and the sector that is written.
#[test]
fn a_write_after_an_outage_needs_the_same_identity_of_the_target() {
    struct Row {
        name: &'static str,
        before: (&'static str, u64, &'static str),
        after: (&'static str, u64, &'static str),
        sector: u64,
        /// Another disk, and the write is there.
        is: (bool, bool),
    }
    let row = |name, before, after, sector, is| Row { name, before, after, sector, is };
    let own = ("SHELF1", SECTORS, "");
    let rows = [
        row("the same", own, own, 5, (false, true)),
        row("another serial number", own, ("OTHER", SECTORS, ""), 5, (true, false)),
        row("larger", own, ("SHELF1", 2 * SECTORS, ""), 5, (false, true)),
        row("smaller, within", own, ("SHELF1", SECTORS / 2, ""), 5, (false, true)),
        row("smaller, beyond", own, ("SHELF1", SECTORS / 2, ""), SECTORS - 1, (false, false)),
        row("another size, no serial", ("", SECTORS, ""), ("", 2 * SECTORS, ""), 5, (true, false)),
        row("the same size, no serial", ("", SECTORS, ""), ("", SECTORS, ""), 5, (false, true)),
        row("the same string", ("S", SECTORS, "a"), ("S", SECTORS, "a"), 5, (false, true)),
        row("another string", ("S", SECTORS, "a"), ("S", SECTORS, "b"), 5, (true, false)),
        row("no string any more", ("S", SECTORS, "a"), ("S", SECTORS, ""), 5, (false, true)),
        row("a string that it had not", ("S", SECTORS, ""), ("S", SECTORS, "a"), 5, (false, true)),
    ];
    for Row { name, before, after, sector, is } in rows {
        let mut s = Scene::of(before);
        let outcome = write_after(&mut s, sector, |s| {
            s.shelf.ways.borrow_mut().deaf = true;
            let data = s.w.buffer(SECTOR as usize);
            s.w.start_quietly(s.edge, |bio| range(bio, Op::Read, 0, data));
            (0..30).for_each(|_| s.w.turn(100 * MS));
            s.is((after.0, after.1, after.2));
            s.shelf.ways.borrow_mut().deaf = false;
        });
        assert_eq!(outcome, is, "{name}");
    }
}

#[test]
fn a_config_string_set_by_ashlar_does_not_change_the_disk_identity() {
    let mut s = Scene::of(("S", SECTORS, "a"));
    let params = json!({ "set": "b", "force": true });
    s.w.verb("aoeconfig", "ada0", &params).unwrap();
    assert_eq!(*s.shelf.mark.borrow(), "b");
    let outcome = write_after(&mut s, 5, |s| (0..40).for_each(|_| s.w.turn(100 * MS)));
    assert_eq!(outcome, (false, true));
}

impl Scene {
    /// A shelf that reports this: serial number, sectors, config string.
    fn of(says: (&str, u64, &str)) -> Scene {
        let shape =
            SegmentShape { delay_ns_min: 5_000, delay_ns_max: 20_000, ..SegmentShape::default() };
        Scene::with_identity(shape, says, Ways { buffers: 16, ..Ways::default() })
    }

    fn is(&mut self, (serial, sectors, mark): (&str, u64, &str)) {
        self.shelf.serial.replace(serial.into());
        self.shelf.mark.replace(mark.into());
        self.shelf.bytes.borrow_mut().resize((sectors * SECTOR) as usize, 0);
    }
}

impl Scene {
    /// As an edit of the section does.
    fn renew(&mut self, terms: &serde_json::Value) {
        let mut params = json!({ "interfaces": ["eth0"], "frame_life_ms": 10_000 });
        for (key, value) in terms.as_object().unwrap() {
            params[key] = value.clone();
        }
        self.w.buses[self.bus].sim().update_params(&params).unwrap();
        self.w.turn(MS);
    }

    /// A read that is begun now and not answered: seconds after which it fails.
    fn fails_after_s(&mut self) -> u64 {
        let (began, data) = (self.w.now(), self.w.buffer(SECTOR as usize));
        self.w.start(self.edge, 1, |bio| range(bio, Op::Read, 0, data));
        loop {
            self.w.turn(10 * MS);
            if let Some(end) = self.w.ended().pop() {
                assert!(end.status.is_err());
                return (self.w.now() - began) / S;
            }
        }
    }
}

#[test]
fn a_changed_deadline_applies_to_new_commands() {
    for deadline_s in [3, 9, 20] {
        let mut s = Scene::new(Ways::default());
        s.w.read(s.edge, 0, 512).unwrap();
        s.renew(&json!({ "deadline_s": deadline_s }));
        s.w.read(s.edge, 0, 512).expect("the disk is there as before");
        s.net.segments[0].set_up("shelf0", false);
        assert_eq!(s.fails_after_s(), deadline_s);
    }
}

#[test]
fn a_changed_window_bounds_the_outstanding_frames() {
    let mut s = Scene::new(Ways { buffers: 16, slow_ns: 10 * MS, ..Ways::default() });
    let most = |s: &mut Scene| {
        *s.shelf.held.borrow_mut() = (0, 0);
        // So few that nothing is requested beside them.
        s.reads(60);
        s.shelf.held.borrow().1
    };
    assert_eq!(most(&mut s), 16);
    s.renew(&json!({ "window": 3 }));
    assert_eq!(most(&mut s), 3);
    s.renew(&json!({ "window": 9 }));
    assert_eq!(most(&mut s), 9);
}

#[test]
fn e2_writes_wait_when_the_configured_frame_lifetime_is_raised() {
    let mut s = Scene::new(Ways::default());
    let write = |s: &mut Scene, byte: u8| {
        let began = s.w.now();
        s.w.write(s.edge, 0, &[byte; 512], bio::Flags::NONE).unwrap();
        s.w.now() - began
    };
    write(&mut s, 1);
    s.renew(&json!({ "frame_life_ms": 14_000 }));
    let found = s.w.read(s.edge, 0, 512);
    assert_eq!(found, Ok(vec![1; 512]), "reads do not wait");
    let waited = write(&mut s, 2);
    assert!((3_900 * MS..4_100 * MS).contains(&waited), "{waited}");
    s.renew(&json!({ "frame_life_ms": 1_000 }));
    assert!(write(&mut s, 3) < S);
}

#[test]
fn a_changed_discovery_interval_applies_at_once() {
    let mut w = World::with(1, &[]);
    let net = network(&w, &[(SegmentShape::default(), 9000)]);
    let params = |ask_s: u64| json!({ "interfaces": ["eth0"], "ask_s": ask_s });
    let bus = w.add_kind(&AoeKind, "aoe0", &params(3600));
    assert_eq!(w.scan(bus), [""; 0]);
    // Until it is queried every 17 minutes or less often.
    (0..2_100).for_each(|_| w.turn(S));
    w.buses[bus].sim().update_params(&params(2)).unwrap();
    let _shelf = Shelf::start(&w.core, &["shelf0"], SECTORS as usize, 1, Ways::default());
    w.until((10 * MS, 6 * S), "it is not found", |w| w.has("ada0"));
    drop(net);
}
