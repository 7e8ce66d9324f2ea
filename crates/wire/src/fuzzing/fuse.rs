//! Target for the FUSE codec.

use crate::fuse::{Header, NAME_MAX, Operation, REQUEST_HEAD, Request, WRITE_HEAD, reply};

/// A message of the kernel, whole and with its data cut off: decoded fields are inside it.
pub fn fuzz_fuse(data: &[u8]) {
    if let Ok(header) = Header::decode(data) {
        let mut again = Vec::new();
        header.encode(&mut again);
        assert_eq!(again.len(), REQUEST_HEAD);
        assert_eq!(Header::decode(&again), Ok(header));
    }
    let head = data.get(..WRITE_HEAD).unwrap_or(data);
    for (bytes, total) in [(data, data.len()), (head, data.len()), (data, data.len() + 1)] {
        let Ok(request) = Request::decode(bytes, total) else { continue };
        assert_eq!(usize::try_from(request.header.len), Ok(total));
        match request.operation {
            Operation::Lookup { name } => assert!(!name.is_empty() && name.len() <= NAME_MAX),
            Operation::Write { size, .. } => assert_eq!(size as usize + WRITE_HEAD, total),
            Operation::Readdir { offset, size } => {
                let all =
                    [reply::Entry { node: 2, name: &data[..data.len().min(99)], folder: false }];
                let mut out = Vec::new();
                reply::entries(request.header.unique, &all, offset, size, &mut out);
                assert!(out.len() <= size as usize + reply::REPLY_HEAD);
            }
            _ => assert!(bytes.len() == total),
        }
    }
}
