//! The verb `yesterday`: an old version of a file, found or restored.

use bio::Errno;
use geom::{Deserialize, Error, JsonSchema, Verb};

use super::differences::{compare, named};
use super::paths::{self, Contents};
use super::{Call, FileServer, Running, about, answers, param_error};
use crate::files::{Kind, New};
use crate::service::today;
use crate::volume::View;

answers! {
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

impl Verb<FileServer> for Yesterday {
    const NAME: &'static str = "yesterday";
    const DOC: &'static str = "Find an old version of a file, and restore it";
    const DETAIL: &'static str = "Without --date and --ago the version is that in the newest dump \
         of a day before today. --copy restores it under its name in one step. The live version \
         remains only in dumps that contain it, and is lost if there is none.";
    const POSITIONAL: &'static [&'static str] = &["name", "path"];
    const EXAMPLE: &'static str = "fs yesterday main /usr/rob/thesis.ms --copy";
    const WRITES: bool = true;
    type Answer = Then;

    fn run(self, Call { host, .. }: Call) -> Running<Then> {
        Box::pin(async move {
            let fs = host.files()?;
            let path = self.path.as_str();
            let dump = match (self.date.as_deref(), self.ago) {
                (Some(_), Some(_)) => return Err(param_error::<Self>("either --date or --ago")),
                (Some(word), None) => paths::dump(&host, &fs, word)?,
                (None, ago) => {
                    let ago = i64::try_from(ago.unwrap_or(1)).unwrap_or(i64::MAX / 2);
                    let most = days(today(&host)) - ago;
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
            let old =
                old.ok_or_else(|| Error::new(Errno::NoEnt, format!("{at}: file not found")))?;
            let mut text = format!("{at}\n");
            let now = paths::find(&fs, View::Live, path).await.map_err(about(path))?;
            if self.diff
                && let Some(now) = &now
            {
                text += &compare(&host, (&old, &at), (now, &named(None, path))).await?.text;
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
                        "{path}: it is the disk {disk}, whose hosts would go on with the file that \
                         it has now; `ashlar fs undisk {name} {disk}` first, and `ashlar fs disk \
                         {name} {path} --as {disk}` afterwards"
                    );
                    return Err(Error::new(Errno::Busy, what));
                } else {
                    let (dir, name) = paths::parent_dir(&fs, path).await?;
                    let (kind, i) = (Kind::File, &old.inode);
                    let new = New { kind, flags: i.flags, mode: i.mode, uid: i.uid, gid: i.gid };
                    let from = Contents::CopyOf(&old);
                    paths::replace(&host, &fs, (dir, name), new, from)
                        .await
                        .map_err(about(path))?;
                    text += &format!("{} is as it was then\n", named(None, path));
                    copied = true;
                }
            }
            // A text as an answer to a question, a message about a change.
            let (text, message) = if copied { (None, Some(text)) } else { (Some(text), None) };
            Ok(Then { text, message, path: at, copied })
        })
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
