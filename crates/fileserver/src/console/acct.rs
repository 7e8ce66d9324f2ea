//! The verb `acct`: the space that each user owns.

use std::fmt::Write;

use geom::{Deserialize, JsonSchema, Verb};

use super::{Call, FileServer, Running, about, answers, paths};
use crate::files::Usage;
use crate::volume::View;

answers! {
    /// The space of one user.
    Owner {
        /// Name of the user.
        user: String,
        #[serde(flatten)]
        usage: Usage,
    }
    /// The space of all users.
    Owned {
        /// Result for people.
        text: String,
        /// Each user that owns files.
        users: Vec<Owner>,
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Acct {
    /// Dump to examine: 2026/1121, `yesterday` or `last` [default: the live tree]
    dump: Option<String>,
}

impl Verb<FileServer> for Acct {
    const NAME: &'static str = "acct";
    const DOC: &'static str = "Show space per user, and how much of it is new on the WORM";
    const DETAIL: &'static str = "`new` is the space that the next dump will add, or that the \
         given dump added; `scratch` is the space of temporary files, which are never dumped. The \
         whole tree is read.";
    const EXAMPLE: &'static str = "fs acct main --dump last";
    type Answer = Owned;

    fn run(self, Call { host, .. }: Call) -> Running<Owned> {
        Box::pin(async move {
            let fs = host.files()?;
            let view = match self.dump.as_deref() {
                None => View::Live,
                Some(word) => View::Dump(paths::dump(&host, &fs, word)?.number),
            };
            let own = fs.volume("blocks of an image are not accounted for");
            let all = own.map_err(about("acct"))?.usage(view).await.map_err(about("acct"))?;
            let users = host.server.users();
            let mut text = format!(
                "{:<16} {:>9} {:>7} {:>16} {:>11} {:>11} {:>9}\n",
                "user", "files", "dirs", "bytes", "blocks", "new", "scratch"
            );
            let (mut list, mut sum) = (Vec::new(), Usage::default());
            let mut line = |name: &str, u: &Usage| {
                let _ = writeln!(
                    text,
                    "{name:<16} {:>9} {:>7} {:>16} {:>11} {:>11} {:>9}",
                    u.files, u.dirs, u.bytes, u.blocks, u.new, u.scratch
                );
            };
            for (id, u) in &all {
                let name = users.name(*id);
                line(&name, u);
                sum.files += u.files;
                sum.dirs += u.dirs;
                sum.bytes += u.bytes;
                sum.blocks += u.blocks;
                sum.new += u.new;
                sum.scratch += u.scratch;
                list.push(Owner { user: name, usage: *u });
            }
            line("all", &sum);
            Ok(Owned { text, users: list })
        })
    }
}
