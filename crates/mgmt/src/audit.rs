//! Audit log of the API: a line of JSON for each login, logout, download and comparison of files,
//! and two for each change.
//!
//! The log is in the state folder and survives restarts. Files are rotated by size; the oldest one
//! is removed.
//!
//! Invariants
//!  A6  An entry is on stable storage before the change that it announces begins, and before the
//!      answer of a change is sent. If the log cannot be written, the daemon logs an error and
//!      carries out the change: a full disk does not prevent its repair.
//!  A7  Entries contain no secrets and no tokens.
//!  A8  The parameters of an entry have at most [`PARAMS_BYTES_MAX`] bytes, and its changes at most
//!      [`CHANGES_MAX`] lines.

mod changes;
mod objects;

pub use changes::{Former, of_steps};

use crate::api::{Error, Kind, Result};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

/// Name of the newest file; older ones have `.1`, `.2` and so on appended.
const FILE: &str = "audit.log";

/// Size beyond which a new file is begun, in bytes.
const FILE_BYTES_MAX: u64 = 4 << 20;

/// Older files that are kept.
const FILES_KEPT: u32 = 8;

/// Longest text of a parameter that is recorded, in characters.
const TEXT_CHARS_MAX: usize = 200;

/// Longest parameters that are recorded, in bytes of JSON. Of longer ones the length is recorded.
const PARAMS_BYTES_MAX: usize = 8192;

/// Changes that are recorded of one verb. Of further ones the number is recorded.
const CHANGES_MAX: usize = 64;

/// Result of an entry that announces a change.
const STARTED: &str = "started";

/// Result of an entry after a change or login that succeeded.
const DONE: &str = "done";

/// One entry.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct AuditEntry {
    /// Time, in seconds since 1970.
    pub at_unix_s: u64,
    /// Caller: `uid 0`, `token ci`, `certificate laptop`, `SIGHUP`; empty if it is unknown.
    pub who: String,
    /// Address of the caller; empty for the control socket.
    pub address: String,
    /// Name of the verb, `login`, `logout`, or `/files/content` for the download of a file and
    /// `/files/compare` for the comparison of two.
    pub what: String,
    /// Parameters of the verb. Secrets are hidden, and long texts are replaced by their length.
    pub params: Value,
    /// Generation of the configuration before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub before: Option<u64>,
    /// Generation of the configuration after.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Changes of a verb that succeeded: steps of an `apply`, or properties of geoms and other
    /// objects with their former and present values. Secrets are hidden, and long texts are cut.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changes: Vec<String>,
    /// `started`, `done`, or the code and reason of the error.
    pub result: String,
}

/// See the module.
pub struct AuditLog {
    folder: Option<PathBuf>,
    writing: Mutex<()>,
}

/// A caller, as entries name it.
#[derive(Clone, Debug, Default)]
pub struct AuditedCaller {
    /// See [`AuditEntry::who`].
    pub who: String,
    /// See [`AuditEntry::address`].
    pub address: String,
}

impl AuditedCaller {
    /// An entry of this caller, at the present time.
    fn entry(&self, what: &str, params: Value, result: &str) -> AuditEntry {
        AuditEntry {
            at_unix_s: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
            who: self.who.clone(),
            address: self.address.clone(),
            what: what.to_owned(),
            params,
            result: result.to_owned(),
            ..AuditEntry::default()
        }
    }
}

/// The result of an entry.
fn outcome<T>(result: &Result<T>) -> String {
    match result {
        Ok(_) => DONE.to_owned(),
        Err(e) => {
            let source = e.source.lines().next().unwrap_or_default();
            format!("{}: {}", e.kind.code(), shortened(source))
        }
    }
}

impl AuditLog {
    /// A log without a folder: entries are dropped.
    pub fn none() -> AuditLog {
        AuditLog { folder: None, writing: Mutex::new(()) }
    }

    /// The log in `folder`, which is made for the first entry.
    pub fn open(folder: &Path) -> AuditLog {
        AuditLog { folder: Some(folder.to_owned()), writing: Mutex::new(()) }
    }

    /// Records a login, or a call that was refused.
    pub fn record_call<T>(&self, by: &AuditedCaller, what: &str, params: &Value, end: &Result<T>) {
        self.record(&by.entry(what, recorded(params), &outcome(end)));
    }

    /// Carries out a change with an entry before it and one after it. `generation` reads the
    /// generation of the running configuration, and `changes` the changes from the answer.
    ///
    /// # Errors
    /// Those of the change.
    pub fn record_change<T>(
        &self,
        by: &AuditedCaller,
        (what, params): (&str, &Value),
        generation: impl Fn() -> u64,
        change: impl FnOnce() -> Result<T>,
        changes: impl FnOnce(&T) -> Vec<String>,
    ) -> Result<T> {
        let params = recorded(params);
        let before = Some(generation());
        self.record(&AuditEntry { before, ..by.entry(what, params.clone(), STARTED) });
        let result = change();
        let after = Some(generation());
        let changes = result.as_ref().map(|answer| limited(changes(answer))).unwrap_or_default();
        let entry = by.entry(what, params, &outcome(&result));
        self.record(&AuditEntry { before, after, changes, ..entry });
        result
    }

    fn record(&self, entry: &AuditEntry) {
        let Some(folder) = &self.folder else { return };
        if let Err(e) = self.append(folder, entry) {
            tracing::error!("the audit log in {} cannot be written: {e}", folder.display());
        }
    }

    fn append(&self, folder: &Path, entry: &AuditEntry) -> io::Result<()> {
        // A torn line before it, of a full disk or a crash, does not damage this one.
        let mut line = vec![b'\n'];
        serde_json::to_writer(&mut line, entry).map_err(io::Error::other)?;
        line.push(b'\n');
        let _turn = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let path = folder.join(FILE);
        let size = fs::metadata(&path).map_or(0, |about| about.len());
        let is_new = size == 0;
        if size > FILE_BYTES_MAX {
            rotate(folder)?;
        }
        fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)?;
        let mut options = fs::OpenOptions::new();
        let mut file = options.create(true).append(true).mode(0o600).open(&path)?;
        file.write_all(&line)?;
        file.sync_data()?;
        if is_new || size > FILE_BYTES_MAX {
            fs::File::open(folder)?.sync_all()?;
        }
        Ok(())
    }

    /// The newest entries, at most `limit`, oldest first. Lines that are no entries are left out.
    ///
    /// # Errors
    /// [`Kind::System`] when a file cannot be read.
    pub fn newest(&self, limit: usize) -> Result<Vec<AuditEntry>> {
        let Some(folder) = &self.folder else { return Ok(Vec::new()) };
        let mut out: Vec<AuditEntry> = Vec::new();
        for number in 0..=FILES_KEPT {
            let path = numbered(folder, number);
            let bytes = match bio::read_regular(&path, 2 * FILE_BYTES_MAX) {
                Ok(bytes) => bytes,
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => {
                    let error = Error::new(Kind::System, "audit", e);
                    return Err(error.at(path.display().to_string()));
                }
            };
            let lines = bytes.split(|&b| b == b'\n');
            let mut entries: Vec<AuditEntry> =
                lines.filter_map(|line| serde_json::from_slice(line).ok()).collect();
            entries.append(&mut out);
            out = entries;
            if out.len() >= limit {
                break;
            }
        }
        let beyond = out.len().saturating_sub(limit);
        Ok(out.split_off(beyond))
    }
}

fn numbered(folder: &Path, number: u32) -> PathBuf {
    match number {
        0 => folder.join(FILE),
        n => folder.join(format!("{FILE}.{n}")),
    }
}

/// Renames each file to the next number; the last one is replaced.
fn rotate(folder: &Path) -> io::Result<()> {
    for number in (0..FILES_KEPT).rev() {
        match fs::rename(numbered(folder, number), numbered(folder, number + 1)) {
            Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
            _ => {}
        }
    }
    Ok(())
}

/// Whether values of a key may be secrets.
fn is_secret(key: &str) -> bool {
    let key = key.to_ascii_lowercase();
    ["secret", "pass", "chap", "token", "key"].iter().any(|word| key.contains(word))
}

/// Keys of texts that are documents: they may contain secrets at any place.
const DOCUMENTS: [&str; 4] = ["document", "bootcode", "partcode", "backup"];

fn shortened(text: &str) -> String {
    match text.char_indices().nth(TEXT_CHARS_MAX) {
        Some((end, _)) => format!("{}...", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

/// Changes as they are recorded (A8).
fn limited(changes: Vec<String>) -> Vec<String> {
    let beyond = changes.len().saturating_sub(CHANGES_MAX);
    let more = (beyond > 0).then(|| format!("and {beyond} more"));
    let shown = changes.iter().take(CHANGES_MAX).map(|change| shortened(change));
    shown.chain(more).collect()
}

/// Parameters as they are recorded (A7, A8).
fn recorded(params: &Value) -> Value {
    let masked = masked(params);
    match masked.to_string().len() {
        bytes if bytes > PARAMS_BYTES_MAX => Value::from(format!("{bytes} bytes")),
        _ => masked,
    }
}

/// Parameters without secrets and without long texts (A7).
fn masked(params: &Value) -> Value {
    match params {
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| {
                let value = match value {
                    Value::String(text) if DOCUMENTS.contains(&key.as_str()) => {
                        Value::from(format!("{} bytes", text.len()))
                    }
                    _ if is_secret(key) => Value::from("***"),
                    other => masked(other),
                };
                (key.clone(), value)
            };
            Value::Object(fields.iter().map(field).collect::<Map<String, Value>>())
        }
        Value::Array(list) => list.iter().map(masked).collect(),
        Value::String(text) => match text.split_once('=') {
            Some((key, _)) if is_secret(key) => Value::from(format!("{key}=***")),
            _ => Value::from(shortened(text)),
        },
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use testkit::Folder;

    fn caller() -> AuditedCaller {
        AuditedCaller { who: "token ci".to_owned(), address: "192.0.2.1:4000".to_owned() }
    }

    #[test]
    fn entries_survive_a_restart_and_name_the_caller() {
        let folder = Folder::new("audit-restart");
        let log = AuditLog::open(&folder);
        let refused: Result<()> = Err(Error::new(Kind::Forbidden, "authorize", "no role"));
        log.record_call(&caller(), "login", &Value::Null, &Ok(()));
        log.record_call(&caller(), "apply", &json!({ "file": "a.toml" }), &refused);
        let entries = AuditLog::open(&folder).newest(10).expect("entries");
        let result = |e: &AuditEntry| (e.what.clone(), e.result.clone());
        let results: Vec<_> = entries.iter().map(result).collect();
        let expected = [("login", "done"), ("apply", "ASH-0042: no role")];
        assert_eq!(results, expected.map(|(what, end)| (what.to_owned(), end.to_owned())));
        assert!(entries.iter().all(|e| e.who == "token ci" && e.address == "192.0.2.1:4000"));
        assert_eq!(log.newest(1).expect("entries"), entries.get(1..).expect("the newest"));
    }

    #[test]
    fn long_log_is_rotated_and_torn_lines_are_left_out() {
        let folder = Folder::new("audit-rotate");
        let log = AuditLog::open(&folder);
        log.record_call(&caller(), "first", &Value::Null, &Ok(()));
        let mut options = fs::OpenOptions::new();
        let mut file = options.append(true).open(folder.join(FILE)).expect("the log");
        let long = usize::try_from(FILE_BYTES_MAX).expect("a size");
        file.write_all(&vec![b'x'; long]).expect("scratch");
        log.record_call(&caller(), "second", &Value::Null, &Ok(()));
        assert!(folder.join(format!("{FILE}.1")).exists());
        let what: Vec<_> = log.newest(9).expect("entries").into_iter().map(|e| e.what).collect();
        assert_eq!(what, ["first", "second"]);
        let mut file = options.open(folder.join(FILE)).expect("the log");
        file.write_all(b"{\"torn").expect("scratch");
        log.record_call(&caller(), "third", &Value::Null, &Ok(()));
        let what = |n| log.newest(n).expect("entries").into_iter().map(|e| e.what);
        assert_eq!(what(9).collect::<Vec<_>>(), ["first", "second", "third"]);
        fs::rename(folder.join(FILE), folder.join("away")).expect("scratch");
        assert_eq!(what(9).collect::<Vec<_>>(), ["first"], "a missing file hides no older one");
    }

    /// A6, A8.
    #[test]
    fn changes_are_recorded_after_a_change_and_limited() {
        let folder = Folder::new("audit-changes");
        let log = AuditLog::open(&folder);
        let call = ("apply", &Value::Null);
        let made = |n: &usize| vec!["x".repeat(300); *n];
        let done = log.record_change(&caller(), call, || 1, || Ok(70), made);
        assert_eq!(done, Ok(70));
        let refused = Err(Error::new(Kind::Busy, "apply", "another command runs"));
        let done = log.record_change(&caller(), call, || 1, || refused, made);
        assert!(done.is_err());
        let counts: Vec<usize> =
            log.newest(9).expect("entries").iter().map(|e| e.changes.len()).collect();
        assert_eq!(counts, [0, CHANGES_MAX + 1, 0, 0]);
        let newest = log.newest(3).expect("entries");
        assert_eq!(newest[0].changes[CHANGES_MAX], "and 6 more");
        assert_eq!(newest[0].changes[0].len(), TEXT_CHARS_MAX + 3);
    }

    /// A7, A8.
    #[test]
    fn secrets_and_documents_are_not_recorded() {
        let params = json!({
            "document": "[[target]]\nchap = { secret = 'x' }",
            "value": { "passphrase": "x", "name": "data" },
            "params": ["secret=x", "name=data"],
            "yes_destroy": ["d0"],
        });
        assert_eq!(
            recorded(&params),
            json!({
                "document": "34 bytes",
                "value": { "passphrase": "***", "name": "data" },
                "params": ["secret=***", "name=data"],
                "yes_destroy": ["d0"],
            })
        );
        assert!(recorded(&json!("x".repeat(1000))).as_str().expect("a text").len() < 210);
        let words = |n| json!({ "names": Value::Array(vec![Value::from("x"); n]) });
        assert_eq!(recorded(&words(100)), words(100));
        assert_eq!(recorded(&words(10_000)), "40011 bytes");
    }
}
