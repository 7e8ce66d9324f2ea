//! Writes the seed corpus of the fuzz targets `class_part`, `class_label`
//! and `class_raid`:
//! `cargo run -p ashlar-classes --example classes_corpus`.
//!
//! Tables are written by this crate, and are the same each time. Volumes are made by the
//! tools that make them once: files that exist already stay.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use classes::label::generic;
use classes::part::params::{Add, Amount, Create};
use classes::part::{self, Media, Scheme, Table};
use classes::write_plan::{WritePlan, WriteStep};

use classes::raid::imsm::ppl::{Entry, Header};
use classes::raid::{Array, Disk, DiskState, Identity, Layout, Level, Member, Migration};
use classes::raid::{MigrationKind, SubdiskState, Volume, ddf, imsm};

type Result<T> = std::result::Result<T, Box<dyn std::error::Error>>;

/// Head of a volume that is kept, bytes: with the super block of Btrfs, which is the farthest.
const HEAD_BYTES: u64 = 69 << 10;

fn apply(disk: &mut [u8], plan: &WritePlan) {
    for step in plan.steps() {
        if let WriteStep::Write { offset, bytes } = step {
            let at = usize::try_from(*offset).expect("a small disk");
            disk[at..at + bytes.len()].copy_from_slice(bytes);
        }
    }
}

fn table(scheme: Scheme, sector: u32, sectors: u64) -> Result<Vec<u8>> {
    let mut disk = vec![0; usize::try_from(sectors)? * sector as usize];
    let create = Create { scheme, entries: None };
    let mut table = Table::create(Media::plain(sectors, sector), &create, [4; 16])?;
    apply(&mut disk, &part::plan(None, &table)?);
    for (n, kind) in ["linux-data", "linux-swap"].into_iter().enumerate() {
        let size = Some(Amount::Sectors(4));
        let align = Some(Amount::Sectors(1));
        let add = Add { kind: kind.into(), size, align, ..Add::default() };
        let (new, _) = table.add(&add, [5 + n as u8; 16])?;
        apply(&mut disk, &part::plan(Some(&table), &new)?);
        table = part::committed(&new)?;
    }
    Ok(disk)
}

fn tables() -> Result<Vec<(&'static str, Vec<u8>)>> {
    let gpt = table(Scheme::Gpt, 512, 160)?;
    let without = |sector: usize| {
        let mut disk = gpt.clone();
        disk[sector * 512..(sector + 1) * 512].fill(0);
        disk
    };
    Ok(vec![
        ("gpt_512_only_the_backup", without(1)),
        ("gpt_512_only_the_primary", without(159)),
        ("gpt_512", gpt),
        ("gpt_4096", table(Scheme::Gpt, 4096, 24)?),
        ("mbr_512", table(Scheme::Mbr, 512, 256)?),
        ("ebr_512", table(Scheme::Ebr, 512, 256)?),
    ])
}

/// A file of `kib` KiB that a tool has put a volume on, as far as [`HEAD_BYTES`]. Its name is put
/// for `@` among the arguments, else behind them.
fn volume(scratch: &Path, kib: u64, tool: &str, args: &[&str]) -> Result<Vec<u8>> {
    let path = scratch.join("volume");
    std::fs::File::create(&path)?.set_len(kib * 1024)?;
    let mut command = Command::new(tool);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    for arg in args {
        match *arg {
            "@" => command.arg(&path),
            other => command.arg(other),
        };
    }
    if !args.contains(&"@") {
        command.arg(&path);
    }
    let done = command.output()?;
    if !done.status.success() {
        let output = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(format!("{tool}: {output}").into());
    }
    let mut head = Vec::new();
    std::fs::File::open(&path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    std::fs::remove_file(&path)?;
    // What follows the last byte that is not zero has no meaning.
    let end = head.iter().rposition(|b| *b != 0).map_or(0, |at| at + 1).next_multiple_of(4096);
    head.resize(end, 0);
    Ok(head)
}

const TOOLS: [(&str, u64, &str, &[&str]); 8] = [
    ("ext4", 1024, "mkfs.ext4", &["-q", "-F", "-L", "seed"]),
    ("xfs", 300 << 10, "mkfs.xfs", &["-q", "-f", "-L", "seed"]),
    ("btrfs", 128 << 10, "mkfs.btrfs", &["-q", "-f", "-L", "seed"]),
    ("fat12", 256, "mkfs.vfat", &["-F", "12", "-n", "SEED"]),
    ("fat32", 40 << 10, "mkfs.vfat", &["-F", "32", "-n", "SEED"]),
    ("ntfs", 2 << 10, "mkntfs", &["-q", "-F", "-f", "-L", "seed"]),
    ("swap", 64, "mkswap", &["-q", "-L", "seed"]),
    ("iso9660", 0, "genisoimage", &["-quiet", "-V", "SEED", "-o", "@", "Cargo.toml"]),
];

/// An array of `disks` in the format of `identity`, with one volume.
fn array(identity: Identity, level: Level, disks: usize, offset: u64) -> Array {
    let disk = |number: usize| {
        let mut guid = *b"ASHLAR  DISK    0000000?";
        guid[23] = b'0' + number as u8;
        Disk {
            serial: format!("SERIAL{number}"),
            reference: 7 + number as u32,
            guid,
            state: DiskState::Active,
            bytes: 0,
            bad: Vec::new(),
        }
    };
    let member = |disk| Member { disk, offset, bytes: 1 << 20, state: SubdiskState::Active };
    let id = *b"\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
    let volume = Volume {
        name: "seed".into(),
        id,
        level,
        strip: 65536,
        bytes: 1 << 20,
        members: (0..disks).map(member).collect(),
        dirty: false,
        migration: None,
        log: None,
    };
    Array { identity, generation: 5, disks: (0..disks).map(disk).collect(), volumes: vec![volume] }
}

/// A log of partial parity with two units, of which the second speaks of two pieces.
fn log() -> Vec<u8> {
    let mut area = Vec::new();
    for (generation, count) in [(6, 1), (7, 2)] {
        let parity: Vec<u8> = (0..1024).map(|n: u32| n as u8).collect();
        let entries = (0..count).map(|n| Entry::of(8 * n, 2048, 2, &parity)).collect();
        area.extend(Header { signature: 2, generation, entries }.encode());
        (0..count).for_each(|_| area.extend_from_slice(&parity));
    }
    area.resize(20_480, 0);
    area
}

/// Disks with Intel's metadata, and with DDF whose headers are close together.
fn raids() -> Result<Vec<(&'static str, Vec<u8>)>> {
    const SECTORS: u64 = 128;
    let intel = Identity::Intel { family: 1, original: 2 };
    let raid5 = Level::Raid5(Layout::LeftAsymmetric);
    let mut rebuilding = array(intel, Level::Raid1, 2, 4096);
    rebuilding.volumes[0].members[1].state = SubdiskState::Rebuild;
    rebuilding.volumes[0].migration =
        Some(Migration { kind: MigrationKind::Rebuild, done: 1 << 19 });
    let mut all = Vec::new();
    for (name, array, size) in [
        ("intel_raid0", array(intel, Level::Raid0, 2, 4096), 512),
        ("intel_raid1_rebuild", rebuilding, 512),
        ("intel_raid5_long", array(intel, raid5, 6, 4096), 512),
        ("intel_raid10_4096", array(intel, Level::Raid10, 4, 4096), 4096),
    ] {
        let mut disk = vec![0; 32 * size as usize];
        let record = imsm::create(&array, &imsm::Names::default(), size)?;
        apply(&mut disk, &imsm::plan(&record, 32, size)?);
        all.push((name, disk));
    }
    all.push(("intel_log", log()));
    let set = Identity::Ddf(*b"ASHLAR  SET 000000000001");
    for (name, level, disks, order) in [
        ("ddf_raid1", Level::Raid1, 2, ddf::Order::BIG),
        ("ddf_raid10_little", Level::Raid10, 4, ddf::Order::LITTLE),
        ("ddf_raid5_linux", raid5, 3, ddf::Order::LINUX),
    ] {
        let place = ddf::TargetDisk {
            sector_size: 512,
            media_sectors: 1 << 17,
            time: 1,
            controller: *b"ASHLAR  seed            ",
            limits: ddf::Limits {
                disks: 15,
                volumes: 15,
                partitions: 2,
                record_sectors: 2,
                elements: 16,
            },
            order,
        };
        let mut meta = ddf::create(&array(set, level, disks, 4096), 1, &place)?;
        (meta.header.primary, meta.header.secondary) = (64, 96);
        let mut disk = vec![0; SECTORS as usize * 512];
        apply(&mut disk, &ddf::plan(&meta, SECTORS, 512, true)?);
        all.push((name, disk));
    }
    Ok(all)
}

fn main() -> Result<()> {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
    std::fs::create_dir_all(corpus.join("class_raid"))?;
    for (name, disk) in raids()? {
        std::fs::write(corpus.join("class_raid").join(name), disk)?;
    }
    let (parts, labels) = (corpus.join("class_part"), corpus.join("class_label"));
    std::fs::create_dir_all(&parts)?;
    std::fs::create_dir_all(&labels)?;
    for (name, disk) in tables()? {
        std::fs::write(parts.join(name), disk)?;
    }
    let (offset, sector) = generic::label("seed", 512, 8192)?;
    let mut own = vec![0; usize::try_from(offset)?];
    own.extend_from_slice(&sector);
    std::fs::write(labels.join("generic"), own)?;
    let scratch = std::env::temp_dir().join(format!("ashlar-seeds-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    for (name, kib, tool, args) in TOOLS {
        if !labels.join(name).exists() {
            std::fs::write(labels.join(name), volume(&scratch, kib, tool, args)?)?;
        }
    }
    std::fs::remove_dir_all(&scratch)?;
    Ok(())
}
