//! Names with control characters, sent by hosts and clients of each protocol: they never reach the
//! log, `status` or `sessions` as they are. `nbd` has the names of exports.

use std::net::SocketAddr;

use rig::proc;
use testkit::iscsi::initiator::{Client, LoginOptions};
use testkit::nvme::{Names, Queue};

use crate::fixture::{Fixture, IQN, file_disk, has_controls, ninep};

/// Turns a terminal red, and begins a line of its own.
const HOSTILE: &str = "\u{1b}[31mred\nforged\u{7f}\u{9b}2J";

const NQN: &str = "nqn.2026-11.test.ashlar:house";

fn free_address() -> SocketAddr {
    SocketAddr::from(([127, 0, 0, 1], proc::free_port().unwrap()))
}

/// A text for people is free of them.
#[track_caller]
fn assert_plain(what: &str, text: &str) {
    assert!(!has_controls(text), "{what}: {text:?}");
    let forged = text.lines().any(|line| line.trim_start().starts_with("forged"));
    assert!(!forged, "{what} has a forged line: {text:?}");
}

#[track_caller]
fn assert_reports_are_plain(fixture: &Fixture, more: &[&[&str]]) {
    let reports: [&[&str]; 4] =
        [&["status"], &["sessions"], &["sessions", "--denied"], &["journal"]];
    for words in reports.iter().chain(more) {
        let output = fixture.ashlar(words);
        assert_plain(&output.words, &output.out);
        assert_plain(&output.words, &output.err);
    }
}

/// Ends the daemon, which logs what it has collected about its peers.
fn assert_log_is_plain(fixture: &mut Fixture) {
    fixture.assert_alive();
    fixture.stop();
    assert_plain("the log", &fixture.log());
}

#[test]
fn control_characters_in_an_iqn_are_not_printed() {
    let mut fixture = Fixture::new("hostile-iqn").with_disk(1 << 20);
    let good = "iqn.2026-11.test:host";
    let hostile = format!("iqn.2026-11.test:{HOSTILE}");
    for (initiator, target) in [(hostile.as_str(), IQN), (good, hostile.as_str())] {
        let login = LoginOptions::named(initiator, target);
        assert!(Client::try_login(fixture.portal(), &login).is_err(), "{initiator:?}, {target:?}");
        assert_reports_are_plain(&fixture, &[]);
    }
    assert!(Client::session(fixture.portal(), good, IQN).is_ok());
    assert_log_is_plain(&mut fixture);
}

#[test]
fn control_characters_in_an_nqn_are_not_printed() {
    let mut fixture = Fixture::new("hostile-nqn");
    fixture.image("d0.img", 1 << 20);
    let at = free_address();
    let target = format!(
        "[[target]]\ndriver = \"nvme_tcp\"\nname = \"{NQN}\"\nlisten = [\"{at}\"]\n\
         [[access]]\ntarget = \"{NQN}\"\ngroup = \"g\"\ninitiators = [\"*\"]\n\
         luns = {{ 0 = \"d0\" }}\n"
    );
    fixture.configure(&format!("{}{target}", file_disk("d0", "d0.img")), "");
    fixture.start();
    let names = |subsystem: &str, host: &str| Names {
        subsystem: subsystem.to_owned(),
        host: host.to_owned(),
    };
    let good = "nqn.2026-11.test:host";
    let hostile = format!("nqn.2026-11.test:{HOSTILE}");
    for wrong in [names(NQN, &hostile), names(&hostile, good)] {
        let Names { subsystem, host } = &wrong;
        assert!(Queue::refusal(at, &wrong).is_some(), "{host:?}, {subsystem:?}");
        assert_reports_are_plain(&fixture, &[]);
    }
    assert_eq!(Queue::refusal(at, &names(NQN, good)), None);
    assert_log_is_plain(&mut fixture);
}

#[test]
fn control_characters_in_a_user_of_9p_are_not_printed() {
    let mut fixture = Fixture::new("hostile-9p");
    let [strict, lenient] = [free_address(), free_address()];
    let mut disks = String::new();
    for (name, mib) in [("ssd", 48), ("worm", 128)] {
        fixture.image(&format!("{name}.img"), mib << 20);
        disks += &file_disk(name, &format!("{name}.img"));
    }
    let server = format!(
        "[[geom]]\nclass = \"fs\"\nname = \"main\"\nmembers = [\"ssd\", \"worm\"]\n\
         create = true\nplan9 = [\"{strict}\"]\nlinux = [\"{lenient}\"]\n\
         dump_at = \"never\"\n"
    );
    fixture.configure(&format!("{disks}{server}"), "");
    fixture.start();
    fixture.ok(&["fs", "newuser", "main", "rob"]);
    fixture.ok(&["fs", "trace", "main", "on"]);
    for at in [strict, lenient] {
        assert!(ninep::attach(at, HOSTILE).unwrap().is_err(), "{at}");
        let reports: [&[&str]; 2] = [&["fs", "list", "main"], &["fs", "trace", "main"]];
        assert_reports_are_plain(&fixture, &reports);
    }
    fixture.ashlar(&["fs", "trace", "main"]).ends(0).prints(&["Tattach", "[31mred"]);
    assert!(ninep::attach(strict, "rob").unwrap().is_ok());
    assert_log_is_plain(&mut fixture);
}
