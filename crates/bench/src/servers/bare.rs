//! The bare responder as a child, weighed as the others are. It takes no digests and has no files.

use std::path::Path;

use super::child::{self, Child, Scratch};
use super::{Backing, Server};
use crate::error::{Error, Kind};

const TARGET: &str = "iqn.2026-11.bench.ashlar:bare";

pub(super) fn start(core: Option<usize>, backings: &[Backing]) -> Result<Server, Error> {
    if !matches!(backings, [Backing::Null] | [Backing::Null, Backing::Memory]) {
        return Err(Error::new(Kind::Missing, "the bare responder has no files and no idle state"));
    }
    let scratch = Scratch::new("bare")?;
    let portal = child::free_address()?;
    let mut command = child::pinned(Path::new(&child::own_path()?), core)?;
    command.args(["bare", "--listen", &portal.to_string()]);
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
