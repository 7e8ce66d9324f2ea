//! A disk that a PC's firmware boots: loader, kernel and a root file system with the guest in it.
//!
//! ```text
//!   0      master boot record of syslinux, partition table
//!   1 MiB  FAT: syslinux, kernel, a small initramfs that finds the root and enters it
//!  49 MiB  ext4: what Image has in its initramfs otherwise, and the script's steps
//! ```

use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::boot::KERNEL_WORDS;
use super::image::{Image, add_modules};
use super::kit::Parts;
use super::script::Script;
use crate::cpio::Cpio;
use crate::modules::Kernel;
use crate::proc::{self, Scratch};
use crate::{packages, packages::BOOT_LIST};

/// First byte of the loader's partition.
const LOADER_START: u64 = 1 << 20;
/// Its bytes: kernel and initramfs have 20 MiB.
const LOADER_BYTES: u64 = 48 << 20;
/// First byte of the root file system.
pub const ROOT_START: u64 = LOADER_START + LOADER_BYTES;
pub const ROOT_BYTES: u64 = 160 << 20;
/// Code of a master boot record; the table follows it.
const MBR_CODE_BYTES: usize = 440;

/// Parts that the small initramfs needs to find the root.
const ROOT_PARTS: Parts = Parts {
    modules: &["virtio_pci", "virtio_blk", "crc32c_generic", "ext4"],
    host: &[],
    unpacked: &[],
    loaded: &[],
    files: &[],
    own: &[],
    links: &[],
};

impl Image {
    /// Writes a bootable disk with a script on it; see the module. [`super::boot_disk`] plays it.
    pub fn write_disk(&self, script: &Script, to: &Path) -> Result<()> {
        let scratch = Scratch::new("boot")?;
        let tools = packages::ensure_unpacked("boot", BOOT_LIST)?;
        let mut disk = File::create(to).with_context(|| format!("make {}", to.display()))?;
        disk.set_len(ROOT_START + ROOT_BYTES)?;
        let code = fs::read(tools.join("usr/lib/syslinux/mbr/mbr.bin"))?;
        ensure!(code.len() <= MBR_CODE_BYTES, "the master boot record is too long");
        disk.write_all(&code)?;
        disk.seek(SeekFrom::Start(446))?;
        disk.write_all(&table())?;
        drop(disk);
        self.write_loader(&tools, scratch.path(), to)?;
        self.write_root(script, scratch.path(), to)
    }

    fn write_loader(&self, tools: &Path, scratch: &Path, disk: &Path) -> Result<()> {
        let mut cpio = Cpio::new();
        cpio.file("init", 0o755, include_bytes!("root.sh"));
        cpio.file("bin/busybox", 0o755, &fs::read(proc::tool("busybox")?)?);
        let kernel = Kernel::find(&packages::ensure_guest()?)?;
        add_modules(&kernel, &[ROOT_PARTS], &mut cpio)?;
        fs::write(scratch.join("initrd"), cpio.finish())?;
        let config = format!(
            "serial 0 115200\ndefault linux\nlabel linux\nkernel vmlinuz\ninitrd initrd\n\
             append {KERNEL_WORDS}\n"
        );
        fs::write(scratch.join("syslinux.cfg"), config)?;
        fs::copy(&self.kernel, scratch.join("vmlinuz"))?;
        let programs = tools.join("usr/bin");
        let path = format!("{}:/usr/sbin:/usr/bin:/sbin:/bin", programs.display());
        let run = |name: &str, arguments: &[&str]| {
            let mut command = Command::new(programs.join(name));
            command.env("PATH", &path).env("MTOOLS_SKIP_CHECK", "1").current_dir(scratch);
            proc::run(command.args(arguments)).map(drop)
        };
        let at = format!("{}@@{LOADER_START}", disk.display());
        let (sectors, hidden) =
            ((LOADER_BYTES / 512).to_string(), (LOADER_START / 512).to_string());
        run("mformat", &["-i", &at, "-T", &sectors, "-h", "16", "-s", "63", "-H", &hidden, "::"])?;
        run("mcopy", &["-i", &at, "vmlinuz", "initrd", "syslinux.cfg", "::"])?;
        let disk = disk.to_str().context("the disk's path")?;
        run("syslinux", &["--install", "--offset", &LOADER_START.to_string(), disk])
    }

    fn write_root(&self, script: &Script, scratch: &Path, disk: &Path) -> Result<()> {
        let root = scratch.join("root");
        fs::create_dir(&root)?;
        for (name, bytes) in [("base", self.base()), ("steps", &Image::steps(script))] {
            let archive = scratch.join(name);
            fs::write(&archive, bytes)?;
            let mut command = Command::new(proc::tool("busybox")?);
            command.args(["cpio", "-idm", "-F"]).arg(&archive).current_dir(&root);
            proc::run(&mut command)?;
        }
        let mut command = Command::new(proc::tool("mke2fs")?);
        command.args(["-q", "-F", "-t", "ext4", "-L", "root", "-d"]).arg(&root);
        command.arg("-E").arg(format!("offset={ROOT_START}")).arg(disk);
        proc::run(command.arg(format!("{}K", ROOT_BYTES >> 10))).map(drop)
    }
}

/// Two entries, the first one active, and the mark behind them (UEFI section 5.2.1).
fn table() -> [u8; 66] {
    let mut table = [0; 66];
    let entries = [(0x80, 0x0e, LOADER_START, LOADER_BYTES), (0, 0x83, ROOT_START, ROOT_BYTES)];
    for (slot, (active, kind, start, bytes)) in table.chunks_mut(16).zip(entries) {
        slot[0] = active;
        slot[4] = kind;
        slot[8..12].copy_from_slice(&((start / 512) as u32).to_le_bytes());
        slot[12..16].copy_from_slice(&((bytes / 512) as u32).to_le_bytes());
    }
    table[64..].copy_from_slice(&[0x55, 0xaa]);
    table
}
