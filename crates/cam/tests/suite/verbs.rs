//! The verbs of class cam: their output, their effects and their refusals.

use bio::{Errno, Flags};
use geom::Class;
use serde_json::{Value, json};

use crate::world::{self, World};

fn verb(w: &mut World, verb: &str, on: &str, params: Value) -> Result<Value, geom::Error> {
    let cam = w.cam.clone();
    cam.verb(&mut w.control, verb, on, &params)
}

fn text(w: &mut World, name: &str, on: &str) -> String {
    let answer = verb(w, name, on, json!({})).unwrap();
    answer["text"].as_str().unwrap().to_string()
}

/// Parameters of a virtual bus.
fn virtual_bus(params: Value) -> Value {
    json!({ "kind": "virtual", "params": params })
}

fn attached() -> World {
    let mut w = World::new(1, &[]);
    let sas = virtual_bus(json!({ "transport": "sas", "disks": 2, "size": 1 << 20 }));
    let done = verb(&mut w, "attach", "mps0", sas).unwrap();
    assert_eq!(done["found"], json!(["da0", "da1"]));
    let sata = virtual_bus(json!({ "transport": "sata", "size": 2 << 20 }));
    let done = verb(&mut w, "attach", "ahcich0", sata).unwrap();
    assert_eq!(done["message"], "scbus1: ada0");
    w
}

#[test]
fn verbs_print_as_camcontrol_does() {
    let mut w = attached();
    let list = verb(&mut w, "devlist", "", json!({ "verbose": true })).unwrap();
    let want = "\
scbus0 on mps0 bus 0:
<ASHLAR virtual disk 1>            at scbus0 target 0 lun 0 (pass0,da0)
<ASHLAR virtual disk 1>            at scbus0 target 1 lun 0 (pass1,da1)
<>                                 at scbus0 target -1 lun -1 ()
scbus1 on ahcich0 bus 0:
<virtual disk 1>                   at scbus1 target 0 lun 0 (ada0,pass2)
<>                                 at scbus1 target -1 lun -1 ()
";
    assert_eq!(list["text"], want);
    assert_eq!(list["buses"][1]["devices"][0]["periph"], "ada0");
    assert_eq!(text(&mut w, "devlist", "").lines().count(), 3);
    let want = "\
pass0: <ASHLAR virtual disk 1> Fixed Direct Access SPC-4 SCSI device
pass0: Serial Number mps0-0
pass0: 600.000MB/s transfers, Command Queueing Enabled
";
    assert_eq!(text(&mut w, "inquiry", "da0"), want);
    assert_eq!(text(&mut w, "readcap", "da0"), "Last Block: 2047, Block Length: 512 bytes\n");
    assert_eq!(text(&mut w, "readcap", "ada0"), "Last Block: 4095, Block Length: 512 bytes\n");
    assert_eq!(text(&mut w, "reportluns", "da1"), "1 LUN found\n0\n");
    for (name, on, params, want) in [
        ("inquiry", "0:0", json!({ "serial": true }), "mps0-0\n"),
        (
            "inquiry",
            "0:1:0",
            json!({ "rate": true }),
            "pass1: 600.000MB/s transfers, Command Queueing Enabled\n",
        ),
        (
            "inquiry",
            "da0",
            json!({ "serial": true, "standard": true }),
            "pass0: <ASHLAR virtual disk 1> Fixed Direct Access SPC-4 SCSI device\n\
             pass0: Serial Number mps0-0\n",
        ),
        (
            "readcap",
            "1:0",
            json!({ "human": true }),
            "Device Size: 2.0 M, Block Length: 512 bytes\n",
        ),
        ("reportluns", "da1", json!({ "count": true }), "1 LUN found\n"),
        ("reportluns", "da1", json!({ "luns": true, "report": "all" }), "0\n"),
        ("reportluns", "da1", json!({ "report": "wellknown" }), "0 LUN found\n"),
    ] {
        assert_eq!(verb(&mut w, name, on, params).unwrap()["text"], want, "{name} {on}");
    }
    for (name, on, params, word) in [
        ("inquiry", "0:7:0", json!({}), "no device 0:7:0"),
        ("inquiry", "0", json!({}), "no device 0 "),
        ("readcap", "da0", json!({ "block": true, "size": true }), "-b and -s"),
        ("reportluns", "da0", json!({ "count": true, "luns": true }), "-c and -l"),
        ("reportluns", "ada0", json!({}), "speaks ATA"),
    ] {
        let what = verb(&mut w, name, on, params).unwrap_err().message;
        assert!(what.contains(word), "{what}");
    }
    let output = text(&mut w, "identify", "ada0");
    for line in [
        "pass2: <virtual disk 1> ATA device",
        "pass2: 300.000MB/s transfers, Command Queueing Enabled",
        "device model          virtual disk",
        "LBA48 supported       4096 sectors",
        "media RPM             non-rotating",
        "write cache                  yes      yes",
        "Native Command Queuing (NCQ) yes      yes       32 tags",
    ] {
        assert!(output.lines().any(|l| l == line), "{line} is not in\n{output}");
    }
}

#[test]
fn buses_can_be_listed_and_rescanned_singly_or_all() {
    let mut w = attached();
    let list = verb(&mut w, "devlist", "", json!({ "buses": true })).unwrap();
    assert_eq!(list["text"], "scbus0 on mps0 bus 0\nscbus1 on ahcich0 bus 0\n");
    let done = verb(&mut w, "rescan", "", json!({ "buses": ["all"] })).unwrap();
    let both = "Re-scan of bus 0 was successful\nRe-scan of bus 1 was successful";
    assert_eq!(done["message"], both);
    let one = verb(&mut w, "rescan", "", json!({ "buses": ["1"] })).unwrap();
    assert_eq!(one["message"], "Re-scan of bus 1 was successful");
    let places = json!({ "buses": ["0:1:0", "1:0"] });
    let places = verb(&mut w, "rescan", "", places).unwrap();
    let both = "Re-scan of 0:1:0 was successful\nRe-scan of 1:0 was successful";
    assert_eq!(places["message"], both);
    let e = verb(&mut w, "rescan", "", json!({ "buses": ["0:1:0:0"] })).unwrap_err();
    assert!(e.message.contains("no bus 0:1:0:0"), "{e}");
    let e = verb(&mut w, "rescan", "", json!({ "buses": ["7"] })).unwrap_err();
    assert!(e.kind == Errno::NoEnt && e.message.contains("devlist -b"), "{e}");
    let mut tags = |params: Value| {
        let output = verb(&mut w, "tags", "da0", params).unwrap();
        output["text"].as_str().unwrap().to_owned()
    };
    let place = "(pass0:mps0:0:0:0): ";
    assert_eq!(tags(json!({})), format!("{place}device openings: 64\n"));
    assert_eq!(tags(json!({ "quiet": true })), "64\n");
    let set = format!("{place}tagged openings now 9\n{place}device openings: 9\n");
    assert_eq!(tags(json!({ "number": 9 })), set);
    let tags = tags(json!({ "verbose": true }));
    assert!(tags.starts_with("(pass0:mps0:0:0:0): dev_openings  9\n"), "{tags}");
    let names: Vec<&str> = tags
        .lines()
        .map(|line| line.strip_prefix(place).and_then(|l| l.split_whitespace().next()).unwrap())
        .collect();
    let want = ["dev_openings", "dev_active", "allocated", "queued"];
    assert_eq!((&names[..4], &names[4..]), (&want[..], &["held", "mintags", "maxtags"][..]));
}

#[test]
fn reset_messages_are_those_of_camcontrol() {
    let mut w = attached();
    let output =
        |w: &mut World, on: &str| verb(w, "reset", on, json!({})).map(|v| v["message"].clone());
    for (on, what) in [
        ("da1", "0:1:0"),
        ("pass1", "0:1:0"),
        ("0:1:0", "0:1:0"),
        ("0:1", "0:1"),
        ("0", "bus 0"),
        ("all", "all buses"),
    ] {
        assert_eq!(output(&mut w, on).unwrap(), format!("Reset of {what} was successful"), "{on}");
    }
    for (on, why) in [("7", "devlist -v"), ("0:9:0", "devlist -v"), ("0:1:0:0", "devlist")] {
        let e = output(&mut w, on).unwrap_err();
        assert!(e.kind == Errno::NoEnt && e.message.contains(why), "{on}: {e}");
    }
    let e = verb(&mut w, "reset", "0", json!({ "port": 1 })).unwrap_err();
    assert!(e.message.starts_with("port: 0 is no multiplier"), "{e}");
    // Each unit's freeze is back.
    w.turn(1_000_000_000);
    for (unit, ..) in w.cam.buses()[0].devices() {
        let (made, released) = unit.inspect(|device| device.freezes());
        assert!(made == released && made > 0, "{made} {released}");
    }
}

#[test]
fn tags_set_the_openings_and_a_reset_fails_no_request() {
    let mut w = attached();
    let set = verb(&mut w, "tags", "da0", json!({ "number": 3 })).unwrap();
    assert_eq!((&set["openings"], &set["max"]), (&json!(3), &json!(3)));
    let edge = w.open("da0").1;
    for n in 0..20 {
        let data = w.buffer(512);
        w.start(edge, n, |bio| world::range(bio, bio::Op::Read, 0, data));
    }
    assert_eq!(verb(&mut w, "tags", "da0", json!({})).unwrap()["active"], 3);
    let done = verb(&mut w, "reset", "da0", json!({})).unwrap();
    assert_eq!(done["message"], "Reset of 0:0:0 was successful");
    let mut ended = w.ended();
    while ended.len() < 20 {
        w.turn(1_000_000);
        ended.extend(w.ended());
    }
    assert!(ended.iter().all(|e| e.status.is_ok()));
}

/// O1 of verbs/verb_jobs.rs.
#[test]
fn a_hanging_disk_delays_only_its_own_verbs() {
    let mut w = attached();
    verb(&mut w, "fault", "da0", json!({ "hangs": 100 })).unwrap();
    let ready = |timeout: u64| json!({ "cdb": "0 0 0 0 0 0", "timeout": timeout });
    let begun = w.control.now_ns();
    let first = verb(&mut w, "cmd", "da0", ready(60_000)).unwrap();
    let again = first["unfinished"]["again"].clone();
    assert_eq!(again["name"], "da0", "{first}");
    let inquiry = json!({ "cdb": "12 0 0 0 24 0", "receive": 36 });
    assert!(verb(&mut w, "cmd", "da1", inquiry).unwrap()["data"].is_string());
    assert!(w.control.now_ns() - begun < 1_000_000_000, "da1 waited for da0");
    // Its own timeout ends it, which is longer than the control thread's limit for a conversation.
    let mut answer = Ok(first);
    while answer.as_ref().is_ok_and(|answer| answer.get("unfinished").is_some()) {
        w.turn(1_000_000_000);
        answer = verb(&mut w, "cmd", "da0", again.clone());
    }
    let (e, took) = (answer.unwrap_err(), w.control.now_ns() - begun);
    assert_eq!(e.kind, Errno::TimedOut, "{e}");
    assert!((60_000_000_000..70_000_000_000).contains(&took), "{took} ns");
    let e = verb(&mut w, "cmd", "da0", again).unwrap_err();
    assert_eq!(e.kind, Errno::Canceled, "an answer is fetched once: {e}");
}

/// O1 of verbs/verb_jobs.rs, O3 of verbs/verb_jobs.rs.
#[test]
fn verbs_for_silent_devices_do_not_delay_other_verbs() {
    let mut w = World::new(1, &[]);
    let shelf = virtual_bus(json!({ "disks": 2, "size": 1 << 20, "enclosure": 21 }));
    verb(&mut w, "attach", "mps0", shelf).unwrap();
    for silent in ["da0", "mps0:21"] {
        verb(&mut w, "fault", silent, json!({ "hangs": 100 })).unwrap();
    }
    let begun = w.control.now_ns();
    let answers = [
        ("modepage", "da0", json!({ "page": "8" })),
        ("defects", "da0", json!({})),
        ("cmd", "da0", json!({ "cdb": "0 0 0 0 0 0" })),
        ("enclosure", "ses0", json!({})),
        ("locate", "ses0", json!({ "element": 0 })),
        ("locate", "da1", json!({})),
    ]
    .map(|(name, on, params)| {
        let answer = verb(&mut w, name, on, params).unwrap();
        let again = answer["unfinished"]["again"].clone();
        assert_eq!(again["name"], on, "{name}: {answer}");
        (name, on, again)
    });
    let page = w.verb("modepage", "da1", &json!({ "page": "8" })).unwrap();
    assert!(page["fields"]["WCE"].is_number(), "{page}");
    assert!(w.control.now_ns() - begun < 1_000_000_000, "da1 waited for the others");
    let e = verb(&mut w, "defects", "da1", answers[1].2.clone()).unwrap_err();
    assert_eq!(e.kind, Errno::Canceled, "an answer is whose it is: {e}");
    for (name, on, again) in answers {
        let e = w.verb(name, on, &again).unwrap_err();
        assert!(e.message.contains("timed out"), "{name} {on}: {e}");
    }
}

/// O2 of verbs/verb_jobs.rs.
#[test]
fn unfetched_answers_expire_but_hanging_verbs_keep_their_place() {
    let mut w = attached();
    verb(&mut w, "fault", "da0", json!({ "hangs": 100 })).unwrap();
    let ready = json!({ "cdb": "0 0 0 0 0 0", "timeout": 5_000 });
    for _ in 0..64 {
        let answer = verb(&mut w, "cmd", "da0", ready.clone()).unwrap();
        assert!(answer.get("unfinished").is_some(), "{answer}");
    }
    let e = verb(&mut w, "cmd", "da1", ready.clone()).unwrap_err();
    assert!(e.kind == Errno::Busy && e.message.contains("cam reset"), "{e}");
    w.turn(600_000_000_000);
    verb(&mut w, "cmd", "da1", ready).unwrap();
}

#[test]
fn invalid_requests_are_refused_with_a_hint() {
    let mut w = attached();
    let mut refused = |name: &str, on: &str, params: Value| {
        let e = verb(&mut w, name, on, params).unwrap_err();
        (e.kind, e.message)
    };
    for (name, on, params, kind, word) in [
        ("inquiry", "da9", json!({}), Errno::NoEnt, "devlist"),
        ("inquiry", "", json!({}), Errno::Inval, "`name`"),
        ("identify", "da0", json!({}), Errno::NotSup, "inquiry"),
        ("reportluns", "ada0", json!({}), Errno::NotSup, "ATA"),
        ("tags", "da0", json!({ "number": 0 }), Errno::Inval, "number"),
        ("tags", "da0", json!({ "number": 256 }), Errno::Inval, "number"),
        ("rescan", "", json!({ "buses": ["7"] }), Errno::NoEnt, "devlist"),
        ("attach", "mps0", virtual_bus(json!({})), Errno::Exist, "another name"),
        ("attach", "mps1", json!({ "kind": "mps" }), Errno::NoEnt, "virtual"),
        ("attach", "mps1", virtual_bus(json!({ "size": 1000 })), Errno::Inval, "size"),
        ("detach", "mps9", json!({}), Errno::NoEnt, "devlist"),
        ("eject", "da0", json!({}), Errno::NotSup, "devlist"),
    ] {
        let (found, what) = refused(name, on, params);
        assert!(found == kind && what.contains(word), "{name} {on}: {found} {what}");
    }
}

#[test]
fn an_hba_can_be_detached_only_when_its_disks_are_unused() {
    let mut w = attached();
    let (user, edge) = w.open("da1");
    let e = verb(&mut w, "detach", "mps0", json!({})).unwrap_err();
    assert!(e.kind == Errno::Busy && e.message.contains("da1"));
    assert_eq!(w.write(edge, 0, &[1; 512], Flags::NONE), Ok(()));
    w.control
        .call(|t| {
            t.leave(user);
            Ok(())
        })
        .unwrap();
    verb(&mut w, "detach", "mps0", json!({})).unwrap();
    assert!(w.control.topology.find("da0").is_none());
    assert_eq!(
        verb(&mut w, "devlist", "", json!({})).unwrap()["buses"].as_array().unwrap().len(),
        1
    );
    assert_eq!(
        verb(&mut w, "rescan", "", json!({})).unwrap()["message"],
        "Re-scan of bus 1 was successful"
    );
    let done = verb(&mut w, "attach", "mps0", virtual_bus(json!({}))).unwrap();
    assert_eq!(done["message"], "scbus0: da0", "number and name are free again");
}

#[test]
fn the_fault_verb_sets_and_clears_faults() {
    let mut w = attached();
    let all = text(&mut w, "fault", "da0");
    assert!(all.starts_with("da0: fails    0 of 100\nda0: lies     0 of 100\n"), "{all}");
    let (_, edge) = w.open("da0");
    let write = |w: &mut World| w.write(edge, 0, &[7; 512], Flags::default());
    assert_eq!(write(&mut w), Ok(()));
    let output = verb(&mut w, "fault", "da0", json!({ "fails": 100 })).unwrap();
    assert_eq!((&output["fails"], &output["hangs"]), (&json!(100), &json!(0)));
    assert!(write(&mut w).is_err() && write(&mut w).is_err(), "it stays");
    verb(&mut w, "fault", "da0", json!({ "clear": true, "stop": true, "full": 5 })).unwrap();
    assert_eq!(write(&mut w), Ok(()), "it is started again");
    verb(&mut w, "fault", "mps0:0", json!({ "cut_power": true })).unwrap();
    assert_eq!(w.read(edge, 0, 512).map(|bytes| bytes.len()), Ok(512));
    verb(&mut w, "fault", "da0", json!({ "pull": true })).unwrap();
    assert_eq!(write(&mut w), Err(Errno::NxIo), "nobody answers");
    verb(&mut w, "fault", "mps0:0", json!({ "push": true })).unwrap();
    for (on, params, word) in [
        ("da1", json!({ "fails": 101 }), "0 to 100"),
        ("mps0:9", json!({}), "no disk at"),
        ("mps9:0", json!({}), "BUS:TARGET"),
        ("mps0:0", json!({ "pull": true, "push": true }), "not both"),
    ] {
        let e = verb(&mut w, "fault", on, params).unwrap_err();
        assert!(e.message.contains(word), "{on}: {}", e.message);
    }
}

#[test]
fn the_fault_verb_sets_bad_blocks_and_forged_answers() {
    let mut w = attached();
    for disk in ["da0", "ada0"] {
        let edge = w.open(disk).1;
        assert_eq!(w.write(edge, 0, &[7; 4096], Flags::NONE), Ok(()));
        verb(&mut w, "fault", disk, json!({ "bad": "2+3" })).unwrap();
        for (block, is_bad) in [(1, false), (2, true), (4, true), (5, false)] {
            assert_eq!(w.read(edge, block * 512, 512).is_err(), is_bad, "{disk} {block}");
        }
        assert_eq!(w.write(edge, 2 * 512, &[8; 3 * 512], Flags::NONE), Ok(()));
        assert_eq!(w.read(edge, 2 * 512, 512), Ok(vec![8; 512]), "what is written is good");
        verb(&mut w, "fault", disk, json!({ "bad": "7" })).unwrap();
        assert!(w.read(edge, 7 * 512, 512).is_err());
        verb(&mut w, "fault", disk, json!({ "clear": true })).unwrap();
        assert_eq!(w.read(edge, 7 * 512, 512), Ok(vec![7; 512]));
    }
    let inquiry = json!({ "cdb": "12 0 0 0 24 0", "receive": 36 });
    let own = verb(&mut w, "cmd", "da0", inquiry.clone()).unwrap()["data"].clone();
    verb(&mut w, "fault", "da0", json!({ "forge": "12/83=ff" })).unwrap();
    assert_eq!(verb(&mut w, "cmd", "da0", inquiry.clone()).unwrap()["data"], own, "a page alone");
    verb(&mut w, "fault", "da0", json!({ "forge": "12=00,01,0a fe" })).unwrap();
    let forged = verb(&mut w, "cmd", "da0", inquiry.clone()).unwrap();
    assert_eq!(&forged["data"].as_str().unwrap()[..8], "00010afe", "{forged}");
    verb(&mut w, "fault", "da0", json!({ "clear": true })).unwrap();
    assert_eq!(verb(&mut w, "cmd", "da0", inquiry).unwrap()["data"], own);
    for (params, word) in [
        (json!({ "bad": "2048" }), "2048 blocks"),
        (json!({ "bad": "2047+2" }), "2048 blocks"),
        (json!({ "bad": "1+0" }), "FIRST+NUMBER"),
        (json!({ "bad": "x" }), "FIRST+NUMBER"),
        (json!({ "bad": "99999999999999999999" }), "FIRST+NUMBER"),
        (json!({ "forge": "123=00" }), "hexadecimal"),
        (json!({ "forge": "12/x=00" }), "hexadecimal"),
        (json!({ "forge": "12=0,zz" }), "hexadecimal"),
        (json!({ "forge": "" }), "hexadecimal"),
    ] {
        let e = verb(&mut w, "fault", "da0", params.clone()).unwrap_err();
        assert!(e.message.contains(word), "{params}: {}", e.message);
    }
}

#[test]
fn a_virtual_bus_can_have_optical_drives() {
    let mut w = World::new(1, &[]);
    let params = json!({ "disks": 1, "size": 1 << 20, "drives": 2, "enclosure": 3 });
    let done = verb(&mut w, "attach", "mps0", virtual_bus(params)).unwrap();
    assert_eq!(done["found"], json!(["da0", "cd0", "cd1"]));
    assert_eq!(text(&mut w, "readcap", "cd1"), "Last Block: 511, Block Length: 2048 bytes\n");
    for (params, word) in [
        (json!({ "drives": 1, "transport": "sata" }), "SAS"),
        (json!({ "drives": 1, "size": 512 }), "2048"),
        (json!({ "drives": 2, "enclosure": 2 }), "from 3"),
    ] {
        let e = verb(&mut w, "attach", "mps1", virtual_bus(params.clone())).unwrap_err();
        assert!(e.message.contains(word), "{params}: {}", e.message);
    }
}
