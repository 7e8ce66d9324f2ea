//! Vital product data pages (SPC-4 section 7.8, SBC-3 section 6.6): 00 80 83 86 8F B0 B1 B2.

use super::copy::third_party_page;
use super::inquiry::{Identity, PeripheralType, ascii, printable};

/// Pages of every device type.
const COMMON: [u8; 4] = [0x00, 0x80, 0x83, 0x86];
/// Pages of disks.
const DISK: [u8; 3] = [0xb0, 0xb1, 0xb2];
/// Longest serial number sent, bytes; the rest is cut.
const SERIAL_LEN_MAX: usize = 251;

/// How a unit provisions blocks (B2h).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum Provisioning {
    /// Every block has its place.
    #[default]
    Full = 0,
    /// Resource provisioned.
    Resource = 1,
    /// Thin provisioned.
    Thin = 2,
}

/// Limits of a disk (B0h) and its provisioning (B2h). Lengths are logical blocks; 0 means not
/// reported, unless it says otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Preferred multiple of a transfer.
    pub granularity: u16,
    /// Largest transfer.
    pub transfer_max: u32,
    /// Largest transfer without delay.
    pub transfer_best: u32,
    /// Largest COMPARE AND WRITE; 0 when it is not served.
    pub compare_max: u8,
    /// Largest WRITE ATOMIC, of any alignment and granularity; 0 when it is not served.
    pub atomic_max: u32,
    /// Most blocks of one UNMAP; 0 when it is not served.
    pub unmap_blocks_max: u32,
    /// Most descriptors of one UNMAP.
    pub unmap_descriptors_max: u32,
    /// Preferred multiple of an UNMAP.
    pub unmap_granularity: u32,
    /// First block of such a multiple; None when not valid.
    pub unmap_alignment: Option<u32>,
    /// Largest WRITE SAME.
    pub write_same_max: u64,
    /// WSNZ: WRITE SAME with 0 blocks is refused.
    pub write_same_nonzero: bool,
    /// Provisioning type.
    pub provisioning: Provisioning,
    /// UNMAP is served (LBPU).
    pub unmap: bool,
    /// WRITE SAME(16) with UNMAP is served (LBPWS).
    pub unmap_same16: bool,
    /// WRITE SAME(10) with UNMAP is served (LBPWS10).
    pub unmap_same10: bool,
    /// Unmapped blocks read as zeros (LBPRZ).
    pub zeros: bool,
}

/// What the pages are made of.
#[derive(Clone, Copy, Debug)]
pub struct Vpd<'a> {
    /// Who the unit is.
    pub identity: &'a Identity,
    /// Its limits.
    pub limits: &'a Limits,
}

/// One page with its header, not truncated; None when the page is not supported.
pub fn vpd_page(page: u8, vpd: Vpd<'_>) -> Option<Vec<u8>> {
    let identity = vpd.identity;
    let disk = identity.kind == PeripheralType::Disk;
    let body = match page {
        0x00 => pages(identity, disk),
        0x80 => printable(&identity.serial).take(SERIAL_LEN_MAX).collect(),
        0x83 => designators(identity),
        0x86 => extended(identity),
        0x8f => third_party_page(identity.third_party.as_ref()?),
        0xb0 if disk => block_limits(vpd.limits),
        0xb1 if disk => characteristics(identity),
        0xb2 if disk => provisioning(vpd.limits),
        _ => return None,
    };
    let mut out = vec![identity.kind as u8, page];
    out.extend(u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(body);
    Some(out)
}

/// The pages there are, by growing code.
fn pages(identity: &Identity, disk: bool) -> Vec<u8> {
    let copies = identity.third_party.is_some().then_some(0x8f);
    let of_disk = DISK.into_iter().filter(|_| disk);
    COMMON.into_iter().chain(copies).chain(of_disk).collect()
}

/// Code sets of designators.
const BINARY: u8 = 1;
const ASCII: u8 = 2;
const UTF8: u8 = 3;
/// Association: logical unit, target port, target device; ports and devices name protocol iSCSI.
const UNIT: u8 = 0x00;
const PORT: u8 = 0x90;
const DEVICE: u8 = 0xa0;
/// Protocol identifier of iSCSI, in the high half of the first byte.
const ISCSI: u8 = 0x50;

fn designators(identity: &Identity) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(naa) = &identity.naa {
        designator(&mut out, BINARY, UNIT | 3, naa);
    }
    let mut t10 = ascii::<8>(&identity.vendor).to_vec();
    t10.extend(ascii::<16>(&identity.product));
    t10.extend(printable(&identity.serial).take(SERIAL_LEN_MAX - 24));
    designator(&mut out, ASCII, UNIT | 1, &t10);
    let [high, low] = identity.relative_port.to_be_bytes();
    designator(&mut out, ISCSI | BINARY, PORT | 4, &[0, 0, high, low]);
    let [high, low] = identity.port_group.to_be_bytes();
    if identity.tpgs != 0 {
        designator(&mut out, ISCSI | BINARY, PORT | 5, &[0, 0, high, low]);
    }
    if !identity.target_name.is_empty() {
        let port = format!("{},t,0x{:04x}", identity.target_name, identity.portal_group);
        designator(&mut out, ISCSI | UTF8, PORT | 8, &terminated(&port));
        designator(&mut out, ISCSI | UTF8, DEVICE | 8, &terminated(&identity.target_name));
    }
    out
}

/// A name with its NUL, padded with NULs to a multiple of four. Names are at most 223 bytes.
fn terminated(name: &str) -> Vec<u8> {
    let mut out: Vec<u8> = name.bytes().take(251).collect();
    out.resize((out.len() + 1).next_multiple_of(4), 0);
    out
}

fn designator(out: &mut Vec<u8>, set: u8, kind: u8, body: &[u8]) {
    let len = u8::try_from(body.len()).unwrap_or(u8::MAX);
    out.extend([set, kind, 0, len]);
    out.extend(body.iter().take(usize::from(len)));
}

fn extended(identity: &Identity) -> Vec<u8> {
    let mut out = vec![0; 60];
    // HEADSUP, ORDSUP, SIMPSUP; V_SUP with a volatile cache; LUICLR.
    let bytes = [0x00, 0x07, u8::from(identity.write_cache), 0x01];
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    out
}

fn block_limits(limits: &Limits) -> Vec<u8> {
    let mut out = vec![u8::from(limits.write_same_nonzero), limits.compare_max];
    out.extend(limits.granularity.to_be_bytes());
    out.extend(limits.transfer_max.to_be_bytes());
    out.extend(limits.transfer_best.to_be_bytes());
    out.extend([0; 4]);
    out.extend(limits.unmap_blocks_max.to_be_bytes());
    out.extend(limits.unmap_descriptors_max.to_be_bytes());
    out.extend(limits.unmap_granularity.to_be_bytes());
    let alignment = limits.unmap_alignment.map_or(0, |at| 0x8000_0000 | at);
    out.extend(alignment.to_be_bytes());
    out.extend(limits.write_same_max.to_be_bytes());
    out.extend(limits.atomic_max.to_be_bytes());
    out.resize(60, 0);
    out
}

fn characteristics(identity: &Identity) -> Vec<u8> {
    let mut out = identity.rotation_rate.to_be_bytes().to_vec();
    out.resize(60, 0);
    out
}

fn provisioning(limits: &Limits) -> Vec<u8> {
    let bits = [
        (limits.unmap, 0x80),
        (limits.unmap_same16, 0x40),
        (limits.unmap_same10, 0x20),
        (limits.zeros, 0x04),
    ];
    let flags = bits.into_iter().filter(|(on, _)| *on).fold(0, |sum, (_, bit)| sum | bit);
    vec![0, flags, limits.provisioning as u8, 0]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn identity() -> Identity {
        Identity {
            vendor: "ASHLAR".to_owned(),
            product: "disk".to_owned(),
            serial: "SN01".to_owned(),
            naa: Some([0x60, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]),
            target_name: "iqn.2001-04.com.example:d".to_owned(),
            relative_port: 1,
            port_group: 3,
            portal_group: 2,
            tpgs: 1,
            rotation_rate: 1,
            ..Identity::default()
        }
    }

    fn page(code: u8) -> Option<Vec<u8>> {
        let limits = Limits {
            transfer_max: 0x800,
            unmap_blocks_max: 0x1000,
            unmap_descriptors_max: 16,
            unmap_granularity: 8,
            unmap_alignment: Some(1),
            write_same_max: 0x2000,
            write_same_nonzero: true,
            provisioning: Provisioning::Thin,
            unmap: true,
            zeros: true,
            ..Limits::default()
        };
        vpd_page(code, Vpd { identity: &identity(), limits: &limits })
    }

    #[test]
    fn every_page_listed_exists_and_has_its_length() {
        let list = page(0).unwrap();
        assert_eq!(list, [0, 0, 0, 7, 0x00, 0x80, 0x83, 0x86, 0xb0, 0xb1, 0xb2]);
        for code in 0..=255u8 {
            let found = page(code);
            assert_eq!(found.is_some(), list[4..].contains(&code), "{code:#x}");
            if let Some(page) = found {
                let len = usize::from(u16::from_be_bytes([page[2], page[3]]));
                assert_eq!((page[1], page.len()), (code, len + 4));
            }
        }
        assert_eq!(page(0x80).unwrap()[4..], *b"SN01");
        let cdrom = Identity { kind: PeripheralType::Cdrom, ..identity() };
        let vpd = Vpd { identity: &cdrom, limits: &Limits::default() };
        assert_eq!(vpd_page(0xb0, vpd), None);
        assert_eq!(vpd_page(0, vpd).unwrap(), [5, 0, 0, 4, 0, 0x80, 0x83, 0x86]);
    }

    #[test]
    fn designators_by_hand() {
        let page = page(0x83).unwrap();
        assert_eq!(page[4..8], [1, 3, 0, 16]);
        let mut at = 4;
        let mut kinds = Vec::new();
        while at < page.len() {
            let len = usize::from(page[at + 3]);
            kinds.push((page[at], page[at + 1], len));
            at += 4 + len;
        }
        assert_eq!(at, page.len());
        let want = [
            (0x01, 0x03, 16),
            (0x02, 0x01, 28),
            (0x51, 0x94, 4),
            (0x51, 0x95, 4),
            (0x53, 0x98, 36),
            (0x53, 0xa8, 28),
        ];
        assert_eq!(kinds, want);
        let text = String::from_utf8_lossy(&page);
        assert!(text.contains("iqn.2001-04.com.example:d,t,0x0002\0"));
    }

    #[test]
    fn limits_by_hand() {
        let b0 = page(0xb0).unwrap();
        assert_eq!(b0.len(), 64);
        assert_eq!((b0[4], b0[5]), (1, 0));
        assert_eq!(b0[8..12], [0, 0, 8, 0]);
        assert_eq!(b0[20..24], [0, 0, 0x10, 0]);
        assert_eq!(b0[24..28], [0, 0, 0, 16]);
        assert_eq!(b0[28..36], [0, 0, 0, 8, 0x80, 0, 0, 1]);
        assert_eq!(b0[36..44], [0, 0, 0, 0, 0, 0, 0x20, 0]);
        let b1 = page(0xb1).unwrap();
        assert_eq!((b1.len(), &b1[4..6]), (64, &[0, 1][..]));
        assert_eq!(page(0xb2).unwrap(), [0, 0xb2, 0, 4, 0, 0x84, 2, 0]);
    }
}
