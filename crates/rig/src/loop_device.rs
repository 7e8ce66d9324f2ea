//! Loop device over a file, for tests of block devices.

use std::path::Path;
use std::process::Command;

use crate::proc;

/// Path of the device, which is detached when this is dropped.
pub struct LoopDevice(pub String);

impl LoopDevice {
    /// Attaches a file with further options of `losetup`. `None`, with one sentence, where the user
    /// or the kernel permits no loop device.
    ///
    /// # Panics
    ///
    /// Without `losetup`.
    pub fn over(file: &Path, options: &[&str]) -> Option<LoopDevice> {
        let mut command = Command::new(proc::tool("losetup").expect("a tool"));
        command.args(["--find", "--show"]).args(options).arg(file);
        let attached = proc::run(&mut command);
        if let Err(error) = &attached {
            println!("not tested: the user or the kernel permits no loop device: {error:#}");
        }
        attached.ok().map(|output| LoopDevice(output.trim().to_owned()))
    }
}

impl Drop for LoopDevice {
    fn drop(&mut self) {
        let Ok(losetup) = proc::tool("losetup") else { return };
        // A failure here is ignored, because a failed test must report its own error.
        let _ = Command::new(losetup).args(["--detach", &self.0]).status();
    }
}
