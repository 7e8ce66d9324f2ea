//! Identify data of controllers and namespaces (NVMe base 5.17, NVM command set 4.1.5).

use super::codes::{VERSION, admin};
use super::page::{Page, field};

/// Bytes of every data structure of Identify.
pub const IDENTIFY_LEN: usize = 4096;

/// Bytes of a command in a submission queue, in units of 16.
const COMMAND_UNITS: u32 = 4;

/// A controller; features that have no field are not supported.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Controller {
    /// A discovery controller: it reports subsystems and serves no namespaces.
    pub discovery: bool,
    /// SN, 20 characters.
    pub serial: String,
    /// MN, 40 characters.
    pub model: String,
    /// FR, 8 characters.
    pub firmware: String,
    /// SUBNQN.
    pub subsystem: String,
    /// CNTLID.
    pub number: u16,
    /// MDTS: most bytes of one transfer are 4 KiB shifted so far.
    pub transfer_shift: u8,
    /// OAES: the events that it reports.
    pub events: u32,
    /// AERL: Asynchronous Event Requests at once, less one.
    pub event_requests: u8,
    /// MAXCMD: entries of a queue that are of use.
    pub commands: u16,
    /// NN: largest number of a namespace.
    pub namespaces: u32,
    /// Bytes of data in a capsule of an I/O queue.
    pub capsule_data: u32,
    /// Some namespace has a volatile write cache.
    pub write_cache: bool,
    /// CRDT1: after how long a command that ends with CRD 1 is sent again, 100 ms.
    pub retry_delay: u16,
    /// KAS: granularity of keep alive, 100 ms.
    pub keep_alive: u16,
}

/// ONCS: Compare, Dataset Management, Write Zeroes, Verify.
const COMMANDS: u16 = 1 | 1 << 2 | 1 << 3 | 1 << 7;

impl Controller {
    /// CNS 01h.
    pub fn encode(&self) -> Vec<u8> {
        let mut page = Page::new(IDENTIFY_LEN);
        page.text(4, 20, &self.serial).text(24, 40, &self.model).text(64, 8, &self.firmware);
        // CMIC: several controllers at once.
        page.u8(76, 1 << 1).u8(77, self.transfer_shift).u16(78, self.number).u32(80, VERSION);
        // CTRATT: host identifiers have 128 bits.
        page.u32(92, self.events).u32(96, 1).u8(111, if self.discovery { 2 } else { 1 });
        page.u16(128, self.retry_delay);
        // ACL, AERL, FRMW: one read-only slot; LPA: effects, offsets and long lengths.
        page.u8(258, 3).u8(259, self.event_requests).u8(260, 3).u8(261, 1 << 1 | 1 << 2);
        page.u16(320, self.keep_alive).u16(514, self.commands).u32(516, self.namespaces);
        // SGLS: any alignment, offsets in the capsule. MSDBD: one descriptor.
        page.u32(536, 1 | 1 << 20).name(768, 256, &self.subsystem).u8(1803, 1);
        page.u32(1792, COMMAND_UNITS + self.capsule_data / 16).u32(1796, 1);
        // OFCS: Disconnect.
        page.u16(1804, 1);
        if !self.discovery {
            page.u8(512, 0x66).u8(513, 0x44).u16(520, COMMANDS);
            // VWC: Flush names its namespace.
            page.u8(525, if self.write_cache { 1 | 2 << 1 } else { 2 << 1 });
        }
        page.done()
    }
}

/// A namespace; lengths are in blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Namespace {
    /// NSZE.
    pub blocks: u64,
    /// LBADS: a block has two to so many bytes.
    pub block_shift: u8,
    /// NPWG.
    pub write_unit: u32,
    /// NOWS; 0 when there is none.
    pub write_best: u32,
    /// NPDG and NPDA; 0 when nothing is known.
    pub free_unit: u32,
    /// Blocks can be deallocated: Write Zeroes with DEAC does so.
    pub frees: bool,
    /// Deallocated blocks read as zeroes.
    pub zeroes: bool,
    /// Write protected.
    pub read_only: bool,
    /// EUI-64, where there is one.
    pub eui64: Option<[u8; 8]>,
}

/// Counted from zero, as the fields are.
fn less_one(n: u32) -> u16 {
    u16::try_from(n.saturating_sub(1)).unwrap_or(u16::MAX)
}

impl Namespace {
    /// CNS 00h.
    pub fn encode(&self) -> Vec<u8> {
        let mut page = Page::new(IDENTIFY_LEN);
        page.u64(0, self.blocks).u64(8, self.blocks).u64(16, self.blocks);
        // NSFEAT: the preferences below mean something. NMIC: other controllers have it too.
        page.u8(24, 1 << 4).u8(30, 1).u8(33, self.deallocation());
        let best = if self.write_best == 0 { self.write_unit } else { self.write_best };
        page.u16(64, less_one(self.write_unit)).u16(66, less_one(self.write_unit));
        page.u16(68, less_one(self.free_unit)).u16(70, less_one(self.free_unit));
        page.u16(72, less_one(best)).u8(99, u8::from(self.read_only));
        page.put(120, &self.eui64.unwrap_or_default()).u8(130, self.block_shift);
        page.done()
    }

    /// DLFEAT.
    fn deallocation(&self) -> u8 {
        u8::from(self.zeroes) | u8::from(self.frees) << 3
    }

    /// Reads the fields of CNS 00h that are kept here.
    pub fn decode(b: &[u8]) -> Namespace {
        let more_one = |at| u32::from(u16::from_le_bytes(field(b, at))) + 1;
        let ([free], [attributes], [shift]) = (field(b, 33), field(b, 99), field(b, 130));
        Namespace {
            blocks: u64::from_le_bytes(field(b, 0)),
            block_shift: shift,
            write_unit: more_one(64),
            write_best: more_one(72),
            free_unit: more_one(68),
            frees: free & 1 << 3 != 0,
            zeroes: free & 7 == 1,
            read_only: attributes & 1 != 0,
            eui64: Some(field(b, 120)).filter(|eui64| *eui64 != [0; 8]),
        }
    }
}

/// CNS 08h.
pub fn independent_namespace(read_only: bool) -> Vec<u8> {
    let mut page = Page::new(IDENTIFY_LEN);
    // NMIC; NSATTR; NSTAT: ready.
    page.u8(1, 1).u8(8, u8::from(read_only)).u8(14, 1);
    page.done()
}

/// CNS 06h of the NVM command set: limits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct NvmLimits {
    /// WZSL: most bytes of a Write Zeroes are 4 KiB shifted so far; 0 is no limit.
    pub zeroes_shift: u8,
    /// DMRL: ranges of one Dataset Management; 0 is no limit.
    pub ranges: u8,
    /// DMRSL: blocks of one range; 0 is no limit.
    pub range_blocks: u32,
    /// DMSL: blocks of all ranges; 0 is no limit.
    pub all_blocks: u64,
}

impl NvmLimits {
    pub fn encode(&self) -> Vec<u8> {
        let mut page = Page::new(IDENTIFY_LEN);
        page.u8(1, self.zeroes_shift).u8(3, self.ranges);
        page.u32(4, self.range_blocks).u64(8, self.all_blocks);
        page.done()
    }

    pub fn decode(b: &[u8]) -> NvmLimits {
        let ([zeroes_shift], [ranges]) = (field(b, 1), field(b, 3));
        NvmLimits {
            zeroes_shift,
            ranges,
            range_blocks: u32::from_le_bytes(field(b, 4)),
            all_blocks: u64::from_le_bytes(field(b, 8)),
        }
    }
}

/// CNS 02h and 07h: numbers above `after`, growing.
pub fn active_list(numbers: impl Iterator<Item = u32>, after: u32) -> Vec<u8> {
    let mut page = Page::new(IDENTIFY_LEN);
    for (i, number) in numbers.filter(|n| *n > after).take(IDENTIFY_LEN / 4).enumerate() {
        page.u32(i * 4, number);
    }
    page.done()
}

/// The numbers of a list.
pub fn parse_active_list(b: &[u8]) -> Vec<u32> {
    let (all, _) = b.as_chunks::<4>();
    all.iter().map(|n| u32::from_le_bytes(*n)).take_while(|n| *n != 0).collect()
}

/// A UUID (RFC 9562, version 8) that is the same for the same name.
pub fn uuid_of(name: [u8; 16]) -> [u8; 16] {
    let mut uuid = name;
    uuid[6] = uuid[6] & 0x0f | 0x80;
    uuid[8] = uuid[8] & 0x3f | 0x80;
    uuid
}

/// CNS 03h: a UUID, that the command set is NVM, and an EUI-64 where there is one.
pub fn descriptors(uuid: [u8; 16], eui64: Option<[u8; 8]>) -> Vec<u8> {
    let mut page = Page::new(IDENTIFY_LEN);
    page.put(0, &[3, 16]).put(4, &uuid).put(20, &[4, 1]);
    if let Some(eui64) = eui64 {
        page.put(25, &[1, 8]).put(29, &eui64);
    }
    page.done()
}

/// The UUID of CNS 03h, where there is one.
pub fn parse_descriptors(b: &[u8]) -> Option<[u8; 16]> {
    let mut at = 0usize;
    loop {
        let [kind, len] = field(b, at);
        match (kind, len) {
            (_, 0) => return None,
            (3, 16) => return b.get(at + 4..)?.first_chunk().copied(),
            _ => at = at.checked_add(4 + usize::from(len)).filter(|at| *at < b.len())?,
        }
    }
}

/// CNS 1Ch: one combination, the NVM command set.
pub fn command_sets() -> Vec<u8> {
    let mut page = Page::new(IDENTIFY_LEN);
    page.u64(0, 1);
    page.done()
}

const _: () = assert!(admin::IDENTIFY == 6);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn namespace_data_decode_as_encoded() {
        let namespace = Namespace {
            blocks: 1 << 33,
            block_shift: 12,
            write_unit: 2,
            write_best: 16,
            free_unit: 8,
            frees: true,
            zeroes: true,
            read_only: true,
            eui64: Some([1, 2, 3, 4, 5, 6, 7, 8]),
        };
        let page = namespace.encode();
        assert_eq!(Namespace::decode(&page), namespace);
        assert_eq!((page.len(), page[33], page[128 + 2]), (4096, 9, 12));
        let plain = Namespace { free_unit: 0, ..Namespace::default() }.encode();
        assert_eq!((plain[33], plain[68]), (0, 0), "nothing is promised");
    }

    #[test]
    fn controller_reports_only_supported_features() {
        let controller = Controller {
            serial: "S1".into(),
            subsystem: "nqn.2026-11.test:a".into(),
            capsule_data: 8192,
            write_cache: true,
            retry_delay: 150,
            ..Controller::default()
        };
        let page = controller.encode();
        assert_eq!(&page[4..8], b"S1  ");
        // Reservations, Copy, fused commands, ANA, namespace management.
        assert_eq!((page[520] & 1 << 5, page[521], page[522], page[76] & 8), (0, 0, 0, 0));
        assert_eq!((page[128], page[130]), (150, 0));
        assert_eq!((page[256], page[343], page[525]), (0, 0, 5));
        assert_eq!(u32::from_le_bytes(field(&page, 1792)), 4 + 512);
        let discovery = Controller { discovery: true, ..controller }.encode();
        assert_eq!((discovery[111], discovery[512], discovery[520]), (2, 0, 0));
    }

    #[test]
    fn namespace_lists_begin_after_the_given_nsid() {
        let list = active_list([1, 2, 5, 9].into_iter(), 2);
        assert_eq!(parse_active_list(&list), [5, 9]);
        assert_eq!(parse_active_list(&active_list(1..5000, 0)).len(), 1024);
        assert!(parse_active_list(&active_list([7].into_iter(), 7)).is_empty());
        let uuid = uuid_of([0xff; 16]);
        assert_eq!((uuid[6], uuid[8]), (0x8f, 0xbf));
        assert_eq!(parse_descriptors(&descriptors(uuid, Some([5; 8]))), Some(uuid));
        let limits =
            NvmLimits { zeroes_shift: 3, ranges: 255, range_blocks: 9, all_blocks: 1 << 40 };
        assert_eq!(NvmLimits::decode(&limits.encode()), limits);
    }
}
