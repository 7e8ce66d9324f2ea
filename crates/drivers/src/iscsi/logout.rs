//! Logout of a session or connection: commands under way end, the response leaves, then the
//! connection closes.

use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use wire::iscsi::{LogoutAnswer, LogoutReason, LogoutRequest, LogoutResponse};

use super::close_reason::CloseReason;
use super::session::IscsiSession;

/// How long commands with all their data may continue after a logout, ns; then they are aborted.
const GRACE_NS: u64 = 2_000_000_000;

/// How long the abort of the rest may take, ns; then the answer reports that cleaning up failed.
const CLEANUP_NS: u64 = 10_000_000_000;

/// Seconds that an initiator should wait before it logs in again.
const TIME2WAIT_S: u16 = 2;

pub(crate) async fn run(
    session: &Rc<IscsiSession>,
    pdu: &LogoutRequest,
) -> Result<(), CloseReason> {
    let ours = pdu.reason == LogoutReason::Session || pdu.cid == session.cid;
    let refused = match pdu.reason {
        LogoutReason::Recovery => Some(LogoutAnswer::RecoveryUnsupported),
        _ if !ours => Some(LogoutAnswer::NoConnection),
        _ => None,
    };
    if let Some(answer) = refused {
        answer_with(session, pdu, answer);
        return Ok(());
    }
    let reactor = session.conn.core.reactor.clone();
    let mut answer = LogoutAnswer::Closed;
    if let Some(nexus) = session.nexus() {
        reactor.within(GRACE_NS, quiet(session)).await;
        nexus.close();
        if reactor.within(CLEANUP_NS, session.wait_ended()).await.is_none() {
            answer = LogoutAnswer::CleanupFailed;
        }
    }
    answer_with(session, pdu, answer);
    Err(CloseReason::Logout)
}

/// Waits until every command that has its data has been answered.
async fn quiet(session: &IscsiSession) {
    poll_fn(|_| {
        let tasks = session.tasks.borrow();
        let awaited = tasks.values().filter(|t| t.incoming.is_some()).count();
        match awaited == session.open_commands() {
            true => Poll::Ready(()),
            false => Poll::Pending,
        }
    })
    .await;
}

fn answer_with(session: &IscsiSession, pdu: &LogoutRequest, answer: LogoutAnswer) {
    let response = LogoutResponse {
        answer,
        task_tag: pdu.task_tag,
        sn: session.numbers(true),
        time2wait_s: TIME2WAIT_S,
        time2retain_s: 0,
    };
    session.send(&response, &[]);
}
