//! Arrays of ours as dmraid sees them: members, their array, size, strip size and order. Besides,
//! the data that the kernel's device mapper reads by the tables that dmraid makes of them, from all
//! members and, where there is parity, without the first. A check of the guest of `raid_guest`.
//!
//! Differences between dmraid 1.0.0.rc16 and this class, and the one that is right
//! ([`TastedMember`]):
//!
//! * DDF, RAID4: dmraid does not look at the qualifier, and the kernel's `raid4` has its parity on
//!   the first member. Ours is 1, "parity N": on the last, as mdadm has it.
//! * DDF, RAID5 with qualifier 0: dmraid continues data behind the parity (right-symmetric). The
//!   standard calls it "rotating parity 0 with data restart"; mdadm and FreeBSD restart as we do.
//! * DDF, RAID5 with qualifier 1: the standard does not list it, mdadm and dmraid do not know it.
//!   FreeBSD writes it for right-symmetric, and so do we.
//! * DDF, RAID6: dmraid does not know it. mdadm does.
//! * DDF, RAID10: dmraid does not know secondary levels, and takes the volume for one mirror of all
//!   disks. mdadm and FreeBSD read the volume as we do.
//! * A serial number of fewer than five characters is none for dmraid: such an Intel disk is not
//!   found.

use std::collections::BTreeMap;
use std::path::PathBuf;

use geom::Access;
use rig::guest::{Run, Script};
use serde_json::json;
use testkit::noise;

use crate::raid_linux::{BYTES, DISK_BYTES, LinuxRaid, disk_of, sum};
use crate::world::World;

/// Bytes of each disk that a volume uses.
const USED: usize = 8 << 20;
const STRIP: u64 = 65536;

/// dmraid's interpretation of a volume.
enum Seen {
    /// This type, and every byte.
    As(&'static str),
    /// This type, with a layout of its own: no data is compared.
    OtherLayout(&'static str),
    /// Something else: see the top.
    Unknown,
}

struct Case {
    format: &'static str,
    level: &'static str,
    disks: usize,
    seen: Seen,
}

const fn case(format: &'static str, level: &'static str, disks: usize, seen: Seen) -> Case {
    Case { format, level, disks, seen }
}

const CASES: &[Case] = &[
    case("Intel", "SINGLE", 1, Seen::As("stripe")),
    case("Intel", "RAID0", 2, Seen::As("stripe")),
    case("Intel", "RAID1", 2, Seen::As("mirror")),
    case("Intel", "RAID10", 4, Seen::As("raid01")),
    case("Intel", "RAID5", 3, Seen::As("raid5_la")),
    case("DDF", "SINGLE", 1, Seen::As("linear")),
    case("DDF", "CONCAT", 2, Seen::As("linear")),
    case("DDF", "RAID0", 2, Seen::As("stripe")),
    case("DDF", "RAID1", 2, Seen::As("mirror")),
    case("DDF", "RAID4", 3, Seen::OtherLayout("raid4")),
    case("DDF", "RAID5-LA", 3, Seen::As("raid5_la")),
    case("DDF", "RAID5-LS", 4, Seen::As("raid5_ls")),
    case("DDF", "RAID5-RA", 3, Seen::OtherLayout("raid5_rs")),
    case("DDF", "RAID5-RS", 3, Seen::Unknown),
    case("DDF", "RAID6-LS", 4, Seen::Unknown),
    case("DDF", "RAID10", 4, Seen::Unknown),
];

fn serial(number: usize, disk: usize) -> String {
    format!("ASHLAR-{number:02}-{disk}")
}

/// Serial numbers of all disks, in the order of the cases.
pub fn serials() -> Vec<String> {
    let of_case = |(number, case): (usize, &Case)| -> Vec<String> {
        (0..case.disks).map(|disk| serial(number, disk)).collect()
    };
    CASES.iter().enumerate().flat_map(of_case).collect()
}

/// Makes the array of a case and saves its disks. Answers the volume's size.
fn make(number: usize, case: &Case, images: &[(PathBuf, String)]) -> u64 {
    let mut world = World::new();
    let names: Vec<&String> = images.iter().map(|(_, serial)| serial).collect();
    let mut disks = Vec::new();
    for name in &names {
        let disk = disk_of(vec![0; DISK_BYTES]);
        world.attach_as(name, name, &disk, 512, (0, 0));
        disks.push(disk);
    }
    let with = json!({
        "format": case.format, "level": case.level, "members": names, "strip": STRIP, "size": USED,
        "assume_same": true,
    });
    world.verb("raid", "label", &format!("vol{number}"), with).expect("labelled");
    let open = world.open(&world.volume(), Access::WRITE);
    world.write(&open, 0, &noise(number as u64, BYTES)).expect("written");
    world.close(open);
    world.control.settle().expect("at rest");
    disks.iter().zip(images).for_each(|(disk, (image, _))| disk.save(image));
    world.size(&world.volume())
}

/// dmraid makes tables whose regions are smaller than a strip, which the kernel's RAID5 does not
/// take: only that is changed. A second device lacks the first member.
const DATA: &str = "dmraid -ay >/dev/null 2>&1 || true
dmraid -tay 2>/dev/null | grep -E ' raid raid5_l[as] ' >/tmp/parity
while IFS=: read -r name table; do
    table=$(echo $table | sed 's/region_size 64/region_size 1024/')
    echo $table | dmsetup create $name
    dmsetup mknodes $name
    dd if=/dev/mapper/$name bs=64k count=16 2>/dev/null | md5sum >/tmp/sum
    echo $name $(cat /tmp/sum)
    dmsetup remove $name
    echo $table | sed 's# - /dev/[a-z]* # - - #' | dmsetup create $name-less
    dmsetup mknodes $name-less
    dd if=/dev/mapper/$name-less bs=64k count=16 2>/dev/null | md5sum >/tmp/sum
    echo $name-less $(cat /tmp/sum)
    dmsetup remove $name-less
done </tmp/parity
for device in /dev/mapper/*_vol*; do
    echo $(basename $device) $(dd if=$device bs=64k count=16 2>/dev/null | md5sum)
done
dmraid -an >/dev/null 2>&1 || true
";

fn look(linux: &mut LinuxRaid) -> Run {
    let mut script = Script::new();
    let serials = "for d in /sys/block/sd*; do
    echo \"/dev/$(basename $d) $(tail -c +5 $d/device/vpd_pg80)\"
done
mkdir -p /var/lock/dmraid";
    script.step("serials", serials);
    script.step("disks", "dmraid -r");
    script.step("sets", "dmraid -s -s");
    script.step("tables", "dmraid -tay 2>&1 || true");
    script.step("data", DATA);
    linux.play(&script)
}

/// The lines behind `name   : ...vol7`, by key.
fn set<'a>(lines: &'a [String], volume: &str) -> BTreeMap<&'a str, &'a str> {
    let mut found = BTreeMap::new();
    let mut here = false;
    for line in lines {
        let Some((key, value)) = line.split_once(':') else { continue };
        let (key, value) = (key.trim(), value.trim());
        if key == "name" {
            here = value.ends_with(volume);
        }
        if here {
            found.insert(key, value);
        }
    }
    found
}

/// Serial numbers of the disks in the tables of a volume, in their order.
fn members(lines: &[String], volume: &str, serials: &BTreeMap<&str, &str>) -> Vec<String> {
    let of_it = |line: &&String| {
        let name = line.split(':').next().unwrap_or("");
        name.ends_with(volume) || name.contains(&format!("{volume}-"))
    };
    let words = lines.iter().filter(of_it).flat_map(|line| line.split_whitespace());
    words.filter_map(|word| serials.get(word)).map(|serial| serial.to_string()).collect()
}

/// dmraid finds the arrays, their members and their data.
pub fn check(linux: &mut LinuxRaid) {
    let (mut rest, mut sizes) = (&linux.scsi[..], Vec::new());
    for (number, case) in CASES.iter().enumerate() {
        let (images, others) = rest.split_at(case.disks);
        sizes.push(make(number, case, images));
        rest = others;
    }
    let run = look(linux);
    let lines = |step: usize| &run.steps[step].output[..];
    let serials: BTreeMap<&str, &str> =
        lines(0).iter().filter_map(|line| line.split_once(' ')).collect();
    assert_eq!(serials.len(), linux.scsi.len());

    for (number, (case, size)) in CASES.iter().zip(&sizes).enumerate() {
        let what = format!("{} {}", case.format, case.level);
        let own: Vec<String> = (0..case.disks).map(|i| serial(number, i)).collect();
        for (device, _) in serials.iter().filter(|(_, s)| own.iter().any(|own| own == **s)) {
            let line = lines(1).iter().find(|line| line.starts_with(&format!("{device}: ")));
            let line = line.unwrap_or_else(|| panic!("{what}: no {device} in {:#?}", lines(1)));
            let name = if case.format == "Intel" { "isw" } else { "ddf1" };
            let words = [format!(" {name}, "), ", ok, ".into(), "data@ 0".into()];
            assert!(words.iter().all(|word| line.contains(word)), "{what}: {line}");
        }
        let (kind, compared) = match case.seen {
            Seen::As(kind) => (kind, true),
            Seen::OtherLayout(kind) => (kind, false),
            Seen::Unknown => continue,
        };
        let volume = format!("_vol{number}");
        let found = set(lines(2), &volume);
        assert_eq!(found.get("type"), Some(&kind), "{what}: {found:?}");
        assert_eq!(found.get("status"), Some(&"ok"), "{what}");
        assert_eq!(found.get("size"), Some(&(size / 512).to_string().as_str()), "{what}");
        assert_eq!(found.get("stride"), Some(&(STRIP / 512).to_string().as_str()), "{what}");
        assert_eq!(found.get("devs"), Some(&case.disks.to_string().as_str()), "{what}");
        assert_eq!(members(lines(3), &volume, &serials), own, "{what}: {:#?}", lines(3));
        if !compared {
            continue;
        }
        let parity = ["raid5_la", "raid5_ls"].contains(&kind);
        let less = format!("{volume}-less");
        for name in [Some(&volume), parity.then_some(&less)].into_iter().flatten() {
            let read = lines(4).iter().find_map(|line| {
                let (device, rest) = line.split_once(' ')?;
                device.ends_with(name.as_str()).then(|| rest.split(' ').next()).flatten()
            });
            assert_eq!(read, Some(sum(&noise(number as u64, BYTES)).as_str()), "{what}: {name}");
        }
    }
}
