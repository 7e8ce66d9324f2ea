//! Two disks in use by a kernel and its administrator: XFS and ext4 with a tree, trimmed, grown
//! under way and checked; units that are added and removed.

use rig::guest::{Script, SharedGuest, guest_portal};
use rig::scenarios::{self, From, GO, Tree};

use crate::fixture::{Fixture, IQN, file_disk};
use crate::guests::{BOOT, stored_bytes};

/// Size of each unit at first; mkfs.xfs wants 300 MiB.
const UNIT_BYTES: u64 = 320 << 20;
/// And after it has grown.
const GROWN_BYTES: u64 = 448 << 20;
/// Data that is written to be deleted, MiB.
const BALLAST_MIB: u64 = 24;
/// The unit that is added later, and its number in the kernel. Beyond 255 the flat form is used,
/// and its mark is part of the kernel's number.
const LATE: u64 = 300;
const LATE_IN_KERNEL: u64 = LATE | 0x4000;

/// Everything is done with both: unit, disk, file system.
const BOTH: &str = ". /rig/names\n\
    both() { $1 0 $X xfs; $1 1 $E ext4; }\n\
    compare() { cd $1/tree; sha256sum -c -s /rig/sums\n\
        [ $(find . -type f | wc -l) = $(lines /rig/sums) ]; cd /; }\n";

fn steps(portal: &str, tree: &Tree) -> Script {
    let mut script = Script::new();
    let mut step = |name: &str, shell: &str| {
        script
            .step(name, if name == "log in" { shell.to_owned() } else { format!("{BOTH}{shell}") });
    };
    step("log in", &scenarios::log_in_to_two(IQN, portal, ["X", "E"]));
    step(
        "two file systems",
        "# Its tables are written now: what is allocated later is what the steps wrote.\n\
         /sbin/mkfs.xfs -q -f $X; mkdir -p /fs/0 /fs/1\n\
         /usr/sbin/mke2fs -q -F -t ext4 -E lazy_itable_init=0,lazy_journal_init=0 $E\n\
         one() { mount -t $3 $2 /fs/$1; cp -r /rig/tree /fs/$1/tree; }; both one; sync\n\
         one() { umount /fs/$1; mount -t $3 $2 /fs/$1; compare /fs/$1; }; both one",
    );
    step(
        "what is trimmed is gone from the files",
        &format!(
            "one() {{ dd if=/dev/urandom of=/fs/$1/ballast bs=1M count={BALLAST_MIB} \
                 conv=fsync; }}\n\
             both one 2>/dev/null; told filled; rm /fs/*/ballast; sync\n\
             one() {{ /usr/sbin/fstrim -v /fs/$1; }}; both one; told trimmed"
        ),
    );
    step(
        "both grow",
        &format!(
            "dmesg -c >/dev/null; told grow\n\
             one() {{ dd if=$2 of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null\n\
                 echo 1 >/sys/block/${{2##*/}}/device/rescan\n\
                 [ $(blockdev --getsize64 $2) = {GROWN_BYTES} ]; }}\n\
             both one; dmesg >/tmp/said; cat /tmp/said\n\
             [ $(grep -c 'Capacity data has changed' /tmp/said) = 2 ]\n\
             [ $(grep -c 'detected capacity change from' /tmp/said) = 2 ]\n\
             before=$(df -m /fs/* | awk '/fs/ {{ print $2 }}' | tr '\\n' ' ')\n\
             /usr/sbin/xfs_growfs /fs/0 >/tmp/grown; /usr/sbin/resize2fs $E 2>/tmp/grown\n\
             after=$(df -m /fs/* | awk '/fs/ {{ print $2 }}' | tr '\\n' ' ')\n\
             echo $before to $after\n\
             set -- $before $after; [ $3 -gt $(($1 + 100)) ]; [ $4 -gt $(($2 + 100)) ]"
        ),
    );
    step(
        "what was there is there, what is new is of use",
        "one() { compare /fs/$1; fallocate -l 340M /fs/$1/large\n\
             dd if=/dev/urandom of=/fs/$1/large bs=1M seek=330 count=10 conv=notrunc,fsync; }\n\
         both one 2>/dev/null; rm /fs/*/large; sync\n\
         one() { /usr/sbin/fstrim /fs/$1; }; both one; told small",
    );
    step(
        "nothing to repair",
        "one() { umount /fs/$1; }; both one; /sbin/xfs_repair -n $X; /usr/sbin/e2fsck -fn $E",
    );
    step(
        "a unit comes",
        &format!(
            "dmesg -c >/dev/null; told add; dd if=$X of=/dev/null bs=4k count=1 iflag=direct\n\
             dmesg >/tmp/said; fact /tmp/said 'LUN assignments on this target have changed'\n\
             iscsiadm -m session -R >/dev/null; N=$(disk {IQN} {LATE_IN_KERNEL})\n\
             echo N=$N >>/rig/names\n\
             [ $(blockdev --getsize64 $N) = {UNIT_BYTES} ]\n\
             [ $(cat /sys/block/${{N##*/}}/ro) = 0 ]\n\
             echo hello | dd of=$N conv=fsync,notrunc 2>/dev/null; told written"
        ),
    );
    step(
        "and goes",
        "dmesg -c >/dev/null; told remove; dd if=$X of=/dev/null bs=4k count=1 iflag=direct\n\
         dmesg >/tmp/said; fact /tmp/said 'LUN assignments on this target have changed'\n\
         ! dd if=$N of=/dev/null bs=4k count=1 iflag=direct 2>/dev/null\n\
         echo 1 >/sys/block/${N##*/}/device/delete; iscsiadm -m session -R >/dev/null; sleep 1\n\
         [ ! -e $N ]; [ $(ls -d /sys/block/sd* | wc -l) = 2 ]",
    );
    step("log out", "iscsiadm -m node -u >/dev/null; ! ls /sys/block/sd*");
    for (place, bytes) in tree.guest_files() {
        script.file(&place, bytes);
    }
    script
}

/// Disks are filled, trimmed, grown, added and removed.
pub fn check(guest: &mut SharedGuest) {
    let mut fixture = Fixture::alone("disk");
    let files = ["d0.img", "d1.img"].map(|name| fixture.image(name, UNIT_BYTES));
    let late = fixture.image("d2.img", UNIT_BYTES);
    let disks =
        [file_disk("d0", "d0.img"), file_disk("d1", "d1.img"), file_disk("d2", "d2.img")].concat();
    let two = "0 = \"d0\", 1 = \"d1\"";
    fixture.configure(&disks, two);
    fixture.start();
    let tree = Tree::some(120).unwrap();
    let script = steps(&guest_portal(fixture.portal()), &tree);

    let mut asked_for = Vec::new();
    let (mut filled, mut trimmed) = ([0; 2], [0; 2]);
    let conversed = scenarios::converse(From::Shared(guest), &script, BOOT, &mut |request| {
        match request {
            "filled" => filled = files.each_ref().map(|file| stored_bytes(file)),
            "trimmed" => {
                trimmed = files.each_ref().map(|file| stored_bytes(file));
                for ((file, before), after) in files.iter().zip(filled).zip(trimmed) {
                    println!("{} has {before} bytes, trimmed {after}", file.display());
                    assert!(
                        after + (BALLAST_MIB << 20) <= before + (1 << 20),
                        "nothing given back"
                    );
                }
            }
            "grow" => {
                std::fs::File::options()
                    .write(true)
                    .open(&files[0])
                    .unwrap()
                    .set_len(GROWN_BYTES)?;
                fixture.ok(&["geom", "disk", "resize", "name=d0"]);
                let size = format!("size={GROWN_BYTES}");
                fixture.ok(&["geom", "disk", "resize", "name=d1", &size]);
            }
            "small" => {
                for (file, before) in files.iter().zip(trimmed) {
                    let left = stored_bytes(file);
                    assert!(left < before + (8 << 20), "{before}, now {left}");
                }
            }
            "add" => {
                fixture.configure(&disks, &format!("{two}, {LATE} = \"d2\""));
                fixture.ok(&["apply"]);
            }
            "written" => assert!(std::fs::read(&late)?.starts_with(b"hello\n")),
            "remove" => {
                fixture.configure(&disks, two);
                fixture.ok(&["apply"]);
            }
            _ => panic!("the guest asked {request:?}"),
        }
        asked_for.push(request.to_owned());
        Ok(GO.to_owned())
    })
    .unwrap_or_else(|e| panic!("{e:#}\nthe daemon:\n{}", fixture.log()));
    println!("{}", conversed.run.summary());
    assert_eq!(asked_for, ["filled", "trimmed", "grow", "small", "add", "written", "remove"]);
    fixture.stop();
    scenarios::check_clean(&files[1]).unwrap();
}
