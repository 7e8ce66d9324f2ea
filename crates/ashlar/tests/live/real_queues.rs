//! Effect of our limits on a kernel: the queue of each kind of disk and of a provider of each
//! class, by iSCSI, NVMe over TCP and NBD. A limits page that reports too little makes a host send
//! small commands, and no load generator of ours shows it. The kernel's AoE driver and the devices
//! of this machine are checked by `real_aoe` and `real_local`.

use std::net::SocketAddr;

use rig::guest::{HOST, Script, SharedGuest, guest_portal};
use rig::loop_device::LoopDevice;
use rig::proc::{self, free_port};
use rig::scenarios::{self, From, GO};

use crate::fixture::{Fixture, IQN, file_disk};
use crate::guests::BOOT;
use crate::two_paths::Wire;

/// The subsystem.
const NQN: &str = "nqn.2026-11.test.ashlar:queues";
/// Strip of the stripe, KiB: its optimal size, which Linux keeps commands to.
const STRIP_KIB: u64 = 256;
/// Optimal size of an array with strips of 64 KiB, KiB: the smallest multiple that we report.
const ARRAY_KIB: u64 = 128;
/// Least length of a command without a reported optimal size, KiB: Linux' own default.
const WHOLE_KIB: u64 = 1280;
const BYTES: u64 = 32 << 20;
/// Devices of the kernel's NBD driver that are used in turn.
const NBD_DEVICES: usize = 8;

/// Providers of the LUNs from 0 on, and the KiB of `optimal_io_size`. The name of the array is
/// known after it was made, and a loop device may be unavailable: both follow these.
const UNITS: [(&str, u64); 20] = [
    ("file", 0),
    ("large", 0),
    ("memory", 0),
    ("model", 0),
    ("null", 0),
    ("nbd", 0),
    ("here", 0),
    ("virtual", 0),
    ("da0", 0),
    ("ada0", 0),
    ("nop", 0),
    ("limit", 0),
    ("sched", 0),
    ("trim", 0),
    ("mirror/m", 0),
    ("stripe/s", STRIP_KIB),
    ("concat/c", 0),
    ("multipath/p", 0),
    ("part1p1", 0),
    ("label/data", 0),
];

/// Image files that are disks with the same names.
const FILES: [&str; 17] = [
    "file", "behind", "under0", "under1", "under2", "under3", "m0", "m1", "s0", "s1", "c0", "c1",
    "path0", "part1", "label0", "r0", "r1",
];

/// Makes the providers that are found by their metadata.
const COMMANDS: [&str; 5] = [
    "multipath label p path0",
    "part create -s GPT part1",
    "part add -t freebsd-ufs -b 2048 part1",
    "geom label label name=data provider=label0",
    "raid label Intel v RAID0 r0 r1 -s 64k",
];

const DISKS: &str = r#"
[[disk]]
name = "large"
kind = "file"
path = "{here}/large.img"
sector_size = 4096

[[disk]]
name = "memory"
kind = "memory"
size = "16MiB"

[[disk]]
name = "model"
kind = "model"
size = "16MiB"
latency = "none"

[[disk]]
name = "null"
kind = "null"
size = "16MiB"

[[disk]]
name = "nbd"
kind = "nbd"
command = ["{nbdkit}", "-f", "memory", "16M"]

[[geom]]
class = "nop"
name = "nop"
provider = "under0"

[[geom]]
class = "limit"
name = "limit"
provider = "under1"

[[geom]]
class = "sched"
name = "sched"
provider = "under2"

[[geom]]
class = "trim"
name = "trim"
provider = "under3"

[[geom]]
class = "mirror"
name = "m"
members = ["m0", "m1"]

[[geom]]
class = "stripe"
name = "s"
members = ["s0", "s1"]
strip = 262144

[[geom]]
class = "concat"
name = "c"
members = ["c0", "c1"]
"#;

/// Buses: a target of this daemon, an HBA in memory, and a target of another daemon by iSCSI and by
/// AoE.
const BUSES: &str = r#"
[[bus]]
name = "own"
kind = "local"
target = "{iqn}-behind"
names = { here = "0:0" }

[[bus]]
name = "hba"
kind = "virtual"
size = "64MiB"
names = { virtual = "0:0" }

[[bus]]
name = "far"
kind = "iscsi"
portals = ["{far}"]
target = "{iqn}"
initiator = "iqn.2026-11.test.ashlar:front"

[[bus]]
name = "near"
kind = "aoe"
interfaces = ["{near}"]
ask_s = 1

[[target]]
driver = "iscsi"
name = "{iqn}-behind"
listen = ["{portal}"]

[[access]]
target = "{iqn}-behind"
group = "all"
initiators = ["*"]
luns = { 0 = "behind" }
"#;

const TARGETS: &str = r#"
[[target]]
driver = "nvme_tcp"
name = "{nqn}"
listen = ["{nvme}"]

[[access]]
target = "{nqn}"
group = "all"
initiators = ["*"]
luns = { {luns} }

[[target]]
driver = "nbd"
name = "n"
listen = ["{nbd}"]

[[access]]
target = "n"
group = "all"
initiators = ["ip:127.0.0.1"]
luns = { {luns} }
"#;

/// The daemon whose disks two of the buses find.
const BACK: &str = r#"
[[target]]
driver = "aoe"
name = "e7"
listen = ["ether:{wire}"]
shelf = 7

[[access]]
target = "e7"
group = "all"
initiators = ["*"]
luns = { 0 = "b0" }

[[access]]
target = "{iqn}"
group = "all"
initiators = ["*"]
luns = { 0 = "b1" }
"#;

/// Addresses of the targets besides iSCSI.
struct Portals {
    nvme: SocketAddr,
    nbd: SocketAddr,
}

/// `queue NAME DEVICE BEST`: fails when the kernel would cut commands shorter than `BEST` KiB, or
/// than a whole one where that is 0.
fn helpers() -> String {
    format!(
        "queue() {{ q=/sys/block/${{2##*/}}/queue\n\
         echo \"$1: max $(cat $q/max_sectors_kb) KiB, best $(cat $q/optimal_io_size) bytes,\
         discard $(cat $q/discard_max_bytes)\"\n\
         want=$3; [ $want = 0 ] && want={WHOLE_KIB}\n\
         [ $(cat $q/max_hw_sectors_kb) -lt $want ] && want=$(cat $q/max_hw_sectors_kb)\n\
         [ $want -ge 128 ]; [ $(cat $q/max_sectors_kb) -ge $want ]; }}\n\
         best() {{ [ $(cat /sys/block/${{1##*/}}/queue/optimal_io_size) = $(($2 * 1024)) ]; }}\n"
    )
}

fn steps(portal: &str, portals: &Portals, units: &[(String, u64)]) -> Script {
    let mut script = Script::new();
    let log_in = scenarios::log_in_to_two(IQN, portal, ["A", "B"]);
    let mut iscsi = format!("{}{log_in}\n", helpers());
    for (lun, (provider, best)) in units.iter().enumerate() {
        let disk = format!("d=$(disk {IQN} {lun})");
        iscsi.push_str(&format!("{disk}; queue {provider} $d {best}; best $d {best}\n"));
    }
    script.step("iSCSI", iscsi);
    script.step(
        "commands are as long as that",
        "b=/sys/block/$(basename $(readlink -f $(. /rig/names; echo $A)))\n\
         set -- $(cat $b/stat); reads=$1; sectors=$3\n\
         dd if=/dev/$(basename $b) of=/dev/null bs=4M count=4 iflag=direct 2>/dev/null\n\
         set -- $(cat $b/stat); reads=$(($1 - reads)); sectors=$(($3 - sectors))\n\
         echo \"$reads commands for $((sectors / 2)) KiB\"; [ $((sectors / reads)) -ge 1024 ]"
            .to_owned(),
    );
    let (nvme, nbd) = (portals.nvme.port(), portals.nbd.port());
    let mut other = format!(
        "{}nvme connect -t tcp -a {HOST} -s {nvme} -n {NQN}\n\
         within 10 [ -b /dev/nvme0n1 ]; within 10 [ -b /dev/nvme0n{} ]\n",
        helpers(),
        units.len()
    );
    for (n, (provider, best)) in units.iter().enumerate() {
        other.push_str(&format!("queue nvme-{provider} /dev/nvme0n{} {best}\n", n + 1));
    }
    script.step("NVMe over TCP", other);
    let mut other = helpers();
    for (n, (provider, _)) in units.iter().enumerate() {
        let device = format!("/dev/nbd{}", n % NBD_DEVICES);
        other.push_str(&format!(
            "nbd-client {HOST} {nbd} {device} -N {provider}; within 10 nbd-client -c {device}\n\
             queue nbd-{provider} {device} 128\n\
             nbd-client -d {device}; within 10 ends 1 nbd-client -c {device}\n"
        ));
    }
    script.step("NBD", other);
    script
}

/// Sections of the image files and of a loop device, where there is one.
fn disks(device: Option<&LoopDevice>) -> String {
    let files = FILES.map(|name| file_disk(name, &format!("{name}.img"))).concat();
    let nbdkit = proc::tool("nbdkit").unwrap();
    let others = DISKS.replace("{nbdkit}", nbdkit.to_str().unwrap());
    let device = device.map(|LoopDevice(path)| {
        format!("[[disk]]\nname = \"device\"\nkind = \"blockdev\"\npath = \"{path}\"\n")
    });
    format!("{files}{others}{}", device.unwrap_or_default())
}

/// Makes the providers of [`COMMANDS`]; returns the name of the array.
fn label(fixture: &Fixture) -> String {
    for line in COMMANDS {
        fixture.ok(&line.split(' ').collect::<Vec<_>>());
    }
    let list = fixture.ok(&["raid", "list"]);
    let is_volume = |word: &&str| word.starts_with("raid/") && word.ends_with("/v");
    list.split_whitespace().find(is_volume).expect("a volume").to_owned()
}

/// Linux sends commands of full size to every kind of disk and to a provider of every class.
pub fn check(guest: &mut SharedGuest) {
    let mut fixture = Fixture::alone("queues");
    for name in FILES.iter().chain(&["large", "device"]) {
        fixture.image(&format!("{name}.img"), BYTES);
    }
    let device = LoopDevice::over(&fixture.path("device.img"), &["--direct-io=on"]);
    let wire = Wire::new();
    let images = ["b0", "b1"].map(|name| fixture.image(&format!("{name}.img"), BYTES));
    let back = ["b0", "b1"].iter().zip(&images).map(|(name, path)| {
        format!("[[disk]]\nname = \"{name}\"\nkind = \"file\"\npath = {path:?}\n")
    });
    let back = back.chain([BACK.replace("{wire}", &wire.far)]).collect::<String>();
    let mut back = fixture.sibling("queues-back", &back);
    let disks = disks(device.as_ref());
    fixture.configure(&disks, "");
    fixture.start();

    let mut units = Vec::from(UNITS.map(|(name, best)| (name.to_owned(), best)));
    units.push((label(&fixture), ARRAY_KIB));
    units.extend(device.iter().map(|_| ("device".to_owned(), 0)));
    let luns = units.iter().enumerate().map(|(n, (name, _))| format!("{n} = \"{name}\""));
    let luns = luns.collect::<Vec<_>>().join(", ");
    let [nvme, nbd] = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port().unwrap())));
    let portals = Portals { nvme, nbd };
    let buses = BUSES.replace("{far}", &back.portal().to_string()).replace("{near}", &wire.near);
    let targets = TARGETS.replace("{nqn}", NQN).replace("{luns}", &luns);
    let targets = targets.replace("{nvme}", &nvme.to_string()).replace("{nbd}", &nbd.to_string());
    fixture.configure(&format!("{disks}{buses}{targets}"), &luns);
    fixture.ok(&["apply"]);
    fixture.wait_whole();

    let script = steps(&guest_portal(fixture.portal()), &portals, &units);
    let conversed = scenarios::converse(From::Shared(guest), &script, BOOT, &mut |request| {
        panic!("the guest asked {request:?}, {GO}")
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", fixture.log()));
    println!("{}", conversed.run.summary());
    fixture.stop();
    back.stop();
}
