//! Target for consoles over Ethernet.

use crate::cec::{CEC_HEAD_LEN, CecFrame};

/// A console frame: a decoded frame encodes to the same bytes, without its padding.
pub fn fuzz_cec(data: &[u8]) {
    if let Ok(frame) = CecFrame::decode(data) {
        let bytes = frame.encode();
        assert_eq!(bytes.len(), CEC_HEAD_LEN + frame.data.len());
        assert!(data.starts_with(&bytes));
        assert_eq!(CecFrame::decode(&bytes), Ok(frame));
    }
}
