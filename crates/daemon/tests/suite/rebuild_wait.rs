//! `--wait`: a command waits for a rebuild, and its exit code shows whether the geom is complete.

use daemon::class_verbs;
use mgmt::api::{Error, Exit, ProgressLine};
use mgmt::verbs::Run;
use serde_json::Value;

use crate::by_hand::Site;

const DISKS: &str = "
    [[disk]]\nname = 'd0'\nkind = 'memory'\nsize = '4MiB'
    [[disk]]\nname = 'd1'\nkind = 'memory'\nsize = '4MiB'
";

/// The end of a command.
struct Ended {
    answer: Value,
    text: String,
    exit: Exit,
    progress: Vec<ProgressLine>,
}

/// Runs a command line as the command does, but without a socket.
fn run(site: &Site, line: &str) -> Result<Ended, Error> {
    let (verb, params) = mgmt::parse(&class_verbs(), &format!("ashlar {line}"))?;
    let Run::Daemon(run) = verb.run else { panic!("{line}: the daemon has no such verb") };
    let mut progress = Vec::new();
    let answer = run(&site.control, params, &mut |line| progress.push(line))?;
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    let (text, exit) = ((verb.table)(&answer).expect("a text"), (verb.exit)(&answer));
    Ok(Ended { answer, text, exit, progress })
}

/// The same, of a line that succeeds.
fn done(site: &Site, line: &str) -> Ended {
    run(site, line).unwrap_or_else(|e| panic!("{line}: {e}"))
}

/// A mirror whose second member is rebuilt, and that is paused.
fn paused(name: &str) -> Site {
    let site = Site::new(name, DISKS);
    for line in [
        "mirror label --assume-same data d0 d1",
        "mirror configure --sync-rate 1 data",
        "mirror pause data",
        "mirror rebuild data d1",
    ] {
        done(&site, line);
    }
    site
}

#[test]
fn wait_ends_with_the_rebuild_and_reports_whether_the_mirror_is_complete() {
    let site = paused("rebuild-wait");
    for line in ["mirror status data --wait", "mirror rebuild data d1 --wait"] {
        let error = run(&site, line).err().expect("it would wait for ever");
        let next = "ashlar mirror resume data";
        assert!(error.source.contains("paused at 0%"), "{error}");
        assert!(error.next.as_deref().is_some_and(|e| e.contains(next)), "{error}");
    }
    let shown = done(&site, "mirror status data");
    assert!(shown.text.contains("d1 (SYNCHRONIZING, 0%, paused)"), "{}", shown.text);
    let rebuild = &shown.answer["answer"]["geoms"][0]["rebuilds"][0];
    assert_eq!((&rebuild["part"], &rebuild["paused"]), (&"d1".into(), &true.into()));
    assert_eq!((&rebuild["sources"][0], &rebuild["limit_bytes"]), (&"d0".into(), &1.into()));

    let status = done(&site, "status");
    assert_eq!(status.exit, Exit::Degraded);
    assert!(status.text.contains("rebuild: mirror data: d1 0%, paused"), "{}", status.text);
    assert!(status.text.contains("`ashlar mirror resume data`"), "{}", status.text);
    let listed = done(&site, "list geoms data");
    assert!(listed.text.contains("d1: 0%, paused"), "{}", listed.text);

    done(&site, "mirror resume data");
    done(&site, "mirror configure --sync-rate 0 data");
    let waited = done(&site, "mirror status data --wait");
    assert_eq!((waited.exit, &waited.answer["answer"]["whole"]), (Exit::Done, &true.into()));
    assert!(waited.text.contains("COMPLETE"), "{}", waited.text);
    let again = done(&site, "mirror rebuild data d1 --wait");
    assert_eq!((again.exit, &again.answer["answer"]["whole"]), (Exit::Done, &true.into()));
    assert!(again.answer["answer"].get("wait_for").is_none(), "{}", again.answer);
    let mut all = waited.progress.iter().chain(&again.progress);
    let counted = |line: &ProgressLine| line.total > 0 && line.done <= line.total;
    assert!(all.all(counted), "{:?} {:?}", waited.progress, again.progress);

    done(&site, "mirror deactivate data d1");
    let degraded = done(&site, "mirror status data --wait");
    assert_eq!(degraded.exit, Exit::Degraded);
    assert_eq!(degraded.answer["answer"]["whole"], false);
}

#[test]
fn pause_that_changes_nothing_is_reported_as_such() {
    let site = paused("rebuild-pause");
    let message = |line: &str| done(&site, line).text;
    assert!(message("mirror pause data").contains("were paused already"));
    assert!(message("mirror resume data").contains("rebuilds of data continue"));
    assert!(message("mirror resume data").contains("were not paused"));
}
