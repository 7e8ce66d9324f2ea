//! `bootcode`: it changes only the areas that it names, judged byte by byte and by other tools; and
//! the code that it wrote runs.

use std::process::Command;
use std::time::Duration;

use bio::Errno;
use classes::part::{self, Media, Scheme, Table, params::Create};
use geom::Access;
use rig::proc;
use serde_json::{Value, json};

use crate::support::{self, Scratch, run, run_on};
use crate::world::{Disk, World};

const SIZES: [u32; 2] = [512, 4096];
const MIB: usize = 1 << 20;
/// The value with which the programs end the emulator, and the exit code that results.
const LAST_WORD: u8 = 42;

/// As the verb takes it.
fn hex(bytes: &[u8]) -> String {
    let digits: Vec<String> = bytes.iter().map(|b| format!("{b:02x}")).collect();
    format!("0x{}", digits.concat())
}

/// A boot sector of noise: no two bytes in a row are alike, and the last are 55 AA.
fn noise(len: usize) -> Vec<u8> {
    let mut code: Vec<u8> = (0..len).map(|n| (n % 251) as u8 | 1).collect();
    if len >= 512 {
        code[510..512].copy_from_slice(&[0x55, 0xaa]);
    }
    code
}

/// A disk whose table sfdisk made.
fn theirs(scratch: &Scratch, sector: u32, script: &str) -> (World, Disk) {
    let path = scratch.image("theirs", 64 * MIB as u64);
    let arguments = ["-q", "--no-reread", "--no-tell-kernel", "--wipe=never", "@"];
    run_on(&path, sector, "sfdisk", &arguments, script);
    World::with("ada0", std::fs::read(&path).expect("image"), sector)
}

/// The descriptions of the table by all tools.
fn judged(scratch: &Scratch, disk: &Disk, sector: u32) -> Vec<String> {
    let path = scratch.path().join("judge");
    disk.save(&path);
    let ask = |tool: &str, args: &[&str]| {
        let lines = run_on(&path, sector, tool, args, "");
        // A loop device's name counts up.
        lines.lines().filter(|l| !l.contains("/dev/loop")).collect::<Vec<_>>().join("\n")
    };
    let mut lines = vec![
        ask("sfdisk", &["-d", "@"]),
        ask("fdisk", &["-l", "@"]),
        ask("parted", &["-s", "@", "unit", "s", "print"]),
        ask("blkid", &["-p", "-o", "export", "@"]),
    ];
    if lines[0].contains("label: gpt") {
        let checked = ask("sgdisk", &["-v", "@"]);
        assert!(checked.contains("No problems found"), "{checked}");
        lines.push(ask("sgdisk", &["-p", "@"]));
    }
    let verified = ask("sfdisk", &["--verify", "@"]);
    assert!(verified.contains("No errors detected"), "{verified}");
    lines
}

const GPT: &str = "label: gpt\nlabel-id: 11111111-2222-4333-8444-555566667777\n\
    start=1MiB, size=512KiB, type=83BD6B9D-7F41-11DC-BE0B-001560B84F0F\n\
    size=8MiB, type=0FC63DAF-8483-4772-8E79-3D69D8477DE4, name=\"wurzel-ü\"\n";
const MBR: &str = "label: dos\nlabel-id: 0xdeadbeef\nstart=2048, size=4MiB, type=83, bootable\n\
    size=4MiB, type=41\nsize=40MiB, type=f\n5 : size=6MiB, type=82\n";

/// O1 of part/bootcode.rs.
#[test]
fn only_the_boot_area_changes_and_other_tools_read_the_same_table() {
    let scratch = Scratch::new("part-bootcode");
    for (script, serial) in [(GPT, 0), (MBR, 4)] {
        for sector in SIZES {
            let (mut w, disk) = theirs(&scratch, sector, script);
            let (before, lines) = (disk.bytes(), judged(&scratch, &disk, sector));
            let code = noise(512);
            let done = w.part("bootcode", "ada0", json!({ "bootcode": hex(&code) }));
            assert_eq!(done, "bootcode written to ada0");
            let after = disk.bytes();
            assert_eq!(after[..440], code[..440]);
            let from = if serial == 0 { &code } else { &before };
            assert_eq!(after[440..444], from[440..444], "the serial, where there is one");
            assert_eq!(after[444..446], code[444..446], "a boot manager's timeout is its own");
            assert!(after[446..] == before[446..], "entries, signature and all the rest");
            assert_eq!(judged(&scratch, &disk, sector), lines);
            let path = scratch.path().join("judge");
            let kind = run("file", &["-b", &path.display().to_string()]);
            assert!(kind.contains("DOS/MBR boot sector"), "{kind}");
        }
    }
}

#[test]
fn an_mbr_serial_is_kept_and_short_code_is_padded_with_zeroes() {
    let scratch = Scratch::new("part-bootcode-serial");
    let (mut w, disk) = theirs(&scratch, 512, MBR);
    let before = disk.bytes();
    let code = noise(512);
    let with = json!({ "bootcode": hex(&code), "skip_serial": true });
    w.part("bootcode", "ada0", with);
    assert_eq!(disk.bytes()[..446], code[..446]);
    // The kind of code that ends before the serial; the rest of the longer old code is cleared.
    let short = vec![0xf4; 100];
    w.part("bootcode", "ada0", json!({ "bootcode": hex(&short) }));
    let after = disk.bytes();
    assert_eq!((&after[..100], &after[100..440]), (&short[..], &[0; 340][..]));
    assert_eq!(after[440..446], code[440..446]);
    assert!(after[446..] == before[446..]);
    w.part("bootcode", "ada0", json!({ "bootcode": hex(&short), "skip_serial": true }));
    assert_eq!(disk.bytes()[440..446], [0; 6]);
}

#[test]
fn a_gpt_with_a_blank_first_sector_gets_a_protective_mbr() {
    let scratch = Scratch::new("part-bootcode-blank");
    let (_, disk) = theirs(&scratch, 512, GPT);
    let mut image = disk.bytes();
    image[..512].fill(0);
    let (mut w, disk) = World::with("ada0", image, 512);
    w.part("bootcode", "ada0", json!({ "bootcode": hex(&noise(440)) }));
    assert_eq!(
        disk.bytes()[446..462],
        [0, 0, 2, 0, 0xee, 255, 255, 255, 1, 0, 0, 0, 255, 255, 1, 0]
    );
    judged(&scratch, &disk, 512);
}

fn bsd(sector: u32) -> (World, Disk) {
    let (mut w, disk) = World::with("ada0", noise(4 * MIB), sector);
    let create = json!({ "scheme": "bsd", "yes_destroy": ["ada0"] });
    w.part("create", "ada0", create);
    w.part("add", "ada0", json!({ "kind": "freebsd-ufs" }));
    (w, disk)
}

#[test]
fn boot_code_leaves_a_bsd_label_unchanged() {
    for sector in SIZES {
        let (mut w, disk) = bsd(sector);
        let (before, at) = (disk.bytes(), sector as usize);
        // A first stage leaves the second one.
        let first: Vec<u8> = noise(512).iter().map(|b| b ^ 0x80).collect();
        let first = [&first[..510], &[0x55, 0xaa]].concat();
        w.part("bootcode", "ada0", json!({ "bootcode": hex(&first) }));
        let after = disk.bytes();
        assert!(after[..512] == first[..] && after[512..at].iter().all(|b| *b == 0));
        assert!(after[at..] == before[at..]);
        // Both stages.
        let both = noise(8192);
        w.part("bootcode", "ada0", json!({ "bootcode": hex(&both) }));
        let after = disk.bytes();
        assert!(after[..at] == both[..at] && after[at + 512..8192] == both[at + 512..]);
        assert!(after[at..at + 512] == before[at..at + 512], "the label");
        assert!(after[8192..] == before[8192..]);
        let (other, _) = World::with("ada0", after, sector);
        assert_eq!(other.names(), ["ada0", "ada0a"]);
    }
}

#[test]
fn boot_code_in_a_slice_keeps_the_label_readable_by_other_tools() {
    let scratch = Scratch::new("part-bootcode-slice");
    let (mut w, disk) = World::with("ada0", vec![0; 64 * MIB], 512);
    w.part("create", "ada0", json!({ "scheme": "mbr" }));
    w.part("add", "ada0", json!({ "kind": "freebsd", "align": { "bytes": MIB } }));
    w.part("create", "ada0s1", json!({ "scheme": "bsd" }));
    w.part("add", "ada0s1", json!({ "kind": "freebsd-ufs", "size": { "bytes": 8 * MIB } }));
    w.part("add", "ada0s1", json!({ "kind": "freebsd-swap" }));
    let judged = |disk: &Disk| {
        let path = scratch.path().join("judge");
        disk.save(&path);
        let path = path.display().to_string();
        let (_, label) = support::try_run("fdisk", &[&path], "b\np\nq\n");
        assert!(label.contains("4.2BSD"), "{label}");
        let rows = run("partx", &["-g", "-o", "NR,START,SECTORS,TYPE", "-s", &path]);
        assert_eq!(rows.lines().count(), 3, "{rows}");
        assert!(run("file", &["-b", &path]).contains("DOS/MBR boot sector"));
        (label, rows)
    };
    let before = judged(&disk);
    w.part("bootcode", "ada0s1", json!({ "bootcode": hex(&noise(8192)) }));
    assert_eq!(judged(&disk), before);
    let slice = &disk.bytes()[MIB..MIB + 8192];
    assert!(slice[..512] == noise(512) && slice[1024..] == noise(8192)[1024..]);
}

/// O3 of part/bootcode.rs.
#[test]
fn partition_code_is_written_only_inside_its_partition() {
    let scratch = Scratch::new("part-bootcode-part");
    for sector in SIZES {
        let (mut w, disk) = theirs(&scratch, sector, GPT);
        let (before, lines) = (disk.bytes(), judged(&scratch, &disk, sector));
        disk.put(MIB, &noise(512 << 10));
        let code: Vec<u8> = noise(300_001).iter().map(|b| b ^ 0x40).collect();
        let with = json!({ "partcode": hex(&code), "index": 1 });
        assert_eq!(w.part("bootcode", "ada0", with), "partcode written to ada0p1");
        let after = disk.bytes();
        let (end, padded) = (MIB + code.len(), MIB + code.len().next_multiple_of(sector as usize));
        assert!(after[MIB..end] == code[..] && after[end..padded].iter().all(|b| *b == 0));
        let old = noise(512 << 10);
        assert!(after[padded..MIB + old.len()] == old[padded - MIB..], "the rest of it");
        assert!(after[MIB + old.len()..] == before[MIB + old.len()..]);
        assert!(after[..MIB] == before[..MIB], "the table is what it was");
        assert_eq!(judged(&scratch, &disk, sector), lines);
        // To the last byte, and both at once.
        let whole = noise(512 << 10);
        let with = json!({ "partcode": hex(&whole), "index": 1, "bootcode": hex(&noise(440)) });
        let done = w.part("bootcode", "ada0", with);
        assert_eq!(done, "partcode written to ada0p1\nbootcode written to ada0");
        let after = disk.bytes();
        assert!(after[MIB..MIB + whole.len()] == whole[..]);
        assert!(after[MIB + whole.len()..] == before[MIB + whole.len()..]);
    }
}

/// O1 of part/bootcode.rs, O3 of part/bootcode.rs.
#[test]
fn boot_code_waits_for_commit_and_is_undone_with_other_edits() {
    let scratch = Scratch::new("part-bootcode-wait");
    let (mut w, disk) = theirs(&scratch, 512, GPT);
    let before = disk.bytes();
    let wait = |mut with: Value| {
        with["no_commit"] = json!(true);
        with
    };
    let both = || {
        let (boot, part) = (hex(&noise(512)), hex(&noise(1000)));
        wait(json!({ "bootcode": boot, "partcode": part, "index": 1 }))
    };
    w.part("bootcode", "ada0", both());
    let answer = w.verb("part", "show", "ada0", json!({})).expect("shown");
    let pending = ["partcode written to ada0p1", "bootcode written to ada0"];
    assert_eq!(answer["tables"][0]["pending"], json!(pending));
    w.part("undo", "ada0", json!({}));
    assert!(disk.bytes() == before, "undone");
    // The last request counts; code for a partition is dropped when that partition is deleted.
    w.part("bootcode", "ada0", both());
    w.part("bootcode", "ada0", wait(json!({ "partcode": hex(&[7; 512]), "index": 1 })));
    w.part("commit", "ada0", json!({}));
    let after = disk.bytes();
    assert!(after[..440] == noise(512)[..440]);
    assert!(after[MIB..MIB + 512] == [7; 512] && after[MIB + 512..] == before[MIB + 512..]);
    w.part("bootcode", "ada0", wait(json!({ "partcode": hex(&[9; 512]), "index": 1 })));
    w.part("delete", "ada0", wait(json!({ "index": 1 })));
    let kind = "freebsd-boot";
    let start = json!({ "sectors": 2049 });
    w.part("add", "ada0", wait(json!({ "kind": kind, "start": start, "index": 1 })));
    w.part("commit", "ada0", json!({}));
    assert!(
        disk.bytes()[MIB..2 * MIB] == after[MIB..2 * MIB],
        "another partition of the same number"
    );
    // One that became too small, or is being written: refused when it would be written.
    let last = |w: &World| w.show("part", "ada0", "modified");
    w.part("bootcode", "ada0", wait(json!({ "partcode": hex(&[9; 1024]), "index": 1 })));
    w.part("resize", "ada0", wait(json!({ "index": 1, "size": { "sectors": 1 } })));
    let (kind, what) = w.refused("commit", "ada0", json!({}));
    assert!(kind == Errno::NoSpc && what.contains("1024 bytes in index 1 of 512"), "{what}");
    w.part("undo", "ada0", json!({}));
    w.part("bootcode", "ada0", wait(json!({ "partcode": hex(&[9; 1024]), "index": 1 })));
    let user = w.open("ada0p1", Access::WRITE);
    let (kind, what) = w.refused("commit", "ada0", json!({}));
    assert!(kind == Errno::Busy && what.contains("index 1"), "{what}");
    assert_eq!(last(&w), ["true"]);
    w.close(user);
    w.part("commit", "ada0", json!({}));
    assert!(disk.bytes()[MIB + 512..MIB + 1536] == [9; 1024]);
    assert_eq!(last(&w), ["false"]);
}

/// bootcode.rs, O2, through the verbs. Until the table with the new partition is written, the old
/// content of that place is unchanged, at any power cut.
#[test]
fn a_power_cut_leaves_no_code_over_partitions_of_the_old_table() {
    let scratch = Scratch::new("part-bootcode-cut");
    let old = theirs(&scratch, 512, GPT).1;
    old.put(MIB, &[0xda; 512 << 10]);
    let (mut cut, mut seen) = (0, [0; 2]);
    loop {
        let (mut w, disk) = World::with("ada0", old.bytes(), 512);
        let wait = |mut with: Value| {
            with["no_commit"] = json!(true);
            with
        };
        w.part("delete", "ada0", wait(json!({ "index": 1 })));
        let boot = json!({ "kind": "freebsd-boot", "start": { "sectors": 2048 }, "label": "new" });
        w.part("add", "ada0", wait(boot));
        let code = json!({ "partcode": hex(&[0xc0; 1000]), "index": 1, "bootcode": "0x90" });
        w.part("bootcode", "ada0", wait(code));
        disk.0.lock().expect("media").cut_at = Some(cut);
        let done = w.verb("part", "commit", "ada0", json!({}));
        let media = disk.0.lock().expect("media");
        for left in [&media.durable, &media.bytes] {
            let (mut other, _) = World::with("ada0", left.clone(), 512);
            let table = other.verb("part", "show", "ada0", json!({})).expect("a table");
            let new = table["tables"][0]["entries"][0]["label"] == "new";
            assert!(new || left[MIB..MIB + 1024] == [0xda; 1024], "cut {cut}");
            seen[usize::from(new)] += 1;
        }
        if done.is_ok() {
            break assert!(media.durable[MIB..MIB + 1000] == [0xc0; 1000]);
        }
        cut += 1;
    }
    assert!(cut > 5 && seen[0] > 1 && seen[1] > 2, "{cut} {seen:?}");
}

#[test]
fn a_partition_is_tasted_again_after_its_code_is_written() {
    let scratch = Scratch::new("part-bootcode-taste");
    let (mut w, _) = theirs(&scratch, 512, GPT);
    // A file system's boot sector, as some put it there: the partition has a name now.
    let path = scratch.image("fat", 256 << 10);
    run("mkfs.fat", &["-n", "STIEFEL", &path.display().to_string()]);
    let fat = std::fs::read(&path).expect("an image");
    assert!(!w.has("msdosfs/STIEFEL"));
    w.part("bootcode", "ada0", json!({ "partcode": hex(&fat), "index": 1 }));
    assert!(w.has("msdosfs/STIEFEL"), "{:?}", w.names());
}

#[test]
fn invalid_code_and_open_partitions_are_refused() {
    let scratch = Scratch::new("part-bootcode-refused");
    let (mut w, disk) = theirs(&scratch, 512, GPT);
    let before = disk.bytes();
    let user = w.open("ada0p2", Access::WRITE);
    let reader = w.open("ada0p1", Access::READ);
    let mut unsigned = noise(512);
    unsigned[511] = 0;
    let (good, long) = (hex(&noise(512)), vec![1; MIB + 1]);
    for (with, kind, words) in [
        (json!({}), Errno::Inval, "give bootcode, or partcode and index"),
        (json!({ "bootcode": "0b" }), Errno::Inval, "bootcode of 0 bytes"),
        (json!({ "bootcode": "pmbr" }), Errno::Inval, "bootcode is neither 0b and base64"),
        (json!({ "bootcode": hex(&noise(513)) }), Errno::Inval, "513 bytes, at most 512"),
        (json!({ "bootcode": hex(&unsigned) }), Errno::Inval, "without a signature: 55 AA at 510"),
        (json!({ "bootcode": hex(&noise(447)) }), Errno::Inval, "without a signature"),
        (json!({ "bootcode": good, "index": 1 }), Errno::Inval, "partcode (-p), which is missing"),
        (json!({ "partcode": "0x00" }), Errno::Inval, "index (-i) is missing"),
        (
            json!({ "partcode": "0x00", "index": 1, "skip_serial": true }),
            Errno::Inval,
            "skip_serial is for bootcode",
        ),
        (json!({ "partcode": "0x", "index": 1 }), Errno::Inval, "partcode of 0 bytes"),
        (json!({ "partcode": hex(&long), "index": 1 }), Errno::Inval, "1048577 bytes, 1 to"),
        (
            json!({ "partcode": hex(&long[..(512 << 10) + 1]), "index": 1 }),
            Errno::NoSpc,
            "524800 bytes in index 1 of 524288 bytes: it does not fit",
        ),
        (json!({ "partcode": "0x00", "index": 3 }), Errno::NoEnt, "index 3"),
        (json!({ "partcode": "0x00", "index": 2 }), Errno::Busy, "index 2"),
        // Of two neither is written.
        (json!({ "bootcode": good, "partcode": "0x00", "index": 2 }), Errno::Busy, "index 2"),
    ] {
        let (got, what) = w.refused("bootcode", "ada0", with.clone());
        assert!(got == kind && what.contains(words), "{got:?} {what}");
        assert_eq!(w.show("part", "ada0", "modified"), ["false"], "{what}");
    }
    assert!(disk.bytes() == before, "nothing is written");
    // A reader does not prevent it.
    w.part("bootcode", "ada0", json!({ "partcode": "0x01", "index": 1 }));
    w.close(user);
    w.close(reader);

    let (mut w, disk) = theirs(&scratch, 512, MBR);
    let before = disk.bytes();
    for with in [json!({ "bootcode": "0x01" }), json!({ "partcode": "0x01", "index": 1 })] {
        let (kind, what) = w.refused("bootcode", "ada0s3", with);
        assert!(kind == Errno::NoSys && what.contains("EBR"), "{what}");
    }
    assert!(disk.bytes() == before);
    let (mut w, _) = bsd(512);
    for (with, words) in [
        (json!({ "bootcode": hex(&noise(8193)) }), "8193 bytes, at most 8192"),
        (json!({ "bootcode": hex(&noise(440)) }), "440 bytes without a signature"),
        (json!({ "partcode": "0x01", "index": 1 }), "partition of BSD"),
    ] {
        let (_, what) = w.refused("bootcode", "ada0", with);
        assert!(what.contains(words), "{what}");
    }
}

#[test]
fn boot_code_may_overwrite_only_some_types_of_boot_area_partition() {
    let media = Media::plain(20000, 512);
    let label = Table::create(media, &Create { scheme: Scheme::Bsd, entries: None }, [0; 16]);
    let mut image = support::Image::new(20000, 512);
    image.apply(&part::plan(None, &label.expect("a label")).expect("a plan"));
    let mut bytes = image.read(0, 20000 * 512);
    // Partition a from the first sector on, as old labels have it.
    bytes[512 + 148..512 + 152].copy_from_slice(&1000_u32.to_le_bytes());
    for (kind, allowed) in [(7, true), (27, true), (1, false)] {
        bytes[512 + 148 + 12] = kind;
        let (mut w, disk) = World::with("ada0", bytes.clone(), 512);
        assert!(w.has("ada0a"));
        let code = json!({ "bootcode": hex(&noise(8192)) });
        if allowed {
            let user = w.open("ada0a", Access::WRITE);
            let (kind, what) = w.refused("bootcode", "ada0", code.clone());
            assert!(kind == Errno::Busy && what.contains("index 1"), "{what}");
            w.close(user);
            w.part("bootcode", "ada0", code);
            continue;
        }
        let (_, what) = w.refused("bootcode", "ada0", code);
        assert!(what.contains("index 1, which begins in the boot area"), "{what}");
        assert!(disk.bytes() == bytes);
    }
}

/// 16-bit code that sends `text` to the first serial port and ends the emulator; `at` is its
/// address in memory.
fn speaker(at: u16, text: &str) -> Vec<u8> {
    let words = (at + 23).to_le_bytes();
    let mut code = vec![0x31, 0xc0, 0x8e, 0xd8]; // ax = ds = 0
    code.extend([0xbe, words[0], words[1]]); // si = the text
    code.extend([0xba, 0xf8, 0x03]); // dx = 3f8
    code.extend([0xac, 0x84, 0xc0, 0x74, 0x03]); // al = next byte; when it is 0 continue behind
    code.extend([0xee, 0xeb, 0xf8]); // out; again
    code.extend([0xb0, LAST_WORD, 0xe6, 0xf4, 0xf4]); // out to the debug exit; halt
    code.extend(text.bytes().chain([0]));
    code
}

/// A boot sector that loads one sector and jumps there: to 8000h.
fn loader(sector: u64) -> Vec<u8> {
    let mut code = vec![0x31, 0xc0, 0x8e, 0xd8]; // ax = ds = 0
    code.extend([0xbe, 0x20, 0x7c]); // si = the packet below
    code.extend([0xb4, 0x42, 0xcd, 0x13]); // extended read from the drive in dl
    code.extend([0x72, 0x05, 0xea, 0, 0x80, 0, 0, 0xf4]); // jump to 0000:8000, or halt
    code.resize(0x20, 0);
    code.extend([0x10, 0, 1, 0, 0, 0x80, 0, 0]); // one sector to 0000:8000
    code.extend(sector.to_le_bytes());
    code.resize(510, 0);
    code.extend([0x55, 0xaa]);
    code
}

/// The output of a machine that boots from the disk.
fn boots(scratch: &Scratch, disk: &Disk) -> String {
    let path = scratch.path().join("boot");
    disk.save(&path);
    let mut machine = Command::new(proc::tool("qemu-system-x86_64").expect("an emulator"));
    machine.args(["-accel", "tcg", "-m", "16", "-nodefaults", "-display", "none", "-no-reboot"]);
    machine.args(["-serial", "stdio", "-device", "isa-debug-exit,iobase=0xf4,iosize=1"]);
    machine.arg("-drive").arg(format!("file={},format=raw,if=ide", path.display()));
    let ran = proc::run_limited(&mut machine, Duration::from_secs(60)).expect("the emulator");
    let code = ran.status.and_then(|status| status.code());
    assert_eq!(code, Some(i32::from(LAST_WORD) << 1 | 1), "{}", ran.output);
    ran.output
}

#[test]
fn the_written_code_boots() {
    let scratch = Scratch::new("part-bootcode-boots");
    // The code of the sector itself, and the serial amidst it.
    let (mut w, disk) = theirs(&scratch, 512, MBR);
    w.part("bootcode", "ada0", json!({ "bootcode": hex(&speaker(0x7c00, "sector 0 of an MBR")) }));
    assert!(boots(&scratch, &disk).contains("sector 0 of an MBR"));
    // One that loads the partition's.
    let (mut w, disk) = theirs(&scratch, 512, GPT);
    let partcode = speaker(0x8000, "freebsd-boot of a GPT");
    let both = (hex(&loader(2048)), hex(&partcode));
    w.part("bootcode", "ada0", json!({ "bootcode": both.0, "partcode": both.1, "index": 1 }));
    assert!(boots(&scratch, &disk).contains("freebsd-boot of a GPT"));
    // A first stage that loads the second, with the label between them.
    let (mut w, disk) = bsd(512);
    let mut area = loader(2);
    area.resize(1024, 0x5a);
    area.extend(speaker(0x8000, "second stage behind a label"));
    w.part("bootcode", "ada0", json!({ "bootcode": hex(&area) }));
    assert!(boots(&scratch, &disk).contains("second stage behind a label"));
}
