//! The kernel's own host of NVMe over TCP and nvme-cli. An association has several queues and
//! digests. A file system is written while the daemon is killed, grown, and trimmed.

use std::net::SocketAddr;

use rig::guest::{HOST, Script, SharedGuest};
use rig::proc::free_port;
use rig::scenarios::{self, From, GO, Tree};

use crate::fixture::{Fixture, array, file_disk, text};
use crate::guests::{BOOT, stored_bytes};

/// The subsystem.
const NQN: &str = "nqn.2026-11.test.ashlar:store";
/// The host's name, as the guest has it.
const GUEST: &str = "nqn.2026-11.test.ashlar:guest";
/// Size of the unit, before and after it grows.
const UNIT_BYTES: u64 = 96 << 20;
const GROWN_BYTES: u64 = 128 << 20;
/// Data that is written to be deleted, MiB.
const BALLAST_MIB: u64 = 24;
/// The journal, MiB: it takes up to so much of the file while the ballast is removed.
const JOURNAL_MIB: u64 = 4;

const SUBSYSTEMS: &str = r#"
[[target]]
driver = "nvme_tcp"
name = "{nqn}"
listen = ["{nvme}"]

[[access]]
target = "{nqn}"
group = "all"
initiators = ["{guest}"]
luns = { 0 = "disk", 4 = { provider = "protected", mode = "ro" } }

[[target]]
driver = "nvme_tcp"
name = "{nqn}-of-others"
listen = ["{nvme}"]

[[access]]
target = "{nqn}-of-others"
group = "all"
initiators = ["nqn.2026-11.test.ashlar:other"]
luns = { 0 = "protected" }
"#;

/// Output of nvme-cli about the controller and its namespaces.
fn discovery_script(port: u16) -> String {
    format!(
        "n=/dev/nvme0n1; f=/tmp/out\n\
         nvme discover -t tcp -a {HOST} -s {port} >$f\n\
         fact $f 'subnqn: +{NQN}$' 'sectype: none' 'trsvcid: +{port}'; ! grep others $f\n\
         nvme connect -t tcp -a {HOST} -s {port} -n {NQN} -i 1 -W 1 -P 1 -g -G \
         --reconnect-delay=1 --keep-alive-tmo=5\n\
         within 10 [ -b $n ]; within 10 [ -b /dev/nvme0n2 ]; told connected\n\
         says nvme list-ns /dev/nvme0 -- '0\\]:0x1$' '1\\]:0x5$'\n\
         says nvme id-ctrl /dev/nvme0 -H -- 'Data Set Management Supported' \
         'Write Zeroes Supported' 'Compare Supported' 'Reservations Not Supported' \
         'Volatile Write Cache Present' '^subnqn +: {NQN}'\n\
         says nvme id-ns $n -- 'nsze +: 0x30000$' 'dlfeat +: 9' 'nsattr.: 0$'\n\
         says nvme id-ns /dev/nvme0n2 -- 'nsattr.: (0x)?1$'\n\
         says nvme ns-descs $n -- 'uuid +: '\n\
         says nvme nvm-id-ctrl /dev/nvme0 -- 'dmrl +: 255'\n\
         says nvme smart-log /dev/nvme0 -- 'critical_warning.*: 0$'\n\
         nvme error-log /dev/nvme0 >$f; nvme fw-log /dev/nvme0 >$f\n\
         nvme effects-log /dev/nvme0 >$f\n\
         nvme changed-ns-list-log /dev/nvme0 >$f; nvme get-feature /dev/nvme0 -f 7 >$f\n\
         [ \"$(cat /sys/block/nvme0n1/queue/write_cache)\" = 'write back' ]\n\
         [ $(cat /sys/block/nvme0n1/queue/discard_max_bytes) -gt 0 ]\n\
         [ $(cat /sys/block/nvme0n1/queue/write_zeroes_max_bytes) -gt 0 ]\n\
         [ $(cat /sys/block/nvme0n2/ro) = 1 ]; dd if=/dev/nvme0n2 of=/dev/null bs=1M count=1\n\
         head -c 4096 /dev/urandom >/tmp/block\n\
         nvme write $n -s 8 -c 7 -z 4096 -d /tmp/block\n\
         nvme compare $n -s 8 -c 7 -z 4096 -d /tmp/block\n\
         ! nvme compare $n -s 16 -c 7 -z 4096 -d /tmp/block\n\
         nvme verify $n -s 8 -c 7; nvme flush $n -n 1; nvme write-zeroes $n -s 8 -c 3 -d\n\
         nvme dsm $n -n 1 -d -s 12,14 -b 2,2; nvme read $n -s 8 -c 7 -z 4096 -d /tmp/back\n\
         head -c 4096 /dev/zero | cmp - /tmp/back"
    )
}

fn steps(port: u16, tree: &Tree) -> Script {
    let mut script = Script::new();
    script.files = tree.guest_files();
    script.step("an association, and what it says of itself", discovery_script(port));
    let compare = "cd /mnt/tree; sha256sum -c -s /rig/sums\n\
                   [ $(find . -type f | wc -l) = $(lines /rig/sums) ]; cd /\n";
    script.step(
        "a file system, a tree, a remount",
        format!(
            "# Its tables are written now: what is allocated later is what the steps wrote.\n\
             /usr/sbin/mke2fs -q -F -t ext4 -J size={JOURNAL_MIB} \
             -E lazy_itable_init=0,lazy_journal_init=0 /dev/nvme0n1\n\
             mount -t ext4 /dev/nvme0n1 /mnt\n\
             cp -r /rig/tree /mnt/tree; sync; umount /mnt; mount -t ext4 /dev/nvme0n1 /mnt\n\
             {compare}"
        ),
    );
    script.step(
        "the daemon is killed while files are written",
        "mkdir /mnt/files; (write_and_acknowledge /mnt/files /tmp/acknowledged) &\n\
         writer=$!; wait_lines /tmp/acknowledged 20 $writer; told kill\n\
         before=$(lines /tmp/acknowledged)\n\
         wait_lines /tmp/acknowledged $((before + 20)) $writer; touch /tmp/stop; wait $writer\n\
         cd /mnt/files; echo 3 >/proc/sys/vm/drop_caches; sha256sum -c -s /tmp/acknowledged; cd /\n\
         dmesg >/tmp/dmesg; fact /tmp/dmesg 'Successfully reconnected'\n\
         ! grep -E 'I/O error|EXT4-fs error' /tmp/dmesg"
            .to_owned(),
    );
    script.step(
        "the unit grows",
        format!(
            "told grow; grown() {{ [ $(blockdev --getsize64 /dev/nvme0n1) = {GROWN_BYTES} ]; }}\n\
             within 10 grown; /usr/sbin/resize2fs /dev/nvme0n1 2>/tmp/grown\n\
             [ $(df -k /mnt | tail -n 1 | awk '{{ print $2 }}') -gt 100000 ]"
        ),
    );
    script.step(
        "what is trimmed is gone from the file",
        format!(
            "dd if=/dev/urandom of=/mnt/ballast bs=1M count={BALLAST_MIB} conv=fsync 2>/dev/null\n\
             told filled; rm /mnt/ballast; sync; /usr/sbin/fstrim -v /mnt; told trimmed\n\
             mount -o remount,discard /mnt\n\
             dd if=/dev/urandom of=/mnt/ballast bs=1M count={BALLAST_MIB} conv=fsync 2>/dev/null\n\
             told filled; rm /mnt/ballast; sync; sleep 6; sync; told trimmed"
        ),
    );
    script.step(
        "nothing to repair, nothing lost",
        format!(
            "echo 3 >/proc/sys/vm/drop_caches; {compare} umount /mnt\n\
             /usr/sbin/e2fsck -fn /dev/nvme0n1; told checked\n\
             /usr/sbin/blkdiscard -f /dev/nvme0n1; told emptied\n\
             nvme disconnect -n {NQN}; told gone"
        ),
    );
    script
}

/// Linux makes, fills, grows and trims a file system, over a kill of the daemon.
pub fn check(guest: &mut SharedGuest) {
    let mut fixture = Fixture::alone("nvme");
    let file = fixture.image("disk.img", UNIT_BYTES);
    fixture.image("protected.img", UNIT_BYTES);
    let nvme: SocketAddr = ([127, 0, 0, 1], free_port().unwrap()).into();
    let disks = [file_disk("disk", "disk.img"), file_disk("protected", "protected.img")].concat();
    let subsystems = SUBSYSTEMS.replace("{nvme}", &nvme.to_string()).replace("{nqn}", NQN);
    fixture.write("ashlar.toml", &format!("{disks}{}", subsystems.replace("{guest}", GUEST)));
    fixture.start();
    let script = steps(nvme.port(), &Tree::some(120).unwrap());
    let (mut asked_for, mut filled) = (0, 0);
    let conversed = scenarios::converse(From::Shared(guest), &script, BOOT, &mut |request| {
        asked_for += 1;
        match request {
            "connected" => {
                let sessions = fixture.json(&["sessions"]);
                let live = array(&sessions["sessions"]);
                assert_eq!(live.len(), 4, "an admin queue and three others: {sessions:#}");
                let who = text(&live[0]["session"]["initiator"]);
                assert_eq!(who, GUEST, "{sessions:#}");
                let digests = &live[0]["session"]["digests"];
                assert!(digests["header"] == true && digests["data"] == true, "{sessions:#}");
            }
            "kill" => {
                fixture.kill();
                fixture.start();
            }
            "grow" => {
                std::fs::File::options().write(true).open(&file)?.set_len(GROWN_BYTES)?;
                fixture.ok(&["geom", "disk", "resize", "name=disk"]);
            }
            "filled" => filled = stored_bytes(&file),
            "trimmed" => {
                let left = stored_bytes(&file);
                println!("{filled} bytes, trimmed {left}");
                let given_back = (BALLAST_MIB - JOURNAL_MIB) << 20;
                assert!(left + given_back <= filled, "of {filled} bytes {left} are left");
            }
            "checked" => scenarios::check_clean(&file)?,
            "emptied" => {
                let left = stored_bytes(&file);
                assert!(left < 1 << 20, "{left} bytes are left");
            }
            "gone" => {
                let sessions = fixture.json(&["sessions"]);
                assert!(array(&sessions["sessions"]).is_empty(), "{sessions:#}");
            }
            _ => panic!("the guest asked {request:?}"),
        }
        Ok(GO.to_owned())
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", fixture.log()));
    println!("{}", conversed.run.summary());
    assert_eq!(asked_for, 10);
    fixture.stop();
}
