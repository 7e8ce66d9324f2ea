//! A trace of the messages of clients.

use std::collections::HashMap;
use std::fmt::Write;

use bio::Errno;
use geom::{Error, Verb};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Call, FileServer, Running, Switch, answers};
use crate::ninep::trace::{TraceFilter, Traced};
use crate::service::Host;

answers! {
    /// A recorded message.
    OneMessage {
        /// Time since the first recorded message, ns.
        since_ns: u64,
        /// Number of the connection.
        connection: u64,
        /// Tag of the request.
        tag: u16,
        /// True: a request, false: a reply.
        request: bool,
        /// The message in words.
        text: String,
        /// Time from request to reply, ns; null: not a reply, or its request was not recorded.
        took_ns: Option<u64>,
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Trace {
    /// Start or end of the recording [default: show the record]
    what: Option<Switch>,
    /// Number of one connection, as in `fs who` [default: all]
    #[schemars(extend("x-short" = "c"))]
    connection: Option<u64>,
}

/// The state of the recording, or the recorded messages.
#[derive(Serialize, JsonSchema)]
#[serde(untagged)]
pub(super) enum Messages {
    /// The recording has ended.
    Off {
        /// Result in one sentence.
        message: String,
        /// Whether messages are recorded.
        on: bool,
        /// Messages that were recorded.
        kept: usize,
    },
    /// The recording has begun.
    On {
        /// Result in one sentence.
        message: String,
        /// Whether messages are recorded.
        on: bool,
        /// Number of the recorded connection; null: all connections.
        connection: Option<u64>,
    },
    /// The recorded messages.
    Kept {
        /// Result for people.
        text: String,
        /// Whether messages are recorded.
        on: bool,
        /// The messages, oldest first.
        messages: Vec<OneMessage>,
        /// Older messages that are no longer kept.
        lost: u64,
    },
}

impl Verb<FileServer> for Trace {
    const NAME: &'static str = "trace";
    const DOC: &'static str = "Record 9P messages of clients, or show the recorded ones";
    const DETAIL: &'static str = "`on` starts a new record of the last 2000 messages, of all \
         connections or of one; `off` ends recording. Without an argument the record is shown: \
         time, connection, tag and message, and the duration with a reply. Data bytes are counted, \
         never recorded.";
    const POSITIONAL: &'static [&'static str] = &["name", "what"];
    const EXAMPLE: &'static str = "fs trace main on --connection 3";
    type Answer = Messages;

    fn run(self, Call { host, .. }: Call) -> Running<Messages> {
        Box::pin(async move {
            host.files()?;
            let only = self.connection;
            let Some(on) = self.what.map(Switch::is_on) else {
                return Ok(kept_messages(&host, only));
            };
            if !on {
                host.server.set_trace_filter(TraceFilter::Off);
                host.update_status();
                let kept = host.server.trace.kept().0.len();
                let message = format!("recording ended; {kept} messages were recorded");
                return Ok(Messages::Off { message, on, kept });
            }
            let is_connected = |n| host.server.clients().iter().any(|p| p.number == n);
            if let Some(number) = only.filter(|n| !is_connected(*n)) {
                return Err(Error::new(Errno::NoEnt, format!("no connection {number}: `fs who`")));
            }
            host.server.set_trace_filter(only.map_or(TraceFilter::All, TraceFilter::Connection));
            host.update_status();
            let whose = only.map_or("every connection".to_owned(), |n| format!("connection {n}"));
            let name = &host.shared.name;
            let message = format!("messages of {whose} are recorded: `fs trace {name}` shows them");
            Ok(Messages::On { message, on, connection: only })
        })
    }
}

fn kept_messages(host: &Host, only: Option<u64>) -> Messages {
    let (all, lost) = host.server.trace.kept();
    let first = all.first().map_or(0, |m| m.at_ns);
    let (mut text, mut messages) = (String::new(), Vec::new());
    if lost > 0 {
        let _ = writeln!(text, "{lost} messages before these are not kept any more");
    }
    let mut sent_ns: HashMap<(u64, u16), u64> = HashMap::new();
    for m in &all {
        let Traced { at_ns, connection, tag, is_request, .. } = *m;
        let took = if is_request {
            sent_ns.insert((connection, tag), at_ns);
            None
        } else {
            sent_ns.remove(&(connection, tag)).map(|before| at_ns - before)
        };
        if only.is_some_and(|n| n != connection) {
            continue;
        }
        let since = at_ns - first;
        let (s, us) = (since / 1_000_000_000, since / 1000 % 1_000_000);
        let arrow = if is_request { "->" } else { "<-" };
        let took_text = took.map_or(String::new(), |ns| format!(" in {} us", ns / 1000));
        let _ =
            writeln!(text, "{s:>5}.{us:06} {connection:>4} {arrow} {tag:>5} {}{took_text}", m.text);
        messages.push(OneMessage {
            since_ns: since,
            connection,
            tag,
            request: is_request,
            text: m.text.clone(),
            took_ns: took,
        });
    }
    let on = host.server.trace.filter() != TraceFilter::Off;
    if all.is_empty() {
        let hint = if on { "no message yet" } else { "recording is off: `trace on` starts it" };
        let _ = writeln!(text, "{hint}");
    }
    Messages::Kept { text, on, messages, lost }
}
