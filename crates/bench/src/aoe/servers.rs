//! AoE targets as children, each at the far end of a cable of its own.

use std::fs;

use super::cable::{Cable, FAR};
use super::{bare, client};
use crate::error::Error;
use crate::servers::{Child, MEMORY_BYTES, Scratch, own_path, tool};

/// Frames that a target claims to hold.
const BUFFERS: &str = "64";

/// Backing store of a slot; its number is that of the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Store {
    /// Memory of the server's own. vblade has none: its file in memory takes that place.
    Memory,
    /// A file in a file system in memory.
    File,
}

/// A running server. Its process is killed when this is dropped, and then the cable is removed.
pub(super) struct Server {
    pub name: &'static str,
    shelves: [(u16, u8); 2],
    child: Child,
    // Ends behind its user.
    cable: Cable,
    _scratch: Vec<Scratch>,
}

impl Server {
    /// Shelf and slot of a store.
    pub fn address(&self, store: Store) -> wire::aoe::Address {
        let [memory, file] = self.shelves;
        let (shelf, slot) = if store == Store::Memory { memory } else { file };
        wire::aoe::Address { shelf, slot }
    }

    /// The interface by which it is reached.
    pub fn near(&self) -> &str {
        &self.cable.near
    }

    /// The process to measure.
    pub fn pid(&self) -> u32 {
        self.child.pid()
    }

    fn wait(mut self) -> Result<Server, Error> {
        let (near, address) = (self.cable.near.clone(), self.address(Store::File));
        let there = || client::probe(&near, address).is_ok();
        self.child.wait_for("it answered on its cable", there)?;
        Ok(self)
    }
}

/// `ashlar serve` with a usual configuration.
pub(super) fn ashlar(binary: &str, core: Option<usize>) -> Result<Server, Error> {
    let cable = Cable::create()?;
    let (scratch, memory) = (Scratch::new("ashlar-aoe")?, Scratch::in_memory("ashlar-aoe")?);
    let home = scratch.path();
    let quoted = |name: &str| format!("{:?}", home.join(name).to_string_lossy());
    let one = if core.is_some() { "cores = 1\n" } else { "" };
    let disk = memory.file("disk", MEMORY_BYTES)?;
    let text = format!(
        "[daemon]\nsocket = {}\nhistory = {}\n{one}\n\
         [[disk]]\nname = \"memory\"\nkind = \"memory\"\nsize = {MEMORY_BYTES}\n\n\
         [[disk]]\nname = \"file\"\nkind = \"file\"\npath = {:?}\nsize = {MEMORY_BYTES}\n\n\
         [[target]]\ndriver = \"aoe\"\nname = \"bench\"\nlisten = [\"ether:{FAR}\"]\nshelf = 1\n\
         buffers = {BUFFERS}\n\n\
         [[access]]\ntarget = \"bench\"\ngroup = \"bench\"\ninitiators = [\"mac:*\"]\n\
         luns = {{ 0 = \"memory\", 1 = \"file\" }}\n",
        quoted("control.sock"),
        quoted("history"),
        disk.to_string_lossy(),
    );
    let file = home.join("ashlar.toml");
    fs::write(&file, text).map_err(|e| Error::system(file.display(), e))?;
    let mut command = cable.inside(core, binary)?;
    command.arg("serve").arg(&file);
    let child = Child::start("ashlar", &mut command, &home.join("log"))?;
    let (name, shelves) = ("ashlar", [(1, 0), (1, 1)]);
    Server { name, shelves, child, cable, _scratch: vec![scratch, memory] }.wait()
}

/// The bare responder: 256 MiB of its own memory.
pub(super) fn bare(core: Option<usize>) -> Result<Server, Error> {
    let cable = Cable::create()?;
    let (scratch, memory) = (Scratch::new("bare-aoe")?, Scratch::in_memory("bare-aoe")?);
    let file = memory.file("disk", MEMORY_BYTES)?;
    let mut command = cable.inside(core, &own_path()?)?;
    command.args(["bare", "--interface", FAR, "--file"]).arg(file);
    let child = Child::start("bare", &mut command, &scratch.path().join("log"))?;
    let slot = |address: wire::aoe::Address| (address.shelf, address.slot);
    let (name, shelves) = ("bare", [bare::ADDRESS, bare::FILE_ADDRESS].map(slot));
    Server { name, shelves, child, cable, _scratch: vec![scratch, memory] }.wait()
}

/// vblade, from Debian's package, over a file in memory.
pub(super) fn vblade(core: Option<usize>) -> Result<Server, Error> {
    let program = tool("vblade")?.to_string_lossy().into_owned();
    let cable = Cable::create()?;
    let (scratch, memory) = (Scratch::new("vblade")?, Scratch::in_memory("vblade")?);
    let disk = memory.file("disk", MEMORY_BYTES)?;
    let mut command = cable.inside(core, &program)?;
    command.args(["-b", BUFFERS, "1", "1", FAR]).arg(disk);
    let child = Child::start("vblade", &mut command, &scratch.path().join("log"))?;
    let (name, shelves) = ("vblade", [(1, 1), (1, 1)]);
    Server { name, shelves, child, cable, _scratch: vec![scratch, memory] }.wait()
}
