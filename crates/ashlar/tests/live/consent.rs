//! Verbs and steps of a plan that write where users' data may be. Data of another program on a
//! provider, at any place of the command line, is named, and the consent is requested.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use testkit::contents;

use crate::fixture::{Fixture, file_disk, tool};

/// Size of an image, and the least that mkfs.xfs takes.
const BYTES: u64 = 64 << 20;
const XFS_BYTES: u64 = 320 << 20;
/// Compared part of an image: so many bytes of its start and of its end.
const EDGE_BYTES: u64 = 1 << 20;

/// Contents of the disks: a word for the disk's name, and the guard's description.
const HELD: [(&str, &str); 20] = [
    ("ext4", "ext2, ext3 or ext4"),
    ("xfs", "XFS"),
    ("btrfs", "Btrfs"),
    ("luks", "LUKS"),
    ("lvm", "LVM2"),
    ("md12", "md 1.2"),
    ("md10", "md 1.0"),
    ("zfs", "ZFS"),
    ("bcache", "bcache"),
    ("bcachefs", "bcachefs"),
    ("f2fs", "F2FS"),
    ("hfsplus", "HFS+"),
    ("apfs", "APFS"),
    ("vmfs", "VMFS"),
    ("exfat", "exFAT"),
    ("udf", "UDF"),
    ("jfs", "JFS"),
    ("ddf", "DDF"),
    ("imsm", "Intel RAID"),
    ("gpt", "GPT"),
];

/// Those for tests that start a daemon for each.
fn few() -> impl Iterator<Item = (&'static str, &'static str)> {
    HELD.into_iter().filter(|held| !contents::KINDS.contains(held))
}

/// Effect of a class's verb on providers.
enum Writes {
    /// Takes providers with any contents. Command lines: `@` is the one that holds something, `b0`
    /// to `b8` hold nothing.
    Any(&'static [&'static str]),
    /// Writes records on providers that already carry the class's own, or nothing.
    Own,
}

use Writes::{Any, Own};

/// Every verb that writes, by class.
const VERBS: &[(&str, &str, Writes)] = &[
    ("concat", "label", Any(&["concat label x @ b0", "concat label x b0 @"])),
    ("concat", "create", Any(&["concat create x @ b0", "concat create x b0 @"])),
    ("concat", "append", Any(&["concat append joined @"])),
    ("concat", "clear", Own),
    ("concat", "relocate", Own),
    ("stripe", "label", Any(&["stripe label x @ b0", "stripe label x b0 @"])),
    ("stripe", "create", Any(&["stripe create x @ b0", "stripe create x b0 @"])),
    ("stripe", "clear", Own),
    ("stripe", "relocate", Own),
    ("mirror", "label", Any(&["mirror label x @ b0", "mirror label x b0 b1 @"])),
    // It copies over all members but the first.
    ("mirror", "create", Any(&["mirror create x b0 @"])),
    ("mirror", "insert", Any(&["mirror insert twice @", "mirror insert twice b0 @"])),
    ("mirror", "configure", Own),
    ("mirror", "remove", Own),
    ("mirror", "forget", Own),
    ("mirror", "rebuild", Own),
    ("mirror", "deactivate", Own),
    ("mirror", "activate", Own),
    ("mirror", "resize", Own),
    ("mirror", "verify", Own),
    ("mirror", "start", Own),
    ("mirror", "clear", Own),
    ("mirror", "relocate", Own),
    (
        "raid",
        "label",
        Any(&[
            "raid label Intel x RAID1 @ b0",
            "raid label Intel x RAID1 b0 @",
            "raid label DDF x RAID1 b0 @",
        ]),
    ),
    ("raid", "insert", Any(&["raid insert ARRAY @"])),
    // The new volume is behind the others of the array.
    ("raid", "add", Own),
    ("raid", "delete", Own),
    ("raid", "remove", Own),
    ("raid", "fail", Own),
    ("raid", "consistency", Own),
    ("raid", "verify", Own),
    ("raid", "clear", Own),
    ("raid", "relocate", Own),
    ("label", "label", Any(&["label label x @"])),
    ("label", "clear", Own),
    ("multipath", "label", Any(&["multipath label x @", "multipath label x @ b0"])),
    ("multipath", "configure", Own),
    ("multipath", "destroy", Own),
    ("multipath", "clear", Own),
    ("multipath", "relocate", Own),
    // Of a file server that was refused because of a device's contents.
    ("fs", "ream", Any(&[])),
    // Of a device that was lost, with another disk in its place.
    ("fs", "replace", Any(&[])),
    ("fs", "dump", Own),
    ("fs", "yesterday", Own),
    ("fs", "check", Own),
    ("fs", "grow", Own),
    ("fs", "recover", Own),
    ("fs", "newuser", Own),
    ("fs", "create", Own),
    ("fs", "remove", Own),
    ("fs", "clri", Own),
    ("fs", "clean", Own),
    ("fs", "disk", Own),
];

/// Commands with entries of their own in the control path, or of classes without a list.
const OTHERS: &[&str] = &["part create -s gpt @", "part create -s mbr @", "part create -s bsd @"];

#[test]
fn every_verb_that_writes_is_in_the_table() {
    let mut known: Vec<(&str, &str)> =
        VERBS.iter().map(|(class, verb, _)| (*class, *verb)).collect();
    for class in daemon::class_verbs() {
        for spec in class.verbs {
            let asks = spec.args.iter().any(|arg| arg.name == "yes_destroy");
            let at = VERBS.iter().find(|(c, v, _)| (*c, *v) == (class.name, spec.name));
            known.retain(|one| *one != (class.name, spec.name));
            match at {
                None => assert!(
                    !spec.writes && !asks,
                    "{} {}: writes, and is not in the table",
                    class.name,
                    spec.name
                ),
                Some((.., Any(lines))) => {
                    let verb = format!("{} {}", class.name, spec.name);
                    assert!(asks, "{verb}: no --yes-destroy");
                    let own = lines.iter().all(|line| line.starts_with(&format!("{verb} ")));
                    assert!(own, "{verb}: a line of another verb: {lines:?}");
                }
                Some((.., Own)) => {
                    assert!(spec.writes && !asks, "{} {}: in the table", class.name, spec.name);
                }
            }
        }
    }
    assert!(known.is_empty(), "no such verbs: {known:?}");
}

/// Commands of the control path that take consent, which tests here, or of plans and tables, refuse
/// without it.
const ASKING: [&str; 9] = [
    "apply",
    "geom",
    "part.bootcode",
    "part.create",
    "part.delete",
    "part.destroy",
    "part.restore",
    "undo",
    "wipe",
];

/// Commands of tables that read, or edit the records of a table that is there.
const TABLE_COMMANDS: [&str; 12] = [
    "part.add",
    "part.backup",
    "part.commit",
    "part.list",
    "part.modify",
    "part.recover",
    "part.resize",
    "part.set",
    "part.show",
    "part.status",
    "part.undo",
    "part.unset",
];

#[test]
fn every_command_of_the_control_path_that_takes_consent_is_listed() {
    let takes =
        |entry: &&mgmt::verbs::Entry| !(entry.params)()["properties"]["yes_destroy"].is_null();
    let mut asking: Vec<&str> =
        mgmt::verbs::VERBS.iter().filter(takes).map(|entry| entry.name).collect();
    asking.sort_unstable();
    assert_eq!(asking, ASKING);
    let names = mgmt::verbs::VERBS.iter().map(|entry| entry.name);
    let mut tables: Vec<&str> =
        names.filter(|name| name.starts_with("part.") && !ASKING.contains(name)).collect();
    tables.sort_unstable();
    assert_eq!(tables, TABLE_COMMANDS);
}

fn put(path: &Path, at: u64, bytes: &[u8]) {
    File::options().write(true).open(path).unwrap().write_all_at(bytes, at).unwrap();
}

fn md(path: &Path, at: u64) {
    put(path, at, &[0xfc, 0x4e, 0x2b, 0xa9, 1]);
    put(path, at + 0x90, &(at / 512).to_le_bytes());
}

/// An image as another program leaves it.
fn fill(fixture: &Fixture, name: &str) {
    let bytes = if name == "xfs" { XFS_BYTES } else { BYTES };
    let path = fixture.image(&format!("{name}.img"), bytes);
    let at = path.to_str().unwrap();
    match name {
        "ext4" => drop(tool("mkfs.ext4", &["-q", "-F", at], "")),
        "xfs" => drop(tool("mkfs.xfs", &["-q", "-f", at], "")),
        "gpt" => drop(tool("sgdisk", &["-n", "1:0:0", at], "")),
        "btrfs" => put(&path, 0x1_0040, b"_BHRfS_M"),
        "luks" => put(&path, 0, b"LUKS\xba\xbe\0\x01"),
        "lvm" => {
            put(&path, 512, b"LABELONE\x01");
            put(&path, 512 + 24, b"LVM2 001");
        }
        "md12" => md(&path, 4096),
        "md10" => md(&path, ((BYTES / 512 - 16) & !7) * 512),
        "zfs" => put(&path, 128 << 10, &0x00ba_b10c_u64.to_le_bytes()),
        kind => contents::parts(kind, bytes).iter().for_each(|(at, part)| put(&path, *at, part)),
    }
}

/// The start and the end of each image that holds something.
fn edges_of_all(fixture: &Fixture) -> Vec<Vec<u8>> {
    let edges = |name: &str| {
        let file = File::open(fixture.path(&format!("{name}.img"))).unwrap();
        let mut out = vec![0; 2 * EDGE_BYTES as usize];
        let (start, end) = out.split_at_mut(EDGE_BYTES as usize);
        file.read_exact_at(start, 0).unwrap();
        file.read_exact_at(end, file.metadata().unwrap().len() - EDGE_BYTES).unwrap();
        out
    };
    HELD.iter().map(|(name, _)| edges(name)).collect()
}

fn disks(names: &[&str]) -> String {
    names.iter().map(|name| file_disk(name, &format!("{name}.img"))).collect()
}

const BLANK: [&str; 9] = ["b0", "b1", "b2", "b3", "b4", "b5", "b6", "b7", "b8"];

fn everything(name: &str) -> Fixture {
    let fixture = Fixture::new(name);
    for name in BLANK {
        fixture.image(&format!("{name}.img"), BYTES);
    }
    HELD.iter().for_each(|(name, _)| fill(&fixture, name));
    fixture
}

fn all_disks() -> String {
    let held: Vec<&str> = HELD.iter().map(|(name, _)| *name).collect();
    format!("{}{}", disks(&BLANK), disks(&held))
}

/// Runs a command, which must be refused because of a disk's contents.
fn refuses(fixture: &Fixture, line: &str, name: &str, holds: &str) {
    let words: Vec<&str> = line.split(' ').collect();
    let output = fixture.ashlar(&words);
    let all = format!("{}{}", output.out, output.err);
    let asks = format!("--yes-destroy {name}");
    assert!(
        output.code == 4 && all.contains(holds) && all.contains(&asks),
        "`{line}` over {holds}: {output}"
    );
}

#[test]
fn verbs_report_found_data_and_require_the_provider_name() {
    let mut fixture = everything("consent");
    fixture.configure(&all_disks(), "");
    fixture.start_whole();
    // They are smaller than the disks that may be inserted.
    fixture.ok(&["mirror", "label", "twice", "b6", "b7"]);
    fixture.ok(&["concat", "label", "joined", "b5"]);
    fixture.ok(&["raid", "label", "Intel", "v", "RAID1", "b3", "b4"]);
    let list = fixture.ok(&["raid", "list"]);
    let array = list.lines().find_map(|l| l.strip_prefix("Geom name: ")).expect("an array");
    let before = edges_of_all(&fixture);
    let lines = VERBS.iter().flat_map(|(.., writes)| match writes {
        Any(lines) => *lines,
        Own => &[],
    });
    for line in lines.chain(OTHERS) {
        for (name, holds) in HELD {
            // A table is edited by its own verbs.
            if name == "gpt" && line.starts_with("part create") {
                continue;
            }
            refuses(&fixture, &line.replace('@', name).replace("ARRAY", array), name, holds);
        }
    }
    assert!(edges_of_all(&fixture) == before, "something was written");
    // A dry run.
    let dry = fixture.ashlar(&["wipe", "luks"]).ends(0);
    dry.prints(&["LUKS", "nothing was", "--yes-destroy luks"]);
    assert!(edges_of_all(&fixture) == before, "something was written");
    // With its name it is done.
    fixture.ok(&["mirror", "label", "x", "b0", "md12", "--yes-destroy", "md12"]);
    fixture.assert_alive();
    fixture.stop();
}

/// Boot code that ends as a boot sector does.
fn boot_code(fixture: &Fixture) -> String {
    let path = fixture.path("code");
    let mut code = vec![0x90; 512];
    code[510..].copy_from_slice(&[0x55, 0xaa]);
    std::fs::write(&path, code).unwrap();
    path.to_str().unwrap().to_owned()
}

/// Each image in a partition for boot code, 1 MiB from the start of a disk of its own.
fn within_partitions(fixture: &Fixture) -> String {
    let mut all = String::new();
    for (name, _) in HELD {
        let (from, to) = (fixture.path(&format!("{name}.img")), format!("in-{name}"));
        let bytes = std::fs::metadata(&from).unwrap().len();
        let path = fixture.image(&format!("{to}.img"), bytes + (4 << 20));
        let (from, at) = (from.to_str().unwrap(), path.to_str().unwrap());
        let sectors = format!("1:2048:{}", 2048 + bytes / 512 - 1);
        tool("sgdisk", &["-a", "1", "-n", &sectors, "-t", "1:ef02", at], "");
        let files = [format!("if={from}"), format!("of={at}")];
        let how = ["bs=1M", "seek=1", "conv=notrunc,sparse", "status=none"];
        tool("dd", &[&files[0], &files[1], how[0], how[1], how[2], how[3]], "");
        all += &file_disk(&to, &format!("{to}.img"));
    }
    all
}

/// Types `part restore` with a table on its input.
fn restore(fixture: &Fixture, words: &[&str]) -> (i32, String) {
    let mut command = fixture.command(words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("started");
    // One that refuses at once may not read it.
    let table = b"GPT 128\n1 linux-data 2048 4096\n";
    let _ = child.stdin.take().expect("an input").write_all(table);
    let done = child.wait_with_output().expect("ended");
    let text = [done.stdout, done.stderr].concat();
    (done.status.code().unwrap_or(-1), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn partition_verbs_report_data_found_on_provider_or_partition() {
    let mut fixture = everything("consent-part");
    let (boot, within) = (boot_code(&fixture), within_partitions(&fixture));
    fixture.configure(&format!("{}{within}", all_disks()), "");
    fixture.start_whole();
    let before = edges_of_all(&fixture);
    for (name, holds) in HELD {
        // The type of a partition describes its purpose, not its contents.
        let line = format!("part bootcode in-{name} -p {boot} -i 1");
        refuses(&fixture, &line, &format!("in-{name}p1"), holds);
        let asks = format!("--yes-destroy {name}");
        // With -F a table is overwritten, and nothing else.
        for words in [&["part", "restore", name][..], &["part", "restore", "-F", name]] {
            if name == "gpt" {
                continue;
            }
            let (code, output) = restore(&fixture, words);
            let named = output.contains(holds) && output.contains(&asks);
            assert!(code == 4 && named, "{words:?} over {holds}: {code} {output}");
        }
        // All of the providers are looked at before the first is written.
        let (code, output) = restore(&fixture, &["part", "restore", "-F", "b0", name]);
        assert_eq!(code, if name == "gpt" { 0 } else { 4 }, "{name}: {output}");
    }
    let (code, output) = restore(&fixture, &["part", "restore", "b1", "gpt"]);
    assert!(code != 0 && output.contains("-F"), "{output}");
    let (now, last) = (edges_of_all(&fixture), HELD.len() - 1);
    assert!(now[..last] == before[..last], "something was written");
    assert!(now[last] != before[last], "the table gave way");
    // With their names it is done.
    let (code, output) = restore(&fixture, &["part", "restore", "xfs", "--yes-destroy", "xfs"]);
    assert_eq!(code, 0, "{output}");
    let line = ["part", "bootcode", "in-luks", "-p", &boot, "-i", "1"];
    fixture.ok(&[&line[..], &["--yes-destroy", "in-luksp1"]].concat());
    fixture.stop();
}

#[test]
fn protection_reports_found_data_and_requires_the_provider_name() {
    let mut fixture = everything("consent-protection");
    fixture.configure(&all_disks(), "");
    fixture.start_whole();
    let before = edges_of_all(&fixture);
    for (name, holds) in HELD {
        let unit = format!("\n[[unit]]\nprovider = \"{name}\"\nprotection = \"type1\"\n");
        fixture.configure(&format!("{}{unit}", all_disks()), &format!("0 = \"{name}\""));
        let plan = fixture.ashlar(&["plan"]);
        let says = plan.out.contains("destroys") && plan.out.contains(holds);
        assert!(plan.code == 6 && says, "{name}: {plan}");
        let output = fixture.ashlar(&["apply"]);
        let asks = output.err.contains(&format!("--yes-destroy {name}"));
        assert!(output.code == 4 && asks, "{name}: {output}");
    }
    assert!(edges_of_all(&fixture) == before, "something was written");
    // A start has no consent: it leaves the LUN out.
    fixture.stop();
    let unit = "\n[[unit]]\nprovider = \"ext4\"\nprotection = \"type1\"\n";
    fixture.configure(&format!("{}{unit}", all_disks()), "0 = \"ext4\"");
    fixture.start();
    fixture.ashlar(&["status"]).ends(3).prints(&["ext4", "protection information would overwrite"]);
    assert!(edges_of_all(&fixture) == before, "something was written at a start");
    fixture.configure(&all_disks(), "0 = \"ext4\"");
    fixture.ok(&["apply"]);
    fixture.configure(&format!("{}{unit}", all_disks()), "0 = \"ext4\"");
    fixture.ok(&["apply", "--yes-destroy", "ext4"]);
    let soon = Duration::from_secs(60);
    fixture.until("its end is protection information", soon, || edges_of_all(&fixture) != before);
    // Which later starts find.
    fixture.stop();
    fixture.start_whole();
    let status = fixture.ashlar(&["status"]);
    assert!(!status.out.contains("protection information"), "{status}");
    fixture.stop();
}

#[test]
fn replacing_a_file_server_device_over_data_requires_consent() {
    let mut fixture = everything("consent-replace");
    fixture.image("far.img", BYTES);
    let server = "\n[[geom]]\nclass = \"fs\"\nname = \"main\"\ncreate = true\n\
                  members = [\"b0\", \"b1\", \"far\"]\ndump_at = \"never\"\n";
    let all = format!("{}{}{server}", disks(&BLANK), file_disk("far", "far.img"));
    fixture.configure(&all, "");
    fixture.start_whole();
    fixture.stop();
    for (name, holds) in few() {
        // The device is lost, and another disk has its place.
        std::fs::copy(fixture.path(&format!("{name}.img")), fixture.path("far.img")).unwrap();
        fixture.start_whole();
        refuses(&fixture, "fs replace main far", "far", holds);
        refuses(&fixture, "fs replace main far --force", "far", holds);
        fixture.stop();
        let [was, is] = ["far.img", &format!("{name}.img")].map(|file| {
            let mut edges = vec![0; EDGE_BYTES as usize];
            File::open(fixture.path(file)).unwrap().read_exact_at(&mut edges, 0).unwrap();
            edges
        });
        assert!(was == is, "{name}: something was written");
    }
}

/// Geoms of the configuration that write on their members, with a second member that holds
/// something.
const DECLARED: [(&str, &str); 4] = [
    ("mirror", ""),
    ("stripe", ""),
    ("concat", ""),
    ("fs", "create = true\ndump_at = \"never\"\n"),
];

#[test]
fn plans_report_data_on_members_and_require_the_geom_name() {
    let mut fixture = everything("consent-plan");
    fixture.configure(&all_disks(), "");
    fixture.start_whole();
    let before = edges_of_all(&fixture);
    for (class, more) in DECLARED {
        for (name, holds) in HELD {
            for members in [format!("\"{name}\", \"b0\""), format!("\"b0\", \"{name}\"")] {
                let geom = format!(
                    "\n[[geom]]\nclass = \"{class}\"\nname = \"whole\"\n\
                     members = [{members}]\n{more}"
                );
                fixture.configure(&format!("{}{geom}", all_disks()), "");
                let at = format!("{class} over {members}");
                let plan = fixture.ashlar(&["plan"]);
                assert!(plan.code == 6 && plan.out.contains("destroys"), "{at}: {plan}");
                assert!(plan.out.contains(holds), "{at}: {plan}");
                let output = fixture.ashlar(&["apply"]);
                let asks = output.err.contains("--yes-destroy whole");
                assert!(output.code == 4 && asks, "{at}: {output}");
            }
        }
    }
    assert!(edges_of_all(&fixture) == before, "something was written");
    // A start does not do it either, and reports the reason.
    fixture.stop();
    fixture.start_whole();
    fixture.ashlar(&["status"]).ends(3).prints(&["create geom whole", "GPT"]);
    assert!(edges_of_all(&fixture) == before, "something was written at a start");
    fixture.stop();
}

#[test]
fn reaming_a_file_server_over_data_requires_consent() {
    let mut fixture = everything("consent-fs");
    let server = |first: &str, second: &str| {
        format!(
            "\n[[geom]]\nclass = \"fs\"\nname = \"main\"\nmembers = [\"{first}\", \"{second}\"]\n\
             dump_at = \"never\"\n"
        )
    };
    for (name, holds) in few() {
        fixture.configure(&format!("{}{}", all_disks(), server("b0", name)), "");
        fixture.start_whole();
        let before = edges_of_all(&fixture);
        refuses(&fixture, "fs ream main", name, holds);
        refuses(&fixture, "fs ream main --force", name, holds);
        assert!(edges_of_all(&fixture) == before, "something was written");
        fixture.stop();
    }
    fixture.configure(&format!("{}{}", all_disks(), server("b0", "ext4")), "");
    fixture.start_whole();
    fixture.ok(&["fs", "ream", "main", "--yes-destroy", "ext4"]);
    // The file system made here is recognised, and other verbs refuse to overwrite it.
    fixture.ok(&["fs", "halt", "main"]);
    fixture.configure(&all_disks(), "");
    fixture.ok(&["apply"]);
    refuses(&fixture, "mirror label x b1 ext4", "ext4", "file server's WORM");
    refuses(&fixture, "part create -s gpt b0", "b0", "cache device of a file server");
    fixture.stop();
}
