//! Words that every class has.

use std::ffi::OsString;

use clap::Command;
use serde_json::Value;

use super::busy;
use super::daemon::{Daemon, TOY, app, run_words};
use crate::api::{Exit, SystemState};
use crate::cli::{App, command, command_of, run};
use crate::fake::geom_state;

/// GEOM's words for every class need no daemon; and a verb's own letter precedes a general one.
#[test]
fn every_class_has_help_load_and_unload_commands() {
    let output = |line: &str| run_words(line.split(' ').map(OsString::from).collect());
    let help = output("toy help");
    assert_eq!(help.exit, Exit::Done, "{}", help.err);
    let line = "ashlar toy label [-fv] [-s SIZE] [-b BALANCE] [-o FORM] NAME PROVIDERS...\n    \
                Label providers\n";
    assert!(help.out.contains(line), "{}", help.out);
    assert!(help.out.contains("ashlar toy status [-ags] [--wait] [NAMES...]\n"), "{}", help.out);
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
fn command_line_of_a_known_word_has_that_command_alone() {
    let names = |root: &Command| -> Vec<String> {
        root.get_subcommands().map(|of| of.get_name().to_owned()).collect()
    };
    let help = |root: &mut Command, name: &str| {
        root.find_subcommand_mut(name).expect("a command").render_long_help().to_string()
    };
    let mut whole = command(&[TOY]);
    for name in names(&whole) {
        let mut alone = command_of(&[TOY], &name);
        assert_eq!(names(&alone), [name.as_str()]);
        assert_eq!(help(&mut alone, &name), help(&mut whole, &name));
    }
    for word in ["help", "--json", "stauts", ""] {
        assert_eq!(names(&command_of(&[TOY], word)), names(&whole), "{word}");
    }
}

#[test]
fn command_describes_no_class_but_its_own() {
    let app = App { classes: || unreachable!("every class"), ..app() };
    for line in ["plan --help", "part add --help", "sessions --help", "toy label --help"] {
        let (mut out, mut err) = (Vec::new(), Vec::new());
        let exit = run(&app, line.split(' ').map(OsString::from), &mut out, &mut err);
        assert_eq!(exit, Exit::Done, "{line}: {}", String::from_utf8_lossy(&err));
    }
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

/// N2 of cli/complete.rs.
#[test]
fn complete_prints_the_live_names_that_may_follow() {
    let daemon = Daemon::start();
    busy(&daemon);
    let socket = daemon.path("a.sock");
    let names = |line: &str| {
        let words = ["complete", "--socket", &socket].into_iter().chain(line.split(' '));
        let output = run_words(words.map(OsString::from).collect());
        assert_eq!(output.exit, Exit::Done, "{line}: {}", output.err);
        output.out.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(names("toy label data"), ["d0", "d0p1", "m0"]);
    assert_eq!(names("toy label -f -b load data d0"), ["d0", "d0p1", "m0"], "a list");
    assert_eq!(names("part show"), ["d0"], "geoms of the class");
    assert_eq!(names("attach --target"), ["iqn.a:t"]);
    assert_eq!(names("access check"), ["iqn.h:one"]);
    for line in ["status", "part", "toy label -b", "attach --target=iqn.a:t --by", "nothing here"] {
        assert_eq!(names(line), Vec::<String>::new(), "{line}");
    }
    assert_eq!(names("apply --yes-destroy"), Vec::<String>::new(), "N2");
    let same = format!("complete --socket={socket} part show");
    let same = run_words(same.split(' ').map(OsString::from).collect());
    assert_eq!(same.out, "d0\n", "an option in one word");
    assert_eq!(names("--remote https://127.0.0.1:1 part show"), Vec::<String>::new(), "no token");
    let away = "complete --socket /nonexistent/a.sock part show".split(' ').map(OsString::from);
    let away = run_words(away.collect());
    assert_eq!((away.exit, away.out, away.err), (Exit::Done, String::new(), String::new()));
}

/// N1 of cli/complete.rs.
#[test]
fn names_that_a_shell_interprets_are_not_completed() {
    let daemon = Daemon::start();
    busy(&daemon);
    for name in ["$(reboot)", "a b", "`x`", "*", "-f", "a;b", "a'b"] {
        daemon.plant.set_extra(SystemState {
            geoms: vec![geom_state("part", name, 2, &[], name)],
            ..SystemState::default()
        });
        let words = ["complete", "--socket", &daemon.path("a.sock"), "part", "show"];
        let output = run_words(words.into_iter().map(OsString::from).collect());
        assert_eq!((output.exit, output.out), (Exit::Done, String::new()), "{name}");
    }
}
