//! Export of slow requests to a collector of OpenTelemetry: OTLP 1 as JSON over HTTP.
//!
//! The thread of `ashlar trace` sends the requests that it shows, one batch after each question, so
//! at most the requests of one answer are held. There is no queue: a collector that does not take a
//! batch in time ends the command with an error.

use crate::api::{Error, Kind, Result, SlowRequest, TracedLayer};
use serde_json::{Value, json};
use std::env;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

/// Variable with the URL of the collector, which has the paths of OTLP.
const ENDPOINT: &str = "OTEL_EXPORTER_OTLP_ENDPOINT";
/// Longest wait for the collector, for each step.
const WAIT: Duration = Duration::from_secs(5);
/// Longest first line of an answer, in bytes.
const STATUS_BYTES_MAX: u64 = 1024;

/// The collector.
pub(super) struct Collector {
    /// `HOST:PORT`.
    authority: String,
    path: String,
}

/// A span, and those of the layers below, in a list; `next` is the identifier of the next one.
fn spans(
    request: &SlowRequest,
    layer: &TracedLayer,
    parent: Option<u64>,
    next: &mut u64,
    out: &mut Vec<Value>,
) {
    let own = *next;
    *next += 1;
    let start_ns = request.start_unix_ns.saturating_add(layer.start_ns);
    let text = |key: &str, value: &str| json!({ "key": key, "value": { "stringValue": value } });
    // Whole numbers of 64 bits are texts in the JSON of OTLP.
    let number = |key: &str, n: u64| json!({ "key": key, "value": { "intValue": n.to_string() } });
    let mut attributes = vec![
        text("ashlar.geom", &layer.geom),
        text("ashlar.provider", &layer.provider),
        text("ashlar.operation", &request.operation),
        number("ashlar.offset_bytes", layer.offset_bytes),
        number("ashlar.length_bytes", layer.length_bytes),
        number("ashlar.own_ns", layer.own_ns),
    ];
    if parent.is_none() {
        attributes.push(text("ashlar.initiator", &request.initiator));
        attributes.push(text("ashlar.task", &request.task));
        attributes.extend(request.lun.map(|lun| number("ashlar.lun", lun)));
    }
    let status = match &layer.error {
        Some(error) => json!({ "code": 2, "message": error }),
        None => json!({}),
    };
    out.push(json!({
        "traceId": format!("{:016x}{:016x}", request.start_unix_ns, request.id),
        "spanId": format!("{own:016x}"),
        "parentSpanId": parent.map_or(String::new(), |parent| format!("{parent:016x}")),
        "name": format!("{} {}", request.operation, layer.geom),
        "kind": 1,
        "startTimeUnixNano": start_ns.to_string(),
        "endTimeUnixNano": start_ns.saturating_add(layer.took_ns).to_string(),
        "attributes": attributes,
        "status": status,
    }));
    layer.below.iter().for_each(|below| spans(request, below, Some(own), next, out));
}

/// The document of some requests.
fn document(requests: &[SlowRequest]) -> Value {
    let mut all = Vec::new();
    for request in requests {
        spans(request, &request.layer, None, &mut 1, &mut all);
    }
    let service = json!({ "key": "service.name", "value": { "stringValue": "ashlar" } });
    json!({ "resourceSpans": [{
        "resource": { "attributes": [service] },
        "scopeSpans": [{ "scope": { "name": "ashlar.trace" }, "spans": all }],
    }] })
}

impl Collector {
    /// The collector that the environment names; `None`: it names none.
    ///
    /// # Errors
    /// [`Kind::Usage`]: the URL is not `http://HOST:PORT`.
    pub(super) fn from_env() -> Result<Option<Collector>> {
        let Some(url) = env::var_os(ENDPOINT).filter(|url| !url.is_empty()) else {
            return Ok(None);
        };
        Collector::at(&url.to_string_lossy()).map(Some)
    }

    fn at(url: &str) -> Result<Collector> {
        let wrong = |why: &str| {
            let next = format!("export {ENDPOINT}=http://127.0.0.1:4318");
            Error::new(Kind::Usage, "trace", format!("{ENDPOINT}: {why}")).at(url).next(next)
        };
        let rest = url.strip_prefix("http://").ok_or_else(|| wrong("only http:// is supported"))?;
        let (authority, path) = rest.split_once('/').unwrap_or((rest, ""));
        let port = authority.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(_))) || url.contains(|c: char| c.is_control() || c == ' ') {
            return Err(wrong("the URL is not http://HOST:PORT"));
        }
        let path = format!("/{}/v1/traces", path.trim_matches('/')).replace("//", "/");
        Ok(Collector { authority: authority.to_owned(), path })
    }

    /// Sends requests, if there are any.
    ///
    /// # Errors
    /// [`Kind::System`]: the collector does not answer, or refuses them.
    pub(super) fn send(&self, requests: &[SlowRequest]) -> Result<()> {
        if requests.is_empty() {
            return Ok(());
        }
        let status = self.post(&document(requests).to_string());
        let failed = |why: String| {
            let next = "Check the collector, and run `ashlar trace` again.";
            Error::new(Kind::System, "export traces", why).at(&self.authority).next(next)
        };
        let status = status.map_err(|e| failed(e.to_string()))?;
        let code = status.split(' ').nth(1).unwrap_or_default();
        match code.starts_with('2') {
            true => Ok(()),
            false => Err(failed(format!("the collector answered `{status}`"))),
        }
    }

    /// Posts a document; the first line of the answer. The rest is not read: a collector that keeps
    /// the connection open does not delay the next batch.
    fn post(&self, body: &str) -> io::Result<String> {
        let no_address = || io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        let address = self.authority.to_socket_addrs()?.next().ok_or_else(no_address)?;
        let mut stream = TcpStream::connect_timeout(&address, WAIT)?;
        stream.set_read_timeout(Some(WAIT))?;
        stream.set_write_timeout(Some(WAIT))?;
        let Collector { authority, path } = self;
        let length = body.len();
        write!(
            stream,
            "POST {path} HTTP/1.1\r\nHost: {authority}\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\nConnection: close\r\n\r\n{body}"
        )?;
        let mut status = Vec::new();
        BufReader::new(stream.take(STATUS_BYTES_MAX)).read_until(b'\n', &mut status)?;
        Ok(String::from_utf8_lossy(&status).trim_end().to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    fn request() -> SlowRequest {
        let disk = TracedLayer {
            geom: "disk:d0".to_owned(),
            start_ns: 10,
            took_ns: 8,
            error: Some("EIO".to_owned()),
            ..TracedLayer::default()
        };
        let layer = TracedLayer {
            geom: "limit:l0".to_owned(),
            took_ns: 18,
            below: vec![disk],
            ..TracedLayer::default()
        };
        let operation = "read".to_owned();
        SlowRequest { id: 7, start_unix_ns: 1000, operation, layer, ..SlowRequest::default() }
    }

    /// A collector that takes one document and keeps the connection open: its URL, and the request
    /// with its body.
    fn collector(status: &'static str) -> (String, thread::JoinHandle<(String, TcpStream)>) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("http://{}/otlp/", listener.local_addr().expect("an address"));
        let serve = move || {
            let (mut stream, _) = listener.accept().expect("a connection");
            let (mut text, mut byte) = (Vec::new(), [0]);
            let length = |text: &str| {
                let (head, body) = text.split_once("\r\n\r\n")?;
                let length = head.split("Content-Length: ").nth(1)?.lines().next()?;
                Some((length.parse::<usize>().ok()?, body.len()))
            };
            while length(&String::from_utf8_lossy(&text)).is_none_or(|(all, is)| all != is) {
                stream.read_exact(&mut byte).expect("a request");
                text.push(byte[0]);
            }
            write!(stream, "HTTP/1.1 {status}\r\nContent-Length: 2\r\n\r\n{{}}").expect("sent");
            (String::from_utf8(text).expect("text"), stream)
        };
        (url, thread::spawn(serve))
    }

    #[test]
    fn layers_are_spans_of_one_trace() {
        let (url, thread) = collector("200 OK");
        Collector::at(&url).and_then(|to| to.send(&[request()])).expect("taken");
        let (text, _open) = thread.join().expect("no panic");
        let (head, body) = text.split_once("\r\n\r\n").expect("a body");
        assert!(head.starts_with("POST /otlp/v1/traces HTTP/1.1\r\n"), "{head}");
        let document: Value = serde_json::from_str(body).expect("JSON");
        let spans = &document["resourceSpans"][0]["scopeSpans"][0]["spans"];
        let field = |span: usize, key: &str| spans[span][key].as_str().unwrap_or_default();
        assert_eq!(field(0, "traceId"), "00000000000003e80000000000000007");
        assert_eq!(field(1, "traceId"), field(0, "traceId"));
        assert_eq!((field(0, "parentSpanId"), field(1, "parentSpanId")), ("", field(0, "spanId")));
        assert_eq!((field(1, "startTimeUnixNano"), field(1, "endTimeUnixNano")), ("1010", "1018"));
        assert_eq!((field(1, "name"), &spans[1]["status"]["code"]), ("read disk:d0", &json!(2)));
    }

    #[test]
    fn refusal_of_the_collector_is_an_error_that_names_it() {
        let (url, thread) = collector("503 Busy");
        let error = Collector::at(&url).and_then(|to| to.send(&[request()])).expect_err("refused");
        assert!(error.source.contains("503 Busy") && url.contains(&error.at), "{error:?}");
        let _open = thread.join().expect("no panic");
        for wrong in ["https://a:1", "http://a", "http://a:b", "a:1", "http://a:1/x y"] {
            assert!(Collector::at(wrong).is_err(), "{wrong}");
        }
    }
}
