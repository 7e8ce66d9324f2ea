//! Typed lines: the same verbs on a socket, without the name of the file server.

use std::fmt::Write as _;
use std::io;
use std::rc::Rc;

use bio::Seg;
use geom::{ArgKind, ArgSpec, Error, Verb, VerbSpec};
use reactor::Stream;
use serde_json::{Map, Value};

use super::compat::{self, Replacement};
use super::cons::Cons;
use super::{run, specs};
use crate::service::Host;

/// Longest line, bytes.
const LINE_MAX: usize = 4096;

/// Bytes received at a time.
const RECV: usize = 4096;

/// The words of a line. Text between quotes is one word, as in rc.
pub(super) fn words(line: &str) -> Result<Vec<String>, String> {
    let mut out = Vec::new();
    let mut word: Option<String> = None;
    let mut chars = line.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\'' => {
                let word = word.get_or_insert_default();
                loop {
                    match chars.next() {
                        Some('\'') if chars.peek() == Some(&'\'') => {
                            chars.next();
                            word.push('\'');
                        }
                        Some('\'') => break,
                        Some(c) => word.push(c),
                        None => return Err("a quote is not closed".into()),
                    }
                }
            }
            c if c.is_whitespace() => out.extend(word.take()),
            '#' if word.is_none() => break,
            c => word.get_or_insert_default().push(c),
        }
    }
    out.extend(word);
    Ok(out)
}

/// The parameters of a verb on a console, which has one file server.
pub(super) fn console_args(spec: &VerbSpec) -> impl Iterator<Item = &ArgSpec> {
    spec.args.iter().skip(1)
}

/// The typed words as a verb's parameters. A word that names no option is an argument by position:
/// `newuser sys -rob`.
fn parse(spec: &VerbSpec, words: &[String]) -> Result<Value, String> {
    let mut out = Map::new();
    let mut places = console_args(spec).filter(|a| a.kind.is_positional()).peekable();
    let mut words = words.iter();
    let mut options = true;
    while let Some(word) = words.next() {
        if options && word == "--" {
            options = false;
            continue;
        }
        let is_typed = |a: &&ArgSpec| {
            a.short.is_some_and(|letter| *word == format!("-{letter}"))
                || *word == format!("--{}", a.name.replace('_', "-"))
        };
        let option = console_args(spec).find(is_typed).filter(|_| options);
        let (arg, text) = match (option, places.peek().copied()) {
            (Some(a), _) if a.kind == ArgKind::Flag => (a, word),
            (Some(a), _) => {
                let text = words.next();
                (a, text.ok_or(format!("{word}: a value is missing: {}", a.doc))?)
            }
            (None, Some(a)) => {
                if !matches!(a.kind, ArgKind::Names(_)) {
                    places.next();
                }
                (a, word)
            }
            (None, None) => {
                let help = format!("`help {}` shows the arguments", spec.name);
                return Err(format!("unexpected argument `{word}`; {help}"));
            }
        };
        arg.add(text, &mut out).map_err(|why| format!("{word}: {why}"))?;
    }
    Ok(Value::Object(out))
}

/// A line as a verb and its parameters; none for an empty one.
pub(crate) fn parse_line(text: &str) -> Result<Option<(&'static str, Value)>, String> {
    let mut words = words(text)?;
    match compat::replacement(&words) {
        Some(Replacement::Command(instead)) => words = instead,
        Some(Replacement::Removed(why)) => return Err(format!("{}: {why}", words.join(" "))),
        None => {}
    }
    let Some((verb, rest)) = words.split_first() else { return Ok(None) };
    let mut all = specs().iter().filter(|spec| spec.name != Cons::NAME);
    let Some(spec) = all.find(|spec| spec.name == verb) else {
        return Err(format!("no command `{verb}`: `help` names them"));
    };
    let params = parse(spec, rest)?;
    let is_missing = |a: &&ArgSpec| {
        let needed = matches!(a.kind, ArgKind::Name | ArgKind::Names(1..));
        needed && params.get(a.name).is_none()
    };
    if let Some(a) = console_args(spec).find(is_missing) {
        return Err(format!("{verb}: {} is missing: {}", a.name, a.doc));
    }
    Ok(Some((spec.name, params)))
}

/// One line; what to print. Nothing for an empty one. After `time` it prints how long the rest
/// took.
pub(crate) async fn run_line(host: &Rc<Host>, text: &str) -> Result<String, Error> {
    let Some(timed) = text.strip_prefix("time ") else { return run_untimed(host, text).await };
    let before = host.server.reactor.now();
    let mut out = run_untimed(host, timed).await?;
    let took = host.server.reactor.now() - before;
    let _ = writeln!(out, "it took {}.{:06} s", took / 1_000_000_000, took / 1000 % 1_000_000);
    Ok(out)
}

async fn run_untimed(host: &Rc<Host>, text: &str) -> Result<String, Error> {
    let understood = parse_line(text).map_err(Error::inval)?;
    let Some((verb, params)) = understood else { return Ok(String::new()) };
    let done = run(host, 0, verb, &params).await?;
    Ok(match (done.get("text"), done.get("message")) {
        (Some(Value::String(text)), _) => text.clone(),
        (_, Some(Value::String(message))) => format!("{message}\n"),
        _ => format!("{done:#}\n"),
    })
}

/// One line; what to print, with any result.
pub(crate) async fn run_line_or_error(host: &Rc<Host>, text: &str) -> String {
    run_line(host, text.trim()).await.unwrap_or_else(|e| format!("{}\n", e.message))
}

/// Serves an operator until the connection ends.
pub(crate) async fn serve(host: &Rc<Host>, stream: Stream) -> io::Result<()> {
    let pool = host.options().pool.clone();
    let prompt = format!("{}: ", host.shared.name);
    let none = || io::Error::from(io::ErrorKind::OutOfMemory);
    let mut typed: Vec<u8> = Vec::new();
    write_text(host, &stream, &prompt).await?;
    loop {
        // An idle connection holds no memory.
        stream.readable().await?;
        let buffer: Seg = pool.get(RECV).and_then(|b| b.seg(0, RECV)).ok_or_else(none)?;
        let n = stream.recv(&buffer).await?;
        if n == 0 {
            return Ok(());
        }
        if let Some(some) = buffer.slice(0, n) {
            some.with(|b| typed.extend_from_slice(b));
        }
        while let Some(end) = typed.iter().position(|b| *b == b'\n') {
            let bytes: Vec<u8> = typed.drain(..=end).collect();
            let text = String::from_utf8_lossy(&bytes).into_owned();
            let out = self::run_line_or_error(host, &text).await;
            write_text(host, &stream, &(out + &prompt)).await?;
        }
        if typed.len() > LINE_MAX {
            write_text(host, &stream, "the line is too long\n").await?;
            return Ok(());
        }
    }
}

async fn write_text(host: &Host, stream: &Stream, text: &str) -> io::Result<()> {
    let pool = &host.options().pool;
    for some in text.as_bytes().chunks(RECV) {
        let seg = pool.get(some.len()).and_then(|b| b.seg(0, some.len()));
        let seg = seg.ok_or_else(|| io::Error::from(io::ErrorKind::OutOfMemory))?;
        seg.copy_from(0, some);
        let mut batch = vec![seg];
        stream.send(&mut batch).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn command_lines_are_split_and_quoted_as_in_rc() {
        let all = |line: &str| words(line).map(|w| w.join("|"));
        assert_eq!(all("create '/a b/it''s'  x # why"), Ok("create|/a b/it's|x".into()));
        assert_eq!(all("  "), Ok(String::new()));
        assert_eq!(all("a''b c#d"), Ok("ab|c#d".into()));
        assert!(all("dump 'x").is_err());
    }

    #[test]
    fn typed_arguments_become_parameters() {
        let of = |verb: &str, text: &str| {
            let spec = specs().iter().find(|v| v.name == verb).unwrap();
            parse(spec, &words(text).unwrap()).map(|v| v.to_string())
        };
        assert_eq!(
            of("yesterday", "-c /usr/rob/x --ago 3").as_deref(),
            Ok(r#"{"ago":3,"copy":true,"path":"/usr/rob/x"}"#)
        );
        assert_eq!(
            of("newuser", "sys -- -rob").as_deref(),
            Ok(r#"{"user":"sys","what":["-rob"]}"#)
        );
        assert!(of("yesterday", "x --ago y").is_err_and(|e| e.contains("not a number")));
        assert!(of("yesterday", "x --ago").is_err_and(|e| e.contains("a value is missing")));
        assert!(of("dump", "x").is_err_and(|e| e.contains("unexpected argument")));
    }

    #[test]
    fn verb_names_are_unique_and_the_first_argument_is_the_file_server() {
        for (i, v) in specs().iter().enumerate() {
            assert!(specs().iter().skip(i + 1).all(|o| o.name != v.name), "{} twice", v.name);
            assert_eq!(v.args.first().map(|a| a.name), Some("name"), "{}", v.name);
            let schema = (v.params)();
            let required = schema["required"].as_array().expect("a list");
            assert!(required.contains(&"name".into()), "{}: {required:?}", v.name);
            // These words name the target of a verb; the control path removes them.
            let taken = ["on", "geom", "provider"];
            assert!(v.args.iter().skip(1).all(|a| !taken.contains(&a.name)), "{}", v.name);
        }
    }
}
