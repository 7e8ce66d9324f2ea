//! The verb `diff`: the changes in a file since a dump.

use bio::Errno;
use geom::{Deserialize, Error, JsonSchema, Verb};

use super::differences::{Compared, compare, named};
use super::paths::{self, Found};
use super::{Call, FileServer, Running, about, answers};
use crate::files::Served;
use crate::service::Host;
use crate::volume::View;

answers! {
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

impl Verb<FileServer> for Diff {
    const NAME: &'static str = "diff";
    const DOC: &'static str = "Show the changes in a file since a dump";
    const DETAIL: &'static str = "Removed lines are marked -, added lines +. For files that are \
         not text, and for files of more than 8 MiB, the first byte that differs is reported, \
         within the first 256 MiB.";
    const POSITIONAL: &'static [&'static str] = &["name", "path"];
    const EXAMPLE: &'static str = "fs diff main /lib/ndb/local --from yesterday";
    type Answer = Difference;

    fn run(self, Call { host, .. }: Call) -> Running<Difference> {
        Box::pin(async move {
            let fs = host.files()?;
            let path = self.path.as_str();
            let old = find_version(&host, &fs, path, Some(self.from.as_str())).await?;
            let new = find_version(&host, &fs, path, self.to.as_deref()).await?;
            let Compared { text, first_difference } =
                compare(&host, (&old.0, &old.1), (&new.0, &new.1)).await?;
            let differs = first_difference.is_some() || old.0.inode.size != new.0.inode.size;
            let text = if text.is_empty() { "no difference\n".to_owned() } else { text };
            Ok(Difference { text, differs, first_difference })
        })
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
