//! The verb `history`: the versions of a file, live and in dumps.

use std::fmt::Write;

use bio::Errno;
use geom::{Deserialize, Error, JsonSchema, Verb};

use super::differences::{compare, named};
use super::paths::{self, Found};
use super::{Call, FileServer, Running, about, answers, param_error};
use crate::files::{Inode, Served};
use crate::service::{Host, format_time};
use crate::volume::{Dump, View};

/// Dumps that are searched for a file between two turns of clients.
const DUMPS_PER_TURN: usize = 16;

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
}

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

impl Verb<FileServer> for History {
    const NAME: &'static str = "history";
    const DOC: &'static str = "Show every version of a file, live or in a dump";
    const DETAIL: &'static str = "One line per version, the newest first: time of the change, \
         path, size, and the user who changed it. --diff also shows the changes from one version \
         to the next.";
    const POSITIONAL: &'static [&'static str] = &["name", "path"];
    const EXAMPLE: &'static str = "fs history main /lib/ndb/local";
    type Answer = Versions;

    fn run(self, Call { host, .. }: Call) -> Running<Versions> {
        Box::pin(async move {
            let fs = host.files()?;
            let path = self.path.as_str();
            let since = self.since.unwrap_or(0);
            let since = u32::try_from(since)
                .map_err(|_| param_error::<Self>("since is a day: 20261121"))?;
            let all = versions(&host, &fs, path, since).await?;
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
                        text += &compare(&host, (&old, &at), (&new, "the one above")).await?.text;
                    }
                }
                let (time, who) = (format_time(&host, v.inode.mtime_ns), users.name(v.inode.muid));
                let _ = writeln!(text, "{time} {at} {} [{who}]", v.inode.size);
                let (mtime_ns, bytes) = (v.inode.mtime_ns, v.inode.size);
                versions.push(OneVersion { path: at, mtime_ns, bytes, by: who });
            }
            Ok(Versions { text, versions })
        })
    }
}
