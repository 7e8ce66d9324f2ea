//! TransportIDs: initiator ports by name (SPC-4 7.6.4).
//!
//! Invariants
//!  I1  A TransportID has one form in memory: names in lower case, the shortest padding, reserved
//!      bytes zero. Equal ports are equal bytes.
//!  I2  Its length is a multiple of four, from 24 to [`TRANSPORT_ID_LEN_MAX`] bytes.

use std::fmt;
use std::sync::Arc;

/// Longest TransportID, bytes: an iSCSI name of 223 bytes, separator, ISID, padding. A longer one
/// in
/// a list is an INVALID FIELD.
pub const TRANSPORT_ID_LEN_MAX: usize = 248;

/// Length of the TransportIDs of transports with short names, and the least of the others.
const SHORT_LEN: usize = 24;

/// Longest iSCSI name, bytes (RFC 7143 4.2.7.1).
const ISCSI_NAME_MAX: usize = 223;

/// PROTOCOL IDENTIFIER of iSCSI.
const ISCSI: u8 = 0x5;

/// PROTOCOL IDENTIFIER of a port without a protocol.
const NO_PROTOCOL: u8 = 0xf;

/// Between an iSCSI name and its ISID.
const ISID_MARK: &str = ",i,0x";

/// An initiator port.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TransportId(Arc<[u8]>);

impl TransportId {
    /// An iSCSI initiator port (format 01b). None for a name that is empty, too long, or not one.
    pub fn iscsi_port(name: &str, isid: [u8; 6]) -> Option<TransportId> {
        let hex: String = isid.iter().map(|b| format!("{b:02x}")).collect();
        is_iscsi_name(name)
            .then(|| of_text(0x40 | ISCSI, &format!("{}{ISID_MARK}{hex}", name.to_lowercase())))?
    }

    /// An iSCSI initiator device, all its ports (format 00b).
    pub fn iscsi_device(name: &str) -> Option<TransportId> {
        is_iscsi_name(name).then(|| of_text(ISCSI, &name.to_lowercase()))?
    }

    /// A client of a transport for which the standard has no form: a name of its own, at most 243
    /// bytes without zeroes. It has the layout of iSCSI's under PROTOCOL IDENTIFIER Fh.
    pub fn named(name: &str) -> Option<TransportId> {
        of_text(NO_PROTOCOL, name)
    }

    /// Reads the first TransportID of `data`; also its length there. None when it is cut, has an
    /// unknown protocol or format, or has no name.
    pub fn decode(data: &[u8]) -> Option<(TransportId, usize)> {
        let head = data.first_chunk::<4>()?;
        let (format, protocol) = (head[0] >> 6, head[0] & 0x0f);
        match (protocol, format) {
            (ISCSI, 0 | 1) | (NO_PROTOCOL, 0) => {
                let len = usize::from(u16::from_be_bytes([head[2], head[3]])).checked_add(4)?;
                if !(SHORT_LEN..=TRANSPORT_ID_LEN_MAX).contains(&len) || len % 4 != 0 {
                    return None;
                }
                let text = text_of(data.get(4..len)?)?;
                Some((by_text(protocol, format, text)?, len))
            }
            // Fibre Channel, SPI, SBP, SRP, SAS, SOP: fixed fields.
            (0x0 | 0x1 | 0x3 | 0x4 | 0x6 | 0xa, 0) => {
                let whole = data.first_chunk::<SHORT_LEN>()?;
                Some((TransportId(Arc::from(whole.as_slice())), SHORT_LEN))
            }
            _ => None,
        }
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// PROTOCOL IDENTIFIER.
    pub fn protocol(&self) -> u8 {
        self.0.first().map_or(NO_PROTOCOL, |b| b & 0x0f)
    }

    /// The name of an iSCSI initiator, with or without a port; None for other transports.
    pub fn iscsi_name(&self) -> Option<&str> {
        let text = self.text().filter(|_| self.protocol() == ISCSI)?;
        Some(text.split(',').next().unwrap_or(text))
    }

    /// It means every port of an initiator device (format 00b of iSCSI).
    pub fn is_device(&self) -> bool {
        self.0.first() == Some(&ISCSI)
    }

    fn text(&self) -> Option<&str> {
        matches!(self.protocol(), ISCSI | NO_PROTOCOL).then(|| text_of(self.0.get(4..)?))?
    }
}

impl fmt::Display for TransportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.text() {
            Some(text) => f.write_str(text),
            None => {
                write!(f, "protocol-{:x}:", self.protocol())?;
                self.0.iter().skip(1).try_for_each(|b| write!(f, "{b:02x}"))
            }
        }
    }
}

impl fmt::Debug for TransportId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TransportId({self})")
    }
}

/// I1 for the protocols that have text.
fn by_text(protocol: u8, format: u8, text: &str) -> Option<TransportId> {
    if protocol == NO_PROTOCOL {
        return TransportId::named(text);
    }
    if format == 0 {
        return TransportId::iscsi_device(text);
    }
    let (name, isid) = text.split_once(ISID_MARK)?;
    let digits =
        !isid.is_empty() && isid.len() <= 12 && isid.bytes().all(|b| b.is_ascii_hexdigit());
    let isid = u64::from_str_radix(isid, 16).ok().filter(|_| digits)?;
    let [_, _, isid @ ..] = isid.to_be_bytes();
    TransportId::iscsi_port(name, isid)
}

fn is_iscsi_name(name: &str) -> bool {
    let plain = |b: u8| b > b' ' && b != b',' && b != 0x7f;
    (1..=ISCSI_NAME_MAX).contains(&name.len()) && name.bytes().all(plain)
}

/// A header, the text, at least one zero, and zeroes up to a multiple of four (I2).
fn of_text(first: u8, text: &str) -> Option<TransportId> {
    let len = (text.len() + 1).next_multiple_of(4).max(SHORT_LEN - 4);
    if text.is_empty() || text.bytes().any(|b| b == 0) || len + 4 > TRANSPORT_ID_LEN_MAX {
        return None;
    }
    let mut out = vec![first, 0];
    out.extend(u16::try_from(len).ok()?.to_be_bytes());
    out.extend(text.bytes());
    out.resize(len + 4, 0);
    Some(TransportId(out.into()))
}

/// The text before the first zero; all further bytes must be zero too.
fn text_of(bytes: &[u8]) -> Option<&str> {
    let end = bytes.iter().position(|b| *b == 0)?;
    let (text, padding) = bytes.split_at_checked(end)?;
    if padding.iter().any(|b| *b != 0) {
        return None;
    }
    std::str::from_utf8(text).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// I1, I2.
    #[test]
    fn iscsi_port_matches_known_bytes() {
        let port = TransportId::iscsi_port("iqn.2024-01.X:a", [0, 2, 0x3d, 0, 0, 1]).unwrap();
        let mut want = vec![0x45, 0, 0, 36];
        want.extend(b"iqn.2024-01.x:a,i,0x00023d000001\0\0\0\0");
        assert_eq!(port.bytes(), want);
        assert_eq!(port.to_string(), "iqn.2024-01.x:a,i,0x00023d000001");
        assert_eq!((port.iscsi_name(), port.is_device()), (Some("iqn.2024-01.x:a"), false));
        let device = TransportId::iscsi_device("iqn.a").unwrap();
        assert_eq!((device.bytes().len(), device.is_device()), (24, true));
    }

    /// I1.
    #[test]
    fn equal_ports_have_equal_bytes_after_normalisation() {
        let port = TransportId::iscsi_port("iqn.a", [0, 0, 0, 0, 0, 0xab]).unwrap();
        for text in ["iqn.A,i,0xAB", "iqn.a,i,0x0000000000ab"] {
            for padding in [0, 4, 100] {
                let len = (text.len() + 1).next_multiple_of(4).max(20) + padding;
                let mut bytes = vec![0x75, 9];
                bytes.extend((len as u16).to_be_bytes());
                bytes.extend(text.bytes());
                bytes.resize(len + 4, 0);
                assert_eq!(TransportId::decode(&bytes), Some((port.clone(), len + 4)), "{text}");
            }
        }
    }

    /// I2.
    #[test]
    fn malformed_transport_ids_are_refused() {
        let good = TransportId::iscsi_port("iqn.a", [1; 6]).unwrap();
        for cut in 0..good.bytes().len() {
            assert_eq!(TransportId::decode(&good.bytes()[..cut]), None, "cut at {cut}");
        }
        let with = |at: usize, byte: u8| {
            let mut bytes = good.bytes().to_vec();
            bytes[at] = byte;
            TransportId::decode(&bytes)
        };
        assert_eq!(with(0, 0x85), None, "format 10b");
        assert_eq!(with(0, 0x47), None, "protocol 7h");
        assert_eq!(with(3, 25), None, "no multiple of four");
        assert_eq!(with(4, 0), None, "text behind the end");
        assert_eq!(with(10, b'x'), None, "no ISID");
        assert_eq!(with(0, 0x05), None, "a comma in a name");
        assert_eq!(TransportId::iscsi_port(&"x".repeat(224), [0; 6]), None);
        let longest = TransportId::iscsi_port(&"x".repeat(223), [0; 6]).unwrap();
        assert_eq!(longest.bytes().len(), TRANSPORT_ID_LEN_MAX);
        assert_eq!(TransportId::decode(longest.bytes()), Some((longest.clone(), 248)));
    }

    #[test]
    fn transports_without_a_form_have_names() {
        let client = TransportId::named("nbd:client.example").unwrap();
        assert_eq!((client.protocol(), client.iscsi_name()), (0xf, None));
        assert_eq!(TransportId::decode(client.bytes()), Some((client.clone(), 24)));
        let sas = [6, 0, 0, 0, 0x50, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
        let (sas, used) = TransportId::decode(&sas).unwrap();
        assert_eq!((sas.protocol(), used, sas.text()), (6, 24, None));
        assert!(sas.to_string().starts_with("protocol-6:0000005000000000000001"));
    }
}
