//! CRCs of PDUs (iSCSI and NVMe over TCP), and of records on disks.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC32C (Castagnoli) of `bytes`, as iSCSI (RFC 7143 section 13.1) and NVMe over TCP use it. On
/// the wire the least significant byte is first.
pub fn crc32c(bytes: &[u8]) -> u32 {
    crc_fast::crc32_iscsi(bytes)
}

/// CRC-32 of the concatenated `parts`, as GPT (UEFI 5.3.2) and DDF (SNIA DDF 2.0, 3.1) use it.
pub fn crc32(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32IsoHdlc);
    for part in parts {
        digest.update(part);
    }
    u32::try_from(digest.finalize()).unwrap_or_default()
}

/// A CRC32C over pieces.
#[derive(Clone, Copy, Debug, Default)]
pub struct Crc32c(u32);

impl Crc32c {
    /// Over no bytes yet.
    pub fn new() -> Crc32c {
        Crc32c(0)
    }

    pub fn update(&mut self, bytes: &[u8]) {
        // The register holds the complement of the CRC over the bytes so far.
        let register = u64::from(!self.0);
        let mut digest = Digest::new_with_init_state(CrcAlgorithm::Crc32Iscsi, register);
        digest.update(bytes);
        self.0 = u32::try_from(digest.finalize()).unwrap_or_default();
    }

    /// Adds the zero bytes that pad `data_len` to a multiple of four.
    pub fn pad(&mut self, data_len: u32) {
        match pad_len(data_len) {
            0 => {}
            len => self.update([0u8; 3].get(..len).unwrap_or(&[])),
        }
    }

    pub fn wire(self) -> [u8; 4] {
        self.0.to_le_bytes()
    }
}

pub(crate) fn pad_len(len: u32) -> usize {
    match len % 4 {
        1 => 3,
        2 => 2,
        3 => 1,
        _ => 0,
    }
}
