//! `check`: consistency of the live tree and of dumps, and repairs.

use std::fmt::Write;

use bio::Errno;
use geom::{Deserialize, Error, JsonSchema, Verb};

use super::{Call, FileServer, Running, about, answers, param_error, paths};
use crate::files::{Checked, Inode, Kind, Served};
use crate::ninep::Server;
use crate::service::Host;
use crate::users::ADM;
use crate::volume::{Dump, View};

/// Names that `check` prints at most.
const NAMED_MAX: usize = 100_000;

answers! {
    /// The result.
    Found {
        /// Result for people.
        text: String,
        /// Result of each checked view.
        checked: Vec<OneView>,
        /// Faults in all views.
        faults: u64,
        /// Repairs that were made, a sentence each.
        mended: Vec<String>,
    }
    /// The live tree, or a dump.
    OneView {
        /// Name of the view.
        view: String,
        /// Names of the files or directories, if they were requested.
        names: Vec<String>,
        #[serde(flatten)]
        found: Checked,
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Check {
    /// Dump to check: 2026/1121, `yesterday`, `last` or `all` [default: the live tree]
    dump: Option<String>,
    /// Read every block of every file
    #[schemars(extend("x-short" = "r"))]
    rdall: bool,
    /// Repair the live tree first; refused while a client is connected
    fix: bool,
    /// With --fix, for an image: report the repairs without making them
    dry: bool,
    /// Remove files with the letter t, which no dump has; in an image, also the contents of a
    /// directory with that letter
    rtmp: bool,
    /// Print the names of files
    pfile: bool,
    /// Print the names of directories
    pdir: bool,
}

impl Verb<FileServer> for Check {
    const NAME: &'static str = "check";
    const DOC: &'static str = "Check the consistency of the file tree";
    const DETAIL: &'static str = "Checks each item of the tree and its references; with --rdall it \
         also reads every block of every file and verifies its checksum. A damaged block is \
         reported with its file. Clients are served meanwhile. Their changes can look like faults, \
         so a check of the live tree that finds faults is repeated before they are reported. An \
         image is checked as of one moment, and the next dump waits for the check. --fix repairs \
         inconsistencies: names of missing files are removed, files without a name are put into \
         /lost+found, counts are corrected, and blocks without an owner are freed. Contents are \
         never discarded, and dumps are never changed. A block without a correct copy on any \
         device stays and is reported with its file; `clean` makes it a hole. In an image, --rdall \
         finds blocks that are marked as those of another file: such a block becomes a hole, and \
         its contents a file in /lost+found. While a directory of an image is unreadable, no \
         blocks are freed, because they may belong to its files: use `clri` on it first. --dry \
         reports the repairs that --fix would make in an image.";
    const EXAMPLE: &'static str = "fs check main --rdall";
    const WRITES: bool = true;
    type Answer = Found;

    fn run(self, Call { host, number }: Call) -> Running<Found> {
        Box::pin(async move {
            let fs = host.files()?;
            self.check_options()?;
            let mended = self.repair_first(&host, &fs).await?;
            let views = self.views(&host, &fs)?;
            let word = if self.dry { "would be repaired" } else { "repaired" };
            let mut text: String = mended.iter().map(|line| format!("{word}: {line}\n")).collect();
            let (mut checked, mut faults, total) = (Vec::new(), 0, views.len() as u64);
            for (done, (view, what)) in (0..).zip(views) {
                host.report_progress(number, format!("check of {what}"), done, total);
                let found = check_one(&fs, view, self.rdall).await?;
                let names = match self.pfile || self.pdir {
                    true => self.names(&fs, view).await?,
                    false => Vec::new(),
                };
                let one = OneView { view: what, names, found };
                faults += one.faults();
                text += &one.text();
                checked.push(one);
            }
            Ok(Found { text, checked, faults, mended })
        })
    }
}

impl Check {
    /// Options that exclude each other.
    fn check_options(&self) -> Result<(), Error> {
        if self.dry && self.rtmp {
            return Err(param_error::<Self>(
                "--rtmp removes, and --dry changes nothing: one of them",
            ));
        }
        if self.dry && !self.fix {
            return Err(param_error::<Self>("--dry shows what --fix would do: give both"));
        }
        if self.dump.is_some() && (self.rtmp || self.fix) {
            let flag = if self.rtmp { "--rtmp" } else { "--fix" };
            let what = format!("check {flag}: a dump is never changed; leave --dump out");
            return Err(Error::new(Errno::RoFs, what));
        }
        Ok(())
    }

    /// Repairs before the check begins; a line for each repair.
    async fn repair_first(&self, host: &Host, fs: &Served) -> Result<Vec<String>, Error> {
        let mut mended = Vec::new();
        // Before anything is removed: all of it is done, or nothing.
        let _alone = (self.fix && !self.dry).then(|| ExclusiveAccess::new(host)).transpose()?;
        if self.rtmp {
            let gone = fs.remove_temporary(ADM).await.map_err(about("check --rtmp"))?;
            mended.extend(gone.into_iter().map(|path| format!("{path} is removed")));
        }
        if self.fix {
            let done = fs.repair(self.rdall, self.dry).await;
            mended.extend(done.map_err(about("check --fix"))?);
        }
        Ok(mended)
    }

    /// The views to check, with their names.
    fn views(&self, host: &Host, fs: &Served) -> Result<Vec<(View, String)>, Error> {
        let all = match self.dump.as_deref() {
            None => return Ok(vec![(View::Live, "the live tree".to_owned())]),
            Some("all") => fs.dumps(),
            Some(word) => vec![paths::dump(host, fs, word)?],
        };
        let named = |dump: Dump| {
            let (year, day) = dump.path();
            (View::Dump(dump.number), format!("/dump/{year}/{day}"))
        };
        Ok(all.into_iter().map(named).collect())
    }

    /// Names of files, of directories, or of both; of many the first.
    async fn names(&self, fs: &Served, view: View) -> Result<Vec<String>, Error> {
        let wanted = |i: &Inode| if i.kind == Kind::Dir { self.pdir } else { self.pfile };
        let mut out = fs.paths_of(view, wanted, NAMED_MAX).await.map_err(about("check"))?;
        out.sort_unstable();
        Ok(out)
    }
}

impl OneView {
    fn faults(&self) -> u64 {
        self.found.faults.len() as u64 + self.found.more
    }

    fn text(&self) -> String {
        let (what, c) = (&self.view, &self.found);
        let mut text: String = self.names.iter().map(|path| format!("{path}\n")).collect();
        let _ = writeln!(
            text,
            "{what}: {} files, {} directories, {} blocks of files, {} of the tree, the highest {}; \
             {}",
            c.files,
            c.dirs,
            c.blocks,
            c.nodes,
            c.highest,
            match (self.faults(), c.leaked) {
                (0, 0) => "no faults".to_owned(),
                (0, leaked) => format!("{leaked} blocks have no owner"),
                (n, _) => format!("{n} faults"),
            }
        );
        c.faults.iter().for_each(|f| {
            let _ = writeln!(text, "  {f}");
        });
        if c.more > 0 {
            let _ = writeln!(text, "  and {} more", c.more);
        }
        text
    }
}

async fn check_one(fs: &Served, view: View, rdall: bool) -> Result<Checked, Error> {
    let mut found = fs.check(view, rdall).await.map_err(about("check"))?;
    let again = matches!(fs, Served::Volume(_)) && view == View::Live;
    if again && (!found.faults.is_empty() || found.leaked > 0) {
        found = fs.check(view, rdall).await.map_err(about("check"))?;
    }
    Ok(found)
}

/// No client is connected, and none can attach while it lives.
struct ExclusiveAccess<'a>(&'a Server);

impl<'a> ExclusiveAccess<'a> {
    fn new(host: &'a Host) -> Result<ExclusiveAccess<'a>, Error> {
        let open = host.server.clients().iter().filter(|p| p.fids > 0).count();
        if open > 0 {
            let name = &host.shared.name;
            let what = format!(
                "check --fix: {open} clients are connected (`ashlar fs who {name}`): `ashlar fs \
                 attaches {name} off` and `ashlar fs hangup {name} NUMBER` first"
            );
            return Err(Error::new(Errno::Busy, what));
        }
        if host.server.under_repair.replace(true) {
            return Err(Error::new(Errno::Busy, "check --fix: another check is running"));
        }
        Ok(ExclusiveAccess(&host.server))
    }
}

impl Drop for ExclusiveAccess<'_> {
    fn drop(&mut self) {
        self.0.under_repair.set(false);
    }
}
