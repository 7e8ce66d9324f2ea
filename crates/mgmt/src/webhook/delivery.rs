//! Delivery of one event: an HTTP request over a connection of its own, with TLS and a signature.

use super::queue::Queue;
use super::signature::signature;
use super::unix_s;
use crate::client::exchange;
use crate::config::{WebhookConfig, WebhookFiles};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::header::{CONTENT_TYPE, HOST, USER_AGENT};
use hyper::{Request, StatusCode};
use std::time::Duration;
use tokio::sync::OnceCell;

/// Longest attempt, from the files that it reads to the status of the answer.
const ATTEMPT_MAX: Duration = Duration::from_secs(15);

/// An event as it is sent.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// The same in each attempt, and of no other event.
    pub(super) id: String,
    /// JSON.
    pub(super) body: Bytes,
}

/// Reason why an attempt failed.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) why: String,
    /// The server refuses the event, so a further attempt would fail too.
    pub(super) is_final: bool,
}

/// Reads the files of a webhook before its first event: those that a step of a plan saw. Why they
/// cannot be used is the reason why a delivery fails.
pub(super) async fn load_files(queue: &Queue) {
    let read = queue.files.get_or_try_init(|| read_files(&queue.config));
    if let Ok(Err(why)) = tokio::time::timeout(ATTEMPT_MAX, read).await {
        tracing::warn!("webhook {}: {why}", queue.config.name);
    }
}

async fn read_files(config: &WebhookConfig) -> Result<WebhookFiles, String> {
    let owned = config.clone();
    // A file may be on a file system that hangs.
    let files = tokio::task::spawn_blocking(move || owned.files()).await;
    files.map_err(|e| e.to_string())?.map_err(|e| format!("{}: {}", e.at, e.source))
}

/// Makes one attempt, and reads the files if they could not be read before.
pub(super) async fn deliver(
    config: &WebhookConfig,
    files: &OnceCell<WebhookFiles>,
    message: &Message,
) -> Result<(), Failure> {
    let attempt = tokio::time::timeout(ATTEMPT_MAX, attempt(config, files, message)).await;
    let passing = |why: String| Failure { why, is_final: false };
    let slow = |_| passing(format!("no answer within {ATTEMPT_MAX:?}"));
    let status = attempt.map_err(slow)?.map_err(passing)?;
    if status.is_success() {
        return Ok(());
    }
    // An overloaded server, or one that is being replaced, needs another attempt.
    let asks_again = matches!(status.as_u16(), 408 | 425 | 429);
    let is_final = !status.is_server_error() && !asks_again;
    let note = if status.is_redirection() { "; redirects are not followed" } else { "" };
    Err(Failure { why: format!("HTTP status {}{note}", status.as_u16()), is_final })
}

async fn attempt(
    config: &WebhookConfig,
    files: &OnceCell<WebhookFiles>,
    message: &Message,
) -> Result<StatusCode, String> {
    let address = config.address().ok_or("the URL is not valid")?;
    let files = files.get_or_try_init(|| read_files(config)).await?;
    let timestamp = unix_s();
    let mut request = Request::post(&address.path)
        .header(HOST, address.url.authority())
        .header(CONTENT_TYPE, "application/json")
        .header(USER_AGENT, concat!("ashlar/", env!("CARGO_PKG_VERSION")))
        .header("webhook-id", &message.id)
        .header("webhook-timestamp", timestamp);
    if let Some(secret) = &files.secret {
        let signed = signature(secret, &message.id, timestamp, &message.body);
        request = request.header("webhook-signature", signed);
    }
    let request = request.body(Full::new(message.body.clone())).map_err(|e| e.to_string())?;
    let stream = address.url.connect(files.keys.as_ref()).await.map_err(|e| e.to_string())?;
    let answer = exchange(stream, request).await;
    answer.map(|answer| answer.status()).map_err(|e| e.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::Level;
    use std::io::{Read, Write};
    use std::net::TcpListener;

    /// Delivers to a server that answers with `status`; returns the result and the request.
    fn delivered(status: &'static str) -> (Result<(), Failure>, String) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/hook", listener.local_addr().expect("an address"));
        let server = std::thread::spawn(move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let mut request = Vec::new();
            let mut bytes = [0; 4096];
            while !request.ends_with(b"{}") {
                let n = stream.read(&mut bytes).expect("a request");
                request.extend_from_slice(&bytes[..n]);
            }
            let answer = format!(
                "HTTP/1.1 {status}\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n"
            );
            stream.write_all(answer.as_bytes()).expect("sent");
            String::from_utf8(request).expect("text")
        });
        let (level, secret, tls_ca) = (Level::Info, None, None);
        let config =
            WebhookConfig { name: "a".into(), url, level, events: Vec::new(), secret, tls_ca };
        let message = Message { id: "x-1".to_owned(), body: Bytes::from_static(b"{}") };
        let mut builder = tokio::runtime::Builder::new_current_thread();
        let runtime = builder.enable_all().build().expect("a runtime");
        let result = runtime.block_on(deliver(&config, &OnceCell::new(), &message));
        (result, server.join().expect("served"))
    }

    #[test]
    fn status_of_the_answer_decides_about_another_attempt() {
        let (result, request) = delivered("204 No Content");
        assert_eq!(result, Ok(()));
        assert!(request.starts_with("POST /hook HTTP/1.1\r\n"), "{request}");
        assert!(request.contains("webhook-id: x-1\r\n"), "{request}");
        assert!(!request.contains("webhook-signature"), "{request}");
        for (status, is_final) in [
            ("500 Error", false),
            ("503 Unavailable", false),
            ("429 Too Many Requests", false),
            ("302 Found", true),
            ("410 Gone", true),
        ] {
            let failure = delivered(status).0.expect_err(status);
            assert_eq!(failure.is_final, is_final, "{failure:?}");
            assert!(failure.why.contains(&status[..3]), "{failure:?}");
        }
    }
}
