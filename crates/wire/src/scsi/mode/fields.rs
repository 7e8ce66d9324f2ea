//! Mode pages of any device as initiators read them: the pages received, and the fields of those
//! with a known layout, under the names that camcontrol uses.

use crate::bytes::Reader;
use crate::error::WireError;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModeField {
    /// As lists have it.
    pub name: &'static str,
    /// Byte from the page's start.
    pub byte: usize,
    /// Its highest bit in that byte, and how many there are; they may continue in the next bytes.
    pub bits: (u8, u8),
}

const fn field(name: &'static str, byte: usize, high: u8, width: u8) -> ModeField {
    ModeField { name, byte, bits: (high, width) }
}

/// Read-write error recovery (SBC-3 6.5.8).
const RECOVERY: &[ModeField] = &[
    field("AWRE", 2, 7, 1),
    field("ARRE", 2, 6, 1),
    field("TB", 2, 5, 1),
    field("RC", 2, 4, 1),
    field("EER", 2, 3, 1),
    field("PER", 2, 2, 1),
    field("DTE", 2, 1, 1),
    field("DCR", 2, 0, 1),
    field("Read Retry Count", 3, 7, 8),
    field("LBPERE", 7, 7, 1),
    field("Write Retry Count", 8, 7, 8),
    field("Recovery Time Limit", 10, 7, 16),
];

/// Caching (SBC-3 6.5.5).
const CACHING: &[ModeField] = &[
    field("IC", 2, 7, 1),
    field("ABPF", 2, 6, 1),
    field("CAP", 2, 5, 1),
    field("DISC", 2, 4, 1),
    field("SIZE", 2, 3, 1),
    field("WCE", 2, 2, 1),
    field("MF", 2, 1, 1),
    field("RCD", 2, 0, 1),
    field("Demand Retention Priority", 3, 7, 4),
    field("Write Retention Priority", 3, 3, 4),
    field("Disable Pre-fetch Transfer Length", 4, 7, 16),
    field("Minimum Pre-fetch", 6, 7, 16),
    field("Maximum Pre-fetch", 8, 7, 16),
    field("Maximum Pre-fetch Ceiling", 10, 7, 16),
];

/// Control (SPC-4 7.5.8).
const CONTROL: &[ModeField] = &[
    field("TST", 2, 7, 3),
    field("TMF_ONLY", 2, 4, 1),
    field("DPICZ", 2, 3, 1),
    field("D_SENSE", 2, 2, 1),
    field("GLTSD", 2, 1, 1),
    field("RLEC", 2, 0, 1),
    field("Queue Algorithm Modifier", 3, 7, 4),
    field("QErr", 3, 2, 2),
    field("VS", 4, 7, 1),
    field("RAC", 4, 6, 1),
    field("UA_INTLCK_CTRL", 4, 5, 2),
    field("SWP", 4, 3, 1),
    field("ATO", 5, 7, 1),
    field("TAS", 5, 6, 1),
    field("Busy Timeout Period", 8, 7, 16),
    field("Extended Self-Test Completion Time", 10, 7, 16),
];

/// Name and fields of a page; none where the layout is not known here.
pub fn mode_fields(page: u8, subpage: u8) -> (&'static str, &'static [ModeField]) {
    match (page, subpage) {
        (0x01, 0) => ("Read-Write Error Recovery Page", RECOVERY),
        (0x02, 0) => ("Disconnect-Reconnect Page", &[]),
        (0x08, 0) => ("Caching Page", CACHING),
        (0x0a, 0) => ("Control Mode Page", CONTROL),
        (0x18, 0) => ("Protocol Specific Logical Unit Page", &[]),
        (0x19, 0) => ("Protocol Specific Port Page", &[]),
        (0x1a, 0) => ("Power Condition Page", &[]),
        (0x1c, 0) => ("Informational Exceptions Control Page", &[]),
        (0x1c, 2) => ("Logical Block Provisioning Page", &[]),
        (0x2a, 0) => ("CD Capabilities and Mechanical Status Page", &[]),
        _ => ("", &[]),
    }
}

impl ModeField {
    /// The number of bytes that it occupies.
    fn bytes(self) -> usize {
        let (high, width) = self.bits;
        (7 - usize::from(high.min(7)) + usize::from(width)).div_ceil(8).max(1)
    }

    /// How far its lowest bit is from the lowest of its last byte.
    fn shift(self) -> u32 {
        let (high, width) = self.bits;
        (self.bytes() * 8 - (7 - usize::from(high.min(7))) - usize::from(width)) as u32
    }

    /// Its largest value.
    pub fn max(self) -> u64 {
        (1u64 << self.bits.1.min(32)) - 1
    }

    /// Its value in a page; `None` where the page ends before it.
    pub fn get(self, page: &[u8]) -> Option<u64> {
        let bytes = page.get(self.byte..self.byte.checked_add(self.bytes())?)?;
        let all = bytes.iter().fold(0u64, |sum, byte| sum << 8 | u64::from(*byte));
        Some(all >> self.shift() & self.max())
    }

    /// Puts a value into a page; false where it does not fit, or the page ends before it.
    pub fn set(self, page: &mut [u8], value: u64) -> bool {
        let (len, end) = (self.bytes(), self.byte + self.bytes());
        let Some(bytes) = page.get_mut(self.byte..end).filter(|_| value <= self.max()) else {
            return false;
        };
        let (mask, value) = (self.max() << self.shift(), value << self.shift());
        for (i, byte) in bytes.iter_mut().enumerate() {
            let down = 8 * (len - 1 - i);
            let [mask, ..] = (mask >> down).to_le_bytes();
            let [value, ..] = (value >> down).to_le_bytes();
            *byte = *byte & !mask | value;
        }
        true
    }
}

/// One received page, header included.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ModePage {
    /// PS: it can be saved.
    pub savable: bool,
    /// PAGE CODE.
    pub page: u8,
    /// SUBPAGE CODE, 0 where it has none.
    pub subpage: u8,
    /// The whole page.
    pub bytes: Vec<u8>,
}

/// Reads the answer of MODE SENSE(10): its pages, in their order. One that is cut short by the end
/// of the answer is left out.
pub fn parse_mode_pages(data: &[u8]) -> Result<Vec<ModePage>, WireError> {
    let mut reader = Reader::new(data);
    let len = usize::from(reader.u16("MODE DATA LENGTH")?);
    let body = reader.take(len.min(reader.rest().len()), "mode data")?;
    let mut reader = Reader::new(body);
    reader.take(4, "mode parameter header")?;
    let blocks = usize::from(reader.u16("BLOCK DESCRIPTOR LENGTH")?);
    reader.take(blocks, "block descriptors")?;
    let mut pages = Vec::new();
    while !reader.rest().is_empty() {
        let rest = reader.rest();
        let first = reader.u8("PAGE CODE")?;
        let long = first & 0x40 != 0;
        let cut = |len: Result<usize, WireError>| len.ok().filter(|n| rest.len() >= *n);
        let whole = match long {
            false => cut(reader.u8("PAGE LENGTH").map(|n| 2 + usize::from(n))),
            true => {
                let both: Result<[u8; 3], _> = reader.array("PAGE LENGTH");
                cut(both.map(|[_, high, low]| 4 + usize::from(u16::from_be_bytes([high, low]))))
            }
        };
        let Some(bytes) = whole.and_then(|n| rest.get(..n)) else { break };
        let subpage = if long { bytes.get(1).copied().unwrap_or(0) } else { 0 };
        let (savable, page) = (first & 0x80 != 0, first & 0x3f);
        pages.push(ModePage { savable, page, subpage, bytes: bytes.to_vec() });
        let head = if long { 4 } else { 2 };
        reader.take(bytes.len() - head, "mode page")?;
    }
    Ok(pages)
}

/// The parameter list of a MODE SELECT(10) with one page.
pub fn mode_select_list(page: &ModePage) -> Vec<u8> {
    let mut out = vec![0; 8];
    out.extend(&page.bytes);
    // PS is reserved here.
    if let Some(first) = out.get_mut(8) {
        *first &= 0x7f;
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    const CACHING_PAGE: [u8; 20] =
        [0x88, 18, 0x14, 0x5a, 0xff, 0xff, 0, 1, 2, 3, 4, 5, 0, 0, 0, 0, 0, 0, 0, 0];

    fn named(name: &str) -> ModeField {
        *mode_fields(8, 0).1.iter().find(|f| f.name == name).unwrap()
    }

    #[test]
    fn mode_fields_are_read_and_set_without_changing_others() {
        let mut page = CACHING_PAGE;
        for (name, value) in [
            ("WCE", 1),
            ("DISC", 1),
            ("IC", 0),
            ("Demand Retention Priority", 5),
            ("Write Retention Priority", 10),
            ("Disable Pre-fetch Transfer Length", 65535),
            ("Maximum Pre-fetch", 0x0203),
        ] {
            assert_eq!(named(name).get(&page), Some(value), "{name}");
        }
        assert!(named("WCE").set(&mut page, 0) && page[2] == 0x10);
        assert!(named("Write Retention Priority").set(&mut page, 3) && page[3] == 0x53);
        assert!(named("Maximum Pre-fetch").set(&mut page, 0x0908) && page[8..10] == [9, 8]);
        assert!(!named("WCE").set(&mut page, 2), "it does not fit");
        assert!(!named("Maximum Pre-fetch").set(&mut page[..9], 1), "the page is too short");
        let across = ModeField { name: "", byte: 0, bits: (1, 4) };
        let mut two = [0xff, 0xff];
        assert!(across.set(&mut two, 0) && two == [0xfc, 0x3f]);
        assert_eq!(across.get(&[0x02, 0x40]), Some(9));
    }

    #[test]
    fn mode_pages_are_split_by_page_and_subpage() {
        let mut data = vec![0, 36, 0, 0x10, 0, 0, 0, 0];
        data.extend(CACHING_PAGE);
        data.extend([0x5c, 2, 0, 6, 1, 2, 3, 4, 5, 6]);
        let pages = parse_mode_pages(&data).unwrap();
        assert_eq!(pages.len(), 2);
        assert!(pages[0].savable && pages[0].page == 8 && pages[0].bytes == CACHING_PAGE);
        assert_eq!((pages[1].page, pages[1].subpage, pages[1].bytes.len()), (0x1c, 2, 10));
        assert_eq!(parse_mode_pages(&data[..30]).unwrap().len(), 1, "the cut one is left out");
        let list = mode_select_list(&pages[0]);
        assert_eq!((list[8], list.len()), (0x08, 28), "PS is reserved in a list");
        data[7] = 99;
        assert_eq!(parse_mode_pages(&data).unwrap_err().field, "block descriptors");
    }
}
