//! DELETE from end to end. The files behind every class free exactly the blocks that QEMU's
//! initiators delete by UNMAP, WRITE SAME with UNMAP and NBD's TRIM. A block device is tested too,
//! where loop devices are available.

use std::net::SocketAddr;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::time::Duration;

use rig::loop_device::LoopDevice;
use rig::peer::qemu_io;
use rig::proc;

use crate::fixture::{Fixture, IQN, file_disk, gave};
use testkit::iscsi::initiator::Client;

const MIB: u64 = 1 << 20;
const DISK_BYTES: u64 = 32 * MIB;
const LIMIT: Duration = Duration::from_secs(30);

/// A unit over a class: the commands that make it, its name, its disks, and the space that they
/// take for a byte of it, in halves.
struct Stack {
    commands: &'static [&'static str],
    unit: &'static str,
    disks: &'static [&'static str],
    halves: u64,
}

const fn over(
    commands: &'static [&'static str],
    unit: &'static str,
    disks: &'static [&'static str],
) -> Stack {
    Stack { commands, unit, disks, halves: 2 }
}

const STACKS: &[Stack] = &[
    over(&[], "d0", &["d0"]),
    over(&["geom nop insert name=between provider=d1"], "d1", &["d1"]),
    over(&["sched insert -a fair d2"], "d2", &["d2"]),
    over(&["trim insert d3 --zeroes drop --quiet-ms 3600000"], "d3", &["d3"]),
    over(&["geom label label name=data provider=d4"], "label/data", &["d4"]),
    over(&["part create -s GPT d5", "part add -t freebsd-ufs -b 2048 d5"], "d5p1", &["d5"]),
    Stack { halves: 4, ..over(&["mirror label m d6 d7"], "mirror/m", &["d6", "d7"]) },
    over(&["stripe label -s 64k s d8 d9"], "stripe/s", &["d8", "d9"]),
    over(&["concat label c d10 d11"], "concat/c", &["d10", "d11"]),
    over(&["multipath label p d12"], "multipath/p", &["d12"]),
    Stack {
        halves: 3,
        ..over(&["raid label Intel v RAID5 d13 d14 d15 -s 64k"], "raid", &["d13", "d14", "d15"])
    },
];

/// The written range and the deleted part of it: across the border of two members, where there is
/// one.
const WRITTEN: (u64, u64) = (24 * MIB, 6 * MIB);
const GONE: (u64, u64) = (26 * MIB, 2 * MIB);

fn blocks(files: &[PathBuf]) -> u64 {
    files.iter().map(|f| std::fs::metadata(f).unwrap().blocks() * 512).sum()
}

/// Writes, frees a part of it in one way, and reads it all back.
fn lets_go(fixture: &Fixture, url: &str, unit: &str, files: &[PathBuf], halves: u64, how: &str) {
    let ((at, len), (from, gone)) = (WRITTEN, GONE);
    qemu_io(url, &[&format!("write -P 7 {at} {len}"), "flush"]).unwrap();
    let full = blocks(files);
    qemu_io(url, &[&format!("{how} {from} {gone}"), "flush"]).unwrap();
    if unit == "d3" {
        assert_eq!(blocks(files), full, "it waits in the queue");
        fixture.ok(&["trim", "now", "d3.trim", "--wait"]);
    }
    let left = blocks(files);
    let what = format!("{unit}: {how} by {url}: {full} bytes, then {left}");
    assert!(gave(full, left, gone * halves / 2), "{what}");
    let (end, rest) = (from + gone, at + len - from - gone);
    let kept = [format!("read -P 7 {at} {}", from - at), format!("read -P 7 {end} {rest}")];
    let zero = format!("read -P 0 {from} {gone}");
    qemu_io(url, &[&kept[0], &kept[1], &zero]).unwrap_or_else(|e| panic!("{what}: {e:#}"));
}

/// Whether GET LBA STATUS of a LUN reports the block at a byte as deallocated.
fn is_deallocated(host: &mut Client, lun: u64, at: u64) -> bool {
    let mut cdb = [0; 16];
    (cdb[0], cdb[1], cdb[13]) = (0x9e, 0x12, 24);
    cdb[2..10].copy_from_slice(&(at / 512).to_be_bytes());
    host.lun = lun.try_into().unwrap();
    host.must(&cdb, 24)[20] == 1
}

#[test]
fn deleted_blocks_are_freed_in_the_files_below_every_class() {
    let mut fixture = Fixture::alone("deletes");
    let disks: Vec<&str> = STACKS.iter().flat_map(|s| s.disks).copied().collect();
    let file = |disk: &str| format!("{disk}.img");
    disks.iter().for_each(|d| drop(fixture.image(&file(d), DISK_BYTES)));
    let disks: String = disks.iter().map(|d| file_disk(d, &file(d))).collect();
    fixture.configure(&disks, "");
    fixture.start();
    for line in STACKS.iter().flat_map(|s| s.commands) {
        fixture.ok(&line.split(' ').collect::<Vec<_>>());
    }
    let list = fixture.ok(&["raid", "list"]);
    let volume = list.split_whitespace().find(|w| w.starts_with("raid/") && w.ends_with("/v"));
    let volume = volume.expect("a volume");
    let is_optimal = || fixture.ok(&["raid", "status"]).contains("OPTIMAL");
    fixture.until("the array is whole", LIMIT, is_optimal);
    let names: Vec<&str> =
        STACKS.iter().map(|s| if s.unit == "raid" { volume } else { s.unit }).collect();
    let nbd = SocketAddr::from(([127, 0, 0, 1], proc::free_port().unwrap()));
    let luns: Vec<String> =
        (0..).zip(&names).map(|(n, name)| format!("{n} = \"{name}\"")).collect();
    let luns = luns.join(", ");
    fixture.configure(
        &format!(
            "{disks}\n[[target]]\ndriver = \"nbd\"\nname = \"shop\"\nlisten = [\"{nbd}\"]\n\n\
             [[access]]\ntarget = \"shop\"\ngroup = \"all\"\ninitiators = [\"*\"]\n\
             luns = {{ {luns} }}\n"
        ),
        &luns,
    );
    fixture.ok(&["apply"]);
    for ((lun, stack), name) in (0..).zip(STACKS).zip(&names) {
        let files: Vec<_> = stack.disks.iter().map(|d| fixture.path(&file(d))).collect();
        let exports = [fixture.url(lun), format!("nbd://{nbd}/{name}")];
        for url in &exports {
            lets_go(&fixture, url, stack.unit, &files, stack.halves, "discard");
        }
        // QEMU sets UNMAP with it, where deleted blocks read as zeroes.
        if stack.unit != "d3" {
            lets_go(&fixture, &exports[0], stack.unit, &files, stack.halves, "write -z -u");
        }
        let host = Client::session(fixture.portal(), "iqn.2024-01.test:deletes", IQN);
        let host = &mut host.unwrap();
        assert!(is_deallocated(host, lun, GONE.0), "{name}: deleted");
        assert!(!is_deallocated(host, lun, WRITTEN.0), "{name}: written");
    }
    fixture.assert_alive();
    fixture.stop();
}

#[test]
fn deleted_blocks_are_freed_below_a_block_device() {
    let mut fixture = Fixture::alone("deletes-blockdev");
    let file = fixture.image("loop.img", DISK_BYTES);
    let Some(device) = LoopDevice::over(&file, &["--direct-io=on"]) else { return };
    let disk = format!("[[disk]]\nname = \"b0\"\nkind = \"blockdev\"\npath = \"{}\"\n", device.0);
    fixture.configure(&disk, "0 = \"b0\"");
    fixture.start();
    for how in ["discard", "write -z -u"] {
        lets_go(&fixture, &fixture.url(0), "b0", std::slice::from_ref(&file), 2, how);
    }
    fixture.stop();
}
