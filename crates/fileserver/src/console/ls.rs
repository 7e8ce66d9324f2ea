//! The verb `ls`: the entries of a directory. As in all verbs about files, no permissions are
//! checked.

use std::fmt::Write;

use geom::{Deserialize, JsonSchema, Verb};

use super::fstat::mode_text;
use super::{Call, FileServer, Running, about, answers, param_error, paths};
use crate::files::Kind;
use crate::service::format_time;
use crate::volume::Dump;

/// Entries that a listing has at most.
const ENTRIES_MAX: usize = 10_000;

answers! {
    /// An entry of a directory.
    Entry {
        /// Name of the file.
        name: String,
        /// Whether it is a directory.
        directory: bool,
        #[serde(flatten)]
        facts: Option<Facts>,
    }
    /// Attributes that a dump and a year do not have.
    Facts {
        /// Permission bits.
        mode: u32,
        /// Owner.
        uid: String,
        /// Group.
        gid: String,
        /// Size, bytes.
        bytes: u64,
        /// Time of the last change, ns since 1970.
        mtime_ns: u64,
    }
    /// The entries of a directory, or a file.
    Listing {
        /// Result for people.
        text: String,
        /// The entries, in the order of their names.
        entries: Vec<Entry>,
        /// Where the next listing begins, if there may be more entries.
        #[serde(skip_serializing_if = "Option::is_none")]
        next: Option<u64>,
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Ls {
    /// Path from the root; /dump/2026/1121/... for a file of a dump
    path: String,
    /// Begin behind the entry that ended the previous listing, by its number
    #[serde(default)]
    after: u64,
    /// Maximum number of entries to list, at most the default
    #[serde(default = "entries_max")]
    limit: u64,
}

fn entries_max() -> u64 {
    ENTRIES_MAX as u64
}

impl Verb<FileServer> for Ls {
    const NAME: &'static str = "ls";
    const DOC: &'static str = "List a directory";
    const DETAIL: &'static str = "If there may be more entries than were listed, the last line \
         shows the --after of the next listing; --json has it as `next`.";
    const POSITIONAL: &'static [&'static str] = &["name", "path"];
    const EXAMPLE: &'static str = "fs ls main /adm";
    type Answer = Listing;

    fn run(self, Call { host, .. }: Call) -> Running<Listing> {
        Box::pin(async move {
            let fs = host.files()?;
            let path = self.path.as_str();
            let limit = usize::try_from(self.limit).unwrap_or(usize::MAX);
            if !(1..=ENTRIES_MAX).contains(&limit) {
                let why = format!("limit is {limit}, not 1 to {ENTRIES_MAX}");
                return Err(param_error::<Self>(why));
            }
            if let Some(listed) = dumps_below(&fs.dumps(), path) {
                return Ok(listed);
            }
            let dir = paths::find_existing(&host, &fs, path).await?;
            let users = host.server.users();
            let (mut text, mut entries) = (String::new(), Vec::new());
            let mut after = self.after;
            while entries.len() < limit {
                let most = (limit - entries.len()).min(64);
                let some = fs
                    .run(|f| {
                        let entries = f.entries(dir.view, dir.ino, after, most)?;
                        let with = entries.into_iter().map(|e| Ok((f.inode(dir.view, e.ino)?, e)));
                        with.collect::<Result<Vec<_>, _>>()
                    })
                    .await
                    .map_err(about(path))?;
                let Some((_, last)) = some.last() else { break };
                after = last.cookie;
                for (i, e) in some {
                    let name = String::from_utf8_lossy(&e.name).into_owned();
                    let mode = mode_text(i.kind, i.flags, i.mode);
                    let (uid, gid, time) =
                        (users.name(i.uid), users.name(i.gid), format_time(&host, i.mtime_ns));
                    let _ = writeln!(text, "{mode} {uid:<8} {gid:<8} {:>12} {time} {name}", i.size);
                    let (mode, bytes, mtime_ns) = (i.mode, i.size, i.mtime_ns);
                    let facts = Some(Facts { mode, uid, gid, bytes, mtime_ns });
                    entries.push(Entry { name, directory: i.kind == Kind::Dir, facts });
                }
            }
            let next = (entries.len() >= limit).then_some(after);
            if let Some(next) = next {
                let _ = writeln!(text, "... and more: repeat the command with --after {next}");
            }
            Ok(Listing { text, entries, next })
        })
    }
}

/// Years that have dumps, and the dumps of a year: the directories that an attach of `dump` shows.
fn dumps_below(all: &[Dump], path: &str) -> Option<Listing> {
    let parts: Vec<&str> = paths::parts(path).collect();
    let year = match parts.as_slice() {
        ["dump"] if path.starts_with('/') => None,
        ["dump", year] if path.starts_with('/') => Some(*year),
        _ => return None,
    };
    let paths = all.iter().map(Dump::path);
    let mut names: Vec<String> = match year {
        None => paths.map(|(y, _)| y).collect(),
        Some(year) => paths.filter(|(y, _)| y == year).map(|(_, day)| day).collect(),
    };
    names.dedup();
    if names.is_empty() {
        return None;
    }
    let text: String = names.iter().map(|name| format!("{name}\n")).collect();
    let entry = |name| Entry { name, directory: true, facts: None };
    Some(Listing { text, entries: names.into_iter().map(entry).collect(), next: None })
}
