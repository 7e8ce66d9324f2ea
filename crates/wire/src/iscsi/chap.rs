//! CHAP (RFC 7143 section 12.1.3, RFC 1994): response = digest(identifier, secret, challenge).
//!
//! Challenges are arguments: drawing them from a secure source, never twice, is the caller's part.

use super::number::decode_binary;
use crate::error::WireError;
use md5::Md5;
use sha1::{Digest, Sha1};
use sha2::Sha256;
use sha3::Sha3_256;

/// Bytes of a challenge that this side sends.
pub const CHALLENGE_LEN: usize = 32;

/// Longest challenge accepted, bytes; a longer one ends the login (RFC 7143 section 12.1.3).
pub const CHALLENGE_LEN_MAX: usize = 1024;

/// Shortest secret worth configuring, bytes (RFC 7143 section 9.2.1 recommends 96 bits). The codec
/// does not refuse shorter ones; the configuration does.
pub const SECRET_LEN_MIN: usize = 12;

/// Longest response of any algorithm, bytes.
const RESPONSE_LEN_MAX: usize = 32;

/// A digest algorithm, numbered as in CHAP_A.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Algorithm {
    /// 5, MD5: weak; only when the configuration enables it.
    Md5 = 5,
    /// 6, SHA-1.
    Sha1 = 6,
    /// 7, SHA-256.
    Sha256 = 7,
    /// 8, SHA3-256.
    Sha3 = 8,
}

impl Algorithm {
    /// All algorithms, strongest first: the order an initiator offers them in.
    pub const ALL: [Algorithm; 4] =
        [Algorithm::Sha3, Algorithm::Sha256, Algorithm::Sha1, Algorithm::Md5];

    pub fn response_len(self) -> usize {
        match self {
            Algorithm::Md5 => 16,
            Algorithm::Sha1 => 20,
            Algorithm::Sha256 | Algorithm::Sha3 => 32,
        }
    }
}

/// A set of algorithms. The default has all but MD5.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Algorithms {
    /// Whether MD5 is allowed.
    pub md5: bool,
    /// Whether SHA-1 is allowed.
    pub sha1: bool,
    /// Whether SHA-256 is allowed.
    pub sha256: bool,
    /// Whether SHA3-256 is allowed.
    pub sha3: bool,
}

impl Default for Algorithms {
    fn default() -> Algorithms {
        Algorithms { md5: false, sha1: true, sha256: true, sha3: true }
    }
}

impl Algorithms {
    /// Every algorithm, MD5 included.
    pub const ANY: Algorithms = Algorithms { md5: true, sha1: true, sha256: true, sha3: true };

    pub fn contains(self, algorithm: Algorithm) -> bool {
        match algorithm {
            Algorithm::Md5 => self.md5,
            Algorithm::Sha1 => self.sha1,
            Algorithm::Sha256 => self.sha256,
            Algorithm::Sha3 => self.sha3,
        }
    }

    /// The first number of a CHAP_A list that is in the set.
    pub(crate) fn first_of(self, list: &str) -> Option<Algorithm> {
        list.split(',').find_map(|item| {
            let number = super::number::parse_number(item)?;
            Algorithm::ALL.into_iter().find(|a| u64::from(*a as u8) == number && self.contains(*a))
        })
    }

    /// The CHAP_A list that offers the set, strongest first.
    pub(crate) fn list(self) -> String {
        let numbers: Vec<String> = Algorithm::ALL
            .into_iter()
            .filter(|a| self.contains(*a))
            .map(|a| (a as u8).to_string())
            .collect();
        numbers.join(",")
    }
}

/// An identifier and a challenge to send; drawn afresh for every connection.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Challenge {
    /// CHAP_I.
    pub id: u8,
    /// CHAP_C.
    pub bytes: [u8; CHALLENGE_LEN],
}

/// A name and its secret.
#[derive(Clone, PartialEq, Eq)]
pub struct ChapUser {
    /// CHAP_N.
    pub name: String,
    pub secret: Vec<u8>,
}

impl std::fmt::Debug for ChapUser {
    /// The secret is not shown.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ChapUser").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A response, its bytes and how many of them count.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ChapResponse {
    bytes: [u8; RESPONSE_LEN_MAX],
    len: usize,
}

impl ChapResponse {
    pub fn bytes(&self) -> &[u8] {
        self.bytes.get(..self.len).unwrap_or(&[])
    }
}

pub fn response(algorithm: Algorithm, id: u8, secret: &[u8], challenge: &[u8]) -> ChapResponse {
    fn run<D: Digest>(id: u8, secret: &[u8], challenge: &[u8]) -> ChapResponse {
        let digest =
            D::new().chain_update([id]).chain_update(secret).chain_update(challenge).finalize();
        let mut out = ChapResponse { bytes: [0; RESPONSE_LEN_MAX], len: 0 };
        for (to, from) in out.bytes.iter_mut().zip(digest.iter()) {
            *to = *from;
            out.len += 1;
        }
        out
    }
    match algorithm {
        Algorithm::Md5 => run::<Md5>(id, secret, challenge),
        Algorithm::Sha1 => run::<Sha1>(id, secret, challenge),
        Algorithm::Sha256 => run::<Sha256>(id, secret, challenge),
        Algorithm::Sha3 => run::<Sha3_256>(id, secret, challenge),
    }
}

/// Compares in constant time, independent of the position of the first difference. Different
/// lengths are reported at once; the length of a response is no secret.
pub fn equal_constant_time(a: &[u8], b: &[u8]) -> bool {
    let differs = a.iter().zip(b).fold(0u8, |sum, (x, y)| std::hint::black_box(sum | (x ^ y)));
    a.len() == b.len() && differs == 0
}

/// Reads CHAP_R: exactly the algorithm's length, hexadecimal or base64.
pub(crate) fn parse_response(text: &str, algorithm: Algorithm) -> Result<Vec<u8>, WireError> {
    let mut room = [0; RESPONSE_LEN_MAX];
    let named = |e: WireError| WireError { field: "CHAP_R", ..e };
    let bytes = decode_binary(text, &mut room).map_err(named)?;
    if bytes.len() != algorithm.response_len() {
        return Err(WireError::bad("CHAP_R", 0));
    }
    Ok(bytes.to_vec())
}

/// Reads CHAP_I, 0 to 255.
pub(crate) fn parse_id(text: &str) -> Result<u8, WireError> {
    let number = super::number::parse_number(text).and_then(|n| u8::try_from(n).ok());
    number.ok_or(WireError::bad("CHAP_I", 0))
}

/// Reads CHAP_C, 1 to [`CHALLENGE_LEN_MAX`] bytes.
pub(crate) fn parse_challenge(text: &str) -> Result<Vec<u8>, WireError> {
    let mut room = [0; CHALLENGE_LEN_MAX];
    let named = |e: WireError| WireError { field: "CHAP_C", ..e };
    Ok(decode_binary(text, &mut room).map_err(named)?.to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::iscsi::encode_hex;

    #[test]
    fn responses_are_digests_of_id_secret_challenge() {
        // Computed apart: printf 'abc' through md5sum, sha1sum, sha256sum and openssl sha3-256.
        let cases = [
            (Algorithm::Md5, "0x900150983cd24fb0d6963f7d28e17f72"),
            (Algorithm::Sha1, "0xa9993e364706816aba3e25717850c26c9cd0d89d"),
            (
                Algorithm::Sha256,
                "0xba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
            ),
            (Algorithm::Sha3, "0x3a985da74fe225b2045c172d6bd390bd855f086e3e9d525b46bfe24511431532"),
        ];
        for (algorithm, want) in cases {
            let got = response(algorithm, b'a', b"b", b"c");
            assert_eq!(encode_hex(got.bytes()), want);
            assert_eq!(got.bytes().len(), algorithm.response_len());
        }
    }

    #[test]
    fn chap_values_of_wrong_length_or_form_are_refused() {
        let hex = |n: usize| format!("0x{}", "ab".repeat(n));
        for algorithm in Algorithm::ALL {
            let len = algorithm.response_len();
            assert!(parse_response(&hex(len), algorithm).is_ok());
            for wrong in [len - 1, len + 1, 33, 500] {
                assert!(parse_response(&hex(wrong), algorithm).is_err());
            }
        }
        assert_eq!(parse_id("255"), Ok(255));
        assert!(parse_id("256").is_err() && parse_id("").is_err());
        assert!(parse_challenge(&hex(1024)).is_ok());
        assert_eq!(parse_challenge(&hex(1025)).unwrap_err().field, "CHAP_C");
        assert!(equal_constant_time(b"abc", b"abc"));
        assert!(!equal_constant_time(b"abc", b"abd") && !equal_constant_time(b"abc", b"ab"));
    }

    #[test]
    fn algorithms_are_listed_and_chosen_by_number() {
        assert_eq!(Algorithms::ANY.list(), "8,7,6,5");
        assert_eq!(Algorithms::default().list(), "8,7,6");
        assert_eq!(Algorithms::default().first_of("5,7"), Some(Algorithm::Sha256));
        assert_eq!(Algorithms::default().first_of("5"), None);
        assert_eq!(Algorithms::ANY.first_of("5,7"), Some(Algorithm::Md5));
        assert_eq!(Algorithms::ANY.first_of("x,9,,6"), Some(Algorithm::Sha1));
    }
}
