//! LUNs as block devices of this machine, by FUSE: file systems on them, access permissions, and
//! the state after the daemon ends. Needs root, FUSE and loop devices; where they are not available
//! the tests print that and pass.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use rig::proc;

use crate::fixture::{Fixture, IQN, file_disk, text};
use testkit::iscsi::initiator::Client;

const DISK_BYTES: u64 = 96 << 20;

/// Longest wait for something that takes milliseconds.
const SOON: Duration = Duration::from_secs(15);

/// Longest run of a tool that writes through a device.
const TOOL_LIMIT: Duration = Duration::from_secs(60);

/// Runs a tool; a hanging one fails the test.
#[track_caller]
fn run(name: &str, words: &[&str]) -> String {
    let ran = try_run(name, words);
    ran.unwrap_or_else(|e| panic!("{name} {}: {e}", words.join(" ")))
}

fn try_run(name: &str, words: &[&str]) -> Result<String, String> {
    let mut command = Command::new(proc::tool(name).map_err(|e| e.to_string())?);
    let ran = proc::run_limited(command.args(words), TOOL_LIMIT).map_err(|e| e.to_string())?;
    match ran.ok() {
        true => Ok(ran.output),
        false => Err(ran.output),
    }
}

/// Configuration: a disk, the fixture's target, and a local one called after the fixture.
fn configure(fixture: &Fixture, local: &str, attach: &str, luns: &str) {
    fixture.configure(
        &format!(
            "{}\n[[target]]\ndriver = \"local\"\nname = \"{local}\"\nattach = [{attach}]\n\
             by = \"fuse\"\n\
             [[access]]\ntarget = \"{local}\"\ngroup = \"machine\"\n\
             initiators = [\"local:{local}\"]\nluns = {{ {luns} }}\n",
            file_disk("d0", "d0.img")
        ),
        "0 = \"d0\"",
    );
}

/// A fixture with a local target, started; `None` where nothing can be attached.
fn build_fixture(name: &str, local: &str, attach: &str, luns: &str) -> Option<Fixture> {
    let mut fixture = Fixture::alone(name);
    fixture.image("d0.img", DISK_BYTES);
    configure(&fixture, local, attach, luns);
    fixture.start();
    let output = fixture.ashlar(&["attach", "0"]);
    if output.code == 0 {
        return Some(fixture);
    }
    let lacks = ["/dev/fuse", "losetup", "mount ", "/run/ashlar", "direct I/O"];
    assert!(lacks.iter().any(|w| output.err.contains(w)), "{output}");
    println!("not tested: nothing can be attached: {}", output.err);
    fixture.stop();
    None
}

/// The device of LUN 0.
fn device(fixture: &Fixture) -> String {
    text(&fixture.json(&["attach", "--list"])["attached"][0]["device"])
}

/// A mount that is removed with the test.
struct Mounted(PathBuf);

impl Mounted {
    #[track_caller]
    fn new(fixture: &Fixture, device: &str, how: &[&str]) -> Mounted {
        let at = fixture.path("mnt");
        fs::create_dir_all(&at).unwrap();
        run("mount", &[how, &[device, at.to_str().unwrap()]].concat());
        Mounted(at)
    }

    fn at(&self) -> &Path {
        &self.0
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // A failed test must report its own error.
        let _ = try_run("umount", &[self.0.to_str().unwrap()]);
    }
}

/// Nothing of that target is mounted or a loop device.
fn assert_gone(local: &str) {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap();
    assert!(!mounts.contains(&format!("/{local}.")), "{mounts}");
    let loops = run("losetup", &["--list", "--noheadings"]);
    assert!(!loops.contains(&format!("/{local}.")), "{loops}");
    assert!(!Path::new("/run/ashlar/attached").join(format!("{local}.0")).exists());
}

/// Bytes of a file that are there.
fn allocated(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    fs::metadata(path).unwrap().blocks() * 512
}

#[test]
fn file_system_on_an_attached_lun_keeps_its_files() {
    let Some(mut fixture) = build_fixture("attach-fs", "t-fs", "", "0 = \"d0\"") else { return };
    let (device, image) = (device(&fixture), fixture.path("d0.img"));
    assert_eq!(fixture.ok(&["attach", "d0"]).trim(), device, "attached already");
    // The file system's tables are written now, so later allocations are the test's writes.
    let eager = "lazy_itable_init=0,lazy_journal_init=0";
    run("mkfs.ext4", &["-q", "-b", "4096", "-E", eager, &device]);
    let mnt = Mounted::new(&fixture, &device, &[]);
    let big: Vec<u8> = (0..24u32 << 20).map(|i| (i ^ (i >> 9)) as u8).collect();
    fs::write(mnt.at().join("big"), &big).unwrap();
    run(
        "cp",
        &["-r", concat!(env!("CARGO_MANIFEST_DIR"), "/../rig/src"), mnt.at().to_str().unwrap()],
    );
    let file = fs::File::open(mnt.at().join("big")).unwrap();
    file.sync_all().unwrap();
    drop(file);
    // The synced data is in the image now, as other processes read it.
    run("sync", &["-f", mnt.at().to_str().unwrap()]);
    let bytes = fs::read(&image).unwrap();
    let part = &big[10 << 20..(10 << 20) + 4096];
    assert!(bytes.chunks(4096).any(|c| c == part), "data that was synced is not in the image");

    let refused = fixture.ashlar(&["detach", "0"]);
    assert_ne!(refused.code, 0);
    refused.complains(&["mounted on", mnt.at().to_str().unwrap()]);

    let full = allocated(&image);
    fs::remove_file(mnt.at().join("big")).unwrap();
    run("sync", &["-f", mnt.at().to_str().unwrap()]);
    run("fstrim", &[mnt.at().to_str().unwrap()]);
    let left = allocated(&image);
    assert!(left + (16 << 20) < full, "of {full} bytes {left} are still allocated");
    let same = ["-r", concat!(env!("CARGO_MANIFEST_DIR"), "/../rig/src")];
    run("diff", &[&same[..], &[mnt.at().join("src").to_str().unwrap()]].concat());
    drop(mnt);
    run("e2fsck", &["-fn", &device]);
    let sessions = fixture.json(&["sessions"]);
    let session = &sessions["sessions"][0]["session"];
    assert_eq!(session["initiator"], "local:t-fs");
    assert!(session["stats"]["write"]["bytes"].as_u64().unwrap() > 24 << 20, "{session}");

    fixture.ok(&["detach", &device]);
    fixture.ashlar(&["attach", "--list"]).prints(&["nothing is attached"]);
    assert_gone("t-fs");
    run("e2fsck", &["-fn", image.to_str().unwrap()]);
    fixture.assert_alive();
    fixture.stop();
}

#[test]
fn reservations_and_masks_apply_to_attached_luns() {
    let Some(mut fixture) = build_fixture("attach-rules", "t-rules", "", "0 = \"d0\"") else {
        return;
    };
    let device = device(&fixture);
    let write = || {
        try_run(
            "dd",
            &[
                "if=/dev/zero",
                &format!("of={device}"),
                "bs=4096",
                "count=1",
                "oflag=direct",
                "conv=notrunc",
            ],
        )
    };
    write().unwrap();
    // A reservation of another initiator.
    let mut raw = Client::session(fixture.portal(), "iqn.2024-01.test:a", IQN).unwrap();
    raw.scsi(&[0; 6], 0, &[]).unwrap();
    let mut out = |action: u8, key: u64, action_key: u64| {
        let mut list = [0; 24];
        list[..8].copy_from_slice(&key.to_be_bytes());
        list[8..16].copy_from_slice(&action_key.to_be_bytes());
        raw.scsi(&[0x5F, action, 1, 0, 0, 0, 0, 0, 24, 0], 0, &list).unwrap().status
    };
    assert_eq!((out(0, 0, 1), out(1, 1, 0)), (0, 0));
    assert!(write().is_err(), "written in spite of a reservation");
    assert_eq!(out(2, 1, 0), 0);
    write().unwrap();

    // No group, no LUN; the message names the missing lines.
    fixture.ashlar(&["attach", "7"]).complains(&["LUN 7", "luns"]);
    fixture.ok(&["detach", "0"]);

    // Read only by its group.
    configure(&fixture, "t-rules", "", "0 = { provider = \"d0\", mode = \"ro\" }");
    fixture.ok(&["apply", fixture.path("ashlar.toml").to_str().unwrap()]);
    let device = fixture.ok(&["attach", "0"]).trim().to_owned();
    assert_eq!(run("blockdev", &["--getro", &device]).trim(), "1");
    assert_eq!(fixture.json(&["attach", "--list"])["attached"][0]["read_only"], true);
    let denied = try_run("dd", &["if=/dev/zero", &format!("of={device}"), "bs=4096", "count=1"]);
    assert!(denied.is_err());
    fixture.stop();
    assert_gone("t-rules");
}

/// A1 of daemon/src/attach/mod.rs.
#[test]
fn attach_is_refused_without_an_access_group() {
    let mut fixture = Fixture::alone("attach-denied");
    fixture.image("d0.img", DISK_BYTES);
    configure(&fixture, "t-denied", "", "0 = \"d0\"");
    let path = fixture.path("ashlar.toml");
    let text = fs::read_to_string(&path).unwrap();
    fs::write(&path, text.replace("\"local:t-denied\"", "\"local:other\"")).unwrap();
    fixture.start();
    let output = fixture.ashlar(&["attach", "0"]);
    assert_ne!(output.code, 0);
    output.complains(&["local:t-denied", "[[access]]", "initiators"]);
    assert_gone("t-denied");
    fixture.stop();
}

#[test]
fn device_follows_resizes_and_is_attached_again_after_restarts() {
    let Some(mut fixture) = build_fixture("attach-again", "t-again", "0", "0 = \"d0\"") else {
        return;
    };
    let first = device(&fixture);
    let bytes = |device: &str| run("blockdev", &["--getsize64", device]).trim().to_owned();
    assert_eq!(bytes(&first), DISK_BYTES.to_string());
    let grown = DISK_BYTES + (8 << 20);
    let config = fs::read_to_string(fixture.path("ashlar.toml")).unwrap();
    let sized = |bytes: u64| {
        let text = config.replace("/d0.img\"\n", &format!("/d0.img\"\nsize = {bytes}\n"));
        fs::write(fixture.path("ashlar.toml"), text).unwrap();
        fixture.ok(&["apply", fixture.path("ashlar.toml").to_str().unwrap()]);
    };
    // The size that it has is written down: the disk stays, and so does its device.
    sized(DISK_BYTES);
    assert_eq!(fixture.log().matches("LUN 0 (d0) is /dev/").count(), 1);
    assert_eq!(device(&fixture), first);
    sized(grown);
    fixture.until("the new size is seen", SOON, || bytes(&first) == grown.to_string());

    run("mkfs.ext4", &["-q", &first]);
    fixture.stop();
    assert_gone("t-again");
    // The target is created before its groups, and is not tried without them.
    let log = fixture.log();
    assert!(!log.contains("no access group") && !log.contains("grants it"), "{log}");
    fixture.start();
    fixture.until("it is attached again", SOON, || !device(&fixture).is_empty());
    run("e2fsck", &["-fn", &device(&fixture)]);

    // Killed: the next start removes the remains and attaches the LUN again.
    fixture.kill();
    fixture.start();
    fixture.until("it is attached once more", SOON, || !device(&fixture).is_empty());
    run("e2fsck", &["-fn", &device(&fixture)]);
    let loops = run("losetup", &["--list", "--noheadings"]);
    assert_eq!(loops.matches("/t-again.").count(), 1, "{loops}");
    fixture.stop();
    assert_gone("t-again");
}

/// A2 of daemon/src/attach/mod.rs.
#[test]
fn open_device_is_detached_only_with_force() {
    let Some(mut fixture) = build_fixture("attach-open", "t-open", "", "0 = \"d0\"") else {
        return;
    };
    let device = device(&fixture);
    let opened = fs::File::open(&device).unwrap();
    let mut holder = Command::new("sleep").arg("600").stdin(opened).spawn().unwrap();
    let open = format!("open in sleep (pid {})", holder.id());
    let refused = fixture.ashlar(&["detach", "0"]);
    assert_ne!(refused.code, 0);
    refused.complains(&[&device, &open, "ashlar detach 0 --force"]);
    let list = fixture.ok(&["attach", "--list"]);
    assert!(list.contains(&open), "{list}");
    assert_eq!(run("blockdev", &["--getsize64", &device]).trim(), DISK_BYTES.to_string());
    fixture.ok(&["detach", "0", "--force"]);
    let list = fixture.json(&["attach", "--list"]);
    assert_eq!(list["attached"].as_array().map(Vec::len), Some(0), "{list}");
    let line = format!("{device} is removed while in use by {open}");
    assert!(fixture.log().contains(&line), "{}", fixture.log());
    holder.kill().unwrap();
    holder.wait().unwrap();
    // Closed: it is detached without force.
    fixture.ok(&["attach", "0"]);
    fixture.ok(&["detach", "0"]);
    fixture.stop();
    assert_gone("t-open");
}

#[test]
fn dirty_pages_over_a_memory_limit_are_written_back() {
    let Some(mut fixture) = build_fixture("attach-memory", "t-memory", "", "0 = \"d0\"") else {
        return;
    };
    let device = device(&fixture);
    run("mkfs.ext4", &["-q", "-b", "4096", &device]);
    let mnt = Mounted::new(&fixture, &device, &[]);
    // A writer that may have less memory than it writes: its pages must pass through the daemon
    // while it waits for memory. Both kinds of control groups, old and new.
    let kinds =
        [("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")];
    let group = kinds.iter().find_map(|(root, key)| {
        let group = Path::new(root).join(format!("ashlar-test-{}", fixture.pid()));
        let is_group = Path::new(root).join("cgroup.procs").exists();
        let made = is_group && fs::create_dir(&group).is_ok();
        let set = made && fs::write(group.join(key), "32M").is_ok();
        if made && !set {
            fs::remove_dir(&group).unwrap();
        }
        set.then_some(group)
    });
    let limited = group.is_some();
    println!("memory of the writer is {}", if limited { "32 MiB" } else { "not limited here" });
    let enter = match &group {
        Some(group) => format!("echo $$ > {}/cgroup.procs; ", group.display()),
        None => String::new(),
    };
    let at = mnt.at().to_str().unwrap();
    let script = format!(
        "{enter}for i in 1 2 3; do dd if=/dev/zero of={at}/f$i bs=1M count=20 conv=fsync; done"
    );
    run("sh", &["-ec", &script]);
    let status = fixture.ashlar(&["status"]);
    assert_eq!(status.code, 0, "{status}");
    drop(mnt);
    if let Some(group) = group {
        fs::remove_dir(group).unwrap();
    }
    run("e2fsck", &["-fn", &device]);
    // In use when the daemon ends: acknowledged data is written all the same.
    let mnt = Mounted::new(&fixture, &device, &[]);
    fs::write(mnt.at().join("last"), vec![0x5A; 1 << 20]).unwrap();
    fixture.stop();
    drop(mnt);
    let image = fixture.path("d0.img");
    let found = fs::read(&image).unwrap();
    let page = [0x5A; 4096];
    assert!(found.chunks(4096).filter(|c| *c == page).count() >= 256, "what was written is lost");
}
