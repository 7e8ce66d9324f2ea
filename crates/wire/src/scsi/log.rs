//! Log pages and LOG SENSE data (SPC-4 6.8, 7.3; SBC-4 6.4): 00h, 02h, 03h, 05h, 0Ch, 15h, 19h,
//! 2Fh, and the lists of subpages.
//!
//! ```text
//! DS SPF PAGE | SUBPAGE | length (2) | { parameter code (2) | control | length | value }*
//! ```

use super::sense::Sense;

/// The counters of an error counter page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorCounts {
    /// TOTAL BYTES PROCESSED.
    pub bytes: u64,
    /// TOTAL UNCORRECTED ERRORS.
    pub uncorrected: u64,
}

/// How full a thin unit is, for page 0Ch (SBC-4 6.4.5).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpaceCounts {
    /// Threshold sets that could be mapped yet.
    pub available: u32,
    /// Threshold sets that are mapped.
    pub used: u32,
    /// Percent of all resources that are available, 0 to 100.
    pub percent: u16,
    /// Others use the same resources.
    pub shared: bool,
}

/// The counters of a unit that the log pages report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogCounts {
    /// Page 02h.
    pub writes: ErrorCounts,
    /// Page 03h.
    pub reads: ErrorCounts,
    /// Page 05h.
    pub verifies: ErrorCounts,
    pub read_commands: u64,
    /// Commands that wrote it.
    pub write_commands: u64,
    pub blocks_received: u64,
    pub blocks_sent: u64,
    /// Time that read commands took, microseconds.
    pub read_time_us: u64,
    /// Time that write commands took, microseconds.
    pub write_time_us: u64,
    /// ACCUMULATED POWER ON MINUTES.
    pub minutes: u32,
    /// Page 0Ch; a unit that has none does not have the page. Never reset.
    pub space: Option<SpaceCounts>,
}

impl LogCounts {
    fn pages(&self) -> impl Iterator<Item = (u8, u8)> {
        let space = self.space.is_some();
        PAGES.into_iter().filter(move |one| space || *one != SPACE_PAGE)
    }
}

/// Page and subpage codes, in the order in which they are listed.
const PAGES: [(u8, u8); 10] = [
    (0x00, 0x00),
    (0x00, 0xff),
    (0x02, 0x00),
    (0x03, 0x00),
    (0x05, 0x00),
    SPACE_PAGE,
    (0x15, 0x00),
    (0x19, 0x00),
    (0x19, 0xff),
    (0x2f, 0x00),
];
/// Logical Block Provisioning.
const SPACE_PAGE: (u8, u8) = (0x0c, 0x00);
const ALL_SUBPAGES: u8 = 0xff;
/// Parameter control: a binary list, a bounded counter that stays at its end; nothing is saved
/// (DS, TSD).
const LIST: u8 = 0x03;
/// See [`LIST`].
const COUNTER: u8 = 0x02;
/// DS of the page header.
const NOT_SAVED: u8 = 0x80;
/// One interval of page 19h is a microsecond: 10 to the minus 6.
const INTERVAL: [u8; 8] = [0, 0, 0, 6, 0, 0, 0, 1];

/// True if the page with this subpage is served; LOG SELECT may reset such a page.
pub fn is_log_page(page: u8, subpage: u8, counts: &LogCounts) -> bool {
    counts.pages().any(|one| one == (page, subpage))
}

/// A page with its header, not truncated, without the parameters before `from`. Unknown pages and
/// subpages, and a first parameter behind the last one, are refused with a pointer.
pub fn log_page(page: u8, subpage: u8, from: u16, counts: &LogCounts) -> Result<Vec<u8>, Sense> {
    if !counts.pages().any(|one| one.0 == page) {
        return Err(Sense::cdb_field(2, Some(5)));
    }
    if !is_log_page(page, subpage, counts) {
        return Err(Sense::cdb_field(3, None));
    }
    let mut body = Vec::new();
    let mut last = 0;
    let mut put = |code: u16, control: u8, value: &[u8]| {
        last = code;
        if code >= from {
            body.extend(code.to_be_bytes());
            body.extend([control, u8::try_from(value.len()).unwrap_or(u8::MAX)]);
            body.extend(value);
        }
    };
    match (page, subpage) {
        (_, ALL_SUBPAGES) => body.extend(subpages(page, counts)),
        (0x00, _) => body.extend(counts.pages().filter(|one| one.1 == 0).map(|one| one.0)),
        (0x02, _) => errors(&counts.writes, &mut put),
        (0x03, _) => errors(&counts.reads, &mut put),
        (0x05, _) => errors(&counts.verifies, &mut put),
        SPACE_PAGE => space(&counts.space.unwrap_or_default(), &mut put),
        (0x15, _) => {
            // Background scan status: none is done.
            let mut status = counts.minutes.to_be_bytes().to_vec();
            status.resize(12, 0);
            put(0, LIST, &status);
        }
        (0x19, _) => performance(counts, &mut put),
        // Informational exceptions: none; the temperature is not known.
        _ => put(0, LIST, &[0, 0, 0xff, 0]),
    }
    if from > last {
        return Err(Sense::cdb_field(5, None));
    }
    let format = if subpage == 0 { 0 } else { 0x40 };
    let mut out = vec![NOT_SAVED | format | page, subpage];
    out.extend(u16::try_from(body.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(body);
    Ok(out)
}

/// Pairs of page and subpage: all of them, or those of one page.
fn subpages(page: u8, counts: &LogCounts) -> impl Iterator<Item = u8> {
    let pairs = counts.pages().filter(move |one| page == 0 || one.0 == page);
    pairs.flat_map(|(page, subpage)| [page, subpage])
}

/// Errors corrected in three ways, their sum, how often, bytes, errors that stayed. There is no
/// medium of ours whose errors could be corrected.
fn errors(counts: &ErrorCounts, put: &mut impl FnMut(u16, u8, &[u8])) {
    for code in 0..=4 {
        put(code, COUNTER, &0u64.to_be_bytes());
    }
    put(5, COUNTER, &counts.bytes.to_be_bytes());
    put(6, COUNTER, &counts.uncorrected.to_be_bytes());
}

/// Available and used resources and the percentage, each with its scope.
fn space(counts: &SpaceCounts, put: &mut impl FnMut(u16, u8, &[u8])) {
    let scope = if counts.shared { 2 } else { 1 };
    for (code, count) in [(1, counts.available), (2, counts.used)] {
        let [a, b, c, d] = count.to_be_bytes();
        put(code, LIST, &[a, b, c, d, scope, 0, 0, 0]);
    }
    let [high, low] = counts.percent.to_be_bytes();
    put(3, LIST, &[high, low, 0, 0, scope, 0, 0, 0]);
}

fn performance(c: &LogCounts, put: &mut impl FnMut(u16, u8, &[u8])) {
    let values = [
        c.read_commands,
        c.write_commands,
        c.blocks_received,
        c.blocks_sent,
        c.read_time_us,
        c.write_time_us,
        // Weighted commands and time: every command weighs the same.
        c.read_commands.saturating_add(c.write_commands),
        c.read_time_us.saturating_add(c.write_time_us),
    ];
    let all: Vec<u8> = values.iter().flat_map(|v| v.to_be_bytes()).collect();
    put(1, LIST, &all);
    put(3, LIST, &INTERVAL);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts() -> LogCounts {
        LogCounts {
            writes: ErrorCounts { bytes: 4096, uncorrected: 1 },
            read_commands: 2,
            write_commands: 3,
            read_time_us: 10,
            minutes: 7,
            space: Some(SpaceCounts { available: 0x0102, used: 3, percent: 99, shared: true }),
            ..LogCounts::default()
        }
    }

    #[test]
    fn every_listed_page_exists_and_has_its_length() {
        let list = log_page(0, 0, 0, &counts()).unwrap();
        assert_eq!(list, [0x80, 0, 0, 8, 0, 2, 3, 5, 0x0c, 0x15, 0x19, 0x2f]);
        let pairs = log_page(0, 0xff, 0, &counts()).unwrap();
        assert_eq!((pairs[0], pairs[1], pairs[3]), (0xc0, 0xff, 20));
        for page in 0..64u8 {
            for subpage in [0, 1, 0xff] {
                let listed = pairs[4..].chunks(2).any(|p| p == [page, subpage]);
                let found = log_page(page, subpage, 0, &counts());
                assert_eq!(found.is_ok(), listed, "{page:#x}/{subpage:#x}");
                if let Ok(found) = found {
                    let len = usize::from(u16::from_be_bytes([found[2], found[3]]));
                    assert_eq!((found[0] & 0x3f, found.len()), (page, len + 4));
                }
            }
        }
        assert_eq!(log_page(1, 0, 0, &counts()).unwrap_err(), Sense::cdb_field(2, Some(5)));
        assert_eq!(log_page(2, 1, 0, &counts()).unwrap_err(), Sense::cdb_field(3, None));
    }

    #[test]
    fn log_parameters_match_known_bytes() {
        let page = log_page(2, 0, 5, &counts()).unwrap();
        let want = [
            0x82, 0, 0, 24, 0, 5, 2, 8, 0, 0, 0, 0, 0, 0, 16, 0, 0, 6, 2, 8, 0, 0, 0, 0, 0, 0, 0, 1,
        ];
        assert_eq!(page, want);
        assert_eq!(log_page(2, 0, 7, &counts()).unwrap_err(), Sense::cdb_field(5, None));
        let page = log_page(0x0c, 0, 0, &counts()).unwrap();
        let want = [
            0x8c, 0, 0, 36, 0, 1, 3, 8, 0, 0, 1, 2, 2, 0, 0, 0, 0, 2, 3, 8, 0, 0, 0, 3, 2, 0, 0, 0,
            0, 3, 3, 8, 0, 99, 0, 0, 2, 0, 0, 0,
        ];
        assert_eq!(page, want);
        let without = LogCounts { space: None, ..counts() };
        assert_eq!(log_page(0, 0, 0, &without).unwrap().len(), 11);
        assert_eq!(log_page(0x0c, 0, 0, &without).unwrap_err(), Sense::cdb_field(2, Some(5)));
        let page = log_page(0x19, 0, 0, &counts()).unwrap();
        assert_eq!(page[4..8], [0, 1, 3, 64]);
        assert_eq!((page[15], page[23], page[47], page[63], page[71]), (2, 3, 10, 5, 10));
        assert_eq!(page[72..], [0, 3, 3, 8, 0, 0, 0, 6, 0, 0, 0, 1]);
    }
}
