//! The driver's log, kept for tests: every refusal has its reason there.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use drivers::TargetSpec;
use tracing::field::{Field, Visit};
use wire::iscsi::{NopOut, TAG_NONE, TextRequest};

use super::{Fixture, login_keys};
use crate::iscsi::breaking::twisted;
use crate::iscsi::server::IQN;
use testkit::iscsi::initiator::rw10;

static LINES: Mutex<Vec<String>> = Mutex::new(Vec::new());

fn lines() -> MutexGuard<'static, Vec<String>> {
    LINES.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Journal;

struct LogLine(String);

impl Visit for LogLine {
    fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
        if field.name() == "message" {
            let _ = write!(self.0, "{value:?}");
        }
    }
}

impl tracing::Subscriber for Journal {
    fn enabled(&self, metadata: &tracing::Metadata<'_>) -> bool {
        metadata.target() == "iscsi" && *metadata.level() <= tracing::Level::INFO
    }

    fn new_span(&self, _: &tracing::span::Attributes<'_>) -> tracing::span::Id {
        tracing::span::Id::from_u64(1)
    }

    fn record(&self, _: &tracing::span::Id, _: &tracing::span::Record<'_>) {}

    fn record_follows_from(&self, _: &tracing::span::Id, _: &tracing::span::Id) {}

    fn event(&self, event: &tracing::Event<'_>) {
        let mut line = LogLine(String::new());
        event.record(&mut line);
        lines().push(line.0);
    }

    fn enter(&self, _: &tracing::span::Id) {}

    fn exit(&self, _: &tracing::span::Id) {}
}

fn keep() {
    static KEPT: OnceLock<()> = OnceLock::new();
    KEPT.get_or_init(|| tracing::subscriber::set_global_default(Journal).unwrap());
}

/// Host of all peers here.
const HOST: &str = "127.0.0.1";

/// The server ends and logs what it has collected about its peers: one line with every text.
#[track_caller]
fn expect_collected(fixture: Fixture, texts: &[&str]) {
    drop(fixture);
    let head = format!("{HOST}: ");
    let is_it = |line: &String| line.starts_with(&head) && texts.iter().all(|t| line.contains(t));
    let lines = lines();
    assert!(lines.iter().any(is_it), "no line with all of {texts:?}: {lines:#?}");
}

#[test]
fn refusals_are_logged_with_the_reason() {
    keep();
    let mut fixture = Fixture::new();
    for (flags, text) in [
        (0x87, "TargetName=iqn.2026-11.test.ashlar:disk"),
        (0x87, "InitiatorName=iqn.a TargetName=iqn.b"),
        (0x8b, "InitiatorName=iqn.a"),
    ] {
        let mut raw = fixture.dial();
        raw.ask(flags, text);
        assert!(raw.is_closed(), "{text}");
    }
    let mut raw = fixture.dial();
    raw.stream.write_all(&[0x41; 48]).unwrap();
    assert!(raw.is_closed(), "bad framing");
    let mut c = fixture.client();
    twisted(&mut c, &NopOut::default(), &[], &[(0, 0x0e)]);
    let mut pdu = c.command(0, &rw10(0x28, 0, 1), 512, 0);
    pdu.task_tag = TAG_NONE;
    c.send(&pdu, &[]);
    let text = TextRequest {
        immediate: true,
        last: true,
        task_tag: 7,
        target_tag: 3,
        ..Default::default()
    };
    c.send(&text, &[]);
    (0..3).for_each(|_| drop(c.rejected()));
    let mut raw = fixture.dial();
    raw.ask(0x00, &login_keys());
    drop(raw);
    drop(c);
    fixture.well("refusals");
    let texts = [
        "InitiatorName",
        "login of iqn.a to iqn.b refused: there is no such target",
        "CSG",
        "broken PDU framing",
        "logged in",
        "opcode 0x0e refused",
        "tag 0xffffffff",
        "target transfer tag",
        "closed the connection",
    ];
    expect_collected(fixture, &texts);
}

#[test]
fn target_of_another_portal_is_logged_as_absent_not_as_hidden() {
    const ELSEWHERE: &str = "iqn.2026-11.test.ashlar:elsewhere";
    keep();
    let mut fixture = Fixture::new();
    let listen = vec!["127.0.0.2:3260".parse().unwrap()];
    let spec = TargetSpec { name: ELSEWHERE.into(), listen, ..TargetSpec::default() };
    fixture.server.driver.set_target(spec).unwrap();
    let keys = format!("InitiatorName=iqn.stranger TargetName={ELSEWHERE}");
    assert_eq!(fixture.dial().status(0x87, &keys), 0x0203);
    // A target of this portal whose group does not admit the initiator.
    fixture.server.allow(&["iqn.2026-11.test.ashlar:witness"]);
    let keys = format!("InitiatorName=iqn.stranger TargetName={IQN}");
    assert_eq!(fixture.dial().status(0x87, &keys), 0x0203);
    fixture.well("refusals");
    let texts = [
        &format!("login of iqn.stranger to {ELSEWHERE} refused: there is no such target"),
        &format!("login of iqn.stranger to {IQN} refused: no access group"),
    ];
    expect_collected(fixture, &texts.map(String::as_str));
}
