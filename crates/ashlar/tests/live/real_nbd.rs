//! The kernel's own network block device and nbd-client: one export over two connections, with a
//! file system that is trimmed and checked.

use std::net::SocketAddr;

use rig::guest::{HOST, Script, SharedGuest};
use rig::proc::free_port;
use rig::scenarios::{self, From, GO, Tree};

use crate::fixture::{Fixture, array, file_disk, text};
use crate::guests::{BOOT, stored_bytes};

const UNIT_BYTES: u64 = 96 << 20;
/// Data that is written to be deleted, MiB.
const BALLAST_MIB: u64 = 24;

const EXPORTS: &str = r#"
[[target]]
driver = "nbd"
name = "store"
listen = ["{nbd}"]

[[access]]
target = "store"
group = "all"
initiators = ["ip:127.0.0.1"]
luns = { 0 = "disk", 2 = "large", 4 = { provider = "protected", mode = "ro" } }
"#;

fn steps(port: u16, tree: &Tree) -> Script {
    let mut script = Script::new();
    script.files = tree.guest_files();
    script.step(
        "two connections to an export",
        format!(
            "nbd-client -l {HOST} {port} >/tmp/list 2>&1 || true; cat /tmp/list\n\
             fact /tmp/list '^(store/)?disk' '^(store/)?protected'\n\
             nbd-client {HOST} {port} /dev/nbd0 -N disk -C 2 -t 30\n\
             within 10 nbd-client -c /dev/nbd0\n\
             [ $(blockdev --getsize64 /dev/nbd0) = {UNIT_BYTES} ]\n\
             [ $(cat /sys/block/nbd0/ro) = 0 ]\n\
             [ $(cat /sys/block/nbd0/queue/discard_max_bytes) -gt 0 ]\n\
             [ \"$(cat /sys/block/nbd0/queue/write_cache)\" = 'write back' ]; told connected"
        ),
    );
    script.step(
        "a write-protected one",
        format!(
            "nbd-client {HOST} {port} /dev/nbd1 -N 4; within 10 nbd-client -c /dev/nbd1\n\
             [ $(cat /sys/block/nbd1/ro) = 1 ]; dd if=/dev/nbd1 of=/dev/null bs=1M count=1\n\
             ! dd if=/dev/zero of=/dev/nbd1 bs=4k count=1 conv=fsync; nbd-client -d /dev/nbd1\n\
             ! nbd-client {HOST} {port} /dev/nbd2 -N nobody"
        ),
    );
    let compare = "cd /mnt/tree; sha256sum -c -s /rig/sums\n\
                   [ $(find . -type f | wc -l) = $(lines /rig/sums) ]; cd /\n";
    script.step(
        "blocks of 4096 bytes",
        format!(
            "nbd-client {HOST} {port} /dev/nbd3 -N large; within 10 nbd-client -c /dev/nbd3\n\
             /usr/sbin/mke2fs -q -F -t ext4 /dev/nbd3; mount -t ext4 /dev/nbd3 /mnt\n\
             cp -r /rig/tree /mnt/tree; sync; umount /mnt; mount -t ext4 /dev/nbd3 /mnt\n\
             {compare} umount /mnt; /usr/sbin/e2fsck -fn /dev/nbd3\n\
             nbd-client -d /dev/nbd3; within 10 ends 1 nbd-client -c /dev/nbd3"
        ),
    );
    script.step(
        "a file system, a tree, a remount",
        format!(
            "# Its tables are written now: what is allocated later is what the steps wrote.\n\
             /usr/sbin/mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 /dev/nbd0\n\
             mount -t ext4 /dev/nbd0 /mnt\n\
             cp -r /rig/tree /mnt/tree; sync; umount /mnt; mount -t ext4 /dev/nbd0 /mnt; {compare}"
        ),
    );
    script.step(
        "what is trimmed is gone from the file",
        format!(
            "dd if=/dev/urandom of=/mnt/ballast bs=1M count={BALLAST_MIB} conv=fsync 2>/dev/null\n\
             told filled; rm /mnt/ballast; sync; /usr/sbin/fstrim -v /mnt; told trimmed"
        ),
    );
    script.step(
        "nothing to repair, nothing lost",
        format!(
            "echo 3 >/proc/sys/vm/drop_caches; {compare} umount /mnt\n\
             /usr/sbin/e2fsck -fn /dev/nbd0\n\
             ! dmesg | grep -E 'nbd0: (Connection|Receive|I/O)|I/O error, dev nbd0'\n\
             nbd-client -d /dev/nbd0; within 10 ends 1 nbd-client -c /dev/nbd0; told gone"
        ),
    );
    script
}

/// nbd-client makes, fills and trims a file system.
pub fn check(guest: &mut SharedGuest) {
    let mut fixture = Fixture::alone("nbd");
    let file = fixture.image("disk.img", UNIT_BYTES);
    fixture.image("protected.img", UNIT_BYTES);
    fixture.image("large.img", UNIT_BYTES);
    let nbd: SocketAddr = ([127, 0, 0, 1], free_port().unwrap()).into();
    let disks = ["disk", "protected", "large"].map(|name| file_disk(name, &format!("{name}.img")));
    let disks = format!("{}sector_size = 4096\n", disks.concat());
    let exports = EXPORTS.replace("{nbd}", &nbd.to_string());
    fixture.write("ashlar.toml", &format!("{disks}{exports}"));
    fixture.start();
    let script = steps(nbd.port(), &Tree::some(120).unwrap());
    let (mut asked_for, mut filled) = (0, 0);
    let conversed = scenarios::converse(From::Shared(guest), &script, BOOT, &mut |request| {
        asked_for += 1;
        let sessions = fixture.json(&["sessions"]);
        let live = array(&sessions["sessions"]);
        match request {
            "connected" => {
                assert_eq!(live.len(), 2, "{sessions:#}");
                let who = text(&live[0]["session"]["initiator"]);
                assert_eq!(who, "ip:127.0.0.1", "{sessions:#}");
            }
            "filled" => filled = stored_bytes(&file),
            "trimmed" => {
                let left = stored_bytes(&file);
                println!("{filled} bytes, trimmed {left}");
                assert!(left + (BALLAST_MIB << 20) <= filled + (1 << 20), "nothing given back");
            }
            "gone" => assert!(live.is_empty(), "{sessions:#}"),
            _ => panic!("the guest asked {request:?}"),
        }
        Ok(GO.to_owned())
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", fixture.log()));
    println!("{}", conversed.run.summary());
    assert_eq!(asked_for, 4);
    fixture.stop();
    scenarios::check_clean(&file).unwrap();
}
