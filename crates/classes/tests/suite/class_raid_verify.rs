//! `raid verify`: differences are found at every level, and repaired only on request, while the
//! volume is in use.

use std::time::Duration;

use bio::Errno;
use geom::Access;
use serde_json::{Value, json};
use testkit::noise;

use crate::raids::{DDF, INTEL, Raid};
use crate::world;

/// Format, level, disks.
type Kinds = &'static [(&'static str, &'static str, usize)];

const COPIES: Kinds = &[
    (INTEL, "RAID1", 2),
    (INTEL, "RAID1E", 3),
    (INTEL, "RAID10", 4),
    (DDF, "RAID1", 3),
    (DDF, "RAID10", 4),
];

const PARITY: Kinds = &[
    (INTEL, "RAID5", 3),
    (DDF, "RAID4", 3),
    (DDF, "RAID5-LS", 4),
    (DDF, "RAID5-RA", 3),
    (DDF, "RAID6-LA", 4),
    (DDF, "RAID6-LS", 5),
];

const NOTHING: &str = "done; 0 sectors differ, 0 cannot be read";

/// A sector of the first strip.
const AT: usize = 4096;

impl Raid {
    fn begin(&mut self, with: Value) -> Result<Value, geom::Error> {
        let set = self.set.clone();
        self.world.verb("raid", "verify", &set, with)
    }

    fn is_compared(&self) -> bool {
        self.show("Verify").contains('%')
    }

    /// Compares all of it; returns the result from the lists.
    fn verify(&mut self, repair: bool) -> String {
        self.begin(json!({ "repair": repair })).expect("begun");
        for _ in 0..4000 {
            if !self.is_compared() {
                return self.show("Verify");
            }
            self.world.control.wait_until(Duration::from_millis(2), |_| false);
        }
        panic!("it never ends: {}", self.show("Verify"));
    }

    /// Changes the bytes of a sector of a disk and returns the old ones.
    fn spoil(&self, disk: usize) -> Vec<u8> {
        let was = self.disks[disk].bytes()[AT..AT + 512].to_vec();
        let other: Vec<u8> = was.iter().map(|byte| !byte).collect();
        self.disks[disk].put(AT, &other);
        was
    }
}

fn filled(format: &str, level: &str, disks: usize) -> Raid {
    let mut raid = Raid::label(format, level, disks, json!({ "strip": 8192 }));
    raid.write(0, &noise(7, raid.size()));
    raid.complete();
    raid
}

/// V3 of volume/verify.rs.
#[test]
fn wrong_parity_is_found_and_repaired_only_on_request() {
    for (format, level, disks) in PARITY {
        let mut raid = filled(format, level, *disks);
        let what = format!("{format} {level} of {disks}");
        let parities = if level.starts_with("RAID6") { 2 } else { 1 };
        assert_eq!(raid.verify(false), NOTHING, "{what}");
        let mut sums = 0;
        for disk in 0..*disks {
            let was = raid.spoil(disk);
            let spoilt = raid.disks[disk].bytes();
            let is_data = raid.read_all() != raid.model;
            let wanted = "done; 1 sectors differ, 0 cannot be read".to_owned();
            assert_eq!(raid.verify(false), wanted, "{what}, disk {disk}");
            assert!(raid.disks[disk].bytes() == spoilt, "{what}: nothing is written unasked");
            if is_data && parities == 1 {
                raid.disks[disk].put(AT, &was);
                continue;
            }
            // Two parities identify the wrong member.
            sums += usize::from(!is_data);
            let ill =
                if is_data { "data does not match both parities" } else { "parity does not match" };
            let place = format!("d{disk}, bytes {AT} to {}: {ill}", AT + 512);
            assert!(raid.show("Difference").starts_with(&place), "{}", raid.show("Difference"));
            assert_eq!(raid.verify(true), wanted + ", 1 written anew", "{what}");
            assert_eq!(raid.disks[disk].bytes()[AT..AT + 512], was, "{what}, disk {disk}");
            assert!(raid.read_all() == raid.model, "{what}");
        }
        assert_eq!(sums, parities, "{what}");
        assert_eq!(raid.verify(false), NOTHING, "{what}");
        assert_eq!(raid.state(), "OPTIMAL", "{what}");
    }
}

/// V3 of volume/verify.rs.
#[test]
fn several_wrong_strips_are_repaired_only_with_forced_parity() {
    for (level, disks) in [("RAID6-LA", 4), ("RAID6-LS", 5)] {
        let mut raid = filled(DDF, level, disks);
        for (one, two) in (0..disks).flat_map(|one| (one + 1..disks).map(move |two| (one, two))) {
            let what = format!("{level} of {disks}, {one} and {two}");
            let noisy = |disk: usize| {
                raid.disks[disk].put(AT, &noise((100 * one + 10 * two + disk) as u64, 512))
            };
            [one, two].into_iter().for_each(noisy);
            let row = |disk: &world::Disk| disk.0.lock().expect("media").bytes[..65536].to_vec();
            let all = |raid: &Raid| raid.disks.iter().map(row).collect::<Vec<_>>();
            let spoilt = all(&raid);
            let output = raid.verify(true);
            assert!(
                output.contains("more than one is wrong, and the wrong ones are unknown"),
                "{output}"
            );
            assert!(output.ends_with(", 0 written anew"), "{what}: {output}");
            assert!(all(&raid) == spoilt, "{what}: nothing is written by a guess");
            let answer = raid.begin(json!({ "end": true })).expect("the report");
            let untold = answer["reports"][0]["untold_sectors"].as_u64().expect("a number");
            assert!(untold > 0 && raid.show("Difference").contains("are unknown"), "{what}");
            // Data never changes, whichever repair is made.
            let data = raid.read_all();
            raid.begin(json!({ "repair": true, "force": true })).expect("begun");
            while raid.is_compared() {
                raid.settle();
            }
            assert!(raid.read_all() == data, "{what}");
            assert_eq!(raid.verify(false), NOTHING, "{what}");
        }
    }
}

#[test]
fn an_unreadable_strip_is_not_rebuilt_from_a_row_with_a_wrong_strip() {
    let mut raid = filled(DDF, "RAID6-LA", 5);
    raid.disks[0].put(AT, &noise(90, 512));
    let unread = raid.disks[1].bytes();
    raid.disks[1].0.lock().expect("media").unreadable = true;
    let output = raid.verify(true);
    assert!(output.contains("are unknown"), "{output}");
    let row = 8192;
    assert!(raid.disks[1].bytes()[..row] == unread[..row], "it would be made of what is wrong");
    raid.disks[1].0.lock().expect("media").unreadable = false;
    // It can be read again: now the one that is wrong is found.
    let output = raid.verify(true);
    assert_eq!(output, "done; 1 sectors differ, 0 cannot be read, 1 written anew");
    assert!(raid.read_all() == raid.model);
}

#[test]
fn differing_copies_are_found_and_repaired_only_on_request() {
    for (format, level, disks) in COPIES {
        let mut raid = filled(format, level, *disks);
        let what = format!("{format} {level} of {disks}");
        assert_eq!(raid.verify(false), NOTHING, "{what}");
        // The first strip is on the first disk, and copied to the second at each of these levels.
        let was = raid.spoil(1);
        let spoilt = raid.disks[1].bytes();
        let one = "done; 1 sectors differ, 0 cannot be read";
        assert_eq!(raid.verify(false), one, "{what}");
        assert!(raid.disks[1].bytes() == spoilt, "{what}: nothing is written unasked");
        let place = format!("d1, bytes {AT} to {}: differs from the first copy", AT + 512);
        assert_eq!(raid.show("Difference"), place, "{what}");
        assert_eq!(raid.verify(true), format!("{one}, 1 written anew"), "{what}");
        assert_eq!(raid.disks[1].bytes()[AT..AT + 512], was, "{what}");
        assert!(raid.read_all() == raid.model, "{what}");
        // The first is right, regardless of its content.
        raid.spoil(0);
        let others = if *level == "RAID1" { disks - 1 } else { 1 };
        let output =
            format!("done; {others} sectors differ, 0 cannot be read, {others} written anew");
        assert_eq!(raid.verify(true), output, "{what}");
        raid.model[AT..AT + 512].iter_mut().for_each(|byte| *byte = !*byte);
        assert!(raid.read_all() == raid.model, "{what}");
        assert_eq!(raid.verify(false), NOTHING, "{what}");
    }
}

#[test]
fn unreadable_sectors_are_counted_and_rewritten_from_other_disks() {
    for (format, level, disks) in COPIES.iter().chain(PARITY) {
        let mut raid = filled(format, level, *disks);
        let what = format!("{format} {level} of {disks}");
        raid.disks[1].0.lock().expect("media").unreadable = true;
        let output = raid.verify(false);
        let count = |output: &str, word: &str| {
            let before = output.split(word).next().expect("a part");
            before.rsplit(' ').next().expect("a number").parse::<usize>().expect("a number")
        };
        let unread = count(&output, " cannot be read");
        assert!(unread > 0 && output.starts_with("done; 0 sectors differ"), "{what}: {output}");
        assert!(raid.show("Difference").contains("d1, bytes 0 to "), "{what}");
        // A member that users do not read is not reported.
        assert_eq!(raid.state(), "OPTIMAL", "{what}");
        raid.disks[1].put(0, &vec![0xee; AT]);
        let output = raid.verify(true);
        assert_eq!(count(&output, " written anew"), unread, "{what}: {output}");
        raid.disks[1].0.lock().expect("media").unreadable = false;
        assert_eq!(raid.verify(false), NOTHING, "{what}");
        assert!(raid.read_all() == raid.model, "{what}");
    }
}

/// V1 of volume/verify.rs.
#[test]
fn verify_runs_during_writes_and_can_be_ended() {
    for (format, level, disks) in COPIES.iter().chain(PARITY) {
        let mut raid = filled(format, level, *disks);
        let what = format!("{format} {level} of {disks}");
        raid.begin(json!({ "rate": 8 << 20, "repair": true })).expect("begun");
        let again = raid.begin(json!({})).expect_err("it runs");
        assert!(again.kind == Errno::Busy && again.message.contains("--end"), "{again}");
        let mut writes = 0;
        let bytes = noise(8, raid.size());
        while raid.is_compared() {
            raid.random_writes(writes, &bytes);
            writes += 1;
        }
        let output = raid.show("Verify");
        assert_eq!(output, format!("{NOTHING}, 0 written anew"), "{what}");
        assert!(raid.read_all() == raid.model, "{what}");
        raid.begin(json!({ "rate": 1 << 10 })).expect("begun");
        raid.random_writes(writes, &bytes);
        assert!(raid.is_compared(), "{what}: {}", raid.show("Verify"));
        let answer = raid.begin(json!({ "end": true })).expect("ended");
        assert!(!raid.is_compared() || raid.show("Verify").starts_with("ended"), "{what}");
        let report = &answer["reports"][0];
        assert_eq!(report["volume"], json!(raid.volume()), "{answer}");
        assert_eq!(report["running"], json!(false), "{answer}");
        assert_eq!(report["differing_sectors"], json!(0), "{answer}");
        let answer = raid.begin(json!({ "end": true })).expect("nothing to end");
        assert!(answer["message"].as_str().expect("words").contains("not being compared"));
    }
}

/// V2 of volume/verify.rs.
#[test]
fn only_complete_redundant_volumes_are_compared() {
    for (format, level, disks) in [(INTEL, "RAID1", 2), (INTEL, "RAID5", 3), (DDF, "RAID6-LA", 4)] {
        let mut raid = filled(format, level, disks);
        raid.begin(json!({ "rate": 1 << 20 })).expect("begun");
        raid.lose(1);
        for _ in 0..1000 {
            if raid.show("Verify").contains("ended at") {
                break;
            }
            raid.settle();
        }
        let output = raid.show("Verify");
        assert!(output.contains("a member is missing or being filled"), "{level}: {output}");
        let refused = raid.begin(json!({})).expect_err("degraded");
        assert!(refused.kind == Errno::Busy && refused.message.contains("DEGRADED"), "{refused}");
        raid.back(1);
        raid.complete();
        assert_eq!(raid.verify(false), NOTHING, "{level}");
    }
    let mut raid = Raid::label(INTEL, "RAID0", 2, json!({ "size": 1 << 20 }));
    let refused = raid.begin(json!({})).expect_err("nothing to compare");
    assert!(refused.message.contains("copies or parity"), "{refused}");
    let refused = raid.begin(json!({ "volume": "data" })).expect_err("nothing to compare");
    assert!(refused.message.contains("neither copies nor parity"), "{refused}");
    // Of several volumes those that have something to compare, or the one that is named.
    let more = json!({ "label": "more", "level": "RAID1", "size": 65536 });
    raid.world.verb("raid", "add", &raid.set, more).expect("added");
    raid.complete();
    let answer = raid.begin(json!({})).expect("begun");
    let words = answer["message"].as_str().expect("words");
    assert!(words.contains("/more: compared") && !words.contains("/data"), "{words}");
    let open = raid.open(Access::READ);
    raid.world.close(open);
}
