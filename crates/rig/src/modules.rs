//! Kernel modules in loading order, from an unpacked kernel package.
//!
//! The package contains no `modules.dep` (depmod writes it on installation), but every module lists
//! its dependencies in its `.modinfo` section, as `depends=a,b` between NUL bytes.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};

/// A chain of modules longer than this is a circle: an error.
const DEPTH_MAX: usize = 32;

pub struct Kernel {
    pub image: PathBuf,
    /// Its release, as `uname -r` prints it.
    pub release: String,
    loadable: BTreeMap<String, PathBuf>,
    builtin: Vec<String>,
}

/// One name for all spellings: file names have `crc32c-intel`, dependencies `crc32c_intel`.
fn canonical(name: &str) -> String {
    name.replace('-', "_")
}

impl Kernel {
    /// Finds the kernel in a folder into which its package was unpacked.
    pub fn find(unpacked: &Path) -> Result<Kernel> {
        let folder = unpacked.join("lib/modules");
        let entry = fs::read_dir(&folder).with_context(|| format!("read {}", folder.display()))?;
        let entry = entry.flatten().next().context("no kernel release in lib/modules")?;
        let release = entry.file_name().to_string_lossy().into_owned();
        let image = unpacked.join(format!("boot/vmlinuz-{release}"));
        ensure!(image.is_file(), "no kernel image {}", image.display());
        let text = fs::read_to_string(entry.path().join("modules.builtin"))?;
        let builtin = text.lines().filter_map(|line| module_name(Path::new(line))).collect();
        let mut loadable = BTreeMap::new();
        collect(&entry.path().join("kernel"), &mut loadable)?;
        Ok(Kernel { image, release, loadable, builtin })
    }

    /// Files of the wanted modules and of all their dependencies, each after its own dependencies
    /// and only once. Built-in modules are left out; an unknown name is an error.
    pub fn load_order(&self, wanted: &[&str]) -> Result<Vec<PathBuf>> {
        let mut order = Vec::new();
        for name in wanted {
            self.visit(&canonical(name), 0, &mut order)?;
        }
        Ok(order)
    }

    fn visit(&self, name: &str, depth: usize, order: &mut Vec<PathBuf>) -> Result<()> {
        ensure!(depth < DEPTH_MAX, "module {name}: dependencies run in a circle");
        let Some(file) = self.loadable.get(name) else {
            if self.builtin.iter().any(|builtin| builtin == name) {
                return Ok(());
            }
            bail!("kernel {} has no module {name}", self.release);
        };
        if order.contains(file) {
            return Ok(());
        }
        let bytes = fs::read(file).with_context(|| format!("read {}", file.display()))?;
        for needed in depends(&bytes) {
            self.visit(&canonical(&needed), depth + 1, order)?;
        }
        order.push(file.clone());
        Ok(())
    }
}

fn module_name(file: &Path) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    name.strip_suffix(".ko").map(canonical)
}

fn collect(folder: &Path, into: &mut BTreeMap<String, PathBuf>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            collect(&path, into)?;
        } else if let Some(name) = module_name(&path) {
            into.insert(name, path);
        }
    }
    Ok(())
}

/// The names behind `depends=` in a module's bytes.
fn depends(module: &[u8]) -> Vec<String> {
    let key = b"\0depends=";
    let Some(at) = module.windows(key.len()).position(|window| window == key) else {
        return Vec::new();
    };
    let value = module.get(at + key.len()..).unwrap_or_default();
    let value = value.split(|byte| *byte == 0).next().unwrap_or_default();
    let text = String::from_utf8_lossy(value);
    text.split(',').filter(|name| !name.is_empty()).map(str::to_string).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proc::Scratch;

    #[test]
    fn modules_are_ordered_by_their_dependencies() {
        let scratch = Scratch::new("modules").unwrap();
        let modules = scratch.path().join("lib/modules/6.1-test");
        fs::create_dir_all(modules.join("kernel/x")).unwrap();
        fs::create_dir_all(scratch.path().join("boot")).unwrap();
        fs::write(scratch.path().join("boot/vmlinuz-6.1-test"), b"").unwrap();
        fs::write(modules.join("modules.builtin"), "kernel/fs/ext4.ko\n").unwrap();
        let write = |name: &str, needs: &str| {
            let text = format!("ELF\0license=GPL\0depends={needs}\0name=x\0");
            fs::write(modules.join(format!("kernel/x/{name}.ko")), text).unwrap();
        };
        write("top", "mid_dle,base,ext4");
        write("mid-dle", "base");
        write("base", "");
        write("ring", "ring");
        let kernel = Kernel::find(scratch.path()).unwrap();
        let names: Vec<String> = kernel
            .load_order(&["base", "top", "ext4"])
            .unwrap()
            .iter()
            .map(|file| module_name(file).unwrap())
            .collect();
        assert_eq!(names, ["base", "mid_dle", "top"]);
        assert!(kernel.load_order(&["nothing"]).is_err());
        assert!(kernel.load_order(&["ring"]).is_err());
    }
}
