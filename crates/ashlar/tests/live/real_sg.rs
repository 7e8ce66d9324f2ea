//! The daemon in a guest with SCSI disks of its own (bus kind `sg`): QEMU's behind virtio, and the
//! kernel's emulated one, which can inject failures. Data written through the daemon is read again
//! by the kernel's own driver, and by e2fsck on the host.

use std::path::Path;

use rig::guest::{Script, SharedGuest};
use rig::scenarios;

use crate::guests::{add, daemon_script, run};

/// Size of QEMU's disk.
pub const DISK_BYTES: u64 = 64 << 20;

/// Which disk is which is known in the guest only.
const BUS: &str = r#"
[daemon]
cores = 2

[[bus]]
name = "sg0"
kind = "sg"
devices = ["{real}", "{debug}"]
names = { d0 = "0:0", d1 = "1:0" }

[[target]]
driver = "local"
name = "here"
resend = 5
"#;

const ACCESS: &str = r#"
[[access]]
target = "here"
group = "machine"
initiators = ["local:here"]
luns = { 0 = "d0", 1 = "d1" }
"#;

/// Functions of the steps.
const SHELL_FUNCTIONS: &str = r#"
export ASHLAR_CONFIG=/tmp/ashlar.toml
fault=/sys/bus/pseudo/drivers/scsi_debug
has() { ashlar cam devlist | grep -q -E "$1"; }
lacks() { ! has "$1"; }
hosts() { grep -l "$1" /sys/class/scsi_host/host*/proc_name; }
[ ! -e /tmp/names ] || . /tmp/names
"#;

fn taken(script: &mut Script) {
    add(
        script,
        "a disk that the machine uses is not taken",
        "mkdir -p /run/ashlar /var/lib/ashlar\n\
         for d in /sys/block/sd*; do case $(cat $d/device/vendor) in\n\
         QEMU*) real=/dev/${d##*/};; Linux*) debug=/dev/${d##*/};; esac; done\n\
         node=/dev/$(ls /sys/block/${real##*/}/device/scsi_generic)\n\
         echo \"real=$real debug=$debug node=$node\" | tee /tmp/names\n\
         sed \"s,{real},$node,; s,{debug},$debug,\" /rig/bus >/tmp/ashlar.toml\n\
         /usr/sbin/mke2fs -q -F -t ext4 $real; mount -t ext4 $real /mnt; echo kept >/mnt/file\n\
         begin; within 10 has 'd1'; lacks 'd0'\n\
         says ashlar cam devlist -- \"sg0: $node: in use by this machine\"\n\
         umount /mnt; within 15 has 'd0'; lacks 'uses it'\n\
         ! mount -t ext4 $real /mnt 2>/tmp/mount; grep -i busy /tmp/mount",
    );
    add(
        script,
        "camcontrol's verbs on it",
        "says ashlar cam devlist -v -- 'QEMU HARDDISK' 'Linux scsi_debug' 'pass.*d0'\n\
         says ashlar cam inquiry d0 -- 'QEMU QEMU HARDDISK' 'Serial Number one'\n\
         says ashlar cam readcap d0 -- 'Last Block: 131071, Block Length: 512 bytes'\n\
         says ashlar cam modepage d0 -m 8 -- 'WCE'\n\
         says ashlar cam reset d0 -- 'was successful'\n\
         place=$(basename $(readlink /sys/block/${real##*/}/device))\n\
         ashlar list --json | grep -q \"sg0@$place\"",
    );
}

fn used(script: &mut Script) {
    add(
        script,
        "a tree goes through it to the disk",
        "cat /rig/access >>/tmp/ashlar.toml; ashlar apply /tmp/ashlar.toml\n\
         ends 0 ashlar attach 0; mount -t ext4 /dev/nbd0 /mnt; grep kept /mnt/file\n\
         cp -r /rig/tree /mnt/tree; sync; umount /mnt; mount -t ext4 /dev/nbd0 /mnt\n\
         (cd /mnt/tree; sha256sum -c -s /rig/sums)\n\
         dd if=/dev/urandom of=/mnt/big bs=1M count=16 conv=fsync 2>/dev/null\n\
         (cd /mnt; sha256sum big >/tmp/big); umount /mnt; ends 0 ashlar detach 0",
    );
    add(
        script,
        "commands that fail on the way are sent again",
        "ends 0 ashlar attach 1\n\
         # Each 29th command ends with ABORTED COMMAND, TRANSPORT PROBLEM.\n\
         echo 17 >$fault/opts; echo 29 >$fault/every_nth\n\
         dd if=/dev/urandom of=/tmp/some bs=64k count=96\n\
         dd if=/tmp/some of=/dev/nbd0 bs=16k conv=fsync\n\
         dd if=/dev/nbd0 of=/tmp/back bs=16k count=384 iflag=direct\n\
         cmp /tmp/some /tmp/back; echo 0 >$fault/every_nth; echo 0 >$fault/opts\n\
         dmesg | grep -c '0xb,0x4b,0x3'\n\
         ashlar cam devlist -v; blockdev --flushbufs $debug\n\
         dd if=$debug of=/tmp/back bs=64k count=96; cmp /tmp/some /tmp/back",
    );
    add(
        script,
        "a bad sector is an error there and nowhere else",
        "# Sectors 1234h to 123dh.\n\
         echo 2 >$fault/opts\n\
         ! dd if=/dev/nbd0 of=/dev/null bs=4096 skip=582 count=1 iflag=direct 2>/tmp/dd\n\
         fact /tmp/dd 'put/output error'\n\
         dd if=/dev/nbd0 of=/dev/null bs=4096 skip=584 count=1 iflag=direct 2>/dev/null\n\
         echo 0 >$fault/opts; dd if=/dev/nbd0 of=/dev/null bs=4096 skip=582 count=1 \
         iflag=direct 2>/dev/null; ends 0 ashlar detach 1",
    );
}

fn pulled(script: &mut Script) {
    add(
        script,
        "a disk that is pulled goes, and comes back under its name",
        "host=$(dirname $(hosts scsi_debug)); echo 1 >/sys/block/${debug##*/}/device/delete\n\
         within 15 lacks 'd1'; says ashlar cam devlist -- \"sg0: $debug: \"; has 'd0'\n\
         echo '- - -' >$host/scan; within 5 test -b $debug; within 15 has 'd1'\n\
         within 10 ashlar attach 1; dd if=/dev/nbd0 of=/tmp/back bs=16k count=384 2>/dev/null\n\
         cmp -n 1000000 /tmp/some /tmp/back; ends 0 ashlar detach 1",
    );
    add(
        script,
        "when the daemon has ended the disks are the machine's again",
        "ended; mount -t ext4 $real /mnt; grep kept /mnt/file\n\
         (cd /mnt/tree; sha256sum -c -s /rig/sums); (cd /mnt; sha256sum -c -s /tmp/big)\n\
         umount /mnt; ! grep -E 'panicked' /tmp/log",
    );
}

/// SCSI disks of the machine are providers. `disk` is the image of the one with the serial number
/// `one`.
pub fn check(guest: &mut SharedGuest, disk: &Path) {
    let mut script = daemon_script(100, SHELL_FUNCTIONS);
    script.file("rig/bus", BUS).file("rig/access", ACCESS);
    taken(&mut script);
    used(&mut script);
    pulled(&mut script);
    run(guest, &script);
    scenarios::check_clean(disk).unwrap();
}
