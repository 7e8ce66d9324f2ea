//! The verb `create`: a new file or directory.

use geom::{Deserialize, JsonSchema, MessageAnswer, Verb};

use super::{Call, FileServer, Running, about, param_error, paths};
use crate::files::{Flags, Kind, New};

#[derive(Deserialize, JsonSchema)]
pub(super) struct Create {
    /// Path from the root; /dump/2026/1121/... for a file of a dump
    path: String,
    /// Owner of the new file
    user: String,
    /// Group of the new file
    group: String,
    /// Permission bits, octal: 775
    perm: String,
    /// Attributes: d directory, a append-only, l exclusive open, t not in dumps
    #[serde(default)]
    letters: Vec<String>,
}

impl Verb<FileServer> for Create {
    const NAME: &'static str = "create";
    const DOC: &'static str = "Create a file or a directory";
    const POSITIONAL: &'static [&'static str] =
        &["name", "path", "user", "group", "perm", "letters"];
    const EXAMPLE: &'static str = "fs create main /lib sys sys 775 d";
    const WRITES: bool = true;
    type Answer = MessageAnswer;

    fn run(self, Call { host, .. }: Call) -> Running<MessageAnswer> {
        Box::pin(async move {
            let fs = host.files()?;
            let path = self.path.as_str();
            let users = host.server.users();
            let who = |key: &str, name: &str| {
                users
                    .id(name)
                    .ok_or_else(|| param_error::<Self>(format!("{key}: there is no user {name}")))
            };
            let (uid, gid) = (who("user", &self.user)?, who("group", &self.group)?);
            let mode = u32::from_str_radix(&self.perm, 8).ok().filter(|m| *m <= 0o777);
            let mode = mode.ok_or_else(|| param_error::<Self>("perm is octal, 0 to 777"))?;
            let mut new = New { kind: Kind::File, flags: Flags(0), mode, uid, gid };
            for letter in self.letters.iter().flat_map(|w| w.chars()) {
                match letter {
                    'd' => new.kind = Kind::Dir,
                    'a' => new.flags = new.flags.with(Flags::APPEND),
                    'l' => new.flags = new.flags.with(Flags::EXCL),
                    't' => new.flags = new.flags.with(Flags::TMP),
                    other => {
                        let why = format!("letter {other}: it is one of d a l t");
                        return Err(param_error::<Self>(why));
                    }
                }
            }
            let (dir, name) = paths::parent_dir(&fs, path).await?;
            fs.run(|f| f.create(dir, name.as_bytes(), &new)).await.map_err(about(path))?;
            Ok(MessageAnswer::new(format!("{path} created")))
        })
    }
}
