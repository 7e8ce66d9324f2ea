//! Vital product data pages (SPC-4 section 7.8, SBC-3 section 6.6): 00 80 83 85 86 87 88 8F, and B0
//! B1 B2 of disks.

use super::copy::third_party_page;
use super::ids::naa_bytes;
use super::inquiry::{Identity, PeripheralType, ascii, printable};
use super::sense::SENSE_LEN_MAX;

/// Pages of every device type.
const COMMON: [u8; 7] = [0x00, 0x80, 0x83, 0x85, 0x86, 0x87, 0x88];
/// Of units with a copy manager.
const THIRD_PARTY: u8 = 0x8f;
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
    Resource = 1,
    Thin = 2,
}

/// Limits of a disk (B0h) and its provisioning (B2h). Lengths are logical blocks; 0 means not
/// reported, unless the field is described otherwise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Limits {
    /// Preferred multiple of a transfer.
    pub granularity: u16,
    pub transfer_max: u32,
    /// Largest transfer without delay.
    pub transfer_best: u32,
    /// Largest COMPARE AND WRITE; 0 when it is not served.
    pub compare_max: u8,
    /// Largest WRITE ATOMIC, of any granularity and without boundaries; 0 when it is not served.
    pub atomic_max: u32,
    /// Every WRITE ATOMIC begins at a multiple of it; 0 when it may begin anywhere.
    pub atomic_alignment: u32,
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
    pub provisioning: Provisioning,
    /// UNMAP is served (LBPU).
    pub unmap: bool,
    /// WRITE SAME(16) with UNMAP is served (LBPWS).
    pub unmap_same16: bool,
    /// WRITE SAME(10) with UNMAP is served (LBPWS10).
    pub unmap_same10: bool,
    /// Unmapped blocks read as zeros (LBPRZ).
    pub zeros: bool,
    /// ANC_SUP: blocks can be anchored.
    pub anchor: bool,
    /// THRESHOLD EXPONENT: a threshold set has 2 to its power blocks; 0 without thresholds.
    pub threshold_exponent: u8,
    /// THRESHOLD PERCENTAGE: the granularity of reported percentages; 0 without thresholds.
    pub threshold_percent: u8,
}

/// The data that the pages are built from.
#[derive(Clone, Copy, Debug)]
pub struct Vpd<'a> {
    pub identity: &'a Identity,
    pub limits: &'a Limits,
}

/// One page with its header, not truncated; None when the page is not supported.
pub fn vpd_page(page: u8, vpd: Vpd<'_>) -> Option<Vec<u8>> {
    let identity = vpd.identity;
    let disk = identity.kind == PeripheralType::Disk;
    let body = match page {
        0x00 => listed(identity),
        0x80 => printable(&identity.serial).take(SERIAL_LEN_MAX).collect(),
        0x83 => designators(identity),
        // No management service has a network address.
        0x85 => Vec::new(),
        0x86 => extended(identity),
        // One policy for all mode pages: shared.
        0x87 => vec![0x3f, 0xff, 0x00, 0x00],
        0x88 => ports(identity),
        THIRD_PARTY => third_party_page(identity.third_party.as_ref()?),
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

/// The pages that the unit has.
fn listed(identity: &Identity) -> Vec<u8> {
    let mut out = COMMON.to_vec();
    if identity.third_party.is_some() {
        out.push(THIRD_PARTY);
    }
    if identity.kind == PeripheralType::Disk {
        out.extend(DISK);
    }
    out
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
        designator(&mut out, BINARY, UNIT | 3, naa_bytes(naa));
    }
    if let Some(eui64) = &identity.eui64 {
        designator(&mut out, BINARY, UNIT | 2, eui64);
    }
    if let Some(uuid) = &identity.uuid {
        // SPC-5 section 7.7.6.11: UUID TYPE 1h, a reserved byte.
        designator(&mut out, BINARY, UNIT | 0xA, &[&[0x10, 0], uuid.as_slice()].concat());
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

/// The unit's support for task attributes, unit attentions, caches and sense data.
fn extended(identity: &Identity) -> Vec<u8> {
    let mut out = vec![0; 60];
    // SPT, GRD_CHK, APP_CHK, REF_CHK; HEADSUP, ORDSUP, SIMPSUP; V_SUP with a volatile cache;
    // LUICLR.
    let checks = identity.protection.map_or(0, |types| (types & 7) << 3 | 0x07);
    let bytes = [checks, 0x07, u8::from(identity.write_cache), 0x01];
    out.iter_mut().zip(bytes).for_each(|(to, from)| *to = from);
    // MAXIMUM SUPPORTED SENSE DATA LENGTH, byte 13 of the page.
    if let Some(longest) = out.get_mut(9) {
        *longest = SENSE_LEN_MAX as u8;
    }
    out
}

/// SCSI ports: every target port that has the unit, with its names.
fn ports(identity: &Identity) -> Vec<u8> {
    let mut out = Vec::new();
    for port in &identity.ports {
        let mut names = Vec::new();
        if !port.name.is_empty() {
            let name = format!("{},t,0x{:04x}", port.name, port.group);
            designator(&mut names, ISCSI | UTF8, PORT | 8, &terminated(&name));
        }
        let [high, low] = port.relative.to_be_bytes();
        let len = u16::try_from(names.len()).unwrap_or(0).to_be_bytes();
        // No TransportID of an initiator port.
        let one = [0, 0, high, low, 0, 0, 0, 0, 0, 0, len[0], len[1]];
        if out.len() + one.len() + names.len() > usize::from(u16::MAX) {
            break;
        }
        out.extend(one);
        out.extend(names);
    }
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
    out.extend(limits.atomic_alignment.to_be_bytes());
    out.resize(60, 0);
    out
}

fn characteristics(identity: &Identity) -> Vec<u8> {
    let mut out = identity.rotation_rate.to_be_bytes().to_vec();
    // WABEREQ and WACEREQ 01b: after an erase, reads succeed.
    let after_block = if identity.block_erase { 0x40 } else { 0 };
    let after_crypto = if identity.crypto_erase { 0x10 } else { 0 };
    // VBULS: VERIFY compares unmapped blocks, too.
    out.extend([0, after_block | after_crypto, 0x01]);
    out.resize(60, 0);
    out
}

fn provisioning(limits: &Limits) -> Vec<u8> {
    let bits = [
        (limits.unmap, 0x80),
        (limits.unmap_same16, 0x40),
        (limits.unmap_same10, 0x20),
        (limits.zeros, 0x04),
        (limits.anchor, 0x02),
    ];
    let flags = bits.into_iter().filter(|(on, _)| *on).fold(0, |sum, (_, bit)| sum | bit);
    vec![limits.threshold_exponent, flags, limits.provisioning as u8, limits.threshold_percent]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::TargetPortName;
    use crate::scsi::copy::TEST_LIMITS;

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
            third_party: Some(TEST_LIMITS),
            protection: Some(1),
            write_cache: true,
            ports: (1..=2)
                .map(|relative| TargetPortName {
                    relative,
                    group: 2,
                    name: format!("iqn.2001-04.com.example:p{relative}"),
                })
                .collect(),
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
        let codes = [0x00, 0x80, 0x83, 0x85, 0x86, 0x87, 0x88, 0x8f, 0xb0, 0xb1, 0xb2];
        assert_eq!((&list[..4], &list[4..]), (&[0, 0, 0, 11][..], &codes[..]));
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
        assert_eq!(vpd_page(0, vpd).unwrap()[..4], [5, 0, 0, 8]);
        let plain = Identity { third_party: None, ..identity() };
        let vpd = Vpd { identity: &plain, limits: &Limits::default() };
        assert_eq!(vpd_page(0x8f, vpd), None);
        assert!(!vpd_page(0, vpd).unwrap()[4..].contains(&0x8f));
    }

    #[test]
    fn configured_designators_match_known_bytes() {
        let mut naa = [0; 16];
        naa[..8].copy_from_slice(&[0x50, 1, 2, 3, 4, 5, 6, 7]);
        let (eui64, uuid) = (Some([9; 8]), Some([7; 16]));
        let named = Identity { naa: Some(naa), eui64, uuid, ..identity() };
        let page = vpd_page(0x83, Vpd { identity: &named, limits: &Limits::default() }).unwrap();
        assert_eq!(page[4..16], [1, 3, 0, 8, 0x50, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!(page[16..28], [1, 2, 0, 8, 9, 9, 9, 9, 9, 9, 9, 9]);
        assert_eq!(page[28..34], [1, 0xA, 0, 18, 0x10, 0]);
        assert_eq!(page[34..50], [7; 16]);
    }

    #[test]
    fn default_designators_match_known_bytes() {
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
    fn port_and_policy_pages_match_known_bytes() {
        let ports = page(0x88).unwrap();
        assert_eq!(ports[4..16], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 40]);
        assert_eq!(ports[16..20], [0x53, 0x98, 0, 36]);
        assert_eq!(ports[4 + 52..4 + 56], [0, 0, 0, 2]);
        assert_eq!(ports.len(), 4 + 2 * 52);
        assert_eq!(page(0x87).unwrap(), [0, 0x87, 0, 4, 0x3f, 0xff, 0, 0]);
        let extended = page(0x86).unwrap();
        assert_eq!(extended[4..8], [0x0f, 7, 1, 1]);
        assert_eq!(usize::from(extended[13]), SENSE_LEN_MAX);
        assert_eq!(page(0x8f).unwrap()[4..], third_party_page(&TEST_LIMITS));
    }

    #[test]
    fn block_limits_page_matches_known_bytes() {
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
        assert_eq!(b1[8], 1, "VBULS");
        assert_eq!(page(0xb2).unwrap(), [0, 0xb2, 0, 4, 0, 0x84, 2, 0]);
    }
}
