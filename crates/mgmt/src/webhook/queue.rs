//! Queue of one webhook: events that wait for their delivery, and its state.
//!
//! Invariants
//!  W1  At most [`EVENTS_MAX`] events wait. A further one drops the oldest that is not under
//!      delivery, and the state counts it.
//!  W2  An event leaves the queue when its delivery has succeeded or is given up, not before: an
//!      edit of the section delivers it again.

use super::delivery::Message;
use crate::api::WebhookState;
use crate::config::{WebhookConfig, WebhookFiles};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use tokio::sync::{Notify, OnceCell};

/// Events that wait at most.
const EVENTS_MAX: usize = 256;

/// See the module.
pub(super) struct Queue {
    pub(super) config: WebhookConfig,
    /// How often its files were to be read again.
    renewals: u64,
    /// Its files, once they could be read.
    pub(super) files: OnceCell<WebhookFiles>,
    inner: Mutex<Inner>,
    pushed: Notify,
}

#[derive(Clone, Default)]
struct Inner {
    messages: VecDeque<Message>,
    /// The first message is under delivery.
    is_sending: bool,
    state: WebhookState,
}

impl Queue {
    /// An empty queue, or one with the events of a queue before it.
    pub(super) fn new(config: WebhookConfig, renewals: u64, before: Option<&Queue>) -> Queue {
        let mut inner = before.map(|queue| queue.lock().clone()).unwrap_or_default();
        inner.is_sending = false;
        inner.state.name.clone_from(&config.name);
        inner.state.server = config.address().map(|at| at.url.to_string()).unwrap_or_default();
        let (inner, pushed) = (Mutex::new(inner), Notify::new());
        Queue { config, renewals, files: OnceCell::new(), inner, pushed }
    }

    /// Whether it is that of a section whose files were to be read again so often.
    pub(super) fn is_for(&self, config: &WebhookConfig, renewals: u64) -> bool {
        self.config == *config && self.renewals == renewals
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        // Every change is complete before the guard is dropped.
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds an event; never waits for a delivery.
    pub(super) fn push(&self, message: Message) {
        let mut inner = self.lock();
        if inner.messages.len() >= EVENTS_MAX {
            let oldest = usize::from(inner.is_sending);
            inner.messages.remove(oldest);
            inner.state.dropped += 1;
        }
        inner.messages.push_back(message);
        drop(inner);
        self.pushed.notify_one();
    }

    /// The oldest event, once there is one. It stays in the queue.
    pub(super) async fn first(&self) -> Message {
        loop {
            if let Some(message) = self.begin() {
                return message;
            }
            self.pushed.notified().await;
        }
    }

    fn begin(&self) -> Option<Message> {
        let mut inner = self.lock();
        let message = inner.messages.front().cloned()?;
        inner.is_sending = true;
        Some(message)
    }

    /// The event that [`Queue::first`] returned was delivered.
    pub(super) fn note_delivered(&self, unix_s: u64) {
        let mut inner = self.lock();
        inner.messages.pop_front();
        inner.is_sending = false;
        inner.state.delivered += 1;
        inner.state.delivered_at = unix_s;
        let server = format!("webhook {}: {}", inner.state.name, inner.state.server);
        if !std::mem::take(&mut inner.state.failure).is_empty() {
            tracing::info!("{server} accepts events again");
        }
    }

    /// An attempt to deliver it has failed; `is_last`: there will be no other.
    pub(super) fn note_failed(&self, why: String, unix_s: u64, is_last: bool) {
        let mut inner = self.lock();
        if inner.state.failure != why {
            tracing::warn!("webhook {}: {}: {why}", inner.state.name, inner.state.server);
        }
        inner.state.failure = why;
        inner.state.failures += 1;
        inner.state.failed_at = unix_s;
        if is_last {
            inner.messages.pop_front();
            inner.is_sending = false;
            inner.state.dropped += 1;
        }
    }

    pub(super) fn state(&self) -> WebhookState {
        let inner = self.lock();
        let waiting = u64::try_from(inner.messages.len()).unwrap_or(u64::MAX);
        WebhookState { waiting, ..inner.state.clone() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Level;

    fn queue(before: Option<&Queue>) -> Queue {
        let config = WebhookConfig {
            name: "a".to_owned(),
            url: "https://alerts.example/hook".to_owned(),
            level: Level::Info,
            events: Vec::new(),
            secret: None,
            tls_ca: None,
        };
        Queue::new(config, 0, before)
    }

    fn message(n: usize) -> Message {
        Message { id: n.to_string(), body: Vec::new().into() }
    }

    #[test]
    fn w1_full_queue_drops_the_oldest_event_that_is_not_under_delivery() {
        let queue = queue(None);
        queue.push(message(0));
        assert_eq!(queue.begin().expect("an event").id, "0");
        (1..=EVENTS_MAX).for_each(|n| queue.push(message(n)));
        let state = queue.state();
        assert_eq!((state.waiting, state.dropped), (EVENTS_MAX as u64, 1));
        queue.note_delivered(7);
        assert_eq!(queue.begin().expect("an event").id, "2", "the first one was delivered");
        let state = queue.state();
        assert_eq!((state.delivered, state.delivered_at), (1, 7));
        assert_eq!(state.server, "https://alerts.example:443", "the path may be a secret");
    }

    #[test]
    fn w2_event_under_delivery_is_delivered_again_after_an_edit() {
        let first = queue(None);
        first.push(message(5));
        assert!(first.begin().is_some());
        first.note_failed("no answer".to_owned(), 9, false);
        let second = queue(Some(&first));
        assert_eq!(second.state().failure, "no answer");
        assert_eq!(second.begin().expect("an event").id, "5");
        second.note_failed("HTTP status 410".to_owned(), 10, true);
        let state = second.state();
        assert_eq!((state.waiting, state.dropped, state.failed_at), (0, 1, 10));
        assert_eq!(state.failures, 2, "each attempt is counted");
    }
}
