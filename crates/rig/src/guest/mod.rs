//! A machine with a real Linux kernel, as an independent initiator for the target under test.
//!
//! [`Image`] makes an initramfs (busybox, modules, open-iscsi, e2fsprogs, and any [`Kit`] of more
//! tools) from Debian's packages. [`boot`] runs it in software emulation with the host's loopback
//! at [`HOST`] and a serial console, and [`boot_disk`] a disk with loader, kernel and root on it. A
//! [`Script`] is shell steps whose exit statuses return over that console, while the host watches
//! every line and may answer. A [`SharedGuest`] runs the scripts of several checks after one boot.
//!
//! ```text
//!   host                                   guest (init.sh)
//!   boot() ---- qemu -kernel -initrd ----> modules, network, @@BOOT
//!   StepResult  <--- console lines ------- @@BEGIN 000 / output / @@END 000 status
//!   on_line(line, console)                 echo READY-FOR-KILL
//!   console.send("GO") ------------------> read answer
//!   Run         <------------------------- @@DONE, power off
//! ```

mod boot;
mod disk;
mod image;
mod kit;
mod script;
mod shared;

pub use boot::{Boot, Console, boot, boot_disk};
pub use disk::{ROOT_BYTES, ROOT_START};
pub use image::{HOST, Image, guest_portal};
pub use kit::Kit;
pub use script::{Run, Script, Step, StepResult, quote};
pub use shared::{Device, SharedGuest, run_checks};
