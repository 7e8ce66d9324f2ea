//! Standard INQUIRY data (SPC-4 section 6.6.2), from a plain description.

use super::copy::CopyLimits;
use super::ids::Naa;
use crate::bytes::Reader;
use crate::error::WireError;

/// Peripheral device types served here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum PeripheralType {
    /// Direct-access block device.
    #[default]
    Disk = 0x00,
    /// CD or DVD.
    Cdrom = 0x05,
    Enclosure = 0x0d,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TargetPortName {
    /// Relative target port identifier, from 1.
    pub relative: u16,
    pub group: u16,
    /// iSCSI name of the target; empty when it has none.
    pub name: String,
}

/// The identity of a logical unit. Text is cut or padded with spaces to its field; bytes that are
/// not printable ASCII become spaces.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Identity {
    pub kind: PeripheralType,
    /// RMB: the medium can be removed.
    pub removable: bool,
    /// T10 vendor identification, 8 bytes.
    pub vendor: String,
    /// Product identification, 16 bytes.
    pub product: String,
    /// Product revision level, 4 bytes.
    pub revision: String,
    /// Unit serial number; at most 251 bytes are sent.
    pub serial: String,
    /// NAA identifier of the logical unit; None leaves the designator out.
    pub naa: Option<Naa>,
    /// EUI-64 of the logical unit; None leaves the designator out.
    pub eui64: Option<[u8; 8]>,
    /// UUID of the logical unit; None leaves the designator out.
    pub uuid: Option<[u8; 16]>,
    /// iSCSI name of the target; empty leaves the SCSI name designators out.
    pub target_name: String,
    /// Relative target port identifier of the port the command arrived through, from 1.
    pub relative_port: u16,
    pub port_group: u16,
    /// iSCSI's portal group tag, a part of the port's name.
    pub portal_group: u16,
    /// TPGS: 0 none, 1 implicit, 2 explicit, 3 both.
    pub tpgs: u8,
    /// MULTIP: the target has more than one port.
    pub multi_port: bool,
    /// Every target port that has the unit (page 88h).
    pub ports: Vec<TargetPortName>,
    /// NORMACA: auto contingent allegiance is served.
    pub normal_aca: bool,
    /// SPT of page 86h: which types of protection can be formatted; the bit PROTECT is set with it.
    pub protection: Option<u8>,
    pub write_cache: bool,
    /// 3PC: the unit copies for its initiators, within these limits (page 8Fh).
    pub third_party: Option<CopyLimits>,
    /// SANITIZE BLOCK ERASE is served; blocks can be read after it.
    pub block_erase: bool,
    /// SANITIZE CRYPTOGRAPHIC ERASE is served; blocks can be read after it.
    pub crypto_erase: bool,
    /// Medium rotation rate in revolutions per minute; 0 not reported, 1 non-rotating.
    pub rotation_rate: u16,
}

/// Version descriptors of a type of device: SAM-5, SPC-4, SBC-3 or MMC-6, iSCSI, each without a
/// claim to a revision.
const fn versions(kind: PeripheralType) -> [u16; 4] {
    let commands = match kind {
        PeripheralType::Disk => 0x04c0,
        PeripheralType::Cdrom => 0x04e0,
        PeripheralType::Enclosure => 0,
    };
    [0x00a0, 0x0460, commands, 0x0960]
}

/// Length of standard INQUIRY data as built here.
const INQUIRY_LEN: usize = 96;

/// Standard INQUIRY data, 96 bytes, not truncated.
pub fn inquiry_data(identity: &Identity) -> Vec<u8> {
    let mut out = Vec::with_capacity(INQUIRY_LEN);
    let removable = if identity.removable { 0x80 } else { 0 };
    let bit = |on: bool, bit: u8| if on { bit } else { 0 };
    // Version 06h is SPC-4; NORMACA, HISUP and response data format 2.
    let format = bit(identity.normal_aca, 0x20) | 0x12;
    out.extend([identity.kind as u8, removable, 0x06, format]);
    // ADDITIONAL LENGTH; TPGS, 3PC, PROTECT; MULTIP; CMDQUE.
    let features = (identity.tpgs & 3) << 4
        | bit(identity.third_party.is_some(), 0x08)
        | bit(identity.protection.is_some(), 0x01);
    out.extend([(INQUIRY_LEN - 5) as u8, features, bit(identity.multi_port, 0x10), 0x02]);
    out.extend(ascii::<8>(&identity.vendor));
    out.extend(ascii::<16>(&identity.product));
    out.extend(ascii::<4>(&identity.revision));
    out.resize(58, 0);
    versions(identity.kind).iter().for_each(|version| out.extend(version.to_be_bytes()));
    out.resize(INQUIRY_LEN, 0);
    out
}

/// Standard INQUIRY data for a LUN that does not exist: peripheral qualifier 011b, type 1Fh.
pub fn no_lun_inquiry() -> Vec<u8> {
    let mut out = inquiry_data(&Identity::default());
    if let Some(first) = out.first_mut() {
        *first = 0x7f;
    }
    out
}

/// Standard INQUIRY data for a LUN whose unit is not connected and can be: peripheral qualifier
/// 001b, a disk.
pub fn unconnected_inquiry() -> Vec<u8> {
    let mut out = inquiry_data(&Identity::default());
    if let Some(first) = out.first_mut() {
        *first = 0x20;
    }
    out
}

/// Text of exactly `N` bytes: printable ASCII, padded with spaces.
pub(crate) fn ascii<const N: usize>(text: &str) -> [u8; N] {
    let mut out = [b' '; N];
    out.iter_mut().zip(printable(text)).for_each(|(to, from)| *to = from);
    out
}

pub(crate) fn printable(text: &str) -> impl Iterator<Item = u8> + '_ {
    text.chars().map(|c| match u8::try_from(c) {
        Ok(b) if b == b' ' || b.is_ascii_graphic() => b,
        _ => b' ',
    })
}

impl Identity {
    /// Reads standard INQUIRY data of at least 36 bytes, for initiators; absent fields keep their
    /// defaults. Unknown device types are an error.
    pub fn parse(data: &[u8]) -> Result<Identity, WireError> {
        let mut reader = Reader::new(data);
        let kind = match reader.u8("PERIPHERAL DEVICE TYPE")? & 0x1f {
            0x00 => PeripheralType::Disk,
            0x05 => PeripheralType::Cdrom,
            0x0d => PeripheralType::Enclosure,
            _ => return Err(WireError::bad("PERIPHERAL DEVICE TYPE", 0)),
        };
        let removable = reader.u8("RMB")? & 0x80 != 0;
        reader.take(3, "VERSION")?;
        let tpgs = (reader.u8("TPGS")? >> 4) & 3;
        let multi_port = reader.u8("MULTIP")? & 0x10 != 0;
        reader.take(1, "CMDQUE")?;
        let mut text = |len, field| -> Result<String, WireError> {
            let bytes = reader.take(len, field)?;
            Ok(String::from_utf8_lossy(bytes).trim_end().to_owned())
        };
        Ok(Identity {
            kind,
            removable,
            tpgs,
            multi_port,
            vendor: text(8, "T10 VENDOR IDENTIFICATION")?,
            product: text(16, "PRODUCT IDENTIFICATION")?,
            revision: text(4, "PRODUCT REVISION LEVEL")?,
            ..Identity::default()
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn standard_inquiry_data_match_known_bytes() {
        let identity = Identity {
            vendor: "ASHLAR".to_owned(),
            product: "a product name too long".to_owned(),
            revision: "0\u{e9}1".to_owned(),
            tpgs: 1,
            removable: true,
            ..Identity::default()
        };
        let data = inquiry_data(&identity);
        assert_eq!(data.len(), 96);
        assert_eq!(data[..8], [0, 0x80, 6, 0x12, 91, 0x10, 0, 2]);
        assert_eq!(&data[8..36], b"ASHLAR  a product name t0 1 ");
        assert_eq!(data[58..66], [0x00, 0xa0, 0x04, 0x60, 0x04, 0xc0, 0x09, 0x60]);
        let read = Identity::parse(&data).unwrap();
        assert_eq!((read.vendor.as_str(), read.product.as_str()), ("ASHLAR", "a product name t"));
        assert!(read.removable && read.tpgs == 1);
        for cut in 0..36 {
            assert!(Identity::parse(&data[..cut]).is_err());
        }
        assert_eq!(no_lun_inquiry()[0], 0x7f);
        assert!(Identity::parse(&no_lun_inquiry()).is_err());
    }
}
