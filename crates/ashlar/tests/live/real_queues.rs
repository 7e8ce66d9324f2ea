//! Effect of our limits on a kernel: the queue of each kind of disk and of layers over them, by
//! iSCSI, NVMe over TCP and NBD. A limits page that reports too little makes a host send small
//! commands, and no load generator of ours shows it.

use std::net::SocketAddr;
use std::time::Duration;

use rig::guest::{Boot, HOST, Script, Shared, guest_portal};
use rig::proc::free_port;
use rig::scenarios::{self, From, GO};

use crate::fixture::{Fixture, IQN, file_disk};

/// The subsystem.
const NQN: &str = "nqn.2026-11.test.ashlar:queues";
/// Longest time for the script.
const DEADLINE: Duration = Duration::from_secs(900);
/// Strip of the stripe, KiB: its optimal size, which Linux keeps commands to.
const STRIP_KIB: u64 = 256;
/// Least length of a command without a reported optimal size, KiB: Linux' own default.
const WHOLE_KIB: u64 = 1280;

/// Providers of the LUNs from 0 on, and the KiB of `optimal_io_size`.
const UNITS: [(&str, u64); 8] = [
    ("file", 0),
    ("large", 0),
    ("memory", 0),
    ("model", 0),
    ("null", 0),
    ("nop", 0),
    ("mirror/m", 0),
    ("stripe/s", STRIP_KIB),
];

const OTHERS: &str = r#"
[[disk]]
name = "large"
kind = "file"
path = "large.img"
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

[[geom]]
class = "nop"
name = "nop"
provider = "under"

[[geom]]
class = "mirror"
name = "m"
members = ["m0", "m1"]

[[geom]]
class = "stripe"
name = "s"
members = ["s0", "s1"]
strip = 262144

[[target]]
driver = "nvme_tcp"
name = "{nqn}"
listen = ["{nvme}"]

[[access]]
target = "{nqn}"
group = "all"
initiators = ["*"]
luns = { 0 = "file", 1 = "large", 2 = "stripe/s" }

[[target]]
driver = "nbd"
name = "n"
listen = ["{nbd}"]

[[access]]
target = "n"
group = "all"
initiators = ["ip:127.0.0.1"]
luns = { 0 = "file", 1 = "large", 2 = "stripe/s" }
"#;

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

fn steps(portal: &str, nvme: u16, nbd: u16) -> Script {
    let mut script = Script::new();
    let log_in = scenarios::log_in_to_two(IQN, portal, ["A", "B"]);
    let mut iscsi = format!("{}{log_in}\n", helpers());
    for (lun, (provider, best)) in UNITS.iter().enumerate() {
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
    let mut other = format!(
        "{}nvme connect -t tcp -a {HOST} -s {nvme} -n {NQN}\n\
         within 10 [ -b /dev/nvme0n1 ]; within 10 [ -b /dev/nvme0n3 ]\n",
        helpers()
    );
    for (n, name) in ["file", "large", "stripe"].iter().enumerate() {
        let best = if *name == "stripe" { STRIP_KIB } else { 0 };
        other.push_str(&format!("queue nvme-{name} /dev/nvme0n{} {best}\n", n + 1));
    }
    script.step("NVMe over TCP", other);
    let mut other = helpers();
    for (n, name) in ["file", "large", "stripe/s"].iter().enumerate() {
        other.push_str(&format!(
            "nbd-client {HOST} {nbd} /dev/nbd{n} -N {name}; within 10 nbd-client -c /dev/nbd{n}\n\
             queue nbd-{name} /dev/nbd{n} 128\n"
        ));
    }
    script.step("NBD", other);
    script
}

/// Linux sends commands of full size to every kind of disk.
pub fn check(guest: &mut Shared) {
    let mut fixture = Fixture::alone("queues");
    let files = ["file", "under", "m0", "m1", "s0", "s1"];
    let disks: String = files.map(|name| file_disk(name, &format!("{name}.img"))).concat();
    for name in files.iter().chain(&["large"]) {
        fixture.image(&format!("{name}.img"), 24 << 20);
    }
    let [nvme, nbd] = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port().unwrap())));
    let others = OTHERS.replace("{nqn}", NQN).replace("{nvme}", &nvme.to_string());
    let others = others.replace("{nbd}", &nbd.to_string());
    let others = others.replace("\"large.img\"", &format!("{:?}", fixture.path("large.img")));
    let luns = UNITS.iter().enumerate().map(|(n, (name, _))| format!("{n} = \"{name}\""));
    let luns = luns.collect::<Vec<_>>().join(", ");
    fixture.configure(&format!("{disks}{others}"), &luns);
    fixture.start_whole();
    let script = steps(&guest_portal(fixture.portal()), nvme.port(), nbd.port());
    let how = Boot { deadline: DEADLINE, core: None };
    let conversed = scenarios::converse(From::Shared(guest), &script, how, &mut |request| {
        panic!("the guest asked {request:?}, {GO}")
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", fixture.log()));
    println!("{}", conversed.run.summary());
    fixture.stop();
}
