//! A volume for which Linux keeps a log of partial parity (PPL): made and written by md in a guest,
//! written here, and given back. md trusts no log that is older than what was written here: of the
//! volume that was left dirty it makes all parity anew, though its log is in order. Two boots.

mod raid_linux;
mod world;

use std::path::{Path, PathBuf};
use std::time::Duration;

use geom::Access;
use raid_linux::{BYTES, ENV, FIND, STOP, attach, device, disk_of, in_order, noise, read, sum};
use rig::guest::{Boot, Image, Kit, Script, boot_with};
use world::{Disk, World};

/// Longest life of a guest.
const DEADLINE: Duration = Duration::from_secs(300);
const DISKS: usize = 3;
const DISK_BYTES: usize = 24 << 20;
/// Two arrays: one is left dirty here, one clean.
const ARRAYS: [&str; 2] = ["dirty", "clean"];

fn boot(script: &Script, images: &[PathBuf]) {
    let image = Image::with_kits(&[Kit::Raid]).expect("an image");
    let paths: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
    let how = Boot { deadline: DEADLINE, core: None };
    let run = boot_with(&image, script, how, &paths, &mut |_, _| Ok(())).expect("a guest");
    run.expect_ok().unwrap_or_else(|e| panic!("{e:#}"));
    println!("{}", run.summary());
}

fn devices(array: usize) -> String {
    let all: Vec<String> = (array * DISKS..(array + 1) * DISKS).map(device).collect();
    all.join(" ")
}

fn make_there(script: &mut Script, bytes: &[u8]) {
    script.file("rig/pattern", bytes.to_vec());
    for (at, name) in ARRAYS.iter().enumerate() {
        script.step(
            &format!("{name}: made with a log, and written"),
            format!(
                "{ENV}mdadm --create /dev/md/box --run -e imsm -n 3 {}
mdadm --create /dev/md/inner --run -l 5 -n 3 -c 64 -z 8M --consistency-policy=ppl /dev/md/box
{FIND}cat /proc/mdstat
mdmon --all >/dev/null 2>&1 || true
within 60 sh -c \"echo active >/sys/block/$found/md/array_state\" || true
cat /sys/block/$found/md/consistency_policy
grep -q ppl /sys/block/$found/md/consistency_policy
dd if=/rig/pattern of=$md bs=64k conv=fsync
{STOP}",
                devices(at)
            ),
        );
    }
}

fn look_there(script: &mut Script, at: usize, policy: &str, bytes: &[u8]) {
    let (name, len) = (ARRAYS[at], bytes.len());
    script.step(
        &format!("{name}: taken back"),
        format!(
            "{ENV}mdadm --assemble /dev/md/box {}
mdadm --incremental /dev/md/box || true
{FIND}cat /proc/mdstat
mdmon --all >/dev/null 2>&1 || true
within 60 sh -c \"echo active >/sys/block/$found/md/array_state\" || true
cat /sys/block/$found/md/consistency_policy
grep -q {policy} /sys/block/$found/md/consistency_policy
action=/sys/block/$found/md/sync_action
sleep 1
within 60 sh -c \"until grep -q idle $action; do sleep 0.2; done\"
echo check >$action
sleep 1
within 60 sh -c \"until grep -q idle $action; do sleep 0.2; done\"
cat /sys/block/$found/md/mismatch_cnt
[ \"$(cat /sys/block/$found/md/mismatch_cnt)\" = 0 ]
sum=$(head -c {len} $md | md5sum)
[ \"${{sum%% *}}\" = {} ] || {{ echo \"another sum: $sum\"; exit 1; }}
{STOP}",
            devices(at),
            sum(bytes)
        ),
    );
}

fn line(world: &World) -> String {
    let view = world.control.topology.view(0);
    let geom = view.iter().find(|g| g.class == "raid" && !g.withering).expect("an array");
    let line = geom.show.iter().find(|(key, _)| *key == "Volume");
    line.map_or(String::new(), |(_, line)| line.clone())
}

/// Data of the first row on its first disk: what parity is of, after the power went amid a write.
fn tear(disks: &[Disk], bytes: &mut [u8]) {
    let torn = noise(80, 4096);
    disks[0].put(0, &torn);
    bytes[..4096].copy_from_slice(&torn);
}

#[test]
fn md_trusts_no_log_that_is_older_than_what_was_written_here() {
    let folder = std::env::temp_dir().join(format!("ashlar-raid-log-{}", std::process::id()));
    std::fs::create_dir_all(&folder).expect("a folder");
    let images: Vec<PathBuf> =
        (0..ARRAYS.len() * DISKS).map(|n| folder.join(format!("{n}.img"))).collect();
    images.iter().for_each(|path| disk_of(vec![0; DISK_BYTES]).save(path));
    let theirs = noise(78, BYTES);
    let mut script = Script::new();
    make_there(&mut script, &theirs);
    boot(&script, &images);

    let mut script = Script::new();
    for (at, name) in ARRAYS.iter().enumerate() {
        let first = at * DISKS;
        let load = |i: usize| disk_of(std::fs::read(&images[i]).expect("an image"));
        let disks: Vec<Disk> = (first..first + DISKS).map(load).collect();
        let mut world = World::new();
        attach(&mut world, first, &disks);
        in_order(&mut world);
        assert!(read(&mut world, BYTES) == theirs, "{name}");
        let said = line(&world);
        assert!(said.contains("partial parity log (PPL) of Linux (not used here)"), "{said}");
        let mut bytes = noise(79, BYTES);
        let open = world.open(&world.volume(), Access::WRITE);
        world.write(&open, 0, &bytes).expect("written");
        let policy = match *name {
            "dirty" => {
                assert!(line(&world).contains("off while it is dirty"), "{}", line(&world));
                tear(&disks, &mut bytes);
                "resync"
            }
            _ => {
                world.close(open);
                in_order(&mut world);
                "ppl"
            }
        };
        for (path, disk) in images[first..].iter().zip(&disks) {
            disk.save(path);
        }
        look_there(&mut script, at, policy, &bytes);
    }
    boot(&script, &images);
    std::fs::remove_dir_all(&folder).expect("removed");
}
