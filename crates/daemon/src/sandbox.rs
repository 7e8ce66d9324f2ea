//! Restriction of the daemon by itself: `sandbox` of `[daemon]`, enforced by Landlock and seccomp.
//!
//! ```text
//! changed: /dev, folders of the paths in the configuration, of state, history and socket, and
//!          those of `sandbox_folders`
//! run:     no program            mounted: nothing            gained: no privilege by a file
//! called:  system calls of a list (see `system_calls`)
//! ```
//! Reading is restricted with `sandbox_read_folders` alone: to these folders, those of all paths in
//! the configuration, and those of the system. An object that `apply` adds in another folder is
//! refused, as `plan` reports, until a start reads the file.
//!
//! Invariants
//!  X1  The restriction begins before the first core and the control thread start, so every thread
//!      that serves hosts inherits it.
//!  X2  A daemon that cannot enter its sandbox serves without it and reports that: hosts keep their
//!      storage. With `sandbox_required` it does not start.
//!  X3  A plan refuses a step whose files are in another folder. access(2) does not show what
//!      Landlock denies, so [`check`] compares folders.
//!  X4  The inode of each folder at the start is reported, also of those that are only read.
//!      Landlock permits inodes: a file system that is mounted over a folder later is forbidden,
//!      and `doctor` names it.
//!  X5  The list of system calls applies to every thread of the process, those that were started
//!      before too.

mod system_calls;

use std::collections::BTreeSet;
use std::fs::DirBuilder;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use landlock::{
    ABI, AccessFs, Ruleset, RulesetAttr, RulesetCreatedAttr, RulesetError, RulesetStatus,
    path_beneath_rules,
};
use mgmt::api::{Error, Kind, Result, SandboxFolder};
use mgmt::config::{Config, DaemonConfig, SystemCalls, readable_folders, writable_folders};
use mgmt::plan::Action;
use serde_json::Value;

/// Rights that are given up: those of this version (Linux 6.10). An older kernel enforces a part.
const RIGHTS: ABI = ABI::V5;

/// Disks, and pseudo devices.
const DEVICES: &str = "/dev";

/// Folders of the system that the daemon and its C library read: names of hosts and users with
/// their caches, time zones, CA certificates, libraries, and facts of devices and processes.
const SYSTEM: [&str; 9] = [
    "/etc",
    "/usr",
    "/lib",
    "/lib64",
    "/proc",
    "/sys",
    "/run",
    "/var/lib/sss",
    "/var/lib/extrausers",
];

/// Files of the system that may be symbolic links to other folders.
const SYSTEM_LINKS: [&str; 6] = [
    "/etc/hosts",
    "/etc/localtime",
    "/etc/machine-id",
    "/etc/nsswitch.conf",
    "/etc/resolv.conf",
    "/etc/ssl/certs/ca-certificates.crt",
];

/// The folders of this process's sandbox, without symbolic links; unset: it has none.
static FOLDERS: OnceLock<BTreeSet<PathBuf>> = OnceLock::new();

/// The folders in which this process may read, without symbolic links; unset: it may read all.
static READ_FOLDERS: OnceLock<BTreeSet<PathBuf>> = OnceLock::new();

/// The folders of the configuration with their inodes (X4).
static INODES: OnceLock<Vec<SandboxFolder>> = OnceLock::new();

/// Why this process has not the whole configured sandbox (X2).
static PROBLEM: OnceLock<String> = OnceLock::new();

/// Restricts this thread, and those that it starts later, if the configuration requires it; system
/// calls of all threads (X5). State, history and socket have their paths in `config`.
///
/// # Errors
/// [`Kind::System`]: the sandbox is required, and the kernel has no Landlock or no seccomp (X2).
pub fn enter(config: &Config) -> Result<()> {
    let own = &config.daemon;
    if !own.sandbox && !is_forced() {
        return Ok(());
    }
    // Each is enforced without the other, too.
    let entered = [restrict_files(config), restrict_calls(own.sandbox_system_calls)];
    let Some(failed) = entered.into_iter().find_map(Result::err) else { return Ok(()) };
    let why = tolerated(failed, own.sandbox_required || !own.sandbox)?;
    tracing::warn!("sandbox: {why}; the daemon serves without it");
    let _ = PROBLEM.set(why);
    Ok(())
}

/// The reason for which a sandbox is not enforced, for reports (X2).
///
/// # Errors
/// The same, if the sandbox is required.
fn tolerated(failed: Error, is_required: bool) -> Result<String> {
    if is_required { Err(failed) } else { Ok(failed.source) }
}

/// Why this process has not the whole configured sandbox.
pub(crate) fn problem() -> Option<String> {
    PROBLEM.get().cloned()
}

/// Restricts changes of files, programs, and with `sandbox_read_folders` reading.
fn restrict_files(config: &Config) -> Result<()> {
    // A rule needs a folder that exists. The users of one that cannot be made report it.
    for folder in [&config.daemon.state, &config.daemon.history].into_iter().flatten() {
        if let Err(e) = DirBuilder::new().recursive(true).mode(0o700).create(folder) {
            tracing::warn!("sandbox: {folder} cannot be made: {e}");
        }
    }
    let mut folders = writable_folders(config);
    folders.insert(PathBuf::from(DEVICES));
    // One that is absent has no rule, so it stays forbidden when it appears.
    for (key, folder) in absent_folders(&config.daemon) {
        tracing::warn!(
            "sandbox: {folder} of `{key}` is not a folder; its files stay forbidden until it \
             exists and the daemon is restarted"
        );
    }
    let folders = without_links(&folders);
    let read = config.daemon.sandbox_read_folders.is_some().then(|| read_folders(config));
    let mut watched = folders.clone();
    if let Some(read) = &read {
        let all = read.union(&folders).cloned().collect();
        watched.extend(outermost(&all, without_links(&readable_folders(config))));
    }
    // Before the rules are made, so that a change in between is reported.
    let inodes = inodes(&watched);
    match restrict(&folders, read.as_ref()) {
        Ok(RulesetStatus::FullyEnforced) => tracing::info!("sandbox: enforced by Landlock"),
        Ok(RulesetStatus::PartiallyEnforced) => {
            tracing::warn!("sandbox: enforced in part; Linux 6.10 and later enforce all");
        }
        Ok(RulesetStatus::NotEnforced) if config.daemon.sandbox => {
            return Err(refused("the kernel has no Landlock"));
        }
        Ok(RulesetStatus::NotEnforced) => {
            tracing::warn!("sandbox: the kernel has no Landlock");
            return Ok(());
        }
        Err(e) => return Err(refused(&e.to_string())),
    }
    let _ = INODES.set(inodes);
    if let Some(read) = read {
        let _ = READ_FOLDERS.set(read.union(&folders).cloned().collect());
    }
    if config.daemon.sandbox {
        let _ = FOLDERS.set(folders);
    }
    Ok(())
}

/// Listed folders that do not exist, each with its key.
fn absent_folders(daemon: &DaemonConfig) -> impl Iterator<Item = (&'static str, &String)> {
    let changed = daemon.sandbox_folders.iter().map(|folder| ("sandbox_folders", folder));
    let read = daemon.sandbox_read_folders.iter().flatten();
    let read = read.map(|folder| ("sandbox_read_folders", folder));
    changed.chain(read).filter(|(_, folder)| !Path::new(folder).is_dir())
}

/// Those of `own` that have none of `all` above them. A file system that is mounted over another
/// one is permitted by the folder above it.
fn outermost(all: &BTreeSet<PathBuf>, own: BTreeSet<PathBuf>) -> impl Iterator<Item = PathBuf> {
    let is_above = |of: &PathBuf, other: &PathBuf| of != other && of.starts_with(other);
    own.into_iter().filter(move |of| !all.iter().any(|other| is_above(of, other)))
}

/// Those that exist, by their real paths.
fn without_links(folders: &BTreeSet<PathBuf>) -> BTreeSet<PathBuf> {
    folders.iter().filter_map(|folder| folder.canonicalize().ok()).collect()
}

/// Folders in which the daemon reads: those of the configuration and of the system, that of the
/// program, whose debug lines the report of a panic needs, and that of credentials.
fn read_folders(config: &Config) -> BTreeSet<PathBuf> {
    let mut folders = readable_folders(config);
    folders.extend(SYSTEM.map(PathBuf::from));
    folders.extend(SYSTEM_LINKS.iter().filter_map(|file| real_folder(Path::new(file))));
    let program = std::env::current_exe().ok();
    folders.extend(program.as_deref().and_then(Path::parent).map(Path::to_owned));
    folders.extend(std::env::var_os("CREDENTIALS_DIRECTORY").map(PathBuf::from));
    without_links(&folders)
}

/// The folder of a file that exists, without symbolic links. The root folder would permit all.
fn real_folder(file: &Path) -> Option<PathBuf> {
    let real = file.canonicalize().ok()?;
    real.parent().filter(|folder| folder.parent().is_some()).map(Path::to_owned)
}

/// For tests, and not in a release build: a sandbox that is not configured. Plans of files
/// elsewhere are not refused then.
fn is_forced() -> bool {
    cfg!(debug_assertions) && std::env::var_os("ASHLAR_SANDBOX").is_some()
}

/// Restricts the system calls of all threads (X5).
fn restrict_calls(others: SystemCalls) -> Result<()> {
    let program = system_calls::filter(others).map_err(|e| unfiltered(&e.to_string()))?;
    let applied = seccompiler::apply_filter_all_threads(&program);
    applied.map_err(|e| unfiltered(&e.to_string()))?;
    match others {
        SystemCalls::Refuse => tracing::info!("sandbox: system calls are restricted by seccomp"),
        SystemCalls::Log => tracing::warn!(
            "sandbox: system calls outside of the list are permitted and logged by the kernel"
        ),
    }
    Ok(())
}

/// The folders of the sandbox with their inodes at the start (X4); empty without a sandbox.
pub(crate) fn folders() -> Vec<SandboxFolder> {
    INODES.get().cloned().unwrap_or_default()
}

/// The folders with their inodes now. `/dev` is left out: a unit may give the daemon its own.
fn inodes(folders: &BTreeSet<PathBuf>) -> Vec<SandboxFolder> {
    let inode = |folder: &PathBuf| {
        let about = folder.metadata().ok()?;
        let path = folder.to_str()?.to_owned();
        Some(SandboxFolder { path, device: about.dev(), inode: about.ino() })
    };
    folders.iter().filter(|folder| *folder != Path::new(DEVICES)).filter_map(inode).collect()
}

/// Refuses an action that would change or read files outside of the sandbox (X3).
///
/// # Errors
/// [`Kind::Forbidden`]
pub(crate) fn check(action: &Action) -> Result<()> {
    let refused = |folder: PathBuf, why: &str, next: &str| {
        let next = format!("Restart the daemon with this configuration. {next}");
        let error = Error::new(Kind::Forbidden, "check the sandbox", why);
        Err(error.at(folder.display().to_string()).next(next))
    };
    if let Some(folder) = FOLDERS.get().and_then(|own| outside(own, action)) {
        let next = "`sandbox_folders` of [daemon] lists folders for images that are added later.";
        return refused(folder, "changes there are not permitted", next);
    }
    if let Some(folder) = READ_FOLDERS.get().and_then(|own| unreadable(own, action)) {
        let next =
            "`sandbox_read_folders` of [daemon] lists folders for files that are added later.";
        return refused(folder, "reading there is not permitted", next);
    }
    Ok(())
}

/// Whether [`check`] looks at the paths of an action. Blocks while one hangs then.
pub(crate) fn looks_at_paths(action: &Action) -> bool {
    READ_FOLDERS.get().is_some() || FOLDERS.get().is_some() && changed_section(action).is_some()
}

/// The section in whose folders an action changes files, as a configuration of its own.
fn changed_section(action: &Action) -> Option<Config> {
    let mut made = Config::default();
    match action {
        Action::CreateDisk { disk } if disk.params.get("read_only") != Some(&Value::Bool(true)) => {
            made.disk.push(disk.clone());
        }
        Action::CreateGeom { geom } | Action::ModifyGeom { to: geom, .. } => {
            made.geom.push(geom.clone());
        }
        Action::CreateTarget { target } => made.target.push(target.clone()),
        Action::ModifyTarget { to, .. } => made.target.push(to.as_ref().clone()),
        _ => return None,
    }
    Some(made)
}

/// A folder in which an action changes files and that is below none of these.
fn outside(own: &BTreeSet<PathBuf>, action: &Action) -> Option<PathBuf> {
    let made = changed_section(action)?;
    writable_folders(&made).into_iter().find(|folder| !is_below(own, folder))
}

/// A folder in which an action reads files and that is below none of these.
fn unreadable(own: &BTreeSet<PathBuf>, action: &Action) -> Option<PathBuf> {
    // `state` of a port group is no path, and settings of the daemon wait for a restart.
    if matches!(action, Action::PortGroups { .. } | Action::Daemon { .. }) {
        return None;
    }
    let mut action = serde_json::to_value(action).ok()?;
    let verb = action.get("do").and_then(Value::as_str).unwrap_or_default();
    let is_removal = verb.starts_with("remove_");
    // Only the new side of a change is read.
    action.as_object_mut()?.remove("from");
    let folders = if is_removal { BTreeSet::new() } else { readable_folders(&action) };
    folders.into_iter().find(|folder| !is_below(own, folder))
}

fn is_below(own: &BTreeSet<PathBuf>, folder: &Path) -> bool {
    let real = folder.canonicalize();
    let real = real.as_deref().unwrap_or(folder);
    own.iter().any(|permitted| real.starts_with(permitted))
}

fn refused(why: &str) -> Error {
    let error = Error::new(Kind::System, "enter the sandbox", why).at("sandbox");
    error.next("Boot with `lsm=landlock,...`, or remove `sandbox_required` from [daemon].")
}

fn unfiltered(why: &str) -> Error {
    let error = Error::new(Kind::System, "restrict system calls", why).at("sandbox");
    error.next("Use a kernel with seccomp, or remove `sandbox_required` from [daemon].")
}

/// Restricts changes to `folders`; reading to these and `read`, if it is given.
fn restrict(
    folders: &BTreeSet<PathBuf>,
    read: Option<&BTreeSet<PathBuf>>,
) -> std::result::Result<RulesetStatus, RulesetError> {
    let (changes, reads) = (AccessFs::from_write(RIGHTS), AccessFs::ReadFile | AccessFs::ReadDir);
    let own = if read.is_some() { changes | reads } else { changes };
    let ruleset = Ruleset::default().handle_access(own | AccessFs::Execute)?.create()?;
    let ruleset = ruleset.add_rules(path_beneath_rules(folders, own))?;
    let read = read.into_iter().flatten();
    let status = ruleset.add_rules(path_beneath_rules(read, reads))?.restrict_self()?;
    Ok(status.ruleset)
}

#[cfg(test)]
mod tests {
    use mgmt::config::read;

    use super::*;
    use crate::catalog;
    use testkit::Folder;

    #[test]
    fn sandbox_is_refused_beside_mounts_and_programs() {
        let local = "[[target]]\ndriver = 'local'\nname = 'here'\n";
        let server = "[[disk]]\nname = 'n0'\nkind = 'nbd'\ncommand = ['nbdkit', 'null']\n";
        for (section, word) in [(local, "target here"), (server, "disk n0")] {
            let text = |sandbox: bool| format!("[daemon]\nsandbox = {sandbox}\n{section}");
            read(&text(false), "a.toml", &catalog()).expect("well-formed");
            let error = read(&text(true), "a.toml", &catalog()).expect_err("no sandbox");
            assert!(error.to_string().contains(word), "{error}");
        }
    }

    #[test]
    fn x2_daemon_without_its_sandbox_starts_unless_it_is_required() {
        let failed = || refused("the kernel has no Landlock");
        assert_eq!(tolerated(failed(), false).expect("served"), "the kernel has no Landlock");
        let error = tolerated(failed(), true).expect_err("required");
        assert!(error.next.is_some_and(|next| next.contains("sandbox_required")));
    }

    #[test]
    fn x3_plan_refuses_files_in_other_folders() {
        let text = "[[disk]]\nname = 'a'\nkind = 'file'\npath = '/dev/a.img'\n\
                    [[disk]]\nname = 'b'\nkind = 'file'\npath = '/proc/b.img'\n\
                    [[disk]]\nname = 'c'\nkind = 'file'\npath = '/proc/c.img'\n\
                    read_only = true\n\
                    [[disk]]\nname = 'd'\nkind = 'memory'\nsize = '1MiB'\n\
                    [[target]]\ndriver = 'nbd'\nname = 't'\nlisten = ['unix:/proc/t.sock']\n";
        let config = read(text, "a.toml", &catalog()).expect("well-formed");
        let own = BTreeSet::from([PathBuf::from(DEVICES)]);
        let disks = config.disk.iter().map(|disk| Action::CreateDisk { disk: disk.clone() });
        let found: Vec<_> = disks.map(|action| outside(&own, &action)).collect();
        let other = Some(PathBuf::from("/proc"));
        assert_eq!(found, [None, other.clone(), None, None]);
        let target = Action::CreateTarget { target: config.target[0].clone() };
        assert_eq!(outside(&own, &target), other);
        let remove = Action::RemoveTarget { target: config.target[0].clone() };
        assert!(changed_section(&target).is_some() && changed_section(&remove).is_none());
    }

    /// X3.
    #[test]
    fn plan_refuses_files_that_cannot_be_read() {
        let text = "[[disk]]\nname = 'c'\nkind = 'file'\npath = '/proc/c.img'\nread_only = true\n\
                    [[target]]\ndriver = 'nbd'\nname = 't'\nlisten = ['127.0.0.1:10809']\n\
                    tls = 'require'\ntls_certificate = '/proc/t.pem'\ntls_key = '/dev/t.key'\n\
                    [[target]]\ndriver = 'nbd'\nname = 'p'\nlisten = ['127.0.0.1:10808']\n";
        let config = read(text, "a.toml", &catalog()).expect("well-formed");
        let (disk, target) = (config.disk[0].clone(), config.target[0].clone());
        let all = BTreeSet::from([DEVICES, "/proc"].map(PathBuf::from));
        let devices = BTreeSet::from([PathBuf::from(DEVICES)]);
        let other = Some(PathBuf::from("/proc"));
        let plain = || Box::new(config.target[1].clone());
        let (from, to) = (Box::new(target.clone()), plain());
        for (action, expected) in [
            (Action::CreateDisk { disk: disk.clone() }, other.clone()),
            (Action::RemoveDisk { disk }, None),
            (Action::ModifyTarget { from: plain(), to: from.clone() }, other.clone()),
            (Action::ModifyTarget { from, to }, None),
            (Action::CreateTarget { target }, other),
        ] {
            assert_eq!(unreadable(&devices, &action), expected, "{action:?}");
            assert_eq!(unreadable(&all, &action), None, "{action:?}");
        }
    }

    #[test]
    fn x4_inodes_of_folders_are_reported_without_those_of_devices() {
        let base = Folder::new("inodes");
        let all = inodes(&BTreeSet::from([base.to_path_buf(), PathBuf::from(DEVICES)]));
        let about = base.metadata().expect("a folder");
        let path = base.to_str().expect("a path").to_owned();
        assert_eq!(all, [SandboxFolder { path, device: about.dev(), inode: about.ino() }]);
    }

    /// X4.
    #[test]
    fn folder_below_a_permitted_one_is_not_watched() {
        let set = |folders: &[&str]| folders.iter().map(PathBuf::from).collect::<BTreeSet<_>>();
        let all = set(&["/etc", "/srv/tls", "/srv/tls/old", "/srv/keys"]);
        let own = set(&["/etc/ashlar", "/srv/tls", "/srv/tls/old", "/srv/keys"]);
        let watched: BTreeSet<PathBuf> = outermost(&all, own).collect();
        assert_eq!(watched, set(&["/srv/keys", "/srv/tls"]));
    }

    #[test]
    fn listed_folders_that_do_not_exist_are_named_with_their_keys() {
        let list = vec!["/proc".to_owned(), "/nonexistent".to_owned()];
        let daemon = DaemonConfig {
            sandbox_folders: list.clone(),
            sandbox_read_folders: Some(list),
            ..DaemonConfig::default()
        };
        let absent: Vec<_> = absent_folders(&daemon).map(|(key, of)| (key, of.as_str())).collect();
        let keys = ["sandbox_folders", "sandbox_read_folders"];
        assert_eq!(absent, keys.map(|key| (key, "/nonexistent")));
    }

    #[test]
    fn link_of_the_system_permits_the_folder_to_which_it_leads() {
        let folder = Folder::new("links");
        let base = folder.canonicalize().expect("a folder");
        let (file, link) = (base.join("real/resolv.conf"), base.join("link"));
        std::fs::create_dir(base.join("real")).expect("scratch");
        std::fs::write(&file, "").expect("scratch");
        std::os::unix::fs::symlink(&file, &link).expect("scratch");
        assert_eq!(real_folder(&link), Some(base.join("real")));
        assert_eq!(real_folder(&base.join("absent")), None);
        assert_eq!(real_folder(Path::new("/proc")), None, "the root folder");
    }

    #[test]
    fn restricted_thread_changes_only_its_folders() {
        let base = Folder::new("sandbox");
        let (own, other) = (base.join("own"), base.join("other"));
        for folder in [&own, &other] {
            std::fs::create_dir_all(folder).expect("scratch");
        }
        std::fs::write(other.join("read"), "x").expect("scratch");
        let folders = BTreeSet::from([own.clone()]);
        let elsewhere = other.clone();
        // Landlock restricts a thread and its children.
        let thread = std::thread::spawn(move || {
            let status = restrict(&folders, None).expect("rules");
            let is_written = |folder: &PathBuf| std::fs::write(folder.join("x"), "x").is_ok();
            let runs = std::process::Command::new("/bin/true").status().is_ok();
            let is_read = std::fs::read(elsewhere.join("read")).is_ok();
            (status, is_written(&own), is_written(&elsewhere), is_read, runs)
        });
        let (status, own, other, is_read, runs) = thread.join().expect("it ended well");
        if status == RulesetStatus::NotEnforced {
            println!("not tested: the kernel has no Landlock");
            return;
        }
        assert_eq!((own, other, is_read, runs), (true, false, true, false));
    }

    #[test]
    fn restricted_thread_reads_only_its_folders() {
        let base = std::env::temp_dir().join(format!("ashlar-reads-{}", std::process::id()));
        let [own, read, other] = ["own", "read", "other"].map(|name| base.join(name));
        for folder in [&own, &read, &other] {
            std::fs::create_dir_all(folder).expect("scratch");
            std::fs::write(folder.join("file"), "x").expect("scratch");
        }
        let all = [own.clone(), read.clone(), other];
        let thread = std::thread::spawn(move || {
            let (own, read) = (BTreeSet::from([own]), BTreeSet::from([read]));
            let status = restrict(&own, Some(&read)).expect("rules");
            let facts = all.map(|folder| {
                let is_listed = std::fs::read_dir(&folder).is_ok();
                let is_read = std::fs::read(folder.join("file")).is_ok();
                (is_listed, is_read, std::fs::write(folder.join("file"), "y").is_ok())
            });
            (status, facts)
        });
        let (status, facts) = thread.join().expect("it ended well");
        std::fs::remove_dir_all(&base).expect("scratch");
        if status == RulesetStatus::NotEnforced {
            println!("not tested: the kernel has no Landlock");
            return;
        }
        assert_eq!(facts, [(true, true, true), (true, true, false), (false, false, false)]);
    }
}
