//! Arrays that this class and Linux' own RAID use in turn: a check for each family of formats, one
//! for logs of partial parity (`raid_guest_log`), and one of dmraid (`raid_dmraid`). One boot.
//!
//! ```text
//!   made here, filled  -> md assembles, reads, writes      -> read here, without a disk too;
//!   made by mdadm, filled there ------------------------->    written without a disk, rebuilt
//!                                                          -> md reads all, and its check is clean
//! ```
//!
//! Covers `mdadm --assemble` and `sync_action` of the kernel on every level that both sides have.
//!
//! One check: `ASHLAR_CHECK=ddf cargo test -p ashlar-classes --test suite raid_guest::`.

use std::fmt::Write;
use std::time::Duration;

use geom::Access;
use rig::guest::{Script, run_checks};
use serde_json::json;
use testkit::noise;

use crate::raid_linux::{
    BYTES, DISK_BYTES, ENV, FIND, LinuxRaid, STOP, device, disk_of, has_volume, sum,
};
use crate::world::{Disk, World};
use crate::{raid_dmraid, raid_guest_log};

/// Offsets of the pieces: of the array's maker, of md in the guest, of this class without a disk.
/// None is at the start of a strip or of a row.
const PLACES: [usize; 3] = [0, (2 << 20) + 0x1_5000, (4 << 20) + 0x9_3000];
/// Bytes of each disk that the volume uses.
const USED: usize = 8 << 20;

enum Maker {
    /// This class, with `--level` as written.
    Ours(&'static str),
    /// mdadm, with the level of its own.
    Md(&'static str),
}

/// An array: level and disks.
struct Case {
    maker: Maker,
    disks: usize,
}

impl Case {
    fn redundant(&self) -> bool {
        !matches!(self.maker, Maker::Ours("RAID0") | Maker::Md("0"))
    }
}

const fn ours(level: &'static str, disks: usize) -> Case {
    Case { maker: Maker::Ours(level), disks }
}

const fn md(level: &'static str, disks: usize) -> Case {
    Case { maker: Maker::Md(level), disks }
}

/// Arrays of one format.
struct Family {
    /// Its name here.
    format: &'static str,
    /// Its name in mdadm's words.
    metadata: &'static str,
    cases: &'static [Case],
}

const INTEL: Family = Family {
    format: "Intel",
    metadata: "imsm",
    cases: &[
        ours("RAID0", 2),
        ours("RAID1", 2),
        ours("RAID5", 3),
        ours("RAID10", 4),
        md("0", 2),
        md("1", 2),
        md("5", 3),
        md("10", 4),
    ],
};

const DDF: Family = Family {
    format: "DDF",
    metadata: "ddf",
    cases: &[
        ours("RAID0", 2),
        ours("RAID1", 2),
        ours("RAID5-LS", 3),
        ours("RAID5-LA", 3),
        ours("RAID10", 4),
        md("0", 2),
        md("1", 2),
        md("5", 3),
        md("10", 4),
    ],
};

/// A piece that is written and compared.
fn piece(number: usize) -> Vec<u8> {
    noise(number as u64 + 77, BYTES)
}

fn name(n: usize) -> String {
    device(n).replace("/dev/", "")
}

/// The array of a world: on disk `first` and those after it.
struct Array {
    world: World,
    disks: Vec<Disk>,
    first: usize,
}

impl Array {
    fn on(disks: Vec<Disk>, first: usize) -> Array {
        let mut array = Array { world: World::new(), disks, first };
        (0..array.disks.len()).for_each(|i| array.attach(i));
        array
    }

    fn attach(&mut self, i: usize) {
        let (name, disk) = (name(self.first + i), self.disks[i].clone());
        self.world.attach_as(&name, &device(self.first + i), &disk, 512, (0, 0));
    }

    /// Everything that is shown of it.
    fn shown_state(&self) -> String {
        let view = self.world.control.topology.view(0);
        view.iter().map(|g| format!("{:?}\n", g.show)).collect()
    }

    /// Waits until the volume is there and in order.
    fn in_order(&mut self) {
        let came = self.world.control.wait_until(Duration::from_secs(40), has_volume);
        assert!(came, "{}", self.shown_state());
        for _ in 0..4000 {
            let view = self.world.control.topology.view(0);
            let geom = view.iter().find(|g| g.class == "raid" && !g.withering).expect("an array");
            let busy = ["dirty", "rebuild", "synchronised"];
            let at_rest = |value: &str| !busy.iter().any(|word| value.contains(word));
            if geom.show[0].1 == "OPTIMAL" && geom.show.iter().all(|(_, v)| at_rest(v)) {
                return self.world.control.settle().expect("at rest");
            }
            self.world.control.wait_until(Duration::from_millis(5), |_| false);
        }
        panic!("{}", self.shown_state());
    }

    fn write(&mut self, at: usize, bytes: &[u8]) {
        let open = self.world.open(&self.world.volume(), Access::WRITE);
        self.world.write(&open, at as u64, bytes).expect("written");
        self.world.close(open);
        self.world.control.settle().expect("at rest");
    }

    /// Checks that the pieces numbered below `count` have their expected content.
    fn holds(&mut self, count: usize, what: &str) {
        let open = self.world.open(&self.world.volume(), Access::READ);
        for (number, at) in PLACES.iter().enumerate().take(count) {
            let bytes = self.world.read(&open, *at as u64, BYTES).expect("read");
            assert!(bytes == piece(number), "{what}: piece {number}\n{}", self.shown_state());
        }
        self.world.close(open);
    }

    /// Written without each of its disks in turn, and rebuilt on media that hold nothing of the
    /// volume any more.
    fn written_and_rebuilt(&mut self, what: &str) {
        let half = BYTES / 2;
        let bytes = piece(2);
        for (turn, lost) in [0, self.disks.len() - 1].into_iter().enumerate() {
            self.world.lose(&name(self.first + lost));
            self.world.control.settle().expect("at rest");
            self.holds(2, &format!("{what} without disk {lost}"));
            self.write(PLACES[2] + turn * half, &bytes[turn * half..][..half]);
            self.disks[lost].put(0, &vec![0xee; USED]);
            self.attach(lost);
            self.in_order();
        }
    }
}

/// Makes an array of ours with the first piece on it.
fn make(family: &Family, level: &str, count: usize, first: usize) -> Vec<Disk> {
    let disks: Vec<Disk> = (0..count).map(|_| disk_of(vec![0; DISK_BYTES])).collect();
    let mut array = Array::on(disks, first);
    let members: Vec<String> = (first..first + count).map(name).collect();
    let with = json!({
        "format": family.format, "level": level, "members": members, "strip": 65536, "size": USED,
    });
    array.world.verb("raid", "label", "data", with).expect("labelled");
    array.in_order();
    array.write(PLACES[0], &piece(0));
    array.in_order();
    array.disks
}

/// The device that [`raid_linux::FIND`] finds may be written, and its monitor runs.
const WRITABLE: &str = "action=/sys/block/$found/md/sync_action
idle() { [ ! -e $action ] || grep -q idle $action; }
if [ -e $action ]; then
    mdmon --all >/dev/null 2>&1 || true
    within 60 sh -c \"echo active >/sys/block/$found/md/array_state\"
fi
within 60 idle
cat /proc/mdstat
";

fn assemble(devices: &str) -> String {
    format!(
        "{ENV}mdadm --assemble /dev/md/box {devices}
mdadm --incremental /dev/md/box || true
{FIND}{WRITABLE}"
    )
}

/// Compares the pieces numbered below `count`.
fn compare(count: usize) -> String {
    let mut shell = String::new();
    for (number, at) in PLACES.iter().enumerate().take(count) {
        let (skip, blocks) = (at / 4096, BYTES / 4096);
        let _ = writeln!(
            shell,
            "sum=$(dd if=$md bs=4096 skip={skip} count={blocks} 2>/dev/null | md5sum)
[ \"${{sum%% *}}\" = {} ] || {{ echo \"piece {number}: $sum\"; exit 1; }}",
            sum(&piece(number))
        );
    }
    shell
}

fn write(number: usize) -> String {
    let seek = PLACES[number] / 4096;
    format!("dd if=/rig/piece{number} of=$md bs=4096 seek={seek} conv=fsync,notrunc\n")
}

/// The first script: md reads and writes the arrays made here, and makes arrays of its own.
fn first_script(family: &Family, case: &Case, devices: &str) -> String {
    let (metadata, count) = (family.metadata, case.disks);
    match case.maker {
        Maker::Ours(_) => {
            format!("{}{}{}{}{STOP}", assemble(devices), compare(1), write(1), compare(2))
        }
        Maker::Md(level) => {
            let layout = if level == "10" { "-p n2" } else { "" };
            let chunk = if level == "1" { "" } else { "-c 64" };
            format!(
                "{ENV}mdadm --create /dev/md/box --run -e {metadata} -n {count} {devices}
mdadm --create /dev/md/inner --run -l {level} {layout} -n {count} {chunk} -z 8M /dev/md/box
{FIND}{WRITABLE}{}{}{STOP}",
                write(0),
                write(1)
            )
        }
    }
}

/// The second: everything is there, and md's own check finds nothing.
fn second_script(case: &Case, devices: &str) -> String {
    let check = match case.redundant() {
        true => {
            "echo check >$action
within 60 idle
echo \"mismatches: $(cat /sys/block/$found/md/mismatch_cnt)\"
[ \"$(cat /sys/block/$found/md/mismatch_cnt)\" = 0 ]
[ \"$(cat /sys/block/$found/md/degraded)\" = 0 ]
"
        }
        false => "",
    };
    format!("{}{}{check}{STOP}", assemble(devices), compare(3))
}

fn to_and_fro(family: &Family, linux: &mut LinuxRaid) {
    let (mut one, mut two) = (Script::new(), Script::new());
    one.file("rig/piece0", piece(0)).file("rig/piece1", piece(1));
    let (mut used, mut cases) = (0, Vec::new());
    for case in family.cases {
        let first = used;
        used += case.disks;
        let (who, disks) = match case.maker {
            Maker::Ours(level) => (
                format!("{} {level} made here", family.format),
                make(family, level, case.disks, first),
            ),
            Maker::Md(level) => {
                let disks = (0..case.disks).map(|_| disk_of(vec![0; DISK_BYTES])).collect();
                (format!("{} {level} made by mdadm", family.format), disks)
            }
        };
        disks.iter().zip(&linux.images[first..]).for_each(|(disk, image)| disk.save(image));
        let devices: Vec<String> = (first..used).map(device).collect();
        let devices = devices.join(" ");
        one.step(&who, first_script(family, case, &devices));
        two.step(&format!("{who}: checked"), second_script(case, &devices));
        cases.push((case, first, who));
    }
    linux.play(&one);
    for (case, first, who) in cases {
        let images = &linux.images[first..first + case.disks];
        let load = |image| disk_of(std::fs::read(image).expect("an image"));
        let mut array = Array::on(images.iter().map(load).collect(), first);
        array.in_order();
        array.holds(2, &who);
        match case.redundant() {
            true => array.written_and_rebuilt(&who),
            false => array.write(PLACES[2], &piece(2)),
        }
        array.in_order();
        array.holds(3, &who);
        array.disks.iter().zip(images).for_each(|(disk, image)| disk.save(image));
    }
    linux.play(&two);
}

/// Checks that share the guest. No check finds records of an earlier one. The tool dmraid reads all
/// disks while those behind virtio are empty, and of these each check uses more than the one
/// before.
const CHECKS: &[(&str, fn(&mut LinuxRaid))] = &[
    ("dmraid", raid_dmraid::check),
    ("log", raid_guest_log::check),
    ("intel", |linux| to_and_fro(&INTEL, linux)),
    ("ddf", |linux| to_and_fro(&DDF, linux)),
];

#[test]
fn linux_and_this_class_use_the_same_arrays() {
    run_checks(&mut LinuxRaid::new(raid_dmraid::serials()), CHECKS);
}
