//! `inspect` on images made by other tools: it finds all that `wipefs` finds. Once its findings are
//! cleared, `wipefs`, `blkid` and `sgdisk` find nothing.

use bio::Errno;
use classes::inspect::FindingRole;
use geom::Access;
use serde_json::{Value, json};
use std::os::unix::fs::FileExt;

use crate::inspected::{clean, judge, look};
use crate::support::{self, Scratch, run_on};
use crate::world::World;

const MIB: u64 = 1 << 20;

fn check_tool(kind: &str, mib: u64, tool: &str, args: &[&str]) {
    let scratch = Scratch::new(&format!("inspect-{kind}-{}", args.join("")));
    for sector in [512, 4096] {
        let path = scratch.image("image", mib * MIB);
        let all: Vec<&str> = args.iter().chain(&["@"]).copied().collect();
        run_on(&path, sector, tool, &all, "");
        judge(&path, sector, kind);
    }
}

#[test]
fn file_systems() {
    check_tool("ext", 40, "mkfs.ext2", &["-q", "-F"]);
    check_tool("ext", 40, "mkfs.ext4", &["-q", "-F", "-b", "4096"]);
    check_tool("xfs", 320, "mkfs.xfs", &["-q", "-f"]);
    check_tool("btrfs", 256, "mkfs.btrfs", &["-q", "-f"]);
    check_tool("ntfs", 16, "mkntfs", &["-q", "-F", "-f"]);
    check_tool("swap", 16, "mkswap", &["-q"]);
    check_tool("swap", 16, "mkswap", &["-q", "--pagesize", "65536"]);
    check_tool("fat", 4, "mkfs.vfat", &["-I", "-F", "12"]);
    check_tool("fat", 64, "mkfs.vfat", &["-I", "-F", "16"]);
    check_tool("fat", 320, "mkfs.vfat", &["-I", "-F", "32"]);
}

#[test]
fn copies_of_superblocks_are_found_where_the_format_keeps_them() {
    let scratch = Scratch::new("inspect-copies");
    let cases: [(&str, &str, u64, &[&str], usize); 4] = [
        ("ext", "mkfs.ext4", 64, &["-q", "-F", "-b", "1024"], 3),
        ("xfs", "mkfs.xfs", 320, &["-q", "-f"], 3),
        ("btrfs", "mkfs.btrfs", 128, &["-q", "-f"], 1),
        ("fat", "mkfs.vfat", 320, &["-I", "-F", "32"], 3),
    ];
    for (kind, tool, mib, args, least) in cases {
        let path = scratch.image(kind, mib * MIB);
        run_on(&path, 512, tool, &[args, &["@"]].concat(), "");
        let found = look(&path, 512);
        let copies = found.iter().filter(|f| f.role == FindingRole::Backup).count();
        assert!(copies >= least, "{kind}: {found:#x?}");
    }
}

#[test]
fn tables() {
    let scratch = Scratch::new("inspect-tables");
    for sector in [512, 4096] {
        let path = scratch.image("gpt", 64 * MIB);
        run_on(&path, sector, "sgdisk", &["-n", "1:0:+8M", "-n", "2:0:0", "@"], "");
        let found = look(&path, sector);
        let all: Vec<(u64, &str)> = found.iter().map(|f| (f.offset, f.kind)).collect();
        let unit = u64::from(sector);
        assert_eq!(all, [(510, "pmbr"), (unit, "gpt"), (64 * MIB - unit, "gpt")]);
        assert!(found.iter().all(|f| f.reason.starts_with("GPT with 2 partitions")), "{found:?}");
        judge(&path, sector, "gpt");
        let path = scratch.image("mbr", 64 * MIB);
        let script = "label: dos\nsize=8MiB,type=83\ntype=a5\n";
        run_on(&path, sector, "sfdisk", &["-q", "--wipe=never", "@"], script);
        judge(&path, sector, "mbr");
    }
}

#[test]
fn tables_of_smaller_disks_and_other_sector_sizes_are_found() {
    let scratch = Scratch::new("inspect-stale");
    let path = scratch.image("grown", 64 * MIB);
    run_on(&path, 512, "sgdisk", &["-n", "1:0:0", "@"], "");
    // The disk grows; its first sectors are lost.
    let file = std::fs::File::options().write(true).open(&path).expect("image");
    file.set_len(64 * MIB + 512 * 1024).expect("grown");
    file.write_all_at(&[0; 1024], 0).expect("lost");
    let found = look(&path, 512);
    let all: Vec<_> = found.iter().map(|f| (f.offset, f.role)).collect();
    assert_eq!(all, [(64 * MIB - 512, FindingRole::Stale)], "{found:?}");
    let path = scratch.image("sectors", 64 * MIB);
    run_on(&path, 4096, "sgdisk", &["-n", "1:0:0", "@"], "");
    let found = look(&path, 512);
    let stale = |at| found.iter().any(|f| f.offset == at && f.role == FindingRole::Stale);
    assert!(stale(4096) && stale(64 * MIB - 4096), "{found:?}");
    let hints = |found: &[classes::inspect::Finding], size: &str| {
        found.iter().filter(|f| f.kind == "gpt" && f.reason.contains(size)).count()
    };
    assert_eq!(hints(&found, "`sector_size = 4096`"), 2, "{found:#?}");
    // The other way round, and a header at no place of any disk.
    let path = scratch.image("small", 64 * MIB);
    run_on(&path, 512, "sgdisk", &["-n", "1:0:0", "@"], "");
    let found = look(&path, 4096);
    assert_eq!(hints(&found, "`sector_size = 512`"), 2, "{found:#?}");
    let header = std::fs::read(&path).expect("image")[512..1024].to_vec();
    let path = scratch.image("astray", 64 * MIB);
    let file = std::fs::File::options().write(true).open(&path).expect("image");
    file.write_all_at(&header, 5 * 512).expect("written");
    assert_eq!(hints(&look(&path, 512), "sector_size"), 0);
}

#[test]
fn linux_raid() {
    let scratch = Scratch::new("inspect-md");
    for (format, level) in [("0.90", "1"), ("1.0", "1"), ("1.1", "1"), ("1.2", "1")] {
        // As mdadm leaves them: magic, major version and place are significant.
        let path = scratch.image("md", 64 * MIB);
        let mut block = vec![0; 4096];
        block[..4].copy_from_slice(&[0xfc, 0x4e, 0x2b, 0xa9]);
        let (major, at): (u32, u64) = match format {
            "0.90" => (0, 64 * MIB - 65536),
            "1.0" => (1, 64 * MIB - 8192),
            "1.1" => (1, 0),
            _ => (1, 4096),
        };
        block[4..8].copy_from_slice(&major.to_le_bytes());
        if major == 0 {
            block[8..12].copy_from_slice(&90_u32.to_le_bytes());
        } else {
            block[0x90..0x98].copy_from_slice(&(at / 512).to_le_bytes());
        }
        let file = std::fs::File::options().write(true).open(&path).expect("image");
        file.write_all_at(&block, at).expect("written");
        let found = look(&path, 512);
        assert_eq!(found.len(), 1, "{format} {level}: {found:?}");
        assert_eq!((found[0].offset, found[0].kind), (at, "md"));
        judge(&path, 512, "md");
    }
}

fn offsets(answer: &Value, key: &str) -> Vec<u64> {
    let all = answer[key].as_array().expect("a list");
    all.iter().map(|f| f["offset"].as_u64().expect("an offset")).collect()
}

#[test]
fn verbs_of_inspect_are_in_its_list_and_refuse_unknown_parameters() {
    let (mut w, _disk) = World::with("ada0", vec![0; MIB as usize], 512);
    let error =
        w.verb("inspect", "wipe", "ada0", json!({ "onlyx": ["gpt"] })).expect_err("unknown");
    assert_eq!(error.message, "inspect wipe has no `onlyx`; it takes force, only, provider");
    let error = w.verb("inspect", "look", "ada0", json!({})).expect_err("unknown");
    assert!(error.message.ends_with("it has scan, wipe"), "{error}");
}

/// I2 of inspect/mod.rs.
#[test]
fn wipe_requires_consent_refuses_open_disks_and_clears_the_rest() {
    let scratch = Scratch::new("inspect-verb");
    for sector in [512_u32, 4096] {
        let path = scratch.image("disk", 64 * MIB);
        run_on(&path, sector, "sgdisk", &["-n", "1:0:+8M", "-n", "2:0:0", "@"], "");
        let bytes = std::fs::read(&path).expect("image");
        let (mut w, disk) = World::with("ada0", bytes.clone(), sector);
        assert!(w.has("ada0p2"));
        let all = offsets(&w.verb("inspect", "scan", "ada0", json!({})).expect("scan"), "findings");
        let unit = u64::from(sector);
        assert_eq!(all, [510, unit, 64 * MIB - unit]);
        // Dry.
        let answer = w.verb("inspect", "wipe", "ada0", json!({})).expect("dry");
        assert!(
            answer["message"].as_str().is_some_and(|m| m.contains("--yes-destroy ada0")),
            "{answer}"
        );
        assert!(disk.bytes() == bytes && w.has("ada0p2"), "nothing changes");
        // In use.
        let open = w.open("ada0p1", Access::WRITE);
        let refused = w.verb("inspect", "wipe", "ada0", json!({ "force": true }));
        let refused = refused.expect_err("in use");
        assert!(refused.kind == Errno::Busy && refused.message.contains("part ada0"), "{refused}");
        assert!(disk.bytes() == bytes && w.has("ada0p2"), "nothing changes");
        w.close(open);
        let refused = w.verb("inspect", "wipe", "ada0", json!({ "only": ["xfs"] }));
        assert_eq!(refused.expect_err("not there").kind, Errno::NoEnt);
        // One of them; then the rest.
        let answer = w.verb("inspect", "wipe", "ada0", json!({ "only": ["pmbr"] })).expect("one");
        assert_eq!(offsets(&answer, "cleared"), [510]);
        assert!(w.has("ada0p2"), "a GPT without its guard is a GPT");
        let answer = w.verb("inspect", "wipe", "ada0", json!({ "force": true })).expect("all");
        // The copy is cleared first.
        assert_eq!(offsets(&answer, "cleared"), [64 * MIB - unit, unit]);
        assert!(offsets(&answer, "findings").is_empty());
        assert_eq!(w.names(), ["ada0"]);
        disk.save(&path);
        clean(&path, sector);
        let differ = bytes.iter().zip(disk.bytes()).filter(|(a, b)| **a != *b).count();
        assert!(differ <= 2 + 8 + 8, "only signatures are cleared: {differ}");
    }
}

/// I1 of inspect/mod.rs.
#[test]
fn findings_do_not_depend_on_the_users_of_a_disk() {
    let (mut w, _) = World::with("ada0", vec![0; 16 << 20], 512);
    w.part("create", "ada0", json!({ "scheme": "gpt" }));
    w.part("add", "ada0", json!({ "kind": "linux-data" }));
    let findings = |w: &mut World| {
        w.verb("inspect", "scan", "ada0", json!({})).expect("scan")["findings"].clone()
    };
    let alone = findings(&mut w);
    assert!(alone.as_array().is_some_and(|all| !all.is_empty()), "{alone}");
    let open = w.open("ada0p1", Access::READ);
    assert_eq!(findings(&mut w), alone);
    w.close(open);
}

#[test]
fn our_own_members_and_labels_are_found() {
    let (mut w, disk) = World::with("ada0", vec![0; 16 << 20], 512);
    w.disk("ada1", vec![0; 16 << 20], 512);
    let members = json!({ "members": ["ada0", "ada1"] });
    for class in ["mirror", "stripe", "concat"] {
        w.verb(class, "label", "data", members.clone()).unwrap_or_else(|e| panic!("{class}: {e}"));
        let answer = w.verb("inspect", "scan", "ada0", json!({})).expect("scan");
        let last = (16 << 20) - 512;
        assert_eq!(offsets(&answer, "findings"), [last], "{answer}");
        assert_eq!(answer["findings"][0]["class"], class);
        let why = answer["findings"][0]["why"].as_str().unwrap_or("");
        assert!(why.contains("data"), "{class}: {why}");
        let refused = w.verb("inspect", "wipe", "ada0", json!({ "force": true }));
        if class == "mirror" {
            assert_eq!(refused.expect_err("in use").kind, Errno::Busy);
        }
        w.verb(class, "stop", "data", json!({})).unwrap_or_else(|e| panic!("{class}: {e}"));
        for name in ["ada0", "ada1"] {
            w.verb("inspect", "wipe", name, json!({ "force": true })).expect("cleared");
        }
        assert!(disk.bytes()[last as usize..][..16].iter().all(|b| *b == 0));
    }
}

/// FAT in an image as `mkfs.vfat` makes it, with an entry of an MBR that begins in sector 0.
fn fat_with_entry(path: &std::path::Path, sector: u32, bits: &str) {
    let size = sector.to_string();
    let args = ["-I", "--mbr=yes", "-F", bits, "-S", &size, "@"];
    run_on(path, sector, "mkfs.vfat", &args, "");
}

#[test]
fn a_fat_volume_that_resembles_an_empty_mbr_is_reported_as_fat() {
    let scratch = Scratch::new("inspect-fat-mbr");
    for sector in [512, 4096] {
        for (bits, mib) in [("12", 8), ("16", 64), ("32", 320)] {
            let path = scratch.image("fat", mib * MIB);
            fat_with_entry(&path, sector, bits);
            let why = support::table_of(&path, sector).expect_err("no table");
            assert_eq!(why.reason, classes::probe::Reason::Foreign, "{why}");
            let kinds: Vec<&str> = look(&path, sector).iter().map(|f| f.kind).collect();
            assert!(kinds.iter().all(|kind| *kind == "fat"), "{kinds:?}");
            // Without its texts and its jump it is FAT by its values.
            let plain = scratch.image("plain", mib * MIB);
            std::fs::copy(&path, &plain).expect("a copy");
            let file = std::fs::File::options().write(true).open(&plain).expect("image");
            for (at, len) in [(0, 3), (54, 8), (82, 8)] {
                file.write_all_at(&vec![0; len], at).expect("written");
            }
            let kinds: Vec<&str> = look(&plain, sector).iter().map(|f| f.kind).collect();
            assert_eq!(kinds, ["fat"], "FAT{bits}");
            assert!(support::table_of(&plain, sector).is_err());
            judge(&plain, sector, "fat");
            judge(&path, sector, "fat");
        }
    }
}

#[test]
fn partitions_cannot_be_added_over_a_fat_volume() {
    let scratch = Scratch::new("inspect-fat-add");
    let path = scratch.image("fat", 64 * MIB);
    fat_with_entry(&path, 512, "16");
    let bytes = std::fs::read(&path).expect("image");
    let (mut w, disk) = World::with("ada0", bytes.clone(), 512);
    let refused = w.verb("part", "add", "ada0", json!({ "kind": "linux-data" }));
    assert_eq!(refused.expect_err("there is no table").kind, Errno::NoEnt);
    let refused = w.verb("part", "create", "ada0", json!({ "scheme": "mbr" }));
    let refused = refused.expect_err("there is a volume");
    assert!(refused.message.contains("FAT"), "{refused}");
    assert!(disk.bytes() == bytes, "nothing changes");
}

#[test]
fn partitions_are_found_over_the_remains_of_a_fat_volume() {
    let scratch = Scratch::new("inspect-fat-old");
    let path = scratch.image("disk", 64 * MIB);
    run_on(&path, 512, "mkfs.vfat", &["-I", "--mbr=no", "-F", "16", "@"], "");
    let script = "label: dos\nsize=8MiB,type=83\n";
    run_on(&path, 512, "sfdisk", &["-q", "--wipe=never", "@"], script);
    let table = support::table_of(&path, 512).expect("a table");
    assert_eq!(table.entries().len(), 1);
    let kinds: Vec<&str> = look(&path, 512).iter().map(|f| f.kind).collect();
    assert_eq!(kinds, ["fat", "fat", "mbr"]);
    judge(&path, 512, "mbr");
}
