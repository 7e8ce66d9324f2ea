//! The verbs pass, modepage, defects and cmd: their output, their changes, their refusals, and that
//! they do not disturb other use of the disk.

use std::sync::Arc;

use bio::{Errno, Op};
use cam::sims::hba::{DiskSpec, Faults, Transport, VirtualHba};
use serde_json::{Value, json};

use crate::world::{World, range};

fn disk(transport: Transport, spec: DiskSpec) -> (World, Arc<VirtualHba>) {
    let hba = VirtualHba::new("hba0", transport, 1);
    hba.plug(0, spec, 7).unwrap();
    let mut w = World::new(7, std::slice::from_ref(&hba));
    w.scan(0);
    (w, hba)
}

fn sas() -> (World, Arc<VirtualHba>) {
    let defects = (vec![7, 130], vec![1 << 33]);
    disk(Transport::Sas, DiskSpec { defects, ..DiskSpec::default() })
}

fn verb(w: &mut World, verb: &str, params: Value) -> Result<Value, geom::Error> {
    let name = w.buses[0].devices()[0].2.clone();
    w.verb(verb, &name, &params)
}

fn text(w: &mut World, name: &str, params: Value) -> String {
    verb(w, name, params).unwrap()["text"].as_str().unwrap().to_string()
}

fn refused(w: &mut World, name: &str, params: Value) -> String {
    verb(w, name, params).unwrap_err().message
}

#[test]
fn mode_pages_are_shown_and_changed() {
    let (mut w, hba) = sas();
    let page = text(&mut w, "modepage", json!({ "page": "8" }));
    assert!(page.starts_with("IC:  0 \nABPF:  0 \nCAP:  0 \n"), "{page}");
    assert!(page.contains("\nWCE:  1 \n"), "{page}");
    let bytes = text(&mut w, "modepage", json!({ "page": "8", "bytes": true, "values": "2" }));
    assert!(bytes.starts_with("00000000  88 12 "), "{bytes}");
    let all = text(&mut w, "modepage", json!({ "list": true }));
    assert!(all.contains("0x08,0x00\tCaching Page\n"), "{all}");
    assert!(all.contains("0x0a,0x00\tControl Mode Page\n"), "{all}");
    let off = json!({ "page": "0x08,0", "fields": ["wce=0"] });
    assert_eq!(verb(&mut w, "modepage", off.clone()).unwrap()["fields"]["WCE"], 0);
    let saved = json!({ "page": "8", "values": "saved" });
    assert_eq!(verb(&mut w, "modepage", saved.clone()).unwrap()["fields"]["WCE"], 1);
    hba.power_cut(0);
    let now = json!({ "page": "8" });
    assert_eq!(verb(&mut w, "modepage", now.clone()).unwrap()["fields"]["WCE"], 1, "not saved");
    let keep = json!({ "page": "8", "fields": ["WCE=0"], "save": true });
    verb(&mut w, "modepage", keep).unwrap();
    hba.power_cut(0);
    assert_eq!(verb(&mut w, "modepage", now).unwrap()["fields"]["WCE"], 0, "saved");
    for (params, word) in [
        (json!({}), "-m 8"),
        (json!({ "page": "x" }), "0x1c,2"),
        (json!({ "page": "0x3f" }), "below 0x3f"),
        (json!({ "page": "8", "fields": ["WCE"] }), "NAME=VALUE"),
        (json!({ "page": "8", "fields": ["WXE=0"] }), "known are: IC"),
        (json!({ "page": "8", "fields": ["WCE=2"] }), "up to 1"),
        (json!({ "page": "8", "fields": ["RCD=1"] }), "changeable"),
        (json!({ "page": "8", "fields": ["WCE=1"], "values": "default" }), "leave -P out"),
        (json!({ "page": "0x33" }), "INVALID FIELD IN CDB"),
    ] {
        let what = refused(&mut w, "modepage", params.clone());
        assert!(what.contains(word), "{params}: {what}");
    }
}

#[test]
fn defects_are_listed_in_every_format() {
    let (mut w, _) = sas();
    let all = text(&mut w, "defects", json!({}));
    assert_eq!(all, "Got 3 defects:\n7\n130\n8589934592\n");
    assert_eq!(text(&mut w, "defects", json!({ "grown": true })), "Got 1 defect:\n8589934592\n");
    let places = text(&mut w, "defects", json!({ "primary": true, "format": "phys" }));
    assert_eq!(places, "Got 2 defects:\n0:0:7\n2:0:2\n");
    for (params, want) in [
        (json!({ "summary": true }), "Got 3 defects.\n"),
        (json!({ "summary": true, "quiet": true }), "3\n"),
        (json!({ "hex": true }), "Got 3 defects:\n0x7\n0x82\n0x200000000\n"),
        (json!({ "offset": 1 }), "Got 2 defects:\n130\n8589934592\n"),
        (json!({ "offset": 3 }), "Got 0 defects.\n"),
    ] {
        assert_eq!(text(&mut w, "defects", params.clone()), want, "{params}");
    }
    assert!(refused(&mut w, "defects", json!({ "offset": 1u64 << 32 })).contains("4294967295"));
    let (mut w, _) = disk(Transport::Sas, DiskSpec::default());
    assert_eq!(text(&mut w, "defects", json!({})), "Got 0 defects.\n");
}

/// N1 of periph/pass.rs.
#[test]
fn raw_commands_obey_the_queueing_rules_of_the_disk() {
    for transport in [Transport::Sas, Transport::Sata] {
        let (mut w, hba) = disk(transport, DiskSpec { depth: 1, ..DiskSpec::default() });
        let name = w.buses[0].devices()[0].2.clone();
        let edge = w.open(&name).1;
        let ask = match transport {
            Transport::Sas => json!({ "cdb": "12 0 0 0 24 0", "receive": 36 }),
            Transport::Sata => json!({ "ata": "ec 0 0 0 0 0 0 0 0 0 1 0", "receive": 512 }),
        };
        let mut ended = 0;
        for round in 0..20 {
            for tag in 0..5 {
                let data = w.buffer(512);
                w.start(edge, round * 5 + tag, |bio| range(bio, Op::Read, tag * 512, data));
            }
            let answer = verb(&mut w, "cmd", ask.clone()).unwrap();
            assert_eq!(answer["moved"], if transport == Transport::Sas { 36 } else { 512 });
            ended += w.ended().into_iter().inspect(|e| assert!(e.status.is_ok())).count();
        }
        while ended < 100 {
            w.turn(10_000_000);
            ended += w.ended().into_iter().inspect(|e| assert!(e.status.is_ok())).count();
        }
        assert_eq!(hba.overlaps(0), 0, "N1, {transport:?}");
        let unit = w.buses[0].devices()[0].0.clone();
        let (made, released) = unit.inspect(|device| device.freezes());
        assert_eq!((made, unit.inspect(|device| device.live())), (released, 0));
    }
}

#[test]
fn raw_commands_are_parsed_and_printed_as_by_camcontrol() {
    let (mut w, _hba) = sas();
    let ask = |words: Value, verbose: bool| {
        json!({
            "cdb": "{INQUIRY} 12 0:b7 {EVPD} v:b1 v:i1 v:i2 0", "receive": 36, "args": words,
            "verbose": verbose,
        })
    };
    let answer = verb(&mut w, "cmd", ask(json!(["0", "0", "36", "s8 z8 z16 z4"]), false)).unwrap();
    assert_eq!(answer["text"], "ASHLAR virtual disk 1\n");
    let format = "*b3 {type} b5 s4 {length} i1 s8 {vendor} z8";
    let answer = verb(&mut w, "cmd", ask(json!(["0", "0", "36", format]), true)).unwrap();
    let length = answer["data"].as_str().and_then(|hex| u8::from_str_radix(&hex[8..10], 16).ok());
    let want = format!("type: 0\nlength: {}\nvendor: ASHLAR\n", length.unwrap());
    assert_eq!(answer["text"].as_str(), Some(want.as_str()));
    assert_eq!(answer["fields"][2], json!({ "name": "vendor", "value": "ASHLAR" }));
    // The device sends less than the format shows.
    let what = refused(&mut w, "cmd", ask(json!(["0", "0", "8", "s8 z8"]), false));
    assert!(what.contains("z8: only 8 bytes were received"), "{what}");
    let what = refused(&mut w, "cmd", ask(json!(["0", "0"]), false));
    assert!(what.contains("no value is left"), "{what}");
}

/// N2 of periph/pass.rs, N3 of periph/pass.rs.
#[test]
fn a_failed_raw_command_is_reported_and_leaves_no_freeze() {
    let (mut w, hba) = sas();
    let bad = json!({ "cdb": "fe 0 0 0 0 0" });
    let what = refused(&mut w, "cmd", bad);
    assert!(what.contains("INVALID COMMAND OPERATION CODE (5/20/00)"), "{what}");
    assert!(
        refused(&mut w, "cmd", json!({ "cdb": "0 0 0 0 0 0", "timeout": 0 })).contains("86400000")
    );
    let much = json!({ "cdb": "12 0 0 0 24 0", "receive": 2 << 20 });
    assert!(refused(&mut w, "cmd", much).contains("1048576"));
    let unit = w.buses[0].devices()[0].0.clone();
    let before = unit.inspect(|device| (device.freezes(), device.counts().retries));
    hba.resize(0, 2 << 30);
    let what = refused(&mut w, "cmd", json!({ "cdb": "0 0 0 0 0 0" }));
    assert!(what.contains("CAPACITY DATA HAS CHANGED"), "N2: it is not retried: {what}");
    let ((made, _), retries) = unit.inspect(|device| (device.freezes(), device.counts().retries));
    assert_eq!((made - 1, retries), (before.0.0, before.1), "D11: one for the check alone");
    hba.stop(0);
    assert!(refused(&mut w, "cmd", json!({ "cdb": "0 0 0 0 0 0" })).contains("(2/04/02)"));
    let helped = json!({ "cdb": "0 0 0 0 0 0", "recover": true });
    assert!(verb(&mut w, "cmd", helped).is_ok(), "it is started");
    hba.set_faults(0, Faults { hangs: 100, ..Faults::default() });
    let e = verb(&mut w, "cmd", json!({ "cdb": "0 0 0 0 0 0", "timeout": 100 })).unwrap_err();
    assert!(e.kind == Errno::TimedOut && e.message.contains("timed out"), "{}", e.message);
}

#[test]
fn malformed_answers_are_reported() {
    let (mut w, hba) = sas();
    for (command, bytes, name, params, word) in [
        (0x5a, &[0, 40, 0, 0, 0, 0, 0, 90][..], "modepage", json!({ "page": "8" }), "block desc"),
        (0x5a, &[0, 6, 0, 0, 0, 0, 0, 0][..], "modepage", json!({ "page": "8" }), "no page 0x08"),
        (0x5a, &[][..], "modepage", json!({ "list": true }), "MODE DATA LENGTH"),
        (0xb7, &[0, 2, 0, 0, 0, 0, 0, 0][..], "defects", json!({}), "DEFECT LIST FORMAT"),
        (0xb7, &[0, 3, 0, 0, 0, 0, 0, 7][..], "defects", json!({}), "DEFECT LIST LENGTH"),
    ] {
        hba.forge(0, command, None, bytes);
        let what = refused(&mut w, name, params);
        assert!(what.contains(word), "{what}");
    }
    // More entries than the answer has: the received ones are shown, with the number of the rest.
    hba.forge(0, 0xb7, None, &[0, 3, 0, 0, 0xff, 0xff, 0xff, 0xf8, 0, 0, 0, 0, 0, 0, 0, 9]);
    let answer = text(&mut w, "defects", json!({}));
    assert_eq!(answer, "Got 536870911 defects:\n9\n... and 536870910 more, from -S 1 on\n");
    let (mut w, _) = disk(Transport::Sata, DiskSpec::default());
    assert!(refused(&mut w, "modepage", json!({ "page": "8" })).contains("identify"));
    assert!(refused(&mut w, "defects", json!({})).contains("identify"));
}
