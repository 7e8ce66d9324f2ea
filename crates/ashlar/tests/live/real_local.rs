//! The daemon itself in a guest with a kernel of its own. It has LUNs as network block devices of
//! that kernel and by FUSE, with file systems on them. The daemon is killed and started under a
//! writer.

use rig::guest::{Script, SharedGuest};

use crate::guests::{add, daemon_script, run};

/// Size of the unit, before and after it grows.
const UNIT_BYTES: u64 = 80 << 20;
const GROWN_BYTES: u64 = 96 << 20;

const CONFIG: &str = r#"
[daemon]
cores = 2

[[disk]]
name = "d0"
kind = "file"
path = "/data/d0.img"
size = {size}

[[disk]]
name = "d1"
kind = "file"
path = "/data/d1.img"
size = 16777216

[[target]]
driver = "local"
name = "here"
resend = 5

[[access]]
target = "here"
group = "machine"
initiators = ["local:here"]
luns = { 0 = "d0", 1 = { provider = "d1", mode = "ro" } }
"#;

/// Functions of the steps.
const SHELL_FUNCTIONS: &str = r#"
export ASHLAR_CONFIG=/data/ashlar.toml
queue() { cat "/sys/block/nbd0/queue/$1"; }
bytes() { [ "$(blockdev --getsize64 "$1")" = "$2" ]; }
served() { ashlar attach --list | grep -q "/dev/nbd0"; }
"#;

fn nbd(script: &mut Script) {
    add(
        script,
        "the kernel's network block device, found by itself",
        &format!(
            "mkdir -p /data /run/ashlar /var/lib/ashlar; mount -t tmpfs -o size=160m tmpfs /data\n\
             sed 's/{{size}}/{UNIT_BYTES}/' /rig/config >/data/ashlar.toml\n\
             truncate -s {UNIT_BYTES} /data/d0.img; truncate -s 16M /data/d1.img; begin\n\
             ends 0 ashlar attach 0; fact /tmp/ends '^/dev/nbd0$'; bytes /dev/nbd0 {UNIT_BYTES}\n\
             grep '^ashlar here 0 2 rw 512 ' /sys/block/nbd0/backend\n\
             [ \"$(queue write_cache)\" = 'write back' ]; [ $(queue fua) = 1 ]\n\
             [ $(queue discard_max_bytes) -gt 0 ]; [ $(queue max_sectors_kb) = 512 ]\n\
             within 20 says ashlar attach --list -- '/dev/nbd0 .*rw .*no process .*attached'\n\
             [ $(ashlar sessions --json | grep -c 'local:here') -ge 2 ]"
        ),
    );
    add(
        script,
        "a write-protected one",
        "ends 0 ashlar attach d1; fact /tmp/ends '^/dev/nbd1$'; [ $(cat /sys/block/nbd1/ro) = 1 ]\n\
         dd if=/dev/nbd1 of=/dev/null bs=1M count=1 2>/dev/null\n\
         ! dd if=/dev/zero of=/dev/nbd1 bs=4k count=1 conv=fsync 2>/dev/null\n\
         ends 0 ashlar detach /dev/nbd1; ! grep ashlar /sys/block/nbd1/backend 2>/dev/null",
    );
    add(
        script,
        "the daemon's memory is locked, and it is the last to be ended",
        "pid=$(cat /tmp/pid); [ \"$(cat /proc/$pid/oom_score_adj)\" = -1000 ]\n\
         [ $(awk '/VmLck/ {print $2}' /proc/$pid/status) -gt 1000 ]\n\
         # Of each thread the word of flags: PF_MEMALLOC_NOIO and PF_LOCAL_THROTTLE.\n\
         flushes=0; for task in /proc/$pid/task/*; do\n\
         flags=$(sed 's/.*) //' $task/stat | cut -d' ' -f7)\n\
         if [ $((flags & 0x180000)) = $((0x180000)) ]; then flushes=$((flushes + 1)); fi; done\n\
         echo \"$flushes threads write for the kernel\"; [ $flushes -ge 2 ]",
    );
    add(
        script,
        "a file system, a tree, a remount, and what is trimmed",
        "# Its tables are written now: what is allocated later is what the steps wrote.\n\
         /usr/sbin/mke2fs -q -F -t ext4 -b 4096 \
         -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0\n\
         mount -t ext4 /dev/nbd0 /mnt\n\
         cp -r /rig/tree /mnt/tree; sync; umount /mnt; mount -t ext4 /dev/nbd0 /mnt\n\
         (cd /mnt/tree; sha256sum -c -s /rig/sums)\n\
         dd if=/dev/urandom of=/mnt/ballast bs=1M count=24 conv=fsync 2>/dev/null\n\
         full=$(du -k /data/d0.img | cut -f1); rm /mnt/ballast; sync; /usr/sbin/fstrim /mnt\n\
         left=$(du -k /data/d0.img | cut -f1); echo \"$full KiB, trimmed $left\"\n\
         [ $((left + 20000)) -lt $full ]\n\
         ends 1 ashlar detach 0; grep 'mounted on /mnt' /tmp/ends",
    );
    add(
        script,
        "it grows under the file system",
        &format!(
            "sed 's/{{size}}/{GROWN_BYTES}/' /rig/config >/data/ashlar.toml\n\
             ashlar apply /data/ashlar.toml; within 10 bytes /dev/nbd0 {GROWN_BYTES}\n\
             /usr/sbin/resize2fs /dev/nbd0 >/dev/null 2>&1\n\
             [ $(df -k /mnt | awk 'END {{print $2}}') -gt 80000 ]"
        ),
    );
}

fn outlived(script: &mut Script) {
    add(
        script,
        "killed and started again under a writer",
        "mkdir -p /mnt/files; rm -f /tmp/stop\n\
         (write_and_acknowledge /mnt/files /tmp/list) >/tmp/writes 2>&1 &\n\
         echo $! >/tmp/writer; wait_lines /tmp/list 20 $!\n\
         killed; sleep 1; begin; within 20 served\n\
         says ashlar attach --list -- '/dev/nbd0 .*mounted on /mnt'\n\
         more 20",
    );
    add(
        script,
        "started again without the image under a writer, which waits for it",
        "killed; mv /data/d0.img /data/away; ashlar serve >>/tmp/log 2>&1 & echo $! >/tmp/pid\n\
         waits() { ends 3 ashlar status && fact /tmp/ends 'd0.img'; }; within 30 waits\n\
         kill -0 \"$(cat /tmp/writer)\"; mv /data/away /data/d0.img; within 40 served; more 20",
    );
    add(
        script,
        "ended in order and started again under a writer",
        "ended; [ -e /sys/block/nbd0/backend ]; begin; within 20 served; more 20\n\
         touch /tmp/stop; over /tmp/writer\n\
         cat /tmp/writes | grep -v '^@@ACK' || true\n\
         ! dmesg | grep -E 'I/O error, dev nbd0|EXT4-fs error'",
    );
    add(
        script,
        "all that was acknowledged is there",
        "echo 3 >/proc/sys/vm/drop_caches; (cd /mnt/files; sha256sum -c -s /tmp/list)\n\
         (cd /mnt/tree; sha256sum -c -s /rig/sums); echo \"$(lines /tmp/list) files\"\n\
         umount /mnt; /usr/sbin/e2fsck -fn /dev/nbd0\n\
         ends 0 ashlar detach 0; [ ! -e /sys/block/nbd0/backend ]\n\
         says ashlar attach --list -- 'nothing is attached'\n\
         within 5 grep -q '^0$' /proc/$(cat /tmp/pid)/oom_score_adj",
    );
}

fn only_open(script: &mut Script) {
    add(
        script,
        "one that is only open is in use",
        "ends 0 ashlar attach 0; within 5 served; sleep 1000 </dev/nbd0 & holder=$!\n\
         # A machine with other work may not look at every process in the time that it has.\n\
         refused() { ends 1 ashlar detach 0 &&\n\
         fact /tmp/ends \"open in sleep .pid $holder.\" 'ashlar detach 0 --force'; }\n\
         listed() { says ashlar attach --list -- \"/dev/nbd0 .*open in sleep .pid $holder.\"; }\n\
         within 20 refused; within 20 listed\n\
         ended; [ -e /sys/block/nbd0/backend ]; begin; within 20 served\n\
         dd if=/dev/nbd0 of=/dev/null bs=64k count=1 iflag=direct 2>/dev/null\n\
         ends 0 ashlar detach 0 --force; kill $holder\n\
         within 5 test ! -e /sys/block/nbd0/backend",
    );
}

fn by_fuse(script: &mut Script) {
    add(
        script,
        "by FUSE, when somebody says so",
        "ends 0 ashlar attach 0 --by fuse; fact /tmp/ends '^/dev/loop0$'\n\
         [ $(cat /sys/block/loop0/queue/max_sectors_kb) -ge 128 ]\n\
         ends 1 ashlar attach 0 --by nbd; grep 'already' /tmp/ends\n\
         /usr/sbin/e2fsck -fn /dev/loop0; mount -t ext4 /dev/loop0 /mnt\n\
         (cd /mnt/tree; sha256sum -c -s /rig/sums); cp -r /rig/tree /mnt/again; sync\n\
         (cd /mnt/again; sha256sum -c -s /rig/sums); rm -r /mnt/files; /usr/sbin/fstrim /mnt\n\
         umount /mnt; /usr/sbin/e2fsck -fn /dev/loop0; ends 0 ashlar detach 0",
    );
    add(
        script,
        "nothing is left behind",
        "ends 0 ashlar attach 0; ended; [ ! -e /sys/block/nbd0/backend ]\n\
         ! grep -q fuse.ashlar /proc/mounts; /usr/sbin/e2fsck -fn /data/d0.img\n\
         ! grep -E 'panicked|no access group' /tmp/log",
    );
}

/// LUNs are block devices of the machine and outlive the daemon.
pub fn check(guest: &mut SharedGuest) {
    let mut script = daemon_script(200, SHELL_FUNCTIONS);
    script.file("rig/config", CONFIG);
    nbd(&mut script);
    outlived(&mut script);
    only_open(&mut script);
    by_fuse(&mut script);
    run(guest, &script);
}
