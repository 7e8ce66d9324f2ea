//! The bare responder as a child, measured as the others are. It takes no digests.

use std::path::Path;

use super::child::{self, Child, Scratch};
use super::{Backing, Server};
use crate::error::{Error, Kind};

const TARGET: &str = "iqn.2026-11.bench.ashlar:bare";

pub(super) fn start(core: Option<usize>, backings: &[Backing]) -> Result<Server, Error> {
    let file = match backings {
        [Backing::Null] | [Backing::Null, Backing::Memory] => None,
        [Backing::File(path)] => Some(path),
        _ => {
            let what = "the bare responder has one file, or no files";
            return Err(Error::new(Kind::Missing, what));
        }
    };
    let scratch = Scratch::new("bare")?;
    let portal = child::free_address()?;
    let mut command = child::pinned(Path::new(&child::own_path()?), core)?;
    command.args(["bare", "--listen", &portal.to_string()]);
    if let Some(path) = file {
        command.arg("--file").arg(path);
    }
    let mut child = Child::start("bare", &mut command, &scratch.path().join("log"))?;
    child.wait_port(portal)?;
    Ok(Server {
        name: "bare",
        portal,
        target: TARGET.to_owned(),
        digest_target: None,
        luns: (0..).take(backings.len()).collect(),
        child,
        _scratch: vec![scratch],
    })
}
