//! HTTP requests to the control socket of a daemon that never wait for the answer.

use std::io::{ErrorKind, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::error::{Error, Kind};
use crate::load::WAIT;

/// Longest head of an answer, bytes; a longer one is an error.
const HEAD_MAX: usize = 64 * 1024;
/// Bytes received at once: a copy of them delays the load by microseconds only.
const RECV_BYTES: usize = 64 * 1024;
/// Pause of [`get`] when no bytes are here.
const PAUSE: Duration = Duration::from_micros(100);

/// The part of a body that an answer keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keep {
    /// All of it.
    Body,
    Length,
}

/// An answer that arrives in parts.
struct Answer {
    keep: Keep,
    head: Vec<u8>,
    /// The head is whole.
    in_body: bool,
    body: Vec<u8>,
    body_bytes: u64,
    /// The length that the head announces.
    announced: Option<u64>,
    /// The daemon's time for it, if the head has it.
    cost: Option<Duration>,
}

impl Answer {
    fn new(keep: Keep) -> Answer {
        let (head, body) = (Vec::new(), Vec::new());
        Answer { keep, head, in_body: false, body, body_bytes: 0, announced: None, cost: None }
    }

    /// Takes the bytes behind those of the last call.
    fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        if self.in_body {
            self.push_body(bytes);
            return Ok(());
        }
        self.head.extend_from_slice(bytes);
        let Some(end) = self.head.windows(4).position(|four| four == b"\r\n\r\n") else {
            let is_long = self.head.len() > HEAD_MAX;
            return if is_long {
                Err(wrong(format!("head over {HEAD_MAX} bytes")))
            } else {
                Ok(())
            };
        };
        let rest = self.head.split_off(end + 4);
        let head = String::from_utf8_lossy(&self.head);
        self.announced = announced(&head)?;
        self.cost = server_timing(&head);
        self.in_body = true;
        self.push_body(&rest);
        Ok(())
    }

    fn push_body(&mut self, bytes: &[u8]) {
        self.body_bytes += bytes.len() as u64;
        if self.keep == Keep::Body {
            self.body.extend_from_slice(bytes);
        }
    }

    /// The kept body after the end of the connection.
    fn finish(&mut self) -> Result<Vec<u8>, Error> {
        if !self.in_body || self.announced.is_some_and(|bytes| bytes != self.body_bytes) {
            return Err(wrong(format!("end after {} bytes of the body", self.body_bytes)));
        }
        Ok(std::mem::take(&mut self.body))
    }
}

/// The length that the head of an answer announces, if any.
fn announced(head: &str) -> Result<Option<u64>, Error> {
    let status = head.lines().next().unwrap_or_default();
    if status.split(' ').nth(1) != Some("200") {
        return Err(wrong(format!("status `{status}`")));
    }
    Ok(field(head, "content-length").and_then(|value| value.parse().ok()))
}

/// The daemon's time for an answer, if its head has it: `Server-Timing: view;dur=MILLISECONDS`.
fn server_timing(head: &str) -> Option<Duration> {
    let (_, after) = field(head, "server-timing")?.split_once("dur=")?;
    let end = after.find([';', ',', ' ']).unwrap_or(after.len());
    let ms: f64 = after.get(..end)?.parse().ok()?;
    Duration::try_from_secs_f64(ms / 1e3).ok()
}

fn field<'h>(head: &'h str, wanted: &str) -> Option<&'h str> {
    head.lines().skip(1).find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case(wanted).then(|| value.trim())
    })
}

fn wrong(what: String) -> Error {
    Error::new(Kind::Protocol, format!("answer: {what}"))
}

/// A request under way on a connection of its own.
pub(super) struct Request {
    /// Its method and path.
    line: String,
    stream: UnixStream,
    begun: Instant,
    answer: Answer,
    buffer: Vec<u8>,
    received: u64,
}

impl Request {
    /// Sends `GET path`; `fields`: further fields of the head, each with its line end.
    pub fn send(socket: &Path, path: &str, fields: &str, keep: Keep) -> Result<Request, Error> {
        Request::begin(socket, format!("GET {path}"), (fields, ""), keep)
    }

    /// Sends `POST path` with a body of JSON.
    fn post(socket: &Path, path: &str, body: &str, keep: Keep) -> Result<Request, Error> {
        let kind = "Content-Type: application/json\r\n";
        let fields = format!("{kind}Content-Length: {}\r\n", body.len());
        Request::begin(socket, format!("POST {path}"), (&fields, body), keep)
    }

    fn begin(
        socket: &Path,
        line: String,
        (fields, body): (&str, &str),
        keep: Keep,
    ) -> Result<Request, Error> {
        let io = |e| Error::system(format!("{}: {line}", socket.display()), e);
        let begun = Instant::now();
        let mut stream = UnixStream::connect(socket).map_err(io)?;
        let head = format!("{line} HTTP/1.1\r\nHost: ashlar\r\nConnection: close\r\n{fields}");
        stream.write_all(format!("{head}\r\n{body}").as_bytes()).map_err(io)?;
        stream.set_nonblocking(true).map_err(io)?;
        let (answer, buffer) = (Answer::new(keep), vec![0; RECV_BYTES]);
        Ok(Request { line, stream, begun, answer, buffer, received: 0 })
    }

    /// Receives bytes that are here; the kept body when the answer is whole.
    pub fn poll(&mut self) -> Result<Option<Vec<u8>>, Error> {
        let polled = match self.stream.read(&mut self.buffer) {
            Ok(0) => self.answer.finish().map(Some),
            Ok(n) => {
                self.received += n as u64;
                self.answer.push(self.buffer.get(..n).unwrap_or(&[])).map(|()| None)
            }
            Err(e) if e.kind() == ErrorKind::WouldBlock => Ok(None),
            Err(e) => Err(Error::system("receive", e)),
        };
        polled.map_err(|e| e.within(&self.line))
    }

    pub fn body_bytes(&self) -> u64 {
        self.answer.body_bytes
    }

    /// Time since it was sent.
    pub fn took(&self) -> Duration {
        self.begun.elapsed()
    }

    /// The daemon's time for the answer; [`Request::took`] if the answer does not have it.
    pub fn cost(&self) -> Duration {
        self.answer.cost.unwrap_or_else(|| self.took())
    }
}

/// Sends a request and waits for its answer: the body, and the time.
pub(super) fn get(socket: &Path, path: &str, keep: Keep) -> Result<(Vec<u8>, Duration), Error> {
    wait(Request::send(socket, path, "", keep)?, pause)
}

/// Calls a verb without parameters and waits for its answer: the body, and the time.
pub(super) fn call(socket: &Path, verb: &str) -> Result<(Vec<u8>, Duration), Error> {
    wait(Request::post(socket, &format!("/v1/verbs/{verb}"), "{}", Keep::Body)?, pause)
}

fn pause() {
    sleep(PAUSE);
}

fn wait(mut request: Request, mut pause: impl FnMut()) -> Result<(Vec<u8>, Duration), Error> {
    loop {
        let before = request.received;
        if let Some(body) = request.poll()? {
            return Ok((body, request.took()));
        }
        if request.took() > WAIT {
            let what = format!("{}: no answer within {} s", request.line, WAIT.as_secs());
            return Err(Error::new(Kind::Timeout, what));
        }
        // Pauses between the parts of a long answer would count as time of the daemon.
        if request.received == before {
            pause();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(keep: Keep, parts: &[&[u8]]) -> Result<(Vec<u8>, u64), Error> {
        let mut answer = Answer::new(keep);
        for part in parts {
            answer.push(part)?;
        }
        Ok((answer.finish()?, answer.body_bytes))
    }

    #[test]
    fn answer_in_any_parts_is_parsed() {
        let text = b"HTTP/1.1 200 OK\r\ncontent-type: a\r\nContent-Length: 5\r\n\r\nhello";
        for at in 0..text.len() {
            let (first, second) = text.split_at(at);
            let whole = parsed(Keep::Body, &[first, second]);
            assert_eq!(whole, Ok((b"hello".to_vec(), 5)), "cut at {at}");
        }
        let single: Vec<&[u8]> = text.chunks(1).collect();
        assert_eq!(parsed(Keep::Length, &single), Ok((Vec::new(), 5)));
        let endless = b"HTTP/1.1 200 OK\r\n\r\nuntil the end";
        assert_eq!(parsed(Keep::Body, &[&endless[..]]), Ok((b"until the end".to_vec(), 13)));
    }

    #[test]
    fn parts_of_an_answer_that_are_here_are_received_without_a_pause() {
        let (stream, mut daemon) = UnixStream::pair().expect("a pair");
        stream.set_nonblocking(true).expect("a socket");
        let begun = Instant::now();
        let (answer, buffer) = (Answer::new(Keep::Body), vec![0; 16]);
        let line = "GET /metrics".to_owned();
        let request = Request { line, stream, begun, answer, buffer, received: 0 };
        let body = b"more than the client receives at once";
        let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
        daemon.write_all(head.as_bytes()).expect("a head");
        daemon.write_all(body).expect("a body");
        let mut pauses = 0;
        let mut daemon = Some(daemon);
        let (received, _) = wait(request, || {
            pauses += 1;
            drop(daemon.take());
        })
        .expect("an answer");
        assert_eq!((received.as_slice(), pauses), (&body[..], 1), "a pause before the end alone");
    }

    #[test]
    fn answer_has_the_time_that_the_daemon_needed() {
        let of = |field: &str| server_timing(&format!("HTTP/1.1 200 OK\r\n{field}\r\n\r\n"));
        let us = |us| Some(Duration::from_micros(us));
        assert_eq!(of("Server-Timing: view;dur=12.5"), us(12_500));
        assert_eq!(of("server-timing: view;dur=3;desc=\"a\", b;dur=9"), us(3_000));
        for none in ["server-timing: view", "server-timing: view;dur=-1", "date: dur=4"] {
            assert_eq!(of(none), None, "{none}");
        }
    }

    #[test]
    fn refused_cut_and_endless_answers_are_errors() {
        for (text, says) in [
            (&b"HTTP/1.1 403 Forbidden\r\n\r\n"[..], "403 Forbidden"),
            (b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhell", "after 4 bytes"),
            (b"HTTP/1.1 200 OK\r\n", "after 0 bytes"),
            (b"", "after 0 bytes"),
            (&[b'x'; HEAD_MAX + 1], "head over 65536 bytes"),
        ] {
            let error = parsed(Keep::Length, &[text]).expect_err(says);
            assert_eq!(error.kind, Kind::Protocol);
            assert!(error.message.contains(says), "{error}");
        }
    }
}
