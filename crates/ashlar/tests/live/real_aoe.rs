//! AoE with the driver of a real kernel and the tools of others. The daemon is in a guest, at one
//! end of a cable whose other end the kernel's `aoe` module has. A file system on a shelf, frames
//! that get lost, the daemon killed under a writer. The guest's kernel has Landlock and enforces
//! the sandbox.

use rig::guest::{Script, SharedGuest};

use crate::guests::{add, daemon_script, run};

const UNIT_BYTES: u64 = 64 << 20;

const CONFIG: &str = r#"
[daemon]
cores = 2
sandbox = true
sandbox_required = true
sandbox_read_folders = []

[[disk]]
name = "d0"
kind = "file"
path = "/data/d0.img"
size = 67108864

[[disk]]
name = "d1"
kind = "file"
path = "/data/d1.img"
size = 16777216

[[target]]
driver = "aoe"
name = "e565"
listen = ["ether:veth1"]
shelf = 565

[[access]]
target = "e565"
group = "machine"
initiators = ["mac:02:00:00:00:00:01"]
luns = { 0 = "d0", 1 = { provider = "d1", mode = "ro" } }
"#;

/// Functions of the steps.
const SHELL_FUNCTIONS: &str = r#"
export ASHLAR_CONFIG=/data/ashlar.toml
of() { cat "/sys/block/etherd!$1/$2"; }
is() { [ "$(of "$1" "$2")" = "$3" ] || { echo "$2 of $1: $(of "$1" "$2")"; return 1; }; }
discover() { echo >/dev/etherd/discover; sleep 0.2; [ -b "/dev/etherd/$1" ] && is "$1" state up; }
# That of busybox knows no cables.
ip() { /usr/sbin/ip "$@"; }
tc() { /usr/sbin/tc "$@"; }
disk=/dev/etherd/e565.0
"#;

fn found(script: &mut Script) {
    add(
        script,
        "the kernel finds the shelf, and sees what its group may see",
        &format!(
            "mkdir -p /data /run/ashlar /var/lib/ashlar; mount -t tmpfs -o size=120m tmpfs /data\n\
             cp /rig/config /data/ashlar.toml\n\
             truncate -s {UNIT_BYTES} /data/d0.img; truncate -s 16M /data/d1.img\n\
             ip link add veth0 mtu 9000 address 02:00:00:00:00:01 type veth \
             peer name veth1 mtu 9000\n\
             ip link set veth0 up; ip link set veth1 up; begin\n\
             within 20 discover e565.0; within 20 discover e565.1\n\
             [ $(blockdev --getsize64 $disk) = {UNIT_BYTES} ]; is e565.0 payload 8704\n\
             [ $(of e565.0 queue/max_sectors_kb) -ge 128 ]\n\
             is e565.0 netif veth0; is e565.0 mac $(sed s/://g /sys/class/net/veth1/address)\n\
             [ $(ashlar sessions --json | grep -c 'mac:02:00:00:00:00:01') -ge 2 ]"
        ),
    );
    add(
        script,
        "tools of others ask it",
        "says timeout 5 aoeping -I 565 0 veth0 -- 'serial_number: .' 'model: ASHLAR'\n\
         config() { timeout 5 aoecfg -t 1 \"$@\" 565 0 veth0; }\n\
         config -c set -s lock-a; says config -- 'lock-a'\n\
         config -c set -s lock-b || true; says config -- 'lock-a'\n\
         says config -c prefix -s lock -- 'lock-a'; ! config -c test -s lock | grep lock-a\n\
         # Under another address it may see nothing.\n\
         named() { ip link set veth0 down; ip link set veth0 address $1; ip link set veth0 up; }\n\
         named 02:00:00:00:00:02; ! timeout 2 aoeping 565 0 veth0\n\
         named 02:00:00:00:00:01; within 20 timeout 2 aoeping 565 0 veth0",
    );
    add(
        script,
        "a write-protected one",
        "dd if=/dev/etherd/e565.1 of=/dev/null bs=1M count=1 2>/dev/null\n\
         ! dd if=/dev/zero of=/dev/etherd/e565.1 bs=4k count=1 conv=fsync 2>/dev/null",
    );
    add(
        script,
        "a file system, a tree, a remount",
        "/usr/sbin/mke2fs -q -F -t ext4 -b 4096 $disk; mount -t ext4 $disk /mnt\n\
         cp -r /rig/tree /mnt/tree; sync; umount /mnt\n\
         # What the kernel called written is in the image, whatever it never flushed.\n\
         /usr/sbin/e2fsck -fn /data/d0.img; mount -t ext4 $disk /mnt\n\
         (cd /mnt/tree; sha256sum -c -s /rig/sums)",
    );
}

/// Its kernel enforces the sandbox, which that of the machine may not.
fn confined(script: &mut Script) {
    add(
        script,
        "the kernel enforces the sandbox, and a plan refuses another folder",
        "says ashlar status -- 'in a sandbox'; ashlar doctor sandbox\n\
         fact /tmp/log 'sandbox: enforced'\n\
         fact /proc/$(cat /tmp/pid)/status 'NoNewPrivs:.1' 'Seccomp:.2'\n\
         [ $(grep -c 'serves without it' /tmp/log) = 0 ]\n\
         cp /data/ashlar.toml /tmp/other.toml\n\
         printf '[[disk]]\\nname = \"d2\"\\nkind = \"file\"\\npath = \"/mnt/d2.img\"\\n' \
         >>/tmp/other.toml\n\
         cp /tmp/other.toml /tmp/read.toml\n\
         printf 'create = true\\nsize = 1048576\\n' >>/tmp/other.toml\n\
         ends 1 ashlar plan /tmp/other.toml; fact /tmp/ends 'changes there are not permitted'\n\
         printf 'read_only = true\\n' >>/tmp/read.toml\n\
         ends 1 ashlar plan /tmp/read.toml; fact /tmp/ends 'reading there is not permitted'",
    );
}

fn outlived(script: &mut Script) {
    add(
        script,
        "one frame in a hundred is lost, others come twice and late",
        "for end in veth0 veth1; do\n\
         tc qdisc add dev $end root netem loss 1% duplicate 1% delay 1ms 500us reorder 5%; done\n\
         cp -r /rig/tree /mnt/again; sync; echo 3 >/proc/sys/vm/drop_caches\n\
         (cd /mnt/again; sha256sum -c -s /rig/sums)\n\
         for end in veth0 veth1; do tc qdisc del dev $end root; done",
    );
    add(
        script,
        "killed and started again under a writer",
        "mkdir -p /mnt/files; rm -f /tmp/stop\n\
         (write_and_acknowledge /mnt/files /tmp/list) >/tmp/writes 2>&1 &\n\
         echo $! >/tmp/writer; wait_lines /tmp/list 20 $!\n\
         killed; sleep 1; begin; more 20; touch /tmp/stop; over /tmp/writer\n\
         cat /tmp/writes | grep -v '^@@ACK' || true\n\
         ! dmesg | grep -E 'I/O error, dev etherd/e565.0|EXT4-fs error'",
    );
    add(
        script,
        "all that was acknowledged is there",
        "echo 3 >/proc/sys/vm/drop_caches; (cd /mnt/files; sha256sum -c -s /tmp/list)\n\
         (cd /mnt/tree; sha256sum -c -s /rig/sums); echo \"$(lines /tmp/list) files\"\n\
         umount /mnt; /usr/sbin/e2fsck -fn $disk\n\
         says timeout 5 aoecfg -t 1 565 0 veth0 -- 'lock-a'\n\
         ended; /usr/sbin/e2fsck -fn /data/d0.img; ! grep panicked /tmp/log",
    );
}

/// A shelf serves the driver of a real kernel.
/// X1 of daemon/src/sandbox.rs, X3 of daemon/src/sandbox.rs.
pub fn check(guest: &mut SharedGuest) {
    let mut script = daemon_script(200, SHELL_FUNCTIONS);
    script.file("rig/config", CONFIG);
    found(&mut script);
    confined(&mut script);
    outlived(&mut script);
    run(guest, &script);
}
