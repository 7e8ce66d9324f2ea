//! The fuzz entry points on real tables and labels with seeded damage: no panic, no endless
//! loop, no read outside the media.

use classes::fuzzing::{fuzz_label, fuzz_members, fuzz_part, fuzz_raid};
use classes::label;
use classes::part::params::{Add, Amount, Create};
use classes::part::{self, Media, Scheme, Table};
use std::path::PathBuf;
use testkit::Seeds;
use testkit::corpus::{Corpus, each_is_whole};

use crate::support::{Image, Scratch, Seed, run, run_with};

const MIB: u64 = 1 << 20;

/// Change `data` here and there: bits, bytes, words of odd values, whole sectors, its length.
fn mutate(data: &mut Vec<u8>, chance: &mut Seed, hot: &[usize]) {
    for _ in 0..1 + chance.below(6) {
        let len = data.len();
        let near = hot[chance.below(hot.len() as u64) as usize];
        let at = (near + chance.below(512) as usize).min(len - 1);
        match chance.below(6) {
            0 => data[at] ^= 1 << chance.below(8),
            1 => data[at] = chance.next() as u8,
            2 => {
                let odd = [0, 1, 2, 0x7fff_ffff, 0x8000_0000, u64::from(u32::MAX), u64::MAX];
                let value = odd[chance.below(7) as usize].to_le_bytes();
                let width = [2, 4, 8][chance.below(3) as usize];
                let end = (at + width).min(len);
                data[at..end].copy_from_slice(&value[..end - at]);
            }
            3 => data[at..(at + 16).min(len)].fill(0xff),
            4 => {
                let end = (at + 512).min(len);
                let from = chance.below((len - (end - at)) as u64 + 1) as usize;
                let copy = data[from..from + (end - at)].to_vec();
                data[at..end].copy_from_slice(&copy);
            }
            _ if chance.below(8) == 0 => data.truncate(1 + chance.below(len as u64) as usize),
            _ => data[at] = data[at].wrapping_add(1),
        }
    }
}

fn tables() -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    for size in [512_u32, 4096] {
        for scheme in [Scheme::Gpt, Scheme::Mbr, Scheme::Ebr, Scheme::Bsd] {
            let sectors = 1200;
            let mut image = Image::new(sectors, size);
            let create = Create { scheme, entries: None };
            let mut table =
                Table::create(Media::plain(sectors, size), &create, [4; 16]).expect("create");
            image.apply(&part::plan(None, &table).expect("plan"));
            for _ in 0..3 {
                let kind = match scheme {
                    Scheme::Gpt => "efi",
                    Scheme::Bsd => "freebsd-ufs",
                    _ => "linux-data",
                };
                let size = Some(Amount::Sectors(100));
                let add = Add { kind: kind.into(), size, ..Add::default() };
                let (new, _) = table.add(&add, [5; 16]).expect("add");
                image.apply(&part::plan(Some(&table), &new).expect("plan"));
                table = part::committed(&new).expect("committed");
            }
            all.push(image.read(0, sectors as usize * size as usize));
        }
    }
    all
}

#[test]
fn tables_with_seeded_damage() {
    let hot = [0, 446, 512, 1024, 2048, 4096, 4608, 8192, 63 * 512, 163 * 512, 1199 * 512];
    for (which, base) in tables().iter().enumerate() {
        fuzz_part(base);
        for seed in Seeds::of(100) {
            let mut data = base.clone();
            mutate(&mut data, &mut Seed(seed * 31 + which as u64), &hot);
            fuzz_part(&data);
        }
    }
    for len in [0, 1, 511, 512, 513, 4095, 4096, 8192] {
        fuzz_part(&vec![0xff; len]);
        fuzz_part(&vec![0x55; len]);
    }
}

type Target = fn(&[u8]);

/// Every target, by the name that its folder and its file in `fuzz/` have.
const TARGETS: [(&str, Target, &[usize]); 4] = [
    ("class_part", fuzz_part, &[0, 446, 512, 1024, 159 * 512, 4096, 63 * 512, 23 * 4096]),
    ("class_label", fuzz_label, &[0, 1024, 3584, 7680, 32_768, 65_536]),
    ("class_members", fuzz_members, &[0, 16, 36, 40, 44, 58, 79, 87, 119]),
    ("class_raid", fuzz_raid, &[0, 512, 1024, 4096, 8192, 16_384]),
];

/// Mutations of each target; more are tried by `fuzz/` (see `fuzz/README.md`).
const ROUNDS: u64 = 600;

#[test]
fn every_target_survives_its_corpus_and_mutations() {
    for (name, target, hot) in TARGETS {
        let corpus = Corpus::of(name, &target, 6);
        corpus.beginnings(|len| (0..len).step_by(2048).chain([len]));
        corpus.mutations(ROUNDS, |_, round, bytes| mutate(bytes, &mut Seed(round), hot));
    }
}

#[test]
fn every_target_has_its_fuzz_entry_point() {
    each_is_whole("class_", TARGETS.iter().map(|(name, ..)| *name));
}

/// Recomputes checksums after the damage, so that the code behind the check is reached.
#[test]
fn headers_with_seeded_values_and_right_checksums() {
    let base = tables().remove(0);
    for seed in Seeds::of(1000) {
        let mut chance = Seed(seed);
        let mut data = base.clone();
        for at in [512, 1199 * 512] {
            for _ in 0..1 + chance.below(3) {
                let field = [12, 24, 32, 40, 48, 72, 80, 84][chance.below(8) as usize];
                let odd = [0, 1, 2, 3, 34, 92, 128, 136, 512, 1165, 1199, 1200, 1 << 31, u64::MAX];
                let width = if matches!(field, 12 | 80 | 84) { 4 } else { 8 };
                let value = odd[chance.below(14) as usize].to_le_bytes();
                data[at + field..at + field + width].copy_from_slice(&value[..width]);
            }
            let len =
                u32::from_le_bytes([data[at + 12], data[at + 13], data[at + 14], data[at + 15]]);
            let len = (len as usize).min(512);
            data[at + 16..at + 20].fill(0);
            let crc = crc32(&data[at..at + len]);
            data[at + 16..at + 20].copy_from_slice(&crc.to_le_bytes());
        }
        fuzz_part(&data);
    }
}

fn crc32(bytes: &[u8]) -> u32 {
    let step = |crc: u32, _| {
        if crc & 1 != 0 { crc >> 1 ^ 0xedb8_8320 } else { crc >> 1 }
    };
    !bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), step))
}

/// The first MiB of volumes that tools made, and our own label.
fn volumes(scratch: &Scratch) -> Vec<Vec<u8>> {
    let made = |name: &str, mib: u64, tool: &str, args: &[&str]| -> PathBuf {
        let path = scratch.image(name, mib * MIB);
        let file = path.display().to_string();
        let all: Vec<&str> = args.iter().chain(&[file.as_str()]).copied().collect();
        run_with(tool, &all, "");
        path
    };
    let head = |path: PathBuf| {
        use std::io::Read;
        let mut bytes = Vec::new();
        let file = std::fs::File::open(path).expect("image");
        file.take(MIB).read_to_end(&mut bytes).expect("image");
        bytes
    };
    let mut all = vec![
        head(made("ext", 16, "mkfs.ext4", &["-q", "-F", "-L", "a"])),
        head(made("xfs", 320, "mkfs.xfs", &["-q", "-f", "-L", "a"])),
        head(made("btrfs", 128, "mkfs.btrfs", &["-q", "-f", "-L", "a"])),
        head(made("fat16", 16, "mkfs.vfat", &["-F", "16", "-n", "A"])),
        head(made("fat32", 64, "mkfs.vfat", &["-F", "32", "-n", "A"])),
        head(made("ntfs", 8, "mkntfs", &["-q", "-F", "-f", "-L", "a"])),
        head(made("swap", 16, "mkswap", &["-q", "-L", "a"])),
    ];
    let tree = scratch.path().join("tree");
    std::fs::create_dir(&tree).expect("a tree");
    let iso = scratch.path().join("iso").display().to_string();
    run("genisoimage", &["-quiet", "-V", "A", "-o", &iso, &tree.display().to_string()]);
    all.push(head(PathBuf::from(iso)));
    let (offset, sector) = label::generic::label("a", 512, 8192).expect("a label");
    let mut generic = vec![0; offset as usize];
    generic.extend_from_slice(&sector);
    all.push(generic);
    all
}

#[test]
fn labels_with_seeded_damage() {
    let scratch = Scratch::new("fuzz-label");
    let hot = [0, 0, 512, 1024, 1536, 3584, 16_384, 16_384 + 3072, 32_768, 65_536, 7680];
    for (which, base) in volumes(&scratch).iter().enumerate() {
        fuzz_label(base);
        fuzz_part(base);
        for seed in Seeds::of(400) {
            let mut data = base.clone();
            mutate(&mut data, &mut Seed(seed * 17 + which as u64), &hot);
            fuzz_label(&data);
        }
    }
}
