//! The daemon in a guest with block devices that discard and do not zero. They are QEMU's behind
//! virtio, and the kernel's emulated SCSI disk, which has UNMAP and whose WRITE SAME writes. Its
//! kernel is too old for discards from the ring. Blocks trimmed above must be freed below, and no
//! others.

use std::path::Path;

use rig::guest::{Script, SharedGuest};
use rig::scenarios;

use crate::guests::{add, daemon_script, run, stored_bytes};

/// Size of QEMU's disk.
pub const DISK_BYTES: u64 = 96 << 20;

/// Data that is written and trimmed again, MiB.
const BALLAST_MIB: u64 = 40;

/// The SCSI disk's name is known in the guest only.
const CONFIG: &str = r#"
[daemon]
cores = 2

[[disk]]
name = "v"
kind = "blockdev"
path = "/dev/vda"

[[disk]]
name = "s"
kind = "blockdev"
path = "{debug}"

[[target]]
driver = "local"
name = "here"

[[access]]
target = "here"
group = "machine"
initiators = ["local:here"]
luns = { 0 = "v", 1 = "s" }
"#;

/// Functions of the steps.
const SHELL_FUNCTIONS: &str = r#"
export ASHLAR_CONFIG=/tmp/ashlar.toml
fault=/sys/bus/pseudo/drivers/scsi_debug
queue() { cat "/sys/block/$1/queue/$2"; }
"#;

fn steps(script: &mut Script) {
    add(
        script,
        "the devices, and how they are deleted from",
        "mkdir -p /run/ashlar /var/lib/ashlar; rmmod scsi_debug\n\
         insmod $(ls /mod/*scsi_debug.ko) lbpu=1 lbpws=0 lbpws10=0 dev_size_mb=16 opt_blks=64\n\
         found() { d=$(grep -l scsi_debug /sys/block/sd*/device/model); }; within 10 found\n\
         debug=$(echo $d | cut -d/ -f4); echo $debug >/tmp/debug\n\
         [ $(queue vda discard_max_bytes) -gt 0 ]; [ $(queue vda write_zeroes_max_bytes) = 0 ]\n\
         [ $(queue $debug discard_max_bytes) -gt 0 ]\n\
         cat /sys/block/$debug/device/scsi_disk/*/zeroing_mode | grep writesame\n\
         sed \"s,{debug},/dev/$debug,\" /rig/config >/tmp/ashlar.toml\n\
         ashlar serve >>/tmp/log 2>&1 &\n\
         within 30 ashlar status; ashlar geom disk list >/tmp/listed; cat /tmp/listed\n\
         grep 'by discard: the device has no zeroing command' /tmp/listed\n\
         grep 'by discard: zeroing would write every block' /tmp/listed",
    );
    add(
        script,
        "a file system is trimmed, and what it holds stays",
        &format!(
            "ends 0 ashlar attach 0; /usr/sbin/mke2fs -q -F -t ext4 -b 4096 \
             -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0\n\
             mount -t ext4 /dev/nbd0 /mnt; cp -r /rig/tree /mnt/tree\n\
             dd if=/dev/urandom of=/mnt/ballast bs=1M count={BALLAST_MIB} conv=fsync 2>/dev/null\n\
             rm /mnt/ballast; sync; /usr/sbin/fstrim -v /mnt\n\
             umount /mnt; mount -t ext4 /dev/nbd0 /mnt; (cd /mnt/tree; sha256sum -c -s /rig/sums)\n\
             umount /mnt; ends 0 ashlar detach 0"
        ),
    );
    add(
        script,
        "the SCSI disk knows what is no longer mapped",
        "ends 0 ashlar attach 1; dd if=/dev/urandom of=/tmp/all bs=1M count=16 2>/dev/null\n\
         dd if=/tmp/all of=/dev/nbd0 bs=1M conv=fsync 2>/dev/null\n\
         grep '^0-32767$' $fault/map; blkdiscard -o 4194304 -l 8388608 /dev/nbd0\n\
         cat $fault/map; grep '^0-8191,24576-32767$' $fault/map\n\
         dd if=/dev/nbd0 of=/tmp/back bs=1M count=4 2>/dev/null\n\
         cmp -n 4194304 /tmp/all /tmp/back\n\
         dd if=/dev/nbd0 of=/tmp/back bs=1M skip=12 count=4 2>/dev/null\n\
         dd if=/tmp/all of=/tmp/end bs=1M skip=12 2>/dev/null; cmp /tmp/end /tmp/back\n\
         ends 0 ashlar detach 1; kill $(pidof ashlar); ! grep panicked /tmp/log",
    );
}

/// Devices that discard and do not zero are trimmed. `disk` is the image of the guest's virtio
/// disk.
pub fn check(guest: &mut SharedGuest, disk: &Path) {
    let mut script = daemon_script(100, SHELL_FUNCTIONS);
    script.file("rig/config", CONFIG);
    steps(&mut script);
    run(guest, &script);
    let allocated = stored_bytes(disk);
    println!("{} KiB of the image are stored", allocated >> 10);
    assert!(allocated < BALLAST_MIB << 20, "{allocated} bytes are stored");
    scenarios::check_clean(disk).unwrap();
}
