//! The program `ashlar-bench` as a user types it.

use std::net::TcpListener;
use std::process::{Command, Output};

use bench::servers::Scratch;

fn ashlar_bench(words: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_ashlar-bench")).args(words).output().expect("it starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn wrong_words_are_refused_with_exit_code_2() {
    for (words, says) in [
        (&["--rounds", "0"][..], "0"),
        (&["nothing"], "nothing"),
        (&["layers", "--case", "nothing"], "layers-1"),
        (&["demo", "--port", "1"], "--port"),
        (&["--quick", "--rounds", "3"], "--rounds"),
    ] {
        let output = ashlar_bench(words);
        assert_eq!(output.status.code(), Some(2), "{words:?}");
        assert!(text(&output.stderr).contains(says), "{words:?}: {}", text(&output.stderr));
    }
}

#[test]
fn rows_are_printed_when_measured_and_in_the_report() {
    let words = ["layers", "--case", "layers-1", "--rounds", "1", "--no-counters"];
    let output = ashlar_bench(&words);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("layers-1: CPU of a Bio"), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    assert!(table.contains("ashlar-bench layers --case layers-1 --rounds 1"), "{table}");
    let json = ashlar_bench(&[&words[..], &["--json"]].concat());
    let report: serde_json::Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(report["rows"][0]["case"], "layers-1");
}

#[test]
fn completions_and_manual_page_list_every_measurement() {
    let page = text(&ashlar_bench(&["man"]).stdout);
    let completions = text(&ashlar_bench(&["completions", "bash"]).stdout);
    for what in ["kernel", "iscsi", "operate", "demo", "before"] {
        assert!(page.contains(what) && completions.contains(what), "{what}");
    }
    for title in ["NAME", "EXAMPLES", "FILES", "ENVIRONMENT", "\"SEE ALSO\""] {
        assert_eq!(page.matches(&format!(".SH {title}\n")).count(), 1, "{title}");
    }
}

#[test]
fn chart_of_a_missing_or_foreign_file_is_refused_with_the_next_command() {
    let scratch = Scratch::new("chart").expect("scratch");
    let file = scratch.path().join("report.json");
    let name = file.display().to_string();
    let missing = ashlar_bench(&["chart", &name]);
    assert_eq!(missing.status.code(), Some(1), "{}", text(&missing.stderr));
    for foreign in ["{}", "{\"machine\":[],\"rows\":[],\"notes\":[]}"] {
        std::fs::write(&file, foreign).expect("written");
        let output = ashlar_bench(&["chart", &name]);
        assert_eq!(output.status.code(), Some(2), "{foreign}: {}", text(&output.stderr));
        assert!(text(&output.stderr).contains("next: ashlar-bench"), "{foreign}");
    }
}

/// The demo succeeds with the tools of Debian that `make demo` installs: a file system copied in
/// over iSCSI is copied out unchanged.
#[test]
fn the_demo_copies_a_file_system_in_and_out() {
    rig::packages::ensure_host().expect("packages");
    let scratch = Scratch::new("demo").expect("scratch");
    let port = TcpListener::bind("127.0.0.1:0").and_then(|l| l.local_addr()).expect("a port");
    let (data, listen) = (scratch.path().display().to_string(), port.to_string());
    let output = ashlar_bench(&["demo", "--data", &data, "--listen", &listen]);
    let printed = format!("{}{}", text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(0), "{printed}");
    for words in ["bytes, equal", "refused, as it should be", "done; the images are in"] {
        assert!(printed.contains(words), "no `{words}` in {printed}");
    }
}
