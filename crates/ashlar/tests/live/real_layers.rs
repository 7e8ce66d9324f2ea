//! Layers inserted under file systems that a real Linux kernel has mounted over iSCSI. They are a
//! scheduler whose algorithm changes under way, a disk that does nothing, and a queue of deletes.
//! The kernel's reads and writes meanwhile are checked, and `e2fsck` finds nothing to repair.
//! Blocks that the kernel deletes through the queue are freed in the image file.

use std::time::Duration;

use rig::guest::{Script, SharedGuest, guest_portal};
use rig::scenarios::{self, From, GO, Tree};

use crate::fixture::{Fixture, IQN, array, file_disk, text};
use crate::guests::{BOOT, stored_bytes};

const UNIT_BYTES: u64 = 192 << 20;
/// Data that is written to be deleted, MiB.
const BALLAST_MIB: u64 = 16;
/// Remainder that is permitted: the file systems' own writes in between.
const SLACK: u64 = 4 << 20;
/// Times that layers are added and removed under load.
const ROUNDS: usize = 2;
/// Files that the kernel must call durable between two changes.
const FILES_BETWEEN: usize = 2;
/// Longest time from a delete's answer to the image file, without a command that hurries it.
const SENT_LIMIT: Duration = Duration::from_secs(60);

/// The changes of a round, each made while files are written and read.
const CHANGES: &[&[&str]] = &[
    &["sched", "insert", "-a", "rr", "d0"],
    &["sched", "configure", "-a", "as", "d0.sched."],
    &["geom", "nop", "insert", "name=between", "provider=d0"],
    &["sched", "configure", "-a", "deadline", "d0.sched."],
    &["sched", "configure", "-a", "fair", "--options", "iops=400", "d0.sched."],
    &["geom", "nop", "remove", "name=between"],
    &["sched", "configure", "-a", "fifo", "d0.sched."],
    &["sched", "destroy", "d0.sched."],
];

const BOTH: &str = ". /rig/names\n\
    both() { $1 0 $P; $1 1 $Q; }\n\
    compare() { cd $1/tree; sha256sum -c -s /rig/sums\n\
        [ $(find . -type f | wc -l) = $(lines /rig/sums) ]; cd /; }\n\
    ballast() { dd if=/dev/urandom of=/fs/$1/ballast bs=1M count=$2 conv=fsync 2>/dev/null; }\n";

fn steps(portal: &str, tree: &Tree) -> Script {
    let mut script = Script::new();
    let mut step = |name: &str, shell: &str| {
        script
            .step(name, if name == "log in" { shell.to_owned() } else { format!("{BOTH}{shell}") });
    };
    step("log in", &scenarios::log_in_to_two(IQN, portal, ["P", "Q"]));
    step(
        "two file systems, one of which tells what it deletes at once",
        "one() { /usr/sbin/mke2fs -q -F -t ext4 $2; mkdir -p /fs/$1; }; both one\n\
         mount -t ext4 $P /fs/0; mount -t ext4 -o discard $Q /fs/1\n\
         one() { cp -r /rig/tree /fs/$1/tree; }; both one; sync; mkdir /fs/0/files",
    );
    let changes = ROUNDS * CHANGES.len();
    step(
        "layers come and go under files that are written and read",
        &format!(
            "rm -f /tmp/stop /tmp/list; write_and_acknowledge /fs/0/files /tmp/list & writer=$!\n\
             ( while [ ! -e /tmp/stop ]; do echo 3 >/proc/sys/vm/drop_caches\n\
                 compare /fs/0; done ) & reader=$!\n\
             for change in $(seq 0 {}); do\n\
                 before=$(lines /tmp/list)\n\
                 wait_lines /tmp/list $((before + {FILES_BETWEEN})) $writer\n\
                 kill -0 $reader; told change $change\n\
             done\n\
             touch /tmp/stop; wait $writer; wait $reader; compare /fs/0",
            changes - 1
        ),
    );
    step(
        "what is written is there after a mount, and there is nothing to repair",
        "umount /fs/0; /usr/sbin/e2fsck -fn $P; mount -t ext4 $P /fs/0; compare /fs/0\n\
         cd /fs/0/files; sha256sum -c -s /tmp/list; cd /\n\
         ! dmesg | grep -i -E 'I/O error|conn error|EXT4-fs.*error'",
    );
    step(
        "what a mounted file system deletes goes through the queue to the file",
        &format!(
            "told queue; ballast 1 {BALLAST_MIB}; told filled 1\n\
             rm /fs/1/ballast; sync; told emptied 1"
        ),
    );
    step(
        "what fstrim deletes too, when the queue is asked to hurry",
        &format!(
            "ballast 0 {BALLAST_MIB}; told filled 0; rm /fs/0/ballast; sync\n\
             /usr/sbin/fstrim -v /fs/0; told hurry; told emptied 0"
        ),
    );
    step(
        "bytes that were freed are written again, beside deletes that wait",
        "for round in 1 2 3; do\n\
             for at in 0 1; do ballast $at 6; sum=$(sha256sum </fs/$at/ballast)\n\
                 cp /fs/$at/ballast /fs/$at/kept; rm /fs/$at/ballast; sync\n\
                 echo 3 >/proc/sys/vm/drop_caches\n\
                 [ \"$(sha256sum </fs/$at/kept)\" = \"$sum\" ]; done\n\
             /usr/sbin/fstrim /fs/0\n\
         done; rm /fs/*/kept; sync; told unqueue; one() { compare /fs/$1; }; both one",
    );
    step(
        "nothing to repair",
        "one() { umount /fs/$1; /usr/sbin/e2fsck -fn $2; }; both one\n\
         ! dmesg | grep -i -E 'I/O error|conn error|EXT4-fs.*error'",
    );
    step("log out", "iscsiadm -m node -u >/dev/null; ! ls /sys/block/sd*");
    for (place, bytes) in tree.guest_files() {
        script.file(&place, bytes);
    }
    script
}

fn geoms(fixture: &Fixture, class: &str) -> Vec<String> {
    let state = fixture.state();
    let all = array(&state["geoms"]).iter().filter(|g| text(&g["class"]) == class);
    all.map(|g| text(&g["name"])).collect()
}

/// Layers are inserted and removed under mounted file systems.
pub fn check(guest: &mut SharedGuest) {
    let mut fixture = Fixture::alone("layers");
    let files = ["d0.img", "d1.img"].map(|name| fixture.image(name, UNIT_BYTES));
    let disks = [file_disk("d0", "d0.img"), file_disk("d1", "d1.img")].concat();
    fixture.configure(&disks, "0 = \"d0\", 1 = \"d1\"");
    fixture.start();
    let tree = Tree::some(120).unwrap();
    let script = steps(&guest_portal(fixture.portal()), &tree);

    let (mut changes, mut requests) = (0, Vec::new());
    let mut filled = [0; 2];
    let conversed = scenarios::converse(From::Shared(guest), &script, BOOT, &mut |request| {
        let (verb, word) = request.split_once(' ').unwrap_or((request, ""));
        let number = || word.parse::<usize>().unwrap();
        match verb {
            "change" => {
                assert_eq!(number(), changes, "every change once");
                fixture.ok(CHANGES[changes % CHANGES.len()]);
                changes += 1;
                return Ok(GO.to_owned());
            }
            "queue" => {
                for disk in ["d0", "d1"] {
                    fixture.ok(&["trim", "insert", disk, "--zeroes", "drop"]);
                }
                assert_eq!(geoms(&fixture, "trim").len(), 2);
            }
            "filled" => filled[number()] = stored_bytes(&files[number()]),
            "hurry" => drop(fixture.ok(&["trim", "now", "d0.trim", "--wait"])),
            "emptied" => {
                let (file, before) = (&files[number()], filled[number()]);
                fixture.until("deletes have reached the file", SENT_LIMIT, || {
                    stored_bytes(file) + (BALLAST_MIB << 20) <= before + SLACK
                });
                println!("{} had {before} bytes, has {}", file.display(), stored_bytes(file));
            }
            "unqueue" => {
                for disk in ["d0", "d1"] {
                    let stats = fixture.json(&["trim", "stats", &format!("{disk}.trim")]);
                    println!("{disk}: {}", stats["answer"]);
                    fixture.ok(&["trim", "destroy", &format!("{disk}.trim")]);
                }
                assert!(geoms(&fixture, "trim").is_empty());
            }
            _ => panic!("the guest asked {request:?}"),
        }
        requests.push(request.to_owned());
        Ok(GO.to_owned())
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", fixture.log()));
    println!("{}", conversed.run.summary());
    assert_eq!(changes, ROUNDS * CHANGES.len());
    let wanted = ["queue", "filled 1", "emptied 1", "filled 0", "hurry", "emptied 0", "unqueue"];
    assert_eq!(requests, wanted);
    assert!(conversed.acknowledged.len() >= changes * FILES_BETWEEN);
    assert!(geoms(&fixture, "sched").is_empty() && geoms(&fixture, "nop").is_empty());
    fixture.stop();
    scenarios::check_image(&files[0], &conversed.acknowledged).unwrap();
    scenarios::check_clean(&files[1]).unwrap();
}
