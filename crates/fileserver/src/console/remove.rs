//! The verb `remove`: removal of files and empty directories.

use bio::Errno;
use geom::{Deserialize, Error, JsonSchema, MessageAnswer, Verb};

use super::{Call, FileServer, Running, about, paths};
use crate::users::ADM;
use crate::volume::View;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Remove {
    /// Path from the root: /tmp/x
    #[schemars(length(min = 1))]
    paths: Vec<String>,
}

impl Verb<FileServer> for Remove {
    const NAME: &'static str = "remove";
    const DOC: &'static str = "Remove files and empty directories of any owner";
    const DETAIL: &'static str = "Dumps that contain them keep them.";
    const POSITIONAL: &'static [&'static str] = &["name", "paths"];
    const EXAMPLE: &'static str = "fs remove main /tmp/x";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, Call { host, .. }: Call) -> Running<MessageAnswer> {
        Box::pin(async move {
            let fs = host.files()?;
            let all = self.paths;
            for path in &all {
                if path.starts_with("/dump/") {
                    let what = format!("{path}: dumps cannot be changed");
                    return Err(Error::new(Errno::RoFs, what));
                }
                let (dir, name) = paths::parent_dir(&fs, path).await?;
                let gone = fs.run(|f| match f.lookup(View::Live, dir, name.as_bytes())? {
                    Some(_) => f.remove(dir, name.as_bytes(), ADM).map(Some),
                    None => Ok(None),
                });
                if gone.await.map_err(about(path))?.is_none() {
                    return Err(Error::new(Errno::NoEnt, format!("{path}: file not found")));
                }
            }
            Ok(MessageAnswer::new(format!("{} removed", all.len())))
        })
    }
}
