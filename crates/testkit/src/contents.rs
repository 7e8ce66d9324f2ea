//! Contents of a disk as other programs leave them, with as few bytes as `inspect` needs to
//! recognise them. Sectors have 512 bytes.

/// Bytes of an image, at their offsets.
pub type Parts = Vec<(u64, Vec<u8>)>;

/// Kinds of [`parts`], as `inspect` calls them, each with words of its description.
pub const KINDS: [(&str, &str); 11] = [
    ("bcache", "bcache"),
    ("bcachefs", "bcachefs"),
    ("f2fs", "F2FS"),
    ("hfsplus", "HFS+"),
    ("apfs", "APFS"),
    ("vmfs", "VMFS"),
    ("exfat", "exFAT"),
    ("udf", "UDF"),
    ("jfs", "JFS"),
    ("ddf", "DDF"),
    ("imsm", "Intel RAID"),
];

/// Superblocks of bcache, and of bcachefs, which had that number first.
pub const BCACHE: [u8; 16] = *b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
/// As [`BCACHE`].
pub const BCACHEFS: [u8; 16] = *b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";

/// The CRC of Ethernet, reflected.
pub const IEEE: u32 = 0xedb8_8320;

/// An image of so many bytes of one of [`KINDS`].
///
/// # Panics
/// It is none of them.
pub fn parts(kind: &str, size: u64) -> Parts {
    match kind {
        "bcache" => bcache(),
        "bcachefs" => bcachefs(BCACHEFS),
        "f2fs" => vec![(0x400, b"\x10\x20\xf5\xf2".to_vec())],
        "hfsplus" => vec![(0x400, b"H+\0\x04".to_vec())],
        "apfs" => vec![(32, b"NXSB".to_vec())],
        "vmfs" => vec![(0x10_0000, b"\x0d\xd0\x01\xc0".to_vec())],
        "exfat" => vec![(0, block(512, &[(3, b"EXFAT   "), (108, &[9])]))],
        "udf" => vec![(0x8001, b"BEA01".to_vec()), (0x8801, b"NSR02".to_vec())],
        "jfs" => vec![(0x8000, b"JFS1".to_vec())],
        "ddf" => ddf(size, 1),
        "imsm" => vec![(size - 2 * 512, b"Intel Raid ISM Cfg Sig. 1.3.00".to_vec())],
        other => panic!("{other} is none of the kinds"),
    }
}

/// A block of zeroes with these bytes at these places.
pub fn block(len: usize, parts: &[(usize, &[u8])]) -> Vec<u8> {
    let mut bytes = vec![0; len];
    for (at, part) in parts {
        bytes[*at..at + part.len()].copy_from_slice(part);
    }
    bytes
}

/// CRC of a reflected polynomial, all ones in and not inverted.
pub fn crc(poly: u32, bytes: &[u8]) -> u32 {
    let bit = |crc: u32, _| (crc >> 1) ^ (poly & (crc & 1).wrapping_neg());
    bytes.iter().fold(u32::MAX, |crc, byte| (0..8).fold(crc ^ u32::from(*byte), bit))
}

/// A backing device of bcache.
pub fn bcache() -> Parts {
    vec![(4096, block(512, &[(8, &[8]), (16, &[1]), (24, &BCACHE)]))]
}

/// A device of bcachefs with three superblocks, and the list of them in sector 7.
pub fn bcachefs(magic: [u8; 16]) -> Parts {
    // The checksum ends as the place in a superblock of bcache does.
    let places: Vec<u8> = [8_u64, 4096, 8192].iter().flat_map(|at| at.to_le_bytes()).collect();
    let layout = [(240, &magic[..]), (257, &[11, 3]), (264, &places)];
    let fields = [(8, &[8][..]), (16, &[9, 4]), (24, &magic), (104, &[8]), (122, &[0, 1])];
    let record = block(1024, &[&fields[..], &layout].concat());
    let copy = |at: u64| (at, record.clone());
    vec![copy(4096), copy(4096 * 512), copy(8192 * 512), (7 * 512, magic.to_vec())]
}

/// A DDF anchor so many sectors before the end, and the first header.
pub fn ddf(size: u64, back: u64) -> Parts {
    let mut header = vec![0xff; 512];
    header[..4].copy_from_slice(b"\xde\x11\xde\x11");
    header[8..40].copy_from_slice(b"Linux-MDdeadbeef12345678\x30\x31.02.00");
    header[96..104].copy_from_slice(&2048_u64.to_be_bytes());
    header[112] = 0;
    let sum = !crc(IEEE, &header);
    header[4..8].copy_from_slice(&sum.to_be_bytes());
    vec![(size - back * 512, header.clone()), (2048 * 512, header)]
}
