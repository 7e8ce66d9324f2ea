//! Delivery of events to the servers of `[[webhook]]`, by a thread of its own.
//!
//! The thread follows the running configuration and the journal, as streams of events do: neither
//! the control thread nor a core waits for a server. An event is delivered at least once while the
//! daemon runs; its id lets a server recognise repetitions. The files of a section are read when it
//! or its files are applied, and not for each delivery.

mod delivery;
mod queue;
mod signature;

use crate::api::Event;
use crate::config::WebhookConfig;
use crate::plan::FileSection;
use crate::service::Control;
use crate::text;
use delivery::{Message, deliver, load_files};
use queue::Queue;
use serde_json::json;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;
use tokio::task::AbortHandle;
use tokio::time::Instant;

/// Interval at which the configuration and the journal are read.
const INTERVAL: Duration = Duration::from_millis(250);

/// Events read at once.
const EVENTS_READ: usize = 1000;

/// Shortest and longest pause before an event is sent again; it doubles with each attempt.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(300));

/// How long the delivery of one event is tried.
const RETRY_MAX: Duration = Duration::from_secs(24 * 3600);

fn unix_s() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The thread of the deliveries. It ends when this value is dropped.
pub(crate) struct Webhooks {
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Drop for Webhooks {
    fn drop(&mut self) {
        drop(self.stop.take());
        // A thread that panicked has ended too.
        let _ = self.thread.take().map(JoinHandle::join);
    }
}

impl Webhooks {
    /// Starts the thread. Without it, events are not delivered, and the log reports it.
    pub(crate) fn start(control: Arc<Control>) -> Webhooks {
        let (stop, stopped) = oneshot::channel();
        let run = move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            match runtime {
                Ok(runtime) => {
                    runtime.block_on(follow(&control, stopped));
                    // Neither a name server nor a file that hangs delays the stop.
                    runtime.shutdown_background();
                }
                Err(e) => tracing::error!("webhooks: no event is delivered: {e}"),
            }
        };
        let thread = std::thread::Builder::new().name("webhooks".into()).spawn(run);
        let thread = thread.map_err(|e| tracing::error!("webhooks: no event is delivered: {e}"));
        Webhooks { stop: Some(stop), thread: thread.ok() }
    }
}

/// The queues with the tasks that empty them, by the names of the webhooks.
#[derive(Default)]
struct Hooks(BTreeMap<String, (Arc<Queue>, AbortHandle)>);

impl Hooks {
    /// Follows the configuration. A webhook whose section differs keeps its events, and one whose
    /// files are to be read again too: `renewals` counts it.
    fn set(&mut self, wanted: Vec<WebhookConfig>, renewals: impl Fn(&str) -> u64) {
        let mut before = std::mem::take(&mut self.0);
        for config in wanted {
            let name = config.name.clone();
            let (former, renewals) = (before.remove(&name), renewals(&name));
            let entry = match former {
                Some((queue, task)) if queue.is_for(&config, renewals) => (queue, task),
                former => {
                    let former = former.map(|(queue, task)| {
                        task.abort();
                        queue
                    });
                    let queue = Arc::new(Queue::new(config, renewals, former.as_deref()));
                    let task = tokio::spawn(send_all(queue.clone())).abort_handle();
                    (queue, task)
                }
            };
            self.0.insert(name, entry);
        }
        before.into_values().for_each(|(_, task)| task.abort());
    }

    fn queues(&self) -> impl Iterator<Item = &Arc<Queue>> {
        self.0.values().map(|(queue, _)| queue)
    }
}

/// Passes events to the queues until `stopped`.
async fn follow(control: &Control, mut stopped: oneshot::Receiver<()>) {
    let source = Source::new();
    let (mut hooks, mut after) = (Hooks::default(), 0);
    loop {
        // The configuration first: a webhook receives the events after its step.
        let renewals = |name: &str| control.renewals(&FileSection::Webhook(name.to_owned()));
        hooks.set(control.webhooks(), renewals);
        for event in control.plant().journal(after, EVENTS_READ) {
            after = after.max(event.id);
            let is_for = |queue: &&Arc<Queue>| queue.config.selects(&event);
            hooks.queues().filter(is_for).for_each(|queue| queue.push(source.message(&event)));
        }
        control.set_webhook_states(hooks.queues().map(|queue| queue.state()).collect());
        tokio::select! {
            _ = &mut stopped => return,
            () = tokio::time::sleep(INTERVAL) => {}
        }
    }
}

/// Fields that all events of this start of the daemon have in common.
struct Source {
    host: String,
    /// Of this start of the daemon: ids of events begin anew with each.
    start: String,
}

impl Source {
    fn new() -> Source {
        let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
        let start = format!("{:x}-{:x}", unix_s(), std::process::id());
        Source { host: host.trim().to_owned(), start }
    }

    fn message(&self, event: &Event) -> Message {
        let body = json!({
            "type": "event",
            "timestamp": text::utc(unix_s()),
            "host": self.host,
            "data": event,
        });
        Message { id: format!("{}-{}", self.start, event.id), body: body.to_string().into() }
    }
}

/// Delivers the events of a queue one after the other.
async fn send_all(queue: Arc<Queue>) {
    load_files(&queue).await;
    loop {
        let message = queue.first().await;
        let (begun, mut pause) = (Instant::now(), PAUSES.0);
        loop {
            let Err(failure) = deliver(&queue.config, &queue.files, &message).await else {
                queue.note_delivered(unix_s());
                break;
            };
            let is_last = failure.is_final || begun.elapsed() >= RETRY_MAX;
            queue.note_failed(failure.why, unix_s(), is_last);
            if is_last {
                break;
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(PAUSES.1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{Config, read};
    use crate::fake::{FakePlant, catalog, control};
    use crate::plan::Risk;
    use serde_json::Value;
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::mpsc;
    use testkit::Folder;

    fn config(url: &str, keys: &str) -> Config {
        let text = format!("[[webhook]]\nname = 'a'\nurl = '{url}'\n{keys}");
        read(&text, "/etc/a.toml", &catalog()).expect("well-formed")
    }

    /// The body of a request; it is answered.
    fn receive(mut stream: TcpStream) -> Value {
        let (mut request, mut bytes) = (Vec::new(), [0; 4096]);
        loop {
            let n = stream.read(&mut bytes).expect("a request");
            request.extend_from_slice(&bytes[..n]);
            let text = String::from_utf8_lossy(&request);
            let body = text.split_once("\r\n\r\n").map(|(_, body)| body);
            if let Some(value) = body.and_then(|body| serde_json::from_str(body).ok()) {
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
                stream.write_all(answer).expect("sent");
                return value;
            }
        }
    }

    #[test]
    fn edit_of_webhooks_is_one_safe_step_that_has_an_inverse() {
        let folder = Folder::new("webhook-edit");
        let control = control(&Arc::new(FakePlant::new()), &folder);
        let config = config("http://127.0.0.1:1/", "");
        let plan = control.plan(&config).expect("a plan");
        let [step] = plan.steps.as_slice() else { panic!("{:?}", plan.steps) };
        assert_eq!((step.risk, step.what.as_str()), (Risk::Safe, "change webhooks"));
        let mut changed = Config::default();
        step.action.apply_to(&mut changed);
        assert_eq!(changed.webhook, config.webhook);
        step.action.inverse().apply_to(&mut changed);
        assert_eq!(changed, Config::default());
        control.apply(&config, &Default::default(), &mut |_| {}).expect("applied");
        assert_eq!(control.webhooks(), config.webhook);
        assert!(control.plan(&config).expect("a plan").steps.is_empty());
    }

    #[test]
    fn webhook_whose_secret_cannot_be_read_is_refused_by_plan() {
        let folder = Folder::new("webhook-secret");
        let control = control(&Arc::new(FakePlant::new()), &folder);
        let config = config("http://127.0.0.1:1/", "secret = 'file:/nonexistent/key'\n");
        let plan = control.plan(&config).expect("a plan");
        let (refused, awaited) = control.refused_steps(&plan);
        assert!(awaited.is_empty() && refused.len() == 1, "{refused:?} {awaited:?}");
        assert!(refused[0].contains("file:/nonexistent/key"), "{refused:?}");
    }

    #[test]
    fn replaced_secret_signs_after_a_step_of_a_plan() {
        let folder = Folder::new("webhook-signing");
        let key = folder.join("key");
        let write = |text: &str| {
            std::fs::write(&key, text).expect("a secret");
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
            std::fs::set_permissions(&key, mode).expect("its mode");
        };
        write("the first secret");
        let config = config("http://127.0.0.1:1/", &format!("secret = 'file:{}'\n", key.display()));
        let plant = Arc::new(FakePlant::new());
        let control = control(&plant, &folder.join("history"));
        control.apply(&config, &Default::default(), &mut |_| {}).expect("applied");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        runtime.expect("a runtime").block_on(async {
            let mut hooks = Hooks::default();
            let mut secret = async || {
                let of = FileSection::Webhook("a".to_owned());
                hooks.set(control.webhooks(), |_| control.renewals(&of));
                let queue = hooks.queues().next().expect("a webhook").clone();
                load_files(&queue).await;
                let files = queue.files.get().expect("its files are read");
                files.secret.clone().expect("a secret")
            };
            let first = secret().await;
            write("another secret");
            assert_eq!(secret().await, first, "no step has read it");
            plant.stale_files(FileSection::Webhook("a".to_owned()), "secret has changed");
            let plan = control.plan(&config).expect("a plan");
            assert_eq!(plan.steps[0].what, "read files of webhook a anew");
            control.apply(&config, &Default::default(), &mut |_| {}).expect("applied");
            assert_ne!(secret().await, first);
        });
    }

    #[test]
    fn events_of_the_journal_are_delivered_in_their_order() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let (sender, received) = mpsc::channel();
        let server = std::thread::spawn(move || {
            for stream in listener.incoming().take(3) {
                sender.send(receive(stream.expect("a connection"))).expect("the test waits");
            }
        });
        let folder = Folder::new("webhook-events");
        let control = control(&Arc::new(FakePlant::new()), &folder);
        let config = config(&url, "level = 'info'\n");
        control.apply(&config, &Default::default(), &mut |_| {}).expect("applied");
        let webhooks = Webhooks::start(Arc::new(control));
        for id in 1..=3 {
            let body = received.recv_timeout(Duration::from_secs(60)).expect("an event");
            assert_eq!((&body["type"], &body["data"]["id"]), (&json!("event"), &json!(id)));
        }
        drop(webhooks);
        server.join().expect("served");
    }
}
