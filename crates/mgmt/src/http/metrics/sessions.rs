//! Series of sessions. Sessions of one initiator and host are counted as one: a series may occur
//! only once.

use super::families::metric;
use super::page::{Label, Page};
use crate::api::{Stats, TargetState};
use reactor::Address;
use std::collections::BTreeMap;

#[derive(Default)]
struct SessionSum {
    outstanding: u64,
    window: u64,
    share: Option<u64>,
    stats: Stats,
}

/// An address of an initiator without its port, which is another one after each login.
fn host(address: &str) -> String {
    address.parse::<Address>().map_or_else(|_| address.to_owned(), |at| at.host())
}

/// Sessions of a target, by initiator and host.
pub(super) struct SessionSums<'a> {
    target: &'a TargetState,
    all: BTreeMap<(&'a str, String), SessionSum>,
}

impl<'a> SessionSums<'a> {
    pub(super) fn of(target: &'a TargetState) -> SessionSums<'a> {
        let mut all: BTreeMap<(&str, String), SessionSum> = BTreeMap::new();
        for s in &target.sessions {
            let sum = all.entry((s.initiator.as_str(), host(&s.address))).or_default();
            sum.outstanding = sum.outstanding.saturating_add(s.commands_outstanding);
            sum.window = sum.window.saturating_add(u64::from(s.window));
            if let Some(share) = s.share {
                sum.share = Some(sum.share.unwrap_or(0).saturating_add(u64::from(share)));
            }
            sum.stats = sum.stats.plus(&s.stats);
        }
        SessionSums { target, all }
    }

    fn labelled(&self) -> impl Iterator<Item = ([Label<'_>; 4], &SessionSum)> {
        let target: [Label<'_>; 2] =
            [("target", self.target.name.as_str()), ("driver", &self.target.driver)];
        self.all.iter().map(move |((initiator, address), sum)| {
            let labels =
                [target[0], target[1], ("initiator", *initiator), ("address", address.as_str())];
            (labels, sum)
        })
    }

    pub(super) fn counters(&self, page: &mut Page) {
        for (who, sum) in self.labelled() {
            let mut session = page.object(&who);
            session.add(metric!("ashlar_session_in_flight"), sum.outstanding);
            session.add(metric!("ashlar_session_window"), sum.window);
            if let Some(share) = sum.share {
                session.add(metric!("ashlar_session_share"), share);
            }
            if sum.stats.ops() == 0 {
                continue;
            }
            for (op, stats) in sum.stats.kinds() {
                let op = ("op", op);
                session.add_with(metric!("ashlar_session_requests_total"), op, stats.ops);
                session.add_with(metric!("ashlar_session_bytes_total"), op, stats.bytes);
            }
        }
    }

    pub(super) fn latency(&self, page: &mut Page) {
        for (who, sum) in self.labelled() {
            page.object(&who).latency(metric!("ashlar_session_latency_seconds"), &sum.stats);
        }
    }
}
