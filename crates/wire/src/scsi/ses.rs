//! Diagnostic pages of enclosures (SES-2): configuration (01h), status and control (02h), element
//! descriptors (07h), and devices in slots (0Ah).
//!
//! Pages 02h, 07h and 0Ah can be read only with page 01h, which gives the order of the elements.
//! All carry its generation; pages of different generations do not belong together.

use crate::bytes::{Reader, padded, text};
use crate::error::WireError;

/// Codes of the pages.
pub mod ses_page {
    pub const SUPPORTED: u8 = 0x00;
    pub const CONFIGURATION: u8 = 0x01;
    /// Status; control when it is sent.
    pub const STATUS: u8 = 0x02;
    /// Element descriptors.
    pub const DESCRIPTORS: u8 = 0x07;
    /// Additional element status.
    pub const ADDITIONAL: u8 = 0x0a;
}

/// Types of elements that hold a device.
pub const DEVICE_SLOT: u8 = 0x01;
/// As [`DEVICE_SLOT`], with the status bits of arrays.
pub const ARRAY_DEVICE_SLOT: u8 = 0x17;

/// Most elements of one enclosure that are looked at; a page that lists more is refused.
pub const SES_ELEMENTS_MAX: usize = 4096;

/// Byte 2 of a slot's status and control: IDENT, RQST IDENT.
const IDENT: u8 = 0x02;
/// Byte 3: FAULT SENSED and FAULT REQSTD; RQST FAULT.
const FAULT: u8 = 0x60;
const REQUEST_FAULT: u8 = 0x20;
/// Byte 0 of control: this element is meant.
const SELECT: u8 = 0x80;
/// Protocol identifier of SAS.
const SAS: u8 = 6;

/// Elements of one type, in their order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SesType {
    /// ELEMENT TYPE.
    pub kind: u8,
    pub count: u8,
    pub text: String,
}

/// Page 01h.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SesConfig {
    /// GENERATION CODE: another one means that elements were added or removed.
    pub generation: u32,
    /// ENCLOSURE LOGICAL IDENTIFIER of the primary subenclosure.
    pub id: u64,
    /// ENCLOSURE VENDOR IDENTIFICATION.
    pub vendor: String,
    /// PRODUCT IDENTIFICATION.
    pub product: String,
    /// PRODUCT REVISION LEVEL.
    pub revision: String,
    /// Types, in the order of all other pages.
    pub types: Vec<SesType>,
}

/// Status of one element; all zero where the enclosure does not report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SesStatus(pub [u8; 4]);

impl SesStatus {
    /// ELEMENT STATUS CODE for people.
    pub fn text(self) -> &'static str {
        match self.0[0] & 0x0f {
            1 => "OK",
            2 => "Critical",
            3 => "Noncritical",
            4 => "Unrecoverable",
            5 => "Not Installed",
            6 => "Unknown",
            7 => "Not Available",
            8 => "No Access Allowed",
            _ => "Unsupported",
        }
    }

    /// A slot's light that identifies it.
    pub fn is_located(self) -> bool {
        self.0[2] & IDENT != 0
    }

    /// A slot's device is faulty, as detected or as requested.
    pub fn is_faulty(self) -> bool {
        self.0[3] & FAULT != 0
    }

    /// A failure is predicted.
    pub fn is_predicted(self) -> bool {
        self.0[0] & 0x40 != 0
    }
}

/// The entry of one element in page 0Ah.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdditionalElement {
    /// Index of the element over all types, without overall elements.
    pub element: u16,
    /// DEVICE SLOT NUMBER.
    pub slot: u8,
    /// SAS ADDRESS of the device in it; 0: no device.
    pub sas: u64,
}

/// The body of a page, its flags, and the generation it belongs to.
fn open(data: &[u8], code: u8) -> Result<(u32, Reader<'_>), WireError> {
    let mut reader = Reader::new(data);
    if reader.u8("PAGE CODE")? != code {
        return Err(WireError::bad("PAGE CODE", 0));
    }
    reader.take(1, "SES flags")?;
    let len = usize::from(reader.u16("PAGE LENGTH")?);
    let body = reader.take(len.min(reader.rest().len()), "page")?;
    let mut body = Reader::new(body);
    let generation = body.u32("GENERATION CODE")?;
    Ok((generation, body))
}

/// A page with its length filled in.
fn page(code: u8, flags: u8, body: &[u8]) -> Vec<u8> {
    let [high, low] = u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes();
    [&[code, flags, high, low], body].concat()
}

impl SesConfig {
    /// Reads page 01h.
    pub fn decode(data: &[u8]) -> Result<SesConfig, WireError> {
        let more = usize::from(*data.get(1).ok_or(WireError::short("SECONDARY ENCLOSURES", 1))?);
        let (generation, mut reader) = open(data, ses_page::CONFIGURATION)?;
        let mut out = SesConfig { generation, ..SesConfig::default() };
        let mut types = 0;
        for n in 0..=more {
            let [_, _, count, len] = reader.array("enclosure descriptor")?;
            let at = reader.at();
            let mut one = Reader::new(reader.take(usize::from(len), "enclosure descriptor")?);
            let id = one.u64("ENCLOSURE LOGICAL IDENTIFIER")?;
            let vendor = one.take(8, "ENCLOSURE VENDOR IDENTIFICATION")?;
            let product = one.take(16, "PRODUCT IDENTIFICATION")?;
            let revision = one.take(4, "PRODUCT REVISION LEVEL")?;
            types += usize::from(count);
            if types > SES_ELEMENTS_MAX {
                return Err(WireError::long("TYPE DESCRIPTOR HEADERS", at));
            }
            if n == 0 {
                out.id = id;
                out.vendor = text(vendor);
                out.product = text(product);
                out.revision = text(revision);
            }
        }
        let mut lens = Vec::new();
        for _ in 0..types {
            let [kind, count, _, len] = reader.array("type descriptor header")?;
            out.types.push(SesType { kind, count, text: String::new() });
            lens.push(usize::from(len));
        }
        for (one, len) in out.types.iter_mut().zip(lens) {
            one.text = text(reader.take(len, "TYPE DESCRIPTOR TEXT")?);
        }
        if out.elements() > SES_ELEMENTS_MAX {
            return Err(WireError::long("NUMBER OF POSSIBLE ELEMENTS", 0));
        }
        Ok(out)
    }

    /// Page 01h of an enclosure without others in it.
    pub fn encode(&self) -> Vec<u8> {
        let types = self.types.iter().take(255);
        let mut body = self.generation.to_be_bytes().to_vec();
        body.extend([0x11, 0, u8::try_from(types.len()).unwrap_or(255), 36]);
        body.extend(self.id.to_be_bytes());
        body.extend(padded(&self.vendor, 8));
        body.extend(padded(&self.product, 16));
        body.extend(padded(&self.revision, 4));
        for one in types.clone() {
            body.extend([one.kind, one.count, 0, one.text.len().min(255) as u8]);
        }
        for one in types {
            body.extend(padded(&one.text, one.text.len().min(255)));
        }
        page(ses_page::CONFIGURATION, 0, &body)
    }

    /// Number of elements, without overall elements.
    pub fn elements(&self) -> usize {
        self.types.iter().map(|one| usize::from(one.count)).sum()
    }

    /// Type of each element, in order.
    pub fn kinds(&self) -> impl Iterator<Item = u8> {
        self.types.iter().flat_map(|one| std::iter::repeat_n(one.kind, usize::from(one.count)))
    }

    /// Which type an element is of, and which element of that type; both from 0.
    pub fn type_of(&self, element: usize) -> Option<(usize, usize)> {
        let mut rest = element;
        for (kind, one) in self.types.iter().enumerate() {
            let count = usize::from(one.count);
            if rest < count {
                return Some((kind, rest));
            }
            rest -= count;
        }
        None
    }

    /// Reads the status of each element from page 02h; pages of another generation are refused.
    pub fn status(&self, data: &[u8]) -> Result<Vec<SesStatus>, WireError> {
        let mut reader = self.body(data, ses_page::STATUS)?;
        let mut out = Vec::new();
        for one in &self.types {
            reader.take(4, "overall status element")?;
            for _ in 0..one.count {
                out.push(SesStatus(reader.array("status element")?));
            }
        }
        Ok(out)
    }

    /// Page 02h with this status of each element.
    pub fn encode_status(&self, each: &[SesStatus]) -> Vec<u8> {
        let mut each = each.iter();
        let mut body = self.generation.to_be_bytes().to_vec();
        for one in &self.types {
            body.extend([0; 4]);
            for _ in 0..one.count {
                body.extend(each.next().copied().unwrap_or_default().0);
            }
        }
        page(ses_page::STATUS, 0, &body)
    }

    /// Page 02h that requests the lights of one slot, given by its number among the elements. Its
    /// other requests stay as in its status, and no other element is selected.
    pub fn control(&self, element: usize, now: SesStatus, locate: bool, fault: bool) -> Vec<u8> {
        let mut body = self.generation.to_be_bytes().to_vec();
        let mut at = 0;
        for one in &self.types {
            body.extend([0; 4]);
            for _ in 0..one.count {
                let mut bytes = [0; 4];
                if at == element {
                    // PRDFAIL is kept, and so are the array bits of an array's slot.
                    let kept = if one.kind == ARRAY_DEVICE_SLOT { now.0[1] } else { 0 };
                    let ident = if locate { IDENT } else { 0 };
                    let fault = if fault { REQUEST_FAULT } else { 0 };
                    bytes = [SELECT | now.0[0] & 0x40, kept, ident, fault];
                }
                body.extend(bytes);
                at += 1;
            }
        }
        page(ses_page::STATUS, 0, &body)
    }

    /// Reads a control page: each element that is meant, and whether it is to show where it is and
    /// that it is faulty.
    pub fn parse_control(&self, data: &[u8]) -> Result<Vec<(usize, bool, bool)>, WireError> {
        let mut reader = self.body(data, ses_page::STATUS)?;
        let (mut out, mut at) = (Vec::new(), 0);
        for one in &self.types {
            reader.take(4, "overall control element")?;
            for _ in 0..one.count {
                let [first, _, ident, fault] = reader.array("control element")?;
                if first & SELECT != 0 {
                    out.push((at, ident & IDENT != 0, fault & REQUEST_FAULT != 0));
                }
                at += 1;
            }
        }
        Ok(out)
    }

    /// Reads the name of each element from page 07h.
    pub fn names(&self, data: &[u8]) -> Result<Vec<String>, WireError> {
        let mut reader = self.body(data, ses_page::DESCRIPTORS)?;
        let mut name = || {
            reader.take(2, "element descriptor")?;
            let len = usize::from(reader.u16("DESCRIPTOR LENGTH")?);
            reader.take(len, "DESCRIPTOR").map(text)
        };
        let mut out = Vec::new();
        for one in &self.types {
            name()?;
            for _ in 0..one.count {
                out.push(name()?);
            }
        }
        Ok(out)
    }

    /// Page 07h with these names.
    pub fn encode_names(&self, names: &[String]) -> Vec<u8> {
        let mut names = names.iter();
        let mut body = self.generation.to_be_bytes().to_vec();
        let mut add = |name: &str| {
            let [high, low] = u16::try_from(name.len()).unwrap_or(0).to_be_bytes();
            body.extend([0, 0, high, low]);
            body.extend(name.bytes().take(usize::from(u16::from_be_bytes([high, low]))));
        };
        for one in &self.types {
            add(&one.text);
            for _ in 0..one.count {
                add(names.next().map_or("", String::as_str));
            }
        }
        page(ses_page::DESCRIPTORS, 0, &body)
    }

    /// Reads page 0Ah: the slots in which SAS devices are.
    pub fn additional_elements(&self, data: &[u8]) -> Result<Vec<AdditionalElement>, WireError> {
        let mut reader = self.body(data, ses_page::ADDITIONAL)?;
        let (mut out, mut next) = (Vec::new(), 0u16);
        while !reader.rest().is_empty() {
            let at = reader.at();
            let [first, len] = reader.array("additional element status descriptor")?;
            let mut one = Reader::new(reader.take(usize::from(len), "descriptor")?);
            let mut place = AdditionalElement { element: next, ..AdditionalElement::default() };
            if first & 0x10 != 0 {
                let [overall, element] = one.array("ELEMENT INDEX")?;
                // EIIOE: the index includes overall elements.
                place.element = match overall & 1 != 0 {
                    true => self.without_overall(element).ok_or(WireError::bad("EIIOE", at + 2))?,
                    false => u16::from(element),
                };
            }
            next = place.element.saturating_add(1);
            // Descriptors of other protocols and invalid ones are skipped.
            if first & 0x80 != 0 || first & 0x0f != SAS {
                continue;
            }
            let [phys, kind] = one.array("SAS descriptor")?;
            if kind >> 6 != 0 {
                continue;
            }
            one.take(1, "SAS descriptor")?;
            place.slot = one.u8("DEVICE SLOT NUMBER")?;
            for _ in 0..phys {
                let phy: [u8; 28] = one.array("phy descriptor")?;
                let mut address = Reader::new(phy.get(12..20).unwrap_or(&[]));
                let sas = address.u64("SAS ADDRESS")?;
                place.sas = if place.sas == 0 { sas } else { place.sas };
            }
            if out.len() >= SES_ELEMENTS_MAX {
                return Err(WireError::long("additional element status", at));
            }
            out.push(place);
        }
        Ok(out)
    }

    /// Page 0Ah with SAS devices, one phy each, attached to `expander`.
    pub fn encode_additional_elements(
        &self,
        places: &[AdditionalElement],
        expander: u64,
    ) -> Vec<u8> {
        let mut body = self.generation.to_be_bytes().to_vec();
        for place in places {
            body.extend([0x10 | SAS, 34, 0, place.element.to_be_bytes()[1], 1, 0, 0, place.slot]);
            // An end device, SSP.
            let kind = if place.sas == 0 { 0 } else { 0x10 };
            body.extend([kind, 0, 0, if place.sas == 0 { 0 } else { 0x08 }]);
            body.extend(expander.to_be_bytes());
            body.extend(place.sas.to_be_bytes());
            body.extend([place.slot, 0, 0, 0, 0, 0, 0, 0]);
        }
        page(ses_page::ADDITIONAL, 0, &body)
    }

    fn without_overall(&self, index: u8) -> Option<u16> {
        let (mut seen, mut elements) = (0u16, 0u16);
        for one in &self.types {
            let count = u16::from(one.count);
            if u16::from(index) <= seen + count {
                return (u16::from(index) - seen).checked_sub(1).map(|n| elements + n);
            }
            seen += count + 1;
            elements += count;
        }
        None
    }

    fn body<'a>(&self, data: &'a [u8], code: u8) -> Result<Reader<'a>, WireError> {
        let (generation, reader) = open(data, code)?;
        if generation != self.generation {
            return Err(WireError::bad("GENERATION CODE", 4));
        }
        Ok(reader)
    }
}

/// Page 00h: the pages that there are.
pub fn ses_supported(data: &[u8]) -> Result<&[u8], WireError> {
    let mut reader = Reader::new(data);
    let [code, _] = reader.array("PAGE CODE")?;
    if code != ses_page::SUPPORTED {
        return Err(WireError::bad("PAGE CODE", 0));
    }
    let len = usize::from(reader.u16("PAGE LENGTH")?);
    reader.take(len.min(reader.rest().len()), "supported pages")
}

/// The type of an element, for people.
pub fn ses_kind(kind: u8) -> &'static str {
    match kind {
        DEVICE_SLOT => "Device Slot",
        0x02 => "Power Supply",
        0x03 => "Cooling",
        0x04 => "Temperature Sensors",
        0x05 => "Door Lock",
        0x06 => "Audible alarm",
        0x07 => "Enclosure Services Controller Electronics",
        0x0e => "Enclosure",
        0x12 => "Voltage Sensor",
        0x13 => "Current Sensor",
        ARRAY_DEVICE_SLOT => "Array Device Slot",
        0x18 => "SAS Expander",
        0x19 => "SAS Connector",
        _ => "Unspecified",
    }
}

#[cfg(test)]
#[path = "ses_tests.rs"]
mod tests;
