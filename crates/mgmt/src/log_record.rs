//! A log record as a line of JSON, or as fields for journald.
//!
//! The record has the level, the module and the sentence, and the fields of its event, the same in
//! both forms. `object` is the object of the sentence. `kind` is `event` for events of the journal
//! with the number `event`, or `peer` for lines about `peer` and `initiator`.

use crate::text;
use jiff::Timestamp;
use serde_json::{Map, Value};
use std::fmt;
use tracing::field::{Field, Visit};
use tracing::{Event, Level};

/// Longest text of a record, bytes; the end of a longer one is lost.
const TEXT_BYTES_MAX: usize = 4096;

pub(crate) struct LogRecord {
    level: Level,
    target: String,
    message: String,
    fields: Vec<(&'static str, Value)>,
}

impl LogRecord {
    /// A record without fields.
    pub(crate) fn new(level: Level, target: &str, message: String) -> LogRecord {
        LogRecord { level, target: target.to_owned(), message, fields: Vec::new() }
    }

    pub(crate) fn of(event: &Event<'_>) -> LogRecord {
        let about = event.metadata();
        let mut record = LogRecord::new(*about.level(), about.target(), String::new());
        event.record(&mut record);
        record
    }

    /// A line of JSON of at most `bytes_max` bytes, with its end.
    pub(crate) fn to_json(&self, at: Timestamp, bytes_max: usize) -> Vec<u8> {
        fit(bytes_max, |text_max| {
            let mut all = Map::new();
            all.insert("time".to_owned(), at.to_string().into());
            all.insert("level".to_owned(), self.level.as_str().to_lowercase().into());
            all.insert("target".to_owned(), self.target.clone().into());
            all.insert("message".to_owned(), cut(&self.message, text_max).into());
            for (name, value) in &self.fields {
                let value = match value.as_str() {
                    Some(text) => cut(text, text_max).into(),
                    None => value.clone(),
                };
                all.entry(*name).or_insert(value);
            }
            let line = Value::Object(all).to_string();
            format!("{}\n", text::json(&line)).into_bytes()
        })
    }

    /// The fields of journald's native protocol, `NAME=VALUE`, in at most `bytes_max` bytes. Line
    /// ends in values are escaped.
    pub(crate) fn to_journal(&self, bytes_max: usize) -> Vec<u8> {
        fit(bytes_max, |text_max| {
            let mut out = String::new();
            let mut field = |name: &str, value: &str| {
                out.push_str(name);
                out.push('=');
                out.push_str(&text::escape_line(cut(value, text_max)));
                out.push('\n');
            };
            field("MESSAGE", &self.message);
            field("PRIORITY", priority(self.level));
            field("SYSLOG_IDENTIFIER", "ashlar");
            field("ASHLAR_TARGET", &self.target);
            for (name, value) in &self.fields {
                let shown = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                field(&journal_name(name), &shown);
            }
            out.into_bytes()
        })
    }
}

impl Visit for LogRecord {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            name => self.fields.push((name, format!("{value:?}").into())),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => value.clone_into(&mut self.message),
            name => self.fields.push((name, value.into())),
        }
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.fields.push((field.name(), value.into()));
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.fields.push((field.name(), value.into()));
    }
}

/// The priority of syslog(3).
fn priority(level: Level) -> &'static str {
    match level {
        Level::ERROR => "3",
        Level::WARN => "4",
        Level::INFO => "6",
        _ => "7",
    }
}

/// A name that journald accepts: capital letters, digits and underscores.
fn journal_name(name: &str) -> String {
    let fitting = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("ASHLAR_{}", name.chars().map(fitting).collect::<String>())
}

fn cut(text: &str, bytes_max: usize) -> &str {
    text.get(..text.floor_char_boundary(bytes_max)).unwrap_or(text)
}

/// Makes the bytes with shorter texts until they fit: escapes make a text longer.
fn fit(bytes_max: usize, make: impl Fn(usize) -> Vec<u8>) -> Vec<u8> {
    let mut text_max = TEXT_BYTES_MAX;
    loop {
        let bytes = make(text_max);
        if bytes.len() <= bytes_max || text_max == 0 {
            return bytes;
        }
        text_max /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(message: &str) -> LogRecord {
        let fields = vec![("object", "disk d0".into()), ("core-number", 3_u64.into())];
        LogRecord { fields, ..LogRecord::new(Level::WARN, "ashlar", message.to_owned()) }
    }

    /// L3 of mgmt/src/logs.rs.
    #[test]
    fn json_line_is_one_object_with_fields() {
        let at = Timestamp::UNIX_EPOCH;
        let line = record("a \"b\"\n\u{1b}[31m\u{202e}c").to_json(at, 8192);
        let line = String::from_utf8(line).expect("text");
        assert!(line.ends_with('\n') && line.matches('\n').count() == 1, "{line}");
        assert!(!line.contains(['\u{1b}', '\u{202e}']), "a terminal obeys nothing in it");
        let value: Value = serde_json::from_str(&line).expect("JSON");
        assert_eq!(value["message"], "a \"b\"\n\u{1b}[31m\u{202e}c");
        assert_eq!(value["time"], "1970-01-01T00:00:00Z");
        assert_eq!((&value["level"], &value["target"]), (&"warn".into(), &"ashlar".into()));
        assert_eq!((&value["object"], &value["core-number"]), (&"disk d0".into(), &3.into()));
    }

    #[test]
    fn json_line_and_journal_record_have_the_same_fields() {
        let fields = ["object", "kind", "event", "peer", "initiator"];
        let values = fields.map(|name| (name, Value::from("x")));
        let whole = LogRecord { fields: values.into(), ..record("lost") };
        let line = whole.to_json(Timestamp::UNIX_EPOCH, 8192);
        let json: Map<String, Value> = serde_json::from_slice(&line).expect("JSON");
        let text = String::from_utf8(whole.to_journal(8192)).expect("text");
        let of_journal: Vec<&str> =
            text.lines().filter_map(|line| Some(line.split_once('=')?.0)).collect();
        for name in fields.into_iter().chain(["target"]) {
            assert!(json.contains_key(name), "{name}: {json:?}");
            assert!(of_journal.contains(&journal_name(name).as_str()), "{name}: {text}");
        }
        assert_eq!(json.len(), fields.len() + ["time", "level", "target", "message"].len());
        assert_eq!(of_journal.len(), json.len(), "no field is in one form alone");
    }

    #[test]
    fn journal_record_has_a_line_for_each_field() {
        let text = String::from_utf8(record("lost\nX=1").to_journal(8192)).expect("text");
        let lines: Vec<&str> = text.lines().collect();
        let expected = [
            "MESSAGE=lost\\nX=1",
            "PRIORITY=4",
            "SYSLOG_IDENTIFIER=ashlar",
            "ASHLAR_TARGET=ashlar",
            "ASHLAR_OBJECT=disk d0",
            "ASHLAR_CORE_NUMBER=3",
        ];
        assert_eq!(lines, expected);
    }

    #[test]
    fn long_record_is_cut_but_stays_whole_json() {
        let long = record(&"\u{1b}".repeat(100_000));
        let line = long.to_json(Timestamp::UNIX_EPOCH, 8192);
        assert!(line.len() <= 8192, "{}", line.len());
        let value: Value = serde_json::from_slice(&line).expect("JSON");
        assert!(value["message"].as_str().is_some_and(|text| text.len() > 500));
        assert!(long.to_journal(8192).len() <= 8192);
    }
}
