//! Arrays of ours in a real Linux: its md assembles them, reads what was written here, writes more;
//! and arrays that mdadm made there are read here. One boot.

mod raid_linux;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use geom::Access;
use raid_linux::{BYTES, ENV, FIND, STOP, attach, device, disk_of, in_order, noise, read, sum};
use rig::guest::{Boot, Image, Kit, Script, boot_with};
use serde_json::json;
use world::{Disk, World};

/// Longest life of the guest.
const DEADLINE: Duration = Duration::from_secs(300);

/// An array: format, level, disks, and how mdadm calls it.
struct Case {
    format: &'static str,
    level: &'static str,
    disks: usize,
    /// For those that mdadm makes: metadata and level.
    theirs: Option<(&'static str, &'static str)>,
}

const fn ours(format: &'static str, level: &'static str, disks: usize) -> Case {
    Case { format, level, disks, theirs: None }
}

const fn theirs(metadata: &'static str, level: &'static str, disks: usize) -> Case {
    Case { format: "", level: "", disks, theirs: Some((metadata, level)) }
}

const CASES: &[Case] = &[
    ours("Intel", "RAID1", 2),
    ours("Intel", "RAID5", 3),
    ours("Intel", "RAID10", 4),
    ours("DDF", "RAID5-LS", 3),
    ours("DDF", "RAID1", 2),
    theirs("imsm", "1", 2),
    theirs("imsm", "5", 3),
    theirs("ddf", "5", 3),
];

fn disk_bytes(case: &Case) -> usize {
    let ddf = case.format == "DDF" || case.theirs.is_some_and(|(metadata, _)| metadata == "ddf");
    if ddf { 48 << 20 } else { 24 << 20 }
}

/// Makes an array of ours and fills it.
fn make(case: &Case, first: usize, bytes: &[u8]) -> Vec<Disk> {
    let mut world = World::new();
    let disks: Vec<Disk> = (0..case.disks).map(|_| disk_of(vec![0; disk_bytes(case)])).collect();
    attach(&mut world, first, &disks);
    let members: Vec<String> =
        (0..case.disks).map(|i| device(first + i).replace("/dev/", "")).collect();
    let with = json!({
        "format": case.format, "level": case.level, "members": members, "strip": 65536,
        "size": 8 << 20,
    });
    world.verb("raid", "label", "data", with).expect("labelled");
    in_order(&mut world);
    let open = world.open("raid/r0", Access::WRITE);
    world.write(&open, 0, bytes).expect("written");
    world.close(open);
    in_order(&mut world);
    disks
}

fn ours_in_guest(script: &mut Script, case: &Case, devices: &str, bytes: &[u8]) {
    let name = format!("{} {}", case.format, case.level);
    let len = bytes.len();
    script.step(
        &format!("{name}: assembled, and its data read"),
        format!(
            "{ENV}mdadm --assemble /dev/md/box {devices}
mdadm --incremental /dev/md/box || true
{FIND}cat /proc/mdstat
sum=$(head -c {len} $md | md5sum)
[ \"${{sum%% *}}\" = {} ] || {{ echo \"another sum: $sum\"; exit 1; }}
{STOP}",
            sum(bytes)
        ),
    );
}

fn theirs_in_guest(script: &mut Script, case: &Case, devices: &str, bytes: &[u8]) {
    let Some((metadata, level)) = case.theirs else { return };
    script.file("rig/pattern", bytes.to_vec());
    let count = case.disks;
    script.step(
        &format!("{metadata} {level}: made and written"),
        format!(
            "{ENV}mdadm --create /dev/md/box --run -e {metadata} -n {count} {devices}
mdadm --create /dev/md/inner --run -l {level} -n {count} -c 64 -z 8M /dev/md/box \\
    || mdadm --create /dev/md/inner --run -l {level} -n {count} -z 8M /dev/md/box
{FIND}cat /proc/mdstat
mdmon --all >/dev/null 2>&1 || true
within 60 sh -c \"echo active >/sys/block/$found/md/array_state\" || true
dd if=/rig/pattern of=$md bs=64k conv=fsync
{STOP}"
        ),
    );
}

#[test]
fn md_reads_what_is_made_here_and_what_it_makes_is_read_here() {
    let bytes = noise(77, BYTES);
    let folder = std::env::temp_dir().join(format!("ashlar-raid-guest-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let (mut script, mut images) = (Script::new(), Vec::<PathBuf>::new());
    for case in CASES {
        let first = images.len();
        let disks = match case.theirs {
            None => make(case, first, &bytes),
            Some(_) => (0..case.disks).map(|_| disk_of(vec![0; disk_bytes(case)])).collect(),
        };
        for (i, disk) in disks.iter().enumerate() {
            let path = folder.join(format!("{}.img", first + i));
            disk.save(&path);
            images.push(path);
        }
        let devices: Vec<String> = (first..images.len()).map(device).collect();
        let devices = devices.join(" ");
        match case.theirs {
            None => ours_in_guest(&mut script, case, &devices, &bytes),
            Some(_) => theirs_in_guest(&mut script, case, &devices, &bytes),
        }
    }
    let image = Image::with_kits(&[Kit::Raid]).expect("an image");
    let how = Boot { deadline: DEADLINE, core: None };
    let paths: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
    let run = boot_with(&image, &script, how, &paths, &mut |_, _| Ok(())).expect("a guest");
    run.expect_ok().unwrap_or_else(|e| panic!("{e:#}"));
    println!("{}", run.summary());

    let mut first = 0;
    for case in CASES {
        let load = |i| disk_of(std::fs::read(&images[i]).expect("an image"));
        let disks: Vec<Disk> = (first..first + case.disks).map(load).collect();
        let mut world = World::new();
        attach(&mut world, first, &disks);
        in_order(&mut world);
        let name = format!("{}{} {:?}", case.format, case.level, case.theirs);
        assert!(read(&mut world, BYTES) == bytes, "{name}");
        // And without a disk: parity and copies are what md would have them be.
        let lost = device(first).replace("/dev/", "");
        world.lose(&lost);
        world.control.settle().expect("at rest");
        assert!(read(&mut world, BYTES) == bytes, "{name} without a disk");
        first += case.disks;
    }
    std::fs::remove_dir_all(&folder).expect("removed");
}
