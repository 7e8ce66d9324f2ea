//! Tuples as initiators make them. The guard is computed here bit by bit, not by the code under
//! test.

use engine::ProtectionSpec;
use engine::lun::OpenSpec;
use wire::scsi::ProtectionType;

pub fn crc(data: &[u8]) -> u16 {
    let mut crc = 0u16;
    for byte in data {
        for bit in (0..8).rev() {
            let top = (crc >> 15) ^ u16::from(byte >> bit & 1);
            crc = crc << 1 ^ if top == 1 { 0x8BB7 } else { 0 };
        }
    }
    crc
}

pub fn spec(kind: u8) -> OpenSpec {
    let protection = match ProtectionType::from_number(kind) {
        Some(kind) => ProtectionSpec::Type(kind),
        None => ProtectionSpec::Unformatted,
    };
    OpenSpec { protection, sanitize: true, ..OpenSpec::default() }
}

pub fn tuple(data: &[u8], app: u16, reference: u32) -> Vec<u8> {
    let mut out = crc(data).to_be_bytes().to_vec();
    out.extend(app.to_be_bytes());
    out.extend(reference.to_be_bytes());
    out
}

/// Blocks with tuples whose reference tags grow from `reference`.
pub fn woven(blocks: &[[u8; 512]], app: u16, reference: u32) -> Vec<u8> {
    let pairs = blocks.iter().zip(reference..);
    pairs.flat_map(|(b, r)| [b.to_vec(), tuple(b, app, r)].concat()).collect()
}

pub fn with_protect(mut cdb: [u8; 16], field: u8) -> [u8; 16] {
    cdb[1] |= field << 5;
    cdb
}

/// READ(32), WRITE(32) and their like.
pub fn cdb32(action: u8, lba: u64, blocks: u32, field: u8, tags: (u32, u16, u16)) -> [u8; 32] {
    let mut cdb = [0; 32];
    (cdb[0], cdb[7], cdb[9], cdb[10]) = (0x7F, 0x18, action, field << 5);
    cdb[12..20].copy_from_slice(&lba.to_be_bytes());
    cdb[20..24].copy_from_slice(&tags.0.to_be_bytes());
    cdb[24..26].copy_from_slice(&tags.1.to_be_bytes());
    cdb[26..28].copy_from_slice(&tags.2.to_be_bytes());
    cdb[28..].copy_from_slice(&blocks.to_be_bytes());
    cdb
}

pub const GUARD: (u8, u8, u8) = (0xB, 0x10, 1);
pub const APP: (u8, u8, u8) = (0xB, 0x10, 2);
pub const REFERENCE: (u8, u8, u8) = (0xB, 0x10, 3);
