//! A file server `main` with a large directory, two dumps, and a file of two versions, for tests of
//! the page.

use crate::api::{Error, Kind, Result};
use crate::file_service::{FileComparison, FileReader, FileService};
use serde_json::{Value, json};

/// Name of the file, as a hostile client may give it.
pub const EVIL: &str = "a\"; <script>\r\n\u{202e}é.txt";

/// Contents of the live file; those of the dump are shorter.
pub const LIVE: &[u8] = b"first\nsecond <b>\n";

/// Entries of the directory `/big`.
const BIG: u64 = 450;

/// See the module.
pub struct FakeFiles;

/// A file that is read two bytes at a time. If `fails`, only the first piece can be read.
struct Pieces {
    rest: &'static [u8],
    size: usize,
    fails: bool,
}

impl FileReader for Pieces {
    fn size(&self) -> u64 {
        u64::try_from(self.size).expect("it is small")
    }

    fn mtime_ns(&self) -> u64 {
        1_790_000_000_000_000_000
    }

    fn read(&mut self) -> Result<Vec<u8>> {
        if self.fails && self.rest.len() < self.size {
            return Err(Error::new(Kind::Busy, "read files", "the file has changed"));
        }
        let (piece, rest) = self.rest.split_at(self.rest.len().min(2));
        self.rest = rest;
        Ok(piece.to_vec())
    }
}

fn lost(path: &str) -> Error {
    Error::new(Kind::NotFound, "read files", "file not found").at(path)
}

fn entry(name: &str, is_directory: bool) -> Value {
    json!({
        "name": name, "directory": is_directory, "mode": 0o664, "uid": "rob", "gid": "rob",
        "bytes": LIVE.len(), "mtime_ns": 1_790_000_000_000_000_000_u64,
    })
}

fn listing(params: &Value) -> Result<Value> {
    let number = |key: &str| params[key].as_u64();
    match params["path"].as_str().unwrap_or_default() {
        "/" | "/dump/2026/1121" => {
            Ok(json!({ "text": "", "entries": [entry(EVIL, false), entry("big", true)] }))
        }
        "/big" => {
            let (after, limit) = (number("after").unwrap_or(0), number("limit").unwrap_or(BIG));
            let last = BIG.min(after + limit);
            let entries = (after..last).map(|n| entry(&format!("f{n}"), false));
            let entries: Vec<Value> = entries.collect();
            let next = (last < BIG).then_some(last);
            Ok(json!({ "text": "", "entries": entries, "next": next }))
        }
        other => Err(lost(other)),
    }
}

impl FileService for FakeFiles {
    fn servers(&self) -> Vec<String> {
        vec!["main".to_owned()]
    }

    fn query(&self, server: &str, verb: &str, params: &Value) -> Result<Value> {
        let dump = |path: &str, on: Value| {
            json!({ "path": path, "time_ns": 1_790_000_000_000_000_000_u64, "bytes": 8192,
                    "on": on })
        };
        let version = |path: String, by: &str| {
            json!({ "path": path, "mtime_ns": 1_790_000_000_000_000_000_u64,
                    "bytes": LIVE.len(), "by": by })
        };
        match (server, verb) {
            ("main", "dumps") => Ok(json!({ "text": "", "dumps": [
                dump("2025/1231", json!(["w0"])),
                dump("2026/1121", json!(["w0"])),
                dump("2026/11211", json!([])),
            ] })),
            ("main", "ls") => listing(params),
            ("main", "who") => Ok(json!({ "text": "", "who": [{
                "connection": 7, "peer": "10.0.0.9:4000", "users": ["rob", EVIL], "fids": 5,
                "open": 2, "requests": 1234, "read": 4096, "written": 0,
            }] })),
            ("main", "history") => {
                let path = params["path"].as_str().unwrap_or_default();
                let old = format!("/dump/2026/1121{path}");
                let all = [version(path.to_owned(), "rob"), version(old, EVIL)];
                Ok(json!({ "text": "", "versions": all }))
            }
            _ => Err(lost(server)),
        }
    }

    fn open(&self, server: &str, path: &str) -> Result<Box<dyn FileReader>> {
        let name = path.rsplit('/').next().unwrap_or_default();
        let rest: &'static [u8] = match (server, name) {
            ("main", EVIL | "changing") => LIVE,
            ("main", "empty") => b"",
            _ => return Err(lost(path)),
        };
        Ok(Box::new(Pieces { rest, size: rest.len(), fails: name == "changing" }))
    }

    fn compare(&self, server: &str, old: &str, new: &str) -> Result<FileComparison> {
        let (first, second) = (self.open(server, old)?, self.open(server, new)?);
        Ok(FileComparison {
            sizes: [first.size(), second.size()],
            mtimes_ns: [first.mtime_ns(), second.mtime_ns()],
            first_difference: Some(6),
            compared: second.size(),
            text: (!new.ends_with("changing"))
                .then(|| format!("--- {old}\n+++ {new}\n first\n+\tsecond <b>\n")),
        })
    }
}
