//! A kernel that connects while disks are missing. They become its own when their images appear,
//! without a command on the host for NVMe, and with the usual rescan for iSCSI. A disk that is
//! missing after a restart is waited for by requests that were sent to it.

use std::net::SocketAddr;
use std::path::Path;

use rig::Login;
use rig::guest::{HOST, Script, SharedGuest, guest_portal};
use rig::proc::free_port;
use rig::scenarios::{self, From, GO};

use crate::fixture::{Fixture, IQN, file_disk, tool};
use crate::guests::BOOT;

/// The subsystem.
const NQN: &str = "nqn.2026-11.test.ashlar:missing";
const BYTES: u64 = 24 << 20;

const OTHERS: &str = r#"
[[target]]
driver = "nvme_tcp"
name = "{nqn}"
listen = ["{nvme}"]

[[access]]
target = "{nqn}"
group = "all"
initiators = ["*"]
luns = { 0 = "here", 1 = "n1" }

[[target]]
driver = "nbd"
name = "n"
listen = ["{nbd}"]

[[access]]
target = "n"
group = "all"
initiators = ["ip:127.0.0.1"]
luns = { 0 = "here", 1 = "b1" }
"#;

/// Images that appear later; the file in each contains its name.
const LATE: [&str; 3] = ["i1", "n1", "b1"];

/// An ext4 file system with a file `who` that holds the name of the image.
fn fill(fixture: &Fixture, name: &str) {
    let (folder, image) =
        (fixture.path(&format!("{name}.d")), fixture.path(&format!("{name}.img")));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("who"), name).unwrap();
    let part = fixture.path(&format!("{name}.part"));
    std::fs::File::create(&part).unwrap().set_len(BYTES).unwrap();
    let (folder, at) = (folder.to_str().unwrap(), part.to_str().unwrap());
    tool("mke2fs", &["-q", "-F", "-t", "ext4", "-d", folder, at], "");
    // A whole image or none: the daemon looks at any moment.
    std::fs::rename(&part, image).unwrap();
}

fn steps(portal: &str, nvme: u16, nbd: u16) -> Script {
    let mut script = Script::new();
    let initiator = Login::INITIATOR;
    script.step(
        "connected while disks are missing",
        format!(
            "start_iscsid {initiator}; node {IQN} {portal}\n\
             iscsiadm -m node -T {IQN} -p {portal} --login >/dev/null; disk {IQN} 0\n\
             ! ls -d /sys/class/iscsi_session/*/device/target*/*:1\n\
             nvme connect -t tcp -a {HOST} -s {nvme} -n {NQN} --reconnect-delay=1 \
             --keep-alive-tmo=5\n\
             within 10 [ -b /dev/nvme0n1 ]; [ ! -b /dev/nvme0n2 ]\n\
             ! nbd-client {HOST} {nbd} /dev/nbd0 -N b1"
        ),
    );
    script.step(
        "they appear",
        format!(
            "told appear; within 20 [ -b /dev/nvme0n2 ]\n\
             mount -t ext4 /dev/nvme0n2 /mnt; [ \"$(cat /mnt/who)\" = n1 ]\n\
             within 20 nbd-client {HOST} {nbd} /dev/nbd0 -N b1; within 10 nbd-client -c /dev/nbd0\n\
             mkdir -p /nbd /iscsi; mount -t ext4 -o ro /dev/nbd0 /nbd\n\
             [ \"$(cat /nbd/who)\" = b1 ]\n\
             seen() {{ iscsiadm -m node -T {IQN} -R >/dev/null\n\
             ls -d /sys/class/iscsi_session/*/device/target*/*:1/block; }}\n\
             within 20 seen; mount -t ext4 $(disk {IQN} 1) /iscsi\n\
             [ \"$(cat /iscsi/who)\" = i1 ]"
        ),
    );
    script.step(
        "a restart without them, and they come back under what is mounted",
        "told vanish; echo 3 >/proc/sys/vm/drop_caches\n\
         writes() { dd if=/dev/zero of=$1/file bs=64k count=16 conv=fsync 2>$2; echo $? >$2.rc; }\n\
         writes /mnt /tmp/n & writes /iscsi /tmp/i &\n\
         sleep 8; [ ! -e /tmp/n.rc ]; [ ! -e /tmp/i.rc ]; told back\n\
         within 40 [ -e /tmp/n.rc ]; within 40 [ -e /tmp/i.rc ]\n\
         cat /tmp/n /tmp/i; [ $(cat /tmp/n.rc) = 0 ]; [ $(cat /tmp/i.rc) = 0 ]\n\
         [ \"$(cat /mnt/who)\" = n1 ]; [ \"$(cat /iscsi/who)\" = i1 ]\n\
         umount /mnt; umount /iscsi; /usr/sbin/e2fsck -fn /dev/nvme0n2\n\
         dmesg >/tmp/dmesg; ! grep -E 'EXT4-fs error|Aborting journal' /tmp/dmesg"
            .to_owned(),
    );
    script
}

fn move_all(fixture: &Fixture, from: &str, to: &str) {
    for name in ["i1", "n1"] {
        let at = |suffix: &str| fixture.path(&format!("{name}{suffix}"));
        std::fs::rename::<_, &Path>(at(from), &at(to)).unwrap();
    }
}

/// Hosts find late disks and wait for absent ones.
pub fn check(guest: &mut SharedGuest) {
    let mut fixture = Fixture::alone("missing");
    fixture.image("here.img", BYTES);
    let names = ["here", "i1", "n1", "b1"];
    let disks: String = names.map(|name| file_disk(name, &format!("{name}.img"))).concat();
    let [nvme, nbd] = [(); 2].map(|()| SocketAddr::from(([127, 0, 0, 1], free_port().unwrap())));
    let others = OTHERS.replace("{nqn}", NQN).replace("{nvme}", &nvme.to_string());
    let others = others.replace("{nbd}", &nbd.to_string());
    fixture.configure(&format!("{disks}{others}"), "0 = \"here\", 1 = \"i1\"");
    fixture.start();
    let script = steps(&guest_portal(fixture.portal()), nvme.port(), nbd.port());
    let mut asked_for = 0;
    let conversed = scenarios::converse(From::Shared(guest), &script, BOOT, &mut |request| {
        asked_for += 1;
        match request {
            "appear" => LATE.iter().for_each(|name| fill(&fixture, name)),
            "vanish" => {
                fixture.kill();
                move_all(&fixture, ".img", ".away");
                fixture.start();
            }
            "back" => move_all(&fixture, ".away", ".img"),
            _ => panic!("the guest asked {request:?}"),
        }
        Ok(GO.to_owned())
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", fixture.log()));
    println!("{}", conversed.run.summary());
    assert_eq!(asked_for, 3);
    fixture.stop();
}
