//! Table of signatures: magic number, place and class of each.

use super::{firmware, validate};
use crate::probe::{ProbeStop, Sectors};

/// Place of a magic number on media.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MagicLocation {
    /// Bytes from the start.
    Start(u64),
    /// Bytes before the end.
    Back(u64),
    /// In the sector that many before the last one, at that byte.
    Last(u64, u64),
    /// That many units of 512 bytes before the end, for any sector size, and at that byte.
    Tail(u64, u64),
    /// Linux md 0.90: the last whole 64 KiB but one.
    Md090,
    /// Linux md 1.0: 8 to 12 KiB before the end.
    Md10,
    /// DRBD's internal metadata: that byte of the last whole 4 KiB.
    Drbd(u64),
}

impl MagicLocation {
    /// The byte offset on media of `len` bytes with sectors of `sector`; none when too small.
    pub fn offset(self, len: u64, sector: u64) -> Option<u64> {
        match self {
            MagicLocation::Start(at) => Some(at),
            MagicLocation::Back(back) => len.checked_sub(back),
            MagicLocation::Last(back, at) => {
                let last = len.checked_div(sector)?.checked_sub(back.checked_add(1)?)?;
                last.checked_mul(sector)?.checked_add(at)
            }
            MagicLocation::Tail(back, at) => {
                (len / 512).checked_sub(back)?.checked_mul(512)?.checked_add(at)
            }
            MagicLocation::Md090 => (len & !0xffff).checked_sub(0x1_0000),
            MagicLocation::Md10 => Some(((len / 512).checked_sub(16)? & !7) * 512),
            MagicLocation::Drbd(at) => (len & !0xfff).checked_sub(0x1000)?.checked_add(at),
        }
    }
}

/// The nesting depth of a finding; inner ones are cleared earlier (I3).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Depth {
    Content,
    Container,
    Table,
    Name,
    Member,
}

/// Looks whether a magic number at that offset is more than chance.
pub(crate) type Check = fn(&Sectors, u64) -> Result<bool, ProbeStop>;

pub struct Signature {
    /// Short word, for `--only`.
    pub kind: &'static str,
    /// In words.
    pub description: &'static str,
    /// The class that would claim it; `linux`, `geom`, `firmware` or `other` when none of ours
    /// would.
    pub class: &'static str,
    /// Where.
    pub at: MagicLocation,
    pub magic: &'static [u8],
    pub(crate) depth: Depth,
    pub(crate) check: Option<Check>,
    pub(crate) copy: bool,
}

impl Signature {
    const fn checked(mut self, check: Check) -> Signature {
        self.check = Some(check);
        self
    }

    const fn copy(mut self) -> Signature {
        self.copy = true;
        self
    }
}

const fn sign(
    (kind, what, class): (&'static str, &'static str, &'static str),
    depth: Depth,
    at: MagicLocation,
    magic: &'static [u8],
) -> Signature {
    Signature { kind, description: what, class, at, magic, depth, check: None, copy: false }
}

const fn fs(kind: &'static str, what: &'static str, at: u64, magic: &'static [u8]) -> Signature {
    sign((kind, what, "linux"), Depth::Content, MagicLocation::Start(at), magic)
}

const fn named(kind: &'static str, what: &'static str, at: u64, magic: &'static [u8]) -> Signature {
    sign((kind, what, "label"), Depth::Content, MagicLocation::Start(at), magic)
}

const fn holder(
    kind: &'static str,
    what: &'static str,
    at: MagicLocation,
    magic: &'static [u8],
) -> Signature {
    sign((kind, what, "linux"), Depth::Container, at, magic)
}

const fn server(what: &'static str, magic: &'static [u8]) -> Signature {
    sign(("fs", what, "fs"), Depth::Container, MagicLocation::Start(0), magic)
        .checked(validate::sealed)
}

const fn member(
    kind: &'static str,
    what: &'static str,
    at: MagicLocation,
    magic: &'static [u8],
) -> Signature {
    sign((kind, what, "linux"), Depth::Member, at, magic)
}

/// A record of GEOM in the last sector; `class` is `geom` for classes that are not here.
const fn geom(class: &'static str, what: &'static str, magic: &'static [u8]) -> Signature {
    sign((class, what, class), Depth::Member, MagicLocation::Last(0, 0), magic)
}

const fn bios(
    kind: &'static str,
    what: &'static str,
    at: MagicLocation,
    magic: &'static [u8],
) -> Signature {
    sign((kind, what, "firmware"), Depth::Member, at, magic)
}

/// A DDF anchor at a place that libblkid counts in units of 512 bytes.
const fn ddf(at: MagicLocation, magic: &'static [u8]) -> Signature {
    sign(("ddf", "DDF anchor", "raid"), Depth::Member, at, magic).checked(firmware::ddf)
}

/// A volume label of IBM's DASD, in the third block; the magic number is EBCDIC.
const fn dasd(at: u64, magic: &'static [u8]) -> Signature {
    sign(("dasd", "IBM DASD volume label", "other"), Depth::Table, MagicLocation::Start(at), magic)
        .checked(validate::dasd)
}

/// A record of Promise's firmware, which has one of thirteen places before the end.
const fn promise(back: u64) -> Signature {
    bios("promise", "Promise RAID", MagicLocation::Tail(back, 0), b"Promise Technology, Inc.")
}

/// The private header of a dynamic disk. Its database is in the last MiB.
const fn windows(what: &'static str, at: MagicLocation) -> Signature {
    sign(("ldm", what, "other"), Depth::Container, at, b"PRIVHEAD").checked(validate::ldm)
}

const TUXONICE: &[u8] = b"\xed\xc3\x02\xe9\x98\x56\xe5\x0c";
const SYSV: &[u8] = b"\x20\x7e\x18\xfd";
const SYSV_BIG: &[u8] = b"\xfd\x18\x7e\x20";
/// With the field that marks the label valid.
const ULTRIX: &[u8] = b"\x57\x29\x03\0\x01\0\0\0";
pub(super) const BCACHE: &[u8] =
    b"\xc6\x85\x73\xf6\x4e\x1a\x45\xca\x82\x65\xf5\x7f\x48\xba\x6d\x81";
pub(super) const BCACHEFS: &[u8] =
    b"\xc6\x85\x73\xf6\x66\xce\x90\xa9\xd9\x6a\x60\xcf\x80\x3d\xf7\xef";
/// "VOL1" twice, "LNX1" and "CMS1".
const VOL1: &[u8] = b"\xe5\xd6\xd3\xf1\xe5\xd6\xd3\xf1";
const LNX1: &[u8] = b"\xd3\xd5\xe7\xf1";
const CMS1: &[u8] = b"\xc3\xd4\xe2\xf1";
const MD_LITTLE: &[u8] = b"\xfc\x4e\x2b\xa9";
const MD_BIG: &[u8] = b"\xa9\x2b\x4e\xfc";
/// Intel's record begins so.
pub(crate) const INTEL: &[u8] = b"Intel Raid ISM Cfg Sig. ";

/// Every signature at a fixed place. FAT, NTFS, exFAT and MBR share a sector and GPT needs its
/// copies: they are looked for apart.
pub const SIGNATURES: &[Signature] = &[
    named("ext", "ext2, ext3 or ext4", 0x438, b"\x53\xef").checked(validate::ext),
    fs("jbd", "external journal of ext3 or ext4", 0x438, b"\x53\xef").checked(validate::jbd),
    named("xfs", "XFS", 0, b"XFSB"),
    named("btrfs", "Btrfs", 0x1_0040, b"_BHRfS_M"),
    named("iso9660", "ISO 9660 volume", 0x8001, b"CD001"),
    named("swap", "Linux swap space, pages of 4 KiB", 0xff6, b"SWAPSPACE2"),
    named("swap", "Linux swap space, pages of 8 KiB", 0x1ff6, b"SWAPSPACE2"),
    named("swap", "Linux swap space, pages of 16 KiB", 0x3ff6, b"SWAPSPACE2"),
    named("swap", "Linux swap space, pages of 32 KiB", 0x7ff6, b"SWAPSPACE2"),
    named("swap", "Linux swap space, pages of 64 KiB", 0xfff6, b"SWAPSPACE2"),
    fs("swap", "old Linux swap space, pages of 4 KiB", 0xff6, b"SWAP-SPACE"),
    fs("swap", "old Linux swap space, pages of 8 KiB", 0x1ff6, b"SWAP-SPACE"),
    fs("swap", "old Linux swap space, pages of 16 KiB", 0x3ff6, b"SWAP-SPACE"),
    fs("swap", "old Linux swap space, pages of 32 KiB", 0x7ff6, b"SWAP-SPACE"),
    fs("swap", "old Linux swap space, pages of 64 KiB", 0xfff6, b"SWAP-SPACE"),
    fs("swsuspend", "a suspended machine (swap)", 0xff6, b"S1SUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0x1ff6, b"S1SUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0x3ff6, b"S1SUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0x7ff6, b"S1SUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0xfff6, b"S1SUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0xff6, b"S2SUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0x1ff6, b"S2SUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0x3ff6, b"S2SUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0x7ff6, b"S2SUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0xfff6, b"S2SUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0xff6, b"ULSUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0x1ff6, b"ULSUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0x3ff6, b"ULSUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0x7ff6, b"ULSUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0xfff6, b"ULSUSPEND"),
    fs("swsuspend", "a suspended machine (swap)", 0xff6, b"LINHIB0001"),
    fs("swsuspend", "a suspended machine (swap)", 0x1ff6, b"LINHIB0001"),
    fs("swsuspend", "a suspended machine (swap)", 0x3ff6, b"LINHIB0001"),
    fs("swsuspend", "a suspended machine (swap)", 0x7ff6, b"LINHIB0001"),
    fs("swsuspend", "a suspended machine (swap)", 0xfff6, b"LINHIB0001"),
    fs("swsuspend", "a machine suspended by TuxOnIce (swap)", 0, TUXONICE),
    fs("udf", "UDF", 0x8001, b"BEA01"),
    fs("udf", "UDF", 0x8001, b"NSR02"),
    fs("udf", "UDF", 0x8001, b"NSR03"),
    fs("iso9660", "High Sierra volume", 0x8009, b"CDROM"),
    fs("hfsplus", "HFS+", 0x400, b"H+").checked(validate::hfs_plus),
    fs("hfsplus", "HFSX", 0x400, b"HX").checked(validate::hfs_plus),
    fs("hfs", "HFS", 0x400, b"BD").checked(validate::hfs),
    fs("apfs", "APFS", 32, b"NXSB"),
    fs("reiserfs", "ReiserFS", 0x1_0034, b"ReIsEr"),
    fs("reiserfs", "ReiserFS", 0x2034, b"ReIsEr"),
    fs("reiserfs", "ReiserFS", 0x2014, b"ReIsErFs"),
    fs("reiser4", "Reiser4", 0x1_0000, b"ReIsEr4"),
    fs("jfs", "JFS", 0x8000, b"JFS1"),
    fs("f2fs", "F2FS", 0x400, b"\x10\x20\xf5\xf2"),
    fs("f2fs", "F2FS", 0x1400, b"\x10\x20\xf5\xf2").copy(),
    fs("nilfs2", "NILFS2", 0x406, b"\x34\x34").checked(validate::nilfs),
    sign(("nilfs2", "NILFS2", "linux"), Depth::Content, MagicLocation::Back(0xffa), b"\x34\x34")
        .checked(validate::nilfs)
        .copy(),
    fs("squashfs", "SquashFS", 0, b"hsqs"),
    fs("squashfs", "SquashFS", 0, b"sqsh"),
    fs("erofs", "EROFS", 0x400, b"\xe2\xe1\xf5\xe0"),
    fs("cramfs", "cramfs", 0, b"\x45\x3d\xcd\x28"),
    fs("cramfs", "cramfs, other byte order", 0, b"\x28\xcd\x3d\x45"),
    fs("romfs", "romfs", 0, b"-rom1fs-"),
    fs("minix", "Minix 1", 0x410, b"\x7f\x13").checked(validate::minix),
    fs("minix", "Minix 1", 0x410, b"\x8f\x13").checked(validate::minix),
    fs("minix", "Minix 2", 0x410, b"\x68\x24").checked(validate::minix),
    fs("minix", "Minix 2", 0x410, b"\x78\x24").checked(validate::minix),
    fs("minix", "Minix 3", 0x418, b"\x5a\x4d").checked(validate::minix3),
    fs("minix", "Minix 1, big endian", 0x410, b"\x13\x7f").checked(validate::minix_big),
    fs("minix", "Minix 1, big endian", 0x410, b"\x13\x8f").checked(validate::minix_big),
    fs("minix", "Minix 2, big endian", 0x410, b"\x24\x68").checked(validate::minix_big),
    fs("minix", "Minix 2, big endian", 0x410, b"\x24\x78").checked(validate::minix_big),
    fs("minix", "Minix 3, big endian", 0x418, b"\x4d\x5a").checked(validate::minix3_big),
    fs("ufs", "UFS2", 0x1_055c, b"\x19\x01\x54\x19"),
    fs("ufs", "UFS2", 0x255c, b"\x19\x01\x54\x19"),
    fs("ufs", "UFS1", 0x255c, b"\x54\x19\x01\x00"),
    fs("ufs", "UFS1", 0x55c, b"\x54\x19\x01\x00"),
    fs("gfs", "GFS or GFS2", 0x1_0000, b"\x01\x16\x19\x70"),
    fs("ocfs2", "OCFS2", 0x400, b"OCFSV2"),
    fs("ocfs2", "OCFS2", 0x800, b"OCFSV2"),
    fs("ocfs2", "OCFS2", 0x1000, b"OCFSV2"),
    fs("ocfs2", "OCFS2", 0x2000, b"OCFSV2"),
    fs("hpfs", "HPFS", 0x2000, b"\x49\xe8\x95\xf9"),
    fs("befs", "BeFS", 0x220, b"1SFB").checked(validate::befs),
    fs("befs", "BeFS", 0x20, b"1SFB").checked(validate::befs),
    fs("befs", "BeFS, big endian", 0x220, b"BFS1").checked(validate::befs),
    fs("befs", "BeFS, big endian", 0x20, b"BFS1").checked(validate::befs),
    fs("bfs", "BFS of SCO Unix", 0, b"\xce\xfa\xad\x1b").checked(validate::bfs),
    fs("sysv", "System V file system", 0x3f8, SYSV).checked(validate::sysv),
    fs("sysv", "System V file system", 0x27f8, SYSV).checked(validate::sysv),
    fs("sysv", "System V file system", 0x3ff8, SYSV).checked(validate::sysv),
    fs("sysv", "System V file system", 0x4bf8, SYSV).checked(validate::sysv),
    fs("sysv", "System V file system, big endian", 0x3f8, SYSV_BIG).checked(validate::sysv),
    fs("sysv", "System V file system, big endian", 0x27f8, SYSV_BIG).checked(validate::sysv),
    fs("sysv", "System V file system, big endian", 0x3ff8, SYSV_BIG).checked(validate::sysv),
    fs("sysv", "System V file system, big endian", 0x4bf8, SYSV_BIG).checked(validate::sysv),
    fs("vxfs", "VxFS", 0x400, b"\xf5\xfc\x01\xa5").checked(validate::vxfs),
    fs("vxfs", "VxFS, big endian", 0x2000, b"\xa5\x01\xfc\xf5").checked(validate::vxfs_big),
    fs("nss", "Novell NSS", 0x1000, b"SPB5").checked(validate::nss),
    fs("mpool", "mpool", 0, b"mpoolDev").checked(validate::mpool),
    fs("scoutfs", "ScoutFS", 0x1_0004, b"\x8b\x42\x3c\x10").checked(validate::scoutfs),
    fs("zonefs", "zonefs", 0, b"SFOZ").checked(validate::zonefs),
    fs("ubifs", "UBIFS", 0, b"\x31\x18\x10\x06").checked(validate::ubifs),
    fs("ocfs", "OCFS", 0x2000, b"OracleCFS"),
    fs("oracleasm", "Oracle ASM disk", 0x20, b"ORCLDISK"),
    fs("refs", "ReFS", 0, b"\0\0\0ReFS\0"),
    fs("vmfs", "VMFS", 0x20_0000, b"\x5e\xf1\xab\x2f"),
    fs("vmfs", "VMFS volume", 0x10_0000, b"\x0d\xd0\x01\xc0"),
    fs("bluestore", "Ceph BlueStore", 0, b"bluestore block device"),
    fs("exfs", "EXFS", 0, b"EXFS"),
    holder("bitlocker", "BitLocker of Vista", MagicLocation::Start(0), b"\xeb\x52\x90-FVE-FS-"),
    holder("bitlocker", "BitLocker", MagicLocation::Start(0), b"\xeb\x58\x90-FVE-FS-")
        .checked(validate::bitlocker),
    holder("bitlocker", "BitLocker To Go", MagicLocation::Start(0), b"\xeb\x58\x90MSWIN4.1")
        .checked(validate::bitlocker),
    holder("luks", "LUKS", MagicLocation::Start(0), b"LUKS\xba\xbe"),
    holder("luks", "LUKS2", MagicLocation::Start(0x4000), b"SKUL\xba\xbe").copy(),
    holder("luks", "LUKS2", MagicLocation::Start(0x8000), b"SKUL\xba\xbe").copy(),
    holder("luks", "LUKS2", MagicLocation::Start(0x1_0000), b"SKUL\xba\xbe").copy(),
    holder("luks", "LUKS2", MagicLocation::Start(0x2_0000), b"SKUL\xba\xbe").copy(),
    holder("luks", "LUKS2", MagicLocation::Start(0x4_0000), b"SKUL\xba\xbe").copy(),
    holder("luks", "LUKS2", MagicLocation::Start(0x8_0000), b"SKUL\xba\xbe").copy(),
    holder("luks", "LUKS2", MagicLocation::Start(0x10_0000), b"SKUL\xba\xbe").copy(),
    holder("luks", "LUKS2", MagicLocation::Start(0x20_0000), b"SKUL\xba\xbe").copy(),
    holder("luks", "LUKS2", MagicLocation::Start(0x40_0000), b"SKUL\xba\xbe").copy(),
    holder("corestorage", "Core Storage volume (FileVault 2)", MagicLocation::Start(88), b"CS")
        .checked(validate::core_storage),
    holder("lvm2", "LVM2 physical volume", MagicLocation::Start(0x18), b"LVM2 001")
        .checked(validate::lvm2),
    holder("lvm2", "LVM2 physical volume", MagicLocation::Start(0x218), b"LVM2 001")
        .checked(validate::lvm2),
    holder("lvm2", "LVM2 physical volume", MagicLocation::Start(0x418), b"LVM2 001")
        .checked(validate::lvm2),
    holder("lvm2", "LVM2 physical volume", MagicLocation::Start(0x618), b"LVM2 001")
        .checked(validate::lvm2),
    holder("lvm1", "LVM1 physical volume", MagicLocation::Start(0), b"HM").checked(validate::lvm1),
    holder("snapshot", "a snapshot's copies (dm)", MagicLocation::Start(0), b"SnAp"),
    holder("integrity", "dm-integrity", MagicLocation::Start(0), b"integrt\0"),
    holder("verity", "dm-verity hashes", MagicLocation::Start(0), b"verity\0\0"),
    holder("vdo", "VDO", MagicLocation::Start(0), b"dmvdo001"),
    holder("stratis", "Stratis", MagicLocation::Start(0x204), b"!Stra0tis\x86\xff\x02^Arh"),
    holder("stratis", "Stratis", MagicLocation::Start(0x1204), b"!Stra0tis\x86\xff\x02^Arh").copy(),
    holder("ubi", "UBI", MagicLocation::Start(0), b"UBI#").checked(validate::ubi),
    holder("bcache", "bcache", MagicLocation::Start(0x1018), BCACHE).checked(validate::bcache),
    holder("bcachefs", "bcachefs", MagicLocation::Start(0x1018), BCACHE)
        .checked(validate::bcachefs),
    holder("bcachefs", "bcachefs", MagicLocation::Start(0x1018), BCACHEFS)
        .checked(validate::bcachefs),
    member("drbd", "DRBD 8", MagicLocation::Drbd(60), b"\x83\x74\x02\x6b").checked(validate::drbd),
    member("drbd", "DRBD 8, unclean", MagicLocation::Drbd(60), b"\x83\x74\x02\x6c")
        .checked(validate::drbd),
    member("drbd", "DRBD 9", MagicLocation::Drbd(60), b"\x83\x74\x02\x6d").checked(validate::drbd),
    server("device of a file server's WORM", b"ASHW"),
    server("cache device of a file server", b"ASHC"),
    holder("drbdmanage", "DRBD Manage control volume", MagicLocation::Start(0), b"$DRBDmgr=q")
        .checked(validate::drbdmanage),
    holder("drbdproxy", "DRBD Proxy data log", MagicLocation::Start(0), b"DRBDdlh*"),
    windows("Windows dynamic disk (LDM)", MagicLocation::Start(0xc00)),
    windows("Windows dynamic disk (LDM), second copy", MagicLocation::Tail(192, 0)).copy(),
    windows("Windows dynamic disk (LDM), last copy", MagicLocation::Tail(1, 0)).copy(),
    member("md", "Linux md 0.90", MagicLocation::Md090, MD_LITTLE).checked(validate::md_090),
    member("md", "Linux md 0.90, other byte order", MagicLocation::Md090, MD_BIG)
        .checked(validate::md_090),
    member("md", "Linux md 1.0", MagicLocation::Md10, MD_LITTLE).checked(validate::md_1),
    member("md", "Linux md 1.1", MagicLocation::Start(0), MD_LITTLE).checked(validate::md_1),
    member("md", "Linux md 1.2", MagicLocation::Start(0x1000), MD_LITTLE).checked(validate::md_1),
    dasd(0x400, VOL1),
    dasd(0x400, LNX1),
    dasd(0x400, CMS1),
    dasd(0x800, VOL1),
    dasd(0x800, LNX1),
    dasd(0x800, CMS1),
    dasd(0x1000, VOL1),
    dasd(0x1000, LNX1),
    dasd(0x1000, CMS1),
    dasd(0x2000, VOL1),
    dasd(0x2000, LNX1),
    dasd(0x2000, CMS1),
    sign(
        ("sun", "Sun disk label", "other"),
        Depth::Table,
        MagicLocation::Start(0x1fc),
        b"\xda\xbe",
    )
    .checked(validate::sun),
    sign(
        ("sgi", "SGI disk label", "other"),
        Depth::Table,
        MagicLocation::Start(0),
        b"\x0b\xe5\xa9\x41",
    ),
    sign(("apm", "Apple partition map", "other"), Depth::Table, MagicLocation::Start(0), b"ER")
        .checked(validate::apple),
    sign(
        ("apm", "Apple partition map", "other"),
        Depth::Table,
        MagicLocation::Start(512),
        b"PM\0\0",
    ),
    sign(("aix", "AIX disk", "other"), Depth::Table, MagicLocation::Start(0), b"\xc9\xc2\xd4\xc1"),
    sign(
        ("ultrix", "Ultrix disk label", "other"),
        Depth::Table,
        MagicLocation::Start(0x3fb8),
        ULTRIX,
    ),
    sign(
        ("bsd", "BSD disklabel", "part"),
        Depth::Table,
        MagicLocation::Start(512),
        b"\x57\x45\x56\x82",
    )
    .checked(validate::bsd),
    sign(
        ("bsd", "BSD disklabel", "part"),
        Depth::Table,
        MagicLocation::Start(4096),
        b"\x57\x45\x56\x82",
    )
    .checked(validate::bsd),
    sign(
        ("bsd", "BSD disklabel", "other"),
        Depth::Table,
        MagicLocation::Start(64),
        b"\x57\x45\x56\x82",
    )
    .checked(validate::bsd),
    sign(
        ("bsd", "BSD disklabel", "other"),
        Depth::Table,
        MagicLocation::Start(128),
        b"\x57\x45\x56\x82",
    )
    .checked(validate::bsd),
    sign(
        ("label", "GEOM label", "label"),
        Depth::Name,
        MagicLocation::Last(0, 0),
        b"GEOM::LABEL\0",
    ),
    geom("mirror", "member of a mirror", b"GEOM::MIRROR\0"),
    geom("stripe", "member of a stripe", b"GEOM::STRIPE\0"),
    geom("concat", "member of a concatenation", b"GEOM::CONCAT\0"),
    geom("multipath", "path of a multipath device", b"GEOM::MULTIPATH\0"),
    geom("geom", "GEOM RAID3", b"GEOM::RAID3\0"),
    geom("geom", "GEOM encryption", b"GEOM::ELI\0"),
    geom("geom", "GEOM thin provisioning", b"GEOM::VIRSTOR\0"),
    geom("geom", "GEOM journal", b"GEOM::JOURNAL\0"),
    geom("geom", "GEOM cache", b"GEOM::CACHE\0"),
    geom("geom", "GEOM shared secret", b"GEOM::SHSEC\0"),
    sign(("imsm", "Intel RAID", "raid"), Depth::Member, MagicLocation::Last(1, 0), INTEL),
    sign(
        ("ddf", "DDF anchor", "raid"),
        Depth::Member,
        MagicLocation::Last(0, 0),
        b"\xde\x11\xde\x11",
    )
    .checked(firmware::ddf),
    sign(
        ("ddf", "DDF anchor", "raid"),
        Depth::Member,
        MagicLocation::Last(0, 0),
        b"\x11\xde\x11\xde",
    )
    .checked(firmware::ddf),
    ddf(MagicLocation::Tail(1, 0), b"\xde\x11\xde\x11"),
    ddf(MagicLocation::Tail(1, 0), b"\x11\xde\x11\xde"),
    ddf(MagicLocation::Tail(257, 0), b"\xde\x11\xde\x11"),
    ddf(MagicLocation::Tail(257, 0), b"\x11\xde\x11\xde"),
    promise(63),
    promise(255),
    promise(256),
    promise(16),
    promise(399),
    promise(591),
    promise(675),
    promise(735),
    promise(911),
    promise(974),
    promise(991),
    promise(951),
    promise(3087),
    bios(
        "promise",
        "Promise RAID, as FreeBSD's ata",
        MagicLocation::Tail(63, 0),
        b"FreeBSD ATA driver RAID ",
    ),
    bios("nvidia", "NVIDIA RAID", MagicLocation::Tail(2, 0), b"NVIDIA  "),
    bios("jmicron", "JMicron RAID", MagicLocation::Tail(1, 0), b"JM").checked(firmware::jmicron),
    bios("highpoint", "HighPoint RAID", MagicLocation::Start(0x1220), b"\xf0\x16\x78\x5a"),
    bios("highpoint", "HighPoint RAID", MagicLocation::Start(0x1220), b"\xf3\x16\x78\x5a"),
    bios("highpoint", "HighPoint RAID, broken", MagicLocation::Start(0x1220), b"\xfd\x16\x78\x5a"),
    bios("highpoint", "HighPoint RAID 45x", MagicLocation::Tail(11, 0), b"\xf3\x16\x78\x5a")
        .checked(firmware::highpoint),
    bios(
        "highpoint",
        "HighPoint RAID 45x, broken",
        MagicLocation::Tail(11, 0),
        b"\xfd\x16\x78\x5a",
    )
    .checked(firmware::highpoint),
    bios("adaptec", "Adaptec RAID", MagicLocation::Tail(1, 0), b"\x37\xfc\x4d\x1e")
        .checked(firmware::adaptec),
    bios("lsi", "LSI MegaRAID", MagicLocation::Tail(1, 0), b"$XIDE$"),
    bios("via", "VIA RAID", MagicLocation::Tail(1, 0), b"\x55\xaa").checked(firmware::via),
    bios("silicon", "Silicon Image Medley RAID", MagicLocation::Tail(1, 0x60), b"\0\0\0\x2f")
        .checked(firmware::silicon),
];
