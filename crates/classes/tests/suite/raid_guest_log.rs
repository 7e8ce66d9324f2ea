//! Volumes with a log of partial parity (PPL) that md in a guest and the class here use in turn.
//! Each replays the log of a volume that the other left dirty: data was written, and its parity was
//! not. Wrong parity in a row that no log covers shows that nothing was resynced instead: it stays
//! wrong. A check of the guest of `raid_guest`.

use std::path::PathBuf;

use classes::raid::imsm::{Record, ppl};
use geom::Access;
use rig::guest::Script;
use serde_json::json;
use testkit::noise;

use crate::raid_linux::{
    BYTES, DISK_BYTES, ENV, FIND, LinuxRaid, STOP, attach, device, disk_of, in_order, read, sum,
};
use crate::world::{Disk, Open, World};

const DISKS: usize = 3;
const STRIP: usize = 64 << 10;
/// Arrays that md makes: two that are written here, and then left dirty or clean; and one that md
/// leaves dirty. The last is made here.
const DIRTY: usize = 0;
const CLEAN: usize = 1;
const LEFT: usize = 2;
const OURS: usize = 3;
const NAMES: [&str; 4] = ["dirty", "clean", "left", "ours"];
/// The piece that is written last, alone: 4 KiB of row 0, on the disk in slot 0.
const LAST: usize = 12 << 10;
const PAGE: usize = 4096;
/// A row whose parity, in slot 0, is made wrong; no write reaches that far.
const WITNESS: usize = 50;

/// Lets md write to an array with a log, and waits until md is idle.
const RUN: &str = "cat /proc/mdstat
mdmon --all >/dev/null 2>&1 || true
within 60 sh -c \"echo active >/sys/block/$found/md/array_state\" || true
cat /sys/block/$found/md/consistency_policy
grep -q ppl /sys/block/$found/md/consistency_policy
action=/sys/block/$found/md/sync_action
sleep 1
within 60 sh -c \"until grep -q idle $action; do sleep 0.2; done\"
";

fn disks_of(array: usize) -> std::ops::Range<usize> {
    array * DISKS..(array + 1) * DISKS
}

fn devices(array: usize) -> String {
    let all: Vec<String> = disks_of(array).map(device).collect();
    all.join(" ")
}

fn make_there(script: &mut Script, bytes: &[u8]) {
    script.file("rig/pattern", bytes.to_vec());
    for at in [DIRTY, CLEAN, LEFT] {
        // A copy of the disks while nothing is written, and the array is called dirty.
        let copied: Vec<String> = disks_of(LEFT)
            .zip(disks_of(OURS))
            .map(|(from, to)| format!("cat {} >{}\n", device(from), device(to)))
            .collect();
        let copy = match at {
            LEFT => format!(
                "echo 100 >/sys/block/$found/md/safe_mode_delay
dd if=/rig/pattern of=$md bs=4k count=1 skip=100 seek=3 conv=notrunc,fsync
sleep 2
cat /sys/block/$found/md/array_state
echo 3 >/proc/sys/vm/drop_caches
{}sync
grep -q active /sys/block/$found/md/array_state
",
                copied.concat()
            ),
            _ => String::new(),
        };
        script.step(
            &format!("{}: made with a log, and written", NAMES[at]),
            format!(
                "{ENV}mdadm --create /dev/md/box --run -e imsm -n 3 {}
mdadm --create /dev/md/inner --run -l 5 -n 3 -c 64 -z 8M --consistency-policy=ppl /dev/md/box
{FIND}{RUN}dd if=/rig/pattern of=$md bs=64k conv=fsync
{copy}{STOP}",
                devices(at)
            ),
        );
    }
}

/// With `wrong` sectors whose parity is wrong: those of the witness, if it stays.
fn look_there(script: &mut Script, at: usize, wrong: u64, bytes: &[u8]) {
    let (name, len) = (NAMES[at], bytes.len());
    script.step(
        &format!("{name}: taken back"),
        format!(
            "{ENV}mdadm --assemble /dev/md/box {}
mdadm --incremental /dev/md/box || true
{FIND}{RUN}echo check >$action
sleep 1
within 60 sh -c \"until grep -q idle $action; do sleep 0.2; done\"
cat /sys/block/$found/md/mismatch_cnt
[ \"$(cat /sys/block/$found/md/mismatch_cnt)\" = {wrong} ]
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

/// Writes the last piece again without its parity, as a power cut may leave it.
fn tear(disk: &Disk, bytes: &mut [u8]) {
    let torn = noise(80, PAGE);
    disk.put(LAST, &torn);
    bytes[LAST..LAST + PAGE].copy_from_slice(&torn);
}

/// Makes the witness wrong, or right again.
fn turn(disk: &Disk) {
    let was = disk.bytes()[WITNESS * STRIP..][..PAGE].to_vec();
    let turned: Vec<u8> = was.iter().map(|byte| !byte).collect();
    disk.put(WITNESS * STRIP, &turned);
}

/// The disk in a slot; the record has its slot.
fn in_slot(disks: &[Disk], array: usize, slot: usize) -> Disk {
    let bytes = disks[0].bytes();
    let anchor = bytes.len() - 1024;
    let size = u32::from_le_bytes(bytes[anchor + 36..][..4].try_into().expect("four")) as usize;
    let rest = size.div_ceil(512).saturating_sub(1) * 512;
    let all = [&bytes[anchor..anchor + 512], &bytes[anchor - rest..anchor]].concat();
    let record = Record::decode(&all).expect("a record");
    let (index, _) = record.volumes[0].map.slots[slot];
    let serial = &record.disks[index as usize].serial;
    let mut names = disks_of(array).map(device);
    let at = names.position(|name| serial.starts_with(name.as_bytes())).expect("a disk");
    disks[at].clone()
}

/// Rows among the first in whose parity something is wrong.
fn wrong_rows(disks: &[Disk]) -> Vec<usize> {
    let all: Vec<Vec<u8>> = disks.iter().map(Disk::bytes).collect();
    let is_wrong = |row: &usize| {
        (row * STRIP..(row + 1) * STRIP).any(|at| all.iter().fold(0, |sum, d| sum ^ d[at]) != 0)
    };
    (0..=WITNESS).filter(is_wrong).collect()
}

fn load(images: &[PathBuf], array: usize) -> Vec<Disk> {
    let load = |i: usize| disk_of(std::fs::read(&images[i]).expect("an image"));
    disks_of(array).map(load).collect()
}

fn save(images: &[PathBuf], array: usize, disks: &[Disk]) {
    images[disks_of(array)].iter().zip(disks).for_each(|(path, disk)| disk.save(path));
}

/// Writes all of it, and then a little of row 0. It stays open: the volume stays dirty.
fn write_here(world: &mut World, bytes: &mut [u8]) -> Open {
    let open = world.open(&world.volume(), Access::WRITE);
    world.write(&open, 0, bytes).expect("written");
    let last = noise(81, PAGE);
    world.write(&open, LAST as u64, &last).expect("written");
    bytes[LAST..LAST + PAGE].copy_from_slice(&last);
    open
}

/// Left dirty by the kernel, and replayed here.
fn replay_here(images: &[PathBuf], theirs: &[u8]) -> Vec<u8> {
    let disks = load(images, OURS);
    let mut bytes = theirs.to_vec();
    let last = 100 * PAGE..101 * PAGE;
    bytes[LAST..LAST + PAGE].copy_from_slice(&theirs[last]);
    let slot = in_slot(&disks, LEFT, 0);
    tear(&slot, &mut bytes);
    turn(&slot);
    assert_eq!(wrong_rows(&disks), [0, WITNESS]);
    let mut world = World::new();
    attach(&mut world, disks_of(LEFT).start, &disks);
    in_order(&mut world);
    let answer = line(&world);
    assert!(answer.contains(", partial parity log (PPL)") && !answer.contains("not"), "{answer}");
    assert_eq!(wrong_rows(&disks), [WITNESS], "replayed, and nothing else done");
    assert!(read(&mut world, BYTES) == bytes);
    turn(&slot);
    save(images, LEFT, &disks);
    bytes
}

fn make_here(images: &[PathBuf]) -> Vec<u8> {
    let disks: Vec<Disk> = (0..DISKS).map(|_| disk_of(vec![0; DISK_BYTES])).collect();
    let mut world = World::new();
    attach(&mut world, disks_of(OURS).start, &disks);
    let names: Vec<String> =
        disks_of(OURS).map(|n| device(n).trim_start_matches("/dev/").to_owned()).collect();
    let with = json!({
        "format": "Intel", "level": "RAID5", "members": names, "strip": STRIP, "size": 8 << 20,
        "consistency": "ppl", "assume_same": true,
    });
    world.verb("raid", "label", "data", with).expect("labelled");
    in_order(&mut world);
    let mut bytes = noise(82, BYTES);
    let open = write_here(&mut world, &mut bytes);
    assert!(line(&world).contains("dirty"), "{}", line(&world));
    assert!(wrong_rows(&disks).is_empty());
    tear(&in_slot(&disks, OURS, 0), &mut bytes);
    save(images, OURS, &disks);
    drop(open);
    bytes
}

/// Adopted, written here, and given back.
fn write_theirs(images: &[PathBuf], array: usize, theirs: &[u8]) -> Vec<u8> {
    let disks = load(images, array);
    let mut world = World::new();
    attach(&mut world, disks_of(array).start, &disks);
    in_order(&mut world);
    assert!(read(&mut world, BYTES) == theirs, "{}", NAMES[array]);
    let mut bytes = noise(79, BYTES);
    let open = write_here(&mut world, &mut bytes);
    if array == CLEAN {
        world.close(open);
        in_order(&mut world);
    } else {
        let log = in_slot(&disks, array, 2).bytes()[8 << 20..][..1 << 20].to_vec();
        let signature = u32::from_le_bytes(log[512..516].try_into().expect("four"));
        let log = ppl::Log::read(&log, signature).expect("a log");
        assert!(matches!(log, ppl::Log::Unit { header, .. } if header.entries.len() == 1));
        let slot = in_slot(&disks, array, 0);
        tear(&slot, &mut bytes);
        turn(&slot);
    }
    save(images, array, &disks);
    bytes
}

/// Each side replays the logs of the other.
pub fn check(linux: &mut LinuxRaid) {
    let count = NAMES.len() * DISKS;
    linux.images[..count].iter().for_each(|path| disk_of(vec![0; DISK_BYTES]).save(path));
    let theirs = noise(78, BYTES);
    let mut script = Script::new();
    make_there(&mut script, &theirs);
    linux.play(&script);

    let (mut script, images) = (Script::new(), &linux.images);
    let bytes = replay_here(images, &theirs);
    look_there(&mut script, LEFT, 0, &bytes);
    let bytes = make_here(images);
    look_there(&mut script, OURS, 0, &bytes);
    let bytes = write_theirs(images, CLEAN, &theirs);
    look_there(&mut script, CLEAN, 0, &bytes);
    let bytes = write_theirs(images, DIRTY, &theirs);
    look_there(&mut script, DIRTY, 8, &bytes);
    linux.play(&script);
}
