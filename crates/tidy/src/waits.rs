//! Waits of tests: none sleeps for a condition, and none fails because a machine is slow.
//!
//! A test waits by `testkit::until`. Measured time may be compared with the limit of a wait that
//! never ends, whose name is `HANG` or ends with `LIMIT`, and with a time that a wait must take at
//! least.

use std::collections::BTreeSet;

use crate::source::{Source, Tree};

/// Files whose tests sleep, with the reason of each.
const SLEEPS: &[(&str, &str)] = &[
    ("crates/testkit/src/wait.rs", "the wait for a condition"),
    ("crates/ashlar/tests/live/fixture/mod.rs", "the same, with the daemon's log"),
    ("crates/ashlar/tests/live/fixture/bench.rs", "the same for a load, with its output"),
    ("crates/ashlar/tests/live/fixture/writer.rs", "repeats a login or command that is refused"),
    ("crates/ashlar/tests/live/live/load.rs", "the wait for a condition, with lists of arrays"),
    ("crates/ashlar/tests/live/live_classes.rs", "the same"),
    ("crates/ashlar/tests/live/manual.rs", "repeats a command of a page until it prints enough"),
    ("crates/ashlar/tests/live/bad_days.rs", "watches that a disk stays away, and memory"),
    ("crates/ashlar/tests/live/aoe_initiator.rs", "no command shows that a core read the MTU"),
    ("crates/ashlar/tests/live/local_bus.rs", "no command shows that a scan has ended"),
    ("crates/ashlar/tests/live/fileserver.rs", "reads frames without blocking"),
    ("crates/ashlar/tests/live/cam_resets.rs", "the pace of resets"),
    ("crates/ashlar/tests/live/nbd_disk.rs", "the pace of a slow server"),
    ("crates/ashlar/tests/live/real_boot.rs", "how long a daemon is down"),
    ("crates/ashlar/tests/live/real_kernel.rs", "how long a daemon is down"),
    ("crates/ashlar/tests/live/real_multipath.rs", "how long a daemon is down"),
    ("crates/ashlar/tests/live/restart.rs", "how long a daemon is down"),
    ("crates/rig/tests/suite/guest.rs", "how long a peer is down"),
    ("crates/rig/src/proc.rs", "polls processes of others"),
    ("crates/rig/src/peer.rs", "polls a peer that starts"),
    ("crates/rig/src/papers.rs", "a certificate expires"),
    ("crates/rig/src/relay.rs", "polls connections"),
    ("crates/bench/src/bare/mod.rs", "polls a responder that starts"),
    ("crates/daemon/src/journal.rs", "a reader that never pauses keeps the lock"),
    ("crates/daemon/tests/suite/starts.rs", "repeats a login until a unit is served"),
    ("crates/drivers/tests/suite/common/fd_exhaustion.rs", "processor time of an idle server"),
    ("crates/drivers/tests/suite/iscsi/limits.rs", "the pace of a peer"),
    ("crates/drivers/tests/suite/nbd/hostile.rs", "the pace of a peer"),
    ("crates/reactor/src/backend/uring.rs", "a peer reads late, so that its socket is full"),
    ("crates/reactor/tests/suite/ports/mail.rs", "the reactor sleeps before a message is sent"),
    ("crates/reactor/tests/suite/ports/sockets.rs", "segments are sent one by one"),
    ("crates/transport/src/unix_sockets.rs", "the holder of a lock keeps others waiting"),
];

/// Files whose tests judge measured time, with the reason of each.
const DURATIONS: &[(&str, &str)] = &[
    ("crates/ashlar/tests/live/load.rs", "growth of memory in that time"),
    ("crates/ashlar/tests/live/processes.rs", "requests that a limit allows in that time"),
];

/// Longest assertion that is read, lines.
const ASSERTION_LINES_MAX: usize = 10;

/// Every sleep and every assertion about measured time in tests of files that are not listed, and
/// every listed file that has none, as `FILE:LINE: fault`.
pub fn bad_waits(tree: &Tree) -> Vec<String> {
    let mut out = unlisted(tree, SLEEPS, DURATIONS);
    out.extend(stale(tree, SLEEPS, sleeps));
    out.extend(stale(tree, DURATIONS, judgements));
    out
}

/// Files, with the reason of each.
type Listed = [(&'static str, &'static str)];

/// Listed files without such a line.
fn stale(tree: &Tree, list: &Listed, lines_of: fn(&Lines) -> Vec<usize>) -> Vec<String> {
    let has_none = |path: &str| {
        let source = tree.sources.iter().find(|source| source.path == path);
        source.is_none_or(|source| lines_of(&test_lines(source)).is_empty())
    };
    let stale = list.iter().filter(|(path, _)| has_none(path));
    stale.map(|(path, _)| format!("{path}:1: has no such line: remove it from waits.rs")).collect()
}

/// The faults of files that these lists do not name.
fn unlisted(tree: &Tree, may_sleep: &Listed, may_judge: &Listed) -> Vec<String> {
    let mut out = Vec::new();
    for source in &tree.sources {
        let lines = test_lines(source);
        let is_in = |list: &Listed| list.iter().any(|(path, _)| *path == source.path);
        let mut report = |numbers: Vec<usize>, fault: &str| {
            out.extend(numbers.iter().map(|n| format!("{}:{n}: {fault}", source.path)));
        };
        if !is_in(may_sleep) {
            report(sleeps(&lines), "a test sleeps: wait for a condition by testkit::until");
        }
        if !is_in(may_judge) {
            report(judgements(&lines), "a test judges measured time: a slow machine fails it");
        }
    }
    out
}

/// Numbered lines of code, without literals and comments.
type Lines = [(usize, String)];

/// Lines that only tests use: the tools for tests contain nothing else.
fn test_lines(source: &Source) -> Vec<(usize, String)> {
    let is_test = source.is_test() || matches!(source.krate(), "rig" | "testkit");
    let product: BTreeSet<usize> = match is_test {
        true => BTreeSet::new(),
        false => source.product_lines().into_iter().map(|(n, _)| n).collect(),
    };
    let numbered = (1..).zip(source.text.lines()).filter(|(n, _)| !product.contains(n));
    numbered.map(|(n, line)| (n, code_of(line))).collect()
}

fn code_of(line: &str) -> String {
    let (mut out, mut is_text) = (String::new(), false);
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' if is_text => {
                chars.next();
            }
            '"' => is_text = !is_text,
            '/' if !is_text && chars.peek() == Some(&'/') => break,
            c if !is_text => out.push(c),
            _ => {}
        }
    }
    out
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
}

/// Lines that sleep, or import the function that does.
fn sleeps(lines: &Lines) -> Vec<usize> {
    let is_sleep = |line: &str| {
        let imports = line.starts_with("use std::thread::{");
        line.contains("thread::sleep") || imports && words(line).any(|word| word == "sleep")
    };
    lines.iter().filter(|(_, line)| is_sleep(line)).map(|(n, _)| *n).collect()
}

/// First lines of assertions about measured time, other than the limits of waits.
fn judgements(lines: &Lines) -> Vec<usize> {
    let times: BTreeSet<&str> = lines.iter().filter_map(|(_, line)| time_name(line)).collect();
    let (mut out, mut at) = (Vec::new(), 0);
    while let Some((number, line)) = lines.get(at) {
        at += 1;
        if !line.contains("assert") || !line.contains("!(") {
            continue;
        }
        let (mut whole, end) = (line.clone(), at + ASSERTION_LINES_MAX);
        while is_open(&whole) && at < end {
            let Some((_, more)) = lines.get(at) else { break };
            whole.push_str(more);
            at += 1;
        }
        let is_time = words(&whole).any(|word| times.contains(word));
        if is_time || !has_limits_only(&whole) {
            out.push(*number);
        }
    }
    out
}

fn is_open(text: &str) -> bool {
    text.matches('(').count() > text.matches(')').count()
}

/// The name that a line gives to measured time.
fn time_name(line: &str) -> Option<&str> {
    let (name, value) = line.split_once(" = ")?;
    let name = name.trim().trim_start_matches("let ").trim_start_matches("mut ");
    let is_name = !name.is_empty() && words(name).nth(1).is_none();
    (is_name && !has_limits_only(value)).then_some(name)
}

/// Whether all measured time in an expression is compared with limits of waits, or with a time that
/// a wait must take at least.
fn has_limits_only(expression: &str) -> bool {
    expression.split("elapsed()").skip(1).all(|rest| {
        let rest = rest.trim_start();
        let limit = rest.strip_prefix("< ").or_else(|| rest.strip_prefix("> "));
        let name = limit.and_then(|limit| words(limit).next()).unwrap_or("");
        let name = name.to_ascii_uppercase();
        rest.starts_with(">= ") || name.ends_with("LIMIT") || name == "HANG"
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(path: &str, text: &str) -> Vec<String> {
        let sources = vec![Source { path: path.into(), text: text.into() }];
        unlisted(&Tree { sources, manifests: Vec::new() }, &[("a/tests/b.rs", "x")], &[])
    }

    #[test]
    fn sleep_of_a_test_is_found() {
        let sleep = "fn f() {\n    std::thread::sleep(PAUSE);\n}\n";
        let found = faults("crates/geom/tests/a.rs", sleep);
        assert!(found.len() == 1 && found[0].starts_with("crates/geom/tests/a.rs:2: "));
        assert_eq!(faults("crates/rig/src/a.rs", "use std::thread::{spawn, sleep};\n").len(), 1);
        let module = format!("#[cfg(test)]\nmod tests {{\n{sleep}}}\n");
        assert_eq!(faults("crates/geom/src/a.rs", &module).len(), 1);
        for (path, text) in [
            ("crates/geom/src/a.rs", sleep),
            ("a/tests/b.rs", sleep),
            ("crates/geom/tests/a.rs", "// thread::sleep\nlet x = \"\\\" thread::sleep\";\n"),
            ("crates/geom/tests/a.rs", "reactor.sleep(5).await;\n"),
        ] {
            assert_eq!(faults(path, text), Vec::<String>::new(), "{text}");
        }
    }

    #[test]
    fn assertion_about_measured_time_is_found() {
        let found = |text: &str| faults("crates/geom/tests/a.rs", text).len();
        for text in [
            "assert!(start.elapsed() < Duration::from_secs(5));\n",
            "assert!(start.elapsed() < SOON);\n",
            "let took = start.elapsed();\nassert!(\n    took < SOON,\n    \"late\"\n);\n",
            "longest = longest.max(at.elapsed());\nassert_eq!(longest, SOON);\n",
            "assert!(start.elapsed() >= SOON && start.elapsed() < LATE);\n",
        ] {
            assert_eq!(found(text), 1, "{text}");
        }
        for text in [
            "assert!(start.elapsed() < LOGIN_LIMIT, \"{:?}\", 1);\n",
            "assert!(\n    begun.elapsed() < limit,\n    \"not within {limit:?}\"\n);\n",
            "let late = start.elapsed() > LIMIT;\nassert!(!late);\n",
            "assert!(start.elapsed() >= Duration::from_millis(4));\n",
            "let took = start.elapsed();\nprintln!(\"{took:?}\");\nassert!(is_over);\n",
            "while begun.elapsed() < TIME {\n    work();\n}\nassert!(is_over);\n",
        ] {
            assert_eq!(found(text), 0, "{text}");
        }
    }
}
