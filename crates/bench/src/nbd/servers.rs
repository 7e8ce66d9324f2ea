//! NBD servers as children, measured as all others are.

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;

use crate::error::Error;
use crate::servers::{BEFORE, Child, MEMORY_BYTES, Scratch, free_address, pinned, tool};

/// Bytes of the disk that has none.
pub(crate) const NULL_BYTES: u64 = 1 << 40;

/// Backing store of an export.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Store {
    /// Nothing.
    Null,
    /// Memory of [`MEMORY_BYTES`].
    Memory,
}

/// A running server. Its processes are killed when this is dropped.
pub(crate) struct Server {
    pub name: &'static str,
    /// Where the export with nothing behind it is, and the one with memory.
    exports: [(SocketAddr, &'static str); 2],
    child: Child,
    _scratch: Vec<Scratch>,
}

impl Server {
    pub fn export(&self, store: Store) -> (SocketAddr, &'static str) {
        let [null, memory] = self.exports;
        if store == Store::Null { null } else { memory }
    }

    /// The process to measure.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }
}

fn child(
    name: &'static str,
    core: Option<usize>,
    program: &Path,
    words: &dyn Fn(&mut Command),
    portals: &[SocketAddr],
    scratch: &Scratch,
) -> Result<Child, Error> {
    let mut command = pinned(program, core)?;
    words(&mut command);
    let mut child = Child::start(name, &mut command, &scratch.path().join(format!("log-{name}")))?;
    portals.iter().try_for_each(|&portal| child.wait_port(portal))?;
    Ok(child)
}

/// `ashlar serve` with a usual configuration.
pub(crate) fn ashlar(binary: &str, core: Option<usize>) -> Result<Server, Error> {
    let scratch = Scratch::new("ashlar-nbd")?;
    let home = scratch.path();
    let portal = free_address()?;
    let quoted = |name: &str| format!("{:?}", home.join(name).to_string_lossy());
    let one = if core.is_some() { "cores = 1\n" } else { "" };
    let text = format!(
        "[daemon]\nsocket = {}\nhistory = {}\n{one}\n\
         [[disk]]\nname = \"null\"\nkind = \"null\"\nsize = {NULL_BYTES}\n\n\
         [[disk]]\nname = \"memory\"\nkind = \"memory\"\nsize = {MEMORY_BYTES}\n\n\
         [[target]]\ndriver = \"nbd\"\nname = \"bench\"\nlisten = [\"{portal}\"]\n\n\
         [[access]]\ntarget = \"bench\"\ngroup = \"bench\"\ninitiators = [\"ip:127.0.0.1\"]\n\
         luns = {{ 0 = \"null\", 1 = \"memory\" }}\n",
        quoted("control.sock"),
        quoted("history"),
    );
    let file = home.join("ashlar.toml");
    fs::write(&file, text).map_err(|e| Error::system(file.display(), e))?;
    let words = |command: &mut Command| {
        command.arg("serve").arg(&file);
    };
    let child = child("ashlar", core, Path::new(binary), &words, &[portal], &scratch)?;
    Ok(Server {
        name: "ashlar",
        exports: [(portal, "null"), (portal, "memory")],
        child,
        _scratch: vec![scratch],
    })
}

/// Another binary of Ashlar to compare with.
pub(super) fn before(binary: &str, core: Option<usize>) -> Result<Server, Error> {
    Ok(Server { name: BEFORE, ..ashlar(binary, core)? })
}

/// nbdkit, from Debian's package, with its plugin `memory` for both exports, because one process is
/// measured. Its plugin `null` clears the answer's buffer; this one looks a page up instead.
pub(super) fn nbdkit(core: Option<usize>) -> Result<Server, Error> {
    nbdkit_with(core, "memory", MEMORY_BYTES)
}

fn nbdkit_with(core: Option<usize>, plugin: &str, bytes: u64) -> Result<Server, Error> {
    let scratch = Scratch::new("nbdkit")?;
    let program = tool("nbdkit")?;
    let portal = free_address()?;
    let bytes = bytes.to_string();
    let words = |command: &mut Command| {
        command.args(["-f", "-i", "127.0.0.1", "-p", &portal.port().to_string()]);
        command.args([plugin, &bytes]);
    };
    let child = child("nbdkit", core, &program, &words, &[portal], &scratch)?;
    Ok(Server {
        name: "nbdkit",
        exports: [(portal, ""), (portal, "")],
        child,
        _scratch: vec![scratch],
    })
}

/// nbdkit with its plugin `null`: zeroes.
pub(super) fn zeroes(core: Option<usize>, bytes: u64) -> Result<Server, Error> {
    nbdkit_with(core, "null", bytes)
}

/// QEMU's storage daemon, from Debian's package `qemu-system-common` or `qemu-utils`.
pub(super) fn qemu(core: Option<usize>) -> Result<Server, Error> {
    let scratch = Scratch::new("qemu")?;
    let program = tool("qemu-storage-daemon")?;
    let portal = free_address()?;
    let memory = Scratch::in_memory("qemu")?;
    let file = memory.file("disk", MEMORY_BYTES)?;
    let words = |command: &mut Command| {
        let null = format!("driver=null-co,node-name=null,size={NULL_BYTES},read-zeroes=off");
        let disk = format!("driver=file,node-name=memory,filename={}", file.display());
        let server = format!("addr.type=inet,addr.host=127.0.0.1,addr.port={}", portal.port());
        command.args(["--blockdev", &null, "--blockdev", &disk, "--nbd-server", &server]);
        for name in ["null", "memory"] {
            let export = format!("type=nbd,id={name},node-name={name},name={name},writable=on");
            command.args(["--export", &export]);
        }
    };
    let child = child("qemu-storage-daemon", core, &program, &words, &[portal], &scratch)?;
    Ok(Server {
        name: "qemu",
        exports: [(portal, "null"), (portal, "memory")],
        child,
        _scratch: vec![scratch, memory],
    })
}
