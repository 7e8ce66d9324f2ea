//! Signatures that few tools write: images made by those of this machine, else by the layout of
//! the format. `wipefs` must find and name the same.

use classes::inspect::FindingRole;
use std::os::unix::fs::FileExt;
use std::path::Path;

use testkit::contents::{self, BCACHE, BCACHEFS, IEEE, block, crc};

use crate::inspected::{clean, clear, judge_as, look};
use crate::support::{Loop, Scratch, Seed, run, run_on};

const MIB: u64 = 1 << 20;
const SIZE: u64 = 16 * MIB;
const BOTH: [u32; 2] = [512, 4096];

fn write(path: &Path, at: u64, bytes: &[u8]) {
    let file = std::fs::File::options().write(true).open(path).expect("image");
    file.write_all_at(bytes, at).expect("written");
}

fn read(path: &Path, at: u64, len: usize) -> Vec<u8> {
    let mut bytes = vec![0; len];
    let file = std::fs::File::open(path).expect("image");
    file.read_exact_at(&mut bytes, at).expect("read");
    bytes
}

const CASTAGNOLI: u32 = 0x82f6_3b78;

/// An image of zeros with these bytes at these offsets, judged; its magic numbers alone, or in
/// the midst of other bytes, are not claimed.
fn built(kind: &str, name: &str, sizes: &[u32], parts: &[(u64, Vec<u8>)]) {
    let scratch = Scratch::new(&format!("signs-{kind}-{name}"));
    for sector in sizes {
        let path = scratch.image("image", SIZE);
        for (at, bytes) in parts {
            write(&path, *at, bytes);
        }
        judge_as(&path, *sector, kind, name);
    }
}

/// The magic numbers of an image without the rest of it are no signature.
fn magic_alone(kind: &str, parts: &[(u64, Vec<u8>)]) {
    let scratch = Scratch::new(&format!("signs-alone-{kind}"));
    let path = scratch.image("image", SIZE);
    for (at, bytes) in parts {
        write(&path, *at, bytes);
    }
    let found: Vec<_> = look(&path, 512).into_iter().filter(|f| f.kind == kind).collect();
    assert!(!found.is_empty(), "{kind}");
    for fill in [0, 0x5a, 0xff] {
        let path = scratch.image("alone", SIZE);
        for f in &found {
            let magic = read(&scratch.path().join("image"), f.offset, f.len as usize);
            let from = f.offset / 4096 * 4096;
            write(&path, from, &[fill; 4096]);
            write(&path, f.offset, &magic);
        }
        let claimed: Vec<_> = look(&path, 512).into_iter().filter(|f| f.kind == kind).collect();
        assert_eq!(claimed, [], "{kind} amid {fill:#x}");
    }
}

fn strict(kind: &str, name: &str, sizes: &[u32], parts: &[(u64, Vec<u8>)]) {
    built(kind, name, sizes, parts);
    magic_alone(kind, parts);
}

/// Byte offset of a unit of 512 bytes counted from the end.
fn tail(back: u64) -> u64 {
    SIZE - back * 512
}

#[test]
fn firmware_raid_members() {
    let adaptec = block(512, &[(0, b"\x37\xfc\x4d\x1e"), (256, b"DPTM")]);
    strict("adaptec", "adaptec_raid_member", &BOTH, &[(tail(1), adaptec)]);
    built("lsi", "lsi_mega_raid_member", &BOTH, &[(tail(1), b"$XIDE$".to_vec())]);
    let mut via = block(51, &[(0, b"\x55\xaa\x01\x03\x00\x11\x00\x10\0\0"), (14, b"serial")]);
    via[50] = via[..50].iter().fold(0, |sum: u8, b| sum.wrapping_add(*b));
    strict("via", "via_raid_member", &BOTH, &[(tail(1), via)]);
    let mut silicon = block(512, &[(0x36, b"a disk"), (0x60, b"\0\0\0\x2f"), (0x116, &[1])]);
    let sum = words(&silicon[..0x13e]).wrapping_neg();
    silicon[0x13e..0x140].copy_from_slice(&sum.to_le_bytes());
    strict("silicon", "silicon_medley_raid_member", &BOTH, &[(tail(1), silicon)]);
    for magic in [b"\xf3\x16\x78\x5a", b"\xfd\x16\x78\x5a"] {
        let record = block(64, &[(0, magic), (0x10, &[5, 2, 1])]);
        built("highpoint", "hpt45x_raid_member", &BOTH, &[(tail(11), record)]);
    }
    for magic in [b"\xf0\x16\x78\x5a", b"\xfd\x16\x78\x5a"] {
        built("highpoint", "hpt37x_raid_member", &BOTH, &[(0x1220, magic.to_vec())]);
    }
    let mut jmicron = block(128, &[(0, b"JM\x01\x00"), (0x20, b"array"), (0x30, &[1])]);
    let sum = words(&jmicron).wrapping_neg();
    jmicron[4..6].copy_from_slice(&sum.to_le_bytes());
    strict("jmicron", "jmicron_raid_member", &BOTH, &[(tail(1), jmicron)]);
    let mut nvidia = block(120, &[(0, b"NVIDIA  \x1e\0\0\0"), (16, &[100, 0])]);
    let sum = nvidia.chunks(4).fold(0_u32, |sum, word| {
        sum.wrapping_add(u32::from_le_bytes(word.try_into().expect("a word")))
    });
    nvidia[12..16].copy_from_slice(&sum.wrapping_neg().to_le_bytes());
    built("nvidia", "nvidia_raid_member", &BOTH, &[(tail(2), nvidia)]);
}

fn words(bytes: &[u8]) -> u16 {
    let word = |word: &[u8]| u16::from_le_bytes([word[0], word[1]]);
    bytes.chunks(2).fold(0, |sum, w| sum.wrapping_add(word(w)))
}

#[test]
fn promise_raid_at_every_known_offset() {
    for back in [63, 255, 256, 16, 399, 591, 675, 735, 911, 974, 991, 951, 3087] {
        let record = b"Promise Technology, Inc.".to_vec();
        built("promise", "promise_fasttrack_raid_member", &[512], &[(tail(back), record)]);
    }
}

#[test]
fn ddf_in_the_last_and_the_257th_sector_from_the_end() {
    for back in [1, 257] {
        built("ddf", "ddf_raid_member", &BOTH, &contents::ddf(SIZE, back));
    }
}

#[test]
fn drbd_drbdmanage_and_drbdproxy() {
    for magic in [0x6b, 0x6c, 0x6d] {
        let record =
            block(512, &[(60, &[0x83, 0x74, 2, magic]), (64, &[0, 0, 0, 72]), (82, &[0x10, 0])]);
        strict("drbd", "drbd", &BOTH, &[(SIZE - 4096, record)]);
    }
    let line = b"$DRBDmgr=q0123456789abcdef0123456789ABCDEF0\n";
    let parts = [(0, line.to_vec()), (4096, b"\x1a\xdb\x98\xa2\0\0\0\x01".to_vec())];
    strict("drbdmanage", "drbdmanage_control_volume", &BOTH, &parts);
    built("drbdproxy", "drbdproxy_datalog", &BOTH, &[(0, b"DRBDdlh*\x01".to_vec())]);
}

/// Signatures that the libblkid of Debian 12 does not know; later ones do.
#[test]
fn core_storage_scoutfs_and_dasd() {
    let mut header = block(512, &[(4, &[0xff; 4]), (8, &[1, 0, 0x10]), (88, b"CS\x01")]);
    let sum = crc(CASTAGNOLI, &header[8..]);
    header[..4].copy_from_slice(&sum.to_le_bytes());
    unknown("corestorage", &[(0, header)]);
    let mut superblock = block(4096, &[(4, b"\x8b\x42\x3c\x10"), (16, &[9])]);
    let sum = crc(CASTAGNOLI, &superblock[4..]);
    superblock[..4].copy_from_slice(&sum.to_le_bytes());
    unknown("scoutfs", &[(0x1_0000, superblock)]);
    for at in [0x400, 0x800, 0x1000, 0x2000] {
        for magic in
            [&b"\xe5\xd6\xd3\xf1\xe5\xd6\xd3\xf1"[..], b"\xd3\xd5\xe7\xf1", b"\xc3\xd4\xe2\xf1"]
        {
            let label = [magic, b"\xf0\xe7\xf3\xf7\xf2\xf6"].concat();
            unknown("dasd", &[(at, label)]);
        }
    }
}

/// Found, cleared, and nothing is left.
fn unknown(kind: &str, parts: &[(u64, Vec<u8>)]) {
    let scratch = Scratch::new(&format!("signs-unknown-{kind}"));
    let path = scratch.image("image", SIZE);
    for (at, bytes) in parts {
        write(&path, *at, bytes);
    }
    let found = look(&path, 512);
    assert_eq!(found.iter().map(|f| f.kind).collect::<Vec<_>>(), [kind]);
    clear(&path, &found);
    assert_eq!(look(&path, 512), [], "{kind} is cleared");
}

/// DRBD's metadata on a disk that is no multiple of 4 KiB is in the last whole 4 KiB.
#[test]
fn drbd_on_a_disk_of_odd_sectors() {
    let scratch = Scratch::new("signs-drbd-odd");
    let path = scratch.image("image", SIZE + 512);
    let record =
        block(512, &[(60, &[0x83, 0x74, 2, 0x6d]), (64, &[0, 0, 0, 72]), (82, &[0x10, 0])]);
    write(&path, SIZE - 4096, &record);
    let found: Vec<_> = look(&path, 512).into_iter().map(|f| f.kind).collect();
    assert_eq!(found, ["drbd"]);
}

/// The superblock of BeFS and a root directory without attributes.
fn befs(at: u64, big: bool) -> [(u64, Vec<u8>); 2] {
    let mut words = [0_u32; 40];
    words[8..12].copy_from_slice(&[0x4246_5331, 0x4249_4745, 1024, 10]);
    words[16] = 232;
    words[17] = 0xdd12_1031;
    words[18..20].copy_from_slice(&[8192, 13]);
    words[28] = 0x15b6_830e;
    let number = |word: &u32| if big { word.to_be_bytes() } else { word.to_le_bytes() };
    let mut bytes: Vec<u8> = words.iter().flat_map(number).collect();
    // The root directory: group 0, block 8, one block.
    let run = |n: u16| if big { n.to_be_bytes() } else { n.to_le_bytes() };
    bytes[120..122].copy_from_slice(&run(8));
    bytes[122..124].copy_from_slice(&run(1));
    bytes[..4].copy_from_slice(b"Haus");
    [(at, bytes), (8192, block(1024, &[(0, &number(&0x3bbe_0ad9))]))]
}

#[test]
fn file_systems_of_other_operating_systems() {
    for (at, big) in [(0, false), (512, false), (0, true), (512, true)] {
        strict("befs", "befs", &BOTH, &befs(at, big));
    }
    let name = "vxfs";
    let parts = [(0, &b"\xf5\xfc\x01\xa5\x05\0\0\0"[..]), (32, &[0, 4, 0, 0])];
    strict("vxfs", name, &BOTH, &[(1024, block(64, &parts))]);
    let parts = [(0, &b"\xa5\x01\xfc\xf5\0\0\0\x04"[..]), (32, &[0, 0, 4, 0])];
    strict("vxfs", name, &BOTH, &[(8192, block(64, &parts))]);
    strict("nss", "nss", &BOTH, &[(4096, b"SPB5\x03\0\0\0\x03\0\x01\0".to_vec())]);
    let mut mpool = block(66, &[(0, b"mpoolDev"), (8, b"name"), (40, &[7; 16]), (56, &[1])]);
    let sum = !crc(CASTAGNOLI, &mpool[..62]);
    mpool[62..].copy_from_slice(&sum.to_le_bytes());
    strict("mpool", "mpool", &BOTH, &[(0, mpool)]);
    for at in [0x200, 0x2600, 0x3e00, 0x4a00] {
        for magic in [b"\x20\x7e\x18\xfd\x02\0\0\0", b"\xfd\x18\x7e\x20\0\0\0\x02"] {
            strict("sysv", "sysv", &[512], &[(at + 504, magic.to_vec())]);
        }
    }
    built("ocfs", "ocfs", &BOTH, &[(0x2000, b"OracleCFS".to_vec())]);
    built("oracleasm", "oracleasm", &BOTH, &[(32, b"ORCLDISKDATA".to_vec())]);
    built("iso9660", "iso9660", &BOTH, &[(0x8000, block(64, &[(8, b"\x01CDROM\x01")]))]);
    let old = block(64, &[(12, &[18]), (20, b"ReIsErFs"), (45, &[16])]);
    built("reiserfs", "reiserfs", &BOTH, &[(0x2000, old)]);
}

#[test]
fn file_systems_for_flash_and_zoned_devices() {
    let mut ubi = block(64, &[(0, b"UBI#\x01"), (18, &[8, 0]), (22, &[16, 0])]);
    let sum = crc(IEEE, &ubi[..60]);
    ubi[60..].copy_from_slice(&sum.to_be_bytes());
    strict("ubi", "ubi", &BOTH, &[(0, ubi)]);
    let node = [(0, &b"\x31\x18\x10\x06"[..]), (16, &[0, 16]), (20, &[6]), (40, &[0, 0, 2])];
    let mut ubifs = block(4096, &node);
    let sum = crc(IEEE, &ubifs[8..]);
    ubifs[4..8].copy_from_slice(&sum.to_le_bytes());
    strict("ubifs", "ubifs", &BOTH, &[(0, ubifs)]);
    let mut zonefs = block(4096, &[(0, b"SFOZ"), (8, b"label"), (40, &[9; 16])]);
    let sum = crc(IEEE, &zonefs);
    zonefs[4..8].copy_from_slice(&sum.to_le_bytes());
    strict("zonefs", "zonefs", &BOTH, &[(0, zonefs)]);
}

#[test]
fn bitlocker_at_every_known_offset() {
    let places: [u64; 3] = [MIB, 5 * MIB, 9 * MIB];
    let words: Vec<u8> = places.iter().flat_map(|at| at.to_le_bytes()).collect();
    let fve = || b"-FVE-FS-\x40\0\x02\0".to_vec();
    let copies = places.map(|at| (at, fve()));
    let seven = block(512, &[(0, b"\xeb\x58\x90-FVE-FS-\0\x02\x08"), (176, &words)]);
    let go = block(512, &[(0, b"\xeb\x58\x90MSWIN4.1\0\x02\x08"), (440, &words)]);
    for boot in [seven, go] {
        let parts: Vec<_> = [(0, boot)].into_iter().chain(copies.clone()).collect();
        strict("bitlocker", "BitLocker", &BOTH, &parts);
        let scratch = Scratch::new("signs-bitlocker");
        let path = scratch.image("image", SIZE);
        parts.iter().for_each(|(at, bytes)| write(&path, *at, bytes));
        let all: Vec<u64> = look(&path, 512).iter().map(|f| f.offset).collect();
        assert_eq!(all, [0, MIB, 5 * MIB, 9 * MIB]);
    }
    // Vista: cluster 512 of 4 KiB.
    let vista = block(512, &[(0, b"\xeb\x52\x90-FVE-FS-\0\x02\x08"), (56, &[0, 2])]);
    built("bitlocker", "BitLocker", &BOTH, &[(0, vista), (2 * MIB, fve())]);
}

#[test]
fn journals_and_logs_on_separate_devices() {
    let scratch = Scratch::new("signs-logs");
    for sector in BOTH {
        let path = scratch.image("jbd", SIZE);
        run_on(&path, sector, "mke2fs", &["-q", "-F", "-O", "journal_dev", "-b", "4096", "@"], "");
        judge_as(&path, sector, "jbd", "jbd");
        let (data, log) = (scratch.image("data", 320 * MIB), scratch.image("log", 80 * MIB));
        let device = Loop::new(&log, sector);
        let arg = format!("logdev={},sectsize={sector}", device.name());
        let unit = format!("size={sector}");
        run_on(&data, sector, "mkfs.xfs", &["-q", "-f", "-s", &unit, "-l", &arg, "@"], "");
        drop(device);
        judge_as(&log, sector, "xfslog", "xfs_external_log");
        let kinds: Vec<&str> = look(&data, sector).iter().map(|f| f.kind).collect();
        assert!(kinds.iter().all(|kind| *kind == "xfs"), "{kinds:?}");
    }
}

#[test]
fn every_record_of_an_xfs_log_is_found() {
    let scratch = Scratch::new("signs-xfslog");
    let path = scratch.image("log", SIZE);
    let parts = [(0, &b"\xfe\xed\xba\xbe"[..]), (11, &[2]), (14, &[1, 0]), (303, &[1])];
    for at in [0, 512, 40 * 512, 511 * 512, 512 * 512] {
        write(&path, at, &block(512, &parts));
    }
    let found = look(&path, 512);
    let all: Vec<_> = found.iter().map(|f| (f.offset / 512, f.role)).collect();
    let copy = FindingRole::Backup;
    assert_eq!(all, [(0, FindingRole::Main), (1, copy), (40, copy), (511, copy)]);
    judge_as(&path, 512, "xfslog", "xfs_external_log");
}

#[test]
fn minix_in_both_byte_orders() {
    let scratch = Scratch::new("signs-minix");
    for args in [&["-1"][..], &["-1", "-n", "14"], &["-2"], &["-2", "-n", "14"], &["-3"]] {
        let path = scratch.image("little", SIZE);
        run_on(&path, 512, "mkfs.minix", &[args, &["@"]].concat(), "");
        let mut super_block = read(&path, 1024, 64);
        let fields: &[usize] = match args[0] {
            "-3" => &[4, 2, 2, 2, 2, 2, 2, 4, 4, 2, 2, 2],
            _ => &[2, 2, 2, 2, 2, 2, 4, 2, 2, 4],
        };
        judge_as(&path, 512, "minix", "minix");
        let mut at = 0;
        for len in fields {
            super_block[at..at + len].reverse();
            at += len;
        }
        let path = scratch.image("big", SIZE);
        write(&path, 1024, &super_block);
        match args[0] {
            // libblkid has the magic number of this one and then compares the other byte order.
            "-3" => {
                let found = look(&path, 512);
                assert_eq!(found.iter().map(|f| f.kind).collect::<Vec<_>>(), ["minix"]);
                clear(&path, &found);
                clean(&path, 512);
            }
            _ => judge_as(&path, 512, "minix", "minix"),
        }
        magic_alone("minix", &[(1024, super_block)]);
    }
}

#[test]
fn bfs_and_suspended_machines() {
    let scratch = Scratch::new("signs-swap");
    let path = scratch.image("bfs", SIZE);
    run_on(&path, 512, "mkfs.bfs", &["@"], "");
    magic_alone("bfs", &[(0, read(&path, 0, 512))]);
    judge_as(&path, 512, "bfs", "bfs");
    for page in ["4096", "8192", "16384", "32768", "65536"] {
        let magics = ["S1SUSPEND\0", "S2SUSPEND\0", "ULSUSPEND\0", "LINHIB0001"];
        for magic in magics {
            let path = scratch.image("swap", SIZE);
            run_on(&path, 512, "mkswap", &["-q", "--pagesize", page, "@"], "");
            let end: u64 = page.parse().expect("a number");
            write(&path, end - 10, magic.as_bytes());
            judge_as(&path, 512, "swsuspend", "swsuspend");
        }
    }
    let path = scratch.image("tuxonice", SIZE);
    run_on(&path, 512, "mkswap", &["-q", "@"], "");
    write(&path, 0, b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c");
    judge_as(&path, 512, "swsuspend", "swsuspend");
}

#[test]
fn partition_tables_of_other_operating_systems() {
    let entry = |name: &[u8], start: u32, len: u32| {
        let (start, len) = (start.to_be_bytes(), len.to_be_bytes());
        [&[1], name, &start, &len].concat()
    };
    for slot in 0..4 {
        let sizes = ((SIZE / 512) as u32).to_be_bytes();
        let used = entry(b"GEM", 2, 4096);
        let root = block(512, &[(0x1c2, &sizes), (0x1c6 + slot * 12, &used)]);
        built("atari", "atari", &[512], &[(0, root)]);
    }
    // Too long a disk, a name of other bytes, an entry beyond the end.
    for (size, name, len) in [(1 << 30, b"GEM", 9), (4096, b"G-M", 9), (4096, b"GEM", 4095)] {
        let root = [(0x1c2, &u32::to_be_bytes(size)[..]), (0x1c6, &entry(name, 2, len))];
        let scratch = Scratch::new("signs-atari");
        let path = scratch.image("image", SIZE);
        write(&path, 0, &block(512, &root));
        clean(&path, 512);
    }
    built("aix", "aix", &BOTH, &[(0, b"\xc9\xc2\xd4\xc1".to_vec())]);
    let ultrix = block(72, &[(0, b"\x57\x29\x03\0\x01\0\0\0"), (8, &[0, 16])]);
    built("ultrix", "ultrix", &BOTH, &[(16384 - 72, ultrix)]);
}

/// `wipefs` of this machine knows nothing of dynamic disks.
#[test]
fn windows_dynamic_disks() {
    let head = [
        (0, &b"PRIVHEAD"[..]),
        (12, &[0, 2, 0, 12]),
        (0x30, b"01234567-89ab-cdef-0123-456789abcdef"),
    ];
    let parts = [0xc00, tail(192), tail(1)].map(|at| (at, block(512, &head)));
    magic_alone("ldm", &parts);
    let scratch = Scratch::new("signs-ldm");
    let path = scratch.image("image", SIZE);
    parts.iter().for_each(|(at, bytes)| write(&path, *at, bytes));
    let found = look(&path, 512);
    let all: Vec<_> = found.iter().map(|f| (f.offset, f.kind, f.role)).collect();
    let copy = FindingRole::Backup;
    let want = [(0xc00, FindingRole::Main), (tail(192), copy), (tail(1), copy)];
    assert_eq!(all, want.map(|(at, standing)| (at, "ldm", standing)));
    clear(&path, &found);
    clean(&path, 512);
}

#[test]
fn bcache_and_bcachefs_are_distinguished() {
    strict("bcache", "bcache", &BOTH, &contents::bcache());
    for magic in [BCACHE, BCACHEFS] {
        let parts = contents::bcachefs(magic);
        magic_alone("bcachefs", &parts);
        let scratch = Scratch::new("signs-bcachefs");
        let path = scratch.image("image", SIZE);
        parts.iter().for_each(|(at, bytes)| write(&path, *at, bytes));
        let found = look(&path, 512);
        let all: Vec<_> = found.iter().map(|f| (f.offset, f.kind)).collect();
        let want = [7 * 512, 4096 + 24, 2 * MIB + 24, 4 * MIB + 24];
        assert_eq!(all, want.map(|at| (at, "bcachefs")));
        clear(&path, &found);
        clean(&path, 512);
    }
}

/// Those that other tests put under the guard against overwriting.
#[test]
fn smallest_contents_are_found_and_cleared() {
    let scratch = Scratch::new("signs-smallest");
    for (kind, words) in contents::KINDS {
        let path = scratch.image("image", SIZE);
        contents::parts(kind, SIZE).iter().for_each(|(at, bytes)| write(&path, *at, bytes));
        let found = look(&path, 512);
        let is_own = found.iter().all(|f| f.kind == kind && f.description.contains(words));
        assert!(!found.is_empty() && is_own, "{kind}: {found:#?}");
        clear(&path, &found);
        assert_eq!(look(&path, 512), [], "{kind}");
    }
}

#[test]
fn random_and_blank_disks_are_not_claimed() {
    let scratch = Scratch::new("signs-chance");
    let mut seed = Seed(0x1a2b);
    for fill in [None, Some(0), Some(0xff), Some(0x55), Some(0x01)] {
        let path = scratch.image("image", SIZE);
        for _ in 0..if fill.is_none() { 4 } else { 1 } {
            let mut bytes = vec![fill.unwrap_or(0); SIZE as usize];
            if fill.is_none() {
                bytes.chunks_mut(16).for_each(|part| part.copy_from_slice(&seed.bytes()));
            }
            write(&path, 0, &bytes);
            for sector in BOTH {
                assert_eq!(look(&path, sector), [], "{fill:?}");
            }
        }
    }
    assert!(run("wipefs", &["-n", &path_text(&scratch)]).trim().is_empty());
}

fn path_text(scratch: &Scratch) -> String {
    scratch.path().join("image").display().to_string()
}
