//! Space that each user owns, and the places of blocks.

use std::fmt::Write;
use std::rc::Rc;

use geom::Error;
use schemars::JsonSchema;
use serde::Deserialize;

use super::{FsVerb, about, answers, paths};
use crate::files::Usage;
use crate::service::Host;
use crate::volume::{Copy, View};

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
    /// The copies of a block.
    Compared {
        /// Result for people.
        text: String,
        /// Address of the block.
        address: u64,
        /// The copy of each device.
        copies: Vec<Copy>,
        /// Copies without a fault.
        sound: usize,
    }
}

#[derive(Default, Deserialize, JsonSchema)]
#[serde(default)]
pub(super) struct Acct {
    /// Dump to examine: 2026/1121, `yesterday` or `last` [default: the live tree]
    dump: Option<String>,
}

impl FsVerb for Acct {
    const NAME: &'static str = "acct";
    const DOC: &'static str = "Show space per user, and how much of it is new on the WORM";
    const DETAIL: &'static str = "`new` is the space that the next dump will add, or that the \
         given dump added; `scratch` is the space of temporary files, which are never dumped. The \
         whole tree is read.";
    const EXAMPLE: &'static str = "fs acct main --dump last";
    type Answer = Owned;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Owned, Error> {
        let fs = host.files()?;
        let view = match self.dump.as_deref() {
            None => View::Live,
            Some(word) => View::Dump(paths::dump(host, &fs, word)?.number),
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
    }
}

#[derive(Deserialize, JsonSchema)]
pub(super) struct Blockcmp {
    /// Address of the block on the WORM
    address: String,
}

impl FsVerb for Blockcmp {
    const NAME: &'static str = "blockcmp";
    const DOC: &'static str = "Compare the copies of a block with its expected contents";
    const DETAIL: &'static str = "`fs clean NAME PATH` lists the block addresses of a file. \
         Nothing is repaired: reading the file repairs it.";
    const POSITIONAL: &'static [&'static str] = &["address"];
    const EXAMPLE: &'static str = "fs blockcmp main 1234";
    type Answer = Compared;

    async fn run(self, host: &Rc<Host>, _: u64) -> Result<Compared, Error> {
        let fs = host.files()?;
        let address =
            self.address.parse().map_err(|_| Self::param_error("an address is a number"))?;
        let own = fs.volume("blocks of an image carry no checksum").map_err(about("blockcmp"))?;
        let copies = own.volume().copies(address).await.map_err(about("blockcmp"))?;
        let mut text = String::new();
        for Copy { device, at, fault } in &copies {
            let what = match (at, fault) {
                (None, _) => "not there".to_owned(),
                (Some(at), None) => format!("as it should be, in block {at}"),
                (Some(at), Some(fault)) => format!("block {at}: {fault}"),
            };
            let _ = writeln!(text, "{device:<24} {what}");
        }
        let sound = copies.iter().filter(|c| c.at.is_some() && c.fault.is_none()).count();
        Ok(Compared { text, address, copies, sound })
    }
}
