//! The verb `cat`: the text of a small file.

use geom::{Deserialize, Error, JsonSchema, Verb};

use super::{Call, FileServer, Running, Text, about, paths};

/// Bytes that `cat` prints at most.
const CAT_MAX: u64 = 1 << 20;

#[derive(Deserialize, JsonSchema)]
pub(super) struct Cat {
    /// Path from the root; /dump/2026/1121/... for a file of a dump
    path: String,
}

impl Verb<FileServer> for Cat {
    const NAME: &'static str = "cat";
    const DOC: &'static str = "Print a text file of at most 1 MiB";
    const POSITIONAL: &'static [&'static str] = &["name", "path"];
    const EXAMPLE: &'static str = "fs cat main /dump/2026/1121/adm/users";
    type Answer = Text;

    fn run(self, Call { host, .. }: Call) -> Running<Text> {
        Box::pin(async move {
            let fs = host.files()?;
            let path = self.path.as_str();
            let found = paths::find_existing(&host, &fs, path).await?;
            let bytes = paths::bytes(&fs, &found, CAT_MAX).await.map_err(about(path))?;
            let text = bytes.and_then(|b| String::from_utf8(b).ok());
            let why = format!("{path}: no text of at most 1 MiB; mount it to read it");
            let text = text.ok_or_else(|| Error::inval(why))?;
            Ok(Text { text })
        })
    }
}
