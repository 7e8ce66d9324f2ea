//! Transcript tests: command lines against a daemon over a real Unix socket, and their output.

#[path = "transcripts/daemon.rs"]
mod daemon;
#[path = "transcripts/http.rs"]
mod http;
#[path = "transcripts/page.rs"]
mod page;
#[path = "transcripts/rates.rs"]
mod rates;
#[path = "transcripts/repeats.rs"]
mod repeats;
#[path = "transcripts/sessions.rs"]
mod sessions;
#[path = "transcripts/tokens.rs"]
mod tokens;
#[path = "transcripts/trace.rs"]
mod trace;
#[path = "transcripts/words.rs"]
mod words;

use super::*;
use crate::api::{
    ConnectionsState, Denied, Digests, Health, PartEntry, PartTable, SessionState, SystemState,
    TargetState, TroubleState,
};
use crate::fake::geom_state;
use crate::verbs::{self, VERBS};
use daemon::{Daemon, TOY, run_words};
use std::path::PathBuf;

const FIRST: &str = "[[disk]]
name = \"d0\"
kind = \"file\"
path = \"/srv/d0\"

[[disk]]
name = \"m0\"
kind = \"memory\"

[[target]]
driver = \"iscsi\"
name = \"iqn.a:t\"
listen = [\"127.0.0.1:3260\"]

[[access]]
target = \"iqn.a:t\"
group = \"hosts\"
initiators = [\"iqn.h:*\"]
luns = { 0 = \"d0\", 1 = { provider = \"m0\", mode = \"ro\" } }
";

#[test]
fn plan_apply_export_and_undo_match_the_transcript() {
    let daemon = Daemon::start();
    daemon.write("a.toml", FIRST);
    assert_eq!(
        daemon.expect_exit("plan @a.toml", Exit::Pending),
        "step                             risk  why\n\
         + create disk d0 (file)          safe  in the configuration, not running\n\
         + create disk m0 (memory)        safe  in the configuration, not running\n\
         + create target iqn.a:t (iscsi)  safe  in the configuration, not running\n\
         + create group hosts of iqn.a:t  safe  in the configuration, not running\n\
         4 steps, at worst safe; `ashlar apply` does it\n"
    );
    assert!(daemon.expect_exit("apply @a.toml --dry-run", Exit::Done).ends_with("(dry run)\n"));
    assert_eq!(daemon.plant.calls(), 0, "a dry run changes nothing");
    let output = daemon.expect_exit("apply @a.toml", Exit::Done);
    assert!(output.ends_with("4 steps done, generation 1\n"), "{output}");
    assert_eq!(daemon.expect_exit("plan @a.toml", Exit::Done), "no changes\n");
    assert_eq!(daemon.expect_exit("apply @a.toml", Exit::Done), "no changes\n");
    let exported = daemon.expect_exit("export", Exit::Done);
    daemon.write("b.toml", &exported);
    assert_eq!(daemon.expect_exit("plan @b.toml", Exit::Done), "no changes\n");
    daemon.write("b.toml", &FIRST.replace("/srv/d0", "/srv/d1").replace("iqn.h:*", "iqn.i:*"));
    let output = daemon.expect_exit("apply @b.toml", Exit::Done);
    assert!(output.contains("path \"/srv/d0\" -> \"/srv/d1\""), "{output}");
    let output = daemon.expect_exit("undo", Exit::Done);
    assert!(output.contains("note: configuration 1 of history"), "{output}");
    assert_eq!(daemon.expect_exit("plan @a.toml", Exit::Done), "no changes\n");
    let history = daemon.expect_exit("history", Exit::Done);
    assert_eq!(history.lines().count(), 4, "head and three\n{history}");
    let error = daemon.expect_exit("undo --to 77", Exit::Failed);
    assert!(error.contains("ASH-0035"), "{error}");
}

#[test]
fn apply_refuses_to_destroy_data_without_confirmation() {
    let daemon = Daemon::start();
    daemon.write("a.toml", FIRST);
    daemon.expect_exit("apply @a.toml", Exit::Done);
    let less = FIRST.replace("[[disk]]\nname = \"m0\"\nkind = \"memory\"\n", "");
    daemon.write("b.toml", &less.replace(", 1 = { provider = \"m0\", mode = \"ro\" }", ""));
    assert_eq!(
        daemon.expect_exit("apply @b.toml", Exit::Refused),
        "error[ASH-0030]: apply: the data on m0 would be lost\n  next: Repeat the command with \
         --yes-destroy m0.\n  more: ashlar explain ASH-0030\n"
    );
    daemon.expect_exit("apply @b.toml --yes-destroy d0", Exit::Refused);
    let output = daemon.expect_exit("apply @b.toml --yes-destroy m0", Exit::Done);
    assert!(output.contains("- remove disk m0 (memory)        destroys"), "{output}");
}

#[test]
fn apply_with_an_error_changes_nothing() {
    let daemon = Daemon::start();
    daemon.write("a.toml", &FIRST.replace("path =", "paht ="));
    let error = daemon.expect_exit("apply @a.toml", Exit::Usage);
    assert!(error.contains("@a.toml:4:1: unknown key `paht`; did you mean `path`?"), "{error}");
    daemon.write("a.toml", &FIRST.replace("\"m0\", mode", "\"m9\", mode"));
    let error = daemon.expect_exit("apply @a.toml", Exit::Failed);
    assert!(error.contains("ASH-0033") && error.contains("no provider m9"), "{error}");
    assert!(daemon.plant.config().is_equivalent(&Default::default()), "taken back");
    daemon.write("a.toml", FIRST);
    let error = daemon.expect_exit("apply @a.toml --if-generation 5", Exit::Failed);
    assert!(error.contains("ASH-0031"), "{error}");
    let error = daemon.expect_exit("plan @nowhere.toml", Exit::Failed);
    assert!(error.contains("ASH-0050") && error.contains("@nowhere.toml"), "{error}");
    let json = daemon.expect_exit("plan @nowhere.toml --json", Exit::Failed);
    let value: Value = serde_json::from_str(&json).expect("JSON also when it fails");
    assert_eq!(value["error"]["kind"], "system");
}

fn busy(daemon: &Daemon) {
    daemon.write("a.toml", FIRST);
    daemon.expect_exit("apply @a.toml", Exit::Done);
    let mut state = SystemState::default();
    state.daemon.uptime_ns = 90_000_000_000;
    state.geoms = vec![
        geom_state("disk", "d0", 1, &[], "d0"),
        geom_state("disk", "m0", 1, &[], "m0"),
        geom_state("part", "d0", 2, &["d0"], "d0p1"),
    ];
    state.geoms[2].why = "tasted from d0".to_owned();
    let session = SessionState {
        id: 7,
        initiator: "iqn.h:one".to_owned(),
        address: "10.0.0.1:4000".to_owned(),
        group: Some("hosts".to_owned()),
        since_ns: 60_000_000_000,
        luns: vec![0, 1],
        digests: Digests { header: true, data: false },
        auth: "chap".to_owned(),
        ..SessionState::default()
    };
    state.targets = vec![TargetState {
        driver: "iscsi".to_owned(),
        name: "iqn.a:t".to_owned(),
        portals: vec!["127.0.0.1:3260".to_owned()],
        sessions: vec![session],
        ..TargetState::default()
    }];
    state.denied = vec![Denied {
        initiator: "iqn.evil".to_owned(),
        address: "10.0.0.66:1".to_owned(),
        why: "no group matches".to_owned(),
        expected: "iqn.h:*".to_owned(),
        times: 3,
        ..Denied::default()
    }];
    daemon.plant.set_extra(state);
}

#[test]
fn tree_shows_everything_from_disk_to_session() {
    let daemon = Daemon::start();
    busy(&daemon);
    assert_eq!(
        daemon.expect_exit("tree", Exit::Done),
        "d0  64M  r0w0e0  file  (configured)\n\
         |- d0  part  (tasted from d0)\n\
         |  `- d0p1  64M  r0w0e0\n\
         `- LUN 0  rw  group hosts of iqn.a:t\n   \
         `- iqn.h:one  10.0.0.1:4000  since 30.0s\n\
         m0  64M  r0w0e0  memory  (configured)\n\
         `- LUN 1  ro  group hosts of iqn.a:t\n   \
         `- iqn.h:one  10.0.0.1:4000  since 30.0s\n"
    );
    assert_eq!(
        daemon.expect_exit("tree --down iqn.h:one", Exit::Done),
        "iqn.h:one  10.0.0.1:4000  at iqn.a:t\n\
         |- LUN 0  rw\n\
         |  `- d0  64M  r0w0e0  file  (configured)\n\
         `- LUN 1  ro\n   \
         `- m0  64M  r0w0e0  memory  (configured)\n"
    );
    assert!(daemon.expect_exit("tree --down d0p1", Exit::Done).starts_with("d0p1  64M"));
    assert_eq!(daemon.expect_exit("tree --up d0p1", Exit::Done), "d0p1  64M  r0w0e0\n");
    assert!(daemon.expect_exit("tree --up x", Exit::Failed).contains("ASH-0020"));
    assert!(daemon.expect_exit("tree --up a --down b", Exit::Usage).contains("not both"));
}

#[test]
fn graph_is_written_in_every_format() {
    let daemon = Daemon::start();
    busy(&daemon);
    let text = daemon.expect_exit("graph m0", Exit::Done);
    assert!(text.starts_with("m0  disk  64M\n`- m0  lun  LUN 1 ro"), "{text}");
    assert!(text.contains("   `- iqn.h:one  session  10.0.0.1:4000 at iqn.a:t\n"), "{text}");
    let down = daemon.expect_exit("graph iqn.h:one --down", Exit::Done);
    assert!(down.starts_with("iqn.h:one  session") && down.contains("d0  disk"), "{down}");
    for (format, start) in [
        ("dot", "digraph ashlar {\n"),
        ("mermaid", "flowchart LR\n"),
        ("svg", "<svg xmlns="),
        ("json", "{\n  \"width\""),
    ] {
        let text = daemon.expect_exit(&format!("graph --format {format}"), Exit::Done);
        assert!(text.starts_with(start) && text.contains("iqn.h:one"), "{text}");
    }
    assert!(daemon.expect_exit("graph d9", Exit::Failed).contains("ASH-0020"));
    assert!(daemon.expect_exit("graph d0 --up --down", Exit::Usage).contains("exclude"));
    assert!(daemon.expect_exit("graph --up", Exit::Usage).contains("need the NAME"));
}

#[test]
fn access_check_lists_the_luns_of_an_initiator() {
    let daemon = Daemon::start();
    busy(&daemon);
    let seen = daemon.expect_exit("access check IQN.H:new", Exit::Done);
    assert_eq!(
        seen,
        "target   group  lun  provider  mode        why\n\
         iqn.a:t  hosts    0  d0        read write  matches iqn.h:*\n\
         iqn.a:t  hosts    1  m0        read only   matches iqn.h:*\n"
    );
    let nothing = daemon.expect_exit("access check iqn.x", Exit::Done);
    assert!(nothing.contains("nothing  no group matches; the default is deny"), "{nothing}");
    let who = daemon.expect_exit("access who m0", Exit::Done);
    assert!(who.ends_with("hosts    1  m0        read only  iqn.h:*  iqn.h:one\n"), "{who}");
    assert_eq!(daemon.expect_exit("access who d0p1", Exit::Done), "no initiator\n");
    assert!(daemon.expect_exit("access who d0p9", Exit::Failed).contains("ASH-0020"));
    let sessions = daemon.expect_exit("sessions --denied", Exit::Done);
    assert!(
        sessions.contains("iqn.h:one  10.0.0.1:4000  iqn.a:t  hosts  0,1   chap"),
        "{sessions}"
    );
    assert!(
        sessions.contains("iqn.evil  10.0.0.66:1  -           3  no group matches"),
        "{sessions}"
    );
}

#[test]
fn status_shows_health_first() {
    let daemon = Daemon::start();
    busy(&daemon);
    let ok = daemon.expect_exit("status", Exit::Done);
    assert!(ok.starts_with(" state: OK\ndaemon: version"), "{ok}");
    assert!(ok.contains("2 disks, 3 geoms, 1 target, 1 group, 1 session"), "{ok}");
    let mut state = daemon.client().state().expect("a state");
    state.disks[0].health = Health::Failed;
    state.disks[0].health_why = "EIO on every read".to_owned();
    state.geoms.retain(|g| g.name != "m0");
    daemon.plant.set_extra(state.clone());
    let bad = daemon.expect_exit("status", Exit::Degraded);
    assert!(bad.starts_with(" state: FAILED\n"), "{bad}");
    assert!(daemon.expect_exit("status --alive", Exit::Done).starts_with(" state: FAILED\n"));
    assert!(
        bad.contains(
            "    at: disk d0 (failed)\n   why: EIO on every read\naction: Reconnect the disk: it \
             is used again automatically. To accept another disk: `ashlar apply`.\n   see: ashlar \
             tree --up d0\n"
        ),
        "{bad}"
    );
    let list = daemon.expect_exit("list disks", Exit::Done);
    assert!(list.contains("d0    file     64M     -     512  failed"), "{list}");
    // A disk that fills up, and whose image is removed.
    for disk in state.disks.iter_mut().filter(|d| d.name == "d0") {
        disk.health_why = "85 % of its space is used".to_owned();
        let trouble = |health, why: &str, action: &str| TroubleState {
            health,
            why: why.to_owned(),
            action: action.to_owned(),
        };
        let removed = trouble(Health::Failed, "d0.img was removed", "Save it with `cp`.");
        disk.troubles = vec![trouble(Health::Degraded, "85 % of its space is used", ""), removed];
        disk.path = Some("/srv/d0.img".to_owned());
        (disk.used_bytes, disk.free_bytes) = (Some(85 << 20), Some(15 << 20));
    }
    daemon.plant.set_extra(state.clone());
    let full = daemon.expect_exit("status", Exit::Degraded);
    assert!(
        full.contains("action: Free space in its file system (`df -h /srv/d0.img`), or discard"),
        "{full}"
    );
    let lost = "disk d0 (failed)\n   why: d0.img was removed\naction: Save it with `cp`.\n";
    assert!(full.contains(lost), "{full}");
    assert!(!full.contains("Reconnect the disk"), "{full}");
    assert!(daemon.expect_exit("list disks", Exit::Done).contains("64M   85%     512  failed"));
    // Then its requests fail, too.
    for disk in state.disks.iter_mut().filter(|d| d.name == "d0") {
        (disk.error, disk.health_why) = (Some("EIO".to_owned()), "answers EIO".to_owned());
    }
    daemon.plant.set_extra(state);
    let both = daemon.expect_exit("status", Exit::Degraded);
    let error = both.find("disk d0 (failed)\n   why: answers EIO\n");
    assert!(error.is_some() && error < both.find(lost), "{both}");
    assert!(!both.contains("85 %"), "{both}");
    assert!(daemon.expect_exit("list luns d0", Exit::Done).contains("iqn.a:t"));
    assert!(daemon.expect_exit("list disks nothing", Exit::Failed).contains("ASH-0020"));
}

#[test]
fn part_verbs_match_the_transcript() {
    let daemon = Daemon::start();
    busy(&daemon);
    let entry = PartEntry {
        index: 1,
        name: "d0p1".to_owned(),
        start: 2048,
        count: 2048,
        kind: "linux-data".to_owned(),
        ..PartEntry::default()
    };
    daemon.plant.tables(vec![PartTable {
        geom: "d0".to_owned(),
        scheme: "gpt".to_owned(),
        sector_bytes: 512,
        first: 2048,
        last: 8191,
        entries: vec![entry],
        ..PartTable::default()
    }]);
    assert_eq!(
        daemon.expect_exit("part show", Exit::Done),
        "=>    2048      6144  d0  GPT  (3.0M)\n      \
         2048      2048   1  linux-data  (1.0M)\n      \
         4096      4096      - free -  (2.0M)\n\n"
    );
    boot_code(&daemon);
    let done = daemon.expect_exit("part delete d0 --index 1 --yes-destroy d0p1", Exit::Done);
    assert_eq!(done, "d0p1 deleted\n");
    let add =
        daemon.expect_exit("part add d0 --type linux-data --size 1G --start 2048", Exit::Done);
    assert!(add.contains("\"size\":{\"bytes\":1073741824}"), "{add}");
    assert!(add.contains("\"start\":{\"sectors\":2048}"), "{add}");
    assert!(daemon.expect_exit("part add d0 --type x --size 1Q", Exit::Usage).contains("1Q"));
    let consent = daemon.expect_exit("part destroy d0 --yes-destroy d0", Exit::Done);
    assert!(consent.contains("\"yes_destroy\":[\"d0\"]"), "{consent}");
    let force = daemon.expect_exit("part destroy -F d0", Exit::Done);
    assert!(force.contains("\"force\":true") && force.contains("\"no_commit\":false"), "{force}");
    // As a gpart user types it.
    let waits =
        daemon.expect_exit("part add -t efi -a 1M -s 64M -i 3 -l esp --no-commit d0", Exit::Done);
    for part in ["\"index\":3,\"label\":\"esp\"", "\"no_commit\":true"] {
        assert!(waits.contains(part), "{part}: {waits}");
    }
    for (line, key) in
        [("part set -a bootme -i 1 d0", "attrib"), ("part set d0 bootme --index 1", "attribute")]
    {
        let set = daemon.expect_exit(line, Exit::Done);
        let given = format!("\"{key}\":\"bootme\"");
        assert!(set.contains(&given) && set.contains("\"index\":1"), "{set}");
    }
    assert_eq!(daemon.expect_exit("part backup d0", Exit::Done), "GPT 128\n");
    assert!(
        daemon.expect_exit("part backup d0 --json", Exit::Done).contains("\"scheme\": \"GPT\"")
    );
    assert!(daemon.expect_exit("part restore -l -F", Exit::Usage).contains("no provider is named"));
    let params = json!({ "geoms": ["d0", "d1"], "labels": true, "backup": "MBR 4\n" });
    let output = daemon.client().verb("part.restore", &params, &mut |_| {}).expect("restored");
    let output = output["message"].as_str().expect("a message");
    assert!(
        output.contains("\"backup\":\"MBR 4\\n\"") && output.contains("\"no_commit\":false"),
        "{output}"
    );
    let commit = daemon.expect_exit("part commit d0", Exit::Done);
    assert!(commit.contains("\"geom\":\"d0\""), "{commit}");
    assert!(daemon.expect_exit("part undo d0", Exit::Done).contains("\"geom\":\"d0\""));
    let create = daemon.expect_exit("part create m0 --scheme gpt", Exit::Done);
    assert!(create.contains("\"provider\":\"m0\""), "{create}");
    let geom = daemon.expect_exit("geom nop configure name=x delay_us=4k", Exit::Done);
    assert!(geom.contains("\"delay_us\": 4096"), "{geom}");
    let list = daemon.expect_exit("geom part list name=d0 listed=true", Exit::Done);
    assert!(!list.contains("names"), "a listing is not listed again: {list}");
}

/// Files are read by the command and sent as text.
fn boot_code(daemon: &Daemon) {
    daemon.write("pmbr", "Hi!");
    daemon.write("empty", "");
    let output = daemon.expect_exit("part bootcode -b @pmbr -N -f x d0", Exit::Done);
    for part in ["\"bootcode\":\"0bSGkh\"", "\"skip_serial\":true", "\"flags\":\"x\""] {
        assert!(output.contains(part), "{part}: {output}");
    }
    let output =
        daemon.expect_exit("part bootcode -p @pmbr -i 1 d0 --yes-destroy d0p1", Exit::Done);
    assert!(
        output.contains("\"partcode\":\"0bSGkh\"") && output.contains("\"index\":1"),
        "{output}"
    );
    for (line, exit, words) in [
        ("-b @empty", Exit::Usage, "-b: the file is empty"),
        ("-p @nowhere -i 1", Exit::Failed, "-p: No such file"),
        ("-b /dev/zero", Exit::Usage, "-b: not a regular file"),
    ] {
        let output = daemon.expect_exit(&format!("part bootcode {line} d0"), exit);
        assert!(output.contains(words), "{output}");
    }
}

#[test]
fn daemon_verbs_answer_json_as_their_schemas_describe() {
    let daemon = Daemon::start();
    busy(&daemon);
    for line in [
        "status",
        "tree",
        "graph",
        "list",
        "list connections",
        "list listeners",
        "sessions",
        "journal",
        "plan @a.toml",
        "apply @a.toml",
        "history",
        "export",
        "part show",
        "access check x",
        "access who d0",
        "geom a b",
        "token list",
        "audit",
        "explain",
        "schema nop",
        "completions bash",
        "man",
        "doctor socket",
        "top --interval 10ms",
        "trace --seconds 0",
        "undo --to 1",
    ] {
        let output = daemon.run_line(&format!("{line} --json"));
        let value: Value = serde_json::from_str(&output.out)
            .unwrap_or_else(|e| panic!("{line}: {e}\n{}{}", output.out, output.err));
        let words: Vec<&str> = line.split(' ').collect();
        let name = [words.get(..2).unwrap_or_default().join("."), words[0].to_owned()];
        let entry = name.iter().find_map(|n| verbs::find(n)).expect("a verb");
        let schema = (entry.answer)();
        let known = schema["properties"].as_object().expect("an object");
        for key in value.as_object().expect("an object").keys() {
            assert!(known.contains_key(key), "{line}: {key}");
        }
        assert_eq!(daemon.run_line(&format!("{line} -o json")).exit, output.exit, "{line}");
    }
}

#[test]
fn plan_reports_steps_that_apply_would_refuse() {
    let daemon = Daemon::start();
    daemon.write("a.toml", FIRST);
    daemon.plant.refuse(Error::new(Kind::NotFound, "export", "no such provider").at("d9"));
    let output = daemon.expect_exit("plan @a.toml", Exit::Failed);
    let why = "`apply` would refuse and do none of 4 steps, because these are impossible:\n  \
               create disk d0 (file): d9: no such provider\n";
    assert!(output.starts_with(why), "no table of what is not done: {output}");
    assert!(daemon.expect_exit("apply @a.toml", Exit::Failed).contains("ASH-0032"));
}

/// A command that waits too long is spoken of, with its age.
#[test]
fn status_reports_a_stuck_command_with_its_age() {
    let daemon = Daemon::start();
    busy(&daemon);
    let mut state = daemon.plant.extra_state();
    for session in state.targets.iter_mut().flat_map(|t| &mut t.sessions) {
        session.commands_outstanding = 3;
        session.oldest_command_ns = 23_000_000_000;
    }
    daemon.plant.set_extra(state);
    let output = daemon.expect_exit("status", Exit::Degraded);
    assert!(output.starts_with(" state: DEGRADED"), "{output}");
    assert!(output.contains("why: 3 commands outstanding, the oldest for 23"), "{output}");
    let sessions = daemon.expect_exit("sessions", Exit::Done);
    assert!(
        sessions.contains("in flight  waiting  window  oldest") && sessions.contains("   23"),
        "{sessions}"
    );
}

#[test]
fn list_reports_why_no_class_claimed_a_provider() {
    let daemon = Daemon::start();
    let mut geom = geom_state("disk", "d7", 1, &[], "d7");
    let why = "no master boot record at byte 510".to_owned();
    let not =
        |class: &str| crate::api::TasteRejection { class: class.to_owned(), why: why.clone() };
    geom.providers[0].why_not = vec![not("part"), not("label")];
    let label = geom_state("label", "ext/x", 2, &["d7"], "ext/x");
    daemon.plant.set_extra(SystemState { geoms: vec![geom.clone()], ..SystemState::default() });
    let alone = daemon.expect_exit("list", Exit::Done);
    assert!(alone.contains("d7          part      no master boot record at byte 510"), "{alone}");
    daemon.plant.set_extra(SystemState { geoms: vec![geom, label], ..SystemState::default() });
    let claimed = daemon.expect_exit("list providers d7", Exit::Done);
    assert!(claimed.contains("d7          part      no master"), "{claimed}");
    assert!(!claimed.contains("d7          label"), "label uses it: {claimed}");
}

#[test]
fn list_connections_shows_why_connections_were_closed() {
    let daemon = Daemon::start();
    let closed = [("peer_closed", 4_u64), ("tls", 0)].map(|(why, n)| (why.to_owned(), n));
    let (driver, closed) = ("nbd".to_owned(), closed.into());
    let nbd = ConnectionsState { driver, open: 2, accepted: 6, closed, ..Default::default() };
    daemon.plant.set_extra(SystemState { connections: vec![nbd], ..SystemState::default() });
    let table = daemon.expect_exit("list connections", Exit::Done);
    assert!(table.contains("peer_closed 4") && !table.contains("tls"), "{table}");
    let json = daemon.expect_exit("list connections --json", Exit::Done);
    let value: Value = serde_json::from_str(&json).expect("JSON");
    let state = &value["state"]["connections"][0];
    assert_eq!((&state["open"], &state["closed"]["tls"]), (&json!(2), &json!(0)), "{json}");
    let targets = daemon.expect_exit("list targets --json", Exit::Done);
    assert!(!targets.contains("peer_closed"), "{targets}");
}

/// The daemon of a file that names its socket is found without a flag, and a faulty file is
/// refused before a request is sent.
#[test]
fn socket_path_is_read_from_the_configuration_file() {
    let daemon = Daemon::start();
    let text = format!("[daemon]\nsocket = \"{}\"\n", daemon.path("a.sock"));
    let file = daemon.write("own.toml", &text);
    assert_eq!(connect::configured_socket(&file), Some(PathBuf::from(daemon.path("a.sock"))));
    assert_eq!(crate::cli::connect::configured_socket(&daemon.write("none.toml", "")), None);
    assert_eq!(crate::cli::connect::configured_socket(&daemon.write("bad.toml", "[[[")), None);
    let faulty = daemon.write("faulty.toml", "[[disk]]\nnam = \"x\"\n");
    for verb in ["plan", "apply"] {
        let words = [verb, &faulty, "--socket", "/nonexistent/a.sock"];
        let output = run_words(words.iter().map(OsString::from).collect());
        assert_eq!(output.exit, Exit::Usage, "{}", output.err);
        assert!(output.err.contains("`name` is missing"), "{}", output.err);
    }
}

#[test]
fn missing_daemon_is_reported_as_unreachable() {
    let words = ["status", "--alive", "--socket", "/nonexistent/a.sock"];
    let output = run_words(words.iter().map(OsString::from).collect());
    assert_eq!(output.exit, Exit::Unreachable);
    assert!(
        output.err.contains("ASH-0040") && output.err.contains("ashlar serve"),
        "{}",
        output.err
    );
}

#[test]
fn help_exits_with_success_and_wrong_arguments_with_usage() {
    let output = |line: &str| run_words(line.split(' ').map(OsString::from).collect());
    assert_eq!(output("--help").exit, Exit::Done);
    assert!(output("--help").out.contains("  6  changes are pending (plan)"));
    assert_eq!(output("help").exit, Exit::Done);
    assert!(output("help part add").out.contains("Add a partition"));
    for section in ["daemon", "bus", "disk", "geom", "target", "access", "lun"] {
        assert_eq!(output(&format!("schema {section}")).exit, Exit::Done, "{section}");
    }
    assert!(output("schema target").out.contains("chap = { user"), "where secrets go");
    assert_eq!(output("statsu").exit, Exit::Usage);
    assert!(output("statsu").err.contains("status"), "clap suggests");
    assert_eq!(output("part").exit, Exit::Usage);
    assert_eq!(output("plan --nonsense").exit, Exit::Usage);
    assert_eq!(output("journal --after x").exit, Exit::Usage);
    assert_eq!(output("list wrong").exit, Exit::Usage);
    assert_eq!(output("--version").exit, Exit::Done);
    assert!(output("explain ASH-0030").out.contains("--yes-destroy NAME"));
    assert_eq!(output("explain ASH-9999").exit, Exit::Usage);
    assert!(
        output("schema nop").out.contains("delay_us  integer  0"),
        "{}",
        output("schema nop").out
    );
    assert!(output("schema memory").out.contains("size_bytes = \"64MiB\""));
    let label: Value = serde_json::from_str(&output("schema toy label --json").out).expect("JSON");
    let properties = &label["schemas"][0]["schema"]["answer"]["properties"];
    assert!(properties["message"]["description"].is_string(), "{label}");
    assert!(output("schema nopp").err.contains("Did you mean `nop`?"));
    assert!(
        output("schema part.add").out.contains("linux-data")
            || output("schema part.add").exit == Exit::Done
    );
}

#[test]
fn every_verb_has_json_manual_page_completions_and_example() {
    let program = command(&[]);
    program.clone().debug_assert();
    let pages = verbs::man::pages(&[]).expect("pages");
    let shells = [verbs::completions::Shell::Bash, verbs::completions::Shell::Fish];
    let scripts = shells.map(|shell| verbs::completions::script(shell, &[]));
    for verb in VERBS {
        let name = verb.name;
        assert!(verb.doc.len() > 8 && !verb.doc.ends_with('.'), "{name}: {}", verb.doc);
        assert!(!verb.example.is_empty(), "{name} has no example");
        for example in verb.examples() {
            // The part of the line for the shell is not checked.
            let line = example.split([' ']).take_while(|w| !["|", ">", "<"].contains(w));
            let words: Vec<String> = line.map(|w| w.replace('\'', "")).collect();
            let matches = program.clone().try_get_matches_from(&words);
            let matches = matches.unwrap_or_else(|e| panic!("{example}: {e}"));
            let (entry, _) = values::typed_verb(&[], &matches).expect("a verb");
            assert_eq!(entry.name, name, "{example}");
        }
        let mut json = program.clone();
        let mut at = &mut json;
        for word in name.split('.') {
            at = at.find_subcommand_mut(word).unwrap_or_else(|| panic!("{name}"));
        }
        let help = at.render_long_help().to_string();
        assert!(help.contains("Exit codes:") && help.contains("Examples:"), "{name}");
        let typed = verb.words();
        let last = typed.rsplit(' ').next().expect("a word");
        assert!(scripts.iter().all(|s| s.contains(last)), "{name} is not completed");
        let page = verbs::man::page_name(verb);
        let (_, text) = pages.iter().find(|(n, _)| *n == page).expect("a page");
        for part in ["NAME", "SYNOPSIS", "DESCRIPTION", "EXAMPLES", "json"] {
            assert!(text.contains(part), "{page} lacks {part}");
        }
        assert!(text.contains("EXIT STATUS"), "{page}");
        let schema = (verb.params)();
        // Those of the trait are there as far as there are such.
        let own = verb.positional.iter().filter(|p| !["name", "names", "members"].contains(*p));
        for place in own {
            assert!(schema["properties"].get(place).is_some(), "{name}: no field {place}");
        }
        for (key, property) in schema["properties"].as_object().into_iter().flatten() {
            let inner = verbs::schema::follow_ref(&schema, property);
            let doc = property.get("description").or(inner.get("description"));
            assert!(doc.is_some(), "{name}: {key} says nothing about itself");
        }
    }
}

#[test]
fn class_verb_is_a_command_with_manual_page_and_completions() {
    let program = command(&[TOY]);
    program.clone().debug_assert();
    let words = "ashlar toy label -b load -s 4k -f data d0 d1".split(' ');
    let matches = program.clone().try_get_matches_from(words).expect("it is a command");
    let call = classes::call(&[TOY], &matches).expect("a verb of a class").expect("numbers");
    let value = json!({
        "name": "data", "providers": ["d0", "d1"], "size": 4096, "force": true, "balance": "load"
    });
    assert_eq!(call, json!({ "class": "toy", "verb": "label", "value": value }));
    let (entry, _) = values::typed_verb(&[TOY], &matches).expect("an entry");
    assert_eq!(entry.name, "geom");
    for wrong in ["toy label data", "toy label -b some data d0 d1", "toy forget data"] {
        let words = format!("ashlar {wrong}");
        assert!(program.clone().try_get_matches_from(words.split(' ')).is_err(), "{wrong}");
    }
    let words = "ashlar toy label -s much data d0 d1".split(' ');
    let matches = program.clone().try_get_matches_from(words).expect("a text");
    let error = classes::call(&[TOY], &matches).expect("a verb").expect_err("no number");
    assert!(error.to_string().contains("--size"), "{error}");
    let script = verbs::completions::script(verbs::completions::Shell::Bash, &[TOY]);
    assert!(script.contains("--balance") && script.contains("toy"));
}

#[test]
fn man_writes_all_pages() {
    let daemon = Daemon::start();
    let files = daemon.expect_exit("man --out @man", Exit::Done);
    let toy = TOY.all_verbs().count() + 1;
    assert_eq!(files.lines().count(), VERBS.len() + verbs::GROUPS.len() + 4 + toy);
    assert!(files.contains("@man/man5/ashlar.toml.5"), "{files}");
    assert!(files.contains("@man/man8/ashlar-toy-label.8"), "{files}");
    assert!(files.contains("@man/man8/ashlar-part-add.8"), "{files}");
}
