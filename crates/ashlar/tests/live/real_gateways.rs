//! Two gateways of one NVMe subsystem. The kernel accepts the second path, because the controller
//! identifiers are from ranges without common numbers, and uses it when the first path ends. The
//! second daemon has the disk of the first as an NBD disk.

use std::net::SocketAddr;
use std::time::Duration;

use rig::guest::{Boot, HOST, Script, SharedGuest};
use rig::proc::free_port;
use rig::scenarios::{self, From, GO};

use crate::fixture::Fixture;

/// The subsystem of both.
const NQN: &str = "nqn.2026-11.test.ashlar:gateways";
/// Longest time for the script.
const DEADLINE: Duration = Duration::from_secs(300);

/// The subsystem with the disk `store`, whose identity is the same everywhere.
const SUBSYSTEM: &str = r#"
[[unit]]
provider = "store"
uuid = "01234567-89ab-cdef-0123-456789abcdef"
eui64 = "0011223344556677"

[[target]]
driver = "nvme_tcp"
name = "{nqn}"
listen = ["{nvme}"]
controller_id_min = {min}
controller_id_max = {max}

[[access]]
target = "{nqn}"
group = "all"
initiators = ["*"]
luns = { 0 = "store" }
"#;

/// The disk of the first gateway, and its export for the second.
const OWN: &str = r#"
[[disk]]
name = "store"
kind = "memory"
size = "16MiB"

[[target]]
driver = "nbd"
name = "n"
listen = ["{nbd}"]

[[access]]
target = "n"
group = "all"
initiators = ["ip:127.0.0.1"]
luns = { 0 = "store" }
"#;

/// The disk of the second gateway.
const FAR: &str = r#"
[[disk]]
name = "store"
kind = "nbd"
uri = "nbd://{nbd}/store"
"#;

/// The subsystem at an address, with controller identifiers of a range.
fn subsystem(at: SocketAddr, min: u16, max: u16) -> String {
    let text = SUBSYSTEM.replace("{nqn}", NQN).replace("{nvme}", &at.to_string());
    text.replace("{min}", &min.to_string()).replace("{max}", &max.to_string())
}

fn steps(gateways: [SocketAddr; 2]) -> Script {
    let mut script = Script::new();
    let helpers = "all=/sys/class/nvme\n\
                   live() { [ $(cat $all/nvme*/state | grep -c '^live$') = $1 ]; }\n\
                   paths() { [ $(ls -d $all/nvme*/nvme*c*n1 | wc -l) = $1 ]; }\n";
    let [first, second] = gateways.map(|at| at.port());
    script.step(
        "both paths of one subsystem are accepted",
        format!(
            "{helpers}for port in {first} {second}; do\n\
             nvme connect -t tcp -a {HOST} -s $port -n {NQN} -i 1; done\n\
             within 10 live 2; within 10 paths 2; within 10 [ -b /dev/nvme0n1 ]\n\
             [ $(ls -d /sys/class/nvme-subsystem/nvme-subsys* | wc -l) = 1 ]\n\
             cat $all/nvme*/cntlid | sort -n >/tmp/cntlid; cat /tmp/cntlid\n\
             first=$(head -n 1 /tmp/cntlid); second=$(tail -n 1 /tmp/cntlid)\n\
             [ $first -ge 1 ]; [ $first -le 100 ]; [ $second -ge 101 ]; [ $second -le 200 ]\n\
             dmesg >/tmp/dmesg; ! grep -E 'Duplicate cntlid|rejecting|IDs don' /tmp/dmesg"
        ),
    );
    script.step(
        "each path has the data of the other",
        format!(
            "{helpers}d=/dev/nvme0n1; head -c 1048576 /dev/urandom >/tmp/data\n\
             dd if=/tmp/data of=$d bs=64k oflag=direct conv=fsync 2>/dev/null\n\
             read_back() {{ dd if=$d of=/tmp/back bs=64k count=16 iflag=direct 2>/dev/null\n\
             cmp /tmp/back /tmp/data; }}\n\
             read_back; nvme disconnect -d nvme0; within 10 live 1; within 10 paths 1; read_back\n\
             nvme connect -t tcp -a {HOST} -s {first} -n {NQN} -i 1\n\
             within 10 live 2; within 10 paths 2; nvme disconnect -d nvme1\n\
             within 10 live 1; within 10 paths 1; read_back\n\
             nvme disconnect -n {NQN}"
        ),
    );
    script
}

/// Linux uses both gateways as paths to one namespace.
pub fn check(guest: &mut SharedGuest) {
    let mut second = Fixture::alone("gateway-2");
    let [a, b, nbd] = [(); 3].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port().unwrap())));
    let nbd = nbd.to_string();
    let own = OWN.replace("{nbd}", &nbd);
    let mut first = second.sibling("gateway-1", &format!("{own}{}", subsystem(a, 1, 100)));
    let far = FAR.replace("{nbd}", &nbd);
    second.configure(&format!("{far}{}", subsystem(b, 101, 200)), "");
    second.start_whole();
    let how = Boot { deadline: DEADLINE, core: None };
    let script = steps([a, b]);
    let conversed = scenarios::converse(From::Shared(guest), &script, how, &mut |request| {
        panic!("the guest asked {request:?}, {GO}")
    })
    .unwrap_or_else(|e| panic!("{e:#}\n{}\n{}", first.log(), second.log()));
    println!("{}", conversed.run.summary());
    second.stop();
    first.stop();
}
