//! Debian packages: installed when missing, or only unpacked into the rig's cache.
//!
//! Invariants
//!  P1  With everything in place no network is touched and no right of root is needed.
//!  P2  A folder of the cache counts only with its `.complete` file, which is written last and
//!      names the packages inside. A broken download is done again, a new list too.
//!  P3  One process at a time changes the cache or installs: the cache's lock file is held.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::proc;

pub const HOST_LIST: &str = include_str!("../../../ci/packages/rig.txt");
pub const GUEST_LIST: &str = include_str!("../../../ci/packages/guest.txt");

/// Packages unpacked for a guest that mounts 9P.
pub const NINEP_LIST: &str = include_str!("../../../ci/packages/ninep.txt");

/// Packages unpacked to make a bootable disk.
pub const BOOT_LIST: &str = include_str!("../../../ci/packages/boot.txt");

/// Packages installed for the test of the page where node and npm are missing.
pub const NODE_LIST: &str = include_str!("../../../ci/packages/node.txt");

/// Packages installed for the test of the Python client where they are missing.
pub const VENV_LIST: &str = include_str!("../../../ci/packages/venv.txt");

/// Packages installed for the test of the page.
pub const WEB_LIST: &str = include_str!("../../../ci/packages/web.txt");

/// How long apt may wait for another apt before it gives up, in seconds.
const APT_LOCK_SECONDS: u32 = 300;

/// The names in a list: a word a line, `#` starts a comment.
pub fn names(list: &str) -> Vec<&str> {
    let lines = list.lines().map(|line| line.split('#').next().unwrap_or("").trim());
    lines.filter(|name| !name.is_empty()).collect()
}

/// The rig's cache folder: `$ASHLAR_RIG_CACHE`, or `target/rig` of the workspace that this was
/// built in, or, if that was removed, `ashlar-rig` of the user's cache. Made if missing.
pub fn cache() -> Result<PathBuf> {
    let sources = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = match std::env::var_os("ASHLAR_RIG_CACHE") {
        Some(path) => PathBuf::from(path),
        None if sources.is_dir() => sources.join("../../target/rig"),
        None => user_cache().context("neither XDG_CACHE_HOME nor HOME is set")?.join("ashlar-rig"),
    };
    fs::create_dir_all(&path).with_context(|| format!("make cache {}", path.display()))?;
    path.canonicalize().context("resolve the cache's path")
}

/// The user's cache folder (XDG Base Directory Specification).
fn user_cache() -> Option<PathBuf> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".cache"));
    std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).or_else(home)
}

/// Makes sure that every package of `list` is installed; installs those that are not.
///
/// Needs root (or passwordless sudo) only when a package is missing. Returns the installed
/// packages.
pub fn ensure_installed(list: &str) -> Result<Vec<String>> {
    if missing(list)?.is_empty() {
        return Ok(Vec::new());
    }
    let _lock = lock()?;
    let missing = missing(list)?;
    if missing.is_empty() {
        return Ok(missing);
    }
    let install = || {
        let mut command = apt_get(true)?;
        command.args(["install", "-y", "-qq", "--no-install-recommends"]).args(&missing);
        proc::run(&mut command)
    };
    if install().is_err() {
        // The package lists may be absent or older than the archive: once more with new ones.
        update()?;
        install().with_context(|| format!("install {}", missing.join(" ")))?;
    }
    Ok(missing)
}

/// Everything the rig needs on the host.
pub fn ensure_host() -> Result<()> {
    ensure_installed(HOST_LIST).map(drop)
}

/// The folder with the unpacked files of every package of the guest's list.
pub fn ensure_guest() -> Result<PathBuf> {
    ensure_unpacked("guest", GUEST_LIST)
}

/// Downloads and unpacks the packages of a list into `cache()/name`; returns that folder. A name
/// with `*` in front means the first package that it depends on.
pub fn ensure_unpacked(name: &str, list: &str) -> Result<PathBuf> {
    let folder = cache()?.join(name);
    let wanted = names(list).join("\n");
    let _lock = lock()?;
    let complete = folder.join(".complete");
    if fs::read_to_string(&complete).is_ok_and(|text| text == wanted) {
        return Ok(folder);
    }
    if folder.exists() {
        fs::remove_dir_all(&folder).context("empty a stale cache folder")?;
    }
    fs::create_dir_all(&folder)?;
    if download(&folder, list).is_err() {
        update()?;
        download(&folder, list)?;
    }
    for entry in fs::read_dir(&folder)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "deb") {
            proc::run(Command::new("dpkg-deb").arg("-x").arg(&file).arg(&folder))?;
            fs::remove_file(&file)?;
        }
    }
    fs::write(&complete, wanted)?;
    Ok(folder)
}

fn download(folder: &Path, list: &str) -> Result<()> {
    let mut command = apt_get(false)?;
    command.current_dir(folder).args(["download", "-qq"]);
    for name in names(list) {
        match name.strip_prefix('*') {
            None => command.arg(name),
            Some(meta) => command.arg(first_dependency(meta)?),
        };
    }
    proc::run(&mut command).map(drop)
}

fn first_dependency(meta: &str) -> Result<String> {
    let text = proc::run(Command::new("apt-cache").args(["depends", meta]))?;
    let line = text.lines().find_map(|line| line.trim().strip_prefix("Depends: "));
    line.map(str::to_string).with_context(|| format!("package {meta} depends on nothing"))
}

fn missing(list: &str) -> Result<Vec<String>> {
    let mut missing = Vec::new();
    for name in names(list) {
        let mut query = Command::new("dpkg-query");
        query.args(["-W", "-f", "${db:Status-Status}", name]);
        let output = query.output().context("run dpkg-query: is this a Debian system?")?;
        if output.stdout != b"installed" {
            missing.push(name.to_string());
        }
    }
    Ok(missing)
}

fn update() -> Result<()> {
    let mut command = apt_get(true)?;
    proc::run(command.args(["update", "-qq"])).map(drop).context("fetch the package lists")
}

fn apt_get(root: bool) -> Result<Command> {
    let is_root = proc::is_root();
    let mut command = match (root && !is_root, proc::tool("sudo")) {
        (false, _) => Command::new("apt-get"),
        (true, Ok(sudo)) => {
            let mut command = Command::new(sudo);
            command.args(["-n", "apt-get"]);
            command
        }
        (true, Err(_)) => bail!("packages are missing and only root can install them"),
    };
    command.env("DEBIAN_FRONTEND", "noninteractive");
    command.arg("-o").arg(format!("DPkg::Lock::Timeout={APT_LOCK_SECONDS}"));
    if is_root {
        // As root, apt would hand the download to a user who may not write to the cache.
        command.args(["-o", "APT::Sandbox::User=root"]);
    }
    Ok(command)
}

/// P3. Released when the file is closed, also by a killed process.
fn lock() -> Result<File> {
    let path = cache()?.join(".lock");
    let file = File::options().create(true).truncate(false).write(true).open(&path)?;
    file.lock().with_context(|| format!("lock {}", path.display()))?;
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn package_lists_are_parsed() {
        assert_eq!(names("# a\nb  # c\n\n*d\n"), ["b", "*d"]);
        assert!(names(HOST_LIST).contains(&"tgt"));
        assert!(names(GUEST_LIST).contains(&"open-iscsi"));
    }

    #[test]
    fn unknown_package_is_reported_as_missing() {
        assert_eq!(missing("dpkg\nno-such-package-here").unwrap(), ["no-such-package-here"]);
    }
}
