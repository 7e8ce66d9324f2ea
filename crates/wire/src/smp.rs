//! SMP: data of SAS expanders about themselves and their phys (SAS-2). Frames without their CRC.

use crate::bytes::{Reader, padded, text};
use crate::error::WireError;

/// Function codes.
pub mod function {
    pub const REPORT_GENERAL: u8 = 0x00;
    /// REPORT MANUFACTURER INFORMATION.
    pub const MANUFACTURER: u8 = 0x01;
    pub const DISCOVER: u8 = 0x10;
}

/// FRAME TYPE of responses.
pub const SMP_RESPONSE: u8 = 0x41;
/// Bytes of the longest response that this code requests.
pub const SMP_RESPONSE_LEN: usize = 64;

/// FUNCTION RESULTs.
pub mod result {
    /// It was carried out.
    pub const ACCEPTED: u8 = 0x00;
    /// The function is not known.
    pub const UNKNOWN_FUNCTION: u8 = 0x01;
    pub const NO_PHY: u8 = 0x10;
    /// The phy is there, and not to be used.
    pub const VACANT: u8 = 0x16;
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReportGeneral {
    /// EXPANDER CHANGE COUNT: another one means that something was added or removed.
    pub changes: u16,
    /// NUMBER OF PHYS.
    pub phys: u8,
    /// ENCLOSURE LOGICAL IDENTIFIER.
    pub enclosure: u64,
}

/// One phy, by DISCOVER.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Phy {
    /// PHY IDENTIFIER.
    pub number: u8,
    /// ATTACHED DEVICE TYPE: 0 none, 1 an end device, 2 an expander.
    pub attached: u8,
    /// NEGOTIATED LOGICAL LINK RATE: 8 is 1.5, 9 3, A 6, B 12 Gbit/s.
    pub rate: u8,
    /// It speaks SATA.
    pub sata: bool,
    /// It speaks SSP.
    pub ssp: bool,
    pub sas_address: u64,
    pub attached_sas_address: u64,
}

/// REPORT MANUFACTURER INFORMATION.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manufacturer {
    /// VENDOR IDENTIFICATION.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION.
    pub product: String,
    /// PRODUCT REVISION LEVEL.
    pub revision: String,
}

/// The body of a response to a function; the FUNCTION RESULT where it was refused.
fn open(data: &[u8], function: u8) -> Result<Result<Reader<'_>, u8>, WireError> {
    let mut reader = Reader::new(data);
    if reader.u8("FRAME TYPE")? != SMP_RESPONSE {
        return Err(WireError::bad("FRAME TYPE", 0));
    }
    if reader.u8("FUNCTION")? != function {
        return Err(WireError::bad("FUNCTION", 1));
    }
    let result = reader.u8("FUNCTION RESULT")?;
    reader.take(1, "RESPONSE LENGTH")?;
    Ok(if result == result::ACCEPTED { Ok(reader) } else { Err(result) })
}

/// A response without a body.
pub fn smp_refusal(function: u8, result: u8) -> Vec<u8> {
    vec![SMP_RESPONSE, function, result, 0]
}

fn response(function: u8, body: &[u8]) -> Vec<u8> {
    let words = u8::try_from(body.len() / 4).unwrap_or(0);
    [&[SMP_RESPONSE, function, result::ACCEPTED, words], body].concat()
}

impl ReportGeneral {
    /// Reads a response; `Err(result)` inside: it was refused.
    pub fn decode(data: &[u8]) -> Result<Result<ReportGeneral, u8>, WireError> {
        let mut reader = match open(data, function::REPORT_GENERAL)? {
            Ok(reader) => reader,
            Err(result) => return Ok(Err(result)),
        };
        let changes = reader.u16("EXPANDER CHANGE COUNT")?;
        reader.take(3, "EXPANDER ROUTE INDEXES")?;
        let phys = reader.u8("NUMBER OF PHYS")?;
        reader.take(2, "REPORT GENERAL")?;
        let enclosure = reader.u64("ENCLOSURE LOGICAL IDENTIFIER")?;
        Ok(Ok(ReportGeneral { changes, phys, enclosure }))
    }

    /// The response of an expander with these values.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = self.changes.to_be_bytes().to_vec();
        body.extend([0, 0, 0, self.phys, 0, 0]);
        body.extend(self.enclosure.to_be_bytes());
        body.extend([0; 8]);
        response(function::REPORT_GENERAL, &body)
    }
}

impl Phy {
    /// Reads a response; `Err(result)` inside: it was refused.
    pub fn decode(data: &[u8]) -> Result<Result<Phy, u8>, WireError> {
        let mut reader = match open(data, function::DISCOVER)? {
            Ok(reader) => reader,
            Err(result) => return Ok(Err(result)),
        };
        reader.take(5, "DISCOVER")?;
        let number = reader.u8("PHY IDENTIFIER")?;
        reader.take(2, "DISCOVER")?;
        let [attached, rate, _, target] = reader.array("ATTACHED DEVICE TYPE")?;
        let own = reader.u64("SAS ADDRESS")?;
        let other = reader.u64("ATTACHED SAS ADDRESS")?;
        Ok(Ok(Phy {
            number,
            attached: attached >> 4 & 7,
            rate: rate & 0x0f,
            sata: target & 0x01 != 0,
            ssp: target & 0x08 != 0,
            sas_address: own,
            attached_sas_address: other,
        }))
    }

    /// The response of an expander with these values.
    pub fn encode(&self) -> Vec<u8> {
        let target = u8::from(self.sata) | u8::from(self.ssp) << 3;
        let mut body = vec![0, 0, 0, 0, 0, self.number, 0, 0];
        body.extend([(self.attached & 7) << 4, self.rate & 0x0f, 0, target]);
        body.extend(self.sas_address.to_be_bytes());
        body.extend(self.attached_sas_address.to_be_bytes());
        body.extend([0; 20]);
        response(function::DISCOVER, &body)
    }
}

impl Manufacturer {
    /// Reads a response; `Err(result)` inside: it was refused.
    pub fn decode(data: &[u8]) -> Result<Result<Manufacturer, u8>, WireError> {
        let mut reader = match open(data, function::MANUFACTURER)? {
            Ok(reader) => reader,
            Err(result) => return Ok(Err(result)),
        };
        reader.take(8, "REPORT MANUFACTURER INFORMATION")?;
        Ok(Ok(Manufacturer {
            vendor: text(reader.take(8, "VENDOR IDENTIFICATION")?),
            product: text(reader.take(16, "PRODUCT IDENTIFICATION")?),
            revision: text(reader.take(4, "PRODUCT REVISION LEVEL")?),
        }))
    }

    /// The response of an expander with these values.
    pub fn encode(&self) -> Vec<u8> {
        let mut body = vec![0; 8];
        body.extend(padded(&self.vendor, 8));
        body.extend(padded(&self.product, 16));
        body.extend(padded(&self.revision, 4));
        body.extend([0; 20]);
        response(function::MANUFACTURER, &body)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn smp_responses_match_known_bytes() {
        let mut general = vec![0x41, 0, 0, 6, 0, 9, 0, 0, 0, 28, 0, 0];
        general.extend([0x50, 3, 4, 0x80, 0, 0, 0, 0x3f]);
        let decoded = ReportGeneral::decode(&general).unwrap().unwrap();
        assert_eq!(
            (decoded.changes, decoded.phys, decoded.enclosure),
            (9, 28, 0x5003_0480_0000_003f)
        );
        assert_eq!(ReportGeneral::decode(&decoded.encode()), Ok(Ok(decoded)));
        let mut phy = vec![0x41, 0x10, 0, 12, 0, 0, 0, 0, 0, 3, 0, 0, 0x10, 0x0a, 0, 0x08];
        phy.extend([0x50, 3, 4, 0x80, 0, 0, 0, 0x3f, 0x50, 0, 0xc5, 0, 0, 0, 0, 1]);
        let decoded = Phy::decode(&phy).unwrap().unwrap();
        assert_eq!(
            (decoded.number, decoded.attached, decoded.rate, decoded.ssp, decoded.sata),
            (3, 1, 10, true, false)
        );
        assert_eq!(decoded.attached_sas_address, 0x5000_c500_0000_0001);
        assert_eq!(Phy::decode(&decoded.encode()), Ok(Ok(decoded)));
        let decoded = Manufacturer {
            vendor: "LSILOGIC".into(),
            product: "SASX28 A.0".into(),
            revision: "9".into(),
        };
        assert_eq!(Manufacturer::decode(&decoded.encode()), Ok(Ok(decoded)));
    }

    #[test]
    fn malformed_smp_responses_are_refused_with_the_field() {
        assert_eq!(Phy::decode(&smp_refusal(0x10, result::VACANT)), Ok(Err(0x16)));
        assert_eq!(Phy::decode(&smp_refusal(0x00, 0)).unwrap_err().field, "FUNCTION");
        assert_eq!(Phy::decode(&[0x40, 0x10, 0, 0]).unwrap_err().field, "FRAME TYPE");
        let phy = Phy::default().encode();
        assert_eq!(Phy::decode(&phy[..30]).unwrap_err().field, "ATTACHED SAS ADDRESS");
        assert_eq!(ReportGeneral::decode(&[0x41, 0]).unwrap_err().field, "FUNCTION RESULT");
    }
}
