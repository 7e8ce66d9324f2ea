//! Messages of clients, as they come and go.

use std::collections::HashMap;
use std::fmt::Write;
use std::rc::Rc;

use bio::Errno;
use geom::{ArgKind, ArgSpec, Error, VerbSpec};
use serde_json::{Value, json};

use super::args::Args;
use super::{Command, NAME, dumps};
use crate::ninep::trace::{Of, Traced};
use crate::service::Host;

pub(super) const TRACE: Command = Command {
    spec: VerbSpec {
        name: "trace",
        doc: "Keep the messages of clients, or show those that were kept",
        detail: "`on` begins anew and keeps the last 2000, of every connection or of one; `off` \
                 keeps no more. Without a word what was kept is shown: when, the connection, the \
                 tag, the message, and with a reply how long it took. Data are counted, never \
                 kept.",
        args: &[
            NAME,
            ArgSpec { name: "what", short: None, kind: ArgKind::Maybe, doc: "on or off" },
            ArgSpec {
                name: "connection",
                short: Some('c'),
                kind: ArgKind::Number,
                doc: "Only this one, as `fs who` shows it [default: all]",
            },
        ],
        example: "fs trace main on --connection 3",
        writes: false,
    },
    run: |host, args| Box::pin(async move { trace(&host, &args) }),
};

fn trace(host: &Rc<Host>, args: &Args) -> Result<Value, Error> {
    host.files()?;
    let only = args.number("connection");
    let Some(on) = dumps::on_off(args)? else { return Ok(shown(host, only)) };
    if !on {
        host.server.follow(Of::Nobody);
        host.look();
        let kept = host.server.trace.kept().0.len();
        let text = format!("no messages are kept any more; {kept} were");
        return Ok(json!({ "message": text, "on": false, "kept": kept }));
    }
    let is_there = |n| host.server.who().iter().any(|p| p.number == n);
    if let Some(number) = only.filter(|n| !is_there(*n)) {
        return Err(Error::new(Errno::NoEnt, format!("no connection {number}: `fs who`")));
    }
    host.server.follow(only.map_or(Of::All, Of::One));
    host.look();
    let whose = only.map_or("every connection".to_owned(), |n| format!("connection {n}"));
    let name = &host.shared.name;
    let text = format!("messages of {whose} are kept: `fs trace {name}` shows them");
    Ok(json!({ "message": text, "on": true, "connection": only }))
}

fn shown(host: &Host, only: Option<u64>) -> Value {
    let (all, lost) = host.server.trace.kept();
    let first = all.first().map_or(0, |m| m.at_ns);
    let (mut text, mut list) = (String::new(), Vec::new());
    if lost > 0 {
        let _ = writeln!(text, "{lost} messages before these are not kept any more");
    }
    let mut asked: HashMap<(u64, u16), u64> = HashMap::new();
    for m in &all {
        let Traced { at_ns, connection, tag, is_request, .. } = *m;
        let took = if is_request {
            asked.insert((connection, tag), at_ns);
            None
        } else {
            asked.remove(&(connection, tag)).map(|before| at_ns - before)
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
        list.push(json!({
            "since_ns": since, "connection": connection, "tag": tag, "request": is_request,
            "text": m.text, "took_ns": took,
        }));
    }
    let on = host.server.trace.of() != Of::Nobody;
    if all.is_empty() {
        let hint = if on { "no message yet" } else { "nothing is kept: `trace on` begins" };
        let _ = writeln!(text, "{hint}");
    }
    json!({ "text": text, "on": on, "messages": list, "lost": lost })
}
