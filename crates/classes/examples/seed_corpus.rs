//! Writes the seed corpus of the fuzz targets `class_part` and `class_label`:
//! `cargo run -p ashlar-classes --example seed_corpus`.
//!
//! Tables are written by this crate, and come out the same each time. Volumes are made by the
//! tools that make them for everybody, once: what is there already stays.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::Command;

use classes::label::generic;
use classes::part::params::{Add, Amount, Create};
use classes::part::{self, Media, Scheme, Table, WritePlan, WriteStep};

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

/// A file of `kib` KiB that a tool has put a volume on, as far as [`HEAD_BYTES`]. Its name stands
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
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        return Err(format!("{tool}: {said}").into());
    }
    let mut head = Vec::new();
    std::fs::File::open(&path)?.take(HEAD_BYTES).read_to_end(&mut head)?;
    std::fs::remove_file(&path)?;
    // What follows the last byte that is not zero says nothing.
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

fn main() -> Result<()> {
    let corpus = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus");
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
