//! The driver's log, kept for tests: every refusal has its reason there.

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use tracing::field::{Field, Visit};
use wire::iscsi::{NopOut, TAG_NONE, TextRequest};

use super::{Fixture, login_keys};
use crate::iscsi::breaking::twisted;
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

/// Waits for a line about `peer` that has `word` in it.
fn expect(peer: std::net::SocketAddr, word: &str) {
    let peer = peer.to_string();
    testkit::until(&format!("a line about {peer} with {word}"), || {
        lines().iter().any(|line| line.contains(&peer) && line.contains(word))
    });
}

#[test]
fn refusals_are_logged_with_the_reason() {
    keep();
    let mut house = Fixture::new();
    for (flags, text, word) in [
        (0x87, "TargetName=iqn.2026-11.test.ashlar:disk", "InitiatorName"),
        (0x87, "InitiatorName=iqn.a TargetName=iqn.b", "no such target"),
        (0x8b, "InitiatorName=iqn.a", "CSG"),
    ] {
        let mut raw = house.dial();
        raw.ask(flags, text);
        expect(raw.stream.local_addr().unwrap(), word);
    }
    let mut raw = house.dial();
    raw.stream.write_all(&[0x41; 48]).unwrap();
    expect(raw.stream.local_addr().unwrap(), "broken PDU framing");
    let mut c = house.client();
    let at = c.stream.local_addr().unwrap();
    expect(at, "logged in");
    twisted(&mut c, &NopOut::default(), &[], &[(0, 0x0e)]);
    expect(at, "opcode 0x0e refused");
    let mut pdu = c.command(0, &rw10(0x28, 0, 1), 512, 0);
    pdu.task_tag = TAG_NONE;
    c.send(&pdu, &[]);
    expect(at, "tag");
    let text = TextRequest {
        immediate: true,
        last: true,
        task_tag: 7,
        target_tag: 3,
        ..Default::default()
    };
    c.send(&text, &[]);
    expect(at, "target transfer tag");
    let mut raw = house.dial();
    raw.ask(0x00, &login_keys());
    drop(raw);
    drop(c);
    // Unread answers make it a reset.
    expect(at, "connection");
    house.well("refusals");
}
