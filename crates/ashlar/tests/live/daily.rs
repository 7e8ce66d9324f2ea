//! Commands of an administrator's ordinary days, against a running daemon.

use std::net::TcpListener;

use rig::peer;

use crate::fixture::load::Load;
use crate::fixture::{Fixture, IQN, QEMU, array, file_disk, text, tool};

const DISK_BYTES: u64 = 64 << 20;

fn names(values: &serde_json::Value) -> Vec<String> {
    array(values).iter().map(|v| text(&v["name"])).collect()
}

#[test]
fn configuration_is_planned_applied_and_reverted() {
    let mut fixture = Fixture::new("apply").with_disk(DISK_BYTES);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    let before = fixture.ok(&["export"]);

    fixture.image("d1.img", DISK_BYTES);
    let disks = [file_disk("d0", "d0.img"), file_disk("d1", "d1.img")].concat();
    fixture.configure(&disks, "0 = \"d0\", 4 = { provider = \"d1\", mode = \"ro\" }");
    fixture.ashlar(&["plan"]).ends(6).prints(&["create disk d1", "safe", "ashlar apply"]);
    let plan = fixture.ashlar(&["plan", "--json"]).ends(6).json();
    assert_eq!(array(&plan["steps"]).len(), 2, "{plan:#}");
    fixture.ashlar(&["apply", "--dry-run"]).ends(0).prints(&["would be done"]);
    assert_eq!(fixture.ok(&["export"]), before, "a dry run changed something");
    let stale = (plan["generation"].as_u64().unwrap() + 1).to_string();
    fixture.ashlar(&["apply", "--if-generation", &stale]).ends(1).complains(&["ASH-0031"]);
    fixture.ashlar(&["apply"]).ends(0).prints(&["create disk d1", "done"]);
    fixture.ashlar(&["plan"]).ends(0);
    assert_eq!(names(&fixture.state()["disks"]), ["d0", "d1"]);
    assert!(peer::iscsi_inq(&fixture.url(4), None).unwrap().contains("DIRECT_ACCESS"));

    // The running configuration can be exported and applied again.
    let after = fixture.ok(&["export"]);
    fixture.write("exported.toml", &after);
    fixture.ashlar(&["plan", fixture.path("exported.toml").to_str().unwrap()]).ends(0);
    fixture.ashlar(&["undo"]).ends(0).prints(&["remove disk d1"]);
    assert_eq!(fixture.ok(&["export"]), before);
    assert!(peer::iscsi_inq(&fixture.url(4), None).is_err(), "LUN 4 is still there");
    fixture.ashlar(&["undo"]).ends(0);
    assert_eq!(fixture.ok(&["export"]), after);
    let history = fixture.json(&["history"]);
    assert!(array(&history["applied"]).len() >= 4, "{history:#}");
    assert!(fixture.path("d1.img").exists(), "removing a disk destroys nothing");
    fixture.stop();
}

#[test]
fn a_wrong_configuration_changes_nothing() {
    let mut fixture = Fixture::new("wrong").with_disk(DISK_BYTES);
    let (before, good) = (fixture.ok(&["export"]), file_disk("d0", "d0.img"));
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    let same = |fixture: &Fixture| {
        assert_eq!(fixture.ok(&["export"]), before);
        let state = fixture.state();
        assert_eq!(
            (names(&state["disks"]), names(&state["targets"])),
            (vec!["d0".to_owned()], vec![IQN.to_owned()])
        );
    };

    // An unknown key: the line, the place, the suggestion; all mistakes at once.
    let bad = format!("{good}\n[[disk]]\nname = \"d1\"\nkind = \"file\"\npaht = \"x\"\n[deamon]\n");
    fixture.configure(&bad, "0 = \"d0\"");
    for verb in ["plan", "apply"] {
        fixture.ashlar(&[verb]).ends(2).complains(&[
            "ashlar.toml:9:1",
            "unknown key `paht`",
            "did you mean `path`?",
            "did you mean `daemon`?",
            "paht = \"x\"",
        ]);
    }
    same(&fixture);
    // Messages that describe the problem.
    let wrong = |more: &str, luns: &str, code: i32, words: &[&str]| {
        fixture.configure(&format!("{good}{more}"), luns);
        fixture.ashlar(&["apply"]).ends(code).complains(words);
        same(&fixture);
    };
    wrong("[[disk]\n", "", 2, &["ASH-0010"]);
    wrong(&file_disk("d1", "none.img"), "0 = \"d0\"", 1, &["none.img", "no such file"]);
    wrong("", "0 = \"d0\", 1 = \"d9p1\"", 1, &["d9p1", "no such provider"]);
    wrong(&file_disk("d0", "d0.img"), "0 = \"d0\"", 2, &["d0"]);
    wrong(&file_disk("twin", "d0.img"), "0 = \"d0\"", 2, &["is the disk `d0` already"]);
    let overlap = format!(
        "[[access]]\ntarget = \"{IQN}\"\ngroup = \"more\"\ninitiators = [\"iqn.2026*\"]\n\
         luns = {{ 0 = \"d0\" }}\n"
    );
    wrong(&overlap, "0 = \"d0\"", 2, &["ASH-0014", "`more`", "both match"]);
    // An address of another process: nothing is done.
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = taken.local_addr().unwrap().port();
    fixture.image("d1.img", DISK_BYTES);
    let second = format!(
        "{}[[target]]\ndriver = \"iscsi\"\nname = \"{IQN}.second\"\n\
         listen = [\"127.0.0.1:{port}\"]\n",
        file_disk("d1", "d1.img")
    );
    wrong(&second, "0 = \"d0\", 1 = \"d1\"", 1, &["ASH-0032", &port.to_string()]);
    // The session was there all the time.
    println!("{} rounds", load.finish());
    fixture.stop();
}

#[test]
fn data_loss_requires_consent_by_name() {
    let mut fixture = Fixture::new("consent");
    let disk = |bytes: &str| {
        format!("[[disk]]\nname = \"scratch\"\nkind = \"memory\"\nsize = \"{bytes}\"\n")
    };
    fixture.configure(&disk("8MiB"), "0 = \"scratch\"");
    fixture.start();
    peer::qemu_io(&fixture.url(0), &["write -P 7 0 64k", "flush"]).unwrap();
    fixture.configure(&disk("16MiB"), "0 = \"scratch\"");
    fixture.ashlar(&["plan"]).ends(6).prints(&["destroys"]);
    fixture.ashlar(&["apply"]).ends(4).complains(&["--yes-destroy scratch"]);
    fixture.ashlar(&["apply", "--yes-destroy", "other"]).ends(4);
    peer::qemu_io(&fixture.url(0), &["read -P 7 0 64k"]).unwrap();
    fixture.ashlar(&["apply", "--yes-destroy", "scratch"]).ends(0);
    peer::qemu_io(&fixture.url(0), &["read -P 0 0 16M"]).unwrap();
    fixture.stop();
}

#[test]
fn partitions_change_while_one_of_them_is_in_use() {
    let mut fixture = Fixture::new("partitions");
    let image = fixture.image("d0.img", DISK_BYTES);
    fixture.configure(&file_disk("d0", "d0.img"), "");
    fixture.start();
    let part = |words: &[&str]| fixture.ashlar(&[&["part"], words].concat());
    part(&["create", "d0", "--scheme", "gpt"]).ends(0).prints(&["d0 created"]);
    let add = ["add", "d0", "--type", "linux-data", "--size", "16M", "--align", "1M"];
    part(&add).ends(0).prints(&["d0p1 added"]);
    fixture.configure(&file_disk("d0", "d0.img"), "0 = \"d0p1\"");
    fixture.ok(&["apply"]);
    let load = Load::start(&fixture.url(0), 16 << 20);

    part(&[&add[..], &["--label", "second"]].concat()).ends(0).prints(&["d0p2 added"]);
    part(&["show", "d0"]).ends(0).prints(&["d0", "GPT", "linux-data", "- free -"]);
    part(&["resize", "d0", "--index", "2", "--size", "24M"]).ends(0).prints(&["d0p2"]);
    part(&["modify", "d0", "--index", "2", "--label", "renamed"]).ends(0);
    let (_, second) = fixture.provider("d0p2").expect("the second partition");
    assert_eq!(second["size_bytes"].as_u64(), Some(24 << 20));
    assert!(fixture.provider("gpt/renamed").is_some(), "{}", fixture.ok(&["list", "providers"]));
    load.wait_for_rounds();
    // The one in use: neither deleted nor shrunk nor destroyed, with consent or without.
    let delete = ["delete", "d0", "--index", "1"];
    part(&delete).ends(1).complains(&["ASH-0022"]);
    let agreed = [&delete[..], &["--yes-destroy", "d0p1"]].concat();
    part(&agreed).ends(1).complains(&["ASH-0022", "tree --up"]);
    part(&["resize", "d0", "--index", "1", "--size", "8M"]).ends(1).complains(&["ASH-0022"]);
    part(&["destroy", "d0", "--force", "--yes-destroy", "d0"]).ends(1).complains(&["ASH-0022"]);
    part(&["create", "d0", "--scheme", "mbr", "--yes-destroy", "d0"]).ends(1);
    // The other one is deleted.
    part(&["delete", "d0", "--index", "2", "--yes-destroy", "d0p2"]).ends(0);
    assert!(fixture.provider("d0p2").is_none() && fixture.provider("gpt/renamed").is_none());
    part(&["delete", "d0", "--index", "9"]).ends(1).complains(&["ASH-0020", "part show"]);
    // The one in use grows under its initiator.
    part(&["resize", "d0", "--index", "1", "--size", "32M"]).ends(0);
    load.wait_for_rounds();
    println!("{} rounds", load.finish());
    peer::qemu_io(&fixture.url(0), &["write -P 9 30M 1M", "read -P 9 30M 1M"]).unwrap();
    fixture.stop();
    tool("sfdisk", &["--verify", image.to_str().unwrap()], "");
    tool("sgdisk", &["-v", image.to_str().unwrap()], "");
}

#[test]
fn sessions_access_and_load_are_listed() {
    let mut fixture = Fixture::new("looking").with_disk(DISK_BYTES);
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    let sessions = fixture.json(&["sessions"]);
    let live = array(&sessions["sessions"]);
    assert_eq!(live.len(), 1, "{sessions:#}");
    assert_eq!(live[0]["target"], IQN);
    let session = &live[0]["session"];
    assert!(text(&session["initiator"]).starts_with(QEMU), "{session:#}");
    assert_eq!((session["group"].as_str(), session["auth"].as_str()), (Some("all"), Some("none")));
    assert!(text(&session["address"]).starts_with("127.0.0.1:"), "{session:#}");
    assert!(session["stats"]["write"]["bytes"].as_u64() > Some(0), "{session:#}");
    fixture.ashlar(&["sessions"]).ends(0).prints(&[QEMU, IQN, "all"]);
    let uptime = || fixture.state()["daemon"]["uptime_ns"].as_u64().unwrap();
    let age = |sessions: &serde_json::Value| array(&sessions["sessions"])[0]["age_ns"].as_u64();
    let young = age(&sessions).unwrap();
    load.wait_for_rounds();
    let old = age(&fixture.json(&["sessions"])).unwrap();
    assert!(old > young && old < uptime(), "{young} {old}");
    fixture.ashlar(&["tree"]).ends(0).prints(&["d0", IQN, QEMU, "LUN 0"]);
    fixture.ashlar(&["tree", "--up", "d0"]).ends(0).prints(&[QEMU]);
    fixture.ashlar(&["tree", "--down", IQN]).ends(0).prints(&["d0"]);
    fixture.ashlar(&["access", "check", "iqn.any"]).ends(0).prints(&["all", "d0", "matches *"]);
    fixture.ashlar(&["access", "who", "d0"]).ends(0).prints(&[IQN, QEMU]);
    fixture.ashlar(&["list", "luns"]).ends(0).prints(&["d0", "rw", IQN]);
    fixture.ashlar(&["status"]).ends(0).prints(&["OK", "1 session"]);

    let top = fixture.json(&["top", "--batch", "--interval", "300ms"]);
    let row = array(&top["rates"]).iter().find(|r| r["name"] == "d0").expect("d0 is in it").clone();
    let busy = row.to_string();
    let text = fixture.ok(&["top", "-b", "--interval", "300ms", "--active"]);
    let line = text.lines().find(|l| l.ends_with("d0")).unwrap_or_else(|| panic!("{text}"));
    let ops: f64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(ops > 0.0, "{text}{busy}");
    fixture
        .ashlar(&["top", "-b", "-C", "--interval", "100ms", "--count", "2"])
        .ends(0)
        .prints(&["d0"]);
    println!("{} rounds; {line}", load.finish());
    let gone = || array(&fixture.json(&["sessions"])["sessions"]).is_empty();
    fixture.until("the session has gone", std::time::Duration::from_secs(5), gone);
    fixture.stop();
}

#[test]
fn layer_is_inserted_and_removed_while_an_initiator_writes() {
    let mut fixture = Fixture::new("insert").with_disk(DISK_BYTES);
    let load = Load::start(&fixture.url(0), DISK_BYTES);
    for round in 0..5 {
        fixture.ashlar(&["geom", "nop", "insert", "name=slow", "provider=d0"]).ends(0);
        load.wait_for_rounds();
        let slower =
            ["geom", "nop", "configure", "name=slow", "delay_ms=2", "write_delay_percent=100"];
        fixture.ashlar(&slower).ends(0);
        load.wait_for_rounds();
        let (class, slow) = fixture.provider("d0").expect("the layer has the disk's name");
        assert_eq!(class, "nop");
        assert_eq!(fixture.provider("slow").expect("and the disk the layer's").0, "disk");
        assert!(slow["w"].as_u64() >= Some(1), "nobody writes through it: {slow:#}");
        let state = fixture.state();
        let nop = array(&state["geoms"]).iter().find(|g| g["name"] == "slow").unwrap().clone();
        let writes: u64 = text(&nop["config"]["writes"]).parse().unwrap();
        assert!(writes >= 3, "round {round}: {writes} writes went through it");
        fixture.ashlar(&["plan"]).ends(0);
        fixture.ashlar(&["geom", "nop", "remove", "name=slow"]).ends(0);
        assert!(fixture.provider("slow").is_none());
        load.wait_for_rounds();
    }
    fixture.ashlar(&["geom", "nop", "insert", "name=x", "provider=none"]).ends(1);
    fixture.ashlar(&["geom", "nop", "remove", "name=none"]).ends(1).complains(&["ASH-0020"]);
    fixture.ashlar(&["geom", "nop", "insert", "provider=d0"]).ends(2).complains(&["name"]);
    let shorter = ["geom", "nop", "insert", "name=x", "provider=d0", "size=1MiB"];
    fixture.ashlar(&shorter).ends(2).complains(&["size"]);
    println!("{} rounds", load.finish());
    fixture.stop();
}

#[test]
fn inserted_scheduler_takes_the_disk_name_until_a_restart() {
    let mut fixture = Fixture::new("sched").with_disk(DISK_BYTES);
    let disk = file_disk("d0", "d0.img");
    let class = |fixture: &Fixture, name: &str| fixture.provider(name).map(|(class, _)| class);
    let identity = |fixture: &Fixture| peer::iscsi_inq(&fixture.url(0), Some(0x83)).unwrap();
    let before = identity(&fixture);
    let load = Load::start(&fixture.url(0), 32 << 20);
    fixture.ashlar(&["sched", "insert", "-a", "rr", "d0"]).ends(0).prints(&["d0.sched."]);
    load.wait_for_rounds();
    assert_eq!(class(&fixture, "d0").as_deref(), Some("sched"));
    assert_eq!(class(&fixture, "d0.sched.").as_deref(), Some("disk"));
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    println!("{} rounds", load.finish());

    // A user that opens the disk by its name from now on is above the scheduler.
    fixture.configure(&disk, "");
    fixture.ashlar(&["apply"]).ends(0);
    fixture.configure(&disk, "0 = \"d0\"");
    fixture.ashlar(&["apply"]).ends(0);
    assert!(fixture.provider("d0").expect("there").1["w"].as_u64() >= Some(1));
    assert_eq!(identity(&fixture), before, "it is the same unit to an initiator");
    peer::qemu_io(&fixture.url(0), &["write -P 0x42 40M 1M"]).unwrap();
    let state = fixture.state();
    let sched = array(&state["geoms"]).iter().find(|g| g["class"] == "sched").unwrap();
    let written: u64 = text(&sched["config"]["written bytes"]).parse().unwrap();
    assert!(written >= 1 << 20, "{written} bytes went through it: {sched:#}");

    // A provider that is absent at the next start cannot be configured.
    fixture.configure(&disk, "0 = \"d0\", 1 = \"d0.sched.\"");
    let refused = fixture.ashlar(&["apply"]).ends(1);
    refused.complains(&["d0.sched.", "inserted over d0", "Write `d0`"]);
    fixture.configure(&disk, "0 = \"d0\"");
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);

    fixture.stop();
    fixture.start();
    assert_eq!(class(&fixture, "d0").as_deref(), Some("disk"));
    assert_eq!(class(&fixture, "d0.sched."), None);
    fixture.ashlar(&["plan"]).ends(0).prints(&["no changes"]);
    assert_eq!(identity(&fixture), before);
    peer::qemu_io(&fixture.url(0), &["read -P 0x42 40M 1M"]).unwrap();
    for name in ["d0.sched.", "d0"] {
        fixture.ashlar(&["sched", "insert", "d0"]).ends(0);
        fixture.ashlar(&["sched", "destroy", name]).ends(0);
        assert_eq!(class(&fixture, "d0").as_deref(), Some("disk"), "{name}");
    }
    fixture.stop();
}

#[test]
fn stop_flushes_writes_and_a_restart_restores_the_same_state() {
    let mut fixture = Fixture::new("restart").with_disk(DISK_BYTES);
    let second = fixture.ashlar(&["serve"]).ends(1);
    second.complains(&["ASH-0041"]);
    // Nor is a portal shared with a daemon that has another socket and other disks.
    let rival = "[[disk]]\nname = \"n\"\nkind = \"null\"\nsize = \"1MiB\"\n\
                 [[target]]\ndriver = \"iscsi\"\nname = \"iqn.2026-11.test.ashlar:rival\"\n\
                 listen = [\"{portal}\"]\n";
    let file = fixture.write("rival.toml", rival);
    let (file, socket) = (file.to_str().unwrap(), fixture.path("rival.sock"));
    let rival = fixture.ashlar_at(&socket, &["serve", file]).ends(1);
    rival.complains(&["in use", &fixture.portal().to_string(), "ss -ltnp"]);
    fixture.ashlar(&["part", "create", "d0", "--scheme", "gpt"]).ends(1).complains(&["ASH-0022"]);
    let what = |fixture: &Fixture| {
        let state = fixture.state();
        let geoms: Vec<_> = array(&state["geoms"])
            .iter()
            .map(|g| (text(&g["class"]), text(&g["name"]), names(&g["providers"])))
            .collect();
        let targets: Vec<_> = array(&state["targets"])
            .iter()
            .map(|t| (text(&t["name"]), t["portals"].clone(), t["groups"].clone()))
            .collect();
        // How full they are is the file system's business, and others write to it meanwhile.
        let mut disks = state["disks"].clone();
        for disk in disks.as_array_mut().unwrap() {
            let disk = disk.as_object_mut().unwrap();
            disk.retain(|key, _| !["used_bytes", "free_bytes"].contains(&key.as_str()));
        }
        (disks, geoms, targets)
    };
    let before = what(&fixture);
    let identity = peer::iscsi_inq(&fixture.url(0), Some(0x83)).unwrap();
    // Written and never flushed by the initiator; SIGTERM arrives while another one writes.
    peer::qemu_io(&fixture.url(0), &["write -P 0x77 40M 4M"]).unwrap();
    let load = Load::start(&fixture.url(0), 32 << 20);
    fixture.stop();
    drop(load);
    fixture.ashlar(&["status"]).ends(5).complains(&["ASH-0040"]);
    let failed = fixture.ashlar(&["status", "--json"]).ends(5).json();
    assert_eq!(failed["error"]["kind"], "unreachable", "{failed:#}");
    let bytes = std::fs::read(fixture.path("d0.img")).unwrap();
    assert!(bytes[40 << 20..44 << 20].iter().all(|b| *b == 0x77), "an acknowledged write is lost");

    fixture.start();
    assert_eq!(what(&fixture), before);
    assert_eq!(peer::iscsi_inq(&fixture.url(0), Some(0x83)).unwrap(), identity);
    peer::qemu_io(&fixture.url(0), &["read -P 0x77 40M 4M"]).unwrap();
    // And after SIGKILL the stale socket is taken over.
    fixture.kill();
    assert!(fixture.path("ashlar.sock").exists());
    fixture.start();
    assert_eq!(what(&fixture), before);
    fixture.stop();
}

#[test]
fn verbs_print_json_and_help() {
    let mut fixture = Fixture::new("json").with_disk(DISK_BYTES);
    let part = |words: &str| -> Vec<String> { words.split(' ').map(str::to_owned).collect() };
    let lines = [
        "status",
        "tree",
        "list",
        "list providers",
        "sessions --denied",
        "journal",
        "plan",
        "history",
        "export",
        "part show",
        "access check iqn.x",
        "access who d0",
        "schema",
        "schema nop",
        "schema bus iscsi",
        "explain ASH-0020",
        "apply --dry-run",
        "top -b --interval 50ms",
    ];
    for line in lines {
        let words = part(line);
        let words: Vec<&str> = words.iter().map(String::as_str).chain(["--json"]).collect();
        let json = fixture.ashlar(&words).ends(0).json();
        assert!(json.is_object() || json.is_array(), "{line}: {json}");
    }
    // Errors, too: one line on standard output, and the exit code.
    let failed = fixture.ashlar(&["list", "disks", "none", "--json"]).ends(1).json();
    assert_eq!(failed["error"]["kind"], "not_found", "{failed:#}");
    let doctor = fixture.ashlar(&["doctor", "--json"]);
    assert!(matches!(doctor.code, 0 | 3), "{doctor}");
    doctor.json();
    for verb in ["serve", "status", "apply", "part add", "top", "access check"] {
        let words = part(&format!("{verb} --help"));
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        fixture.ashlar(&words).ends(0).prints(&["Usage", "--json"]);
    }
    fixture.ashlar(&["stauts"]).ends(2).complains(&["status"]);
    fixture.ashlar(&["completions", "bash"]).ends(0).prints(&["ashlar"]);
    fixture.stop();
}
