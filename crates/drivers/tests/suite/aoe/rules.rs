//! Access rules: groups, config strings, masks, reservations, announcements.

use bio::Errno;
use engine::GroupSpec;
use serde_json::json;
use wire::aoe::{
    self, Ata, Config, Header, Mac, Masks, Reserve, command, directive, error as code, mask,
    reserve,
};
use wire::ata::command as op;

use crate::aoe::stage::{
    DISK_BYTES, NAME, SHELF, SLOT, Stage, ata, calm, config, decode_answer, discovery_query, error,
    header, long, mac, params, portal, target_mac,
};
use crate::aoe::volatile::Volatile;

fn stage() -> Stage {
    Stage::new(1, &[calm()], 1500, params())
}

/// The string in the only answer; None: there is none.
fn string(frames: &[Vec<u8>]) -> Option<Vec<u8>> {
    let [frame] = frames else {
        assert!(frames.is_empty());
        return None;
    };
    let (header, body) = Header::decode(frame).unwrap();
    assert_eq!(header.error, None);
    Some(Config::decode(body).unwrap().string.to_vec())
}

fn some(text: &[u8]) -> Option<Vec<u8>> {
    Some(text.to_vec())
}

/// A3 of aoe/mod.rs.
#[test]
fn each_initiator_sees_the_slots_of_its_group() {
    let stage = stage();
    let (one, two, three) = (stage.plug(0, 1), stage.plug(0, 2), stage.plug(0, 3));
    stage.allow(&[
        (&format!("mac:{}", mac(0, 1)), &[(0, false), (7, false)]),
        (&format!("mac:{}", mac(0, 2)), &[(7, true), (255, false)]),
    ]);
    let slots = |link, station| -> Vec<u8> {
        let came = stage.ask(link, &[discovery_query(station)]);
        came.iter().map(|f| Header::decode(f).unwrap().0.address.slot).collect()
    };
    assert_eq!(slots(&one, 1), [0, 7]);
    assert_eq!(slots(&two, 2), [7], "255 stands for all");
    assert!(slots(&three, 3).is_empty());
    let read = |station| ata(station, 1, long(op::READ_EXT, 0, 1), &[]);
    assert_eq!(stage.ask(&one, &[read(1)]).len(), 1);
    assert_eq!(stage.ask(&two, &[read(2)]).len(), 0, "not its slot");
    assert_eq!(stage.ask(&three, &[read(3)]).len(), 0, "a stranger");
    assert!(!stage.plant.registry.denied().is_empty(), "the operator hears of strangers");
    let mut write = ata(2, 1, Ata { write: true, ..long(op::WRITE_EXT, 0, 1) }, &[9; 512]);
    write[18] = 7;
    let came = stage.ask(&two, &[write]);
    assert_eq!(decode_answer(&came[0]).1.command, 0x41, "read only");
    assert_eq!(stage.disk.bytes(0, 512), [0; 512]);
    // A slot that is taken away is absent at the next command.
    stage.allow(&[(&format!("mac:{}", mac(0, 2)), &[(7, true)])]);
    stage.ask(&one, &[read(1)]);
    assert_eq!(stage.ask(&one, &[read(1)]).len(), 0);
    stage.end();
}

/// A4 of aoe/mod.rs.
#[test]
fn config_strings_are_set_tested_and_outlive_the_daemon() {
    let stage = stage();
    let link = stage.plug(0, 1);
    let ask = |how, text: &[u8]| stage.ask(&link, &[config(1, SLOT, how, text)]);
    assert_eq!(string(&ask(directive::READ, b"")), some(b""));
    assert_eq!(string(&ask(directive::SET, b"lock-a")), some(b"lock-a"));
    assert_eq!(string(&ask(directive::SET, b"lock-a")), some(b"lock-a"), "its own");
    assert_eq!(error(&ask(directive::SET, b"lock-b")), code::CONFIG_PRESENT);
    assert_eq!(string(&ask(directive::TEST, b"lock-a")), some(b"lock-a"));
    assert_eq!(string(&ask(directive::TEST, b"lock")), None, "silence");
    assert_eq!(string(&ask(directive::PREFIX, b"lock")), some(b"lock-a"));
    assert_eq!(string(&ask(directive::PREFIX, b"lick")), None);
    assert_eq!(string(&ask(directive::FORCE, b"other")), some(b"other"));
    assert_eq!(error(&ask(5, b"")), code::ARGUMENT);
    stage.store.fail(Some(Errno::NoSpc));
    assert_eq!(error(&ask(directive::FORCE, b"lost")), code::UNAVAILABLE);
    stage.store.fail(None);
    assert_eq!(string(&ask(directive::READ, b"")), some(b"other"), "what could not be kept");
    let mut long = config(1, SLOT, directive::SET, &[b'x'; 1024]);
    long[30..32].copy_from_slice(&1025u16.to_be_bytes());
    assert_eq!(error(&stage.ask(&link, &[long])), code::ARGUMENT);
    let mut short = config(1, SLOT, directive::SET, b"x");
    short[30..32].copy_from_slice(&500u16.to_be_bytes());
    assert_eq!(error(&stage.ask(&link, &[short])), code::ARGUMENT);
    let store = stage.store.clone();
    stage.end();
    let again = Stage::with_store(2, &[calm()], 1500, params(), store);
    let link = again.plug(0, 1);
    let came = again.ask(&link, &[config(1, SLOT, directive::READ, b"")]);
    assert_eq!(string(&came), some(b"other"));
    again.end();
}

#[test]
fn one_of_two_concurrent_string_sets_succeeds() {
    let stage = stage();
    let (a, b) = (stage.plug(0, 1), stage.plug(0, 2));
    stage.store.hold(true);
    stage.ask(&a, &[config(1, SLOT, directive::SET, b"a")]);
    assert_eq!(string(&stage.ask(&b, &[config(2, SLOT, directive::SET, b"b")])), None);
    stage.store.hold(false);
    assert_eq!(error(&stage.ask(&b, &[config(2, SLOT, directive::SET, b"b")])), 4);
    let came = stage.ask(&a, &[config(1, SLOT, directive::READ, b"")]);
    assert_eq!(string(&came), some(b"a"));
    stage.end();
}

fn masks(station: u8, command: u8, list: &[(u8, Mac)]) -> Vec<u8> {
    let head = header(station, SLOT, self::command::MASKS, 3).encode();
    [&head[..], &Masks::encode(command, 0, list)].concat()
}

fn listed(frames: &[Vec<u8>]) -> (u8, Vec<Mac>) {
    let (_, body) = Header::decode(&frames[0]).unwrap();
    let answer = Masks::decode(body).unwrap();
    (answer.error, answer.directives().map(|(_, mac)| mac).collect())
}

#[test]
fn mask_list_edits_are_atomic_and_enforced() {
    let stage = Stage::new(1, &[calm()], 9000, params());
    let (one, two) = (stage.plug(0, 1), stage.plug(0, 2));
    let (me, other) = (mac(0, 1), mac(0, 9));
    let edit = |list: &[(u8, Mac)]| listed(&stage.ask(&one, &[masks(1, mask::EDIT, list)]));
    assert_eq!(listed(&stage.ask(&one, &[masks(1, mask::READ, &[])])), (0, vec![]));
    assert_eq!(edit(&[(mask::ADD, me), (mask::ADD, other)]), (0, vec![me, other]));
    assert_eq!(edit(&[(mask::DELETE, other), (9, me)]), (mask::DIRECTIVE, vec![me, other]));
    assert_eq!(edit(&[(mask::DELETE, other), (mask::NOTHING, me)]), (0, vec![me]));
    let many: Vec<(u8, Mac)> = (0..255).map(|n| (mask::ADD, mac(1, n))).collect();
    assert_eq!(edit(&many), (mask::FULL, vec![me]));
    assert_eq!(stage.ask(&one, &[discovery_query(1)]).len(), 1);
    let read = |station| ata(station, 1, long(op::READ_EXT, 0, 1), &[]);
    for frame in [discovery_query(2), read(2), masks(2, mask::EDIT, &[(mask::ADD, mac(0, 2))])] {
        assert_eq!(stage.ask(&two, &[frame]).len(), 0, "masked");
    }
    assert_eq!(stage.ask(&one, &[masks(1, 2, &[])]).len(), 1);
    let store = stage.store.clone();
    stage.end();
    let again = Stage::with_store(2, &[calm()], 1500, params(), store);
    let (one, two) = (again.plug(0, 1), again.plug(0, 2));
    assert_eq!(
        (
            again.ask(&one, &[discovery_query(1)]).len(),
            again.ask(&two, &[discovery_query(2)]).len()
        ),
        (1, 0)
    );
    again.end();
}

#[test]
fn reservation_allows_others_only_queries() {
    let stage = stage();
    let (one, two) = (stage.plug(0, 1), stage.plug(0, 2));
    let reserve = |station, how, list: &[Mac]| {
        let head = header(station, SLOT, command::RESERVE, 4).encode();
        [&head[..], &Reserve::encode(how, list)].concat()
    };
    let holders = |frames: &[Vec<u8>]| -> Vec<Mac> {
        let (_, body) = Header::decode(&frames[0]).unwrap();
        Reserve::decode(body).unwrap().addresses().collect()
    };
    let me = mac(0, 1);
    assert_eq!(holders(&stage.ask(&one, &[reserve(1, reserve::SET, &[me, me])])), [me]);
    let read = |station| ata(station, 1, long(op::READ_EXT, 0, 1), &[]);
    let identify = ata(2, 2, long(op::IDENTIFY, 0, 1), &[]);
    assert_eq!(decode_answer(&stage.ask(&one, &[read(1)])[0]).1.command, 0x40);
    assert_eq!(error(&stage.ask(&two, &[read(2)])), code::RESERVED);
    assert_eq!(decode_answer(&stage.ask(&two, &[identify])[0]).1.command, 0x40);
    assert_eq!(stage.ask(&two, &[discovery_query(2)]).len(), 1);
    assert_eq!(error(&stage.ask(&two, &[reserve(2, reserve::SET, &[])])), code::RESERVED);
    assert_eq!(holders(&stage.ask(&two, &[reserve(2, reserve::READ, &[])])), [me]);
    let taken = stage.ask(&two, &[reserve(2, reserve::FORCE, &[mac(0, 2)])]);
    assert_eq!(holders(&taken), [mac(0, 2)]);
    assert_eq!(error(&stage.ask(&one, &[read(1)])), code::RESERVED);
    // It does not hold before it is kept, and outlives the target.
    stage.store.fail(Some(Errno::NoSpc));
    let release = reserve(2, reserve::SET, &[]);
    assert_eq!(error(&stage.ask(&two, std::slice::from_ref(&release))), code::UNAVAILABLE);
    assert_eq!(error(&stage.ask(&one, &[read(1)])), code::RESERVED);
    stage.store.fail(None);
    let store = stage.store.clone();
    stage.end();
    let stage = Stage::with_store(2, &[calm()], 1500, params(), store);
    let (one, two) = (stage.plug(0, 1), stage.plug(0, 2));
    assert_eq!(error(&stage.ask(&one, &[read(1)])), code::RESERVED);
    assert_eq!(holders(&stage.ask(&two, &[release])), []);
    assert_eq!(decode_answer(&stage.ask(&one, &[read(1)])[0]).1.command, 0x40);
    // Of two initiators that reserve at once one succeeds; the other retries and is refused.
    stage.store.hold(true);
    assert!(stage.ask(&one, &[reserve(1, reserve::SET, &[me])]).is_empty());
    let late = reserve(2, reserve::SET, &[mac(0, 2)]);
    assert!(stage.ask(&two, std::slice::from_ref(&late)).is_empty());
    stage.store.hold(false);
    stage.pass(20_000_000);
    assert_eq!(error(&stage.ask(&two, &[late])), code::RESERVED);
    assert_eq!(holders(&stage.ask(&two, &[reserve(2, reserve::READ, &[])])), [me]);
    stage.end();
}

#[test]
fn new_slot_is_announced_to_initiators_with_access() {
    let params = json!({ "shelf": SHELF, "announce": true });
    let stage = Stage::new(1, &[calm()], 1500, params);
    let (one, two) = (stage.plug(0, 1), stage.plug(0, 2));
    let slots = |link: &reactor::Link| {
        let mut all = Vec::new();
        link.receive(100, &mut |frame| {
            let (header, body) = Header::decode(frame).unwrap();
            assert!(header.response && header.tag == 0 && Config::decode(body).is_ok());
            assert_eq!(header.from, target_mac(0));
            all.push(header.address);
        })
        .unwrap();
        all
    };
    stage.pass(1_500_000_000);
    assert_eq!((slots(&one), slots(&two)), (vec![SLOT], vec![SLOT]), "everybody");
    stage.pass(3_000_000_000);
    assert_eq!(slots(&one), [], "once");
    let named = format!("mac:{}", mac(0, 2));
    stage.allow(&[(&named, &[(3, false)])]);
    stage.pass(2_000_000_000);
    let third = aoe::Address { shelf: SHELF, slot: 3 };
    assert_eq!((slots(&one), slots(&two)), (vec![], vec![third]), "who is named");
    stage.end();
}

/// Commands and tags of frames.
fn kinds(came: Vec<Vec<u8>>) -> Vec<(u8, u32)> {
    let header = |frame: &Vec<u8>| Header::decode(frame).unwrap().0;
    came.iter().map(header).map(|header| (header.command, header.tag)).collect()
}

/// An initiator that gets the announcement queries which disk the slot has. Without it a write of
/// the old disk's would be carried out on the new one.
#[test]
fn a_slot_whose_disk_is_exchanged_is_announced_before_it_serves() {
    let params = json!({ "shelf": SHELF, "announce": true });
    let mut stage = Stage::new(3, &[calm()], 1500, params);
    let mut other = None;
    let add = |control: &mut geom::GraphControl| {
        other = Some(Volatile::add_as(control, "other", DISK_BYTES));
    };
    stage.plant.add_unit("other", add);
    let other = other.unwrap();
    let link = stage.plug(0, 1);
    stage.pass(1_500_000_000);
    let write = |byte: u8| ata(1, 0x77, long(0x34, 0, 1), &[byte; 512]);
    let came = stage.ask(&link, &[write(1)]);
    assert_eq!((came.len(), stage.disk.bytes(0, 1)), (1, vec![1]));
    let both = [("mac:02:00:00:02:*", &[(0, false)][..])];
    stage.allow_of("other", &both);
    // The first ends the session of the old disk, and the initiator sends it again.
    assert_eq!(stage.ask(&link, &[write(2)]), [[0; 0]; 0]);
    let came = stage.ask(&link, &[write(2)]);
    assert_eq!(kinds(came), [(command::CONFIG, 0)], "it is announced, and nothing is written");
    assert_eq!((stage.disk.bytes(0, 1), other.bytes(0, 1)), (vec![1], vec![0]));
    // An initiator that knows continues, and gets one announcement.
    let identify = ata(1, 0x78, Ata { command: op::IDENTIFY, ..Ata::default() }, &[]);
    let ends = |came: &[Vec<u8>]| decode_answer(&came[0]).0.error;
    assert_eq!(ends(&stage.ask(&link, &[write(3)])), Some(code::UNAVAILABLE));
    assert_eq!(ends(&stage.ask(&link, std::slice::from_ref(&identify))), None);
    assert_eq!(ends(&stage.ask(&link, &[write(3)])), None);
    assert_eq!((stage.disk.bytes(0, 1), other.bytes(0, 1)), (vec![1], vec![3]));
    // The session of a disk that was exchanged does not identify the old disk. The initiator would
    // take the new disk for the old one, and its write would be let through.
    stage.allow_of("slow", &both);
    assert_eq!(stage.ask(&link, std::slice::from_ref(&identify)), [[0; 0]; 0]);
    assert_eq!(kinds(stage.ask(&link, std::slice::from_ref(&identify))), [(command::CONFIG, 0)]);
    assert_eq!(ends(&stage.ask(&link, &[write(5)])), Some(code::UNAVAILABLE));
    assert_eq!((stage.disk.bytes(0, 1), other.bytes(0, 1)), (vec![1], vec![3]));
    // An initiator that sends nothing is notified within a second.
    stage.allow_of("other", &both);
    stage.pass(1_500_000_000);
    let mut came = Vec::new();
    link.receive(100, &mut |frame| came.push(frame.to_vec())).unwrap();
    assert_eq!(kinds(came), [(command::CONFIG, 0)]);
    stage.pass(3_000_000_000);
    // It is the disk that the initiator queried last.
    assert_eq!(ends(&stage.ask(&link, &[write(4)])), None);
    assert_eq!((stage.disk.bytes(0, 1), other.bytes(0, 1)), (vec![1], vec![4]));
    stage.end();
}

/// After a start without the disk. Initiators repeat a command that is not answered; an error would
/// end it.
#[test]
fn a_slot_whose_disk_is_missing_is_silent_and_announced_when_it_appears() {
    let params = json!({ "shelf": SHELF, "announce": true });
    let stage = Stage::new(4, &[calm()], 1500, params);
    let link = stage.plug(0, 1);
    let group = GroupSpec {
        name: "g0".into(),
        initiators: vec!["mac:02:00:00:02:*".into()],
        awaited: vec![(0, "slow".into())],
        ..GroupSpec::default()
    };
    stage.plant.registry.set_groups("aoe", NAME, &[group]).unwrap();
    stage.pass(1_500_000_000);
    let write = ata(1, 0x77, long(op::WRITE_EXT, 0, 1), &[2; 512]);
    for request in [&discovery_query(1), &write, &write] {
        let came = stage.ask(&link, std::slice::from_ref(request));
        assert!(came.is_empty(), "{came:x?}");
    }
    assert_eq!(stage.disk.bytes(0, 1), [0]);
    stage.allow(&[("mac:02:00:00:02:*", &[(0, false)])]);
    stage.pass(1_500_000_000);
    let mut came = Vec::new();
    link.receive(100, &mut |frame| came.push(frame.to_vec())).unwrap();
    assert_eq!(kinds(came), [(command::CONFIG, 0)], "an announcement");
    let came = stage.ask(&link, &[write]);
    assert_eq!(decode_answer(&came[0]).0.error, None);
    assert_eq!(stage.disk.bytes(0, 1), [2]);
    stage.end();
}

#[test]
fn slot_whose_disk_vanishes_is_silent_to_its_initiators_until_it_returns() {
    let stage = stage();
    let link = stage.plug(0, 1);
    assert_eq!(stage.ask(&link, &[discovery_query(1)]).len(), 1);
    let write = |tag, value: u8| ata(1, tag, long(op::WRITE_EXT, 0, 1), &[value; 512]);
    let came = stage.ask(&link, &[write(0x70, 1)]);
    assert_eq!(decode_answer(&came[0]).0.error, None);
    let group = GroupSpec {
        name: "g0".into(),
        initiators: vec!["mac:02:00:00:02:*".into()],
        awaited: vec![(0, "slow".into())],
        ..GroupSpec::default()
    };
    stage.plant.registry.set_groups("aoe", NAME, &[group]).unwrap();
    for _ in 0..2 {
        let came = stage.ask(&link, &[write(0x71, 2)]);
        assert!(came.is_empty(), "{came:x?}");
    }
    assert_eq!(stage.disk.bytes(0, 1), [1]);
    stage.allow(&[("mac:02:00:00:02:*", &[(0, false)])]);
    stage.pass(1_500_000_000);
    let came = stage.ask(&link, &[write(0x71, 2)]);
    assert_eq!(decode_answer(&came[0]).0.error, None);
    assert_eq!(stage.disk.bytes(0, 1), [2]);
    stage.end();
}

#[test]
fn interface_returns_from_down_with_its_new_mtu() {
    let stage = stage();
    let link = stage.plug(0, 1);
    assert_eq!(stage.ask(&link, &[discovery_query(1)]).len(), 1);
    stage.segments[0].set_up("t0", false);
    assert_eq!(stage.ask(&link, &[discovery_query(1)]).len(), 0);
    stage.segments[0].set_mtu("t0", 9000);
    stage.segments[0].set_up("t0", true);
    stage.pass(3_000_000_000);
    let came = stage.ask(&link, &[discovery_query(1)]);
    let (_, body) = Header::decode(&came[0]).unwrap();
    assert_eq!(Config::decode(body).unwrap().sectors, 17);
    stage.end();
}

#[test]
fn second_target_with_the_same_shelf_on_a_segment_is_refused() {
    let stage = stage();
    let spec = |name: &str, shelf: u16| drivers::TargetSpec {
        name: name.into(),
        listen: vec![portal(0)],
        params: json!({ "shelf": shelf }),
        ..drivers::TargetSpec::default()
    };
    let error = stage.driver.set_target(spec("other", SHELF)).unwrap_err();
    assert!(error.message.contains(NAME), "{error}");
    stage.driver.set_target(spec("other", SHELF + 1)).unwrap();
    stage.driver.set_target(spec(NAME, SHELF)).unwrap();
    stage.end();
}
