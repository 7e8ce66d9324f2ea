//! Targets for the codecs of NVMe over TCP.

use crate::nvme::*;
use crate::scsi::{Sense, UnmapList};

/// A byte of negotiated parameters, then a PDU. Its lengths are consistent, and a valid PDU that is
/// encoded again decodes to the same value.
pub fn fuzz_nvme(data: &[u8]) {
    let Some((how, bytes)) = data.split_first() else { return };
    let framer = Framer {
        from_controller: how & 4 != 0,
        header_digest: how & 1 != 0,
        data_digest: how & 2 != 0,
    };
    if let Some(common) = bytes.first_chunk()
        && let Ok(frame) = framer.frame(common)
    {
        assert_eq!(frame.total_len() as u64, u64::from(frame.common.len));
        assert!(frame.header_len >= usize::from(frame.common.header_len));
        let _ = framer.check(&frame, bytes.get(..frame.header_len).unwrap_or(&[]));
    }
    if let Some(ic) = bytes.first_chunk()
        && let Ok(read) = Initialize::decode(ic)
    {
        assert_eq!(read.encode().first_chunk().map(Initialize::decode), Some(Ok(read)));
    }
    if let Some(head) = bytes.first_chunk() {
        let read = Data::decode(head);
        let again = bytes.first_chunk().map(|common| read.encode(&Common::decode(common)));
        let again = again.as_ref().and_then(|bytes| bytes.first_chunk());
        assert_eq!(again.map(Data::decode), Some(read));
    }
    if let Some(word) = Terminate::decode(bytes) {
        assert!(word.encode().len() <= TERM_LEN_MAX as usize);
    }
    if let Some(command) = bytes.first_chunk() {
        command_of(&Command::decode(command));
    }
    if let Some(end) = bytes.first_chunk() {
        let read = Completion::decode(end);
        assert_eq!(Completion::decode(&read.encode()), read);
    }
    let _ = outcome(*how, Sense::decode(bytes).ok(), how % 2 == 0);
}

fn command_of(read: &Command) {
    assert_eq!(read.encode().first_chunk().map(Command::decode), Some(*read));
    let extent = Extent::of(read);
    assert!((1..=65_536).contains(&extent.blocks));
    let again = Command { dwords: extent.dwords(), ..*read };
    assert_eq!(Extent::of(&again), extent);
    if extent.fits(1 << 40) {
        assert!(extent.lba < 1 << 40);
    }
    let connect = Connect::decode(read);
    assert_eq!(Connect::decode(&Command { dwords: connect.dwords(), ..*read }), connect);
    if let Some(property) = Property::decode(read) {
        let again = Command { dwords: property.dwords(), ..*read };
        assert_eq!(Property::decode(&again), Some(property));
        let _ = Configuration(read.dwords[2]).status();
    }
}

/// A byte of limits, then data of commands and answers: names, ranges, lists.
pub fn fuzz_nvme_data(data: &[u8]) {
    let Some((how, bytes)) = data.split_first() else { return };
    if let Some(connect) = bytes.first_chunk()
        && let Ok(read) = ConnectData::decode(connect)
    {
        assert!(is_nqn(&read.subsystem) && is_nqn(&read.host));
        assert_eq!(read.encode().first_chunk().map(ConnectData::decode), Some(Ok(read)));
    }
    let ranges = Range::decode_all(bytes.get(..RANGES_MAX * RANGE_LEN).unwrap_or(bytes));
    let most = 1 << 24 | u32::from(*how);
    let lists = unmap_lists(&ranges, most, 1 + u16::from(*how));
    let mut sum = 0u64;
    for list in &lists {
        let list = UnmapList::parse(list).expect("our own list");
        assert!(list.len() <= 1 + usize::from(*how) && !list.is_empty());
        let blocks: u64 = list.iter().map(|r| u64::from(r.blocks)).sum();
        assert!(blocks <= u64::from(most));
        sum += blocks;
    }
    assert_eq!(sum, ranges.iter().map(|r| u64::from(r.blocks)).sum());
    let (generation, all) = parse_discovery(bytes);
    let again = parse_discovery(&discovery(generation, &all));
    assert_eq!((again.0, again.1.len()), (generation, all.len()));
    let _ = (parse_active_list(bytes), parse_descriptors(bytes), NvmLimits::decode(bytes));
    let _ = Namespace::decode(bytes);
}
