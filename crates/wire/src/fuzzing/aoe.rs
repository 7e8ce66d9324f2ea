//! Targets for AoE and for data of ATA devices.

use crate::aoe::{Ata, Config, Header, Masks, Reserve, command};
use crate::ata::{Identify, NcqError, TRIM_BLOCK, trim_blocks, trim_ranges};

/// A frame: a decoded frame encodes to the same bytes, except for bits without a meaning.
pub fn fuzz_aoe(data: &[u8]) {
    let Ok((header, body)) = Header::decode(data) else { return };
    let again = header.encode();
    assert_eq!(Header::decode(&again).map(|(h, _)| h), Ok(header));
    match header.command {
        command::ATA => {
            let Ok((ata, rest)) = Ata::decode(body) else { return };
            assert!(ata.lba() <= ata.registers && rest.len() < body.len());
            assert_eq!(Ata::decode(&ata.encode()).map(|(a, _)| a), Ok(ata));
        }
        command::CONFIG => {
            let Ok(config) = Config::decode(body) else { return };
            let again = [&config.encode()[..], config.string].concat();
            assert_eq!(Config::decode(&again), Ok(config));
        }
        command::MASKS => {
            let Ok(masks) = Masks::decode(body) else { return };
            let list: Vec<_> = masks.directives().collect();
            let again = Masks::encode(masks.command, masks.error, &list);
            assert!(Masks::decode(&again).is_ok_and(|m| m.directives().eq(list)));
        }
        command::RESERVE => {
            let Ok(reserve) = Reserve::decode(body) else { return };
            let list: Vec<_> = reserve.addresses().collect();
            let again = Reserve::encode(reserve.command, &list);
            assert_eq!(Reserve::decode(&again), Ok(reserve));
        }
        _ => {}
    }
}

/// IDENTIFY DEVICE data: decoded data is encoded again and decodes to the same value. Also ranges
/// of TRIM, and the log of queued commands that failed.
pub fn fuzz_ata(data: &[u8]) {
    if let Ok(decoded) = Identify::decode(data) {
        assert!(decoded.sector_bytes >= 512 && decoded.queue_depth >= 1);
        let again = Identify::decode(&decoded.encode());
        assert!(again.is_ok_and(|again| again.encode() == decoded.encode()));
    }
    if let Ok(decoded) = NcqError::decode(data) {
        assert_eq!(NcqError::decode(&decoded.encode()), Ok(decoded));
    }
    let Ok(ranges) = trim_ranges(data) else { return };
    let ranges: Vec<_> = ranges.collect();
    let blocks = data.len() / TRIM_BLOCK;
    let (bytes, covered) = trim_blocks(&ranges, blocks);
    assert!(bytes.len() <= data.len());
    let read = trim_ranges(&bytes).map(|read| read.map(|(_, sectors)| sectors).sum::<u64>());
    assert_eq!(read, Ok(covered));
}
