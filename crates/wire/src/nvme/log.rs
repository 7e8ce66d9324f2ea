//! Log pages (NVMe base 5.16).

use super::codes::{admin, io, log_page};
use super::page::{Page, field};

/// Most namespaces that the list of changed ones names; a longer list means that all may have
/// changed.
pub const CHANGED_MAX: usize = 1024;

/// Bytes of the discovery log page before its records, and of each.
pub const DISCOVERY_HEADER_LEN: usize = 1024;
/// See [`DISCOVERY_HEADER_LEN`].
pub const DISCOVERY_RECORD_LEN: usize = 1024;

/// Page 00h: which pages there are.
pub fn supported_pages(discovery: bool) -> Vec<u8> {
    use log_page as p;
    let all: &[u8] = match discovery {
        true => &[p::SUPPORTED, p::ERROR, p::DISCOVERY],
        false => &[p::SUPPORTED, p::ERROR, p::HEALTH, p::FIRMWARE, p::CHANGED, p::EFFECTS],
    };
    let mut page = Page::new(1024);
    all.iter().for_each(|one| {
        page.u32(usize::from(*one) * 4, 1);
    });
    page.done()
}

/// Page 01h: one entry, no error.
pub fn error_entries() -> Vec<u8> {
    vec![0; 64]
}

/// Page 02h: nothing to complain of. Blocks read and written in 512 bytes, commands, hours.
pub fn health(read: (u64, u64), written: (u64, u64), hours: u64) -> Vec<u8> {
    let mut page = Page::new(512);
    // Available spare and its threshold, percent.
    page.u8(3, 100).u8(4, 10);
    let thousands = |blocks: u64| blocks.div_ceil(1000);
    page.u64(32, thousands(read.0)).u64(48, thousands(written.0));
    page.u64(64, read.1).u64(80, written.1).u64(128, hours);
    page.done()
}

/// Page 03h: one slot, in use.
pub fn firmware(revision: &str) -> Vec<u8> {
    let mut page = Page::new(512);
    page.u8(0, 1).text(8, 8, revision);
    page.done()
}

/// Page 04h.
pub fn changed_namespaces(numbers: &[u32]) -> Vec<u8> {
    let mut page = Page::new(CHANGED_MAX * 4);
    if numbers.len() > CHANGED_MAX {
        page.u32(0, u32::MAX);
        return page.done();
    }
    numbers.iter().enumerate().for_each(|(i, number)| {
        page.u32(i * 4, *number);
    });
    page.done()
}

/// Page 05h: commands there are, and which of them change blocks.
pub fn effects() -> Vec<u8> {
    let mut page = Page::new(4096);
    let admins = [
        admin::GET_LOG_PAGE,
        admin::IDENTIFY,
        admin::ABORT,
        admin::SET_FEATURES,
        admin::GET_FEATURES,
        admin::ASYNC_EVENT,
        admin::KEEP_ALIVE,
    ];
    admins.iter().for_each(|op| {
        page.u32(usize::from(*op) * 4, 1);
    });
    let reads = [io::FLUSH, io::READ, io::COMPARE, io::VERIFY].map(|op| (op, 1));
    let writes = [io::WRITE, io::WRITE_ZEROES, io::DATASET_MANAGEMENT].map(|op| (op, 3));
    reads.iter().chain(&writes).for_each(|(op, effects)| {
        page.u32(1024 + usize::from(*op) * 4, *effects);
    });
    page.done()
}

/// A record of the discovery log page: a subsystem, and where it is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Subsystem {
    pub discovery: bool,
    /// SUBNQN.
    pub name: String,
    /// TRADDR.
    pub address: String,
    /// The address is of IPv6.
    pub ipv6: bool,
    /// TRSVCID: the TCP port.
    pub port: u16,
    /// PORTID.
    pub number: u16,
    /// ASQSZ: entries of an admin queue.
    pub admin_entries: u16,
}

/// Page 70h. `generation` differs when the records do.
pub fn discovery(generation: u64, all: &[Subsystem]) -> Vec<u8> {
    let mut page = Page::new(DISCOVERY_HEADER_LEN + all.len() * DISCOVERY_RECORD_LEN);
    page.u64(0, generation).u64(8, all.len() as u64);
    for (i, one) in all.iter().enumerate() {
        let at = DISCOVERY_HEADER_LEN + i * DISCOVERY_RECORD_LEN;
        let family = if one.ipv6 { 2 } else { 1 };
        // TCP; TREQ: no secure channel is required, SQ flow control can be off. SECTYPE: none.
        page.put(at, &[3, family, if one.discovery { 3 } else { 2 }, 1 << 1 | 1 << 2]);
        page.u16(at + 4, one.number).u16(at + 6, u16::MAX).u16(at + 8, one.admin_entries);
        page.text(at + 32, 32, &one.port.to_string()).name(at + 256, 256, &one.name);
        page.text(at + 512, 256, &one.address);
    }
    page.done()
}

/// Generation and records of page 70h, as far as they are here.
pub fn parse_discovery(b: &[u8]) -> (u64, Vec<Subsystem>) {
    let records = b.get(DISCOVERY_HEADER_LEN..).unwrap_or(&[]);
    let text = |b: &[u8]| {
        let end = b.iter().position(|b| *b == 0).unwrap_or(b.len());
        String::from_utf8_lossy(b.get(..end).unwrap_or(b)).trim_end().to_owned()
    };
    let part = |b: &[u8], at: usize, len: usize| text(b.get(at..at + len).unwrap_or(&[]));
    let one = |b: &[u8]| {
        let [_, family, kind] = field(b, 0);
        Subsystem {
            discovery: kind == 3,
            name: part(b, 256, 256),
            address: part(b, 512, 256),
            ipv6: family == 2,
            port: part(b, 32, 32).parse().unwrap_or(0),
            number: u16::from_le_bytes(field(b, 4)),
            admin_entries: u16::from_le_bytes(field(b, 8)),
        }
    };
    let whole = records.chunks_exact(DISCOVERY_RECORD_LEN);
    (u64::from_le_bytes(field(b, 0)), whole.map(one).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discovery_page_decodes_as_encoded() {
        let one = Subsystem {
            discovery: false,
            name: "nqn.2026-11.test:a".into(),
            address: "192.0.2.7".into(),
            ipv6: false,
            port: 4420,
            number: 3,
            admin_entries: 32,
        };
        let all = [one.clone(), Subsystem { ipv6: true, address: "2001:db8::1".into(), ..one }];
        assert_eq!(parse_discovery(&discovery(9, &all)), (9, all.to_vec()));
        assert_eq!(parse_discovery(&[]), (0, vec![]));
    }

    #[test]
    fn changed_namespace_list_overflow_reports_all_namespaces() {
        let few = changed_namespaces(&[4, 7]);
        assert_eq!((few[0], few[4], few[8]), (4, 7, 0));
        assert_eq!(
            changed_namespaces(&vec![1; CHANGED_MAX + 1])[..8],
            [255, 255, 255, 255, 0, 0, 0, 0]
        );
        let pages = supported_pages(false);
        assert!(pages[0x05 * 4] == 1 && pages[0x70 * 4] == 0 && pages[0x0c * 4] == 0);
        let health = health((1001, 3), (0, 0), 5);
        assert_eq!((health[0], health[32], health[64], health[128]), (0, 2, 3, 5));
    }
}
