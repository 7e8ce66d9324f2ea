//! Clients of the API, driven by the thread of a load: an open page, a scraper, and `trace`.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use bio::sync::Mutex;
use serde_json::Value;

use super::http::{Keep, Request};
use crate::error::{Error, Kind};

/// Shortest time between two views of the page (`web/src/pace.js` has the same constants).
const VIEW_INTERVAL: Duration = Duration::from_secs(2);
/// Longest time between two views.
const VIEW_INTERVAL_MAX: Duration = Duration::from_secs(60);
/// The page waits for so many times the daemon's time for its last view.
const VIEW_SHARE: u32 = 100;
/// The same before a view that it loads for events.
const EVENT_SHARE: u32 = 10;
/// From an event to the view that the page loads for it.
const EVENT_DELAY: Duration = Duration::from_millis(200);
/// Time between two looks at the stream of events.
const EVENT_LOOK: Duration = Duration::from_millis(20);
/// Pause between two scrapes.
const SCRAPE_PAUSE: Duration = Duration::from_millis(200);
/// Time between two questions of `ashlar trace`.
const TRACE_INTERVAL: Duration = Duration::from_millis(500);

/// Times of the answers of a client so far, in ms.
#[derive(Clone, Default)]
pub(super) struct Times(Arc<Mutex<Vec<f64>>>);

impl Times {
    /// Whether no answer is whole yet.
    pub fn is_empty(&self) -> bool {
        self.0.lock().is_empty()
    }

    /// Takes the times since the last call.
    pub fn take(&self) -> Vec<f64> {
        std::mem::take(&mut *self.0.lock())
    }
}

/// A client of the API.
pub(super) trait Poller: Send {
    /// Sends requests that are due, and receives bytes that are here.
    fn poll(&mut self, now: Instant) -> Result<(), Error>;
}

/// The same request again and again, each some time after the answer of the one before.
struct Repeated {
    socket: PathBuf,
    path: &'static str,
    keep: Keep,
    /// From an answer that took the daemon so long to the next request.
    pause: fn(Duration) -> Duration,
    /// When the next request is due; none: at once.
    due: Option<Instant>,
    /// End of the last answer, and the daemon's time for it.
    last: Option<(Instant, Duration)>,
    request: Option<Request>,
    times: Times,
}

impl Repeated {
    /// The body, when an answer is whole.
    fn poll_body(&mut self, now: Instant) -> Result<Option<Vec<u8>>, Error> {
        let Some(request) = &mut self.request else {
            if self.due.is_none_or(|due| now >= due) {
                self.request = Some(Request::send(&self.socket, self.path, "", self.keep)?);
            }
            return Ok(None);
        };
        let body = request.poll()?;
        if body.is_some() {
            self.times.0.lock().push(request.took().as_secs_f64() * 1e3);
            let cost = request.cost();
            self.due = Some(now + (self.pause)(cost));
            self.last = Some((now, cost));
            self.request = None;
        }
        Ok(body)
    }
}

impl Poller for Repeated {
    fn poll(&mut self, now: Instant) -> Result<(), Error> {
        self.poll_body(now).map(drop)
    }
}

pub(super) fn scraper(socket: &Path, times: Times) -> impl Poller + use<> {
    repeated(socket, "/metrics", Keep::Length, |_| SCRAPE_PAUSE, times)
}

/// `ashlar trace --slow 10ms`.
pub(super) fn trace(socket: &Path, times: Times) -> impl Poller + use<> {
    repeated(socket, "/v1/trace?slow_ns=10000000", Keep::Length, |_| TRACE_INTERVAL, times)
}

fn repeated(
    socket: &Path,
    path: &'static str,
    keep: Keep,
    pause: fn(Duration) -> Duration,
    times: Times,
) -> Repeated {
    let socket = socket.to_owned();
    Repeated { socket, path, keep, pause, due: None, last: None, request: None, times }
}

/// Pause of the page after a view that took the daemon so long.
fn view_pause(cost: Duration) -> Duration {
    cost.saturating_mul(VIEW_SHARE).clamp(VIEW_INTERVAL, VIEW_INTERVAL_MAX)
}

/// The open page: views at the pace of its script, and the stream of events since the first one.
pub(super) struct Page {
    view: Repeated,
    events: Option<Request>,
    /// The first event since the last view was requested.
    event: Option<Instant>,
    /// Bytes of the stream that have been seen.
    seen: u64,
    last_look: Option<Instant>,
}

impl Page {
    /// Opens when it is polled first.
    pub fn new(socket: &Path, times: Times) -> Page {
        let view = repeated(socket, "/v1/view", Keep::Body, view_pause, times);
        Page { view, events: None, event: None, seen: 0, last_look: None }
    }

    /// Follows the journal after the last event of the first view.
    fn open_events(&mut self, view: &[u8]) -> Result<(), Error> {
        let view: Value = serde_json::from_slice(view)
            .map_err(|e| Error::new(Kind::Protocol, format!("/v1/view: {e}")))?;
        let Some(last) = view.get("last_event").and_then(Value::as_u64) else {
            return Err(Error::new(Kind::Protocol, "/v1/view: `last_event` is missing"));
        };
        let field = format!("Last-Event-ID: {last}\r\n");
        let events = Request::send(&self.view.socket, "/v1/events", &field, Keep::Length)?;
        self.events = Some(events);
        // Later views are not parsed here: that would delay the load.
        self.view.keep = Keep::Length;
        Ok(())
    }

    /// Sends a request for a view that is due, and receives one that is here.
    fn poll_view(&mut self, now: Instant) -> Result<Option<Vec<u8>>, Error> {
        let was_sent = self.view.request.is_some();
        let view = self.view.poll_body(now)?;
        if !was_sent && self.view.request.is_some() {
            self.event = None;
        }
        Ok(view)
    }

    /// Makes the next view due earlier if there was an event.
    fn hasten(&mut self) {
        let (Some(event), Some((end, cost))) = (self.event, self.view.last) else { return };
        let soon = (event + EVENT_DELAY).max(end + cost.saturating_mul(EVENT_SHARE));
        self.view.due = self.view.due.map(|due| due.min(soon));
    }
}

impl Poller for Page {
    fn poll(&mut self, now: Instant) -> Result<(), Error> {
        let view = self.poll_view(now)?;
        let Some(events) = &mut self.events else {
            return view.map_or(Ok(()), |view| self.open_events(&view));
        };
        if self.last_look.is_some_and(|last| now < last + EVENT_LOOK) {
            return Ok(());
        }
        self.last_look = Some(now);
        if events.poll()?.is_some() {
            return Err(Error::new(Kind::Protocol, "/v1/events: the stream has ended"));
        }
        if events.body_bytes() > self.seen {
            self.seen = events.body_bytes();
            self.event.get_or_insert(now);
        }
        self.hasten();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, BufReader, Write};
    use std::os::unix::net::{UnixListener, UnixStream};

    use super::*;
    use crate::servers::Scratch;

    /// A daemon that answers each request.
    struct Fake {
        listener: UnixListener,
        _scratch: Scratch,
    }

    fn fake() -> (Fake, PathBuf) {
        let scratch = Scratch::new("poller").unwrap();
        let socket = scratch.path().join("a.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        (Fake { listener, _scratch: scratch }, socket)
    }

    impl Fake {
        /// Takes one request: its connection and its head.
        fn request(&self) -> (UnixStream, String) {
            let (stream, _) = self.listener.accept().unwrap();
            let lines = BufReader::new(&stream).lines().map(|line| line.unwrap());
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            (stream, head.join("\n"))
        }

        /// Answers one request; the head that it had.
        fn answer(&self, body: &str) -> String {
            let (mut stream, head) = self.request();
            let length = body.len();
            let head_lines = format!("content-length: {length}\r\nserver-timing: view;dur=15\r\n");
            let text = format!("HTTP/1.1 200 OK\r\n{head_lines}\r\n{body}");
            stream.write_all(text.as_bytes()).unwrap();
            head
        }

        fn has_request(&self) -> bool {
            self.listener.set_nonblocking(true).unwrap();
            let is_here = self.listener.accept().is_ok();
            self.listener.set_nonblocking(false).unwrap();
            is_here
        }
    }

    /// Polls until so many answers were received.
    fn until(poller: &mut dyn Poller, now: Instant, times: &Times, answers: usize) {
        let mut received = times.take().len();
        while received < answers {
            poller.poll(now).unwrap();
            received += times.take().len();
        }
    }

    #[test]
    fn page_loads_views_and_follows_events_as_its_script_does() {
        let (daemon, socket) = fake();
        let (times, start) = (Times::default(), Instant::now());
        let mut page = Page::new(&socket, times.clone());
        page.poll(start).unwrap();
        assert!(daemon.answer("{\"last_event\":7}").starts_with("GET /v1/view HTTP/1.1"));
        until(&mut page, start, &times, 1);
        let (mut events, head) = daemon.request();
        assert!(head.starts_with("GET /v1/events ") && head.contains("Last-Event-ID: 7"), "{head}");
        events.write_all(b"HTTP/1.1 200 OK\r\n\r\n").unwrap();
        let early = start + VIEW_INTERVAL / 2;
        page.poll(early).unwrap();
        assert!(!daemon.has_request(), "no view before its time");

        // An event: a view soon after it.
        events.write_all(b"id: 8\ndata: {}\n\n").unwrap();
        let mut now = early;
        while page.seen == 0 {
            now += EVENT_LOOK;
            page.poll(now).unwrap();
        }
        page.poll(now).unwrap();
        assert!(!daemon.has_request(), "the page waits for more events first");
        now += EVENT_DELAY;
        page.poll(now).unwrap();
        daemon.answer("not parsed");
        until(&mut page, now, &times, 1);

        // Then the next one in its time, without an event.
        now = page.view.due.expect("a time");
        page.poll(now).unwrap();
        assert!(daemon.answer("").starts_with("GET /v1/view "));
        until(&mut page, now, &times, 1);
        drop(events);
        now += EVENT_LOOK;
        let ended = page.poll(now).expect_err("the stream has ended");
        assert_eq!(ended.kind, Kind::Protocol);
    }

    #[test]
    fn page_of_a_slow_daemon_takes_a_hundredth_of_its_time() {
        let ms = Duration::from_millis;
        let pauses = [1, 50, 5000].map(|cost| view_pause(ms(cost)));
        assert_eq!(pauses, [ms(2000), ms(5000), ms(60_000)]);
    }

    #[test]
    fn views_for_events_take_a_tenth_of_the_time_of_a_slow_daemon() {
        let (ms, end) = (Duration::from_millis, Instant::now());
        let mut page = Page::new(Path::new("/nonexistent"), Times::default());
        let mut due = |cost: u64, event: u64| {
            page.view.last = Some((end, ms(cost)));
            page.view.due = Some(end + view_pause(ms(cost)));
            page.event = Some(end + ms(event));
            page.hasten();
            page.view.due.map(|due| due - end)
        };
        assert_eq!([due(1, 500), due(300, 500)], [Some(ms(700)), Some(ms(3000))]);
        assert_eq!(due(1, 4000), Some(ms(2000)), "an event does not delay a view");
    }

    #[test]
    fn scraper_and_trace_repeat_their_request_after_a_pause() {
        let (daemon, socket) = fake();
        let times = Times::default();
        let pollers: [(Box<dyn Poller>, &str, Duration); 2] = [
            (Box::new(scraper(&socket, times.clone())), "GET /metrics ", SCRAPE_PAUSE),
            (
                Box::new(trace(&socket, times.clone())),
                "GET /v1/trace?slow_ns=10000000 ",
                TRACE_INTERVAL,
            ),
        ];
        for (mut poller, begins, pause) in pollers {
            let mut now = Instant::now();
            for _ in 0..2 {
                poller.poll(now).unwrap();
                assert!(daemon.answer("x").starts_with(begins), "{begins}");
                until(poller.as_mut(), now, &times, 1);
                poller.poll(now).unwrap();
                assert!(!daemon.has_request(), "{begins}: no request before its time");
                now += pause;
            }
        }
    }
}
