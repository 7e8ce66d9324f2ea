//! Volumes with a log of partial parity: power cuts with and without a disk, and logs that cannot
//! be trusted.

use classes::raid::imsm::ppl::{self, Entry, HEADER, Header};
use geom::Access;
use serde_json::json;
use testkit::noise;

use crate::raids::{DDF, INTEL, Raid};
use crate::world;

const STRIP: usize = 8192;
const WIDTH: usize = 2;
/// Bytes of each disk that the volume has.
const SIZE: usize = 32 * STRIP;

fn logged() -> Raid {
    let with = json!({ "strip": STRIP, "size": SIZE, "consistency": "ppl" });
    let mut raid = Raid::label(INTEL, "RAID5", 3, with);
    let line = raid.show("Volume");
    assert!(line.contains(", partial parity log (PPL)") && !line.contains("Linux"), "{line}");
    raid.write(0, &noise(1, raid.size()));
    raid
}

/// The power fails when a write of row 0 has reached its first disk in part, and not its parity.
/// Returns the disks as they are then, in a new world.
fn cut(which: &[usize]) -> Raid {
    cut_with(which, |_| ())
}

fn cut_with(which: &[usize], spoil: impl Fn(&Raid)) -> Raid {
    let mut raid = logged();
    let open = raid.open(Access::WRITE);
    raid.world.write(&open, 0, &noise(2, 512)).expect("written");
    raid.model[..512].copy_from_slice(&noise(2, 512));
    raid.disks[0].put(100, &[0xee; 300]);
    raid.model[100..400].fill(0xee);
    assert!(raid.show("Volume").contains("dirty"));
    spoil(&raid);
    raid.reborn_with(which)
}

fn start(raid: &mut Raid, force: bool) -> Result<(), String> {
    let start = raid.world.verb("raid", "start", &raid.set.clone(), json!({ "force": force }));
    start.map(drop).map_err(|e| e.message)
}

/// Where the logs are.
fn place(raid: &Raid) -> usize {
    raid.model.len() / WIDTH
}

/// Bytes that differ.
fn differing(one: &[u8], other: &[u8]) -> usize {
    one.iter().zip(other).filter(|(a, b)| a != b).count()
}

#[test]
fn a_crash_replays_the_log_and_resyncs_nothing() {
    // Parity of a row far behind that is wrong: it would be made right by a resync.
    let wrong = STRIP * 30 + 7;
    let turn = |raid: &Raid| {
        let byte = raid.disks[2].bytes()[wrong];
        raid.disks[2].put(wrong, &[!byte]);
    };
    let mut again = cut_with(&[2, 1, 0], |raid| turn(raid));
    again.complete();
    assert!(again.read_all() == again.model);
    turn(&again);
    for lost in 0..3 {
        again.lose(lost);
        assert!(again.read_all() == again.model, "without {lost}");
        again.back(lost);
        again.complete();
    }
}

/// A5 of raid/members.rs.
#[test]
fn a_volume_with_a_log_starts_without_a_disk_and_has_its_data() {
    for lost in [1, 2] {
        let here: Vec<usize> = (0..3).filter(|i| *i != lost).collect();
        let mut again = cut(&here);
        // It waits for the disk, and then does without.
        start(&mut again, false).expect("it does not wait any more");
        let line = again.show("Volume");
        assert!(!line.contains("may be wrong") && !line.contains("dirty"), "{line}");
        assert!(again.read_all() == again.model, "without {lost}");
        again.random_writes(20, &noise(3, again.size()));
        again.back(lost);
        again.complete();
        assert!(again.read_all() == again.model);
    }
}

/// Y4 of volume/replay.rs.
#[test]
fn an_invalid_log_is_not_replayed() {
    let put = |raid: &Raid, bytes: &[u8]| raid.disks[2].put(place(raid), bytes);
    let area = |raid: &Raid, disk: usize| {
        raid.disks[disk].bytes()[place(raid)..][..ppl::AREA as usize].to_vec()
    };
    let with = |raid: &Raid, change: &dyn Fn(&mut Header)| {
        let bytes = area(raid, 2);
        let signature = u32::from_le_bytes(bytes[512..516].try_into().expect("four"));
        let Ok(ppl::Log::Unit { mut header, .. }) = ppl::Log::read(&bytes, signature) else {
            panic!("no log");
        };
        header.generation += 100;
        change(&mut header);
        let mut all = vec![0; ppl::AREA as usize];
        all[..HEADER].copy_from_slice(&header.encode());
        put(raid, &all);
    };
    let spoils: [Spoil<'_>; 8] = [
        ("nothing there", &|raid| put(raid, &[0; HEADER])),
        ("noise", &|raid| put(raid, &noise(9, HEADER))),
        ("another signature", &|raid| with(raid, &|header| header.signature ^= 1)),
        ("another member's", &|raid| put(raid, &area(raid, 1))),
        ("another slot", &|raid| with(raid, &|header| header.entries[0] = whole_row(5, 0))),
        ("beyond the end", &|raid| with(raid, &|header| header.entries[0] = whole_row(9999, 2))),
        ("too large", &|raid| with(raid, &|header| header.entries[0].parity = 1 << 20)),
        ("doubt", &|raid| with(raid, &|header| header.entries[0] = Entry::DOUBT)),
    ];
    for (name, spoil) in spoils {
        let mut whole = cut_with(&[0, 1, 2], spoil);
        synced(&mut whole);
        let now = whole.read_all();
        assert!(now == whole.model, "{name}");
        whole.lose(0);
        assert!(whole.read_all() == whole.model, "{name}: parity was made");

        let mut less = cut_with(&[0, 2], spoil);
        let before: Vec<Vec<u8>> = less.disks.iter().map(|disk| disk.bytes()).collect();
        less.world.control.wait_until(std::time::Duration::from_millis(100), |_| false);
        assert!(start(&mut less, false).is_err(), "{name}");
        let after: Vec<Vec<u8>> = less.disks.iter().map(|disk| disk.bytes()).collect();
        let changed: usize = before.iter().zip(&after).map(|(a, b)| differing(a, b)).sum();
        assert_eq!(changed, 0, "{name}: nothing is written for it");
        start(&mut less, true).expect("by force");
        let line = less.show("Volume");
        assert!(
            line.contains("not used at the start") && line.contains("may be wrong"),
            "{name}: {line}"
        );
    }
}

/// Waits until parity is right; not until the record is marked clean, which is later.
fn synced(raid: &mut Raid) {
    for _ in 0..4000 {
        if raid.state() == "OPTIMAL" && !raid.show("Volume").contains("synchronised") {
            return;
        }
        raid.world.control.wait_until(std::time::Duration::from_millis(5), |_| false);
    }
    panic!("{} {}", raid.state(), raid.show("Volume"));
}

/// A way to damage a log, and its name.
type Spoil<'a> = (&'a str, &'a dyn Fn(&Raid));

/// An entry of a row that was written whole.
fn whole_row(row: u64, slot: u32) -> Entry {
    let bytes = (STRIP * WIDTH) as u64;
    Entry::of(row * bytes / 512, bytes as u32, slot, &[])
}

#[test]
fn a_log_is_accepted_only_for_intel_raid5() {
    for (format, level) in [(INTEL, "RAID1"), (DDF, "RAID5")] {
        let mut world = world::World::new();
        let len = 36 << 20;
        let _disks: Vec<_> =
            (0..3).map(|i| world.disk(&format!("d{i}"), vec![0; len], 512)).collect();
        let with = json!({
            "format": format, "level": level, "members": ["d0", "d1", "d2"], "consistency": "ppl",
        });
        let refused = world.verb("raid", "label", "data", with).expect_err("refused");
        assert!(refused.message.contains("Intel's RAID5"), "{}", refused.message);
    }
}
