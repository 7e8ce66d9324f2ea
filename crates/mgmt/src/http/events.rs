//! The journal as server-sent events (HTML Living Standard, 9.2).

use super::body::Body;
use crate::plant::Plant;
use crate::service::Control;
use hyper::HeaderMap;
use hyper::body::Bytes;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::mpsc;

/// Interval at which the journal is read for listening clients.
const INTERVAL: Duration = Duration::from_millis(250);

/// Events sent at once.
const EVENTS_MAX: usize = 1000;

/// Events on their way to a slow reader. The stream then waits for the reader.
const QUEUED_MAX: usize = 64;

/// The last event that a client has seen; 0: none. A browser that reconnects repeats its first URL
/// and adds the field `Last-Event-ID`, so the field precedes `after` of the query.
pub(super) fn last_seen(query: Option<&str>, headers: &HeaderMap) -> u64 {
    let field = headers.get("last-event-id").and_then(|value| value.to_str().ok()?.parse().ok());
    let mut pairs = query.unwrap_or_default().split('&');
    field.or_else(|| pairs.find_map(|pair| pair.strip_prefix("after=")?.parse().ok())).unwrap_or(0)
}

/// Event after which a stream begins for a client whose last event is `last`. 0 if this daemon has
/// no event as new as `last`, which then is an event of the daemon before a restart.
fn first_after(plant: &dyn Plant, last: u64) -> u64 {
    let is_known = last == 0 || !plant.journal(last - 1, 1).is_empty();
    if is_known { last } else { 0 }
}

/// The journal after an event, for as long as the client listens and `is_allowed`: the stream of a
/// revoked token ends.
pub(super) fn events(
    control: Arc<Control>,
    after: u64,
    is_allowed: impl Fn(&Control) -> bool + Send + 'static,
) -> Body {
    let (sender, receiver) = mpsc::channel(QUEUED_MAX);
    tokio::spawn(async move {
        let from = control.clone();
        let begin = tokio::task::spawn_blocking(move || first_after(from.plant(), after));
        let mut after = begin.await.unwrap_or(after);
        while !sender.is_closed() && is_allowed(&control) {
            let from = control.clone();
            let read = move || from.journal_part(after, EVENTS_MAX);
            let read = tokio::task::spawn_blocking(read).await;
            let (events, examined) = read.unwrap_or((Vec::new(), after));
            for event in events {
                let text = format!("id: {}\ndata: {}\n\n", event.id, json!(event));
                if sender.send(Bytes::from(text)).await.is_err() {
                    return;
                }
            }
            // Events that a limited caller does not see are not examined again.
            after = examined;
            tokio::time::sleep(INTERVAL).await;
        }
    });
    Body::Lines(receiver)
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::HeaderValue;

    #[test]
    fn stream_resumes_after_the_last_event_that_was_seen() {
        let mut headers = HeaderMap::new();
        assert_eq!(last_seen(None, &headers), 0);
        assert_eq!(last_seen(Some("x=1&after=7"), &headers), 7);
        assert_eq!(last_seen(Some("after=x"), &headers), 0);
        headers.insert("last-event-id", HeaderValue::from_static("12"));
        assert_eq!(last_seen(Some("after=7"), &headers), 12, "a browser repeats its first URL");
        headers.insert("last-event-id", HeaderValue::from_static("x"));
        assert_eq!(last_seen(Some("after=7"), &headers), 7);
    }
}
