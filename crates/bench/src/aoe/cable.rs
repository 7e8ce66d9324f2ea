//! A cable into a network namespace: a veth pair, one end here and the other where a server runs.
//! No other interface receives its frames.

use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::error::{Error, Kind};
use crate::servers::tool;

/// Payload of a frame, bytes: a request of 4 KiB fits one frame, as of 8 KiB.
const MTU: &str = "9000";

/// The end in the namespace.
pub(super) const FAR: &str = "aoe0";

/// A cable with the namespace of its far end. Both are removed when this is dropped.
pub(super) struct Cable {
    /// The end here; the namespace has the same name.
    pub near: String,
}

fn ip(words: &[&str]) -> Result<(), Error> {
    let output = Command::new(tool("ip")?).args(words).output();
    let output = output.map_err(|e| Error::system("run ip", e))?;
    if output.status.success() {
        return Ok(());
    }
    let why = String::from_utf8_lossy(&output.stderr).trim().to_owned();
    // Without the rights, or in a container without interfaces of its own.
    Err(Error::new(Kind::Missing, format!("ip {}: {why}; it needs root", words.join(" "))))
}

impl Cable {
    pub fn create() -> Result<Cable, Error> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        // At most 15 bytes: the kernel's names are no longer.
        let near = format!("ab{}.{number}", std::process::id() % 10_000_000);
        ip(&["netns", "add", &near])?;
        let cable = Cable { near };
        let name = cable.near.as_str();
        ip(&["link", "add", name, "mtu", MTU, "type", "veth", "peer", "name", FAR, "netns", name])?;
        ip(&["-n", name, "link", "set", FAR, "mtu", MTU, "up"])?;
        ip(&["link", "set", name, "up"])?;
        Ok(cable)
    }

    /// A command in the namespace, on `core` only where one is given.
    pub fn inside(&self, core: Option<usize>, program: &str) -> Result<Command, Error> {
        let mut command = Command::new(tool("ip")?);
        command.args(["netns", "exec", &self.near]);
        if let Some(core) = core {
            command.arg(tool("taskset")?).args(["-c", &core.to_string()]);
        }
        command.arg(program);
        Ok(command)
    }
}

impl Drop for Cable {
    fn drop(&mut self) {
        // The cable is removed with the namespace.
        let _ = ip(&["netns", "del", &self.near]);
    }
}
