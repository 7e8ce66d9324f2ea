//! A shelf of a daemon on this machine and the `aoe` driver of a guest's kernel, with a tap device
//! between them. `aoe-stat` shows it, a file system is made, filled, mounted again and checked from
//! both ends. Needs root.

use std::fs;
use std::process::Command;

use rig::guest::{Script, SharedGuest};
use rig::proc;
use rig::scenarios::{self, Tree};

use crate::fixture::{Fixture, file_disk, tool};
use crate::guests::BOOT;

const UNIT_BYTES: u64 = 64 << 20;
/// Address of the guest's card at the tap device.
pub const GUEST: &str = "02:00:00:00:00:07";

/// A tap device, away with it.
pub struct Tap(String);

impl Tap {
    /// A new one, up.
    pub fn new() -> Tap {
        let tap = Tap(format!("atap{}", std::process::id() % 100_000));
        let ip = |line: String| tool("ip", &line.split(' ').collect::<Vec<_>>(), "");
        ip(format!("tuntap add dev {} mode tap", tap.0));
        ip(format!("link set {} up mtu 9000", tap.0));
        tap
    }

    pub fn name(&self) -> &str {
        &self.0
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        let _ = Command::new("ip").args(["link", "del", &self.0]).status();
    }
}

fn config(tap: &Tap) -> String {
    format!(
        "{}[[target]]\ndriver = \"aoe\"\nname = \"e565\"\nlisten = [\"ether:{}\"]\nshelf = 565\n\
         [[access]]\ntarget = \"e565\"\ngroup = \"guest\"\ninitiators = [\"mac:{GUEST}\"]\n\
         luns = {{ 0 = \"d0\" }}\n",
        file_disk("d0", "d0.img"),
        tap.0
    )
}

/// The kernel's AoE driver uses a shelf over the tap device, at which it has its card `eth2`.
pub fn check(guest: &mut SharedGuest, tap: &Tap) {
    let mut fixture = Fixture::alone("tap");
    let disk = fixture.image("d0.img", UNIT_BYTES);
    fixture.write("ashlar.toml", &config(tap));
    fixture.start();
    let mut script = Script::new();
    script.files = Tree::some(80).unwrap().guest_files();
    let stat = fs::read(proc::tool("aoe-stat").unwrap()).unwrap();
    script.file("rig/aoe-stat", stat);
    script.step(
        "aoe-stat shows the shelf",
        "ip link set eth2 up mtu 9000\n\
         discover() { echo >/dev/etherd/discover; sleep 0.2; [ -b /dev/etherd/e565.0 ]; }\n\
         within 30 discover; sh /rig/aoe-stat\n\
         says sh /rig/aoe-stat -- 'e565.0 .*GB .*eth2 .*8704 .*up'",
    );
    script.step(
        "a file system, a tree, a remount",
        "disk=/dev/etherd/e565.0; [ $(blockdev --getsize64 $disk) = 67108864 ]\n\
         /usr/sbin/mke2fs -q -F -t ext4 -b 4096 $disk; mount -t ext4 $disk /mnt\n\
         cp -r /rig/tree /mnt/tree; sync; umount /mnt; mount -t ext4 $disk /mnt\n\
         (cd /mnt/tree; sha256sum -c -s /rig/sums); umount /mnt; /usr/sbin/e2fsck -fn $disk",
    );
    let run = guest.run(&script, BOOT, &mut |_, _| Ok(())).unwrap();
    run.expect_ok().unwrap_or_else(|e| panic!("{e:#}\n{}", fixture.log()));
    println!("{}", run.summary());
    let sessions = fixture.ok(&["sessions", "--json"]);
    assert!(sessions.contains(GUEST), "{sessions}");
    fixture.assert_alive();
    fixture.stop();
    scenarios::check_clean(&disk).unwrap();
}
