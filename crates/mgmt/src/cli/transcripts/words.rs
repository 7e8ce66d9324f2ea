//! Words that every class has.

use std::ffi::OsString;

use serde_json::Value;

use super::daemon::run_words;
use crate::api::Exit;

/// GEOM's words for every class need no daemon; and a verb's own letter goes before a general one.
#[test]
fn every_class_has_help_load_and_unload_commands() {
    let output = |line: &str| run_words(line.split(' ').map(OsString::from).collect());
    let help = output("toy help");
    assert_eq!(help.exit, Exit::Done, "{}", help.err);
    let line = "ashlar toy label [-fv] [-s SIZE] [-b BALANCE] [-o FORM] NAME PROVIDERS...\n    \
                Label providers\n";
    assert!(help.out.contains(line), "{}", help.out);
    assert!(help.out.contains("ashlar toy status [-sga] [NAMES...]\n"), "{}", help.out);
    assert_eq!(output("toy help label").out, line);
    let json: Value = serde_json::from_str(&output("toy help label --json").out).expect("JSON");
    assert_eq!(json["verbs"][0]["about"], "Label providers");
    let unknown = output("toy help lable");
    assert_eq!(unknown.exit, Exit::Usage);
    assert!(unknown.err.contains("`ashlar toy help` lists"), "{}", unknown.err);
    assert!(output("part help").out.contains("ashlar part add ["), "{}", output("part help").out);
    for line in ["toy load", "toy load -v", "part load"] {
        assert_eq!(output(line).exit, Exit::Done, "{line}");
        assert!(output(line).out.contains("built in: already loaded"), "{line}");
    }
    let unload = output("toy unload");
    assert_eq!(unload.exit, Exit::Failed);
    assert!(unload.err.contains("`ashlar toy list` names its geoms"), "{}", unload.err);
    // The verb's own -o takes its own words; elsewhere the letter is --output's.
    assert!(output("toy label -o json data d0 d1").err.contains("possible values: big, little"));
    let page = output("toy label --help").out;
    assert!(page.contains("-o, --form <FORM>") && page.contains("      --output <"), "{page}");
    let down = output("toy label -o big data d0 d1 --output json --socket /nonexistent/a.sock");
    assert_eq!(down.exit, Exit::Unreachable);
    assert!(down.out.contains("\"error\""), "as JSON: {}{}", down.out, down.err);
}

#[test]
fn options_of_earlier_versions_are_accepted_without_effect() {
    let output = |line: &str| run_words(line.split(' ').map(OsString::from).collect());
    let started = output("serve --keep-going /nonexistent/a.toml");
    assert_eq!(started.exit, Exit::Failed, "{}", started.err);
    assert!(started.err.contains("/nonexistent/a.toml"), "{}", started.err);
    assert_eq!(output("serve --keep-on /nonexistent/a.toml").exit, Exit::Usage);
    assert!(!output("serve --help").out.contains("keep-going"));
}
