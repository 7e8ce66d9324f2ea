//! Parameter data as initiators read them: INQUIRY and its pages of any device, mode data of a
//! disk. Lengths given by the device are checked against the received data.

use super::vpd::{Limits, Provisioning};
use crate::bytes::{Reader, text};
use crate::error::WireError;

/// Shortest standard INQUIRY data that devices send.
pub const INQUIRY_SHORT: usize = 36;

/// Standard INQUIRY data of any device.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Inquiry {
    /// PERIPHERAL QUALIFIER: 0 there is a unit, 1 there could be, 3 there cannot.
    pub qualifier: u8,
    /// PERIPHERAL DEVICE TYPE.
    pub kind: u8,
    /// RMB.
    pub removable: bool,
    pub version: u8,
    /// TPGS: asymmetric access, 1 implicit, 2 explicit, 3 both (SPC-4 section 6.4.2).
    pub asymmetric: u8,
    /// CMDQUE: commands are queued.
    pub queues: bool,
    /// T10 VENDOR IDENTIFICATION, without the spaces at its ends.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION, likewise.
    pub product: String,
    /// PRODUCT REVISION LEVEL, likewise.
    pub revision: String,
    /// Bytes that a whole answer has, header included.
    pub whole: usize,
}

pub fn parse_inquiry(data: &[u8]) -> Result<Inquiry, WireError> {
    let mut reader = Reader::new(data);
    let first = reader.u8("PERIPHERAL DEVICE TYPE")?;
    let removable = reader.u8("RMB")? & 0x80 != 0;
    let version = reader.u8("VERSION")?;
    reader.take(1, "RESPONSE DATA FORMAT")?;
    let additional = reader.u8("ADDITIONAL LENGTH")?;
    let asymmetric = reader.u8("TPGS")? >> 4 & 3;
    reader.take(1, "INQUIRY flags")?;
    let queues = reader.u8("CMDQUE")? & 0x02 != 0;
    let vendor = text(reader.take(8, "T10 VENDOR IDENTIFICATION")?);
    let product = text(reader.take(16, "PRODUCT IDENTIFICATION")?);
    let revision = text(reader.take(4, "PRODUCT REVISION LEVEL")?);
    Ok(Inquiry {
        qualifier: first >> 5,
        kind: first & 0x1f,
        removable,
        version,
        asymmetric,
        queues,
        vendor,
        product,
        revision,
        whole: usize::from(additional) + 5,
    })
}

/// The body of a VPD page, limited by the header's length and by the received data. A page with
/// another code than the requested one is an error: some devices return one page for all codes.
pub fn vpd_body(page: u8, data: &[u8]) -> Result<&[u8], WireError> {
    let mut reader = Reader::new(data);
    reader.take(1, "PERIPHERAL DEVICE TYPE")?;
    if reader.u8("PAGE CODE")? != page {
        return Err(WireError::bad("PAGE CODE", 1));
    }
    let len = usize::from(reader.u16("PAGE LENGTH")?);
    let rest = reader.rest();
    Ok(rest.get(..len).unwrap_or(rest))
}

/// The serial number of page 80h.
pub fn parse_vpd_serial(data: &[u8]) -> Result<String, WireError> {
    vpd_body(0x80, data).map(text)
}

/// The names of a unit, from page 83h.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UnitNames {
    /// NAA or EUI-64 designator of the unit, in hexadecimal: `GEOM::lunid`.
    pub id: String,
    /// T10 vendor identification or SCSI name string of the unit: `GEOM::lunname`.
    pub name: String,
    /// NAA designator of the target port: where a SAS disk is plugged in.
    pub port: String,
    pub port_group: Option<u16>,
}

/// Reads page 83h. The longest NAA designator of the unit counts, then EUI-64.
pub fn parse_vpd_names(data: &[u8]) -> Result<UnitNames, WireError> {
    let mut reader = Reader::new(vpd_body(0x83, data)?);
    let mut names = UnitNames::default();
    let mut naa = false;
    while !reader.rest().is_empty() {
        let [set, kind, _, len] = reader.array("designator header")?;
        let body = reader.take(usize::from(len), "DESIGNATOR")?;
        let hex = || body.iter().map(|b| format!("{b:02x}")).collect::<String>();
        match (kind >> 4 & 3, kind & 0x0f, set & 0x0f) {
            (0, 3, 1) if !naa || hex().len() > names.id.len() => (names.id, naa) = (hex(), true),
            (0, 2, 1) if names.id.is_empty() => names.id = hex(),
            (0, 1, 2) if names.name.is_empty() => names.name = text(body),
            (0, 8, 3) => names.name = text(body),
            (1, 3, 1) if names.port.is_empty() => names.port = hex(),
            (1, 5, 1) => {
                names.port_group = body.last_chunk().map(|group| u16::from_be_bytes(*group));
            }
            _ => {}
        }
    }
    Ok(names)
}

/// Reads page B0h into `limits`. Short pages of older standards leave the rest as it is.
pub fn parse_vpd_limits(data: &[u8], limits: &mut Limits) -> Result<(), WireError> {
    let mut reader = Reader::new(vpd_body(0xb0, data)?);
    limits.write_same_nonzero = reader.u8("WSNZ")? & 1 != 0;
    limits.compare_max = reader.u8("MAXIMUM COMPARE AND WRITE LENGTH")?;
    limits.granularity = reader.u16("OPTIMAL TRANSFER LENGTH GRANULARITY")?;
    limits.transfer_max = reader.u32("MAXIMUM TRANSFER LENGTH")?;
    limits.transfer_best = reader.u32("OPTIMAL TRANSFER LENGTH")?;
    let mut more = |limits: &mut Limits| -> Result<(), WireError> {
        reader.take(4, "MAXIMUM PREFETCH LENGTH")?;
        limits.unmap_blocks_max = reader.u32("MAXIMUM UNMAP LBA COUNT")?;
        limits.unmap_descriptors_max = reader.u32("MAXIMUM UNMAP BLOCK DESCRIPTOR COUNT")?;
        limits.unmap_granularity = reader.u32("OPTIMAL UNMAP GRANULARITY")?;
        let alignment = reader.u32("UNMAP GRANULARITY ALIGNMENT")?;
        limits.unmap_alignment = (alignment >> 31 == 1).then_some(alignment & 0x7fff_ffff);
        limits.write_same_max = reader.u64("MAXIMUM WRITE SAME LENGTH")?;
        Ok(())
    };
    // SBC-2 ends before these.
    let _ends_early = more(limits).is_err();
    Ok(())
}

/// MEDIUM ROTATION RATE of page B1h.
pub fn parse_vpd_rotation(data: &[u8]) -> Result<u16, WireError> {
    Reader::new(vpd_body(0xb1, data)?).u16("MEDIUM ROTATION RATE")
}

/// Reads page B2h into `limits`.
pub fn parse_vpd_provisioning(data: &[u8], limits: &mut Limits) -> Result<(), WireError> {
    let mut reader = Reader::new(vpd_body(0xb2, data)?);
    limits.threshold_exponent = reader.u8("THRESHOLD EXPONENT")?;
    let bits = reader.u8("LBPU")?;
    limits.unmap = bits & 0x80 != 0;
    limits.unmap_same16 = bits & 0x40 != 0;
    limits.unmap_same10 = bits & 0x20 != 0;
    limits.zeros = bits & 0x04 != 0;
    limits.anchor = bits & 0x02 != 0;
    limits.provisioning = match reader.u8("PROVISIONING TYPE")? & 7 {
        1 => Provisioning::Resource,
        2 => Provisioning::Thin,
        _ => Provisioning::Full,
    };
    Ok(())
}

/// The mode data of a disk, from MODE SENSE.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DiskMode {
    /// WP: writes are refused.
    pub write_protected: bool,
    /// DPOFUA: FUA is honoured.
    pub fua: bool,
    /// WCE of the caching page; None when the page was not returned.
    pub write_cache: Option<bool>,
}

/// Reads the answer of MODE SENSE(10) for the caching page.
pub fn parse_disk_mode(data: &[u8]) -> Result<DiskMode, WireError> {
    let mut reader = Reader::new(data);
    reader.take(3, "MODE DATA LENGTH")?;
    let device = reader.u8("DEVICE-SPECIFIC PARAMETER")?;
    reader.take(2, "LONGLBA")?;
    let descriptors = usize::from(reader.u16("BLOCK DESCRIPTOR LENGTH")?);
    let mut mode = DiskMode {
        write_protected: device & 0x80 != 0,
        fua: device & 0x10 != 0,
        write_cache: None,
    };
    if descriptors > 0 {
        reader.take(descriptors, "block descriptors")?;
    }
    if !reader.rest().is_empty() {
        let [page, _, bits] = reader.array("caching page")?;
        if page & 0x7f != 0x08 {
            return Err(WireError::bad("PAGE CODE", reader.at()));
        }
        mode.write_cache = Some(bits & 0x04 != 0);
    }
    Ok(mode)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scsi::{Identity, Vpd, inquiry_data, no_lun_inquiry, vpd_page};

    fn identity() -> Identity {
        Identity {
            vendor: "SEAGATE".into(),
            product: "ST3750630SS".into(),
            revision: "0001".into(),
            serial: "3QK0A63P".into(),
            naa: Some([0x60, 0, 0xc5, 0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16]),
            rotation_rate: 7200,
            ..Identity::default()
        }
    }

    #[test]
    fn initiator_decodes_the_data_of_our_targets() {
        let identity = identity();
        let inquiry = parse_inquiry(&inquiry_data(&identity)).unwrap();
        assert_eq!(
            (inquiry.qualifier, inquiry.kind, inquiry.queues, inquiry.whole),
            (0, 0, true, 96)
        );
        assert_eq!((inquiry.vendor.as_str(), inquiry.product.as_str()), ("SEAGATE", "ST3750630SS"));
        assert_eq!(parse_inquiry(&no_lun_inquiry()).unwrap().qualifier, 3);
        let limits = Limits {
            transfer_max: 0x800,
            unmap_blocks_max: 0x1000,
            unmap_descriptors_max: 16,
            unmap_granularity: 8,
            unmap_alignment: Some(1),
            write_same_max: 1 << 33,
            write_same_nonzero: true,
            provisioning: Provisioning::Thin,
            unmap: true,
            unmap_same10: true,
            zeros: true,
            ..Limits::default()
        };
        let page = |code| vpd_page(code, Vpd { identity: &identity, limits: &limits }).unwrap();
        let mut decoded = Limits::default();
        parse_vpd_limits(&page(0xb0), &mut decoded).unwrap();
        parse_vpd_provisioning(&page(0xb2), &mut decoded).unwrap();
        assert_eq!(decoded, limits);
        assert_eq!(parse_vpd_rotation(&page(0xb1)), Ok(7200));
        assert_eq!(parse_vpd_serial(&page(0x80)).unwrap(), "3QK0A63P");
        let names = parse_vpd_names(&page(0x83)).unwrap();
        assert_eq!(names.id, "6000c50005060708090a0b0c0d0e0f10");
        assert_eq!(names.name, "SEAGATE ST3750630SS     3QK0A63P");
    }

    #[test]
    fn device_identification_page_matches_known_bytes() {
        let page = [
            0, 0x83, 0, 44, // header
            1, 2, 0, 4, 1, 2, 3, 4, // EUI-64 (short), which NAA replaces
            1, 3, 0, 8, 0x50, 0, 0xc5, 0, 6, 7, 8, 9, // NAA
            0x61, 0x93, 0, 8, 0x50, 0, 0xc5, 0, 6, 7, 8, 0xa, // NAA of the port, SAS
            0x61, 0x95, 0, 4, 0, 0, 1, 2, // group of the port
            9, 9, 9, 9, // behind the page's end
        ];
        let names = parse_vpd_names(&page).unwrap_err();
        assert_eq!(names.field, "DESIGNATOR", "what is behind the names is none");
        let mut whole = page;
        whole[3] = 40;
        let names = parse_vpd_names(&whole).unwrap();
        assert_eq!(names.port_group, Some(0x0102));
        assert_eq!(
            (names.id.as_str(), names.port.as_str()),
            ("5000c50006070809", "5000c5000607080a")
        );
    }

    #[test]
    fn malformed_data_are_refused_with_the_field() {
        let data = inquiry_data(&identity());
        for cut in 0..INQUIRY_SHORT {
            assert!(parse_inquiry(&data[..cut]).is_err(), "{cut}");
        }
        assert_eq!(vpd_body(0x80, &data).unwrap_err().field, "PAGE CODE");
        assert_eq!(vpd_body(0x80, &[0, 0x80, 0xff, 0xff, 1, 2]), Ok(&[1, 2][..]), "cut");
        assert!(parse_vpd_rotation(&[0, 0xb1, 0, 1, 5]).is_err());
        let mode = [0, 18, 0, 0x90, 0, 0, 0, 0, 0x88, 10, 0x04, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let expected = DiskMode { write_protected: true, fua: true, write_cache: Some(true) };
        assert_eq!(parse_disk_mode(&mode), Ok(expected));
        assert_eq!(parse_disk_mode(&mode[..8]).unwrap().write_cache, None);
        let mut lie = mode;
        lie[7] = 200;
        assert_eq!(parse_disk_mode(&lie).unwrap_err().field, "block descriptors");
        lie[7] = 0;
        lie[8] = 0x0a;
        assert_eq!(parse_disk_mode(&lie).unwrap_err().field, "PAGE CODE");
    }
}
