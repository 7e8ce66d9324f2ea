//! A file across dumps.

use std::fmt::Write;
use std::rc::Rc;

use bio::Errno;
use geom::Error;
use schemars::JsonSchema;
use serde::Deserialize;

use super::paths::{self, Contents, Found};
use super::{FsVerb, about, answers};
use crate::compare::{FirstDifference, text_of, unified};
use crate::files::{Inode, Kind, New, Reader, Served};
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
    /// One version of a file.
    OneVersion {
        /// Path of the version from the root.
        path: String,
        /// Time of its last change, ns since 1970.
        mtime_ns: u64,
        /// Size, bytes.
        bytes: u64,
        /// User that changed it last.
        by: String,
    }
    /// The versions of a file.
    Versions {
        /// Result for people.
        text: String,
        /// Each version.
        versions: Vec<OneVersion>,
    }
    /// The differences between two versions.
    Difference {
        /// Result for people.
        text: String,
        /// Whether the versions differ.
        differs: bool,
        /// Position of the first byte that differs; absent: none does.
        #[serde(skip_serializing_if = "Option::is_none")]
        first_difference: Option<u64>,
    }
    /// An earlier version of a file.
    Then {
        /// Result for people, unless the version was restored.
        #[serde(skip_serializing_if = "Option::is_none")]
        text: Option<String>,
        /// Result in sentences, if the version was restored.
        #[serde(skip_serializing_if = "Option::is_none")]
        message: Option<String>,
        /// Path of the version from the root.
        path: String,
        /// Whether the version was restored.
        copied: bool,
    }
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
                    text += &compare(host, (&old, &at), (&new, "the one above")).await?.text;
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
    /// Older version: a dump as 2026/1121, `yesterday` or `last`
    #[serde(default = "last")]
    from: String,
    /// Newer version: a dump [default: the live file]
    to: Option<String>,
}

fn last() -> String {
    "last".to_owned()
}

impl FsVerb for Diff {
    const NAME: &'static str = "diff";
    const DOC: &'static str = "Show the changes in a file since a dump";
    const DETAIL: &'static str = "Removed lines are marked -, added lines +. For files that are \
         not text, and for files of more than 8 MiB, the first byte that differs is reported, \
         within the first 256 MiB.";
    const POSITIONAL: &'static [&'static str] = &["path"];
    const EXAMPLE: &'static str = "fs diff main /lib/ndb/local --from yesterday";
    type Answer = Difference;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Difference, Error> {
        let fs = host.files()?;
        let path = self.path.as_str();
        let old = find_version(host, &fs, path, Some(self.from.as_str())).await?;
        let new = find_version(host, &fs, path, self.to.as_deref()).await?;
        let Compared { text, first_difference } =
            compare(host, (&old.0, &old.1), (&new.0, &new.1)).await?;
        let differs = first_difference.is_some() || old.0.inode.size != new.0.inode.size;
        let text = if text.is_empty() { "no difference\n".to_owned() } else { text };
        Ok(Difference { text, differs, first_difference })
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

/// The differences between two files.
#[derive(Default)]
struct Compared {
    /// In the format of `diff -u`, or in a sentence; empty if there is none.
    text: String,
    /// Position of the first byte that differs.
    first_difference: Option<u64>,
}

/// A file, and its name for the answer.
type Named<'a> = (&'a Found, &'a str);

async fn compare(host: &Host, old: Named<'_>, new: Named<'_>) -> Result<Compared, Error> {
    let (files, names) = ([old.0, new.0], [old.1, new.1]);
    if files[0].inode.version == files[1].inode.version {
        return Ok(Compared::default());
    }
    if files.iter().any(|file| file.inode.kind == Kind::Dir) {
        return Err(Error::inval(format!("{}: a directory, not a file", names[0])));
    }
    let fs = host.files()?;
    let a = paths::bytes(&fs, files[0], DIFF_MAX).await.map_err(about(names[0]))?;
    let b = paths::bytes(&fs, files[1], DIFF_MAX).await.map_err(about(names[1]))?;
    let (Some(a), Some(b)) = (a, b) else {
        let first = compare_pieces(host, old, new).await?;
        let text = difference_words(names, &first);
        return Ok(Compared { text, first_difference: first.at });
    };
    let mut first = FirstDifference::default();
    first.add(&a, &b);
    let text = match (first.at, text_of(a), text_of(b)) {
        (Some(_), Some(a), Some(b)) => unified((&a, names[0]), (&b, names[1]), None),
        _ => difference_words(names, &first),
    };
    Ok(Compared { text, first_difference: first.at })
}

/// Compares large files up to the first byte that differs; clients are served meanwhile.
async fn compare_pieces(
    host: &Host,
    old: Named<'_>,
    new: Named<'_>,
) -> Result<FirstDifference, Error> {
    let mut first = FirstDifference::default();
    let (mut old_reader, mut new_reader) = (Reader::default(), Reader::default());
    while first.at.is_none() && !first.is_at_limit() {
        let (a, reader) = paths::piece(host, old, first.compared, old_reader).await?;
        old_reader = reader;
        let (b, reader) = paths::piece(host, new, first.compared, new_reader).await?;
        new_reader = reader;
        if a.is_empty() && b.is_empty() {
            break;
        }
        first.add(&a, &b);
        host.yield_now().await;
    }
    Ok(first)
}

/// The first difference of two files in a sentence; empty if they are the same.
fn difference_words(names: [&str; 2], first: &FirstDifference) -> String {
    let [old, new] = names;
    match first.at {
        Some(at) => format!("{old} and {new} differ: the first difference is at byte {at}\n"),
        None if first.is_at_limit() => {
            format!("the first {} bytes of {old} and {new} are equal\n", first.compared)
        }
        None => String::new(),
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Yesterday {
    /// Path of the file from the root: /usr/rob/lib/profile
    path: String,
    /// Dump: 2026/1121, 1121 of the newest year that has it, 21 of this month, 261121, or `last`
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
            text += &compare(host, (&old, &at), (now, &named(None, path))).await?.text;
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
        // A text as an answer to a question, a message about a change.
        let (text, message) = if copied { (None, Some(text)) } else { (Some(text), None) };
        Ok(Then { text, message, path: at, copied })
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
    use super::{FirstDifference, days, difference_words};

    #[test]
    fn first_difference_of_files_that_are_not_text_is_named() {
        let words = |old: &[u8], new: &[u8]| {
            let mut first = FirstDifference::default();
            first.add(old, new);
            difference_words(["/dump/2026/1121/a", "/a"], &first)
        };
        let expected = "/dump/2026/1121/a and /a differ: the first difference is at byte 2\n";
        assert_eq!(words(&[1, 0, 2], &[1, 0, 3]), expected);
        assert_eq!(words(&[0], &[0]), "");
    }

    #[test]
    fn day_numbers_follow_the_calendar() {
        assert_eq!(days(20_260_301) - days(20_260_228), 1);
        assert_eq!(days(20_280_301) - days(20_280_228), 2);
        assert_eq!(days(20_270_101) - days(20_261_231), 1);
    }
}
