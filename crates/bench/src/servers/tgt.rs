//! tgt, Debian's user-space iSCSI target. A target of tgt's either insists on digests or does not
//! know them, so there are two, with the same units behind them.

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
    let mut paths = Vec::new();
    for backing in backings {
        paths.push(match backing {
            Backing::Null => ("null".into(), "null"),
            Backing::File(path) => (path.to_string_lossy().into_owned(), "rdwr"),
            Backing::Nbd(..) => {
                return Err(Error::new(Kind::Missing, "tgt opens no export of an NBD server"));
            }
            Backing::Memory => {
                let memory = Scratch::in_memory("tgt")?;
                let path = memory.file("disk", MEMORY_BYTES)?.to_string_lossy().into_owned();
                scratch.push(memory);
                (path, "rdwr")
            }
        });
    }
    let plain = make(&socket, "1", &paths)?;
    let digest_target = make(&socket, "2", &paths)?;
    for key in ["HeaderDigest", "DataDigest"] {
        let words = ["--op", "update", "--mode", "target", "--tid", "2", "--name", key];
        tgtadm(&socket, &[&words[..], &["--value", "CRC32C"]].concat())?;
    }
    Ok(Server {
        name: "tgt",
        portal,
        target: plain,
        digest_target: Some(digest_target),
        // LUN 0 is tgt's own controller.
        luns: (1..).take(backings.len()).collect(),
        child,
        _scratch: scratch,
    })
}

/// Creates a target with a unit for each path and kind, open to all initiators; returns its name.
fn make(socket: &Path, tid: &str, paths: &[(String, &str)]) -> Result<String, Error> {
    let name = format!("{TARGET}{tid}");
    tgtadm(socket, &["--op", "new", "--mode", "target", "--tid", tid, "-T", &name])?;
    for (lun, (path, kind)) in (1..).zip(paths) {
        let number = format!("{lun}");
        let words = ["--op", "new", "--mode", "logicalunit", "--tid", tid, "--lun", &number];
        tgtadm(socket, &[&words[..], &["-b", path, "--bstype", kind]].concat())?;
    }
    tgtadm(socket, &["--op", "bind", "--mode", "target", "--tid", tid, "-I", "ALL"])?;
    Ok(name)
}

fn tgtadm(socket: &Path, words: &[&str]) -> Result<(), Error> {
    let mut command = Command::new(tool("tgtadm")?);
    command.env(SOCKET, socket).args(["--lld", "iscsi"]).args(words);
    let output = command.output().map_err(|e| Error::system("tgtadm", e))?;
    if output.status.success() {
        return Ok(());
    }
    let stderr = String::from_utf8_lossy(&output.stderr);
    Err(Error::new(Kind::Server, format!("tgtadm {}: {}", words.join(" "), stderr.trim())))
}
