//! Tasks of an initiator's administrator, as scripts for the guest.
//!
//! Each function makes a [`Script`] for one [`Login`]; scripts may be joined with [`Script::then`]
//! so that one boot serves several. [`play`] runs a script and carries out its requests on the
//! host. When the guest prints [`READY_FOR_KILL`], the `restart` closure kills and restarts the
//! target; then the guest continues.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::guest::{
    Boot, Console, Image, Run, Script, SharedGuest, boot, boot_disk, guest_portal, quote,
};
use crate::proc::{self, Scratch};
use crate::{Chap, Login};

/// The guest prints this while it writes; the host may then kill the target.
pub const READY_FOR_KILL: &str = "@@READY-FOR-KILL";
/// The guest prints this before a request to the host; see [`converse`].
const ASK: &str = "@@ASK ";
/// The guest prints this for every file whose fsync returned: name, SHA-256.
const ACKNOWLEDGED: &str = "@@ACK ";
/// The host answers this when it has carried out the guest's request.
pub const GO: &str = "GO";
/// Files acknowledged before the target is killed, and as many again after its restart.
const FILES_EACH_SIDE: usize = 20;
/// Files to copy, with the checksums that the host computed.
pub struct Tree {
    files: Vec<(String, Vec<u8>)>,
    sums: String,
}

/// Logs in to a target and leaves the devices of its units 0 and 1 in `/rig/names`, under names
/// for a shell.
pub fn log_in_to_two(iqn: &str, portal: &str, names: [&str; 2]) -> String {
    let [a, b] = names;
    format!(
        "start_iscsid {}; node {iqn} {portal}\n\
         iscsiadm -m node -T {iqn} -p {portal} --login >/dev/null\n\
         echo \"{a}=$(disk {iqn} 0) {b}=$(disk {iqn} 1)\" >/rig/names",
        Login::INITIATOR
    )
}

/// Which files a tree takes.
#[derive(Clone, Debug)]
pub struct Take {
    pub files_max: usize,
    pub bytes_max: u64,
    /// Only files of these sizes in bytes.
    pub sizes: RangeInclusive<u64>,
}

impl Tree {
    /// Collects regular files below the folders in alphabetical order, whichever fit.
    pub fn gather(folders: &[&Path], take: &Take) -> Result<Tree> {
        let mut found = Vec::new();
        for folder in folders {
            walk(folder, &mut found);
        }
        let mut tree = Tree { files: Vec::new(), sums: String::new() };
        let mut bytes_left = take.bytes_max;
        for file in found {
            if tree.files.len() == take.files_max {
                break;
            }
            let Ok(bytes) = fs::read(&file) else { continue };
            let Some(name) = file.to_str().map(|name| name.trim_start_matches('/')) else {
                continue;
            };
            let size = bytes.len() as u64;
            // A name with one of these would be written differently into the list of sums.
            let plain = !name.contains(['\n', '\\']);
            if plain && take.sizes.contains(&size) && size <= bytes_left {
                bytes_left -= size;
                tree.files.push((name.to_string(), bytes));
            }
        }
        let names: Vec<&String> = tree.files.iter().map(|(name, _)| name).collect();
        for names in names.chunks(500) {
            let mut command = Command::new("sha256sum");
            tree.sums.push_str(&proc::run(command.current_dir("/").arg("--").args(names))?);
        }
        Ok(tree)
    }

    /// The machine's documentation, or a substitute for it: up to 800 small files of 2 MiB
    /// together, and 2 MiB of larger ones. An error on a machine with less than 500.
    pub fn documentation() -> Result<Tree> {
        let folders = ["/usr/share/doc", "/usr/share/zoneinfo", "/usr/share/perl", "/usr/include"];
        let folders = folders.map(Path::new);
        let small = Take { files_max: 800, bytes_max: 2 << 20, sizes: 0..=8191 };
        let large = Take { files_max: 40, bytes_max: 2 << 20, sizes: 8192..=1 << 20 };
        let mut tree = Tree::gather(&folders, &small)?;
        let large = Tree::gather(&folders, &large)?;
        tree.files.extend(large.files);
        tree.sums.push_str(&large.sums);
        ensure!(tree.files.len() >= 500, "only {} files below {folders:?}", tree.files.len());
        Ok(tree)
    }

    /// A small one of the machine's documentation: up to so many files, of 2 MiB together.
    pub fn some(files_max: usize) -> Result<Tree> {
        let take = Take { files_max, bytes_max: 2 << 20, sizes: 0..=64 << 10 };
        let tree = Tree::gather(&[Path::new("/usr/share/doc"), Path::new("/usr/include")], &take)?;
        ensure!(tree.files.len() >= files_max / 2, "only {} files", tree.files.len());
        Ok(tree)
    }

    /// The tree below /rig/tree of a guest, and its checksums in /rig/sums.
    pub fn guest_files(&self) -> Vec<(String, Vec<u8>)> {
        let file = |(name, bytes): &(String, Vec<u8>)| (format!("rig/tree/{name}"), bytes.clone());
        let mut files: Vec<_> = self.files.iter().map(file).collect();
        files.push(("rig/sums".to_string(), self.sums.clone().into_bytes()));
        files
    }

    /// Writes the files below a folder, under the names they have below the root.
    pub fn write(&self, folder: &Path) -> Result<()> {
        for (name, bytes) in &self.files {
            let file = folder.join(name);
            if let Some(above) = file.parent() {
                fs::create_dir_all(above)?;
            }
            fs::write(&file, bytes).with_context(|| format!("write {}", file.display()))?;
        }
        Ok(())
    }

    /// How many files it has, and bytes in all of them.
    pub fn size(&self) -> (usize, u64) {
        (self.files.len(), self.files.iter().map(|(_, bytes)| bytes.len() as u64).sum())
    }
}

fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    let mut entries: Vec<_> = entries.flatten().collect();
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&entry.path(), found),
            Ok(kind) if kind.is_file() => found.push(entry.path()),
            _ => {}
        }
    }
}

/// Names for the shell: $IQN, $PORTAL, $LUN of a login.
fn variables(login: &Login) -> String {
    let target = &login.target;
    let portal = guest_portal(target.portal);
    format!("IQN={} PORTAL={portal} LUN={}\n", quote(&target.iqn), target.lun)
}

const LOG_IN: &str = "iscsiadm -m node -T $IQN -p $PORTAL --login >/dev/null; disk $IQN $LUN\n";
const LOG_OUT: &str = "umount /mnt; iscsiadm -m node -T $IQN -p $PORTAL --logout >/dev/null\n";

/// Settings of a record: keys and values for `node`.
fn authentication(chap: &Chap) -> String {
    let mut pairs = vec![
        ("authmethod", "CHAP"),
        ("username", chap.user.as_str()),
        ("password", chap.secret.as_str()),
    ];
    if let Some((user, secret)) = &chap.mutual {
        pairs.push(("username_in", user));
        pairs.push(("password_in", secret));
    }
    let words = |(key, value): &(&str, &str)| format!(" node.session.auth.{key} {}", quote(value));
    pairs.iter().map(words).collect()
}

/// Starts the initiator, makes a record for the target and logs in.
fn begin(script: &mut Script, login: &Login) {
    let names = variables(login);
    script.step("start iscsid", format!("start_iscsid {}", quote(&login.initiator)));
    let auth = login.chap.as_ref().map(authentication).unwrap_or_default();
    let words = |(key, value): &(String, String)| format!(" {} {}", quote(key), quote(value));
    let settings: String = login.settings.iter().map(words).collect();
    script.step("record the target", format!("{names}node $IQN $PORTAL{auth}{settings}"));
    script.step("log in", format!("{names}{LOG_IN}"));
    let make = "D=$(disk $IQN $LUN); /usr/sbin/mke2fs -q -F -t ext4 $D; mount -t ext4 $D /mnt";
    script.step("make and mount a file system", format!("{names}{make}"));
}

/// SendTargets discovery: the target's name is among the answers. Without authentication.
pub fn discover(login: &Login) -> Script {
    let mut script = Script::new();
    script.step("start iscsid", format!("start_iscsid {}", quote(&login.initiator)));
    let find = "iscsiadm -m discovery -t st -p $PORTAL -o nonpersistent >/tmp/found\n\
                cat /tmp/found; grep -q -F \" $IQN\" /tmp/found";
    script.step("discover", format!("{}{find}", variables(login)));
    script
}

/// Log in, make a file system, copy a tree, sync, compare, log out, log in again, compare again.
pub fn copy_tree(login: &Login, tree: &Tree) -> Script {
    let mut script = Script::new();
    let names = variables(login);
    script.files.extend(tree.guest_files());
    let compare = "cd /mnt/tree; sha256sum -c -s /rig/sums\n\
                   [ $(find . -type f | wc -l) = $(lines /rig/sums) ]; cd /; df /mnt | tail -n 1\n";
    begin(&mut script, login);
    script.step("copy a tree", "cp -r /rig/tree /mnt/tree; sync");
    script.step("compare checksums", compare);
    script.step("unmount and log out", format!("{names}{LOG_OUT}"));
    script.step("the disk is removed", format!("{names}! iscsiadm -m session | grep -F $IQN"));
    script.step("log in again", format!("{names}{LOG_IN}"));
    script.step("mount again", format!("{names}mount -t ext4 -o ro $(disk $IQN $LUN) /mnt"));
    script.step("compare checksums again", compare);
    script.step("unmount and log out again", format!("{names}{LOG_OUT}"));
    script
}

/// Write files with fsync without a pause, have the target ended and started again in the middle,
/// so many times, write on, and find every acknowledged file after a remount.
pub fn end_in_writes(login: &Login, times: usize) -> Script {
    let mut script = Script::new();
    let names = variables(login);
    begin(&mut script, login);
    let count = FILES_EACH_SIDE;
    script.step(
        "write while the target ends and starts",
        format!(
            "mkdir -p /mnt/files; rm -f /tmp/stop /tmp/list\n\
             write_and_acknowledge /mnt/files /tmp/list & writer=$!\n\
             wait_lines /tmp/list {count} $writer\n\
             for round in $(seq {times}); do\n\
                 echo {READY_FOR_KILL}\n\
                 read -r answer; [ \"$answer\" = {GO} ]; before=$(lines /tmp/list)\n\
                 wait_lines /tmp/list $((before + {count})) $writer\n\
             done\n\
             touch /tmp/stop; wait $writer"
        ),
    );
    let lost = "dmesg | grep 'detected conn error'; ! dmesg | grep 'I/O error'";
    script.step("the connection was lost, no request was", lost);
    script.step("remount", format!("{names}umount /mnt; mount -t ext4 $(disk $IQN $LUN) /mnt"));
    let compare = "cd /mnt/files; sha256sum -c -s /tmp/list; lines /tmp/list; cd /";
    script.step("compare acknowledged files", compare);
    script.step("unmount and log out", format!("{names}{LOG_OUT}"));
    script
}

pub struct Played {
    /// The guest's side.
    pub run: Run,
    /// Every file whose fsync returned: name, SHA-256 in hex.
    pub acknowledged: BTreeMap<String, String>,
    /// How many of them before the target was ended for the first time.
    pub acknowledged_before: usize,
    /// How long the first call of the `restart` closure took; None: it was not called.
    pub restart: Option<Duration>,
}

/// Runs a script; calls `restart` (end the target, start it again) each time the guest is ready
/// for it. An error carries the guest's console.
pub fn play(
    from: From<'_>,
    script: &Script,
    how: Boot,
    restart: &mut dyn FnMut() -> Result<()>,
) -> Result<Played> {
    let (mut acknowledged, mut acknowledged_before) = (BTreeMap::new(), 0);
    let mut restarted = None;
    let run = from.run(script, how, &mut |line, console| {
        if !acknowledge(line, &mut acknowledged)? && line == READY_FOR_KILL {
            let start = Instant::now();
            if restarted.is_none() {
                acknowledged_before = acknowledged.len();
            }
            restart().context("restart the target")?;
            restarted.get_or_insert(start.elapsed());
            console.send(GO)?;
        }
        Ok(())
    })?;
    run.expect_ok()?;
    Ok(Played { run, acknowledged, acknowledged_before, restart: restarted })
}

fn acknowledge(line: &str, into: &mut BTreeMap<String, String>) -> Result<bool> {
    let Some(words) = line.strip_prefix(ACKNOWLEDGED) else {
        return Ok(false);
    };
    let (name, sum) = words.split_once(' ').context("an ACK without a checksum")?;
    into.insert(name.to_string(), sum.to_string());
    Ok(true)
}

/// Boot source of a guest.
pub enum From<'a> {
    /// Kernel and initramfs.
    Kernel(&'a Image),
    /// A guest that other scripts use, too.
    Shared(&'a mut SharedGuest),
    /// A disk with the script on it; see [`boot_disk`].
    Disk(&'a str),
}

impl From<'_> {
    fn run(
        self,
        script: &Script,
        how: Boot,
        on_line: &mut dyn FnMut(&str, &mut Console) -> Result<()>,
    ) -> Result<Run> {
        match self {
            From::Kernel(image) => boot(image, script, how, on_line),
            From::Shared(guest) => guest.run(script, how, on_line),
            From::Disk(drive) => boot_disk(drive, script, how, on_line),
        }
    }
}

/// Result of a conversation.
pub struct Conversed {
    /// The guest's side.
    pub run: Run,
    /// Every file whose fsync returned: name, SHA-256 in hex.
    pub acknowledged: BTreeMap<String, String>,
}

/// Runs a script. `answer` carries out a request of the guest (`ask` and `told` of `lib.sh`) and
/// returns one line, [`GO`] when there is nothing to report. An error contains the guest's console.
pub fn converse(
    from: From<'_>,
    script: &Script,
    how: Boot,
    answer: &mut dyn FnMut(&str) -> Result<String>,
) -> Result<Conversed> {
    let mut acknowledged = BTreeMap::new();
    let run = from.run(script, how, &mut |line, console| {
        if !acknowledge(line, &mut acknowledged)?
            && let Some(words) = line.strip_prefix(ASK)
        {
            let reply = answer(words).with_context(|| format!("the guest requested: {words}"))?;
            console.send(&reply)?;
        }
        Ok(())
    })?;
    run.expect_ok()?;
    Ok(Conversed { run, acknowledged })
}

/// `e2fsck -fn` finds nothing to repair in an image that starts with an ext2/3/4 file system.
pub fn check_clean(image: &Path) -> Result<()> {
    proc::run(Command::new(proc::tool("e2fsck")?).arg("-fn").arg(image)).map(drop)
}

/// Without the target and without the guest: the image is a clean ext4 file system and holds
/// every acknowledged file with its checksum. `image` starts with the file system itself; a
/// partition is cut out first.
pub fn check_image(image: &Path, acknowledged: &BTreeMap<String, String>) -> Result<()> {
    check_clean(image)?;
    let scratch = Scratch::new("dump")?;
    // debugfs makes the folder itself and gives up on one that is there.
    let folder = scratch.path().join("files");
    let dump = format!("rdump /files {}", scratch.path().display());
    proc::run(Command::new(proc::tool("debugfs")?).args(["-R", &dump]).arg(image))?;
    let list = scratch.path().join("list");
    let lines = acknowledged.iter().map(|(name, sum)| format!("{sum}  {name}\n"));
    fs::write(&list, lines.collect::<String>())?;
    let mut command = Command::new("sha256sum");
    proc::run(command.current_dir(&folder).args(["--quiet", "-c"]).arg(&list)).map(drop)
}

/// Cuts `bytes` from `offset` of an image into a file of its own: a partition, to be checked.
pub fn cut(image: &Path, offset: u64, bytes: u64, to: &Path) -> Result<()> {
    let mut from = File::open(image).with_context(|| format!("open {}", image.display()))?;
    from.seek(SeekFrom::Start(offset))?;
    let copied = std::io::copy(&mut from.take(bytes), &mut File::create(to)?)?;
    ensure!(copied == bytes, "{} ends {} bytes early", image.display(), bytes - copied);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Target;

    fn login() -> Login {
        let portal = "127.0.0.1:3299".parse().unwrap();
        Login::open(Target { portal, iqn: "iqn.2026-11.test:it's".into(), lun: 7 })
    }

    #[test]
    fn login_becomes_shell_variables() {
        assert_eq!(
            variables(&login()),
            "IQN='iqn.2026-11.test:it'\\''s' PORTAL=10.0.2.2:3299 LUN=7\n"
        );
        let chap =
            Chap { user: "a".into(), secret: "b c".into(), mutual: Some(("d".into(), "e".into())) };
        let words = authentication(&chap);
        assert_eq!(words.matches(" node.session.auth.").count(), 5);
        assert!(words.contains("auth.password 'b c' ") && words.ends_with("password_in 'e'"));
    }

    #[test]
    fn tree_has_checksums_of_its_files() {
        let scratch = Scratch::new("tree").unwrap();
        for number in 0..120 {
            let folder = scratch.path().join(format!("d{}", number % 7));
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(format!("f{number}")), vec![b'x'; number]).unwrap();
        }
        let take = Take { files_max: 110, bytes_max: 1 << 20, sizes: 0..=118 };
        let tree = Tree::gather(&[scratch.path()], &take).unwrap();
        assert_eq!((tree.size().0, tree.sums.lines().count()), (110, 110));
        // SHA-256 of nothing: file f0 (FIPS 180-4).
        let nothing = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert!(tree.sums.contains(nothing));
        let take = Take { files_max: 110, bytes_max: 300, sizes: 100..=118 };
        let tree = Tree::gather(&[scratch.path()], &take).unwrap();
        assert_eq!(tree.size().0, 2);
        assert!(tree.size().1 <= 300);
    }
}
