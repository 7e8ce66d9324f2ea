//! The guest's initramfs, put together from unpacked packages and the host's own programs.

use std::collections::BTreeMap;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::kit::{self, Kit, Parts};
use super::script::Script;
use crate::cpio::Cpio;
use crate::modules::Kernel;
use crate::{packages, proc};

/// The host's loopback as the guest's network knows it.
pub const HOST: &str = "10.0.2.2";

/// A portal on the host's loopback in the guest's words.
pub fn guest_portal(portal: SocketAddr) -> String {
    format!("{HOST}:{}", portal.port())
}

/// Where the loader looks without a cache file.
const LIBRARIES: &str = "lib/x86_64-linux-gnu";

/// A kernel and the base of an initramfs, to boot any number of scripts with.
pub struct Image {
    pub kernel: PathBuf,
    pub release: String,
    base: Vec<u8>,
}

impl Image {
    /// A guest with the initiator and ext4; packages are fetched when the cache lacks them.
    pub fn build() -> Result<Image> {
        Image::with_kits(&[])
    }

    /// The same with more tools in it.
    pub fn with_kits(kits: &[Kit]) -> Result<Image> {
        Image::with_programs(kits, &[])
    }

    /// The same, and programs of the host with the libraries that they need: files, and their
    /// places in the guest.
    pub fn with_programs(kits: &[Kit], programs: &[(&Path, &str)]) -> Result<Image> {
        packages::ensure_host()?;
        let unpacked = packages::ensure_guest()?;
        let kernel = if kits.contains(&Kit::Ninep) {
            Kernel::find(&packages::ensure_unpacked("ninep", packages::NINEP_LIST)?)?
        } else {
            Kernel::find(&unpacked)?
        };
        let mut cpio = Cpio::new();
        cpio.file("init", 0o755, include_bytes!("init.sh"));
        cpio.file("rig/lib.sh", 0o644, include_bytes!("lib.sh"));
        cpio.file("rig/clean.sh", 0o644, include_bytes!("clean.sh"));
        cpio.file("bin/busybox", 0o755, &fs::read(proc::tool("busybox")?)?);
        let parts = kit::parts(kits);
        add_modules(&kernel, &parts, &mut cpio)?;
        add_programs(&unpacked, &parts, programs, &mut cpio)?;
        add_files(&unpacked, &parts, &mut cpio)?;
        if let Ok(config) = fs::read("/etc/mke2fs.conf") {
            cpio.file("etc/mke2fs.conf", 0o644, &config);
        }
        Ok(Image { kernel: kernel.image, release: kernel.release, base: cpio.finish() })
    }

    /// The initramfs with a script's steps and files in it: two archives, one after the other.
    pub(super) fn with(&self, script: &Script) -> Vec<u8> {
        let mut bytes = self.base.clone();
        bytes.extend_from_slice(&Image::steps(script));
        bytes
    }

    /// The archive without steps.
    pub(super) fn base(&self) -> &[u8] {
        &self.base
    }

    /// The archive of a script's steps and files.
    pub(super) fn steps(script: &Script) -> Vec<u8> {
        let mut cpio = Cpio::new();
        for (number, step) in script.steps.iter().enumerate() {
            cpio.file(&format!("rig/steps/{number:03}"), 0o644, step.shell.as_bytes());
        }
        for (name, bytes) in &script.files {
            cpio.file(name, 0o644, bytes);
        }
        cpio.finish()
    }
}

pub(super) fn add_modules(kernel: &Kernel, parts: &[Parts], cpio: &mut Cpio) -> Result<()> {
    let wanted: Vec<&str> = parts.iter().flat_map(|part| part.modules).copied().collect();
    let mut order = String::new();
    for file in kernel.load_order(&wanted)? {
        let name = file.file_name().context("module's name")?.to_string_lossy().into_owned();
        cpio.file(&format!("mod/{name}"), 0o644, &fs::read(&file)?);
        order.push_str(&name);
        order.push('\n');
    }
    cpio.file("mod/order", 0o644, order.as_bytes());
    Ok(())
}

fn add_files(unpacked: &Path, parts: &[Parts], cpio: &mut Cpio) -> Result<()> {
    for part in parts {
        for file in part.files {
            cpio.file(file, 0o644, &fs::read(kit::find(unpacked, file)?)?);
        }
        part.own.iter().for_each(|(place, text)| cpio.file(place, 0o600, text.as_bytes()));
        part.links.iter().for_each(|(name, to)| cpio.link(name, to));
    }
    Ok(())
}

fn add_programs(
    unpacked: &Path,
    parts: &[Parts],
    more: &[(&Path, &str)],
    cpio: &mut Cpio,
) -> Result<()> {
    let own = more.iter().map(|(file, place)| (file.to_path_buf(), place.to_string()));
    let mut programs: Vec<(PathBuf, String)> = own.collect();
    for part in parts {
        for name in part.host {
            programs.push((proc::tool(name)?, format!("usr/sbin/{name}")));
        }
        for file in part.unpacked {
            programs.push((kit::find(unpacked, file)?, file.to_string()));
        }
    }
    let mut libraries = BTreeMap::new();
    for (file, place) in &programs {
        let bytes = fs::read(file).with_context(|| format!("read {}", file.display()))?;
        cpio.file(place, 0o755, &bytes);
        libraries.extend(shared_libraries(file, unpacked)?);
    }
    for name in parts.iter().flat_map(|part| part.loaded) {
        libraries.insert(name.to_string(), library(name, unpacked)?);
    }
    for (name, file) in libraries {
        let place = match name.strip_prefix('/') {
            Some(loader) => loader.to_string(),
            None => format!("{LIBRARIES}/{name}"),
        };
        let bytes = fs::read(&file).with_context(|| format!("read {}", file.display()))?;
        cpio.file(&place, 0o755, &bytes);
    }
    Ok(())
}

fn library_folders(unpacked: &Path) -> [PathBuf; 4] {
    ["usr/lib/x86_64-linux-gnu", LIBRARIES, "usr/lib", "lib"].map(|folder| unpacked.join(folder))
}

/// A library by its soname: of the unpacked packages, else the host's.
fn library(name: &str, unpacked: &Path) -> Result<PathBuf> {
    let here = library_folders(Path::new("/"));
    let found = library_folders(unpacked).into_iter().chain(here).map(|f| f.join(name));
    let mut found = found.filter(|file| file.is_file());
    found.next().with_context(|| format!("no library {name}: add its package to guest.txt"))
}

/// The libraries a program needs, by soname (the loader by its path), with their files. The
/// host's loader resolves them, with the unpacked packages' folders searched first.
fn shared_libraries(program: &Path, unpacked: &Path) -> Result<BTreeMap<String, PathBuf>> {
    let folders = library_folders(unpacked);
    let search = folders.map(|folder| folder.display().to_string()).join(":");
    let mut command = Command::new(proc::tool("ldd")?);
    let text = proc::run(command.env("LD_LIBRARY_PATH", search).arg(program))?;
    let mut found = BTreeMap::new();
    for line in text.lines().map(str::trim) {
        let line = line.rsplit_once(" (").map_or(line, |(left, _)| left);
        match line.split_once(" => ") {
            Some((name, "not found")) => {
                bail!("{} needs {name}: add its package to guest.txt", program.display())
            }
            Some((name, file)) => found.insert(name.to_string(), PathBuf::from(file)),
            None if line.starts_with('/') => found.insert(line.to_string(), PathBuf::from(line)),
            None => None,
        };
    }
    Ok(found)
}
