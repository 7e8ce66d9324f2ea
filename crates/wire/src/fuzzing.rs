//! Entry points for fuzzing: ordinary functions that take any bytes.
//!
//! Each target checks more than the absence of panics. Decoded data that is encoded again decodes
//! to the same value, and results stay within the limits. [`TARGETS`] lists them. The crate's tests
//! run all of them over the corpus in `fuzz/corpus` and seeded mutations of it, and `fuzz/` runs
//! them under a fuzzer.

mod aoe;
mod cec;
mod enclosure;
mod fuse;
mod iscsi;
mod nbd;
mod netlink;
mod ninep;
mod nvme;
mod scsi;

pub use aoe::{fuzz_aoe, fuzz_ata};
pub use cec::fuzz_cec;
pub use enclosure::{fuzz_ses, fuzz_smp, fuzz_upkeep};
pub use fuse::fuzz_fuse;
pub use iscsi::{
    fuzz_client_login, fuzz_framing, fuzz_login, fuzz_negotiate, fuzz_request, fuzz_response,
    fuzz_text,
};
pub use nbd::{fuzz_nbd_client, fuzz_nbd_handshake, fuzz_nbd_transmission, fuzz_x509};
pub use netlink::fuzz_netlink;
pub use ninep::fuzz_ninep;
pub use nvme::{fuzz_nvme, fuzz_nvme_data};
pub use scsi::{
    fuzz_alua, fuzz_cdb, fuzz_copy, fuzz_initiator, fuzz_medium, fuzz_mode_select, fuzz_parameters,
    fuzz_reserve, fuzz_sense, fuzz_token, fuzz_unmap,
};

/// Takes any bytes and must return.
pub type Target = fn(&[u8]);

/// Every target by the name of its corpus folder.
pub const TARGETS: &[(&str, Target)] = &[
    ("wire_request", fuzz_request),
    ("wire_response", fuzz_response),
    ("wire_framing", fuzz_framing),
    ("wire_text", fuzz_text),
    ("wire_negotiate", fuzz_negotiate),
    ("wire_login", fuzz_login),
    ("wire_client_login", fuzz_client_login),
    ("wire_nbd_client", fuzz_nbd_client),
    ("wire_nbd_handshake", fuzz_nbd_handshake),
    ("wire_nbd_transmission", fuzz_nbd_transmission),
    ("wire_x509", fuzz_x509),
    ("wire_aoe", fuzz_aoe),
    ("wire_ata", fuzz_ata),
    ("wire_fuse", fuzz_fuse),
    ("wire_netlink", fuzz_netlink),
    ("wire_cec", fuzz_cec),
    ("wire_ninep", fuzz_ninep),
    ("wire_nvme", fuzz_nvme),
    ("wire_nvme_data", fuzz_nvme_data),
    ("wire_cdb", fuzz_cdb),
    ("wire_sense", fuzz_sense),
    ("wire_mode_select", fuzz_mode_select),
    ("wire_unmap", fuzz_unmap),
    ("wire_medium", fuzz_medium),
    ("wire_copy", fuzz_copy),
    ("wire_token", fuzz_token),
    ("wire_parameters", fuzz_parameters),
    ("wire_alua", fuzz_alua),
    ("wire_reserve", fuzz_reserve),
    ("wire_initiator", fuzz_initiator),
    ("wire_ses", fuzz_ses),
    ("wire_smp", fuzz_smp),
    ("wire_upkeep", fuzz_upkeep),
];

/// A small seeded generator for tests (xorshift64*); not for secrets.
pub struct Prng(u64);

impl Prng {
    /// The same seed gives the same numbers.
    pub fn new(seed: u64) -> Prng {
        Prng(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `n`; 0 when `n` is 0.
    pub fn below(&mut self, n: usize) -> usize {
        let wide = u64::try_from(n.max(1)).unwrap_or(u64::MAX);
        usize::try_from((self.next_u64() >> 11) % wide).unwrap_or(0)
    }

    pub fn fill(&mut self, out: &mut [u8]) {
        for chunk in out.chunks_mut(8) {
            for (to, from) in chunk.iter_mut().zip(self.next_u64().to_le_bytes()) {
                *to = from;
            }
        }
    }

    /// Changes `bytes` a little: flips, interesting values, cuts, repeats, insertions.
    pub fn mutate(&mut self, bytes: &mut Vec<u8>) {
        const VALUES: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'=', b',', 0x3f];
        for _ in 0..=self.below(4) {
            let len = bytes.len();
            let at = self.below(len);
            match self.below(6) {
                0 if len > 0 => bytes[at] ^= 1 << self.below(8),
                1 if len > 0 => bytes[at] = VALUES[self.below(VALUES.len())],
                2 => bytes.truncate(at),
                3 if len > 0 && len < 4096 => {
                    let end = at + self.below(len - at) + 1;
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                4 => bytes.insert(at, VALUES[self.below(VALUES.len())]),
                _ if len > 0 => {
                    bytes.remove(at);
                }
                _ => bytes.push(0),
            }
        }
    }
}
