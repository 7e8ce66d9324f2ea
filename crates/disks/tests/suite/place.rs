//! Paths of open disks: removed, renamed, replaced; files that cannot be made or written.

use std::path::Path;
use std::process::Command;

use bio::Errno;
use geom::{Severity, Trouble};
use reactor::PortChoice;
use serde_json::json;

use crate::host::{is_mounted, run};
use crate::world::{Folder, World};

/// A world with one disk of a file of 1 MiB, and the folder of that file.
fn world(params: &[(&str, serde_json::Value)]) -> (World, Folder, String) {
    let folder = Folder::new();
    let path = folder.path("a.img");
    std::fs::write(&path, vec![0; 1 << 20]).unwrap();
    let mut w = World::new(PortChoice::Poll);
    let mut all = json!({ "path": path });
    params.iter().for_each(|(key, value)| all[*key] = value.clone());
    w.disk("file", "f0", all).unwrap();
    (w, folder, path)
}

/// The problems of a disk, once its path has been examined.
pub fn examined(w: &mut World, disk: &str) -> Vec<Trouble> {
    let state = disks::path_state(&mut w.control.topology, disk).unwrap();
    state.upgrade().unwrap().examine();
    disks::troubles(&mut w.control.topology, disk)
}

fn troubles(w: &mut World) -> Vec<Trouble> {
    let found = examined(w, "f0");
    let view = w.control.topology.view(0);
    let shown = view.iter().find(|g| g.name == "f0").unwrap();
    assert_eq!(shown.troubles, found, "status sees the same");
    found
}

#[test]
fn medium_of_an_open_disk_is_its_file_whatever_its_path_names() {
    let folder = Folder::new();
    let (first, second, path) = (folder.path("1.img"), folder.path("2.img"), folder.path("link"));
    for file in [&first, &second] {
        std::fs::write(file, vec![0; 1 << 20]).unwrap();
    }
    std::os::unix::fs::symlink(&first, &path).unwrap();
    let mut w = World::new(PortChoice::Poll);
    w.disk("file", "f0", json!({ "path": path })).unwrap();
    std::fs::remove_file(&path).unwrap();
    std::os::unix::fs::symlink(&second, &path).unwrap();
    let of = |path: &str| disks::Medium::of(Path::new(path));
    let open = disks::open_medium(&mut w.control.topology, "f0");
    assert_eq!(open, of(&first));
    assert_ne!(open, of(&path));
    w.disk("memory", "m0", json!({ "size": 1 << 20 })).unwrap();
    assert_eq!(disks::open_medium(&mut w.control.topology, "m0"), None);
}

/// The one thing that is wrong, whose cause and action contain `why` and `action`. A file without a
/// name is a failure.
fn trouble(w: &mut World, why: &str, action: &str) -> Trouble {
    let all = troubles(w);
    let [one] = &all[..] else { panic!("{all:?}") };
    assert!(one.why.contains(why), "{}", one.why);
    assert!(one.action.contains(action), "{}", one.action);
    let is_lost = one.why.contains("lost when the daemon stops");
    assert_eq!(one.severity, if is_lost { Severity::Failed } else { Severity::Degraded });
    one.clone()
}

/// The command between the first back quotes that begins with `with`.
fn command(trouble: &Trouble, with: &str) -> String {
    let mut quoted = trouble.action.split('`').skip(1).step_by(2);
    quoted.find(|c| c.starts_with(with)).unwrap_or_else(|| panic!("{}", trouble.action)).to_owned()
}

fn shell(command: &str) {
    assert!(Command::new("sh").args(["-c", command]).status().unwrap().success(), "{command}");
}

#[test]
fn removed_file_is_failed_and_can_be_copied_back() {
    let (mut w, _folder, path) = world(&[]);
    let edge = w.open("f0");
    assert_eq!(troubles(&mut w), []);
    std::fs::remove_file(&path).unwrap();
    w.write(edge, 4096, &[7; 4096]).unwrap();
    let finding = trouble(&mut w, "was removed while it is in use", "restart");
    assert!(finding.why.contains(&path) && finding.why.contains("lost when the daemon stops"));
    shell(&command(&finding, "cp"));
    let saved = std::fs::read(&path).unwrap();
    assert!(saved.len() == 1 << 20 && saved[4096..8192].iter().all(|b| *b == 7));
    // The copy is not the file in use.
    trouble(&mut w, "was replaced by another file", "restart");
}

#[test]
fn questions_read_the_last_examination_and_do_not_look_at_the_path() {
    let (mut w, _folder, path) = world(&[]);
    std::fs::remove_file(&path).unwrap();
    assert_eq!(disks::troubles(&mut w.control.topology, "f0"), []);
    let state = disks::path_state(&mut w.control.topology, "f0").unwrap().upgrade().unwrap();
    assert!(state.examine(), "it differs");
    assert!(!state.examine(), "it is the same as before");
    drop(state);
    assert_eq!(disks::troubles(&mut w.control.topology, "f0").len(), 1);
}

#[test]
fn replaced_file_is_failed_and_can_be_copied_back() {
    let (mut w, folder, path) = world(&[]);
    let edge = w.open("f0");
    let new = folder.path("new");
    std::fs::write(&new, vec![1; 1 << 20]).unwrap();
    std::fs::rename(&new, &path).unwrap();
    w.write(edge, 0, &[7; 4096]).unwrap();
    let finding = trouble(&mut w, "was replaced by another file", "restart");
    shell(&command(&finding, "cp"));
    assert!(std::fs::read(&path).unwrap().iter().all(|b| *b == 1), "the other file is kept");
    shell(&command(&finding, "mv"));
    assert!(std::fs::read(&path).unwrap()[..4096].iter().all(|b| *b == 7));
}

#[test]
fn renamed_file_is_degraded_until_it_is_restored() {
    let (mut w, folder, path) = world(&[]);
    let aside = folder.path("a b'.img");
    std::fs::rename(&path, &aside).unwrap();
    let finding = trouble(&mut w, &format!("was renamed to {aside}"), "mv ");
    shell(&command(&finding, "mv"));
    assert_eq!(troubles(&mut w), []);
    // Another file replaced it.
    std::fs::rename(&path, &aside).unwrap();
    std::fs::write(&path, "other").unwrap();
    let finding = trouble(&mut w, "another file has its path", "mv ");
    shell(&command(&finding, "mv"));
    assert_eq!(troubles(&mut w), []);
    assert_eq!(std::fs::read(format!("{path}.other")).unwrap(), b"other");
    // Only another hard link is left.
    std::fs::hard_link(&path, &aside).unwrap();
    std::fs::remove_file(&path).unwrap();
    trouble(&mut w, "only another hard link is left", "cp --sparse=always /proc/");
    std::fs::hard_link(&aside, &path).unwrap();
    assert_eq!(troubles(&mut w), []);
}

#[test]
fn file_in_a_renamed_folder_is_degraded_until_it_is_restored() {
    let (mut w, folder, _) = world(&[]);
    let deep = folder.path("deep");
    std::fs::create_dir(&deep).unwrap();
    std::fs::write(format!("{deep}/b.img"), vec![0; 8192]).unwrap();
    w.disk("file", "f1", json!({ "path": format!("{deep}/b.img") })).unwrap();
    let aside = folder.path("aside");
    std::fs::rename(&deep, &aside).unwrap();
    let finding = examined(&mut w, "f1");
    assert!(finding[0].why.contains(&format!("was renamed to {aside}/b.img")), "{finding:?}");
    std::fs::rename(&aside, &deep).unwrap();
    assert_eq!(examined(&mut w, "f1"), []);
}

fn chattr(how: &str, path: &str) -> bool {
    run(&["chattr", how, path]).is_some()
}

#[test]
fn immutable_file_is_reported_with_the_command_that_fixes_it() {
    let (mut w, folder, path) = world(&[]);
    if !chattr("+i", &path) {
        eprintln!("not tested: the user or the file system permits no immutable files");
        return;
    }
    let finding = trouble(&mut w, "was made immutable", "chattr -i");
    drop(w);
    let mut w = World::new(PortChoice::Poll);
    let refused = w.disk("file", "f0", json!({ "path": path })).unwrap_err();
    shell(&command(&finding, "chattr"));
    assert!(refused.kind == Errno::Perm && refused.message.contains(&path), "{refused}");
    assert!(
        refused.message.contains("immutable") && refused.message.contains("chattr -i"),
        "{refused}"
    );
    // A folder.
    let inner = folder.path("inner");
    std::fs::create_dir(&inner).unwrap();
    assert!(chattr("+i", &inner));
    let params = json!({ "path": format!("{inner}/b.img"), "create": true, "size": 8192 });
    let refused = w.disk("file", "f0", params).unwrap_err();
    assert!(chattr("-i", &inner));
    assert!(refused.message.contains(&format!("chattr -i {inner}")), "{refused}");
}

#[test]
fn file_that_cannot_be_created_is_removed() {
    let folder = Folder::new();
    let mut w = World::new(PortChoice::Poll);
    let path = folder.path("a.img");
    // More than any file system here allows.
    let size = i64::MAX as u64 / 4096 * 4096;
    let link = folder.path("link");
    std::os::unix::fs::symlink("a.img", &link).unwrap();
    for path in [&path, &link] {
        let params = json!({ "path": path, "create": true, "size": size });
        let e = w.disk("file", "f0", params).unwrap_err();
        assert!(e.kind == Errno::NoSpc && e.message.contains(path.as_str()), "{e}");
        assert!(e.message.contains(&size.to_string()) && e.message.contains("LimitFSIZE"), "{e}");
        assert!(!Path::new(path).exists());
    }
    w.disk("file", "f1", json!({ "path": link, "create": true, "size": 8192 })).unwrap();
    assert_eq!(std::fs::metadata(&path).unwrap().len(), 8192);
}

#[test]
fn file_system_that_became_read_only_is_degraded() {
    let folder = Folder::new();
    let (image, place) = (folder.path("fs.img"), folder.path("fs"));
    std::fs::create_dir(&place).unwrap();
    std::fs::File::create(&image).unwrap().set_len(32 << 20).unwrap();
    run(&["mkfs.ext4", "-q", "-O", "^has_journal", &image]).unwrap();
    if !is_mounted(&["-o", "loop,errors=remount-ro", &image, &place]) {
        return;
    }
    let path = format!("{place}/a.img");
    let mut w = World::new(PortChoice::Poll);
    w.disk("file", "f0", json!({ "path": path, "create": true, "size": 1 << 20 })).unwrap();
    let edge = w.open("f0");
    let before = (w.write(edge, 0, &[7; 4096]), troubles(&mut w));
    let device = run(&["findmnt", "-n", "-o", "SOURCE", &place]).unwrap();
    let device = device.trim_start_matches("/dev/").to_owned();
    let broken = std::fs::write(format!("/sys/fs/ext4/{device}/trigger_fs_error"), "test");
    let after = (w.write(edge, 8192, &[7; 4096]), troubles(&mut w), w.read(edge, 0, 4096));
    drop(w);
    run(&["umount", "--lazy", &place]).unwrap();
    assert_eq!(before, (Ok(()), vec![]));
    if broken.is_err() {
        eprintln!("not tested: the kernel triggers no errors of ext4");
        return;
    }
    assert_eq!(after.0, Err(Errno::RoFs));
    assert_eq!(after.1.len(), 1, "{:?}", after.1);
    assert!(after.1[0].why.contains("became read-only"), "{:?}", after.1);
    assert!(after.1[0].action.contains("remount,rw"), "{:?}", after.1);
    assert_eq!(after.2, Ok(vec![7; 4096]), "reads go on");
}

#[test]
fn full_file_system_is_reported() {
    let folder = Folder::new();
    let place = folder.path("small");
    std::fs::create_dir(&place).unwrap();
    // Its own folder is the first of three inodes.
    if !is_mounted(&["-t", "tmpfs", "-o", "nr_inodes=3,size=1m", "none", &place]) {
        return;
    }
    let remount = ["mount", "-o", "remount,ro", &place];
    let mut w = World::new(PortChoice::Poll);
    let path = |name: &str| format!("{place}/{name}");
    let mut made = Vec::new();
    for name in ["a", "b", "c"] {
        let params = json!({ "path": path(name), "create": true, "size": 8192 });
        made.push(w.disk("file", name, params));
    }
    let remounted = run(&remount).is_some();
    let busy = examined(&mut w, "a");
    drop(w);
    let read_only = run(&remount).is_some();
    let mut w = World::new(PortChoice::Poll);
    let refused = w.disk("file", "a", json!({ "path": path("a") })).unwrap_err();
    run(&["umount", &place]);
    let full = made.pop().unwrap().unwrap_err();
    assert!(made.iter().all(|m| m.is_ok()));
    assert!(full.kind == Errno::NoSpc && full.message.contains(&path("c")), "{full}");
    assert!(full.message.contains("df -i"), "{full}");
    assert!(!remounted && busy.is_empty(), "the kernel refuses it while files are written");
    assert!(read_only && refused.kind == Errno::RoFs, "{refused}");
    assert!(
        refused.message.contains(&path("a")) && refused.message.contains("findmnt"),
        "{refused}"
    );
}
