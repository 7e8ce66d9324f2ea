//! The verb `clri`: removal of entries of damaged files. Like `clean` it edits the live tree for a
//! fault that no other command repairs; the tree is inconsistent until `check --fix` has run.

use bio::Errno;
use geom::{Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{Call, FileServer, Running, about, paths};

#[derive(Deserialize, JsonSchema)]
pub(super) struct Clri {
    /// Path from the root: /tmp/x
    #[schemars(length(min = 1))]
    paths: Vec<String>,
}

impl Verb<FileServer> for Clri {
    const NAME: &'static str = "clri";
    const DOC: &'static str = "Remove the entries of damaged files without reading them";
    const DETAIL: &'static str = "For a damaged file that `remove` cannot remove. Names and \
         attributes are removed; the blocks of the files have no owner then, and blocks that no \
         other file uses are free after `fs check NAME --fix`. The entries of a removed directory \
         become orphans, which `check --fix` puts into /lost+found; in an image they are removed \
         with the directory. Dumps are not changed.";
    const POSITIONAL: &'static [&'static str] = &["name", "paths"];
    const EXAMPLE: &'static str = "fs clri main /tmp/x";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, Call { host, .. }: Call) -> Running<MessageAnswer> {
        Box::pin(async move {
            let fs = host.files()?;
            let all = self.paths;
            for path in &all {
                check_live(path)?;
                let (dir, name) = paths::parent_dir(&fs, path).await?;
                let gone = fs.forget(dir, name.as_bytes()).await.map_err(about(path))?;
                if !gone {
                    return Err(Error::new(Errno::NoEnt, format!("{path}: file not found")));
                }
            }
            let n = all.len();
            Ok(MessageAnswer::new(format!("{n} removed; `fs check --fix` frees their blocks")))
        })
    }
}

pub(super) fn check_live(path: &str) -> Result<(), Error> {
    if path.starts_with("/dump/") {
        return Err(Error::new(Errno::RoFs, format!("{path}: dumps cannot be changed")));
    }
    Ok(())
}
