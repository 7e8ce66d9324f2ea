//! A file across dumps.

use std::fmt::Write;
use std::rc::Rc;

use bio::Errno;
use geom::Error;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use similar::TextDiff;

use super::paths::{self, Contents, Found};
use super::{FsVerb, about, answers};
use crate::compare::unified;
use crate::files::{Inode, Kind, New, Served};
use crate::service::{Host, format_time, today};
use crate::volume::{Dump, View};

/// Files up to so many bytes are compared line by line.
const DIFF_MAX: u64 = 8 << 20;
/// Dumps that are searched for a file between two turns of clients.
const DUMPS_PER_TURN: usize = 16;

/// The state of a file at one time.
struct Version {
    /// The path of the dump, none: now.
    dump: Option<Dump>,
    inode: Inode,
}

/// The file now, then its versions in the dumps, the newest first. A version that stayed the same
/// over several dumps counts once, under the oldest of them that has it.
async fn versions(host: &Host, fs: &Served, path: &str, since: u32) -> Result<Vec<Version>, Error> {
    let mut out: Vec<Version> = Vec::new();
    let now = paths::find(fs, View::Live, path).await.map_err(about(path))?;
    out.extend(now.map(|f| Version { dump: None, inode: f.inode }));
    let dumps = fs.dumps().into_iter().rev().filter(|d| d.date >= since);
    for (i, dump) in dumps.enumerate() {
        if i % DUMPS_PER_TURN == DUMPS_PER_TURN - 1 {
            host.yield_now().await;
        }
        let found = paths::find(fs, View::Dump(dump.number), path).await.map_err(about(path))?;
        let Some(found) = found else { continue };
        let same = |v: &Version| v.inode.version == found.inode.version;
        match out.last_mut() {
            // The present file is shown as the live one.
            Some(last) if same(last) && last.dump.is_none() => {}
            Some(last) if same(last) => last.dump = Some(dump),
            _ => out.push(Version { dump: Some(dump), inode: found.inode }),
        }
    }
    if out.is_empty() {
        let what = format!("{path}: neither in the live tree nor in a dump");
        return Err(Error::new(Errno::NoEnt, what));
    }
    Ok(out)
}

fn named(dump: Option<&Dump>, path: &str) -> String {
    let path = path.trim_start_matches('/');
    match dump {
        None => format!("/{path}"),
        Some(d) => {
            let (year, day) = d.path();
            format!("/dump/{year}/{day}/{path}")
        }
    }
}

answers! {
    OneVersion { path: String, mtime_ns: u64, bytes: u64, by: String }
    Versions { text: String, versions: Vec<OneVersion> }
    Difference { text: String, differs: bool }
    Then { #[serde(flatten)] words: TextOrMessage, path: String, copied: bool }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct History {
    /// Path of the file from the root: /usr/rob/lib/profile
    path: String,
    /// Show the changes between successive versions
    #[serde(default)]
    #[schemars(extend("x-short" = "D"))]
    diff: bool,
    /// Show only dumps of this day or later: 20261121 [default: all dumps]
    #[schemars(extend("x-short" = "s"))]
    since: Option<u64>,
}

impl FsVerb for History {
    const NAME: &'static str = "history";
    const DOC: &'static str = "Show every version of a file, live or in a dump";
    const DETAIL: &'static str = "One line per version, the newest first: time of the change, \
         path, size, and the user who changed it. --diff also shows the changes from one version \
         to the next.";
    const POSITIONAL: &'static [&'static str] = &["path"];
    const EXAMPLE: &'static str = "fs history main /lib/ndb/local";
    type Answer = Versions;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Versions, Error> {
        let fs = host.files()?;
        let path = self.path.as_str();
        let since = self.since.unwrap_or(0);
        let since =
            u32::try_from(since).map_err(|_| Self::param_error("since is a day: 20261121"))?;
        let all = versions(host, &fs, path, since).await?;
        let users = host.server.users();
        let (mut text, mut versions) = (String::new(), Vec::new());
        let mut newer: Option<Found> = None;
        for v in &all {
            let view = v.dump.map_or(View::Live, |d| View::Dump(d.number));
            let at = named(v.dump.as_ref(), path);
            if self.diff {
                let found = paths::find(&fs, view, path).await.map_err(about(path))?;
                let above = std::mem::replace(&mut newer, found.clone());
                if let (Some(new), Some(old)) = (above, found) {
                    text += &compare(&fs, (&old, &at), (&new, "the one above")).await?;
                }
            }
            let (time, who) = (format_time(host, v.inode.mtime_ns), users.name(v.inode.muid));
            let _ = writeln!(text, "{time} {at} {} [{who}]", v.inode.size);
            let (mtime_ns, bytes) = (v.inode.mtime_ns, v.inode.size);
            versions.push(OneVersion { path: at, mtime_ns, bytes, by: who });
        }
        Ok(Versions { text, versions })
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Diff {
    /// Path of the file from the root: /usr/rob/lib/profile
    path: String,
    /// Older version: a dump as 2026/1121, `yesterday` or `last` [default: last]
    from: Option<String>,
    /// Newer version: a dump [default: the live file]
    to: Option<String>,
}

impl FsVerb for Diff {
    const NAME: &'static str = "diff";
    const DOC: &'static str = "Show the changes in a file since a dump";
    const DETAIL: &'static str = "Removed lines are marked -, added lines +. For files that are \
         not text, and for files of more than 8 MiB, only the fact that they differ is reported.";
    const POSITIONAL: &'static [&'static str] = &["path"];
    const EXAMPLE: &'static str = "fs diff main /lib/ndb/local --from yesterday";
    type Answer = Difference;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Difference, Error> {
        let fs = host.files()?;
        let path = self.path.as_str();
        let old =
            find_version(host, &fs, path, Some(self.from.as_deref().unwrap_or("last"))).await?;
        let new = find_version(host, &fs, path, self.to.as_deref()).await?;
        let text = compare(&fs, (&old.0, &old.1), (&new.0, &new.1)).await?;
        let differs = !text.is_empty();
        let text = if differs { text } else { "no difference\n".to_owned() };
        Ok(Difference { text, differs })
    }
}

async fn find_version(
    host: &Host,
    fs: &Served,
    path: &str,
    dump: Option<&str>,
) -> Result<(Found, String), Error> {
    let dump = dump.map(|word| paths::dump(host, fs, word)).transpose()?;
    let view = dump.map_or(View::Live, |d| View::Dump(d.number));
    let at = named(dump.as_ref(), path);
    let found = paths::find(fs, view, path).await.map_err(about(path))?;
    let found = found.ok_or_else(|| Error::new(Errno::NoEnt, format!("{at}: file not found")))?;
    Ok((found, at))
}

/// The differences in the format of `diff -u`; empty if the files are the same.
async fn compare(
    fs: &Served,
    (old, old_at): (&Found, &str),
    (new, new_at): (&Found, &str),
) -> Result<String, Error> {
    if old.inode.version == new.inode.version {
        return Ok(String::new());
    }
    if old.inode.kind == Kind::Dir || new.inode.kind == Kind::Dir {
        return Err(Error::inval(format!("{old_at}: a directory, not a file")));
    }
    let a = paths::bytes(fs, old, DIFF_MAX).await.map_err(about(old_at))?;
    let b = paths::bytes(fs, new, DIFF_MAX).await.map_err(about(new_at))?;
    let (Some(a), Some(b)) = (a, b) else {
        return Ok(format!("{old_at} and {new_at} differ; they are too large to show how\n"));
    };
    if a == b {
        return Ok(String::new());
    }
    let (Ok(a), Ok(b)) = (String::from_utf8(a), String::from_utf8(b)) else {
        return Ok(format!("{old_at} and {new_at} differ; they are not text\n"));
    };
    let diff = TextDiff::from_lines(a.as_str(), b.as_str());
    Ok(unified(&diff, old_at, new_at))
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Yesterday {
    /// Path of the file from the root: /usr/rob/lib/profile
    path: String,
    /// Dump: 2026/1121, 1121 of the newest year that has it, 21 of this month, 261121, or last
    date: Option<String>,
    /// Newest dump that is at least this many days old
    #[schemars(extend("x-short" = "n"))]
    ago: Option<u64>,
    /// Restore the file [default: only print the path of the version]
    #[serde(default)]
    #[schemars(extend("x-short" = "c"))]
    copy: bool,
    /// Also show the changes since that version
    #[serde(default)]
    #[schemars(extend("x-short" = "d"))]
    diff: bool,
}

/// Its text as a question, its message as a change.
#[derive(Serialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum TextOrMessage {
    Text(String),
    Message(String),
}

impl FsVerb for Yesterday {
    const NAME: &'static str = "yesterday";
    const DOC: &'static str = "Find an old version of a file, and restore it";
    const DETAIL: &'static str = "Without --date and --ago the version is that in the newest dump \
         of a day before today. --copy restores it under its name in one step. The live version \
         remains only in dumps that contain it, and is lost if there is none.";
    const POSITIONAL: &'static [&'static str] = &["path"];
    const EXAMPLE: &'static str = "fs yesterday main /usr/rob/thesis.ms --copy";
    const WRITES: bool = true;
    type Answer = Then;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Then, Error> {
        let fs = host.files()?;
        let path = self.path.as_str();
        let dump = match (self.date.as_deref(), self.ago) {
            (Some(_), Some(_)) => return Err(Self::param_error("either --date or --ago")),
            (Some(word), None) => paths::dump(host, &fs, word)?,
            (None, ago) => {
                let most =
                    days(today(host)) - i64::try_from(ago.unwrap_or(1)).unwrap_or(i64::MAX / 2);
                let all = fs.dumps();
                let found = all.into_iter().rev().find(|d| days(d.date) <= most);
                found.ok_or_else(|| {
                    let what =
                        "no dump is that old; `ashlar fs dumps` lists them, --date names one";
                    Error::new(Errno::NoEnt, what)
                })?
            }
        };
        let view = View::Dump(dump.number);
        let at = named(Some(&dump), path);
        let old = paths::find(&fs, view, path).await.map_err(about(path))?;
        let old = old.ok_or_else(|| Error::new(Errno::NoEnt, format!("{at}: file not found")))?;
        let mut text = format!("{at}\n");
        let now = paths::find(&fs, View::Live, path).await.map_err(about(path))?;
        if self.diff
            && let Some(now) = &now
        {
            text += &compare(&fs, (&old, &at), (now, &named(None, path))).await?;
        }
        let mut copied = false;
        if self.copy {
            if old.inode.kind == Kind::Dir {
                let what = format!("{at}: a directory; restore its files one by one");
                return Err(Error::inval(what));
            }
            let same = now.as_ref().is_some_and(|n| n.inode.version == old.inode.version);
            let disk = now.as_ref().and_then(|now| host.disk_of(now.ino));
            if same {
                text += "the live version is the same\n";
            } else if let Some(disk) = disk {
                let name = &host.shared.name;
                let what = format!(
                    "{path}: it is the disk {disk}, whose hosts would go on with the file that it \
                     has now; `ashlar fs undisk {name} {disk}` first, and `ashlar fs disk {name} \
                     {path} --as {disk}` afterwards"
                );
                return Err(Error::new(Errno::Busy, what));
            } else {
                let (dir, name) = paths::parent_dir(&fs, path).await?;
                let i = &old.inode;
                let new =
                    New { kind: Kind::File, flags: i.flags, mode: i.mode, uid: i.uid, gid: i.gid };
                let from = Contents::CopyOf(&old);
                paths::replace(host, &fs, (dir, name), new, from).await.map_err(about(path))?;
                text += &format!("{} is as it was then\n", named(None, path));
                copied = true;
            }
        }
        let words = if copied { TextOrMessage::Message(text) } else { TextOrMessage::Text(text) };
        Ok(Then { words, path: at, copied })
    }
}

/// Days of a date, counted so that a difference is a number of days.
fn days(date: u32) -> i64 {
    let part = |n: u32| i8::try_from(n).unwrap_or(1);
    let (y, m, d) = (date / 10_000, part(date / 100 % 100), part(date % 100));
    let date = jiff::civil::Date::new(i16::try_from(y).unwrap_or(0), m, d);
    let epoch = jiff::civil::Date::new(1970, 1, 1);
    match (date, epoch) {
        (Ok(date), Ok(epoch)) => date.since(epoch).map_or(0, |s| i64::from(s.get_days())),
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use super::days;

    #[test]
    fn day_numbers_follow_the_calendar() {
        assert_eq!(days(20_260_301) - days(20_260_228), 1);
        assert_eq!(days(20_280_301) - days(20_280_228), 2);
        assert_eq!(days(20_270_101) - days(20_261_231), 1);
    }
}
