//! tgt, Debian's user-space iSCSI target.

use std::path::Path;
use std::process::Command;

use super::child::{self, Child, Scratch, tool};
use super::{Backing, MEMORY_BYTES, Server};
use crate::error::{Error, Kind};

const TARGET: &str = "iqn.2026-11.bench.ashlar:tgt";
/// The environment variable with the control socket's path, which keeps this tgtd to itself.
const SOCKET: &str = "TGT_IPC_SOCKET";

pub(super) fn start(core: Option<usize>, backings: &[Backing]) -> Result<Server, Error> {
    let mut scratch = vec![Scratch::new("tgt")?];
    let home = scratch[0].path().to_owned();
    let portal = child::free_address()?;
    let socket = home.join("control");
    let mut command = child::pinned(&tool("tgtd")?, core)?;
    command.args(["-f", "--iscsi"]).arg(format!("portal={portal}")).env(SOCKET, &socket);
    let mut child = Child::start("tgtd", &mut command, &home.join("log"))?;
    let show = ["--op", "show", "--mode", "target"];
    child.wait_for("it answered tgtadm", || tgtadm(&socket, &show).is_ok())?;
    child.wait_port(portal)?;
    tgtadm(&socket, &["--op", "new", "--mode", "target", "--tid", "1", "-T", TARGET])?;
    let mut luns = Vec::new();
    // LUN 0 is tgt's own controller.
    for (lun, backing) in (1u32..).zip(backings) {
        let (path, kind) = match backing {
            Backing::Null => ("null".into(), "null"),
            Backing::File(path) => (path.to_string_lossy().into_owned(), "rdwr"),
            Backing::Memory => {
                let memory = Scratch::in_memory("tgt")?;
                let path = memory.file("disk", MEMORY_BYTES)?.to_string_lossy().into_owned();
                scratch.push(memory);
                (path, "rdwr")
            }
        };
        let number = lun.to_string();
        let words = ["--op", "new", "--mode", "logicalunit", "--tid", "1", "--lun", &number];
        let more = ["-b", &path, "--bstype", kind];
        tgtadm(&socket, &[&words[..], &more].concat())?;
        luns.push(lun);
    }
    tgtadm(&socket, &["--op", "bind", "--mode", "target", "--tid", "1", "-I", "ALL"])?;
    let target = TARGET.to_owned();
    Ok(Server { name: "tgt", portal, target, luns, child, _scratch: scratch })
}

fn tgtadm(socket: &Path, words: &[&str]) -> Result<(), Error> {
    let mut command = Command::new(tool("tgtadm")?);
    command.env(SOCKET, socket).args(["--lld", "iscsi"]).args(words);
    let output = command.output().map_err(|e| Error::system("tgtadm", e))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(Kind::Server, format!("tgtadm {}: {}", words.join(" "), said.trim())))
}
